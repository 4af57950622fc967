"""Lessons, rules and playbooks as advice for a prompt: without repetition, limited in tokens."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from textwrap import indent
from typing import TYPE_CHECKING, Literal

from redraft._prompts import ABOUT_MARKS, MARKED, advice_text, mistake_text
from redraft._texts import estimate_tokens, shortened
from redraft._words import folded, words_in, words_of
from redraft.lessons.facts import fact_line, is_lack, is_stated, runs_behind
from redraft.lessons.full_text import names_in, tokens_of
from redraft.lessons.lesson import ADVICE_KINDS, Content, CorrectedAnswer, Fact, LessonKind, is_empty
from redraft.lessons.ranking import LessonQuery, normalized
from redraft.redact.data import redact_object
from redraft.redact.log import logger
from redraft.text.characters import without_invisible
from redraft.types import Advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from redraft.lessons.index import LessonMatch
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.playbooks import Playbook
    from redraft.lessons.rules import Rule
    from redraft.protocols import Mistake

SEPARATOR_TOKENS = 2
"""Tokens of the separator between two pieces of advice in a prompt."""
_SIGNIFICANT = re.compile(r"\w+|[=!<>]=|[=<>+/%&|^~]|-(?=\w)")
"""Words and operators: `x == 5` and `x != 5` are different sentences."""
FACTS_SHARE = 2
"""Facts take at most 1/FACTS_SHARE of the tokens, which leaves room for advice."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u0964\u3002\uff01\uff1f])\s*|\n+")


