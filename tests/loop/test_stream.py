import asyncio

import pytest

from redraft import Agent, ConfigError, ModelError, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.events import Reflected, RunFinished, RunStarted, StepStarted, TokenEvent
from redraft.loop import Retry
from redraft.loop.triggers import LEAD
from redraft.protocols import ChatReply
from support.tool_agents import Actor, call

TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})


async def mentor(request):
    return ChatReply("Think of leaves.")


def manual(**options):
    chosen = {"quality_criteria": [TEA], "reflection_triggers": ["manual"], **options}
    return ReflectionPattern(reflection_model=mentor, retry=Retry(attempts=1), **chosen)


def sip() -> str:
    """Sip."""
    return "hot"


def test_a_stream_has_the_events_and_the_result():
    async def main():
        async with Agent(ScriptedModel(["coffee", "tea"]), pattern=manual()).stream("W.") as run:
            with pytest.raises(LookupError, match="no result"):
                run.result  # noqa: B018
            events = [event async for event in run]
            return events, run.result

    events, result = asyncio.run(main())
    assert isinstance(events[0], RunStarted)
    assert events[-1] == RunFinished(result.run_id, result)
    assert result.best_output == "tea"
    assert result.reflections == ()


def test_a_second_iteration_ends_at_once():
    async def main():
        run = Agent(ScriptedModel(["tea"]), pattern=manual()).stream("W.")
        async with asyncio.timeout(30):
            return [len([event async for event in run]) for _ in range(3)]

    first, *later = asyncio.run(main())
    assert first > 0
    assert later == [0, 0]


def test_the_patterns_listener_gets_the_same_events_but_tokens():
    heard = []

    async def main():
        agent = Agent(ScriptedModel(["tea"]), pattern=manual(on_event=heard.append))
        return [event async for event in agent.stream("W.") if not isinstance(event, TokenEvent)]

    assert asyncio.run(main()) == heard


class Gate:
    """A tool and a check that wait until the test lets them go on."""

    def __init__(self):
        self.open = asyncio.Event()

    async def sip(self) -> str:
        """Sip."""
        await self.open.wait()
        return "hot"

    async def is_tea(self, output):
        await self.open.wait()
        return output == "tea"

    def pattern(self, **options):
        check = QualityCriterion("tea", evaluator="function", evaluator_config={"function": self.is_tea})
        return manual(quality_criteria=[check], **options)


def test_reflect_now_at_the_next_step_of_an_agent():
    actor = Actor([call("sip", "a"), call("sip", "b"), call("sip", "c"), "tea"])

    async def main():
        taken, events, gate = [], [], Gate()
        async with Agent(actor.provider, tools=[gate.sip], pattern=manual()).stream("W.") as run:
            async for event in run:
                events.append(event)
                if isinstance(event, StepStarted) and event.name == "tool sip a":
                    taken += [run.reflect_now(), run.reflect_now()]
                    gate.open.set()
            return taken, events, run.result

    taken, events, result = asyncio.run(main())
    assert taken == [True, False]  # the second asks for what is coming anyway
    reflections = [(event.trigger, event.step) for event in events if isinstance(event, Reflected)]
    assert reflections == [("manual", 1)]
    shown = [f"{LEAD}\nThink of leaves." in actor.asked(request) for request in range(4)]
    assert shown == [False, True, False, False]
    assert [reflection.trigger for reflection in result.reflections] == ["manual"]


@pytest.mark.parametrize("acts", [True, False])
def test_reflect_now_between_two_versions(acts):
    actor, model = Actor(["coffee", "tea"]), ScriptedModel(["coffee", "tea"])

    async def main():
        gate = Gate()
        chosen = gate.pattern()
        agent = Agent(actor.provider, tools=[sip], pattern=chosen) if acts else Agent(model, pattern=chosen)
        run = agent.stream("W.")
        async for event in run:
            if isinstance(event, StepStarted) and event.name == "evaluate" and not gate.open.is_set():
                assert run.reflect_now()
                gate.open.set()
        return run.result

    result = asyncio.run(main())
    assert [(reflection.trigger, reflection.iteration) for reflection in result.reflections] == [
        ("manual", 2)
    ]
    asked = actor.asked(1)[0] if acts else model.requests[1].messages[-1].content
    assert "Think of leaves." in asked


