"""The loop, driven by plain functions and scripted models."""

import asyncio
import logging
import os
import re
import signal
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from redraft import (
    Draft,
    Issue,
    ModelError,
    QualityCriterion,
    ReflectionEvaluation,
    ReflectionPattern,
    ScriptedModel,
    TokenUsage,
    reflect,
    reflect_sync,
    reflected,
)
from redraft._critique import render_feedback
from redraft._sync import run_sync
from redraft.errors import ConfigError, ReflectionDueError, ReflectionFailedError, StoreError
from redraft.events import RunFinished, StepFailed, StepFinished, StepStarted, VersionEvaluated
from redraft.loop import Retry
from redraft.loop.journal import Journalled
from redraft.loop.runs import Runs
from redraft.loop.stop import quality_met
from redraft.protocols import Attempt, ChatReply, ReflectionCallbacks, ReflectionDecision, RunContext
from redraft.stores.sqlite import MemoryStore
from redraft.types import Advice, highest

AT_ONCE = Retry(attempts=3, first_wait=0)


class Script:
    """Outputs with these scores, in order; records its calls."""

    def __init__(self, *scores, outputs=None, issues=None):
        self.scores = list(scores)
        self.outputs = outputs or [f"draft {n}" for n in range(1, len(scores) + 1)]
        self.issues = issues or {}
        self.made = 0
        self.attempts: list[Attempt] = []
        self.revised: list[str] = []
        self.judged: list[str] = []

    def next(self, run):
        self.attempts.append(run.attempt)
        output = self.outputs[self.made]
        self.made += 1
        if isinstance(output, BaseException):
            raise output
        return output

    async def generate(self, prompt, run: RunContext):
        return self.next(run)

    async def revise(self, output, evaluation, run: RunContext):
        self.revised.append(output)
        return self.next(run)

    async def evaluate(self, output):
        self.judged.append(output)
        score = self.scores[self.outputs.index(output)]
        if isinstance(score, BaseException):
            raise score
        if score is None:
            return ReflectionEvaluation(None)
        issues = self.issues.get(output, (Issue(f"unlike {output}"),))
        return ReflectionEvaluation(score, satisfactory=score >= 0.8, issues=issues)

    def run(self, **options):
        return reflect_sync(
            "Write it.",
            generate=self.generate,
            evaluate=self.evaluate,
            revise=self.revise,
            pattern=ReflectionPattern(**{"retry": AT_ONCE, **options}),
        )


def test_stops_when_it_is_good_enough():
    result = Script(0.5, 0.7, 0.9).run()
    assert result.success
    assert result.convergence_reason == "quality_met"
    assert result.best_output == result.final_output == "draft 3"
    assert [version.iteration for version in result.history.versions] == [1, 2, 3]
    assert result.iterations_used == result.history.total_iterations == 2
    assert result.final_evaluation.overall_score == 0.9


@pytest.mark.parametrize(("maximum", "versions"), [(0, 1), (1, 2), (3, 4)])
def test_max_iterations_counts_revisions(maximum, versions):
    result = Script(0.1, 0.3, 0.5, 0.7, 0.75).run(max_iterations=maximum)
    assert len(result.history.versions) == versions
    assert result.convergence_reason == "max_iterations"
    assert not result.success


def test_never_worse_than_the_first_draft():
    result = Script(0.7, 0.4, 0.3).run()
    assert result.best_output == "draft 1"
    assert result.final_output == "draft 3"
    assert result.convergence_reason == "plateau"


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("highest_score", "draft 2"),
        ("latest", "draft 3"),
        ("first_satisfactory", "draft 2"),
        ("weighted_recency", "draft 3"),
    ],
)
def test_best_version_selection(selection, expected):
    result = Script(0.5, 0.65, 0.6).run(max_iterations=2, best_version_selection=selection)
    assert result.best_output == expected


def test_after_a_regression_the_best_is_revised_with_another_strategy():
    script = Script(0.6, 0.3, 0.75)
    result = script.run(revision_strategy="targeted_edit", max_iterations=2)
    assert script.revised == ["draft 1", "draft 1"]
    assert script.attempts[1].strategy == "targeted_edit"
    second = script.attempts[2]
    assert second.strategy != "targeted_edit"
    assert second.failed is not None
    assert second.failed.output == "draft 2"
    assert "quality_regression" in result.diagnostics
    assert [version.base for version in result.history.versions] == [None, 1, 1]


def test_a_repeated_draft_is_not_judged_again_and_followed_by_a_fresh_start():
    script = Script(0.5, 0.5, 0.9, outputs=["same", "same", "other"])
    result = script.run()
    assert script.judged == ["same", "other"]
    assert [version.repeats for version in result.history.versions] == [None, 1, None]
    fresh = script.attempts[2]
    assert (fresh.mode, fresh.temperature) == ("fresh", 1.0)
    assert result.history.versions[2].strategy == "fresh"
    assert result.success


def test_a_long_text_is_revised_in_another_way_before_it_is_thrown_away():
    long = "long " * 400
    script = Script(0.5, 0.5, 0.5, 0.9, outputs=[long, long, long, "other"])
    script.run(until=quality_met, revision_strategy="incremental")
    _, first, second, third = script.attempts
    assert (first.mode, first.strategy, first.temperature) == ("revise", "incremental", None)
    assert (second.mode, second.strategy, second.temperature) == ("revise", "targeted_edit", 1.0)
    assert (second.previous, second.base) == (long, 2)
    assert "changed nothing" in render_feedback(second)
    assert third.mode == "fresh"


def test_an_evaluator_that_takes_the_run_judges_a_repeated_draft_again():
    outputs, modes = iter(["same", "same", "other"]), []

    def generate(prompt, attempt):
        modes.append(attempt.mode)
        return next(outputs)

    result = reflect_sync("task", generate=generate, evaluate=lambda output, run: 0.5 + len(run.versions) / 5)
    versions = result.history.versions
    assert [version.evaluation.overall_score for version in versions] == [0.5, 0.7, 0.9]
    assert [version.repeats for version in versions] == [None, None, None]
    assert modes == ["draft", "revise", "fresh"]


def test_without_diversify_the_next_attempt_is_a_revision():
    script = Script(0.5, 0.5, 0.9, outputs=["same", "same", "other"])
    script.run(diversify=False)
    assert [attempt.mode for attempt in script.attempts] == ["draft", "revise", "revise"]
    assert script.revised == ["same", "same"]


def test_identical_again_after_a_fresh_start_is_semantic_stability():
    result = Script(0.5, 0.5, 0.5, 0.9, outputs=["same", "same", "same", "never"]).run(max_iterations=9)
    assert result.convergence_reason == "semantic_stability"
    assert len(result.history.versions) == 3


