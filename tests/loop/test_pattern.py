import asyncio
import copy
import pickle
import weakref
from dataclasses import replace

import pytest

from redraft import (
    Agent,
    ConfigError,
    Issue,
    ModelError,
    QualityCriterion,
    ReflectionEvaluation,
    ReflectionPattern,
    ScriptedModel,
    Task,
    reflect,
    reflect_sync,
)
from redraft._sync import run_sync
from redraft.errors import ReflectionFailedError
from redraft.loop import Retry
from redraft.protocols import AgentPattern, ReflectionCallbacks
from support.judges import judge_scoring

TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})


AGAINST = QualityCriterion("better", evaluator="compare", evaluator_config={"against": "best"})


WEIGHTLESS = QualityCriterion("x", evaluator="regex", evaluator_config={"pattern": "x"}, weight=0)


async def never(versions):
    return None


class Never:
    async def __call__(self, versions):
        return None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iterations": -1}, "max_iterations"),
        ({"max_iterations": True}, "max_iterations"),
        ({"quality_threshold": 1.1}, "quality_threshold"),
        ({"quality_threshold": float("nan")}, "quality_threshold"),
        ({"plateau_iterations": 0}, "plateau_iterations"),
        ({"improvement_threshold": -0.1}, "improvement_threshold"),
        ({"judge_samples": 0}, "judge_samples"),
        ({"revision_strategy": "full-rewrite"}, "did you mean 'full_rewrite'"),
        ({"best_version_selection": "xyz"}, "expected one of 'highest_score'"),
        ({"judge_method": "vote"}, "judge_method"),
        ({"on_failure": "ignore"}, "on_failure"),
        ({"reflection_triggers": ["step_intervall"]}, "did you mean 'step_interval'"),
        ({"reflection_triggers": "completion"}, "reflection_triggers must be a list"),
        ({"reflection_interval": 0}, "reflection_interval"),
        ({"reflect_on_error": "yes"}, "reflect_on_error"),
        ({"reflect_on_error": False, "reflection_triggers": ["error"]}, "reflect_on_error is False"),
        ({"reflect_on_tools": "search"}, "reflect_on_tools must be a list"),
        ({"reflect_on_tools": [""]}, "reflect_on_tools"),
        ({"quality_drop_threshold": 0}, "quality_drop_threshold"),
        ({"quality_drop_threshold": 1.5}, "quality_drop_threshold"),
        ({"max_reflections": -1}, "max_reflections"),
        ({"max_reflections": 0, "reflection_triggers": ["manual"]}, "max_reflections is 0.*manual"),
        ({"task_type": "writting"}, "no default criteria for 'writting'; did you mean 'writing'"),
        ({"task_type": "coding"}, "did you mean 'code_generation'"),
        ({"task_type": "web scraping"}, "With a type of your own, give quality_criteria"),
        ({"task_type": 3}, "task_type must be a string, got 3"),
        ({"reflection_model": 3}, "reflection_model must be the name of a model.*got 3"),
        ({"quality_criteria": [AGAINST]}, "'better'.*nothing judges the first: add another criterion"),
        ({"quality_criteria": [AGAINST, WEIGHTLESS]}, "'better'.*nothing judges the first"),
        ({"budget_tokens": 0}, "budget_tokens"),
        ({"budget_tokens": 1.5}, "budget_tokens must be a whole number of at least 1, got 1.5"),
        ({"budget_usd": -1}, "budget_usd"),
        ({"budget_seconds": 0}, "budget_seconds"),
        ({"max_revision_tokens": 0}, "max_revision_tokens"),
        ({"until": "plateau"}, "until"),
        ({"until": never}, "until"),
        ({"on_event": Never()}, "on_event"),
        ({"quality_threshold": None}, "quality_threshold"),
        ({"advisors": None}, "advisors must be a list"),
        ({"advisors": [3]}, "advisors: an advisor has"),
        ({"quality_criteria": "Under 80 words"}, "must be a list"),
        ({"quality_criteria": TEA}, "must be a list"),
        ({"reflection_prompt": "{ouput}"}, "ouput"),
        ({"reflection_prompt": 3}, "reflection_prompt"),
        ({"judge_method": "probability", "judge_samples": 3}, "judge_samples needs judge_method='score'"),
        ({"structured_reflection": "no"}, "structured_reflection"),
        ({"include_prior_versions": 1}, "include_prior_versions"),
        ({"include_reflection_history": None}, "include_reflection_history"),
        ({"diversify": "no"}, "diversify"),
        ({"detect_oscillation": 0}, "detect_oscillation"),
        ({"preserve_all_versions": "all"}, "preserve_all_versions"),
        ({"retry": 3}, "retry must be a Retry"),
        ({"callbacks": print}, "callbacks"),
        ({"callbacks": ReflectionCallbacks}, "callbacks"),
    ],
)
def test_bad_options_raise(options, message):
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
def test_valid_options(options):
    ReflectionPattern(**options)


