"""The search for a check that separates failed outputs from good ones."""

import asyncio
import random

import pytest

from redraft.proposals.proposals import RecurringFailure, proposals_for
from redraft.proposals.separation import Hints, Sample, chance_of, halves, separations
from support.recurring import KINDS, NOUNS, dated, keyed, plain_words, prose, samples, sentences, short


def proposed(bad, good, said="", **choices):
    """Return what the checks ask for that are proposed for these outputs."""
    found = asyncio.run(proposals_for(RecurringFailure(said, bad, good, (said,)), **choices))
    return [one.says.rstrip(".") for one in found]


@pytest.mark.parametrize(("make", "said", "check"), KINDS, ids=[make.__name__ for make, _, _ in KINDS])
def test_the_right_check_is_proposed_for_each_kind_of_failure(make, said, check):
    assert proposed(*samples(make), said) == [check]


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_proposed_where_nothing_separates(seed):
    draw = random.Random(seed)  # noqa: S311 (no secret)
    for make in (
        lambda draw, good: sentences(draw),
        lambda draw, good: prose(draw, draw.randint(20, 60)),
        lambda draw, good: keyed(draw, True),
    ):
        assert proposed(*samples(make, draw.randint(0, 99), 60, 0.35), "It is dull.") == []


def test_one_failure_may_take_several_checks():
    makes = [dated, plain_words, short]
    bad, good = [], []
    for place, make in enumerate(makes):
        wrong, right = samples(
            lambda draw, ok, make=make: " ".join(each(draw, ok or each is not make) for each in makes),
            place + 1,
            20,
        )
        bad += [Sample(one.output, f"{place}-{one.run}") for one in wrong]
        good += [Sample(one.output, f"{place}-{one.run}") for one in right]
    found = proposed(bad, good, "It is bad.")
    assert min(found) == "Contains text of the form YYYY-MM-DD"
    assert 'Does not contain "cheap" in upper or lower case' in found
    assert len(found) == 3
    assert any("words" in one for one in found)


@pytest.mark.parametrize(
    ("said", "check"),
    [
        ("It is too long: 50 words are enough.", "Has at most 50 words"),
        ("More than 300 characters.", "Has at most 300 characters"),
        ("", "Has at most 50 words"),
    ],
)
def test_the_critique_decides_between_checks_that_separate_equally_well(said, check):
    good = [Sample(("tea " * 45).strip() + "x" * 110, f"g{number}") for number in range(12)]
    bad = [Sample(("tea " * 80).strip() + "x" * 110, f"b{number}") for number in range(12)]
    assert proposed(bad, good, said) == [check]


def test_a_word_of_the_tasks_is_not_taken_for_a_fault_of_the_outputs():
    draw = random.Random(2)  # noqa: S311 (no secret)
    good = [
        Sample(f"A {draw.choice(NOUNS)}: {sentences(draw)}", f"g{number}", "Describe the goods.")
        for number in range(20)
    ]
    bad = [Sample(f"A sofa: {sentences(draw)}", f"b{number}", "Describe the sofa.") for number in range(8)]
    assert proposed(bad, good) == []
    bad = [Sample(one.output, one.run, "Describe the goods.") for one in bad]
    assert proposed(bad, good) == ['Does not contain "sofa" in upper or lower case']


def test_a_check_that_holds_for_one_half_of_the_runs_only_is_not_proposed():
    """The words of the first failed outputs are not those of the others."""
    good = [Sample(f"alpha beta {number}", f"g{number}") for number in range(20)]
    words = ["gamma", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lamda"]
    bad = [Sample(f"alpha beta {word} {place}", f"b{place}") for place, word in enumerate(words)]
    assert all("gamma" not in one for one in proposed(bad, good))


def test_one_bad_output_that_was_labelled_good_by_mistake():
    bad, good = samples(keyed, 1, 60)
    good[3] = Sample(bad.pop().output, good[3].run)
    assert proposed(bad, good, "A key is missing.") == []
    [weak] = asyncio.run(proposals_for(RecurringFailure("", bad, good, ("A key is missing.",)), weaker=True))
    assert (weak.says, weak.trial.refused) == ('Has the key "currency"', 1)
    assert weak.trial.refused_output == good[3].output
    assert weak.trial.weakness == f"it refuses 1 good output of {len(good)}"


def test_a_good_output_that_was_labelled_bad_by_mistake_may_pass():
    bad, good = samples(dated, 1, 60)
    bad.append(Sample(good[0].output, "run-mistaken"))
    [found] = asyncio.run(proposals_for(RecurringFailure("", bad, good)))
    assert found.says == "Contains text of the form YYYY-MM-DD"
    assert (found.trial.caught, found.trial.bad) == (len(bad) - 1, len(bad))


def test_runs_are_halved_whole():
    bad = [Sample("x", f"r{number // 2}") for number in range(12)]
    good = [Sample("y", f"r{number // 2}") for number in range(16)]
    first, second = halves(bad, good)
    runs = [{one.run for side in half for one in side} for half in (first, second)]
    assert not runs[0] & runs[1]
    assert halves(bad[:4], good) == []


def test_chance_is_that_of_fishers_exact_test():
    assert chance_of(3, 3, 0, 3) == pytest.approx(1 / 20)
    assert chance_of(0, 3, 0, 3) == 1
    assert chance_of(2, 3, 1, 3) == pytest.approx(0.5)


def test_hints_leave_out_words_without_content():
    hints = Hints.of("It is not what the shop wants: use at most three items.")
    assert hints.quotes("the") == hints.quotes("is") == 0
    assert hints.quotes("shop") == 2
    assert 3 in hints.numbers


def test_outputs_of_any_size_and_script_are_looked_at_in_bounded_time():
    bad = [Sample("мир " * 20_000 + "x", f"b{number}") for number in range(3)]
    good = [Sample("мир " * 20_000, f"g{number}") for number in range(3)]
    assert separations(bad, good, Hints())
