"""Obedience: which runs repeat the failure that a lesson is about."""

import asyncio

import pytest

from redraft import QualityCriterion, ReflectionPattern, ScriptedModel, reflect
from redraft.lessons import Failure, Procedure
from redraft.lessons.obedience import RunFailures
from redraft.lessons.outcome import outcome_of
from redraft.lessons.writer import FAILED_BEFORE, facts_only, write_reflection
from redraft.types import Conversation, Draft, PlainTask
from support.lessons import DECISION, PROCEDURE, lesson

DIGITS = QualityCriterion("digits", evaluator="regex", evaluator_config={"pattern": r": \d+$"})
TOTAL = QualityCriterion("total", evaluator="regex", evaluator_config={"pattern": "total"})
CLEAR = QualityCriterion("clear", "It is clear to a newcomer.")
NAMED = QualityCriterion(
    "named", evaluator="function", evaluator_config={"function": lambda text: "tea" in text}
)


def sql(text):
    """Fail as a database does, with what was asked for in the message."""
    return "t_ord" in text, f"no such table: {text.split()[-1]}. There is: t_ord(o_no, cust_nm)."


def failure(went_wrong, error="", advice="Do it right.", **fields):
    content = Failure("A task failed.", went_wrong, "Not known.", advice, "None.")
    return lesson(content, error=error, **fields)


async def failures_of(output, criteria=(), evaluate=None, conversation=None, judge=None, revised=()):
    outputs = iter([output, *revised])
    pattern = ReflectionPattern(len(revised), quality_criteria=list(criteria) or None, reflection_model=judge)
    result = await reflect(
        PlainTask("Write the order down."),
        generate=lambda _prompt: Draft(next(outputs), conversation=conversation),
        evaluate=evaluate,
        pattern=pattern,
    )
    return RunFailures.of(result, outcome_of(result))


DIGITS_LESSON = failure("digits: No match.", "No match.", "The text ends with a colon, a space and digits.")


def learned(criteria, output="tea: two", evaluate=None, judge=None):
    """A lesson as the program writes it about a failed output, without a model."""

    async def main():
        outputs = iter([output])
        pattern = ReflectionPattern(0, quality_criteria=list(criteria) or None, reflection_model=judge)
        result = await reflect(
            PlainTask("Write the order down."),
            generate=lambda _prompt: next(outputs),
            evaluate=evaluate,
            pattern=pattern,
        )
        outcome = outcome_of(result)
        reflection = await write_reflection(outcome, facts_only)
        return lesson(reflection.content, error=outcome.error)

    return asyncio.run(main())


def opinion(*messages):
    replies = iter(messages)
    return ScriptedModel(
        lambda _request: {
            "criteria": {"clear": 0.2},
            "issues": [{"message": next(replies), "criterion": "clear"}],
            "suggestions": [],
            "confidence": 0.9,
        }
    )


