import pytest

from redraft.lessons import index as vectors
from redraft.lessons.index import (
    Candidate,
    Ranking,
    folded,
    names_in,
    reason_of,
    searchable,
    without_alike,
    words_in,
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
            id="the nearer one first, not the newer one",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [Candidate(1, 1, similarity=0.503), Candidate(2, 5, similarity=0.501)],
            [2, 1],
            id="of those that are equally near to a hundredth, the newer one first",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [Candidate(1, 1, similarity=0.29), Candidate(2, 1, similarity=0.3)],
            [2],
            id="what is not near is not relevant",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [
                Candidate(1, 1, similarity=0.1),
                Candidate(2, 1, True, similarity=0.05),
                Candidate(3, 1, tools=("x",)),
            ],
            [2, 3],
            id="but for its task type or tool",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [Candidate(1, 1, similarity=0.4, text=1.0), Candidate(2, 1, similarity=0.5)],
            [2, 1],
            id="without names, words count for nothing beside meaning",
        ),
        pytest.param(
            Ranking(has_names=True, embedded=True),
            [Candidate(1, 1, similarity=0.4, text=1.0), Candidate(2, 1, similarity=0.5)],
            [1, 2],
            id="with names, they count",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=True),
            [
                Candidate(1, 1, text=1.0),
                Candidate(2, 1, similarity=0.6),
                Candidate(3, 1, similarity=0.4, text=1.0),
            ],
            [2, 1, 3],
            id="one without a vector comes among the others",
        ),
        pytest.param(
            Ranking(has_names=False, embedded=False),
            [Candidate(1, 1, text=0.2), Candidate(2, 1, text=1.0), Candidate(3, 1)],
            [2, 1],
            id="without an embedder, words are all there is",
        ),
    ],
)
def test_the_order(ranking, candidates, numbers):
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
def test_the_reason(candidate, names, reason):
    assert reason_of(candidate, "web", names) == reason


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
def test_what_is_nearly_the_same_counts_once(said, kept):
    candidates = [Candidate(number, 1) for number in range(len(said))]
    found = without_alike(candidates, lambda some: [said[one.number] for one in some], lambda one: b"")
    assert [one.number for one in found] == kept


@pytest.mark.parametrize("numpy", [vectors.numpy(), None], ids=["numpy", "by hand"])
def test_what_is_the_same_in_other_words_counts_once(monkeypatch, numpy):
    monkeypatch.setattr(vectors, "numpy", lambda: numpy)
    said = {
        1: ("pass the cursor on to each call", [1.0, 0.0, 0.1]),
        2: ("give the cursor to each later call", [1.0, 0.3, 0.1]),
        3: ("give the cursor to no later call", [1.0, 0.5, 0.1]),
        4: ("count quinces", [1.0, 0.0, 0.1]),
        5: ("pass the cursor to each call", []),
        6: ("pass a cursor to each new call", [1.0, 0.0]),
    }
    asked = []

    def vector_of(one):
        asked.append(one.number)
        vector = said[one.number][1]
        return vectors.packed(vector) if vector else b""

    candidates = [Candidate(number, 1) for number in said]
    found = without_alike(candidates, lambda some: [said[one.number][0] for one in some], vector_of)
    assert [one.number for one in found] == [1, 3, 4, 6]
    assert not {4, 5} & set(asked)  # their words tell


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A plain sentence, isn't it? Well-known. An API, of course.", []),
        ("http_get gave E4031 on line 7.", ["http_get", "E4031", "7"]),
        ("use --no-cache with ./app/config.yaml.", ["--no-cache", "./app/config.yaml"]),
        ("a LessonFileError of os.path, or std::vector", ["LessonFileError", "os.path", "std::vector"]),
    ],
)
def test_names(text, names):
    assert names_in(text) == names


def test_a_name_stands_as_a_whole_and_each_part_of_a_path_too():
    assert folded("./app/config.yaml") == ["app_config_yaml", "app", "config_yaml"]
    assert folded("__init__") == ["__init__"]
    assert searchable("see ./app/config.yaml now").endswith("app_config_yaml app config_yaml")
    assert words_in("see config.yaml of the app")[0] == "config_yaml"
