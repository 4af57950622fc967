import asyncio
from contextvars import ContextVar

import pytest

from redraft._sync import run_sync

variable: ContextVar[str] = ContextVar("variable", default="before")


async def work(value):
    await asyncio.sleep(0)
    variable.set(value)
    if value == "error":
        raise ValueError(value)
    return value


def test_runs_to_the_end_and_leaves_its_context():
    assert run_sync(work("plain")) == "plain"
    assert variable.get() == "plain"


def test_inside_a_running_loop():
    async def main():
        return run_sync(work("nested")), variable.get()

    assert asyncio.run(main()) == ("nested", "nested")


def test_errors_come_through():
    with pytest.raises(ValueError, match="error"):
        run_sync(work("error"))
    assert variable.get() == "error"


def test_inside_a_callback_and_in_the_cleanup_of_a_cancelled_task():
    found = []

    async def main():
        asyncio.get_running_loop().call_soon(lambda: found.append(run_sync(work("callback"))))
        try:
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            found.append(run_sync(asyncio.sleep(0.3, "tidied")))  # longer than the wait looks up

    asyncio.run(main())
    assert found == ["callback", "tidied"]
