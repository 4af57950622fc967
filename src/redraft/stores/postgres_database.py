"""Database: how to connect to a PostgreSQL database, and its schema."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from redraft.core.errors import ConfigError, StoreSettingsError
from redraft.stores import postgres_vector
from redraft.stores.migrate import scripts

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

EXPECTED = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, special characters percent-encoded"
_LOCK = 0x52445246
"""The advisory lock of those who change the schema ("RDRF")."""
_DEFAULTS = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "fallback_application_name": "redraft"}
"""Without them, a server that does not answer is waited for without end."""
STANDS_STILL = 2.0
"""Seconds after which the server ends a session whose process has stopped within a transaction.

Else nobody could write what it has locked, such as the lease of an agent, until it goes on."""
_ESCAPED, _ESCAPE = re.compile(r"[\\\s]"), r"\\\g<0>"
"""Of options, white space ends one, unless a backslash is before it."""


class SpaceConnection(psycopg.Connection[tuple[Any, ...]]):
    """Know which space it has entered in this exchange: `space` is None before the first one."""

    space: str | None = None


class Database:
    """Connect to the database of a URL, and bring its schema up to date.

    `name` is how messages speak of it, without the password. Raises `ConfigError` for what is no such URL.
    """

    is_isolated = False
    """Whether its sessions see one space alone, which they have to enter first."""
    is_hasty = False
    """Whether what its sessions commit may reach the disk a little later."""

    def __init__(self, url: str, wait: float) -> None:
        self._wait = wait
        self._conninfo, self.name = _understood(url)

    def connect(self) -> SpaceConnection:
        """Return a connection to a database with the newest schema.

        Raises `psycopg.Error`, and `StoreSettingsError` for a database that is of no use.
        """
        connection = SpaceConnection.connect(self._conninfo, autocommit=True)
        try:
            self._check_encoding(connection)
            connection.execute(
                f"SET idle_in_transaction_session_timeout = '{milliseconds(STANDS_STILL)}'".encode()
            )
            if self.is_hasty:
                connection.execute("SET synchronous_commit = off")
            postgres_vector.register(connection)
            if not self._is_current(connection):
                self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_encoding(self, connection: psycopg.Connection) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreSettingsError(
                f"The PostgreSQL database {self.name} has the encoding {encoding}, which can't hold every "
                "text: make one with `createdb --encoding UTF8 --template template0`."
            )

    def _is_current(self, connection: psycopg.Connection) -> bool:
        """Say if the schema is the newest; raises `StoreSettingsError` for one of a newer Redraft."""
        version, newest = _version(connection), len(scripts("postgres"))
        if version > newest:
            raise StoreSettingsError(
                f"The PostgreSQL database {self.name} has version {version} of the schema, and this Redraft "
                f"knows {newest}: it was written by a newer one, so upgrade redraft."
            )
        return version == newest

    def conninfo_with(self, settings: Mapping[str, str]) -> str:
        """Return what a session connects with that begins with settings of its own."""
        said = [f"-c {name}={_ESCAPED.sub(_ESCAPE, value)}" for name, value in settings.items()]
        given = _in_force(conninfo_to_dict(self._conninfo)).get("options", "")
        return make_conninfo(self._conninfo, options=" ".join([given, *said]).strip())

    @contextmanager
    def changing(self, connection: psycopg.Connection) -> Generator[None]:
        """Be the one who changes the schema, and change all of it or nothing."""
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (milliseconds(self._wait),))
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            yield

    def _migrate(self, connection: psycopg.Connection) -> None:
        with self.changing(connection):
            if self._is_current(connection):
                return  # another process was quicker
            steps = scripts("postgres")
            for script in steps[_version(connection) :]:
                connection.execute(script.encode())
            connection.execute("UPDATE redraft_schema SET version = %s", (len(steps),))


def milliseconds(seconds: float) -> str:
    """Return a duration as PostgreSQL's settings take it."""
    return f"{round(seconds * 1000)}ms"


def _version(connection: psycopg.Connection) -> int:
    # Unlike to_regclass, this sees what was committed while the lock was waited for.
    visible = "SELECT 1 FROM pg_class WHERE relname = 'redraft_schema' AND pg_table_is_visible(oid)"
    if connection.execute(visible).fetchone() is None:
        return 0
    found = connection.execute("SELECT version FROM redraft_schema").fetchone()
    return found[0] if found else 0


def _understood(url: str) -> tuple[str, str]:
    """Return what psycopg connects with, and the name of the database; never says more of a URL than that."""
    if not url.startswith(("postgresql://", "postgres://")):
        scheme = url.partition(":")[0] if "://" in url else ""
        got = f"one that begins with {scheme + '://'!r}" if scheme else "none"
        raise ConfigError(f"The URL of a PostgreSQL database must be {EXPECTED}; got {got}.")
    try:
        given = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):  # whose text may hold a part of the password
        given = None
    # A password that is not encoded is taken for parts of these, and what is behind a NUL for nothing.
    if (
        given is None
        or "\0" in url
        or any("@" in str(given.get(part)) for part in ("host", "port", "dbname"))
    ):
        raise ConfigError(f"The URL of a PostgreSQL database can't be understood: it must be {EXPECTED}.")
    conninfo = make_conninfo(url, **{**_DEFAULTS, **given, "client_encoding": "UTF8"})
    return conninfo, _name(given)


def _name(given: dict[str, Any]) -> str:
    """Return `'database' on host:port`, with what libpq takes where the URL says nothing."""
    options = _in_force(given)
    host = options.get("host") or options.get("hostaddr") or "localhost"
    database = options.get("dbname") or options.get("user") or ""
    return f"{database!r} on {host}:{options.get('port') or 5432}"


def _in_force(given: dict[str, Any]) -> dict[str, Any]:
    """Return what is given, and what the environment of libpq says of the rest."""
    return {
        option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()
    } | given
