"""Commands on stored runs: `redraft runs`, `show`, `why`, `diff`, `export` and `resume`."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._codec import to_json
from redraft._texts import ago, as_text, counted, has_no_criteria, scored, shortened, verdict_of
from redraft._validation import nearest
from redraft.errors import ConfigError, StoreError
from redraft.evals.success import NEWEST, SuccessCriteria, success_criteria
from redraft.events import RunStarted
from redraft.loop.cli import (
    Progress,
    Resumed,
    check_output,
    deliver_result,
    ending,
    exchange_lines,
    first_to_best,
    issue_line,
    issue_lines,
    outcome,
    resumed,
    state_text,
    ways_view,
    write_output,
)
from redraft.loop.correction import corrected_version, editable_text
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.runs import STATES, Runs
from redraft.loop.version_diff import diff_document, field_text
from redraft.loop.ways import ways_of
from redraft.redact.redactor import redactor_of_environment, withheld
from redraft.settings import DEFAULT_HOME, project_folder
from redraft.stores.location import project_place, required_project_store
from redraft.terminal import options
from redraft.terminal.commands import at_database, run_async
from redraft.terminal.console import (
    BAD,
    GOOD,
    QUIET,
    CalmConsole,
    deliver,
    emit,
    emit_json,
    sparkline,
)
from redraft.terminal.exits import BUDGETS, ExitCode, code_of
from redraft.terminal.input import edited, refused_text, save_refused
from redraft.terminal.tables import PlainTable, bare_table
from redraft.terminal.word_diff import changes, marked
from redraft.text.characters import visible
from redraft.text.diff import ABSENT
from redraft.types import ConvergenceReason, failures, preference, render_score, render_usage, render_usd
from redraft.workflow.cli import (
    check_workflow_options,
    ending_text,
    print_result,
    read_history,
    read_why,
    read_workflows,
    resumed_workflow,
    workflow_view,
)
from redraft.workflow.history import WorkflowRow, Workflows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from redraft.events import Event
    from redraft.loop.record import RunRecord
    from redraft.loop.runs import AfterBest, StoredRun
    from redraft.loop.version_diff import VersionDiff
    from redraft.text.diff import FieldChange
    from redraft.types import ReflectionVersion, TokenUsage
    from redraft.workflow.history import StoredWorkflow, WorkflowHistory


T = TypeVar("T")
VERSION = "2 or v2, 1.3 for a candidate, first, best, last."
LONGEST_CURVE = 8
LONGEST_TITLE = 40
"""Longest name of an agent in the title of a run."""
CURVE = ""
"""The column of sparklines, which has no title."""
NUMBERS = ("n", "cost", "s")
OPTIONAL_COLUMNS = ("s", "cost", "who", "when", CURVE, "n")
LISTED = 20
"""Default maximum of listed runs."""
LONGEST_TASK = 400
LONGEST_NAME = 30
EVALUATION = "evaluation"
"""The kind of the records of `redraft.evals`."""
VERSION_WIDTH = 9
INDENT = (0, 0, 0, 2)
BELOW = "<"
UNASKED = "/"
ENDED_EARLY = ("killed", "unknown", "failed", "cancelled")
MARKS = {
    True: ("addressed    ", GOOD),
    False: ("not addressed", BAD),
    None: ("not known    ", QUIET),
}


@at_database
async def runs(
    status: Annotated[
        str | None,
        typer.Option(metavar="S", help=f"Filter by state: {', '.join(STATES)}."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Filter by agent or workflow, or by command ('redraft revise')."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="R", help="Filter by why they stopped: quality_met, plateau, ...")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help=f"Maximum number of runs. Default: {LISTED}; {NEWEST} with --criteria."
        ),
    ] = None,
    inner: Annotated[bool, typer.Option("--inner", help="Include runs inside other runs.")] = False,
    criteria: Annotated[
        bool, typer.Option("--criteria", help="Measure the five success criteria on these runs instead.")
    ] = False,
    ways: Annotated[
        bool, typer.Option("--ways", help="Show instead which ways to revise were gains, by agent and model.")
    ] = False,
    judge_again: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="With --criteria: have N runs judged a second time, which costs a call each.",
        ),
    ] = 0,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME", help="The judge for --judge-again. Default: that of the run."
        ),
    ] = None,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    database: options.Database = None,
    as_json: options.Json = False,
) -> None:
    """List runs and workflows, newest first. With --criteria: how well reflecting works in them."""
    _check_choice("--status", status, STATES)
    _check_choice("--reason", reason, [reason.value for reason in ConvergenceReason])
    if judge_again and not criteria:
        raise ConfigError("--judge-again needs --criteria.")
    for option, value in {
        "--model": model,
        "--budget-tokens": budget_tokens,
        "--budget-usd": budget_usd,
        "--budget-seconds": budget_seconds,
    }.items():
        if value is not None and not judge_again:
            raise ConfigError(f"{option} needs --criteria --judge-again N, which calls a model.")
    if criteria:
        pattern = ReflectionPattern(
            reflection_model=model,
            budget_tokens=budget_tokens,
            budget_usd=budget_usd,
            budget_seconds=budget_seconds,
        )
        filters = {"status": status, "name": name, "reason": reason, "inner": inner}
        measured = await _measured(pattern, judge_again, limit=limit or NEWEST, **filters)
        document = {"database": str(project_place()), **to_json(measured.document())}
        deliver(success_view(measured), withheld(document), as_json=as_json)
        return
    if ways:
        filters = {"agent": name, "status": status, "reason": reason}
        where = {column: value for column, value in filters.items() if value}
        records = await ways_of(required_project_store("runs"), where, limit or NEWEST)
        document = {"database": str(project_place()), "ways": [record.document() for record in records]}
        deliver(ways_view(records), document, as_json=as_json)
        return
    limit = limit or LISTED
    loops = await _read_runs(status=status, name=name, reason=reason, inner=inner, limit=limit)
    # Only loops have a reason for stopping.
    workflows = [] if reason else await read_workflows(status=status, name=name, limit=limit)
    newest = sorted([*loops, *workflows], key=lambda run: run.started_at, reverse=True)[:limit]
    place = str(project_place())
    if as_json:
        documents = [row.document() if isinstance(row, WorkflowRow) else row.summary() for row in newest]
        emit_json({"database": place, "runs": documents})
        return
    console = CalmConsole()
    if not newest:
        filtered = any((status, name, reason))
        has_inner = not (filtered or inner) and bool(await Runs().find(inner=True, limit=1))
        console.show(_no_runs(place, filtered=filtered, has_inner=has_inner, is_own=database is None))
        return
    console.show(run_table(newest, is_utf8=console.is_utf8))
    if len(newest) == limit:
        CalmConsole(stderr=True).say(f"At most {limit} are listed; --limit N shows more.")


async def _measured(pattern: ReflectionPattern, judge_again: int, **filters: Any) -> SuccessCriteria:
    """Measure the success criteria, with the progress of second judgements on the terminal."""
    if not judge_again:
        return await success_criteria(pattern=pattern, **filters)
    progress, number = Progress(CalmConsole(stderr=True), rows=False), count(1)

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            progress.switch_to(f"second judgement {next(number)}")
        progress(event)

    with progress:
        pattern = replace(pattern, on_event=listen)
        return await success_criteria(judge_again=judge_again, pattern=pattern, **filters)


def success_view(measured: SuccessCriteria) -> RenderableType:
    """Render the success criteria of runs: the value, the target and the basis of each."""
    figures, styles = measured.figures.values(), {None: QUIET, True: GOOD, False: BAD}
    rows = [
        {
            "criterion": figure.title,
            "value": Text(figure.shown_value, styles[figure.reached]),
            "target": figure.shown_target,
            "based on": figure.stands_on,
        }
        for figure in figures
    ]
    table = PlainTable(rows, right=("value",), wrap=("based on",), fill="based on")
    parts: list[RenderableType] = [
        Text(f"Success criteria of {counted(measured.runs, 'run')}", "bold"),
        "",
        table,
    ]
    if measured.usage.requests:
        parts += ["", Text(f"Judged again: {render_usage(measured.usage)}.", QUIET)]
    if measured.note:
        parts += ["", Text(visible(withheld(measured.note)), BAD)]
    elif measured.consistency.unknown:
        parts += ["", Text("--judge-again N judges N outputs a second time, at a call each.", QUIET)]
    return Group(*parts)


def _check_choice(option: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise ConfigError(f"Unknown {option} {value!r}; {nearest(value, choices)}")


async def _read_runs(
    *, status: str | None, name: str | None, reason: str | None, inner: bool, limit: int
) -> list[RunRecord]:
    """The newest runs that match, with secrets withheld in the fields that a list shows."""
    records = await Runs().find(status=status, name=name, reason=reason, inner=inner, limit=limit)
    redactor = redactor_of_environment()
    return [
        replace(
            record,
            task=redactor.redact_object(record.task),
            origin=redactor.redact_object(record.origin),
            error=redactor.redact(record.error).text,
        )
        for record in records
    ]


def _no_runs(place: str, *, filtered: bool, has_inner: bool, is_own: bool) -> str:
    if filtered:
        return f"No run in {place} matches."
    if has_inner:
        return (
            f"{place} has only runs inside others, such as those of an evaluation: "
            "`redraft runs --inner` lists them, and `redraft eval list` the evaluations."
        )
    if not is_own:
        return f"No runs are stored in {place}."
    above = next((folder for folder in project_folder().parents if (folder / DEFAULT_HOME).is_dir()), None)
    elsewhere = (
        ""
        if above is None
        else f"{above} has a {DEFAULT_HOME} folder, which is used in that folder only, unless it has a "
        "redraft.toml (which may be empty).\n"
    )
    return (
        f"No runs are stored in {place} yet.\n{elsewhere}"
        "Every run of an Agent, a @reflected function or a workflow is stored, and so is every run of check, "
        "revise and demo: try `redraft demo`. For runs in a store of your own, such as "
        "keep=SqliteStore('runs.db'), add --database runs.db."
    )


def run_table(runs: Sequence[RunRecord | WorkflowRow], *, is_utf8: bool = True) -> PlainTable:
    """Render runs and workflows as a table."""
    rows = [_workflow_row(run) if isinstance(run, WorkflowRow) else _run_row(run) for run in runs]
    if not is_utf8:
        for row in rows:
            del row[CURVE]
    return PlainTable(rows, right=NUMBERS, wrap=("run",), drop=OPTIONAL_COLUMNS, fill="task")


def _run_row(record: RunRecord) -> dict[str, str | Text]:
    return {
        "run": record.run_id,
        "when": ago(record.started_at),
        "who": record.origin.name,
        "stopped": outcome(record),
        "n": str(record.revisions + 1 if record.versions else 0),
        "score": first_to_best(record),
        CURVE: _curve(record, LONGEST_CURVE),
        "cost": _cost(record.usage),
        "s": f"{record.execution_time:.1f}",
        "task": record.task.description,
    }


def _workflow_row(row: WorkflowRow) -> dict[str, str | Text]:
    return {
        "run": row.run_id,
        "when": ago(row.started_at),
        "who": row.name,
        "stopped": state_text(row.status),
        "n": str(row.nodes),
        "score": "",
        CURVE: "",
        "cost": _cost(row.usage),
        "s": f"{row.execution_time:.1f}",
        "task": f"{row.name}, workflow: {counted(row.nodes, 'node')} ran",
    }


def _curve(record: RunRecord, longest: int | None = None) -> str:
    """Render the scores of a run's versions as a sparkline."""
    return sparkline([version.evaluation.overall_score for version in record.versions], longest)


