"""Notes: read the notes on a project's tasks, see whether they help, and choose what is in force."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._codec import to_json
from redraft._hints import keyword_hints
from redraft._texts import as_text, counted, estimate_tokens, shortened
from redraft._validation import only
from redraft.errors import ConfigError
from redraft.memory.effects import LATEST, payoff_of
from redraft.memory.safety import restorer
from redraft.notes.checklist import CheckReflectionStrategy, has_checks
from redraft.notes.learner import IN_FORCE, AcceptedRun, InjectedNote, Learner
from redraft.notes.note import Note, NotedTask, NoteUse, note_block, size_of
from redraft.notes.store import NoteStore, PostgresReflectionStore, SqliteReflectionStore, project_notes
from redraft.notes.task import ReflectionConfig, Task, TaskIdentity
from redraft.notes.trial import history_of
from redraft.redact.redactor import redactor_of_environment
from redraft.settings import without_password
from redraft.stores.base import Store
from redraft.stores.location import project_place, required_project_store
from redraft.text.characters import visible
from redraft.text.diff import word_diff
from redraft.types import PlainTask, render_score

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import TracebackType
    from typing import Self

    from redraft.memory.effects import History, Payoff
    from redraft.types import Advice, ReflectionResult

T = TypeVar("T")

LISTED_RUNS, SHOWN_RUNS = LATEST, 2000
"""How many of a task's latest runs to read for a list, and for its page."""
SHOWN_REVISIONS = 20
LATEST_SCORES = 5
"""How many scores make up the current mean."""
NAME_LENGTH = 40
"""The most characters of a task in an error."""
URL_SCHEMES = ("postgresql://", "postgres://")


