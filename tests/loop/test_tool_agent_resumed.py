"""Agents with tools, killed anywhere and resumed: no finished effect is repeated."""

import asyncio

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from redraft import Agent, QualityCriterion, ReflectionPattern, TokenUsage
from redraft._codec import failure_from_json, failure_to_json
from redraft.errors import UnfinishedError
from redraft.loop import Retry
from redraft.loop.triggers import LEAD
from redraft.models.provider import ProviderModel
from redraft.protocols import ChatReply
from redraft.stores.sqlite import MemoryStore
from support.tool_agents import call


class Killed(BaseException):
    """Simulates the death of the process: nothing runs after it."""


class Answer(BaseModel):
    text: str


class World:
    """A model, tools and a mentor that log each effect as it starts; effect `dies_at` kills the process.

    The model's answer depends on the messages alone, as nothing else survives a restart.
    """

    def __init__(self, dies_at=None):
        self.log = []
        self.dies_at = dies_at
        self.was_busy = False
        self.messages = []

    def effect(self, name):
        self.log.append(name)
        if len(self.log) == self.dies_at:
            raise Killed

    def answer(self, messages, info):
        answered = sum(isinstance(message, ModelResponse) for message in messages)
        returned = [
            part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)
        ]
        self.effect(f"model {answered}")
        if answered == 2 and not self.was_busy:
            self.was_busy = True
            raise ModelHTTPError(429, "scripted")
        self.messages = messages
        script = [
            [call("look", "a", at="x"), call("look", "b", at="y")],
            [call("fail", "c")],
            call("final_result", "d", text=f"{len(returned)} seen"),
            [call("look", "e", at="z")],
            call("final_result", "f", text="good"),
        ]
        parts = script[answered] if isinstance(script[answered], list) else [script[answered]]
        return ModelResponse(parts, usage=RequestUsage(input_tokens=7, output_tokens=3))

    async def look(self, at: str) -> dict[str, str]:
        """Look."""
        self.effect(f"look {at}")
        await asyncio.sleep(0)
        return {"seen": at}

    async def fail(self) -> str:
        """Ask for another try."""
        self.effect("fail")
        raise ModelRetry("not so")

    async def mentor(self, request):
        self.effect("mentor")
        return ChatReply("Take care.", usage=TokenUsage(4, 1, requests=1))

    async def judge(self, answer):
        self.effect(f"judge {answer.text}")
        return answer.text == "good", f"{answer.text} is not good"

    def run(self, store):
        inner = pydantic_ai.Agent(FunctionModel(self.answer), output_type=Answer)
        inner.tool_plain(self.look)
        inner.tool_plain(self.fail)
        pattern = ReflectionPattern(
            quality_criteria=[
                QualityCriterion("good", evaluator="function", evaluator_config={"function": self.judge})
            ],
            reflection_model=self.mentor,
            reflect_on_error=True,
            retry=Retry(attempts=3, first_wait=0, longest_wait=0),
            diversify=False,
        )
        agent = Agent.from_pydantic_ai(inner, pattern=pattern, keep=store)
        return agent.run("Q?", run_id="a run")


UNINTERRUPTED = [
    "model 0", "look x", "look y", "model 1", "fail", "mentor", "model 2", "model 2", "judge 3 seen",
    "model 3", "look z", "model 4", "judge good",
]  # fmt: skip


def summary(result):
    return (
        [
            (version.output, version.evaluation, version.token_usage, version.conversation)
            for version in result.history.versions
        ],
        result.reflections,
        result.usage_by_role,
        result.convergence_reason,
    )


def test_a_run_that_is_not_killed_carries_out_each_effect_once():
    async def main():
        world = World()
        result = await world.run(MemoryStore())
        return world, result

    world, result = asyncio.run(main())
    assert world.log == UNINTERRUPTED
    assert [version.output for version in result.history.versions] == [
        Answer(text="3 seen"),
        Answer(text="good"),
    ]
    assert [(reflection.trigger, reflection.text) for reflection in result.reflections] == [
        ("error", "Take care.")
    ]
    usage = result.usage_by_role
    assert (usage["generation"].requests, usage["generation"].failed_requests) == (3, 1)
    assert (usage["revision"].requests, usage["reflection"].requests) == (2, 1)


