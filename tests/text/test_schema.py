from __future__ import annotations

import copy
import json
import os
import random
import time
from itertools import product

import pytest

from redraft.errors import ConfigError, InvalidSchemaError
from redraft.text.schema import Schema
from support.http_server import serving

PROFILE = {
    "type": "object",
    "required": ["name", "email", "age"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "email": {"type": "string", "pattern": "^[^@]+@[^@]+\\.[^@]+$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
}
GOOD = {"name": "John", "email": "john@example.com", "age": 30}


@pytest.mark.parametrize(
    ("output", "valid", "value", "score"),
    [
        (GOOD, True, GOOD, 1.0),
        (json.dumps(GOOD), True, GOOD, 1.0),
        (f"Here:\n```json\n{json.dumps(GOOD)}\n```", True, GOOD, 1.0),
        ({**GOOD, "age": "30"}, True, GOOD, 1.0),
        (json.dumps({**GOOD, "age": "30"}), True, GOOD, 1.0),
        ({**GOOD, "age": "thirty"}, False, {**GOOD, "age": "thirty"}, 8 / 11),
        ({**GOOD, "age": -1}, False, {**GOOD, "age": -1}, 10 / 11),
        ({"name": "John", "email": "john@example.com"}, False, None, 7 / 11),
        ({"name": "", "email": "x", "age": 200}, False, None, 8 / 11),
        ({"name": "John"}, False, None, 4 / 11),
        ({}, False, None, 1 / 11),
        ("not json", False, "not json", 0.0),
        ([], False, [], 0.0),
    ],
)
def test_example_of_the_specification(output, valid, value, score):
    given = copy.deepcopy(output)
    result = Schema(PROFILE).check(output)
    assert (result.valid, result.score) == (valid, pytest.approx(score))
    assert result.value == (output if value is None else value)
    assert output == given
    assert bool(result.errors) is not valid
    assert bool(result.suggestions) is not valid


def test_error_has_the_documented_fields():
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    (error,) = Schema(schema).check({"a": [1, "banana"]}).errors
    assert error.as_dict() == {
        "path": "a.1",
        "message": 'a.1: expected an integer, got "banana"',
        "schema_path": "/properties/a/items/type",
        "expected": "an integer",
        "got": '"banana"',
    }
    assert error.suggestion == "Make 'a.1' an integer."
    assert error.pointer == "/a/1"


DRAFT7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "value", "message", "suggestion"),
    [
        ({"type": "integer"}, [], "The value: expected an integer, got []", "Make the value an integer."),
        (
            {"type": ["null", "array"]},
            1,
            "expected null or an array, got 1",
            "Make the value null or an array.",
        ),
        ({"required": ["a"]}, {}, "The value: the key 'a' is required, and missing", "Add the key 'a' to"),
        ({"enum": [1, "b"]}, 3, 'expected one of 1, "b", got 3', 'Set the value to one of 1, "b".'),
        ({"enum": list(range(20))}, 99, "11 or 8 others, got 99", "or 8 others."),
        ({"const": 1}, 3, "expected 1, got 3", "Set the value to 1."),
        ({"minimum": 1}, 0, "expected at least 1, got 0", "Make the value at least 1."),
        ({"maximum": 1}, 3, "expected at most 1, got 3", "Make the value at most 1."),
        ({"exclusiveMinimum": 1}, 1, "expected greater than 1, got 1", "Make the value greater than 1."),
        ({"exclusiveMaximum": 1}, 1, "expected less than 1, got 1", "Make the value less than 1."),
        ({"multipleOf": 2}, 3, "expected a multiple of 2, got 3", "Make the value a multiple of 2."),
        ({"minLength": 2}, "a", 'expected at least 2 characters, got "a"', "Lengthen the value: it needs"),
        ({"maxLength": 1}, "abc", 'expected at most 1 character, got "abc"', "Shorten the value: it needs"),
        ({"pattern": "^a"}, "b", 'expected a text that matches ^a, got "b"', "so that it matches ^a."),
        (
            {"$schema": DRAFT7, "format": "email"},
            "b",
            "in the format 'email'",
            "Write the value in the format",
        ),
        ({"minItems": 2}, [1], "expected at least 2 items, got [1]", "Add items to the value"),
        ({"maxItems": 1}, [1, 2], "expected at most 1 item, got [1, 2]", "Remove items from the value"),
        (
            {"uniqueItems": True},
            [1, 1],
            "expected items that all differ",
            "Remove the items of the value that",
        ),
        ({"contains": {"type": "null"}}, [1], "expected more items of the kind", "Add a matching item"),
        ({"contains": {"const": 1}, "minContains": 2}, [1], "expected more items", "Add a matching item"),
        (
            {"contains": {"const": 1}, "maxContains": 1},
            [1, 1],
            "expected fewer items",
            "Remove matching items",
        ),
        ({"minProperties": 2}, {}, "expected at least 2 properties, got {}", "Add keys to the value"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "expected at most 1 property", "Remove keys from the value"),
        (
            {"additionalProperties": False},
            {"b": 1},
            "an object without other keys",
            "Remove the keys of the value",
        ),
        (
            {"properties": {"a": True}, "additionalProperties": False},
            {"b": 1},
            'The value: "b" is not allowed',
            'Remove "b" from the value.',
        ),
        (
            {"unevaluatedProperties": False},
            {"a": 1},
            '"a" is not',
            'Remove "a" from the value.',
        ),
        (
            {"unevaluatedItems": False},
            [7],
            '"7" is not allowed',
            'Remove "7" from the value.',
        ),
        ({"prefixItems": [True], "items": False}, [1, 2], "1: expected nothing here, got 2", "Remove '1'"),
        (
            {"$schema": DRAFT7, "items": [True], "additionalItems": False},
            [1, 2],
            "expected at most 1 items",
            "Remove items from the value",
        ),
        (
            {"propertyNames": {"pattern": "^x"}},
            {"a": 1},
            'and "a" is not',
            'Rename the key "a" of the value.',
        ),
        (
            {"dependentRequired": {"a": ["b"]}},
            {"a": 1},
            "the key 'b' is required",
            "Add the key 'b' to the value.",
        ),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, "the key 'b' is", "Add the key 'b'"),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            1,
            "expected one of these alternatives: a string; or null, got 1",
            "Make the value fit one of the alternatives: a string; or null.",
        ),
        (
            {"items": {"anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "null"}}}]}},
            [{"b": 1}],
            "0: expected one of these alternatives: the key 'a' is required, and missing; or b: null",
            "Make '0' fit one",
        ),
        (
            {"oneOf": [{"type": "string"}, {"anyOf": [False]}]},
            1,
            "or another set of alternatives",
            "Make the value",
        ),
        (
            {"oneOf": [True, True]},
            1,
            "fits exactly one of the alternatives, got 1",
            "fit only one alternative.",
        ),
        ({"allOf": [{"type": "string"}]}, 1, "expected a string, got 1", "Make the value a string."),
        (
            {"not": {"type": "integer"}},
            1,
            'does not fit {"type": "integer"}, got 1',
            "Change the value so that",
        ),
        (False, 1, "The value: expected nothing here, got 1", "Remove the value: it is not allowed."),
        ({"if": {"type": "integer"}, "then": {"minimum": 5}}, 1, "expected at least 5, got 1", "at least 5."),
        ({"if": {"type": "null"}, "else": {"minimum": 5}}, 1, "expected at least 5, got 1", "at least 5."),
        (
            {"$schema": DRAFT7, "contentMediaType": "application/json"},
            "x",
            "what 'contentMediaType' asks for",
            "Change the value as 'contentMediaType' asks.",
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
            1,
            "expected null, got 1",
            "Make the value null.",
        ),
        (
            {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "const": 2}}},
            1,
            "expected 2",
            "to 2.",
        ),
        (True, "{]", "", ""),
        ({"type": "object"}, '{"a": ]', "The JSON in the reply is broken", "Answer with one JSON value"),
        ({"const": 1}, {"a": "x" * 200}, "expected 1, got an object of 1", "Set the value to 1."),
        ({"type": "null"}, [[1]], "got a list of 1", "Make the value null."),
        ({"type": "null"}, '"' + "x" * 500 + '"', 'x..."', "Make the value null."),
    ],
)
def test_message_and_suggestion_of_every_keyword(schema, value, message, suggestion):
    errors = Schema(schema).check(value, coerce=False).errors
    assert message in " ".join(error.message for error in errors)
    assert suggestion in " ".join(error.suggestion for error in errors)
    assert all(len(error.message) < 400 for error in errors)


