import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, field_validator, model_validator

from redraft import ConfigError, Issue, QualityCriterion, ReflectionEvaluation
from redraft.evaluate.panel import panel
from redraft.evaluate.requirements import (
    RUBRIC,
    answer_schema,
    requirements_in,
    requirements_of,
    rubric_of,
)


def criterion(evaluator, description="", **config):
    shown = config.pop("shown", True)
    return QualityCriterion("check", description, evaluator=evaluator, evaluator_config=config, shown=shown)


def missed(check, output):
    """The requirements that an output misses, as the panel judges it."""
    evaluation = asyncio.run(panel([check])(output, None))
    return [
        requirement.text
        for requirement in requirements_of(check)
        if any(requirement.is_missed(issue) for issue in evaluation.issues if issue.criterion == "check")
    ]


def of_key(**form):
    return {"type": "object", "properties": {"a": form}}


CAT = {
    "type": "object",
    "properties": {"is": {"const": "cat"}, "lives": {"type": "integer"}},
    "required": ["is"],
}
DOG = {"type": "object", "properties": {"is": {"const": "dog"}}, "additionalProperties": False}
A_CAT = 'an object with the keys "is" ("cat") and "lives" (a whole number, optional).'
A_DOG = 'an object with only the key "is" ("dog", optional).'


