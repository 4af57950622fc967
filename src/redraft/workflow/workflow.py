"""`Workflow`: a YAML file that is checked and run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from redraft._codec import to_json
from redraft._hints import keyword_hints
from redraft._sync import run_sync
from redraft._texts import short_repr
from redraft._validation import check_functions, check_kind, check_text, nearest
from redraft.approvals import Approvals
from redraft.errors import ConfigError, UnfinishedError, WorkflowError
from redraft.loop.event_log import emitter
from redraft.loop.journal import check_keep, journal_in, journalled_step
from redraft.loop.record import Process
from redraft.loop.stream import EventStream
from redraft.types import PlainTask
from redraft.workflow.actions import BUILT_IN, own_actions
from redraft.workflow.approval import WaitingForAnswer
from redraft.workflow.check import (
    check_file,
    check_models,
    missing_values,
    refused_code,
)
from redraft.workflow.graph import WorkflowGraph
from redraft.workflow.history import WorkflowRecord, Workflows
from redraft.workflow.run import WorkflowFinished, WorkflowRun
from redraft.workflow.runtime import MODEL, ActionResult, Resources, Scope, copy_of, plain_data
from redraft.workflow.signature import read_inputs, read_outputs
from redraft.workflow.spec import WorkflowFile, read
from redraft.workflow.tools import Tools

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from typing import Unpack

    from redraft.events import TokenEvent
    from redraft.protocols import ModelChoice
    from redraft.stores.base import Store
    from redraft.text.yaml import KeyPath
    from redraft.workflow.approval import Approver
    from redraft.workflow.check import Requirements
    from redraft.workflow.run import WorkflowEvent, WorkflowResult


class WorkflowOptions(TypedDict, total=False):
    """The options of a `Workflow`; they also apply to the files that it runs as nodes."""

    actions: Mapping[str, Callable[..., Any]] | None
    """Functions of your own, called as `fn(state=..., **params)`."""
    models: Mapping[str, ModelChoice] | None
    """Models, or their full names, by the names in the file."""
    model: ModelChoice | None
    """Replaces every model that the file names."""
    keep: bool | Store
    """Store runs in the project's store (True, the default), in this store, or nowhere (False)."""
    allow_unsandboxed: bool
    """If no jail is available, run `sandbox: process` code with limits only."""
    approver: Approver | None
    """Answers questions of `human.approve`, or returns None to leave them to a person."""
    tool_results: Mapping[str, Any] | None
    """Results of tools by name, for tests: no MCP server is started."""
    strict: bool
    """Raise for mistakes immediately (True, the default), or leave them to `check`, `check_all` and `run`."""


