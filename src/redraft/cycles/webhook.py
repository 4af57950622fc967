"""Webhook: sign requests, and verify signed ones, by the Standard Webhooks specification."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hashlib import sha256
from typing import TYPE_CHECKING

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

__all__ = ["secret_key", "signature_problem", "signed_headers"]

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
"""The headers of a signed request."""
WINDOW = 300
"""The allowed difference between the time of a request and ours, in seconds; prevents replays."""
MIN_SECRET = 16
"""The minimum size of a secret, in bytes, against brute force."""
MAX_ID = 200
_PREFIX, _VERSION = "whsec_", "v1,"


def secret_key(secret: str, name: str) -> bytes:
    """The key of a secret: decoded base64 after `whsec_`, otherwise the text itself.

    Raises `ConfigError` with the `name` of the secret if it is too short, or not base64.
    """
    try:
        encoded = secret.removeprefix(_PREFIX)
        key = b64decode(encoded, validate=True) if encoded != secret else secret.encode()
    except Base64Error as error:
        raise ConfigError(
            f"The secret {name!r} begins with {_PREFIX!r}, but isn't base64 after it."
        ) from error
    if len(key) < MIN_SECRET:
        raise ConfigError(
            f"The secret {name!r} must have at least {MIN_SECRET} bytes, got {len(key)}. "
            "`openssl rand -hex 32` makes one."
        )
    return key


def signed_headers(key: bytes, message_id: str, body: bytes, at: datetime) -> dict[str, str]:
    """The headers that sign a request; a repetition of the request has the same id."""
    timestamp = str(int(at.timestamp()))
    return {ID: message_id, TIMESTAMP: timestamp, SIGNATURE: _signature(key, message_id, timestamp, body)}


def signature_problem(key: bytes, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    """Why a request must not be trusted; empty if its signature is valid. Header names are in lower case."""
    if reason := header_problem(headers, now):
        return reason
    expected = _signature(key, headers[ID], headers[TIMESTAMP], body).encode()
    # There are several while the sender changes its secret.
    signatures = headers[SIGNATURE].encode("utf-8", "replace").split(b" ")
    if not any([hmac.compare_digest(expected, signature) for signature in signatures]):  # noqa: C419 (in constant time)
        return f"{SIGNATURE} does not match the body"
    return ""


def header_problem(headers: Mapping[str, str], now: datetime) -> str:
    """Why the headers alone make a request untrustworthy; empty if its body must be verified, too.

    Header names are in lower case.
    """
    message_id, timestamp = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    if not message_id or not timestamp or SIGNATURE not in headers:
        return f"expected the headers {ID}, {TIMESTAMP} and {SIGNATURE}"
    if len(message_id) > MAX_ID:
        return f"{ID} is limited to {MAX_ID} characters"
    if not (timestamp.isascii() and timestamp.isdigit()) or len(timestamp) > len("9999999999"):
        return f"{TIMESTAMP} must be a Unix time in seconds"
    if abs(now.timestamp() - int(timestamp)) > WINDOW:
        return f"{TIMESTAMP} is more than {WINDOW} seconds from now"
    if f" {_VERSION}" not in f" {headers[SIGNATURE]}":
        return f"{SIGNATURE} holds none of version v1, so it does not match the body"
    return ""


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return _VERSION + b64encode(hmac.new(key, signed, sha256).digest()).decode()