@pytest.mark.parametrize(("task_type", "meant"), [("analisis", "analysis"), ("Reasonning", "reasoning")])
def test_a_misspelled_task_type_raises_before_any_call(task_type, meant):
    model = ScriptedModel([])
    with pytest.raises(ConfigError, match=f"did you mean {meant!r}"):
        Agent(model).run_sync(Task("W.", task_type=task_type))
    assert model.requests == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"criteria": [TEA]}, "criteria"),
        ({"max_iterations": 0, "budget_usd": 0.01}, "max_iterations and budget_usd"),
        ({"reflect": True}, "reflect"),
        ({"review": bool, "guardrails": [bool]}, "guardrails and review"),
        ({"context": [Task("First.")]}, "context"),
    ],
)
def test_options_of_a_task_that_only_an_ensemble_carries_out_are_not_ignored(options, named):
    model, task = ScriptedModel([]), Task("Write.", **options)
    message = f"The task 'Write.' has {named}, which only an Ensemble"
    with pytest.raises(ConfigError, match=message):
        Agent(model).run_sync(task)
    with pytest.raises(ConfigError, match=message):
        reflect_sync(task, generate=model)
    assert model.requests == []


def test_a_task_with_tools_and_a_background_is_for_agents_too():
    task = Task("Write.", "A line.", tools=["search"], context="We sell tea.", guardrails=[], retries=1)
    result = Agent(ScriptedModel(["tea"]), criteria=[TEA], keep=False).run_sync(task)
    assert (result.task.context, result.task.tools) == ("We sell tea.", ("search",))


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
def test_bad_criteria_raise_before_any_call(criteria):
    model = ScriptedModel([])
    with pytest.raises(ConfigError):
        Agent(model, pattern=ReflectionPattern(quality_criteria=criteria))
    assert model.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"name": " "},
        {"name": None},
        {"description": None},
        {"weight": -1},
        {"weight": float("inf")},
        {"weight": "2"},
        {"threshold": 2},
        {"threshold": None},
        {"threshold": True},
        {"evaluator": 3},
        {"evaluator_config": None},
        {"evaluator_config": ["pattern"]},
        {"gate": "yes"},
    ],
)
def test_a_criterion_checks_itself(fields):
    with pytest.raises(ConfigError):
        QualityCriterion(**{"name": "x", **fields})


@pytest.mark.parametrize(
    ("evaluator", "message"),
    [("regexp", "did you mean 'regex'"), ("pytest", "expected one of 'llm'"), ("", "expected one of 'llm'")],
)
def test_an_unknown_evaluator_raises(evaluator, message):
    with pytest.raises(ConfigError, match=message):
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


def test_get_history_and_get_best_version():
    pattern = ReflectionPattern(max_iterations=0)
    reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: 0.5, pattern=pattern)
    assert pattern.get_history().best_version is pattern.get_best_version()
    assert pattern.get_best_version().output == "x"


def plain(output, pattern, **options):
    """Run a pattern whose generator returns this output."""
    return reflect("W.", generate=lambda p: output, evaluate=lambda o: 0.5, pattern=pattern, **options)


def last_of(pattern):
    return pattern.get_history().final_version.output


ONE = {"max_iterations": 0}


def test_get_history_is_of_the_patterns_own_runs():
    one, two = ReflectionPattern(**ONE), ReflectionPattern(**ONE)
    run_sync(plain("first", one))
    run_sync(plain("second", two, until=lambda versions: True))  # which the run has in its stead
    agent = Agent(ScriptedModel(["third"]), pattern=replace(one, quality_criteria=[TEA]))
    agent.run_sync("W.")
    assert (last_of(one), last_of(two), last_of(agent.pattern)) == ("first", "second", "third")
    with pytest.raises(LookupError, match="No run of this pattern has ended in this context"):
        ReflectionPattern().get_history()


@pytest.mark.parametrize("way", [asyncio.create_task, lambda run: asyncio.wait_for(run, 30)])
def test_the_creator_of_a_pattern_sees_runs_in_other_tasks(way):
    async def main():
        pattern = ReflectionPattern(**ONE)
        await plain("before", pattern)
        await way(plain("after", pattern))
        return last_of(pattern)

    assert asyncio.run(main()) == "after"


def test_the_creator_of_a_pattern_sees_runs_in_another_loop():
    pattern = ReflectionPattern(**ONE)
    asyncio.run(plain("x", pattern))
    assert last_of(pattern) == "x"


