"""Names of persons: in a field, with a title, in a greeting or above a signature, in a sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, spans
from redraft.redact.kinds import Finding, Kind
from redraft.redact.letters import CASELESS, IDEOGRAPH, KANA, folded, is_hangul, is_latin, unaccented
from redraft.redact.values import is_placeholder, word_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redraft.redact.canonical import View


def find_names(view: View) -> Iterator[Finding]:
    """Yield names of persons, recognised by the words around a name or by the name itself."""
    data = view.data
    if has_any(_INTRODUCED, data):
        for pattern in (_NAME, _TITLED, _TITLED_WORD):
            for start, end in spans(pattern, data):
                yield from _labelled(view, start, end, is_thing_too=pattern is not _TITLED_WORD)
        for pattern in (_GREETED, _GREETED_SECOND, _SIGNED):
            for start, end in spans(pattern, data):
                yield from _name(view, start, end, surely=True)
    if has_any((_CASELESS_LETTER,), data):
        yield from _in_other_scripts(view)
    if not has_any((_ANYWHERE, _LISTED, _INITIALLED_NAME, _GIVEN_NAME, _ALONE, _CASELESS_LETTER), data):
        return
    for pattern, surely in (
        (_IN_FIELD_OF_PERSON, True),
        (_MENTIONED, True),
        (_IN_FIELD, False),
        (_ANYWHERE, False),
    ):
        for start, end in spans(pattern, data):
            is_name = surely or (
                pattern is _IN_FIELD
                and (
                    _SEVERAL_INITIALS.match(view.plain, start)
                    or (
                        _SINGLE_INITIAL.match(view.plain, start)
                        and not _TITLE_FIELD.search(view.plain[max(0, start - _NEAR) : start])
                    )
                )
            )
            yield from _name(view, start, end, surely=bool(is_name), full=True)
    for start, end in spans(_GIVEN_NAME, data):
        if is_given_name(view.plain[start:end]):
            yield Finding(start, end, Kind.NAME)
    for start, end in spans(_ALONE, data):
        name = view.plain[start:end]
        is_other = name.lower() in _NOT_ALONE or _GOES_ON.match(view.plain, end)
        if (
            not is_other
            and is_given_name(name)
            and not _BEFORE_TOOL.search(view.plain[max(0, start - _NEAR) : start])
        ):
            yield Finding(start, end, Kind.NAME)


class NamesInRecord:
    """Finds names that were recognised in one text of a record in its other texts, whole or in part.

    Parts that are ordinary words do not count: of `Grace Hopper`, only the surname is withheld on its own.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._words: set[str] = set()
        self._stems: set[str] = set()
        self._caseless: set[str] = set()
        for name in names:
            plain = folded(name)
            if plain[0] in _CASELESS_LETTERS:
                self._caseless.update(part for part in (name, *name.split()) if len(part) > 1)
                continue
            words = [word for word in _ASCII_WORD.findall(plain) if word[0].isupper()]
            words = [word for word in words if len(word) >= _SHORTEST_STEM and not is_thing(word.lower())]
            self._words.update(words)
            if not is_latin(name[0]):
                stems = ((word.rstrip("aeiou"), word) for word in words)
                self._stems.update(stem if len(stem) >= _SHORTEST_STEM else word for stem, word in stems)
        self._small = {word.lower() for word in self._words}
        self._lengths = sorted({len(name) for name in self._caseless}, reverse=True)

    def find(self, view: View) -> Iterator[Finding]:
        """Yield the names in a text."""
        if self._words:
            yield from self._in_cased_letters(view)
        if self._caseless:
            yield from self._in_other_letters(view)

    def _in_cased_letters(self, view: View) -> Iterator[Finding]:
        text = view.plain
        spans: list[tuple[int, int]] = []
        for match in _ASCII_WORD.finditer(text):
            start, end = match.span()
            if not self._is_named(view, match.group(), start, end):
                continue
            gap = text[spans[-1][1] : start] if spans else text
            if gap in _BETWEEN_WORDS:
                spans[-1] = spans[-1][0], end
            else:
                spans.append((start, end))
        for span in spans:
            yield Finding(*span, Kind.NAME)

    def _is_named(self, view: View, word: str, start: int, end: int) -> bool:
        if word in self._words or (word.isupper() and word.capitalize() in self._words):
            return True
        if word in self._small:  # in the name of a file or variable
            after = view.plain[end : end + 2]
            is_joined = view.plain[start - 1 : start] in _JOINS or (
                after[:1] in _JOINS and after[1:].isalnum()
            )
            return is_joined and (start > 0 or after != "")
        if not self._stems or is_latin(view.text[start]):
            return False
        return any(word[: len(word) - size] in self._stems for size in range(4))

    def _in_other_letters(self, view: View) -> Iterator[Finding]:
        text, done = view.text, 0
        for match in _CASELESS_RUN.finditer(view.plain):
            is_spaced = view.plain[match.start()] == CASELESS
            # A short word may be written together with a name, and an ending, too.
            for start in range(
                match.start(), min(match.end(), match.start() + 3) if is_spaced else match.end()
            ):
                if start < done:
                    continue
                sizes = (size for size in self._lengths if text[start : start + size] in self._caseless)
                if size := next(sizes, 0):
                    done = start + size
                    if not is_spaced or match.end() - done < _SHORTEST_STEM or size > match.end() - start:
                        yield Finding(start, done, Kind.NAME)


