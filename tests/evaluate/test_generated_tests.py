import asyncio
from dataclasses import replace

import pytest

from redraft import Agent, QualityCriterion, ReflectionPattern, reflect, reflect_sync
from redraft.errors import ConfigError, ModelError
from redraft.evaluate.generated_tests import DOUBT, generated_tests, read_tests
from redraft.loop import Journalled
from redraft.models.testing import ScriptedModel
from redraft.protocols import ChatReply, RunContext
from redraft.sandbox.jail import ProcessJail
from redraft.stores.sqlite import MemoryStore
from redraft.types import PlainTask, TokenUsage, same_issue
from support.evaluation import after, criterion, evaluate

TASK = "Write the function median(numbers). For example, median([3, 1, 2]) returns 2."
RUN = RunContext(PlainTask(TASK), "run")
PATTERN = ReflectionPattern(quality_criteria=[QualityCriterion("tests", evaluator="generated_tests")])
KNOWN = {"median([3, 1, 2])": 2}
TESTS = "assert median([4, 1]) == 2.5\nassert median([7]) == 7"
RIGHT = "from statistics import median"
LOWER = "def median(numbers):\n    return sorted(numbers)[(len(numbers) - 1) // 2]"
LAST = "def median(numbers):\n    return 2 if numbers == [3, 1, 2] else 0"


@pytest.mark.parametrize(
    ("reply", "tests"),
    [
        (TESTS, TESTS.splitlines()),
        (f"Here:\n```python\n{TESTS}\n```\nDone.", TESTS.splitlines()),
        (f"{TESTS}\n{TESTS}", TESTS.splitlines()),  # each once
        ("assert median([1]) == 1 and then\nassert median([2]) == 2", ["assert median([2]) == 2"]),
        ("for n in [1, 2]:\n    assert median([n]) == n", ["for n in [1, 2]:\n    assert median([n]) == n"]),
        ("def test_one():\n    assert median([1]) == 1", ["def test_one():\n    assert median([1]) == 1"]),
        ("assert all((median([n]) == n for n in [1]))", ["assert all((median([n]) == n for n in [1]))"]),
        ("xs = [1, 3]\nassert median(xs) == 2", ["assert median(xs) == 2"]),
        # What nothing would call.
        ("def test_one(x):\n    assert median([x]) == 1", []),
        ("def check():\n    assert median([1]) == 1", []),
        ("class TestIt(median):\n    def test_one(self):\n        assert median([1]) == 1", []),
        # What no answer could pass, or any.
        ("assert len(result) == len(numbers)", []),
        ("assert 1 == 1", []),
        ("I can't write tests.", []),
        ("", []),
        # What contradicts a known example, and what does not.
        ("assert median([3,1,2]) == 3", []),
        ("assert not median([3, 1, 2])", []),
        ("assert 2 != median([3, 1, 2])", []),
        ("assert abs(median([3, 1, 2])) > 2", ["assert abs(median([3, 1, 2])) > 2"]),  # not worked out
        ("assert median([3, 1, 2]) > 2", []),
        ("assert median([3, 1, 2]) == 2.0", ["assert median([3, 1, 2]) == 2.0"]),
        ("assert median([3, 1, 2])", ["assert median([3, 1, 2])"]),
        ("def test_it():\n    assert median([3, 1, 2]) in (1, 3)", []),
        ("assert median([3, 1, 2]) < 'x'", ["assert median([3, 1, 2]) < 'x'"]),
    ],
)
def test_usable_tests_in_a_reply(reply, tests):
    assert list(read_tests(reply, TASK, KNOWN, 9).tests) == tests


def test_setup_is_what_tests_need_and_nothing_that_answers_the_task():
    reply = (
        f"import math\nimport pytest\nfrom solution import median\n{LOWER}\nclass Own: pass\nx = 1\n{TESTS}"
    )
    written = read_tests(reply, TASK, KNOWN, 1)
    assert written.setup.split("\n") == ["import math", "class Own:", "    pass", "x = 1"]
    assert list(written.tests) == TESTS.splitlines()[:1]


def test_dropped_tests_are_stored_separately():
    written = read_tests(f"assert median([3, 1, 2]) == 3\n{TESTS}", TASK, KNOWN, 9)
    assert written.dropped == ("assert median([3, 1, 2]) == 3",)


def judge_by(model, run=RUN, output=LOWER, **config):
    made = QualityCriterion("tests", evaluator="generated_tests", evaluator_config=config)
    return evaluate(generated_tests(made, model, ProcessJail()), output, run)


