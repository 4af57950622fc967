import pytest

from redraft._words import overlap
from redraft.lessons.lesson import checked_lesson, words_of
from support.lessons import PARTIAL, lesson


def test_overlap_is_the_share_of_common_words():
    one, other = frozenset({"a", "b", "c"}), frozenset({"b", "c", "d"})
    assert overlap(one, other) == 0.5
    assert overlap(frozenset(), frozenset()) == 1.0
    assert {"two", "named"} & words_of(PARTIAL) == {"two"}


@pytest.mark.parametrize("name", ["task", "task_type", "error", "why", "disobeyed", "title", "summary"])
def test_secrets_that_a_person_writes_are_withheld(name):
    key = "sk-" + "proj-" + "a1B2c3D4e5F6g7H8" * 3
    assert key not in getattr(checked_lesson(lesson(**{name: f"Use {key}."})), name)
