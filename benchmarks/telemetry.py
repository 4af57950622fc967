"""What OpenTelemetry costs: the same runs with it and without it, by turns."""

from __future__ import annotations

import asyncio
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from _measure import median_gap, options, paired, publish, table, verdict
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redraft import reflect
from redraft.telemetry import instrument, uninstrument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TARGET = 2000.0
"""CPU microseconds that a collected run of three versions may cost more than one without telemetry."""
VERSIONS = 3
DRAFTS = [f"Version {number}: we would like to order {number} packs of tea." for number in range(VERSIONS)]


async def run() -> None:
    """Make and judge three versions, each of ten words."""
    drafts = iter(DRAFTS)
    result = await reflect(
        "Order tea.",
        generate=lambda _prompt: next(drafts),
        evaluate=lambda text: (text == DRAFTS[-1], "Say how many packs of tea are wanted."),
    )
    assert result.iterations_used == VERSIONS - 1


class Collector:
    """Providers that collect in memory; the cost of sending what was collected is not ours."""

    def __init__(self) -> None:
        self.spans, self._logs = InMemorySpanExporter(), InMemoryLogRecordExporter()
        self._tracer_provider, self._logger_provider = TracerProvider(), LoggerProvider()
        self._tracer_provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self._logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        self._meter_provider = MeterProvider([InMemoryMetricReader()])

    def instrument(self, *, content: bool = False) -> None:
        """Report to these providers."""
        instrument(
            tracer_provider=self._tracer_provider,
            logger_provider=self._logger_provider,
            meter_provider=self._meter_provider,
            content=content,
        )

    def clear(self) -> None:
        """Forget what was collected."""
        self.spans.clear()
        self._logs.clear()


def repeated(
    subject: Callable[[], Awaitable[object]], times: int, report: Callable[[], None], collector: Collector
) -> None:
    """Run a subject so many times in a row, reported in one way."""

    async def main() -> None:
        for _ in range(times):
            await subject()

    report()
    try:
        asyncio.run(main())
    finally:
        uninstrument()
        collector.clear()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=21, help="how often each way is timed")
    parser.add_argument("--runs", type=int, default=300, help="runs in each timing")
    given = parser.parse_args()
    collector = Collector()
    ways: dict[str, Callable[[], None]] = {
        "off": uninstrument,
        "on, nothing collects": instrument,
        "on, collected in memory": collector.instrument,
        "the same with texts": partial(collector.instrument, content=True),
    }
    spans = spans_of(run, collector)
    times = paired(
        {way: partial(repeated, run, given.runs, report, collector) for way, report in ways.items()},
        given.pairs,
    )
    scale = 1e6 / given.runs
    rows: list[tuple[object, ...]] = []
    for way, taken in times.items():
        gap = median_gap(taken, times["off"]) * scale
        rows.append(
            (
                way,
                0 if way == "off" else spans,
                f"{median(taken) * scale:.0f}",
                f"{gap:.0f}",
                f"{median(taken) / median(times['off']):.1f}",
                f"{TARGET:.0f} {verdict(gap, TARGET)}" if way == "on, collected in memory" else "",
            )
        )
    head = (
        "a run of three versions, CPU microseconds",
        "spans",
        "a run",
        "over off",
        "ratio",
        "at most, over off",
    )
    publish("telemetry", table(head, rows), write=given.write)


def spans_of(subject: Callable[[], Awaitable[object]], collector: Collector) -> int:
    """Return how many spans a run of the subject has."""
    collector.instrument()

    async def once() -> None:
        await subject()

    asyncio.run(once())
    uninstrument()
    spans = len(collector.spans.get_finished_spans())
    collector.clear()
    return spans


if __name__ == "__main__":
    main()