def test_reflect_now_before_the_first_version():
    actor = Actor([call("sip", "a"), "tea"])
    run = Agent(actor.provider, tools=[sip], pattern=manual()).stream("W.")

    async def main():
        assert run.reflect_now()
        return [event async for event in run]

    asyncio.run(main())
    assert [(reflection.trigger, reflection.step) for reflection in run.result.reflections] == [("manual", 1)]


def test_reflect_now_up_to_max_reflections():
    async def main():
        gates = {"a": Gate(), "b": Gate()}

        async def wait(name: str) -> str:
            """Wait."""
            await gates[name].open.wait()
            return "hot"

        actor = Actor([call("wait", name, name=name) for name in gates] + ["tea"])
        run = Agent(actor.provider, tools=[wait], pattern=manual(max_reflections=1)).stream("W.")
        taken = []
        async for event in run:
            if isinstance(event, StepStarted) and event.name.startswith("tool wait"):
                taken.append(run.reflect_now())
                gates[event.name[-1]].open.set()
        return taken, run.result

    taken, result = asyncio.run(main())
    assert taken == [True, False]
    assert len(result.reflections) == 1


def test_reflect_now_needs_its_trigger_and_a_running_run():
    async def main():
        plain = Agent(ScriptedModel(["tea"]), pattern=ReflectionPattern(quality_criteria=[TEA])).stream("W.")
        with pytest.raises(ConfigError, match="'manual' among the pattern's reflection_triggers"):
            plain.reflect_now()
        run = Agent(ScriptedModel(["tea"]), pattern=manual()).stream("W.")
        async for _ in run:
            pass
        with pytest.raises(RuntimeError, match="has finished"):
            run.reflect_now()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["break", "aclose", "async with"])
def test_leaving_early_cancels_the_run(how):
    async def main():
        cancelled = asyncio.Event()

        async def slow(request):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        run = Agent(ScriptedModel(slow), pattern=manual()).stream("W.")
        if how == "async with":
            async with run:
                await asyncio.sleep(0.01)
        else:
            async for _ in run:
                await asyncio.sleep(0.01)
                break
            if how == "aclose":
                await run.aclose()
        await asyncio.wait_for(cancelled.wait(), 60)

    asyncio.run(main())


def test_an_unused_stream_leaves_nothing_behind():
    async def main():
        run = Agent(ScriptedModel([]), pattern=manual()).stream("W.")
        await run.aclose()

    asyncio.run(main())


def test_the_iteration_raises_what_the_run_raises():
    async def main():
        run = Agent(ScriptedModel([ModelError("no such model")]), pattern=manual()).stream("W.")
        with pytest.raises(ModelError, match="no such model"):
            async for _ in run:
                pass
        with pytest.raises(LookupError):
            run.result  # noqa: B018

    asyncio.run(main())


def test_bad_options_raise_before_the_iteration():
    agent = Agent(ScriptedModel([]), pattern=manual())
    with pytest.raises(ConfigError, match="can't fire"):
        agent.stream("W.", pattern=manual(reflection_interval=3))


def test_get_history_after_a_stream():
    agent = Agent(ScriptedModel(lambda request: "tea"), pattern=ReflectionPattern(quality_criteria=[TEA]))

    async def main():
        async for event in agent.stream("W."):
            if isinstance(event, RunFinished):
                break
        return agent.pattern.get_history()

    assert asyncio.run(main()).best_version.output == "tea"


@pytest.mark.parametrize("how", ["left early", "closed meanwhile"])
def test_an_iteration_over_a_cancelled_run_is_not_cancelled_itself(how):
    async def slow(_request):
        await asyncio.sleep(60)

    async def consume(stream):
        async for _ in stream:
            if how == "left early":
                break
        async for _ in stream:
            pass

    async def main():
        stream = Agent(slow, criteria=[str.islower], keep=False).stream("W.")
        consuming = asyncio.create_task(consume(stream))
        await asyncio.sleep(0.05)
        await stream.aclose()
        with pytest.raises(RuntimeError, match="The run was cancelled, and the iteration"):
            await consuming

    asyncio.run(main())
