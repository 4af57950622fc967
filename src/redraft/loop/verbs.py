"""The verbs of a run, made from a pattern: what drafts, judges and revises."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from redraft import _calls
from redraft.errors import ConfigError, SandboxError
from redraft.evaluate.compare import preference
from redraft.evaluate.criteria import criteria_of, needs_model
from redraft.evaluate.evidence import check_tools, sources_of
from redraft.evaluate.panel import Panel
from redraft.evaluate.panel import panel as panel_of
from redraft.evaluate.requirements import answer_schema
from redraft.loop.budget import check_prices
from redraft.loop.diagnose import NO_JUDGE, Signals
from redraft.loop.revise import ModelGenerator, ModelReviser
from redraft.loop.run import Judges, Verbs
from redraft.loop.triggers import NO_TRIGGERS
from redraft.loop.ways import MODEL_WAYS, OWN_WAYS
from redraft.models.names import model_of
from redraft.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from redraft.evaluate.judge import JudgeId
    from redraft.execution import CommandRunner
    from redraft.loop.output_type import OutputType
    from redraft.loop.pattern import ReflectionPattern
    from redraft.protocols import ChatModel, Generator, Preference
    from redraft.types import Criterion, QualityCriterion, ReflectionEvaluation


class JudgeHint(NamedTuple):
    """What to pass if nothing can judge: in the absence of criteria, or of a model for them."""

    criteria: str
    model: str


BY_FUNCTION = JudgeHint("evaluate=..., criteria=... that are checks, or judge=...", "judge=...")
BY_AGENT = JudgeHint(
    "agent=..., or reflection_model=... in the pattern", "agent=..., or reflection_model=... in the pattern"
)
BY_PATTERN = JudgeHint("judge=...", "judge=...")


def function_verbs(
    pattern: ReflectionPattern,
    task_type: str,
    generate: Callable[..., Any] | None,
    evaluate: Callable[..., Any] | None,
    revise: Callable[..., Any] | None,
    *,
    has_draft: bool,
) -> Verbs:
    """The verbs of a run over plain functions; the model of the settings replaces a missing function.

    Without `evaluate`, the pattern's criteria judge. Without `revise`, the generator is called again with the
    critique. Without `generate`, a model drafts, unless there are a draft and a reviser.
    """
    if evaluate is not None and pattern.quality_criteria is not None:
        raise ConfigError(
            "Pass either evaluate or criteria, not both, because each decides what is good enough."
        )
    model: ChatModel | None = None
    generator: Generator | None = None
    ways: tuple[str, ...] = ()
    if generate is not None:
        generator = _calls.generator(generate)
        reviser = _calls.regenerating(generator) if revise is None else _calls.reviser(revise)
    elif revise is not None and has_draft:
        reviser = _calls.reviser(revise)
    else:
        missing = "generate=..." if revise is None else "generate=... or draft=..."
        model = model_of(None, load_settings(), missing=f"There is nothing to draft with: pass {missing}")
        schema = None if evaluate else answer_schema(criteria_of(pattern.quality_criteria, task_type))
        generator = ModelGenerator(model, schema=schema)
        reviser = model_reviser(pattern, model, schema=schema) if revise is None else _calls.reviser(revise)
        ways = _ways(model) if revise is None else OWN_WAYS
    if evaluate is not None:
        evaluator = _calls.evaluator(evaluate, pattern.quality_threshold)
        accept = _preference(pattern, model, (), BY_FUNCTION)
        judges = Judges(evaluator, output_alone=not _calls.sees_run(evaluate), accept=accept)
    else:
        judges = judges_of(pattern, model, task_type, BY_FUNCTION)
    if pattern.budget_usd is not None:
        check_prices(model, judge_of(pattern, model) if judges.signals.judged else None)
    reflector = reflector_of(pattern, model, "a plain function")
    return Verbs(generator, judges, reviser, reflector=reflector, ways=ways)


def model_verbs(
    pattern: ReflectionPattern,
    model: ChatModel,
    judges: Judges,
    system_prompt: str = "",
    output_type: OutputType[Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Verbs:
    """The verbs of a run that a model drafts and revises, without tools."""
    check_tools(judges.criteria, ())
    if output_type is None:
        schema = answer_schema(judges.criteria)
    else:
        system_prompt, schema = output_type.prompt(system_prompt), output_type.reply_schema
    generate = ModelGenerator(model, system_prompt, output_type, schema, settings or {})
    revise = model_reviser(pattern, model, system_prompt, output_type, schema, settings)
    reflector = reflector_of(pattern, model, "a text agent")
    return Verbs(generate, judges, revise, output_type, reflector, system_prompt, ways=_ways(model))


def _ways(model: ChatModel) -> tuple[str, ...]:
    """The ways in which a model can revise; a recording has only the replies of its run."""
    return () if getattr(model, "is_recorded", False) else MODEL_WAYS


def judging_verbs(
    pattern: ReflectionPattern,
    task_type: str,
    output_type: OutputType[Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
) -> Verbs:
    """The verbs of a run that judges its draft and revises nothing; the pattern must allow no revision.

    Without `evaluate`, the pattern's criteria judge.
    """

    def unchanged(output: Any, _evaluation: ReflectionEvaluation) -> Any:
        return output

    verbs = function_verbs(pattern, task_type, None, evaluate, unchanged, has_draft=True)
    return replace(verbs, output_type=output_type)


def model_reviser(
    pattern: ReflectionPattern,
    model: ChatModel,
    system_prompt: str = "",
    output_type: OutputType[Any] | None = None,
    schema: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ModelReviser:
    """The reviser of a run whose model revises."""
    return ModelReviser(
        model,
        system_prompt,
        pattern.include_reflection_history,
        pattern.include_prior_versions,
        output_type,
        schema,
        settings or {},
    )


def reflector_of(pattern: ReflectionPattern, model: ChatModel | None, runner: str = "") -> ChatModel | None:
    """The model that reflects in the middle of a run, if a trigger needs it.

    `runner` says what makes the versions ("a plain function") if it lacks the steps that some triggers need.
    Raises `ConfigError` for such triggers, and if there is no model.
    """
    if pattern.triggers is NO_TRIGGERS:
        return None
    if runner:
        pattern.triggers.check_runner(runner)
    missing = "There is no model to reflect with, which reflection_triggers need: pass judge=..."
    return judge_of(pattern, model, missing)


def judges_of(
    pattern: ReflectionPattern, model: ChatModel | None, task_type: str = "", hint: JudgeHint = BY_PATTERN
) -> Judges:
    """The judges of a pattern's criteria.

    The `model` that drafts also judges, unless the pattern or the settings name another. Raises `ConfigError`
    with the `hint` if criteria need a model and there is none.
    """
    panel = own_panel(pattern, model, task_type or pattern.task_type, hint)
    accept = _preference(pattern, model, panel.criteria, hint)
    signals = NO_JUDGE
    if panel.judged:
        judge = pattern.reflection_model or load_settings().reflection_model
        name = judge if isinstance(judge, str) else repr(judge or model)
        self_judged = model is not None and judge is None and not panel.checks
        signals = Signals(name, frozenset(panel.judged), self_judged, panel.judge_id)
    return Judges(panel, signals, panel.criteria, panel.output_alone, panel.rubric, accept)


def _preference(
    pattern: ReflectionPattern,
    model: ChatModel | None,
    criteria: Sequence[QualityCriterion],
    hint: JudgeHint,
) -> Preference | None:
    """The function that compares a version with the best version, if the pattern asks for it.

    Raises `ConfigError` without a model.
    """
    if pattern.accept != "pairwise":
        return None
    missing = f"There is no model to compare versions (accept='pairwise'): pass {hint.model}"
    return preference(criteria, judge_of(pattern, model, missing))


def own_panel(pattern: ReflectionPattern, model: ChatModel | None, task_type: str, hint: JudgeHint) -> Panel:
    """The panel of a pattern's own criteria; a panel that needs no model is built only once."""
    if (built := pattern.panels.get(task_type)) is not None:
        return built
    panel = panel_for(pattern, pattern.quality_criteria, model, task_type, hint)
    if not panel.judged:  # the settings may name another judge each time
        pattern.panels[task_type] = panel
    return panel


