"""`redraft schema`: the JSON Schemas of workflow and agent files, for editors."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface


class Kind(StrEnum):
    """Name the kinds of files."""

    WORKFLOW = "workflow"
    AGENT = "agent"


def schema(
    kind: Annotated[Kind, typer.Argument(help="Of which files.")] = Kind.WORKFLOW,
    debug: options.Debug = False,
) -> None:
    """Print the JSON Schema of workflow or agent files, with which an editor completes and checks them.

    Write it into a file, such as workflow.schema.json, and begin a workflow with the line
    `# yaml-language-server: $schema=workflow.schema.json`.
    """
    with surface(debug=debug):
        import json

        from redraft.cli.console import emit

        if kind is Kind.AGENT:
            from redraft.cycles.schema import agent_schema as made
        else:
            from redraft.workflow.schema import workflow_schema as made

        emit(json.dumps(made(), indent=2))
