"""LessonSharing: the lesson files of several machines, kept equal through the store of their project."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import uuid4

from redraft._locks import make_folder
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.files import (
    ENDING,
    add_file,
    create_file,
    locked,
    read_text,
    replace_file,
    reporting,
)
from redraft.lessons.folder import (
    ARCHIVE,
    REFLECTIONS,
    REJECTED,
    RULES,
    agents_in,
    folder_name,
)
from redraft.lessons.markdown import parse
from redraft.lessons.playbooks import PLAYBOOKS, parse_playbook
from redraft.lessons.safety import lesson_redactor
from redraft.lessons.shared_log import (
    SharedLog,
    Version,
    deleted_file_of,
    digest_of,
    is_rules,
    is_safe,
    key_of,
    log_of,
    version_of,
)
from redraft.redact.log import logger
from redraft.settings import load_settings, project_folder
from redraft.stores.location import project_place, project_store
from redraft.text.characters import visible

# A machine remembers in `reflections/.shared/state.json` what it has seen of the log and of its own files. It
# compares three things: what it saw last, what the files say now, and what the log says now. Losing that
# memory is safe: nothing is deleted then, and what differs for an unknown reason is kept in both versions.

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from redraft.lessons.lesson import Lesson
    from redraft.redact.redactor import Redactor
    from redraft.stores.base import Record, Store

POLL = 1.0
"""Seconds between two looks at the log and the files; a change takes at most one look here and one there."""
BEHIND = 10.0
"""Seconds between two looks while a version can't be written here: each look reads all versions since."""
SETTLED = 0.25
"""Seconds for which a file must be unchanged: an editor may still be writing it."""
MISSING_FOR = 0.5
"""Seconds for which a file must be missing: an editor may be replacing it."""
FEW = 5
"""Files of a folder that may be deleted at once even if they are most of its files."""

_FOLDER, _STATE = ".shared", "state.json"
_ATTEMPTS = 20
_YEAR = re.compile(r"[0-9]{4}")
_CONFLICT = "-conflict"
_IS_CONFLICT = re.compile(rf"{_CONFLICT}(-[0-9]+)?{re.escape(ENDING)}$")
_LONGEST_COPIED_STEM = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """What this machine saw last of a file: the number and digest of its version, and its own file.

    `mine` differs from `shared` if secrets were withheld. Of rules, the `text` is kept, to merge changes.
    """

    number: int
    shared: str
    mine: str
    place: str = ""
    changed_ns: int = -1
    size: int = -1
    text: str = ""

    @classmethod
    def of(cls, version: Version) -> Seen:
        """Return what is seen of a file that says what a version says."""
        text = (version.text or "") if is_rules(version.name) else ""
        return cls(version.number, version.digest, version.digest, version.place, text=text)

    def is_of(self, file: Found) -> bool:
        """Return whether a file looks as it did, by its place, its time and its size."""
        return (self.place, self.changed_ns, self.size) == (file.place, file.changed_ns, file.size)


class Found(NamedTuple):
    """A file on this machine; `place` is the year of the archive that it is in."""

    file: str
    place: str
    changed_ns: int
    size: int

    @property
    def path(self) -> Path:
        """The file; built on request, since few are opened."""
        return Path(self.file)


@dataclass(slots=True)
class State:
    """What this machine has seen: the log up to a number, and its files by name.

    `log` identifies the log, and `cursor_at` the record at the cursor, by which another database is noticed.
    """

    log: str = ""
    cursor: int = 0
    cursor_at: str = ""
    generation: int = 0
    files: dict[str, Seen] = field(default_factory=dict[str, Seen])


@dataclass(frozen=True, slots=True)
class Synced:
    """What a comparison did: files written and removed here, and versions sent, deletions among them.

    `conflicts` are the names of the copies that were kept. `withheld` says by name why a file is not shared.
    `is_waiting` is set if a file was changed, or is missing, for so short a time that the next look decides,
    and `is_behind` if a version could not be written here.
    """

    received: int = 0
    sent: int = 0
    deleted: int = 0
    conflicts: tuple[str, ...] = ()
    withheld: Mapping[str, str] = field(default_factory=dict[str, str])
    is_waiting: bool = False
    is_behind: bool = False

    def followed_by(self, other: Synced) -> Synced:
        """Return what this and a later comparison did together."""
        return Synced(
            self.received + other.received,
            self.sent + other.sent,
            self.deleted + other.deleted,
            (*self.conflicts, *other.conflicts),
            other.withheld,
            other.is_waiting,
            other.is_behind,
        )


