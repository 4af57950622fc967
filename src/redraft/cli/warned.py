"""Warnings: what is logged while a command is at work, shown to who watches it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from rich.text import Text

from redraft.redact.log import logger

if TYPE_CHECKING:
    from redraft.cli.console import CalmConsole


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
