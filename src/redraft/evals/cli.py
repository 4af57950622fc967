"""`redraft eval`: whether reflecting pays off, on your own cases."""

from __future__ import annotations

import json
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from redraft._texts import counted
from redraft.errors import ConfigError, StoreError
from redraft.evals.case_file import add_cases, read_cases
from redraft.evals.cases import case_of, has_failed, has_regressed, was_right_at_first
from redraft.evals.report import LAST, Evaluations, read_baseline, row
from redraft.loop.cli import write_output
from redraft.loop.criteria_file import modules_in
from redraft.loop.runs import ENDED_RUNS, Runs
from redraft.settings import load_settings
from redraft.stores.location import project_place, required_project_store
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors, own_command
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, emit, emit_json, withheld
from redraft.terminal.exits import ExitCode
from redraft.terminal.tables import plain_table, width_of
from redraft.text.characters import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

    from redraft.evals.cases import EvalCase
    from redraft.evals.evaluation import EvaluationFleet, Target
    from redraft.evals.report import EvaluationReport, Try
    from redraft.loop.record import RunRecord

LEAST = ("tokens per passed", "s", "score (95 %)", "cost")
"""The columns that a narrow terminal goes without, the first ones first."""
CASES = Path("cases.yaml")
STDOUT = Path("-")
NEWEST = 200
"""How many of the newest runs are searched for cases."""

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
        typer.Argument(
            metavar="CASES", help="A file of cases: YAML, CSV, JSON lines or promptfoo; or hf:NAME[:SPLIT]."
        ),
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
    at_once: Annotated[
        int, typer.Option(metavar="N", min=1, help="Run at most N cases at the same time.")
    ] = 8,
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME", help="Have the workers of this fleet answer; see redraft worker -h."
        ),
    ] = None,
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
    as_json: options.Json = False,
) -> None:
    """Run an agent on cases (the default). Exits with 1 if it does worse than what it is compared with.

    Without --against and --compare, what an agent returns is compared with its own first draft; a function
    has none, and is measured alone.
    """
    from redraft.evals.evaluation import Evaluation

    if against is not None and compare is not None:
        raise ConfigError("Give either --against or --compare, not both.")
    if as_json and markdown == STDOUT:
        raise ConfigError("Give either --json or --markdown -, not both.")
    if junit == STDOUT:
        raise ConfigError("--junit needs a file; only --markdown can be printed.")
    for option, path in (("--junit", junit), ("--markdown", markdown)):
        if path is not None and path != STDOUT:
            _prepare(option, path)
    if agent is not None and model is not None:
        raise ConfigError(
            "--model answers the cases itself, so it can't be combined with --agent; --judge is the model "
            "that grades."
        )
    found = _cases_in(cases)
    baseline = None
    with modules_in(Path.cwd()), modules_in(Path(cases).parent):
        main = _target(agent, found, model)
        targets: dict[str, Target] = {_name(agent or found[0].agent or "agent"): main}
        if against is not None and against.endswith(".json"):
            baseline = _document(Path(against))
            read_baseline(baseline, [case.id for case in found])  # before anything is paid for
        elif against is not None:
            other = _name(against)
            targets[other if other not in targets else against] = _imported(against)
        workers = None if fleet is None else _fleet(fleet)
    console = CalmConsole(stderr=True)
    run_id = None
    if resume is not None:
        run_id = (await Evaluations(required_project_store("evaluations")).report(resume)).run_id
    parts = [] if compare is None else [part.strip() for part in compare.split(",")]
    # The first draft is part of the loop's run.
    arms = len({"loop" if part == "first" else part for part in parts}) or len(targets)
    with _progress(console, len(found) * n * arms) as advance:
        evaluation = Evaluation(
            found,
            targets,
            n=n,
            compare=parts,
            at_once=at_once,
            model=judge or model,
            budget_tokens=budget_tokens,
            budget_usd=budget_usd,
            budget_seconds=budget_seconds,
            run_id=run_id,
            fleet=workers,
            on_try=advance,
        )
        try:
            report = await evaluation.run()
        finally:
            if workers is not None:
                await workers.aclose()
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
        shown = CalmConsole()
        shown.show(report_view(report, shown.width))
    if project_place() is not None:
        console.say(f"Stored as {report.run_id}; {own_command()} eval show last")
    raise typer.Exit(_code(report, is_comparison=compare is not None))