def panel_for(
    pattern: ReflectionPattern,
    criteria: Sequence[Criterion] | None,
    model: ChatModel | None,
    task_type: str,
    hint: JudgeHint,
) -> Panel:
    """The panel that judges by criteria; raises `ConfigError` with the `hint` if it lacks a model."""
    parsed = criteria_of(criteria, task_type)
    judged = [criterion.name for criterion in parsed if needs_model(criterion)]
    if criteria is None:
        missing = f"There is nothing to judge with: pass {hint.criteria}"
    else:
        missing = f"There is no model to judge {', '.join(map(repr, judged))}: pass {hint.model}"
    return panel_of(
        parsed,
        threshold=pattern.quality_threshold,
        model=judge_of(pattern, model, missing) if judged else None,
        run_command=_jail(parsed),
        judge_options=pattern.judge_options,
        task_type=task_type,
        may_decide=_decides_from(pattern.calibrated_floor, parsed),
    )


def _decides_from(
    floor: float | None, criteria: Sequence[QualityCriterion]
) -> Callable[[JudgeId], Awaitable[bool]] | None:
    """A function that says whether a judge agrees with people by at least `floor`, and so may decide."""
    if floor is None:
        return None

    async def may_decide(judge: JudgeId) -> bool:
        from redraft.loop.labels import standing_of  # noqa: PLC0415 (few patterns have a floor)

        return (await standing_of(judge, criteria, is_required=True)).reaches(floor)

    return may_decide


def judge_of(pattern: ReflectionPattern, model: ChatModel | None, missing: str = "") -> ChatModel:
    """The model that judges: of the pattern, else of the settings, else the model that drafts."""
    settings = load_settings()
    return model_of(pattern.reflection_model or settings.reflection_model or model, settings, missing=missing)


JAILED = ("command", "generated_tests")


def _jail(criteria: Sequence[QualityCriterion]) -> CommandRunner | None:
    """A sandbox for the commands of criteria, if any; raises `ConfigError` if none works on this machine.

    Commands that gather evidence need none: without a sandbox, their criterion is unknown.
    """
    commands = [criterion for criterion in criteria if criterion.evaluator in JAILED]
    has_evidence = any(
        source.kind == "command"
        for criterion in criteria
        if criterion.evaluator == "llm"
        for source in sources_of(criterion)
    )
    if not (commands or has_evidence):
        return None
    from redraft.evaluate.command import runs_program  # noqa: PLC0415 (needed by commands alone)
    from redraft.sandbox.jail import ProcessJail, check_jail  # noqa: PLC0415 (needed by commands alone)

    for criterion in commands:
        try:
            check_jail(programs=runs_program(criterion))
        except SandboxError as error:
            raise ConfigError(f"Criterion {criterion.name!r}: {error}") from error
    return ProcessJail()
