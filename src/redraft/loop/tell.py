"""Telling: hand events to a listener, and count failures as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from redraft.core.events import StepFailed
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.core.chat import ModelRole
    from redraft.core.events import Listener
    from redraft.loop.budget import Tally

E = TypeVar("E")

ROLES: dict[str, ModelRole] = {"generate": "generation", "evaluate": "evaluation", "revise": "revision"}


def nobody(_event: object) -> None:
    """Listen to nothing."""


def emitter(listener: Callable[[E], None] | None) -> Callable[[E], None]:
    """Return what hands an event to the listener; one that raises is logged."""
    if listener is None:
        return nobody

    def emit(event: E) -> None:
        try:
            listener(event)
        except Exception:
            logger.exception("A listener failed on %s and was ignored.", type(event).__name__)

    return emit


def failure_handler(
    run_id: str, tally: Tally, emit: Listener
) -> Callable[[str, Exception, float | None], float | None]:
    """Return what `retried` asks about a failure: it is counted, and waited for if the budget allows."""

    def failed(name: str, error: Exception, wait: float | None) -> float | None:
        tally.add_failure(ROLES.get(name), error)
        if wait is None or not tally.allows_waiting(wait):
            return None
        logger.info("%s failed and is tried again in %.1f s: %s", name, wait, error)
        emit(StepFailed(run_id, name, error, wait))
        return wait

    return failed
