"""SQL: run one statement in a database, by default in a session that can only read."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote
from uuid import UUID

from redraft._calls import in_daemon_thread
from redraft.errors import ConfigError, MissingExtraError, OutputError
from redraft.text.schema_tree import plain_data

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine
    from sqlalchemy.engine import CursorResult

STEPS_BETWEEN_CHECKS = 10_000
"""Instructions of SQLite between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL statement, with the values of its parameters, which it names as `:name`.

    `url` is SQLAlchemy's, such as `postgresql://USER:PASSWORD@HOST/DATABASE`, or `sqlite:///FILE`, a path
    relative to `folder`.
    """

    url: str = field(repr=False)
    query: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_read_only: bool = True
    seconds: float = 10.0
    max_rows: int = 1_000
    folder: Path = field(default_factory=Path)


async def run_statement(statement: Statement) -> tuple[list[dict[str, Any]], int]:
    """Run a statement in a transaction; return its rows, and how many rows it affected (-1: unknown).

    Raises `OutputError` for what the database refuses, more than `max_rows` rows and two columns of one name,
    `ConnectionError` without a connection, `TimeoutError` after `seconds`, and `ConfigError` for an unusable
    URL, and for a database other than PostgreSQL and SQLite that is to be read only.
    """
    url = parsed_url(statement.url)
    try:
        async with asyncio.timeout(statement.seconds):
            rows, affected = await in_daemon_thread(_run, statement, url)
    except TimeoutError as error:
        raise TimeoutError(f"{_shown(url)} did not answer within {statement.seconds:g} s") from error
    return cast("list[dict[str, Any]]", plain_data(rows, f"What {_shown(url)} returned")), affected


def parameters(query: str) -> tuple[str, ...]:
    """Return the names of the parameters in a statement, sorted; needs SQLAlchemy."""
    try:
        from sqlalchemy import text  # noqa: PLC0415 (only agents that use SQL load it)
    except ImportError as error:
        raise MissingExtraError("SQL in an agent file", "sql") from error

    return tuple(sorted(text(query).compile().params))


def parsed_url(text: str) -> URL:
    """Return the URL of a database; a `ConfigError` does not show it, since it may have a password."""
    try:
        from sqlalchemy import make_url  # noqa: PLC0415 (as above)
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("SQL in an agent file", "sql") from error

    try:
        url = make_url(text)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        url.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError(
            "Expected the URL of a database, such as 'postgresql://USER:PASSWORD@HOST/DATABASE' or "
            "'sqlite:///FILE'."
        ) from error
    return url


def _run(statement: Statement, url: URL) -> tuple[list[dict[str, Any]], int]:
    from sqlalchemy import text  # noqa: PLC0415 (as above)
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError  # noqa: PLC0415

    engine = _engine(statement, url)
    try:
        try:
            connection = engine.connect()
        except DBAPIError as error:
            raise ConnectionError(f"{_shown(url)}: {_reason(error)}") from error
        with connection, connection.begin():
            return _rows(connection.execute(text(statement.query), dict(statement.values)), statement, url)
    except SQLAlchemyError as error:
        raise OutputError(f"{_shown(url)}: {_reason(error)}") from error
    finally:
        engine.dispose()


def _engine(statement: Statement, url: URL) -> Engine:
    """Return an engine whose sessions only read, unless they may write, and stop in time."""
    from sqlalchemy import NullPool, create_engine  # noqa: PLC0415 (as above)

    backend, milliseconds = url.get_backend_name(), round(statement.seconds * 1000)
    try:
        if backend == "sqlite":
            return create_engine(url, creator=lambda: _sqlite(statement, url), poolclass=NullPool)
        settings: dict[str, Any] = {}
        if backend == "postgresql":
            read_only = "on" if statement.is_read_only else "off"
            own = f"-c default_transaction_read_only={read_only} -c statement_timeout={milliseconds}"
            settings["options"] = f"{url.query.get('options', '')} {own}"
            settings["connect_timeout"] = max(2, round(statement.seconds))
            # A prepared statement is one: a second one could allow itself to write.
            settings["prepare_threshold"] = 0
        elif statement.is_read_only:
            raise ConfigError(
                f"A {backend!r} database can't be limited to reading here. Use an account that may only "
                "read, and set readOnly: false."
            )
        return create_engine(url, connect_args=settings, poolclass=NullPool, hide_parameters=True)
    except ImportError as error:
        if backend == "postgresql":
            raise MissingExtraError("PostgreSQL in an agent file", "postgres") from error
        raise ConfigError(f"The driver of {backend!r} databases is not installed: {error}.") from error


def _sqlite(statement: Statement, url: URL) -> sqlite3.Connection:
    """Open a SQLite file that exists; its statements are interrupted when time is up."""
    path = statement.folder / (url.database or "")
    mode = "ro" if statement.is_read_only else "rw"
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=statement.seconds,
        check_same_thread=False,
    )
    end = monotonic() + statement.seconds
    if statement.is_read_only:  # ATTACH and VACUUM INTO would write into other files
        connection.set_authorizer(_without_other_files)
    connection.set_progress_handler(lambda: monotonic() > end, STEPS_BETWEEN_CHECKS)
    return connection


def _without_other_files(action: int, *_subject: str | None) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _rows(result: CursorResult[Any], statement: Statement, url: URL) -> tuple[list[dict[str, Any]], int]:
    if not result.returns_rows:
        return [], result.rowcount
    names = list(result.keys())
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise OutputError(f"{_shown(url)}: two columns are named {twice!r}; rename one with AS.")
    found = result.fetchmany(statement.max_rows + 1)
    if len(found) > statement.max_rows:
        raise OutputError(
            f"{_shown(url)}: more than {statement.max_rows:,} rows; add a LIMIT, or set maxRows."
        )
    return [dict(zip(names, map(_plain, row), strict=True)) for row in found], len(found)


def _plain(value: Any) -> Any:
    """Return a value of a database as JSON has it; times become text in the end."""
    match value:
        case Decimal():
            return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
        case bytes():
            return value.hex()
        case UUID():
            return str(value)
        case timedelta():
            return value.total_seconds()
        case _:
            return value


def _shown(url: URL) -> str:
    """Return which database it is, without password and options."""
    host = f"{url.host or ''}{f':{url.port}' if url.port else ''}"
    return f"{url.get_backend_name()} {host}{'/' if host else ''}{url.database or ''}"


def _reason(error: Exception) -> str:
    """Return what the driver says, without the statement and its values."""
    return str(getattr(error, "orig", None) or error).strip().replace("\n", "; ")
