import re

import pytest

from redraft.lessons.names import folder_name, short_title

HOSTILE = [
    "../../etc/passwd", "CON", "con", "NUL.txt", "x" * 5000, "a/b", "a\\b", "", " ", ".", "..", "-", "~",
    "\x00", "a\u202eb", "\ud800", "\U000e0041", "\u4f60\u597d", "\U0001f600", "com1", "a" * 59 + "-b", "A",
    "a b", "a--b", "$(rm)", "archive", ".hidden", "caf\u00e9", "cafe", "CAFE", "a\nb", "lpt9", "aux",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_names_are_portable_whatever_the_text(text):
    for name in (short_title(text), folder_name(text)):
        assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name)
        assert len(name) <= 60
    assert folder_name(text) not in {"con", "nul", "aux", "com1", "lpt9"}


@pytest.mark.parametrize("agent", HOSTILE)
def test_an_agent_that_is_named_like_a_folder_has_that_folder(agent):
    assert folder_name(folder_name(agent)) == folder_name(agent)


def test_no_two_agents_share_a_folder():
    assert len({folder_name(text) for text in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize(
    ("summary", "title"),
    [
        ("API timeout handling", "api-timeout-handling"),
        ("The price list could not be fetched at all", "the-price-list-could-not"),
        ("Café: naïve (retry!)", "cafe-naive-retry"),
        ("你好", "untitled"),
    ],
)
def test_a_title_has_five_words_at_most(summary, title):
    assert short_title(summary) == title


def test_a_plain_name_of_an_agent_is_its_folder():
    assert folder_name("researcher-agent") == "researcher-agent"
