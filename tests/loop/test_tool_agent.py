import asyncio
import sys
from dataclasses import dataclass
from unittest.mock import ANY

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry, Tool, UsageLimits
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from redraft import (
    Agent,
    ConfigError,
    ConvergenceReason,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
)
from redraft._codec import from_json, from_record, to_record
from redraft.errors import MissingExtraError, UnfinishedError
from redraft.events import StepFinished
from redraft.loop import Retry
from redraft.loop.runs import Runs
from redraft.loop.tool_agent import ToolOutcome
from redraft.models.fallback import FallbackModel
from redraft.models.provider import ProviderModel
from redraft.stores.sqlite import MemoryStore
from redraft.types import Draft
from support.tool_agents import Actor, call

QUICK = Retry(attempts=3, first_wait=0, longest_wait=0)


def containing(word, **options):
    """A pattern that accepts an answer with this word."""
    criterion = QualityCriterion("right", evaluator="regex", evaluator_config={"pattern": word})
    return ReflectionPattern(quality_criteria=[criterion], **{"retry": QUICK, "diversify": False, **options})


def scored(*scores, **options):
    """A pattern whose check gives the outputs these scores, each with another reason."""
    left = list(scores)

    def grade(output):
        return {"score": left.pop(0), "reason": f"{output} {len(left)}"}

    criterion = QualityCriterion("graded", evaluator="function", evaluator_config={"function": grade})
    return ReflectionPattern(quality_criteria=[criterion], retry=QUICK, **options)


def population(city: str) -> int:
    """Look up how many people live in a city."""
    return {"Paris": 2_100_000, "Berlin": 3_700_000}[city]


def answers(messages):
    return [
        part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)
    ]


# --- one run of the agent is one version -------------------------------------------------------------------


def test_a_revision_continues_the_conversation_with_its_tool_calls():
    actor = Actor([call("population", city="Paris"), "Many.", call("population", city="Berlin"), "3700000."])
    agent = Agent(actor.provider, tools=[population], pattern=containing("3700000"), system_prompt="Count.")
    result = agent.run_sync("How many people?")
    assert result.success
    assert [version.output for version in result.history.versions] == ["Many.", "3700000."]
    assert answers(actor.requests[3]) == [2_100_000, 3_700_000]  # what was gathered before is there still
    assert actor.asked(2)[0].startswith("What is wrong:")
    (instructions,) = {info.instructions for info in actor.infos}
    assert instructions.split("\n\n") == [
        "Count.",
        "Reply with only the answer.",
    ]
    usage = result.usage_by_role
    assert (usage["generation"].requests, usage["revision"].requests) == (2, 2)
    assert result.token_usage.total_tokens == 40
    assert result.token_usage.cost_usd is None  # no price is known of a scripted model


def test_each_candidate_has_its_own_conversation_and_the_best_one_is_continued():
    texts = {2_100_000: ["Many."], 3_700_000: ["About 3700000.", "Exactly 3700000."]}

    class Counter(Actor):
        def __call__(self, messages, info):  # by what a tool answered: either may be first
            if found := answers(messages):
                self.script.insert(0, texts[found[-1]].pop(0))
            return super().__call__(messages, info)

    actor = Counter([call("population", city="Paris"), call("population", city="Berlin")])
    grades = {"Many.": 0.1, "About 3700000.": 0.4, "Exactly 3700000.": 1.0}
    criterion = QualityCriterion("graded", evaluator="function", evaluator_config={"function": grades.get})
    pattern = ReflectionPattern(quality_criteria=[criterion], candidates=2)
    agent = Agent(actor.provider, tools=[population], pattern=pattern, keep=False)
    result = agent.run_sync("Which city is larger?")
    version = result.history.versions[0]
    (rejected,) = version.rejected
    assert [version.output, rejected.output] == ["About 3700000.", "Many."]
    assert "2100000" in str(rejected.conversation.messages)
    assert answers(actor.requests[-1]) == [3_700_000], "the revision goes on with the chosen conversation"
    assert result.token_usage.total_tokens == 50


