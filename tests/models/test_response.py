"""Odd replies of four APIs, from a server on loopback through the providers' own clients."""

import asyncio
import re
from codecs import BOM_UTF8
from types import MappingProxyType

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import infer_model

from redraft import Agent, QualityCriterion, ReflectionPattern
from redraft._sync import run_sync
from redraft.errors import ModelError
from redraft.evaluate.judge import ScoreJudge
from redraft.loop import Retry
from redraft.models import FallbackModel, ProviderModel, provider
from redraft.models.response import is_cumulative
from redraft.models.testing import ScriptedModel
from redraft.protocols import ChatRequest, Message
from support.evaluation import evaluate
from support.openai_server import Events, Stream, completion, serving

CHAT, RESPONSES = "openai-chat:gpt-4o-mini", "openai:gpt-4o-mini"
ANTHROPIC, GOOGLE = "anthropic:claude-haiku-4-5", "google:gemini-2.5-flash"
TEA = QualityCriterion("tea", "Says tea.", evaluator="regex", evaluator_config={"pattern": "^Tea$"})
WORDS = QualityCriterion("words", "Has an x.", evaluator="regex", evaluator_config={"pattern": "x"})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

# The clients keep their connections open for the next call, and the event loop ends before there is one.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def asked(text="hi", **more):
    return ChatRequest((Message("user", text),), **more)


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        here = f"http://127.0.0.1:{server.server_address[1]}"
        for name in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
            monkeypatch.setenv(name, here)
        for name in ("ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
            monkeypatch.setenv(name, "not" + "-a-" + "key")
        monkeypatch.setattr(provider, "_without_schemas", set())
        monkeypatch.setattr(provider, "_unopened_thoughts", set())
        yield server


# The forms of the four APIs.


def without(data, *keys):
    return {key: value for key, value in data.items() if key not in keys}


def said(content=None, reason="stop", **message):
    return completion(message={"role": "assistant", "content": content, **message}, finish_reason=reason)


def responses(*output, **more):
    usage = {
        "input_tokens": 12, "output_tokens": 3, "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": "r1", "object": "response", "created_at": 1, "model": "gpt-4o-mini", "status": "completed",
        "output": list(output), "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": usage,
    } | more  # fmt: skip


def message(*content):
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": list(content),
    }


def output_text(text):
    return {"type": "output_text", "text": text, "annotations": []}


UNKNOWN = {"type": "hologram", "id": "h1"}
CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def text_block(*pieces):
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]


def anthropic(
    *blocks, stop="end_turn", start=MappingProxyType({"input_tokens": 1000, "output_tokens": 1}), later=None
):
    opening = {
        "id": "m", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": start and dict(start),
    }  # fmt: skip
    events = [{"type": "message_start", "message": opening}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None}
    reports = [{"output_tokens": 20}] if later is None else later
    events += [{"type": "message_delta", "delta": delta, "usage": usage} for usage in reports]
    return Events([*events, {"type": "message_stop"}], named=True)


THOUGHT = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [{"type": "thinking_delta", "thinking": "hm"}],
)
HOLOGRAM = ({"type": "hologram"}, [{"type": "hologram_delta"}])


def google(candidate=None, used=(12, 3), **more):
    usage = {"promptTokenCount": used[0], "candidatesTokenCount": used[1], "totalTokenCount": sum(used)}
    candidates = {} if candidate is None else {"candidates": [candidate]}
    return {**candidates, "usageMetadata": usage, "modelVersion": "gemini-2.5-flash"} | more


def candidate(*parts, reason="STOP", **more):
    return {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0} | more


GOOD = {
    CHAT: completion("Tea"),
    RESPONSES: responses(message(output_text("Tea"))),
    ANTHROPIC: anthropic(text_block("Tea")),
    GOOGLE: google(candidate({"text": "Tea"})),
}

