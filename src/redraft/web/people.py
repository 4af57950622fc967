"""People: who may decide, each with a token of their own, of which only a hash is stored."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.stores.base import Record, intact

if TYPE_CHECKING:
    from redraft.stores.base import Store

PERSON = "person"
"""The kind of the records; the key is the hash of the token."""
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who has proved who they are with a token; `token_id` is the beginning of its hash."""

    name: str
    token_id: str
    since: str = ""


class People:
    """The people of a project. A token has 256 random bits, so a plain hash keeps it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, name: str) -> str:
        """Give a person a token and return it, for the only time; raises `ConfigError` if they have one."""
        if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > MAX_NAME:
            raise ConfigError(f"Expected a name of 1 to {MAX_NAME} printable characters, got {name!r}.")
        if any(person.name == name for person in await self.all()):
            raise ConfigError(f"{name!r} has a token. Revoke it first: redraft token revoke {name!r}")
        token = secrets.token_urlsafe(32)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        await self._store.put(Record(PERSON, _hash(token), {"name": name, "since": since}))
        return token

    async def all(self) -> list[Person]:
        """Return everyone who has a token, by name."""
        found = [_person(record) for record in intact(await self._store.find(PERSON))]
        return sorted(found, key=lambda person: person.name)

    async def revoke(self, name: str) -> None:
        """Make a person's token worthless from now on; raises `ConfigError` if they have none."""
        found = [one for one in intact(await self._store.find(PERSON)) if one.data["name"] == name]
        if not found:
            names = [person.name for person in await self.all()]
            hint = nearest(name, names) if names else "nobody has one."
            raise ConfigError(f"{name!r} has no token; {hint}")
        for record in found:
            await self._store.delete(PERSON, record.key)

    async def identify(self, token: str) -> Person:
        """Return whose token this is; raises `ConfigError` for one that is unknown or was revoked."""
        record = await self._store.get(PERSON, _hash(token))
        if record is None:
            raise ConfigError("The token (REDRAFT_TOKEN) is unknown here, or was revoked.")
        return _person(record)


def _hash(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _person(record: Record) -> Person:
    return Person(record.data["name"], record.key[:8], record.data["since"])
