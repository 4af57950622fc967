"""Web: the dashboard's pages on agents, with their cycles and memory, and feedback to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft._texts import shortened
from redraft.cycles.agents import (
    HIDDEN_FIELDS,
    TITLE_FIELDS,
    UNDER_WAY,
    AgentHandle,
    Agents,
    AgentSummary,
    CycleTrace,
    change_document,
    cycle_document,
    duration_text,
    memory_document,
    metrics_document,
    parse_changes,
    spent_document,
    spent_text,
    summary_document,
    total,
    trace_document,
)
from redraft.cycles.mail import DECISIONS, VERDICTS, Feedback
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.records import UNFINISHED, CycleRecord, as_object, is_id, objects_in, values_in
from redraft.errors import ConfigError, DamagedRecordError
from redraft.loop.runs import Exchange
from redraft.stores.run_index import Totals
from redraft.web.charts import Bars, bars
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.people import who_decides
from redraft.web.rendering import cost, count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from redraft.cycles.memory import Item
    from redraft.cycles.records import CycleMetrics
    from redraft.web.project import Project


PAGE_SIZE = 50
"""Cycles on one page."""
MAX_ITEMS = 20
"""Items of a memory key that are shown: the newest."""
MAX_CHANGES = 200
"""Changes of the memory that are shown."""
MAX_BETWEEN = 200
"""How many cycles between two memories are searched for the patterns that they deprecated."""
MAX_TEXT = 240
"""Characters of a memory item's texts that are shown."""
NOT_TRACKED = "-"


# --- the agents -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentsView:
    """The agents, sorted by name, and the cycles that wait for a person, each with its agent.

    `pending` is, for each agent whose cycle waits for a person, the feedback that the cycle will take.
    `spent` is what all stored cycles of each agent used.
    """

    agents: tuple[AgentSummary, ...]
    pending: tuple[tuple[Feedback, ...], ...]
    spent: tuple[Totals, ...]
    waiting: tuple[tuple[AgentSummary, CycleView], ...] = ()
    rows: tuple[tuple[AgentSummary, str], ...] = ()


async def agents(request: PageRequest) -> AgentsView:
    """Read all agents."""
    found = await request.project.shared(AgentList.of).all()
    pending: list[tuple[Feedback, ...]] = []
    for one in found:
        is_waiting = one.last is not None and one.last.status == "waiting" and one.pending
        handle = await _handle(one.name) if is_waiting else None
        pending.append(() if handle is None else tuple(await handle.pending()))
    listed = tuple(replace(one, last=_listed(one.last)) for one in found)
    spend = await request.project.shared(AgentList.of).spend()
    spent = tuple(total(spend.get(one.name, {})) for one in found)
    return await request.project.redacted(AgentsView(listed, tuple(pending), spent), full=request.full)


def _listed(cycle: CycleRecord | None) -> CycleRecord | None:
    """Return a cycle as the list shows it: only the metrics, unless it waits for a person."""
    if cycle is None:
        return None
    if cycle.status == "waiting":
        return without_keys(cycle)
    return replace(cycle, derived_data={}, changes=(), sense_errors=())


def agents_page(view: AgentsView) -> AgentsView:
    """Prepare what the page of all agents shows."""
    waiting = tuple(
        (one, cycle_view(one.last, pending))
        for one, pending in zip(view.agents, view.pending, strict=True)
        if one.last is not None and one.last.status == "waiting"
    )
    rows = tuple((one, spent_text(spent)) for one, spent in zip(view.agents, view.spent, strict=True))
    return replace(view, waiting=waiting, rows=rows)


def _agents_document(view: AgentsView) -> dict[str, Any]:
    agents = zip(view.agents, view.spent, strict=True)
    return {"agents": [{**summary_document(one), "spent": spent_document(spent)} for one, spent in agents]}


async def _agents_fingerprint(request: PageRequest) -> str:
    """Return a text that changes when the list does."""
    found = await request.project.shared(AgentList.of).all()
    return "; ".join(
        f"{one.name} {one.status} {one.last.number if one.last else 0} {one.pending}" for one in found
    )


