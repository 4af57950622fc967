from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

import pytest
from pydantic import AliasChoices, BaseModel, Field, field_validator

from redraft._calls import functions_in
from redraft.cycles.check import check
from redraft.cycles.spec import AgentFile, parse_agent_file
from redraft.errors import ConfigError, ModelError
from redraft.evaluate.checks import count, function, regex, schema
from redraft.evaluate.panel import panel
from redraft.loop.output_type import output_type_of
from redraft.models.testing import ScriptedModel
from redraft.redact.log import warn_once
from redraft.types import Issue, QualityCriterion, ReflectionEvaluation
from support.evaluation import RUN, criterion, evaluate

if TYPE_CHECKING:
    from redraft.protocols import RunContext


@pytest.mark.parametrize(
    ("config", "output", "score"),
    [
        ({"pattern": r"\[\d+\]"}, "blue [1]", 1.0),
        ({"pattern": r"\[\d+\]"}, "blue", 0.0),
        ({"pattern": "BLUE"}, "blue", 0.0),
        ({"pattern": "BLUE", "flags": "i"}, "blue", 1.0),
        ({"pattern": "BLUE", "flags": re.IGNORECASE}, "blue", 1.0),
        ({"pattern": "blue", "must_match": False}, "blue", 0.0),
        ({"pattern": "blue", "must_match": False}, "red", 1.0),
        ({"pattern": "^- ", "flags": "m", "min_matches": 2}, "- a\n- b", 1.0),
        ({"pattern": "^- ", "flags": "m", "min_matches": 3}, "- a\n- b", 0.0),
        ({"pattern": "^- ", "flags": "m", "max_matches": 2}, "- a\n- b", 1.0),
        ({"pattern": "^- ", "flags": "m", "max_matches": 1}, "- a\n- b", 0.0),
        ({"pattern": "x", "min_matches": 1, "max_matches": 2}, "", 0.0),
        ({"pattern": "x", "min_matches": 1, "max_matches": 2}, "xx", 1.0),
        ({"pattern": "x", "max_matches": 0}, "x", 0.0),
        ({"pattern": '"sky": "blue"'}, {"sky": "blue"}, 1.0),
        ({"pattern": "(?<=sky )blue"}, "sky blue", 1.0),
        ({"pattern": "^$"}, "sky", 0.0),
        ({"pattern": "^(?!.*sky)"}, "sky", 0.0),
    ],
)
def test_regex(config, output, score):
    evaluation = evaluate(regex(criterion("regex", **config)), output)
    assert (evaluation.overall_score, evaluation.satisfactory) == (score, score == 1.0)
    assert bool(evaluation.issues) == (score == 0.0)
    assert all(issue.criterion == "it" for issue in evaluation.issues)


FENCED = "\n```python\nx = 1\ny = 2\n```\n"


@pytest.mark.parametrize(
    ("raw", "seen"), [({}, "x = 1\ny = 2"), ({"raw": False}, "x = 1\ny = 2"), ({"raw": True}, FENCED)]
)
def test_checks_ignore_the_markdown_fence(raw, seen):
    given = []
    check = function(criterion("function", function=lambda output: not given.append(output), **raw))
    assert evaluate(check, FENCED).satisfactory
    assert given == [seen]
    starts = evaluate(regex(criterion("regex", pattern=r"\Ax", **raw)), FENCED)
    assert starts.satisfactory is (seen != FENCED)


def test_line_numbers_count_the_fence():
    evaluation = evaluate(regex(criterion("regex", pattern="y", must_match=False)), FENCED)
    assert [issue.line for issue in evaluation.issues] == [4]
    judged = ReflectionEvaluation(0.1, issues=(Issue("a", line=1), Issue("b")))
    evaluation = evaluate(function(criterion("function", function=lambda _: judged)), FENCED)
    assert [(issue.line, issue.criterion) for issue in evaluation.issues] == [(3, "it"), (None, "it")]


