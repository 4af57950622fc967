"""Redactor: withhold secrets from texts and plain JSON data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.redact.assigned import assigned
from redraft.redact.canonical import WITHHELD, canonical, unescaped
from redraft.redact.encoded import encoded
from redraft.redact.infrastructure import infrastructure
from redraft.redact.kinds import Category, Found, Kind, mark
from redraft.redact.known import SHORTEST, Known
from redraft.redact.likely import likely
from redraft.redact.logins import logins
from redraft.redact.names import names
from redraft.redact.nearby import nearby
from redraft.redact.objects import walk_object
from redraft.redact.personal import personal
from redraft.redact.places import Places
from redraft.redact.plain_json import redacted_once, walk_plain
from redraft.redact.redacted import Redacted
from redraft.redact.tokens import tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from redraft.redact.view import View

T = TypeVar("T")

_ROUNDS = 8
_LAYERS = 3


class Redactor:
    """Withhold what must not be shown: secrets always, what else is asked for by `also`.

    `known` are values that are secret whatever they look like, 8 characters or longer (a shorter one would
    be found in ordinary words); they are found in Base64, hexadecimal, escapes and across line breaks, too.
    `places` are names of this machine, each with what it is. Safe to share between threads.
    """

    def __init__(
        self,
        known: Iterable[str] = (),
        *,
        also: Collection[Category] = (),
        places: Mapping[str, Kind] | None = None,
    ) -> None:
        self._known = Known({value: Kind.KNOWN for value in known if len(value) >= SHORTEST})
        self._places = Places(places or {})
        self._also = frozenset(also)

    def redact(self, text: str) -> Redacted:
        """Return a text with a mark in place of each thing that was found; all else is as it was.

        Redacting the result again changes nothing. Takes time in proportion to the length.
        """
        counts: Counter[str] = Counter()
        for _ in range(_ROUNDS):
            found = self._found(text)
            if not found:
                return Redacted(text, dict(counts))
            counts.update(str(one.kind) for one in found)
            text = _without(text, found)
        if not self._found(text):
            return Redacted(text, dict(counts))
        counts[str(Kind.UNCLEAN)] += 1
        return Redacted(mark(Kind.UNCLEAN), dict(counts))

    def is_clean(self, text: str) -> bool:
        """Say whether nothing is found in a text: a writer refuses one that is not."""
        return not self._found(text)

    def redact_json(self, value: Any) -> Any:
        """Return plain JSON data of the same shape with all its texts redacted, those of keys included.

        What stands under a secret-like key is withheld whole.
        """
        return walk_plain(value, redacted_once(lambda text: self.redact(text).text))

    def redact_object(self, value: T, *, spared: tuple[type, ...] = ()) -> T:
        """Return a dataclass with all the texts in it redacted, but for what is of a `spared` class.

        Models in it become plain data: the result is to be shown, not to be used.
        """
        return walk_object(value, lambda text: self.redact(text).text, spared)

    def _found(self, text: str) -> list[Found]:
        """Return what to withhold, from left to right, without overlaps."""
        view = canonical(text)
        found: list[Found] = []
        for layer in (view, *unescaped(view)):
            found += [
                Found(*layer.origin(one.start, one.end), one.kind)
                for one in self._in(layer)
                if layer.text[one.start : one.end].strip(WITHHELD + " \t\n\"'`")
            ]
        return _apart(found)

    def _in(self, view: View) -> Iterator[Found]:
        yield from self._secrets(view, _LAYERS)
        yield from self._places.find(view)
        if Category.PERSONAL in self._also:
            yield from personal(view)
        if Category.INFRASTRUCTURE in self._also:
            yield from infrastructure(view)

    def _secrets(self, view: View, layers: int) -> Iterator[Found]:
        yield from self._known.find(view)
        yield from tokens(view)
        yield from logins(view)
        named = list(names(view))
        yield from assigned(view, named)
        yield from nearby(view, named)
        yield from likely(view)
        if layers:
            yield from encoded(view, lambda text: self._holds_secret(text, layers - 1))

    def _holds_secret(self, text: str, layers: int) -> bool:
        view = canonical(text)
        return any(one for layer in (view, *unescaped(view)) for one in self._secrets(layer, layers))


def _apart(found: list[Found]) -> list[Found]:
    """Return what was found in order, what overlaps as one, by the name of the first to be found."""
    apart: list[Found] = []
    rank = {one: place for place, one in reversed(list(enumerate(found)))}
    best = 0
    for one in sorted(set(found)):
        if apart and one.start < apart[-1].end:
            last = apart[-1]
            kind = one.kind if rank[one] < best else last.kind
            best = min(best, rank[one])
            apart[-1] = Found(last.start, max(last.end, one.end), kind)
        else:
            apart.append(one)
            best = rank[one]
    return apart


def _without(text: str, found: list[Found]) -> str:
    pieces: list[str] = []
    done = 0
    for one in found:
        pieces += [text[done : one.start], mark(one.kind)]
        done = one.end
    return "".join([*pieces, text[done:]])
