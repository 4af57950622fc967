"""SharedLog: the versions of shared lesson files, as records in a store."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from redraft.lessons.files import ENDING, MOST_BYTES
from redraft.lessons.folder import RULES, folder_name, is_file_stem
from redraft.lessons.playbooks import PLAYBOOKS
from redraft.stores.base import Record, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.stores.base import Store

SHARED = "lesson_file"
"""The kind of the records."""
MOST_EARLIER = 20
"""Earlier versions that a version names, by which an old copy of a file is known as such."""

_TEXTS = ("name", "text", "place")
_PAGE = 200
_YEAR = re.compile(r"[0-9]{4}")


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a file in the log: its text, or None if it was deleted.

    `name` is `<agent>/<file>` or `<agent>/playbooks/<file>`, also of an archived file, whose year is `place`.
    That of a deleted file is stored as a digest, since it may say what the file was about. `earlier` are the
    digests of versions before it, `machine` wrote it, and `at` is when. `conflict` marks a copy that was kept
    of a file which two machines had changed, while it is in use.
    """

    name: str
    text: str | None
    place: str = ""
    earlier: tuple[str, ...] = ()
    machine: str = ""
    conflict: bool = False
    number: int = 0
    at: datetime | None = None

    @property
    def digest(self) -> str:
        """The digest of its text; empty if the file was deleted."""
        return "" if self.text is None else digest_of(self.text)

    @property
    def agent(self) -> str:
        """The folder of the agent."""
        return self.name.partition("/")[0]


class SharedLog:
    """The log of a project's versions.

    Each version of a file is a record, whose key is its number in the log, so the next number goes to one
    machine only. A new version replaces the record of the one before. Raises `StoreError` if the store is
    away.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def since(self, number: int) -> list[Record]:
        """Return the records from a number on, that of the number included."""
        after = None if number <= 1 else _before(number)
        found: list[Record] = []
        while page := await self._store.find(SHARED, after=after, limit=_PAGE):
            found += page
            after = page[-1]
            if len(page) < _PAGE:
                break
        return [one for one in found if one.key.isdecimal()]

    async def append(self, version: Version, log: str, *, replaces: int, digest: str) -> Record | None:
        """Append a version under its number; None if another machine has taken that.

        It replaces the version with the number `replaces`, 0 for none, and the digest `digest`.
        """
        if replaces:
            record = await listed(self._store, SHARED, key_of(replaces))
            before = None if record is None else version_of(record)
            known = () if before is None else before.earlier
            version = replace(version, earlier=(*known, digest)[-MOST_EARLIER:])
        record = Record(SHARED, key_of(version.number), _data_of(version, log))
        stored, is_new = await self._store.put_if_absent(record)
        if not is_new:
            return None
        if replaces:
            await self.delete(replaces)
        return stored

    async def delete(self, number: int) -> None:
        """Delete a version that a newer one has replaced."""
        await self._store.delete(SHARED, key_of(number))


async def is_shared(store: Store) -> bool:
    """Return whether lessons are shared through a store."""
    return bool(await store.find(SHARED, limit=1))


@dataclass(frozen=True, slots=True)
class SharingState:
    """The last change of the shared lessons: which file, when, and on which machine; and open conflicts.

    `name` is empty if the file was deleted. `conflicts` are the names of copies that were kept of files which
    two machines had changed.
    """

    name: str
    machine: str
    at: datetime
    conflicts: tuple[str, ...] = ()


async def sharing_state(store: Store) -> SharingState | None:
    """Return what is known of the shared lessons; None if none are shared."""
    newest = await store.find(SHARED, newest_first=True, limit=1)
    last = newest[0] if newest else None
    if last is None or last.damage or last.created_at is None:
        return None
    found = await store.find(SHARED, where={"conflict": True}, limit=_PAGE)
    marked = [version for version in map(version_of, found) if version is not None]
    version = version_of(last)
    return SharingState(
        "" if version is None else version.name,
        str(last.data.get("machine", "")),
        last.created_at,
        tuple(one.name for one in marked),
    )


# --- names --------------------------------------------------------------------------------------------------


def is_safe(name: str, place: str) -> bool:
    """Return whether a name and a place lead to a file in the folder of an agent, on any machine."""
    agent, _, rest = name.partition("/")
    *inner, file = rest.split("/")
    return (
        bool(agent)
        and folder_name(agent) == agent
        and inner in ([], [PLAYBOOKS])
        and file.endswith(ENDING)
        and is_file_stem(file.removesuffix(ENDING))
        and file.isprintable()
        and "\\" not in file
        and (not place or (_YEAR.fullmatch(place) is not None and (bool(inner) or file != RULES)))
    )


def is_rules(name: str) -> bool:
    """Return whether a name is that of an agent's rules."""
    return name.count("/") == 1 and name.endswith(f"/{RULES}")


# --- records ------------------------------------------------------------------------------------------------


def key_of(number: int) -> str:
    """Return the key of the record with a number."""
    return f"{number:012}"


def _before(number: int) -> Record:
    return Record(SHARED, key_of(number - 1), {}, created_at=datetime.fromtimestamp(0, UTC))


def _data_of(version: Version, log: str) -> dict[str, Any]:
    data = {"earlier": list(version.earlier), "machine": version.machine, "log": log}
    if version.text is None:
        return data | {"deleted": digest_of(version.name)}
    data |= {"name": version.name, "text": version.text, "place": version.place}
    return data | ({"conflict": True} if version.conflict else {})


def version_of(record: Record, known: Mapping[str, str] = MappingProxyType({})) -> Version | None:
    """Return the version in a record; None if it is damaged, or names a file outside of the folder.

    `known` are the names of files by their digests: a deletion of any other file is None, too.
    """
    if record.damage:
        return None
    data = record.data
    deleted = deleted_file_of(record)
    name, text, place = (known.get(deleted, ""), None, "") if deleted else map(data.get, _TEXTS)
    if not isinstance(name, str) or not isinstance(place, str) or not (deleted or isinstance(text, str)):
        return None
    try:
        is_short = text is None or len(text.encode()) <= MOST_BYTES
    except UnicodeEncodeError:
        return None
    if not is_short or not is_safe(name, place):
        return None
    earlier: Any = data.get("earlier")
    return Version(
        name,
        text,
        place,
        tuple(map(str, earlier)) if isinstance(earlier, list) else (),  # pyright: ignore[reportUnknownArgumentType] (texts, whatever they were)
        str(data.get("machine", "")),
        data.get("conflict") is True,
        int(record.key),
        record.created_at,
    )


def deleted_file_of(record: Record) -> str:
    """Return the digest of the name of the file whose deletion a record tells; empty if it has a text."""
    return "" if record.damage else str(record.data.get("deleted", ""))


def log_of(record: Record) -> str:
    """Return the id of the log that a record belongs to; empty if it is damaged."""
    return "" if record.damage else str(record.data.get("log", ""))


def digest_of(text: str) -> str:
    """Return a hash of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
