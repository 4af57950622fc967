"""reflection.loop, reflection.evaluate and reflection.correct."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from redraft._calls import evaluation_of, render_feedback
from redraft._codec import said_of
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
from redraft.evaluate.ask import ask
from redraft.loop.keeper import kept_step, run_kept
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.record import Origin
from redraft.loop.run import Judges, Verbs
from redraft.loop.select import Selection, highest
from redraft.loop.stop import quality_met
from redraft.protocols import ChatReply, Message
from redraft.redact.log import logger
from redraft.text.replies import fenced, json_of, verdict_json_of
from redraft.text.schema import Schema, SchemaResult
from redraft.text.templates import template
from redraft.types import (
    NOTHING_USED,
    ConvergenceReason,
    Draft,
    Issue,
    ReflectionEvaluation,
    Task,
    TokenUsage,
)
from redraft.workflow.scope import (
    SCHEMA,
    Bench,
    FailedAttempt,
    Made,
    Scope,
    checked,
    make,
    run_code,
    templates_in,
)
from redraft.workflow.spec import (
    LLM_CALL,
    Corrector,
    CorrectParams,
    EvaluateParams,
    Evaluator,
    LoopParams,
    Maker,
    plain_name,
)

if TYPE_CHECKING:
    from redraft.protocols import RunContext
    from redraft.types import Output, ReflectionResult, ReflectionVersion


def verdict(
    score: float | None,
    *,
    valid: bool,
    errors: Sequence[Any],
    suggestions: Sequence[str] = (),
    candidate: bool = True,
) -> ReflectionEvaluation:
    """Return an evaluation; its memo keeps the errors as they were said, as objects with a `message`.

    What is no `candidate`, such as a text without JSON where an object is wanted, is never the best attempt.
    """
    objects = [_object(error) for error in errors]
    issues = tuple(Issue(error["message"], path=str(error.get("path") or "") or None) for error in objects)
    return ReflectionEvaluation(
        score,
        satisfactory=valid,
        issues=issues,
        suggestions=tuple(suggestions),
        memo={"errors": objects} if candidate else {"errors": objects, "candidate": False},
    )


def verdict_said(value: Any, threshold: float, score_max: float | None = None) -> ReflectionEvaluation:
    """Return the evaluation that code or a judge said: a bool, a number, or an object.

    An object has `valid` or `score`, and may have `reason`, `errors` and `suggestions`. `valid` decides;
    a score alone is valid from `threshold` on. Where `score_max` is declared, scores go up to it, not to 1.
    Raises `OutputError` for anything else.
    """
    errors: list[Any] = []
    if isinstance(value, Mapping):
        said = dict(cast("Mapping[str, Any]", value))
        given = said.pop("errors", None)
        errors = cast("list[Any]", given) if isinstance(given, list) else [] if not given else [given]
        value = said
    read = evaluation_of(value, threshold, score_max)
    if not errors:  # the reason of what is not valid
        errors = [issue.message for issue in read.issues]
    return verdict(read.overall_score, valid=read.satisfactory, errors=errors, suggestions=read.suggestions)


def unjudged(why: str) -> ReflectionEvaluation:
    """Return the evaluation of what could not be judged: no score, and not valid."""
    return replace(verdict(None, valid=False, errors=[f"Not judged: {why}"]), confidence=0.0)


def evaluator_failed(why: object) -> ReflectionEvaluation:
    """Return the evaluation of what the evaluator's code failed on: not valid, and nothing is known of it."""
    failed = verdict(0.0, valid=False, errors=[f"The evaluator failed: {why}"])
    return replace(failed, confidence=0.0)


def is_candidate(evaluation: ReflectionEvaluation) -> bool:
    """Say whether the output that was judged may be the best attempt."""
    return evaluation.memo is None or evaluation.memo.get("candidate", True)


