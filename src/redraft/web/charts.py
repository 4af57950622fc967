"""Charts: numbers laid out as lines, bars, cells and sparklines, for templates to draw as SVG and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from math import floor, log10
from operator import itemgetter
from statistics import fmean, median
from typing import Literal

SCORE_TICKS = (0, 0.25, 0.5, 0.75, 1)


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a drawing and the space around its plot, in the units of its SVG."""

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
        """Return the height of a share of the scale: 0 at the bottom, 1 at the top."""
        return self.bottom - self.inner_height * min(1.0, max(0.0, share))

    @property
    def score_ticks(self) -> tuple[tuple[float, str], ...]:
        """The marks of a scale from 0 to 1, with their heights."""
        return tuple((self.y(score), f"{score:g}") for score in SCORE_TICKS)


@dataclass(frozen=True, slots=True)
class Scored:
    """A point of a score curve: its number, its score if it was judged, and the margin of error."""

    number: int
    score: float | None
    spread: float = 0.0
    kind: Literal["", "best", "repeat"] = ""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point in the drawing; `y` is None if it was not judged, `low` and `high` end its error bar."""

    number: int
    x: float
    y: float | None
    label: str
    kind: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreCurve:
    """A curve of scores: points, and lines as SVG takes them.

    The lines go through all `count` points; of very many, only some are among `points`.
    """

    count: int
    points: tuple[CurvePoint, ...]
    curve: str
    best_so_far: str
    threshold: float | None
    frame: Frame

    @property
    def has_spread(self) -> bool:
        """Whether any point has an error bar."""
        return any(point.low is not None for point in self.points)

    @property
    def has_repeats(self) -> bool:
        """Whether any point repeats an earlier one."""
        return any(point.kind == "repeat" for point in self.points)


CURVE = Frame(640.0, 250.0, left=46.0, right=616.0, top=30.0, bottom=216.0)
LABELLED = 16
"""Label every point up to this many; beyond that, label the first, the best and the last."""
MOST_DOTS = 48
"""Draw a dot for every point up to this many; beyond that, for the first, the best, the last and extremes."""


def score_curve(scored: Sequence[Scored], threshold: float | None = None) -> ScoreCurve:
    """Lay out scores in their order, 0 at the bottom and 1 at the top."""
    points = tuple(_curve_point(at, scored) for at in range(len(scored)))
    judged = [(point.x, point.y) for point in points if point.y is not None]
    return ScoreCurve(
        len(points),
        _thinned(points),
        " ".join(f"{x:.1f},{y:.1f}" for x, y in judged),
        _best_so_far(judged),
        None if threshold is None else CURVE.y(threshold),
        CURVE,
    )


def _curve_point(at: int, scored: Sequence[Scored]) -> CurvePoint:
    point, last, margin = scored[at], len(scored) - 1, 14
    room = CURVE.inner_width - 2 * margin
    x = CURVE.left + CURVE.inner_width / 2 if last == 0 else CURVE.left + margin + room * at / last
    is_labelled = last < LABELLED or at in (0, last) or point.kind == "best"
    if point.score is None:
        return CurvePoint(point.number, x, None, "?" if is_labelled else "", "unknown")
    half = point.spread
    return CurvePoint(
        point.number,
        x,
        CURVE.y(point.score),
        f"{point.score:.2f}" if is_labelled else "",
        point.kind or "judged",
        CURVE.y(point.score - half) if half > 0 else None,
        CURVE.y(point.score + half) if half > 0 else None,
    )


def _thinned(points: tuple[CurvePoint, ...]) -> tuple[CurvePoint, ...]:
    """Return few enough points to be told apart, in their order: dots that overlap say nothing."""
    if len(points) <= MOST_DOTS:
        return points
    shown = {0, len(points) - 1, *(at for at, point in enumerate(points) if point.kind == "best")}
    stretches = (MOST_DOTS - len(shown)) // 2
    for number in range(stretches):
        begin, end = (len(points) * edge // stretches for edge in (number, number + 1))
        judged = [(height, at) for at in range(begin, end) if (height := points[at].y) is not None]
        shown |= {min(judged)[1], max(judged)[1]} if judged else {begin}
    return tuple(points[at] for at in sorted(shown))


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
class SeriesSample:
    """A score of a series: its `kind`, what it is in words, and the `group` whose mean it counts in.

    A sample without a group (None) is drawn and counts in no mean.
    """

    score: float
    kind: str
    title: str
    group: str | None


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """A sample of a series in the drawing."""

    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbours of one group in the drawing, from `start` to `end`, with the height of their mean.

    `label` names the group where there is room.
    """

    start: float
    end: float
    mean: float
    label: str


