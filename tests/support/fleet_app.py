"""The fleet that the workers of `support.fleet_load` run: six model calls a run, each written into a log.

With `FLEET_PROVIDER`, each call first asks the provider at that URL, which may refuse it. The call of an item
whose name begins with `item-kill` kills its process.
"""

import asyncio
import os
import re
import signal
import time
from functools import cache

from redraft import Agent, ModelError, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.fleet import Fleet, Limit
from redraft.protocols import ChatReply
from redraft.types import TokenUsage

VERSIONS = int(os.environ.get("FLEET_VERSIONS", "6"))
LATENCY = float(os.environ.get("FLEET_LATENCY", "0.05"))
PROVIDER = os.environ.get("FLEET_PROVIDER", "")
os.environ["PGAPPNAME"] = str(os.getpid())  # by which the log of written rows knows this worker
COST = float(os.environ.get("FLEET_COST", "0"))
BUDGET = float(os.environ.get("FLEET_BUDGET", "0")) or None
_log = os.open(os.environ["FLEET_LOG"], os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)


def note(*parts):
    """Append a line to the log, whole, whatever happens to the process."""
    os.write(_log, (" ".join(map(str, (time.time(), os.getpid(), *parts))) + "\n").encode())


@cache
def _provider():
    import httpx2 as httpx

    return httpx.AsyncClient(verify=False, timeout=60)


async def answer(request):
    text = "\n".join(message.content for message in request.messages)
    item = re.search(r"(?:item-|order )\w+", text).group().replace(" ", "-")
    number = max((int(found) for found in re.findall(r"draft (\d+) of", text)), default=0) + 1
    if PROVIDER:
        reply = await _provider().get(f"{PROVIDER}/{item}")
        if reply.status_code == 429:
            wait = reply.headers.get("retry-after")
            raise ModelError("Slow down.", status=429, retryable=True, retry_after=wait and float(wait))
    note("call", item, number)
    await asyncio.sleep(LATENCY)
    if item.startswith("item-kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if not COST:
        return f"draft {number} of {item}"
    usage = TokenUsage(input_tokens=40, output_tokens=10, requests=1, cost_usd=COST)
    return ChatReply(f"draft {number} of {item}", usage=usage)


def score(text):
    number = int(re.search(r"draft (\d+)", text).group(1))
    return number / VERSIONS, f"This is draft {number}; go on."


clerk = Agent(
    ScriptedModel(answer),
    pattern=ReflectionPattern(
        max_iterations=VERSIONS - 1,
        quality_threshold=0.99,
        revision_strategy="full_rewrite",
        plateau_iterations=50,
        improvement_threshold=0.0,
        quality_criteria=[QualityCriterion("n", evaluator="function", evaluator_config={"function": score})],
    ),
    name="clerk",
)
LIMIT = float(os.environ.get("FLEET_LIMIT", "0"))
fleet = Fleet(
    [clerk],
    limits=[Limit("ScriptedModel", requests_per_minute=LIMIT)] if LIMIT else [],
    budget_usd_per_day=BUDGET,
    budget_zone=os.environ.get("FLEET_ZONE", "UTC"),
    version="load",
    pick_up_after=float(os.environ.get("FLEET_PICK_UP", "4")),
)
