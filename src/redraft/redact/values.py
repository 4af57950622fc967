"""Values: whether a value looks like a secret, a placeholder, a word, or code."""

from __future__ import annotations

import re

from redraft.redact.canonical import WITHHELD


def word_set(text: str) -> frozenset[str]:
    """Split a text into a set of words."""
    return frozenset(text.split())


LONGEST_WORD = 24


def is_placeholder(value: str) -> bool:
    """Whether a value is a placeholder: `<token>`, `$TOKEN`, `xxxx`, `None`, `your-key-here`."""
    stripped = value.strip(WITHHELD + " \t\"'`.,;:=")
    if len(stripped) > _LONGEST_WORDS:
        return False
    return stripped.lower() in _NO_VALUE or _PLACEHOLDER.fullmatch(stripped) is not None


def is_code(value: str) -> bool:
    """Whether a value is an expression of code: a call, an attribute, an index."""
    return _CODE.fullmatch(value) is not None


def is_requirement(value: str) -> bool:
    """Whether a value is a package and its version: `httpx>=0.27`."""
    return _REQUIREMENT.fullmatch(value) is not None


def is_path(value: str) -> bool:
    """Whether a value is a file path, rather than random text with slashes."""
    return _PATH.fullmatch(value) is not None and not any(
        looks_random(part) for part in re.split(r"[/\\]", value)
    )


def is_url(value: str) -> bool:
    """Whether a value is a URL; secrets inside it are found on their own."""
    return _ADDRESS.match(value) is not None


def is_wordy(value: str) -> bool:
    """Whether a value is made of words: `refresh_token`, `MaxRetries`, `utf-8`."""
    if len(value) > _LONGEST_WORDS:
        return False
    parts = [part for part in _WORDS.findall(value) if part[0].isalnum()]
    letters = [part for part in parts if part[0].isalpha()]
    digits = len(parts) - len(letters)
    if not letters:
        return False
    if any(len(part) > LONGEST_WORD for part in letters):
        return False
    single = sum(len(part) == 1 for part in letters)
    if digits == 0 and single == 0:
        return not any(_VOWELS.isdisjoint(part) for part in letters if len(part) > _ABBREVIATION)
    return single <= len(letters) // 3 and digits <= 1 and _NUMBERED.fullmatch(value) is not None


def is_long_hex(value: str) -> bool:
    """Whether a value is hexadecimal and as long as a key; hashes look the same."""
    return len(value) >= _LONG_HEX and _HEX.fullmatch(value) is not None


def is_identifier(value: str) -> bool:
    """Whether a value is an identifier rather than a secret: a UUID, a hash, a number, a date."""
    shortest, longest = _HASHES
    is_hash = shortest <= len(value) <= longest and _HEX.fullmatch(value) is not None
    return is_hash or _UUID.fullmatch(value) is not None or _DATE_OR_NUMBER.fullmatch(value) is not None


def looks_made_up(value: str) -> bool:
    """Whether a value looks like a password: letters with digits or signs among them."""
    if len(value) < _SHORTEST_MADE_UP or _DATE_OR_NUMBER.fullmatch(value) is not None:
        return False
    has_letter = any(char.isalpha() for char in value)
    has_digit = any(char.isdigit() for char in value)
    return has_letter and (has_digit or _SIGN.search(value.strip("!?")) is not None)


def looks_random(value: str) -> bool:
    """Whether a value looks generated: long, with frequent changes between kinds of characters."""
    if len(value) < _SHORTEST_RANDOM or is_identifier(value) or is_wordy(value):
        return False
    if not any(char.isdigit() for char in value) and len(value) < _LONG_RANDOM:
        return False
    changes = len(_TRANSITION.findall(value))
    return changes >= _FEWEST_CHANGES and changes / len(value) >= _SHARE_OF_CHANGES


_LONGEST_WORDS = 200
_ABBREVIATION = 4
_VOWELS = frozenset("aeiouyAEIOUY")
_SHORTEST_RANDOM = 12
_SHORTEST_MADE_UP = 6
_LONG_RANDOM = 20
_SHARE_OF_CHANGES = 0.18
_FEWEST_CHANGES = 3
_HASHES = (7, 64)
_LONG_HEX = 32

