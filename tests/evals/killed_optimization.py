"""An optimization in a process that is killed: `killed_optimization.py FOLDER CALLS`; 0 calls lets it live.

Each call of the model is in a log from its end on, by its role and what was asked.
"""

import asyncio
import os
import signal
import sys
from hashlib import sha256
from pathlib import Path

from redraft import Agent, QualityCriterion, ReflectionPattern
from redraft.evals import EvalCase, Optimization
from redraft.protocols import ChatReply
from redraft.stores.sqlite import SqliteStore
from redraft.types import PlainTask, TokenUsage

DIGITS = QualityCriterion("digits", evaluator="regex", evaluator_config={"pattern": r"\d"})
PROPOSALS = ["You are a clerk. Be brief.", "You are a clerk. Be kind.", "You are a clerk. Use digits."]


async def main(folder, calls):
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
        asked = "\n".join(message.content for message in request.messages)
        proposed = (folder / "calls.log").read_text("utf-8").count("reflection")
        os.write(log, f"{request.role} {sha256(asked.encode()).hexdigest()}\n".encode())
        if request.role == "reflection":
            text = f"```\n{PROPOSALS[proposed]}\n```"
        else:
            text = "2 teas" if "Use digits" in asked else "two teas"
        return ChatReply(text, usage=TokenUsage(5, 5, requests=1))

    cases = [EvalCase(f"c{n}", PlainTask(f"Order {'I' * n} teas."), (DIGITS,)) for n in range(1, 21)]
    pattern = ReflectionPattern(0)
    clerk = Agent(model, system_prompt="You are a clerk.", pattern=pattern, keep=False, name="clerk")
    report = await Optimization(
        cases, clerk, parts=["system_prompt"], at_once=1, store=store, run_id="o"
    ).run()
    await store.aclose()
    print(report.accepted, report.tries, report.proposals, report.usage.requests)


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
