from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from redraft._texts import as_text, copy_of


class Point(BaseModel):
    xs: list[int]


@dataclass
class Plain:
    x: int


class NoForm:
    def __repr__(self):
        return "no form"


class AnyValue(BaseModel):
    x: Any


HOLDS_ITSELF: list[Any] = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


@pytest.mark.parametrize(
    ("output", "text", "line"),
    [
        ("as it is", "as it is", "as it is"),
        ({"a": ["é", None]}, '{\n  "a": [\n    "é",\n    null\n  ]\n}', '{"a": ["é", null]}'),
        (Point(xs=[1]), '{\n  "xs": [\n    1\n  ]\n}', '{"xs":[1]}'),
        ([Plain(1)], '[\n  {\n    "x": 1\n  }\n]', '[{"x": 1}]'),
        (HOLDS_ITSELF, "[[...]]", "[[...]]"),
        ({(1, 2): 3}, "{(1, 2): 3}", "{(1, 2): 3}"),
        (AnyValue(x=NoForm()), "AnyValue(x=no form)", "AnyValue(x=no form)"),
    ],
)
def test_as_text(output: Any, text: str, line: str):
    assert as_text(output) == text
    assert as_text(output, indent=None) == line


@pytest.mark.parametrize(
    "output",
    [
        "text",
        1,
        0.5,
        True,
        {"a": [1, {"b": None}], "c": "d"},
        [[], {}, [False]],
        Point(xs=[1]),
        [Point(xs=[1])],
    ],
)
def test_copy_of(output: Any):
    copy = copy_of(output)
    assert copy == output
    assert copy.__class__ is output.__class__
    for one, other in zip(holders(copy), holders(output), strict=True):
        assert one is not other


def holders(value: Any) -> list[Any]:
    """All that can be changed in a value, in its order."""
    if isinstance(value, Point):
        return [value, value.xs]
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in holders(item))]
    return [value, *(found for item in value for found in holders(item))] if isinstance(value, list) else []


def test_copy_of_a_recursive_value():
    copy = copy_of(HOLDS_ITSELF)
    assert copy[0] is copy
    assert copy is not HOLDS_ITSELF
