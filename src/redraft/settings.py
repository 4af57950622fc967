"""Settings: argument, then environment, then `redraft.toml`, then default."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from redraft.errors import ConfigError

SETTINGS_FILE = "redraft.toml"

_MEANS_SOMETHING_EMPTY = ("home", "database_url", "long_term_storage")
"""An empty home keeps nothing; an empty URL is a mistake, and no reason to keep things elsewhere."""


def _setting(variable: str, says: str, default: str | None = None, *, shown: bool = True) -> Any:
    return field(default=default, repr=shown, metadata={"variable": variable, "says": says})


@dataclass(frozen=True, slots=True)
class Settings:
    """Hold what applies where no argument says otherwise; each field's metadata is its documentation."""

    model: str | None = _setting("REDRAFT_MODEL", "The model to use: `provider:model`, `local:PATH.gguf`.")
    reflection_model: str | None = _setting("REDRAFT_REFLECTION_MODEL", "The model that judges, if another.")
    embedder: str | None = _setting(
        "REDRAFT_EMBEDDER",
        "What finds lessons by meaning: `local:minilm`, `provider:model`, or `none` for full text alone.",
    )
    home: str = _setting("REDRAFT_HOME", "The folder for what is kept; empty keeps nothing.", ".redraft")
    memory: str = _setting(
        "REDRAFT_MEMORY", "The folder of what agents learn: files to read, edit and keep in git.", "memory"
    )
    database_url: str | None = _setting(
        "REDRAFT_DATABASE_URL",
        "A PostgreSQL database to keep runs in, in place of a file in `home`: "
        "`postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.",
        shown=False,
    )
    long_term_storage: str | None = _setting(
        "REDRAFT_LONG_TERM_STORAGE",
        "A PostgreSQL database in which agents that run in cycles keep their memory: a URL as above.",
        shown=False,
    )
    project: str | None = _setting(
        "REDRAFT_PROJECT",
        "The name that sets this project's runs apart where several share a database or home. Without one "
        "it is the folder; on PostgreSQL this machine's, so name what runs on several, or in containers.",
    )
    models: dict[str, str] = field(
        default_factory=dict[str, str],
        metadata={"variable": None, "says": "Names of your own for models, such as `fast`."},
    )


def load_settings(folder: Path | None = None) -> Settings:
    """Read the settings that apply in `folder` (default: the working directory).

    The file is the one of the project: `redraft.toml` in `folder` or the nearest folder above that has one.
    Raises `ConfigError` for a file that is not TOML, a key that is not known, or a value of the wrong type.
    """
    values: dict[str, Any] = _from_file(project_folder(folder) / SETTINGS_FILE)
    for setting in fields(Settings):
        if (value := in_environment(setting.name, setting.metadata["variable"])) is not None:
            values[setting.name] = value
    return Settings(**values)


def in_environment(name: str, variable: str | None) -> str | None:
    """Return what the environment says of a setting; an empty value counts only where it means something."""
    value = os.environ.get(variable) if variable else None
    return value if value or name in _MEANS_SOMETHING_EMPTY else None


def without_password(url: str) -> str:
    """Return a URL as it may be shown: what stands where a password may stand is left out."""
    url = re.sub(r"(?<=://)([^:@/]*):.*@", r"\1@", url, flags=re.DOTALL)
    return re.sub(r"([?&][^=&]*password=)[^&]*", r"\1...", url, flags=re.IGNORECASE)


def project_folder(folder: Path | None = None) -> Path:
    """Return the nearest folder from `folder` upwards with a `redraft.toml`; without one, `folder` itself."""
    start = (folder or Path.cwd()).resolve()
    return next((place for place in (start, *start.parents) if (place / SETTINGS_FILE).is_file()), start)


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    import tomllib  # noqa: PLC0415 (only a project with a settings file pays for it)

    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}.") from error
    known = {setting.name for setting in fields(Settings)}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"{path.name}: unknown setting {key!r}; known are {', '.join(sorted(known))}.")
        expected = dict if key == "models" else str
        if not isinstance(value, expected):
            raise ConfigError(f"{path.name}: {key} must be a {expected.__name__}, got {value!r}.")
        if isinstance(value, dict) and not all(isinstance(name, str) for name in value.values()):  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] (TOML values)
            raise ConfigError(f"{path.name}: every entry of [{key}] must be a model name.")
    return values


def settings_table() -> str:
    """Return the table of all settings as markdown; the documentation's copy is checked against it."""
    rows = ["| setting | variable | in `redraft.toml` | default | |", "|---|---|---|---|---|"]
    for setting in fields(Settings):
        variable = f"`{setting.metadata['variable']}`" if setting.metadata["variable"] else ""
        place = f"`[{setting.name}]`" if setting.name == "models" else f"`{setting.name}`"
        default = f"`{setting.default}`" if isinstance(setting.default, str) else "none"
        rows.append(f"| {setting.name} | {variable} | {place} | {default} | {setting.metadata['says']} |")
    return "\n".join(rows)
