from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from redraft import (
    Agent,
    ConfigError,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    Runs,
    ScriptedModel,
)
from redraft.errors import ChangedRunError
from redraft.loop.output_type import output_type_of
from support.commands import redraft, script
from support.tool_agents import Actor, call


class Order(BaseModel):
    item: str
    quantity: int


class Colour(Enum):
    RED = "red"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    on: date
    colour: Colour
    net: Decimal = Field(alias="netPrice")


@dataclass
class Parcel:
    orders: list[Order]
    weight: float = 1.0


class Trip(TypedDict):
    to: str
    on: date


class Node(BaseModel):
    name: str
    children: list[Node] = []


SCHEMA = {
    "title": "order",
    "type": "object",
    "required": ["item"],
    "properties": {"quantity": {"type": "integer"}},
}
GOOD = {"item": "tea", "quantity": 2}
BAD = {"item": "tea", "quantity": "two"}

ENOUGH = QualityCriterion(
    "enough", evaluator="function", evaluator_config={"function": lambda order: order.quantity > 1}
)


def pattern_of(*criteria, **options):
    return ReflectionPattern(quality_criteria=list(criteria) or [ENOUGH], **options)


def agent_of(replies, *criteria, output_type=Order, keep=False, **options):
    model = ScriptedModel(replies)
    agent = Agent(model, output_type=output_type, pattern=pattern_of(*criteria, **options), keep=keep)
    return agent, model


def praise(name):
    """The reply of a judge that finds a criterion met."""
    return {"criteria": {name: {"reason": "", "score": 1.0}}, "issues": [], "confidence": 1}


ANY = QualityCriterion("any", evaluator="function", evaluator_config={"function": lambda output: True})


@pytest.mark.parametrize(
    ("kind", "reply", "value"),
    [
        (Order, GOOD, Order(item="tea", quantity=2)),
        (Order, '```json\n{"item": "tea", "quantity": "2"}\n```', Order(item="tea", quantity=2)),
        (Parcel, {"orders": [GOOD]}, Parcel([Order(item="tea", quantity=2)])),
        (Trip, {"to": "Rome", "on": "2026-05-01"}, {"to": "Rome", "on": date(2026, 5, 1)}),
        (list[Order], {"items": [GOOD]}, [Order(item="tea", quantity=2)]),
        (list[Order], [GOOD], [Order(item="tea", quantity=2)]),
        (list[Parcel], [], []),
        (dict[str, int], {"items": 3}, {"items": 3}),
        (
            Strict,
            {"on": "2026-05-01", "colour": "red", "netPrice": "1.10"},
            Strict(on=date(2026, 5, 1), colour=Colour.RED, netPrice=Decimal("1.10")),
        ),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node(name="a", children=[Node(name="b")])),
        (SCHEMA, GOOD, GOOD),
        ({"type": "array", "items": SCHEMA}, {"items": [GOOD]}, [GOOD]),
    ],
)
def test_an_output_has_the_type(kind, reply, value):
    agent, model = agent_of([reply], ANY, output_type=kind)
    result = agent.run_sync("Take the order.")
    assert result.success
    assert result.best_output == value
    assert type(result.best_output) is type(value)
    schema = model.requests[0].schema
    assert schema["type"] == "object"
    assert json.dumps(schema) in model.requests[0].messages[0].content


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Order | Trip, "a choice between types"),
        (Order | None, "a choice between types"),
        (int, "int is neither an object nor a list"),
        (Literal["a", "b"], "neither an object nor a list"),
        (Any, "Any is neither an object nor a list"),
        (object, "object is neither"),
        (Agent, "Agent can't be read from JSON"),
        (list[Agent], "list[Agent] can't be read from JSON"),
        ("Order", "got 'Order'"),
        (Order(item="tea", quantity=1), "got Order("),
        (None, "got None"),
        (type(None), "NoneType is neither"),
        ({"type": "objekt"}, "the schema is not valid"),
    ],
)
def test_a_type_that_cannot_work_is_refused_at_once(kind, words):
    with pytest.raises(ConfigError, match="output_type") as caught:
        Agent(ScriptedModel([]), output_type=kind, keep=False)
    assert words in str(caught.value)


def test_a_draft_that_is_not_of_the_type_is_a_version_with_an_issue_for_each_place():
    agent, model = agent_of([BAD, GOOD])
    result = agent.run_sync("Take the order.")
    first, second = result.history.versions
    assert json.loads(first.output) == BAD
    assert [(issue.criterion, issue.path) for issue in first.evaluation.issues] == [
        ("output_type", "/quantity")
    ]
    assert "got 'two'" in first.evaluation.issues[0]
    assert first.evaluation.criteria_scores == {"output_type": 0.0, "enough": None}
    assert second.output == result.best_output == Order(item="tea", quantity=2)
    assert "Version 1: The reply is not a valid Order" in result.diagnostics["draft_notes"]
    shown, asked = (message.content for message in model.requests[1].messages[-2:])
    assert json.loads(shown) == BAD
    assert "at /quantity" in asked
    assert model.requests[1].schema == model.requests[0].schema


