"""The dashboard's pages of agents that run in cycles: the list of them, and each one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, cast

from redraft._texts import shortened
from redraft.cycles.agents import (
    UNDER_WAY,
    AgentHandle,
    Agents,
    AgentSummary,
    change_document,
    cycle_document,
    memory_document,
    metrics_document,
    summary_document,
)
from redraft.cycles.mail import VERDICTS, Feedback, Verdict
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.records import CycleRecord
from redraft.errors import ConfigError, DamagedRecordError
from redraft.web.charts import Trend, trend
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import cost, count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from redraft.cycles.memory import Item
    from redraft.cycles.records import CycleMetrics
    from redraft.web.page import Form
    from redraft.web.project import Project

EACH = 0.5
"""Seconds for which a look at all agents is new enough."""
SHARE = 20
"""A look may take one in so many seconds: with very many agents it is taken more rarely."""
KEPT_OPEN = 100
"""Agents whose stores stay open between two looks: a store of a project has a thread and a file each."""


@dataclass(slots=True)
class AgentsSeen:
    """Remember the last look at all agents, for all pages that show them."""

    _seen: tuple[AgentSummary, ...] = ()
    _again_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, _project: Project) -> AgentsSeen:
        """Return those of a project."""
        return cls()

    async def all(self) -> tuple[AgentSummary, ...]:
        """Return how the agents stand, by name; raises `StoreError` where one of them can't be read."""
        async with self._lock:
            if monotonic() >= self._again_at:
                began = monotonic()
                self._seen = await _look()
                now = monotonic()
                self._again_at = now + max(EACH, (now - began) * SHARE)
            return self._seen

    async def view(self, name: str) -> AgentHandle:
        """Return a view of one agent; raises `ConfigError` where there is none of this name."""
        return await Agents().get(name)

    def changed(self) -> None:
        """Hear that somebody told an agent something: the next look is a new one."""
        self._again_at = float("-inf")


async def _look() -> tuple[AgentSummary, ...]:
    found: list[AgentSummary] = []
    for number, handle in enumerate(await Agents().handles()):
        found.append(await handle.summary())
        if number >= KEPT_OPEN:
            await handle.aclose()
    return tuple(found)


UNDECIDED = "waits for you"
REFUSED = "blocked"
PLANNED = "planned"
DECISIONS = {"approve": "approved", "reject": "rejected", "modify": "modified"}


@dataclass(frozen=True, slots=True)
class ActionView:
    """Hold an action of the plan, and what became of it; `params` is JSON, `said` a result or refusal."""

    id: str
    name: str
    params: str
    reason: str
    status: str
    said: str


@dataclass(frozen=True, slots=True)
class CycleView:
    """Hold a cycle: `actions` are those of its plan, `undecided` those of them that wait for a person."""

    record: CycleRecord
    actions: tuple[ActionView, ...]
    undecided: tuple[ActionView, ...]
    decision: str
    violations: tuple[str, ...]
    anomalies: tuple[str, ...]
    derived: tuple[tuple[str, str], ...]


def cycle_view(record: CycleRecord, pending: Sequence[Feedback] = ()) -> CycleView:
    """Take a record apart; `pending` is the feedback that no cycle has taken yet.

    What functions and models of the agent left out is left out here, too.
    """
    heard = [one for one in pending if one.cycle == record.number]
    derived = record.derived_data
    violations = objects(derived, "governance", "violations")
    actions = tuple(
        _action(planned, record, violations, heard) for planned in objects(derived, "plan", "actions")
    )
    return CycleView(
        record,
        actions,
        tuple(one for one in actions if one.status == UNDECIDED),
        _decision(part(derived.get("governance")).get("authority")),
        tuple(_violation(one) for one in violations),
        tuple(text_of(one.get("message") or one.get("description") or one) for one in _anomalies(derived)),
        tuple((name, text_of(value, 2)) for name, value in derived.items() if value),
    )


def without_keys(record: CycleRecord) -> CycleRecord:
    """Return a record without the keys of its actions: they tell nobody anything, and look like secrets."""
    execution = part(record.derived_data.get("execution"))
    bare = [
        {name: value for name, value in one.items() if name != "idempotencyKey"}
        for one in objects(record.derived_data, "execution", "actions")
    ]
    if not bare:
        return record
    return replace(record, derived_data={**record.derived_data, "execution": {**execution, "actions": bare}})


