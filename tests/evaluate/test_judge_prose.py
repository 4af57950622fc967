"""Verdicts in prose: what counts as a score, an issue and a suggestion."""

import time

import pytest

from redraft.evaluate.judge_prose import read_prose

LONG = 20_000


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("0.85", 0.85),
        ("1", 1.0),
        (".5", 0.5),
        ("0.9/1.0", 0.9),
        ("9/10", 0.9),
        ("9 out of 10", 0.9),
        ("90%", 0.9),
        ("90 %", 0.9),
        ("0.85 (good)", 0.85),
        ("85/100 (2 flaws)", 0.85),
        ("0.85 - good", 0.85),
        ("0.85, mostly clear", 0.85),
        ("**0.85**", 0.85),
        ("0.85.", 0.85),
        ("85", None),
        ("7 (of ten)", None),
        ("11/10", None),
        ("5/0", None),
        ("120%", None),
        ("-0.5", None),
        ("0.8 to 0.9", None),
        ("0.8-0.9", None),
        ("0.8/", None),
        ("0.8.5", None),
        ("good (0.85)", None),
        ("nan", None),
        ("", None),
    ],
)
def test_scores_in_prose(said, score):
    criteria = read_prose(f"So so.\nclarity: {said}\nConfidence: 0.9", ["clarity"])["criteria"]
    assert criteria == ({} if score is None else {"clarity": {"score": score}})


@pytest.mark.parametrize(
    ("lines", "score"),
    [
        ("clarity: 0.8\nClarity: 80% (good)", 0.8),
        ("clarity: 1.0\nclarity: 0.1", None),
        ("clarity: 1.0\nclarity: very low", None),
        ("<think>\nclarity: 0.2\n</think>\nclarity: 0.8", 0.8),
        ("<think>\nclarity: 0.2", None),
    ],
)
def test_contradictory_scores_are_none(lines, score):
    assert read_prose(lines, ["clarity"])["criteria"].get("clarity", {}).get("score") == score


def test_confidence_in_prose():
    assert read_prose("Confidence: 90% (fairly sure)", [])["confidence"] == 0.9


@pytest.mark.parametrize(
    ("section", "issues"),
    [
        ("Issues:\n- a\n- [tone] b", [("a", ""), ("b", "tone")]),
        ("Issues:\n1. a\n2) [tone] b", [("a", ""), ("b", "tone")]),
        ("Issues:\n• a\n\n• b", [("a", ""), ("b", "")]),
        ("Issues:\n- a long one\n  that is wrapped\n- b", [("a long one that is wrapped", ""), ("b", "")]),
        ("Issues:\n- a long one\nthat is wrapped\n- b", [("a long one that is wrapped", ""), ("b", "")]),
        ("Issues:\n- a\n\nAll in all it is fine.\n- c", [("a", "")]),
        ("Issues:\n- a\nclarity: 0.8\n- c", [("a", "")]),
        ("Issues:\n- a\nConfidence: 0.8", [("a", "")]),
        ("Issues:\n- a\nSuggestions:\n- c", [("a", "")]),
        ("Issues:\n- None", []),
        ("Issues:\n1. none.", []),
        ("Issues:\n- No issues found.", []),
        ("Issues:\n- N/A", []),
        ("Issues: none", []),
        ("**Issues:** None.", []),
        ("Issues: too long", [("too long", "")]),
        ("## Issues\n- a", [("a", "")]),
        ("Issues:\n- None of the names are explained", [("None of the names are explained", "")]),
        ("Issues remain.\n- a", []),
    ],
)
def test_issues_in_prose(section, issues):
    found = read_prose(f"So so.\nclarity: 0.5\n{section}", ["clarity"])["issues"]
    assert [(issue["message"], issue["criterion"]) for issue in found] == issues


def test_suggestions_in_prose():
    assert read_prose("Suggestions:\n1. cut\n   it\n2. None", [])["suggestions"] == ["cut it"]


@pytest.mark.parametrize(
    "text",
    [
        f"clarity: {' ' * LONG}x{' ' * LONG}y",
        f"clarity: {'*' * LONG}x{'*' * LONG}y",
        f"clarity{' ' * LONG}x",
        f"Issues:\n- {' ' * LONG}x{' ' * LONG}y",
        f"Issues:\n- {'[' * LONG}",
        "Issues:\n" * LONG,
        f"clarity: {'9' * LONG}/",
        f"clarity: 0.5{' ' * LONG}x{' ' * LONG}1",
        "Issues:\n- a\n" + "b\n" * LONG,
        f"Issues:\n{'1' * LONG}",
        f"Issues{' ' * LONG}x{' ' * LONG}",
    ],
)
def test_repetitive_reply_is_parsed_quickly(text):
    started = time.process_time()
    assert read_prose(text, ["clarity"])["criteria"] == {}
    assert time.process_time() - started < 1
