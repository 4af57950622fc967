"""Reflect: learn patterns, update the memory, capture metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import short_repr
from redraft.cycles.actuate import QUEUED
from redraft.cycles.asking import asked
from redraft.cycles.memory import (
    CONSTRAINTS,
    FEEDBACK,
    PATTERNS,
    RECENT_ACTIONS,
    STANDARD_KEYS,
    Memory,
    MemoryChange,
    clamped,
    confidence_of,
    moment_of,
    stamp_of,
)
from redraft.cycles.records import CycleMetrics
from redraft.cycles.spec import CaptureMetrics, MetricsConfig, UpdateState, keys_read
from redraft.errors import OutputError
from redraft.lessons.safety import violation
from redraft.text.characters import without_invisible
from redraft.text.replies import json_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from redraft.cycles.mail import Feedback
    from redraft.cycles.memory import Item
    from redraft.cycles.spec import AgentSpec, Learn, Retention
    from redraft.cycles.state import Cycle


def metrics_of(cycle: Cycle, config: MetricsConfig | None, ended_at: datetime) -> CycleMetrics:
    """Return the metrics of a cycle: what `config` tracks, and always what failed or was skipped.

    To be taken when Reflect has ended, wherever capture-metrics stands in it. Anomalies are those of
    `derivedData.analysis`, alerts the actions of this type that were done; one that waits for the database
    to be back is not sent.
    """
    flags = config or MetricsConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)
    derived = cycle.state.derived_data
    anomalies = _listed(derived, "analysis", "anomalies")
    alerts = [one for one in _listed(derived, "execution", "actions") if _is_alert(one)]
    elapsed = (ended_at - cycle.started_at).total_seconds() * 1000
    return CycleMetrics(
        duration_ms=max(0.0, elapsed) if flags.track_cycle_duration else None,
        tokens=cycle.usage.total_tokens if flags.track_llm_tokens else None,
        cost_usd=cycle.usage.cost_usd if flags.track_cost else None,
        anomalies=len(anomalies) if flags.track_anomaly_count else None,
        alerts=len(alerts) if flags.track_alert_count else None,
        failures=tuple(cycle.failures),
        skipped=tuple(cycle.skipped),
    )


def tracked(spec: AgentSpec) -> MetricsConfig | None:
    """Return what the agent's file tracks: a flag that any of its capture-metrics sets; None without one."""
    reflect = spec.stages.reflect
    configs = [
        substage.config
        for substage in (reflect.substages if reflect is not None else ())
        if isinstance(substage, CaptureMetrics)
    ]
    if not configs:
        return None
    return MetricsConfig(
        **{name: any(dict(config)[name] for config in configs) for name in MetricsConfig.model_fields}
    )


def _listed(derived: Mapping[str, Any], stage: str, name: str) -> list[Any]:
    part: Any = derived.get(stage)
    listed: Any = cast("Mapping[str, Any]", part).get(name) if isinstance(part, Mapping) else None
    return cast("list[Any]", listed) if isinstance(listed, list) else []


def _is_alert(action: Any) -> bool:
    if not isinstance(action, Mapping):
        return False
    fields = cast("Mapping[str, Any]", action)
    result: Any = fields.get("result")
    is_queued = isinstance(result, Mapping) and cast("Mapping[str, Any]", result).get(QUEUED) is True
    return fields.get("type") == "alert" and fields.get("status") == "succeeded" and not is_queued


MOST_ITEMS = 10_000
"""So many items a key keeps where its policy names no number: a file without one must not fill a disk."""


def retained(items: Sequence[Item], retention: Retention | None, now: datetime) -> Sequence[Item]:
    """Return the items that are kept, in their order; `items` itself where all are.

    `max_items` keeps the most recent by their timestamps; of two of the same time the later one in the array
    is the younger. `ttl` discards what is older than `ttl_ms`; what is exactly that old stays, and so does
    what is of the future. Both together keep what both keep. Specification 004, Retention Policies.
    """
    most, oldest = _bounds(retention, now)
    stamps = [item.get("timestamp", "") for item in items] if oldest else []  # they sort as the times do
    if min(stamps, default=oldest) < oldest:
        items = [item for item, stamp in zip(items, stamps, strict=True) if stamp >= oldest]
    return items if len(items) <= most else _youngest(items, most)


