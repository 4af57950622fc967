import asyncio
import copy
import inspect
import pickle
from importlib import import_module
from operator import attrgetter

import pytest

import redraft
from redraft import (
    Agent,
    Ensemble,
    Issue,
    QualityCriterion,
    ScriptedModel,
    Task,
    TokenUsage,
    Workflow,
    reflect,
    reflect_sync,
    reflected,
)
from redraft._hints import ATTRIBUTES, keyword_hints
from redraft.fleet import Fleet
from redraft.notes import InMemoryReflectionStore

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


def asker():
    return Agent(ScriptedModel(["Because."]), keep=False)


RUN_ID = "Pass it as the first argument of run_as or run_as_sync."
FLOW = Workflow.from_text("nodes: [{name: one, run: 'return {}'}]", keep=False)
CREW = Ensemble(ScriptedModel([]), [Task("Say it.")], reflection_store=InMemoryReflectionStore())


@pytest.mark.parametrize(
    ("method", "keyword"),
    [
        (asker().run, "run_id"),
        (asker().run_sync, "run_id"),
        (asker().stream, "run_id"),
        (FLOW.run, "run_id"),
        (FLOW.run_sync, "run_id"),
        (FLOW.stream, "run_id"),
        (FLOW.resume, "on_event"),
        (CREW.run, "run_id"),
        (CREW.run_sync, "run_id"),
        (CREW.stream, "run_id"),
    ],
)
def test_methods_that_run_hint_at_a_misspelled_keyword(method, keyword):
    misspelled = keyword.replace("_", "")

    async def awaited():
        return await method("x", **{misspelled: "1"})

    with pytest.raises(TypeError, match=rf"\(\) got an unexpected .*\. Did you mean '{keyword}'\?$"):
        asyncio.run(awaited())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.run_sync("a", run_id="q"),
         "answer() got an unexpected keyword argument 'run_id'. " + RUN_ID),
        (lambda f: f.run_sync(quesion="a"),
         "answer() got an unexpected keyword argument 'quesion'. Did you mean 'question'?"),
        (lambda f: f("a", brush=1),
         "answer() got an unexpected keyword argument 'brush'. Expected one of 'question', 'feedback'."),
        (lambda f: f.run_sync("a", "b", "c"), "answer(): too many positional arguments"),
        (lambda f: f.run_sync("a", question="b"), "answer(): multiple values for argument 'question'"),
        (lambda f: f.run_sync(), "answer() is missing the argument 'question'"),
        (lambda f: f.run_as_sync("Why?"),
         "answer() is missing the argument 'question'. 'Why?' was taken as the run id, which comes first."),
    ],
)  # fmt: skip
def test_a_reflected_function_says_which_argument_it_does_not_take(call, message):
    with pytest.raises(TypeError) as caught:
        call(reflected(evaluate=bool, keep=False)(answer))
    assert str(caught.value) == message


def answer(question, feedback=""):
    return question


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Agent("m", candidates=2), "Agent"),
        (lambda: reflect_sync("Why?", candidates=2), "reflect_sync"),
        (lambda: asyncio.run(reflect("Why?", candidates=2)), "reflect"),
        (lambda: asker().run_sync("Why?", candidates=2), "Agent.run_sync"),
    ],
)
def test_an_option_of_the_pattern_is_named_as_such(call, name):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == (
        f"{name}() got an unexpected keyword argument 'candidates'. "
        "Pass it as pattern=ReflectionPattern(candidates=...)."
    )


def test_positional_arguments_that_have_to_be_named_are_named():
    with pytest.raises(TypeError) as caught:
        reflect_sync("Why?", str, ["It is kind."])
    assert str(caught.value) == (
        "reflect_sync() takes 1 positional argument but 3 were given. "
        "Pass the others by name: generate=..., evaluate=..., revise=..., criteria=..."
    )


def test_part_of_a_keyword_suggests_the_keyword():
    with pytest.raises(TypeError, match=r"'config'\. Did you mean 'evaluator_config'\?$"):
        QualityCriterion("marks", evaluator="regex", config={"pattern": "!"})


def test_an_unrelated_keyword_lists_all_keywords():
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


@pytest.mark.parametrize(
    "call",
    [
        lambda: redraft.ReflectionPattern(candidates=2, choose="pairwise"),
        lambda: reflect_sync("Say it.", choose="pairwise"),
        lambda: Agent(ScriptedModel([]), choose="pairwise"),
    ],
)
def test_a_removed_option_says_what_replaced_it(call):
    with pytest.raises(TypeError, match=r"argument 'choose'\. Checks choose among candidates"):
        call()