_ASCII_WORD = re.compile(r"[A-Za-z]+")
_CASELESS_RUN = re.compile(r"\x80+|[\x81\x82]+")
_JOINS = (".", "_", "-", "/")
_BETWEEN_WORDS = (" ", "_", "-", ".", ". ")


def is_person_name(name: str, *, surely: bool, inflected: bool = False) -> bool:
    """Whether capitalised words, in ASCII letters, are a person's name.

    With `surely`, for contexts that speak of a person, any words outside of `THINGS` are a name. Otherwise, a
    word has to be a given name or to end like a surname. With `inflected`, given names may have an ending.
    """
    if _PLACEHOLDER_NAMES.fullmatch(name.lower()):
        return False
    words = [word.lower() for word in _NAME_WORD.findall(name) if len(word) > 1 and word[0].isupper()]
    given_names = [word for word in words if word in GIVEN_NAMES or (inflected and _has_stem(word))]
    rest = [word for word in words if word not in given_names]
    things = [word for word in rest if is_thing(word)]
    if surely and len(words) > 1 and things == words[-1:] and words[-1] in _SURNAMES_TOO:
        return True
    if not words or (things and not given_names) or words[-1] in _ENDS_OF_PLACES:
        return False
    if given_names:  # "Maria Field" is a person where the context speaks of one, otherwise a field
        return surely or len(words) > len(things) + len(given_names) or (not things and len(given_names) > 1)
    if any(_OF_THINGS.search(word) for word in words) and not (surely and _INITIALLED.match(name)):
        return False
    return surely or (len(words) > 1 and SURNAME.search(words[-1]) is not None)


def _has_stem(word: str) -> bool:
    return any(word[:-size] in _STEMS for size in range(1, 4))


def is_given_name(word: str) -> bool:
    """Whether a capitalised word, in ASCII letters, is a given name and not an ordinary word."""
    return (
        word.lower() in GIVEN_NAMES
        and word.lower() not in THINGS
        and not _PLACEHOLDER_NAMES.fullmatch(word.lower())
    )


def is_thing(word: str) -> bool:
    """Whether a word in lower case, or the word that it is a form of, is in `THINGS`."""
    if word in THINGS:
        return True
    if word in GIVEN_NAMES:  # `Frances` is not a plural of `France`
        return False
    for ending, stems in _INFLECTIONS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _SHORTEST_STEM and any(stem + last in THINGS for last in stems):
            return True
    return False


def _labelled(view: View, start: int, end: int, *, is_thing_too: bool) -> Iterator[Finding]:
    """Yield a name after an unambiguous label or title, unless it is a placeholder."""
    name = view.plain[start:end]
    if name[0] in _CASELESS_LETTERS:
        yield from _name(view, start, end, surely=True)
        return
    words = name.lower().split()
    is_no_name = (
        is_placeholder(name) or not _NO_NAMES.isdisjoint(words) or _PLACEHOLDER_NAMES.fullmatch(name.lower())
    )
    if not is_no_name and (is_thing_too or not all(map(is_thing, words))):
        yield Finding(start, end, Kind.NAME)


def _name(view: View, start: int, end: int, *, surely: bool, full: bool = False) -> Iterator[Finding]:
    """Yield the person's name in capitalised words, if there is one: `Yesterday Ada Lovelace`."""
    text = view.plain
    if text[start] in _CASELESS_LETTERS:
        yield from _caseless_name(view, start, end, surely=surely)
        return
    before = ""
    for word in text[start:end].split(" ")[:-1]:
        plain = word.strip(",.").lower()
        if len(plain) == 1 and (surely or word.endswith(".")):  # an initial
            break
        if not is_thing(plain) and (surely or plain not in _BEFORE_PLACE):
            break
        start += len(word) + 1
        before = plain
    name = text[start:end]
    # A letter after a single word is not a surname: `Appendix A`.
    is_full = (
        sum(len(word.strip(".,")) > 1 and not word.endswith(".") for word in name.split(" ")) > 1
        or (_INITIALLED if surely else _INITIALS).match(name) is not None
    )
    # Behind an ordinary word, a given name is enough: `Greet Anna`, but not `San Antonio`.
    is_given = before != "" and before not in _BEFORE_PLACE and is_given_name(name)
    if is_given and name.lower() in _NOT_ALONE and _BEFORE_TOOL.search(f"{before} "):
        return
    inflected = not is_latin(view.text[start])
    if (is_full or is_given or not full) and is_person_name(
        name, surely=surely or is_given, inflected=inflected
    ):
        yield Finding(start, end, Kind.NAME)


# --- scripts without capitals ---


