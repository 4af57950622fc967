"""An evaluation in a process that is killed: `killed.py FOLDER CALLS CASES`; 0 calls lets it live.

Each call of the model is in a log from its end on; a judge grades, so that grading is paid for, too.
"""

import asyncio
import os
import signal
import sys
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


async def main(folder, calls, count):
    store = SqliteStore(folder / "redraft.db")
    log = os.open(folder / "calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    left = calls

    async def model(request):
        nonlocal left
        await asyncio.sleep(0.001)
        # Killed before the next call is paid for: all that ended before is recorded by then.
        if calls and not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        os.write(log, f"{request.role}\n".encode())
        if request.role == "evaluation":
            return ChatReply(VERDICT, usage=TokenUsage(5, 5, requests=1))
        return ChatReply(
            "draft" if request.role == "generation" else "revised", usage=TokenUsage(5, 5, requests=1)
        )

    cases = [EvalCase(f"c{n}", PlainTask(f"Task {n}."), (SHORT,), (CLEAR,)) for n in range(count)]
    agent = Agent(model, pattern=ReflectionPattern(2), keep=False, name="w")
    evaluation = Evaluation(cases, agent, at_once=1, model=model, store=store, run_id="e")
    report = await evaluation.run()
    await store.aclose()
    print(len(report.tries), report.figures[0].mean_passed, report.usage.requests)


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
