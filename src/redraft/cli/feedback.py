"""`redraft cycle feedback`: what a person thinks of what an agent does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface

if TYPE_CHECKING:
    from redraft.cycles.feedback import Verdict


def feedback(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="Its name, as `cycle status` has it.", show_default=False)
    ],
    approve: Annotated[
        bool, typer.Option("--approve", help="What it did, or waits to do, is right.")
    ] = False,
    reject: Annotated[bool, typer.Option("--reject", help="It is wrong; what waits is not done.")] = False,
    modify: Annotated[
        str | None,
        typer.Option("--modify", metavar="JSON", help="Do it with these parameters: '{\"level\": 2}'."),
    ] = None,
    message: Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="Why.")] = "",
    number: Annotated[
        int | None,
        typer.Option("--cycle", metavar="N", help="About cycle N; without it the one that waits, if any."),
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="NAME", help="About this action alone.")
    ] = None,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who says so.")] = "",
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say what you think of what an agent does. It decides on a plan that waits, and is learnt from."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_agents import changes_given, leave_feedback
        from redraft.core.errors import ConfigError

        given: dict[Verdict, bool] = {"approve": approve, "reject": reject, "modify": modify is not None}
        verdicts: list[Verdict] = [verdict for verdict, is_given in given.items() if is_given]
        if len(verdicts) != 1:
            raise ConfigError("Give one of --approve, --reject and --modify.")
        said = leave_feedback(
            agent,
            verdicts[0],
            message,
            cycle=number,
            action=action,
            changes=None if modify is None else changes_given(modify),
            by=by,
        )
        if as_json:
            emit_json({"agent": agent, "feedback": said})
        else:
            about = "" if said.cycle is None else f" on cycle {said.cycle}"
            CalmConsole().say(f"{agent} has it{about}: {said.verdict}.")