def _in_other_scripts(view: View) -> Iterator[Finding]:
    """Yield names before a title or suffix, and in the lines of a letter, in scripts without capitals."""
    text = view.plain
    for start, end in spans(_BEFORE_TITLE, view.data):
        # Other words may be joined to the name.
        first = _name_before(view, start, end, is_rank=text[end:].lstrip(" ")[0] == _RANK)
        if first < end:
            yield Finding(first, end, Kind.NAME)
    for pattern, surely in (
        (_GREETED_CASELESS, True),
        (_SIGNED_CASELESS, True),
        (_ADDRESSED, False),
        (_MENTIONED_CASELESS, False),
    ):
        for start, end in spans(pattern, view.data):
            yield from _caseless_name(view, start, end, surely=surely)


def _caseless_name(view: View, start: int, end: int, *, surely: bool) -> Iterator[Finding]:
    """Yield a name in a script without capitals, and without the words of a sentence that follow it."""
    text = unaccented(view.text[start:end])
    if view.plain[start] != CASELESS:
        is_group = len(text) > 2 and text[-1] in _GROUP_ENDINGS  # noqa: PLR2004 (Hattori ends so, too)
        if _is_east_asian(text) or (surely and len(text) <= _LONGEST_IDEOGRAPHIC and not is_group):
            yield Finding(start, end, Kind.NAME)
        elif not surely and _is_east_asian(text[:_NAME_IN_SENTENCE]):  # a sentence goes on without a space
            yield Finding(start, start + _NAME_IN_SENTENCE, Kind.NAME)
        return
    if is_hangul(text[0]):
        name = _KOREAN_ENDING.sub("", text)
        if " " in name and not _is_korean(name):  # a sentence goes on
            first = _KOREAN_ENDING.sub("", name.split(" ")[0])
            name = first if len(first) == _NAME_IN_SENTENCE and _is_korean(first) else name
        is_whole = surely and len(name) <= _LONGEST_WHOLE and not name.endswith(_KOREAN_GROUPS)
        if _is_korean(name) or is_whole:
            yield Finding(start, start + len(name), Kind.NAME)
        return
    words = text.split(" ")
    is_closed = view.text[end : end + 1] in _CLOSING and len(words) <= _MOST_CLOSED
    size = 0
    for place, word in enumerate(words):
        if word in _FUNCTION_WORDS:
            break
        is_joined = word.startswith(_ARTICLE) or words[place - 1] in _JOINING
        is_surname = place == 1 and words[0] in GIVEN_NAMES
        if place and not (is_closed or is_joined or is_surname or word in GIVEN_NAMES):
            break
        size += len(word) + 1
    is_recognised = any(word in GIVEN_NAMES for word in words[:2]) or _is_east_asian(text[: max(0, size - 1)])
    if size > _SHORTEST_STEM and (surely or is_recognised):
        yield Finding(start, start + size - 1, Kind.NAME)


def _name_before(view: View, start: int, end: int, *, is_rank: bool) -> int:
    """Start of the name at the end of a span; the end if there is none."""
    text = view.text[start:end]
    script = view.plain[end - 1]
    run = len(text)
    while run and view.plain[start + run - 1] == script:
        run -= 1
    if script == CASELESS:
        names = text.split(" ")
        if is_hangul(text[-1]):
            is_name = _is_korean(names[-1]) or (len(names[-1]) == 1 and names[-1] in _KOREAN)
            return end - len(names[-1]) if is_name else end
        is_name = not is_rank and unaccented(names[-1]) not in _FUNCTION_WORDS
        return end - len(names[-1]) if is_name else end
    if script == KANA:
        return end if len(text) - run < _SHORTEST_KANA or is_rank else start + run
    sizes = [size for size in range(len(text) - run, 0, -1) if _is_east_asian(text[-size:], alone=True)]
    if sizes:
        return end - sizes[0]
    is_whole = not is_rank and 1 < len(text) - run <= _LONGEST_WHOLE and text[-1] not in _ROLE_ENDINGS
    return start + run if is_whole else end


def _is_east_asian(text: str, *, alone: bool = False) -> bool:
    """Whether a text is a Chinese, Japanese or Korean name, by its surname.

    With `alone`, a surname is enough.
    """
    name = text.replace(" ", "")
    if name and is_hangul(name[0]):
        return _is_korean(name)
    for size in (3, 2, 1):
        if len(name) >= size and name[:size] in SURNAMES:
            given_length = len(name) - size
            is_chinese = name[:size] in _CHINESE
            return given_length in range(0 if alone else 1, 3 if is_chinese else 4)
    return False


def _is_korean(name: str) -> bool:
    surname = 2 if name[:2] in _KOREAN_LONG else 1
    return len(name) - surname in (1, 2) and (surname > 1 or name[:1] in _KOREAN)


