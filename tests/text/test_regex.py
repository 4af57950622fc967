from __future__ import annotations

import re
import time

import pytest
import regex

from redraft.errors import ConfigError
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
def test_patterns_match_as_in_python(pattern, flags, text, spans):
    assert compile_pattern(pattern, flags).spans(text, 10) == spans


def test_limit_of_matches():
    assert compile_pattern("a").spans("aaaa", 2) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("pattern", "flags", "message"),
    [
        ("(", "", "does not compile"),
        ("*a", "", "does not compile"),
        ("", "", "must be a non-empty string"),
        (7, "", "must be a non-empty string"),
        (None, "", "must be a non-empty string"),
        ("a" * 2_001, "", "2,001 characters long"),
        ("a", "q", "letters out of 'imsx'"),
        ("a", re.LOCALE, "letters out of 'imsx'"),
        ("a", True, "letters out of 'imsx'"),
        ("a", None, "letters out of 'imsx'"),
        ("((((a{100}){100}){100}){100}){100}", "", "repeats too often"),
        ("(?=a)((((a{100}){100}){100}){100}){100}", "", "repeats too often"),
        ("(?=a)((a{1,1000}b?){1,1000}c?){1,1000}", "", "repeats too often"),
        ("(?=a)([a-z{}]{,999}x){999,}", "", "repeats too often"),
        ("(?=a)" + "(" * 600 + "a" + ")*" * 600, "", "does not compile"),
    ],
)
def test_invalid_or_exploding_pattern(pattern, flags, message):
    started = time.process_time()
    with pytest.raises(ConfigError, match=message):
        compile_pattern(pattern, flags)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|a)*b", "(a*)*c", "(x+x+)+y"])
def test_catastrophic_patterns_are_quick(pattern):
    text = "a" * 5_000 + "x" * 5_000 + "!"
    compiled = compile_pattern(pattern)
    assert compiled.is_quick_on(text)
    started = time.process_time()
    assert compiled.spans(text) == []
    assert time.process_time() - started < 1


ENTRANTS = "café Ärger naïve ٣٤ 东京 e\u0301 \u00a0 \u2003 \u2028 \u200d _x ½ Ⓐ — “a” 42\t\n"


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w+", r"\W+", r"\d+", r"\D+", r"\s+", r"\S+", r"[\w-]+", r"[^\w\s]+", r"[\W\d]+", r"[^\S\n]",
        r"[]\s]+", r"[^]\s]+", r"\\w|\w", r"[\[\]\d]", r"(?i)É|ÄR\w", r"\w\s\w", r"[a-zé]\s*$",
        r"^\s*(\S+\s*){1,60}$", r"\S+$",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "!", "\n"])
def test_both_engines_agree_on_unicode(pattern, end):
    compiled = compile_pattern(pattern)
    text = ENTRANTS + end
    limit = 1 if "$" in pattern else 100
    assert compiled.is_quick_on(text, limit)
    found = [match.span() for match in regex.finditer(pattern, text)]
    assert [start for start, _ in compiled.spans(text, limit)] == [start for start, _ in found[:limit]]
    if limit > 1:
        assert compiled.spans(text, limit) == found


@pytest.mark.parametrize("letter", "wWdDsS")
def test_both_engines_agree_on_classes(letter):
    for first, behind in ((0, 0xD800), (0xE000, 0x110000)):
        text = "".join(map(chr, range(first, behind)))
        found = [match.span() for match in regex.finditer(rf"\{letter}+", text)]
        assert compile_pattern(rf"\{letter}+").spans(text, len(text)) == found


@pytest.mark.parametrize(
    ("pattern", "text", "start"),
    [
        ("end$", "the end\n", 4),
        ("end$", "the end\n\n", None),
        ("^(yes|no)$", "no\n", 0),
        ("^yes$|^no$", "no\n", 0),
        ("(a$|b)", "a\n", 0),
        (r"b$|\n", "a\nb\n", 1),
        (r"\n$", "a\n", 1),
        (r"a$\n", "a\n", 0),
        (r"a$\n$", "a\n", 0),
        ("(a$)?b", "a\n", None),
        (r"\$[$]a", "$$a\n", 0),
        ("(?m)a$", "a\nb\n", 0),
        ("(?m)^b$", "a\nb\n", 2),
    ],
)
def test_dollar_matches_before_the_final_line_break(pattern, text, start):
    spans = compile_pattern(pattern).spans(text)
    assert [first for first, _ in spans] == ([] if start is None else [start])
    python = re.search(pattern, text)
    assert (python and python.start()) == start


@pytest.mark.parametrize(
    "text", ["word " * 300, "Wörter " * 300, "Wörter " * 300 + "\n", "word " * 300 + "\n"]
)
@pytest.mark.parametrize("pattern", [r"^\s*(\S+\s*){1,60}$", r"^(\w+\s?)*$", r"(\w+\s*)+!$"])
def test_non_ascii_text_stays_quick(pattern, text):
    compiled = compile_pattern(pattern)
    assert compiled.is_quick_on(text)
    started = time.process_time()
    assert bool(compiled.spans(text)) is (pattern == r"^(\w+\s?)*$")
    assert time.process_time() - started < 5


def test_unicode_word_boundaries_use_the_other_engine():
    assert not compile_pattern(r"\btea\b").is_quick_on("ein Tässchen tea")
    assert compile_pattern(r"\btea\b").is_quick_on("a cup of tea")


@pytest.mark.parametrize("pattern", ["(?=a)(a+)+$", r"(a|aa)+(?=b)c"])
def test_timeout(pattern):
    compiled = compile_pattern(pattern)
    text = "a" * 5_000 + "!"
    assert not compiled.is_quick_on(text)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        compiled.spans(text)
    assert time.monotonic() - started < TIMEOUT + 5


@pytest.mark.parametrize("pattern", [r"\d{4}-\d{2}(?=x)", r"(?=a)(a{90}){90}", r"(?!q)[{}]{50}\{9999\}"])
def test_modest_repetition_with_lookaround(pattern):
    assert compile_pattern(pattern).linear is None
