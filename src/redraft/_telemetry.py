"""Where telemetry is plugged in: `redraft.telemetry.instrument` sets `current`; else nothing is wrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from redraft.protocols import Step

R = TypeVar("R")

Operation: TypeAlias = Literal[
    "run", "workflow", "cycle", "job", "ensemble", "choose_note", "learn_note", "settle_trial"
]


class Telemetry(Protocol):
    """Report operations, and the steps in them, while they are carried out."""

    async def operation(
        self,
        kind: Operation,
        name: str,
        operation_id: str,
        work: Callable[[], Awaitable[R]],
        /,
        asked: str = "",
    ) -> R:
        """Carry out `work`, report it, and return its result; `name` is that of the agent, task or file.

        `asked` is the recorded position from which it was asked for, if that was in another process.
        """
        ...

    async def step(
        self, step: Step, name: str, returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any
    ) -> R:
        """Carry out an effect by `step`, and report it: as replayed if `step` does not call `fn`."""
        ...

    def count(self, metric: str, amount: float, attributes: Mapping[str, str], /) -> None:
        """Add to a counter, or record a value in a histogram; `redraft.telemetry.METRICS` has their names."""
        ...

    def position(self) -> str:
        """Return the current place in a trace, a W3C `traceparent`, to be recorded; "" outside of one."""
        ...

    def replayed(self, position: str, /) -> None:
        """Report that what is under way was carried out before, at a recorded position ("" if unknown)."""
        ...


current: Telemetry | None = None

Gauges: TypeAlias = "Mapping[str, Sequence[tuple[float, Mapping[str, str]]]]"
"""Values of gauges with their attributes, by the name of the metric."""

gauges: Gauges = {}
"""What the gauges of this process showed when they were last measured."""


async def traced(
    kind: Operation, name: str, operation_id: str, work: Callable[[], Awaitable[R]], asked: str = ""
) -> R:
    """Carry out an operation, and report it if there is telemetry."""
    return await (work() if current is None else current.operation(kind, name, operation_id, work, asked))


def count(metric: str, amount: float = 1, /, **attributes: str) -> None:
    """Add to a counter, or record a value in a histogram, if there is telemetry."""
    if current is not None:
        current.count(metric, amount, attributes)


def current_position() -> str:
    """Return the current place in a trace, as `Telemetry.position` does; "" without telemetry."""
    return "" if current is None else current.position()
