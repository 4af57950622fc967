"""ProjectData: forget a run, a task or a text in the data of a project, and prune old runs."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft._files import reporting
from redraft._texts import counted
from redraft._validation import check_count, checked_path, only
from redraft.cycles import storage as cycle_storage
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.fleet.queue import STATES, StoreQueue
from redraft.integrations.hook_sessions import Sessions
from redraft.lessons.documents import INDEX, REFLECTIONS, LessonFiles
from redraft.lessons.library import LessonLibrary
from redraft.loop.event_log import erase_events, is_event_log
from redraft.loop.runs import LAST, Runs
from redraft.notes.store import NoteStore
from redraft.retention.survey import LABELLED, NAMES, StoredGroup, Survey, survey_of
from redraft.settings import hooks_folder, load_settings, project_folder
from redraft.stores.base import FencedStore, ManagedStore
from redraft.stores.location import project_place, required_project_store
from redraft.stores.run_index import RunQuery, run_index
from redraft.text.search import TextPattern, has_text
from redraft.workflow.history import Workflows

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable

    from redraft.cycles.storage import AgentLocation
    from redraft.fleet.queue import FleetJob, Queue
    from redraft.retention.survey import Key
    from redraft.stores.base import Store
    from redraft.text.search import TextPredicate

BATCH = 200
"""Records that are deleted concurrently."""
MOST_OVERHEAD = 2.0
"""Highest estimate of the space that a run takes in a database, as a multiple of the bytes of its records."""
MOST_JOBS = 1_000_000
SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".tox"})
"""Folders that are not searched for event logs and copies of a text."""
DATABASES = frozenset({".db", ".db-wal", ".db-shm"})
"""Extensions of the files of a database; a damaged database that a restore renamed has another."""
EXPORTS = {".html": b"Redraft", ".json": b'"run_id"'}
"""What the exports of runs contain, by the extension of the file."""
CHUNK = 50_000_000
"""Bytes of a file that are searched at a time; in larger files, only usual spellings of a text are found."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of `ProjectData.forget`."""

    checked: bool
    """Whether this is a preview, and nothing was erased."""
    counts: Mapping[str, int]
    """The number of erased things by their names: `run`, `journal step`, `lesson`."""
    runs: tuple[str, ...] = ()
    """The ids of the runs."""
    lessons: tuple[str, ...] = ()
    playbooks: tuple[str, ...] = ()
    other_files: tuple[str, ...] = ()
    """Files that contain the text, or are exports of the run, and are not changed."""
    unreadable: tuple[str, ...] = ()
    """Files, folders and records that could not be searched, each with the reason."""
    remarks: tuple[str, ...] = ()
    """What is left to do."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of `ProjectData.prune`."""

    checked: bool
    """Whether this is a preview, and nothing was deleted."""
    runs: tuple[str, ...]
    """The ids of the deleted runs and workflows, oldest first; runs inside them are not listed."""
    bytes: int
    """The size of their records."""
    spared: Mapping[str, int]
    """The number of runs that were old enough but stay, by the reason."""
    size_before: int | None
    """Bytes of the store before; None if unknown."""
    size: int | None
    """Bytes of the store now; an estimate if only `checked`."""
    remarks: tuple[str, ...] = ()
    """What is left to do."""


