"""`redraft check` and `redraft revise`."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import typer
from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from redraft._codec import describe_error, from_json, to_json
from redraft._locks import check_regular
from redraft._texts import as_text, verdict_of
from redraft._validation import check_choice
from redraft.errors import ConfigError
from redraft.evaluate.criteria import needs_model
from redraft.events import RunFinished, StepFailed, StepFinished, StepStarted, VersionEvaluated
from redraft.loop.criteria_file import JUDGING, CriteriaFile, modules_in, read_criteria, try_out
from redraft.loop.event_log import EventLog
from redraft.loop.journal import journalled_step
from redraft.loop.output_type import OutputType, output_type_of
from redraft.loop.pattern import (
    ReflectionPattern,
    starting_draft,
)
from redraft.loop.record import Origin, RunRecord
from redraft.loop.run import run_and_store
from redraft.loop.strategy import STRATEGIES
from redraft.loop.verbs import judges_of, judging_verbs, model_verbs
from redraft.models.names import model_of
from redraft.protocols import ChatRequest, Message
from redraft.redact.redactor import withheld
from redraft.settings import load_settings
from redraft.stores.base import Store
from redraft.terminal import options
from redraft.terminal.commands import handles_errors, own_command, run_async
from redraft.terminal.console import (
    BAD,
    GOOD,
    QUIET,
    CalmConsole,
    deliver,
    emit,
    emit_json,
)
from redraft.terminal.exits import code_of
from redraft.terminal.tables import PlainTable
from redraft.text.characters import visible
from redraft.types import (
    REASONS,
    PlainTask,
    QualityCriterion,
    in_one_line,
    missed_thresholds,
    render_score,
    render_usage,
    why_unasked,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import TracebackType

    from rich.console import RenderableType

    from redraft.events import Event, Listener, TokenEvent
    from redraft.loop.run import Verbs
    from redraft.loop.runs import Exchange
    from redraft.loop.ways import AgentWay
    from redraft.protocols import ChatModel
    from redraft.types import Issue, ReflectionEvaluation, ReflectionResult, ReflectionVersion


LONGEST_NAME = 30
SHOWN_ISSUES = 4
SHOWN_LINES = 4
"""The last lines shown of a text that a model is writing."""
LONGEST_TAIL = 2_000
"""The last characters of the text from which these lines are made."""
DOING = {"generate": "drafting", "evaluate": "judging", "revise": "revising"}
IMPROVE = "Write the best version of the text that is wanted."
STDOUT = "-"
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="OUT", help="Write the best version to OUT instead of stdout."),
]


@handles_errors
def check(
    file: options.File,
    criteria: options.Criteria,
    model: options.Model = None,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
) -> None:
    """Judge a draft by criteria. A model is asked only where a criterion needs one.

    A criterion is a sentence, a known name such as clarity, or a check:

    \b
    criteria:
      - Names the price.
      - {name: short, evaluator: regex, config: {pattern: '^.{1,200}$'}}

    docs/criteria.md documents the format. The exit code is 1 if a criterion is not met, and 4 if the model
    failed.
    """  # noqa: D301 (the character with which click keeps lines as they are)
    draft, criteria_file, _ = read_material(file, criteria)
    judge = judging_model(model, criteria_file)
    stderr = CalmConsole(stderr=True)
    progress = Progress(stderr, rows=False)
    runner = Runner("check", judge or "", keep=not no_keep)
    with listening(progress, events) as listener:
        pattern = criteria_file.pattern(0, reflection_model=judge, on_event=listener)
        task = task_for_draft(draft, criteria_file)
        result = runner.judge(task, pattern, draft, progress, criteria_file.output_type)
    document = withheld(to_json(_verdict_document(file, criteria_file, result)))
    deliver(_verdict(criteria_file, result), document, as_json=as_json)
    stderr.say(runner.hint(result))
    raise typer.Exit(code_of(result))


@handles_errors
def revise(
    file: options.File,
    criteria: options.Criteria,
    model: options.Model = None,
    max_iterations: Annotated[
        int, typer.Option("--max-iterations", metavar="N", help="Maximum number of revisions.")
    ] = 3,
    strategy: Annotated[
        str,
        typer.Option("--strategy", metavar="S", help=f"{', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}."),
    ] = "hybrid",
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    output: Out = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
) -> None:
    """Revise a draft until its criteria are met. Prints the best version.

    The exit code is 1 if it does not meet them, 3 if a budget ran out before, and 4 if the model failed.
    """
    check_choice("--strategy", strategy, STRATEGIES)
    if output == Path("-"):  # stdout, as '-' is stdin for the draft
        output = None
    if output is not None:
        force = force or is_own_output(output)
        check_output(output, force=force)
    draft, criteria_file, line_break = read_material(file, criteria)
    stderr = CalmConsole(stderr=True)
    progress = Progress(stderr)
    runner = Runner("revise", chosen_model(model), keep=not no_keep)
    with listening(progress, events, stdout_is_free=output is not None and not as_json) as listener:
        pattern = criteria_file.pattern(
            max_iterations,
            revision_strategy=strategy,
            budget_tokens=budget_tokens,
            budget_usd=budget_usd,
            budget_seconds=budget_seconds,
            on_event=listener,
        )
        writer = model_of(runner.model, load_settings())
        task = task_for_draft(draft, criteria_file)
        result = runner.revise(task, writer, pattern, progress, draft, criteria_file.output_type)
    stderr.show(ending(result))
    stderr.say(runner.hint(result))
    deliver_result(result, output, force=force, as_json=as_json, line_break=line_break)
    raise typer.Exit(code_of(result))


def _verdict(criteria_file: CriteriaFile, result: ReflectionResult) -> RenderableType:
    """Render the evaluation of a draft."""
    evaluation = withheld(result.final_evaluation)
    parts: list[RenderableType] = [
        _headline(criteria_file, evaluation),
        "",
        _criteria(
            criteria_file.criteria, evaluation, "does not apply" if result.error is None else "not judged"
        ),
    ]
    if evaluation.suggestions:
        parts += [
            "",
            Text("Suggestions:"),
            Text("\n".join(f"- {visible(text)}" for text in evaluation.suggestions)),
        ]
    if result.token_usage.requests:
        parts += ["", Text(f"Used: {render_usage(result.token_usage)}.", QUIET)]
    if isinstance(result.error, Exception):
        parts.append(error_text(result))
    return Group(*parts)


def _headline(criteria_file: CriteriaFile, evaluation: ReflectionEvaluation) -> Text:
    if evaluation.satisfactory:
        return Text(f"{render_score(evaluation.overall_score)}  met", f"bold {GOOD}")
    if evaluation.overall_score is None:
        return Text("not judged", f"bold {BAD}")
    needs = (
        f", needs {criteria_file.threshold:.2f}" if evaluation.overall_score < criteria_file.threshold else ""
    )
    return Text(f"{render_score(evaluation.overall_score)}  not met{needs}", f"bold {BAD}")


def _criteria(criteria: Sequence[QualityCriterion], evaluation: ReflectionEvaluation, without: str) -> Table:
    """Render each criterion, and `output_type` where it failed; `without` replaces missing scores."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=4)
    table.add_column(max_width=LONGEST_NAME)
    table.add_column()
    named = {criterion.name for criterion in criteria}
    implied = [QualityCriterion(name) for name in evaluation.criteria_scores if name not in named]
    for criterion in [*criteria, *implied]:
        issues = [issue for issue in evaluation.issues if issue.criterion == criterion.name]
        table.add_row(*_row(criterion, evaluation, issues, without))
    named |= evaluation.criteria_scores.keys()
    if others := [issue for issue in evaluation.issues if issue.criterion not in named]:
        table.add_row("", "", issue_lines(others, SHOWN_ISSUES))
    return table


