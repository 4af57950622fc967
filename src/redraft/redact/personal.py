"""Personal data: what belongs to a person and not into what others read."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, spans
from redraft.redact.given_names import THINGS, is_given_name, names_person
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
    # as numbers are written at home; a time of day looks similar, but for what stands before it
    r"|(?:^|[^\w.:/+-])(0\d{2,4}[ /-]\d{5,8}|\(0\d{1,4}\)[ ]?\d{3,4}[ -]?\d{3,5}"
    r"|0\d{1,3}[ .-]\d{2,4}(?:[ .-]\d{2,4})+)\b"
    r"|(?i:\b(?:phone|tel|telephone|mobile|cell|fax|whatsapp|call|text)(?:[ _-]?(?:number|no"
    r"|nr))?\b[\"']?[ \t]{0,3}[.:=]{0,2}[ \t]{0,3}"
    r"(?:(?:is|was|me|him|her|us|them|at|on|back)[ \t]{1,3}){0,3}[\"']?)(\(?\d[\d ()./-]{6,18}\d)\b"
)
_CARD = (
    r"\b(?:(?:[3-6]\d{3}|2[2-7]\d{2})(?:[ -]?\d{4}){2}[ -]?\d{1,7}"  # by fours
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
_CAPITAL, _SMALL = r"[A-Z\xc0-\xde]", r"[a-z\xdf-\xff\xbf]"  # what Latin-1 lacks is \xbf, and no capital
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
# The same of one word, which has to be a given name.
_BY_GIVEN_NAME = (
    rf"\b{_DONE}[ ](?:(?:again|back|over|in|out|up|down|off)[ ])?{_BY}[ ]({_W})\b"
    rf"|\b{_TALK}[:,]?[ ]({_W})\b|\b{_ROLE},?[ ]({_W})\b|\b({_W}),?[ ](?:{_SAYS})\b"
    r"|(?i:\b(?:said|says|asked|told|called|named|kid|user|name|with|from|by|and|for)[ ])"
    rf"({_W})(?:[.,;:!?)\n\"]|\z)"
    rf"|\b({_W})'s[ ](?i:address|account|order|phone|e?mail|password|profile|name|card|file|record|ticket"
    r"|case|invoice|claim|request|calendar|laptop|desk|team|manager|birthday|salary|report|message|reply|number)"
)
# Things have such fields, too: a given name, or an ending of surnames, tells that somebody is meant.
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
# What stands behind such a word with a capital, and is nobody's name.
_NO_NAMES = word_set(
    "access account agent api approval care center centre class code control data desk error experience "
    "feedback group guide hello id identity interface journey key library list manager management manual "
    "member model name number page policy portal profile record records relations report request retry "
    "review role service services session settings side state status story success support table team "
    "test tests type view"
)
_ANYWHERE = rf"\b({_FULL})"
# Within a sentence, words with capitals that are of nothing known are somebody's name more often than not.
_WITHIN = rf"[a-z,;:][ ]({_W}(?:[ ]{_W}){{1,2}})(?:[^\w ]|[ ][^A-Z]|\z)"
_LISTED = rf"\b{_LAST_FIRST}"
_STREET = (
    r"\b\d{1,5}[A-Za-z]?[ ](?:[A-Z][\w'.-]{1,20}[ ]){1,4}"
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Square|Sq|Place|Pl"
    r"|Terrace|Highway|Hwy|Parkway|Pkwy)\b\.?"
    r"|\b[A-Z][a-z\xdf-\xff]{2,20}(?:stra(?:\xdf|ss)e|weg|platz|gasse|allee)[ ]\d{1,4}[a-z]?\b"
)
# Who somebody is to a domain, a directory, a realm.
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
# A number under which somebody is on file, and what says so.
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
"""Digits of such a number, where nothing but the noun says what it is."""
_NUMBERS_SAID = re.compile(
    r"(?i)(?:number|num|no|nr|nummer|id|identifier|ref|reference|code|#|mrn)\W*(?:is|was)?\W*$"
)
# What has a number even where nothing says that it is one: `claim 2210394`, not `file 2210394`.
_ALWAYS_ON_FILE = re.compile(
    r"(?i)(?:mrn|policy|claim|member(?:ship)?|patient|subscriber|insured|insurance|badge|account|acct"
    r"|employee|personnel"
    r"|customer|student|licen[cs]e|docket|pension|permit|prescription|loyalty(?:[ ]card)?|donor|inmate"
    r"|medicare|medicaid"
    r"|nhs|nhi|aktenzeichen|nummer|cpf|curp|nif|dni|nie|pesel|bsn|aadhaar)\W*(?:(?:is|was|of)\W*)?$"
)
# An account in an address of the web, and in what is asked of a server.
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
# What proxies and servers say of who called: an address there is a person's, whichever it is.
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


def personal(view: View) -> Iterator[Found]:
    """Yield what belongs to a person: names, addresses, logins, numbers of phones, cards and records."""
    yield from _names(view)
    if not has_any(_ANY, view.data):
        return
    yield from _numbered(view)
    yield from _logins(view)
    text = view.text
    for start, end in spans(_EMAIL, view.data):
        if not _NOBODY.search(text[start:end]) and text[end : end + 1] != "(":
            yield Found(start, end, Kind.EMAIL)
    for start, end in spans(_CALLER, view.data):
        for match in _ADDRESS.finditer(text, start, end):
            if _is_callers(match.group()):
                yield Found(*match.span(), Kind.ADDRESS)
    for pattern, kind in _SIMPLE:
        for start, end in spans(pattern, view.data):
            value = text[start:end]
            if not is_placeholder(value) and (kind is not Kind.PHONE or _is_phone(value)):
                yield Found(start, end, kind)
    for start, end in spans(_ON_FILE, view.data):
        if _is_on_file(text[start:end], text[max(0, start - _NEAR) : start]):
            yield Found(start, end, Kind.RECORD)


def _names(view: View) -> Iterator[Found]:
    data, text = view.data, view.text
    if has_any(_NAMED, data):
        for pattern in (_NAME, _TITLED):
            for start, end in spans(pattern, data):
                name = text[start:end]
                if not is_placeholder(name) and _NO_NAMES.isdisjoint(name.lower().split()):
                    yield Found(start, end, Kind.NAME)
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
            yield Found(start, end, Kind.NAME)


def _name(text: str, start: int, end: int, *, surely: bool, full: bool = False) -> Iterator[Found]:
    """Yield the name in a stretch of words with capitals, if it is a person's: `Yesterday Ada Lovelace`."""
    words = text[start:end].split(" ")
    for word in words[:-1]:
        if word.strip(",.").lower() not in THINGS:
            break
        start += len(word) + 1
    words = text[start:end].split(" ")
    # Behind one word alone, a letter is no surname: `Appendix A`.
    if (not full or sum(len(word.strip(".")) > 1 for word in words) > 1) and names_person(
        text[start:end], surely=surely
    ):
        yield Found(start, end, Kind.NAME)


