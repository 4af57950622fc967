"""`redraft cycle`: agents that go round, what they did and remember, and what is said to them."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (Typer reads the annotations)
from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (likewise)
from redraft.cli.exits import ExitCode, surface
from redraft.cli.feedback import feedback

File = Annotated[str, typer.Argument(metavar="FILE", help="The agent, a YAML file.", show_default=False)]
Name = Annotated[
    str, typer.Argument(metavar="AGENT", help="Its name, as `cycle status` has it.", show_default=False)
]
Latest = Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many cycles, the latest.")]

cycle = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run agents in cycles. Sense, Reason, Actuate, Reflect; they learn, and remember within bounds.",
)


@cycle.command()
def run(
    file: File,
    cycles: Annotated[
        int | None,
        typer.Option("--cycles", metavar="N", min=1, help="So many, one after the other; then end."),
    ] = None,
    functions: Annotated[
        Path | None,
        typer.Option(
            "--functions",
            metavar="PATH.py",
            help="The functions that FILE names; without it functions.py beside FILE, if it is there.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run nothing: say what is wrong, or ok and what it would use.")
    ] = False,
    model: options.Model = None,
    events: options.Events = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Run an agent. As the triggers of its file say, until interrupted; one with manual triggers once.

    Its memory is kept in the project, or in the long-term storage of the settings. A cycle that was killed
    goes on where it stopped. Exit code 1 says that the last cycle failed.
    """
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.cycle_progress import CycleProgress
        from redraft.cli.cycle_running import ready_agent, run_agent, used_by
        from redraft.cli.run_check import deliver_check
        from redraft.cli.watching import watched
        from redraft.cycles.cycle_document import result_document

        if check:
            agent = ready_agent(file, functions, model, lambda _: None)
            deliver_check(file, used_by(agent), as_json=as_json)
            return
        progress = CycleProgress(CalmConsole(stderr=True))
        with watched(progress.hear, events) as listener, progress:
            agent = ready_agent(file, functions, model, listener)
            run_agent(agent, cycles)
        if as_json:
            ended = [result_document(one) for one in progress.results]
            emit_json({"agent": agent.name, "count": progress.count, "cycles": ended})
        else:
            CalmConsole(stderr=True).say(progress.ending(agent.name))
        raise typer.Exit(ExitCode.MET if progress.went_well else ExitCode.NOT_MET)


@cycle.command()
def status(
    agent: Annotated[str | None, typer.Argument(metavar="[AGENT]", help="One alone; all without it.")] = None,
    count: Latest = 10,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the agents. Whether each runs, how its last cycle went, and how much feedback it has not seen.

    With AGENT its latest cycles.
    """
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.cycle_rows import agent_rows, cycle_rows, no_agents
        from redraft.cli.kept_agents import all_agents, one_agent
        from redraft.cycles.cycle_document import cycle_document, summary_document

        console = CalmConsole()
        if agent is None:
            found = all_agents()
            if as_json:
                emit_json({"agents": [summary_document(one) for one in found]})
            else:
                console.show(agent_rows(found, console.width) if found else no_agents())
            return
        summary, latest = one_agent(agent, count)
        if as_json:
            document = summary_document(summary)
            emit_json({**document, "cycles": [cycle_document(one) for one in latest]})
        else:
            console.show(agent_rows([summary], console.width))
            console.show(cycle_rows(latest, console.width))


@cycle.command()
def memory(
    agent: Name,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option("--diff", metavar="N M", help="What changed from the end of cycle N to that of M."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", min=0, help="As it was after cycle N.")
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show what an agent remembers. Now, after an earlier cycle, or what changed between two."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.cycle_memory import changes_view, memory_view
        from redraft.cli.kept_agents import changed_memory, read_memory
        from redraft.cycles.cycle_document import change_document, memory_document

        console = CalmConsole()
        if diff is not None:
            changes = changed_memory(agent, *diff)
            if as_json:
                changed = [change_document(one) for one in changes]
                emit_json({"agent": agent, "from": diff[0], "to": diff[1], "changes": changed})
            else:
                console.show(changes_view(changes, diff))
            return
        found = read_memory(agent, at)
        if as_json:
            emit_json({"agent": agent, **memory_document(found)})
        else:
            console.show(memory_view(found))


@cycle.command()
def metrics(
    agent: Name, count: Latest = 20, as_json: options.Json = False, debug: options.Debug = False
) -> None:
    """Show how an agent does. Time, tokens, cost, anomalies, alerts and failures of its latest cycles."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.cycle_rows import metrics_rows
        from redraft.cli.kept_agents import one_agent
        from redraft.cycles.cycle_document import metrics_document

        summary, latest = one_agent(agent, count)
        if as_json:
            emit_json({"agent": summary.name, "cycles": [metrics_document(one) for one in latest]})
        else:
            console = CalmConsole()
            console.show(metrics_rows(latest, console.width))


@cycle.command()
def prune(
    agent: Name,
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=1, help="Of so many cycles.")] = 1_000,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Delete what nobody looks back at. Records of older cycles, and leftovers; the memory stays."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_agents import prune_agent
        from redraft.loop.compared import counted

        counts = prune_agent(agent, keep)
        if as_json:
            emit_json({"agent": agent, "deleted": counts})
        else:
            said = f"{counted(counts['cycles'], 'cycle')}, {counted(counts['mail'], 'message')}"
            CalmConsole().say(f"Deleted of {agent}: {said}.")


cycle.command()(feedback)