def _youngest(items: Sequence[Item], most: int) -> list[Item]:
    stamps = [item.get("timestamp", "") for item in items]
    if stamps == sorted(stamps):  # as they are unless one was renewed
        return list(items[len(items) - most :])
    by_age = sorted(range(len(items)), key=stamps.__getitem__)
    return [items[position] for position in sorted(by_age[len(items) - most :])]


def _bounds(retention: Retention | None, now: datetime) -> tuple[int, str]:
    """Return how many items are kept at most, and the stamp of the oldest (empty: of any age)."""
    if retention is None:
        return MOST_ITEMS, ""
    given = retention.policy or ["max_items", "ttl"]
    policies = [given] if isinstance(given, str) else given
    most = retention.max_items if "max_items" in policies else None
    ttl = retention.ttl_ms if "ttl" in policies else None
    return MOST_ITEMS if most is None else most, "" if ttl is None else _before(now, ttl)


def _before(now: datetime, milliseconds: int) -> str:
    try:
        return stamp_of(now - timedelta(milliseconds=milliseconds))
    except OverflowError:  # longer than there are years: nothing is that old
        return ""


class DraftedItems:
    """Hold items that are being added, replaced and removed, and keep account of it.

    A position is that of an item under its key, and stays the same whatever is removed.
    """

    def __init__(self, key: str, before: Sequence[Item]) -> None:
        self.key = key
        self._before = before
        self._items = list(before)
        self._replaced: set[int] = set()
        self._removed: set[int] = set()

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        every = enumerate(self._items)
        return (one for one in every if one[0] not in self._removed) if self._removed else every

    def __getitem__(self, position: int) -> Item:
        return self._items[position]

    def append(self, item: Item) -> None:
        """Add an item; its timestamp is never before that of the last one, even if the clock went back."""
        last = str(self._items[-1].get("timestamp", "")) if self._items else ""
        self._items.append(item if item["timestamp"] >= last else {**item, "timestamp": last})

    def replace(self, position: int, item: Item) -> None:
        """Put an item in the place of another, whose id it has."""
        self._items[position] = item
        self._replaced.add(position)

    def remove(self, position: int) -> None:
        """Take an item out."""
        self._removed.add(position)

    def finished(self, retention: Retention | None, now: datetime) -> tuple[list[Item], list[MemoryChange]]:
        """Return the items within their retention, and all that differs from those before."""
        drafted = [item for _, item in self] if self._removed else self._items
        kept = retained(drafted, retention, now)
        gone = self._removed | self._dropped(drafted, kept)
        return list(kept), [*self._changes(gone)]

    def _dropped(self, drafted: Sequence[Item], kept: Sequence[Item]) -> set[int]:
        """Return the positions of what retention dropped; mostly that is the first few."""
        dropped: set[int] = set()
        position_of = self._position_of()
        at = 0
        while len(drafted) - at > len(kept) - (at - len(dropped)):
            if at - len(dropped) < len(kept) and drafted[at] is kept[at - len(dropped)]:
                at += 1
                continue
            dropped.add(position_of(at))
            at += 1
        return dropped

    def _position_of(self) -> Callable[[int], int]:
        if not self._removed:
            return int
        return [position for position, _ in self].__getitem__

    def _changes(self, gone: set[int]) -> Iterator[MemoryChange]:
        known = len(self._before)
        for at in sorted(position for position in gone if position < known):
            yield MemoryChange(self.key, _id(self._before[at]), self._before[at], None, at)
        for at in sorted(self._replaced - gone):
            if at < known and self._items[at] != self._before[at]:
                yield MemoryChange(self.key, _id(self._items[at]), self._before[at], self._items[at])
        for at in range(known, len(self._items)):
            if at not in gone:
                yield MemoryChange(self.key, _id(self._items[at]), None, self._items[at])


def _id(item: Item) -> str:
    return str(item.get("id", ""))


ENOUGH = 6
"""Of so many words a description may have one more than another that says the same."""

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
# A word of these makes another statement of the same words; so does a number, a sign, or a name.
_TURNS = frozenset(
    """no not never none nor neither nothing without cannot only except unless until if but rarely seldom
    hardly barely less least fewer more most all any every each some few many up down high low higher lower
    above below over under before after increase decrease increasing decreasing rise fall rising falling
    first last min max minimum maximum left right true false on off in out start stop begin end open close
    fast slow hot cold always early late success failure pass fail new old""".split()  # noqa: SIM905 (as above)
)
_PLURAL = re.compile(r"(?<=[a-z]{3})(?<![su])s\Z")


