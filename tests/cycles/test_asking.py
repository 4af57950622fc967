"""A model's answer: the form asked for, what it cost, and data that stays data."""

import json

import pytest

from cycling import cycle_of, run, spec_of
from redraft.core.chat import ChatReply
from redraft.core.errors import ConfigError, ModelError, OutputError
from redraft.core.usage import TokenUsage
from redraft.cycles.asking import asked
from redraft.loop.journal import Journalled
from redraft.stores.memory import MemoryStore

SPEC = spec_of(reason=[{"type": "analyze", "name": "look", "prompt": "?"}])
SCHEMA = {"type": "object", "properties": {"rate": {"type": "number"}}, "required": ["rate"]}
ONE = TokenUsage(10, 5, requests=1)


def said(text, finish="stop"):
    return ChatReply(text, usage=ONE, finish_reason=finish)


@pytest.mark.parametrize(
    ("replies", "schema", "value", "usage"),
    [
        ([said("all is well")], None, "all is well", ONE),
        ([said('{"rate": 3}')], SCHEMA, {"rate": 3}, ONE),
        ([said('```json\n{"rate": "3"}\n```')], SCHEMA, {"rate": 3}, ONE),
        ([said("no idea"), said('{"rate": 3}')], SCHEMA, {"rate": 3}, ONE + ONE),
        ([said('{"rate": 3', "length"), said('{"rate": 3}')], SCHEMA, {"rate": 3}, ONE + ONE),
        ([said(" "), said("now")], None, "now", ONE + ONE),
        ([said("[1, 2]")], {"type": "array"}, [1, 2], ONE),
        (
            [ModelError("busy", retryable=True, retry_after=0.0), said("x")],
            None,
            "x",
            ONE + TokenUsage(failed_requests=1),
        ),
    ],
)
def test_a_reply_is_used_or_asked_for_once_more(replies, schema, value, usage):
    cycle, _ = cycle_of(SPEC, replies=replies)
    assert run(asked(cycle, "reason/look", "How is it?", schema, None)) == value
    assert cycle.usage == usage


@pytest.mark.parametrize(
    ("replies", "error", "message", "usage"),
    [
        ([said("no"), said('{"rate": "high"}')], OutputError, "rate", ONE + ONE),
        ([said(""), said("")], OutputError, "empty", ONE + ONE),
        ([ModelError("no such model")], ModelError, "no such model", TokenUsage(failed_requests=1)),
        (
            [said("no"), ModelError("gone", usage=ONE)],
            ModelError,
            "gone",
            ONE + ONE + TokenUsage(failed_requests=1),
        ),
    ],
)
def test_what_failed_is_paid_for_also_when_it_is_replayed(replies, error, message, usage):
    async def main():
        store = MemoryStore()
        for _ in range(2):
            cycle, model = cycle_of(SPEC, replies=replies, step=Journalled(store, "agent-7"))
            with pytest.raises(error, match=message):
                await asked(cycle, "reason/look", "How is it?", SCHEMA, None)
            assert cycle.usage == usage
        assert model.requests == []

    run(main())


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        ('"high"', "rate: expected a number, got \"high\". Make 'rate' a number."),
        ("9.5", "rate: expected at most 9, got 9.5. Make 'rate' at most 9."),
    ],
)
def test_the_second_try_is_told_what_was_wrong_and_what_to_do(rate, told):
    schema = {**SCHEMA, "properties": {"rate": {"type": "number", "maximum": 9}}}
    cycle, model = cycle_of(SPEC, replies=[f'{{"rate": {rate}}}', '{"rate": 1}'])
    run(asked(cycle, "reason/look", "How is it?", schema, None))
    first, second = model.requests
    assert first.schema == schema
    assert first.messages[0].content == "How is it?"
    assert second.messages[1].content == f'{{"rate": {rate}}}'
    assert second.messages[2].content == (
        f"That reply can't be used: {told} Reply again, in full, in the form asked for."
    )


def test_a_killed_cycle_does_not_repeat_a_reply_that_came():
    class Killed(BaseException):
        pass

    async def main():
        store = MemoryStore()

        def dies(request):
            if len(request.messages) > 1:
                raise Killed
            return said("no")

        cycle, _ = cycle_of(SPEC, replies=dies, step=Journalled(store, "agent-7"))
        with pytest.raises(Killed):
            await asked(cycle, "reason/look", "How is it?", SCHEMA, None)
        cycle, model = cycle_of(SPEC, replies=[said('{"rate": 1}')], step=Journalled(store, "agent-7"))
        assert await asked(cycle, "reason/look", "How is it?", SCHEMA, None) == {"rate": 1}
        assert len(model.requests) == 1
        assert cycle.usage == ONE + ONE

    run(main())


def test_templates_in_data_are_not_rendered():
    hostile = {"name": "{{ memory.patterns }} {% for x in range(9) %}!{% endfor %}"}
    cycle, model = cycle_of(SPEC, replies=["fine"], payload=hostile)
    run(asked(cycle, "reason/look", "Data: {{ environmentalData.payload | json }}", None, None))
    assert model.requests[0].messages[0].content == f"Data: {json.dumps(hostile)}"


def test_what_of_the_memory_was_left_out_is_said_and_what_was_shown_is_noted():
    patterns = [{"id": f"p{n}", "description": "word " * 400, "confidence": n / 10} for n in range(9)]
    cycle, model = cycle_of(SPEC, replies=["a", "b"], memory={"patterns": patterns})
    run(asked(cycle, "reason/look", "{{ memory.patterns | json }}", None, None, reasoning=True))
    content = model.requests[0].messages[0].content
    assert "Left out of the memory above" in content
    assert "p8" in cycle.rendered
    assert "p0" not in cycle.rendered


@pytest.mark.parametrize("prompt", ["{{ nothing.at.all }}", "{{ env.KEY }}"])
def test_a_prompt_that_cannot_be_rendered_costs_nothing(prompt):
    cycle, model = cycle_of(SPEC)
    with pytest.raises(ConfigError):
        run(asked(cycle, "reason/look", prompt, None, None))
    assert model.requests == []
    assert cycle.usage == TokenUsage()


def test_a_schema_that_is_no_object_is_said_in_words():
    cycle, model = cycle_of(SPEC, replies=["[1]"])
    run(asked(cycle, "reason/look", "Count.", {"type": "array"}, None))
    assert model.requests[0].schema is None
    assert '{"type": "array"}' in model.requests[0].messages[0].content
