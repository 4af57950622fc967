import importlib.util
import sys
from random import Random

import pytest

from redraft.stores.base import nearest_vectors, packed

WAYS = ["by hand", *(["numpy"] if importlib.util.find_spec("numpy") else [])]


@pytest.fixture(params=WAYS)
def _way(request, monkeypatch):
    if request.param == "by hand":
        monkeypatch.setitem(sys.modules, "numpy", None)  # as if it were not installed


def vectors(count, dimensions, seed):
    random = Random(seed)  # noqa: S311 (no secret)
    return [[random.gauss(0, 1) for _ in range(dimensions)] for _ in range(count)]


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    ("asked", "stored", "expected"),
    [
        ([1, 0], {}, []),
        ([1, 0], {"a": [1, 0], "b": [0, 1], "c": [-1, 0]}, [("a", 1.0), ("b", 0.0), ("c", -1.0)]),
        ([3, 4], {"a": [4, 3], "b": [30, 40]}, [("b", 1.0), ("a", 0.96)]),
        ([1e-20, 1e-20], {"a": [1e20, 1e20]}, [("a", 1.0)]),  # their products leave float32
        ([1, 1, 1], {"b": [0.1] * 3, "a": [1e5] * 3, "c": [7] * 3}, [("a", 1.0), ("b", 1.0), ("c", 1.0)]),
    ],
)
def test_nearest(asked, stored, expected):
    assert nearest_vectors([(key, packed(vector)) for key, vector in stored.items()], asked, 9) == expected


def test_numpy_and_plain_python_find_the_same(monkeypatch):
    rows = [(f"{n:03}", packed(vector)) for n, vector in enumerate(vectors(300, 64, 1))]
    rows += [(f"again {key}", blob) for key, blob in rows]
    found = [nearest_vectors(rows, asked, 600) for asked in vectors(5, 64, 2)]
    monkeypatch.setitem(sys.modules, "numpy", None)
    by_hand = [nearest_vectors(rows, asked, 600) for asked in vectors(5, 64, 2)]
    for one, other in zip(found, by_hand, strict=True):
        assert [key for key, _ in one] == [key for key, _ in other]
        assert [similar for _, similar in one] == pytest.approx([similar for _, similar in other], abs=2e-6)
