"""Personal data: names, addresses, logins and numbers that belong to a person."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
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
)  # \xbf stands for a letter outside of Latin-1, and is no capital
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
    r"|reassigned|transferred"
    r"|escalated|forwarded|sent|raised|opened|filed|closed|handled|prescribed|ordered|booked|paid|posted"
    r"|edited|updated|changed"
    r"|committed|merged|interviewed|notified|contacted|emailed|called|visited|owned|made|issued|delivered"
    r"|given|handed|shared|led|taken"
    r"|conducted|performed|recorded|logged|completed|verified|confirmed|rejected|denied|declined|cancelled"
    r"|canceled|uploaded|deleted"
    r"|drafted|prepared|translated|treated|examined|hired|employed|witnessed|represented|referred"
    r"|addressed|shipped|registered|invited"
    r"|rented|sold|leased|belong(?:s|ed|ing)?|payable|attributed|credited|refunded|entrusted|supervised"
    r"|managed|tested|said|triaged)"
)
_BY = r"(?i:by|to|from|with|for|on[ ]behalf[ ]of|as|against|through|via)"
_TALK = (
    r"(?i:(?:spoke|speak|speaking|spoken|talk(?:ed|ing)?|met|meet(?:ing)?|chat(?:ted|ting)?|interview"
    r"|call(?:ed)?|conversation|discussion"
    r"|appointment|consultation|lunch|dinner|session|correspondence|worked|working|shared)[ ](?:with|to|from)"
    r"|according[ ]to|on[ ]behalf[ ]of|as[ ]told[ ]by|care[ ]of|c/o"
    r"|(?:note|letter|message|mail|e-?mail|call|reply|answer|complaint|request|review|feedback|voicemail"
    r"|invoice|payment|refund|order|text"
    r"|record|file|chart|account|profile|contract|statement|ticket|case|report|application)s?[ ](?:from"
    r"|for|of|by|to|about)"
    r"|tell|ask|told|asked|contact|notify|email|mail|call|ping|remind|thank|thanks to|cc|bcc|attn|re|fao)"
)
_ROLE = (
    r"(?i:patient|customer|passenger|employee|colleague|guest|tenant|student|teacher|nurse|doctor"
    r"|applicant|candidate|subscriber"
    r"|cardholder|travell?er|user|client|member|manager|engineer|developer|agent|technician|driver|buyer"
    r"|seller|witness|suspect|victim"
    r"|claimant|plaintiff|defendant|lawyer|attorney|boss|supervisor|assistant|secretary|director|ceo|cto"
    r"|cfo|founder|president|wife|husband"
    r"|son|daughter|mother|father|brother|sister|friend|partner|neighbou?r|child|uncle|aunt|cousin"
    r"|boyfriend|girlfriend|landlord|owner"
    r"|author|reviewer|reporter|recipient|sender|caller|contact|admin|person|man|woman|resident|donor"
    r"|volunteer|intern|accountant"
    r"|physician|surgeon|dr)"
)
_SAYS = (
    r"reported|reports|said|says|wrote|writes|called|complained|requested|replied|confirmed|claimed|claims"
    r"|told|mentioned|emailed"
    r"|signed|approved|rejected|denied|wants|asks|asked|cannot[ ]log|can't|couldn't|lives|moved|resigned"
    r"|was[ ]born|died|owes|bought"
    r"|visited|complains|phoned|insisted|apologi[sz]ed|thanked|explained|suggested|noticed|noted|forgot"
    r"|is[ ](?:unhappy|angry|waiting|asking)"
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
    r"|card[ _-]?holder|travell?er|caller|sender"
    r"|recipient|assignee|assigned[ _-]?to|reporter|reported[ _-]?by|requester|requestor|requested[ _-]?by"
    r"|approver|approved[ _-]?by"
    r"|submitted[ _-]?by|created[ _-]?by|updated[ _-]?by|changed[ _-]?by|signed[ _-]?(?:off[ _-]?)?by"
    r"|co-authored-by|authored[ _-]?by"
    r"|reviewed[ _-]?by|acked-by|tested-by|reviewer|author|committer|beneficiary|payee|payer|insured"
    r"|claimant|witness|supervisor"
    r"|physician|doctor|nurse|attendees?|participants?|contact[ _-]?person|next[ _-]?of[ _-]?kin"
    r"|emergency[ _-]?contact|spouse"
    r"|cc|bcc|attn|attention|consignee|consignor|ship[ _-]?to|bill[ _-]?to|sold[ _-]?to|deliver[ _-]?to"
    r"|signatory|interviewer|interviewee"
    r"|resident|donor|heir|guardian|mother|father|child|holder|handled[ _-]?by|sales[ _-]?rep|salesperson"
    r"|cashier|driver|accountant"
    r"|ansprechpartner|sachbearbeiter|empf\xe4nger|absender|destinataire|nombre|nom)\b)" + _VALUE
)
# Capitalised words behind such a field that are nobody's name.
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
    "sam todo note error warning info debug "
    "regex latex text windows microsoft program users domain localhost docs src test tests data usr var "
    "bin etc temp tmp"
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
    "services service roles "
    "computers computer builtin system readonly replicator directory accounts localhost server servers "
    "subschema anonymous guests "
    "everyone staff sales default test proxy agent app apps application sudo wheel nobody www-data "
    "postgres mysql oracle syncrepl"
)
_NO_ENTRY = word_set(
    "ca authority root encrypt g1 g2 g3 r3 x1 x3 e1 tls ssl ev ov dv validation sha2 ecc rsa signing "
    "domain admins users"
)
# The number of a person's record, behind the word that says so.
_ON_FILE = (
    r"(?i:\b(?:patient|medical|health|chart|hospital|mrn|member(?:ship)?|subscriber|policy(?:holder)?"
    r"|insured|insurance|claim|case|docket|employee"
    r"|personnel|staff|payroll|worker|customer|client|account|acct|student|matriculation|enrol+ment|badge"
    r"|driver'?s?[ ]licen[cs]e|driving|licen[cs]e|registration"
    r"|vehicle|tax(?:payer)?|pension|social[ ](?:security|insurance)|voter|citizen|resident(?:ial)?"
    r"|beneficiary|donor|loyalty|frequent[ ]flyer|library"
    r"|prescription|rx|nhi|nhs|medicare|medicaid|visa|permit|id[ ]card|identity|national|immigration"
    r"|inmate|file|dossier|admission|encounter|specimen"
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
    r"|employee|personnel"
    r"|customer|student|licen[cs]e|docket|pension|permit|prescription|loyalty(?:[ ]card)?|donor|inmate"
    r"|medicare|medicaid"
    r"|nhs|nhi|aktenzeichen|nummer|cpf|curp|nif|dni|nie|pesel|bsn|aadhaar)\W*(?:(?:is|was|of)\W*)?$"
)
# An account in a URL or a request.
_ID = (
    r"(?:\d{5,}|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-f]{24}|[0-9a-f]{32}"
    r"|[a-z]{2,8}_[A-Za-z0-9]{8,}|[A-Z]{1,4}-?\d{5,})"
)
_ACCOUNT_IN_URL = (
    r"(?i:/(?:accounts?|acct|customers?|users?|tenants?|members?|memberships?|patients?|clients?|contacts?"
    r"|subscribers?|subscriptions?|orgs?"
    r"|organi[sz]ations?|profiles?|people|persons?|employees?|students?|wallets?|payees?|policies|claims"
    r"|cases|guests|passengers|leads"
    r"|teams?|workspaces?|companies|u|uid|view|tickets/requester)/(?:(?:view|show|edit|by-id|id|detail"
    r"|details)/)?)"
    rf"({_ID})(?:[/?#\s\"'<>,.;)]|\z)"
    r"|(?i:[?&;](?:account|acct|customer|cust|user|tenant|member|patient|client|subscription|subscriber"
    r"|org|organization|profile|employee|contact"
    r"|owner|payer|uid|mid|cid)(?:[_-]?(?:id|no|number|ref))?=)"
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
        (_WITHIN, True),
    ):
        for start, end in spans(pattern, data):
            yield from _name(text, start, end, surely=surely, full=True)
    for start, end in spans(_BY_GIVEN_NAME, data):
        if is_given_name(text[start:end]):
            yield Finding(start, end, Kind.NAME)


def _name(text: str, start: int, end: int, *, surely: bool, full: bool = False) -> Iterator[Finding]:
    """Yield the person's name in capitalised words, if there is one: `Yesterday Ada Lovelace`."""
    words = text[start:end].split(" ")
    for word in words[:-1]:
        if word.strip(",.").lower() not in THINGS:
            break
        start += len(word) + 1
    words = text[start:end].split(" ")
    # A letter behind a single word is no surname: `Appendix A`.
    if (not full or sum(len(word.strip(".")) > 1 for word in words) > 1) and names_person(
        text[start:end], surely=surely
    ):
        yield Finding(start, end, Kind.NAME)


