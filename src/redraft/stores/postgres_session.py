"""Sessions with a PostgreSQL server: read, write, connect, isolate, and explain errors."""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from operator import itemgetter
from select import POLLIN, POLLOUT, poll
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from redraft.errors import ConfigError, StoreError, StoreSettingsError
from redraft.redact.log import logger
from redraft.stores.run_index import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from psycopg import Error

    from redraft.stores.postgres_sql import Steps, Writes
    from redraft.stores.worker import Job


_STALE = frozenset({"25006", "3F000", "42P01", "42703"})
"""SQL states that a new connection may fix: a read-only server, or missing tables."""


class PostgresReader:
    """Answers the queries of many tasks in one exchange with the server.

    A connection that was lost since its last use is reopened once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: SpaceConnection | None = None
        self._is_lost = False

    def turn(self) -> AbstractContextManager[None]:
        """Never wait: the server coordinates sessions."""
        return nullcontext()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Run the jobs together; if that fails, one by one, so that none fails because of another."""
        try:
            self._retry_if_lost(jobs)
        except psycopg.Error as error:
            if len(jobs) == 1 or self._connection is None:
                raise explained(error, self._database.name) from error
        else:
            return
        for job in jobs:
            try:
                self._retry_if_lost([job])
            except psycopg.Error as error:
                job.error = explained(error, self._database.name)
            except StoreError as error:
                job.error = error

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):  # commits are safe
                self._connection.close()
            self._connection = None

    def _retry_if_lost(self, jobs: Sequence[Job[Any]]) -> None:
        before = self._connection
        try:
            self._do(jobs)
        except psycopg.Error:
            if before is None or not self._is_lost:
                raise
            self._do(jobs)

    def _do(self, jobs: Sequence[Job[Any]]) -> None:
        self._is_lost = False
        if self._connection is None:
            self._connection = self._database.connect()
        self._connection.space = None
        try:
            self._exchange(self._connection, jobs)
        except BaseException as error:
            self._is_lost = self._connection.closed
            if self._is_lost or not isinstance(error, psycopg.Error) or error.sqlstate in _STALE:
                self.close()
            raise

    def _exchange(self, connection: SpaceConnection, jobs: Sequence[Job[Any]]) -> None:
        # An isolated space is entered for one transaction; a pipeline is a single one.
        is_alone = len(jobs) == 1 and not self._database.is_isolated
        with nullcontext() if is_alone else _pipeline(connection):
            run_together([(job, job.do(connection)) for job in jobs])


class PostgresWriter(PostgresReader):
    """Writes the jobs of many tasks in one transaction, so that they share the wait for the disk."""

    def __init__(self, database: Database, wait: float) -> None:
        super().__init__(database)
        settings = {
            "lock_timeout": milliseconds(wait),
            "idle_in_transaction_session_timeout": milliseconds(IDLE_TIMEOUT),
        }
        if database.is_hasty:
            settings["synchronous_commit"] = "off"
        # For the transaction, since a pooler may give the session to another client after it.
        each = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
        self._settings = f"SELECT {each}".encode()

    def _exchange(self, connection: SpaceConnection, jobs: Sequence[Job[Any]]) -> None:
        is_committing = False
        try:
            with _pipeline(connection) as pipeline:
                connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                connection.execute(self._settings)
                # The same order in all processes prevents deadlocks.
                parts = [
                    (key, job, steps)
                    for job in jobs
                    for key, steps in cast("Writes[Any]", job.do).parts(connection)
                ]
                run_together(
                    [(job, steps) for _, job, steps in sorted(parts, key=itemgetter(0))],
                    partial(_sync, connection, pipeline),
                )
                is_committing = True
                connection.execute("COMMIT")
        except psycopg.Error as error:
            if is_committing and connection.closed:
                # The write may have succeeded, so it must not be retried.
                raise unknown_outcome(error, self._database.name) from error
            with suppress(psycopg.Error):  # a lost connection has nothing to roll back
                connection.execute("ROLLBACK")
            raise