@dataclass(frozen=True, slots=True)
class Series:
    """Scores in their order, the earliest first, and the stretches between changes of the group."""

    points: tuple[SeriesPoint, ...]
    stretches: tuple[Stretch, ...]
    left_out: int
    frame: Frame


SERIES = Frame(960.0, 250.0, left=46.0, right=944.0, top=30.0, bottom=216.0)
MOST_SAMPLES = 120
"""Samples that a series draws: the latest."""
LABEL_WIDTH = 56.0
"""The room that the label of a stretch takes."""


def series(samples: Sequence[SeriesSample]) -> Series:
    """Lay out scores in their order, at most the latest 120."""
    drawn = samples[-MOST_SAMPLES:]
    step = SERIES.inner_width / max(1, len(drawn))
    placed = [(SERIES.left + (at + 0.5) * step, one) for at, one in enumerate(drawn)]
    stretches: list[Stretch] = []
    labelled = float("-inf")
    grouped = [(x, one, one.group) for x, one in placed if one.group is not None]
    for name, members in groupby(grouped, key=itemgetter(2)):
        group = list(members)
        start, label = group[0][0] - step / 2, ""
        if start - labelled >= LABEL_WIDTH:
            label, labelled = name, start
        mean = SERIES.y(fmean(one.score for _, one, _ in group))
        stretches.append(Stretch(start, group[-1][0] + step / 2, mean, label))
    points = tuple(SeriesPoint(x, SERIES.y(one.score), one.kind, one.title) for x, one in placed)
    return Series(points, tuple(stretches), len(samples) - len(drawn), SERIES)


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A line as SVG takes it, the place of its last score, and the scores in words."""

    points: str
    last: tuple[float, float] | None
    words: str
    frame: Frame


SPARK = Frame(72.0, 18.0, left=3.0, right=69.0, top=3.0, bottom=15.0)
SPARK_SCORES = 24
"""Scores that a sparkline draws; of more, the last ones."""


def sparkline(scores: Sequence[float | None]) -> Sparkline:
    """Lay out scores in the space of a word; unknown ones are left out."""
    drawn = scores[-SPARK_SCORES:]
    step = SPARK.inner_width / max(1, len(drawn) - 1)
    places = [(SPARK.left + at * step, SPARK.y(one)) for at, one in enumerate(drawn) if one is not None]
    words = ", ".join("not judged" if score is None else f"{score:.2f}" for score in scores)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return Sparkline(line, places[-1] if places else None, words, SPARK)


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One score of a heat table: its text, its `level` (0 to 10, None without a score), its meaning."""

    text: str
    level: int | None = None
    below: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A row of a heat table: what was scored, the score that it needs, and a cell a column."""

    name: str
    needs: str
    cells: tuple[HeatCell, ...]


HEAT_LEVELS = 10


def heat_row(
    name: str, threshold: float | None, columns: Sequence[Mapping[str, float | None] | float | None]
) -> HeatRow:
    """Return a row; each column is a score, None where it could not be judged, or scores by name.

    A name that is not among the scores does not apply there.
    """
    cells: list[HeatCell] = []
    for column in columns:
        if not isinstance(column, Mapping):
            cells.append(_heat_cell(column, threshold))
        elif name in column:
            cells.append(_heat_cell(column[name], threshold))
        else:
            cells.append(HeatCell("", title="does not apply"))
    return HeatRow(name, "" if threshold is None else f"{threshold:.2f}", tuple(cells))


def _heat_cell(score: float | None, threshold: float | None) -> HeatCell:
    if score is None:
        return HeatCell("?", title="could not be judged")
    below = threshold is not None and score < threshold
    level = round(min(1.0, max(0.0, score)) * HEAT_LEVELS)
    return HeatCell(f"{score:.2f}", level, below, "below its threshold" if below else "")


@dataclass(frozen=True, slots=True)
class TrendBar:
    """A bar of a trend in the drawing; `top` is None where its number is unknown."""

    x: float
    width: float
    top: float | None
    title: str


@dataclass(frozen=True, slots=True)
class Trend:
    """One number over many cycles as bars, the numbers at its edges, and what it says in words."""

    name: str
    bars: tuple[TrendBar, ...]
    most: str
    first: str
    last: str
    words: str
    frame: Frame


# Beside the bars stands only 0: the largest number stands above them, where it has room however long it is.
TREND = Frame(360.0, 146.0, left=22.0, right=354.0, top=24.0, bottom=124.0)
WIDEST_TREND_BAR = 14.0


def trend(
    name: str, cycles: Sequence[int], values: Sequence[float | None], text: Callable[[float], str]
) -> Trend | None:
    """Lay out a value of each cycle from 0 up, the oldest first; return None if all are unknown.

    `text` renders a value.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    most = max(known)
    step = TREND.inner_width / len(cycles)
    width = min(WIDEST_TREND_BAR, step * 0.75)
    bars = tuple(
        TrendBar(
            round(TREND.left + at * step + (step - width) / 2, 2),
            round(width, 2),
            None if value is None else round(TREND.y(value / most if most > 0 else 0.0), 2),
            f"cycle {cycle}: {'unknown' if value is None else text(value)}",
        )
        for at, (cycle, value) in enumerate(zip(cycles, values, strict=True))
    )
    words = f"last {text(known[-1])}, median {text(median(known))}, max {text(most)}"
    return Trend(name, bars, text(most) if most > 0 else "", str(cycles[0]), str(cycles[-1]), words, TREND)


