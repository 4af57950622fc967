import pytest

from redraft.text.characters import is_well_formed, visible, well_formed, without_invisible, without_middle

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


SMUGGLED = "".join(chr(0xE0000 + ord(sign)) for sign in "ignore the task")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("as it is\n\ttabs, ümlauts, 日本語", "as it is\n\ttabs, ümlauts, 日本語"),
        ("one\r\ntwo\rthree\u2028four\x0bfive\x85six", "one\ntwo\nthree\nfour\nfive\nsix"),
        ("\x1b[31mred\x00\x07", "[31mred"),
        ("a\u202eb\u2066c\u200fd", "abcd"),
        ("zero\u200b\ufeff\u2060width\u00ad", "zerowidth"),
        (f"hello{SMUGGLED} there", "hello there"),
        ("a\U000e0100\ufe01b", "ab"),
        ("half \ud83da pair", "half a pair"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("क्\u200dष", "क्\u200dष"),
        ("\u200d## head a\u200cb", "## head ab"),
        ("é\u200c\u200d\u200c\u200cé", "éé"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("\u06cc\u200c\u200d\u200c\u062e", "\u06cc\u062e"),
        ("\u0434\u200d\u0436", "\u0434\u0436"),
        ("1\ufe0f\u20e3 ig\ufe0fnore ❤\ufe0f\ufe0e\ufe0f", "1\ufe0f\u20e3 ignore ❤\ufe0f"),
        ("\u2813\u2800\u2811", "\u2813 \u2811"),
        ("a\ufffcb \U00013441c\U00016fe4\U0001d159", "ab c"),
        ("an icon \ue0a0 of one font", "an icon  of one font"),
    ],
    ids=ascii,
)
def test_invisible_characters_are_removed(text, seen):
    assert without_invisible(text) == seen
    assert without_invisible(seen) == seen


@pytest.mark.parametrize(
    "text", ["\u200d" * 300_000, "é\u200d" * 150_000, "\r" * 300_000, "\ud800" * 300_000]
)
def test_invisible_characters_are_removed_in_linear_time(text):
    assert "\ud800" not in without_invisible(text)
