import asyncio
import re
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import pytest
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from redraft import ReflectionPattern
from redraft._critique import render_issue
from redraft._texts import shortfalls
from redraft.errors import ConfigError
from redraft.evaluate.criteria import (
    ANALYSIS,
    CODE_GENERATION,
    DEFAULTS,
    GENERAL,
    OTHERS,
    REASONING,
    WRITING,
    criteria_of,
    shortfall,
)
from redraft.evaluate.requirements import requirement_lines
from redraft.types import QualityCriterion, ReflectionEvaluation, unasked_text


@pytest.mark.parametrize(
    ("task_type", "names"),
    [
        ("code_generation", ["correctness", "efficiency", "readability", "edge_cases"]),
        ("Code Generation", ["correctness", "efficiency", "readability", "edge_cases"]),
        ("writing", ["clarity", "coherence", "completeness", "tone"]),
        ("analysis", ["accuracy", "depth", "relevance", "objectivity"]),
        ("reasoning", ["logical_validity", "completeness", "clarity"]),
        ("", ["correctness", "completeness", "clarity"]),
        ("gardening", ["correctness", "completeness", "clarity"]),
    ],
)
def test_default_criteria_of_a_task_type(task_type, names):
    criteria = criteria_of(None, task_type)
    assert [criterion.name for criterion in criteria] == names
    assert all(criterion.evaluator == "llm" for criterion in criteria)


@pytest.mark.parametrize("texts", [*DEFAULTS.values(), GENERAL, OTHERS])
def test_every_default_describes_good_and_bad(texts):
    assert all("Good: " in text and "Bad: " in text for text in texts.values())


@pytest.mark.parametrize(
    ("given", "task_type", "name", "description"),
    [
        ("clarity", "writing", "clarity", WRITING["clarity"]),
        ("clarity", "reasoning", "clarity", REASONING["clarity"]),
        ("clarity", "", "clarity", GENERAL["clarity"]),
        ("correctness", "code_generation", "correctness", CODE_GENERATION["correctness"]),
        ("correctness", "", "correctness", GENERAL["correctness"]),
        ("efficiency", "writing", "efficiency", CODE_GENERATION["efficiency"]),
        ("Edge Cases", "", "Edge Cases", CODE_GENERATION["edge_cases"]),
        ("accuracy", "writing", "accuracy", ANALYSIS["accuracy"]),
        ("engagement", "", "engagement", OTHERS["engagement"]),
        ("structure", "", "structure", OTHERS["structure"]),
        ("Under 80 words", "", "Under 80 words", "Under 80 words"),
        (" Cites a source. ", "", "Cites a source.", "Cites a source."),
        ("Warm.", "", "Warm.", "Warm."),
        ("Clarity.", "", "Clarity.", GENERAL["clarity"]),
        (QualityCriterion("clarity", weight=1.5), "", "clarity", GENERAL["clarity"]),
        (QualityCriterion("clarity", "mine"), "", "clarity", "mine"),
        (QualityCriterion("clarity", evaluator="regex"), "", "clarity", ""),
        (QualityCriterion("clarity", evaluator="compare"), "", "clarity", GENERAL["clarity"]),
    ],
)
def test_names_and_sentences_are_described(given, task_type, name, description):
    (criterion,) = criteria_of([given], task_type)
    assert (criterion.name, criterion.description) == (name, description)
    if isinstance(given, QualityCriterion):
        assert (criterion.weight, criterion.evaluator) == (given.weight, given.evaluator)


def is_short(text):
    """Return whether the text has at most five words.

    White space separates words.
    """
    return len(text.split()) <= 5, "Use at most five words."


async def share_of_links(text):
    return 0.5


class Rhymes:
    def __call__(self, text):
        return True

    def with_tea(self, text):
        """Says tea."""
        return "tea" in text


class Order(BaseModel):
    quantity: int = Field(gt=0)


@dataclass
class Parcel:
    weight: float


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def check(cls, number):
        """JSON Schema can't say this."""
        if number % 2:
            raise ValueError("odd")
        return number


class Basket(TypedDict):
    apples: int


SHORT = "The text has at most five words."


@pytest.mark.parametrize(
    ("given", "name", "description", "evaluator", "config"),
    [
        (is_short, "is_short", SHORT, "function", None),
        (partial(is_short), "is_short", SHORT, "function", None),
        (share_of_links, "share_of_links", "", "function", None),
        (RHYMES := Rhymes(), "Rhymes", "", "function", None),
        (RHYMES.with_tea, "with_tea", "Says tea.", "function", None),
        (re.compile(r"\[\d+\]"), r"matches \[\d+\]", "", "regex", {"pattern": r"\[\d+\]"}),
        (re.compile("(?i)tea"), "matches tea (i)", "", "regex", {"pattern": "tea", "flags": "i"}),
        (re.compile("^a b$", re.MULTILINE | re.DOTALL), "matches ^a b$ (ms)", "", "regex",
         {"pattern": "^a b$", "flags": "ms"}),
        (re.compile("a  # one\n b", re.VERBOSE), "matches a # one b (x)", "", "regex",
         {"pattern": "a  # one\n b", "flags": "x"}),
        (Order, "Order", "", "schema", {"schema": Order}),
        (Parcel, "Parcel", "", "schema", {"schema": Parcel}),
        (Basket, "Basket", "", "schema", {"schema": Basket}),
        (list[Order], "list[Order]", "", "schema", {"schema": list[Order]}),
        ({"type": "object"}, "JSON Schema", "", "schema", {"schema": {"type": "object"}}),
        (MappingProxyType({"title": "Order", "type": "object"}), "Order", "", "schema",
         {"schema": {"title": "Order", "type": "object"}}),
    ],
)  # fmt: skip
def test_a_short_form_is_a_check(given, name, description, evaluator, config):
    [criterion] = criteria_of([given])
    config = {"function": given} if config is None else config
    assert criterion == QualityCriterion(name, description, evaluator=evaluator, evaluator_config=config)


