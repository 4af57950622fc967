import asyncio
from collections import Counter

import pytest
from _measure import PROJECT, README
from _model import Bounded
from offline_model import ARMS, AT_ONCE, report, run
from small_tasks import TASKS

from redraft import Cassette, ReflectionPattern

CASSETTE = PROJECT / "benchmarks" / "cassettes" / "small.jsonl.gz"


def test_there_are_enough_tasks_of_each_kind():
    assert len({task.name for task in TASKS}) == len(TASKS) >= 30
    assert min(Counter(task.name.split("-")[0] for task in TASKS).values()) >= 10


def test_the_cassette_gives_the_table_of_the_readme():
    outcomes = asyncio.run(run(TASKS, list(ARMS), Bounded(Cassette(CASSETTE)), at_once=AT_ONCE))
    assert report(outcomes) in README.read_text()


@pytest.mark.parametrize(
    ("name", "output", "met", "solved"),
    [
        ("json-log", '{"level": "error", "service": "billing", "code": 503}', True, True),
        ("json-log", '{"level": "error", "service": "billing", "code": 500}', True, False),
        ("json-log", '{"level": "fatal", "service": "billing", "code": 503}', False, False),
        ("text-acrostic", "Mist\nOwls\nOver\nNight", True, True),
        ("text-acrostic", "Mist\nOwls\nNight", False, False),
        ("text-bullets", "- one\n- two\n- three\n- four\n- five", True, True),
        ("text-bullets", "Here you are:\n- one\n- two\n- three\n- four\n- five", False, False),
        ("code-digits", "```python\ndef digital_root(n):\n    return n and 1 + (n - 1) % 9\n```", True, True),
        ("code-digits", "def digital_root(n):\n    return {9875: 2, 0: 0}[n]", True, False),
    ],
)
def test_each_task_accepts_a_right_and_rejects_a_wrong_answer(name, output, met, solved):
    task = next(task for task in TASKS if task.name == name)

    async def judged():
        evaluation = await ReflectionPattern(quality_criteria=task.criteria).reflect(output)
        return evaluation.satisfactory, evaluation.satisfactory if task.hidden is None else await task.hidden(
            output
        )

    assert asyncio.run(judged()) == (met, solved)
