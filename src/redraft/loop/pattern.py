"""ReflectionPattern: the options of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from pathlib import PurePath
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast
from weakref import ref

from redraft._hints import keyword_hints
from redraft._steps import Retry
from redraft._texts import listed, shortened
from redraft._validation import (
    check_choice,
    check_count,
    check_flag,
    check_function,
    check_list,
    check_model,
    check_share,
    check_text,
    repr_of,
)
from redraft._verdicts import draft_of
from redraft.errors import ConfigError, OutputError
from redraft.evaluate.criteria import (
    check_comparable,
    check_task_type,
    criteria_of,
)
from redraft.evaluate.judge import MARGIN, JudgeOptions
from redraft.evaluate.panel import Panel
from redraft.evaluate.requirements import answer_schema, rubric_of
from redraft.events import Listener
from redraft.loop.budget import NO_BUDGET, Budget
from redraft.loop.diagnose import FirstDrafts
from redraft.loop.run import Run, run_and_store
from redraft.loop.select import SELECTIONS, WAYS_TO_ACCEPT, Accept, Selection
from redraft.loop.stop import (
    Rule,
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
from redraft.loop.strategy import FROM_SCRATCH, STRATEGIES, RevisionStrategy
from redraft.loop.triggers import (
    MOST_REFLECTIONS,
    ReflectionTriggers,
    triggers_of,
)
from redraft.loop.verbs import BY_AGENT, function_verbs, model_reviser, own_panel, panel_for
from redraft.models.content import Query, task_of_content
from redraft.models.names import model_of
from redraft.protocols import (
    Advisor,
    AgentLike,
    AgentPattern,
    Attempt,
    ChatModel,
    ModelChoice,
    ReflectionCallbacks,
    RunContext,
    Stopper,
)
from redraft.settings import load_settings
from redraft.types import (
    NOTHING_USED,
    Criterion,
    Draft,
    FrozenList,
    PlainTask,
    QualityCriterion,
    frozen_list,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redraft.protocols import Step
    from redraft.types import (
        Output,
        ReflectionEvaluation,
        ReflectionHistory,
        ReflectionResult,
        ReflectionVersion,
    )


# --- the last run of a pattern -----------------------------------------------------------------------------

MOST_REMEMBERED = 64
"""The patterns of which a context remembers the last run."""


class EndedRun(NamedTuple):
    """A run that ended with a result or with an error. Times are monotonic seconds."""

    result: ReflectionResult | None
    error: str
    began: float
    ended: float


class LastRun:
    """The last run of a pattern, per context and for the task that made the pattern.

    Each context sees its own runs, so a user's request never sees the run of another user. The task that made
    the pattern (or the thread, outside of tasks) also sees the runs of other tasks (`asyncio.create_task`,
    `wait_for`), which have contexts of their own.
    """

    __slots__ = ("__weakref__", "_maker", "_seen_by_maker")

    def __init__(self) -> None:
        self._maker: object = _current_task()
        self._seen_by_maker: EndedRun | None = None

    def forget_maker(self) -> None:
        """Let every context see only its own runs."""
        self._maker = None

    def set(self, began: float, result: ReflectionResult | None, error: str = "") -> None:
        """Record a run that has just ended."""
        run = EndedRun(result, error, began, monotonic())
        if self._maker is not None:
            self._seen_by_maker = run
        others = [
            (owner, other) for owner, other in _ended.get() if owner() is not None and owner() is not self
        ]
        _ended.set((*others[1 - MOST_REMEMBERED :], (ref(self), run)))

    def get(self) -> EndedRun | None:
        """The last run, or None."""
        own = next((run for owner, run in _ended.get() if owner() is self), None)
        latest = self._seen_by_maker
        if latest is None or self._maker != _current_task():
            return own
        return own if own is not None and latest.began < own.ended else latest


_ended: ContextVar[tuple[tuple[ref[LastRun], EndedRun], ...]] = ContextVar("ended_runs", default=())


def _current_task() -> object:
    """Identify the current thread and the task running in it, if any."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop is running
        task = None
    return get_ident(), None if task is None else ref(task)


# --- the pattern -------------------------------------------------------------------------------------------


