"""Agents: find the agents of a project, inspect them, and send them feedback and messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import without_tags
from redraft._hints import keyword_hints
from redraft._texts import as_text, shortened
from redraft._validation import check_count, check_name, nearest
from redraft.approvals import Approvals
from redraft.cycles.journal import TRACE, trace_key
from redraft.cycles.lease import LEASE, live_holder
from redraft.cycles.mail import (
    DECISIONS,
    Feedback,
    Mailbox,
    answers_of,
    check_cycle,
    check_feedback,
    pending_mail,
    signal_mail,
)
from redraft.cycles.memory import copied, differences
from redraft.cycles.outbox import stored_outbox
from redraft.cycles.records import (
    AgentCard,
    CycleRecord,
    as_object,
    card_of,
    cycle_from,
    cycle_prefix,
    data_redactor,
    listed_cycle,
    memory_at,
    objects_in,
    redacted_cycle,
    stored_memory,
)
from redraft.cycles.storage import AgentLocation, known_locations, prune
from redraft.errors import ConfigError, DamagedRecordError, LeaseError
from redraft.loop.runs import Exchange, StoredStep
from redraft.redact.log import warn_once
from redraft.stores.base import reading
from redraft.stores.run_index import CYCLE, Totals, run_index
from redraft.text.json import load_json
from redraft.types import render_usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date
    from types import TracebackType
    from typing import Self

    from redraft.approvals import Approval
    from redraft.cycles.cycle import CycleResult
    from redraft.cycles.mail import AgentMessage, Verdict
    from redraft.cycles.memory import Item, Memory, MemoryChange
    from redraft.cycles.outbox import Undelivered
    from redraft.stores.base import Record
    from redraft.web.people import Person

UNDER_WAY = ("running", "waiting")
CHANGES = '{"level": 2}'
SECOND, MINUTE = 1_000, 60_000
PAGE = 50
MAX_PENDING = 1_000
MAX_LOOK_BACK = 10_000
"""The number of cycles for which the earlier memory can be reconstructed."""
TITLE_FIELDS = ("description", "message", "action", "constraint", "verdict")
"""The title of a memory item is the first of these fields that it has."""
HIDDEN_FIELDS = ("id", "timestamp", "since", "durationMs")
"""The fields of a memory item that its details omit."""


@keyword_hints()
class Agents:
    """Find agents from any process: those of this process, the project, and a network's long-term storage.

    Methods raise `StoreError` where a store can't be read.
    """

    def __init__(self, network: str = "default") -> None:
        self.network = network

    async def all(self) -> list[AgentSummary]:
        """A summary of every agent, sorted by name."""
        summaries: list[AgentSummary] = []
        for handle in await self.handles():
            async with handle:
                summaries.append(await handle.summary())
        return summaries

    async def get(self, name: str) -> AgentHandle:
        """A handle on an agent. Raises `ConfigError` if there is no agent of that name."""
        check_name("name", name)
        handles = {handle.name: handle for handle in await self.handles()}
        if name not in handles:
            hint = nearest(name, handles) if handles else "no agent has run here yet."
            raise ConfigError(f"There is no agent {name!r} here; {hint}")
        return handles[name]

    async def handles(self) -> list[AgentHandle]:
        """A handle on every agent, sorted by name."""
        return [AgentHandle(location) for location in await known_locations(self.network)]


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """The summary of an agent, for a list."""

    name: str
    card: AgentCard
    location: str
    """Where it is stored: `process`, `project`, `network` or `given`."""
    status: str
    """`running` or `waiting` (for a person) while a process runs a cycle, `killed` if that process has ended
    without finishing it, otherwise the status of the last cycle; `new` before the first cycle."""
    last: CycleRecord | None
    """The last cycle."""
    feedback: tuple[Feedback, ...] = ()
    """The feedback that no cycle has taken."""

    @property
    def pending(self) -> int:
        """The number of feedback items that no cycle has taken."""
        return len(self.feedback)


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A model call of a cycle."""

    step: str
    """The step that made the call, such as `reason/plan`."""
    exchange: Exchange
    """The request and the reply."""


