"""Workflows as `redraft run` carries them out: watched, kept, and with something to say when interrupted."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import typer

from redraft.cli.exits import ExitCode, tell_error
from redraft.cli.run_kept import begin, taken_up
from redraft.core.errors import RedraftError, ReflectionFailedError, WorkflowError
from redraft.stores.place import project_store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redraft.cli.run_progress import WorkflowProgress
    from redraft.cli.run_ready import Ready
    from redraft.core.events import Listener
    from redraft.workflow.events import WorkflowEvent
    from redraft.workflow.result import WorkflowResult


def carry_out_workflow(found: Ready, listener: Listener, *, keep: bool) -> WorkflowResult:
    """Carry out a workflow, or go on with the one that is resumed; raises what it raises."""
    hears = cast("Callable[[WorkflowEvent], None]", listener)  # whatever dataclass an event is
    try:
        return asyncio.run(_kept(found, hears, keep=keep))
    except Exception as error:  # what an action of the user's own raises is no defect of Redraft's
        if isinstance(error, RedraftError) or not (own := found.own_actions()):
            raise
        names = ", ".join(map(repr, own))
        place = vars(error).get("__notes__", [found.file])[0]
        raise WorkflowError(
            f"{place}: {type(error).__name__}: {error}. Most likely an action of your own raised it "
            f"({names}); --debug shows where."
        ) from error


async def _kept(found: Ready, listener: Callable[[WorkflowEvent], None], *, keep: bool) -> WorkflowResult:
    store = project_store() if keep else None
    try:
        run_id = None if store is None else await begin(store, taken_up.get())
        return await found.workflow.run(found.given, run_id=run_id, on_event=listener)
    finally:
        if store is not None:
            await store.aclose()


@contextmanager
def told_how_to_go_on(
    progress: WorkflowProgress, say: Callable[[str], None], *, debug: bool
) -> Generator[None]:
    """Say of a workflow that did not come to its end why, under which id it is kept, and what can be done."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        say("Interrupted.")
        _say_kept(progress, say, "resume")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except Exception as error:  # the surface of a workflow, as that of the command is around it
        code = tell_error(error, debug=debug)
        _say_kept(progress, say, "show" if isinstance(error, ReflectionFailedError) else "resume")
        raise typer.Exit(code) from error


def _say_kept(progress: WorkflowProgress, say: Callable[[str], None], further: str) -> None:
    if progress.run_id:
        say(f"Kept as {progress.run_id}; redraft {further} last")