def test_fresh_starts_have_a_high_temperature():
    script = Script(0.5, 0.5, 0.4, 0.45, 0.9, outputs=["a", "a", "b", "c", "d"])
    result = script.run(max_iterations=9, plateau_iterations=9)
    assert [attempt.mode for attempt in script.attempts] == ["draft", "revise", "fresh", "fresh", "fresh"]
    assert [attempt.temperature for attempt in script.attempts[2:]] == [1.0, 1.0, 1.0]
    assert result.success


@pytest.mark.parametrize(
    ("scores", "options", "reason"),
    [
        ((0.5, 0.52), {}, "diminishing"),
        ((0.5, 0.52, 0.9), {"improvement_threshold": 0.01}, "quality_met"),
        ((0.5, 0.4), {"plateau_iterations": 1}, "plateau"),
        ((0.5, 0.4, 0.9), {"plateau_iterations": 2}, "quality_met"),
        ((0.5, 0.7, 0.5, 0.7), {"max_iterations": 9}, "oscillation"),
        ((0.5, 0.7, 0.5, 0.7, 0.9), {"max_iterations": 9, "detect_oscillation": False}, "plateau"),
        ((None,), {}, "unjudged"),
        ((0.5, None, None), {}, "unjudged"),
        ((0.85,), {"quality_threshold": 0.9}, "quality_met"),  # the evaluation's own verdict counts
    ],
)
def test_convergence(scores, options, reason):
    assert Script(*scores).run(**options).convergence_reason == reason


def test_repeated_issues_are_an_infinite_loop():
    same = {f"draft {n}": (Issue("the ending is missing"),) for n in range(1, 9)}
    result = Script(0.5, 0.4, 0.5, 0.4, issues=same).run(plateau_iterations=9, max_iterations=9)
    assert result.convergence_reason == "repeated_issues"
    assert "infinite_loop" in result.diagnostics


def test_until_replaces_the_rules_but_not_the_maximum():
    calls = []

    def never(versions):
        calls.append(len(versions))

    script = Script(0.9, 0.9, 0.9, 0.9)
    result = script.run(until=never, max_iterations=2)
    assert calls == [1, 2, 3]
    assert result.convergence_reason == "max_iterations"


def used(tokens, cost=0.0):
    return TokenUsage(tokens, 0, requests=1, cost_usd=cost)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"budget_tokens": 150}, "token_budget"),
        ({"budget_usd": 0.15}, "cost_budget"),
        ({"budget_seconds": 1e-9}, "time_budget"),
        ({"max_revision_tokens": 100}, "token_budget"),
    ],
)
def test_budgets_stop_the_run_and_keep_the_paid_answer(options, reason):
    seen = []

    async def generate(prompt, run: RunContext):
        seen.append(run.attempt)
        return Draft(f"draft {len(seen)}", used(100, 0.1))

    async def revise(output, evaluation, run: RunContext):
        return await generate("", run)

    def evaluate(output, run: RunContext):
        return 0.1 if run.free_only else 0.2 + 0.1 * run.iteration

    pattern = ReflectionPattern(max_iterations=9, **options)
    result = reflect_sync("Write.", generate=generate, evaluate=evaluate, revise=revise, pattern=pattern)
    assert result.convergence_reason == reason
    assert len(result.history.versions) == (1 if "budget_seconds" in options else 2)
    if "max_revision_tokens" in options:
        assert seen[1].max_tokens == 100


def test_only_free_checks_run_when_the_budget_is_spent():
    free = []

    def evaluate(output, run: RunContext):
        free.append(run.free_only)
        return 0.5

    pattern = ReflectionPattern(budget_tokens=100)
    reflect_sync("W.", generate=lambda p: Draft("x", used(100)), evaluate=evaluate, pattern=pattern)
    assert free == [True]


def test_usage_is_counted_per_version_and_role():
    async def generate(prompt):
        return Draft("a", used(10, 0.1))

    async def revise(output, evaluation):
        return Draft("b", used(20, 0.2))

    async def evaluate(output):
        return ReflectionEvaluation(
            0.9 if output == "b" else 0.1, satisfactory=output == "b", usage=used(5, 0.5)
        )

    result = reflect_sync("W.", generate=generate, evaluate=evaluate, revise=revise)
    assert {role: usage.total_tokens for role, usage in result.usage_by_role.items()} == {
        "generation": 10,
        "evaluation": 10,
        "revision": 20,
    }
    assert [version.token_usage.total_tokens for version in result.history.versions] == [15, 25]
    assert result.token_usage.cost_usd == pytest.approx(1.3)
    assert result.token_usage.requests == 4


# --- what goes wrong ---------------------------------------------------------------------------------------


def test_an_error_before_any_version_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError):
        Script(0.5, outputs=[ZeroDivisionError()]).run()


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("bad", [None, object(), b"bytes", {1, 2}, nested(5_000)])
def test_an_invalid_output_ends_the_run_with_its_versions(bad):
    async def revise(output, evaluation):
        return bad

    result = reflect_sync("W.", generate=lambda p: "good", evaluate=lambda o: 0.5, revise=revise)
    assert result.convergence_reason == "error"
    assert result.best_output == "good"
    assert "revise returned" in str(result.error)


def test_the_usage_of_an_invalid_draft_counts():
    result = reflect_sync(
        "W.",
        generate=lambda p: "good",
        evaluate=lambda o: 0.5,
        revise=lambda o, e: Draft(nested(5_000), usage=TokenUsage(10, 5)),
    )
    assert (result.convergence_reason, result.token_usage.total_tokens) == ("error", 15)


def test_an_error_in_a_revision_keeps_the_versions():
    script = Script(0.5, 0.7, 0.9, outputs=["a", "b", RuntimeError("boom")])
    result = script.run()
    assert result.convergence_reason == "error"
    assert isinstance(result.error, RuntimeError)
    assert result.best_output == "b"
    assert "boom" in result.summary()
    assert result.stop.detail == "The step 'revise' failed after version 2: RuntimeError: boom"
    assert result.stop.numbers == {"step": "revise", "error": "RuntimeError: boom"}


def test_a_revision_that_can_not_be_copied_keeps_the_versions():
    result = reflect_sync(
        "W.",
        generate=lambda _: "x",
        evaluate=lambda output: (0.1, "no"),
        revise=lambda output, evaluation: {"items": (item for item in "x")},
    )
    assert (result.best_output, result.convergence_reason) == ("x", "error")
    assert "which can't be copied (TypeError: cannot pickle 'generator' object)" in str(result.error)


def test_an_error_in_an_evaluation_keeps_the_draft_unjudged():
    result = Script(0.5, ValueError("judge fell over")).run()
    assert result.convergence_reason == "error"
    assert [version.output for version in result.history.versions] == ["draft 1", "draft 2"]
    assert result.final_evaluation.overall_score is None
    assert result.best_output == "draft 1"


