"""Calls: models and functions of the program."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from redraft._calls import in_daemon_thread
from redraft._steps import Retry, direct
from redraft._texts import estimate_tokens
from redraft._validation import named_error
from redraft.cycles.agent import SUBSTAGES
from redraft.cycles.calls import ask_model, call_function, prompt_scopes
from redraft.cycles.cycle import Cycle, CycleState, Runtime
from redraft.cycles.spec import AgentSpec, Analyze
from redraft.errors import ConfigError, ModelError, OutputError
from redraft.models.metered import MeteredModel
from redraft.models.testing import ScriptedModel
from redraft.protocols import ChatReply
from redraft.stores.sqlite import MemoryStore
from redraft.text.templates import Template
from redraft.types import TokenUsage
from support.cycles import begun, cycle_of, run, spec_of, substages

SPEC = spec_of(reason=[{"type": "analyze", "name": "look", "prompt": "?"}])
SCHEMA = {"type": "object", "properties": {"rate": {"type": "number"}}, "required": ["rate"]}
ONE = TokenUsage(10, 5, requests=1)


def asked(cycle, prompt, schema=None):
    substage = Analyze.model_construct(name="look", prompt=prompt, output_schema=schema)
    return ask_model(cycle, "reason/look", substage)


def reply(text, finish="stop"):
    return ChatReply(text, usage=ONE, finish_reason=finish)


@pytest.mark.parametrize(
    ("replies", "schema", "value", "usage"),
    [
        ([reply("all is well")], None, "all is well", ONE),
        ([reply('{"rate": 3}')], SCHEMA, {"rate": 3}, ONE),
        ([reply('```json\n{"rate": "3"}\n```')], SCHEMA, {"rate": 3}, ONE),
        ([reply("no idea"), reply('{"rate": 3}')], SCHEMA, {"rate": 3}, ONE + ONE),
        ([reply('{"rate": 3', "length"), reply('{"rate": 3}')], SCHEMA, {"rate": 3}, ONE + ONE),
        ([reply(" "), reply("now")], None, "now", ONE + replace(ONE, requests=0, failed_requests=1)),
        ([reply("[1, 2]")], {"type": "array"}, [1, 2], ONE),
        (
            [ModelError("busy", retryable=True, retry_after=0.0), reply("x")],
            None,
            "x",
            ONE + TokenUsage(failed_requests=1),
        ),
    ],
)
def test_asks_again_once_for_an_unusable_reply(replies, schema, value, usage):
    cycle, _ = cycle_of(SPEC, replies=replies)
    assert run(asked(cycle, "How is it?", schema)) == value
    assert cycle.usage == usage


@pytest.mark.parametrize(("schema", "before"), [(None, []), (SCHEMA, []), (SCHEMA, [reply("no idea")])])
def test_an_empty_reply_is_asked_for_as_often_as_in_a_run(schema, before, monkeypatch):
    monkeypatch.setattr("redraft.cycles.calls.MeteredModel", partial(MeteredModel, retry=Retry(first_wait=0)))
    model = ScriptedModel([*before, *[reply(" ")] * 9])
    cycle, _ = cycle_of(SPEC, replies=model)
    with pytest.raises(ModelError, match="returned an empty reply"):
        run(asked(cycle, "How is it?", schema))
    assert len(model.requests) == len(before) + Retry().attempts
    empty = replace(ONE, requests=0, failed_requests=1)
    assert cycle.usage == sum([*[ONE] * len(before), empty, empty, empty], TokenUsage())


@pytest.mark.parametrize(
    ("stage", "substage"),
    [
        ("reason", {"type": "analyze"}),
        ("reason", {"type": "plan"}),
        ("actuate", {"type": "evaluate"}),
        ("reflect", {"type": "learn"}),
    ],
)
def test_a_provider_that_never_answers_ends_its_substage_and_what_was_paid_counts(stage, substage):
    seen = []

    async def answers_once(request):
        seen.append(request)
        if len(seen) > 1:
            await asyncio.Event().wait()
        return reply("no idea")

    part = {**substage, "name": "ask", "prompt": "?", "outputSchema": SCHEMA, "timeoutMs": 50}
    spec = spec_of(**{stage: [part]})
    cycle, _ = cycle_of(spec, replies=ScriptedModel(answers_once))
    [asking] = substages(spec, stage)
    with pytest.raises(ModelError, match=r"The model did not answer within 0\.05 s"):
        run(SUBSTAGES[asking.type](asking, cycle))
    assert (len(seen), cycle.usage.total_tokens) == (2, ONE.total_tokens)


@pytest.mark.parametrize(
    ("replies", "error", "message", "usage"),
    [
        ([reply("no"), reply('{"rate": "high"}')], OutputError, "rate", ONE + ONE),
        ([ModelError("no such model")], ModelError, "no such model", TokenUsage(failed_requests=1)),
        (
            [reply("no"), ModelError("gone", usage=ONE)],
            ModelError,
            "gone",
            ONE + ONE + TokenUsage(failed_requests=1),
        ),
    ],
)
async def test_failed_calls_count_as_usage_also_in_replay(replies, error, message, usage):
    store = MemoryStore()
    for _ in range(2):
        cycle, model = cycle_of(SPEC, replies=replies, step=begun(store, "agent-7"))
        with pytest.raises(error, match=message):
            await asked(cycle, "How is it?", SCHEMA)
        assert cycle.usage == usage
    assert model.requests == []


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        ('"high"', "rate: expected a number, got \"high\". Make 'rate' a number."),
        ("9.5", "rate: expected at most 9, got 9.5. Make 'rate' at most 9."),
    ],
)
def test_the_second_prompt_says_what_was_wrong(rate, problem):
    schema = {**SCHEMA, "properties": {"rate": {"type": "number", "maximum": 9}}}
    cycle, model = cycle_of(SPEC, replies=[f'{{"rate": {rate}}}', '{"rate": 1}'])
    run(asked(cycle, "How is it?", schema))
    first, second = model.requests
    assert first.schema == schema
    assert first.messages[0].content == "How is it?"
    assert second.messages[1].content == f'{{"rate": {rate}}}'
    assert second.messages[2].content == (
        f"That reply can't be used: {problem} Reply again, in full, in the form asked for."
    )


async def test_a_resumed_cycle_does_not_repeat_a_model_call():
    class Killed(BaseException):
        pass

    store = MemoryStore()

    def dies(request):
        if len(request.messages) > 1:
            raise Killed
        return reply("no")

    cycle, _ = cycle_of(SPEC, replies=dies, step=begun(store, "agent-7"))
    with pytest.raises(Killed):
        await asked(cycle, "How is it?", SCHEMA)
    cycle, model = cycle_of(SPEC, replies=[reply('{"rate": 1}')], step=begun(store, "agent-7"))
    assert await asked(cycle, "How is it?", SCHEMA) == {"rate": 1}
    assert len(model.requests) == 1
    assert cycle.usage == ONE + ONE


def test_templates_in_data_are_not_rendered():
    hostile = {"name": "{{ memory.patterns }} {% for x in range(9) %}!{% endfor %}"}
    cycle, model = cycle_of(SPEC, replies=["fine"], payload=hostile)
    run(asked(cycle, "Data: {{ environmentalData.payload | json }}"))
    assert model.requests[0].messages[0].content == f"Data: {json.dumps(hostile)}"


def test_prompts_note_omitted_memory_and_the_cycle_notes_what_was_shown():
    patterns = [{"id": f"p{n}", "description": "word " * 400, "confidence": n / 10} for n in range(9)]
    cycle, model = cycle_of(SPEC, replies=["a", "b"], memory={"patterns": patterns})
    run(asked(cycle, "{{ memory.patterns | json }}"))
    content = model.requests[0].messages[0].content
    assert "Left out of the memory above" in content
    assert "p8" in cycle.rendered
    assert "p0" not in cycle.rendered


@pytest.mark.parametrize("prompt", ["{{ nothing.at.all }}", "{{ env.KEY }}"])
def test_an_unrenderable_prompt_costs_nothing(prompt):
    cycle, model = cycle_of(SPEC)
    with pytest.raises(ConfigError):
        run(asked(cycle, prompt))
    assert model.requests == []
    assert cycle.usage == TokenUsage()


def test_a_schema_that_is_not_an_object_is_put_into_the_prompt():
    cycle, model = cycle_of(SPEC, replies=["[1]"])
    run(asked(cycle, "Count.", {"type": "array"}))
    assert model.requests[0].schema is None
    assert '{"type": "array"}' in model.requests[0].messages[0].content


SPEC_functions = spec_of(reason=[{"type": "analyze", "name": "look", "config": {"function": "look"}}])


@dataclass
class Reading:
    rate: int


class Service:
    async def __call__(self, rate):
        return rate


async def asynchronous(rate):
    await asyncio.sleep(0)
    return rate


def cyclic(rate):
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda rate: rate, 5),
        (asynchronous, 5),
        (Service(), 5),
        (lambda **rest: rest, {"rate": 5}),
        (lambda rate, idempotency_key: [rate, idempotency_key], [5, "k"]),
        (lambda rate, state: state["environmentalData"]["payload"], {"rate": 5}),
        (Reading, {"rate": 5}),
        (lambda rate: None, None),
        (lambda rate: {1: (rate,)}, {"1": [5]}),
        (lambda rate: "{{ env.KEY }}", "{{ env.KEY }}"),
    ],
)
def test_function_arguments_and_results(function, result):
    cycle, _ = cycle_of(SPEC_functions, functions={"look": function}, payload={"rate": 5})
    with_ = {"rate": "{{ environmentalData.payload.rate }}"}
    assert run(call_function(cycle, "look", with_, None, "k")) == result


def test_a_sync_function_does_not_block_the_loop():
    cycle, _ = cycle_of(SPEC_functions, functions={"look": lambda: threading.current_thread().name})
    assert run(call_function(cycle, "look", {})) != threading.main_thread().name


def test_a_function_gets_a_copy_of_the_state():
    cycle, _ = cycle_of(
        SPEC_functions, functions={"look": lambda state: state["memory"]["p"].clear()}, memory={"p": [1]}
    )
    run(call_function(cycle, "look", {}))
    assert cycle.state.memory == {"p": [1]}


def test_explicit_arguments_are_not_overwritten():
    cycle, _ = cycle_of(SPEC_functions, functions={"look": lambda state: state})
    assert run(call_function(cycle, "look", {"state": "mine"})) == "mine"


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda rate: float("nan"),
            OutputError,
            "What the function 'look' returned is not plain JSON data: nan",
        ),
        (cyclic, OutputError, "not plain JSON data"),
        (lambda: 1, TypeError, "rate"),
        (lambda rate: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_rejects_invalid_results_of_functions(function, error, message):
    cycle, _ = cycle_of(SPEC_functions, functions={"look": function})
    with pytest.raises(error, match=message):
        run(call_function(cycle, "look", {"rate": 1}))


def test_a_missing_function_is_named():
    cycle, _ = cycle_of(SPEC_functions, functions={"look": print})
    with pytest.raises(ConfigError, match=r"'lock'.*'look'"):
        run(call_function(cycle, "lock", {}))


async def slow():
    await asyncio.sleep(30)


async def gives_up():
    raise TimeoutError("the line is busy")


async def waits_for_what_is_cancelled():
    task = asyncio.ensure_future(asyncio.sleep(30))
    task.cancel()
    await task


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (waits_for_what_is_cancelled, "the function 'look' was cancelled, and the cycle was not"),
        (slow, r"the function 'look' did not answer within 0.02 s"),
        (lambda: threading.Event().wait(5), r"the function 'look' did not answer within 0.02 s"),
        (gives_up, "^the line is busy$"),
    ],
)
def test_function_timeout(function, message):
    cycle, _ = cycle_of(SPEC_functions, functions={"look": function})
    with pytest.raises((TimeoutError, RuntimeError), match=message):
        run(call_function(cycle, "look", {}, timeout_ms=20))


def test_cancelling_a_cycle_cancels_its_function():
    cycle, _ = cycle_of(SPEC_functions, functions={"look": slow})
    with pytest.raises(TimeoutError, match=r"^$"):
        asyncio.run(asyncio.wait_for(call_function(cycle, "look", {}), 0.02))


def raises_stop():
    raise StopIteration


def ends():
    raise SystemExit(3)


def closes():
    raise GeneratorExit


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (raises_stop, "RuntimeError: .*raises_stop .* raised StopIteration"),
        (ends, "RuntimeError: .*ends .* raised SystemExit: 3"),  # as argparse does
        (closes, "RuntimeError: .*closes .* raised GeneratorExit"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
)
async def test_errors_in_a_thread_are_raised_but_end_no_other_task(function, error):
    call = asyncio.ensure_future(in_daemon_thread(function))  # SystemExit in a task ends its loop
    await asyncio.wait([call])
    assert re.match(error, named_error(call.exception()))


def test_nothing_waits_for_a_function_that_hangs():
    program = """