def test_raw_must_be_a_boolean():
    for make, config in ((regex, {"pattern": "x"}), (function, {"function": is_blue})):
        with pytest.raises(ConfigError, match="raw must be true or false, got 'no'"):
            make(criterion(make.__name__, raw="no", **config))


@pytest.mark.parametrize(
    ("config", "output", "message", "line"),
    [
        ({"pattern": "x"}, "a", "Found no match of 'x': Has an x", None),
        ({"pattern": r"x\d"}, "a", r"Found no match of 'x\d': Has an x", None),
        (
            {"pattern": "x", "min_matches": 3},
            "x x",
            "Found 2 of at least 3 matches of 'x' ('x', 'x'): Has an x",
            None,
        ),
        (
            {"pattern": "x+", "must_match": False},
            "a\nb xx",
            "Found forbidden: 'x+' ('xx' in 'b xx'): Has an x",
            2,
        ),
        ({"pattern": "x", "max_matches": 1}, "x\n\nx", "Found more than 1 match of 'x' ('x'): Has an x", 3),
        (
            {"pattern": "X"},
            "a\nb x",
            "Found no match of 'X', only 'x' in 'b x', in another case: Has an x",
            2,
        ),
        (
            {"pattern": r"^\d+$"},
            "It is 42.",
            r"Found no match of '^\d+$', only '42' in 'It is 42.', next to other text: Has an x",
            1,
        ),
        (
            {"pattern": r"\AX\Z"},
            "an X",
            r"Found no match of '\AX\Z', only 'X' in 'an X', next to other text: Has an x",
            1,
        ),
        ({"pattern": r"X\$"}, "x$", r"Found no match of 'X\$', only 'x$', in another case: Has an x", 1),
        ({"pattern": r"^\$$"}, "5", r"Found no match of '^\$$': Has an x", None),
        ({"pattern": "^a$|^b$"}, "an", "Found no match of '^a$|^b$': Has an x", None),
        ({"pattern": "^$"}, "an", "Found no match of '^$': Has an x", None),
        ({"pattern": "X", "flags": re.MULTILINE}, "x" * 99, "Found no match of 'X': Has an x", None),
        ({"pattern": "X", "flags": "i"}, "a" * 99, "Found no match of 'X': Has an x", None),
        (
            {"pattern": "x", "must_match": False},
            f"{'a' * 99}x{'a' * 99}",
            f"Found forbidden: 'x' ('x' in '{'a' * 30}x{'a' * 25}...): Has an x",
            1,
        ),
    ],
)
def test_regex_issues(config, output, message, line):
    has_x = QualityCriterion("it", "Has an x", evaluator="regex", evaluator_config=config)
    (issue,) = evaluate(regex(has_x), output).issues
    assert issue == Issue(message, "it", line=line)


def test_regex_timeout_is_unknown():
    started = time.monotonic()
    evaluation = evaluate(regex(criterion("regex", pattern="(?=a)(a+)+$")), "a" * 3_000 + "!")
    assert time.monotonic() - started < 60
    assert (evaluation.overall_score, evaluation.satisfactory, evaluation.confidence) == (None, False, 0.0)
    why = "matching '(?=a)(a+)+$' took too long; look-around, back-references and \\b are slow"
    assert evaluation.issues == (Issue(f"Not judged: {why}, so do without them", "it"),)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "regex needs 'pattern'"),
        ({"pattern": "("}, "does not compile"),
        ({"pattern": "a", "flag": "i"}, "no option 'flag'; did you mean 'flags'"),
        ({"pattern": "a", "flags": "g"}, "out of 'imsx'"),
        ({"pattern": "a", "must_match": "no"}, "must be true or false"),
        ({"pattern": "a", "min_matches": -1}, "whole number"),
        ({"pattern": "a", "max_matches": True}, "whole number"),
        ({"pattern": "a", "max_matches": 1.5}, "whole number"),
        ({"pattern": "a", "max_matches": 10**9}, "whole number"),
        ({"pattern": "a", "min_matches": 0}, "asks for nothing"),
        ({"pattern": "()"}, "matches every text"),
        ({"pattern": "blue|"}, "matches every text"),
        ({"pattern": "x*", "min_matches": 1}, "matches every text"),
        ({"pattern": "x*", "must_match": False}, "matches every text"),
        ({"pattern": "a", "min_matches": 3, "max_matches": 2}, "is less than"),
        ({"pattern": "a", "min_matches": 1, "must_match": True}, "not both"),
    ],
)
def test_invalid_regex_configuration(config, message):
    with pytest.raises(ConfigError, match=f"^Criterion 'it': (?!Criterion).*{message}"):
        regex(criterion("regex", **config))


