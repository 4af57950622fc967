"""ReflectionPattern: every choice about a run, and what assembles a run from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from redraft import _calls as adapt
from redraft._steps import Retry
from redraft._validation import (
    check_choice,
    check_count,
    check_flag,
    check_function,
    check_list,
    check_model,
    check_share,
)
from redraft.errors import ConfigError, OutputError, SandboxError
from redraft.evaluate.criteria import check_comparable, check_task_type, criteria_of, needs_model
from redraft.evaluate.judge import JudgeOptions
from redraft.evaluate.panel import Panel
from redraft.evaluate.panel import panel as panel_of
from redraft.events import Listener
from redraft.loop.budget import NO_BUDGET, Budget
from redraft.loop.diagnose import Signals
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
from redraft.loop.run import Judges, Run, RunOptions, Verbs
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
    AgentLike,
    AgentPattern,
    Attempt,
    ChatModel,
    ReflectionCallbacks,
    RunContext,
    Stopper,
)
from redraft.settings import load_settings
from redraft.types import NOTHING_USED, QualityCriterion, Task

if TYPE_CHECKING:
    from redraft.execution import CommandRunner
    from redraft.protocols import Generator, Step
    from redraft.types import (
        Draft,
        Output,
        ReflectionEvaluation,
        ReflectionHistory,
        ReflectionResult,
        ReflectionVersion,
    )

RECORDED = (
    "max_iterations",
    "quality_threshold",
    "revision_strategy",
    "best_version_selection",
    "plateau_iterations",
    "improvement_threshold",
    "max_revision_tokens",
    "budget_tokens",
    "budget_usd",
    "budget_seconds",
)
"""The options that a reader of a kept run needs."""


# Compared by identity: two patterns with equal fields may hold functions that are not comparable.
@dataclass(frozen=True, slots=True, eq=False)
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
    judge_options: JudgeOptions = field(init=False, repr=False)
    panels: dict[str, Panel] = field(init=False, repr=False, default_factory=dict[str, Panel])
    triggers: Triggers = field(init=False, repr=False)
    run_options: RunOptions = field(init=False, repr=False)

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
        check_callbacks(self.callbacks)
        check_list("advisors", self.advisors)
        for advisor in self.advisors:
            check_advisor("advisors", advisor)
        if not isinstance(self.retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"retry must be a Retry, such as Retry(attempts=5), got {self.retry!r}.")
        object.__setattr__(self, "run_options", self._run_options())
        triggers = triggers_of(
            self.reflection_triggers,
            self.reflection_interval,
            self.reflect_on_error,
            self.reflect_on_tools,
            self.quality_drop_threshold,
            self.max_reflections,
        )
        object.__setattr__(self, "triggers", triggers)
        # What is wrong with the criteria and the judge's prompt shows here, not after the first paid draft.
        check_model("reflection_model", self.reflection_model)
        if not isinstance(self.task_type, str):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"task_type must be a text, got {self.task_type!r}.")
        if self.quality_criteria is None:
            check_task_type(self.task_type)
        check_comparable(criteria_of(self.quality_criteria, self.task_type))
        object.__setattr__(self, "judge_options", self._judge_options())

    def _run_options(self) -> RunOptions:
        budget = Budget(self.budget_tokens, self.budget_usd, self.budget_seconds, self.max_revision_tokens)
        return RunOptions(
            until=self.until or self._rules(()),
            limit=max_iterations(self.max_iterations),
            budget=NO_BUDGET if budget == NO_BUDGET else budget,
            retry=self.retry,
            revision_strategy=self.revision_strategy,
            diversify=self.diversify,
            selection=self.best_version_selection,
            preserve_all_versions=self.preserve_all_versions,
            on_failure=self.on_failure,
            callbacks=self.callbacks,
            advisors=tuple(self.advisors),
            on_event=self.on_event,
            choices={name: getattr(self, name) for name in RECORDED},
        )

    def options_for(self, judges: Judges) -> RunOptions:
        """Return what a run goes by whose outputs these judge: their thresholds explain why it stops."""
        if self.until is not None or not judges.criteria:
            return self.run_options
        return replace(self.run_options, until=self._rules(judges.criteria))

    def _rules(self, criteria: Sequence[QualityCriterion]) -> Stopper:
        thresholds = {criterion.name: criterion.threshold for criterion in criteria}
        met = partial(quality_met, threshold=self.quality_threshold, criteria=thresholds)
        rules: list[Stopper] = [met, unjudged, semantic_stability, repeated_issues]
        if self.detect_oscillation:
            rules.append(oscillation)
        rules += [plateau(self.plateau_iterations), diminishing(self.improvement_threshold)]
        return first(*rules)

    def _judge_options(self) -> JudgeOptions:
        return JudgeOptions(
            kind=self.judge,
            samples=self.judge_samples,
            prompt=self.reflection_prompt,
            structured=self.structured_reflection,
            include_history=self.include_reflection_history,
        )

    async def execute(self, agent: AgentLike | Callable[..., Any], query: str | Task) -> ReflectionResult:
        """Run this pattern over an `Agent`, or over any callable that answers a prompt."""
        if isinstance(agent, AgentLike):
            return await agent.run(query, pattern=self)
        return await run_functions(query, agent, pattern=self)

    async def reflect(
        self,
        output: Output,
        criteria: Sequence[QualityCriterion | str] | None = None,
        *,
        agent: AgentLike | None = None,
    ) -> ReflectionEvaluation:
        """Judge an output by `criteria`, or by the pattern's own; changes nothing.

        The judge is `reflection_model`, else the model of `agent`, else that of the settings; no model is
        needed where every criterion is a check.
        """
        if criteria is None and agent is None:
            judge = _panel_without_agent(self, self.task_type, BY_AGENT)
        else:
            given = self.quality_criteria if criteria is None else criteria
            judge = _panel(self, given, _model_of(agent), self.task_type, BY_AGENT)
        return await judge(output, self._outside_a_run(Attempt()))

    async def revise(
        self, output: Output, evaluation: ReflectionEvaluation, *, agent: AgentLike | None = None
    ) -> Output:
        """Return a better output by an evaluation; one revision, which is not judged.

        The model of `agent` revises, under its system prompt and without its tools; without an agent, that
        of the settings. Raises `ConfigError` where there is no model.
        """
        missing = "There is no model to revise with: pass an agent=... that has one"
        model = model_of(_model_of(agent), load_settings(), missing=missing)
        reviser = ModelReviser(model, "" if agent is None else agent.system_prompt, _memory(self))
        attempt = Attempt(
            number=2,
            mode="revise",
            previous=output,
            evaluation=evaluation,
            strategy=self.revision_strategy,
            max_tokens=self.max_revision_tokens,
        )
        return (await reviser(output, evaluation, self._outside_a_run(attempt))).output

    def _outside_a_run(self, attempt: Attempt) -> RunContext:
        task = Task("(a text to judge and mend)", task_type=self.task_type)
        return RunContext(task, "", attempt=attempt)

    def get_history(self) -> ReflectionHistory:
        """Return the history of the run of this pattern that ended last in this context.

        In the task, or outside of any in the thread, that made the pattern, its runs in other tasks count,
        too. Raises `LookupError` where no run has ended, or the last one ended without a result.
        """
        if (run := self.run_options.last_run.get()) is None:
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


def pattern_or_default(
    given: ReflectionPattern | None, default: ReflectionPattern | None = None
) -> ReflectionPattern:
    """Return the pattern that was given, else the default; raises `ConfigError` for anything else."""
    if given is None:
        return default or DEFAULT_PATTERN
    if not isinstance(given, ReflectionPattern):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
        other = isinstance(given, AgentPattern) and not isinstance(given, type)
        hint = " Run a pattern of your own by its execute(agent, query)." if other else ""
        raise ConfigError(f"pattern must be a ReflectionPattern, got {given!r}.{hint}")
    return given


def variant_of(pattern: ReflectionPattern, **changes: Any) -> ReflectionPattern:
    """Return a pattern with changes, whose runs count as runs of the pattern itself."""
    variant = replace(pattern, **changes)
    options = replace(variant.run_options, last_run=pattern.run_options.last_run)
    object.__setattr__(variant, "run_options", options)
    return variant


def task_of(task: str | Task, pattern: ReflectionPattern) -> Task:
    """Make a `Task` of what was asked; raises `ConfigError` for an empty one."""
    if isinstance(task, str):
        task = Task(task, task_type=pattern.task_type)
    if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
        raise ConfigError(f"The task must be a text or a Task, got {task!r}.")
    if not task.description.strip():
        raise ConfigError("The task is empty; say what is asked.")
    return task.plain()


def starting_draft(draft: Output | Draft | None) -> Draft | None:
    """Return the draft that a run starts from; what was there already costs this run nothing."""
    if draft is None:
        return None
    try:
        given = adapt.draft_of(draft, "draft")
    except OutputError as error:
        raise ConfigError(f"The draft to start from can't be used: {error}") from error
    return replace(given, strategy="given", usage=given.usage if given is draft else NOTHING_USED)


async def run_functions(
    task: str | Task,
    generate: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    revise: Callable[..., Any] | None = None,
    *,
    pattern: ReflectionPattern | None = None,
    draft: Output | Draft | None = None,
    until: Stopper | None = None,
    step: Step | None = None,
) -> ReflectionResult:
    """Run the loop over plain functions: `reflect` says how."""
    pattern = pattern_or_default(pattern)
    check_function("until", until)
    asked = task_of(task, pattern)
    verbs = function_verbs(pattern, asked.task_type, generate, evaluate, revise, has_draft=draft is not None)
    options = pattern.options_for(verbs.judges)
    if until is not None:
        options = replace(options, until=until)
    start = starting_draft(draft)
    if step is None:
        return await Run(asked, verbs, options).to_end(start)
    from redraft.loop.keeper import run_kept  # noqa: PLC0415 (a run that is not kept does without)
    from redraft.loop.record import Origin  # noqa: PLC0415 (likewise)

    return await run_kept(asked, verbs, options, step, start, Origin("function", "reflect"))


BY_FUNCTION = (
    "evaluate=..., or a pattern=... whose quality_criteria are checks, or that has a reflection_model",
    "a pattern=... that has a reflection_model",
)
"""What a caller could pass where nothing judges: without criteria, and with criteria that need a model."""
_OR_AGENT = "agent=..., or reflection_model=... in the pattern"
BY_AGENT = (_OR_AGENT, _OR_AGENT)
BY_PATTERN = ("reflection_model=... in the pattern", "reflection_model=... in the pattern")


def function_verbs(
    pattern: ReflectionPattern,
    task_type: str,
    generate: Callable[..., Any] | None,
    evaluate: Callable[..., Any] | None,
    revise: Callable[..., Any] | None,
    *,
    has_draft: bool,
    judged_by: tuple[str, str] = BY_FUNCTION,
) -> Verbs:
    """Let plain functions draft, judge and revise; what is missing comes from the model of the settings.

    Without `evaluate` the pattern's criteria judge. Without `revise` the generator is called again with the
    critique. Without `generate` a model drafts, unless there are a draft and a reviser. `judged_by` is what
    the caller could pass where nothing judges: without criteria, and with criteria that need a model.
    """
    if evaluate is not None and pattern.quality_criteria is not None:
        raise ConfigError("Give evaluate or quality_criteria, not both: each decides what is good enough.")
    model: ChatModel | None = None
    generator: Generator | None = None
    if generate is not None:
        generator = adapt.generator(generate)
        reviser = adapt.regenerating(generator) if revise is None else adapt.reviser(revise)
    elif revise is not None and has_draft:
        reviser = adapt.reviser(revise)
    else:
        missing = "generate=..." if revise is None else "generate=... or draft=..."
        model = model_of(None, load_settings(), missing=f"There is nothing to draft with: pass {missing}")
        generator = ModelGenerator(model)
        reviser = ModelReviser(model, memory=_memory(pattern)) if revise is None else adapt.reviser(revise)
    if evaluate is not None:
        judges = Judges(adapt.evaluator(evaluate, pattern.quality_threshold))
    else:
        panel = _panel_without_agent(pattern, task_type or pattern.task_type, judged_by)
        judges = _judges(pattern, panel, model)
    verbs = Verbs(generator, judges, reviser)
    if pattern.triggers is NO_TRIGGERS:
        return verbs
    return with_reflections(verbs, live_run(pattern, model, "a plain function"))


def model_verbs(
    pattern: ReflectionPattern, model: ChatModel, system_prompt: str, judges: Judges, live: LiveRun
) -> Verbs:
    """Let a model draft and revise."""
    generate = ModelGenerator(model, system_prompt)
    revise = ModelReviser(model, system_prompt, _memory(pattern))
    return with_reflections(Verbs(generate, judges, revise), live)


def _memory(pattern: ReflectionPattern) -> Memory:
    return Memory(pattern.include_reflection_history, pattern.include_prior_versions)


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


def with_reflections(verbs: Verbs, live: LiveRun) -> Verbs:
    """Let the verbs look back before they make the next version, where a trigger asks for it."""
    if live.triggers is NO_TRIGGERS:
        return verbs
    generate = None if verbs.generate is None else ReflectingGenerator(verbs.generate, live)
    return replace(verbs, generate=generate, revise=ReflectingReviser(verbs.revise, live), live=live)


def judges_of(pattern: ReflectionPattern, model: ChatModel | None, task_type: str = "") -> Judges:
    """Let the pattern's criteria judge what an agent makes, with its model where no other is named."""
    panel = _panel(pattern, pattern.quality_criteria, model, task_type or pattern.task_type, BY_PATTERN)
    return _judges(pattern, panel, model)


