from __future__ import annotations

import json
import time

import pytest

from redraft.core.errors import ConfigError
from redraft.text.schema import Schema


def nested(levels, inner=1):
    for _ in range(levels):
        inner = [inner]
    return inner


def ladder(steps, rung):
    steps_down = {f"d{step}": rung(f"#/$defs/d{step + 1}") for step in range(steps)}
    return {"$ref": "#/$defs/d0", "$defs": steps_down | {f"d{steps}": {"type": "null"}}}


TREE = {
    "$ref": "#/$defs/n",
    "$defs": {"n": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}}] * 3}},
}
ANCHORED = {
    "$ref": "#n",
    "$defs": {"n": {"$anchor": "n", "oneOf": [{"type": "array", "items": {"$ref": "#n"}}] * 3}},
}
CHOICE = {"anyOf": [{"type": "object"}, {"type": "integer"}, {"type": "null"}]}

BOMBS = [
    (TREE, nested(90)),
    (TREE, json.dumps(nested(90))),
    (ANCHORED, nested(90)),
    ({"$ref": "#"}, {"a": 1}),
    (ladder(20, lambda ref: {"items": {"anyOf": [{"$ref": ref}, {"$ref": ref, "minItems": 1}]}}), nested(20)),
    (ladder(40, lambda ref: {"items": {"anyOf": [{"$ref": ref}, {"$ref": ref, "minItems": 1}]}}), nested(40)),
    ({"pattern": "^(a+)+$"}, "a" * 5_000 + "!"),
    ({"pattern": "(?=(a+)+$)b"}, "a" * 5_000 + "!"),
    ({"pattern": r"^(?:(a+)+)\1$"}, "a" * 5_000 + "!"),
    ({"pattern": r"^(?=.*?(?:(x+x+)+y)).*\1$"}, "x" * 5_000),
    ({"items": {"type": "null"}}, list(range(100_000))),
    ({"items": {"type": "integer"}}, ["x"] * 100_000),
    ({"items": {"type": "integer"}}, [str(n) for n in range(15_000)] + ["x"]),
    ({"items": CHOICE}, [str(n) for n in range(2_500)] + ["x"]),
    ({"items": {"required": ["a", "b", "c"]}}, [{}] * 50_000),
    ({"required": [f"k{n}" for n in range(1_000)]}, {"x": "y" * 5_000_000}),
    ({"properties": {"a": {"type": "null"}}}, {"a": "y" * 5_000_000}),
    ({"type": "null"}, {"a": ["y" * 1_000] * 5_000}),
    ({"uniqueItems": True}, [*range(100_000), 0]),
    ({"enum": [{"a": n} for n in range(5_000)]}, {"a": -1}),
    ({"items": {"enum": [{"a": n} for n in range(5_000)]}}, [{"a": -1}] * 20_000),
    ({"additionalProperties": False, "properties": {"a": True}}, {str(n): n for n in range(50_000)}),
    ({"propertyNames": {"maxLength": 1}}, {f"key{n}": n for n in range(15_000)}),
    ({"type": "object"}, nested(5_000)),
    ({"type": "object"}, "[" * 100_000),
    ({"type": "integer"}, "9" * 1_000_000),
    ({"type": "integer"}, json.dumps("9" * 100_000)),
    ({"maximum": 5}, 10**4_000),
    ({"multipleOf": 0.0000001}, 1e300),
    ({"anyOf": [{"type": "null"}] * 1_000}, [1] * 1_000),
    ({"anyOf": [{"type": "null"}] * 1_000}, "y" * 5_000_000),
    ({"anyOf": [{"type": "null"}] * 1_000}, ["y" * 5_000_000]),
    ({"dependentRequired": {"a": [f"k{n}" for n in range(5_000)]}}, {"a": 1}),
]


@pytest.mark.parametrize(("schema", "value"), BOMBS, ids=range(len(BOMBS)))
def test_no_value_takes_long_and_each_gets_a_named_error(schema, value):
    check = Schema(schema)
    began = time.thread_time()
    result = check.check(value)
    assert time.thread_time() - began < 2
    if not result.valid:
        assert 0 <= result.score < 1
        assert 0 < len(result.errors) <= 100
        assert all(0 < len(error.message) < 2_000 for error in result.errors)
        assert all(error.suggestion for error in result.errors)


def deep(levels):
    schema = True
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (deep(3_000), "too large"),
        ({"enum": list(range(60_000))}, "too large"),
        (ladder(40, lambda ref: {"anyOf": [{"$ref": ref}, {"$ref": ref}]}), "branches for one place"),
        (ladder(40, lambda ref: {"allOf": [{"$ref": ref}, {"$ref": ref}]}), "branches for one place"),
        ({"pattern": "((((a{100}){100}){100}){100})"}, "not valid"),
        ({"pattern": "("}, "not valid"),
        ({"allOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "null"}, "branches for one place"),
    ],
)
def test_a_schema_that_explodes_is_refused(schema, says):
    began = time.thread_time()
    with pytest.raises(ConfigError, match=says):
        Schema(schema)
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    "value", [{1: 2}, object(), {"a": object()}, float("nan"), [float("inf")], {"a": b"x"}]
)
def test_what_is_no_json_is_named(value):
    (problem,) = Schema({"required": ["b"]}).check(value).errors
    assert problem.message.startswith("The output is not a JSON value that can be checked: ")


def test_a_lone_surrogate_is_named():
    (problem,) = Schema({"required": ["b"]}).check({"a": "\ud800"}).errors
    assert problem.message.startswith("The output is not a JSON value that can be checked: ")
