"""`redraft run`: run or check a workflow file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._codec import to_json, to_record
from redraft._texts import ago, as_text, counted, shortened
from redraft._validation import named_error
from redraft.approvals import Approval
from redraft.errors import (
    ConfigError,
    RedraftError,
    StoreError,
    WorkflowError,
)
from redraft.loop.cli import Progress, first_to_best, listening, outcome, state_text
from redraft.loop.journal import new_run_id
from redraft.loop.record import Process
from redraft.redact.redactor import redactor_of_environment
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.terminal import options
from redraft.terminal.check_report import deliver_check, problems_as_json
from redraft.terminal.commands import handles_errors, run_async
from redraft.terminal.console import (
    BAD,
    GOOD,
    QUIET,
    CalmConsole,
    Warnings,
    emit,
    emit_json,
)
from redraft.terminal.exits import ExitCode, report_error
from redraft.text.characters import visible
from redraft.text.json import load_json
from redraft.text.replies import BOM
from redraft.types import in_one_line, render_usage
from redraft.workflow.check import Requirements
from redraft.workflow.history import (
    LAUNCH,
    Launch,
    StoredWorkflow,
    WorkflowHistory,
    WorkflowRow,
    Workflows,
    outcome_of,
)
from redraft.workflow.run import ItemFinished, NodeFinished, NodeStarted, WorkflowFinished
from redraft.workflow.spec import (
    WorkflowFile,
)
from redraft.workflow.workflow import Workflow, WorkflowOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import TracebackType
    from typing import Unpack

    from rich.console import RenderableType

    from redraft.events import Listener
    from redraft.stores.base import Store
    from redraft.workflow.cases import WorkflowCaseResult
    from redraft.workflow.history import NodeRun
    from redraft.workflow.run import WorkflowEvent, WorkflowResult

File: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE", help="The workflow, a YAML file.", show_default=False)
]
CasesPath: TypeAlias = Annotated[
    Path | None,
    typer.Option("--cases", metavar="YAML", help="The cases. Default: NAME.test.yaml next to NAME.yaml."),
]
Values: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        "-v",
        metavar="NAME=TEXT",
        help="A value of the initial state: NAME=TEXT, NAME=@FILE for the text of a file (@- for stdin), "
        "NAME:=JSON or NAME:=@FILE for JSON. Repeatable.",
    ),
]
Check: TypeAlias = Annotated[
    bool, typer.Option("--check", help="Only check FILE. Report its problems, or what running it would use.")
]
ShowGraph: TypeAlias = Annotated[
    bool, typer.Option("--graph", help="Only print the graph of FILE, as a Mermaid flowchart.")
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME", help="Use this model for every node, overriding the models in FILE."
    ),
]
AllowUnsandboxed: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-unsandboxed", help="If no jail is available, run `sandbox: process` code with limits only."
    ),
]


@handles_errors
def run(
    file: File,
    values: Values = None,
    check: Check = False,
    graph: ShowGraph = False,
    model: Model = None,
    allow_unsandboxed: AllowUnsandboxed = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="If a person must answer, wait for the answer.")
    ] = False,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Run a workflow. Prints its outputs, else the result of its last node, or with --json the final state.

    The result of a loop is its output; an object with a single text prints that text. Exit code 1 means that
    a loop with `on_failure: raise` failed, 3 that the workflow's budget or a node's time limit was exceeded,
    and 5 that the run is waiting for a person: `redraft approve` answers and continues it.
    """
    resumed = resumed_workflow.get()
    inputs = parse_values(values or ()) if resumed is None else dict(resumed.record.inputs)
    if model is not None:
        inputs["model"] = model
    keep = not no_keep
    load = partial(load_workflow, file, model=model, keep=keep, allow_unsandboxed=allow_unsandboxed)
    if graph:
        workflow_graph = load().graph
        emit_json(to_json(workflow_graph)) if as_json else emit(workflow_graph.mermaid())
        return
    with problems_as_json(file) if check and as_json else nullcontext():
        workflow = load(strict=False)
        uses = asyncio.run(workflow.check_all(inputs))
    if check:
        deliver_check(workflow.source.file, _requirements(workflow, uses), as_json=as_json)
        return
    console = CalmConsole(stderr=True)
    progress = WorkflowProgress(console, [node.name for node in workflow.spec.nodes])
    with (
        listening(progress, events) as listener,
        _report_failure(workflow, uses, progress, debug=debug),
        progress,
    ):
        result = run_async(_run(workflow, inputs, listener, keep=keep, wait=wait))
    console.say(ending_text(result))
    if result.run_id:
        command = {"finished": "show", "stopped": "resume", "waiting": "approve"}[result.status]
        console.say(f"Stored as {result.run_id}; redraft {command} last")
    if as_json or not result.waiting:
        print_result(result, progress.last, as_json=as_json)
    if result.status != "finished":
        raise typer.Exit(ExitCode.WAITING if result.waiting else ExitCode.BUDGET)


