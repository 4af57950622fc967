"""What the page of a run with very many versions shows of them."""

import pytest

from redraft.web.chart import MOST_DOTS, chart
from redraft.web.run_view import folded
from support.kept_runs import kept
from support.versions import history


@pytest.mark.parametrize(
    ("note", "lines"),
    [
        ("One sentence. And another.", ["One sentence. And another."]),
        ("Version 2: no edit applied.", ["Version 2: no edit applied."]),
        ("Version 2: a. Version 3: b.", ["Version 2: a.", "Version 3: b."]),
        ("Version 2: a. Version 3: a. Version 5: b.", ["Versions 2 and 3: a.", "Version 5: b."]),
        (
            "Version 2: a. Version 3: b. Version 4: a. Version 5: a.",
            ["Versions 2, 4 and 5: a.", "Version 3: b."],
        ),
        (" ".join(f"Version {n}: a." for n in range(2, 201)), ["Versions 2 to 200: a."]),
        (" ".join(f"Version {n}: a." for n in (2, 3, 4, 9)), ["Versions 2 to 4 and 9: a."]),
        ("At first. Version 2: a. Version 3: a.", ["At first.", "Versions 2 and 3: a."]),
    ],
)
def test_what_is_said_of_many_versions_is_said_once(note, lines):
    assert folded(note) == lines


def test_a_curve_of_many_versions_has_few_dots_among_them_what_stands_out():
    scores = [0.5 + (0.3 if n == 77 else -0.4 if n == 101 else 0.001 * (n % 7)) for n in range(200)]
    drawn = chart(kept(history(*scores), "plateau"))
    shown = [point.version for point in drawn.points]
    assert len(shown) <= MOST_DOTS
    assert {1, 78, 102, 200} <= set(shown)
    assert [point.version for point in drawn.points if point.kind == "best"] == [78]
    assert len(drawn.curve.split()) == 200  # the line goes through all of them
    assert drawn.versions == 200


@pytest.mark.parametrize("count", [1, 16, MOST_DOTS])
def test_a_curve_of_fewer_versions_has_a_dot_for_each(count):
    assert len(chart(kept(history(*[0.5] * count), "plateau")).points) == count
