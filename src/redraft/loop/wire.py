"""Wiring: what a pattern, a model and plain functions make together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redraft.core import adapt
from redraft.core.context import Attempt, RunContext
from redraft.core.errors import ConfigError, OutputError, SandboxError
from redraft.core.made import maker
from redraft.core.protocols import AgentPattern
from redraft.core.settings import load_settings
from redraft.core.steps import direct
from redraft.core.task import Task
from redraft.core.usage import NOTHING_USED
from redraft.evaluate.compare import needs_model
from redraft.evaluate.criteria import criteria_of
from redraft.evaluate.panel import panel
from redraft.loop.diagnose import NO_JUDGE, Signals
from redraft.loop.live import LiveRun
from redraft.loop.parts import Judges, Parts
from redraft.loop.pattern import DEFAULT_PATTERN, ReflectionPattern, judging_of, variant_of
from redraft.loop.prompts import Memory
from redraft.loop.reflecting import ReflectingGenerator, ReflectingReviser
from redraft.loop.revise import ModelGenerator, ModelReviser
from redraft.loop.run import run_loop
from redraft.loop.shared_parts import shared_parts
from redraft.loop.triggers import NO_TRIGGERS
from redraft.models.names import model_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redraft.core.criterion import QualityCriterion
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.protocols import (
        ChatModel,
        CommandRunner,
        Evaluator,
        Generator,
        Reviser,
        Step,
        Stopper,
    )
    from redraft.core.result import ReflectionResult
    from redraft.core.settings import Settings
    from redraft.core.version import Draft, Output
    from redraft.evaluate.panel import Panel
    from redraft.loop.agent import Agent


_task = maker(Task)

BY_FUNCTION = (
    "evaluate=..., or a pattern=... whose quality_criteria are checks, or that has a reflection_model",
    "a pattern=... that has a reflection_model",
)
"""What a caller could pass where nothing judges: without criteria, and with criteria that need a model."""
BY_AGENT = (
    "agent=..., or reflection_model=... in the pattern",
    "agent=..., or reflection_model=... in the pattern",
)
BY_MODEL = ("reflection_model=... in the pattern", "reflection_model=... in the pattern")


def chosen_pattern(
    given: ReflectionPattern | None, otherwise: ReflectionPattern = DEFAULT_PATTERN
) -> ReflectionPattern:
    """Return the pattern that was given, or else another; raises `ConfigError` for what is none."""
    if given is None:
        return otherwise
    if not isinstance(given, ReflectionPattern):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
        other = isinstance(given, AgentPattern) and not isinstance(given, type)
        hint = " Run a pattern of your own by its execute(agent, query)." if other else ""
        raise ConfigError(f"pattern must be a ReflectionPattern, got {given!r}.{hint}")
    return given


def task_of(task: str | Task, pattern: ReflectionPattern) -> Task:
    """Make a `Task` of what was asked; raises `ConfigError` for an empty one."""
    if isinstance(task, str):
        task = _task(task, "", pattern.task_type)
    if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
        raise ConfigError(f"The task must be a text or a Task, got {task!r}.")
    if not task.description.strip():
        raise ConfigError("The task is empty; say what is asked.")
    return task.asked()


def given_draft(draft: Output | Draft | None) -> Draft | None:
    """Return the draft that a run starts from; what was there already costs this run nothing."""
    if draft is None:
        return None
    try:
        given = adapt.draft_of(draft, "draft")
    except OutputError as error:
        raise ConfigError(f"The draft to start from can't be used: {error}") from error
    return replace(given, strategy="given", usage=given.usage if given is draft else NOTHING_USED)


def run_functions(
    task: str | Task,
    hands: tuple[Callable[..., Any] | None, Callable[..., Any] | None, Callable[..., Any] | None],
    *,
    pattern: ReflectionPattern | None,
    draft: Output | Draft | None,
    until: Stopper | None,
    step: Step | None,
) -> Awaitable[ReflectionResult]:
    """Begin the run of `reflect`: `hands` are its functions `generate`, `evaluate` and `revise`."""
    chosen = chosen_pattern(pattern)
    if until is not None:
        chosen = variant_of(chosen, until=until)
    asked = task_of(task, chosen)
    parts = None
    if chosen.quality_criteria is None and chosen.triggers is NO_TRIGGERS:
        parts = shared_parts(hands, chosen.quality_threshold)
    if parts is None:
        parts = parts_of_functions(chosen, asked.task_type, *hands, has_draft=draft is not None)
    if step is None:
        return run_loop(asked, parts, chosen, direct, given_draft(draft))
    from redraft.loop.keep import run_kept  # noqa: PLC0415 (only a run with a journal needs it)
    from redraft.loop.record import Origin  # noqa: PLC0415

    return run_kept(asked, parts, chosen, step, given_draft(draft), Origin("function", "reflect"))


def judges_of(pattern: ReflectionPattern, model: ChatModel | None, task_type: str = "") -> Judges:
    """Let the pattern's criteria judge what an agent makes, with its model where no other is named."""
    judges = _panel(pattern, pattern.quality_criteria, model, task_type or pattern.task_type)
    return Judges(judges, signals_of(pattern, judges, model))


