"""Cycles and memory items for the tests of Reflect."""

from dataclasses import replace
from datetime import timedelta

from redraft.cycles.memory import Memory, stamp_of
from support.cycles import NOON, cycle_of, spec_of


def at(milliseconds):
    """A time so many milliseconds after noon."""
    return NOON + timedelta(milliseconds=milliseconds)


def item(key, milliseconds=0, **fields):
    """An item that was remembered so many milliseconds after noon."""
    return {"id": key, "timestamp": stamp_of(at(milliseconds)), **fields}


def pattern(key, description, confidence=0.5, **fields):
    """A pattern that was learned at noon."""
    return item(key, description=description, confidence=confidence, count=1, **fields)


def ids(items):
    return [item["id"] for item in items]


def reflecting(*substages, memory=None, replies=(), now=NOON, redact=None):
    """Return cycle 7 of an agent with these substages of Reflect, whose memory has these items by key."""
    items = memory or {}
    spec = spec_of(reflect=list(substages)) if substages else spec_of()
    cycle, _ = cycle_of(spec, replies=replies, memory=items)
    cycle.memory = Memory(items, cycle.number - 1)
    cycle.runtime = replace(cycle.runtime, clock=lambda: now, redact=redact or cycle.runtime.redact)
    return cycle