@dataclass(frozen=True, slots=True)
class CycleTrace:
    """The model calls of a cycle."""

    number: int
    """The number of the cycle."""
    calls: tuple[TracedCall, ...] = ()
    """The stored calls, in the order in which they ended."""
    left_out: int = 0
    """The number of calls that were too long to be stored."""


class AgentHandle:
    """Read one agent's cycles and memory, and send it feedback and messages, from any process.

    An async context manager, which closes the store on exit. Raises `StoreError` where it can't be read.
    """

    def __init__(self, location: AgentLocation) -> None:
        self.name = location.agent
        self.location = location
        self._store = location.store
        self._redact = data_redactor()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the store of an agent of the project; other stores are shared. The next use reopens it."""
        if self.location.kind == "project":
            await self._store.aclose()

    async def summary(self) -> AgentSummary:
        """The summary of the agent."""
        cycles = await self.cycles(limit=1)
        last = cycles[0] if cycles else None
        status = "new" if last is None else last.status
        if status in UNDER_WAY and self.location.is_durable and not await self._is_held():
            [again] = await self.cycles(limit=1)  # the cycle may have ended before the lease was read
            last, status = again, "killed" if again == last else again.status
        feedback = tuple(await self.pending())
        try:
            card = await self.card()
        except DamagedRecordError as error:  # must not hide the other agents of a list
            card = AgentCard(self.name, description=str(error))
        return AgentSummary(self.name, card, self.location.kind, status, last, feedback)

    async def _is_held(self) -> bool:
        """Whether a process runs the agent, or may, since its lease can't be read."""
        try:
            lease = await self._store.get(LEASE, LEASE)
            return lease is not None and bool(live_holder(lease.data))
        except (LeaseError, DamagedRecordError) as error:  # must not hide the other agents of a list
            warn_once(str(error))
            return True

    async def card(self) -> AgentCard:
        """The profile of the agent."""
        return await card_of(self._store)

    async def cycles(self, *, before: int | None = None, limit: int = PAGE) -> list[CycleRecord]:
        """The cycles, newest first; `before` is the number of the last cycle on the previous page.

        A cycle whose record is damaged is included, with the status `damaged`.
        """
        after = None
        check_count("limit", limit, 0)
        if before is not None:
            check_count("before", before, 0)
        if before is not None and (after := await self._record(before)) is None:
            raise ConfigError(
                f"The agent {self.name!r} has no cycle {before} here, so there are no cycles before it."
            )
        records = await self._store.find(CYCLE, newest_first=True, after=after, limit=limit)
        return [self._redacted(listed_cycle(record)) for record in records]

    async def spend(self) -> dict[date, Totals]:
        """The usage of the cycles that have ended, by the day (UTC) on which they began."""
        expenses = await run_index(self._store).expenses(CYCLE)
        return {group.day: totals for group, totals in expenses.items()}

    async def spent(self) -> Totals:
        """The usage of all stored cycles that have ended."""
        return total(await self.spend())

    async def cycle(self, name: int | str) -> CycleRecord:
        """A cycle, by its number or its id. Raises `ConfigError` if it is not stored."""
        if not isinstance(name, str):
            check_count("name", name, 0)
        record = await self._record(name)
        if record is None:
            raise ConfigError(f"The agent {self.name!r} has no cycle {name} here, or it was deleted.")
        return self._redacted(cycle_from(record))

    async def _record(self, name: int | str) -> Record | None:
        if isinstance(name, str):
            records = await self._store.find(CYCLE, where={"id": name})  # and damaged ones
            return next((record for record in records if record.key.endswith(f"-{name}")), None)
        records = await self._store.find(CYCLE, prefix=cycle_prefix(name), limit=1)
        return records[0] if records else None

    async def trace(self, number: int) -> CycleTrace:
        """The prompts and replies of a cycle that has ended; the newest 100 cycles have them."""
        check_count("number", number, 0)
        record = await self._store.get(TRACE, trace_key(number))
        if record is not None and not self.location.is_durable:  # durable traces are redacted already
            record = replace(record, data=self._redact(dict(record.data)))
        if record is None or record.data.get("cycle") != number:
            return CycleTrace(number)
        with reading(record):
            calls = tuple(_traced_call(call) for call in without_tags(record.data["calls"]))
            return CycleTrace(number, calls, record.data["left_out"])

    async def memory(self) -> Memory:
        """The current memory."""
        memory = await stored_memory(self._store)
        return copied(self.location.memory) if memory is None else memory

    async def memory_at(self, cycle: int) -> Memory:
        """The memory after a cycle. Raises `ConfigError` if that is too long ago."""
        check_count("cycle", cycle, 0)
        return memory_at(await self.memory(), await self._cycles_after(cycle), cycle)

    async def diff(self, older: int, newer: int) -> tuple[MemoryChange, ...]:
        """The changes of the memory between the ends of two cycles."""
        check_count("older", older, 0)
        check_count("newer", newer, 0)
        memory, later_cycles = await self.memory(), await self._cycles_after(min(older, newer))
        return differences(memory_at(memory, later_cycles, older), memory_at(memory, later_cycles, newer))

    async def undelivered(self) -> list[Undelivered]:
        """The notices and messages that are not delivered yet, oldest first."""
        return [entry for entry in await stored_outbox(self._store, self.name) if not entry.is_over]

    async def pending(self) -> list[Feedback]:
        """The feedback that no cycle has taken yet, oldest first."""
        return await pending_mail(self._store, Feedback, MAX_PENDING)

    async def send_feedback(
        self,
        verdict: Verdict,
        message: str = "",
        *,
        cycle: int | None = None,
        action: str | None = None,
        changes: Mapping[str, Any] | None = None,
        by: str | Person = "",
    ) -> Feedback:
        """Send a person's verdict; see `CycleAgent.send_feedback`."""
        newest = await self.cycles(limit=1)
        check_cycle(self.name, cycle, newest[0].number if newest else 0)
        if cycle is None and newest and newest[0].is_undecided:
            cycle = newest[0].number
        stored = None if cycle is None else await self._record(cycle)
        record, card = None if stored is None else cycle_from(stored), await self.card()
        check_feedback(verdict, action, changes, card, record)
        mailbox = Mailbox(self._store, data_redactor(also=()))
        feedback = await mailbox.feedback(
            verdict,
            message,
            cycle=cycle,
            cycle_id="" if record is None else record.id,
            action=action,
            changes=changes,
            by=by,
        )
        if record is not None and record.is_undecided:
            for question, answer in answers_of(feedback, await self._questions_of(record), card, record):
                await Approvals(self._store).put(question, answer)
        signal_mail(self.name)
        return feedback

    async def questions(self) -> list[Approval]:
        """The open questions about the plan of the newest cycle, if it waits for a person."""
        newest = await self.cycles(limit=1)
        if not newest or not newest[0].is_undecided:
            return []
        record = await self._record(newest[0].number)
        return [] if record is None else await self._questions_of(cycle_from(record))

    async def _questions_of(self, cycle: CycleRecord) -> list[Approval]:
        """The open questions about the plan of a cycle."""
        planned = {entry["id"] for entry in objects_in(cycle.derived_data, "plan", "actions")}
        return [question for question in await Approvals(self._store).waiting() if question.node in planned]

    async def send_message(self, topic: str, data: Any = None, *, sender: str = "") -> AgentMessage:
        """Send plain JSON data to an `agent-messages` source; a `message` trigger may wait for it."""
        message = await Mailbox(self._store, data_redactor(also=())).message(topic, data, sender=sender)
        signal_mail(self.name)
        return message

    async def prune(self, cycles: int) -> dict[str, int]:
        """Delete all but the newest `cycles` cycles, and leftover mail; return the numbers of both."""
        check_count("cycles", cycles, 1)
        return await prune(self.location, cycles)

    def _redacted(self, cycle: CycleRecord) -> CycleRecord:
        """Redact a cycle that exists in this process only; stored cycles are redacted already."""
        return cycle if self.location.is_durable else redacted_cycle(cycle, self._redact)

    async def _cycles_after(self, cycle: int) -> list[CycleRecord]:
        """The cycles after `cycle`, newest first."""
        later: list[CycleRecord] = []
        before: int | None = None
        while len(later) < MAX_LOOK_BACK:
            page = await self.cycles(before=before)
            for record in page:
                if record.status == "damaged" and record.number > cycle:  # its changes are unknown
                    raise DamagedRecordError(record.error)
            later += [record for record in page if record.number > cycle]
            if len(page) < PAGE or page[-1].number <= cycle:
                break
            before = page[-1].number
        return later


