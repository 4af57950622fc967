"""Why a run stopped, as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft.cli.run_view import after_text, title
from redraft.cli.show import BAD, GOOD, QUIET
from redraft.loop.after_best import after_best
from redraft.loop.compared import counted, scored, unasked
from redraft.loop.why import why
from redraft.text.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redraft.loop.kept_run import KeptRun

INDENT = (0, 0, 0, 2)


def why_view(run: KeptRun) -> RenderableType:
    """Render the rule, its numbers, what the best version lacks, and what was spent after it."""
    record, told = run.record, why(run)
    best = record.version(record.best)
    parts: list[RenderableType] = [
        title(run),
        "",
        Text.assemble((told.rule, "bold"), f": {told.headline}."),
        Padding(Text(visible(told.detail)), INDENT),
    ]
    if best is not None:
        parts += ["", _returned(run)]
        parts += [Padding(Text(f"- {visible(lack)}", BAD), INDENT) for lack in told.short_of]
    if spent := after_best(run):
        later = f" ({counted(spent.versions, 'version')})" if spent.versions else ""
        parts.append(Text(f"Spent after it{later}: {after_text(spent)}."))
    if record.state in ("killed", "failed", "cancelled"):
        parts += ["", Text(f"redraft resume {record.run_id} goes on with it.", QUIET)]
    if record.state == "unknown":
        parts += ["", Text(f"redraft resume {record.run_id} --force goes on with it.", QUIET)]
    return Group(*parts)


def _returned(run: KeptRun) -> Text:
    best = run.record.version(run.record.best)
    if best is None:
        return Text()
    verb = "Returned" if run.record.reason else "Best so far"
    if unasked(best):
        return Text(f"{verb}: version {best.iteration}, which nothing judged.")
    line = Text(f"{verb}: version {best.iteration} ({scored(best)}), which ")
    if best.evaluation.satisfactory:
        return line.append("meets the criteria.", GOOD)
    return line.append("falls short:" if why(run).short_of else "does not meet the criteria.")
