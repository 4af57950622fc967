"""Web: the dashboard's pages on agents, their cycles and their memory, and the form for feedback."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import date
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text
from redraft.cycles.agents import (
    UNDER_WAY,
    AgentHandle,
    Agents,
    AgentSummary,
    agent_document,
    change_document,
    changed_fields,
    cycle_document,
    details_of,
    duration_text,
    memory_document,
    metrics_document,
    parse_changes,
    spent_text,
    title_field,
    total,
    trace_document,
    value_text,
)
from redraft.cycles.mail import VERDICTS
from redraft.cycles.memory import Memory
from redraft.cycles.records import UNFINISHED, CycleRecord, as_object, is_id, objects_in, values_in
from redraft.errors import ConfigError, DamagedRecordError
from redraft.stores.run_index import Totals
from redraft.web.charts import Bars, bars
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.people import who_decides
from redraft.web.rendering import cost, count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redraft.cycles.memory import Item
    from redraft.cycles.records import CycleMetrics
    from redraft.web.project import Project


PAGE_SIZE = 50
"""Cycles on one page."""
MAX_ITEMS = 20
"""The number of the newest items of a memory key that are shown."""
MAX_CHANGES = 200
"""The number of memory changes that are shown."""
MAX_BETWEEN = 200
"""The maximum number of cycles between two memories to search for deprecated patterns."""
MAX_TEXT = 240
"""The maximum length of a text of a memory item, in characters."""


# --- the agents -----------------------------------------------------------------------------------------


async def agents(request: PageRequest) -> dict[str, Any]:
    """All agents, sorted by name, each with the cycle that waits for a person."""
    agent_list = request.project.shared(AgentList.of)
    spend = await agent_list.spend()
    summaries = [
        (replace(agent, last=_without_details(agent.last)), total(spend.get(agent.name, {})))
        for agent in await agent_list.all()
    ]
    redacted = await request.project.redacted(summaries, full=request.full)
    return {"agents": [agent_document(agent, spent) for agent, spent in redacted]}


def _without_details(cycle: CycleRecord | None) -> CycleRecord | None:
    """A cycle for the list: without its data, unless it waits for a person."""
    if cycle is None:
        return None
    if cycle.status == "waiting":
        return without_keys(cycle)
    return replace(cycle, derived_data={}, changes=(), sense_errors=())


async def _agents_fingerprint(request: PageRequest) -> str:
    """A text that changes with the list."""
    agents = await request.project.shared(AgentList.of).all()
    return "; ".join(f"{agent.name} {_progress(agent)}" for agent in agents)


def _progress(agent: AgentSummary) -> str:
    return f"{agent.status} {agent.last.number if agent.last else 0} {agent.pending}"


FRESH = 0.5
"""Seconds for which the summaries of all agents are cached."""
BUSY_SHARE = 0.05
"""The share of time that reading the summaries may take, so a long list is read less often."""
MAX_OPEN_STORES = 100
"""The number of stores that stay open between two readings: each has a thread and a file."""


@dataclass(slots=True)
class AgentList:
    """All agents and their spend, shared by all pages, and read no more often than is affordable."""

    _summaries: tuple[AgentSummary, ...] = ()
    _spend: dict[str, dict[date, Totals]] = field(default_factory=dict[str, dict[date, Totals]])
    _expires_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, _project: Project) -> AgentList:
        """The agents of a project."""
        return cls()

    async def all(self) -> tuple[AgentSummary, ...]:
        """All agents, sorted by name. Raises `StoreError` if an agent can't be read."""
        await self._read()
        return self._summaries

    async def spend(self) -> dict[str, dict[date, Totals]]:
        """The spend of each agent, by name and day. Raises `StoreError` if an agent can't be read."""
        await self._read()
        return self._spend

    def expire(self) -> None:
        """Read the agents again on next use."""
        self._expires_at = float("-inf")

    async def _read(self) -> None:
        async with self._lock:
            if (began := monotonic()) < self._expires_at:
                return
            summaries: list[AgentSummary] = []
            spend: dict[str, dict[date, Totals]] = {}
            for number, handle in enumerate(await Agents().handles()):
                summaries.append(await handle.summary())
                spend[handle.name] = await handle.spend()
                if number >= MAX_OPEN_STORES:
                    await handle.aclose()
            self._summaries, self._spend = tuple(summaries), spend
            now = monotonic()
            self._expires_at = now + max(FRESH, (now - began) / BUSY_SHARE)