@contextmanager
def _pipeline(connection: psycopg.Connection) -> Generator[psycopg.Pipeline]:
    """Send statements without waiting for the results of earlier ones."""
    failure: psycopg.Error | None = None
    try:
        with connection.pipeline() as pipeline:
            try:
                yield pipeline
            except psycopg.Error as error:  # raised inside, it would make psycopg log the consequences
                failure = error
    except psycopg.Error as error:
        failure = failure or error
    if failure is not None:
        raise failure


def _sync(connection: SpaceConnection, pipeline: psycopg.Pipeline) -> None:
    """Tell the server that it waits for this client, so that its timeout for idle transactions applies."""
    pgconn = connection.pgconn
    # psycopg only waits for results, even if the socket can't take all pending data.
    while pgconn.flush():
        socket = poll()
        socket.register(pgconn.socket, POLLIN | POLLOUT)
        if any(event & POLLIN for _, event in socket.poll()):
            pgconn.consume_input()
    pipeline.sync()


def run_together(
    waiting: Sequence[tuple[Job[Any], Steps[Any]]], sent: Callable[[], None] = lambda: None
) -> None:
    """Let each job send its statement, then each read its result, until all jobs are done.

    `sent` is called after each round of sending, before any result is read. A database error is raised,
    since it affects all jobs; any other error is the error of its job.
    """
    for job, _ in waiting:
        job.error = None
    while waiting:
        waiting = [(job, steps) for job, steps in waiting if _advance(job, steps)]
        if waiting:
            sent()


def _advance(job: Job[Any], steps: Steps[Any]) -> bool:
    try:
        next(steps)
    except StopIteration as end:
        job.result = end.value
        return False
    except psycopg.Error:
        raise
    except Exception as error:  # noqa: BLE001 (raised in the task that waits for it)
        job.error = error
        return False
    return True


class SpaceConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that knows which space it has entered in this exchange; None at first."""

    space: str | None = None


EXPECTED = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, special characters percent-encoded"
_LOCK = 0x52445246
"""The advisory lock for schema changes ("RDRF")."""
_DEFAULTS = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "fallback_application_name": "redraft"}
"""Without these timeouts, a connection would wait forever for a server that does not answer."""
IDLE_TIMEOUT = 2.0
"""Seconds after which the server ends a session whose process has stopped in a transaction.

