"""Vocabulary: signs, scripts and languages by which outputs differ, each with its pattern."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from redraft._texts import limits_in_words, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Sign(NamedTuple):
    """A kind of text that can be counted: the noun, its pattern, flags, and words that hint at it."""

    singular: str
    plural: str
    pattern: str
    hints: tuple[str, ...] = ()
    flags: str = ""
    raw: bool = False
    rank: int = 5
    """The position, among the likely checks, of a check that forbids it."""

    def amount(self, least: int | None, most: int | None) -> str:
        """The amount of it within limits, such as `at most 3 sentences`."""
        is_one = 1 in (least, most) and least in (None, most, 1) and most in (None, 1)
        return f"{limits_in_words(least, most)} {self.singular if is_one else self.plural}"

    @property
    def config(self) -> dict[str, object]:
        """The configuration of its pattern."""
        config: dict[str, object] = {"pattern": self.pattern}
        config |= {"flags": self.flags} if self.flags else {}
        return config | ({"raw": True} if self.raw else {})


NUMBERED = Sign("numbered item", "numbered items", r"^[ \t]*\d{1,3}[.)][ \t]", flags="m")
SIGNS = (
    Sign("code fence", "code fences", "```", ("fence", "markdown", "backtick", "code"), raw=True, rank=2),
    Sign("exclamation mark", "exclamation marks", "!", ("exclamation", "shout", "loud")),
    Sign("question mark", "question marks", r"\?", ("question",)),
    Sign("emoji", "emoji", "[\u2600-\u27bf\U0001f300-\U0001faff]", ("emoji", "emoticon", "smiley"), rank=3),
    Sign("word in capitals", "words in capitals", "[A-Z]{4,}", ("capital", "uppercase", "caps", "shout")),
    Sign("link", "links", "https?://", ("link", "url", "address"), rank=3),
    Sign("e-mail address", "e-mail addresses", r"[\w.+-]+@[\w-]+\.[\w.-]+", ("email", "mail"), rank=3),
    Sign("HTML tag", "HTML tags", "</?[A-Za-z][^<>]*>", ("html", "tag", "markup"), rank=3),
    Sign(
        "placeholder",
        "placeholders",
        r"\[[^\]\n]+\]|\{\{|<[A-Z][A-Z _]+>",
        ("placeholder", "bracket"),
        rank=2,
    ),
    Sign("heading", "headings", "^#{1,6} ", ("heading", "title", "section"), "m"),
    Sign("text in bold", "texts in bold", r"\*\*[^*\n]+\*\*", ("bold", "markdown")),
    Sign("table", "table rows", r"^[ \t]*\|", ("table", "row"), "m"),
    Sign("sentence", "sentences", r"[.!?\u3002](?:\s|$)", ("sentence",)),
    Sign("blank line", "blank lines", r"\n[ \t]*\n", ("paragraph", "blank")),
    Sign("comma", "commas", ",", ("comma", "item", "entry")),
    Sign("semicolon", "semicolons", ";", ("semicolon",)),
    Sign("dash", "dashes", "[\u2013\u2014]", ("dash",)),
    Sign("parenthesis", "parentheses", r"\(", ("parenthesi", "bracket")),
    Sign("quotation mark", "quotation marks", '["\u201c\u201d\u201e\u00ab\u00bb]', ("quote", "quotation")),
    Sign("currency sign", "currency signs", "[$\u20ac\u00a3\u00a5]", ("currency", "price", "dollar", "euro")),
    Sign(
        "word in the first person",
        "words in the first person",
        r"(?:^|[\s(])(?:I|my|My|me|mine)(?:$|[\s.,;:!?)'\u2019])",
        ("person", "itself", "himself", "opinion"),
    ),
    Sign("percent sign", "percent signs", "%", ("percent", "percentage", "share")),
    Sign("tab", "tabs", r"\t", ("tab",)),
    Sign("space at the end of a line", "spaces at the ends of lines", r"[ \t]\n", ("trailing", "space")),
    Sign("digit", "digits", r"\d", ("digit", "figure", "numeral"), rank=7),
    Sign("capital letter", "capital letters", "[A-Z]", ("capital", "uppercase", "lowercase", "case"), rank=7),
    Sign("small letter", "small letters", "[a-z]", ("capital", "uppercase", "lowercase", "case"), rank=7),
)

SCRIPTS = {
    "Latin": "A-Za-z\u00c0-\u024f",
    "Cyrillic": "\u0400-\u04ff",
    "Greek": "\u0370-\u03ff",
    "Hebrew": "\u05d0-\u05ea",
    "Arabic": "\u0620-\u06ff",
    "Devanagari": "\u0900-\u097f",
    "Thai": "\u0e00-\u0e7f",
    "Korean": "\uac00-\ud7a3",
    "Japanese (kana)": "\u3040-\u30ff",
    "Chinese": "\u4e00-\u9fff",
}
LANGUAGES = {
    "English": "the and of to is are with you your this that have not from will it for be",
    "German": "und der die das ist nicht ein eine f\u00fcr mit auf zu den von wir sie ich auch bei",
    "French": "le la les et est une des pour avec vous nous dans pas que sur du au ce",
    "Spanish": "el los las es una para con por no que del y se su como m\u00e1s al lo",
    "Italian": "il gli \u00e8 una per con non che di della sono del anche questo nel si lo",
    "Portuguese": "o os as \u00e9 uma para com n\u00e3o que do da em um por mais voc\u00ea",
    "Dutch": "het een van niet met voor op zijn wij aan dat ook bij naar",
}
FUNCTION_WORDS = frozenset(word for words in LANGUAGES.values() for word in words.split())
SPOKEN = (
    "language",
    "script",
    "alphabet",
    "translate",
    "translation",
    "latin",
    "cyrillic",
    "chinese",
    "japanese",
)
WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def is_common(text: str) -> bool:
    """Whether a text is a letter or a word without content, which any output may have."""
    words = WORD.findall(text.casefold()) or [text.strip()]
    return all(len(word) < 2 or word in FUNCTION_WORDS for word in words)  # noqa: PLR2004 (a letter)


def has_keys(keys: Sequence[str], within: Sequence[str] = ()) -> str:
    """Name the keys of an object in a sentence: `Has the keys "a" and "b" in "lines"`, with a full stop."""
    quoted = listed([json.dumps(key, ensure_ascii=False) for key in keys])
    where = f" in {json.dumps(within[-1], ensure_ascii=False)}" if within else ""
    return f"Has the key{'' if len(keys) == 1 else 's'} {quoted}{where}."


def language_pattern(name: str, others: Iterable[str] = LANGUAGES) -> str:
    """A pattern for the common words of a language that some other languages do not have."""
    foreign = {word for other in others if other != name for word in LANGUAGES[other].split()}
    own = sorted(set(LANGUAGES[name].split()) - foreign)
    # Without look-arounds: matched in linear time, in any script.
    return rf"(?:^|[\s(\"'])(?:{'|'.join(own)})(?:$|[\s.,;:!?)\"'])"
