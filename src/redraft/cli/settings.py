"""`redraft settings`: every setting, its value, and where that comes from."""

from __future__ import annotations

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface


def settings(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Print the settings that apply in this folder."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.settings_in_force import settings_in_force, settings_rows

        found = settings_in_force()
        if as_json:
            emit_json({"settings": found})
        else:
            CalmConsole().show(settings_rows(found))
