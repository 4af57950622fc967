from __future__ import annotations

import time

import pytest

from redraft.text.diff import ABSENT, FieldChange, field_diff, hunks, similarity, word_diff


@pytest.mark.parametrize(
    ("old", "new", "pieces"),
    [
        ("", "", []),
        ("same text", "same text", [("=", "same text")]),
        ("", "new", [("+", "new")]),
        ("old", "", [("-", "old")]),
        ("a red fox", "a blue fox", [("=", "a "), ("-", "red"), ("+", "blue"), ("=", " fox")]),
        ("one, two", "one; two", [("=", "one"), ("-", ","), ("+", ";"), ("=", " two")]),
        ("end", "end\n", [("=", "end"), ("+", "\n")]),
        ("über alles", "über nichts", [("=", "über "), ("-", "alles"), ("+", "nichts")]),
    ],
)
def test_word_diff(old, new, pieces):
    assert word_diff(old, new) == pieces


@pytest.mark.parametrize("words", [10, 30_000, 400_000])
def test_pieces_reassemble_both_texts(words):
    old = "\n".join(f"line {i}" for i in range(words // 2))
    new = old.replace("line 3\n", "another line\n") + "\nlast"
    started = time.process_time()
    pieces = word_diff(old, new)
    assert time.process_time() - started < 10
    assert "".join(text for op, text in pieces if op != "+") == old
    assert "".join(text for op, text in pieces if op != "-") == new


@pytest.mark.parametrize(
    ("old", "new", "share"),
    [
        ("", "", 1.0),
        ("a b c d", "a b c d", 1.0),
        ("a b c d", "a  b\nc d", 1.0),
        ("a b c d", "w x y z", 0.0),
        ("a b c d", "a b y z", 0.5),
        ("a", "", 0.0),
        ("x " * 15_000, "x\n" * 15_000, 0.0),  # compared line by line
    ],
)
def test_similarity(old, new, share):
    assert similarity(old, new) == share


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [FieldChange("/a", 1, 2)]),
        ({"a": 1, "b": 2}, {"c": 3}, [("/a", 1, ABSENT), ("/b", 2, ABSENT), ("/c", ABSENT, 3)]),
        ([1, 2], [1, 2, 3], [("/2", ABSENT, 3)]),
        ({"x": {"y": [0, {"z": "old"}]}}, {"x": {"y": [0, {"z": "new"}]}}, [("/x/y/1/z", "old", "new")]),
        ({"a/b~": 1}, {"a/b~": 2}, [("/a~1b~0", 1, 2)]),
        ({"a": [1]}, {"a": {"0": 1}}, [("/a", [1], {"0": 1})]),
        ({"a": None}, {}, [("/a", None, ABSENT)]),
        (1, True, [("", 1, True)]),
        (1, 1.0, []),
        ("x", "x", []),
    ],
)
def test_field_diff(old, new, changes):
    assert field_diff(old, new) == [
        change if isinstance(change, FieldChange) else FieldChange(*change) for change in changes
    ]


def test_field_diff_of_deep_values():
    old, new = 1, 2
    for _ in range(5_000):
        old, new = [old], [new]
    assert field_diff(old, new) == [FieldChange("/0" * 5_000, 1, 2)]


def flat(parts):
    return [
        part
        if isinstance(part, int)
        else "|".join("".join(f"{op}{text}" for op, text in line) for line in part)
        for part in parts
    ]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("a", "b", ["-a+b"]),
        ("same", "same", [1]),
        ("1\n2\n3\n4 x\n5\n6\n7", "1\n2\n3\n4 y\n5\n6\n7", [2, "=3|=4 -x+y|=5", 2]),
        ("1\n\n2", "1\n\n3", [1, "|-2+3"]),
        ("", "", [1]),
        ("1\n  2", "1\n 2", ["=1-\\n  +\\n |=2"]),
    ],
)
def test_hunks(old, new, found):
    assert flat(hunks(word_diff(old, new), 1)) == found
