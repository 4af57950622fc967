from __future__ import annotations

import time

import pytest
from pydantic import BaseModel

from evaluating import criterion, evaluate
from redraft.core.errors import ConfigError
from redraft.core.evaluation import Issue
from redraft.evaluate.schema import schema


class Person(BaseModel):
    name: str
    age: int = 0


class Other(BaseModel):
    name: int


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "pets": {"type": "array", "items": {"type": "string"}}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("given", "output", "issues"),
    [
        (PERSON, {"name": "Ada"}, []),
        (PERSON, '{"name": "Ada"}', []),
        (PERSON, 'Here it is:\n```json\n{"name": "Ada"}\n```', []),
        (PERSON, Person(name="Ada"), []),
        (Person, {"name": "Ada", "age": 36}, []),
        (Person, Other(name=1), [('1 is not of type "string"', "/name")]),
        (True, [1, "x"], []),
        (PERSON, '```\n{"name": "Ada"}\n```', []),
        (False, 1, [("False schema does not allow 1", None)]),
        (PERSON, {}, [('"name" is a required property', None)]),
        (
            PERSON,
            {"name": 1, "pets": ["a", 2]},
            [('1 is not of type "string"', "/name"), ('2 is not of type "string"', "/pets/1")],
        ),
        ({"additionalProperties": {"type": "null"}}, {"a/b~c": 1}, [('1 is not of type "null"', "/a~1b~0c")]),
        (PERSON, "not valid at all", [("The reply holds no JSON: 'not valid at all'.", None)]),
        (PERSON, "", [("The reply is empty; expected a JSON value.", None)]),
        (
            PERSON,
            '{"name": NaN}',
            [("The JSON in the reply cannot be used: NaN is not a number of JSON.", None)],
        ),
    ],
)
def test_every_error_is_an_issue_with_its_pointer(given, output, issues):
    evaluation = evaluate(schema(criterion("schema", schema=given)), output)
    assert evaluation.overall_score == (0.0 if issues else 1.0)
    assert evaluation.satisfactory is not bool(issues)
    assert list(evaluation.issues) == [Issue(message, "it", path) for message, path in issues]


def test_what_would_only_fit_after_coercion_does_not_fit():
    wants = {"properties": {"a": {"type": "integer"}}}
    assert evaluate(schema(criterion("schema", schema=wants)), {"a": "1"}).overall_score == 0.0


@pytest.mark.parametrize("output", [{1: 2}, object(), {"a": object()}, {"a": "\ud800"}])
def test_what_is_no_json_value_fails(output):
    (issue,) = evaluate(schema(criterion("schema", schema={"required": ["b"]})), output).issues
    assert issue.message.startswith("The output is not a JSON value")


def test_no_more_than_twenty_errors_are_reported_and_long_ones_are_cut():
    evaluation = evaluate(schema(criterion("schema", schema={"items": {"type": "null"}})), ["x" * 1000] * 50)
    assert len(evaluation.issues) == 20
    assert all(len(issue.message) < 310 for issue in evaluation.issues)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"$ref": "http://localhost:9/x.json"}, "is not fetched; refer to the schema's own"),
        ({"$ref": "file:///etc/passwd"}, "is not fetched"),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "is not fetched"),
        ({"$ref": "#/$defs/missing"}, "does not exist"),
        ({"type": "nope"}, "not valid"),
        ({"pattern": "("}, "not valid"),
        ({"minLength": -1}, "not valid"),
        ({"const": object()}, "not valid"),
        ("{}", "must be a dict"),
        (7, "must be a dict"),
        (None, "must be a dict"),
    ],
)
def test_a_schema_that_is_invalid_or_refers_elsewhere_is_refused(given, says):
    with pytest.raises(ConfigError, match=f"Criterion 'it': .*{says}"):
        schema(criterion("schema", schema=given))


@pytest.mark.parametrize("config", [{}, {"schema": True, "strict": True}])
def test_wrong_keys_are_refused(config):
    with pytest.raises(ConfigError, match="schema"):
        schema(criterion("schema", **config))


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ({"pattern": "^(a+)+$"}, '"' + "a" * 5_000 + '!"'),
        ({"$ref": "#"}, {"a": 1}),
        (
            {"$defs": {"n": {"anyOf": [{"items": {"$ref": "#/$defs/n"}}] * 3}}, "$ref": "#/$defs/n"},
            [[[[[]]]]],
        ),
    ],
)
def test_bombs_do_not_hang(given, output):
    check = schema(criterion("schema", schema=given))
    started = time.process_time()
    evaluate(check, output)
    assert time.process_time() - started < 2


def test_the_schema_is_compiled_once(monkeypatch):
    import jsonschema_rs

    check = schema(criterion("schema", schema=PERSON))
    monkeypatch.delattr(jsonschema_rs, "validator_for")
    assert evaluate(check, {"name": "Ada"}).overall_score == 1.0


@pytest.mark.parametrize(
    ("output", "score"), [('```json\n{"name": "Ada"}\n```', 0.0), ('{"name": "Ada"}', 1.0)]
)
def test_json_in_a_fence_may_be_refused(output, score):
    evaluation = evaluate(schema(criterion("schema", schema=PERSON, raw=True)), output)
    assert evaluation.overall_score == score
    assert [issue.message for issue in evaluation.issues] == (
        [] if score else ["The JSON stands in a Markdown fence; expected nothing but JSON."]
    )