@dataclass(slots=True)
class _Round:
    """One comparison under way, from reading the log to having sent what changed here."""

    state: State
    before: str
    versions: dict[str, Version]
    head: int
    head_at: str
    settle: bool
    received: int = 0
    sent: int = 0
    deleted: int = 0
    conflicts: list[str] = field(default_factory=list[str])
    withheld: dict[str, str] = field(default_factory=dict[str, str])
    deferred: set[str] = field(default_factory=set[str])
    changes: list[tuple[Version, Seen]] = field(default_factory=list["tuple[Version, Seen]"])
    is_waiting: bool = False
    starts_over: bool = False

    @property
    def done(self) -> Synced:
        """What it has done so far."""
        return Synced(
            self.received,
            self.sent,
            self.deleted,
            tuple(self.conflicts),
            self.withheld,
            self.is_waiting,
            bool(self.deferred) and not self.is_waiting,
        )


class LessonSharing:
    """Keep the lesson files under `path`, the folder of all agents (`memory`), equal to those in a store.

        sharing = LessonSharing("memory", store)
        await sharing.sync()      # once
        await sharing.watch()     # for ever, each second

    Lessons, playbooks and `rules.md` are shared, those in the archive included. What is sent is redacted. A
    file that isn't a valid lesson, whose name holds a secret, or that is a link stays on this machine, and a
    warning says so once.

    A file changed on one machine is written on the others, atomically. If it was changed on two, the rules of
    both are merged; of a lesson of which only the front matter differs, what a person vouches for wins, then
    what retires it; of anything else the version of this machine is kept as `<name>-conflict.md`, which is
    shared, too. A file that was deleted here is deleted elsewhere if it was not changed there, provided that
    the folder is otherwise there: not all of its files are missing, and of more than five at most half.
    Otherwise they are written again.

    Several processes may share one folder. Raises `StoreError` if the store is away; a folder that can't be
    read is left out, with a warning.
    """

    def __init__(self, path: str | Path, store: Store, *, machine: str = "") -> None:
        self.path = Path(path).absolute()
        self._reflections = self.path / REFLECTIONS
        self._log = SharedLog(store)
        self._machine = machine or socket.gethostname()
        self._loaded: tuple[tuple[int, int, int], str] = ((0, 0, 0), "")
        self._missing: dict[str, float] = {}
        self._warned: dict[str, str] = {}
        self._is_away = False

    async def watch(self) -> None:
        """Compare each second, until cancelled; while the store is away, a single warning is logged."""
        while True:
            done = await self.try_sync()
            await asyncio.sleep(BEHIND if done is not None and done.is_behind else POLL)

    async def try_sync(self, *, settle: bool = True) -> Synced | None:
        """Compare once; None if the store or the folder is away, which is logged once."""
        try:
            synced = await self.sync(settle=settle)
        except StoreError as error:
            if not self._is_away:
                logger.warning("Lessons are not shared between machines for now: %s", error)
            self._is_away = True
            return None
        if self._is_away:
            self._is_away = False
            logger.warning("Lessons are shared between machines again.")
        return synced

    async def sync(self, *, settle: bool = True, delete_missing: bool = False) -> Synced:
        """Compare once: write here what others changed, and send what was changed here.

        Without `settle`, files that were changed just now are sent, too. With `delete_missing`, whatever is
        missing here is deleted everywhere, however much that is, unless it was changed elsewhere.
        """
        total = Synced()
        for _ in range(_ATTEMPTS):
            one = await self._begin(settle=settle)
            await asyncio.to_thread(self._compare, one, delete_missing=delete_missing)
            is_done = not one.starts_over and await self._send_all(one)
            await asyncio.to_thread(self._save, one)
            total = total.followed_by(one.done)
            if is_done:
                break
        else:  # others send all the time: the next look goes on
            total = replace(total, is_waiting=True)
        if total.received or total.sent:
            logger.info("Lessons shared: %d received, %d sent.", total.received, total.sent)
        return total

    # --- the log -------------------------------------------------------------------------------------------

    async def _begin(self, *, settle: bool) -> _Round:
        """Read what is new in the log; forget what was seen of another log."""
        text = await asyncio.to_thread(self._load)
        state = _state_of(text)
        records = await self._log.since(state.cursor)
        if state.cursor and _is_other_log(state, records):
            logger.warning(
                "The store holds different lessons than before; they are compared with the files again."
            )
            state = State(generation=state.generation)
            records = await self._log.since(0)
        versions: dict[str, Version] = {}
        known: dict[str, str] = {}
        for record in records:
            number = int(record.key)
            state.log = state.log or log_of(record)
            if (deleted := deleted_file_of(record)) and deleted not in known:
                known |= {digest_of(name): name for name in await asyncio.to_thread(self._known_names, state)}
                known |= {digest_of(name): name for name in versions}
            version = version_of(record, known)
            if version is None and deleted:
                continue  # a file that was never here
            if version is None:
                self._warn_once(
                    f"version {number}", "This version of a shared file is invalid and is left out."
                )
                continue
            if (older := versions.get(version.name)) is not None:  # its writer died before it was deleted
                await self._log.delete(older.number)
            versions[version.name] = version
        last = records[-1] if records else None
        head, head_at = (int(last.key), str(last.created_at)) if last is not None else (0, "")
        new = {
            name: one
            for name, one in versions.items()
            if one.number > state.cursor
            and (name not in state.files or state.files[name].number < one.number)
        }
        return _Round(state, text, new, head, head_at, settle)

    async def _send_all(self, one: _Round) -> bool:
        """Append what changed here to the log; False if another machine was quicker."""
        for version, seen in one.changes:
            before = one.state.files.get(version.name)
            replaces, digest = (before.number, before.shared) if before is not None else (0, "")
            one.state.log = one.state.log or uuid4().hex
            sent = replace(version, number=one.head + 1)
            stored = await self._log.append(sent, one.state.log, replaces=replaces, digest=digest)
            if stored is None:
                return False
            one.head, one.head_at = sent.number, str(stored.created_at)
            one.sent += 1
            if sent.text is None:
                one.deleted += 1
                one.state.files.pop(sent.name, None)
            else:
                one.state.files[sent.name] = replace(seen, number=sent.number)
        return True

    # --- comparing -----------------------------------------------------------------------------------------

    def _compare(self, one: _Round, *, delete_missing: bool) -> None:
        """Write what others changed, and find what was changed here."""
        missing: dict[str, float] = {}
        for agent in self._agents(one):
            new = [version for version in one.versions.values() if version.agent == agent]
            try:
                if new:
                    self._receive_all(one, agent, new)
                found = self._files_of(agent)
                self._find_changes(one, found)
                missing |= self._find_missing(one, agent, found, delete_missing=delete_missing)
            except StoreError as error:
                self._withhold(one, agent, f"The folder is left out for now: {error}")
                one.deferred |= {version.name for version in new}
        self._missing = missing
        if one.starts_over:
            one.state.cursor, one.state.cursor_at = 0, ""
            return
        one.changes.sort(key=lambda change: _order(change[0].name))

    def _known_names(self, state: State) -> set[str]:
        """Return the names of all files that are here or were here."""
        names = set(state.files)
        for agent in agents_in(self.path):
            with suppress(StoreError):  # it is left out for now, with a warning
                names.update(self._files_of(agent))
        return names

    def _agents(self, one: _Round) -> list[str]:
        """Return the agents' folders to compare: those that are here, were here, or are in the log."""
        names = {*agents_in(self.path), *(name.partition("/")[0] for name in one.state.files)}
        names |= {version.agent for version in one.versions.values()}
        return sorted(name for name in names if folder_name(name) == name)

    def _receive_all(self, one: _Round, agent: str, versions: Collection[Version]) -> None:
        folder = self._reflections / agent
        self._path_of(f"{agent}/{RULES}", "")  # raises if the folder is a link
        if all(version.text is None for version in versions) and not folder.exists():
            for version in versions:
                one.state.files.pop(version.name, None)
            return
        with locked(folder):
            found = self._files_of(agent)
            for version in sorted(versions, key=lambda version: version.number):
                try:
                    self._receive(one, version, found)
                except (StoreError, OSError) as error:
                    one.deferred.add(version.name)
                    self._withhold(one, version.name, f"The version of {version.machine} waits: {error}")

    def _receive(self, one: _Round, version: Version, found: dict[str, Found]) -> None:
        """Write, remove or keep a file of which another machine has sent a version."""
        name, seen, file = version.name, one.state.files.get(version.name), found.get(version.name)
        if file is not None and one.settle and _is_young(file):
            one.deferred.add(name)
            one.is_waiting = True
            return
        mine = None if file is None else read_text(file.path, name, of="a lesson")
        step = step_of(version, seen, mine, self._redacted)
        if step == "conflict" and file is not None and mine is not None:
            if (kept := self._resolved(one, version, seen, mine, found)) is not None:
                # The file stays as this machine has it, and is sent: it builds on the other version.
                if kept != mine:
                    _check_untouched(file)
                    replace_file(file.path, kept.encode())
                one.state.files[name] = Seen.of(version)
                return
            step = "write"
        if step in ("remove", "forget", "offer"):
            if step == "remove" and file is not None:
                _check_untouched(file)
                with reporting(file.path):
                    file.path.unlink(missing_ok=True)
                one.received += 1
                logger.info("%s was deleted on %s, and here.", name, version.machine)
            elif step == "offer":
                logger.warning(
                    "%s was deleted on %s, but changed here: it is kept on all machines.",
                    name,
                    version.machine,
                )
            one.state.files.pop(name, None)
            return
        # A file that was moved here keeps its place, and that is sent.
        is_moved_here = file is not None and seen is not None and file.place != seen.place
        place = file.place if is_moved_here and file is not None else version.place
        path = self._path_of(name, place)
        if step == "write":
            self._write(path, version.text or "", file)
            one.received += 1
        elif file is not None and file.path != path and not path.exists():
            self._make_folder(path.parent)
            with reporting(path):
                file.path.rename(path)
            one.received += 1
        if step == "write" and file is not None and file.path != path:
            with reporting(file.path):
                file.path.unlink(missing_ok=True)
        now = Seen.of(version)
        if step == "move" and seen is not None:
            now = replace(now, mine=seen.mine)
        elif step == "keep":
            now = replace(now, mine=digest_of(mine or ""))
        one.state.files[name] = now

    def _resolved(
        self, one: _Round, version: Version, seen: Seen | None, mine: str, found: Mapping[str, Found]
    ) -> str | None:
        """Return the text in which both changes of a file are, or None if the other version takes its place.

        In that case, a copy of this machine's version is kept, unless only its front matter lost.
        """
        theirs = version.text or ""
        if is_rules(version.name):
            logger.info(
                "The rules of %s were changed here and on %s: merged.", version.agent, version.machine
            )
            return merged_rules("" if seen is None else seen.text, mine, theirs)
        ours, other = _lesson_of(version.name, mine), _lesson_of(version.name, theirs)
        if ours is not None and other is not None and _differ_in_front_only(ours, other):
            winner = max(other, ours, key=_standing)
            logger.warning(
                "%s was changed here (%s) and on %s (%s): it is %s.",
                version.name,
                _said(ours),
                version.machine,
                _said(other),
                _said(winner),
            )
            return mine if winner is ours else None
        copy = self._keep_copy(version.name, mine, found)
        one.conflicts.append(copy)
        logger.warning(
            "%s was changed here and on %s: the version of this machine is kept as %s.",
            version.name,
            version.machine,
            copy,
        )
        return None

    def _keep_copy(self, name: str, text: str, found: Mapping[str, Found]) -> str:
        """Write a copy of a file beside it, unless there is one, and return its name."""
        folder, _, file = name.rpartition("/")
        stem = file.removesuffix(ENDING).encode()[:_LONGEST_COPIED_STEM].decode(errors="ignore") + _CONFLICT
        for other, it in found.items():
            if other.startswith(f"{folder}/{stem}"):
                with suppress(StoreError):
                    if read_text(it.path, other, of="a lesson") == text:
                        return other
        path = self._path_of(f"{folder}/{stem}{ENDING}", "").parent
        with reporting(path):
            new = add_file(path, stem, text.encode(), is_taken=lambda one: f"{folder}/{one}{ENDING}" in found)
        return f"{folder}/{new}{ENDING}"

    def _find_changes(self, one: _Round, found: Mapping[str, Found]) -> None:
        """Find the files that are new or were changed here."""
        for name, file in found.items():
            seen = one.state.files.get(name)
            if name in one.deferred or (seen is not None and seen.is_of(file)):
                continue
            if one.settle and _is_young(file):
                one.is_waiting = True
                continue
            try:
                text = read_text(file.path, name, of="a lesson")
            except (LessonFileError, StoreError) as error:
                self._withhold(one, name, str(error).removeprefix(f"{name}: "))
                continue
            now = Seen(0, "", digest_of(text), file.place, file.changed_ns, file.size)
            if seen is not None and seen.mine == now.mine and seen.place == now.place:
                one.state.files[name] = replace(seen, changed_ns=now.changed_ns, size=now.size)
                continue
            if problem := self._problem(name, text):
                self._withhold(one, name, problem)
                continue
            shared = self._redacted(text)
            digest = digest_of(shared)
            now = replace(now, shared=digest, text=shared if is_rules(name) else "")
            if seen is not None and seen.shared == digest and seen.place == now.place:
                one.state.files[name] = replace(now, number=seen.number)
                continue
            version = Version(
                name, shared, file.place, machine=self._machine, conflict=_is_open_conflict(name, shared)
            )
            one.changes.append((version, now))

    def _find_missing(
        self, one: _Round, agent: str, found: Mapping[str, Found], *, delete_missing: bool
    ) -> dict[str, float]:
        """Find the files that were deleted here; return since when each is missing.

        If too many are, they are written again.
        """
        groups: dict[tuple[bool, bool], list[str]] = {}
        for name, seen in one.state.files.items():
            if name.partition("/")[0] == agent and name not in one.deferred:
                groups.setdefault((name.count("/") > 1, bool(seen.place)), []).append(name)
        since: dict[str, float] = {}
        now = time.monotonic()
        for names in groups.values():
            missing = [name for name in names if name not in found]
            since |= {name: self._missing.get(name, now) for name in missing}
            if not delete_missing and any(now - since[name] < MISSING_FOR for name in missing):
                one.is_waiting = True
                continue
            is_all = len(missing) == len(names)
            if missing and not delete_missing and (is_all or len(missing) > max(FEW, len(names) / 2)):
                logger.warning(
                    "%d of %d files of %s in %s are missing. They are written again, as so many are seldom "
                    "deleted on purpose. If they were: stop the worker of this machine, delete them, and run "
                    "`redraft lessons sync --delete-missing`.",
                    len(missing),
                    len(names),
                    agent,
                    self._reflections,
                )
                for name in missing:
                    del one.state.files[name]
                one.starts_over = True
                continue
            for name in missing:
                one.changes.append((Version(name, None, machine=self._machine), one.state.files[name]))
        return since

    def _problem(self, name: str, text: str) -> str:
        """Return why a file is not shared; empty if it is."""
        if not is_safe(name, ""):
            return "It is not shared: its name has characters that other machines can't have."
        stem = name.rpartition("/")[2].removesuffix(ENDING)
        if self._redacted(stem) != stem:
            return "It is not shared: its name holds a secret. Rename it."
        try:
            _check(name, text)
        except (LessonFileError, ConfigError) as error:
            return f"It is not shared until it is fixed: {error}"
        return ""

    def _withhold(self, one: _Round, name: str, why: str) -> None:
        one.withheld[name] = why
        self._warn_once(name, why)

    def _warn_once(self, name: str, why: str) -> None:
        if self._warned.get(name) != why:
            self._warned[name] = why
            logger.warning("%s: %s", visible(self._redacted(name)), why)

    # --- the files -----------------------------------------------------------------------------------------

    def _files_of(self, agent: str) -> dict[str, Found]:
        """Return the files of an agent by name; of two with one name, that outside the archive.

        Raises `StoreError` if a folder can't be read, so that its files don't count as deleted.
        """
        found: dict[str, Found] = {}
        own = f"{self._reflections}/{agent}"
        for prefix, folder in (("", own), (f"{PLAYBOOKS}/", f"{own}/{PLAYBOOKS}")):
            archive = f"{folder}/{ARCHIVE}"
            years = [one.name for one in _entries_of(archive) if _YEAR.fullmatch(one.name)]
            for place, where in (("", folder), *((year, f"{archive}/{year}") for year in sorted(years))):
                for one in _entries_of(where):
                    if not one.name.endswith(ENDING) or (one.name == RULES and place):
                        continue
                    with reporting(one.path), suppress(FileNotFoundError):  # it was moved just now
                        it = one.stat(follow_symlinks=False)
                        file = Found(one.path, place, it.st_mtime_ns, it.st_size)
                        found.setdefault(f"{agent}/{prefix}{one.name}", file)
        return found

    def _path_of(self, name: str, place: str) -> Path:
        """Return the file of a name, whose folder is no link; `name` and `place` were checked."""
        *folders, file = name.split("/")
        path = self._reflections
        for part in (*folders, *((ARCHIVE, place) if place else ())):
            path /= part
            if path.is_symlink():
                raise StoreError(f"{path}: this is a link, and links are not followed.")
        return path / file

    def _write(self, path: Path, text: str, there: Found | None) -> None:
        """Write a file, or replace the one that is there, unless a person has just changed it."""
        self._make_folder(path.parent)
        if there is not None:
            _check_untouched(there)
        try:
            with reporting(path):
                if there is None:
                    create_file(path, text.encode())
                else:
                    replace_file(path, text.encode())
        except FileExistsError as error:
            raise StoreError(f"{path}: it has just been written.") from error

    def _make_folder(self, folder: Path) -> None:
        with reporting(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def _redacted(self, text: str) -> str:
        return self._redactor.redact(text).text

    @cached_property
    def _redactor(self) -> Redactor:
        return lesson_redactor()

    # --- what was seen -------------------------------------------------------------------------------------

    def _load(self) -> str:
        """Return the text of the state; empty if there is none."""
        path = self._reflections / _FOLDER / _STATE
        try:
            found = path.stat()
            stamp = found.st_ino, found.st_mtime_ns, found.st_size
            if self._loaded[0] != stamp:
                self._loaded = stamp, path.read_text("utf-8")
        except FileNotFoundError:
            self._loaded = (0, 0, 0), ""
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"{path}: {error}.") from error
        return self._loaded[1]

    def _save(self, one: _Round) -> None:
        """Write the state, unless another process has done so meanwhile: then the next look compares anew."""
        state = one.state
        if not one.deferred and not one.starts_over:
            state.cursor, state.cursor_at = one.head, one.head_at
        if state == _state_of(one.before) or (not one.before and not state.cursor):
            return
        folder = self._reflections / _FOLDER
        with reporting(folder):
            make_folder(folder)
            with locked(folder):
                if self._load() == one.before:
                    state.generation += 1
                    replace_file(folder / _STATE, _text_of(state).encode())


