"""`redraft schema`: the JSON Schema of workflow files, for editors."""

from __future__ import annotations

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface


def schema(debug: options.Debug = False) -> None:
    """Print the JSON Schema of workflow files, with which an editor completes and checks them.

    Write it into a file, such as workflow.schema.json, and begin a workflow with the line
    `# yaml-language-server: $schema=workflow.schema.json`.
    """
    with surface(debug=debug):
        import json

        from redraft.cli.console import emit
        from redraft.workflow.schema import workflow_schema

        emit(json.dumps(workflow_schema(), indent=2))
