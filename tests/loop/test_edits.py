import time

import pytest

from redraft import OutputError
from redraft.loop.edits import EDIT_FORMAT, Edit, apply_edits, read_edits


def block(search, replace):
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"


@pytest.mark.parametrize(
    ("reply", "edits"),
    [
        (block("a", "b"), [("a", "b")]),
        (f"Sure!\n```\n{block('a', 'b')}\n```\nand\n{block('c', 'd')}", [("a", "b"), ("c", "d")]),
        (block("two\nlines", ""), [("two\nlines", "")]),
        (block("  indented", "\tkept "), [("  indented", "\tkept ")]),
        (block("a", "x\n=====\ny"), [("a", "x\n=====\ny")]),  # a heading is underlined
        (block("a", "b").replace("\n", "\r\n"), [("a", "b")]),
        ("<<<<<<< SEARCH\n=======\nnew\n>>>>>>> REPLACE", [("", "new")]),
        (EDIT_FORMAT, None),
    ],
)
def test_read_edits(reply, edits):
    found = [(edit.search, edit.replace) for edit in read_edits(reply)]
    if edits is None:  # the format's own description reads as one edit, which no text has
        assert len(found) == 1
    else:
        assert found == edits


@pytest.mark.parametrize("reply", ["", "no edits here", "<<<<<<< SEARCH\na\n======="])
def test_a_reply_without_edits_is_an_error(reply):
    with pytest.raises(OutputError, match="no edit"):
        read_edits(reply)


def test_edits_that_a_model_never_ends_cost_no_time():
    started = time.process_time()
    found = read_edits(block("a", "b") + "\n<<<<<<< SEARCH" * 20_000)
    assert found == (Edit("a", "b"),)
    assert time.process_time() - started < 1


def test_every_other_character_is_left_alone():
    text = "first line \n\n\tsecond\u00a0line\r\nthird line"
    edited = apply_edits(text, (Edit("second", "2nd"),))
    assert edited == "first line \n\n\t2nd\u00a0line\r\nthird line"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([Edit("absent", "x")], "does not occur"),
        ([Edit("a", "x")], "occurs 3 times"),
        ([Edit("", "x")], "searches for nothing"),
        ([Edit("b", "x"), Edit("absent", "y")], "does not occur"),
    ],
)
def test_what_does_not_apply_is_named(edits, message):
    with pytest.raises(OutputError, match=message):
        apply_edits("a b a c a", tuple(edits))


def test_later_edits_see_earlier_ones():
    assert apply_edits("a b", (Edit("a", "c"), Edit("c b", "d"))) == "d"


@pytest.mark.parametrize(
    "reply", [block("Title\n=======\nold", "Title\n=======\nnew"), "<<<<<<< SEARCH\na\n>>>>>>> REPLACE"]
)
def test_an_edit_that_can_not_be_told_apart_is_an_error(reply):
    with pytest.raises(OutputError, match="lines of '======='"):
        read_edits(reply)