def test_a_model_that_ignores_the_type_loses_nothing():
    agent, _ = agent_of(lambda request: "I would rather talk about the sea.", max_iterations=1)
    result = agent.run_sync("Take the order.")
    assert not result.success
    assert result.best_output == "I would rather talk about the sea."
    assert len(result.history.versions) == 2
    assert result.history.best_version.evaluation.unjudged == ("enough",)
    assert result.token_usage.requests == 3, "a draft, and a revision that was asked for once more"
    note = result.diagnostics["draft_notes"]
    assert note.startswith(
        "Versions 1 and 2: The reply is not a valid Order: The reply holds no JSON: 'I would rather"
    )
    assert note.count("is not a valid Order") == 1, "the same mistake is named once"


def test_a_judge_is_asked_only_about_outputs_of_the_type_and_sees_their_json():
    agent, model = agent_of(["no JSON", GOOD, praise("polite")], QualityCriterion("polite", "Is polite."))
    result = agent.run_sync("Take the order.")
    assert [request.role for request in model.requests] == ["generation", "revision", "evaluation"]
    assert json.dumps(GOOD, indent=2) in model.requests[2].messages[-1].content
    assert result.success


def test_a_revision_shows_json_and_keeps_the_type():
    agent, model = agent_of([{"item": "tea", "quantity": 1}, GOOD], revision_strategy="full_rewrite")
    result = agent.run_sync("Take the order.")
    assert result.best_output == Order(item="tea", quantity=2)
    assert json.loads(model.requests[1].messages[-2].content) == {"item": "tea", "quantity": 1}


EDIT = '<<<<<<< SEARCH\n  "quantity": 1\n=======\n  "quantity": {}\n>>>>>>> REPLACE'


def test_edits_apply_to_the_json():
    agent, model = agent_of(
        [{"item": "tea", "quantity": 1}, EDIT.format('"some"'), EDIT.format(2)],
        revision_strategy="targeted_edit",
    )
    result = agent.run_sync("Take the order.")
    assert result.best_output == Order(item="tea", quantity=2)
    assert model.requests[1].schema is None, "a reply that holds edits is no Order"
    assert "/quantity" in model.requests[2].messages[-1].content
    assert result.history.versions[1].strategy == "targeted_edit"


def test_a_draft_to_start_from_is_read_into_the_type():
    for draft in (Order(item="tea", quantity=2), GOOD, json.dumps(GOOD)):
        agent, _ = agent_of([])
        assert agent.run_sync("Take the order.", draft=draft).best_output == Order(item="tea", quantity=2)
    agent, _ = agent_of([GOOD])
    result = agent.run_sync("Take the order.", draft=BAD)
    assert json.loads(result.history.versions[0].output) == BAD
    assert result.best_output == Order(item="tea", quantity=2)


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (Order, {"item": "tea", "quantity": 1}, GOOD),
        (Trip, {"to": "Rome", "on": "2026-05-01"}, {"to": "Rome", "on": "2026-05-02"}),
        (list[Order], [GOOD], [GOOD, GOOD]),
    ],
)
def test_a_run_is_stored_as_json_and_resumed_into_the_type(kind, first, second):
    """A run that failed at its second version goes on from the first, which is validated anew."""
    store, seen = MemoryStore(), []

    def judged(output):
        seen.append(output)
        return len(seen) > 2, "not yet"

    criterion = QualityCriterion("c", evaluator="function", evaluator_config={"function": judged})
    agent, _ = agent_of([first, ModelError("down")], criterion, output_type=kind, keep=store)
    failed = agent.run_sync("Go.", run_id="r")
    assert failed.error is not None
    agent, model = agent_of([second], criterion, output_type=kind, keep=store)
    seen.append(None)
    result = agent.run_sync("Go.", run_id="r")
    expected = output_type_of(kind)
    assert result.best_output == expected.take(second)
    assert result.history.versions[0].output == failed.best_output == expected.take(first)
    assert len(model.requests) == 1
    agent, model = agent_of([], criterion, output_type=kind, keep=store)
    again = agent.run_sync("Go.", run_id="r")
    assert again.best_output == result.best_output
    assert not model.requests
    stored = asyncio.run(Runs(store).get("r"))
    assert [version.output for version in stored.versions] == [first, second]


