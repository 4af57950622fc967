from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import stat
import threading
from codecs import BOM_UTF8

import pytest

from redraft import Agent
from redraft._sync import run_sync
from redraft.errors import ConfigError, ModelError
from redraft.models.testing import Cassette, ScriptedModel
from redraft.protocols import ChatReply, ChatRequest, Message
from redraft.types import TokenUsage

FULL = ChatReply(
    '{"a": "ä"}',
    {"a": "ä"},
    ({"yes": -0.25, "no": -1.5},),
    TokenUsage(10, 5, 3, 1, 0, None),
    "some-model",
    "length",
)


def asked(text="hi", **more):
    return ChatRequest((Message("system", "Be brief."), Message("user", text)), **more)


def ask(model, request):
    return run_sync(model(request))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "calls.jsonl"


def recorded(path, *calls):
    for request, reply in calls:
        ask(Cassette(path, record=ScriptedModel([reply])), request)
    return path


def test_replay_includes_every_field(path):
    recorded(path, (asked(), FULL))
    assert ask(Cassette(path), asked()) == FULL


def test_a_scripted_stream_passes_on_each_word():
    said = []
    reply = run_sync(ScriptedModel([" one  two\n"]).stream(asked(), lambda *piece: said.append(piece)))
    assert [text for text, _ in said] == [" one", "  two", "\n"]
    assert reply.text == " one  two\n"
    assert {used.cost_usd for _, used in said} == {0.0}


def test_repeated_requests_replay_in_order(path):
    model = ScriptedModel(["one", "two"])
    recording = Cassette(path, record=model)
    assert [ask(recording, asked()).text for _ in range(2)] == ["one", "two"]
    replaying = Cassette(path)
    assert [ask(replaying, asked()).text for _ in range(2)] == ["one", "two"]
    with pytest.raises(ModelError, match="only 2 replies to this generation call, but it was made again"):
        ask(replaying, asked())


def test_recording_calls_the_model_only_for_missing_replies(path):
    recorded(path, (asked("a"), "one"))
    model = ScriptedModel(["two"])
    cassette = Cassette(path, record=model)
    assert [ask(cassette, asked(text)).text for text in "ab"] == ["one", "two"]
    assert model.requests == [asked("b")]
    assert [ask(Cassette(path), asked(text)).text for text in "ab"] == ["one", "two"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            asked("Write a poem on rain."),
            r"message 2 \(user\) at character 16: .*'Write a poem on snow.'.*rain",
        ),
        (asked(role="evaluation"), "no reply to this evaluation call"),
        (asked("Write a poem on snow.", temperature=0.0), "temperature: recorded None, asked 0.0"),
        (asked("Write a poem on snow.", max_tokens=5), "max_tokens: recorded None, asked 5"),
        (asked("Write a poem on snow.", logprobs=3), "logprobs: recorded None, asked 3"),
        (asked("Write a poem on snow.", schema={"type": "object"}), "schema: recorded None, asked"),
        (asked("Write a poem on snow.", role="revision"), "role: recorded None, asked 'revision'"),
        (ChatRequest((Message("system", "Be brief."),)), "has 2 messages, this one 1"),
    ],
)
def test_missing_reply_names_the_difference(path, request_, message):
    recorded(path, (asked("Write a poem on snow."), "x"), (asked("Something else."), "y"))
    with pytest.raises(ModelError, match=message) as caught:
        ask(Cassette(path), request_)
    assert "record=model" in str(caught.value)
    assert not caught.value.retryable


def test_failed_calls_are_not_recorded(path):
    recording = Cassette(path, record=ScriptedModel([ModelError("busy", retryable=True)]))
    with pytest.raises(ModelError, match="busy"):
        ask(recording, asked())
    assert not path.exists()