class Workflow:
    """A workflow from a YAML file, checked when it is read. It can run any number of times, also in parallel.

    `from_file` and `from_text` raise `WorkflowError`, with file, line, node and key, for all mistakes that
    can be found before anything is spent (`error.problems`): first mistakes of form, which are keys and
    values that the format does not have, then mistakes of meaning. With `strict=False` they raise it only for
    mistakes of form, and `problems` has the others.

    For `options` see `WorkflowOptions`; `above` are the files that run this file as a node.
    """

    def __init__(
        self, source: WorkflowFile, *, above: tuple[Path, ...] = (), **options: Unpack[WorkflowOptions]
    ) -> None:
        check_kind("source", source, WorkflowFile, "a WorkflowFile; use Workflow.from_file or .from_text")
        # Python does not check the keys of a typed dict.
        if unknown := options.keys() - WorkflowOptions.__annotations__.keys():
            name = min(unknown)
            raise TypeError(
                f"Workflow has no option {name!r}; {nearest(name, WorkflowOptions.__annotations__)}"
            )
        keep, folder = options.get("keep", True), Path(source.file).parent
        irrelevant = {"strict", *(["keep"] if keep is True else [])}
        self._options_to_resume = tuple(
            name for name, value in options.items() if value and name not in irrelevant
        )
        check_keep(keep)
        check_functions("actions", actions := options.get("actions") or {})
        if (approver := options.get("approver")) is not None and not callable(approver):
            raise ConfigError(f"approver must be a function, got {approver!r}.")
        self.source = source
        own = own_actions(actions)
        self.spec, notes = read(source, own)
        files = (*above, Path(source.file).resolve())
        names = [node.file for node in self.spec.nodes if node.file is not None]
        self._files = {name: _inner_workflow(folder / name, name, files, options) for name in names}
        self._resources = Resources(
            spec=self.spec,
            built_in=BUILT_IN,
            actions=own,
            files=self._files,
            models={**self.spec.models, **(options.get("models") or {})},
            only_model=options.get("model"),
            model=self.spec.model,
            keep=keep,
            folder=folder,
            allow_unsandboxed=options.get("allow_unsandboxed", False),
            tools=Tools(self.spec.mcp, folder, results=options.get("tool_results")),
            approver=approver,
        )
        self._uses, self._problems = check_file(self.spec, notes, source, self._resources)
        if options.get("strict", True):
            self._raise_problems()

    @property
    def keep(self) -> bool | Store:
        """Where runs are stored: in the project's store (True), in another store, or nowhere (False)."""
        return self._resources.keep

    @classmethod
    def from_file(cls, path: str | Path, **options: Unpack[WorkflowOptions]) -> Workflow:
        """Read and check a workflow file."""
        return cls(WorkflowFile.read(path), **options)

    @classmethod
    def from_text(cls, text: str, **options: Unpack[WorkflowOptions]) -> Workflow:
        """Read and check the text of a workflow file; its paths are relative to the current folder."""
        check_text("text", text)
        return cls(WorkflowFile(text), **options)

    @property
    def problems(self) -> tuple[WorkflowError, ...]:
        """All mistakes in the file and in the files that it runs, except code that a sandbox refuses."""
        return tuple(problem for file in (self, *self.files) for problem in file._problems)  # noqa: SLF001

    @property
    def files(self) -> tuple[Workflow, ...]:
        """The workflows that its nodes run, directly or indirectly."""
        inner = [file for file in self._files.values() if isinstance(file, Workflow)]
        return tuple(file for outer in inner for file in (outer, *outer.files))

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions that the file uses."""
        return tuple(self._uses.actions)

    @property
    def graph(self) -> WorkflowGraph:
        """Its nodes and the edges between them; `graph.mermaid()` renders it."""
        return WorkflowGraph.of(self.spec)

    def check(self, state: Mapping[str, Any] | None = None, *, priced: bool = False) -> Requirements:
        """Check, spending nothing, that the workflow can run from a state; return its requirements.

        Raises `WorkflowError` for values that are read but never set, for models that can't be used on this
        machine, and for the `problems` of a file that was not read strictly. With a budget in US dollars, in
        the file or around the run (`priced`), also for models without a known price.
        """
        uses, problems = self._check(state, priced=priced)
        self._raise_problems(problems)
        return uses

    def _raise_problems(self, more: Sequence[WorkflowError] = ()) -> None:
        if problems := [*self.problems, *more]:
            raise WorkflowError.of(problems)

    def _check(
        self,
        state: Mapping[str, Any] | None,
        *,
        inside: bool = False,
        default_model: ModelChoice | None = None,
        priced: bool = False,
    ) -> tuple[Requirements, list[WorkflowError]]:
        inputs, wrong = read_inputs(self.spec, self._resources, _initial(state))
        # For an inner workflow, the check of the outer file has reported the mistakes in its inputs.
        problems = [] if inside else [self.source.error(path, what) for path, what in wrong]
        provided = {*inputs, *(() if inside else [str(path[1]) for path, _ in wrong if path[1:]])}
        problems += missing_values(self.spec, self.source, provided, self._resources.actions)
        resources = replace(self._resources, model=self.spec.model or default_model)
        priced = priced or self.spec.budget.usd is not None
        uses, unusable = check_models(self._uses, self.spec, self.source, resources, inputs, priced=priced)
        problems += unusable
        for node in self.spec.nodes:
            inner = None if node.file is None else self._files[node.file]
            if isinstance(inner, Workflow):
                default = inputs.get(MODEL) or resources.model
                inner_uses, inner_problems = inner._check(  # noqa: SLF001 (the same class)
                    node.with_, inside=True, default_model=default, priced=priced
                )
                uses, problems = uses.including(inner_uses), [*problems, *inner_problems]
        return uses, problems

    async def check_all(self, state: Mapping[str, Any] | None = None) -> Requirements:
        """Like `check`, but also parse all code in its sandbox.

        Raises `WorkflowError` for everything that could not work on this machine.
        """
        uses, problems = self._check(state)
        unsandboxed = self._resources.allow_unsandboxed
        for file in (self, *self.files):
            problems += await refused_code(file._uses, file.source, allow_unsandboxed=unsandboxed)  # noqa: SLF001
        self._raise_problems(problems)
        return uses

    @keyword_hints()
    async def run(
        self,
        state: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        on_event: Callable[[WorkflowEvent], None] | None = None,
        wait: bool = False,
    ) -> WorkflowResult:
        """Run the workflow; return its final state, its outputs and its cost.

        `state` is the initial state: plain JSON data, which templates can also read under `variables`. With a
        `run_id`, the same call continues after the last finished node. A run that needs a person's answer
        returns with the status `waiting`; with `wait`, the call waits for the answer and continues. Raises
        the error of a node, unless its `on_error` handles it.
        """
        result = await self._run(state, run_id, on_event)
        while wait and result.waiting:
            await Approvals(self._store).wait(result.waiting)
            result = await self._run(state, result.run_id, on_event)
        return result

    @property
    def _store(self) -> Store | None:
        return None if isinstance(self._resources.keep, bool) else self._resources.keep

    async def _run(
        self,
        state: Mapping[str, Any] | None,
        run_id: str | None,
        on_event: Callable[[WorkflowEvent], None] | None,
        on_token: Callable[[TokenEvent], None] | None = None,
        default_model: ModelChoice | None = None,
        outer: Resources | None = None,
    ) -> WorkflowResult:
        self._raise_problems()
        inputs = plain_data(_initial(state), "The initial state of the workflow")
        inputs, wrong = read_inputs(self.spec, self._resources, inputs)
        if wrong:
            raise WorkflowError.of([self.source.error(path, what) for path, what in wrong])
        emit: Callable[[WorkflowEvent], None] = emitter(on_event)
        step = journalled_step(self._resources.keep, run_id, PlainTask(f"{self.spec.name} {to_json(inputs)}"))
        journal = journal_in(step)
        env = {name: os.environ[name] for name in self.spec.env if name in os.environ}
        async with replace(self._resources.tools, env=env) as tools:
            resources = replace(
                self._resources,
                model=self.spec.model or default_model,
                on_event=on_event and emit,
                on_token=on_token,
                tools=tools,
                run_id=outer.run_id if outer is not None else "" if journal is None else journal.run_id,
            )
            run = WorkflowRun(
                self.spec,
                self.source,
                resources,
                Scope(copy_of(inputs), {**self.spec.variables, **inputs}, env),
                step,
                emit,
                journal=journal,
            )
            result = await self._run_and_store(run, inputs, is_node=outer is not None)
        if outer is None:
            emit(WorkflowFinished(result.run_id, result))
        return result

    async def _run_and_store(
        self, run: WorkflowRun, inputs: dict[str, Any], *, is_node: bool
    ) -> WorkflowResult:
        """Run the nodes; if the step has a journal, store the run, or resume it."""
        journal = run.journal
        if journal is None:
            return self._with_outputs(await run.run(), run, is_node=is_node)
        record = WorkflowRecord(
            journal.run_id,
            self.spec.name,
            self.source.file,
            inputs,
            datetime.now(UTC),
            parent=journal.parent,
            graph=self.graph,
            process=Process.this(),
            options=self._options_to_resume,
        )
        if (finished := await journal.begin(record)) is not None:
            return finished.result()
        if not journal.is_closed:  # closed if the store failed: then no run can be resumed
            run.run_id = journal.run_id

        async def work() -> WorkflowResult:
            result = await run.run()
            record.state, record.nodes = result.state, result.nodes  # stored even if an output is invalid
            record.end(self._with_outputs(result, run, is_node=is_node))
            return result

        return await journal.track(record, work())

    def _with_outputs(self, result: WorkflowResult, run: WorkflowRun, *, is_node: bool) -> WorkflowResult:
        if is_node and not self.spec.outputs:
            result.outputs = run.written()
        elif result.status == "finished":
            result.outputs = read_outputs(self.spec, self.source, self._resources, run.scope)
        return result

    def validate_inputs(
        self, params: Mapping[str, Any], unknown: Container[str], /
    ) -> list[tuple[KeyPath, str]]:
        """Mistakes in a node's parameters as inputs of this workflow; `unknown` names have no value yet."""
        return read_inputs(self.spec, self._resources, params, unknown, "add it to 'with'")[1]

    async def run_as_node(
        self, params: Mapping[str, Any], scope: Scope, resources: Resources, /
    ) -> ActionResult:
        """Run as a node of another workflow; the value has the outputs, or what its nodes put into the state.

        It is a run of its own within the run of the other workflow, and is resumed with it.
        """
        default = scope.state.get(MODEL) or resources.model
        on_event = cast("Callable[[WorkflowEvent], None] | None", resources.on_event)
        result = await self._run(params, None, on_event, resources.on_token, default, resources)
        if result.waiting:
            raise WaitingForAnswer(*result.waiting)
        if result.stop is not None:
            cut_off = UnfinishedError(result.stop.detail, reason=result.stop.reason, usage=result.usage)
            cut_off.partial = result.outputs or None
            raise cut_off
        return ActionResult(result.outputs, result.usage)

    @keyword_hints()
    async def resume(
        self, run_id: str, *, on_event: Callable[[WorkflowEvent], None] | None = None
    ) -> WorkflowResult:
        """Resume a stored run after its last finished node, with its original inputs.

        A finished run returns its result again. `run_id` may be a prefix of an id, or `last`. Raises
        `ConfigError` if there is no such run, and `ChangedRunError` if it belongs to another workflow.
        """
        stored = await Workflows(self._store).get(run_id)
        if stored is None:
            raise ConfigError(f"There is no workflow {run_id!r}; `redraft runs` lists runs and workflows.")
        return await self.run(stored.record.inputs, run_id=stored.record.run_id, on_event=on_event)

    @keyword_hints()
    def run_sync(
        self,
        state: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        on_event: Callable[[WorkflowEvent], None] | None = None,
        wait: bool = False,
    ) -> WorkflowResult:
        """Like `run`, for code that is not async; also works inside a running event loop."""
        return run_sync(self.run(state, run_id=run_id, on_event=on_event, wait=wait))

    @keyword_hints()
    def stream(self, state: Mapping[str, Any] | None = None, *, run_id: str | None = None) -> WorkflowStream:
        """Run the workflow as an async iterator of its events, with the events and tokens of its loops."""
        return WorkflowStream(lambda listen: self._run(state, run_id, listen, listen))


