"""Redactor: withhold secrets, personal data and internal names in texts and data."""

from __future__ import annotations

import os
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._hints import keyword_hints
from redraft.errors import ConfigError
from redraft.redact.canonical import WITHHELD, canonical, unescaped
from redraft.redact.data import cached, redact_object, redact_plain
from redraft.redact.infrastructure import find_infrastructure
from redraft.redact.kinds import Category, Finding, Kind, Redacted, mark
from redraft.redact.known import (
    MIN_LENGTH,
    AllowedTerms,
    Known,
    MachineNames,
    machine_names_of,
    secrets_of,
)
from redraft.redact.names import NamesInRecord
from redraft.redact.personal import find_personal
from redraft.redact.secrets import find_secrets
from redraft.settings import allowed_terms, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from redraft.redact.canonical import View

T = TypeVar("T")

EVERY_CATEGORY = tuple(Category)

_ROUNDS = 8
"""How often a text is redacted again, since withholding one thing may reveal another."""


def redact(text: str, *, allow: Iterable[str] = ()) -> Redacted:
    """Return a text without secrets, personal data and internal names, and how many of each kind were found.

    The secrets in this process's environment are known. The terms in `allow`, and those of the setting
    `redact_allow`, are left as they are unless they are secrets. Redacting the result again changes nothing.
    Takes one to five milliseconds per kilobyte. Raises `ConfigError` for a term without a letter or digit.
    """
    return redactor_of_environment(also=EVERY_CATEGORY, allow=allow).redact(text)


def redactor_of_environment(
    *,
    environment: Mapping[str, str] | None = None,
    known: Iterable[str] = (),
    also: Collection[Category] = (Category.PERSONAL,),
    allow: Iterable[str] = (),
) -> Redactor:
    """Return a redactor that knows the environment's secrets and the names of this machine and its user.

    Secrets are the values of variables with secret-like names and the passwords inside addresses; `known` are
    further ones. `environment` stands in for the process's own. The terms in `allow`, and those of the
    setting `redact_allow`, are not withheld.
    """
    variables = os.environ if environment is None else environment
    return Redactor(
        [*secrets_of(variables), *known],
        also=also,
        machine_names=machine_names_of(variables),
        allow=[*_checked(allow), *terms_of_project()],
    )


def terms_of_project() -> tuple[str, ...]:
    """Return the terms that the setting `redact_allow` has in this folder; none if the settings are invalid.

    A mistake in `redraft.toml` is reported by whatever uses a setting. Its message is redacted, too, as are
    the log lines of a run during which the file is edited.
    """
    try:
        return load_settings().redact_allow
    except ConfigError:
        return ()


def _checked(allow: Iterable[str]) -> tuple[str, ...]:
    if isinstance(allow, str):  # its characters would be terms
        raise ConfigError(f"allow must be a list of terms, such as ['Acme Corp'], got {allow!r}.")
    return allowed_terms(list(allow), "allow")


