"""Check arguments, and name values, errors and the nearest name in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from inspect import iscoroutinefunction
from os import fsencode
from pathlib import Path
from sys import float_info
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast
from urllib.parse import urlsplit

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

PREFIX_LENGTH = 3
"""How many letters of a prefix suggest a name: `codegen` suggests `code_generation`."""


def nearest(name: str, choices: Iterable[str]) -> str:
    """Hint for an error message: the name that was probably meant, and all names."""
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    names, prefix = list(choices), name.lower()[:PREFIX_LENGTH]
    close = (
        get_close_matches(name, names, 1)
        or get_close_matches(name.lower(), names, 1)
        or [other for other in names if len(prefix) == PREFIX_LENGTH and other.startswith(prefix)]
    )
    if not names:
        return "none are defined."
    listed = f"expected {'one of ' if len(names) > 1 else ''}{', '.join(map(repr, names))}."
    return f"did you mean {close[0]!r}? E{listed[1:]}" if close else listed


def readable(value: object, render: Callable[[Any], str] = str) -> str:
    """The text of a value by `str` or `repr`; a note in its place if the value's class raises an error."""
    try:
        return render(value)
    except Exception as error:  # noqa: BLE001 (a user's class may raise anything)
        return f"<{type(value).__name__}, whose {render.__name__}() raises {type(error).__name__}>"


def repr_of(value: object) -> str:
    """The `repr` of a value for a message, also if its class raises an error."""
    return readable(value, repr)


CRITERION_FUNCTION_NOTE = "The function of the criterion "
"""Prefix of the note on an exception that a criterion's function raised."""


def named_error(error: BaseException) -> str:
    """The class and the message of an error, such as "ValueError: no number".

    They come after the criterion, if a criterion's function raised the error.
    """
    text = f"{type(error).__name__}: {readable(error)}".removesuffix(": ")
    return ": ".join(filter(None, (criterion_note(error), text)))


