import asyncio
import gc
import weakref
from dataclasses import replace
from types import FunctionType

import pytest

from redraft import (
    Agent,
    AgentPattern,
    Attempt,
    ConfigError,
    Draft,
    QualityCriterion,
    ReflectionEvaluation,
    ReflectionFailedError,
    ReflectionPattern,
    Retry,
    RunContext,
    ScriptedModel,
    Task,
    reflect,
    reflect_sync,
)
from redraft._sync import run_sync

TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})
AGAINST = QualityCriterion("better", evaluator="compare", evaluator_config={"against": "best"})
IN_VAIN = QualityCriterion("x", evaluator="regex", evaluator_config={"pattern": "x"}, weight=0)
TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iterations": -1}, "max_iterations"),
        ({"max_iterations": 1.5}, "max_iterations"),
        ({"max_iterations": True}, "max_iterations"),
        ({"quality_threshold": 1.1}, "quality_threshold"),
        ({"quality_threshold": float("nan")}, "quality_threshold"),
        ({"plateau_iterations": 0}, "plateau_iterations"),
        ({"improvement_threshold": -0.1}, "improvement_threshold"),
        ({"judge_samples": 0}, "judge_samples"),
        ({"revision_strategy": "full-rewrite"}, "did you mean 'full_rewrite'"),
        ({"best_version_selection": "xyz"}, "known are 'highest_score'"),
        ({"judge": "vote"}, "judge"),
        ({"on_failure": "ignore"}, "on_failure"),
        ({"reflection_triggers": ["step_intervall"]}, "did you mean 'step_interval'"),
        ({"reflection_triggers": "completion"}, "reflection_triggers must be a list"),
        ({"reflection_triggers": [1]}, "reflection_triggers"),
        ({"reflection_interval": 0}, "reflection_interval"),
        ({"reflection_interval": True}, "reflection_interval"),
        ({"reflect_on_error": "yes"}, "reflect_on_error"),
        ({"reflect_on_error": False, "reflection_triggers": ["error"]}, "reflect_on_error is False"),
        ({"reflect_on_tools": "search"}, "reflect_on_tools must be a list"),
        ({"reflect_on_tools": [""]}, "reflect_on_tools"),
        ({"quality_drop_threshold": 0}, "quality_drop_threshold"),
        ({"quality_drop_threshold": 1.5}, "quality_drop_threshold"),
        ({"quality_drop_threshold": float("nan")}, "quality_drop_threshold"),
        ({"max_reflections": -1}, "max_reflections"),
        ({"max_reflections": 0, "reflection_triggers": ["manual"]}, "max_reflections is 0.*manual"),
        ({"task_type": "writting"}, "no default criteria for 'writting'; did you mean 'writing'"),
        ({"task_type": "coding"}, "did you mean 'code_generation'"),
        ({"task_type": "web scraping"}, "With a type of your own, give quality_criteria"),
        ({"task_type": 3}, "task_type must be a text, got 3"),
        ({"reflection_model": 3}, "reflection_model must be the name of a model.*got 3"),
        ({"reflection_model": ""}, "reflection_model must be the name of a model.*got ''"),
        ({"reflection_model": ScriptedModel}, "reflection_model must be the name of a model.*ScriptedModel"),
        ({"quality_criteria": [AGAINST]}, "'better'.*nothing judges the first: add another criterion"),
        ({"quality_criteria": [AGAINST, IN_VAIN]}, "'better'.*nothing judges the first"),
        ({"budget_tokens": 0}, "budget_tokens"),
        ({"budget_usd": -1}, "budget_usd"),
        ({"budget_seconds": 0}, "budget_seconds"),
        ({"max_revision_tokens": 0}, "max_revision_tokens"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options, message):
    with pytest.raises(ConfigError, match=message):
        ReflectionPattern(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"task_type": "Code-Generation"},
        {"task_type": "web scraping", "quality_criteria": ["clarity"]},
        {"quality_criteria": [AGAINST, "clarity"]},
    ],
)
def test_what_can_work_is_not_refused(options):
    ReflectionPattern(**options)


