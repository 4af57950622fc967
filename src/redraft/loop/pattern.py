"""ReflectionPattern: every choice about a run, and what assembles a run from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

from redraft import _calls as adapt
from redraft._steps import Retry, direct
from redraft._validation import (
    check_choice,
    check_count,
    check_flag,
    check_function,
    check_model,
    check_share,
)
from redraft.errors import ConfigError, OutputError, SandboxError
from redraft.evaluate.compare import needs_model
from redraft.evaluate.criteria import check_comparable, check_task_type, criteria_of
from redraft.evaluate.judge import Judging
from redraft.evaluate.panel import panel
from redraft.events import Listener
from redraft.loop.budget import NO_BUDGET, Budget
from redraft.loop.diagnose import NO_JUDGE, Signals
from redraft.loop.live import (
    MOST_REFLECTIONS,
    NO_TRIGGERS,
    LiveRun,
    ReflectingGenerator,
    ReflectingReviser,
    Triggers,
    triggers_of,
)
from redraft.loop.revise import STRATEGIES, Memory, ModelGenerator, ModelReviser, RevisionStrategy
from redraft.loop.run import Judges, Parts, PatternRuns, check_guests, run_loop
from redraft.loop.select import SELECTIONS, Selection
from redraft.loop.stop import (
    diminishing,
    first,
    max_iterations,
    oscillation,
    plateau,
    quality_met,
    repeated_issues,
    semantic_stability,
    unjudged,
)
from redraft.models.names import model_of
from redraft.protocols import (
    Advisor,
    AgentPattern,
    Attempt,
    ChatModel,
    ReflectionCallbacks,
    RunContext,
    Stopper,
)
from redraft.settings import load_settings
from redraft.types import NOTHING_USED, QualityCriterion, Task, maker

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import CodeType

    from redraft.evaluate.panel import Panel
    from redraft.loop.agent import Agent
    from redraft.protocols import CommandRunner, Evaluator, Generator, Reviser, Step
    from redraft.settings import Settings
    from redraft.types import (
        Draft,
        Output,
        ReflectionEvaluation,
        ReflectionHistory,
        ReflectionResult,
        ReflectionVersion,
    )


# Compared by identity: two patterns with equal fields may hold functions that are not comparable.
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ReflectionPattern(AgentPattern):
    """Choose how a run goes. Specification 2.2, 2.5.2, 2.6.2 and 3.1.

    `max_iterations` counts revisions: 3 makes at most 4 versions, 0 only the first draft.
    `quality_criteria` are criteria or plain sentences; None takes the default set of `task_type`, which is
    then `code_generation`, `writing`, `analysis`, `reasoning`, or empty for a general set.
    `quality_threshold`, `improvement_threshold` are in 0..1. `reflection_prompt` replaces the judge's
    prompt and may use {task}, {output}, {criteria}, {history}. `reflection_model` judges instead of the
    generating model. With `structured_reflection=False` the judge answers in prose with score lines.
    `judge="probability"` takes the probability of "yes" from a model that tells its log probabilities;
    `judge_samples` asks that often and keeps the median. `max_revision_tokens` bounds all revisions
    together; `budget_tokens`, `budget_usd` and `budget_seconds` bound the run: a model call starts only if
    it fits into what is left beside the calls under way, so that a run overshoots by at most one reply, and
    what is still under way when the seconds are over is cancelled. `until` replaces the convergence rules
    (they are in `redraft.loop.stop`); the maximum and the budgets bind all the same. `diversify` answers a
    revision that changed nothing with a fresh start.
    `preserve_all_versions=False` keeps the first, the best and the last. `on_failure` says whether an
    error that ends a run is returned with the result or raised with the history. `advisors` give advice
    before the run and learn from how it went. `on_event` hears of everything.

    Every version is reflected on (`completion`). `reflection_triggers` adds looks back in the middle of a
    run, at most `max_reflections` of them, each a short message put into the conversation: `step_interval`
    (after every `reflection_interval` steps of an agent's model, 5 by default), `error` (a tool raised or
    asked for another try, or the model's reply was of no use; what a provider fails in is tried again by
    `retry`, not reflected on), `tool_result` (after the tools named in `reflect_on_tools`, or any tool),
    `quality_drop` (before the next revision, where a score is `quality_drop_threshold`, 0.1 by default, or
    more below the best so far) and `manual` (`reflect_now()` on what `Agent.stream` gives). Giving a
    trigger's own option turns it on, too. What needs the steps of an agent is refused where there are none.

    Raises `ConfigError` for a value out of its range or an unknown choice.
    """

    max_iterations: int = 3
    quality_criteria: Sequence[QualityCriterion | str] | None = None
    quality_threshold: float = 0.8
    reflection_prompt: str | None = None
    revision_strategy: RevisionStrategy = "hybrid"
    reflection_triggers: Sequence[str] = ("completion",)
    best_version_selection: Selection = "highest_score"
    structured_reflection: bool = True
    _: KW_ONLY
    task_type: str = ""
    reflection_model: str | ChatModel | None = None
    judge: Literal["score", "probability"] = "score"
    judge_samples: int = 1
    reflection_interval: int | None = None
    reflect_on_error: bool | None = None
    reflect_on_tools: Sequence[str] = ()
    quality_drop_threshold: float | None = None
    max_reflections: int = MOST_REFLECTIONS
    include_prior_versions: bool = False
    include_reflection_history: bool = True
    max_revision_tokens: int | None = None
    diversify: bool = True
    plateau_iterations: int = 2
    improvement_threshold: float = 0.05
    detect_oscillation: bool = True
    until: Stopper | None = None
    preserve_all_versions: bool = True
    budget_tokens: int | None = None
    budget_usd: float | None = None
    budget_seconds: float | None = None
    retry: Retry = Retry()  # noqa: RUF009 (frozen, so sharing it is safe)
    on_failure: Literal["return", "raise"] = "return"
    callbacks: ReflectionCallbacks | None = None
    advisors: Sequence[Advisor] = ()
    on_event: Listener | None = None
    stop: Stopper = field(init=False, repr=False)
    limit: Stopper = field(init=False, repr=False)
    budget: Budget = field(init=False, repr=False)
    triggers: Triggers = field(init=False, repr=False)
    runs: PatternRuns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_count("max_iterations", self.max_iterations, 0)
        check_count("judge_samples", self.judge_samples, 1)
        check_count("plateau_iterations", self.plateau_iterations, 1)
        check_share("quality_threshold", self.quality_threshold)
        check_share("improvement_threshold", self.improvement_threshold)
        check_choice("revision_strategy", self.revision_strategy, STRATEGIES)
        check_choice("best_version_selection", self.best_version_selection, SELECTIONS)
        check_choice("judge", self.judge, ("score", "probability"))
        check_choice("on_failure", self.on_failure, ("return", "raise"))
        check_function("until", self.until)
        check_function("on_event", self.on_event)
        check_flag("structured_reflection", self.structured_reflection)
        check_flag("include_prior_versions", self.include_prior_versions)
        check_flag("include_reflection_history", self.include_reflection_history)
        check_flag("diversify", self.diversify)
        check_flag("detect_oscillation", self.detect_oscillation)
        check_flag("preserve_all_versions", self.preserve_all_versions)
        check_guests(self.callbacks, self.advisors)
        if not isinstance(self.retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"retry must be a Retry, such as Retry(attempts=5), got {self.retry!r}.")
        object.__setattr__(self, "stop", self.until or self._rules())
        object.__setattr__(self, "limit", max_iterations(self.max_iterations))
        budget = Budget(self.budget_tokens, self.budget_usd, self.budget_seconds, self.max_revision_tokens)
        object.__setattr__(self, "budget", NO_BUDGET if budget == NO_BUDGET else budget)
        object.__setattr__(self, "triggers", self._triggers())
        object.__setattr__(self, "runs", PatternRuns())
        # What is wrong with the criteria and the judge's prompt shows here, not after the first paid draft.
        check_model("reflection_model", self.reflection_model)
        if not isinstance(self.task_type, str):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"task_type must be a text, got {self.task_type!r}.")
        if self.quality_criteria is None:
            check_task_type(self.task_type)
        check_comparable(criteria_of(self.quality_criteria, self.task_type))
        judging_of(self)

    def _triggers(self) -> Triggers:
        return triggers_of(
            self.reflection_triggers,
            self.reflection_interval,
            self.reflect_on_error,
            self.reflect_on_tools,
            self.quality_drop_threshold,
            self.max_reflections,
        )

    def _rules(self) -> Stopper:
        rules: list[Stopper] = [quality_met, unjudged, semantic_stability, repeated_issues]
        if self.detect_oscillation:
            rules.append(oscillation)
        rules += [plateau(self.plateau_iterations), diminishing(self.improvement_threshold)]
        return first(*rules)

    async def execute(self, agent: Agent | Callable[..., Any], query: str | Task) -> ReflectionResult:
        """Run this pattern over an `Agent`, or over any callable that answers a prompt."""
        from redraft.loop.agent import Agent  # noqa: PLC0415 (the two know each other)

        if isinstance(agent, Agent):
            return await agent.run(query, pattern=self)
        return await run_functions(
            query, (agent, None, None), pattern=self, draft=None, until=None, step=None
        )

    async def reflect(
        self,
        output: Output,
        criteria: Sequence[QualityCriterion | str] | None = None,
        *,
        agent: Agent | None = None,
    ) -> ReflectionEvaluation:
        """Judge an output by `criteria`, or by the pattern's own; changes nothing.

        The judge is `reflection_model`, else the model of `agent`, else that of the settings; no model is
        needed where every criterion is a check.
        """
        return await judge_output(self, output, criteria, agent)

    async def revise(
        self, output: Output, evaluation: ReflectionEvaluation, *, agent: Agent | None = None
    ) -> Output:
        """Return a better output by an evaluation; one revision, which is not judged.

        The model of `agent` revises, under its system prompt and without its tools; without an agent, that
        of the settings. Raises `ConfigError` where there is no model.
        """
        return await revise_output(self, output, evaluation, agent)

    def get_history(self) -> ReflectionHistory:
        """Return the history of the run of this pattern that ended last in this context.

        In the task, or outside of any in the thread, that made the pattern, its runs in other tasks count,
        too. Raises `LookupError` where no run has ended, or the last one ended without a result.
        """
        if (run := self.runs.last()) is None:
            raise LookupError(
                "No run of this pattern has ended in this context. A run in a task of its own leaves its "
                "history in what it returns: result.history."
            )
        if run.result is None:
            raise LookupError(f"The last run of this pattern ended without a result: {run.error}")
        return run.result.history

    def get_best_version(self) -> ReflectionVersion:
        """Return the best version of the run that `get_history` answers for."""
        return self.get_history().best_version


def variant_of(pattern: ReflectionPattern, **changes: Any) -> ReflectionPattern:
    """Return a pattern with changes for one run, which counts as a run of the pattern itself."""
    variant = replace(pattern, **changes)
    object.__setattr__(variant, "runs", pattern.runs)
    return variant


def judging_of(pattern: ReflectionPattern) -> Judging:
    """Return how a model judges under a pattern."""
    return Judging(
        kind=pattern.judge,
        samples=pattern.judge_samples,
        prompt=pattern.reflection_prompt,
        structured=pattern.structured_reflection,
        include_history=pattern.include_reflection_history,
    )


DEFAULT_PATTERN = ReflectionPattern()
DEFAULT_PATTERN.runs.belong_to_nobody()  # it is everybody's


if TYPE_CHECKING:
    Verb: TypeAlias = Callable[..., Any] | None

REMEMBERED = 16
"""Sets of functions. Few programs have more, and with each its module is held on to."""

_known: dict[tuple[tuple[Verb, Verb, Verb], float], tuple[tuple[CodeType, CodeType, CodeType], Parts]] = {}


def shared_parts(hands: tuple[Verb, Verb, Verb], threshold: float) -> Parts | None:
    """Return what `generate`, `evaluate` and `revise` make, not to be changed; None where it can't be shared.

    Each of ten thousand runs at once would hold four objects more, and to make them takes a run of three
    versions a twentieth of its time. Functions that hold something (a closure, defaults) are not remembered,
    for that would be held with them. One whose code was exchanged, as notebooks reload it, is looked at anew.
    """
    generate, evaluate, revise = hands
    if not (
        isinstance(generate, FunctionType)
        and isinstance(evaluate, FunctionType)
        and isinstance(revise, FunctionType)
    ):
        return None
    key = hands, threshold
    codes = generate.__code__, evaluate.__code__, revise.__code__
    known = _known.get(key)
    if known is not None and known[0] == codes:
        return known[1]
    if _holds_something(generate) or _holds_something(evaluate) or _holds_something(revise):
        return None
    parts = Parts(adapt.generator(generate), adapt.evaluator(evaluate, threshold), adapt.reviser(revise))
    if len(_known) >= REMEMBERED:
        _known.clear()
    _known[key] = codes, parts
    return parts


def _holds_something(fn: FunctionType) -> bool:
    return bool(fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__ or fn.__dict__)


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
    from redraft.loop.keeper import run_kept  # noqa: PLC0415 (a run that is not kept does without)
    from redraft.loop.record import Origin  # noqa: PLC0415 (likewise)

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