def test_what_a_candidate_has_used_by_the_deadline_is_counted():
    async def hang() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return ""

    actor = Actor(["Many.", call("hang")])
    criterion = QualityCriterion(
        "graded", evaluator="function", evaluator_config={"function": slowly}, threshold=0
    )
    pattern = ReflectionPattern(
        quality_criteria=[criterion], candidates=2, max_iterations=0, budget_seconds=0.3
    )
    agent = Agent(actor.provider, tools=[hang], pattern=pattern, keep=False)
    result = agent.run_sync("Which city is larger?")
    assert result.best_output == "Many."
    assert result.token_usage.total_tokens == 20


async def slowly(output):
    await asyncio.sleep(0.1)
    return 0.5


def test_only_answers_are_versions():
    gathering = [call("population", city="Paris")] * 12
    actor = Actor([*gathering, "0", *gathering, "1", *gathering, "2"])
    agent = Agent(actor.provider, tools=[population], pattern=scored(0.5, 0.5, 0.5, plateau_iterations=2))
    result = agent.run_sync("How many people?")
    assert result.convergence_reason is ConvergenceReason.PLATEAU
    assert len(result.history.versions) == 3
    assert result.token_usage.requests == 39


def test_a_regression_returns_to_the_best_versions_conversation():
    actor = Actor([call("population", city="Paris"), "good", "bad", "best"])
    agent = Agent(actor.provider, tools=[population], pattern=scored(0.6, 0.3, 0.9))
    result = agent.run_sync("Q?")
    assert [version.base for version in result.history.versions] == [None, 1, 1]
    texts = [
        part.content for message in actor.requests[3] for part in message.parts if isinstance(part, TextPart)
    ]
    assert texts == ["good"]
    assert "made it worse" in actor.asked(3)[0]


def test_a_fresh_start_begins_a_new_conversation():
    actor = Actor([call("population", city="Paris"), "same", "same", "other"])
    agent = Agent(actor.provider, tools=[population], pattern=scored(0.5, 0.9))
    result = agent.run_sync("Q?")
    assert result.history.versions[2].strategy == "fresh"
    assert len(actor.requests[3]) == 1
    assert actor.asked(3)[0].startswith("Q?")


def test_a_starting_draft_is_sent_with_its_critique():
    actor = Actor([call("population", city="Paris"), "2100000"])
    agent = Agent(actor.provider, tools=[population], pattern=containing("2100000"))
    result = agent.run_sync("How many?", draft="Many.")
    assert result.history.versions[0].strategy == "given"
    assert "How many?" in actor.asked(0)[0]
    assert "Many." in actor.asked(0)[0]


@pytest.mark.parametrize("is_down", [False, True])
def test_the_price_of_the_model_that_answered_bounds_fallback_models_with_tools(is_down):
    down, actor = Actor([ModelHTTPError(500, "scripted")]), Actor([call("moody", x=3)] * 100)
    models = [down, actor] if is_down else [actor, down]
    made = [
        ProviderModel(FunctionModel(model, model_name=str(n)), price=(1000, 1000 if model is actor else 1))
        for n, model in enumerate(models)
    ]
    agent = Agent(FallbackModel(made), tools=[moody], pattern=containing("done", budget_usd=0.5))
    with pytest.raises(UnfinishedError, match="cost budget was spent") as caught:
        agent.run_sync("Q?")
    assert caught.value.usage.cost_usd == pytest.approx(0.01 * len(actor.requests))
    assert 10 < len(actor.requests) < 50


def test_an_empty_reply_to_an_agent_with_tools_costs_its_price():
    provider = ProviderModel(Actor(["", "done"]).model, price=(1000, 1000))
    result = Agent(provider, tools=[moody], pattern=containing("done")).run_sync("Q?")
    assert result.token_usage.cost_usd == pytest.approx(0.02)


# --- tools -------------------------------------------------------------------------------------------------


async def slow_double(x: int) -> int:
    """Double a number."""
    await asyncio.sleep(0.001)
    return 2 * x


def moody(x: int) -> int:
    """Ask for another number."""
    if x < 2:
        raise ModelRetry("a bigger number, please")
    return x


def broken(x: int) -> int:
    """Fail."""
    raise ValueError(f"no {x} here")


def refusing(x: int) -> int:
    """Read something of another form."""
    return Weather(degrees="warm").degrees


