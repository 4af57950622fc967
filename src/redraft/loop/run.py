"""The loop: generate, evaluate, revise, until a rule says stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from os import urandom
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft._calls import awaited, called
from redraft._codec import MISTAKES, to_json
from redraft._steps import OBSERVE, direct, step_scope, uncancelled
from redraft._telemetry import traced
from redraft._texts import (
    as_text,
    copy_of,
    counted,
    key_of,
    listed,
    remembering_sources,
    short_repr,
    shortfalls,
    snapshot,
)
from redraft._validation import named_error, readable
from redraft._verdicts import advice_of
from redraft.errors import (
    ChangedRunError,
    ConfigError,
    ReflectionDueError,
    ReflectionFailedError,
    StoreError,
    UnfinishedError,
)
from redraft.evaluate.criteria import recorded as recorded_criteria
from redraft.evaluate.evidence import have_same_results
from redraft.evaluate.requirements import rubric_of
from redraft.events import RunFinished, RunStarted, TokenEvent, VersionEvaluated
from redraft.loop.budget import StepBudget, Tally, enclosing_budget
from redraft.loop.candidates import best_of
from redraft.loop.diagnose import NO_JUDGE, Signals, diagnose
from redraft.loop.event_log import emitter, is_logging, log_event
from redraft.loop.journal import OUTSIDE, STEP, journal_in
from redraft.loop.mistakes import MistakeAdvice, report_ignored
from redraft.loop.output_type import OutputType
from redraft.loop.select import BestScores, comparing, first_best_last, select
from redraft.loop.steps import Steps
from redraft.loop.stop import after
from redraft.loop.strategy import next_attempt
from redraft.loop.triggers import NO_TRIGGERS, RunState, reflecting_generator, reflecting_reviser
from redraft.loop.ways import (
    RevisionEvidence,
    attempt_in,
    choose_way,
    possible_ways,
    remember,
    remembered,
    revisions_of,
    situation_of,
    stored_evidence,
    usual_way,
)
from redraft.protocols import (
    Attempt,
    ChatModel,
    CriteriaAdvisor,
    Evaluator,
    FailureObserver,
    Generator,
    MistakeAdvisor,
    Preference,
    ReflectionDecision,
    Reviser,
    RunContext,
)
from redraft.redact.log import logger
from redraft.types import (
    NOT_JUDGED,
    Advice,
    ConvergenceReason,
    Draft,
    Issue,
    QualityCriterion,
    ReflectionEvaluation,
    ReflectionHistory,
    ReflectionResult,
    ReflectionVersion,
    Stop,
    Way,
    replaces,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from redraft.events import Event
    from redraft.loop.journal import Journalled
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.record import Origin, RunRecord
    from redraft.protocols import Step
    from redraft.types import PlainTask


@dataclass(frozen=True, slots=True)
class Judges:
    """The evaluator of a run, and what it judges by."""

    evaluate: Evaluator
    signals: Signals = NO_JUDGE
    """Where the scores come from."""
    criteria: tuple[QualityCriterion, ...] = ()
    """The criteria; empty for an evaluator of the user's."""
    output_alone: bool = True
    """Whether a judgement depends on the output alone, so that an identical output is not judged again."""
    rubric: str = ""
    """The criteria as the writer sees them; empty if it sees none."""
    accept: Preference | None = None
    """Compares a version with the best one, in place of their scores."""


@dataclass(frozen=True, slots=True)
class Verbs:
    """The verbs of a run: generate, evaluate, revise."""

    generate: Generator | None
    """Without it, `revise` also makes fresh starts."""
    judges: Judges
    revise: Reviser
    output_type: OutputType[Any] | None = None
    """The type into which drafts are read, if there is one."""
    reflector: ChatModel | None = None
    """The model that reflects in the middle of the run, if a trigger needs it."""
    system_prompt: str = ""
    """The system prompt of the writer, as far as it is known."""
    state: RunState | None = None
    """The state that a program already holds before the run begins."""
    ways: tuple[str, ...] = ()
    """The ways in which the model can revise; the run chooses between them by what earlier runs show."""


