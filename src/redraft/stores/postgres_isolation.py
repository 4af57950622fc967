"""IsolatedDatabase: sessions that are held to the policies of the tables, whoever the user is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors

from redraft.redact.log import logger
from redraft.stores.postgres_database import Database, SpaceConnection

ROLE = "redraft_agents"
"""A role without rights of its own, which a user who passes over policies takes on."""

_PASSES_OVER = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
_RIGHTS = f"""
SELECT format('GRANT USAGE ON SCHEMA %s TO {ROLE}', relnamespace::regnamespace),
    format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO {ROLE}', oid::regclass)
FROM pg_class WHERE oid = 'redraft_agent_records'::regclass AND NOT (
    has_schema_privilege('{ROLE}', relnamespace, 'USAGE')
    AND has_table_privilege('{ROLE}', oid, 'SELECT') AND has_table_privilege('{ROLE}', oid, 'INSERT')
    AND has_table_privilege('{ROLE}', oid, 'UPDATE') AND has_table_privilege('{ROLE}', oid, 'DELETE'))"""  # noqa: S608 (made of a constant)


class IsolatedDatabase(Database):
    """Connect to a database in sessions that see rows of agents by the policies alone.

    Superusers and users with BYPASSRLS pass over policies. They take on the role `redraft_agents`, which is
    made where it is missing; where that is not allowed, a warning says so once.
    """

    is_isolated = True

    def __init__(self, url: str, wait: float) -> None:
        super().__init__(url, wait)
        self._warned = False

    def connect(self) -> SpaceConnection:
        """Return a connection to a database with the newest schema, that is held to its policies."""
        connection = super().connect()
        try:
            if _asked(connection, _PASSES_OVER):
                self._take_on_role(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def session(self, space: str) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        """Return a connection in autocommit mode that has entered a space from its beginning.

        What resets a session leaves it there. Raises what `connect` does.
        """
        with await asyncio.to_thread(self.connect) as made:  # the tables, and the role
            role = _asked(made, "SELECT current_user")
        settings = {"redraft.space": space, **({"role": ROLE} if role == ROLE else {})}
        return await psycopg.AsyncConnection.connect(self.conninfo_with(settings), autocommit=True)

    def _take_on_role(self, connection: psycopg.Connection) -> None:
        try:
            with self.changing(connection):
                _make_role(connection)
            _set_role(connection)
        except errors.InsufficientPrivilege as error:
            self._warn(" ".join(str(error).split()))
        else:
            if _asked(connection, _PASSES_OVER):
                self._warn(f"{ROLE} passes over it, too")

    def _warn(self, said: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "The user of the PostgreSQL database %s passes over row-level security, and can't take on a "
                "role that does not (%s): agents are kept apart by what is asked alone. Give a user without "
                "SUPERUSER and BYPASSRLS, or as an administrator: CREATE ROLE %s; GRANT %s TO that user.",
                self.name,
                said,
                ROLE,
                ROLE,
            )


def _make_role(connection: psycopg.Connection) -> None:
    """Make what is missing of the role, its rights, and the user's right to take it on."""
    exists = f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"  # noqa: S608 (made of a constant)
    if not _asked(connection, exists):
        # A server has its roles in common, so another database may be quicker.
        with suppress(errors.DuplicateObject, errors.UniqueViolation), connection.transaction():
            connection.execute(f"CREATE ROLE {ROLE}".encode())
    for grants in connection.execute(_RIGHTS.encode()).fetchall():
        for grant in grants:
            connection.execute(grant.encode())
    if _asked(connection, _RIGHTS):  # to grant what one may not is no error to PostgreSQL
        raise errors.InsufficientPrivilege(f"{ROLE} can't be let use the schema and the table")


def _set_role(connection: psycopg.Connection) -> None:
    try:
        connection.execute(f"SET ROLE {ROLE}".encode())
    except errors.InsufficientPrivilege:  # who has made a role may grant it, and since PostgreSQL 16 has to
        connection.execute(f"GRANT {ROLE} TO CURRENT_USER".encode())
        connection.execute(f"SET ROLE {ROLE}".encode())


def _asked(connection: psycopg.Connection, sql: str) -> Any:
    row = connection.execute(sql.encode()).fetchone()
    return row and row[0]
