"""The heat table: how each version did by each criterion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.loop.runs import KeptRun

LEVELS = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """Hold one score: its text, its `level` (0 to 10; None where there is no score), and what it means."""

    text: str
    level: int | None = None
    below: bool = False
    says: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Hold a criterion with the score that it needs, and its cells, one a version."""

    name: str
    needs: str
    cells: tuple[Cell, ...]


def heat(run: KeptRun) -> list[Row]:
    """Return the rows: the overall score first, then the criteria."""
    versions = run.record.versions
    overall: float | None = run.record.options.get("quality_threshold")
    rows = [
        Row("score", _needs(overall), tuple(_cell(one.evaluation.overall_score, overall) for one in versions))
    ]
    for name in run.criteria:
        least = run.thresholds.get(name)
        cells = tuple(
            _cell(one.evaluation.criteria_scores[name], least)
            if name in one.evaluation.criteria_scores
            else Cell("", says="does not apply")
            for one in versions
        )
        rows.append(Row(name, _needs(least), cells))
    return rows


def _needs(least: float | None) -> str:
    return "" if least is None else f"{least:.2f}"


def _cell(score: float | None, least: float | None) -> Cell:
    if score is None:
        return Cell("?", says="could not be judged")
    below = least is not None and score < least
    level = round(min(1.0, max(0.0, score)) * LEVELS)
    return Cell(f"{score:.2f}", level, below, "below its threshold" if below else "")
