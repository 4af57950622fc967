"""Many cycles: what an agent stores does not grow without bound."""

from redraft.stores.sqlite import MemoryStore
from support.monitor import MONITOR, Clock, World, monitor

CYCLES = 130
TEXT = MONITOR.replace(
    "{retention: {memory.recentActions: {maxItems: 3}}}",
    "{retention: {memory.recentActions: {maxItems: 50}, memory.feedbackHistory: {maxItems: 120}, "
    "memory.patterns: {policy: ttl, ttlMs: 345600000}}}",
).replace("stages:", "memory: {cycles: 20}\nstages:", 1)


async def test_nothing_grows_with_the_number_of_cycles():
    clock, count = Clock(), iter(range(10_000))

    def answer(request):
        return f'{{"newPatterns": [{{"description": "batch {next(count)} was fine"}}]}}'

    store = MemoryStore()
    async with monitor(World(), text=TEXT, replies=answer, storage=store, clock=clock) as agent:
        for number in range(CYCLES):
            clock.passes(hours=1)
            await agent.send_feedback("approve", f"batch {number}")
            await agent.run_cycle()
        kinds = {kind: len(await store.find(kind)) for kind in ("cycle", "feedback", "memory", "step")}
        memory = agent.memory
    assert {key: len(items) for key, items in memory.items.items() if items} == {
        "recentActions": 50,
        "feedbackHistory": 120,
        "patterns": 4 * 24 + 1,
    }
    # Obsolete records are deleted 100 at a time.
    assert kinds["memory"] == 1
    assert kinds["cycle"] + kinds["feedback"] + kinds["step"] <= 20 + 100 + 10
