import asyncio
import json

import pytest
from families import FAMILIES, MOST_WORDS, TEAM
from note_families import CONVERSIONS, NOTE_FAMILIES

from redraft import ReflectionPattern

TASKS = [each for family in FAMILIES.values() for each in family]
RULES = {"records": "JSON list", "replies": TEAM, "functions": "Annotate"}


async def judged(task, output):
    evaluation = await ReflectionPattern(quality_criteria=task.criteria).reflect(output)
    return evaluation.satisfactory, task.hidden is None or await task.hidden(output)


def test_a_family_has_twenty_tasks_that_are_never_equal():
    for family in FAMILIES.values():
        assert len({each.task.prompt for each in family}) == len({each.task.name for each in family}) == 20
        assert sum(each.told for each in family) == 5


@pytest.mark.parametrize("each", TASKS, ids=lambda each: each.task.name)
def test_a_task_can_be_solved_and_its_familys_mistake_fails(each):
    assert asyncio.run(judged(each.task, each.solution)) == (True, True)
    met, _ = asyncio.run(judged(each.task, each.mistake))
    assert not met


@pytest.mark.parametrize("name", FAMILIES)
def test_only_tasks_with_stated_rules_have_the_rule_in_their_prompt(name):
    for each in FAMILIES[name]:
        assert (RULES[name] in each.task.prompt) is each.told, each.task.name


def test_what_is_right_in_form_alone_is_not_solved():
    by_name = {each.task.name: each.task for each in TASKS}
    visitor = json.dumps([{"visitor": "Peter Brandt", "host": "Ivana Kos"}])
    assert asyncio.run(judged(by_name["record-visitor"], visitor)) == (True, False)
    area = "def area(width: int, height: int) -> int:\n    return {(3, 4): 12, (5, 1): 5}[width, height]"
    assert asyncio.run(judged(by_name["typed-area"], area)) == (True, False)
    long = f"Dear Maria Alonso,\n{'we are sorry ' * MOST_WORDS}\n{TEAM}"
    assert asyncio.run(judged(by_name["reply-late"], long)) == (False, True)


def convert(what, *, careful=True):
    call, value = CONVERSIONS[what]
    given, care = call.removeprefix("convert"), "    if value in (None, ''):\n        return None\n"
    doc = f'    """Return what {what} makes."""\n'
    body = f"    return {{{given}: {value!r}}}[value]"
    return f"def convert(value):\n{doc + care if careful else ''}{body}"


ORDER = {"customer": "Maria Lopez", "item": "desk lamp", "quantity": 3, "city": "Madrid", "due": "2026-03-05"}
RIGHT = {
    "orders": lambda inputs: json.dumps(ORDER),
    "headlines": lambda inputs: "SALE: a thing for spring",
    "functions": lambda inputs: convert(inputs["what"]),
}
WRONG = {
    "orders": lambda inputs: json.dumps({"order": ORDER}),
    "headlines": lambda inputs: '"Spring Into Savings: The Best Thing for Your Home and Garden!"',
    "functions": lambda inputs: convert(inputs["what"], careful=False),
}


@pytest.mark.parametrize("family", NOTE_FAMILIES.values(), ids=lambda family: family.name)
def test_the_criteria_of_a_note_family_know_right_from_wrong(family):
    [first, *_] = family.inputs

    async def judge(output):
        return await ReflectionPattern(quality_criteria=family.criteria).reflect(output)

    assert asyncio.run(judge(RIGHT[family.name](first))).satisfactory
    wrong = asyncio.run(judge(WRONG[family.name](first)))
    assert not wrong.satisfactory
    assert wrong.overall_score < 0.5


@pytest.mark.parametrize("family", NOTE_FAMILIES.values(), ids=lambda family: family.name)
def test_every_input_of_a_note_family_can_be_answered(family):
    async def main():
        for inputs in family.inputs:
            assert await family.solves(inputs, RIGHT[family.name](inputs), met=True), inputs

    assert len({str(inputs) for inputs in family.inputs}) == len(family.inputs) == 20
    asyncio.run(main())


def test_a_function_that_keeps_the_convention_must_convert_too():
    family = NOTE_FAMILIES["functions"]
    [first, second, *_] = family.inputs
    assert not asyncio.run(family.solves(second, convert(first["what"]), met=True))