def deprecated(record: CycleRecord) -> Iterator[str]:
    """Return the ids and descriptions of the patterns that a cycle retired, as its `learn` named them."""
    listed = part(record.derived_data.get("learnings")).get("deprecatedPatterns")
    for one in cast("list[Any]", listed) if isinstance(listed, list) else []:
        fields = part(one)
        name = fields.get("id") or fields.get("description") if fields else one
        if isinstance(name, str):
            yield name.strip()


def part(value: Any) -> Mapping[str, Any]:
    """Return a value where it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def objects(derived: Mapping[str, Any], stage: str, name: str) -> list[Mapping[str, Any]]:
    """Return the objects that a stage left in an array."""
    listed = part(derived.get(stage)).get(name)
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return []
    return [part(one) for one in cast("Sequence[Any]", listed) if isinstance(one, Mapping)]


def text_of(value: Any, indent: int | None = None) -> str:
    """Return a text as it is, and other data as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def _action(
    planned: Mapping[str, Any],
    record: CycleRecord,
    violations: Sequence[Mapping[str, Any]],
    heard: Sequence[Feedback],
) -> ActionView:
    derived, own = record.derived_data, planned.get("id")
    done = next((one for one in objects(derived, "execution", "actions") if one.get("id") == own), None)
    params = planned.get("params")
    view = ActionView(
        str(own),
        str(planned.get("action", "")),
        text_of(params) if params else "",
        str(planned.get("reason") or ""),
        PLANNED,
        "",
    )
    if done is not None:
        said = done.get("error") or done.get("result")
        return replace(view, status=str(done.get("status")), said=text_of(said) if said else "")
    approved = part(derived.get("governance")).get("approved")
    if not isinstance(approved, Sequence):
        return view
    if own not in approved:
        why = (one.get("message") for one in violations if one.get("actionId") in (own, None))
        return replace(view, status=REFUSED, said=str(next(why, None) or ""))
    if record.status != "waiting":
        return view
    verdict = next((one.verdict for one in heard if one.action in (None, own, view.name)), None)
    return replace(view, status=UNDECIDED if verdict is None else DECISIONS[verdict])


def _decision(authorization: Any) -> str:
    """Say who decided on the plan, and how."""
    decided = part(authorization)
    if not decided or decided.get("mode") == "autonomous":
        return ""
    said = f"{decided.get('decision')} by {decided.get('by') or 'nobody who gave a name'}"
    if decided.get("decision") == "default":
        said = "by its default"
    return f"{said}: {decided['message']}" if decided.get("message") else said


def _violation(one: Mapping[str, Any]) -> str:
    about = f" ({one['action']})" if one.get("action") else ""
    ended = "" if one.get("blocked") else ", recorded only"
    return f"{one.get('constraint')}{about}: {one.get('message')}{ended}"


