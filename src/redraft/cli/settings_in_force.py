"""The settings that apply here, each with the place that it comes from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from redraft.cli.show import QUIET
from redraft.core.settings import SETTINGS_FILE, Settings, in_environment, load_settings, without_password

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """Hold a setting with its value; `source` is the environment, the file's name or `default`.

    The value of a URL is without the password.
    """

    name: str
    value: Any
    source: str
    variable: str | None
    says: str


def settings_in_force() -> list[SettingInForce]:
    """Return all settings as they apply in the working folder; raises `ConfigError` for a wrong file."""
    loaded, plain = load_settings(), Settings()
    found: list[SettingInForce] = []
    for setting in fields(Settings):
        variable: str | None = setting.metadata["variable"]
        value: Any = getattr(loaded, setting.name)
        if in_environment(setting.name, variable) is not None:
            source = "environment"
        else:
            source = "default" if value == getattr(plain, setting.name) else SETTINGS_FILE
        if value and not setting.repr:
            value = without_password(value)
        found.append(SettingInForce(setting.name, value, source, variable, setting.metadata["says"]))
    return found


def settings_rows(found: Iterable[SettingInForce]) -> Table:
    """Render settings as rows."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET)
    for column in ("setting", "value", "from", "variable"):
        table.add_column(column, no_wrap=column != "value", overflow="fold")
    for setting in found:
        table.add_row(setting.name, _shown(setting.value), setting.source, setting.variable or "")
    return table


def _shown(value: Any) -> Text:
    if isinstance(value, dict):
        return Text(", ".join(f"{name} = {model}" for name, model in value.items()) or "none")  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType, reportUnknownMemberType] (names to models)
    return Text("none" if value is None else str(value))
