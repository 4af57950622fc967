import random
from math import sqrt

import pytest

from redraft.lessons import index as vectors
from redraft.lessons.index import Signs, Vectors, packed, signs_of

DIMENSION = 96


def unit(rng):
    row = [rng.gauss(0, 1) for _ in range(DIMENSION)]
    length = sqrt(sum(one * one for one in row))
    return [one / length for one in row]


@pytest.fixture(params=[True, False], ids=["numpy", "plain"])
def some(request, monkeypatch):
    """Return 300 rows, and a question that is near to the seventh."""
    if not request.param:
        monkeypatch.setattr(vectors, "numpy", lambda: None)
    rng = random.Random(5)  # noqa: S311 (made up, and always the same)
    rows = [unit(rng) for _ in range(300)]
    question = [0.8 * one + 0.6 * other for one, other in zip(rows[7], unit(rng), strict=True)]
    return rows, question


def true_cosines(rows, question):
    return [sum(one * other for one, other in zip(row, question, strict=True)) for row in rows]


def test_cosines_are_right_to_a_thousandth(some):
    rows, question = some
    held = Vectors([b"".join(map(packed, rows[:100])), b"".join(map(packed, rows[100:]))], DIMENSION)
    exact = true_cosines(rows, question)
    assert len(held) == 300
    assert held.cosines(question) == pytest.approx(exact, abs=5e-3)
    assert held.cosines(question, [7, 200]) == pytest.approx([exact[7], exact[200]], abs=5e-3)
    assert held.cosines(question, []) == []


@pytest.mark.parametrize(
    ("places", "most"),
    [(range(300), 5), (range(300), 300), ([3, 7, 11, 200], 2), ([3, 7, 11], 3), ([7], 9), ([], 3)],
)
def test_the_nearest_of_some_places_are_those_with_the_largest_cosines(some, places, most):
    rows, question = some
    held = Vectors([packed(row) for row in rows], DIMENSION)
    cosines = held.cosines(question)
    found = held.nearest(question, places, most)
    wanted = sorted(places, key=lambda place: -cosines[place])[:most]
    assert sorted(place for place, _ in found) == sorted(wanted)
    assert all(cosine == pytest.approx(cosines[place]) for place, cosine in found)


def test_what_is_near_has_nearly_the_same_signs(some):
    rows, question = some
    codes = [signs_of(packed(row)) for row in rows]
    signs = Signs(codes, len(codes[0]))
    asked = signs_of(packed(question))
    apart = [(int.from_bytes(asked) ^ int.from_bytes(code)).bit_count() for code in codes]
    for count in (1, 10, 300, 1_000):
        found = [int(place) for place in signs.nearest(asked, count)]
        assert 7 in found
        assert len(set(found)) == len(found) >= min(count, 300)
        assert max(apart[place] for place in found) <= sorted(apart)[min(count, 300) - 1]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ([1.0, -0.5, 0.0, 0.2], "9000000000000000"),
        ([-1.0] * 65, "0" * 32),
        ([0.1] * 65, "f" * 16 + "8" + "0" * 15),
    ],
)
def test_signs_are_bits_in_whole_eight_bytes(row, code):
    assert signs_of(packed(row)).hex() == code


def test_a_row_and_its_signs_are_packed_alike_with_numpy_and_without(monkeypatch):
    rng = random.Random(6)  # noqa: S311 (made up, and always the same)
    rows = [unit(rng) for _ in range(50)] + [[0.5, -0.25, 0.0, 1e-9] * 4]
    with_numpy = [(packed(row), signs_of(packed(row))) for row in rows]
    monkeypatch.setattr(vectors, "numpy", lambda: None)
    assert [(packed(row), signs_of(packed(row))) for row in rows] == with_numpy
