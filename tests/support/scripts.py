"""Run scripts with short limits, and commands as another user."""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

import redraft
from redraft.errors import SandboxError, SandboxTimeoutError
from redraft.execution import CommandOutcome, Script, ScriptLimits
from redraft.sandbox.scripts import run_script

NAMES = {
    "state": {"name": "Ada", "age": 36, "tags": ["a", None, {}], "gone": None},
    "output": '{"name": "Ada", "email": "ada@example.com"}',
    "reflection_output": {"nested": {"deep": [1, 2.5, True]}, "empty": [], "none": {}},
    "reflection_errors": [{"message": 'it\'s "bad"\n\\ or é😀'}],
    "reflection_iteration": 2,
}
LIMITS = ScriptLimits(seconds=0.25, memory_mb=48, output_chars=20_000, result_chars=50_000)
PATIENT = dataclasses.replace(LIMITS, seconds=30)
"""For scripts that must end by something other than the time limit, however busy the machine is."""
GRACE = 15.0
"""Seconds after its limit by which a hanging script must have ended, however busy the machine is."""


def value_of(language, source, sandbox="inline", limits=None, names=None):
    """A script's value, or raise its error."""
    names = NAMES if names is None else names
    return asyncio.run(run_script(Script(language, source, names, limits or PATIENT, sandbox)))


def attempt(language, source, errors, sandbox="inline", limits=None):
    """Return how an attack ended: an error or a value, and by how many seconds it went beyond its limit.

    Call it with a warm worker: starting one would count as part of the time.
    """

    may_be_late = SandboxTimeoutError in (errors if isinstance(errors, tuple) else (errors,))
    limits = limits or (LIMITS if may_be_late else PATIENT)

    async def run():
        script = Script(language, source, NAMES, limits, sandbox)
        started = time.monotonic()
        try:
            ended = await run_script(script)
        except SandboxError as error:
            ended = error
        return ended, time.monotonic() - started - limits.seconds

    return asyncio.run(run())


def alive(language, sandbox="inline"):
    """Run a script and return whether its value is right."""
    source = {"python": "reflection_iteration", "lua": "return reflection_iteration"}.get(
        language, "evaluate(N) :- reflection_iteration(N)."
    )
    return value_of(language, source, sandbox) == NAMES["reflection_iteration"]


def children_of(pid):
    """The processes that a process has started and not reaped."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def descendants_of(pid):
    """The processes below a process, at any depth."""
    children = children_of(pid)
    return children + [one for child in children for one in descendants_of(child)]


def wait_until_ended(pids):
    """Wait until processes have ended, whether or not they were reaped; fail after a few seconds."""

    def is_running(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    until = time.monotonic() + 3
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < until, f"{left} did not end"
        time.sleep(0.02)


USERS = ["root", "another user"] if os.name == "posix" and os.geteuid() == 0 else ["this user"]
"""The users that attack the jail: root can become another user, and others can't."""

_NOBODY = 65534
_LESSER_MACHINE = """
import asyncio, ctypes, dataclasses, json, struct, sys
from redraft.execution import Command
from redraft.errors import SandboxForbiddenError
from redraft.sandbox import walls
from redraft.sandbox.jail import ProcessJail

refused, allow, commands = json.load(sys.stdin)
steps = [(0x20, 0, 0, 0)]
for name in refused:
    steps += [(0x15, 0, 1, walls.number(name)), (0x06, 0, 0, 0x00050000 | 1)]
steps.append((0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
walls.prctl(38, 1)
if refused:
    walls.syscall("seccomp", 1, 0, struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
for given in commands:
    try:
        outcome = asyncio.run(ProcessJail(allow_unsandboxed=allow)(Command(**given)))
        print(json.dumps(dataclasses.asdict(outcome)))
    except SandboxForbiddenError as error:
        print(json.dumps({"error": str(error)}))
"""


_SOURCE = str(Path(redraft.__file__).parents[1])


@cache
def _for_everybody():
    """An interpreter and a copy of the source that any user may read; ours may be in a home folder."""
    folder = tempfile.mkdtemp(prefix="redraft-tests-", dir="/tmp")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)  # noqa: PTH101, S103 (to be read is what it is there for)
    shutil.copytree(
        Path(_SOURCE, "redraft"), Path(folder, "redraft"), ignore=shutil.ignore_patterns("__pycache__")
    )
    for path in Path(folder).rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    argv = ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    nobody = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run([python, *argv], check=False, cwd="/", env={}, **nobody)
        except OSError:
            continue
        if done.returncode == 0:
            return python, folder
    pytest.skip("There is no Python from 3.11 on here that another user may start.")


def on_lesser_machine(refused, commands, user=USERS[0], *, allow_unsandboxed=False):
    """Run commands in jails made by `user`, one of `USERS`, where the kernel refuses some system calls.

    Returns the outcomes as dicts; where there was no jail, a dict with `error`.
    """
    python, source = _for_everybody() if user == "another user" else (sys.executable, _SOURCE)
    done = subprocess.run(
        [python, "-c", _LESSER_MACHINE],
        input=json.dumps([refused, allow_unsandboxed, commands]),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PYTHONPATH": source, "PATH": os.environ["PATH"], "REDRAFT_TEST_SECRET": "treasure"},
        **({"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if user == "another user" else {}),
    )
    assert done.returncode == 0, f"{done.stderr}\nCan {user} read {source}?"
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_as(user, command, refused=()):
    """Run a command in a jail that `user`, one of `USERS`, has made."""
    (outcome,) = on_lesser_machine(refused, [dataclasses.asdict(command)], user)
    return CommandOutcome(**outcome)