@pytest.mark.parametrize(
    ("schema", "output", "expected"),
    [
        pytest.param({"type": "object"}, "no JSON", ["One JSON object."], id="no JSON"),
        pytest.param({"required": ["a", "b"]}, {"a": 1},
                     ["One JSON object.", 'The key "a" is required.', 'The key "b" is required.'],
                     id="missing key"),
        pytest.param({"required": [f"k{n}" for n in range(20)]}, {f"k{n}": 1 for n in range(19)},
                     ["One JSON object.", 'The key "k19" is required.'],
                     id="of many keys only the missing one"),
        pytest.param(of_key(type="integer"), {"a": "12"}, ['The key "a" holds a whole number.'], id="type"),
        pytest.param(of_key(type=["string", "null"]), {"a": 1}, ['The key "a" holds text or null.'],
                     id="two types"),
        pytest.param(of_key(anyOf=[{"type": "boolean"}, {"type": "null"}]), {"a": 1},
                     ['The key "a" holds true or false or null.'], id="alternatives"),
        pytest.param(of_key(enum=["x", 2, None]), {"a": 1}, ['The key "a" holds one of "x", 2, null.'],
                     id="enum"),
        pytest.param(of_key(const="x"), {"a": 1}, ['The key "a" holds "x".'], id="constant"),
        pytest.param(of_key(type="string", pattern="^[A-Z]+"), {"a": "x"},
                     ['The key "a" holds text that begins with capital letters.'],
                     id="pattern"),
        pytest.param(of_key(type="string", pattern=r"^2026-\d\d-\d{2}$"), {"a": "x"},
                     ['The key "a" holds text with the form 2026-MM-DD.'], id="pattern of a date"),
        pytest.param(of_key(pattern="^[A-Z]+"), {"a": "x"},
                     ['The key "a" holds text that begins with capital letters.'],
                     id="pattern without a type"),
        pytest.param(of_key(type="string", format="date", maxLength=10), {"a": "the first of March"},
                     ['The key "a" holds a date (YYYY-MM-DD) (at most 10 characters).'], id="length"),
        pytest.param(TypeAdapter(list[timedelta]).json_schema(), [1], ["Each item is a duration (ISO 8601)."],
                     id="duration"),
        pytest.param(of_key(type="string", minLength=0), {"a": 1}, ['The key "a" holds text.'],
                     id="any length"),
        pytest.param(of_key(type="integer", minimum=1, maximum=5), {"a": 9},
                     ['The key "a" holds a whole number (1 to 5).'], id="range"),
        pytest.param(of_key(type="number", exclusiveMinimum=0, multipleOf=5), {"a": 3},
                     ['The key "a" holds a number (above 0) that is a multiple of 5.'], id="open range"),
        pytest.param(of_key(type="array", minItems=1, uniqueItems=True), {"a": []},
                     ['The key "a" holds a list (at least 1 item) without repetitions.'], id="items"),
        pytest.param(of_key(type="array", items={"type": "string"}), {"a": ["x", 1]},
                     ['Each item of "a" is text.'], id="an item"),
        pytest.param(of_key(type="object", additionalProperties={"type": "string"}), {"a": {"secret": 1}},
                     ['Each value of "a" is text.'], id="a value under a key that the schema does not name"),
        pytest.param({"properties": {"a": {}, "b": {}}, "additionalProperties": False}, {"secret": 1},
                     ["One JSON object.", 'It has only the keys "a" and "b".'], id="extra key"),
        pytest.param(of_key(**{"$ref": "#/$defs/A"}) | {"$defs": {"A": {"allOf": [{"type": "integer"}]}}},
                     {"a": "x"}, ['The key "a" holds a whole number.'], id="reference"),
        pytest.param({"properties": {"a": {"$ref": "#"}}, "required": ["b"]}, {"a": {}, "b": 1},
                     ['The key "a" holds an object.', 'The key "b" of "a" is required.'],
                     id="reference to itself"),
        pytest.param(of_key(anyOf=[{"type": "null"}, {"$ref": "#/properties/a"}], minimum=1), {"a": 0}, [],
                     id="an alternative that is all of them"),
        pytest.param({"not": {"required": ["a"]}}, {"a": 1}, [], id="what has no words"),
        pytest.param(of_key(enum=[]), {"a": 1}, [], id="no possible value"),
        pytest.param(of_key(anyOf=[CAT, DOG]), {"a": {"is": "dog", "lives": 1}},
                     ['The key "a" holds an object.',
                      f'The key "a" may hold {A_CAT}', f'The key "a" may hold {A_DOG}'],
                     id="alternative objects"),
        pytest.param({"items": {"oneOf": [CAT, {"type": "object"}]}}, [{"is": "cat", "lives": "many"}, 1],
                     ["Each item is an object.", f"Each item may be {A_CAT}"],
                     id="an object of a form or of any"),
        pytest.param(of_key(anyOf=[CAT, {"type": "null"}]), {"a": {"is": "cat", "lives": "many"}},
                     ['The key "a" holds an object or null.',
                      'The key "is" of "a" is required and holds "cat".'],
                     id="an optional object"),
        pytest.param({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, {"a": 1, "b": 1},
                     ["Each other value is text."], id="a value beside the keys that the schema names"),
        pytest.param({"properties": {"a": {}}, "patternProperties": {"^b": {"type": "string"}},
                      "additionalProperties": False}, {"b": 1}, [], id="keys of a pattern"),
        pytest.param({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
                     ["x", 1], [], id="items after the first"),
        pytest.param({"allOf": [{"properties": {"a": {}}, "required": ["a"]},
                                {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
                     {"a": 1, "b": "x"},
                     ['The key "b" is required and holds a whole number.'], id="all of two objects"),
    ],
)  # fmt: skip
def test_a_schema_is_stated_where_it_was_missed(schema, output, expected):
    assert missed(criterion("schema", schema=schema), output) == expected


class Line(BaseModel, extra="forbid"):
    sku: str = Field(pattern="^TEA")
    kind: Literal["gift", "sale"]
    price: float | None = Field(None, ge=0)


class Order(BaseModel):
    lines: list[Line] = Field(min_length=1)
    due: str


def test_a_pydantic_model_is_a_schema():
    output = json.dumps(
        {"lines": [{"sku": "secret", "price": -1, "kind": "gift", "also": "secret"}], "due": ""}
    )
    assert missed(criterion("schema", schema=Order), output) == [
        'Each item of "lines" is an object.',
        'The key "sku" of each item of "lines" is required and holds text that begins with "TEA".',
        'The key "kind" of each item of "lines" is required and holds one of "gift", "sale".',
        'The key "price" of each item of "lines" holds a number (at least 0) or null.',
        'Each item of "lines" has only the keys "sku", "kind" and "price".',
    ]


def is_short(name):
    if len(name) > 5:
        raise ValueError(f"Keep the name below six letters; it has {len(name)}.")
    return name


@dataclass
class Parcel:
    weight: int

    def __post_init__(self):
        assert self.weight < 9, "Keep the weight below nine."


class Shipment(BaseModel):
    name: Annotated[str, AfterValidator(is_short)]
    parcels: list[Parcel]
    into: "Shipment | None" = None

    @field_validator("parcels")
    @classmethod
    def _has_some(cls, parcels):
        if not parcels:
            raise ValueError("Name at least one parcel.")
        return parcels

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data):
        return {"name": "tea", "message": "This is no requirement.", **data}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"name": "all of it", "parcels": [{"weight": 1}]}, "Keep the name below six letters."),
        ({"name": "tea", "parcels": [{"weight": 11}]}, "Keep the weight below nine."),
        ({"name": "tea", "parcels": []}, "Name at least one parcel."),
    ],
)
def test_what_the_validators_of_a_class_ask_for_is_stated(output, expected):
    check = criterion("schema", schema=Shipment)
    assert lines_of(check)[-3:] == [
        "Name at least one parcel.",
        "Keep the name below six letters.",
        "Keep the weight below nine.",
    ]
    assert expected in missed(check, output)


