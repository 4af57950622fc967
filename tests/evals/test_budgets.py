"""Budgets of evaluations, against a server that counts what is spent."""

import asyncio
import random
import re

import pytest

from redraft import Agent, ConfigError, MemoryStore, QualityCriterion, ReflectionPattern, TokenUsage, reflect
from redraft.evals.cases import EvalCase
from redraft.evals.evaluation import Evaluation
from redraft.models import ProviderModel
from redraft.protocols import ChatReply
from redraft.types import Draft, PlainTask
from support.counting_server import INPUT_USD, OUTPUT_USD, provider

WORDS = QualityCriterion("words", evaluator="regex", evaluator_config={"pattern": "word"})
MODEL = "openai-chat:gpt-4o-mini"


@pytest.fixture
def server(monkeypatch):
    with provider(monkeypatch) as server:
        yield server


def cases(count, criteria=("clarity",), words=0):
    return [EvalCase(f"case-{n}", PlainTask(f"Task {n}. " + "word " * words), criteria) for n in range(count)]


def agent(name="writer", revisions=1, model=MODEL, **options):
    return Agent(model, pattern=ReflectionPattern(revisions, **options), keep=False, name=name)


def evaluate(found, agents, **options):
    options = {"store": MemoryStore(), "model": MODEL, **options}
    return Evaluation(found, agents, **options).run_sync()


@pytest.mark.parametrize("seed", range(8))
def test_an_evaluation_exceeds_its_budget_by_the_error_of_its_input_estimates_at_most(seed, server):
    dice = random.Random(seed)  # noqa: S311
    server.wanted = lambda: dice.choice([5, 60, 300, 2_000])
    found = cases(dice.choice([2, 6]), words=dice.choice([0, 10, 400]))
    tokens, concurrency = round(10 ** dice.uniform(2, 4.5)), dice.choice([1, 3, 8])
    usd = tokens * OUTPUT_USD
    budget = {"budget_tokens": tokens} if dice.random() < 0.5 else {"budget_usd": usd}
    report = evaluate(found, agent(), concurrency=concurrency, n=2, **budget)
    error = sum(server.error)
    if "budget_tokens" in budget:
        assert server.tokens <= tokens + error
    else:
        assert server.usd <= usd + (error + 1) * INPUT_USD
    suspended = sum((one.total_tokens for one in report.evaluated.suspended.values()), 0)
    assert report.usage.total_tokens + suspended == server.tokens
    assert all(attempt.answers and not attempt.error for attempt in report.tries)
    assert all(answer.passed is not None for attempt in report.tries for answer in attempt.answers)


def test_a_try_that_the_budget_interrupts_is_no_result_and_goes_on_later(server):
    server.wanted = lambda: 300
    store, found = MemoryStore(), cases(6)
    first = evaluate(found, agent(), budget_tokens=3_000, store=store, run_id="e")
    assert 0 < server.tokens <= 3_000 + sum(server.error)
    note = first.evaluated.note
    assert note.startswith(f"The budget was spent after {len(first.tries)} of 6 tries. ")
    assert "What was left was too little for the next call: it takes about " in note
    assert "no result yet, to go on with a larger budget." in note
    assert all(len(attempt.answers) == 2 for attempt in first.tries), "nothing was cut short"
    calls = len(server.usage)
    whole = evaluate(found, agent(), budget_tokens=100_000, store=store, run_id="e")
    assert (whole.evaluated.note, whole.evaluated.suspended, len(whole.tries)) == ("", {}, 6)
    assert all(len(attempt.answers) == 2 for attempt in whole.tries)
    assert whole.usage.total_tokens == server.tokens, "nothing was paid for twice"
    assert len(server.usage) > calls


def test_a_second_process_counts_what_suspended_tries_have_used(server):
    server.wanted = lambda: 300
    store, found = MemoryStore(), cases(6)
    first = evaluate(found, agent(), budget_tokens=3_000, store=store, run_id="e")
    assert first.evaluated.suspended
    used = server.tokens
    evaluate(found, agent(), budget_tokens=3_000, store=store, run_id="e")
    assert server.tokens <= 3_000 + sum(server.error)
    assert server.tokens - used < 1_000


def test_a_reply_that_the_shared_budget_cuts_off_is_no_result(server):
    server.wanted = lambda: 900
    report = evaluate(cases(1, (WORDS,)), agent(revisions=0), budget_tokens=600)
    assert server.limits[0] < 600
    assert report.tries == ()
    assert "was cut off" in report.evaluated.note or "tokens were used" in report.evaluated.note
    assert report.evaluated.suspended


def test_the_budget_of_the_agent_is_a_result_and_that_of_the_evaluation_is_not(server):
    server.wanted = lambda: 300
    thrifty = agent(revisions=3, budget_tokens=600)
    report = evaluate(cases(3, (WORDS,)), thrifty, budget_tokens=10**6)
    assert len(report.tries) == 3
    assert report.evaluated.note == ""


