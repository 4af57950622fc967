"""What is said to monty, and what comes of what it may say: without the interpreter, word by word."""

import asyncio
import tracemalloc

import pytest

from redraft.errors import ConfigError, SandboxError, ScriptError
from redraft.protocols import Limits, Script
from redraft.sandbox import inline
from redraft.sandbox.dialect import SpoiledError
from redraft.sandbox.inside.frames import HEAD
from redraft.sandbox.monty import protocol
from redraft.sandbox.monty.conversation import MONTY
from redraft.sandbox.monty.protobuf import data, number
from support.scripts import alive, attempt

LIMITS = Limits(output_chars=10, result_chars=10)


def completed(text):
    return data(6, number(1, 0) + data(2, number(1, 1), data(2, data(8, text)))) + number(20, 5)


def raised(kind, said, *lines):
    frames = (data(3, data(1, b"<python-input-0>"), data(2, number(1, line), number(2, 1))) for line in lines)
    return data(7, data(1, data(1, kind), data(2, said), *frames))


def printed(text):
    return data(1, data(1, number(1, 1), data(2, text)))


OK = data(10)
LOOKUP = data(4, data(1, b"result"))
CALL = data(2, data(1, b"f"), number(4, 3))
SYSTEM = data(3, number(1, 4), data(6, b"/etc/passwd"))


def talk(source, *heard, names=None):
    """Return what was said each time, and the answer."""
    conversation = MONTY.converse(Script("python", source, names or {"output": 1}, LIMITS))
    said = [next(conversation)]
    try:
        for message in heard:
            said += [conversation.send(message)]
    except StopIteration as end:
        return said, end.value
    raise AssertionError(f"it wants to hear more than {heard!r}")


def messages(words):
    while words:
        (length,) = HEAD.unpack_from(words)
        yield words[HEAD.size : HEAD.size + length]
        words = words[HEAD.size + length :]


def test_a_script_that_assigns_takes_one_request_and_no_more():
    said, answer = talk("result = 1", OK, printed(b"a"), OK, printed(b"b"), completed(b"1"))
    assert answer == {"value": "1", "printed": "ab"}
    opened, fed = messages(said[0])
    assert opened == next(messages(protocol.configure(LIMITS)))
    assert b"json.loads(output)\nresult = 1\nimport json\njson.dumps(result" in fed
    assert said[1:] == [b""] * 4


UNREAD = b"\xff no message at all"


def test_any_other_value_is_handed_back_unread():
    said, answer = talk("[1]", OK, data(6, number(1, 1), data(2, UNREAD)), completed(b"[1]"))
    assert answer["value"] == "[1]"
    (asked,) = messages(said[2])
    assert b"json.dumps(result" in asked
    assert data(2, data(1, b"result"), number(2, 1)) + data(3, UNREAD) in asked


def test_a_script_that_may_have_a_result_is_asked_for_it_first():
    for source, names in (("results", {}), ("[1]", {"result": 1})):
        value = data(6, number(1, 1), data(2, UNREAD))
        said, answer = talk(source, OK, value, LOOKUP, completed(b"[1]"), names=names)
        assert answer["value"] == "[1]"
        assert UNREAD not in said[2]
        assert list(messages(said[3])) == [data(5, data(1, UNREAD), number(2, 1))]


def test_nothing_outside_is_there():
    said, _ = talk("result = 1", LOOKUP, CALL, SYSTEM, completed(b"1"))
    assert list(map(list, map(messages, said[1:]))) == [
        [data(5, data(3))],
        [data(4, number(1, 3), data(2, data(4, b"f")))],
        [data(4, number(1, 4), data(2, data(5)))],
    ]


@pytest.mark.parametrize(
    ("heard", "says"),
    [
        ([raised(b"ValueError", b"no", 3)], "raised ValueError: no"),
        ([raised(b"json.JSONDecodeError", b"no", 2)], "raised JSONDecodeError: no"),
        ([raised(b"KeyError", b"no", 2)], "raised KeyError: 'no'"),
        ([raised(b"RuntimeError", b"Internal error")], "raised RuntimeError: Internal error"),
        ([raised(b"TypeError", b"not serializable", 5)], "cannot be written as JSON: not serializable"),
        ([raised(b"ValueError", b"too deep", 1)], "was given data that it cannot read: too deep"),
        ([raised(b"TimeoutError", b"feed time limit exceeded")], "ran longer than its limit"),
        ([raised(b"MemoryError", b"memory limit exceeded", 2)], "took more than its limit"),
        ([completed(b'"12345678901"')], "is too large: 13 characters of JSON, and 10 are allowed"),
    ],
)
def test_what_goes_wrong_is_an_answer(heard, says):
    _, answer = talk("\nresult = 1\n", *heard)
    assert says in answer["message"]


