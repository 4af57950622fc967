"""Editing a text in the editor of the person who sits there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from redraft.core.errors import ConfigError

FALLBACK = "vi"


def can_edit() -> bool:
    """Say whether there is an editor, or a terminal to have one in."""
    return bool(_chosen()) or sys.stdin.isatty()


def edited(text: str, name: str) -> str:
    """Return a text as it is after it was edited in `$VISUAL`, `$EDITOR`, else vi; `name` is its file's.

    Raises `ConfigError` where there is neither an editor nor a terminal, and for an editor that fails.
    """
    if not can_edit():
        raise ConfigError("There is no terminal to edit in; set EDITOR, or edit the file itself.")
    command = shlex.split(_chosen() or FALLBACK)
    with tempfile.TemporaryDirectory(prefix="redraft-") as folder:
        path = Path(folder) / name
        path.write_text(text, "utf-8")
        try:
            code = subprocess.run([*command, str(path)], check=False).returncode  # noqa: S603 (the editor that the person chose)
        except OSError as error:
            raise ConfigError(f"The editor {command[0]!r} can't be run: {error.strerror}.") from error
        if code:
            raise ConfigError(f"The editor {command[0]!r} ended with {code}, so nothing was changed.")
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"What the editor left can't be read: {error}.") from error


def _chosen() -> str:
    return os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
