import pytest

from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.web import LONGEST, MemoryDiff, change_views, item_view, memory_views

ITEM = {"id": "p1-1", "timestamp": "2026-11-22T12:00:00.000Z", "cycle": 1, "description": "press 2 is slow"}


@pytest.mark.parametrize(
    ("item", "head", "rest"),
    [
        (ITEM, "press 2 is slow", (("cycle", "1"),)),
        (ITEM | {"confidence": 0.1 + 0.2}, "press 2 is slow", (("cycle", "1"), ("confidence", "0.3"))),
        ({"action": "lower", "params": {"level": 1}, "error": None}, "lower", (("params", '{"level": 1}'),)),
        ({"id": "x", "any": []}, "x", ()),
        ({"message": {"odd": "shape"}}, '{"odd": "shape"}', ()),
        ({}, "", ()),
    ],
)
def test_an_item_is_what_it_is_about_and_what_else_it_says(item, head, rest):
    assert (item_view(item).head, item_view(item).rest) == (head, rest)


def test_a_long_text_is_shortened():
    assert len(item_view(ITEM | {"description": "x" * 5_000}).head) <= LONGEST


@pytest.mark.parametrize(
    ("change", "retired", "what", "moved"),
    [
        (MemoryChange("patterns", "p1-1", None, ITEM), (), "new", ()),
        (
            MemoryChange("patterns", "p1-1", ITEM, ITEM | {"count": 2, "timestamp": "later"}),
            (),
            "changed",
            (("count", "null", "2"),),
        ),
        (MemoryChange("patterns", "p1-1", ITEM, None, 0), ("p2-1",), "dropped", ()),
        (MemoryChange("patterns", "p1-1", ITEM, None, 0), ("p1-1",), "retired", ()),
        (MemoryChange("patterns", "p1-1", ITEM, None, 0), ("press 2 is slow",), "retired", ()),
        (MemoryChange("patterns", "p1-1", ITEM, None, 0), None, "gone", ()),
    ],
)
def test_what_became_of_an_item_is_said(change, retired, what, moved):
    [(key, [found])] = change_views(MemoryDiff(1, 2, (change,), retired))
    assert (key, found.what, found.moved) == ("patterns", what, moved)


def test_the_newest_items_come_first_and_the_others_are_counted():
    memory = Memory({"patterns": [ITEM, ITEM | {"description": "press 3 is fast"}]}, 2)
    [found] = memory_views(memory, {"patterns": 5})
    assert [one.head for one in found.items] == ["press 3 is fast", "press 2 is slow"]
    assert found.older == 3