@dataclass(frozen=True, slots=True)
class Essence:
    """Hold the words of a description without fillers, and those of them that make it another's if added."""

    words: tuple[str, ...]
    firm: frozenset[str]


@lru_cache(maxsize=2048)
def essence_of(description: str) -> Essence:
    """Return the essence of a description; case, punctuation, plurals, articles and hedges don't count."""
    words: list[str] = []
    firm: set[str] = set()
    for token in _TOKEN.findall(description):
        plain = token.casefold().replace("\u2019", "'")
        is_name = (token.isupper() and len(token) > 1) or (bool(words) and token[0].isupper())
        if plain in _FILLERS and not is_name:
            continue
        word = _PLURAL.sub("", plain)
        if is_name or plain in _TURNS or "n't" in plain or not word.isalpha():
            firm.add(word)
        words.append(word)
    return Essence(tuple(words), frozenset(firm))


def alike(one: Essence, other: Essence) -> bool:
    """Say whether two descriptions are near-identical: the same words in the same order.

    Of many words one may be in excess, unless it is a number, a sign, a negation, a direction or a name.
    A word in another's place makes two: "above 80" and "above 90", "red valve" and "blue valve".
    """
    excess = len(one.words) - len(other.words)
    if not excess:
        return bool(one.words) and one.words == other.words
    short, long = (other, one) if excess > 0 else (one, other)
    if abs(excess) > 1 or len(short.words) < ENOUGH:
        return False
    at = next(
        (at for at, (left, right) in enumerate(zip(short.words, long.words, strict=False)) if left != right),
        len(short.words),
    )
    return short.words[at:] == long.words[at + 1 :] and long.words[at] not in long.firm


DEEPEST = 8
LARGEST_INT = 2**63
MARGIN = 4
"""How many times as much is redacted as is kept."""


def bounded(value: Any, most: int) -> Any:
    """Return JSON data of about `most` characters at most; what was cut ends in `...` and says how much.

    Characters that can't be seen are left out; a number that JSON does not have becomes None, anything
    else that is no data its text. Never raises for plain Python data.
    """
    return _copied(value, _Room(most), DEEPEST)


def fit_to_keep(value: Any, redacted: Callable[[Any], Any], most: int) -> Any:
    """Return data `redacted` and then bounded: half a secret would not be known for one."""
    room = _Room(MARGIN * most)
    copy = redacted(_copied(value, room, DEEPEST))
    return copy if MARGIN * most - room.left <= most else bounded(copy, most)


@dataclass(slots=True)
class _Room:
    """Count down the characters that are left."""

    left: int


def _copied(value: Any, room: _Room, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, room)
    if value is None or isinstance(value, bool | int | float):
        room.left -= 8
        return _number(value)
    if isinstance(value, Mapping) and depth:
        return _mapping(cast("Mapping[Any, Any]", value), room, depth)
    if isinstance(value, list | tuple) and depth:
        return _list(cast("list[Any]", value), room, depth)
    if isinstance(value, Mapping | list | tuple):
        return "..."
    return _text(str(value), room)


def _number(value: float | None) -> float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= LARGEST_INT else None
    return value if isfinite(value) else None


def _text(text: str, room: _Room) -> str:
    left = max(0, room.left)
    begin = text[: 2 * left + 1]
    seen = begin if begin.isascii() and begin.isprintable() else without_invisible(begin)
    room.left -= len(seen) + 2
    return seen if len(seen) <= left and len(text) <= 2 * left + 1 else f"{seen[:left]}..."


def _mapping(value: Mapping[Any, Any], room: _Room, depth: int) -> dict[str, Any]:
    copy: dict[str, Any] = {}
    for done, (key, inner) in enumerate(value.items()):
        if room.left <= 0:
            copy["..."] = f"{len(value) - done:,} more"
            break
        name = _text(str(key), room)
        copy[name] = _copied(inner, room, depth - 1)
    return copy


def _list(value: list[Any] | tuple[Any, ...], room: _Room, depth: int) -> list[Any]:
    copy: list[Any] = []
    for done, inner in enumerate(value):
        if room.left <= 0:
            copy.append(f"... {len(value) - done:,} more")
            break
        copy.append(_copied(inner, room, depth - 1))
    return copy


