"""explained: why a PostgreSQL database could not be read or written, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redraft.core.errors import StoreError, StoreSettingsError

if TYPE_CHECKING:
    from psycopg import Error

_SAYS = {
    "28P01": "refuses the password: see REDRAFT_DATABASE_URL, or where you got the URL from",
    "28000": "refuses this user: see the server's pg_hba.conf, and the user's name in the URL",
    "3D000": "does not exist: make it with `createdb`, or name another one in the URL",
    "42501": "can't be used by this user: let it create and use tables (GRANT CREATE, USAGE ON SCHEMA ...)",
    "3F000": "has no schema in which this user may create tables: see its search_path",
    "25006": "can be read only (a standby server?): give the URL of the one that takes writes",
    "53100": "can't grow, because the server's disk is full: free some space",
    "53300": "has no connection to spare: raise max_connections, or use fewer processes",
    "54000": "can't hold so much in one record",
    "55P03": "has been locked by another session: see pg_stat_activity, or try again later",
    "57P01": "is stopping: try again when it is back",
    "57P02": "has crashed: try again when it is back",
    "57P03": "is starting or stopping: try again in a moment",
}
_SETTINGS = frozenset({"28P01", "28000", "3D000", "42501", "3F000"})
"""What only somebody who changes the URL, the database or its rights can mend."""
_AWAY = "can't be reached: see if the server runs, and the host and port of the URL"
_TEXTS = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    'no pg_hba.conf entry|pg_hba.conf rejects|authentication failed|role ".*" ': "28000",
    'database ".*" does not exist': "3D000",
    "permission denied": "42501",
    "too many clients|too many connections|remaining connection slots": "53300",
    "starting up|shutting down|recovery mode|accepting connections": "57P03",
}
"""What the server says where libpq gives no code: while one connects."""


def explained(error: Error, name: str) -> StoreError:
    """Return the `StoreError` that says what an error of psycopg means for a database of a name."""
    said = " ".join(str(error).split())
    state = error.sqlstate
    if state is None:
        # Before this stand names, which may hold any word.
        answer = said.partition("FATAL: ")[2] or said.partition("fe_sendauth: ")[2]
        state = next((code for text, code in _TEXTS.items() if re.search(text, answer)), "")
    says = _SAYS.get(state, "can't be used" if state else _AWAY)
    kind = StoreSettingsError if state in _SETTINGS else StoreError
    return kind(f"The PostgreSQL database {name} {says} ({said}).")


def unknown(error: Error, name: str) -> StoreError:
    """Return the `StoreError` for a write whose fate nobody knows."""
    said = " ".join(str(error).split())
    return StoreError(
        f"The PostgreSQL database {name} was lost while a write was committed, which may be there or not: "
        f"read it before you write it again ({said})."
    )
