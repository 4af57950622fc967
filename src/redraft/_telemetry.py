"""The hook for telemetry: `redraft.telemetry.instrument` sets `current`; without it, nothing is wrapped."""

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
        parent: str = "",
    ) -> R:
        """Carry out `work`, report it, and return its result; `name` is that of the agent, task or file.

        `parent` is the recorded position of its caller, if that was in another process.
        """
        ...

    async def step(
        self, step: Step, name: str, returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any
    ) -> R:
        """Carry out an effect with `step`, and report it: as replayed if `step` does not call `fn`."""
        ...

    def count(self, metric: str, amount: float, attributes: Mapping[str, str], /) -> None:
        """Add to a counter, or record a value in a histogram; `redraft.telemetry.METRICS` has their names."""
        ...

    def position(self) -> str:
        """The current position in a trace, as a W3C `traceparent` to record; "" outside of a trace."""
        ...

    def replayed(self, position: str, /) -> None:
        """Report that the current operation is a replay of a recorded position ("" if unknown)."""
        ...


current: Telemetry | None = None

Gauges: TypeAlias = "Mapping[str, Sequence[tuple[float, Mapping[str, str]]]]"
"""Values of gauges with their attributes, by the name of the metric."""

gauges: Gauges = {}
"""The latest values of the gauges of this process."""


def traced(
    kind: Operation, name: str, operation_id: str, work: Callable[[], Awaitable[R]], parent: str = ""
) -> Awaitable[R]:
    """Carry out an operation, and report it if there is telemetry."""
    return work() if current is None else current.operation(kind, name, operation_id, work, parent)


def count(metric: str, amount: float = 1, /, **attributes: str) -> None:
    """Add to a counter, or record a value in a histogram, if there is telemetry."""
    if current is not None:
        current.count(metric, amount, attributes)


def current_position() -> str:
    """The current position in a trace, as `Telemetry.position` returns it; "" without telemetry."""
    return "" if current is None else current.position()
