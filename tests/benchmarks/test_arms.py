import subprocess
import sys
from pathlib import Path

import pytest
from _arms import ARMS, CALLS, Replies, Samples, arm_named, outcome_from
from _rows import append_row, code_version, rows_in
from _tasks import BenchTask
from offline_model import SEEDS, by_arm, interval, pairs_table, run

from redraft import ConfigError, QualityCriterion
from redraft._sync import run_sync
from redraft.models.testing import ScriptedModel
from redraft.protocols import ChatRequest
from redraft.types import Message

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def word_task(name="word", word="yes"):
    criterion = QualityCriterion(word, evaluator="regex", evaluator_config={"pattern": word})
    return BenchTask(name, f"Say a word of {name}.", (criterion,))


class Chance:
    """A model whose samples tell their seed, and which counts what it is asked."""

    def __init__(self):
        self.requests = []

    def __call__(self, seed):
        async def answer(request):
            self.requests.append(request)
            return await ScriptedModel([f"sample {seed}" if request.temperature else "no"])(request)

        return answer


def test_all_arms_begin_with_the_same_draft_and_pay_for_it():
    model = Chance()
    outcomes = run_sync(run([word_task()], list(ARMS), Replies("chance", model)))
    assert len(outcomes) == len(ARMS) * len(SEEDS)
    drafts = [request for request in model.requests if len(request.messages) == 2 and not request.temperature]
    assert len(drafts) == 1
    assert len({(each.tries[0].output, each.tries[0].input_tokens) for each in outcomes}) == 1
    assert all(each.tries[0].requests == 1 for each in outcomes)


def test_no_arm_makes_more_calls_than_the_others_may():
    outcomes = run_sync(run([word_task()], list(ARMS), Replies("chance", Chance())))
    calls = {each.arm: sum(attempt.requests for attempt in each.tries) for each in outcomes}
    assert calls == {"loop": CALLS, "greedy": 1, "best-of-3": CALLS, "chat": CALLS}


def test_samples_differ_by_seed_and_turn_but_not_by_arm():
    replies, hot = Replies("chance", Chance()), ChatRequest((Message("user", "?"),), temperature=0.7)

    async def texts(seed):
        model = Samples(replies, seed)
        return [(await model(hot)).text for _ in range(2)]

    first, again, other = run_sync(texts(1)), run_sync(texts(1)), run_sync(texts(2))
    assert first == again
    assert len({*first, *other}) == 4


def test_a_finished_run_is_not_repeated_unless_its_key_differs():
    done = run_sync(run([word_task()], ["chat"], Replies("chance", Chance()), seeds=[1]))

    def calls(**changed):
        model = Chance()
        arm = changed.pop("arm", "chat")
        task = changed.pop("task", word_task())
        run_sync(run([task], [arm], Replies("chance", model), done=done, **{"seeds": [1], **changed}))
        return len(model.requests)

    assert calls() == 0
    for changed in (
        {"seeds": [2]},
        {"model": "another"},
        {"version": "2"},
        {"arm": "greedy"},
        {"task": word_task("other")},
    ):
        assert calls(**changed) > 0, changed


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from test_arms import Chance, word_task
from _arms import Replies
from offline_model import keeper, run
from redraft._sync import run_sync

