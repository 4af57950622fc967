import asyncio
import json
import re
import threading
from dataclasses import replace
from math import log
from time import monotonic
from zlib import crc32

import pytest
from pydantic import BaseModel
from pydantic_ai.models.test import TestModel

from redraft import (
    Agent,
    ConfigError,
    ConvergenceReason,
    Draft,
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
from redraft._texts import estimate_tokens
from redraft.errors import OutputError, UnfinishedError
from redraft.loop import Retry
from redraft.loop.budget import NO_BUDGET, Budget, StepBudget, Tally, check_prices
from redraft.loop.journal import STEP, Journalled
from redraft.loop.record import RUN
from redraft.models import ProviderModel
from redraft.protocols import ChatReply
from redraft.stores.sqlite import MemoryStore


@pytest.mark.parametrize("field", ["tokens", "usd", "seconds", "revision_tokens"])
@pytest.mark.parametrize("bound", [0, -1, float("nan")])
def test_bounds_must_be_positive(field, bound):
    with pytest.raises(ConfigError, match=r"above 0|at least 1"):
        Budget(**{field: bound})


@pytest.mark.parametrize(
    ("budget", "usage", "expected"),
    [
        (Budget(tokens=10), TokenUsage(5, 4), None),
        (Budget(tokens=10), TokenUsage(5, 5), "token_budget"),
        (Budget(usd=0.1), TokenUsage(cost_usd=0.09), None),
        (Budget(usd=0.1), TokenUsage(cost_usd=0.1), "cost_budget"),
        (Budget(usd=0.1), TokenUsage(cost_usd=None), None),
        (Budget(seconds=1e-9), TokenUsage(), "time_budget"),
        (NO_BUDGET, TokenUsage(10**9, cost_usd=1e9), None),
    ],
)
def test_spent(budget, usage, expected):
    tally = Tally(budget)
    tally.add("generation", usage)
    assert tally.spent() == expected


@pytest.mark.parametrize(
    ("budget", "reason", "usage", "detail"),
    [
        (
            Budget(tokens=1000),
            "token_budget",
            TokenUsage(1200, 34),
            "1,234 of 1,000 tokens were used (budget_tokens).",
        ),
        (
            Budget(revision_tokens=500),
            "token_budget",
            TokenUsage(500),
            "Revisions used 500 of 500 tokens (max_revision_tokens).",
        ),
        (
            Budget(usd=0.01),
            "cost_budget",
            TokenUsage(cost_usd=0.0123),
            "$0.0123 of $0.0100 were spent (budget_usd).",
        ),
        (
            Budget(usd=0.00002),
            "cost_budget",
            TokenUsage(cost_usd=0.00003),
            "<$0.0001 of <$0.0001 were spent (budget_usd).",
        ),
        (
            Budget(usd=0.01),
            "cost_budget",
            TokenUsage(cost_usd=None),
            "Part of the cost is not known; the rest reached $0.0100 (budget_usd).",
        ),
        (
            Budget(seconds=60),
            "time_budget",
            TokenUsage(),
            "61.2 of 60.0 seconds passed (budget_seconds).",
        ),
    ],
)
def test_a_budget_explains_why_it_stops_a_run(budget, reason, usage, detail):
    times = iter([0.0, 61.24])
    tally = Tally(budget, clock=lambda: next(times))
    tally.add("revision", usage)
    stop = tally.stop(ConvergenceReason(reason))
    assert (stop.reason, stop.detail) == (reason, detail)
    assert stop.numbers["used"] == (61.24 if reason == "time_budget" else usage.cost_usd
                                    if reason == "cost_budget" else usage.total_tokens)  # fmt: skip


def test_failures_count_with_their_usage():
    tally = Tally(NO_BUDGET)
    tally.add_failure("evaluation", ModelError("down", usage=TokenUsage(3, 4, requests=1)))
    tally.add_failure("evaluation", OutputError("empty", usage=TokenUsage(1, 1, requests=1)))
    tally.add_failure("evaluation", ValueError("not a call"))
    used = tally.by_role["evaluation"]
    assert (used.total_tokens, used.requests, used.failed_requests) == (9, 2, 1)


# --- fan-outs: samples, questions and comparisons take only what is left -----------------------------------

REPLY = 120  # output tokens of every reply
NAMES = ("clarity", "tone", "depth", "order", "facts", "brevity")


TIME = 60  # a budget in seconds that no busy machine spends: a hanging call skips it
_skipped = [0.0]


def skip():
    """Skip the time of a budget, once, on the clocks of the event loop and of journals."""
    loop = asyncio.get_running_loop()
    if "time" not in vars(loop):
        before = loop.time
        loop.time = lambda: before() + TIME
        _skipped[0] += TIME


@pytest.fixture(autouse=True)
def _clocks(monkeypatch):
    """Let journals follow skipped time, and give steps enough grace on a busy machine."""
    monkeypatch.setattr("redraft.loop.journal.monotonic", lambda: monotonic() + _skipped[0])
    monkeypatch.setattr("redraft.loop.budget.GRACE", 1_000)


class Provider:
    """A model whose replies use `reply` output tokens, and which counts its concurrent calls.

    The calls of the role `hangs`, from `hangs_from` on, never end.
    """

    def __init__(self, reply=REPLY, score=0.5, usd=0.0, hangs=None, hangs_from=1):
        self.reply, self.score, self.usd = reply, score, usd
        self.hangs, self.hangs_from = hangs, hangs_from
        self.asked, self.used, self.most_at_once, self._at_once = [], 0, 0, 0
        self.usd_used = 0.0
        self.hanging = asyncio.Event()

    async def __call__(self, request):
        self.asked.append(request.role)
        hangs = request.role == self.hangs and self.asked.count(request.role) >= self.hangs_from
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(0)
            if hangs:
                self.hanging.set()
                await asyncio.sleep(0.05)  # the other calls are answered
                skip()
                await asyncio.Event().wait()
        finally:
            self._at_once -= 1
        size = min(self.reply, request.max_tokens or self.reply)
        asked = sum(estimate_tokens(message.content) for message in request.messages)
        self.used += asked + size
        self.usd_used += self.usd
        usage = TokenUsage(asked, size, requests=1, cost_usd=self.usd)
        return ChatReply(self.text(request), logprobs=({"Yes": log(0.5), "No": log(0.5)},), usage=usage)

    def text(self, request):
        if request.role != "evaluation":
            return f"draft {len(self.asked)}"
        if request.schema and "winner" in request.schema["properties"]:
            return json.dumps({"reason": "so", "winner": "tie"})
        judged = {name: {"reason": "so", "score": self.score} for name in NAMES}
        return json.dumps({"criteria": judged, "issues": [], "suggestions": [], "confidence": 1})


COMPARED = [
    QualityCriterion(name, "Better.", evaluator="compare", evaluator_config={"reference": "a reference " * 9})
    for name in NAMES
]
FAN_OUTS = {
    "samples": {"quality_criteria": NAMES[:1], "judge_samples": 20},
    "questions": {"quality_criteria": NAMES, "judge_method": "probability"},
    "comparisons": {"quality_criteria": COMPARED},
    "a panel": {"quality_criteria": [*COMPARED[1:], NAMES[0]], "judge_samples": 8},
}


@pytest.mark.parametrize(
    ("budget", "reply", "store"),
    [
        (700, 10, None),
        (700, 120, MemoryStore),
        (1500, 120, None),
        (1500, 900, MemoryStore),
        (4000, 900, None),
    ],
)
@pytest.mark.parametrize("options", FAN_OUTS.values(), ids=FAN_OUTS)
def test_a_run_exceeds_its_budget_by_at_most_one_reply(options, budget, reply, store):
    model = Provider(reply)
    pattern = ReflectionPattern(max_iterations=30, plateau_iterations=30, budget_tokens=budget, **options)
    agent = Agent(model, pattern=pattern, keep=store() if store else False)
    result = asyncio.run(agent.run("Write."))
    assert model.used <= budget + reply
    assert result.token_usage.total_tokens == model.used  # nothing that was paid for is forgotten
    assert result.convergence_reason == "token_budget"


def test_paid_samples_count_and_missing_ones_are_named():
    model = Provider()
    pattern = ReflectionPattern(quality_criteria=["clarity"], judge_samples=20, budget_tokens=1800)
    result = asyncio.run(Agent(model, pattern=pattern, keep=False).run("Write."))
    evaluation = result.history.versions[0].evaluation
    assert evaluation.overall_score == 0.5
    assert evaluation.usage.requests == model.asked.count("evaluation") > 1
    refused = 20 - evaluation.usage.requests
    assert "budget_tokens=1800" in result.diagnostics["budget"]
    assert f"{refused} not started" in result.diagnostics["budget"]


def test_samples_run_concurrently_within_a_large_budget():
    model = Provider()
    pattern = ReflectionPattern(quality_criteria=["clarity"], judge_samples=20, budget_tokens=1_000_000)
    asyncio.run(Agent(model, pattern=pattern, keep=False).run("Write."))
    assert model.most_at_once == 20


def test_samples_run_concurrently_once_a_reply_is_known():
    model = Provider()
    pattern = ReflectionPattern(
        quality_criteria=["clarity"], judge_samples=6, budget_tokens=15_000, max_iterations=0
    )
    asyncio.run(Agent(model, pattern=pattern, keep=False).run("Write."))
    assert model.asked.count("evaluation") == 6
    assert model.most_at_once > 3


@pytest.mark.parametrize("usd", [0.01, 0.04])
def test_a_run_exceeds_its_cost_budget_by_at_most_one_reply(usd):
    model = Provider(usd=usd)
    pattern = ReflectionPattern(quality_criteria=["clarity"], judge_samples=20, budget_usd=0.1)
    result = asyncio.run(Agent(model, pattern=pattern, keep=False).run("Write."))
    assert 0.1 - usd <= model.usd_used <= 0.1 + usd
    assert result.convergence_reason == "cost_budget"
    assert model.most_at_once > 1 or usd > 0.02


def test_a_prompt_that_does_not_fit_is_never_sent():
    model = Provider()
    agent = Agent(model, pattern=ReflectionPattern(budget_tokens=50), keep=False)
    with pytest.raises(
        UnfinishedError, match=r"budget_tokens=50 leaves 50 tokens; the next call takes about"
    ) as caught:
        asyncio.run(agent.run("Write " * 100))
    assert caught.value.reason == "token_budget"
    assert model.asked == []


def test_an_unusable_reply_is_parsed_as_is_if_a_retry_does_not_fit():
    class Careless(Provider):
        def text(self, request):
            text = super().text(request)
            return text if request.role != "evaluation" else text.replace('"tone": ', '"tune": ')

    model = Careless(reply=400)
    pattern = ReflectionPattern(quality_criteria=["clarity", "tone"], budget_tokens=1450)
    result = asyncio.run(Agent(model, pattern=pattern, keep=False).run("Write."))
    assert result.history.versions[0].evaluation.criteria_scores == {"clarity": 0.5, "tone": None}
    assert result.token_usage.total_tokens == model.used


def test_a_run_inside_a_step_has_only_its_own_budget():
    model = Provider()
    inner = Agent(
        model, pattern=ReflectionPattern(quality_criteria=["clarity"], max_iterations=0), keep=False
    )

    async def generate(prompt):
        return (await inner.run("Write.")).best_output

    pattern = ReflectionPattern(budget_tokens=10)
    result = reflect_sync("W.", generate=generate, evaluate=lambda output: True, pattern=pattern)
    assert result.success
    assert model.used > 10


# --- a call that hangs is cancelled, and what was made is kept ---------------------------------------------

GUARD = 60


def in_time(run):
    """The result of a run; it takes a minute if the run is not cancelled."""
    return asyncio.run(asyncio.wait_for(run, TIME + GUARD))


async def forever(*_given):
    skip()
    await asyncio.Event().wait()


class Note(BaseModel):
    text: str


@pytest.mark.parametrize("output", ["a text", {"a": 1}, Note(text="typed")], ids=["text", "json", "typed"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_hanging_function_is_cancelled(output, kept):
    step = {"step": Journalled(MemoryStore(), "a-run")} if kept else {}

    async def generate(prompt):
        return output

    pattern = ReflectionPattern(budget_seconds=TIME)
    result = in_time(
        reflect("W.", generate=generate, evaluate=lambda o: 0.5, revise=forever, pattern=pattern, **step)
    )
    assert result.convergence_reason == "time_budget"
    assert result.best_output == output
    assert not kept or result.stop.numbers["used"] >= TIME, "as the skipped clock of the journal says"
    assert "60 seconds passed (budget_seconds) while" in str(result.error)


def test_a_hanging_first_draft_raises_with_the_reason():
    with pytest.raises(UnfinishedError, match=r"60 seconds passed \(budget_seconds\) while") as caught:
        in_time(
            reflect(
                "W.", generate=forever, evaluate=lambda o: 1.0, pattern=ReflectionPattern(budget_seconds=TIME)
            )
        )
    assert caught.value.reason == "time_budget"


@pytest.mark.parametrize("async_too", [False, True])
def test_a_hanging_evaluator_leaves_the_version_unjudged(async_too):
    released = threading.Event()
    evaluate = forever if async_too else lambda output: released.wait(GUARD)
    began = monotonic()
    result = reflect_sync(
        "W.", draft="x", generate=str, evaluate=evaluate, pattern=ReflectionPattern(budget_seconds=0.2)
    )
    assert monotonic() - began < GUARD / 2  # neither the run nor the event loop waits for a thread that hangs
    released.set()
    assert result.convergence_reason == "time_budget"
    assert result.best_output == "x"
    assert result.final_evaluation.overall_score is None


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("role", "from_call", "versions"), [("evaluation", 2, 1), ("revision", 1, 1), ("evaluation", 6, 2)]
)
def test_a_hanging_model_is_cancelled_and_the_earlier_versions_count(role, from_call, versions, kept):
    model = Provider(hangs=role, hangs_from=from_call)
    pattern = ReflectionPattern(
        quality_criteria=["clarity"], judge_samples=3, budget_seconds=TIME, improvement_threshold=0
    )
    agent = Agent(model, pattern=pattern, keep=MemoryStore() if kept else False)
    result = in_time(agent.run("Write."))
    assert result.convergence_reason == "time_budget"
    assert len(result.history.versions) == versions
    assert result.final_evaluation.overall_score == 0.5  # the samples that were answered are read
    assert result.token_usage.total_tokens == model.used
    assert "cancelled" in result.diagnostics["budget"]


def test_a_hanging_check_does_not_affect_the_others():
    worked = asyncio.Event()

    async def works(output):
        worked.set()
        return 0.75

    async def hangs(output):
        await worked.wait()
        await forever()

    checks = [
        QualityCriterion("hangs", evaluator="function", evaluator_config={"function": hangs}),
        QualityCriterion("works", evaluator="function", evaluator_config={"function": works}),
    ]
    pattern = ReflectionPattern(quality_criteria=checks, budget_seconds=TIME)
    result = in_time(reflect("W.", generate=lambda prompt: "x", draft="x", pattern=pattern))
    assert result.final_evaluation.criteria_scores == {"hangs": None, "works": 0.75}
    assert result.convergence_reason == "time_budget"


def test_free_checks_run_after_the_time_is_spent(monkeypatch):
    monkeypatch.setattr("redraft.loop.budget.FREE_CHECKS", 30)

    async def check(output):
        await asyncio.sleep(0.01)
        return 0.75

    free = QualityCriterion("free", evaluator="function", evaluator_config={"function": check})

    async def generate(prompt):
        while True:  # takes the whole time, and does not let itself be cancelled
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                return "late"

    pattern = ReflectionPattern(quality_criteria=[free], budget_seconds=0.05)
    result = in_time(reflect("W.", generate=generate, pattern=pattern))
    assert (result.best_output, result.final_evaluation.overall_score) == ("late", 0.75)
    assert result.convergence_reason == "time_budget"


# --- kept runs: what was cancelled leaves no record, and is done again -------------------------------------


def test_a_cancelled_call_is_not_recorded_and_repeated_on_resume():
    store, slow = MemoryStore(), Provider(hangs="generation")
    options = {"quality_criteria": ["clarity"], "max_iterations": 0, "retry": Retry(attempts=1)}

    def run(model, seconds):
        pattern = ReflectionPattern(budget_seconds=seconds, **options)
        return in_time(Agent(model, pattern=pattern, keep=store).run("Write.", run_id="a-run"))

    with pytest.raises(UnfinishedError) as caught:
        run(slow, TIME)
    assert caught.value.reason == "time_budget"
    records = asyncio.run(store.find(STEP, prefix="a-run/"))
    assert [record.key for record in records if "model" in record.data["name"]] == []
    again = Provider()
    result = run(again, 2 * TIME)
    assert again.asked == ["generation", "evaluation"]
    assert result.history.versions[0].evaluation.overall_score == 0.5


def test_the_time_of_a_cancelled_call_does_not_cancel_it_again():
    store = MemoryStore()
    pattern = ReflectionPattern(quality_criteria=["clarity"], max_iterations=0, budget_seconds=TIME)

    def run(model):
        return in_time(Agent(model, pattern=pattern, keep=store).run("Write.", run_id="a-run"))

    with pytest.raises(UnfinishedError):
        run(Provider(hangs="generation"))
    assert run(Provider()).history.versions[0].evaluation.overall_score == 0.5


def test_a_cancelled_function_is_not_recorded():
    store = MemoryStore()

    def run(revise, seconds):
        return in_time(
            reflect(
                "W.", generate=lambda prompt: "x", evaluate=lambda output: 0.5 if output == "x" else 1.0,
                revise=revise, pattern=ReflectionPattern(budget_seconds=seconds),
                step=Journalled(store, "a-run"),
            )
        )  # fmt: skip

    first = run(forever, TIME)
    assert first.convergence_reason == "time_budget"
    names = [record.data["name"] for record in asyncio.run(store.find(STEP, prefix="a-run/"))]
    assert names == ["generate", "evaluate"]
    assert asyncio.run(store.get(RUN, "a-run")).data["status"] == "finished"
    assert run(forever, TIME).best_output == "x"  # a finished run gives its result again


def test_recorded_replies_are_replayed_whatever_the_budget():
    class Killed(BaseException):
        pass

    class Dying(Provider):
        async def __call__(self, request):
            if self.asked.count("evaluation") == 3:
                raise Killed
            return await super().__call__(request)

    store, again = MemoryStore(), Provider()

    def run(model, tokens):
        pattern = ReflectionPattern(
            quality_criteria=["clarity"], judge_samples=4, max_iterations=0, budget_tokens=tokens
        )
        return asyncio.run(Agent(model, pattern=pattern, keep=store).run("Write.", run_id="a-run"))

    first = Dying(reply=1000)
    with pytest.raises(Killed):
        run(first, 8_000)
    result = run(again, first.used + 1)
    assert again.asked == []
    assert result.history.versions[0].evaluation.usage.requests == 3
    assert result.token_usage.total_tokens == first.used


class Steps(MemoryStore):
    """A store that remembers the order of its steps, and begins with some."""

    def __init__(self, steps=()):
        super().__init__()
        self.steps = []
        for step in steps:
            asyncio.run(self.put(step))

    async def put_if_absent(self, record):
        if record.kind == STEP:
            self.steps.append(record)
        return await super().put_if_absent(record)


class Repeatable(Provider):
    """A model that gives the same reply to the same request, also in another process."""

    def text(self, request):
        if request.role == "evaluation":
            return super().text(request)
        return f"draft {crc32(str(request.messages).encode())}"


def outcome(result):
    versions = [(version.output, version.evaluation) for version in result.history.versions]
    return versions, result.stop, result.token_usage, result.diagnostics


@pytest.mark.parametrize("budget", [900, 1500, 2300, 4000])
@pytest.mark.parametrize("fan_out", ["samples", "a panel"])
def test_a_run_that_is_killed_anywhere_spends_no_more_than_it_would_have(fan_out, budget):
    pattern = ReflectionPattern(
        max_iterations=30, plateau_iterations=30, budget_tokens=budget, **FAN_OUTS[fan_out]
    )

    def run(store):
        model = Repeatable(120)
        return outcome(asyncio.run(Agent(model, pattern=pattern, keep=store).run("W.", run_id="r"))), model

    whole = Steps()
    expected, model = run(whole)
    assert "not started" in expected[-1]["budget"]
    for count in range(len(whole.steps) + 1):
        paid = sum("model" in step.data["name"] for step in whole.steps[:count])
        resumed, rest = run(Steps(whole.steps[:count]))
        assert resumed == expected, f"killed after step {count}"
        assert paid + len(rest.asked) == len(model.asked)


def test_a_resumed_run_with_a_larger_budget_goes_on():
    def run(store, tokens):
        pattern = ReflectionPattern(max_iterations=2, budget_tokens=tokens, **FAN_OUTS["samples"])
        agent = Agent(Repeatable(120), pattern=pattern, keep=store)
        return asyncio.run(agent.run("Write.", run_id="r"))

    killed = Steps()
    assert "not started" in run(killed, 1500).diagnostics["budget"]
    result = run(Steps(killed.steps), 150_000)
    assert result.history.total_iterations == 2
    assert "budget" not in result.diagnostics


def test_the_usage_of_a_cancelled_run_is_known():
    model = Provider(hangs="evaluation", hangs_from=2)
    ended = []
    pattern = ReflectionPattern(
        quality_criteria=["clarity"], judge_samples=2, budget_tokens=100_000, on_event=ended.append
    )

    async def main():
        run = asyncio.ensure_future(Agent(model, pattern=pattern, keep=False).run("Write."))
        await model.hanging.wait()
        await asyncio.sleep(0.1)  # the other sample is answered meanwhile
        run.cancel()
        await asyncio.wait([run])

    asyncio.run(main())
    assert ended[-1].result.convergence_reason == "cancelled"
    assert ended[-1].result.token_usage.total_tokens == model.used


def used(tokens, cost=0.0):
    return TokenUsage(tokens, 0, requests=1, cost_usd=cost)


def test_a_budget_too_small_to_judge_is_the_reason():
    judge = ScriptedModel([])
    pattern = ReflectionPattern(quality_criteria=["clarity"], reflection_model=judge, budget_tokens=100)
    result = reflect_sync("W.", generate=lambda p: Draft("x", used(200)), pattern=pattern)
    assert result.convergence_reason == "token_budget"
    assert judge.requests == []


def test_fresh_starts_count_as_revisions():
    outputs = iter(["a", "a", *"bcdefgh"])

    def generate(prompt):
        return Draft(next(outputs), used(100))

    pattern = ReflectionPattern(max_iterations=9, plateau_iterations=9, max_revision_tokens=250)
    result = reflect_sync("W.", generate=generate, evaluate=lambda o: 0.5, pattern=pattern)
    assert result.convergence_reason == "token_budget"
    assert len(result.history.versions) == 3
    assert "takes up to 100 tokens, and 50 tokens are left" in result.stop.detail


def test_the_cost_budget_bounds_the_known_costs():
    outputs = iter("bcdef")
    pattern = ReflectionPattern(max_iterations=9, plateau_iterations=9, budget_usd=1.5)
    result = reflect_sync(
        "W.",
        generate=lambda p: "a",
        revise=lambda o, e: Draft(next(outputs), used(1, 1.0)),
        evaluate=lambda o: 0.5,
        pattern=pattern,
    )
    assert result.convergence_reason == "cost_budget"
    assert len(result.history.versions) == 2
    assert "cost_unknown" in result.diagnostics


@pytest.mark.parametrize(
    ("options", "calls", "needed"),
    [
        ({"budget_usd": 0.01}, 3, "it takes up to $0.003000, and $0.001000 is left"),
        ({"budget_usd": 0.009}, 3, ""),
        ({"budget_tokens": 199}, 1, "it takes up to 100 tokens, and 99 tokens are left"),
        ({"budget_tokens": 200}, 2, ""),
        ({"max_revision_tokens": 150}, 2, "it takes up to 100 tokens, and 50 tokens are left"),
    ],
)
@pytest.mark.parametrize("revise", [False, True])
def test_a_function_is_not_called_if_its_dearest_call_would_not_fit(options, calls, needed, revise):
    def write(*_):
        made.append(1)
        return Draft(f"draft {len(made)}", used(100, 0.003))

    made = []
    pattern = ReflectionPattern(max_iterations=9, plateau_iterations=9, **options)
    result = reflect_sync(
        "W.",
        draft="draft" if revise else None,
        generate=write,
        revise=write if revise else None,
        evaluate=lambda o: 0.5,
        pattern=pattern,
    )
    assert len(made) == calls + (revise and "max_revision_tokens" in options and -1)
    assert result.convergence_reason.is_budget
    assert result.diagnostics.get("budget", "").endswith(f"{needed}." if needed else "")


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"budget_tokens": 250}, 2),
        ({"budget_tokens": 99}, 1),
        ({"budget_tokens": 1000}, 6),
        ({"budget_usd": 0.01}, 3),
        ({"budget_usd": 0.009}, 3),
        ({"budget_usd": 1.0}, 6),
        ({"budget_seconds": 60}, 6),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_functions_that_run_at_the_same_time_stay_within_a_budget_together(options, calls, is_async):
    made, under_way = [], [0, 0]

    async def write(_prompt):
        made.append(1)
        under_way[0] += 1
        under_way[1] = max(under_way)
        await asyncio.sleep(0.01)
        under_way[0] -= 1
        return Draft(f"draft {len(made)}", used(100, 0.003))

    pattern = ReflectionPattern(max_iterations=0, candidates=6, **options)
    generate = write if is_async else lambda prompt: asyncio.run(write(prompt))
    result = reflect_sync("W.", generate=generate, evaluate=lambda o: 0.5, pattern=pattern)
    assert len(made) == calls
    assert result.token_usage.total_tokens == 100 * calls
    if is_async:  # only the first runs alone
        assert under_way[1] == max(1, calls - ("budget_seconds" not in options))


