"""Estimates of evaluations: an upper bound on calls, tokens of stored runs, and prices that are known."""

import asyncio
from dataclasses import replace

import pytest

from redraft import (
    Agent,
    ConfigError,
    EvalCase,
    Evaluation,
    MemoryStore,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    Task,
)
from redraft.loop.budget import EXPECTED_REPLY
from redraft.models import ProviderModel
from redraft.protocols import ChatReply
from redraft.types import PlainTask
from support.counting_server import INPUT_USD, OUTPUT_USD, provider
from support.eval_cases import CALL, GOOD, cases

MODEL = "openai-chat:gpt-4o-mini"
JUDGED = QualityCriterion("clarity", "Is it clear?")
ORDER = QualityCriterion("best", evaluator="compare", evaluator_config={"reference": "a text"})


@pytest.fixture
def server(monkeypatch):
    with provider(monkeypatch) as server:
        yield server


def judged(count, *more):
    return [replace(case, criteria=(JUDGED, *more)) for case in cases(count)]


class Killed(BaseException):
    """Ends a process in the middle of an evaluation."""


class Bad:
    """Replies that meet no criterion and are never the same, so that a run makes all of its versions."""

    def __init__(self, stops_after=1_000):
        self.roles, self.left = [], stops_after

    def __call__(self, request):
        self.left -= 1
        if self.left < 0:
            raise Killed
        self.roles.append(request.role)
        if request.role == "evaluation":
            return (
                '{"criteria": {"clarity": {"reason": "so", "score": 0.1}}, "issues": [], "suggestions": []}'
            )
        return f"bad {len(self.roles)}"


def agent(answer=None, revisions=2, **options):
    pattern = ReflectionPattern(revisions, detect_oscillation=False, plateau_iterations=9, **options)
    return Agent(ScriptedModel(answer or Bad()), pattern=pattern, keep=False, name="w")


def estimate(found, agents, **options):
    return Evaluation(found, agents, **{"store": MemoryStore(), **options}).estimate_sync()


def calls_by(found):
    return {(part.purpose, part.by): part.calls for part in found.parts if part.calls != 0}


LOOP, JUDGE, GRADING = ("w", "agent"), ("w", "judge"), ("grading", "judge")


@pytest.mark.parametrize(
    ("found", "options", "compare", "expected"),
    [
        (cases(3), {}, (), {LOOP: 9}),
        (cases(3), {}, ("loop", "first", "best-of-3"), {("loop", "agent"): 9, ("best-of-3", "agent"): 6}),
        (cases(3), {}, ("first", "best-of-2"), {("loop", "agent"): 3, ("best-of-2", "agent"): 3}),
        (
            cases(3),
            {"candidates": 2},
            ("loop", "best-of-3"),
            {("loop", "agent"): 12, ("best-of-3", "agent"): 9},
        ),
        # At most two judgements of a version, and two of its grade.
        (judged(1), {}, (), {LOOP: 3, JUDGE: 6, GRADING: 6}),
        (
            judged(1),
            {},
            ("loop", "best-of-3"),
            {
                ("loop", "agent"): 3,
                ("loop", "judge"): 6,
                ("best-of-3", "agent"): 2,
                ("best-of-3", "judge"): 4,
                GRADING: 10,
            },
        ),
        (judged(1), {"judge_samples": 5}, (), {LOOP: 3, JUDGE: 15, GRADING: 6}),
        (cases(1), {"accept": "pairwise"}, (), {LOOP: 3, JUDGE: 4}),
        (judged(1, ORDER), {}, (), {LOOP: 3, JUDGE: 12, GRADING: 12}),
    ],
)
def test_calls_are_counted_by_arm(found, options, compare, expected):
    model = ScriptedModel(Bad())
    estimated = estimate(found, agent(**options), compare=compare, model=model)
    assert calls_by(estimated) == expected
    twice = estimate(found, agent(**options), compare=compare, model=model, n=2)
    assert twice.calls == 2 * estimated.calls
    assert str(twice) == twice.sentence()
    assert repr(twice) == f"<Estimate {twice.tries} to make, 0 stored>"