import asyncio, time
from redraft._calls import in_daemon_thread

async def main():
    try:
        await asyncio.wait_for(in_daemon_thread(time.sleep, 600), 0.05)
    except TimeoutError:
        print("over")

asyncio.run(main())
"""
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert (process.stdout, process.stderr) == ("over\n", "")


def cycle_with(memory, prompt_tokens):
    spec = AgentSpec.model_validate(
        {
            "name": "watcher",
            "description": "Watches",
            "memory": {"promptTokens": prompt_tokens},
            "stages": {},
        }
    )
    runtime = Runtime(
        {}, lambda name: None, None, None, None, Path(), lambda: datetime.now(UTC), lambda value: value
    )
    state = CycleState(memory=memory)
    return Cycle(spec, "7", 7, datetime.now(UTC), state, runtime, direct)


def item(number, confidence=None, text="x"):
    stamp = f"2026-11-22T10:00:{number:02d}.000Z"
    sure = {} if confidence is None else {"confidence": confidence}
    return {"id": f"i{number}", "timestamp": stamp, "description": text, **sure}


ONE_prompt_memory = estimate_tokens(json.dumps(item(1, 0.5)))
MEMORY = {
    "patterns": [item(1, 0.9), item(2, 0.1), item(3, 0.5), item(4, 0.5)],
    "recentActions": [item(5), item(6), item(7)],
    "feedbackHistory": [item(8)],
}
PATTERNS, ALL = "{{ memory.patterns | json }}", "{{ memory | json }}"
ACTIONS = "{{ memory.recentActions | json }}"


@pytest.mark.parametrize(
    ("prompt", "tokens", "shown", "left_out"),
    [
        pytest.param(PATTERNS, 4 * ONE_prompt_memory + 10, {"patterns": [1, 2, 3, 4]}, "", id="all of it"),
        pytest.param(
            PATTERNS,
            2 * ONE_prompt_memory,
            {"patterns": [1, 4]},
            "2 of 4 of memory.patterns",
            id="sure, then recent",
        ),
        pytest.param(PATTERNS, 0, {"patterns": []}, "4 of 4 of memory.patterns", id="none"),
        pytest.param(
            ACTIONS, ONE_prompt_memory, {"recentActions": [7]}, "2 of 3 of memory.recentActions", id="recent"
        ),
        pytest.param(
            PATTERNS + ACTIONS,
            3 * ONE_prompt_memory,
            {"patterns": [1], "recentActions": [6, 7]},
            "3 of 4 of memory.patterns, 1 of 3 of memory.recentActions",
            id="keys in turn",
        ),
        pytest.param(
            ALL,
            3 * ONE_prompt_memory,
            {"patterns": [1], "recentActions": [7], "feedbackHistory": [8]},
            "3 of 4 of memory.patterns, 2 of 3 of memory.recentActions",
            id="the memory as a whole",
        ),
        pytest.param("{{ memory.own | json }}", 0, {"own": []}, "", id="never written"),
    ],
)
def test_a_prompt_shows_the_best_memory_items_that_fit(prompt, tokens, shown, left_out):
    scopes, note = prompt_scopes(cycle_with(MEMORY, tokens), Template(prompt))
    seen = {key: [one["id"] for one in scopes["memory"][key]] for key in shown}
    assert seen == {key: [f"i{number}" for number in numbers] for key, numbers in shown.items()}
    assert left_out in note
    assert bool(note) == bool(left_out)
    assert scopes["agent"] == {"name": "watcher", "description": "Watches"}
    assert scopes["cycle"] == 7


def test_a_long_item_does_not_exclude_others():
    memory = {"patterns": [item(1, 0.2), item(2, 1.0, "long " * 1_000)]}
    scopes, note = prompt_scopes(cycle_with(memory, 100), Template(PATTERNS))
    assert [pattern["id"] for pattern in scopes["memory"]["patterns"]] == ["i1"]
    assert "1 of 2" in note


def test_only_prompts_of_reason_record_what_they_showed():
    cycle = cycle_with(MEMORY, 2 * ONE_prompt_memory)
    prompt_scopes(cycle, Template(PATTERNS))
    assert cycle.rendered == set()
    prompt_scopes(cycle, Template(PATTERNS), reasoning=True)
    assert cycle.rendered == {"i1", "i4"}