def test_the_type_is_part_of_a_runs_identity():
    store = MemoryStore()
    agent, _ = agent_of([GOOD], keep=store)
    agent.run_sync("Take the order.", run_id="r")
    for other in (SCHEMA, str):
        agent, _ = agent_of([], ANY, output_type=other, keep=store)
        with pytest.raises(ChangedRunError, match="output_type"):
            agent.run_sync("Take the order.", run_id="r")


def test_aliases_are_shown_as_the_model_writes_them():
    reply = {"on": "2026-05-01", "colour": "red", "netPrice": "1.10"}
    store, cheap = MemoryStore(), QualityCriterion("cheap", "Is cheap.")
    agent, model = agent_of([reply, praise("cheap")], cheap, output_type=Strict, keep=store)
    result = agent.run_sync("Price it.", run_id="r")
    assert json.dumps(reply, indent=2) in model.requests[1].messages[-1].content
    assert agent.run_sync("Price it.", run_id="r").best_output == result.best_output


def test_the_judge_sees_canonical_json_of_a_data_class_in_a_list():
    reply = {"items": [{"orders": [GOOD], "weight": 2.0}]}
    light = QualityCriterion("light", "Is light.")
    agent, model = agent_of([reply, praise("light")], light, output_type=list[Parcel])
    agent.run_sync("Pack.")
    assert json.dumps(reply["items"], indent=2) in model.requests[1].messages[-1].content


def test_a_schema_criterion_checks_an_output_of_any_type():
    heavy = {"type": "object", "properties": {"weight": {"minimum": 1.5}}}
    criterion = QualityCriterion("heavy", evaluator="schema", evaluator_config={"schema": heavy})
    light = {"orders": [], "weight": 1.0}
    agent, _ = agent_of([light, {**light, "weight": 2.0}], criterion, output_type=Parcel)
    result = agent.run_sync("Pack.")
    assert result.history.versions[0].evaluation.issues[0].path == "/weight"
    assert result.best_output == Parcel([], 2.0)


def final(**answer):
    """The call with which Pydantic AI has a model answer in a type."""
    return call("final_result", **answer)


@pytest.mark.parametrize(("kind", "value"), [(Order, Order(item="tea", quantity=2)), (SCHEMA, GOOD)])
def test_an_agent_with_tools_answers_in_the_type(kind, value):
    actor = Actor([call("stock", item="tea"), final(item="tea", quantity=1), final(**GOOD)])
    enough = QualityCriterion(
        "enough",
        evaluator="schema",
        evaluator_config={"schema": {"properties": {"quantity": {"minimum": 2}}}},
    )

    def stock(item: str) -> int:
        return 7

    agent = Agent(
        actor.provider, output_type=kind, tools=[stock], pattern=pattern_of(enough), keep=MemoryStore()
    )
    result = agent.run_sync("Order tea.", run_id="r")
    assert result.best_output == value
    assert len(result.history.versions) == 2
    assert agent.run_sync("Order tea.", run_id="r").best_output == value


@pytest.mark.parametrize(
    ("refused", "answer", "path"),
    [
        (["No.", "I would rather talk about the sea."], "I would rather talk about the sea.", None),
        ([final(**BAD), final(**BAD)], json.dumps(BAD), "/quantity"),
    ],
)
def test_an_agent_with_tools_that_ignores_the_type_loses_nothing(refused, answer, path):
    actor = Actor([*refused, final(**GOOD)])
    agent = Agent(actor.provider, output_type=Order, tools=[len], pattern=pattern_of(), keep=False)
    result = agent.run_sync("Order tea.")
    first = result.history.versions[0]
    assert json.dumps(json.loads(first.output)) == answer if path else first.output == answer
    assert first.evaluation.issues[0].path == path
    assert "The reply is not a valid Order" in result.diagnostics["draft_notes"]
    assert first.token_usage.requests == 2
    assert result.best_output == Order(item="tea", quantity=2)


@pytest.mark.parametrize("refused", ["I would rather talk about the sea.", final(**BAD)])
def test_a_refused_answer_is_revised_in_its_conversation(refused):
    stored = MemoryStore()

    def stock(item: str) -> int:
        return 4711

    def run(script):
        actor = Actor(script)
        agent = Agent(actor.provider, output_type=Order, tools=[stock], pattern=pattern_of(), keep=stored)
        return agent.run_sync("Order tea.", run_id="r"), actor

    failed, first = run([call("stock", item="tea"), refused, refused, RuntimeError("the power is off")])
    assert failed.error is not None
    result, resumed = run([final(**GOOD)])
    assert result.best_output == Order(item="tea", quantity=2)
    for request in (first.requests[-1], resumed.requests[0]):
        assert "4711" in str(request), "what the agent had found out is lost"
        assert "What is wrong:" in str(request[-1])


