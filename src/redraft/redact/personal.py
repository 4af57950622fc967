"""Personal data: names, addresses, logins and numbers that belong to a person."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, spans
from redraft.redact.kinds import Finding, Kind
from redraft.redact.values import is_placeholder, word_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.canonical import View


def find_personal(view: View) -> Iterator[Finding]:
    """Yield names, addresses and logins of people, and the numbers of their phones, cards and records."""
    yield from _names(view)
    if not has_any(_ANY, view.data):
        return
    yield from _numbered(view)
    yield from _logins(view)
    text = view.text
    for start, end in spans(_EMAIL, view.data):
        if not _NOBODY.search(text[start:end]) and text[end : end + 1] != "(":
            yield Finding(start, end, Kind.EMAIL)
    for start, end in spans(_CALLER, view.data):
        for match in _ADDRESS.finditer(text, start, end):
            if _is_callers(match.group()):
                yield Finding(*match.span(), Kind.ADDRESS)
    for pattern, kind in _SIMPLE:
        for start, end in spans(pattern, view.data):
            value = text[start:end]
            if not is_placeholder(value) and (kind is not Kind.PHONE or _is_phone(value)):
                yield Finding(start, end, kind)
    for start, end in spans(_ON_FILE, view.data):
        if _is_on_file(text[start:end], text[max(0, start - _NEAR) : start]):
            yield Finding(start, end, Kind.RECORD)


def _names(view: View) -> Iterator[Finding]:
    data, text = view.data, view.text
    if has_any(_NAMED, data):
        for pattern in (_NAME, _TITLED):
            for start, end in spans(pattern, data):
                name = text[start:end]
                if not is_placeholder(name) and _NO_NAMES.isdisjoint(name.lower().split()):
                    yield Finding(start, end, Kind.NAME)
        for pattern in (_GREETED, _SIGNED):
            for start, end in spans(pattern, data):
                yield from _name(text, start, end, surely=True)
    if not has_any((_ANYWHERE, _LISTED, _BY_GIVEN_NAME), data):
        return
    for pattern, surely in (
        (_IN_FIELD_OF_PERSON, True),
        (_MENTIONED, True),
        (_IN_FIELD, False),
        (_ANYWHERE, False),
    ):
        for start, end in spans(pattern, data):
            yield from _name(text, start, end, surely=surely, full=True)
    for start, end in spans(_WITHIN, data):
        if not _BEFORE_THING.search(text[max(0, start - _LONGEST_LABEL) : start]):
            yield from _name(text, start, end, surely=True, full=True)
    for start, end in spans(_BY_GIVEN_NAME, data):
        if _plain(text[start:end]) in GIVEN_NAMES:
            yield Finding(start, end, Kind.NAME)


def _name(text: str, start: int, end: int, *, surely: bool, full: bool = False) -> Iterator[Finding]:
    """Yield the person's name in capitalised words, if there is one: `Yesterday Ada Lovelace`."""
    before = ""
    for word in text[start:end].split(" ")[:-1]:
        plain = word.strip(",.").lower()
        if not is_thing(plain):
            break
        start += len(word) + 1
        before = plain
    name = text[start:end]
    # A letter behind a single word is not a surname: `Appendix A`.
    is_full = sum(len(word.strip(".")) > 1 for word in name.split(" ")) > 1
    # Behind an ordinary word, a given name is enough: `Greet Anna`, but not `San Antonio`.
    known = _plain(name) if before and before not in _BEFORE_PLACE else ""
    is_known = known in GIVEN_NAMES and known not in THINGS
    if (is_full or is_known or not full) and names_person(name, surely=surely or is_known):
        yield Finding(start, end, Kind.NAME)


def _logins(view: View) -> Iterator[Finding]:
    text = view.text
    for start, end in spans(_DOMAIN_USER, view.data):
        domain, _, user = (
            text[start:end].replace("]\\[", "\\").strip("[]").replace("\\\\", "\\").rpartition("\\")
        )
        is_generic = domain.lower() in _SYSTEM_DOMAINS or user.lower() in _NOT_LOGINS or is_placeholder(user)
        if not is_generic and not _FILE.search(user) and not is_placeholder(domain or "x1"):
            yield Finding(start, end, Kind.USER)
    if not _IN_DIRECTORY.search(view.data):
        return
    for start, end in spans(_ENTRY, view.data):
        value = text[start:end].strip()
        if text[end : end + 1] == "(" and "." not in value and " " not in value:  # `uid = getuid()`
            continue
        # A sentence may go on behind it.
        if named := _FULL_NAME.match(value):
            value = named.group()
        elif text[:start].lower().endswith(("uid=", "accountname=", "nickname=")):
            value = value.split(" ")[0]
        words = value.lower().split()
        is_known = any(
            word.strip(",.") in _NOT_LOGINS or word in _NO_ENTRY for word in words
        ) or is_placeholder(value)
        is_named = " " in value and names_person(value.replace("\\,", ""), surely=True)
        if not is_known and (is_named or _LOGIN_NAME.fullmatch(value) is not None):
            first = start + len(text[start:end]) - len(text[start:end].lstrip())
            yield Finding(first, first + len(value), Kind.NAME if is_named else Kind.USER)


