"""Checkup: find problems in the stored data of a project, and say how to solve them."""

from __future__ import annotations

import asyncio
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from redraft._files import TEMPORARY, reporting
from redraft._texts import abridged, counted
from redraft.errors import StoreError
from redraft.lessons.documents import REFLECTIONS, documents_of, unused_files
from redraft.lessons.folder import LessonFolder
from redraft.lessons.playbooks import Playbooks
from redraft.lessons.rules import Rules
from redraft.models.local import PART
from redraft.retention.backup import STAGING
from redraft.retention.survey import survey_of
from redraft.settings import cache_folder, hooks_folder, load_settings, project_folder
from redraft.stores.base import ManagedStore
from redraft.stores.location import project_place, project_store, required_project_store
from redraft.stores.sqlite import schema_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redraft.stores.base import Store
    from redraft.stores.location import Place

LARGEST = 100_000_000
"""Bytes of the largest store whose records are all read by default."""
MOST_NAMED = 3
ABANDONED = 3_600
"""Seconds after which a temporary file is a leftover: files are written in one go."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class DataFinding:
    """The result of a check."""

    name: str
    is_fine: bool
    says: str
    """The state of the data, or the problem and how to solve it."""


async def check_data(*, whole: bool = False) -> list[DataFinding]:
    """Check the store and the lessons of the project in the working folder; changes nothing.

    The records of a store of more than 100 MB are read only with `whole`. Raises `StoreError` if the store
    can't be read.
    """
    place, findings = project_place(), list[DataFinding]()
    if place is not None:
        is_current = _schema(place, findings)
        if is_current:
            await _check_store(required_project_store("runs"), findings, whole=whole)
        _check_permissions(place, findings)
    await asyncio.to_thread(_check_lessons, findings)
    _check_leftovers(findings)
    return findings


def _schema(place: Place, findings: list[DataFinding]) -> bool:
    """Check the version of a database file; return whether its records can be read without a migration."""
    if not isinstance(place.database, Path):
        return True
    with reporting(place.database):
        exists = place.database.exists()
    if not exists:
        return False
    version, newest = schema_version(place.database)
    says = f"version {version}, the newest: an upgrade of redraft left nothing to do"
    if version < newest:
        says = (
            f"version {version} of {newest}: back up with `redraft backup FILE`; the next command that uses "
            "it migrates it"
        )
    findings.append(DataFinding("schema", is_fine=version == newest, says=says))
    return version == newest


async def _check_store(store: Store, findings: list[DataFinding], *, whole: bool) -> None:
    if not isinstance(store, ManagedStore):
        raise TypeError(f"{store!r} is not the store of a project.")
    if (size := await store.size()) > LARGEST and not whole:
        says = f"not read, since they take {size / 1e6:,.0f} MB: `redraft doctor --data` reads all of them"
        findings.append(DataFinding("records", is_fine=True, says=says))
        return
    problems = await store.problems()
    says = " ".join(problems) + " Restore a backup (redraft restore FILE --force)." if problems else "whole"
    findings.append(DataFinding("database", is_fine=not problems, says=says))
    if problems:
        return
    survey = await survey_of(store)
    records = sum(kind.records for kind in (await store.kinds()).values())
    says = f"{counted(records, 'record')} of {counted(len(survey.ids), 'run')} can be read"
    if survey.damaged:
        names = _some(f"{kind} {key}" for kind, key in survey.damaged)
        says = (
            f"{counted(len(survey.damaged), 'record')} damaged: {names}. Restore a backup, or delete them "
            "with `store.delete(kind, key)`."
        )
    findings.append(DataFinding("records", is_fine=not survey.damaged, says=says))
    if orphans := survey.orphans:
        says = f"of {counted(len(orphans), 'run')} without a record: delete them with redraft forget --run "
        findings.append(DataFinding("journals", is_fine=False, says=says + _some(orphans)))


def _check_permissions(place: Place, findings: list[DataFinding]) -> None:
    """Find files of the store that other users can access."""
    files = [place.database] if isinstance(place.database, Path) else []
    hooks = hooks_folder(project_folder())
    files += sorted(hooks.glob("*")) if hooks is not None and hooks.is_dir() else []
    exposed = [
        str(path)
        for path in files
        if path.exists() and path.stat().st_mode & OTHERS and path.parent.stat().st_mode & OTHERS
    ]
    if exposed:
        says = f"others can access {_some(exposed)}: chmod go= {_some(exposed)}"
        findings.append(DataFinding("permissions", is_fine=False, says=says))
    elif any(path.exists() for path in files):
        findings.append(
            DataFinding("permissions", is_fine=True, says="only their owner can read these files")
        )


def _check_lessons(findings: list[DataFinding]) -> None:
    """Find unreadable lessons, rules and playbooks, and unused files."""
    documents = documents_of(None, project_store())
    count, broken, agents = 0, list[str](), list[str]()
    try:
        agents = list(documents.agents())
    except StoreError as error:
        broken.append(str(error))
    for agent in agents:
        folder = LessonFolder(documents, agent)
        try:
            for entry, _, lesson in folder.read_all(folder.entries()):
                count += 1
                if isinstance(lesson, StoreError):
                    broken.append(f"{entry.id}: {lesson}")
        except StoreError as error:
            broken.append(str(error))
            continue
        for part in (Rules(documents, agent), Playbooks(documents, agent)):
            try:
                broken += map(str, part.broken())
            except StoreError as error:
                broken.append(str(error))
    if broken:
        says = f"{counted(len(broken), 'problem')}: {_some(broken)} What can't be read is not used."
        findings.append(DataFinding("lessons", is_fine=False, says=says))
    elif count:
        findings.append(DataFinding("lessons", is_fine=True, says=f"{counted(count, 'lesson')} can be read"))
    if says := unused_files(documents):
        findings.append(DataFinding("lesson files", is_fine=False, says=says))


def _check_leftovers(findings: list[DataFinding]) -> None:
    """Find leftovers of killed processes, in the project and in the user's cache folder."""
    copies = sorted(path.name for path in project_folder().glob(f"{STAGING}*") if path.is_dir())
    if copies:
        says = (
            f"A backup or a restore was interrupted: delete {_some(copies)}, which holds a copy of the data."
        )
        findings.append(DataFinding("leftovers", is_fine=False, says=says))
    sizes = {str(path): _size_if_abandoned(path) for path in _half_written()}
    abandoned = {path: size for path, size in sizes.items() if size is not None}
    if abandoned:
        megabytes = sum(abandoned.values()) / 1e6
        says = f"Writing was interrupted: delete {_some(abandoned)} ({megabytes:,.1f} MB)."
        findings.append(DataFinding("half-written files", is_fine=False, says=says))


def _half_written() -> Iterator[Path]:
    """Yield temporary files, which are renamed once they are complete."""
    project, settings = project_folder(), load_settings()
    yield from project.glob(TEMPORARY)
    yield from (project / settings.memory / REFLECTIONS).rglob(TEMPORARY)
    if (hooks := hooks_folder(project)) is not None:
        yield from hooks.glob("*.[0-9]*")
    with suppress(RuntimeError):  # a user without a home folder has no cache
        yield from cache_folder().glob(f"*{PART}")
        yield from (cache_folder() / "prolog").glob(".*")


def _size_if_abandoned(path: Path) -> int | None:
    """The size of a file that has not been written to for an hour; None for any other."""
    try:
        status = path.stat()
    except OSError:  # renamed just now, or another user's
        return None
    return status.st_size if time.time() - status.st_mtime > ABANDONED else None


def _some(names: Iterable[str]) -> str:
    return abridged(list(names), MOST_NAMED)
