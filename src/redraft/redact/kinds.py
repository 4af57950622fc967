"""Kind: what can be found in a text, and the mark that stands there instead."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class Category(StrEnum):
    """Name what belongs together, so that a surface can choose; secrets are always withheld."""

    SECRETS = "secrets"
    PERSONAL = "personal"
    INFRASTRUCTURE = "infrastructure"


class Kind(StrEnum):
    """Name what was found, as a person would."""

    KNOWN = "known secret"
    PRIVATE_KEY = "private key"
    API_KEY = "api key"
    TOKEN = "token"  # noqa: S105 (a name of a kind)
    PASSWORD = "password"  # noqa: S105 (a name of a kind)
    SECRET = "secret"  # noqa: S105 (a name of a kind)
    CODE = "one-time code"
    COOKIE = "cookie"
    ENCODED = "encoded secret"
    EMAIL = "email address"
    PHONE = "phone number"
    CARD = "card number"
    ACCOUNT = "bank account"
    IDENTITY = "identity number"
    RECORD = "record number"
    ACCOUNT_ID = "account id"
    BIRTHDAY = "date of birth"
    NAME = "name"
    STREET = "street address"
    ADDRESS = "network address"
    HOST = "host name"
    RESOURCE = "cloud resource"
    USER = "user name"
    HOME = "home folder"
    UNCLEAN = "text that could not be made clean"


def mark(kind: Kind) -> str:
    """Return what stands in a text instead of what was found."""
    return f"[withheld: {kind}]"


# Only whole marks: a text that merely begins as one does is no mark, and may hide something.
MARK = re.compile(r"\[withheld: (?:" + "|".join(re.escape(kind) for kind in Kind) + r")\]")


class Found(NamedTuple):
    """Say what stands from `start` up to `end` of a text."""

    start: int
    end: int
    kind: Kind
