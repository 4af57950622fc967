from dataclasses import replace

import pytest
from _arms import Outcome, Try, outcome_from
from offline_model import arms_table, criteria_table, pairs_table, solved_within

DRAFT = Try("a", 1, 10, 5, 0.0, met=False, returned=0, how="draft", judged_again=0.0)
BETTER = replace(
    DRAFT, output="b", score=1.0, met=True, returned=1, how="full_rewrite", asked=2, mended=1, solved=True
)
WORSE = replace(DRAFT, output="c", how="fix", returned=1)


@pytest.mark.parametrize(
    ("tries", "solved"),
    [
        ([replace(DRAFT, solved=True)], (True, True, True)),
        ([DRAFT, BETTER], (False, True, True)),
        ([replace(DRAFT, solved=True), WORSE], (True, False, False)),  # it would have returned the last one
        (
            [DRAFT, replace(BETTER, requests=2)],
            (False, False, True),
        ),  # what took two calls came with the third
        ([DRAFT, WORSE, replace(BETTER, requests=2, returned=2)], (False, False, False)),
    ],
)
def test_solved_counts_tries_up_to_a_limit(tries, solved):
    outcome = Outcome("t", "loop", "max_iterations", tries)
    assert tuple(solved_within(outcome, calls) for calls in (1, 2, 3)) == solved


def test_an_outcome_survives_json():
    outcome = Outcome("t", "loop", "quality_met", [replace(DRAFT, output=""), replace(BETTER, output="")])
    assert outcome_from(outcome.to_json()) == outcome


def test_the_report_compares_two_arms():
    ours = [
        Outcome("one", "loop", "quality_met", [DRAFT, BETTER]),
        Outcome("two", "loop", "max_iterations", [DRAFT]),
    ]
    theirs = [
        Outcome("one", "chat", "max_iterations", [DRAFT, WORSE]),
        Outcome("two", "chat", "max_iterations", [DRAFT]),
    ]
    arms = arms_table(ours + theirs)
    assert "| loop | 2 x 1 | 0.0 | 1.0 | 1.0 (0.0 to 2.0) | 1.0 | 3.0 | 45 |" in arms
    assert "| chat | 2 x 1 | 0.0 | 0.0 | 0.0 (0.0 to 0.0) | 0.0 | 3.0 | none solved |" in arms
    assert "| loop - chat | 2 | 1 | 0 | +50.0 (+0.0 to +100.0) | yes |" in pairs_table(ours + theirs)
    criteria = criteria_table(ours + theirs)
    assert "above the first | 80 % | 1 of 2 (50%) |" in criteria
    assert "no longer has | 85 % | 1 of 2 (50%) |" in criteria
    assert "The loop ended by: max_iterations 1, quality_met 1." in criteria


def test_figures_are_means_of_the_seeds():
    runs = [Outcome("one", "loop", "max_iterations", [DRAFT], seed=1)]
    runs += [Outcome("one", "loop", "quality_met", [DRAFT, BETTER], seed=2)]
    assert "| loop | 1 x 2 | 0.0 | 0.5 | 0.5 (0.0 to 1.0) | 0.5 | 1.5 | 45 |" in arms_table(runs)
