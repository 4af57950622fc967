import asyncio
from collections import Counter

import pytest
from small_tasks import TASKS
from tuning_tasks import TUNING_TASKS

from redraft import ReflectionPattern


def test_there_are_enough_tasks_of_each_kind():
    assert len({task.name for task in TASKS}) == len(TASKS) >= 30
    assert min(Counter(task.name.split("-")[0] for task in TASKS).values()) >= 10


def test_tasks_to_tune_on_are_of_other_kinds():
    assert len({task.name for task in TUNING_TASKS}) == len(TUNING_TASKS) == 24
    kinds, reported = ({task.name.split("-")[0] for task in tasks} for tasks in (TUNING_TASKS, TASKS))
    assert not kinds & reported


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
        ("table-planets", "|Planet|Moons|\n|:--|--|\n|Earth|1|\n| Mars | 2 |\n|Mercury|0|", True, True),
        ("table-planets", "|Planet|Moons|\n|--|--|\n|Earth|1|\n|Mars|2|\n|Mercury|none|", True, False),
        ("table-planets", "Planet | Moons\nEarth | 1", False, False),
        ("table-semicolons", "```\nDanube;2850\nRhine;1230\nElbe;1094\n```", True, True),
        ("table-semicolons", "Rhine;1230\nDanube;2850\nElbe;1094", False, False),
        ("query-above", "SELECT name FROM people WHERE age > (SELECT AVG(age) FROM people)", True, True),
        ("query-above", "```sql\nSELECT name FROM people WHERE age > 40\n```", True, True),
        ("query-above", "SELECT name FROM people WHERE age = 41", True, False),
        ("query-above", "SELECT nme FROM people", False, False),
        ("query-above", "DELETE FROM people", False, False),
        ("convert-camel", "user_name\ntotal_count2\nhttp_server\nis_ready", True, True),
        ("convert-camel", "user_name\ntotal_count2\nh_t_t_p_server\nis_ready", True, False),
    ],
)
def test_each_task_accepts_a_right_and_rejects_a_wrong_answer(name, output, met, solved):
    task = next(task for task in (*TASKS, *TUNING_TASKS) if task.name == name)

    async def judged():
        evaluation = await ReflectionPattern(quality_criteria=task.criteria).reflect(output)
        return evaluation.satisfactory, evaluation.satisfactory if task.hidden is None else await task.hidden(
            output
        )

    assert asyncio.run(judged()) == (met, solved)
