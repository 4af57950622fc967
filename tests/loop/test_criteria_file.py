from dataclasses import replace

import pytest

from redraft import ConfigError, QualityCriterion
from redraft.evaluate.checks import function_of
from redraft.evaluate.criteria import criteria_of
from redraft.loop.criteria_file import read_criteria


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "c.yaml"
        path.write_text(text, "utf-8")
        return read_criteria(path)

    return read


def test_a_list_of_criteria(read):
    file = read("- clarity\n- Names the price.\n- {name: cites, evaluator: regex, config: {pattern: x}}\n")
    assert [criterion.name for criterion in file.criteria] == ["clarity", "Names the price.", "cites"]
    assert file.criteria[2].evaluator_config == {"pattern": "x"}
    assert (file.task, file.task_type, file.threshold) == ("", "", 0.8)


def test_a_mapping_with_task_and_threshold(read):
    file = read(
        "task: Write.\ntask_type: writing\nthreshold: 1\n"
        "criteria:\n"
        "  - name: size\n    description: short\n    weight: 2\n    threshold: 0.5\n    evaluator: regex\n"
        "    evaluator_config: {pattern: a}\n    gate: true\n"
    )
    assert file.criteria == (QualityCriterion("size", "short", 2, 0.5, "regex", {"pattern": "a"}, True),)
    assert (file.task, file.task_type, file.threshold) == ("Write.", "writing", 1.0)


def test_how_the_model_judges(read):
    file = read("judge_samples: 3\njudge_margin: 1\naccept: pairwise\ncriteria: [clear]")
    assert file.judging == {"judge_samples": 3, "judge_margin": 1, "accept": "pairwise"}
    assert read("[clear]").judging == {}


def test_a_generated_criterion_is_met_from_half_on(read):
    made, *_ = read("- {name: b, origin: generated, threshold: 1}").criteria
    assert (made.origin, made.threshold) == ("generated", 0.5)


def test_a_function_is_described_by_its_docstring(read, tmp_path):
    (tmp_path / "docstring_rules.py").write_text(
        'def no_todo(text):\n    """Check that no TODO is left.\n\n    More."""\n    return True\n', "utf-8"
    )
    own, given = read(
        "- {name: no todo, evaluator: function, config: {function: 'docstring_rules:no_todo'}}\n"
        "- {name: b, description: Mine., evaluator: function, config: {function: 'docstring_rules:no_todo'}}"
    ).criteria
    assert (own.description, given.description) == ("No TODO is left.", "Mine.")
    function = function_of(own)
    [own] = criteria_of([replace(own, description="", evaluator_config={"function": function})])
    assert own.description == criteria_of([function])[0].description == "No TODO is left."


def test_a_task_type_alone_takes_its_default_criteria(read):
    assert read("task_type: writing").criteria[0].name == "clarity"


def test_empty_entries_are_ignored(read):
    assert read("task:\ncriteria: [clear]").task == ""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "- {name: a, weigth: 2, gate: 1}\n- clear\n- description: x\n- {name: b, threshold: 2}",
            [1, 1, 3, 4],
        ),
        ("criterias: [a]\nthreshold: high\ncriteria:\n- 7\n- ''", [1, 2, 4, 5]),
        ("threshold: 9\njudge_samples: 0\naccept: x\noutput_type: no.json\ncriteria:\n- 7", [1, 2, 3, 4, 6]),
    ],
)
def test_all_mistakes_are_reported_at_once(read, tmp_path, text, lines):
    with pytest.raises(ConfigError) as caught:
        read(text)
    found = str(caught.value).splitlines()
    assert [one.partition(": ")[0] for one in found] == [f"{tmp_path / 'c.yaml'}, line {n}" for n in lines]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty; expected a list of criteria"),
        ("# later\n", 1, "the file is empty; expected a list of criteria"),
        ("7", 1, "expected a list of criteria"),
        ("task: x", 1, "expected 'criteria'"),
        ("criteria: []", 1, "empty"),
        ("task: x\ncriterias: [a]", 2, "unknown key 'criterias'; did you mean 'criteria'?"),
        ("threshold: 9\ncriteria: [a]", 1, "threshold must be in 0..1, got 9"),
        ("criteria: [a]\nthreshold: true", 2, "'threshold' must be a number, got True"),
        ("criteria: [a]\njudge_samples: 0", 2, "judge_samples must be a whole number of at least 1, got 0"),
        ("criteria: [a]\njudge_samples: many", 2, "'judge_samples' must be a whole number, got 'many'"),
        ("judge_margin: -1\ncriteria: [a]", 1, "judge_margin must be a number of at least 0, got -1"),
        ("criteria: [a]\naccept: pair", 2, "accept: unknown value 'pair'; did you mean 'pairwise'?"),
        ("criteria: a", 1, "'criteria' must be a list, got 'a'"),
        ("- clear\n- 7", 2, "a criterion must be a sentence, a name or a mapping, got 7"),
        ("- clear\n- ''", 2, "a criterion must be a sentence"),
        ("- description: x", 1, "the criterion has no 'name'"),
        ("- name: a\n  weigth: 2", 2, "unknown key 'weigth'; did you mean 'weight'?"),
        ("- name: a\n  weight: much", 2, "'weight' must be a number, got 'much'"),
        ("- name: a\n  weight: 1000001", 1, "weight must be a number in 0..1,000,000, got 1000001"),
        ("- name: a\n  gate: 1", 2, "'gate' must be true or false, got 1"),
        ("- a\n- name: b\n  threshold: 2", 2, "threshold must be a number in 0..1, got 2"),
        ("- a\n- name: b\n  origin: generate", 2, "unknown value 'generate'; did you mean 'generated'?"),
        (
            "- {name: b, evaluator: words, config: {at_most: 9}, origin: generated, gate: true}",
            1,
            "be a gate",
        ),
        ("- a\n- name: b\n  evaluator: regx", 2, "unknown evaluator 'regx'; did you mean 'regex'?"),
        ("- a\n- name: b\n  evaluator: examples", 2, "unknown evaluator 'examples'; list the examples as"),
        ("- a\n- name: b\n  evaluator: regex\n  config: {pattern: (}", 4, "does not compile"),
        (
            "- name: b\n  evaluator: words\n  config:\n    at_least: 1\n    at_mots: 9",
            5,
            "words has no option 'at_mots'",
        ),
        ("- name: b\n  evaluator: words\n  evaluator_config:\n    at_most: x", 4, "at_most"),
        ("- name: b\n  config: {}\n  evaluator_config: {}", 2, "are the same; give one"),
        ("- a\n- a", 1, "'a'; names must be unique"),
        ("- [a", 2, "did not find expected"),
        ("a: 1\na: 2", 2, "duplicate key"),
    ],
)
def test_a_mistake_is_reported_with_its_line(read, text, line, message):
    with pytest.raises(ConfigError) as error:
        read(text)
    assert f"c.yaml, line {line}: " in str(error.value)
    assert message in str(error.value)


def test_an_unreadable_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.yaml' cannot be read: No such file"):
        read_criteria(tmp_path / "no.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        read_criteria(tmp_path / "b.yaml")


def test_a_weight_of_0_is_allowed(read):
    assert read("- a\n- {name: b, weight: 0, evaluator: regex, config: {pattern: x}}").criteria[1].weight == 0
