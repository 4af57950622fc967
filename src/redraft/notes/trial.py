"""Trials: whether the notes on a task help, by runs with them and runs without."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Literal

from redraft.core.errors import ConfigError
from redraft.notes.config import FEWEST
from redraft.notes.note import Rollback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.notes.config import Trial
    from redraft.notes.note import NotedTask, NoteUse

RESAMPLES = 600
INTERVAL = 0.95
BYTE, DRAWS = 1 << 8, 1 << 16
"""What one random byte can say, and two; no more than the latest so many scores are looked at."""
LATER = 4
"""How many times as many scores there are when a verdict looks again."""
LATEST_USES = 2000
"""How many runs a verdict looks back: what was before says little about now."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Hold by how much scores with a note differ from those without: the mean, and its 95 % interval."""

    mean: float
    low: float
    high: float


def arm_of(trial: Trial, run_id: str, identity: str) -> Literal["note", "control"]:
    """Say whether a run is given the note. A run that is resumed gets the same answer."""
    drawn = sha256(f"{identity}/{run_id}".encode("utf-8", "surrogatepass")).digest()[:8]
    return "control" if int.from_bytes(drawn) < trial.share * 2**64 else "note"


def effect_of(with_scores: Sequence[float], without_scores: Sequence[float]) -> Effect:
    """Return the difference of the means with its 95 % interval, by the bootstrap.

    The same scores always give the same interval. Resamples of few scores vary too little, so that it is
    widened as Student's t is. Raises `ConfigError` for fewer than two scores on a side.
    """
    if min(len(with_scores), len(without_scores)) < 2:  # noqa: PLR2004 (one alone does not vary)
        raise ConfigError("An effect takes at least two scores with and two without.")
    chance = Random(repr((tuple(with_scores), tuple(without_scores))))  # noqa: S311 (no secret)
    mean = fmean(with_scores) - fmean(without_scores)
    differences = sorted(
        with_one - without_one
        for with_one, without_one in zip(
            _resampled(with_scores, chance), _resampled(without_scores, chance), strict=True
        )
    )
    outside = round(len(differences) * (1 - INTERVAL) / 2)
    return Effect(mean, mean + differences[outside], mean + differences[-outside - 1])


def _resampled(scores: Sequence[float], chance: Random) -> list[float]:
    """Return by how much the means of resamples differ from the mean."""
    scores = scores[-DRAWS:]
    count, mean = len(scores), fmean(scores)
    wider = (count / (count - 1)) ** 0.5 * _student(count - 1) / _student(float("inf"))
    table = _table(scores)
    drawn = _drawn(chance, len(table), count * RESAMPLES)
    return [
        (sum(map(table.__getitem__, drawn[start : start + count])) / count - mean) * wider
        for start in range(0, count * RESAMPLES, count)
    ]


def _table(scores: Sequence[float]) -> list[float]:
    """Return the scores as often as a random byte can tell apart, or two where they are more."""
    if len(scores) <= BYTE:
        return list(scores) * (BYTE // len(scores))
    # That this ends within a round of the scores shifts nothing that matters.
    return (list(scores) * (DRAWS // len(scores) + 1))[:DRAWS]


def _drawn(chance: Random, places: int, count: int) -> Sequence[int]:
    """Draw places at random, several times as quick as `choices`."""
    if places == DRAWS:
        return array("H", chance.randbytes(2 * count))
    drawn, refused = b"", bytes(range(places, BYTE))
    while len(drawn) < count:
        drawn += chance.randbytes(count).translate(None, refused)
    return drawn


def _student(freedom: float) -> float:
    """Return the quantile of Student's t that bounds the interval, by the first terms of its expansion."""
    z = NormalDist().inv_cdf((1 + INTERVAL) / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def verdict(
    trial: Trial, noted: NotedTask, uses: Sequence[NoteUse], previous: int | None = None
) -> Rollback | None:
    """Say that the note in force hurts, and what should take its place; None where that is not known.

    `uses` are those of the task, the earliest first; `previous` is the version that the note in force is
    based on. Against none, all notes of the present line count together; against the previous one, the note
    in force alone. It looks when the smaller side has 10 scores, 40, 160 and so on: who looks at an interval
    after each run will sooner or later see it below zero by chance.
    """
    in_force = noted.in_force
    if in_force is None or in_force < noted.since:  # a person chose it
        return None
    to = previous if trial.against == "previous" else None
    with_scores: list[float] = []
    without_scores: list[float] = []
    seen: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    look = FEWEST
    for use in uses:
        if use.score is None:
            continue
        if _has_note(use, noted, alone=trial.against == "previous"):
            with_scores.append(use.score)
        elif use.arm == "control" and use.version == to and with_scores:  # of the time of these notes
            without_scores.append(use.score)
        if min(len(with_scores), len(without_scores)) == look:
            seen, look = (tuple(with_scores), tuple(without_scores)), look * LATER
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