RISE = 0.1
"""What a pattern gains in confidence that is reinforced, or found again."""
MOST_NEW = 50
MOST_NAMED = 1_000
LONGEST = 500
"""Characters of a description."""
LARGEST = 2_000
"""Characters of a pattern, about."""

_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://|\bwww\.", re.IGNORECASE)
_OURS = frozenset({"id", "timestamp", "since", "count", "cycle"})


@dataclass(slots=True)
class Patterns:
    """Take what was learnt in a cycle into the patterns under one key of the memory.

    `now` is the stamp of what is new, `ids` number it within the cycle, `redacted` withholds its secrets.
    What a model made up is bounded, and nothing of it raises: `refusals` says what was not taken, and why.
    """

    items: DraftedItems
    cycle: int
    now: str
    ids: Iterator[int]
    redacted: Callable[[Any], Any]
    refusals: list[str] = field(default_factory=list[str])

    def take(self, learnt: Mapping[str, Any], rendered: set[str]) -> None:
        """Adjust those that Reason saw, reinforce, retire the deprecated, add what is new, in this order.

        `learnt` has `newPatterns`, `reinforcedPatterns`, `deprecatedPatterns`, `confidenceAdjustment`;
        patterns that are there are named by id or exact description.
        """
        self._adjust(learnt.get("confidenceAdjustment"), rendered)
        for position, _ in self._named(learnt.get("reinforcedPatterns")):
            self._found_again(position)
        for position, _ in self._named(learnt.get("deprecatedPatterns")):
            self.items.remove(position)
        self.add(learnt.get("newPatterns"))

    def add(self, given: Any) -> None:
        """Add patterns; one that says what another says raises its count and confidence instead."""
        listed = _pattern_list(given)
        for one in listed[:MOST_NEW]:
            self._add(one)
        if len(listed) > MOST_NEW:
            self.refusals.append(
                f"{len(listed) - MOST_NEW:,} of {len(listed):,} new patterns were not taken; "
                f"at most {MOST_NEW} are at once"
            )

    def _adjust(self, by: Any, rendered: set[str]) -> None:
        if isinstance(by, bool) or not isinstance(by, int | float) or not isfinite(by):
            return
        for position, item in list(self.items):
            if item.get("id") in rendered:
                self.items.replace(position, {**item, "confidence": clamped(confidence_of(item) + by)})

    def _named(self, names: Any) -> list[tuple[int, Item]]:
        asked = {_name_of(name) for name in _pattern_list(names)[:MOST_NAMED]} - {""}
        if not asked:
            return []
        return [
            (position, item)
            for position, item in self.items
            if item.get("id") in asked or item.get("description") in asked
        ]

    def _add(self, given: Any) -> None:
        pattern = self._pattern_of(given)
        if pattern is None:
            return
        # One who watches over HTTP learns about addresses; orders have no place in a memory.
        if why := violation(_ADDRESS.sub(" ", "\n".join(_texts(pattern)))):
            said = short_repr(pattern["description"])
            self.refusals.append(f"the pattern {said} was not taken: it holds {why}")
            return
        position = self._like(pattern)
        if position is not None:
            self._found_again(position, pattern.get("confidence"))
            return
        ours = {"id": f"p{self.cycle}-{next(self.ids)}", "timestamp": self.now, "cycle": self.cycle}
        self.items.append({**ours, **pattern, "confidence": confidence_of(pattern), "count": 1})

    def _pattern_of(self, given: Any) -> dict[str, Any] | None:
        """Return a pattern as it may be kept; None for what says nothing."""
        fields = cast("Mapping[Any, Any]", given) if isinstance(given, Mapping) else {"description": given}
        described = fields.get("description")
        if not isinstance(described, str) or not described.strip():
            return None
        others = {name: value for name, value in fields.items() if name not in {*_OURS, "description"}}
        pattern = fit_to_keep({"description": described.strip(), **others}, self.redacted, LARGEST)
        return {**pattern, "description": bounded(pattern["description"], LONGEST)}

    def _like(self, pattern: Mapping[str, Any]) -> int | None:
        """Return where there is one that says the same."""
        essence, kind = essence_of(pattern["description"]), pattern.get("type")
        size = len(essence.words)
        for position, item in self.items:
            other = essence_of(item.get("description", ""))
            # The lengths alone rule most of them out, at a fraction of what the call takes.
            is_near = len(other.words) - size in (-1, 0, 1) and alike(essence, other)
            if is_near and item.get("type") == kind:
                return position
        return None

    def _found_again(self, position: int, stated: Any = None) -> None:
        """Raise the count and the confidence, and renew the timestamp: what is still seen is not old."""
        item = self.items[position]
        sure = max(confidence_of(item) + RISE, 0.0 if stated is None else clamped(stated))
        known_since = item.get("since", item["timestamp"])
        self.items.replace(
            position,
            {
                **item,
                "timestamp": max(self.now, item["timestamp"]),
                "since": known_since,
                "confidence": clamped(sure),
                "count": item.get("count", 1) + 1,
            },
        )


