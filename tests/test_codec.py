import collections
import enum
import ipaddress
import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from functools import partial
from http.client import RemoteDisconnected
from io import BytesIO
from pathlib import Path, PureWindowsPath
from struct import pack
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, Field, PrivateAttr, SecretStr, field_validator

from redraft import (
    ConvergenceReason,
    Draft,
    Issue,
    ModelError,
    ReflectionEvaluation,
    ReflectionVersion,
    TokenUsage,
)
from redraft._codec import (
    TAG,
    describe_error,
    failure_from_json,
    failure_to_json,
    fingerprint,
    from_json,
    from_record,
    plain_data,
    to_json,
    to_record,
    unrestorable_in,
    without_tags,
)
from redraft._texts import json_data
from redraft.errors import (
    ConfigError,
    MissingExtraError,
    ReflectionFailedError,
    RejectedOutputError,
    ScriptError,
    StoreError,
    UnfinishedError,
    WorkflowError,
)
from redraft.protocols import ChatReply
from redraft.types import ReflectionHistory
from support.versions import version

# The file of a time zone: a header and no transitions, twice, and the rule of daylight saving time.
_HALF = b"TZif2" + bytes(15) + pack(">6l", 0, 0, 0, 0, 1, 4) + pack(">lbb", 0, 0, 0) + b"UTC\0"
UNNAMED_ZONE = ZoneInfo.from_file(BytesIO(2 * _HALF + b"\nCET-1CEST,M3.5.0,M10.5.0/3\n"))


class Person(BaseModel):
    name: str


@dataclass
class Point:
    x: int
    when: datetime


@pytest.mark.parametrize(
    "value",
    [
        version(1, 0.5, issues=(Issue("a", "b", "/c", 3),), criteria_scores={"x": None}),
        ReflectionEvaluation(None),
        ChatReply("x", {"a": [1]}, ({"yes": -0.1},), TokenUsage(1, 2, 3, 4, 5, None)),
        TokenUsage(cost_usd=None),
        Issue("x"),
    ],
)
def test_json_round_trip(value):
    through = json.loads(json.dumps(to_json(value)))
    assert from_json(type(value), through) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ConvergenceReason.PLATEAU, "plateau"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (ValueError("x"), {"type": "ValueError", "message": "x"}),
        (Person(name="Al"), {"name": "Al"}),
        ({1: (2, {3})}, {"1": [2, [3]]}),
        (True, True),
        (Person, f"<class '{__name__}.Person'>"),
    ],
)
def test_to_json(value, expected):
    assert to_json(value) == expected


class Letter(enum.Enum):
    A = "a"


class Keyed(BaseModel):
    items: dict[Any, int]


@dataclass(frozen=True, slots=True)
class KeyedPart:
    items: dict[Any, int]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ((1, "1"), "1"),
        (("1", 1), "1"),
        ((True, "true"), "true"),
        ((None, "None"), "None"),
        ((1.0, "1.0"), "1.0"),
        ((Letter.A, "a"), "a"),
        ((b"a", "a"), "a"),
        ((date(2026, 1, 2), "2026-01-02"), "2026-01-02"),
    ],
)
@pytest.mark.parametrize(
    "outer", [dict, lambda items: [{"k": (items,)}], lambda items: Keyed(items=items), KeyedPart]
)
def test_keys_that_become_the_same_text_are_refused(keys, text, outer):
    value = outer(dict.fromkeys(keys, 0))
    why = re.escape(f"the keys {keys[0]!r} and {keys[1]!r} both become {text!r}")
    with pytest.raises(ConfigError, match=f"^The value is not JSON data: {why}"):
        plain_data(value, "The value")
    with pytest.raises(ValueError, match=why):
        json_data(value)
    assert from_record(Any, to_record(value)) == value  # a record keeps both


def test_keys_of_different_texts_become_plain_data():
    assert plain_data({1: 2, "b": {None: 3, True: 4}}, "It") == {"1": 2, "b": {"None": 3, "true": 4}}


def test_a_mapping_whose_keys_have_the_same_text_is_read_and_identified_as_a_whole():
    assert to_json({"k": {1: 2, "1": 3}}) == {"k": "{1: 2, '1': 3}"}
    assert fingerprint({1: 2, "1": 3}) != fingerprint({"1": 3})


def test_version_from_json():
    again = from_json(ReflectionVersion, to_json(version(1, 0.5)))
    assert again.timestamp.tzinfo is not None


@pytest.mark.parametrize(
    "output",
    [
        "text",
        {"a": [1, None, 2.5]},
        Person(name="Al"),
        [Person(name="Al"), {"b": Person(name="Bo")}],
        Point(1, datetime(2026, 1, 2, tzinfo=UTC)),
        math.inf,
        {TAG: "tests:Nothing", "value": 1},
        {TAG: {TAG: 1}},
    ],
)
def test_record_round_trip(output):
    through = json.loads(json.dumps(to_record(Draft(output)), allow_nan=False))
    assert from_record(Draft, through) == Draft(output)


