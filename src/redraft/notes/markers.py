"""The reply to the reflection prompt, read: four markers, each at the beginning of a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from textwrap import dedent

from redraft.core.errors import OutputError
from redraft.notes.plain import plain

MARKERS = ("REFINED_DESCRIPTION", "REFINED_EXPECTED_OUTPUT", "OBSERVATIONS", "SUGGESTIONS")
"""The sections of a reply, in their order."""

# As the format has it, or set off as models like to.
_MARKER = re.compile(rf"(?:#{{1,6}} +)?(\*\*|__|`)?({'|'.join(MARKERS)})(?(1)(?:\1)?)[:\uff1a](?(1)(?:\1)?)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[^`]*")
_RULE = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*")
_BULLET = re.compile(r"([^\S\n]*)(?:[-*+\u2022\u2013]|\(?\d{1,3}[.)])(?:\s+|$)")
_NOTHING = re.compile(
    r"(?:none|n/a|nothing|unchanged|no changes?|no (?:observations|suggestions))(?: (?:needed|required))?"
)
# The form itself, given back unfilled.
_FORM = re.compile(
    r"\[(?:An improved version of the|Key observation about|Specific actionable improvement)[^\]\n]*\]"
)


@dataclass(frozen=True, slots=True)
class Sections:
    """Hold what stood in the sections of a reply; a text is empty where its section was blank or missing."""

    description: str = ""
    expected_output: str = ""
    observations: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


def sections_of(reply: str, *, output: str = "", cut_off: bool = False) -> Sections:
    """Read a reply to the reflection prompt about an `output`.

    A section begins with its marker at the beginning of a line. Of the markers that stand there, those count
    with which most sections are found in their documented order, the earliest of them; any other is content
    of the section in which it stands. So is one of several of a name that the output has, too, with the same
    line after it: the reply quotes it. A fence around all of it and what stands before the first marker are
    left out. Of a reply that was `cut_off` within a list, the last item is left out. Raises `OutputError`
    where there is no marker at all, and where a refined text was cut off.
    """
    lines = plain(reply).split("\n")
    places = _places(lines, _quotable(output))
    if not places:
        raise OutputError(
            f"None of the markers {', '.join(f'{name}:' for name in MARKERS)} begins a line of the reply, "
            f"which has {len(reply):,} characters: it can't be read as a reflection."
        )
    last = list(places)[-1] if cut_off else ""
    if last in MARKERS[:2]:
        raise OutputError(
            f"The reply was cut off in the section {last}: the model's limit of tokens is too low."
        )
    del lines[_end(lines, places) :]
    ends = sorted([*places.values(), len(lines)])
    found: dict[str, list[str]] = {}
    for name, start in places.items():
        end = ends[ends.index(start) + 1]
        found[name] = _unfenced([_MARKER.sub("", lines[start], count=1).lstrip(), *lines[start + 1 : end]])
    description, expected = (_text(found.get(name, [])) for name in MARKERS[:2])
    observed, suggested = (
        _items(found.get(name, []))[: -1 if name == last else None] for name in MARKERS[2:]
    )
    return Sections(description, expected, observed, suggested)


def _places(lines: list[str], quotable: set[str]) -> dict[str, int]:
    """Return the line of each marker that counts, in their order."""
    marked = _marked(lines)
    own = [mark for mark in marked if _with_what_follows(lines, mark[0]) not in quotable]
    known = {name for _, name in own}
    marked = sorted([*own, *(mark for mark in set(marked) - set(own) if mark[1] not in known)])
    for count in range(len(MARKERS), 0, -1):
        ways = [way for names in combinations(MARKERS, count) if (way := _first_in_order(names, marked))]
        if ways:
            return min(ways, key=lambda way: list(way.values()))
    return {}


def _marked(lines: list[str]) -> list[tuple[int, str]]:
    return [
        (number, found[2]) for number, line in enumerate(lines) if (found := _MARKER.match(line)) is not None
    ]


def _quotable(output: str) -> set[str]:
    """Return the markers in an output, each with what follows it."""
    lines = plain(output).split("\n")
    return {text for number, _ in _marked(lines) if (text := _with_what_follows(lines, number))}


def _with_what_follows(lines: list[str], number: int) -> str:
    """Return a marker with the first text behind it, in its line or below; nothing where there is none."""
    marker = lines[number].strip()
    if _MARKER.sub("", marker, count=1).strip():
        return marker
    behind = (lines[at].strip() for at in range(number + 1, len(lines)))
    below = next(filter(None, behind), "")
    return f"{marker}\n{below}" if below and not _MARKER.match(below) else ""


def _first_in_order(names: tuple[str, ...], marked: list[tuple[int, str]]) -> dict[str, int]:
    """Return the first lines on which these markers follow each other; nothing if they don't."""
    found: dict[str, int] = {}
    for number, name in marked:
        if len(found) < len(names) and name == names[len(found)]:
            found[name] = number
    return found if len(found) == len(names) else {}


def _end(lines: list[str], places: dict[str, int]) -> int:
    """Say where the reply ends: at the fence that closes one opened above the first marker, if any."""
    fences = [number for number, line in enumerate(lines) if _FENCE.fullmatch(line)]
    above = sum(number < min(places.values()) for number in fences)
    # Fences come in pairs: an odd number above leaves one open, and then an even number in all closes it.
    closed = above % 2 and len(fences) % 2 == 0 and fences[-1] > max(places.values())
    return fences[-1] if closed else len(lines)


def _unfenced(lines: list[str]) -> list[str]:
    """Return a section without blank lines and rules around it, and without a fence around all of it."""
    said = [number for number, line in enumerate(lines) if line.strip() and not _RULE.fullmatch(line)]
    inner = lines[said[0] : said[-1] + 1] if said else []
    fences = [number for number, line in enumerate(inner) if _FENCE.fullmatch(line)]
    return inner[1:-1] if fences == [0, len(inner) - 1] else inner


def _text(lines: list[str]) -> str:
    text = "\n".join(lines).strip()
    return "" if _says_nothing(text) else text


def _items(lines: list[str]) -> tuple[str, ...]:
    """Read a list: bullets or numbers, else lines; what is deeper below an item, or at once, is its own."""
    bullets = [found for line in lines if not _RULE.fullmatch(line) and (found := _BULLET.match(line))]
    outermost = len(bullets[0][1]) + 1 if bullets else 0
    items: list[list[str]] = []
    goes_on = False
    for line in lines:
        if not line.strip() or _RULE.fullmatch(line):
            goes_on = False
            continue
        bullet = _BULLET.match(line)
        if bullet is not None and len(bullet[1]) <= outermost:
            items.append([line[bullet.end() :]])
        elif items and bullets and (goes_on or line[0].isspace()):
            items[-1].append(line)
        else:
            items.append([line])
        goes_on = True
    texts = ("\n".join([first, dedent("\n".join(rest))]).strip() for first, *rest in items)
    return tuple(dict.fromkeys(text for text in texts if not _says_nothing(text)))


def _says_nothing(text: str) -> bool:
    bare = text.strip(" \t\n.*_`()[]-").casefold()
    return not bare or _NOTHING.fullmatch(bare) is not None or _FORM.fullmatch(text) is not None