async def delegating(x: int) -> str:
    """Ask an agent whose model is down."""
    return (await pydantic_ai.Agent(Actor([ModelHTTPError(503, "inner")]).model).run("Q?")).output


async def cancelled(x: int) -> int:
    """Await a task that was cancelled."""
    raise asyncio.CancelledError


def leaving(x: int) -> int:
    """Parse arguments."""
    raise SystemExit(x)


async def leaving_later(x: int) -> int:
    """Parse arguments."""
    raise SystemExit(x)


@pytest.mark.parametrize(
    ("tool", "reported"),
    [
        (population, "KeyError: 'x'"),
        (slow_double, 2),
        (Tool(slow_double, name="twice"), 2),
        (moody, "a bigger number, please"),
        (broken, "ValueError: no 1 here"),
        (refusing, ANY),
        (delegating, "ModelHTTPError: status_code: 503, model_name: inner, body: None"),
        (cancelled, "RuntimeError: the tool 'cancelled' was cancelled, and the run was not"),
        (leaving, "RuntimeError: the tool 'leaving' raised SystemExit: 1"),
        (leaving_later, "RuntimeError: the tool 'leaving_later' raised SystemExit: 1"),
    ],
)
def test_a_tools_outcome_is_reported_to_the_model(tool, reported):
    name = tool.name if isinstance(tool, Tool) else tool.__name__
    arguments = {"city": "x"} if tool is population else {"x": 1}
    actor = Actor([call(name, **arguments), "done"])
    agent = Agent(actor.provider, tools=[tool], pattern=containing("done"))
    assert agent.run_sync("Q?").success
    assert answers(actor.requests[1]) == [reported]


@pytest.mark.parametrize("value", [object(), (number for number in (1, 2)), map(str, [1]), {1: 2, "1": 3}])
def test_a_tool_must_return_something_with_a_json_form(value):
    def odd() -> object:
        """An odd thing."""
        return value

    actor = Actor([call("odd"), "done"])
    agent = Agent(actor.provider, tools=[odd], pattern=containing("done"))
    assert agent.run_sync("Q?").success
    assert "which has no JSON form" in answers(actor.requests[1])[0]


@pytest.mark.parametrize("wrapped", [lambda seen: seen, pydantic_ai.ToolReturn])
def test_a_tool_can_not_change_an_answer_that_it_gave_before(wrapped):
    seen = []

    def look(x: int) -> object:
        """Look."""
        seen.append(x)
        return wrapped(seen)

    actor = Actor([call("look", x=1), call("look", x=2), "done"])
    agent = Agent(actor.provider, tools=[look], pattern=containing("done"))
    assert agent.run_sync("Q?").success
    assert answers(actor.requests[2]) == [[1], [1, 2]]


@dataclass
class Place:
    name: str


class Weather(BaseModel):
    degrees: int


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {"a": [1, None, True]},
        [1.5, "b"],
        Weather(degrees=3),
        [Weather(degrees=3)],
        Place("here"),
        pydantic_ai.BinaryContent(b"\x89PNG", media_type="image/png"),
        pydantic_ai.ToolReturn(return_value={"a": 1}, content="more"),
    ],
)
def test_tool_results_round_trip_through_a_record(value):
    outcome = ToolOutcome(value)
    assert from_record(ToolOutcome, to_record(outcome)) == outcome


def test_model_responses_round_trip_through_a_record():
    response = Actor([[call("f", "id-1", x=1), "text"]])([], None)
    assert from_record(ModelResponse, to_record(response)) == response


def test_a_draft_with_its_conversation_round_trips_through_json():
    result = Agent(Actor(["done"]).provider, tools=[moody], pattern=containing("done")).run_sync("Q?")
    conversation = result.history.best_version.conversation
    draft = Draft("done", conversation=conversation)
    assert from_json(Draft, to_record(draft)) == draft
    assert [message["kind"] for message in conversation.messages] == ["request", "response"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": ScriptedModel([]), "tools": [moody]}, "can't call tools"),
        ({"tools": moody}, "tools must be a list"),
        ({"tools": ["moody"]}, "tools must be functions"),
        ({"tools": [moody, moody]}, "moody"),
        ({"tools": [moody], "pattern": containing("x", reflect_on_tools=["mody"])}, "did you mean 'moody'"),
    ],
)
def test_bad_models_and_tools_raise_before_any_call(arguments, message):
    actor = Actor([])
    with pytest.raises(ConfigError, match=message):
        Agent(**{"model": actor.provider, **arguments})
    assert actor.requests == []


