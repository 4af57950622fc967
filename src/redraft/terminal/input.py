"""The input of commands: answers, edited texts and files."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

import typer

from redraft._files import replace_file, reporting
from redraft._locks import check_regular
from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

DEFAULT_EDITOR = "vi"
MAX_BYTES = 1_000_000
"""Bytes of the longest file with a text for a lesson."""


def confirm(question: str, *, to: str = "write", done: str = "written") -> bool:
    """Ask a yes-or-no question on stderr.

    Raises `ConfigError` if stdin is not a terminal: "Nothing was `done` ... Pass --yes to `to`."
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"Nothing was {done}: there is no terminal to ask in. Pass --yes to {to}.")
    return answer(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def answer(question: str) -> str:
    """Ask a question on stderr, and read a line; empty at the end of the input."""
    typer.echo(question, nl=False, err=True)
    with on_interrupt(signal.default_int_handler):  # asyncio would wait for the line before it stops
        return sys.stdin.readline()


def read_stdin() -> str:
    """Read stdin to its end."""
    with on_interrupt(signal.default_int_handler):
        return sys.stdin.read()


def refused_text(path: Path) -> str:
    """The text of an earlier edit that was refused and saved in a file; empty if there is none.

    Raises `StoreError` if the file is not a regular file, so that no refused text could be saved in it.
    """
    with reporting(path):
        check_regular(path)
    if not path.is_file() or path.is_symlink():
        return ""
    try:
        return path.read_bytes().decode("utf-8", "surrogatepass")
    except OSError as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not UTF-8: {error.reason}.") from error


def save_refused(path: Path, text: str) -> None:
    """Save a refused text, which may contain a secret, in a private file; an empty text deletes the file."""
    if not text:
        path.unlink(missing_ok=True)
        return
    with reporting(path):
        replace_file(path, text.encode("utf-8", "surrogatepass"))
        path.chmod(0o600)


def edited(text: str, name: str) -> str:
    """Open a text in `$VISUAL`, `$EDITOR` or vi, as a file called `name`; return the new text.

    Line endings stay as they are. Ctrl-C is left to the editor. Raises `ConfigError` if there is neither an
    editor nor a terminal, and if the editor fails or saves anything but UTF-8; what it saved stays in a file
    that the error names.
    """
    editor = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
    if not (editor or sys.stdin.isatty()):
        raise ConfigError("There is no terminal to edit in; set EDITOR, or edit the file directly.")
    command = shlex.split(editor or DEFAULT_EDITOR)
    before = text.encode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory(prefix="redraft-") as folder:
        path = Path(folder) / name
        path.write_bytes(before)
        try:
            with on_interrupt(lambda _number, _frame: None):  # otherwise the text would be lost
                code = subprocess.run([*command, str(path)], check=False).returncode  # noqa: S603 (the user's editor)
        except OSError as error:
            raise ConfigError(f"The editor {command[0]!r} can't be run: {error.strerror}.") from error
        try:
            after = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"The edited text can't be read: {error}.") from error
        problem = f"The editor {command[0]!r} exited with code {code}"
        if not code:
            try:
                return after.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                problem = f"The edited text is not UTF-8 ({error.reason})"
        stays = ""
        if after != before:
            rescued = Path(tempfile.mkdtemp(prefix="redraft-")) / name
            rescued.write_bytes(after)
            stays = f" Your text is in {str(rescued)!r}."
        raise ConfigError(f"{problem}, so nothing was changed.{stays}")


@contextmanager
def on_interrupt(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Generator[None]:
    """Let `handler` handle Ctrl-C in the block."""
    if current_thread() is not main_thread():  # other threads get no signals
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def read_text(file: str) -> str:
    """Read a text file; raises `ConfigError` if it can't be read."""
    path = Path(file)
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ConfigError(f"{file!r} is too large: {size:,} bytes; at most {MAX_BYTES:,} are allowed.")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{file!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file!r} is not UTF-8: {error.reason}.") from error
