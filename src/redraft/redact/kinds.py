"""Kinds of findings, the mark that replaces a finding, and the redacted text."""

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
    """The kind of a finding, in the words of its mark."""

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


SECRET_KINDS = frozenset(
    {
        Kind.KNOWN,
        Kind.PRIVATE_KEY,
        Kind.API_KEY,
        Kind.TOKEN,
        Kind.PASSWORD,
        Kind.SECRET,
        Kind.CODE,
        Kind.COOKIE,
        Kind.ENCODED,
        Kind.UNCLEAN,
    }
)
"""The kinds of the category `secrets`."""


def mark(kind: Kind) -> str:
    """The mark that replaces a finding of this kind."""
    return f"[withheld: {kind}]"


# Complete marks only: a text that merely begins like one may hide something.
MARK = re.compile(r"\[withheld: (?:" + "|".join(re.escape(kind) for kind in Kind) + r")\]")


class Finding(NamedTuple):
    """A span of a text to withhold, from `start` up to `end`."""

    start: int
    end: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Redacted:
    """A redacted text."""

    text: str
    """The text with a mark in place of each finding."""
    counts: Mapping[str, int]
    """The number of findings by kind."""

    def __str__(self) -> str:
        return self.text
