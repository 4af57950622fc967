"""MARS: what an important reflection yields besides, a rule that prevents and steps that can be replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from redraft.lessons.rule import refusal, rule_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.lessons.clean import Cleaner
    from redraft.lessons.outcome import Outcome

MOST_STEPS = 20
_SYSTEMIC = {
    "failed": "true only if the cause lies in how such tasks are done, and would come again in others; "
    "false for a slip, an outage or a mistake of this one task",
    "success": "true only if what was done can be repeated for other tasks of this kind",
    "decision": "true only if other tasks will need the same decision",
}
_PRINCIPLE = (
    "if systemic, one sentence 'IF ... THEN ...' that says what to do with what, in the names of the tools, "
    "errors and things that it is about; otherwise empty"
)
_STEPS = {
    "failed": "if systemic, the steps that were taken up to the failure, one a line; otherwise empty",
    "success": "if systemic, the steps that worked, one a line; otherwise empty",
    "decision": "if systemic, the steps that led to the decision, one a line; otherwise empty",
}
_STRATEGY = "if systemic, the idea behind these steps and what came of it, in a sentence; otherwise empty"


@dataclass(frozen=True, slots=True)
class Replay:
    """Hold steps that were taken, the idea behind them, and how it ended. Reflexion Protocol, section 6."""

    steps: tuple[str, ...]
    strategy: str
    outcome: Literal["success", "failure"]


def says_of(outcome: Outcome) -> dict[str, str]:
    """Return what to ask a model for besides the reflection, by name; nothing for a task done in part."""
    if outcome.status not in _SYSTEMIC:
        return {}
    return {
        "systemic": _SYSTEMIC[outcome.status],
        "principle": _PRINCIPLE,
        "strategy_to_replay": _STRATEGY,
        "steps_to_replay": _STEPS[outcome.status],
    }


SCHEMAS: dict[str, Mapping[str, Any]] = {
    "systemic": {"type": "boolean"},
    "principle": {"type": "string"},
    "strategy_to_replay": {"type": "string"},
    "steps_to_replay": {"type": "array", "items": {"type": "string"}},
}


def principle_in(reply: Mapping[str, Any], cleaner: Cleaner) -> tuple[str, str]:
    """Return the principle of a reply, or why it can't be one; neither where the cause is not systemic."""
    said = reply.get("principle")
    if reply.get("systemic") is not True or not isinstance(said, str) or not said.strip():
        return "", ""
    text = cleaner.redacted(said)
    why = refusal(text) or cleaner.refusal(text)
    return ("", why) if why else (rule_text(text), "")


def replay_in(reply: Mapping[str, Any], outcome: Outcome, cleaner: Cleaner) -> tuple[Replay | None, str]:
    """Return the steps of a reply, or why they can't be kept; neither where the cause is not systemic."""
    said, strategy = reply.get("steps_to_replay"), reply.get("strategy_to_replay")
    if reply.get("systemic") is not True or not isinstance(said, list) or not isinstance(strategy, str):
        return None, ""
    listed = cast("list[Any]", said)
    steps = [cleaner.redacted(" ".join(step.split())) for step in listed if isinstance(step, str)]
    steps = [step for step in steps if step][:MOST_STEPS]
    idea = cleaner.redacted(strategy)
    if not steps or not idea:
        return None, ""
    if refusals := [why for text in (idea, *steps) if (why := cleaner.refusal(text))]:
        return None, refusals[0]
    return Replay(tuple(steps), idea, "success" if _went_well(outcome) else "failure"), ""


def _went_well(outcome: Outcome) -> bool:
    return outcome.status != "failed" and not outcome.error
