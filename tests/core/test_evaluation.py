import copy
import json
import pickle

import pytest
from pydantic import TypeAdapter, ValidationError

from redraft import Issue, ReflectionEvaluation
from redraft.core.codec import from_json, from_record, to_json, to_record

PLACED = Issue("'due' is missing", "shape", "/orders/0", 3)


def places(issue):
    return str(issue), issue.message, issue.criterion, issue.path, issue.line


def test_an_issue_is_its_message():
    issues = ReflectionEvaluation(0.5, issues=(PLACED, "too long")).issues
    assert ", ".join(issues) == "'due' is missing, too long"
    assert "too long" in issues
    assert "'due' is missing" in issues
    assert "due" in PLACED
    assert {"'due' is missing": 1}[PLACED] == 1
    assert json.dumps(issues) == '["\'due\' is missing", "too long"]'


def test_printing_issues_shows_their_texts():
    assert f"{PLACED}" == "'due' is missing"
    assert f"{(Issue('a', path='/b'), Issue('c'))}" == "('a', 'c')"


@pytest.mark.parametrize(
    "through",
    [
        copy.copy,
        copy.deepcopy,
        lambda issue: pickle.loads(pickle.dumps(issue)),  # noqa: S301 (our own bytes)
        lambda issue: from_json(Issue, json.loads(json.dumps(to_json(issue)))),
        lambda issue: from_record(Issue, json.loads(json.dumps(to_record(issue)))),
        lambda issue: TypeAdapter(Issue).validate_json(TypeAdapter(Issue).dump_json(issue)),
        lambda issue: ReflectionEvaluation(0.5, issues=(issue,)).issues[0],
    ],
)
def test_an_issue_keeps_its_place(through):
    kept = through(PLACED)
    assert type(kept) is Issue
    assert places(kept) == places(PLACED) == ("'due' is missing", "'due' is missing", "shape", "/orders/0", 3)


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ("'due' is missing", True),
        (Issue("'due' is missing", "shape", "/orders/0", 3), True),
        (Issue("'due' is missing", "shape", "/orders/1", 3), False),
        (Issue("'due' is missing", "form", "/orders/0", 3), False),
        (Issue("'due' is missing", "shape", "/orders/0", 4), False),
        ("something else", False),
        (3, False),
    ],
)
def test_equal_are_the_same_words_about_the_same_place(other, equal):
    assert (PLACED == other) is (other == PLACED) is equal  # noqa: SIM300 (both ways round)
    assert (other != PLACED) is not equal
    assert not equal or hash(other) == hash(PLACED)


@pytest.mark.parametrize("name", ["message", "criterion", "path", "line", "more"])
def test_an_issue_does_not_change(name):
    with pytest.raises(AttributeError):
        setattr(PLACED, name, "other")


def test_kept_records_leave_out_what_is_not_known():
    assert to_record(Issue("a", line=3)) == {"message": "a", "line": 3}
    assert to_json(Issue("a", line=3)) == {"message": "a", "criterion": None, "path": None, "line": 3}


@pytest.mark.parametrize("data", [3, {"criterion": "a"}, {"message": "a", "line": "x"}, None])
def test_what_is_no_issue_is_not_read_as_one(data):
    with pytest.raises(ValidationError):
        from_json(Issue, data)