def _prepare(option: str, path: Path) -> None:
    """Make sure, before anything is paid for, that a file can be written."""
    is_new = not (path.exists() or path.is_symlink())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
        if is_new:  # a command that fails must not leave an empty file
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{option} {str(path)!r} can't be written: {error.strerror}.") from error


def _code(report: EvaluationReport, *, is_comparison: bool) -> ExitCode:
    if report.evaluated.note:
        return ExitCode.BUDGET
    if report.figures[0].mean_passed is None:  # nothing could be judged, which is no reason to go on
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
    if as_json:
        emit_json(withheld(report.document()))
    else:
        shown = CalmConsole()
        shown.show(report_view(report, shown.width))


@eval.command("list")
@handles_errors
async def list_evaluations(as_json: options.Json = False) -> None:
    """List stored evaluations, newest first."""
    found = await Evaluations(required_project_store("evaluations")).list()
    if as_json:
        emit_json({"evaluations": withheld(found)})
        return
    if not found:
        CalmConsole().say(
            "No evaluations are stored here yet. To make one: redraft eval add last, redraft eval cases.yaml"
        )
        return
    columns = {
        "evaluation": [one.run_id for one in found],
        "began": [f"{one.started_at.astimezone():%Y-%m-%d %H:%M}" for one in found],
        "cases": [str(len(one.cases)) for one in found],
        "state": [one.state for one in found],
        "compared": [visible(", ".join(side.name for side in one.sides)) for one in found],
    }
    CalmConsole().show(plain_table(columns, right=("cases",), wrap=("compared",)))


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
    chosen: list[tuple[RunRecord, bool]] = [(await stored.get(one), control) for one in runs or ()]
    wanted = {has_failed: failed, has_regressed: regressed, was_right_at_first: control and not runs}
    if not chosen and not any(wanted.values()):
        raise ConfigError("Say which runs: 'last', an id, --failed, --regressed or --control.")
    if any(wanted.values()):
        newest = await stored.read_rows(await stored.rows(name=name, limit=NEWEST))
        for is_wanted, asked in wanted.items():
            if asked:
                matching = [one for one in newest if one.status in ENDED_RUNS and is_wanted(one)]
                chosen += [(one, is_wanted is was_right_at_first) for one in matching[:limit]]
    cases: list[EvalCase] = []
    problems: list[str] = []
    for record, is_control in chosen:
        try:
            record.task = await stored.task(record)
            cases.append(case_of(record, control=is_control))
        except (ConfigError, StoreError) as error:
            problems.append(str(error))
    added = add_cases(file, cases)
    if as_json:
        emit_json({"file": str(file), "added": [one.id for one in added], "left_out": withheld(problems)})
    else:
        stderr = CalmConsole(stderr=True)
        for problem in problems:
            stderr.say(f"Left out: {visible(withheld(problem))}")
        known = len(cases) - len(added)
        more = f"; {counted(known, 'run')} already there" if known else ""
        CalmConsole().say(f"{file}: {counted(len(added), 'case')} added{more}.")
        if any(not one.grading for one in added):
            stderr.say("Some cases have no criteria: add `criteria` to the file or to the agent.")
    if problems and not added:
        raise typer.Exit(ExitCode.NOT_MET)


