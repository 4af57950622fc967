"""People: approvers, each with their own token, of which only a hash is stored."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.settings import load_settings
from redraft.stores.base import Record, intact
from redraft.stores.location import required_project_store
from redraft.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from redraft.stores.base import Store
    from redraft.web.page import Form

SPACE = "people"
"""The space of the people in a shared long-term storage."""
PERSON = "person"
"""The kind of the records, whose keys are hashes of tokens."""
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Person:
    """The owner of a token."""

    name: str
    token_id: str
    """The beginning of the hash of the token."""
    since: str = ""
    """When the token was created, in ISO 8601."""


@asynccontextmanager
async def people_of(store: Store | None) -> AsyncGenerator[People]:
    """Yield the people of a project's store and, if it is set, of the `long_term_storage`.

    Raises `ConfigError` if storage is turned off.
    """
    url = load_settings().long_term_storage
    if url is None:
        yield People(store or required_project_store("people"))
        return
    shared = PostgresStore(url, SPACE, isolated=True)
    try:
        yield People(shared, *(() if store is None else (store,)))
    finally:
        await shared.aclose()


async def who_decides(form: Form) -> Person | str:
    """The person who submits a form, by its fields `by` and `token`; raises as `People.who` does."""
    async with people_of(form.project.store) as people:
        return await people.who(form.text("by", "").strip(), form.text("token", "").strip())


class People:
    """The people in some stores; `add` writes to the first store.

    Tokens have 256 random bits, so a plain hash is safe.
    """

    def __init__(self, *stores: Store) -> None:
        self._stores = stores

    async def add(self, name: str) -> str:
        """Create a token for a person and return it, this once; raises `ConfigError` if they have a token."""
        if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > MAX_NAME:
            raise ConfigError(f"Expected a name of 1 to {MAX_NAME} printable characters, got {name!r}.")
        if any(person.name == name for person in await self.all()):
            raise ConfigError(f"{name!r} has a token. Revoke it first: redraft token revoke {name!r}")
        token = secrets.token_urlsafe(32)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        await self._stores[0].put(Record(PERSON, _hash(token), {"name": name, "since": since}))
        return token

    async def all(self) -> list[Person]:
        """All people with a token, sorted by name."""
        people = [_person(record) for store in self._stores for record in intact(await store.find(PERSON))]
        return sorted(people, key=lambda person: person.name)

    async def revoke(self, name: str) -> None:
        """Revoke a person's token; raises `ConfigError` if they have none."""
        keys = [
            (store, record.key)
            for store in self._stores
            for record in intact(await store.find(PERSON))
            if record.data["name"] == name
        ]
        if not keys:
            names = [person.name for person in await self.all()]
            hint = nearest(name, names) if names else "nobody has one yet."
            raise ConfigError(f"{name!r} has no token; {hint}")
        for store, key in keys:
            await store.delete(PERSON, key)

    async def identify(self, token: str) -> Person:
        """The owner of a token; raises `ConfigError` for an unknown or revoked token."""
        for store in self._stores:
            if (record := await store.get(PERSON, _hash(token))) is not None:
                return _person(record)
        raise ConfigError("The token is unknown, or was revoked.")

    async def who(self, name: str, token: str) -> Person | str:
        """The person who acts as `name`: the owner of the token, or just the name without a token.

        Raises `ConfigError` for an unknown token, for another person's token, and for the name of a person
        with a token if the token is missing.
        """
        if token:
            person = await self.identify(token)
            if name not in ("", person.name):
                raise ConfigError(f"The token belongs to {person.name!r}, not to {name!r}.")
            return person
        if name and any(person.name == name for person in await self.all()):
            raise ConfigError(f"{name!r} has a token; give it, too, to prove who you are.")
        return name


def _hash(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _person(record: Record) -> Person:
    return Person(record.data["name"], record.key[:8], record.data["since"])
