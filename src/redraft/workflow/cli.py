"""`redraft run`: run or check a workflow file."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self, TypeAlias, TypeVar, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._codec import to_record
from redraft._texts import as_text, shortened
from redraft.errors import (
    ConfigError,
    RedraftError,
    ReflectionFailedError,
    StoreError,
    WorkflowError,
)
from redraft.loop.cli import Progress, first_to_best, listening, outcome, state_text
from redraft.loop.keeper import new_run_id
from redraft.loop.record import Process
from redraft.redact.redactor import redactor_of_environment
from redraft.stores.base import Record
from redraft.stores.location import open_project_store
from redraft.terminal import options
from redraft.terminal.check_report import deliver_check
from redraft.terminal.console import (
    BAD,
    GOOD,
    QUIET,
    CalmConsole,
    Warnings,
    emit_json,
    emit_untrusted,
    when,
)
from redraft.terminal.exits import ExitCode, report_error, surface
from redraft.text.characters import visible
from redraft.types import render_usage
from redraft.workflow.check import Requirements
from redraft.workflow.history import (
    BEGAN,
    Began,
    KeptWorkflow,
    NodeOutcome,
    WorkflowHistory,
    WorkflowRow,
    Workflows,
)
from redraft.workflow.run import NodeFinished, NodeStarted, WorkflowFinished
from redraft.workflow.spec import (
    Source,
    read,
)
from redraft.workflow.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from types import TracebackType

    from rich.console import RenderableType

    from redraft.events import Listener
    from redraft.stores.base import Store
    from redraft.workflow.history import NodeRun
    from redraft.workflow.run import WorkflowEvent, WorkflowResult

File: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE", help="The workflow, a YAML file.", show_default=False)
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
    bool, typer.Option("--check", help="Run nothing; report what is wrong, or what it would use.")
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME", help="Use this model for everything, whatever the file names."
    ),
]
AllowUnsandboxed: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-unsandboxed", help="If no jail works here, run `sandbox: process` code with limits only."
    ),
]


def run(
    file: File,
    values: Values = None,
    check: Check = False,
    model: Model = None,
    allow_unsandboxed: AllowUnsandboxed = False,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Run a workflow. Prints the result of its last node, or with --json the final state.

    The result of a loop is its output; an object with a single text prints that text. Exit code 1 means that
    a loop with `on_failure: raise` failed.
    """
    with surface(debug=debug):
        again = taken_up.get()
        given = given_values(values or ()) if again is None else dict(again.record.given)
        if model is not None:
            given["model"] = model
        keep = not no_keep
        workflow = load_workflow(file, model=model, keep=keep, allow_unsandboxed=allow_unsandboxed)
        uses = workflow.check(given)
        if check:
            asyncio.run(workflow.check_code())
            deliver_check(workflow.source.file, _used_by(workflow, uses), as_json=as_json)
            return
        console = CalmConsole(stderr=True)
        progress = WorkflowProgress(console, [node.name for node in workflow.spec.nodes])
        with (
            listening(progress, events) as listener,
            _how_to_go_on(progress, console.say, debug=debug),
            _blaming_own_actions(workflow, uses),
            progress,
        ):
            result = asyncio.run(_run(workflow, given, listener, keep=keep))
        console.say(workflow_ending(result))
        if result.run_id:
            console.say(f"Kept as {result.run_id}; redraft show last")
        deliver_workflow(result, progress.last, as_json=as_json)


OF_AGENTS = ("stages", "triggers", "sense", "reason", "actuate", "reflect")
"""Keys at the top of an agent's file; `stages` stands there by mistake."""


