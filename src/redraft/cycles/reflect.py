"""Reflect: learn from the cycle, update the memory, capture metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import short_repr
from redraft._validation import is_number
from redraft.cycles.actuate import QUEUED
from redraft.cycles.calls import ask_model
from redraft.cycles.cycle import Cycle
from redraft.cycles.memory import (
    CONSTRAINTS,
    FEEDBACK,
    PATTERNS,
    RECENT_ACTIONS,
    STANDARD_KEYS,
    Item,
    Memory,
    MemoryChange,
    add_item,
    by_id,
    clamped,
    confidence_of,
    differences,
    moment_of,
    redacted_and_truncated,
    renewed_stamp,
    retained,
    stamp_of,
    truncated,
)
from redraft.cycles.records import CycleMetrics, as_object, objects_in, values_in
from redraft.cycles.spec import CaptureMetrics, MetricsConfig, UpdateState, memory_keys_in, substages_of
from redraft.errors import OutputError
from redraft.memory.safety import violation
from redraft.text.replies import json_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.cycles.mail import Feedback
    from redraft.cycles.spec import AgentSpec, Learn, Retention

INSIGHTS = "insights"
"""The memory key for the insights of `learn`; they are stored only if the file names the key."""
ACTION_FIELDS = ("action", "type", "status", "params", "reason", "result", "error", "durationMs")
PLAN_FIELDS = ("params", "reason")
VIOLATION_FIELDS = ("constraint", "action", "message", "blocked")
MAX_PAUSE = timedelta(days=365)
"""After a longer pause since the previous cycle, the clock may be wrong."""
MAX_ITEM = 2_000
"""The approximate size limit of an item, in characters."""

Redact = Callable[[Any], Any]


async def learn(substage: Learn, cycle: Cycle) -> None:
    """Ask the model for learnings, and merge its answer into `derivedData.learnings`.

    The memory does not change until `update-state`. Text that is not JSON is an insight. Raises any error of
    `ask_model`.
    """
    learned = _fields(await ask_model(cycle, f"reflect/{substage.name}", substage))
    cycle.learnings.append((target_of(substage), learned))
    cycle.state.derived_data["learnings"] = _merged(cycle.state.derived_data.get("learnings") or {}, learned)


def target_of(substage: Learn) -> str:
    """The memory key for new patterns.

    `target`, else the only custom key that the prompt names, else `patterns`.
    """
    if substage.config.target is not None:
        return substage.config.target.removeprefix("memory.")
    custom = custom_keys(substage)
    return custom[0] if len(custom) == 1 else PATTERNS


def custom_keys(substage: Learn) -> list[str]:
    """The memory keys that the prompt names and that the file itself defines."""
    return [key for key in memory_keys_in(substage.prompt) if key not in (*STANDARD_KEYS, INSIGHTS)]


def _fields(reply: Any) -> dict[str, Any]:
    if isinstance(reply, str):
        try:
            reply = json_of(reply)
        except OutputError:
            return {INSIGHTS: [reply]}
    if isinstance(reply, Mapping):
        return dict(cast("Mapping[str, Any]", reply))
    return {INSIGHTS: reply if isinstance(reply, list) else [reply]}


def _merged(before: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two answers; lists under the same key are concatenated."""
    merged = {**before, **learned}
    for key in before.keys() & learned.keys():
        if isinstance(before[key], list) and isinstance(learned[key], list):
            merged[key] = [*before[key], *learned[key]]
    return merged


async def update_state(substage: UpdateState, cycle: Cycle) -> None:
    """Build the next memory, which is written when the cycle ends, together with its record.

    Every refused learning is a failure of the cycle.
    """
    result = next_memory(cycle, retention_of(cycle.spec), cycle.runtime.clock())
    cycle.next_memory, cycle.changes = result.memory, result.changes
    cycle.failures += [f"reflect/{substage.name}: {refusal}" for refusal in result.refusals]


def retention_of(spec: AgentSpec) -> dict[str, Retention]:
    """The retention policies in the file, by memory key."""
    return {
        key.removeprefix("memory."): policy
        for substage in substages_of(spec, UpdateState)
        for key, policy in substage.config.retention.items()
    }


@dataclass(frozen=True, slots=True)
class NextMemory:
    """The memory after a cycle."""

    memory: Memory
    changes: tuple[MemoryChange, ...]
    """The differences from the memory before the cycle."""
    refusals: tuple[str, ...] = ()
    """The learnings that were refused, with the reasons."""


