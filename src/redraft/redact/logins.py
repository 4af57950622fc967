"""Passwords that stand in an address, a header, a command line or a call, without a name."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from redraft.redact.engine import at, every, has_any, spans
from redraft.redact.kinds import Found, Kind
from redraft.redact.values import is_code, is_path, is_placeholder, is_wordy, looks_made, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.view import View

_ADDRESS = r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://([^\s/@:\"'<>`]{0,128})(:?)"
_TO_END = r"[^\s\"'<>`]{1,256}"
_PORT = r"\d{1,5}(?:[/?#]|\z)"
_SCHEME = r"(?i:\b(?:bearer|basic|token|apikey|bot|negotiate|digest)[ \t]{1,4}([A-Za-z0-9+/=._~-]{8,}))"
# Whatever the scheme is called.
_HEADER = (
    r"(?i:\bauthorization)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?[A-Z][A-Za-z-]{1,20}[ \t]{1,4}"
    r"([A-Za-z0-9+/=._~-]{16,})"
)
_LINK = (
    r"(?i:/(?:invite|invitation|join|share|login|signin|magic|magic-link|auth|token|reset|reset-password|recover"
    r"|verify|confirm|activate|setup|t)/)([A-Za-z0-9_-]{20,})"
)
# A word of a command line that is no option.
_SAID = r"[\"']?([^\s\"'-][^\s\"']{2,128})"
# The second text of two: the first names who it is.
_QUOTED = r"[ \t]{0,4}[\"'][^\"'\n]{1,64}[\"'][ \t]{0,4},[ \t]{0,4}[\"']([^\"'\n]{3,256})[\"']"
_GIVEN = "|".join(
    (
        (
            r"[ \t](?:-u|--user|--proxy-user|--userpass|--creds|-U)(?:[ \t]{1,4}|=)"
            r"[\"']?[^\s:\"'/]{1,64}:([^\s\"']{3,256})"
        ),
        rf"\b(?:mysql|mysqldump|mysqladmin|mariadb|7z|zip|unzip|sshpass)\b[^\n|;]{{0,200}}[ \t]-p{_SAID}",
        (
            rf"\b(?:sshpass|plink|twine|snowsql|mongosh?|smbclient"
            rf"|(?:docker|podman|oc|az|helm registry)[ \t]login)\b"
            rf"[^\n|;]{{0,200}}[ \t]-(?:p|pw)[ \t]{{1,4}}{_SAID}"
        ),
        rf"\b(?:sqlcmd|bcp|osql|zip|unzip|nxc|rpcclient)\b[^\n|;]{{0,200}}[ \t]-P[ \t]{{0,4}}{_SAID}",
        rf"\bldap[a-z]{{3,10}}\b[^\n|;]{{0,200}}[ \t]-w[ \t]{{1,4}}{_SAID}",
        rf"\bopenssl\b[^\n|;]{{0,200}}[ \t](?:-k|-K|-pass(?:in|out)?)[ \t]{{1,4}}(?:pass:)?{_SAID}",
        rf"\bredis-cli\b[^\n|;]{{0,100}}[ \t]-a[ \t]{{1,4}}{_SAID}",
        (
            r"(?i:\bmachine[ \t\n]{1,20}\S{1,128}[ \t\n]{1,20}login[ \t\n]{1,20}\S{1,128}"
            r"[ \t\n]{1,20}password[ \t\n]{1,20}(\S{3,256}))"
        ),
        rf"(?i:\b(?:auth|credentials?|creds|login)[ \t]{{0,4}}=[ \t]{{0,4}}[\w.]{{0,30}}[\[(]{_QUOTED})",
        (
            r"(?i:(?:login|authenticate|sign_?in|log_?in|basicauth|credentials|connect)\("
            rf"(?:[\w.,\[\] \t]{{0,60}},)?{_QUOTED})"
        ),
        r"(?i:\bsqlplus[ \t]+(?:-\w+[ \t]+)?[\"']?\w{1,64}/([^\s\"'@]{3,128})@)",
        r"\b[\w.-]{1,64}:([^\s\"']{3,128})@(?:tcp|udp|unix)\(",
        r"(?i:\b(?:ntlm|nt|lm)[ _-]?hash(?:es)?\b[^\n0-9a-f]{0,20}([0-9a-f]{32}))",
        r"\b\w{1,64}:\d{1,10}:([0-9a-f]{32}:[0-9a-f]{32}):::",
        r"(?i:\bidentified[ \t]{1,4}by[ \t]{1,4}(?:password[ \t]{1,4})?[\"'])([^\"'\n]{3,256})[\"']",
        (
            r"\b(?:echo|printf)[ \t]{1,4}(?:-n[ \t]{1,4})?[\"']?([^\s\"'|]{5,256})[\"']?[ \t]{0,4}"
            r"\|[^\n|]{1,100}(?:stdin|passw|login|-S)"
        ),
        r"(?m:^|[ \t])[\w.-]{1,64}:\d{2,5}:[\w*-]{1,64}:[\w-]{1,64}:([^\s:]{4,128})",
        r"(?i:[?&\s]code=([^\s&\"']{8,256})&state=)",
    )
)
# Prose, where what follows has to look like a password.
_PROSE = (
    r"(?i:(?:credentials?|creds|login|logged in|log in|signed in|sign in|authenticated?|account"
    r"|(?:auth|user|username|userpwd)[ \t]?[:=])(?:[ \t]{1,3}(?:as|with|using|are|were|is|was))?"
    r"[ \t:=]{1,3}[\"'`]?[A-Za-z][\w.-]{1,64}[ \t]?[:/][ \t]?([^\s\"'`:/@]{5,64}))"
    r"|\b(?:user|username|admin|administrator|root|guest|postgres|deploy|sa):([^\s\"'`:/@]{6,64})@[A-Za-z][\w.-]{1,60}"
)
_TRAILING = ".,;)'\""
_COOKIE = r"(?i:\b(?:set-)?cookie[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?([^\s=;\"']{1,64}=[^\r\n\"']+))"
_ANY = (_ADDRESS, _SCHEME, _HEADER, _LINK, _GIVEN, _PROSE, _COOKIE)


def logins(view: View) -> Iterator[Found]:
    """Yield what somebody logs in with."""
    if not has_any(_ANY, view.data):
        return
    yield from _in_addresses(view)
    yield from _in_headers_and_links(view)
    for start, end in spans(_GIVEN, view.data):
        text = view.text[start:end].rstrip(_TRAILING)
        if text and not is_placeholder(text) and not text.isdigit() and not is_code(text):
            yield Found(start, start + len(text), Kind.PASSWORD)
    for start, end in spans(_PROSE, view.data):
        text = view.text[start:end].rstrip(_TRAILING)
        if looks_made(text) and not is_placeholder(text):
            yield Found(start, start + len(text), Kind.PASSWORD)
    for start, end in spans(_COOKIE, view.data):
        if any(looks_made(pair.partition("=")[2].strip()) for pair in view.text[start:end].split(";")):
            yield Found(start, end, Kind.COOKIE)


def _in_headers_and_links(view: View) -> Iterator[Found]:
    for pattern in (_SCHEME, _HEADER):
        for start, end in spans(pattern, view.data):
            text = view.text[start:end].rstrip(".")
            if _is_credential(text):
                yield Found(start, start + len(text), Kind.TOKEN)
    for start, end in spans(_LINK, view.data):
        if looks_random(view.text[start:end]):
            yield Found(start, end, Kind.TOKEN)


def _in_addresses(view: View) -> Iterator[Found]:
    data, text = view.data, view.text
    for match in every(_ADDRESS, data):
        user_start, user_end = match.span(1)
        start: int = match.end()
        rest = at(_TO_END, data, start)
        if rest is None:
            continue
        if not match[2]:
            if text[start] == "@" and looks_random(text[user_start:user_end]):
                yield Found(user_start, user_end, Kind.TOKEN)
            continue
        last = text.rfind("@", start, rest.end())
        password = text[start:last]
        if last > start and not at(_PORT, data[start:last], 0) and not is_placeholder(password):
            yield Found(start, last, Kind.PASSWORD)


def _is_credential(text: str) -> bool:
    if is_placeholder(text) or is_wordy(text) or is_path(text):
        return False
    if looks_made(text):
        return True
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in plain and plain.isascii()
