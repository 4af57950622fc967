"""`redraft lessons due` and `waive`: which runs have to be reflected on, and which need not be."""

from __future__ import annotations

from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.lessons_surface import lessons_surface

Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only what this agent owes.")]


def lessons_due(agent: Agent = None, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """List the runs that owe a reflection. They failed, wholly or in part; their agent's next run waits."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_duties import due_duties
        from redraft.cli.lessons_document import duty_document
        from redraft.cli.lessons_view import due_view

        due = due_duties(agent)
        if as_json:
            emit_json({"due": [duty_document(duty) for duty in due]})
            return
        CalmConsole().show(due_view(due))
        if due:
            CalmConsole(stderr=True).say(
                "`redraft lessons add --run RUN` reflects on one, `waive RUN --why WHY` lets it be."
            )


def lessons_waive(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run's id, how that begins or ends, or 'last'.")
    ],
    why: Annotated[str, typer.Option("-m", "--why", metavar="WHY", help="The reason, for who looks later.")],
    agent: Agent = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Let a run be without a reflection. Its agent goes on, and the reason is kept."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_duties import waive_duty
        from redraft.cli.lessons_document import duty_document
        from redraft.text.visible import visible

        duty = waive_duty(run, why, agent)
        if as_json:
            emit_json(duty_document(duty))
        else:
            CalmConsole().say(visible(f"{duty.run_id}  waived: {why}"))
