"""Secrets without a name, where one is likely: behind a command, in a call, in what a person tells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, spans
from redraft.redact.kinds import Found, Kind
from redraft.redact.values import (
    is_address,
    is_code,
    is_path,
    is_placeholder,
    is_wordy,
    looks_made,
    looks_random,
)
from redraft.redact.words import word_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.view import View

# Numbers of repetitions would multiply the states of the engine; it is linear without them.
_S = r"[ \t]+"
_SAID = r"[\"']?([^\s\"'-][^\s\"']{2,})"
_QUOTED = r"[\"']([^\"'\n]{3,})[\"']"
_MADE_UP = r"[\"'`]?([^\s\"'`<>]{6,})"
_REST = r"[^\n|;]*"
_FIELD = r"(?:pass(?:word|wd|phrase|code)?|secret|token|otp|pin|login)\b"
_SIGN_IN = r"(?:sign(?:s|ed|ing)?|log(?:s|ged|ging)?)[ -]?(?:in|on)\b"
_USER_AND = rf"[\"'`]?[\w.@+-]+[\"'`]?{_S}(?:using|with|and|by|/){_S}"
_PUT = r"(?:typ(?:ed|es|ing|e)|enter(?:ed|s|ing)?|past(?:ed|es|ing|e)|put|fill(?:ed|s)?|sent|wrote|submitted)"
_TOOLS = "vault|cargo|npm|pnpm|wandb|huggingface-cli|hf|railway|ngrok|doppler|snyk|sentry-cli|fly|flyctl|gh"

_COMMANDS = (
    rf"[ \t]--?(?:u|U|l|user|username|login)(?:{_S}|=)\S+{_S}--?(?:p|P|pw|pass)(?:{_S}|=)?{_SAID}",
    rf"\b(?:useradd|usermod|rdesktop|xfreerdp|htpasswd)\b{_REST}[ \t][-/]p:?[ \t]*{_SAID}",
    rf"[ \t]/user:\S+{_S}{_SAID}",
    rf"\brabbitmqctl{_S}\w+{_S}[\w.-]+{_S}{_SAID}",
    rf"\bhtpasswd{_S}-\w*b\w*{_S}\S+{_S}\S+{_S}{_SAID}",
    rf"\bssh-keygen\b{_REST}[ \t]-[NP][ \t]*{_SAID}",
    r"[ \t]-U[ \t]*[\"']?[\w.\\/-]+%([^\s\"']{3,})",
    rf"\b(?:AUTH|requirepass|masterauth){_S}(?:[a-z]+{_S})?{_SAID}",
    r"\bchpasswd[ \t]*<<<[ \t]*[\"']?[\w.-]+:([^\s\"']{3,})",
    rf"\b[\w.-]+:([^\s\"':/]{{3,}})[\"']?[ \t]*\|[ \t]*(?:sudo{_S})?chpasswd",
    rf"(?i:\bconvertto-securestring{_S}(?:-string{_S})?{_SAID})",
    rf"\bmc{_S}alias{_S}set{_S}\S+{_S}\S+{_S}\S+{_S}{_SAID}",
    r"\baccount\.key\.[\w.-]+[\"']?[ \t]*[,=][ \t]*[\"']?([A-Za-z0-9+/=]{40,})",
    rf"\bsnmp(?:-server|get|set|walk|bulkwalk)\b{_REST}[ \t](?:community|-c){_S}{_SAID}",
    rf"\b(?:enable|username{_S}\S+|neighbor{_S}\S+|privilege{_S}\d+){_S}(?:password|secret){_S}\d{_S}{_SAID}",
    r"(?m:^[ \t]*password[ \t]+7[ \t]+([0-9A-F]{8,}))",
    rf"\b(?:{_TOOLS}) (?:config )?(?:auth )?(?:login|token|add-authtoken|authtoken){_S}{_SAID}",
    rf"(?i:\bsecrets? (?:set|put|create|add)\b{_REST}(?:=|[ \t](?:-b|--body|--value|--data)[ \t=]){_SAID})",
    rf"(?i:\b(?:config|obscure|update|create)\b{_REST}[ \t]pass{_S}{_SAID})",
)
_CALLS = (
    rf"(?i:(?:login|authenticate|sign_?in|log_?in|basicauth)\([ \t]*[\w.\[\]]+[ \t]*,[ \t]*{_QUOTED})",
    rf"(?i:[\"'][^\"'\n]*\b{_FIELD}[^\"'\n]*[\"'][ \t\])]*(?:\.\w+\(|,)[ \t]*{_QUOTED})",
    rf"(?i:\b(?:send_?line|send_?keys|write|input)\({_QUOTED}\)[^\n]*{_FIELD})",
    rf"(?i:[\[(][\"'][^\"'\n]+[\"'],[ \t]*{_QUOTED}[\])][^\n]*\b(?:login|log_?in|sign_?in|authenticate)\b)",
    (
        rf"(?i:\b(?:fernet|hmac\.new|aesgcm|aes\.new|chacha20poly1305|secretbox|\w*serializer)\([ \t]*"
        rf"(?:key=)?b?{_QUOTED})"
    ),
    r"(?i:\b\w*(?:client|search)\([ \t]*[\"'][^\"'\n]+[\"'][ \t]*,[ \t]*[\"']([0-9a-f]{32,})[\"'])",
    r"(?i:\bauthorization\b[^\n]*\b(?:signature|response)=[\"']?([A-Za-z0-9+/=]{16,}))",
)
_TELLING = (
    rf"(?i:\b{_SIGN_IN}[ \t](?:as|with)[ \t]{_USER_AND}{_MADE_UP})",
    rf"(?i:\bfilled[ \t](?:in[ \t]|out[ \t])?with[ \t]{_USER_AND}{_MADE_UP})",
    rf"(?i:\buse[ds]?[ \t]{_MADE_UP}[\"'`]?[ \t]to[ \t]{_SIGN_IN})",
    rf"(?i:\b{_PUT}[ \t]{_MADE_UP}[\"'`]?[ \t](?:in|into|as|for)[ \t](?:\w+[ \t]){{0,3}}{_FIELD})",
)
_LIKELY = "|".join((*_COMMANDS, *_CALLS, *_TELLING))
_BEHIND = r"[\"'`]?[ \t]*(?:is|was|are|were|[:=]|)[ \t\n]*[\"'`]?"
_CODES = (
    rf"(?i:\b(?:backup|recovery|scratch|2fa|otp|one-time)[ _-]?codes?{_BEHIND}"
    r"((?:[a-z0-9]{2,5}-?[0-9][a-z0-9]{2,5}[ ,;\n]+)+[a-z0-9]{2,5}-?[0-9][a-z0-9]{2,5})\b)"
)
_SENT = (
    r"(?i:\b((?:[a-z]-)?\d{4,8})[ \t]is[ \t]your[ \t](?:[\w-]+[ \t]){0,4}"
    r"(?:code|otp|pin|passcode|password)\b)"
)
_PHRASE = (
    rf"(?i:\b(?:seed|recovery|mnemonic|backup|wallet)[ _-]?(?:phrase|words)?{_BEHIND}"
    r"((?:[a-z]{3,8}[ ,\n]+){11,23}[a-z]{3,8})\b)"
)
# No list of words that stands for a key has any of these.
_OF_SENTENCES = word_set(
    "the and that was with for from this are not you has have been which then when where"
)
_TRAILING = ".,;)'\""


# What is handed to a call after something else: who is called says what it is.
_HANDED = r"(?:,[ \t\n]*(?:\w+[ ]?=[ ]?)?[brfu]?[\"'])([^\s\"'\\]{6,128})[\"']"
_CALL = re.compile(r"([\w.$>:-]*\w)\([^()\n]*$")
_OF_PASSWORDS = word_set(
    "auth login signin sign encrypt decrypt hmac jwt credential credentials session connect connection "
    "authenticate authorize password passwd pw pwd secret basicauth digestauth cipher cipheriv sso ldap bind"
)
_OF_KEYS = _OF_PASSWORDS | word_set(
    "client api sdk token key keys configure config init initialize setup register basic digest header "
    "provider "
    "mailer gateway service signer"
)
_OF_NEITHER = word_set(
    "error exception assert equal equals expect test hash sha md5 checksum commit checkout etag uuid "
    "compare get "
    "find query lookup load read print log warn info debug format replace split join match search isinstance "
    "getattr t"
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_FAR = 300
_HEX = re.compile(r"[0-9a-f]{20,}|[0-9A-F]{20,}")


def likely(view: View) -> Iterator[Found]:
    """Yield what looks made up where a secret is likely, codes in a row, and the words of a key."""
    if not has_any((_LIKELY, _HANDED, _CODES, _SENT, _PHRASE), view.data):
        return
    for start, end in spans(_LIKELY, view.data):
        text = view.text[start:end].rstrip(_TRAILING)
        is_other = is_placeholder(text) or is_code(text) or is_path(text)
        is_phrase = is_wordy(text) and ("-" in text or "_" in text)  # retry-after-30
        if looks_made(text) and not is_other and not is_phrase:
            yield Found(start, start + len(text), Kind.PASSWORD)
    for start, end in spans(_HANDED, view.data):
        if _is_handed_key(view.text, start, end):
            yield Found(start, end, Kind.API_KEY)
    for pattern in (_CODES, _SENT):
        for span in spans(pattern, view.data):
            yield Found(*span, Kind.CODE)
    for start, end in spans(_PHRASE, view.data):
        if not _OF_SENTENCES.intersection(view.text[start:end].lower().split()):
            yield Found(start, end, Kind.SECRET)


def _is_handed_key(text: str, start: int, end: int) -> bool:
    """Say whether a quoted text is a key that a call takes: `Client("eu", "...")`."""
    value, called = text[start:end], _CALL.search(text[max(0, start - _FAR) : start])
    if called is None or is_placeholder(value) or is_path(value) or is_address(value):
        return False
    parts = [part.lower() for part in _PART.findall(called[1])]
    if not parts or (parts[-1] not in _OF_KEYS and not _OF_NEITHER.isdisjoint(parts)):
        return False
    if looks_random(value):
        return True
    if _HEX.fullmatch(value):
        is_made = re.split(r"[.>:]+", called[1])[-1][
            0
        ].isupper()  # what begins with a capital makes an object
        return is_made or not _OF_KEYS.isdisjoint(parts)
    is_phrase = is_wordy(value) and ("-" in value or "_" in value)
    return not _OF_PASSWORDS.isdisjoint(parts) and looks_made(value) and not is_phrase and not is_code(value)
