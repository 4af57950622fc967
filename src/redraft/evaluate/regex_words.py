"""Regular expressions in words: what a text must have to match."""

# Models read `YYYY-MM-DD`, "an e-mail address" or "a capital letter followed by two digits" better than an
# expression, and copy an example into their answers. So no phrase holds a text that would pass the pattern,
# unless the pattern is about fixed words.

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._texts import limits_in_words, listed
from redraft.errors import ConfigError
from redraft.text.regex import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redraft.text.regex import Pattern

MOST_PIECES = 5
"""A pattern with more pieces is quoted: small models read an expression better than a long description."""
MOST_OPTIONS = 12
"""The most fixed texts to list."""
MOST_DIGITS = 14
"""The most digits in a row of a date or time."""

_parser: Any = import_module("re._parser")
_UNLIMITED = int(_parser.MAXREPEAT)
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}

Tree = list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Phrase:
    """What a matching text does: it `ends` (`third`), or does not `end` (`base`), `with "..."` (`rest`)."""

    base: str
    """The verb after `does not`."""
    third: str
    """The verb after `the text`."""
    rest: str
    is_negated: bool = False
    """Whether a matching text does not do it."""

    def of(self, words: str) -> Phrase:
        """The phrase with `words` after `rest`."""
        return replace(self, rest=f"{self.rest}{words}")

    @property
    def affirmed(self) -> str:
        """The predicate of a sentence that requires the pattern."""
        return f"does not {self.base} {self.rest}" if self.is_negated else f"{self.third} {self.rest}"

    @property
    def is_in_words(self) -> bool:
        """Whether it puts the pattern into words, rather than quoting it."""
        return self.base != "match"

    @property
    def relative(self) -> str:
        """A relative clause after a noun: `with the form ...`, `that ends with ...`."""
        return f"with {self.rest}" if self.third == "has" else f"that {self.affirmed}"

    @property
    def denied(self) -> str:
        """The predicate of a sentence that forbids the pattern."""
        if self.is_negated:
            return f"{self.third} {self.rest}"
        return f"is not {self.rest}" if self.base == "be" else f"does not {self.base} {self.rest}"


@lru_cache(maxsize=1024)
def phrase_of(pattern: str, flags: str = "", about: str = "") -> Phrase:
    """Describe a pattern: in words if it has few pieces or is of a common kind, else quoted.

    The pattern is searched for in the text, as by `re.search`; `flags` are letters of `i`, `m`, `s`, `x`.
    `about` describes the text, such as `country`, to distinguish codes from other letters.
    """
    case = ANY_CASE if "i" in flags else ""
    quoted = Phrase("match", "matches", f"the regular expression `{pattern}`{case}")
    try:
        expression = compile_pattern(pattern, flags)
        with warnings.catch_warnings():  # for example about a set that looks nested
            warnings.simplefilter("ignore")
            parsed = _parser.parse(pattern, sum({_FLAGS[flag] for flag in flags}))
    except (ConfigError, re.error, RecursionError, OverflowError):
        return quoted
    reading = _reading(list(parsed), parsed.state.flags)
    try:
        for phrase in _phrases(reading, expression, about):
            if reading.is_fixed or not _gives_away(phrase, expression):
                return phrase
    except TimeoutError:
        return quoted
    return quoted


ANY_CASE = " in upper or lower case"