@keyword_hints()
class Notes:
    """The notes on tasks: list them, read them, and choose the version in force. An async context manager.

    `database` is a SQLite file, a PostgreSQL URL, an open `Store` or `SqliteReflectionStore`; without it, the
    project's own. In all methods, `task` is a task's name, a part of its description, or the beginning of its
    identity; to change the notes on a task that was read, pass its `NotedTask`. Secrets are withheld from all
    results.

    Raises `ConfigError` if there is no such database, and if storage is turned off (an empty `home`); methods
    raise `ConfigError` for an unknown task or version, and `StoreError` if the store can't be read.
    """

    def __init__(self, database: str | Path | Store | NoteStore | None = None) -> None:
        self._store, self.location = _opened(database)
        self._redactor = redactor_of_environment()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close files and connections; the next call opens them again."""
        await self._store.aclose()

    async def list(self) -> list[TaskNotes]:
        """All tasks with notes, the latest change first, with their latest 500 runs."""
        tasks = await self._store.tasks()
        return self._redacted(
            [await read_notes(self._store, task, runs=LISTED_RUNS, revisions=0) for task in tasks]
        )

    async def run_counts(self) -> dict[str, int]:
        """The number of recorded runs of each task, by its identity."""
        return await self._store.run_counts()

    async def get(self, task: str) -> TaskNotes:
        """The notes on a task, with its latest 20 revisions and 2,000 runs."""
        noted = await self._find(task)
        return self._redacted(
            await read_notes(self._store, noted, runs=SHOWN_RUNS, revisions=SHOWN_REVISIONS)
        )

    async def read_all(self, task: str | None = None) -> list[TaskNotes]:
        """Every revision and every run of a task, or of all tasks."""
        tasks = await self._store.tasks() if task is None else [await self._find(task)]
        return self._redacted([await read_notes(self._store, noted) for noted in tasks])

    async def advice(self, task: PlainTask) -> tuple[Advice, ...]:
        """The note in force on a task, in the form in which runs get it; empty if there is none.

        Finds the task with this description, else the task with this name. Placeholders stay as they are.
        """
        noted = await self._store.noted(TaskIdentity.of(task))
        if noted is None:
            named = [
                noted_task
                for noted_task in await self._store.tasks()
                if noted_task.name and noted_task.name == task.description
            ]
            noted = named[0] if len(named) == 1 else None
        note = None if noted is None else await self._store.current(noted.identity)
        if noted is None or note is None:
            return ()
        plain = PlainTask(noted.description, noted.expected_output)
        if size_of(note.reflection, plain) == 0:
            return ()
        restore = restorer(task.description, task.expected_output)  # the caller's own words
        text = restore(self._redacted(note_block(note.reflection, plain, {})))
        note_in_force = InjectedNote(
            "note", note.version, note.version, text, estimate_tokens(text), IN_FORCE
        )
        return note_in_force.advice()

    async def last_writer(self, task: PlainTask) -> str | None:
        """The id of the run that wrote the newest note on a task; None if there are no notes on it."""
        noted = await self._store.noted(TaskIdentity.of(task))
        note = None if noted is None else await self._store.revision(noted.identity, noted.run_count)
        return None if note is None else note.run_id

    async def learn_from_checks(self, result: ReflectionResult) -> None:
        """Add the expected values of a run's failed tests to the note on its task, without a model.

        The first version counts. A run that missed nothing begins no note, and a second call for the same run
        changes nothing. A failure is logged. Only for tasks with the same criteria in each run: a note drops
        requirements that no criterion has any more.
        """
        if result.task is None or not has_checks(result.criteria):
            return
        identity = TaskIdentity.of(result.task)
        first = result.history.versions[0].evaluation
        if first.satisfactory and await self._store.noted(identity) is None:
            return
        given_note = next((advice for advice in result.advice if advice.is_note), None)
        version = None if given_note is None else int(given_note.source.rpartition("v")[2])
        config = ReflectionConfig(strategy=CheckReflectionStrategy(), trial=False)
        learner = Learner(Task(result.task.description), config, self._store, criteria=result.criteria)
        await learner.learn(
            AcceptedRun(
                result.run_id,
                InjectedNote("none" if given_note is None else "note", version, version),
                as_text(result.best_output),
                result.final_evaluation,
                first,
            )
        )

    async def compare(
        self, task: str, older: str = "first", newer: str = "last"
    ) -> tuple[TaskNotes, Note, Note]:
        """The notes on a task, and two versions of them: `2` or `v2`, `first`, `last`, `now`."""
        noted = await self._find(task)
        notes = [await find_revision(self._store, noted, version) for version in (older, newer)]
        read = await read_notes(self._store, noted, runs=SHOWN_RUNS, revisions=0)
        return self._redacted((read, notes[0], notes[1]))

    async def roll_back(self, task: str | NotedTask, version: str) -> TaskNotes:
        """Put an older version in force, until a later run with it adds the next version."""
        return await self._changed(
            task, lambda noted: self._store.rollback(noted.identity, find_version(noted, version))
        )

    async def pin(self, task: str | NotedTask, version: str = "now") -> TaskNotes:
        """Put a version in force until `unpin`: runs still add versions, but none replaces it."""
        return await self._changed(
            task, lambda noted: self._store.pin(noted.identity, find_version(noted, version))
        )

    async def unpin(self, task: str | NotedTask) -> TaskNotes:
        """Let the next note of a run with the pinned version replace it."""
        return await self._changed(task, lambda noted: self._store.unpin(noted.identity))

    async def switch(self, task: str | NotedTask, *, off: bool, why: str = "") -> TaskNotes:
        """Stop giving a task its notes, or start again; while they are off, runs still add revisions."""
        return await self._changed(task, lambda noted: self._store.switch(noted.identity, off=off, why=why))

    async def _find(self, task: str) -> NotedTask:
        try:
            return find_task(await self._store.tasks(), task)
        except ConfigError as error:  # it quotes descriptions
            raise ConfigError(visible(self._redacted(str(error)))) from error

    async def _changed(
        self, task: str | NotedTask, change: Callable[[NotedTask], Awaitable[NotedTask]]
    ) -> TaskNotes:
        changed = await change(task if isinstance(task, NotedTask) else await self._find(task))
        return self._redacted(await read_notes(self._store, changed, runs=LISTED_RUNS, revisions=0))

    def _redacted(self, value: T) -> T:
        return self._redactor.redact_object(value)


def _opened(database: str | Path | Store | NoteStore | None) -> tuple[NoteStore, str]:
    """Open the notes in a database; return them with its location, without a password ("" for a store)."""
    if database is None:
        required_project_store("notes")
        return project_notes(), str(project_place())
    if isinstance(database, NoteStore):
        return database, ""
    if isinstance(database, Store):
        return NoteStore(database), ""
    if not isinstance(database, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
        raise ConfigError(f"database must be a file, a URL or a Store, got {database!r:.200}.")
    database = str(database)
    if database.startswith(URL_SCHEMES):
        return PostgresReflectionStore(database), without_password(database)
    if not Path(database).is_file():
        raise ConfigError(
            f"There is no database {database!r}; give a file, or a URL that begins with {URL_SCHEMES[0]}."
        )
    return SqliteReflectionStore(database), database


@dataclass(frozen=True)  # without slots, for the cached properties
class TaskNotes:
    """The notes on a task.

    Revisions and runs may be limited to the latest, but include the revision in force and the runs before any
    note.
    """

    noted: NotedTask
    revisions: tuple[Note, ...] = ()
    """The oldest first."""
    uses: tuple[NoteUse, ...] = ()
    """The runs, the earliest first."""

    @property
    def title(self) -> str:
        """The task's name, else its description, on one line."""
        return self.noted.name or " ".join(self.noted.description.split())

    @property
    def state(self) -> str:
        """`on`, `off`, `pinned` or `rolled back` to an older version."""
        if self.noted.off:
            return "off"
        if self.noted.pinned:
            return "pinned"
        return "rolled back" if self.noted.why_off else "on"

    @property
    def in_force(self) -> Note | None:
        """The revision in force."""
        return next((note for note in self.revisions if note.version == self.noted.in_force), None)

    def block(self, note: Note) -> str:
        """Render a note for a prompt, but without the inputs of a run."""
        return note_block(note.reflection, PlainTask(self.noted.description, self.noted.expected_output), {})

    def runs_with(self, note: Note) -> int:
        """How many of the loaded runs had a note."""
        return sum(use.version == note.version for use in self.uses)

    def scores(self, version: int | None, arm: str = "note") -> list[float]:
        """The scores of the runs with a version, in an arm (None and "none": before any note)."""
        return self._scores.get((version, arm), [])

    def mean_score(self, note: Note) -> float | None:
        """The mean score of the runs with a note; None if there is none."""
        return mean_of(self.scores(note.version))

    @cached_property
    def _scores(self) -> dict[tuple[int | None, str], list[float]]:
        scores: dict[tuple[int | None, str], list[float]] = {}
        for use in self.uses:
            if use.score is not None:
                scores.setdefault((use.version, use.arm), []).append(use.score)
        return scores

    @property
    def before(self) -> float | None:
        """The mean score of the runs without a note, apart from the control runs of a trial."""
        return mean_of(self.scores(None, "none"))

    @property
    def now(self) -> float | None:
        """The mean score of the latest 5 runs with the note in force, or with a note that led to it."""
        noted = self.noted
        scores = [
            use.score
            for use in self.uses
            if use.arm == "note" and use.version is not None and use.score is not None
            if use.version == noted.in_force or use.version >= noted.since
        ]
        return None if noted.in_force is None else mean_of(scores[-LATEST_SCORES:])

    @property
    def trend(self) -> list[float | None]:
        """The mean score before any note, then with each version that runs had."""
        used = {use.version for use in self.uses if use.version is not None and use.arm == "note"}
        return [self.before, *(mean_of(self.scores(version)) for version in sorted(used))]

    @cached_property
    def payoff(self) -> Payoff:
        """Whether the notes help, by the test that decides what is in force."""
        return payoff_of_notes([self])

    @cached_property
    def history(self) -> History:
        """The scores that the trial compares: of the current line of notes, else of all lines."""
        uses = self.uses[-LATEST:]
        if history := history_of(self.noted, uses):
            return history
        runs = [(use, use.score) for use in uses if use.score is not None]
        return [
            (use.arm == "note", score)
            for use, score in runs
            if use.arm == "note" or (use.arm == "control" and use.version is None)
        ]

    @property
    def why_newer_wait(self) -> str:
        """Why newer versions are not in force; empty if there are none, or the version in force is pinned.

        A trial keeps a version until enough runs with it have a score; a version that was put in force by
        hand stays until a run with it adds the next version.
        """
        noted = self.noted
        newer = 0 if noted.in_force is None or noted.pinned else noted.run_count - noted.in_force
        if not newer:
            return ""
        waiting = f"{counted(newer, 'newer version')} {'is' if newer == 1 else 'are'} not in force"
        if noted.on_trial:
            return f"{waiting}: the trial keeps v{noted.in_force} until enough runs with it have a score."
        return f"{waiting}: v{noted.in_force} stays until a run that was given it adds the next."

    def repeats(self, note: Note) -> bool:
        """Whether a revision has the same text as the previous revision, if that was loaded."""
        before = next((revision for revision in self.revisions if revision.version == note.version - 1), None)
        return before is not None and self.block(before) == self.block(note)

    def row(self) -> dict[str, Any]:
        """The state of the notes as JSON, for a list."""
        return {
            **to_json(self.noted),
            "state": self.state,
            "score_before": self.before,
            "score_now": self.now,
            "trend": self.trend,
            "payoff": self.payoff,
        }

    def document(self) -> dict[str, Any]:
        """The notes as JSON, with the loaded revisions and runs."""
        return {
            **self.row(),
            "block": None if self.in_force is None else self.block(self.in_force),
            "why_newer_wait": self.why_newer_wait,
            "revisions": [
                {
                    **to_json(note),
                    "score": self.mean_score(note),
                    "runs": self.runs_with(note),
                    "repeats": self.repeats(note),
                }
                for note in self.revisions
            ],
            "uses": self.uses,
        }

    def diff_document(self, older: Note, newer: Note) -> dict[str, Any]:
        """The difference between two revisions as JSON."""
        words = word_diff(self.block(older), self.block(newer))
        return {
            "identity": self.noted.identity,
            "from": {"version": older.version, "score": self.mean_score(older)},
            "to": {"version": newer.version, "score": self.mean_score(newer)},
            "words": [{"op": op, "text": text} for op, text in words],
        }

    def markdown(self) -> str:
        """Render the notes as Markdown: each revision in the form of a prompt, the newest first."""
        noted = self.noted
        force = "none is in force" if noted.in_force is None else f"version {noted.in_force} is in force"
        why = f" ({noted.why_off})" if noted.why_off else ""
        parts = [
            f"# Notes: {self.title}",
            f"`{noted.identity}`: {counted(noted.run_count, 'revision')}, {force}{why}.",
        ]
        for note in reversed(self.revisions):
            scored = len(self.scores(note.version))
            mean = render_score(self.mean_score(note)).strip()
            runs = f"{counted(scored, 'scored run')}, mean {mean}" if scored else "no scored run"
            parts.append(f"## Version {note.version} ({note.reflection.reflected_at:%Y-%m-%d %H:%M}, {runs})")
            parts.append("\n".join(f"> {line}".rstrip() for line in self.block(note).splitlines()))
        return "\n\n".join(parts) + "\n"