def _anomalies(derived: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return objects(derived, "analysis", "anomalies")


@dataclass(frozen=True, slots=True)
class MemoryDiff:
    """Hold what became of a memory between the ends of two cycles.

    `retired` are the ids and descriptions by which a `learn` deprecated patterns meanwhile: what else is
    gone, retention dropped; None where that is not known for all the cycles in between. `more` changes are
    not shown. `unknown` says why there are none, where they can't be told.
    """

    older: int
    newer: int
    changes: tuple[MemoryChange, ...] = ()
    retired: tuple[str, ...] | None = ()
    more: int = 0
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class AgentRead:
    """Hold an agent's newest cycles, or those before one, without details; and one of them, `chosen`, whole.

    `older` is before which cycle there are further ones. `sizes` says how many items each key of the memory
    has, of which `memory` may hold the newest only.
    """

    agent: AgentSummary
    cycles: tuple[CycleRecord, ...]
    older: int | None
    chosen: CycleRecord | None
    pending: tuple[Feedback, ...]
    memory: Memory
    sizes: dict[str, int]
    diff: MemoryDiff | None


HEAD = ("description", "message", "action", "constraint", "verdict")
"""What an item is about: the first of these that it has."""
NOT_SHOWN = ("id", "timestamp", "since", "durationMs")
LONGEST = 240
NEW, CHANGED, RETIRED, DROPPED, GONE = "new", "changed", "retired", "dropped", "gone"


@dataclass(frozen=True, slots=True)
class ItemView:
    """Hold an item: when it is from, what it is about, and what else it says."""

    at: str
    head: str
    rest: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class KeyView:
    """Hold a key of the memory with its newest items first; `older` are not shown."""

    key: str
    items: tuple[ItemView, ...]
    older: int


@dataclass(frozen=True, slots=True)
class ChangeView:
    """Say what became of an item; `moved` are the fields that changed, each with what it was and is."""

    what: str
    item: ItemView
    moved: tuple[tuple[str, str, str], ...] = ()


def memory_views(memory: Memory, sizes: Mapping[str, int]) -> tuple[KeyView, ...]:
    """Return the keys of a memory; `sizes` says how many items each has, shown or not."""
    return tuple(
        KeyView(key, tuple(item_view(item) for item in reversed(items)), sizes[key] - len(items))
        for key, items in memory.items.items()
    )


def change_views(diff: MemoryDiff) -> tuple[tuple[str, tuple[ChangeView, ...]], ...]:
    """Return what changed, key by key."""
    keys = dict.fromkeys(change.key for change in diff.changes)
    return tuple(
        (key, tuple(_change(one, diff.retired) for one in diff.changes if one.key == key)) for key in keys
    )


def item_view(item: Item) -> ItemView:
    """Take an item apart."""
    about = next((name for name in HEAD if item.get(name)), "id")
    rest = tuple(
        (name, _short(value))
        for name, value in item.items()
        if name not in (*NOT_SHOWN, about) and value not in ({}, [], None, "")
    )
    stamp = str(item.get("timestamp", ""))[:19].replace("T", " ")
    return ItemView(stamp, shortened(_short(item.get(about, "")), LONGEST), rest)


def _change(change: MemoryChange, retired: Collection[str] | None) -> ChangeView:
    before, after = change.before, change.after
    if after is None:
        return ChangeView(_gone(before or {}, retired), item_view(before or {}))
    if before is None:
        return ChangeView(NEW, item_view(after))
    names = [
        name for name in {**before, **after} if before.get(name) != after.get(name) and name not in NOT_SHOWN
    ]
    moved = tuple((name, _short(before.get(name)), _short(after.get(name))) for name in names)
    return ChangeView(CHANGED, item_view(after), moved)


def _gone(item: Item, retired: Collection[str] | None) -> str:
    """Say why an item is gone, where that is known."""
    if retired is None:
        return GONE
    return RETIRED if item.get("id") in retired or item.get("description") in retired else DROPPED


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shortened(text, LONGEST)


NONE = "-"
NOT_ENDED = ("running", "waiting", "abandoned")
SECOND, MINUTE = 1_000, 60_000


@dataclass(frozen=True, slots=True)
class CycleRow:
    """Hold a cycle as the table has it; a number that its file does not track is a dash."""

    record: CycleRecord
    duration: str
    tokens: str
    cost: str
    anomalies: str
    alerts: str
    memory: str


@dataclass(frozen=True, slots=True)
class AgentSheet:
    """Hold what the template needs.

    `waiting` is the cycle that waits for a person; `untracked` are the metrics that no cycle has, each with
    the flag that would have it recorded; `pending` is feedback with the parameters in it as JSON.
    """

    agent: AgentSummary
    waiting: CycleView | None
    rows: tuple[CycleRow, ...]
    older: int | None
    trends: tuple[Trend, ...]
    untracked: tuple[tuple[str, str], ...]
    chosen: CycleView | None
    pending: tuple[tuple[Feedback, str], ...]
    keys: tuple[KeyView, ...]
    after: int
    diff: MemoryDiff | None
    changes: tuple[tuple[str, tuple[ChangeView, ...]], ...]


def agent_sheet(read: AgentRead) -> AgentSheet:
    """Work out what a page shows of an agent."""
    last, diff = read.agent.last, read.diff
    is_waiting = last is not None and last.status == "waiting"
    trends = _trends([one for one in reversed(read.cycles) if one.status not in NOT_ENDED])
    return AgentSheet(
        read.agent,
        cycle_view(last, read.pending) if last is not None and is_waiting else None,
        tuple(_row(one) for one in read.cycles),
        read.older,
        tuple(drawn for _, _, drawn in trends if drawn is not None),
        tuple((name, flag) for name, flag, drawn in trends if drawn is None and read.cycles),
        None if read.chosen is None else cycle_view(read.chosen, read.pending),
        tuple((one, text_of(one.changes) if one.changes else "") for one in read.pending),
        memory_views(read.memory, read.sizes),
        read.memory.cycle,
        diff,
        () if diff is None else change_views(diff),
    )


def duration(milliseconds: float | None) -> str:
    """Render a time that may be a millisecond or an hour."""
    if milliseconds is None:
        return NONE
    if milliseconds < SECOND:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / SECOND:.1f} s" if milliseconds < MINUTE else f"{milliseconds / MINUTE:.1f} min"


