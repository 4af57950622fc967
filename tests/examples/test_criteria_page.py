"""Every block of docs/criteria.md runs, and prints what the page says."""

import json
import linecache
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from redraft.loop.criteria_file import read_criteria
from redraft.types import EVALUATORS
from support.commands import redraft, script
from support.pages import Page, steady

PAGE = Page("docs/criteria.md")
TEST = """
from median import median

def test_order():
    assert median([3, 1, 2]) == 2
"""
MEDIAN = """
def median(numbers):
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1:middle + 1]) / 2
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of the page, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for name, text in zip(
        ("criteria", "code", "tests", "evidence", "withheld"), PAGE.blocks("yaml"), strict=True
    ):
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    for name, code in PAGE.files("python").items():
        (tmp_path / name).write_text(code, "utf-8")
    (tmp_path / "test_median.py").write_text(TEST, "utf-8")
    yield tmp_path
    sys.modules.pop("house_style", None)


def answer(request):
    """Write a short offer, and like everything."""
    if request.role != "evaluation":
        return "A tea set, 40 euros."
    names = request.schema["properties"]["criteria"]["properties"]
    scores = {name: {"reason": "so", "score": 0.9} for name in names}
    return {"criteria": scores, "issues": [], "suggestions": [], "confidence": 0.9}


def test_the_commands_print_the_console_block(monkeypatch, folder):
    (folder / "offer.md").write_text("A tea set, 40 euros. " * 20)
    model = script(monkeypatch)
    model._answer = answer
    shown = dict(PAGE.sessions())["redraft check offer.md -c criteria.yaml"]
    checked = redraft("check", "offer.md", "-c", "criteria.yaml", "-m", "any:model")
    assert checked.stdout == shown
    assert model.requests == []  # the gate kept it from being asked
    revised = redraft("revise", "offer.md", "-c", "criteria.yaml", "-m", "any:model", "-o", "better.md")
    assert (revised.exit_code, (folder / "better.md").read_text()) == (0, "A tea set, 40 euros.")


def test_the_commands_that_draft_criteria(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, end in (("good", "fine"), ("bad", "cheap")):
        rows = [{"task": "Praise it.", "output": f"Tea {number} is {end}."} for number in range(9)]
        Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    [commands] = PAGE.blocks("sh")
    of_task, of_examples = (shlex.split(line)[1:] for line in commands.splitlines())
    drafted = redraft(*of_task)
    assert drafted.exit_code == 0
    assert "Has at most 60 words" in drafted.stdout
    assert redraft(*of_examples, "--yes").exit_code == 0
    assert [criterion.evaluator for criterion in read_criteria(Path("criteria.yaml")).criteria] == ["regex"]


@pytest.mark.parametrize(("draft", "code"), [(MEDIAN, 0), (MEDIAN.replace("sorted", "list"), 1)])
def test_the_command_criteria_judge_code(folder, draft, code):
    assert redraft("check", "-", "-c", "code.yaml", stdin=draft).exit_code == code


def test_the_judge_sees_the_evidence_that_can_be_had(monkeypatch, folder):
    (folder / "out").mkdir()
    (folder / "out" / "report.md").write_text("It took 3 days.", "utf-8")
    model = script(monkeypatch)
    model._answer = answer
    checked = redraft("check", "-", "-c", "evidence.yaml", "-m", "any:model", stdin="print(6 * 7)")
    [asked] = model.requests
    text = "\n\n".join(message.content for message in asked.messages)
    assert "It took 3 days." in text
    assert "It exited with 0, and printed:\n42" in text
    assert "grounded" not in text
    assert "the evidence 'tool:search' could not be had" in " ".join(checked.stdout.split())


@pytest.mark.usefixtures("folder")
def test_the_prompt_of_the_writer_matches_the_page(monkeypatch):
    model = script(monkeypatch)
    model._answer = answer
    redraft("revise", "-", "-c", "withheld.yaml", "-m", "any:model", stdin="def price(n):\n    return n")
    asked = next(request for request in model.requests if request.role == "revision")
    text = "\n\n".join(message.content for message in asked.messages)
    assert "- examples: Every example in the task" in text
    assert "- Not met. (examples)" in text
    assert not any(word in text for word in ("24", "84", "held out"))


def test_the_criteria_of_a_task_without_tests_can_be_used(folder):
    examples, tests = read_criteria(folder / "tests.yaml").criteria
    assert (examples.origin, tests.origin) == ("given", "generated")


def test_the_table_lists_every_evaluator():
    table = PAGE.text.split("\n## Evaluators\n\n")[1].split("\n\n")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)[1:]
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == list(EVALUATORS)


def test_the_python_prints_the_text_blocks(tmp_path, capsys):
    printed = []
    for code in PAGE.blocks("python"):
        (tmp_path / "program.py").write_text(code, "utf-8")  # the source of functions is read from their file
        linecache.checkcache()
        runpy.run_path(str(tmp_path / "program.py"))
        printed.append(steady(capsys.readouterr().out))
    assert [text for text in printed if text] == [steady(text) for text in PAGE.blocks("text")]