@keyword_hints()
class Redactor:
    """Withholds secrets, and the categories that `also` names.

    `known` are values that are secret whatever they look like, at least 8 characters long (a shorter one
    would be found in ordinary words). They are also found in Base64, hexadecimal, escapes and across line
    breaks. `machine_names` are names of this machine, each with its kind. The terms in `allow` are not
    withheld, except as secrets; they are found as whole words, in any case. Safe to share between threads.

    A person's name that is recognised once is withheld wherever it stands in the same record: a text, or all
    texts of an object. Where a record is redacted piece by piece, the pieces share a set of `names`, which
    grows: those recognised in a later piece are withheld in an earlier one only if that is redacted again.

    Raises `ConfigError` for a term without a letter or digit.
    """

    def __init__(
        self,
        known: Iterable[str] = (),
        *,
        also: Collection[Category] = (),
        machine_names: Mapping[str, Kind] | None = None,
        allow: Iterable[str] = (),
    ) -> None:
        self._known = Known({value: Kind.KNOWN for value in known if len(value) >= MIN_LENGTH})
        self._machine_names = MachineNames(machine_names or {})
        self._also = frozenset(also)
        self._allowed = AllowedTerms(_checked(allow))

    def redact(self, text: str, names: set[str] | None = None) -> Redacted:
        """Return a text with a mark in place of each finding; the rest is unchanged.

        Redacting the result again changes nothing. Takes time in proportion to the length.
        """
        counts: Counter[str] = Counter()
        names = set() if names is None else names
        for _ in range(_ROUNDS):
            found = self._found(text, names)
            if not found:
                return Redacted(text, dict(counts))
            counts.update(str(one.kind) for one in found)
            text = _marked(text, found)
        if not self._found(text, names):
            return Redacted(text, dict(counts))
        counts[str(Kind.UNCLEAN)] += 1
        return Redacted(mark(Kind.UNCLEAN), dict(counts))

    def is_clean(self, text: str) -> bool:
        """Return whether a text has no findings."""
        return not self._found(text, set())

    def findings(self, text: str) -> list[Finding]:
        """Return what would be withheld in a text, from left to right."""
        return self._found(text, set())

    def redact_json(self, value: Any, names: set[str] | None = None) -> Any:
        """Return plain JSON data of the same shape with all its texts redacted, keys included.

        Withholds whatever is under a secret-like key.
        """
        return redact_record(value, self._text, redact_plain, names)

    def redact_object(self, value: T, *, spared: tuple[type, ...] = ()) -> T:
        """Return a dataclass with all its texts redacted, except inside `spared` classes.

        Models in it become plain data: the result is for display.
        """
        return redact_record(value, self._text, lambda one, redact: redact_object(one, redact, spared))

    def _text(self, text: str, names: set[str]) -> str:
        return self.redact(text, names).text

    def _found(self, text: str, names: set[str]) -> list[Finding]:
        """Return the findings from left to right, without overlaps; adds the names among them to `names`."""
        view = canonical(text)
        layers = (view, *unescaped(view))
        found = [one for layer in layers for one in _in_text(layer, self._found_in(layer))]
        names |= {text[one.start : one.end] for one in found if one.kind is Kind.NAME}
        if names:
            named = _finder(frozenset(names))
            for layer in layers:
                found += _in_text(layer, self._allowed.spare(layer, named.find(layer)))
        return _merged(found)

    def _found_in(self, view: View) -> Iterator[Finding]:
        yield from find_secrets(view, self._known)
        yield from self._allowed.spare(view, self._names_in(view))

    def _names_in(self, view: View) -> Iterator[Finding]:
        """Yield personal data and internal names."""
        yield from self._machine_names.find(view)
        if Category.PERSONAL in self._also:
            yield from find_personal(view)
        if Category.INFRASTRUCTURE in self._also:
            yield from find_infrastructure(view)


def redact_record(
    value: Any,
    redact: Callable[[str, set[str]], str],
    walk: Callable[[Any, Callable[[str], str]], Any] = redact_plain,
    names: set[str] | None = None,
) -> Any:
    """Return a value with all its texts redacted by `redact`, which adds the names that it finds to a set.

    `walk` applies a function to each text of a value. A name that any text shows to be a person's is withheld
    in all of them.
    """
    names = set() if names is None else names
    clean = walk(value, cached(lambda text: redact(text, names)))
    if not names:
        return clean
    named = _finder(frozenset(names))

    def withhold(text: str) -> str:
        view = canonical(text)
        return _marked(text, _merged(_in_text(view, named.find(view))))

    return walk(clean, cached(withhold))


@lru_cache(maxsize=64)
def _finder(names: frozenset[str]) -> NamesInRecord:
    return NamesInRecord(names)


def _in_text(layer: View, found: Iterable[Finding]) -> list[Finding]:
    """Return findings in a view as findings in its text, without those of nothing but marks and spaces."""
    return [
        Finding(*layer.origin(one.start, one.end), one.kind)
        for one in found
        if layer.text[one.start : one.end].strip(WITHHELD + " \t\n\"'`")
    ]


def _merged(found: list[Finding]) -> list[Finding]:
    """Return the findings in order; those that overlap become one, of the kind that was found first."""
    merged: list[Finding] = []
    rank = {one: place for place, one in reversed(list(enumerate(found)))}
    best = 0
    for one in sorted(set(found)):
        if merged and one.start < merged[-1].end:
            last = merged[-1]
            kind = one.kind if rank[one] < best else last.kind
            best = min(best, rank[one])
            merged[-1] = Finding(last.start, max(last.end, one.end), kind)
        else:
            merged.append(one)
            best = rank[one]
    return merged


def _marked(text: str, found: list[Finding]) -> str:
    pieces: list[str] = []
    done = 0
    for one in found:
        pieces += [text[done : one.start], mark(one.kind)]
        done = one.end
    return "".join([*pieces, text[done:]])