def _judges(pattern: ReflectionPattern, panel: Panel, model: ChatModel | None) -> Judges:
    """Say who judges, for the diagnostics; `model` is the one that drafts."""
    if not panel.judged:
        return Judges(panel, criteria=panel.criteria)
    other = pattern.reflection_model or load_settings().reflection_model
    name = other if isinstance(other, str) else repr(other or model)
    self_judged = model is not None and other is None and not panel.checks
    return Judges(panel, Signals(name, frozenset(panel.judged), self_judged), panel.criteria)


def _panel_without_agent(pattern: ReflectionPattern, task_type: str, judged_by: tuple[str, str]) -> Panel:
    """Return the evaluator of a pattern's criteria; what needs no model is built once for the pattern."""
    if (known := pattern.panels.get(task_type)) is not None:
        return known
    panel = _panel(pattern, pattern.quality_criteria, None, task_type, judged_by)
    if not panel.judged:  # which model judges is for the settings to say, each time
        pattern.panels[task_type] = panel
    return panel


def _panel(
    pattern: ReflectionPattern,
    given: Sequence[QualityCriterion | str] | None,
    model: ChatModel | None,
    task_type: str,
    judged_by: tuple[str, str],
) -> Panel:
    criteria = criteria_of(given, task_type)
    judged = [criterion.name for criterion in criteria if needs_model(criterion)]
    if given is None:
        missing = f"There is nothing to judge with: pass {judged_by[0]}"
    else:
        missing = f"There is no model to judge {', '.join(map(repr, judged))}: pass {judged_by[1]}"
    return panel_of(
        criteria,
        threshold=pattern.quality_threshold,
        model=_judge_model(pattern, model, missing) if judged else None,
        run_command=_jail(criteria),
        judge_options=pattern.judge_options,
        task_type=task_type,
    )