_CASELESS_LETTERS = (CASELESS, IDEOGRAPH, KANA)
_RANK = "\x84"
_CLOSING = ("", ",", ".", ":", ";", "!", "\n", "\r", '"', "'", ")", "<", "|", "\x83")
_MOST_CLOSED = 3
_SHORTEST_KANA, _LONGEST_WHOLE, _LONGEST_IDEOGRAPHIC = 2, 4, 9
_NAME_IN_SENTENCE = 3
_KOREAN_ENDING = re.compile(
    "(?<=..)(?:입니다|이에요|예요|이?라고|이며|이고|에게서?|한테|와|과|께서|은|는|이|가|을|를|의|께)$"
)
_ARTICLE = "\u0627\u0644"
_JOINING = word_set(
    "\u0639\u0628\u062f \u0628\u0646 \u0627\u0628\u0646 \u0628\u0646\u062a \u0623\u0628\u0648 "
    "\u0627\u0628\u0648 \u0622\u0644 \u0627\u0644 \u05d1\u05df \u05d1\u05ea \u05d0\u05d1\u05d5"
)
"""Parts of Arabic and Hebrew names that are always followed by another part."""
_FUNCTION_WORDS = word_set(
    unaccented(
        "لم لن قد في من على هو هي إلى عن مع هذا هذه التي الذي ثم أن كان به له "
        "را به از که در با و این آن بر تا "
        "לא על את של הוא היא עם זה אל כי גם "
        "ने को का की के से में पर ही है हैं और यह वह जी सभी"
    )
)
_ROLE_ENDINGS = frozenset(
    "\u8005\u54e1\u5ba2\u624b\u5b98\u5c4b\u65b9\u4eba\u4f1a\u793e\u751f\u5fa1\u5404\u7686\u5925\u5e2b"
)
"""Last characters of Japanese words for a person's role."""
_GROUP_ENDINGS = frozenset("部組组隊队室局廳厅課课處处科系庫库")
"""Last characters of Chinese and Japanese words for a department or a team."""
_KOREAN_GROUPS = ("팀", "센터", "부서", "회사", "그룹", "본부")

# --- patterns, in ASCII letters and the syntax of RE2 ---