def _row(
    criterion: QualityCriterion, evaluation: ReflectionEvaluation, issues: Sequence[Issue], without: str
) -> tuple[Text, Text, Text]:
    name = Text(criterion.name)
    if criterion.name not in evaluation.criteria_scores:
        return Text("  - ", QUIET), name, Text(without, QUIET)
    score = evaluation.criteria_scores[criterion.name]
    if criterion.name in evaluation.unasked:
        return Text("  / ", QUIET), name, Text(visible(f"not asked: {why_unasked(evaluation)}"), QUIET)
    if score is None:
        return Text("  - ", BAD), name, issue_lines(issues) if issues else Text("not judged")
    met = score >= criterion.threshold
    return Text(render_score(score), GOOD if met else BAD), name, issue_lines(issues)


def _verdict_document(file: str, criteria_file: CriteriaFile, result: ReflectionResult) -> dict[str, Any]:
    """The evaluation of a draft as plain data."""
    return {
        "file": file,
        "run_id": result.run_id,
        "satisfactory": result.final_evaluation.satisfactory,
        "quality_threshold": criteria_file.threshold,
        "evaluation": result.final_evaluation,
        "token_usage": result.token_usage,
        "execution_time": result.execution_time,
        "diagnostics": result.diagnostics,
        "error": result.error,
    }