def _initial(state: Mapping[str, Any] | None) -> dict[str, Any]:
    if state is not None and not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        got = short_repr(state)
        raise ConfigError(
            f"The initial state of a workflow must be an object, such as {{'topic': 'tea'}}; got {got}."
        )
    return dict(state or {})


def _inner_workflow(
    path: Path, name: str, above: tuple[Path, ...], options: WorkflowOptions
) -> Workflow | WorkflowError:
    """Read the file of a node; returns the error if the file can't be read or its form is invalid."""
    if Path(os.path.realpath(path)) in above:  # `resolve` raises for links in a circle
        return WorkflowError(f"{name!r} runs this file, so the workflow would never end")
    try:
        inner = cast("WorkflowOptions", {**options, "strict": False})
        return Workflow(WorkflowFile.read(path), above=above, **inner)
    except WorkflowError as error:
        return error


class WorkflowStream(EventStream["WorkflowEvent | TokenEvent", "WorkflowResult"]):
    """A run of a workflow as an async iterator of its events; the last one is `WorkflowFinished`.

    The text of a `reflection.loop` arrives as `TokenEvent`s, as from `Agent.stream`. The run starts with the
    iteration, or on entering `async with`. Leaving either early cancels it. The iteration raises the errors
    of the run.
    """

    def _on_event(self, event: WorkflowEvent | TokenEvent) -> None:
        if isinstance(event, WorkflowFinished):
            self._result = event.result
        super()._on_event(event)


@keyword_hints()
async def run_action(
    name: str,
    *,
    with_: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
    actions: Mapping[str, Callable[..., Any]] | None = None,
    models: Mapping[str, ModelChoice] | None = None,
    keep: bool | Store = True,
) -> Any:
    """Run a single action, such as `reflection.loop`, and return its documented value.

    Raises the errors of the action, and `WorkflowError` for wrong parameters before anything is spent.
    """
    document = {"name": name, "nodes": [{"name": name, "uses": name, "with": dict(with_), "output": "value"}]}
    source = WorkflowFile(json.dumps(document), name)
    workflow = Workflow(source, actions=actions, models=models, keep=keep)
    return (await workflow.run(state)).state["value"]