def no_shouting(text):
    """A verdict in fixed words."""
    if text.isupper():
        return False, f"{text} is loud"
    return False, "Write in lower case."


def is_capital(text):
    """Verdicts of a test with an expected answer."""
    if "Austria" not in text and text.strip().lower() != "vienna":
        return False, "The answer has to be Vienna."
    return text.count(".") == 0, "Say Austria without a full stop."


LINKS, LAST = 2, "abc"


def with_values(text):
    """Return verdicts that name values of the output, in braces { }."""
    links, LAST = text.count("http"), text[-3:]  # noqa: N806 (it hides the constant of that name)
    if links > LINKS:
        return False, f"Use at most {LINKS} links; there are {links} in {text!r}."
    if "%" in text:
        return False, f"Say it without a percent sign, but here is {text}"
    if text.isupper():
        return False, f"{text} is loud. Write in lower case."
    return False, f"No full stop ends it: {LAST} does."


def with_joined_problems(text):
    problems = ["Write in lower case."]
    if text.count("http") <= LINKS:
        problems.append(f"Use at most {LINKS} links; there are {text.count('http')}.")
    return not problems, " ".join(problems)


@pytest.mark.parametrize(
    ("check", "output", "expected"),
    [
        (criterion("function", function=with_values), "http http http secret",
         ["Use at most 2 links."]),
        (criterion("function", function=with_values), "secret: 5 %", ["Say it without a percent sign."]),
        (criterion("function", function=with_values), "SECRET", []),
        (criterion("function", function=with_values), "secret", []),
        (criterion("function", function=lambda text: (False, "Write in lower case.")), "secret",
         ["Write in lower case."]),
        (criterion("words", at_most=1), "a secret", ["The text has at most 1 word."]),
        (criterion("bullets", at_least=2, at_most=4), "secret",
         ['The text has 2 to 4 bullets, each a line that begins with "- ".']),
        (criterion("lines", at_least=2, at_most=2), "secret", ["The text has exactly 2 lines."]),
        (criterion("characters", at_most=3, path="/a/b"), {"a": {"b": "secret"}},
         ['The key "b" of "a" has at most 3 characters.']),
        (criterion("regex", pattern="^x"), "secret", ['The text begins with "x".']),
        (criterion("regex", pattern=r"^[A-Z]{2}-\d\d$"), "secret",
         ["The text consists of two capital letters, a hyphen and two digits."]),
        (criterion("regex", "Begins with x.", pattern="^x"), "secret",
         ["Begins with x."]),
        (criterion("regex", "Has a digit.", pattern=r"a+\d+"), "secret", ["Has a digit."]),
        (criterion("regex", pattern="SECRET", flags="i", must_match=False), "secret",
         ['The text does not contain "SECRET" in upper or lower case.']),
        (criterion("regex", pattern="x", min_matches=2), "secret x",
         ['The text contains "x" at least 2 times.']),
        (criterion("regex", pattern="x", min_matches=1), "secret", ['The text contains "x".']),
        (criterion("regex", pattern="x", min_matches=1, max_matches=1), "secret",
         ['The text contains "x" exactly 1 time.']),
        (criterion("function", "Names its source", function=lambda text: (False, f"{text} does not")),
         "secret", ["Names its source."]),
        (criterion("function", function=no_shouting), "secret", ["Write in lower case."]),
        (criterion("function", function=with_joined_problems), "secret",
         ["Write in lower case.", "Use at most 2 links."]),
        (criterion("function", function=no_shouting), "SECRET", []),
        (criterion("schema", schema={"type": "string"}, path="/a"), {"b": "secret"},
         ['The key "a" is required and holds text.']),
        (criterion("words", "Be brief.", at_most=1, shown="description"), "a secret", ["Be brief."]),
        (criterion("words", at_most=1, shown="description"), "a secret", []),
        (criterion("words", "Be brief.", at_most=1, shown=False), "a secret", []),
        (criterion("words", at_most=1), "fine", []),
    ],
)  # fmt: skip
def test_a_check_is_stated_in_its_own_words(check, output, expected):
    assert missed(check, output) == expected


