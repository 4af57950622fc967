"""Checklists: notes whose requirements come from failed tests, and whose advice comes from a model."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from redraft._hints import keyword_hints
from redraft._texts import listed, shortened
from redraft.errors import ModelError, OutputError
from redraft.evaluate.criteria import needs_model
from redraft.evaluate.requirements import requirements_of
from redraft.models.names import model_of
from redraft.notes.note import TaskReflection
from redraft.notes.strategy import (
    MOST_OUTPUT,
    NOT_GIVEN,
    WORD,
    excerpt,
    is_advice,
    judged_text,
    quotes_output,
    words_of,
)
from redraft.protocols import ChatModel, ChatRequest, Message, ModelChoice
from redraft.redact.log import logger
from redraft.redact.redactor import redact
from redraft.text.characters import without_invisible
from redraft.text.replies import json_of
from redraft.types import NOT_MET, similar_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redraft.notes.task import ReflectionInput
    from redraft.types import Issue, QualityCriterion


# Compared by identity, like models.
@keyword_hints()
@dataclass(frozen=True, slots=True, eq=False)
class CheckReflectionStrategy:
    """Adds the expected values of failed tests to the output guidance; the default for tasks with checks.

    Other requirements of checks are not part of the note, since every prompt states them. Each requirement is
    worded positively, from the criterion alone: no value of an output or input reaches the note. It stays as
    long as a criterion has it. The `model`, if there is one, is called only when checks leave something open:
    a criterion that a model judges, or a failure that no requirement explains. It adds to a list of advice,
    or drops from it. If it fails, the failure is logged, and the requirements are stored nevertheless.
    """

    model: ModelChoice | None = None

    def __post_init__(self) -> None:
        if self.model is not None:
            object.__setattr__(self, "model", model_of(self.model))

    async def __call__(self, subject: ReflectionInput, /) -> TaskReflection:
        """The note in force, with new requirements and changes to its advice."""
        requirements, open_criteria = _requirements_of(subject)
        prior = subject.prior_reflection
        note = TaskReflection(
            prior.refined_description if prior else subject.task.description,
            _guidance(subject, requirements),
            prior.observations if prior else (),
            prior.suggestions if prior else (),
            run_count=prior.run_count + 1 if prior else 1,
        )
        if self.model is None or not open_criteria:
            return note
        prompt = advice_prompt(subject, note, open_criteria)
        try:
            model = cast("ChatModel", self.model)
            reply = await model(ChatRequest((Message("user", prompt),), role="reflection"))
            changes = changes_in(reply.text)
        except (ModelError, OutputError) as error:
            title = shortened(subject.task.description, 60)
            logger.warning("The advice in the note on the task %r was not updated: %s", title, error)
            return note
        return replace(note, suggestions=changes.applied_to(note, subject))


def has_checks(criteria: Sequence[QualityCriterion]) -> bool:
    """Whether there are criteria whose requirements can be stated without a model."""
    return any(
        not needs_model(criterion) and criterion.origin == "given" and criterion.shown is not False
        for criterion in criteria
    )


# Requirements.


@dataclass(frozen=True, slots=True)
class _Requirements:
    """The requirements of the tests, in order."""

    all: tuple[str, ...]
    missed: frozenset[str]
    """The requirements that this run has missed."""


def _requirements_of(subject: ReflectionInput) -> tuple[_Requirements, tuple[str, ...]]:
    """The requirements, and the names of the criteria that only a model can give advice on."""
    issues = list(_issues(subject))
    texts: dict[str, bool] = {}
    open_criteria: list[str] = []
    for criterion in subject.criteria:
        own = [issue for issue in issues if issue.criterion == criterion.name]
        is_explained = False
        for requirement in requirements_of(criterion):
            is_missed = any(map(requirement.is_missed, own))
            is_explained = is_explained or is_missed
            if requirement.is_test:
                text = redact(without_invisible(requirement.text)).text
                texts[text] = texts.get(text, False) or is_missed
        if needs_model(criterion) or (own and not is_explained and any(issue != NOT_MET for issue in own)):
            open_criteria.append(criterion.name)
    missed = frozenset(text for text, is_missed in texts.items() if is_missed)
    return _Requirements(tuple(texts), missed), tuple(open_criteria)


def _issues(subject: ReflectionInput) -> Iterator[Issue]:
    for evaluation in (subject.first_evaluation, subject.evaluation):
        if evaluation is not None:
            yield from evaluation.issues


def _guidance(subject: ReflectionInput, requirements: _Requirements) -> str:
    """The output guidance in force with new requirements, without requirements that no longer hold."""
    own = without_invisible(subject.task.expected_output).strip()
    text, held = own, frozenset[str]()
    if subject.prior_reflection is not None:
        text, held = _split(subject.prior_reflection.refined_expected_output, own, requirements.all)
    definition = _normalised(f"{subject.task.description}\n{text}")
    items = [
        f"- {item}"
        for item in requirements.all
        if (item in held or item in requirements.missed) and _normalised(item) not in definition
    ]
    return "\n".join([text, *items] if text else items)


def _split(guidance: str, own: str, requirements: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Split guidance into its text and its requirements, without requirements that no criterion has."""
    lines = guidance.split("\n")
    held = frozenset(line[2:] for line in lines if line.startswith("- ")) & frozenset(requirements)
    text = "\n".join(line for line in lines if line[2:] not in held).strip()
    after = text.removeprefix(own).split("\n")
    if own and text.startswith(own) and all(not line or line.startswith("- ") for line in after):
        text = own
    return text, held


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


# Advice.

MOST_ADVICE = 6
"""The most pieces of advice in a note."""
MOST_NEW = 2
LONGEST_ADVICE = 200
"""The most characters of a piece of advice."""


