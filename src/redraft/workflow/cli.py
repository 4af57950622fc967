"""`redraft run`: run or check a workflow file."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
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
    SandboxError,
    ScriptError,
    StoreError,
    WorkflowError,
)
from redraft.loop.cli import Progress
from redraft.loop.keeper import new_run_id
from redraft.loop.record import Process
from redraft.loop.run_text import first_to_best, outcome, state_text, when
from redraft.models.names import EXTRAS, model_of
from redraft.protocols import Script
from redraft.redact.environment import redactor_of_environment
from redraft.sandbox.scripts import INTERPRETERS, run_script
from redraft.settings import load_settings
from redraft.stores.base import Record
from redraft.stores.location import open_project_store, project_store
from redraft.terminal import options
from redraft.terminal.check_report import deliver_check
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, Warnings, emit_json, emit_made
from redraft.terminal.exits import ExitCode, surface, tell_error
from redraft.text.characters import visible
from redraft.text.templates import braced, template
from redraft.text.yaml import Way
from redraft.types import render_usage
from redraft.workflow.actions import BUILT_IN
from redraft.workflow.history import (
    BEGAN,
    Began,
    KeptWorkflow,
    NodeOutcome,
    WorkflowHistory,
    WorkflowRow,
    Workflows,
)
from redraft.workflow.loop import DOCUMENTED, FEEDBACK, maker_of
from redraft.workflow.run import NodeFinished, NodeStarted, WorkflowFinished
from redraft.workflow.scope import MODEL, templates_in
from redraft.workflow.spec import (
    LLM_CALL,
    LOOP,
    Code,
    CorrectParams,
    EvaluateParams,
    LoopParams,
    Source,
    plain_name,
    read,
)
from redraft.workflow.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
    from types import TracebackType

    from rich.console import RenderableType

    from redraft.events import Listener
    from redraft.stores.base import Store
    from redraft.workflow.history import NodeRun
    from redraft.workflow.run import WorkflowEvent, WorkflowResult
    from redraft.workflow.spec import Evaluator, Maker, Node, WorkflowSpec

File: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE", help="The workflow, a YAML file.", show_default=False)
]
Values: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        "-v",
        metavar="NAME=TEXT",
        help="A value of the state: NAME=TEXT as it is, NAME=@FILE the text of a file (@- of stdin), "
        "NAME:=JSON or NAME:=@FILE as JSON. As often as needed.",
    ),
]
Check: TypeAlias = Annotated[
    bool, typer.Option("--check", help="Run nothing: say what is wrong, or ok and what it would use.")
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME", help="The model that answers, whatever the file names."),
]
AllowUnsandboxed: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-unsandboxed", help="Run `sandbox: process` code with limits only where no jail works."
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
    """Run a workflow. Prints what its last node gave, with --json the state at its end.

    Of a loop its output is printed, and of an object with one text that text. Exit code 1 says that a loop
    with `on_failure: raise` failed.
    """
    with surface(debug=debug):
        from redraft.loop.cli import watched
        from redraft.terminal.console import CalmConsole

        again = taken_up.get()
        given = given_values(values or ()) if again is None else again.record.given
        found = ready(file, given, model=model, keep=not no_keep, allow_unsandboxed=allow_unsandboxed)
        if check:
            report(found, as_json=as_json, allow_unsandboxed=allow_unsandboxed)
            return
        told = CalmConsole(stderr=True)
        progress = WorkflowProgress(told, [node.name for node in found.workflow.spec.nodes])
        with (
            watched(progress, events) as listener,
            told_how_to_go_on(progress, told.say, debug=debug),
            progress,
        ):
            result = carry_out_workflow(found, listener, keep=not no_keep)
        told.say(workflow_ending(result))
        if result.run_id:
            told.say(f"Kept as {result.run_id}; redraft show last")
        deliver_workflow(result, progress.last, as_json=as_json)


FIRST = {"lua": "do return true end ", "prolog": "evaluate(true) :- !. "}
"""What code begins with that gives its value at once: the rest is read, and not run."""


async def read_code(found: Ready, *, allow_unsandboxed: bool) -> None:
    """Have each piece of code read by what would run it; of Python its imports are tried, too.

    Raises `WorkflowError` for what it can't read or import, and where its sandbox does not work here.
    """
    for code, way in found.uses.code:
        source, lines = _read_alone(code)
        script = Script(code.language, source, sandbox=code.sandbox)
        try:
            await run_script(script, allow_unsandboxed=allow_unsandboxed)
        except SandboxError as error:
            said, line = str(error), None
            if isinstance(error, ScriptError) and error.line is not None:
                line = lines[error.line - 1] if error.line <= len(lines) else error.line - len(lines)
                said = said.replace(f", line {error.line},", f", line {line},", 1)
            raise found.workflow.source.error(way, said, within=line) from error


def _read_alone(code: Code) -> tuple[str, list[int]]:
    """Return code that is read and not run, and for each line put before it the line that it comes from."""
    run = str(code.run)
    if code.language != "python":
        return FIRST[code.language] + run, []
    statements = ast.parse(run).body
    imports = [one for one in statements if isinstance(one, ast.Import | ast.ImportFrom)]
    # What whole Python can read, this Python just has.
    rest = ["return True", run] if code.sandbox == "inline" else ["result = True"]
    return "\n".join([*map(ast.unparse, imports), *rest]), [*(node.lineno for node in imports), 1]


def report(found: Ready, *, as_json: bool, allow_unsandboxed: bool) -> None:
    """Say of a workflow that is ready what it would use; nothing is spent.

    Raises `WorkflowError` for code that its sandbox can't read, and where a sandbox does not work here.
    """
    asyncio.run(read_code(found, allow_unsandboxed=allow_unsandboxed))
    deliver_check(found.file, used_by(found), as_json=as_json)


def used_by(found: Ready) -> dict[str, Any]:
    """Return what a workflow would use, as plain data; a model is None where only its state will name it."""
    spec = found.workflow.spec
    models = {name or "": found.full_name(name) for name in found.uses.models}
    return {
        "name": spec.name,
        "nodes": len(spec.nodes),
        "models": sorted({full for full in models.values() if full}),
        "actions": sorted(found.uses.actions),
        "code": sorted({f"{code.language} ({code.sandbox})" for code, _ in found.uses.code}),
        "extras": _extras(found),
        "env": {name: name in os.environ for name in spec.env},
    }


def _extras(found: Ready) -> list[str]:
    """Return the parts of Redraft that it needs, as pip calls them."""
    names = [found.full_name(name) or "" for name in found.uses.models]
    providers = {name.partition(":")[0] for name in names} & {*EXTRAS, "local"}
    return sorted(providers | {INTERPRETERS[code.language].extra for code, _ in found.uses.code})


def first_missing(spec: WorkflowSpec, given: Mapping[str, Any]) -> tuple[Way, str] | None:
    """Return where a value is read that nothing gives, and its name such as `state.request`; None for none.

    Looks at the nodes that run in any case, until one whose keys in the state are not known beforehand.
    """
    state = {*given, *DOCUMENTED, FEEDBACK}
    known = {"state": state, "variables": {*spec.variables, *given}}
    for at, node in enumerate(spec.nodes):
        for text, way in _read_first(node, ("nodes", at)):
            for scope, *rest in template(text).required:
                if scope in known and rest and rest[0] not in known[str(scope)]:
                    return way, f"{scope}.{rest[0]}"
        if _may_go_elsewhere(node) or _gives_unknown_keys(node):
            return None
        state.add(node.output or node.name)
    return None


def _read_first(node: Node, way: Way) -> Iterator[tuple[str, Way]]:
    """Yield the templates that are rendered whatever happens in a node."""
    if node.when is not None:
        if isinstance(node.when, str):
            yield braced(node.when), (*way, "when")
        return
    params, inside = node.with_, (*way, "with")
    if plain_name(str(node.uses)) == LOOP:
        params, inside = params["generator"], (*inside, "generator")
    yield from templates_in(params, inside)


def _may_go_elsewhere(node: Node) -> bool:
    return node.when is not None or node.goto is not None or node.on_error != "raise"


def _gives_unknown_keys(node: Node) -> bool:
    action = plain_name(str(node.uses))
    gives_text = action == LLM_CALL and "schema" not in node.with_
    return action == LOOP or (node.output is None and not gives_text)


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
        emit_made(readable(last))


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
                self._inside.turn_to(self._label(event.node))
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


@dataclass(frozen=True, slots=True)
class Uses:
    """Hold what a workflow uses, each with its place in the file: the first one that it has there.

    Every piece of `code` has its own. The model None is the one of the state, the file or the settings;
    models that templates choose are left out, for they are known when it runs.
    """

    actions: dict[str, Way] = field(default_factory=dict[str, "Way"])
    models: dict[str | None, Way] = field(default_factory=dict["str | None", "Way"])
    code: list[tuple[Code, Way]] = field(default_factory=list[tuple[Code, Way]])

    @classmethod
    def of(cls, spec: WorkflowSpec) -> Uses:
        """Return what a workflow uses that has been checked."""
        uses = cls()
        for at, node in enumerate(spec.nodes):
            way = ("nodes", at)
            if node.run is not None:
                uses._code(node, way)
            else:
                uses._action(str(node.uses), node.with_, (*way, "with"))
        return uses

    def _action(self, name: str, params: Mapping[str, Any], way: Way) -> None:
        known = plain_name(name)
        self.actions.setdefault(known, way)
        if known == "reflection.loop":
            loop = LoopParams.model_validate(dict(params))
            self._maker(loop.generator, (*way, "generator"))
            self._evaluator(loop.evaluator, (*way, "evaluator"))
            if loop.corrector is not None:
                self._maker(loop.corrector, (*way, "corrector"))
        elif known == "reflection.evaluate":
            self._evaluator(EvaluateParams.model_validate(dict(params)).evaluator(), way)
        elif known == "reflection.correct":
            self._maker(maker_of(CorrectParams.model_validate(dict(params))), way)
        elif known == "llm.call":
            self._model(params.get("model"), way)

    def _maker(self, maker: Maker, way: Way) -> None:
        if maker.run is not None:
            self._code(maker, way)
        else:
            self._action(str(maker.action), maker.params, way)

    def _evaluator(self, evaluator: Evaluator, way: Way) -> None:
        if evaluator.type == "llm":
            self._model(evaluator.model, way)
        elif evaluator.type == "custom":
            self._code(evaluator, way)

    def _code(self, code: Code, way: Way) -> None:
        self.code.append((code, (*way, "run")))

    def _model(self, name: str | None, way: Way) -> None:
        if name is None or "{{" not in name:
            self.models.setdefault(name, way)


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


OF_AGENTS = ("stages", "triggers", "sense", "reason", "actuate", "reflect")
"""Keys at the top of the file of an agent that runs in cycles; the stages stand there by mistake."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Hold a workflow that is checked, with what it is given and all that it uses.

    `models` maps names of the file to those that answer in their place, as `--model` wants it.
    """

    workflow: Workflow
    given: Mapping[str, Any]
    uses: Uses
    models: Mapping[str, str]

    @property
    def file(self) -> str:
        """The file, as it was named."""
        return self.workflow.source.file

    def full_name(self, model: str | None) -> str | None:
        """Return the name of the model that answers to a name of the file, None where none is known."""
        settings = load_settings()
        name = model or self.given.get("model") or self.workflow.spec.model or settings.model
        aliases = {**settings.models, **self.workflow.spec.models, **self.models}
        seen: set[str] = set()
        while name in aliases and name not in seen:
            seen.add(name)
            name = aliases[name]
        return name

    def own_actions(self) -> list[str]:
        """Return the names of actions that are not built in."""
        return [name for name in self.uses.actions if name not in BUILT_IN]


def ready(
    file: str, given: Mapping[str, Any], *, model: str | None, keep: bool, allow_unsandboxed: bool
) -> Ready:
    """Read a workflow file and check it with what it is given, down to its models and languages.

    A `model` answers in place of every one that the file names. Raises `WorkflowError`, with file, line, node
    and key, for whatever can be known to go wrong.
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
        given = {**given, "model": model}
    workflow = Workflow(source, models=models, keep=keep, allow_unsandboxed=allow_unsandboxed)
    found = Ready(workflow, given, Uses.of(workflow.spec), models)
    if (missing := first_missing(workflow.spec, given)) is not None:
        way, name = missing
        short = name.partition(".")[2]
        raise source.error(way, f"{name} is read here, and nothing gives it: add -v {short}=TEXT")
    _check_models(found)
    return found