@pytest.mark.parametrize(("task_type", "meant"), [("analisis", "analysis"), ("Reasonning", "reasoning")])
def test_a_misspelt_type_of_a_task_is_refused_before_any_call(task_type, meant):
    model = ScriptedModel([])
    with pytest.raises(ConfigError, match=f"did you mean {meant!r}"):
        Agent(model).run_sync(Task("W.", task_type=task_type))
    assert model.requests == []


@pytest.mark.parametrize(
    "criteria",
    [
        [QualityCriterion("x", evaluator="regex", evaluator_config={"pattern": "("})],
        [QualityCriterion("x", evaluator="schema", evaluator_config={"schema": {"type": "objekt"}})],
        [
            QualityCriterion(
                "x", evaluator="schema", evaluator_config={"schema": {"$ref": "file:///etc/passwd"}}
            )
        ],
        ["clarity", "clarity"],
        [],
    ],
)
def test_criteria_that_can_not_work_are_refused_before_the_model_is_asked(criteria):
    model = ScriptedModel([])
    with pytest.raises(ConfigError):
        Agent(model, pattern=ReflectionPattern(quality_criteria=criteria))
    assert model.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"name": " "},
        {"name": "x", "weight": -1},
        {"name": "x", "threshold": 2},
        {"name": "x", "weight": float("inf")},
    ],
)
def test_a_criterion_checks_itself(fields):
    with pytest.raises(ConfigError):
        QualityCriterion(**fields)


@pytest.mark.parametrize(
    ("evaluator", "says"),
    [("regexp", "did you mean 'regex'"), ("pytest", "known are 'llm'"), ("", "known are 'llm'")],
)
def test_an_unknown_evaluator_is_refused_where_it_is_written(evaluator, says):
    with pytest.raises(ConfigError, match=says):
        QualityCriterion("x", evaluator=evaluator)


def test_reflect_judges_one_output():
    pattern = ReflectionPattern(
        quality_criteria=[
            QualityCriterion("cites", evaluator="regex", evaluator_config={"pattern": r"\[\d\]"})
        ]
    )
    assert run_sync(pattern.reflect("see [1]")).satisfactory
    assert not run_sync(pattern.reflect("see there")).satisfactory


def test_reflect_takes_other_criteria():
    judge = ScriptedModel(lambda request: {"criteria": {}, "issues": [], "suggestions": [], "confidence": 1})
    pattern = ReflectionPattern(reflection_model=judge)
    check = QualityCriterion("cites", evaluator="regex", evaluator_config={"pattern": "x"})
    assert run_sync(pattern.reflect("x", [check])).criteria_scores == {"cites": 1.0}
    assert judge.requests == []


def test_history_of_the_last_run_in_this_context():
    pattern = ReflectionPattern(max_iterations=0)
    reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: 0.5, pattern=pattern)
    assert pattern.get_history().best_version is pattern.get_best_version()
    assert pattern.get_best_version().output == "x"


def plain(output, pattern, **options):
    """A run of a pattern that makes one output."""
    return reflect("W.", generate=lambda p: output, evaluate=lambda o: 0.5, pattern=pattern, **options)


def last_of(pattern):
    return pattern.get_history().final_version.output


ONE = {"max_iterations": 0}


def test_a_pattern_answers_for_its_own_run():
    one, two = ReflectionPattern(**ONE), ReflectionPattern(**ONE)
    run_sync(plain("first", one))
    run_sync(plain("second", two, until=lambda versions: True))  # which the run has in its stead
    agent = Agent(ScriptedModel(["third"]), pattern=replace(one, quality_criteria=[TEA]))
    agent.run_sync("W.")
    assert (last_of(one), last_of(two), last_of(agent.pattern)) == ("first", "second", "third")
    with pytest.raises(LookupError, match="No run of this pattern has ended in this context"):
        ReflectionPattern().get_history()


