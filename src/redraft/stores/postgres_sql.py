"""The SQL of a PostgreSQL store: one generator per method, run in the store's thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from redraft.stores.base import (
    KindSize,
    RecordVersion,
    Row,
    after_all_with,
    json_text,
    time_of,
)
from redraft.stores.run_index import INDEXED, removals, writes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import Cursor

    from redraft.stores.base import NewRow, Query, Record


T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Send a statement, yield, read the result: many jobs send their statements before any reads its result."""


class Connection(Protocol):
    """A psycopg connection that knows which space it has entered in this exchange, if any."""

    space: str | None

    def execute(self, query: bytes, params: Any = None, *, binary: bool = False) -> Cursor[Any]:
        """Execute a statement."""
        ...


PREFIX, ISOLATED = "redraft_", "redraft_agent_"
"""Prefixes of table names; in isolated tables, a session sees only the space that it has entered."""


class Space(NamedTuple):
    """The name of a space, and the prefix of its tables."""

    name: str
    prefix: str = PREFIX


FullKey: TypeAlias = tuple[str, str, str]
"""The space, kind and key of a record; writes are sorted by it."""


class Writes(NamedTuple, Generic[T]):
    """The steps that write each of some records; the result is the list of their results.

    Each is sorted by the key of its record, also among the writes of other jobs.
    """

    writes: Sequence[tuple[FullKey, Callable[[Connection], Steps[T]]]]

    def parts(self, connection: Connection) -> list[tuple[FullKey, Steps[list[T]]]]:
        """Start the steps of all writes on a connection."""
        results: dict[int, T] = {}

        def result_of_all(number: int, steps: Steps[T]) -> Steps[list[T]]:
            results[number] = yield from steps
            return [results[index] for index in sorted(results)]

        return [
            (full_key, result_of_all(number, steps(connection)))
            for number, (full_key, steps) in enumerate(self.writes)
        ]


_COLUMNS = ", ".join(Row._fields)
_ONE = "space = %(space)s AND kind = %(kind)s AND key = %(key)s"
_STORED = "RETURNING revision, created_at, updated_at"
_CHANGE = """
SET data = %(data)s, fields = %(fields)b, schema_version = %(schema_version)s,
    checksum = %(checksum)s, revision = records.revision + 1, updated_at = %(updated_at)s"""
_INSERT = f"""
INSERT INTO redraft_records AS records (space, {_COLUMNS}, fields)
VALUES (%(space)s, %(kind)s, %(key)s, %(data)s, %(schema_version)s, %(checksum)s, 1,
    %(created_at)s, %(updated_at)s, %(fields)b)
ON CONFLICT (space, kind, key) DO"""  # noqa: S608 (made of constants)
_PUT = f"{_INSERT} UPDATE {_CHANGE} {_STORED}"
_HOLD = """
SELECT set_config('redraft.held', concat(current_setting('redraft.held', true), (
    SELECT %(turn)s::text FROM redraft_records WHERE {} FOR SHARE)), true)"""
"""Note in the transaction whether a record matches, and lock it until the transaction ends."""
_PUT_IF = _PUT.replace("VALUES (", "SELECT ").replace(
    "%(fields)b)", "%(fields)b WHERE strpos(current_setting('redraft.held'), %(turn)s) > 0"
)
_PUT_IF_ABSENT = f"{_INSERT} NOTHING {_STORED}"
_REPLACE = f"""
UPDATE redraft_records AS records {_CHANGE}
WHERE {_ONE} AND revision = %(revision)s AND %(created_before)s IN (0, created_at) {_STORED}"""
_SELECT = f"SELECT {_COLUMNS} FROM redraft_records WHERE"  # noqa: S608 (made of constants)
_DELETE = f"DELETE FROM redraft_records WHERE {_ONE} RETURNING 1"  # noqa: S608 (made of constants)

_VERSIONS = """
SELECT key, revision, created_at, updated_at, {matches} FROM redraft_records WHERE {condition} ORDER BY key"""
_KINDS = """
SELECT kind, count(*), sum(octet_length(data))::bigint
FROM redraft_records WHERE space = %(space)s GROUP BY kind ORDER BY kind"""


def put(space: Space, new: NewRow, fields: list[str], connection: Connection) -> Steps[NewRow]:
    """Insert or replace a row."""
    stored = yield from _fetched(space, connection, _PUT, _values(new.row, fields))
    return _with_index(space, new.stored(*stored[0]), connection)


