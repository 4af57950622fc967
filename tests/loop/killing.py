"""Kill runs in real processes and say what became of them; run by test_killing.py, prints one JSON document.

Everything is imported once, and each process under test is a fork of this one, which has no threads then.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from redraft import Draft, ReflectionPattern, TokenUsage, reflect
from redraft._codec import to_json
from redraft._steps import answer
from redraft.loop.journal import Journalled
from redraft.loop.runs import Runs
from redraft.protocols import ChatReply, ChatRequest, ReflectionCallbacks
from redraft.protocols import ReflectionDecision as Decision
from redraft.stores.postgres import PostgresStore
from redraft.stores.sqlite import SqliteStore
from redraft.types import Message

REVISIONS = {"point": 1, "random": 3, "shared": 2, "warm": 1}
"""How long the runs of each kind are: that every point is killed once, a short one shows."""


class Killer:
    """Kill this process at the n-th point that it passes; 0 never does."""

    def __init__(self, point):
        self.left = point

    def passes(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Watched:
    """A store with a point before and after each write."""

    def __init__(self, place, killer):
        super().__init__(place)
        self.killer = killer

    async def put(self, record):
        self.killer.passes()
        stored = await super().put(record)
        self.killer.passes()
        return stored

    async def put_all(self, records):
        self.killer.passes()
        stored = await super().put_all(records)
        self.killer.passes()
        return stored

    async def put_if_absent(self, record):
        self.killer.passes()
        stored = await super().put_if_absent(record)
        self.killer.passes()
        return stored


class WatchedStore(Watched, SqliteStore):
    """A file that is watched."""


class WatchedDatabase(Watched, PostgresStore):
    """A PostgreSQL database that is watched."""


def watched(folder, point=0):
    """Return the store of the runs: in the folder, or in the database of KILLING_DATABASE."""
    url = os.environ.get("KILLING_DATABASE")
    return WatchedDatabase(url, Killer(point)) if url else WatchedStore(folder / "redraft.db", Killer(point))


class Program:
    """A run with model calls inside steps, a judge asked twice at once, and a person who is asked."""

    def __init__(self, folder, run_id, point=0):
        self.folder, self.run_id = folder, run_id
        self.store = watched(folder, point)
        self.killer = self.store.killer

    async def effect(self, name):
        """Do something that is paid for: it is in the log from its beginning."""
        log = os.open(self.folder / f"{self.run_id}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{name}\n".encode())
        os.close(log)
        self.killer.passes()
        await asyncio.sleep(0.0005)
        self.killer.passes()

    async def model(self, request):
        await self.effect(request.messages[0].content)
        return ChatReply(f"reply to {request.messages[0].content}", usage=TokenUsage(3, 2, requests=1))

    async def ask(self, what):
        return await answer(self.model, ChatRequest((Message("user", what),)))

    async def generate(self, prompt):
        return Draft("draft 1", (await self.ask("generate 1")).usage)

    async def evaluate(self, output):
        number = int(output.split()[-1])
        await asyncio.gather(self.ask(f"judge {number} a"), self.ask(f"judge {number} b"))
        return number / 10, f"number {number}"

    async def revise(self, output, evaluation):
        number = int(output.split()[-1]) + 1
        outline = await self.ask(f"outline {number}")
        text = await self.ask(f"revise {number}")
        return Draft(f"draft {number}", outline.usage + text.usage)

    async def run(self):
        program, revisions = self, REVISIONS[self.run_id.partition("-")[0]]

        class Person(ReflectionCallbacks):
            async def on_reflection(self, evaluation, iteration):
                await program.effect(f"person {iteration}")
                return Decision.CONTINUE

        try:
            result = await reflect(
                "Count.",
                generate=self.generate,
                evaluate=self.evaluate,
                revise=self.revise,
                pattern=ReflectionPattern(max_iterations=revisions, callbacks=Person()),
                step=Journalled(self.store, self.run_id),
            )
        finally:
            await self.store.aclose()
        versions = [to_json(version) for version in result.history.versions]
        return [versions, str(result.convergence_reason), to_json(result.token_usage), result.execution_time]


ORDER = ["generate 1", "judge 1", "person 1"] + [
    f"{what} {number}"
    for number in range(2, max(REVISIONS.values()) + 2)
    for what in ("outline", "revise", "judge", "person")
]


def fork(folder, run_id, point=0):
    """Start a process that carries out the run and writes its result to a file; return its id."""
    pid = os.fork()
    if pid == 0:
        result = asyncio.run(Program(folder, run_id, point).run())
        written = folder / f"{run_id}.{os.getpid()}.part"
        written.write_text(json.dumps(result))
        written.rename(written.with_suffix(".json"))  # whole, or not there: it may be killed here, too
        os._exit(0)
    return pid


def ended(pid):
    """Wait for a process; return whether it came to its end."""
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"a run failed with exit code {os.WEXITSTATUS(status)}")
    return os.WIFEXITED(status)


def mistakes(folder, run_id):
    """Say what was done twice although it was finished: each effect must lie behind all that came before."""
    log = (folder / f"{run_id}.log").read_text().split("\n")[:-1]
    places = [ORDER.index(name.removesuffix(" a").removesuffix(" b")) for name in log]
    again = [log[i] for i in range(1, len(log)) if places[i] < max(places[:i])]
    results = [json.loads(path.read_text()) for path in folder.glob(f"{run_id}.*.json")]
    differ = [result[1:] for result in results if result != results[0]]
    return [f"{run_id}: {what}" for what in (*again, *differ)]


def kill_at_every_point(folder):
    """Kill a run at each of its points in turn, and resume it."""
    wrong, point = [], 0
    while True:
        point += 1
        run_id = f"point-{point}"
        finished = ended(fork(folder, run_id, point))
        if not finished:
            ended(fork(folder, run_id))
        wrong += mistakes(folder, run_id)
        if finished:
            return point - 1, wrong


def kill_at_random(folder, kills, seed):
    """Kill runs after random times, again and again until they end."""
    chance, wrong, done, runs = random.Random(seed), [], 0, []  # noqa: S311 (chance, not secrecy)
    while done < kills:
        run_id = f"random-{len(runs)}"
        runs.append(run_id)
        while True:
            pid = fork(folder, run_id)
            if done < kills:
                time.sleep(chance.uniform(0.002, 0.08))
                os.kill(pid, signal.SIGKILL)
            if ended(pid):
                break
            done += 1
        wrong += mistakes(folder, run_id)
    return done, wrong, runs


def two_at_once(folder):
    """Let two processes work on one run at the same time."""
    pids = [fork(folder, "shared"), fork(folder, "shared")]
    for pid in pids:
        ended(pid)
    results = [(folder / f"shared.{pid}.json").read_text() for pid in pids]
    return [] if results[0] == results[1] else ["two processes on one run ended differently"]


def main(folder, kills, seed):
    for _ in range(2):  # run and replay once here: what is loaded on first use, every fork has
        asyncio.run(Program(folder, "warm").run())
    points, wrong = kill_at_every_point(folder)
    killed, more, runs = kill_at_random(folder, kills, seed)
    wrong += more + two_at_once(folder)

    async def kept():
        store = watched(folder)
        found = await Runs(store).find(limit=10_000)
        await store.aclose()
        return found

    found = asyncio.run(kept())
    report = {
        "points": points,
        "killed": points + killed,
        "wrong": wrong,
        "runs": len(found),
        "expected_runs": 1 + points + 1 + len(runs) + 1,
        "statuses": sorted({run.status for run in found}),
        "lengths": {run.run_id.partition("-")[0]: len(run.versions) for run in found},
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