# --- one agent ------------------------------------------------------------------------------------------


async def agent(request: PageRequest) -> dict[str, Any]:
    """An agent with its newest cycles, the details of a single cycle, and its memory.

    The query may have `before` (the cycles before that number), `cycle` (the cycle to show in detail), and
    `from` and `to` (the cycles between whose ends the memory changed). `older` is the number of the last
    listed cycle if there are more, and `sizes` the number of items under each memory key, of which a page
    shows the newest.
    """
    handle = await _handle(request.path["name"])
    summary = await handle.summary()
    try:
        memory, damage = await handle.memory(), ""
    except DamagedRecordError as error:  # the cycles can still be shown
        memory, damage = Memory(), str(error)
    before = _number("before", request.query.get("before", ""))
    cycles = await handle.cycles(before=before, limit=PAGE_SIZE + 1)
    chosen = await _chosen(handle, request) or summary.last
    diff = _unknown(0, 0, damage) if damage else await _diff(handle, request, memory, chosen)
    newest: dict[str, Sequence[Item]] = {key: list(items)[-MAX_ITEMS:] for key, items in memory.items.items()}
    shown_agent, listed, details, shown_memory, diff, trace = await request.project.redacted(
        (
            replace(summary, last=None if summary.last is None else without_keys(summary.last)),
            [replace(cycle, derived_data={}, sense_errors=()) for cycle in cycles[:PAGE_SIZE]],
            None if chosen is None else without_keys(chosen),
            memory if request.full else replace(memory, items=newest),
            diff,
            None if chosen is None else await handle.trace(chosen.number),
        ),
        full=request.full,
    )
    return {
        **agent_document(shown_agent, await handle.spent()),
        "feedback": shown_agent.feedback,
        "cycles": [metrics_document(cycle) for cycle in listed],
        "older": cycles[PAGE_SIZE - 1].number if len(cycles) > PAGE_SIZE else None,
        "cycle": None if details is None else cycle_document(details, shown_agent.feedback),
        "trace": None if trace is None else trace_document(trace),
        "memory": memory_document(shown_memory),
        "sizes": {key: len(items) for key, items in memory.items.items()},
        "diff": diff and {**diff, "changes": [change_document(change) for change in diff["changes"]]},
    }


async def _handle(name: str) -> AgentHandle:
    try:
        return await Agents().get(name)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


async def _chosen(handle: AgentHandle, request: PageRequest) -> CycleRecord | None:
    name = request.query.get("cycle", "").strip()
    if not name:
        return None
    number = None if is_id(name) else _number("cycle", name)
    try:
        return await handle.cycle(name if number is None else number)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


def _unknown(older: int, newer: int, why: str) -> dict[str, Any]:
    return {"from": older, "to": newer, "changes": [], "more": 0, "retired": [], "unknown": why}


async def _diff(
    handle: AgentHandle, request: PageRequest, memory: Memory, chosen: CycleRecord | None
) -> dict[str, Any] | None:
    """The changes of the memory between the two cycles in the query, by default in the chosen cycle.

    `retired` has the ids and descriptions of the patterns that `learn` deprecated in between; retention
    dropped the other removed items. It is None if a cycle in between is not stored. `more` is the number of
    changes left out. `unknown` is the reason if the changes are unknown.
    """
    if chosen is None or memory.cycle == 0:
        return None
    newer = _number("to", request.query.get("to", ""))
    newer = min(chosen.number, memory.cycle) if newer is None else newer
    older = _number("from", request.query.get("from", ""))
    older = max(0, newer - 1) if older is None else older
    is_chosen = (older, newer) == (chosen.number - 1, chosen.number)
    try:
        changes = chosen.changes if is_chosen else await handle.diff(older, newer)
    except (ConfigError, DamagedRecordError) as error:
        return _unknown(older, newer, str(error))
    between = [chosen] if is_chosen else await _between(handle, older, newer)
    retired = [name for cycle in between for name in deprecated(cycle)]
    limit = len(changes) if request.full else MAX_CHANGES
    return {
        "from": older,
        "to": newer,
        "changes": changes[:limit],
        "more": max(0, len(changes) - limit),
        "retired": retired if len(between) >= newer - older else None,
        "unknown": None,
    }