@pytest.mark.parametrize("way", [asyncio.create_task, lambda run: asyncio.wait_for(run, 30)])
def test_a_run_in_a_task_of_its_own_is_there_for_who_made_the_pattern(way):
    async def main():
        pattern = ReflectionPattern(**ONE)
        await plain("before", pattern)
        await way(plain("after", pattern))
        return last_of(pattern)

    assert asyncio.run(main()) == "after"


def test_a_run_in_a_loop_of_its_own_is_there_for_who_made_the_pattern():
    pattern = ReflectionPattern(**ONE)
    asyncio.run(plain("x", pattern))
    assert last_of(pattern) == "x"


def test_a_task_sees_no_run_of_another():
    pattern = ReflectionPattern(**ONE)

    async def one(name):
        with pytest.raises(LookupError, match=r"result\.history"):
            pattern.get_history()
        await plain(name, pattern)
        await asyncio.sleep(0)
        return last_of(pattern)

    async def main():
        return [*await asyncio.gather(one("a"), one("b")), await asyncio.create_task(one("c"))]

    assert asyncio.run(main()) == ["a", "b", "c"]


def test_a_run_that_raised_is_not_taken_for_the_one_before():
    pattern = ReflectionPattern(max_iterations=1, on_failure="raise", retry=Retry(attempts=1))

    def fail(*given):
        raise ValueError("no way")

    run_sync(plain("before", pattern))
    with pytest.raises(ReflectionFailedError):
        run_sync(plain("kept", pattern, revise=fail))
    assert last_of(pattern) == "kept"
    with pytest.raises(ValueError, match="no way"):
        reflect_sync("W.", generate=fail, evaluate=lambda o: 0.5, pattern=pattern)
    with pytest.raises(LookupError, match="ended without a result: ValueError: no way"):
        pattern.get_history()


def test_runs_of_patterns_that_are_gone_are_forgotten():
    class Output(dict):
        pass

    async def main():
        alive = []
        for number in range(3):
            result = await plain(Output(number=number), ReflectionPattern(**ONE))
            alive.append(weakref.ref(result.best_output))
            del result
        return [one() is not None for one in alive]

    assert asyncio.run(main()) == [False, False, True]


def test_execute_takes_an_agent_or_any_callable():
    pattern = ReflectionPattern(
        max_iterations=0,
        quality_criteria=[QualityCriterion("x", evaluator="regex", evaluator_config={"pattern": "tea"})],
    )
    agent = Agent(ScriptedModel(["tea", "coffee"]), pattern=replace(pattern, max_iterations=1))
    assert run_sync(pattern.execute(agent, "W.")).success
    assert run_sync(pattern.execute(lambda prompt: "tea", "W.")).success
    assert len(run_sync(pattern.execute(agent, "W.")).history.versions) == 1  # this pattern, not the agent's


class Twice(AgentPattern):
    """Ask the agent again with its own answer."""

    async def execute(self, agent, query, /):
        first = await agent.run(query)
        return await agent.run(f"{query}\n{first.best_output}")


def test_a_pattern_of_ones_own_is_what_the_specification_calls_one():
    pattern = ReflectionPattern(max_iterations=0, quality_criteria=[TEA])
    model = ScriptedModel(["coffee", "tea"])
    assert run_sync(Twice().execute(Agent(model, pattern=pattern), "W.")).best_output == "tea"
    assert "coffee" in model.requests[1].messages[-1].content
    assert isinstance(Twice(), AgentPattern)
    assert issubclass(ReflectionPattern, AgentPattern)
    assert not hasattr(pattern, "__dict__")
    assert not isinstance(model, AgentPattern)
    with pytest.raises(ConfigError, match=r"execute\(agent, query\)"):
        Agent(model, pattern=Twice())