NO_ANSWER = [
    (CHAT, said(None), "it is empty (finish reason 'stop')"),
    (CHAT, said(""), "it is empty"),
    (CHAT, said(" \n"), "it is empty"),
    (CHAT, completion() | {"choices": []}, "it is empty"),
    (CHAT, completion() | {"choices": None}, "it is empty"),
    (CHAT, without(completion(), "choices"), "it is empty"),
    (CHAT, completion() | {"choices": [None]}, "it is empty"),
    (CHAT, completion(message=None), "it is empty"),
    (CHAT, said(None, refusal="I can't help with that."), "it refused: I can't help with that."),
    (CHAT, said(None, "content_filter"), "withheld it (finish reason 'content_filter')"),
    (CHAT, said("", "length", reasoning_content="hm"), "its reasoning used up the limit of tokens"),
    (CHAT, said("<think>hm", "length"), "its reasoning used up the limit of tokens"),
    (CHAT, said("<think>hm</think>\n"), "it holds only reasoning"),
    (CHAT, said(None, tool_calls=[UNKNOWN]), "it is empty"),
    (CHAT, "[1]", "sent an invalid reply"),
    (RESPONSES, responses(), "it is empty (finish reason 'completed')"),
    (RESPONSES, responses(output=None), "it is empty"),
    (RESPONSES, without(responses(), "output"), "it is empty"),
    (RESPONSES, responses(message(output_text(""))), "it is empty"),
    (RESPONSES, responses(message(output_text(None))), "it is empty"),
    (RESPONSES, responses(message(UNKNOWN)), "it is empty"),
    (RESPONSES, responses(message() | {"content": None}), "it is empty"),
    (RESPONSES, responses(UNKNOWN), "it is empty"),
    (RESPONSES, responses(message({"type": "refusal", "refusal": "No."})), "it refused: No."),
    (RESPONSES, responses({"id": "t", "type": "reasoning", "summary": []}, **CUT), "'max_output_tokens'"),
    (RESPONSES, responses(status="incomplete", incomplete_details={"reason": "content_filter"}), "withheld"),
    (ANTHROPIC, anthropic(), "it is empty (finish reason 'end_turn')"),
    (ANTHROPIC, anthropic(text_block()), "it is empty"),
    (ANTHROPIC, anthropic(text_block("\n")), "it is empty"),
    (ANTHROPIC, anthropic(stop="refusal"), "withheld it (finish reason 'refusal')"),
    (ANTHROPIC, anthropic(THOUGHT, stop="max_tokens"), "its reasoning used up the limit of tokens"),
    (ANTHROPIC, anthropic(HOLOGRAM), "it is empty"),
    (GOOGLE, google({"content": {"role": "model"}, "finishReason": "STOP"}), "empty (finish reason 'STOP')"),
    (GOOGLE, google({"finishReason": "SAFETY"}), "withheld it (finish reason 'SAFETY')"),
    (GOOGLE, google({"finishReason": "RECITATION"}), "withheld it (finish reason 'RECITATION')"),
    (GOOGLE, google(promptFeedback={"blockReason": "OTHER"}), "the prompt was blocked (OTHER)"),
    (GOOGLE, google(), "it is empty"),
    (GOOGLE, google(candidates=[]), "it is empty"),
    (GOOGLE, google(candidates=[None]), "it is empty"),
    (
        GOOGLE,
        google(candidate({"text": "hm", "thought": True}, reason="MAX_TOKENS")),
        "its reasoning used up",
    ),
    (GOOGLE, google(candidate({"text": " "})), "it is empty"),
    (GOOGLE, google(candidate({"hologram": 1})), "it is empty"),
    (
        GOOGLE,
        google({"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Bad call: f(x."}),
        "it is empty (finish reason 'MALFORMED_FUNCTION_CALL'): Bad call: f(x.",
    ),
    (
        GOOGLE,
        google({"finishReason": "SAFETY", "finishMessage": "Hot tea."}),
        "withheld it (finish reason 'SAFETY'): Hot tea.",
    ),
    (
        GOOGLE,
        google({"finishReason": "MAX_TOKENS", "finishMessage": " Too long. "}),
        "before the answer began (finish reason 'MAX_TOKENS'): Too long.",
    ),
    (GOOGLE, google({"finishReason": "NEW", "finishMessage": "Why."}), "(finish reason 'NEW'): Why."),
    (CHAT, said(None, "function_call", function_call={"name": "f", "arguments": "{}"}), "'function_call'"),
    (
        RESPONSES,
        responses({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}),
        "it calls 'f' instead of answering (finish reason 'completed')",
    ),
    (ANTHROPIC, anthropic(stop="pause_turn"), "(finish reason 'pause_turn')"),
]


@pytest.mark.parametrize(("name", "answer", "reason"), NO_ANSWER)
def test_a_reply_without_an_answer_is_a_failed_call_with_its_reason(name, answer, reason, server):
    server.answers = [(200, {}, answer)]
    with pytest.raises(ModelError, match=re.escape(reason)) as caught:
        run_sync(ProviderModel(name)(asked()))
    assert (caught.value.retryable, caught.value.unusable_reply) == (True, True)
    assert name in str(caught.value)


def test_a_stream_without_an_answer_has_its_reason(server):
    server.answers = [(200, {}, Events([google({"finishReason": "OTHER", "finishMessage": "No tea."})]))]
    with pytest.raises(ModelError, match=re.escape("it is empty (finish reason 'OTHER'): No tea.")):
        run_sync(ProviderModel(GOOGLE).stream(asked(), lambda *_: None))


EMPTY = [
    (CHAT, completion() | {"choices": []}),
    (RESPONSES, responses(UNKNOWN)),
    (ANTHROPIC, anthropic(stop="refusal")),
    (GOOGLE, google({"finishReason": "SAFETY"})),
]


