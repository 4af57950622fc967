"""`redraft eval`: whether reflecting pays off. `redraft calibrate`: whether a judge agrees with a person."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

from redraft._codec import to_json
from redraft._locks import check_regular
from redraft._texts import as_text, counted
from redraft.errors import ConfigError, StoreError
from redraft.evals.cases import (
    add_cases,
    case_of,
    has_failed,
    has_regressed,
    read_cases,
    was_corrected,
    was_right_at_first,
)
from redraft.evals.report import FLIPS, LAST, Evaluations, read_baseline, row
from redraft.evaluate.checks import imported
from redraft.loop.cli import ways_view, write_output
from redraft.loop.criteria_file import modules_in
from redraft.loop.labels import FEWEST_LABELS
from redraft.loop.runs import ENDED_RUNS, Runs
from redraft.models.names import placeholder_keys
from redraft.redact.redactor import withheld
from redraft.settings import load_settings
from redraft.stores.location import project_place, required_project_store
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors, own_command
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, deliver, emit, emit_json
from redraft.terminal.exits import ExitCode, continued_by
from redraft.terminal.tables import PlainTable
from redraft.text.characters import visible
from redraft.text.json import load_json
from redraft.types import render_usage
from redraft.workflow.history import Workflows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from redraft.evals.calibration import Calibration, Costs, Judgement, StabilityReport
    from redraft.evals.cases import EvalCase
    from redraft.evals.evaluation import Target
    from redraft.evals.report import EvaluationReport
    from redraft.loop.record import RunRecord

OPTIONAL_COLUMNS = ("tokens per passed", "s", FLIPS, "score (95 %)", "cost")
CASES = Path("cases.yaml")
STDOUT = Path("-")
NEWEST = 200
"""The newest runs to search for cases."""

eval = command_group(  # noqa: A001 (the name of the command)
    default="run",
    help="Evaluate agents on your own cases: does reflecting pay off, and did a change help?",
    takes_files=True,
)


@eval.command("run")
@handles_errors
async def run(
    cases: Annotated[
        str,
        typer.Argument(metavar="CASES", help="A file of cases: YAML, CSV or JSON lines."),
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="MODULE:NAME",
            help="The agent, or a function of a prompt. Default: the cases' own.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="BASE", help="Compare with another MODULE:NAME, or with a file that --json printed."
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="PARTS", help="Compare parts: loop,first,best-of-3,no-lessons,no-notes."),
    ] = None,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, help="Try each case N times.")] = 1,
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, help="Run at most N cases at the same time.")
    ] = 8,
    model: options.Model = None,
    judge: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model that grades. Default: REDRAFT_REFLECTION_MODEL."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Continue an interrupted evaluation: its id, or 'last'."),
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML to FILE.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a summary in Markdown to FILE; - prints it in place of the table."
        ),
    ] = None,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask no model; show the calls, tokens and cost at most.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Run an agent on cases (the default). Exits with 1 if it does worse than what it is compared with.

    Without --against and --compare, what an agent returns is compared with its own first draft; a function
    has none, and is measured alone. The exit code is 3 if a
    budget ran out, and 4 if no output could be judged.
    """
    from redraft.evals.evaluation import Evaluation

    if against is not None and compare is not None:
        raise ConfigError("Give either --against or --compare, not both.")
    if as_json and markdown == STDOUT:
        raise ConfigError("Give either --json or --markdown -, not both.")
    if junit == STDOUT:
        raise ConfigError("--junit needs a file; only --markdown can be printed.")
    for option, path in (("--junit", junit), ("--markdown", markdown)):
        if path is not None and path != STDOUT and not dry_run:
            _prepare(option, path)
    if agent is not None and model is not None:
        raise ConfigError(
            "--model answers the cases itself, so it can't be combined with --agent; --judge is the model "
            "that grades."
        )
    if cases.startswith("hf:"):
        raise ConfigError(
            f"Data sets of Hugging Face are not loaded here; got {cases!r}. Save the rows as JSON lines "
            "first, with load_dataset(...).to_json('cases.jsonl'), and evaluate that file."
        )
    loaded_cases = read_cases(Path(cases))
    baseline = None
    keys = placeholder_keys if dry_run else nullcontext
    with modules_in(Path.cwd()), modules_in(Path(cases).parent), keys():
        main = _target(agent, loaded_cases, model)
        targets: dict[str, Target] = {_name(agent or loaded_cases[0].agent or "agent"): main}
        if against is not None and against.endswith(".json"):
            baseline = _document(Path(against))
            read_baseline(baseline, [case.id for case in loaded_cases])  # fails before anything is spent
        elif against is not None:
            other = _name(against)
            targets[other if other not in targets else against] = _imported(against)
    console = CalmConsole(stderr=True)
    run_id = None
    if resume is not None:
        run_id = (await Evaluations(required_project_store("evaluations")).report(resume)).run_id
    parts = [] if compare is None else [part.strip() for part in compare.split(",")]
    # The first draft is part of the loop's run.
    arms = len({"loop" if part == "first" else part for part in parts}) or len(targets)
    progress = _progress("evaluating", console)
    bar = progress.add_task("", total=len(loaded_cases) * n * arms)
    with keys():
        evaluation = Evaluation(
            loaded_cases,
            targets,
            n=n,
            compare=parts,
            concurrency=concurrency,
            model=judge or model,
            budget_tokens=budget_tokens,
            budget_usd=budget_usd,
            budget_seconds=budget_seconds,
            run_id=run_id,
            on_try=lambda _: progress.advance(bar),
        )
        estimate = await evaluation.estimate()
    if dry_run:
        deliver(visible(withheld(estimate.sentence())), withheld(estimate.document()), as_json=as_json)
        return
    console.say(visible(withheld(estimate.sentence())))
    is_stored = project_place() is not None
    go_on = continued_by("To continue: the same command with --resume last.")
    with progress, go_on if is_stored else nullcontext():
        report = await evaluation.run()
    if baseline is not None:
        report = report.against(baseline)
    for path, text in ((junit, report.junit), (markdown, report.markdown)):
        if path is not None and path != STDOUT:
            write_output(path, withheld(text()), force=True)
    if as_json:
        emit_json(withheld(report.document()))
    elif markdown == STDOUT:
        emit(withheld(report.markdown()))
    else:
        CalmConsole().show(report_view(report))
    if is_stored:
        console.say(f"Stored as {report.run_id}; {own_command()} eval show last")
    raise typer.Exit(_code(report, is_comparison=compare is not None))


