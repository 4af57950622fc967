import asyncio
import json

import pytest
from retry_tasks import RETRY_TASKS
from small_tasks import TASKS

from redraft import ReflectionPattern

# Of each task: an answer that solves it, and a plausible one that does not.
ANSWERS = {
    "json-train": (
        {"number": "ICE599", "departs": "16:15", "minutes_late": 30},
        {"number": "ICE 599", "departs": "16:15", "minutes_late": 30},
    ),
    "json-lease": (
        {"from": "2024-05-01", "to": "2026-04-30", "cents_a_month": 84550},
        {"from": "2024-05-01", "to": "2026-04-30", "cents_a_month": 845.5},
    ),
    "json-server": (
        {"name": "db-7", "megabytes": 16384, "roles": ["backups", "mail", "search"]},
        {"name": "db-7", "megabytes": 16000, "roles": ["search", "backups", "mail"]},
    ),
    "json-poll": (
        {"question": "Tea or coffee?", "votes": {"tea": 12, "coffee": 19, "neither": 3}, "winner": "coffee"},
        {"question": "Tea or coffee?", "votes": {"Tea": 12, "Coffee": 19, "Neither": 3}, "winner": "Coffee"},
    ),
    "json-plant": (
        {"name": "Salvia officinalis", "height_cm": 70, "sun": "full", "months": [5, 6, 7]},
        {"name": "Salvia officinalis", "height_cm": 70, "sun": "full", "months": ["May", "June", "July"]},
    ),
    "json-match": (
        {"home": "Harbour FC", "goals": [3, 1], "won_by": "home"},
        {"home": "Rovers", "goals": [1, 3], "won_by": "guest"},
    ),
    "json-dose": (
        {"medicine": "ibuprofen", "milligrams_a_day": 600, "until": "2025-06-09"},
        {"medicine": "ibuprofen", "milligrams_a_day": 600, "until": "2025-06-10"},
    ),
    "text-moon": (
        (
            "The moon shines only by the light of the sun, which always falls on one half of it. As the moon "
            "goes around the earth, we see more or less of that half."
        ),
        "The moon has phases because the sun lights one half of it.",
    ),
    "text-tips": (
        "- Arrive ten minutes early\n- Read about the company\n- Ask two questions\n- Bring your papers",
        "- Be on time\n- Be polite\n- Read about the company\n- Ask questions",
    ),
    "text-river": (
        (
            "Rain falls on the hills\nInto the valley it runs\nVillages drink from it\nEvery field is green\n"
            "Rest it finds at sea"
        ),
        "River runs to the sea\nIn the valley\nVery slow\nRain feeds it",
    ),
    "text-cities": ("athens, berlin, lisbon, oslo, paris, rome", "Athens, Berlin, Lisbon, Oslo, Paris, Rome"),
    "text-bread": (
        "1. Mix flour, water and yeast\n2. Knead it well\n3. Wait\n4. Shape a loaf\n5. Bake until brown",
        "1. Mix flour, water, salt and fresh yeast in a bowl\n2. Knead\n3. Wait\n4. Shape\n5. Bake",
    ),
    "text-notice": (
        "Dear tenants, the water is off on Thursday from 9:00 to 11:30. #water",
        "Dear tenants, the water is off on Thursday from 9:00 to 11:30.",
    ),
    "text-winter": (
        (
            "The days are short, and smoke rises from the chimneys of every quiet village. Bare trees stand "
            "still while people read by the fire."
        ),
        (
            "Winter is a cold time with snow. The days are short, and people like to stay at home by the "
            "warm fire with tea."
        ),
    ),
    "code-ordinal": (
        (
            "def ordinal(n):\n"
            "    if n % 100 in (11, 12, 13):\n"
            "        return f'{n}th'\n"
            "    return f\"{n}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th') }\""
        ),
        "def ordinal(n):\n    return f\"{n}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th') }\"",
    ),
    "code-ranges": (
        (
            "def ranges(numbers):\n"
            "    runs = []\n"
            "    for number in sorted(numbers):\n"
            "        if runs and number == runs[-1][-1] + 1:\n"
            "            runs[-1].append(number)\n"
            "        else:\n"
            "            runs.append([number])\n"
            "    parts = [[f'{run[0]}-{run[-1]}'] if len(run) > 2 else map(str, run) for run in runs]\n"
            "    return ','.join(text for part in parts for text in part)"
        ),
        "def ranges(numbers):\n    return ','.join(map(str, sorted(numbers)))",
    ),
    "code-rotate": (
        "def rotate(rows):\n    return [list(row) for row in zip(*rows[::-1])]",
        "def rotate(rows):\n    return [list(row) for row in zip(*rows)]",
    ),
    "code-wrap": (
        (
            "import textwrap\n\ndef wrap(text, width):\n"
            "    return textwrap.wrap(text, width, break_long_words=False)"
        ),
        "import textwrap\n\ndef wrap(text, width):\n    return textwrap.wrap(text, width)",
    ),
    "code-duration": (
        (
            "import re\n\n"
            "def seconds_of(text):\n"
            "    found = re.fullmatch(r'(?:(\\d+)h)?\\s*(?:(\\d+)m)?\\s*(?:(\\d+)s)?', text)\n"
            "    if not found or not any(found.groups()):\n"
            "        return None\n"
            "    hours, minutes, seconds = (int(each or 0) for each in found.groups())\n"
            "    return hours * 3600 + minutes * 60 + seconds"
        ),
        (
            "def seconds_of(text):\n"
            "    unit = {'h': 3600, 'm': 60, 's': 1}\n"
            "    return sum(int(part[:-1]) * unit[part[-1]] for part in text.split())"
        ),
    ),
    "code-version": (
        (
            "def newer(a, b):\n"
            "    def key(version):\n"
            "        numbers = [int(each) for each in version.split('.')]\n"
            "        return numbers + [0] * (9 - len(numbers))\n"
            "    return key(a) > key(b)"
        ),
        "def newer(a, b):\n    return a > b",
    ),
}


def test_there_are_twenty_tasks_none_of_them_reported_before():
    names = {task.name for task in RETRY_TASKS}
    assert len(names) == len(RETRY_TASKS) == 20
    assert not names & {task.name for task in TASKS}


@pytest.mark.parametrize("task", RETRY_TASKS, ids=lambda task: task.name)
def test_each_task_can_be_solved_and_missed(task):
    pattern = ReflectionPattern(quality_criteria=task.criteria)

    async def solves(answer):
        output = answer if isinstance(answer, str) else json.dumps(answer)
        met = (await pattern.reflect(output)).satisfactory
        return met and (task.hidden is None or await task.hidden(output))

    async def both():
        return [await solves(answer) for answer in ANSWERS[task.name]]

    assert asyncio.run(both()) == [True, False]
