"""Comparison: two versions beside one another, as lines or fields, with the points of the critique."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from redraft._texts import as_text
from redraft.loop.version_diff import Critique, addressed, field_text, version_diff
from redraft.text.diff import ABSENT, Line, hunks, similarity, word_diff
from redraft.types import ReflectionVersion
from redraft.web.rendering import clipped

if TYPE_CHECKING:
    from redraft.text.diff import Op

CONTEXT = 2
ALIKE = 0.4
"""The similarity below which two texts stand side by side: their words would only be mixed up."""
LARGEST = 200_000
"""Characters of both texts together beyond which they are not compared word by word in a page."""
SHORT = 20_000
"""Characters of both texts together up to which it is remembered how they differ."""
REMEMBERED = 500
"""Pairs of texts that are remembered: the page of a run at work compares the same ones again and again."""


@dataclass(frozen=True, slots=True)
class Field:
    """Hold a field that differs; `old` and `new` are None where it is not there."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold what differs between two versions: `fields`, `hunks` of lines, or both texts `whole`."""

    older: ReflectionVersion
    newer: ReflectionVersion
    critique: Critique
    is_same: bool
    fields: tuple[Field, ...] = ()
    hunks: tuple[list[Line] | int, ...] = ()
    whole: tuple[str, str] | None = None


def comparison(older: ReflectionVersion, newer: ReflectionVersion) -> Comparison:
    """Compare two versions."""
    before, after = as_text(older.output), as_text(newer.output)
    if len(before) + len(after) > LARGEST:
        return Comparison(
            older,
            newer,
            addressed(older.evaluation, newer.evaluation),
            before == after,
            whole=(clipped(before), clipped(after)),
        )
    diff = version_diff(older, newer, _words)
    if diff.fields is not None:
        fields = tuple(
            Field(
                change.path or "(the whole)",
                None if change.old is ABSENT else clipped(field_text(change.old)),
                None if change.new is ABSENT else clipped(field_text(change.new)),
            )
            for change in diff.fields
        )
        return Comparison(older, newer, diff.critique, diff.is_same, fields=fields)
    if _similarity(before, after) < ALIKE:
        whole = (clipped(before), clipped(after))
        return Comparison(older, newer, diff.critique, diff.is_same, whole=whole)
    return Comparison(older, newer, diff.critique, diff.is_same, hunks=tuple(hunks(diff.words, CONTEXT)))


_kept_words = lru_cache(REMEMBERED)(word_diff)
_kept_similarity = lru_cache(REMEMBERED)(similarity)


def _words(before: str, after: str) -> list[tuple[Op, str]]:
    return (_kept_words if _is_short(before, after) else word_diff)(before, after)


def _similarity(before: str, after: str) -> float:
    return (_kept_similarity if _is_short(before, after) else similarity)(before, after)


def _is_short(before: str, after: str) -> bool:
    return len(before) + len(after) <= SHORT
