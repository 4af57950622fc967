"""Workflow: a YAML file, checked and run."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from redraft._codec import to_json
from redraft._hints import keyword_hints
from redraft._sync import run_sync
from redraft._validation import nearest
from redraft.approvals import Approvals
from redraft.errors import ConfigError, UnfinishedError, WorkflowError
from redraft.loop.event_log import emitter
from redraft.loop.journal import check_keep, journal_in, journalled_step
from redraft.loop.record import Process
from redraft.loop.stream import EventStream
from redraft.types import PlainTask
from redraft.workflow.actions import BUILT_IN, known_actions
from redraft.workflow.approval import WaitingForAnswer
from redraft.workflow.check import (
    check_file,
    check_models,
    missing_outputs,
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
    from collections.abc import Callable, Container, Mapping, Sequence
    from typing import Unpack

    from redraft.events import TokenEvent
    from redraft.protocols import ModelChoice
    from redraft.stores.base import Store
    from redraft.text.yaml import KeyPath
    from redraft.workflow.approval import Approver
    from redraft.workflow.check import Requirements
    from redraft.workflow.run import WorkflowEvent, WorkflowResult


class WorkflowOptions(TypedDict, total=False):
    """The options of a `Workflow`, which hold for the files that it runs as nodes, too."""

    actions: Mapping[str, Callable[..., Any]] | None
    """Functions of your own, called as `fn(state=..., **params)`."""
    models: Mapping[str, ModelChoice] | None
    """What names of models in the file stand for: other names, or models."""
    model: ModelChoice | None
    """A model in place of every model that the file names."""
    keep: bool | Store
    """Keep runs in the project's store (True, the default), in this one, or nowhere (False)."""
    allow_unsandboxed: bool
    """If no jail is available, run `sandbox: process` code with limits only."""
    approver: Approver | None
    """Answers what `human.approve` asks, or returns None to leave it to a person."""
    tool_results: Mapping[str, Any] | None
    """What tools return, by name, in a test: no MCP server is started."""
    strict: bool
    """Raise for mistakes at once (True, the default), or leave them to `check`, `check_all` and `run`."""