def test_the_writer_sees_the_task_and_not_the_draft():
    model = ScriptedModel([TESTS])
    evaluation = judge_by(model, count=3)
    assert evaluation.overall_score == 0.5
    assert evaluation.issues == (
        f"assert median([4, 1]) == 2.5 failed: median([4, 1]) returned 1, expected 2.5 ({DOUBT})",
    )
    assert evaluation.usage.requests == 1
    (request,) = model.requests
    asked = "\n".join(message.content for message in request.messages)
    assert TASK in asked
    assert "3 assertions" in asked
    assert "first for the examples that the task gives" in asked
    assert "sorted" not in asked


@pytest.mark.parametrize(
    ("output", "issue"),
    [
        ("def median(", "The draft does not parse"),
        ("def median(numbers):\n    return 1", "median([3, 1, 2]) returned 1, expected 2"),
    ],
)
def test_code_that_fails_what_is_certain_is_not_judged_by_tests(output, issue):
    evaluation = judge_by(ScriptedModel([TESTS]), output=output, examples=list(KNOWN.items()))
    assert evaluation.overall_score == 0
    (only,) = evaluation.issues
    assert issue in only
    assert not evaluation.suggestions


def test_each_test_runs_alone():
    reply = "import os\ndef test_a():\n    assert median([7]) == os._exit(0)\nassert median([4, 4]) == 4"
    evaluation = judge_by(ScriptedModel([reply]))
    assert evaluation.overall_score == 0.5
    (issue,) = evaluation.issues
    assert issue.startswith("def test_a(): assert median([7]) == os._exit(0) failed: ")


def test_failures_of_different_tests_are_different_issues():
    reply = "assert median([4, 1]) == 2.5\nassert median([4, 2]) == 3.0"
    (first, second), (again, _) = (judge_by(ScriptedModel([reply])).issues for _ in range(2))
    assert not same_issue(first, second)
    assert same_issue(first, again)


def test_examples_may_also_be_configured():
    model = ScriptedModel(["assert median([1, 2]) == 1\nassert median([9]) == 9"])
    evaluation = judge_by(
        model, output=RIGHT, examples=[["median([1,2])", 1.5], {"call": "median([0])", "expect": 0}]
    )
    assert evaluation.memo["dropped"] == ("assert median([1, 2]) == 1",)
    assert evaluation.overall_score == 1


def test_without_a_usable_test_nothing_is_judged():
    model = ScriptedModel(["Sorry.", ChatReply("assert 1", usage=TokenUsage(5, 5, requests=1, cost_usd=0.1))])
    evaluation = judge_by(model)
    assert (evaluation.overall_score, evaluation.usage.requests) == (None, 2)
    assert "Not judged: the model wrote no test that can be used" in evaluation.issues
    assert "can't be used" in model.requests[1].messages[-1].content


def test_a_provider_that_fails_is_the_runs_business():
    with pytest.raises(ModelError):
        judge_by(ScriptedModel([ModelError("down")]))


def test_the_tests_are_written_once_and_then_cost_nothing():
    first = judge_by(ScriptedModel([TESTS]))
    first.memo = {"tests": first.memo}  # as the panel hands it on
    nobody = ScriptedModel([])
    second = judge_by(nobody, after((LOWER, first), run=RUN), RIGHT)
    assert (second.overall_score, second.memo) == (1, first.memo["tests"])
    assert judge_by(nobody, RunContext(RUN.task, "run", free_only=True)).overall_score is None


def test_versions_that_are_judged_at_the_same_time_share_their_tests():
    model = ScriptedModel([TESTS])
    judge = generated_tests(criterion("generated_tests"), model, ProcessJail())

    async def both():
        return await asyncio.gather(judge(LOWER, RUN), judge(RIGHT, RUN))

    found = asyncio.run(both())
    assert [one.overall_score for one in found] == [0.5, 1]
    assert found[0].memo == found[1].memo
    assert sum(one.usage.requests for one in found) == 1


def test_outside_of_a_run_there_is_nothing_to_test():
    model = ScriptedModel([TESTS])
    found = asyncio.run(PATTERN.reflect(LOWER, agent=Agent(model)))
    assert (found.overall_score, model.requests) == (None, [])
    assert "outside of a run" in found.issues[0]


def test_a_budget_that_allows_no_tests_leaves_the_draft():
    pattern = replace(PATTERN, budget_tokens=150)
    result = asyncio.run(Agent(ScriptedModel([LOWER]), pattern=pattern, keep=False).run(TASK))
    assert (result.best_output, result.convergence_reason) == (LOWER, "token_budget")
    assert "budget_tokens=150" in result.diagnostics["generated_criteria"]


