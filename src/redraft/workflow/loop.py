"""`reflection.loop` and `reflection.correct`: generate, evaluate and correct until an output is valid."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import describe_error, from_record, to_json
from redraft._critique import render_feedback
from redraft._steps import step_scope
from redraft._texts import counted
from redraft.errors import (
    ChangedRunError,
    ConfigError,
    ModelError,
    OutputError,
    RedraftError,
    ReflectionFailedError,
    SandboxError,
    UnfinishedError,
    WorkflowError,
    over_budget,
)
from redraft.evaluate.compare import preference
from redraft.loop.budget import enclosing_budget
from redraft.loop.diagnose import Signals
from redraft.loop.journal import enclosing_step, journal_in, journalled_step
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.record import BUDGET_REASONS, Origin, RunRecord
from redraft.loop.run import Judges, Verbs, run_and_store
from redraft.loop.select import Selection, highest
from redraft.loop.stop import first, quality_met, unjudged
from redraft.redact.log import logger
from redraft.stores.run_index import RUN
from redraft.text.replies import json_of
from redraft.text.templates import template, templates_in
from redraft.types import (
    NOTHING_USED,
    ConvergenceReason,
    Draft,
    PlainTask,
    ReflectionEvaluation,
    TokenUsage,
    usage_before,
)
from redraft.workflow.runtime import (
    NO_TEMPLATES,
    SCHEMA,
    ActionResult,
    Resources,
    Scope,
    read_params,
    run_call,
)
from redraft.workflow.spec import (
    CORRECT,
    LLM_CALL,
    LOOP,
    Call,
    Corrector,
    CorrectParams,
    LoopParams,
    plain_name,
)
from redraft.workflow.verdict import FailedAttempt, Judge, errors_of, is_candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.protocols import ChatModel, Preference, RunContext, Step
    from redraft.text.schema import SchemaResult
    from redraft.types import Output, ReflectionResult, ReflectionVersion, Stop

RESULT_KEYS = (
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
"""The keys that a loop returns; keys of the output with these names remain in `reflection_output` only."""
RESULT = "result"
"""The key of an output that is not an object."""
REQUIREMENTS = "reflection_requirements"
"""The key of the state with the evaluator's requirements as text, from the first attempt on."""
NO_OUTPUT: Any = object()
"""There is no output to judge; None is an output where a schema allows null."""
FEEDBACK = "reflection_feedback"
"""The key of the state with the critique as text, for generators that run again."""