def _row(cycle: CycleRecord) -> CycleRow:
    metrics = cycle.metrics
    return CycleRow(
        cycle,
        duration(metrics.duration_ms),
        _number(metrics.tokens),
        NONE if metrics.cost_usd is None else cost(metrics.cost_usd),
        _number(metrics.anomalies),
        _number(metrics.alerts),
        _memory_words(cycle),
    )


def _number(value: float | None) -> str:
    return NONE if value is None else count(round(value))


def _memory_words(cycle: CycleRecord) -> str:
    new = sum(change.before is None for change in cycle.changes)
    gone = sum(change.after is None for change in cycle.changes)
    changed = len(cycle.changes) - new - gone
    counts = ((new, "+"), (changed, "~"), (gone, "-"))
    return " ".join(f"{mark}{many}" for many, mark in counts if many) or NONE


def _trends(cycles: Sequence[CycleRecord]) -> list[tuple[str, str, Trend | None]]:
    """Return each metric with the flag that tracks it, and its chart; the oldest cycle first."""
    drawn: tuple[tuple[str, str, Callable[[CycleMetrics], float | None], Callable[[float], str]], ...] = (
        ("Duration", "trackCycleDuration", lambda one: one.duration_ms, duration),
        ("Tokens", "trackLLMTokens", lambda one: one.tokens, _number),
        ("Cost", "trackCost", lambda one: one.cost_usd, cost),
        ("Anomalies", "trackAnomalyCount", lambda one: one.anomalies, _number),
        ("Alerts", "trackAlertCount", lambda one: one.alerts, _number),
        ("Failures", "", lambda one: len(one.failures), _number),
    )
    numbers = [one.number for one in cycles]
    return [
        (name, flag, trend(name, numbers, [value(one.metrics) for one in cycles], text))
        for name, flag, value, text in drawn
    ]


EXAMPLE = '{"level": 2}'
LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class AgentFeedback:
    """Hold a form as it was sent; `cycle` and `action` are what it is about, None for all there is."""

    verdict: Verdict
    message: str
    cycle: int | None
    action: str | None
    changes: Mapping[str, Any] | None
    by: str

    @classmethod
    def of(cls, wanted: Form) -> Self:
        """Read the fields; raises `ConfigError` for what a verdict can't be made of."""
        verdict = wanted.text("verdict", "")
        if verdict not in VERDICTS:
            raise ConfigError(f"verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}.")
        return cls(
            verdict,
            wanted.text("message", ""),
            number_of("cycle", wanted.text("cycle", "")),
            wanted.text("action", "").strip() or None,
            _parameters(wanted.text("changes", "")) if verdict == "modify" else None,
            wanted.text("by", "").strip(),
        )

    async def leave(self, view: AgentHandle) -> str:
        """Leave it for an agent, and say what becomes of it; raises `ConfigError` for an unknown cycle.

        What is said in general while a plan waits would decide on it, so it is refused.
        """
        summary = await view.summary()
        last = summary.last
        if last is not None and last.status == "waiting" and self.cycle is None:
            raise ConfigError(
                f"Cycle {last.number} waits for a decision, which this would be: decide on it first."
            )
        if self.cycle is not None:
            await view.cycle(self.cycle)
        await view.send_feedback(
            self.verdict,
            self.message,
            cycle=self.cycle,
            action=self.action,
            changes=self.changes,
            by=self.by,
        )
        then = "its next cycle takes it into account"
        if last is not None and last.number == self.cycle and last.status in UNDER_WAY:
            then = (
                "it counts when the agent runs again" if summary.status == "killed" else "the cycle hears it"
            )
        return f"{view.name} has it: {self._what}; {then}."

    @property
    def _what(self) -> str:
        about = "" if self.action is None else f" {self.action}"
        return f"{self.verdict}{about}{'' if self.cycle is None else f' in cycle {self.cycle}'}"


