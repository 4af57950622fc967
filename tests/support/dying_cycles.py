"""Cycles whose processes die: `python -m support.dying_cycles NAME COUNT` prints how each process ended."""

import asyncio
import os
import signal
import sys

from redraft.cycles.agent import CycleAgent
from redraft.cycles.host import AgentHost
from redraft.cycles.spec import AgentSpec
from redraft.stores.sqlite import SqliteStore


def agent_named(name, function):
    """An agent that calls a function in its action or its source, and whose records are a file."""
    if name == "look":
        source = {"type": "function", "name": name, "config": {"function": name}}
        stages = {"sense": {"substages": [source]}}
    else:
        action = {"type": "function", "name": name, "function": name}
        execute = {"type": "execute", "name": "act", "config": {"actions": [action]}}
        stages = {"actuate": {"substages": [execute]}}
    spec = AgentSpec.model_validate({"name": name, "stages": stages})
    return CycleAgent(spec, functions={name: function}, storage=SqliteStore(f"{name}.db"))


def die():
    os._exit(7)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


async def linger():
    """Take longer than the grace of a container, which begins with a SIGTERM and ends with a SIGKILL."""
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.2)
    kill()


async def die_late():
    await asyncio.sleep(0.1)
    die()


async def work():
    await asyncio.sleep(0.3)
    os.close(os.open("worked", os.O_CREAT))


AGENTS = {
    "die": {"die": die},
    "look": {"look": die},
    "kill": {"kill": kill},
    "linger": {"linger": linger},
    "together": {"die_late": die_late, "work": work},
}

if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        if pid := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            continue
        asyncio.run(AgentHost([agent_named(*one) for one in AGENTS[sys.argv[1]].items()]).run(1))
        os._exit(0)
