import json
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

from redraft import ChatReply, ConvergenceReason, Issue, ReflectionEvaluation, ReflectionVersion, TokenUsage
from redraft.core.codec import from_json, to_json
from versions import version


class Person(BaseModel):
    name: str


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
def test_there_and_back(value):
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
    ],
)
def test_to_json(value, expected):
    assert to_json(value) == expected


def test_a_version_from_json_has_its_types():
    again = from_json(ReflectionVersion, to_json(version(1, 0.5)))
    assert again.timestamp.tzinfo is not None
