"""The arguments that `reflect`, `@reflected`, `Agent`, `Task` and the adapters share."""

import inspect
import json
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest
from agents import Agent as SdkAgent
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel

from redraft import (
    Agent,
    ConfigError,
    Ensemble,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    Task,
    reflect,
    reflect_sync,
    reflected,
)
from redraft.integrations import langgraph, openai_agents
from redraft.loop import pattern as pattern_module
from redraft.notes import InMemoryReflectionStore
from redraft.notes.task_run import _pattern_of

JUDGE, OTHER = ScriptedModel([]), ScriptedModel([])
SHORT = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 5})
MARKED = QualityCriterion("marked", evaluator="regex", evaluator_config={"pattern": "!"})
GIVEN = {
    "criteria": [SHORT],
    "max_iterations": 1,
    "quality_threshold": 0.5,
    "budget_usd": 0.25,
    "budget_tokens": 900,
    "budget_seconds": 12.5,
    "judge": JUDGE,
}
OPTIONS = {"criteria": "quality_criteria", "judge": "reflection_model"}
"""The options of the pattern that have another name there."""


def answer(question, feedback=""):
    return question


def graph():
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda _state: {"messages": []})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile()


SURFACES = {
    "reflected": lambda **options: reflected(**options)(answer).pattern,
    "Agent": lambda **options: Agent(ScriptedModel([]), **options).pattern,
    "from_pydantic_ai": lambda **options: (
        Agent.from_pydantic_ai(PydanticAgent(TestModel()), **options).pattern
    ),
    "openai_agents": lambda **options: (
        openai_agents.reflecting(SdkAgent(name="a", model="gpt-5-mini"), **options).pattern
    ),
    "langgraph": lambda **options: langgraph.reflecting(graph(), **options).pattern,
    "Task": lambda **options: _pattern_of(Task("Say it.", **options)),
}
CALLS = (
    *(reflect, reflect_sync, reflected, Agent, Agent.from_pydantic_ai),
    *(Task, openai_agents.reflecting, langgraph.reflecting),
)


@pytest.mark.parametrize("call", CALLS)
def test_each_takes_the_same_arguments_in_the_same_order(call):
    parameters = inspect.signature(call).parameters
    shared = [parameters[name] for name in parameters if name in GIVEN]
    assert [message.name for message in shared] == list(GIVEN)
    assert all(message.default is None for message in shared)
    assert all(
        message.kind is message.KEYWORD_ONLY
        for message in shared
        if (call, message.name) != (reflected, "criteria")
    )


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("surface", SURFACES)
def test_an_argument_overrides_the_option_of_the_pattern(surface, name):
    others = {"quality_criteria": [MARKED], "max_iterations": 7, "reflection_model": OTHER}
    pattern = ReflectionPattern(**others, quality_threshold=0.25, budget_usd=1, candidates=2)
    chosen = SURFACES[surface](pattern=pattern, **{name: GIVEN[name]})
    option = OPTIONS.get(name, name)
    assert getattr(chosen, option) == GIVEN[name]
    kept = [one for one in (*others, "quality_threshold", "budget_usd", "candidates") if one != option]
    assert all(getattr(chosen, one) == getattr(pattern, one) for one in kept)


@pytest.mark.parametrize("surface", SURFACES)
def test_without_arguments_the_pattern_is_the_same_object(surface):
    pattern = ReflectionPattern(quality_criteria=[MARKED])
    assert SURFACES[surface](pattern=pattern) is pattern


@pytest.mark.parametrize("surface", SURFACES)
def test_without_a_pattern_the_arguments_make_one(surface):
    chosen = SURFACES[surface](**GIVEN)
    assert {name: getattr(chosen, OPTIONS.get(name, name)) for name in GIVEN} == GIVEN


@dataclass(frozen=True, eq=False)
class Strict(ReflectionPattern):
    strictness: int = 3


def test_a_subclass_stays_and_runs_count_as_those_of_the_original():
    pattern = Strict(quality_criteria=[MARKED], strictness=5)
    agent = Agent(ScriptedModel(["Hi"]), pattern=pattern, max_iterations=0, keep=False)
    assert (type(agent.pattern), agent.pattern.strictness) == (Strict, 5)
    result = agent.run_sync("Say hi.")
    assert pattern.get_history() is result.history


