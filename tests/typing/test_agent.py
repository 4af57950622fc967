"""Agents with an output type, as a type checker sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel
from typing_extensions import TypedDict

from redraft import Agent, QualityCriterion, ReflectionPattern, ReflectionResult, ScriptedModel
from redraft.loop import RunStream


class Order(BaseModel):
    quantity: int


@dataclass
class Parcel:
    quantity: int


class Basket(TypedDict):
    quantity: int


REPLY = {"quantity": 2}
CHECK = QualityCriterion("json", evaluator="schema", evaluator_config={"schema": True})
JSON = ReflectionPattern(quality_criteria=[CHECK])

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


def test_a_wrapped_agent_keeps_its_type():
    inner = PydanticAgent(TestModel(), output_type=Order)
    result = Agent.from_pydantic_ai(inner, pattern=JSON, keep=False).run_sync("Order.")
    assert assert_type(result.best_output, Order).quantity == 0