def _pattern_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _name_of(name: Any) -> str:
    """Return an id or a description; a model also gives the whole pattern instead."""
    if isinstance(name, Mapping):
        fields = cast("Mapping[Any, Any]", name)
        name = fields.get("id") or fields.get("description")
    return name.strip() if isinstance(name, str) and len(name) <= LARGEST else ""


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


"""Characters of an item, about."""
_OF_AN_ACTION = ("action", "type", "status", "params", "reason", "result", "error", "durationMs")
_OF_A_PLAN = ("params", "reason")
_OF_A_VIOLATION = ("constraint", "action", "message", "blocked")

Redacted = Callable[[Any], Any]


def action_items(number: int, derived: Mapping[str, Any], redacted: Redacted, now: datetime) -> list[Item]:
    """Return what became of each action: with what and why it was planned, and whether the cycle worked."""
    planned = {one.get("id"): one for one in _objects(derived, "plan", "actions")}
    worked = _object(derived.get("evaluation")).get("success")
    items: list[Item] = []
    for place, done in enumerate(_objects(derived, "execution", "actions"), 1):
        plan = _chosen(planned.get(done.get("id"), {}), _OF_A_PLAN)
        said = _kept(_chosen({**plan, **done}, _OF_AN_ACTION), redacted)
        if isinstance(worked, bool):
            said["success"] = worked
        stamp = moment_of(str(done.get("startedAt"))) or now
        items.append(_item(str(done.get("id") or f"{number}-{place}"), stamp, number, said))
    return items


def violation_items(number: int, derived: Mapping[str, Any], redacted: Redacted, now: datetime) -> list[Item]:
    """Return the constraints that the plan did not keep to."""
    return [
        _item(f"v{number}-{count}", now, number, _kept(_chosen(violation, _OF_A_VIOLATION), redacted))
        for count, violation in enumerate(_objects(derived, "governance", "violations"), 1)
    ]


def feedback_item(feedback: Feedback, redacted: Redacted, now: datetime) -> Item:
    """Return what a person said, as prompts see it, pending or remembered."""
    said = {
        "verdict": feedback.verdict,
        "message": feedback.message,
        "action": feedback.action,
        "changes": feedback.changes,
        "by": feedback.by or None,
    }
    given = {name: value for name, value in said.items() if value is not None}
    return _item(feedback.id, moment_of(feedback.timestamp) or now, feedback.cycle, _kept(given, redacted))


def _item(key: str, moment: datetime, cycle: int | None, said: Mapping[str, Any]) -> Item:
    return {"id": key, "timestamp": stamp_of(moment), "cycle": cycle, **said}


def _kept(said: Mapping[str, Any], redacted: Redacted) -> dict[str, Any]:
    return fit_to_keep(said, redacted, LARGEST)


