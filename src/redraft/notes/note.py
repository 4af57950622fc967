"""Notes: the lessons of a task's runs, and the block that carries them into the next prompt."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from redraft._hints import keyword_hints
from redraft._texts import as_text, estimate_tokens
from redraft._validation import check_count, check_kind, check_text
from redraft.errors import ConfigError
from redraft.memory.safety import restorer
from redraft.text.characters import without_invisible
from redraft.types import frozen_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redraft.types import PlainTask

Arm = Literal["note", "control", "none"]


@keyword_hints()
@dataclass(frozen=True, slots=True)
class TaskReflection:
    """The result of reflecting on a task's runs: better instructions, observations and suggestions.

    Raises `ConfigError` for a text that is not a string, and for a count below 1.
    """

    refined_description: str
    """An improved version of the task's description, which never changes."""
    refined_expected_output: str
    """An improved version of the task's expected output, which never changes."""
    observations: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    reflected_at: datetime = field(default_factory=partial(datetime.now, UTC))
    run_count: int = 1
    """How many runs have contributed."""

    def __post_init__(self) -> None:
        check_text("refined_description", self.refined_description)
        check_text("refined_expected_output", self.refined_expected_output)
        for name, items in (("observations", self.observations), ("suggestions", self.suggestions)):
            if isinstance(items, str) or not isinstance(items, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped strategies)
                raise ConfigError(f"{name} must be a list of strings, got {items!r}.")
            for item in items:
                check_text(f"an item of {name}", item)
            object.__setattr__(self, name, frozen_list(items))
        if not isinstance(self.reflected_at, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] (as above)
            raise ConfigError(f"reflected_at must be a datetime, got {self.reflected_at!r}.")
        check_count("run_count", self.run_count, 1)

    @classmethod
    def of_first_run(
        cls,
        refined_description: str,
        refined_expected_output: str,
        observations: Sequence[str] = (),
        suggestions: Sequence[str] = (),
    ) -> TaskReflection:
        """The reflection on a task's first run, made now."""
        return cls(
            refined_description, refined_expected_output, frozen_list(observations), frozen_list(suggestions)
        )

    @classmethod
    def from_prior(
        cls,
        refined_description: str,
        refined_expected_output: str,
        observations: Sequence[str] = (),
        suggestions: Sequence[str] = (),
        *,
        prior: TaskReflection,
    ) -> TaskReflection:
        """The reflection that follows `prior`, made now, with one more run."""
        check_kind("prior", prior, TaskReflection, "a TaskReflection")
        return cls(
            refined_description,
            refined_expected_output,
            frozen_list(observations),
            frozen_list(suggestions),
            run_count=prior.run_count + 1,
        )


@dataclass(frozen=True, slots=True)
class Note:
    """A revision of the note on a task."""

    version: int
    """The number of the revision, from 1."""
    reflection: TaskReflection
    run_id: str = ""
    """The run that wrote it."""
    based_on: int | None = None
    """The version that was in force for that run; None for no note."""
    tokens: int = 0
    """Its size in a prompt."""


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_EDGES = " \t-*+.:;,!\u2022"


def lines_said(reflection: TaskReflection, *, numbers: bool = True) -> tuple[str, ...]:
    """The lines of a note, regardless of order, white space, case and bullets.

    Without `numbers`, all numbers are equal.
    """
    texts = (
        reflection.refined_description,
        reflection.refined_expected_output,
        *reflection.observations,
        *reflection.suggestions,
    )
    lines = (line for text in texts for line in without_invisible(text).casefold().split("\n"))
    if not numbers:
        lines = (_NUMBER.sub("#", line) for line in lines)
    return tuple(sorted(filter(None, (" ".join(line.split()).strip(_EDGES) for line in lines))))


