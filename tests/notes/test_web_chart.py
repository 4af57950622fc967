import itertools
from datetime import UTC, datetime, timedelta

import pytest

from redraft.notes.note import NoteUse
from redraft.notes.web import MOST_DRAWN as MOST
from redraft.notes.web import note_chart

START = datetime(2026, 11, 20, tzinfo=UTC)


def uses(*rows):
    """Runs of (version, score), a version of "x" for one that a trial left without."""
    return [
        NoteUse(
            f"run-{number}",
            version if isinstance(version, int) else None,
            "control" if version == "x" else "note" if version else "none",
            score,
            START + timedelta(minutes=number),
        )
        for number, (version, score) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("rows", "labels", "arms"),
    [
        ([], [], []),
        ([(None, None)], [], []),
        ([(None, 0.2), (None, 0.4), (1, 0.6)], ["no note", "v1"], ["none", "none", "note"]),
        # What a trial leaves out changes nothing of which note is in force.
        ([(1, 0.5), ("x", 0.3), (1, 0.7), (2, 0.8)], ["v1", "v2"], ["note", "control", "note", "note"]),
        ([(1, 0.5), (2, 0.5), (1, 0.5)], ["v1", "v2", "v1"], ["note"] * 3),  # rolled back
    ],
)
def test_a_mark_stands_where_the_note_changed(rows, labels, arms):
    chart = note_chart(uses(*rows))
    assert [part.label for part in chart.stretches] == labels
    assert [point.arm for point in chart.points] == arms
    assert chart.has_control == ("control" in arms)


def test_scores_stand_from_the_bottom_to_the_top_and_within_the_frame():
    chart = note_chart(uses((1, 0.0), (1, 1.0), (1, 0.5)))
    low, high, middle = (point.y for point in chart.points)
    assert (low, high) == (chart.bottom, chart.top)
    assert chart.stretches[0].mean == middle == (low + high) / 2
    assert all(chart.left < point.x < chart.right for point in chart.points)


def test_the_latest_runs_are_drawn_and_names_do_not_run_into_one_another():
    chart = note_chart(uses(*((number + 1, 0.5) for number in range(MOST + 10))))
    assert (len(chart.points), chart.left_out) == (MOST, 10)
    named = [part.start for part in chart.stretches if part.label]
    assert min(after - before for before, after in itertools.pairwise(named)) >= 56
