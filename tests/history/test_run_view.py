"""What the page of a run with very many versions shows of them."""

import pytest

from redraft.history.run_view import folded


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