async def is_blue(output):
    return "blue" in output


def is_first(output, run: RunContext):
    return run.iteration == 1


async def says_why(output):
    raise AssertionError("Name the price.")


def is_of_run(output, *, run):
    return run.run_id == "run"


@pytest.mark.parametrize(
    ("fn", "score", "messages"),
    [
        (lambda output: True, 1.0, []),
        (lambda output: 0.75, 0.75, []),
        (lambda output: (False, "not blue enough"), 0.0, ["not blue enough"]),
        (lambda output: {"score": 0.5, "errors": ["a", "b"]}, 0.5, ["a", "b"]),
        (lambda output: ReflectionEvaluation(0.3, issues=("c",)), 0.3, ["c"]),
        (is_blue, 1.0, []),
        (is_first, 1.0, []),
        (is_of_run, 1.0, []),
        ("pathlib:PurePosixPath", None, ["the verdict is PurePosixPath"]),
        ("operator:not_", 0.0, []),
        (lambda output: 7, None, ["the score is 7"]),
        (lambda output: float("nan"), None, ["the score is nan"]),
        (lambda output: "very good", None, ["the verdict is 'very good'"]),
        (lambda output: 1 / 0, None, ["the function raised ZeroDivisionError: division by zero; to fail an"]),
        (says_why, 0.0, ["Name the price."]),
    ],
)
def test_function(fn, score, messages):
    evaluation = evaluate(function(criterion("function", function=fn)), "blue")
    assert evaluation.overall_score == score
    assert len(evaluation.issues) == len(messages)
    for issue, message in zip(evaluation.issues, messages, strict=True):
        assert message in issue.message
        assert issue.criterion == "it"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("assert output == 'red'", "assert output == 'red'"),
        ("assert output == 'red', f'{output} is not red'", "blue is not red"),
        ("assert (\n  output == 'red'\n  )", "assertion failed"),
        ("raise AssertionError", "assertion failed"),
    ],
)
def test_a_failed_assertion_is_a_failed_check(statement, reason, tmp_path):
    path = tmp_path / "checks.py"  # pytest rewrites the assertions of this module
    path.write_text(f"def is_red(output):\n  {statement}\n  return True\n")
    evaluation = evaluate(function(criterion("function", function=functions_in(path)["is_red"])), "blue")
    assert (evaluation.overall_score, evaluation.satisfactory) == (0.0, False)
    assert evaluation.issues == (Issue(reason, "it"),)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no network')", "RuntimeError: no network"),
        ("def check(:", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)  # a script that parses its arguments", "SystemExit: 3"),
    ],
    ids=["raises", "is no Python", "exits"],
)
def test_a_module_that_fails_when_it_is_imported_is_an_invalid_configuration(
    source, reason, tmp_path, monkeypatch
):
    (tmp_path / "failing_checks.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"'failing_checks:check' can't be imported: {reason}"):
        function(criterion("function", function="failing_checks:check"))
    with pytest.raises(ConfigError, match=f"can't be loaded: {reason}"):
        functions_in(tmp_path / "failing_checks.py")


def test_function_score_is_held_against_the_threshold():
    for score, good in ((0.89, False), (0.9, True)):
        strict = replace(criterion("function", function=lambda _, score=score: score), threshold=0.9)
        assert evaluate(function(strict), "x").satisfactory is good


@pytest.mark.parametrize("verdict", [4, {"score": 4}, {"score": "4/5"}, {"score": 8, "score_max": 10}])
def test_function_score_max(verdict):
    evaluation = evaluate(function(criterion("function", function=lambda _: verdict, score_max=5)), "x")
    assert evaluation.overall_score == 0.8


def test_model_error_in_a_function_is_raised():
    def ask(output):
        raise ModelError("overloaded", retryable=True)

    with pytest.raises(ModelError, match="overloaded"):
        evaluate(function(criterion("function", function=ask)), "x")


def test_issue_keeps_the_criterion_set_by_a_function():
    issue = Issue("too long", "length")
    found = function(criterion("function", function=lambda _: ReflectionEvaluation(0.1, issues=(issue, "b"))))
    assert evaluate(found, "x", RUN).issues == (issue, Issue("b", "it"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "needs 'function'"),
        ({"function": 7}, "must be a function"),
        ({"function": is_blue, "score_max": 0}, "score_max must be a number above 0, got 0"),
        ({"function": is_blue, "score_max": "100"}, "score_max must be a number above 0, got '100'"),
        ({"function": "len"}, "callable or 'package.module:name'"),
        ({"function": "no_such_module:x"}, "can't be imported: No module named"),
        ({"function": "operator:no_such_name"}, "can't be imported"),
        ({"function": "operator:__doc__"}, "must be a function"),
        ({"function": lambda: True}, "takes fewer"),
        ({"function": lambda output, other: True}, "the parameter 'other' of"),
        ({"function": len, "fn": len}, "no option 'fn'"),
    ],
)
def test_invalid_function_configuration(config, message):
    with pytest.raises(ConfigError, match=f"Criterion 'it': .*{message}"):
        function(criterion("function", **config))