def put_if(
    space: Space,
    held: Query | None,
    key: str,
    turn: str,
    new: NewRow,
    fields: list[str],
    connection: Connection,
) -> Steps[NewRow | None]:
    """Store a row if the record with a key matches a query.

    The first row of a `turn` checks the condition; the other rows of the turn rely on its result.
    """
    values = _values(new.row, fields) | {"turn": turn}
    if held is not None:
        parts, held_values = _field_conditions(held)
        parts = ["space = %(space)s AND kind = %(held_kind)s AND key = %(held_key)s", *parts]
        held_values |= {"held_kind": held.kind, "held_key": key, "turn": turn}
        _send(space, connection, _HOLD.format(" AND ".join(parts)), held_values)
    stored = yield from _fetched(space, connection, _PUT_IF, values)
    return _with_index(space, new.stored(*stored[0]), connection) if stored else None


def put_if_absent(
    space: Space, new: NewRow, fields: list[str], connection: Connection
) -> Steps[tuple[Record, bool]]:
    """Store a row unless its key is taken; return the stored record, and whether it is the new one."""
    while True:
        if stored := (yield from _fetched(space, connection, _PUT_IF_ABSENT, _values(new.row, fields))):
            return _with_index(space, new.stored(*stored[0]), connection).record(), True
        if rows := (yield from _one(space, new.row.kind, new.row.key, connection)):
            return rows[0].intact(), False
        # Another process has deleted it in between.


def replace(
    space: Space, new: NewRow, fields: list[str], revision: int, created_before: int, connection: Connection
) -> Steps[NewRow | None]:
    """Store a row if the stored one has this revision and, unless it is 0, this creation time."""
    values = _values(new.row, fields) | {"revision": revision, "created_before": created_before}
    stored = yield from _fetched(space, connection, _REPLACE, values)
    return _with_index(space, new.stored(*stored[0]), connection) if stored else None


def get(space: Space, kind: str, key: str, connection: Connection) -> Steps[Record | None]:
    """The record with a key; None if there is none."""
    rows = yield from _one(space, kind, key, connection)
    return rows[0].intact() if rows else None


def delete(space: Space, kind: str, key: str, connection: Connection) -> Steps[bool]:
    """Delete a row; return whether it existed."""
    deleted = yield from _fetched(space, connection, _DELETE, {"kind": kind, "key": key})
    if kind in INDEXED:
        for sql, values in removals(space.name, kind, key):
            _send(space, connection, _for_psycopg(sql), values)
    return bool(deleted)


def select(
    space: Space, sql: str, values: Mapping[str, Any], connection: Connection
) -> Steps[list[tuple[Any, ...]]]:
    """Rows of a query on the run index."""
    return (yield from _fetched(space, connection, _for_psycopg(sql), values))


def kinds(space: Space, connection: Connection) -> Steps[dict[str, KindSize]]:
    """Number and size of the records of each kind."""
    rows = yield from _fetched(space, connection, _KINDS, {})
    return {kind: KindSize(records, size) for kind, records, size in rows}


def find(space: Space, query: Query, connection: Connection) -> Steps[list[Record]]:
    """List the records that match a query."""
    condition, values = _condition(query)
    if query.after is not None:
        values["at"], values["after"] = query.after
        condition += (
            " AND (created_at, key) < (%(at)s, %(after)s)" if query.newest_first else " AND key > %(after)s"
        )
    order = "created_at DESC, key DESC" if query.newest_first else "key"
    values["limit"] = query.limit
    sql = f"{_SELECT} {condition} ORDER BY {order} LIMIT %(limit)s::bigint"
    rows = yield from _rows(space, connection, sql, values)
    return [row.record() for row in rows]


def versions(space: Space, query: Query, connection: Connection) -> Steps[list[RecordVersion]]:
    """Versions of the records that match a query except for its fields, which only set `matches`."""
    condition, values = _condition(query._replace(fields={}))
    field_parts, field_values = _field_conditions(query)
    sql = _VERSIONS.format(matches=" AND ".join(field_parts) or "true", condition=condition)
    rows = yield from _fetched(space, connection, sql, values | field_values)
    return [
        RecordVersion(key, revision, time_of(created_at), time_of(updated_at), matches)
        for key, revision, created_at, updated_at, matches in rows
    ]


def _values(row: Row, fields: list[str]) -> dict[str, Any]:
    return row._asdict() | {"fields": fields}


