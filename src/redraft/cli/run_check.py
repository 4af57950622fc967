"""What `redraft run --check` says: ok, and what the workflow would use."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, cast

from rich.table import Table

from redraft.cli.console import CalmConsole, emit_json
from redraft.cli.run_code import read_code
from redraft.cli.show import QUIET
from redraft.loop.compared import counted
from redraft.models.nearest import EXTRAS
from redraft.sandbox.inline import INTERPRETERS
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from redraft.cli.run_ready import Ready


def report(found: Ready, *, as_json: bool, allow_unsandboxed: bool) -> None:
    """Say of a workflow that is ready what it would use; nothing is spent.

    Raises `WorkflowError` for code that its sandbox can't read, and where a sandbox does not work here.
    """
    asyncio.run(read_code(found, allow_unsandboxed=allow_unsandboxed))
    deliver_check(found.file, used_by(found), as_json=as_json)


def deliver_check(file: str, used: Mapping[str, Any], *, as_json: bool) -> None:
    """Print that a file is ok, and what it would use: its name, how many parts it has, and the rest."""
    if as_json:
        emit_json({"file": file, "ok": True, **used})
    else:
        CalmConsole().show(_table(file, used))


def used_by(found: Ready) -> dict[str, Any]:
    """Return what a workflow would use, as plain data; a model is None where only its state will name it."""
    spec = found.workflow.spec
    models = {name or "": found.full_name(name) for name in found.uses.models}
    return {
        "name": spec.name,
        "nodes": len(spec.nodes),
        "models": sorted({full for full in models.values() if full}),
        "actions": sorted(found.uses.actions),
        "code": sorted({f"{code.language} ({code.sandbox})" for code, _ in found.uses.code}),
        "extras": _extras(found),
        "env": {name: name in os.environ for name in spec.env},
    }


def _extras(found: Ready) -> list[str]:
    """Return the parts of Redraft that it needs, as pip calls them."""
    names = [found.full_name(name) or "" for name in found.uses.models]
    providers = {name.partition(":")[0] for name in names} & {*EXTRAS, "local"}
    return sorted(providers | {INTERPRETERS[code.language].extra for code, _ in found.uses.code})


def _table(file: str, used: Mapping[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=QUIET)
    table.add_column()
    parts = (counted(one, name.removesuffix("s")) for name, one in used.items() if isinstance(one, int))
    table.add_row("ok", visible(f"{file}: {', '.join((used['name'], *parts))}"))
    for name, value in used.items():
        if isinstance(value, list) and value:
            table.add_row(name, visible(", ".join(cast("list[str]", value))))
    if used["env"]:
        said = (f"{name} ({'set' if is_set else 'not set'})" for name, is_set in used["env"].items())
        table.add_row("env", ", ".join(said))
    return table