def test_on_failure_raise_carries_the_history():
    script = Script(0.5, 0.7, outputs=["a", RuntimeError("boom")])
    with pytest.raises(ReflectionFailedError, match="boom") as caught:
        script.run(on_failure="raise")
    assert [version.output for version in caught.value.history.versions] == ["a"]
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_temporary_failures_are_retried_and_counted():
    failures = [ModelError("busy", status=429, retryable=True, retry_after=0.0), TimeoutError()]

    async def generate(prompt):
        if failures:
            raise failures.pop(0)
        return Draft("x", used(10))

    events = []
    pattern = ReflectionPattern(retry=AT_ONCE, on_event=events.append)
    result = reflect_sync("W.", generate=generate, evaluate=lambda o: True, pattern=pattern)
    assert result.success
    assert result.token_usage.failed_requests == 1  # the timeout was not a model call that we know of
    assert [event.retry_in for event in events if isinstance(event, StepFailed)] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ModelError("no", status=400), 1),
        (ModelError("busy", retryable=True), 3),
        (ModelError("come back tomorrow", retryable=True, retry_after=86_400), 1),
        (ValueError("a bug"), 1),
        (ConnectionResetError(), 3),
    ],
)
def test_only_temporary_failures_are_retried(error, attempts):
    calls = []

    async def generate(prompt):
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        reflect_sync("W.", generate=generate, evaluate=bool, pattern=ReflectionPattern(retry=AT_ONCE))
    assert len(calls) == attempts


@pytest.mark.parametrize("events", [None, lambda event: None])
def test_a_retry_makes_the_same_attempt(events):
    """This holds after a regression, too, where each attempt has another strategy."""
    seen = []

    async def revise(output, evaluation, run):
        seen.append((run.iteration, run.attempt.strategy, run.attempt.base))
        if len(seen) in (2, 3):
            raise ConnectionResetError
        return f"version {run.iteration}"

    scores = {"x": 0.5, "version 2": 0.1, "version 3": 0.9}
    pattern = ReflectionPattern(retry=AT_ONCE, on_event=events)
    result = reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: scores[o], revise=revise, pattern=pattern
    )
    assert [number for number, _, _ in seen] == [2, 3, 3, 3]
    assert len(set(seen[1:])) == 1
    assert result.best_output == "version 3"


@pytest.mark.parametrize("verdict", ["looks good", float("nan"), 7, -0.1, {"reason": "?"}, (True,), []])
def test_an_unreadable_verdict_is_a_score_of_none(verdict):
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: verdict)
    assert result.convergence_reason == "unjudged"
    assert result.final_evaluation.overall_score is None
    assert "verdict" in str(result.final_evaluation.issues[0]) or "score" in str(
        result.final_evaluation.issues[0]
    )
    assert not result.success
    assert "unjudged" in result.diagnostics


async def draft_x(prompt):  # in no thread, so that it is there before any timeout
    return "x"


def test_cancellation_keeps_the_versions():
    finished = []

    async def evaluate(output):
        return 0.1

    async def revise(output, evaluation):
        await asyncio.sleep(60)

    pattern = ReflectionPattern(on_event=finished.append)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reflect("W.", generate=draft_x, evaluate=evaluate, revise=revise, pattern=pattern)
        return pattern.get_history()

    history = asyncio.run(main())
    assert history.convergence_reason == "cancelled"
    assert finished[-1].result.stop.detail == "It was cancelled after version 1."
    assert history.best_version.output == "x"
    assert isinstance(finished[-1], RunFinished)


def test_cancelled_while_judging_keeps_the_draft():
    events = []

    async def evaluate(output):
        await asyncio.sleep(60)

    async def main():
        async with asyncio.timeout(0.05):
            pattern = ReflectionPattern(on_event=events.append)
            await reflect("W.", generate=draft_x, evaluate=evaluate, pattern=pattern)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert events[-1].result.history.versions[0].output == "x"
    assert events[-1].result.history.versions[0].evaluation.overall_score is None


# --- callbacks and events ----------------------------------------------------------------------------------


class Recorder(ReflectionCallbacks):
    def __init__(self, *decisions):
        self.decisions = list(decisions)
        self.calls = []

    async def on_generation(self, output, iteration):
        self.calls.append(("generation", output, iteration))

    async def on_reflection(self, evaluation, iteration):
        self.calls.append(("reflection", evaluation.overall_score, iteration))
        decision = self.decisions.pop(0) if self.decisions else ReflectionDecision.AUTO
        if isinstance(decision, Exception):
            raise decision
        return decision

    async def on_revision(self, old_output, new_output, iteration):
        self.calls.append(("revision", old_output, new_output, iteration))


def test_callbacks_see_everything():
    callbacks = Recorder()
    Script(0.5, 0.9).run(callbacks=callbacks)
    assert callbacks.calls == [
        ("generation", "draft 1", 1),
        ("reflection", 0.5, 1),
        ("generation", "draft 2", 2),
        ("revision", "draft 1", "draft 2", 2),
        ("reflection", 0.9, 2),
    ]


def test_a_fresh_start_counts_as_a_revision_for_callbacks_too():
    callbacks = Recorder()
    result = Script(0.5, 0.5, 0.9, outputs=["same", "same", "other"]).run(callbacks=callbacks)
    assert result.history.versions[2].strategy == "fresh"
    revisions = [call[1:] for call in callbacks.calls if call[0] == "revision"]
    assert revisions == [("same", "same", 2), ("same", "other", 3)]
    assert len(revisions) == result.iterations_used


@pytest.mark.parametrize(
    ("decisions", "options", "reason", "best"),
    [
        ([ReflectionDecision.ACCEPT], {}, "user_accepted", "draft 1"),
        (["auto", "accept"], {}, "user_accepted", "draft 2"),
        (["auto", "stop"], {}, "user_stopped", "draft 1"),
        (["continue"] * 9, {"max_iterations": 2}, "max_iterations", "draft 1"),
        ([None, None, None], {}, "plateau", "draft 1"),
        (["nonsense"] * 9, {}, "plateau", "draft 1"),
        ([ValueError("bug")] * 9, {}, "plateau", "draft 1"),
    ],
)
def test_decisions(decisions, options, reason, best):
    result = Script(0.6, 0.5, 0.4).run(callbacks=Recorder(*decisions), **options)
    assert result.convergence_reason == result.stop.reason == reason
    assert result.best_output == best
    if reason == "user_accepted":
        assert re.fullmatch(r"A callback accepted version \d \(0\.[56]0\)\.", result.stop.detail)
    if reason == "user_stopped":
        assert result.stop.detail == "A callback said stop after version 2 (0.50)."