@pytest.mark.parametrize(("name", "answer"), EMPTY)
def test_an_empty_first_reply_is_asked_again(name, answer, server):
    server.answers = [(200, {}, answer), (200, {}, GOOD[name])]
    pattern = ReflectionPattern(quality_criteria=[TEA], max_iterations=0, retry=Retry(first_wait=0))
    result = Agent(name, pattern=pattern, keep=False).run_sync("Which drink?")
    assert (result.best_output, result.success, len(result.history.versions)) == ("Tea", True, 1)
    assert (result.token_usage.requests, result.token_usage.failed_requests) == (1, 1)
    empty, good = (1000, 1000) if name == ANTHROPIC else (12, 12)
    assert result.token_usage.input_tokens == empty + good  # the empty reply was paid for


@pytest.mark.parametrize(("name", "answer"), EMPTY)
def test_an_empty_reply_is_passed_on_to_the_next_model(name, answer, server, caplog):
    server.answers = [(200, {}, answer)]
    model = FallbackModel([ProviderModel(name), ScriptedModel(["Tea"])])
    reply = run_sync(model(asked()))
    assert (reply.text, reply.usage.failed_requests) == ("Tea", 1)
    assert "sent no answer" in caplog.text


def test_models_that_all_send_nothing_are_one_unusable_reply(server):
    server.answers = [(200, {}, said(None))]
    with pytest.raises(ModelError, match=r"sent no answer.*returned an empty reply") as caught:
        run_sync(FallbackModel([ProviderModel(CHAT), ScriptedModel([""])])(asked()))
    assert caught.value.unusable_reply


@pytest.mark.parametrize(("name", "answer"), EMPTY)
def test_a_judge_without_an_answer_gives_no_score_but_the_reason(name, answer, server):
    server.answers = [(200, {}, answer)] * 2
    evaluation = evaluate(ScoreJudge([QualityCriterion("clear", "Is clear.")], ProviderModel(name)), "x")
    assert evaluation.criteria_scores == {"clear": None}
    assert "sent no answer" in evaluation.issues[0].message
    assert len(server.asked) == 2


def test_an_agent_with_tools_asks_again_after_an_empty_reply(server):
    def look() -> str:
        """Look."""
        return "tea"

    server.answers = [(200, {}, said(None)), (200, {}, completion("Tea"))]
    pattern = ReflectionPattern(quality_criteria=[TEA], max_iterations=0, retry=Retry(first_wait=0))
    result = Agent(CHAT, tools=[look], pattern=pattern, keep=False).run_sync("Which drink?")
    assert (result.best_output, result.token_usage.failed_requests) == ("Tea", 1)


@pytest.mark.parametrize("content", ["hm\n</think>\n\nTea", "<think>hm</think>\n\nTea"])
def test_a_wrapped_agent_gives_no_reasoning(content, server):
    server.answers = [(200, {}, completion(content))]
    pattern = ReflectionPattern(quality_criteria=[TEA], max_iterations=0)

    async def main():
        async with PydanticAgent(CHAT) as inner:  # closes its connection
            return await Agent.from_pydantic_ai(inner, pattern=pattern, keep=False).run("Which drink?")

    assert run_sync(main()).best_output == "Tea"


# Odd forms that hold an answer.


def usage(read, written, total):
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": total}