@dataclass(frozen=True, slots=True)
class Runner:
    """Carries out the runs of a command, with progress. A resumed command continues its own run."""

    command: str
    model: str
    """The name of the model, for the record."""
    keep: bool
    """Whether runs are stored, under the name of the command."""

    def revise(
        self,
        task: PlainTask,
        model: ChatModel,
        pattern: ReflectionPattern,
        progress: Progress,
        draft: str | None = None,
        output_type: OutputType[Any] | None = None,
    ) -> ReflectionResult:
        """Let a model answer the task, or revise a draft."""
        judges = judges_of(pattern, model, task.task_type)
        verbs = model_verbs(pattern, model, judges, output_type=output_type)
        return self._run(task, verbs, pattern, draft, progress)

    def judge(
        self,
        task: PlainTask,
        pattern: ReflectionPattern,
        draft: str,
        progress: Progress,
        output_type: OutputType[Any] | None = None,
    ) -> ReflectionResult:
        """Judge a draft, in a run whose only version is the draft."""
        verbs = judging_verbs(pattern, task.task_type, output_type)
        return self._run(task, verbs, pattern, draft, progress)

    def _run(
        self,
        task: PlainTask,
        verbs: Verbs,
        pattern: ReflectionPattern,
        draft: str | None,
        progress: Progress,
    ) -> ReflectionResult:
        """Run to the end; an interrupted run has the result so far.

        Raises `KeyboardInterrupt` if there is no result yet.
        """
        resuming = resumed.get()
        on_token = progress.on_token if progress.is_live else None
        start = starting_draft(draft)
        if resuming is None:
            arguments, folder = tuple(sys.argv[1:]), os.getcwd()  # noqa: PTH109 (as a text)
            origin = Origin("command", f"redraft {self.command}", self.model, arguments, folder)
        else:
            origin = resuming.record.origin

        async def run() -> ReflectionResult:
            if resuming is None:
                step = journalled_step(self.keep, None, task)
            else:
                step = journalled_step(resuming.store, resuming.record.run_id, task)
            return await run_and_store(pattern, task, verbs, step, start, origin, on_token=on_token)

        with progress:
            try:
                return run_async(run())
            except KeyboardInterrupt:
                if progress.result is None:
                    raise
                return progress.result

    def keeps(self, result: ReflectionResult) -> bool:
        """Whether a run was stored."""
        return self.keep and bool(load_settings().home) and "not_kept" not in result.diagnostics

    def hint(self, result: ReflectionResult) -> str:
        """The id of the stored run and the next command for it; empty if it is not stored."""
        if not self.keeps(result):
            return ""
        further = "show" if result.error is None else "resume"
        return f"Stored as {result.run_id}; {own_command()} {further} last"