def _phrases(reading: _Reading, expression: Pattern, about: str) -> Iterator[Phrase]:
    """Yield phrases for a pattern, best first."""
    verbs, pieces = reading.verbs, _with_forms(reading.pieces or ())
    if len(pieces) == 1 and isinstance(pieces[0], _Form):
        form = f"the form {pieces[0].in_words}"
        yield Phrase("have", "has", form) if verbs == _WHOLE else verbs.of(f"text of {form}")
    if not reading.is_fixed and (kind := _kind_of(expression)):
        yield Phrase("be", "is", kind) if verbs == _WHOLE else verbs.of(kind)
    count = sum(len(piece.pieces) if isinstance(piece, _Optional) else 1 for piece in pieces)
    if not 0 < count <= MOST_PIECES or (reading.conditions and verbs != _WHOLE):
        return  # a lookahead is about the whole text
    words = f"{_in_order([piece.in_words for piece in pieces])}{reading.conditions}"
    if reading.ignores_case and any(isinstance(piece, _Fixed) and piece.has_letters for piece in pieces):
        words += ANY_CASE
    if reading.is_line:
        yield Phrase("be", "is", f"one line that {verbs.of(words).affirmed}")
        return
    words += reading.place
    if verbs != _WHOLE:
        if len(pieces) == 1 and verbs in (_START, _END) and words.startswith(f"a {_OTHER_THAN}"):
            # Small models read "end with something other than X" and end the text with X.
            yield replace(verbs.of(words.removeprefix(f"a {_OTHER_THAN}")), is_negated=True)
        yield verbs.of(words)
        return
    match pieces:
        case [_Fixed()]:
            yield Phrase("be", "is", words)
        case [_Chars(noun, least, most)] if noun == _ANY:
            line = "" if expression.spans("\n" * max(least, 2)) else " on one line"
            limits = limits_in_words(least or None, None if most == _UNLIMITED else most)
            unit = "character" if limits.endswith(" 1") else "characters"
            if (least, most) != (0, _UNLIMITED):
                yield Phrase("have", "has", f"{limits} {unit}{line}{reading.conditions}")
            elif line and not reading.conditions:
                yield Phrase("be", "is", "on one line")
        case [_Chars(noun, _, most)] if noun.startswith(_OTHER_THAN) and most == _UNLIMITED:
            rest = f"{noun.removeprefix(_OTHER_THAN)}{reading.conditions}"
            yield Phrase("contain", "contains", rest, is_negated=True)
        case [_Chars(_, least, most)]:
            code = next((code for key, code in _CODES.items() if key in about.casefold()), "")
            if code and 2 <= least == most <= 3 and words.endswith("letters"):  # noqa: PLR2004
                yield Phrase("be", "is", f"{code} ({words})")
            only = "" if least == most or reading.conditions else "only "
            yield Phrase("consist", "consists", f"{only}of {words.removeprefix('any number of ')}")
        case _:
            yield Phrase("consist", "consists", f"of {words}")


def _in_order(texts: Sequence[str]) -> str:
    """The words for pieces that follow each other."""
    *others, last = texts
    if not others:
        return last
    if last.startswith("optionally "):
        return f"{_in_order(others)}, optionally followed by {last.removeprefix('optionally ')}"
    if len(others) == 1:
        return f"{others[0]} followed by {last}"
    joints = (" and ", " or ", " other than ")
    comma = "," if any(joint in text for text in texts for joint in joints) else ""
    return f"{', '.join(others)}{comma} and {last}"


def _optional(words: str) -> str:
    article, _, noun = words.partition(" ")
    is_one = article in ("a", "an") and " and " not in noun and " or " not in noun
    return f"an optional {noun}" if is_one else f"optionally {words}"


_CODES = {
    "country": "an international country code",
    "currency": "an international currency code",
    "language": "an international language code",
}


_WHOLE = Phrase("consist", "consists", "of ")
_START = Phrase("begin", "begins", "with ")
_END = Phrase("end", "ends", "with ")
_ANYWHERE = Phrase("contain", "contains", "")
"""The verbs for the position of a pattern; `of` adds its words."""