def parts_of_model(
    pattern: ReflectionPattern, model: ChatModel, system_prompt: str, judges: Judges, live: LiveRun
) -> Parts:
    """Let a model draft and revise."""
    generate = ModelGenerator(model, system_prompt)
    revise = ModelReviser(model, system_prompt, _memory(pattern))
    return reflecting(Parts(generate, judges.evaluate, revise, judges.signals), live)


def live_run(pattern: ReflectionPattern, model: ChatModel | None, door: str = "") -> LiveRun:
    """Return what a run's verbs see of it, with the model that reflects where a trigger needs one.

    `door` says what the run is of, where some triggers can't fire. Raises `ConfigError` for those, and where
    there is no model.
    """
    if pattern.triggers is NO_TRIGGERS:
        return LiveRun(retry=pattern.retry)
    if door:
        pattern.triggers.check_door(door)
    missing = (
        "There is no model for the looks back that reflection_triggers ask for: pass reflection_model=..."
    )
    return LiveRun(pattern.triggers, _judge_model(pattern, model, missing), pattern.retry)


def reflecting(parts: Parts, live: LiveRun) -> Parts:
    """Let the verbs look back before they make the next version, where a trigger asks for it."""
    if live.triggers is NO_TRIGGERS:
        return parts
    generate = None if parts.generate is None else ReflectingGenerator(parts.generate, live)
    return replace(parts, generate=generate, revise=ReflectingReviser(parts.revise, live), live=live)


def parts_of_functions(
    pattern: ReflectionPattern,
    task_type: str,
    generate: Callable[..., Any] | None,
    evaluate: Callable[..., Any] | None,
    revise: Callable[..., Any] | None,
    *,
    has_draft: bool,
    judged_by: tuple[str, str] = BY_FUNCTION,
) -> Parts:
    """Let plain functions draft, judge and revise; what is missing comes from the model of the settings.

    Without `evaluate` the pattern's criteria judge. Without `revise` the generator is called again with the
    critique. Without `generate` a model drafts, unless there are a draft and a reviser. `judged_by` is what
    the caller could pass where nothing judges: without criteria, and with criteria that need a model.
    """
    if evaluate is not None and pattern.quality_criteria is not None:
        raise ConfigError("Give evaluate or quality_criteria, not both: each decides what is good enough.")
    generator, reviser = _hands(pattern, generate, revise, has_draft=has_draft)
    model = generator.model if isinstance(generator, ModelGenerator) else None
    if evaluate is not None:
        parts = Parts(generator, adapt.evaluator(evaluate, pattern.quality_threshold), reviser)
    else:
        judges = panel_of(pattern, task_type or pattern.task_type, judged_by)
        parts = Parts(generator, judges, reviser, signals_of(pattern, judges, model))
    if pattern.triggers is NO_TRIGGERS:
        return parts
    return reflecting(parts, live_run(pattern, model, "a plain function"))


def _hands(
    pattern: ReflectionPattern,
    generate: Callable[..., Any] | None,
    revise: Callable[..., Any] | None,
    *,
    has_draft: bool,
) -> tuple[Generator | None, Reviser]:
    if generate is not None:
        generator = adapt.generator(generate)
        return generator, adapt.regenerating(generator) if revise is None else adapt.reviser(revise)
    if revise is not None and has_draft:
        return None, adapt.reviser(revise)
    missing = "generate=... or draft=..." if revise is not None else "generate=..."
    model = model_of(None, load_settings(), missing=f"There is nothing to draft with: pass {missing}")
    if revise is not None:
        return ModelGenerator(model), adapt.reviser(revise)
    return ModelGenerator(model), ModelReviser(model, memory=_memory(pattern))


# Kept with the pattern, and let go with it: building a panel compiles patterns and schemas.
_panels: WeakKeyDictionary[ReflectionPattern, dict[str, Panel]] = WeakKeyDictionary()


def panel_of(pattern: ReflectionPattern, task_type: str, judged_by: tuple[str, str] = BY_MODEL) -> Panel:
    """Return the evaluator of a pattern's criteria where no agent's model is at hand to judge."""
    known = _panels.setdefault(pattern, {}).get(task_type)
    if known is not None:
        return known
    made = _panel(pattern, pattern.quality_criteria, None, task_type, judged_by)
    if not made.judged:  # which model judges is for the settings to say, each time
        _panels[pattern][task_type] = made
    return made


