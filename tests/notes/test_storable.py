import pytest

from redraft.errors import OutputError
from redraft.notes.note import TaskReflection
from redraft.notes.strategy import redacted, storable
from redraft.notes.task import ReflectionInput
from redraft.types import Task
from support.redact_corpus import Maker, person

SECRET = "correct-horse-" + "battery-staple-77"
LOGIN = "Connect as admin with password: " + "Tr0ub4dor" + "&3xyz"


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setenv("REDRAFT_TEST_API_KEY", SECRET)


@pytest.mark.parametrize("place", range(4))
def test_no_text_of_a_reflection_keeps_a_secret(place):
    parts = ["d", "e", ("o",), ("s",)]
    parts[place] = f"use {SECRET} now" if place < 2 else ("first", f"use {SECRET} now")
    kept = redacted(TaskReflection(*parts))
    assert SECRET not in repr(kept)
    assert repr(kept).count("[withheld: ") == 1
    assert redacted(kept) == kept


@pytest.mark.parametrize("place", range(4))
def test_no_text_of_a_reflection_keeps_personal_data(place):
    told, personal = person(Maker())
    parts = ["d", "e", ("o",), ("s",)]
    parts[place] = told if place < 2 else ("first", told)
    kept = repr(redacted(TaskReflection(*parts)))
    assert kept.count("[withheld: ") == 3
    assert not any(value in kept for value in personal)


def test_text_around_secrets_stays():
    reflection = TaskReflection(
        "Log in with {user} and password={password}", "e", ("o",), ("s",), run_count=3
    )
    assert redacted(reflection) == reflection


def test_a_text_that_is_the_tasks_own_is_withheld_too():
    kept = storable(TaskReflection("", ""), ReflectionInput(Task(LOGIN), "out"))
    assert kept.refined_description == "Connect as admin with password: [withheld: password]"


def test_no_cut_leaves_half_of_a_secret():
    key = "\n".join(
        ["-----BEGIN " + "PRIVATE KEY-----", *["MIIEvQIBADANBgkq" * 4] * 40, "-----END " + "PRIVATE KEY-----"]
    )
    given = ReflectionInput(Task("d"), "out", max_tokens=100)
    kept = storable(TaskReflection(f"Use this key:\n{key}\nand no other.", "e"), given)
    assert kept.refined_description == "Use this key:\n[withheld: private key]\nand no other."


def test_the_result_of_a_custom_strategy_is_not_changed():
    task = Task("Research {topic}", "A report")
    answer = TaskReflection.of_first_run("Research {topic} well", "A report", ["Custom analysis applied"], [])
    assert storable(answer, ReflectionInput(task, "out")) == answer


def test_a_reflection_beyond_its_bounds_is_not_stored():
    given = ReflectionInput(Task("About {topic}"), "out")
    with pytest.raises(OutputError, match="lost"):
        storable(TaskReflection("About it", ""), given)


@pytest.mark.parametrize("answer", ["a text", None, {"refined_description": "d"}])
def test_other_objects_are_refused(answer):
    with pytest.raises(OutputError, match="must return a TaskReflection, got"):
        storable(answer, ReflectionInput(Task("d"), "out"))


def test_text_that_cannot_be_redacted_is_refused_without_being_quoted(monkeypatch):
    monkeypatch.setattr("redraft.redact.redactor.Redactor.is_clean", lambda _self, text: "kept" not in text)
    with pytest.raises(OutputError, match="holds a secret that could not be withheld") as caught:
        redacted(TaskReflection("d", "e", (), ("kept value",)))
    assert "value" not in str(caught.value)