def _traced_call(call: Mapping[str, Any]) -> TracedCall:
    data = (call.get("given"), call.get("result"), call.get("error"))
    step = StoredStep("", call["name"], call["began"], call["elapsed"], datetime.now(UTC), *data)
    return TracedCall(call["step"], step.exchange)


def parse_changes(text: str, name: str) -> dict[str, Any]:
    """Parse changed parameters. Raises `ConfigError`, with the `name`, for anything but a JSON object."""
    try:
        changes: Any = load_json(text)
    except ValueError as error:
        raise ConfigError(f"{name} must be a JSON object such as {CHANGES}: {error}.") from error
    if not isinstance(changes, dict):
        raise ConfigError(f"{name} must be a JSON object such as {CHANGES}, got {text!r}.")
    return cast("dict[str, Any]", changes)


def total(spend: Mapping[date, Totals]) -> Totals:
    """The sum of the spend of all days."""
    sum_of_days = Totals()
    for day in spend.values():
        sum_of_days.add(day)
    return sum_of_days


def spent_document(spent: Totals) -> dict[str, Any]:
    """The usage of cycles; `cost_usd` is the sum of the known costs, or None if all are unknown."""
    return {
        "cycles": spent.runs,
        "tokens": spent.total_tokens,
        "cost_usd": None if spent.unknown and not spent.cost_usd else spent.cost_usd,
        "cycles_of_unknown_cost": spent.unknown,
    }