def test_an_agents_model_revises_and_judges_outside_of_a_run():
    model = ScriptedModel(["a good text", {"criteria": {"clarity": {"reason": "so", "score": 0.9}}}])
    agent = Agent(model, pattern=ReflectionPattern(quality_criteria=[TEA]), system_prompt="You write.")
    pattern = ReflectionPattern(quality_criteria=["clarity"])
    evaluation = ReflectionEvaluation(0.1, issues=("it is bad",))
    assert run_sync(pattern.revise("a bad text", evaluation, agent=agent)) == "a good text"
    assert model.requests[0].messages[0].content.startswith("You write.")
    assert "it is bad" in str(model.requests[0].messages)
    assert run_sync(pattern.reflect("a good text", agent=agent)).criteria_scores == {"clarity": 0.9}
    assert model.requests[1].role == "evaluation"


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (None, "no model to revise with: pass an agent=... that has one, or set REDRAFT_MODEL"),
        (ScriptedModel([]), "agent must be an Agent"),
    ],
)
def test_a_revision_without_a_model_says_what_to_pass(agent, says):
    with pytest.raises(ConfigError, match=says):
        run_sync(ReflectionPattern().revise("x", ReflectionEvaluation(0.1), agent=agent))


def test_a_judgement_without_a_model_says_what_to_pass():
    with pytest.raises(
        ConfigError, match=r"pass agent=\.\.\., or reflection_model=\.\.\. in the pattern, or set"
    ):
        run_sync(ReflectionPattern().reflect("x"))


def test_thirty_seconds():
    drafts = iter(["Too long by far, I am afraid.", "Short."])
    result = reflect_sync(
        "Say it in one word.",
        generate=lambda prompt: next(drafts),
        evaluate=lambda text: (len(text.split()) == 1, "More than one word."),
    )
    assert result.best_output == "Short."
    assert result.success


def test_without_revise_the_generator_gets_the_critique_appended():
    prompts = []

    def generate(prompt):
        prompts.append(prompt)
        return f"draft {len(prompts)}"

    reflect_sync("Write.", generate=generate, evaluate=lambda o: (o == "draft 2", "too dull"))
    assert prompts[0] == "Write."
    assert prompts[1].startswith("Write.\n\nYour previous answer:\ndraft 1")
    assert "- too dull" in prompts[1]


def test_feedback_and_attempt_are_filled_by_name():
    seen = []

    async def generate(prompt, *, feedback="", attempt: Attempt | None = None, temperature=0.3):
        seen.append((prompt, feedback, attempt.number, temperature))
        return f"draft {attempt.number}"

    reflect_sync("Write.", generate=generate, evaluate=lambda o: (o == "draft 2", "too dull"))
    assert seen[0] == ("Write.", "", 1, 0.3)
    assert seen[1][0] == "Write."
    assert "too dull" in seen[1][1]
    assert seen[1][2:] == (2, 0.3)


class Callable:
    async def __call__(self, prompt, context: RunContext):
        return f"{prompt} for run {context.run_id != ''}"


@pytest.mark.parametrize(
    "generate",
    [
        lambda prompt: "x",
        lambda prompt, run: f"{run.iteration}",
        Callable(),
        Callable().__call__,
        lambda prompt: Draft("x"),
        lambda prompt: {"a": 1},
        lambda prompt: 42,
    ],
)
def test_any_callable_generates(generate):
    assert reflect_sync("W.", generate=generate, evaluate=lambda o: True).success


def test_sync_functions_run_in_a_thread():
    import threading

    main = threading.get_ident()
    threads = []
    reflect_sync(
        "W.", generate=lambda p: threads.append(threading.get_ident()) or "x", evaluate=lambda o: True
    )
    assert threads[0] != main


def test_works_inside_a_running_loop():
    async def main():
        return reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: True)

    assert asyncio.run(main()).success


def test_a_draft_that_is_there_is_judged_first_and_costs_nothing():
    generated = []
    result = reflect_sync(
        "W.",
        draft="mine",
        generate=lambda p: generated.append(p) or "theirs",
        evaluate=lambda o: 0.9,
    )
    assert result.best_output == "mine"
    assert generated == []
    assert result.token_usage.cost_usd == 0.0


def test_a_draft_and_a_reviser_need_no_generator():
    result = reflect_sync("W.", draft="a", revise=lambda o, e: o + "b", evaluate=lambda o: len(o) / 4)
    assert result.best_output == "abbb"