def question_view(approval: Approval) -> RenderableType:
    """Render a question to a person."""
    then = {"approve": "approved", "reject": "rejected", None: "failed"}[approval.default]
    deadline = None if approval.deadline is None else f"{approval.deadline.astimezone():%Y-%m-%d %H:%M}"
    until = "" if deadline is None else f", until {deadline}, then {then}"
    place = f"{visible(approval.workflow)}, {visible(approval.node)}, {ago(approval.asked_at)}{until}"
    parts: list[RenderableType] = [Text.assemble((approval.id, "bold"), f"  {place}")]
    parts.append(Padding(Text(visible(approval.message)), INDENT))
    if approval.data is not None:
        parts.append(Padding(Text(visible(as_text(approval.data, None)), QUIET), INDENT))
    return Group(*parts)


@handles_errors
def test(
    file: File,
    cases: CasesPath = None,
    as_json: options.Json = False,
) -> None:
    """Test a workflow with scripted replies. No model is asked, and nothing is stored.

    The cases of NAME.yaml are in NAME.test.yaml next to it. The exit code is 1 if a case fails.
    """
    from redraft.workflow.cases import default_cases_path, read_cases, run_case

    read_text(file, "The workflow")
    if cases is None and not (cases := default_cases_path(file)).exists():
        raise ConfigError(
            f"There are no cases for {file!r}: {str(cases)!r} does not exist. Write it, or name another "
            "file with --cases."
        )
    workflow_cases = read_cases(cases)

    async def run_all() -> list[WorkflowCaseResult]:
        return [await run_case(file, case) for case in workflow_cases]

    results = asyncio.run(run_all())
    if as_json:
        emit_json({"file": file, "ok": all(result.passed for result in results), "cases": to_json(results)})
    else:
        console = CalmConsole()
        for result in results:
            outcome = Text("ok    ", GOOD) if result.passed else Text("FAILED", BAD)
            console.show(Text.assemble(outcome, "  ", visible(result.name)))
            for problem in result.problems:
                console.show(Padding(Text(visible(problem)), (0, 0, 0, 8)))
    if not all(result.passed for result in results):
        raise typer.Exit(ExitCode.NOT_MET)


def parse_values(words: Sequence[str]) -> dict[str, Any]:
    """Parse the values of `-v`; raises `ConfigError` for a value that can't be read, or a repeated name.

    A value is text, even if it looks like JSON, unless its name ends with `:`.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":").strip()
        if not equals or not name:
            raise ConfigError(
                f"Invalid value -v {word!r}; expected NAME=TEXT, NAME=@FILE, NAME:=JSON or NAME:=@FILE."
            )
        if name in values:
            raise ConfigError(f"-v {name!r} is given twice.")
        content = read_text(text[1:], f"-v {name}:") if text.startswith("@") else text
        try:
            values[name] = parse_json(content) if is_json else content
        except ConfigError as error:
            raise ConfigError(f"-v {name}: invalid JSON: {error}. For text, write {name}=TEXT.") from error
    return values


def read_text(file: str, what: str) -> str:
    """Read a file, or standard input for `-`; raises a `ConfigError` that begins with `what`."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} {file!r} is not UTF-8 text.") from error
    except (OSError, ValueError) as error:  # ValueError for a name with a NUL
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{what} {file!r} cannot be read: {reason}.") from error
    return text.removeprefix(BOM)


