"""What starting costs: CPU time of fresh processes that import Redraft, use it once, or print help."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from _measure import median_gap, options, publish, table, verdict

from redraft.lessons import Failure, Lessons
from redraft.types import PlainTask

FIRST_RUN = """
from redraft import reflect_sync
result = reflect_sync("task", generate=lambda prompt: "draft", evaluate=lambda output: True)
assert result.success
"""
HELP = Path(sys.executable).with_name("redraft")
CRITERIA = "criteria: [{name: no debugging, evaluator: regex, config: {pattern: 'print', must_match: false}}]"
LESSONS = 30
BARE = "a bare interpreter"
# Each subject with what is asked of it: the target in CPU milliseconds, and whether bare is taken off first.
SUBJECTS: dict[str, tuple[list[str], float | None, bool]] = {
    BARE: ([sys.executable, "-c", "pass"], None, False),
    "`import asyncio`": ([sys.executable, "-c", "import asyncio"], None, True),
    "`from redraft import reflect`": ([sys.executable, "-c", "from redraft import reflect"], 40.0, True),
    "the same and a first tiny run": ([sys.executable, "-c", FIRST_RUN], None, True),
    "`redraft --help`": ([str(HELP), "--help"], 100.0, True),
}


def commit_check(folder: str) -> list[str]:
    """Make a repository with a staged file; return the command that checks it as a hook of an agent does."""
    for name, text in (("redraft.toml", ""), ("criteria.yaml", CRITERIA), ("code.py", "x = 1\n" * 100)):
        (Path(folder) / name).write_text(text, "utf-8")
    for words in (["init", "--quiet"], ["add", "code.py"]):
        subprocess.run(["git", *words], cwd=folder, check=True)  # noqa: S607
    return ["/bin/sh", "-c", f"cd {shlex.quote(folder)} && {shlex.quote(str(HELP))} hook stop git"]


def session(folder: str) -> tuple[list[str], list[str]]:
    """Write lessons into a repository; return the hooks of a session and of an action there."""
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message=Begin"]):
        subprocess.run(["git", *words], cwd=folder, check=True)  # noqa: S607
    with chdir(folder):
        asyncio.run(_teach())
    action = {"tool_name": "Bash", "tool_input": {"command": "pytest -q tests"}}
    return (
        _hook(folder, "start", {"hook_event_name": "SessionStart", "source": "startup"}),
        _hook(folder, "before", {"hook_event_name": "PreToolUse", **action}),
    )


def _hook(folder: str, command: str, event: dict[str, Any]) -> list[str]:
    """Write an event into a folder; return the command that tells a hook of it."""
    file = Path(folder, f"{command}.json")
    file.write_text(json.dumps({**event, "session_id": "s", "cwd": folder}), "utf-8")
    hook = f"{shlex.quote(str(HELP))} hook {command} claude < {shlex.quote(str(file))}"
    return ["/bin/sh", "-c", f"cd {shlex.quote(folder)} && {hook}"]


async def _teach() -> None:
    lessons = Lessons(agent="coding-agent", embedder="none", model=None, auto=False)
    for number in range(LESSONS):
        name = f"part_{number}"
        told = Failure(
            what_happened=f"The tests of {name} failed.",
            what_went_wrong="An import was missing.",
            why="Nobody ran the tests.",
            do_differently=f"Run the tests of {name} before you finish.",
            rule=f"Run the tests of {name} when it changes.",
        )
        await lessons.record(told, PlainTask(f"Change {name}.", task_type="coding"))
    await lessons.aclose()


def cpu_ms(argv: list[str]) -> float:
    """Run a command with its output thrown away; return its user and system time in milliseconds."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # an installed package has its bytecode, too
    silence = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=silence)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(argv)} failed: exit code {os.waitstatus_to_exitcode(status)}.")
    return (usage.ru_utime + usage.ru_stime) * 1e3


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=21, help="processes for each figure")
    given = parser.parse_args()
    with TemporaryDirectory() as checked, TemporaryDirectory() as taught:
        start, before = session(taught)
        subjects = SUBJECTS | {
            "`redraft hook stop`, a free check of a diff": (commit_check(checked), 300.0, False),
            f"`redraft hook start`, {LESSONS} lessons": (start, 300.0, False),
            "`redraft hook before`, the same lessons": (before, 150.0, False),
        }
        times: dict[str, list[float]] = {name: [] for name in subjects}
        for repeat in range(given.repeats + 1):
            for name, (argv, _, _) in subjects.items():
                spent = cpu_ms(argv)
                if repeat:  # the first round fills the caches
                    times[name].append(spent)
    rows: list[tuple[object, ...]] = []
    for name, (_, target, over_bare) in subjects.items():
        whole, gap = median(times[name]), median_gap(times[name], times[BARE])
        judged = gap if over_bare else whole
        rows.append(
            (
                name,
                f"{whole:.0f}",
                f"{gap:.0f}",
                f"{whole / median(times[BARE]):.1f}",
                "" if target is None else f"{target:.0f}{' over bare' * over_bare} {verdict(judged, target)}",
            )
        )
    head = ("CPU milliseconds", "process", "over bare", "ratio", "target")
    publish("start", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