def payoff_of_notes(tasks: Iterable[TaskNotes]) -> Payoff:
    """Compare the runs with notes with the control runs of trials, task by task."""
    return payoff_of(task.history for task in tasks)


def payoff_sentence(payoff: Payoff, before: Iterable[float | None]) -> str:
    """Say whether notes pay off; the scores of tasks `before` their first note don't count."""
    sentence = payoff.sentence("notes")
    if payoff.answer == "Not known" and any(score is not None for score in before):
        sentence += " Runs before a task's first note are not counted: they had none to go without."
    return sentence


def mean_of(scores: list[float]) -> float | None:
    """The mean; None without scores."""
    return fmean(scores) if scores else None


async def read_notes(
    store: NoteStore, noted: NotedTask, *, runs: int | None = None, revisions: int | None = None
) -> TaskNotes:
    """Read the notes on a task: everything, or its latest `runs` and `revisions` (0: none)."""
    identity = noted.identity
    uses = await store.uses(identity, latest=runs)
    if runs is not None and len(uses) == runs:  # the runs before any note may be older
        seen = {use.run_id for use in uses}
        bare = await store.uses(identity, latest=runs, arm="none")
        uses = [*(use for use in bare if use.run_id not in seen), *uses]
    notes = [] if revisions == 0 else await store.revisions(identity, latest=revisions)
    if notes and noted.in_force is not None and noted.in_force < notes[0].version:
        in_force = await store.revision(identity, noted.in_force)
        notes = notes if in_force is None else [in_force, *notes]
    return TaskNotes(noted, tuple(notes), tuple(uses))