def _prepare(option: str, path: Path) -> None:
    """Check that a file can be written, before anything is spent."""
    is_new = not (path.exists() or path.is_symlink())
    try:
        check_regular(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
        if is_new:  # a command that fails must not leave an empty file
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{option} {str(path)!r} can't be written: {error.strerror}.") from error


def _code(report: EvaluationReport, *, is_comparison: bool) -> ExitCode:
    if report.evaluated.note:
        return ExitCode.BUDGET
    if report.figures[0].mean_passed is None:  # nothing could be judged
        return ExitCode.PROVIDER
    return ExitCode.NOT_MET if report.has_regressed and not is_comparison else ExitCode.MET


@eval.command("show")
@handles_errors
async def show(
    evaluation: Annotated[
        str, typer.Argument(metavar="ID", help="An evaluation's id, its beginning, or 'last'.")
    ] = LAST,
    as_json: options.Json = False,
) -> None:
    """Show a stored evaluation again."""
    report = await Evaluations(required_project_store("evaluations")).report(evaluation)
    deliver(report_view(report), withheld(report.document()), as_json=as_json)


@eval.command("list")
@handles_errors
async def list_evaluations(as_json: options.Json = False) -> None:
    """List stored evaluations, newest first."""
    evaluations = await Evaluations(required_project_store("evaluations")).list()
    if as_json:
        emit_json({"evaluations": [evaluation.document() for evaluation in withheld(evaluations)]})
        return
    if not evaluations:
        CalmConsole().say(
            "No evaluations are stored here yet. To make one: redraft eval add last, redraft eval cases.yaml"
        )
        return
    rows = [
        {
            "evaluation": evaluation.run_id,
            "began": f"{evaluation.started_at.astimezone():%Y-%m-%d %H:%M}",
            "cases": str(len(evaluation.cases)),
            "state": evaluation.state,
            "compared": ", ".join(side.name for side in evaluation.sides),
        }
        for evaluation in evaluations
    ]
    table = PlainTable(
        rows, right=("cases",), wrap=("evaluation", "compared"), drop=("began", "state"), fill="compared"
    )
    CalmConsole().show(table)


@eval.command("add")
@handles_errors
async def add(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="Runs: an id, its beginning, or 'last'.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Add runs whose answer did not pass.")] = False,
    regressed: Annotated[
        bool, typer.Option("--regressed", help="Add runs whose last version is worse than the first.")
    ] = False,
    corrected: Annotated[
        bool, typer.Option("--corrected", help="Add runs whose output a person corrected.")
    ] = False,
    control: Annotated[
        bool,
        typer.Option(
            "--control", help="Add runs that were right at first, or mark the given ones as control cases."
        ),
    ] = False,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this agent.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most N runs of each kind.")] = 20,
    file: Annotated[
        Path,
        typer.Option("--cases", "-o", "--output", metavar="FILE", help="The file of cases to append to."),
    ] = CASES,
    as_json: options.Json = False,
) -> None:
    """Make cases from stored runs, and append them to a file. Secrets and personal data are withheld."""
    stored = Runs()
    chosen: list[tuple[RunRecord, bool]] = [
        (await stored.get(await Workflows().run_of(run_id)), control) for run_id in runs or ()
    ]
    filters = {
        has_failed: failed,
        has_regressed: regressed,
        was_corrected: corrected,
        was_right_at_first: control and not runs,
    }
    if not chosen and not any(filters.values()):
        raise ConfigError("Say which runs: 'last', an id, --failed, --regressed, --corrected or --control.")
    if any(filters.values()):
        newest = await stored.read_rows(await stored.rows(name=name, limit=NEWEST))
        for matches, is_selected in filters.items():
            if is_selected:
                matching = [record for record in newest if record.status in ENDED_RUNS and matches(record)]
                chosen += [(record, matches is was_right_at_first) for record in matching[:limit]]
    cases: list[EvalCase] = []
    problems: list[str] = []
    for record, is_control in chosen:
        try:
            record.task = await stored.task(record)
            cases.append(case_of(record, control=is_control))
        except (ConfigError, StoreError) as error:
            problems.append(str(error))
    added = add_cases(file, cases)
    skipped = len(cases) - len(added)
    if as_json:
        document = {
            "file": str(file),
            "added": [case.id for case in added],
            "already_there": skipped,
            "without_criteria": [case.id for case in added if not case.grading],
            "left_out": withheld(problems),
        }
        emit_json(document)
    else:
        stderr = CalmConsole(stderr=True)
        for problem in problems:
            stderr.say(f"Left out: {visible(withheld(problem))}")
        more = f"; {counted(skipped, 'run')} already there" if skipped else ""
        CalmConsole().say(f"{file}: {counted(len(added), 'case')} added{more}.")
        if any(not case.grading for case in added):
            stderr.say("Some cases have no criteria: add `criteria` to the file or to the agent.")
    if problems and not added:
        raise typer.Exit(ExitCode.NOT_MET)


