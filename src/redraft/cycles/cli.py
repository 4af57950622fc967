"""`redraft cycle`: run agents, inspect their cycles, and give them feedback."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict, deque
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft._calls import functions_in
from redraft._texts import counted, shortened
from redraft.cycles.agent import CycleAgent
from redraft.cycles.agents import (
    Agents,
    agent_document,
    change_document,
    changed_fields,
    cycle_document,
    details_of,
    duration_text,
    memory_document,
    metrics_document,
    parse_changes,
    result_document,
    spent_text,
    title_field,
    trace_document,
    undelivered_document,
    value_text,
)
from redraft.cycles.cycle import CycleFinished, CycleStarted, CycleWaiting, SubstageFinished
from redraft.cycles.spec import AgentFile, parse_agent_file
from redraft.cycles.storage import storage_of
from redraft.errors import ConfigError
from redraft.redact.redactor import redactor_of_environment
from redraft.stores.location import project_store, required_project_store
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, Warnings, deliver, emit_json
from redraft.terminal.exits import ExitCode
from redraft.terminal.tables import NARROW, PlainTable
from redraft.text.characters import visible
from redraft.types import render_usd
from redraft.web.people import people_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from rich.console import RenderableType

    from redraft.cycles.agents import CycleTrace
    from redraft.cycles.cycle import CycleEvent, CycleResult
    from redraft.cycles.mail import Verdict
    from redraft.cycles.memory import Item
    from redraft.cycles.records import CycleMetrics
    from redraft.events import Listener

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE", help="The agents, a YAML file each.", show_default=False),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="AGENT", help="The agent's name, as listed by `cycle status`.", show_default=False
    ),
]
Latest = Annotated[int, typer.Option("-n", metavar="N", min=1, help="Show only the newest N cycles.")]

cycle = command_group(help="Run agents in cycles. Each cycle senses, reasons, acts and reflects.")


@cycle.command()
@handles_errors
async def run(
    files: Files,
    cycles: Annotated[
        int | None,
        typer.Option("--cycles", metavar="N", min=1, help="Run N cycles of each agent in a row, then end."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Receive webhooks here, at /hooks/AGENT/TOPIC, and answer supervisors, at /health.",
        ),
    ] = None,
    functions: Annotated[
        Path | None,
        typer.Option(
            "--functions",
            metavar="PATH.py",
            help="The functions that FILE names. Default: functions.py in the folder of FILE, if it exists.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only check FILE. Report its problems, or what running it would use."),
    ] = False,
    model: options.Model = None,
    events: options.Events = None,
    as_json: options.Json = False,
) -> None:
    """Run agents. Each runs on its triggers until interrupted, or once if they are manual.

    Their memory is stored in the project, or in the long-term storage of the settings. A killed cycle
    resumes where it stopped. Exit code 1 means that a substage failed in the last cycle of an agent. Failures
    of an action or a rule are shown, and do not change it.
    """
    from redraft.cycles.host import AgentHost
    from redraft.loop.cli import listening
    from redraft.terminal.check_report import deliver_check, problems_as_json

    if check:
        if as_json and len(files) > 1:
            raise ConfigError(f"--check --json takes one FILE, got {len(files)}.")
        for file in files:
            with problems_as_json(file) if as_json else nullcontext():
                agent = _load_agent(file, functions, model, lambda _: None)
            deliver_check(file, agent.requirements(), as_json=as_json)
        return
    console = CalmConsole(stderr=True)
    progress = CycleProgress(console, is_named=len(files) > 1)
    with listening(progress.on_event, events) as listener, Warnings(console):
        agents = [_load_agent(file, functions, model, listener) for file in files]
        host = AgentHost(agents)
        if host.hooks and listen is None and cycles is None:
            raise ConfigError("A webhook trigger needs an address to listen on: --listen HOST:PORT.")
        try:
            await host.run(
                cycles,
                immediately=cycles is not None,
                listen=listen,
                on_listening=lambda url: console.show(Text(f"listening at {url}", QUIET)),
            )
        finally:
            if (storage := storage_of("default")) is not None:
                await storage.aclose()
    if as_json:
        documents = [progress.document(agent.name) for agent in agents]
        emit_json(documents[0] if len(documents) == 1 else {"agents": documents})
    else:
        for agent in agents:
            console.say(progress.ending(agent.name))
    raise typer.Exit(ExitCode.MET if progress.went_well else ExitCode.NOT_MET)


@cycle.command()
@handles_errors
async def status(
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Default: all agents.")] = None,
    count: Latest = 10,
    as_json: options.Json = False,
) -> None:
    """List the agents. Shows whether each is running, how its last cycle went, and what it has spent.

    With AGENT, also shows its newest cycles, and what it could not deliver yet.
    """
    if agent is None:
        documents: list[dict[str, Any]] = []
        async with open_agents() as agents:
            for handle in await agents.handles():
                async with handle:
                    documents.append(agent_document(await handle.summary(), await handle.spent()))
        view = agent_table(documents) if documents else no_agents()
        deliver(view, {"agents": documents}, as_json=as_json)
        return
    async with open_agents() as agents, await agents.get(agent) as handle:
        summary, spent = await handle.summary(), await handle.spent()
        latest, undelivered = await handle.cycles(limit=count), await handle.undelivered()
    document = {
        **agent_document(summary, spent),
        "cycles": [cycle_document(record, summary.feedback) for record in latest],
        "undelivered": [undelivered_document(entry) for entry in undelivered],
    }
    tables = (agent_table([document]), cycle_table(document["cycles"]))
    deliver(Group(*tables, *undelivered_lines(document["undelivered"])), document, as_json=as_json)


@cycle.command()
@handles_errors
async def memory(
    agent: Name,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option("--diff", metavar="N M", help="Show what changed between the ends of cycles N and M."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", min=0, help="Show the memory as it was after cycle N.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show what an agent remembers. Prints the memory now, after an earlier cycle, or as a diff of two."""
    async with open_agents() as agents, await agents.get(agent) as handle:
        if diff is not None:
            changes = [change_document(change) for change in await handle.diff(*diff)]
            document = {"agent": agent, "from": diff[0], "to": diff[1], "changes": changes}
            deliver(changes_view(document), document, as_json=as_json)
            return
        stored = await (handle.memory() if at is None else handle.memory_at(at))
    document = {"agent": agent, **memory_document(stored)}
    deliver(memory_view(document), document, as_json=as_json)