def test_file_mode_and_schema_version(path):
    recorded(path, (asked(), "x"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["schema_version"] == 1


def test_concurrent_writers(path):
    def write(name):
        cassette = Cassette(path, record=ScriptedModel(lambda request: request.messages[1].content * 2000))
        for turn in range(5):
            ask(cassette, asked(f"{name}{turn}"))

    path.parent.mkdir()
    path.touch()
    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    cassette = Cassette(path)
    assert all(
        ask(cassette, asked(f"{name}{turn}")).text == f"{name}{turn}" * 2000
        for name in "abcd"
        for turn in range(5)
    )


def test_a_byte_order_mark_is_no_part_of_a_cassette(path):
    recorded(path, (asked("a"), "one"))
    path.write_bytes(BOM_UTF8 + path.read_bytes())
    assert ask(Cassette(path), asked("a")).text == "one"


def test_missing_final_line_break(path):
    recorded(path, (asked("a"), "one"))
    path.write_text(path.read_text().rstrip("\n"))
    recorded(path, (asked("b"), "two"))
    assert ask(Cassette(path), asked("a")).text == "one"


def test_failed_write_leaves_no_partial_line(path, monkeypatch):
    recorded(path, (asked("a"), "one"))

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        recorded(path, (asked("b"), "two"))
    assert len(path.read_text().splitlines()) == 1


def test_unwritable_path(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, _mode: place != tmp_path)
    with pytest.raises(ConfigError, match=f"can't be recorded: {tmp_path} is not writable"):
        Cassette(tmp_path / "tapes" / "calls.jsonl", record=ScriptedModel([]))


def test_compressed_cassette_is_read_only(path):
    recorded(path, (asked(), FULL))
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert ask(Cassette(packed), asked()) == FULL
    packed.write_bytes(gzip.compress(path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n"))
    assert ask(Cassette(packed), asked()) == FULL
    with pytest.raises(ConfigError, match="compressed"):
        Cassette(packed, record=ScriptedModel([]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "jsonl:2: this is not a recorded call"),
        ("[]", "jsonl:2: this is not a recorded call"),
        ('{"schema_version": 7}', "jsonl:2: schema_version is 7; this Redraft reads 1"),
        ('{"schema_version": 1, "request": {}}', "jsonl:2: this is not a recorded call"),
        ('{"schema_version": 1, "request": {"messages": []}, "reply": {"text": 3}}', "jsonl:2: this is not"),
    ],
)
def test_invalid_file_names_the_line(path, line, message):
    recorded(path, (asked(), "x"))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ConfigError, match=message):
        Cassette(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.jsonl", None, "There is no cassette"),
        ("binary.jsonl", b"\xff\xfe", "cannot be read"),
        ("false.jsonl.gz", b"not gzip", "cannot be read"),
        ("damaged.jsonl.gz", gzip.compress(b"x" * 99, mtime=0)[:15], "cannot be read"),
    ],
)
def test_unreadable_file(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        Cassette(tmp_path / name)


OBJECT = {"type": "object"}


def chat_request(text="hi", **more):
    return ChatRequest((Message("user", text),), **more)


@pytest.mark.parametrize(
    ("reply", "schema", "text", "parsed"),
    [
        ("plain", None, "plain", None),
        ('{"a": 1}', None, '{"a": 1}', None),
        ('Here: {"a": 1}', OBJECT, 'Here: {"a": 1}', {"a": 1}),
        ("no JSON", OBJECT, "no JSON", None),
        ({"ä": [1]}, OBJECT, '{"ä": [1]}', {"ä": [1]}),
        ({"a": 1}, None, '{"a": 1}', {"a": 1}),
        ([1, 2], OBJECT, "[1, 2]", [1, 2]),
        (ChatReply('{"a": 1}'), OBJECT, '{"a": 1}', {"a": 1}),
        (ChatReply("x", parsed={"b": 2}), OBJECT, "x", {"b": 2}),
    ],
)
def test_scripted_reply_types(reply, schema, text, parsed):
    for script in ([reply], lambda _: reply, lambda _: asyncio.sleep(0, reply)):
        answer = run_sync(ScriptedModel(script)(chat_request(schema=schema)))
        assert (answer.text, answer.parsed, answer.model) == (text, parsed, "scripted")


def test_scripted_replies_in_order():
    model = ScriptedModel(["one", "two"])
    first, second = chat_request("a"), chat_request("b", role="evaluation")
    assert [run_sync(model(request)).text for request in (first, second)] == ["one", "two"]
    assert model.requests == [first, second]


def test_end_of_the_script():
    model = ScriptedModel(["one"])
    run_sync(model(chat_request()))
    with pytest.raises(
        ModelError, match=r"1 reply, and this is call 2 \(revision\), which asks 'Again'"
    ) as caught:
        run_sync(model(chat_request("Again", role="revision")))
    assert not caught.value.retryable


def test_a_script_function_at_the_end_of_its_iterator_is_named():
    replies = iter(["one"])
    model = ScriptedModel(lambda _request: next(replies))
    run_sync(model(chat_request()))
    with pytest.raises(ModelError, match=r"function raised StopIteration in call 2 \(revision\)"):
        run_sync(model(chat_request("Again", role="revision")))


def test_scripted_exception_is_raised():
    model = ScriptedModel([ModelError("busy", status=429, retryable=True), "fine"])
    with pytest.raises(ModelError, match="busy"):
        run_sync(model(chat_request()))
    assert run_sync(model(chat_request())).text == "fine"


def test_a_price_lets_a_budget_in_dollars_stop_a_run():
    model = ScriptedModel(lambda _: "a" * 36, price=(5, 15))
    usage = run_sync(model(chat_request("b" * 72))).usage
    assert usage == TokenUsage(20, 10, requests=1, cost_usd=0.00025)
    words = iter(range(10_000))
    model = ScriptedModel(lambda _: " ".join(f"word{next(words)}" for _ in range(150)), price=(5, 15))
    agent = Agent(model, criteria=[re.compile("tea")], max_iterations=3, budget_usd=0.01, keep=False)
    result = agent.run_sync("Write.")
    assert result.convergence_reason == "cost_budget"
    assert 0.004 < result.token_usage.cost_usd <= 0.01
    assert len(result.history.versions) < 4
    with pytest.raises(ConfigError, match="price must be two amounts"):
        ScriptedModel([], price=3)


@pytest.mark.parametrize(
    ("reply", "most", "text", "ending", "output_tokens"),
    [
        ("a" * 36, 10, "a" * 36, "stop", 10),
        ("a" * 40, 10, "a" * 36, "length", 10),
        ("\u00e4" * 37, 10, "\u00e4" * 18, "length", 10),
        ({"kind": "a" * 36}, 5, '{"kind": "aaaaaaaa', "length", 5),
        ("a" * 37, None, "a" * 37, "stop", 10),
        (ChatReply("a" * 72, usage=TokenUsage(1, 20, requests=1)), 10, "a" * 72, "stop", 20),
    ],
)
def test_a_reply_longer_than_its_limit_is_cut_off(reply, most, text, ending, output_tokens):
    answered = run_sync(ScriptedModel([reply])(chat_request(max_tokens=most)))
    assert (answered.text, answered.finish_reason) == (text, ending)
    assert answered.usage.output_tokens == output_tokens
    assert answered.parsed is None


def test_a_reply_beyond_its_limit_is_named_where_the_run_stops():
    reply = ChatReply("word", usage=TokenUsage(1, 900, requests=1))
    agent = Agent(ScriptedModel([reply] * 2), criteria=[re.compile("tea")], budget_tokens=600, keep=False)
    assert agent.run_sync("Write.").stop.detail == (
        "901 of 600 tokens were used (budget_tokens). A reply took 900 output tokens, although it was sent "
        "with a limit of 571."
    )


def test_usage_is_estimated_unless_specified():
    usage = run_sync(ScriptedModel(["a" * 36])(chat_request("b" * 72))).usage
    assert usage == TokenUsage(input_tokens=20, output_tokens=10, requests=1, cost_usd=0.0)
    given = TokenUsage(5, 6, requests=1, cost_usd=0.25)
    assert run_sync(ScriptedModel([ChatReply("x", usage=given)])(chat_request())).usage == given


@pytest.mark.parametrize("script", ["a text", {"a": "dict"}])
def test_invalid_script(script):
    with pytest.raises(ConfigError, match="a list of replies or a function"):
        ScriptedModel(script)


def test_invalid_scripted_reply():
    with pytest.raises(ConfigError, match="A scripted reply must be a string"):
        run_sync(ScriptedModel([3.5])(chat_request()))
