"""prompt_scopes: what the templates of a prompt see, the memory within its share of tokens."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft.core.tokens import estimate_tokens
from redraft.cycles.confidence import confidence_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.memory import Item
    from redraft.text.templates import Template


def prompt_scopes(cycle: Cycle, template: Template, *, reasoning: bool = False) -> tuple[dict[str, Any], str]:
    """Return the scopes of a prompt, and a note on what of the memory was left out of it (empty: nothing).

    All keys that the template reads share `spec.memory.prompt_tokens`: of each in turn its best item is
    taken (confidence, then recency), so that no key crowds out another. What is shown stands as it is
    stored, oldest first. In a prompt of Reason (`reasoning`) the ids shown go to `cycle.rendered`.
    """
    memory = cycle.state.memory
    read = {key: memory.get(key, ()) for key in _keys_read(template, memory)}
    shown = _within(read, cycle.spec.memory.prompt_tokens)
    if reasoning:
        cycle.rendered |= {str(item["id"]) for items in shown.values() for item in items if "id" in item}
    agent = {"name": cycle.spec.name, "description": cycle.spec.description}
    scopes = cycle.state.scopes(agent=agent, cycle=cycle.number)
    return {**scopes, "memory": {**memory, **shown}}, _note(read, shown)


def _keys_read(template: Template, memory: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the keys that a template reads, by name; all of them where it reads the memory as a whole."""
    paths = [path for path in template.paths if path[0] == "memory"]
    named = {str(path[1]) for path in paths if len(path) > 1}
    whole = set(memory) if any(len(path) == 1 for path in paths) else set[str]()
    return sorted(named | whole)


SHORTEST = 12
"""Tokens that even an item without content takes, for its id and timestamp."""
MISSES = 10
"""After so many items that don't fit any more no further one is tried."""

Candidate: TypeAlias = tuple[float, str, int, str]
"""An item by what makes it worth showing: confidence, timestamp, position; and its key."""


def _within(read: Mapping[str, Sequence[Item]], most: int) -> dict[str, list[Item]]:
    """Return of each key what fits into the tokens together; an item that is too long makes no other wait."""
    may_all_fit = SHORTEST * sum(map(len, read.values())) <= most
    if may_all_fit and estimate_tokens(_written(read)) <= most:
        return {key: list(items) for key, items in read.items()}
    chosen: dict[str, set[int]] = {key: set() for key in read}
    left, misses = most, 0
    for _, _, position, key in _in_turn(read):
        if left < SHORTEST or misses == MISSES:
            break
        tokens = estimate_tokens(_written(read[key][position]))
        if tokens <= left:
            left -= tokens
            chosen[key].add(position)
        else:
            misses += 1
    return {key: [items[position] for position in sorted(chosen[key])] for key, items in read.items()}


def _in_turn(read: Mapping[str, Sequence[Item]]) -> Iterator[Candidate]:
    """Yield the best of each key, then the second best of each..."""
    ranked = [sorted(_candidates(key, items), reverse=True) for key, items in read.items()]
    for turn in zip_longest(*ranked):
        yield from sorted((one for one in turn if one is not None), reverse=True)


def _candidates(key: str, items: Sequence[Item]) -> list[Candidate]:
    return [
        (confidence_of(item), str(item.get("timestamp", "")), position, key)
        for position, item in enumerate(items)
    ]


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _note(read: Mapping[str, Sequence[Item]], shown: Mapping[str, Sequence[Item]]) -> str:
    left_out = [
        f"{len(items) - len(shown[key]):,} of {len(items):,} of memory.{key}"
        for key, items in read.items()
        if len(shown[key]) < len(items)
    ]
    return f"(Left out of the memory above, to keep it short: {', '.join(left_out)}.)" if left_out else ""