def _cost(usage: TokenUsage) -> str:
    """Render a cost; `?` if it is unknown."""
    return "?" if usage.cost_usd is None else render_usd(usage.cost_usd)


@at_database
async def show(
    run: options.Run,
    prompts: Annotated[bool, typer.Option("--prompts", help="Show all prompts and replies.")] = False,
    version: Annotated[
        str | None,
        typer.Option(
            "--version", metavar="V", help="Print the output of a version: 2, 1.3, first, best or last."
        ),
    ] = None,
    edit: Annotated[
        bool,
        typer.Option("--edit", help="Correct the best output in your editor: $VISUAL, $EDITOR or vi."),
    ] = False,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="Why you correct it, for the lesson.")
    ] = "",
    verbatim: options.Verbatim = False,
    as_json: options.Json = False,
) -> None:
    """Show a run.

    Shows its versions, their scores, what failed, and its usage.

    With --edit, your correction of the output is saved: it becomes a lesson, and `redraft eval add` makes a
    case of it.

    For a workflow: its nodes, their results, and the runs of its loops. Secrets and personal data are
    withheld unless you add --verbatim.
    """
    console = CalmConsole()
    if edit:
        if prompts or version is not None:
            raise ConfigError("--edit opens the best output; leave --prompts and --version out.")
        await _edit(run, why, as_json=as_json)
        return
    if why:
        raise ConfigError("--why is the reason of a correction; add --edit.")
    if (workflow := await read_history(run, verbatim=verbatim)) is not None:
        check_workflow_options(workflow, version=version, prompts=prompts)
        deliver(workflow_view(workflow), workflow.document(), as_json=as_json)
        return
    stored = await _read_run(run, verbatim=verbatim)
    if version is not None:
        selected = stored.version(version)
        if as_json:
            emit_json({"run_id": stored.record.run_id, "version": selected})
        else:
            emit(as_text(selected.output))
    elif as_json:
        emit_json(stored.document(steps=prompts) if verbatim else _document(stored, steps=prompts))
    else:
        console.show(run_view(stored, console.width, is_utf8=console.is_utf8))
        if prompts:
            console.show(_prompts_view(stored), soft_wrap=True)


