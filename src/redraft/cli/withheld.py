"""What a command shows of a run as it happens, and of an error: without the secrets in it."""

from __future__ import annotations

import os
from typing import TypeVar

from redraft.redact.environment import secrets_of
from redraft.redact.kinds import Category
from redraft.redact.redactor import Redactor

T = TypeVar("T")


def withheld(value: T) -> T:
    """Return a text, plain data or a dataclass with its secrets and personal data withheld.

    The names of the machine and its user stay: they are told to nobody but that user, who needs the paths.
    """
    return Redactor(secrets_of(os.environ), also=(Category.PERSONAL,)).redact_object(value)
