"""One kept run as a person reads it: head, scores by version and criterion, what failed, what it used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft.cli.run_rows import curve, when
from redraft.cli.show import BAD, GOOD, QUIET, issue_lines
from redraft.core.summary import render_score, render_usage
from redraft.loop.after_best import after_best
from redraft.loop.compared import unasked
from redraft.loop.why import why
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from redraft.core.version import ReflectionVersion
    from redraft.loop.after_best import AfterBest
    from redraft.loop.kept_run import KeptRun

LONGEST_TASK = 400
LONGEST_NAME = 30
VERSION_WIDTH = 9
INDENT = (0, 0, 0, 2)
BELOW = "<"


def run_view(run: KeptRun, width: int, *, is_utf8: bool = True) -> RenderableType:
    """Render a run."""
    parts: list[RenderableType] = [*_head(run, is_utf8=is_utf8)]
    if run.record.versions:
        parts += ["", *score_tables(run, width)]
    parts += [*_failed(run), *_advice(run), *_reflections(run), *_usage(run), *_notes(run)]
    return Group(*parts)


def title(run: KeptRun) -> Text:
    """Render who ran what when, in one line."""
    record = run.record
    who = visible(record.origin.name) or record.origin.surface
    model = f" with {visible(record.origin.model)}" if record.origin.model else ""
    line = Text.assemble((record.run_id, "bold"), f"  {who}{model}, {when(record.started_at)}")
    if record.parent:
        line.append(f", inside {record.parent}", QUIET)
    return line


def task_text(run: KeptRun) -> Text:
    """Render the task, shortened."""
    text = visible(run.record.task.description.strip())
    short = text if len(text) <= LONGEST_TASK else f"{text[:LONGEST_TASK].rstrip()} ..."
    return Text(short, QUIET)


def _head(run: KeptRun, *, is_utf8: bool) -> list[RenderableType]:
    record, told = run.record, why(run)
    best = record.version(record.best)
    lines: list[RenderableType] = [title(run), Padding(task_text(run), INDENT), ""]
    if best is not None and unasked(best):
        lines.append(Text.assemble("Best: ", (f"version {best.iteration}", "bold"), ", which nothing judged"))
    elif best is not None:
        met = "meets the criteria" if best.evaluation.satisfactory else "does not meet the criteria"
        line = Text.assemble(
            "Best: ",
            (
                f"version {best.iteration}, {render_score(best.evaluation.overall_score).strip()}",
                f"bold {GOOD}" if best.evaluation.satisfactory else "bold",
            ),
            f", which {met}",
        )
        lines.append(line.append(f"   {curve(record)}") if is_utf8 else line)
    lines.append(
        Text.assemble("Stopped: " if record.reason else "State: ", f"{told.headline}. ", visible(told.detail))
    )
    return lines


def score_tables(run: KeptRun, width: int) -> list[RenderableType]:
    """Render criteria by versions; more versions than fit side by side go into further tables."""
    versions = run.record.versions
    names = max((len(name) for name in (*run.criteria, "how it was made")), default=0)
    fits = max(1, (width - min(names, LONGEST_NAME) - 8) // VERSION_WIDTH)
    parts: list[RenderableType] = []
    for at in range(0, len(versions), fits):
        parts += [_score_table(run, versions[at : at + fits])]
    legend = "* the best version"
    if not all(map(unasked, versions)):
        legend += f"   {BELOW} below its threshold   - could not be judged"
    return [*parts, Text(legend, QUIET)]


def _score_table(run: KeptRun, versions: Sequence[ReflectionVersion]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET)
    table.add_column("", max_width=LONGEST_NAME, overflow="fold")
    table.add_column("needs", justify="right", no_wrap=True, style=QUIET)
    for version in versions:
        mark = "*" if version.iteration == run.record.best else " "
        header = Text(f"{mark}{version.iteration}", "bold" if mark == "*" else QUIET)
        table.add_column(header, justify="left", no_wrap=True, min_width=6)
    overall = run.record.options.get("quality_threshold")
    table.add_row(
        Text("score", "bold"),
        render_score(overall),
        *(_score(version.evaluation.overall_score, overall, bold=True) for version in versions),
    )
    for name in run.criteria:
        least = run.thresholds.get(name)
        table.add_row(
            visible(name),
            render_score(least),
            *(
                _score(version.evaluation.criteria_scores[name], least)
                if name in version.evaluation.criteria_scores
                else Text("", QUIET)
                for version in versions
            ),
        )
    table.add_row(
        Text("how it was made", QUIET),
        "",
        *(Text(_how(version), QUIET, overflow="fold") for version in versions),
    )
    return table


def _score(score: float | None, least: float | None, *, bold: bool = False) -> Text:
    if score is None:
        return Text("-", BAD)
    below = least is not None and score < least
    style = (BAD if below else GOOD) + (" bold" if bold else "")
    return Text(f"{score:.2f} {BELOW}" if below else f"{score:.2f}", style)


def _how(version: ReflectionVersion) -> str:
    if version.repeats is not None:
        return f"as {version.repeats}"
    return version.strategy.replace("_", "\n", 1)


def _failed(run: KeptRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for version in run.record.versions:
        if version.evaluation.issues and version.repeats is None:
            lines = issue_lines(version.evaluation.issues)
            parts += [Text(f"version {version.iteration}"), Padding(lines, INDENT)]
    return ["", Text("What failed", "bold"), *parts] if parts else []


def _advice(run: KeptRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for advice in run.record.advice:
        why_chosen = f", {visible(advice.reason)}" if advice.reason else ""
        source = Text(f"{visible(advice.source)}{why_chosen}, {advice.tokens} tokens", QUIET)
        parts += [source, Padding(Text(visible(advice.text)), INDENT)]
    return ["", Text("Advice that it was given", "bold"), *parts] if parts else []


def _reflections(run: KeptRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for one in run.record.reflections:
        at = f"version {one.iteration}, step {one.step}" if one.step else f"version {one.iteration}"
        parts.append(Text(f"{one.trigger}, {at}", QUIET))
        parts.append(Padding(Text(visible(one.text or one.problem), "" if one.text else BAD), INDENT))
    return ["", Text("Looks back", "bold"), *parts] if parts else []


def _usage(run: KeptRun) -> list[RenderableType]:
    record = run.record
    table = Table.grid(padding=(0, 2, 0, 0))
    for role, usage in record.usage_by_role.items():
        table.add_row(role, render_usage(usage))
    table.add_row("together", f"{render_usage(record.usage)}, {record.execution_time:.1f} s")
    if spent := after_best(run):
        table.add_row("after the best", after_text(spent))
    return ["", Text("Used", "bold"), table]


def after_text(spent: AfterBest) -> str:
    """Say what was spent after the best version."""
    if not spent.versions and not (spent.usage and spent.usage.requests):
        return "nothing"
    used = "usage not known" if spent.usage is None else render_usage(spent.usage)
    return f"{used}, {spent.seconds:.1f} s"


def _notes(run: KeptRun) -> list[RenderableType]:
    notes = [Text(f"Note: {visible(text)}") for text in run.record.diagnostics.values()]
    return ["", *notes] if notes else []
