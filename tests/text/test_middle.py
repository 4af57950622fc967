import pytest

from redraft.text.middle import without_middle

ROWS = [
    ("", 10, ""),
    ("0123456789", 10, "0123456789"),
    ("0123456789ab", 9, "012345\n[... 3 of 12 characters are left out here ...]\n9ab"),
    ("a" * 2_000, 3, "aa\n[... 1,997 of 2,000 characters are left out here ...]\na"),
]


@pytest.mark.parametrize(("text", "most", "shown"), ROWS)
def test_a_long_text_keeps_its_beginning_and_its_end(text, most, shown):
    assert without_middle(text, most) == shown