def number_of(name: str, given: str) -> int | None:
    """Return the number of a cycle that was given; None where none was; raises `ConfigError` for another."""
    text = given.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER):
        raise ConfigError(f"{name} is the number of a cycle, got {given!r}.")
    return int(text)


def _parameters(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The parameters must be a JSON object such as {EXAMPLE}: {error}.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"The parameters must be a JSON object such as {EXAMPLE}, got {text!r}.")
    return cast("dict[str, Any]", found)


@dataclass(frozen=True, slots=True)
class AgentsView:
    """Hold the agents by name, and the plans of those that wait for a person.

    `heard` is the feedback that each of those has, as `agents` has them; of the others it is empty.
    """

    agents: tuple[AgentSummary, ...]
    heard: tuple[tuple[Feedback, ...], ...]
    waiting: tuple[tuple[AgentSummary, CycleView], ...] = ()


async def agents(request: PageRequest) -> AgentsView:
    """Read how all agents stand."""
    seen = await request.project.shared(AgentsSeen.of).all()
    slim = tuple(replace(one, last=_slim(one.last)) for one in seen)
    heard = [await _heard(request, one) for one in seen]
    return await request.project.redacted(AgentsView(slim, tuple(heard)), full=request.full)


async def _heard(request: PageRequest, agent: AgentSummary) -> tuple[Feedback, ...]:
    if agent.last is None or agent.last.status != "waiting" or not agent.pending:
        return ()
    view = await request.project.shared(AgentsSeen.of).view(agent.name)
    return tuple(await view.pending())


def _slim(cycle: CycleRecord | None) -> CycleRecord | None:
    """Leave out what the page does not show: of a cycle that does not wait, all but its metrics."""
    if cycle is None:
        return None
    if cycle.status == "waiting":
        return without_keys(cycle)
    return replace(cycle, derived_data={}, changes=(), sense_errors=())


def _arranged(view: AgentsView) -> AgentsView:
    waiting = tuple(
        (one, cycle_view(one.last, heard))
        for one, heard in zip(view.agents, view.heard, strict=True)
        if one.last is not None and one.last.status == "waiting"
    )
    return replace(view, waiting=waiting)


def _agents_document(view: AgentsView) -> dict[str, Any]:
    return {"agents": [summary_document(one) for one in view.agents]}


async def _agents_fingerprint(request: PageRequest) -> str:
    """Return what differs when the table does."""
    seen = await request.project.shared(AgentsSeen.of).all()
    return "; ".join(
        f"{one.name} {one.status} {one.last.number if one.last else 0} {one.pending}" for one in seen
    )


MOST = 50
"""Cycles on one page."""
SHOWN = 20
"""Items of a key that are shown, the newest."""
MOST_CHANGES = 200
LOOKED_AT = 200
"""Cycles between two memories, at most, that are looked through for what they retired."""


async def agent(request: PageRequest) -> AgentRead:
    """Read an agent.

    Its cycles `before` one, the details of the one named in `cycle`, and what changed of the memory `from`
    the end of a cycle `to` that of another; without these the newest.
    """
    view = await _viewed(request.project, request.path["name"])
    summary = await view.summary()
    try:
        memory, damage = await view.memory(), ""
    except DamagedRecordError as error:  # the cycles can be shown all the same
        memory, damage = Memory(), str(error)
    cycles = await view.cycles(before=number_of("before", request.query.get("before", "")), limit=MOST + 1)
    chosen = await _chosen(view, request) or summary.last
    read = AgentRead(
        replace(summary, last=None if summary.last is None else without_keys(summary.last)),
        tuple(replace(one, derived_data={}, sense_errors=()) for one in cycles[:MOST]),
        cycles[MOST - 1].number if len(cycles) > MOST else None,
        None if chosen is None else without_keys(chosen),
        tuple(await view.pending()),
        memory if request.full else _newest(memory),
        {key: len(items) for key, items in memory.items.items()},
        MemoryDiff(0, 0, unknown=damage) if damage else await _diff(view, request, memory, chosen),
    )
    return await request.project.redacted(read, full=request.full)


