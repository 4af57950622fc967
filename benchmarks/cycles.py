"""What 10,000 cycles do to an agent: the time of a cycle, the items of its memory, the process's size."""

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

from redraft.core.chat import ChatReply
from redraft.core.usage import TokenUsage
from redraft.cycles.agent import CycleAgent
from redraft.cycles.spec import AgentSpec

if TYPE_CHECKING:
    from redraft.core.chat import ChatRequest

CYCLES = 10_000
PARTS = 10
TARGET = 1.2
"""How many times the time of a cycle at the start it may take at the end."""
MEGABYTES = 8.0
"""What the process may grow by once as many cycles are kept as are to be."""
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
        self.learnt = 0

    async def look(self) -> dict[str, Any]:
        """Be a source."""
        return {"rate": 6.5, "line": "B"}

    async def adjust(self) -> dict[str, Any]:
        """Be an action."""
        return {"adjusted": True}

    async def model(self, _request: ChatRequest, /) -> ChatReply:
        """Learn something new each time: nothing merges, so the memory is as full as it can be."""
        self.learnt += 1
        pattern = {"description": f"Rate of batch {self.learnt} fell after an adjustment", "type": "success"}
        return ChatReply(json.dumps({"newPatterns": [pattern]}), usage=USED)


async def live(cycles: int) -> tuple[list[float], list[float], dict[str, int]]:
    """Run so many cycles; return the CPU seconds of each, the megabytes after each part, the items kept."""
    plant = Plant()
    functions = {"look": plant.look, "adjust": plant.adjust}
    seconds: list[float] = []
    sizes: list[float] = []
    async with CycleAgent(
        SPEC, functions=functions, models={"learner": plant.model}, clock=lambda: plant.now
    ) as agent:
        for number in range(1, cycles + 1):
            plant.now += HOUR
            await agent.send_feedback("approve", f"Batch {number} is fine.", by="Ada")
            began = process_time()
            result = await agent.run_cycle()
            seconds.append(process_time() - began)
            assert result.status == "finished", result.error
            if number % (cycles // PARTS) == 0:
                gc.collect()
                sizes.append(megabytes())
        return seconds, sizes, {key: len(agent.memory.of(key)) for key in BOUNDS}


def megabytes() -> float:
    """Return the resident size of this process, now and not at its highest."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def typical(seconds: list[float]) -> float:
    """Return the milliseconds that half of the cycles stay below."""
    return median(seconds) * 1e3


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--cycles", type=int, default=CYCLES, help="how many cycles")
    given = parser.parse_args()
    seconds, sizes, items = asyncio.run(live(given.cycles))
    size = given.cycles // PARTS
    parts = [seconds[begin : begin + size] for begin in range(0, given.cycles, size)]
    rows = [
        (f"{place * size + 1:,} to {(place + 1) * size:,}", f"{typical(part):.2f}", f"{grown:.0f}")
        for place, (part, grown) in enumerate(zip(parts, sizes, strict=True))
    ]
    ratio, grown = typical(parts[-1]) / typical(parts[0]), sizes[-1] - sizes[1]
    bounded = all(items[key] <= most for key, most in BOUNDS.items())
    checks = [
        ("time at the end over time at the start", f"{ratio:.2f}", TARGET, verdict(ratio, TARGET)),
        (
            "megabytes more at the end than after two tenths",
            f"{grown:.1f}",
            MEGABYTES,
            verdict(grown, MEGABYTES),
        ),
        (f"items kept: {items}", "", BOUNDS, "met" if bounded else "**missed**"),
    ]
    shown = table(("cycles", "CPU milliseconds a cycle", "megabytes"), rows)
    publish("cycles", f"{shown}\n\n{table(('', 'found', 'target', ''), checks)}", write=given.write)


if __name__ == "__main__":
    main()