async def _between(handle: AgentHandle, older: int, newer: int) -> list[CycleRecord]:
    """The cycles after `older`, up to `newer`; empty if they are too many, or were deleted."""
    if not 0 < newer - older <= MAX_BETWEEN:
        return []
    newest = await handle.cycles(limit=1)
    try:
        before = None if newest[0].number <= newer else newer + 1
        cycles = await handle.cycles(before=before, limit=newer - older + 1)
    except ConfigError:
        return []
    return [cycle for cycle in cycles if older < cycle.number <= newer]


MAX_DIGITS = 10


def _number(name: str, value: str) -> int | None:
    """Parse the number of a cycle; None for an empty text. Raises `ConfigError` for any other text."""
    text = value.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise ConfigError(f"{name} must be the number of a cycle, got {value!r}.")
    return int(text)


async def _agent_fingerprint(request: PageRequest) -> str:
    """A text that changes with the agent's cycles, status and pending feedback."""
    return _progress(await (await _handle(request.path["name"])).summary())


def trends(cycles: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each metric of the finished cycles: its name, the flag that tracks it, a summary and a chart.

    The chart is None for a metric without values.
    """
    finished = [cycle for cycle in reversed(cycles) if cycle["status"] not in UNFINISHED]
    drawn: tuple[tuple[str, str, Callable[[CycleMetrics], float | None], Callable[[float], str]], ...] = (
        ("Duration", "trackCycleDuration", lambda metrics: metrics.duration_ms, duration_text),
        ("Tokens", "trackLLMTokens", lambda metrics: metrics.tokens, _whole),
        ("Cost", "trackCost", lambda metrics: metrics.cost_usd, cost),
        ("Anomalies", "trackAnomalyCount", lambda metrics: metrics.anomalies, _whole),
        ("Alerts", "trackAlertCount", lambda metrics: metrics.alerts, _whole),
        ("Failures", "", lambda metrics: len(metrics.failures), _whole),
    )
    names = [f"cycle {cycle['number']}" for cycle in finished]
    rows: list[dict[str, Any]] = []
    for name, flag, value, text in drawn:
        values = [value(cycle["metrics"]) for cycle in finished]
        chart: Bars | None = bars(names, values, text)
        rows.append({"name": name, "flag": flag, "summary": _summary(values, text), "chart": chart})
    return rows


def _whole(value: float) -> str:
    return count(round(value))


def _summary(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    tracked = [value for value in values if value is not None]
    if not tracked:
        return ""
    return f"last {text(tracked[-1])}, median {text(median(tracked))}, max {text(max(tracked))}"


# --- one cycle: data of an unexpected shape, from the agent's functions and models, is ignored -------------


def anomalies(derived: Mapping[str, Any]) -> list[str]:
    """The messages of a cycle's anomalies."""
    return [
        as_text(anomaly.get("message") or anomaly.get("description") or anomaly, None)
        for anomaly in objects_in(derived, "analysis", "anomalies")
    ]


def decision(derived: Mapping[str, Any]) -> str:
    """The decision on the plan and its author; empty for an autonomous agent."""
    authority = as_object(as_object(derived.get("governance")).get("authority"))
    if not authority or authority.get("mode") == "autonomous":
        return ""
    text = f"{authority.get('decision')} by {authority.get('by') or 'an unnamed person'}"
    if authority.get("proof"):
        text += f" (proved by the token {authority['proof']})"
    if authority.get("decision") == "default":
        text = "by its default"
    return f"{text}: {authority['message']}" if authority.get("message") else text


def violations(derived: Mapping[str, Any]) -> list[str]:
    """The violated constraints, each as a sentence."""
    return [
        f"{violation.get('constraint')}{f' ({action})' if (action := violation.get('action')) else ''}: "
        f"{violation.get('message')}{'' if violation.get('blocked') else ', recorded only'}"
        for violation in objects_in(derived, "governance", "violations")
    ]


def without_keys(record: CycleRecord) -> CycleRecord:
    """A cycle without the idempotency keys of its actions, which look like secrets."""
    execution = as_object(record.derived_data.get("execution"))
    bare = [
        {name: value for name, value in action.items() if name != "idempotencyKey"}
        for action in objects_in(record.derived_data, "execution", "actions")
    ]
    if not bare:
        return record
    return replace(record, derived_data={**record.derived_data, "execution": {**execution, "actions": bare}})


def deprecated(record: CycleRecord) -> Iterator[str]:
    """The ids and descriptions of the patterns that a cycle's `learn` deprecated."""
    for pattern in values_in(record.derived_data, "learnings", "deprecatedPatterns"):
        fields = as_object(pattern)
        name = fields.get("id") or fields.get("description") if fields else pattern
        if isinstance(name, str):
            yield name.strip()


def gone(item: Item, retired: Sequence[str] | None) -> str:
    """Why an item was removed: `retired` patterns were deprecated, retention dropped the other items."""
    if retired is None:
        return "gone"
    return "retired" if item.get("id") in retired or item.get("description") in retired else "dropped"


def short(value: Any) -> str:
    """A value of a memory item, on one line."""
    return value_text(value, MAX_TEXT)


# --- feedback ---------------------------------------------------------------------------------


async def _give_feedback(form: Form) -> str:
    """Send a person's feedback on a cycle, on one of its actions, or in general.

    General feedback is rejected while a plan waits, since it would decide on that plan.
    """
    verdict, action = form.text("verdict", ""), form.text("action", "").strip() or None
    if verdict not in VERDICTS:
        raise ConfigError(f"verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}.")
    number = _number("cycle", form.text("cycle", ""))
    changes = parse_changes(form.text("changes", ""), "The parameters") if verdict == "modify" else None
    message, by = form.text("message", ""), await who_decides(form)
    handle = await _handle(form.path["name"])
    summary = await handle.summary()
    last = summary.last
    if last is not None and last.status == "waiting" and number is None:
        raise ConfigError(f"Cycle {last.number} is waiting for a decision; decide on that cycle first.")
    if number is not None:
        await handle.cycle(number)  # raises if it does not exist
    try:
        await handle.send_feedback(verdict, message, cycle=number, action=action, changes=changes, by=by)
    finally:
        form.project.shared(AgentList.of).expire()
    effect = "its next cycle takes it into account"
    if last is not None and last.number == number and last.status in UNDER_WAY:
        effect = (
            "it takes effect when the agent runs again" if summary.status == "killed" else "the cycle uses it"
        )
    about = f"{'' if action is None else f' of {action}'}{'' if number is None else f' in cycle {number}'}"
    return f"Sent to {handle.name}: {verdict}{about}; {effect}."


PATH = "/agents/{name:path}"
FUNCTIONS = {
    "anomalies": anomalies,
    "changed_fields": changed_fields,
    "decision": decision,
    "details_of": details_of,
    "duration": duration_text,
    "gone": gone,
    "short": short,
    "spent_text": spent_text,
    "title_field": title_field,
    "trends": trends,
    "violations": violations,
}
SLICE = Slice(
    pages=(
        Page(
            "/agents",
            "cycles/templates/agents.html",
            agents,
            functions=FUNCTIONS,
            fingerprint=_agents_fingerprint,
        ),
        Page(
            PATH,
            "cycles/templates/agent.html",
            agent,
            functions=FUNCTIONS,
            fingerprint=_agent_fingerprint,
        ),
    ),
    changes=(Change(f"{PATH}/feedback", _give_feedback),),
)
