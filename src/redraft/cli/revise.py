"""`redraft revise`: redraft a draft until a rule says stop, and hand over the best version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import code_of, surface

if TYPE_CHECKING:
    from redraft.loop.revise import RevisionStrategy

Out: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="OUT", help="Write the best version to OUT, and not to stdout."),
]


def revise(
    file: options.File,
    criteria: options.Criteria,
    model: options.Model = None,
    max_iterations: Annotated[
        int, typer.Option("--max-iterations", metavar="N", help="How many revisions at most.")
    ] = 3,
    strategy: Annotated[
        str,
        typer.Option("--strategy", metavar="S", help="hybrid, full_rewrite, targeted_edit or incremental."),
    ] = "hybrid",
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    output: Out = None,
    force: Annotated[bool, typer.Option("--force", help="Let OUT be a file that exists.")] = False,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Revise a draft until its criteria are met. Prints the best version."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole
        from redraft.cli.keeping import Keeping
        from redraft.cli.output import check_output, deliver, is_own_output
        from redraft.cli.progress import Progress
        from redraft.cli.running import chosen_model, material, revise_draft
        from redraft.cli.show import ending
        from redraft.cli.watching import watched
        from redraft.loop.pattern import ReflectionPattern

        if output == Path("-"):  # stdout, as '-' is stdin for the draft
            output = None
        if output is not None:
            force = force or is_own_output(output)
            check_output(output, force=force)
        draft, given = material(file, criteria)
        told = CalmConsole(stderr=True)
        progress = Progress(told)
        keeping = Keeping("revise", not no_keep, chosen_model(model))
        with watched(progress, events, stdout_is_free=output is not None and not as_json) as listener:
            pattern = ReflectionPattern(
                max_iterations=max_iterations,
                quality_criteria=given.criteria,
                quality_threshold=given.threshold,
                task_type=given.task_type,
                revision_strategy=cast("RevisionStrategy", strategy),  # the pattern checks it
                budget_tokens=budget_tokens,
                budget_usd=budget_usd,
                budget_seconds=budget_seconds,
                on_event=listener,
            )
            result = revise_draft(draft, given, progress, pattern, keeping)
        told.show(ending(result))
        told.say(keeping.says(result))
        deliver(result, output, force=force, as_json=as_json)
        raise typer.Exit(code_of(result))
