"""Typed answers of many kinds of classes, stored and not, fresh, killed and asked for again."""

import asyncio
import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID, uuid4

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_ai import Agent as PydanticAgent
from typing_extensions import TypedDict

from redraft import (
    Agent,
    ConfigError,
    MemoryStore,
    QualityCriterion,
    ReflectionPattern,
    Runs,
    ScriptedModel,
    reflected,
)
from redraft.errors import StoreError
from redraft.loop.output_type import output_type_of
from support.tool_agents import Actor, call


class Choices(BaseModel):
    name: str = Field(validation_alias=AliasChoices("full_name", "userName"))


class Numbered(BaseModel):
    name: str
    id: UUID = Field(default_factory=uuid4)


class AtPath(BaseModel):
    city: str = Field(validation_alias=AliasPath("address", "city"))


class Excluded(BaseModel):
    name: str
    token: str = Field(exclude=True)


class Serialised(BaseModel):
    price: Decimal

    @field_serializer("price")
    def as_text(self, price: Decimal) -> str:
        return f"{price} EUR"


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int

    @computed_field
    @property
    def area(self) -> int:
        return self.width**2


class InJson(BaseModel):
    data: Json[dict[str, int]]


class Shade(Enum):
    DARK = "dark"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    on: date
    shade: Shade


class Secret(BaseModel):
    password: SecretStr


class Vat(BaseModel):
    price: float

    @field_validator("price")
    @classmethod
    def add_vat(cls, price: float) -> float:
        return round(price * 1.2, 2)


class TwoAliases(BaseModel):
    net: Decimal = Field(validation_alias="netIn", serialization_alias="netOut")


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Private(BaseModel):
    name: str
    _upper: str = PrivateAttr("")

    def model_post_init(self, _context: Any) -> None:
        self._upper = self.name.upper()


class Whole(BaseModel):
    name: str

    @model_serializer
    def as_list(self) -> list[str]:
        return [self.name]


class Unwrapped(BaseModel):
    name: str

    @model_validator(mode="before")
    @classmethod
    def unwrap(cls, data: Any) -> Any:
        return data["user"]