def test_free_checks_grade_a_draft_that_is_paid_for(server):
    server.wanted = lambda: 400
    report = evaluate(cases(4, (WORDS,)), agent(revisions=0), concurrency=1, budget_tokens=1_000)
    assert len(server.usage) == len(report.tries)
    assert len(report.tries) in (1, 2)


def test_a_call_that_cannot_fit_does_not_start(server):
    report = evaluate(cases(2, words=300), agent(), budget_tokens=200)
    assert server.limits == []
    assert report.evaluated.note.startswith(
        "The budget was spent after 0 of 2 tries. 0 of 200 tokens were used"
    )


def test_an_unknown_price_is_refused_before_the_first_call(server):
    own = "openai-chat:my-own"
    free = cases(2, (WORDS,))
    for found, options in [
        (free, {"agents": agent(model=own)}),
        (free, {"agents": {"a": agent("a"), "b": agent("b", reflection_model=own, quality_criteria=["so"])}}),
        (cases(2), {"agents": agent(), "model": ProviderModel(own)}),
    ]:
        with pytest.raises(ConfigError, match="'openai-chat:my-own' is not known"):
            evaluate(found, budget_usd=1.0, **options)
    assert server.limits == []


def test_a_hanging_agent_ends_with_the_time_and_is_no_result(server):
    async def hang(prompt):
        await asyncio.Event().wait()

    report = evaluate(cases(3, (WORDS,)), hang, budget_seconds=0.2)
    assert report.tries == ()
    assert report.evaluated.note.startswith("The budget was spent after 0 of 3 tries. ")
    assert "seconds passed (budget_seconds)" in report.evaluated.note


def test_what_a_function_reports_counts(server):
    def answer(prompt):
        return Draft("word", usage=TokenUsage(400, 100, requests=1, cost_usd=0.01))

    def spent(**budget):
        report = evaluate(cases(6, (WORDS,)), answer, concurrency=1, **budget)
        assert len(report.tries) == 2, "the third call would not have fitted"
        return report.evaluated.note

    assert spent(budget_tokens=1_200).startswith(
        "The budget was spent after 2 of 6 tries. 1,000 of 1,200 tokens were used (budget_tokens). What was "
        "left was too little for the next call: it takes up to 500 tokens, and 200 tokens are left."
    )
    assert "it takes up to $0.010000, and $0.004000 is left." in spent(budget_usd=0.024)


def test_what_functions_inside_a_function_report_counts_once(server):
    def word(prompt):
        return Draft("none", usage=TokenUsage(400, 100, requests=1))

    async def answer(prompt):
        result = await reflect(prompt, generate=word, criteria=[re.compile("word")], max_iterations=2)
        return Draft(result.best_output, usage=result.token_usage)

    report = evaluate(cases(6, (WORDS,)), answer, concurrency=1, budget_tokens=2_200)
    assert (len(report.tries), report.usage.total_tokens) == (1, 1_500)
    assert [used.total_tokens for used in report.evaluated.suspended.values()] == [500]


def test_a_run_inside_a_function_is_within_the_budget(server):
    server.wanted = lambda: 300

    async def answer(prompt):
        return (await agent().run(prompt)).best_output

    report = evaluate(cases(6, (WORDS,)), answer, budget_tokens=2_000)
    assert 0 < server.tokens <= 2_000 + sum(server.error)
    assert len(report.tries) < 6
    assert all(not attempt.error for attempt in report.tries)


def spent_by_functions(how, tokens, **options):
    """Evaluate a function that takes 300 tokens, in one of several ways; return their number of calls."""
    calls = []

    async def model(_request):
        calls.append(1)
        await asyncio.sleep(0.01)
        return ChatReply("word", usage=TokenUsage(100, 200, requests=1))

    inner = Agent(model, criteria=[WORDS], keep=False)

    async def reports(_prompt):
        await model(None)
        return Draft("word", TokenUsage(100, 200, requests=1))

    async def awaits_an_agent(prompt):
        return (await inner.run(prompt)).best_output

    def calls_an_agent(prompt):
        return inner.run_sync(prompt).best_output

    async def blocks_the_loop(prompt):
        return inner.run_sync(prompt).best_output

    function = {
        "reports": reports,
        "reports from a thread": lambda prompt: asyncio.run(reports(prompt)),
        "awaits an agent": awaits_an_agent,
        "calls an agent": calls_an_agent,
        "blocks the loop": blocks_the_loop,
    }[how]
    evaluate(cases(16, (WORDS,)), function, model=model, concurrency=12, budget_tokens=tokens, **options)
    return len(calls)


@pytest.mark.parametrize("options", [{}, {"budget_seconds": 600}], ids=["tokens", "tokens and seconds"])
@pytest.mark.parametrize(
    "how", ["reports", "reports from a thread", "awaits an agent", "calls an agent", "blocks the loop"]
)
def test_functions_of_several_tries_share_the_budget_also_from_threads(how, options):
    assert 9 <= spent_by_functions(how, 3_000, **options) <= 10
    assert spent_by_functions(how, 100_000, **options) == 16