async def _edit(run_id: str, why: str, *, as_json: bool) -> None:
    """Have a person correct the output of a run; a refused correction is saved in a file."""
    stored = await _read_run(run_id, verbatim=True)
    record = stored.record
    before = editable_text(record)
    is_text = record.output_type is None and isinstance(corrected_version(record).output, str)
    rejected = Path(f"{record.run_id}.rejected")
    text = refused_text(rejected) or before
    text = edited(text, f"{record.run_id}.{'txt' if is_text else 'json'}")
    if is_text and not before.endswith(("\n", "\r")):
        text = text.removesuffix("\n").removesuffix("\r")  # most editors add a line ending
    try:
        correction = await Runs().correct(record.run_id, text, why=why)
    except (ConfigError, StoreError) as error:
        save_refused(rejected, text)
        raise ConfigError(
            f"{error} Nothing was saved. Your text is in {str(rejected)!r}; "
            f"`redraft show --edit {record.run_id}` resumes it."
        ) from error
    save_refused(rejected, "")
    if correction is None:
        if as_json:
            emit_json({"run_id": record.run_id, "correction": None})
            return
        is_taken_back = record.correction is not None and (await Runs().get(record.run_id)).correction is None
        done = "The correction was taken back." if is_taken_back else "Nothing was changed."
        CalmConsole(stderr=True).say(done)
        return
    if as_json:
        emit_json({"run_id": record.run_id, "correction": withheld(to_json(correction))})
        return
    after = await _read_run(record.run_id)
    CalmConsole().show(Group(*_correction(after)[1:]))


