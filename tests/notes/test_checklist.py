import asyncio
import json
import string
from dataclasses import replace
from random import Random

import pytest

from redraft import (
    Ensemble,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    Task,
)
from redraft.errors import OutputError
from redraft.notes import (
    CheckReflectionStrategy,
    InMemoryReflectionStore,
    ReflectionConfig,
    TaskIdentity,
    TaskReflection,
)
from redraft.notes.checklist import Changes, changes_in, holds_data
from redraft.notes.note import note_block
from redraft.notes.store import NoteStore
from redraft.notes.strategy import size_of
from redraft.notes.task import ReflectionInput
from redraft.types import PlainTask, ReflectionEvaluation
from support.ensembles import warnings

TESTS = QualityCriterion("price", evaluator="command", evaluator_config={"calls": [["p(1)", 2], ["p(2)", 4]]})
ZERO = QualityCriterion("zero", evaluator="command", evaluator_config={"calls": [["p(0)", 0]]})
SHORT = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 8})
CLEAR = QualityCriterion("clear", "Anybody understands it.")
WRONG, RIGHT = "def p(n): return 7", "def p(n): return 2 * n"
GUIDANCE = """One function, and nothing else.
- `p(1)` is 2.
- `p(2)` is 4."""


def order(*criteria, answers=(), **more):
    """A task whose handler gives one answer after the other, then repeats the last."""
    left = list(answers) or [WRONG, RIGHT]
    return Task(
        "Write the function that this message asks for: {message}",
        "One function, and nothing else.",
        name="order",
        handler=lambda ctx: left.pop(0) if len(left) > 1 else left[0],
        **({"criteria": criteria or [TESTS], "reflect": True} | more),
    )


def run(task, times=1, store=None, **more):
    ensemble = Ensemble(tasks=[task], reflection_store=store or InMemoryReflectionStore(), keep=False, **more)
    return [ensemble.run_sync({"message": "Two packs of tea, please."})[task] for _ in range(times)]


def judge(request):
    """Judge by the criterion that a model judges, and advise."""
    if request.role == "reflection":
        return "ADD: Put the name of the thing before its number."
    return json.dumps({"scores": {"clear": 0.4}, "issues": ["Hard to read"], "suggestions": []})


def test_a_failed_test_becomes_a_requirement_without_a_model(caplog):
    first, second = run(order(), 2)
    assert first.reflection.refined_expected_output == GUIDANCE
    assert first.reflection.refined_description == "Write the function that this message asks for: {message}"
    assert (first.reflection.observations, first.reflection.suggestions) == ((), ())
    assert (second.note, second.result.success, second.reflection.refined_expected_output) == (
        1,
        True,
        GUIDANCE,
    )
    assert size_of(second.reflection, order().plain()) < 120
    [warning] = warnings(caplog)
    assert "'order' contain the tests that failed, but no advice" in warning
    assert "ReflectionConfig.model" in warning


def test_who_asks_for_no_advice_is_not_warned(caplog):
    [result] = run(order(reflect=ReflectionConfig(strategy=CheckReflectionStrategy())))
    assert result.reflection.refined_expected_output == GUIDANCE
    assert warnings(caplog) == []


def test_a_model_is_not_asked_about_failures_that_checks_explain():
    model = ScriptedModel([])
    [result] = run(order(), model=model)
    assert result.reflection.refined_expected_output == GUIDANCE
    assert model.requests == []


def test_a_run_that_misses_nothing_leaves_a_note_that_is_not_injected():
    first, second = run(order(answers=[RIGHT]), 2)
    assert size_of(first.reflection, order().plain()) == 0
    assert (second.note, second.arm, second.reflection.run_count) == (None, "none", 2)


def test_the_first_version_counts_even_if_a_revision_fixed_it():
    pattern = ReflectionPattern(2, [TESTS])
    task = order(criteria=None, pattern=pattern)
    [result] = run(task)
    assert result.result.success
    assert result.reflection.refined_expected_output == GUIDANCE


def test_what_the_prompt_states_anyway_is_no_part_of_a_note():
    [result] = run(order(SHORT, answers=["a b c d e f g h i j"]), model=ScriptedModel([]))
    assert size_of(result.reflection, order().plain()) == 0


def test_requirements_are_added_one_by_one():
    one = "def p(n): return 7 if n == 0 else 2 * n"
    *_, last = run(order(TESTS, ZERO, answers=["def p(n): return 7 * n", one, RIGHT]), 3)
    assert last.reflection.refined_expected_output == f"{GUIDANCE}\n- `p(0)` is 0."


def test_a_requirement_that_the_criteria_no_longer_have_is_dropped():
    store = InMemoryReflectionStore()
    run(order(), store=store)
    [result] = run(order(ZERO, answers=[WRONG]), store=store)
    assert result.reflection.refined_expected_output == "One function, and nothing else.\n- `p(0)` is 0."


