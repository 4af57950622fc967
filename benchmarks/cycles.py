"""What 10,000 cycles do to an agent: time of a cycle, items of its memory, size of the process."""

from __future__ import annotations

import asyncio
import gc
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

from _measure import options, publish, table, verdict

from redraft.cycles.agent import CycleAgent
from redraft.cycles.spec import AgentSpec
from redraft.protocols import ChatReply
from redraft.types import TokenUsage

if TYPE_CHECKING:
    from redraft.protocols import ChatRequest

CYCLES = 10_000
PARTS = 10
TARGET = 1.2
"""How much longer a cycle may take at the end than at the start, as a ratio."""
MEGABYTES = 8.0
"""How much the process may grow once the maximum of cycles is stored."""
HOUR = timedelta(hours=1)
BOUNDS = {"recentActions": 100, "feedbackHistory": 200, "patterns": 7 * 24 + 1}
USED = TokenUsage(900, 60, requests=1, cost_usd=0.001)

RULE = {
    "name": "high",
    "when": "environmentalData.payload.rate > 5",
    "message": "{{ environmentalData.payload.rate }} %",
}
PLAN = {
    "when": "derivedData.analysis.anomalies",
    "action": "adjust",
    "params": {"by": -1},
    "reason": "too high",
}
PROMPT = (
    "Actions: {{ derivedData.execution | json }} Feedback: {{ memory.feedbackHistory | json }} "
    "Patterns: {{ memory.patterns | json }}"
)
FORM = {"type": "object", "properties": {"newPatterns": {"type": "array", "items": {"type": "object"}}}}
RETENTION = {
    "memory.recentActions": {"policy": "max_items", "maxItems": 100},
    "memory.feedbackHistory": {"policy": "max_items", "maxItems": 200},
    "memory.patterns": {"policy": "ttl", "ttlMs": 7 * 24 * 3_600_000},
}


def substage(kind: str, config: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": kind, **({"config": config} if config else {}), **more}


SPEC = AgentSpec.model_validate(
    {
        "name": "watcher",
        "model": "learner",
        "stages": {
            "sense": {"substages": [substage("function", {"function": "look"})]},
            "reason": {
                "substages": [substage("analyze", {"rules": [RULE]}), substage("plan", {"rules": [PLAN]})]
            },
            "actuate": {
                "substages": [
                    substage(
                        "execute",
                        {"actions": [{"name": "adjust", "type": "function", "function": "adjust"}]},
                    ),
                    substage(
                        "evaluate", {"checks": [{"name": "done", "require": "derivedData.execution.actions"}]}
                    ),
                ]
            },
            "reflect": {
                "substages": [
                    substage("learn", prompt=PROMPT, outputSchema=FORM),
                    substage("update-state", {"retention": RETENTION}),
                    substage("capture-metrics", {"trackCycleDuration": True, "trackLLMTokens": True}),
                ]
            },
        },
    }
)


class Plant:
    """Be the world of the agent: a rate that is too high, an hour for each cycle, a model that learns."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.learned = 0

    async def look(self) -> dict[str, Any]:
        """Be a source."""
        return {"rate": 6.5, "line": "B"}

    async def adjust(self) -> dict[str, Any]:
        """Be an action."""
        return {"adjusted": True}

    async def model(self, _request: ChatRequest, /) -> ChatReply:
        """Learn something new each time: nothing merges, so the memory is as full as it can be."""
        self.learned += 1
        pattern = {"description": f"Rate of batch {self.learned} fell after an adjustment", "type": "success"}
        return ChatReply(json.dumps({"newPatterns": [pattern]}), usage=USED)


class Life:
    """Run one agent, cycle by cycle, with a person's word before each."""

    def __init__(self, name: str) -> None:
        self.plant = Plant()
        self.agent = CycleAgent(
            SPEC.model_copy(update={"name": name}),
            functions={"look": self.plant.look, "adjust": self.plant.adjust},
            models={"learner": self.plant.model},
            clock=lambda: self.plant.now,
        )

    async def cycle(self) -> float:
        """Run one cycle; return its CPU milliseconds."""
        self.plant.now += HOUR
        await self.agent.send_feedback("approve", "It is fine.", by="Ada")
        began = process_time()
        result = await self.agent.run_cycle()
        milliseconds = (process_time() - began) * 1e3
        assert result.status == "finished", result.error
        return milliseconds


async def measure(cycles: int) -> tuple[list[tuple[float, float]], list[float], dict[str, int]]:
    """Run an agent for so many cycles, the last tenth by turns with the first cycles of another.

    Return what both took in each turn, the first one's megabytes after each tenth, the items that it keeps.
    """
    old, young = Life("old"), Life("young")
    part = cycles // PARTS
    sizes: list[float] = []
    async with old.agent, young.agent:
        for number in range(1, cycles - part + 1):
            await old.cycle()
            if number % part == 0:
                gc.collect()
                sizes.append(megabytes())
        turns = [(await old.cycle(), await young.cycle()) for _ in range(part)]
        return turns, sizes, {key: len(old.agent.memory.of(key)) for key in BOUNDS}


def megabytes() -> float:
    """Return the resident size of this process, now and not at its highest."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--cycles", type=int, default=CYCLES, help="how many cycles")
    given = parser.parse_args()
    turns, sizes, items = asyncio.run(measure(given.cycles))
    part = given.cycles // PARTS
    end, start = (median(times) for times in zip(*turns, strict=True))
    grown = sizes[-1] - sizes[1]
    over = sum(items[key] > most for key, most in BOUNDS.items())
    kept = ", ".join(f"{count} {key}" for key, count in items.items())
    rows = [
        (f"milliseconds, cycles 1 to {part:,}", f"{start:.2f}", "", ""),
        (f"milliseconds, cycles {given.cycles - part + 1:,} to {given.cycles:,}", f"{end:.2f}", "", ""),
        ("the latter over the former", f"{end / start:.2f}", TARGET, verdict(end / start, TARGET)),
        (f"megabytes after {2 * part:,} cycles", f"{sizes[1]:.1f}", "", ""),
        (f"more after {given.cycles - part:,}", f"{grown:.1f}", MEGABYTES, verdict(grown, MEGABYTES)),
        (f"keys with more than their bound, of {kept}", over, 0, verdict(over, 0)),
    ]
    publish("cycles", table(("one agent, median CPU time", "found", "target", ""), rows), write=given.write)


if __name__ == "__main__":
    main()