def load_workflow(file: str, *, model: str | None, keep: bool, allow_unsandboxed: bool) -> Workflow:
    """Read and check a workflow file; a `model` answers in place of every one that the file names.

    Raises `WorkflowError`, with file, line, node and key, for what is wrong in it.
    """
    source = Source(read_text(file, "The workflow"), file)
    document = source.document()
    if "nodes" not in document and (of_agent := next((key for key in OF_AGENTS if key in document), None)):
        raise source.error(
            (of_agent,), f"this is an agent that runs in cycles; redraft cycle run {file} runs it"
        )
    models: dict[str, str] = {}
    if model is not None:
        spec = read(source)
        named = {spec.model, *model_names([node.with_ for node in spec.nodes])} - {None, model}
        models = {str(name): model for name in named}
    return Workflow(source, models=models, keep=keep, allow_unsandboxed=allow_unsandboxed)


def _used_by(workflow: Workflow, uses: Requirements) -> dict[str, Any]:
    """Return what a workflow would use, as plain data."""
    return {
        "name": workflow.spec.name,
        "nodes": len(workflow.spec.nodes),
        "models": sorted(uses.model_names),
        "actions": sorted(uses.actions),
        "code": sorted({f"{code.language} ({code.sandbox})" for code, _ in uses.code}),
        "extras": uses.extras,
        "env": {name: name in os.environ for name in workflow.spec.env},
    }


async def _run(
    workflow: Workflow, given: Mapping[str, Any], listener: Listener, *, keep: bool
) -> WorkflowResult:
    """Run a workflow, or go on with the one that is resumed."""
    hears = cast("Callable[[WorkflowEvent], None]", listener)  # it takes whatever dataclass an event is
    if not keep:
        return await workflow.run(given, on_event=hears)
    async with open_project_store() as store:
        run_id = None if store is None else await _begin(store, taken_up.get())
        return await workflow.run(given, run_id=run_id, on_event=hears)


taken_up: ContextVar[KeptWorkflow | None] = ContextVar("taken_up", default=None)
"""The workflow that a command resumes, with the values that it was given then."""


async def _begin(store: Store, again: KeptWorkflow | None) -> str | None:
    """Write down which command begins a workflow, or resumes it; return the id under which it is kept.

    None if that fails: it could not be found again to be resumed.
    """
    if again is not None and again.began is not None:
        run_id, began = again.record.run_id, replace(again.began, process=Process.this())
    else:
        run_id = new_run_id()
        began = Began(tuple(sys.argv[1:]), os.getcwd(), Process.this())  # noqa: PTH109 (as a text)
    try:
        await store.put(Record(BEGAN, run_id, to_record(began)))
    except StoreError:
        if again is not None:
            raise
        return None
    return run_id


@contextmanager
def _blaming_own_actions(workflow: Workflow, uses: Requirements) -> Generator[None]:
    """Raise an error of the user's own actions, as it most likely is, as a `WorkflowError` that says so."""
    try:
        yield
    except Exception as error:
        if isinstance(error, RedraftError | typer.Exit) or not uses.own_actions:
            raise
        names = ", ".join(map(repr, uses.own_actions))
        place = vars(error).get("__notes__", [workflow.source.file])[0]
        raise WorkflowError(
            f"{place}: {type(error).__name__}: {error}. Most likely an action of your own raised it "
            f"({names}); --debug shows where."
        ) from error


@contextmanager
def _how_to_go_on(progress: WorkflowProgress, say: Callable[[str], None], *, debug: bool) -> Generator[None]:
    """Say of a workflow that did not finish why, under which id it is kept, and what can be done."""

    def say_kept(further: str) -> None:
        if progress.run_id:
            say(f"Kept as {progress.run_id}; redraft {further} last")

    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        say("Interrupted.")
        say_kept("resume")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except Exception as error:  # the command's own surface, around this one, would not name the id
        code = report_error(error, debug=debug)
        say_kept("show" if isinstance(error, ReflectionFailedError) else "resume")
        raise typer.Exit(code) from error


OUTPUT = "reflection_output"


def deliver_workflow(result: WorkflowResult, last: Any, *, as_json: bool) -> None:
    """Print what the last node gave, or the JSON document with the state at the end."""
    if as_json:
        emit_json(
            {
                "run_id": result.run_id,
                "state": result.state,
                "nodes": result.nodes,
                "token_usage": result.usage,
                "execution_time": result.execution_time,
            }
        )
    elif last is not None:
        emit_untrusted(readable(last))


