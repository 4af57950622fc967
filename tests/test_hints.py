import asyncio
import inspect
import pickle
from importlib import import_module

import pytest

import redraft
from redraft import Agent, Issue, QualityCriterion, TokenUsage, reflect, reflect_sync, reflected
from redraft._hints import keyword_hints

NOT_TO_HINT_AT = {
    "ConvergenceReason",  # an enumeration
    "ConfigError",
    "ModelError",
    "RedraftError",
    "MemoryStore",  # takes nothing
    "ReflectionHistory",  # results, which nobody creates by hand
    "ReflectionResult",
    "ReflectionVersion",
    "Workflow",  # has hints of its own
    "watch",  # takes one argument
}
IN_FEATURES = [
    "cycles.Agents",
    "cycles.AgentHost",
    "cycles.Feedback",
    "cycles.LongTermStorage",
    "evals.Optimization",
    "evals.cases_of_rows",
    "evals.eval_case",
    "fleet.Fleet",
    "fleet.FleetWorker",
    "fleet.Limit",
    "fleet.Schedule",
    "lessons.Failure",
    "lessons.LessonLibrary",
    "lessons.Outcome",
    "lessons.retried_with_lessons",
    "loop.Journalled",
    "loop.Retry",
    "models.FallbackModel",
    "models.ProviderModel",
    "notes.LlmReflectionStrategy",
    "notes.ReflectionConfig",
    "notes.SqliteReflectionStore",
    "notes.Trial",
    "protocols.ChatReply",
    "redact.Redactor",
    "stores.PostgresStore",
    "testing.Cassette",
    "types.Advice",
    "types.Message",
    "workflow.run_action",
]


@keyword_hints()
def paint(colour, *, width=1):
    """Paint."""
    if width == 0:
        raise TypeError("no width") from ValueError("why")
    return colour


@keyword_hints()
async def paint_later(colour, *, width=1):
    return paint(colour, width=width)


@pytest.mark.parametrize("name", [*sorted(set(redraft.__all__) - NOT_TO_HINT_AT), *IN_FEATURES])
def test_a_misspelled_keyword_of_a_public_name_gets_a_hint(name):
    module, _, name = f"redraft.{name}".rpartition(".")
    public = getattr(import_module(module), name)
    *_, last = inspect.signature(public).parameters

    def call():
        result = public(**{f"{last}x": 1})
        return asyncio.run(result)  # an async function says so when it is awaited

    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected .*\. Did you mean '{last}'\?$"):
        call()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Agent("m", max_iterations=2), "Agent"),
        (lambda: reflect_sync("Why?", max_iterations=2), "reflect_sync"),
        (lambda: asyncio.run(reflect("Why?", max_iterations=2)), "reflect"),
    ],
)
def test_an_option_of_the_pattern_is_named_as_such(call, name):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == (
        f"{name}() got an unexpected keyword argument 'max_iterations'. "
        "Pass it as pattern=ReflectionPattern(max_iterations=...)."
    )


def test_a_part_of_a_keyword_is_taken_for_it():
    with pytest.raises(TypeError, match=r"'config'\. Did you mean 'evaluator_config'\?$"):
        QualityCriterion("marks", evaluator="regex", config={"pattern": "!"})


def test_a_keyword_that_is_like_no_other_lists_them():
    with pytest.raises(TypeError, match=r"argument 'brush'\. Expected one of 'colour', 'width'\.$"):
        paint("red", brush=1)


def test_other_type_errors_stay_as_they_are():
    with pytest.raises(TypeError, match=r"^paint\(\) missing 1 required positional argument: 'colour'$"):
        paint(width=2)
    for call in (lambda: paint("red", width=0), lambda: asyncio.run(paint_later("red", width=0))):
        with pytest.raises(TypeError, match=r"^no width$") as caught:
            call()
        assert isinstance(caught.value.__cause__, ValueError)


def test_a_decorated_function_looks_as_it_did():
    assert (paint.__name__, paint.__doc__) == ("paint", "Paint.")
    assert str(inspect.signature(paint)) == "(colour, *, width=1)"
    assert inspect.iscoroutinefunction(paint_later)
    assert not inspect.iscoroutinefunction(paint)
    assert inspect.iscoroutinefunction(reflect)
    for value in (reflected, Issue("short", "length"), TokenUsage(1)):
        assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 (our own)
