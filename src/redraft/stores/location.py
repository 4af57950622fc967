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
    """The file of a project's store, or the URL of its PostgreSQL database, and the project's space in it.

    Its text is for people: without the password.
    """

    database: Path | str
    space: str
    named_by: str = field(default="The setting `database_url` (REDRAFT_DATABASE_URL)", compare=False)
    """Where a user names the URL, for messages."""

    def __str__(self) -> str:
        if isinstance(self.database, Path):
            return str(self.database)
        project = f" (project {self.space!r})" if self.space else ""
        return f"{without_password(self.database)}{project}"

    def open(self) -> Store:
        """Return the store; raises `ConfigError` for an invalid URL."""
        if isinstance(self.database, Path):
            from redraft.stores.sqlite import SqliteStore  # noqa: PLC0415 (a run that is not stored needs none)

            return SqliteStore(self.database, self.space)
        from redraft.stores.postgres import PostgresStore  # noqa: PLC0415 (likewise)

        try:
            return PostgresStore(self.database, self.space)
        except ConfigError as error:
            error.args = (f"{self.named_by}: {error}",)
            raise


_given: ContextVar[Place | None] = ContextVar("given", default=None)


@contextmanager
def store_at(given: str | None) -> Generator[None]:
    """Within the block, use the store at a path or PostgreSQL URL as the project's; None changes nothing.

    It is the store that `SqliteStore(path)` or `PostgresStore(url)` opens. Raises `ConfigError` if there is
    no such file.
    """
    if given is None:
        yield
        return
    token = _given.set(Place(given if "://" in given else _existing_file(given), "", named_by="--database"))
    try:
        yield
    finally:
        _given.reset(token)


def _existing_file(given: str) -> Path:
    path = Path(given).absolute()
    try:
        if path.is_file():
            return path
        if path.is_dir():
            raise ConfigError(f"--database {given!r} is a folder; name the file in it, such as {DATABASE}.")
    except OSError as error:  # no permission for its folder, say
        raise ConfigError(f"--database {given!r} can't be used: {error.strerror}.") from error
    raise ConfigError(
        f"There is no database {given!r}; give a file, or a URL that begins with postgresql://."
    )


def project_place() -> Place | None:
    """Return where the project that this process works in keeps its records; None if it keeps none.

    Projects that share a place see only their own records; projects of one name are one project. A store that
    was named for this command (`store_at`) takes the place of the project's.
    """
    if (given := _given.get()) is not None:
        return given
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
    """Return the name under which this project is set apart from others on a server."""
    # Many machines have a project in the folder /app.
    return load_settings().project or f"{socket.gethostname()}:{project_folder()}"


def project_store() -> Store | None:
    """Return the store of the project that this process works in; None if the settings keep nothing.

    It is the same object each time, so that all runs of the process share its commits.
    """
    place = project_place()
    if place is None:
        return None
    if place not in _opened:
        _opened[place] = place.open()
    return _opened[place]


def required_project_store(things: str) -> Store:
    """Return the project's store; raises `ConfigError` if the settings keep nothing, hence no `things`."""
    store = project_store()
    if store is None:
        raise ConfigError(
            f"The setting `home` (REDRAFT_HOME) is empty, so no {things} are stored here. Set it to a folder."
        )
    return store


async def close_project_store() -> None:
    """Finish what is written to the project's store, and close it; its next use reopens it."""
    place = project_place()
    if place in _opened:
        await _opened[place].aclose()