def test_a_callback_that_raises_is_logged_and_the_run_goes_on(caplog):
    class Broken(ReflectionCallbacks):
        async def on_generation(self, output, iteration):
            raise RuntimeError("broken callback")

    with caplog.at_level(logging.WARNING, "redraft"):
        result = Script(0.9).run(callbacks=Broken())
    assert result.success
    assert "broken callback" in result.diagnostics["callback_failed"]
    assert "broken callback" in caplog.text


def test_events_of_a_run_and_a_broken_listener(caplog):
    events = []

    def listen(event):
        events.append(event)
        raise RuntimeError("broken listener")

    result = Script(0.5, 0.9).run(on_event=listen)
    assert result.success
    assert "broken listener" in caplog.text
    names = [event.name for event in events if isinstance(event, StepStarted)]
    assert names == ["generate", "evaluate", "revise", "evaluate"]
    assert len([event for event in events if isinstance(event, StepFinished)]) == 4
    best = [event.is_best for event in events if isinstance(event, VersionEvaluated)]
    assert best == [True, True]
    assert {event.run_id for event in events} == {result.run_id}
    assert all(event.schema_version == 1 for event in events)


class Adviser:
    def __init__(self, *advice):
        self.advice = [Advice(text, "test") for text in advice]
        self.observed = []

    async def recall(self, task):
        if not self.advice:
            raise LookupError("nothing to recall")
        return self.advice

    async def observe(self, result):
        self.observed.append(result)
        raise RuntimeError("nothing learned")


def test_advisors_recall_before_and_observe_after_and_may_fail(caplog):
    prompts = []
    first, broken = Adviser("Be brief."), Adviser()
    pattern = ReflectionPattern(advisors=[first, broken])
    result = reflect_sync(
        "W.", generate=lambda p: prompts.append(p) or "x", evaluate=lambda o: True, pattern=pattern
    )
    assert "- Be brief." in prompts[0]
    assert [advice.text for advice in result.advice] == ["Be brief."]
    assert first.observed == broken.observed == [result]
    assert "nothing to recall" in result.diagnostics["advisor_failed"]
    assert "nothing learned" in caplog.text


@pytest.mark.parametrize(
    ("error", "has_traceback"), [(StoreError("the disk is full"), False), (KeyError("title"), True)]
)
def test_only_a_bug_in_an_advisor_is_logged_with_a_traceback(error, has_traceback, caplog):
    class Failing(Adviser):
        async def observe(self, result):
            raise error

        async def observe_failure(self, task, run_id, failure, advice):
            raise error

    pattern = ReflectionPattern(advisors=[Failing("Be brief.")], max_iterations=0)
    reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: True, pattern=pattern)
    with pytest.raises(ZeroDivisionError):
        reflect_sync("W.", generate=lambda p: 1 // 0, evaluate=lambda o: True, pattern=pattern)
    logged = [record for record in caplog.records if "advisor Failing" in record.getMessage()]
    assert [bool(record.exc_text) for record in logged] == [has_traceback] * 2
    assert all(str(error) in record.getMessage() for record in logged)


def test_a_due_reflection_ends_a_run_before_any_call():
    class Creditor(Adviser):
        async def recall(self, task):
            raise ReflectionDueError("The run 'r1' failed.", runs=["r1"])

    prompts, creditor = [], Creditor()
    pattern = ReflectionPattern(advisors=[creditor])
    with pytest.raises(ReflectionDueError, match="'r1'") as raised:
        reflect_sync("W.", generate=prompts.append, evaluate=lambda o: True, pattern=pattern)
    assert raised.value.runs == ("r1",)
    assert prompts == creditor.observed == []


# --- what is kept ------------------------------------------------------------------------------------------


def clarity_of(*scores):
    """A criterion that gives these scores in turn; an exception among them is raised instead."""
    left = list(scores)

    def clarity(output):
        score = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(score, Exception):
            raise score
        return score

    return QualityCriterion("clarity", evaluator="function", evaluator_config={"function": clarity})


def matching(name, pattern, **fields):
    """A check for a pattern."""
    return QualityCriterion(name, evaluator="regex", evaluator_config={"pattern": pattern}, **fields)


LETTERS = matching("letters", "[a-z]+")


def judging(*scores):
    """A judge of `clarity` that gives these scores in turn; for None, two replies are unusable."""
    replies = []
    for score in scores:
        verdict = {"criteria": {"clarity": {"reason": "so", "score": score}}, "confidence": 1}
        replies += ["I can't say."] * 2 if score is None else [verdict | {"issues": [], "suggestions": []}]
    return ScriptedModel(replies)


def redrafted(criteria, **options):
    """Run with a new text in each version; return the result and the attempts of its reviser."""
    attempts = []

    def revise(output, evaluation, run):
        attempts.append(run.attempt)
        return f"version {run.iteration}"

    pattern = ReflectionPattern(quality_criteria=criteria, **options)
    return reflect_sync("W.", generate=lambda p: "draft", revise=revise, pattern=pattern), attempts


CRASH = ValueError("no score today")


def test_a_version_that_was_not_fully_judged_does_not_win():
    result, attempts = redrafted([clarity_of(0.4, CRASH, 0.5), LETTERS], max_iterations=2)
    assert [v.evaluation.overall_score for v in result.history.versions] == [0.7, 1.0, 0.75]
    assert result.history.best_version.iteration == 3
    assert [v.gain for v in result.history.versions] == [None, None, pytest.approx(0.05)]
    assert "quality_regression" not in result.diagnostics
    assert result.diagnostics["unjudged"] == "Not fully judged: version 2 (clarity)."
    # The second revision starts from the first version; its prompt does not say that the second was worse.
    assert [(attempt.base, attempt.failed) for attempt in attempts] == [(1, None), (1, None)]


def test_a_check_that_crashes_costs_no_revision():
    result, attempts = redrafted([clarity_of(CRASH), LETTERS])
    assert (result.convergence_reason, result.success, attempts) == ("unjudged", False, [])
    why = "the function raised ValueError: no score today; to fail an output, return (False, 'why')"
    assert result.stop.numbers == {"version": 1, "score": 1.0, "unjudged": ["clarity"], "why": why}
    assert f"not judged: clarity ({why})" in result.summary()


def test_a_judge_without_a_usable_reply_costs_no_revision():
    judge = judging(None)
    result, attempts = redrafted(["clarity", LETTERS], reflection_model=judge)
    assert (result.convergence_reason, attempts) == ("unjudged", [])
    assert len(judge.requests) == 2  # asked again once


def test_with_a_crashed_check_only_the_failed_check_is_in_the_critique():
    criteria = [clarity_of(CRASH), LETTERS, matching("upper", "[A-Z]")]
    result, attempts = redrafted(criteria, max_iterations=1)
    assert result.convergence_reason == "max_iterations"
    (critique,) = [render_feedback(attempt) for attempt in attempts]
    assert re.fullmatch(r"What is wrong:\n- [^\n]+ \(upper, line 1\)", critique)


def test_the_writer_does_not_see_a_met_criterion_when_a_hidden_criterion_fails():
    hidden = matching("hidden", "[A-Z]", shown=False)
    _, attempts = redrafted([hidden, LETTERS], max_iterations=1)
    assert render_feedback(attempts[0]) == "It was not good enough."


def test_a_callback_may_revise_what_was_not_judged():
    class Callbacks(ReflectionCallbacks):
        def on_reflection(self, evaluation, iteration):
            return ReflectionDecision.CONTINUE

    result, attempts = redrafted([clarity_of(CRASH), LETTERS], max_iterations=1, callbacks=Callbacks())
    assert result.convergence_reason == "max_iterations"
    assert render_feedback(attempts[0]) == "It was not good enough."


def test_a_gate_without_weight_that_fails_is_revised():
    gate = matching("gate", "version", gate=True, weight=0)
    result, attempts = redrafted([gate, "clarity"], max_iterations=1, reflection_model=judging(0.9))
    assert (result.success, len(attempts)) == (True, 1)


def test_a_long_reason_is_cut_with_an_ellipsis():
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda output: (0.1, "long " * 50))
    assert f"failed: {('long ' * 20)[:97]}...\n" in result.summary()