@pytest.mark.parametrize(
    ("found", "options", "compare"),
    [
        (cases(3), {}, ()),
        (cases(3), {}, ("loop", "first", "best-of-3")),
        (judged(2), {}, ("first", "best-of-2")),
        (judged(2), {"candidates": 2}, ("loop", "best-of-3")),
    ],
)
def test_an_evaluation_makes_at_most_as_many_calls(found, options, compare):
    answer, store = Bad(), MemoryStore()
    evaluation = Evaluation(
        found, agent(answer, **options), compare=compare, model=ScriptedModel(answer), store=store
    )
    before = evaluation.estimate_sync()
    assert answer.roles == []
    assert asyncio.run(store.find("evaluation")) == [], "an estimate stores nothing"
    evaluation.run_sync()
    judgements = answer.roles.count("evaluation")
    assert judgements <= sum(part.calls for part in before.parts if part.by == "judge")
    assert len(answer.roles) - judgements == sum(part.calls for part in before.parts if part.by == "agent")


def test_without_stored_runs_prompts_and_an_assumed_reply_are_priced(server):
    writer = Agent(MODEL, pattern=ReflectionPattern(0), keep=False, name="w")
    result = estimate(cases(10), writer)
    drafts = result.parts[0]
    assert (result.calls, drafts.output_tokens) == (10, 10 * EXPECTED_REPLY)
    price = drafts.input_tokens * INPUT_USD + drafts.output_tokens * OUTPUT_USD
    assert result.cost_usd == pytest.approx(price, rel=0.01)
    assert "estimated from prompts, with 1,024 for a reply" in result.sentence()
    assert server.usage == []
    long = estimate([replace(case, task=PlainTask("word " * 4_000)) for case in cases(1)], writer)
    assert long.parts[0].input_tokens > 4_000


def test_the_tokens_of_stored_runs_are_preferred(server):
    store = MemoryStore()
    writer = Agent(MODEL, pattern=ReflectionPattern(1), keep=store, name="w")
    server.wanted = lambda: 7
    for number in range(3):
        writer.run_sync(f"Task {number}.", pattern=ReflectionPattern(1, [GOOD]))
    made = len(server.usage)
    result = estimate(cases(4), writer, store=store)
    assert result.tokens == pytest.approx(8 * server.tokens / made, abs=1)
    assert result.cost_usd == pytest.approx(8 * server.usd / made, rel=0.02)
    assert "those of 3 stored runs of 'w'" in result.sentence()
    other = Agent(MODEL, pattern=ReflectionPattern(1), keep=False, name="another")
    assert "estimated from prompts" in estimate(cases(4), other, store=store).sentence()


def test_arms_with_other_sources_of_tokens_are_named():
    store = MemoryStore()
    ran = Agent(ScriptedModel(Bad()), pattern=ReflectionPattern(0), keep=store, name="w")
    ran.run_sync("Task.", pattern=ReflectionPattern(0, [GOOD]))
    new = Agent(ScriptedModel(Bad()), pattern=ReflectionPattern(0), keep=False, name="v")
    told = estimate(cases(2), {"x": ran, "y": new}, store=store).sentence()
    assert told.endswith(
        " Tokens of 'x' are those of 1 stored run of 'w'."
        " Tokens of 'y' are estimated from prompts, with 1,024 for a reply."
    )
    same = estimate(cases(2), {"x": new, "y": new}, store=store).sentence()
    assert same.endswith(" Tokens of 'x' and 'y' are estimated from prompts, with 1,024 for a reply.")
    judge = Agent(ScriptedModel(Bad()), pattern=ReflectionPattern(1, [JUDGED]), keep=store, name="j")
    judge.run_sync("Task.")
    judged_too = estimate(judged(2), judge, model=ScriptedModel(Bad()), store=store).sentence()
    assert "Tokens of 'j' and the judge of 'j' are those of 1 stored run of 'j'." in judged_too
    assert "Tokens of the grading are estimated from prompts, with 1,024 for a reply." in judged_too


def test_a_scripted_model_costs_nothing_unless_it_has_a_price():
    result = estimate(judged(2), agent(), model=ScriptedModel(Bad()))
    assert result.cost_usd == 0
    assert "about $0" in result.sentence()
    priced = Agent(ScriptedModel(Bad(), price=(1, 2)), pattern=ReflectionPattern(0), keep=False, name="w")
    assert estimate(cases(2), priced).cost_usd > 0


