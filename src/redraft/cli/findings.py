"""What `redraft doctor` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft.cli.settings_in_force import settings_rows
from redraft.cli.show import BAD, GOOD, QUIET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from redraft.cli.examine import Findings

INDENT = (0, 0, 0, 2)


def findings_text(found: Findings) -> RenderableType:
    """Render an examination, a paragraph a subject."""
    extras = [(name, there, "" if there else _install(name)) for name, there in found.extras.items()]
    keys = [(name, there, "") for name, there in found.keys.items()]
    store = found.store
    kept = [] if store is None else [(store.place, store.answers, store.why)]
    return Group(
        Text(f"redraft {found.redraft}, Python {found.python}, {found.platform}"),
        *_section("Extras", _rows(extras)),
        *_section("Models", _rows((model.name, model.answers, model.why) for model in found.models)),
        *_section(
            "Jail for code that is not ours", _rows((jail.name, jail.works, jail.why) for jail in found.jail)
        ),
        *_section("Where runs are kept", _rows(kept or [("nowhere", False, "the setting `home` is empty")])),
        *_section("Settings", settings_rows(found.settings)),
        *_section("Keys that are set", _rows(keys)),
    )


def _section(title: str, rows: Table) -> tuple[RenderableType, ...]:
    return Text(), Text(title, "bold"), Padding(rows, INDENT, expand=False)


def _rows(entries: Iterable[tuple[str, bool, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, works, why in entries:
        table.add_row(
            Text("yes", GOOD) if works else Text("no", BAD), name, Text(why, QUIET if works else "")
        )
    return table


def _install(extra: str) -> str:
    return f"pip install 'redraft[{extra}]'"
