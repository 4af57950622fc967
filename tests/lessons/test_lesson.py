from redraft._words import overlap
from redraft.lessons.lesson import words_of
from support.lessons import PARTIAL


def test_overlap_is_the_share_of_common_words():
    one, other = frozenset({"a", "b", "c"}), frozenset({"b", "c", "d"})
    assert overlap(one, other) == 0.5
    assert overlap(frozenset(), frozenset()) == 1.0
    assert {"two", "named"} & words_of(PARTIAL) == {"two"}
