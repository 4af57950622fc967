"""What a SQLite store asks of a connection: one function for each method, run in the store's threads."""

from __future__ import annotations

from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any

from redraft.stores.base import intact
from redraft.stores.near import nearest
from redraft.stores.question import after_all_with
from redraft.stores.row import Row, is_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from sqlite3 import Connection

    from redraft.stores.base import Record
    from redraft.stores.question import Question

_COLUMNS = ", ".join(Row._fields)
_ONE = "space = ? AND kind = ? AND key = ?"
_STORED = "RETURNING revision, created_at"
# Values go by their places: to look for each by its name takes as long as to write the row.
_INSERT = f"""
INSERT INTO records (space, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?)
ON CONFLICT (space, kind, key) DO"""  # noqa: S608 (made of constants)
_PUT = f"""{_INSERT} UPDATE
SET data = excluded.data, schema_version = excluded.schema_version, vector = excluded.vector,
    checksum = excluded.checksum, revision = revision + 1, updated_at = excluded.updated_at {_STORED}"""
_PUT_IF_ABSENT = f"{_INSERT} NOTHING"
_REPLACE = f"""
UPDATE records
SET data = ?, schema_version = ?, vector = ?, checksum = ?, revision = revision + 1, updated_at = ?
WHERE {_ONE} AND revision = ? AND ? IN (0, created_at) {_STORED}"""  # noqa: S608 (made of constants)
_GET = f"SELECT {_COLUMNS} FROM records WHERE {_ONE}"  # noqa: S608 (made of constants)
_DELETE = f"DELETE FROM records WHERE {_ONE} RETURNING 1"  # noqa: S608 (made of constants)


def put(space: str, row: Row, connection: Connection) -> Row:
    """Store a row in any case."""
    return _put(space, row, _now(), connection)


def put_all(space: str, rows: Sequence[Row], connection: Connection) -> list[Row]:
    """Store rows one after the other, all or none: others may share the transaction."""
    connection.execute("SAVEPOINT together")
    try:
        now = _now()
        stored = [_put(space, row, now, connection) for row in rows]
    except BaseException:
        if connection.in_transaction:  # else SQLite has taken back all of it
            connection.execute("ROLLBACK TO together")
            connection.execute("RELEASE together")
        raise
    connection.execute("RELEASE together")
    return stored


def put_all_if(
    space: str, asked: Question, key: str, rows: Sequence[Row], connection: Connection
) -> list[Row] | None:
    """Store rows as `put_all` does if the record with a key is as a question asks."""
    condition, values = _condition(space, asked)
    found = connection.execute(f"SELECT 1 FROM records WHERE {condition} AND key = ?", (*values, key))  # noqa: S608 (made of constants)
    return put_all(space, rows, connection) if found.fetchone() else None


def _put(space: str, row: Row, now: int, connection: Connection) -> Row:
    ((revision, created_at),) = connection.execute(_PUT, (space, *row[:6], now, now)).fetchall()
    return Row(*row[:6], revision, created_at, now)


def put_if_absent(space: str, row: Row, connection: Connection) -> tuple[Row, bool]:
    """Store a row unless there is one; return the one that is stored, and whether it is this."""
    now = _now()
    while not connection.execute(_PUT_IF_ABSENT, (space, *row[:6], now, now)).rowcount:
        if stored := _rows(connection, _GET, (space, row.kind, row.key)):
            return stored[0], False  # else another program has deleted it in between
    return Row(*row[:6], 1, now, now), True


def replace(space: str, row: Row, connection: Connection) -> Row | None:
    """Store a row if the stored one has its revision and, unless 0, its time of creation."""
    now = _now()
    given = (row.data, row.schema_version, row.vector, row.checksum, now)
    asked = (space, row.kind, row.key, row.revision, row.created_at)
    stored = connection.execute(_REPLACE, (*given, *asked)).fetchall()
    return Row(*row[:6], *stored[0], updated_at=now) if stored else None


def get(space: str, kind: str, key: str, connection: Connection) -> Record | None:
    """Return the record with a key."""
    rows = _rows(connection, _GET, (space, kind, key))
    return rows[0].intact() if rows else None