def test_a_thread_and_a_timeout_see_the_run_of_their_context():
    pattern = ReflectionPattern(**ONE)

    async def request(name):
        async with asyncio.timeout(30):
            await plain(name, pattern)
        return last_of(pattern), await asyncio.to_thread(last_of, pattern)

    async def main():
        return await asyncio.gather(request("a"), request("b"))

    assert asyncio.run(main()) == [("a", "a"), ("b", "b")]


def test_other_tasks_do_not_see_each_others_runs():
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


def test_a_run_that_raised_has_no_history():
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


def test_the_last_run_of_a_deleted_pattern_is_forgotten():
    class Output(dict):
        pass

    async def main():
        # A function that is not async runs in a thread, which may hold its context a moment longer.
        async def generate(_prompt):
            return Output()

        async def evaluate(_output):
            return 0.5

        alive = []
        for _ in range(3):
            result = await reflect(
                "W.", generate=generate, evaluate=evaluate, pattern=ReflectionPattern(**ONE)
            )
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


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (a test's own)


@pytest.mark.parametrize("through", [through_pickle, copy.copy, copy.deepcopy])
def test_a_pattern_can_be_pickled_and_copied(through):
    pattern = ReflectionPattern(
        max_iterations=1, quality_criteria=["Says tea."], budget_tokens=9, judge_samples=3
    )
    run_sync(plain("x", ReflectionPattern(**ONE)))
    again = through(pattern)
    assert repr(again) == repr(pattern)
    assert again.budget == pattern.budget
    with pytest.raises(LookupError):
        again.get_history()
    reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: 1.0, pattern=through(ReflectionPattern(**ONE))
    )


class Reflecting:
    async def reflect(self, output, criteria=None):
        return ReflectionEvaluation(1.0, satisfactory=True)


@pytest.mark.parametrize(
    ("name", "bases", "instead"),
    [
        ("reflect", (ReflectionPattern,), r"Pass your judge as evaluate=\.\.\."),
        ("reflect", (Reflecting, ReflectionPattern), r"Pass your judge as evaluate=\.\.\."),
        ("revise", (ReflectionPattern,), r"Pass your reviser as revise=\.\.\."),
        ("execute", (ReflectionPattern,), "Derive from AgentPattern"),
    ],
)
def test_methods_that_runs_do_not_call_cannot_be_overridden(name, bases, instead):
    body = {} if len(bases) > 1 else {name: lambda self: None}
    with pytest.raises(ConfigError, match=rf"Mine overrides {name}\(\), which runs do not call\. {instead}"):
        type("Mine", bases, body)


def test_a_derived_pattern_may_add_methods():
    class Named(ReflectionPattern):
        def title(self):
            return f"{self.max_iterations} revisions"

    pattern = replace(Named(max_iterations=2), quality_threshold=0.5)
    assert pattern.title() == "2 revisions"
    assert type(copy.deepcopy(pattern)) is Named


class Twice(AgentPattern):
    """Ask the agent again, with its first answer."""

    async def execute(self, agent, query, /):
        first = await agent.run(query)
        return await agent.run(f"{query}\n{first.best_output}")


def test_a_custom_pattern():
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


def test_revise_and_reflect_use_the_agents_model():
    model = ScriptedModel(["a good text", {"criteria": {"clarity": {"reason": "so", "score": 0.9}}}])
    agent = Agent(model, pattern=ReflectionPattern(quality_criteria=[TEA]), system_prompt="You write.")
    pattern = ReflectionPattern(quality_criteria=["clarity"])
    evaluation = ReflectionEvaluation(0.1, issues=("it is bad",))
    assert run_sync(pattern.revise("a bad text", evaluation, agent=agent)) == "a good text"
    assert model.requests[0].messages[0].content.startswith("You write.")
    assert "it is bad" in str(model.requests[0].messages)
    assert run_sync(pattern.reflect("a good text", agent=agent)).criteria_scores == {"clarity": 0.9}
    assert model.requests[1].role == "evaluation"


def test_revise_and_reflect_retry_a_temporary_failure():
    failures = [ModelError("busy", retryable=True, retry_after=0.0) for _ in range(2)]

    def answer(request):
        if len(failures) > (request.role == "revision"):
            raise failures.pop()
        return {"criteria": {"clarity": {"reason": "so", "score": 0.9}}} if request.schema else "a good text"

    agent = Agent(ScriptedModel(answer))
    pattern = ReflectionPattern(quality_criteria=["clarity"], retry=Retry(first_wait=0))
    assert run_sync(pattern.revise("a bad text", ReflectionEvaluation(0.1), agent=agent)) == "a good text"
    assert len(failures) == 1
    assert run_sync(pattern.reflect("a good text", agent=agent)).overall_score == 0.9
    assert failures == []


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (None, "no model to revise with: pass an agent=... that has one, or set REDRAFT_MODEL"),
        (ScriptedModel([]), "agent must be an Agent"),
    ],
)
def test_revise_without_a_model_says_what_to_pass(agent, message):
    with pytest.raises(ConfigError, match=message):
        run_sync(ReflectionPattern().revise("x", ReflectionEvaluation(0.1), agent=agent))


