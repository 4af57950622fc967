import pytest

from redraft.text.characters import is_well_formed, visible, well_formed, without_middle

ROWS = [
    ("", 10, ""),
    ("0123456789", 10, "0123456789"),
    ("0123456789ab", 9, "012345\n[... 3 of 12 characters are left out here ...]\n9ab"),
    ("a" * 2_000, 3, "aa\n[... 1,997 of 2,000 characters are left out here ...]\na"),
]


@pytest.mark.parametrize(("text", "most", "shown"), ROWS)
def test_without_middle(text, most, shown):
    assert without_middle(text, most) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\tand\nlines, ÄÖ 漢字 👩‍🚀", "plain\tand\nlines, ÄÖ 漢字 👩‍🚀"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\x00b\x07", "a\\x00b\\x07"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("user\u202ecilbup", "user\\u202ecilbup"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("\ud83d", "\\ud83d"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tea", "tea"),
        ("Käse ☕ 🍵", "Käse ☕ 🍵"),
        ("a \ud83c", "a \ufffd"),
        ("\udf75 b", "\ufffd b"),
        ("\ud83c\udf75", "🍵"),
        ("ü\ud83c\udf75\ud83c.", "ü🍵\ufffd."),
    ],
)
def test_well_formed(text, expected):
    assert well_formed(text) == expected
    assert is_well_formed(text) == (text == expected)
    assert is_well_formed(well_formed(text))