@cycle.command()
@handles_errors
async def metrics(agent: Name, count: Latest = 20, as_json: options.Json = False) -> None:
    """Show an agent's metrics. Lists time, tokens, cost, anomalies, alerts and failures, cycle by cycle."""
    async with open_agents() as agents, await agents.get(agent) as handle:
        latest = await handle.cycles(limit=count)
    cycles = [metrics_document(record) for record in latest]
    deliver(metrics_table(cycles), {"agent": agent, "cycles": cycles}, as_json=as_json)


@cycle.command()
@handles_errors
async def trace(
    agent: Name,
    number: Annotated[
        int | None, typer.Option("--cycle", metavar="N", min=1, help="The cycle. Default: the newest.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show what an agent asked its models. Prints the prompts and replies of a cycle, in order.

    The prompts and replies of the newest 100 cycles are stored, without secrets.
    """
    async with open_agents() as agents, await agents.get(agent) as handle:
        if number is None:
            newest = await handle.cycles(limit=1)
            number = newest[0].number if newest else 1
        await handle.cycle(number)  # raises if it does not exist
        calls = await handle.trace(number)
    deliver(trace_view(calls), {"agent": agent, **trace_document(calls)}, as_json=as_json)


@cycle.command()
@handles_errors
async def feedback(
    agent: Name,
    reject: Annotated[bool, typer.Option("--reject", help="Say that the agent did wrong.")] = False,
    modify: Annotated[
        str | None,
        typer.Option(
            "--modify",
            metavar="JSON",
            help="Say which parameters would have been right, such as '{\"level\": 2}'.",
        ),
    ] = None,
    message: Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="The reason.")] = "",
    number: Annotated[
        int | None,
        typer.Option(
            "--cycle",
            metavar="N",
            help="The cycle the feedback is about. Default: the agent in general.",
        ),
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="NAME", help="Apply the feedback to this action only.")
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="NAME", help="Who is giving the feedback. REDRAFT_TOKEN proves it.")
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Give an agent feedback, from which it learns. Without --reject or --modify, it did well.

    A plan that waits for a person is decided on with `redraft approve`.
    """
    if reject and modify is not None:
        raise ConfigError("Expected --reject or --modify, not both.")
    if not (reject or modify is not None or message.strip()):
        raise ConfigError("Expected what the agent is to learn: -m TEXT, --reject or --modify.")
    verdict: Verdict = "reject" if reject else "approve" if modify is None else "modify"
    changes = None if modify is None else parse_changes(modify, "--modify")
    async with open_agents() as agents, await agents.get(agent) as handle:
        async with people_of(project_store()) as people:
            person = await people.who(by, os.environ.get("REDRAFT_TOKEN", ""))
        if await handle.questions() and number is None:
            raise ConfigError(
                f"A plan of {agent!r} is waiting for a decision: redraft approve {shlex.quote(agent)}. For "
                "feedback on an earlier cycle, add --cycle N."
            )
        sent = await handle.send_feedback(
            verdict, message, cycle=number, action=action, changes=changes, by=person
        )
    if as_json:
        emit_json({"agent": agent, "feedback": redactor_of_environment().redact_object(sent)})
    else:
        about = "" if sent.cycle is None else f" on cycle {sent.cycle}"
        CalmConsole().say(f"Sent to {agent}{about}: {sent.verdict}.")


@cycle.command()
@handles_errors
async def prune(
    agent: Name,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=1, help="Keep only the newest N cycles.")
    ] = 1_000,
    as_json: options.Json = False,
) -> None:
    """Delete the records of older cycles, and leftover mail. The memory is not affected."""
    async with open_agents() as agents, await agents.get(agent) as handle:
        counts = await handle.prune(keep)
    if as_json:
        emit_json({"agent": agent, "deleted": counts})
    else:
        deleted = f"{counted(counts['cycles'], 'cycle')}, {counted(counts['mail'], 'message')}"
        CalmConsole().say(f"Deleted from {agent}: {deleted}.")


@asynccontextmanager
async def open_agents() -> AsyncGenerator[Agents]:
    """Open the agents of the project and of the long-term storage; close the stores at the end."""
    storage = storage_of("default")
    if storage is None:
        required_project_store("agents")
    try:
        yield Agents()
    finally:
        if storage is not None:
            await storage.aclose()


def _load_agent(file: str, functions: Path | None, model: str | None, listener: Listener) -> CycleAgent:
    """Load and check an agent; `model` is the default model of its substages."""
    source = AgentFile.read(file)
    document = source.document()
    if "nodes" in document and "stages" not in document:
        raise source.error(("nodes",), f"this is a workflow; run it with: redraft run {file}")
    spec = parse_agent_file(source)
    if model is not None:
        spec = spec.model_copy(update={"model": model})
    storage: Literal["project"] | None = None if storage_of("default") is not None else "project"
    on_event = cast("Callable[[CycleEvent], None]", listener)  # it accepts events of any class
    functions_by_name = load_functions(file, functions)
    return CycleAgent(spec, functions=functions_by_name, storage=storage, on_event=on_event, source=source)


DEFAULT_FUNCTIONS = "functions.py"


def load_functions(file: str, path: Path | None) -> dict[str, Callable[..., Any]]:
    """The public functions of a Python file: `path`, else `functions.py` in the folder of the agent file.

    Empty without a `functions.py`. Raises `ConfigError`, with the reason, if the file can't be loaded.
    """
    default = Path(file).parent / DEFAULT_FUNCTIONS
    if path is None and not default.is_file():
        return {}
    return functions_in(path or default)


MAX_RESULTS = 100
"""The number of the newest cycles in the output of --json: an agent may run for months."""


class CycleProgress:
    """Shows the progress of agents: a line for each cycle, and for each wait for a person.

    With `is_named`, for several agents, each line begins with the name of its agent.
    """

    def __init__(self, console: CalmConsole, *, is_named: bool = False) -> None:
        self._console = console
        self._is_named = is_named
        self._results: defaultdict[str, deque[CycleResult]] = defaultdict(lambda: deque(maxlen=MAX_RESULTS))
        self._counts: Counter[str] = Counter()
        self._failing: Counter[str] = Counter()
        """The number of cycles with failures, by agent."""

    @property
    def went_well(self) -> bool:
        """Whether the last cycle of each agent succeeded; true if no cycle ran."""
        return all(results[-1].success for results in self._results.values() if results)

    def on_event(self, event: object) -> None:
        """Show an event of an agent."""
        match event:
            case CycleStarted(resumed=True):
                self._show(event.agent, Text(f"cycle {event.number} resumes where it stopped", QUIET))
            case CycleWaiting():
                self._waits(event)
            case SubstageFinished(skipped=True):
                skipped = f"  {event.stage}/{visible(event.substage)} skipped"
                self._show(event.agent, Text(skipped, QUIET))
            case CycleFinished():
                self._counts[event.agent] += 1
                self._failing[event.agent] += bool(event.result.metrics.failures)
                self._results[event.agent].append(event.result)
                self._ended(event.agent, event.result)
            case _:
                pass

    def ending(self, agent: str) -> str:
        """The closing line of an agent: the number of its cycles, and the command to see more."""
        cycles = counted(self._counts[agent], "cycle")
        failures = f", {self._failing[agent]} with failures" if self._failing[agent] else ""
        return f"{cycles} of {visible(agent)}{failures}; redraft cycle memory {shlex.quote(visible(agent))}"

    def document(self, agent: str) -> dict[str, Any]:
        """The newest cycles of an agent, and the number of all its cycles, as JSON data."""
        cycles = [result_document(result) for result in self._results[agent]]
        return {"agent": agent, "count": self._counts[agent], "cycles": cycles}

    def _show(self, agent: str, line: Text) -> None:
        named = Text.assemble((f"{visible(agent)}: ", QUIET), line) if self._is_named else line
        self._console.show(named, soft_wrap=True)

    def _waits(self, event: CycleWaiting) -> None:
        within = "" if event.within is None else f" within {event.within:g} s"
        command = f"redraft approve {shlex.quote(event.agent)}"
        text = f"cycle {event.number} is waiting for a decision{within}: {command}"
        page = f", or at {visible(event.url)}" if event.url else ""
        self._show(event.agent, Text(f"{visible(text)}{page}", "yellow"))

    def _ended(self, agent: str, result: CycleResult) -> None:
        derived, stages = result.state["derivedData"], result.stages or {}
        parts = [f"{stage} {duration_text(elapsed)}" for stage, elapsed in stages.items()]
        line = Text.assemble(f"cycle {result.number:<4} ", (f"{result.status:<9}", STATES[result.status]))
        if failures := result.metrics.failures:
            line.append(f" {counted(len(failures), 'failure')},", BAD)
        changes = len(result.changes)
        line.append(f" actions: {_actions_text(derived)}, memory: {changes} change{'s'[: changes != 1]}")
        line.append(f"  {', '.join(parts)}", QUIET)
        self._show(agent, line)
        for error in result.state["environmentalData"]["errors"]:
            if error["error"] not in result.error:  # the error of a required source is logged
                self._show(agent, Text(visible(f"  sense/{error['source']}: {error['error']}"), BAD))
        for failure in result.metrics.failures:
            if not failure.startswith(result.error or "\0"):  # logged, and therefore shown already
                self._show(agent, Text(f"  {visible(failure)}", BAD))


STATES = {
    "finished": GOOD,
    "failed": BAD,
    "abandoned": BAD,
    "killed": BAD,
    "damaged": BAD,
    "waiting": "yellow",
    "running": "cyan",
    "new": QUIET,
}
NONE = "-"


def agent_table(agents: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Render the documents of agents as a table, each with the usage of its stored cycles."""

    def row(agent: Mapping[str, Any]) -> dict[str, str | Text]:
        last = agent["last"]
        return {
            "agent": agent["name"],
            "status": _status(agent, last and last["metrics"]),
            "cycle": NONE if last is None else str(last["number"]),
            "began": NONE if last is None else _when(last),
            "feedback": f"{count} new" if (count := agent["pending_feedback"]) else NONE,
            "spent": spent_text(agent["spent"]) or NONE,
            "triggers": ", ".join(agent["triggers"]) or NONE,
        }

    return PlainTable(
        map(row, agents),
        right=("cycle",),
        wrap=("agent",),
        drop=("triggers", "began", "spent"),
        fill="agent",
        shortest=NARROW,
    )


def cycle_table(cycles: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Render the documents of cycles as a table, the newest first."""

    def row(cycle: Mapping[str, Any]) -> dict[str, str | Text]:
        return {
            "cycle": str(cycle["number"]),
            "status": _status(cycle, cycle["metrics"]),
            "began": _when(cycle),
            "by": cycle["trigger"],
            "actions": _actions_text(cycle["derived_data"]),
            "memory": f"{len(cycle['changes'])} changed" if cycle["changes"] else NONE,
            "error": cycle["error"] or next(iter(cycle["metrics"].failures), NONE),
        }

    return PlainTable(map(row, cycles), right=("cycle",), drop=("memory", "by"), fill="error")


def undelivered_lines(undelivered: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Render the notices and messages that are not delivered yet, the newest last."""
    lines = [Text(f"\n{len(undelivered)} not delivered yet", "bold")] if undelivered else []
    for entry in undelivered[-MAX_ITEMS:]:
        error = f": {entry['error']}" if entry["error"] else ""
        lines.append(Text(visible(f"  {entry['event']}: {entry['title']}")))
        lines.append(Text(visible(f"      {counted(entry['attempts'], 'attempt')}{error}"), QUIET))
    return lines


def metrics_table(cycles: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Render the metrics of cycles as a table, the newest first; untracked metrics are dashes."""

    def row(cycle: Mapping[str, Any]) -> dict[str, str | Text]:
        values: CycleMetrics = cycle["metrics"]
        return {
            "cycle": str(cycle["number"]),
            "status": _status(cycle),
            "time": NONE if values.duration_ms is None else duration_text(values.duration_ms),
            "tokens": NONE if values.tokens is None else f"{values.tokens:,}",
            "cost": NONE if values.cost_usd is None else render_usd(values.cost_usd),
            "anomalies": NONE if values.anomalies is None else str(values.anomalies),
            "alerts": NONE if values.alerts is None else str(values.alerts),
            "failures": Text(str(len(values.failures)), BAD if values.failures else QUIET),
            "skipped": Text(str(len(values.skipped)), "" if values.skipped else QUIET),
        }

    numbers = ("cycle", "time", "tokens", "cost", "anomalies", "alerts", "failures", "skipped")
    return PlainTable(map(row, cycles), right=numbers, drop=("cost", "skipped"))


def trace_view(trace: CycleTrace) -> RenderableType:
    """Render the prompts and replies of a cycle."""
    from redraft.loop.cli import exchange_lines

    parts: list[RenderableType] = []
    for call in trace.calls:
        parts += exchange_lines(call.step, call.exchange)
    if trace.left_out:
        parts += ["", Text(f"{counted(trace.left_out, 'call')} more, too long to be kept.", QUIET)]
    if not parts:
        nothing = f"Cycle {trace.number} called no model, or its prompts and replies are not stored: a cycle"
        parts = [Text(f"{nothing} stores them at its end, and the newest 100 keep them.", QUIET)]
    return Group(*parts)


def no_agents() -> Text:
    """A hint for a project without agents."""
    return Text("No agent has run here yet. Run one with: redraft cycle run FILE")


def _actions_text(derived: Mapping[str, Any]) -> str:
    """The number of successful actions of a cycle, as text."""
    actions: list[Mapping[str, Any]] = derived.get("execution", {}).get("actions", [])
    done = sum(action["status"] == "succeeded" for action in actions)
    if not actions:
        return NONE
    return f"{done} done" if done == len(actions) else f"{done} of {len(actions)} done"


def _status(document: Mapping[str, Any], metrics: CycleMetrics | None = None) -> Text:
    """The status of an agent or a cycle, with the number of failures in a cycle that finished."""
    status = Text(document["status"], STATES[document["status"]])
    if metrics is not None and metrics.failures and document["status"] == "finished":
        status.append(f", {counted(len(metrics.failures), 'failure')}", BAD)
    return status


def _when(cycle: Mapping[str, Any]) -> str:
    return f"{cycle['started_at'].astimezone():%m-%d %H:%M:%S}"


MAX_ITEMS = 20
"""The number of the newest items of a key that are shown; --json has all items."""
MAX_TEXT, MAX_VALUE = 240, 60
"""The maximum length of the title or the details of an item, and of each detail, in characters."""


def memory_view(document: Mapping[str, Any]) -> RenderableType:
    """Render a memory: each key with its newest items."""
    parts: list[RenderableType] = [Text(f"After cycle {document['cycle']}", QUIET)]
    for key, items in document["memory"].items():
        parts.append(Text(f"\n{key} ({len(items):,})", "bold"))
        if len(items) > MAX_ITEMS:
            parts.append(Text(f"  ... {len(items) - MAX_ITEMS:,} older; --json shows all", QUIET))
        for item in items[-MAX_ITEMS:]:
            timestamp = f"  {str(item.get('timestamp', ''))[:19].replace('T', ' ')}  "
            parts.append(_item(Text(timestamp, QUIET), item))
    return Group(*parts)


def changes_view(document: Mapping[str, Any]) -> RenderableType:
    """Render what changed between the ends of two cycles."""
    if not document["changes"]:
        return Text(f"Nothing changed from cycle {document['from']} to {document['to']}.")
    parts: list[RenderableType] = []
    for key in dict.fromkeys(change["key"] for change in document["changes"]):
        parts.append(Text(key, "bold"))
        parts += [_change(change) for change in document["changes"] if change["key"] == key]
    return Group(*parts)


def _change(change: Mapping[str, Any]) -> RenderableType:
    before, after = change["before"], change["after"]
    if before is None:
        return _item(Text("+ ", GOOD), after or {})
    if after is None:
        return _item(Text("- ", BAD), before)
    differences = ", ".join(
        f"{name} {value_text(before.get(name), MAX_VALUE)} -> {value_text(after.get(name), MAX_VALUE)}"
        for name in changed_fields(before, after)
    )
    return Group(Text.assemble(("~ ", "yellow"), _title(after)), _indented(differences))


def _item(mark: Text, item: Item) -> RenderableType:
    """Render an item: its title, and below it everything else."""
    details = ", ".join(f"{name} {value_text(value, MAX_VALUE)}" for name, value in details_of(item).items())
    line = Text.assemble(mark, _title(item))
    return Group(line, _indented(shortened(details, MAX_TEXT))) if details else line


def _indented(text: str) -> RenderableType:
    return Padding(Text(visible(text), QUIET), (0, 0, 0, 6))


def _title(item: Item) -> str:
    return visible(value_text(item.get(title_field(item), ""), MAX_TEXT))
