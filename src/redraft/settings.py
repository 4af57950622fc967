"""Settings: from an argument, else the environment, else `redraft.toml`, else the default."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from redraft.errors import ConfigError

SETTINGS_FILE = "redraft.toml"
DEFAULT_HOME = ".redraft"
NO_EMBEDDER = "none"
"""The embedder's name that turns embedding off: full-text search only."""
ANY_ADDRESSES, PUBLIC_ADDRESSES = "any", "public"
"""The values of the setting `http_addresses`."""


def _setting(variable: str, description: str, default: Any = None, *, is_secret: bool = False) -> Any:
    return field(
        default=default, repr=not is_secret, metadata={"variable": variable, "description": description}
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that apply unless an argument overrides them; the metadata of a field describes it."""

    model: str | None = _setting(
        "REDRAFT_MODEL",
        "The model to use: `provider:model`, `local:PATH.gguf`; several, separated by commas, are tried in "
        "order.",
    )
    reflection_model: str | None = _setting(
        "REDRAFT_REFLECTION_MODEL", "The model that judges, if different from `model`."
    )
    embedder: str | None = _setting(
        "REDRAFT_EMBEDDER",
        "The model that finds lessons by meaning: `local:minilm`, `provider:model`, or `none` for full text "
        "only.",
    )
    home: str = _setting(
        "REDRAFT_HOME", "The folder to store runs in; if empty, nothing is stored.", DEFAULT_HOME
    )
    memory: str = _setting(
        "REDRAFT_MEMORY",
        "The folder for what agents learn, as Markdown; with `database_url`, only for the search index.",
        "memory",
    )
    database_url: str | None = _setting(
        "REDRAFT_DATABASE_URL",
        "A PostgreSQL database to store runs in, instead of a file in `home`: "
        "`postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.",
        is_secret=True,
    )
    long_term_storage: str | None = _setting(
        "REDRAFT_LONG_TERM_STORAGE",
        "A PostgreSQL database for the memory of agents that run in cycles: a URL as above.",
        is_secret=True,
    )
    dashboard_url: str | None = _setting(
        "REDRAFT_DASHBOARD_URL",
        "The address under which people reach `redraft ui`, such as `https://redraft.example.org`: it "
        "answers to that host, and agents' notices link to it.",
    )
    http_addresses: str = _setting(
        "REDRAFT_HTTP_ADDRESSES",
        "The addresses that requests of workflows and agents in cycles may reach: `any`, or `public`, which "
        "refuses those of this machine and of private networks.",
        "any",
    )
    project: str | None = _setting(
        "REDRAFT_PROJECT",
        "The name that separates this project's runs from others in the same database or home. Defaults to "
        "the project folder on this machine: set it if there are several machines or containers.",
    )
    redact_allow: tuple[str, ...] = _setting(
        "REDRAFT_REDACT_ALLOW",
        "Terms that are never withheld as personal data or internal names, such as "
        '`["Acme Corp", "Ada"]`; in the variable, separated by commas.',
        (),
    )
    models: dict[str, str] = field(
        default_factory=dict[str, str],
        metadata={"variable": None, "description": "Your own names for models, such as `fast`."},
    )
    prices: dict[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]],
        metadata={
            "variable": None,
            "description": "What models cost by their full names, such as "
            '`"openai-chat:my-model" = [0.5, 1.5]`: '
            "US dollars for a million input and a million output tokens.",
        },
    )
    hook: dict[str, Any] = field(
        default_factory=dict[str, Any],
        metadata={
            "variable": None,
            "description": "What `redraft hook` does for coding agents; docs/coding-agents.md has its keys.",
        },
    )


REMOVED = {
    "smtp_url": "agents notify people through one webhook: see 'Notifications' in docs/cycles.md.",
}
"""Settings of earlier versions, each with its replacement."""

TABLES = ("models", "prices", "hook")
"""The settings that are tables of `redraft.toml`, without a variable."""


def load_settings(folder: Path | None = None) -> Settings:
    """Read the settings that apply in `folder` (default: the working directory).

    The file is `redraft.toml` in `folder`, or in the nearest folder above that has one. Raises `ConfigError`
    if it is not TOML, or has an unknown key or a value of the wrong type.
    """
    return settings_in(project_folder(folder))


def settings_in(project: Path) -> Settings:
    """Read the settings that apply in the folder of a project; raises as `load_settings` does."""
    values: dict[str, Any] = _from_file(project / SETTINGS_FILE)
    for setting in fields(Settings):
        if (value := in_environment(setting.name, setting.metadata["variable"])) is not None:
            values[setting.name] = (
                allowed_terms(value, setting.metadata["variable"]) if setting.name == _TERMS else value
            )
    addresses = values.get("http_addresses", ANY_ADDRESSES)
    if addresses not in (ANY_ADDRESSES, PUBLIC_ADDRESSES):
        raise ConfigError(
            f"The setting `http_addresses` (REDRAFT_HTTP_ADDRESSES) must be {ANY_ADDRESSES!r} or "
            f"{PUBLIC_ADDRESSES!r}, got {addresses!r}."
        )
    return Settings(**values)


def in_environment(name: str, variable: str | None) -> str | None:
    """The value of a setting in the environment; an empty value counts only for some settings."""
    value = os.environ.get(variable) if variable else None
    return value if value or name in _MAY_BE_EMPTY else None


_TERMS = "redact_allow"
_MODEL_KEYS = frozenset({"model", "reflection_model"})
_MAY_BE_EMPTY = ("home", "database_url", "long_term_storage")
"""An empty home stores nothing. An empty URL is an error: data must not end up in another place."""


def without_password(url: str) -> str:
    """Remove possible passwords from a URL, for display."""
    url = re.sub(r"(?<=://)([^:@/]*):.*@", r"\1@", url, flags=re.DOTALL)
    return re.sub(r"([?&][^=&]*password=)[^&]*", r"\1...", url, flags=re.IGNORECASE)


def project_folder(folder: Path | None = None) -> Path:
    """The nearest folder with a `redraft.toml`, from `folder` upwards; without such a file, `folder`.

    Raises `ConfigError` if there is no working directory any more, or a folder can't be read.
    """
    try:
        start = (folder or Path.cwd()).resolve()
        parents = (start, *start.parents)
        return next((parent for parent in parents if (parent / SETTINGS_FILE).is_file()), start)
    except OSError as error:
        where = repr(str(folder)) if folder else "The working directory"
        raise ConfigError(f"{where} can't be used: {error.strerror}. Change to another folder.") from error


def hooks_folder(project: Path) -> Path | None:
    """The folder for the data of hooks, in `REDRAFT_HOME` or `.redraft`; None if `REDRAFT_HOME` is empty.

    `home` in `redraft.toml` doesn't count: an agent that may change this file must not move the criteria by
    which it is judged. Projects that share an absolute home have a folder each.
    """
    home = in_environment("home", "REDRAFT_HOME")
    if home == "":
        return None
    folder = Path(home or DEFAULT_HOME)
    suffix = f"-{sha256(os.fsencode(project)).hexdigest()[:16]}" if folder.is_absolute() else ""
    return project / folder / f"hooks{suffix}"


def cache_folder() -> Path:
    """The user's cache folder, which may not exist: `$XDG_CACHE_HOME/redraft`, or `~/.cache/redraft`.

    Raises `RuntimeError` for a user without a home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "redraft"


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    import tomllib  # noqa: PLC0415 (only projects with a settings file need it)

    try:
        values = tomllib.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also an integer of too many digits, and deep nesting
        raise ConfigError(f"{path.name} is not valid TOML: {error}.") from error
    except OSError as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error.strerror}.") from error
    names = {setting.name for setting in fields(Settings)}
    for key in _MODEL_KEYS & values.keys():
        values[key] = joined_names(values[key])
    if isinstance(aliases := values.get("models"), dict):
        values["models"] = {
            name: joined_names(model) for name, model in cast("dict[str, object]", aliases).items()
        }
    for key, value in values.items():
        if key in REMOVED:
            raise ConfigError(f"{path.name}: the setting {key!r} no longer exists; {REMOVED[key]}")
        if key not in names:
            from redraft._validation import nearest  # noqa: PLC0415 (only an error needs it)

            raise ConfigError(f"{path.name}: unknown setting {key!r}; {nearest(key, sorted(names))}")
        if key == _TERMS:
            values[key] = allowed_terms(value, f"{path.name}: {key}")
            continue
        expected = dict if key in TABLES else str
        if not isinstance(value, expected):
            raise ConfigError(f"{path.name}: {key} must be a {expected.__name__}, got {value!r}.")
        if isinstance(value, str) and "\0" in value:
            raise ConfigError(f"{path.name}: {key} must not contain NUL characters, got {value!r}.")
    models: dict[str, Any] = values.get("models", {})
    if not all(isinstance(name, str) for name in models.values()):
        raise ConfigError(f"{path.name}: every entry of [models] must be a model name.")
    if prices := cast("dict[str, object]", values.get("prices", {})):
        values["prices"] = _checked_prices(prices, path.name)
    return values


