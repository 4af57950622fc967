"""`redraft why`: the rule that stopped a run, with its numbers."""

from __future__ import annotations

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface


def why(run: options.Run, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Say why a run stopped. The rule, the numbers it went by, and what was spent after the best version."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_runs import read_run
        from redraft.cli.why_view import why_view
        from redraft.loop.after_best import after_best
        from redraft.loop.why import why as why_of

        kept = read_run(run)
        if as_json:
            found = {"run_id": kept.record.run_id, "why": why_of(kept), "after_best": after_best(kept)}
            emit_json(found)
        else:
            CalmConsole().show(why_view(kept))
