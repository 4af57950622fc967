"""Python inline: a subset of the language in an interpreter that can reach nothing (pydantic-monty)."""

from __future__ import annotations

import builtins
import json
import re
import sys
from typing import TYPE_CHECKING, Any, cast

import pydantic_monty as monty

from redraft.sandbox.inside.answer import failure, flooded, late, success, too_big

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PRELUDE = "import json, re\n"
_LINES_BEFORE = _PRELUDE.count("\n")
_UNSET = "\0 no result was assigned"
_LOOKUP = {"result": _UNSET}
_ASSIGNED = re.compile(r"^\s*result\s*=(?!=)", re.MULTILINE)
_RECURSION = 500
_RESULT = "\nimport json\njson.dumps(result)"
_BEYOND_MEMORY = ("memory limit", "the worker exceeded its memory limit")
_STAND_INS = re.compile(
    r"\[\.\.\.\]|\{\.\.\.\}|\(\.\.\.\)|<bound method>|<stdout>|<stderr>|<\w+_iterator object>|<class '\w+'>"
    r"|<(function|module) '?[\w.<>]+'?( at 0x\w+)?>|<coroutine .*>|<re\.Match object; .*>"
    r"|dict_(keys|values|items)\(.*\)|range\(-?\d+, -?\d+(, -?\d+)?\)",
    re.DOTALL,
)
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


def start(
    options: dict[str, Any], shut_in: Callable[..., None]
) -> Callable[[dict[str, Any]], Iterator[dict[str, Any]]]:
    """Start the interpreter, inside the walls, and return what answers orders with it."""
    # It looks for a tracer in each run, and here there is none to be found: the walls hide all packages.
    sys.modules["opentelemetry.context"] = cast("Any", None)
    shut_in(programs=(options["binary"],))
    pool = monty.Monty(
        binary_path=options["binary"], min_processes=1, max_processes=1, feed_duration_limit_grace=0.1
    )
    pool.__enter__()
    return _Sessions(pool).run


