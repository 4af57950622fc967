"""Raised: an exception of a script, and the answer that names it."""

from __future__ import annotations

import builtins
import re
import sys
from dataclasses import dataclass
from typing import Any

from redraft.sandbox.inside.answer import MOST_MESSAGE, failure, late, too_big
from redraft.sandbox.monty.protobuf import Bytes, all_in, data_in, number_in, text_in
from redraft.sandbox.monty.protocol import FILE

_MISSING_NAME = re.compile(r"name '(\w+)' is not defined")
_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
_MISSING_PART = re.compile(r"module '(os|sys|posix|io|pathlib)' has no attribute '\w+'")
_OUTWARD = {
    *("_ctypes", "_posixsubprocess", "_socket", "ctypes", "fcntl", "ftplib", "gc", "http", "imaplib"),
    *("importlib", "inspect", "mmap", "multiprocessing", "poplib", "posix", "pty", "resource", "select"),
    *("shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess"),
    *("tempfile", "threading", "urllib", "webbrowser", "xmlrpc"),
}
"""Modules that a script has no use for but to get out; whole Python has them, behind its walls."""

_MOST_NAME = 200
_BUILTINS = {*vars(builtins), "exit", "quit", "help"}


@dataclass(frozen=True, slots=True)
class Raised:
    """Carry an exception: its type's name, how what it says begins, and the line of the code, if any."""

    type: str
    said: str
    line: int | None

    @classmethod
    def of(cls, error: Bytes) -> Raised:
        """Read an event `ERROR`."""
        exception = data_in(error, 1)
        name = text_in(exception, 1, _MOST_NAME).rpartition(".")[2]
        said = text_in(exception, 2, MOST_MESSAGE)
        frames = [frame for frame in all_in(exception, 3) if text_in(frame, 1).startswith(FILE)]
        line = number_in(data_in(frames[-1], 2), 1) if frames else None
        return cls(name, repr(said) if name == "KeyError" else said, line)

    def means(self, kind: type[BaseException]) -> bool:
        """Say whether Python would call it one of a kind."""
        known = vars(builtins).get(self.type)
        return isinstance(known, type) and issubclass(known, kind)

    def answer(self, limits: dict[str, Any], line: int | None) -> dict[str, Any]:
        """Return the answer that names it, at a line of the script."""
        if self.is_limit():
            return late(limits) if self.means(TimeoutError) else too_big(limits, line)
        what = f"raised {self.type}{f': {self.said}' if self.said else ''}"
        if self._reaches_out():
            reached = "a script reaches no files, no environment, no network and no other processes"
            return failure("forbidden", f"{what} ({reached})", line)
        if missing := self._lacks():
            return failure("script", f"{what} (inline Python has no {missing}: say `sandbox: process`)", line)
        return failure("script", what, line)

    def is_limit(self) -> bool:
        """Say whether it is monty's word for a limit that was hit."""
        return (self.means(TimeoutError) and self.said.startswith("feed time limit")) or (
            self.means(MemoryError) and self.said.startswith("memory limit")
        )

    def _reaches_out(self) -> bool:
        if self.means(PermissionError) or self.said.endswith("is not supported in this environment"):
            return True
        if self.means(ModuleNotFoundError) and (module := _MISSING_MODULE.search(self.said)):
            return module[1].split(".")[0] in _OUTWARD
        return self.means(AttributeError) and _MISSING_PART.search(self.said) is not None

    def _lacks(self) -> str | None:
        """Name what Python has and this interpreter lacks, if that is what went wrong."""
        if self.means(NotImplementedError) and "not yet support" in self.said:
            return self.said.rpartition("support ")[2]
        if self.means(ImportError) and (module := _MISSING_MODULE.search(self.said)):
            return f"module {module[1]!r}" if module[1].split(".")[0] in sys.stdlib_module_names else None
        if self.means(NameError) and (name := _MISSING_NAME.search(self.said)):
            return f"{name[1]}()" if name[1] in _BUILTINS else None
        return "properties" if self.said == "cannot create 'property' instances" else None