def test_a_summary_says_where_in_a_structured_output_an_issue_is():
    issue = Issue("Field required", path="/lines/1/sku")
    judged = ReflectionEvaluation(0.1, issues=(issue,))
    result = reflect_sync("W.", generate=lambda p: {"lines": []}, evaluate=lambda output: judged)
    assert "failed: Field required (at /lines/1/sku)\n" in result.summary()


def test_a_criterion_that_is_a_sentence_is_quoted_within_one():
    result, _ = redrafted(["Says how.", LETTERS], reflection_model=judging(None))
    assert "could not be judged by 'Says how.' (" in result.stop.detail
    assert "not judged: 'Says how.' (" in result.summary()
    assert result.diagnostics["unjudged"] == "Not fully judged: version 1 ('Says how.')."


def test_a_version_known_to_be_worse_is_in_the_prompt():
    _, attempts = redrafted([clarity_of(0.4, 0.2, 0.5), LETTERS], max_iterations=2)
    assert [attempt.failed and attempt.failed.iteration for attempt in attempts] == [None, 2]


def test_a_version_that_failed_a_gate_is_in_the_prompt():
    gate = QualityCriterion(
        "gate", evaluator="function", evaluator_config={"function": lambda o: o != "version 2"}, gate=True
    )
    judge = judging(0.4, 0.4)
    result, attempts = redrafted([gate, "clarity"], max_iterations=2, reflection_model=judge)
    assert [v.evaluation.gates_passed for v in result.history.versions] == [True, False, True]
    assert [attempt.failed and attempt.failed.iteration for attempt in attempts] == [None, 2]
    assert "unjudged" not in result.diagnostics


def test_a_judged_version_wins_over_one_made_after_the_budget():
    def revise(output, evaluation):
        return Draft(f"{output}x", TokenUsage(input_tokens=100_000))

    pattern = ReflectionPattern(
        quality_criteria=["clarity", LETTERS], budget_tokens=100_000, reflection_model=judging(0.4)
    )
    result = reflect_sync("W.", generate=lambda p: "draft", revise=revise, pattern=pattern)
    assert [v.evaluation.criteria_scores["clarity"] for v in result.history.versions] == [0.4, None]
    assert result.history.best_version.iteration == 1
    assert "version 2 (clarity)" in result.diagnostics["unjudged"]


def test_an_evaluation_with_unknowns_is_never_satisfactory():
    def evaluate(output):
        return ReflectionEvaluation(0.9, {"a": 0.9, "b": None}, satisfactory=True)

    pattern = ReflectionPattern(max_iterations=0)
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=evaluate, pattern=pattern)
    assert not result.success
    assert result.convergence_reason == "unjudged"


def test_the_same_output_is_judged_again_if_it_was_not_fully_judged():
    pattern = ReflectionPattern(
        quality_criteria=[clarity_of(CRASH, 0.9), LETTERS],
        max_iterations=1,
        diversify=False,
        until=quality_met,
    )
    result = reflect_sync("W.", generate=lambda p: "same", pattern=pattern)
    assert result.success
    assert result.history.best_version.iteration == 2


def test_an_unchanged_output_with_known_failures_is_not_judged_again():
    judge = ScriptedModel(lambda request: "no scores at all")
    number = QualityCriterion("number", evaluator="regex", evaluator_config={"pattern": r"\d"})
    pattern = ReflectionPattern(
        quality_criteria=["It is clear.", number], max_iterations=2, reflection_model=judge
    )
    result = reflect_sync("W.", generate=lambda p: "same", pattern=pattern)
    assert [version.repeats for version in result.history.versions] == [None, 1, 1]
    assert len(judge.requests) == 2, "asked, and once more since the reply could not be read"


def test_the_judge_does_not_see_a_partial_mean():
    judge = judging(None, 0.4)
    options = {"reflection_model": judge, "include_prior_scores": True, "until": quality_met}
    redrafted(["clarity", LETTERS], max_iterations=1, **options)
    assert "Version 1: not fully judged" in judge.requests[-1].messages[-1].content


def test_preserve_all_versions_off_keeps_first_best_and_last():
    scores = (0.1, 0.3, 0.7, 0.5, 0.4)
    options = {"max_iterations": 4, "plateau_iterations": 9}
    assert len(Script(*scores).run(**options).history.versions) == 5
    kept = Script(*scores).run(preserve_all_versions=False, **options).history
    assert [version.iteration for version in kept.versions] == [1, 3, 5]
    assert kept.total_iterations == 4


def test_one_pattern_serves_concurrent_runs():
    pattern = ReflectionPattern()

    async def one(n):
        async def generate(prompt):
            await asyncio.sleep(0.001 * (n % 3))
            return f"run {n}"

        result = await reflect("W.", generate=generate, evaluate=lambda o: True, pattern=pattern)
        return result.best_output, pattern.get_best_version().output

    async def main():
        return await asyncio.gather(*(one(n) for n in range(50)))

    assert asyncio.run(main()) == [(f"run {n}", f"run {n}") for n in range(50)]


def test_a_finished_run_leaves_no_garbage_cycle():
    import gc
    import weakref

    class Output(dict):
        pass

    gc.disable()
    try:
        output = Output(text="x")
        alive = weakref.ref(output)
        asyncio.run(reflect("W.", generate=lambda p, kept=output: kept, evaluate=lambda o: True))
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(True, "user_stopped"), ("plateau", "plateau"), (False, "max_iterations"), (3, "error")],
)
def test_a_custom_rule_may_return_a_reason_or_a_bool(answer, reason):
    pattern = ReflectionPattern(max_iterations=1)
    drafts = iter("ab")
    result = reflect_sync(
        "W.", generate=lambda p: next(drafts), evaluate=lambda o: 0.5, pattern=pattern, until=lambda v: answer
    )
    assert result.convergence_reason == reason
    assert result.summary()