class Run:
    """A run in progress: its `versions` so far, and its `result` once it has ended with at least one.

    `name` and `model` identify its evidence on revisions, and `label` (by default the name) the run in
    traces. `advice` and `diagnostics` are there from the start, before any advisor is asked. Models stream
    only if there is an `on_token`. `within` is the budget of the workflow in which the run is a step; a
    budget that several runs share bounds the run in any case. `journal` is the journal that `step` is or
    wraps.
    """

    def __init__(
        self,
        pattern: ReflectionPattern,
        task: PlainTask,
        verbs: Verbs,
        step: Step = direct,
        name: str = "",
        *,
        advice: tuple[Advice, ...] = (),
        diagnostics: Mapping[str, str] | None = None,
        on_token: Callable[[TokenEvent], None] | None = None,
        within: StepBudget | None = None,
        journal: Journalled | None = None,
        model: str = "",
        label: str = "",
    ) -> None:
        self.pattern = pattern
        self.name = name
        self.label = label or name
        self.model = model
        self.verbs = verbs
        self.evidence: RevisionEvidence | None = None
        """What earlier revisions showed; read when a revision first needs it."""
        self.judges = judges = verbs.judges
        self.generate, self.revise, self.evaluate = verbs.generate, verbs.revise, judges.evaluate
        accept, output_type = judges.accept, verbs.output_type
        if output_type is not None:
            self.evaluate = output_type.evaluator(self.evaluate, judges.criteria)
            accept = accept and output_type.preference(accept)
        run_id = journal.run_id if journal else urandom(8).hex()
        self.versions: tuple[ReflectionVersion, ...] = ()
        self.visible_versions = self.versions
        """The versions as the writer may see them: the same tuple as long as nothing is hidden."""
        self.best: ReflectionVersion | None = None
        self.result: ReflectionResult | None = None
        if within is None and (around := enclosing_budget()) is not None:
            within = around.shared
        self.tally = Tally(pattern.budget, clock=journal.elapsed if journal else monotonic, outer=within)
        self.diagnostics = dict(diagnostics or {})
        self.draft_notes: dict[str, list[str]] = {}
        """Remarks of drafts, each with the numbers of its versions."""
        state = verbs.state or RunState(pattern.triggers)
        self.context = RunContext(task, run_id, advice=advice, rubric=judges.rubric, state=state)
        self.stop_by = pattern.rules_for(judges.criteria)
        self.phase = "recall"
        """The step that an error would come from."""
        self.pending: Draft | None = None
        """A draft that is not judged yet; if the run is interrupted, it becomes a version without a score."""
        self.draft_advice: tuple[Advice, ...] = ()
        """Advice for single versions, in addition to the advice for the run in `context`."""
        self.best_scores = BestScores()
        self.versions_by_output: dict[object, ReflectionVersion] = {}
        """The versions whose evaluation an equal output may reuse."""
        self.is_repeat = False
        """Whether the last output equals an earlier output."""
        self.has_checked_labels = False
        self.began = monotonic()
        self.now = journal.at if journal else partial(datetime.now, UTC)
        self.is_logged = is_logging()
        # Steps don't refer to the run: a reference cycle would keep it alive until a garbage collection.
        self.steps = Steps(
            step,
            self.tally,
            pattern.retry,
            run_id,
            journal=journal,
            emit=emitter(pattern.on_event),
            emit_text=None if on_token is None else emitter(on_token),
            output_type=output_type,
        )
        state.attach(self.steps, self.diagnostics, verbs.reflector)
        if pattern.triggers is not NO_TRIGGERS:
            self.generate = self.generate and reflecting_generator(self.generate)
            self.revise = reflecting_reviser(self.revise)
        if pattern.candidates > 1 and self.generate is not None:
            self.generate = best_of(pattern.candidates, self.generate, self.evaluate)
        advisors = [advisor for advisor in pattern.advisors if isinstance(advisor, MistakeAdvisor)]
        if advisors:
            mistakes = MistakeAdvice(
                advisors, judges.criteria, verbs.system_prompt, self.steps, self.diagnostics
            )
            state.mistakes = mistakes
            self.generate = self.generate and mistakes.generator(self.generate)
            self.revise = mistakes.reviser(self.revise)
        if accept is not None:
            steps = self.steps
            on_failure = partial(steps.count_failure, "evaluate")  # the comparison is part of this step
            self.evaluate = comparing(self.evaluate, accept, steps.retry, on_failure)

    def to_end(self, draft: Draft | None = None) -> Awaitable[ReflectionResult]:
        """Run the loop, starting from `draft` if there is one, and return its result.

        An error after the first output ends the run with the versions so far: the error is in the result, or
        raised as `ReflectionFailedError` if the options ask for that. A cancellation after the first output
        is raised once listeners and `get_history()` have the result. These are raised as they are: an error
        before the first output, the `ChangedRunError` of a journal that another program began and, unless
        `on_failure` is "raise", a mistake in the evaluator that shows on its first call.
        """
        return traced("run", self.label, self.context.run_id, partial(self._to_end, draft))

    async def _to_end(self, draft: Draft | None) -> ReflectionResult:
        # A run inside a step of another run has its own budget, and its own listener.
        with step_scope(budget=None, text=None):
            error: BaseException | None = None
            try:
                stop = await self._loop(draft)
            except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 (the versions so far are returned)
                stop, error = await self._interrupted(raised), raised
            return await self._finish(stop, error)

    async def _loop(self, draft: Draft | None) -> Stop:
        await self._begin(draft)
        draft = draft or await self._generate()
        while True:
            version = await self._evaluate(draft)
            if stop := await self._stop(version):
                return stop
            draft = await self._revise()

    async def _begin(self, draft: Draft | None) -> None:
        self._publish(RunStarted, self.context.task)
        if self.pattern.advisors:
            self.context = replace(self.context, advice=(*self.context.advice, *await self._recall()))
        if draft is not None:
            self.pending = draft
            self.tally.add("generation", draft.usage)

    async def _generate(self, base: ReflectionVersion | None = None) -> Draft:
        """Make a draft; a fresh start counts as a revision of `base`."""
        if self.generate is None:
            raise AssertionError("a run without a generator starts from a draft")
        self.phase = "generate"
        prompt = self.context.prompt
        return await self._record(
            await self.steps.do("generate", Draft, self.generate, prompt, self.context), base
        )

    async def _revise(self) -> Draft:
        """Revise the best version so far, or start afresh if revising has got nowhere."""
        pattern = self.pattern
        attempt, base = next_attempt(
            self.versions,
            self.best or self.versions[-1],
            self.context.attempt,
            visible=self.visible_versions,
            strategy=pattern.revision_strategy,
            diversify=pattern.diversify,
            is_repeat=self.is_repeat,
            # An output with a type is started from scratch only if nothing in it is right.
            criteria=self.judges.criteria if self.verbs.output_type is None else (),
            max_tokens=self.tally.revision_tokens_left(),
        )
        if self.verbs.ways:
            attempt = await self._in_best_way(attempt, base)
        context = self.context
        self.context = RunContext(
            context.task,
            context.run_id,
            attempt.number,
            self.visible_versions,
            context.advice,
            attempt,
            rubric=context.rubric,
            state=context.state,
        )
        if attempt.mode == "fresh" and self.generate is not None:
            return await self._generate(base)
        self.phase = "revise"
        draft = await self.steps.do(
            "revise", Draft, self.revise, attempt.previous, base.evaluation, self.context
        )
        return await self._record(draft, base)

    async def _in_best_way(self, attempt: Attempt, base: ReflectionVersion) -> Attempt:
        """Choose the way that earlier revisions favour, or the usual way without evidence.

        A strategy that the pattern names is never replaced.
        """
        is_misfit = self.verbs.output_type is not None and isinstance(base.output, str)
        usual = usual_way(attempt, base, self.visible_versions, self.verbs.ways, is_misfit=is_misfit)
        way = Way(usual, *situation_of(self.versions[base.iteration - 1], self.judges.criteria))
        if self.pattern.revision_strategy == "hybrid":
            possible = possible_ways(
                self.verbs.ways, way, self.versions, is_repeat=self.is_repeat, is_misfit=is_misfit
            )
            earlier = await self._evidence()
            if earlier.of(way.failure, way.length):
                evidence = earlier.plus(revisions_of(self.versions))
                way = choose_way(evidence, way, possible, f"{self.context.task.description}/{attempt.number}")
        return attempt_in(attempt, way, base, self.verbs.ways)

    async def _evidence(self) -> RevisionEvidence:
        """The evidence from earlier runs of this agent and model; a resumed run uses the same."""
        if self.evidence is None:
            journal, self.evidence = self.steps.journal, remembered(self.name, self.model)
            if journal is not None and not journal.is_closed:
                read = partial(stored_evidence, journal.store, self.name, self.model)
                try:
                    self.evidence = await journal.outside("evidence", RevisionEvidence, read)
                except StoreError as error:
                    logger.warning(
                        "The run %s does without earlier revisions: %s", self.context.run_id, error
                    )
        return self.evidence

    async def _record(self, draft: Draft, base: ReflectionVersion | None) -> Draft:
        """Record a draft that was just made, and tell the callbacks."""
        number = self.context.attempt.number
        self.pending = draft
        self.tally.add("generation" if number == 1 else "revision", draft.usage)
        if draft.choice is not None:
            for role, usage in draft.choice.usage.items():
                self.tally.add(role, usage)
            if not self.pattern.preserve_all_versions:
                draft = replace(draft, choice=replace(draft.choice, rejected=()))
        if draft.conversation is not None:
            self.context.state.add(draft.conversation.reflections)
        if draft.advice:  # advice that several versions got is listed once
            seen = {(advice.source, advice.text) for advice in self.draft_advice}
            self.draft_advice += tuple(
                advice for advice in draft.advice if (advice.source, advice.text) not in seen
            )
        if self.pattern.callbacks is not None:
            await self._call_back("on_generation", copy_of(draft.output), number)
            if base is not None:
                await self._call_back("on_revision", copy_of(base.output), copy_of(draft.output), number)
        return draft

    async def _evaluate(self, draft: Draft) -> ReflectionVersion:
        """Judge a draft and add it as a version; an identical output reuses its earlier judgement."""
        output = draft.output
        key = key_of(output)
        same = self.versions_by_output.get(key)
        self.is_repeat = same is not None
        if same is not None and self.judges.output_alone and self._has_same_evidence(draft, same):
            return self._add(draft, same.evaluation, repeats=same.iteration)
        self.phase = "evaluate"
        context, free_only = self.context, self.tally.spent() is not None
        if free_only or self.visible_versions is not self.versions:  # the judge may see everything
            context = replace(context, versions=self.versions, free_only=free_only)
        if draft.conversation is not None:
            context = replace(context, conversation=draft.conversation)
        # Choosing among candidates may have taken a judgement.
        evaluate = self.evaluate if draft.evaluation is None else _always(draft.evaluation)
        evaluation = await self.steps.do("evaluate", ReflectionEvaluation, evaluate, copy_of(output), context)
        version = self._add(draft, evaluation)
        # A known failure stays one, whatever the judge might say of the other criteria.
        if evaluation.is_conclusive or evaluation.unmet:
            self.versions_by_output[key] = version
        judge, floor = self.judges.signals.judge_id, self.pattern.calibrated_floor
        if evaluation.opinions and judge is not None and floor is not None and not self.has_checked_labels:
            from redraft.loop.labels import standing_of  # noqa: PLC0415 (few patterns have a floor)

            self.has_checked_labels = True
            standing = await standing_of(judge, self.judges.criteria, self.steps.journal)
            self.diagnostics |= standing.diagnostics(floor)
        return version

    def _has_same_evidence(self, draft: Draft, version: ReflectionVersion) -> bool:
        """Whether a judge would see the same tool results behind a draft as behind a version."""
        if draft.conversation is None or not self.judges.signals.judged:
            return True
        return have_same_results(draft.conversation, version.conversation)

    def _add(
        self, draft: Draft, evaluation: ReflectionEvaluation, repeats: int | None = None
    ) -> ReflectionVersion:
        attempt, usage = self.context.attempt, draft.usage
        if repeats is None:
            usage += evaluation.usage
            self.tally.add("evaluation", evaluation.usage)
        gain, margin = self.best_scores.gain(evaluation) if repeats is None else (None, 0.0)
        version = ReflectionVersion(
            iteration=len(self.versions) + 1,
            output=copy_of(draft.output),
            evaluation=evaluation,
            improvements_applied=draft.improvements,
            timestamp=self.now(),
            token_usage=usage,
            strategy=attempt.mode if draft.strategy == "draft" else draft.strategy,
            base=attempt.base,
            repeats=repeats,
            gain=gain,
            margin=margin,
            conversation=draft.conversation,
            memo=draft.memo,
            choice=draft.choice,
            model=draft.model,
            way=attempt.way,
        )
        self.pending = None
        visible = version.for_writer()
        hides_nothing = visible is version and self.visible_versions is self.versions
        self.versions = (*self.versions, version)
        self.visible_versions = self.versions if hides_nothing else (*self.visible_versions, visible)
        if is_best := self.best is None or replaces(version, self.best):
            self.best = version
        if draft.notes:
            self._add_draft_notes(version.iteration, draft.notes)
        self._publish(VersionEvaluated, version, is_best)
        return version

    async def _stop(self, version: ReflectionVersion) -> Stop | None:
        """Ask the callback, the rules, the budgets and the maximum; CONTINUE overrides the rules alone."""
        overruled = False
        if self.pattern.callbacks is not None:
            decision = await self._decision(version)
            if decision is ReflectionDecision.ACCEPT:
                version.accepted = True
                return after(ConvergenceReason.USER_ACCEPTED, "A callback accepted", version)
            if decision is ReflectionDecision.STOP:
                return after(ConvergenceReason.USER_STOPPED, "A callback said stop after", version)
            overruled = decision is ReflectionDecision.CONTINUE
        stop = None if overruled else self.stop_by(self.versions)
        if stop and stop.reason is ConvergenceReason.QUALITY_MET:
            return stop
        # A spent budget comes before its possible consequence: that nothing could be judged any more.
        if spent := self.tally.spent():
            return self.tally.stop(spent)
        if stop := stop or self.pattern.limit(self.versions):
            return stop
        if self.tally.revision_tokens_left() == 0:
            return self.tally.stop(ConvergenceReason.TOKEN_BUDGET)
        return None

    async def _interrupted(self, error: Exception | asyncio.CancelledError) -> Stop:
        """The stop for an error that ends the run; raises the error if the run has nothing to return."""
        if self.tally.suspended is not None:  # it goes on within a larger budget, so it has not ended
            raise error
        evaluator_has_worked = bool(self.versions)
        is_changed_run = isinstance(error, ChangedRunError)
        if self.pending is not None and not is_changed_run:
            issue = Issue(f"{NOT_JUDGED}{named_error(error)}")
            self._add(self.pending, ReflectionEvaluation(None, issues=(issue,), confidence=0.0))
        if is_changed_run or not self.versions:
            self.pattern.last_run.set(self.began, None, named_error(error))
            await self._observe_failure(error)
            raise error
        stop = self._stop_for(error)
        is_mistake = isinstance(error, MISTAKES)
        returns_errors = self.pattern.on_failure == "return"
        if stop.reason is ConvergenceReason.CANCELLED or (
            is_mistake and not evaluator_has_worked and returns_errors
        ):
            self._publish(RunFinished, self._make_result(stop, error))
            await self._observe_failure(error)
            raise error
        if stop.reason is ConvergenceReason.ERROR and returns_errors:
            logger.warning(
                "The run %s ended with an error after %s, the best of which is returned: %s",
                self.context.run_id,
                counted(len(self.versions), "version"),
                stop.numbers["error"],
                exc_info=error if is_mistake else None,
            )
        return stop

    def _stop_for(self, error: Exception | asyncio.CancelledError) -> Stop:
        """The stop for an error: a cancellation, a spent budget, or the failure of a step."""
        made = len(self.versions)
        if isinstance(error, asyncio.CancelledError):
            detail = f"It was cancelled after version {made}."
            return Stop(ConvergenceReason.CANCELLED, detail, {"versions": made})
        if isinstance(error, UnfinishedError) and error.reason is not None:
            return self.tally.stop(error.reason)
        what = named_error(error)
        detail = f"The step {self.phase!r} failed after version {made}: {what}"
        return Stop(ConvergenceReason.ERROR, detail, {"step": self.phase, "error": what})

    async def _finish(self, stop: Stop, error: BaseException | None) -> ReflectionResult:
        result = self._make_result(stop, error)
        if self.verbs.ways:
            remember(self.name, self.model, self.versions)
        for advisor in self.pattern.advisors:
            try:
                await self.steps.once(OBSERVE, type(None), advisor.observe, result)
            except Exception as failure:  # noqa: BLE001 (the run has its result)
                _log_ignored(advisor, failure)
        self._publish(RunFinished, result)
        if stop.reason is ConvergenceReason.ERROR and self.pattern.on_failure == "raise":
            failed = ReflectionFailedError(f"The run ended in an error: {readable(error)}", result.history)
            failed.usage = result.token_usage
            raise failed from error
        return result

    def _make_result(self, stop: Stop, error: BaseException | None) -> ReflectionResult:
        pattern, versions, final = self.pattern, self.versions, self.versions[-1]
        best = select(versions, pattern.best_version_selection, self.best)
        findings = diagnose(versions, stop.reason, self.judges.signals, pattern.first_drafts)
        preserved = versions if pattern.preserve_all_versions else first_best_last(versions, best)
        revisions = len(versions) - 1
        thresholds = {criterion.name: criterion.threshold for criterion in self.judges.criteria}
        self.result = ReflectionResult(
            success=best.evaluation.satisfactory,
            final_output=final.output,
            best_output=best.output,
            final_evaluation=final.evaluation,
            history=ReflectionHistory(preserved, best, final, stop.reason, revisions),
            iterations_used=revisions,
            convergence_reason=stop.reason,
            token_usage=self.tally.total(),
            execution_time=self.tally.seconds(),
            run_id=self.context.run_id,
            usage_by_role=self.tally.by_role,
            diagnostics=findings | self.diagnostics | self.tally.diagnostics(),
            advice=(*self.context.advice, *self.draft_advice),
            error=error,
            reflections=self.context.state.reflections,
            task=self.context.task,
            stop=stop,
            criteria=self.judges.criteria,
            short_of=shortfalls(best.evaluation, self.pattern.quality_threshold, thresholds),
        )
        pattern.last_run.set(self.began, self.result)
        return self.result

    def _publish(self, kind: Callable[..., Event], *fields: object) -> None:
        """Send an event of this run to the listener and the log, if there is either."""
        if self.pattern.on_event is None and not self.is_logged:
            return
        event = kind(self.context.run_id, *fields)
        self.steps.emit(event)
        if self.is_logged:
            log_event(event)

    # The caller's callbacks and advisors: an error in one must not end the run.

    async def _call_back(self, name: str, *args: object) -> object:
        """Call the user's callback of that name, if there is one; None if it raised."""
        callback: Callable[..., object] | None = getattr(self.pattern.callbacks, name, None)
        if callback is None:
            return None
        try:
            return await self.steps.once(name, object, awaited(callback), *args)
        except Exception as error:  # noqa: BLE001 (see above)
            self._ignore("callback", name, named_error(error))
            return None

    async def _decision(self, version: ReflectionVersion) -> ReflectionDecision:
        """The decision of `on_reflection`; any other answer leaves it to the rules."""
        answer = await self._call_back("on_reflection", snapshot(version.evaluation), version.iteration)
        if answer is None:
            return ReflectionDecision.AUTO
        try:
            return ReflectionDecision(answer)
        except Exception:  # noqa: BLE001 (the enum's own message takes the answer's repr)
            why = f"it returned {short_repr(answer)}, not a ReflectionDecision"
            self._ignore("callback", "on_reflection", why)
            return ReflectionDecision.AUTO

    async def _recall(self) -> list[Advice]:
        """Ask the advisors for advice; raises only the `ReflectionDueError` that an earlier run left."""
        advice: list[Advice] = []
        for advisor in self.pattern.advisors:
            criteria, recall_of = self.judges.criteria, advisor.recall
            try:
                if isinstance(advisor, CriteriaAdvisor):
                    in_prompt = bool(self.judges.rubric) or not rubric_of(criteria)
                    recall_of = called(advisor.with_criteria, criteria, in_prompt=in_prompt).recall
                recall = self.steps.do("recall", list[Advice], recall_of, self.context.task)
                advice += advice_of(await uncancelled(recall, "recall", "the run"))
            except ReflectionDueError:
                raise
            except Exception as error:  # noqa: BLE001 (a run without advice is better than no run)
                self._ignore("advisor", type(advisor).__name__, named_error(error))
        return advice

    async def _observe_failure(self, error: BaseException) -> None:
        """Tell the advisors that the run raised instead of returning; a cancelled run did not fail.

        This is not a step, since a resumed run must find the same steps as before the failure.
        """
        if not isinstance(error, Exception) or isinstance(error, ChangedRunError):
            return
        for advisor in self.pattern.advisors:
            if isinstance(advisor, FailureObserver):
                try:
                    observed = advisor.observe_failure(
                        self.context.task, self.context.run_id, error, self.context.advice
                    )
                    await uncancelled(observed, "observe_failure", "the run")
                except Exception as failure:  # noqa: BLE001 (the run raises its own error)
                    _log_ignored(advisor, failure)

    def _ignore(self, kind: str, name: str, why: str) -> None:
        report_ignored(self.diagnostics, kind, name, why)

    def _add_draft_notes(self, iteration: int, texts: tuple[str, ...]) -> None:
        """Add the notes of a draft to the diagnostics; a note on several versions appears once."""
        for text in dict.fromkeys(texts):
            self.draft_notes.setdefault(text, []).append(str(iteration))
        self.diagnostics["draft_notes"] = " ".join(
            f"Version{'s' if len(versions) > 1 else ''} {listed(versions)}: {text}"
            for text, versions in self.draft_notes.items()
        )


