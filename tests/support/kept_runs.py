"""Kept runs for tests: written down by hand as short as their scores, or made by running."""

import asyncio
from datetime import UTC, datetime, timedelta

from redraft import ConvergenceReason, Draft, ReflectionPattern, Task, TokenUsage, reflect
from redraft._codec import to_json
from redraft.loop import Retry
from redraft.loop.journal import Journalled
from redraft.loop.pattern import RECORDED
from redraft.loop.record import Origin, Process, RunRecord
from redraft.loop.runs import Runs, StoredRun
from redraft.loop.select import select
from redraft.stores.sqlite import MemoryStore
from redraft.types import QualityCriterion, Stop

START = datetime(2026, 11, 22, 3, 45, tzinfo=UTC)
CALL = TokenUsage(100, 20, requests=1, cost_usd=0.01)
GONE = Process(Process.this().host, 4_000_000, "1")


def stop_of(reason, versions, pattern):
    """What the rule of a reason says of these versions; the bare reason if no rule of the pattern fires."""
    if reason is None:
        return None
    rules = pattern.rules_for(pattern.quality_criteria)
    fired = [rule(versions) for rule in (rules, pattern.limit) if versions]
    return next((stop for stop in fired if stop and stop.reason == reason), Stop(ConvergenceReason(reason)))


def record(versions, reason=None, **fields):
    """A record of these versions; fields that are choices of a pattern go into its options."""
    choices = {name: fields.pop(name) for name in RECORDED if name in fields}
    short = QualityCriterion("short", evaluator="regex", evaluator_config={"pattern": "x"})
    pattern = ReflectionPattern(quality_criteria=[short], **choices)
    for each in versions:
        each.timestamp = START + timedelta(seconds=each.iteration)
    known = {
        "run_id": "20261122-034500-ab12cd34",
        "task": Task("Say it."),
        "origin": Origin("command", "redraft revise", "any:model"),
        "options": {
            **{name: getattr(pattern, name) for name in RECORDED},
            "criteria": to_json(pattern.quality_criteria),
        },
        "started_at": START,
        "process": Process.this(),
        "status": "running" if reason is None else "finished",
        "versions": tuple(versions),
        "best": select(versions, "highest_score").iteration if versions else None,
        "final": versions[-1].iteration if versions else None,
        "revisions": max(0, len(versions) - 1),
        "stop": stop_of(reason, versions, pattern),
    }
    known |= fields
    return RunRecord(**known | {"task": known["task"].plain()})


def kept(versions, reason=None, steps=(), **fields):
    """A kept run of these versions."""
    return StoredRun(record(versions, reason, **fields), tuple(steps))


def ran(*made, store=None, run_id="a-run", task="Say it.", **choices):
    """Run a loop whose n-th draft and score are given, keep it, and return it as it is read again.

    A score may be a pair of a number and a reason; an exception in place of a draft is raised.
    """
    waiting, scores = list(made), dict(one for one in made if not isinstance(one, Exception))

    async def generate(prompt, feedback=""):
        one = waiting.pop(0)
        if isinstance(one, Exception):
            raise one
        return Draft(one[0], CALL)

    async def main():
        kept_in = store or MemoryStore()
        pattern = ReflectionPattern(**{"retry": Retry(attempts=1), **choices})
        await reflect(task, generate=generate, evaluate=lambda output: scores[output], pattern=pattern,
                      step=Journalled(kept_in, run_id))  # fmt: skip
        runs = Runs(kept_in)
        return StoredRun(await runs.get(run_id), tuple(await runs.steps(run_id)))

    return asyncio.run(main())