def spent_text(spent: Mapping[str, Any]) -> str:
    """Render the usage of cycles; `+` marks a partly unknown cost. Empty without usage."""
    if not spent["tokens"]:
        return ""
    cost = "cost unknown" if spent["cost_usd"] is None else render_usd(spent["cost_usd"])
    is_partial = spent["cycles_of_unknown_cost"] and spent["cost_usd"] is not None
    return f"{cost}{'+' if is_partial else ''}, {spent['tokens']:,} tokens"


def duration_text(milliseconds: float) -> str:
    """Render a duration in milliseconds, seconds or minutes, depending on its length."""
    if milliseconds < SECOND:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / SECOND:.1f} s" if milliseconds < MINUTE else f"{milliseconds / MINUTE:.1f} min"


def agent_document(agent: AgentSummary, spent: Totals) -> dict[str, Any]:
    """An agent of a list; `waiting` is the cycle that waits for a person, `spent` the usage of all cycles."""
    last = agent.last
    return {
        "name": agent.name,
        "description": agent.card.description,
        "file": agent.card.file,
        "triggers": agent.card.triggers,
        "storage": agent.location,
        "status": agent.status,
        "pending_feedback": agent.pending,
        "last": None if last is None else metrics_document(last),
        "waiting": cycle_document(last, agent.feedback) if last and last.status == "waiting" else None,
        "spent": spent_document(spent),
    }


def undelivered_document(undelivered: Undelivered) -> dict[str, Any]:
    """A notice or message that is not delivered yet."""
    return {
        "event": undelivered.event,
        "cycle": getattr(undelivered.data, "cycle", None),
        "title": undelivered.title,
        "timestamp": undelivered.data.timestamp,
        "attempts": undelivered.attempts,
        "error": undelivered.error,
    }


RESULT_FIELDS = ("number", "id", "status", "trigger", "metrics", "stages", "usage", "error")


def metrics_document(cycle: CycleRecord) -> dict[str, Any]:
    """The status and metrics of a cycle, without its data, and the numbers of its memory changes."""
    return {
        **{name: getattr(cycle, name) for name in RESULT_FIELDS},
        "started_at": cycle.started_at,
        "finished_at": cycle.finished_at,
        "waits_until": cycle.waits_until,
        "changes": len(cycle.changes),
        "items_added": sum(change.before is None for change in cycle.changes),
        "items_removed": sum(change.after is None for change in cycle.changes),
    }


