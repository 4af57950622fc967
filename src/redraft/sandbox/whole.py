"""WholePython: a Python script in a jailed child of its own, with all of the language."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft.protocols import Command
from redraft.sandbox.inside.answer import failure, flooded, late, too_big
from redraft.sandbox.process import ProcessJail
from redraft.sandbox.told import outcome_of

if TYPE_CHECKING:
    from redraft.protocols import CommandOutcome, Script, ScriptOutcome

_START_SECONDS = 0.3
"""Seconds that an interpreter and its walls may take before the script's own time runs."""

_INTERPRETER_MB = 128
_START = "from redraft.sandbox.inside.whole_script import run; result = run(inputs)"
_HERE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class WholePython:
    """Run Python scripts in jailed children: a `ScriptRunner`.

    Data goes in as JSON and comes out as JSON; a script that did not run to its end has no result, whatever
    it printed. `allow_unsandboxed` runs it with limits only where there is no jail (see `ProcessJail`).
    """

    allow_unsandboxed: bool = False

    async def __call__(self, script: Script, /) -> ScriptOutcome:
        """Run one script in a fresh child; waiting for a free slot does not count as its time."""
        limits = script.limits
        outcome = await ProcessJail(self.allow_unsandboxed)(
            Command(
                python=_START,
                inputs={"source": script.source, "names": dict(script.names), "limits": limits.to_json()},
                timeout=limits.seconds + _START_SECONDS,
                memory=(limits.memory_mb + _INTERPRETER_MB) << 20,
                readable=(_HERE,),
                output_limit=4 * limits.output_chars,  # bytes, and a character takes up to four
            )
        )
        return outcome_of("Python", _answer(outcome, limits.to_json()))


def _answer(outcome: CommandOutcome, limits: dict[str, Any]) -> dict[str, Any]:
    stopped = {"timeout": late, "memory": too_big, "output": flooded}
    if outcome.stopped in stopped:
        return stopped[outcome.stopped](limits)
    if outcome.stopped:
        return failure("forbidden", "did what it may not do")
    result: Any = outcome.result
    if not isinstance(result, dict) or not outcome.completed:
        return failure("script", f"ended before its last line (exit code {outcome.exit_code})")
    if len(outcome.stdout) > limits["output_chars"]:
        return flooded(limits)
    return {**cast("dict[str, Any]", result), "printed": outcome.stdout}
