"""Secret-like names and their values: in settings, code, JSON, YAML, shell, SQL and prose."""

from __future__ import annotations

import re
import string
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from redraft.redact.engine import match_at, match_bounded, spans
from redraft.redact.kinds import Finding, Kind
from redraft.redact.values import (
    is_code,
    is_identifier,
    is_long_hex,
    is_path,
    is_placeholder,
    is_url,
    is_wordy,
    looks_made_up,
    looks_random,
    word_set,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redraft.redact.canonical import View


# --- what a name says about its value ---


class Strength(IntEnum):
    """How strongly a name suggests a secret."""

    NONE = 0
    WEAK = 1
    CODE = 2
    TOKEN = 3
    PASSWORD = 4


_PASSWORDS = word_set(
    "password passwords passwd passwds pwd pswd passphrase passcode pass pw psk passwort kennwort passe "
    "wachtwoord contrasena contraseña senha mdp secret secrets credential credentials cred creds mnemonic "
    "userpassword storepass keypass requirepass userpass rootpass dbpass adminpass pasword passwrod "
    "passsword passord paswd passwort losenord lösenord heslo haslo parola adgangskode salasana"
)
_TOKENS = word_set(
    "token apitoken authtoken accesstoken apikey apikeys jwt bearer sessionid sessiontoken authorization "
    "clientsecret secretkey accesskey privatekey secretaccesskey pat accountkey sharedaccesskey apisecret "
    "jsessionid phpsessid aspsessionid sessid connectsid"
)
_CODES = word_set("otp pin cvv cvc totp tan passkey mfa 2fa")
_WEAK = word_set(
    "key auth sig signature session sid cookie cookies csrf xsrf salt seed dsn code csrftoken appid"
)
_OF_KEY = word_set(
    "api access secret private encryption signing auth authentication license master account storage "
    "subscription shared deploy webhook session client admin app application consumer service ssh gpg pgp "
    "hmac aes crypto decryption cipher integration developer personal root project unseal recovery wifi "
    "wpa network functions function product"
)
_OF_CODE = word_set(
    "verification security confirmation auth authentication login access sms backup recovery 2fa mfa otp "
    "totp pin unlock door gate entry alarm digit pairing activation"
)
_OF_SESSION = word_set("auth login user admin web")
_OF_LOOKUP = word_set(
    "primary foreign sort public cache error exit status partition row hash dict map registry object "
    "group index routing shortcut any"
)
_NOT = word_set(
    "count length len limit limits max min id ids type types url uri endpoint path file filename dir "
    "folder field fields ttl expiry expires expiration expired policy algorithm alg format usage budget "
    "size index idx prefix suffix manager store label hint rotation version status required enabled "
    "disabled at in class provider headers env var variable cost price rate window name names error "
    "errors exception check checks checker validator validation strength reset form input prompt page "
    "test tests tester parser kind rule rules regex pattern template placeholder generator helper handler "
    "factory model schema map mapper list set logits probs embedding embeddings position positions ids_ "
    "stream per mode source scope scopes age days reuse bucket reader writer error_message message "
    "messages description title text used valid invalid is has can json py txt yaml yml toml md sh js ts "
    "log pem crt key_file html csv"
)
_NOT_FIRST = word_set(
    "max min num no n is has use need needs require requires total per next prev eos bos pad unk stop "
    "start end first last current input output completion public"
)
_PAIRS = (["code", "verifier"], ["secret", "id"])
"""Pairs of words that mean a secret although the second one alone does not."""
_LONGEST_LABEL = 100
_ENDINGS = ("password", "passwd", "passphrase", "secret", "pwd", "storepass", "keypass")
_TOKEN_ENDINGS = ("token", "apikey", "secretkey", "accesskey")
_SPLIT = re.compile(r"2[fF][aA]|[A-Z]+(?![a-z])|[A-Z]?[a-zà-ÿ]+|\d+")
_KINDS = {
    Strength.PASSWORD: Kind.PASSWORD,
    Strength.TOKEN: Kind.TOKEN,
    Strength.CODE: Kind.CODE,
    Strength.WEAK: Kind.SECRET,
}


@lru_cache(maxsize=4096)
def strength_of(name: str) -> Strength:
    """How strongly the name of a variable, key, flag, field or header suggests a secret."""
    # A longer text is not a name.
    words = [word.lower() for word in _SPLIT.findall(name)] if len(name) <= _LONGEST_LABEL else []
    while words and (words[-1].isdigit() or words[-1] in ("value", "plain", "raw", "string", "here", "data")):
        words.pop()
    is_pair = words[-2:] in _PAIRS
    if not words or (words[-1] in _NOT and not is_pair) or words[0] in _NOT_FIRST:
        return Strength.NONE
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    is_password = last in _PASSWORDS or last.endswith(_ENDINGS)
    if not is_pair and (
        is_password or any(word in _PASSWORDS for word in words[:-1] if word not in ("pass", "pw"))
    ):
        return Strength.CODE if words[:2] == ["one", "time"] else Strength.PASSWORD
    is_token = is_pair or last in _TOKENS or last.endswith(_TOKEN_ENDINGS)
    is_constant = name.isupper() and before not in _OF_LOOKUP
    is_key = last in ("key", "keys") and (before in _OF_KEY or (bool(before) and is_constant))
    if is_token or is_key or (last in ("session", "sid") and before in _OF_SESSION):
        return Strength.TOKEN
    if last in _CODES or (last in ("code", "codes") and before in _OF_CODE):
        return Strength.CODE
    if last in _WEAK and before not in _OF_LOOKUP:
        return Strength.WEAK
    return Strength.NONE


def kind_of(name: str) -> Kind:
    """Kind of secret that a name stands for."""
    strength = strength_of(name)
    if strength is Strength.TOKEN and "key" in name.lower():
        return Kind.API_KEY
    if strength is Strength.PASSWORD and re.search("secret|cred", name, re.IGNORECASE):
        return Kind.SECRET
    return _KINDS.get(strength, Kind.SECRET)


def is_secret_name(name: str) -> bool:
    """Whether an environment variable's name suggests a secret: `OPENAI_API_KEY`, `DB_PASS`."""
    strength = strength_of(name)
    return strength > Strength.WEAK or (strength is Strength.WEAK and name.isupper())


# --- names in a text ---

_LABEL = (
    r"(?i:one[- ]time[ _-](?:pass(?:word|code)|code|pin)"
    r"|pass(?:word|wd|phrase|code|wort|wrod|ord)|pass?word"
    r"|(?:store|key|trust|user|db|root)pass\b|pswd|paswd|passwd|\bpass\b|_pass\b|pwd|\bpsk\b|\bpw\b|_pw\b"
    r"|losenord|\bhaslo\b|\bheslo\b|\bparola\b"
    r"|adgangskode|salasana|kennwort|contrasena|\bsenha\b|\bmot de passe\b|\bwachtwoord\b"
    r"|secret[ _.-]?(?:access[ _.-]?)?keys?|secret|token|cred(?:ential)?s?\b|mnemonic|auth|bearer"
    r"|\bjwt\b|\bpat\b|_pat\b|api[ _.-]{0,2}key"
    r"|(?:access|private|encryption|signing|master|license|licence|account"
    r"|storage|shared|service|session|deploy|client|admin|ssh|consumer|subscription|webhook|recovery|backup"
    r"|hmac|unseal|wi-?fi|wpa2?|functions?|product|network)[ _.-]?keys?"
    r"|[a-z0-9][_.-]key\b|[a-z0-9]Key\b|\bkey\b"
    r"|(?:verification|security|confirmation|login|sms|backup|recovery|access|2fa|mfa|otp|totp|pin|unlock"
    r"|door"
    r"|gate|entry|alarm|digit|pairing|activation)"
    r"[ _.-]?codes?"
    r"|\bappid\b|code[_.-]?verifier|\botp\b|totp|\bpin\b|\bcv[vc]\b|\b2fa\b|\bmfa\b|\bsig\b|signature"
    r"|session[_.-]?id|_session\b|sessid|\bsid\b"
    r"|cookie|csrf|xsrf|(?:\b|_)(?:salt|seed|dsn)\b)"
)
_IN_NAME = string.ascii_letters + string.digits + "_.-$"
_LONGEST_NAME = 80
_LONG_NAME = 40
_IN_BLOB = ("+", "/")
_OF_BLOB = string.ascii_letters + string.digits + "+/"


def find_names(view: View) -> Iterator[tuple[int, int]]:
    """Yield the spans of whole names that may be secret-like: `DB_PASSWORD` rather than `PASSWORD`."""
    text, done = view.text, 0
    for first, last in spans(_LABEL, view.data):
        if first < done:
            continue
        before = text[max(done, first - _LONGEST_NAME) : first]
        start = first - len(before) + len(before.rstrip(_IN_NAME))
        after = text[last : last + _LONGEST_NAME].partition("--")[0]
        end = last + len(after) - len(after.lstrip(_IN_NAME))
        done = start + len(text[start:end].rstrip(".-$"))
        if not _is_in_blob(text, start, done):
            yield start, done


def _is_in_blob(text: str, start: int, end: int) -> bool:
    """Whether a name is part of random text, which contains any three letters if it is long enough."""
    if (
        text[start - 1 : start] not in _IN_BLOB
        and text[end : end + 1] not in _IN_BLOB
        and end - start < _LONG_NAME
    ):
        return False
    before, after = text[max(0, start - _LONG_NAME) : start], text[end : end + _LONG_NAME]
    blob = (
        before[len(before.rstrip(_OF_BLOB)) :]
        + text[start:end]
        + after[: len(after) - len(after.lstrip(_OF_BLOB))]
    )
    return len(blob) > _LONG_NAME and looks_random(blob)


# --- the value of a name ---

_LONGEST_VALUE = 4096
_SHORTEST_VALUE = 3
_LONG_TOKEN = 16
_MOST_WORDS = 8
_SHORT_PASSWORD = 4
_SHORT_TOKEN = 8
_LONG_HASH = 32
_LONGEST_CODE = 10

_CLOSE = r"[\"'`*]{0,3}(?:\]|\))?[\"'`*]{0,2}"
_ANNOTATION = r"(?:[ \t]?:[ \t]?[A-Za-z_][\w.\[\]|]{0,30}(?: \| \w{1,20})?[ \t]?=)"
_EQUALS = rf"{_CLOSE}[ \t]{{0,12}}(?:{_ANNOTATION}|:=|=>|->|[!=]?={{1,2}}|[:=][\"'`*]{{0,2}})[ \t]{{0,12}}"
_FLAG = r"(?:[ \t]{1,4}<<<[ \t]{0,4}|[ \t]{1,8}|[ \t]*\\\n[ \t]*|[\"'],[ \t]*[\"'])"
_QUOTED_NEXT = r"[ \t]{1,4}(?:by[ \t]{1,4})?[\"'`]"
_PROSE = (
    r"(?i:[\"'`*]{0,2}\)?(?:\s{1,3}\([^()\n]{0,30}\))?(?:[ \t]{1,3}|[ \t]?\n[ \t]{0,4})"
    r"(?:(?:for|of|on|to|in|from|at|with)[ \t]{1,3}(?:the[ \t]{1,3}|my[ \t]{1,3}"
    r"|our[ \t]{1,3})?[\w.@/'-]{1,40}[ \t]{1,3}"
    r"(?:[\w'-]{1,20}[ \t]{1,3})?)?"
    r"(?:(?:is|was|are|were|be|been|has|had|to|set|as|now|currently|still|just|called|named|reads?|equals"
    r"|becomes|became|lautet|ist|war|est|es|era|e|jest"
    r"|printed|prints|returned|returns|gave|gives|shows?|showed|yielded|contains?|contained|echoed"
    r"|provided|used|using|value|changed|reset|updated|rotated|starts?|starting|beginning|begins|with"
    r"|supplied|entered|given"
    r"|sent|passed|typed|tried|it|that|which)\b[ \t]{0,3}[:=]?[ \t]{1,3}[\"'`*]{0,2}){1,5})"
)
_FROM = r"(?i:[ \t]{1,3}(?:from|to|into|of)[ \t]{1,3}[\"'`]?)"
_YAML_TAG = r"![a-zA-Z/_-]{1,30}[ \t]{1,4}"
_NEXT_WORD = (
    r"(?i:[\"'`*]{0,2}[ \t]{1,3}(?:provided|supplied|given|used|value)?[ \t]{0,2}[:=]?[ \t]{0,3}[\"'`*]{0,2})"
)
_ASIDE = (
    r"[\"'`*]{0,2}[ \t]{1,3}(?:\([^()\n]{0,30}\)|(?:for|of|on|to|in|from"
    r"|at)[ \t][^\n:=\"'`]{1,40}"
    r"|[a-z]{2,15}(?:[ \t][a-z]{2,15})?|#?\d{1,3})[ \t]?[:=][ \t]{0,3}"
)
_APPOSITION = (
    r"[\"'`*]{0,2}(?:,[ \t]|[ \t]\(|\[|:?[ \t]{0,3}\n[ \t]{0,8})(?i:which (?:is|was) |i\.?e\.? |namely )?"
)
_DASH = r"[\"'`*]{0,3}(?:[ \t]{1,3}-{1,2}[ \t]{1,3}|--)[\"'`*]{0,2}"
_COMMA = r"[\"']\]?,[ \t\n]{0,20}[\"']"
_TAG = r"[^<>\n]{0,60}>[ \t\n]{0,20}"
_VALUE_FIELD = (
    r"[\"']?[ \t]{0,8}[,;/{]?[ \t\n]{0,40}(?:-[ \t])?[\"']?(?i:value|val"
    r"|default)[\"']?[ \t]{0,8}[:=][ \t]{0,8}"
)
_CELL = r"[`*]{0,2}[ \t]{0,40}\|[ \t]{0,40}[`*]{0,2}"
_BLOCK = r"[\"']?:[ \t]{0,4}[|>][+-]?[ \t]{0,4}\n((?:[ \t]{1,40}[^\n]{1,200}\n?){1,4})"
_NEXT_LINE = r"[\"']?[ \t]?[:=][ \t]?\n[ \t]{1,20}"
_SCHEME = (
    r"(?i:(?:bearer|basic|digest|token|apikey|negotiate|bot|key|sso-key|splunk|aws4-hmac-sha256)[ \t]{1,4})"
)
_BARE = r"[^\s\"'`<>|]{1,1000}"
_BARE_REST = r"[^\s\"'`<>|]*"
_LONGEST_BARE = 1000
_STRING_PREFIX = r"(?i:[rbfu]{1,2})(?:[\"'])"
_CUTS = ("&", ";", ",", "\\n", "\\r", "\x01")
_PLAIN = re.compile(r"[a-z]{4,}|[A-Z]{4,}|(?=.*[A-Z])[A-Za-z]{2,}[A-Za-z_-]{2,}")
_QUOTES = ('"', "'", "`")
_SETTER = 24
_VALUE_TRAILING = ".,;:!?)]}*_\\"
_KEYS = ("--key", "-key", "--auth", "-auth", "routing_key", "routingkey")
"""Names whose value is a key even if it looks like a hash."""
_STOP_WORDS = word_set(
    "a an the is are was be been must should can cannot may not no to of for in on and or with without "
    "that this it your you we user if when please enter use field value do does did has have could would"
)


class Value(NamedTuple):
    """The text after a name, and how it is written."""

    start: int
    end: int
    text: str
    quoted: bool
    assigned: bool
    """Whether it is in settings, code or data, rather than in prose or a list."""
    tight: bool = False
    """Whether it follows without a space, or is alone on its line: then even a plain word is a value."""


def find_assigned(view: View, names: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield the secret values of secret-like names; `names` are the spans of `find_names`."""
    done = 0
    for name_start, name_end in names:
        name = view.text[name_start:name_end]
        strength = strength_of(name)
        if strength is Strength.WEAK and view.text[name_start - 1 : name_start] in ("?", "&"):
            strength = Strength.TOKEN  # in a URL, the value of such a name grants access
        is_key = name.lower() in _KEYS
        if (strength is Strength.NONE and not is_key) or name_start < done:
            continue
        for value in _values(view, name_start, name_end):
            if is_secret_value(value, strength) or (is_key and is_long_hex(value.text)):
                done = _full_end(view, value)
                yield Finding(value.start, done, kind_of(name))
                break


def _full_end(view: View, value: Value) -> int:
    """End of a value that may be longer than the part that was matched."""
    if value.quoted or len(value.text) < _LONGEST_BARE:
        return value.end
    return match_at(_BARE_REST, view.data, value.end).end()


def _values(view: View, start: int, end: int) -> Iterator[Value]:
    """Yield the possible values of a name, the likeliest first."""
    data, text = view.data, view.text
    if match := match_bounded(_BLOCK, data, end):
        start, end = match.span(1)
        yield Value(start, end, text[start:end], quoted=True, assigned=True)
        return
    if match := match_bounded(_EQUALS, data, end):
        value = _value_at(view, match.end(), assigned=not _is_phrase_in_quotes(text, start, end))
        if value.text or not text.startswith("\n", value.end):
            yield value._replace(tight=_is_tight(text, start, end, value))
        if match[0].endswith(b"="):
            return
    if match := match_bounded(_NEXT_LINE, data, end):
        yield _value_at(view, match.end(), assigned=True)
    if text[end : end + 1] in (":", "="):
        return
    is_tag = start > 0 and text[start - 1] in "<:"
    is_flag = text[start] == "-"
    is_noun = text[start:end].lower() != "pass"
    for pattern, applies, is_assigned in (
        (_FLAG, is_flag, True),
        (_TAG, is_tag, True),
        (_VALUE_FIELD, is_noun, True),
        (_COMMA, True, _is_setter(text, start)),
        (_CELL, is_noun, True),
        (_QUOTED_NEXT, is_noun and not _is_phrase_in_quotes(text, start, end), True),
        (_PROSE, is_noun, False),
        (_DASH, is_noun, False),
        (_ASIDE, is_noun, False),
        (_NEXT_WORD, is_noun, False),
        (_APPOSITION, is_noun, False),
        (_FROM, is_noun, False),
    ):
        if applies and (match := match_bounded(pattern, data, end)):
            # A quote at the end of the match opens the value.
            value = _value_at(view, match.end() - (text[match.end() - 1] in _QUOTES), assigned=is_assigned)
            # Everything in a list is quoted, as are names in a message.
            is_listed = pattern in (_COMMA, _APPOSITION) or text[start - 1 : start] in _QUOTES
            yield value._replace(quoted=value.quoted and (is_assigned or not is_listed))


def _is_setter(text: str, start: int) -> bool:
    """Whether a name is the first argument of a setter: `setenv("TOKEN", "...")`."""
    return (
        text[max(0, start - _SETTER) : start]
        .rstrip("\"'( ")
        .lower()
        .endswith(("env", "set", "header", "put", "add"))
    )


def _is_phrase_in_quotes(text: str, start: int, end: int) -> bool:
    """Whether a name ends a quoted text without beginning it: `"read a secret": "..."`."""
    return text[end : end + 1] in _QUOTES and text[start - 1 : start] == " "


def _is_tight(text: str, start: int, end: int, value: Value) -> bool:
    """Whether even a plain word is a value here: `X=word`, or `x: word` alone on its line."""
    before = text[max(0, start - 2) : start]
    if text[end : value.start] == "=":
        return not before.endswith(("(", ", "))
    line_begins = text.rfind("\n", 0, start) + 1
    is_alone = not text[line_begins:start].strip(" \t-") and text[value.end : value.end + 1] in (
        "",
        "\n",
        "\r",
    )
    return is_alone and text[end : end + 1] == ":"


def _value_at(view: View, start: int, *, assigned: bool) -> Value:
    text, data = view.text, view.data
    if match := match_bounded(_SCHEME, data, start) or match_bounded(_YAML_TAG, data, start):
        start = match.end()
    if match_bounded(_STRING_PREFIX, data, start):
        start = next(place for place in range(start, start + 3) if text[place] in "\"'")
    quote = text[start : start + 1]
    if quote and quote in "\"'`":
        fence = quote * 3 if text.startswith(quote * 3, start) else quote
        first = start + len(fence)
        last = text.find(fence, first, first + _LONGEST_VALUE)
        if last >= 0 and "\n" not in text[first:last].strip("\n"):
            return Value(first, last, text[first:last], quoted=True, assigned=assigned)
        start = first
    return _bare(view, start, assigned=assigned)


def _bare(view: View, start: int, *, assigned: bool) -> Value:
    match = match_bounded(_BARE, view.data, start)
    if match is None:
        return Value(start, start, "", quoted=False, assigned=assigned)
    value = view.text[start : match.end()]
    for cut in _CUTS:
        head, is_cut, tail = value.partition(cut)
        if is_cut and (cut not in "&," or not tail or "=" in tail or ":" in tail):
            value = head
    value = value.rstrip(_VALUE_TRAILING)
    return Value(start, start + len(value), value, quoted=False, assigned=assigned)


def is_secret_value(value: Value, strength: Strength) -> bool:
    """Whether a value after a name of this strength is a secret, rather than a word or code."""
    text = value.text.strip()
    is_other = is_placeholder(text) or is_path(text) or is_url(text) or (not value.quoted and is_code(text))
    if len(text) < _SHORTEST_VALUE or is_other:
        return False
    if strength is Strength.CODE:
        digits = text.replace("-", "").replace(" ", "")
        return (digits.isdigit() and len(digits) <= _LONGEST_CODE) or looks_random(text)
    if strength is Strength.WEAK:
        return looks_random(text)
    if " " in text or "\n" in text:
        return value.quoted and value.assigned and strength is Strength.PASSWORD and _is_phrase(text)
    if strength is Strength.PASSWORD:
        return _is_password(text, value)
    return _is_token(text, value)


def _is_phrase(text: str) -> bool:
    words = text.lower().split()
    return (
        len(words) <= _MOST_WORDS
        and not _STOP_WORDS.intersection(words)
        and all(word.isalnum() for word in words)
    )


def _is_password(text: str, value: Value) -> bool:
    is_name = re.fullmatch(r"[a-z]+\d+[a-z]+", text) is None and text[-1].isalpha()
    if not value.quoted and is_name and strength_of(text) > Strength.WEAK:
        return False  # a class or a variable: OAuth2Credentials, but not hunter2secret
    if looks_made_up(text):
        return True
    if value.quoted:
        return len(text) >= _SHORT_PASSWORD and not strength_of(text)
    if not value.assigned:
        return False
    is_plain = value.tight and _PLAIN.fullmatch(text) is not None and not strength_of(text)
    is_mixed = not text.islower() and not text.isupper() and not is_wordy(text)
    return text.isdigit() or is_plain or is_mixed


def _is_token(text: str, value: Value) -> bool:
    if len(text) < _SHORT_TOKEN or is_wordy(text) or strength_of(text):
        return False
    if value.assigned:
        return looks_made_up(text) or len(text) >= _LONG_TOKEN
    # A short hash after such a name is more often a commit than a token.
    return looks_made_up(text) and (len(text) >= _LONG_HASH or not is_identifier(text))