NODE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "in": {"items": {"$ref": "#/$defs/node"}}},
        }
    },
}
CAT = {"type": "object", "required": ["cat", "age"], "properties": {"cat": True, "age": {"type": "integer"}}}
DOG = {
    "type": "object",
    "required": ["dog", "good"],
    "properties": {"dog": True, "good": {"type": "boolean"}},
}


@pytest.mark.parametrize(
    ("schema", "value", "becomes"),
    [
        ({"type": "integer"}, '"12"', 12),
        ({"type": "integer"}, "12", 12),
        ({"type": "integer"}, '"-3"', -3),
        ({"type": "number"}, '"1.5"', 1.5),
        ({"type": "number"}, '"-2e3"', -2000.0),
        ({"type": "number"}, '"12"', 12),
        ({"type": "boolean"}, '"true"', True),
        ({"type": "boolean"}, '"false"', False),
        *(({"type": "boolean"}, f'"{text}"', True) for text in ("True", "TRUE", "yes", "Yes", "1", " true ")),
        *(({"type": "boolean"}, f'"{text}"', False) for text in ("False", "FALSE", "no", "No", "0", "no ")),
        *(({"type": "integer"}, f'"{text}"', 42) for text in (" 42", "42 ", "\\t42\\n", "\u00a042")),
        ({"type": "number"}, '" 4.5 "', 4.5),
        ({"properties": {"a": {"type": "boolean"}}}, {"a": "yes"}, {"a": True}),
        ({"type": ["integer", "null"]}, '"7"', 7),
        ({"type": ["boolean", "integer"]}, '"1"', 1),
        ({"properties": {"a": {"properties": {"b": {"type": "integer"}}}}}, {"a": {"b": "1"}},
         {"a": {"b": 1}}),
        ({"items": {"type": "integer"}}, ["1", 2, "3"], [1, 2, 3]),
        ({"prefixItems": [{"type": "boolean"}]}, ["true", "true"], [True, "true"]),
        ({"additionalProperties": {"type": "number"}}, {"x": "0.5"}, {"x": 0.5}),
        ({"patternProperties": {"^n": {"type": "number"}}}, {"n": "1", "m": "1"}, {"n": 1, "m": "1"}),
        ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, '"2"', 2),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, '"5"', 5),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, '"true"', True),
        ({"anyOf": [{"type": "integer", "minimum": 9}, {"type": "number"}]}, '"5"', 5),
        ({"oneOf": [{"type": "object"}, {"type": "integer"}]}, '"5"', 5),
        ({"oneOf": [{"anyOf": [{"type": "null"}, {"type": "integer"}]}, {"type": "array"}]}, '"5"', 5),
        ({"items": {"anyOf": [CAT, DOG]}}, [{"cat": 1, "age": "3"}, {"dog": 1, "good": "true"}],
         [{"cat": 1, "age": 3}, {"dog": 1, "good": True}]),
        (NODE, {"n": "1", "in": [{"n": "2", "in": [{"n": "3"}]}]},
         {"n": 1, "in": [{"n": 2, "in": [{"n": 3}]}]}),
        ({"if": {"required": ["a"]}, "then": {"properties": {"b": {"type": "integer"}}}},
         {"a": 1, "b": "2"}, {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_strings_are_coerced(schema, value, becomes):
    given = copy.deepcopy(value)
    result = Schema(schema).check(value)
    assert (result.valid, result.score, result.value) == (True, 1.0, becomes)
    assert json.dumps(result.value) == json.dumps(becomes)
    assert value == given


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "boolean"}, "banana"),
        *(
            ({"type": "boolean"}, text)
            for text in ("y", "on", "yes, it is", "not true", "2", "01", "-1", "", " ", "null")
        ),
        *(({"type": "integer"}, text) for text in ("12abc", "1.0", "1.5", "+3", "007", "4 2", "1_0", "0x1")),
        *(
            ({"type": "integer"}, text)
            for text in ("", " ", "-", "--1", "1e3", "٣", "9" * 400, "true", "yes")
        ),
        *(
            ({"type": "number"}, text)
            for text in ("1e400", "NaN", "Infinity", "-inf", ".5", "5.", "1,5", "1/2")
        ),
        *(({"type": "null"}, text) for text in ("null", "", "none")),
        ({"type": ["integer", "null"]}, "null"),
        ({"allOf": [{"type": "integer"}, {"type": "string"}]}, "5"),
        ({"anyOf": [{"type": "integer", "minimum": 9}, {"type": "array"}]}, "5"),
        ({"type": "array"}, "[1]"),
        ({"type": "object"}, "{}"),
    ],
)
def test_strings_that_are_not_coerced(schema, value):
    result = Schema({"properties": {"a": schema}}).check({"a": value})
    assert not result.valid
    assert result.value == {"a": value}
    assert result.score < 1


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "12"),
        ({"type": ["string", "integer"]}, "12"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "12"),
        ({}, "12"),
        (True, "true"),
        ({"enum": ["1", 1]}, "1"),
    ],
)
def test_allowed_strings_are_not_coerced(schema, value):
    result = Schema({"properties": {"a": schema}}).check({"a": value})
    assert (result.valid, result.value) == (True, {"a": value})