def test_an_unknown_price_is_unknown_and_not_zero(server):
    own = Agent("openai-chat:my-own", pattern=ReflectionPattern(0), keep=False, name="w")
    result = estimate(cases(2), own)
    assert (result.calls, result.cost_usd, result.document()["cost_usd"]) == (2, None, None)
    assert result.tokens > 0
    assert "cost unknown (no price of openai-chat:my-own)" in result.sentence()
    both = estimate(judged(2), {"a": own, "b": Agent(MODEL, name="b")}, model=MODEL)
    assert both.cost_usd is None, "the known part does not stand for the whole"
    model = ProviderModel("openai-chat:my-own", price=(1.0, 2.0))
    assert estimate(cases(2), Agent(model, pattern=ReflectionPattern(0), name="w")).cost_usd > 0


@pytest.mark.parametrize(("usd", "expected"), [(0.01, 0.02), (0.0, 0.0), (None, None)])
def test_a_model_that_only_reports_costs_is_estimated_by_its_runs(usd, expected):
    async def model(_request):
        return ChatReply("bad", usage=replace(CALL, cost_usd=usd))

    store = MemoryStore()
    writer = Agent(model, pattern=ReflectionPattern(0), keep=store, name="w")
    assert estimate(cases(2), writer, store=store).cost_usd is None
    writer.run_sync("Task.", pattern=ReflectionPattern(0, [GOOD]))
    result = estimate(cases(2), writer, store=store)
    assert result.cost_usd == (expected and pytest.approx(expected))
    assert result.tokens == 2 * CALL.total_tokens


def test_what_a_function_calls_is_unknown():
    result = estimate(judged(2), lambda prompt: prompt, model=ScriptedModel(Bad()))
    assert calls_by(result) == {("<lambda>", "agent"): None, GRADING: 4}
    assert (result.calls, result.tokens, result.cost_usd) == (None, None, None)
    assert result.sentence().startswith("2 tries to make. Calls: agent unknown, judge 4 (ScriptedModel). ")
    assert "Tokens of '<lambda>' are unknown." in result.sentence()


def test_an_agent_with_tools_makes_an_unknown_number_of_calls(server):
    def look_up(word: str) -> str:
        return word

    writer = Agent(MODEL, tools=[look_up], pattern=ReflectionPattern(1), keep=False, name="t")
    result = estimate(cases(1), writer)
    assert (result.calls, result.cost_usd) == (None, None)


def test_the_retries_of_a_task_count():
    found = [EvalCase("one", PlainTask("Write."), (GOOD,))]
    model = ScriptedModel(Bad())
    options = {"criteria": [GOOD], "pattern": ReflectionPattern(1), "model": model, "retries": 2}
    assert estimate(found, Task("Write.", "A text", **options)).calls == 2
    assert estimate(found, Task("Write.", "A text", **options, guardrails=[bool])).calls == 6


def test_a_try_with_a_result_is_not_counted_again():
    store = MemoryStore()

    def evaluation(answer):
        model = ScriptedModel(answer)
        writer = agent(answer, 1)
        return Evaluation(judged(3), writer, model=model, store=store, run_id="e", concurrency=1)

    assert evaluation(Bad()).estimate_sync().calls == 3 * (2 + 4 + 4)
    with pytest.raises(Killed):
        evaluation(Bad(stops_after=7)).run_sync()
    rest = evaluation(Bad()).estimate_sync()
    # One try has ended, after five calls: the first version was returned, and graded once.
    assert (rest.tries, rest.stored) == (2, 1)
    assert calls_by(rest) == {LOOP: 4, JUDGE: 8, GRADING: 8}
    evaluation(Bad()).run_sync()
    done = evaluation(Bad()).estimate_sync()
    assert (done.calls, done.tokens, done.cost_usd) == (0, 0, 0)
    assert done.sentence() == "All tries are stored: no model is asked."
    with pytest.raises(ConfigError, match="was of other cases"):
        Evaluation(cases(2), agent(), store=store, run_id="e").estimate_sync()