# --- decisions ----------------------------------------------------------------------------------------------

Step = Literal["write", "keep", "move", "remove", "forget", "offer", "conflict"]


def step_of(version: Version, seen: Seen | None, mine: str | None, redacted: Callable[[str], str]) -> Step:
    """Say what to do with this machine's file, whose text is `mine` or None, when a version arrives.

    `write` the version; `keep` the file, which is the same; `move` it, since only its place has changed;
    `remove` it, or `forget` it, as it is gone here, too; `offer` a file that was deleted elsewhere but
    changed here to all machines anew. In a `conflict`, both have changed.
    """
    if mine is None:  # a file that was deleted here but changed elsewhere comes back
        return "forget" if version.text is None else "write"
    digest = digest_of(mine)
    is_unchanged = digest == seen.mine if seen is not None else digest in version.earlier
    if version.text is None:
        return "remove" if is_unchanged else "offer"
    if digest == version.digest:
        return "keep"
    if seen is not None and version.digest == seen.shared:
        return "move"
    if is_unchanged:
        return "write"
    return "keep" if digest_of(redacted(mine)) == version.digest else "conflict"


def merged_rules(before: str, mine: str, theirs: str) -> str:
    """Merge two versions of a file of rules: what either one added is added, what one removed is removed.

    Lines count by the heading that they are under. Added ones come last there, those of `theirs` first.
    """
    old, here, there = map(_lines_by_heading, (before, mine, theirs))
    for heading, lines in old.items():
        removed = {line for line in lines if line.strip()} - set(here.get(heading, ()))
        if heading in there:
            there[heading] = [line for line in there[heading] if line not in removed]
    for heading, lines in here.items():
        known = {*old.get(heading, ()), *there.get(heading, ())}
        added = [line for line in lines if line.strip() and line not in known]
        if heading not in there and added:
            there[heading] = ["", *([] if added[0] == lines[0] else lines[:1]), *added]
            continue
        target = there.get(heading, [])
        end = len(target)
        while end and not target[end - 1].strip():
            end -= 1
        is_list = end and target[end - 1].startswith(("-", "*", " "))
        target[end:end] = added if is_list or not added else ["", *added]
    return "\n".join(line for lines in there.values() for line in lines).rstrip("\n") + "\n"