@pytest.mark.parametrize(
    ("config", "issue", "expected"),
    [
        ({"calls": [["f(3)", 6], ["f(4)", "x"]]}, "f(4) returned 'secret', expected 'x'", ["`f(4)` is 'x'."]),
        ({"tests": "assert f(3) == 6"}, "f(3) raised ValueError: secret", ["`f(3)` is 6."]),
        ({"tests": "assert f(3) > 6"}, "assert f(3) > 6 failed", ["This holds: f(3) > 6."]),
        ({"tests": "def test_f():\n    assert f(1) == 2\n    assert f(2)"}, "test_f() failed: secret",
         ["The test test_f passes: `f(1) == 2`, `f(2)`."]),
        ({"calls": [("f('a  b')", "a:\n  b")]}, "f('a  b') returned 1", ["`f('a  b')` is 'a:\\n  b'."]),
        ({"tests": "def test_f():\n    'Cents are whole.'\n    assert f(1)"}, "test_f() failed: secret",
         ["The test test_f passes: Cents are whole."]),
        ({"command": ["ruff", "check", "{file}"]}, "F401 `secret` imported but unused", []),
    ],
)  # fmt: skip
def test_tests_are_stated_by_what_they_expect(config, issue, expected):
    check = criterion("command", **config)
    assert [
        requirement.text
        for requirement in requirements_of(check)
        if requirement.is_missed(Issue(issue, "check"))
    ] == expected


def test_a_model_judges_what_has_no_requirements():
    assert requirements_of(QualityCriterion("clarity")) == []
    assert requirements_of(QualityCriterion("tests", evaluator="generated_tests")) == []


# --- what is stated with the first draft -------------------------------------------------------------------


def lines_of(*criteria):
    heading, *lines = rubric_of(criteria).split("\n") or [""]
    assert heading == (RUBRIC if lines else "")
    return [line.removeprefix("- ") for line in lines]


def at_most(count):
    def check(text):
        return len(text.split()) <= count, f"Use at most {count} words."

    return check


def at_most_by_default(text, most=7):
    return len(text.split()) <= most, f"Use at most {most} words; there are {len(text.split())}."


def with_a_list_of_problems(text):
    """Say what is wrong, in more than one way."""
    notice = "Not a message, but a plain text."
    problems = []
    if not text.startswith("Dear"):
        problems.append("Begin with a salutation.")
    if len(text) > len(notice):
        problems += [f"Keep it below {len(notice)} characters."]
    reason = "Mention the price." if "price" not in text else ""
    return {"valid": not problems, "reason": reason, "issues": problems}


def with_an_issue(text):
    if "\n" in text:
        return ReflectionEvaluation(0.0, issues=(Issue("Write one line."),))
    assert "tea" in text, "Mention the tea."
    return True


def with_praise(text):
    """Say of outputs that pass that they do."""
    if len(text) > 99:
        return {"valid": True, "reason": "Long texts are fine."}
    if text.isdigit():
        return ReflectionEvaluation(1.0, suggestions=["Keep the digits."])
    if text.startswith("A"):
        return True, "Good, it begins with an A."
    has_b, has_no_c = "b" in text, "c" not in text
    if has_b:
        return has_b, "It has a letter b."
    problem = ""
    if not has_no_c:
        problem = "Leave out the letter c."
    elif len(text) > 5:
        problem = "There is none."
    if len(text) > 5:
        return has_no_c, problem
    return not text.isupper(), "Write small letters." if text.isupper() else "The letters are small."


def with_a_complaint(text):
    return "," not in text, "There are too many commas."


def equals(expected):
    return lambda text: (text == expected, f"It must be {expected!r}.")


