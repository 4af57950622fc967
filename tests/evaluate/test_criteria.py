from __future__ import annotations

import pytest

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
)
from redraft.types import QualityCriterion


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
        ([{"name": "clarity"}], "got {'name'"),
        ("clarity", "must be a list"),
        (QualityCriterion("clarity"), "must be a list"),
        (7, "must be a list"),
        ([""], "needs a name"),
        (["  "], "needs a name"),
    ],
)
def test_invalid_criteria(given, message):
    with pytest.raises(ConfigError, match=message):
        criteria_of(given)