async def loop_action(params: Mapping[str, Any], scope: Scope, resources: Resources) -> ActionResult:
    """Generate, evaluate and correct until the output is valid, at most `max_iterations` times.

    `max_iterations` counts attempts: 3 makes at most 3 outputs. Without a corrector the generator runs again
    with the errors. The loop is stored, shown and resumed like any other run. If a judging model fails for
    good, or if the first attempt or two attempts in a row can't be judged, the loop ends with the attempts so
    far. Without a valid output, `on_failure: raise` raises `ReflectionFailedError`, whose `history` is the
    list in `reflection_history`. If the workflow's budget cuts the loop off, it raises `UnfinishedError` with
    the value so far, and goes on there when the node runs again.
    """
    loop = read_params(LoopParams, params, LOOP)
    attempts = scope.render(loop.max_iterations)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise ConfigError(f"{LOOP}: max_iterations must be a whole number of at least 1, got {attempts!r}.")
    judge = Judge(loop.evaluator, resources, f"{resources.spec.name}/{resources.node}")
    verbs = LoopVerbs(loop, judge, scope, resources, judge.rubric)
    pattern = ReflectionPattern(
        max_iterations=attempts - 1,
        quality_threshold=loop.evaluator.threshold,
        until=first(partial(quality_met, threshold=loop.evaluator.threshold), _not_judged),
        diversify=False,
        candidates=loop.candidates,
        accept=loop.accept,
        best_version_selection="latest" if loop.on_failure == "return_last" else "highest_score",
        on_event=resources.on_event,
    )
    task = PlainTask(verbs.description())
    accept = None
    if loop.accept == "pairwise":
        accept = _preference(resources.model_for(scope.render(loop.evaluator.model), scope))
    judges = Judges(
        verbs.evaluate,
        Signals(judge_id=judge.judge_id(scope)),
        judge.criteria,
        output_alone=judges_output_alone(loop),
        accept=accept,
    )
    step, earlier = await _step_of(task, resources)
    try:
        result = await run_and_store(
            pattern,
            task,
            Verbs(verbs.generate, judges, verbs.revise),
            step,
            None,
            Origin("workflow", resources.spec.name),
            on_token=resources.on_token,
            within=enclosing_budget(),
        )
    except RedraftError as error:
        error.usage = (error.usage or NOTHING_USED) + earlier
        raise
    used = result.token_usage + earlier
    failure, reason = result.error, ""
    if failure is not None and result.convergence_reason is ConvergenceReason.ERROR:
        if isinstance(failure, RedraftError) and not isinstance(failure, ModelError | OutputError):
            failure.usage = used
            raise failure
        reason = f"The evaluator failed: {describe_error(failure)}"
        logger.warning("%s ended early, with the attempts made so far. %s", LOOP, reason)
    elif result.stop is not None and result.convergence_reason in EARLY:
        reason = result.stop.detail
    value = loop_value(result, pattern.best_version_selection, reason)
    if not value["success"] and _is_cut_off(result):
        cut_off = UnfinishedError(reason, reason=result.convergence_reason, usage=used)
        cut_off.partial = None if loop.on_failure == "raise" else to_json(value)
        raise cut_off from failure
    if not value["success"] and loop.on_failure == "raise":
        history = value["reflection_history"]
        error = ReflectionFailedError(
            f"No valid output in {counted(len(history), 'attempt')}. {reason}".strip(), history
        )
        error.usage = used
        raise error from failure
    return ActionResult(value, used)


async def _step_of(task: PlainTask, resources: Resources) -> tuple[Step, TokenUsage]:
    """The step of a loop's run, and the usage of earlier runs of it.

    If the node failed after its loop had ended, as with `on_failure: raise`, a resumed workflow runs the loop
    again: the stored attempts would lead to the same failure, whatever has been corrected. A loop that a
    budget cut off has not ended.
    """
    step, node, earlier = journalled_step(resources.keep, None, task), enclosing_step(), NOTHING_USED
    for number in range(0 if node is None else node.failures):
        journal = journal_in(step)
        stored = None if journal is None else await journal.store.get(RUN, journal.run_id)
        record = None if stored is None else from_record(RunRecord, stored.data)
        if record is None or not record.is_final:
            break
        earlier += record.usage
        step = journalled_step(resources.keep, None, PlainTask(f"{task.description} ~{number + 1}"))
    if (budget := enclosing_budget()) is not None:
        budget.count_replayed(earlier)
    return step, earlier


def _is_cut_off(result: ReflectionResult) -> bool:
    """Whether the workflow's budget ended a loop, not the time limit of its node."""
    limit = enclosing_budget()
    around = None if limit is None else limit.outer
    is_spent = around is not None and around.tally.exhausted is not None
    return is_spent and result.convergence_reason in BUDGET_REASONS


def _not_judged(versions: Sequence[ReflectionVersion], /) -> Stop | None:
    """Stop when outputs can't be judged; attempts without an output do not count."""
    outputs = [version for version in versions if not isinstance(version.output, FailedAttempt)]
    return unjudged(outputs) if outputs and outputs[-1] is versions[-1] else None


def _preference(model: ChatModel) -> Preference:
    """Let a model compare two outputs; a failed attempt is worse than any output."""
    compare = preference((), model)

    async def prefer(output: Output, other: Output, run: RunContext, /) -> ReflectionEvaluation:
        failed, other_failed = isinstance(output, FailedAttempt), isinstance(other, FailedAttempt)
        if failed or other_failed:
            return ReflectionEvaluation(0.5 + (other_failed - failed) / 2)
        return await compare(output, other, run)

    return prefer


