"""Personal data: names, addresses, logins and numbers that belong to a person."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, spans
from redraft.redact.kinds import Finding, Kind
from redraft.redact.letters import IDEOGRAPH
from redraft.redact.names import FULL, LAST_FIRST, find_names, is_given_name, is_person_name, is_thing
from redraft.redact.values import is_placeholder, word_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.canonical import View


def find_personal(view: View) -> Iterator[Finding]:
    """Yield names, addresses and logins of people, and the numbers of their phones, cards and records."""
    yield from find_names(view)
    if not has_any(_ANY, view.data):
        return
    yield from _cards_and_accounts(view)
    yield from _logins(view)
    yield from _places(view)
    yield from _handles(view)
    text = view.text
    for start, end in spans(_EMAIL, view.data):
        if not _EXAMPLE_EMAIL.search(view.plain[start:end]) and text[end : end + 1] != "(":
            yield Finding(start, end, Kind.EMAIL)
    for start, end in spans(_SPELLED_EMAIL, view.data):
        if not _AT_IN_SENTENCE.search(view.plain[start:end]):
            yield Finding(start, end, Kind.EMAIL)
    for start, end in spans(_CLIENT_ADDRESS, view.data):
        for match in _ADDRESS.finditer(text, start, end):
            if _is_remote(match.group()):
                yield Finding(*match.span(), Kind.ADDRESS)
    for pattern, kind in _SIMPLE:
        for start, end in spans(pattern, view.data):
            value = text[start:end]
            if pattern is _LIVES and IDEOGRAPH in view.plain[start:end] and not _DISTRICTS.search(value):
                continue
            if not is_placeholder(value) and (
                kind is not Kind.PHONE or (sum(char.isdigit() for char in value) in _PHONE_DIGITS)
            ):
                yield Finding(start, end, kind)
    for start, end in spans(_RECORD, view.data):
        if _is_record_number(text[start:end], text[max(0, start - _NEAR) : start]):
            yield Finding(start, end, Kind.RECORD)


def _logins(view: View) -> Iterator[Finding]:
    text = view.text
    for start, end in spans(_DOMAIN_USER, view.data):
        domain, _, user = (
            text[start:end].replace("]\\[", "\\").strip("[]").replace("\\\\", "\\").rpartition("\\")
        )
        is_generic = domain.lower() in _SYSTEM_DOMAINS or user.lower() in _NOT_LOGINS or is_placeholder(user)
        is_generic |= _IN_PATH.search(text[max(0, start - _NEAR) : start]) is not None
        if not is_generic and not _FILE.search(user) and not is_placeholder(domain or "x1"):
            yield Finding(start, end, Kind.USER)
    if not _IN_DIRECTORY.search(view.data):
        return
    for start, end in spans(_ENTRY, view.data):
        value = text[start:end].strip()
        if text[end : end + 1] == "(" and "." not in value and " " not in value:  # `uid = getuid()`
            continue
        # A sentence may go on after it.
        if named := _FULL_NAME.match(value):
            value = named.group()
        elif text[:start].lower().endswith(("uid=", "accountname=", "nickname=")):
            value = value.split(" ")[0]
        words = value.lower().split()
        is_excluded = any(
            word.strip(",.") in _NOT_LOGINS or word in _NOT_ENTRIES for word in words
        ) or is_placeholder(value)
        is_named = " " in value and is_person_name(value.replace("\\,", ""), surely=True)
        if not is_excluded and (is_named or _LOGIN_NAME.fullmatch(value) is not None):
            first = start + len(text[start:end]) - len(text[start:end].lstrip())
            yield Finding(first, first + len(value), Kind.NAME if is_named else Kind.USER)


def _places(view: View) -> Iterator[Finding]:
    """Yield addresses, coordinates and license plates."""
    for start, end in spans(_EAST_ASIAN_ADDRESS, view.data):
        text = view.text[start:end]
        if len(_DISTRICTS.findall(text)) > 1 and _HOUSE_NUMBERS.search(text):
            yield Finding(start, end, Kind.STREET)
    for start, end in spans(_PLATE, view.data):
        plate = view.plain[start:end]
        if len(plate) >= _SHORTEST_PLATE and not plate.isalpha() and any(map(str.isdigit, plate)):
            yield Finding(start, end, Kind.PLATE)
    for pattern in (_LABELLED_POSITION, _DEGREES):
        for span in spans(pattern, view.data):
            yield Finding(*span, Kind.POSITION)
    for start, end in spans(_POSITION, view.data):
        if _IN_VECTOR.search(view.plain[max(0, start - 3) : start]):
            continue
        latitude, longitude = (abs(float(number)) for number in _DECIMAL.findall(view.plain[start:end]))
        if 1 < latitude <= _LARGEST_LATITUDE and 1 < longitude <= 2 * _LARGEST_LATITUDE:
            yield Finding(start, end, Kind.POSITION)


def _handles(view: View) -> Iterator[Finding]:
    """Yield a person's name on a network: next to the network's name, or with a given name in it."""
    text = view.plain
    for start, end in spans(_HANDLE, view.data):
        handle = text[start + 1 : end].lower()
        before = text[max(0, start - _NEAR) : start].rpartition("\n")[2]
        after = text[end : end + _NEAR].partition("\n")[0]
        has_label = _NETWORK_BEFORE.search(before) or _NETWORK_AFTER.match(after)
        has_name = any(is_given_name(part) for part in _PARTS.split(handle)) and _PARTS.search(handle)
        if (
            (has_label or has_name)
            and not all(map(is_thing, _PARTS.split(handle)))
            and after[:1] not in ("/", "(")
        ):
            yield Finding(start, end, Kind.USER)
    for start, end in spans(_LABELLED_HANDLE, view.data):
        if not is_thing(text[start:end].lower()) and not is_placeholder(text[start:end]):
            yield Finding(start, end, Kind.USER)


def _is_record_number(value: str, before: str) -> bool:
    if _DATE.fullmatch(value):
        return False
    digits = sum(char.isdigit() for char in value)
    if _NUMBER_LABEL.search(before):
        return digits >= _FEWEST_RECORD_DIGITS - 1
    return digits >= _FEWEST_RECORD_DIGITS and _RECORD_NOUN.search(before) is not None


def _is_remote(value: str) -> bool:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _cards_and_accounts(view: View) -> Iterator[Finding]:
    """Yield card and account numbers whose check digits are right."""
    for start, end in spans(_CARD, view.data):
        if is_card(view.text[start:end]):
            yield Finding(start, end, Kind.CARD)
    for start, end in spans(_LABELLED_CARD, view.data):
        if is_card(view.text[start:end], shortest=_SHORTEST_CARD):
            yield Finding(start, end, Kind.CARD)
    for span in spans(_IBAN, view.data):
        if account := _iban(view.text, *span):
            yield account


def is_card(text: str, *, shortest: int = 13) -> bool:
    """Whether digits are a payment card's number, by the check digit (Luhn, ISO/IEC 7812)."""
    digits = [int(char) for char in text if char.isdigit()]
    if not shortest <= len(digits) <= _LONGEST_CARD or len(set(digits)) == 1:
        return False
    doubled = [sum(divmod(digit * 2, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Whether a text is an IBAN, by its check digits (ISO 13616)."""
    code = text.replace(" ", "")
    if len(code) not in _IBAN_LENGTHS:
        return False
    return int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1


def _iban(text: str, start: int, end: int) -> Finding | None:
    """The longest IBAN in a span: a word in capitals may follow it."""
    for last in range(end, start + _IBAN_LENGTHS.start - 1, -1):
        if is_iban(text[start:last]):
            return Finding(start, last, Kind.ACCOUNT)
    return None


# --- the patterns, in Latin-1 and the syntax of RE2 ---

# A part of an address in a script without spaces has no ASCII letters, since words are written around it.
_MAIL_PART = r"(?:[A-Za-z0-9-]{1,63}|[\x80-\x82][\x80-\x82-]{0,62})"
_EMAIL = (
    r"(?:[A-Za-z0-9_%+-](?:[A-Za-z0-9._%+'-]{0,62}[A-Za-z0-9._%+-])?"
    r"|[\x80-\x82](?:[\x80-\x82._-]{0,30}[\x80-\x82])?)"
    rf"@(?:{_MAIL_PART}\.){{1,5}}(?:[A-Za-z]{{2,24}}\b|[\x80-\x82]{{2,12}})"
)
_TLD = (
    r"(?:com|net|org|edu|gov|info|biz|name|mail|email|app|dev|cloud|shop|online|site|io|ai|co|me|[a-z]{2})\b"
)
_DOT = r"(?:[ ]?[(\[{<](?i:dot|\.)[)\]}>][ ]?|[ ](?i:dot|punkt|punto|point|ponto|punt)[ ]|\.)"
_SPELLED_DOT = r"(?:[ ]?[(\[{<](?i:dot|\.)[)\]}>][ ]?|[ ](?i:dot|punkt|punto|point|ponto|punt)[ ])"
_SPELLED_EMAIL = (
    rf"\b[A-Za-z0-9][\w.+-]{{0,40}}(?:(?:{_SPELLED_DOT}|[ ](?:underscore|dash|hyphen"
    rf"|minus)[ ])[A-Za-z0-9][\w+-]{{0,30}}){{0,3}}"
    rf"(?:[ ]?[(\[{{<](?i:at|a|@)[)\]}}>][ ]?[\w-]{{1,40}}(?:{_DOT}[\w-]{{1,40}}){{0,2}}{_DOT}"
    rf"|[ ](?:at|AT)[ ][\w-]{{1,40}}(?:{_DOT}[\w-]{{1,40}}){{0,2}}{_SPELLED_DOT}){_TLD}"
)
# "Look at the dot in the picture."
_AT_IN_SENTENCE = re.compile(
    r"(?i) at (?:the|a|an|this|that|each|every|its?|your|any|one|noon|least|most|first|last|all) "
)
_EXAMPLE_EMAIL = re.compile(
    r"(?i)^(?:no-?reply|git|user|you|me|name|email|someone|john\.doe|jane\.doe|foo|bar|test|a|b|x"
    r"|your[._-]?\w*)@example|^git@"
    r"|^[a-z]@[a-z]\.|@(?:your|my|some)[a-z-]+\.|@(?:contoso|fabrikam|domain|odata)\."
    r"|@(?:[\w-]+\.)*(?:example(?:\.\w+)?|test|invalid|localhost|users\.noreply\.github\.com)$"
)
_PHONE = (
    r"\+[1-9]\d{0,2}[ .()/-]{0,3}(?:\d[ .()/-]{0,2}){6,12}\d\b"
    r"|(?:\b1[ .-])?\(\d{3}\)[ .-]?\d{3}[ .-]\d{4}\b|\b(?:1[ .-])?[2-9]\d{2}[.-][2-9]?\d{2}[.-]\d{4}\b"
    # without a country code; times of day look similar, except for what comes before them
    r"|(?:^|[^\w.:/+-])(0\d{2,4}[ /-]\d{5,8}|\(0\d{1,4}\)[ ]?\d{3,4}[ -]?\d{3,5}"
    r"|0\d{1,3}[ .-]\d{2,4}(?:[ .-]\d{2,4})+)\b"
    r"|(?i:\b(?:phone|tel|telephone|mobile|cell|fax|whatsapp|call|text)(?:[ _-]?(?:number|no"
    r"|nr))?\b[\"']?[ \t]{0,3}[.:=]{0,2}[ \t]{0,3}"
    r"(?:(?:is|was|me|him|her|us|them|at|on|back)[ \t]{1,3}){0,3}[\"']?)(\(?\d[\d ()./-]{6,18}\d)\b"
    r"|(?i:\b(?:dial|ring|reach[ ]\w{2,4}[ ](?:at|on)|call[ ]back"
    r"|number[ ]is)[ :]{1,2})(\+?\(?\d[\d ()./-]{5,18}\d)\b"
    r"|\btelephone\b[^\n\d+]{0,16}(\+?\(?\d[\d ()./-]{5,18}\d)\b"
    r"|\b(\d[\d ()./-]{7,18}\d)[^\n\d]{1,12}\btelephone\b"
)
_CARD = (
    r"\b(?:(?:[3-6]\d{3}|2[2-7]\d{2})(?:[ -]?\d{4}){2}[ -]?\d{1,7}"  # in groups of four
    r"|3\d{3}[ -]?\d{6}[ -]?\d{4,5})\b"
)
_LABELLED_CARD = (
    r"(?i:\b(?:(?:credit|debit|bank|gift|payment)?[ ]?card|cc|visa|mastercard|maestro|amex|jcb)\b"
    r"[^\n\d]{0,40})"
    r"(\d(?:[ -]?\d){11,18})\b"
)
_IBAN = r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"
_IDENTITY = (
    r"\b\d{3}-\d{2}-\d{4}\b"
    r"|(?i:\b(?:ssn|social security(?: number| no)?|passport(?: number| no)?|tax[ _-]?id"
    r"|national[ _-]?id(?: number)?"
    r"|driver'?s? licen[cs]e(?: number| no)?|nino|nhs number|national insurance(?: number)?|tax file number"
    r"|(?:social insurance|resident registration) number|tin|aadhaar)\b"
    r"[\"'.#]{0,2}[ \t]{0,3}[\x80-\x82]{0,2}[:=#]?[ \t]{0,3}(?:(?:is|was|number"
    r"|no)[ \t.:]{1,3}){0,2}[\"']?)([A-Z0-9][A-Z0-9 /-]{4,18}[A-Z0-9])\b"
)
_MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_OF = r"(?:(?:of|de|del)[ ])?"
_DAY = (
    r"(?:\d{1,4}[./ -]{1,2}\d{1,2}[./ -]{1,2}\d{1,4}\.?"
    rf"|\d{{1,2}}(?:st|nd|rd|th|er|\.)?[ ]{_OF}(?:[A-Za-z]{{3,12}}|\x80{{2,12}})\.?,?[ ]{_OF}\d{{4}}"
    rf"|{_MONTH}[ ]\d{{1,2}}(?:st|nd|rd|th)?(?:,?[ ]\d{{4}})?|\d{{1,2}}(?:st|nd|rd|th)?[ ]{_OF}{_MONTH}"
    rf"|\d{{1,2}}\.?[ ]{_OF}[A-Z][a-z]{{2,9}}\b"
    # with a character for year, month and day after each, perhaps after the name of an era
    r"|[\x81]{0,2}\d{1,4}[\x80\x81][ ]?\d{1,2}[\x80\x81](?:[ ]?\d{1,2}[\x80\x81]?)?|\d{6}(?:\d\d)?\b)"
)
_BIRTHDAY = (
    r"(?i:\b(?:date[ _]of[ _]birth|birth[ _-]?date|birthday|dob"
    r"|born)\b[\"']?[\x80-\x82]{0,3}[ \t]{0,3}[:=-]?[ \t]{0,3}"
    rf"(?:(?:is|was|on|the|in)[ \t]{{1,3}}){{0,2}}[\"']?)({_DAY})"
    rf"|\bdate of birth\b[^\n\d.;]{{1,16}}({_DAY})|\bb\.[ ](\d{{1,4}}[./-]\d{{1,2}}[./-]\d{{2,4}}"
    rf"|\d{{1,2}}[ ]{_MONTH}[ ]\d{{4}})|({_DAY})[ ]{{0,2}}date of birth\b"
)
# --- where a person lives ---

_STREETS = (
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Square|Sq|Place|Pl|Terrace"
    r"|Highway|Hwy|Parkway|Pkwy|Crescent|Cres|Close|Grove|Mews|Row|Walk|Quay|Gardens|Circle|Trail|Alley"
    r"|Hill)\b\.?"
)
_UNIT = r"(?:,?[ ](?:Apt|Apartment|Unit|Suite|Ste|Flat|Floor)\.?[ ]?#?\w{1,5}\b)?"
_PLACE_NAME = r"(?:[A-Z0-9][\w'.-]*|[a-z]{1,3}\.?|(?:l|d|dell|nell)'[A-Z][\w-]*|\x80+)"
_HOUSE = (
    r"(?:(?:[Nn][or]|[dD]|dom|dum|bud|House)\b\.?[ :]{0,2}|\x80{1,5}[ ])?\d{1,5}(?:[A-Za-z]\b|[/-]\d{1,4})?"
    r"(?:,?[ ](?:[A-Za-z]{1,6}|\x80{1,6})?[.:]?[ ]?\d{1,4}[A-Za-z]?\b)*"
)
_STREET = (
    rf"(?:\b(?:Flat|Apt|Unit"
    rf"|Suite)[ ]\w{{1,5}},[ ])?(?:\b\d{{1,4}}/)?\b\d{{1,5}}[A-Za-z]?[ ](?:[NSEW]\.?[ ])?"
    rf"(?:[A-Z][\w'.-]{{1,20}}[ ]){{1,4}}{_STREETS}{_UNIT}|\bN(?:o"
    rf"|r)\.[ ]\d{{1,4}}[ ](?:[A-Z]\w{{2,20}}[ ]){{1,3}}{_STREETS}"
    r"|\b(?:[A-Z][a-z]{1,20}(?:stras?se|weg|platz|gasse|allee|gatan|vagen|veien|gade|vej|straat|laan|katu)"
    r"|[A-Z][a-z]{2,20}[ ](?:Stras?se|Str\.|Allee|Platz|Weg|Gasse|utca|katu))[ ]\d{1,4}[a-z]?\b"
    # `street` stands for the word of another language, which may come first, in the middle or last
    rf"|\bstreet\b[ .,]{{1,3}}(?:{_PLACE_NAME}[ ,.]{{1,3}}){{1,4}}{_HOUSE}"
    rf"|\b(?:\d{{1,4}}/)?\d{{1,5}}[a-z]?(?:[ ](?:bis"
    rf"|ter))?,?[ ](?:{_PLACE_NAME}[ ]){{0,3}}street(?:[ ]{_PLACE_NAME}){{0,4}}"
    rf"|(?:\b[A-Z]\w+|\x80{{2,}})[ ]street,?[ ]{_HOUSE}"
    rf"|\bstreet[ ]\d{{1,5}}[, ]{{1,2}}(?:{_PLACE_NAME}[ ]){{1,3}}street\b"
    r"|(?i:\bP\.?[ ]?O\.?[ ]?Box[ ]\d{1,6})"
)
_ADDRESS_LABEL = (
    r"(?i:\b(?:(?:(?:(?:home|shipping|billing|delivery|postal|street|mailing|residential)[ _-]?)?address"
    r"|residence)"
    r"[\"']?[\x80-\x82]{0,2}(?:[ ]?[:=]|[ ]is\b)|(?:lives|resid(?:es|ing)|living)[ ](?:at"
    r"|in)\b)[ ]{0,2}[\"']?)"
)
_LIVES = (
    rf"{_ADDRESS_LABEL}(\d{{1,5}}[A-Za-z]?(?:/\d{{1,4}})?,?[ ](?:{_PLACE_NAME}[ ,]{{1,2}}){{0,4}}"
    rf"(?:[A-Z]\w+|\x80{{2,}}){_UNIT}|(?:{_PLACE_NAME}[ ,.]{{1,3}}){{1,5}}{_HOUSE}"
    r"|(?:\xbf?[ ]?\d{3}-\d{4}[ ]?)?[\x81\x82]{2,24}[ ]?\d{1,5}(?:[\x81\x82-]{1,6}\d{1,5}){0,6}[\x81]{0,2})"
)
# Chinese, Japanese and Korean addresses, whose words for districts and streets are checked in the text.
_EAST_ASIAN_ADDRESS = (
    r"(?:\xbf?\d{3}-\d{4}[ ]?)?[\x81]{3,24}\d{1,5}(?:[\x81-]{1,6}\d{1,5}){0,6}[\x81]{0,2}"
    r"|(?:\x80{2,7}[ ]){2,5}\d{1,5}(?:-\d{1,4})?(?:\x80{2})?"
)
_DISTRICTS = re.compile("[省市区區县縣都道府町村郡路街段巷弄]|[시도구군읍면동로길](?= )")
_HOUSE_NUMBERS = re.compile(r"\d(?:[号號番弄巷段]|丁目|-\d)|[로길동리] \d")

# --- positions, license plates, handles and logins ---

_NUMBER = r"-?\d{1,3}\.\d{3,}"
_LABELLED_POSITION = (
    r"(?i:\b(?:lat(?:itude)?|lon(?:g(?:itude)?)?|lng)\b[\"']?[ ]?[:=][ ]?[\"']?)(-?\d{1,3}\.\d{2,})"
    r"|(?i:\b(?:coordinates?|gps|geo|location|position|pin|located|seen|point\(|(?:ll|q)=)[^\n\d-]{0,24})"
    rf"({_NUMBER}[ ]{{0,2}}[,;/ ][ ]?{_NUMBER})"
)
_MINUTES = r"\d{1,2}[ ]?'(?:[ ]?\d{1,2}(?:\.\d+)?[ ]?(?:\"|''))?"
_ANGLE = rf"\d{{1,3}}(?:\.\d{{2,}}[ ]?\xb0|[ ]?\xb0[ ]?{_MINUTES})[ ]?[NSEWO]\b"
_DEGREES = rf"{_ANGLE}(?:[ ,;/]{{1,3}}{_ANGLE})?"
_POSITION = (
    r"(?:^|[^\w.,;-]|[A-Za-z\x80-\x82][,;:][ ]?)(-?\d{1,2}\.\d{4,}[ ]?[,;/][ ]?-?\d{1,3}\.\d{4,})"
    r"(?:[^\w,;.-]|[.][^\d]|\z)"
)
_SHORTEST_PLATE = 5
_IN_VECTOR = re.compile(r"[\[(]$|\d[,;]? ?$")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_LARGEST_LATITUDE = 90
_PLATE_VALUE = r"[A-Z0-9\x80-\x82]{1,8}(?:[ \xb7.-]{1,2}(?:[A-Z0-9]{1,5}\b|[\x80-\x82]{1,2})){0,4}"
_PLATE = (
    r"(?i:\b(?:(?:licen[cs]e|number|registration|vehicle|car)[ ]plates?|plates?|(?:vehicle"
    r"|car)[ ]registration"
    r"|registration[ ](?:number|no)|reg|vrm)\b\.?(?:[ ](?:number"
    r"|no)\b\.?)?[\"']?[\x80-\x82]{0,2}[ ]{0,2}[:=#]?[ ]{0,2}"
    rf"(?:(?:is|was)[ ])?[\"']?)({_PLATE_VALUE})"
)
_HANDLE = r"(?:^|[^\w/.@`<])(@[A-Za-z\x80-\x82][\w.\x80-\x82-]{1,38}[\w\x80-\x82])"
_NETWORKS = (
    "telegram|twitter|instagram|insta|mastodon|discord|tiktok|snapchat|wechat|weibo|slack|bluesky|threads"
    "|skype"
    "|kakaotalk|line id|whatsapp|linkedin|facebook"
)
_NETWORK_BEFORE = re.compile(
    rf"(?i)(?<![@\w])(?:follow(?:ing|ed)?|ping(?:ed)?|cc|dm|message|tell|told|ask(?:ed)?|thanks?|handle"
    rf"|nick(?:name)?|username"
    rf"|profile|github user|reach|contact|assigned to|(?:reviewed|reported|approved|requested|posted"
    rf"|written) by"
    rf"|{_NETWORKS})\b[^\n@]{{0,20}}$"
)
_NETWORK_AFTER = re.compile(rf"(?i)[^\n]{{0,6}}\b(?:on (?:{_NETWORKS}|x)|{_NETWORKS})\b")
_PARTS = re.compile(r"[._\d-]+")
_LABELLED_HANDLE = (
    rf"(?i:\b(?:handle|nick(?:name)?|screen[ ]?name|{_NETWORKS})(?:[ ](?:id|handle|account|name"
    rf"|user(?:name)?))?"
    r"(?:[ ]is[ ]|[ ]?[:=][ ]|[ ]?[:=](?:[\"']|@))[\"']?@?)([A-Za-z]\w*(?:[.:#_]\w+)+|[A-Za-z]+\d+)\b"
    r"|(?i:\bhandle(?:[ ]is[ ]|:[ ]?)@?)([A-Za-z][\w.-]{2,30}\w)\b|(?i:\b(?:reddit|github|gitlab|x)[ ]user[ ]"
    r"|(?:^|[ (])u/)"
    r"([A-Za-z][\w-]{2,20})\b"
)
# Accounts of a domain, a directory, a realm.
_DOMAIN_USER = (
    r"(?:^|[^\w\\/:.%@-])([A-Z][A-Z0-9-]{2,14}\\{1,2}[A-Za-z][A-Za-z0-9._-]{2,30})(?:[^\w\\(]|\z)"
    r"|(?i:\b(?:user(?:name)?|account|login|log(?:ged|ging)?[ ](?:in|on)|whoami|runas|run(?:s|ning)?[ ]as"
    r"|identity|principal|owner|member|for|as|by)"
    r"\b[^\n\\]{0,12}[ :='\"(\[])([A-Za-z][A-Za-z0-9-]{2,14}\\{1,2}[A-Za-z][A-Za-z0-9._-]{1,30})"
    r"(?:[^\w\\(]|\z)"
    r"|(\[[A-Z][A-Z0-9-]{2,14}\]\\{1,2}\[[A-Za-z][A-Za-z0-9._-]{1,30}\])"
    r"|(?:^|[^\w\\/:.%@-])([a-z][a-z0-9._-]{2,30}@[A-Z][A-Z0-9-]{2,30}(?:\.[A-Z][A-Z0-9-]{1,30}){0,4})\b"
    r"|(?i:\b(?:account[ ]name|account[ ]domain|logon[ ](?:account|name)|user[ ]?principal[ ]?name"
    r"|sam[ ]?account[ ]?name)"
    r"[\"']?[ \t]{0,3}[:=][ \t]{0,10}[\"']?)([A-Za-z][A-Za-z0-9._-]{1,30})"
)
_FILE = re.compile(
    r"(?i)\.(?:txt|md|py|js|ts|exe|dll|log|ini|bat|cmd|ps1|xml|json|ya?ml|csv|cfg|conf|h|c|cpp|cs|java|sys)$"
)
_IN_PATH = re.compile(r"(?:\b[A-Z]:|%\w+%|\$env:\w+)\\[^\"\n]*$")
_SYSTEM_DOMAINS = word_set(
    "hklm hkcu hkcr hku hkcc hkey authority builtin service workgroup software system hardware security "
    "sam todo note error warning info debug regex latex text windows microsoft program users domain "
    "localhost docs src test tests data usr var bin etc temp tmp"
)
_ENTRY = (
    r"(?i:\b(?:cn|(?:member)?uid|displayname|givenname|sn|owner|manager|samaccountname|mailnickname"
    r"|userprincipalname)[ ]?[=:][ ]?)((?:[^,;/+=()\"<>\n\\]|\\,){2,64})"
)
_IN_DIRECTORY = re.compile(
    rb"(?i)\b(?:ou|dc|cn)\s?=\s?[\w ]|[,/]\s?(?:o|c|st|uid|emailaddress)=|\bdn\b|ldap|distinguished"
    rb"|\([a-z]+=|memberuid"
)
_FULL_NAME = re.compile(rf"{FULL}|{LAST_FIRST}")
_LOGIN_NAME = re.compile(r"[a-z][a-z0-9_-]+(?:\.[a-z][a-z0-9_-]*)?")
_NOT_LOGINS = word_set(
    "admin administrator administrators users user groups group people config monitor manager root schema "
    "services service roles computers computer builtin system readonly replicator directory accounts "
    "localhost server servers subschema anonymous guests everyone staff sales default test proxy agent "
    "app apps application sudo wheel nobody www-data postgres mysql oracle syncrepl"
)
_NOT_ENTRIES = word_set(
    "ca authority root encrypt g1 g2 g3 r3 x1 x3 e1 tls ssl ev ov dv validation sha2 ecc rsa signing "
    "domain admins users"
)
# The number of a person's record, after its label.
_RECORD = (
    r"(?i:\b(?:patient|medical|health|chart|hospital|mrn|member(?:ship)?|subscriber|policy(?:holder)?"
    r"|insured|insurance|claim|case|docket|employee|personnel|staff|payroll|worker|customer|client|account"
    r"|acct|student|matriculation|enrol+ment|badge|driver'?s?[ ]licen[cs]e|driving|licen[cs]e|registration"
    r"|vehicle|tax(?:payer)?|pension|social[ ](?:security|insurance)|voter|citizen|resident(?:ial)?"
    r"|beneficiary|donor|loyalty|frequent[ ]flyer|library|prescription|rx|nhi|nhs|medicare|medicaid|visa"
    r"|permit|id[ ]card|identity|national|immigration|inmate|file|dossier|admission|encounter|specimen"
    r"|passenger|cpf|curp|nif|dni|nie|pesel|bsn|aadhaar|kunden|personal|versicherungs|steuer|matrikel"
    r"|vertrags|mitglieds|ausweis)"
    r"(?:[ _-]?(?:record|card|file|plan|policy|contract|account|licen[cs]e|security|insurance|case|holder"
    r"|member))?"
    r"[ _-]?(?:numbers?|num|no|nr|nummer|id|ids|identifier|ref(?:erence)?|code|file|record|card"
    r"|#)?(?:[ ](?:number|no|id|nr))?\b"
    r"[\"'*]{0,2}[.]?[ \t]{0,3}[:=#]{0,2}[ \t]{0,3}(?:(?:is|was|were|of)[ \t.:#]{1,3})?[\"'#(\[]{0,3})"
    r"([A-Za-z]{0,4}[ -]?\d[0-9A-Z./-]*(?:[ ](?:\d{2,10}|[A-Z]\b))*)(?:[^\w-]|\z)"
    r"|(?i:\b(?:aktenzeichen|mrn|ehr|emr)\b[ .:#]{0,4})([A-Z]{0,4}[ /-]?\d[0-9A-Z./-]{2,24}[0-9A-Z])\b"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d+\.\d+(?:\.\d+)*")
_ADDRESS = re.compile(r"[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}|\d{1,3}(?:\.\d{1,3}){3}")
_FEWEST_RECORD_DIGITS = 5
"""Fewest digits of such a number after a noun alone."""
_NUMBER_LABEL = re.compile(
    r"(?i)(?:number|num|no|nr|nummer|id|identifier|ref|reference|code|#|mrn)\W*(?:is|was)?\W*$"
)
# Nouns that need no `number` after them: `claim 2210394`, but not `file 2210394`.
_RECORD_NOUN = re.compile(
    r"(?i)(?:mrn|policy|claim|member(?:ship)?|patient|subscriber|insured|insurance|badge|account|acct"
    r"|employee|personnel|customer|student|licen[cs]e|docket|pension|permit|prescription"
    r"|loyalty(?:[ ]card)?|donor|inmate|medicare|medicaid|nhs|nhi|aktenzeichen|nummer|cpf|curp|nif|dni|nie"
    r"|pesel|bsn|aadhaar)\W*(?:(?:is|was|of)\W*)?$"
)
# An account in a URL or a request.
_ID = (
    r"(?:\d{5,}|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-f]{24}|[0-9a-f]{32}"
    r"|[a-z]{2,8}_[A-Za-z0-9]{8,}|[A-Z]{1,4}-?\d{5,})"
)
_ACCOUNT_IN_URL = (
    r"(?i:/(?:accounts?|acct|customers?|users?|tenants?|members?|memberships?|patients?|clients?|contacts?"
    r"|subscribers?|subscriptions?|orgs?|organi[sz]ations?|profiles?|people|persons?|employees?|students?"
    r"|wallets?|payees?|policies|claims|cases|guests|passengers|leads|teams?|workspaces?|companies|u|uid"
    r"|view|tickets/requester)/(?:(?:view|show|edit|by-id|id|detail|details)/)?)"
    rf"({_ID})(?:[/?#\s\"'<>,.;)]|\z)"
    r"|(?i:[?&;](?:account|acct|customer|cust|user|tenant|member|patient|client|subscription|subscriber|org"
    r"|organization|profile|employee|contact|owner|payer|uid|mid|cid)(?:[_-]?(?:id|no|number|ref))?=)"
    rf"({_ID})(?:[&#\s\"'<>,.;)]|\z)"
    r"|//(\d{12})\.(?:signin|dkr)\.|\.amazonaws\.com/(\d{12})/"
    rf"|(?i:login\.microsoftonline\.com|login\.windows\.net|sts\.windows\.net)/({_ID})"
)
# The caller in the log of a proxy or server: any address there is a person's.
_IP = r"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}:[0-9a-fA-F:]{2,38})(?::\d{1,5})?"
_CLIENT_ADDRESS = (
    r"(?i:(?:\b|_)(?:x[_-](?:original[_-])?forwarded[_-]for|x[_-]real[_-]ip|x[_-](?:cluster[_-])?client[_-]ip"
    r"|true-client-ip|cf-connecting-ip|fastly-client-ip|x-remote-(?:ip|addr)|remote[ _-]?addr(?:ess)?"
    r"|(?:client|user|visitor|caller|source|src|login|last|remote|peer)[ _-]?ip|client[ _-]?addr(?:ess)?"
    r"|ip[ _-]?address|forwarded|rhost)\b[\"']?[ \t]{0,3}(?:[:=]|is|was|of)?[ \t]{0,3}[\"'\[]{0,3}"
    r"(?:for=)?[\"'\[]{0,3})"
    rf"({_IP}(?:[\]\"]{{0,2}},[ ]?(?:for=)?[\"\[]{{0,2}}{_IP})*)"
    rf"|(?:^|[\s\"'(])({_IP})[ ][^\s\[]+[ ][^\s\[]+[ ]\[\d{{1,2}}/[A-Z][a-z]{{2}}/\d{{4}}:"
)
_CLIENT_HOST = (
    r"(?i:\b(?:remote[_-]?host|rhost|client[_-]?host(?:name)?)[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?)"
    r"([a-z0-9-]+(?:\.[a-z0-9-]+)+)"
)
_SIMPLE = (
    (_IDENTITY, Kind.IDENTITY),
    (_PHONE, Kind.PHONE),
    (_BIRTHDAY, Kind.BIRTHDAY),
    (_STREET, Kind.STREET),
    (_LIVES, Kind.STREET),
    (_ACCOUNT_IN_URL, Kind.ACCOUNT_ID),
    (_CLIENT_HOST, Kind.HOST),
)
_ANY = (
    _EMAIL, _SPELLED_EMAIL, _CARD, _LABELLED_CARD, _IBAN, _DOMAIN_USER, _ENTRY, _RECORD, _CLIENT_ADDRESS,
    _LABELLED_POSITION, _DEGREES, _POSITION, _PLATE, _HANDLE, _LABELLED_HANDLE, _EAST_ASIAN_ADDRESS,
    *(pattern for pattern, _ in _SIMPLE),
)  # fmt: skip
_SHORTEST_CARD, _LONGEST_CARD = 12, 19
_PHONE_DIGITS = range(7, 16)
_IBAN_LENGTHS = range(15, 35)
_NEAR = 60
