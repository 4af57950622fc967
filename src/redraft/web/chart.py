"""The score curve: where each version's point, the best so far and the threshold stand in a drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.loop.runs import KeptRun
    from redraft.types import ReflectionVersion

WIDTH, HEIGHT = 640.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 24.0, 30.0, 34.0
FEW = 16
"""Up to so many versions each point has its number; of more, the first, the best and the last."""
MOST_DOTS = 48
"""Up to so many versions each has a dot; of more, the first, the best, the last, and the extremes between."""


@dataclass(frozen=True, slots=True)
class Point:
    """Place one version; `y` is None where it was not judged, `low` and `high` end its error bar."""

    version: int
    x: float
    y: float | None
    label: str
    kind: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Hold a score curve: points, lines as SVG takes them, and the height of the threshold.

    The lines go through all `versions`; of very many only some have a point.
    """

    versions: int
    points: tuple[Point, ...]
    curve: str
    best: str
    threshold: float | None
    ticks: tuple[tuple[float, str], ...]
    has_spread: bool
    has_repeats: bool
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    bottom: float = HEIGHT - BOTTOM


def chart(run: KeptRun) -> Chart:
    """Lay out the scores of a run's versions, 0 to 1 from the bottom to the top."""
    versions = run.record.versions
    points = tuple(_point(at, run) for at in range(len(versions)))
    judged = [(point.x, point.y) for point in points if point.y is not None]
    threshold: float | None = run.record.options.get("quality_threshold")
    return Chart(
        len(points),
        _thinned(points),
        " ".join(f"{x:.1f},{y:.1f}" for x, y in judged),
        _best_line(judged),
        None if threshold is None else _height(threshold),
        tuple((_height(score), f"{score:g}") for score in (0, 0.25, 0.5, 0.75, 1)),
        any(point.low is not None for point in points),
        any(point.kind == "repeat" for point in points),
    )


def _point(at: int, run: KeptRun) -> Point:
    versions = run.record.versions
    version = versions[at]
    score, spread = version.evaluation.overall_score, version.evaluation.spread
    last = len(versions) - 1
    x = (LEFT + WIDTH - RIGHT) / 2 if last == 0 else LEFT + 14 + (WIDTH - LEFT - RIGHT - 28) * at / last
    is_best = version.iteration == run.record.best
    told = last < FEW or at in (0, last) or is_best
    if score is None:
        return Point(version.iteration, x, None, "?" if told else "", "unknown")
    low, high = (None, None) if spread <= 0 else (_height(score - spread / 2), _height(score + spread / 2))
    return Point(
        version.iteration,
        x,
        _height(score),
        f"{score:.2f}" if told else "",
        _kind(version, best=is_best),
        low,
        high,
    )


def _thinned(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Return few enough points to be told apart, in their order: dots that cover each other say nothing."""
    if len(points) <= MOST_DOTS:
        return points
    kept = {0, len(points) - 1, *(at for at, point in enumerate(points) if point.kind == "best")}
    stretches = (MOST_DOTS - len(kept)) // 2
    for number in range(stretches):
        begin, end = (len(points) * edge // stretches for edge in (number, number + 1))
        scored = [(height, at) for at in range(begin, end) if (height := points[at].y) is not None]
        kept |= {min(scored)[1], max(scored)[1]} if scored else {begin}
    return tuple(points[at] for at in sorted(kept))


def _kind(version: ReflectionVersion, *, best: bool) -> str:
    if best:
        return "best"
    return "repeat" if version.repeats is not None else "judged"


def _height(score: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(1.0, max(0.0, score)))


def _best_line(judged: list[tuple[float, float]]) -> str:
    """Draw the best score so far as steps."""
    if not judged:
        return ""
    best = judged[0][1]
    line = [f"{judged[0][0]:.1f},{best:.1f}"]
    for x, y in judged[1:]:
        line.append(f"{x:.1f},{best:.1f}")
        if y < best:
            best = y
            line.append(f"{x:.1f},{best:.1f}")
    return " ".join(line)