def _panel(
    pattern: ReflectionPattern,
    given: Sequence[QualityCriterion | str] | None,
    model: ChatModel | None,
    task_type: str,
    judged_by: tuple[str, str] = BY_MODEL,
) -> Panel:
    criteria = criteria_of(given, task_type)
    judged = [criterion.name for criterion in criteria if needs_model(criterion)]
    judge = _judge_model(pattern, model, _no_judge(given, judged, judged_by)) if judged else None
    return panel(
        criteria,
        threshold=pattern.quality_threshold,
        model=judge,
        run_command=_jail(criteria),
        judging=judging_of(pattern),
        task_type=task_type,
    )


def _no_judge(
    given: Sequence[QualityCriterion | str] | None, judged: list[str], judged_by: tuple[str, str]
) -> str:
    if given is None:
        return f"There is nothing to judge with: pass {judged_by[0]}"
    return f"There is no model to judge {', '.join(map(repr, judged))}: pass {judged_by[1]}"


def _judge_model(pattern: ReflectionPattern, model: ChatModel | None, missing: str) -> ChatModel:
    settings = load_settings()
    return model_of(_other_judge(pattern, settings) or model, settings, missing=missing)


def _other_judge(pattern: ReflectionPattern, settings: Settings) -> str | ChatModel | None:
    """Return the model that judges in place of the one that drafts, if one was named."""
    return pattern.reflection_model or settings.reflection_model


def _jail(criteria: Sequence[QualityCriterion]) -> CommandRunner | None:
    """Return what runs the commands of criteria, if they have any; raises `ConfigError` where nothing can."""
    commands = [criterion for criterion in criteria if criterion.evaluator == "command"]
    if not commands:
        return None
    from redraft.sandbox.process import ProcessJail, check_jail  # noqa: PLC0415 (only criteria with commands need it)

    for criterion in commands:
        try:
            check_jail(programs="command" in criterion.evaluator_config)
        except SandboxError as error:
            raise ConfigError(f"Criterion {criterion.name!r}: {error}") from error
    return ProcessJail()


def signals_of(pattern: ReflectionPattern, judges: Panel, model: ChatModel | None) -> Signals:
    """Say where the scores come from, for the diagnostics."""
    if not judges.judged:
        return NO_JUDGE
    other = _other_judge(pattern, load_settings())
    self_judged = model is not None and other is None and not judges.checks
    name = other if isinstance(other, str) else repr(other or model)
    return Signals(name, frozenset(judges.judged), self_judged)


async def judge_output(
    pattern: ReflectionPattern,
    output: Output,
    criteria: Sequence[QualityCriterion | str] | None,
    agent: Agent | None,
) -> ReflectionEvaluation:
    """Judge one output outside of any run."""
    if criteria is None and agent is None:
        judges: Evaluator = panel_of(pattern, pattern.task_type, BY_AGENT)
    else:
        given = pattern.quality_criteria if criteria is None else criteria
        judges = _panel(pattern, given, _model_of_agent(agent), pattern.task_type, BY_AGENT)
    return await judges(output, _outside(pattern, Attempt()))


async def revise_output(
    pattern: ReflectionPattern, output: Output, evaluation: ReflectionEvaluation, agent: Agent | None
) -> Output:
    """Revise one output outside of any run, with the model of an agent or of the settings."""
    missing = "There is no model to revise with: pass an agent=... that has one"
    model = model_of(_model_of_agent(agent), load_settings(), missing=missing)
    revise = ModelReviser(model, "" if agent is None else agent.system_prompt, _memory(pattern))
    attempt = Attempt(
        2,
        "revise",
        output,
        evaluation,
        pattern.revision_strategy,
        max_tokens=pattern.max_revision_tokens,
    )
    return (await revise(output, evaluation, _outside(pattern, attempt))).output


def _model_of_agent(agent: Agent | None) -> ChatModel | None:
    if agent is None:
        return None
    from redraft.loop.agent import Agent  # noqa: PLC0415 (agents are wired here)

    if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
        raise ConfigError(f"agent must be an Agent, got {agent!r}.")
    return agent.model


def _outside(pattern: ReflectionPattern, attempt: Attempt) -> RunContext:
    return RunContext(Task("(a text to judge and mend)", task_type=pattern.task_type), "", attempt=attempt)


def _memory(pattern: ReflectionPattern) -> Memory:
    return Memory(pattern.include_reflection_history, pattern.include_prior_versions)