_W = r"(?:(?:[OD]'|Mc|Mac|al-|El-|Al-)?[A-Z][a-z]+(?:['-][A-Z]?[a-z]+)*)"
_PARTICLES = r"(?:(?:van|von|vom|de|der|den|del|della|di|da|dos|du|la|le|el|al|bin|ibn|ter|ten|zu)[ ])*"
_NEXT = rf"(?:[ ]{_PARTICLES}(?:{_W}|(?:[A-Z]\.){{1,3}}|[A-Z]\b))"
_BY_INITIAL = rf"(?:[A-Z]\.[ ]?){{1,3}}{_PARTICLES}{_W}"
_BY_LETTERS = rf"(?:[A-Z][ ]){{2,3}}{_PARTICLES}{_W}"
_BY_CAPITALS = rf"[A-Z]{{1,3}}[ ]{_PARTICLES}{_W}"
_LAST_INITIALS = rf"{_PARTICLES}{_W},?[ ](?:[A-Z]\.[ ]?){{0,2}}[A-Z]\."
FULL = rf"(?:{_W}{_NEXT}+|{_BY_INITIAL})"
_PERSON = rf"(?:{FULL}|{_BY_CAPITALS})"
_ANY_NAME = rf"(?:{_W}{_NEXT}*|{_BY_INITIAL}|{_BY_CAPITALS})"
_INITIALS = re.compile(_BY_INITIAL)
_INITIALLED = re.compile(
    rf"{_BY_INITIAL}|(?:[A-Z][ ]){{1,3}}{_PARTICLES}{_W}|{_BY_CAPITALS}(?<=ing)\Z|{_LAST_INITIALS}\Z"
)
_SINGLE_INITIAL = re.compile(rf"(?:[B-HJ-WYZ]|[A-Z]\.)[ ]{_PARTICLES}{_W}(?=[ \t]*(?:[\n\r,;|<(\"']|\Z))")
"""The whole value of a field: `J Smith`, but not `A Guide`, `I Robot` or `X Ray`."""
_TITLE_FIELD = re.compile(r"(?i)(?:title|subject|[\w.-]name)\W*$")
_SEVERAL_INITIALS = re.compile(
    rf"(?:[A-Z]\.[ ]?){{2,3}}{_PARTICLES}{_W}|{_BY_LETTERS}|{_PARTICLES}{_W},?[ ](?:[A-Z]\.[ ]?){{2,3}}"
)
LAST_FIRST = rf"{_W}(?:[ ]{_W})?\\?,[ ]?{_W}(?:[ ]{_W})?"
_CASELESS_NAME = r"(?:\x80{2,}(?:-\x80+)?(?:[ ]\x80{2,}(?:-\x80+)?){0,3}|\x80(?:[ ]\x80{1,3})?)"
_IDEOGRAPHIC = r"[\x81\x82]{1,7}(?:[ ][\x81\x82]{1,6})?"
_OTHER_SCRIPT = rf"{_CASELESS_NAME}|{_IDEOGRAPHIC}"
_TITLES = (
    r"Mr|Mrs|Ms|Miss|Mx|Dr|Prof|Professor|Rev|Herrn?|Frau|Fru|Hr|Mme|Mlle|Monsieur|Madame"
    r"|Senor(?:a|ita)?|Sra?|Signora?|Dott|Dona|Senhora?|Pani|Mevrouw|Meneer|Sayin|Doktor"
)
# Titles that are also other words.
_TITLE_WORDS = (
    r"Sir|Dame|Don|Pan|Sig|Capt|Captain|Sgt|Sergeant|Lt|Judge|Justice|Reverend|Father|Brother|Sister|Lord"
    r"|Lady"
    r"|Officer|Senator|President|Madam|Nurse|Coach|Uncle|Aunt|Auntie|Grandma|Grandpa|[Dd]octora?"
    r"|[Pp]rofessora?"
)
_TITLED = (
    rf"\b(?:{_TITLES})\b\.?[ ](?:(?:Mr|Dr|Prof|med)\.?[ ])*({_ANY_NAME}|{_OTHER_SCRIPT})"
    r"|(?i:\b(?:my|his|her|their|whose|customer's|user's|patient's|guest's|caller's)[ ]"
    rf"(?:(?:full|first|last|sur|given)[ ]?)?name[ ](?:is|was)[ ])({_ANY_NAME})"
    rf"|(?i:\bname\?[ ]+)({_ANY_NAME})"
)
_TITLED_WORD = rf"\b(?:{_TITLE_WORDS})\b\.?[ ]({_ANY_NAME})"
_NAME_VALUE = r"(?:[A-Z][ ]){0,3}[A-Z](?:[\w'-]{1,30}|\.)(?:[ ][A-Z](?:[\w'-]{1,30}|\.?)){0,3}"
_NAME = (
    r"(?i:\b(?:(?:first|last|full|middle|sur|given|family|maiden|fore|legal|birth|customer|patient|client"
    r"|employee|passenger|card ?holder|account ?holder|contact|guest|tenant|student|driver|cardholder)"
    r"[ _-]?name|surname|name[ ]of[ ](?:the[ ])?[a-z]{4,20})\b"
    r"[\"'*]{0,3}[ \t]{0,3}(?:[:=|;]|\bis\b)[ \t]{0,3}[\"'*]{0,3}"
    rf"|[\"'](?:first|last|given|family|middle)[\"']:[ ]?[\"'])({_NAME_VALUE}|{_OTHER_SCRIPT})"
)
_GREETING = (
    r"(?i:hi|hiya|hello|hey|howdy|dear|dearest|greetings|(?:good[ ])?(?:morning|afternoon|evening)|good[ ]day"
    r"|welcome(?:[ ]back)?)"
)
_GREETED = (
    rf"(?:^|[^\w\x80-\x84-]){_GREETING}(?:[ ]there)?,?[ ]?(?:(?:{_TITLES})\.?[ ])?({_ANY_NAME})[ ]?"
    r"(?:[,!.:;?\n\"'<*]|[ ]?(?:-|--)[ ]|and\b|&|\z)"
    rf"|(?:^|\n)To[ ]({_ANY_NAME}):[ ]?\n"
)
_GREETED_SECOND = rf"(?:^|[^\w-]){_GREETING}[ ][A-Z][^\n,!:]{{1,40}}[ ](?:and|&)[ ]({_ANY_NAME})[,!:\n]"
_SIGN_OFF = (
    r"(?i:(?:(?:best|kind|kindest|warm|warmest|many)[ ])?(?:regards|wishes|greetings)"
    r"|(?:many[ ])?thanks(?:[ ]again|[ ]a[ ]lot|[ ]so[ ]much|[ ]in[ ]advance)?"
    r"|thank[ ]you(?:[ ]in[ ]advance)?|cheers|sincerely|yours(?:[ ](?:truly|sincerely|faithfully))?"
    r"|sincerely[ ]yours|respectfully|cordially|warmly|gratefully|with[ ](?:gratitude|love|thanks"
    r"|best[ ]wishes)"
    r"|all[ ]the[ ]best|take[ ]care|best|love|kindly|xo+|xx+|talk[ ]soon|see[ ]you[ ]soon|speak[ ]soon|lg|vg"
    r"|signed|sent[ ]from[ ]my[ ][a-z]+)"
)
_SIGNED = (
    rf"(?:^|[\n.!?>\"'*][ ]?){_SIGN_OFF}(?:[,.!]{{1,3}}[ ]?|[ ]?\r?\n|[ ]-{{1,2}}[ ])(?:[ ]|\r?\n|--|-[ ])*"
    rf"({_ANY_NAME})[ ]?(?:[,.(|\r\n\"'<*]|\z)|(?:^|\n){_SIGN_OFF}[ ]({FULL})[ ]?(?:\n|\z)"
)
# The same in scripts without capitals, where a sentence may go on after these words.
_CASELESS_LETTER = r"[\x80-\x84]"
_GREETED_CASELESS = rf"\b{_GREETING}[ ]?({_OTHER_SCRIPT})[ ]?(?:[,!:\n\x83\x84]|\z)"
_SIGNED_CASELESS = (
    rf"(?:\b{_SIGN_OFF}|\x83)[ ,.!]{{0,3}}\r?\n[ -]{{0,4}}({_OTHER_SCRIPT})[ ]?(?:[,.(|\r\n<*\x83]|\z)"
)
# A name before a suffix or title: `\x83` or `\x84`.
_BEFORE_TITLE = r"((?:[\x81\x82]{1,8}|\x80+(?:[ ]\x80+)?))[ ]{0,2}[\x83\x84]"
_ADDRESSED = rf"(?:^|\n)([\x81]{{2,4}}),?[ ]?Dear\b|\bDear,[ ]?({_OTHER_SCRIPT})[ ]?[,!.:\n]"
_MENTIONED_CASELESS = (
    r"\b(?:recipient|spoke with|my name is|full name)\b[ ]?(?:[\x80\x82][ ]|\x82)?"
    rf"({_OTHER_SCRIPT})"
)
_DONE = (
    r"(?i:approved|accepted|reported|requested|submitted|signed|written|authored|reviewed|created|assigned"
    r"|reassigned|transferred|escalated|forwarded|sent|raised|opened|filed|closed|handled|prescribed"
    r"|ordered|booked|paid|posted|edited|updated|changed|committed|merged|interviewed|notified|contacted"
    r"|emailed|called|visited|owned|made|issued|delivered|given|handed|shared|led|taken|conducted|performed"
    r"|recorded|logged|completed|verified|confirmed|rejected|denied|declined|cancelled|canceled|uploaded"
    r"|deleted|drafted|prepared|translated|treated|examined|hired|employed|witnessed|represented|referred"
    r"|addressed|shipped|registered|invited|rented|sold|leased|belong(?:s|ed|ing)?|payable|attributed"
    r"|credited|refunded|entrusted|supervised|managed|tested|said|triaged)"
)
_BY = r"(?i:by|to|from|with|for|on[ ]behalf[ ]of|as|against|through|via)"
_TALK = (
    r"(?i:(?:spoke|speak|speaking|spoken|talk(?:ed|ing)?|met|meet(?:ing)?|chat(?:ted|ting)?|interview"
    r"|call(?:ed)?|conversation|discussion|appointment|consultation|lunch|dinner|session|correspondence"
    r"|worked|working|shared)[ ](?:with|to|from)"
    r"|according[ ]to|on[ ]behalf[ ]of|as[ ]told[ ]by|care[ ]of|c/o"
    r"|(?:note|letter|message|mail|e-?mail|call|reply|answer|complaint|request|review|feedback|voicemail"
    r"|invoice|payment|refund|order|booking|reservation|room|table|parcel|package|text|record|file|chart"
    r"|account|profile|contract|statement|ticket|case"
    r"|report|application)s?[ ](?:from|for|of|by|to|about)"
    r"|tell|ask|told|asked|contact|notify|email|mail|call|ping|remind|thank|thanks to|cc|bcc|attn|re|fao)"
)
_ROLE = (
    r"(?i:patient|customer|passenger|employee|colleague|guest|tenant|student|teacher|nurse|doctor|applicant"
    r"|candidate|subscriber|cardholder|travell?er|user|client|member|manager|engineer|developer|agent"
    r"|technician|driver|buyer|seller|witness|suspect|victim|claimant|plaintiff|defendant|lawyer|attorney"
    r"|boss|supervisor|assistant|secretary|director|ceo|cto|cfo|founder|president|wife|husband|son|daughter"
    r"|mother|father|brother|sister|friend|partner|neighbou?r|child|uncle|aunt|cousin|boyfriend|girlfriend"
    r"|landlord|owner|author|reviewer|reporter|recipient|sender|caller|contact|admin|person|man|woman"
    r"|resident|donor|volunteer|intern|accountant|physician|surgeon|dr)"
)
_SAYS = (
    r"reported|reports|said|says|wrote|writes|called|complained|requested|replied|confirmed|claimed|claims"
    r"|told|mentioned|emailed|signed|approved|rejected|denied|wants|asks|asked|cannot[ ]log|can't|couldn't"
    r"|lives|moved|resigned|was[ ]born|died|owes|bought|visited|complains|phoned|insisted|apologi[sz]ed"
    r"|thanked|explained|suggested|noticed|noted|forgot|is[ ](?:unhappy|angry|waiting|asking)"
    r"|has[ ](?:not[ ]paid|asked|complained|called|moved|left)|of[ ](?:accounting|sales|finance|legal"
    r"|support|marketing)|aged?[ ]\d"
)
_MEETS = (
    r"(?i:greet(?:s|ed)?|mentions|mentioned|quotes|quoted|thank(?:s|ed)|blame[sd]?|invite[sd]?|marr(?:ies"
    r"|ied)"
    r"|met|knows|knew|owes?|owed|refund(?:s|ed)|hired|fired|visit(?:s|ed)|misnamed|congratulate[sd]?"
    r"|reassure[sd]?)"
)
_SUFFERS = (
    r"(?:who\b|whose\b|(?:was|were|is|has[ ]been|got)[ ](?:charged|billed|refunded|greeted|born|hired|fired"
    r"|told|asked"
    r"|invited|promoted|admitted|discharged|misnamed|overcharged|locked[ ]out|transferred|diagnosed|arrested"
    r"|late|sick"
    r"|ill|angry|upset))"
)
_MENTIONED = (
    rf"\b{_DONE}[ ](?:(?:again|back|over|in|out|up|down|off|it|this|that|them|these)[ ])?{_BY}[ ]"
    rf"(?:(?:the|my|our|his|her|a|an)[ ])?({_PERSON})"
    rf"|\b{_MEETS}[ ]({_PERSON})|({_PERSON}),?[ ]{_SUFFERS}\b|({_PERSON})[ ]<"
    rf"|\b{_TALK}[:,]?[ ](?:(?:the|my|our|his|her|a|an)[ ])?({_PERSON})"
    rf"|\b{_ROLE},?[ ]({_PERSON})\b"
    rf"|({_PERSON}),?[ ](?:{_SAYS})\b"
    r"|(?i:\b(?:ich heisse|mein name ist|je m'appelle|me llamo|mi nombre es|mi chiamo|call me|named?"
    rf"|this is|i am|i'm)[ ])({_PERSON})"
)
# The same with a single word, which has to be a given name.
_MENTIONED_WORD = (
    rf"\b{_DONE}[ ](?:(?:again|back|over|in|out|up|down|off)[ ])?{_BY}[ ]({_W})\b"
    rf"|\b{_TALK}[:,]?[ ]({_W})\b|\b{_ROLE},?[ ]({_W})\b|\b({_W}),?[ ](?:{_SAYS})\b"
    r"|(?i:\b(?:said|says|asked|told|called|named|kid|user|name|with|from|by|and|for)[ ])"
    rf"({_W})(?:[.,;:!?)\n\"]|\z)"
    rf"|(?i:\b(?:i'm|i[ ]am|my[ ]name[ ]is|this[ ]is|call[ ]me|spoke[ ]with)[ ])({_W})\b"
    rf"|\b({_W})'s[ ](?i:address|account|order|phone|e?mail|password|profile|name|card|file|record|ticket"
    r"|case|invoice|claim|request|calendar|laptop|desk|team|manager|birthday|salary|report|message|reply"
    r"|number)"
)
# Within a sentence, a given name is a person's, unless it is part of a longer name.
_ALONE = rf"[a-z,][ ]({_W})(?:[ ,;!?.]|'s\b|\z)"
_GOES_ON = re.compile(r" [A-Z\d]|\.\w")
_BEFORE_TOOL = re.compile(
    r"(?:^|[\W_])(?:with|in|by|through|on|from|into|to|via|use[sd]?|using|is|are|was|and|or|not|than|over|of|for|the|an?"
    r"|called|named|run|runs|prefer|install|learn|try|write|choose|like|as|at|under|inside|without),? $"
)
_NEAR = 16
_NOT_ALONE = word_set(
    "ada adam carlo cassandra claude dana jan jasmine jean juan julia kim lea linda maria martin milan"
)
"""Given names that are also an algorithm, a language, a model, a place, or half of another name."""
# Things have such fields, too: a given name or the ending of a surname shows that a person is meant.
_NAMES_IN_FIELD = (
    rf"{FULL}(?:(?:,|;|[ ]and|[ ]&)[ ]{FULL})*|{LAST_FIRST}|{_BY_LETTERS}|{_BY_CAPITALS}|{_LAST_INITIALS}"
    rf"|{_OTHER_SCRIPT}"
)
_SET_TO = r"[\"'*)]{0,3}(?:[ \t]{0,3}[:=|>;][\"'* \t]{0,4}|[ ]-{1,2}[ ]|--|,|[ ]is[ ])[\"']?"
_VALUE = rf"{_SET_TO}(?:(?:{_TITLES})\.?[ ])?({_NAMES_IN_FIELD})"
_IN_FIELD = (
    r"(?i:\b(?:[\w.-]*name|contact|customer|client|owner|user|account|member|by|from|to|subject|title"
    r"|manager|maintainer"
    r"|agent|partner|team[ ]?lead|responsible)\b)" + _VALUE
)
_PERSON_FIELD = (
    r"(?i:\b(?:patient|employee|passenger|guest|tenant|student|applicant|candidate|subscriber"
    r"|card[ _-]?holder|travell?er|caller|sender|recipient|assignee|assigned[ _-]?to|reporter"
    r"|reported[ _-]?by|requester|requestor|requested[ _-]?by|approver|approved[ _-]?by|submitted[ _-]?by"
    r"|created[ _-]?by|updated[ _-]?by|changed[ _-]?by|signed(?:[ _-]?(?:off[ _-]?)?by)?|co-authored-by"
    r"|authored[ _-]?by|reviewed[ _-]?by|acked-by|tested-by|reviewer|author|committer|beneficiary|payee"
    r"|payer|insured|claimant|witness|supervisor|physician|doctor|nurse|attendees?|participants?"
    r"|contact[ _-]?person|next[ _-]?of[ _-]?kin|emergency[ _-]?contact|spouse|cc|bcc|attn|attention"
    r"|consignee|consignor|ship[ _-]?to|bill[ _-]?to|sold[ _-]?to|deliver[ _-]?to|signatory|interviewer"
    r"|interviewee|resident|donor|heir|guardian|mother|father|child|holder|handled[ _-]?by|sales[ _-]?rep"
    r"|salesperson|cashier|driver|accountant|policy[ _-]?holder|spoke[ _-]?(?:to|with))\b)"
)
_IN_FIELD_OF_PERSON = _PERSON_FIELD + _VALUE
# Capitalised words after such a field that are not names.
_NO_NAMES = word_set(
    "access account agent api approval care center centre class code control data desk error experience "
    "feedback group guide hello id identity interface journey key library list manager management manual "
    "member model name number page policy portal profile record records relations report request retry "
    "review role service services session settings side state status story success support table team "
    "test tests type view who"
)
_ANYWHERE = rf"\b({FULL})"
_LISTED = rf"\b{LAST_FIRST}"
_INITIALLED_NAME = rf"\b(?:{_BY_CAPITALS}|{_LAST_INITIALS})"
_GIVEN_NAME = rf"{_MENTIONED_WORD}|{_PERSON_FIELD}{_SET_TO}({_W})\b"
_INTRODUCED = (_NAME, _TITLED, _TITLED_WORD, _GREETED, _GREETED_SECOND, _SIGNED)

