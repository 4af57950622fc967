"""One task of an ensemble: what runs it, its run up to an accepted output, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from redraft import _calls as adapt
from redraft._calls import awaited, evaluation_of, render_feedback, render_issue
from redraft._texts import as_text, copy_of
from redraft.errors import (
    ConfigError,
    OutputError,
    RedraftError,
    RejectedOutputError,
)
from redraft.events import Event, Listener
from redraft.loop.agent import tool_agent_with
from redraft.loop.keeper import RunKey, run_kept
from redraft.loop.pattern import (
    ReflectionPattern,
    judges_of,
    live_run,
    model_verbs,
    variant_of,
    with_reflections,
)
from redraft.loop.record import Origin
from redraft.loop.run import Judges, Verbs
from redraft.models.names import model_of
from redraft.notes.note import Arm, TaskReflection, fill, note_block, tokens_of
from redraft.notes.task import Task, TaskContext, TaskIdentity
from redraft.notes.trial import arm_of
from redraft.protocols import ChatModel, Evaluator
from redraft.redact.log import logger
from redraft.text.replies import fenced
from redraft.types import (
    NOTHING_USED,
    Advice,
    Draft,
    Issue,
    Output,
    ReflectionEvaluation,
    ReflectionResult,
    TokenUsage,
)
from redraft.types import Task as PlainTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.loop.tool_agent import ToolAgent  # noqa: TC004 (it loads Pydantic AI, and no field is looked up)
    from redraft.notes.store import Notebook
    from redraft.notes.task import ReflectionConfig
    from redraft.protocols import RunContext
    from redraft.settings import Settings
    from redraft.types import ConvergenceReason, ReflectionVersion


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The accepted output of a task, and how it came about.

    `result` is the run that made the output, the last of `attempts`; `run_id` is that of the first. `note` is
    the version of the note that the run was given (None: no note), and `arm` says why (see `NoteUse`).
    `reflection` is what was stored for the next time; if there is none, `no_reflection` says why. `usage`
    covers all attempts, and the reflection if the run waited for it.
    """

    task: Task
    output: Output
    result: ReflectionResult
    run_id: str
    attempts: int = 1
    note: int | None = None
    arm: Arm = "none"
    reflection: TaskReflection | None = None
    no_reflection: str = ""
    usage: TokenUsage = NOTHING_USED


@dataclass(frozen=True, slots=True)
class InjectedNote:
    """The note that a run is given, as it stands in the prompt, or why there is none.

    `in_force` is the version in force, `version` the one given, which in a trial may be another or none.
    `unread` says that the notes could not be read, which was logged.
    """

    arm: Arm = "none"
    version: int | None = None
    in_force: int | None = None
    text: str = ""
    tokens: int = 0
    why: str = ""
    unread: bool = False

    def advice(self) -> tuple[Advice, ...]:
        """Return the note, if any, as advice for drafts and revisions."""
        if not self.text:
            return ()
        source = "note" if self.version is None else f"note v{self.version}"
        return (Advice(self.text, source, self.why, self.tokens, is_note=True),)


NO_NOTE = InjectedNote()


