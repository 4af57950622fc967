"""What a workflow is given on the command line: `-v NAME=TEXT`, `NAME=@FILE`, `NAME:=JSON`."""

from __future__ import annotations

import json
import sys
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


def given_values(words: Sequence[str]) -> dict[str, Any]:
    """Return the values that `-v` names; raises `ConfigError` for one that can't be read, or comes twice.

    A text stays a text, whatever it looks like: only `:=` makes JSON of it.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":").strip()
        if not equals or not name:
            raise ConfigError(
                f"-v {word!r} is no value: expected NAME=TEXT, NAME=@FILE, NAME:=JSON or NAME:=@FILE."
            )
        if name in values:
            raise ConfigError(f"-v {name!r} is given twice.")
        content = read_text(text[1:], f"-v {name}") if text.startswith("@") else text
        values[name] = _json(name, content) if is_json else content
    return values


def read_text(file: str, what: str) -> str:
    """Read a file, or standard input for `-`; raises `ConfigError`, which begins with `what`."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what}: {file!r} is not UTF-8 text.") from error
    except (OSError, ValueError) as error:  # a name with a NUL is no OSError
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{what}: {file!r} cannot be read: {said}.") from error


def _json(name: str, text: str) -> Any:
    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON number")

    def finite(word: str) -> float:
        if isfinite(number := float(word)):
            return number
        raise ValueError(f"{word} is larger than a number can be")

    try:
        return json.loads(text, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"-v {name}: this is no JSON: {error}. For a text, write {name}=TEXT.") from error