Otherwise, rows that it has locked, such as the lease of an agent, could not be written until it continues."""
SETTINGS = {
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
    "default_transaction_isolation": "read committed",
    "row_security": "on",
}
"""The session settings that Redraft relies on; a database or a user may have other defaults."""
_SETTINGS_ROWS = ", ".join(f"('{name}', '{value}')" for name, value in SETTINGS.items())
USE_SETTINGS = f"""
SELECT set_config(name, wanted, false) FROM (VALUES {_SETTINGS_ROWS}) AS settings (name, wanted)
WHERE current_setting(name) <> wanted""".encode()  # noqa: S608 (made of constants)
"""Changes only settings that differ: behind a pooler, a change may outlast the session."""
_ESCAPED, _ESCAPE = re.compile(r"[\\\s]"), r"\\\g<0>"
"""Whitespace separates options unless a backslash escapes it."""


class Database:
    """Connects to the database of a URL, and migrates its schema.

    `name` identifies the database in messages, without the password. Raises `ConfigError` for an invalid URL.
    """

    is_isolated = False
    """Whether each session sees a single space, which it has to enter first."""
    is_hasty = False
    """Whether commits return before they reach the disk."""

    def __init__(self, url: str, wait: float) -> None:
        self._wait = wait
        self._conninfo, self.name = _parsed_url(url)

    def connect(self) -> SpaceConnection:
        """Connect to the database; migrates its schema if necessary.

        Raises `psycopg.Error`, and `StoreSettingsError` if the database can't be used.
        """
        connection = SpaceConnection.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            self._check_encoding(connection)
            connection.execute(USE_SETTINGS)
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
        """Whether the schema is current; raises `StoreSettingsError` if it is of a newer Redraft."""
        version, newest = _version(connection), len(MIGRATIONS)
        if version > newest:
            raise StoreSettingsError(
                f"The PostgreSQL database {self.name} has version {version} of the schema, and this Redraft "
                f"knows {newest}: it was written by a newer one, so upgrade redraft."
            )
        return version == newest

    def conninfo_with(self, settings: Mapping[str, str]) -> str:
        """Connection parameters that start a session with these settings."""
        options = [f"-c {name}={_ESCAPED.sub(_ESCAPE, value)}" for name, value in settings.items()]
        before = _with_defaults(conninfo_to_dict(self._conninfo)).get("options", "")
        return make_conninfo(self._conninfo, options=" ".join([before, *options]).strip())

    @contextmanager
    def changing(self, connection: psycopg.Connection) -> Generator[None]:
        """Hold the lock for schema changes, in a transaction."""
        with connection.transaction():
            connection.execute(
                "SELECT set_config('lock_timeout', %s, true), "
                "set_config('idle_in_transaction_session_timeout', %s, true)",
                (milliseconds(self._wait), milliseconds(IDLE_TIMEOUT)),
            )
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            yield

    def _migrate(self, connection: psycopg.Connection) -> None:
        with self.changing(connection):
            if self._is_current(connection):
                return  # another process was faster
            for script in MIGRATIONS[_version(connection) :]:
                connection.execute(script.encode())
            connection.execute("UPDATE redraft_schema SET version = %s", (len(MIGRATIONS),))


def milliseconds(seconds: float) -> str:
    """A duration in the form of PostgreSQL's settings."""
    return f"{round(seconds * 1000)}ms"


def _version(connection: psycopg.Connection) -> int:
    # Unlike to_regclass, this sees commits made while waiting for the lock.
    visible = "SELECT 1 FROM pg_class WHERE relname = 'redraft_schema' AND pg_table_is_visible(oid)"
    if connection.execute(visible).fetchone() is None:
        return 0
    row = connection.execute("SELECT version FROM redraft_schema").fetchone()
    return row[0] if row else 0


def _parsed_url(url: str) -> tuple[str, str]:
    """The connection parameters and the database's name; errors never quote the URL."""
    if not url.startswith(("postgresql://", "postgres://")):
        scheme = url.partition(":")[0] if "://" in url else ""
        got = f"one that begins with {scheme + '://'!r}" if scheme else "none"
        raise ConfigError(f"The URL of a PostgreSQL database must be {EXPECTED}; got {got}.")
    try:
        parameters = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):  # its message may contain parts of the password
        parameters = None
    # A password that is not encoded spills into these parts; anything after a NUL is ignored.
    if (
        parameters is None
        or "\0" in url
        or any("@" in str(parameters.get(part)) for part in ("host", "port", "dbname"))
    ):
        raise ConfigError(f"The URL of a PostgreSQL database can't be parsed: it must be {EXPECTED}.")
    conninfo = make_conninfo(url, **{**_DEFAULTS, **parameters, "client_encoding": "UTF8"})
    return conninfo, _name(parameters)


def _name(parameters: dict[str, Any]) -> str:
    """`'database' on host:port`, with libpq's defaults for parts that the URL omits."""
    options = _with_defaults(parameters)
    host = options.get("host") or options.get("hostaddr") or "localhost"
    database = options.get("dbname") or options.get("user") or ""
    return f"{database!r} on {host}:{options.get('port') or 5432}"