@pytest.mark.parametrize(
    ("name", "answer", "tokens"),
    [
        (CHAT, completion("Tea") | {"id": None}, (12, 3)),
        (CHAT, without(completion("Tea"), "id", "object", "model"), (12, 3)),
        (CHAT, completion("Tea") | {"created": None, "model": None, "object": None}, (12, 3)),
        (CHAT, completion("Tea") | {"extra": {"x": 1}}, (12, 3)),
        (CHAT, completion("Tea", finish_reason=""), (12, 3)),
        (CHAT, completion("Tea", finish_reason=None, index=None), (12, 3)),
        (CHAT, said("Tea", role=None, tool_calls=None), (12, 3)),
        (CHAT, completion("Tea") | {"usage": None}, None),
        (CHAT, completion("Tea") | {"usage": {}}, None),
        (CHAT, completion("Tea") | {"usage": usage(None, None, None)}, None),
        (CHAT, completion("Tea") | {"usage": usage(9, None, 11)}, (9, 2)),
        (CHAT, completion("Tea") | {"usage": usage(9, 2, None)}, (9, 2)),
        (CHAT, completion("Tea") | {"usage": usage(9.0, 2.4, 11.4)}, (9, 2)),
        (CHAT, completion("Tea") | {"usage": usage(10**30, 2, 11)}, (9, 2)),
        (CHAT, completion("Tea") | {"usage": usage("9", 2, 11)}, (9, 2)),
        (CHAT, completion("Tea") | {"usage": usage(9, 2, 11) | {"completion_tokens_details": []}}, (9, 2)),
        (CHAT, completion("Tea") | {"created": "yesterday"}, (12, 3)),
        (CHAT, completion("Tea") | {"created": -(10**15)}, (12, 3)),
        (CHAT, completion("Tea") | {"created": 10**12}, (12, 3)),
        (CHAT, completion("Tea") | {"created": 10**15}, (12, 3)),
        (CHAT, completion("Tea", finish_reason=5), (12, 3)),
        (CHAT, completion("Tea", logprobs={"content": [None]}), (12, 3)),
        (CHAT, said("Tea", tool_calls={}, annotations=[5]), (12, 3)),
        (RESPONSES, responses(UNKNOWN, None, message(UNKNOWN, output_text("Tea"))), (12, 3)),
        (RESPONSES, responses(message(output_text("Tea") | {"annotations": None})), (12, 3)),
        (RESPONSES, responses(message(output_text("Tea")), usage={"input_tokens": None}), None),
        (RESPONSES, responses(message(output_text("Tea")), usage=None, id=None, created_at=None), None),
        (ANTHROPIC, anthropic(HOLOGRAM, text_block("Tea")), (1000, 20)),
        (ANTHROPIC, anthropic(text_block("Tea"), start=None, later=[None]), None),
        (ANTHROPIC, anthropic(text_block("Tea"), later=[None]), (1000, 1)),
        (ANTHROPIC, anthropic(text_block("Tea"), stop=""), (1000, 20)),
        (GOOGLE, google(candidate({"hologram": 1}, {}, {"text": "Tea"})), (12, 3)),
        (GOOGLE, google(candidate({"text": "Tea"}), usageMetadata={"promptTokenCount": None}), None),
        (GOOGLE, google(candidate({"text": "Tea"}), usageMetadata=None), None),
    ],
)
def test_an_odd_form_of_an_answer_is_read(name, answer, tokens, server):
    server.answers = [(200, {}, answer)]
    reply = run_sync(ProviderModel(name)(asked()))
    assert (reply.text, reply.finish_reason) == ("Tea", "stop")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (tokens or (0, 0))
    assert (reply.usage.cost_usd is None) == (tokens is None)


QUOTA = {"error": {"message": "Out of tea", "code": 429, "status": "RESOURCE_EXHAUSTED"}}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Out of tea"}}
FAILED = responses(status="failed", error={"code": "server_error", "message": "Out of tea"})
PROVIDER_DIED = {"finish_reason": "error", "error": {"message": "Out of tea", "code": 502}}


ERROR_BODIES = [
    (QUOTA, 429, "Out of tea"),
    ([QUOTA], 429, "Out of tea"),
    ({"usage": None} | QUOTA, 429, "Out of tea"),
    ({"error": {"message": "Out of tea"}}, None, "Out of tea"),
    ({"error": "Out of tea"}, None, "Out of tea"),
    ({"message": "Out of tea"}, None, "Out of tea"),
    ({"detail": "Out of tea"}, None, "Out of tea"),
    ({"error": {"message": "Bad key", "code": 401}}, 401, "Bad key"),
    ({"error": {"message": "Bad key", "code": "401"}}, 401, "Bad key"),
    ({"error": {"message": "Out of tea", "code": 200}}, None, "Out of tea"),
    ({"object": "error", "message": "Out of tea", "code": 400}, 400, "Out of tea"),
    (OVERLOADED, None, "Out of tea"),
    (QUOTA | {"choices": [], "output": [], "candidates": [], "content": []}, 429, "Out of tea"),
    ({"error": "Unexpected endpoint. (POST /v1/responses)"}, None, "Unexpected endpoint."),
]


@pytest.mark.parametrize("streams", [False, True], ids=["call", "stream"])
@pytest.mark.parametrize("name", GOOD)
def test_an_error_with_status_200_keeps_its_message(name, streams, server):
    server.answers = [(200, {}, body) for body, _, _ in ERROR_BODIES]

    async def failures():
        model, caught = ProviderModel(name), []
        for _ in ERROR_BODIES:
            try:
                await (model.stream(asked(), lambda *_: None) if streams else model(asked()))
            except ModelError as error:
                caught.append(error)
        return caught

    caught = run_sync(failures())
    assert [error.status for error in caught] == [status for _, status, _ in ERROR_BODIES]
    for error, (_, status, message) in zip(caught, ERROR_BODIES, strict=True):
        assert message in str(error)
        assert (error.retryable, error.unusable_reply) == (status not in (400, 401), False)
    assert ("'openai-chat:gpt-4o-mini'" in str(caught[-1])) == (name == RESPONSES)


