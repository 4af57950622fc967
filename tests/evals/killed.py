"""An evaluation or an optimization whose process is killed: `killed.py evaluate|optimize FOLDER CALLS`.

0 calls lets it live. Each call of the model is in a log from its end on, by its role and what was asked.
"""

import asyncio
import os
import signal
import sys
from hashlib import sha256
from pathlib import Path

from redraft import Agent, EvalCase, Evaluation, QualityCriterion, ReflectionPattern, TokenUsage
from redraft.evals import Optimization
from redraft.protocols import ChatReply
from redraft.stores.sqlite import SqliteStore
from redraft.types import PlainTask

CLEAR = QualityCriterion("clear", "Is it clear?")
SHORT = QualityCriterion("short", evaluator="regex", evaluator_config={"pattern": "revised"})
DIGITS = QualityCriterion("digits", evaluator="regex", evaluator_config={"pattern": r"\d"})
VERDICT = (
    '{"criteria": {"clear": {"reason": "so", "score": 1}}, "issues": [], "suggestions": [], "confidence": 1}'
)
PROPOSALS = ["You are a clerk. Be brief.", "You are a clerk. Be kind.", "You are a clerk. Use digits."]


class Model:
    """A model that replies by `reply(role, text)`, and whose process dies after some calls."""

    def __init__(self, folder, calls, reply):
        self.log = folder / "calls.log"
        self.log.touch()
        self.calls, self.left, self.reply = calls, calls, reply

    async def __call__(self, request):
        await asyncio.sleep(0.001)
        # Killed before the next call is paid for: all that ended before is recorded by then.
        if self.calls and not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        asked = "\n".join(message.content for message in request.messages)
        text = self.reply(request.role, asked)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{request.role} {sha256(asked.encode()).hexdigest()}\n")
        return ChatReply(text, usage=TokenUsage(5, 5, requests=1))

    def count(self, role):
        """Return how many calls in a role have ended, in all processes."""
        return self.log.read_text("utf-8").count(role)


async def evaluate(folder, calls, store):
    """Evaluate six cases; a judge grades, so that grading is paid for, too."""
    replies = {"generation": "draft", "revision": "revised", "evaluation": VERDICT}
    model = Model(folder, calls, lambda role, asked: replies[role])
    cases = [EvalCase(f"c{n}", PlainTask(f"Task {n}."), (SHORT,), (CLEAR,)) for n in range(6)]
    agent = Agent(model, pattern=ReflectionPattern(2), keep=False, name="w")
    report = await Evaluation(cases, agent, at_once=1, model=model, store=store, run_id="e").run()
    print(len(report.tries), report.figures[0].mean_passed, report.usage.requests)


async def optimize(folder, calls, store):
    """Optimize the system prompt of a clerk, for which there are three proposals."""

    def reply(role, asked):
        if role == "reflection":
            return f"```\n{PROPOSALS[model.count(role)]}\n```"
        return "2 teas" if "Use digits" in asked else "two teas"

    model = Model(folder, calls, reply)
    cases = [EvalCase(f"c{n}", PlainTask(f"Order {'I' * n} teas."), (DIGITS,)) for n in range(1, 21)]
    pattern = ReflectionPattern(0)
    clerk = Agent(model, system_prompt="You are a clerk.", pattern=pattern, keep=False, name="clerk")
    report = await Optimization(
        cases, clerk, parts=["system_prompt"], at_once=1, store=store, run_id="o"
    ).run()
    print(report.accepted, report.tries, report.proposals, report.usage.requests)


async def main(what, folder, calls):
    store = SqliteStore(folder / "redraft.db")
    await {"evaluate": evaluate, "optimize": optimize}[what](folder, calls, store)
    await store.aclose()


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
