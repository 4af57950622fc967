"""How soon a lesson of one machine is recalled on another, and what sharing costs while nothing changes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from _measure import PROJECT, options, publish, table

if TYPE_CHECKING:
    from support.machines import Machine

LESSONS = 30
FILES = 200
"""Files of the agent, of which 30 are outside the archive."""
LIMIT = 60.0


def recalled_after(a: Machine, b: Machine, number: int) -> float:
    """Return the seconds from the writing of a lesson on one machine to its recall on another."""
    from redraft import Lessons
    from support.lessons import FAILURE

    word = f"gadget{number}"
    content = replace(FAILURE, why=f"The shop calls it a {word}.")
    began = time.monotonic()
    known = a.learn(content, summary=f"Number {number}", task=f"Order a {word}.")

    async def recall() -> float:
        lessons = Lessons(b.home / "memory", agent="clerk", store=False, auto=False)
        try:
            while time.monotonic() - began < LIMIT:
                if (b.home / "memory" / "reflections" / f"{known}.md").exists():
                    found = await lessons.search(f"Order another {word}.")
                    if known in [one.lesson.id for one in found]:
                        return time.monotonic() - began
                await asyncio.sleep(0.01)
        finally:
            await lessons.aclose()
        raise TimeoutError(f"{known} is not recalled: {b.said()}")

    return asyncio.run(recall())


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def idle_cpu(url: str, seconds: float, *, shares: bool) -> float:
    """Return the CPU seconds a second of a worker that has nothing to do, with 200 files of lessons."""
    from support.lessons import FAILURE
    from support.machines import Machine

    with TemporaryDirectory() as folder:
        machine = Machine("a", Path(folder), url, FLEET_SHARE=int(shares))
        for number in range(FILES):
            machine.learn(replace(FAILURE, why=f"For the reason {number}."), summary=f"Number {number}")
        machine.lessons.archive()
        worker = machine.start()
        try:
            time.sleep(15)  # it has started, and sent all that there is
            before = cpu_of(worker.pid)
            time.sleep(seconds)
            return (cpu_of(worker.pid) - before) / seconds
        finally:
            machine.stop()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="seconds for which the CPU is measured")
    given = parser.parse_args()
    sys.path.insert(0, str(PROJECT / "tests"))
    from support.machines import Machine
    from support.postgres_server import Place, Server

    server = Server(durable=True)
    server.start()
    try:
        with TemporaryDirectory() as folder:
            url = Place(server.url()).url
            a, b = (Machine(name, Path(folder), url) for name in "ab")
            a.start()
            b.start()
            try:
                recalled_after(a, b, LESSONS)  # both have started
                seconds = sorted(recalled_after(a, b, number) for number in range(LESSONS))
            finally:
                a.stop()
                b.stop()
        idle = {
            shares: idle_cpu(Place(server.url()).url, given.seconds, shares=shares)
            for shares in (True, False)
        }
    finally:
        server.remove()
    rows = [
        [
            f"a lesson written on one machine is recalled on another, {LESSONS} lessons: median, longest",
            f"{median(seconds):.1f} s, {seconds[-1]:.1f} s",
        ],
        ["CPU of an idle worker that shares 200 files", f"{idle[True] * 1e3:.1f} ms a second"],
        ["CPU of an idle worker that shares none", f"{idle[False] * 1e3:.1f} ms a second"],
    ]
    publish("sharing", table(["measured", "figure"], rows), write=given.write)


if __name__ == "__main__":
    main()