def _check_models(found: Ready) -> None:
    for name, way in found.uses.models.items():
        full = found.full_name(name)
        if full is None and _may_be_set(found.workflow.spec, way):
            continue
        try:
            model_of(full, load_settings())
        except ConfigError as error:
            named = way if name is None else (*way, "model")
            raise found.workflow.source.error(named, str(error)) from error


def _may_be_set(spec: WorkflowSpec, way: Way) -> bool:
    """Say whether a node may put a model's name into the state before the place `way`: it is known then."""
    at = int(way[1])
    order = {node.name: number for number, node in enumerate(spec.nodes)}

    def goes_back(node: Node) -> bool:
        jumps = node.goto if isinstance(node.goto, list) else []
        named = (node.goto, node.on_error, *(jump.to for jump in jumps))
        return any(order.get(str(name), len(order)) <= at for name in named)

    before = spec.nodes if any(map(goes_back, spec.nodes[at:])) else spec.nodes[:at]
    return any(map(_may_set_model, before))


def _may_set_model(node: Node) -> bool:
    """Say whether a node may put a model's name into the state; an action that is built in never does."""
    if node.output is not None:
        return node.output == MODEL
    if node.run is None:
        return plain_name(str(node.uses)) not in BUILT_IN
    return node.language != "python" or _may_return_model(node.run)