# --- agents ------------------------------------------------------------------------------------------------


def _target(agent: str | None, cases: Sequence[EvalCase], model: str | None) -> Target:
    """The named agent, else the agent of all cases, else a model with their system prompt."""
    from redraft.loop.agent import Agent

    if agent is not None:
        return _imported(agent)
    named, prompts = {case.agent for case in cases}, {case.system_prompt for case in cases}
    own = next(iter(named)) if len(named) == 1 else ""
    if own and model is None:
        return _imported(own)  # it has its own prompt, so the prompts that the cases recorded don't matter
    if own and len(prompts) > 1:
        prompts.discard("")  # a case written by hand leaves out the prompt of its agent
    if len(named) > 1 or len(prompts) > 1:
        raise ConfigError(
            "The cases come from several agents; name the one to evaluate with --agent MODULE:NAME."
        )
    if model is None and not load_settings().model:
        raise ConfigError(
            "The cases name no agent: name one with --agent MODULE:NAME, or a model that answers in its "
            "place with --model NAME, REDRAFT_MODEL, or `model` in redraft.toml."
        )
    return Agent(model, system_prompt=prompts.pop())


def _imported(name: str) -> Target:
    if ":" not in name:
        raise ConfigError(f"Agents are named MODULE:NAME, such as app:writer; got {name!r}.")
    try:
        return cast("Target", imported(name))
    except ImportError as error:
        raise ConfigError(f"The agent {name!r} can't be imported: {error}.") from error