class OnlyOne:
    def on_reflection(self, evaluation, iteration):  # not async, and the others are missing
        return ReflectionDecision.ACCEPT


def test_callbacks_may_be_sync_and_incomplete():
    pattern = ReflectionPattern(callbacks=OnlyOne())
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: 0.1, pattern=pattern)
    assert result.convergence_reason == "user_accepted"


def test_callbacks_are_not_retried():
    calls = []

    class Slow(ReflectionCallbacks):
        async def on_generation(self, output, iteration):
            calls.append(output)
            raise TimeoutError

    reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: True, pattern=ReflectionPattern(callbacks=Slow())
    )
    assert calls == ["x"]


class Odd(Adviser):
    """Returns anything as its advice, before the run or on a mistake."""

    def __init__(self, first, later):
        super().__init__()
        self.first, self.later = first, later

    async def recall(self, task):
        return self.first

    async def advise_on(self, task, mistake):
        return self.later


@pytest.mark.parametrize("odd", [None, "Be brief.", ["Be brief."], [None], 7])
@pytest.mark.parametrize("is_first", [True, False])
def test_advice_of_another_type_is_ignored(odd, is_first):
    drafts = iter(["x", "y"])
    result = reflect_sync(
        "W.",
        generate=lambda _: next(drafts),
        evaluate=lambda output: (output == "y", "no y"),
        pattern=ReflectionPattern(advisors=[Odd(odd, []) if is_first else Odd([], odd)]),
    )
    assert result.success
    assert "a list of Advice" in result.diagnostics["advisor_failed"]


async def no_advice(task):
    return []


async def blocked(*_):
    await asyncio.sleep(0)
    raise asyncio.CancelledError


async def exits(*_):
    raise SystemExit(3)


def refuses(*_, **__):
    raise ValueError("no criteria")


@pytest.mark.parametrize(
    ("functions", "report"),
    [
        ({"advise_on": exits}, "advise_on raised SystemExit: 3"),
        ({"advise_on": blocked}, "advise_on was cancelled, and the run was not"),
        ({"with_criteria": refuses}, "ValueError: no criteria"),
        ({"with_criteria": lambda *_, **__: sys.exit(3)}, "SystemExit: 3"),
    ],
)
def test_an_advisor_that_ends_in_any_way_is_ignored(functions, report):
    advisor = SimpleNamespace(recall=no_advice, observe=no_advice, **functions)
    pattern = ReflectionPattern(advisors=[advisor], max_iterations=1)
    result = reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: (0.1, "no"), pattern=pattern)
    assert result.convergence_reason == "max_iterations"
    assert report in result.diagnostics["advisor_failed"]


@pytest.mark.parametrize("observer", [exits, blocked])
def test_a_failed_run_raises_its_own_error_whatever_its_observers_do(observer):
    advisor = SimpleNamespace(recall=no_advice, observe=no_advice, observe_failure=observer)
    pattern = ReflectionPattern(advisors=[advisor])
    with pytest.raises(ValueError, match="no criteria"):
        reflect_sync("W.", generate=refuses, evaluate=lambda o: 0.1, pattern=pattern)


def test_advisors_observe_a_failed_run_before_its_last_event():
    order = []

    class Observer(Adviser):
        async def observe(self, result):
            order.append(result.convergence_reason)

    async def revise(output, evaluation, run: RunContext):
        assert [advice.text for advice in run.advice] == ["Be brief."]
        raise ValueError("no")

    pattern = ReflectionPattern(
        advisors=[Observer("Be brief.")],
        on_event=lambda event: order.append("end") if isinstance(event, RunFinished) else None,
    )
    reflect_sync("W.", generate=lambda p: "x", evaluate=lambda o: 0.1, revise=revise, pattern=pattern)
    assert order == ["error", "end"]


async def stray(*_):
    raise asyncio.CancelledError


CALLBACK = ReflectionPattern(callbacks=SimpleNamespace(on_generation=stray))
ADVISOR = ReflectionPattern(advisors=[SimpleNamespace(recall=stray, observe=stray)])


@pytest.mark.parametrize(
    ("functions", "reason", "report"),
    [
        ({"revise": stray}, "error", "stray was cancelled, and the run was not"),
        ({"evaluate": stray}, "error", "stray was cancelled, and the run was not"),
        ({"criteria": [stray]}, "unjudged", "stray was cancelled, and the run was not"),
        ({"criteria": ["It is clear."], "judge": stray}, "error", "the model 'stray' was cancelled"),
        ({"pattern": CALLBACK}, "semantic_stability", "on_generation was cancelled, and the run was not"),
        ({"pattern": ADVISOR}, "semantic_stability", "recall was cancelled, and the run was not"),
    ],
)
def test_a_function_that_was_cancelled_has_failed(functions, reason, report):
    judges = {} if "criteria" in functions else {"evaluate": lambda output: (0.1, "no")}
    result = reflect_sync("W.", **{"generate": lambda prompt: "one", **judges, **functions})
    assert result.convergence_reason == reason
    assert report in f"{result.summary()} {result.diagnostics}"


async def leaves(*_):
    raise SystemExit(3)  # as argparse does


def leaves_at_once(*_):
    raise SystemExit(3)


async def leaves_step(name, returns, function, /, *args):
    return await (leaves() if name == "evaluate" else function(*args))


async def passes(text):
    return True


@pytest.mark.parametrize(
    ("functions", "reason", "report"),
    [
        ({"revise": leaves}, "error", "leaves raised SystemExit: 3"),
        ({"evaluate": leaves}, "error", "leaves raised SystemExit: 3"),
        ({"criteria": [leaves, passes]}, "unjudged", "leaves raised SystemExit: 3"),
        ({"criteria": ["It is clear."], "judge": leaves}, "error", "the model 'leaves' raised SystemExit: 3"),
        ({"until": leaves_at_once}, "error", "SystemExit: 3"),
        ({"step": leaves_step}, "error", "step raised SystemExit: 3"),
        ({"pattern": ReflectionPattern(on_event=leaves_at_once)}, "semantic_stability", ""),
        (
            {"pattern": ReflectionPattern(callbacks=SimpleNamespace(on_generation=leaves))},
            "semantic_stability",
            "raised SystemExit: 3",
        ),
    ],
)
def test_a_function_that_exits_has_failed_and_ends_nothing_else(functions, reason, report):
    async def main():
        judges = {} if "criteria" in functions else {"evaluate": lambda output: (0.1, "no")}
        other = asyncio.create_task(asyncio.sleep(0, "goes on"))
        run = reflect("W.", **{"generate": lambda prompt: "one", **judges, **functions})
        return await run, await other

    result, other = asyncio.run(main())
    assert (result.convergence_reason, other) == (reason, "goes on")
    assert report in f"{result.summary()} {result.diagnostics}"