def test_the_text_of_a_person_or_an_older_version_stays():
    store, task = InMemoryReflectionStore(), order()
    written = TaskReflection.of_first_run(
        "Write it: {message}", "- Code in one line", ["seen"], ["Be quick."]
    )
    asyncio.run(store.store(TaskIdentity.of(task), written))
    *_, last = run(task, 2, store)
    note = last.reflection
    assert (note.refined_description, note.observations, note.suggestions) == (
        "Write it: {message}",
        ("seen",),
        ("Be quick.",),
    )
    assert note.refined_expected_output == "- Code in one line\n- `p(1)` is 2.\n- `p(2)` is 4."


def test_the_definition_is_not_repeated():
    task = order(ZERO, answers=[WRONG])
    task = Task(
        f"{task.description} `p(0)` is  0",
        handler=task.handler,
        criteria=[ZERO],
        reflect=True,
    )
    [result] = run(task)
    assert result.reflection.refined_expected_output == ""


def canary(chance):
    return "".join(chance.choices(string.ascii_letters, k=9))


def schema_check(name, **form):
    return QualityCriterion(name, evaluator="schema", evaluator_config={"schema": form})


def echo(text):
    return False, f"{text} is wrong"


@pytest.mark.parametrize("seed", range(6))
def test_no_value_of_a_run_reaches_the_note(seed):
    chance = Random(seed)  # noqa: S311 (no secret)
    words = [canary(chance) for _ in range(8)]
    a, b, c, d, e, f, g, told = words
    outputs = [
        json.dumps({a: b, "quantity": c, "tags": [d, {e: f}], "by": {g: told}}),
        f"def p(n): return {a!r} if n else {b!r}",
        f"def p(n): raise ValueError({told!r})",
        f"{a} = {b!r}\ndef p(n): return [{a}, {c!r}]",
    ]
    tags = {"tags": {"items": {"enum": ["x", "y"]}}, "by": {"additionalProperties": {"type": "integer"}}}
    criteria = [
        TESTS,
        schema_check("more", properties=tags, propertyNames={"maxLength": 4}),
        schema_check("either", anyOf=[{"required": ["x"]}, {"type": "array", "items": {"type": "integer"}}]),
        QualityCriterion("part", evaluator="words", evaluator_config={"at_least": 99, "path": "/by"}),
        QualityCriterion("echo", evaluator="function", evaluator_config={"function": echo}),
        QualityCriterion("form2", evaluator="regex", evaluator_config={"pattern": "^ok$"}),
        QualityCriterion(
            "never", evaluator="regex", evaluator_config={"pattern": r"\w", "must_match": False}
        ),
        CLEAR,
    ]

    def leaks(request):
        if request.role == "reflection":
            seen = [word for word in words if word in request.messages[-1].content]
            return f"ADD: Write {chance.choice(seen)} first.\nADD: Say who asks, {told}."
        return json.dumps({"scores": {"clear": 0.1}, "issues": [f"{told} is unclear"], "suggestions": []})

    task = order(*criteria, answers=outputs)
    store = InMemoryReflectionStore()
    ensemble = Ensemble(ScriptedModel(leaks), [task], store, keep=False)
    for _ in range(4):
        result = ensemble.run_sync({"message": told})[task]
        note = note_block(result.reflection, task.plain(), {})
        assert not any(word.casefold() in note.casefold() for word in words)
    assert "`p(1)` is 2" in note


def test_a_hidden_criterion_leaves_nothing():
    hidden = [
        replace(TESTS, shown=False),
        replace(ZERO, shown="description"),
    ]
    [result] = run(order(*hidden), model=ScriptedModel([]))
    assert result.reflection.refined_expected_output == "One function, and nothing else."


# Advice.


def test_a_model_advises_on_what_checks_leave_open():
    model = ScriptedModel(judge)
    first, second = run(order(TESTS, CLEAR), 2, model=model)
    assert first.reflection.refined_expected_output == GUIDANCE
    assert first.reflection.suggestions == ("Put the name of the thing before its number.",)
    assert second.reflection.suggestions == first.reflection.suggestions
    prompt = [request.messages[-1].content for request in model.requests if request.role == "reflection"][1]
    assert "1. Put the name of the thing before its number." in prompt
    assert "by 'clear'?" in prompt
    assert GUIDANCE in prompt


@pytest.mark.parametrize("reply", [ModelError("the model is down"), "I would change a lot."])
def test_failed_advice_costs_no_requirement(reply, caplog):
    def fails(request):
        if request.role != "reflection":
            return judge(request)
        if isinstance(reply, str):
            return reply
        raise reply

    [result] = run(order(TESTS, CLEAR), model=ScriptedModel(fails))
    assert (result.reflection.refined_expected_output, result.reflection.suggestions) == (GUIDANCE, ())
    [warning] = warnings(caplog)
    assert "was not updated" in warning


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("ADD: Be kind.", Changes(("Be kind.",))),
        ("- ADD: Be kind.\n* **DROP:** 2", Changes(("Be kind.",), frozenset({2}))),
        (
            "Here you are:\n\nadd: Be kind.\nDROP: 1, because it failed",
            Changes(("Be kind.",), frozenset({1})),
        ),
        ("NONE", Changes()),
        ("**NONE.**", Changes()),
        ("ADD: a b\nADD: a b\nADD: c\nADD: d", Changes(("a b", "c"))),
        (f"ADD: {'long ' * 99}", Changes()),
        ("DROP: the first one", Changes()),
    ],
)
def test_changes_are_read(reply, expected):
    assert changes_in(reply) == expected