@eval.command("export")
@handles_errors
async def export(
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="Preference pairs: prompt, chosen and rejected, as for DPO."),
    ] = False,
    corrections: Annotated[
        bool,
        typer.Option("--corrections", help="Corrected drafts: conversations, as for fine-tuning."),
    ] = False,
    cases: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Leave out the tasks of these cases. Default: cases.yaml, if it exists."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this agent.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Search at most N of the newest runs.")
    ] = 1000,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE.")
    ] = None,
) -> None:
    """Export training data from stored runs, as JSON lines.

    Two versions make a pair if checks, or a judge beyond its error, tell them apart. Secrets and personal
    data are withheld.
    """
    from redraft.evals.training import dpo_rows, preference_pairs, sft_rows

    if pairs == corrections:
        raise ConfigError("Say what to export: --pairs or --corrections.")
    if output is not None:
        _prepare("--output", output)
    evaluated = _evaluated(cases)
    stored = Runs()
    records = await stored.read_rows(await stored.rows(name=name, limit=limit))
    found = preference_pairs([one for one in records if one.status in ENDED_RUNS], evaluated)
    rows = dpo_rows(found) if pairs else sft_rows(found)
    lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    if output is None:
        if rows:
            emit(lines)
    else:
        write_output(output, lines, force=True)
    what = counted(len(rows), "pair" if pairs else "correction")
    CalmConsole(stderr=True).say(f"{what} from {counted(len(records), 'run')}.")


@handles_errors
async def optimize(
    cases: Annotated[str, typer.Argument(metavar="CASES", help="A file of cases; see redraft eval -h.")],
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", "-a", metavar="MODULE:NAME", help="The agent or task to tune. Default: the cases' own."
        ),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(metavar="PARTS", help="What to tune: system_prompt,criteria or note. Default: all."),
    ] = None,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, help="Test each case N times.")] = 1,
    at_once: Annotated[
        int, typer.Option(metavar="N", min=1, help="Run at most N cases at the same time.")
    ] = 8,
    model: options.Model = None,
    judge: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model that grades. Default: REDRAFT_REFLECTION_MODEL."),
    ] = None,
    writer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model that writes texts. Default: REDRAFT_REFLECTION_MODEL."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Continue an interrupted optimization: its id, or 'last'."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The seed for splitting the cases.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the diff to FILE, not to stdout."),
    ] = None,
    budget_tries: Annotated[
        int, typer.Option(metavar="N", min=1, help="End the search after about N evaluations of a case.")
    ] = 200,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    as_json: options.Json = False,
) -> None:
    """Tune prompts and criteria on cases, and print a diff to review. Changes nothing by itself.

    Exits with 1 unless the texts are better on held-out cases, beyond the 95 % interval.
    """
    from redraft.evals.optimize import Optimization, OptimizationReport, optimization
    from redraft.loop.agent import Agent
    from redraft.notes.task import Task

    if agent is not None and model is not None:
        raise ConfigError(
            "--model answers the cases itself, so it can't be combined with --agent; --judge and --writer "
            "are the models that grade and write."
        )
    if output is not None:
        _prepare("--output", output)
    found = _cases_in(cases)
    with modules_in(Path.cwd()), modules_in(Path(cases).parent):
        target = _target(agent, found, model)
    if not isinstance(target, Agent | Task):
        raise ConfigError(f"Only an Agent or a Task has texts that can be tuned; got {target!r}.")
    console, run_id = CalmConsole(stderr=True), None
    if resume is not None:
        run_id = (await optimization(required_project_store("optimizations"), resume)).run_id
    with _progress(console, None, "optimizing") as advance:
        report: OptimizationReport = await Optimization(
            found,
            cast("Agent[Any] | Task", target),
            parts=() if parts is None else [part.strip() for part in parts.split(",")],
            n=n,
            at_once=at_once,
            writer=writer,
            model=judge or model,
            budget_tries=budget_tries,
            budget_tokens=budget_tokens,
            budget_usd=budget_usd,
            budget_seconds=budget_seconds,
            seed=seed,
            run_id=run_id,
            on_try=advance,
        ).run()
    console.say(visible(withheld(report.sentence())))
    diff = withheld(report.diff()) if report.accepted else ""
    if output is not None and diff:
        write_output(output, diff, force=True)
    if as_json:
        emit_json(withheld(report.document()))
    elif diff and output is None:
        emit(diff)
    if report.test is not None and project_place() is not None:
        console.say(f"The test is stored as {report.test.run_id}; redraft eval show {report.test.run_id}")
    code = ExitCode.MET if report.accepted else ExitCode.NOT_MET
    raise typer.Exit(ExitCode.BUDGET if report.is_out_of_budget else code)