def readable(value: Any) -> str:
    """Render what a node gave: of a loop its output, an object with one text as that text, else as JSON."""
    if isinstance(value, dict):
        items = cast("Mapping[str, Any]", value)
        if OUTPUT in items and "reflection_history" in items:
            return as_text(items[OUTPUT])
        if len(items) == 1 and isinstance(only := next(iter(items.values())), str):
            return only
    return as_text(value)


def workflow_ending(result: WorkflowResult) -> str:
    """Say how many nodes ran, and what it used."""
    nodes = "1 node" if len(result.nodes) == 1 else f"{len(result.nodes)} nodes"
    return f"Finished: {nodes}. Used: {render_usage(result.usage)}, {result.execution_time:.1f} s."


LONGEST_LABEL = 24


class WorkflowProgress:
    """Tell how a workflow is going: a row for each attempt of a loop, and for each node that ends.

    An event listener and a context manager around one workflow, which also shows the warnings that are
    logged meanwhile. `run_id` is that of the workflow where it is kept, `last` what a node gave last.
    """

    def __init__(self, console: CalmConsole, nodes: Sequence[str]) -> None:
        self.run_id = ""
        self.last: Any = None
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
        """Hear of an event of the workflow, or of a loop in it."""
        match event:
            case NodeStarted():
                self.run_id = event.run_id
                self._inside.switch_to(self._label(event.node))
            case NodeFinished():
                self._ended(event)
            case WorkflowFinished():
                pass
            case _:
                self._inside(event)

    def _ended(self, event: NodeFinished) -> None:
        if event.skipped:
            said = Text("skipped", QUIET)
        elif event.error:  # which is logged, too, and so is shown already
            said = Text("failed", BAD)
        else:
            said = node_outcome(event.result)
            self.last = event.result
        self._console.show(Text.assemble(self._label(event.node), "  ", said))

    def _label(self, node: str) -> str:
        shown = shortened(visible(node), self._width)
        return f"{shown:<{self._width}}"


def node_outcome(result: Any) -> Text:
    """Say how a node ended: of a loop or a judgement, what it came to."""
    outcome = NodeOutcome.of(result)
    style = "" if outcome.valid is None else GOOD if outcome.valid else BAD
    return Text.assemble((outcome.verdict, style), f" {outcome.detail}".rstrip())


UNRENDERED = "schema"
"""The parameter that is data, in which a key says nothing about the workflow."""


def model_names(value: Any) -> set[str]:
    """Return the names of models anywhere in the parameters of a workflow that has not been checked."""
    if isinstance(value, list):
        return set[str]().union(*map(model_names, cast("list[Any]", value)))
    if not isinstance(value, Mapping):
        return set()
    items = cast("Mapping[str, Any]", value)
    found = {name for key, name in items.items() if key == "model" and isinstance(name, str)}
    return found.union(*(model_names(item) for key, item in items.items() if key != UNRENDERED))


def given_values(words: Sequence[str]) -> dict[str, Any]:
    """Return the values that `-v` names; raises `ConfigError` for one that can't be read, or comes twice.

    A text stays a text, whatever it looks like: only `:=` makes JSON of it.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":").strip()
        if not equals or not name:
            raise ConfigError(
                f"-v {word!r} is no value: expected NAME=TEXT, NAME=@FILE, NAME:=JSON or NAME:=@FILE."
            )
        if name in values:
            raise ConfigError(f"-v {name!r} is given twice.")
        content = read_text(text[1:], f"-v {name}") if text.startswith("@") else text
        values[name] = _json(name, content) if is_json else content
    return values


def read_text(file: str, what: str) -> str:
    """Read a file, or standard input for `-`; raises `ConfigError`, which begins with `what`."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what}: {file!r} is not UTF-8 text.") from error
    except (OSError, ValueError) as error:  # a name with a NUL is no OSError
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{what}: {file!r} cannot be read: {said}.") from error


