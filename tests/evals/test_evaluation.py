"""Evaluations: what they find, that nothing is paid for twice, and that nothing is learned."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest

from redraft import (
    Agent,
    ConfigError,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    Runs,
    ScriptedModel,
    Task,
    TokenUsage,
)
from redraft.errors import DamagedRecordError
from redraft.evals.cases import EvalCase
from redraft.evals.evaluation import Evaluation
from redraft.evals.report import (
    Evaluated,
    EvaluationReport,
    Evaluations,
    GradedAnswer,
    Side,
    Try,
)
from redraft.loop import Retry
from redraft.loop.record import Process
from redraft.notes import TaskIdentity, TaskReflection
from redraft.notes.store import project_notes
from redraft.protocols import ChatReply
from redraft.stores.base import Record
from redraft.stores.location import close_project_store
from redraft.types import Advice, PlainTask
from support.eval_cases import CALL, GOOD, cases, drafts_an_odd_task

SECRET = QualityCriterion("secret", evaluator="regex", evaluator_config={"pattern": "really"})


def model(answer, calls=None):
    """A model whose reply `answer` gives for a prompt and how many messages came before it."""

    async def reply(request):
        await asyncio.sleep(0)
        if calls is not None:
            calls.append(request)
        text = answer(request.messages[-1].content, request)
        if isinstance(text, Exception):
            raise text
        return ChatReply(text, usage=CALL)

    return reply


def revising(calls=None):
    """An agent whose first drafts are bad for odd tasks, and whose revisions are good."""

    def answer(prompt, request):
        return "bad" if drafts_an_odd_task(request) else f"good {request.role}"

    return Agent(
        model(answer, calls), pattern=ReflectionPattern(2, retry=Retry(attempts=1)), keep=False, name="writer"
    )


def test_tries_of_a_case_are_compared_with_each_other():
    endings = {"0": [1, 1, 1], "1": [1, 0, 1], "2": [0, 0, 0]}
    left = {number: iter(each) for number, each in endings.items()}

    def answer(prompt):
        return "good" if next(left[prompt.split()[-1].strip(".")]) else "bad"

    found = [EvalCase(f"case-{number}", PlainTask(f"Write {number}"), criteria=(GOOD,)) for number in endings]
    report = Evaluation(found, answer, n=3, concurrency=1, store=MemoryStore()).run_sync()
    (figures,) = report.figures
    assert figures.passed_all == pytest.approx(1 / 3)
    assert figures.flips == pytest.approx((2 / 3) / 3)
    assert "| all 3 tries (95 %) | flips |" in report.markdown() == str(report)
    assert repr(report) == f"<EvaluationReport {report.run_id!r}: 3 cases, 9 tries>"
    assert any("end differently in 22 %." in remark for remark in report.remarks())
    once = Evaluation(cases(3), revising(), store=MemoryStore()).run_sync()
    assert once.figures[0].passed_all is once.figures[0].flips is None
    assert "all 1" not in once.markdown()


@pytest.mark.parametrize(
    ("verdicts", "passed_all", "flips", "incomplete"),
    [
        ([[1, 1, 1], [1, 1, None]], 1.0, 0.0, 1),
        ([[1, None, None], [0, None, None]], None, None, 2),
        ([[1, 1, 1], [0, 1, None]], 1.0, 0.5, 1),
        ([[1, 1, 1, 1, 0]], 4 / 10, 8 / 20, 0),
    ],
    ids=["an unknown is no pass", "all unknown", "nor a failure", "of five tries"],
)
def test_all_tries_pass_only_where_each_has_a_verdict(verdicts, passed_all, flips, incomplete):
    answers = {None: GradedAnswer("", TokenUsage(), None, None)}
    answers |= {each: GradedAnswer("", TokenUsage(), each, bool(each)) for each in (0, 1)}
    tries = [
        Try(f"case-{at}", "arm", number, (answers[verdict],))
        for at, of_case in enumerate(verdicts)
        for number, verdict in enumerate(of_case, 1)
    ]
    ids = tuple(dict.fromkeys(each.case for each in tries))
    evaluated = Evaluated(
        "e", datetime.now(UTC), Process.this(), ids, (), "", (Side("arm", "arm"), Side("other", "other")), 3
    )
    report = EvaluationReport(evaluated, tuple(tries))
    figures, nothing = report.figures
    assert figures.passed_all == (passed_all and pytest.approx(passed_all))
    assert figures.flips == (flips and pytest.approx(flips))
    assert figures.incomplete == incomplete
    assert any("verdicts on arm: not counted" in remark for remark in report.remarks()) == bool(incomplete)
    assert nothing.passed_all is nothing.flips is nothing.all_passed is None


def test_the_ways_of_the_loops_revisions_are_counted():
    criterion = QualityCriterion("good", evaluator="regex", evaluator_config={"pattern": "good"})

    def answer(request):
        return ChatReply("good" if request.role == "revision" else "bad", usage=CALL)

    agent = Agent(
        ScriptedModel(answer),
        pattern=ReflectionPattern(3, quality_criteria=[criterion]),
        keep=False,
        name="w",
    )
    compare = ["first", "loop", "best-of-2"]
    store = MemoryStore()
    report = Evaluation(cases(8), agent, compare=compare, concurrency=1, store=store).run_sync()
    assert {way.agent for way in report.ways} == {"loop"}, "once, although two sides are of the loop"
    assert [(way.way, way.tried, way.gains, way.tokens) for way in report.ways] == [("fresh", 8, 8, 110)]
    stored = asyncio.run(Evaluations(store).report())
    assert stored.ways == report.ways
    assert report.document()["ways"] == [way.document() for way in report.ways]
    later = stored.against(json.loads(json.dumps(report.document())))
    assert {way.agent for way in later.ways} == {"loop", "baseline"}, "the first side's arm"


def test_what_is_returned_is_compared_with_the_first_draft():
    report = Evaluation(cases(20), revising(), store=MemoryStore()).run_sync()
    returned, first = report.figures
    assert (returned.side, first.side) == ("writer", "writer (first draft)")
    assert (returned.mean_passed, first.mean_passed) == (1.0, 0.5)
    assert (first.calls, returned.calls, returned.tokens, returned.cost_usd) == (1, 1.5, 165, 0.015)
    assert (returned.seconds is None, first.seconds) == (False, None), "half of them were revised"
    (difference,) = report.differences
    assert difference.seconds.effect is None
    assert difference.passed.verdict == "better"
    assert difference.gained == tuple(f"case-{n}" for n in range(1, 20, 2))
    assert difference.lost == ()
    assert not report.has_regressed
    assert "better, +50.0 points (95 %: " in difference.sentence()


def test_a_worse_agent_is_a_regression_and_the_same_one_is_not():
    bad = Agent(model(lambda *_: "bad"), pattern=ReflectionPattern(0), keep=False, name="bad")
    report = Evaluation(cases(20), {"bad": bad, "writer": revising()}, store=MemoryStore()).run_sync()
    assert report.has_regressed
    assert report.differences[-1].theirs == "writer"
    assert len(report.differences[-1].lost) == 20
    same = Evaluation(cases(20), {"one": revising(), "two": revising()}, store=MemoryStore()).run_sync()
    assert same.differences[1].passed.verdict == "not distinguishable"
    assert not same.has_regressed


def test_with_a_baseline_the_first_drafts_raise_no_alarm():
    spoiling = Agent(
        model(lambda _, request: "good" if request.role == "generation" else "spoiled"),
        pattern=ReflectionPattern(
            1,
            [QualityCriterion("long", evaluator="words", evaluator_config={"at_least": 9})],
            best_version_selection="latest",
        ),
        keep=False,
        name="spoiling",
    )
    report = Evaluation(cases(20), spoiling, store=MemoryStore()).run_sync()
    assert report.has_regressed
    # Worse than its first drafts as before, and not worse than it was before.
    again = report.against(json.loads(json.dumps(report.document())))
    assert [one.passed.verdict for one in again.differences] == ["worse", "not distinguishable"]
    assert not again.has_regressed


def test_the_first_error_of_the_tries_that_failed_is_named():
    def down(prompt):
        raise RuntimeError("The service is down.")

    report = Evaluation(cases(6), down, store=MemoryStore()).run_sync()
    [remark] = report.remarks()
    assert remark.startswith("6 of 6 tries failed with an error, and count as not passed. The first: ")
    assert remark.endswith("RuntimeError: The service is down.")


def test_hidden_criteria_grade_and_no_agent_sees_them():
    calls = []
    found = [replace(case, hidden=(SECRET,)) for case in cases(5)]
    report = Evaluation(found, revising(calls), store=MemoryStore()).run_sync()
    assert report.figures[0].mean_passed == 0.0
    assert not any("secret" in message.content for call in calls for message in call.messages)


def test_a_function_is_an_agent():
    report = Evaluation(cases(6), lambda prompt: f"good {prompt}", store=MemoryStore()).run_sync()
    assert [figure.side for figure in report.figures] == ["<lambda>"]
    assert report.figures[0].mean_passed == 1.0
    assert report.differences == ()
    figures = report.figures[0]
    assert (figures.calls, figures.tokens, figures.cost_usd, figures.tokens_per_passed) == (None,) * 4


def test_a_match_grades_in_addition_to_the_criteria():
    short = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 4})
    case = EvalCase("one", PlainTask("2 + 3?"), (short,), reference="5", match="includes")
    answers = {"It is 5.": True, "Well, if I add them up, I get 5.": False, "It is 6.": False}
    for text, passes in answers.items():
        report = Evaluation([case], lambda _, text=text: text, store=MemoryStore()).run_sync()
        assert report.tries[0].answers[-1].passed is passes, text


class Recalling:
    """An advisor that counts what it is asked, and what it is told."""

    def __init__(self):
        self.recalled = self.observed = 0

    async def recall(self, task):
        self.recalled += 1
        return [Advice("Write good.", "a test")]

    async def observe(self, result):
        self.observed += 1


def test_parts_of_an_agent_are_compared_with_shared_first_drafts():
    advisor, calls = Recalling(), []

    def answer(prompt, request):
        everything = " ".join(message.content for message in request.messages)
        return "good" if "Write good." in everything and request.role == "revision" else "bad"

    agent = Agent(model(answer, calls), pattern=ReflectionPattern(2), lessons=advisor, keep=False)
    report = Evaluation(
        cases(6), agent, compare=["loop", "first", "best-of-3", "no-lessons"], store=MemoryStore()
    ).run_sync()
    passed = {figure.side: figure.mean_passed for figure in report.figures}
    assert passed == {"loop": 1.0, "first": 0.0, "best-of-3": 0.0, "no-lessons": 0.0}
    calls_of = {figure.side: figure.calls for figure in report.figures}
    assert calls_of == {"loop": 2, "first": 1, "best-of-3": 3, "no-lessons": 3}
    # Best of three begins with the loop's draft, so it makes two calls of its own.
    assert len(calls) == 6 * (2 + 2 + 3)
    assert advisor.observed == 0
    assert advisor.recalled == 6 * (1 + 2)
    assert [one.calls for one in report.differences] == [None, 2, None]


def test_an_evaluation_of_parts_is_resumed_from_a_record_that_has_only_their_names():
    store, agent = MemoryStore(), revising()
    compared = {"compare": ["loop", "best-of-3"], "store": store, "run_id": "e"}
    before = Evaluation(cases(6), agent, **compared).run_sync().differences
    assert [one.calls for one in before] == [2]
    (record,) = asyncio.run(store.find("evaluation"))
    sides = [{"name": name, "arm": name} for name in compared["compare"]]
    asyncio.run(store.put(replace(record, data={**record.data, "sides": sides})))
    assert asyncio.run(Evaluations(store).report("e")).differences == before
    assert Evaluation(cases(6), agent, **compared).run_sync().differences == before


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        (["loop"], "at least two different"),
        (["loop", "loop"], "at least two different"),
        (["loop", "best-of-1"], "Unknown part 'best-of-1'"),
        (["loop", "frist"], "did you mean 'first'"),
        (["loop", "no-lessons"], "has no lessons"),
    ],
)
def test_parts_that_cannot_be_compared(compare, message):
    with pytest.raises(ConfigError, match=message):
        Evaluation(cases(2), revising(), compare=compare, store=MemoryStore())


def test_impossible_options_are_refused_before_anything_is_spent():
    calls = []
    nothing = [EvalCase("one", PlainTask("Do it."))]
    with pytest.raises(ConfigError, match=r"Nothing grades the case 'one'"):
        Evaluation(nothing, lambda _: "x", store=MemoryStore())
    broken = replace(
        cases(1)[0], criteria=(QualityCriterion("r", evaluator="regex", evaluator_config={"pattern": "("}),)
    )
    with pytest.raises(ConfigError, match="The case 'case-0': Criterion 'r'"):
        Evaluation([broken], revising(calls), store=MemoryStore())
    with pytest.raises(ConfigError, match="cases must be EvalCases, or the path of a file of cases, got 'x'"):
        Evaluation(["x"], revising())
    for wrong in ({"n": 0}, {"concurrency": 0}, {"budget_usd": -1}, {"model": ""}):
        with pytest.raises(ConfigError):
            Evaluation(cases(1), revising(calls), store=MemoryStore(), **wrong)
    with pytest.raises(ConfigError, match="Two cases have the id 'case-0'"):
        Evaluation(cases(1) * 2, revising(calls), store=MemoryStore())
    with pytest.raises(ConfigError, match="There are no cases"):
        Evaluation([], revising(calls), store=MemoryStore())
    with pytest.raises(ConfigError, match="must be an Agent, a Task, or a function"):
        Evaluation(cases(1), {"a": 3}, store=MemoryStore())
    assert calls == []


def test_what_was_removed_says_what_to_do_instead():
    with pytest.raises(TypeError, match=r"argument 'fleet'\. Leave it out: .* concurrency="):
        Evaluation(cases(1), revising(), fleet="app:fleet")
    with pytest.raises(ImportError, match=r"'Optimization' was removed .* examples/tune_with_gepa"):
        from redraft.evals import Optimization  # noqa: F401


def test_a_killed_evaluation_goes_on_without_paying_twice():
    """Killed after each of its calls in turn, the calls of all attempts together are those of one."""

    class Killed(BaseException):
        pass

    store, calls = MemoryStore(), []
    whole = Evaluation(cases(4), revising(calls), n=2, store=MemoryStore(), run_id="whole").run_sync()
    wanted = len(calls)
    paid = []

    def limited():
        left = [1]

        async def reply(request):
            await asyncio.sleep(0)
            if not left[0]:
                raise Killed
            left[0] -= 1
            paid.append(request)
            return await revising().model(request)

        return Agent(reply, pattern=revising().pattern, keep=False, name="writer")

    for _ in range(wanted - 1):
        with pytest.raises(Killed):
            Evaluation(cases(4), limited(), n=2, concurrency=1, store=store, run_id="killed").run_sync()
    report = Evaluation(cases(4), limited(), n=2, concurrency=1, store=store, run_id="killed").run_sync()
    assert len(paid) == wanted
    assert [figure.mean_passed for figure in report.figures] == [
        figure.mean_passed for figure in whole.figures
    ]
    again = Evaluation(cases(4), limited(), n=2, store=store, run_id="killed").run_sync()
    assert len(paid) == wanted
    assert again.tries == report.tries
    with pytest.raises(ConfigError, match="of other cases, agents"):
        Evaluation(cases(3), limited(), n=2, store=store, run_id="killed").run_sync()


def four(_prompt):
    return "4"


def five(_prompt):
    return "5"


def briefed(prompt):
    return Agent(ScriptedModel(four), system_prompt=prompt, max_iterations=0, keep=False, name="writer")


SUM = EvalCase("a", PlainTask("2 + 2?"), reference="4", match="exact")
NOTED = Task(description="2 + 2?", expected_output="A number.", handler=lambda _: "4")
OF_ANOTHER_EVALUATION = {
    "reference": ([replace(SUM, reference="5")], four, {}),
    "match": ([replace(SUM, match="includes")], four, {}),
    "criterion": ([replace(SUM, criteria=["Is a number."])], four, {}),
    "hidden criterion": ([replace(SUM, hidden=[SECRET])], four, {}),
    "threshold": ([replace(SUM, threshold=0.1)], four, {}),
    "context": ([replace(SUM, task=PlainTask("2 + 2?", context="Base 3."))], four, {}),
    "function": ([SUM], {"four": five}, {}),
    "agent": ([SUM], {"four": briefed("Be brief.")}, {}),
    "fewer tries": ([SUM], four, {"n": 1}),
}


@pytest.mark.parametrize("changed", OF_ANOTHER_EVALUATION.values(), ids=OF_ANOTHER_EVALUATION)
def test_an_evaluation_is_not_continued_with_something_else(changed):
    """Its stored tries would be reported as those of the new criteria or of the new agent."""
    store, judge = MemoryStore(), ScriptedModel(["{}"])
    Evaluation([SUM], four, n=2, store=store, run_id="a").run_sync()
    changed_cases, agent, options = changed
    evaluation = Evaluation(
        changed_cases, agent, **{"n": 2, "store": store, "run_id": "a", "model": judge, **options}
    )
    for attempt in (evaluation.run_sync, evaluation.estimate_sync):
        with pytest.raises(ConfigError, match="'a' was of other cases"):
            attempt()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (briefed("A."), briefed("B.")),
        (NOTED, replace(NOTED, expected_output="A word.")),
    ],
)
def test_an_evaluation_is_not_continued_with_a_changed_agent(before, after):
    store = MemoryStore()
    Evaluation([SUM], {"writer": before}, store=store, run_id="a").run_sync()
    Evaluation([SUM], {"writer": before}, n=2, store=store, run_id="a").run_sync()
    with pytest.raises(ConfigError, match="'a' was of other cases"):
        Evaluation([SUM], {"writer": after}, n=2, store=store, run_id="a").run_sync()


@pytest.mark.parametrize("data", [{"bad": 1}, {}])
def test_a_damaged_evaluation_or_try_hides_no_other(data):
    store = MemoryStore()

    async def main():
        report = await Evaluation([SUM], four, store=store, run_id="a").run()
        await store.put(Record("evaluation", "b", data))
        await store.put(Record("try", "a/b-1", data))
        assert [evaluated.run_id for evaluated in await Evaluations(store).list()] == ["a"]
        assert (await Evaluations(store).report("a")).tries == report.tries
        again = await Evaluation([SUM], four, store=store, run_id="a").run()
        assert again.tries == report.tries
        with pytest.raises(DamagedRecordError, match=r"upgrade: /run_id: Field required\Z"):
            await Evaluations(store).report("b")

    asyncio.run(main())


def test_an_evaluation_whose_id_begins_many_others_can_be_read():
    store = MemoryStore()
    for run_id in ("aa", "ab", "ac", "a"):
        Evaluation([SUM], four, store=store, run_id=run_id).run_sync()
    assert asyncio.run(Evaluations(store).report("a")).run_id == "a"


@pytest.mark.parametrize("run_id", ["", "a/b", "a\n", 5])
def test_an_invalid_id_is_refused_before_anything_is_stored(run_id):
    with pytest.raises(ConfigError, match="run_id must be 1 to 200 printable characters"):
        Evaluation([SUM], four, run_id=run_id, store=MemoryStore())


def test_junit_has_nothing_that_xml_forbids():
    bad = "a\x00b\x1bc\ufffed\ud800e\U0001f600"

    def never(_output):
        return False, bad

    case = EvalCase(bad, PlainTask("2 + 2?"), [never])
    report = Evaluation([case], {bad: four}, store=MemoryStore()).run_sync()
    [test] = ET.fromstring(report.junit().encode())  # noqa: S314 (made here)
    assert (test.get("name"), test.get("classname")) == ("a?b?c?d?e\U0001f600",) * 2
    assert "a?b?c?d?e\U0001f600" in test[0].get("message")


def test_an_agent_whose_first_drafts_are_compared_revises_nothing():
    calls = []
    evaluation = Evaluation(cases(4), revising(calls), compare=["first", "best-of-2"], store=MemoryStore())
    estimate = evaluation.estimate_sync()
    report = evaluation.run_sync()
    assert {request.role for request in calls} == {"generation"}
    drafts = sum(part.calls for part in estimate.parts if part.by == "agent")
    assert len(calls) <= drafts == 8
    assert {figures.side: figures.tries for figures in report.figures} == {"first": 4, "best-of-2": 4}


def test_a_baseline_is_not_mixed_with_an_agent_of_its_name():
    good = Evaluation([SUM], four, store=MemoryStore()).run_sync()
    bad = Evaluation([SUM], {"baseline": five}, store=MemoryStore()).run_sync()
    report = bad.against(good.document())
    assert [(figures.side, figures.mean_passed) for figures in report.figures] == [
        ("baseline", 0.0), ("earlier baseline", 1.0),
    ]  # fmt: skip


def test_its_runs_are_inside_it():
    store = MemoryStore()

    async def main():
        report = await Evaluation(cases(2), revising(), store=store).run()
        runs = Runs(store)
        outer, inner = await runs.find(), await runs.find(inner=True)
        stored = await Evaluations(store).report(report.run_id[:12])
        return report, outer, inner, stored, await Evaluations(store).list()

    report, outer, inner, stored, every = asyncio.run(main())
    assert outer == []
    assert {one.parent for one in inner} == {report.run_id}
    assert sorted(one.run_id for one in inner) == sorted(attempt.run_id for attempt in report.tries)
    assert sorted(stored.tries, key=str) == sorted(report.tries, key=str)
    assert [one.run_id for one in every] == [report.run_id]


def test_what_failed_counts_and_what_is_unknown_does_not():
    def answer(prompt, _request):
        if "Task 0." in prompt:
            return ModelError("down")
        return ValueError("oops") if "Task 1." in prompt else "good"

    pattern = ReflectionPattern(0, retry=Retry(attempts=1))
    agent = Agent(model(answer), pattern=pattern, keep=False)
    store = MemoryStore()
    report = Evaluation(cases(6), agent, store=store, run_id="e").run_sync()
    figures = report.figures[0]
    assert (figures.tries, figures.unknown, figures.failed) == (6, 1, 1)
    assert figures.mean_passed == 4 / 5
    assert any("1 of 6 tries could not be judged" in remark for remark in report.remarks())
    better = Agent(model(lambda *_: "good"), pattern=pattern, keep=False)
    report = Evaluation(cases(6), better, store=store, run_id="e").run_sync()
    assert report.figures[0].mean_passed == 1.0


def test_a_judge_grades_each_output_once_and_is_not_part_of_the_agents_cost():
    judge = QualityCriterion("clear", "Is it clear?")
    graded = []

    def verdict(request):
        graded.append(request)
        return {
            "criteria": {"clear": {"reason": "so", "score": 1.0}},
            "issues": [],
            "suggestions": [],
            "confidence": 1,
        }

    found = [EvalCase(f"c{n}", PlainTask(f"Task {n}."), (GOOD,), (judge,)) for n in (1, 2)]
    agent = revising()
    store = MemoryStore()
    report = Evaluation(found, agent, n=3, store=store, model=ScriptedModel(verdict), run_id="e").run_sync()
    # Two outputs for the odd task, one for the other, however often they come up.
    assert len(graded) == 3
    assert report.figures[0].calls == 1.5
    assert sum(attempt.grading.requests for attempt in report.tries) == 3
    assert all("Task " in request.messages[-1].content for request in graded)
    Evaluation(found, agent, n=3, store=store, model=ScriptedModel(verdict), run_id="e").run_sync()
    assert len(graded) == 3


def test_a_spent_budget_ends_it_and_a_larger_one_goes_on():
    store = MemoryStore()
    report = Evaluation(
        cases(10), revising(), concurrency=1, budget_usd=0.05, store=store, run_id="e"
    ).run_sync()
    suspended = sum(one.cost_usd for one in report.evaluated.suspended.values())
    assert report.usage.cost_usd + suspended == pytest.approx(0.05)
    assert report.evaluated.note.startswith("The budget was spent after ")
    report = Evaluation(cases(10), revising(), budget_usd=1, store=store, run_id="e").run_sync()
    assert report.evaluated.note == ""
    assert len(report.tries) == 10


def test_an_earlier_report_is_a_baseline():
    before = Evaluation(cases(20), revising(), store=MemoryStore()).run_sync()
    document = json.loads(json.dumps(before.document()))
    assert all(answer["output"] is None for attempt in document["tries"] for answer in attempt["answers"])
    bad = Agent(model(lambda *_: "bad"), pattern=ReflectionPattern(0), keep=False, name="writer")
    report = Evaluation(cases(20), bad, store=MemoryStore()).run_sync().against(document)
    assert report.has_regressed
    assert report.differences[-1].theirs == "baseline"
    with pytest.raises(ConfigError, match="json printed: the key 'sides' is missing"):
        report.against({"a": 1})
    with pytest.raises(ConfigError, match="none of these cases"):
        report.against({**document, "tries": []})


def test_control_cases_show_that_reflecting_spoils():
    def answer(_prompt, request):
        return "good" if request.role == "generation" else "spoiled"

    pattern = ReflectionPattern(
        1,
        [QualityCriterion("long", evaluator="words", evaluator_config={"at_least": 9})],
        best_version_selection="latest",
    )
    agent = Agent(model(answer), pattern=pattern, keep=False, name="w")
    report = Evaluation(cases(20, control=True), agent, store=MemoryStore()).run_sync()
    assert report.has_regressed
    assert len(report.spoiled) == 20
    spoiled = "Spoiled control cases, right without reflection: case-0,"
    assert any(remark.startswith(spoiled) for remark in report.remarks())


def test_reports_for_a_build():
    from xml.etree import ElementTree as ET

    found = [*cases(5), EvalCase("a|b <c>\x00", PlainTask("Task 5."), (SECRET,))]
    report = Evaluation(found, revising(), store=MemoryStore()).run_sync()
    suite = ET.fromstring(report.junit())  # noqa: S314 (our own)
    assert suite.attrib | {} == {"name": "redraft eval writer", "tests": "6", "failures": "1", "skipped": "0"}
    assert [one.find("failure") is not None for one in suite] == [False] * 5 + [True]
    text = report.markdown()
    assert "| writer | 6 | 83 % (" in text
    assert "(gained: case-1, case-3)" in text


def test_a_task_is_compared_with_itself_without_its_note(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    calls = []

    def answer(prompt, _request):
        return "good" if "Write good." in prompt else "bad"

    task = Task(
        "Say {what}.", "A word.", model=model(answer, calls), criteria=[GOOD], name="say", reflect=True
    )
    found = [EvalCase(f"c{n}", PlainTask("Say it."), inputs={"what": f"thing {n}"}) for n in range(6)]

    async def main():
        note = TaskReflection.of_first_run(task.description, "A word. Write good.")
        await project_notes().store(TaskIdentity.of(task), note)
        report = await Evaluation(found, task, compare=["loop", "first", "no-notes"]).run()
        noted = await project_notes().noted(TaskIdentity.of(task))
        await close_project_store()
        return report, noted

    report, noted = asyncio.run(main())
    assert {figure.side: figure.mean_passed for figure in report.figures} == {
        "loop": 1.0,
        "first": 1.0,
        "no-notes": 0.0,
    }
    assert len(calls) == 12
    assert noted.run_count <= 1  # nothing was learned
    assert any("Say thing 3." in call.messages[-1].content for call in calls)
    with pytest.raises(ConfigError, match=r"The case 'c': .* placeholder \{what\}"):
        Evaluation([EvalCase("c", PlainTask("Say it."))], task, store=MemoryStore())
    for compare, message in (
        (["loop", "best-of-2"], "needs an Agent"),
        (["loop", "no-lessons"], "needs an Agent"),
    ):
        with pytest.raises(ConfigError, match=message):
            Evaluation(found, task, compare=compare, store=MemoryStore())
    with pytest.raises(ConfigError, match="Only a Task has notes"):
        Evaluation(cases(2), revising(), compare=["loop", "no-notes"], store=MemoryStore())
    with pytest.raises(ConfigError, match="needs the outputs of other tasks"):
        Evaluation(found, Task("Say more.", context=[task], model="any"), store=MemoryStore())