def is_return(new: TaskReflection, present: TaskReflection, before: TaskReflection) -> bool:
    """Whether a new note returns from the present note to an earlier note, perhaps with other numbers."""
    new_lines, present_lines, earlier_lines = map(lines_said, (new, present, before))
    if new_lines == earlier_lines:
        return new_lines != present_lines
    new_lines, present_lines, earlier_lines = (
        lines_said(reflection, numbers=False) for reflection in (new, present, before)
    )
    return new_lines == earlier_lines != present_lines


@dataclass(frozen=True, slots=True)
class NoteUse:
    """The note that a run of a task got, and the run's score."""

    run_id: str
    version: int | None
    """The version of the note; None for no note."""
    arm: Arm = "none"
    """`control` if a trial withheld the note or gave the previous note; `none` without notes."""
    score: float | None = None
    """The score of the run's first version, 0..1; None if it was not judged."""
    at: datetime = field(default_factory=partial(datetime.now, UTC))


MOST_REPLACED = 8
"""How many replaced versions to compare with a new version, so that notes don't alternate."""


@dataclass(frozen=True, slots=True)
class NotedTask:
    """The state of the notes on a task: its definition, the number of revisions, and the version in force."""

    identity: str
    description: str
    expected_output: str = ""
    name: str = ""
    run_count: int = 0
    """The number of revisions."""
    in_force: int | None = None
    """None if runs get no note: there is none yet, notes are off, or were rolled back to none."""
    off: bool = False
    why_off: str = ""
    """Why the last note is out of force."""
    since: int = 1
    """The first version of the current line of notes: scores from before a rollback do not count."""
    pinned: bool = False
    """Whether a person keeps the version in force."""
    is_shown: bool = False
    """Whether a trial has shown that the notes help."""
    judged_until: datetime | None = None
    """The scores of runs until this time no longer count."""
    control_share: float | None = None
    """The current share of control runs; None before the first evaluation of the trial."""
    replaced: tuple[int, ...] = ()
    """The latest versions of this line that newer versions with different words have replaced."""

    @property
    def on_trial(self) -> bool:
        """Whether a trial may withhold the note; not after a person or a rollback put it in force."""
        return self.in_force is not None and self.in_force >= self.since and not self.off

    def with_revision(
        self,
        note: Note,
        *,
        held: bool = False,
        arm: Arm = "note",
        line: int | None = None,
        same: bool = False,
    ) -> NotedTask:
        """Count a new revision, and put it in force if nothing prevents that.

        With `held`, a trial keeps the present note. `arm` is the arm of the run that wrote the revision, and
        `line` the value of `since` when its note was chosen (None: unknown). A revision of an earlier line
        does not come into force. After a rollback, only a run with the version in force can replace it, not a
        control run. `same` means that the revision has the words of the note in force.
        """
        if note.version <= self.run_count:  # counted already, or overtaken by a newer revision
            return self
        if held or self.off or self.pinned or not self._is_followed_by(note, arm, line):
            return replace(self, run_count=note.version)
        is_first = self.in_force is None or self.in_force < self.since
        replaced = self.replaced if same or is_first else (*self.replaced, self.in_force or 0)
        return replace(
            self,
            run_count=note.version,
            in_force=note.version,
            why_off="",
            replaced=replaced[-MOST_REPLACED:],
        )

    def _is_followed_by(self, note: Note, arm: Arm, line: int | None) -> bool:
        if line not in (None, self.since):
            return False
        if self.in_force is not None and not self.on_trial:
            return arm != "control" and note.based_on == self.in_force
        return (
            line is not None
            or self.since == 1
            or note.based_on == self.in_force
            or (note.based_on is not None and note.based_on >= self.since)
        )

    def rolled_back(self, version: int | None, why: str = "", *, pinned: bool = False) -> NotedTask:
        """Put an older version in force, or none, and begin a new line of notes.

        `pinned` keeps the version in force until another version is put in force, or `unpinned`. Raises
        `ConfigError` for a version that does not exist.
        """
        if version is not None and not 1 <= version <= self.run_count:
            raise ConfigError(
                f"There is no version {version} of the notes on this task; expected 1 to {self.run_count}."
            )
        if not why:
            before = (
                "put in force by hand"
                if self.in_force in (None, version)
                else f"rolled back from version {self.in_force}"
            )
            before += ", which is no longer pinned" if self.pinned and self.in_force is not None else ""
            why = "pinned" if pinned else before
        begun = self._of_new_line()
        return replace(begun, in_force=version, off=version is None, why_off=why, pinned=pinned)

    def unpinned(self) -> NotedTask:
        """Let newer versions replace the pinned version."""
        return replace(self, pinned=False, why_off="" if self.pinned and not self.off else self.why_off)

    def switched(self, *, off: bool, why: str = "") -> NotedTask:
        """Switch notes off; or on again, as a new line, with the version last in force, else the newest."""
        if off:
            return replace(self, off=True, why_off=why or "switched off")
        begun = self._of_new_line() if self.off else self
        why = "pinned" if self.pinned else ""
        return replace(begun, off=False, why_off=why, in_force=self.in_force or self.run_count or None)

    def _of_new_line(self) -> NotedTask:
        """Begin a new line of notes, without the results of earlier trials."""
        since, now = self.run_count + 1, datetime.now(UTC)
        return replace(self, since=since, is_shown=False, judged_until=now, control_share=None, replaced=())