def _logins(view: View) -> Iterator[Finding]:
    text = view.text
    for start, end in spans(_DOMAIN_USER, view.data):
        domain, _, user = (
            text[start:end].replace("]\\[", "\\").strip("[]").replace("\\\\", "\\").rpartition("\\")
        )
        is_nobodys = domain.lower() in _SYSTEM_DOMAINS or user.lower() in _NOT_LOGINS or is_placeholder(user)
        if not is_nobodys and not _FILE.search(user) and not is_placeholder(domain or "x1"):
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


# --- given names, endings of surnames, and words of things ---

# Letters that are not another letter with an accent.
_WHOLE = str.maketrans(
    {"\xf8": "o", "\u0142": "l", "\xdf": "ss", "\xe6": "ae", "\u0111": "d", "\u0131": "i", "\xf0": "d"}
)
_NAME_WORD = re.compile(r"[^\W\d_]+")

# Without names that are also places, months, products or things (Paris, April, Jackson, Max, Mark, Ruby,
# Ray).
GIVEN_NAMES = word_set(
    "aaron abdul abdullah abigail abimbola abraham achieng ada adaeze adam adanna adaora adebayo adele "
    "adeola adewale aditi aditya adrian adriana agata agnes agnieszka agus agustin ahmad ahmed ahmet "
    "aidan aigerim aiko aileen ainhoa aino aisha aisling ajay akash akiko akinyi akira akua alain alan "
    "alasdair albert alberto alejandra alejandro aleksandar aleksander aleksandra aleksi alena alessandra "
    "alessandro alessia alexander alexandra alexandre alexandros alexei alexey alexis alfonso alfred "
    "alfredo aliaa alice alicia alina alison alistair allison alondra alvaro alvin amaia amaka amalia "
    "amanda amara amaury ambra ameera amelia amelie amina amir amirah amit amrita amy ana anahit anais "
    "anand ananya anastasia andre andrea andreas andreea andrej andres andrew andrey andrii andrzej "
    "angela angelica angelina angelo angus anil anisa anish anita anja anjali ankit ann anna annalisa "
    "anne anneke annelies annemarie annett annette annika ansgar anthony antoine antoinette anton "
    "antonella antonia antonin antonina antonio anupam anya apinya araceli archana ariane arianna arif "
    "arjun armen arnaud arne arno arnold arnulf arthur arturo arvid aryan asha ashish ashley ashok asif "
    "aslaug asma astor astrid athanasios attila audrey aurelie axel ayaan ayako ayesha aylin ayodele ayse "
    "babajide babatunde bahar balazs barbara barbora bartosz basma beata beate beatrice beatriz bela "
    "belen benedetta benedikt bengt benito benjamin benoit berit bernadette bernard bernardo bernd "
    "bernhard bert bertha bertrand beth bettina betty beverly bhavna bianca bilal birgit birgitte birte "
    "bjarne bjorn blazej bob boban bogdan bogumil bolat boris borja branislav branko brenda brendan brett "
    "brian bridget brigitte britta bronwyn bruce bruno bryan bryce budi bukola burak caleb callum calvin "
    "camila camille candice carina carl carla carlos carlotta carmela carmen carol carolina caroline "
    "carsten cassandra catalina catarina caterina catherine cecilia cedric celia celine cemal cesar "
    "chantal chantelle charles charlie charlotte chiamaka chiara chidera chidi chidinma chika chinedu "
    "chinonso chinwe chioma chloe chris christa christel christelle christiane christina christine "
    "christoph christopher christos chukwuemeka cian ciara claire clara clarissa claudette claudia "
    "claudine claudio clemens clement clifford clive colette colin colleen concetta conchita connor "
    "constance constantin cora cordula corinna corinne cornelia cosmin cristian cristiano cristina "
    "cristobal curtis cynthia dagmar dagny daisuke dalia damian damien damir danica daniel daniela "
    "daniele danielle danilo daphne dario dariusz darko darren david davide davit dawid deanna deborah "
    "debra declan deepak delphine demetrius denisa denise denisse dennis derek dewi dhruv diana diane "
    "diederik diego dieter dilip dilnoza dimitar dimitri dimitris dinesh dirk djamila dmitri dmitry "
    "dmytro domenico dominic dominik dominique donald donna doreen doris dorota dorothea dorothy douglas "
    "dragan drazen duncan durga dusan dwayne dylan eddie edgar edith edmund edna edoardo eduard eduardo "
    "edurne edward edwin eero efua egon eike eileen einar eino eirik ekaterina ekow elaine eleanor elena "
    "eleni eleonora elias elif elin elina elisa elisabeth elise eliza elizabeth elke ella ellen elliot "
    "elmar elodie eloise elvira emanuel emeka emeric emil emilia emiliano emilie emilio emily emine emma "
    "emmanuel emmanuelle emre enrico enrique enzo erhan eric erik erika erin erkki ernest ernesto ernst "
    "ervin erwin eskil esme esperanza esteban estelle esther ethan etienne eugene eunice eva evangelos "
    "evelina evelyn ewa ewan eyal ezekiel fabian fabien fabio fabiola fabrice fabrizio faisal farah "
    "fareed farhan farida fatema fatima fatou fatoumata fausto federica federico fedor felicia feliks "
    "felipe felix femi ferenc fernand fernanda fernando filip filippo finn fiona fiorella fitri florent "
    "florian folake folasade frances francesca francesco francisca francisco francois franka franz "
    "frederic frederick frederik frederique fredrik frida frieda friedrich fritz fumiko funmilayo gabriel "
    "gabriela gael gaetano galina ganesh garance gareth gary gaspard gaurav gavin geert gemma genevieve "
    "geoffrey george georgina georgios gerald geraldine gerard gerardo gerda gerhard germaine gerrit "
    "gesine ghislaine gianluca gianna gillian gina giorgi giorgia giorgio giorgos giovanna giovanni "
    "gisela gitte giulia giuseppe gladys glenn gloria godfrey gonzalo goran gordon gosia gottfried graham "
    "grazia grazyna greg gregor gregory greta gretchen grzegorz guadalupe gudrun guenter guglielmo guido "
    "guillaume guillermo gulnara gunilla gunnar gunter gunther gustavo gwen gwendolyn gyorgy habib hadiza "
    "haile hakan hakim haleema halima halina hamid hamza hana hanna hannah hanne hannelore hannes hanno "
    "hans hao harald harold harriet harry hartmut haruka haruki hasan hassan hatice hayk heather hector "
    "hedwig hege heidi heike heiko heiner heinrich heinz helen helena helga helge helmut henri henrietta "
    "henriette henrik henry henryk herbert heribert herman hermann hermine hideo hilary hilda hildegard "
    "hiromi hiroshi hisham holger horst hortense howard hubert humberto huong husayn hussein hyun ian "
    "ibrahim ibrahima idris ifeoma ignacio ignatius igor ikechukwu ilaria ildiko ilona ilse ilya imelda "
    "imogen imran indah ines inga inge ingeborg ingmar ingrid inigo inmaculada ioana ioannis ionut iqbal "
    "irene irina irma irmgard isaac isabel isabella isabelle isadora isha ishaan isidora ismael ismail "
    "itziar ivan ivana ivar iveta ivo iwona izabela jacek jacinta jacob jacqueline jacques jadwiga jagoda "
    "jaime jakob jakov jakub jamal james jamila jan jana jane janek janet janice janina janine janne "
    "janusz jarek jarmila jaroslav jaroslaw jasmin jasmina jasmine jason javier javiera jayden jayne jean "
    "jeanette jeanne jeannette jeff jeffrey jelena jennifer jens jeremiah jeremy jerome jerzy jesper "
    "jessica jia jianhong jihan jill jiri jitka joachim joakim joan joanna joao joaquin jochen joe joel "
    "joerg johan johann johanna johannes john johnny jolanta jonas jonathan jonathon jonna joost jordi "
    "jorg jorge jorgen joris jose josef josefa josefina joseph josephine joshua josip josue jovana joyce "
    "juan juanita judith judy julia julian juliana juliane julie julien julieta juliette julija julio "
    "juliusz juma junaid jurgen justin justina justyna jutta jyoti kaarina kacper kadir kaitlin kaitlyn "
    "kaja kajsa kamal kamala kamau kamil kamila kaori karan kareem karen karim karin karina karl "
    "karlheinz karolin karolina karsten kasper katalin katarina katarzyna kate katerina kateryna "
    "katharina katherine kathleen kathrin kathryn kathy katia katie katinka katja katrin katrina kavita "
    "kayla kayode kazimierz kazuki kazuo kehinde keiko keisha keith kelechi kelly kendra kenji kenneth "
    "kenta kerstin ketil kevin khadija khaled khalid khalil khanh kiara kieran kiran kirsten kirsti kjell "
    "kjersti klara klaudia klaus klavdija knud knut kofi koji kojo konrad konstantin konstantinos "
    "konstanze korbinian kristen kristian kristiina kristin kristina kristof kristoffer krystyna "
    "krzysztof kseniya kumar kunal kurt kwabena kwaku kwame kwasi kwesi kyle kyoko lachlan ladislav "
    "laetitia laila lakshmi lamine lara larissa larry lars lasse laszlo latoya laura laure laureen lauren "
    "laurence laurent laurie laurits lavinia layla lea leah leandro leanne leif leila lekan lena lennart "
    "lennox leona leonard leonardo leonhard leonie leonor leopold lerato leroy leszek leticia letizia "
    "levent liam lidia liisa lilian liliana lilith lilly lilou lina linda linh linnea linus lionel lisa "
    "lisbeth liselotte ljiljana ljubica loic lorena lorenzo lorna lorraine lothar louis louisa louise "
    "lourdes lubomir lubos luca lucas lucia luciana luciano lucie lucien lucio lucy ludger ludmila "
    "ludovic ludwig luigi luis luisa luiz lukas lukasz lupita lutz lydia lydie lyudmila maarten mabel "
    "maciej maddalena maddison madeleine madeline madhuri mads mael magali magda magdalena magdalene "
    "magnus mahesh mahmoud maite maja maksim malcolm malene malgorzata malika malin mallory malte manfred "
    "manfredo manish manja manoj manon mansoor manuel manuela marc marcel marcela marceline marcella "
    "marcelo marcia marcin marco marcos marcus marek maren margaret margarida margarita margaux marge "
    "margherita margit margot margrethe marguerite maria mariam mariana marianne mariano maribel maricel "
    "marie marieke mariela marielle marija marijke marika mariko marilyn marina mario marion marisa "
    "marisol marjan marjorie marketa markku markus marlene marlies marlon marta marte martha martin "
    "martina martine mary maryam maryanne masako massimo mateja mateo mateusz mathias mathieu mathilda "
    "mathilde mathis matias matilda matilde matteo matthew matthias matti mattia mattias matyas maud "
    "maureen maurice mauricio maurizio maxime maximilian mayra mbali megan mehdi mehmet melanie melinda "
    "melissa melvin merete meriem merve micaela michael michaela michaele michail michal michel "
    "michelangelo michele michelle mick mieczyslaw miguel miguelangel mika mikael mikhail mikkel miklos "
    "mila milagros milana mildred milena milica miloslav minh miranda mireille miriam mirjam mirko "
    "miroslav mitchell mitko mitsuko miyuki modesta mohamed mohammad mohammed mohan moira monica monika "
    "monique montserrat morgane moritz morten moshe moussa muhammad murali murat muriel mustafa mwangi "
    "myriam myrtle nabil nadezhda nadia nadine nahid naima nancy nandini naoki naoko naomi naoya narendra "
    "nasser natacha natalia natalie natalya natasha nathalie nathan nathaniel nattapong naveed navin "
    "nazli neema neha nele nenad nestor neville ngozi nguyen nicanor niccolo nicholas nicola nicolai "
    "nicolas nicole nicoletta nicolette nieves nigel nikhil nikita nikki niklas nikola nikolai nikolaos "
    "nikolay nils nilufer nina nisha nitin njeri nkechi nnamdi nneka noah noelia noemi noemie nokuthula "
    "nomvula noor nora norbert noriko norma nuno nuria nursultan nurul nwando obinna octavia ofelia oisin "
    "olaf olajide olayinka oleg oleksandr oleksii oleksiy olena olga olimpia oliver olivia olivier "
    "olumide oluwafemi oluwaseun oluwaseyi oluwatobi omar omari ondrej onur orla osama oscar oskar oswald "
    "otieno ottilie otto owen oyinkan pablo paige paloma pamela paolo paresh parisa pascal pascale "
    "patrice patricia patricio patrick patrik patrizia patrycja paul paula paulina pauline paulo pavel "
    "pavla pavol pawel pedro peggy pekka penelope pernille perrine peta petar peter petr petra petri "
    "petros petru phil philip philipp philippa philippe phuong phyllis pia pierre pieter pietro pilar "
    "piotr piroska polina prakash pranav prasad preethi preeti prem priscilla priya priyanka przemyslaw "
    "putri quentin quynh rabia rachael rachel radek radka radoslav radoslaw radovan radu rafael rafaela "
    "rafal ragnar ragnhild rahul raimund rainer raisa rajan rajesh rajiv rakesh ralf ramesh ramon ramona "
    "rana randi randolph rania ranjit raphael raphaelle raquel rasheed rashid rashida rasmus ratna raul "
    "ravi raymond razvan rebecca reem regina rehana reiko reinhard reinhold remi rena renata renate "
    "renato rene renee reto reza rhiannon rhona rhonda rhys ricarda ricardo riccardo richard riikka "
    "rikard riku rina rita ritu riya rizky roald robbert robbie robert roberta roberto robin robyn rocio "
    "roderick rodolfo rodrigo rogelio roger rohan rohit roisin roland rolf romain roman romana romane "
    "romeo romina romy ronald ronan ronja rory rosa rosalia rosalie rosalind rosalyn rosamund rosanna "
    "rosario roselyn rosemarie rosemary rosita roswitha roxana roxanne roza ruben rudiger rudolf rudy "
    "rufus rui rukmini rupert russell ruta rutger ruth ryan saanvi sabina sabine sabrina sachiko sadia "
    "sadiq saeed safiya sagar saida sakura saleh salim salima salma salman salvador salvatore samantha "
    "samir samira samu samuel sandeep sander sandhya sandra sandrine sandro sangeeta sanjana sanjay "
    "sanjeev sanna santiago santino saoirse sara sarah sarita sascha satoshi satu sayed sayuri sean "
    "sebastian sebastien seda sefa segun selin selina selma semra serena serge sergei sergey sergio "
    "sergiu serhii serhiy severine shabnam shahid shaila shakira shamima shane shania shankar shantel "
    "shanti shari sharon sheena sheikh sheila shelley sherry shigeru shinji shira shirin shirley shobha "
    "shreya shubham shweta siamak sidsel siegfried sieglinde sigmund signe sigrid sigrun silje silke "
    "silvana silvia silvio simon simona simone sina sinead siobhan sipho sissel siti sixten siyabonga "
    "sizwe slavica slavko slawomir snezana sofia sofie sofija solange soledad solveig somchai sonia sonja "
    "sophia sophie soraya soren stacey stacy stanislav stanislaw stanka stavros stefan stefania stefanie "
    "stefano steffen stelios stellan stephan stephanie stephen steve steven stian stig stine stuart "
    "subhash sudha suleiman suleyman sumit sunil sunita suraj suresh susan susana susann susanna susanne "
    "susi suzana suzanne suzette svein sven svenja svetlana swati sylvain sylvester sylvia sylvie sylwia "
    "szabolcs szymon tabea tabitha tadashi tadeusz taha tahir taina taisto taiwo takashi takeshi takumi "
    "tamar tamara tamas tamika tamuna tania tanja tanvi tanya tarek tariq tasneem tatiana tatjana tatsuya "
    "tatyana teemu temitope tendai teodor teodora teresa tereza terezia terrence tetiana tetyana thabo "
    "thandiwe thea thelma theo theodor theodora theodore theres theresa therese theresia thibault thierry "
    "thilo thomas thorben thore thorsten thuy tiago tiffany tigran tihana tilda tillmann tim timea timo "
    "timofey timothy timur tina tino tobi tobiah tobias tolulope tomas tomasz tomislav tomoko tomoya "
    "tonje tonya tord torgeir toril torill torstein torsten toshiko tove tracy trevor trine tristan trond "
    "trude trudy truls tuan tunde tuomas tuomo tyler tyrone tzvi uchenna ulf ulises ulla ulrich ulrika "
    "ulrike umar umberto umesh ursula urszula uschi usha uwe uzoma vaclav valentin valentina valentino "
    "valentyna valeria valerie valerio valeriy vanessa vasil vasile vasiliki vasilis vasily vedran vegard "
    "veit velma venkat vera verena veronica veronika veronique vesna vibeke vicente vicki vickie victoria "
    "vidar vijay vikram viktor viktoria viktorija vilde vilma vincent vincenza vincenzo violetta virginie "
    "viridiana vishal vitaly vito vittoria vittorio vivek vivian viviana vivienne vlad vladimir vladislav "
    "vlastimil volker volodymyr vsevolod wahyu waleed walid walter waltraud wambui wanda wangari wanjiru "
    "wendy werner weronika wesley wiebke wieslaw wiktor wiktoria wilfried wilhelm wilhelmina willem "
    "william willy wilma winfried winifred winnie wojciech wolfgang xavier xenia xiaoming ximena xuan "
    "yannick yannis yara yasemin yash yasin yasmin yasmina yasuko yemi yesenia yevgeny yewande yiannis "
    "yohan yohannes yoko yolanda yolande yonas yosef yosuke youssef youssouf yuki yuko yulia yuliya yumi "
    "yuri yuriko yusuf yvan yvette yvonne zachary zahir zahra zainab zandile zawadi zaynab zbigniew "
    "zdenek zdravko zeinab zelda zeljko zeynep zhanna ziad zinedine zita zlatan zoe zofia zoltan zoran "
    "zsofia zsuzsanna zubair zuzana zuzanna "
)