FRESH = 0.5
"""Seconds for which the summaries of all agents are fresh enough."""
BUSY_SHARE = 0.05
"""The share of time that reading them may take: very many agents are read less often."""
KEPT_OPEN = 100
"""Agents whose stores stay open between two readings: each has a thread and a file."""


@dataclass(slots=True)
class AgentList:
    """All agents and their spend, shared by all pages, and read no more often than is affordable."""

    _summaries: tuple[AgentSummary, ...] = ()
    _spend: dict[str, dict[date, Totals]] = field(default_factory=dict[str, dict[date, Totals]])
    _again_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, _project: Project) -> AgentList:
        """Return the agents of a project."""
        return cls()

    async def all(self) -> tuple[AgentSummary, ...]:
        """Return all agents, sorted by name; raises `StoreError` if one of them can't be read."""
        await self._read()
        return self._summaries

    async def spend(self) -> dict[str, dict[date, Totals]]:
        """Return the spend of each agent by name and day; raises `StoreError` likewise."""
        await self._read()
        return self._spend

    def expire(self) -> None:
        """Read the agents again next time, since one of them was sent something."""
        self._again_at = float("-inf")

    async def _read(self) -> None:
        async with self._lock:
            if (began := monotonic()) < self._again_at:
                return
            summaries: list[AgentSummary] = []
            spend: dict[str, dict[date, Totals]] = {}
            for number, handle in enumerate(await Agents().handles()):
                summaries.append(await handle.summary())
                spend[handle.name] = await handle.spend()
                if number >= KEPT_OPEN:
                    await handle.aclose()
            self._summaries, self._spend = tuple(summaries), spend
            now = monotonic()
            self._again_at = now + max(FRESH, (now - began) / BUSY_SHARE)


