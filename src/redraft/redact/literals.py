"""Literals: known secrets, names of this machine and its user, and allowed terms."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from redraft.redact.assignments import is_secret_name
from redraft.redact.canonical import View, canonical, joined
from redraft.redact.engine import spans
from redraft.redact.kinds import Finding, Kind, mark
from redraft.redact.values import is_placeholder, word_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# --- values, in every form that a text may hold them in ---

MIN_LENGTH = 8
"""Fewest characters of a known secret: a shorter value would match in ordinary words."""

_BASE64_BITS = 6
_BYTE_BITS = 8
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")
_HEX = frozenset("0123456789abcdefABCDEF")
_COMMON = frozenset({"changeme", "disabled", "enabled!", "required", "optional", "localhost", "postgres"})
_Form = tuple[Kind, frozenset[str]]  # with the alphabet of the encoding
_MARKS = " ".join(mark(kind) for kind in Kind)


@dataclass(slots=True)
class KnownSecrets:
    """Finds known secrets: as they are, in Base64 at any offset, in hexadecimal, across line breaks.

    Percent, backslash and HTML escapes must be undone before. Values that are part of a mark, or common in
    any text (`localhost`), are ignored.
    """

    values: Mapping[str, Kind]
    _forms: dict[str, _Form] = field(default_factory=dict[str, _Form])
    _source: str = ""

    def __post_init__(self) -> None:
        for value, kind in self.values.items():
            plain = canonical(value).text
            if plain in _MARKS or plain.lower() in _COMMON:
                continue
            raw = value.encode("utf-8", "surrogatepass")
            # Undoing the escapes of single bytes gives one character per byte.
            for form in (value, plain, canonical(raw.decode("latin-1")).text):
                self._forms.setdefault(form, (kind, frozenset()))
            for form in _base64_forms(raw):
                self._forms.setdefault(form, (kind, _BASE64))
            for form in (raw.hex(), raw.hex().upper()):
                self._forms.setdefault(form, (kind, _HEX))
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._source = "|".join(_quoted(form) for form in longest_first)

    def find(self, view: View) -> Iterator[Finding]:
        """Yield the known secrets of a text."""
        if not self._forms:
            return
        yield from self._matches(view)
        if "\n" in view.text and (flat := joined(view)) is not view:
            for start, end, kind in self._matches(flat):
                yield Finding(*flat.in_parent(start, end), kind)

    def _matches(self, view: View) -> Iterator[Finding]:
        text, done = view.text, 0
        for start, end in spans(self._source, view.data):
            form = self._forms.get(text[start:end])
            # Characters outside of Latin-1 all look the same to the engine.
            if form is None or end <= done:
                continue
            kind, alphabet = form
            # The characters next to the core of an encoding hold a few bits of the value as well.
            first, done = _widened(text, start, end, alphabet)
            yield Finding(first, done, kind)


def _widened(text: str, start: int, end: int, alphabet: frozenset[str]) -> tuple[int, int]:
    while start and text[start - 1] in alphabet:
        start -= 1
    while end < len(text) and text[end] in alphabet:
        end += 1
    return start, end


def _quoted(form: str) -> str:
    data = View(form).data.decode("latin-1")
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"\\x{ord(match.group()):02x}", data)


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the Base64 characters that depend on these bytes alone, for each offset in a longer text."""
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + raw).decode("ascii")
        first = -(-offset * _BYTE_BITS // _BASE64_BITS)
        last = (offset + len(raw)) * _BYTE_BITS // _BASE64_BITS
        core = encoded[first:last]
        yield core
        yield core.replace("+", "-").replace("/", "_")


# --- names of this machine and its user ---

_GENERIC_NAMES = word_set(
    "root user admin administrator app ubuntu debian runner vscode node guest nobody git test dev build "
    "docker www-data daemon localhost server main host master worker laptop desktop home computer machine "
    "linux"
)
_MIN_NAME = 4


class MachineNames:
    """Finds names of this machine as whole words, in any case; ignores ordinary words."""

    def __init__(self, names: Mapping[str, Kind]) -> None:
        self._kinds = {
            name.lower(): kind
            for name, kind in names.items()
            if len(name) >= _MIN_NAME and name.lower() not in _GENERIC_NAMES
        }
        # Longest first: a home folder contains its user's name.
        longest_first = sorted(self._kinds, key=len, reverse=True)
        words = "|".join(re.escape(name) for name in longest_first)
        self._pattern = re.compile(rf"(?i)(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])") if words else None

    def find(self, view: View) -> Iterator[Finding]:
        """Yield the names in a text."""
        if self._pattern is not None:
            for match in self._pattern.finditer(view.text):
                yield Finding(match.start(), match.end(), self._kinds[match.group().lower()])


# --- terms that are allowed ---


class AllowedTerms:
    """Finds terms that may be shown, as whole words, in any case, with any white space between words."""

    def __init__(self, terms: Iterable[str]) -> None:
        words = (re.escape(canonical(term).text).replace(r"\ ", r"\s+") for term in terms)
        # Longest first: one term may begin with another.
        longest_first = "|".join(sorted(words, key=len, reverse=True))
        self._pattern = re.compile(rf"(?i)(?<!\w)(?:{longest_first})(?!\w)") if longest_first else None

    def spare(self, view: View, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings without the allowed terms.

        Of a name, the words outside the terms remain. Any other finding remains whole unless it consists of
        terms: a domain may be allowed, but not an e-mail address with this domain.
        """
        if self._pattern is None:
            yield from findings
            return
        terms: list[tuple[int, int]] | None = None
        for finding in findings:
            if terms is None:
                terms = [match.span() for match in self._pattern.finditer(view.text)]
            if rest := _outside(terms, view.text, finding):
                yield from rest if finding.kind is Kind.NAME else [finding]


def _outside(terms: list[tuple[int, int]], text: str, finding: Finding) -> list[Finding]:
    """The parts of a finding outside of all terms, without white space and punctuation."""
    gaps: list[tuple[int, int]] = []
    start = finding.start
    for first, last in terms:
        if first < finding.end and last > start:
            gaps.append((start, first))
            start = last
    gaps.append((start, finding.end))
    matches = (_WORDS.search(text, begin, max(begin, end)) for begin, end in gaps)
    return [Finding(*match.span(), finding.kind) for match in matches if match]


_WORDS = re.compile(r"\w(?:.*\w)?", re.DOTALL)


# --- the environment ---

_LOGIN = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^\s/@:]*:(\S+)@[^\s@]*\Z")
_FILE = re.compile(r"(?:[A-Za-z]:)?[/\\][\w./\\ -]*")


def secrets_of(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the secret values of environment variables, and the passwords inside their URLs."""
    for name, value in variables.items():
        if is_secret_name(name) and not is_placeholder(value) and not _FILE.fullmatch(value):
            yield value
        if login := _LOGIN.match(value):
            yield login[1]
            yield unquote(login[1])


def machine_names_of(variables: Mapping[str, str]) -> dict[str, Kind]:
    """Names of this machine and its user, each with its kind."""
    import socket  # noqa: PLC0415 (slow to import)

    names: dict[str, Kind] = {}
    for name in (socket.gethostname(), variables.get("HOSTNAME", ""), variables.get("COMPUTERNAME", "")):
        names[name] = Kind.HOST
        names.setdefault(name.split(".", maxsplit=1)[0], Kind.HOST)
    for name in (variables.get("USER", ""), variables.get("LOGNAME", ""), variables.get("USERNAME", "")):
        names[name] = Kind.USER
    for folder in (variables.get("HOME", ""), variables.get("USERPROFILE", "")):
        names[folder.rstrip("/\\")] = Kind.HOME
    return {name: kind for name, kind in names.items() if name}