# --- what is evaluated -------------------------------------------------------------------------------------


def _evaluated(file: Path | None) -> list[EvalCase]:
    """Return the cases in a file, by default those of the project, if it has any."""
    if file is None and not CASES.is_file():
        return []
    return read_cases(file or CASES)


def _cases_in(place: str) -> list[EvalCase]:
    if place.startswith("hf:"):
        from redraft.evals.datasets import hugging_face_cases

        return hugging_face_cases(place.removeprefix("hf:"))
    return read_cases(Path(place))


def _target(agent: str | None, cases: Sequence[EvalCase], model: str | None) -> Target:
    """Return the agent that is named, else the one of all cases, else a model with their system prompt."""
    from redraft.loop.agent import Agent

    if agent is not None:
        return _imported(agent)
    named, prompts = {case.agent for case in cases}, {case.system_prompt for case in cases}
    own = next(iter(named)) if len(named) == 1 else ""
    if own and model is None:
        return _imported(own)  # which has a prompt of its own, whatever prompts the cases recorded
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
    return cast("Target", _object(name, "agent"))


def _fleet(name: str) -> EvaluationFleet:
    from redraft.evals.evaluation import EvaluationFleet

    found = _object(name, "fleet")
    if not isinstance(found, EvaluationFleet):
        raise ConfigError(f"--fleet takes a redraft.fleet.Fleet; {name!r} is of type {type(found).__name__}.")
    return found


def _object(name: str, what: str) -> object:
    if ":" not in name:
        raise ConfigError(f"{what.capitalize()}s are named MODULE:NAME, such as app:writer; got {name!r}.")
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"The {what} {name!r} can't be imported: {error}.") from error


def _name(name: str) -> str:
    return name.rpartition(":")[2]


def _document(path: Path) -> Mapping[str, Any]:
    try:
        return cast("dict[str, Any]", json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"The baseline {str(path)!r} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"The baseline {str(path)!r} is not JSON: {error}.") from error


# --- what is shown -----------------------------------------------------------------------------------------


class _progress:  # noqa: N801 (used like a function)
    """Show how many tries have ended, on a terminal."""

    def __init__(self, console: CalmConsole, total: int | None, doing: str = "evaluating") -> None:
        columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, console=console, transient=True) if console.is_terminal else None
        self._total = total

    def __enter__(self) -> Callable[[Try], None]:
        if self._bar is None:
            return lambda _: None
        bar = self._bar
        bar.start()
        task = bar.add_task("", total=self._total)
        return lambda _: bar.advance(task)

    def __exit__(self, *_raised: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def report_view(report: EvaluationReport, width: int) -> RenderableType:
    """Render a report: a table of the arms, with fewer columns where it is narrow, and the differences."""
    shown = withheld([row(one) for one in report.figures])
    columns = {name: [visible(one[name]) for one in shown] for name in shown[0]}
    left_out: list[str] = []
    for least in LEAST:
        if width_of(columns) > width:
            del columns[least]
            left_out.append(least)
    table = plain_table(columns, right=list(columns)[1:], wrap=("arm",))
    lines: list[Text] = []
    for one in report.differences:
        lines.append(Text(one.sentence(), {"better": GOOD, "worse": BAD}.get(one.passed.verdict, "")))
        lines += [Text(f"  {flipped}", QUIET) for flipped in one.flips()]
    lines += [Text(remark, QUIET) for remark in report.remarks()]
    if left_out:
        lines.append(Text(f"Left out in {width} columns: {', '.join(left_out)}; --json has all.", QUIET))
    return Group(table, "", *(Text(visible(withheld(line.plain)), line.style) for line in lines))