@dataclass(slots=True)
class TaskRun:
    """One run of a task, up to an accepted output.

    `outputs` are those of the tasks that it needs. `choose_note` says which note it is given. `used` is what
    it has cost so far, even if it fails.
    """

    runner: TaskRunner
    inputs: Mapping[str, Any]
    outputs: Mapping[Task, Output]
    key: RunKey
    choose_note: Callable[[], Awaitable[InjectedNote]] | None = None
    emit: Listener | None = None
    used: TokenUsage = NOTHING_USED
    note: InjectedNote = NO_NOTE
    first_score: float | None = field(default=None, init=False)

    async def run(self) -> TaskResult:
        """Return the result with the first output that guardrails and review accept.

        A refused output is revised for the reasons given, in a run of its own. Raises `RejectedOutputError`
        if the last attempt is refused, too, and whatever the guardrails and the task's own run raise.
        """
        task = self.runner.task
        await check_inputs(task, self.inputs)
        writing = await self._choose_note()
        try:
            result = await self._attempt(1, None, ACCEPTED)
        finally:
            if writing is not None:
                await writing
        self.first_score = result.history.versions[0].evaluation.comparable_score
        refusal = await self._judged(result.best_output)
        attempt = 1
        while not refusal.satisfactory:
            if attempt > task.retries:
                raise self._rejected(result.best_output, attempt, why(refusal))
            attempt += 1
            best = result.history.best_version
            refused = Draft(
                copy_of(best.output),
                NOTHING_USED,
                (),
                "given",
                conversation=best.conversation,
                memo=best.memo,
            )
            result = await self._attempt(attempt, refused, refusal)
            refusal = await self._judged(result.best_output)
        return TaskResult(
            task,
            result.best_output,
            result,
            self.key.run_id,
            attempt,
            self.note.version,
            self.note.arm,
            usage=self.used,
        )

    async def _choose_note(self) -> asyncio.Future[None] | None:
        """Choose the note, or the recorded one if the run is resumed; return the task that records it.

        The run does not wait for it, so that it is written in one batch with the run's own first record.
        """
        if self.choose_note is None:
            return None
        if (done := await self.key.noted("note", InjectedNote)) is not None:
            self.note = done
            return None
        self.note = await self.choose_note()
        return asyncio.ensure_future(self.key.note("note", self.note))

    async def _attempt(
        self, attempt: int, refused: Draft | None, refusal: ReflectionEvaluation
    ) -> ReflectionResult:
        runner = self.runner
        verbs = runner.verbs(self.inputs, tuple(self.outputs.values()))
        pattern, key = runner.pattern, self.key
        if refused is not None:
            # The refused output counts as the first version, and still gets all its revisions.
            pattern = variant_of(pattern, max_iterations=pattern.max_iterations + 1)
            judges = replace(verbs.judges, evaluate=RefusedFirst(refusal, verbs.judges.evaluate))
            verbs = replace(verbs, judges=judges)
            key = key.derived(f"-{attempt}")
        options = replace(pattern.options_for(verbs.judges), advice=self.note.advice())
        if self.emit is not None:
            options = replace(options, on_event=_both(self.emit, options.on_event))
        try:
            result = await run_kept(self._filled_in(), verbs, options, key.step(), refused, runner.origin)
        except RedraftError as error:
            self.used += error.usage or NOTHING_USED
            raise
        self.used += result.token_usage
        return result

    def _filled_in(self) -> PlainTask:
        """Return the definition with its inputs filled in, and the outputs that it needs as context."""
        task = self.runner.task
        plain = task.plain()
        outputs = [
            fenced(as_text(output), f"output of the task {' '.join(other.title.split())!r}")
            for other, output in self.outputs.items()
        ]
        return replace(
            plain,
            description=fill(task.description, self.inputs, task.title),
            expected_output=fill(task.expected_output, self.inputs, task.title),
            context="\n\n".join([plain.context, *outputs] if plain.context else outputs),
        )

    async def _judged(self, output: Output) -> ReflectionEvaluation:
        """Ask guardrails and review, once per output: a person is not asked again when a run is resumed."""
        task = self.runner.task
        if not task.guardrails and task.review is None:
            return ACCEPTED
        code = blake2b(as_text(output).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        asking = partial(accept, task, output, self.runner.pattern.quality_threshold)
        return await self.key.once(f"acceptance {code}", ReflectionEvaluation, asking)

    def _rejected(self, output: Output, attempts: int, why: str) -> RejectedOutputError:
        times = "once" if attempts == 1 else f"{attempts} times"
        return RejectedOutputError(
            f"The output of the task {self.runner.task.title!r} was refused {times}, the last time because: "
            f"{why}",
            output=output,
            why=why,
            usage=self.used,
        )


@dataclass(frozen=True, slots=True)
class RefusedFirst:
    """An `Evaluator` that gives the first version the refusal, and judges the others as usual."""

    refusal: ReflectionEvaluation
    judge: Evaluator

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Evaluate one version."""
        return self.refusal if run.iteration == 1 else await self.judge(output, run)


def _both(emit: Listener, listener: Listener | None) -> Listener:
    if listener is None:
        return emit

    def tell(event: Event) -> None:
        emit(event)
        listener(event)

    return tell


async def note_for_run(
    task: Task, config: ReflectionConfig, notebook: Notebook, inputs: Mapping[str, Any], run_id: str
) -> InjectedNote:
    """Choose the note for a run: the one in force, or what a trial puts in its place.

    If the notes can't be read, the run goes without, with one warning.
    """
    identity = TaskIdentity.of(task)
    try:
        current = await notebook.current(identity)
        note, arm, why = current, "note", "the note in force on this task"
        if current is None:
            return NO_NOTE
        if config.trial is not None and arm_of(config.trial, run_id, identity) == "control":
            arm, why = "control", "a control run of the trial: the note before the one in force"
            against = current.based_on if config.trial.against == "previous" else None
            note = None if against is None else await notebook.revision(identity, against)
    except Exception as error:  # noqa: BLE001 (a run without its note is better than no run)
        logger.warning("The task %r runs without its note, which can't be read: %s", task.title, error)
        return InjectedNote(unread=True)
    if note is None:
        return InjectedNote("control", in_force=current.version, why="a control run of the trial: no note")
    text = note_block(note.reflection, task.plain(), inputs)
    version = note.version if notebook.keeps_revisions else None
    return InjectedNote(arm, version, current.version, text, tokens_of(text), why)


# What runs a task.


@dataclass(frozen=True, slots=True, eq=False)
class TaskRunner:
    """What runs a task; the same for all its runs.

    `model` is the one that answers, None if a handler does; `tool_agent` has the task's tools.
    """

    task: Task
    pattern: ReflectionPattern
    judges: Judges
    origin: Origin
    model: ChatModel | None = None
    tool_agent: ToolAgent | None = None

    def verbs(self, inputs: Mapping[str, Any], outputs: tuple[Output, ...]) -> Verbs:
        """Return the verbs of one run."""
        task, pattern, judges = self.task, self.pattern, self.judges
        if task.handler is not None:
            generate = adapt.generator(_handled(task.handler, inputs, outputs))
            live = live_run(pattern, None, "a plain function")
            return with_reflections(Verbs(generate, judges, adapt.regenerating(generate)), live)
        if self.tool_agent is not None:
            live = live_run(pattern, self.model)
            return with_reflections(self.tool_agent.verbs(judges, live), live)
        if self.model is None:
            raise AssertionError("a task without a handler has a model")
        return model_verbs(pattern, self.model, "", judges, live_run(pattern, self.model, "a text agent"))


def runner_of(task: Task, model: str | ChatModel | None, settings: Settings) -> TaskRunner:
    """Return what runs a task; `model` is the ensemble's.

    Raises `ConfigError` for a model, tool, trigger or criterion that can't work.
    """
    named = model if task.model is None else task.model
    answers = model_of(named, settings) if task.handler is None else None
    judging = answers or (None if named is None else model_of(named, settings))
    pattern = _pattern_of(task)
    runner = TaskRunner(
        task,
        pattern,
        _judges_of(task, pattern, judging),
        Origin("task", task.title, _name_of(answers, named, settings)),
        answers,
        None if answers is None or not task.tools else tool_agent_with(answers, "", _functions(task)),
    )
    runner.verbs({}, ())  # raises the errors of its triggers now
    if runner.tool_agent is not None:
        runner.tool_agent.check_triggers(pattern.triggers)
    return runner


def _pattern_of(task: Task) -> ReflectionPattern:
    """Return a task's pattern; the default makes one version, and scores it if there are criteria."""
    if task.pattern is not None:
        return (
            task.pattern
            if task.criteria is None
            else variant_of(task.pattern, quality_criteria=task.criteria)
        )
    if task.criteria is not None:
        return ReflectionPattern(0, task.criteria, task_type=task.task_type)
    # Nothing is measured, so no rule but the maximum applies.
    return ReflectionPattern(0, until=never)


def never(_versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
    """Never stop before the maximum."""
    return None


def _judges_of(task: Task, pattern: ReflectionPattern, model: ChatModel | None) -> Judges:
    if task.pattern is None and task.criteria is None:
        return Judges(nothing_judges)
    judges = judges_of(pattern, model, task.task_type)
    if task.handler is None:
        return judges
    # The handler, not this model, wrote the output.
    return replace(judges, signals=replace(judges.signals, self_judged=False))


async def nothing_judges(_output: Output, _run: RunContext, /) -> ReflectionEvaluation:
    """Return no score, and no objection: there are no criteria to judge by."""
    return ReflectionEvaluation(None, satisfactory=True)


def _functions(task: Task) -> list[Callable[..., Any]]:
    functions: list[Callable[..., Any]] = []
    for tool in task.tools:
        if isinstance(tool, str):
            raise ConfigError(
                f"The task {task.title!r} names the tool {tool!r}, which an ensemble can't call: give the "
                "function itself."
            )
        functions.append(tool)
    return functions


def _handled(
    handler: Callable[[TaskContext], Any], inputs: Mapping[str, Any], outputs: tuple[Output, ...]
) -> Callable[..., Any]:
    call = awaited(handler)

    async def handle(prompt: str, run: RunContext) -> Any:
        return await call(TaskContext(run.task, prompt, inputs, outputs, render_feedback(run.attempt)))

    return handle


def _name_of(answers: ChatModel | None, named: str | ChatModel | None, settings: Settings) -> str:
    if answers is None:
        return ""
    if named is None:
        return settings.model or ""
    return named if isinstance(named, str) else type(named).__name__


# Guardrails and review.

ACCEPTED = ReflectionEvaluation(None, satisfactory=True)


async def check_inputs(task: Task, inputs: Mapping[str, Any]) -> None:
    """Ask the input guardrails of a task, in order; raises `ConfigError` if one refuses."""
    for guardrail in task.input_guardrails:
        verdict = await _asked(task, guardrail, dict(inputs))
        if not verdict.satisfactory:
            raise ConfigError(f"The task {task.title!r} refuses its inputs: {why(verdict)}")


async def accept(task: Task, output: Output, threshold: float) -> ReflectionEvaluation:
    """Ask all guardrails of a task, and if these accept the output, its review; return their verdict.

    A number accepts from `threshold` on. The evaluation of a refused output is not satisfactory, has not
    passed its gates, and lists everything that was found. Raises what a guardrail or the review raises, and
    `OutputError` for an answer that is not a verdict.
    """
    refusals: list[ReflectionEvaluation] = []
    for guardrail in task.guardrails:
        verdict = await _asked(task, guardrail, copy_of(output), threshold)
        refusals += [] if verdict.satisfactory else [verdict]
    if not refusals and task.review is not None:
        verdict = await _asked(task, task.review, copy_of(output), threshold)
        refusals += [] if verdict.satisfactory else [verdict]
    if not refusals:
        return ACCEPTED
    return ReflectionEvaluation(
        min(verdict.overall_score or 0.0 for verdict in refusals),
        issues=tuple(issue for verdict in refusals for issue in verdict.issues),
        suggestions=tuple(text for verdict in refusals for text in verdict.suggestions),
        gates_passed=False,
    )


def why(refusal: ReflectionEvaluation) -> str:
    """Return, on one line, why something was refused."""
    return "; ".join(render_issue(issue) for issue in refusal.issues)


async def _asked(
    task: Task, guardrail: Callable[[Any], Any], value: Any, threshold: float | None = None
) -> ReflectionEvaluation:
    answer = await awaited(guardrail)(value)
    if answer is None or answer is True:
        return ACCEPTED
    judge = evaluation_of if threshold is None else partial(evaluation_of, threshold=threshold)
    try:
        verdict = judge(answer)
    except OutputError as error:
        raise OutputError(
            f"{_name(guardrail)} of the task {task.title!r} can't be understood: {error}"
        ) from error
    if verdict.satisfactory or verdict.issues:
        return verdict
    return replace(verdict, issues=(Issue(f"{_name(guardrail)} refused it"),))


def _name(guardrail: Callable[[Any], Any]) -> str:
    name: object = getattr(guardrail, "__name__", None)
    return str(name) if name and name != "<lambda>" else "a guardrail or the review"