def _may_return_model(code: str) -> bool:
    """Say whether Python code may give an object with the key `model`; not where all it gives is literal."""
    given: list[ast.expr | None] = []
    named = 0
    for one in ast.walk(ast.parse(code)):
        if isinstance(one, ast.Return):
            given.append(one.value)
        elif isinstance(one, ast.Assign) and all(_is_result(target) for target in one.targets):
            given.append(one.value)
            named -= len(one.targets)
        named += _is_result(one)
    # A `result` that is named elsewhere, too, may have been changed there.
    return named > 0 or not all(map(_is_literal, given))


def _is_result(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "result"


def _is_literal(value: ast.expr | None) -> bool:
    """Say whether an expression is no object, or one whose keys are literal, and other than `model`."""
    if isinstance(value, ast.Dict):
        return all(isinstance(key, ast.Constant) and key.value != MODEL for key in value.keys)
    return value is None or isinstance(value, LITERAL)


LITERAL = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Compare)
"""Expressions whose value is no object."""


taken_up: ContextVar[KeptWorkflow | None] = ContextVar("taken_up", default=None)
"""The workflow that a command carries out again: with the values that it was given then."""


async def begin(store: Store, again: KeptWorkflow | None) -> str | None:
    """Write down which command begins a workflow, or goes on with one; return the id under which it is kept.

    None where that can't be kept: what is resumed later could not be found.
    """
    if again is not None and again.began is not None:
        run_id, began = again.record.run_id, again.began
        began = Began(began.arguments, began.folder, Process.this())
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