@dataclass(frozen=True, slots=True)
class Resumed:
    """The run that this process resumes, and its store."""

    record: RunRecord
    store: Store


resumed: ContextVar[Resumed | None] = ContextVar("resumed", default=None)
"""The run that a command resumes; its inputs then come from the record, not from the files."""


class Progress:
    """Shows the progress of a run: a live status line, and a row for each judged version.

    It is an event listener, and a context manager around a run. The status line appears only on a terminal;
    below it are the last lines of the text that a model is writing. `label` names the run, and `rows=False`
    turns the rows off. `result` is the result of the run, also of an interrupted run.
    """

    def __init__(self, console: CalmConsole, label: str = "", *, rows: bool = True) -> None:
        self.result: ReflectionResult | None = None
        self._console = console
        self._label = label
        self._rows = rows
        self._doing = "loading"
        self._version = 1
        self._since = monotonic()
        self._attempt = 0
        self._text = ""
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            get_renderable=self._line,
            console=console,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    @property
    def is_live(self) -> bool:
        """Whether there is a status line."""
        return self._console.is_terminal

    def __enter__(self) -> Self:
        if self.is_live:
            self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def switch_to(self, label: str) -> None:
        """Switch to another run, which may have no versions at all."""
        self._label, self._version = label, 0
        self._begin("running")

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        match event:
            case StepStarted(name=name):
                self._version = max(1, self._version)
                self._begin(DOING.get(name, name))
            case StepFailed(error=error, retry_in=float(wait)):
                self._begin("waiting")
                message = visible(withheld(str(error)))
                self._console.print(f"{message} Trying again in {wait:.1f} s.", style="yellow")
            case StepFinished():
                self._begin("deciding")
            case VersionEvaluated(version=version):
                self._version = version.iteration + 1
                if self._rows:
                    self._console.show(version_row(version, self._label))
            case RunFinished(result=result):
                self.result = result
            case _:
                pass

    def on_token(self, event: TokenEvent) -> None:
        """Show a piece of the text that a model writes; of concurrent attempts, only the latest is shown."""
        if event.attempt > self._attempt:
            self._attempt, self._text = event.attempt, ""
        if event.attempt == self._attempt:
            self._text = (self._text + event.text)[-LONGEST_TAIL:]

    def _begin(self, doing: str) -> None:
        self._doing, self._since = doing, monotonic()
        self._attempt, self._text = 0, ""

    def _line(self) -> RenderableType:
        seconds = monotonic() - self._since
        version = f"version {self._version}" if self._version else ""
        parts = (self._label.rstrip(), version, self._doing, f"{seconds:.1f} s")
        self._spinner.update(text=Text(" · ".join(part for part in parts if part)))
        if not self._text:
            return self._spinner
        written = Text(visible(withheld(self._text)).expandtabs(4), QUIET)
        lines = written.wrap(self._console, max(20, self._console.width - 2))[-SHOWN_LINES:]
        return Group(self._spinner, Padding(Text("\n").join(lines), (0, 0, 0, 2)))


def version_row(version: ReflectionVersion, label: str = "") -> RenderableType:
    """Render a version as a row: number, score, strategy, issues."""
    evaluation = withheld(version.evaluation)
    row = Table.grid(padding=(0, 2, 0, 0))
    cells: list[str | Text] = []
    if label:
        row.add_column(no_wrap=True)
        cells.append(label)
    row.add_column(width=9, no_wrap=True)
    row.add_column(width=4)
    row.add_column(width=13, no_wrap=True)
    row.add_column()
    style = GOOD if evaluation.satisfactory else "" if evaluation.overall_score is None else BAD
    cells += [
        f"version {version.iteration}",
        Text(render_score(evaluation.overall_score), style),
        version.strategy.replace("_", " "),
        _judgement(version, evaluation),
    ]
    row.add_row(*cells)
    return row