def _lines_by_heading(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"": []}
    heading = ""
    for line in text.rstrip("\n").split("\n") if text.strip() else ():
        if line.startswith("#"):
            heading = line.strip().casefold()
        found.setdefault(heading, []).append(line)
    return found


def _differ_in_front_only(one: Lesson, other: Lesson) -> bool:
    return (one.content, one.summary, one.day) == (other.content, other.summary, other.day)


def _standing(lesson: Lesson) -> tuple[bool, bool, bool]:
    """Return a sort key: a person's word counts most, then that a lesson is not used any more."""
    return lesson.trust == "vouched", lesson.status in REJECTED, lesson.status == "active"


def _said(lesson: Lesson) -> str:
    return f"{lesson.status}: {lesson.why}" if lesson.why else lesson.status


# --- names and texts ----------------------------------------------------------------------------------------


def _check(name: str, text: str) -> None:
    """Raise `LessonFileError` for a text that is not what a file of this name should contain."""
    agent = name.partition("/")[0]
    if name.count("/") > 1:
        parse_playbook(text, name.removesuffix(ENDING), agent)
    elif not is_rules(name):
        parse(text, name.removesuffix(ENDING), agent, datetime.now(UTC).date())


def _lesson_of(name: str, text: str) -> Lesson | None:
    if name.count("/") > 1 or is_rules(name):
        return None
    with suppress(LessonFileError):
        return parse(text, name.removesuffix(ENDING), name.partition("/")[0], datetime.now(UTC).date())
    return None