def _log_ignored(advisor: object, error: Exception) -> None:
    """Log that an advisor failed; a store's error needs no traceback."""
    why, is_bug = named_error(error), not isinstance(error, StoreError)
    name = type(advisor).__name__
    logger.error("The advisor %s failed and was ignored: %s", name, why, exc_info=error if is_bug else None)


def _always(evaluation: ReflectionEvaluation) -> Evaluator:
    """An evaluator that returns a judgement made before."""

    async def evaluate(_output: object, _run: RunContext, /) -> ReflectionEvaluation:
        return evaluation

    return evaluate


async def run_and_store(
    pattern: ReflectionPattern,
    task: PlainTask,
    verbs: Verbs,
    step: Step,
    draft: Draft | None,
    origin: Origin,
    *,
    advice: tuple[Advice, ...] = (),
    diagnostics: Mapping[str, str] | None = None,
    on_token: Callable[[TokenEvent], None] | None = None,
    within: StepBudget | None = None,
) -> ReflectionResult:
    """Run the loop as `Run.to_end` does; if the step has a journal, store the run, or resume it.

    A finished run returns its result again, without a call. An interrupted run goes on after its last
    finished step; a run that ended in an error tries the failed step again. Raises `ChangedRunError` for an
    id under which another task ran, or the same task from another draft, and `StoreError` if a stored run may
    have the id and the store can't be read. A new run that can't be stored runs all the same, with a warning.
    """
    if not callable(step) or isinstance(step, type):
        raise ConfigError(
            f"step must be a Journalled(store, run_id), or a function around one; got {step!r}."
        )
    judges, output_type = verbs.judges, verbs.output_type
    journal = journal_in(step)
    run_of = partial(
        Run,
        pattern,
        verbs=verbs,
        step=step,
        name=origin.name,
        advice=advice,
        diagnostics=diagnostics,
        on_token=on_token,
        within=within,
        journal=journal,
        model=origin.model,
        label=origin.label,
    )
    with remembering_sources():
        if draft is not None and output_type is not None:
            draft = replace(draft, output=output_type.take(draft.output))
        if journal is None:
            return await run_of(task).to_end(draft)
        from redraft.loop.record import Process, RunRecord, with_stored_images  # noqa: PLC0415 (stored runs)

        first_output = None if draft is None else draft.output
        if output_type is not None:
            first_output = output_type.dump(first_output)
        record = RunRecord(
            journal.run_id,
            task,
            origin,
            {
                **pattern.recorded(),
                "criteria": recorded_criteria(judges.criteria),
                "judge": judges.signals.judge,
                **({"judge_id": to_json(judges.signals.judge_id)} if judges.signals.judge_id else {}),
            },
            datetime.now(UTC),
            Process.this(),
            parent=journal.parent,
            draft=first_output,
            advice=advice,
            output_type=None if output_type is None else output_type.record,
        )

        async def work() -> ReflectionResult:
            run = run_of(await with_stored_images(task, journal))
            try:
                return await run.to_end(draft)
            except UnfinishedError as error:
                if run.result is None and error.reason is not None and run.tally.suspended is None:
                    record.end_without_version(run.tally.stop(error.reason), run.tally)
                raise
            finally:
                if run.result is not None:
                    record.end(run.result, output_type)

        if (finished := await journal.begin(record)) is not None:
            _report_ignored_options(finished, pattern)
            return _replay_result(finished, pattern, output_type, on_token)
        result = await journal.track(record, work())
        if journal.store_error:
            extent = "" if journal.is_closed else ", or not completely"
            note = f"The run is not stored{extent}: {journal.store_error}"
            result.diagnostics = {**result.diagnostics, "not_kept": note}
        elif journal.unrestorable:
            note = f"The result can't be returned again under this run_id: {journal.unrestorable[0]}"
            result.diagnostics = {**result.diagnostics, "not_restorable": note}
        if not journal.store_error and not pattern.preserve_all_versions:
            await _delete_other_versions(journal, {version.iteration for version in record.versions})
        return result