def next_memory(cycle: Cycle, retention: Mapping[str, Retention], now: datetime) -> NextMemory:
    """The memory after a cycle. Never raises for the output of a model, and modifies nothing.

    Appends action outcomes, constraint violations and feedback, merges the learnings, and applies the
    retention of each key. Every key that the agent's file names exists from now on.
    """
    all_keys = {*STANDARD_KEYS, *cycle.memory.items, *cycle.state.memory, *retention}
    all_keys |= {key for key, _ in cycle.learnings}
    keys = dict.fromkeys([*cycle.memory.items, *sorted(all_keys)])
    drafts = {key: by_id(cycle.memory.of(key)) for key in keys}
    redact = cycle.runtime.redact
    new_items = {
        RECENT_ACTIONS: action_items(cycle, redact, now),
        CONSTRAINTS: violation_items(cycle, redact, now),
        FEEDBACK: [feedback_item(feedback, redact, now) for feedback in cycle.pending],
    }
    for key, items in new_items.items():
        for item in items:
            add_item(drafts[key], item, now)
    refusals = _merge_learnings(cycle, drafts, now)
    # A wrong clock must not expire items; if the clock is right, the next cycle deletes them.
    before = cycle.previous_start
    expiry_time = now if before is None or now - before <= MAX_PAUSE else before
    memory = Memory(_within_bounds(drafts, retention, expiry_time, now), cycle.number)
    return NextMemory(memory, differences(cycle.memory, memory), tuple(refusals))


def apply_changes(
    memory: Memory,
    changes: Iterable[MemoryChange],
    cycle: int,
    retention: Mapping[str, Retention],
    now: datetime,
) -> Memory:
    """Apply changes of another memory, as changes of `cycle`, within the retention of each key."""
    items_by_id = {key: by_id(items) for key, items in memory.items.items()}
    for change in changes:
        items = items_by_id.setdefault(change.key, {})
        if change.after is None:
            items.pop(change.id, None)
        elif change.before is None:
            items[change.id] = {**change.after, "cycle": cycle}
        elif change.id in items:  # it may have been dropped since
            items[change.id] = change.after
    return Memory(_within_bounds(items_by_id, retention, now, now), cycle)


def _within_bounds(
    drafts: Mapping[str, dict[str, Item]],
    retention: Mapping[str, Retention],
    expiry_time: datetime,
    now: datetime,
) -> dict[str, Sequence[Item]]:
    return {
        key: retained(list(draft.values()), *_bounds(retention.get(key), expiry_time), now)
        for key, draft in drafts.items()
    }


def _merge_learnings(cycle: Cycle, drafts: Mapping[str, dict[str, Item]], now: datetime) -> list[str]:
    """Merge the learnings of a cycle; return the refusals, with reasons."""
    ids = count(1)
    refusals: list[str] = []
    for key, learned in cycle.learnings:
        Patterns(drafts[key], cycle, now, ids, refusals).update(learned)
        if INSIGHTS in cycle.state.memory:
            Patterns(drafts[INSIGHTS], cycle, now, ids, refusals).add(learned.get(INSIGHTS))
    return refusals


def _bounds(retention: Retention | None, now: datetime) -> tuple[int | None, datetime | None]:
    """The maximum number of items, and the time of the oldest; None: no bound."""
    if retention is None:
        return None, None
    names = retention.policy or ["max_items", "ttl"]
    policies = [names] if isinstance(names, str) else names
    max_items = retention.max_items if "max_items" in policies else None
    ttl = retention.ttl_ms if "ttl" in policies else None
    try:
        return max_items, None if ttl is None else now - timedelta(milliseconds=ttl)
    except OverflowError:  # longer than the calendar, so no item is that old
        return max_items, None


def action_items(cycle: Cycle, redact: Redact, now: datetime) -> list[Item]:
    """An item for each action: the reason, the outcome, and whether the evaluation was a success."""
    derived = cycle.state.derived_data
    planned = {entry.get("id"): entry for entry in objects_in(derived, "plan", "actions")}
    success = as_object(derived.get("evaluation")).get("success")
    items: list[Item] = []
    for position, outcome in enumerate(objects_in(derived, "execution", "actions"), 1):
        plan = _pick(planned.get(outcome.get("id"), {}), PLAN_FIELDS)
        fields = _redacted(_pick({**plan, **outcome}, ACTION_FIELDS), redact)
        if isinstance(success, bool):
            fields["success"] = success
        moment = moment_of(str(outcome.get("startedAt"))) or now
        items.append(_item(cycle.item_id(position), moment, cycle.number, fields))
    return items