def _is_on_file(value: str, before: str) -> bool:
    if _DATE.fullmatch(value):
        return False
    digits = sum(char.isdigit() for char in value)
    if _NUMBERS_SAID.search(before):
        return digits >= _FEWEST_ON_FILE - 1
    return digits >= _FEWEST_ON_FILE and _ALWAYS_ON_FILE.search(before) is not None


def _is_callers(value: str) -> bool:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _numbered(view: View) -> Iterator[Finding]:
    """Yield card and account numbers whose check digits are right."""
    for start, end in spans(_CARD, view.data):
        if is_card(view.text[start:end]):
            yield Finding(start, end, Kind.CARD)
    for start, end in spans(_SAID_CARD, view.data):
        if is_card(view.text[start:end], shortest=_SHORTEST_CARD):
            yield Finding(start, end, Kind.CARD)
    for span in spans(_IBAN, view.data):
        if found := _iban(view.text, *span):
            yield found


def is_card(text: str, *, shortest: int = 13) -> bool:
    """Return whether digits are a payment card's number, by the check digit (Luhn, ISO/IEC 7812)."""
    digits = [int(char) for char in text if char.isdigit()]
    if not shortest <= len(digits) <= _LONGEST_CARD or len(set(digits)) == 1:
        return False
    doubled = [sum(divmod(digit * 2, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Return whether a text is an IBAN, by its check digits (ISO 13616)."""
    code = text.replace(" ", "")
    if len(code) not in _IBAN_LENGTHS:
        return False
    return int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1


def _iban(text: str, start: int, end: int) -> Finding | None:
    """Return the longest IBAN in a span: a word in capitals may follow it."""
    for last in range(end, start + _IBAN_LENGTHS.start - 1, -1):
        if is_iban(text[start:last]):
            return Finding(start, last, Kind.ACCOUNT)
    return None


def _is_phone(text: str) -> bool:
    return sum(char.isdigit() for char in text) in _PHONE_DIGITS


def names_person(name: str, *, surely: bool) -> bool:
    """Return whether capitalised words are a person's name.

    With `surely`, where the context speaks of a person, any words will do that name no thing. Otherwise one
    has to be a given name or have the ending of a surname.
    """
    words = [word for word in _NAME_WORD.findall(_plain(name)) if len(word) > 1]
    known = [word for word in words if word in GIVEN_NAMES]
    rest = [word for word in words if word not in known]
    things = [word for word in rest if is_thing(word)]
    if not words or (things and not known):
        return False
    if known:  # "Maria Field" is a person where the context speaks of one, otherwise a field
        return surely or len(words) > len(things) + len(known) or (not things and len(known) > 1)
    if any(_OF_THINGS.search(word) for word in words):
        return False
    return surely or (len(words) > 1 and SURNAME.search(words[-1]) is not None)


def is_thing(word: str) -> bool:
    """Return whether a word in lower case is in `THINGS`, or an inflected form of one that is."""
    if word in THINGS:
        return True
    if word in GIVEN_NAMES:  # `Frances` is not a plural of `France`
        return False
    for ending, stems in _INFLECTIONS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _SHORTEST_STEM and any(stem + last in THINGS for last in stems):
            return True
    return False


def _plain(name: str) -> str:
    """Return a name in lower case without accents."""
    if name.isascii():
        return name.lower()
    letters = unicodedata.normalize("NFKD", name.lower().translate(_WHOLE))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


# --- the patterns, in Latin-1 and the syntax of RE2 ---

_EMAIL = r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,24}\b"
_NOBODY = re.compile(
    r"(?i)^(?:no-?reply|git|user|you|me|name|email|someone|john\.doe|jane\.doe|foo|bar|test|a|b|x"
    r"|your[._-]?\w*)@example|^git@"
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
)
_CARD = (
    r"\b(?:(?:[3-6]\d{3}|2[2-7]\d{2})(?:[ -]?\d{4}){2}[ -]?\d{1,7}"  # in groups of four
    r"|3\d{3}[ -]?\d{6}[ -]?\d{4,5})\b"
)
_SAID_CARD = (
    r"(?i:\b(?:(?:credit|debit|bank|gift|payment)?[ ]?card|cc|visa|mastercard|maestro|amex|jcb)\b"
    r"[^\n\d]{0,40})"
    r"(\d(?:[ -]?\d){11,18})\b"
)
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
_CAPITAL, _SMALL = (
    r"[A-Z\xc0-\xde]",
    r"[a-z\xdf-\xff\xbf]",
)  # \xbf stands for a letter outside of Latin-1, and is not a capital
_W = (
    rf"(?:(?:[OD]'|Mc|Mac|al-|El-)?(?:{_CAPITAL}{_SMALL}+|\xbf[a-z\xdf-\xff]{_SMALL}+)"
    rf"(?:['-]{_CAPITAL}?{_SMALL}+)?)"
)
_NEXT = (
    r"(?:[ ](?:(?:van|von|vom|de|der|den|del|della|di|da|dos|du|la|le|el|al|bin|ibn|ter|ten|zu)[ ])*"
    rf"(?:{_W}|[A-Z]\.|[A-Z]\b))"
)
_FULL = rf"{_W}{_NEXT}+"
_ONE = rf"{_W}{_NEXT}*"
_LAST_FIRST = rf"{_W}(?:[ ]{_W})?\\?,[ ]?{_W}(?:[ ]{_W})?"
_NAME = (
    r"(?i:\b(?:(?:first|last|full|middle|sur|given|family|maiden|fore|legal|birth|customer|patient|client"
    r"|employee|passenger|card ?holder|account ?holder|contact)[ _-]?name|surname)\b"
    r"[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?)"
    rf"({_CAPITAL}[\w\x80-\xff'.-]{{1,30}}(?:[ ]{_CAPITAL}[\w\x80-\xff'.-]{{0,30}}){{0,3}})"
)
_TITLES = (
    r"Mr|Mrs|Ms|Miss|Mx|Dr|Prof|Professor|Sir|Dame|Rev|Capt|Sgt|Lt|Judge|Herrn?|Frau|Fru|Hr|Mme|Mlle"
    r"|Monsieur|Madame"
    r"|Se\xf1or(?:a|ita)?|Sra?|Signora?|Sig|Dott|Don|Do\xf1a|Senhora?|Pan|Pani|Mevrouw|Meneer"
)
_TITLED = (
    rf"\b(?:{_TITLES})\b\.?[ ](?:(?:Dr|Prof|med)\.?[ ])*({_ONE})"
    r"|(?i:\b(?:my|his|her|their|whose|customer's|user's|patient's|guest's|caller's)[ ]"
    rf"(?:(?:full|first|last|sur|given)[ ]?)?name[ ](?:is|was)[ ])({_ONE})"
    rf"|(?i:\bname\?[ ]+)({_ONE})"
)
_GREETING = (
    r"(?i:hi|hiya|hello|hey|dear|dearest|greetings|good[ ](?:morning|afternoon|evening|day)"
    r"|welcome(?:[ ]back)?|hallo|moin|servus"
    r"|guten[ ](?:tag|morgen|abend)|liebe[rs]?|sehr[ ]geehrte[rs]?|bonjour|bonsoir|salut|ch\xe8re?|cher"
    r"|hola|buenos[ ]d\xedas"
    r"|buenas[ ]tardes|estimad[oa]|querid[oa]|ciao|buongiorno|gentile|caro|cara|ol\xe1|hej|hei|ahoj"
    r"|cze\xbf\xbf|merhaba)"
)
_GREETED = (
    rf"(?:^|[^\w\x80-\xff-]){_GREETING},?[ ](?:(?:{_TITLES})\.?[ ])?({_ONE})[ ]?"
    r"(?:[,!.:;?\n\"'<*]|[ ]?(?:-|--)[ ]|and\b|&|\z)"
)
_SIGN_OFF = (
    r"(?i:(?:(?:best|kind|kindest|warm|warmest|many)[ ])?(?:regards|wishes|greetings)"
    r"|(?:many[ ])?thanks(?:[ ]again|[ ]a[ ]lot|[ ]so[ ]much)?"
    r"|thank[ ]you|cheers|sincerely|yours(?:[ ](?:truly|sincerely|faithfully))?|sincerely[ ]yours"
    r"|respectfully|cordially|all[ ]the[ ]best"
    r"|take[ ]care|best|love|talk[ ]soon|(?:mit[ ])?(?:freundlichen|besten|herzlichen"
    r"|lieben)[ ]gr\xfc(?:\xdf|ss)en"
    r"|(?:viele|liebe|beste)[ ]gr\xfc(?:\xdf|ss)e|lg|vg|mfg|cordialement|bien[ ]\xe0[ ]vous|amicalement"
    r"|saludos(?:[ ]cordiales)?|un[ ]saludo"
    r"|atentamente|atenciosamente|abra\xe7os|cordiali[ ]saluti|distinti[ ]saluti"
    r"|met[ ]vriendelijke[ ]groet(?:en)?|groetjes"
    r"|(?:med[ ])?v(?:\xe4nlig|ennlig|enlig)[ ]h(?:\xe4lsning|ilsen)(?:ar)?|mvh|pozdrawiam)"
)
_SIGNED = (
    rf"(?:^|[\n.!?>\"'*][ ]?){_SIGN_OFF}(?:[,.!]{{1,3}}[ ]?|[ ]?\r?\n)(?:[ ]|\r?\n|--|-[ ])*({_ONE})[ ]?"
    r"(?:[,.(|\r\n\"'<*]|\z)"
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
    r"|invoice|payment|refund|order|text|record|file|chart|account|profile|contract|statement|ticket|case"
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
_MENTIONED = (
    rf"\b{_DONE}[ ](?:(?:again|back|over|in|out|up|down|off)[ ])?{_BY}[ ](?:(?:the|my|our|his|her|a"
    rf"|an)[ ])?({_FULL})"
    rf"|\b{_TALK}[:,]?[ ](?:(?:the|my|our|his|her|a|an)[ ])?({_FULL})"
    rf"|\b{_ROLE},?[ ]({_FULL})\b"
    rf"|({_FULL}),?[ ](?:{_SAYS})\b"
    r"|(?i:\b(?:ich hei\xdfe|mein name ist|je m'appelle|me llamo|mi nombre es|mi chiamo|call me|named?"
    rf"|this is|i am|i'm)[ ])({_FULL})"
)
# The same with a single word, which has to be a given name.
_BY_GIVEN_NAME = (
    rf"\b{_DONE}[ ](?:(?:again|back|over|in|out|up|down|off)[ ])?{_BY}[ ]({_W})\b"
    rf"|\b{_TALK}[:,]?[ ]({_W})\b|\b{_ROLE},?[ ]({_W})\b|\b({_W}),?[ ](?:{_SAYS})\b"
    r"|(?i:\b(?:said|says|asked|told|called|named|kid|user|name|with|from|by|and|for)[ ])"
    rf"({_W})(?:[.,;:!?)\n\"]|\z)"
    rf"|\b({_W})'s[ ](?i:address|account|order|phone|e?mail|password|profile|name|card|file|record|ticket"
    r"|case|invoice|claim|request|calendar|laptop|desk|team|manager|birthday|salary|report|message|reply|number)"
)
# Things have such fields as well: a given name or the ending of a surname shows that a person is meant.
_VALUE = rf"[\"'*]{{0,3}}[ \t]{{0,3}}[:=][\"'* \t]{{0,4}}(?:(?:{_TITLES})\.?[ ])?({_FULL}|{_LAST_FIRST})"
_IN_FIELD = (
    r"(?i:\b(?:[\w.-]*name|contact|customer|client|owner|user|account|member|by|from|to|subject|title"
    r"|manager|maintainer"
    r"|agent|partner|team[ ]?lead|responsible)\b)" + _VALUE
)
_IN_FIELD_OF_PERSON = (
    r"(?i:\b(?:patient|employee|passenger|guest|tenant|student|applicant|candidate|subscriber"
    r"|card[ _-]?holder|travell?er|caller|sender|recipient|assignee|assigned[ _-]?to|reporter"
    r"|reported[ _-]?by|requester|requestor|requested[ _-]?by|approver|approved[ _-]?by|submitted[ _-]?by"
    r"|created[ _-]?by|updated[ _-]?by|changed[ _-]?by|signed[ _-]?(?:off[ _-]?)?by|co-authored-by"
    r"|authored[ _-]?by|reviewed[ _-]?by|acked-by|tested-by|reviewer|author|committer|beneficiary|payee"
    r"|payer|insured|claimant|witness|supervisor|physician|doctor|nurse|attendees?|participants?"
    r"|contact[ _-]?person|next[ _-]?of[ _-]?kin|emergency[ _-]?contact|spouse|cc|bcc|attn|attention"
    r"|consignee|consignor|ship[ _-]?to|bill[ _-]?to|sold[ _-]?to|deliver[ _-]?to|signatory|interviewer"
    r"|interviewee|resident|donor|heir|guardian|mother|father|child|holder|handled[ _-]?by|sales[ _-]?rep"
    r"|salesperson|cashier|driver|accountant"
    r"|ansprechpartner|sachbearbeiter|empf\xe4nger|absender|destinataire|nombre|nom)\b)" + _VALUE
)
# Capitalised words behind such a field that are not names.
_NO_NAMES = word_set(
    "access account agent api approval care center centre class code control data desk error experience "
    "feedback group guide hello id identity interface journey key library list manager management manual "
    "member model name number page policy portal profile record records relations report request retry "
    "review role service services session settings side state status story success support table team "
    "test tests type view"
)
_ANYWHERE = rf"\b({_FULL})"
# Within a sentence, capitalised words that name no known thing are usually somebody's name.
_WITHIN = rf"[a-z,;:][ ]({_W}(?:[ ]{_W}){{1,2}})(?:[^\w ]|[ ][^A-Z]|\z)"
# Not behind a word that seldom precedes a name, or behind the label of a thing: `font: Comic Sans`.
_BEFORE_THING = re.compile(
    r"(?i)(?:\b(?:the|an?|this|that|these|those|each|every|any|no|its|in|into|within|per|using)"
    r"|\b(?:tone|voice|mood|style|theme|genre|format|layout|font|colou?r|icon|shape|animation|title|heading"
    r"|headline|header|footer|section|chapter|figure|banner|badge|slogan|motto|tagline|labels?|tags?|topic"
    r"|category|type|kind|mode|status|state|phase|stage|level|priority|severity|risk|grade|scale|sentiment"
    r"|verdict|criteri(?:on|a)|rubric|rule|policy|principle|convention|conventional|standard|pattern|method"
    r"|technique|algorithm|strategy|approach|metric|columns?|fields?|tab|folder|menu|button|shortcut|product"
    r"|project|codename|feature|milestone|epic|sprint|release|campaign|service|tool|library|framework"
    r"|language|protocol|licen[cs]e|template|workflow|pipeline|job|check|error|warning|plan|tier|edition"
    r"|event|course|exam|book|song|movie|film|poem|game|brand|recipe|dish|animal|plant|room|building|holiday"
    r"|season|weather|sport)[\"'*]{0,3}:)[\"'*]{0,3} [\"'*]{0,3}$"
)
_LONGEST_LABEL = 24
_LISTED = rf"\b{_LAST_FIRST}"
_STREET = (
    r"\b\d{1,5}[A-Za-z]?[ ](?:[A-Z][\w'.-]{1,20}[ ]){1,4}"
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Square|Sq|Place|Pl"
    r"|Terrace|Highway|Hwy|Parkway|Pkwy)\b\.?"
    r"|\b[A-Z][a-z\xdf-\xff]{2,20}(?:stra(?:\xdf|ss)e|weg|platz|gasse|allee)[ ]\d{1,4}[a-z]?\b"
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
_FULL_NAME = re.compile(rf"{_FULL}|{_LAST_FIRST}")
_LOGIN_NAME = re.compile(r"[a-z][a-z0-9_-]+(?:\.[a-z][a-z0-9_-]*)?")
_NOT_LOGINS = word_set(
    "admin administrator administrators users user groups group people config monitor manager root schema "
    "services service roles computers computer builtin system readonly replicator directory accounts "
    "localhost server servers subschema anonymous guests everyone staff sales default test proxy agent "
    "app apps application sudo wheel nobody www-data postgres mysql oracle syncrepl"
)
_NO_ENTRY = word_set(
    "ca authority root encrypt g1 g2 g3 r3 x1 x3 e1 tls ssl ev ov dv validation sha2 ecc rsa signing "
    "domain admins users"
)
# The number of a person's record, behind the word that says so.
_ON_FILE = (
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
_FEWEST_ON_FILE = 5
"""Digits of such a number where only the noun says what it is."""
_NUMBERS_SAID = re.compile(
    r"(?i)(?:number|num|no|nr|nummer|id|identifier|ref|reference|code|#|mrn)\W*(?:is|was)?\W*$"
)
# Nouns that need no `number` behind them: `claim 2210394`, but not `file 2210394`.
_ALWAYS_ON_FILE = re.compile(
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
_CALLER = (
    r"(?i:(?:\b|_)(?:x[_-](?:original[_-])?forwarded[_-]for|x[_-]real[_-]ip|x[_-](?:cluster[_-])?client[_-]ip"
    r"|true-client-ip|cf-connecting-ip|fastly-client-ip|x-remote-(?:ip|addr)|remote[ _-]?addr(?:ess)?"
    r"|(?:client|user|visitor|caller|source|src|login|last|remote|peer)[ _-]?ip|client[ _-]?addr(?:ess)?"
    r"|ip[ _-]?address|forwarded|rhost)\b[\"']?[ \t]{0,3}(?:[:=]|is|was|of)?[ \t]{0,3}[\"'\[]{0,3}"
    r"(?:for=)?[\"'\[]{0,3})"
    rf"({_IP}(?:[\]\"]{{0,2}},[ ]?(?:for=)?[\"\[]{{0,2}}{_IP})*)"
    rf"|(?:^|[\s\"'(])({_IP})[ ][^\s\[]+[ ][^\s\[]+[ ]\[\d{{1,2}}/[A-Z][a-z]{{2}}/\d{{4}}:"
)
_HOST_OF_CALLER = (
    r"(?i:\b(?:remote[_-]?host|rhost|client[_-]?host(?:name)?)[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?)"
    r"([a-z0-9-]+(?:\.[a-z0-9-]+)+)"
)
_SIMPLE = (
    (_IDENTITY, Kind.IDENTITY),
    (_PHONE, Kind.PHONE),
    (_BIRTHDAY, Kind.BIRTHDAY),
    (_STREET, Kind.STREET),
    (_ACCOUNT_IN_URL, Kind.ACCOUNT_ID),
    (_HOST_OF_CALLER, Kind.HOST),
)
_NAMED = (_NAME, _TITLED, _GREETED, _SIGNED)
_ANY = (
    _EMAIL, _CARD, _SAID_CARD, _IBAN, _DOMAIN_USER, _ENTRY, _ON_FILE, _CALLER,
    *(pattern for pattern, _ in _SIMPLE),
)  # fmt: skip
_SHORTEST_CARD, _LONGEST_CARD = 12, 19
_PHONE_DIGITS = range(7, 16)
_IBAN_LENGTHS = range(15, 35)
_NEAR = 60

# --- given names, endings of surnames, and words of things ---

# Letters that are not another letter with an accent.
_WHOLE = str.maketrans(
    {"\xf8": "o", "\u0142": "l", "\xdf": "ss", "\xe6": "ae", "\u0111": "d", "\u0131": "i", "\xf0": "d"}
)
_NAME_WORD = re.compile(r"[^\W\d_]+")

GIVEN_NAMES = word_set(Path(__file__).with_name("given_names.txt").read_text("utf-8"))
"""Without those that are also places, months, products or things: Paris, April, Jackson, Max, Ruby."""

THINGS = word_set(Path(__file__).with_name("things.txt").read_text("utf-8"))
"""Words that are often capitalised but don't name people: for things, roles, places, products, qualities."""

_BEFORE_PLACE = word_set("san santa santo saint st lake mount port fort cape apache amazon")
"""Words before the given name in the name of a place or product."""

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
    r"(?:ez|ski|sky|ska|cki|czyk|wicz|vich|vic|vi\u0107|i\u0107|ov|ova|ev|eva|enko|chuk|escu|oglu|nen"
    r"|dottir|sson|sen|mann|berg|stein|bauer|meyer|maier|schmidt|schneider|quist|strom|lund|gaard|dahl|etti"
    r"|elli|ini|eira|inho|kar|wala|pour|zadeh|yan|shvili|dze|opoulos|idis|akis|kov|ngh|mba|nkwo|gbe|ola|iyi"
    r"|sma|stra|llano|ucci|ello|ssen|veld|huis|worth|bury|shaw|ley|croft)$"
)
_OF_THINGS = re.compile(
    r"(?:tion|sion|ment|ness|ware|ity|ics|ance|ence|ables?|ible|ology|ship|ture|ized|ised|ful|less|ism|ally"
    r"|ings?|ions|ors|ers|[st]ive|ical|ional|ious|ously|ated|if(?:y|ie[ds]))$"
)
