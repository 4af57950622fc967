"""A made-up project after months of use: runs, workflows, agents, notes and lessons."""

from __future__ import annotations

import random
import sqlite3
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from redraft.stores.base import Record, Store
    from redraft.types import PlainTask

DAYS = 60
"""Days over which the runs are spread."""
SUBJECTS = 2_000
"""Different tasks of runs without notes."""
CRITERIA = ("facts", "style", "length", "tone")
LONG_RUN = 200
"""Versions of the longest run."""

AGENTS = tuple(f"agent {number:02}" for number in range(20))
CYCLES = 100
"""Cycles of an agent; the first agent has ten times as many."""
MEMORY_ITEMS = 200
"""Items under each key of an agent's memory."""
FIRST_CYCLE = datetime(2026, 11, 1, tzinfo=UTC)

NOTED_TASKS = 60
"""Tasks with notes; the first has half of all runs."""
REVISIONS = 100
"""Revisions of the first task's note."""
LESSONS = 90
"""Lessons of one agent: a third each active, in quarantine and retired."""
LESSONS_A_RUN = 3
FIRST_RUN = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 1_000
"""Records written at once."""


async def fill(folder: Path, count: int) -> dict[str, str]:
    """Keep so many runs, begun over 60 days, and what they taught; return what the pages measured are of."""
    from redraft.stores.sqlite import SqliteStore

    place, rng = folder / ".redraft" / "redraft.db", random.Random(7)
    store = SqliteStore(place)
    for start in range(0, count, BATCH):
        await store.put_all([made_run(rng, number) for number in range(start, min(count, start + BATCH))])
    lessons = learn_lessons(folder / "memory")
    task = await fill_notes(store, count, lessons)
    await make_run(store, "a-real-run", (0.2, 0.4, 0.6, 0.9))
    await make_run(store, "a-long-run", [number / 1_000 for number in range(LONG_RUN)])
    await store.put_all([made_workflow(rng, number) for number in range(count // 50)])
    await make_workflow(store)
    await store.aclose()
    await write_agents(place, list(AGENTS), CYCLES)
    first = (datetime.now(UTC) - timedelta(days=DAYS)).timestamp() * 1e6
    with sqlite3.connect(place) as connection:
        for table, key in (("records", "key"), ("runs", "run_id"), ("run_shares", "run_id")):
            connection.execute(
                f"UPDATE {table} SET created_at = ? + CAST(substr({key}, 5) AS INTEGER) * ? "  # noqa: S608 (names of ours)
                f"WHERE {key} LIKE 'run-%'",
                (int(first), int(DAYS * 86_400 * 1e6 / count)),
            )
        connection.execute(
            "UPDATE records SET created_at = ? + CAST(substr(key, 6) AS INTEGER) * ? "
            "WHERE kind = 'workflow' AND key LIKE 'flow-%'",
            (int(first), int(DAYS * 86_400 * 1e6 / (count // 50))),
        )
    connection.close()
    return {"run": "a-real-run", "other": f"run-{count - 2:06}", "task": task, "lesson": lessons[0]}


def made_run(rng: random.Random, number: int) -> Record:
    """Return the record of a run with one to four versions of 60 words."""
    from redraft._codec import from_record
    from redraft.loop.record import RunRecord

    words = [f"word{rng.randrange(500)}" for _ in range(60)]
    versions = [made_version(rng, iteration, words) for iteration in range(1, rng.randint(1, 4) + 1)]
    best = max(versions, key=lambda one: one["evaluation"]["overall_score"])["iteration"]
    name, task = rng.choice(AGENTS), rng.randrange(SUBJECTS)
    roles = ("generation", "evaluation", "revision")[: 3 if len(versions) > 1 else 2]
    data = {
        "run_id": f"run-{number:06}",
        "task": {"description": f"Write down what belongs to subject {task}, and in which order."},
        "origin": {"surface": "agent", "name": name, "model": f"some:model-{rng.randrange(4)}"},
        "options": {"max_iterations": 3, "quality_threshold": 0.8, "revision_strategy": "hybrid",
                    "criteria": [{"name": one} for one in CRITERIA]},
        "started_at": "2026-11-22T03:45:00+00:00",
        "finished_at": "2026-11-22T03:45:22+00:00",
        "process": {"host": "benchmark", "pid": 1, "started": "1"},
        "status": "failed" if rng.random() < 0.01 else "finished",
        "versions": versions,
        "best": best,
        "final": len(versions),
        "revisions": len(versions) - 1,
        "reason": rng.choice(("quality_met", "plateau", "max_iterations")),
        "usage_by_role": {role: made_usage(rng) for role in roles},
        "execution_time": rng.uniform(3, 60),
        "parent": "run-of-many" if rng.random() < 0.1 else "",
    }  # fmt: skip
    return from_record(RunRecord, data).stored()


def made_version(rng: random.Random, iteration: int, words: list[str]) -> dict[str, Any]:
    words[rng.randrange(len(words))] = f"change{iteration}"
    scores = {name: round(min(1.0, rng.uniform(0.3, 0.7) + 0.1 * iteration), 3) for name in CRITERIA}
    return {
        "iteration": iteration,
        "output": " ".join(words),
        "evaluation": {"overall_score": sum(scores.values()) / len(scores), "criteria_scores": scores,
                       "issues": [{"message": "Too long.", "criterion": "length"}]},
        "timestamp": f"2026-11-22T03:45:0{iteration}+00:00",
        "token_usage": made_usage(rng),
        "strategy": "generate" if iteration == 1 else "targeted_edit",
    }  # fmt: skip


def made_usage(rng: random.Random) -> dict[str, Any]:
    cost = None if rng.random() < 0.02 else rng.uniform(0.001, 0.01)
    failed = {"failed_requests": 1} if rng.random() < 0.02 else {}
    return {
        "input_tokens": rng.randrange(2_000),
        "output_tokens": 300,
        "requests": 1,
        "cost_usd": cost,
        **failed,
    }


async def make_run(store: Store, run_id: str, scores: Sequence[float]) -> None:
    """Carry out a run of a version for each score, whose page is measured."""
    from redraft import ReflectionPattern, reflect
    from redraft.loop.journal import Journalled

    rng = random.Random(3)
    words = [f"word{rng.randrange(500)}" for _ in range(400)]
    score = iter(scores)

    def generate(_prompt: str) -> str:
        for _ in range(20):
            words[rng.randrange(len(words))] = f"change{rng.randrange(900)}"
        return " ".join(words)

    pattern = ReflectionPattern(
        max_iterations=len(scores) - 1, plateau_iterations=len(scores), improvement_threshold=0
    )
    step = Journalled(store, run_id)
    await reflect(
        "Say it at length.", generate=generate, evaluate=lambda _: next(score), pattern=pattern, step=step
    )


def made_workflow(rng: random.Random, number: int) -> Record:
    """Return the record of a workflow of three nodes."""
    from redraft.stores.base import Record

    data = {
        "run_id": f"flow-{number:06}",
        "name": f"workflow {rng.randrange(9)}",
        "file": "orders.yaml",
        "inputs": {"subject": f"subject {rng.randrange(SUBJECTS)}"},
        "started_at": "2026-11-22T03:45:00+00:00",
        "finished_at": "2026-11-22T03:45:22+00:00",
        "status": "failed" if rng.random() < 0.01 else "finished",
        "state": {"text": " ".join(f"word{rng.randrange(500)}" for _ in range(200))},
        "nodes": ["draft", "check", "send"],
        "usage": made_usage(rng),
        "execution_time": rng.uniform(3, 60),
    }
    return Record("workflow", data["run_id"], data)


async def make_workflow(store: Store) -> None:
    """Carry out a workflow of a loop and a function whose page is measured."""
    from redraft import ScriptedModel
    from redraft.workflow import Workflow

    replies = [f'{{"a": "{"word " * 400}", "tries": {number}}}' for number in range(3)]
    text = """
name: two nodes
nodes:
  - name: draft
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: scripted, prompt: Draft.}
      evaluator: {type: schema, schema: {properties: {tries: {minimum: 2}}}}
  - name: send
    uses: send
"""

    async def send(state: dict[str, Any]) -> dict[str, Any]:
        return {"sent": state["reflection_output"]}

    model = ScriptedModel(replies)
    flow = Workflow.from_text(text, actions={"send": send}, models={"scripted": model}, keep=store)
    await flow.run({"who": "Ada"}, run_id="a-real-workflow")


async def write_agents(database: Path, names: list[str], cycles: int) -> None:
    """Keep agents that went round so many times each, the first one ten times as often."""
    from redraft.stores.base import Record
    from redraft.stores.sqlite import SqliteStore

    project = SqliteStore(database)
    for at, name in enumerate(names):
        await project.put(Record("agent", name, {}))
        store = SqliteStore(database, f"/agent:{name}")
        await store.put_all(list(made_agent(name, cycles if at else 10 * cycles)))
        await store.aclose()
    await project.aclose()


def made_agent(name: str, cycles: int) -> Iterator[Record]:
    """Return all that an agent keeps: its card, its cycles, its memory."""
    from redraft.cycles.memory import Memory
    from redraft.cycles.records import AgentCard, memory_record, stored_cycle

    yield AgentCard(name, name, "Watches a line.", "agent.yaml", ("every 60,000 ms",)).record
    for number in range(1, cycles + 1):
        yield stored_cycle(made_cycle(number))
    items = {
        key: [made_item(number, key) for number in range(MEMORY_ITEMS)]
        for key in ("patterns", "recentActions")
    }
    yield memory_record(Memory(items, cycles))


def made_cycle(number: int) -> Any:
    from redraft.cycles.memory import MemoryChange
    from redraft.cycles.records import CycleMetrics, CycleRecord

    plan = {"id": f"{number}-1", "action": "hold", "params": {"batch": number}, "reason": "it is high"}
    done = {"id": f"{number}-1", "status": "succeeded", "idempotencyKey": "0" * 32, "result": "held " * 100}
    began = FIRST_CYCLE + timedelta(minutes=number)
    return CycleRecord(
        number,
        began,
        "interval",
        "finished",
        began + timedelta(seconds=2),
        {
            "analysis": {"anomalies": [{"message": "the rate is high"}]},
            "plan": {"actions": [plan]},
            "execution": {"actions": [done]},
            "learnings": {"newPatterns": [{"description": "seen before " * 10}]},
        },
        metrics=CycleMetrics(2_000.0 + number % 7, 900 + number % 90, 0.002, 1, number % 3),
        changes=(
            MemoryChange("recentActions", f"{number}-1", None, made_item(number, "recentActions")),
            MemoryChange("recentActions", "old", made_item(1, "recentActions"), None, 0),
        ),
    )


def made_item(number: int, key: str) -> dict[str, Any]:
    return {
        "id": f"{key}-{number}",
        "timestamp": f"2026-11-22T03:{number % 60:02}:00.000Z",
        "cycle": number,
        "description": f"What was seen on press {number} was seen before, and nobody minded.",
        "confidence": 0.5,
    }


def learn_lessons(memory: Path, agent: str = "writer") -> list[str]:
    """File an agent's lessons, a third of them active, a third in quarantine; return their ids."""
    from redraft.lessons.folder import LessonFolder
    from redraft.lessons.lesson import STATUSES, Failure, Lesson

    rng, folder, ids = random.Random(5), LessonFolder(memory, agent), list[str]()
    for number in range(LESSONS):
        texts = [" ".join(f"word{rng.randrange(300)}" for _ in range(25)) for _ in range(5)]
        day = date(2026, 10, 1) + timedelta(days=number % 40)
        lesson = Lesson(Failure(*texts), agent, day, f"Lesson {number}", status=STATUSES[number % 3])
        ids.append(folder.add(lesson).id)
    return ids


async def fill_notes(store: Store, runs: int, lessons: list[str]) -> str:
    """Keep what so many runs were given and scored; return the identity of the task that has half of them."""
    from redraft.notes.note import TaskReflection
    from redraft.notes.store import NoteStore
    from redraft.notes.task import TaskIdentity

    rng, notes = random.Random(6), NoteStore(store)
    identities = [TaskIdentity.of(task(number)) for number in range(NOTED_TASKS)]
    for number in range(NOTED_TASKS):
        for version in range(REVISIONS if number == 0 else 5):
            text = " ".join(f"word{rng.randrange(300)}" for _ in range(80))
            reflection = TaskReflection.of_first_run(f"{text} {version}", text[:200], ["Too long."])
            await notes.append(task(number), reflection, run_id=f"run-{version:06}", based_on=version or None)
    for start in range(0, runs, BATCH):
        records: list[Record] = []
        for number in range(start, min(runs, start + BATCH)):
            identity = identities[0 if number % 2 else 1 + (number // 2) % (NOTED_TASKS - 1)]
            records += uses_of(number, runs, identity, lessons, rng)
        await store.put_all(records)
    return identities[0]


def uses_of(number: int, runs: int, identity: str, lessons: list[str], rng: random.Random) -> list[Record]:
    """Return what one run was given, a fifth of them by a trial nothing, and what its lessons did."""
    from redraft.lessons.impact import Use
    from redraft.notes.note import NoteUse
    from redraft.notes.store import use_record

    at, run_id = FIRST_RUN + timedelta(minutes=number), f"run-{number:06}"
    version = 1 + number * (REVISIONS - 1) // runs
    given = (None, "control") if number % 5 == 0 else (version, "note")
    use = NoteUse(run_id, given[0], given[1], rng.random(), at)
    having = [lessons[(number * LESSONS_A_RUN + one) % len(lessons)] for one in range(LESSONS_A_RUN)]
    return [
        use_record(identity, use),
        *(Use(lesson, run_id, at, number % 3 > 0).record() for lesson in having),
    ]


def task(number: int) -> PlainTask:
    """Return one of the tasks."""
    from redraft.types import PlainTask

    return PlainTask(f"Write report number {number} of the month.", expected_output="Five sentences.")