@dataclass(frozen=True, slots=True)
class LoopVerbs:
    """The three verbs of a loop. They read earlier attempts only from the versions of the run."""

    params: LoopParams
    judge: Judge
    scope: Scope
    resources: Resources
    requirements: str

    def description(self) -> str:
        """The generator's prompt, rendered for the first attempt, or its code or action."""
        generator = self.params.generator
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
        """Run the corrector; if it returns feedback, or there is no corrector, run the generator again.

        The corrector corrects the latest output, as documented; `state.reflection_best` is the best output.
        If it fails or returns nothing, the generator runs again within the same attempt and sees the error.
        """
        corrector, version = self.params.corrector, last_output(run.versions)
        if corrector is None or version is None:
            return await self._generate(run, {})
        try:
            writes_candidate = corrector.apply == "replace" or (
                corrector.apply == "auto" and _returns_text(corrector)
            )
            call = self._stating_requirements(corrector) if writes_candidate else corrector
            # The tokens of feedback are not streamed: they are not part of an output.
            with nullcontext() if writes_candidate else step_scope(text=None):
                result = await run_call(call, self._scope_after(run.versions), self.resources)
        except FATAL:
            raise
        except Exception as error:  # (any error of the file's code or action)
            if over_budget(error):
                raise
            return await self._generate_instead(run, _failed_draft("corrector", error, "corrected"))
        if not is_feedback(corrector, result.value):
            output = result.value
            if corrector.apply == "auto":
                output = self._unwrapped(output, version.output)
            draft = self._draft("corrector", output, result.usage, "corrected")
            if isinstance(draft.output, FailedAttempt):
                return await self._generate_instead(run, draft)
            return draft
        self._warn_once_if_ambiguous(corrector, result.value, version.output, run)
        feedback: Any = result.value
        if not isinstance(feedback, dict):
            feedback = {} if feedback is None else {FEEDBACK: str(feedback)}
        draft = await self._generate(run, cast("dict[str, Any]", feedback))
        draft.usage += result.usage
        return draft

    def _unwrapped(self, value: Any, output: Output) -> Any:
        """The candidate in a corrector's value: the value itself, or an inner value that fits better."""
        inner, schema = unwrap(value, output), self.judge.schema
        if not isinstance(value, Mapping) or schema is None:
            return inner
        choices = [inner, cast("Mapping[str, Any]", value), unwrap(value, None)]
        return max(choices, key=lambda choice: _fit(schema.check(choice)))  # ties keep the first

    async def _generate_instead(self, run: RunContext, failed: Draft) -> Draft:
        """Run the generator in place of a failed corrector, and show it the error."""
        why = failed.output.message
        logger.warning("%s The generator runs again.", why)
        draft = await self._generate(run, {}, why)
        draft.usage += failed.usage
        if isinstance(draft.output, FailedAttempt):
            draft.output = draft.output.model_copy(update={"message": f"{why} {draft.output.message}"})
        return draft

    def _warn_once_if_ambiguous(
        self, corrector: Corrector, value: Any, output: Output, run: RunContext
    ) -> None:
        """Warn once about feedback that looks like a corrected output."""
        is_first = all(version.memo is None for version in run.versions)
        if is_first and corrector.apply == "auto" and _has_all_keys(value, output):
            logger.warning(
                "The corrector returned an object with all keys of the output. It is taken as feedback: its "
                "keys go into the state, and the generator runs again. If it is the corrected output, add "
                "'apply: replace' to the corrector; if not, 'apply: feedback'."
            )

    async def _generate(self, run: RunContext, feedback: Mapping[str, Any], failure: str = "") -> Draft:
        """Run the generator with a corrector's feedback, or with the error of a failed corrector."""
        critique = render_feedback(run.attempt)
        if addition := failure or feedback.get(FEEDBACK):
            critique = f"{addition}\n\n{critique}"
        scope = self._scope_after(run.versions, {**feedback, FEEDBACK: critique})
        if failure:
            errors = [*scope.state["reflection_errors"], {"message": failure}]
            scope = scope.inside_loop({"reflection_errors": errors})
        generator, strategy = self._stating_requirements(self.params.generator), "draft"
        if run.versions:
            generator, strategy = with_feedback(generator), "regenerated"
        generator = with_temperature(generator, run.attempt.temperature)
        try:
            result = await run_call(generator, scope, self.resources)
        except FATAL:
            raise
        except Exception as error:  # (as above)
            if over_budget(error):
                raise
            draft = _failed_draft("generator", error, strategy)
        else:
            draft = self._draft("generator", result.value, result.usage, strategy)
        draft.memo = dict(feedback) or None
        return draft

    def _stating_requirements(self, call: Call) -> Call:
        """The call with the requirements in its prompt, unless the prompt has them or no model is called."""
        return _with_text(call, REQUIREMENTS) if self.requirements and _asks_model(call) else call

    def _draft(self, who: str, value: Any, usage: TokenUsage, strategy: str) -> Draft:
        output = self.judge.candidate(value)
        if output is None and not self._may_be_null(who):
            output = FailedAttempt(message=f"The {who} returned nothing.")
        return Draft(output, usage, strategy=strategy)

    def _may_be_null(self, who: str) -> bool:
        """Whether null is an output, by the schema of the evaluator or of the call."""
        if self.judge.schema is not None:
            return self.judge.schema.check(None).valid
        call = self.params.generator if who == "generator" else self.params.corrector
        return call is not None and _asks_model(call) and SCHEMA in call.params

    def _scope_after(
        self,
        versions: tuple[ReflectionVersion, ...],
        feedback: Mapping[str, Any] | None = None,
        *,
        output: Any = NO_OUTPUT,
    ) -> Scope:
        """The scope of the attempt after `versions`: its state, and all feedback so far."""
        state = loop_state(versions, output)
        earlier: dict[str, Any] = {}
        for version in versions:
            earlier |= version.memo or {}
        fixed = {REQUIREMENTS: self.requirements, FEEDBACK: ""}
        return self.scope.inside_loop({**fixed, **earlier, **(feedback or {}), **state})


