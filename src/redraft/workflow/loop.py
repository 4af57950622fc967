"""reflection.loop: generate, evaluate and correct, on the loop that everything else runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redraft.core.errors import (
    ChangedRunError,
    ConfigError,
    ModelError,
    OutputError,
    RedraftError,
    ReflectionFailedError,
    WorkflowError,
)
from redraft.core.failures import said_of
from redraft.core.feedback import render_feedback
from redraft.core.result import ConvergenceReason
from redraft.core.task import Task
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.core.version import Draft
from redraft.loop.keep import kept_step, run_kept
from redraft.loop.parts import Parts
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.record import Origin
from redraft.loop.stop import quality_met
from redraft.redact.log import logger
from redraft.text.condition import template
from redraft.workflow.bench import Bench
from redraft.workflow.code import make
from redraft.workflow.correct import is_feedback, looks_like, unwrapped
from redraft.workflow.judge import Judge
from redraft.workflow.loop_state import DOCUMENTED, current, loop_state, outcome
from redraft.workflow.made import FailedAttempt, Made
from redraft.workflow.names import LLM_CALL, plain_name
from redraft.workflow.params import SCHEMA, checked, templates_in
from redraft.workflow.scope import Scope
from redraft.workflow.spec import Corrector, LoopParams, Maker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.core.context import RunContext
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.version import Output, ReflectionVersion

RAISED = (ConfigError, WorkflowError, ChangedRunError)
"""What no further attempt would mend: raised at once."""


async def loop_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Generate, evaluate and correct until the output is valid, at most `max_iterations` times.

    `max_iterations` counts attempts: 3 makes at most 3 outputs. Without a corrector the generator runs again
    with the errors. The run is a run like any other: kept, shown and resumed. A model that judges and fails
    for good ends the loop with what was made until then. Raises `ReflectionFailedError`, whose `history` is
    the list that `reflection_history` holds, where there is no valid output and `on_failure` is `raise`.
    """
    given = checked(LoopParams, params, "reflection.loop")
    attempts = scope.render(given.max_iterations)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise ConfigError(
            f"reflection.loop: max_iterations must be a whole number of at least 1, got {attempts!r}."
        )
    attempt = Attempts(given, Judge.of(given.evaluator, bench), scope, bench)
    pattern = ReflectionPattern(
        max_iterations=attempts - 1,
        quality_threshold=given.evaluator.threshold,
        until=quality_met,
        diversify=False,
        best_version_selection="latest" if given.on_failure == "return_last" else "highest_score",
        on_event=bench.on_event,
    )
    task = Task(attempt.describe())
    origin = Origin("workflow", bench.name)
    step = kept_step(bench.keep, None, task)
    parts = Parts(attempt.generate, attempt.evaluate, attempt.revise, output_alone=sees_output_alone(given))
    result = await run_kept(task, parts, pattern, step, None, origin)
    failure, reason = result.error, ""
    if failure is not None and result.convergence_reason is ConvergenceReason.ERROR:
        if isinstance(failure, RedraftError) and not isinstance(failure, ModelError | OutputError):
            raise _charged(failure, result.token_usage)
        reason = f"The evaluator failed: {said_of(failure)}"
        logger.warning("reflection.loop ends with what was made until then. %s", reason)
    values = outcome(result, pattern.best_version_selection, reason)
    if not values["success"] and given.on_failure == "raise":
        history = values["reflection_history"]
        attempts = f"{len(history)} attempt{'s' * (len(history) != 1)}"
        error = ReflectionFailedError(f"No valid output in {attempts}. {reason}".strip(), history)
        raise _charged(error, result.token_usage) from failure
    return Made(values, result.token_usage)


def _charged(error: BaseException, usage: TokenUsage) -> BaseException:
    """Have an error carry what the whole loop used until then."""
    if isinstance(error, RedraftError):
        error.usage = usage
    return error


