"""Survey: map every record of a project to its run, in one pass."""

from __future__ import annotations

import re
import socket
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import unquote

from redraft.approvals import ANSWER, APPROVAL
from redraft.cycles.journal import JOURNAL, TRACE
from redraft.cycles.mail import FEEDBACK
from redraft.cycles.records import CARD
from redraft.cycles.storage import AGENT
from redraft.errors import ConfigError, DamagedRecordError
from redraft.evals.report import EVALUATION, TRY
from redraft.fleet.gate import LIMIT, SPENDING
from redraft.fleet.queue import JOB, WAITING, WORKER
from redraft.fleet.schedule import SCHEDULE
from redraft.lessons.documents import LESSON, LOCK
from redraft.lessons.due import DUE, SETTLED
from redraft.lessons.guidance import QUARANTINED
from redraft.lessons.impact import SCORED_RUN, TRIAL, VERDICT
from redraft.loop.journal import CLAIM, STEP, VOID
from redraft.loop.labels import LABEL
from redraft.loop.record import IMAGE, Process
from redraft.notes.store import CURRENT, NOTE, NOTED_TASK
from redraft.proposals.proposals import PROPOSED
from redraft.stores.base import ManagedStore, json_text, reading
from redraft.stores.run_index import LESSON_USE, NOTE_COST, NOTE_USE, RUN
from redraft.text.search import has_text, texts_in
from redraft.web.people import PERSON
from redraft.workflow.history import INNER_WORKFLOW, LAUNCH, WORKFLOW

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence

    from redraft.fleet.queue import FleetJob
    from redraft.stores.base import Record, Store
    from redraft.text.search import TextPredicate

Key: TypeAlias = tuple[str, str]
"""The kind and the key of a record."""

ATTEMPT = "attempt"
"""Equal to `integrations.mcp.ATTEMPT`, whose module needs an extra."""

KEYED_BY_RUN = (RUN, WORKFLOW, INNER_WORKFLOW, LAUNCH, CLAIM, EVALUATION, JOB, ATTEMPT)
"""The kinds of records whose key is the id of their run."""
PREFIXED_BY_RUN = (STEP, VOID, NOTE_COST, TRY)
"""The kinds of records whose key begins with the id of their run and a slash."""
WITH_RUN_ID = (APPROVAL, ANSWER, WAITING)
"""Other kinds that belong to a run, whose id is in a field or in the key."""
ABOUT = {
    LABEL: "run",
    NOTE_USE: "run_id",
    LESSON_USE: "run_id",
    SCORED_RUN: "run_id",
    DUE: "run_id",
    SETTLED: "run_id",
}
"""The kinds of records about a run that outlive it, and the field with the id of the run."""
WITH_PARENT = (RUN, INNER_WORKFLOW)
"""The kinds of records that name the parent of a run."""
ABOUT_LESSONS = (LESSON_USE, VERDICT, QUARANTINED, SETTLED)
"""The kinds of records that name a lesson, and may quote its content."""

STATE = (AGENT, WORKER, LIMIT, SPENDING, SCHEDULE, LOCK)
"""The kinds of records without content of runs that the project needs to work; they are never deleted."""

NAMES = {
    STEP: "journal step",
    VOID: "journal step",
    LAUNCH: "command",
    NOTE_COST: "note cost",
    INNER_WORKFLOW: "workflow",
    TRY: "evaluation attempt",
    SCORED_RUN: "score",
    NOTE_USE: "note use",
    LESSON_USE: "lesson use",
    VERDICT: "lesson verdict",
    QUARANTINED: "quarantined lesson",
    TRIAL: "lesson trial",
    DUE: "due reflection",
    SETTLED: "settled reflection",
    NOTED_TASK: "task with notes",
    WAITING: "waiting job",
    ATTEMPT: "coding attempt",
    PERSON: "token",
    FEEDBACK: "feedback message",
    TRACE: "model call trace",
    JOURNAL: "cycle journal",
    CARD: "agent card",
    PROPOSED: "proposed criterion",
}
"""The names of kinds for people, where they differ from the kind."""

SEARCHED = (
    *KEYED_BY_RUN,
    *PREFIXED_BY_RUN,
    *WITH_RUN_ID,
    *ABOUT,
    *ABOUT_LESSONS,
    IMAGE,
    NOTE,
    NOTED_TASK,
    TRIAL,
    PERSON,
    PROPOSED,
)
"""The kinds that are searched in a user's own store, which can't list its kinds."""
PAGE = 500