class Names(RootModel[list[str]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: set[str]


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Node(BaseModel):
    name: str
    children: list["Node"] = []


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


@dataclass
class Point:
    x: Decimal
    on: date


class Trip(TypedDict):
    to: str
    price: Annotated[float, AfterValidator(lambda price: price + 1)]


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name.upper(), frozen=True)
    first: tuple[int, ...]


KINDS = [
    (Choices, {"userName": "Ann"}),
    (AtPath, {"address": {"city": "Bern", "zip": 3000}}),
    (Excluded, {"name": "Ann", "token": "t"}),
    (Serialised, {"price": "12.10"}),
    (Computed, {"width": 3}),
    (InJson, {"data": '{"a": 1}'}),
    (Strict, {"on": "2026-01-02", "shade": "dark"}),
    (Secret, {"password": "open"}),
    (Vat, {"price": 10.0}),
    (TwoAliases, {"netIn": "1.50"}),
    (Extra, {"name": "Ann", "age": 7}),
    (Private, {"name": "Ann"}),
    (Whole, {"name": "Ann"}),
    (Unwrapped, {"user": {"name": "Ann"}}),
    (Names, ["a", "b"]),
    (Owner, {"pet": {"kind": "dog", "tricks": ["sit"]}}),
    (Node, {"name": "a", "children": [{"name": "b"}]}),
    (Box[date], {"content": "2026-01-02"}),
    (Point, {"x": "1.0", "on": "2026-01-02"}),
    (Trip, {"to": "Bern", "price": 1.0}),
    (list[Vat], [{"price": 10.0}, {"price": 20.0}]),
    (dict[str, Vat], {"a": {"price": 10.0}}),
    (Camel, {"FIRST": [1, 2]}),
]
ids = [str(getattr(kind, "__name__", kind)) for kind, _ in KINDS]


def expected(kind, data):
    value, issues = output_type_of(kind).read(reply_of(data))
    assert not issues
    return value


def reply_of(data):
    return json.dumps({"items": data} if isinstance(data, list) else data)


def agent_for(kind, data, store, **options):
    model = ScriptedModel([reply_of(data)])
    pattern = ReflectionPattern(
        max_iterations=2,
        quality_criteria=[
            QualityCriterion("valid", evaluator="schema", evaluator_config={"schema": kind}),
            QualityCriterion(
                "typed",
                evaluator="function",
                evaluator_config={"function": lambda output: output == expected(kind, data)},
            ),
        ],
        **options,
    )
    return model, Agent(model, output_type=kind, pattern=pattern, keep=store)


@pytest.mark.parametrize(("kind", "data"), KINDS, ids=ids)
def test_valid_reply_succeeds_at_once_stored_or_not_and_comes_back_equal(kind, data):
    right = expected(kind, data)
    for store in (False, MemoryStore()):
        model, agent = agent_for(kind, data, store)
        run_id = {} if store is False else {"run_id": "r"}
        result = agent.run_sync("Answer.", **run_id)
        assert (result.success, len(model.requests)) == (True, 1), result.summary()
        assert result.best_output == right
        if store is not False:
            again = agent.run_sync("Answer.", run_id="r")
            assert again.best_output == right
            assert type(again.best_output) is type(right)
            assert again.history == result.history
            assert len(model.requests) == 1


def test_a_value_that_the_class_makes_up_comes_back_equal():
    store = MemoryStore()
    results = [
        Agent(ScriptedModel(replies), output_type=Numbered, criteria=[Numbered], keep=store).run_sync(
            "Answer.", run_id="r"
        )
        for replies in (['{"name": "Ann"}'], [])
    ]
    assert results[0].best_output == results[1].best_output


@pytest.mark.parametrize(("kind", "data"), KINDS, ids=ids)
def test_killed_run_goes_on_with_an_equal_output(kind, data):
    class Killed(BaseException):
        pass

    deaths = iter([Killed()])

    async def evaluate(output, run):
        for death in deaths:
            raise death
        return 1.0 if output == right else 0.0

    right, store = expected(kind, data), MemoryStore()
    model = ScriptedModel([reply_of(data)])
    criterion = QualityCriterion("own", evaluator="function", evaluator_config={"function": evaluate})
    agent = Agent(
        model, output_type=kind, pattern=ReflectionPattern(quality_criteria=[criterion]), keep=store
    )
    with pytest.raises(Killed):
        asyncio.run(agent.run("Answer.", run_id="r"))
    result = agent.run_sync("Answer.", run_id="r")
    assert (result.success, len(model.requests)) == (True, 1), result.summary()
    assert result.best_output == right
    assert agent.run_sync("Answer.", run_id="r").best_output == right


ANY = QualityCriterion("any", evaluator="words", evaluator_config={"at_least": 1})
REFLECTED = [(kind, data) for kind, data in KINDS if kind is not Secret]


@pytest.mark.parametrize(("kind", "data"), REFLECTED, ids=[one for one in ids if one != "Secret"])
def test_value_of_a_function_comes_back_equal(kind, data):
    made = expected(kind, data)
    calls = []
    checks = [QualityCriterion("valid", evaluator="schema", evaluator_config={"schema": kind})]

    @reflected(checks, max_iterations=1, keep=MemoryStore())
    def write(feedback: str = ""):
        calls.append(feedback)
        return made

    result = write.run_as_sync("r")
    again = write.run_as_sync("r")
    assert (result.success, len(calls)) == (True, 1), result.summary()
    assert again.best_output == result.best_output == made
    assert type(again.best_output) is type(made)


def test_secret_of_a_function_is_not_stored_and_named():
    @reflected(evaluate=lambda _: 1.0, max_iterations=0, keep=(store := MemoryStore()))
    def write(feedback: str = ""):
        return Secret(password=SecretStr("open sesame"))

    result = write.run_as_sync("r")
    assert result.best_output.password.get_secret_value() == "open sesame"
    assert "/output/password: " in result.diagnostics["not_restorable"]
    with pytest.raises(StoreError, match="SecretStr"):
        write.run_as_sync("r")
    records = asyncio.run(store.find("run"))
    assert "open sesame" not in str(records)


def test_targeted_edit_changes_the_json_that_the_model_wrote():
    class Named(BaseModel):
        name: str = Field(validation_alias=AliasChoices("full_name", "userName"), min_length=3)
        city: str

    edit = '<<<<<<< SEARCH\n  "city": "Bonn"\n=======\n  "city": "Bern"\n>>>>>>> REPLACE'
    model = ScriptedModel(['{"userName": "Anna", "city": "Bonn"}', edit])
    city = QualityCriterion(
        "city", evaluator="regex", evaluator_config={"pattern": '"userName": "Anna"(.|\n)*Bern'}
    )
    pattern = ReflectionPattern(quality_criteria=[city], revision_strategy="targeted_edit")
    for store in (False, MemoryStore()):
        model = ScriptedModel(['{"userName": "Anna", "city": "Bonn"}', edit])
        result = Agent(model, output_type=Named, pattern=pattern, keep=store).run_sync("Answer.")
        assert (result.success, len(model.requests)) == (True, 2), result.summary()
        assert result.best_output == Named(userName="Anna", city="Bern")


@pytest.mark.parametrize("error", [KeyError("name"), TypeError("x"), ZeroDivisionError(), RuntimeError("y")])
def test_validator_that_raises_is_an_issue_of_the_draft(error):
    class Picky(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def check(cls, name: str) -> str:
            if name == "bad":
                raise error
            return name

    model = ScriptedModel(['{"name": "bad"}', '{"name": "good"}'])
    pattern = ReflectionPattern(
        quality_criteria=[QualityCriterion("any", evaluator="words", evaluator_config={"at_least": 1})]
    )
    result = Agent(model, output_type=Picky, pattern=pattern, keep=MemoryStore()).run_sync("Answer.")
    assert result.success
    assert result.history.versions[0].output == '{"name": "bad"}'
    assert type(error).__name__ in result.history.versions[0].evaluation.issues[0]


def test_stored_output_that_is_no_longer_valid_is_refused():
    limit = [5]

    class Limited(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def check(cls, number: int) -> int:
            if number > limit[0]:
                raise ValueError("too large")
            return number

    store = MemoryStore()
    agent = Agent(
        ScriptedModel(['{"number": 3}']),
        output_type=Limited,
        pattern=ReflectionPattern(quality_criteria=[ANY]),
        keep=store,
    )
    agent.run_sync("Answer.", run_id="r")
    limit[0] = 1
    with pytest.raises(StoreError, match=r"no longer a valid Limited: .*too large"):
        agent.run_sync("Answer.", run_id="r")


PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/place", "definitions": {"place": PLACE}},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": PLACE}},
        {"$ref": "#/$defs/other", "$defs": {"other": {"$ref": "#/$defs/place"}, "place": PLACE}},
        {"allOf": [PLACE, {"required": ["city"]}]},
        {"allOf": [{"$ref": "#/$defs/place"}], "$defs": {"place": PLACE}},
        {**PLACE, "type": ["object"]},
        {"properties": PLACE["properties"], "required": ["city"]},
    ],
)
def test_schema_of_an_object_is_accepted_however_its_root_is_written(schema):
    kind = output_type_of(schema)
    assert kind.reply_schema["type"] == "object"
    assert kind.read('{"city": "Bern"}') == ({"city": "Bern"}, ())
    assert kind.read('{"city": 1}')[1]
    assert kind.read('"Bern"')[1]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": ["object", "null"]}, "is a choice between types"),
        ({"anyOf": [PLACE, {"type": "null"}]}, "is a choice between types"),
        ({"type": "string"}, "is neither an object nor a list"),
        ({"description": "anything"}, 'does not say whether it is an object or a list; add "type": "object"'),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "does not say whether"),
    ],
)
def test_schema_of_anything_else_is_refused_with_the_reason(schema, says):
    with pytest.raises(ConfigError, match=says):
        output_type_of(schema)