def violation_items(cycle: Cycle, redact: Redact, now: datetime) -> list[Item]:
    """An item for each violation of a constraint."""
    return [
        _item(
            f"v{cycle.item_id(count)}",
            now,
            cycle.number,
            _redacted(_pick(violation, VIOLATION_FIELDS), redact),
        )
        for count, violation in enumerate(objects_in(cycle.state.derived_data, "governance", "violations"), 1)
    ]


def feedback_item(feedback: Feedback, redact: Redact, now: datetime) -> Item:
    """Feedback, pending or stored, as prompts see it."""
    fields = {
        "verdict": feedback.verdict,
        "message": feedback.message,
        "action": feedback.action,
        "changes": feedback.changes,
        "by": feedback.by or None,
        "proof": feedback.proof or None,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return _item(
        feedback.id, moment_of(feedback.timestamp) or now, feedback.cycle, _redacted(present, redact)
    )


def _item(key: str, moment: datetime, cycle: int | None, fields: Mapping[str, Any]) -> Item:
    return {"id": key, "timestamp": stamp_of(moment), "cycle": cycle, **fields}


def _redacted(fields: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    return redacted_and_truncated(fields, redact, MAX_ITEM)


def _pick(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def metrics_of(cycle: Cycle, config: MetricsConfig | None, seconds: float) -> CycleMetrics:
    """The metrics of a cycle: the tracked metrics of `config`, and always failures and skipped substages.

    Call it when Reflect has ended, wherever in it capture-metrics is; the cycle took `seconds`. Anomalies are
    counted in `derivedData.analysis`; an alert counts if its action succeeded and it is not queued.
    """
    flags = config or MetricsConfig()
    derived = cycle.state.derived_data
    anomalies = values_in(derived, "analysis", "anomalies")
    alerts = [
        outcome
        for outcome in objects_in(derived, "execution", "actions")
        if (outcome.get("type"), outcome.get("status")) == ("alert", "succeeded")
        and as_object(outcome.get("result")).get(QUEUED) is not True
    ]
    return CycleMetrics(
        duration_ms=round(seconds * 1000, 3) if flags.track_cycle_duration else None,
        tokens=cycle.usage.total_tokens if flags.track_llm_tokens else None,
        cost_usd=cycle.usage.cost_usd if flags.track_cost else None,
        anomalies=len(anomalies) if flags.track_anomaly_count else None,
        alerts=len(alerts) if flags.track_alert_count else None,
        failures=tuple(cycle.failures),
        skipped=tuple(cycle.skipped),
    )


def metrics_config(spec: AgentSpec) -> MetricsConfig | None:
    """The flags that any capture-metrics of the file sets; None if there is no capture-metrics."""
    configs = [substage.config for substage in substages_of(spec, CaptureMetrics)]
    if not configs:
        return None
    return MetricsConfig(
        **{name: any(dict(config)[name] for config in configs) for name in MetricsConfig.model_fields}
    )


CONFIDENCE_STEP = 0.1
"""The gain in confidence of a pattern that is reinforced or detected again."""
MAX_NEW = 50
MAX_NAMED = 1_000
MAX_DESCRIPTION = 500
"""The maximum length of a description, in characters."""

_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://|\bwww\.", re.IGNORECASE)
_RESERVED = frozenset({"id", "timestamp", "since", "count", "cycle"})


@dataclass(slots=True)
class Patterns:
    """Merge the learnings of a cycle into the patterns under a memory key.

    Model output is bounded and never raises.
    """

    items: dict[str, Item]
    """The items under the key, by their ids."""
    cycle: Cycle
    now: datetime
    ids: Iterator[int]
    """The numbers of new patterns within the cycle."""
    refusals: list[str] = field(default_factory=list[str])
    """The patterns that were refused, with the reasons."""

    def update(self, learned: Mapping[str, Any]) -> None:
        """Adjust the patterns that Reason saw, reinforce, remove deprecated patterns, then add new patterns.

        `learned` has `newPatterns`, `reinforcedPatterns`, `deprecatedPatterns`, `confidenceAdjustment`;
        it names existing patterns by id or exact description.
        """
        gain = learned.get("confidenceAdjustment")
        if is_number(gain):
            for name in self.items.keys() & self.cycle.rendered:
                item = self.items[name]
                self.items[name] = {**item, "confidence": clamped(confidence_of(item) + gain)}
        for name in self._named(learned.get("reinforcedPatterns")):
            self._reinforce(name)
        for name in self._named(learned.get("deprecatedPatterns")):
            del self.items[name]
        self.add(learned.get("newPatterns"))

    def add(self, patterns: Any) -> None:
        """Add patterns; a repeated pattern raises the count and confidence of the existing one instead."""
        new_patterns = _pattern_list(patterns)
        for pattern in new_patterns[:MAX_NEW]:
            self._add(pattern)
        if len(new_patterns) > MAX_NEW:
            self.refusals.append(
                f"{len(new_patterns) - MAX_NEW:,} of {len(new_patterns):,} new patterns were not taken; "
                f"the limit is {MAX_NEW} at once"
            )

    def _named(self, names: Any) -> list[str]:
        """The ids of the patterns that are named, by id or exact description."""
        unique_names = {_name_of(name) for name in _pattern_list(names)[:MAX_NAMED]} - {""}
        if not unique_names:
            return []
        return [
            name
            for name, item in self.items.items()
            if name in unique_names or item.get("description") in unique_names
        ]

    def _add(self, value: Any) -> None:
        pattern = self._pattern_of(value)
        if pattern is None:
            return
        # An agent may learn about URLs, but its memory must not contain instructions.
        if reason := violation(_ADDRESS.sub(" ", "\n".join(_texts(pattern)))):
            description = short_repr(pattern["description"])
            self.refusals.append(f"the pattern {description} was not taken: it holds {reason}")
            return
        if (similar := self._find_similar(pattern)) is not None:
            self._reinforce(similar, pattern.get("confidence"))
            return
        fields = {**pattern, "confidence": confidence_of(pattern), "count": 1}
        new = _item(f"p{self.cycle.item_id(next(self.ids))}", self.now, self.cycle.number, fields)
        add_item(self.items, new, self.now)

    def _pattern_of(self, value: Any) -> dict[str, Any] | None:
        """The pattern in a model's answer, redacted and bounded; None if it has no description."""
        fields = cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {"description": value}
        description = fields.get("description")
        if not isinstance(description, str) or not description.strip():
            return None
        others = {name: inner for name, inner in fields.items() if name not in {*_RESERVED, "description"}}
        pattern = redacted_and_truncated(
            {"description": description.strip(), **others}, self.cycle.runtime.redact, MAX_ITEM
        )
        return {**pattern, "description": truncated(pattern["description"], MAX_DESCRIPTION)}

    def _find_similar(self, pattern: Mapping[str, Any]) -> str | None:
        """The id of a near-identical pattern of the same type."""
        words, kind = content_words(pattern["description"]), pattern.get("type")
        for name, item in self.items.items():
            if words and item.get("type") == kind and content_words(item.get("description", "")) == words:
                return name
        return None

    def _reinforce(self, name: str, stated: Any = None) -> None:
        """Raise the count and the confidence, and renew the timestamp, since the pattern still occurs."""
        item = self.items[name]
        confidence = max(confidence_of(item) + CONFIDENCE_STEP, 0.0 if stated is None else clamped(stated))
        self.items[name] = {
            **item,
            "timestamp": renewed_stamp(item, self.now),
            "since": item.get("since", item["timestamp"]),
            "confidence": clamped(confidence),
            "count": item.get("count", 1) + 1,
        }


def _pattern_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _name_of(name: Any) -> str:
    """An id or a description; some models return the whole pattern instead."""
    if isinstance(name, Mapping):
        fields = cast("Mapping[Any, Any]", name)
        name = fields.get("id") or fields.get("description")
    return name.strip() if isinstance(name, str) and len(name) <= MAX_ITEM else ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)


_TOKEN = re.compile(
    r"""!=|[<>=\u2264\u2265\u2260%]+             # signs
    |(?<!\w)[-+]?\d(?:[\w.,:/-]*\w)?          # numbers, times, ranges, and names that begin with a digit
    |[^\W_]+(?:['\u2019_][^\W_]+)*            # words""",
    re.VERBOSE,
)
_FILLERS = frozenset(
    """a an the this that these those is are was were be been being am do does did has have had to of it its
    they them their there tend tends tended often usually generally typically frequently commonly mostly
    normally regularly sometimes likely probably possibly apparently seem seems seemed appear appears appeared
    very quite rather really also then just still again slightly somewhat can may might could would should
    will observed noted""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)
)
_PLURAL = re.compile(r"(?<=[a-z]{3})(?<![su])s\Z")


@lru_cache(maxsize=2048)
def content_words(description: str) -> tuple[str, ...]:
    """The words of a description, without case, punctuation, plurals, articles and hedges.

    They are equal for near-identical descriptions.
    """
    words: list[str] = []
    for token in _TOKEN.findall(description):
        plain = token.casefold().replace("\u2019", "'")
        is_name = (token.isupper() and len(token) > 1) or (bool(words) and token[0].isupper())
        if is_name or plain not in _FILLERS:
            words.append(_PLURAL.sub("", plain))
    return tuple(words)
