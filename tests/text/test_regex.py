from __future__ import annotations

import re
import time

import pytest

from redraft.core.errors import ConfigError
from redraft.text.regex import TIMEOUT, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "flags", "text", "spans"),
    [
        ("b+", "", "abbab", [(1, 3), (4, 5)]),
        ("B", "", "abb", []),
        ("B", "i", "abb", [(1, 2), (2, 3)]),
        ("B", re.IGNORECASE, "abb", [(1, 2), (2, 3)]),
        ("^x", "", "a\nx", []),
        ("^x", "m", "a\nx", [(2, 3)]),
        ("a.b", "", "a\nb", []),
        ("a.b", "s", "a\nb", [(0, 3)]),
        ("a b # c", "x", "ab", [(0, 2)]),
        ("a(?=b)", "", "ab ac", [(0, 1)]),
        ("(?<!x)a", "", "xa a", [(3, 4)]),
        (r"(\w)\1", "", "abba", [(1, 3)]),
        # What RE2 reads differently is still read as Python does.
        (r"\bü\w+\b", "", "das über", [(4, 8)]),
        (r"\d", "", "٣", [(0, 1)]),
        ("end$", "", "the end\n", [(4, 7)]),
        ("ü", "", "aüü", [(1, 2), (2, 3)]),
        ("tea", "", "a half \ud83c of tea", [(12, 15)]),
        (r"a{1500}", "", "a" * 1500, [(0, 1500)]),
    ],
)
def test_patterns_mean_what_python_says(pattern, flags, text, spans):
    assert compile_pattern(pattern, flags).spans(text, 10) == spans


def test_no_more_matches_are_looked_for_than_asked():
    assert compile_pattern("a").spans("aaaa", 2) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("pattern", "flags", "says"),
    [
        ("(", "", "does not compile"),
        ("*a", "", "does not compile"),
        ("", "", "not empty"),
        (7, "", "must be a text"),
        (None, "", "must be a text"),
        ("a" * 2_001, "", "2,001 long"),
        ("a", "q", "letters out of 'imsx'"),
        ("a", re.LOCALE, "letters out of 'imsx'"),
        ("a", True, "letters out of 'imsx'"),
        ("a", None, "letters out of 'imsx'"),
        ("((((a{100}){100}){100}){100}){100}", "", "repeats too much"),
        ("(?=a)((((a{100}){100}){100}){100}){100}", "", "repeats too much"),
        ("(?=a)((a{1,1000}b?){1,1000}c?){1,1000}", "", "repeats too much"),
        ("(?=a)([a-z{}]{,999}x){999,}", "", "repeats too much"),
        ("(?=a)" + "(" * 600 + "a" + ")*" * 600, "", "does not compile"),
    ],
)
def test_what_is_no_pattern_or_a_bomb_is_refused_at_once(pattern, flags, says):
    started = time.process_time()
    with pytest.raises(ConfigError, match=says):
        compile_pattern(pattern, flags)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|a)*b", "(a*)*c", "(x+x+)+y"])
def test_what_hangs_other_engines_is_quick(pattern):
    text = "a" * 5_000 + "x" * 5_000 + "!"
    compiled = compile_pattern(pattern)
    assert compiled.is_quick_on(text)
    started = time.process_time()
    assert compiled.spans(text) == []
    assert time.process_time() - started < 1


@pytest.mark.parametrize("pattern", ["(?=a)(a+)+$", r"(a|aa)+(?=b)c"])
def test_a_match_that_takes_too_long_is_a_timeout(pattern):
    compiled = compile_pattern(pattern)
    text = "a" * 5_000 + "!"
    assert not compiled.is_quick_on(text)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        compiled.spans(text)
    assert time.monotonic() - started < TIMEOUT + 5


@pytest.mark.parametrize("pattern", [r"\d{4}-\d{2}(?=x)", r"(?=a)(a{90}){90}", r"(?!q)[{}]{50}\{9999\}"])
def test_modest_repetition_beside_lookaround_is_fine(pattern):
    assert compile_pattern(pattern).linear is None
