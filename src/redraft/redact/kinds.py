"""Kinds: what can be found in a text, the mark that replaces it, and the text that results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Category(StrEnum):
    """A group of kinds; secrets are always withheld, the others on request."""

    SECRETS = "secrets"
    PERSONAL = "personal"
    INFRASTRUCTURE = "infrastructure"


class Kind(StrEnum):
    """What was found, in the words of its mark."""

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
    POSITION = "position"
    PLATE = "license plate"
    ADDRESS = "network address"
    HOST = "host name"
    RESOURCE = "cloud resource"
    USER = "user name"
    HOME = "home folder"
    UNCLEAN = "text that could not be made clean"


def mark(kind: Kind) -> str:
    """Return the mark that replaces a finding in a text."""
    return f"[withheld: {kind}]"


# Complete marks only: a text that merely begins like one may hide something.
MARK = re.compile(r"\[withheld: (?:" + "|".join(re.escape(kind) for kind in Kind) + r")\]")


class Finding(NamedTuple):
    """What a text holds from `start` up to `end`."""

    start: int
    end: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text with marks in place of its findings, and how many of each kind there were, without values."""

    text: str
    counts: Mapping[str, int]

    def __str__(self) -> str:
        return self.text
