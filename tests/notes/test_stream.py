import asyncio
from collections import defaultdict

import pytest

from redraft import Ensemble, ReflectionPattern, ScriptedModel, Task
from redraft.errors import EnsembleError
from redraft.events import RunFinished, RunStarted, StepFinished, StepStarted, TokenEvent, VersionEvaluated
from redraft.notes import (
    EnsembleFinished,
    InMemoryReflectionStore,
    ReflectionConfig,
    TaskFailed,
    TaskFinished,
    TaskReflectedEvent,
    TaskStarted,
)
from support.ensembles import BETTER, thinking


def ensemble(*tasks):
    return Ensemble(thinking("said"), list(tasks), InMemoryReflectionStore())


def test_stream_yields_events_in_order():
    pattern_events = []
    task = Task("A", reflect=BETTER, pattern=ReflectionPattern(0, ["short"], on_event=pattern_events.append,
                reflection_model=thinking({"scores": [0.9]})))  # fmt: skip

    async def main():
        stream = ensemble(task, Task("B")).stream()
        with pytest.raises(LookupError):
            _ = stream.result
        events = [event async for event in stream]
        return events, stream.result

    events, result = asyncio.run(main())
    kinds = [
        type(event) for event in events if not isinstance(event, StepStarted | StepFinished | TokenEvent)
    ]
    assert kinds[:5] == [TaskStarted, RunStarted, VersionEvaluated, RunFinished, TaskFinished]
    assert kinds[5] in (TaskReflectedEvent, TaskStarted)
    assert sorted(kind.__name__ for kind in kinds[5:-1]) == sorted(
        ["TaskReflectedEvent", "TaskStarted", "RunStarted", "VersionEvaluated", "RunFinished", "TaskFinished"]
    )
    assert kinds[-1] is EnsembleFinished
    assert events[-1].result is result
    assert result.output == "said"
    assert RunFinished in {type(event) for event in pattern_events}


def test_stream_has_what_the_models_of_its_tasks_write():
    async def main():
        model = ScriptedModel(lambda request: f"a report on {request.messages[-1].content[:4]}")
        stream = Ensemble(model, [Task("Tea."), Task("Cake.")], InMemoryReflectionStore()).stream()
        return [event async for event in stream]

    events = asyncio.run(main())
    texts, pieces = defaultdict(str), [event for event in events if isinstance(event, TokenEvent)]
    for event in pieces:
        texts[event.run_id] += event.text
    assert list(texts.values()) == ["a report on Tea.", "a report on Cake"]
    assert len(pieces) > 4


def test_stream_raises_the_error_after_the_last_event():
    def fails(ctx):
        raise ValueError("broken")

    async def main():
        events, stream = [], ensemble(Task("A", handler=fails)).stream()

        async def listen():
            async for event in stream:
                events.append(event)  # noqa: PERF401 (those before the error count)

        with pytest.raises(EnsembleError, match="broken"):
            await listen()
        return events, stream.result

    events, result = asyncio.run(main())
    assert [type(event) for event in events if not isinstance(event, StepStarted)][-2:] == [
        TaskFailed,
        EnsembleFinished,
    ]
    assert result.results == ()


def test_leaving_the_stream_early_cancels_tasks_and_reflections():
    cancelled = []

    async def never(_):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    first = Task("First", handler=lambda ctx: 1, reflect=ReflectionConfig(strategy=never))

    async def main():
        async with ensemble(first, Task("Second", handler=never, context=[first])).stream() as stream:
            async for event in stream:
                if isinstance(event, TaskStarted) and event.task is not first:
                    await asyncio.sleep(0.05)
                    break

    asyncio.run(main())
    assert len(cancelled) == 2