def _name(name: str) -> str:
    return name.rpartition(":")[2]


def _document(path: Path) -> Mapping[str, Any]:
    try:
        return cast("dict[str, Any]", load_json(path.read_text("utf-8-sig")))
    except OSError as error:
        raise ConfigError(f"The baseline {str(path)!r} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"The baseline {str(path)!r} is not JSON: {error}.") from error


# --- what is shown -----------------------------------------------------------------------------------------


def _progress(doing: str, console: CalmConsole) -> Progress:
    """Progress bar, hidden unless the output is a terminal."""
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def report_view(report: EvaluationReport) -> RenderableType:
    """Render a report: a table of the arms, and the differences between them."""
    rows = withheld([row(figures) for figures in report.figures])
    table = PlainTable(rows, right=list(rows[0])[1:], wrap=("arm",), drop=OPTIONAL_COLUMNS)
    lines: list[Text] = []
    for difference in report.differences:
        style = {"better": GOOD, "worse": BAD}.get(difference.passed.verdict, "")
        lines.append(Text(difference.sentence(), style))
        lines += [Text(f"  {flipped}", QUIET) for flipped in difference.flips()]
    lines += [Text(remark, QUIET) for remark in report.remarks()]
    ways = ["", ways_view(withheld(report.ways))] if report.ways else []
    return Group(table, "", *(Text(visible(withheld(line.plain)), line.style) for line in lines), *ways)


# --- redraft calibrate -------------------------------------------------------------------------------------

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
OPTIONAL_OF_JUDGES = ("wrong near the threshold", "wrongly accepted", "wrongly rejected", "you say yes")

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
    from redraft.evals.calibration import Calibrations

    calibrations = Calibrations(required_project_store("runs"))
    calibration = await calibrations.get(judge)
    console = CalmConsole()
    judged = counted(len(calibration.judgements), "judgement")
    console.show(
        Text(
            f"{visible(withheld(calibration.judge.model))}, rubric {calibration.judge.rubric}: {judged}, "
            f"{len(calibration.answers)} labelled. A calibration needs {FEWEST_LABELS}; more make it more "
            "certain.\n"
            "Does the output meet the criterion? Decide for yourself: what the model said is not shown.",
            QUIET,
        )
    )
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
    console.say(calibration.sentence())
    console.say(f"redraft calibrate show {calibration.judge.key}")


@calibrate.command("list")
@handles_errors
async def list_judges(as_json: options.Json = False) -> None:
    """List the models that judged here. Shows each with its rubric, and how well it is calibrated."""
    from redraft.evals.calibration import Calibrations, kappa_cell

    calibrations = await Calibrations(required_project_store("runs")).list()
    judges = withheld([calibration.document() for calibration in calibrations])
    if as_json:
        emit_json({"judges": judges})
        return
    if not judges:
        CalmConsole().say("No stored run here has been judged by a model yet.")
        return
    rows = [
        {
            "judge": judge["key"],
            "model": judge["model"],
            "judgements": str(judge["judgements"]),
            "labels": str(judge["labels"]),
            "kappa (95 %)": kappa_cell(judge["agreement"]),
            "criteria": ", ".join(judge["criteria"]),
        }
        for judge in judges
    ]
    table = PlainTable(
        rows,
        right=("judgements", "labels"),
        wrap=("judge", "model", "criteria"),
        drop=("judgements", "model"),
        fill="criteria",
    )
    CalmConsole().show(table)


@calibrate.command("show")
@handles_errors
async def show_judge(
    judge: Judge = "",
    false_accept: FalseAccept = 1.0,
    false_reject: FalseReject = 1.0,
    as_json: options.Json = False,
) -> None:
    """Show how well a judge agrees with your labels. Suggests what would make its errors cost less."""
    from redraft.evals.calibration import Calibrations, Costs, StabilityReport

    costs, store = Costs(false_accept, false_reject), required_project_store("runs")
    calibration = await Calibrations(store).get(judge)
    stability = await StabilityReport.stored(store, calibration.judge)
    document = withheld(calibration.document_with(costs, stability))
    views = [calibration_view(calibration, costs), *(["", stability_view(stability)] if stability else [])]
    deliver(Group(*views), document, as_json=as_json)


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
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Judge each output N times more.")] = 2,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    as_json: options.Json = False,
) -> None:
    """Test how often a judge changes its verdict when it judges an output again.

    This calls the model. No judgement is made twice: after an interruption, the same command continues.
    """
    from redraft.evals.calibration import Calibrations, StabilityTest

    store = required_project_store("runs")
    calibration = await Calibrations(store).get(judge)
    with _progress("judging", CalmConsole(stderr=True)) as progress:
        bar = progress.add_task("")
        test = StabilityTest(
            calibration,
            store,
            model=model,
            outputs=outputs,
            repeats=repeats,
            budget_tokens=budget_tokens,
            budget_usd=budget_usd,
            budget_seconds=budget_seconds,
            on_judged=lambda: progress.advance(bar),
        )
        progress.update(bar, total=test.total)
        with continued_by("To continue: the same command, which repeats no judgement."):
            report = await test.run()
    deliver(stability_view(report), withheld(to_json(report)), as_json=as_json)
    raise typer.Exit(ExitCode.BUDGET if report.note else ExitCode.MET)