@pytest.mark.parametrize(
    ("name", "answer", "status", "message"),
    [
        (CHAT, Events([{"error": {"message": "Upstream died", "code": 502}}]), 502, "Upstream died"),
        (CHAT, Events([{"error": "Context too long"}]), None, "Context too long"),
        (CHAT, Events([{"object": "error", "message": "Out of tea", "code": 400}]), 400, "Out of tea"),
        (
            CHAT,
            Events([{"choices": [{"index": 0, "delta": {}} | PROVIDER_DIED]}, "[DONE]"]),
            502,
            "Out of tea",
        ),
        (CHAT, completion("", **PROVIDER_DIED), 502, "Out of tea"),
        (RESPONSES, FAILED, None, "Out of tea"),
        (GOOGLE, Events([QUOTA]), 429, "Out of tea"),
        (GOOGLE, Events([{"error": {"message": "Out of tea"}}]), None, "Out of tea"),
        (GOOGLE, Events([{"error": "Out of tea"}]), None, "Out of tea"),
        (GOOGLE, Events([{"usageMetadata": None} | QUOTA]), 429, "Out of tea"),
        (GOOGLE, Events([google(candidate({"text": "T"}, reason=None)), QUOTA]), 429, "Out of tea"),
        (ANTHROPIC, Events([OVERLOADED], named=True), 529, "Out of tea"),
    ],
)
def test_an_error_inside_a_reply_keeps_its_message(name, answer, status, message, server):
    server.answers = [(200, {}, answer)]
    model = ProviderModel(name)
    with pytest.raises(ModelError, match=re.escape(message)) as caught:
        run_sync(model.stream(asked(), lambda *_: None) if isinstance(answer, Events) else model(asked()))
    assert (caught.value.status, caught.value.retryable) == (status, status != 400)


def test_an_error_with_status_200_is_passed_on_to_the_next_model(server):
    server.answers = [(200, {}, QUOTA)]
    model = FallbackModel([ProviderModel(GOOGLE), ScriptedModel(["Tea"])])
    assert run_sync(model(asked())).text == "Tea"


def test_an_error_with_status_200_is_that_of_an_agent_with_tools(server):
    server.answers = [(200, {}, QUOTA | {"code": 429})]
    pattern = ReflectionPattern(quality_criteria=[TEA], max_iterations=0, retry=Retry(attempts=1))
    with pytest.raises(ModelError, match="Out of tea"):
        Agent(GOOGLE, tools=[len], pattern=pattern, keep=False).run_sync("Which drink?")


def test_other_users_of_a_client_see_no_difference(server):
    """A model object of the caller shares its client, whose other calls work as before."""
    model = infer_model(GOOGLE)
    server.answers = [(200, {}, QUOTA), (200, {}, QUOTA)]

    async def ask():
        async with model:  # which closes the client at the end
            with pytest.raises(ModelError, match="Out of tea"):
                await ProviderModel(model)(asked())
            return await model_request(model, [ModelRequest.user_text_prompt("hi")])

    assert run_sync(ask()).parts == []


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (GOOGLE, google(candidate({"text": "Tea"}, reason="NEW"))),
        (GOOGLE, google(candidate({"text": "Tea"}, reason=""))),
        (GOOGLE, google(candidate({"text": "Tea"}, safetyRatings=[{"category": "N", "probability": "M"}]))),
        (GOOGLE, google(candidate({"text": "Tea"}), promptFeedback={"blockReason": "NEW"})),
        (
            GOOGLE,
            google(
                candidate({"text": "Tea"}),
                usageMetadata={
                    "promptTokenCount": 12, "candidatesTokenCount": 3, "trafficType": "NEW",
                    "promptTokensDetails": [{"modality": "SMELL", "tokenCount": 12}],
                },
            ),
        ),
        (GOOGLE, google(candidate({"text": "Tea"}), used=(-1, 3))),
        (GOOGLE, Events([google(candidate({"text": "Tea"}, reason="NEW"))])),
        (CHAT, completion("Tea", finish_reason="new")),
        (CHAT, completion("Tea") | {"usage": usage(-1, 3, 2)}),
        (CHAT, completion("Tea") | {"service_tier": "gold"}),
        (RESPONSES, responses(message(output_text("Tea")), status="new")),
        (RESPONSES, responses(message(output_text("Tea")), usage={"input_tokens": -1, "output_tokens": 3})),
        (ANTHROPIC, anthropic(text_block("Tea"), stop="new")),
        (ANTHROPIC, anthropic(text_block("Tea"), start={"input_tokens": -1, "output_tokens": 1})),
    ],
)  # fmt: skip
def test_what_a_library_does_not_know_makes_no_warning(name, answer, server, recwarn):
    server.answers = [(200, {}, answer)]
    model = ProviderModel(name)
    streams = isinstance(answer, Events) and name != ANTHROPIC
    reply = run_sync(model.stream(asked(), lambda *_: None) if streams else model(asked()))
    assert reply.text == "Tea"
    assert [each for each in recwarn if not issubclass(each.category, ResourceWarning)] == []