@pytest.mark.parametrize(
    "make", [lambda: Agent(Actor([]).provider, tools=[moody]), lambda: Agent.from_pydantic_ai(None)]
)
def test_without_pydantic_ai_the_error_names_the_extra(make, monkeypatch):
    monkeypatch.delitem(sys.modules, "redraft.loop.tool_agent", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_ai.toolsets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'redraft\[providers\]'"):
        make()


# --- failures and budgets ----------------------------------------------------------------------------------


def busy():
    return ModelHTTPError(429, "scripted")


def test_a_temporary_failure_is_retried_within_the_agents_run():
    actor = Actor([call("moody", x=3), busy(), busy(), "done"])
    agent = Agent(actor.provider, tools=[moody], pattern=containing("done"))
    result = agent.run_sync("Q?")
    assert result.success
    assert [len(messages) for messages in actor.requests] == [1, 3, 3, 3]  # the agent did not begin anew
    assert (result.token_usage.requests, result.token_usage.failed_requests) == (2, 2)


def test_a_permanent_failure_ends_the_run_with_its_versions():
    actor = Actor(["first", call("moody", x=3), busy(), busy(), busy()])
    agent = Agent(actor.provider, tools=[moody], pattern=containing("done"))
    result = agent.run_sync("Q?")
    assert result.convergence_reason is ConvergenceReason.ERROR
    assert isinstance(result.error, ModelError)
    assert result.error.status == 429
    assert result.best_output == "first"
    assert (result.token_usage.requests, result.token_usage.failed_requests) == (2, 3)
    assert len(actor.requests) == 5


def test_a_retry_after_beyond_the_limit_is_in_the_error():
    actor = Actor([ModelHTTPError(429, "scripted", retry_after=600.0)])
    agent = Agent(actor.provider, tools=[moody], pattern=containing("done", retry=Retry()))
    with pytest.raises(
        ModelError, match=r"429.* The provider asks to wait 600 s \(Retry-After\), more than the 60 s"
    ):
        agent.run_sync("Q?")
    assert len(actor.requests) == 1


def test_a_budget_bounds_the_steps_of_an_agent():
    actor = Actor([call("moody", x=3)] * 100)
    agent = Agent(actor.provider, tools=[moody], pattern=containing("done", budget_tokens=100))
    with pytest.raises(
        UnfinishedError, match=r"token budget was spent after 9 steps.* leaves 10 tokens"
    ) as caught:
        agent.run_sync("Q?")
    assert len(actor.requests) == 9
    assert caught.value.usage.total_tokens == 90
    assert caught.value.reason is ConvergenceReason.TOKEN_BUDGET
    assert len(caught.value.conversation.messages) == 19


@pytest.mark.parametrize(
    ("budget", "used"), [({"budget_tokens": 105}, 90), ({"max_revision_tokens": 105}, 100)]
)
def test_a_budget_spent_in_a_revision_keeps_the_earlier_version(budget, used):
    actor = Actor(["first", *[call("moody", x=3)] * 100])
    agent = Agent(actor.provider, tools=[moody], pattern=containing("done", on_failure="raise", **budget))
    result = agent.run_sync("Q?")
    assert result.convergence_reason is ConvergenceReason.TOKEN_BUDGET
    assert result.best_output == "first"
    assert isinstance(result.error, UnfinishedError)
    assert result.error.conversation.messages
    assert result.usage_by_role["revision"].total_tokens == used


@pytest.mark.parametrize("hangs", ["a tool", "the model"])
@pytest.mark.parametrize("first", [True, False])
def test_a_hanging_agent_is_cancelled_and_its_conversation_stored(hangs, first, monkeypatch):
    monkeypatch.setattr("redraft.loop.budget.GRACE", 1_000)

    async def hang():
        """Let the time of the budget go by on the clock of the event loop, and never end."""
        loop = asyncio.get_running_loop()
        before = loop.time
        loop.time = lambda: before() + 60
        await asyncio.Event().wait()

    async def wait() -> str:
        """Wait."""
        if hangs == "a tool":
            await hang()
        return "waited"

    async def act(messages, info):
        requests.append(messages)
        script = [[] if first else ["first"], [call("wait")], ["done"]]
        parts = [part for parts in script for part in parts][len(requests) - 1]
        if parts == "done":
            await hang()
        part = TextPart(parts) if isinstance(parts, str) else parts
        return ModelResponse([part], usage=RequestUsage(input_tokens=7, output_tokens=3))

    requests = []
    agent = Agent(
        ProviderModel(FunctionModel(act)), tools=[wait], pattern=containing("done", budget_seconds=60)
    )

    async def main():
        return await asyncio.wait_for(agent.run("Q?"), 120)

    if first:
        with pytest.raises(UnfinishedError, match="time budget was spent after 1 step") as caught:
            asyncio.run(main())
        error = caught.value
    else:
        result = asyncio.run(main())
        error = result.error
        assert (result.convergence_reason, result.best_output) == ("time_budget", "first")
        assert result.usage_by_role["revision"].total_tokens == 10
    assert error.reason is ConvergenceReason.TIME_BUDGET
    assert error.usage.total_tokens == 10
    assert len(error.conversation.messages) >= 2
    what = "the tool 'wait' was under way" if hangs == "a tool" else "a model was answering"
    assert f"60 seconds passed (budget_seconds) while {what}; it was cancelled." in str(error)


def test_a_cancelled_run_counts_what_the_agent_used():
    seen = []

    async def main():
        actor = Actor(["first", call("wait")])
        started = asyncio.Event()

        async def wait() -> str:
            """Wait."""
            started.set()
            await asyncio.sleep(60)
            return "over"

        pattern = containing("done", on_event=seen.append)
        task = asyncio.ensure_future(Agent(actor.provider, tools=[wait], pattern=pattern).run("Q?"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen[-1].result.token_usage.requests == 2


def test_each_effect_is_a_step_that_listeners_see():
    seen = []
    actor = Actor([[call("moody", "a", x=2), call("moody", "b", x=3)], "done"])
    pattern = containing("done", on_event=seen.append)
    Agent(actor.provider, tools=[moody], pattern=pattern).run_sync("Q?")
    names = [event.name for event in seen if isinstance(event, StepFinished)]
    assert sorted(names[:4]) == ["model 1", "model 2", "tool moody a", "tool moody b"]
    assert names[4:] == ["generate", "evaluate"]


# --- an agent that is there --------------------------------------------------------------------------------


class Answer(BaseModel):
    city: str
    people: int


def final(**fields):
    return call("final_result", **fields)


def wrapped(actor, **options):
    return pydantic_ai.Agent(actor.model, output_type=Answer, **options)


def counted(**options):
    criterion = QualityCriterion(
        "right",
        evaluator="function",
        evaluator_config={"function": lambda answer: (answer.people > 0, "count")},
    )
    return ReflectionPattern(quality_criteria=[criterion], retry=QUICK, **options)


def test_a_wrapped_agent_keeps_its_type_its_deps_and_its_history():
    actor = Actor([call("look"), final(city="Paris", people=0), final(city="Paris", people=5)])
    inner = wrapped(actor, deps_type=str, system_prompt="You count.")

    @inner.tool
    def look(ctx: pydantic_ai.RunContext[str]) -> str:
        """Look."""
        return f"seen by {ctx.deps}"

    history = [ModelRequest([UserPromptPart("Hello.")]), ModelResponse([TextPart("Hi.")])]
    agent = Agent.from_pydantic_ai(inner, pattern=counted())
    before = vars(inner).copy()
    result = agent.with_options(deps="Ann", message_history=history).run_sync("How many?")
    assert result.success
    assert result.best_output == Answer(city="Paris", people=5)
    assert [type(version.output) for version in result.history.versions] == [Answer, Answer]
    assert answers(actor.requests[1]) == ["seen by Ann"]
    assert actor.requests[0][0].parts[0].content == "Hello."
    assert "count" in actor.asked(2)[-1]
    assert vars(inner) == before


def test_runs_of_a_wrapped_agent_are_stored_under_its_name_and_model():
    store = MemoryStore()
    inner = pydantic_ai.Agent("test", name="reviewer")
    Agent.from_pydantic_ai(inner, pattern=ReflectionPattern(0), keep=store).run_sync("Q?")
    origin = asyncio.run(Runs(store).get()).origin
    assert (origin.name, origin.model) == ("reviewer", "test:test")


def test_a_later_call_of_with_options_changes_only_what_it_names():
    actor = Actor([final(city="Paris", people=5)] * 3)
    inner = wrapped(actor, deps_type=str)
    seen = []
    inner.instructions(lambda ctx: seen.append(ctx.deps) or "Count.")
    history = [ModelRequest([UserPromptPart("Hello.")]), ModelResponse([TextPart("Hi.")])]
    agent = Agent.from_pydantic_ai(inner, pattern=counted()).with_options(deps="Ann", message_history=history)
    later = agent.with_options(deps="Bob").with_options(usage_limits=UsageLimits(request_limit=1))
    for one in (later, later.with_options(deps=None, message_history=None), agent):
        assert one.run_sync("How many?").success
    assert seen == ["Bob", None, "Ann"]
    first = [messages[0].parts[0].content for messages in actor.requests]
    assert [content == "Hello." for content in first] == [True, False, True]


def test_a_wrapped_agents_own_model_judges():
    actor = Actor([final(city="Paris", people=1), "clarity: 0.9"])
    pattern = ReflectionPattern(quality_criteria=["clarity"], structured_reflection=False)
    result = Agent.from_pydantic_ai(wrapped(actor), pattern=pattern).run_sync("Q?")
    assert result.success
    assert "self_judged_only" in result.diagnostics


def test_a_wrapped_agent_keeps_its_validators_and_retries():
    actor = Actor([final(city="Paris", people=-1), final(city="Paris", people=2)])
    inner = wrapped(actor)

    @inner.output_validator
    def positive(answer: Answer) -> Answer:
        if answer.people < 0:
            raise ModelRetry("no negative people")
        return answer

    result = Agent.from_pydantic_ai(inner, pattern=counted()).run_sync("Q?")
    assert len(result.history.versions) == 1
    assert answers(actor.requests[1]) == ["no negative people"]


def test_a_wrapped_agents_usage_limits_end_its_run_with_its_usage():
    actor = Actor([final(city="Paris", people=0), *[call("look")] * 9])
    inner = wrapped(actor)

    @inner.tool_plain
    def look() -> str:
        """Look."""
        return "nothing"

    agent = Agent.from_pydantic_ai(inner, pattern=counted())
    result = agent.with_options(usage_limits=UsageLimits(request_limit=3)).run_sync("Q?")
    assert result.convergence_reason is ConvergenceReason.ERROR
    assert isinstance(result.error, UnfinishedError)
    assert "request_limit of 3" in str(result.error)
    assert len(result.error.conversation.messages) > 6
    assert result.token_usage.requests == 4


def test_a_streaming_agent_can_be_wrapped():
    heard = []

    async def hear(ctx, events):
        heard.extend([event async for event in events])

    actor = Actor([final(city="Paris", people=1)])
    inner = wrapped(actor, capabilities=[ProcessEventStream(hear)])
    assert Agent.from_pydantic_ai(inner, pattern=counted()).run_sync("Q?").success
    assert heard


def test_an_output_that_waits_for_approval_is_an_error():
    actor = Actor([call("look")])
    inner = pydantic_ai.Agent(actor.model, output_type=[str, pydantic_ai.DeferredToolRequests])

    @inner.tool_plain(requires_approval=True)
    def look() -> str:
        """Look."""
        return "seen"

    with pytest.raises(UnfinishedError, match="can't be redrafted"):
        Agent.from_pydantic_ai(inner, pattern=containing("x")).run_sync("Q?")


def test_a_wrapped_agent_without_a_model_raises():
    agent = Agent.from_pydantic_ai(pydantic_ai.Agent(), pattern=containing("x"))
    with pytest.raises(ConfigError, match="The agent can't run"):
        agent.run_sync("Q?")


@pytest.mark.parametrize("given", ["agent", 3, None])
def test_only_an_agent_can_be_wrapped(given):
    with pytest.raises(ConfigError, match="takes an agent of Pydantic AI"):
        Agent.from_pydantic_ai(given)
