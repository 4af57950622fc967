"""Lessons, rules and playbooks as advice for a prompt: fenced as data, and bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redraft._texts import estimate_tokens
from redraft.lessons.index import Found
from redraft.lessons.lesson import Content, Decision, Failure, Partial, is_empty
from redraft.lessons.playbooks import Playbook
from redraft.lessons.rules import Rule
from redraft.redact.log import logger
from redraft.text.characters import without_invisible
from redraft.text.replies import fenced
from redraft.types import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.lessons.lesson import Lesson

SEPARATOR_TOKENS = 2
"""Tokens of what separates two pieces of advice in a prompt."""


@dataclass(frozen=True, slots=True)
class Known:
    """Hold what an agent knows about a task: relevant lessons, its rules, playbooks of the task type."""

    lessons: Sequence[Found] = ()
    rules: Sequence[Rule] = ()
    playbooks: Sequence[Playbook] = ()


def advice_of(known: Known, agent: str, max_tokens: int) -> list[Advice]:
    """Return what is known as advice of at most `max_tokens` in all: lessons, rules, playbooks, best first.

    What does not fit is left out, while something shorter after it may still fit; the reason of the last says
    how many were left out.
    """
    chosen: list[Advice] = []
    left, omitted = max_tokens, 0
    for one in _all(known, agent, max_tokens):
        if one.tokens <= left:
            chosen.append(one)
            left -= one.tokens
        else:
            omitted += 1
    if omitted and chosen:
        last = chosen[-1]
        chosen[-1] = replace(
            last, reason=f"{last.reason} ({omitted} more left out, max_tokens={max_tokens})".strip()
        )
    elif omitted:
        logger.warning("No lesson fits into max_tokens=%d: %d left out.", max_tokens, omitted)
    return chosen


def _all(known: Known, agent: str, max_tokens: int) -> Iterator[Advice]:
    for found in known.lessons:
        if _fields(found.lesson.content):
            yield _advice(_said(found.lesson), "lesson", found.lesson.id, found.reason)
    if known.rules:
        yield _rules_advice(known.rules, agent, max_tokens // 2)
    for playbook in known.playbooks:
        reason = f"playbook of the same task type {playbook.task_type!r}"
        yield _advice(_steps(playbook), "playbook", playbook.id, reason)


def _rules_advice(rules: Sequence[Rule], agent: str, max_tokens: int) -> Advice:
    """Return the rules as one piece of advice, leaving out the last ones if they are too many."""
    reason = "the rules of the agent"
    for count in range(len(rules), 0, -1):
        said = "\n".join(f"- {_indented(rule.text)}" for rule in rules[:count])
        missing = len(rules) - count
        how = f"{reason}, without {missing} for which there is no room" if missing else reason
        advice = _advice(said, "list of rules", f"{agent}/rules.md", how)
        if advice.tokens <= max_tokens:
            return advice
    return _advice(f"- {_indented(rules[0].text)}", "list of rules", f"{agent}/rules.md", reason)


def _advice(said: str, label: str, source: str, reason: str) -> Advice:
    text = fenced(said, label)
    return Advice(text, source, reason, estimate_tokens(text) + SEPARATOR_TOKENS)


def _said(lesson: Lesson) -> str:
    """Return the text of a lesson: what it is about, and its fields except the course of events."""
    head = f"From {_about(lesson.content)} of {lesson.day}: {_indented(lesson.summary)}"
    return "\n".join([head, *(f"{name}: {_indented(text)}" for name, text in _fields(lesson.content))])


def _about(content: Content) -> str:
    if isinstance(content, Failure):
        return "a task that failed"
    if isinstance(content, Partial):
        return "a task that was done in part"
    return "a decision" if isinstance(content, Decision) else "a task that was done well"


def _fields(content: Content) -> list[tuple[str, str]]:
    """Return the fields that help in another run, with their labels, leaving out empty phrases."""
    return [(label, text) for label, text in _labelled(content) if not is_empty(text)]


def _labelled(content: Content) -> list[tuple[str, str]]:
    match content:
        case Failure():
            return [
                ("What went wrong", content.what_went_wrong),
                ("Why", content.why),
                ("Do differently", content.do_differently),
                ("Rule", content.rule),
            ]
        case Partial():
            return [
                ("What went wrong", content.what_went_wrong),
                ("Do differently", content.do_differently),
            ]
        case Decision():
            return [("Decision", content.decision), ("Why", content.why)]
        case _:
            return [("Strategy", content.strategy), ("Why it worked", content.why_it_worked)]


def _steps(playbook: Playbook) -> str:
    how = "worked" if playbook.outcome == "success" else "ended in a failure"
    steps = (f"{number}. {_indented(step)}" for number, step in enumerate(playbook.steps, 1))
    head = f"Steps of {playbook.day} that {how}: {_indented(playbook.title)}"
    return "\n".join([head, f"Idea: {_indented(playbook.strategy)}", *steps])


def _indented(text: str) -> str:
    """Return a text with its further lines indented, so that none is read as a heading or a rule."""
    lines = [line.strip() for line in without_invisible(text).strip().splitlines()]
    return "\n  ".join(line for line in lines if line)