def runs_of(record: Record) -> tuple[str, ...]:
    """The ids of the runs that a record belongs to."""
    kind, key = record.kind, record.key
    if kind in KEYED_BY_RUN:
        return (key,)
    if kind in PREFIXED_BY_RUN:
        return (key.partition("/")[0], *_field(record, "run_id" if kind == TRY else ""))
    if kind == ANSWER:
        return (key.rpartition(".")[0],)
    return _field(record, "run_id") if kind in WITH_RUN_ID else ()


def lesson_of(record: Record) -> str:
    """The id of the lesson that a record is about; empty if there is none."""
    if record.kind == VERDICT:
        return record.key
    return next(iter(_field(record, "lesson")), "") if record.kind in ABOUT_LESSONS else ""


def _field(record: Record, name: str) -> tuple[str, ...]:
    value: Any = record.data.get(name) if name and not record.damage else None
    return (value,) if isinstance(value, str) and value else ()


async def _records(store: Store, kinds: Iterable[str]) -> AsyncGenerator[Record]:
    """Yield the records of some kinds, including damaged ones."""
    for kind in kinds:
        last: Record | None = None
        while page := await store.find(kind, after=last, limit=1 if kind == IMAGE else PAGE):
            last = page[-1]
            for record in page:
                yield record


_MADE_BY_TASK = re.compile(r"(\d{8}-\d{6}-[0-9a-f]{8}|.+?)(\.\d+)?(-\d+)?")
"""The id of a run of a task: the id of its ensemble, the number of the task, the number of the attempt."""


