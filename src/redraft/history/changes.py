"""The diff page: the changes between two versions of a run, and the issues that they resolved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.loop.record import Process, RunRecord
from redraft.loop.runs import Runs, StoredRun
from redraft.loop.version_diff import addressed, diff_document, field_changes, field_text, version_diff
from redraft.text.diff import ABSENT, Line, word_diff
from redraft.web.page import NotFoundError, Page, PageRequest
from redraft.web.rendering import CONTEXT, LARGEST, text_change

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redraft.text.diff import FieldChange, Piece
    from redraft.types import ReflectionVersion


VIEWS = ("inline", "side")


async def diff(request: PageRequest) -> dict[str, Any]:
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
    redacted = StoredRun(record)
    return {
        "record": record,
        "older": redacted.version(older.name),
        "newer": redacted.version(newer.name),
        "view": view,
    }


def _document(page: dict[str, Any]) -> dict[str, Any]:
    diff = diff_document(version_diff(page["older"], page["newer"]))
    return {"run_id": page["record"].run_id, **diff}


def base_of(record: RunRecord, version: ReflectionVersion) -> ReflectionVersion | None:
    """The version that `version` was made from, else the previous version; None for the first."""
    return record.version(version.base) or record.version(version.iteration - 1)


def changed_fields(older: ReflectionVersion, newer: ReflectionVersion) -> Sequence[FieldChange] | None:
    """The fields that differ between two versions; None if the texts must be compared instead."""
    if len(as_text(older.output)) + len(as_text(newer.output)) > LARGEST:
        return None
    return field_changes(older.output, newer.output)


def paired_lines(older: ReflectionVersion, newer: ReflectionVersion) -> list[list[Pair] | int]:
    """The lines of two versions side by side; a number replaces that many unchanged lines."""
    return fold(pairs(word_diff(as_text(older.output), as_text(newer.output))), CONTEXT)


@dataclass(frozen=True, slots=True)
class Pair:
    """A line of the older text and its counterpart in the newer text; None if there is none."""

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
    rows: list[Pair] = []
    old: list[Line] = [[]]
    new: list[Line] = [[]]
    numbers = [0, 0]

    def end(lines: int = 0) -> None:
        """Pair up the pending lines, except the last `lines` of each side."""
        for left, right in zip_longest(old[: len(old) - lines], new[: len(new) - lines]):
            numbers[0] += left is not None
            numbers[1] += right is not None
            places = (None if left is None else numbers[0], None if right is None else numbers[1])
            rows.append(Pair(left, right, *places))
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
    return rows


def fold(rows: Sequence[Pair], context: int) -> list[list[Pair] | int]:
    """Keep the differing pairs and `context` pairs around them; a number replaces that many omitted pairs."""
    changed = [at for at, pair in enumerate(rows) if pair.differs]
    near = {at + offset for at in changed for offset in range(-context, context + 1)}
    folded: list[list[Pair] | int] = []
    for is_near, group in groupby(range(len(rows)), key=near.__contains__):
        part = [rows[at] for at in group]
        folded.append(part if is_near else len(part))
    return folded


def strip_versions(record: RunRecord, keep: Collection[int]) -> RunRecord:
    """Remove the texts of all versions but those in `keep`.

    Redaction takes long for megabytes, so texts that are not shown are removed first.
    """
    versions = tuple(
        version if version.iteration in keep else replace(version, output="", conversation=None, choice=None)
        for version in record.versions
    )
    return replace(record, versions=versions, draft=None)


FUNCTIONS = {
    "ABSENT": ABSENT,
    "addressed": addressed,
    "base_of": base_of,
    "changed_fields": changed_fields,
    "field_text": field_text,
    "paired_lines": paired_lines,
    "text_change": text_change,
}
PAGE = Page("/runs/{run_id}/diff", "history/templates/diff.html", diff, _document, functions=FUNCTIONS)