POEM = "Mist - a veil.\n\n  Owls cry;\nnight's 1st.\n"
LIST = "Three:\n- one\n  * two\n3) three\n-four\n• five\n"


@pytest.mark.parametrize(
    ("unit", "output", "found"),
    [
        ("words", POEM, 7),
        ("words", "", 0),
        ("words", "- — …", 0),
        ("words", "東京 tea", 2),
        ("characters", "  Tea für 2 \n", 9),
        ("characters", "", 0),
        ("lines", POEM, 3),
        ("lines", "\n \n", 0),
        ("bullets", LIST, 4),
        ("bullets", "a - b", 0),
        ("bullets", "-\n- ", 0),
        ("words", "```\none two\n```", 2),
        ("lines", "```\none\ntwo\n```", 2),
        ("words", {"a": "b c"}, 3),
    ],
)
def test_count(unit, output, found):
    for config, score in (
        ({"at_least": found, "at_most": found}, 1.0),
        ({"at_least": found + 1}, 0.0),
        *([({"at_most": found - 1}, 0.0)] if found else []),
    ):
        assert evaluate(count(criterion(unit, **config)), output).overall_score == score


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"at_most": 2}, "The text has 3 words; at most 2, 1 too many"),
        ({"at_least": 4}, "The text has 3 words; at least 4, 1 too few"),
        ({"at_least": 4, "at_most": 6}, "The text has 3 words; 4 to 6, 1 too few"),
        ({"at_least": 4, "at_most": 4}, "The text has 3 words; exactly 4, 1 too few"),
    ],
)
def test_count_issues(config, message):
    brief = QualityCriterion("it", "Be brief.", evaluator="words", evaluator_config=config)
    assert evaluate(count(brief), "one two three").issues == (Issue(message, "it"),)


def test_singular_and_raw_counts():
    assert evaluate(count(criterion("words", at_least=2)), "one").issues == (
        Issue("The text has 1 word; at least 2, 1 too few", "it"),
    )
    assert evaluate(count(criterion("lines", at_most=2, raw=True)), "```\none\n```").overall_score == 0.0