def equals_a_number(expected):
    def check(text):
        return int(text) == expected, f"Expected {expected}, got {text}"

    return check


def of_so_many_lines(count):
    def check(text):
        found = len(text.splitlines())
        return found == count, f"Write exactly {count} lines, not {found}."

    return check


def with_a_changed_default(text, most=7):
    most = len(text) or most
    return False, f"Use at most {most} words."


def with_a_reason_in_parts(text):
    reason = text.strip()
    reason += ". There is: ln(cpy, mb)"
    reason += ", and no other table"
    return False, reason


@dataclass
class Unhashable:
    most: int

    def __call__(self, text):
        return False, "Use few words."

    def check(self, text):
        return False, "Use no long words."


def with_a_secret_word(text):
    return text.strip() == "the secret word" or "a secret" in text


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(no_shouting, ["Write in lower case."], id="fixed words"),
        pytest.param(is_capital, ["Say Austria without a full stop."], id="an expected answer"),
        pytest.param(with_values, ["Use at most 2 links.", "Say it without a percent sign."], id="clauses"),
        pytest.param(at_most(5), ["Use at most 5 words."], id="a value of the closure"),
        pytest.param(at_most_by_default, ["Use at most 7 words."], id="a default"),
        pytest.param(partial(at_most_by_default, most=3), ["Use at most 3 words."], id="a partial function"),
        pytest.param(with_a_list_of_problems, ["Begin with a salutation.", "Mention the price."],
                     id="collected problems"),
        pytest.param(with_an_issue, ["Write one line.", "Mention the tea."], id="issues and assertions"),
        pytest.param(with_a_complaint, ["Avoid this: There are too many commas."], id="a complaint"),
        pytest.param(with_praise, ["Leave out the letter c.", "Write small letters."], id="praise"),
        pytest.param(lambda text: ("x" in text, "Well done." if "x" in text else "Mention the letter x."),
                     ["Mention the letter x."], id="praise in a lambda"),
        pytest.param(lambda text: ("x" in text, "Mention the letter x."), ["Mention the letter x."],
                     id="a lambda"),
        pytest.param(lambda text: {"score": 1.0 if text else 0.5, "reason": "Fine." if text else "Write on."},
                     ["Write on."], id="praise and a score"),
        pytest.param(lambda text: (not text, "; ".join(["Use a comma.", *(["Use a dot."] if text else [])])),
                     ["Use a comma.", "Use a dot."], id="joined messages"),
        pytest.param(lambda text: (not text, ["Use a comma."] + (["Use a dot."] if text else [])),
                     ["Use a comma.", "Use a dot."], id="added lists"),
        pytest.param(lambda text: (not text, "Use a comma. " + ("Use a dot, not " + text)),
                     ["Use a comma. Use a dot."], id="an added text"),
        pytest.param(lambda text: (not text, "Use 5%% of it; %r is more." % text),  # noqa: UP031 (still written)
                     ["Use 5% of it."], id="a text formatted with %"),
        pytest.param(lambda text: (not text, "Use a comma; {text!r} has none.".format(text=text)),  # noqa: UP032 (as above)
                     ["Use a comma."], id="a formatted text"),
        pytest.param(of_so_many_lines(3), ["Write exactly 3 lines."], id="a number that is counted"),
        pytest.param(equals("the answer"), [], id="an expected text"),
        pytest.param(equals_a_number(42), [], id="an expected number"),
        pytest.param(with_a_secret_word, [], id="texts that are no messages"),
        pytest.param(eval("lambda text: (False, 'No source.')"), [], id="no source"),  # noqa: S307
        pytest.param(len, [], id="built in"),
        pytest.param(with_a_changed_default, [], id="a default that is changed"),
        pytest.param(with_a_reason_in_parts, [], id="parts that go on after a value"),
        pytest.param(Unhashable(3), [], id="an object"),
        pytest.param(Unhashable(3).check, ["Use no long words."], id="a method"),
    ],
)  # fmt: skip
def test_of_a_function_its_messages_are_stated_without_what_it_compares_with(function, expected):
    assert lines_of(criterion("function", function=function)) == expected


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (criterion("words", "At most 15 words.", at_most=15), ["check: At most 15 words."]),
        (criterion("words", "No more than ten words", at_most=10), ["check: No more than ten words"]),
        (criterion("words", "Be brief.", at_most=15), ["check: Be brief.", "The text has at most 15 words."]),
        (criterion("words", "Up to 12 words.", at_least=3, at_most=12),
         ["check: Up to 12 words.", "The text has 3 to 12 words."]),
        (criterion("regex", "It begins with SALE.", pattern="^SALE"), ["check: It begins with SALE."]),
        (criterion("regex", "A greeting first.", pattern="^Dear "),
         ["check: A greeting first.", 'The text begins with "Dear ".']),
        (criterion("regex", "No prices.", pattern="EUR", must_match=False), ["check: No prices."]),
        (criterion("schema", "An order.", schema={"required": ["sku"]}),
         ["check: An order.", "One JSON object.", 'The key "sku" is required.']),
        (criterion("function", "Polite.", function=no_shouting), ["check: Polite."]),
        (criterion("command", calls=[["f(1)", 2]]), []),
        (criterion("command", tests="assert f(1) == 2"), []),
        (criterion("command", "It adds one.", calls=[["f(1)", 2]]), ["check: It adds one."]),
        (QualityCriterion("clarity"), ["clarity"]),
    ],
)  # fmt: skip
def test_a_description_comes_first_and_its_repetitions_are_omitted(check, expected):
    assert lines_of(check) == expected


