import pytest

from redraft.history.sides import folded, pairs
from redraft.text.diff import word_diff


def text_of(line):
    return None if line is None else "".join(words for _, words in line)


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        ("", "", [("", "")]),
        ("a\nb", "a\nb", [("a", "a"), ("b", "b")]),
        ("a\nb\nc", "a\nx\nc", [("a", "a"), ("b", "x"), ("c", "c")]),
        ("a\nc", "a\nb\nc", [("a", "a"), (None, "b"), ("c", "c")]),
        ("a\n\nb", "a\nb", [("a", "a"), ("", None), ("b", "b")]),
        ("one two", "one three", [("one two", "one three")]),
        ("", "a\nb", [("", "a"), (None, "b")]),
    ],
)
def test_what_belongs_together_stands_side_by_side(old, new, rows):
    found = pairs(word_diff(old, new))
    left = [text_of(pair.old) for pair in found if pair.old is not None]
    right = [text_of(pair.new) for pair in found if pair.new is not None]
    assert ("\n".join(left), "\n".join(right)) == (old, new)
    assert [pair.old_number for pair in found if pair.old is not None] == list(range(1, len(left) + 1))
    assert [(text_of(pair.old), text_of(pair.new)) for pair in found] == rows


def test_only_what_differs_and_what_is_near_is_shown():
    old = "\n".join(str(number) for number in range(20))
    rows = pairs(word_diff(old, old.replace("\n10\n", "\nten\n")))
    first, middle, last = folded(rows, 2)
    assert (first, last) == (8, 7)
    assert [text_of(pair.old) for pair in middle] == ["8", "9", "10", "11", "12"]
    assert [pair.differs for pair in middle] == [False, False, True, False, False]
