"""`docs/evaluate.md`, run: its cases, its commands, its Python, its tests."""

import asyncio
import re
import sys
from types import SimpleNamespace

import pytest

from redraft import Agent, ReflectionPattern, ScriptedModel
from redraft.evals.cases import read_cases
from redraft.stores.location import project_store
from support.commands import redraft
from support.judged import judged_runs
from support.pages import Page

PAGE = Page("docs/evaluate.md")
SECONDS = re.compile(r"(?<=\d{4}  )\d+\.\d(?=  )")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    def answer(request):
        return (
            "Paris, 6 EUR" if request.role == "revision" else "Well, that is hard to say, for " + "many " * 9
        )

    agent = Agent(ScriptedModel(answer), pattern=ReflectionPattern(2), name="writer")
    monkeypatch.setitem(sys.modules, "app", SimpleNamespace(writer=agent, new=agent, old=agent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    monkeypatch.setenv("REDRAFT_MODEL", "openai:gpt-5-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "cases.yaml").write_text(PAGE.files("yaml")["cases.yaml"], "utf-8")
    return tmp_path


def test_its_commands_run(project):
    asyncio.run(judged_runs(project_store(), 20))
    invoice, capital = read_cases(project / "cases.yaml")
    assert (invoice.threshold, capital.control) == (0.8, True)
    for line in PAGE.commands():
        command, _, target = re.sub(r"\s+#.*", "", line).partition(" > ")
        _, *words = command.split()
        if words[1:2] in (["add"], ["stability"]):
            continue
        result = redraft(*words, stdin="y\nn\n" * 20)
        assert result.exit_code == 0, (line, result.stderr)
        if target:
            (project / target).write_text(result.stdout, "utf-8")


def test_its_python_runs(monkeypatch):
    evaluation, tests = PAGE.blocks("python")
    names, _ = PAGE.run(evaluation)
    [console] = PAGE.blocks("console")
    command, printed = console.split("\n", 1)
    monkeypatch.setenv("COLUMNS", "120")
    output = redraft(*command.removeprefix("$ redraft ").split()).stdout
    assert SECONDS.sub("S", output) == SECONDS.sub("S", printed)
    PAGE.run(tests, names)
    (case,) = names["CASES"]
    names["test_facts"](case=case)
