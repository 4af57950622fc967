"""AgentFeedback: what a person filled in to tell an agent what he thinks of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from redraft.cycles.agents import UNDER_WAY
from redraft.cycles.mail import VERDICTS, Verdict
from redraft.errors import ConfigError

if TYPE_CHECKING:
    from redraft.cycles.agents import AgentHandle
    from redraft.web.change import Wanted

EXAMPLE = '{"level": 2}'
LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class AgentFeedback:
    """Hold a form as it was sent; `cycle` and `action` are what it is about, None for all there is."""

    verdict: Verdict
    message: str
    cycle: int | None
    action: str | None
    changes: Mapping[str, Any] | None
    by: str

    @classmethod
    def of(cls, wanted: Wanted) -> Self:
        """Read the fields; raises `ConfigError` for what a verdict can't be made of."""
        verdict = wanted.text("verdict", "")
        if verdict not in VERDICTS:
            raise ConfigError(f"verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}.")
        return cls(
            verdict,
            wanted.text("message", ""),
            number_of("cycle", wanted.text("cycle", "")),
            wanted.text("action", "").strip() or None,
            _parameters(wanted.text("changes", "")) if verdict == "modify" else None,
            wanted.text("by", "").strip(),
        )

    async def leave(self, view: AgentHandle) -> str:
        """Leave it for an agent, and say what becomes of it; raises `ConfigError` for an unknown cycle.

        What is said in general while a plan waits would decide on it, so it is refused.
        """
        summary = await view.summary()
        last = summary.last
        if last is not None and last.status == "waiting" and self.cycle is None:
            raise ConfigError(
                f"Cycle {last.number} waits for a decision, which this would be: decide on it first."
            )
        if self.cycle is not None:
            await view.cycle(self.cycle)
        await view.send_feedback(
            self.verdict,
            self.message,
            cycle=self.cycle,
            action=self.action,
            changes=self.changes,
            by=self.by,
        )
        then = "its next cycle takes it into account"
        if last is not None and last.number == self.cycle and last.status in UNDER_WAY:
            then = (
                "it counts when the agent runs again" if summary.status == "killed" else "the cycle hears it"
            )
        return f"{view.name} has it: {self._what}; {then}."

    @property
    def _what(self) -> str:
        about = "" if self.action is None else f" {self.action}"
        return f"{self.verdict}{about}{'' if self.cycle is None else f' in cycle {self.cycle}'}"


def number_of(name: str, given: str) -> int | None:
    """Return the number of a cycle that was given; None where none was; raises `ConfigError` for another."""
    text = given.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER):
        raise ConfigError(f"{name} is the number of a cycle, got {given!r}.")
    return int(text)


def _parameters(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The parameters must be a JSON object such as {EXAMPLE}: {error}.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"The parameters must be a JSON object such as {EXAMPLE}, got {text!r}.")
    return cast("dict[str, Any]", found)