def _report_ignored_options(record: RunRecord, pattern: ReflectionPattern) -> None:
    """Warn if a run that has ended is called with other options: its result stays as it was."""
    changed = record.changed_options(pattern.recorded())
    if changed:
        logger.warning(
            "The run %s has ended and returns its stored result; %s no effect. To run with other options, "
            "use a new run_id.",
            record.run_id,
            f"{listed(changed)} {'has' if len(changed) == 1 else 'have'}",
        )


def _replay_result(
    record: RunRecord,
    pattern: ReflectionPattern,
    output_type: OutputType[Any] | None,
    on_token: Callable[[TokenEvent], None] | None,
) -> ReflectionResult:
    """The result of a finished run, whose events are emitted again."""
    result = record.result(output_type)
    emit = emitter(pattern.on_event)
    emit(RunStarted(record.run_id, record.task))
    emit_text = emitter(on_token)
    for version in result.history.versions:
        if version.strategy != "given":
            role = "draft" if version.iteration == 1 else "revision"
            emit_text(TokenEvent(record.run_id, as_text(version.output), version.iteration, role))
        emit(VersionEvaluated(record.run_id, version, version.iteration == record.best))
    pattern.last_run.set(monotonic(), result)
    emit(RunFinished(record.run_id, result))
    return result


async def _delete_other_versions(journal: Journalled, keep: Collection[int]) -> None:
    """Delete the steps that made and judged versions, except the versions in `keep`."""
    records = await journal.store.find(STEP, prefix=f"{journal.run_id}/")
    count = 0
    for record in records:
        place = record.key.partition("/")[2]
        if "/" in place or place.startswith(OUTSIDE):
            continue
        name = record.data["name"]
        makes_draft = name in ("generate", "revise")
        version = count + 1 if makes_draft or count == 0 else count
        # A run that starts from a given draft judges first.
        if "result" in record.data and (makes_draft or (count == 0 and name == "evaluate")):
            count += 1
        if version not in keep:
            for part in records:
                if part.key == record.key or part.key.startswith(f"{record.key}/"):
                    await journal.store.delete(STEP, part.key)