class ProjectData:
    """The data of a project: its store, the memory of its agents, its lessons, its event logs.

    `store`, `memory` (the folder of lesson files) and `folder` (searched for event logs and copies of a text)
    default to the project in the working folder. Raises `ConfigError` if storage is turned off.
    """

    def __init__(
        self,
        store: Store | None = None,
        memory: str | Path | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self._is_project = store is None
        self._store = required_project_store("runs") if store is None else store
        self._memory = memory
        self._folder = checked_path("folder", folder or project_folder())

    # --- forgetting ----------------------------------------------------------------------------------------

    async def forget(
        self,
        *,
        run: str | None = None,
        task: str | None = None,
        text: str | None = None,
        check: bool = False,
        force: bool = False,
    ) -> Forgotten:
        """Erase a run, all runs of a task, or everything that contains a text.

        `run` is an id, the beginning of an id, or `last`; `task` is a description, its digest, or the name or
        identity of a task with notes. The notes and lessons from these runs are erased, too. The search for
        `text` ignores case, white space and escaping. A run that contains the text is erased as a whole, with
        its journal and all runs inside it, and so is any lesson, playbook, rule, note or other record. In the
        memory of agents in cycles, only the entries that contain the text are erased.

        Erased bytes are overwritten in the files of the store and of the search index. With `check`, nothing
        changes. Repeating an interrupted call completes it. Raises `ConfigError` before any change if a run,
        job or agent is at work; `force` allows runs whose process this machine can't check. A file or record
        that can't be read stays, and is named in the result. Raises `StoreError` if a database can't be read
        or a record can't be erased.
        """
        if sum(argument is not None for argument in (run, task, text)) != 1:
            raise ConfigError("Say what to forget: pass one of run, task and text.")
        if text is not None:
            pattern = TextPattern(text)
            survey = await self._survey(pattern.is_in)
            return await self._erase(survey, pattern, check=check, force=force)
        survey = await (self._of_task(task) if task is not None else self._of_run(run or ""))
        return await self._erase(survey, None, check=check, force=force)

    async def _survey(self, is_match: TextPredicate | None) -> Survey:
        survey = await survey_of(self._store, is_match)
        async with self._jobs() as (queue, jobs):
            for job in jobs:
                survey.ids.add(job.run_id)
                survey.jobs[job.run_id] = job
                if (
                    not isinstance(queue, StoreQueue)
                    and is_match is not None
                    and has_text(job.task, is_match)
                ):
                    survey.selected.add(job.run_id)
        return survey

    async def _of_run(self, reference: str) -> Survey:
        survey = await self._survey(None)
        run = reference
        if reference == LAST:
            last = await Workflows(self._store).last_id()
            if not last:
                raise ConfigError("Nothing is stored here yet.")
            run = survey.outermost(last)
        names = survey.ids.union(survey.parents.values())  # an ensemble has no record of its own
        if run not in names:
            matches = sorted(name for name in names if run and name.startswith(run))
            outermost = [name for name in matches if survey.outermost(name) == name]
            run = only(outermost or matches, reference, "runs", str) or reference
        if (outer := survey.outermost(run)) != run:
            raise ConfigError(f"The run {run!r} ran inside {outer!r}: forget that run.")
        survey.selected.add(run)
        return survey

    async def _of_task(self, reference: str) -> Survey:
        tasks = await NoteStore(self._store).tasks()
        descriptions = {task.description for task in tasks if reference in (task.identity, task.name)}
        for row in await run_index(self._store).find(RunQuery({"task": reference}), limit=1):
            descriptions.add((await Runs(self._store).get(row.run_id)).task.description)
        survey = await self._survey((descriptions or {reference}).__contains__)
        for identity in survey.tasks:
            survey.selected |= survey.runs_with_notes[identity].keys()
        return survey

    async def _erase(
        self, survey: Survey, pattern: TextPattern | None, *, check: bool, force: bool
    ) -> Forgotten:
        family = survey.family()
        survey.check_at_rest(family, force=force)

        unread = _Unread(self._folder)

        def is_lesson(text: str, run: str) -> bool:
            return run in family or (pattern is not None and pattern.is_in(text))

        library = LessonLibrary(self._memory, store=self._store)
        try:
            lessons = await library.erase(is_lesson, on_unreadable=unread.add, check=True)
            related = [*survey.images_of(family), *survey.about(family, lessons.lessons)]
            parts = survey.parts_of(family)
            parts += sorted(survey.hits.difference(parts, related))
            for key in sorted(survey.damaged.keys() - {*related, *parts}):
                unread.add_record(survey.damaged[key])
            notes = survey.revisions_of(family)
            counts = Counter(run=0, workflow=0, note=sum(map(len, notes.values())))  # familiar things first
            counts.update(lesson=len(lessons.lessons), playbook=len(lessons.playbooks), rule=lessons.rules)
            counts.update(NAMES.get(kind, kind) for kind, _ in [*related, *parts])
            counts.update(await self._erase_elsewhere(family, pattern, unread, check=True))
            counts["job"] += await self._erase_jobs(family, check=True)
            remarks: list[str] = []
            if not check:
                # The runs come last: without them, a repeated call could not find the rest.
                await self._erase_elsewhere(family, pattern, unread, check=False)
                await self._delete(related)
                store = NoteStore(self._store)
                for identity, versions in notes.items():
                    await store.erase(identity, None if identity in survey.tasks else versions)
                await library.erase(is_lesson, on_unreadable=unread.add)
                await self._erase_jobs(family, check=False)
                await self._delete(parts)
                remarks = await self._scrub()
        finally:
            await library.aclose()
        if pattern is None:
            copies = await asyncio.to_thread(self._exports, family, unread)
        else:
            copies = await asyncio.to_thread(self._copies, pattern, unread, check=check)
        remarks += _remarks(survey, survey.runs_with(lessons.lessons, notes) - family)
        return Forgotten(
            check,
            dict(+counts),
            tuple(sorted(family & survey.ids)),
            lessons.lessons,
            lessons.playbooks,
            copies,
            unread.names,
            tuple(remarks),
        )

    async def _erase_elsewhere(
        self, family: Collection[str], pattern: TextPattern | None, unread: _Unread, *, check: bool
    ) -> dict[str, int]:
        """Erase in agents' memories, coding sessions and event logs; return the number of things by name."""
        counts = Counter[str]()

        def is_match(text: str) -> bool:
            return text in family or (pattern is not None and pattern.is_in(text))

        def is_event(event: Mapping[str, Any]) -> bool:
            return event.get("run_id") in family or (pattern is not None and has_text(event, pattern.is_in))

        if pattern is not None and self._is_project:
            for location in await self._agents():
                erased = await cycle_storage.erase(
                    location,
                    pattern.is_in,
                    on_damaged=lambda record: unread.add_record(record.damage),
                    check=check,
                )
                counts.update({NAMES.get(kind, kind): count for kind, count in erased.items()})
        if self._is_project:
            with reporting(self._folder):
                sessions = Sessions().erase(is_match, on_unreadable=unread.add, check=check)
            counts["coding session"] += len(sessions)
        for path in _files_in(self._folder, unread):
            if unread.tried(path, is_event_log):
                with reporting(path), suppress(FileNotFoundError):  # deleted just now
                    counts["event"] += erase_events(path, is_event, check=check)
        return counts

    # --- pruning -------------------------------------------------------------------------------------------

    async def prune(
        self,
        *,
        older_than: timedelta | None = None,
        max_bytes: int | None = None,
        labelled: bool = False,
        check: bool = False,
    ) -> Pruned:
        """Delete old runs and workflows with their journals.

        Deletes runs that are older than `older_than`, then the oldest runs until the store takes at most
        `max_bytes`. Runs that are or may be at work, wait for a person, or are due for a reflection stay, and
        so do runs labelled by a person, unless `labelled`. Labels, notes, lessons, their statistics and
        evaluations always stay. With `check`, nothing changes. Raises `ConfigError` without a bound, for a
        negative bound, and for `max_bytes` if the store does not know its size.
        """
        if older_than is None and max_bytes is None:
            raise ConfigError("Say what to prune: pass older_than, max_bytes, or both.")
        if older_than is not None and (
            not isinstance(older_than, timedelta) or older_than < timedelta(0)  # pyright: ignore[reportUnnecessaryIsInstance] (a caller may pass days)
        ):
            raise ConfigError(f"older_than must be a timedelta of at least 0, got {older_than!r}.")
        if max_bytes is not None:
            check_count("max_bytes", max_bytes, 0, most=None)
        if max_bytes is not None and not isinstance(self._store, ManagedStore):
            raise ConfigError(f"{self._store!r} does not know its size: pass older_than only.")
        before = await self._size()
        pruned = await self._prune_once(older_than, max_bytes, labelled=labelled, check=check)
        runs, freed, remarks = pruned.runs, pruned.bytes, list(pruned.remarks)
        # The space of a run in the file is an estimate, so another round may be needed.
        while not check and max_bytes is not None and pruned.runs and (pruned.size or 0) > max_bytes:
            pruned = await self._prune_once(None, max_bytes, labelled=labelled, check=False)
            runs, freed = (*runs, *pruned.runs), freed + pruned.bytes
        if max_bytes is not None and (pruned.size or 0) > max_bytes:
            is_larger = "would still be larger" if check else "is still larger"
            remarks.append(f"The store {is_larger}: the rest is never pruned, or belongs to other projects.")
        return replace(pruned, runs=runs, bytes=freed, size_before=before, remarks=tuple(remarks))

    async def _prune_once(
        self, older_than: timedelta | None, max_bytes: int | None, *, labelled: bool, check: bool
    ) -> Pruned:
        survey = await self._survey(None)
        size = await self._size()
        kinds = await self._store.kinds() if isinstance(self._store, ManagedStore) else {}
        share = (size or 0) / max(1, sum(kind.bytes for kind in kinds.values()))
        share = min(share, MOST_OVERHEAD)  # even an empty database takes some space
        oldest = None if older_than is None else _ago(older_than)
        pruned, spared, freed = list[StoredGroup](), Counter[str](), 0
        for group in survey.groups():
            is_old = oldest is not None and group.began < oldest
            is_too_large = max_bytes is not None and (size or 0) - freed * share > max_bytes
            if not is_old and not is_too_large:
                break  # all others are younger
            reason = survey.reason_to_keep(group)
            if reason and not (labelled and reason == LABELLED):
                spared[reason] += 1
                continue
            pruned.append(group)
            freed += sum(survey.sizes[run] for run in group.runs)
        remarks: list[str] = []
        if pruned and not check:
            family = {run for group in pruned for run in group.runs}
            await self._erase_jobs(family, check=False)
            await self._delete([*survey.images_of(family), *survey.parts_of(family)])
            remarks = await self._scrub()
        after = None if size is None else max(0, round(size - freed * share)) if check else await self._size()
        names = tuple(group.name for group in pruned)
        return Pruned(check, names, freed, dict(spared), size, after, tuple(remarks))

    async def _size(self) -> int | None:
        return await self._store.size() if isinstance(self._store, ManagedStore) else None

    async def _delete(self, keys: Iterable[Key]) -> None:
        """Delete records in order, a batch at a time."""
        ordered = list(keys)
        for start in range(0, len(ordered), BATCH):
            batch = ordered[start : start + BATCH]
            await asyncio.gather(*(self._store.delete(*key) for key in batch))

    async def _scrub(self) -> list[str]:
        """Overwrite the bytes of deleted records, of earlier calls as well; return what is left to do."""
        stores = [self._store]
        if self._is_project:
            stores += [agent.store for agent in await self._agents() if agent.kind != "project"]
        remarks = [await store.scrub() for store in stores if isinstance(store, ManagedStore)]
        return list(dict.fromkeys(filter(None, remarks)))

    async def _agents(self) -> list[AgentLocation]:
        """The storage locations of the agents of the project and of its long-term storage."""
        networks = await cycle_storage.known_networks()
        locations = [place for name in networks for place in await cycle_storage.known_locations(name)]
        return list({id(place.store): place for place in locations if place.is_durable}.values())

    @asynccontextmanager
    async def _jobs(self) -> AsyncGenerator[tuple[Queue | None, list[FleetJob]]]:
        """Yield the queue of the project's fleet, if any, and its jobs."""
        queue = await self._queue()
        try:
            yield queue, [] if queue is None else await queue.find(STATES, limit=MOST_JOBS)
        finally:
            if queue is not None:
                await queue.leave()

    async def _erase_jobs(self, runs: Collection[str], *, check: bool) -> int:
        """Delete the ended jobs of these runs in a queue outside the store; return the number of them."""
        async with self._jobs() as (queue, jobs):
            if queue is None or isinstance(queue, StoreQueue):  # jobs in the store are deleted as records
                return 0
            own = [job.run_id for job in jobs if job.run_id in runs]
            return len(own) if check else sum([await queue.erase(run_id) for run_id in own])

    async def _queue(self) -> Queue | None:
        """The queue of the project's fleet; None if it never had a fleet."""
        place = project_place() if self._is_project else None
        if place is None or isinstance(place.database, Path):
            return StoreQueue(self._store) if isinstance(self._store, FencedStore) else None
        if not load_settings().project:  # without a name, a project on a server can't have a fleet
            return None
        try:
            from redraft.fleet.postgres_queue import ProcrastinateQueue  # noqa: PLC0415 (needs an extra)
        except ImportError:
            return None
        queue = ProcrastinateQueue(place.database, place.space)
        return queue if await queue.is_created() else None

    def _copies(self, pattern: TextPattern, unread: _Unread, *, check: bool) -> tuple[str, ...]:
        """The files of the project with a text; with `check`, without the files that erasing would change."""
        home = self._folder / load_settings().home
        memory = Path(self._memory or project_folder() / load_settings().memory)
        own = {memory / INDEX}
        if (hooks := hooks_folder(self._folder)) is not None:
            own.add(hooks)
        if isinstance(LessonLibrary(self._memory, store=self._store).documents, LessonFiles):
            own.add(memory / REFLECTIONS)

        def is_erased_from(path: Path) -> bool:
            is_database = path.parent == home and path.suffix in DATABASES
            return is_database or not own.isdisjoint(path.parents) or unread.tried(path, is_event_log)

        files = _files_in(self._folder, unread)
        searched = [path for path in files if not check or not is_erased_from(path)]
        names = self._names(searched)
        return tuple(
            name
            for path, name in zip(searched, names, strict=True)
            if pattern.is_in(name) or unread.tried(path, lambda path: _contains(path, pattern))
        )

    def _exports(self, runs: Collection[str], unread: _Unread) -> tuple[str, ...]:
        """The files in which `redraft export` wrote one of these runs."""
        ids = b"|".join(re.escape(run.encode("utf-8", "surrogatepass")) for run in runs)
        of_run = re.compile(rb"(?<![\w-])(?:" + ids + rb")(?![\w-])")

        def is_export(path: Path) -> bool:
            data = path.read_bytes() if path.suffix in EXPORTS else b""
            return EXPORTS.get(path.suffix, b"") in data and of_run.search(data) is not None

        files = _files_in(self._folder, unread) if runs else []
        return self._names([path for path in files if unread.tried(path, is_export)])

    def _names(self, paths: Iterable[Path]) -> tuple[str, ...]:
        return tuple(str(path.relative_to(self._folder)) for path in paths)


def _ago(age: timedelta) -> datetime:
    """The time `age` ago, or the earliest possible time."""
    try:
        return datetime.now(UTC) - age
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _remarks(survey: Survey, later_runs: Collection[str]) -> list[str]:
    remarks: list[str] = []
    if survey.state:
        remarks.append(f"It is also part of a name that stays, in: {', '.join(sorted(survey.state))}.")
    if later_runs:
        remarks.append(
            f"The prompts of {counted(len(later_runs), 'later run')} contain these lessons or notes: "
            "`redraft forget --text TEXT` erases such runs."
        )
    return remarks


class _Unread:
    """The files, folders and records that could not be searched, with the reasons."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, str] = {}
        self._records: dict[str, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names, each with the reason."""
        files = [f"{name}: {reason}" for name, reason in sorted(self._files.items())]
        return (*files, *self._records)

    def add(self, place: Path | str, error: OSError | StoreError) -> None:
        """Add a file or a folder."""
        path = Path(place)
        name = str(path.relative_to(self._folder) if path.is_relative_to(self._folder) else path)
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        reason = str(cause)
        if isinstance(cause, OSError):
            reason = f"{cause.strerror or cause}."
        elif isinstance(cause, LessonFileError):
            reason = reason.removeprefix(f"{cause.file}: ")
        self._files.setdefault(name, reason)

    def add_record(self, damage: str) -> None:
        """Add a damaged record, by its damage."""
        self._records[damage] = None

    def tried(self, path: Path, reads: Callable[[Path], bool]) -> bool:
        """The result of `reads` for a file; False for a file that can't be read, which is added."""
        try:
            return reads(path)
        except FileNotFoundError:  # deleted just now
            return False
        except OSError as error:
            self.add(path, error)
            return False


def _files_in(folder: Path, unread: _Unread) -> list[Path]:
    """The regular files in a folder, except in `SKIPPED` folders."""
    files: list[Path] = []

    def leave(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # deleted just now
            unread.add(Path(error.filename), error)

    for at, folders, names in os.walk(folder, onerror=leave):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            path = Path(at, name)
            try:
                status = path.lstat()
            except OSError:  # deleted just now
                continue
            if stat.S_ISREG(status.st_mode):
                files.append(path)
    return files


def _contains(path: Path, pattern: TextPattern) -> bool:
    overlap = max(map(len, pattern.spellings))
    before = b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            data = before + chunk
            if any(spelling in data for spelling in pattern.spellings):
                return True
            is_text = b"\0" not in data
            if is_text and len(data) < CHUNK and pattern.is_in(data.decode("utf-8", "replace")):
                return True
            before = data[-overlap:]
    return False
