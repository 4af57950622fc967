"""A task of an ensemble: its run up to an accepted output, and its runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from redraft._calls import awaited, generator, regenerating
from redraft._critique import render_feedback, render_issue
from redraft._texts import as_text, copy_of, short_repr
from redraft._verdicts import evaluation_of
from redraft.errors import ConfigError, OutputError, RedraftError, RejectedOutputError
from redraft.loop.agent import tool_agent_with
from redraft.loop.conversation import conversation_verbs
from redraft.loop.journal import Journalled, RunKey
from redraft.loop.pattern import (
    ReflectionPattern,
    pattern_with,
    variant_of,
)
from redraft.loop.record import Origin
from redraft.loop.run import Judges, Verbs, run_and_store
from redraft.loop.stream import StreamEvent
from redraft.loop.verbs import judges_of, model_verbs, reflector_of
from redraft.models.names import label_of_model, model_of
from redraft.notes.learner import NO_NOTE, AcceptedRun, InjectedNote, Learner, once
from redraft.notes.note import Arm, TaskReflection, fill
from redraft.notes.task import Task, TaskContext
from redraft.protocols import ChatModel, Evaluator, ModelChoice
from redraft.text.replies import fenced
from redraft.types import (
    NOTHING_USED,
    Draft,
    Issue,
    Output,
    PlainTask,
    ReflectionEvaluation,
    ReflectionResult,
    TokenUsage,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.events import Event, Listener
    from redraft.loop.tool_agent import ToolAgent  # noqa: TC004 (it loads Pydantic AI, and no field is looked up)
    from redraft.protocols import RunContext
    from redraft.settings import Settings
    from redraft.types import ConvergenceReason, ReflectionVersion


ACCEPTED = ReflectionEvaluation(None, satisfactory=True)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The accepted output of a task, and how it was made."""

    task: Task
    output: Output
    result: ReflectionResult
    """The run that made the output, the last of `attempts`."""
    run_id: str
    """The id of the first attempt's run."""
    attempts: int = 1
    note: int | None = None
    """The version of the note in the prompt; None for no note."""
    arm: Arm = "none"
    """`control` if a trial withheld the note in force or gave the previous note; `none` if no note is in
    force, or an empty note."""
    reflection: TaskReflection | None = None
    """The reflection that was stored for the next run."""
    no_reflection: str = ""
    """Why there is no reflection."""
    usage: TokenUsage = NOTHING_USED
    """The usage of all attempts, and of the reflection if the run waited for it."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.task.title!r}: {short_repr(self.output)}>"


@dataclass(slots=True)
class TaskRun:
    """A run of a task, up to an accepted output."""

    runner: TaskRunner
    inputs: Mapping[str, Any]
    outputs: Mapping[Task, Output]
    """The outputs of the tasks that it needs."""
    key: RunKey
    emit: Callable[[StreamEvent], None] | None = None
    used: TokenUsage = NOTHING_USED
    """The usage so far, even if the run fails."""
    note: InjectedNote = NO_NOTE
    """The note in its prompt, which a runner with a learner chooses."""
    _journal: Journalled | None = field(init=False)
    """The journal for the steps of the task outside its runs, under the id of its first run."""
    _first_evaluation: ReflectionEvaluation | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._journal = self.key.journal()

    async def run(self) -> TaskResult:
        """Run until guardrails and review accept an output, and return the result.

        A rejected output is revised with the reasons, in a separate run. Raises `RejectedOutputError` if the
        last attempt is rejected, too, and the errors of the guardrails and of the task's own run.
        """
        task = self.runner.task
        await check_inputs(task, self.inputs)
        if (learner := self.runner.learner) is not None:  # once: a resumed run gets the same note
            choose = partial(learner.choose_note, self.key.run_id, self.inputs)
            self.note = await once(self._journal, "given note", InjectedNote, choose)
        result = await self._attempt()
        self._first_evaluation = result.history.versions[0].evaluation
        attempts = 1
        while not (verdict := await self._verdict(result.best_output)).satisfactory:
            if attempts > task.retries:
                times, reasons = "once" if attempts == 1 else f"{attempts} times", _reasons(verdict)
                raise RejectedOutputError(
                    f"The output of the task {task.title!r} was refused {times}, the last time because: "
                    f"{reasons}",
                    output=result.best_output,
                    why=reasons,
                    usage=self.used,
                )
            attempts += 1
            result = await self._attempt(attempts, result.history.best_version, verdict)
        return TaskResult(
            task,
            result.best_output,
            result,
            self.key.run_id,
            attempts,
            self.note.version,
            self.note.arm,
            no_reflection="" if self.runner.learner else "not requested",
            usage=self.used,
        )

    def accepted(self, result: TaskResult) -> AcceptedRun:
        """The run as input for a learner, given its result."""
        evaluation = result.result.history.best_version.evaluation
        judged = None if evaluation.overall_score is None else evaluation
        return AcceptedRun(
            self.key.run_id,
            self.note,
            as_text(result.output),
            judged,
            self._first_evaluation,
            self._journal,
        )

    async def _attempt(
        self,
        number: int = 1,
        refused: ReflectionVersion | None = None,
        refusal: ReflectionEvaluation = ACCEPTED,
    ) -> ReflectionResult:
        """Run the loop: from the task, or from a rejected version."""
        runner, pattern, key, draft = self.runner, self.runner.pattern, self.key, None
        verbs = runner.verbs(self.inputs, tuple(self.outputs.values()))
        if refused is not None:
            # The rejected output counts as the first version, and still gets all its revisions.
            pattern = variant_of(pattern, max_iterations=pattern.max_iterations + 1)
            judges = replace(verbs.judges, evaluate=RefusedFirst(refusal, verbs.judges.evaluate))
            verbs = replace(verbs, judges=judges)
            key = key.derived(f"-{number}")
            draft = Draft(
                copy_of(refused.output),
                NOTHING_USED,
                strategy="given",
                conversation=refused.conversation,
                memo=refused.memo,
            )
        note = self.note
        if self.emit is not None:
            pattern = variant_of(pattern, on_event=_both(self.emit, pattern.on_event))
        try:
            result = await run_and_store(
                pattern,
                self._filled_in(),
                verbs,
                key.step(),
                draft,
                runner.origin,
                advice=note.advice(),
                diagnostics=note.diagnostics(),
                on_token=self.emit,
            )
        except RedraftError as error:
            self.used += error.usage or NOTHING_USED
            raise
        self.used += result.token_usage
        return result

    def _filled_in(self) -> PlainTask:
        """The definition with its inputs filled in, and the outputs that it needs as context."""
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

    async def _verdict(self, output: Output) -> ReflectionEvaluation:
        """Ask guardrails and review, once per output: a resumed run does not ask a person again."""
        task = self.runner.task
        if not task.guardrails and task.review is None:
            return ACCEPTED
        digest = blake2b(as_text(output).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        ask = partial(accept, task, output, self.runner.pattern.quality_threshold)
        return await once(self._journal, f"acceptance {digest}", ReflectionEvaluation, ask)


@dataclass(frozen=True, slots=True)
class RefusedFirst:
    """An `Evaluator` that returns the refusal for the first version, and judges later versions as usual."""

    refusal: ReflectionEvaluation
    judge: Evaluator

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Evaluate a version."""
        return self.refusal if run.iteration == 1 else await self.judge(output, run)