class Workflow:
    """A workflow from a YAML file: checked when it is read, run as often as you like, even at the same time.

    Make one with `from_file` or `from_text`; both raise `WorkflowError`, with file, line, node and key, for
    all mistakes that can be found before anything is spent (`error.problems`): first those of form, which are
    keys and values that the format does not have, then those of meaning. With `strict=False` they raise it
    only for mistakes of form: `problems` has the others.

    The `options` are those of `WorkflowOptions`; `above` are the files that run this one as a node.
    """

    def __init__(
        self, source: WorkflowFile, *, above: tuple[Path, ...] = (), **options: Unpack[WorkflowOptions]
    ) -> None:
        if unknown := options.keys() - WorkflowOptions.__annotations__.keys():  # Python checks no typed dict
            name = min(unknown)
            raise TypeError(
                f"Workflow has no option {name!r}; {nearest(name, WorkflowOptions.__annotations__)}"
            )
        keep, folder = options.get("keep", True), Path(source.file).parent
        needless = {"strict", *(["keep"] if keep is True else [])}  # to run it once more
        self._given = tuple(name for name, value in options.items() if value and name not in needless)
        check_keep(keep)
        self.source = source
        own = known_actions(options.get("actions") or {})
        self.spec, notes = read(source, own)
        files = (*above, Path(source.file).resolve())
        names = [node.file for node in self.spec.nodes if node.file is not None]
        self._files = {name: _inner_workflow(folder / name, name, files, options) for name in names}
        self._resources = Resources(
            built_in=BUILT_IN,
            actions=own,
            files=self._files,
            models={**self.spec.models, **(options.get("models") or {})},
            only_model=options.get("model"),
            model=self.spec.model,
            limits=self.spec.limits,
            keep=keep,
            folder=str(folder),
            allow_unsandboxed=options.get("allow_unsandboxed", False),
            name=self.spec.name,
            tools=Tools(self.spec.mcp, folder, results=options.get("tool_results")),
            hosts=self.spec.hosts,
            approver=options.get("approver"),
        )
        self._uses, self._problems = check_file(self.spec, notes, source, self._resources)
        if options.get("strict", True):
            self._raise_problems()

    @property
    def keep(self) -> bool | Store:
        """Where runs are stored: in the project's store (True), in a given one, or nowhere (False)."""
        return self._resources.keep

    @classmethod
    def from_file(cls, path: str | Path, **options: Unpack[WorkflowOptions]) -> Workflow:
        """Read and check a workflow file."""
        return cls(WorkflowFile.read(path), **options)

    @classmethod
    def from_text(cls, text: str, **options: Unpack[WorkflowOptions]) -> Workflow:
        """Read and check the text of a workflow file; other files are found from the current folder."""
        return cls(WorkflowFile(text), **options)

    @property
    def problems(self) -> tuple[WorkflowError, ...]:
        """What is wrong with the file and those that it runs, apart from code that a sandbox refuses."""
        return tuple(problem for one in (self, *self.files) for problem in one._problems)  # noqa: SLF001

    @property
    def files(self) -> tuple[Workflow, ...]:
        """The workflows that its nodes run, and those that these run."""
        inner = [one for one in self._files.values() if isinstance(one, Workflow)]
        return tuple(file for one in inner for file in (one, *one.files))

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions that the file uses."""
        return tuple(self._uses.actions)

    @property
    def graph(self) -> WorkflowGraph:
        """Its nodes and the edges between them; `graph.mermaid()` draws it."""
        return WorkflowGraph.of(self.spec)

    def check(self, state: Mapping[str, Any] | None = None, *, priced: bool = False) -> Requirements:
        """Check that the workflow can run from a state, spending nothing; return what it would use.

        Raises `WorkflowError` for values that are read but never provided, for models that can't be used
        here, and for the `problems` of a file that was not read strictly. With a budget in US dollars, of the
        file or around it (`priced`), also for models without a known price.
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
        inputs, wrong = read_inputs(self.spec, self._resources, dict(state or {}))
        # The parameters of a node were checked with its file; what templates render to is known later.
        problems = [] if inside else [self.source.error(path, what) for path, what in wrong]
        given = {*inputs, *(() if inside else [str(path[1]) for path, _ in wrong if path[1:]])}
        own = self._resources.actions
        problems += missing_values(self.spec, self.source, given, own)
        problems += missing_outputs(self.spec, self.source, given, own)
        resources = replace(self._resources, model=self.spec.model or default_model)
        priced = priced or self.spec.budget.usd is not None
        uses, unusable = check_models(self._uses, self.spec, self.source, resources, inputs, priced=priced)
        problems += unusable
        for node in self.spec.nodes:
            inner = None if node.file is None else self._files[node.file]
            if isinstance(inner, Workflow):
                default = inputs.get(MODEL) or resources.model
                more_uses, more = inner._check(  # noqa: SLF001 (the same class)
                    node.with_, inside=True, default_model=default, priced=priced
                )
                uses, problems = uses.including(more_uses), [*problems, *more]
        return uses, problems

    async def check_all(self, state: Mapping[str, Any] | None = None) -> Requirements:
        """Check as `check` does, and parse all code in its sandbox; return what the workflow would use.

        Raises `WorkflowError` for everything that could not work here.
        """
        uses, problems = self._check(state)
        unsandboxed = self._resources.allow_unsandboxed
        for one in (self, *self.files):
            problems += await refused_code(one._uses, one.source, allow_unsandboxed=unsandboxed)  # noqa: SLF001
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
        """Run the workflow; return its final state and what it cost.

        `state` is the initial state: plain JSON data, which templates also find under `variables`. With a
        `run_id`, the same call continues after the last finished node. A run that a person has to answer
        returns with the status `waiting`; with `wait`, it goes on here as soon as there is an answer. Raises
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
        inputs = plain_data(dict(state or {}), "The initial state of the workflow")
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
            result = await self._run_and_store(run, inputs)
        if outer is None:
            emit(WorkflowFinished(result.run_id, result))
        return result

    async def _run_and_store(self, run: WorkflowRun, inputs: dict[str, Any]) -> WorkflowResult:
        """Run the nodes; if the step has a journal, store the run, or resume it."""
        journal = run.journal
        if journal is None:
            return self._with_outputs(await run.run(), run.scope)
        record = WorkflowRecord(
            journal.run_id,
            self.spec.name,
            self.source.file,
            inputs,
            datetime.now(UTC),
            parent=journal.parent,
            graph=self.graph,
            process=Process.this(),
            options=self._given,
        )
        if (finished := await journal.begin(record)) is not None:
            return finished.result()
        if not journal.is_closed:  # closed if the store failed: then no run can be resumed
            run.run_id = journal.run_id

        async def work() -> WorkflowResult:
            result = await run.run()
            record.state, record.nodes = result.state, result.nodes  # kept, even if an output is wrong
            record.end(self._with_outputs(result, run.scope))
            return result

        return await journal.follow(record, work())

    def _with_outputs(self, result: WorkflowResult, scope: Scope) -> WorkflowResult:
        if result.status == "finished":
            result.outputs = read_outputs(self.spec, self.source, self._resources, scope)
        return result

    def mistakes_in(self, params: Mapping[str, Any], unknown: Container[str], /) -> list[tuple[KeyPath, str]]:
        """Return what is wrong with a node's parameters as inputs; those in `unknown` are known later."""
        return read_inputs(self.spec, self._resources, params, unknown, "add it to 'with'")[1]

    async def run_inside(
        self, params: Mapping[str, Any], scope: Scope, resources: Resources, /
    ) -> ActionResult:
        """Run as a node of another workflow; return the outputs, or else what the nodes put into the state.

        It is a run of its own within that of the other workflow, and resumed with it.
        """
        default = scope.state.get(MODEL) or resources.model
        on_event = cast("Callable[[WorkflowEvent], None] | None", resources.on_event)
        result = await self._run(params, None, on_event, resources.on_token, default, resources)
        if result.waiting:
            raise WaitingForAnswer(*result.waiting)
        if result.stop is not None:
            raise UnfinishedError(result.stop.detail, reason=result.stop.reason, usage=result.usage)
        if self.spec.outputs:
            return ActionResult(result.outputs, result.usage)
        state = result.state.items()
        made = {key: value for key, value in state if key not in params or params[key] != value}
        return ActionResult(made, result.usage)

    @keyword_hints()
    async def resume(
        self, run_id: str, *, on_event: Callable[[WorkflowEvent], None] | None = None
    ) -> WorkflowResult:
        """Resume a stored run after its last finished node, with its original inputs.

        A finished run returns its result again. `run_id` may be a prefix of an id, or `last`. Raises
        `ConfigError` if there is no such run, and `ChangedRunError` if it is another workflow's.
        """
        kept = await Workflows(self._store).get(run_id)
        if kept is None:
            raise ConfigError(f"There is no workflow {run_id!r}; `redraft runs` lists runs and workflows.")
        return await self.run(kept.record.inputs, run_id=kept.record.run_id, on_event=on_event)

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
        """Return a run as an async iterator of its events, those of its loops, and what these write."""
        return WorkflowStream(lambda listen: self._run(state, run_id, listen, listen))


