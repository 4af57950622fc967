"""A PostgreSQL server for a benchmark: the one that is given, or one of its own."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from _measure import PROJECT

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def server(*, durable: bool = False) -> Generator[str | None]:
    """Give the URL of REDRAFT_TEST_POSTGRES, or of a server that the tests' package starts; None without.

    A `durable` one waits for its disk.
    """
    if given := os.environ.get("REDRAFT_TEST_POSTGRES"):
        yield given
        return
    sys.path.insert(0, str(PROJECT / "tests"))
    from support.postgres_server import CannotRunError, Server

    try:
        started = Server(durable=durable)
        started.start()
    except CannotRunError as error:
        print(f"No PostgreSQL server can run here: {error}.", file=sys.stderr)
        yield None
        return
    try:
        yield started.url()
    finally:
        started.remove()