def _judge_model(pattern: ReflectionPattern, model: ChatModel | None, missing: str) -> ChatModel:
    settings = load_settings()
    return model_of(pattern.reflection_model or settings.reflection_model or model, settings, missing=missing)


def _jail(criteria: Sequence[QualityCriterion]) -> CommandRunner | None:
    """Return what runs the commands of criteria, if they have any; raises `ConfigError` where nothing can."""
    commands = [criterion for criterion in criteria if criterion.evaluator == "command"]
    if not commands:
        return None
    from redraft.sandbox.jail import ProcessJail, check_jail  # noqa: PLC0415 (only commands need it)

    for criterion in commands:
        try:
            check_jail(programs="command" in criterion.evaluator_config)
        except SandboxError as error:
            raise ConfigError(f"Criterion {criterion.name!r}: {error}") from error
    return ProcessJail()


def _model_of(agent: AgentLike | None) -> ChatModel | None:
    if agent is None:
        return None
    if not isinstance(agent, AgentLike):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
        raise ConfigError(f"agent must be an Agent, got {agent!r}.")
    return agent.model


CALLBACKS = ("on_generation", "on_reflection", "on_revision")


def check_callbacks(callbacks: Any) -> None:
    """Require an object with at least one callback, of whatever class; raises `ConfigError`."""
    if callbacks is None:
        return
    if isinstance(callbacks, type) or not any(hasattr(callbacks, name) for name in CALLBACKS):
        raise ConfigError(f"callbacks must be an object with {' or '.join(CALLBACKS)}, got {callbacks!r}.")


def check_advisor(name: str, value: Any) -> None:
    """Require an object with `recall` and `observe`; raises `ConfigError`."""
    if not isinstance(value, type) and hasattr(value, "recall") and hasattr(value, "observe"):
        return
    meant = f" Did you mean Lessons({value!r})?" if isinstance(value, str | PurePath) else ""
    raise ConfigError(f"{name}: an advisor has recall(task) and observe(result), got {value!r}.{meant}")


DEFAULT_PATTERN = ReflectionPattern()
DEFAULT_PATTERN.run_options.last_run.share()
