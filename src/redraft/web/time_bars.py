"""TimeBars: what each day or month cost, as bars."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from math import floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.web.tally import Tally

WIDTH, HEIGHT = 960.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 36.0, 24.0, 36.0
WIDEST = 48.0
LABELS = 8
"""About how many bars have their date below."""
NICE = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class TimeBar:
    """Place a bar; `later` is the height of its upper part, what came after the best versions."""

    x: float
    y: float
    height: float
    later: float
    label: str
    words: str
    is_partial: bool


@dataclass(frozen=True, slots=True)
class TimeBars:
    """Hold the bars from the earliest to the latest; those without a run are empty."""

    bars: tuple[TimeBar, ...]
    ticks: tuple[tuple[float, str], ...]
    unit: str
    bar_width: float
    has_later: bool
    has_partial: bool
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    bottom: float = HEIGHT - BOTTOM


def time_bars(days: Sequence[tuple[str, Tally]], *, by_month: bool) -> TimeBars:
    """Lay out what was used on days (or in months), the earliest first, with gaps where there was nothing."""
    known = dict(days)
    in_dollars = any(used.cost_usd > 0 for used in known.values())
    names = _without_gaps([name for name, _ in days], by_month=by_month)
    values = {name: _value(used, in_dollars=in_dollars) for name, used in days}
    top = _nice(max((value for value, _ in values.values()), default=0.0))
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    width = min(WIDEST, slot * 0.8)
    every = max(1, -(-len(names) // LABELS))
    bars: list[TimeBar] = []
    for at, name in enumerate(names):
        value, later = values.get(name, (0.0, 0.0))
        height = _length(value, top)
        bars.append(
            TimeBar(
                LEFT + slot * (at + 0.5) - width / 2,
                HEIGHT - BOTTOM - height,
                height,
                _length(min(later, value), top),
                _label(name, by_month=by_month) if (len(names) - 1 - at) % every == 0 else "",
                f"{name}: {_told(value, in_dollars=in_dollars)}",
                name in known and in_dollars and known[name].unknown > 0,
            )
        )
    return TimeBars(
        tuple(bars),
        tuple(
            (HEIGHT - BOTTOM - _length(value, top), _tick(value, top, in_dollars=in_dollars))
            for value in (0.0, top / 2, top)
        ),
        "dollars" if in_dollars else "tokens",
        width,
        any(bar.later > 0 for bar in bars),
        any(bar.is_partial for bar in bars),
    )


def _value(used: Tally, *, in_dollars: bool) -> tuple[float, float]:
    return (used.cost_usd, used.later_usd) if in_dollars else (used.total_tokens, used.later_tokens)


def _length(value: float, top: float) -> float:
    return (HEIGHT - TOP - BOTTOM) * value / top


def _nice(most: float) -> float:
    """Return a round number that is no less."""
    if most <= 0:
        return 1.0
    power = 10.0 ** floor(log10(most))
    return next(part * power for part in NICE if part * power >= most * (1 - 1e-9))


def _told(value: float, *, in_dollars: bool) -> str:
    return f"${value:,.4f}" if in_dollars else f"{value:,.0f} tokens"


def _tick(value: float, top: float, *, in_dollars: bool) -> str:
    """Render a number of the scale, with the digits that its half needs."""
    if in_dollars:
        return f"${value:,.{max(2, 1 - floor(log10(top / 2)))}f}"
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if top >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def _label(name: str, *, by_month: bool) -> str:
    return name if by_month else f"{date.fromisoformat(name):%b %-d}"


def _without_gaps(names: Sequence[str], *, by_month: bool) -> list[str]:
    if not names:
        return []
    if by_month:
        first, last = (int(name[:4]) * 12 + int(name[5:]) - 1 for name in (names[0], names[-1]))
        return [f"{month // 12:04d}-{month % 12 + 1:02d}" for month in range(first, last + 1)]
    first_day, last_day = date.fromisoformat(names[0]), date.fromisoformat(names[-1])
    return [f"{first_day + timedelta(days=at)}" for at in range((last_day - first_day).days + 1)]
