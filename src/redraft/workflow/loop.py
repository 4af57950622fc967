"""reflection.loop and reflection.correct: generate, evaluate and correct until an output is valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from redraft._calls import render_feedback
from redraft._codec import describe_error
from redraft.errors import (
    ChangedRunError,
    ConfigError,
    ModelError,
    OutputError,
    RedraftError,
    ReflectionFailedError,
    SandboxError,
    WorkflowError,
)
from redraft.loop.keeper import kept_step, run_kept
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.record import Origin
from redraft.loop.run import Judges, Verbs
from redraft.loop.select import Selection, highest
from redraft.loop.stop import quality_met
from redraft.redact.log import logger
from redraft.text.replies import json_of
from redraft.text.templates import template
from redraft.types import NOTHING_USED, ConvergenceReason, Draft, ReflectionEvaluation, Task, TokenUsage
from redraft.workflow.scope import SCHEMA, Bench, FailedAttempt, Made, Scope, checked, make, templates_in
from redraft.workflow.spec import (
    CORRECT,
    LLM_CALL,
    LOOP,
    Corrector,
    CorrectParams,
    LoopParams,
    Maker,
    plain_name,
)
from redraft.workflow.verdict import Judge, errors_of, is_candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.protocols import RunContext
    from redraft.types import Output, ReflectionResult, ReflectionVersion

DOCUMENTED = (
    "success",
    "valid",
    "exhausted",
    "reflection_iteration",
    "reflection_output",
    "reflection_errors",
    "reflection_history",
    "reflection_best",
    "reflection_best_score",
    "reflection_reason",
)
"""The keys that a loop returns; an output's own keys of these names stay in `reflection_output`."""
FEEDBACK = "reflection_feedback"
"""The key of the state with what was wrong, as text: for generators that run again."""