def criterion_note(error: BaseException) -> str:
    """The note that names the criterion whose function raised an error; "" for other errors."""
    notes = (note for note in getattr(error, "__notes__", ()) if isinstance(note, str))
    return next((note for note in notes if note.startswith(CRITERION_FUNCTION_NOTE)), "")


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a finite number within the range of a float; a bool is not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def is_web_address(text: str) -> bool:
    """Whether a text may be the URL of a request: HTTP or HTTPS, with a host and a valid port."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


MOST = 10**12
"""The highest count: databases hold it, and also the sum of a million such counts."""


def check_count(name: str, value: Any, least: int, most: int | None = MOST) -> None:
    """Require a whole number from `least` to `most`; raises `ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {repr_of(value)}.")
    if most is not None and value > most:
        raise ConfigError(f"{name} must be a whole number of at most {most:,}.")


def check_limit(name: str, value: Any) -> None:
    """Require None or a whole number of at least 1; raises `ConfigError`."""
    if value is not None:
        check_count(name, value, 1)


MOST_CANDIDATES = 6


def only(matches: Sequence[T], query: str, things: str, name: Callable[[T], str]) -> T | None:
    """The only match, or None if nothing matches; raises a `ConfigError` that lists several matches."""
    if len(matches) > 1:
        names = ", ".join(map(name, matches[:MOST_CANDIDATES]))
        more = f" and {len(matches) - MOST_CANDIDATES} more" if len(matches) > MOST_CANDIDATES else ""
        raise ConfigError(
            f"Several {things} match {query!r}: {names}{more}. Give more characters of the one you mean."
        )
    return matches[0] if matches else None


def check_share(name: str, value: Any) -> None:
    """Require a number in 0..1; raises `ConfigError`."""
    if not is_number(value) or not 0 <= value <= 1:
        raise ConfigError(f"{name} must be a number in 0..1, got {repr_of(value)}.")


def check_bound(name: str, value: Any) -> None:
    """Require None or a positive number; raises `ConfigError`."""
    if value is not None and (not is_number(value) or value <= 0):
        raise ConfigError(f"{name} must be a number above 0, or None for no limit; got {repr_of(value)}.")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Require one of `choices`; raises a `ConfigError` that suggests the nearest."""
    if value not in choices:
        raise ConfigError(f"{name}: unknown value {repr_of(value)}; {nearest(readable(value), choices)}")


def check_flag(name: str, value: Any) -> None:
    """Require True or False, because a string such as "no" is true; raises `ConfigError`."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {repr_of(value)}.")


def check_function(name: str, value: Any) -> None:
    """Require None or a function that is not async; raises `ConfigError`."""
    if value is None:
        return
    is_async = iscoroutinefunction(value) or iscoroutinefunction(getattr(value, "__call__", None))  # noqa: B004 (the method)
    if not callable(value) or is_async:
        raise ConfigError(f"{name} must be a function that is not async, got {repr_of(value)}.")


def check_functions(name: str, value: Any) -> None:
    """Require a mapping from names to functions; raises `ConfigError`."""
    is_mapping = isinstance(value, Mapping)
    if not is_mapping or not all(map(callable, cast("Mapping[Any, Any]", value).values())):
        got = repr_of(cast("object", value))
        raise ConfigError(f"{name} must be a mapping from names to functions, got {got}.")


def check_model(name: str, value: Any) -> None:
    """Require None, the name of a model, a `ChatModel`, or a list of these; raises `ConfigError`."""
    if value is None or (isinstance(value, str) and value.strip()):
        return
    if isinstance(value, list | tuple) and value and None not in value:
        for model in cast("list[object]", value):
            check_model(name, model)
        return
    if not callable(cast("object", value)) or isinstance(value, type):
        raise ConfigError(
            f"{name} must be the name of a model, such as 'openai:gpt-5-mini', or a ChatModel; "
            f"got {repr_of(cast('object', value))}."
            f"{_hint_for(cast('object', value))}"
        )


_FOREIGN = {
    "pydantic_ai.models": "For a model of Pydantic AI: ProviderModel(model), from redraft.models.",
    "pydantic_ai.agent": "For an agent of Pydantic AI: Agent.from_pydantic_ai(agent).",
    "agents.agent": "For an agent of the OpenAI Agents SDK: reflecting(agent), from "
    "redraft.integrations.openai_agents.",
    "langgraph": "For a graph of LangGraph: reflecting(graph), from redraft.integrations.langgraph.",
    **dict.fromkeys(
        ("openai", "anthropic", "google.genai", "mistralai", "groq"),
        "For a client of a provider: the name of the model; or a function that uses it, with @reflected.",
    ),
}
"""How to use objects of other libraries, by the beginning of their class's module."""


def _hint_for(value: object) -> str:
    """How to use an object of another library, as a sentence after a space; "" for any other object."""
    for kind in type(value).__mro__:
        for module, hint in _FOREIGN.items():
            if f"{kind.__module__}.".startswith(f"{module}."):
                return f" {hint}"
    return ""


def check_name(name: str, value: Any) -> None:
    """Require a non-empty string; raises `ConfigError`."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} must be a non-empty string, got {repr_of(value)}.")


def check_text(name: str, value: Any) -> None:
    """Require a string, which may be empty; raises `ConfigError`."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, got {repr_of(value)}.")


def check_list(name: str, value: Any) -> None:
    """Require a list or tuple; raises `ConfigError`."""
    check_kind(name, value, (list, tuple), "a list")


def check_iterable(name: str, value: Any, expected: str) -> None:
    """Require several values, not a string; raises `ConfigError`."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigError(f"{name} must be {expected}, got {repr_of(value)}.")


def check_kind(name: str, value: Any, kind: type[Any] | tuple[type[Any], ...], expected: str) -> None:
    """Require an instance of a class; raises `ConfigError` that says what is `expected`."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {expected}, got {repr_of(value)}.")


def checked_path(name: str, value: Any) -> Path:
    """Convert a string or path; raises `ConfigError` for what can't be a path."""
    with suppress(TypeError, ValueError):  # a path of bytes, a NUL character, a lone surrogate
        path = Path(value)
        if b"\0" not in fsencode(path):
            return path
    raise ConfigError(f"{name} must be a path, got {repr_of(value)}.")


def checked_price(where: str, price: Any) -> tuple[float, float]:
    """Check a price: US dollars for a million input and a million output tokens; raises `ConfigError`."""
    amounts: tuple[Any, ...] = tuple(cast("list[Any]", price)) if isinstance(price, list | tuple) else ()
    if len(amounts) != 2 or not all(is_number(usd) and usd >= 0 for usd in amounts):  # noqa: PLR2004 (input and output)
        raise ConfigError(
            f"{where} must be two amounts in US dollars, for a million input and a million output tokens, "
            f"such as (0.5, 1.5); got {repr_of(cast('object', price))}."
        )
    return amounts[0], amounts[1]
