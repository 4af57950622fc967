"""ReflectionCallbacks and ReflectionDecision: a person's or program's word during a run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.version import Output


class ReflectionDecision(StrEnum):
    """Say what happens after an evaluation.

    `AUTO` leaves it to the convergence rules. `CONTINUE` goes on although a rule says stop, but never past
    the maximum or a budget. `STOP` ends the run with its best version; `ACCEPT` ends it with this one.
    """

    AUTO = "auto"
    CONTINUE = "continue"
    STOP = "stop"
    ACCEPT = "accept"


class ReflectionCallbacks:
    """Watch a run and steer it; override what is needed. Specification 3.4.

    A callback that raises is logged, and the run goes on as if it had not been there.
    """

    async def on_generation(self, output: Output, iteration: int) -> None:
        """Take note of a new output, the first draft included; `iteration` is 1-based."""

    async def on_reflection(
        self,
        evaluation: ReflectionEvaluation,  # noqa: ARG002 (for those who override it)
        iteration: int,  # noqa: ARG002
    ) -> ReflectionDecision:
        """Decide what follows from an evaluation."""
        return ReflectionDecision.AUTO

    async def on_revision(self, old_output: Output, new_output: Output, iteration: int) -> None:
        """Take note of what a revision changed; `iteration` is that of the new output."""