FATAL = (ConfigError, WorkflowError, ChangedRunError)
"""Errors that end the loop immediately: another attempt would raise them again."""
EARLY = (*BUDGET_REASONS, ConvergenceReason.UNJUDGED)
"""Reasons for which a loop ends early: a spent budget or time limit, or outputs that can't be judged."""


def _failed_draft(who: str, error: Exception, strategy: str) -> Draft:
    """The draft of an attempt that raised `error`, with its usage until then."""
    return Draft(
        FailedAttempt(
            message=f"The {who} failed: {describe_error(error)}", unreachable=isinstance(error, ModelError)
        ),
        usage_before(error),
        strategy=strategy,
    )


def loop_state(versions: Sequence[ReflectionVersion], output: Output = NO_OUTPUT) -> dict[str, Any]:
    """The state variables during the attempt after `versions`.

    `output` is the output to judge. Before that, `reflection_output` is the latest earlier output, and
    `reflection_errors` has its errors; they are those of a failed attempt only if all attempts failed.
    """
    version = last_output(versions) or (versions[-1] if versions else None)
    if output is NO_OUTPUT:
        output = None if version is None else version.output
    return {
        "reflection_iteration": len(versions) + 1,
        "reflection_output": output_data(output),
        "reflection_errors": [] if version is None else errors_of(version.evaluation),
        "reflection_history": history_of(versions),
        "reflection_best": None,
        "reflection_best_score": 0.0,
        **_best_values(versions),
    }


