"""Charts: lay out numbers as a line, bars or a sparkline, which templates draw as SVG."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SCORE_TICKS = (0, 0.25, 0.5, 0.75, 1)


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a drawing and the edges of its plot, in units of the SVG."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    @property
    def inner_width(self) -> float:
        """The width of the plot."""
        return self.right - self.left

    @property
    def inner_height(self) -> float:
        """The height of the plot."""
        return self.bottom - self.top

    def y(self, share: float) -> float:
        """The y coordinate of a share of the scale: 0 at the bottom, 1 at the top."""
        return self.bottom - self.inner_height * min(1.0, max(0.0, share))

    @property
    def score_ticks(self) -> tuple[tuple[float, str], ...]:
        """The ticks of a scale from 0 to 1: their y coordinates and labels."""
        return tuple((self.y(score), f"{score:g}") for score in SCORE_TICKS)


@dataclass(frozen=True, slots=True)
class Scored:
    """A point of a score curve."""

    name: str
    """The label below the point, if there is room, such as the number of a version."""
    score: float | None
    """From 0 to 1; None if not judged."""
    spread: float = 0.0
    """The margin of error."""
    kind: Literal["filled", "hollow", "cross", "best"] = "filled"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a drawn curve."""

    x: float
    y: float | None
    """None if not judged."""
    name: str
    label: str
    kind: str
    low: float | None = None
    high: float | None = None
    """The ends of the error bar; None without a margin of error."""


@dataclass(frozen=True, slots=True)
class ScoreCurve:
    """A curve of scores."""

    count: int
    """The number of scores."""
    points: tuple[CurvePoint, ...]
    """The points to draw: a sample if there are very many."""
    curve: str
    """The line through all scores but crosses, as the `points` of an SVG polyline."""
    best_so_far: str
    """The best score so far, as a line of steps."""
    threshold: float | None
    frame: Frame

    @property
    def has_spread(self) -> bool:
        """Whether any point has an error bar."""
        return any(point.low is not None for point in self.points)

    def has(self, kind: str) -> bool:
        """Whether any point has this kind."""
        return any(point.kind == kind for point in self.points)


CURVE = Frame(640.0, 250.0, left=46.0, right=616.0, top=30.0, bottom=216.0)
LABELLED = 16
"""Most points that are all labelled; of more, the first, the best and the last are labelled."""
MOST_DOTS = 48
"""Most points that are all drawn; of more, the first, the best, the last and the extremes are drawn."""
NAME_WIDTH = 26.0
"""The width of a name below the curve."""


def score_curve(
    scored: Sequence[Scored], threshold: float | None = None, *, best_so_far: bool = True
) -> ScoreCurve:
    """Lay out scores in order, 0 at the bottom and 1 at the top."""
    points = tuple(_curve_point(at, scored) for at in range(len(scored)))
    judged = [(point.x, point.y) for point in points if point.y is not None and point.kind != "cross"]
    return ScoreCurve(
        len(points),
        _with_room_for_names(_thinned(points)),
        " ".join(f"{x:.1f},{y:.1f}" for x, y in judged),
        _best_so_far(judged) if best_so_far else "",
        None if threshold is None else CURVE.y(threshold),
        CURVE,
    )


def _curve_point(at: int, scored: Sequence[Scored]) -> CurvePoint:
    point, last, margin = scored[at], len(scored) - 1, 14
    room = CURVE.inner_width - 2 * margin
    x = CURVE.left + CURVE.inner_width / 2 if last == 0 else CURVE.left + margin + room * at / last
    is_labelled = last < LABELLED or at in (0, last) or point.kind == "best"
    if point.score is None:
        return CurvePoint(x, None, point.name, "?" if is_labelled else "", "unknown")
    half = point.spread
    return CurvePoint(
        x,
        CURVE.y(point.score),
        point.name,
        f"{point.score:.2f}" if is_labelled else "",
        point.kind,
        CURVE.y(point.score - half) if half > 0 else None,
        CURVE.y(point.score + half) if half > 0 else None,
    )