@pytest.mark.parametrize(
    ("schema", "output", "value"),
    [
        ({"type": "string"}, "hello", "hello"),
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, '"quoted"', "quoted"),
        ({"minLength": 2}, "abc", "abc"),
        ({"type": "array"}, "[1]", [1]),
        ({"type": "null"}, "null", None),
    ],
)
def test_text_is_read_as_json_first(schema, output, value):
    result = Schema(schema).check(output)
    assert (result.valid, result.value) == (True, value)


@pytest.mark.parametrize(
    ("schema", "output", "score"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "banana"}', 0.0),
        ({"required": ["a", "b"]}, '{"a": 1}', 0.5),
        ({"required": ["a"]}, "not json", 0.0),
        ({"properties": {"a": {"type": "string"}}}, "not json", 0.0),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, '{"c": 1}', 0.0),
        ({"type": "object"}, "{", 0.0),
    ],
)
def test_prose_does_not_pass_a_schema_without_a_type(schema, output, score):
    result = Schema(schema).check(output)
    assert (result.valid, result.score) == (False, score)


def test_draft_defaults_to_2020_12():
    assert not Schema({"prefixItems": [{"type": "null"}]}).check([1]).valid
    assert Schema({"$schema": DRAFT7, "prefixItems": [{"type": "null"}]}).check([1]).valid
    assert not Schema({"$schema": DRAFT7, "items": [{"type": "null"}]}).check([1]).valid
    with pytest.raises(ConfigError, match="not fetched"):
        Schema({"$schema": "https://example.com/x"})


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "home"
    (home / "parts").mkdir(parents=True)
    (tmp_path / "secret.json").write_text('{"type": "null"}')
    (home / "person.json").write_text(json.dumps({**PROFILE, "$defs": {"n": {"type": "integer"}}}))
    (home / "person.yaml").write_text("type: object\nrequired: [name]\n")
    (home / "parts" / "list.json").write_text('{"items": {"$ref": "../person.json#/$defs/n"}}')
    (home / "parts" / "good.json").write_text('{"items": {"$ref": "one.json"}}')
    (home / "parts" / "one.json").write_text('{"type": "integer"}')
    (home / "tree.json").write_text(
        '{"anyOf": [{"items": {"$ref": "tree.json"}, "type": "array"}, {"type": "null"}]}'
    )
    (home / "marked.json").write_text('{"type": "null"}', "utf-8-sig")
    (home / "broken.json").write_text("{")
    (home / "list_only.json").write_text("[1]")
    (home / "large.json").write_text(json.dumps({"description": "x" * 1_100_000}))
    (home / "out.json").symlink_to(tmp_path / "secret.json")
    (home / "out").symlink_to(tmp_path)
    (home / "in.json").symlink_to(home / "person.json")
    os.mkfifo(home / "pipe.json")
    for number in range(30):
        (home / f"c{number}.json").write_text(json.dumps({"$ref": f"c{number + 1}.json"}))
    (home / "c30.json").write_text("{}")
    return home