# Pieces.


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Alternatives of fixed text."""

    texts: tuple[str, ...]
    is_optional: bool = False

    @property
    def has_letters(self) -> bool:
        return any(char.isalpha() for text in self.texts for char in text)

    @property
    def in_words(self) -> str:
        texts = [_SEPARATORS.get(text) or as_json(text) for text in self.texts]
        words = f"{'one of ' if len(texts) > 2 else ''}{listed(texts, 'or')}"  # noqa: PLR2004
        return _optional(words) if self.is_optional else words


@dataclass(frozen=True, slots=True)
class _Chars:
    """Between `least` and `most` characters of a class."""

    noun: str
    least: int = 1
    most: int = 1

    @property
    def in_words(self) -> str:
        noun = self.noun
        if (noun, self.least, self.most) == (_ANY, 0, _UNLIMITED):
            return "any text"
        if (self.least, self.most) == (1, 1):
            return _with_article(noun)
        if (self.least, self.most) == (0, 1):
            return f"an optional {noun}"
        many = _plural(noun)
        if self.most == _UNLIMITED:
            if self.least <= 1:
                return many if self.least else f"any number of {many}"
            return f"at least {_number(self.least)} {many}"
        if self.least == self.most:
            return f"{_number(self.least)} {many}"
        if not self.least:
            return f"at most {_number(self.most)} {many}"
        between = "or" if self.most == self.least + 1 else "to"
        return f"{_number(self.least)} {between} {_number(self.most)} {many}"


@dataclass(frozen=True, slots=True)
class _Optional:
    """Pieces that are optional as a group."""

    pieces: tuple[_Piece, ...]

    @property
    def in_words(self) -> str:
        words = [piece.in_words for piece in self.pieces]
        return f"optionally {_in_order(words).replace(' followed by ', ' and ')}"


@dataclass(frozen=True, slots=True)
class _Form:
    """A form in its usual letters, such as `YYYY-MM-DD`."""

    in_words: str


_Piece: TypeAlias = "_Fixed | _Chars | _Optional | _Form"

_DIGIT, _ANY = "digit", "character"
_OTHER_THAN = f"{_ANY} other than "
_SEPARATORS = {
    "-": "a hyphen",
    ".": "a dot",
    "/": "a slash",
    ":": "a colon",
    ",": "a comma",
    " ": "a space",
    "_": "an underscore",
    "#": "a hash sign",
    "@": "an at sign",
    "+": "a plus sign",
    "%": "a percent sign",
    "!": "an exclamation mark",
    "?": "a question mark",
    ";": "a semicolon",
    '"': "a double quote",
    "\n": "a line break",
    "\n\n": "an empty line",
}
NUMBERS = [
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
]  # fmt: skip
_UNCOUNTED = ("white space",)


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def _plural(noun: str) -> str:
    """The plural of `small letter, digit or hyphen`."""
    head, of, rest = noun.partition(" other than ")
    words = re.sub(
        r"(\w+)((?: from \w to \w(?: in either case)?)?)(?=$|,| or )",
        lambda word: f"{word[1]}{'es' if word[1].endswith('sh') else 's'}{word[2]}",
        head,
    )
    return f"{words}{of}{rest}" if noun not in _UNCOUNTED else noun


def as_json(value: Any) -> str:
    """A value as readable JSON."""
    return json.dumps(value, ensure_ascii=False)


# Reading a parsed expression.


@dataclass(frozen=True, slots=True)
class _Reading:
    """A parsed pattern."""

    pieces: tuple[_Piece, ...] | None
    """None if the pattern can't be split into pieces."""
    verbs: Phrase = _ANYWHERE
    """The position of the pieces in the text."""
    conditions: str = ""
    """What else the text must contain, from lookaheads."""
    ignores_case: bool = False
    place: str = ""
    """The line of the text that has the pieces, such as ` on one line`, because `.` is no line break."""
    is_line: bool = False
    """Whether the text is a single line, for the same reason."""

    @property
    def is_fixed(self) -> bool:
        """Whether the pattern consists of fixed texts alone."""
        return self.pieces is not None and all(isinstance(piece, _Fixed) for piece in self.pieces)