@pytest.mark.parametrize(
    ("taught", "run", "obeyed"),
    [
        pytest.param(
            {"criteria": [DIGITS]}, {"criteria": [DIGITS], "output": "tea: two"}, False, id="requirement"
        ),
        pytest.param({"criteria": [DIGITS]}, {"criteria": [DIGITS], "output": "tea: 2"}, True, id="passes"),
        pytest.param(
            {"criteria": [DIGITS]},
            {"criteria": [DIGITS, TOTAL], "output": "tea: 2"},
            True,
            id="another criterion fails",
        ),
        pytest.param(
            {"criteria": [DIGITS]},
            {"criteria": [DIGITS], "output": "tea: two", "revised": ["tea: 2"]},
            False,
            id="the first version fails and a revision passes",
        ),
        pytest.param({"criteria": [NAMED]}, {"criteria": [NAMED], "output": "milk"}, False, id="function"),
        pytest.param(
            {"evaluate": sql, "output": "SELECT * FROM orders"},
            {"evaluate": sql, "output": "SELECT * FROM customers"},
            False,
            id="same message about another value",
        ),
        pytest.param(
            {"evaluate": lambda _text: (False, "It has 14 words, at most 5 are allowed.")},
            {"evaluate": lambda _text: (False, "It has 9 words, at most 5 are allowed."), "output": "x"},
            False,
            id="same message with another number",
        ),
        pytest.param(
            {"evaluate": sql, "output": "SELECT * FROM orders"},
            {"evaluate": lambda _text: (False, "syntax error near FROM"), "output": "x"},
            True,
            id="another message",
        ),
        pytest.param(
            {"criteria": [CLEAR], "judge": ("The second sentence is too long.",)},
            {"criteria": [CLEAR], "output": "x", "judge": ("Jargon is not explained.",)},
            False,
            id="the judge of one criterion in other words",
        ),
    ],
)
def test_a_run_repeats_the_failure_that_taught_a_lesson_or_avoids_it(taught, run, obeyed):
    taught = {"criteria": [], "output": "milk", **taught}
    for one in (taught, run):
        if "judge" in one:
            one["judge"] = opinion(*one["judge"])
    about = learned(**taught)
    assert asyncio.run(failures_of(**run)).obeyed(about) is obeyed


E4031 = failure("http_get gave E4031.")


def calls(tool, content, outcome="success"):
    part = {"part_kind": "tool-return", "tool_name": tool, "content": content, "outcome": outcome}
    return Conversation([{"parts": [part]}])


@pytest.mark.parametrize(
    ("about", "conversation", "obeyed"),
    [
        pytest.param(E4031, calls("http_get", "HTTPError: E4031"), False, id="code"),
        pytest.param(E4031, calls("http_get", "HTTPError: E5002"), None, id="another"),
        pytest.param(
            failure("The page was asked for.", "HTTPError: E4031"),
            calls("http_get", "HTTPError: E5002"),
            False,
            id="error class",
        ),
        pytest.param(
            failure("browse gave E4031.", tools=("browse",)),
            calls("http_get", "HTTPError: E4031"),
            None,
            id="tool",
        ),
        pytest.param(
            failure("http_get said the page is gone."),
            calls("http_get", "the page is gone", "failed"),
            False,
            id="words",
        ),
        pytest.param(E4031, calls("http_get", "E4031 is a room"), True, id="an answer"),
    ],
)
def test_the_error_of_a_tool_that_comes_again_is_the_same_failure(about, conversation, obeyed):
    failures = asyncio.run(failures_of("x", evaluate=lambda _text: True, conversation=conversation))
    assert failures.obeyed(about) is obeyed


@pytest.mark.parametrize(
    ("error", "obeyed"),
    [
        (TimeoutError("no answer within 30 s"), False),
        (TimeoutError("no answer within 60 s"), False),
        (TimeoutError("the queue is closed"), None),
        (ValueError("no answer within 30 s at all, for whatever reason"), None),
    ],
)
def test_an_error_that_is_raised_again_is_the_same_failure(error, obeyed):
    about = failure(
        "It failed with: TimeoutError: no answer within 30 s", "TimeoutError: no answer within 30 s"
    )
    assert RunFailures.of_error(error).obeyed(about) is obeyed


@pytest.mark.parametrize(
    ("content", "obeyed"),
    [
        pytest.param(DECISION, None, id="decision"),
        pytest.param(PROCEDURE, None, id="procedure without a failure"),
        pytest.param(Procedure("Use digits.", f"{FAILED_BEFORE}digits: No match."), True, id="mended"),
    ],
)
def test_only_a_lesson_about_a_failure_can_be_obeyed(content, obeyed):
    failures = asyncio.run(failures_of("tea: 2", [DIGITS]))
    assert failures.obeyed(lesson(content)) is obeyed


def test_a_run_that_was_not_judged_says_nothing():
    failures = asyncio.run(failures_of("tea: 2", [CLEAR], judge=ScriptedModel(lambda _request: "no verdict")))
    assert failures.obeyed(DIGITS_LESSON) is None