def _with_defaults(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters, with libpq's defaults from the environment for missing ones."""
    return {
        option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()
    } | parameters


ROLE = "redraft_agents"
"""A role that is subject to policies, for users that bypass them."""

ISOLATED_TABLES = tuple(
    f"redraft_agent_{name}" for name in ("records", "runs", "run_shares", "uses", "expenses")
)
"""The tables in which a session sees only one space."""

_BYPASSES_POLICIES = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
_RIGHTS = f"""
SELECT format('GRANT USAGE ON SCHEMA %s TO {ROLE}', relnamespace::regnamespace),
    format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO {ROLE}', oid::regclass)
FROM pg_class WHERE oid IN ({", ".join(f"'{table}'::regclass" for table in ISOLATED_TABLES)}) AND NOT (
    has_schema_privilege('{ROLE}', relnamespace, 'USAGE')
    AND has_table_privilege('{ROLE}', oid, 'SELECT') AND has_table_privilege('{ROLE}', oid, 'INSERT')
    AND has_table_privilege('{ROLE}', oid, 'UPDATE') AND has_table_privilege('{ROLE}', oid, 'DELETE'))"""  # noqa: S608 (made of a constant)


class IsolatedDatabase(Database):
    """Opens sessions with row-level security in force.

    Superusers and users with BYPASSRLS bypass policies. They switch to the role `redraft_agents`, which is
    created if it is missing; if that is not allowed, one warning says so.
    """

    is_isolated = True

    def __init__(self, url: str, wait: float) -> None:
        super().__init__(url, wait)
        self._warned = False

    def connect(self) -> SpaceConnection:
        """Connect to the database, subject to its policies; migrates its schema if necessary."""
        connection = super().connect()
        try:
            if _scalar(connection, _BYPASSES_POLICIES):
                self._take_on_role(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def session(self, space: str) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        """Open a connection in autocommit mode that starts in a space.

        Resetting the session keeps it there. Raises what `connect` raises.
        """
        role = await asyncio.to_thread(self._current_role)
        settings = {**SETTINGS, "redraft.space": space, **({"role": ROLE} if role == ROLE else {})}
        return await psycopg.AsyncConnection.connect(
            self.conninfo_with(settings), autocommit=True, prepare_threshold=None
        )

    def _current_role(self) -> str:
        """The role of a connection; creates the tables and the role if necessary.

        The thread closes the connection, because the task that waits for it may be cancelled.
        """
        with self.connect() as connection:
            return _scalar(connection, "SELECT current_user")

    def _take_on_role(self, connection: psycopg.Connection) -> None:
        if _scalar(connection, "SELECT pg_backend_pid()") != connection.info.backend_pid:
            raise StoreSettingsError(
                f"The PostgreSQL database {self.name} is behind a pooler, and its user bypasses row-level "
                "security: switching the role there could also switch it for other clients. Use a user "
                "without SUPERUSER and BYPASSRLS, or connect without the pooler."
            )
        try:
            with self.changing(connection):
                _make_role(connection)
            _set_role(connection)
        except errors.InsufficientPrivilege as error:
            self._warn(" ".join(str(error).split()))
        else:
            if _scalar(connection, _BYPASSES_POLICIES):
                self._warn(f"{ROLE} bypasses it, too")

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "The user of the PostgreSQL database %s bypasses row-level security and can't switch to a "
                "role that doesn't (%s), so agents are isolated only by the queries that Redraft sends. Use "
                "a user without SUPERUSER and BYPASSRLS, or run as an administrator: CREATE ROLE %s; GRANT "
                "%s TO that user.",
                self.name,
                reason,
                ROLE,
                ROLE,
            )


def _make_role(connection: psycopg.Connection) -> None:
    """Create the role if it is missing, and grant its privileges."""
    exists = f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"  # noqa: S608 (made of a constant)
    if not _scalar(connection, exists):
        # Roles belong to the whole server, so a session of another database may be faster.
        with suppress(errors.DuplicateObject, errors.UniqueViolation), connection.transaction():
            connection.execute(f"CREATE ROLE {ROLE}".encode())
    for grants in connection.execute(_RIGHTS.encode()).fetchall():
        for grant in grants:
            connection.execute(grant.encode())
    if _scalar(connection, _RIGHTS):  # PostgreSQL does not fail if the user may not grant a privilege
        raise errors.InsufficientPrivilege(f"{ROLE} can't be granted the use of the schema and the table")


def _set_role(connection: psycopg.Connection) -> None:
    try:
        connection.execute(f"SET ROLE {ROLE}".encode())
    except errors.InsufficientPrivilege:  # since PostgreSQL 16, a role's creator has to grant it
        connection.execute(f"GRANT {ROLE} TO CURRENT_USER".encode())
        connection.execute(f"SET ROLE {ROLE}".encode())


def _scalar(connection: psycopg.Connection, sql: str) -> Any:
    row = connection.execute(sql.encode()).fetchone()
    return row and row[0]


# Times are microseconds since 1970 in UTC. `data` is JSON as text, because jsonb rejects NUL characters and
# lone surrogates and does not keep the spelling of numbers; `fields` makes it searchable: it holds
# '"status":"finished"' for each top-level field. `checksum` is CRC-32 of kind, key, schema_version and data.
# The other tables hold the columns of `stores.run_index`, texts escaped as in JSON.
_TYPES = {
    "key": 'text COLLATE "C"',
    "str": "text",
    "bool": "integer",
    "int": "bigint",
    "time": "bigint",
    "float": "double precision",
}
_POLICIES = "".join(
    f"""
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY redraft_own_space ON {table} USING (space = current_setting('redraft.space', true));"""
    for table in ISOLATED_TABLES
)
MIGRATIONS = (
    "",
    f"""
CREATE TABLE redraft_schema (version integer NOT NULL);
INSERT INTO redraft_schema VALUES (0);

CREATE TABLE redraft_records (
    space          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    data           text             NOT NULL,
    fields         text[] COLLATE "C" NOT NULL,
    schema_version integer          NOT NULL,
    checksum       bigint           NOT NULL,
    revision       bigint           NOT NULL,
    created_at     bigint           NOT NULL,
    updated_at     bigint           NOT NULL,
    PRIMARY KEY (space, kind, key)
);

CREATE INDEX redraft_records_newest ON redraft_records (space, kind, created_at, key);
CREATE INDEX redraft_records_fields ON redraft_records USING gin (fields);

CREATE TABLE redraft_runs (
    {columns_of("runs", _TYPES)},
    day integer NOT NULL GENERATED ALWAYS AS (created_at / 86400000000) STORED,
    PRIMARY KEY (space, run_id)
);
CREATE INDEX redraft_runs_newest ON redraft_runs (space, created_at, run_id);
CREATE INDEX redraft_runs_of_agents ON redraft_runs (space, agent, created_at, run_id);
CREATE INDEX redraft_runs_of_tasks ON redraft_runs (space, task, created_at, run_id);
CREATE INDEX redraft_runs_by_status ON redraft_runs (space, status, created_at, run_id);
CREATE INDEX redraft_runs_by_day ON redraft_runs (space, day, created_at, run_id);

CREATE TABLE redraft_run_shares (
    {columns_of("run_shares", _TYPES)},
    PRIMARY KEY (space, run_id, facet, value)
);

CREATE TABLE redraft_uses (
    {columns_of("uses", _TYPES)},
    PRIMARY KEY (space, kind, key)
);
CREATE INDEX redraft_uses_of_subjects ON redraft_uses (space, kind, subject, at, run_id);

CREATE TABLE redraft_expenses (
    {columns_of("expenses", _TYPES)},
    PRIMARY KEY (space, kind, key)
);

-- The records of agents that share a database: a session sees those of the space that it has set, whatever
-- SQL it runs, and whoever owns the tables. The records of projects have tables of their own: a policy would
-- keep their index on `fields` from being used, because `&&` could leak what hidden rows were compared with.
CREATE TABLE redraft_agent_records (LIKE redraft_records, PRIMARY KEY (space, kind, key));
CREATE INDEX redraft_agent_records_newest ON redraft_agent_records (space, kind, created_at, key);
CREATE TABLE redraft_agent_runs (LIKE redraft_runs INCLUDING GENERATED, PRIMARY KEY (space, run_id));
CREATE INDEX redraft_agent_runs_newest ON redraft_agent_runs (space, created_at, run_id);
CREATE TABLE redraft_agent_run_shares (LIKE redraft_run_shares, PRIMARY KEY (space, run_id, facet, value));
CREATE TABLE redraft_agent_uses (LIKE redraft_uses, PRIMARY KEY (space, kind, key));
CREATE TABLE redraft_agent_expenses (LIKE redraft_expenses, PRIMARY KEY (space, kind, key));
{_POLICIES}
-- The directory of agents shows what each says of itself, and nothing else.
CREATE POLICY redraft_directory ON redraft_agent_records FOR SELECT
    USING (kind = 'agent' AND current_setting('redraft.space', true) = 'agents');
""",  # noqa: S608 (made of constants)
)
"""The schema, one script per version; version 1 was never released."""


_POOLER = "pooler"
"""Placeholder for the SQL state of a refusal by PgBouncer, which has none."""
_EXPLANATIONS = {
    "28P01": "rejects the password: check REDRAFT_DATABASE_URL, or wherever the URL comes from",
    "28000": "rejects this user: check the server's pg_hba.conf, and the user's name in the URL",
    "3D000": "does not exist: create it with `createdb`, or name another database in the URL",
    "42501": "can't be used by this user: let it create and use tables (GRANT CREATE, USAGE ON SCHEMA ...)",
    "3F000": "has no schema in which this user may create tables: check its search_path",
    "25006": "is read-only (a standby server, or default_transaction_read_only is on): give the URL of a "
    "server that accepts writes",
    "53100": "can't grow, because the server's disk is full: free some space",
    "53300": "has no free connection: raise max_connections, or use fewer processes",
    "54000": "can't hold so much in one record",
    "55P03": "has been locked by another session: check pg_stat_activity, or try again later",
    "57P01": "is stopping: try again when it is available",
    "57P02": "has crashed: try again when it is available",
    "57P03": "is starting or stopping: try again in a moment",
    _POOLER: "is behind a pooler that refuses the options of a session: set search_path and the like with "
    "ALTER ROLE ... SET, not in the URL; for SQL sessions of agents, connect without the pooler",
}
_SETTINGS_STATES = frozenset({"28P01", "28000", "3D000", "42501", "3F000", _POOLER})
"""Errors that last until the URL, the database or its privileges change."""
_UNREACHABLE = "can't be reached: check that the server runs, and the host and port of the URL"
_STATES_BY_MESSAGE = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    'no pg_hba.conf entry|pg_hba.conf rejects|authentication failed|role ".*" ': "28000",
    'database ".*" does not exist': "3D000",
    "permission denied": "42501",
    "too many clients|too many connections|remaining connection slots": "53300",
    "starting up|shutting down|recovery mode|accepting connections": "57P03",
    "unsupported startup parameter": _POOLER,
}
"""Messages of the server while connecting, for which libpq has no SQL state."""


def explained(error: Error, name: str) -> StoreError:
    """Convert an error of psycopg to a `StoreError` with an explanation; `name` is the database's name."""
    message = " ".join(str(error).split())
    state = error.sqlstate
    if state is None:
        # Names, which may contain any word, come before this part.
        answer = message.partition("FATAL: ")[2] or message.partition("fe_sendauth: ")[2]
        state = next((code for text, code in _STATES_BY_MESSAGE.items() if re.search(text, answer)), "")
    reason = _EXPLANATIONS.get(state, "can't be used" if state else _UNREACHABLE)
    kind = StoreSettingsError if state in _SETTINGS_STATES else StoreError
    return kind(f"The PostgreSQL database {name} {reason} ({message}).")


def unknown_outcome(error: Error, name: str) -> StoreError:
    """The `StoreError` for a write that may or may not have been committed."""
    message = " ".join(str(error).split())
    return StoreError(
        f"The PostgreSQL database {name} was lost while a write was committed, which may be there or not: "
        f"read it before you write it again ({message})."
    )