class Fatal(Chance):
    def __call__(self, seed):
        if len(self.requests) == int(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(seed)

out = Path(sys.argv[3])
replies = Replies("chance", Fatal(), out.with_suffix(".replies"))
tasks = [word_task("one"), word_task("two")]
run_sync(run(tasks, ["best-of-3", "chat"], replies, seeds=[1, 2], keep=keeper(out)))
"""


@pytest.mark.parametrize("fatal_call", [2, 6])
def test_a_killed_benchmark_goes_on_where_it_was(tmp_path, fatal_call):
    out = tmp_path / "rows.jsonl"
    arguments = [str(BENCHMARKS), str(Path(__file__).parent), str(out), str(fatal_call)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    replies = out.with_suffix(".replies")
    assert len(rows_in(replies)) == fatal_call
    tasks, arms = [word_task("one"), word_task("two")], ["best-of-3", "chat"]
    model = Chance()
    done = [outcome_from(row) for row in rows_in(out)]
    resumed = run_sync(
        run(
            tasks,
            arms,
            Replies("chance", model, replies),
            seeds=[1, 2],
            done=done,
            keep=lambda outcome: append_row(out, outcome.to_json()),
        )
    )
    whole = Chance()
    expected = run_sync(run(tasks, arms, Replies("chance", whole), seeds=[1, 2]))
    assert [each.to_json() for each in resumed] == [each.to_json() for each in expected]
    assert rows_in(out) == [each.to_json() for each in expected]
    assert len(model.requests) == len(whole.requests) - fatal_call


def test_a_row_that_was_never_finished_is_replaced(tmp_path):
    file = tmp_path / "rows.jsonl"
    append_row(file, {"one": 1})
    with file.open("a") as stream:
        stream.write('{"two": ')
    assert rows_in(file) == [{"one": 1}]
    append_row(file, {"two": "ü\u2028"})
    assert rows_in(file) == [{"one": 1}, {"two": "ü\u2028"}]


def test_the_version_changes_with_code_but_not_with_docstrings_and_comments(tmp_path):
    file = tmp_path / "module.py"

    def version(text, explicit=1):
        file.write_text(text)
        return code_version(explicit, [file])

    first = version('"""Say one."""\nPROMPT = "one"\n')
    assert version('"""Say it."""\n\nPROMPT = "one"  # a comment\n') == first
    assert version('"""Say one."""\nPROMPT = "two"\n') != first
    assert version('"""Say one."""\nPROMPT = "one"\n', 2) != first


def test_without_a_model_a_reply_must_have_been_recorded():
    with pytest.raises(ConfigError, match="No reply to 'Say a word"):
        run_sync(run([word_task()], ["greedy"], Replies("chance")))


def test_an_arm_may_be_the_loop_with_another_strategy():
    outcome = run_sync(
        arm_named("loop:full_rewrite")(word_task(), Samples(Replies("chance", Chance()), seed=1))
    )
    assert (outcome.arm, outcome.tries[1].how) == ("loop:full_rewrite", "repeat")


def test_an_arm_with_candidates_makes_as_many_calls():
    arm = arm_named("loop:candidates=2")
    outcome = run_sync(arm(word_task(), Samples(Replies("chance", Chance()), seed=1)))
    assert [each.requests for each in outcome.tries] == [2, 1]


@pytest.mark.parametrize("name", ["lop", "loop:rewrite", "loop:candidates=4", "chat:fresh"])
def test_an_unknown_arm_is_named(name):
    with pytest.raises(ConfigError, match=f"Unknown arm '{name}'"):
        arm_named(name)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({("a", 1): 1.0, ("b", 1): 1.0}, (1.0, 1.0, 1.0)),
        ({("a", 1): 0.0, ("b", 1): 1.0}, (0.5, 0.0, 1.0)),
        ({("a", 1): 0.0, ("a", 2): 1.0}, (0.5, 0.0, 1.0)),  # one task: its seeds vary
        ({("a", 1): 1.0, ("a", 2): 1.0, ("a", 3): 1.0, ("b", 1): 0.0}, (0.5, 0.0, 1.0)),  # tasks weigh alike
    ],
)
def test_the_interval_is_over_tasks_and_their_seeds(values, expected):
    found = interval(values)
    assert (found.mean, found.low, found.high) == expected


def test_the_interval_has_the_width_that_chance_gives():
    values = {(str(task), seed): float(task % 2) for task in range(100) for seed in (1, 2)}
    found = interval(values)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.05, rel=0.1)
    assert found.render(100, "+").startswith("+50.0 (+4")


def solved(arm, task, seed, *, good):
    data = {"requests": 1, "input_tokens": 1, "output_tokens": 1, "score": 1.0, "met": good, "solved": good}
    tries = [{**data, "returned": 0, "how": "draft"}]
    return outcome_from({"task": task, "arm": arm, "reason": "", "tries": tries, "seed": seed})


def test_at_least_means_that_the_interval_ends_above_minus_five_points():
    def rows(lost):
        return [
            solved(arm, str(task), seed, good=arm != "loop" or task >= lost)
            for arm in ("loop", "chat")
            for task in range(100)
            for seed in (1, 2)
        ]

    assert "| loop - chat | 200 | 0 | 2 | -1.0 (-3.0 to +0.0) | yes |" in pairs_table(rows(lost=1))
    assert "| loop - chat | 200 | 0 | 10 | -5.0 (-9.0 to -1.0) | not shown |" in pairs_table(rows(lost=5))


def test_arms_are_compared_on_the_runs_that_all_of_them_have():
    rows = [
        solved("loop", "a", 1, good=True),
        solved("loop", "a", 2, good=True),
        solved("chat", "a", 2, good=True),
    ]
    assert {name: list(runs) for name, runs in by_arm(rows).items()} == {
        "loop": [("a", 2)],
        "chat": [("a", 2)],
    }