# Compared by identity: two patterns with equal fields may hold functions that are not comparable.
@keyword_hints()
@dataclass(frozen=True, slots=True, eq=False)
class ReflectionPattern(AgentPattern):
    """The options of a run: when it stops, how it judges and revises, and what happens in between.

    Many runs, agents and functions may share a pattern. An argument that is given directly to `reflect`,
    `reflected`, `Agent`, `Task` or an adapter overrides the option of the pattern.

    Raises `ConfigError` for a value out of range, an unknown choice, and, when a run is assembled, a trigger
    that needs an agent's steps if there are none, and `accept="pairwise"` without a model.
    """

    # By position, in the order of the specification.
    max_iterations: int = 3
    """The most revisions: 3 makes at most 4 versions, 0 only the first draft."""
    quality_criteria: Sequence[Criterion] | None = None
    """What an output is judged by: sentences, which a model judges; functions, compiled patterns, pydantic
    classes, data classes and JSON Schemas, which are checks; and any `QualityCriterion`. None means the
    default criteria of the `task_type`."""
    quality_threshold: float = 0.8
    """The overall score (0..1) to reach; each criterion has a threshold of its own, too."""
    reflection_prompt: str | None = None
    """Replaces the judge's prompt; {task}, {output}, {criteria} and {history} in it are filled in."""
    revision_strategy: RevisionStrategy = "hybrid"
    """How to revise: `full_rewrite`, `targeted_edit`, `incremental`, `fresh` (a new answer that avoids what
    failed), `resample` (the same request again) or `hybrid`, which decides by what has worked before."""
    reflection_triggers: Sequence[str] = FrozenList(("completion",))
    """When to reflect. Every version is reflected on (`completion`). The others add a short message to the
    conversation in the middle of a run: `step_interval`, `error`, `tool_result`, `quality_drop`, `manual`
    (when `reflect_now()` is called on the stream of `Agent.stream`)."""
    best_version_selection: Selection = "highest_score"
    """Which version to return: `highest_score`, `latest`, `first_satisfactory` or `weighted_recency`."""
    structured_reflection: bool = True
    """Whether the judge answers in JSON, rather than in prose with lines of scores."""
    _: KW_ONLY

    # When to stop.
    plateau_iterations: int = 2
    """Stop after this many versions without a gain."""
    improvement_threshold: float = 0.05
    """A gain (0..1) below this threshold is diminishing returns."""
    detect_oscillation: bool = True
    """Whether to stop when versions alternate."""
    until: Stopper | None = None
    """A function of the versions that replaces these rules (see `redraft.loop.stop`), but neither the maximum
    nor the budgets."""
    budget_usd: float | None = None
    """The most that the run may cost; every model then needs a known price. A model call starts only if its
    input fits into what is left of each budget by the calls under way, and it is sent with a limit on its
    reply that fits, too."""
    budget_tokens: int | None = None
    """The most tokens of the run, input and output, judgements included."""
    budget_seconds: float | None = None
    """The most time; when it is over, what is under way is cancelled."""
    max_revision_tokens: int | None = None
    """The most tokens of all revisions together, prompts and replies, but not of their judgements."""

    # Judging.
    task_type: str = ""
    """The kind of task, whose default criteria apply without `quality_criteria`: `code_generation`,
    `writing`, `analysis`, `reasoning`, or empty for general ones."""
    reflection_model: ModelChoice | None = None
    """The model that judges, instead of the one that drafts; the front doors call it `judge`."""
    judge_method: Literal["score", "probability"] = "score"
    """`score` asks for all scores in a call. `probability` asks a yes/no question for each criterion, and
    takes the probability of "yes" from a model that reports log probabilities."""
    judge_samples: int = 1
    """How often to ask the judge, with a temperature where the model takes one; the mean counts. A single
    judgement just above a threshold is confirmed by a second one before the run ends on it."""
    judge_margin: float = MARGIN
    """With several samples, a gain counts only if it exceeds this many standard errors of the difference: a
    larger margin accepts fewer versions that are no better, and fewer that are."""
    calibrated_floor: float | None = None
    """The least agreement with people (kappa, 0..1), measured by `redraft calibrate`, with which a judge
    decides what is satisfactory. Below, it advises: its scores and its critique are there, the other criteria
    decide, and if there are none, no version is satisfactory."""
    accept: Accept = "score"
    """What makes a version better: its `score`, or a `pairwise` comparison with the best one. Then scores
    decide only what is satisfactory, and the judge has to prefer the new version in both orders, in two
    calls."""
    include_reflection_history: bool = True
    """Whether the judge and the reviser see the issues of earlier versions, and the judge says which of them
    are fixed."""
    include_prior_scores: bool = False
    """Whether the judge sees the scores of earlier versions."""

    # Revising.
    include_prior_versions: bool = False
    """Whether the reviser sees the texts of earlier versions."""
    diversify: bool = True
    """Whether a fresh start follows a revision that changed nothing; a long text is first revised in another
    way."""

    # Searching.
    candidates: int = 1
    """How many first drafts to make at once, of which the best is revised. The free checks judge all of them,
    and the judge scores those that no check distinguishes."""

    # Reflecting in between; each option switches its trigger on.
    reflection_interval: int | None = None
    """`step_interval`: after every so many steps of an agent's model, 5 by default."""
    reflect_on_error: bool | None = None
    """`error`: when a tool raised or asked for a retry, or the model's reply was unusable. Failures of a
    provider are retried by `retry` instead."""
    reflect_on_tools: Sequence[str] = ()
    """`tool_result`: after these tools, or after any tool if the trigger alone is on."""
    quality_drop_threshold: float | None = None
    """`quality_drop`: before the next revision, if a score is at least this much (0..1) below the best so
    far, 0.1 by default."""
    max_reflections: int = MOST_REFLECTIONS
    """The most reflections in the middle of a run."""

    # Running.
    retry: Retry = Retry()  # noqa: RUF009 (frozen, so sharing it is safe)
    """How model calls are retried after temporary failures."""
    on_failure: Literal["return", "raise"] = "return"
    """Whether an error that ends a run is returned in the result, or raised with the history."""
    preserve_all_versions: bool = True
    """False keeps the first, the best and the last version, without rejected candidates."""
    callbacks: ReflectionCallbacks | None = None
    """Functions that watch and steer the run."""
    advisors: Sequence[Advisor] = ()
    """Advisors, such as `Lessons`, give advice before the run and learn from its result."""
    on_event: Listener | None = None
    """A function that gets all events of the run."""

    judge_options: JudgeOptions = field(init=False, repr=False)
    panels: dict[str, Panel] = field(init=False, repr=False, default_factory=dict[str, Panel])
    triggers: ReflectionTriggers = field(init=False, repr=False)
    budget: Budget = field(init=False, repr=False)
    rules: Rule = field(init=False, repr=False)
    limit: Rule = field(init=False, repr=False)
    last_run: LastRun = field(init=False, repr=False, default_factory=LastRun)
    first_drafts: FirstDrafts = field(init=False, repr=False, default_factory=FirstDrafts)

    def __post_init__(self) -> None:
        check_count("max_iterations", self.max_iterations, 0)
        check_count("plateau_iterations", self.plateau_iterations, 1)
        check_count("candidates", self.candidates, 1)
        check_choice("accept", self.accept, WAYS_TO_ACCEPT)
        check_share("quality_threshold", self.quality_threshold)
        if self.calibrated_floor is not None:
            check_share("calibrated_floor", self.calibrated_floor)
        check_share("improvement_threshold", self.improvement_threshold)
        check_choice("revision_strategy", self.revision_strategy, STRATEGIES)
        check_choice("best_version_selection", self.best_version_selection, SELECTIONS)
        check_choice("judge_method", self.judge_method, ("score", "probability"))
        check_choice("on_failure", self.on_failure, ("return", "raise"))
        check_function("until", self.until)
        check_function("on_event", self.on_event)
        for name in FLAGS:
            check_flag(name, getattr(self, name))
        _check_callbacks(self.callbacks)
        for name in LISTS:  # a list that the caller changes later must not change later runs
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, frozen_list(cast("list[Any]", value)))
        check_list("advisors", self.advisors)
        for advisor in self.advisors:
            check_advisor("advisors", advisor)
        if not isinstance(self.retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
            raise ConfigError(f"retry must be a Retry, such as Retry(attempts=5), got {repr_of(self.retry)}.")
        budget = Budget(self.budget_tokens, self.budget_usd, self.budget_seconds, self.max_revision_tokens)
        object.__setattr__(self, "budget", NO_BUDGET if budget == NO_BUDGET else budget)
        own = () if self.quality_criteria is None else criteria_of(self.quality_criteria, self.task_type)
        object.__setattr__(self, "rules", first(self.until) if self.until else self._rules(own))
        object.__setattr__(self, "limit", max_iterations(self.max_iterations))
        triggers = triggers_of(self)
        object.__setattr__(self, "triggers", triggers)
        if self.candidates > 1 and (during := [name for name in triggers.names() if name in IN_A_DRAFT]):
            raise ConfigError(
                f"candidates={self.candidates} can't be combined with the trigger {during[0]!r}: drafts that "
                "are made at once are not reflected on halfway."
            )
        # Errors in the criteria and the judge's prompt must show here, not after the first paid draft.
        check_model("reflection_model", self.reflection_model)
        check_text("task_type", self.task_type)
        if self.quality_criteria is None:
            check_task_type(self.task_type)
        check_comparable(criteria_of(self.quality_criteria, self.task_type))
        judge_options = JudgeOptions(
            method=self.judge_method,
            samples=self.judge_samples,
            margin=self.judge_margin,
            prompt=self.reflection_prompt,
            structured=self.structured_reflection,
            include_history=self.include_reflection_history,
            include_scores=self.include_prior_scores,
        )
        object.__setattr__(self, "judge_options", judge_options)

    def __init_subclass__(cls) -> None:
        for name, instead in OVERRIDES.items():
            if getattr(cls, name) is not getattr(ReflectionPattern, name):
                raise ConfigError(f"{cls.__name__} overrides {name}(), which runs do not call. {instead}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made again from the options, and have a history of their own."""
        return _pattern_of, (
            type(self),
            {option.name: getattr(self, option.name) for option in fields(self) if option.init},
        )

    def rules_for(self, criteria: Sequence[QualityCriterion]) -> Rule:
        """The convergence rules of a run with these criteria; its stop names their thresholds."""
        if self.until is not None or self.quality_criteria is not None or not criteria:
            return self.rules
        return self._rules(criteria)

    def recorded(self) -> dict[str, Any]:
        """The options that are stored in the record of a run, by name."""
        return {name: getattr(self, name) for name in RECORDED}

    def _rules(self, criteria: Sequence[QualityCriterion]) -> Rule:
        thresholds = {criterion.name: criterion.threshold for criterion in criteria}
        met = partial(quality_met, threshold=self.quality_threshold, criteria=thresholds)
        rules: list[Stopper] = [met, unjudged, semantic_stability, repeated_issues]
        if self.detect_oscillation:
            rules.append(oscillation)
        rules += [plateau(self.plateau_iterations), diminishing(self.improvement_threshold)]
        return first(*rules)

    async def execute(
        self, agent: AgentLike | Callable[..., Any], query: str | PlainTask
    ) -> ReflectionResult:
        """Run an `Agent`, or any callable that answers a prompt, with this pattern."""
        if isinstance(agent, AgentLike):
            return await agent.run(query, pattern=self)
        return await run_functions(query, agent, pattern=self)

    async def reflect(
        self,
        output: Output,
        criteria: Sequence[Criterion] | None = None,
        *,
        agent: AgentLike | None = None,
    ) -> ReflectionEvaluation:
        """Judge an output by `criteria`, by default the pattern's own.

        The judge is `reflection_model`, else the model of `agent`, else that of the settings; criteria that
        are all checks need no model.
        """
        model = _model_of(agent)
        if criteria is None:
            panel = own_panel(self, model, self.task_type, BY_AGENT)
        else:
            panel = panel_for(self, criteria, model, self.task_type, BY_AGENT)
        return await self.retry.run(panel, output, self._outside_a_run(Attempt()))

    async def revise(
        self, output: Output, evaluation: ReflectionEvaluation, *, agent: AgentLike | None = None
    ) -> Output:
        """Revise an output once by its evaluation, without judging the revision.

        The model of `agent` revises, with its system prompt but without its tools; without an agent, the
        model of the settings does. A strategy that starts from scratch would need the task, so the output is
        rewritten instead. Raises `ConfigError` if there is no model.
        """
        missing = "There is no model to revise with: pass an agent=... that has one"
        model = model_of(_model_of(agent), load_settings(), missing=missing)
        criteria = criteria_of(self.quality_criteria, self.task_type)
        system_prompt = "" if agent is None else agent.system_prompt
        settings = getattr(agent, "model_settings", None)
        reviser = model_reviser(self, model, system_prompt, None, answer_schema(criteria), settings)
        visible = evaluation.for_writer()
        attempt = Attempt(
            number=2,
            mode="revise",
            previous=output,
            evaluation=visible,
            strategy="full_rewrite" if self.revision_strategy in FROM_SCRATCH else self.revision_strategy,
            max_tokens=self.max_revision_tokens,
        )
        return (await self.retry.run(reviser, output, visible, self._outside_a_run(attempt))).output

    def _outside_a_run(self, attempt: Attempt) -> RunContext:
        task = PlainTask("(a text to judge and mend)", task_type=self.task_type)
        rubric = rubric_of(criteria_of(self.quality_criteria, self.task_type))
        return RunContext(task, "", attempt=attempt, rubric=rubric)

    def get_history(self) -> ReflectionHistory:
        """The history of the last run of this pattern that ended in this context.

        The task that created the pattern (or, outside of tasks, the thread) also sees runs in other tasks.
        Before Python 3.12, `asyncio.wait_for` starts a task of its own, which `asyncio.timeout` does not; the
        history of a result, `result.history`, is at hand in either case. Raises `LookupError` if no run has
        ended, or the last one ended without a result.
        """
        run = self.last_run.get()
        if run is None:
            raise LookupError(
                "No run of this pattern has ended in this context. For a run in another task, take the "
                "history of its result: result.history. Before Python 3.12, asyncio.wait_for starts such a "
                "task; asyncio.timeout does not."
            )
        if run.result is None:
            raise LookupError(f"The last run of this pattern ended without a result: {run.error}")
        return run.result.history

    def get_best_version(self) -> ReflectionVersion:
        """The best version of the run of `get_history`."""
        return self.get_history().best_version


def _pattern_of(kind: type[ReflectionPattern], options: Mapping[str, Any]) -> ReflectionPattern:
    return kind(**options)


def run_functions(
    task: str | PlainTask,
    generate: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    revise: Callable[..., Any] | None = None,
    *,
    pattern: ReflectionPattern,
    draft: Output | Draft | None = None,
    until: Stopper | None = None,
    step: Step | None = None,
) -> Awaitable[ReflectionResult]:
    """Run the loop over plain functions, as documented in `reflect`."""
    task = task_of(task, pattern)
    verbs = function_verbs(pattern, task.task_type, generate, evaluate, revise, has_draft=draft is not None)
    if until is not None:
        pattern = variant_of(pattern, until=until)
    start = starting_draft(draft)
    if step is None:  # nothing is stored
        return Run(pattern, task, verbs, name="reflect").to_end(start)
    from redraft.loop.record import Origin  # noqa: PLC0415 (only stored runs need it)

    return run_and_store(pattern, task, verbs, step, start, Origin("function", "reflect"))


def _model_of(agent: AgentLike | None) -> ChatModel | None:
    if agent is None:
        return None
    if not isinstance(agent, AgentLike):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        raise ConfigError(f"agent must be an Agent, got {repr_of(agent)}.")
    return agent.model


def pattern_or_default(
    pattern: ReflectionPattern | None, default: ReflectionPattern | None = None
) -> ReflectionPattern:
    """The pattern, or the default for None; raises `ConfigError` for any other value."""
    if pattern is None:
        return default or DEFAULT_PATTERN
    if not isinstance(pattern, ReflectionPattern):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        other = isinstance(pattern, AgentPattern) and not isinstance(pattern, type)
        hint = " To run your own pattern, call its execute(agent, query)." if other else ""
        raise ConfigError(f"pattern must be a ReflectionPattern, got {repr_of(pattern)}.{hint}")
    return pattern


def pattern_with(
    pattern: ReflectionPattern | None,
    *,
    criteria: Sequence[Criterion] | None,
    max_iterations: int | None,
    quality_threshold: float | None,
    budget_usd: float | None,
    budget_tokens: int | None,
    budget_seconds: float | None,
    judge: ModelChoice | None,
) -> ReflectionPattern:
    """The pattern, with the arguments of the front door that are not None in place of its options.

    Runs of a changed pattern count as runs of the original. Raises `ConfigError`.
    """
    check_model("judge", judge)
    options = {
        "quality_criteria": criteria,
        "max_iterations": max_iterations,
        "quality_threshold": quality_threshold,
        "budget_usd": budget_usd,
        "budget_tokens": budget_tokens,
        "budget_seconds": budget_seconds,
        "reflection_model": judge,
    }
    overrides: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    base = pattern_or_default(pattern)
    if not overrides:
        return base
    return ReflectionPattern(**overrides) if pattern is None else variant_of(base, **overrides)


def variant_of(pattern: ReflectionPattern, **changes: Any) -> ReflectionPattern:
    """A changed copy of a pattern; its runs count as runs of the original."""
    variant = replace(pattern, **changes)
    object.__setattr__(variant, "last_run", pattern.last_run)
    object.__setattr__(variant, "first_drafts", pattern.first_drafts)
    return variant


def task_of(task: Query, pattern: ReflectionPattern) -> PlainTask:
    """Convert a query to a `PlainTask`; raises `ConfigError` for an empty one."""
    if isinstance(task, str):
        task = PlainTask(task, task_type=pattern.task_type)
    elif isinstance(task, list | tuple):
        task = replace(task_of_content(task), task_type=pattern.task_type)
    if not isinstance(task, PlainTask):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        raise ConfigError(
            f"The task must be a string, a Task, or a list of strings and images, got {repr_of(task)}."
        )
    if not task.description.strip():
        raise ConfigError("The task is empty; describe what to do.")
    if options := task.ensemble_options:
        raise ConfigError(
            f"The task {shortened(task.description, 60)!r} has {listed(options)}, which only an Ensemble "
            "carries out: run Ensemble(model, [task]), or pass them to the agent or function."
        )
    return task.plain()


def check_images(task: PlainTask, model: ChatModel | None, judge: ChatModel | None) -> None:
    """Raise `ConfigError` for images that the model or the judge does not accept."""
    if not task.all_images:
        return
    for role, candidate in (("answers", model), ("judges", judge)):
        if candidate is not None and not getattr(candidate, "takes_images", True):
            name = getattr(candidate, "name", None) or type(candidate).__name__
            raise ConfigError(
                f"The task has images, but the model that {role}, {name!r}, does not accept images."
            )


def starting_draft(draft: Output | Draft | None) -> Draft | None:
    """Convert an existing output to the draft that a run starts from; the run reads it into the output type.

    Unless the draft reports its usage, it costs the run nothing.
    """
    if draft is None:
        return None
    try:
        start = draft_of(draft, "draft")
    except OutputError as error:
        raise ConfigError(f"The draft to start from can't be used: {error}") from error
    usage = start.usage if isinstance(draft, Draft) else NOTHING_USED
    return replace(start, strategy="given", usage=usage)


IN_A_DRAFT = ("step_interval", "error", "tool_result")
"""The triggers that fire while an agent works on a draft."""
FLAGS = (
    "structured_reflection",
    "include_prior_versions",
    "include_reflection_history",
    "include_prior_scores",
    "diversify",
    "detect_oscillation",
    "preserve_all_versions",
)
LISTS = ("quality_criteria", "reflection_triggers", "reflect_on_tools", "advisors")
RECORDED = (
    "max_iterations",
    "quality_threshold",
    "judge_method",
    "judge_samples",
    "judge_margin",
    "accept",
    "calibrated_floor",
    "reflection_prompt",
    "structured_reflection",
    "revision_strategy",
    "best_version_selection",
    "plateau_iterations",
    "improvement_threshold",
    "max_revision_tokens",
    "budget_tokens",
    "budget_usd",
    "budget_seconds",
)
"""The options recorded with a run."""


OVERRIDES = {
    "execute": "Derive from AgentPattern instead, and call its execute(agent, query).",
    "reflect": "Pass your judge as evaluate=... to reflect() or @reflected, or as a criterion with "
    "evaluator='function'.",
    "revise": "Pass your reviser as revise=... to reflect().",
}
"""What to do instead of overriding a method of `ReflectionPattern`."""


CALLBACKS = ("on_generation", "on_reflection", "on_revision")


def _check_callbacks(callbacks: Any) -> None:
    """Require an object with at least one callback; raises `ConfigError`."""
    if callbacks is None:
        return
    if isinstance(callbacks, type) or not any(hasattr(callbacks, name) for name in CALLBACKS):
        raise ConfigError(
            f"callbacks must be an object with {' or '.join(CALLBACKS)}, got {repr_of(callbacks)}."
        )


def check_advisor(name: str, value: Any) -> None:
    """Require an object with `recall` and `observe`; raises `ConfigError`."""
    if not isinstance(value, type) and hasattr(value, "recall") and hasattr(value, "observe"):
        return
    hint = f" Did you mean Lessons(agent={str(value)!r})?" if isinstance(value, str | PurePath) else ""
    raise ConfigError(f"{name}: an advisor has recall(task) and observe(result), got {repr_of(value)}.{hint}")


DEFAULT_PATTERN = ReflectionPattern()
DEFAULT_PATTERN.last_run.forget_maker()
