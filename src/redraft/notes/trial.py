"""Trials: whether the notes on a task help, by runs with them and runs without."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from redraft.core.effect import FEWEST, effect_of, last_look
from redraft.notes.note import Rollback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.notes.config import Trial
    from redraft.notes.note import NotedTask, NoteUse

LATEST_USES = 2000
"""How many runs a verdict looks back: what was before says little about now."""


def arm_of(trial: Trial, run_id: str, identity: str) -> Literal["note", "control"]:
    """Say whether a run is given the note. A run that is resumed gets the same answer."""
    drawn = sha256(f"{identity}/{run_id}".encode("utf-8", "surrogatepass")).digest()[:8]
    return "control" if int.from_bytes(drawn) < trial.share * 2**64 else "note"


def verdict(
    trial: Trial, noted: NotedTask, uses: Sequence[NoteUse], previous: int | None = None
) -> Rollback | None:
    """Say that the note in force hurts, and what should take its place; None where that is not known.

    `uses` are those of the task, the earliest first; `previous` is the version that the note in force is
    based on. Against none, all notes of the present line count together; against the previous one, the note
    in force alone. It looks no more often than `last_look` says.
    """
    in_force = noted.in_force
    if in_force is None or in_force < noted.since:  # a person chose it
        return None
    to = previous if trial.against == "previous" else None
    scores: list[tuple[bool, float]] = []
    for use in uses:
        if use.score is None:
            continue
        if _has_note(use, noted, alone=trial.against == "previous"):
            scores.append((True, use.score))
        elif use.arm == "control" and use.version == to and scores:  # of the time of these notes
            scores.append((False, use.score))
    seen = last_look(scores)
    if seen is None:
        return None
    effect = effect_of(*seen)
    if effect.high >= 0:
        return None
    return Rollback(in_force, to, effect.mean, effect.low, effect.high, len(seen[0]), len(seen[1]))


def may_replace(trial: Trial, noted: NotedTask, uses: Sequence[NoteUse], previous: int | None = None) -> bool:
    """Say whether a newer note may take the place of the one in force.

    It takes `min_runs` scored runs with that; against the previous one also as many runs of both as a verdict
    takes, else none would ever be reached. One that hurts is rolled back, and no newer one grows from it.
    """
    in_force = noted.in_force
    if in_force is None:
        return True
    scored = [use for use in uses if use.score is not None]
    having = sum(use.arm == "note" and use.version == in_force for use in scored)
    if having < trial.min_runs:
        return False
    if trial.against == "none" or in_force < noted.since:
        return True
    controls = sum(use.arm == "control" and use.version == previous for use in scored)
    return min(having, controls) >= FEWEST and verdict(trial, noted, uses, previous) is None


def _has_note(use: NoteUse, noted: NotedTask, *, alone: bool) -> bool:
    if use.arm != "note" or use.version is None:
        return False
    return use.version == noted.in_force if alone else use.version >= noted.since
