"""SqliteFile: a connection to the database file of a store, opened when it is needed and after an error."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from stat import S_IMODE
from typing import TYPE_CHECKING

from redraft.core.errors import StoreError
from redraft.stores.lock import FileLock
from redraft.stores.migrate import scripts
from redraft.stores.private import make_file, make_folder
from redraft.stores.sqlite_records import prepare

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

APPLICATION_ID = 0x52445246
"""How a file says that it is ours ("RDRF")."""
OLDEST = (3, 35)
"""The first SQLite that returns what it has written."""

_SETTINGS = "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"


class SqliteFile:
    """Hold one thread's connection to a database file, and the lock beside it.

    A file that is missing or empty becomes a database of ours, readable by its owner only. A folder that is
    missing is made, and ignores itself in git. A file of something else, or of a newer Redraft, is refused.
    What can't be opened or locked raises `sqlite3.Error`, `OSError` or `StoreError`.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self._path = path
        self._wait = wait
        self._lock = FileLock(path.with_name(f"{path.name}.lock"), wait)
        self._connection: sqlite3.Connection | None = None
        self._inode = (0, 0)

    def locked(self) -> AbstractContextManager[None]:
        """Be the one process that writes; make the folder if it is missing."""
        if self._connection is None:
            make_folder(self._path.parent)
        return self._lock.held()

    def connection(self) -> sqlite3.Connection:
        """Return a connection to a database with the newest schema."""
        if self._connection is None:
            self._connection = self._open()
        elif self._inode != _inode(self._path):
            self.close()
            raise StoreError(
                f"{self._path} was deleted or replaced while it was in use, and what it held is gone; "
                "the next write begins a new one."
            )
        return self._connection

    def exists(self) -> bool:
        """Say if there is a database to read, without making one."""
        return self._connection is not None or self._path.exists()

    def drop(self) -> None:
        """Let go of the connection, and of what it has not committed; the next use opens another one."""
        if self._connection is not None:
            with suppress(sqlite3.Error):  # what was committed is safe, and there is nothing else to lose
                self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Let go of the file, and of the lock."""
        self.drop()
        self._lock.close()

    def _open(self) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreError(
                f"{self._path} needs SQLite {OLDEST[0]}.{OLDEST[1]}, and this Python has "
                f"{sqlite3.sqlite_version}: use a Python that is built with a newer one."
            )
        if not self._path.exists():
            with self.locked():
                make_file(self._path)  # SQLite would make it with the modes that the umask leaves
        for side in ("-wal", "-shm"):
            # They keep the mode that the database had when they were made, be it read-only for a while.
            with suppress(OSError):
                self._path.with_name(f"{self._path.name}{side}").chmod(S_IMODE(self._path.stat().st_mode))
        uri = f"{self._path.as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, timeout=self._wait, isolation_level=None, uri=True)
        try:
            self._inode = _inode(self._path)
            connection.executescript(_SETTINGS)
            prepare(connection)
            if not self._is_current(connection):
                with self.locked():
                    self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        """Say if a database has the newest schema; raises `StoreError` for one that is not ours or newer."""
        version, newest = self._version(connection), len(scripts("sqlite"))
        if version > newest:
            raise StoreError(
                f"{self._path} has version {version} of the schema, and this Redraft knows {newest}: it was "
                "written by a newer one, so upgrade redraft."
            )
        return version == newest

    def _version(self, connection: sqlite3.Connection) -> int:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == APPLICATION_ID or (application, version, objects) == (0, 0, 0):
            return version
        raise StoreError(
            f"{self._path} is a database of another program (application_id {application}, {objects} tables "
            "and indexes), and was left as it is: give the store another path."
        )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._is_current(connection):
            return  # another process was quicker
        version, steps = self._version(connection), scripts("sqlite")
        if version == 0:
            self._path.chmod(0o600)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.executescript(
            f"BEGIN IMMEDIATE; {''.join(steps[version:])} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {len(steps)}; COMMIT;"
        )


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