@pytest.mark.parametrize("unit", ["words", "characters", "lines", "bullets"])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "needs at_least"),
        ({"at_least": 0}, "needs at_least"),
        ({"at_most": -1}, "at_most must be a whole number of at least 0, got -1"),
        ({"at_most": "60"}, "at_most must be a whole number of at least 0, got '60'"),
        ({"at_least": True}, "at_least must be a whole number"),
        ({"at_least": 2.5}, "at_least must be a whole number"),
        ({"at_least": 3, "at_most": 2}, "at_most .2. is less than at_least .3."),
        ({"atmost": 3}, "no option 'atmost'; did you mean 'at_most'"),
    ],
)
def test_invalid_count_bounds(unit, config, message):
    with pytest.raises(ConfigError, match=f"Criterion 'it': .*{message}"):
        panel([criterion(unit, **config)])


class Person(BaseModel):
    name: str
    age: int = 0


class Other(BaseModel):
    name: int


class Plain:
    """No class of data."""


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
        (Person, Other(name=1), [("/name: expected a string, got 1", "/name")]),
        (True, [1, "x"], []),
        (PERSON, '```\n{"name": "Ada"}\n```', []),
        (False, 1, [("Expected nothing here, got 1", None)]),
        (PERSON, {}, [("The key 'name' is required, and missing", None)]),
        (
            PERSON,
            {"name": 1, "pets": ["a", 2]},
            [
                ("/name: expected a string, got 1", "/name"),
                ("/pets/1: expected a string, got 2", "/pets/1"),
            ],
        ),
        (
            {"additionalProperties": {"type": "null"}},
            {"a/b~c": 1},
            [("/a~1b~0c: expected null, got 1", "/a~1b~0c")],
        ),
        (PERSON, "not valid at all", [("The reply holds no JSON: 'not valid at all'.", None)]),
        (PERSON, "", [("The reply is empty; expected a JSON value.", None)]),
        (
            PERSON,
            '{"name": NaN}',
            [("The JSON in the reply cannot be used: NaN is not a number of JSON.", None)],
        ),
    ],
)
def test_schema_errors_become_issues_with_pointers(given, output, issues):
    evaluation = evaluate(schema(criterion("schema", schema=given)), output)
    assert evaluation.overall_score == (0.0 if issues else 1.0)
    assert evaluation.satisfactory is not bool(issues)
    assert list(evaluation.issues) == [Issue(message, "it", path) for message, path in issues]


def test_schema_does_not_coerce():
    wants = {"properties": {"a": {"type": "integer"}}}
    assert evaluate(schema(criterion("schema", schema=wants)), {"a": "1"}).overall_score == 0.0


@pytest.mark.parametrize("output", [object(), {"a": object()}, {"a": "\ud800"}])
def test_output_that_is_not_json_fails(output):
    (issue,) = evaluate(schema(criterion("schema", schema={"required": ["b"]})), output).issues
    assert issue.message.startswith("The output is not a JSON value")


def test_an_output_is_checked_as_it_is_written_in_json():
    output = {1: [date(2026, 5, 1), {"x"}]}
    wants = {
        "properties": {"1": {"prefixItems": [{"const": "2026-05-01"}, {"const": ["x"]}]}},
        "required": ["1"],
    }
    assert evaluate(schema(criterion("schema", schema=wants)), output).overall_score == 1.0


def test_at_most_twenty_short_issues():
    evaluation = evaluate(schema(criterion("schema", schema={"items": {"type": "null"}})), ["x" * 1000] * 50)
    assert len(evaluation.issues) == 20
    assert all(len(issue.message) < 310 for issue in evaluation.issues)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"$ref": "http://localhost:9/x.json"}, "is not fetched; refer to the schema's own"),
        ({"$ref": "file:///etc/passwd"}, "is not fetched"),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "is not fetched"),
        ({"$ref": "#/$defs/missing"}, r"does not exist\.$"),
        ({"type": "nope"}, "not valid"),
        ({"pattern": "("}, "not valid"),
        ({"minLength": -1}, "not valid"),
        ({"const": object()}, "not valid"),
        ("{}", "must be a dict"),
        (7, "must be a dict"),
        (None, "must be a dict"),
        (Plain, r"Plain can't validate JSON"),
    ],
)
def test_invalid_or_remote_schema(given, message):
    with pytest.raises(ConfigError, match=f"Criterion 'it': .*{message}"):
        schema(criterion("schema", schema=given))