# --- given names, surnames, and words of things ---

_NAME_WORD = re.compile(r"[^\W\d_]+")
_FILES = Path(__file__).parent
_WRITTEN_NAMES = word_set(unaccented((_FILES / "given_names.txt").read_text("utf-8")))
GIVEN_NAMES = _WRITTEN_NAMES | {folded(name) for name in _WRITTEN_NAMES if folded(name[0]).isascii()}
"""Given names, except those that are also places, months, products or things: Paris, April, Max, Ruby."""
_STEMS = frozenset(
    re.sub("(?:ii|[aeios]{1,2})$", "", folded(name))
    for name in _WRITTEN_NAMES
    if folded(name[0]).isascii() and not name.isascii()
)
"""Stems of names in languages that inflect them."""
SURNAMES = word_set((_FILES / "surnames.txt").read_text("utf-8"))
"""Chinese and Japanese surnames."""
_CHINESE = frozenset(name for name in SURNAMES if len(name) == 1)
_KOREAN = frozenset(
    "김이박최정강조윤장임한오서신권황안송류전홍고문양손배백허유남심노하곽성차주우구나민진지엄채원천방공현함변염여추도소석선설마길연위표명기반왕금옥육인맹제모장국어은편용"
)
_KOREAN_LONG = word_set("남궁 황보 선우 제갈 독고 사공 서문")
THINGS = word_set((_FILES / "things.txt").read_text("utf-8"))
"""Words that are often capitalised but don't name people: for things, roles, places, products, qualities."""
_PLACEHOLDER_NAMES = re.compile(
    r"(?:john|jane|jon)(?: (?:q\.? )?(?:doe|smith|public))?|joe bloggs|(?:max|erika) mustermann|alice|bob"
    r"|carol|eve"
    r"|mallory|foo bar|lorem ipsum|(?:your|first|last|full|user)[ _-]?name|mario rossi|juan perez|jean dupont"
)
"""Names that stand for anyone, as in examples."""

