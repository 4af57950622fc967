"""ReflectionPattern: every choice about a run, made once and shared by as many runs as like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from redraft.core.callbacks import ReflectionCallbacks
from redraft.core.check import (
    check_choice,
    check_count,
    check_flag,
    check_function,
    check_model,
    check_share,
)
from redraft.core.criterion import QualityCriterion
from redraft.core.errors import ConfigError
from redraft.core.events import Listener
from redraft.core.protocols import Advisor, AgentPattern, ChatModel, Stopper
from redraft.core.steps import Retry
from redraft.evaluate.criteria import check_comparable, check_task_type, criteria_of
from redraft.evaluate.judging import Judging
from redraft.loop.budget import NO_BUDGET, Budget
from redraft.loop.guests import check_guests
from redraft.loop.revise import STRATEGIES, RevisionStrategy
from redraft.loop.run import PatternRuns
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
from redraft.loop.triggers import MOST_REFLECTIONS, Triggers, triggers_of

if TYPE_CHECKING:
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.result import ReflectionHistory, ReflectionResult
    from redraft.core.task import Task
    from redraft.core.version import Output, ReflectionVersion
    from redraft.loop.agent import Agent


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
        from redraft.loop.reflect import reflect  # noqa: PLC0415 (likewise)

        if isinstance(agent, Agent):
            return await agent.run(query, pattern=self)
        return await reflect(query, generate=agent, pattern=self)

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
        from redraft.loop.wire import judge_output  # noqa: PLC0415 (wiring knows patterns)

        return await judge_output(self, output, criteria, agent)

    async def revise(
        self, output: Output, evaluation: ReflectionEvaluation, *, agent: Agent | None = None
    ) -> Output:
        """Return a better output by an evaluation; one revision, which is not judged.

        The model of `agent` revises, under its system prompt and without its tools; without an agent, that
        of the settings. Raises `ConfigError` where there is no model.
        """
        from redraft.loop.wire import revise_output  # noqa: PLC0415 (likewise)

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