def loop_value(result: ReflectionResult, selection: Selection, reason: str = "") -> dict[str, Any]:
    """The documented value of a finished loop, together with the keys of the output.

    `reason` says why it ended early, if it did. The best attempt is always a candidate (`is_candidate`),
    even if another attempt has a higher score. Keys without a value are left out, so that
    `state.get("reflection_best", {})` works.
    """
    history = result.history
    versions = history.versions
    best = None if selection == "latest" else _best(versions) or last_output(versions)
    chosen = best or history.final_version
    output = output_data(chosen.output)
    values: dict[str, Any] = {
        "success": result.success,
        "valid": result.success,
        "reflection_iteration": history.total_iterations + 1,
        "reflection_output": output,
        "reflection_errors": errors_of(chosen.evaluation),
        "reflection_history": history_of(versions),
        **_best_values(versions),
    }
    if isinstance(chosen.output, FailedAttempt):
        del values["reflection_output"]
    if reason:
        values["reflection_reason"] = reason
    elif not result.success:
        values["exhausted"] = True
    if not is_candidate(chosen.evaluation):
        return values
    if isinstance(output, Mapping):
        own = cast("Mapping[str, Any]", output)
        return {key: value for key, value in own.items() if key not in RESULT_KEYS} | values
    return {RESULT: output} | values


def history_of(versions: Sequence[ReflectionVersion]) -> list[dict[str, Any]]:
    """All attempts, as the documented entries of `reflection_history`."""
    return [
        {
            "iteration": version.iteration,
            "output": output_data(version.output),
            "score": version.evaluation.overall_score,
            "valid": version.evaluation.satisfactory,
            "errors": errors_of(version.evaluation),
            "suggestions": list(version.evaluation.suggestions),
        }
        for version in versions
    ]


