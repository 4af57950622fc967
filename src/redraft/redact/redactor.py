"""Redactor: withhold secrets, personal data and internal names in texts and data."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._hints import keyword_hints
from redraft._validation import check_iterable, check_kind, check_text
from redraft.errors import ConfigError
from redraft.redact.canonical import WITHHELD, canonical, unescaped
from redraft.redact.data import cached, redact_object, redact_plain
from redraft.redact.infrastructure import find_infrastructure
from redraft.redact.kinds import Category, Finding, Kind, Redacted, mark
from redraft.redact.literals import (
    MIN_LENGTH,
    AllowedTerms,
    KnownSecrets,
    MachineNames,
    machine_names_of,
    secrets_of,
)
from redraft.redact.names import NamesInRecord
from redraft.redact.personal import find_personal
from redraft.redact.secrets import find_secrets
from redraft.settings import allowed_terms, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from redraft.redact.canonical import View

T = TypeVar("T")

EVERY_CATEGORY = tuple(Category)

_ROUNDS = 8
"""Most times that a text is redacted again: a mark may reveal another finding."""


def redact(text: str, *, allow: Iterable[str] = ()) -> Redacted:
    """Withhold secrets, personal data and internal names in a text, and count them by kind.

    Secrets in this process's environment are withheld, too. The terms in `allow`, and those of the setting
    `redact_allow`, are left as they are unless they are secrets. Redacting the result again changes nothing.
    Takes one to five milliseconds per kilobyte. Raises `ConfigError` for a term without a letter or digit.
    """
    check_text("text", text)
    return redactor_of_environment(also=EVERY_CATEGORY, allow=allow).redact(text)


def redactor_of_environment(
    *,
    environment: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
    also: Collection[Category] = (Category.PERSONAL,),
    allow: Iterable[str] = (),
) -> Redactor:
    """A redactor for the environment's secrets and the names of this machine and its user.

    Secrets are the values of variables with secret-like names, the passwords inside URLs, and `secrets`.
    `environment` replaces the process's own. The terms in `allow`, and those of the setting `redact_allow`,
    are not withheld.
    """
    variables = os.environ if environment is None else environment
    return Redactor(
        [*secrets_of(variables), *secrets],
        also=also,
        machine_names=machine_names_of(variables),
        allow=[*_checked(allow), *terms_of_project()],
    )


def withheld(value: T) -> T:
    """Redact secrets and personal data in a text, plain data or a dataclass, to show it to the user.

    The names of the machine and its user stay, since only that user sees them and needs the paths.
    """
    redactor = Redactor(secrets_of(os.environ), also=(Category.PERSONAL,), allow=terms_of_project())
    return redactor.redact_object(value)


def terms_of_project() -> tuple[str, ...]:
    """The terms of the setting `redact_allow` in this folder; none if the settings are invalid.

    A mistake in `redraft.toml` is reported when a setting is used. Its message is redacted, too, and so are
    the log lines of a run during which the file is edited.
    """
    try:
        return load_settings().redact_allow
    except ConfigError:
        return ()


def _checked(allow: Iterable[str]) -> tuple[str, ...]:
    check_iterable("allow", allow, "a list of terms, such as ['Acme Corp']")
    return allowed_terms(list(allow), "allow")


@keyword_hints()
class Redactor:
    """Withholds secrets, and the categories in `also`.

    `secrets` are withheld whatever they look like, also in Base64, hexadecimal, escapes and across line
    breaks; values of fewer than 8 characters are ignored, since they occur in ordinary words.
    `machine_names` are names of this machine, each with its kind. The terms in `allow` are not withheld,
    except as secrets; they match as whole words, in any case. Safe to share between threads.

    A person's name that is recognised once is withheld in the whole record: a text, or all texts of an
    object. Where a record is redacted piece by piece, the pieces share a set of `names`, which grows: a name
    recognised in a later piece is withheld in an earlier one only if that is redacted again.

    Raises `ConfigError` for a term without a letter or digit.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        *,
        also: Collection[Category] = (),
        machine_names: Mapping[str, Kind] | None = None,
        allow: Iterable[str] = (),
    ) -> None:
        check_iterable("secrets", secrets, "a list of strings")
        check_iterable("also", also, "a collection of categories")
        check_kind("machine_names", machine_names, (Mapping, NoneType), "a mapping from names to kinds")
        self._secrets = KnownSecrets({value: Kind.KNOWN for value in secrets if len(value) >= MIN_LENGTH})
        self._machine_names = MachineNames(machine_names or {})
        self._also = frozenset(also)
        self._allowed = AllowedTerms(_checked(allow))

    def redact(self, text: str, names: set[str] | None = None) -> Redacted:
        """Replace each finding in a text by a mark; the rest is unchanged.

        Redacting the result again changes nothing. Takes time in proportion to the length.
        """
        counts: Counter[str] = Counter()
        names = set() if names is None else names
        for _ in range(_ROUNDS):
            findings = self._find(text, names)
            if not findings:
                return Redacted(text, dict(counts))
            counts.update(str(finding.kind) for finding in findings)
            text = _marked(text, findings)
        if not self._find(text, names):
            return Redacted(text, dict(counts))
        counts[str(Kind.UNCLEAN)] += 1
        return Redacted(mark(Kind.UNCLEAN), dict(counts))

    def is_clean(self, text: str) -> bool:
        """Whether a text has no findings."""
        return not self._find(text, set())

    def findings(self, text: str) -> list[Finding]:
        """The spans that would be withheld in a text, from left to right."""
        return self._find(text, set())

    def redact_json(self, value: Any, names: set[str] | None = None) -> Any:
        """Redact all texts in plain JSON data, keys included, and withhold all values under secret-like keys.

        The shape stays the same.
        """
        return redact_record(value, self._text, redact_plain, names)

    def redact_object(self, value: T, *, spared: tuple[type, ...] = ()) -> T:
        """Redact all texts of a dataclass, except inside `spared` classes.

        Models in it become plain data: the result is for display.
        """
        return redact_record(value, self._text, lambda data, redact: redact_object(data, redact, spared))

    def _text(self, text: str, names: set[str]) -> str:
        return self.redact(text, names).text

    def _find(self, text: str, names: set[str]) -> list[Finding]:
        """The findings from left to right, without overlaps; adds the names among them to `names`."""
        view = canonical(text)
        layers = (view, *unescaped(view))
        findings: list[Finding] = []
        for layer in layers:
            findings += _in_text(layer, find_secrets(layer, self._secrets))
            findings += _in_text(layer, self._allowed.spare(layer, self._find_names_in(layer)))
        names |= {text[finding.start : finding.end] for finding in findings if finding.kind is Kind.NAME}
        if names:
            named = _finder(frozenset(names))
            for layer in layers:
                findings += _in_text(layer, self._allowed.spare(layer, named.find(layer)))
        return _merged(findings)

    def _find_names_in(self, view: View) -> Iterator[Finding]:
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
    """Redact all texts of a value by `redact`, which adds the names that it recognises to a set.

    `walk` applies a function to each text of a value. A name that is recognised in one text is withheld in
    all of them.
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


_finder = lru_cache(maxsize=64)(NamesInRecord)


def _in_text(layer: View, findings: Iterable[Finding]) -> list[Finding]:
    """Map findings in a view to its original text; drops those that hold only marks and spaces."""
    return [
        Finding(*layer.origin(start, end), kind)
        for start, end, kind in findings
        if layer.text[start:end].strip(WITHHELD + " \t\n\"'`")
    ]


def _merged(findings: list[Finding]) -> list[Finding]:
    """Sort findings, and merge those that overlap into one of the kind that comes first in the list."""
    merged: list[Finding] = []
    rank = {finding: place for place, finding in reversed(list(enumerate(findings)))}
    best = 0
    for finding in sorted(set(findings)):
        if merged and finding.start < merged[-1].end:
            last = merged[-1]
            kind = finding.kind if rank[finding] < best else last.kind
            best = min(best, rank[finding])
            merged[-1] = Finding(last.start, max(last.end, finding.end), kind)
        else:
            merged.append(finding)
            best = rank[finding]
    return merged


def _marked(text: str, findings: list[Finding]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end, kind in findings:
        pieces += [text[done:start], mark(kind)]
        done = end
    return "".join([*pieces, text[done:]])
