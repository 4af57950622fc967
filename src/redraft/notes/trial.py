"""Trials: runs with and without a note show whether it helps."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from redraft._validation import check_choice, check_count, check_share
from redraft.errors import ConfigError
from redraft.notes.note import Rollback
from redraft.stats import FEWEST, effect_of, last_look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.notes.note import NotedTask, NoteUse

LATEST_USES = 2000
"""How many runs a verdict looks back: what was before says little about now."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Let a share of the runs go without the note, so that it shows whether the note helps.

    `share` (0..1, neither end) of the runs are the control: they go without any note, or `against="previous"`
    with the one before. A note stays until `min_runs` runs with it were scored; only then the newest takes
    its place. What the task's criteria say of a run's first version is its score. When at least 10 runs with
    notes and 10 control runs put a 95 % bootstrap interval of the difference below zero, the control takes
    over.
    """

    share: float = 0.2
    min_runs: int = 5
    against: Literal["none", "previous"] = "none"

    def __post_init__(self) -> None:
        check_share("Trial.share", self.share)
        if self.share in (0, 1):
            raise ConfigError(f"Trial.share must leave runs with and without the note, got {self.share!r}.")
        check_count("Trial.min_runs", self.min_runs, 1)
        check_choice("Trial.against", self.against, ("none", "previous"))


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


def _has_note(use: NoteUse, noted: NotedTask, *, alone: bool) -> bool:
    if use.arm != "note" or use.version is None:
        return False
    return use.version == noted.in_force if alone else use.version >= noted.since


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


def why_of(rollback: Rollback) -> str:
    """Say why a note was rolled back by itself, with the figures."""
    other = "without notes" if rollback.to is None else f"with version {rollback.to}"
    return (
        f"version {rollback.version} was rolled back by itself: runs with it scored "
        f"{-rollback.effect:.2f} lower than runs {other} (95 % interval {rollback.low:+.2f} to "
        f"{rollback.high:+.2f}, {rollback.with_runs} and {rollback.without_runs} runs)"
    )
