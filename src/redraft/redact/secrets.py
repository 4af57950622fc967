"""Secrets: by their shape, in logins, after a secret-like name, where they are likely, inside encodings."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from redraft.redact.assignments import Strength, find_assigned, find_names, strength_of
from redraft.redact.canonical import canonical, unescaped
from redraft.redact.engine import has_any, match_at, matches, spans
from redraft.redact.kinds import Finding, Kind
from redraft.redact.values import (
    is_code,
    is_path,
    is_placeholder,
    is_requirement,
    is_url,
    is_wordy,
    looks_made_up,
    looks_random,
    word_set,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redraft.redact.canonical import View
    from redraft.redact.literals import KnownSecrets

_LAYERS = 3


def find_secrets(view: View, known_secrets: KnownSecrets, *, layers: int = _LAYERS) -> Iterator[Finding]:
    """Yield the known secrets of a text and all that looks like a secret, also inside layers of encoding."""
    yield from known_secrets.find(view)
    yield from _tokens(view)
    yield from _logins(view)
    names = list(find_names(view))
    yield from find_assigned(view, names)
    yield from _random(view, names)
    yield from _likely(view)
    if layers:
        yield from _encoded(view, lambda text: _holds_secret(text, known_secrets, layers - 1))


def _holds_secret(text: str, known_secrets: KnownSecrets, layers: int) -> bool:
    view = canonical(text)
    return any(any(find_secrets(layer, known_secrets, layers=layers)) for layer in (view, *unescaped(view)))


# --- tokens of a known shape ---

_W = r"[A-Za-z0-9_-]"
_A = r"[A-Za-z0-9]"

_SHAPES = (
    rf"\bsk-{_W}{{16,}}",  # OpenAI, Anthropic, OpenRouter, DeepSeek and others
    rf"\b(?:sk|rk|pk)_(?:live|test|prod)_{_A}{{10,}}",  # Stripe, Clerk
    r"\bwhsec_[A-Za-z0-9+/]{16,}=*",
    rf"AIza{_W}{{30,}}",  # Google
    rf"\bya29\.{_W}{{20,}}",
    rf"GOCSPX-{_W}{{20,}}",
    rf"\b1//0{_W}{{30,}}",
    r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA)[A-Z0-9]{16}\b",  # AWS
    r"\bABSK[A-Za-z0-9+/]{40,}=*",
    r"\bamzn\.mws\.[0-9a-f-]{30,}",
    rf"\bgh[pousr]_{_A}{{20,}}",  # GitHub
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bgl[a-z]{2,6}-[A-Za-z0-9_.-]{16,}",  # GitLab
    r"\bGR1348941[A-Za-z0-9_-]{18,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}|\bxoxe\.xox[a-z]-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}",  # Slack
    r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_+-]{16,}",
    r"discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}",
    r"hooks\.zapier\.com/hooks/catch/\d+/\w{6,}|hook\.[\w.]{0,20}make\.com/\w{20,}",
    r"maker\.ifttt\.com/trigger/[^\s\"'<>/]{1,80}/(?:json/)?with/key/[\w-]{16,}",
    r"api\.vercel\.com/v1/integrations/deploy/[\w/]{10,}",
    r"webhook\.office\.com/webhookb2/[0-9a-f@-]{60,}/IncomingWebhook/[\w/-]{30,}",
    rf"\b[MNO]{_W}{{23,27}}\.{_W}{{6,7}}\.{_W}{{27,40}}",  # Discord
    rf"(?:\b|bot)\d{{8,10}}:A[A-Za-z]{_W}{{32,35}}",  # Telegram
    rf"\bhf_{_A}{{20,}}|\bapi_org_{_A}{{20,}}",  # Hugging Face
    rf"\bnpm_{_A}{{30,}}",
    rf"\bpypi-AgE{_W}{{16,}}",
    r"\bdo[opr]_v1_[a-f0-9]{40,}",  # DigitalOcean
    r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",  # Shopify
    rf"\bSG\.{_W}{{16,}}\.{_W}{{16,}}",  # SendGrid
    r"\bkey-[0-9a-f]{32}\b|\b[0-9a-f]{32}-us\d{1,2}\b|\bSK[0-9a-f]{32}\b",  # Mailgun, Mailchimp, Twilio
    r"\bdapi[a-f0-9]{32}(?:-\d)?",  # Databricks
    (
        rf"\b(?:gsk|r8|tgp_v1|fw|csk|jina|vercel_blob_rw|sntry[su]|lin_api|rubygems|sbp|ntn|figd|glsa|glc"
        rf"|pscale_tkn|pscale_pw|cfut|cfat|nfp|vc[pkart]|sg[pd]|zpka|CCIPAT|CCIPRJ|bkua)_{_W}{{20,}}"
    ),
    (
        rf"\b(?:xai|pplx|nvapi|tvly|fc|PMAK|NRAK|CFPAT|rnd|bkua|dckr_pat|exa|voy|pa|re)-{_W}{{24,}}"
        rf"|\bdckr_pat_{_W}{{20,}}"
    ),
    r"\blsv2_(?:pt|sk)_[a-f0-9_]{32,}",
    rf"\bsq0[a-z]{{3}}-{_W}{{20,}}|\bEAA[A-Za-z0-9]{{40,}}",  # Square, Meta
    rf"\btskey-[a-z]{{2,12}}-{_W}{{16,}}|\bpat-[a-z]{{2}}\d-{_W}{{30,}}",  # Tailscale, HubSpot
    rf"\bFLW(?:SEC|PUB)K(?:_TEST)?-{_A}{{24,}}|\brzp_(?:live|test)_{_A}{{14}}",  # Flutterwave, Razorpay
    r"\bLTAI[A-Za-z0-9]{12,26}\b|\bAKID[A-Za-z0-9]{28,36}\b",  # Alibaba, Tencent
    rf"\bsq[apu]_[0-9a-f]{{40}}|\bpat{_A}{{14}}\.[0-9a-f]{{64}}|\b4/0A{_W}{{30,}}",  # Sonar, Airtable, Google
    r"\baccess-(?:sandbox|development|production)-[0-9a-f-]{36}",  # Plaid
    rf"\b[xyz]prv{_A}{{100,}}|\bnsec1{_A}{{58}}",  # keys of wallets
    rf"\bsl\.{_W}{{60,}}|\bv[1-4]\.(?:local|public)\.{_W}{{40,}}",  # Dropbox, PASETO
    rf"\bhv[sbr]\.{_W}{{20,}}|\bs\.{_A}{{24}}\b",  # Vault
    r"\bATATT3[A-Za-z0-9_=-]{30,}|\bATCTT3[A-Za-z0-9_=-]{30,}",  # Atlassian
    rf"\b{_A}{{14}}\.atlasv1\.{_W}{{40,}}",  # Terraform
    rf"\bdp\.(?:pt|st|ct|scim|audit)\.{_W}{{30,}}",  # Doppler
    rf"\boy2{_A}{{43}}\b",  # NuGet
    r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}",
    rf"\bfm[12]_{_W}{{40,}}|\bFlyV1 {_W}{{40,}}",
    rf"\b{_A}{{3}}\dQ~[A-Za-z0-9~_.-]{{31,34}}",  # Entra
    (
        rf"\b[a-z][a-z0-9]{{1,11}}_(?:live|test|prod|dev|secret|pat|key|token|sk|api"
        rf"|v1)_{_A}{{16,}}"
    ),  # and others of that form
)
_API_KEY = "|".join(_SHAPES)
# Apart from the others, since its parts may be of any length.
_JWT = r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}"
_HASH = (
    r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|\$argon2(?:id|i|d)\$[^\s\"'<>]{20,500}"
    r"|\$(?:1|5|6|y|7|gy)\$[./A-Za-z0-9=$,]{1,40}\$[./A-Za-z0-9]{22,}"
    r"|\bpbkdf2_sha\d{1,3}\$\d+\$[^\s\"'<>]{20,200}"
    r"|\{SSHA\d{0,3}\}[A-Za-z0-9+/=]{20,}"
)
_LONGEST_KEY = 20_000
_KEY_BEGINS = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----"
)
_KEY_BODY = (
    r"(?:[ \t>|*#\"'+\\]{0,40}(?:\\r|\\n|\r|\n|[ ])[ \t>|*#\"'+\\rn]{0,40}"
    r"(?:[A-Za-z0-9+/=]{20,}|(?:Proc-Type|DEK-Info|Version|Comment):[^\r\n\\]*))*"
)
# Without header and footer: RSA, elliptic curve, PuTTY.
_KEY_BARE = (
    r"\b(?:MII[A-Za-z0-9+/]{3}IBA(?:AKC|DANBgkqhkiG9w0BAQEFAASC)|MHcCAQEEI|MIG[A-Za-z0-9+/]AgEAM"
    r"|MC4CAQAwBQYDK2Vw)"
    r"[A-Za-z0-9+/=\\\s]{24,}"
    r"|\bPrivate-Lines: \d+\s+[A-Za-z0-9+/=\s]{40,}"
)
_KEY_ENDS = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- END SSH2 ENCRYPTED PRIVATE KEY ----"
_ANY_TOKEN = (_API_KEY, _JWT, _HASH, _KEY_BEGINS, _KEY_BARE)


def _tokens(view: View) -> Iterator[Finding]:
    """Yield tokens that are recognised by their shape."""
    if not has_any(_ANY_TOKEN, view.data):
        return
    for start, end in spans(_API_KEY, view.data):
        text = view.text[start:end]
        if any(char.isdigit() for char in text) or (not text.islower() and "_" not in text[8:]):
            yield Finding(start, end, Kind.API_KEY)
    for span in spans(_JWT, view.data):
        yield Finding(*span, Kind.TOKEN)
    for span in spans(_HASH, view.data):
        yield Finding(*span, Kind.PASSWORD)
    for start, end in spans(_KEY_BARE, view.data):
        yield Finding(start, start + len(view.text[start:end].rstrip()), Kind.PRIVATE_KEY)
    yield from _private_keys(view)


def _private_keys(view: View) -> Iterator[Finding]:
    ends = [end for _, end in spans(_KEY_ENDS, view.data)]
    done = 0
    for start, end in spans(_KEY_BEGINS, view.data):
        if start < done:
            continue
        while ends and ends[0] < end:
            ends.pop(0)
        # A truncated key ends where the lines no longer look like a key.
        body = match_at(_KEY_BODY, view.data[end : end + _LONGEST_KEY], 0)
        done = ends[0] if ends else end + body.end()
        yield Finding(start, done, Kind.PRIVATE_KEY)


# --- passwords in addresses, headers, command lines and calls ---

_ADDRESS = r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://([^\s/@:\"'<>`]{0,128})(:?)"
_TO_END = r"[^\s\"'<>`]{1,256}"
_PORT = r"\d{1,5}(?:[/?#]|\z)"
_AUTH_SCHEME = r"(?i:\b(?:bearer|basic|token|apikey|bot|negotiate|digest)[ \t]{1,4}([A-Za-z0-9+/=._~-]{8,}))"
# With any scheme.
_HEADER = (
    r"(?i:\bauthorization)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?[A-Z][A-Za-z-]{1,20}[ \t]{1,4}"
    r"([A-Za-z0-9+/=._~-]{16,})"
)
_LINK = (
    r"(?i:/(?:invite|invitation|join|share|login|signin|magic|magic-link|auth|token|reset|reset-password"
    r"|recover"
    r"|verify|confirm|activate|setup|t)/)([A-Za-z0-9_-]{20,})"
)
# An argument of a command line that is not an option.
_OPTION = r"[\"']?([^\s\"'-][^\s\"']{2,128})"
# The second of two quoted texts: the first is the user.
_SECOND_TEXT = r"[ \t]{0,4}[\"'][^\"'\n]{1,64}[\"'][ \t]{0,4},[ \t]{0,4}[\"']([^\"'\n]{3,256})[\"']"
_LOGIN = "|".join(
    (
        (
            r"[ \t](?:-u|--user|--proxy-user|--userpass|--creds|-U)(?:[ \t]{1,4}|=)"
            r"[\"']?[^\s:\"'/+%][^\s:\"'/%]{0,63}:([^\s\"'\\][^\s\"']{2,255})"
        ),
        rf"\b(?:mysql|mysqldump|mysqladmin|mariadb|7z|zip|unzip|sshpass)\b[^\n|;]{{0,200}}[ \t]-p{_OPTION}",
        (
            rf"\b(?:sshpass|plink|twine|snowsql|mongosh?|smbclient"
            rf"|(?:docker|podman|oc|az|helm registry)[ \t]login)\b"
            rf"[^\n|;]{{0,200}}[ \t]-(?:p|pw)[ \t]{{1,4}}{_OPTION}"
        ),
        rf"\b(?:sqlcmd|bcp|osql|zip|unzip|nxc|rpcclient)\b[^\n|;]{{0,200}}[ \t]-P[ \t]{{0,4}}{_OPTION}",
        rf"\bldap[a-z]{{3,10}}\b[^\n|;]{{0,200}}[ \t]-w[ \t]{{1,4}}{_OPTION}",
        rf"\bopenssl\b[^\n|;]{{0,200}}[ \t](?:-k|-K|-pass(?:in|out)?)[ \t]{{1,4}}(?:pass:)?{_OPTION}",
        rf"\bredis-cli\b[^\n|;]{{0,100}}[ \t]-a[ \t]{{1,4}}{_OPTION}",
        (
            r"(?i:\bmachine[ \t\n]{1,20}\S{1,128}[ \t\n]{1,20}login[ \t\n]{1,20}\S{1,128}"
            r"[ \t\n]{1,20}password[ \t\n]{1,20}(\S{3,256}))"
        ),
        rf"(?i:\b(?:auth|credentials?|creds|login)[ \t]{{0,4}}=[ \t]{{0,4}}[\w.]{{0,30}}[\[(]{_SECOND_TEXT})",
        (
            r"(?i:(?:login|authenticate|sign_?in|log_?in|basicauth|credentials|connect)\("
            rf"(?:[\w.,\[\] \t]{{0,60}},)?{_SECOND_TEXT})"
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
# Prose, where the value has to look like a password.
_LOGIN_IN_PROSE = (
    r"(?i:(?:credentials?|creds|login|logged in|log in|signed in|sign in|authenticated?|account"
    r"|(?:auth|user|username|userpwd)[ \t]?[:=])(?:[ \t]{1,3}(?:as|with|using|are|were|is|was))?"
    r"[ \t:=]{1,3}[\"'`]?[A-Za-z][\w.-]{1,64}[ \t]?[:/][ \t]?([^\s\"'`:/@]{5,64}))"
    r"|\b(?:user|username|admin|administrator|root|guest|postgres|deploy"
    r"|sa):([^\s\"'`:/@]{6,64})@[A-Za-z][\w.-]{1,60}"
)
_TRAILING = ".,;)'\""
_COOKIE = r"(?i:\b(?:set-)?cookie[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?([^\s=;\"']{1,64}=[^\r\n\"']+))"
_ANY_LOGIN = (_ADDRESS, _AUTH_SCHEME, _HEADER, _LINK, _LOGIN, _LOGIN_IN_PROSE, _COOKIE)


def _logins(view: View) -> Iterator[Finding]:
    """Yield passwords and tokens that are used to log in."""
    if not has_any(_ANY_LOGIN, view.data):
        return
    yield from _in_addresses(view)
    yield from _in_headers_and_links(view)
    for start, end in spans(_LOGIN, view.data):
        text = view.text[start:end].rstrip(_TRAILING)
        if text and not is_placeholder(text) and not text.isdigit() and not is_code(text):
            yield Finding(start, start + len(text), Kind.PASSWORD)
    for start, end in spans(_LOGIN_IN_PROSE, view.data):
        text = view.text[start:end].rstrip(_TRAILING)
        if looks_made_up(text) and not is_placeholder(text):
            yield Finding(start, start + len(text), Kind.PASSWORD)
    for start, end in spans(_COOKIE, view.data):
        if any(looks_made_up(pair.partition("=")[2].strip()) for pair in view.text[start:end].split(";")):
            yield Finding(start, end, Kind.COOKIE)


def _in_headers_and_links(view: View) -> Iterator[Finding]:
    for pattern in (_AUTH_SCHEME, _HEADER):
        for start, end in spans(pattern, view.data):
            text = view.text[start:end].rstrip(".")
            if _is_credential(text):
                yield Finding(start, start + len(text), Kind.TOKEN)
    for start, end in spans(_LINK, view.data):
        if looks_random(view.text[start:end]):
            yield Finding(start, end, Kind.TOKEN)


def _in_addresses(view: View) -> Iterator[Finding]:
    data, text = view.data, view.text
    for match in matches(_ADDRESS, data):
        user_start, user_end = match.span(1)
        start: int = match.end()
        rest = match_at(_TO_END, data, start)
        if rest is None:
            continue
        if not match[2]:
            if text[start] == "@" and looks_random(text[user_start:user_end]):
                yield Finding(user_start, user_end, Kind.TOKEN)
            continue
        last = text.rfind("@", start, rest.end())
        password = text[start:last]
        if last > start and not match_at(_PORT, data[start:last], 0) and not is_placeholder(password):
            yield Finding(start, last, Kind.PASSWORD)


def _is_credential(text: str) -> bool:
    if is_placeholder(text) or is_wordy(text) or is_path(text):
        return False
    if looks_made_up(text):
        return True
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in plain and plain.isascii()


# --- random text, near a secret-like name or on its own ---

_NEAR_BEFORE = 60
_NEAR_AFTER = 100
_LONGEST_TOKEN = 200
# For patterns as simple as these two, Python's own engine is linear as well, and quicker to call.
_TOKEN = re.compile(rb"[A-Za-z0-9+/_.~!@#$%^&*-]{8,}={0,2}")
_ANNOUNCED = r"(?:password|passphrase|passcode|secret|token|api key|pwd)\b"
_WHOSE = r"(?:the|a|an|my|our|your|his|her|their)"
_AS = (
    rf"(?i:[\"'`]([^\s\"'`]{{4,128}})[\"'`][ \t]{{1,3}}(?:as|for|is|was|being)[ \t]{{1,3}}{_WHOSE}?"
    rf"[ \t]{{0,3}}(?:[a-z]{{1,20}}[ \t]{{1,3}}){{0,2}}{_ANNOUNCED})"
)
_AS_BARE = (
    r"(?i:([^\s\"'`]{6,128})[ \t]{1,3}"
    r"(?:(?:(?:is|was|be|been)[ \t]{1,3}(?:[a-z]{3,9}[ \t]{1,3})?)?as[ \t]{1,3}"
    rf"|(?:is|was)[ \t]{{1,3}}{_WHOSE}[ \t]{{1,3}})(?:[a-z]{{1,20}}[ \t]{{1,3}}){{0,2}}{_ANNOUNCED})"
)


# Letters of both cases and digits, on their own: no word, hash or number looks like that.
_ALONE = re.compile(rb"(?<![A-Za-z0-9])[A-Za-z0-9]{24,}(?![A-Za-z0-9])")
_JOINS = "_-+/=.~%@"
"""Signs that make a token part of something longer: an id with a prefix, a path, Base64 data."""
_DATA_PREFIX = ";base64,"
_LINE_OF_DATA = 60
_LONGEST_ALONE = 120
_FEWEST_DIGITS = 2
_SHARE_OF_DIGITS = 0.08
_WORD_IN = re.compile(r"[a-z]{6}|[A-Z]{6}")
_LONG_WORD_IN = re.compile(r"[a-z]{8}|[A-Z]{8}")
# Behind a prefix: ids of requests, calls and objects look the same, but are shorter than keys.
_KEY_LENGTH = 32
_PREFIX = re.compile(r"(?<![\w/+.~%@-])(?!sha\d)[A-Za-z][A-Za-z0-9]{0,11}(?:[_-][A-Za-z0-9]{1,8}){0,2}[_-]$")
_LONGEST_PREFIX = 40


def _random(view: View, names: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield random-looking text near secret-like `names`, and elsewhere where it can only be a secret."""
    for start, end in _regions(view, names):
        for match in _TOKEN.finditer(view.data, start, end):
            first = match.start()
            text = view.text[first : match.end()].rstrip(".,;:!?=")
            if looks_random(text) and not is_code(text) and "/" not in text.strip("/")[:8]:
                yield Finding(first, first + len(text), Kind.SECRET)
    for match in _ALONE.finditer(view.data):
        start, end = match.span()
        text = view.text[start:end]
        neighbours = view.text[max(0, start - 1) : start] + view.text[end : end + 1].replace(".", "")
        is_joined = any(char in _JOINS for char in neighbours) or _is_data(view.text, start, end)
        if not is_joined and len(text) <= _LONGEST_ALONE and looks_random(text) and _is_mixed(text):
            yield Finding(start, end, Kind.SECRET)
        elif len(text) >= _KEY_LENGTH and (prefix := _prefix(view.text, start, end)):
            yield Finding(start - len(prefix), end, Kind.API_KEY)
    for pattern in (_AS, _AS_BARE) if has_any((_AS, _AS_BARE), view.data) else ():
        for start, end in spans(pattern, view.data):
            text = view.text[start:end]
            if not is_placeholder(text) and looks_made_up(text) and not is_code(text):
                yield Finding(start, end, Kind.PASSWORD)