# --- one agent ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryDiff:
    """What changed in a memory between the ends of two cycles.

    `retired` are the ids and descriptions of the patterns that `learn` deprecated meanwhile; retention
    dropped the other items that are gone. It is None if not all cycles in between are known. `more` changes
    are left out. `unknown` says why the changes are unknown.
    """

    older: int
    newer: int
    changes: tuple[MemoryChange, ...] = ()
    retired: tuple[str, ...] | None = ()
    more: int = 0
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent, one page of its cycles without details, and one of them, `chosen`, with all details.

    `older` is the number of the last cycle on the page if there is another page. `memory` may hold only the
    newest items; `sizes` says how many items each key has. `trace` has the model calls of the chosen cycle,
    `spent` is what all stored cycles used.
    """

    agent: AgentSummary
    cycles: tuple[CycleRecord, ...]
    older: int | None
    chosen: CycleRecord | None
    pending: tuple[Feedback, ...]
    memory: Memory
    sizes: dict[str, int]
    diff: MemoryDiff | None
    trace: CycleTrace | None = None
    spent: Totals | None = None


async def agent(request: PageRequest) -> AgentView:
    """Read an agent, with its newest cycles.

    The query may ask for the cycles `before` one, the details of one `cycle`, and how the memory changed
    `from` the end of one cycle `to` the end of another.
    """
    handle = await _handle(request.path["name"])
    summary = await handle.summary()
    try:
        memory, damage = await handle.memory(), ""
    except DamagedRecordError as error:  # the cycles are not affected
        memory, damage = Memory(), str(error)
    before = _number("before", request.query.get("before", ""))
    cycles = await handle.cycles(before=before, limit=PAGE_SIZE + 1)
    chosen = await _chosen(handle, request) or summary.last
    diff = MemoryDiff(0, 0, unknown=damage) if damage else await _diff(handle, request, memory, chosen)
    newest: dict[str, list[Item]] = {key: list(items)[-MAX_ITEMS:] for key, items in memory.items.items()}
    view = AgentView(
        agent=replace(summary, last=None if summary.last is None else without_keys(summary.last)),
        cycles=tuple(replace(one, derived_data={}, sense_errors=()) for one in cycles[:PAGE_SIZE]),
        older=cycles[PAGE_SIZE - 1].number if len(cycles) > PAGE_SIZE else None,
        chosen=None if chosen is None else without_keys(chosen),
        pending=tuple(await handle.pending()),
        memory=memory if request.full else replace(memory, items=newest),
        sizes={key: len(items) for key, items in memory.items.items()},
        diff=diff,
        trace=None if chosen is None else await handle.trace(chosen.number),
        spent=await handle.spent(),
    )
    return await request.project.redacted(view, full=request.full)


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


async def _diff(
    handle: AgentHandle, request: PageRequest, memory: Memory, chosen: CycleRecord | None
) -> MemoryDiff | None:
    """Return what changed between the two cycles in the query, by default in the chosen cycle."""
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
        return MemoryDiff(older, newer, unknown=str(error))
    between = [chosen] if is_chosen else await _between(handle, older, newer)
    retired = tuple(name for one in between for name in deprecated(one))
    most = len(changes) if request.full else MAX_CHANGES
    return MemoryDiff(
        older,
        newer,
        tuple(changes[:most]),
        retired if len(between) >= newer - older else None,
        max(0, len(changes) - most),
    )


async def _between(handle: AgentHandle, older: int, newer: int) -> list[CycleRecord]:
    """Return the cycles after `older`, up to `newer`; none if they are too many, or were deleted."""
    if not 0 < newer - older <= MAX_BETWEEN:
        return []
    newest = await handle.cycles(limit=1)
    try:
        before = None if newest[0].number <= newer else newer + 1
        found = await handle.cycles(before=before, limit=newer - older + 1)
    except ConfigError:
        return []
    return [one for one in found if older < one.number <= newer]


MAX_DIGITS = 10


def _number(name: str, value: str) -> int | None:
    """Return the number of a cycle, or None for an empty text; raises `ConfigError` for any other text."""
    text = value.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise ConfigError(f"{name} must be the number of a cycle, got {value!r}.")
    return int(text)


def _agent_document(view: AgentView) -> dict[str, Any]:
    diff = view.diff
    return {
        **summary_document(view.agent),
        "feedback": view.pending,
        "cycles": [metrics_document(one) for one in view.cycles],
        "older": view.older,
        "cycle": None if view.chosen is None else cycle_document(view.chosen),
        "trace": None if view.trace is None else trace_document(view.trace),
        "spent": None if view.spent is None else spent_document(view.spent),
        "memory": memory_document(view.memory),
        "diff": None
        if diff is None
        else {
            "from": diff.older,
            "to": diff.newer,
            "changes": [change_document(one) for one in diff.changes],
            "retired": diff.retired,
            "unknown": diff.unknown or None,
        },
    }


async def _agent_fingerprint(request: PageRequest) -> str:
    """Return a text that changes when the agent has done more, or was sent feedback."""
    summary = await (await _handle(request.path["name"])).summary()
    return f"{summary.status} {summary.last.number if summary.last else 0} {summary.pending}"


@dataclass(frozen=True, slots=True)
class AgentPage:
    """What the page of an agent shows.

    `waiting` is the cycle that waits for a person. `rows` are cycles, each with its metrics and with what it
    changed in the memory. `untracked` are the metrics that no cycle has, each with the flag that turns it on.
    `pending` is the feedback that no cycle has taken, with its parameters as JSON. `calls` are the
    model calls of the chosen cycle by step, `spent` is what all stored cycles used.
    """

    view: AgentView
    waiting: CycleView | None
    rows: tuple[tuple[CycleRecord, tuple[str, ...], str], ...]
    trends: tuple[tuple[str, str, Bars], ...]
    untracked: tuple[tuple[str, str], ...]
    chosen: CycleView | None
    pending: tuple[tuple[Feedback, str], ...]
    keys: tuple[KeyView, ...]
    changes: tuple[tuple[str, tuple[ChangeView, ...]], ...]
    calls: tuple[tuple[str, tuple[Exchange, ...]], ...]
    spent: str


def agent_page(view: AgentView) -> AgentPage:
    """Prepare what the page of an agent shows."""
    last = view.agent.last
    trends = _trends([one for one in reversed(view.cycles) if one.status not in UNFINISHED])
    return AgentPage(
        view,
        waiting=cycle_view(last, view.pending) if last is not None and last.status == "waiting" else None,
        rows=tuple((one, _metrics(one.metrics), _memory_words(one)) for one in view.cycles),
        trends=tuple((name, words, drawn) for name, _, words, drawn in trends if drawn is not None),
        untracked=tuple((name, flag) for name, flag, _, drawn in trends if drawn is None and view.cycles),
        chosen=None if view.chosen is None else cycle_view(view.chosen, view.pending),
        pending=tuple((one, text_of(one.changes) if one.changes else "") for one in view.pending),
        keys=memory_views(view.memory, view.sizes),
        changes=() if view.diff is None else change_views(view.diff),
        calls=() if view.trace is None else _calls_by_step(view.trace),
        spent="" if view.spent is None else spent_text(view.spent),
    )


def _calls_by_step(trace: CycleTrace) -> tuple[tuple[str, tuple[Exchange, ...]], ...]:
    steps = dict.fromkeys(call.step for call in trace.calls)
    return tuple((step, tuple(call.exchange for call in trace.calls if call.step == step)) for step in steps)


def _metrics(metrics: CycleMetrics) -> tuple[str, ...]:
    """Return metrics as the table shows them; those that the file does not track are dashes."""
    return (
        _duration(metrics.duration_ms),
        _count(metrics.tokens),
        NOT_TRACKED if metrics.cost_usd is None else cost(metrics.cost_usd),
        _count(metrics.anomalies),
        _count(metrics.alerts),
    )


def _count(value: float | None) -> str:
    return NOT_TRACKED if value is None else count(round(value))


def _memory_words(cycle: CycleRecord) -> str:
    new = sum(change.before is None for change in cycle.changes)
    gone = sum(change.after is None for change in cycle.changes)
    changed = len(cycle.changes) - new - gone
    counts = ((new, "+"), (changed, "~"), (gone, "-"))
    return " ".join(f"{mark}{many}" for many, mark in counts if many) or NOT_TRACKED


def _duration(milliseconds: float | None) -> str:
    return NOT_TRACKED if milliseconds is None else duration_text(milliseconds)


def _trends(cycles: Sequence[CycleRecord]) -> list[tuple[str, str, str, Bars | None]]:
    """Return each metric with the flag that tracks it, its summary and its chart; the oldest cycle first."""
    drawn: tuple[tuple[str, str, Callable[[CycleMetrics], float | None], Callable[[float], str]], ...] = (
        ("Duration", "trackCycleDuration", lambda one: one.duration_ms, _duration),
        ("Tokens", "trackLLMTokens", lambda one: one.tokens, _count),
        ("Cost", "trackCost", lambda one: one.cost_usd, cost),
        ("Anomalies", "trackAnomalyCount", lambda one: one.anomalies, _count),
        ("Alerts", "trackAlertCount", lambda one: one.alerts, _count),
        ("Failures", "", lambda one: len(one.failures), _count),
    )
    names = [f"cycle {one.number}" for one in cycles]
    trends: list[tuple[str, str, str, Bars | None]] = []
    for name, flag, value, text in drawn:
        values = [value(one.metrics) for one in cycles]
        trends.append((name, flag, _summary(values, text), bars(names, values, text)))
    return trends


def _summary(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    tracked = [value for value in values if value is not None]
    if not tracked:
        return ""
    return f"last {text(tracked[-1])}, median {text(median(tracked))}, max {text(max(tracked))}"


# --- one cycle ------------------------------------------------------------------------------------------


UNDECIDED = "waiting for you"
"""The status of an action that a person can still decide on."""


@dataclass(frozen=True, slots=True)
class ActionView:
    """A planned action: `params` is JSON, `outcome` its result, its error, or why it was refused."""

    id: str
    name: str
    params: str
    reason: str
    status: str
    outcome: str


@dataclass(frozen=True, slots=True)
class CycleView:
    """A cycle with the actions of its plan, of which `undecided` wait for a person."""

    record: CycleRecord
    actions: tuple[ActionView, ...]
    undecided: tuple[ActionView, ...]
    decision: str
    violations: tuple[str, ...]
    anomalies: tuple[str, ...]
    derived: tuple[tuple[str, str], ...]


def cycle_view(record: CycleRecord, pending: Sequence[Feedback] = ()) -> CycleView:
    """Prepare a cycle for a page; `pending` is the feedback that no cycle has taken yet.

    Data of an unexpected shape, from the agent's functions and models, is left out.
    """
    of_number = [one for one in pending if one.cycle == record.number]
    feedback = [one for one in of_number if one.cycle_id in ("", record.id)]
    derived = record.derived_data
    violations = objects_in(derived, "governance", "violations")
    actions = tuple(
        _action(planned, record, violations, feedback) for planned in objects_in(derived, "plan", "actions")
    )
    return CycleView(
        record,
        actions=actions,
        undecided=tuple(one for one in actions if one.status == UNDECIDED),
        decision=_decision(as_object(derived.get("governance")).get("authority")),
        violations=tuple(_violation(one) for one in violations),
        anomalies=tuple(
            text_of(one.get("message") or one.get("description") or one)
            for one in objects_in(derived, "analysis", "anomalies")
        ),
        derived=tuple((name, text_of(value, 2)) for name, value in derived.items() if value),
    )


def _action(
    planned: Mapping[str, Any],
    record: CycleRecord,
    violations: Sequence[Mapping[str, Any]],
    feedback: Sequence[Feedback],
) -> ActionView:
    derived, own = record.derived_data, planned.get("id")
    done = next((one for one in objects_in(derived, "execution", "actions") if one.get("id") == own), None)
    params = planned.get("params")
    view = ActionView(
        id=str(own),
        name=str(planned.get("action", "")),
        params=text_of(params) if params else "",
        reason=str(planned.get("reason") or ""),
        status="planned",
        outcome="",
    )
    if done is not None:
        outcome = done.get("error") or done.get("result")
        return replace(view, status=str(done.get("status")), outcome=text_of(outcome) if outcome else "")
    approved = as_object(derived.get("governance")).get("approved")
    if not isinstance(approved, Sequence):
        return view
    if own not in approved:
        why = (one.get("message") for one in violations if one.get("actionId") in (own, None))
        return replace(view, status="blocked", outcome=str(next(why, None) or ""))
    if record.status != "waiting":
        return view
    verdict = next((one.verdict for one in feedback if one.action in (None, own, view.name)), None)
    return replace(view, status=UNDECIDED if verdict is None else DECISIONS[verdict])


def _decision(authorization: Any) -> str:
    """Return who decided on the plan, and how."""
    decided = as_object(authorization)
    if not decided or decided.get("mode") == "autonomous":
        return ""
    text = f"{decided.get('decision')} by {decided.get('by') or 'an unnamed person'}"
    if decided.get("proof"):
        text += f" (proved by the token {decided['proof']})"
    if decided.get("decision") == "default":
        text = "by its default"
    return f"{text}: {decided['message']}" if decided.get("message") else text


def _violation(one: Mapping[str, Any]) -> str:
    about = f" ({one['action']})" if one.get("action") else ""
    ended = "" if one.get("blocked") else ", recorded only"
    return f"{one.get('constraint')}{about}: {one.get('message')}{ended}"


def without_keys(record: CycleRecord) -> CycleRecord:
    """Return a cycle without the idempotency keys of its actions, which look like secrets."""
    execution = as_object(record.derived_data.get("execution"))
    bare = [
        {name: value for name, value in one.items() if name != "idempotencyKey"}
        for one in objects_in(record.derived_data, "execution", "actions")
    ]
    if not bare:
        return record
    return replace(record, derived_data={**record.derived_data, "execution": {**execution, "actions": bare}})


def deprecated(record: CycleRecord) -> Iterator[str]:
    """Yield the ids and descriptions of the patterns that a cycle's `learn` deprecated."""
    for one in values_in(record.derived_data, "learnings", "deprecatedPatterns"):
        fields = as_object(one)
        name = fields.get("id") or fields.get("description") if fields else one
        if isinstance(name, str):
            yield name.strip()


