"""`redraft calibrate`: label what a model judged, without seeing its verdicts, and see how far it agrees."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

from redraft._codec import to_json
from redraft._texts import as_text, counted
from redraft.evals.calibration import Calibrations, Costs, kappa_cell
from redraft.loop.labels import FEWEST_LABELS
from redraft.stores.location import required_project_store
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, emit_json, withheld
from redraft.terminal.exits import ExitCode
from redraft.terminal.tables import plain_table, width_of
from redraft.text.characters import visible
from redraft.types import render_usage

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redraft.evals.calibration import Calibration, Judgement
    from redraft.evals.stability import StabilityReport

Judge = Annotated[
    str,
    typer.Argument(
        metavar="JUDGE",
        help="A judge's key, its beginning, or its model, as redraft calibrate list shows them. Default: the "
        "only one.",
        show_default=False,
    ),
]
FalseAccept = Annotated[
    float, typer.Option(metavar="COST", min=0, help="What it costs to accept what you would reject.")
]
FalseReject = Annotated[
    float, typer.Option(metavar="COST", min=0, help="What it costs to reject what you would accept.")
]
LEAST = ("wrong near the threshold", "wrongly accepted", "wrongly rejected", "you say yes")
"""The columns that a narrow terminal goes without, the first ones first."""

calibrate = command_group(
    default="label",
    help="Compare a judge model with your own judgement: label what it judged, without seeing its verdicts.",
)


@calibrate.command()
@handles_errors
async def label(judge: Judge = "") -> None:
    """Label outputs that a model judged, one key each (the default). Every label is stored at once.

    What the model said is not shown. Stop at any time with q; the next call continues from there.
    """
    calibrations = Calibrations(required_project_store("runs"))
    calibration = await calibrations.get(judge)
    console = CalmConsole()
    console.show(_introduction(calibration))
    while calibration.left:
        judgement = calibration.left[0]
        console.show(_question(calibration, judgement))
        answer = _key()
        if answer == "q":
            break
        if answer == "u":
            calibration = await calibrations.undo(calibration)
        else:
            calibration = await calibrations.label(calibration, judgement, ANSWERS[answer])
    if not calibration.left:
        console.say("Everything that this judge has judged here is labelled.")
    console.say(calibration.summary.sentence())
    console.say(f"redraft calibrate show {calibration.judge.key}")


@calibrate.command("list")
@handles_errors
async def list_judges(as_json: options.Json = False) -> None:
    """List the models that judged here. Shows each with its rubric, and how well it is calibrated."""
    found = [one.summary for one in await Calibrations(required_project_store("runs")).list()]
    if as_json:
        emit_json({"judges": withheld([one.document() for one in found])})
        return
    if not found:
        CalmConsole().say("No stored run here has been judged by a model yet.")
        return
    columns = {
        "judge": [one.key for one in found],
        "model": [visible(withheld(one.model)) for one in found],
        "judgements": [str(one.judgements) for one in found],
        "labels": [str(one.labels) for one in found],
        "kappa (95 %)": [kappa_cell(one.agreement) for one in found],
        "criteria": [visible(withheld(", ".join(one.criteria))) for one in found],
    }
    CalmConsole().show(plain_table(columns, right=("judgements", "labels"), wrap=("model", "criteria")))


@calibrate.command()
@handles_errors
async def show(
    judge: Judge = "",
    false_accept: FalseAccept = 1.0,
    false_reject: FalseReject = 1.0,
    as_json: options.Json = False,
) -> None:
    """Show how well a judge agrees with your labels. Suggests what would make its errors cost less."""
    from redraft.evals.stability import StabilityReport

    costs, store = Costs(false_accept, false_reject), required_project_store("runs")
    calibration = await Calibrations(store).get(judge)
    if as_json:
        report = [to_json(one) for one in calibration.report(costs)]
        summary = calibration.summary.document()
        emit_json(withheld({**summary, "costs": to_json(costs), "report": report}))
        return
    console = CalmConsole()
    console.show(calibration_view(calibration, costs, console.width))
    if steady := await StabilityReport.stored(store, calibration.judge):
        console.show(Group("", stability_view(steady)))


@calibrate.command()
@handles_errors
async def stability(
    judge: Judge = "",
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME", help="Ask this model instead, and compare it with your labels."
        ),
    ] = None,
    outputs: Annotated[int, typer.Option(metavar="N", min=1, help="Judge N outputs again.")] = 20,
    repeats: Annotated[
        int, typer.Option(metavar="N", min=1, help="Ask N times with the rubric as it is.")
    ] = 2,
    wording: Annotated[
        list[Path] | None,
        typer.Option(metavar="YAML", help="Criteria with the same names and other descriptions, to compare."),
    ] = None,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    as_json: options.Json = False,
) -> None:
    """Test how steady a judge is. It judges outputs again, with its rubric as it is and reworded.

    This calls the model. No judgement is made twice: after an interruption, the same command continues.
    """
    from redraft.evals.stability import StabilityTest
    from redraft.loop.criteria_file import read_criteria

    store = required_project_store("runs")
    calibration = await Calibrations(store).get(judge)
    console = CalmConsole(stderr=True)
    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("")
        test = StabilityTest(
            calibration,
            store,
            model=model,
            outputs=outputs,
            repeats=repeats,
            wordings={path.stem: read_criteria(path).criteria for path in wording or ()},
            budget_tokens=budget_tokens,
            budget_usd=budget_usd,
            budget_seconds=budget_seconds,
            on_judged=lambda: progress.advance(bar),
        )
        progress.update(bar, total=test.total)
        report = await test.run()
    if as_json:
        emit_json(withheld(to_json(report)))
    else:
        CalmConsole().show(stability_view(report))
    raise typer.Exit(ExitCode.BUDGET if report.note else ExitCode.MET)


# --- labelling ---------------------------------------------------------------------------------------------

ANSWERS = {"y": True, "n": False, "s": None}
KEYS = "y yes   n no   s skip   u undo   q quit"


def _key() -> str:
    """Return which of the offered keys was pressed; the end of the input, Ctrl-C and Escape mean q."""
    while True:
        if sys.stdin.isatty():
            try:
                key = typer.getchar().lower()
            except (EOFError, KeyboardInterrupt):  # every label is stored, so there is nothing to interrupt
                return "q"
            key = "q" if key == "\x1b" else key
        else:
            line = sys.stdin.readline()
            key = line.strip().lower()[:1] if line else "q"
        if key in (*ANSWERS, "u", "q"):
            return key


def _introduction(calibration: Calibration) -> RenderableType:
    judged = counted(len(calibration.judgements), "judgement")
    return Text(
        f"{visible(withheld(calibration.judge.model))}, rubric {calibration.judge.rubric}: {judged}, "
        f"{len(calibration.told)} labelled. A calibration needs {FEWEST_LABELS}; more make it more certain.\n"
        "Does the output meet the criterion? Decide for yourself: what the model said is not shown.",
        QUIET,
    )


def _question(calibration: Calibration, judgement: Judgement) -> RenderableType:
    number = len(calibration.judgements) - len(calibration.left) + 1
    shown = withheld(judgement)
    criterion = shown.criterion
    named = criterion.name if not criterion.description else f"{criterion.name}: {criterion.description}"
    return Group(
        Rule(f"{number} of {len(calibration.judgements)}", style=QUIET),
        _part("Task", shown.task.description),
        _part("Output", as_text(shown.output)),
        _part("Criterion", named),
        Text(KEYS, QUIET),
    )


def _part(name: str, text: str) -> RenderableType:
    return Group(Text(name, "bold"), Padding(Text(visible(text)), (0, 0, 1, 2)))


# --- what is shown -----------------------------------------------------------------------------------------


def stability_view(report: StabilityReport) -> RenderableType:
    """Render how steady a judge is: a row for each wording of its rubric."""
    rows = withheld(report.table())
    columns = {name: [visible(row[name]) for row in rows] for name in rows[0]}
    heading = f"{report.model}, {counted(report.outputs, 'output')} judged again"
    return Group(
        Text(visible(withheld(heading)), "bold"),
        "",
        plain_table(columns, right=list(columns)[1:], wrap=("wording",)),
        *([Text(visible(withheld(report.note)), BAD)] if report.note else []),
        Text(render_usage(report.usage), QUIET),
    )


def calibration_view(calibration: Calibration, costs: Costs, width: int) -> RenderableType:
    """Render a calibration: the figures of each criterion, and what they suggest."""
    report = withheld(calibration.report(costs))
    rows = [one.row() for one in report]
    columns = {name: [visible(row[name]) for row in rows] for name in rows[0]}
    for least in LEAST:
        if width_of(columns) > width:
            del columns[least]
    summary = calibration.summary
    return Group(
        Text(visible(withheld(f"{calibration.judge.model}, rubric {calibration.judge.rubric}")), "bold"),
        Text(summary.sentence(), GOOD if summary.is_calibrated else BAD),
        "",
        plain_table(columns, right=list(columns)[1:], wrap=("criterion",)),
        "",
        *(Text(visible(line), QUIET) for one in report for line in one.suggestions()),
    )
