"""Where `redraft revise` puts the best version: on stdout, or in a file that nothing is lost to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from redraft.cli.console import emit_json, emit_made
from redraft.cli.documents import run_document
from redraft.cli.keeping import resumed
from redraft.cli.withheld import withheld
from redraft.core.codec import to_json
from redraft.core.errors import ConfigError
from redraft.core.texts import as_text

if TYPE_CHECKING:
    from pathlib import Path

    from redraft.core.result import ReflectionResult


def check_output(path: Path, *, force: bool, option: str = "--output") -> None:
    """Raise `ConfigError`, before anything is spent, for a path that could not be written to in the end."""
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder; {option} takes a file.")
    if path.exists() and not force:
        advice = "--force lets it be overwritten" if resumed.get() is None else "move it away"
        raise ConfigError(f"{str(path)!r} exists; {advice}.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{str(path)!r} cannot be written to.")


def is_own_output(path: Path) -> bool:
    """Say whether a file holds what the run that is taken up again wrote there when it failed."""
    again = resumed.get()
    best = None if again is None else again.record.version(again.record.best)
    if best is None or not path.is_file():
        return False
    return path.read_bytes() == as_text(best.output).encode(errors="replace")


def deliver(result: ReflectionResult, path: Path | None, *, force: bool, as_json: bool) -> None:
    """Write the best version to `path`, else to stdout, where the JSON document takes its place if wanted.

    The best version is what was asked for, so it is there as it is; from what the document tells of the run
    secrets are withheld. A path that can't be written to any more sends it to stdout, too, and raises
    `ConfigError`.
    """
    best = as_text(result.best_output)
    if as_json:
        told = withheld(to_json(run_document(result)))
        emit_json(told | {"best_output": result.best_output})
    elif path is None:
        emit_made(best)
    if path is None:
        return
    try:
        write_output(path, best, force=force)
    except ConfigError as error:
        if not as_json:
            emit_made(best)
        raise ConfigError(f"{error} See stdout.") from error


def write_output(path: Path, text: str, *, force: bool) -> None:
    """Write a file that is not there yet, unless `force`; raises `ConfigError` where that can't be."""
    try:
        with path.open("w" if force else "x", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written to: {error.strerror}.") from error