def _logins(view: View) -> Iterator[Found]:
    text = view.text
    for start, end in spans(_DOMAIN_USER, view.data):
        domain, _, user = (
            text[start:end].replace("]\\[", "\\").strip("[]").replace("\\\\", "\\").rpartition("\\")
        )
        is_nobodys = domain.lower() in _SYSTEM_DOMAINS or user.lower() in _NOT_LOGINS or is_placeholder(user)
        if not is_nobodys and not _FILE.search(user) and not is_placeholder(domain or "x1"):
            yield Found(start, end, Kind.USER)
    if not _IN_DIRECTORY.search(view.data):
        return
    for start, end in spans(_ENTRY, view.data):
        value = text[start:end].strip()
        if text[end : end + 1] == "(" and "." not in value and " " not in value:  # `uid = getuid()`
            continue
        # Words of a sentence may follow it.
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
            yield Found(first, first + len(value), Kind.NAME if is_named else Kind.USER)


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


def _numbered(view: View) -> Iterator[Found]:
    """Yield the numbers whose check digits are right."""
    for start, end in spans(_CARD, view.data):
        if is_card(view.text[start:end]):
            yield Found(start, end, Kind.CARD)
    for start, end in spans(_SAID_CARD, view.data):
        if is_card(view.text[start:end], shortest=_SHORTEST_CARD):
            yield Found(start, end, Kind.CARD)
    for span in spans(_IBAN, view.data):
        if found := _iban(view.text, *span):
            yield found


def is_card(text: str, *, shortest: int = 13) -> bool:
    """Say whether digits are the number of a payment card, by their check digit (Luhn, ISO/IEC 7812)."""
    digits = [int(char) for char in text if char.isdigit()]
    if not shortest <= len(digits) <= _LONGEST_CARD or len(set(digits)) == 1:
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