def cycle_document(cycle: CycleRecord, pending: Sequence[Feedback] = ()) -> dict[str, Any]:
    """All stored data of a cycle, and the status of each planned action.

    `pending` is the feedback that no cycle has taken yet, which may include verdicts on the plan.
    """
    return {
        **metrics_document(cycle),
        "actions": _actions(cycle, pending),
        "sense_errors": cycle.sense_errors,
        "derived_data": cycle.derived_data,
        "changes": [change_document(change) for change in cycle.changes],
    }


def _actions(cycle: CycleRecord, pending: Sequence[Feedback]) -> list[dict[str, Any]]:
    """The planned actions of a cycle, without data of an unexpected shape.

    `outcome` is the result or the error of an action, or the reason why it was blocked.
    """
    derived = cycle.derived_data
    ended = {str(action.get("id")): action for action in objects_in(derived, "execution", "actions")}
    approved = as_object(derived.get("governance")).get("approved")
    violations = objects_in(derived, "governance", "violations")
    verdicts = [
        feedback
        for feedback in pending
        if feedback.cycle == cycle.number and feedback.cycle_id in ("", cycle.id)
    ]

    def state_of(action: Mapping[str, Any], name: str) -> tuple[str, Any]:
        action_id = action.get("id")
        if (outcome := ended.get(str(action_id))) is not None:
            return str(outcome.get("status")), outcome.get("error") or outcome.get("result")
        if not isinstance(approved, list | tuple):
            return "planned", None
        if action_id not in approved:
            reasons = (
                violation.get("message")
                for violation in violations
                if violation.get("actionId") in (action_id, None)
            )
            return "blocked", next(reasons, None)
        if cycle.status != "waiting":
            return "planned", None
        verdict = next(
            (feedback.verdict for feedback in verdicts if feedback.action in (None, action_id, name)), None
        )
        return "waiting" if verdict is None else DECISIONS[verdict], None

    actions: list[dict[str, Any]] = []
    for action in objects_in(derived, "plan", "actions"):
        name = str(action.get("action", ""))
        status, outcome = state_of(action, name)
        actions.append(
            {
                "id": str(action.get("id")),
                "action": name,
                "params": action.get("params"),
                "reason": str(action.get("reason") or ""),
                "status": status,
                "outcome": outcome,
            }
        )
    return actions


def result_document(result: CycleResult) -> dict[str, Any]:
    """A cycle that has just ended, with its environmental data, without the whole memory."""
    return {
        **{name: getattr(result, name) for name in RESULT_FIELDS},
        "environmental_data": result.state["environmentalData"],
        "derived_data": result.state["derivedData"],
        "changes": [change_document(change) for change in result.changes],
    }


def trace_document(trace: CycleTrace) -> dict[str, Any]:
    """The model calls of a cycle."""
    calls = [
        {
            "step": call.step,
            "name": call.exchange.name,
            "seconds": round(call.exchange.seconds, 3),
            "request": call.exchange.request,
            "reply": call.exchange.reply,
            "usage": call.exchange.usage,
        }
        for call in trace.calls
    ]
    return {"cycle": trace.number, "calls": calls, "left_out": trace.left_out}


def memory_document(memory: Memory) -> dict[str, Any]:
    """A memory: the items under each key, oldest first."""
    return {"cycle": memory.cycle, "memory": memory.items}


def change_document(change: MemoryChange) -> dict[str, Any]:
    """A change of the memory."""
    return {"key": change.key, "id": change.id, "before": change.before, "after": change.after}


def title_field(item: Item) -> str:
    """The name of the field that is the title of a memory item."""
    return next((name for name in TITLE_FIELDS if item.get(name)), "id")


def details_of(item: Item) -> dict[str, Any]:
    """The fields of a memory item that follow its title, without empty ones."""
    hidden = (*HIDDEN_FIELDS, title_field(item))
    return {
        name: value for name, value in item.items() if name not in hidden and value not in ({}, [], None, "")
    }


def changed_fields(before: Item, after: Item) -> list[str]:
    """The names of the visible fields that differ."""
    return [
        name
        for name in {**before, **after}
        if before.get(name) != after.get(name) and name not in HIDDEN_FIELDS
    ]


def value_text(value: Any, most: int) -> str:
    """A value of a memory item on one line of at most `most` characters."""
    return shortened(f"{value:g}" if isinstance(value, float) else as_text(value, None), most)