async def find_revision(store: NoteStore, noted: NotedTask, query: str) -> Note:
    """Read a revision by its name; raises `ConfigError` if it does not exist."""
    note = await store.revision(noted.identity, find_version(noted, query))
    if note is None:
        raise ConfigError(f"The version {query!r} of the notes on this task no longer exists.")
    return note


MOST_DIGITS = 9
"""Digits of a version in a query; Python refuses to read a number of thousands of digits."""


def find_version(noted: NotedTask, query: str) -> int:
    """The number of a version: `2` or `v2`, `first`, `last`, `now` (in force).

    Raises `ConfigError` if it does not exist.
    """
    if query == "now" and noted.in_force is None:
        raise ConfigError("No note on this task is in force.")
    names = {"first": 1, "last": noted.run_count, "now": noted.in_force}
    number = query.removeprefix("v")
    is_number = number.isdecimal() and len(number) <= MOST_DIGITS
    version = names.get(query, int(number) if is_number else None)
    if version is None or not 1 <= version <= noted.run_count:
        raise ConfigError(
            f"There is no version {query!r} of the notes on this task; expected 1 to {noted.run_count}, "
            "first, last or now."
        )
    return version


def find_task(tasks: Iterable[NotedTask], query: str) -> NotedTask:
    """Find a task by its name, the beginning of its identity, or a part of its description.

    Raises `ConfigError` if no task matches, or several, which it names.
    """
    tasks, part = list(tasks), query.casefold()
    if not query:
        matches = []
    else:
        exact = [task for task in tasks if query in (task.identity, task.name)]
        matches = exact or [
            task
            for task in tasks
            if task.identity.startswith(query)
            or part in task.name.casefold()
            or part in task.description.casefold()
        ]
    task = only(
        matches,
        query,
        "tasks",
        lambda task: f"{task.identity[:8]} {shortened(task.name or task.description, NAME_LENGTH)}",
    )
    if task is None:
        raise ConfigError(
            f"No task with notes matches {query!r}; `redraft notes` lists the tasks with notes."
        )
    return task
