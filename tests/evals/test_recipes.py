"""The examples about evaluation, run with scripted models."""

import asyncio
import json
import runpy
import sys
from types import SimpleNamespace

import pytest

from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel
from support.pages import ROOT

TUNE = ROOT / "examples" / "tune_with_gepa.py"
PAIRS = ROOT / "examples" / "training_pairs.py"
DIGITS = QualityCriterion("digits", evaluator="regex", evaluator_config={"pattern": "[0-9]"})


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    cases = "".join(f"  - {{id: order-{n}, task: Order {'I' * n} teas.}}\n" for n in range(1, 25))
    criterion = "criteria:\n  - {name: digits, evaluator: regex, config: {pattern: '[0-9]'}}\n"
    (tmp_path / "cases.yaml").write_text(f"{criterion}cases:\n{cases}", "utf-8")
    return tmp_path


def test_a_prompt_is_tuned_with_gepa(monkeypatch, capsys):
    def order(request):
        return "2 teas" if "Use digits" in request.messages[0].content else "two teas"

    proposals = iter(["You are a clerk. Be brief.", "You are a clerk. Use digits."])
    asked = []

    def propose(request):
        asked.append(request.messages[-1].content)
        return f"```\n{next(proposals)}\n```"

    plain = ReflectionPattern(0)
    words = QualityCriterion("text", evaluator="words", evaluator_config={"at_least": 1})
    checked = ReflectionPattern(0, [words])
    app = SimpleNamespace(
        clerk=Agent(ScriptedModel(order), system_prompt="You are a clerk.", pattern=plain, name="clerk"),
        writer=Agent(ScriptedModel(propose), pattern=checked, name="writer"),
    )
    monkeypatch.setitem(sys.modules, "app", app)
    names = runpy.run_path(str(TUNE))
    printed = capsys.readouterr().out
    assert "tuned against present: better, +100.0 points" in printed
    assert printed.endswith("You are a clerk. Use digits.\n")
    assert names["report"].differences[-1].passed.verdict == "better"
    # The writer sees the tasks, the answers, and what was wrong with them.
    assert len(asked) == 2
    assert all(word in asked[0] for word in ("You are a clerk.", "Order ", "two teas", "[0-9]"))
    # No case of the proof was part of the search.
    proof = {case.task.description for case in names["prove"]}
    assert not [task for task in proof if any(f"{task}\n" in text for text in asked)]


def test_a_search_whose_model_is_away_ends_with_its_error(monkeypatch):
    def away(request):
        raise ValueError("The model is away.")

    agent = Agent(ScriptedModel(away), pattern=ReflectionPattern(0), name="clerk")
    monkeypatch.setitem(sys.modules, "app", SimpleNamespace(clerk=agent, writer=agent))
    with pytest.raises(RuntimeError, match="The model is away"):
        runpy.run_path(str(TUNE))


def test_pairs_are_written_for_training(project):
    def answer(request):
        return "2 teas, ada.byron@lovelace.net" if request.role == "revision" else "two teas"

    revising = Agent(ScriptedModel(answer), pattern=ReflectionPattern(1, [DIGITS]))
    right = Agent(ScriptedModel(lambda _: "2"), pattern=ReflectionPattern(1, [DIGITS]))
    wrong = Agent(ScriptedModel(lambda _: "two"), pattern=ReflectionPattern(1, [DIGITS]))

    async def runs():
        await revising.run("Take an order.")
        await revising.run("Order I teas.")  # a case
        await right.run("Be right at first.")
        await wrong.run("Never be right.")

    asyncio.run(runs())
    runpy.run_path(str(PAIRS))
    (row,) = map(json.loads, (project / "pairs.jsonl").read_text("utf-8").splitlines())
    assert row["prompt"] == [{"role": "user", "content": "Take an order."}]
    assert row["rejected"] == "two teas"
    assert row["chosen"].startswith("2 teas, ")
    assert "byron" not in row["chosen"]
