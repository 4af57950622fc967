"""Lessons shared by processes that are killed again and again: none is lost, doubled or cut short."""

import random
import time
from dataclasses import replace

from redraft.lessons.folder import LessonFolder
from support.lessons import FAILURE
from support.machines import Machine

KILLS = 40


def test_lessons_survive_forty_kills_on_two_machines(postgres, tmp_path):
    chosen = random.Random(7)  # noqa: S311 (chance, not secrecy)
    a, b = (Machine(name, tmp_path, postgres.url) for name in "ab")
    for machine in (a, a, b):
        machine.share()
    written = 0
    try:
        for number in range(KILLS):
            machine = (a, b)[number % 2]
            for _ in range(3):
                why = f"For the reason {written}."
                machine.learn(replace(FAILURE, why=why), summary=f"Number {written}")
                written += 1
            known = [one.id for one in machine.lessons.lessons()]
            machine.lessons.change(chosen.choice(known), confidence=round(chosen.random(), 2))
            time.sleep(chosen.uniform(0.5, 3.0))
            machine.die()
            for _ in range(2 if machine is a else 1):
                machine.share()
        deadline = time.monotonic() + 120
        while a.texts() != b.texts() or len(a.texts()) < written:
            assert time.monotonic() < deadline, (len(a.texts()), len(b.texts()), a.said(), b.said())
            time.sleep(0.1)
    finally:
        a.stop()
        b.stop()
    for machine in (a, b):
        lessons = list(LessonFolder(machine.home / "memory", "clerk").lessons())
        assert sorted(one.content.why for one in lessons) == sorted(
            f"For the reason {number}." for number in range(written)
        )