def _correction(run: StoredRun) -> list[RenderableType]:
    """Render a person's correction of the output, and the lesson or case made of it."""
    correction = run.record.correction
    if correction is None:
        return []
    lines: list[RenderableType] = [
        Text.assemble(("Corrected by a person", "bold"), f", version {correction.version}"),
        *(Padding(Text(visible(line)), INDENT) for line in correction.lines()),
    ]
    if correction.lesson:
        lines.append(Text(f"Lesson: {visible(correction.lesson)}", QUIET))
    if correction.problem:
        lines.append(Text(f"No lesson: {visible(correction.problem)}", BAD))
    if run.record.unimportable is None:
        lines.append(Text(f"As a case: redraft eval add {run.record.run_id}", QUIET))
    return ["", *lines]


def _document(run: StoredRun, *, steps: bool = True) -> dict[str, Any]:
    """A redacted run as plain data. Its process is redacted last, since the state is derived from it."""
    document = run.document(steps=steps)
    return document | {"process": redactor_of_environment().redact_json(document["process"])}


def run_view(run: StoredRun, width: int, *, is_utf8: bool = True) -> RenderableType:
    """Render a run."""
    parts: list[RenderableType] = [*_head(run, is_utf8=is_utf8)]
    if run.record.versions:
        parts += ["", *score_tables(run, width)]
    parts += _correction(run)
    versions = run.record.versions
    sections: dict[str, Sequence[RenderableType]] = {
        "Written by": [  # if the run had several models
            Text(f"version {version.iteration}: {visible(writer)}")
            for version in versions
            if (writer := run.writer(version))
        ],
        "Candidates": _candidates(run),
        "Comparisons": [
            Text(f"version {version.iteration}: {words}")
            for version in versions
            if (words := preference(version))
        ],
        "What failed": _failed(run),
        "Advice": _advice(run),
        "Reflections": _reflections(run),
        "Used": [_usage(run)],
    }
    for title, lines in sections.items():
        parts += ["", Text(title, "bold"), *lines] if lines else []
    notes = [Text(f"Note: {visible(text)}") for text in run.record.diagnostics.values()]
    return Group(*parts, *(["", *notes] if notes else []))


def _title(run: StoredRun) -> Text:
    """Render the id, the agent and the start of a run as a line."""
    record = run.record
    agent = shortened(visible(record.origin.name), LONGEST_TITLE) or record.origin.surface
    model = f" with {visible(record.origin.model)}" if record.origin.model else ""
    line = Text.assemble((record.run_id, "bold"), f"  {agent}{model}, {ago(record.started_at)}")
    if record.parent:
        line.append(f", inside {record.parent}", QUIET)
    return line


def _head(run: StoredRun, *, is_utf8: bool) -> list[RenderableType]:
    record, reason = run.record, run.why
    best = record.version(record.best)
    task = visible(record.task.description.strip())
    if len(task) > LONGEST_TASK:
        task = f"{task[:LONGEST_TASK].rstrip()} ..."
    lines: list[RenderableType] = [_title(run), Padding(Text(task, QUIET), INDENT), ""]
    if best is not None and has_no_criteria(best):
        lines.append(Text.assemble("Best: ", (f"version {best.iteration}", "bold"), ", which was not judged"))
    elif best is not None:
        line = Text.assemble(
            "Best: ",
            (
                f"version {best.iteration}, {render_score(best.evaluation.overall_score).strip()}",
                f"bold {GOOD}" if best.evaluation.satisfactory else "bold",
            ),
            f", which {verdict_of(best.evaluation)}",
        )
        lines.append(line.append(f"   {_curve(record)}") if is_utf8 else line)
    lines.append(
        Text.assemble(
            "Stopped: " if record.reason else "State: ", f"{reason.headline}. ", visible(reason.detail)
        )
    )
    return lines