@pytest.mark.parametrize(
    ("reference", "value", "valid"),
    [
        ("person.json", GOOD, True),
        ("person.json", {"name": "x"}, False),
        ("person.json", {**GOOD, "age": "3"}, True),
        ("./person.json#/$defs/n", 1, True),
        ("person.json#/$defs/n", None, False),
        ("person.yaml", {"name": 1}, True),
        ("person.yaml", {}, False),
        ("parts/good.json", [1, "2"], True),
        ("parts/good.json", ["x"], False),
        ("in.json", GOOD, True),
        ("tree.json", [[None], []], True),
        ("tree.json", [[1]], False),
        ("c15.json", 1, True),
        ("marked.json", None, True),
    ],
)
def test_references_to_files_in_the_folder(folder, reference, value, valid):
    result = Schema({"$ref": reference}, folder).check(value)
    assert result.valid is valid
    assert (result.score == 1.0) is valid


@pytest.mark.parametrize(
    "reference",
    [
        *("http://localhost:9/x.json", "https://example.com/a", "file:///etc/passwd", "//example.com/a.json"),
        *(
            "ftp://x/y",
            "data:application/json,{}",
            "/etc/passwd",
            "../secret.json",
            "parts/../../secret.json",
        ),
        *("%2e%2e/secret.json", "..%2fsecret.json", "..\\secret.json", "out.json", "out/secret.json"),
        *("missing.json", "broken.json", "list_only.json", "large.json", "pipe.json", "parts", "."),
        *("parts/list.json", "c0.json", "person.json#/$defs/missing", "a\x00b.json", "urn:x:y"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_references_outside_the_folder_are_refused(folder, reference, nested):
    schema = {"properties": {"a": {"$ref": reference}}} if nested else {"$ref": reference}
    with pytest.raises(ConfigError):
        Schema(schema, folder)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ('{"type": "objct"}', "'part.json' is not a valid schema: type: unknown type 'objct'"),
        (
            '{"properties": {"b": {"minimum": "x"}}}',
            "'part.json' is not a valid schema: properties.b.minimum: ",
        ),
        (
            '{"properties": {"b": {"pattern": "("}}}',
            "'part.json' is not a valid schema: properties.b.pattern: ",
        ),
    ],
)
def test_a_mistake_in_a_file_is_at_the_reference_and_names_the_file(folder, content, what):
    (folder / "part.json").write_text(content)
    with pytest.raises(InvalidSchemaError) as caught:
        Schema({"type": "object", "properties": {"a": {"$ref": "part.json"}}}, folder)
    [(place, message)] = caught.value.problems
    assert place == ("properties", "a", "$ref")
    assert message.startswith(what)


@pytest.mark.parametrize(
    "draft",
    [
        *(f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7)),
        *(f"https://json-schema.org/draft/{date}/schema" for date in ("2019-09", "2020-12")),
    ],
)
def test_all_mistakes_of_a_schema_are_found_in_every_draft(draft):
    properties = {"a": {"type": "strng"}, "b": {"pattern": "["}, "c": {"$ref": "#/definitions/d"}}
    with pytest.raises(InvalidSchemaError) as caught:
        Schema({"$schema": draft, "properties": properties, "required": "a"})
    in_properties = {("properties", *place) for place in (("a", "type"), ("b", "pattern"), ("c", "$ref"))}
    assert {place for place, _ in caught.value.problems} == {("required",), *in_properties}
    assert any("did you mean 'string'?" in message for _, message in caught.value.problems)