@pytest.mark.parametrize(
    ("name", "body", "suggests"),
    [
        (RESPONSES, {"detail": "Not Found"}, True),
        (RESPONSES, "<html>not here</html>", True),
        (RESPONSES, {"error": {"message": "No such model.", "code": "model_not_found"}}, False),
        (CHAT, {"detail": "Not Found"}, False),
    ],
)
def test_a_server_without_the_responses_api_is_advised(name, body, suggests, server):
    server.answers = [(404, {}, body)]
    with pytest.raises(ModelError) as caught:
        run_sync(ProviderModel(name)(asked()))
    assert ("name the model 'openai-chat:gpt-4o-mini'" in str(caught.value)) is suggests


# Usage in streams.


def chunk(delta=None, reason=None, **more):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
    return {**head, "choices": choices, **more}


def stream_with(*reports):
    """A stream of twenty words; the reports are the usage of its chunks."""
    chunks = [chunk({"content": "x "}, usage=report) for report in reports[:20]]
    rest = [chunk(usage=report) for report in reports[20:]]
    return Events([*chunks, chunk({}, "stop"), *rest, "[DONE]"])


def streamed(name, *answers, server, price=None, **more):
    """Ask a model for a stream; return the reply or the error, the text that was passed on, and its usage."""
    server.answers = [(200, {}, answer) for answer in answers]
    pieces, told = [], []

    def on_text(text, usage=None):
        pieces.append(text)
        told.append(usage)

    try:
        reply = run_sync(ProviderModel(name, price=price).stream(asked(**more), on_text))
    except ModelError as error:
        reply = error
    return reply, "".join(pieces), [usage for usage in told if usage]


FAILED = {"error": {"message": "Upstream died", "code": 502}}
SO_FAR = [usage(1000, written, 1000 + written) for written in range(1, 21)]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (CHAT, stream_with(*SO_FAR)),
        (CHAT, stream_with(*SO_FAR, SO_FAR[-1])),
        (CHAT, stream_with(*[None] * 20, SO_FAR[-1])),
        (CHAT, stream_with(*[None] * 20, SO_FAR[-1], SO_FAR[-1])),
        (CHAT, stream_with(usage(1000, 1, 1001), *[usage(0, 1, 1)] * 19)),
        (CHAT, stream_with(*[usage(0, 1, 1)] * 19, usage(1000, 1, 1001))),
        (CHAT, stream_with(usage(1000, 1, 1001), *[usage(0, n, n) for n in range(2, 21)])),
        (CHAT, stream_with(*[usage(0, 1, 1)] * 20, SO_FAR[-1])),
        (ANTHROPIC, anthropic(text_block("x", "y"), later=[{"output_tokens": 9}, {"output_tokens": 20}])),
        (
            GOOGLE,
            Events([google(candidate({"text": "x "}, reason=None), (1000, n)) for n in range(1, 20)]
                   + [google(candidate({"text": "x"}), (1000, 20))]),
        ),
    ],
)  # fmt: skip
def test_usage_in_a_stream_counts_once(name, answer, server):
    reply, _, _ = streamed(name, answer, server=server)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1000, 20)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 7])
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (CHAT, Stream(["Te", "a"])),
        (ANTHROPIC, anthropic(text_block("Te", "a"))),
        (GOOGLE, Events([google(candidate({"text": each})) for each in ("Te", "a")])),
    ],
    ids=["chat", "anthropic", "google"],
)
def test_a_byte_order_mark_before_a_stream_hides_nothing(name, answer, cut, server):
    answer.start, answer.cut = BOM_UTF8, cut
    reply, text, _ = streamed(name, answer, server=server)
    assert (reply.text, text) == ("Tea", "Tea")


def test_a_stream_that_is_only_a_byte_order_mark_is_empty(server):
    empty = Events([])
    empty.start = BOM_UTF8
    error, text, _ = streamed(CHAT, empty, server=server)
    assert isinstance(error, ModelError)
    assert text == ""


def test_a_stream_without_usage_has_none(server):
    reply, _, _ = streamed(CHAT, stream_with(*[None] * 20), server=server)
    assert (reply.usage.total_tokens, reply.usage.requests, reply.usage.cost_usd) == (0, 1, None)


def test_a_stream_that_breaks_off_has_used_what_it_reported_last(server):
    answer = Events([*[chunk({"content": "x "}, usage=report) for report in SO_FAR], FAILED])
    error, _, [used] = streamed(CHAT, answer, server=server, price=(1000, 500))
    assert isinstance(error, ModelError)
    assert (used.input_tokens, used.output_tokens, used.requests) == (1000, 20, 0)
    assert used.cost_usd == pytest.approx(1.01)


