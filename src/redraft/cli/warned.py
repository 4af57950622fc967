"""Warnings: what is logged while a command is at work, shown to who watches it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from redraft.cli.console import CalmConsole


class Warnings(logging.Handler):
    """Show what is logged as a warning, above the line that moves."""

    def __init__(self, console: CalmConsole) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Show a line of the log."""
        self._console.show(Text(record.getMessage(), "yellow"), soft_wrap=True)