async def interrupted(*_):
    os.kill(os.getpid(), signal.SIGUSR1)
    return 0.1


async def interrupted_step(name, returns, function, /, *args):
    return await (interrupted() if name == "evaluate" else function(*args))


@pytest.mark.parametrize(
    "functions",
    [
        {"generate": interrupted},
        {"evaluate": interrupted},
        {"criteria": [interrupted]},
        {"criteria": ["It is clear."], "judge": interrupted},
        {"step": interrupted_step},
    ],
    ids=" ".join,
)
def test_a_signal_handler_that_exits_ends_the_program_whatever_function_it_interrupts(functions):
    def leave(*_):
        sys.exit(3)

    judges = {} if "criteria" in functions else {"evaluate": lambda output: (0.1, "no")}
    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with pytest.raises(SystemExit, match="3"):
            asyncio.run(reflect("W.", **{"generate": lambda prompt: "one", **judges, **functions}))
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("callback", ["on_generation", "on_revision"])
def test_cancellation_in_a_callback_keeps_the_versions(callback):
    async def main():
        reached = asyncio.Event()

        async def wait(*_):
            reached.set()
            await asyncio.sleep(60)

        callbacks = type("Slow", (), {callback: staticmethod(wait)})()
        pattern = ReflectionPattern(callbacks=callbacks, on_event=events.append)
        drafts = {"generate": lambda p: "one", "revise": lambda o, e: "two", "evaluate": lambda o: 0.1}
        run = asyncio.create_task(reflect("W.", pattern=pattern, **drafts))
        await reached.wait()
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()

    events = []
    run_sync(main())
    outputs = [version.output for version in events[-1].result.history.versions]
    assert outputs == (["one"] if callback == "on_generation" else ["one", "two"])


def test_a_passed_gate_outranks_a_higher_score():
    gates = iter([(0.5, False), (0.45, True), (0.48, True), (0.9, True)])

    def evaluate(output):
        score, passed = next(gates)
        return ReflectionEvaluation(score, satisfactory=score > 0.8, gates_passed=passed)

    drafts = iter("abcd")
    pattern = ReflectionPattern(improvement_threshold=0.01)
    result = reflect_sync("W.", generate=lambda p: next(drafts), evaluate=evaluate, pattern=pattern)
    assert "quality_regression" not in result.diagnostics
    assert result.success


def test_each_regression_changes_the_strategy():
    seen = []

    async def revise(output, evaluation, run: RunContext):
        seen.append(run.attempt.strategy)
        return f"{len(seen)}"

    scores = iter([0.6, 0.3, 0.3, 0.3])
    pattern = ReflectionPattern(revision_strategy="full_rewrite", plateau_iterations=9)
    reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: next(scores), revise=revise, pattern=pattern
    )
    assert seen == ["full_rewrite", "incremental", "targeted_edit"]


@pytest.mark.parametrize(
    ("shares", "returned", "made"),
    [
        ([0.6, 1.0], 1, 1),  # good enough: nothing that follows could replace it
        ([0.2, 1.0], 2, 2),
        ([0.2, 0.8, 1.0], 3, 3),
        ([0.2, 0.8, 0.6, 0.8], 1, 4),
    ],
)
def test_tests_that_may_be_wrong_replace_a_draft_only_when_all_pass(shares, returned, made):
    scores = iter(shares)
    criteria = [
        QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 9}),
        QualityCriterion(
            "tests",
            evaluator="function",
            evaluator_config={"function": lambda _: next(scores)},
            origin="generated",
        ),
    ]
    drafts = iter("abcd")
    pattern = ReflectionPattern(quality_criteria=criteria, plateau_iterations=9)
    result = reflect_sync("W.", generate=lambda p: next(drafts), pattern=pattern)
    assert result.history.best_version.iteration == returned
    assert len(result.history.versions) == made
    assert result.success == (returned == made)


def comparing(*winners):
    """A judge that scores everything 0.5, and in turn names these winners of its comparisons."""
    left = iter(winners)
    issues = iter("abcdefgh")

    def answer(request):
        if "winner" not in request.schema["properties"]:
            return {
                "criteria": {"clarity": {"reason": "so", "score": 0.5}},
                "issues": [next(issues)],
                "confidence": 1,
            }
        winner = next(left)
        return winner if isinstance(winner, Exception) else {"reason": "so", "winner": winner}

    return ScriptedModel(answer)


NEW, OLD, FIRST = ("A", "B"), ("B", "A"), ("A", "A")
"""What the judge says, asked in both orders: the new version, the best one, or whichever comes first."""


@pytest.mark.parametrize(
    ("verdicts", "best", "bases", "gains"),
    [
        ([NEW, NEW], 3, [None, 1, 2], [None, 0.5, 0.5]),
        ([NEW, OLD], 2, [None, 1, 2], [None, 0.5, -0.5]),
        ([OLD, NEW], 3, [None, 1, 1], [None, -0.5, 0.5]),
        ([FIRST, FIRST], 1, [None, 1, 2], [None, 0.0, 0.0]),
        ([("tie", "tie"), OLD], 1, [None, 1, 2], [None, 0.0, -0.5]),
    ],
)
def test_a_version_is_accepted_if_the_judge_prefers_it_in_both_orders(verdicts, best, bases, gains):
    judge = comparing(*(winner for pair in verdicts for winner in pair))
    result, _ = redrafted(
        ["clarity"], max_iterations=2, reflection_model=judge, accept="pairwise", plateau_iterations=9
    )
    assert result.history.best_version.iteration == best
    assert highest(result.history.versions).iteration == best
    assert [version.base for version in result.history.versions] == bases
    assert [version.gain for version in result.history.versions] == gains
    assert result.usage_by_role["evaluation"].requests == len(judge.requests) == 3 + 2 * 2
    undecided = FIRST in verdicts or ("tie", "tie") in verdicts
    assert ("undecided_comparison" in result.diagnostics) is undecided
    assert ("undecided_comparison" in result.summary()) is undecided


def test_two_versions_that_the_judge_does_not_prefer_are_a_plateau():
    result, _ = redrafted(["clarity"], reflection_model=comparing(*OLD, *FIRST), accept="pairwise")
    assert result.convergence_reason == "plateau"
    assert "versions 2 (0.50, not preferred to it) and 3 (0.50, not preferred to it)" in result.stop.detail
    assert "version 2  0.50  revise, worse than the best before" in result.summary()