def _both(emit: Callable[[StreamEvent], None], listener: Listener | None) -> Listener:
    if listener is None:
        return emit

    def tell(event: Event) -> None:
        emit(event)
        listener(event)

    return tell


@dataclass(frozen=True, slots=True, eq=False)
class TaskRunner:
    """Runs a task; shared by all its runs."""

    task: Task
    pattern: ReflectionPattern
    judges: Judges
    origin: Origin
    model: ChatModel | None = None
    """The model that answers; None if a handler answers."""
    tool_agent: ToolAgent | None = None
    """The agent with the task's tools."""
    learner: Learner | None = None
    """None if the task is not reflected on."""

    def verbs(self, inputs: Mapping[str, Any], outputs: tuple[Output, ...]) -> Verbs:
        """The verbs of a run."""
        task, pattern, judges = self.task, self.pattern, self.judges
        if task.handler is not None:
            answer = awaited(task.handler)

            async def handle(prompt: str, run: RunContext) -> Any:
                return await answer(
                    TaskContext(run.task, prompt, inputs, outputs, render_feedback(run.attempt))
                )

            generate = generator(handle)
            reflector = reflector_of(pattern, None, "a plain function")
            return Verbs(generate, judges, regenerating(generate), reflector=reflector)
        if self.tool_agent is not None:
            return conversation_verbs(pattern, self.tool_agent, self.model, judges)
        if self.model is None:
            raise AssertionError("a task without a handler has a model")
        return model_verbs(pattern, self.model, judges)


