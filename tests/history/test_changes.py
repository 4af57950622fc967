import pytest

from redraft import Issue
from redraft.history.changes import fold, pairs
from redraft.stores.sqlite import MemoryStore
from redraft.text.diff import word_diff
from support.dashboards import HOSTILE, Seen, described, pages, put
from support.versions import version

TEXT = "Redraft keeps the best.\nIt says why.\nIt costs little."
JSON = {"name": "Ada", "age": 36}


FAULTS = [("It lacks a source.", "It is dull."), ("It is dull.", "It is long.")]


def run(*outputs):
    """A run with two versions; the first lacks a source, the second has a new fault."""
    versions = tuple(
        version(at + 1, score, output=output, issues=tuple(map(Issue, faults)), satisfactory=score > 0.8)
        for at, (output, score, faults) in enumerate(zip(outputs, (0.4, 0.9), FAULTS, strict=True))
    )
    return described("a-run", versions=versions, best=2, final=2)


def read(path, *outputs):
    store = MemoryStore()
    put(store, run(*outputs))
    return pages(store).get(path)


@pytest.mark.parametrize("view", ["inline", "side"])
def test_changed_words_are_marked_and_the_critique_is_listed(view):
    page = read(f"/runs/a-run/diff?view={view}", TEXT, TEXT.replace("why", "why it stopped"))
    seen = Seen(page.text)
    assert page.status_code == 200
    assert "ins" in seen.tags
    for said in ("✓ addressed It lacks a source.", "✗ not addressed It is dull.", "+ new It is long."):
        assert " ".join(said.split()) in seen.words


def test_json_is_compared_field_by_field():
    page = read("/runs/a-run/diff", JSON, {**JSON, "age": 37}).text
    assert all(part in page for part in ("/age", "<del>36</del>", "<ins>37</ins>"))
    document = read("/runs/a-run/diff.json?a=1&b=best", JSON, {**JSON, "age": 37}).json()
    assert document["fields"] == [{"path": "/age", "old": 36, "new": 37}]
    assert (document["run_id"], document["from"]["version"], document["to"]["version"]) == ("a-run", 1, 2)


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("a=2&b=2", 200, "Both sides are the same version"),
        ("a=7", 404, "no version '7'"),
        ("b=second", 404, "A version must be a number"),
        ("view=both", 400, "view must be one of inline, side"),
        ("a=first&b=last", 200, "What changed"),
    ],
)
def test_query_parameters_are_checked(query, status, told):
    page = read(f"/runs/a-run/diff?{query}", TEXT, TEXT + "\nmore")
    assert page.status_code == status
    assert told in Seen(page.text).words


def test_an_unknown_run_is_not_found():
    assert pages(MemoryStore()).get("/runs/none/diff").status_code == 404


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("view", ["inline", "side"])
def test_hostile_outputs_are_escaped(text, view):
    page = read(f"/runs/a-run/diff?view={view}", f"one\n{text}\nthree", f"one\n{text} two\nthree")
    seen = Seen(page.text)
    assert page.status_code == 200
    assert {"img"}.isdisjoint(seen.tags)
    assert not any(name.startswith("on") for name, _ in seen.attributes)
    assert not any(character in page.text for character in "\x1b\x00\x9b\u202e\u2066")


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
def test_lines_that_share_text_are_paired(old, new, rows):
    found = pairs(word_diff(old, new))
    left = [text_of(pair.old) for pair in found if pair.old is not None]
    right = [text_of(pair.new) for pair in found if pair.new is not None]
    assert ("\n".join(left), "\n".join(right)) == (old, new)
    assert [pair.old_number for pair in found if pair.old is not None] == list(range(1, len(left) + 1))
    assert [(text_of(pair.old), text_of(pair.new)) for pair in found] == rows


def test_unchanged_lines_are_folded():
    old = "\n".join(str(number) for number in range(20))
    rows = pairs(word_diff(old, old.replace("\n10\n", "\nten\n")))
    first, middle, last = fold(rows, 2)
    assert (first, last) == (8, 7)
    assert [text_of(pair.old) for pair in middle] == ["8", "9", "10", "11", "12"]
    assert [pair.differs for pair in middle] == [False, False, True, False, False]
