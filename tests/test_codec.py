import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

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
    RecordedError,
    describe_error,
    failure_from_json,
    failure_to_json,
    from_json,
    from_record,
    to_json,
    to_record,
)
from redraft.errors import (
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


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"output": {TAG: f"{__name__}:Gone", "value": {}}}, "which is not loaded here"),
        ({"output": {TAG: "os:system", "value": "true"}}, "which is not loaded here"),
        ({"output": {TAG: "not.imported:Model", "value": {}}}, "which is not loaded here"),
        ({"output": {TAG: f"{__name__}:Person", "value": {"name": 1}}}, "can't be read as Draft"),
        ({"text": "x"}, "can't be read as Draft"),
    ],
)
def test_invalid_record(data, says):
    with pytest.raises(StoreError, match=says):
        from_record(Draft, data)


class AwayError(RecordedError):
    pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("It is away."), "It is away."),
        (KeyError("name"), "KeyError: 'name'"),
        (ValueError(), "ValueError"),
        (AwayError("gone"), "AwayError: gone"),
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
    ],
    ids=lambda error: f"{type(error).__name__} {error}",
)
def test_a_recorded_error_has_its_attributes(error):
    recorded = failure_from_json(json.loads(json.dumps(failure_to_json(error))))
    assert (type(recorded), str(recorded)) == (type(error), str(error))
    names = ("history", "output", "why", "line", "partial", "file", "node", "key", "retryable")
    assert [getattr(recorded, name, None) for name in names] == [getattr(error, name, None) for name in names]