def _reading(tree: Tree, flags: int) -> _Reading:
    tree = _without_boundaries(tree)
    is_of_lines = bool(flags & re.MULTILINE) and not any(
        _is_at(node, "AT_BEGINNING_STRING", "AT_END_STRING") for node in tree
    )
    starts = bool(tree) and _is_at(tree[0], "AT_BEGINNING", "AT_BEGINNING_STRING")
    tree = tree[1:] if starts else tree
    ends = bool(tree) and _is_at(tree[-1], "AT_END", "AT_END_STRING")
    tree = tree[:-1] if ends else tree
    conditions: list[str] = []
    ignores_case = bool(flags & re.IGNORECASE)
    while starts and tree and (condition := _condition(*tree[0], ignores_case)):
        conditions, tree = [*conditions, condition], tree[1:]
    has_no_breaks = not flags & re.DOTALL and not conditions and not _crosses_lines(tree)
    is_whole, place = starts and ends, ""
    if len(tree) > 1 and _is_free(tree[0]):
        place = " in its first line" if starts and not _is_space(tree[0]) else ""
        starts, tree = starts and _is_space(tree[0]), tree[1:]
    if len(tree) > 1 and _is_free(tree[-1]):
        place = " in its last line" if ends and not _is_space(tree[-1]) else place
        ends, tree = ends and _is_space(tree[-1]), tree[:-1]
    verbs = {(True, True): _WHOLE, (True, False): _START, (False, True): _END}.get((starts, ends), _ANYWHERE)
    is_line = False
    if is_of_lines and (starts or ends):
        base, third = (f"{verb} a line that {verbs.third}" for verb in ("have", "has"))
        verbs, place = Phrase(base, third, verbs.rest), ""
    elif flags & re.MULTILINE or not has_no_breaks:
        place = ""
    elif place:
        is_line = is_whole
    elif len(tree) > 1 and _repeats_any(tree):
        place = " on one line"
    texts = _expanded(tree)
    pieces = _pieces(tree) if texts is None else [_Fixed(tuple(texts))]
    also = f", among them {_in_order(conditions)}".replace(" followed by ", " and ") if conditions else ""
    merged = None if pieces is None else tuple(_merged(pieces, ignores_case=ignores_case))
    return _Reading(merged, verbs, also, ignores_case, place, is_line)


def _nodes(tree: Tree) -> Iterator[tuple[str, Any]]:
    """Yield all nodes of a parsed pattern, with those inside other nodes: the operation and its argument."""
    waiting: list[Any] = [tree]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, tuple | list | _parser.SubPattern):
            continue
        parts = list[Any](cast("Iterable[Any]", part))
        if isinstance(part, tuple) and str(parts[0]).isupper():
            yield str(parts[0]), parts[1]
        waiting += parts


def _crosses_lines(tree: Tree) -> bool:
    """Whether a part of a pattern other than `.` may match a line break."""
    return any(
        op in ("NEGATE", "NOT_LITERAL")
        or (op == "LITERAL" and chr(argument) == "\n")
        or (op == "RANGE" and chr(argument[0]) <= "\n")
        or (op == "CATEGORY" and str(argument).startswith(("CATEGORY_SPACE", "CATEGORY_NOT")))
        for op, argument in _nodes(tree)
    )


def _repeats_any(tree: Tree) -> bool:
    """Whether a part of a pattern is a repeated `.`."""
    return any(
        op.endswith("REPEAT") and len(argument[2]) and str(argument[2][0][0]) == "ANY"
        for op, argument in _nodes(tree)
    )


def _condition(op: Any, argument: Any, ignores_case: bool) -> str:
    """The characters that a lookahead such as `(?=.*[A-Z])` at the beginning requires anywhere."""
    if str(op) != "ASSERT" or argument[0] != 1 or len(argument[1]) != 2 or not _is_free(argument[1][0]):  # noqa: PLR2004
        return ""
    pieces = _pieces(argument[1][1:])
    if not pieces or not isinstance(pieces[0], _Chars):
        return ""
    return (_in_either_case(pieces[0]) if ignores_case else pieces[0]).in_words


def _without_boundaries(tree: Tree) -> Tree:
    """Remove word boundaries at both ends, which words have anyway, and a group around everything."""
    while len(tree) == 1 and str(tree[0][0]) == "SUBPATTERN" and not any(tree[0][1][1:3]):
        tree = list(tree[0][1][3])
    while tree and _is_at(tree[0], "AT_BOUNDARY"):
        tree = tree[1:]
    while tree and _is_at(tree[-1], "AT_BOUNDARY"):
        tree = tree[:-1]
    return tree


def _is_at(node: tuple[Any, Any], *names: str) -> bool:
    return str(node[0]) == "AT" and str(node[1]) in names


def _is_free(node: tuple[Any, Any]) -> bool:
    """Whether a node at an end of a pattern takes any text, or any white space."""
    if str(node[0]) not in ("MAX_REPEAT", "MIN_REPEAT"):
        return False
    least, most, inner = node[1]
    is_one = len(inner) == 1 and _noun(*inner[0]) in (_ANY, "white space")
    return is_one and least == 0 and most == _UNLIMITED