@dataclass(frozen=True, slots=True)
class Period:
    """What a day (`2026-11-23`) or month (`2026-11`) came to, and which `part` of that to set apart.

    `is_partial` says that it came to more, of which the amount is unknown.
    """

    name: str
    value: float
    part: float = 0.0
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class PeriodBar:
    """The bar of a day or month in the drawing; `part` is the height of its upper part."""

    x: float
    y: float
    height: float
    part: float
    label: str
    title: str
    is_partial: bool


@dataclass(frozen=True, slots=True)
class PeriodBars:
    """A bar for each day or month from the first to the last; those without a value are empty."""

    bars: tuple[PeriodBar, ...]
    ticks: tuple[tuple[float, str], ...]
    unit: str
    bar_width: float
    frame: Frame

    @property
    def has_parts(self) -> bool:
        """Whether any bar has a part that is set apart."""
        return any(bar.part > 0 for bar in self.bars)

    @property
    def has_partial(self) -> bool:
        """Whether any bar stands for more than is known."""
        return any(bar.is_partial for bar in self.bars)


PERIODS = Frame(960.0, 220.0, left=84.0, right=924.0, top=24.0, bottom=184.0)
WIDEST_BAR = 48.0
BAR_LABELS = 8
"""About how many bars have their date below."""
NICE = (1, 2, 2.5, 5, 10)


def period_bars(periods: Sequence[Period], unit: Literal["dollars", "tokens"]) -> PeriodBars:
    """Lay out days or months, the earliest first, with gaps for those that are not there."""
    known = {one.name: one for one in periods}
    names = _without_gaps([one.name for one in periods])
    top = _nice(max((one.value for one in periods), default=0.0))
    slot = PERIODS.inner_width / max(1, len(names))
    width = min(WIDEST_BAR, slot * 0.8)
    every = max(1, -(-len(names) // BAR_LABELS))
    bars: list[PeriodBar] = []
    for at, name in enumerate(names):
        one = known.get(name, Period(name, 0.0))
        height = PERIODS.inner_height * one.value / top
        bars.append(
            PeriodBar(
                PERIODS.left + slot * (at + 0.5) - width / 2,
                PERIODS.bottom - height,
                height,
                PERIODS.inner_height * min(one.part, one.value) / top,
                _period_label(name) if (len(names) - 1 - at) % every == 0 else "",
                f"{name}: {_amount(one.value, unit)}",
                one.is_partial,
            )
        )
    ticks = tuple((PERIODS.y(value / top), _tick(value, top, unit)) for value in (0.0, top / 2, top))
    return PeriodBars(tuple(bars), ticks, unit, width, PERIODS)


def _nice(most: float) -> float:
    """Return a round number that is no less."""
    if most <= 0:
        return 1.0
    power = 10.0 ** floor(log10(most))
    return next(part * power for part in NICE if part * power >= most * (1 - 1e-9))


def _amount(value: float, unit: str) -> str:
    return f"${value:,.4f}" if unit == "dollars" else f"{value:,.0f} tokens"


def _tick(value: float, top: float, unit: str) -> str:
    """Render a number of the scale with the digits that half of it needs."""
    if unit == "dollars":
        return f"${value:,.{max(2, 1 - floor(log10(top / 2)))}f}"
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if top >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def _is_month(name: str) -> bool:
    return len(name) == len("2026-11")


def _period_label(name: str) -> str:
    return name if _is_month(name) else f"{date.fromisoformat(name):%b %-d}"


def _without_gaps(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    if _is_month(names[0]):
        first, last = (int(name[:4]) * 12 + int(name[5:]) - 1 for name in (names[0], names[-1]))
        return [f"{month // 12:04d}-{month % 12 + 1:02d}" for month in range(first, last + 1)]
    first_day, last_day = date.fromisoformat(names[0]), date.fromisoformat(names[-1])
    return [f"{first_day + timedelta(days=at)}" for at in range((last_day - first_day).days + 1)]
