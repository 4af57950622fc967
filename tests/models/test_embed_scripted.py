from __future__ import annotations

from math import fsum, hypot
from operator import mul

import pytest

from redraft._sync import run_sync
from redraft.errors import ConfigError
from redraft.models.embed import ScriptedEmbedder


def similar(*texts):
    one, other = run_sync(ScriptedEmbedder()(texts))
    return fsum(map(mul, one, other))


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("cancel the flight", "Flight: the CANCEL!", 1.0),
        ("cancel the flight", "cancel the hotel", 2 / 3),
        ("cancel the flight", "bake bread", 0.0),
        ("", "...", 1.0),
        ("", "word", 0.0),
        ("a\udc00 b", "b", 2**-0.5),
    ],
)
def test_texts_are_near_by_the_words_they_share(one, other, cosine):
    assert similar(one, other) == pytest.approx(cosine)


def test_rows_are_unit_vectors_of_the_dimensions_and_always_the_same():
    embedder = ScriptedEmbedder(8)
    rows = run_sync(embedder(["one two three", ""]))
    assert [len(row) for row in rows] == [8, 8]
    assert [hypot(*row) for row in rows] == pytest.approx([1.0, 1.0])
    assert [n for n, number in enumerate(run_sync(embedder(["flight"]))[0]) if number] == [WHERE_FLIGHT_IS]
    assert embedder.texts == ["one two three", "", "flight"]
    assert embedder.name == "scripted:8"
    assert run_sync(embedder([])) == []


WHERE_FLIGHT_IS = 6


def test_dimensions_are_at_least_two():
    with pytest.raises(ConfigError, match="dimensions must be at least 2, got 1"):
        ScriptedEmbedder(1)
