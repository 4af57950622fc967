"""Host: run several agents in one process, reachable over HTTP for webhooks and supervisors."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft._hints import keyword_hints
from redraft._validation import check_kind, check_list
from redraft.cycles.agent import CycleAgent
from redraft.cycles.cycle import error_line
from redraft.cycles.spec import WebhookTrigger
from redraft.cycles.webhook import secret_key
from redraft.errors import ConfigError, MissingExtraError
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from redraft.cycles.endpoint import Endpoint

Hook: TypeAlias = tuple[str, str]
"""The name of an agent, and the topic of one of its webhooks."""


@keyword_hints()
class AgentHost:
    """Run agents in one process: each on its own triggers, all until SIGTERM, SIGINT or SIGHUP.

    If an agent fails permanently, for example because another process has taken it over, the other agents go
    on, and `health` reports it. `app` is an ASGI application with the agents' webhooks and `/health`: `run`
    can serve it, or mount it in a server of your own.

    Raises `ConfigError` for two agents of the same name.
    """

    def __init__(self, agents: Sequence[CycleAgent]) -> None:
        check_list("agents", agents)
        for agent in agents:
            check_kind("Each of the agents", agent, CycleAgent, "a CycleAgent")
        self.agents: dict[str, CycleAgent] = {agent.name: agent for agent in agents}
        if len(self.agents) < len(agents):
            names = [agent.name for agent in agents]
            duplicate = next(name for at, name in enumerate(names) if name in names[:at])
            raise ConfigError(
                f"There are two agents named {duplicate!r}; agents that run in one process need different "
                "names."
            )
        self.hooks: dict[Hook, WebhookTrigger] = {
            (agent.name, trigger.topic): trigger
            for agent in agents
            for trigger in agent.spec.triggers
            if isinstance(trigger, WebhookTrigger)
        }
        self._ended: dict[str, str] = {}

    async def run(
        self,
        cycles: int | None = None,
        *,
        immediately: bool = False,
        listen: str | None = None,
        on_listening: Callable[[str], None] | None = None,
    ) -> None:
        """Run all agents as `CycleAgent.run_forever` does, and close them when the last one has ended.

        Without `cycles`, an agent with only manual triggers runs once.

        `listen` is the address to serve `app` at, as `HOST:PORT` (port 0: any free port); `on_listening` is
        called with its URL. Raises `ConfigError` for an address that can't be used and `LeaseError` if
        another process runs any of the agents, both before any cycle; otherwise the first error of an agent,
        when all have ended.
        """
        async with AsyncExitStack() as stack:
            for agent in self.agents.values():
                await stack.enter_async_context(agent)
            if listen is not None:  # started last and stopped first: a request must not reopen an agent
                url = await stack.enter_async_context(self._serving(listen))
                if on_listening is not None:
                    on_listening(url)
            running = (self._run(agent, cycles, immediately=immediately) for agent in self.agents.values())
            outcomes = await asyncio.gather(*running, return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome

    def app(self) -> Endpoint:
        """The ASGI application: `POST /hooks/AGENT/TOPIC`, `GET /health`.

        The agents must run, or at least be open, in the event loop that serves it. Raises `ConfigError` for a
        webhook whose secret is not set or too short.
        """
        try:
            from redraft.cycles.endpoint import Endpoint  # noqa: PLC0415 (loaded only to listen)
        except ImportError as error:
            raise MissingExtraError("Listening for webhooks", "cycles") from error

        keys = {hook: _key(trigger, hook[0]) for hook, trigger in self.hooks.items()}
        return Endpoint(self.agents, keys, self.health)

    def health(self) -> dict[str, Any]:
        """The state of the agents, as plain data; `ok` is false if any has failed.

        `state` is `running`, `waiting` (for a person to decide on a plan), `failing` (a failure in each of
        the last `failed_cycles` cycles), `ended` (it has run all its cycles, or was stopped) or `failed` (it
        runs no more). Only `failed` makes `ok` false, since a new process fixes no other state. `storage` is
        `away` during an outage, which agents survive. Errors are in the log.
        """
        agents = [self._health_of(agent) for agent in self.agents.values()]
        return {"ok": all(agent["state"] != "failed" for agent in agents), "agents": agents}

    def _health_of(self, agent: CycleAgent) -> dict[str, Any]:
        latest = agent.latest
        if latest is not None and latest.status == "waiting":
            state = "waiting"
        else:
            state = "failing" if agent.failed_cycles else "running"
        return {
            "name": agent.name,
            "state": self._ended.get(agent.name, state),
            "failed_cycles": agent.failed_cycles,
            "storage": "away" if agent.is_storage_away else "ok",
            "cycle": None
            if latest is None
            else {
                "number": latest.number,
                "status": latest.status,
                "started_at": latest.started_at.isoformat(),
                "finished_at": None if latest.finished_at is None else latest.finished_at.isoformat(),
                "waits_until": None if latest.waits_until is None else latest.waits_until.isoformat(),
            },
        }

    async def _run(self, agent: CycleAgent, cycles: int | None, *, immediately: bool) -> None:
        cycles = 1 if cycles is None and agent.is_manual else cycles
        try:
            await agent.run_forever(cycles, immediately=immediately)
        except Exception as error:
            self._ended[agent.name] = "failed"
            if len(self.agents) > 1:  # the error of a single agent is raised immediately
                logger.error("The agent %r has failed: %s", agent.name, error_line(error))  # noqa: TRY400 (it is raised in the end)
            raise
        self._ended[agent.name] = "ended"

    @asynccontextmanager
    async def _serving(self, listen: str) -> AsyncGenerator[str]:
        """Serve the application while the block runs; yield its URL."""
        app = self.app()
        from redraft.web.server import serving  # noqa: PLC0415 (as above)

        async with serving(app, listen) as address:
            app.address = address
            yield address.url


def _key(trigger: WebhookTrigger, agent: str) -> bytes:
    secret = os.environ.get(trigger.secret)
    if secret is None:
        raise ConfigError(
            f"The environment variable {trigger.secret!r} is not set. It is the secret of the webhook "
            f"{trigger.topic!r} of the agent {agent!r}; `openssl rand -hex 32` makes one."
        )
    return secret_key(secret, trigger.secret)