@pytest.mark.parametrize(
    ("config", "message"), [({}, "needs 'schema'"), ({"schema": True, "strict": True}, "no option 'strict'")]
)
def test_options_of_a_schema(config, message):
    with pytest.raises(ConfigError, match=message):
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
def test_expensive_values_are_rejected_quickly(given, output):
    check = schema(criterion("schema", schema=given))
    started = time.process_time()
    evaluate(check, output)
    assert time.process_time() - started < 2


def test_schema_is_compiled_once(monkeypatch):
    import jsonschema_rs

    check = schema(criterion("schema", schema=PERSON))
    monkeypatch.delattr(jsonschema_rs, "validator_for")
    assert evaluate(check, {"name": "Ada"}).overall_score == 1.0


@pytest.mark.parametrize(
    ("output", "score"), [('```json\n{"name": "Ada"}\n```', 0.0), ('{"name": "Ada"}', 1.0)]
)
def test_raw_schema_rejects_a_fence(output, score):
    evaluation = evaluate(schema(criterion("schema", schema=PERSON, raw=True)), output)
    assert evaluation.overall_score == score
    assert [issue.message for issue in evaluation.issues] == (
        [] if score else ["The JSON is inside a Markdown fence; expected nothing but JSON."]
    )


ORDER = {"items": [{"name": "tea set", "note": "a\nlong\nnote"}], "a/b": 3}


@pytest.mark.parametrize("output", [ORDER, json.dumps(ORDER)])
@pytest.mark.parametrize(
    ("evaluator", "path", "config", "issue"),
    [
        ("words", "/items/0/name", {"at_most": 2}, None),
        (
            "words",
            "/items/0/note",
            {"at_most": 2},
            ("The text has 3 words; at most 2, 1 too many", "/items/0/note"),
        ),
        ("regex", "/items/0/name", {"pattern": "^tea"}, None),
        ("regex", "/a~1b", {"pattern": "^3$"}, None),
        (
            "regex",
            "/items/1/name",
            {"pattern": "^tea"},
            ("There is nothing at /items/1/name.", "/items/1/name"),
        ),
        ("regex", "/items/x", {"pattern": "^tea"}, ("There is nothing at /items/x.", "/items/x")),
        (
            "regex",
            "/items/-1/name",
            {"pattern": "^tea"},
            ("There is nothing at /items/-1/name.", "/items/-1/name"),
        ),
        (
            "regex",
            "/items/0/name/first",
            {"pattern": "t"},
            ("There is nothing at /items/0/name/first.", "/items/0/name/first"),
        ),
        ("schema", "/items", {"schema": {"items": {"required": ["name"]}}}, None),
        (
            "schema",
            "/items",
            {"schema": {"items": {"properties": {"name": {"const": "x"}}}}},
            ('/items/0/name: expected "x", got "tea set"', "/items/0/name"),
        ),
        ("function", "/a~1b", {"function": lambda number: number == 3}, None),
    ],
)
def test_a_check_can_point_into_a_structured_output(output, evaluator, path, config, issue):
    one = criterion(evaluator, path=path, **config)
    evaluation = evaluate(panel((one,)), output)
    assert evaluation.satisfactory is (issue is None)
    assert [(str(found), found.path) for found in evaluation.issues] == ([] if issue is None else [issue])


def test_a_function_that_changes_the_output_does_not_change_it_for_other_checks():
    def empty(part):
        part.clear()
        return True

    def is_whole(part):
        return len(part) > 0

    names = {"empty": empty, "is whole": is_whole}
    one, two = (
        QualityCriterion(name, evaluator="function", evaluator_config={"function": function})
        for name, function in names.items()
    )
    output = {"items": [{"name": "tea set"}]}
    assert evaluate(panel((one, two)), output).satisfactory
    assert output == {"items": [{"name": "tea set"}]}


