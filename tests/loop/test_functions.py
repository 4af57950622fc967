import asyncio

import pytest

from redraft import (
    ConfigError,
    QualityCriterion,
    ReflectionFailedError,
    ReflectionPattern,
    RunContext,
    ScriptedModel,
    reflected,
)

CITES = QualityCriterion("cites", evaluator="regex", evaluator_config={"pattern": r"\[\d+\]"})


def test_the_function_is_called_again_with_the_critique():
    calls = []

    @reflected(criteria=[CITES], max_iterations=3)
    async def answer(question: str, feedback: str = "") -> str:
        """Answer a question."""
        calls.append((question, feedback))
        return "Because [1]." if feedback else "Because."

    assert asyncio.run(answer("Why?")) == "Because [1]."
    assert calls[0] == ("Why?", "")
    assert "cites" in calls[1][1]
    assert answer.__name__ == "answer"
    assert answer.__doc__ == "Answer a question."


def test_run_gives_the_whole_result():
    @reflected(evaluate=lambda text: (len(text) < 9, "too long"))
    async def answer(question, *, feedback=""):
        return "short" if feedback else "far too long"

    result = answer.run_sync("Why?")
    assert result.success
    assert [version.output for version in result.history.versions] == ["far too long", "short"]


def test_the_callers_own_feedback_counts_for_the_first_draft():
    seen = []

    @reflected(evaluate=lambda text: (len(seen) > 1, "again"))
    def answer(question, feedback=""):
        seen.append(feedback)
        return f"answer {len(seen)}"

    answer.run_sync("Why?", "be brief")
    assert seen[0] == "be brief"
    assert "again" in seen[1]


def test_attempt_and_run_are_filled_too():
    @reflected(evaluate=lambda text: text == "2 2")
    async def answer(question, attempt=None, run: RunContext | None = None):
        return f"{attempt.number} {run.iteration}"

    assert answer.run_sync("Why?").success


def test_the_judge_sees_what_was_asked():
    judge = ScriptedModel(["not json", "not json either"])

    @reflected(criteria=["Under 80 words"], model=judge, max_iterations=0)
    async def answer(question: str, style: str = "plain", feedback: str = "") -> str:
        """Answer in one sentence."""
        return "Because."

    answer.run_sync("Why is the sky blue?")
    asked = judge.requests[0].messages[-1].content
    assert "Answer in one sentence." in asked
    assert "question: Why is the sky blue?" in asked
    assert "feedback" not in asked


def test_named_options_stand_in_for_the_patterns():
    pattern = ReflectionPattern(max_iterations=9, quality_threshold=0.5)
    decorate = reflected(
        evaluate=bool, pattern=pattern, max_iterations=1, quality_threshold=0.9, budget_usd=0.1
    )

    async def answer(feedback=""):
        return "x"

    chosen = decorate(answer).pattern
    assert (chosen.max_iterations, chosen.quality_threshold, chosen.budget_usd) == (1, 0.9, 0.1)


def test_a_function_that_can_not_be_told_is_refused_where_it_is_written():
    with pytest.raises(ConfigError, match="feedback"):

        @reflected(evaluate=bool)
        async def answer(question):
            return "x"


def generated(question, feedback=""):
    yield "x"


async def streamed(question, feedback=""):
    yield "x"


def answer_as_usual(question, feedback=""):
    return "x"


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (3, "got 3"),
        (classmethod(answer_as_usual), "below @classmethod"),
        (staticmethod(answer_as_usual), "below @classmethod and @staticmethod"),
        (generated, "generated is a generator"),
        (streamed, "streamed is a generator"),
    ],
)
def test_what_is_no_function_with_an_output_is_refused(fn, says):
    with pytest.raises(ConfigError, match=says):
        reflected(evaluate=bool)(fn)


def test_what_is_no_pattern_is_refused():
    with pytest.raises(ConfigError, match="pattern must be a ReflectionPattern"):
        reflected(evaluate=bool, pattern=ReflectionPattern)


def test_bad_criteria_are_refused_where_they_are_written():
    with pytest.raises(ConfigError, match="needs 'pattern'"):

        @reflected(criteria=[QualityCriterion("x", evaluator="regex")])
        async def answer(question, feedback=""):
            return "x"