def _judgement(version: ReflectionVersion, evaluation: ReflectionEvaluation) -> Text:
    if version.repeats is not None:
        return Text(f"the same as version {version.repeats}", QUIET)
    if evaluation.satisfactory:
        return Text("all criteria met", GOOD)
    return issue_lines(failing) if (failing := evaluation.failing) else Text("not good enough")


def issue_lines(issues: Sequence[Issue], limit: int = SHOWN_ISSUES) -> Text:
    """Render up to `limit` issues, one a line, each with its location."""
    lines = [issue_line(issue) for issue in issues[:limit]]
    if len(issues) > limit:
        lines.append(Text(f"and {len(issues) - limit} more", QUIET))
    return Text("\n").join(lines)


def issue_line(issue: Issue) -> Text:
    """Render an issue in one line, with its location."""
    message = in_one_line(issue.message)
    place = issue.path or (f"line {issue.line}" if issue.line is not None else "")
    if place and not message.startswith(f"{place}: "):
        return Text.assemble((f"{visible(place)}: ", QUIET), visible(message))
    return Text(visible(message))


def ending(result: ReflectionResult) -> Text:
    """Render why a run stopped, what it returned, what it used, and its notes."""
    best = result.history.best_version
    reason = result.convergence_reason.value
    missed = visible(withheld(missed_thresholds(result)))
    lines = [
        f"Stopped: {REASONS[reason]}.",
        f"Returned: version {best.iteration}, which {verdict_of(best.evaluation)}{missed}.",
        f"Used: {render_usage(result.token_usage)}, {result.execution_time:.1f} s.",
        *(f"Note: {visible(withheld(text))}" for text in result.diagnostics.values()),
    ]
    return Text("\n".join(lines)).append_text(error_text(result))


def error_text(result: ReflectionResult) -> Text:
    """Render the error that ended a run on its own line; empty for a cancelled run."""
    if not isinstance(result.error, Exception):
        return Text()
    return Text(f"\nError: {visible(withheld(describe_error(result.error)))}", BAD)


def outcome(record: RunRecord) -> Text:
    """Render the reason a run stopped, as `why` and `--reason` name it, or its state if it has none."""
    if record.reason is None or record.status == "running":
        return state_text(record.state)
    best = record.version(record.best)
    is_good = record.status == "finished" and best is not None and best.evaluation.satisfactory
    return Text(record.reason.value, GOOD if is_good else BAD if record.status == "failed" else "")


def state_text(state: str) -> Text:
    """Render the state of a run or workflow."""
    return Text(state, BAD if state in ("failed", "killed", "damaged") else "")


def first_to_best(record: RunRecord) -> str:
    """Render the scores of the first and the best version; a single score if they are the same version."""
    best = record.version(record.best)
    if best is None:
        return ""
    first = render_score(record.versions[0].evaluation.overall_score)
    if best.iteration == record.versions[0].iteration:
        return first
    return f"{first} > {render_score(best.evaluation.overall_score)}"


def read_draft(file: str) -> str:
    """Read a draft from a file, or from standard input for `-`, without its byte order mark.

    Line breaks stay as they are. Raises `ConfigError`, also if the draft is empty.
    """
    name = "standard input" if file == "-" else repr(file)
    try:
        text = (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"The draft {name} is not UTF-8 text.") from error
    except OSError as error:
        raise ConfigError(f"The draft {name} cannot be read: {error.strerror}.") from error
    if not text.strip():
        raise ConfigError(f"The draft {name} is empty.")
    return text


def read_material(file: str, criteria: Path) -> tuple[str, CriteriaFile, str]:
    """Read the draft and its criteria; a resumed run takes both from its record.

    The draft gets line feeds as line breaks, so that checks give the same result for any file. Also returns
    the line break that it had.
    """
    if resuming := resumed.get():
        return as_text(resuming.record.draft), recorded_criteria(resuming.record), "\n"
    criteria_file = read_criteria(criteria)
    draft = read_draft(file)
    return draft.replace("\r\n", "\n"), criteria_file, "\r\n" if "\r\n" in draft else "\n"