def advice_prompt(subject: ReflectionInput, note: TaskReflection, criteria: Sequence[str]) -> str:
    """The prompt that asks for changes to the advice in a note, because of some criteria."""
    task = subject.task
    parts = [
        "A task is carried out again and again, with other data each time. You advise the one who does it.",
        f"## Task\n{without_invisible(task.description)}",
        f"## Expected Output\n{without_invisible(note.refined_expected_output) or NOT_GIVEN}",
        f"## What Was Produced\n{excerpt(subject.task_output, MOST_OUTPUT, 'output')}",
    ]
    if subject.evaluation is not None:
        parts.append(judged_text(subject.evaluation))
    advice = "\n".join(
        f"{number}. {without_invisible(item)}" for number, item in enumerate(note.suggestions, 1)
    )
    parts.append(f"## Advice in Force\n{advice or '(none)'}")
    about = listed([repr(name) for name in criteria])
    parts.append(
        f"What would have made the output better by {about}? Answer with lines of these forms only:\n\n"
        "ADD: [One instruction to whoever carries out the task, at most 25 words, in the imperative]\n"
        "DROP: [The number of advice in force that is wrong, or did not help]\n"
        "NONE\n\n"
        f"Add at most {MOST_NEW}. An instruction holds for every run: it names no value of this output. "
        "Whatever the task, the expected output and the advice in force say already is not said again."
    )
    return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class Changes:
    """A model's changes to the advice in a note: texts to add, and numbers (from 1) to drop."""

    added: tuple[str, ...] = ()
    dropped: frozenset[int] = frozenset()

    def applied_to(self, note: TaskReflection, subject: ReflectionInput) -> tuple[str, ...]:
        """The advice with these changes.

        Leaves out advice that repeats the note or the definition, that is addressed to the author of the
        task rather than to its executor, or that contains data of the run.
        """
        advice = [item for number, item in enumerate(note.suggestions, 1) if number not in self.dropped]
        definition = f"{subject.task.description}\n{note.refined_expected_output}"
        for item in self.added:
            is_new = is_advice(item, definition) and not any(similar_words(item, old) for old in advice)
            if is_new and not holds_data(item, subject):
                advice.append(item)
        return tuple(advice[-MOST_ADVICE:])


_CHANGE = re.compile(r"[^\S\n]*(?:[-*+\u2022]\s+)?\**(ADD|DROP)\**[:\uff1a]\**[^\S\n]*(\S.*)", re.IGNORECASE)
_NO_CHANGE = re.compile(r"\W*NONE\W*", re.IGNORECASE)


def changes_in(reply: str) -> Changes:
    """Read a reply to the advice prompt; raises `OutputError` if it has no line of the documented forms."""
    lines = without_invisible(reply).split("\n")
    changes = [match for line in lines if (match := _CHANGE.fullmatch(line))]
    if not changes and not any(_NO_CHANGE.fullmatch(line) for line in lines):
        raise OutputError(
            f"No line of the reply, which has {len(reply):,} characters, begins with ADD: or DROP:, and none "
            "says NONE."
        )
    added = [match[2].strip() for match in changes if match[1].upper() == "ADD"]
    dropped = [re.match(r"\d{1,3}", match[2]) for match in changes if match[1].upper() == "DROP"]
    return Changes(
        tuple(text for text in dict.fromkeys(added) if len(text) <= LONGEST_ADVICE)[:MOST_NEW],
        frozenset(int(number[0]) for number in dropped if number),
    )


# Data of a run.

SHORTEST_VALUE = 3
"""The fewest characters of a text in a structured output that is recognised elsewhere."""
QUOTED_WORDS = 4
"""How many consecutive words make a quotation."""
_INSIDE = re.compile(r"(?<![.!?\n])[^\S\n]*[\"'(\[{*`]*\Z")


def holds_data(text: str, subject: ReflectionInput) -> bool:
    """Whether a text quotes the output of a run, or a quotation of it in the criteria's issues.

    A quotation is a number, a name (a capital inside a sentence), a value of a structured output, or four
    consecutive words, unless the definition of the task has it, too.
    """
    if quotes_output(text, subject):
        return True
    definition = f"{subject.task.description}\n{subject.task.expected_output}"
    public = words_of(
        "\n".join(
            [definition, *(f"{criterion.name} {criterion.description}" for criterion in subject.criteria)]
        )
    )
    for data in (subject.task_output, *_issues(subject)):
        if (_values_in(data) - public) & words_of(text) or _rows(data) & _rows(text) - _rows(definition):
            return True
        if any(leaf in text.casefold() for leaf in _leaves(data)):
            return True
    return False


def _values_in(data: str) -> set[str]:
    """The words with a digit, and the names."""
    values: set[str] = set()
    for word in WORD.finditer(data):
        is_inside = word.start() > 0 and _INSIDE.search(data[max(0, word.start() - 80) : word.start()])
        capitals = word[0] if is_inside else word[0][1:]
        if any(map(str.isdigit, word[0])) or any(map(str.isupper, capitals)):
            values.add(word[0].casefold())
    return values


def _leaves(output: str) -> set[str]:
    """The texts in a structured output, in lower case."""
    try:
        pending: list[Any] = [json_of(output)]
    except OutputError:
        return set()
    leaves: set[str] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += cast("dict[str, Any]", value).values()
        elif isinstance(value, list):
            pending += cast("list[Any]", value)
        elif isinstance(value, str) and len(value) >= SHORTEST_VALUE:
            leaves.add(value.casefold())
    return leaves


def _rows(text: str) -> set[tuple[str, ...]]:
    words = [word.casefold() for word in WORD.findall(text)]
    return set(zip(*(words[start:] for start in range(QUOTED_WORDS)), strict=False))
