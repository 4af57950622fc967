"""Lessons, rules and playbooks as advice for a prompt: without repetition, limited in tokens."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile
from textwrap import indent
from typing import TYPE_CHECKING, Literal

from redraft._prompts import advice_text, mistake_text
from redraft._texts import estimate_tokens, shortened
from redraft._words import words_in
from redraft.lessons.facts import fact_line, is_lack, is_stated, runs_behind
from redraft.lessons.lesson import Content, CorrectedAnswer, Fact, LessonKind, is_empty
from redraft.redact.log import logger
from redraft.text.characters import without_invisible
from redraft.types import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redraft.lessons.index import FoundLesson
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.playbooks import Playbook
    from redraft.lessons.rules import Rule

SEPARATOR_TOKENS = 2
"""Tokens of the separator between two pieces of advice in a prompt."""
_TELLING = re.compile(r"\w+|[=!<>]=|[=<>+/%&|^~]|-(?=\w)")
"""Words and operators: `x == 5` and `x != 5` are not the same sentence."""
FACTS_SHARE = 2
"""Facts take at most one in so many tokens, so that advice finds room, too."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u0964\u3002\uff01\uff1f])\s*|\n+")


def advice_of(
    agent: str,
    max_tokens: int,
    *,
    lessons: Sequence[FoundLesson] = (),
    rules: Sequence[Rule] = (),
    own_rules: Sequence[Rule] = (),
    playbooks: Sequence[Playbook] = (),
    requirements: Sequence[str] = (),
    stated: Sequence[str] = (),
    task: str = "",
) -> list[Advice]:
    """Return lessons, rules and playbooks as advice of at most `max_tokens` in total, best first.

    Facts among the lessons come before all advice, as many as fit into half of the tokens; one that says no
    more than what is required or stated is left out. Lessons that earlier runs disobeyed come before all
    other lessons, and say so.

    A piece that does not fit is left out; a shorter one after it may still fit. The reason of the last piece
    says how many were left out. No sentence is told twice. `own_rules` are told as the agent's own, and find
    room first; all else is quoted as data in one fence, whose tokens count with its first piece.

    Of this run's `requirements`, which are the program's words, those that a lesson names are told after
    the task: the lesson tells only that they were missed before. A requirement explains a
    failure better than a model's guess does, so nothing else is told of a lesson that another `task` taught
    and no person approved. The same holds for what the prompt has `stated`, which is not told again, and for
    a failure that taught one of the facts, unless the fact says only what does not exist.
    """
    limit = max_tokens // 2
    facts = list(_facts_advice(lessons, max_tokens // FACTS_SHARE, (*requirements, *stated)))
    max_tokens -= sum(one.tokens for one in facts)
    explained = _runs_explained_by(facts, lessons)
    lessons = [one for one in lessons if not isinstance(one.lesson.content, Fact)]
    own = [_rules_advice(own_rules, agent, limit, kind="rule")] if own_rules else []
    told = {key for text in (*stated, *(rule.text for rule in own_rules)) for key in _keys(text)}
    room = max_tokens - sum(one.tokens + _WRAPPER_TOKENS["rule"] for one in own) - _WRAPPER_TOKENS["quoted"]
    pieces: list[Advice] = []
    for found in sorted(map(_stressed, lessons), key=lambda one: not one.is_disobeyed):
        required = required_by(found.lesson, (*requirements, *stated))
        if untold := [one for one in required if not told.issuperset(_keys(one))]:
            pieces.append(_required_advice(found, untold))
            told = told.union(*map(_keys, untold))
            room -= pieces[-1].tokens
        with_it = set(told)
        fields = _untold(_fields(found.lesson.content), with_it, required)
        is_explained = bool(required) or found.lesson.source in explained
        if fields and not (is_explained and _is_guess(found.lesson, task)):
            pieces.append(_lesson_advice(found, fields))
            if pieces[-1].tokens <= room:  # what finds no room tells nothing
                told, room = with_it, room - pieces[-1].tokens
    pieces = _with_common_form(pieces, lessons)
    pieces += own
    further = [rule for rule in rules if not told.issuperset(_keys(rule.text))]
    pieces += [_rules_advice(further, agent, limit, kind="quoted")] if further else []
    pieces += map(_playbook_advice, playbooks)
    fitting: dict[int, Advice] = {}
    left, wrapped = max_tokens, set[str]()
    for place, piece in sorted(enumerate(pieces), key=lambda one: one[1].kind == "quoted"):
        wrapper = 0 if piece.kind in wrapped else _WRAPPER_TOKENS[piece.kind]
        if piece.tokens + wrapper <= left:
            fitting[place] = replace(piece, tokens=piece.tokens + wrapper)
            left -= fitting[place].tokens
            wrapped.add(piece.kind)
    chosen = [fitting[place] for place in sorted(fitting)]
    omitted = len(pieces) - len(chosen)
    if omitted and chosen:
        last = chosen[-1]
        chosen[-1] = replace(
            last, reason=f"{last.reason} ({omitted} more left out, max_tokens={max_tokens})".strip()
        )
    elif omitted and not facts:
        logger.warning("No lesson fits into max_tokens=%d: %d left out.", max_tokens, omitted)
    return [*facts, *chosen]


def _facts_advice(lessons: Sequence[FoundLesson], room: int, stated: Sequence[str]) -> Iterator[Advice]:
    """Yield facts as pieces of advice, as far as there is room."""
    said, wrapper = "\n".join(stated), _WRAPPER_TOKENS["fact"]
    for found in lessons:
        content = found.lesson.content
        if not isinstance(content, Fact) or is_stated(fact_line(content), said):
            continue
        piece = _advice(fact_line(content), found.lesson.id, found.reason, kind="fact")
        piece = replace(piece, tokens=piece.tokens + wrapper)
        if piece.tokens <= room:
            room, wrapper = room - piece.tokens, 0
            yield piece


def _with_common_form(pieces: Sequence[Advice], lessons: Sequence[FoundLesson]) -> list[Advice]:
    """Say in the first correction how all corrected answers among the pieces begin and end."""
    contents = {found.lesson.id: found.lesson.content for found in lessons}
    corrections = {
        piece.source: content
        for piece in pieces
        if isinstance(content := contents.get(piece.source), CorrectedAnswer)
    }
    form = common_form(list(corrections.values()))
    first = next(iter(corrections), None)
    return [
        replace(
            piece,
            text=f"{piece.text}\n{form}",
            tokens=piece.tokens + estimate_tokens(form),
        )
        if form and piece.source == first
        else piece
        for piece in pieces
    ]


SHORTEST_FORM = 4
"""Characters that corrected answers must share at their beginning or end; an article is no form."""


def common_form(corrections: Sequence[CorrectedAnswer]) -> str:
    """How several corrected answers all begin and end, where a person made it so; empty if they don't agree.

    Only what a person changed counts, by whole words.
    """
    answers = [content.answer.split() for content in corrections]
    if len(set(map(tuple, answers))) < 2:  # noqa: PLR2004 (one answer has no form in common with others)
        return ""
    begin = _shared(answers)
    end = _shared([answer[::-1] for answer in answers])[::-1]
    changed = " ".join(" ".join(content.changes.split()) for content in corrections)
    shared = [
        f'{verb} "{text}"'
        for verb, text in (("begin with", " ".join(begin)), ("end with", " ".join(end)))
        if len(text) >= SHORTEST_FORM and text in changed
    ]
    return f"All answers as corrected {' and '.join(shared)}." if shared else ""


def _shared(answers: Sequence[Sequence[str]]) -> list[str]:
    """The words with which all answers begin."""
    alike = takewhile(lambda words: len(set(words)) == 1, zip(*answers, strict=False))
    return [words[0] for words in alike]


def _runs_explained_by(facts: Sequence[Advice], lessons: Sequence[FoundLesson]) -> set[str]:
    """Ids of the runs whose failures taught these facts, without facts that say only what does not exist."""
    chosen = {fact.source for fact in facts}
    return {
        run
        for found in lessons
        if found.lesson.id in chosen
        and isinstance(found.lesson.content, Fact)
        and not is_lack(found.lesson.content.statement)
        for run in runs_behind(found.lesson)
    }


def advice_on_mistake(lessons: Sequence[FoundLesson], stated: Sequence[str], max_tokens: int) -> list[Advice]:
    """Return lessons about a mistake as quoted advice of at most `max_tokens` in total, best first.

    A sentence that is `stated` already, or that an earlier lesson says, is left out, and so is a lesson of
    which nothing else is left. If a lesson finds no room, what matters least in it is left out first.
    """
    said = [_spoken(text) for text in stated]
    left = max_tokens - _MISTAKE_TOKENS
    chosen: list[Advice] = []
    for found in lessons:
        # Not compared sentence by sentence: a prompt may name a field before its text.
        texts: dict[str, str] = {}
        for label, text in _fields(found.lesson.content).items():
            parts = [text] if label == CORRECTED else _sentences(text)
            new = [part for part in parts if not any(_spoken(part) in known for known in said)]
            if new:
                texts[label] = text if len(new) == len(parts) else " ".join(new)
        piece = _fitting(found, texts, left) if texts else None
        if piece is not None:
            said.append(_spoken(piece.text))
            left -= piece.tokens
            around = 0 if chosen else _MISTAKE_TOKENS
            chosen.append(replace(piece, tokens=piece.tokens + around))
    return chosen


def _fitting(found: FoundLesson, texts: Mapping[str, str], max_tokens: int) -> Advice | None:
    """Return a lesson with as many of its fields as find room, the last of them shortened if need be."""
    needed = sorted(texts, key=lambda label: _LEAST_NEEDED.index(label) if label in _LEAST_NEEDED else -1)
    for count in range(len(needed), 0, -1):
        piece = _lesson_advice(found, {label: texts[label] for label in texts if label in needed[:count]})
        if piece.tokens <= max_tokens:
            return piece
    label = needed[0]
    room = max_tokens - _lesson_advice(found, {label: ""}).tokens - SEPARATOR_TOKENS
    if room < _FEWEST_TOKENS:
        return None
    most = room * 3 if texts[label].isascii() else room
    piece = _lesson_advice(found, {label: shortened(texts[label], most)})
    return piece if piece.tokens <= max_tokens else None


_ABOUT: dict[LessonKind, str] = {
    "failure": "A task that failed",
    "partial": "A task that was done in part",
    "procedure": "A task that was done well",
    "decision": "A decision",
    "correction": "A task whose answer a person corrected",
    "fact": "A fact",
}
_WHAT_WENT_WRONG = "What went wrong"
CORRECTED = "Answer as corrected"
"""Labels an example, which is told whole or not at all."""
_LABELS: dict[LessonKind, dict[str, str]] = {
    "failure": {
        "what_went_wrong": _WHAT_WENT_WRONG,
        "why": "Why",
        "do_differently": "Do differently",
        "rule": "Rule",
    },
    "partial": {"what_went_wrong": _WHAT_WENT_WRONG, "do_differently": "Do differently"},
    "procedure": {"strategy": "Strategy", "why_it_worked": "Why it worked"},
    "decision": {"decision": "Decision", "why": "Why"},
    "correction": {"answer": CORRECTED, "changes": "What the person changed", "why": "Why"},
    "fact": {"statement": "Fact"},
}
"""The fields of a lesson that help in another run, and their labels."""
_FEWEST_TOKENS = 20
"""Of a field that is shortened; less would say nothing."""
_LEAST_NEEDED = ("Rule", _WHAT_WENT_WRONG, "Why it worked", "Why", CORRECTED)
"""The fields that are left out where there is little room, the last first."""


DISOBEYED = "Earlier runs were told this and made the same mistake again."
"""Stresses a lesson that is disobeyed, in the program's own words."""


def _stressed(found: FoundLesson) -> FoundLesson:
    """Name the figures in the reason of a lesson that is disobeyed."""
    if not found.is_disobeyed:
        return found
    return replace(found, reason=f"{found.reason}; stressed, since disobeyed: {found.lesson.disobeyed}")


def _lesson_advice(found: FoundLesson, fields: Mapping[str, str]) -> Advice:
    lesson = found.lesson
    lines = [DISOBEYED] if found.is_disobeyed else []
    lines += [f"{_ABOUT[lesson.kind]} ({lesson.day}): {_indented(lesson.summary)}"]
    lines += [
        f"{label}:\n{indent(without_invisible(text), '  ')}"
        if label == CORRECTED
        else f"{label}: {_indented(text)}"
        for label, text in fields.items()
    ]
    return _advice("\n".join(lines), lesson.id, found.reason)


def required_by(lesson: Lesson, requirements: Sequence[str]) -> list[str]:
    """Return the requirements that a lesson names."""
    said = {key for text in _fields(lesson.content).values() for key in _keys(text)}
    return [one for one in requirements if said.issuperset(_keys(one))]


def _is_guess(lesson: Lesson, task: str) -> bool:
    return lesson.trust != "vouched" and lesson.task != task


def _required_advice(found: FoundLesson, required: Sequence[str]) -> Advice:
    stress = f" ({DISOBEYED})" if found.is_disobeyed else ""
    text = "\n".join(f"- {_indented(one)}{stress}" for one in required)
    return _advice(text, found.lesson.id, found.reason, kind="requirement")


def _untold(fields: Mapping[str, str], told: set[str], required: Sequence[str]) -> dict[str, str]:
    """Drop the sentences that the prompt has already, and add the others to `told`.

    A fact says what is `required`, too, and more: `form: It must be a list; it is a number.`
    """
    required_keys = [f" {key} " for text in required for key in _keys(text)]
    found: dict[str, str] = {}
    for label, text in fields.items():
        if label == CORRECTED:
            found[label] = text
            continue
        keys = _keys(text)
        pairs = zip(_sentences(text), keys, strict=True)
        new = [
            sentence
            for sentence, key in pairs
            if key not in told and not any(one in f" {key} " for one in required_keys)
        ]
        told.update(keys)
        if new:
            found[label] = text if len(new) == len(keys) else " ".join(new)
    return found


def _sentences(text: str) -> list[str]:
    return [one.strip() for one in _SENTENCE_END.split(text) if words_in(one)]


def _spoken(text: str) -> str:
    """Return the words and operators of a text, regardless of case, between spaces."""
    return f" {' '.join(_TELLING.findall(text.casefold()))} "


def _keys(text: str) -> list[str]:
    """Return what identifies each sentence of a text: its words and operators, regardless of case."""
    return [" ".join(_TELLING.findall(sentence.casefold())) for sentence in _sentences(text)]


def _fields(content: Content) -> dict[str, str]:
    """Return the helpful fields by label, without those that say nothing."""
    texts = {label: str(getattr(content, name)) for name, label in _LABELS[content.kind].items()}
    return {label: text for label, text in texts.items() if not is_empty(text)}


def _rules_advice(
    rules: Sequence[Rule], agent: str, max_tokens: int, *, kind: Literal["rule", "quoted"]
) -> Advice:
    """Return the rules as one piece of advice, without the last ones if there are too many."""
    reason = "the rules of the agent" if kind == "rule" else "rules that its lessons suggest"
    heading = "" if kind == "rule" else "Rules that lessons suggest:\n"
    source = f"{agent}/rules.md"
    for count in range(len(rules), 0, -1):
        text = heading + "\n".join(f"- {_indented(rule.text)}" for rule in rules[:count])
        missing = len(rules) - count
        why = f"{reason}, without {missing} for which there is no room" if missing else reason
        advice = _advice(text, source, why, kind=kind)
        if advice.tokens <= max_tokens:
            return advice
    return _advice(f"{heading}- {_indented(rules[0].text)}", source, reason, kind=kind)


def _playbook_advice(playbook: Playbook) -> Advice:
    ending = "worked" if playbook.outcome == "success" else "ended in a failure"
    lines = [
        f"Steps of {playbook.day} that {ending}: {_indented(playbook.title)}",
        f"Idea: {_indented(playbook.strategy)}",
        *(f"{number}. {_indented(step)}" for number, step in enumerate(playbook.steps, 1)),
    ]
    reason = f"playbook of the same task type {playbook.task_type!r}"
    return _advice("\n".join(lines), playbook.id, reason)


def _advice(
    text: str,
    source: str,
    reason: str,
    *,
    kind: Literal["rule", "requirement", "quoted", "fact"] = "quoted",
) -> Advice:
    return Advice(text, source, reason, estimate_tokens(text) + SEPARATOR_TOKENS, kind=kind)


_WRAPPER_TOKENS = {
    kind: estimate_tokens(advice_text([Advice("", "", kind=kind)]))
    for kind in ("information", "rule", "requirement", "quoted", "fact")
}
"""Tokens around all pieces of a kind."""
_MISTAKE_TOKENS = estimate_tokens(mistake_text([Advice("", "", kind="quoted")]))
"""Tokens around all advice on a mistake."""


def _indented(text: str) -> str:
    """Indent all lines but the first, so that none is read as a heading or a rule."""
    lines = [line.strip() for line in without_invisible(text).strip().splitlines()]
    return "\n  ".join(line for line in lines if line)