@pytest.mark.parametrize("reply", ["", "I have none to add", "ADD:", "REFINED_DESCRIPTION:\nBetter"])
def test_a_reply_without_changes_is_an_error(reply):
    with pytest.raises(OutputError, match="begins with ADD: or DROP:"):
        changes_in(reply)


def subject(output="", prior=None, **more):
    return ReflectionInput(
        PlainTask("Sum up the page on tea.", "Three short sentences."), output, prior, **more
    )


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("Begin with the conclusion.", ("Name a source.", "Begin with the conclusion.")),
        ("Name a source first.", ("Name a source.",)),
        ("Sum up the page in three short sentences.", ("Name a source.",)),
        ("The task description should name an audience.", ("Name a source.",)),
        ("Ask the author of the task for more.", ("Name a source.",)),
    ],
)
def test_only_advice_that_adds_something_is_added(added, expected):
    note = TaskReflection.of_first_run("", "Three short sentences.", [], ["Name a source."])
    assert Changes((added,)).applied_to(note, subject()) == expected


def test_advice_is_dropped_by_its_number_and_the_oldest_makes_room():
    note = TaskReflection.of_first_run("", "", [], ["first", "second", "third"])
    assert Changes((), frozenset({2, 9})).applied_to(note, subject()) == ("first", "third")
    note = TaskReflection.of_first_run("", "", [], list("abcdef"))
    assert Changes(("Mind the gap",)).applied_to(note, subject()) == (*"bcdef", "Mind the gap")


@pytest.mark.parametrize(
    ("text", "output", "expected"),
    [
        ("Write Lopez first.", "For Maria Lopez", True),
        ("Maria is the customer.", '{"customer": "Maria"}', True),
        ("Order 40 of them.", "We want 40.", True),
        ("Always mention desk lamps.", '{"item": "desk lamps"}', True),
        ("Say that the leaves are dried slowly.", "First the leaves are dried slowly in the sun.", True),
        ("The leaves come first.", "First the leaves are dried slowly in the sun.", False),
        ("Write about the tea.", "The tea is hot. Tea is good.", False),
        ("Write three sentences.", "three", False),
    ],
)
def test_data_of_a_run_is_recognised(text, output, expected):
    assert holds_data(text, subject(output)) is expected


def test_data_that_a_judge_quotes_is_recognised():
    told = ReflectionEvaluation(0.2, issues=("It misses the name Ken Sato.",))
    assert holds_data("Name Sato.", subject("An order.", evaluation=told))


# In force.


def test_a_note_that_was_rolled_back_does_not_come_into_force_when_its_run_is_resumed():
    async def main():
        notes, task = NoteStore(MemoryStore()), PlainTask("Say it.")
        for number in (1, 2, 3):
            reflection = TaskReflection.of_first_run(f"v{number}", "")
            await notes.append(task, reflection, run_id=f"r{number}", based_on=number - 1 or None)
        identity = TaskIdentity.of(task)
        await notes.rollback(identity, 2)
        again, _ = await notes.append(task, TaskReflection.of_first_run("v3", ""), run_id="r3", based_on=2)
        assert again.version == 3
        assert (await notes.current(identity)).version == 2
        assert (await notes.noted(identity)).in_force == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    ("config", "keeps", "criteria", "tried"),
    [
        (True, True, [SHORT, CLEAR], True),
        (ReflectionConfig(trial=False), True, [SHORT, CLEAR], False),
        (True, False, [SHORT, CLEAR], False),
        (True, True, None, False),
    ],
)
def test_notes_are_tried_where_that_can_show_something(config, keeps, criteria, tried):
    class Latest:
        def __init__(self):
            self.kept = {}

        def store(self, identity, reflection):
            self.kept[identity] = reflection

        def retrieve(self, identity):
            return self.kept.get(identity)

    def answer(request):
        return "SUGGESTIONS:\n- Use the keys of the list." if criteria is None else judge(request)

    task = Task(
        "Turn it into an order.",
        handler=lambda ctx: '{"product": "tea"}',
        criteria=criteria,
        reflect=config,
    )
    store = InMemoryReflectionStore() if keeps else Latest()
    ensemble = Ensemble(ScriptedModel(answer), [task], store, keep=MemoryStore())
    arms = [ensemble.run_sync(run_id=f"run-{number}")[task].arm for number in range(24)]
    assert arms[:3] == ["none", "note", "note"]
    assert ("control" in arms) is tried