async def _viewed(project: Project, name: str) -> AgentHandle:
    try:
        return await project.shared(AgentsSeen.of).view(name)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


async def _chosen(view: AgentHandle, request: PageRequest) -> CycleRecord | None:
    number = number_of("cycle", request.query.get("cycle", ""))
    if number is None:
        return None
    try:
        return await view.cycle(number)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


def _newest(memory: Memory) -> Memory:
    items: dict[str, list[Item]] = {key: list(found)[-SHOWN:] for key, found in memory.items.items()}
    return replace(memory, items=items)


async def _diff(
    view: AgentHandle, request: PageRequest, memory: Memory, chosen: CycleRecord | None
) -> MemoryDiff | None:
    """Return what changed between two cycles: those that were asked for, else in the one that is chosen."""
    if chosen is None or memory.cycle == 0:
        return None
    newer = number_of("to", request.query.get("to", ""))
    newer = min(chosen.number, memory.cycle) if newer is None else newer
    older = number_of("from", request.query.get("from", ""))
    older = max(0, newer - 1) if older is None else older
    is_chosen = (older, newer) == (chosen.number - 1, chosen.number)
    try:
        changes = chosen.changes if is_chosen else await view.diff(older, newer)
    except (ConfigError, DamagedRecordError) as error:
        return MemoryDiff(older, newer, unknown=str(error))
    between = [chosen] if is_chosen else await _between(view, older, newer)
    retired = tuple(name for one in between for name in deprecated(one))
    most = len(changes) if request.full else MOST_CHANGES
    return MemoryDiff(
        older,
        newer,
        tuple(changes[:most]),
        retired if len(between) >= newer - older else None,
        max(0, len(changes) - most),
    )


async def _between(view: AgentHandle, older: int, newer: int) -> list[CycleRecord]:
    """Return the cycles after one, up to another: none where they are too many, or not kept any more."""
    if not 0 < newer - older <= LOOKED_AT:
        return []
    newest = await view.cycles(limit=1)
    try:
        before = None if newest[0].number <= newer else newer + 1
        found = await view.cycles(before=before, limit=newer - older + 1)
    except ConfigError:
        return []
    return [one for one in found if older < one.number <= newer]


def _agent_document(read: AgentRead) -> dict[str, Any]:
    diff = read.diff
    return {
        **summary_document(read.agent),
        "feedback": read.pending,
        "cycles": [metrics_document(one) for one in read.cycles],
        "older": read.older,
        "cycle": None if read.chosen is None else cycle_document(read.chosen),
        "memory": memory_document(read.memory),
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
    """Return what differs when an agent has done more, or was told something."""
    view = await _viewed(request.project, request.path["name"])
    summary = await view.summary()
    return f"{summary.status} {summary.last.number if summary.last else 0} {summary.pending}"


async def _tell(wanted: Form) -> str:
    """Tell an agent what a person thinks of it."""
    said = AgentFeedback.of(wanted)
    view = await _viewed(wanted.project, wanted.path["name"])
    try:
        return await said.leave(view)
    finally:
        wanted.project.shared(AgentsSeen.of).changed()


PATH = "/agents/{name:path}"
SLICE = Slice(
    (
        Page(
            "/agents",
            "cycles/templates/agents.html",
            agents,
            _agents_document,
            present=_arranged,
            fingerprint=_agents_fingerprint,
        ),
        Page(
            PATH,
            "cycles/templates/agent.html",
            agent,
            _agent_document,
            present=agent_sheet,
            fingerprint=_agent_fingerprint,
        ),
    ),
    (Change(f"{PATH}/feedback", _tell),),
)