def _is_data(text: str, start: int, end: int) -> bool:
    """Whether this is Base64 data: after its prefix, or a whole line among many."""
    is_line = (
        end - start >= _LINE_OF_DATA and text[start - 1 : start] in ("", "\n") and text[end : end + 1] == "\n"
    )
    return is_line or text[max(0, start - len(_DATA_PREFIX)) : start] == _DATA_PREFIX


def _prefix(text: str, start: int, end: int) -> str:
    """The prefix that makes this a key, such as `acme_` or `acme-key-`; empty if it is no key."""
    if text[start - 1 : start] not in ("_", "-") or text[end : end + 1] in tuple(_JOINS):
        return ""
    match = _PREFIX.search(text[max(0, start - _LONGEST_PREFIX) : start])
    is_key = match is not None and looks_random(text[start:end]) and _is_mixed(text[start:end])
    return match[0] if match is not None and is_key else ""


def _is_mixed(text: str) -> bool:
    """Whether letters of both cases and digits are mixed too well to be words."""
    digits = sum(map(str.isdigit, text))
    if digits < _FEWEST_DIGITS or text.isupper() or text.islower():
        return False
    # A long key has six letters of one case in a row by chance; a name made of words has few digits.
    is_long = len(text) >= _KEY_LENGTH and digits >= _SHARE_OF_DIGITS * len(text)
    return (_LONG_WORD_IN if is_long else _WORD_IN).search(text) is None


