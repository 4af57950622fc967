"""Lessons, rules and playbooks as advice for a prompt: fenced as data, limited in tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redraft._texts import estimate_tokens
from redraft.lessons.lesson import Content, LessonKind, is_empty
from redraft.redact.log import logger
from redraft.text.characters import without_invisible
from redraft.text.replies import fenced
from redraft.types import Advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.lessons.index import FoundLesson
    from redraft.lessons.playbooks import Playbook
    from redraft.lessons.rules import Rule

SEPARATOR_TOKENS = 2
"""Tokens of the separator between two pieces of advice in a prompt."""


def advice_of(
    agent: str,
    max_tokens: int,
    *,
    lessons: Sequence[FoundLesson] = (),
    rules: Sequence[Rule] = (),
    playbooks: Sequence[Playbook] = (),
) -> list[Advice]:
    """Return lessons, rules and playbooks as advice of at most `max_tokens` in total, best first.

    A piece that does not fit is left out; a shorter one after it may still fit. The reason of the last piece
    says how many were left out.
    """
    pieces = [_lesson_advice(one) for one in lessons if _fields(one.lesson.content)]
    pieces += [_rules_advice(rules, agent, max_tokens // 2)] if rules else []
    pieces += map(_playbook_advice, playbooks)
    chosen: list[Advice] = []
    left, omitted = max_tokens, 0
    for one in pieces:
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


_ABOUT: dict[LessonKind, str] = {
    "failure": "a task that failed",
    "partial": "a task that was done in part",
    "procedure": "a task that was done well",
    "decision": "a decision",
}
_LABELS: dict[LessonKind, dict[str, str]] = {
    "failure": {
        "what_went_wrong": "What went wrong",
        "why": "Why",
        "do_differently": "Do differently",
        "rule": "Rule",
    },
    "partial": {"what_went_wrong": "What went wrong", "do_differently": "Do differently"},
    "procedure": {"strategy": "Strategy", "why_it_worked": "Why it worked"},
    "decision": {"decision": "Decision", "why": "Why"},
}
"""The fields of a lesson that help in another run, and their labels."""


def _lesson_advice(found: FoundLesson) -> Advice:
    lesson = found.lesson
    lines = [f"From {_ABOUT[lesson.kind]} of {lesson.day}: {_indented(lesson.summary)}"]
    lines += [f"{label}: {_indented(text)}" for label, text in _fields(lesson.content).items()]
    return _advice("\n".join(lines), "lesson", lesson.id, found.reason)


def _fields(content: Content) -> dict[str, str]:
    """Return the helpful fields by label, without those that say nothing."""
    texts = {label: str(getattr(content, name)) for name, label in _LABELS[content.kind].items()}
    return {label: text for label, text in texts.items() if not is_empty(text)}


def _rules_advice(rules: Sequence[Rule], agent: str, max_tokens: int) -> Advice:
    """Return the rules as one piece of advice, without the last ones if there are too many."""
    reason = "the rules of the agent"
    for count in range(len(rules), 0, -1):
        text = "\n".join(f"- {_indented(rule.text)}" for rule in rules[:count])
        missing = len(rules) - count
        why = f"{reason}, without {missing} for which there is no room" if missing else reason
        advice = _advice(text, "list of rules", f"{agent}/rules.md", why)
        if advice.tokens <= max_tokens:
            return advice
    return _advice(f"- {_indented(rules[0].text)}", "list of rules", f"{agent}/rules.md", reason)


def _playbook_advice(playbook: Playbook) -> Advice:
    ending = "worked" if playbook.outcome == "success" else "ended in a failure"
    lines = [
        f"Steps of {playbook.day} that {ending}: {_indented(playbook.title)}",
        f"Idea: {_indented(playbook.strategy)}",
        *(f"{number}. {_indented(step)}" for number, step in enumerate(playbook.steps, 1)),
    ]
    reason = f"playbook of the same task type {playbook.task_type!r}"
    return _advice("\n".join(lines), "playbook", playbook.id, reason)


def _advice(content: str, label: str, source: str, reason: str) -> Advice:
    text = fenced(content, label)
    return Advice(text, source, reason, estimate_tokens(text) + SEPARATOR_TOKENS)


def _indented(text: str) -> str:
    """Indent all lines but the first, so that none is read as a heading or a rule."""
    lines = [line.strip() for line in without_invisible(text).strip().splitlines()]
    return "\n  ".join(line for line in lines if line)
