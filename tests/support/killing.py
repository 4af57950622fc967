"""Kill the process of a feature at its points, resume it, and report; used by test_killing.py and tests/soak.

    python -m support.killing FEATURE FOLDER POINTS [DATABASE]

A point has a name, such as `after put_if_absent step evaluate`. POINTS is `kinds` (the last point of each
name that matches the feature's `kinds`), `all`, or a number of kills at random times, after each of which the
feature is resumed and may be killed again. The report is one JSON document.

Everything is imported once: each process under test is a fork of this one, which has no threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree


class Killer:
    """Kill this process at a point: the n-th of its name.

    Effects are logged in the folder, from their beginning, so that they are counted across all processes.
    """

    def __init__(self, folder, point=None):
        self.log = folder / "effects.log"
        self.point, self.passed = point, Counter()

    def passes(self, name):
        self.passed[name] += 1
        if (name, self.passed[name]) == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

    async def effect(self, name, seconds=0.0):
        """Do something that is paid for, such as a model call."""
        self._log(name)
        self.passes(f"in {_kind(name)}")
        await asyncio.sleep(seconds)
        self.passes(f"after {_kind(name)}")

    def note(self, name):
        """Do something that takes no time."""
        self._log(name)
        self.passes(f"after {_kind(name)}")

    def _log(self, name):
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{name}\n".encode())
        os.close(log)


def _kind(effect):
    """The word that an effect has in common with others of its kind."""
    return next(word for word in effect.split() if word.isalpha())


def _kind_of(record):
    return f"step {record.data['name'].split()[0]}" if record.kind == "step" else record.kind


def watched(kind, killer, *arguments):
    """A store of this kind with a point before and after each write."""

    class Watched(kind):
        async def put(self, record):
            return await around(f"put {_kind_of(record)}", super().put(record))

        async def put_all(self, records):
            kinds = dict.fromkeys(map(_kind_of, records))
            return await around(f"put_all {' '.join(kinds)}", super().put_all(records))

        async def put_if_absent(self, record):
            return await around(f"put_if_absent {_kind_of(record)}", super().put_if_absent(record))

        async def replace(self, record):
            return await around(f"replace {_kind_of(record)}", super().replace(record))

        async def delete(self, kind, key):
            return await around(f"delete {kind}", super().delete(kind, key))

    async def around(name, write):
        killer.passes(f"before {name}")
        stored = await write
        killer.passes(f"after {name}")
        return stored

    return Watched(*arguments)


def fork(feature, folder, point=None):
    """Start the feature in a process that writes its result and its number of points to a file."""
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        killer = Killer(folder, point)
        result = asyncio.run(feature.run(folder, killer))
        written = folder / f"result.{os.getpid()}"
        written.write_text(json.dumps([result, killer.passed]))
        written.rename(folder / f"{written.name}.json")  # whole, or missing: it may be killed here, too
        os._exit(0)
    return pid


def ended(pid):
    """Wait for a process; return whether it came to its end."""
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"a process failed with exit code {os.WEXITSTATUS(status)}")
    return os.WIFEXITED(status)


def effects(folder):
    log = folder / "effects.log"
    return log.read_text().splitlines() if log.exists() else []


class Case:
    """A feature in a folder of its own, which is killed and resumed until it ends."""

    def __init__(self, feature, folder):
        self.feature, self.folder = feature, folder
        self.repeated, self.kills = [], 0
        folder.mkdir(parents=True)
        feature.prepare(folder)

    def start(self, point=None):
        self._known, self._before = self.feature.recorded(self.folder), len(effects(self.folder))
        return fork(self.feature, self.folder, point)

    def ended(self, pid):
        done = ended(pid)
        self.kills += not done
        self.repeated += [name for name in effects(self.folder)[self._before :] if name in self._known]
        return done

    def results(self):
        return [json.loads(path.read_text()) for path in self.folder.glob("result.*.json")]

    def mistakes(self, expected, order):
        """Say what was done again although it was finished, was missing, or came out differently."""
        stages = [*dict.fromkeys(map(self.feature.stage, order))]
        log = effects(self.folder)
        wrong = [f"recorded, but done again: {name}" for name in self.repeated]
        if not self.feature.at_once:
            places = [stages.index(self.feature.stage(name)) for name in log]
            wrong += [
                f"finished, but done again: {name}"
                for at, name in enumerate(log)
                if at and places[at] < max(places[:at]) and name not in self.feature.free
            ]
        elif (again := len(log) - len(set(log))) > self.feature.at_once * self.kills:
            wrong.append(f"{again} effects were done again, more than were under way in {self.kills} kills")
        if set(log) != set(order):
            wrong.append(f"not the effects of a whole run: {sorted(set(log) ^ set(order))}")
        wrong += [f"ended differently: {result}" for result, _ in self.results() if result != expected]
        return [f"{self.folder.name}: {each}" for each in wrong]


def kill_at(case, point):
    """Kill a feature at a point, and resume it; return whether it was killed."""
    was_killed = not case.ended(case.start(point))
    if was_killed:
        case.ended(case.start())
    return was_killed


def kill_at_random(feature, folder, kills, seconds, chance):
    """Kill a feature after random times until it ends or has been killed so often; return the kills."""
    case, killed = Case(feature, folder), 0
    while True:
        pid = case.start()
        if killed < kills:
            time.sleep(chance.uniform(0, seconds))
            os.kill(pid, signal.SIGKILL)
        if case.ended(pid):
            return case, killed
        killed += 1


def twice_at_once(feature, folder):
    """Let two processes work on the same at once."""
    case = Case(feature, folder)
    for pid in [case.start(), case.start()]:
        ended(pid)
    return [result for result, _ in case.results()]


def main(name, folder, points, database=""):
    from support.killed import FEATURES

    feature = FEATURES[name](database)
    if not feature.leaves_threads:
        warm = Case(feature, folder / "warm")  # what is loaded on first use, every fork has
        asyncio.run(feature.run(warm.folder, Killer(warm.folder)))
        for thread in threading.enumerate():  # the last may be about to end
            if thread is not threading.current_thread():
                thread.join(60)
        assert threading.active_count() == 1
    whole = Case(feature, folder / "whole")
    began = time.monotonic()
    whole.ended(whole.start())
    seconds = time.monotonic() - began
    [(expected, passed)] = whole.results()
    if feature.at_once > 1:  # how effects overlap decides how often a point is passed
        passed = {name: -(-times * 3 // 4) for name, times in passed.items()}
    order, wrong, killed = effects(whole.folder), [], 0
    chosen = [(name, times) for name, times in passed.items() if re.match(feature.kinds, name)]
    if points == "all":
        chosen = [(name, time) for name, times in passed.items() for time in range(1, times + 1)]
    if points in ("kinds", "all"):
        for number, point in enumerate(chosen):
            case = Case(feature, folder / f"kill-{number}")
            killed += kill_at(case, point)
            wrong += [f"{point}: {mistake}" for mistake in case.mistakes(expected, order)]
            rmtree(case.folder)
    else:
        chance, runs = random.Random(7), 0  # noqa: S311 (chance, not secrecy)
        while killed < int(points):
            runs += 1
            case, more = kill_at_random(
                feature, folder / f"random-{runs}", int(points) - killed, seconds, chance
            )
            killed += more
            wrong += case.mistakes(expected, order)
            rmtree(case.folder)
    report = {"points": chosen, "killed": killed, "wrong": wrong, "expected": expected, "order": order}
    if feature.is_shared:
        report["shared"] = [one == expected for one in twice_at_once(feature, folder / "shared")]
    return report


FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["support.killed"])
"""Starts a process for each report, in which all that features import has been imported."""


def report_of(feature, folder, points, database="", timeout=120):
    """Kill a feature in a process of its own; return the report."""
    process = FORKS.Process(target=_write_report, args=(feature, folder, points, database))
    process.start()
    process.join(timeout)
    process.kill()
    return json.loads((folder / "report.json").read_text())


def _write_report(feature, folder, points, database):
    os.environ["REDRAFT_HOME"] = ".redraft"
    (folder / "report.json").write_text(json.dumps(main(feature, folder, points, database)))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])))