@pytest.mark.parametrize(
    ("given", "output", "score"),
    [
        (is_short, "Drink tea.", 1.0),
        (is_short, "Drink tea with your friends often.", 0.0),
        (share_of_links, "tea", 0.5),
        (re.compile("tea"), "Drink tea.", 1.0),
        (re.compile("tea"), "Drink TEA.", 0.0),
        (re.compile("TEA", re.IGNORECASE), "Drink tea.", 1.0),
        (Order, '{"quantity": 2}', 1.0),
        (Order, '```json\n{"quantity": 2}\n```', 1.0),
        (Order, Order(quantity=2), 1.0),
        (Even, '{"number": 3}', 0.0),
        (Even, '{"number": 4}', 1.0),
        (Parcel, '{"weight": "heavy"}', 0.0),
        (list[Order], '[{"quantity": 2}, {"quantity": 0}]', 0.0),
        ({"type": "object", "required": ["quantity"]}, '{"quantity": 2}', 1.0),
        ({"type": "object", "required": ["quantity"]}, "two", 0.0),
    ],
)
def test_a_short_form_judges(given, output, score):
    evaluation = asyncio.run(ReflectionPattern().reflect(output, [given]))
    assert evaluation.overall_score == score


def test_short_forms_have_requirements():
    assert list(requirement_lines(criteria_of([is_short, re.compile("tea"), Order]))) == [
        "is_short: The text has at most five words.",
        'The text contains "tea".',
        "One JSON object.",
        'The key "quantity" is required and holds a whole number (above 0).',
    ]


def test_unknown_name_is_described():
    (criterion,) = criteria_of(["user_delight"])
    assert "user delight" in criterion.description
    assert "Good: " in criterion.description


def test_long_sentence_is_shortened_only_as_a_name():
    sentence = "The text never " + "ever " * 40 + "lies."
    (criterion,) = criteria_of([sentence])
    assert criterion.description == sentence
    assert len(criterion.name) <= 80
    assert criterion.name.endswith("ever...")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "empty"),
        (["clarity", "clarity"], "Duplicate criterion 'clarity'"),
        (["clarity", QualityCriterion("clarity", evaluator="regex")], "Duplicate criterion"),
        ([QualityCriterion("a", weight=0), QualityCriterion("b", weight=0.0)], "weight of 0"),
        ([True], "got True"),
        ([1], "got 1"),
        ([None], "got None"),
        ([{"name": "clarity"}], r"got {'name': 'clarity'}\. Anything else is written as QualityCriterion"),
        (
            ["rules/criteria.yaml"],
            r"name of a file, .*loop.read_criteria\('rules/criteria.yaml'\)",
        ),
        ("clarity", "must be a list"),
        (QualityCriterion("clarity"), "must be a list"),
        (7, "must be a list"),
        (re.compile("x"), "must be a list"),
        (is_short, r"must be a list, got <function is_short.*; put a single criterion in brackets"),
        ({"type": "object"}, "must be a list"),
        ([{}], "a JSON Schema, with a key such as 'type'"),
        ([re.compile(b"x")], "must match text, not bytes"),
        ([re.compile(r"\d", re.ASCII)], r"re\.ASCII can't be used"),
        ([lambda text: True], "A lambda has no name to call the criterion by"),
        ([str], r"must be a pydantic model, a data class or a TypedDict, .* got <class 'str'>"),
        ([is_short, is_short], "Duplicate criterion 'is_short'; names must be unique: QualityCriterion"),
        ([{"type": "object"}, {"type": "array"}], "Duplicate criterion 'JSON Schema'"),
        ([""], "needs a name"),
        (["  "], "needs a name"),
    ],
)
def test_invalid_criteria(given, message):
    with pytest.raises(ConfigError, match=message):
        criteria_of(given)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("tone", "tone"),
        ("Says why the change was made.", "'Says why the change was made.'"),
        ("Short.", "'Short.'"),
        (r"matches ^\d", r"'matches ^\d'"),
    ],
)
def test_the_name_of_a_criterion_is_quoted_if_it_is_no_word(name, written):
    criterion = QualityCriterion(name)
    issue = shortfall(criterion, 0.2)
    assert issue.message == f"{written} scored 0.20, needs 0.70"
    assert render_issue(issue) == issue.message
    evaluation = ReflectionEvaluation(0.2, criteria_scores={name: 0.2})
    assert shortfalls(evaluation, 0.8, {name: 0.7}) == ("the score 0.20 < 0.80", f"{written} 0.20 < 0.70")
    unasked = ReflectionEvaluation(0.2, criteria_scores={name: None, "why": None}, failed_gates=("dated",))
    assert unasked_text(unasked) == f"not asked: {written}, why (gate dated not met)"
    assert shortfalls(unasked, None, {"why": 0.7}) == ("why was not asked (gate dated not met)",)
