"""reflection.loop: generate, evaluate and correct, on the loop that everything else runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redraft.core.errors import ChangedRunError, ConfigError, ReflectionFailedError, WorkflowError
from redraft.core.feedback import render_feedback
from redraft.core.result import ConvergenceReason
from redraft.core.task import Task
from redraft.core.usage import NOTHING_USED
from redraft.core.version import Draft
from redraft.loop.keep import kept_step, run_kept
from redraft.loop.parts import Parts
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.record import Origin
from redraft.loop.stop import quality_met
from redraft.workflow.bench import Bench
from redraft.workflow.code import make
from redraft.workflow.correct import is_candidate, unwrapped
from redraft.workflow.judge import candidate, check_evaluator, judge
from redraft.workflow.loop_state import loop_state, outcome
from redraft.workflow.made import FailedAttempt, Made
from redraft.workflow.params import checked
from redraft.workflow.scope import Scope, template
from redraft.workflow.spec import LoopParams, Maker

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
    with the errors. The run is a run like any other: kept, shown and resumed. Raises `ReflectionFailedError`,
    whose `history` is the list that `reflection_history` holds, where `on_failure` is `raise`.
    """
    given = checked(LoopParams, params, "reflection.loop")
    check_evaluator(given.evaluator)
    attempts = scope.render(given.max_iterations)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise ConfigError(f"reflection.loop: max_iterations must be at least 1, got {attempts!r}.")
    attempt = Attempts(given, scope, bench)
    pattern = ReflectionPattern(
        max_iterations=attempts - 1,
        until=quality_met,
        diversify=False,
        best_version_selection="latest" if given.on_failure == "return_last" else "highest_score",
        on_event=bench.on_event,
    )
    task = Task(attempt.describe())
    origin = Origin("workflow", bench.name)
    step = kept_step(bench.keep, None, task)
    result = await run_kept(
        task, Parts(attempt.generate, attempt.evaluate, attempt.revise), pattern, step, None, origin
    )
    if result.error is not None and result.convergence_reason is ConvergenceReason.ERROR:
        raise result.error
    values = outcome(result)
    if not values["success"] and given.on_failure == "raise":
        raise ReflectionFailedError(
            f"No valid output in {values['reflection_iteration']} attempts.", values["reflection_history"]
        )
    return Made(values, result.token_usage)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Be the three verbs of one loop. What they know of earlier attempts is in the run's versions alone."""

    given: LoopParams
    scope: Scope
    bench: Bench

    def describe(self) -> str:
        """Say what is asked: the generator's prompt, as far as it can be rendered now, or its code."""
        prompt = self.given.generator.params.get("prompt")
        if isinstance(prompt, str):
            return self._inside(()).text(prompt)
        return self.given.generator.run or f"action {self.given.generator.action}"

    async def generate(self, _prompt: str, run: RunContext, /) -> Draft:
        """Run the generator; one that raises is an attempt that failed."""
        return await self._draft(self.given.generator, run, {})

    async def evaluate(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Judge an output in the state of this attempt."""
        scope = self._inside(run.versions, output=output)
        return await judge(self.given.evaluator, output, scope, self.bench)

    async def revise(self, output: Output, _evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """Run the corrector for the next candidate; with feedback, or without one, the generator again."""
        corrector = self.given.corrector
        if corrector is None or isinstance(output, FailedAttempt):
            return await self._draft(self.given.generator, run, {})
        scope = self._inside(run.versions)
        try:
            made = await make(corrector, scope, self.bench)
        except RAISED:
            raise
        except Exception as error:  # noqa: BLE001 (what a file's code or action raises is a failed attempt)
            return Draft(FailedAttempt(message=f"The corrector failed: {_said(error)}"), NOTHING_USED)
        if is_candidate(corrector, made, output, self.given.evaluator.schema_):
            value = candidate(self.given.evaluator, unwrapped(made.value), self.bench)
            return Draft(_output(value, "corrector"), made.usage, strategy="corrected")
        feedback = cast("dict[str, Any]", made.value) if isinstance(made.value, dict) else {}
        draft = await self._draft(self.given.generator, run, feedback)
        draft.usage += made.usage
        return draft

    async def _draft(self, maker: Maker, run: RunContext, feedback: Mapping[str, Any]) -> Draft:
        scope = self._inside(run.versions, feedback=feedback)
        try:
            made = await make(self._told(maker, run), scope, self.bench)
        except RAISED:
            raise
        except Exception as error:  # noqa: BLE001 (likewise)
            failed = FailedAttempt(message=f"The generator failed: {_said(error)}")
            return Draft(failed, NOTHING_USED, memo=dict(feedback) or None)
        value = candidate(self.given.evaluator, made.value, self.bench)
        strategy = "regenerated" if run.versions else "draft"
        return Draft(_output(value, "generator"), made.usage, strategy=strategy, memo=dict(feedback) or None)

    def _told(self, maker: Maker, run: RunContext) -> Maker:
        """Add what was wrong to the prompt of a generator that does not ask for it itself."""
        prompt = maker.params.get("prompt")
        if not run.versions or not isinstance(prompt, str) or maker.action is None:
            return maker
        if any(map(template(prompt).mentions, ("state.reflection_errors", "state.reflection_history"))):
            return maker
        critique = "{% raw %}" + render_feedback(run.attempt).replace("{% endraw %}", "") + "{% endraw %}"
        return maker.model_copy(update={"prompt": f"{prompt}\n\n{critique}"})

    def _inside(
        self,
        versions: tuple[ReflectionVersion, ...],
        *,
        feedback: Mapping[str, Any] | None = None,
        output: Any = None,
    ) -> Scope:
        state = loop_state(versions, output)
        heard: dict[str, Any] = {}
        for version in versions:
            heard |= version.memo or {}
        shown = ("reflection_output", "reflection_errors", "reflection_iteration")
        names = {name: state[name] for name in shown}
        more = {**heard, **(feedback or {}), **state}
        return self.scope.adding(more, output=state["reflection_output"], **names)


def _output(value: Any, who: str) -> Any:
    return FailedAttempt(message=f"The {who} gave nothing.") if value is None else value


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