@dataclass(frozen=True, slots=True)
class Rollback:
    """A note was taken out of force automatically: runs with it scored lower than runs without it."""

    version: int
    """The version that was in force."""
    to: int | None
    """The version that took its place; None for no note."""
    effect: float
    """The mean difference of the scores."""
    low: float
    """The lower end of the 95 % interval of `effect`."""
    high: float
    """The upper end of the 95 % interval of `effect`."""
    with_runs: int
    without_runs: int


@dataclass(frozen=True, slots=True)
class TaskReflectedEvent:
    """A reflection was stored."""

    task_description: str
    reflection: TaskReflection
    is_first_reflection: bool
    """Decided by the store, so that of simultaneous runs, a single run is the first."""
    task_identity: str = ""
    version: int = 0
    """The stored revision."""
    run_id: str = ""
    rollback: Rollback | None = None
    """Set if the note in force was rolled back because it hurts."""
    schema_version: int = 1


ReflectedListener: TypeAlias = Callable[[TaskReflectedEvent], Awaitable[None] | None]


# The block that precedes a task.

_LEAD = """\
## Task Improvement Notes (from prior executions)

The following refinements were identified by analyzing previous runs of this task.
Apply them to improve your approach while still fulfilling the original requirements below."""
_END = "---"

# The start or end of a section of Markdown, after any white space: a heading, a rule (which also makes the
# line above it a heading), a fence, or equivalent HTML.
_SIGNS = r"\-=*_\u2010-\u2015\u2043\u2212\u2500-\u257f\u2e3a\u2e3b\ufe58\ufe63\uff0a\uff0d\uff1d\uff3f"
_STRUCTURE = re.compile(
    rf"^(?! {{4}})[^\S\n]*+(?=[#\uff03]|```|~~~|<!--|</?[hH][1-6rR]\b|[{_SIGNS}](?:[{_SIGNS}]|[^\S\n])*$)",
    re.MULTILINE,
)
# After the dash of a list item, more dashes make a rule, however far away.
_LEADING_RULES = re.compile(rf"\A[{_SIGNS}\s]*(?:\n|\Z)")
_INDENT = "    "