def delete(space: str, kind: str, key: str, connection: Connection) -> bool:
    """Remove a row; say if there was one."""
    return bool(connection.execute(_DELETE, (space, kind, key)).fetchall())


def find(space: str, asked: Question, connection: Connection) -> list[Record]:
    """Return the records that a question asks for."""
    condition, values = _condition(space, asked)
    if asked.after is not None:
        condition += " AND (created_at, key) < (?, ?)" if asked.newest_first else " AND key > ?"
        values += asked.after if asked.newest_first else asked.after[1:]
    order = "created_at DESC, key DESC" if asked.newest_first else "key"
    limit = -1 if asked.limit is None else asked.limit
    sql = f"SELECT {_COLUMNS} FROM records WHERE {condition} ORDER BY {order} LIMIT ?"  # noqa: S608 (made of constants)
    return [row.record() for row in _rows(connection, sql, (*values, limit))]


def near(
    space: str, asked: Question, vector: Sequence[float], limit: int, connection: Connection
) -> list[tuple[Record, float]]:
    """Return the records whose vectors are nearest, nearest first, with their similarity."""
    condition, values = _condition(space, asked, "0")
    sql = f"SELECT key, vector FROM records WHERE {condition} AND vector IS NOT NULL"  # noqa: S608 (made of constants)
    connection.execute("BEGIN")  # both questions see the same state
    try:
        vectors = connection.execute(sql, values).fetchall()
        whole = _of_same_length(space, asked.kind, vectors, 4 * len(vector), connection)
        found = nearest(whole, vector, limit)
        rows = [row for key, _ in found for row in _rows(connection, _GET, (space, asked.kind, key))]
    finally:
        connection.execute("ROLLBACK")
    records = {record.key: record for record in intact([row.record() for row in rows])}
    return [(records[key], similarity) for key, similarity in found if key in records]


def _of_same_length(
    space: str, kind: str, vectors: Sequence[tuple[str, bytes]], size: int, connection: Connection
) -> list[tuple[str, bytes]]:
    """Leave out vectors of another length that are damaged: none can be compared with them."""
    odd = {key for key, blob in vectors if not isinstance(blob, bytes) or len(blob) != size}  # pyright: ignore[reportUnnecessaryIsInstance] (in SQLite, a column holds anything)
    rows = [row for key in odd for row in _rows(connection, _GET, (space, kind, key))]
    damaged = {row.key for row in rows} - {record.key for record in intact([row.record() for row in rows])}
    return [(key, blob) for key, blob in vectors if key not in damaged]


def _now() -> int:
    return time_ns() // 1000


def _rows(connection: Connection, sql: str, values: Sequence[Any]) -> list[Row]:
    return [Row(*row) for row in connection.execute(sql, values).fetchall()]


def prepare(connection: Connection) -> None:
    """Let a connection read what is damaged, and tell it."""
    # Text that is not UTF-8 would be an error of the whole question.
    connection.text_factory = _TEXT
    connection.create_function("redraft_is_whole", 6, is_whole, deterministic=True)


_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")
# As bytes: text that is not UTF-8 would be an error here, too.
_IS_DAMAGED = """NOT redraft_is_whole(
    checksum, CAST(kind AS BLOB), CAST(key AS BLOB), CAST(data AS BLOB), schema_version, vector)"""


def _condition(space: str, asked: Question, otherwise: str = _IS_DAMAGED) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL condition of a question, without its page, and the values that it takes.

    Of a record without the fields that are asked for, `otherwise` decides: what is damaged may have had them.
    """
    parts, values = ["space = ? AND kind = ?"], [space, asked.kind]
    if asked.prefix:
        parts.append("key >= ? AND key < ?")
        values += [asked.prefix, after_all_with(asked.prefix)]
    fields: list[str] = []
    for field, texts in asked.fields.items():
        # Asked for two paths, SQLite returns both values as JSON, whatever they are: absent ones as null.
        fields.append(f"json_extract(data, ?, ?) IN ({', '.join('?' * len(texts))})")
        path = f'$."{field}"'
        values += [path, path, *(f"[{text},{text}]" for text in texts)]
    if fields:
        parts.append(f"CASE WHEN json_valid(data) AND {' AND '.join(fields)} THEN 1 ELSE {otherwise} END")
    return " AND ".join(parts), tuple(values)
