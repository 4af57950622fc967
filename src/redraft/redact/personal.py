"""Personal data: what belongs to a person and not into what others read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, spans
from redraft.redact.given_names import GIVEN_NAMES
from redraft.redact.kinds import Found, Kind
from redraft.redact.values import is_placeholder
from redraft.redact.words import word_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.view import View

_EMAIL = r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,24}\b"
_NOBODY = re.compile(
    r"(?i)^(?:no-?reply|git|user|you|me|name|email|someone|john\.doe|jane\.doe|foo|bar|test|a|b|x"
    r"|your[._-]?\w*)@example|^git@"
    r"|@(?:[\w-]+\.)*(?:example(?:\.\w+)?|test|invalid|localhost|users\.noreply\.github\.com)$"
)
_PHONE = (
    r"\+[1-9]\d{0,2}[ .()/-]{0,3}(?:\d[ .()/-]{0,2}){6,12}\d\b"
    r"|(?:\b1[ .-])?\(\d{3}\)[ .-]?\d{3}[ .-]\d{4}\b|\b(?:1[ .-])?[2-9]\d{2}[.-][2-9]?\d{2}[.-]\d{4}\b"
    r"|(?i:\b(?:phone|tel|telephone|mobile|cell|fax|whatsapp|call|text)(?:[ _-]?(?:number|no"
    r"|nr))?\b[\"']?[ \t]{0,3}[.:=]{0,2}[ \t]{0,3}"
    r"(?:(?:is|was|me|him|her|us|them|at|on|back)[ \t]{1,3}){0,3}[\"']?)(\(?\d[\d ()./-]{6,18}\d)\b"
)
_CARD = r"\b[3-6]\d{3}(?:[ -]?\d{2,6}){2,4}\b"
_IBAN = r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"
_IDENTITY = (
    r"\b\d{3}-\d{2}-\d{4}\b"
    r"|(?i:\b(?:ssn|social security(?: number| no)?|passport(?: number| no)?|tax[ _-]?id|national[ _-]?id"
    r"|driver'?s? licen[cs]e(?: number| no)?|nino|nhs number)\b"
    r"[\"'.#]{0,2}[ \t]{0,3}[:=#]?[ \t]{0,3}(?:(?:is|was|number"
    r"|no)[ \t.:]{1,3}){0,2}[\"']?)([A-Z0-9][A-Z0-9 /-]{4,18}[A-Z0-9])\b"
)
_BIRTHDAY = (
    r"(?i:\b(?:date[ _]of[ _]birth|birth[ _-]?date|birthday|dob"
    r"|born(?:[ ]on)?)\b[\"']?[ \t]{0,3}[:=]?[ \t]{0,3}(?:(?:is|was|on)[ \t]{1,3})?[\"']?)"
    r"((?:\d{1,4}[./ -]\d{1,2}[./ -]\d{1,4})|(?i:\d{1,2}(?:st|nd|rd|th)?[ ](?:of[ ])?(?:jan|feb|mar|apr"
    r"|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?,?[ ]\d{4})"
    r"|(?i:(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?[ ]\d{1,2}(?:st|nd|rd"
    r"|th)?,?[ ]\d{4}))"
)
_NAME = (
    r"(?i:\b(?:(?:first|last|full|middle|sur|given|family|maiden|customer|patient|client|employee"
    r"|passenger|card ?holder|account ?holder|contact)[ _-]?name|surname)\b"
    r"[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?)([A-Z][\w'.-]{1,30}(?:[ ][A-Z][\w'.-]{0,30}){0,3})"
)
_WRITTEN = r"(?:[OD]'|Mc|Mac)?[A-Z][a-z\xdf-\xff]{1,20}(?:['-][A-Z][a-z\xdf-\xff]{1,20})?"
_NAMES = rf"({_WRITTEN}(?:[ ]{_WRITTEN}){{0,2}})"
_CALLED = (
    r"\b(?:Mr|Mrs|Ms|Mx|Dr|Prof|Herrn?|Frau|Mme|Mlle|Monsieur|Madame|Se\xf1ora?|Signora?)\b\.?[ ]"
    rf"{_NAMES}"
    r"|(?i:\b(?:my|his|her|their|whose|customer's|user's|patient's|guest's)[ ]"
    rf"(?:(?:full|first|last)[ ])?name[ ](?:is|was)[ ]){_NAMES}"
    r"|(?i:\b(?:patient|customer|passenger|employee|colleague|guest|tenant|student|teacher|nurse|doctor"
    r"|applicant|candidate|subscriber|cardholder|travell?er|user|client|member|manager)[ ])"
    rf"({_WRITTEN}[ ]{_WRITTEN})\b"
)
# Things have such fields, too: a given name tells that somebody is meant.
_IN_FIELD = (
    r"(?i:\b(?:[\w.-]*name|contact|patient|customer|client|employee|passenger|guest|tenant|student"
    r"|applicant|candidate|subscriber|cardholder|travell?er|member|caller|sender|recipient|assignee|reporter"
    r"|owner)\b[\"'*]{0,3}[ \t]{0,3}[:=][\"'* \t]{0,4})"
    rf"({_WRITTEN}(?:,?[ ]{_WRITTEN}){{1,2}})\b"
)
_APART = re.compile(r"[ ,-]+")
# What stands behind such a word with a capital, and is nobody's name.
_NO_NAMES = word_set(
    "access account agent api approval care center centre class code control data desk error experience "
    "feedback group guide hello id identity interface journey key library list manager management manual "
    "member model name number page policy portal profile record records relations report request retry "
    "review role service services session settings side state status story success support table team "
    "test tests type view"
)
_STREET = (
    r"\b\d{1,5}[A-Za-z]?[ ](?:[A-Z][\w'.-]{1,20}[ ]){1,4}"
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Square|Sq|Place|Pl"
    r"|Terrace|Highway|Hwy|Parkway|Pkwy)\b\.?"
    r"|\b[A-Z][a-z\xdf-\xff]{2,20}(?:stra(?:\xdf|ss)e|weg|platz|gasse|allee)[ ]\d{1,4}[a-z]?\b"
)
_SIMPLE = (
    (_PHONE, Kind.PHONE),
    (_IDENTITY, Kind.IDENTITY),
    (_BIRTHDAY, Kind.BIRTHDAY),
    (_NAME, Kind.NAME),
    (_CALLED, Kind.NAME),
    (_STREET, Kind.STREET),
)
_ANY = (_EMAIL, _CARD, _IBAN, _IN_FIELD, *(pattern for pattern, _ in _SIMPLE))
_CARD_DIGITS = range(13, 20)
_PHONE_DIGITS = range(7, 16)
_IBAN_LENGTHS = range(15, 35)


def personal(view: View) -> Iterator[Found]:
    """Yield addresses of e-mail, numbers of phones, cards, accounts and identity papers, names in fields."""
    if not has_any(_ANY, view.data):
        return
    yield from _numbered(view)
    text = view.text
    for start, end in spans(_EMAIL, view.data):
        if not _NOBODY.search(text[start:end]) and text[end : end + 1] != "(":
            yield Found(start, end, Kind.EMAIL)
    for start, end in spans(_IN_FIELD, view.data):
        if not GIVEN_NAMES.isdisjoint(_APART.split(text[start:end].lower())):
            yield Found(start, end, Kind.NAME)
    for pattern, kind in _SIMPLE:
        for start, end in spans(pattern, view.data):
            value = text[start:end]
            is_nobody = kind is Kind.NAME and not _NO_NAMES.isdisjoint(value.lower().split())
            if is_placeholder(value) or is_nobody or (kind is Kind.PHONE and not _is_phone(value)):
                continue
            yield Found(start, end, kind)


def _numbered(view: View) -> Iterator[Found]:
    """Yield the numbers whose check digits are right."""
    for start, end in spans(_CARD, view.data):
        if is_card(view.text[start:end]):
            yield Found(start, end, Kind.CARD)
    for span in spans(_IBAN, view.data):
        if found := _iban(view.text, *span):
            yield found


def is_card(text: str) -> bool:
    """Say whether digits are the number of a payment card, by their check digit (Luhn, ISO/IEC 7812)."""
    digits = [int(char) for char in text if char.isdigit()]
    if len(digits) not in _CARD_DIGITS or len(set(digits)) == 1:
        return False
    doubled = [sum(divmod(digit * 2, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Say whether a text is an account's number by its check digits (ISO 13616)."""
    code = text.replace(" ", "")
    if len(code) not in _IBAN_LENGTHS:
        return False
    return int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1


def _iban(text: str, start: int, end: int) -> Found | None:
    """Return the longest number that the check digits confirm: a word in capitals may follow it."""
    for last in range(end, start + _IBAN_LENGTHS.start - 1, -1):
        if is_iban(text[start:last]):
            return Found(start, last, Kind.ACCOUNT)
    return None


def _is_phone(text: str) -> bool:
    return sum(char.isdigit() for char in text) in _PHONE_DIGITS