def _json(name: str, text: str) -> Any:
    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON number")

    def finite(word: str) -> float:
        if isfinite(number := float(word)):
            return number
        raise ValueError(f"{word} is larger than a number can be")

    try:
        return json.loads(text, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"-v {name}: this is no JSON: {error}. For a text, write {name}=TEXT.") from error


LONGEST_VALUE = 200
INDENT = (0, 0, 0, 2)


def check_workflow_options(history: WorkflowHistory, *, version: str | None, prompts: bool) -> None:
    """Raise `ConfigError` for an option that is for runs: a workflow has no versions of its own."""
    if version is None and not prompts:
        return
    option = "--prompts" if version is None else "--version"
    runs = [run.run_id for node in history.nodes for run in node.runs]
    instead = f"give one of its loops: {', '.join(runs)}" if runs else "it has no loops"
    raise ConfigError(f"{history.row.run_id!r} is a workflow, and {option} is for runs; {instead}.")


def workflow_view(history: WorkflowHistory) -> RenderableType:
    """Render a workflow."""
    record, row = history.kept.record, history.row
    title = f"  workflow {visible(row.name)} ({visible(row.file)}), {when(row.started_at)}"
    parts: list[RenderableType] = [Text.assemble((row.run_id, "bold"), title)]
    if record.given:
        parts.append(Padding(Text(_short(dict(record.given)), QUIET), INDENT))
    parts += ["", Text.assemble("State: ", state_text(row.status))]
    if row.error:
        parts.append(Text(f"Error: {visible(row.error)}", BAD))
    if history.nodes:
        parts += ["", _nodes(history)]
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
        name = visible(node.node) or "not ended"
        table.add_row(name, seconds, _outcome(node))
        for run in node.runs:
            scores = first_to_best(run)
            line = Text.assemble((run.run_id, QUIET), "  ", outcome(run), f"  {scores}" if scores else "")
            table.add_row("", "", line)
    return table


def _outcome(node: NodeRun) -> Text:
    if node.error:
        return Text(visible(node.error), BAD)
    if node.runs and node.seconds is not None:  # what a loop gave is what its run shows
        return node_outcome(node.value)
    return Text("" if node.value is None else _short(node.value), QUIET)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = visible(" ".join(text.split()))
    return line if len(line) <= LONGEST_VALUE else f"{line[:LONGEST_VALUE]} ..."


T = TypeVar("T")


def kept_workflow(run: str) -> KeptWorkflow | None:
    """Return the workflow that an id means, or that of a loop in it; None if it means a run, or nothing.

    Raises `ConfigError` if several begin so.
    """
    return _reading(lambda workflows: workflows.get(run, or_of_loop=True))


def read_history(run: str) -> WorkflowHistory | None:
    """Read the workflow that an id means, without its secrets; None if it means a run, or nothing.

    Raises `ConfigError` if several begin so.
    """

    async def read(workflows: Workflows) -> WorkflowHistory | None:
        kept = await workflows.get(run)
        return None if kept is None else await workflows.history(kept)

    # Whether one was killed is known by its process, which no view shows.
    history = _reading(read)
    return None if history is None else redactor_of_environment().redact_object(history, spared=(Process,))


def read_workflows(*, status: str | None, name: str | None, limit: int) -> list[WorkflowRow]:
    """Read the newest workflows of a state and a name, without their secrets."""

    async def read(workflows: Workflows) -> list[WorkflowRow]:
        found = await workflows.find(status=status, name=name, limit=limit)
        return [await workflows.row(kept) for kept in found]

    redactor = redactor_of_environment()
    return [redactor.redact_object(row) for row in _reading(read) or ()]


def _reading(read: Callable[[Workflows], Awaitable[T]]) -> T | None:
    async def reading() -> T | None:
        async with open_project_store() as store:
            return None if store is None else await read(Workflows(store))

    return asyncio.run(reading())
