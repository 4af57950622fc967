import pytest

from redraft.lessons.ranking import (
    LEAST_RELEVANT,
    SURELY_RELEVANT,
    Candidate,
    Ranking,
    reason_for,
    threshold_of,
    without_duplicates,
)


def order(ranking, *candidates):
    return [one.number for one in ranking.ordered(candidates)]


@pytest.mark.parametrize(
    ("ranking", "candidates", "numbers"),
    [
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [Candidate(1, 5, similarity=0.5), Candidate(2, 1, similarity=0.8)],
            [2, 1],
            id="the most similar first, even if older",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [Candidate(1, 1, similarity=0.503), Candidate(2, 5, similarity=0.501)],
            [2, 1],
            id="of equal similarity to a hundredth, the newest first",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [Candidate(1, 1, similarity=0.29), Candidate(2, 1, similarity=0.3)],
            [2],
            id="dissimilar ones are not relevant",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [
                Candidate(1, 1, similarity=0.1),
                Candidate(2, 1, True, similarity=0.05),
                Candidate(3, 1, tools=("x",)),
            ],
            [2, 3],
            id="dissimilar ones of the same task type or tool are relevant",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [Candidate(1, 1, similarity=0.4, text=1.0), Candidate(2, 1, similarity=0.5)],
            [2, 1],
            id="without names in the question, words do not count",
        ),
        pytest.param(
            Ranking(has_names=True, embedded=True),
            [Candidate(1, 1, similarity=0.4, text=1.0), Candidate(2, 1, similarity=0.5)],
            [1, 2],
            id="with names in the question, words count",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [
                Candidate(1, 1, text=1.0),
                Candidate(2, 1, similarity=0.6),
                Candidate(3, 1, similarity=0.4, text=1.0),
            ],
            [2, 1, 3],
            id="one without a vector ranks among the others",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [
                Candidate(1, 1, similarity=0.9),
                Candidate(2, 1, tools=("x",), similarity=0.8),
                Candidate(3, 1, True, similarity=0.1),
                Candidate(4, 1, True, ("x",)),
            ],
            [4, 3, 2, 1],
            id="same type, then same tool, then similarity",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=False),
            [Candidate(1, 1, text=0.2), Candidate(2, 1, text=1.0), Candidate(3, 1)],
            [2, 1],
            id="without an embedder, only words count",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [
                Candidate(1, 1, similarity=0.5),
                Candidate(2, 1, similarity=0.5, effect=0.6),
                Candidate(3, 9, similarity=0.5, effect=-0.6),
                Candidate(4, 9, similarity=0.5, confidence=0.2),
                Candidate(5, 1, similarity=0.34, effect=-0.6),
            ],
            [2, 1, 4, 3],
            id="what helped before first, what hurt or is unsure last or not at all",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [Candidate(1, 1, tools=("x",), similarity=1.0, effect=1.0), Candidate(2, 1, True, effect=-1.0)],
            [2, 1],
            id="the same type first, whatever it did",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True, threshold=0.5),
            [Candidate(1, 1, similarity=0.49), Candidate(2, 1, similarity=0.5)],
            [2],
            id="another threshold",
        ),
    ],
)
def test_candidates_are_sorted_by_relevance(ranking, candidates, numbers):
    assert order(ranking, *candidates) == numbers


@pytest.mark.parametrize(
    ("candidate", "names", "reason"),
    [
        (
            Candidate(1, 1, True, ("http_get",), 0.712),
            ["E4031"],
            "same task type 'web'; tool http_get; similarity 0.71; names E4031",
        ),
        (Candidate(1, 1, text=0.5), [], "shares words"),
        (Candidate(1, 1, similarity=0.5, text=0.5), [], "similarity 0.50"),
    ],
)
def test_the_reason_names_what_matches(candidate, names, reason):
    assert reason_for(candidate, "web", names) == reason


WORDS = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ([WORDS, WORDS.upper()], [0]),
        ([WORDS, f"{WORDS} eleven"], [0]),
        ([WORDS, f"{WORDS} eleven twelve thirteen"], [0, 1]),
        (["", "", "one"], [0, 2]),
        ([WORDS] * 1000 + ["other words"], [0, 1000]),
    ],
)
def test_near_duplicates_are_left_out(said, kept):
    candidates = [Candidate(number, 1) for number in range(len(said))]
    found = without_duplicates(candidates, lambda one: said[one.number], lambda one, other: 0.0)
    assert [one.number for one in found] == kept


def test_paraphrases_are_left_out():
    said = {
        1: "pass the cursor on to each call",
        2: "give the cursor to each later call",
        3: "give the cursor to no later call",
        4: "count quinces",
        5: "pass the cursor to each call",
        6: "pass a cursor to each new call",
    }
    similar = {(2, 1): 0.96, (3, 1): 0.9, (6, 1): 0.0, (6, 3): 0.0}
    asked = []

    def similarity(one, other):
        asked.append((one.number, other.number))
        return similar[asked[-1]]

    candidates = [Candidate(number, 1) for number in said]
    found = without_duplicates(candidates, lambda one: said[one.number], similarity)
    assert [one.number for one in found] == [1, 3, 4, 6]
    assert not {4, 5} & {number for pair in asked for number in pair}  # their words tell


@pytest.mark.parametrize(
    ("matches", "threshold"),
    [
        pytest.param([0.05] * 20, LEAST_RELEVANT, id="none has anything to do with it"),
        pytest.param([0.9] * 20, SURELY_RELEVANT, id="all are about the same"),
        pytest.param([0.3], 0.3, id="the only lesson"),
        pytest.param([0.1, 0.3], 0.2, id="two lessons"),
        pytest.param([0.0, 0.2] * 10, 0.1 + 1.2 * 1.645 * 0.1, id="twenty lessons"),
        pytest.param(
            [0.0, 0.2] * 50, 0.1 + 1.2 * 2.326 * 0.1, id="more lessons, of which the best is better"
        ),
    ],
)
def test_the_threshold_is_what_stands_out_among_the_lessons(matches, threshold):
    assert threshold_of(matches) == pytest.approx(threshold, abs=1e-3)


def test_the_range_of_the_threshold_can_be_another():
    assert threshold_of([0.9] * 20, most=0.55) == pytest.approx(0.55)
    assert threshold_of([0.0] * 20, least=0.05) == pytest.approx(0.05)
