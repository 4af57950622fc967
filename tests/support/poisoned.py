"""Workers that are killed by a job of theirs: `python -m support.poisoned`, in an environment with a project.

Each worker is a process of its own. Prints, as JSON, how many were killed, and the states of the jobs.
"""

import asyncio
import json
import os
import signal
import sys

from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.fleet import Fleet, FleetWorker
from redraft.fleet.queue import LIVE
from redraft.settings import load_settings

CONCURRENCY = 5


async def answer(request):
    text = request.messages[-1].content
    if "killer" in text:
        await asyncio.sleep(0.1)  # until the others have begun
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.3)
    return "one two three"


LONG = QualityCriterion("long", evaluator="words", evaluator_config={"at_least": 3})
fleet = Fleet(
    [Agent(ScriptedModel(answer), pattern=ReflectionPattern(quality_criteria=[LONG]), name="clerk")],
    version="poisoned",
    pick_up_after=1,
)


async def submit(names):
    for name in names:
        await fleet.submit("clerk", f"Write as {name}.", run_id=name)
    await fleet.aclose()


async def work():
    worker = FleetWorker(fleet, concurrency=CONCURRENCY)

    async def watch():
        while sum((await fleet.queue.depth(LIVE)).jobs.values()):  # noqa: ASYNC110 (jobs have no event)
            await asyncio.sleep(0.1)
        worker.stop()

    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        group.create_task(watch())


async def states():
    found = {job.run_id: job.state for job in await fleet.jobs()}
    await fleet.aclose()
    return found


def forked(main, *arguments):
    """Run a coroutine in a child with connections of its own; return the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        asyncio.run(main(*arguments))
        os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


def main(names):
    load_settings()
    forked(submit, names)
    killed = 0
    while forked(work):
        killed += 1
        if killed > 3 * len(names):
            break
    print(json.dumps({"killed": killed, "states": asyncio.run(states())}))


if __name__ == "__main__":
    main(sys.argv[1:])