def last_output(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    """The latest attempt that did not fail."""
    outputs = (version for version in reversed(versions) if not isinstance(version.output, FailedAttempt))
    return next(outputs, None)


def output_data(output: Output) -> Any:
    """An output as templates and code see it: None for a failed attempt."""
    return None if isinstance(output, FailedAttempt) else output


def _best_values(versions: Sequence[ReflectionVersion]) -> dict[str, Any]:
    """The best attempt and its score, as far as they exist."""
    best = _best(versions)
    if best is None:
        return {}
    values = {"reflection_best": output_data(best.output)}
    if (score := best.evaluation.overall_score) is not None:
        values["reflection_best_score"] = score
    return values


def _best(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    candidates = [version for version in versions if is_candidate(version.evaluation)]
    return highest(candidates) if candidates else None


def judges_output_alone(loop: LoopParams) -> bool:
    """Whether the evaluator would judge the same output the same way in a later attempt.

    Code reads the whole state, so its verdict may change. The verdict of a model may change if its prompt
    reads a part of the state that changes between attempts.
    """
    evaluator, corrector = loop.evaluator, loop.corrector
    if evaluator.type != "llm":
        return evaluator.type == "schema"
    may_give_feedback = corrector is not None and (
        corrector.apply == "feedback" or (corrector.apply == "auto" and not _returns_text(corrector))
    )
    changing = (*RESULT_KEYS, FEEDBACK)
    read = template(str(evaluator.prompt)).paths | template(evaluator.model or "").paths
    return all(
        path[:2] == ("state", "reflection_output")
        or (not may_give_feedback and path[1:] and path[1] not in changing)
        for path in read
        if path[0] == "state"
    )


def _returns_text(call: Call) -> bool:
    return plain_name(str(call.action)) == LLM_CALL and SCHEMA not in call.params


def with_feedback(generator: Call) -> Call:
    """The generator with the feedback added to its prompt, unless one of its templates has it."""
    return _with_text(generator, FEEDBACK, "reflection_errors", "reflection_history")


def _with_text(call: Call, name: str, *others: str) -> Call:
    """Add a text of the state to a prompt or messages, unless they mention it or one of the `others`."""
    templates = [template(text) for text, _ in templates_in(call.params, (), NO_TEMPLATES)]
    if any(compiled.mentions(f"state.{key}") for key in (name, *others) for compiled in templates):
        return call
    addition = f"{{{{ state.{name} }}}}"
    prompt, messages = call.params.get("prompt"), call.params.get("messages")
    if isinstance(prompt, str):
        return call.model_copy(update={"prompt": f"{prompt}\n\n{addition}"})
    if isinstance(messages, list):
        turns = [*cast("list[Any]", messages), {"role": "user", "content": addition}]
        return call.model_copy(update={"messages": turns})
    return call


def with_temperature(generator: Call, temperature: float | None) -> Call:
    """The generator with a temperature, unless it has a temperature or does not call a model."""
    if temperature is None or not _asks_model(generator) or "temperature" in generator.params:
        return generator
    return generator.model_copy(update={"temperature": temperature})


def _asks_model(call: Call) -> bool:
    return call.action is not None and plain_name(call.action) == LLM_CALL


async def correct_action(params: Mapping[str, Any], scope: Scope, resources: Resources) -> ActionResult:
    """Correct `data` once; the value is `{corrected_output, success}`.

    A model's reply is parsed if it is JSON and the data is not text. If the corrector fails or returns
    nothing, `success` is False, `corrected_output` is the unchanged data, and `error` says why.
    """
    options = read_params(CorrectParams, params, CORRECT)
    state = scope.state
    data = state.get("reflection_output") if options.data is None else scope.render(options.data)
    errors = state.get("reflection_errors", []) if options.errors is None else scope.render(options.errors)
    additions = {"reflection_errors": errors}
    if options.data is not None:  # without data, a prompt must not read an output that nothing has set
        additions["reflection_output"] = data
    inside = scope.inside_loop(additions)
    unchanged = {"corrected_output": data, "success": False}
    call = options.call()
    try:
        result = await run_call(call, inside, resources)
    except (SandboxError, OutputError, ModelError) as error:
        if isinstance(error, ModelError) and not error.unusable_reply:
            raise
        logger.warning("The corrector failed: %s", error)
        return ActionResult({**unchanged, "error": str(error)}, error.usage or NOTHING_USED)
    corrected = result.value
    is_of_model = _asks_model(call) and resources.own_action(str(call.action)) is None
    if is_of_model and isinstance(corrected, str) and not isinstance(data, str):
        with suppress(OutputError):  # then it stays text
            corrected = json_of(corrected)
    if corrected is None:
        return ActionResult({**unchanged, "error": "The corrector returned nothing."}, result.usage)
    return ActionResult({"corrected_output": corrected, "success": True}, result.usage)


WRAPPERS = ("corrected_output", "reflection_output", "output")
"""Keys under which a corrector with `apply: auto` may return the candidate."""


def unwrap(value: Any, output: Output) -> Any:
    """Take the candidate out of an object with a single wrapper key, unless `output` itself has that key."""
    if isinstance(value, Mapping) and len(cast("Mapping[str, Any]", value)) == 1:
        (key, inner), *_ = cast("Mapping[str, Any]", value).items()
        if key in WRAPPERS and not (isinstance(output, Mapping) and key in output):
            return inner
    return cast("Any", value)


def _fit(result: SchemaResult) -> tuple[bool, bool, float]:
    return not result.wrong_type, result.valid, result.score


def is_feedback(corrector: Corrector, value: Any) -> bool:
    """Whether a corrector's value is feedback for the generator rather than the next candidate.

    With `apply: auto`, every object is feedback, unless it wraps the candidate.
    """
    if corrector.apply != "auto":
        return corrector.apply == "feedback"
    return isinstance(value, Mapping) and unwrap(value, None) is value


def _has_all_keys(value: Any, output: Any) -> bool:
    """Whether an object has all the keys of an output, as a corrected output would."""
    if not isinstance(value, Mapping) or not isinstance(output, Mapping) or not output:
        return False
    return set(cast("Mapping[str, Any]", output)) <= set(cast("Mapping[str, Any]", value))
