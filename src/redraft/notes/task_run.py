"""TaskRun: one task of one run of an ensemble, from its inputs to an accepted output."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from redraft.core.errors import RedraftError, ReflectionFailedError, RejectedOutputError
from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.events import Listener
from redraft.core.protocols import Evaluator
from redraft.core.texts import as_text, copy_of
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.core.version import Draft, Output
from redraft.loop.keep import run_kept
from redraft.loop.pattern import variant_of
from redraft.loop.run import last_result
from redraft.notes.acceptance import ACCEPTED, accept, check_inputs, why
from redraft.notes.given import NO_NOTE, GivenNote
from redraft.notes.keeping import Keeping
from redraft.notes.means import Means
from redraft.notes.placeholders import fill
from redraft.notes.result import TaskResult
from redraft.notes.task import Task
from redraft.text.fence import fenced

if TYPE_CHECKING:
    from redraft.core.context import RunContext
    from redraft.core.events import Event
    from redraft.core.result import ReflectionResult
    from redraft.core.task import Task as Asked


@dataclass(frozen=True, slots=True)
class RefusedFirst:
    """Judge what a run starts from by why it was refused, and all else as always; an `Evaluator`."""

    refusal: ReflectionEvaluation
    judge: Evaluator

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Return the refusal for the first version, and what the judge says for the others."""
        return self.refusal if run.iteration == 1 else await self.judge(output, run)


@dataclass(slots=True)
class TaskRun:
    """Carry a task out until its output is accepted.

    `given` are the outputs of the tasks that it needs. `choose_note` says what note it is given. `used` is
    what it has cost so far, however it ends.
    """

    means: Means
    inputs: Mapping[str, Any]
    given: Mapping[Task, Output]
    keeping: Keeping
    choose_note: Callable[[], Awaitable[GivenNote]] | None = None
    emit: Listener | None = None
    used: TokenUsage = NOTHING_USED
    note: GivenNote = NO_NOTE
    first_score: float | None = field(default=None, init=False)

    async def carry_out(self) -> TaskResult:
        """Return the result with the first output that guardrails and review accept.

        A refused output is revised by what was said, in a run of its own. Raises `RejectedOutputError` when
        the last attempt was refused, too, and what guardrails and the task's own run raise.
        """
        task = self.means.task
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
            self.keeping.run_id,
            attempt,
            self.note.version,
            self.note.arm,
            usage=self.used,
        )

    async def _choose_note(self) -> asyncio.Future[None] | None:
        """Choose the note, the same as before under an id that was given; return what writes that down.

        The run does not wait for it: asked for together, both are written together.
        """
        if self.choose_note is None:
            return None
        if (done := await self.keeping.done("note", GivenNote)) is not None:
            self.note = done
            return None
        self.note = await self.choose_note()
        return asyncio.ensure_future(self.keeping.write("note", self.note))

    async def _attempt(
        self, attempt: int, refused: Draft | None, refusal: ReflectionEvaluation
    ) -> ReflectionResult:
        means = self.means
        parts = means.parts(self.inputs, tuple(self.given.values()))
        pattern = means.pattern
        parts.advice = self.note.advice()
        if self.emit is not None:
            pattern = variant_of(pattern, on_event=_both(self.emit, pattern.on_event))
        keeping = self.keeping
        if refused is not None:
            # What it starts from counts as a version, and is not to be spared its revision.
            pattern = variant_of(pattern, max_iterations=pattern.max_iterations + 1)
            parts = replace(parts, evaluate=RefusedFirst(refusal, parts.evaluate))
            keeping = keeping.again(attempt)
        try:
            result = await run_kept(self._asked(), parts, pattern, keeping.step(), refused, means.origin)
        except RedraftError as error:
            made = last_result.get() if isinstance(error, ReflectionFailedError) else None
            self.used += error.usage or (NOTHING_USED if made is None else made.token_usage)
            raise
        self.used += result.token_usage
        return result

    def _asked(self) -> Asked:
        """Return what is asked: the definition with the inputs in it, and the outputs that it needs."""
        task = self.means.task
        asked = task.asked()
        outputs = [
            fenced(as_text(output), f"output of the task {' '.join(other.title.split())!r}")
            for other, output in self.given.items()
        ]
        return replace(
            asked,
            description=fill(task.description, self.inputs, task.title),
            expected_output=fill(task.expected_output, self.inputs, task.title),
            context="\n\n".join([asked.context, *outputs] if asked.context else outputs),
        )

    async def _judged(self, output: Output) -> ReflectionEvaluation:
        """Ask guardrails and review, once about the same output: a person must not be asked again."""
        task = self.means.task
        if not task.guardrails and task.review is None:
            return ACCEPTED
        code = blake2b(as_text(output).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        asking = partial(accept, task, output, self.means.pattern.quality_threshold)
        return await self.keeping.once(f"acceptance {code}", ReflectionEvaluation, asking)

    def _rejected(self, output: Output, attempts: int, said: str) -> RejectedOutputError:
        times = "once" if attempts == 1 else f"{attempts} times"
        return RejectedOutputError(
            f"The output of the task {self.means.task.title!r} was refused {times}, at last since: {said}",
            output=output,
            why=said,
            usage=self.used,
        )


def _both(emit: Listener, listener: Listener | None) -> Listener:
    if listener is None:
        return emit

    def tell(event: Event) -> None:
        emit(event)
        listener(event)

    return tell
