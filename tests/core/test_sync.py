import asyncio
from contextvars import ContextVar

import pytest

from redraft.core.sync import run_sync

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