THINGS = word_set(
    "a accept access account acme action active activity actor add address admin administration "
    "administrator adobe adult advanced advisory affairs afraid africa afternoon again agency agent "
    "agents agreement ai air airbnb airbus airlines alarm alert alerts algorithm all alle allerseits "
    "alliance allow alpha also always amazon america amsterdam an analysis analyst analytics and android "
    "ansible any anyone apache api app apple application applications apply approval approver apps april "
    "apt arab arch architect architecture archive are area argentina artificial as asana asia assembly "
    "asset assistant association async at atlanta attached audit august australia austria authentication "
    "author authority auto autodesk automated automatic automation autonomous autumn aws azure back "
    "backend backup badge balance balancer bank barcelona base baseline bash basic batch bay bayes "
    "bayesian be beach beauty been beijing belgium bell benutzer berlin best beta big bill billing binary "
    "bishop bitbucket black blank block bloom blue board bob body boeing book boot bosch boston bot both "
    "box branch brave brazil bridge bring broken broker brothers browser brussels budapest budget bug "
    "bugs build builder building bureau business but button buyer by cache calculation calendar call "
    "caller can canada cancel canonical canva capital card care carlo cart case category cause cautionary "
    "cell center central centre certificate chain challenge change channel chapter chart chat check "
    "checker chicago chief child chile china choice choose christmas chrome church circuit cisco city "
    "civil claim class classic clean clear click client cliente clientes clients clinic clinical clojure "
    "close cloud club cluster cobol code colleague colleagues collection college column comment comments "
    "commerce commercial commission committee common community company compiler compliance component "
    "compose computer concern conclusion condition config configuration confirm confluence connection "
    "console constant consulting contact container content context continue continuous contract control "
    "controller copenhagen copy core corp corporate corporation cost could council count counter country "
    "county court covenant create creator credit critical cron cross curve custom customer customers cut "
    "cycle daemon daily dallas damen dashboard data database dataset date day db dead deadline dear "
    "debian debug december decision decline decoder deep default defense delete delivery demo denmark "
    "denver deny department deploy deployment depot descent description design designer desk desktop "
    "detail details detection detector dev developer developers development device devops diagram dialog "
    "did diego digital direct direction director directory disable disaster disk distributed distribution "
    "division dns do docker docs doctor document documentation documents does dolly domain door double "
    "download dr draft drag drive driver drivers drop dublin due duty dynamic each early east easter "
    "eastern easy edge edit edition editor education effective egypt elastic electric element elements "
    "elixir else email embedded emergency emirates employee empty enable encoder end endpoint energy "
    "engine engineer engineering engineers england english enterprise enterprises entity entry "
    "environment equipe equipment equipo ericsson erlang error errors escalation estate estimate "
    "estimator europe european even evening event events ever every everybody everyone example examples "
    "excel exception exchange executive exit expected experience expert explorer export express extension "
    "external facebook facility factor factory failed failure family fast fatal feature features february "
    "federal feedback fellow field figma figure file files filter final finance financial find finder "
    "finland firefox firewall firm first fix fixed flag flash fleet flink floor flow folder folks food "
    "foods for force ford foreign forest form format formula fortran forum forward foundation fourier "
    "frame framework france francisco frankfurt frau free french friday friend friends from front "
    "frontend full fund fusion future gadget gadgets gain game gap garbage gast gate gateway gaussian "
    "general generator german germany get git github gitlab glad glass global globex gmbh go going gold "
    "golden good google government gradient grafana grand graph gray great greatest green grid ground "
    "group groups growth guard guest guide guidelines guild guilty guru guys had hadoop half hall hallo "
    "hamburg handler happy hard hardware has hash haskell have he head header health heap hearing heart "
    "hello help helper helsinki her here herr herren hi high highlights hill him hiring his historical "
    "history hive hold holdings holiday home homebrew honda hook horizon hospital host hosting hotel hour "
    "house houston how huawei hub hubspot human i identity if illustrator image impact import improvement "
    "in inc incident income index india indicator individual indonesia industrial industries industry "
    "info information infrastructure initech initial initiative input inquiry insert inside inspection "
    "inspector install instance institute institution insurance integration intel intelligence intellij "
    "interactive interest interface internal international internet invalid inventory investment invoice "
    "ios iran iraq ireland is israel issue issues istanbul it italy item items its january japan java "
    "javascript jenkins jira job jobs join joint journal journey json julia july june juniper jupyter "
    "just kafka kalman kernel key keyboard kids kind kindly king kingdom kitty knowledge known kollegen "
    "kolleginnen korea kotlin kubernetes kunde kunden kundin lab label labels laboratory labs lake lambda "
    "land language laplace large last late lateral latest latin launch law layer lead leader leaders "
    "learn learning least left legacy legal let leute level lib library licence license life light limit "
    "limited limits line linear link linked linkedin linux list listener little live llc load loan local "
    "location lock log logged logger logging logic login logistics london long loop los lovely low ltd "
    "lua lyft mac machine macos madam madame madrid mail main maintainer maintainers maintenance major "
    "make maker management manager managers managing manual manufacturing map mapper march mark marker "
    "market marketing markov mask master mastercard match material math matlab matrix matter maven max "
    "maximum may me media medical meeting melbourne member members memo memory menu merchant merge mesh "
    "message messages meta metadata method metric metrics mexico miami microsoft middle might migration "
    "milan military min mind minimum minister ministry minor mirror misc miss missing mission mme mobile "
    "mode model models modern module monday monde mondo mongo monitor monitoring monkey monsieur monster "
    "monte month montreal morning moscow mother motors mount mountain movie mozilla mr mrs ms multi mundo "
    "munich music must mutual my mysql name names national native natural neighbor neighbour netflix "
    "netherlands netscape network networks neural never new news newton next night no nobody node nodes "
    "nokia none nonlinear normal north northern norway not note notes notice notification notifications "
    "notion november now null number numpy nutzer object observer occurred ocean october of off offer "
    "office officer official often oil old on once only open openai openssl opera operating operation "
    "operational operations operator operators option options or oracle orchestra order orders org "
    "organisation organization original osaka oslo other our out output outside over overall overview "
    "owner pacific package packages page pages paid pair pakistan panel paper parent paris park parser "
    "part partial partner partners party pascal password paste patch path patient patients patrol pay "
    "payment payments paypal payroll peer people performance period perl permission permissions person "
    "personal pharma phase philippines phone photo photoshop php pipeline place plan planner planning "
    "plant plate platform play player please pleased plugin plus podman point pointer poisson poland "
    "policy pool pop popular port portal position post postgres power practice practices prague preferred "
    "premium present president press preview previous price pricing primary prime princess principal "
    "print printer priority privacy private pro problem procedure process processes processing processor "
    "procurement product production products prof professional professor profile program programme "
    "programs progress project projects prolog prometheus promotion prompt property proposal protection "
    "protocol provider proxy public publisher publishing pull pulsar puppet purchase purchasing purpose "
    "push py pycharm python pytorch qa quality quantity quarter quarterly query question questions queue "
    "quick quit rabbit race radio rail railway random range ranger rate raw react read reader readers "
    "reading ready real reason receipt received receiver recent recommendation record records recovery "
    "recruiter recruiting recruitment red redis redo reference refund refunds region regional register "
    "registrar registration registry regression regular regulation regulatory reject relation relations "
    "release releases reliability remote remove rename renewal rent rental repair replica reply report "
    "reporter reporting reports repository request requester requests requirement requirements research "
    "reserved reset resolution resource resources response responsible rest result results retail "
    "retention retry return returns reunion revenue review reviewer reviews revision right rights risk "
    "road robot role roles rome room root route router row royal ruby rule rules run runner runtime "
    "russia rust safari safety sale sales salesforce same sample samsung san sandbox santa sap saturday "
    "save saved scala scale scan scanner schedule scheduler schema school science scientific scientist "
    "scope score scotland screen script search season seattle second secret secretary secretly section "
    "sector secure security segment select self seller semantic send sender senior senor senora september "
    "sequence series server servers service services session set setting settings setup seven several "
    "shall shanghai share shared she sheet shell shift ship shipment shipping shop shopify shopping short "
    "should show side siemens sign signal signed signor signora silent silver simple singapore single sir "
    "sirs site sites size skill sky slack small smart snake snapshot snow so social softmax software soil "
    "solar solution solutions some somebody someone sons sony sorry sort sorted source south southern "
    "space spain spam spark spec special specialist specification speed split sport sports spot spotify "
    "spreadsheet spring sprint sql square stable stack staff stage staging standard standup star start "
    "starter startup state statement states static station statistics status step still stock stockholm "
    "stop storage store strategic strategy stream street strict string stripe strong structure student "
    "students studio studios style sub subject submission submit subscribe subscriber subscription "
    "success suite sum summer sunday super supervisor supplier supply support sure surface survey swarm "
    "sweden swift switzerland sydney symbol sync syntax system systems table tag take tales talk target "
    "task tasks tax teacher team teams tech technical technician technology template temple tenant tensor "
    "term terminal terms tesla test tester testing tests text thailand thank thanks that the their them "
    "then theory there these they thing third this those thread three thursday ticket tier time timeout "
    "title to today todos token tokyo tomorrow tool tools top topic toronto total tous toutes tower "
    "toyota trace track tracker trade trading traffic train training transaction transfer transformer "
    "transition translation transport travel traveler traveller tree trello trial trigger true trust tube "
    "tuesday turing turkey tutti twice twilio twitter two type types uber ubuntu ui ultra unable "
    "undefined under undo union unit united units universal university unix unknown unsubscribe "
    "unsupported up update updates upgrade upload urgent us usage use user username users usuario "
    "utilisateur utility vacation valid valley value valued values vancouver vector vehicle vendor "
    "ventures verification version vertical very video vienna vietnam view village virtual visa vision "
    "visitor visual vm voice void volume wait wales wallet warehouse warning warsaw was washington watch "
    "water we weather web webhook website wednesday week weekly welcome welt were west western what when "
    "where which while white who whole whom why widget widgets wiki wikipedia will window windows winter "
    "wireless with without wizard word work worker workers workflow workflows working workplace works "
    "workshop workspace world would write writer wrong xbox xiaomi yaml year yellow yesterday york you "
    "your zealand zendesk zero zone zones zookeeper zoom zurich zusammen "
)
"""Words for things, roles, places and products that are often capitalised but are no person's name."""