def shown_verdict(evaluation: ReflectionEvaluation) -> dict[str, Any]:
    """Return an evaluation as the documented return value of `reflection.evaluate`.

    `success` says that the data could be judged, whatever the verdict.
    """
    return {
        "success": evaluation.confidence > 0,
        "valid": evaluation.satisfactory,
        "score": evaluation.overall_score,
        "errors": errors_of(evaluation),
        "suggestions": list(evaluation.suggestions),
    }


def errors_of(evaluation: ReflectionEvaluation) -> list[dict[str, Any]]:
    """Return what is wrong, as templates and code see it."""
    if evaluation.memo is None:  # one that the loop itself made, of a draft that was not judged
        return [{"message": issue.message} for issue in evaluation.issues]
    return list(evaluation.memo["errors"])


def _object(error: Any) -> dict[str, Any]:
    if not isinstance(error, Mapping):
        return {"message": str(error)}
    said = dict(cast("Mapping[str, Any]", error))
    message = said.get("message")
    # A template that shows `error.message` must find one, whatever a model called it.
    return said | {"message": json.dumps(said, ensure_ascii=False) if message is None else str(message)}


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


def loop_state(versions: Sequence[ReflectionVersion], output: Output = None) -> dict[str, Any]:
    """Return the state variables during the attempt after `versions`.

    `output` is what is being judged. Before there is one, the last that was made is the current one, and the
    errors are its own; an attempt that made none is told of only while there is no other.
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
        **_shown_best(versions),
    }


def current(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    """Return the last attempt that made something."""
    return next((one for one in reversed(versions) if not isinstance(one.output, FailedAttempt)), None)


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


def outcome(result: ReflectionResult, selection: Selection, reason: str = "") -> dict[str, Any]:
    """Return the documented value of a loop that ended, with the keys of its output beside them.

    `reason` says why it ended before its attempts were used up, if it did. The best attempt is a candidate,
    whatever the others scored. What has no value is no key, so that `state.get("reflection_best", {})` works.
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
        **_shown_best(versions),
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


def _is_candidate(version: ReflectionVersion) -> bool:
    return not isinstance(version.output, FailedAttempt) and is_candidate(version.evaluation)


