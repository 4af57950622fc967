"""An evaluation whose process is killed: `killed.py FOLDER CALLS`.

0 calls lets it live. Each call of the model is in a log from its end on, by its role and what was asked.
"""

import asyncio
import os
import signal
import sys
from hashlib import sha256
from pathlib import Path

from redraft import Agent, EvalCase, Evaluation, QualityCriterion, ReflectionPattern, TokenUsage
from redraft.protocols import ChatReply
from redraft.stores.sqlite import SqliteStore
from redraft.types import PlainTask

CLEAR = QualityCriterion("clear", "Is it clear?")
SHORT = QualityCriterion("short", evaluator="regex", evaluator_config={"pattern": "revised"})
VERDICT = (
    '{"criteria": {"clear": {"reason": "so", "score": 1}}, "issues": [], "suggestions": [], "confidence": 1}'
)


class Model:
    """A model that has a reply for each role, and whose process dies after some calls."""

    def __init__(self, folder, calls, replies):
        self.log = folder / "calls.log"
        self.log.touch()
        self.calls, self.left, self.replies = calls, calls, replies

    async def __call__(self, request):
        await asyncio.sleep(0.001)
        # Killed before the next call is paid for: all that ended before is recorded by then.
        if self.calls and not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        asked = "\n".join(message.content for message in request.messages)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{request.role} {sha256(asked.encode()).hexdigest()}\n")
        return ChatReply(self.replies[request.role], usage=TokenUsage(5, 5, requests=1))


async def evaluate(folder, calls, store):
    """Evaluate six cases; a judge grades, so that grading is paid for, too."""
    replies = {"generation": "draft", "revision": "revised", "evaluation": VERDICT}
    model = Model(folder, calls, replies)
    cases = [EvalCase(f"c{n}", PlainTask(f"Task {n}."), (SHORT,), (CLEAR,)) for n in range(6)]
    agent = Agent(model, pattern=ReflectionPattern(2), keep=False, name="w")
    report = await Evaluation(cases, agent, at_once=1, model=model, store=store, run_id="e").run()
    print(len(report.tries), report.figures[0].mean_passed, report.usage.requests)


async def main(folder, calls):
    store = SqliteStore(folder / "redraft.db")
    await evaluate(folder, calls, store)
    await store.aclose()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