def runner_of(
    task: Task, model: ModelChoice | None, learner: Learner | None, settings: Settings
) -> TaskRunner:
    """The runner of a task; `model` is the ensemble's.

    Raises `ConfigError` for a model, tool, trigger or criterion that can't work.
    """
    named = model if task.model is None else task.model
    answers = model_of(named, settings) if task.handler is None else None
    judging = answers or (None if named is None else model_of(named, settings))
    name = "" if answers is None else label_of_model(named or settings.model)
    pattern = _pattern_of(task)
    runner = TaskRunner(
        task,
        pattern,
        _judges_of(task, pattern, judging),
        Origin("task", task.title, name, label=task.label),
        answers,
        None if answers is None or not task.tools else tool_agent_with(answers, "", _functions(task)),
        learner,
    )
    runner.verbs({}, ())  # raises the errors of its triggers now
    return runner


def _pattern_of(task: Task) -> ReflectionPattern:
    """A task's pattern with the task's own arguments; the default makes one version."""
    if task.pattern is not None:
        base = task.pattern
    elif task.is_judged:
        base = ReflectionPattern(0, task.criteria, task_type=task.task_type)
    else:  # not judged, so no rule but the maximum applies
        base = ReflectionPattern(0, until=never)
    return pattern_with(
        base,
        criteria=task.criteria,
        max_iterations=task.max_iterations,
        quality_threshold=task.quality_threshold,
        budget_usd=task.budget_usd,
        budget_tokens=task.budget_tokens,
        budget_seconds=task.budget_seconds,
        judge=task.judge,
    )


def never(_versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
    """Never stop before the maximum."""
    return None


def _judges_of(task: Task, pattern: ReflectionPattern, model: ChatModel | None) -> Judges:
    if not task.is_judged:
        return Judges(nothing_judges)
    judges = judges_of(pattern, model, task.task_type)
    if task.handler is None:
        return judges
    # The handler, not this model, wrote the output.
    return replace(judges, signals=replace(judges.signals, self_judged=False))


async def nothing_judges(_output: Output, _run: RunContext, /) -> ReflectionEvaluation:
    """Accept without a score, since there are no criteria."""
    return ReflectionEvaluation(None, satisfactory=True)


def _functions(task: Task) -> list[Callable[..., Any]]:
    functions: list[Callable[..., Any]] = []
    for tool in task.tools:
        if isinstance(tool, str):
            raise ConfigError(
                f"The task {task.title!r} names the tool {tool!r}, but an ensemble can't look tools up by "
                "name; "
                "give the function itself."
            )
        functions.append(tool)
    return functions


# Guardrails and review.


async def check_inputs(task: Task, inputs: Mapping[str, Any]) -> None:
    """Ask the input guardrails of a task, in order; raises `ConfigError` if any rejects the inputs."""
    for guardrail in task.input_guardrails:
        verdict = await _ask(task, guardrail, dict(inputs))
        if not verdict.satisfactory:
            raise ConfigError(
                f"An input guardrail of the task {task.title!r} refused its inputs: {_reasons(verdict)}"
            )


async def accept(task: Task, output: Output, threshold: float) -> ReflectionEvaluation:
    """Ask all guardrails of a task, and if they accept the output, its review; return their verdict.

    A number accepts from `threshold` on. The evaluation of a rejected output is not satisfactory, has not
    passed its gates, and lists all issues. Raises the errors of guardrails and review, and `OutputError` for
    an answer that is not a verdict.
    """
    verdicts = [await _ask(task, guardrail, copy_of(output), threshold) for guardrail in task.guardrails]
    if task.review is not None and all(verdict.satisfactory for verdict in verdicts):
        verdicts.append(await _ask(task, task.review, copy_of(output), threshold))
    refusals = [verdict for verdict in verdicts if not verdict.satisfactory]
    if not refusals:
        return ACCEPTED
    return ReflectionEvaluation(
        min(refusal.overall_score or 0.0 for refusal in refusals),
        issues=tuple(issue for refusal in refusals for issue in refusal.issues),
        suggestions=tuple(text for refusal in refusals for text in refusal.suggestions),
        gates_passed=False,
    )


def _reasons(refusal: ReflectionEvaluation) -> str:
    """The reasons of a refusal, on a single line."""
    return joined(map(render_issue, refusal.issues))


async def _ask(
    task: Task, guardrail: Callable[[Any], Any], value: Any, threshold: float | None = None
) -> ReflectionEvaluation:
    answer = await awaited(guardrail)(value)
    if answer is None or answer is True:
        return ACCEPTED
    name: object = getattr(guardrail, "__name__", None)
    name = name if name and name != "<lambda>" else "a guardrail or the review"
    judge = evaluation_of if threshold is None else partial(evaluation_of, threshold=threshold)
    try:
        verdict = judge(answer)
    except OutputError as error:
        raise OutputError(f"The answer of {name} (task {task.title!r}) is not a verdict: {error}") from error
    if verdict.satisfactory or verdict.issues:
        return verdict
    return replace(verdict, issues=(Issue(f"{name} refused it"),))