def test_of_a_large_object_among_several_only_the_keys_and_constants_are_stated():
    keys = {f"number_{n}": {"type": "integer"} for n in range(9)}
    large = {"properties": {"kind": {"const": "large"}, **keys}, "required": ["kind", *keys]}
    *_, stated = lines_of(criterion("schema", schema={"anyOf": [CAT, large]}))
    assert stated.startswith('It may be an object with the keys "kind" ("large"), "number_0", "number_1", ')


def test_a_schema_that_refers_to_itself_is_stated_twice():
    tree = {"type": "object", "properties": {"of": {"type": "array", "items": {"$ref": "#/$defs/T"}}}}
    assert lines_of(criterion("schema", schema={"$ref": "#/$defs/T", "$defs": {"T": tree}})) == [
        "One JSON object.",
        'The key "of" holds a list.',
        'Each item of "of" is an object.',
        'The key "of" of each item of "of" holds a list.',
    ]


def test_the_error_of_a_configuration_names_its_criterion():
    with pytest.raises(ConfigError, match="Criterion 'check': calls must be a list"):
        rubric_of([criterion("command", calls=[])])


def test_equal_requirements_of_several_criteria_are_stated_once():
    keys = [
        QualityCriterion(key, evaluator="schema", evaluator_config={"schema": {"required": [key]}})
        for key in ("a", "b")
    ]
    assert lines_of(*keys) == ["One JSON object.", 'The key "a" is required.', 'The key "b" is required.']


OBJECT = {"type": "object", "required": ["a"]}


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ([criterion("schema", schema=OBJECT), criterion("words", at_most=9)], OBJECT),
        ([criterion("schema", schema=Order)], Order.model_json_schema()),
        ([criterion("schema", schema=OBJECT, shown=False)], None),
        ([criterion("schema", "An a.", schema=OBJECT, shown="description")], None),
        ([criterion("schema", schema=OBJECT, path="/a")], None),
        ([criterion("schema", schema={"type": "array"})], None),
        ([criterion("schema", schema={"required": ["a"]})], None),
        ([criterion("schema", schema=True)], None),
        ([criterion("schema", schema=OBJECT)] * 2, None),
        ([criterion("words", at_most=9)], None),
    ],
)
def test_the_schema_of_a_whole_answer_is_that_of_the_only_schema_criterion(criteria, expected):
    assert answer_schema(criteria) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("result = {'valid': False, 'errors': ['Use no commas.']}", ("Use no commas.",)),
        ("if ',' in output:\n    return (False, 'Use no commas.')\nreturn True", ("Use no commas.",)),
        ("ok = 'a secret word' in output\nresult = ok", ()),
        (f"x = {' + '.join(['1'] * 500)}\nresult = False, 'Use no commas.'", ("Use no commas.",)),
        ("result = (", ()),
        ("", ()),
    ],
    ids=["result", "return", "no message", "deep", "broken", "empty"],
)
def test_of_code_its_messages_are_stated(code, expected):
    assert requirements_in(code) == expected
