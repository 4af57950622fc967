import pytest

from redraft.text.well_formed import is_well_formed, well_formed


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
def test_what_no_encoding_holds_is_replaced(text, expected):
    assert well_formed(text) == expected
    assert is_well_formed(text) == (text == expected)
    assert is_well_formed(well_formed(text))
