"""A value that stands with its name: in settings, code, JSON, YAML, XML, shell, SQL, headers and prose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from redraft.redact.engine import at, begins
from redraft.redact.kinds import Found
from redraft.redact.labels import Strength, kind_of, strength_of
from redraft.redact.values import (
    is_address,
    is_code,
    is_long_hex,
    is_name_of_something,
    is_path,
    is_placeholder,
    is_wordy,
    looks_made,
    looks_random,
)
from redraft.redact.words import word_set

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redraft.redact.view import View

_LONGEST_VALUE = 4096
_SHORTEST = 3
_LONG_TOKEN = 16
_MOST_WORDS = 8
_SHORT_PASSWORD = 4
_SHORT_TOKEN = 8
_LONG_HASH = 32
_LONGEST_CODE = 10

_CLOSE = r"[\"'`*]{0,3}(?:\]|\))?[\"'`*]{0,2}"
_ANNOTATION = r"(?:[ \t]?:[ \t]?[A-Za-z_][\w.\[\]|]{0,30}(?: \| \w{1,20})?[ \t]?=)"
_EQUALS = rf"{_CLOSE}[ \t]{{0,12}}(?:{_ANNOTATION}|:=|=>|->|[!=]?={{1,2}}|[:=][\"'`*]{{0,2}})[ \t]{{0,12}}"
_FLAG = r"(?:[ \t]{1,4}<<<[ \t]{0,4}|[ \t]{1,8}|[ \t]*\\\n[ \t]*|[\"'],[ \t]*[\"'])"
_QUOTED_NEXT = r"[ \t]{1,4}(?:by[ \t]{1,4})?[\"'`]"
_PROSE = (
    r"(?i:[\"'`*]{0,2}\)?(?:\s{1,3}\([^()\n]{0,30}\))?(?:[ \t]{1,3}|[ \t]?\n[ \t]{0,4})"
    r"(?:(?:for|of|on|to|in|from|at|with)[ \t]{1,3}(?:the[ \t]{1,3}|my[ \t]{1,3}"
    r"|our[ \t]{1,3})?[\w.@/'-]{1,40}[ \t]{1,3}"
    r"(?:[\w'-]{1,20}[ \t]{1,3})?)?"
    r"(?:(?:is|was|are|were|be|been|has|had|to|set|as|now|currently|still|just|called|named|reads?|equals"
    r"|becomes|became|lautet|ist|war|est|es|era|\xe9|\xe8|jest"
    r"|printed|prints|returned|returns|gave|gives|shows?|showed|yielded|contains?|contained|echoed"
    r"|provided|used|using|value|changed|reset|updated|rotated|starts?|starting|beginning|begins|with"
    r"|supplied|entered|given"
    r"|sent|passed|typed|tried|it|that|which)\b[ \t]{0,3}[:=]?[ \t]{1,3}[\"'`*]{0,2}){1,5})"
)
_FROM = r"(?i:[ \t]{1,3}(?:from|to|into|of)[ \t]{1,3}[\"'`]?)"
_YAML_TAG = r"![a-zA-Z/_-]{1,30}[ \t]{1,4}"
_NEXT_WORD = (
    r"(?i:[\"'`*]{0,2}[ \t]{1,3}(?:provided|supplied|given|used|value)?[ \t]{0,2}[:=]?[ \t]{0,3}[\"'`*]{0,2})"
)
_ASIDE = (
    r"[\"'`*]{0,2}[ \t]{1,3}(?:\([^()\n]{0,30}\)|(?:for|of|on|to|in|from"
    r"|at)[ \t][^\n:=\"'`]{1,40}"
    r"|[a-z]{2,15}(?:[ \t][a-z]{2,15})?|#?\d{1,3})[ \t]?[:=][ \t]{0,3}"
)
_BESIDE = (
    r"[\"'`*]{0,2}(?:,[ \t]|[ \t]\(|\[|:?[ \t]{0,3}\n[ \t]{0,8})(?i:which (?:is|was) |i\.?e\.? |namely )?"
)
_COMMA = r"[\"']\]?,[ \t\n]{0,20}[\"']"
_TAG = r"[^<>\n]{0,60}>[ \t\n]{0,20}"
_VALUE_FIELD = (
    r"[\"']?[ \t]{0,8}[,;/{]?[ \t\n]{0,40}(?:-[ \t])?[\"']?(?i:value|val"
    r"|default)[\"']?[ \t]{0,8}[:=][ \t]{0,8}"
)
_CELL = r"[`*]{0,2}[ \t]{0,40}\|[ \t]{0,40}[`*]{0,2}"
_BLOCK = r"[\"']?:[ \t]{0,4}[|>][+-]?[ \t]{0,4}\n((?:[ \t]{1,40}[^\n]{1,200}\n?){1,4})"
_NEXT_LINE = r"[\"']?[ \t]?[:=][ \t]?\n[ \t]{1,20}"
_SCHEME = (
    r"(?i:(?:bearer|basic|digest|token|apikey|negotiate|bot|key|sso-key|splunk|aws4-hmac-sha256)[ \t]{1,4})"
)
_BARE = r"[^\s\"'`<>|]{1,1000}"
_BARE_REST = r"[^\s\"'`<>|]*"
_LONGEST_BARE = 1000
_STRING_PREFIX = r"(?i:[rbfu]{1,2})(?:[\"'])"
_CUTS = ("&", ";", ",", "\\n", "\\r", "\x01")
_PLAIN = re.compile(r"[a-z]{4,}|[A-Z]{4,}|(?=.*[A-Z])[A-Za-z]{2,}[A-Za-z_-]{2,}")
_QUOTES = ('"', "'", "`")
_SETTER = 24
_TRAILING = ".,;:!?)]}*_\\"
_KEYS = ("--key", "-key", "--auth", "-auth", "routing_key", "routingkey")
"""What stands under these is no hash, though it may look like one."""
_STOP_WORDS = word_set(
    "a an the is are was be been must should can cannot may not no to of for in on and or with "
    "without that this it your you we user if when please enter use field value do does did has have "
    "could would"
)


class Value(NamedTuple):
    """Hold what stands behind a name, and how it stands there."""

    start: int
    end: int
    text: str
    quoted: bool
    assigned: bool
    """As settings, code and data assign it; prose and lists do not."""
    tight: bool = False
    """Without a space, or alone on its line: even a plain word is a value then."""


def assigned(view: View, named: Sequence[tuple[int, int]]) -> Iterator[Found]:
    """Yield the values that stand with a secret-like name; `named` is where such names stand."""
    done = 0
    for name_start, name_end in named:
        name = view.text[name_start:name_end]
        strength = strength_of(name)
        if strength is Strength.WEAK and view.text[name_start - 1 : name_start] in ("?", "&"):
            strength = Strength.TOKEN  # what a web address carries under such a name opens something
        is_key = name.lower() in _KEYS
        if (strength is Strength.NONE and not is_key) or name_start < done:
            continue
        for value in _values(view, name_start, name_end):
            if is_secret_value(value, strength) or (is_key and is_long_hex(value.text)):
                done = _whole(view, value)
                yield Found(value.start, done, kind_of(name))
                break


def _whole(view: View, value: Value) -> int:
    """Return where a value ends that may be longer than what was looked at."""
    if value.quoted or len(value.text) < _LONGEST_BARE:
        return value.end
    return at(_BARE_REST, view.data, value.end).end()


def _values(view: View, start: int, end: int) -> Iterator[Value]:
    """Yield what may be the value of a name, the likeliest first."""
    data, text = view.data, view.text
    if match := begins(_BLOCK, data, end):
        start, end = match.span(1)
        yield Value(start, end, text[start:end], quoted=True, assigned=True)
        return
    if match := begins(_EQUALS, data, end):
        value = _value_at(view, match.end(), assigned=not _is_phrase_in_quotes(text, start, end))
        if value.text or not text.startswith("\n", value.end):
            yield value._replace(tight=_is_tight(text, start, end, value))
        if match[0].endswith(b"="):
            return
    if match := begins(_NEXT_LINE, data, end):
        yield _value_at(view, match.end(), assigned=True)
    if text[end : end + 1] in (":", "="):
        return
    is_tag = start > 0 and text[start - 1] in "<:"
    is_flag = text[start] == "-"
    is_noun = text[start:end].lower() != "pass"
    for pattern, applies, is_assigned in (
        (_FLAG, is_flag, True),
        (_TAG, is_tag, True),
        (_VALUE_FIELD, is_noun, True),
        (_COMMA, True, _is_setter(text, start)),
        (_CELL, True, True),
        (_QUOTED_NEXT, is_noun and not _is_phrase_in_quotes(text, start, end), True),
        (_PROSE, is_noun, False),
        (_ASIDE, is_noun, False),
        (_NEXT_WORD, is_noun, False),
        (_BESIDE, is_noun, False),
        (_FROM, is_noun, False),
    ):
        if applies and (match := begins(pattern, data, end)):
            # A quote that the pattern ends with opens the value.
            value = _value_at(view, match.end() - (text[match.end() - 1] in _QUOTES), assigned=is_assigned)
            # Neighbours in a list are quoted whatever they are, as are things that a message names.
            is_listed = pattern in (_COMMA, _BESIDE) or text[start - 1 : start] in _QUOTES
            yield value._replace(quoted=value.quoted and (is_assigned or not is_listed))


def _is_setter(text: str, start: int) -> bool:
    """Say whether a name is the first argument of what sets it: `setenv("TOKEN", "...")`."""
    return (
        text[max(0, start - _SETTER) : start]
        .rstrip("\"'( ")
        .lower()
        .endswith(("env", "set", "header", "put", "add"))
    )


def _is_phrase_in_quotes(text: str, start: int, end: int) -> bool:
    """Say whether a name ends a quoted text and does not begin it: `"read a secret": "..."`."""
    return text[end : end + 1] in _QUOTES and text[start - 1 : start] == " "


def _is_tight(text: str, start: int, end: int, value: Value) -> bool:
    """Say whether a plain word would be a value here: `X=word`, or `x: word` alone on its line."""
    before = text[max(0, start - 2) : start]
    if text[end : value.start] == "=":
        return not before.endswith(("(", ", "))
    line_begins = text.rfind("\n", 0, start) + 1
    is_alone = not text[line_begins:start].strip(" \t-") and text[value.end : value.end + 1] in (
        "",
        "\n",
        "\r",
    )
    return is_alone and text[end : end + 1] == ":"


def _value_at(view: View, start: int, *, assigned: bool) -> Value:
    text, data = view.text, view.data
    if match := begins(_SCHEME, data, start) or begins(_YAML_TAG, data, start):
        start = match.end()
    if begins(_STRING_PREFIX, data, start):
        start = next(place for place in range(start, start + 3) if text[place] in "\"'")
    quote = text[start : start + 1]
    if quote and quote in "\"'`":
        fence = quote * 3 if text.startswith(quote * 3, start) else quote
        first = start + len(fence)
        last = text.find(fence, first, first + _LONGEST_VALUE)
        if last >= 0 and "\n" not in text[first:last].strip("\n"):
            return Value(first, last, text[first:last], quoted=True, assigned=assigned)
        start = first
    return _bare(view, start, assigned=assigned)


def _bare(view: View, start: int, *, assigned: bool) -> Value:
    match = begins(_BARE, view.data, start)
    if match is None:
        return Value(start, start, "", quoted=False, assigned=assigned)
    value = view.text[start : match.end()]
    for cut in _CUTS:
        head, found, tail = value.partition(cut)
        if found and (cut not in "&," or not tail or "=" in tail or ":" in tail):
            value = head
    value = value.rstrip(_TRAILING)
    return Value(start, start + len(value), value, quoted=False, assigned=assigned)


def is_secret_value(value: Value, strength: Strength) -> bool:
    """Say whether a value that stands behind a name of this strength is a secret, and no word or code."""
    text = value.text.strip()
    is_other = (
        is_placeholder(text) or is_path(text) or is_address(text) or (not value.quoted and is_code(text))
    )
    if len(text) < _SHORTEST or is_other:
        return False
    if strength is Strength.CODE:
        digits = text.replace("-", "").replace(" ", "")
        return (digits.isdigit() and len(digits) <= _LONGEST_CODE) or looks_random(text)
    if strength is Strength.WEAK:
        return looks_random(text)
    if " " in text or "\n" in text:
        return value.quoted and value.assigned and strength is Strength.PASSWORD and _is_phrase(text)
    if strength is Strength.PASSWORD:
        return _is_password(text, value)
    return _is_token(text, value)


def _is_phrase(text: str) -> bool:
    words = text.lower().split()
    return (
        len(words) <= _MOST_WORDS
        and not _STOP_WORDS.intersection(words)
        and all(word.isalnum() for word in words)
    )


def _is_password(text: str, value: Value) -> bool:
    if not value.quoted and strength_of(text) > Strength.WEAK and text[-1].isalpha():
        return False  # a class, a variable: OAuth2Credentials
    if looks_made(text):
        return True
    if value.quoted:
        return len(text) >= _SHORT_PASSWORD and not strength_of(text)
    if not value.assigned:
        return False
    is_plain = value.tight and _PLAIN.fullmatch(text) is not None and not strength_of(text)
    is_mixed = not text.islower() and not text.isupper() and not is_wordy(text)
    return text.isdigit() or is_plain or is_mixed


def _is_token(text: str, value: Value) -> bool:
    if len(text) < _SHORT_TOKEN or is_wordy(text) or strength_of(text):
        return False
    if value.assigned:
        return looks_made(text) or len(text) >= _LONG_TOKEN
    # A short hash behind the word is a commit's more often than a token's.
    return looks_made(text) and (len(text) >= _LONG_HASH or not is_name_of_something(text))
