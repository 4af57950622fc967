"""Corrections: the output of a run as a person says that it should have been."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redraft._codec import plain_data, to_record
from redraft._texts import as_text, clipped
from redraft.errors import ConfigError, OutputError, StoreError
from redraft.loop.output_type import output_type_of
from redraft.loop.record import LONGEST_PART, Amendment, Correction
from redraft.stores.run_index import RUN
from redraft.text.characters import well_formed
from redraft.text.diff import ABSENT, field_diff, similarity, word_diff
from redraft.text.replies import json_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redraft.loop.record import RunRecord
    from redraft.stores.base import Store
    from redraft.types import ReflectionVersion

ENDED = ("finished", "failed", "cancelled")
MOST_CHANGES = 8
"""Changes of a correction that are named; further changes are only counted."""
REWRITTEN = 0.3
"""The similarity below which a text counts as rewritten, rather than changed in places."""
ATTEMPTS = 5


def corrected_version(record: RunRecord) -> ReflectionVersion:
    """The version of a run that a correction is about: the best version, else the last.

    Raises `ConfigError` for a run that has not ended, and for a run without an output.
    """
    if record.status not in ENDED:
        how = "Wait until it has ended" if record.state == "running" else "Resume it first"
        raise ConfigError(
            f"The run {record.run_id!r} can't be corrected yet: it is {record.state}. {how} "
            "(`redraft why` says more)."
        )
    version = record.version(record.best) or next(iter(record.versions[::-1]), None)
    if version is None:
        raise ConfigError(
            f"The run {record.run_id!r} has no output to correct (state: {record.state}); "
            "`redraft why` says why."
        )
    return version


def editable_text(record: RunRecord) -> str:
    """The output of a run as a person edits it, with any earlier correction: text, or else JSON.

    Raises `ConfigError` as `corrected_version` does, and for an output that is neither.
    """
    output = corrected_version(record).output
    if record.correction is not None:
        output = record.correction.output
    if isinstance(output, str) and record.output_type is None:
        return output
    plain = _plain(output, f"The output of the run {record.run_id!r}")
    return json.dumps(plain, ensure_ascii=False, indent=2) + "\n"


def read_correction(record: RunRecord, output: Any, output_type: Any = None) -> Correction | None:
    """Read an output as it should have been, by the rules of the run's outputs; None for its own output.

    `output_type` is the type of its outputs; without it, the JSON Schema in the record decides. Raises
    `ConfigError` for a run that can't be corrected, and for an output that is empty or not of that type.
    """
    version = corrected_version(record)
    new = _as_output(record, version.output, output, output_type)
    old = _plain(version.output, f"The output of the run {record.run_id!r}")
    old = well_formed(old) if isinstance(old, str) else old
    if not field_diff(old, new):
        return None
    changes = list(_changes(old, new))
    return Correction(
        new, datetime.now(UTC), version.iteration, tuple(changes[:MOST_CHANGES]), len(changes[MOST_CHANGES:])
    )


def is_same_output(correction: Correction, earlier: Correction | None) -> bool:
    """Whether an earlier correction has the same output."""
    return earlier is not None and not field_diff(earlier.output, correction.output)


async def store_correction(store: Store, run_id: str, correction: Correction | None) -> None:
    """Store a correction with its run, in place of an earlier correction; None removes it.

    Raises `StoreError` if the run is deleted, or changes all the time.
    """
    for _ in range(ATTEMPTS):
        stored = await store.get(RUN, run_id)
        if stored is None:
            raise StoreError(f"The run {run_id!r} was deleted meanwhile, so its correction is not stored.")
        data = {**stored.data, "correction": None if correction is None else to_record(correction)}
        if await store.replace(replace(stored, data=data)) is not None:
            return
    raise StoreError(f"The run {run_id!r} keeps changing, so its correction is not stored; try again.")


def _plain(output: Any, what: str) -> Any:
    dump = getattr(output, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True)
    return output if isinstance(output, str) else plain_data(output, what)


def _as_output(record: RunRecord, old: Any, output: Any, kind: Any) -> Any:
    """Read the output as it should have been in the form in which outputs of the run are stored."""
    where = f"The correction of the run {record.run_id!r}"
    if kind is None and record.output_type is not None:
        kind = dict(record.output_type["schema"])
    if kind is None and isinstance(old, str):
        if not isinstance(output, str):
            raise ConfigError(f"{where} must be a text, as its output is; got {output!r:.200}.")
        if not output.strip():
            raise ConfigError(f"{where} is empty; expected its output.")
        return well_formed(output)
    if isinstance(output, str):
        try:
            output = json_of(output)
        except OutputError as error:
            raise ConfigError(f"{where} is not JSON: {error}") from error
    value = _plain(output, where)
    if (checked := output_type_of(kind)) is not None:
        _, issues = checked.read(json.dumps(value, ensure_ascii=False))
        if issues:
            name = checked.name if record.output_type is None else record.output_type["name"]
            raise ConfigError(f"{where} is not a valid {name}: {'; '.join(issues)}.")
    return value


# --- what was changed --------------------------------------------------------------------------------------


def _changes(old: Any, new: Any) -> Iterator[Amendment]:
    if isinstance(old, str) and isinstance(new, str):
        yield from _text_changes(old, new)
        return
    for field in field_diff(old, new):
        before, after = ("" if side is ABSENT else as_text(side) for side in (field.old, field.new))
        yield Amendment(_bounded(before), _bounded(after), field.path)


def _text_changes(old: str, new: str) -> Iterator[Amendment]:
    if similarity(old, new) < REWRITTEN:
        yield Amendment(_bounded(old), _bounded(new))
        return
    for before, after in _phrases(word_diff(old, new)):
        if before.split() != after.split():  # otherwise only white space was changed
            yield Amendment(_bounded(before), _bounded(after))


def _phrases(pieces: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The changed phrases of a text, old and new; changes with only white space in between are merged."""
    before = after = between = ""
    for op, text in pieces:
        if op == "=" and text.strip():
            if before or after:
                yield before, after
            before = after = between = ""
        elif op == "=":
            between = text if before or after else ""
        else:
            before, after, between = before + between, after + between, ""
            before, after = (before + text, after) if op == "-" else (before, after + text)
    if before or after:
        yield before, after


def _bounded(text: str) -> str:
    return clipped(text, LONGEST_PART)