MODEL = "The model that judges is judge=...; the one that drafts is that of an Agent."
RETRIES = (
    "Revisions are max_iterations=...; failed calls are repeated by "
    "pattern=ReflectionPattern(retry=Retry(attempts=...))."
)
ANY = {
    "Agent": lambda **options: Agent(ScriptedModel([]), **options),
    "reflect_sync": lambda **options: reflect_sync("Say it.", **options),
    "reflect": lambda **options: asyncio.run(reflect("Say it.", **options)),
    "reflected": reflected,
    "ReflectionPattern": redraft.ReflectionPattern,
    "Agent.from_pydantic_ai": lambda **options: Agent.from_pydantic_ai(None, **options),
    "Agent.run_sync": lambda **options: asker().run_sync("Say it.", **options),
    "Task": lambda **options: Task("Say it.", **options),
}


@pytest.mark.parametrize(
    ("name", "keyword", "hint"),
    [
        ("Agent", "instructions", "Did you mean 'system_prompt'?"),
        ("reflect", "instructions", "A model has them as Agent(system_prompt=...)."),
        ("Agent", "prompt", "Did you mean 'system_prompt'?"),
        ("reflect_sync", "prompt", "Did you mean 'task'?"),
        ("Agent.run_sync", "prompt", "Did you mean 'query'?"),
        ("ReflectionPattern", "criteria", "Did you mean 'quality_criteria'?"),
        ("Agent", "quality_criteria", "Did you mean 'criteria'?"),
        ("Agent.run_sync", "criteria",
         "Pass them to the Agent, or as pattern=ReflectionPattern(quality_criteria=...)."),
        ("ReflectionPattern", "judge",
         "The model that judges is reflection_model; judge_method says how it scores."),
        ("reflected", "model", MODEL),
        ("reflect_sync", "model", MODEL),
        ("ReflectionPattern", "model", "Did you mean 'reflection_model'?"),
        ("Task", "reflection_model", "Did you mean 'judge'?"),
        ("ReflectionPattern", "n", "Did you mean 'candidates'?"),
        ("reflected", "n", "First drafts made at once are pattern=ReflectionPattern(candidates=...)."),
        ("reflected", "candidates", "Pass it as pattern=ReflectionPattern(candidates=...)."),
        ("ReflectionPattern", "max_retries",
         "Revisions are max_iterations=...; failed calls are repeated by retry=Retry(attempts=...)."),
        ("Agent", "max_retries", RETRIES),
        ("Agent", "temperature", "It is a setting of the model: model_settings={'temperature': ...}."),
        ("reflect", "temperature",
         "It is a setting of the model: Agent(..., model_settings={'temperature': ...})."),
        ("ReflectionPattern", "max_tokens",
         "It is a setting of the model: Agent(..., model_settings={'max_tokens': ...})."),
        ("reflect", "tools", "Tools belong to an agent: Agent(model, tools=[...])."),
        ("reflect", "evaluator", "Did you mean 'evaluate'?"),
        ("Agent", "evaluator", "A function that checks the output is a criterion: criteria=[function]."),
        ("Agent", "evaluate", "A function that checks the output is a criterion: criteria=[function]."),
        ("Agent", "response_model", "Did you mean 'output_type'?"),
        ("Agent.from_pydantic_ai", "temperature", "The agent that is wrapped has its own."),
        ("Agent.from_pydantic_ai", "tools", "The agent that is wrapped has its own."),
        ("Agent.from_pydantic_ai", "candidates", "Pass it as pattern=ReflectionPattern(candidates=...)."),
        ("Agent", "threshold", "Did you mean 'quality_threshold'?"),
    ],
)  # fmt: skip
def test_common_keywords_get_a_hint(name, keyword, hint):
    with pytest.raises(TypeError) as caught:
        ANY[name](**{keyword: 1})
    assert str(caught.value) == f"{name}() got an unexpected keyword argument {keyword!r}. {hint}"


RESULT = reflect_sync("Say it.", generate=lambda _prompt: "It.", evaluate=bool)
EXAMPLES = {
    "ReflectionResult": RESULT,
    "ReflectionVersion": RESULT.history.best_version,
    "ReflectionEvaluation": RESULT.final_evaluation,
    "TokenUsage": RESULT.token_usage,
}


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_a_missing_attribute_says_where_its_value_is(kind):
    example = EXAMPLES[kind]
    assert type(example).__name__ == kind
    for name, instead in ATTRIBUTES[kind].items():
        attrgetter(instead)(example)
        with pytest.raises(AttributeError) as caught:
            getattr(example, name)
        assert str(caught.value) == f"{kind!r} object has no attribute {name!r}. It is {instead!r}."
        assert name not in dir(example)
    assert not hasattr(type(example), "__getattr__")  # it would make every access to an attribute slow
    with pytest.raises(AttributeError, match=f"^{kind!r} object has no attribute 'colour'$") as caught:
        example.colour  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("colour", example)
    assert pickle.loads(pickle.dumps(example)) == copy.deepcopy(example) == example  # noqa: S301 (our own)


def test_a_fleet_says_where_shared_lessons_are():
    with pytest.raises(TypeError, match=r"argument 'share_lessons'\. With PostgreSQL, lessons are records"):
        Fleet(share_lessons=False)