def test_evaluate_may_see_the_run():
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o, run: run.iteration == 1)
    assert result.success


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reflect("", generate=str, evaluate=bool), "task is empty"),
        (lambda: reflect("W.", generate="no function", evaluate=bool), "must be a function"),
        (lambda: reflect("W.", generate=lambda: "x", evaluate=bool), "fewer arguments"),
        (lambda: reflect("W.", generate=lambda prompt, other: "x", evaluate=bool), "'other'"),
        (
            lambda: reflect(
                "W.",
                generate=lambda p: "x",
                evaluate=bool,
                pattern=ReflectionPattern(quality_criteria=["clear"]),
            ),
            "not both",
        ),
        (lambda: reflect("W.", generate=lambda p: "x"), "REDRAFT_MODEL"),
        (lambda: reflect("W.", evaluate=bool), "REDRAFT_MODEL"),
    ],
)
def test_bad_calls_are_refused_before_anything_is_called(call, message, monkeypatch):
    monkeypatch.delenv("REDRAFT_MODEL", raising=False)
    with pytest.raises(ConfigError, match=message):
        asyncio.run(call())


def test_criteria_that_are_checks_need_no_model():
    pattern = ReflectionPattern(
        quality_criteria=[
            QualityCriterion(
                "short", evaluator="function", evaluator_config={"function": lambda o: len(o) < 9}
            )
        ]
    )
    assert reflect_sync(Task("W."), generate=lambda p: "short", pattern=pattern).success


HEAVY = {
    "pydantic",
    "pydantic_ai",
    "openai",
    "xllamacpp",
    "httpx",
    "jsonschema_rs",
    "re2",
    "yaml",
    "typer",
    "rich",
}


def test_plain_functions_import_no_provider():
    import subprocess
    import sys

    code = (
        "import sys; from redraft import reflect_sync\n"
        "reflect_sync('W.', generate=lambda p: 'x', evaluate=lambda o: True)\n"
        f"assert not {HEAVY} & set(sys.modules), {HEAVY} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


CLARITY = ReflectionPattern(quality_criteria=["clarity"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"generate": lambda prompt: "x"},
            "nothing to judge with: pass evaluate=..., or a pattern=.*REDRAFT_MODEL",
        ),
        ({"evaluate": bool}, "nothing to draft with: pass generate=..., or set REDRAFT_MODEL"),
        (
            {"evaluate": bool, "revise": lambda output, evaluation: "x"},
            "pass generate=... or draft=..., or set",
        ),
        (
            {"generate": lambda prompt: "x", "pattern": CLARITY},
            "no model to judge 'clarity': pass a pattern=... that has a reflection_model, or set",
        ),
    ],
)
def test_a_function_that_was_forgotten_is_named(given, says):
    with pytest.raises(ConfigError, match=says):
        reflect_sync("W.", **given)


async def generate(_prompt):
    return "draft"


async def evaluate(output):
    return output == "better", "It is a draft."


def revise(_output, _evaluation):
    return "better"


async def half(_output):
    return 0.5


async def by_the_run(_output, run):
    return 1.0 if run.run_id else 0.0


class Held:
    def closure(self):
        return lambda output: self is not None

    def default(self):
        return lambda output, held=self: held is not None


def anew(fn):
    """Return the same function again, as a module that is loaded again has it."""
    return FunctionType(fn.__code__, {})


@pytest.mark.parametrize("judge", [Held.closure, Held.default])
def test_what_a_function_holds_is_let_go(judge):
    held = Held()
    alive = weakref.ref(held)
    assert reflect_sync("Write.", generate=generate, evaluate=judge(held), revise=revise).success
    del held
    gc.collect()
    assert alive() is None


def test_a_function_whose_code_is_exchanged_is_looked_at_anew():
    judge = anew(half)

    def score():
        pattern = ReflectionPattern(max_iterations=0)
        result = reflect_sync("Write.", generate=generate, evaluate=judge, revise=revise, pattern=pattern)
        return result.final_evaluation.overall_score

    assert score() == 0.5
    judge.__code__ = by_the_run.__code__
    assert score() == 1.0