def _is_space(node: tuple[Any, Any]) -> bool:
    inner = node[1][2]
    return len(inner) == 1 and _noun(*inner[0]) == "white space"


def _pieces(tree: Iterable[tuple[Any, Any]]) -> list[_Piece] | None:
    """The pieces of a parsed pattern; None if a part can't be split into pieces."""
    result: list[_Piece] = []
    for op, argument in tree:
        pieces = [] if _is_at((op, argument), "AT_BOUNDARY") else _pieces_of(str(op), argument)
        if pieces is None:
            return None
        result += pieces
    return result


def _pieces_of(op: str, argument: Any) -> list[_Piece] | None:
    if op == "LITERAL":
        return [_Fixed((chr(argument),))]
    if op in ("IN", "ANY", "NOT_LITERAL"):
        texts = _texts_of(op, argument)
        if texts is not None:
            return [_Fixed(tuple(texts))]
        return [_Chars(noun)] if (noun := _noun(op, argument)) else None
    if op in ("SUBPATTERN", "ATOMIC_GROUP", "BRANCH"):
        inner: Tree = (
            [(op, argument)] if op == "BRANCH" else list(argument[3] if op == "SUBPATTERN" else argument)
        )
        if op == "SUBPATTERN" and any(argument[1:3]):  # flags of its own
            return None
        if (texts := _expanded(inner)) is not None:
            return [_Fixed(tuple(texts))]
        if count := _count_of_digits(inner):
            return [_Chars(_DIGIT, count, count)]
        return None if op == "BRANCH" else _pieces(inner)
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeated(*argument)
    return None


def _repeated(least: int, most: int, inner: Tree) -> list[_Piece] | None:
    pieces = _pieces(inner)
    if pieces is None:
        return None
    pieces = _merged(pieces)
    if len(pieces) != 1:
        if (least, most) == (0, 1):  # not in words if a part of it is optional, too
            return None if any(map(_is_optional, pieces)) else [_Optional(tuple(pieces))]
        return pieces * least if least == most and least * len(pieces) <= MOST_PIECES else None
    piece = pieces[0]
    if isinstance(piece, _Chars) and piece.least == piece.most:
        return [_Chars(piece.noun, least * piece.least, most if most == _UNLIMITED else most * piece.most)]
    if isinstance(piece, _Fixed) and (least, most) == (0, 1):
        return [replace(piece, is_optional=True)]
    if isinstance(piece, _Fixed) and least == most <= MOST_OPTIONS and len(piece.texts) == 1:
        return [_Fixed((piece.texts[0] * least,))]
    return None


def _is_optional(piece: _Piece) -> bool:
    return isinstance(piece, _Optional) or (isinstance(piece, _Fixed) and piece.is_optional)