def test_wrong_arguments_are_a_type_error_as_always():
    @reflected(evaluate=bool)
    async def answer(question, feedback=""):
        return "x"

    with pytest.raises(TypeError):
        answer.run_sync()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "nothing to judge with: pass evaluate=..., criteria=... that are checks, or model=..., or set"),
        ({"criteria": ["clarity"]}, "no model to judge 'clarity': pass model=..., or set REDRAFT_MODEL"),
    ],
)
def test_what_judges_must_not_be_forgotten(given, says):
    with pytest.raises(ConfigError, match=says):
        reflected(**given)(answer_as_usual)


def has_no_such_attribute(output):
    return output.lenght < 9


def has_no_such_name(output):
    return len(outptu) < 9  # noqa: F821 (that is the mistake)


def has_the_wrong_type(output):
    return output + 1


def has_no_return(output):
    len(output)  # and nothing is returned


MISTAKES = [
    (has_no_such_attribute, AttributeError, "lenght"),
    (has_no_such_name, NameError, "outptu"),
    (has_the_wrong_type, TypeError, "concatenate"),
    (has_no_return, TypeError, "returned None; expected a bool, a number in 0..1"),
]


def ways_to_judge(mistake):
    criterion = QualityCriterion("mine", evaluator="function", evaluator_config={"function": mistake})
    return [{"evaluate": mistake}, {"criteria": [criterion]}, {"criteria": [criterion, CITES]}]


@pytest.mark.parametrize(("mistake", "error", "says"), MISTAKES)
@pytest.mark.parametrize("way", range(3))
def test_a_mistake_in_the_function_that_judges_is_raised(mistake, error, says, way):
    called = []

    @reflected(**ways_to_judge(mistake)[way])
    async def answer(question, feedback=""):
        called.append(feedback)
        return "x"

    with pytest.raises(error, match=says):
        answer.run_sync("Why?")
    assert called == [""]  # paid for once
    assert answer.pattern.get_history().best_version.output == "x"  # and not lost
    assert "Not judged" in answer.pattern.get_history().best_version.evaluation.issues[0]


@pytest.mark.parametrize(("mistake", "error", "says"), MISTAKES)
@pytest.mark.parametrize("way", range(3))
def test_a_mistake_after_the_first_version_ends_the_run_and_is_in_the_log(mistake, error, says, way, caplog):
    def judge(output):
        return (False, "too short") if output == "draft 1" else mistake(output)

    @reflected(**ways_to_judge(judge)[way])
    async def answer(question, feedback=""):
        return "draft 2" if feedback else "draft 1"

    assert asyncio.run(answer("Why?")) == "draft 1"
    [warning] = [record for record in caplog.records if record.name == "redraft"]
    assert warning.levelname == "WARNING"
    assert f"{error.__name__}: " in warning.getMessage()
    assert says in warning.getMessage()
    result = answer.run_sync("Why?")
    assert result.convergence_reason == "error"
    assert isinstance(result.error, error)


@pytest.mark.parametrize("function", ["generate", "revise"])
def test_so_does_a_mistake_in_the_function_that_answers(function, caplog):
    @reflected(evaluate=lambda output: (False, "too short"))
    async def answer(question, feedback=""):
        return has_no_such_attribute(question) if feedback or function == "generate" else "draft 1"

    if function == "generate":
        with pytest.raises(AttributeError):
            asyncio.run(answer("Why?"))
        return
    assert asyncio.run(answer("Why?")) == "draft 1"
    assert "AttributeError" in caplog.text


def test_an_output_that_was_not_judged_is_in_the_log(caplog):
    @reflected(evaluate=lambda output: "very good")
    async def answer(question, feedback=""):
        return "draft"

    assert asyncio.run(answer("Why?")) == "draft"
    [warning] = [record for record in caplog.records if record.name == "redraft"]
    assert "the verdict is 'very good'" in warning.getMessage()


def test_an_error_that_is_to_be_raised_is_not_in_the_log(caplog):
    @reflected(evaluate=has_no_return, pattern=ReflectionPattern(on_failure="raise"))
    async def answer(question, feedback=""):
        return "draft"

    with pytest.raises(ReflectionFailedError) as caught:
        asyncio.run(answer("Why?"))
    assert caught.value.history.best_version.output == "draft"
    assert caplog.records == []
