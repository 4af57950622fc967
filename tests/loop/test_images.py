"""Queries with images and earlier messages, against a server on loopback that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from dataclasses import replace
from hashlib import sha256

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.profiles import ModelProfile

from redraft import (
    Agent,
    ConfigError,
    MemoryStore,
    QualityCriterion,
    ReflectionPattern,
    Runs,
    ScriptedModel,
    reflect,
)
from redraft._codec import to_json
from redraft.errors import ChangedRunError, StoreError
from redraft.loop.event_log import EventLog
from redraft.loop.journal import STEP
from redraft.loop.record import IMAGE as IMAGE_RECORD
from redraft.loop.record import RUN
from redraft.models.provider import ProviderModel
from redraft.types import Image, ImageMessage, Message, PlainTask
from support.openai_server import completion, serving
from support.tool_agents import Actor
from support.tool_agents import call as tool_call

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DIGEST = sha256(PNG).hexdigest()
BASE64 = base64.b64encode(PNG).decode()
PHOTO = BinaryContent(PNG, media_type="image/png")
IMAGE = Image("image/png", DIGEST, data=PNG)
RED = QualityCriterion("red", evaluator="regex", evaluator_config={"pattern": "red"})
RUBRIC = 'Your answer must meet these requirements:\n- The text contains "red".'
PATTERN = ReflectionPattern(quality_criteria=[RED])
VERDICT = json.dumps(
    {"criteria": {"true": {"reason": "", "score": 1.0}}, "issues": [], "suggestions": [], "confidence": 1}
)


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        server.say = lambda *texts: server.answers.extend((200, {}, completion(text)) for text in texts)
        yield server


def sent(server, call, message):
    """The content of a message of a call, as the provider got it."""
    return server.asked[call][1]["messages"][message]["content"]


def test_drafts_and_revisions_and_the_judge_see_the_image(server):
    server.say("It is blue.", "It is red.", VERDICT)
    pattern = ReflectionPattern(
        quality_criteria=[
            QualityCriterion("red", evaluator="regex", evaluator_config={"pattern": "red"}, gate=True),
            QualityCriterion("true", "Says what the image shows."),
        ],
        revision_strategy="full_rewrite",
    )
    agent = Agent("openai-chat:gpt-4o-mini", pattern=pattern, keep=False)
    result = agent.run_sync(["What colour is the dot?", PHOTO, ImageUrl("https://example.org/dot.png")])
    assert result.best_output == "It is red."
    for call in range(3):
        text, image, url = sent(server, call, 1)
        assert "What colour is the dot?" in text["text"]
        assert image["image_url"]["url"] == f"data:image/png;base64,{BASE64}"
        assert url["image_url"]["url"] == "https://example.org/dot.png"


def test_an_output_type_is_asked_for_natively_also_about_an_image(server):
    class Dot(BaseModel):
        colour: str

    server.say('{"colour": 3}', '{"colour": "red"}')
    agent = Agent("openai-chat:gpt-4o-mini", output_type=Dot, pattern=PATTERN, keep=False)
    assert agent.run_sync(["Read it.", PHOTO]).best_output == Dot(colour="red")
    asked = [body["response_format"]["json_schema"]["schema"] for _, body in server.asked]
    assert [list(schema["properties"]) for schema in asked] == [["colour"], ["colour"]]


def test_a_conversation_comes_before_the_query(server):
    server.say("It is red.")
    agent = Agent("openai-chat:gpt-4o-mini", pattern=PATTERN, system_prompt="Be brief.", keep=False)
    earlier = [
        ModelRequest([UserPromptPart(["Here is a dot.", PHOTO])]),
        ModelResponse([TextPart("I see it.")]),
        Message("user", "Good."),
    ]
    agent.run_sync([*earlier, "What colour is it?"])
    messages = server.asked[0][1]["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "user"]
    assert sent(server, 0, 1)[1]["image_url"]["url"].endswith(BASE64)
    assert sent(server, 0, 4) == f"What colour is it?\n\n{RUBRIC}"


def test_an_image_is_stored_once_and_nowhere_else(caplog, tmp_path):
    store = MemoryStore()
    caplog.set_level(logging.DEBUG)
    for run_id in ("one", "two"):
        model = ScriptedModel(["blue", "red"])
        with EventLog(tmp_path / "events.jsonl") as log:
            pattern = ReflectionPattern(quality_criteria=[RED], on_event=log)
            agent = Agent(model, pattern=pattern, keep=store)
            result = agent.run_sync(["What colour?", PHOTO, PHOTO], run_id=run_id)
        assert isinstance(model.requests[0].messages[1], ImageMessage)
        assert result.task is not None
        assert BASE64 not in repr(result)

    async def records():
        return [record for kind in ("image", "run", "step") for record in await store.find(kind)]

    images = [record for record in asyncio.run(records()) if BASE64 in json.dumps(record.data)]
    assert [(record.kind, record.key) for record in images] == [("image", DIGEST)]
    told = caplog.text + (tmp_path / "events.jsonl").read_text() + json.dumps(to_json(result))
    assert BASE64 not in told
    assert repr(PNG) not in told
    assert DIGEST in told


def test_a_run_is_resumed_with_the_same_image_or_with_the_stored_one():
    store = MemoryStore()

    def agent(*replies):
        model = ScriptedModel(list(replies))
        return Agent(model, pattern=PATTERN, keep=store), model

    first, _ = agent("blue")  # the script ends before the revision, which fails
    assert first.run_sync(["What colour?", PHOTO], run_id="r").error is not None
    with pytest.raises(ChangedRunError):
        agent()[0].run_sync(["What colour?", BinaryContent(PNG + b"x", media_type="image/png")], run_id="r")
    task = asyncio.run(Runs(store).get("r")).task
    assert [image.data for image in task.images] == [b""]
    again, model = agent("red")
    result = again.run_sync(task, run_id="r")
    assert result.best_output == "red"
    assert model.requests[0].messages[1].images[0].data == PNG
    same, model = agent()
    assert same.run_sync(["What colour?", PHOTO], run_id="r").best_output == "red"
    assert not model.requests


def test_a_conversation_is_part_of_the_task():
    store = MemoryStore()
    agent = Agent(ScriptedModel(["red", "red"]), pattern=PATTERN, keep=store)
    earlier = [Message("user", "Hello."), ModelRequest([UserPromptPart([PHOTO])])]
    agent.run_sync([*earlier, "What colour?"], run_id="r")
    assert agent.run_sync([*earlier, "What colour?"], run_id="r").best_output == "red"
    with pytest.raises(ChangedRunError):
        agent.run_sync([earlier[0], "What colour?"], run_id="r")


class Blind(ScriptedModel):
    takes_images = False


@pytest.mark.parametrize(
    ("model", "judge"),
    [
        (Blind([]), None),
        (ScriptedModel([]), Blind([])),
        (
            ProviderModel(FunctionModel(lambda *_: None, profile=ModelProfile(supports_image_input=False))),
            None,
        ),
    ],
)
def test_a_model_that_takes_no_images_is_refused_before_the_first_call(model, judge):
    agent = Agent(model, pattern=ReflectionPattern(reflection_model=judge), keep=False)
    with pytest.raises(ConfigError, match=r"but the model that (answers|judges), .*, does not accept"):
        agent.run_sync(["What colour?", PHOTO])


def test_the_providers_own_error_is_named(server):
    server.answers.append((400, {}, {"error": {"message": "This model does not support image_url."}}))
    agent = Agent("openai-chat:gpt-4o-mini", pattern=PATTERN, keep=False)
    with pytest.raises(Exception, match="status 400: This model does not support image_url"):
        agent.run_sync(["What colour?", PHOTO])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (["Listen.", AudioUrl("https://example.org/a.mp3")], "got audio/mpeg"),
        (["Look.", BinaryContent(b"x", media_type="application/pdf")], "got application/pdf"),
        (["Look.", BinaryContent(b"", media_type="image/png")], "has no bytes"),
        (["Look.", 7], "got 7;"),
        (["Look.", Message("user", "Earlier.")], "come before"),
        ([ModelResponse([ToolCallPart("stock")]), "Go on."], "not a ToolCallPart"),
        ([PHOTO], "The task is empty"),
        ([], "The task is empty"),
        ({"text": "Look."}, "a list of strings and images"),
    ],
)
def test_a_query_that_cannot_be_asked_is_refused(query, words):
    with pytest.raises(ConfigError) as caught:
        Agent(ScriptedModel([]), pattern=PATTERN, keep=False).run_sync(query)
    assert words in str(caught.value)


def test_images_in_a_data_url_are_bytes():
    model = ScriptedModel(["red"])
    agent = Agent(model, pattern=PATTERN, keep=False)
    agent.run_sync(["What colour?", ImageUrl(f"data:image/png;base64,{BASE64}")])
    (image,) = model.requests[0].messages[1].images
    assert (image.url, image.digest, image.data) == ("", DIGEST, PNG)


def test_an_agent_with_tools_says_where_messages_go():
    agent = Agent(ProviderModel(FunctionModel(lambda *_: None)), tools=[len], pattern=PATTERN, keep=False)
    with pytest.raises(ConfigError, match="with tools can't take"):
        agent.run_sync([Message("user", "Look."), "What colour?", PHOTO])


def prompts(actor):
    """The content of each user prompt of each request."""
    return [
        [part.content for message in request for part in message.parts if isinstance(part, UserPromptPart)]
        for request in actor.requests
    ]


def test_an_agent_with_tools_sees_the_image_in_every_request_and_keeps_it_once():
    def zoom(part: str) -> str:
        return f"{part}: a dot"

    store = MemoryStore()
    fresh = replace(PATTERN, revision_strategy="fresh")
    for pattern, script in (
        (PATTERN, [tool_call("zoom", part="middle"), "It is blue.", "It is red."]),
        (fresh, ["It is blue.", "It is red."]),
    ):
        actor = Actor(script)
        agent = Agent(actor.provider, tools=[zoom], pattern=pattern, keep=store)
        assert (
            agent.run_sync(["What colour?", PHOTO], run_id=f"run {len(script)}").best_output == "It is red."
        )
        for texts in prompts(actor):
            assert texts[0][1:] == [PHOTO]
            assert all(isinstance(text, str) for text in texts[1:]), "once in a conversation"
    records = [record for kind in (RUN, STEP, IMAGE_RECORD) for record in asyncio.run(store.find(kind))]
    assert [record.kind for record in records if BASE64 in json.dumps(record.data)] == [IMAGE_RECORD]


def test_a_wrapped_agent_sees_the_image_behind_its_history():
    actor = Actor(["It is blue.", "It is red."])
    agent = Agent.from_pydantic_ai(PydanticAgent(actor.model), pattern=PATTERN, keep=False)
    earlier = [ModelRequest.user_text_prompt("I have a question."), ModelResponse([TextPart("Ask.")])]
    assert (
        agent.with_options(message_history=earlier).run_sync(["What colour?", PHOTO]).best_output
        == "It is red."
    )
    for texts in prompts(actor):
        assert texts[:2] == ["I have a question.", [f"What colour?\n\n{RUBRIC}", PHOTO]]


def test_a_resumed_agent_with_tools_needs_only_its_task():
    store = MemoryStore()

    def run(query, *script):
        actor = Actor([*script])
        return Agent(actor.provider, tools=[len], pattern=PATTERN, keep=store).run_sync(
            query, run_id="r"
        ), actor

    failed, _ = run(["What colour?", PHOTO], "It is blue.", RuntimeError("no power"))
    assert failed.error is not None
    task = asyncio.run(Runs(store).get("r")).task
    assert task.images[0].data == b""
    result, actor = run(task, "It is red.")
    assert result.best_output == "It is red."
    assert prompts(actor)[0][0] == [f"What colour?\n\n{RUBRIC}", PHOTO]


def test_a_model_that_takes_no_images_is_never_sent_one(monkeypatch):
    """Also where it is found only during the run, as the model of the settings is by `reflect`."""
    blind = Blind(["red"])
    monkeypatch.setattr("redraft.loop.verbs.model_of", lambda *_, **__: blind)
    with pytest.raises(ConfigError, match="does not accept images"):
        asyncio.run(reflect(PlainTask("What colour?", images=(IMAGE,)), pattern=PATTERN))
    assert not blind.requests


def test_an_image_that_the_store_has_lost_is_asked_for():
    store = MemoryStore()
    lost = PlainTask("What colour?", images=(replace(IMAGE, data=b""),))
    with pytest.raises(StoreError, match="pass it with the task again"):
        Agent(ScriptedModel([]), pattern=PATTERN, keep=store).run_sync(lost, run_id="r")
    assert asyncio.run(Runs(store).get("r")).status == "failed"
