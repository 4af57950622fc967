"""Comparison: two versions beside one another, as lines or fields, with the points of the critique."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.core.texts import as_text
from redraft.core.version import ReflectionVersion
from redraft.loop.addressed import Critique, addressed
from redraft.loop.version_diff import field_text, version_diff
from redraft.text.diff import ABSENT, similarity
from redraft.text.hunks import Line, hunks
from redraft.web.shown import clipped

CONTEXT = 2
ALIKE = 0.4
"""The similarity below which two texts stand side by side: their words would only be mixed up."""
LARGEST = 200_000
"""Characters of both texts together beyond which they are not compared word by word in a page."""


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
    diff = version_diff(older, newer)
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
    if similarity(before, after) < ALIKE:
        whole = (clipped(before), clipped(after))
        return Comparison(older, newer, diff.critique, diff.is_same, whole=whole)
    return Comparison(older, newer, diff.critique, diff.is_same, hunks=tuple(hunks(diff.words, CONTEXT)))
