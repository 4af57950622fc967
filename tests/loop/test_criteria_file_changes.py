"""Criteria that are added to a file: the rest of it stays as it is."""

import pytest

from redraft import ConfigError, QualityCriterion
from redraft.loop.criteria_file import add_criteria, read_criteria

SHORT = QualityCriterion("Has at most 9 words", evaluator="words", evaluator_config={"at_most": 9})
ADDED = "  - name: Has at most 9 words\n    evaluator: words\n    config:\n      at_most: 9\n"

FLUSH = ADDED.replace("\n  ", "\n").removeprefix("  ")
FLOW = '{"name": "Has at most 9 words", "evaluator": "words", "config": {"at_most": 9}}'
BLOCK = "criteria:\n  - name: long\n    description: |\n      Says it all.\n\n"

FILES = [
    ("", f"criteria:\n{ADDED}"),
    ("criteria:\n  - Is kind.\n", f"criteria:\n  - Is kind.\n{ADDED}"),
    ("criteria:\n  - Is kind.", f"criteria:\n  - Is kind.\n{ADDED}"),
    (
        "criteria:\n- Is kind. # yes\n\n# end\nthreshold: 1\n",
        f"criteria:\n- Is kind. # yes\n{FLUSH}\n# end\nthreshold: 1\n",
    ),
    ("# ours\n- Is kind.\n", f"# ours\n- Is kind.\n{FLUSH}"),
    ("criteria: [clarity]  # one\nthreshold: 1\n", f"criteria: [clarity, {FLOW}]  # one\nthreshold: 1\n"),
    (f"{BLOCK}threshold: 1\n", f"{BLOCK}{ADDED}threshold: 1\n"),
    ("criteria:\r\n  - Is kind.\r\n", f"criteria:\n  - Is kind.\n{ADDED}".replace("\n", "\r\n")),
    ("\ufeffcriteria:\n  - Is kind.\n", f"\ufeffcriteria:\n  - Is kind.\n{ADDED}"),
]


@pytest.mark.parametrize(("before", "after"), FILES)
def test_a_criterion_is_appended(before, after, tmp_path):
    path = tmp_path / "criteria.yaml"
    path.write_bytes(before.encode())
    known = read_criteria(path).criteria if before else ()
    assert add_criteria(path, [SHORT]) == [SHORT]
    assert path.read_bytes().decode() == after
    assert read_criteria(path).criteria == (*known, SHORT)
    assert add_criteria(path, [SHORT]) == []
    assert path.read_bytes().decode() == after


def test_a_link_to_a_file_stays(tmp_path):
    (tmp_path / "real.yaml").write_text("- Is kind.\n")
    path = tmp_path / "criteria.yaml"
    path.symlink_to("real.yaml")
    add_criteria(path, [SHORT])
    assert path.is_symlink()
    assert SHORT in read_criteria(tmp_path / "real.yaml").criteria


def test_a_name_that_is_taken_gets_a_number(tmp_path):
    path = tmp_path / "criteria.yaml"
    path.write_text("criteria:\n  - {name: Has at most 9 words, evaluator: words, config: {at_most: 8}}\n")
    assert [criterion.name for criterion in add_criteria(path, [SHORT])] == ["Has at most 9 words (2)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task_type: writing\n", "default criteria of its task_type"),
        ("criteria: nonsense\n", "must be a list"),
        ("criteria: &all\n  - Is kind.\nother: *all\n", "unknown key"),
    ],
)
def test_a_file_that_takes_no_criterion_stays_as_it_is(text, message, tmp_path):
    path = tmp_path / "criteria.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        add_criteria(path, [SHORT])
    assert path.read_text() == text


def test_a_folder_in_its_place_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        add_criteria(tmp_path, [SHORT])