def test_reflect_judges_by_its_arguments():
    drafts = iter(["far too many words for this", "Hi!"])
    pattern = ReflectionPattern(0, [MARKED], budget_tokens=5)
    result = reflect_sync(
        "Say hi.", generate=lambda _prompt: next(drafts), criteria=[SHORT], max_iterations=2, pattern=pattern
    )
    assert (result.best_output, result.success, len(result.history.versions)) == ("Hi!", True, 2)


def test_the_name_of_a_pattern_is_shown_as_it_was_written():
    result = reflect_sync("Say hi.", generate=lambda _prompt: "Hi 5", criteria=[re.compile(r"\bHi \d")])
    assert r"criterion is at its threshold: 'matches \bHi \d' 1.00" in result.stop.detail


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judge": 3}, r"^judge must be the name of a model"),
        ({"max_iterations": -1}, r"^max_iterations must be a whole number"),
        ({"criteria": []}, r"^The list of criteria is empty"),
        ({"budget_usd": 0}, r"^budget_usd must be a number above 0"),
    ],
)
def test_an_argument_that_can_not_work_is_refused(surface, options, message):
    with pytest.raises(ConfigError, match=message):
        SURFACES[surface](**options)


@pytest.mark.parametrize(
    ("options", "versions", "score"),
    [
        ({}, 1, None),
        ({"budget_tokens": 10_000}, 1, None),
        ({"criteria": [MARKED]}, 1, 0.0),
        ({"criteria": [MARKED], "quality_threshold": 0.5}, 1, 0.0),
        ({"criteria": [MARKED], "max_iterations": 1}, 2, 1.0),
        ({"criteria": [MARKED], "pattern": ReflectionPattern(3, [SHORT])}, 2, 1.0),
        ({"criteria": [MARKED], "max_iterations": 0, "pattern": ReflectionPattern(3)}, 1, 0.0),
    ],
)
def test_a_task_is_revised_if_it_says_how_often_or_has_a_pattern(options, versions, score):
    task = Task("Say hi.", handler=lambda context: "Hi!" if context.feedback else "Hi", **options)
    crew = Ensemble(None, [task], reflection_store=InMemoryReflectionStore(), keep=False)
    result = crew.run_sync().results[0].result
    assert (len(result.history.versions), result.history.best_version.evaluation.overall_score) == (
        versions,
        score,
    )


KILLED = """
import asyncio, json, os, re, signal, sys
from dataclasses import dataclass
from pathlib import Path
from redraft import SqliteStore, reflect
from redraft.loop import Journalled, Runs

@dataclass
class Order:
    quantity: int

def is_positive(text):
    return json.loads(text)["quantity"] > 0, "Order at least one."

def generate(prompt, attempt):
    with Path("log").open("a") as log:
        print(attempt.number, file=log)
    if attempt.number == 2 and Path("log").read_text().count("2") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return '{"quantity": %d}' % (attempt.number - 1)

async def main():
    store, criteria = SqliteStore("runs.db"), [is_positive, re.compile("quantity"), Order]
    await reflect("Order.", generate=generate, criteria=criteria, step=Journalled(store, "k"))
    record = await Runs(store).get()
    shown = [[one["name"], one["evaluator"]] for one in record.options["criteria"]]
    print(json.dumps([record.status, record.versions[-1].evaluation.criteria_scores, shown]))
    await store.aclose()

asyncio.run(main())
"""


def test_a_killed_run_goes_on_with_the_same_plain_criteria(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    first, second = [
        subprocess.run(
            [sys.executable, "killed.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        for _ in range(2)
    ]
    assert first.returncode == -9
    status, scores, shown = json.loads(second.stdout)
    assert (tmp_path / "log").read_text().split() == ["1", "2", "2"]
    assert status == "finished"
    assert scores == dict.fromkeys(["is_positive", "matches quantity", "Order"], 1.0)
    assert shown == [["is_positive", "function"], ["matches quantity", "regex"], ["Order", "schema"]]


def test_all_of_them_share_what_overrides_a_pattern():
    shared = inspect.signature(pattern_module.pattern_with).parameters
    assert [name for name in shared if name != "pattern"] == list(GIVEN)
