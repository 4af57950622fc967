from random import Random

import pytest

from redraft.core.errors import OutputError
from redraft.core.task import Task
from redraft.notes.bounds import bounded, size_of
from redraft.notes.reflection import TaskReflection
from redraft.notes.strategy import ReflectionInput

TASK = Task("Research {topic} and say when", "A report")


def given(task=TASK, max_tokens=600, prior=None):
    return ReflectionInput(task, "an output", prior, max_tokens=max_tokens)


def words(count, word="word"):
    return " ".join([word] * count)


def test_what_is_within_its_bounds_stays_as_it_is():
    reflection = TaskReflection("Research {topic}", "Better", ("one",), ("two",), run_count=7)
    assert bounded(reflection, given()) == reflection


@pytest.mark.parametrize("blank", ["", " \n", "\u200b", TASK.description, f" {TASK.description}\r\n"])
def test_what_says_nothing_new_is_the_tasks_own(blank):
    reflection = bounded(TaskReflection(blank, "", ("", " one ", "\u200b"), ("two\r\n",)), given())
    assert (reflection.refined_description, reflection.refined_expected_output) == (
        TASK.description,
        "A report",
    )
    assert (reflection.observations, reflection.suggestions) == (("one",), ("two",))


@pytest.mark.parametrize(
    ("task", "prior", "refined", "refused"),
    [
        (Task("About {a} and {b}"), None, ("About {a}", ""), r"refined description lost \{b\}"),
        (Task("About {a} and {b}"), None, ("About a, b", ""), r"lost \{a\}, \{b\}"),
        (Task("About {a}"), None, ("About {{a}}", ""), r"lost \{a\}"),
        (Task("About {{a}}"), None, ("About", ""), None),
        (Task("About {a}", "With {b}"), None, ("{a}", "Without"), None),
        (Task(words(30)), None, (words(10), ""), None),
        (
            Task(words(30)),
            None,
            (words(9), ""),
            "refined description lost most of its content: it has 9 words",
        ),
        (Task(words(29)), None, (words(1), ""), None),
        (
            Task("d", words(60)),
            None,
            ("d", words(19)),
            "refined expected output lost most .* the task's own has 60",
        ),
        (Task("d", "e"), (words(90), "e"), (words(29), ""), "the one in force has 90"),
        (Task("d", "e"), (words(90), "e"), (words(30), ""), None),
        (Task("d", "e"), ("d", words(90)), ("d", words(29)), "the one in force has 90"),
        (Task("d", "e"), (words(90), words(90)), ("", ""), None),
        (Task("調" * 60), None, ("調" * 19, ""), "has 19 words"),
        (Task("調" * 60), None, ("調" * 21, ""), None),
    ],
    ids=range(15),
)
def test_a_loss_is_refused(task, prior, refined, refused):
    told = given(task, prior=TaskReflection(*prior) if prior else None)
    if refused is None:
        bounded(TaskReflection(*refined), told)
        return
    with pytest.raises(OutputError, match=refused):
        bounded(TaskReflection(*refined), told)


def test_what_else_was_noticed_is_kept_where_a_refined_text_is_refused():
    told = given(Task("About {a}", "A report"))
    note = bounded(TaskReflection("About it", "Two pages", ("Too long",), ("Be brief",)), told)
    assert note.refined_description == "About {a}"
    assert (note.refined_expected_output, note.observations, note.suggestions) == (
        "Two pages",
        ("Too long",),
        ("Be brief",),
    )


def items(count, word):
    return tuple(f"{word} {number:02} {words(8)}" for number in range(count))


@pytest.mark.parametrize(
    ("observations", "suggestions", "kept"),
    [(10, 5, (5, 5)), (0, 20, (0, 10)), (5, 30, (0, 10)), (10, 0, (10, 0)), (30, 2, (8, 2))],
)
def test_a_long_note_is_cut_at_items_from_the_end(observations, suggestions, kept):
    reflection = TaskReflection("", "", items(observations, "observation"), items(suggestions, "suggestion"))
    cut = bounded(reflection, given(max_tokens=165))
    assert cut.observations == reflection.observations[: len(cut.observations)]
    assert cut.suggestions == reflection.suggestions[: len(cut.suggestions)]
    assert (len(cut.observations), len(cut.suggestions)) == kept
    assert 130 < size_of(cut, TASK) <= 165


LINES = "\n".join(f"- {words(10)}" for _ in range(60))


@pytest.mark.parametrize(
    ("task", "refined", "kept"),
    [
        (TASK, (f"Research {{topic}}\n{LINES}", "Short"), ("cut", "Short")),
        (TASK, (f"Research {{topic}} {words(1000)}", "Short"), (TASK.description, "Short")),
        (TASK, (f"{LINES}\nResearch {{topic}}", "Short"), (TASK.description, "Short")),
        (TASK, ("Research {topic}", LINES), ("Research {topic}", "cut")),
        (TASK, ("Research {topic}", words(1000)), ("Research {topic}", "A report")),
        (Task(words(900)), (LINES, "Short"), (words(900), "Short")),
        (Task("d", "e"), (LINES, f"{LINES}\n- more"), ("cut", "cut")),
    ],
    ids=range(7),
)
def test_a_long_refined_text_is_cut_at_its_lines_or_is_the_tasks_own(task, refined, kept):
    cut = bounded(TaskReflection(*refined, ("one",), ("two",)), given(task, max_tokens=200))
    texts = (cut.refined_description, cut.refined_expected_output)
    for text, whole, expected in zip(texts, refined, kept, strict=True):
        if expected == "cut":
            assert whole.startswith(f"{text}\n")
            assert len(text) > 200
        else:
            assert text == expected
    assert size_of(cut, task) <= 200


@pytest.mark.parametrize("seed", range(300))
def test_any_note_fits_and_fits_again(seed):
    random = Random(seed)  # noqa: S311 (no secret)

    def text(most):
        return "".join(
            random.choice(["word ", "é", "日本", "\n", "- ", "{topic}", "."])
            for _ in range(random.randrange(most))
        )

    most = random.choice([50, 120, 600])
    reflection = TaskReflection(
        f"{{topic}} {text(1500)}",
        text(1500),
        tuple(text(200) for _ in range(random.randrange(30))),
        tuple(text(200) for _ in range(random.randrange(30))),
    )
    # Half of it is left, so it isn't refused; a cut may leave less.
    prior = TaskReflection(
        f"{reflection.refined_description} " * 2, f"{reflection.refined_expected_output} " * 2
    )
    told = given(max_tokens=most, prior=prior)
    cut = bounded(reflection, told)
    assert size_of(cut, TASK) <= most
    assert bounded(cut, told) == cut


@pytest.mark.parametrize(
    "text", ["x" * 10**6, "x\n" * 100_000, "\ud800" * 100_000], ids=lambda text: ascii(text[:2])
)
def test_the_longest_note_is_bounded(text):
    cut = bounded(TaskReflection(f"{{topic}}\n{text}", text, (text,) * 3, (text, "short")), given())
    assert size_of(cut, TASK) <= 600
    assert all(one.isprintable() for one in cut.observations)