def note_block(
    reflection: TaskReflection, task: PlainTask, inputs: Mapping[str, Any], requirements: Iterable[str] = ()
) -> str:
    """Render the note that precedes `task`, from its heading to the closing `---`.

    `task` is the definition as written; placeholders in the refined texts are filled from `inputs`. What the
    note withholds is put back where the definition or the `requirements` say it. Text that would end the
    block or begin a section (a heading, a rule, a fence) is indented by four spaces, also in the values of
    inputs.
    """
    texts = (
        ("Refined Instructions", reflection.refined_description, task.description),
        ("Output Guidance", reflection.refined_expected_output, task.expected_output),
    )
    parts = [
        f"### {heading}\n{text}"
        for heading, refined, original in texts
        if (text := _contained(fill_known(refined if refined.strip() else original, inputs)))
    ]
    lists = (("Observations", reflection.observations), ("Suggestions", reflection.suggestions))
    parts += [f"### {heading}\n{listed}" for heading, items in lists if (listed := _listed(items))]
    restore = restorer(task.description, task.expected_output, *requirements)
    return restore("\n\n".join([_LEAD, *parts, _END]))


def size_of(reflection: TaskReflection, task: PlainTask) -> int:
    """Estimate the tokens of a note's own words.

    A refined text that equals the task's own does not count, nor do the fixed lines of the block.
    """
    texts = (
        (reflection.refined_description, task.description),
        (reflection.refined_expected_output, task.expected_output),
    )
    parts = [refined for refined, own in texts if refined and refined != own]
    parts += [f"- {item}" for item in (*reflection.observations, *reflection.suggestions)]
    return estimate_tokens("\n".join(parts))


def _listed(items: Iterable[str]) -> str:
    texts = (_contained(_LEADING_RULES.sub("", without_invisible(item))) for item in items)
    return "\n".join("- " + text.replace("\n", "\n  ") for text in texts if text)


def _contained(text: str) -> str:
    """Keep a text from breaking out of its block: nothing invisible, no structure at a line's start."""
    return _STRUCTURE.sub(_INDENT, without_invisible(text).strip()).rstrip()


# Placeholders.

_BRACED = re.compile(r"(?<!\{)(\{++)([^\W\d]\w*+)(\}++)")


def placeholders_of(text: str) -> tuple[str, ...]:
    """The names of the placeholders in a text, in order, without duplicates."""
    names: dict[str, None] = {}

    def note(name: str) -> str:
        names[name] = None
        return name

    _filled(text, note)
    return tuple(names)


def fill(text: str, inputs: Mapping[str, Any], title: str = "") -> str:
    """Fill the placeholders of a text from the inputs of a run.

    `{name}` is a placeholder if the name is an identifier; `{{name}}` means a literal `{name}`, as in
    `str.format`. Other braces (JSON, code) stay as they are, also in values. A value that is not a text is
    inserted as JSON. Raises `ConfigError` for a missing input; `title` names the task in it.
    """

    def value_of(name: str) -> str:
        if name not in inputs:
            state = f"the inputs are {', '.join(map(repr, inputs))}" if inputs else "there are no inputs"
            raise ConfigError(
                f"The task {title or text[:60]!r} has the placeholder {{{name}}}, but {state}. Give it as "
                f'run(inputs={{"{name}": ...}}), or write {{{{{name}}}}} in the task if you mean the braces '
                "literally."
            )
        return as_text(inputs[name])

    return _filled(text, value_of)


def fill_known(text: str, inputs: Mapping[str, Any]) -> str:
    """Like `fill`, for a text that a model wrote: a placeholder without an input stays as it is."""
    return _filled(text, lambda name: as_text(inputs[name]) if name in inputs else f"{{{name}}}")


def _filled(text: str, value_of: Callable[[str], str]) -> str:
    def filled(match: re.Match[str]) -> str:
        opening, name, closing = match.groups()
        if not name.isidentifier():
            return match[0]
        # Two braces mean a literal brace; an odd brace makes a placeholder.
        both = min(len(opening), len(closing))
        inner = value_of(name) if both % 2 else name
        braces = both // 2
        return f"{opening[both - braces :]}{inner}{closing[: len(closing) - both + braces]}"

    return _BRACED.sub(filled, text)