HUGE = 10 << 20


@pytest.mark.parametrize(
    ("source", "heard", "says"),
    [
        ("result = 1", raised(b"ValueError", b"x" * HUGE, 2), "line 1: raised ValueError: xxx"),
        (
            "result = 1",
            raised(b"ValueError", "é".encode() * (HUGE // 2), 2),
            "line 1: raised ValueError: ééé",
        ),
        ("result = 1", raised(b"KeyError", b"x" * HUGE, 2), "line 1: raised KeyError: 'xxx"),
        ("result = 1", raised(b"NameError", b"x" * HUGE, 2), "line 1: raised NameError: xxx"),
        ("result = 1", raised(b"x" * HUGE, b"no", 2), "line 1: raised xxx"),
        (
            "result = 1",
            completed(b"x" * HUGE),
            f"is too large: {HUGE:,} bytes of JSON, and 10 characters are",
        ),
        ("1", completed(b"x" * HUGE), "is too large"),
        ("1", data(6, number(1, 1), data(2, b"x" * HUGE)), "is too large"),
    ],
    ids=["text", "letters", "key", "name", "type", "result", "value", "values"],
)
def test_what_is_too_long_is_cut_before_it_is_read(source, heard, says):
    conversation = MONTY.converse(Script("python", source, {"output": 1}, LIMITS))
    next(conversation)
    tracemalloc.start()
    try:
        with pytest.raises((StopIteration, SpoiledError)) as end:
            conversation.send(heard)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    answer = end.value.answer if isinstance(end.value, SpoiledError) else end.value.value
    assert says in f"line {answer['line']}: {answer['message']}"
    assert most < 1 << 20


def test_a_result_that_was_not_assigned_is_none():
    _, answer = talk("if 0:\n    result = 1", raised(b"NameError", b"name 'result' is not defined", 5))
    assert answer == {"value": "null", "printed": ""}


@pytest.mark.parametrize(
    ("heard", "says"),
    [
        ([printed(b"12345"), printed(b"678901")], "printed more than its limit of 10 characters"),
        ([data(11, data(1, b"broken"))], "ended its interpreter: broken"),
        ([b""], "an answer that is none"),
        ([b"\xff" * 30], "an answer that is none"),
        ([data(12)], "an answer that is none"),
        ([number(6, 1)], "an answer that is none"),
        ([data(6)], "an answer that is none"),
        ([data(6, number(1, 9), data(2, data(2, data(8, b"1"))))], "an answer that is none"),
        ([data(6, data(2, data(2, number(5, 1))))], "an answer that is none"),
        ([completed(b"\xff")], "an answer that is none"),
        ([data(7, data(1, b"\x0a\x05abc"))], "an answer that is none"),
        ([printed(b"\xff")], "an answer that is none"),
    ],
)
def test_an_interpreter_that_is_not_what_it_was_is_given_up(heard, says):
    with pytest.raises(SpoiledError) as caught:
        talk("result = 1", *heard)
    assert says in caught.value.answer["message"]


@pytest.mark.parametrize("given", [{"a b": 1}, {"a": {1}}, {"a": float("nan")}])
def test_names_that_make_no_sense_are_refused_before_a_word_is_said(given):
    with pytest.raises(ConfigError):
        MONTY.converse(Script("python", "1", given))


def test_a_flood_of_output_costs_the_interpreter_and_the_next_script_nothing():
    assert alive("python")
    idle = inline._workers("python")._idle
    before = len(idle)
    ended, _ = attempt("python", "while True: print('x' * 1000)", SandboxError)
    assert isinstance(ended, SandboxError)
    assert len(idle) == before - 1
    assert alive("python")


def test_an_answer_beyond_all_bounds_is_not_even_read():
    large = Limits(seconds=30, memory_mb=1024)
    ended, _ = attempt("python", "'x' * (70 << 20)", ScriptError, limits=large)
    assert isinstance(ended, ScriptError)
    assert "too large" in str(ended)
    assert alive("python")


def test_an_interpreter_that_does_not_speak_our_protocol_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(protocol, "_VERSION", 999)
    monkeypatch.setattr(protocol, "configure", protocol.configure.__wrapped__)
    workers = inline.Workers("python", MONTY, inline.INTERPRETERS["python"].options(), [])
    with pytest.raises(SandboxError, match="did not start: unsupported protocol version 999"):
        asyncio.run(workers.talk(MONTY.converse(Script("python", "1")), 1))