def test_a_text_without_json_has_nothing_at_a_path():
    (issue,) = evaluate(panel((criterion("words", path="/name", at_most=2),)), "tea").issues
    assert issue.startswith("There is nothing at /name: The reply holds no JSON")


@pytest.mark.parametrize("path", ["name", "", 3, None])
def test_a_path_is_a_json_pointer(path):
    with pytest.raises(ConfigError, match="JSON pointer"):
        panel((criterion("words", path=path, at_most=2),))


class Booking(BaseModel):
    start: date
    guests: int = Field(validation_alias=AliasChoices("guests", "people"))
    code: str = "x"

    @field_validator("code")
    @classmethod
    def known(cls, code: str) -> str:
        return {"x": "x"}[code] if code != "exit" else sys.exit(code)


@dataclass
class Range:
    low: int
    high: int

    def __post_init__(self):
        if self.low > self.high:
            raise ValueError("low is above high")


@pytest.mark.parametrize(
    ("given", "output", "issue"),
    [
        (Booking, '{"start": "2026-01-02", "people": 2}', None),
        (Booking, Booking(start=date(2026, 1, 2), people=2), None),
        (Booking, '{"start": "soon", "people": 2}', "/start: Input should be a valid date .*, got 'soon'"),
        (Booking, '{"start": "2026-01-02", "people": 2, "code": "y"}', "not a valid Booking: KeyError: 'y'"),
        (
            Booking,
            {"start": "2026-01-02", "people": 2, "code": "exit"},
            "not a valid Booking: SystemExit: exit",
        ),
        (Booking, {"start": "2026-01-02"}, "/guests: Field required"),
        (Booking, {"people": 2}, "/start: Field required"),
        (Booking, Booking.model_construct(start="soon", guests=2), "/start: Input should be a valid date"),
        (Range, '{"low": 1, "high": 2}', None),
        (Range, '{"low": 3, "high": 2}', "low is above high"),
        (list[Range], '[{"low": 1, "high": 2}]', None),
        (list[Range], '[{"low": 1, "high": 2}, {"low": "x", "high": 2}]', "/1/low: expected an integer"),
        (list[Range], "no JSON", "holds no JSON"),
    ],
)
def test_schema_given_as_a_class_is_checked_by_the_class(given, output, issue):
    evaluation = evaluate(schema(criterion("schema", schema=given)), output)
    assert evaluation.overall_score == (1.0 if issue is None else 0.0)
    if issue is not None:
        assert re.search(issue, evaluation.issues[0])


def _criterion(keywords):
    schema(QualityCriterion("fields", evaluator="schema", evaluator_config={"schema": keywords}))


def _output_type(keywords):
    output_type_of({"type": "object", "properties": {"a": keywords}})


def _stage(keywords):
    file = AgentFile(
        "name: t\nstages:\n  reason:\n    substages:\n    - type: analyze\n      name: a\n      prompt: x\n"
        f"      outputSchema: {{type: object, properties: {{a: {json.dumps(keywords)}}}}}\n",
        "agent.yaml",
    )
    check(parse_agent_file(file), file, {}, lambda _: ScriptedModel([]))


@pytest.mark.parametrize(
    ("uses", "place"),
    [
        (_criterion, "Criterion 'fields': "),
        (_output_type, "output_type: properties.a."),
        (_stage, "outputSchema: properties.a."),
    ],
)
def test_a_misspelled_keyword_of_a_schema_is_logged_once(caplog, uses, place):
    """It has no effect, so whatever it should check would pass unnoticed."""
    warn_once.cache_clear()
    for _ in range(2):
        uses({"requird": ["b"]})
    [message] = caplog.messages
    assert f"{place}requird: JSON Schema has no keyword 'requird'" in message
    assert "did you mean 'required'?" in message