@pytest.mark.parametrize("failure", [ModelError("down"), {"winner": "both"}])
def test_a_comparison_that_fails_keeps_the_best_version(failure):
    judge = comparing(*[failure] * 4)
    result, _ = redrafted(["clarity"], max_iterations=1, reflection_model=judge, accept="pairwise")
    assert result.error is None
    assert [version.evaluation.preferred for version in result.history.versions] == [None, 0.5]
    assert result.history.best_version.iteration == 1


def test_versions_that_gates_distinguish_are_not_compared():
    judge = comparing()
    short = QualityCriterion(
        "short",
        evaluator="function",
        evaluator_config={"function": lambda output: "version" in output},
        gate=True,
    )
    result, _ = redrafted([short, "clarity"], max_iterations=1, reflection_model=judge, accept="pairwise")
    assert result.history.best_version.iteration == 2
    assert result.history.versions[1].evaluation.preferred is None


def test_a_verdict_counts_if_the_budget_allows_no_confirmation():
    def answer(request):
        if request.role != "evaluation":
            return "draft"
        reply = {"criteria": {"clarity": {"reason": "so", "score": 0.85}}, "issues": [], "confidence": 1}
        return ChatReply("", parsed=reply, usage=TokenUsage(900, 90, requests=1, cost_usd=0.0))

    model = ScriptedModel(answer)
    pattern = ReflectionPattern(quality_criteria=["clarity"], reflection_model=model, budget_tokens=1000)
    result = reflect_sync("W.", generate=lambda p: "draft", pattern=pattern)
    assert (result.convergence_reason, result.success) == ("quality_met", True)
    assert result.final_evaluation.overall_score == 0.85
    assert len(model.requests) == 1
    assert "budget_tokens=1000" in result.diagnostics["budget"]


def test_a_repeated_output_does_not_win_a_second_time():
    judge = comparing(*NEW, *NEW)
    outputs = iter(["second", "third", "second"])
    pattern = ReflectionPattern(
        quality_criteria=["clarity"], reflection_model=judge, accept="pairwise", plateau_iterations=9
    )
    result = reflect_sync(
        "W.", generate=lambda p: "first", revise=lambda output, evaluation: next(outputs), pattern=pattern
    )
    assert [version.repeats for version in result.history.versions] == [None, None, None, 2]
    assert result.best_output == "third"
    assert highest(result.history.versions).output == "third"


def test_plain_functions_are_compared_by_the_reflection_model():
    judge = comparing(*NEW)
    pattern = ReflectionPattern(reflection_model=judge, accept="pairwise", max_iterations=1)
    outputs = iter(["a", "b"])
    result = reflect_sync("W.", generate=lambda p: next(outputs), evaluate=lambda _: 0.5, pattern=pattern)
    assert result.best_output == "b"
    assert len(judge.requests) == 2


def test_comparing_versions_needs_a_model():
    with pytest.raises(ConfigError, match="accept='pairwise'"):
        reflect_sync(
            "W.", generate=lambda p: "a", evaluate=lambda _: 0.5, pattern=ReflectionPattern(accept="pairwise")
        )
    with pytest.raises(ConfigError, match="accept"):
        ReflectionPattern(accept="pairs")


def test_candidates_are_compared_only_if_asked():
    judge = comparing()
    pattern = ReflectionPattern(
        quality_criteria=["clarity"],
        reflection_model=judge,
        accept="pairwise",
        max_iterations=0,
        candidates=2,
    )
    drafts = iter(["a", "b"])
    reflect_sync("W.", generate=lambda p: next(drafts), pattern=pattern)
    assert all("winner" not in request.schema["properties"] for request in judge.requests)


def test_a_version_that_the_judge_prefers_goes_on_with_the_same_issues():
    def answer(request):
        if "winner" in request.schema["properties"]:
            first, second = (
                int(number) for number in re.findall(r"version (\d)", request.messages[-1].content)
            )
            return {"reason": "", "winner": "A" if first > second else "B"}
        return {"criteria": {"clarity": {"reason": "so", "score": 0.5}}, "issues": ["dull"], "confidence": 1}

    pattern = ReflectionPattern(
        quality_criteria=["clarity"], reflection_model=ScriptedModel(answer), accept="pairwise"
    )
    result = reflect_sync("W.", generate=lambda p, run: f"version {run.iteration}", pattern=pattern)
    assert result.convergence_reason == "max_iterations"
    assert result.best_output == "version 4"


class MuteError(Exception):
    """An error that can't say what it is."""

    def __str__(self):
        raise RuntimeError

    __repr__ = __str__


class Mute:
    """An object that can't be shown."""

    def __repr__(self):
        raise RuntimeError


@dataclass
class MuteOutput:
    """An output that can't be shown, and neither can a part of it."""

    text: str = "made"
    part: Mute = field(default_factory=Mute)

    def __repr__(self):
        raise RuntimeError


def raises_mute(*_):
    raise MuteError


@pytest.mark.parametrize(
    "verbs",
    [
        {"revise": raises_mute},
        {"evaluate": raises_mute},
        {"pattern": ReflectionPattern(until=raises_mute)},
        {"pattern": ReflectionPattern(callbacks=SimpleNamespace(on_reflection=raises_mute))},
        {"pattern": ReflectionPattern(callbacks=SimpleNamespace(on_reflection=lambda *_: Mute()))},
        {"pattern": ReflectionPattern(on_event=raises_mute)},
        {"generate": lambda _: MuteOutput()},
        {"generate": lambda _: {"part": Mute()}},
        {"generate": lambda _: Draft("made", notes=(Mute(),), memo=Mute())},
        {"evaluate": lambda _: (False, Mute())},
        {"evaluate": lambda _: {"valid": False, "errors": [Mute()]}},
        {"evaluate": lambda _: Mute()},
    ],
    ids=[
        *("reviser", "evaluator", "rule", "callback", "answer of a callback", "listener", "output"),
        *("part of an output", "notes", "reason", "issue", "verdict"),
    ],
)
@pytest.mark.parametrize("is_stored", [False, True])
def test_what_cannot_be_shown_loses_no_version(verbs, is_stored):
    store = MemoryStore()
    step = {"step": Journalled(store, "r")} if is_stored else {}
    known = {"generate": lambda _: "made", "evaluate": lambda _: 0.2}
    result = reflect_sync("T", **known | verbs | step)
    assert result.history.versions
    assert result.summary()
    if is_stored:
        assert run_sync(Runs(store).get("r")).status in ("finished", "failed")


def test_an_argument_that_cannot_be_shown_is_described():
    @reflected(evaluate=lambda _: 1.0, keep=False)
    def write(thing, feedback=""):
        return "made"

    assert "<Mute, whose str() raises RuntimeError>" in write.run_sync(Mute()).task.description
