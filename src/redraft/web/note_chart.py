"""The scores of a task's runs in their order: with which note each was, and where the note changed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.notes.note import NoteUse

WIDTH, HEIGHT = 960.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 16.0, 30.0, 34.0
MOST = 120
"""Runs that are drawn: the latest."""
APART = 56.0
"""How far apart two marks with words must be, so that their words do not run into one another."""


@dataclass(frozen=True, slots=True)
class RunPoint:
    """Place one run; `arm` says what it was given, and `words` all that is known of it."""

    x: float
    y: float
    arm: str
    words: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """Hold the runs that had one note, from `start` to `end`, with the height of their mean.

    `label` names the note where there is room.
    """

    start: float
    end: float
    mean: float
    label: str


@dataclass(frozen=True, slots=True)
class NoteChart:
    """Hold the runs that were scored, the earliest first, and the stretches between changes of the note."""

    points: tuple[RunPoint, ...]
    stretches: tuple[Stretch, ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int
    has_control: bool
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


def note_chart(uses: Sequence[NoteUse]) -> NoteChart:
    """Lay out the runs of a task that were scored, at most the latest 120.

    What a trial took the note from, or gave another, changes nothing of which note is in force.
    """
    scored = [(use, use.score) for use in uses if use.score is not None]
    drawn = scored[-MOST:]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(drawn))
    places = [(LEFT + (at + 0.5) * step, use, score) for at, (use, score) in enumerate(drawn)]
    points = tuple(RunPoint(x, _height(score), use.arm, _words(use)) for x, use, score in places)
    stretches: list[Stretch] = []
    labelled = float("-inf")
    in_force = [one for one in places if one[1].arm != "control"]
    for version, group in groupby(in_force, key=lambda one: one[1].version):
        runs = list(group)
        start, label = runs[0][0] - step / 2, ""
        if start - labelled >= APART:
            label, labelled = "no note" if version is None else f"v{version}", start
        mean = _height(fmean(score for _, _, score in runs))
        stretches.append(Stretch(start, runs[-1][0] + step / 2, mean, label))
    return NoteChart(
        points,
        tuple(stretches),
        tuple((_height(score), f"{score:g}") for score in (0, 0.25, 0.5, 0.75, 1)),
        len(scored) - len(drawn),
        any(use.arm == "control" for use, _ in drawn),
    )


def _height(score: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(1.0, max(0.0, score)))


def _words(use: NoteUse) -> str:
    given = "no note" if use.version is None else f"version {use.version}"
    control = ", by a trial" if use.arm == "control" else ""
    return f"{given}{control}: {use.score:.2f}"