@dataclass(frozen=True, slots=True)
class Attempts:
    """Be the three verbs of one loop. What they know of earlier attempts is in the run's versions alone."""

    given: LoopParams
    judge: Judge
    scope: Scope
    bench: Bench

    def describe(self) -> str:
        """Say what is asked: the generator's prompt as the first attempt renders it, or its code."""
        prompt = self.given.generator.params.get("prompt")
        if isinstance(prompt, str):
            return self._inside(()).text(prompt)
        return self.given.generator.run or f"action {self.given.generator.action}"

    async def generate(self, _prompt: str, run: RunContext, /) -> Draft:
        """Run the generator; one that raises is an attempt that failed."""
        return await self._generated(run, {})

    async def evaluate(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Judge an output in the state of this attempt."""
        return await self.judge(output, self._inside(run.versions, output=output))

    async def revise(self, _output: Output, _evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """Run the corrector for the next candidate; with feedback, or without one, the generator again.

        It corrects the current output, as documented; the best one is `state.reflection_best`.
        """
        corrector, version = self.given.corrector, current(run.versions)
        if corrector is None or version is None:
            return await self._generated(run, {})
        try:
            made = await make(corrector, self._inside(run.versions), self.bench)
        except RAISED:
            raise
        except Exception as error:  # noqa: BLE001 (what a file's code or action raises is a failed attempt)
            return _failed("corrector", error, "corrected")
        if not is_feedback(corrector, made.value):
            return self._draft("corrector", unwrapped(made.value), made.usage, "corrected")
        self._warn_once(corrector, made.value, version.output, run)
        feedback: Any = made.value
        if not isinstance(feedback, dict):
            feedback = {} if feedback is None else {FEEDBACK: str(feedback)}
        draft = await self._generated(run, cast("dict[str, Any]", feedback))
        draft.usage += made.usage
        return draft

    def _warn_once(self, corrector: Corrector, value: Any, output: Output, run: RunContext) -> None:
        """Warn of feedback that may have been meant as the corrected output; nothing else would show it."""
        is_first = all(version.memo is None for version in run.versions)
        if is_first and corrector.apply == "auto" and looks_like(value, output):
            logger.warning(
                "The corrector gave an object with all keys of the output. It is taken as feedback: its keys "
                "go into the state, and the generator runs again. If it is the corrected output, add "
                "'apply: replace' to the corrector; if not, 'apply: feedback'."
            )

    async def _generated(self, run: RunContext, feedback: Mapping[str, Any]) -> Draft:
        critique = render_feedback(run.attempt)
        if FEEDBACK in feedback:
            critique = f"{feedback[FEEDBACK]}\n\n{critique}"
        scope = self._inside(run.versions, {**feedback, FEEDBACK: critique})
        generator, strategy = self.given.generator, "draft"
        if run.versions:
            generator, strategy = asking_to_mend(generator), "regenerated"
        try:
            made = await make(generator, scope, self.bench)
        except RAISED:
            raise
        except Exception as error:  # noqa: BLE001 (likewise)
            draft = _failed("generator", error, strategy)
        else:
            draft = self._draft("generator", made.value, made.usage, strategy)
        draft.memo = dict(feedback) or None
        return draft

    def _draft(self, who: str, value: Any, usage: TokenUsage, strategy: str) -> Draft:
        output = self.judge.candidate(value)
        if output is None:
            output = FailedAttempt(message=f"The {who} gave nothing.")
        return Draft(output, usage, strategy=strategy)

    def _inside(
        self,
        versions: tuple[ReflectionVersion, ...],
        feedback: Mapping[str, Any] | None = None,
        *,
        output: Any = None,
    ) -> Scope:
        state = loop_state(versions, output)
        heard: dict[str, Any] = {}
        for version in versions:
            heard |= version.memo or {}
        shown = ("reflection_output", "reflection_errors", "reflection_iteration")
        names = {name: state[name] for name in shown}
        more = {FEEDBACK: "", **heard, **(feedback or {}), **state}
        return self.scope.adding(more, output=state["reflection_output"], **names)


FEEDBACK = "reflection_feedback"
"""The key of the state with what was wrong, as a text: for generators that run again."""
CHANGING = frozenset((*DOCUMENTED, FEEDBACK))
"""What of the state is another in each attempt."""
TOLD_BY = tuple(f"state.{name}" for name in (FEEDBACK, "reflection_errors", "reflection_history"))


def sees_output_alone(given: LoopParams) -> bool:
    """Say whether the evaluator would say the same of the same output in a later attempt.

    Code sees the whole state. A judge's prompt shows what it reads: of that, feedback may change anything.
    """
    evaluator, corrector = given.evaluator, given.corrector
    if evaluator.type != "llm":
        return evaluator.type == "schema"
    feeds = corrector is not None and (
        corrector.apply == "feedback" or (corrector.apply == "auto" and not _gives_text(corrector))
    )
    told = template(str(evaluator.prompt)).paths | template(evaluator.model or "").paths
    return all(
        path[:2] == ("state", "reflection_output") or (not feeds and path[1:] and path[1] not in CHANGING)
        for path in told
        if path[0] == "state"
    )


def _gives_text(maker: Maker) -> bool:
    """Say whether what a maker makes is a text for sure."""
    return plain_name(str(maker.action)) == LLM_CALL and SCHEMA not in maker.params


def asking_to_mend(generator: Maker) -> Maker:
    """Return a generator that also says what was wrong, unless one of its templates asks for it itself."""
    params = generator.params
    if any(any(map(template(text).mentions, TOLD_BY)) for text, _ in templates_in(params, ())):
        return generator
    addition = f"{{{{ state.{FEEDBACK} }}}}"
    prompt, messages = params.get("prompt"), params.get("messages")
    if isinstance(prompt, str):
        return generator.model_copy(update={"prompt": f"{prompt}\n\n{addition}"})
    if isinstance(messages, list):
        return generator.model_copy(
            update={"messages": [*cast("list[Any]", messages), {"role": "user", "content": addition}]}
        )
    return generator


def _failed(who: str, error: Exception, strategy: str) -> Draft:
    """Return the draft of an attempt that raised; what it used until then was paid for all the same."""
    usage = (error.usage if isinstance(error, RedraftError) else None) or NOTHING_USED
    return Draft(FailedAttempt(message=f"The {who} failed: {said_of(error)}"), usage, strategy=strategy)
