"""`redraft demo`: small tasks with a small model on this machine, and what redrafting does for them."""

from __future__ import annotations

from typing import Annotated

import typer

from redraft.cli import options
from redraft.cli.exits import ExitCode, code_of, surface


def demo(
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="NAME", help="Another model than the offline one.")
    ] = options.DEMO_MODEL,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show it at work, offline. Small tasks, real checks, nothing staged: some succeed, some do not."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.demo_report import demo_document, opening, summary, task_report
        from redraft.cli.demo_run import Outcome, demo_model, load, outcomes
        from redraft.cli.demo_tasks import TASKS
        from redraft.cli.keeping import Keeping
        from redraft.cli.watching import check_events

        check_events(events)
        chosen = demo_model(model)
        shown, told = CalmConsole(), CalmConsole(stderr=True)
        shown.quiet = as_json
        shown.show(opening(model, len(TASKS)))
        load(chosen, told)
        keeping = Keeping("demo", not no_keep, model)
        finished: list[Outcome] = []
        interrupted = False
        try:
            for outcome in outcomes(chosen, told, events, keeping):
                finished.append(outcome)
                shown.show(task_report(len(finished), outcome, coloured=shown.is_coloured))
        except KeyboardInterrupt:
            if not finished:
                raise
            interrupted = True
        if as_json:
            emit_json(demo_document(model, finished))
        shown.show(summary(finished))
        told.say(keeping.says(finished[-1].result))
        codes = {code_of(outcome.result) for outcome in finished}
        if interrupted or ExitCode.INTERRUPTED in codes:
            raise typer.Exit(ExitCode.INTERRUPTED)
        # That a task was not solved is what the demo shows; only a model that failed is a failure.
        raise typer.Exit(ExitCode.PROVIDER if ExitCode.PROVIDER in codes else ExitCode.MET)