class Pair(NamedTuple):
    number: int
    price: Decimal


class Colour(enum.Enum):
    RED = (1, 2)


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Size:
    width: int


class Format(Size, enum.Enum):
    A4 = 210


class Name(str):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Frozen:
    price: Decimal
    other: Any = None


class Priced(BaseModel):
    """Neither its JSON form nor its fields validate to an equal value."""

    price: float = Field(validation_alias="Price", exclude=True)
    tags: dict[int, Any] = {}
    _calls: int = PrivateAttr(0)

    @field_validator("price")
    @classmethod
    def add_vat(cls, price: float) -> float:
        return price * 1.2


VALUES = [
    Decimal("12.10"),
    UUID(int=1),
    date(2026, 1, 2),
    datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 (without a time zone)
    datetime(2026, 1, 2, tzinfo=UTC),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    time(1, 2, tzinfo=timezone(timedelta(hours=2))),
    timedelta(days=-1, microseconds=3),
    b"\x00\xff",
    bytearray(b"a"),
    {(1, 2), frozenset({3})},
    frozenset({1}),
    (1, (2, [3])),
    Pair(1, Decimal(2)),
    Colour.RED,
    ConvergenceReason.PLATEAU,
    Access.READ | Access.WRITE,
    Format.A4,
    Path("/x"),
    PureWindowsPath("a"),
    1 + 2j,
    Fraction(1, 3),
    range(1, 9, 2),
    {1: "a", None: 2, (1, 2): 3},
    -math.inf,
    2**200,
    -0.0,
    Frozen(Decimal(1), {1: Frozen(Decimal(2))}),
    Priced(Price=12.0, tags={1: (2,)}),
    collections.OrderedDict(a=1),
    collections.Counter("aab"),
    collections.defaultdict(list, {1: [2]}),
    collections.deque([1], 3),
    re.compile("a", re.IGNORECASE),
    ipaddress.ip_address("::1"),
    Name("x"),
    TokenUsage(1),
    Issue("x", path="/a"),
    "a\ud800",
    {TAG: Decimal(1)},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("place", ["alone", "in an output", "in a memo"])
def test_value_comes_back_equal_and_of_the_same_class(value, place):
    if place == "alone":
        again = from_record(object, json.loads(json.dumps(to_record([value]))))[0]
    elif place == "in an output":
        again = from_record(Draft, json.loads(json.dumps(to_record(Draft({"a": [value]}))))).output["a"][0]
    else:
        again = from_record(Draft, json.loads(json.dumps(to_record(Draft("x", memo=value))))).memo
    assert again == value
    assert type(again) is type(value)
    assert repr(again) == repr(value)


class Holder(BaseModel):
    name: str
    secret: Any


@dataclass
class Tagged(dict[str, int]):
    tag: str


class Incomparable(str):
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise RuntimeError("no comparison")


class Unreadable:
    def __repr__(self):
        raise RuntimeError("no text")


@dataclass
class Unloaded:
    name: str = "x"

    def __getattribute__(self, name):
        if name == "name":
            raise RuntimeError("not loaded")
        return object.__getattribute__(self, name)


class Zoneless(tzinfo):
    pass


class Even(int):
    def __new__(cls, number, *, half=False):
        return super().__new__(cls, number if half else number * 2)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "can't hold a value of the class 'object'"),
        ([lambda: 1], "/0: the store can't hold a value of the class 'function'"),
        ({"a/b": lambda: 1}, "/a~1b: the store can't hold a value of the class 'function'"),
        (Holder(name="x", secret=SecretStr("hidden")), "/secret: the store can't hold .* 'SecretStr'"),
        ({"a": {"b": ValueError("x")}}, "/a/b: the store can't hold .* 'ValueError'"),
        (Even(2), r"Even\(4\) is not equal to the value"),
        (type("Local", (BaseModel,), {})(), "has no class of the name 'Local'"),
        (Tagged("x"), "can't hold a value of the class 'Tagged'"),
        (collections.defaultdict(partial(int, 3)), "a defaultdict with the factory functools.partial"),
        (Person.model_construct(), "the 'Person' has no 'name'"),
        (UNNAMED_ZONE, "the time zone .* can't be stored"),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=UNNAMED_ZONE), "the time zone .* can't be stored"),
        (Incomparable("x"), r"Incomparable\('x'\) raises RuntimeError: no comparison"),
        (Unreadable(), "can't hold a value of the class 'Unreadable'"),
        (Unloaded(), "reading it raises RuntimeError: not loaded"),
        (datetime(2026, 1, 2, tzinfo=Zoneless()), "reading it raises NotImplementedError: a tzinfo subclass"),
    ],
    ids=[
        *("object", "function", "key with a slash", "secret", "exception", "changed", "local class"),
        *("dictionary with fields", "factory", "no field", "zone of a file", "time in it", "no comparison"),
        *("no text", "no attribute", "no offset"),
    ],
)
def test_value_that_cannot_be_restored_is_named_and_refused(value, says):
    data = to_record(Draft({"value": value, "other": Decimal(1)}))
    (reason,) = unrestorable_in(data)
    assert re.search(says, reason)
    assert reason.startswith("/output/value")
    assert "hidden" not in json.dumps(data)
    with pytest.raises(StoreError, match="only the text of a value"):
        from_record(Draft, data)
    assert without_tags(data)["output"]["other"] == "1"


