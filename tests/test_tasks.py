"""Ending tasks: cancelled, awaited within bounds, and named if they go on."""

import asyncio
from contextlib import suppress

import pytest

from redraft import _tasks
from redraft._tasks import end_tasks


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(_tasks, "LAST_PATIENCE", 0.05)


async def for_ever():
    await asyncio.Event().wait()


async def swallowing(times):
    """Swallow so many cancellations, as `asyncio.wait_for` may in Python 3.11."""
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await for_ever()
    await for_ever()


async def failing():
    try:
        await for_ever()
    finally:
        raise RuntimeError("it breaks while it cleans up")


@pytest.mark.parametrize(
    ("coroutines", "left"),
    [
        ([], []),
        ([for_ever()], []),
        ([for_ever(), failing()], []),
        ([swallowing(1)], []),
        ([swallowing(2), for_ever()], ["task-0"]),
        ([swallowing(2), swallowing(3)], ["task-0", "task-1"]),
    ],
    ids=["none", "willing", "failing", "swallows one", "stubborn and willing", "two stubborn"],
)
def test_tasks_are_cancelled_awaited_and_named_if_they_go_on(coroutines, left, caplog):
    async def main():
        tasks = [asyncio.create_task(one, name=f"task-{n}") for n, one in enumerate(coroutines)]
        await asyncio.sleep(0)  # they have begun
        async with asyncio.timeout(60):
            going_on = await end_tasks([*tasks, None], within=0.05)
        assert sorted(task.get_name() for task in going_on) == left
        assert all(task.done() for task in tasks if task not in going_on)
        while going_on:  # nothing is left for the end of the loop
            going_on = {task for task in going_on if not task.done()}
            for task in going_on:
                task.cancel()
            await asyncio.sleep(0)

    asyncio.run(main())
    warnings = [record.message for record in caplog.records if record.name == "redraft"]
    expected = f"These tasks were cancelled 0.1 s ago and go on: {', '.join(left)}"
    assert warnings == ([expected] if left else [])


def test_a_command_ends_though_a_task_ignores_its_cancellation(caplog, monkeypatch):
    from redraft.terminal.commands import run_async

    monkeypatch.setattr(end_tasks, "__defaults__", (0.05,))

    async def stubborn():
        while True:
            with suppress(asyncio.CancelledError):
                await for_ever()

    async def main():
        main.task = asyncio.create_task(stubborn(), name="stubborn")
        await asyncio.sleep(0)
        return 7

    assert run_async(main()) == 7
    assert "go on: stubborn" in caplog.text
