"""Nothing is accepted that only chance made look better."""

from optimize import accepted_by_chance


def test_with_shuffled_labels_next_to_nothing_is_accepted():
    """`benchmarks/optimize.py` does a hundred of each of three kinds; these are the first ten of one."""
    accepted, tested = accepted_by_chance(10, cases=20, rate=0.5, tries=60)
    assert accepted <= 1
    assert tested >= 3