class _Sessions:
    """A session for each script, opened before it is asked for: its limits are mostly those of the last."""

    def __init__(self, pool: monty.Monty) -> None:
        self._pool = pool
        self._limits: dict[str, Any] = {}
        self._session: monty.MontySession | None = None

    def run(self, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the answer to an order; then open the next session, while the host reads on."""
        limits = order["limits"]
        session = self._session
        if session is None or limits != self._limits:
            session = self._open(limits)
        yield _answer(session, order, monty.CollectString(limits["output_chars"]))
        self._open(limits)

    def _open(self, limits: dict[str, Any]) -> monty.MontySession:
        if self._session is not None:
            self._session.__exit__(None, None, None)
        self._session = None
        session = self._pool.checkout(
            script_name="script.py",
            limits={
                "max_feed_duration_secs": limits["seconds"],
                "max_memory": limits["memory_mb"] << 20,
                "max_recursion_depth": _RECURSION,
            },
            os_policy={"sleep": "zero"},
        )
        self._session, self._limits = session.__enter__(), limits
        return self._session


def _answer(
    session: monty.MontySession, order: dict[str, Any], printed: monty.CollectString
) -> dict[str, Any]:
    limits = order["limits"]
    try:
        value = _value(session, order["source"], order["names"], printed)
    except monty.MontyCrashedError as error:
        return late(limits) if error.timed_out else too_big(limits)
    except monty.MontyError as error:
        return _failure(error, order, full=len(printed.output))
    except (ValueError, RecursionError, OverflowError) as error:  # a value that can't be handed over
        return failure("script", f"gave a result that cannot be written as JSON: {error}")
    return success(value, printed.output, limits)


def _value(
    session: monty.MontySession, source: str, names: dict[str, Any], printed: monty.CollectString
) -> Any:
    """Run a script and return its value: `result` if it was assigned, what it returned, its last expression.

    `result` is written as JSON inside: what cannot be is an error there, where outside it would be a text
    that stands for it. A second question takes as long as a small script, so where `result` is assigned and
    nothing returned, it is part of the first.
    """
    at_once = "return" not in source and _ASSIGNED.search(source) is not None
    value = session.feed_run(
        f"{_PRELUDE}{source}{_RESULT}" if at_once else _PRELUDE + source,
        inputs=names,
        external_lookup=_LOOKUP if at_once else None,
        print_callback=printed,
    )
    if at_once:
        assigned = json.loads(value)
        return None if assigned == _UNSET else assigned
    if "result" in source:
        assigned = json.loads(_asked_for(session))
        value = value if assigned == _UNSET else assigned
    if text := _stand_in(value):
        raise ValueError(f"it holds {text!r}; assign it to `result` if that is a text")
    return value


def _asked_for(session: monty.MontySession) -> str:
    try:
        return session.feed_run(_RESULT, external_lookup=_LOOKUP)
    except monty.MontyRuntimeError as error:
        if not isinstance(raised := error.exception(), TypeError | ValueError):
            raise
        raise ValueError(str(raised)) from error


def _stand_in(value: Any) -> str | None:
    """Return a text in a value by which the interpreter seems to stand for what cannot leave it."""
    seen: set[int] = set()
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if _STAND_INS.fullmatch(item):
                return item
        elif isinstance(item, dict | list | tuple) and id(cast("object", item)) not in seen:
            seen.add(id(cast("object", item)))
            inside = cast("Any", item)
            stack.extend(inside.values() if isinstance(item, dict) else inside)
    return None


def _failure(error: monty.MontyError, order: dict[str, Any], full: int) -> dict[str, Any]:
    limits, raised = order["limits"], error.exception()
    said, line = str(raised), _line(error)
    if isinstance(raised, TimeoutError) and said.startswith("feed time limit"):
        return late(limits)
    if isinstance(raised, MemoryError) and said.startswith(_BEYOND_MEMORY):
        # The collector of what is printed has the same words, and its own limit in them.
        printing = said.endswith(f"> {limits['output_chars']} bytes") and full <= limits["output_chars"]
        return flooded(limits) if printing else too_big(limits, line)
    if line is not None and not 0 < line <= order["source"].count("\n") + 1:  # a line of ours: _RESULT
        return failure("script", f"gave a result that cannot be written as JSON: {said}")
    what = f"raised {type(raised).__name__}{f': {said}' if said else ''}"
    if kind := _forbidden(raised, said):
        return failure("forbidden", f"{what} ({kind})", line)
    if missing := _lacks(raised, said):
        return failure("script", f"{what} (inline Python has no {missing}: say `sandbox: process`)", line)
    return failure("script", what, line)


def _line(error: monty.MontyError) -> int | None:
    if not isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        return None
    frames = error.traceback()
    return frames[-1].line - _LINES_BEFORE if frames else None


def _forbidden(raised: BaseException, said: str) -> str | None:
    """Say what a script may not do, if that is what it tried."""
    reached = "a script reaches no files, no environment, no network and no other processes"
    module = _MISSING_MODULE.search(said)
    if isinstance(raised, ModuleNotFoundError) and module and module[1].split(".")[0] in _OUTWARD:
        return reached
    if isinstance(raised, PermissionError) or said.endswith("is not supported in this environment"):
        return reached
    return reached if isinstance(raised, AttributeError) and _MISSING_PART.search(said) else None


def _lacks(raised: BaseException, said: str) -> str | None:
    """Name what Python has and this interpreter lacks, if that is what went wrong."""
    if isinstance(raised, NotImplementedError) and "not yet support" in said:
        return said.rpartition("support ")[2]
    if isinstance(raised, ImportError) and (module := _MISSING_MODULE.search(said)):
        return f"module {module[1]!r}" if module[1].split(".")[0] in sys.stdlib_module_names else None
    if isinstance(raised, NameError) and (name := _MISSING_NAME.search(said)):
        return f"{name[1]}()" if name[1] in _BUILTINS else None
    return "properties" if said == "cannot create 'property' instances" else None


_BUILTINS = {*vars(builtins), "exit", "quit", "help"}