def _inner_workflow(
    path: Path, name: str, above: tuple[Path, ...], options: WorkflowOptions
) -> Workflow | WorkflowError:
    """Read the file of a node; return the error for one that can't be read, or whose form is wrong."""
    if path.resolve() in above:
        return WorkflowError(f"{name!r} runs this file, so the workflow would never end")
    try:
        inner = cast("WorkflowOptions", {**options, "strict": False})
        return Workflow(WorkflowFile.read(path), above=above, **inner)
    except WorkflowError as error:
        return error


class WorkflowStream(EventStream["WorkflowEvent | TokenEvent", "WorkflowResult"]):
    """A run of a workflow as an async iterator of its events; the last one is `WorkflowFinished`.

    What a `reflection.loop` writes comes as `TokenEvent`s, as from `Agent.stream`. The run starts with the
    iteration, or on entering `async with`. Leaving either early cancels it. The iteration raises what the run
    raises.
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
    """Run a single action, such as `reflection.loop`; return its documented value.

    Raises the errors of the action, and `WorkflowError` for wrong parameters before anything is spent.
    """
    document = {"name": name, "nodes": [{"name": name, "uses": name, "with": dict(with_), "output": "value"}]}
    source = WorkflowFile(json.dumps(document), name)
    workflow = Workflow(source, actions=actions, models=models, keep=keep)
    return (await workflow.run(state)).state["value"]