def recorded_criteria(record: RunRecord) -> CriteriaFile:
    """The criteria of a stored run; functions may be in modules of the current folder.

    Raises `ConfigError` if a function can't be imported.
    """
    options = record.options
    criteria = from_json(tuple[QualityCriterion, ...], options["criteria"])
    with modules_in(Path()):
        for criterion in criteria:
            try_out(criterion)
    task, schema = record.task, record.output_type and record.output_type["schema"]
    output_type = None if schema is None else output_type_of(schema)
    judging = {name: options[name] for name in JUDGING if name in options}
    threshold = options["quality_threshold"]
    return CriteriaFile(criteria, task.description, task.task_type, threshold, output_type, judging)


def task_for_draft(draft: str, criteria_file: CriteriaFile) -> PlainTask:
    """The task in the criteria file, or else the task to improve the draft.

    Without a task the draft is the only material, so a fresh start has to see it.
    """
    if resuming := resumed.get():
        return resuming.record.task
    if criteria_file.task.strip():
        return PlainTask(criteria_file.task, task_type=criteria_file.task_type)
    return PlainTask(IMPROVE, task_type=criteria_file.task_type, context=draft)


async def ask_one_token(model: ChatModel) -> None:
    """Request a single token from a model, which loads it."""
    await model(ChatRequest((Message("user", "Hello"),), max_tokens=1))


def judging_model(model: str | None, criteria_file: CriteriaFile) -> str | None:
    """The name of the judging model, which is required if a criterion needs a model."""
    judged = [criterion.name for criterion in criteria_file.criteria if needs_model(criterion)]
    if model is None and judged and not load_settings().reflection_model:
        return chosen_model(model, f"There is no model to judge {', '.join(map(repr, judged))}")
    return model


def chosen_model(model: str | None, missing: str = "No model was given") -> str:
    """`model`, or else the model of the settings; raises `ConfigError` without either."""
    if name := model or load_settings().model:
        return name
    raise ConfigError(f"{missing}: use --model NAME, set REDRAFT_MODEL, or `model` in redraft.toml.")