LABELLED = "labelled by a person"


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A run or workflow with all runs inside it."""

    name: str
    runs: frozenset[str]
    began: datetime
    """When the last of the runs was stored."""


class Survey:
    """The records of a store by run, and the records that match a search."""

    def __init__(self, is_match: TextPredicate | None, images: Collection[str] = ()) -> None:
        self.hits: set[Key] = set()
        """The records that match."""
        self.selected: set[str] = set()
        """The runs of the records that match; callers may add others."""
        self.tasks: set[str] = set()
        """The identities of the tasks with notes whose definitions match."""
        self.state: set[str] = set()
        """The kinds of the records that match but are never deleted."""
        self.ids: set[str] = set()
        """All runs."""
        self.parents: dict[str, str] = {}
        """The parent of each inner run."""
        self.statuses: dict[str, str] = {}
        self.began: dict[str, datetime] = {}
        """When each run and workflow was stored."""
        self.sizes: defaultdict[str, int] = defaultdict(int)
        """The bytes of the records of each run."""
        self.kinds_about: defaultdict[str, set[str]] = defaultdict(set)
        """The kinds of the records about each run."""
        self.runs_with_notes: defaultdict[str, dict[str, int | None]] = defaultdict(dict)
        """The revisions that runs had (None: none), by the identity of their task."""
        self.jobs: dict[str, FleetJob] = {}
        self.damaged: dict[Key, str] = {}
        """The unreadable records, and the damage of each."""
        self._is_match = is_match
        self._all_images = frozenset(images)
        self._parts: defaultdict[str, list[Key]] = defaultdict(list)
        self._about: defaultdict[str, list[Key]] = defaultdict(list)
        self._of_lessons: defaultdict[str, list[Key]] = defaultdict(list)
        self._runs_with: defaultdict[str, set[str]] = defaultdict(set)
        self._notes: list[tuple[str, int, str, bool]] = []
        self._images: defaultdict[str, set[str]] = defaultdict(set)
        self._processes: dict[str, Process] = {}

    def add(self, record: Record) -> None:
        """Add a record, as damaged if it can't be read."""
        key, runs = (record.kind, record.key), runs_of(record)
        for run in runs:
            self.ids.add(run)
            self._parts[run].append(key)
        try:
            with reading(record):
                self._add_intact(record, key, runs)
        except DamagedRecordError as error:
            self.damaged[key] = str(error)

    def _add_intact(self, record: Record, key: Key, runs: tuple[str, ...]) -> None:
        if runs:
            self.sizes[runs[0]] += len(json_text(record.data))
            self._add_run(record, runs)
        if run := next(iter(_field(record, ABOUT.get(record.kind, ""))), ""):
            self._about[run].append(key)
            self.kinds_about[run].add(record.kind)
        if lesson := lesson_of(record):
            self._of_lessons[lesson].append(key)
            if record.kind == LESSON_USE:
                self._runs_with[lesson].add(run)
        if record.kind == NOTE_USE:
            self.runs_with_notes[_identity(record)][run] = record.data.get("version")
        if self._all_images and record.kind != IMAGE:
            self._images[next(iter(runs), "")] |= self._all_images & set(texts_in(record.data))
        is_hit = self._is_match is not None and _is_hit(record, self._is_match)
        if record.kind == NOTE:
            version = int(record.key.rpartition("/")[2])
            self._notes.append((_identity(record), version, record.data.get("run_id", ""), is_hit))
        elif is_hit and record.kind == NOTED_TASK:
            self.tasks.add(_identity(record))
        elif is_hit and record.kind in STATE:
            self.state.add(record.kind)
        elif is_hit and record.kind != LESSON:  # `LessonLibrary.erase` erases lessons and their effects
            self.hits.add(key)
            # In an evaluation, only the attempts that contain the text are erased, with their runs.
            self.selected.update(runs[1:] if record.kind == TRY else runs)

    def _add_run(self, record: Record, runs: tuple[str, ...]) -> None:
        run, data = runs[0], record.data
        if record.kind in WITH_PARENT and (parent := _field(record, "parent")):
            self.parents[run] = parent[0]
        elif (
            record.kind == RUN
            and isinstance(origin := data.get("origin"), dict)
            and cast("Mapping[str, Any]", origin).get("surface") == "task"
        ):
            made_by = _MADE_BY_TASK.fullmatch(run)
            if made_by is not None and made_by[1] != run:
                self.parents[run] = made_by[1]
        if isinstance(process := data.get("process"), dict):
            self._processes[run] = Process(**cast("dict[str, Any]", process))
        if record.kind in (RUN, WORKFLOW):
            self.statuses[run] = data.get("status", "running")
            self.began[run] = record.created_at or datetime.now(UTC)

    def family(self, runs: Iterable[str] | None = None) -> set[str]:
        """Runs, by default the selected ones, and all runs inside them."""
        children: defaultdict[str, list[str]] = defaultdict(list)
        for run, parent in self.parents.items():
            children[parent].append(run)
        family, queue = set[str](), list(self.selected if runs is None else runs)
        while queue:
            run = queue.pop()
            if run not in family:
                family.add(run)
                queue += children[run]
        return family

    def outermost(self, run: str) -> str:
        """The outermost run around a run, or the run itself."""
        seen = {run}
        while (parent := self.parents.get(run, "")) and parent not in seen:
            seen.add(run := parent)
        return run

    def check_at_rest(self, runs: Iterable[str], *, force: bool) -> None:
        """Raise `ConfigError` if a run is or may be at work; `force` allows runs that can't be checked."""
        by_state: defaultdict[str, list[str]] = defaultdict(list)
        for run in sorted(runs):
            job = self.jobs.get(run)
            if job is not None and not job.has_ended:
                raise ConfigError(f"The job {run!r} is {job.state}: cancel it (redraft cancel {run}).")
            by_state[self.at_work(run)].append(repr(run))
        if running := by_state["running"]:
            raise ConfigError(
                f"The {_runs_are(running)} still going on: wait for the end, or stop the program."
            )
        if (unknown := by_state["unknown"]) and not force:
            raise ConfigError(
                f"This machine can't tell whether the {_runs_are(unknown)} still going on. If not, add "
                "--force."
            )

    def at_work(self, run: str) -> str:
        """`running` or `unknown` for a run that is or may be going on; empty for any other."""
        if self.statuses.get(run) != "running":
            return ""
        process = self._processes.get(run)
        if process is None or process.host != socket.gethostname():
            return "unknown"
        return {True: "", False: "running", None: "unknown"}[process.has_exited()]

    def groups(self) -> list[StoredGroup]:
        """The runs and workflows, each with the runs inside it, oldest first.

        Evaluations are left out, since later evaluations are compared with their runs.
        """
        members: defaultdict[str, list[str]] = defaultdict(list)
        for run in self.statuses:
            members[self.outermost(run)].append(run)
        groups: list[StoredGroup] = []
        for outermost, runs in members.items():
            if all(kind != EVALUATION for kind, _ in self._parts[outermost]):
                family = frozenset(self.family([outermost]))
                groups.append(StoredGroup(outermost, family, max(self.began[run] for run in runs)))
        return sorted(groups, key=lambda group: (group.began, group.name))

    def reason_to_keep(self, group: StoredGroup) -> str:
        """Why a group is not pruned by default; empty if it may be pruned."""
        if any(
            self.at_work(run) or (run in self.jobs and not self.jobs[run].has_ended) for run in group.runs
        ):
            return "still going on, or not known to have ended"
        if any(self.statuses.get(run) == "waiting" for run in group.runs):
            return "waiting for a person"
        kinds = {kind for run in group.runs for kind in self.kinds_about[run]}
        if DUE in kinds:
            return "due for a reflection"
        return LABELLED if LABEL in kinds else ""

    def parts_of(self, runs: Iterable[str]) -> list[Key]:
        """The records that belong to these runs, in the order in which to delete them.

        Records by which a second survey would find these runs come last, and inner runs come before outer
        ones, so that an interrupted deletion can be repeated.
        """
        keys = {key: self._depth(run) for run in runs for key in self._parts[run]}
        last = {
            key for key in keys if key in self.hits or (key[0] in KEYED_BY_RUN and key[1] in self.selected)
        }
        links = {key for key in keys if key[0] in WITH_PARENT}
        return sorted(keys, key=lambda key: (key in last, key in links, -keys[key], key))

    def about(self, runs: Iterable[str], lessons: Iterable[str]) -> list[Key]:
        """The records about these runs or lessons."""
        keys = {key for run in runs for key in self._about[run]}
        return sorted(keys.union(*(self._of_lessons[lesson] for lesson in lessons)))

    def runs_with(self, lessons: Iterable[str], notes: Mapping[str, Collection[int]]) -> set[str]:
        """The stored runs whose prompts contain some of these lessons or revisions of notes."""
        runs = {run for lesson in lessons for run in self._runs_with[lesson]}
        for identity, versions in notes.items():
            runs |= {run for run, version in self.runs_with_notes[identity].items() if version in versions}
        return self.ids & runs

    def revisions_of(self, runs: Collection[str]) -> dict[str, list[int]]:
        """The revisions of notes that match or come from these runs, by the identity of their task."""
        revisions: dict[str, list[int]] = {identity: [] for identity in self.tasks}
        for identity, version, run, is_hit in self._notes:
            if is_hit or run in runs or identity in self.tasks:
                revisions.setdefault(identity, []).append(version)
        return revisions

    def images_of(self, runs: Collection[str]) -> list[Key]:
        """The images of these runs that no other record uses."""
        others = {image for run, images in self._images.items() if run not in runs for image in images}
        return sorted((IMAGE, image) for run in runs for image in self._images[run] - others)

    @property
    def orphans(self) -> list[str]:
        """The runs that have a journal but no record."""
        own = {RUN, WORKFLOW, INNER_WORKFLOW}
        kinds = {run: {kind for kind, _ in keys} for run, keys in self._parts.items()}
        return sorted(run for run, stored in kinds.items() if stored & {STEP, VOID} and not stored & own)

    def _depth(self, run: str) -> int:
        depth, seen = 0, {run}
        while (run := self.parents.get(run, "")) and run not in seen:
            seen.add(run)
            depth += 1
        return depth


def _runs_are(runs: Sequence[str]) -> str:
    return f"run {runs[0]} is" if len(runs) == 1 else f"runs {', '.join(runs)} are"


def _identity(record: Record) -> str:
    """The identity of the task that a note, its use or its state belongs to."""
    key = record.key if record.kind == NOTED_TASK else record.key.rpartition("/")[0]
    return unquote(key, errors="surrogatepass")


def _is_hit(record: Record, is_match: TextPredicate) -> bool:
    data = record.data
    if record.kind == NOTED_TASK:  # the note in force is also stored as a revision
        data = {name: value for name, value in data.items() if name != CURRENT}
    return record.kind != IMAGE and (is_match(record.key) or has_text(data, is_match))


async def survey_of(store: Store, is_match: TextPredicate | None = None) -> Survey:
    """Read every record of a store, and search its texts with `is_match`."""
    images = [record.key async for record in _records(store, (IMAGE,))]
    survey = Survey(is_match, images)
    kinds = await store.kinds() if isinstance(store, ManagedStore) else dict.fromkeys(SEARCHED)
    async for record in _records(store, kinds):
        if record.kind != IMAGE:
            survey.add(record)
    return survey