def _chosen(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _objects(derived: Mapping[str, Any], stage: str, name: str) -> list[Mapping[str, Any]]:
    listed = _object(derived.get(stage)).get(name)
    if not isinstance(listed, list):
        return []
    return [_object(one) for one in cast("list[Any]", listed) if isinstance(one, Mapping)]


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


INSIGHTS = "insights"
"""The key that takes the insights of `learn`, if the agent's file names it; else only the cycle has them."""


@dataclass(frozen=True, slots=True)
class NextMemory:
    """Hold the memory after a cycle, what differs from the one before, and what was not taken, and why."""

    memory: Memory
    changes: tuple[MemoryChange, ...]
    refusals: tuple[str, ...] = ()


def next_memory(cycle: Cycle, retention: Mapping[str, Retention], now: datetime) -> NextMemory:
    """Return the memory after a cycle; changes nothing, and what the model made up does not make it raise.

    Appends what became of actions, violations of constraints and what people said, takes in what was learnt,
    and keeps each key within its retention. A key that the agent's file names is there from now on.
    """
    named = {*STANDARD_KEYS, *cycle.memory.items, *cycle.state.memory, *retention}
    keys = dict.fromkeys([*cycle.memory.items, *sorted(named | {key for key, _ in cycle.learnt})])
    drafted = {key: DraftedItems(key, cycle.memory.of(key)) for key in keys}
    redacted, derived = cycle.means.redacted, cycle.state.derived_data
    for item in action_items(cycle.number, derived, redacted, now):
        drafted[RECENT_ACTIONS].append(item)
    for item in violation_items(cycle.number, derived, redacted, now):
        drafted[CONSTRAINTS].append(item)
    for feedback in cycle.pending:
        drafted[FEEDBACK].append(feedback_item(feedback, redacted, now))
    refusals = _learnt(cycle, drafted, now)
    items: dict[str, Any] = {}
    changes: list[MemoryChange] = []
    for key, draft in drafted.items():
        items[key], changed = draft.finished(retention.get(key), now)
        changes += changed
    return NextMemory(Memory(items, cycle.number), tuple(changes), tuple(refusals))


def _learnt(cycle: Cycle, drafted: Mapping[str, DraftedItems], now: datetime) -> list[str]:
    """Take in what was learnt; returns what was not taken, and why."""
    ids = count(1)
    refusals: list[str] = []
    for key, learnt in cycle.learnt:
        stamp, redacted = stamp_of(now), cycle.means.redacted
        Patterns(drafted[key], cycle.number, stamp, ids, redacted, refusals).take(learnt, cycle.rendered)
        if INSIGHTS in cycle.state.memory:
            insights = Patterns(drafted[INSIGHTS], cycle.number, stamp, ids, redacted, refusals)
            insights.add(learnt.get(INSIGHTS))
    return refusals


async def learn(substage: Learn, cycle: Cycle) -> None:
    """Ask the model what can be learnt; it stands in `derivedData.learnings`, several merged key by key.

    The memory stays as it is: `update-state` takes it in. A text that is no JSON is an insight. Raises what
    `asked` raises, for a reply that does not follow `outputSchema` twice, too.
    """
    reply = await asked(
        cycle, f"reflect/{substage.name}", substage.prompt, substage.output_schema, substage.model
    )
    learnt = _fields(reply)
    cycle.learnt.append((target_of(substage), learnt))
    cycle.state.derived_data["learnings"] = _merged(cycle.state.derived_data.get("learnings") or {}, learnt)


def target_of(substage: Learn) -> str:
    """Return the memory key that new patterns go to.

    It is `target`, else the only key of the user's own that the prompt names, else `patterns`.
    """
    if substage.config.target is not None:
        return substage.config.target.removeprefix("memory.")
    own = [key for key in keys_read(substage.prompt) if key not in (*STANDARD_KEYS, INSIGHTS)]
    return own[0] if len(own) == 1 else PATTERNS


def _fields(reply: Any) -> dict[str, Any]:
    if isinstance(reply, str):
        try:
            reply = json_of(reply)
        except OutputError:
            return {INSIGHTS: [reply]}
    if isinstance(reply, Mapping):
        return dict(cast("Mapping[str, Any]", reply))
    return {INSIGHTS: reply if isinstance(reply, list) else [reply]}


def _merged(before: Mapping[str, Any], learnt: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, the lists of one key joined."""
    merged = {**before, **learnt}
    for key in before.keys() & learnt.keys():
        if isinstance(before[key], list) and isinstance(learnt[key], list):
            merged[key] = [*before[key], *learnt[key]]
    return merged


async def update_state(substage: UpdateState, cycle: Cycle) -> None:
    """Make the next memory of the cycle; it is written when the cycle ends, with its record, or not at all.

    What was not taken of what a model learnt is among the cycle's failures. Where a file has several of
    these, each keeps to the retention of all.
    """
    made = next_memory(cycle, retention_of(cycle.spec), cycle.means.clock())
    cycle.next_memory, cycle.changes = made.memory, made.changes
    cycle.failures += [f"reflect/{substage.name}: {refusal}" for refusal in made.refusals]


def retention_of(spec: AgentSpec) -> dict[str, Retention]:
    """Return how long each key of the memory keeps what, as the agent's file has it."""
    reflect = spec.stages.reflect
    return {
        key.removeprefix("memory."): policy
        for substage in (reflect.substages if reflect is not None else ())
        if isinstance(substage, UpdateState)
        for key, policy in substage.config.retention.items()
    }