def test_a_draft_that_a_schema_names_is_not_fetched():
    with serving({}) as server, pytest.raises(InvalidSchemaError):
        Schema({"$schema": f"{server.url}/draft", "type": "strng"})
    assert not server.requests


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "person.json"},
        {"$id": "http://example.com/a", "$ref": "person.json"},
        {"$id": "file:///etc/", "$ref": "passwd"},
        {"$schema": "person.json"},
    ],
)
def test_references_to_files_need_a_folder(schema, folder):
    with pytest.raises(ConfigError, match="not fetched"):
        Schema(schema)
    if "$id" in schema:
        with pytest.raises(ConfigError, match="not fetched"):
            Schema(schema, folder)


WITH_ID = {"not": {"$id": "http://example.com/a", "items": {"pattern": "("}, "anyOf": [{"$ref": "#"}]}}
"""A schema of which the compiler says where its mistake is in the part with the `$id`."""


@pytest.mark.parametrize(
    "given", ["{}", 7, None, {"type": "nope"}, {"minLength": -1}, {"const": object()}, WITH_ID]
)
def test_invalid_schema(given):
    with pytest.raises(ConfigError, match="schema"):
        Schema(given)


ORDER = {
    "type": "object",
    "required": ["id", "customer", "lines"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"},
        "customer": {
            "type": "object",
            "required": ["name", "contact"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "contact": {
                    "anyOf": [{"type": "string", "pattern": "@"}, {"type": "integer", "minimum": 100}]
                },
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "maxItems": 2},
            },
        },
        "lines": {"type": "array", "minItems": 1, "maxItems": 4, "items": {"$ref": "#/$defs/line"}},
        "status": {"oneOf": [{"const": "open"}, {"const": "paid"}]},
        "notes": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 5}},
    },
    "$defs": {
        "line": {
            "type": "object",
            "required": ["sku", "n"],
            "properties": {
                "sku": {"type": "string", "minLength": 2},
                "n": {"type": "integer", "minimum": 1},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/line"}},
            },
        }
    },
}
LINE = {"sku": "ab", "n": 1, "parts": [{"sku": "cd", "n": 2, "parts": [{"sku": "ef", "n": 3}]}]}
GOOD_ORDER = {
    "id": "AB1",
    "customer": {"name": "x", "contact": "a@b", "tags": ["a", "b"]},
    "lines": [LINE, {"sku": "gh", "n": 4}],
    "status": "open",
    "notes": {"x": "y", "z": "w"},
}
BAD = [None, True, -5, "zz!zz!", [], {}, [[]], {"other": 1}, 10**6]