def check_output(path: Path, *, force: bool, option: str = "--output") -> None:
    """Raise `ConfigError` for a path that can't be written to, before anything is spent."""
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder; {option} takes a file.")
    if path.exists() and not force:
        advice = "--force lets it be overwritten" if resumed.get() is None else "move it away"
        raise ConfigError(f"{str(path)!r} exists; {advice}.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        lacks_folder = not path.parent.is_dir()
        why = f"there is no folder {str(path.parent)!r}" if lacks_folder else "permission denied"
        raise ConfigError(f"{str(path)!r} cannot be written to: {why}.")


def is_own_output(path: Path) -> bool:
    """Whether a file has the output that the resumed run wrote there when it failed."""
    resuming = resumed.get()
    best = None if resuming is None else resuming.record.version(resuming.record.best)
    if best is None or not path.is_file():
        return False
    return path.read_bytes().replace(b"\r\n", b"\n") == as_text(best.output).encode(errors="replace")


def deliver_result(
    result: ReflectionResult, path: Path | None, *, force: bool, as_json: bool, line_break: str = "\n"
) -> None:
    """Write the best version to `path` or stdout; with `as_json`, stdout gets the JSON document.

    The best version is what the user asked for, so it is written unchanged, with the line breaks of the
    draft; in the rest of the document secrets are withheld. If `path` can no longer be written to, the best
    version goes to stdout, and `ConfigError` is raised.
    """
    best = as_text(result.best_output)
    if line_break != "\n":
        best = best.replace("\r\n", "\n").replace("\n", line_break)
    if as_json:
        document = withheld(to_json(result_document(result)))
        emit_json(document | {"best_output": result.best_output})
    elif path is None:
        emit(best)
    if path is None:
        return
    try:
        write_output(path, best, force=force)
    except ConfigError as error:
        if not as_json:
            emit(best)
        raise ConfigError(f"{error} See stdout.") from error


def ways_view(records: Sequence[AgentWay]) -> RenderableType:
    """Render which ways to revise were gains, in a table for each agent and model."""
    if not records:
        return Text("No stored run has a revision for which a model had the choice among several ways.")
    parts: list[RenderableType] = []
    for agent, model in dict.fromkeys((record.agent, record.model) for record in records):
        of_agent = [way for way in records if (way.agent, way.model) == (agent, model)]
        rows = [
            {
                "after": f"a failed {way.failure}" if way.failure == "check" else "a judge's verdict",
                "output": way.length,
                "way": way.way.replace("_", " "),
                "tried": f"{way.tried:,}",
                "gains": f"{way.gains:,}",
                "95 %": "" if way.share is None else f"{way.share.low:.2f} to {way.share.high:.2f}",
                "tokens": f"{way.tokens:,}",
            }
            for way in of_agent
        ]
        title = Text.assemble((visible(agent), "bold"), (f"  {visible(model)}" if model else "", QUIET))
        parts += ["", title, PlainTable(rows, right=("tried", "gains", "tokens"), fill="way")]
    note = "Tokens are the mean of a revision. The next one is made in the way with the most gains a token."
    return Group(*parts[1:], "", Text(note, QUIET))


def write_output(path: Path, text: str, *, force: bool) -> None:
    """Write a file, which must not exist unless `force`; raises `ConfigError` if that fails."""
    try:
        check_regular(path)
        with path.open("w" if force else "x", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written to: {error.strerror}.") from error


def result_document(result: ReflectionResult) -> dict[str, Any]:
    """A result as plain data; `best_version` is the iteration that was returned."""
    return {
        "success": result.success,
        "best_output": result.best_output,
        "best_version": result.history.best_version.iteration,
        "convergence_reason": result.convergence_reason,
        "iterations_used": result.iterations_used,
        "versions": result.history.versions,
        "token_usage": result.token_usage,
        "usage_by_role": result.usage_by_role,
        "execution_time": result.execution_time,
        "run_id": result.run_id,
        "diagnostics": result.diagnostics,
        "error": result.error,
    }


@contextmanager
def listening(progress: Listener, events: str | None, *, stdout_is_free: bool = False) -> Generator[Listener]:
    """Yield a listener that passes events to `progress` and, if there is a file `events`, appends them.

    Raises `ConfigError` as `check_events` does.
    """
    if events is None:
        yield progress
        return
    check_events(events, stdout_is_free=stdout_is_free)
    with EventLog(sys.stdout if events == STDOUT else events) as log:

        def listener(event: Event) -> None:
            log(event)
            progress(event)

        yield listener


def check_events(events: str | None, *, stdout_is_free: bool = False) -> None:
    """Raise `ConfigError` for a file that can't be written to, and for `-` if stdout is in use."""
    if events == STDOUT and not stdout_is_free:
        raise ConfigError(
            "--events - would mix the events with what goes to stdout: give a file, or send the rest "
            "into one with --output (and without --json)."
        )
    if events not in (None, STDOUT):
        EventLog(events).close()


def exchange_lines(step: str, exchange: Exchange) -> list[RenderableType]:
    """Render the prompt and the reply of a model call inside a step."""
    used = "" if exchange.usage is None else f", {render_usage(exchange.usage)}"
    parts: list[RenderableType] = [
        "",
        Text(visible(f"{step}: {exchange.name}, {exchange.seconds:.1f} s{used}"), "bold"),
    ]
    for turn in exchange.request:
        parts += [Text(f"--- {turn.role}", QUIET), Text(visible(turn.text))]
    for turn in exchange.reply:
        role = "reply" if turn.role == "assistant" else turn.role
        parts += [Text(f"=== {role}", BAD if turn.role == "error" else GOOD), Text(visible(turn.text))]
    return parts
