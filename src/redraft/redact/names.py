"""Names that may be secret-like, where they stand in a text, whole."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from redraft.redact.engine import spans
from redraft.redact.values import looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.redact.view import View

_LABEL = (
    r"(?i:one[- ]time[ _-](?:pass(?:word|code)|code|pin)"
    r"|pass(?:word|wd|phrase|code|wort|wrod|ord)|pass?word"
    r"|(?:store|key|trust|user|db|root)pass\b|pswd|paswd|passwd|\bpass\b|_pass\b|pwd|\bpsk\b|\bpw\b|_pw\b"
    r"|l(?:o|\xf6)senord|\bhaslo\b|\bheslo\b|\bparola\b"
    r"|adgangskode|salasana|kennwort|contrase(?:n|\xf1)a|\bsenha\b|\bmot de passe\b|\bwachtwoord\b"
    r"|secret[ _.-]?(?:access[ _.-]?)?keys?|secret|token|cred(?:ential)?s?\b|mnemonic|auth|bearer"
    r"|\bjwt\b|\bpat\b|_pat\b|api[ _.-]{0,2}key"
    r"|(?:access|private|encryption|signing|master|license|licence|account"
    r"|storage|shared|service|session|deploy|client|admin|ssh|consumer|subscription|webhook|recovery|backup"
    r"|hmac|unseal|wi-?fi|wpa2?|functions?|product|network)[ _.-]?keys?"
    r"|[a-z0-9][_.-]key\b|[a-z0-9]Key\b|\bkey\b"
    r"|(?:verification|security|confirmation|login|sms|backup|recovery|access|2fa|mfa|otp|totp|pin|unlock|door"
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


def names(view: View) -> Iterator[tuple[int, int]]:
    """Yield where names stand that may be secret-like, whole: `DB_PASSWORD`, not `PASSWORD`."""
    text, done = view.text, 0
    for first, last in spans(_LABEL, view.data):
        if first < done:
            continue
        before = text[max(done, first - _LONGEST_NAME) : first]
        start = first - len(before) + len(before.rstrip(_IN_NAME))
        behind = text[last : last + _LONGEST_NAME]
        end = last + len(behind) - len(behind.lstrip(_IN_NAME))
        done = start + len(text[start:end].rstrip(".-$"))
        if not _is_in_blob(text, start, done):
            yield start, done


def _is_in_blob(text: str, start: int, end: int) -> bool:
    """Say whether a name stands by chance in a random text: any three letters do, if it is long enough."""
    if (
        text[start - 1 : start] not in _IN_BLOB
        and text[end : end + 1] not in _IN_BLOB
        and end - start < _LONG_NAME
    ):
        return False
    before, behind = text[max(0, start - _LONG_NAME) : start], text[end : end + _LONG_NAME]
    blob = (
        before[len(before.rstrip(_OF_BLOB)) :]
        + text[start:end]
        + behind[: len(behind) - len(behind.lstrip(_OF_BLOB))]
    )
    return len(blob) > _LONG_NAME and looks_random(blob)
