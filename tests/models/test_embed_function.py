from __future__ import annotations

from functools import partial
from math import inf, nan

import pytest

from redraft._sync import run_sync
from redraft.errors import ConfigError, OutputError
from redraft.models.embed import FunctionEmbedder


def lengths(texts):
    return [[float(len(text)), 1.0] for text in texts]


async def lengths_later(texts):
    return lengths(texts)


class Lengths:
    async def __call__(self, texts):
        return lengths(texts)


class Array(list):
    """An array as numpy's: a thing to iterate over that is no list of lists."""

    def __repr__(self):
        return f"array({list(self)})"


HERE = __name__


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lengths, f"{HERE}.lengths"),
        (lengths_later, f"{HERE}.lengths_later"),
        (Lengths(), f"{HERE}.Lengths"),
        (partial(lengths), f"{HERE}.lengths"),
        (Lengths().__call__, f"{HERE}.Lengths.__call__"),
    ],
)
def test_any_function_gives_unit_rows_and_is_named_by_its_place(function, name):
    embedder = FunctionEmbedder(function)
    assert embedder.name == name
    assert run_sync(embedder(("abc", ""))) == [pytest.approx([3 / 10**0.5, 1 / 10**0.5]), [0.0, 1.0]]


def test_a_name_may_be_given():
    assert FunctionEmbedder(lengths, "lengths-2").name == "lengths-2"


def test_nothing_is_asked_for_no_texts():
    assert run_sync(FunctionEmbedder(lambda _: 1 / 0)([])) == []


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1.0]], "1 vectors for 2 texts; expected one a text"),
        ([[1.0], [1.0], [1.0]], "3 vectors for 2 texts"),
        ([[1.0], [1.0, 2.0]], "vectors of 1 and of 2 numbers; expected one length"),
        ([[1.0], [nan]], r"the vector \[nan\], which is not finite"),
        ([[1.0], [-inf]], "which is not finite"),
        ([[1.0], [0.0]], "which has no direction"),
        ([[], []], "which has no direction"),
        ([["a"], ["b"]], r"the vector \['a'\]; expected numbers"),
        ([[None], [1.0]], r"the vector \[None\]; expected numbers"),
        ([10**400], "expected a list of vectors"),
        ([[10**400], [1]], "expected numbers"),
        (["12", "34"], "'12'; expected a list of vectors"),
        (None, "None; expected a list of vectors"),
        ("ab", "'ab'; expected a list of vectors"),
        ({"a": [1.0]}, "expected a list of vectors"),
        (7, "7; expected a list of vectors"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_by_name(rows, says):
    embedder = FunctionEmbedder(lambda _: rows, "mine")
    with pytest.raises(OutputError, match=f"The embedder 'mine' returned .*{says}"):
        run_sync(embedder(["a", "b"]))


@pytest.mark.parametrize("row", [Array([3, 4]), (3, 4), [3e200, 4e200], [3e-200, 4e-200]])
def test_a_row_may_be_whatever_holds_numbers(row):
    assert run_sync(FunctionEmbedder(lambda _: Array([row]))(["a"])) == [pytest.approx([0.6, 0.8])]


def test_a_dimension_that_changes_is_refused():
    embedder = FunctionEmbedder(lambda texts: [[1.0] * len(texts[0])], "mine")
    run_sync(embedder(["ab"]))
    with pytest.raises(OutputError, match="returned vectors of 3 numbers, and of 2 before"):
        run_sync(embedder(["abc"]))


@pytest.mark.parametrize("given", [3, [1.0], Lengths])
def test_what_is_no_function_is_refused(given):
    with pytest.raises(ConfigError, match="embedder must be a name, an Embedder or a function"):
        FunctionEmbedder(given)
