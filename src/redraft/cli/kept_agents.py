"""The kept agents, as commands read and change them: whatever a command shows of them comes through here."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.core.errors import ConfigError
from redraft.cycles.agents import AgentView, agent_view, known_agents
from redraft.cycles.long_term import storage_of
from redraft.stores.place import project_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from redraft.cycles.agents import AgentSummary
    from redraft.cycles.feedback import Feedback, Verdict
    from redraft.cycles.memory import Memory, MemoryChange
    from redraft.cycles.record import CycleRecord

T = TypeVar("T")


def all_agents() -> list[AgentSummary]:
    """Read which agents there are, and how each stands."""
    return _reading(known_agents)


def one_agent(name: str, count: int) -> tuple[AgentSummary, list[CycleRecord]]:
    """Read how an agent stands, and its latest cycles, the newest first."""

    async def read(view: AgentView) -> tuple[AgentSummary, list[CycleRecord]]:
        return await view.summary(), await view.cycles(limit=count)

    return _viewing(name, read)


def read_memory(name: str, at: int | None) -> Memory:
    """Read what an agent remembers, now or after a cycle."""

    async def read(view: AgentView) -> Memory:
        return await (view.memory() if at is None else view.memory_at(at))

    return _viewing(name, read)


def changed_memory(name: str, older: int, newer: int) -> tuple[MemoryChange, ...]:
    """Read what changed of an agent's memory between two cycles."""

    async def read(view: AgentView) -> tuple[MemoryChange, ...]:
        return await view.diff(older, newer)

    return _viewing(name, read)


def leave_feedback(
    name: str,
    verdict: Verdict,
    message: str,
    *,
    cycle: int | None,
    action: str | None,
    changes: Mapping[str, Any] | None,
    by: str,
) -> Feedback:
    """Leave feedback for an agent; return it as it may be shown."""

    async def leave(view: AgentView) -> Feedback:
        return await view.send_feedback(verdict, message, cycle=cycle, action=action, changes=changes, by=by)

    from redraft.redact.environment import redactor_of_environment

    return redactor_of_environment().redact_object(_viewing(name, leave))


def prune_agent(name: str, cycles: int) -> dict[str, int]:
    """Delete what is beyond so many cycles; return how much of what."""

    async def prune(view: AgentView) -> dict[str, int]:
        return await view.prune(cycles)

    return _viewing(name, prune)


def changes_given(text: str) -> dict[str, Any]:
    """Return the parameters of a `modify`; raises `ConfigError` for what is no JSON object."""
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--modify takes a JSON object such as '{{\"level\": 2}}': {error}.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"--modify takes a JSON object such as '{{\"level\": 2}}', got {text!r}.")
    return found  # pyright: ignore[reportUnknownVariableType] (as JSON has it)


def _viewing(name: str, read: Callable[[AgentView], Awaitable[T]]) -> T:
    async def viewing() -> T:
        view = await agent_view(name)
        try:
            return await read(view)
        finally:
            await view.aclose()

    return _reading(viewing)


def _reading(read: Callable[[], Awaitable[T]]) -> T:
    storage = storage_of("default")
    if storage is None and project_store() is None:
        raise ConfigError("The setting `home` (REDRAFT_HOME) is empty, so no agents are kept here.")

    async def reading() -> T:
        try:
            return await read()
        finally:
            if (store := project_store()) is not None:
                await store.aclose()
            if storage is not None:
                await storage.aclose()

    return asyncio.run(reading())