def test_reflect_without_a_model_says_what_to_pass():
    with pytest.raises(
        ConfigError, match=r"pass agent=\.\.\., or reflection_model=\.\.\. in the pattern, or set"
    ):
        run_sync(ReflectionPattern().reflect("x"))


@pytest.mark.parametrize(("threshold", "reason"), [(0.5, "quality_met"), (0.9, "max_iterations")])
def test_the_quality_threshold_decides(threshold, reason):
    pattern = ReflectionPattern(quality_threshold=threshold, max_iterations=0)
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: 0.6, pattern=pattern)
    assert result.convergence_reason == reason


@pytest.mark.parametrize(("threshold", "met"), [(0.5, True), (0.6, False)])
def test_the_quality_threshold_decides_with_criteria_too(threshold, met):
    wish = QualityCriterion("milk", threshold=0, evaluator="regex", evaluator_config={"pattern": "milk"})
    pattern = ReflectionPattern(quality_criteria=[TEA, wish], quality_threshold=threshold, max_iterations=0)
    result = reflect_sync("W.", generate=lambda p: "tea", pattern=pattern)
    assert (result.final_evaluation.overall_score, result.success) == (0.5, met)


@pytest.mark.parametrize("task", ["W.", Task("W.", task_type="writing")])
def test_the_task_type_picks_the_default_criteria(task):
    judge = judge_scoring(0.9)
    of_pattern = "writing" if isinstance(task, str) else "analysis"
    pattern = ReflectionPattern(reflection_model=judge, task_type=of_pattern)
    result = reflect_sync(task, generate=lambda p: "x", pattern=pattern)
    assert list(result.final_evaluation.criteria_scores) == ["clarity", "coherence", "completeness", "tone"]


def test_positional_options_in_the_order_of_the_specification():
    pattern = ReflectionPattern(4, ["clarity"], 0.9, None, "incremental")
    assert (pattern.max_iterations, pattern.revision_strategy) == (4, "incremental")


def test_revise_without_an_agent(monkeypatch):
    model = ScriptedModel(["<<<<<<< SEARCH\nbad\n=======\ngood\n>>>>>>> REPLACE"])
    monkeypatch.setattr("redraft.loop.pattern.model_of", lambda given, settings, **_: model)
    pattern = ReflectionPattern(revision_strategy="targeted_edit", max_revision_tokens=99)
    evaluation = ReflectionEvaluation(0.5, issues=(Issue("it is bad"),))
    assert run_sync(pattern.revise("a bad text", evaluation)) == "a good text"
    assert model.requests[0].max_tokens == 99


@pytest.mark.parametrize("strategy", ["hybrid", "full_rewrite", "incremental", "fresh", "resample"])
def test_revise_always_shows_the_text(strategy, monkeypatch):
    model = ScriptedModel(["a good text"])
    monkeypatch.setattr("redraft.loop.pattern.model_of", lambda given, settings, **_: model)
    evaluation = ReflectionEvaluation(0.0, issues=(Issue("it is bad"),))
    pattern = ReflectionPattern(revision_strategy=strategy)
    assert run_sync(pattern.revise("a bad text", evaluation)) == "a good text"
    assert "a bad text" in [message.content for message in model.requests[0].messages]
    assert "it is bad" in model.requests[0].messages[-1].content


def test_a_gate_may_fail_in_spite_of_its_score():
    gate = QualityCriterion(
        "gate",
        evaluator="function",
        evaluator_config={"function": lambda o: {"valid": False, "score": 0.9}},
        gate=True,
    )
    judge = ScriptedModel([])
    pattern = ReflectionPattern(quality_criteria=[gate, "clarity"], reflection_model=judge, max_iterations=0)
    assert not reflect_sync("W.", generate=lambda p: "x", pattern=pattern).final_evaluation.gates_passed
    assert judge.requests == []


def test_lists_that_change_later_do_not_change_the_pattern():
    criteria, config, advisors = [TEA], {"pattern": "coffee"}, []
    criteria.append(QualityCriterion("coffee", evaluator="regex", evaluator_config=config))
    pattern = ReflectionPattern(quality_criteria=criteria, advisors=advisors)
    criteria.clear()
    config["pattern"] = "milk"
    advisors.append(None)
    result = reflect_sync("W.", generate=lambda _: "tea and coffee", pattern=pattern)
    assert [criterion.name for criterion in result.criteria] == ["tea", "coffee"]
    assert (result.success, pattern.advisors) == (True, ())