def score_tables(run: StoredRun, width: int) -> list[RenderableType]:
    """Render the scores by criterion and version, in several tables if there are too many versions."""
    versions = run.record.versions
    names = max((len(name) for name in (*run.criteria, "strategy")), default=0)
    fits = max(1, (width - min(names, LONGEST_NAME) - 8) // VERSION_WIDTH)
    parts: list[RenderableType] = []
    for at in range(0, len(versions), fits):
        parts += [_score_table(run, versions[at : at + fits])]
    legend = "* the best version"
    if not all(map(has_no_criteria, versions)):
        legend += f"   {BELOW} below its threshold   - could not be judged"
        if any(version.evaluation.unasked for version in versions):
            legend += f"   {UNASKED} not asked, because a gate is not met"
    return [*parts, Text(legend, QUIET)]


def _score_table(run: StoredRun, versions: Sequence[ReflectionVersion]) -> Table:
    table = bare_table()
    table.add_column("", max_width=LONGEST_NAME, overflow="fold")
    table.add_column("needs", justify="right", no_wrap=True, style=QUIET)
    weights = run.weights
    if weights:
        table.add_column("weight", justify="right", no_wrap=True, style=QUIET)
    for version in versions:
        mark = "*" if version.iteration == run.record.best else " "
        header = Text(f"{mark}{version.iteration}", "bold" if mark == "*" else QUIET)
        table.add_column(header, justify="left", no_wrap=True, min_width=6)
    overall = run.record.options.get("quality_threshold")
    table.add_row(
        Text("score", "bold"),
        "" if overall is None else render_score(overall),
        *([""] if weights else []),
        *(_score(version.evaluation.overall_score, overall, bold=True) for version in versions),
    )
    for name in run.criteria:
        threshold = run.thresholds.get(name)
        table.add_row(
            visible(name) + (", gate" if name in run.gates else ""),
            "" if threshold is None else render_score(threshold),
            *([f"{weights[name]:g}" if name in weights else ""] if weights else []),
            *(
                Text(UNASKED, QUIET)
                if name in version.evaluation.unasked
                else _score(version.evaluation.criteria_scores[name], threshold)
                if name in version.evaluation.criteria_scores
                else Text("", QUIET)
                for version in versions
            ),
        )
    table.add_row(
        Text("strategy", QUIET),
        "",
        *([""] if weights else []),
        *(Text(_how(version), QUIET, overflow="fold") for version in versions),
    )
    return table


def _score(score: float | None, threshold: float | None, *, bold: bool = False) -> Text:
    if score is None:
        return Text("-", BAD)
    is_below = threshold is not None and score < threshold
    style = (BAD if is_below else GOOD) + (" bold" if bold else "")
    return Text(f"{score:.2f} {BELOW}" if is_below else f"{score:.2f}", style)


def _how(version: ReflectionVersion) -> str:
    if version.repeats is not None:
        return f"as {version.repeats}"
    return version.strategy.replace("_", "\n", 1)


def _candidates(run: StoredRun) -> list[RenderableType]:
    """Render the rejected candidates of each version, and the reason for the choice."""
    parts: list[RenderableType] = []
    for version in run.record.versions:
        if version.choice is not None:
            parts.append(Text(f"version {version.iteration}: {visible(version.choice.detail)}"))
        for candidate in version.rejected:
            line = Text(f"{candidate.name}  {scored(candidate)}", QUIET)
            line.append(visible(failures(candidate.evaluation)), QUIET)
            parts.append(Padding(line, INDENT))
    return parts


def _failed(run: StoredRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for version in run.record.versions:
        if (failing := version.evaluation.failing) and version.repeats is None:
            lines = issue_lines(failing)
            parts += [Text(f"version {version.iteration}"), Padding(lines, INDENT)]
    return parts


def _advice(run: StoredRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for advice in run.record.advice:
        reason = f", {visible(advice.reason)}" if advice.reason else ""
        after = f", after {visible(advice.after)}" if advice.after else ""
        source = Text(f"{visible(advice.source)}{reason}{after}, {advice.tokens} tokens", QUIET)
        parts += [source, Padding(Text(visible(advice.text)), INDENT)]
    return parts


def _reflections(run: StoredRun) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for reflection in run.record.reflections:
        step = f", step {reflection.step}" if reflection.step else ""
        parts.append(Text(f"{reflection.trigger}, version {reflection.iteration}{step}", QUIET))
        text = Text(visible(reflection.text or reflection.problem), "" if reflection.text else BAD)
        parts.append(Padding(text, INDENT))
    return parts


def _usage(run: StoredRun) -> Table:
    record = run.record
    table = Table.grid(padding=(0, 2, 0, 0))
    for role, usage in record.usage_by_role.items():
        table.add_row(role, render_usage(usage))
    table.add_row("total", f"{render_usage(record.usage)}, {record.execution_time:.1f} s")
    if spent := run.after_best:
        table.add_row("after the best", _after_text(spent))
    return table


def _after_text(spent: AfterBest) -> str:
    """Render the spend after the best version."""
    if not spent.versions and not (spent.usage and spent.usage.requests):
        return "nothing"
    used = "usage not known" if spent.usage is None else render_usage(spent.usage)
    return f"{used}, {spent.seconds:.1f} s"


def _prompts_view(run: StoredRun) -> RenderableType:
    """Render the prompts and replies of all calls, in order."""
    parts: list[RenderableType] = []
    for entry in run.timeline:
        for step in entry.inner:
            version = "" if entry.version is None else f"version {entry.version}, "
            parts += exchange_lines(f"{version}{entry.step.name}", step.exchange)
    if not parts:
        parts = [
            "",
            Text("No model was called in this run, or its prompts and replies were not stored.", QUIET),
        ]
    return Group(*parts)


@at_database
async def why(
    run: options.Run,
    as_json: options.Json = False,
) -> None:
    """Explain why a run stopped.

    Shows the rule, its numbers, and the spend after the best version.

    For a workflow without a loop: its progress, and the question it waits for or the error it failed with.
    """
    if (workflow := await read_why(run)) is not None:
        document = {
            "run_id": workflow.row.run_id,
            "status": workflow.row.status,
            "best_version": None,
            "why": workflow.why,
            "after_best": None,
            "resuming_call": workflow.stored.resuming_call if workflow.row.status in ENDED_EARLY else "",
        }
        deliver(_workflow_why(workflow), document, as_json=as_json)
        return
    stored = await _read_run(run)
    record = stored.record
    document = {
        "run_id": record.run_id,
        "status": record.state,
        "best_version": record.best,
        "why": stored.why,
        "after_best": stored.after_best,
        "correction": record.correction,
        "resuming_call": record.resuming_call() if record.state in ENDED_EARLY else "",
    }
    deliver(_why_view(stored), document, as_json=as_json)


def _why_view(run: StoredRun) -> RenderableType:
    """Render the rule, its numbers, the shortcomings of the best version, and the spend after it."""
    record, reason = run.record, run.why
    best = record.version(record.best)
    parts: list[RenderableType] = [
        _title(run),
        "",
        Text.assemble((reason.rule, "bold"), f": {reason.headline}."),
        Padding(Text(visible(reason.detail)), INDENT),
    ]
    parts += [
        Padding(Text(f"Version {version.iteration}: {visible(version.choice.detail)}"), INDENT)
        for version in record.versions
        if version.choice is not None
    ]
    parts += [
        Padding(Text(f"Version {version.iteration}: {visible(version.way.reason)}"), INDENT)
        for version in record.versions
        if version.way is not None and version.way.reason
    ]
    if best is not None:
        parts += ["", _returned(run, best)]
        parts += [Padding(Text(f"- {visible(shortcoming)}", BAD), INDENT) for shortcoming in reason.short_of]
    parts += _correction(run)
    if spent := run.after_best:
        later = f" ({counted(spent.versions, 'version')})" if spent.versions else ""
        parts.append(Text(f"Spent after it{later}: {_after_text(spent)}."))
    if record.parent and record.state in ENDED_EARLY:
        parts += ["", Text(f"It ran inside {visible(record.parent)}, and goes on when that one does.", QUIET)]
    else:
        if reason.rule in BUDGETS and not record.parent:
            parts += ["", Text(_budget_advice(record), QUIET)]
        if reason.rule not in BUDGETS or record.resuming_call():
            parts += _continuation("run", record.run_id, record.state, record.resuming_call())
    return Group(*parts)


def _budget_advice(record: RunRecord) -> str:
    """How to raise the budget of a run that its budget stopped."""
    if record.status == "finished":
        return (
            f"The run is over: under the id {record.run_id} it returns this result, whatever the budget. "
            "To have more tried, raise the budget and start a run with a new id."
        )
    if not record.resuming_call():
        return (
            "Run the command again with a larger budget; `redraft resume` would repeat it with the same one."
        )
    return "Raise the budget first: with the same one, the run stops here again."


def _workflow_why(history: WorkflowHistory) -> RenderableType:
    """Render the state of a workflow, the reason, and the way to continue it."""
    row, reason = history.row, history.why
    listing = f"redraft show {row.run_id} lists its nodes and their results."
    return Group(
        Text.assemble((row.run_id, "bold"), f"  workflow {visible(row.name)}, {ago(row.started_at)}"),
        "",
        Text.assemble((reason.rule, "bold"), f": {reason.headline}."),
        Padding(Text(visible(reason.detail)), INDENT),
        *_continuation("workflow", row.run_id, row.status, history.stored.resuming_call),
        *([] if row.status in ENDED_EARLY else ["", Text(listing, QUIET)]),
    )


def _continuation(kind: str, run_id: str, state: str, call: str) -> list[RenderableType]:
    """Render how to continue a run that ended early: the call of a program, else `redraft resume`."""
    if state not in ENDED_EARLY:
        return []
    if call:
        return ["", Text(_belongs_to_program(kind, run_id), QUIET), Padding(Text(visible(call)), INDENT)]
    force = " --force" if state == "unknown" else ""
    return ["", Text(f"redraft resume {run_id}{force} goes on with it.", QUIET)]


def _belongs_to_program(kind: str, run_id: str) -> str:
    return f"The {kind} {run_id} belongs to a program of yours, which resumes it with this call:"


def _returned(run: StoredRun, best: ReflectionVersion) -> Text:
    verb = "Returned" if run.record.reason else "Best so far"
    if has_no_criteria(best):
        return Text(f"{verb}: version {best.iteration}, which was not judged.")
    line = Text(f"{verb}: version {best.iteration} ({scored(best)}), which ")
    if best.evaluation.satisfactory:
        return line.append("meets the criteria.", GOOD)
    if best.evaluation.leaves_nothing_to_revise:
        return line.append("was not fully judged:")
    return line.append("falls short:" if run.why.short_of else f"{verdict_of(best.evaluation)}.")


@at_database
async def diff(
    run: options.Run,
    older: Annotated[str, typer.Argument(metavar="V1", help=VERSION)] = "first",
    newer: Annotated[str, typer.Argument(metavar="V2", help=VERSION)] = "best",
    verbatim: options.Verbatim = False,
    as_json: options.Json = False,
) -> None:
    """Compare two versions of a run.

    Compares word by word, or field by field if both are JSON.
    """
    stored = await _read_run(run, verbatim=verbatim)
    version_diff = stored.diff(older, newer)
    view = diff_view(version_diff, stored.record.run_id, coloured=CalmConsole().is_coloured)
    deliver(view, {"run_id": stored.record.run_id, **diff_document(version_diff)}, as_json=as_json)


def diff_view(diff: VersionDiff, run_id: str, *, coloured: bool) -> RenderableType:
    """Render the scores of two versions, the changes, and the addressed issues."""
    older, newer = diff.older, diff.newer
    base = "" if newer.base is None else f", from version {newer.base}"
    parts: list[RenderableType] = [
        Text(
            f"version {older.name} ({scored(older)}) > version {newer.name} ({scored(newer)})",
            "bold",
        ),
        Text(f"version {newer.name}: {newer.strategy.replace('_', ' ')}{base}", QUIET),
        "",
    ]
    if older is newer:
        return Group(
            *parts, Text(f"Both are the same version; `redraft diff {run_id} first last` compares others.")
        )
    if diff.is_same:
        parts.append(Text("The outputs are the same."))
    elif diff.fields is not None:
        parts += [_field(change, coloured=coloured) for change in diff.fields]
    else:
        parts.append(changes(as_text(older.output), as_text(newer.output), coloured=coloured, longest=None))
    parts += _points(diff)
    if newer.base is not None and str(newer.base) != older.name:
        command = f"redraft diff {run_id} {newer.base} {newer.name}"
        parts += ["", Text(f"`{command}` shows the critique that version {newer.name} answers.", QUIET)]
    return Group(*parts)


def _field(change: FieldChange, *, coloured: bool) -> Text:
    line = Text.assemble((visible(change.path) or "(document)", "bold"), ": ")
    if change.old is not ABSENT:
        line.append_text(marked("-", visible(field_text(change.old)), coloured=coloured))
    if change.old is not ABSENT and change.new is not ABSENT:
        line.append(" ")
    if change.new is not ABSENT:
        line.append_text(marked("+", visible(field_text(change.new)), coloured=coloured))
    return line


def _points(diff: VersionDiff) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if diff.critique.points:
        parts += ["", Text(f"Critique of version {diff.older.name}")]
        for point in diff.critique.points:
            mark, style = MARKS[point.addressed]
            line = Text.assemble((mark, style), "  ", issue_line(point.issue))
            parts.append(Padding(line, INDENT))
    if diff.critique.new:
        parts += ["", Text(f"Critique of version {diff.newer.name} only")]
        parts += [Padding(issue_line(issue), INDENT) for issue in diff.critique.new]
    return parts


@at_database
async def export(
    run: options.Run,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write one self-contained HTML file; '-' is stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run as one JSON document.")] = False,
) -> None:
    """Export a run. --html FILE is for people, --json for programs. Read the export before you share it."""
    from redraft.history.run_page import run_page

    if (html is None) != as_json:
        raise ConfigError("export takes either --html FILE or --json.")
    to_file = html is not None and str(html) != "-"
    if html is not None and to_file:
        check_output(html, force=force, option="--html")
    stored = await _read_run(run, to_export=True)
    if html is None:
        emit_json(_document(stored))
    elif to_file:
        write_output(html, run_page(stored), force=force)
        message = (
            f"Wrote {html}. Recognised secrets, personal data and host names are withheld; "
            "everything else is verbatim, so read it before you share it."
        )
        CalmConsole(stderr=True).say(message)
    else:
        emit(run_page(stored))


@at_database
def resume(
    context: typer.Context,
    run: options.Run,
    force: Annotated[
        bool, typer.Option("--force", help="Resume even if its process may still be running.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Resume a run after its last finished step. A finished run prints its result again.

    A run started by a command resumes with its recorded arguments, draft and criteria. A workflow resumes
    with its recorded values and its current file, so that a mistake in the file can be fixed. For any other
    run, the Python call that resumes it is printed, with exit code 2. Otherwise the exit code is that of the
    command that started the run.
    """
    if (workflow := run_async(Workflows().get(run, or_of_loop=True))) is not None:
        raise typer.Exit(_resume_workflow(workflow, context, as_json=as_json, force=force))
    raise typer.Exit(_resume_run(run, context, as_json=as_json, force=force))


def _resume_run(run_id: str, context: typer.Context, *, as_json: bool, force: bool) -> ExitCode:
    run_async(_refuse_evaluation(run_id))
    record = run_async(Runs().get(run_async(Workflows().run_of(run_id))))
    if record.status == "finished":
        result = record.result()
        CalmConsole(stderr=True).show(ending(result))
        deliver_result(result, None, force=False, as_json=as_json)
        return code_of(result)
    record.check_resumable(force=force)
    if call := record.resuming_call():
        return _print_call("run", record.run_id, call, as_json=as_json)
    outer = resumed.set(Resumed(record, required_project_store("runs")))
    try:
        return _repeat_command(context, record.origin.arguments, record.origin.folder, as_json=as_json)
    finally:
        resumed.reset(outer)


def _resume_workflow(
    workflow: StoredWorkflow, context: typer.Context, *, as_json: bool, force: bool
) -> ExitCode:
    record = workflow.record
    if record.status == "finished" and record.state is not None:
        result = record.result()
        CalmConsole(stderr=True).say(ending_text(result))
        last = run_async(Workflows().last_value(record.run_id))
        print_result(result, last, as_json=as_json)
        return ExitCode.MET
    workflow.check_resumable(force=force)
    if workflow.launch is None:
        return _print_call("workflow", record.run_id, record.resuming_call(), as_json=as_json)
    outer = resumed_workflow.set(workflow)
    try:
        return _repeat_command(context, workflow.launch.arguments, workflow.launch.folder, as_json=as_json)
    finally:
        resumed_workflow.reset(outer)


def _repeat_command(
    context: typer.Context, arguments: Sequence[str], folder: str, *, as_json: bool
) -> ExitCode:
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"The run started in {folder!r}, which can't be entered: {error.strerror}."
        ) from error
    option = ["--json"] if as_json and "--json" not in arguments else []
    redraft = context.find_root().command
    return ExitCode(redraft.main([*arguments, *option], standalone_mode=False) or 0)


def _print_call(kind: str, run_id: str, call: str, *, as_json: bool) -> ExitCode:
    """Print the Python call that resumes a program's run or workflow."""
    if as_json:
        emit_json({"run_id": run_id, "call": call})
    else:
        CalmConsole(stderr=True).say(_belongs_to_program(kind, run_id))
        emit(call)
    return ExitCode.USAGE


async def _refuse_evaluation(run_id: str) -> None:
    """Raise `ConfigError` for the id of an evaluation, with the commands that show it."""
    if await required_project_store("runs").get(EVALUATION, run_id) is not None:
        raise ConfigError(
            f"{run_id!r} is an evaluation: `redraft eval show {run_id}` shows what it found, and "
            "`redraft runs --inner` lists its runs."
        )


async def _read_run(run_id: str, *, to_export: bool = False, verbatim: bool = False) -> StoredRun:
    """Read a run by its id, a prefix of it, or `last`; for a workflow, the run of its loop.

    The run is redacted unless `verbatim`. Raises `ConfigError` if no run matches, or several.
    """
    await _refuse_evaluation(run_id)
    stored = await Runs().stored(await Workflows().run_of(run_id))
    return stored if verbatim else stored.redacted(to_export=to_export)