async def loop_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Generate, evaluate and correct until the output is valid, at most `max_iterations` times.

    `max_iterations` counts attempts: 3 makes at most 3 outputs. Without a corrector the generator runs again
    with the errors. The run is a run like any other: kept, shown and resumed. If a model that judges fails
    for good, the loop ends with what it has. Raises `ReflectionFailedError`, whose `history` is the list in
    `reflection_history`, if there is no valid output and `on_failure` is `raise`.
    """
    given = checked(LoopParams, params, LOOP)
    most = scope.render(given.max_iterations)
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise ConfigError(f"{LOOP}: max_iterations must be a whole number of at least 1, got {most!r}.")
    attempts = Attempts(given, Judge.of(given.evaluator, bench), scope, bench)
    pattern = ReflectionPattern(
        max_iterations=most - 1,
        quality_threshold=given.evaluator.threshold,
        until=partial(quality_met, threshold=given.evaluator.threshold),
        diversify=False,
        best_version_selection="latest" if given.on_failure == "return_last" else "highest_score",
        on_event=bench.on_event,
    )
    task = Task(attempts.describe())
    judges = Judges(attempts.evaluate, output_alone=judges_output_alone(given))
    verbs = Verbs(attempts.generate, judges, attempts.revise)
    step = kept_step(bench.keep, None, task)
    result = await run_kept(task, verbs, pattern.run_options, step, None, Origin("workflow", bench.name))
    failure, reason = result.error, ""
    if failure is not None and result.convergence_reason is ConvergenceReason.ERROR:
        if isinstance(failure, RedraftError) and not isinstance(failure, ModelError | OutputError):
            failure.usage = result.token_usage
            raise failure
        reason = f"The evaluator failed: {describe_error(failure)}"
        logger.warning("%s ends with what was made until then. %s", LOOP, reason)
    values = values_of(result, pattern.best_version_selection, reason)
    if not values["success"] and given.on_failure == "raise":
        history = values["reflection_history"]
        times = f"{len(history)} attempt{'s' * (len(history) != 1)}"
        error = ReflectionFailedError(f"No valid output in {times}. {reason}".strip(), history)
        error.usage = result.token_usage
        raise error from failure
    return Made(values, result.token_usage)


@dataclass(frozen=True, slots=True)
class Attempts:
    """The three verbs of one loop. All that they know of earlier attempts is in the versions of the run."""

    given: LoopParams
    judge: Judge
    scope: Scope
    bench: Bench

    def describe(self) -> str:
        """Return what is asked: the generator's prompt as the first attempt renders it, or its code."""
        generator = self.given.generator
        prompt = generator.params.get("prompt")
        if isinstance(prompt, str):
            return self._scope_after(()).text(prompt)
        return generator.run or f"action {generator.action}"

    async def generate(self, _prompt: str, run: RunContext, /) -> Draft:
        """Run the generator; if it raises, the attempt has failed."""
        return await self._generate(run, {})

    async def evaluate(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Judge an output, in the state of its attempt."""
        return await self.judge(output, self._scope_after(run.versions, output=output))

    async def revise(self, _output: Output, _evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """Run the corrector; if it returns feedback, or there is none, run the generator again.

        It corrects the current output, as documented; the best one is `state.reflection_best`.
        """
        corrector, version = self.given.corrector, current(run.versions)
        if corrector is None or version is None:
            return await self._generate(run, {})
        try:
            made = await make(corrector, self._scope_after(run.versions), self.bench)
        except NO_ATTEMPT:
            raise
        except Exception as error:  # noqa: BLE001 (whatever a file's code or action raises, the attempt failed)
            return _failed("corrector", error, "corrected")
        if not is_feedback(corrector, made.value):
            return self._draft("corrector", unwrapped(made.value), made.usage, "corrected")
        self._warn_once_if_ambiguous(corrector, made.value, version.output, run)
        feedback: Any = made.value
        if not isinstance(feedback, dict):
            feedback = {} if feedback is None else {FEEDBACK: str(feedback)}
        draft = await self._generate(run, cast("dict[str, Any]", feedback))
        draft.usage += made.usage
        return draft

    def _warn_once_if_ambiguous(
        self, corrector: Corrector, value: Any, output: Output, run: RunContext
    ) -> None:
        """Warn of feedback that may have been meant as the corrected output: nothing else would show it."""
        is_first = all(version.memo is None for version in run.versions)
        if is_first and corrector.apply == "auto" and has_all_keys(value, output):
            logger.warning(
                "The corrector gave an object with all keys of the output. It is taken as feedback: its keys "
                "go into the state, and the generator runs again. If it is the corrected output, add "
                "'apply: replace' to the corrector; if not, 'apply: feedback'."
            )

    async def _generate(self, run: RunContext, feedback: Mapping[str, Any]) -> Draft:
        critique = render_feedback(run.attempt)
        if FEEDBACK in feedback:
            critique = f"{feedback[FEEDBACK]}\n\n{critique}"
        scope = self._scope_after(run.versions, {**feedback, FEEDBACK: critique})
        generator, strategy = self.given.generator, "draft"
        if run.versions:
            generator, strategy = with_feedback(generator), "regenerated"
        try:
            made = await make(generator, scope, self.bench)
        except NO_ATTEMPT:
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

    def _scope_after(
        self,
        versions: tuple[ReflectionVersion, ...],
        feedback: Mapping[str, Any] | None = None,
        *,
        output: Any = None,
    ) -> Scope:
        """Return what templates and code see in the attempt after `versions`: its state, and feedback."""
        state = loop_state(versions, output)
        earlier: dict[str, Any] = {}
        for version in versions:
            earlier |= version.memo or {}
        names = {
            name: state[name] for name in ("reflection_output", "reflection_errors", "reflection_iteration")
        }
        added = {FEEDBACK: "", **earlier, **(feedback or {}), **state}
        return self.scope.adding(added, output=state["reflection_output"], **names)


NO_ATTEMPT = (ConfigError, WorkflowError, ChangedRunError)
"""What is raised at once: another attempt would not mend it."""


def _failed(who: str, error: Exception, strategy: str) -> Draft:
    """Return the draft of an attempt that raised, with what it used until then."""
    usage = (error.usage if isinstance(error, RedraftError) else None) or NOTHING_USED
    return Draft(
        FailedAttempt(message=f"The {who} failed: {describe_error(error)}"), usage, strategy=strategy
    )


def loop_state(versions: Sequence[ReflectionVersion], output: Output = None) -> dict[str, Any]:
    """Return the state variables during the attempt after `versions`.

    `output` is the one being judged. Before there is one, the last one is current, with its errors; an
    attempt that failed is current only as long as there is no other.
    """
    version = current(versions) or (versions[-1] if versions else None)
    shown = output if output is not None or version is None else version.output
    return {
        "reflection_iteration": len(versions) + 1,
        "reflection_output": plain(shown),
        "reflection_errors": [] if version is None else errors_of(version.evaluation),
        "reflection_history": history_of(versions),
        "reflection_best": None,
        "reflection_best_score": 0.0,
        **_best_values(versions),
    }


def values_of(result: ReflectionResult, selection: Selection, reason: str = "") -> dict[str, Any]:
    """Return the documented value of a loop that ended, with the keys of its output beside them.

    `reason` says why it ended before its attempts were used up, if it did. The best attempt is a candidate,
    whatever the others scored. Keys without a value are left out: `state.get("reflection_best", {})` works.
    """
    history = result.history
    versions = history.versions
    best = None if selection == "latest" else _best(versions) or current(versions)
    chosen = best or history.final_version
    output = plain(chosen.output)
    values: dict[str, Any] = {
        "success": result.success,
        "valid": result.success,
        "reflection_iteration": history.total_iterations + 1,
        "reflection_output": output,
        "reflection_errors": errors_of(chosen.evaluation),
        "reflection_history": history_of(versions),
        **_best_values(versions),
    }
    if output is None:
        del values["reflection_output"]
    if reason:
        values["reflection_reason"] = reason
    elif not result.success:
        values["exhausted"] = True
    if not _is_candidate(chosen):
        return values
    if isinstance(output, Mapping):
        own = cast("Mapping[str, Any]", output)
        return {key: value for key, value in own.items() if key not in DOCUMENTED} | values
    return {"result": output} | values


def history_of(versions: Sequence[ReflectionVersion]) -> list[dict[str, Any]]:
    """Return all attempts as the documented entries."""
    return [
        {
            "iteration": version.iteration,
            "output": plain(version.output),
            "score": version.evaluation.overall_score,
            "valid": version.evaluation.satisfactory,
            "errors": errors_of(version.evaluation),
            "suggestions": list(version.evaluation.suggestions),
        }
        for version in versions
    ]


def current(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    """Return the last attempt that did not fail."""
    return next((one for one in reversed(versions) if not isinstance(one.output, FailedAttempt)), None)


def plain(output: Output) -> Any:
    """Return an output as templates and code see it: plain JSON data, None for a failed attempt."""
    return None if isinstance(output, FailedAttempt) else output


def _best_values(versions: Sequence[ReflectionVersion]) -> dict[str, Any]:
    """Return the keys of the best attempt and of its score that have a value."""
    best = _best(versions)
    if best is None:
        return {}
    score = best.evaluation.overall_score
    known = {} if score is None else {"reflection_best_score": score}
    return {"reflection_best": plain(best.output), **known}


def _best(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    candidates = [version for version in versions if _is_candidate(version)]
    return highest(candidates) if candidates else None


def _is_candidate(version: ReflectionVersion) -> bool:
    return not isinstance(version.output, FailedAttempt) and is_candidate(version.evaluation)


def judges_output_alone(given: LoopParams) -> bool:
    """Return whether the evaluator would say the same of the same output in a later attempt.

    Code sees the whole state. A judge's prompt shows what it reads: of that, feedback may change anything.
    """
    evaluator, corrector = given.evaluator, given.corrector
    if evaluator.type != "llm":
        return evaluator.type == "schema"
    may_give_feedback = corrector is not None and (
        corrector.apply == "feedback" or (corrector.apply == "auto" and not _always_gives_text(corrector))
    )
    changing = (*DOCUMENTED, FEEDBACK)
    read = template(str(evaluator.prompt)).paths | template(evaluator.model or "").paths
    return all(
        path[:2] == ("state", "reflection_output")
        or (not may_give_feedback and path[1:] and path[1] not in changing)
        for path in read
        if path[0] == "state"
    )


def _always_gives_text(maker: Maker) -> bool:
    return plain_name(str(maker.action)) == LLM_CALL and SCHEMA not in maker.params


def with_feedback(generator: Maker) -> Maker:
    """Return a generator whose prompt also says what was wrong, unless a template of it already does."""
    params = generator.params
    said_by = (f"state.{name}" for name in (FEEDBACK, "reflection_errors", "reflection_history"))
    templates = [template(text) for text, _ in templates_in(params, ())]
    if any(one.mentions(name) for name in said_by for one in templates):
        return generator
    addition = f"{{{{ state.{FEEDBACK} }}}}"
    prompt, messages = params.get("prompt"), params.get("messages")
    if isinstance(prompt, str):
        return generator.model_copy(update={"prompt": f"{prompt}\n\n{addition}"})
    if isinstance(messages, list):
        turns = [*cast("list[Any]", messages), {"role": "user", "content": addition}]
        return generator.model_copy(update={"messages": turns})
    return generator


async def correct_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Correct `data` once; return `{corrected_output, success}`.

    A reply that is JSON is read as JSON unless the data was text. If the corrector failed or gave nothing,
    `success` is False, `corrected_output` the data as it was, and `error` says why.
    """
    given = checked(CorrectParams, params, CORRECT)
    data = scope.state.get("reflection_output") if given.data is None else scope.render(given.data)
    errors = scope.state.get("reflection_errors", []) if given.errors is None else scope.render(given.errors)
    inside = scope.adding(
        {"reflection_output": data, "reflection_errors": errors},
        output=data,
        reflection_output=data,
        reflection_errors=errors,
        reflection_iteration=scope.state.get("reflection_iteration", 1),
    )
    unchanged = {"corrected_output": data, "success": False}
    try:
        made = await make(given.maker(), inside, bench)
    except (SandboxError, OutputError) as error:
        logger.warning("The corrector failed: %s", error)
        return Made({**unchanged, "error": str(error)}, error.usage or NOTHING_USED)
    corrected = unwrapped(made.value)
    if made.is_reply and isinstance(corrected, str) and not isinstance(data, str):
        corrected = _json_or_text(corrected)
    if corrected is None:
        return Made({**unchanged, "error": "The corrector gave nothing."}, made.usage)
    return Made({"corrected_output": corrected, "success": True}, made.usage)


WRAPPERS = ("corrected_output", "reflection_output", "output")
"""Keys under which code may return the whole candidate."""


def unwrapped(value: Any) -> Any:
    """Return the candidate under a key that says so, or the value as it is."""
    if isinstance(value, Mapping) and len(cast("Mapping[str, Any]", value)) == 1:
        (key, inner), *_ = cast("Mapping[str, Any]", value).items()
        if key in WRAPPERS:
            return inner
    return cast("Any", value)


def is_feedback(corrector: Corrector, value: Any) -> bool:
    """Return whether what a corrector gave is feedback for the generator, rather than the next candidate.

    Unless `apply` decides, an object is, whoever gave it, except one that wraps the candidate.
    """
    if corrector.apply != "auto":
        return corrector.apply == "feedback"
    return isinstance(value, Mapping) and unwrapped(value) is value


def has_all_keys(value: Any, output: Any) -> bool:
    """Return whether an object has all the keys of an output, as a corrected one would."""
    if not isinstance(value, Mapping) or not isinstance(output, Mapping) or not output:
        return False
    return set(cast("Mapping[str, Any]", output)) <= set(cast("Mapping[str, Any]", value))


def _json_or_text(text: str) -> Any:
    try:
        return json_of(text)
    except OutputError:
        return text
