"""Where a project keeps its records."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.errors import ConfigError
from redraft.settings import load_settings, project_folder, settings_in, without_password

if TYPE_CHECKING:
    from collections.abc import Generator

    from redraft.stores.base import Store

DATABASE = "redraft.db"

_opened: dict[Place, Store] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a project's store, and the project's space in it; `str` leaves out the password."""

    database: Path | str
    """A SQLite file, or the URL of a PostgreSQL database."""
    space: str
    named_by: str = field(default="The setting `database_url` (REDRAFT_DATABASE_URL)", compare=False)
    """Where a user names the URL, for messages."""

    def __str__(self) -> str:
        if isinstance(self.database, Path):
            return str(self.database)
        project = f" (project {self.space!r})" if self.space else ""
        return f"{without_password(self.database)}{project}"

    def open(self) -> Store:
        """Open the store; raises `ConfigError` for an invalid URL."""
        if isinstance(self.database, Path):
            from redraft.stores.sqlite import SqliteStore  # noqa: PLC0415 (a run that is not stored needs no store)

            return SqliteStore(self.database, self.space)
        from redraft.stores.postgres import PostgresStore  # noqa: PLC0415 (only for its users)

        try:
            return PostgresStore(self.database, self.space)
        except ConfigError as error:
            error.args = (f"{self.named_by}: {error}",)
            raise


_override: ContextVar[Place | None] = ContextVar("override", default=None)


@contextmanager
def store_at(database: str | None) -> Generator[None]:
    """Within the block, use the store at a path or PostgreSQL URL as the project's; None changes nothing.

    It is the store that `SqliteStore(path)` or `PostgresStore(url)` opens. Raises `ConfigError` if the file
    doesn't exist.
    """
    if database is None:
        yield
        return
    location = database if "://" in database else _existing_file(database)
    token = _override.set(Place(location, "", named_by="--database"))
    try:
        yield
    finally:
        _override.reset(token)


def _existing_file(name: str) -> Path:
    path = Path(name).absolute()
    try:
        if path.is_file():
            return path
        if path.is_dir():
            raise ConfigError(f"--database {name!r} is a folder; name the file in it, such as {DATABASE}.")
    except OSError as error:  # no permission for its folder, say
        raise ConfigError(f"--database {name!r} can't be used: {error.strerror}.") from error
    raise ConfigError(f"There is no database {name!r}; give a file, or a URL that begins with postgresql://.")


def project_place() -> Place | None:
    """Location of the current project's records; None if the settings keep none.

    Projects that share a place see only their own records; projects with the same name are one project. A
    store named for this command (`store_at`) replaces the project's.
    """
    if (override := _override.get()) is not None:
        return override
    project = project_folder()
    settings = settings_in(project)
    if not settings.home:
        return None
    if settings.database_url is not None:
        return Place(settings.database_url, server_space())
    if Path(settings.home).is_absolute():
        return Place(Path(settings.home) / DATABASE, settings.project or str(project))
    return Place(project / settings.home / DATABASE, "")


def server_space() -> str:
    """Name that separates this project from others on a server."""
    # Many machines have a project in the folder /app.
    return load_settings().project or f"{socket.gethostname()}:{project_folder()}"


def project_store() -> Store | None:
    """The current project's store; None if the settings keep nothing.

    Each call returns the same object, so that all runs of the process share its commits.
    """
    place = project_place()
    if place is None:
        return None
    if place not in _opened:
        _opened[place] = place.open()
    return _opened[place]


def required_project_store(things: str) -> Store:
    """The project's store; raises `ConfigError`, which names the `things`, if the settings keep nothing."""
    store = project_store()
    if store is None:
        raise ConfigError(
            f"The setting `home` (REDRAFT_HOME) is empty, so no {things} are stored here. Set it to a folder."
        )
    return store


async def close_project_store() -> None:
    """Finish pending writes to the project's store, and close it; the next use reopens it."""
    place = project_place()
    if place in _opened:
        await _opened[place].aclose()