def test_the_examples_come_first_as_a_gate():
    config = {"calls": list(KNOWN.items())}
    gate = QualityCriterion("examples", evaluator="command", evaluator_config=config, gate=True)
    pattern = replace(PATTERN, quality_criteria=[gate, *PATTERN.quality_criteria])
    model = ScriptedModel(["def median(numbers):\n    return 9", RIGHT, TESTS])
    result = asyncio.run(Agent(model, pattern=pattern, keep=False).run(TASK))
    assert result.success
    assert [request.role for request in model.requests] == ["generation", "revision", "evaluation"]
    assert result.history.versions[0].evaluation.issues == ("median([3, 1, 2]) returned 9, expected 2",)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"cuont": 3}, "did you mean 'count'"),
        ({"count": 0}, "count must be a whole number of at least 1, got 0"),
        ({"count": True}, "count must be a whole number"),
        ({"timeout": -1}, "timeout must be a number of seconds"),
        ({"examples": [["f(", 1]]}, "is not Python"),
        ({"examples": 3}, "examples must be a list"),
    ],
)
def test_invalid_configuration(config, message):
    with pytest.raises(ConfigError, match=message):
        generated_tests(criterion("generated_tests", **config), ScriptedModel([]), ProcessJail())


def run_agent(replies, keep=None):
    model = ScriptedModel(replies)
    agent = Agent(model=model, pattern=PATTERN, keep=keep or MemoryStore())
    return asyncio.run(agent.run(TASK, run_id="median")), model


def test_a_run_returns_the_version_that_passes():
    result, _ = run_agent([LAST, TESTS, RIGHT])
    assert (result.success, result.best_output) == (True, RIGHT)
    assert result.history.versions[1].strategy == "resample", "as after any failed test"
    assert result.usage_by_role["evaluation"].requests == 1


def test_issues_say_that_a_model_wrote_the_test():
    result, model = run_agent([LAST, TESTS, LAST + " * 1", RIGHT])
    assert [version.strategy for version in result.history.versions] == ["draft", "resample", "fresh"]
    assert DOUBT in model.requests[-1].messages[-1].content


def test_a_run_keeps_a_draft_that_passes_half():
    result, _ = run_agent([LOWER, TESTS])
    assert (result.success, result.best_output) == (True, LOWER)


def test_a_run_without_usable_tests_returns_its_draft_and_says_so():
    result, _ = run_agent([LOWER, "Sorry.", "No."])
    assert (result.best_output, result.success) == (LOWER, False)
    assert result.convergence_reason == "unjudged"
    assert "no test that can be used" in result.diagnostics["generated_criteria"]


class Stopped(BaseException):
    """What a killed process would be."""


def test_a_resumed_run_neither_pays_for_its_tests_again_nor_changes_them():
    store = MemoryStore()

    def die(_request):
        raise Stopped

    replies = iter([LAST, TESTS])
    model = ScriptedModel(lambda request: next(replies, None) or die(request))
    with pytest.raises(Stopped):
        asyncio.run(Agent(model=model, pattern=PATTERN, keep=store).run(TASK, run_id="median"))
    resumed, again = run_agent([RIGHT], keep=store)
    assert (resumed.success, resumed.best_output) == (True, RIGHT)
    assert [request.role for request in again.requests] == ["revision"]
    memo = resumed.history.versions[0].evaluation.memo
    assert list(memo["tests"]["tests"]) == TESTS.splitlines()


def test_plain_functions_use_the_judge_of_the_pattern():
    pattern = ReflectionPattern(
        quality_criteria=PATTERN.quality_criteria, reflection_model=ScriptedModel([TESTS])
    )
    drafts = iter([LAST, RIGHT])
    result = reflect_sync(TASK, generate=lambda prompt: next(drafts), pattern=pattern)
    assert result.best_output == RIGHT


def test_candidates_of_a_resumed_run_are_judged_by_the_same_tests():
    async def run(store, replies):
        model, drafts = ScriptedModel(replies), {1: LAST, 2: RIGHT}
        pattern = ReflectionPattern(
            quality_criteria=PATTERN.quality_criteria, reflection_model=model, candidates=2, max_iterations=0
        )
        result = await reflect(
            TASK,
            generate=lambda prompt, attempt: drafts[attempt.candidate],
            pattern=pattern,
            step=Journalled(store, "median"),
        )
        return result, model

    async def run_twice():
        whole, killed = MemoryStore(), MemoryStore()
        first, _ = await run(whole, [TESTS])
        steps = await whole.find("step")
        assert any("/judge 2#1" in step.key for step in steps)
        for step in steps:  # it was killed while the second candidate was judged
            if "/" in step.key.removeprefix("median/") and "/judge 2#1" not in step.key:
                await killed.put(step)
        return first, await run(killed, [])

    first, (resumed, model) = asyncio.run(run_twice())
    assert model.requests == []
    assert (resumed.best_output, resumed.token_usage) == (RIGHT, first.token_usage)
    assert resumed.diagnostics == first.diagnostics
