import pytest

from redraft.text.visible import visible


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
def test_what_acts_is_spelt_out_and_the_rest_left_alone(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown
    shown.encode()
