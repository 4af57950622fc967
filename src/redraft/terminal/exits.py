"""How a command ends: exit codes, and errors as a line on stderr."""

from __future__ import annotations

import errno
import sys
import traceback
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, TypeGuard

import typer

from redraft._codec import is_from_criterion_function
from redraft.errors import (
    AgentFileError,
    ConfigError,
    ModelError,
    OutputError,
    RedraftError,
    ReflectionFailedError,
    SandboxError,
    StoreError,
    UnfinishedError,
    WorkflowError,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from redraft.types import ReflectionResult

BUDGETS = frozenset({"token_budget", "cost_budget", "time_budget"})


class ExitCode(IntEnum):
    """Tell a script how it went."""

    MET = 0
    NOT_MET = 1
    USAGE = 2
    BUDGET = 3
    PROVIDER = 4
    DEFECT = 70
    INTERRUPTED = 130


def code_of(result: ReflectionResult) -> ExitCode:
    """Return the exit code for a finished run, also for one that was cut short."""
    reason = result.convergence_reason.value
    if reason == "cancelled":
        return ExitCode.INTERRUPTED
    if result.success:
        return ExitCode.MET
    if result.error is not None:
        return code_of_error(result.error)
    return ExitCode.BUDGET if reason in BUDGETS else ExitCode.NOT_MET


def code_of_error(error: BaseException) -> ExitCode:
    """Return the exit code for an error that left nothing to show."""
    if isinstance(error, ReflectionFailedError):
        return ExitCode.NOT_MET
    if isinstance(error, UnfinishedError) and error.reason in BUDGETS:
        return ExitCode.BUDGET
    if isinstance(error, ModelError | OutputError):
        return ExitCode.PROVIDER
    if isinstance(error, AgentFileError | ConfigError | SandboxError | StoreError | WorkflowError):
        return ExitCode.USAGE
    return ExitCode.USAGE if _is_full(error) or is_from_criterion_function(error) else ExitCode.DEFECT


def _is_full(error: BaseException) -> TypeGuard[OSError]:
    """Say whether there is no room left where stdout or a file goes, which is nobody's defect."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def surface(*, debug: bool) -> Generator[None]:
    """Turn an error inside into a line on stderr and an exit code; a traceback only with `debug`."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        _tell("Interrupted; nothing was made yet.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except Exception as error:  # a surface: whatever went wrong, a person is told and nothing else breaks
        raise typer.Exit(tell_error(error, debug=debug)) from error


def tell_error(error: Exception, *, debug: bool) -> ExitCode:
    """Say on stderr what went wrong, and where in a file if that is known; return the exit code for it."""
    # Where a workflow's node raised it is in a note, which only an exception that has one has.
    place = "".join(f"{note}: " for note in vars(error).get("__notes__", ()))
    if debug:
        _tell("".join(traceback.format_exception(error)).rstrip("\n"))
    elif isinstance(error, RedraftError):
        _tell(f"Error: {place}{error}")
    elif is_from_criterion_function(error):
        _tell(f"Error: {place}{type(error).__name__}: {error}")
    elif _is_full(error):
        _tell(f"Error: {place}what was made can't be written: {error.strerror}.")
    else:
        _tell(
            f"Defect in Redraft: {place}{type(error).__name__}: {error}\nPlease report what --debug prints."
        )
    return code_of_error(error)


def _tell(message: str) -> None:
    from redraft.terminal.console import withheld
    from redraft.text.characters import visible

    sys.stderr.write(f"{visible(withheld(message))}\n")
