import asyncio
import signal
import subprocess
import sys
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


def test_context_changes_persist():
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


def test_in_a_callback_and_in_cleanup_after_cancellation():
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


NESTED = """
import asyncio
from redraft import reflect_sync

async def generate(prompt):
    try:
        print("started", flush=True)
        await asyncio.sleep(60)
    finally:
        print("stopped", flush=True)

async def cell():  # what a notebook does: sync code inside a loop that runs
    reflect_sync("W.", generate=generate, evaluate=bool)

"""


@pytest.mark.parametrize(
    "begin", ["asyncio.new_event_loop().run_until_complete(cell())", "asyncio.run(cell())"]
)
def test_interrupt_reaches_the_other_thread(begin):
    with subprocess.Popen(
        [sys.executable, "-c", NESTED + begin], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"started\n"
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=20)
    assert output == b"stopped\n"
    assert b"KeyboardInterrupt" in errors
