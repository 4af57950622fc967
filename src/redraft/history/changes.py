"""The diff page: what changed between two versions of a run, and which issues that resolved."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.loop.record import Process, RunRecord
from redraft.loop.runs import Runs, StoredRun
from redraft.loop.version_diff import Critique, addressed, diff_document, field_text, version_diff
from redraft.text.diff import ABSENT, Line, hunks, similarity, word_diff
from redraft.types import ReflectionVersion
from redraft.web.page import NotFoundError, Page, PageRequest
from redraft.web.rendering import clipped

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redraft.text.diff import Op, Piece


VIEWS = ("inline", "side")
CONTEXT = 2
ALIKE = 0.4
"""Texts less similar than this are shown in full: a word diff of them would be noise."""
LARGEST = 200_000
"""Combined length, in characters, beyond which a page does not compare texts word by word."""
SHORT = 20_000
"""Combined length, in characters, up to which a diff is cached."""
REMEMBERED = 500
"""Diffs in the cache: the page of an active run compares the same versions again and again."""


async def diff(request: PageRequest) -> DiffView:
    """Compare version `a` (default: first) with `b` (default: best), inline or side by side."""
    view = request.query.get("view", VIEWS[0])
    if view not in VIEWS:
        raise ConfigError(f"view must be one of {', '.join(VIEWS)}, got {view!r}.")
    try:
        record = await Runs(request.project.store).get(request.path["run_id"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    stored = StoredRun(record)
    try:
        older = stored.version(request.query.get("a") or "first")
        newer = stored.version(request.query.get("b") or "best")
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    record = await request.project.redacted(
        strip_versions(record, {older.iteration, newer.iteration}),
        full=request.full,
        spared=(Process,),
        allow=stored.criteria_texts,
    )
    return await asyncio.to_thread(_compared, record, older.name, newer.name, view)


@dataclass(frozen=True, slots=True)
class DiffView:
    """The page: what changed from `older` to `newer`; `sides` has paired lines for the side-by-side view."""

    record: RunRecord
    older: ReflectionVersion
    newer: ReflectionVersion
    change: Comparison
    view: str
    sides: tuple[list[Pair] | int, ...] = ()

    @property
    def others(self) -> list[tuple[str, ReflectionVersion, ReflectionVersion]]:
        """Links to other comparisons: each version with the one it was made from."""
        bases = (
            (self.record.version(one.base) or self.record.version(one.iteration - 1), one)
            for one in self.record.versions
        )
        return [
            (f"{base.iteration} to {one.iteration}", base, one) for base, one in bases if base is not None
        ]


def _compared(record: RunRecord, older: str, newer: str, view: str) -> DiffView:
    """Compare two versions. Runs in a thread, since long texts take a while."""
    before, after = StoredRun(record).version(older), StoredRun(record).version(newer)
    change = comparison(before, after)
    rows: tuple[list[Pair] | int, ...] = ()
    if view == "side" and change.hunks:
        rows = tuple(fold(pairs(word_diff(as_text(before.output), as_text(after.output))), CONTEXT))
    return DiffView(record, before, after, change, view, rows)


def _document(view: DiffView) -> dict[str, Any]:
    return {"run_id": view.record.run_id, **diff_document(version_diff(view.older, view.newer))}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed between two versions: `fields` of JSON, `hunks` of lines, or both `texts` in full."""

    older: ReflectionVersion
    newer: ReflectionVersion
    critique: Critique
    is_same: bool
    fields: tuple[Field, ...] = ()
    hunks: tuple[list[Line] | int, ...] = ()
    texts: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field that changed; `old` or `new` is None where the field is missing."""

    path: str
    old: str | None
    new: str | None


def comparison(older: ReflectionVersion, newer: ReflectionVersion) -> Comparison:
    """Compare two versions for display, with long values clipped."""
    before, after = as_text(older.output), as_text(newer.output)
    if len(before) + len(after) > LARGEST:
        return Comparison(
            older,
            newer,
            addressed(older.evaluation, newer.evaluation),
            before == after,
            texts=(clipped(before), clipped(after)),
        )
    diff = version_diff(older, newer, _words)
    if diff.fields is not None:
        fields = tuple(
            Field(
                change.path or "(document)",
                None if change.old is ABSENT else clipped(field_text(change.old)),
                None if change.new is ABSENT else clipped(field_text(change.new)),
            )
            for change in diff.fields
        )
        return Comparison(older, newer, diff.critique, diff.is_same, fields=fields)
    if _similarity(before, after) < ALIKE:
        texts = (clipped(before), clipped(after))
        return Comparison(older, newer, diff.critique, diff.is_same, texts=texts)
    return Comparison(older, newer, diff.critique, diff.is_same, hunks=tuple(hunks(diff.words, CONTEXT)))


_kept_words = lru_cache(REMEMBERED)(word_diff)
_kept_similarity = lru_cache(REMEMBERED)(similarity)


def _words(before: str, after: str) -> list[tuple[Op, str]]:
    return (_kept_words if _is_short(before, after) else word_diff)(before, after)


def _similarity(before: str, after: str) -> float:
    return (_kept_similarity if _is_short(before, after) else similarity)(before, after)


def _is_short(before: str, after: str) -> bool:
    return len(before) + len(after) <= SHORT


@dataclass(frozen=True, slots=True)
class Pair:
    """A line of the older text next to its counterpart in the newer one, with line numbers.

    A line that exists on one side only leaves the other None.
    """

    old: Line | None
    new: Line | None
    old_number: int | None
    new_number: int | None

    @property
    def differs(self) -> bool:
        """Whether the two sides differ."""
        sides = (self.old, self.new)
        return None in sides or any(op != "=" for side in sides for op, _ in side or ())


def pairs(pieces: Sequence[Piece]) -> list[Pair]:
    """Turn a word diff into pairs of lines; a line break common to both texts ends a pair."""
    found: list[Pair] = []
    old: list[Line] = [[]]
    new: list[Line] = [[]]
    numbers = [0, 0]

    def end(lines: int = 0) -> None:
        """Pair up the pending lines, except the last `lines` of each side."""
        for left, right in zip_longest(old[: len(old) - lines], new[: len(new) - lines]):
            numbers[0] += left is not None
            numbers[1] += right is not None
            places = (None if left is None else numbers[0], None if right is None else numbers[1])
            found.append(Pair(left, right, *places))
        old[:], new[:] = (old[-1:], new[-1:]) if lines else ([[]], [[]])

    for op, text in pieces:
        for at, line in enumerate(text.split("\n")):
            if at and op == "=":
                end()
            elif at:
                (old if op == "-" else new).append([])
            if line and op == "=":
                end(lines=1)  # lines that share text stay side by side
            if line and op != "+":
                old[-1].append((op, line))
            if line and op != "-":
                new[-1].append((op, line))
    end()
    return found


def fold(rows: Sequence[Pair], context: int) -> list[list[Pair] | int]:
    """Keep the pairs that differ and `context` around them; a number stands for that many omitted pairs."""
    changed = [at for at, pair in enumerate(rows) if pair.differs]
    near = {at + off for at in changed for off in range(-context, context + 1)}
    shown: list[list[Pair] | int] = []
    for is_near, group in groupby(range(len(rows)), key=near.__contains__):
        part = [rows[at] for at in group]
        shown.append(part if is_near else len(part))
    return shown


def strip_versions(record: RunRecord, keep: Collection[int]) -> RunRecord:
    """Return a run with the text of all versions removed, except those whose numbers are in `keep`.

    What is not shown need not be searched for secrets, which takes long for megabytes.
    """
    versions = tuple(
        one if one.iteration in keep else replace(one, output="", conversation=None, choice=None)
        for one in record.versions
    )
    return replace(record, versions=versions, draft=None)


PAGE = Page("/runs/{run_id}/diff", "history/templates/diff.html", diff, _document)
