import asyncio
from dataclasses import replace
from datetime import date

from _measure import PROJECT, README
from _model import Bounded
from _tasks import BenchTask
from lessons_retries import TASKS, Pair, pair_of, pairs_of, pairs_table, told
from small_tasks import TASKS as SMALL

from redraft import Cassette, QualityCriterion
from redraft._sync import run_sync
from redraft.models.testing import ScriptedModel

CASSETTE = PROJECT / "benchmarks" / "cassettes" / "lessons_retries.jsonl.gz"
RECORDED = 23
"""Tasks on the cassette: the recording was ended after an hour."""

REFLECTION = {
    "what_happened": "A word was to be said.",
    "what_went_wrong": "The wrong one was.",
    "why": "It was a guess.",
    "do_differently": "Say yes.",
    "rule": "Say yes.",
    "systemic": False,
    "principle": "",
    "strategy_to_replay": "",
    "steps_to_replay": [],
}
PAIR = Pair(
    "word",
    calls=3,
    reflections=1,
    plain=0,
    first_met=False,
    with_met=True,
    without_met=False,
    with_solved=True,
    without_solved=False,
    with_outputs=["no", "yes"],
    without_outputs=["no", "no", "no"],
)


def test_the_cassette_gives_the_table_of_the_readme():
    pairs = asyncio.run(pairs_of(Bounded(Cassette(CASSETTE)), RECORDED))
    assert pairs_table(pairs) in README.read_text()


def test_both_arms_may_make_the_same_calls():
    says_yes = QualityCriterion("yes", evaluator="regex", evaluator_config={"pattern": "yes"})
    task = BenchTask("word", "Say a word.", (says_yes,))

    def answer(request):
        if request.schema is not None:
            return REFLECTION
        return "yes" if "What should I do differently? Say yes." in request.messages[-1].content else "no"

    assert run_sync(pair_of(task, ScriptedModel(answer), date(2026, 3, 1))) == PAIR


def test_the_table_counts_first_answers_that_fail():
    at_once = replace(PAIR, task="easy", calls=1, reflections=0, first_met=True, without_met=True)
    text = pairs_table([PAIR, at_once, replace(PAIR, task="hard", with_met=False, with_solved=False)])
    assert "| 2 of 3 tasks, whose first answer fails | with lessons | without |" in text
    assert "| passes the visible checks in the end | 1 | 0 |" in text
    assert "| calls made | 6 | 6 |" in text
    assert "| ... of these reflections | 2 | 0 |" in text
    assert "Solved only with lessons: word; only without: none." in text
    assert told(PAIR) == "word                     3 calls, first/with/without -+-, lessons without model 0"


def test_the_first_tasks_are_of_all_kinds():
    assert sorted(task.name for task in TASKS) == sorted(task.name for task in SMALL)
    assert [task.name.split("-")[0] for task in TASKS[:6]] == ["code", "json", "text"] * 2