def _with_index(space: Space, stored: NewRow, connection: Connection) -> NewRow:
    """Update the run index if the kind of the row is indexed; return the row.

    These statements have no result to read, so the commit may be sent with them.
    """
    # The record is already locked, so this can't cause a deadlock.
    if stored.row.kind in INDEXED:
        for sql, values in writes(space.name, stored.row, stored.data):
            _send(space, connection, _for_psycopg(sql), values)
    return stored


def _one(space: Space, kind: str, key: str, connection: Connection) -> Steps[list[Row]]:
    return (yield from _rows(space, connection, f"{_SELECT} {_ONE}", {"kind": kind, "key": key}))


def _fetched(
    space: Space, connection: Connection, sql: str, values: Mapping[str, Any]
) -> Steps[list[tuple[Any, ...]]]:
    cursor = _send(space, connection, sql, values)
    yield
    return cursor.fetchall()


def _rows(space: Space, connection: Connection, sql: str, values: Mapping[str, Any]) -> Steps[list[Row]]:
    cursor = _send(space, connection, sql, values)
    yield
    return [Row(*row) for row in cursor.fetchall()]


_ENTER = b"SELECT set_config('redraft.space', %s, true)"


def _send(space: Space, connection: Connection, sql: str, values: Mapping[str, Any]) -> Cursor[Any]:
    if space.prefix == ISOLATED and connection.space != space.name:
        connection.execute(_ENTER, (space.name,))
        connection.space = space.name
    return connection.execute(_for_tables(sql, space.prefix), {**values, "space": space.name}, binary=True)


@lru_cache(maxsize=256)
def _for_tables(sql: str, prefix: str) -> bytes:
    # As bytes, since psycopg's types accept no computed str; user input is only in the parameters.
    return sql.replace(PREFIX, prefix).encode()


@lru_cache(maxsize=256)
def _for_psycopg(sql: str) -> str:
    """Translate a run index statement to Redraft's table names and psycopg's parameter style."""
    return _PARAMETER.sub(r"%(\1)s", _TABLE.sub(rf"{PREFIX}\1", sql))


_TABLE, _PARAMETER = re.compile(r"\b(records|runs|run_shares|uses|expenses)\b"), re.compile(r":([a-z_0-9]+)")


def _condition(query: Query) -> tuple[str, dict[str, Any]]:
    """The SQL condition of a query, without paging, and its parameters."""
    parts = ["space = %(space)s AND kind = %(kind)s"]
    values: dict[str, Any] = {"kind": query.kind}
    if query.prefix:
        parts.append("key >= %(first)s AND key < %(beyond)s")
        values |= {"first": query.prefix, "beyond": after_all_with(query.prefix)}
    field_parts, field_values = _field_conditions(query)
    return " AND ".join([*parts, *field_parts]), values | field_values


def _field_conditions(query: Query) -> tuple[list[str], dict[str, Any]]:
    """The SQL conditions on the fields of a query, and their parameters."""
    parts: list[str] = []
    values: dict[str, Any] = {}
    for number, (field, texts) in enumerate(query.fields.items()):
        any_of = f"fields && %(any{number})s"
        values[f"any{number}"] = [entry(field, text) for text in texts]
        if "null" in texts:  # null and absent fields have no entry
            begins = f"starts_with(each, %(begins{number})s)"
            any_of = f"({any_of} OR NOT EXISTS (SELECT FROM unnest(fields) AS each WHERE {begins}))"
            values[f"begins{number}"] = beginning(field)
        parts.append(any_of)
    return parts, values


_LONGEST_ENTRY = 200
"""Longer names and values are indexed by a digest."""


def entries(data: Mapping[str, Any]) -> list[str]:
    """Index entries of all fields except null: `"status":"finished"`, and `"items":#` for non-scalars."""
    return [
        entry(name, json_text(value) if isinstance(value, str | int | float) else "#")
        for name, value in data.items()
        if value is not None
    ]


def entry(name: str, text: str) -> str:
    """Index entry of a field with a value in JSON."""
    return beginning(name) + _short(text)


@lru_cache(maxsize=1024)
def beginning(name: str) -> str:
    """The prefix that all entries of a field share, and entries of other fields don't."""
    return f"{_short(json_text(name))}:"


def _short(text: str) -> str:
    # No JSON text starts with "#".
    return text if len(text) <= _LONGEST_ENTRY else f"#{blake2b(text.encode(), digest_size=16).hexdigest()}"