def _thinned(points: tuple[CurvePoint, ...]) -> tuple[CurvePoint, ...]:
    """Downsample points so that their dots don't overlap."""
    if len(points) <= MOST_DOTS:
        return points
    drawn = {0, len(points) - 1, *(at for at, point in enumerate(points) if point.kind == "best")}
    intervals = (MOST_DOTS - len(drawn)) // 2
    for number in range(intervals):
        begin, end = (len(points) * edge // intervals for edge in (number, number + 1))
        judged = [(y, at) for at in range(begin, end) if (y := points[at].y) is not None]
        drawn |= {min(judged)[1], max(judged)[1]} if judged else {begin}
    return tuple(points[at] for at in sorted(drawn))


def _with_room_for_names(points: tuple[CurvePoint, ...]) -> tuple[CurvePoint, ...]:
    """Remove names that would overlap the names of labelled or earlier points."""
    named = [point.x for point in points if point.name and point.label]
    spaced: list[CurvePoint] = []
    for point in points:
        if point.name and not point.label:
            if all(abs(point.x - x) >= NAME_WIDTH for x in named):
                named.append(point.x)
            else:
                point = replace(point, name="")  # noqa: PLW2901 (the same point without its name)
        spaced.append(point)
    return tuple(spaced)


def _best_so_far(judged: list[tuple[float, float]]) -> str:
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


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A line in the space of a word."""

    points: str
    """The `points` of an SVG polyline."""
    last: tuple[float, float] | None
    """The coordinates of the last score."""
    words: str
    """The scores as text."""
    frame: Frame


SPARK = Frame(72.0, 18.0, left=3.0, right=69.0, top=3.0, bottom=15.0)
SPARK_SCORES = 24
"""Most scores that a sparkline draws; of more, it draws the last."""


def sparkline(scores: Sequence[float | None]) -> Sparkline:
    """Lay out scores in the space of a word; unknown ones are left out."""
    drawn = scores[-SPARK_SCORES:]
    step = SPARK.inner_width / max(1, len(drawn) - 1)
    places = [(SPARK.left + at * step, SPARK.y(score)) for at, score in enumerate(drawn) if score is not None]
    words = ", ".join("not judged" if score is None else f"{score:.2f}" for score in scores)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return Sparkline(line, places[-1] if places else None, words, SPARK)


@dataclass(frozen=True, slots=True)
class Bar:
    """A drawn bar."""

    x: float
    width: float
    top: float | None
    """None if the value is unknown."""
    title: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Values as bars from 0 up."""

    bars: tuple[Bar, ...]
    most: str
    """The largest value as text; empty if it is 0."""
    first: str
    """The name of the first bar."""
    last: str
    frame: Frame


# The left margin only has room for the label 0; the largest value, of any length, is written above the bars.
SMALL = Frame(360.0, 146.0, left=22.0, right=354.0, top=24.0, bottom=124.0)
LARGE = Frame(640.0, 200.0, left=22.0, right=634.0, top=24.0, bottom=174.0)
WIDEST_BAR = 1 / 24
"""The widest bar, as a share of the width of the plot."""


def bars(
    names: Sequence[str],
    values: Sequence[float | None],
    text: Callable[[float], str],
    frame: Frame = SMALL,
) -> Bars | None:
    """Lay out the value of each name, rendered by `text`; None if all values are unknown."""
    most = max((value for value in values if value is not None), default=None)
    if most is None:
        return None
    step = frame.inner_width / len(names)
    width = min(WIDEST_BAR * frame.inner_width, step * 0.75)
    drawn = tuple(
        Bar(
            round(frame.left + at * step + (step - width) / 2, 2),
            round(width, 2),
            None if value is None else round(frame.y(value / most if most > 0 else 0.0), 2),
            f"{name}: {'unknown' if value is None else text(value)}",
        )
        for at, (name, value) in enumerate(zip(names, values, strict=True))
    )
    return Bars(drawn, text(most) if most > 0 else "", names[0], names[-1], frame)