def _merged(pieces: Iterable[_Piece], *, ignores_case: bool = False) -> list[_Piece]:
    """Join adjacent fixed texts, and adjacent characters of the same class."""
    merged: list[_Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if (
            isinstance(piece, _Fixed)
            and isinstance(last, _Fixed)
            and not (piece.is_optional or last.is_optional)
        ):
            texts = [first + second for first, second in product(last.texts, piece.texts)]
            if len(texts) <= MOST_OPTIONS:
                merged[-1] = _Fixed(tuple(texts))
                continue
        if isinstance(piece, _Chars) and isinstance(last, _Chars) and last.noun == piece.noun:
            most = _UNLIMITED if _UNLIMITED in (last.most, piece.most) else last.most + piece.most
            merged[-1] = _Chars(piece.noun, last.least + piece.least, most)
            continue
        merged.append(piece)
    return [*map(_in_either_case, merged)] if ignores_case else merged


def _in_either_case(piece: _Piece) -> _Piece:
    if isinstance(piece, _Optional):
        return _Optional(tuple(map(_in_either_case, piece.pieces)))
    if isinstance(piece, _Chars):
        noun = re.sub(r"\b(capital|small|lowercase|uppercase) (?=letter|hexadecimal)", "", piece.noun)
        return replace(piece, noun=noun)
    return piece


def _texts_of(op: str, argument: Any) -> list[str] | None:
    """The characters of a small class of single characters, such as `[abc]`."""
    if op != "IN" or len(argument) > MOST_OPTIONS or any(str(kind) != "LITERAL" for kind, _ in argument):
        return None
    return [chr(code) for _, code in argument]


def _expanded(tree: Iterable[tuple[Any, Any]]) -> list[str] | None:
    """All texts that match a pattern of fixed texts; None for other patterns, or too many texts."""
    expanded = [""]
    for op, argument in tree:
        match str(op):
            case "LITERAL":
                texts: list[str] | None = [chr(argument)]
            case "IN":
                texts = _texts_of("IN", argument)
            case "SUBPATTERN":
                texts = None if any(argument[1:3]) else _expanded(argument[3])
            case "BRANCH":
                options = [_expanded(option) for option in argument[1]]
                texts = None if None in options else [text for option in options for text in option or ()]
            case "MAX_REPEAT" if tuple(argument[:2]) == (0, 1):
                inner = _expanded(argument[2])
                texts = None if inner is None else [*inner, ""]
            case _:
                texts = None
        if texts is None:
            return None
        expanded = [first + second for first in expanded for second in texts]
        if len(expanded) > MOST_OPTIONS:
            return None
    return expanded if all(expanded) else None


def _count_of_digits(tree: Iterable[tuple[Any, Any]]) -> int:
    """The number of digits in every matching text; 0 if it varies, or there are other characters."""
    counts: list[int] = []
    for op, argument in tree:
        match str(op):
            case "SUBPATTERN":
                counts.append(_count_of_digits(argument[3]))
            case "BRANCH":
                each = {_count_of_digits(option) for option in argument[1]}
                counts.append(each.pop() if len(each) == 1 else 0)
            case "MAX_REPEAT" if argument[0] == argument[1]:
                counts.append(argument[0] * _count_of_digits(argument[2]))
            case "LITERAL" | "IN" as name:
                signs = "".join(map(_signs, _pieces_of(name, argument) or ()))
                counts.append(len(signs) if signs.replace(_D, "0").isdecimal() else 0)
            case _:
                return 0
    is_fixed = all(str(op) == "LITERAL" for op, _ in tree)
    return 0 if is_fixed or 0 in counts else sum(counts)


_CATEGORIES = {
    "CATEGORY_DIGIT": ("digit",),
    "CATEGORY_WORD": ("letter", "digit", "underscore"),
    "CATEGORY_SPACE": ("white space",),
    "CATEGORY_NOT_DIGIT": ("character other than a digit",),
    "CATEGORY_NOT_SPACE": ("character other than white space",),
}
_RANGES = {
    ("0", "9"): "digit",
    ("a", "z"): "small letter",
    ("A", "Z"): "capital letter",
    ("a", "f"): "a-f",
    ("A", "F"): "A-F",
}


def _with_article(noun: str) -> str:
    return noun if noun in _UNCOUNTED else f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


_SIGNS = {text: name.partition(" ")[2] for text, name in _SEPARATORS.items()}


def _noun(op: Any, argument: Any) -> str:
    """The name of a character of a class; empty without a short name."""
    op = str(op)
    if op == "ANY":
        return _ANY
    if op == "NOT_LITERAL":
        op, argument = "IN", [("NEGATE", None), ("LITERAL", argument)]
    if op != "IN":
        return ""
    if str(argument[0][0]) == "NEGATE":
        others = [_other(*member) for member in argument[1:]]
        return f"{_OTHER_THAN}{listed(others, 'or')}" if all(others) else ""
    names: list[str] = []
    for kind, value in argument:
        match str(kind):
            case "CATEGORY":
                names += _CATEGORIES.get(str(value), ("",))
            case "RANGE":
                ends = (chr(value[0]), chr(value[1]))
                names.append(_RANGES.get(ends) or _part_of_range(*ends))
            case "LITERAL":
                names.append(_SIGNS.get(chr(value), ""))
            case _:
                names.append("")
    names = list(dict.fromkeys(names))
    if any(f"{_OTHER_THAN}{_with_article(name)}" in names for name in filter(None, names)):
        return _ANY
    if {"digit"} < set(names) <= {"digit", "a-f", "A-F"}:
        case = "" if len(names) > 2 else "lowercase " if "a-f" in names else "uppercase "  # noqa: PLR2004
        return f"{case}hexadecimal digit"
    if {"a-f", "A-F"} <= set(names):
        names = [name for name in names if name not in ("a-f", "A-F")] + ["letter from A to F in either case"]
    names = [_HEXADECIMAL.get(name, name) for name in names]
    if {"small letter", "capital letter"} <= set(names):
        names = ["letter", *(name for name in names if name not in ("small letter", "capital letter"))]
    order = ("capital letter", "small letter", "letter", "digit")
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    if not all(names) or len(names) > 4:  # noqa: PLR2004
        return ""
    return listed(names, "or")


_HEXADECIMAL = {"a-f": "small letter from a to f", "A-F": "capital letter from A to F"}


def _other(kind: Any, value: Any) -> str:
    """The name of a character that a negated class excludes; a sign without a name is quoted."""
    if noun := _noun("IN", [(kind, value)]):
        return _with_article(noun)
    return as_json(chr(value)) if str(kind) == "LITERAL" and chr(value).isprintable() else ""


def _part_of_range(first: str, last: str) -> str:
    """The name of a class such as `[1-5]` or `[A-D]`."""
    for (begin, end), name in _RANGES.items():
        if begin <= first < last <= end and "-" not in name:
            return f"{name} from {first} to {last}"
    return ""


# Dates and times.

_D, _OTHER, _FORM = "\ue000\ue001\ue002"
"""Signs for any digit, for a piece other than digits or a fixed text, and before a form."""
_YEAR = rf"(?P<year>{_D}{{4}}|(?:19|20)\d\d)"
_FORMS = (
    (re.compile(rf"{_YEAR}(?P<sep>[-./]){_D}{_D}(?P=sep){_D}{_D}"), "{year}{sep}MM{sep}DD"),
    (re.compile(rf"{_D}{_D}(?P<sep>[.]){_D}{_D}(?P=sep){_YEAR}"), "DD{sep}MM{sep}{year}"),
    (re.compile(rf"{_YEAR}-W{_D}{_D}"), "{year}-Www"),
    (re.compile(rf"{_YEAR}-{_D}{_D}(?![{_D}\d-])"), "{year}-MM"),
    (re.compile(rf"{_D}{_D}:{_D}{_D}:{_D}{_D}"), "HH:MM:SS"),
    (re.compile(rf"{_D}{_D}:{_D}{_D}"), "HH:MM"),
)


def _signs(piece: _Piece) -> str:
    """A sign for each character of a piece of digits or of fixed text, else the sign for another piece."""
    match piece:
        case _Chars(noun, least, most) if (
            noun.startswith(_DIGIT) and " or " not in noun and 0 < least == most <= MOST_DIGITS
        ):
            return _D * most
        case _Fixed((text,), is_optional=False):
            return text
        case _Fixed(texts, is_optional=False) if (
            all(map(str.isdecimal, texts)) and len({*map(len, texts)}) == 1
        ):
            return _D * len(texts[0])
        case _:
            return _OTHER


def _with_forms(pieces: Sequence[_Piece]) -> Sequence[_Piece]:
    """Replace dates and times among pieces, with the fixed texts next to them, by their forms."""
    places = [piece for piece in pieces for _ in _signs(piece)]  # the piece of each sign
    signs = formed = "".join(map(_signs, pieces))
    for pattern, form in _FORMS:
        formed = pattern.sub(lambda match, form=form: f"{_FORM}{_dated(match, form)}", formed)
    if formed == signs:
        return pieces
    with_forms: list[_Piece] = []
    at = 0
    for part in re.findall(rf"{_D}+|{_OTHER}|[^{_D}{_OTHER}]+", formed):
        text = part.replace(_FORM, "")
        if part[0] in (_D, _OTHER):
            with_forms += dict.fromkeys(places[at : at + len(text)])
        else:
            with_forms.append(_Fixed((text,)) if text == part else _Form(text))
        at += len(text)
    return with_forms


def _dated(match: re.Match[str], form: str) -> str:
    groups = match.groupdict()
    year = groups.get("year", "").replace(_D * 4, "YYYY")
    return form.format(year=year, sep=groups.get("sep", ""))


# Kinds of texts.


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of text with a name: its patterns match all of `texts` and none of `others`."""

    name: str
    texts: tuple[str, ...]
    others: tuple[str, ...]


_KINDS = (
    _Kind(
        "an e-mail address",
        ("ada@example.org", "j.doe@mail.example.com", "x1@ab.io", "a_b@c-d.net"),
        ("ada", "ada@", "@example.org", "a b@c.org", "12", "https://a.org", "ada@@b.org"),
    ),
    _Kind(
        'a URL that begins with "https://"',
        ("https://example.org", "https://a.io/b", "https://www.example.com/a-b/c"),
        ("http://example.org", "ftp://a.org", "example", "https://", "12"),
    ),
    _Kind(
        'a URL that begins with "http://" or "https://"',
        ("https://example.org", "http://a.io/b", "https://www.example.com/a-b/c"),
        ("ftp://a.org", "example", "https://", "12"),
    ),
    _Kind(
        "a UUID",
        ("123e4567-e89b-42d3-a456-426614174000", "ffffffff-aaaa-4bbb-8ccc-0123456789ab"),
        ("123e4567e89b42d3a456426614174000", "123e4567-e89b-42d3-a456", "x", "12"),
    ),
    _Kind(
        "an IPv4 address",
        ("192.168.0.1", "8.8.8.8", "10.20.30.40"),
        ("8.8.8", "a.b.c.d", "8", "8.8.8.8.8"),
    ),
    _Kind(
        "a semantic version (MAJOR.MINOR.PATCH)",
        ("1.2.3", "0.10.0", "12.0.45"),
        ("1.2", "v1.2.3", "1.2.3.4", "a.b.c", "1"),
    ),
    _Kind(
        "a number with two decimal places",
        ("0.50", "12.34", "1048576.00"),
        ("12", "1.5", "1.234", "a.bc", "12,34"),
    ),
    _Kind(
        "a decimal number",
        ("12", "1.5", "0.25", "-3", "-1.5", "1048576", "1048576.5"),
        ("a", "A-1", "1.2.3", "1,5", "+", ""),
    ),
    _Kind(
        "a whole number",
        ("12", "-3", "0", "1048576"),
        ("1.5", "a", "A", "1-2", "1 2", ""),
    ),
    _Kind(
        "a whole number above 0",
        ("1", "12", "305", "1048576"),
        ("0", "012", "-1", "1.5", "a", ""),
    ),
    _Kind(
        "a slug (small letters, digits and single hyphens)",
        ("my-post", "a1-b2-c3", "word", "7-days"),
        ("My-Post", "a--b", "-a", "a-", "a_b", "a b"),
    ),
    _Kind(
        "a phone number in international form (a plus sign, then digits only)",
        ("+4366012345", "+12025550123", "+49301234567"),
        ("4366012345", "-4366012345", "+43 660 123", "+a", "12"),
    ),
)


def _kind_of(expression: Pattern) -> str:
    """The name of the kind of text that a pattern describes; empty for none."""

    def takes(text: str) -> bool:
        return expression.spans(text) == [(0, len(text))]

    for kind in _KINDS:
        if all(map(takes, kind.texts)) and not any(map(takes, kind.others)):
            return kind.name
    return ""


def _gives_away(phrase: Phrase, expression: Pattern) -> bool:
    """Whether a phrase contains a text, other than a plain word, that matches the pattern.

    A model could copy it. Fixed texts of the pattern are allowed, and so are numbers that limit a length.
    """
    if phrase.third == "has" and re.search(r" characters?( on one line)?$", phrase.rest):
        return False
    texts = re.findall(r'"([^"]*)"|([^\s"()]+)', phrase.rest)
    candidates = {text.strip(",.") for pair in texts for text in pair} - {""}
    candidates = {text for text in candidates if not re.fullmatch("[a-z]+", text)}
    return any(expression.spans(text) and text not in expression.source for text in candidates)