@pytest.mark.parametrize("dies_at", range(1, len(UNINTERRUPTED) + 1))
def test_a_killed_run_repeats_only_what_was_under_way(dies_at):
    async def main():
        store, world = MemoryStore(), World(dies_at)
        with pytest.raises(Killed):
            await world.run(store)
        return world, await world.run(store)

    world, result = asyncio.run(main())
    dead = UNINTERRUPTED[dies_at - 1]
    doubled = {name for name in UNINTERRUPTED if world.log.count(name) > UNINTERRUPTED.count(name)}
    # Of two tools under way at once, both were cut short.
    assert doubled <= ({"look x", "look y"} if dead in ("look x", "look y") else {dead})
    assert dead in doubled
    assert set(world.log) == set(UNINTERRUPTED)
    assert [type(version.output) for version in result.history.versions] == [Answer, Answer]
    assert result.best_output == Answer(text="good")
    assert [reflection.text for reflection in result.reflections] == ["Take care."]
    texts = [
        str(part.content) for message in world.messages for part in message.parts if hasattr(part, "content")
    ]
    assert sum(text.startswith(LEAD) for text in texts) == 1
    usage = result.usage_by_role
    assert (usage["generation"].requests, usage["revision"].requests) == (3, 2)
    assert usage["reflection"].requests == 1


def test_a_finished_run_returns_its_result_again():
    async def main():
        store = MemoryStore()
        first = await World().run(store)
        other = World()
        again = await other.run(store)
        return first, other, again

    first, other, again = asyncio.run(main())
    assert other.log == []
    assert summary(again) == summary(first)


class Spender:
    """An agent that looks so often before it answers; each request uses 10 tokens by default."""

    def __init__(self, store, first_says=(), looks=3, given=7):
        self.store, self.looks, self.first_says = store, looks, first_says
        self.given = given
        self.asked = 0

    def answer(self, messages, info):
        self.asked += 1
        answered = sum(isinstance(message, ModelResponse) for message in messages)
        script = [*(TextPart(text) for text in self.first_says), *[call("look", at="x")] * self.looks]
        part = script[answered] if answered < len(script) else TextPart("done")
        return ModelResponse([part], usage=RequestUsage(input_tokens=self.given, output_tokens=3))

    def run(self, **options):
        def look(at: str) -> str:
            """Look."""
            return at

        check = QualityCriterion("x", evaluator="regex", evaluator_config={"pattern": "done"})
        pattern = ReflectionPattern(quality_criteria=[check], diversify=False, **options)
        provider = ProviderModel(FunctionModel(self.answer))
        return Agent(provider, tools=[look], pattern=pattern, keep=self.store).run("Q?", run_id="a run")


def test_a_run_stopped_by_its_budget_has_finished():
    async def main():
        spender = Spender(MemoryStore(), first_says=["first"], looks=30)
        return [await spender.run(budget_tokens=105) for _ in range(2)], spender

    results, spender = asyncio.run(main())
    assert [result.convergence_reason for result in results] == ["token_budget"] * 2
    assert isinstance(results[0].error, UnfinishedError)
    assert spender.asked == 10


def test_a_larger_budget_resumes_the_agent():
    async def main():
        spender = Spender(MemoryStore(), given=70)
        with pytest.raises(UnfinishedError, match="after 1 step "):
            await spender.run(budget_tokens=80)
        return await spender.run(budget_tokens=1000), spender

    result, spender = asyncio.run(main())
    assert result.success
    assert spender.asked == 4
    assert result.token_usage.requests == 4


def test_an_unfinished_error_round_trips_through_a_record():
    async def main():
        with pytest.raises(UnfinishedError) as caught:
            await Spender(MemoryStore(), given=70).run(budget_tokens=80)
        return caught.value

    error = asyncio.run(main())
    again = failure_from_json(failure_to_json(error))
    assert isinstance(again, UnfinishedError)
    assert (str(again), again.reason, again.usage) == (str(error), error.reason, error.usage)
    assert again.conversation == error.conversation
    assert again.conversation.messages


def test_the_calls_of_an_agent_that_came_to_no_answer_count_in_a_resumed_run():
    def answer(messages, info):
        if len(messages) < 4:
            return ModelResponse([call("look", "a")], usage=RequestUsage(input_tokens=70, output_tokens=30))
        return ModelResponse([TextPart("tea")], usage=RequestUsage(input_tokens=70, output_tokens=30))

    fails = [True, True, False]

    def check(text):
        if fails.pop(0):
            raise RuntimeError("no dictionary")
        return text

    def is_tea(text):
        return text == "tea"

    async def main():
        inner = pydantic_ai.Agent(FunctionModel(answer))
        inner.tool_plain(lambda: "a cup", name="look")
        inner.output_validator(check)
        agent = Agent.from_pydantic_ai(inner, criteria=[is_tea], keep=MemoryStore())
        for _ in range(2):
            with pytest.raises(UnfinishedError, match="no dictionary"):
                await agent.run("Q?", run_id="a run")
        return await agent.run("Q?", run_id="a run")

    result = asyncio.run(main())
    used = result.token_usage
    assert (result.best_output, used.requests, used.total_tokens) == ("tea", 9, 900)
