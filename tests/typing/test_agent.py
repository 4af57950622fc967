"""Agents with an output type, as a type checker sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_type

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings
from typing_extensions import TypedDict

from redraft import (
    Agent,
    QualityCriterion,
    ReflectionPattern,
    ReflectionResult,
    ScriptedModel,
    Task,
    reflect_sync,
)
from redraft.loop import RunStream

if TYPE_CHECKING:
    from redraft.types import Criterion


class Order(BaseModel):
    quantity: int


@dataclass
class Parcel:
    quantity: int


class Basket(TypedDict):
    quantity: int


TEXT = {"type": "string", "title": "text"}
REPLY = {"quantity": 2}
JSON_CHECK = QualityCriterion("json", evaluator="schema", evaluator_config={"schema": True})
JSON = ReflectionPattern(quality_criteria=[JSON_CHECK])

MODEL = ScriptedModel(lambda _request: REPLY)
LISTS = ScriptedModel(lambda _request: [REPLY])


def test_the_result_has_the_type_of_the_agent():
    agent = assert_type(Agent(MODEL, output_type=Order, pattern=JSON, keep=False), Agent[Order])
    assert assert_type(agent.run_sync("Order."), ReflectionResult[Order]).best_output.quantity == 2
    parcel = Agent(MODEL, output_type=Parcel, pattern=JSON, keep=False).run_sync("Pack.")
    assert assert_type(parcel.history.best_version.output, Parcel).quantity == 2
    basket = Agent(MODEL, output_type=Basket, pattern=JSON, keep=False).run_sync("Fill.")
    assert assert_type(basket.final_output, Basket)["quantity"] == 2


def test_a_list_and_a_json_schema_have_theirs():
    orders = Agent(LISTS, output_type=list[Order], pattern=JSON, keep=False).run_sync("Go.")
    assert assert_type(orders.best_output, list[Order]) == [Order(quantity=2)]
    data = Agent(MODEL, output_type={"type": "object"}, pattern=JSON, keep=False).run_sync("Go.")
    assert assert_type(data.best_output, Any) == REPLY


def test_without_a_type_an_agent_answers_in_text():
    agent = Agent(ScriptedModel(["tea"]), pattern=JSON, keep=False)
    assert_type(agent.stream("Order."), RunStream[str])
    assert assert_type(agent.run_sync("Order.", draft='"tea"').best_output, str) == '"tea"'


def is_dear(order: str) -> tuple[bool, str]:
    return "100" in order, "Order more."


def order(_prompt: str) -> str:
    return "tea: 100"


CRITERIA: list[Criterion] = [
    *("It is polite.", JSON_CHECK, is_dear, re.compile("tea"), Order, Parcel, Basket),
    *(list[Order], {"type": "object"}, TEXT),
]


def test_criteria_and_options_are_given_directly():
    agent = Agent(
        MODEL,
        output_type=Order,
        criteria=[JSON_CHECK, Order, re.compile("quantity"), {"type": "object"}],
        max_iterations=1,
        quality_threshold=0.9,
        budget_usd=0.5,
        budget_tokens=10_000,
        budget_seconds=60,
        judge=MODEL,
        model_settings=ModelSettings(temperature=0.2, max_tokens=800),
        keep=False,
    )
    assert assert_type(agent, Agent[Order]).pattern.max_iterations == 1
    result = reflect_sync("Order.", generate=order, criteria=[is_dear, re.compile("tea")])
    assert assert_type(result, ReflectionResult).success
    assert Task("Order.", criteria=CRITERIA[1:3], max_iterations=2, judge="local:judge").is_judged


def test_a_wrapped_agent_keeps_its_type():
    inner = PydanticAgent(TestModel(), output_type=Order)
    result = Agent.from_pydantic_ai(inner, pattern=JSON, keep=False).run_sync("Order.")
    assert assert_type(result.best_output, Order).quantity == 0