async def own_model(_request):
    return ChatReply("x", usage=TokenUsage(50))


@pytest.mark.parametrize(
    ("model", "given"), [("openai-chat:my-own", "'openai-chat:my-own'"), (TestModel(), "your_model")]
)
def test_the_error_of_a_missing_price_shows_how_to_give_it(model, given, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")
    with pytest.raises(ConfigError, match=rf"ProviderModel\({given}, price=\(0\.5, 1\.5\)\)"):
        check_prices(ProviderModel(model))


@pytest.mark.parametrize(
    "run",
    [
        lambda: reflect_sync("W.", generate=lambda _: Draft("x", TokenUsage(50)), evaluate=bool),
        lambda: Agent(own_model, criteria=[str.islower], keep=False).run_sync("W."),
    ],
)
def test_tokens_without_a_call_are_of_one_call(run):
    assert "Used: 50 tokens in 1 call," in run().summary()


def test_an_evaluation_function_is_not_called_if_its_dearest_call_would_not_fit():
    def judge(output):
        return ReflectionEvaluation(0.5, usage=used(100))

    outputs = iter("abcdef")
    result = reflect_sync("W.", generate=lambda _: next(outputs), evaluate=judge, budget_tokens=250)
    assert [version.evaluation.overall_score for version in result.history.versions] == [0.5, 0.5, None]
    assert "100 tokens, and 50 tokens are left" in result.stop.detail


@pytest.mark.parametrize(("budget", "calls"), [({"budget_usd": 0.3}, 3), ({"budget_tokens": 250}, 2)])
def test_a_free_evaluation_function_is_called_when_the_budget_is_spent(budget, calls):
    made, costs = [], iter([used(100, 0.1), used(200, 0.1), used(100, 0.1)])

    def generate(_prompt):
        made.append(1)
        return Draft(f"draft {len(made)}", next(costs))

    result = reflect_sync("W.", generate=generate, evaluate=lambda _: len(made) / 10, **budget)
    scores = [version.evaluation.overall_score for version in result.history.versions]
    assert scores == [0.1, 0.2, 0.3][:calls]
    assert result.convergence_reason.is_budget


def test_a_resumed_run_knows_what_the_dearest_call_of_a_function_took():
    store, made = MemoryStore(), []

    @reflected(evaluate=lambda o: 0.5, max_iterations=9, budget_tokens=250, keep=store)
    async def write(feedback=""):
        made.append(1)
        if len(made) == 2:
            raise KeyboardInterrupt
        return Draft(f"draft {len(made)}", used(100 if len(made) > 1 else 120))

    with pytest.raises(KeyboardInterrupt):
        write.run_as_sync("r")
    result = write.run_as_sync("r")
    assert len(made) == 3
    assert "it takes up to 120 tokens, and 30 tokens are left" in result.stop.detail


def test_waiting_for_a_retry_stays_within_the_time_budget():
    async def revise(output, evaluation):
        raise ConnectionError("down")

    pattern = ReflectionPattern(budget_seconds=0.3, retry=Retry(attempts=9, first_wait=60))
    result = reflect_sync(
        "W.", generate=lambda p: "x", evaluate=lambda o: 0.1, revise=revise, pattern=pattern
    )
    assert result.convergence_reason == "error"
    assert result.execution_time < 30


def test_a_call_that_waits_for_the_budget_around_its_run_is_not_a_cancelled_call():
    async def main():
        around = StepBudget(Tally(Budget(tokens=2_000)), "workflow")
        step = StepBudget(Tally(Budget(seconds=0.05), outer=around), "generate")
        with around.call("generation", 10, 1_500) as other:
            await other.carry_out(asyncio.sleep, 0)
            with pytest.raises(UnfinishedError, match="before the call started") as refused:
                await step.bounding(step.timed(call_within, step))
        assert refused.value.usage is None
        assert (step.tally.refused, step.tally.cancelled) == (1, 0)

    async def call_within(step):
        with step.call("generation", 10, 1_500) as call:
            await call.carry_out(asyncio.sleep, 60)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("usd", "versions", "reason"),
    [(..., 1, "cost_budget"), (None, 1, "cost_budget"), (0.0, 3, "repeated_issues"), (0.6, 2, "cost_budget")],
    ids=["no usage", "unknown", "free", "reported"],
)
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_model_of_the_users_is_bounded_by_the_costs_that_it_reports(usd, versions, reason, is_stored):
    async def own_model(request):
        requests.append(request)
        reply = ChatReply(f"Draft {len(requests)}.")
        return reply if usd is ... else replace(reply, usage=TokenUsage(10, 10, requests=1, cost_usd=usd))

    requests, store = [], MemoryStore()
    pattern = ReflectionPattern(max_iterations=2, budget_usd=1.0)
    agent = Agent(
        own_model, criteria=[re.compile("tea")], pattern=pattern, keep=store if is_stored else False
    )
    result = agent.run_sync("Write.", run_id="r" if is_stored else None)
    assert (len(result.history.versions), result.convergence_reason) == (versions, reason)
    assert len(requests) == versions
    if usd in {..., None}:
        assert result.token_usage.cost_usd is None
        said = "budget_usd=1 can't bound 'own_model': the reply reports no cost. Report it as"
        assert said in result.stop.detail
        assert said in f"budget_usd=1{result.diagnostics['cost_unknown'].removeprefix('budget_usd')}"


@pytest.mark.parametrize("limits", [{}, {"budget_tokens": 10_000}, {"budget_seconds": 1_000}])
def test_the_spent_budget_of_a_run_inside_a_function_is_an_error_of_the_function(limits):
    def inside(output, evaluation):
        return Agent(ScriptedModel(["never"]), criteria=["Is clear."], budget_tokens=1).run_sync("Q?")

    result = reflect_sync("W.", generate=lambda p: "one", evaluate=lambda o: 0.1, revise=inside, **limits)
    assert result.convergence_reason == "error"
    assert "UnfinishedError: budget_tokens=1 leaves 1 tokens" in result.stop.detail
    assert "budget" not in result.diagnostics


def test_a_revision_by_a_function_is_none_of_the_run_around_it():
    async def revise():
        return Draft("text", TokenUsage(5, requests=1))

    async def revise_twice():
        around = StepBudget(Tally(Budget(revision_tokens=10)), "evaluate")
        around.tally.add("revision", TokenUsage(10, requests=1))
        step = StepBudget(Tally(NO_BUDGET, outer=around), "revise")
        for _ in range(2):
            await step.reported("revise", revise, is_revision=True)
        return around.used.total_tokens

    assert asyncio.run(revise_twice()) == 10
