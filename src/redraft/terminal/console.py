"""What a person sees: data on stdout, progress on stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rich.console import Console
from rich.text import Text

from redraft._codec import to_json
from redraft.redact.kinds import Category
from redraft.redact.known import secrets_of
from redraft.redact.log import logger
from redraft.redact.redactor import Redactor
from redraft.text.characters import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

GOOD, BAD, QUIET = "green", "red", "dim"
GAP = 2
"""Spaces between the columns of a table."""


WIDTH_WITHOUT_TERMINAL = 100
SCHEMA_VERSION = 1


class CalmConsole(Console):
    """Print to stdout or stderr; a reader that has gone away is no error."""

    def __init__(self, *, stderr: bool = False) -> None:
        file = sys.stderr if stderr else sys.stdout
        narrow = file.isatty() or "COLUMNS" in os.environ
        super().__init__(
            file=file,
            width=None if narrow else WIDTH_WITHOUT_TERMINAL,
            highlight=False,
            markup=False,
            emoji=False,
        )

    @property
    def is_coloured(self) -> bool:
        """Whether colours arrive: on a terminal that has some, unless NO_COLOR is set."""
        return self.color_system is not None and not self.no_color

    @property
    def is_utf8(self) -> bool:
        """Whether more than ASCII can be drawn."""
        return self.encoding.startswith("utf")

    def show(self, renderable: RenderableType, *, soft_wrap: bool = False) -> None:
        """Print what a person reads; in a file without the spaces that fill up lines.

        With `soft_wrap` the lines stay as long as they are.
        """
        if self.is_terminal:
            self.print(renderable, soft_wrap=soft_wrap)
            return
        with self.capture() as captured:
            self.print(renderable, soft_wrap=soft_wrap)
        self.out("\n".join(line.rstrip() for line in captured.get().splitlines()), highlight=False)

    def say(self, line: str) -> None:
        """Print a line that may be copied, so that it is not broken; nothing for an empty one."""
        if line:
            self.out(line, highlight=False)

    def on_broken_pipe(self) -> None:
        """Fall silent; Rich would leave with the exit code 1, which means something else here."""
        self.quiet = True
        _close(self.file.fileno())


def emit(text: str) -> None:
    """Write data on stdout, as it is, with a line break at its end."""
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _close(sys.stdout.fileno())


def emit_made(text: str) -> None:
    """Write what a model or a program made on stdout; what acts on a terminal is spelt out there.

    A file and a pipe get every character as it is.
    """
    emit(visible(text) if sys.stdout.isatty() else text)


def emit_json(document: Mapping[str, Any]) -> None:
    """Write a JSON document on stdout, with its `schema_version` first."""
    numbered = {"schema_version": SCHEMA_VERSION, **document}
    text = json.dumps(to_json(numbered), ensure_ascii=False, indent=2)
    # A lone surrogate is in no encoding; its escape is what JSON has for it.
    emit(text.encode("utf-8", "backslashreplace").decode())


def deliver(
    view: RenderableType, document: Mapping[str, Any], *, as_json: bool, soft_wrap: bool = False
) -> None:
    """Print a result on stdout: the document with `--json`, else the view for people.

    With `soft_wrap` lines stay as long as they are in a file; a terminal breaks them between words.
    """
    if as_json:
        emit_json(document)
        return
    console = CalmConsole()
    console.show(view, soft_wrap=soft_wrap and not console.is_terminal)


def _close(descriptor: int) -> None:
    """Let what still comes go nowhere: Python flushes once more at its end, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class Warnings(logging.Handler):
    """Show what is logged as a warning, above the line that moves; a context manager around the work."""

    def __init__(self, console: CalmConsole) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def __enter__(self) -> Self:
        logger.addHandler(self)
        return self

    def __exit__(self, *_raised: object) -> None:
        logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a line of the log."""
        self._console.show(Text(record.getMessage(), "yellow"), soft_wrap=True)


BARS = "▁▂▃▄▅▆▇█"
UNKNOWN = "·"


def sparkline(scores: Sequence[float | None], longest: int | None = None) -> str:
    """Draw scores (0..1, the full height is 1) as bars; `longest` bounds how many."""
    if longest is not None and len(scores) > longest:  # the first one and the latest tell most
        scores = [scores[0], *scores[len(scores) - longest + 1 :]]
    return "".join(_bar(score) for score in scores)


def _bar(score: float | None) -> str:
    return UNKNOWN if score is None else BARS[min(len(BARS) - 1, max(0, int(score * len(BARS))))]


T = TypeVar("T")


def withheld(value: T) -> T:
    """Return a text, plain data or a dataclass with its secrets and personal data withheld.

    The names of the machine and its user stay: they are told to nobody but that user, who needs the paths.
    """
    return Redactor(secrets_of(os.environ), also=(Category.PERSONAL,)).redact_object(value)