def test_a_budget_of_tokens_outlasts_cumulative_usage(server):
    server.answers = [(200, {}, stream_with(*SO_FAR))]
    pattern = ReflectionPattern(quality_criteria=[WORDS], budget_tokens=5000)

    async def main():
        stream = Agent(CHAT, pattern=pattern, keep=False).stream("Write.")
        return [event async for event in stream], stream.result

    _, result = asyncio.run(main())
    assert (result.success, result.token_usage.total_tokens) == (True, 1020)


@pytest.mark.parametrize(
    ("inputs", "outputs", "cumulative"),
    [
        ([5, 5], [2, 2], True),
        ([5, 0, 0], [1, 1, 1], False),
        ([5, 0, 0], [1, 3, 2], False),
        ([5, 0, 0], [1, 2, 9], True),
        ([0, 0, 5], [1, 1, 2], True),
        ([5, 0], [1, 20], True),
        ([0, 0], [0, 0], False),
    ],
)
def test_is_cumulative(inputs, outputs, cumulative):
    assert is_cumulative(inputs, outputs) is cumulative


# Reasoning.


@pytest.mark.parametrize(
    "pieces",
    [
        ["<think>hm</think>\n\nTea"],
        ["<", "think", ">hm</", "think", ">", "\n", "\nTea"],
        ["\n<thinking>\nhm", "\n</thinking>\n", "Tea"],
        ["<reasoning>hm</reasoning>", "Tea"],
        ["<think></think>", "<think>hm</think>", "Tea"],
    ],
)
def test_reasoning_never_reaches_the_listener(pieces, server):
    chunks = [chunk({"content": piece}) for piece in pieces]
    reply, text, _ = streamed(CHAT, Events([*chunks, chunk({}, "stop"), "[DONE]"]), server=server)
    assert (reply.text, text) == ("Tea", "Tea")


def test_blank_lines_after_reasoning_in_a_field_of_its_own_are_removed(server):
    chunks = [
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "\n\n"}),
        chunk({"content": "Tea"}, "stop"),
    ]
    reply, text, _ = streamed(CHAT, Events([*chunks, "[DONE]"]), server=server)
    assert (reply.text, text) == ("Tea", "Tea")
    server.answers = [(200, {}, said("\n\nTea", reasoning_content="hm"))]
    assert run_sync(ProviderModel(CHAT)(asked())).text == "Tea"


def test_reasoning_without_an_opening_tag_is_another_attempt_and_then_held_back(server):
    chunks = [chunk({"content": piece}) for piece in ["Let me see.", "\n</th", "ink>\n\n", "Tea"]]
    answer = Events([*chunks, chunk({}, "stop"), "[DONE]"])
    pattern = ReflectionPattern(quality_criteria=[TEA], max_iterations=0)

    async def texts():
        server.answers = [(200, {}, answer)]
        attempts = {}
        async for event in Agent(CHAT, pattern=pattern, keep=False).stream("Which drink?"):
            if type(event).__name__ == "TokenEvent":
                attempts[event.attempt] = attempts.get(event.attempt, "") + event.text
        return attempts

    first, second = asyncio.run(texts()), asyncio.run(texts())
    assert (first[max(first)], len(first)) == ("Tea", 2)
    assert second == {1: "Tea"}


@pytest.mark.parametrize(
    "text",
    [
        "Use a fence:\n```\n<think>x</think>\n```\nThat is all.",
        "Use the `<think>` tag, and close it with `</think>`.",
        "Models think between <think> and </think> tags.",
        "First\n<think>\nx\n</think>\nLast",
        "```xml\n</think>\n```",
    ],
)
def test_a_text_about_reasoning_is_left_alone(text, server):
    server.answers = [(200, {}, completion(text))]
    assert run_sync(ProviderModel(CHAT)(asked())).text == text
    chunks = [chunk({"content": text[at : at + 3]}) for at in range(0, len(text), 3)]
    reply, passed_on, _ = streamed(CHAT, Events([*chunks, chunk({}, "stop"), "[DONE]"]), server=server)
    assert (reply.text, passed_on) == (text, text)


# Schemas.