def kept_workflow(run: str) -> KeptWorkflow | None:
    """Return the workflow that an id means, or that of a loop in it; None where it means none.

    Raises `ConfigError` for the beginning of several.
    """
    return _reading(lambda store: Workflows(store).get(run, or_of_loop=True))


def carry_out_workflow(found: Ready, listener: Listener, *, keep: bool) -> WorkflowResult:
    """Carry out a workflow, or go on with the one that is resumed; raises what it raises."""
    hears = cast("Callable[[WorkflowEvent], None]", listener)  # whatever dataclass an event is
    try:
        return asyncio.run(_kept(found, hears, keep=keep))
    except Exception as error:  # what an action of the user's own raises is no defect of Redraft's
        if isinstance(error, RedraftError) or not (own := found.own_actions()):
            raise
        names = ", ".join(map(repr, own))
        place = vars(error).get("__notes__", [found.file])[0]
        raise WorkflowError(
            f"{place}: {type(error).__name__}: {error}. Most likely an action of your own raised it "
            f"({names}); --debug shows where."
        ) from error


async def _kept(found: Ready, listener: Callable[[WorkflowEvent], None], *, keep: bool) -> WorkflowResult:
    store = project_store() if keep else None
    try:
        run_id = None if store is None else await begin(store, taken_up.get())
        return await found.workflow.run(found.given, run_id=run_id, on_event=listener)
    finally:
        if store is not None:
            await store.aclose()


@contextmanager
def told_how_to_go_on(
    progress: WorkflowProgress, say: Callable[[str], None], *, debug: bool
) -> Generator[None]:
    """Say of a workflow that did not come to its end why, under which id it is kept, and what can be done."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        say("Interrupted.")
        _say_kept(progress, say, "resume")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except Exception as error:  # the surface of a workflow, as that of the command is around it
        code = tell_error(error, debug=debug)
        _say_kept(progress, say, "show" if isinstance(error, ReflectionFailedError) else "resume")
        raise typer.Exit(code) from error


def _say_kept(progress: WorkflowProgress, say: Callable[[str], None], further: str) -> None:
    if progress.run_id:
        say(f"Kept as {progress.run_id}; redraft {further} last")


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


def read_history(run: str) -> WorkflowHistory | None:
    """Read the workflow that an id means: its own, the beginning of one, or `last`; secrets are withheld.

    None where it means none, or a run. Raises `ConfigError` for the beginning of several.
    """

    async def read(store: Store) -> WorkflowHistory | None:
        workflows = Workflows(store)
        kept = await workflows.get(run)
        return None if kept is None else await workflows.history(kept)

    # Whether one was killed is known by its process, which no view shows.
    history = _reading(read)
    return None if history is None else redactor_of_environment().redact_object(history, spared=(Process,))


def read_workflows(*, status: str | None, name: str | None, limit: int) -> list[WorkflowRow]:
    """Read the newest workflows that fit, with their secrets withheld."""

    async def read(store: Store) -> list[WorkflowRow]:
        workflows = Workflows(store)
        found = await workflows.find(status=status, name=name, limit=limit)
        return [await workflows.row(kept) for kept in found]

    return [redactor_of_environment().redact_object(row) for row in _reading(read) or ()]


def _reading(read: Callable[[Store], Awaitable[T]]) -> T | None:
    async def reading() -> T | None:
        async with open_project_store() as store:
            return None if store is None else await read(store)

    return asyncio.run(reading())