def text_of(value: Any, indent: int | None = None) -> str:
    """Return a text as it is, and other data as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


# --- memory ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemView:
    """A memory item: when it was written, its title, and its other fields."""

    at: str
    head: str
    rest: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class KeyView:
    """A memory key with its newest items first, and how many `older` ones are left out."""

    key: str
    items: tuple[ItemView, ...]
    older: int


@dataclass(frozen=True, slots=True)
class ChangeView:
    """What happened to an item; `moved` are the fields that changed, each with its old and new value."""

    what: str
    item: ItemView
    moved: tuple[tuple[str, str, str], ...] = ()


def memory_views(memory: Memory, sizes: Mapping[str, int]) -> tuple[KeyView, ...]:
    """Return the keys of a memory; `sizes` says how many items each has in all."""
    return tuple(
        KeyView(key, tuple(item_view(item) for item in reversed(items)), sizes[key] - len(items))
        for key, items in memory.items.items()
    )


def change_views(diff: MemoryDiff) -> tuple[tuple[str, tuple[ChangeView, ...]], ...]:
    """Return the changes of a memory by key."""
    keys = dict.fromkeys(change.key for change in diff.changes)
    return tuple(
        (key, tuple(_change(one, diff.retired) for one in diff.changes if one.key == key)) for key in keys
    )


def item_view(item: Item) -> ItemView:
    """Prepare a memory item for a page."""
    about = next((name for name in TITLE_FIELDS if item.get(name)), "id")
    rest = tuple(
        (name, _short(value))
        for name, value in item.items()
        if name not in (*HIDDEN_FIELDS, about) and value not in ({}, [], None, "")
    )
    stamp = str(item.get("timestamp", ""))[:19].replace("T", " ")
    return ItemView(stamp, _short(item.get(about, "")), rest)


def _change(change: MemoryChange, retired: Collection[str] | None) -> ChangeView:
    before, after = change.before, change.after
    if after is None:
        return ChangeView(_gone(before or {}, retired), item_view(before or {}))
    if before is None:
        return ChangeView("new", item_view(after))
    names = [
        name
        for name in {**before, **after}
        if before.get(name) != after.get(name) and name not in HIDDEN_FIELDS
    ]
    moved = tuple((name, _short(before.get(name)), _short(after.get(name))) for name in names)
    return ChangeView("changed", item_view(after), moved)


def _gone(item: Item, retired: Collection[str] | None) -> str:
    """Return why an item is gone, as far as that is known."""
    if retired is None:
        return "gone"
    return "retired" if item.get("id") in retired or item.get("description") in retired else "dropped"


def _short(value: Any) -> str:
    return shortened(f"{value:g}" if isinstance(value, float) else text_of(value), MAX_TEXT)


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
        await handle.cycle(number)  # there must be one
    try:
        await handle.send_feedback(verdict, message, cycle=number, action=action, changes=changes, by=by)
    finally:
        form.project.shared(AgentList.of).expire()
    then = "its next cycle takes it into account"
    if last is not None and last.number == number and last.status in UNDER_WAY:
        then = (
            "it takes effect when the agent runs again" if summary.status == "killed" else "the cycle uses it"
        )
    about = f"{'' if action is None else f' of {action}'}{'' if number is None else f' in cycle {number}'}"
    return f"Sent to {handle.name}: {verdict}{about}; {then}."


PATH = "/agents/{name:path}"
SLICE = Slice(
    pages=(
        Page(
            "/agents",
            "cycles/templates/agents.html",
            agents,
            _agents_document,
            present=agents_page,
            fingerprint=_agents_fingerprint,
        ),
        Page(
            PATH,
            "cycles/templates/agent.html",
            agent,
            _agent_document,
            present=agent_page,
            fingerprint=_agent_fingerprint,
        ),
    ),
    changes=(Change(f"{PATH}/feedback", _give_feedback),),
)