def test_value_that_contains_itself_is_refused():
    value: list[Any] = []
    value.append(value)
    assert "contains itself" in next(unrestorable_in(to_record(value)))


def test_record_of_another_form_of_the_class_is_refused():
    data = json.loads(json.dumps(to_record(Draft(Priced(Price=1.0)))))
    del data["output"]["fields"]["tags"]
    with pytest.raises(StoreError, match="had other fields"):
        from_record(Draft, data)


def test_record_of_an_earlier_release_is_read():
    data = {"output": {TAG: f"{__name__}:Point", "value": {"x": 1, "when": "2026-01-02T00:00:00Z"}}}
    assert from_record(Draft, data).output == Point(1, datetime(2026, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"output": {TAG: f"{__name__}:Gone", "value": {}}}, "which is not loaded here"),
        ({"output": {TAG: "os:system", "value": "true"}}, "which is not loaded here"),
        ({"output": {TAG: "not.imported:Model", "value": {}}}, "which is not loaded here"),
        ({"output": {TAG: f"{__name__}:Person", "value": {"name": 1}}}, "can't be read as Draft"),
        ({"output": {TAG: "builtins:range", "value": 3}}, "can't be read as Draft.*: TypeError"),
        ({"output": {TAG: "datetime:datetime", "value": []}}, "can't be read as Draft.*: IndexError"),
        ({"text": "x"}, "can't be read as Draft"),
    ],
)
def test_invalid_record(data, says):
    with pytest.raises(StoreError, match=says):
        from_record(Draft, data)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("It is away."), "It is away."),
        (KeyError("name"), "KeyError: 'name'"),
        (ValueError(), "ValueError"),
    ],
)
def test_foreign_error_is_described_with_its_class(error, said):
    assert describe_error(error) == said


def partial(error, value):
    error.partial = value
    return error


VERSIONS = (version(1, 0.5, output=Person(name="Ada")), version(2, 0.7, output=[None, 10**20]))
HISTORY = [
    {"iteration": 1, "output": {"a": None}, "score": None, "valid": False, "errors": [{"message": "x"}]}
]


@pytest.mark.parametrize(
    "error",
    [
        ReflectionFailedError("No valid output.", HISTORY),
        ReflectionFailedError(
            "It ended.", ReflectionHistory(VERSIONS, *VERSIONS, ConvergenceReason.ERROR, 1)
        ),
        ReflectionFailedError("Nothing."),
        RejectedOutputError("Rejected.", output=Person(name="Ada"), why="too short"),
        ScriptError("It failed.", line=3),
        partial(UnfinishedError("Time is up."), [1, None]),
        WorkflowError("wrong.yaml, line 3: x", file="wrong.yaml", line=3, node="n", key="with"),
        ModelError("The quota is spent.", status=402, over_quota=True),
        ModelError("Empty.", retryable=True, unusable_reply=True),
    ],
    ids=lambda error: f"{type(error).__name__} {error}",
)
def test_a_recorded_error_has_its_attributes(error):
    recorded = failure_from_json(json.loads(json.dumps(failure_to_json(error))))
    assert (type(recorded), str(recorded)) == (type(error), str(error))
    names = ("history", "output", "why", "line", "partial", "file", "node", "key", "retryable")
    names += ("status", "retry_after", "over_quota", "unusable_reply")
    assert [getattr(recorded, name, None) for name in names] == [getattr(error, name, None) for name in names]


class ImpostorError(OSError):
    pass


ImpostorError.__name__ = "ConnectionError"


class CutOffError(UnfinishedError):
    pass


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (RemoteDisconnected("gone"), ConnectionResetError),
        (ImpostorError("gone"), OSError),
        (CutOffError("cut off", reason=ConvergenceReason.TIME_BUDGET), UnfinishedError),
        (MissingExtraError("A page", "web"), ConfigError),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "odd"), UnicodeError),
        (ExceptionGroup("two", [ValueError()]), Exception),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_recorded_error_of_another_class_has_its_name_and_its_nearest_base(error, base):
    recorded = failure_from_json(json.loads(json.dumps(failure_to_json(error))))
    assert (type(recorded).__name__, str(recorded)) == (type(error).__name__, str(error))
    assert type(recorded).__base__ is base
    assert failure_to_json(recorded) == failure_to_json(error) | {"base": base.__name__}
