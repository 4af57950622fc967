"""Likeness: whether two descriptions of a pattern say the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

ENOUGH = 6
"""Of so many words a description may have one more than another that says the same."""

_TOKEN = re.compile(
    r"""!=|[<>=\u2264\u2265\u2260%]+             # signs
    |(?<!\w)[-+]?\d(?:[\w.,:/-]*\w)?          # numbers, times, ranges, and names that begin with a digit
    |[^\W_]+(?:['\u2019_][^\W_]+)*            # words""",
    re.VERBOSE,
)
_FILLERS = frozenset(
    """a an the this that these those is are was were be been being am do does did has have had to of it its
    they them their there tend tends tended often usually generally typically frequently commonly mostly
    normally regularly sometimes likely probably possibly apparently seem seems seemed appear appears appeared
    very quite rather really also then just still again slightly somewhat can may might could would should
    will observed noted""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)
)
# A word of these makes another statement of the same words; so does a number, a sign, or a name.
_TURNS = frozenset(
    """no not never none nor neither nothing without cannot only except unless until if but rarely seldom
    hardly barely less least fewer more most all any every each some few many up down high low higher lower
    above below over under before after increase decrease increasing decreasing rise fall rising falling
    first last min max minimum maximum left right true false on off in out start stop begin end open close
    fast slow hot cold always early late success failure pass fail new old""".split()  # noqa: SIM905 (as above)
)
_PLURAL = re.compile(r"(?<=[a-z]{3})(?<![su])s\Z")


@dataclass(frozen=True, slots=True)
class Essence:
    """Hold the words of a description without fillers, and those of them that make it another's if added."""

    words: tuple[str, ...]
    firm: frozenset[str]


@lru_cache(maxsize=2048)
def essence_of(description: str) -> Essence:
    """Return the essence of a description; case, punctuation, plurals, articles and hedges don't count."""
    words: list[str] = []
    firm: set[str] = set()
    for token in _TOKEN.findall(description):
        plain = token.casefold().replace("\u2019", "'")
        is_name = (token.isupper() and len(token) > 1) or (bool(words) and token[0].isupper())
        if plain in _FILLERS and not is_name:
            continue
        word = _PLURAL.sub("", plain)
        if is_name or plain in _TURNS or "n't" in plain or not word.isalpha():
            firm.add(word)
        words.append(word)
    return Essence(tuple(words), frozenset(firm))


def alike(one: Essence, other: Essence) -> bool:
    """Say whether two descriptions are near-identical: the same words in the same order.

    Of many words one may be in excess, unless it is a number, a sign, a negation, a direction or a name.
    A word in another's place makes two: "above 80" and "above 90", "red valve" and "blue valve".
    """
    excess = len(one.words) - len(other.words)
    if not excess:
        return bool(one.words) and one.words == other.words
    short, long = (other, one) if excess > 0 else (one, other)
    if abs(excess) > 1 or len(short.words) < ENOUGH:
        return False
    at = next(
        (at for at, (left, right) in enumerate(zip(short.words, long.words, strict=False)) if left != right),
        len(short.words),
    )
    return short.words[at:] == long.words[at + 1 :] and long.words[at] not in long.firm