_BEFORE_PLACE = word_set(
    "san santa santo sao saint st los las lake mount port fort cape puerto costa villa rio apache amazon"
)
"""Words before the given name in the name of a place or product."""
_SURNAMES_TOO = word_set(
    "baker ball banks bell bishop black bloom bright brooks brown carter church cook cooper cross field "
    "fisher ford "
    "gray green guest hall hand harder hatch hill hood hunter king lake law little lively love march mason "
    "merchant miller north pace parker porter rich rivers sharp singleton smart snow stone street taylor "
    "temple "
    "turner walker wall weaver west white winter wood woods worth york young"
)
"""Words that are also surnames, after a word that is only a given name."""
_ENDS_OF_PLACES = word_set(
    "city town county island islands valley bay beach river falls airport university college hospital street "
    "avenue bridge tower park province"
)

_INFLECTIONS = (
    ("s", ("",)),
    ("ed", ("", "e")),
    ("ly", ("",)),
    ("ies", ("y",)),
    ("ily", ("y",)),
    ("shes", ("sh",)),
    ("ches", ("ch",)),
    ("sses", ("ss",)),
    ("xes", ("x",)),
)
"""Endings of inflected words, and what their stems end in without them."""
_SHORTEST_STEM = 3

# Endings that surnames have and other words rarely do.
SURNAME = re.compile(
    r"(?:ez|ski|sky|ska|skii|skaa|skoi|cki|czyk|wicz|vich|vic|ovic|ov|ova|ovoi|ovu|ovim|ovym|ev|eva|evoi|evu"
    r"|evym|enko|chuk|cuk|escu"
    r"|oglu|nen|dottir|sson|sen|mann|berg|stein|bauer|meyer|maier|schmidt|schneider|quist|strom|lund|gaard"
    r"|dahl"
    r"|etti|elli|ini|eira|inho|kar|wala|pour|zadeh|yan|shvili|dze|opoulos|opoulou|idis|akis|kov|ngh|mba|nkwo"
    r"|gbe"
    r"|ola|iyi|sma|stra|llano|ucci|ello|ssen|veld|huis|worth|bury|shaw|ley|croft)$"
)
_OF_THINGS = re.compile(
    r"(?:tion|sion|ment|ness|ware|ity|ics|ance|ence|ables?|ible|ology|ship|ture|ized|ised|ful|less|ism|ally"
    r"|ings?|ions|ors|ers|[st]ive|ical|ional|ious|ously|ated|if(?:y|ie[ds]))$"
)
