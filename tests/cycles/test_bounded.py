import json
from math import inf, nan

import pytest

from properties import given, some
from redraft.cycles.bounded import bounded

LOOP = []
LOOP.append(LOOP)

PLAIN = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner, max_size=8) | some.dictionaries(some.text(), inner, max_size=8),
    max_leaves=40,
)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"a": [1, 2.5, None, True, "x"]}, {"a": [1, 2.5, None, True, "x"]}),
        ([nan, inf, -inf, 10**100], [None, None, None, None]),
        ("x" * 101, "x" * 100 + "..."),
        ("a\x00b\ud800c\u200bd\ne", "abcd\ne"),
        (["x" * 100, 2, 3], ["x" * 100, "... 2 more"]),
        ({"a": "x" * 100, "b": 2}, {"a": "x" * 97 + "...", "...": "1 more"}),
        ({1: (2,)}, {"1": [2]}),
        (
            {
                "a": {
                    1,
                }
            },
            {"a": "{1}"},
        ),
    ],
)
def test_what_is_kept(value, kept):
    assert bounded(value, 100) == kept


def test_what_is_endless_ends():
    assert len(json.dumps(bounded(LOOP, 100))) < 100


@given(PLAIN, some.integers(0, 300))
def test_it_is_always_small_plain_json(value, most):
    kept = bounded(value, most)
    text = json.dumps(kept, allow_nan=False)
    text.encode()
    assert len(json.dumps(kept, ensure_ascii=False)) <= 7 * most + 150