def _is_open_conflict(name: str, text: str) -> bool:
    if not _IS_CONFLICT.search(name):
        return False
    lesson = _lesson_of(name, text)
    return lesson is None or lesson.status not in REJECTED


def _order(name: str) -> tuple[int, str]:
    """Return a sort key: lessons come before the playbooks and rules that name them."""
    return (2 if is_rules(name) else name.count("/") - 1), name


def _entries_of(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder that is no link, but for what is hidden; nothing if it is not there.

    Raises `StoreError` if it can't be read.
    """
    if os.path.islink(folder):  # noqa: PTH114 (asked of each folder each second)
        return []
    with reporting(folder), suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return [one for one in entries if not one.name.startswith(".")]
    return []


def _check_untouched(file: Found) -> None:
    """Raise `StoreError` if a person has changed a file since it was looked at."""
    with reporting(file.path):
        now = os.lstat(file.path)
    if (now.st_mtime_ns, now.st_size) != (file.changed_ns, file.size):
        raise StoreError(f"{file.path}: it has just been changed.")


def _is_young(file: Found) -> bool:
    return 0 <= time.time_ns() - file.changed_ns < SETTLED * 1e9


# --- the state ----------------------------------------------------------------------------------------------


def _is_other_log(state: State, records: Collection[Record]) -> bool:
    """Return whether the records from the cursor on are not of the log that was seen."""
    first = next(iter(records), None)
    if first is None:
        return True  # the last version of a log is never deleted
    if first.key == key_of(state.cursor) and str(first.created_at) != state.cursor_at:
        return True
    return bool(state.log) and log_of(first) not in ("", state.log)


def _state_of(text: str) -> State:
    """Return a state from its text; an empty one if that is damaged, as nothing is lost with it."""
    try:
        data = json.loads(text)
        files = {name: Seen(**seen) for name, seen in data.pop("files").items()}
        return State(**data, files=files)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        if text:
            logger.warning("The record of shared lessons can't be read; they are compared again: %s", error)
        return State()


def _text_of(state: State) -> str:
    return json.dumps(asdict(state), ensure_ascii=False, indent=0)


# --- the project --------------------------------------------------------------------------------------------


def project_sharing(path: str | Path | None = None) -> LessonSharing | None:
    """Return the sharing of the project's lessons; None unless its records are in PostgreSQL.

    Raises `ConfigError` if the project has no name: other machines would not share its lessons.
    """
    place, settings = project_place(), load_settings()
    if place is None or not isinstance(place.database, str) or (store := project_store()) is None:
        return None
    if not settings.project:
        raise ConfigError(
            "Lessons are shared between the machines of a project, so it needs a name that is the same on "
            "all of them: set `project` in redraft.toml (or REDRAFT_PROJECT)."
        )
    return LessonSharing(path or project_folder() / settings.memory, store)