# Endings that surnames have and other words rarely do.
SURNAME = re.compile(
    r"(?:ez|ski|sky|ska|cki|czyk|wicz|vich|vic|vi\u0107|i\u0107|ov|ova|ev|eva|enko|chuk|escu|oglu|nen"
    r"|dottir|sson"
    r"|sen|mann|berg|stein|bauer|meyer|maier|schmidt|schneider|quist|strom|lund|gaard|dahl|etti|elli|ini|eira"
    r"|inho|kar|wala|pour|zadeh|yan|shvili|dze|opoulos|idis|akis|kov|ngh|mba|nkwo|gbe|ola|iyi|sma|stra"
    r"|llano|ucci|ello|ssen|veld|huis|worth|bury|shaw|ley|croft)$"
)
_OF_THINGS = re.compile(
    r"(?:tion|sion|ment|ness|ware|ity|ics|ance|ence|ables?|ible|ology|ship|ture|ized|ised|ful|less|ism|ally"
    r"|ings?|ions|ors|ers|tive|ical|ious)$"
)


def names_person(name: str, *, surely: bool) -> bool:
    """Return whether capitalised words are a person's name.

    With `surely`, where the context speaks of a person, any words will do that name no thing. Otherwise one
    has to be a given name or have the ending of a surname.
    """
    words = [word for word in _NAME_WORD.findall(_plain(name)) if len(word) > 1]
    known = [word for word in words if word in GIVEN_NAMES]
    rest = [word for word in words if word not in known]
    things = [word for word in rest if word in THINGS or word.removesuffix("s") in THINGS]
    if not words or (things and not known):
        return False
    if known:  # "Maria Field" is a person where the context speaks of one, otherwise a field
        return surely or len(words) > len(things) + len(known) or (not things and len(known) > 1)
    if any(_OF_THINGS.search(word) for word in words):
        return False
    return surely or (len(words) > 1 and SURNAME.search(words[-1]) is not None)


def is_given_name(word: str) -> bool:
    """Return whether a word is a given name rather than an ordinary word."""
    return _plain(word) in GIVEN_NAMES


def _plain(name: str) -> str:
    """Return a name in lower case without accents."""
    if name.isascii():
        return name.lower()
    letters = unicodedata.normalize("NFKD", name.lower().translate(_WHOLE))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
