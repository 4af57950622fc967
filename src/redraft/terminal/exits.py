"""Exit codes, and the reports of errors on stderr."""

from __future__ import annotations

import errno
import shutil
import sys
import traceback
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, TypeGuard

import typer

from redraft._validation import criterion_note, named_error
from redraft.errors import (
    ConfigError,
    JobError,
    ModelError,
    OutputError,
    RedraftError,
    ReflectionFailedError,
    SandboxError,
    SpecFileError,
    StoreError,
    UnfinishedError,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from redraft.types import ReflectionResult

BUDGETS = frozenset({"token_budget", "cost_budget", "time_budget"})


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    MET = 0
    NOT_MET = 1
    USAGE = 2
    BUDGET = 3
    PROVIDER = 4
    WAITING = 5
    COMMIT_REFUSED = 10
    """Of `redraft hook stop git`, which repeats the number: it starts without Typer."""
    DEFECT = 70
    INTERRUPTED = 130


def code_of(result: ReflectionResult) -> ExitCode:
    """The exit code of a run that has ended."""
    reason = result.convergence_reason.value
    if reason == "cancelled":
        return ExitCode.INTERRUPTED
    if result.success:
        return ExitCode.MET
    if result.error is not None:
        return code_of_error(result.error)
    return ExitCode.BUDGET if reason in BUDGETS else ExitCode.NOT_MET


def code_of_error(error: BaseException) -> ExitCode:
    """The exit code of an error without a result."""
    if isinstance(error, ReflectionFailedError | JobError):
        return ExitCode.NOT_MET
    if isinstance(error, UnfinishedError) and error.reason in BUDGETS:
        return ExitCode.BUDGET
    if isinstance(error, ModelError | OutputError):
        return ExitCode.PROVIDER
    if isinstance(error, ConfigError | SandboxError | SpecFileError | StoreError):
        return ExitCode.USAGE
    return ExitCode.USAGE if _is_disk_full(error) or criterion_note(error) else ExitCode.DEFECT


def _is_disk_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether a disk or quota is full, which is not a defect."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def surface(*, debug: bool) -> Generator[None]:
    """Turn an error in the block into an exit code, and a line on stderr or, with `debug`, a traceback."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        _report(f"Interrupted before there was a result.{''.join(_continuations)}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except Exception as error:  # the outermost layer reports every error
        raise typer.Exit(report_error(error, debug=debug)) from error
    finally:
        _continuations.clear()


_continuations: list[str] = []
"""How to continue what the command does now, for a report of Ctrl-C; at most one sentence."""


@contextmanager
def continued_by(sentence: str) -> Generator[None]:
    """If Ctrl-C ends the block, `surface` reports this sentence as well: how to continue the work."""
    _continuations[:] = [f" {sentence}"]
    yield
    _continuations.clear()


def report_error(error: Exception, *, debug: bool) -> ExitCode:
    """Report an error on stderr; return its exit code."""
    # A note says which node of a workflow raised it; `__notes__` exists only if there are notes.
    notes = (note for note in vars(error).get("__notes__", ()) if note != criterion_note(error))
    place = "".join(f"{note}: " for note in notes)
    if debug:
        _report("".join(traceback.format_exception(error)).rstrip("\n"), breaks_lines=False)
    elif isinstance(error, SpecFileError):
        for problem in error.problems:
            _report(f"Error: {place}{problem}")
    elif isinstance(error, RedraftError):
        _report(f"Error: {place}{error}")
    elif criterion_note(error):
        _report(f"Error: {place}{named_error(error)}")
    elif _is_disk_full(error):
        _report(f"Error: {place}the result can't be written: {error.strerror}.")
    else:
        _report(f"Bug in Redraft: {place}{named_error(error)}\nPlease report what --debug prints.")
    return code_of_error(error)


def _report(message: str, *, breaks_lines: bool = True) -> None:
    from redraft.redact.redactor import withheld
    from redraft.terminal.console import between_words
    from redraft.text.characters import visible

    text = visible(withheld(message))
    if breaks_lines and sys.stderr.isatty():
        text = between_words(text, shutil.get_terminal_size().columns)
    sys.stderr.write(f"{text}\n")
