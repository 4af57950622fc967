"""Console output: data on stdout, progress on stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.text import Text

from redraft._codec import to_json
from redraft.redact.log import logger
from redraft.text.characters import visible, visible_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType
    from rich.segment import Segment

GOOD, BAD, QUIET = "green", "red", "dim"
WIDTH_WITHOUT_TERMINAL = 100
SCHEMA_VERSION = 1


def between_words(text: str, width: int) -> str:
    """Break long lines between words; a terminal would break them within words."""
    return "\n".join(
        line
        if len(line) <= width
        else textwrap.fill(
            line,
            width,
            subsequent_indent=line[: len(line) - len(line.lstrip())],
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


class CalmConsole(Console):
    """A console that escapes control characters, and ignores a closed pipe.

    On stderr, it ignores any error: lost progress must not end a run.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        self._is_stderr = stderr
        file = sys.stderr if stderr else sys.stdout
        self.is_piped = not file.isatty() and "COLUMNS" not in os.environ
        """Whether the output goes to a file or pipe, which have no width."""
        super().__init__(
            file=file,
            width=WIDTH_WITHOUT_TERMINAL if self.is_piped else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    @property
    def is_coloured(self) -> bool:
        """Whether colours are shown: on a terminal that supports them, unless NO_COLOR is set."""
        return self.color_system is not None and not self.no_color

    @property
    def is_utf8(self) -> bool:
        """Whether characters beyond ASCII can be drawn."""
        return self.encoding.startswith("utf")

    def show(self, renderable: RenderableType, *, soft_wrap: bool = False) -> None:
        """Print output for people; in a file or pipe, lines have no trailing spaces.

        With `soft_wrap`, long lines are not broken.
        """
        if self.is_terminal:
            self.print(renderable, soft_wrap=soft_wrap)
            return
        with self.capture() as captured:
            self.print(renderable, soft_wrap=soft_wrap, crop=False)
        self.out("\n".join(line.rstrip() for line in captured.get().splitlines()), highlight=False)

    def say(self, line: str) -> None:
        """Print a message, unless it is empty. On a terminal, long lines are broken between words."""
        if line:
            self.out(between_words(line, self.width) if self.is_terminal else line, highlight=False)

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        # Nothing that is shown, such as a file name or a log message, may steer the terminal.
        segments = (part if part.control else part._replace(text=visible(part.text)) for part in buffer)
        return super()._render_buffer(segments)

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError:
            del self._buffer[:]
            if not self._is_stderr:
                raise

    def on_broken_pipe(self) -> None:
        """Stop printing; Rich would exit with code 1, which has another meaning in Redraft."""
        self.quiet = True
        _close(self.file.fileno())


def emit(text: str) -> None:
    """Write data to stdout, with a final line break, and with control characters escaped on a terminal.

    A file or pipe gets every character unchanged.
    """
    if sys.stdout.isatty():
        text = visible(text)
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _close(sys.stdout.fileno())


def emit_json(document: Mapping[str, Any]) -> None:
    """Write a JSON document to stdout, with its `schema_version` first."""
    versioned = {"schema_version": SCHEMA_VERSION, **document}
    emit(visible_json(json.dumps(to_json(versioned), ensure_ascii=False, indent=2)))


def deliver(
    view: RenderableType, document: Mapping[str, Any], *, as_json: bool, soft_wrap: bool = False
) -> None:
    """Print a result on stdout: the document with `--json`, else the view for people.

    With `soft_wrap`, long lines are broken only on a terminal.
    """
    if as_json:
        emit_json(document)
        return
    console = CalmConsole()
    console.show(view, soft_wrap=soft_wrap and not console.is_terminal)


def _close(descriptor: int) -> None:
    """Redirect a descriptor to the null device, so that Python's flush at exit does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


class Warnings(logging.Handler):
    """A log handler that prints warnings above a progress line; use it as a context manager."""

    def __init__(self, console: CalmConsole) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def __enter__(self) -> Self:
        logger.addHandler(self)
        return self

    def __exit__(self, *_raised: object) -> None:
        logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log message."""
        self._console.show(Text(record.getMessage(), "yellow"), soft_wrap=True)


BARS = "▁▂▃▄▅▆▇█"
UNKNOWN = "·"


def sparkline(scores: Sequence[float | None], longest: int | None = None) -> str:
    """Draw scores from 0 to 1 as bars, and None as a dot; at most `longest`: the first and the latest."""
    if longest is not None and len(scores) > longest:
        scores = [scores[0], *scores[len(scores) - longest + 1 :]]
    highest = len(BARS) - 1
    return "".join(
        UNKNOWN if score is None else BARS[min(highest, max(0, int(score * len(BARS))))] for score in scores
    )