def _best(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    candidates = [version for version in versions if _is_candidate(version)]
    return highest(candidates) if candidates else None


def _shown_best(versions: Sequence[ReflectionVersion]) -> dict[str, Any]:
    """Return the keys of the best attempt, and of its score, that have a value."""
    best = _best(versions)
    if best is None:
        return {}
    score = best.evaluation.overall_score
    known = {} if score is None else {"reflection_best_score": score}
    return {"reflection_best": plain(best.output), **known}


def plain(output: Output) -> Any:
    """Return an output as templates and code see it; an attempt that failed has none.

    All others are plain JSON data already, and nobody who sees them can change them: actions get a copy.
    """
    return None if isinstance(output, FailedAttempt) else output


FORM = (
    'Reply with one JSON object: {"valid": true or false, "score": a number from 0.0 to 1.0, '
    '"reason": "one sentence", "errors": ["what is wrong"], "suggestions": ["what to do"]}.'
)


async def evaluate_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Judge `data`; return `{success, valid, score, errors, suggestions}`.

    `success` is False where the data could not be judged; the score is then None, or 0 where code failed.
    """
    given = checked(EvaluateParams, params, "reflection.evaluate")
    data = scope.state.get("reflection_output") if given.data is None else scope.render(given.data)
    judge = Judge.of(given.evaluator(), bench)
    output = judge.candidate(data)
    evaluation = await judge(output, scope.adding({"reflection_output": output}))
    return Made(shown_verdict(evaluation), evaluation.usage)


def check_evaluator(evaluator: Evaluator) -> None:
    """Raise `ConfigError` for an evaluator that lacks what its type needs, or has what it can't use."""
    needed = {"schema": "schema", "llm": "prompt", "custom": "run"}[evaluator.type]
    has = {"schema": evaluator.schema_, "prompt": evaluator.prompt, "run": evaluator.run}
    if has[needed] is None:
        raise ConfigError(f"an evaluator of the type {evaluator.type!r} needs {needed!r}")
    for key, value in has.items():
        if key != needed and value is not None:
            raise ConfigError(f"{key!r} is not for an evaluator of the type {evaluator.type!r}")


@dataclass(slots=True)
class Judge:
    """Judge outputs as an evaluator of a file says. `found` is what its schema said of the last candidate."""

    evaluator: Evaluator
    bench: Bench
    schema: Schema | None
    found: SchemaResult | None = None

    @classmethod
    def of(cls, evaluator: Evaluator, bench: Bench) -> Judge:
        """Return the judge that an evaluator describes; raises `ConfigError` for one that can't be used."""
        check_evaluator(evaluator)
        schema = bench.schema(evaluator.schema_) if evaluator.type == "schema" else None
        return cls(evaluator, bench, schema)

    def candidate(self, value: Any) -> Any:
        """Return an output as it is judged and kept: for a schema, JSON read out of text, and coerced."""
        if self.schema is None:
            return value
        self.found = self.schema.check(value)
        return self.found.value

    async def __call__(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        """Judge a candidate; one that code can't judge is not valid, one that a model can't has no score.

        Raises `ModelError` where the provider failed for good, and `ConfigError`.
        """
        if isinstance(output, FailedAttempt):
            return verdict(0.0, valid=False, errors=[output.message])
        if self.schema is not None:
            found = self.found
            # One out of the journal was not looked at yet. To `==`, 1 and True are the same, to a schema not.
            if found is None or repr(found.value) != repr(output):
                found = self.schema.check(output)
            errors = [problem.as_dict() for problem in found.errors]
            return verdict(
                found.score,
                valid=found.valid,
                errors=errors,
                suggestions=found.suggestions,
                candidate=not found.wrong_type,
            )
        return await (self._asked if self.evaluator.type == "llm" else self._run)(output, scope)

    async def _asked(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        evaluator = self.evaluator
        source = str(evaluator.prompt)
        told = scope.text(source)
        if not template(source).mentions("state.reflection_output"):
            told = f"{told}\n\n{fenced(_text(output), 'output')}"
        examples = [
            message
            for example in evaluator.examples
            for message in (
                Message("user", _text(example.input)),
                Message("assistant", _text(example.output)),
            )
        ]
        messages = (Message("system", FORM), *examples, Message("user", told))

        def read(reply: ChatReply) -> tuple[ReflectionEvaluation | None, str]:
            try:
                return verdict_said(_judged_object(reply.text), evaluator.threshold, evaluator.score_max), ""
            except OutputError as error:
                return None, str(error)

        answered = await ask(self.bench.model_for(scope.render(evaluator.model), scope), messages, None, read)
        judged = answered.value or unjudged(answered.problem)
        return replace(judged, usage=answered.usage)

    async def _run(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        inside = scope.adding(
            {"reflection_output": output},
            output=output,
            reflection_output=output,
            reflection_errors=scope.state.get("reflection_errors", []),
            reflection_iteration=scope.state.get("reflection_iteration", 1),
        )
        try:
            made = await run_code(self.evaluator, inside, self.bench)
            return verdict_said(made.value, self.evaluator.threshold, self.evaluator.score_max)
        except (SandboxError, OutputError) as error:
            return evaluator_failed(error)


def _judged_object(reply: str) -> dict[str, Any]:
    value = verdict_json_of(reply)
    if not isinstance(value, dict):
        raise OutputError("expected a JSON object with 'valid' or 'score'")
    return cast("dict[str, Any]", value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else template("{{ value | tojson }}").render({"value": value})


WRAPPERS = ("corrected_output", "reflection_output", "output")
"""Keys under which code may return the whole candidate."""


async def correct_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Correct `data` once; return `{corrected_output, success}`.

    A reply that is JSON where the data was none of text is read as JSON. `success` is False where the
    corrector failed or gave nothing; `corrected_output` is then the data as it was, and `error` says why.
    """
    given = checked(CorrectParams, params, "reflection.correct")
    data = scope.state.get("reflection_output") if given.data is None else scope.render(given.data)
    errors = scope.state.get("reflection_errors", []) if given.errors is None else scope.render(given.errors)
    inside = scope.adding(
        {"reflection_output": data, "reflection_errors": errors},
        output=data,
        reflection_output=data,
        reflection_errors=errors,
        reflection_iteration=scope.state.get("reflection_iteration", 1),
    )
    maker = maker_of(given)
    try:
        made = await make(maker, inside, bench)
    except (SandboxError, OutputError) as error:
        logger.warning("The corrector failed: %s", error)
        return Made(_not_corrected(data, str(error)), error.usage or NOTHING_USED)
    corrected = unwrapped(made.value)
    if made.is_reply and isinstance(corrected, str) and not isinstance(data, str):
        corrected = _json_or_text(corrected)
    if corrected is None:
        return Made(_not_corrected(data, "The corrector gave nothing."), made.usage)
    return Made({"corrected_output": corrected, "success": True}, made.usage)


def _not_corrected(data: Any, why: str) -> dict[str, Any]:
    return {"corrected_output": data, "success": False, "error": why}


def maker_of(given: CorrectParams) -> Maker:
    """Return what corrects; raises `ConfigError` unless exactly one of the ways is given."""
    ways = [way for way in (given.corrector_action, given.run) if way is not None]
    if len(ways) > 1 or (given.run is not None and given.prompt is not None) or not (ways or given.prompt):
        raise ConfigError("reflection.correct: give one of 'prompt', 'corrector_action' and 'run'")
    if given.run is not None:
        return Maker.model_validate(given.model_dump(include={"run", "language", "sandbox"}))
    params = {"prompt": given.prompt, "model": given.model}
    chosen = {key: value for key, value in params.items() if value is not None}
    return Maker.model_validate({"action": given.corrector_action or LLM_CALL, **chosen})


def unwrapped(value: Any) -> Any:
    """Return the candidate that stands under a key that says so, or the value as it is."""
    if isinstance(value, Mapping) and len(cast("Mapping[str, Any]", value)) == 1:
        (key, inner), *_ = cast("Mapping[str, Any]", value).items()
        if key in WRAPPERS:
            return inner
    return cast("Any", value)


def is_feedback(corrector: Corrector, value: Any) -> bool:
    """Say whether what a corrector gave is feedback for the generator, rather than the next candidate.

    Unless `apply` says otherwise an object is, whoever gave it, but for one that wraps the candidate.
    """
    if corrector.apply != "auto":
        return corrector.apply == "feedback"
    return isinstance(value, Mapping) and unwrapped(value) is value


def looks_like(value: Any, output: Any) -> bool:
    """Say whether an object has all the keys of an output, as a corrected one would."""
    if not isinstance(value, Mapping) or not isinstance(output, Mapping) or not output:
        return False
    return set(cast("Mapping[str, Any]", output)) <= set(cast("Mapping[str, Any]", value))


def _json_or_text(text: str) -> Any:
    try:
        return json_of(text)
    except OutputError:
        return text


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
        until=partial(quality_met, threshold=given.evaluator.threshold),
        diversify=False,
        best_version_selection="latest" if given.on_failure == "return_last" else "highest_score",
        on_event=bench.on_event,
    )
    task = Task(attempt.describe())
    origin = Origin("workflow", bench.name)
    step = kept_step(bench.keep, None, task)
    judges = Judges(attempt.evaluate, output_alone=sees_output_alone(given))
    verbs = Verbs(attempt.generate, judges, attempt.revise)
    result = await run_kept(task, verbs, pattern.run_options, step, None, origin)
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