def places(value, above=()):
    yield above
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from places(inner, (*above, key))


def put(value, place, new):
    if not place:
        return new
    changed = copy.copy(value)
    changed[place[0]] = put(value[place[0]], place[1:], new)
    return changed


def without(value, place):
    holder = dict(at(value, place[:-1]))
    del holder[place[-1]]
    return put(value, place[:-1], holder)


def at(value, place):
    for key in place:
        value = value[key]
    return value


def mutation(random_, place):
    """A change that breaks the order at a place: a key gone, too much, or another value."""
    there = at(GOOD_ORDER, place)
    kind = random_.randrange(3)
    if kind == 0 and place and isinstance(place[-1], str):
        return lambda value: without(value, place)
    if kind == 1 and isinstance(there, list):
        return lambda value: put(value, place, there * 3)
    if kind == 1 and isinstance(there, dict):
        return lambda value: put(value, place, {**there, "extra": 1, "more": [2]})
    bad = random_.choice(BAD)
    return lambda value: put(value, place, bad)


def apart(one, other):
    shortest = min(len(one), len(other))
    return one[:shortest] != other[:shortest]


def test_fixing_an_error_never_lowers_the_score():
    for seed in range(50):
        random_ = random.Random(seed)  # noqa: S311 (the same breakage each time)
        schema = Schema(ORDER)
        chosen = []
        for place in random_.sample(list(places(GOOD_ORDER)), k=20):
            if len(chosen) < 4 and all(apart(place, other) for other in chosen):
                chosen.append(place)
        changes = [mutation(random_, place) for place in chosen]
        scores = {}
        for made in product((False, True), repeat=len(changes)):
            value = GOOD_ORDER
            for change, is_made in zip(changes, made, strict=True):
                value = change(value) if is_made else value
            result = schema.check(value, coerce=False)
            assert result.valid is (result.score == 1.0)
            scores[made] = result.score
        for made, score in scores.items():
            for place, is_made in enumerate(made):
                if is_made:
                    assert scores[(*made[:place], False, *made[place + 1 :])] >= score, (chosen, made)