def parse_json(text: str) -> Any:
    """Parse JSON; raises a `ConfigError` that says where the mistake is."""
    try:
        return load_json(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error


AGENT_KEYS = ("stages", "triggers", "sense", "reason", "actuate", "reflect")
"""Top-level keys of an agent's file; `stages` is a common mistake."""


def load_workflow(file: str, **options: Unpack[WorkflowOptions]) -> Workflow:
    """Read and check a workflow file, or standard input; raises `WorkflowError` for its mistakes."""
    source = WorkflowFile(read_text(file, "The workflow"), file)
    document = source.document()
    if "nodes" not in document and (agent_key := next((key for key in AGENT_KEYS if key in document), None)):
        raise source.error(
            (agent_key,), f"this file defines an agent that runs in cycles; use redraft cycle run {file}"
        )
    return Workflow(source, **options)


def _requirements(workflow: Workflow, uses: Requirements) -> dict[str, Any]:
    """The report of `--check`: what running the workflow would use, as plain data."""
    return {
        "name": workflow.spec.name,
        "nodes": len(workflow.spec.nodes),
        "models": sorted(uses.model_names),
        "actions": sorted(uses.actions),
        "code": sorted({f"{code.language} ({code.sandbox})" for code, _ in uses.code}),
        "servers": sorted(uses.servers),
        "extras": uses.extras,
        "env": {name: name in os.environ for name in workflow.spec.env},
        "notes": [str(note) for note in uses.notes],
    }


async def _run(
    workflow: Workflow, inputs: Mapping[str, Any], listener: Listener, *, keep: bool, wait: bool
) -> WorkflowResult:
    """Run a workflow, or resume the workflow in `resumed_workflow`."""
    on_event = cast("Callable[[WorkflowEvent], None]", listener)  # a listener takes any dataclass
    if not keep:
        return await workflow.run(inputs, on_event=on_event)
    store = project_store()
    run_id = None if store is None else await _record_launch(store, resumed_workflow.get())
    return await workflow.run(inputs, run_id=run_id, on_event=on_event, wait=wait)


resumed_workflow: ContextVar[StoredWorkflow | None] = ContextVar("resumed_workflow", default=None)
"""The workflow that a command resumes, with its original inputs."""


async def _record_launch(store: Store, resumed: StoredWorkflow | None) -> str | None:
    """Record the command that starts or resumes a workflow; return the id of its run.

    Returns None if the store fails: without the command, the run could not be resumed.
    """
    if resumed is not None and resumed.launch is not None:
        run_id, launch = resumed.record.run_id, replace(resumed.launch, process=Process.this())
    else:
        run_id = new_run_id()
        launch = Launch(tuple(sys.argv[1:]), os.getcwd(), Process.this())  # noqa: PTH109 (as a text)
    try:
        await store.put(Record(LAUNCH, run_id, to_record(launch)))
    except StoreError:
        if resumed is not None:
            raise
        return None
    return run_id


@contextmanager
def _report_failure(
    workflow: Workflow, uses: Requirements, progress: WorkflowProgress, *, debug: bool
) -> Generator[None]:
    """Report why a workflow did not finish, the id of its run, and how to continue."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        progress.say_failed("Interrupted.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except Exception as error:  # noqa: BLE001 (`handles_errors` would not report the id of the run)
        failure = error
        if uses.own_actions and not isinstance(error, RedraftError):
            names = ", ".join(map(repr, uses.own_actions))
            place = vars(error).get("__notes__", [workflow.source.file])[0]
            failure = WorkflowError(
                f"{place}: {named_error(error)}. Most likely one of your own actions raised it "
                f"({names}); --debug shows where."
            )
            failure.__cause__ = error
        code = report_error(failure, debug=debug)
        progress.say_failed()
        raise typer.Exit(code) from failure


def print_result(result: WorkflowResult, last: Any, *, as_json: bool) -> None:
    """Print the value of the last node, or a JSON document with the final state."""
    if as_json:
        emit_json(
            {
                "run_id": result.run_id,
                "status": result.status,
                "stop": result.stop,
                "waiting": result.waiting,
                "state": result.state,
                "outputs": result.outputs,
                "nodes": result.nodes,
                "token_usage": result.usage,
                "execution_time": result.execution_time,
            }
        )
    elif result.outputs:
        emit(readable(result.outputs))
    elif last is not None:
        emit(readable(last))


def readable(value: Any) -> str:
    """Render a node's value: a loop's output, the only text of an object, else JSON."""
    if isinstance(value, dict):
        items = cast("Mapping[str, Any]", value)
        if "reflection_output" in items and "reflection_history" in items:
            return as_text(items["reflection_output"])
        if len(items) == 1 and isinstance(only := next(iter(items.values())), str):
            return only
    return as_text(value)


def ending_text(result: WorkflowResult) -> str:
    """How many nodes ran and what they used, and why the workflow stopped early if it did."""
    nodes = counted(len(result.nodes), "node")
    if result.waiting:
        answers = "an answer" if len(result.waiting) == 1 else f"{len(result.waiting)} answers"
        ended = f"Waiting for {answers} after {nodes}."
    elif result.stop is not None:
        ended = f"Stopped after {nodes}: {result.stop.detail}"
    else:
        ended = f"Finished: {nodes}."
    return f"{ended} Used: {render_usage(result.usage)}, {result.execution_time:.1f} s."


LONGEST_LABEL = 24


class WorkflowProgress:
    """Shows the progress of a workflow: a line for each attempt of a loop, and for each finished node.

    An event listener and a context manager around one workflow, which also shows the warnings that are logged
    inside it.
    """

    def __init__(self, console: CalmConsole, nodes: Sequence[str]) -> None:
        self.run_id = ""
        """The id of the run; empty if it is not stored."""
        self.last: Any = None
        """The value of the latest node."""
        self._console = console
        self._width = min(LONGEST_LABEL, max(len(visible(node)) for node in nodes))
        self._inside = Progress(console)
        self._warnings = Warnings(console)

    def __enter__(self) -> Self:
        self._inside.__enter__()
        self._warnings.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._warnings.__exit__(kind, error, trace)
        self._inside.__exit__(kind, error, trace)

    def __call__(self, event: WorkflowEvent) -> None:
        """Show an event of the workflow, or of a loop in it."""
        match event:
            case NodeStarted():
                self.run_id = self.run_id or event.run_id  # not the id of an inner workflow
                self._inside.switch_to(self._label(event.node))
            case NodeFinished():
                self._show_end(event)
            case ItemFinished():
                if event.error:
                    self._show_item(event)
            case WorkflowFinished():
                for approval in event.result.waiting:
                    self._show_question(approval)
            case _:
                self._inside(event)

    def say_failed(self, what: str = "") -> None:
        """Say that the workflow did not finish, and how to continue it."""
        if what:
            self._console.say(what)
        if self.run_id:
            self._console.say(f"Stored as {self.run_id}; redraft resume last")

    def _show_end(self, event: NodeFinished) -> None:
        if event.skipped:
            outcome = Text("skipped", QUIET)
        elif event.error:  # the logged warning shows it
            outcome = Text("failed", BAD)
        else:
            outcome = outcome_text(event.result)
            self.last = event.result
        self._console.show(Text.assemble(self._label(event.node), "  ", outcome))

    def _show_item(self, event: ItemFinished) -> None:
        place = f"item {event.index + 1} of {event.count}: "
        self._console.show(Text.assemble(self._label(event.node), "  ", place, (event.error, BAD)))

    def _show_question(self, approval: Approval) -> None:
        asks = (f"asks: {visible(approval.message)}", "yellow")
        self._console.show(Text.assemble(self._label(approval.node), "  ", asks), soft_wrap=True)
        self._console.show(Text(f"redraft approve {approval.id}", QUIET), soft_wrap=True)

    def _label(self, node: str) -> str:
        name = shortened(visible(node), self._width)
        return f"{name:<{self._width}}"


def outcome_text(result: Any) -> Text:
    """Render the outcome of a node, including the verdict of a loop or a judgement."""
    is_valid, detail = outcome_of(result)
    if is_valid is None:
        return Text("done")
    return Text.assemble(("valid", GOOD) if is_valid else ("not valid", BAD), f" {detail}".rstrip())


LONGEST_VALUE = 200
INDENT = (0, 0, 0, 2)


def check_workflow_options(history: WorkflowHistory, *, version: str | None, prompts: bool) -> None:
    """Reject an option that applies only to runs: a workflow has no versions of its own."""
    if version is None and not prompts:
        return
    option = "--prompts" if version is None else "--version"
    runs = [run.run_id for node in history.nodes for run in node.runs]
    instead = f"name one of its loops: {', '.join(runs)}" if runs else "it has no loops"
    raise ConfigError(f"{history.row.run_id!r} is a workflow, but {option} applies to runs only; {instead}.")


def workflow_view(history: WorkflowHistory) -> RenderableType:
    """Render a workflow."""
    record, row = history.stored.record, history.row
    title = f"  workflow {visible(row.name)} ({visible(row.file)}), {ago(row.started_at)}"
    parts: list[RenderableType] = [Text.assemble((row.run_id, "bold"), title)]
    if record.inputs:
        parts.append(Padding(Text(_short(dict(record.inputs)), QUIET), INDENT))
    parts += ["", Text.assemble("State: ", state_text(row.status))]
    if row.error:
        parts.append(Text(f"Error: {visible(row.error)}", BAD))
    if history.nodes:
        parts += ["", _nodes(history)]
    if history.waiting:
        parts += ["", *map(question_view, history.waiting)]
        parts.append(Text("redraft approve ID answers; with --reject, it rejects.", QUIET))
    elif row.status == "waiting":
        parts += ["", "Nothing is left to answer: each question has its answer, or its deadline has passed."]
        parts.append(Text(history.stored.continuation, QUIET))
    parts += ["", Text(f"Used: {render_usage(row.usage)}, {row.execution_time:.1f} s.")]
    if any(node.runs for node in history.nodes):
        parts.append(Text("redraft show RUN shows a loop's attempts.", QUIET))
    return Group(*parts)


def _nodes(history: WorkflowHistory) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right", style=QUIET)
    table.add_column()
    for node in history.nodes:
        seconds = "" if node.seconds is None else f"{node.seconds:.1f} s"
        table.add_row(visible(node.node) or "not finished", seconds, _outcome(node))
        for item in node.items:
            if item.error:
                table.add_row("", "", Text(visible(f"item {item.index + 1}: {item.error}"), BAD))
        for run in node.runs:
            scores = first_to_best(run)
            line = Text.assemble((run.run_id, QUIET), "  ", outcome(run), f"  {scores}" if scores else "")
            table.add_row("", "", line)
    return table


def _outcome(node: NodeRun) -> Text:
    if node.error:
        return Text(visible(node.error), BAD)
    if node.seconds is None:
        finished = sum(not item.error for item in node.items)
        parts = (
            "not finished" if node.node else "",
            f"{counted(finished, 'item')} done" if node.items else "",
        )
        return Text("; ".join(filter(None, parts)), QUIET)
    if node.runs:  # the run of a loop shows its value
        return outcome_text(node.value)
    return Text("" if node.value is None else _short(node.value), QUIET)


def _short(value: Any) -> str:
    line = visible(in_one_line(as_text(value, None)))
    return line if len(line) <= LONGEST_VALUE else f"{line[:LONGEST_VALUE]} ..."


async def read_history(run: str, *, verbatim: bool = False) -> WorkflowHistory | None:
    """Read a workflow by id, prefix or `last`, redacted unless `verbatim`; None if it does not exist.

    Raises `ConfigError` for an ambiguous prefix.
    """
    stored = await Workflows().get(run)
    history = None if stored is None else await Workflows().history(stored)
    if history is None or verbatim:
        return history
    # The process is not shown, and its fields tell whether the workflow was killed.
    return redactor_of_environment().redact_object(history, spared=(Process,))


async def read_why(run: str) -> WorkflowHistory | None:
    """Read a workflow that explains its own state, redacted; None if one of its loops explains it."""
    history = await Workflows().why(run)
    return None if history is None else redactor_of_environment().redact_object(history, spared=(Process,))


async def read_workflows(*, status: str | None, name: str | None, limit: int) -> list[WorkflowRow]:
    """Read the newest workflows by state and name, redacted."""
    redactor, workflows = redactor_of_environment(), Workflows()
    listed = await workflows.find(status=status, name=name, limit=limit)
    return [redactor.redact_object(await workflows.row(stored)) for stored in listed]