def advice_of(
    agent: str,
    max_tokens: int,
    *,
    lessons: Sequence[LessonMatch] = (),
    rules: Sequence[Rule] = (),
    own_rules: Sequence[Rule] = (),
    playbooks: Sequence[Playbook] = (),
    requirements: Sequence[str] = (),
    stated: Sequence[str] = (),
    task: str = "",
) -> list[Advice]:
    """Lessons, rules and playbooks as advice of at most `max_tokens` in total, best first.

    Facts among the lessons come before all advice, as many as fit into half of the tokens; a fact that only
    repeats a requirement or a stated sentence is left out. Lessons that earlier runs disobeyed come before
    all other lessons, and say so.

    A piece that does not fit is left out; a shorter piece after it may still fit. The reason of the last
    piece says how many were left out. No sentence is repeated. `own_rules` are presented as the agent's own,
    and get room first; everything else is quoted as data in a single fence, whose tokens count with its first
    piece.

    The `requirements` of this run are the program's words. If a lesson names one, the requirement itself is
    added after the task, to say that it was missed before. A requirement explains a failure better than a
    model's guess, so the rest of such a lesson is left out if another `task` taught it and no person approved
    it. The same holds for sentences that the prompt has `stated`, which are not repeated, and for a failure
    that taught one of the facts, unless the fact only says that something does not exist.
    """
    limit = max_tokens // 2
    facts = list(_facts_advice(lessons, max_tokens // FACTS_SHARE, (*requirements, *stated)))
    max_tokens -= sum(fact.tokens for fact in facts)
    explained = _runs_explained_by(facts, lessons)
    lessons = [match for match in lessons if not isinstance(match.lesson.content, Fact)]
    own = [_rules_advice(own_rules, agent, limit, kind="rule")] if own_rules else []
    seen = {key for text in (*stated, *(rule.text for rule in own_rules)) for key in _keys(text)}
    room = (
        max_tokens - sum(piece.tokens + _WRAPPER_TOKENS["rule"] for piece in own) - _WRAPPER_TOKENS["quoted"]
    )
    pieces: list[Advice] = []
    for match in sorted(map(_stressed, lessons), key=lambda match: not match.lesson.disobeyed):
        required = required_by(match.lesson, (*requirements, *stated))
        if unseen := [requirement for requirement in required if not seen.issuperset(_keys(requirement))]:
            pieces.append(_required_advice(match, unseen))
            seen = seen.union(*map(_keys, unseen))
            room -= pieces[-1].tokens
        seen_with_lesson = set(seen)
        fields = _unseen(_fields(match.lesson.content), seen_with_lesson, required)
        is_explained = bool(required) or match.lesson.source in explained
        is_guess = match.lesson.trust != "vouched" and match.lesson.task != task
        if fields and not (is_explained and is_guess):
            pieces.append(_lesson_advice(match, fields))
            if pieces[-1].tokens <= room:  # otherwise its sentences will not be in the prompt
                seen, room = seen_with_lesson, room - pieces[-1].tokens
    pieces = _with_common_form(pieces, lessons)
    pieces += own
    further = [rule for rule in rules if not seen.issuperset(_keys(rule.text))]
    pieces += [_rules_advice(further, agent, limit, kind="quoted")] if further else []
    pieces += map(_playbook_advice, playbooks)
    fitting: dict[int, Advice] = {}
    left, wrapped = max_tokens, set[str]()
    for place, piece in sorted(enumerate(pieces), key=lambda entry: entry[1].kind == "quoted"):
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


def _facts_advice(lessons: Sequence[LessonMatch], room: int, stated: Sequence[str]) -> Iterator[Advice]:
    """Facts as pieces of advice, as far as there is room."""
    prompt, wrapper = "\n".join(stated), _WRAPPER_TOKENS["fact"]
    for match in lessons:
        content = match.lesson.content
        if not isinstance(content, Fact) or is_stated(fact_line(content), prompt):
            continue
        piece = _advice(fact_line(content), match.lesson.id, match.reason, kind="fact")
        piece = replace(piece, tokens=piece.tokens + wrapper)
        if piece.tokens <= room:
            room, wrapper = room - piece.tokens, 0
            yield piece


def _with_common_form(pieces: Sequence[Advice], lessons: Sequence[LessonMatch]) -> list[Advice]:
    """Add to the first quoted correction how all corrected answers among the pieces begin and end."""
    contents = {match.lesson.id: match.lesson.content for match in lessons}
    corrections = {
        place: content
        for place, piece in enumerate(pieces)
        if piece.kind == "quoted" and isinstance(content := contents.get(piece.source), CorrectedAnswer)
    }
    advice = list(pieces)
    if form := common_form(list(corrections.values())):
        first = next(iter(corrections))
        piece = advice[first]
        tokens = piece.tokens + estimate_tokens(form)
        advice[first] = replace(piece, text=f"{piece.text}\n{form}", tokens=tokens)
    return advice


SHORTEST_FORM = 4
"""Minimum characters that corrected answers share at their beginning or end; an article is no form."""


def common_form(corrections: Sequence[CorrectedAnswer]) -> str:
    """The words that begin or end all corrected answers, as a sentence; empty if the answers differ.

    Only whole words that a person changed count.
    """
    answers = [content.answer.split() for content in corrections]
    if len(set(map(tuple, answers))) < 2:  # noqa: PLR2004 (a form takes at least two answers)
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


def _runs_explained_by(facts: Sequence[Advice], lessons: Sequence[LessonMatch]) -> set[str]:
    """Ids of the runs whose failures taught these facts, except facts that only say what does not exist."""
    chosen = {fact.source for fact in facts}
    return {
        run
        for match in lessons
        if match.lesson.id in chosen
        and isinstance(match.lesson.content, Fact)
        and not is_lack(match.lesson.content.statement)
        for run in runs_behind(match.lesson)
    }


def restored_match(match: LessonMatch, restore: Callable[[str], str]) -> LessonMatch:
    """A lesson with what this run's prompt says in full, where memory withholds it (see `restorer`)."""
    lesson = match.lesson
    content = redact_object(lesson.content, restore)
    return replace(match, lesson=replace(lesson, content=content, summary=restore(lesson.summary)))


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
"""Labels an example, which is included whole or not at all."""
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
DISOBEYED = "Earlier runs were told this and made the same mistake again."
"""Stresses a disobeyed lesson, in the program's own words."""


def _stressed(match: LessonMatch) -> LessonMatch:
    """Add the figures to the reason of a disobeyed lesson."""
    if not match.lesson.disobeyed:
        return match
    return replace(match, reason=f"{match.reason}; stressed, since disobeyed: {match.lesson.disobeyed}")


def _lesson_advice(match: LessonMatch, fields: Mapping[str, str]) -> Advice:
    lesson = match.lesson
    lines = [DISOBEYED] if match.lesson.disobeyed else []
    lines += [f"{_ABOUT[lesson.kind]} ({lesson.day}): {_indented(lesson.summary)}"]
    lines += [
        f"{label}:\n{indent(without_invisible(text), '  ')}"
        if label == CORRECTED
        else f"{label}: {_indented(text)}"
        for label, text in fields.items()
    ]
    return _advice("\n".join(lines), lesson.id, match.reason)


def required_by(lesson: Lesson, requirements: Sequence[str]) -> list[str]:
    """The requirements that a lesson names."""
    lesson_keys = {key for text in _fields(lesson.content).values() for key in _keys(text)}
    return [requirement for requirement in requirements if lesson_keys.issuperset(_keys(requirement))]


def _required_advice(match: LessonMatch, required: Sequence[str]) -> Advice:
    stress = f" ({DISOBEYED})" if match.lesson.disobeyed else ""
    text = "\n".join(f"- {_indented(requirement)}{stress}" for requirement in required)
    return _advice(text, match.lesson.id, match.reason, kind="requirement")


def _unseen(fields: Mapping[str, str], seen: set[str], required: Sequence[str]) -> dict[str, str]:
    """Drop the sentences that are in the prompt already, and add the others to `seen`.

    A fact may repeat a requirement and say more: `form: It must be a list; it is a number.`
    """
    required_keys = [f" {key} " for text in required for key in _keys(text)]
    new_fields: dict[str, str] = {}
    for label, text in fields.items():
        if label == CORRECTED:
            new_fields[label] = text
            continue
        keys = _keys(text)
        pairs = zip(_sentences(text), keys, strict=True)
        new = [
            sentence
            for sentence, key in pairs
            if key not in seen and not any(required_key in f" {key} " for required_key in required_keys)
        ]
        seen.update(keys)
        if new:
            new_fields[label] = text if len(new) == len(keys) else " ".join(new)
    return new_fields


def _sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE_END.split(text) if words_in(sentence)]


def _spoken(text: str) -> str:
    """The words and operators of a text, regardless of case, between spaces."""
    return f" {' '.join(_SIGNIFICANT.findall(text.casefold()))} "


def _keys(text: str) -> list[str]:
    """The key of each sentence of a text: its words and operators, regardless of case."""
    return [" ".join(_SIGNIFICANT.findall(sentence.casefold())) for sentence in _sentences(text)]


def _fields(content: Content) -> dict[str, str]:
    """The helpful fields by label, without those that say nothing."""
    texts = content.texts
    return {label: texts[name] for name, label in _LABELS[content.kind].items() if not is_empty(texts[name])}


def _rules_advice(
    rules: Sequence[Rule], agent: str, max_tokens: int, *, kind: Literal["rule", "quoted"]
) -> Advice:
    """The rules as one piece of advice; the last ones are left out if there are too many."""
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
    lines = [
        f"Steps of {playbook.day} that worked: {_indented(playbook.title)}",
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
    whole = f"{text}\n{ABOUT_MARKS}" if MARKED in text else text
    return Advice(text, source, reason, estimate_tokens(whole) + SEPARATOR_TOKENS, kind=kind)


_WRAPPER_TOKENS = {
    kind: estimate_tokens(advice_text([Advice("", "", kind=kind)]))
    for kind in ("rule", "requirement", "quoted", "fact")
}
"""Tokens around the pieces of a kind."""


def _indented(text: str) -> str:
    """Indent all lines but the first, so that no line is read as a heading or a rule."""
    lines = [line.strip() for line in without_invisible(text).strip().splitlines()]
    return "\n  ".join(line for line in lines if line)


# --- advice on a mistake ------------------------------------------------------------------------------------

CANDIDATES = 8
"""Lessons with words of a mistake, among which the matching ones are chosen."""
MOST_MATCHING = 2
SAME_ERROR, FEWEST_WORDS = 0.6, 3
"""Two errors are the same with this share of the shorter error's words, and this many words, in common."""
SHARED_NAMES = 2
"""Errors match with this many identifiers in common; with fewer, their words count, too."""
RELATED = 0.25
"""Errors with a single identifier in common match with this share of words in common."""
_FEWEST_TOKENS = 20
"""Minimum tokens of a shortened field; fewer would say nothing."""
_LEAST_NEEDED = ("Rule", _WHAT_WENT_WRONG, "Why it worked", "Why", CORRECTED)
"""The fields that are left out if there is little room, the last first."""
_MISTAKE_TOKENS = estimate_tokens(mistake_text([Advice("", "", kind="quoted")]))
"""Tokens around the advice on a mistake."""


def query_of(mistake: Mistake, agent: str | None, now: datetime) -> LessonQuery:
    """The query for the lessons that may be about a mistake."""
    return LessonQuery(
        "",
        tools=(mistake.tool,) if mistake.tool else (),
        error=" ".join((*mistake.errors, *mistake.criteria)),
        agent=agent,
        k=CANDIDATES,
        kinds=ADVICE_KINDS,
        requirements=mistake.requirements,
        now=now,
    )


def advice_on_mistake(lessons: Iterable[LessonMatch], stated: Sequence[str], max_tokens: int) -> list[Advice]:
    """Lessons about a mistake as quoted advice of at most `max_tokens` in total, best first.

    A sentence that is `stated` already, or that an earlier lesson says, is left out, and so is a lesson
    without any other sentence. If a lesson does not fit, its least important fields are left out first.
    """
    seen = [_spoken(text) for text in stated]
    left = max_tokens - _MISTAKE_TOKENS
    chosen: list[Advice] = []
    for match in lessons:
        # Compared with whole texts, not sentence by sentence: a prompt may name a field before its text.
        texts: dict[str, str] = {}
        for label, text in _fields(match.lesson.content).items():
            parts = [text] if label == CORRECTED else _sentences(text)
            new = [part for part in parts if not any(_spoken(part) in earlier for earlier in seen)]
            if new:
                texts[label] = text if len(new) == len(parts) else " ".join(new)
        piece = _fitting(match, texts, left) if texts else None
        if piece is not None:
            seen.append(_spoken(piece.text))
            left -= piece.tokens
            around = 0 if chosen else _MISTAKE_TOKENS
            chosen.append(replace(piece, tokens=piece.tokens + around))
    return chosen


def _fitting(match: LessonMatch, texts: Mapping[str, str], max_tokens: int) -> Advice | None:
    """A lesson with as many of its fields as fit, the last of them shortened if need be."""
    needed = sorted(texts, key=lambda label: _LEAST_NEEDED.index(label) if label in _LEAST_NEEDED else -1)
    for count in range(len(needed), 0, -1):
        piece = _lesson_advice(match, {label: texts[label] for label in texts if label in needed[:count]})
        if piece.tokens <= max_tokens:
            return piece
    label = needed[0]
    room = max_tokens - _lesson_advice(match, {label: ""}).tokens - SEPARATOR_TOKENS
    if room < _FEWEST_TOKENS:
        return None
    most = room * 3 if texts[label].isascii() else room
    piece = _lesson_advice(match, {label: shortened(texts[label], most)})
    return piece if piece.tokens <= max_tokens else None


def matching_lessons(mistake: Mistake, candidates: Iterable[LessonMatch]) -> list[LessonMatch]:
    """The lessons that are about a mistake, best first, each with the reason for the match."""
    errors = [ErrorText(error) for error in mistake.errors]
    matching: list[tuple[int, LessonMatch]] = []
    for candidate in candidates:
        if candidate.lesson.kind == "decision":  # no failure taught it
            continue
        rank, reason = _match(mistake, errors, candidate.lesson)
        if reason:
            doubt = f"; {candidate.reason}" if candidate.lesson.status != "active" else ""
            matching.append((rank, replace(candidate, reason=f"{reason}{doubt}")))
    matching.sort(key=lambda ranked: -ranked[0])
    return [match for _, match in matching[:MOST_MATCHING]]


def _match(mistake: Mistake, errors: Sequence[ErrorText], lesson: Lesson) -> tuple[int, str]:
    """The rank of a lesson for a mistake, and the reason for the match; empty if it does not match."""
    lesson_text = ErrorText("\n".join([lesson.error, *lesson.content.texts.values()]))
    reasons: list[str] = []
    rank = 0
    if names := next((names for error in errors if (names := error.shared_names(lesson_text))), ()):
        reasons.append(f"names {', '.join(names[:3])}")
        rank += 2
    if any(error.is_same(ErrorText(lesson.error)) for error in errors):
        reasons.append("same error")
        rank += 2
    requirements = map(ErrorText, mistake.requirements)
    if any(text.phrase in lesson_text.phrase for text in requirements if text.phrase):
        reasons.append("same requirement")
        rank += 1
    elif criterion := next((name for name in mistake.criteria if lesson_text.names_criterion(name)), ""):
        reasons.append(f"same criterion {criterion!r}")
        rank += 1
    if mistake.tool and _is_about_tool(lesson, lesson_text, mistake.tool):
        reasons.append(f"tool {mistake.tool}")
        rank += 1
    elif mistake.tool and lesson.tools and normalized(mistake.tool) not in map(normalized, lesson.tools):
        return 0, ""  # an error of another tool, whatever its text
    return rank, "; ".join(reasons)


def _is_about_tool(lesson: Lesson, lesson_text: ErrorText, tool: str) -> bool:
    """Whether a lesson is about a tool: its only tool, or an identifier in its text."""
    if [normalized(name) for name in lesson.tools] == [normalized(tool)]:
        return True
    return bool(names_in(tool)) and tokens_of(tool)[0] in lesson_text.words


_COMMON = frozenset(
    words_of(
        "and are but by can could did does for from had has have how if in into is it its must no not of on "
        "or should so such than that the their them then there these they this to was were what when where "
        "which while who why will with would you your error failed found expected got met missing"
    )
)
_GENERAL = frozenset(name.lower() for name in vars(builtins)) | {"traceback", "stdin", "stdout", "stderr"}
"""Names that any error may contain."""
_TYPE = re.compile(r"(?:error|exception|warning)$")
"""The end of the name of an error type, which many different errors share."""
_QUOTES = "`'\""


@dataclass(frozen=True)
class ErrorText:
    """The text of an error or a lesson, by its words and its identifiers."""

    text: str

    @cached_property
    def _visible(self) -> str:
        return without_invisible(self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """Its significant words, with each identifier as a single token."""
        written = set(map(folded, self.names.values()))
        return frozenset(
            word
            for word in (*words_of(self._visible), *self.names)
            if len(word) > 1
            and not word[0].isdecimal()
            and word not in _COMMON
            and word not in written.difference(self.names)
            and not _TYPE.search(word)
        )

    @cached_property
    def names(self) -> dict[str, str]:
        """Its identifiers by token, without those that any error may contain, such as `ValueError`."""
        return {
            tokens[0]: name
            for name in names_in(self._visible)
            if (tokens := tokens_of(name))
            and not tokens[0].isdecimal()
            and tokens[0] not in _GENERAL
            and not _TYPE.search(tokens[0])
        }

    @cached_property
    def phrase(self) -> str:
        """Its words in order, between spaces."""
        words = " ".join(words_of(self._visible))
        return f" {words} " if words else ""

    def shared_names(self, other: ErrorText) -> tuple[str, ...]:
        """The identifiers that two texts share, if they suffice to show the same subject."""
        shared = [name for token, name in self.names.items() if token in other.names]
        if len(shared) >= min(SHARED_NAMES, len(self.names)) or self._overlap(other) >= RELATED:
            return tuple(sorted(shared))
        return ()

    def is_same(self, other: ErrorText) -> bool:
        """Whether two errors have most words in common, whatever values they name."""
        return len(self.words & other.words) >= FEWEST_WORDS and self._overlap(other) >= SAME_ERROR

    def _overlap(self, other: ErrorText) -> float:
        shorter = min(len(self.words), len(other.words))
        return len(self.words & other.words) / shorter if shorter else 0.0

    def names_criterion(self, criterion: str) -> bool:
        """Whether the text names a criterion: as a label, in quotes, or by a distinctive name."""
        name = " ".join(criterion.split())
        if not name:
            return False
        if len(name.split()) > 1 or names_in(name):
            return ErrorText(name).phrase in self.phrase
        quoted = rf"[{_QUOTES}]{re.escape(name)}[{_QUOTES}]|(?:^|[\n;])[\s-]*{re.escape(name)}\s*:"
        return re.search(quoted, self._visible, re.IGNORECASE) is not None
