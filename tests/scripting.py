"""Run a script as the tests do: with short limits, and with the time that it took."""

from __future__ import annotations

import asyncio
import time

from redraft.core.errors import SandboxError
from redraft.core.script import Limits, Script
from redraft.sandbox.scripts import run_script

NAMES = {
    "state": {"name": "Ada", "age": 36, "tags": ["a", None, {}], "gone": None},
    "output": '{"name": "Ada", "email": "ada@example.com"}',
    "reflection_output": {"nested": {"deep": [1, 2.5, True]}, "empty": [], "none": {}},
    "reflection_errors": [{"message": 'it\'s "bad"\n\\ or é😀'}],
    "reflection_iteration": 2,
}
SECONDS = 0.25
HALF_A_SECOND = 0.5
LIMITS = Limits(seconds=SECONDS, memory_mb=48, output_chars=20_000, result_chars=50_000)


def value_of(language, source, sandbox="inline", limits=None, names=None):
    """Return a script's value; raises what it ends in."""
    limits = limits or Limits(seconds=5, memory_mb=48, output_chars=20_000, result_chars=50_000)
    return asyncio.run(
        run_script(Script(language, source, NAMES if names is None else names, limits, sandbox))
    )


def attempt(language, source, sandbox="inline", limits=LIMITS):
    """Return how an attack ended: an error or a value, and by how many seconds it went beyond its limit.

    The time is taken inside the loop of a warm worker: what a first start takes is no part of it.
    """

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
    """Say whether the next script is none the worse for the one before."""
    source = {"python": "reflection_iteration", "lua": "return reflection_iteration"}.get(
        language, "evaluate(N) :- reflection_iteration(N)."
    )
    return value_of(language, source, sandbox) == NAMES["reflection_iteration"]