TOOLS = (Choices, Excluded, Vat, Secret, InJson, list[Vat], Point)
TOOL_KINDS = [(kind, data) for kind, data in KINDS if kind in TOOLS]


@pytest.mark.parametrize(("kind", "data"), TOOL_KINDS, ids=lambda one: getattr(one, "__name__", ""))
def test_answer_of_an_agent_with_tools_comes_back_equal(kind, data):
    def look(what: str) -> str:
        """Look something up."""
        return what

    right, store = expected(kind, data), MemoryStore()
    given = {"response": data} if isinstance(data, list) else data
    actor = Actor([call("final_result", **given)])
    criterion = QualityCriterion("valid", evaluator="schema", evaluator_config={"schema": kind})
    pattern = ReflectionPattern(quality_criteria=[criterion])
    agent = Agent(actor.provider, output_type=kind, tools=[look], pattern=pattern, keep=store)
    result = agent.run_sync("Answer.", run_id="r")
    assert (result.success, result.best_output) == (True, right), result.summary()
    assert agent.run_sync("Answer.", run_id="r").best_output == right
    assert asyncio.run(Runs(store).get("r")).versions[0].output == data


@pytest.mark.parametrize(("kind", "data"), TOOL_KINDS, ids=lambda one: getattr(one, "__name__", ""))
def test_answer_of_a_wrapped_agent_comes_back_equal(kind, data):
    right, store = expected(kind, data), MemoryStore()
    given = {"response": data} if isinstance(data, list) else data
    actor = Actor([call("final_result", **given)])
    wrapped = PydanticAgent(actor.model, output_type=kind)
    pattern = ReflectionPattern(quality_criteria=[ANY])
    agent = Agent.from_pydantic_ai(wrapped, pattern=pattern, keep=store)
    result = agent.run_sync("Answer.", run_id="r")
    assert result.best_output == right
    if kind is Secret:
        assert "/output/password" in result.diagnostics["not_restorable"]
        return
    assert agent.run_sync("Answer.", run_id="r").best_output == right
