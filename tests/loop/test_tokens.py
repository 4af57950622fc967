"""The text of drafts and revisions in a stream, while models write it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from redraft import (
    Agent,
    ConfigError,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    TokenUsage,
)
from redraft._texts import estimate_tokens
from redraft.events import StepFailed, StepFinished, StepStarted, TokenEvent, VersionEvaluated
from redraft.loop import Retry
from redraft.models.provider import ProviderModel
from redraft.protocols import ChatReply
from support.openai_server import Stream, completion, serving

TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})
AT_ONCE = Retry(first_wait=0)


def tea(**options):
    return ReflectionPattern(**{"quality_criteria": [TEA], "retry": AT_ONCE, **options})


def agent_of(model, **options):
    return Agent(model, pattern=tea(**options), keep=False)


def streamed(agent, query="W.", **options):
    """Run a stream to its end; return its events and its result."""

    async def main():
        run = agent.stream(query, **options)
        return [event async for event in run], run.result

    return asyncio.run(main())


def texts_of(events):
    """The text of each attempt."""
    texts = defaultdict(str)
    for event in events:
        if isinstance(event, TokenEvent):
            texts[event.version, event.role, event.attempt] += event.text
    return dict(texts)


class Streaming:
    """A model that streams its script: each call is a list of texts, and of what else happens on the way."""

    def __init__(self, *calls):
        self.calls, self.plain, self.left = list(calls), 0, []

    async def __call__(self, request):
        self.plain += 1
        return await self.stream(request, lambda *_: None)

    async def stream(self, request, on_text):
        try:
            return await self.written(on_text)
        except asyncio.CancelledError:
            self.left.append(on_text)
            raise

    async def written(self, on_text):
        written = ""
        for each in self.calls.pop(0):
            if isinstance(each, Exception):
                raise each
            if isinstance(each, ChatReply):
                return each
            if isinstance(each, asyncio.Event):
                await each.wait()
            elif isinstance(each, TokenUsage):
                on_text("", each)
            else:
                written += each
                on_text(each)
                await asyncio.sleep(0)
        return ChatReply(written, usage=TokenUsage(7, 5, requests=1, cost_usd=0.25))


def test_the_words_of_a_draft_and_a_revision_come_as_they_are_written():
    events, result = streamed(agent_of(ScriptedModel(["A cup of coffee. ", "A cup of\n  tea."])))
    assert texts_of(events) == {
        (1, "draft", 1): "A cup of coffee. ",
        (2, "revision", 1): "A cup of\n  tea.",
    }
    pieces = [event.text for event in events if isinstance(event, TokenEvent) and event.version == 2]
    assert pieces == ["A", " cup", " of", "\n  tea."]
    kinds = [type(event) for event in events]
    first, last = kinds.index(TokenEvent), kinds.index(VersionEvaluated)
    assert kinds[:first].count(StepStarted) == 1
    assert StepFinished in kinds[first:last]
    assert [version.output for version in result.history.versions] == [
        "A cup of coffee. ",
        "A cup of\n  tea.",
    ]


def test_no_model_streams_without_a_listener():
    model = Streaming(["tea"])
    assert asyncio.run(agent_of(model).run("W.")).best_output == "tea"
    assert model.plain == 1


def test_a_stream_has_the_usage_of_a_run():
    replies = [["coffee"], ["a ", "tea"]]
    _, result = streamed(agent_of(Streaming(*replies)))
    plain = asyncio.run(agent_of(Streaming(*replies)).run("W."))
    assert result.usage_by_role == plain.usage_by_role
    assert result.token_usage == TokenUsage(14, 10, requests=2, cost_usd=0.5)


def test_a_model_without_a_stream_gives_one_event():
    async def model(request):
        return ChatReply("green tea")

    events, _ = streamed(agent_of(model))
    assert [event.text for event in events if isinstance(event, TokenEvent)] == ["green tea"]


def test_judges_are_not_streamed():
    def answer(request):
        return {"score": 1.0, "reason": "tea"} if request.role == "evaluation" else "tea"

    events, result = streamed(Agent(ScriptedModel(answer), pattern=tea(quality_criteria=["hot"]), keep=False))
    assert texts_of(events) == {(1, "draft", 1): "tea"}
    assert result.usage_by_role["evaluation"].requests


@pytest.mark.parametrize(
    ("reply", "attempts"),
    [
        (["gre", ChatReply("green tea")], {1: "green tea"}),
        (["coffee", ChatReply("green tea")], {1: "coffee", 2: "green tea"}),
        ([ChatReply("green tea")], {1: "green tea"}),
        (["green tea"], {1: "green tea"}),
    ],
)
def test_the_last_attempt_is_the_reply_whatever_was_streamed(reply, attempts):
    events, result = streamed(agent_of(Streaming(reply)))
    assert {attempt: text for (*_, attempt), text in texts_of(events).items()} == attempts
    assert result.best_output == "green tea"


def test_a_broken_stream_is_counted_and_repeated_without_streaming():
    model = Streaming(["gree", ModelError("gone", retryable=True)], ["green tea"])
    events, result = streamed(agent_of(model))
    assert texts_of(events) == {(1, "draft", 1): "gree", (1, "draft", 2): "green tea"}
    assert model.plain == 1
    failed = next(event for event in events if isinstance(event, StepFailed))
    assert failed.retry_in is not None
    kinds = [(type(event), getattr(event, "attempt", 0)) for event in events]
    assert kinds.index((TokenEvent, 1)) < kinds.index((StepFailed, 0)) < kinds.index((TokenEvent, 2))
    used = result.token_usage
    assert used.failed_requests == 1
    assert used.output_tokens == 5 + estimate_tokens("gree")
    assert used.input_tokens > 7
    assert used.cost_usd is None  # what the broken stream cost is not known
    estimate = used.total_tokens - 12
    assert f"About {estimate} of the tokens are an estimate" in result.diagnostics["usage_estimated"]


def test_what_the_provider_says_of_a_broken_stream_is_counted():
    said = TokenUsage(3, 1, cost_usd=0.5)
    model = Streaming(["gree", said, ModelError("gone", retryable=True)], ["green tea"])
    _, result = streamed(agent_of(model))
    assert result.token_usage == TokenUsage(10, 6, requests=1, failed_requests=1, cost_usd=0.75)
    assert "usage_estimated" not in result.diagnostics


@pytest.mark.parametrize(("cost", "total"), [(0.5, None), (0.0, 0.25)])
def test_usage_that_the_provider_does_not_report_is_estimated(cost, total):
    said, text = TokenUsage(3, 1, cost_usd=cost), "green " * 40
    model = Streaming([said, text, ModelError("gone", retryable=True)], ["green tea"])
    _, result = streamed(agent_of(model))
    used = result.usage_by_role["generation"]
    assert (used.input_tokens, used.output_tokens) == (10, 5 + estimate_tokens(text))
    assert used.cost_usd == total
    assert f"About {estimate_tokens(text) - 1} of" in result.diagnostics["usage_estimated"]


def test_a_rate_limit_is_no_broken_stream():
    model = Streaming([ModelError("slow down", status=503, retryable=True)], ["green ", "tea"])
    events, result = streamed(agent_of(model))
    assert texts_of(events) == {(1, "draft", 2): "green tea"}
    assert model.plain == 0
    assert result.token_usage == TokenUsage(7, 5, requests=1, failed_requests=1, cost_usd=0.25)


def test_a_stream_that_never_gets_through_keeps_the_versions():
    broken = ["gre", ModelError("gone", retryable=True)]
    events, result = streamed(agent_of(Streaming(["coffee"], broken, broken, broken)))
    assert texts_of(events) == {(1, "draft", 1): "coffee", (2, "revision", 1): "gre"}
    assert result.best_output == "coffee"
    assert result.usage_by_role["revision"].failed_requests == 3


@pytest.mark.parametrize("budget", [{}, {"budget_tokens": 10_000}])
def test_a_cancelled_stream_counts_what_had_come(budget):
    model = Streaming(["coffee"], ["green", asyncio.Event()])

    async def main():
        async with agent_of(model, **budget).stream("W.") as run:
            async for event in run:
                if isinstance(event, TokenEvent) and event.version == 2:
                    break
        model.left[0](" tea")  # a thread that has not noticed yet
        return run.result

    result = asyncio.run(main())
    assert result.convergence_reason == "cancelled"
    revision = result.usage_by_role["revision"]
    assert revision.output_tokens == estimate_tokens("green")
    assert revision.input_tokens > 0
    assert result.token_usage.cost_usd is None


def test_a_stream_that_hangs_ends_with_the_time_and_is_counted():
    model = Streaming(["coffee"], ["green", asyncio.Event()])
    events, result = streamed(agent_of(model, budget_seconds=0.3))
    assert result.convergence_reason == "time_budget"
    assert texts_of(events)[2, "revision", 1] == "green"
    revision = result.usage_by_role["revision"]
    assert (revision.failed_requests, revision.output_tokens) == (1, estimate_tokens("green"))


@pytest.mark.parametrize("how", ["break", "raise", "cancel", "aclose"])
def test_a_consumer_that_leaves_in_the_middle_of_a_reply_stops_it(how):
    async def main():
        model, heard = Streaming(["green", asyncio.Event()]), []

        async def consume():
            run = agent_of(model).stream("W.")
            async with run:
                async for event in run:
                    if not isinstance(event, TokenEvent):
                        continue
                    heard.append(event.text)
                    if how == "raise":
                        raise OSError("the browser is gone")
                    if how == "cancel":
                        raise asyncio.CancelledError
                    if how == "aclose":
                        await run.aclose()
                    break

        await asyncio.gather(consume(), return_exceptions=True)
        return model.left, heard

    left, heard = asyncio.run(main())
    assert len(left) == 1
    assert heard == ["green"]


def test_a_consumer_that_lags_gets_longer_pieces_and_all_of_the_text():
    async def main():
        written = [f"{number} " for number in range(5_000)]
        model = Streaming(["coffee"], [*written, "tea"])
        run = agent_of(model).stream("W.")
        events = []
        async for event in run:
            events.append(event)
            if isinstance(event, TokenEvent) and len(events) < 6:
                await asyncio.sleep(0.05)
        return written, events, run.result

    written, events, result = asyncio.run(main())
    assert texts_of(events)[2, "revision", 1] == "".join(written) + "tea" == result.best_output
    assert len([event for event in events if isinstance(event, TokenEvent)]) < len(written)


def test_a_consumer_that_reads_nothing_before_the_end_gets_one_piece_an_attempt():
    async def main():
        run = agent_of(Streaming(["cof", "fee"], ["te", "a"])).stream("W.")
        async with run:
            while True:
                try:
                    result = run.result
                except LookupError:
                    await asyncio.sleep(0)
                else:
                    break
            return [event async for event in run], result

    events, _ = asyncio.run(main())
    tokens = [(event.version, event.text) for event in events if isinstance(event, TokenEvent)]
    assert tokens == [(1, "coffee"), (2, "tea")]
    kinds = [type(event) for event in events]
    assert kinds.index(VersionEvaluated) < kinds.index(TokenEvent, kinds.index(TokenEvent) + 1)


@pytest.mark.parametrize("killed", [True, False])
def test_a_run_that_is_resumed_repeats_its_text_in_one_piece(killed):
    store = MemoryStore()

    async def main():
        model = Streaming(["cof", "fee"], ["green", asyncio.Event()] if killed else ["green ", "tea"])
        async with Agent(model, pattern=tea(), keep=store).stream("W.", run_id="cup") as run:
            async for event in run:
                if killed and isinstance(event, TokenEvent) and event.version == 2:
                    break
        again = Streaming(["green ", "tea"])
        run = Agent(again, pattern=tea(), keep=store).stream("W.", run_id="cup")
        return [event async for event in run]

    events = asyncio.run(main())
    pieces = [(event.version, event.role, event.text) for event in events if isinstance(event, TokenEvent)]
    if killed:
        assert pieces == [(1, "draft", "coffee"), (2, "revision", "green "), (2, "revision", "tea")]
    else:
        assert pieces == [(1, "draft", "coffee"), (2, "revision", "green tea")]


def test_a_journal_within_a_step_repeats_a_call_in_one_piece():
    """A revision of two calls that was interrupted in the second: the first comes from the journal."""
    store = MemoryStore()
    schema = QualityCriterion("two", evaluator="regex", evaluator_config={"pattern": "two"})

    def agent(model):
        pattern = tea(quality_criteria=[schema], revision_strategy="targeted_edit")
        return Agent(model, pattern=pattern, keep=store)

    edit = "<<<<<<< SEARCH\none\n=======\ntwo\n>>>>>>> REPLACE"

    async def main():
        model = Streaming(["one"], ["no ", "edit"], ["<<<", asyncio.Event()])
        async with agent(model).stream("W.", run_id="cup") as run:
            async for event in run:
                if isinstance(event, TokenEvent) and event.attempt == 2:
                    break
        run = agent(Streaming([edit])).stream("W.", run_id="cup")
        return [event async for event in run], run.result

    events, result = asyncio.run(main())
    assert result.best_output == "two"
    assert [
        (event.version, event.attempt, event.text) for event in events if isinstance(event, TokenEvent)
    ] == [
        (1, 1, "one"),
        (2, 1, "no edit"),
        (2, 2, edit),
    ]


def test_a_starting_draft_is_not_streamed():
    events, _ = streamed(agent_of(ScriptedModel(["tea"])), draft="coffee")
    assert texts_of(events) == {(2, "revision", 1): "tea"}


def test_listeners_and_records_get_no_tokens():
    heard, store = [], MemoryStore()
    agent = Agent(ScriptedModel(["coffee", "tea"]), pattern=tea(on_event=heard.append), keep=store)
    streamed(agent)
    assert heard
    assert not any(isinstance(event, TokenEvent) for event in heard)


def test_a_run_within_a_draft_keeps_its_text_to_itself():
    inner = agent_of(Streaming(["in", "ner tea"]))

    async def model(request):
        return ChatReply(f"outer: {(await inner.run('W.')).best_output}")

    events, _ = streamed(agent_of(model))
    assert texts_of(events) == {(1, "draft", 1): "outer: inner tea"}


def test_the_json_of_a_typed_answer_is_streamed():
    @dataclass
    class Order:
        drink: str
        cups: int

    model = Streaming(['{"drink": ', '"tea", "cups": "many"}'], ['{"drink": "tea", ', '"cups": 2}'])
    agent = Agent(model, pattern=tea(), output_type=Order, keep=False)
    events, result = streamed(agent)
    assert texts_of(events) == {
        (1, "draft", 1): '{"drink": "tea", "cups": "many"}',
        (2, "revision", 1): '{"drink": "tea", "cups": 2}',
    }
    assert result.best_output == Order("tea", 2)


def test_candidates_are_attempts_of_their_own_at_the_same_time():
    model = Streaming(["a cup of ", "coffee"], ["a cup ", "of tea"])
    events, result = streamed(agent_of(model, candidates=2))
    assert result.best_output == "a cup of tea"
    assert texts_of(events) == {(1, "draft", 1): "a cup of coffee", (1, "draft", 2): "a cup of tea"}
    attempts = [event.attempt for event in events if isinstance(event, TokenEvent)]
    assert attempts == [1, 2, 1, 2]


async def pieces(_request, _on_text):
    yield "tea"


async def text(_request, _on_text):
    return "tea"


@pytest.mark.parametrize("stream", [pieces, text])
def test_a_stream_that_returns_no_reply_is_refused_by_name(stream):
    class Model:
        def __init__(self):
            self.stream = stream

        async def __call__(self, request):
            return ChatReply("tea")

    with pytest.raises(ConfigError, match=r"model .*Model object.* returned .*expected an async function"):
        streamed(agent_of(Model()))


# Agents that call tools.


class StreamingActor:
    """A model of Pydantic AI that streams its script: each request is a list of texts and calls of tools."""

    def __init__(self, *requests):
        self.requests, self.plain = list(requests), 0

    async def stream(self, _messages, _info):
        for number, each in enumerate(self.requests.pop(0)):
            if isinstance(each, Exception):
                raise each
            if isinstance(each, asyncio.Event):
                await each.wait()
            elif isinstance(each, str):
                yield each
            else:
                name, *arguments = each
                yield {number: DeltaToolCall(name, arguments[0], tool_call_id=f"call-{number}")}
                for text in arguments[1:]:
                    yield {number: DeltaToolCall(json_args=text)}

    async def answer(self, _messages, _info):
        self.plain += 1
        return ModelResponse([TextPart("".join(self.requests.pop(0)))])

    @property
    def model(self):
        return FunctionModel(self.answer, stream_function=self.stream)


def sip() -> str:
    """Sip."""
    return "hot"


def tool_agent(actor, **options):
    return Agent(ProviderModel(actor.model), tools=[sip], pattern=tea(**options), keep=False)


def test_an_agent_with_tools_streams_what_it_says_in_each_request():
    actor = StreamingActor(["I will ", "sip.", ("sip", "{}")], ["hot ", "coffee"], ["hot ", "tea"])
    events, result = streamed(tool_agent(actor))
    assert texts_of(events) == {
        (1, "draft", 1): "I will sip.",
        (1, "draft", 2): "hot coffee",
        (2, "revision", 1): "hot tea",
    }
    assert result.best_output == "hot tea"
    assert actor.plain == 0
    pieces = [event.text for event in events if isinstance(event, TokenEvent)]
    assert len(pieces) > 3


def test_an_agent_without_listeners_makes_plain_calls():
    actor = StreamingActor(["hot tea"])
    assert asyncio.run(tool_agent(actor).run("W.")).best_output == "hot tea"
    assert actor.plain == 1


class Order(BaseModel):
    drink: str
    cups: int


def test_a_wrapped_agent_streams_the_json_of_its_output():
    actor = StreamingActor([("final_result", '{"drink": "te', 'a", "cups"', ": 2}")])
    agent = PydanticAgent(actor.model, output_type=Order)
    events, result = streamed(Agent.from_pydantic_ai(agent, pattern=tea(), keep=False))
    assert texts_of(events) == {(1, "draft", 1): '{"drink": "tea", "cups": 2}'}
    assert result.best_output == Order(drink="tea", cups=2)
    assert len([event for event in events if isinstance(event, TokenEvent)]) > 1


def test_a_broken_stream_of_an_agent_is_counted_and_repeated_without_streaming():
    broken = ModelAPIError("m", "gone")
    actor = StreamingActor(["hot ", broken], ["hot tea"])
    events, result = streamed(tool_agent(actor))
    assert texts_of(events) == {(1, "draft", 1): "hot ", (1, "draft", 2): "hot tea"}
    assert actor.plain == 1
    whole = asyncio.run(tool_agent(StreamingActor(["hot tea"])).run("W.")).token_usage
    assert result.token_usage.failed_requests == 1
    assert result.token_usage.output_tokens > whole.output_tokens


@pytest.mark.parametrize("budget", [{}, {"budget_tokens": 100_000}])
def test_a_cancelled_stream_of_an_agent_counts_what_had_come(budget):
    actor = StreamingActor(["hot coffee"], ["hot ", asyncio.Event()])

    async def main():
        async with tool_agent(actor, **budget).stream("W.") as run:
            async for event in run:
                if isinstance(event, TokenEvent) and event.version == 2:
                    break
        return run.result

    result = asyncio.run(main())
    assert result.convergence_reason == "cancelled"
    assert result.usage_by_role["revision"].output_tokens


def test_an_agent_that_is_resumed_repeats_its_requests_in_one_piece_each():
    store = MemoryStore()

    def agent(actor):
        return Agent(ProviderModel(actor.model), tools=[sip], pattern=tea(), keep=store)

    async def main():
        actor = StreamingActor(["I will ", "sip.", ("sip", "{}")], ["hot ", asyncio.Event()])
        async with agent(actor).stream("W.", run_id="cup") as run:
            async for event in run:
                if isinstance(event, TokenEvent) and event.attempt == 2:
                    break
        run = agent(StreamingActor(["hot ", "tea"])).stream("W.", run_id="cup")
        return [event async for event in run]

    pieces = [(event.attempt, event.text) for event in asyncio.run(main()) if isinstance(event, TokenEvent)]
    assert pieces[0] == (1, "I will sip.")
    assert "".join(text for attempt, text in pieces if attempt == 2) == "hot tea"


# Over HTTP.


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        yield server


def over_http(**options):
    return Agent("openai-chat:gpt-4o-mini", pattern=tea(**options), keep=False)


def test_the_first_token_comes_before_the_reply_is_complete(server):
    hanging = Stream(["hot ", "cof"], "hangs")
    server.answers.append((200, {}, hanging))

    async def main():
        async with over_http().stream("W.") as run:
            async for event in run:
                if isinstance(event, TokenEvent):
                    break
            return event

    assert asyncio.run(main()).text.startswith("hot ")


@pytest.mark.parametrize("ending", ["cut", "drops", "garbage", "error"])
def test_a_stream_that_breaks_off_on_its_way_costs_a_retry_and_no_more(ending, server):
    server.answers += [
        (200, {}, Stream(["cof", "fee"])),
        (200, {}, Stream(["hot "], ending)),
        (200, {}, Stream(["hot ", "tea"]) if ending == "error" else completion("hot tea")),
    ]
    events, result = streamed(over_http())
    assert texts_of(events) == {
        (1, "draft", 1): "coffee",
        (2, "revision", 1): "hot ",
        (2, "revision", 2): "hot tea",
    }
    assert result.best_output == "hot tea"
    assert (result.token_usage.requests, result.token_usage.failed_requests) == (2, 1)
    assert result.token_usage.output_tokens == 2 * 3 + estimate_tokens("hot ")
    # A provider that reports an error can stream; a connection that breaks might break again.
    assert [body["stream"] for _, body in server.asked] == [True, True, ending == "error"]


def test_a_typed_answer_over_http(server):
    server.answers.append((200, {}, Stream(['{"drink": "tea"', ', "cups": 2}'])))
    agent = Agent("openai-chat:gpt-4o-mini", pattern=tea(), output_type=Order, keep=False)
    events, result = streamed(agent)
    assert texts_of(events) == {(1, "draft", 1): '{"drink": "tea", "cups": 2}'}
    assert result.best_output == Order(drink="tea", cups=2)
    assert server.asked[0][1]["response_format"]["type"] == "json_schema"