def _regions(view: View, names: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans around secret-like names, within their paragraph and without overlaps."""
    text, done = view.text, 0
    for start, end in names:
        if strength_of(text[start:end]) <= Strength.WEAK:
            continue
        first = max(done, start - _NEAR_BEFORE)
        last = min(len(text), end + _NEAR_AFTER)
        if (gap := text.rfind("\n\n", first, start)) >= 0:
            first = gap
        if (gap := text.find("\n\n", end, last)) >= 0:
            last = gap
        # A token is never cut in two: half of one would look like a word, and the other half would stay.
        before = text[max(done, first - _LONGEST_TOKEN) : first]
        first -= len(before.rpartition(" ")[2].rpartition("\n")[2])
        after = text[last : last + _LONGEST_TOKEN]
        last += len(after.partition(" ")[0].partition("\n")[0])
        if last > first:
            done = last
            yield first, last


# --- where a secret is likely: after a command, in a call, in a person's message ---

# Counted repetitions would multiply the engine's states; it is linear without them.
_S = r"[ \t]+"
_WORD = r"[\"']?([^\s\"'-][^\s\"']{2,})"
_QUOTED = r"[\"']([^\"'\n]{3,})[\"']"
_MADE_UP = r"[\"'`]?([^\s\"'`<>]{6,})"
_REST = r"[^\n|;]*"
_FIELD = r"(?:pass(?:word|wd|phrase|code)?|secret|token|otp|pin|login)\b"
_SIGN_IN = r"(?:sign(?:s|ed|ing)?|log(?:s|ged|ging)?)[ -]?(?:in|on)\b"
_USER_AND = rf"[\"'`]?[\w.@+-]+[\"'`]?{_S}(?:using|with|and|by|/){_S}"
_PUT = r"(?:typ(?:ed|es|ing|e)|enter(?:ed|s|ing)?|past(?:ed|es|ing|e)|put|fill(?:ed|s)?|sent|wrote|submitted)"
_TOOLS = "vault|cargo|npm|pnpm|wandb|huggingface-cli|hf|railway|ngrok|doppler|snyk|sentry-cli|fly|flyctl|gh"

_COMMANDS = (
    rf"[ \t]--?(?:u|U|l|user|username|login)(?:{_S}|=)\S+{_S}--?(?:p|P|pw|pass)(?:{_S}|=)?{_WORD}",
    rf"\b(?:useradd|usermod|rdesktop|xfreerdp|htpasswd)\b{_REST}[ \t][-/]p:?[ \t]*{_WORD}",
    rf"[ \t]/user:\S+{_S}{_WORD}",
    rf"\brabbitmqctl{_S}\w+{_S}[\w.-]+{_S}{_WORD}",
    rf"\bhtpasswd{_S}-\w*b\w*{_S}\S+{_S}\S+{_S}{_WORD}",
    rf"\bssh-keygen\b{_REST}[ \t]-[NP][ \t]*{_WORD}",
    r"[ \t]-U[ \t]*[\"']?[\w.\\/-]+%([^\s\"']{3,})",
    rf"\b(?:AUTH|requirepass|masterauth){_S}(?:[a-z]+{_S})?{_WORD}",
    r"\bchpasswd[ \t]*<<<[ \t]*[\"']?[\w.-]+:([^\s\"']{3,})",
    rf"\b[\w.-]+:([^\s\"':/]{{3,}})[\"']?[ \t]*\|[ \t]*(?:sudo{_S})?chpasswd",
    rf"(?i:\bconvertto-securestring{_S}(?:-string{_S})?{_WORD})",
    rf"\bmc{_S}alias{_S}set{_S}\S+{_S}\S+{_S}\S+{_S}{_WORD}",
    r"\baccount\.key\.[\w.-]+[\"']?[ \t]*[,=][ \t]*[\"']?([A-Za-z0-9+/=]{40,})",
    rf"\bsnmp(?:-server|get|set|walk|bulkwalk)\b{_REST}[ \t](?:community|-c){_S}{_WORD}",
    rf"\b(?:enable|username{_S}\S+|neighbor{_S}\S+|privilege{_S}\d+){_S}(?:password|secret){_S}\d{_S}{_WORD}",
    r"(?m:^[ \t]*password[ \t]+7[ \t]+([0-9A-F]{8,}))",
    rf"\b(?:{_TOOLS}) (?:config )?(?:auth )?(?:login|token|add-authtoken|authtoken){_S}{_WORD}",
    rf"(?i:\bsecrets? (?:set|put|create|add)\b{_REST}(?:=|[ \t](?:-b|--body|--value|--data)[ \t=]){_WORD})",
    rf"(?i:\b(?:config|obscure|update|create)\b{_REST}[ \t]pass{_S}{_WORD})",
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
_SEPARATOR = r"[\"'`]?[ \t]*(?:is|was|are|were|[:=]|)[ \t\n]*[\"'`]?"
_CODES = (
    rf"(?i:\b(?:backup|recovery|scratch|2fa|otp|one-time)[ _-]?codes?{_SEPARATOR}"
    r"((?:[a-z0-9]{2,5}-?[0-9][a-z0-9]{2,5}[ ,;\n]+)+[a-z0-9]{2,5}-?[0-9][a-z0-9]{2,5})\b)"
)
_SENT = (
    r"(?i:\b((?:[a-z]-)?\d{4,8})[ \t]is[ \t]your[ \t](?:[\w-]+[ \t]){0,4}"
    r"(?:code|otp|pin|passcode|password)\b)"
)
_PHRASE = (
    rf"(?i:\b(?:seed|recovery|mnemonic|backup|wallet)[ _-]?(?:phrase|words)?{_SEPARATOR}"
    r"((?:[a-z]{3,8}[ ,\n]+){11,23}[a-z]{3,8})\b)"
)
# Words that occur in no seed phrase.
_OF_SENTENCES = word_set(
    "the and that was with for from this are not you has have been which then when where"
)


# A second argument of a call: the function's name says what it is.
_SECOND_ARGUMENT = r"(?:,[ \t\n]*(?:\w+[ ]?=[ ]?)?[brfu]?[\"'])([^\s\"'\\]{6,128})[\"']"
_CALL = re.compile(r"([\w.$>:-]*\w)\([^()\n]*$")
_OF_PASSWORDS = word_set(
    "auth login signin sign encrypt decrypt hmac jwt credential credentials session connect connection "
    "authenticate authorize password passwd pw pwd secret basicauth digestauth cipher cipheriv sso ldap "
    "bind"
)
_OF_KEYS = _OF_PASSWORDS | word_set(
    "client api sdk token key keys configure config init initialize setup register basic digest header "
    "provider mailer gateway service signer"
)
_OF_NEITHER = word_set(
    "error exception assert equal equals expect test hash sha md5 checksum commit checkout etag uuid "
    "compare get find query lookup load read print log warn info debug format replace split join match "
    "search isinstance getattr t"
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CALL_LENGTH = 300
_HEX_KEY = re.compile(r"[0-9a-f]{20,}|[0-9A-F]{20,}")


def _likely(view: View) -> Iterator[Finding]:
    """Yield made-up values where a secret is likely, lists of codes, and seed phrases."""
    if not has_any((_LIKELY, _SECOND_ARGUMENT, _CODES, _SENT, _PHRASE), view.data):
        return
    for start, end in spans(_LIKELY, view.data):
        text = view.text[start:end].rstrip(_TRAILING)
        is_other = is_placeholder(text) or is_code(text) or is_path(text)
        is_phrase = is_wordy(text) and ("-" in text or "_" in text)  # retry-after-30
        if looks_made_up(text) and not is_other and not is_phrase:
            yield Finding(start, start + len(text), Kind.PASSWORD)
    for start, end in spans(_SECOND_ARGUMENT, view.data):
        if _is_key_argument(view.text, start, end):
            yield Finding(start, end, Kind.API_KEY)
    for pattern in (_CODES, _SENT):
        for span in spans(pattern, view.data):
            yield Finding(*span, Kind.CODE)
    for start, end in spans(_PHRASE, view.data):
        if not _OF_SENTENCES.intersection(view.text[start:end].lower().split()):
            yield Finding(start, end, Kind.SECRET)


def _is_key_argument(text: str, start: int, end: int) -> bool:
    """Whether a quoted text is a key passed to a call: `Client("eu", "...")`."""
    value, call = text[start:end], _CALL.search(text[max(0, start - _CALL_LENGTH) : start])
    if call is None or is_placeholder(value) or is_path(value) or is_url(value) or is_requirement(value):
        return False
    parts = [part.lower() for part in _PART.findall(call[1])]
    if not parts or (parts[-1] not in _OF_KEYS and not _OF_NEITHER.isdisjoint(parts)):
        return False
    if looks_random(value):
        return True
    if _HEX_KEY.fullmatch(value):
        is_made = re.split(r"[.>:]+", call[1])[-1][0].isupper()  # a class
        return is_made or not _OF_KEYS.isdisjoint(parts)
    is_phrase = is_wordy(value) and ("-" in value or "_" in value)
    is_made_up = looks_made_up(value) and not is_phrase and not is_code(value)
    return is_made_up and not _OF_PASSWORDS.isdisjoint(parts)


# --- inside Base64 and hexadecimal, also inside each other and wrapped over lines ---

_SHORTEST_CODE = 16
_SAMPLE = 48
_TEXT_SHARE = 0.95
_BASE64 = (
    r"[A-Za-z0-9+/_-]{16,}(?:[ \t>|]{0,8}\\?\r?\n[ \t>"
    r"|\"']{0,40}[A-Za-z0-9+/_-]{16,})*(?:\r?\n[ \t]{0,40}[A-Za-z0-9+/_-]{1,76})?={0,2}"
)
_HEX = r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[ :,]{0,2}){7,}(?:0x|\\x)?[0-9a-fA-F]{2}"
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
_NO_HEX = re.compile(r"0x|\\x|[^0-9a-fA-F]")
_READABLE = bytes([0, 9, 10, 13, 27, *range(32, 127)])


def _encoded(view: View, holds_secret: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield encoded texts for which `holds_secret` is true once they are decoded."""
    for start, end in spans(_BASE64, view.data):
        if any(holds_secret(text) for text in _from_base64(view.text[start:end])):
            yield Finding(start, end, Kind.ENCODED)
    for start, end in spans(_HEX, view.data):
        if any(holds_secret(text) for text in _from_hex(view.text[start:end])):
            yield Finding(start, end, Kind.ENCODED)


def _from_base64(blob: str) -> Iterator[str]:
    """Yield the texts that a blob may decode to, one for each possible start of its first group of four."""
    code = _NO_BASE64.sub("", blob.replace("-", "+").replace("_", "/"))
    if len(code) < _SHORTEST_CODE:
        return
    for offset in range(4):
        end = len(code) - (len(code) - offset) % 4
        # Most blobs are words or binary, which a sample shows.
        if _is_text(_decoded(code[offset : min(end, offset + _SAMPLE)])):
            yield _decoded(code[offset:] + "=" * (-(len(code) - offset) % 4)).decode("latin-1")


def _from_hex(blob: str) -> Iterator[str]:
    code = _NO_HEX.sub("", blob)
    for offset in range(2):
        even = code[offset : len(code) - (len(code) - offset) % 2]
        plain = bytes.fromhex(even)
        if _is_text(plain[:_SAMPLE]):
            yield plain.decode("latin-1")


def _decoded(code: str) -> bytes:
    try:
        return base64.b64decode(code)
    except (binascii.Error, ValueError):  # one character too many at the end
        return base64.b64decode(code[: len(code.rstrip("=")) // 4 * 4])


def _is_text(sample: bytes) -> bool:
    # Half of the bytes of UTF-16 are zero.
    unreadable = len(sample.translate(None, _READABLE))
    return len(sample) > 2 * sample.count(0) - 2 and unreadable <= (1 - _TEXT_SHARE) * len(sample)
