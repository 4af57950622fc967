from dataclasses import replace

import pytest

from redraft import (
    Agent,
    ConfigError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    reflect_sync,
)
from redraft.core.sync import run_sync


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
    "criteria",
    [
        [QualityCriterion("x", evaluator="regexp", evaluator_config={"pattern": "a"})],
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


def test_execute_takes_an_agent_or_any_callable():
    pattern = ReflectionPattern(
        max_iterations=0,
        quality_criteria=[QualityCriterion("x", evaluator="regex", evaluator_config={"pattern": "tea"})],
    )
    agent = Agent(ScriptedModel(["tea", "coffee"]), pattern=replace(pattern, max_iterations=1))
    assert run_sync(pattern.execute(agent, "W.")).success
    assert run_sync(pattern.execute(lambda prompt: "tea", "W.")).success
    assert len(run_sync(pattern.execute(agent, "W.")).history.versions) == 1  # this pattern, not the agent's
