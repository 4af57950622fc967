"""What this machine knows to be secret: its environment, its names."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from redraft.redact.kinds import Category, Kind
from redraft.redact.labels import is_secret_name
from redraft.redact.redactor import Redactor
from redraft.redact.values import is_placeholder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from redraft.redact.redacted import Redacted

EVERY_CATEGORY = tuple(Category)
_LOGIN = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^\s/@:]*:(\S+)@[^\s@]*\Z")
_PATH = re.compile(r"(?:[A-Za-z]:)?[/\\][\w./\\ -]*")


def redactor_of_environment(
    *,
    environment: Mapping[str, str] | None = None,
    known: Iterable[str] = (),
    also: Collection[Category] = (Category.PERSONAL,),
) -> Redactor:
    """Return a redactor that knows the secrets of the environment and the names of this machine and its user.

    Secret are the values of variables with secret-like names and the passwords inside addresses. Personal
    data is withheld, too, unless `also` says otherwise. `environment` stands in for the process's own;
    `known` are further secrets.
    """
    variables = os.environ if environment is None else environment
    return Redactor([*secrets_of(variables), *known], also=also, places=_places(variables))


def redact(text: str) -> Redacted:
    """Return a text without secrets, personal data and internal names, and how many of each kind were found.

    What the environment of this process says is secret is known, too. Redacting the result again changes
    nothing. Takes a millisecond for a kilobyte, at most five.
    """
    return redactor_of_environment(also=EVERY_CATEGORY).redact(text)


def secrets_of(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables that are secret."""
    for name, value in variables.items():
        if is_secret_name(name) and not is_placeholder(value) and not _PATH.fullmatch(value):
            yield value
        if login := _LOGIN.match(value):
            yield login[1]
            yield unquote(login[1])


def _places(variables: Mapping[str, str]) -> dict[str, Kind]:
    import socket  # noqa: PLC0415 (only who redacts pays for it)

    places: dict[str, Kind] = {}
    for name in (socket.gethostname(), variables.get("HOSTNAME", ""), variables.get("COMPUTERNAME", "")):
        places[name] = Kind.HOST
        places.setdefault(name.split(".", maxsplit=1)[0], Kind.HOST)
    for name in (variables.get("USER", ""), variables.get("LOGNAME", ""), variables.get("USERNAME", "")):
        places[name] = Kind.USER
    for folder in (variables.get("HOME", ""), variables.get("USERPROFILE", "")):
        places[folder.rstrip("/\\")] = Kind.HOME
    return {name: kind for name, kind in places.items() if name}
