"""Several drafts at once: how one is chosen, what becomes of the others, and what it costs."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from redraft import (
    Agent,
    ConfigError,
    Draft,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionEvaluation,
    ReflectionPattern,
    ScriptedModel,
    SqliteStore,
    TokenUsage,
    reflect,
    reflect_sync,
    reflected,
)
from redraft.errors import UnfinishedError
from redraft.events import StepFinished, StepStarted, TokenEvent, VersionEvaluated
from redraft.loop import Journalled, Retry
from redraft.loop.runs import Runs
from redraft.protocols import ChatReply
from support.judges import verdict

pytestmark = pytest.mark.anyio

ONCE = {"max_iterations": 0}
USED = TokenUsage(10, 5, requests=1, cost_usd=0.01)
SHORT = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 3})


def drafts(*outputs):
    """A generator whose n-th candidate is the n-th output; an exception is raised."""

    async def generate(prompt, attempt):
        output = outputs[attempt.candidate - 1] if attempt.mode == "draft" else "revised"
        if isinstance(output, Exception):
            raise output
        return Draft(output, USED)

    return generate


def by_length(output):
    return len(output) / 10, f"has {len(output)} characters"


async def run(generate, evaluate=by_length, **options):
    retry = Retry(first_wait=0)
    pattern = ReflectionPattern(**{"candidates": 3, "retry": retry, **ONCE, **options})
    return await reflect("Write.", generate=generate, evaluate=evaluate, pattern=pattern)


def writer(*, judge=None, texts=("a b", "c d", "e f")):
    """A model that writes these texts in turn and scores them by `judge`."""
    left = list(texts)

    def answer(request):
        text = request.messages[-1].content
        if request.role != "evaluation":
            return left.pop(0) if left else "revised"
        return verdict(request, next(score for one, score in judge.items() if one in text))

    return ScriptedModel(answer)


async def test_the_best_draft_by_the_checks_is_revised_and_the_others_are_stored():
    result = await run(drafts("xx", "xxxxx", "xxx"), max_iterations=1)
    version = result.history.versions[0]
    assert [version.output, result.final_output] == ["xxxxx", "revised"]
    assert [
        (candidate.name, candidate.output, candidate.evaluation.overall_score)
        for candidate in version.rejected
    ] == [
        ("1.1", "xx", 0.2),
        ("1.3", "xxx", 0.3),
    ]
    assert version.choice.detail == "Candidate 2 of 3 is the best by the checks (1: 0.20, 2: 0.50, 3: 0.30)."
    assert version.choice.numbers == {
        "candidates": 3,
        "chosen": 2,
        "by": "checks",
        "scores": {"1": 0.2, "2": 0.5, "3": 0.3},
    }
    assert result.iterations_used == 1
    assert "version 1.3  0.30  not chosen" in result.summary()
    assert result.usage_by_role["generation"] == USED + USED + USED
    assert result.token_usage.cost_usd == pytest.approx(0.04)


async def test_drafts_are_made_at_once_and_differ_by_their_temperature():
    started, all_started = [], asyncio.Event()

    async def generate(prompt, attempt):
        started.append((attempt.candidate, attempt.temperature))
        if len(started) == 3:
            all_started.set()
        await all_started.wait()
        return "x" * attempt.candidate

    await asyncio.wait_for(run(generate), 60)
    assert started == [(1, None), (2, 0.7), (3, 0.7)]
    model = writer(texts=("a", "b b", "c c c c"))
    agent = Agent(
        model, pattern=ReflectionPattern(candidates=3, quality_criteria=[SHORT], **ONCE), keep=False
    )
    await agent.run("Write.")
    assert [request.temperature for request in model.requests] == [None, 0.7, 0.7]


async def test_revisions_and_fresh_starts_are_single():
    calls = []

    def generate(prompt, attempt):
        calls.append((attempt.mode, attempt.candidate))
        return f"draft {attempt.candidate}" if attempt.mode == "draft" else "the same"

    await run(generate, lambda output: 0.4, max_iterations=3, candidates=2, plateau_iterations=9)
    assert sorted(calls[:2]) == [("draft", 1), ("draft", 2)]
    assert [mode for mode, _ in calls[2:]] == ["revise", "revise", "fresh"]
    assert {candidate for _, candidate in calls[2:]} == {1}


async def test_identical_drafts_count_once():
    judged = []

    def evaluate(output):
        judged.append(output)
        return by_length(output)

    result = await run(drafts("xx", "xx", "xxx"), evaluate)
    assert sorted(judged) == ["xx", "xxx"]
    choice = result.history.versions[0].choice
    assert choice.numbers["same"] in ({"2": 1}, {"1": 2})
    assert "is the same as" in choice.detail
    assert [candidate.evaluation.overall_score for candidate in choice.rejected] == [0.2, 0.2]
    assert result.usage_by_role["generation"] == USED + USED + USED


async def test_of_equal_drafts_the_first_goes_on():
    result = await run(drafts("xx", "yy", "z"))
    version = result.history.versions[0]
    assert version.output == "xx"
    assert version.choice.detail.startswith(
        "Candidate 1 of 3 is the first of 1 and 2, which no check distinguishes"
    )


async def test_the_judge_scores_only_what_the_checks_do_not_decide():
    model = writer(judge={"a b": 0.3, "c d": 1.0, "e f": 0.6}, texts=("a b", "c d", "e f g h i"))
    pattern = ReflectionPattern(candidates=3, quality_criteria=[SHORT, "lively"], **ONCE)
    result = await Agent(model, pattern=pattern, keep=False).run("Write.")
    judged = [request for request in model.requests if request.role == "evaluation"]
    assert len(judged) == 2, "the long one fails a check, and the chosen one is not judged again"
    version = result.history.versions[0]
    assert version.output == "c d"
    assert version.choice.numbers["by"] == "judge"
    assert version.choice.numbers["scores"] == {"1": pytest.approx(0.65), "2": pytest.approx(1.0)}
    assert result.token_usage.requests == 5
    assert result.usage_by_role["evaluation"].requests == 2


async def test_one_draft_that_the_checks_prefer_is_judged_alone():
    model = writer(judge={"a b": 0.4}, texts=("a b", "c d e f", "g h i j"))
    pattern = ReflectionPattern(candidates=3, quality_criteria=[SHORT, "lively"], **ONCE)
    result = await Agent(model, pattern=pattern, keep=False).run("Write.")
    assert [request.role for request in model.requests].count("evaluation") == 1
    assert result.history.versions[0].evaluation.is_fully_judged


async def test_a_judge_that_fails_leaves_the_first():
    def answer(request):
        if request.role == "evaluation":
            raise ModelError("no judge")
        return f"text {len(model.requests)}"

    model = ScriptedModel(answer)
    pattern = ReflectionPattern(candidates=2, quality_criteria=[SHORT, "lively"], **ONCE)
    result = await Agent(model, pattern=pattern, keep=False).run("Write.")
    assert result.best_output == "text 1"
    assert result.convergence_reason == "error"
    assert "no judge" in str(result.error)
    choice = result.history.versions[0].choice
    assert choice.numbers["by"] == "order"
    assert choice.detail.endswith("the judge could not distinguish them either (1: 1.00, 2: 1.00).")


async def test_with_equal_scores_the_first_draft_is_chosen():
    model = writer(judge=dict.fromkeys(("a b", "c d", "e f"), 0.9))
    pattern = ReflectionPattern(candidates=3, quality_criteria=["lively"], **ONCE)
    choice = (await Agent(model, pattern=pattern, keep=False).run("Write.")).history.versions[0].choice
    assert choice.numbers["by"] == "order"
    assert "the judge could not distinguish them either (1: 0.90, 2: 0.90, 3: 0.90)" in choice.detail


async def test_all_drafts_are_awaited_and_their_cost_is_known():
    async def generate(prompt, attempt):
        await asyncio.sleep(0.02 * (3 - attempt.candidate))
        return Draft("x" * (6 + attempt.candidate), USED)

    result = await run(generate)
    assert result.history.versions[0].choice.detail == (
        "Candidate 3 of 3 is the best by the checks (1: 0.70, 2: 0.80, 3: 0.90)."
    )
    assert result.token_usage.cost_usd == pytest.approx(0.03)
    assert result.token_usage.failed_requests == 0


async def test_a_draft_that_raises_leaves_the_others():
    result = await run(drafts("xx", ValueError("no"), "xxx"))
    version = result.history.versions[0]
    assert version.output == "xxx"
    assert version.choice.numbers["failed"] == {"2": "ValueError: no"}
    assert "Candidate 2 failed: ValueError: no." in result.diagnostics["draft_notes"]


async def test_a_draft_is_retried_by_itself():
    calls = []

    async def generate(prompt, attempt):
        calls.append(attempt.candidate)
        if attempt.candidate == 2 and calls.count(2) == 1:
            raise ModelError("busy", retryable=True)
        return Draft("x" * attempt.candidate, USED)

    result = await run(generate)
    assert sorted(calls) == [1, 2, 2, 3]
    assert result.token_usage.failed_requests == 1
    assert len(result.history.versions[0].rejected) == 2


async def test_if_all_drafts_raise_so_does_the_run():
    calls = []

    async def generate(prompt, attempt):
        calls.append(attempt.candidate)
        raise ModelError("down", retryable=True, usage=TokenUsage(1, 0))

    with pytest.raises(ModelError, match="down") as caught:
        await run(generate)
    assert sorted(calls) == sorted([1, 2, 3] * 3), "three tries each, and not three times three"
    assert caught.value.usage.input_tokens == 9


async def test_an_evaluator_that_raises_a_mistake_raises_it():
    def evaluate(output):
        return output.no_such_thing

    with pytest.raises(AttributeError, match="no_such_thing"):
        await run(drafts("a", "b", "c"), evaluate)


@pytest.mark.parametrize(
    ("budget", "reason"),
    [({"budget_tokens": 130}, "token_budget"), ({"budget_usd": 0.015}, "cost_budget")],
)
async def test_a_budget_leaves_out_what_does_not_fit(budget, reason):
    def answer(request):
        return ChatReply("x" * len(model.requests), usage=TokenUsage(60, 10, requests=1, cost_usd=0.01))

    model = ScriptedModel(answer)
    never = QualityCriterion("never", evaluator="regex", evaluator_config={"pattern": "y"})
    pattern = ReflectionPattern(candidates=3, quality_criteria=[never], **budget)
    result = await Agent(model, pattern=pattern, keep=False).run("Write.")
    assert len(model.requests) == 2
    assert (result.token_usage.total_tokens, result.token_usage.cost_usd) == (140, 0.02)
    assert result.convergence_reason == reason
    version = result.history.versions[0]
    assert [candidate.output for candidate in version.rejected] == ["xx"]
    assert next(iter(budget)) in version.choice.numbers["failed"]["3"]


async def test_a_budget_below_one_draft_raises_the_error_of_a_single_draft():
    pattern = ReflectionPattern(candidates=3, budget_tokens=5, quality_criteria=[SHORT])
    with pytest.raises(UnfinishedError, match="budget_tokens=5"):
        await Agent(writer(), pattern=pattern, keep=False).run("Write a long text about many things.")


async def test_at_the_deadline_unfinished_drafts_are_cancelled_and_finished_drafts_count():
    async def generate(prompt, attempt):
        if attempt.candidate > 1:
            await asyncio.sleep(60)
        return Draft("xx", USED)

    result = await asyncio.wait_for(run(generate, budget_seconds=0.2), 60)
    assert result.best_output == "xx"
    assert result.convergence_reason == "time_budget"
    assert result.usage_by_role["generation"].total_tokens == 15
    assert sorted(result.history.versions[0].choice.numbers["failed"]) == ["2", "3"]
    assert result.final_evaluation.overall_score == 0.2


async def test_a_model_that_is_answering_at_the_deadline_is_cancelled():
    async def answer(request):
        if len(model.requests) > 1:
            await asyncio.sleep(60)
        return "a b c d e"

    model = ScriptedModel(answer)
    pattern = ReflectionPattern(candidates=3, budget_seconds=0.2, quality_criteria=[SHORT])
    result = await asyncio.wait_for(Agent(model, pattern=pattern, keep=False).run("Write."), 60)
    assert result.best_output == "a b c d e"
    assert result.convergence_reason == "time_budget"


async def test_a_cancelled_run_cancels_all_drafts():
    ended = []

    async def generate(prompt, attempt):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(attempt.candidate)

    task = asyncio.ensure_future(run(generate))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [1, 2, 3]


async def test_a_stream_tells_of_every_draft_and_of_the_choice():
    model = writer(judge={"a b": 0.4, "c d": 0.7, "e f": 0.6})
    pattern = ReflectionPattern(candidates=3, quality_criteria=["lively"], **ONCE)
    async with Agent(model, pattern=pattern, keep=False).stream("Write.") as stream:
        events = [event async for event in stream]
    started = [event.name for event in events if isinstance(event, StepStarted)]
    assert started[0] == "generate"
    assert {"draft 1", "draft 2", "draft 3", "check 1", "judge 1", "judge 2", "judge 3"} <= set(started)
    finished = {event.name: event.result for event in events if isinstance(event, StepFinished)}
    assert finished["draft 2"].output == "c d"
    versions = [event.version for event in events if isinstance(event, VersionEvaluated)]
    assert [version.output for version in versions] == ["c d"]
    assert versions[0].choice.numbers["chosen"] == 2


async def test_a_resumed_run_finds_its_drafts_and_its_choice():
    store, calls, checked = MemoryStore(), [], asyncio.Event()

    async def generate(prompt, attempt):
        calls.append(attempt.candidate)
        if calls == [1, 2]:
            await asyncio.sleep(60)
        return Draft("x" * attempt.candidate, USED)

    async def evaluate(output):
        checked.set()
        return by_length(output)

    def once():
        step = Journalled(store, "one")
        pattern = ReflectionPattern(candidates=2, **ONCE)
        return reflect("Write.", generate=generate, evaluate=evaluate, pattern=pattern, step=step)

    interrupted = asyncio.ensure_future(once())
    await checked.wait()
    interrupted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await interrupted
    result = await once()
    assert calls == [1, 2, 2]
    assert (await once()).history == result.history
    assert calls == [1, 2, 2]
    assert result.usage_by_role["generation"] == USED + USED


def test_a_run_that_was_killed_pays_only_for_the_missing_drafts(tmp_path):
    program = [sys.executable, str(Path(__file__).with_name("killed_drafts.py")), str(tmp_path)]
    killed = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -9

    async def state():
        store = SqliteStore(tmp_path / "runs.db")
        stored = await Runs(store).stored("killed")
        await store.aclose()
        return stored.why.detail

    assert "0 versions, 2 candidates for the next one and 0 finished steps are stored" in asyncio.run(state())
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "xxx ['x', 'xx']\n", done.stderr
    assert sorted((tmp_path / "drafts.log").read_text().split()) == ["1", "2", "3", "3"]


async def test_a_stored_run_shows_its_candidates():
    store = MemoryStore()
    pattern = ReflectionPattern(candidates=3, max_iterations=1)
    generate = drafts("xx", "xxxxx", "xxx")
    await reflect("W.", generate=generate, evaluate=by_length, pattern=pattern, step=Journalled(store, "one"))
    stored = await Runs(store).stored("one")
    assert stored.version("1.3").output == "xxx"
    assert stored.version("1").output == stored.version("v1").output == "xxxxx"
    assert stored.diff("1.1", "1").older.output == "xx"
    assert stored.record.version(1).choice.numbers["chosen"] == 2
    with pytest.raises(ConfigError, match=r"no version '1.2'; it has 1, 1.1, 1.3, 2"):
        stored.version("1.2")


async def test_secrets_in_rejected_candidates_are_withheld_when_they_are_shown():
    store, secret = MemoryStore(), "sk-ant-api03-" + "a1B2" * 20
    pattern = ReflectionPattern(candidates=2, **ONCE)
    generate = drafts(f"key {secret}", "y" * 5)

    def grade(output):
        return 0.1 if secret in output else 0.5, f"not {output}"

    await reflect("W.", generate=generate, evaluate=grade, pattern=pattern, step=Journalled(store, "one"))
    stored = await Runs(store).stored("one")
    assert secret in str(stored.document())
    assert secret not in str(stored.redacted().document())


async def test_rejected_candidates_can_be_dropped():
    events = []
    result = await run(drafts("xx", "xxxxx", "xxx"), preserve_all_versions=False, on_event=events.append)
    made = [event.result for event in events if isinstance(event, StepFinished) and event.name == "generate"]
    assert len(made[0].choice.rejected) == 2, "a listener keeps what it was sent"
    assert result.history.versions[0].rejected == ()
    assert result.history.versions[0].choice.numbers["chosen"] == 2
    assert result.usage_by_role["generation"] == USED + USED + USED


async def test_a_decorated_function_has_candidates_too():
    @reflected(evaluate=by_length, max_iterations=0, pattern=ReflectionPattern(candidates=2), keep=False)
    async def write(attempt=None):
        return "x" * (attempt.candidate + 1)

    assert await write() == "xxx"


async def test_a_starting_draft_has_no_candidates():
    pattern = ReflectionPattern(candidates=3, **ONCE)
    result = await reflect("W.", draft="x", generate=drafts(), evaluate=by_length, pattern=pattern)
    assert result.history.versions[0].choice is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": 0}, "candidates must be"),
        ({"candidates": 2.5}, "candidates must be"),
        ({"candidates": 2, "reflection_triggers": ["error"]}, "candidates=2 can't be combined .* 'error'"),
    ],
)
def test_a_bad_option_is_named(options, message):
    with pytest.raises(ConfigError, match=message):
        ReflectionPattern(**options)


async def test_a_stream_of_a_resumed_run_has_the_drafts_that_were_stored():
    async def texts(store, model):
        pattern = ReflectionPattern(candidates=2, quality_criteria=[SHORT], **ONCE)
        run = Agent(model, pattern=pattern, keep=store).stream("Write.", run_id="one")
        return {event.text async for event in run if isinstance(event, TokenEvent)}

    whole, killed = MemoryStore(), MemoryStore()
    first = "a b c d"
    await texts(whole, ScriptedModel([first, "e f g h"]))
    for step in await whole.find("step", prefix="one/00001/draft 1#1"):  # it was killed in the second draft
        await killed.put(step)
    model = ScriptedModel(["second"])
    assert await texts(killed, model) == {first, "second"}
    assert len(model.requests) == 1


def test_a_draft_that_could_not_be_judged_is_not_chosen_over_one_whose_gate_failed():
    drafts = iter(["judged", "broken"])

    def evaluate(output):
        if output == "broken":
            raise RuntimeError("the evaluator is down")
        return ReflectionEvaluation(0.4, {"runs": 0.4}, gates_passed=False)

    result = reflect_sync(
        "Task.",
        generate=lambda _: next(drafts),
        evaluate=evaluate,
        pattern=ReflectionPattern(candidates=2, max_iterations=0),
    )
    assert (result.best_output, result.error) == ("judged", None)
    assert [candidate.output for candidate in result.history.best_version.rejected] == ["broken"]