def _checked_prices(prices: dict[str, object], file: str) -> dict[str, tuple[float, float]]:
    from redraft._validation import checked_price  # noqa: PLC0415 (few files have prices)

    for name in prices:
        if ":" not in name:
            raise ConfigError(
                f"{file}: [prices] must have the full names of models, such as 'openai-chat:my-model', got "
                f"{name!r}."
            )
    return {name: checked_price(f"{file}: [prices] {name!r}", price) for name, price in prices.items()}


def names_in(names: str) -> list[str]:
    """Split a list of models, separated by commas; a path of a local model may contain commas."""
    is_path = names.startswith("local:") and names.endswith(".gguf") and names.count(":") == 1
    return [names] if is_path else [name.strip() for name in names.split(",")]


def allowed_terms(value: object, where: str) -> tuple[str, ...]:
    """Read the terms that redaction must not withhold: a list, or a string with commas.

    Raises `ConfigError`, which says `where` they are from, for other values and for a term without a letter
    or digit.
    """
    if isinstance(value, str):
        value = [term for term in value.split(",") if term.strip()]
    items = cast("list[object]", list(value)) if isinstance(value, list | tuple) else [None]  # pyright: ignore[reportUnknownArgumentType] (from a file)
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) < len(items):
        raise ConfigError(f"{where} must be a list of terms, such as ['Acme Corp'], got {value!r}.")
    terms = tuple(dict.fromkeys(" ".join(term.split()) for term in texts))
    for term in terms:
        if not any(map(str.isalnum, term)):
            raise ConfigError(f"{where} has the term {term!r}; a term needs a letter or a digit.")
    return terms


def joined_names(names: object) -> object:
    """Join a list of models' names with commas; other values are returned as they are."""
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnknownVariableType] (from a file)
        return ", ".join(cast("list[str]", names))
    return cast("object", names)