REFUSALS = [
    (
        400,
        {
            "error": {
                "message": "Invalid parameter: 'response_format' of type 'json_schema' is not supported."
            }
        },
    ),
    (400, {"error": {"message": "This response_format type is unavailable now"}}),
    (400, {"error": "'response_format.type' must be 'text'"}),
    (400, {"detail": "Bad Request"}),
    (422, {"detail": [{"msg": "Extra inputs are not permitted"}]}),
    (500, {"error": {"message": "failed to parse grammar"}}),
]


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_a_server_that_refuses_a_schema_gets_it_in_the_prompt_once(status, body, server):
    good = (200, {}, completion('{"a": 1}'))
    server.answers = [(status, {}, body), good, good]
    for _ in range(2):  # two models, as of two agents
        assert run_sync(ProviderModel(CHAT)(asked(schema=SCHEMA))).parsed == {"a": 1}
    forms = ["response_format" in body for _, body in server.asked]
    assert forms == [True, False, False]
    assert '"a"' in server.asked[-1][1]["messages"][0]["content"]


def test_a_server_that_refuses_the_schema_of_a_criterion_gets_the_prompt_as_it_is(server):
    good = (200, {}, completion('{"a": 1}'))
    server.answers = [(*REFUSALS[0][:1], {}, REFUSALS[0][1]), good, good]
    form = QualityCriterion("form", evaluator="schema", evaluator_config={"schema": SCHEMA})
    agent = Agent(CHAT, pattern=ReflectionPattern(quality_criteria=[form]), keep=False)
    for _ in range(2):
        assert agent.run_sync("Count.").success
    asked_for, again, later = (body for _, body in server.asked)
    assert asked_for["response_format"]["type"] == "json_schema"
    assert "response_format" not in again | later
    assert asked_for["messages"] == again["messages"] == later["messages"]
    assert again["messages"][1]["content"].startswith("Count.\n\nYour answer must meet these requirements:")


def test_a_stream_falls_back_to_the_schema_in_the_prompt(server):
    pieces = []
    good = Events([chunk({"content": '{"a": 1}'}, "stop"), "[DONE]"])
    server.answers = [(*REFUSALS[0][:1], {}, REFUSALS[0][1]), (200, {}, good)]
    reply = run_sync(
        ProviderModel(CHAT).stream(asked(schema=SCHEMA), lambda text, _=None: pieces.append(text))
    )
    assert (reply.parsed, "".join(pieces)) == ({"a": 1}, '{"a": 1}')


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        ((400, {"error": {"message": "The prompt is too long."}}), 2),
        ((400, {"error": {"message": "'temperature' is not supported."}}), 1),
        ((401, {"error": {"message": "Wrong key."}}), 1),
        ((429, {"error": {"message": "Slow down."}}), 1),
    ],
)
def test_another_refusal_is_raised_as_it_is(error, calls, server):
    status, body = error
    server.answers = [(status, {}, body)] * 2
    with pytest.raises(ModelError, match=re.escape(body["error"]["message"].rstrip("."))):
        run_sync(ProviderModel(CHAT)(asked(schema=SCHEMA, temperature=0.5)))
    assert len(server.asked) == calls
    assert not provider._without_schemas


def test_judges_and_typed_outputs_work_where_schemas_are_refused(server):
    refused = REFUSALS[0][0], {}, REFUSALS[0][1]
    verdict = '{"criteria": {"clear": {"reason": "so", "score": 0.9}}, "issues": [], "confidence": 1}'
    server.answers = [refused, (200, {}, completion('{"a": 1}')), (200, {}, completion(verdict))]
    pattern = ReflectionPattern(quality_criteria=[QualityCriterion("clear", "Is clear.")], max_iterations=0)
    result = Agent(CHAT, output_type=SCHEMA, pattern=pattern, keep=False).run_sync("Count.")
    assert (result.best_output, result.history.versions[0].evaluation.overall_score) == ({"a": 1}, 0.9)


# Temperatures.


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("openai:gpt-5-mini", False),
        ("openai-chat:gpt-5-mini", False),
        ("openai-chat:o3", False),
        ("openai-chat:gpt-4o", True),
        ("anthropic:claude-haiku-4-5", True),
        ("google:gemini-2.5-flash", True),
    ],
)
def test_a_temperature_is_sent_only_to_models_that_take_it(name, takes, server, recwarn):
    server.answers = [(200, {}, GOOD[CHAT if "chat" in name else RESPONSES if "openai" in name else
                                     ANTHROPIC if "anthropic" in name else GOOGLE])]  # fmt: skip
    model = ProviderModel(name)
    assert run_sync(model(asked(temperature=0.7))).text == "Tea"
    sent = server.asked[0][1]
    assert ("temperature" in sent or "temperature" in sent.get("generationConfig", {})) is takes
    assert model.takes_temperature is takes
    assert not recwarn.list


def test_reasoning_of_a_stream_that_breaks_off_is_part_of_its_estimate(server):
    answer = Events([chunk({"content": "<think>hm " + "one two three " * 40}), FAILED])
    error, text, [used] = streamed(CHAT, answer, server=server)
    assert (error.retryable, text) == (True, "")
    assert used.output_tokens > 100
    assert used.cost_usd is None