_NO_VALUE = word_set(
    "none null nil undefined nan true false yes no on off ok n/a na tbd todo foo bar baz foobar lorem "
    "ipsum str string int integer bool boolean bytes text any object secretstr optional required missing "
    "empty unset default invalid valid expired revoked incorrect wrong correct unknown unavailable absent "
    "denied failed rejected bearer basic header cookie body query env environ environment config vault "
    "keyring file path plaintext encrypted hashed random generated manual auto disabled enabled changed "
    "reset rotated stored sent base64 hex sha1 sha-1 sha256 sha-256 sha512 sha-512 md5 utf8 utf-8 oauth "
    "oauth2 jwt hs256 rs256 es256 bcrypt"
)
_PLACEHOLDER_WORD = (
    "your|my|our|the|this|that|a|an|some|any|new|old|test|dummy|fake|sample|example|placeholder"
    "|insert|enter|put|replace"
    "|change|mock|stub|redacted|withheld|masked|hidden|removed|secrets?|passwords?|passwd|tokens?|keys?"
    "|api|auth"
    "|access|user|db|database|client|service|bearer|here|values?|string|name|hash|me|it|goes|credentials?"
)
_PLACEHOLDER = re.compile(
    r"[<{\[(%$@#*.xX_=\-\s\x01/\\|,;:!?+~^&]*"  # only signs: ****, ..., xxx
    r"|<[^<>]*>?|\{+[^{}]*\}*[\]\)\}]*|\[[^\[\]]*\]?"
    r"|%\w*%?|%\(\w+\)s|\$\{?\(?[\w.:\-/ ]+[)}]*|\$\(.*|@\w+@"
    rf"|(?i:(?:{_PLACEHOLDER_WORD})(?:[-_. ]?(?:{_PLACEHOLDER_WORD}))*)"
    r"|(?i:.*\b(?:redacted|withheld|masked|scrubbed|censored|placeholder)\b.*)"
    r"|[xX*\u2022.]{3,}\S{0,4}"
)
_CODE = re.compile(
    r"[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)*(?:[(\[{].*|(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)"
    r"|(?:Add|ConvertFrom|ConvertTo|Export|Get|Import|Invoke|New|Read|Remove|Set|Start|Stop)-[A-Z][A-Za-z]+"
    r"|[A-Za-z_]\w*\(.*|[A-Za-z_]\w*=[^=].*|[frbu]{1,2}[\"'].*|lambda\b.*|\*+\w+|[|&!]\w+|\[.*|\(.*|\{.*",
    re.DOTALL,
)
_REQUIREMENT = re.compile(r"[A-Za-z][\w.\[\],-]*(?:[=<>~!]=|[<>])v?\d[\w.*+-]*")
_WORDS = re.compile(
    r"[A-Z]{2,}(?=[A-Z][a-z]|[^A-Za-z]|$)|[A-Z]?[a-z]{2,}|[A-Z]{1,2}(?![a-z])|[a-z]|\d+|[^A-Za-z\d]+"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:0x)?(?:[0-9a-f]+|[0-9A-F]+)")
_PATH = re.compile(
    r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@/\\ *-]*|[\w.-]+(?:/[\w.-]+)*/?\.[a-z]{1,5}|[A-Za-z]+/\d[\d.]*"
)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://")
_SIGN = re.compile(r"[!@#$%^&*?~+=]")
_DATE_OR_NUMBER = re.compile(r"[\d.,:/TZ+\-_xX%$ ]+(?:[a-zA-Z]{1,3})?")
_NUMBERED = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*[-_.]?v?\d{1,2}(?:[-_.](?:\d{1,2}|[A-Za-z]+))*")
_TRANSITION = re.compile(r"(?<=[a-z])[A-Z\d]|(?<=[A-Z])\d|(?<=\d)[A-Za-z]|(?<=[A-Z]{2})[a-z]")