@pytest.mark.parametrize(
    ("schema", "worse", "better"),
    [
        ({"items": {"type": "integer"}, "maxItems": 2}, [1, 2, "x", 3, 4, 5], [1, "x"]),
        ({"items": {"type": "integer"}}, ["x", "y", "z"], ["x", "y", 1]),
        ({"items": {"type": "integer"}}, ["x", "y", 1], ["x", 1, 1]),
        ({"items": {"type": "integer"}, "uniqueItems": True}, [1, 1, "x"], [1, "x"]),
        ({"properties": {"a": PROFILE}, "required": ["a"]}, {}, {"a": {}}),
        ({"properties": {"a": PROFILE}, "required": ["a"]}, {"a": "x"}, {"a": {}}),
        ({"properties": {"a": PROFILE}, "required": ["a"]}, {"a": {}}, {"a": {"name": ""}}),
        ({"anyOf": [PROFILE, {"type": "null"}]}, "x", {"name": "x"}),
        ({"anyOf": [PROFILE, {"type": "null"}]}, {"name": "x"}, {"name": "x", "email": "y"}),
        ({"oneOf": [PROFILE, {"type": "null"}]}, {"name": "x"}, {"name": "x", "email": "y"}),
        ({"properties": {"a": True}, "additionalProperties": False}, {"b": 1, "c": 1}, {"b": 1}),
        (
            {"required": ["k"], "if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["x", "y"]}},
            {"x": 1},
            {"k": 1, "x": 1, "y": 1},
        ),
        (
            NODE,
            {"n": 1, "in": [{"n": "x", "in": [{"n": "y"}]}]},
            {"n": 1, "in": [{"n": 1, "in": [{"n": "y"}]}]},
        ),
    ],
)
def test_better_values_score_higher(schema, worse, better):
    check = Schema(schema)
    assert check.check(worse, coerce=False).score < check.check(better, coerce=False).score


def test_check_of_a_small_object_is_fast():
    check = Schema(PROFILE)
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for _ in range(200):
            check.check(GOOD)
        best = min(best, (time.thread_time() - began) / 200)
    assert best < 100e-6


def test_schema_is_compiled_once(monkeypatch):
    import jsonschema_rs

    check = Schema(PROFILE)
    monkeypatch.delattr(jsonschema_rs, "validator_for")
    assert check.check(GOOD).valid
    assert not check.check({}).valid


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
def test_expensive_values_are_rejected_quickly(schema, value):
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
    ("schema", "message"),
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
def test_exploding_schema(schema, message):
    began = time.thread_time()
    with pytest.raises(ConfigError, match=message):
        Schema(schema)
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    "value", [{1: 2}, object(), {"a": object()}, float("nan"), [float("inf")], {"a": b"x"}]
)
def test_values_that_are_not_json(value):
    (problem,) = Schema({"required": ["b"]}).check(value).errors
    assert problem.message.startswith("The output is not a JSON value that can be checked: ")


def test_lone_surrogate():
    (problem,) = Schema({"required": ["b"]}).check({"a": "\ud800"}).errors
    assert problem.message.startswith("The output is not a JSON value that can be checked: ")


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ({"2024": "x", "2025": 1}, ["/2024"]),
        ({"007": "x"}, ["/007"]),
        ({"+7": "x", "-7": "y"}, ["/+7", "/-7"]),
        ({"a": {"1": {"0": "x"}}}, ["/a/1/0"]),
        ({"": "x"}, ["/"]),
        ({"": {"": "x", "1": 1}}, ["//"]),
        ({"a": [1, {"0": "x"}]}, ["/a/1/0"]),
    ],
)
def test_keys_of_digits_and_empty_keys_are_named_as_they_are(value, places):
    schema = Schema(
        {
            "$ref": "#/$defs/map",
            "$defs": {
                "map": {"type": "object", "additionalProperties": {"$ref": "#/$defs/part"}},
                "list": {"type": "array", "items": {"$ref": "#/$defs/part"}},
                "part": {
                    "if": {"type": "object"},
                    "then": {"$ref": "#/$defs/map"},
                    "else": {
                        "if": {"type": "array"},
                        "then": {"$ref": "#/$defs/list"},
                        "else": {"type": "number"},
                    },
                },
            },
        }
    )
    assert [problem.pointer for problem in schema.check(value, coerce=False).errors] == places


def test_values_of_keys_of_digits_are_converted():
    result = Schema({"additionalProperties": {"type": "number"}}).check({"2024": "1", "07": "2"})
    assert (result.valid, result.value) == (True, {"2024": 1, "07": 2})