# --- labelling ---------------------------------------------------------------------------------------------

ANSWERS = {"y": True, "n": False, "s": None}
KEYS = "y yes   n no   s skip   u undo   q quit"


def _key() -> str:
    """Wait for a valid key; the end of the input, Ctrl-C and Escape mean q."""
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


def _question(calibration: Calibration, judgement: Judgement) -> RenderableType:
    number = len(calibration.judgements) - len(calibration.left) + 1
    redacted_judgement = withheld(judgement)
    criterion = redacted_judgement.criterion
    text = criterion.name if not criterion.description else f"{criterion.name}: {criterion.description}"
    return Group(
        Rule(f"{number} of {len(calibration.judgements)}", style=QUIET),
        _part("Task", redacted_judgement.task.description),
        _part("Output", as_text(redacted_judgement.output)),
        _part("Criterion", text),
        Text(KEYS, QUIET),
    )


def _part(name: str, text: str) -> RenderableType:
    return Group(Text(name, "bold"), Padding(Text(visible(text)), (0, 0, 1, 2)))


# --- what is shown -----------------------------------------------------------------------------------------


def stability_view(report: StabilityReport) -> RenderableType:
    """Render the test-retest reliability of a judge."""
    row = report.row()
    heading = f"{report.model}, {counted(report.outputs, 'output')} judged again"
    return Group(
        Text(visible(withheld(heading)), "bold"),
        "",
        PlainTable([row], right=list(row)),
        *([Text(visible(withheld(report.note)), BAD)] if report.note else []),
        Text(render_usage(report.usage), QUIET),
    )


def calibration_view(calibration: Calibration, costs: Costs) -> RenderableType:
    """Render a calibration: the figures of each criterion, and suggestions."""
    report = withheld(calibration.report(costs))
    rows = [criterion.row() for criterion in report]
    return Group(
        Text(visible(withheld(f"{calibration.judge.model}, rubric {calibration.judge.rubric}")), "bold"),
        Text(calibration.sentence(), GOOD if calibration.is_calibrated else BAD),
        "",
        PlainTable(rows, right=list(rows[0])[1:], wrap=("criterion",), drop=OPTIONAL_OF_JUDGES),
        "",
        *(Text(visible(line), QUIET) for criterion in report for line in criterion.suggestions()),
    )