def test_outputs_that_are_not_of_the_type_are_not_compared():
    agent, model = agent_of(
        ["no JSON", "none again", "not this time", GOOD],
        QualityCriterion("polite", "Is polite."),
        accept="pairwise",
    )
    agent.run_sync("Take the order.")
    assert [request.role for request in model.requests[:4]] == ["generation", *["revision"] * 3]


def test_candidates_are_of_the_type_also_when_they_come_from_a_record():
    class Local(BaseModel):  # a record can't find a class of a function by its name
        item: str
        quantity: int

    def agent(replies):
        pattern = pattern_of(ENOUGH, candidates=2, max_iterations=0)
        return Agent(ScriptedModel(replies), output_type=Local, pattern=pattern, keep=store)

    async def interrupted():
        asked = []

        async def answer(request):
            asked.append(request)
            if len(asked) == 2:
                await asyncio.sleep(60)
            return {"item": "tea", "quantity": 1}

        run = asyncio.ensure_future(agent(answer).run("Order tea.", run_id="one"))
        while not await store.find("step", prefix="one/00001/check 1"):  # noqa: ASYNC110 (a store has no event)
            await asyncio.sleep(0.001)
        run.cancel()
        await run

    store = MemoryStore()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    for replies in ([{"item": "tea", "quantity": 0}], []):
        version = asyncio.run(agent(replies).run("Order tea.", run_id="one")).history.versions[0]
        assert version.output == Local(item="tea", quantity=1)
        assert [candidate.output for candidate in version.rejected] == [Local(item="tea", quantity=0)]


@pytest.fixture
def order_files(project):
    (project / "order.schema.json").write_text(json.dumps(SCHEMA))
    (project / "c.yaml").write_text(
        "task: Take the order.\n"
        "output_type: order.schema.json\n"
        "criteria: [{name: two, evaluator: regex, config: {path: /quantity, pattern: '^2$'}}]\n"
    )


@pytest.mark.usefixtures("order_files")
def test_a_criteria_file_names_a_json_schema(monkeypatch):
    assert redraft("check", "-", "-c", "c.yaml", stdin=json.dumps(GOOD)).exit_code == 0
    result = redraft("check", "-", "-c", "c.yaml", stdin=json.dumps(BAD))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[2:] == [
        "  /   two          not asked: gate output_type not met",
        '0.00  output_type  /quantity: expected an integer, got "two"',
    ]
    model = script(monkeypatch, {"item": "tea", "quantity": 1}, ModelError("down"))
    failed = redraft("revise", "-", "-c", "c.yaml", "-m", "any:model", stdin="two teas")
    assert failed.exit_code != 0
    assert model.requests[0].schema == {**SCHEMA}
    script(monkeypatch, GOOD)
    resumed = redraft("resume", "last")
    assert json.loads(resumed.stdout) == GOOD


@pytest.mark.usefixtures("order_files")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "'order.schema.json' cannot be read: No such file"),
        ("[1]", "must hold a JSON Schema, an object"),
        ('{"type": "string"}', "is neither an object nor a list"),
        ('{"type": "objekt"}', "the schema is not valid"),
    ],
)
def test_a_bad_schema_file_is_named_with_the_line_of_its_key(text, words):
    path = Path("order.schema.json")
    path.unlink()
    if text is not None:
        path.write_text(text)
    result = redraft("check", "-", "-c", "c.yaml", stdin="x")
    assert result.exit_code == 2
    assert "c.yaml, line 2: " in result.stderr
    assert words in result.stderr


def test_a_revision_that_is_not_of_the_type_is_asked_for_again_and_noted():
    replies = [{"quantity": "a dozen"}, {"item": 3, "quantity": 7}, {"item": "tea", "quantity": 7}]
    model = ScriptedModel(replies)
    few = QualityCriterion("few", evaluator="words", evaluator_config={"at_most": 9})
    pattern = ReflectionPattern(quality_criteria=[few])
    result = Agent(model, output_type=Order, pattern=pattern, keep=False).run_sync("Order tea.")
    assert (len(model.requests), len(result.history.versions)) == (3, 2)
    notes = result.diagnostics["draft_notes"].split(" Version 2: ")
    assert notes[0].startswith("Version 1: The reply is not a valid Order: ")
    assert all(place in notes[0] for place in ("/item", "/quantity"))  # both are named
    assert notes[1].startswith("A reply could not be used, and the model was asked again: ")
    assert "/item" in notes[1]


@pytest.mark.parametrize(
    "schema", [{"type": "nul"}, {"type": "object", "properties": {"a": {"type": "nul"}}}]
)
def test_the_error_of_a_schema_ends_in_one_full_stop(schema):
    with pytest.raises(ConfigError, match=r"'null'\.$"):
        output_type_of(schema)
