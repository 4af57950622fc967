"""`redraft cycle`: run agents, read what they did, and talk to them."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections import deque
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, cast

import typer
from pydantic import BaseModel
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._texts import shortened
from redraft.cycles.agent import CycleAgent
from redraft.cycles.agents import AgentHandle, Agents
from redraft.cycles.cycle import CycleFinished, CycleStarted, CycleWaiting, SubstageFinished
from redraft.cycles.spec import ManualTrigger, parse_agent_file, read_agent_file, substages
from redraft.cycles.storage import storage_of
from redraft.errors import ConfigError
from redraft.models.names import resolved
from redraft.settings import load_settings
from redraft.stores.location import open_project_store, required_project_store
from redraft.terminal import options
from redraft.terminal.console import BAD, GAP, GOOD, QUIET, Warnings
from redraft.terminal.exits import ExitCode, surface
from redraft.text.characters import visible
from redraft.types import render_usd

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from rich.console import RenderableType

    from redraft.cycles.agents import AgentSummary
    from redraft.cycles.cycle import CycleEvent, CycleResult
    from redraft.cycles.mail import Feedback, Verdict
    from redraft.cycles.memory import Memory, MemoryChange
    from redraft.cycles.records import CycleRecord
    from redraft.events import Listener
    from redraft.terminal.console import CalmConsole

BESIDE = "functions.py"


def functions_for(file: str, given: Path | None) -> dict[str, Callable[..., Any]]:
    """Return the public functions of a Python file: `given`, else `functions.py` beside the agent's.

    None where there is no such file. Raises `ConfigError` for one that can't be loaded, with the reason.
    """
    path = given or Path(file).parent / BESIDE
    if given is None and not path.is_file():
        return {}
    found = spec_from_file_location(f"redraft_agent_{path.stem}", path)
    if found is None or found.loader is None:
        raise ConfigError(f"{str(path)!r} is no Python file; --functions takes PATH.py.")
    module = module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses look their module up there
    try:
        found.loader.exec_module(module)
    except Exception as error:  # what a file of the user's own raises is no defect of Redraft's
        raise ConfigError(f"{str(path)!r} can't be loaded: {type(error).__name__}: {error}") from error
    return {
        name: function
        for name, function in vars(module).items()
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__ == found.name
    }


SHOWN = 20
"""So many items of a key are shown, the latest; --json has all."""
LONGEST = 240
HEAD = ("description", "message", "action", "verdict")
"""What an item is about: the first of these that it has."""
NOT_SHOWN = ("id", "timestamp", "durationMs")


def memory_view(memory: Memory) -> RenderableType:
    """Render a memory: each key with its latest items."""
    parts: list[RenderableType] = [Text(f"After cycle {memory.cycle}", QUIET)]
    for key, items in memory.items.items():
        parts.append(Text(f"\n{key} ({len(items):,})", "bold"))
        if len(items) > SHOWN:
            parts.append(Text(f"  ... {len(items) - SHOWN:,} older: --json has all", QUIET))
        parts += [_item_lines(item) for item in items[-SHOWN:]]
    return Group(*parts)


def changes_view(changes: Sequence[MemoryChange], between: tuple[int, int]) -> RenderableType:
    """Render what changed between the ends of two cycles."""
    if not changes:
        return Text(f"Nothing changed from cycle {between[0]} to {between[1]}.")
    parts: list[RenderableType] = []
    for key in dict.fromkeys(change.key for change in changes):
        parts.append(Text(key, "bold"))
        parts += [_change_lines(change) for change in changes if change.key == key]
    return Group(*parts)


def _change_lines(change: MemoryChange) -> RenderableType:
    before, after = change.before, change.after
    if before is None:
        return _lines(Text("+ ", GOOD), after or {})
    if after is None:
        return _lines(Text("- ", BAD), before)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    moved = ", ".join(f"{name} {_short(before.get(name))} -> {_short(after.get(name))}" for name in names)
    return Group(Text.assemble(("~ ", "yellow"), _head(after)), _indented(moved))


def _item_lines(item: Mapping[str, Any]) -> RenderableType:
    return _lines(Text(f"  {str(item.get('timestamp', ''))[:19].replace('T', ' ')}  ", QUIET), item)


def _lines(mark: Text, item: Mapping[str, Any]) -> RenderableType:
    """Render an item: what it is about, and below it all else that it says."""
    head = _head(item)
    said = ", ".join(
        f"{name} {_short(value)}"
        for name, value in item.items()
        if name not in NOT_SHOWN and value not in ({}, [], None, "") and _short(value) != head
    )
    line = Text.assemble(mark, head)
    return Group(line, _indented(shortened(said, LONGEST))) if said else line


def _indented(said: str) -> RenderableType:
    return Padding(Text(visible(said), QUIET), (0, 0, 0, 6))


def _head(item: Mapping[str, Any]) -> str:
    found = next((item[name] for name in HEAD if item.get(name)), item.get("id", ""))
    return visible(shortened(str(found), LONGEST))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, 60)


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
LEAST_TEXT = 12
NONE = "-"
SECOND, MINUTE = 1_000, 60_000


def agent_rows(agents: Sequence[AgentSummary], width: int) -> Table:
    """Render agents as a table, a line each."""
    columns: dict[str, list[str | Text]] = {
        "agent": [visible(one.name) for one in agents],
        "status": [Text(one.status, STATES[one.status]) for one in agents],
        "cycle": [NONE if one.last is None else str(one.last.number) for one in agents],
        "began": [NONE if one.last is None else _when(one.last) for one in agents],
        "feedback": [f"{one.pending} new" if one.pending else NONE for one in agents],
        "triggers": [", ".join(one.card.triggers) or NONE for one in agents],
    }
    return _table(_fitted(columns, width, ("triggers", "began")), right=("cycle",))


def cycle_rows(cycles: Sequence[CycleRecord], width: int) -> Table:
    """Render cycles as a table, the newest first."""
    columns: dict[str, list[str | Text]] = {
        "cycle": [str(one.number) for one in cycles],
        "status": [Text(one.status, STATES[one.status]) for one in cycles],
        "began": [_when(one) for one in cycles],
        "by": [one.trigger for one in cycles],
        "actions": [actions_said(one.derived_data) for one in cycles],
        "memory": [f"{len(one.changes)} changed" if one.changes else NONE for one in cycles],
    }
    room = max(LEAST_TEXT, width - _taken(columns))
    columns["said"] = [shortened(visible(one.error or NONE), room) for one in cycles]
    return _table(_fitted(columns, width, ("memory", "by")), right=("cycle",))


def metrics_rows(cycles: Sequence[CycleRecord], width: int) -> Table:
    """Render the metrics of cycles as a table, the newest first; what a file does not track is a dash."""
    metrics = [one.metrics for one in cycles]
    columns: dict[str, list[str | Text]] = {
        "cycle": [str(one.number) for one in cycles],
        "status": [Text(one.status, STATES[one.status]) for one in cycles],
        "time": [NONE if one.duration_ms is None else time_said(one.duration_ms) for one in metrics],
        "tokens": [NONE if one.tokens is None else f"{one.tokens:,}" for one in metrics],
        "cost": [NONE if one.cost_usd is None else render_usd(one.cost_usd) for one in metrics],
        "anomalies": [NONE if one.anomalies is None else str(one.anomalies) for one in metrics],
        "alerts": [NONE if one.alerts is None else str(one.alerts) for one in metrics],
        "failures": [Text(str(len(one.failures)), BAD if one.failures else QUIET) for one in metrics],
        "skipped": [Text(str(len(one.skipped)), "" if one.skipped else QUIET) for one in metrics],
    }
    numbers = ("cycle", "time", "tokens", "cost", "anomalies", "alerts", "failures", "skipped")
    return _table(_fitted(columns, width, ("cost", "skipped")), right=numbers)


def no_agents() -> Text:
    """Say that there is nothing, and what would change that."""
    return Text("No agent has run here yet: redraft cycle run FILE")


def actions_said(derived: Mapping[str, Any]) -> str:
    """Say how many actions of a cycle were done, and how many were not."""
    actions: list[Mapping[str, Any]] = derived.get("execution", {}).get("actions", [])
    done = sum(one["status"] == "succeeded" for one in actions)
    if not actions:
        return NONE
    return f"{done} done" if done == len(actions) else f"{done} of {len(actions)} done"


def time_said(milliseconds: float) -> str:
    """Return a time as it is read at a glance."""
    if milliseconds < SECOND:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / SECOND:.1f} s" if milliseconds < MINUTE else f"{milliseconds / MINUTE:.1f} min"


def _when(cycle: CycleRecord) -> str:
    return f"{cycle.started_at.astimezone():%m-%d %H:%M:%S}"


def _fitted(
    columns: dict[str, list[str | Text]], width: int, dropped: Sequence[str]
) -> dict[str, list[str | Text]]:
    """Return the columns that have room; the ones to be dropped are named, the first first."""
    for name in dropped:
        if _taken(columns) > width:
            del columns[name]
    return columns


def _taken(columns: dict[str, list[str | Text]]) -> int:
    return sum(max(map(len, (name, *cells))) + GAP for name, cells in columns.items())


def _table(columns: dict[str, list[str | Text]], *, right: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in columns:
        table.add_column(name, no_wrap=True, justify="right" if name in right else "left")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


REMEMBERED = 100
"""So many cycles, the latest, are in the document of --json: an agent may run for months."""


class CycleProgress:
    """Tell how an agent is going: a line for each cycle, and what it waits for.

    A context manager around it, which shows the warnings that are logged meanwhile. `results` are the latest
    cycles, `count` is how many there were.
    """

    def __init__(self, console: CalmConsole) -> None:
        self.results: deque[CycleResult] = deque(maxlen=REMEMBERED)
        self.count = 0
        self._console = console
        self._warnings = Warnings(console)

    def __enter__(self) -> Self:
        self._warnings.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._warnings.__exit__(kind, error, trace)

    @property
    def went_well(self) -> bool:
        """Whether no substage of the last cycle failed; so it is where there was none."""
        return not self.results or self.results[-1].success

    def hear(self, event: object) -> None:
        """Hear of an event of the agent."""
        match event:
            case CycleStarted(resumed=True):
                self._console.show(Text(f"cycle {event.number} goes on where it stopped", QUIET))
            case CycleWaiting():
                self._waits(event)
            case SubstageFinished(skipped=True):
                self._console.show(Text(f"  {event.stage}/{visible(event.substage)} skipped", QUIET))
            case CycleFinished():
                self.count += 1
                self.results.append(event.result)
                self._ended(event.result)
            case _:
                pass

    def ending(self, agent: str) -> str:
        """Say in a line how it went, and where to look."""
        cycles = "1 cycle" if self.count == 1 else f"{self.count:,} cycles"
        return f"{cycles} of {visible(agent)}; redraft cycle memory {visible(agent)}"

    def _waits(self, event: CycleWaiting) -> None:
        within = "" if event.within is None else f" within {event.within:g} s"
        said = f"cycle {event.number} waits for a decision{within}: redraft cycle feedback {event.agent}"
        self._console.show(Text(f"{visible(said)} --approve, --reject or --modify", "yellow"), soft_wrap=True)

    def _ended(self, result: CycleResult) -> None:
        derived, stages = result.state["derivedData"], result.stages or {}
        parts = [f"{stage} {time_said(spent)}" for stage, spent in stages.items()]
        line = Text.assemble(f"cycle {result.number:<4} ", (f"{result.status:<9}", STATES[result.status]))
        changes = len(result.changes)
        line.append(f" actions: {actions_said(derived)}, memory: {changes} change{'s'[: changes != 1]}")
        line.append(f"  {', '.join(parts)}", QUIET)
        self._console.show(line, soft_wrap=True)
        for error in result.state["environmentalData"]["errors"]:
            if error["error"] not in result.error:  # of a source that is required, that is logged
                failed = f"  sense/{error['source']}: {error['error']}"
                self._console.show(Text(visible(failed), BAD), soft_wrap=True)
        for failure in result.metrics.failures:
            if not failure.startswith(result.error or "\0"):  # that one is logged, and so shown already
                self._console.show(Text(f"  {visible(failure)}", BAD), soft_wrap=True)


def ready_agent(file: str, functions: Path | None, model: str | None, listener: Listener) -> CycleAgent:
    """Return the agent of a file, checked; `model` is that of its substages that name none of their own."""
    source = read_agent_file(file)
    document = source.document()
    if "nodes" in document and "stages" not in document:
        raise source.error(("nodes",), f"this is a workflow; redraft run {file} runs it")
    spec = parse_agent_file(source)
    if model is not None:
        spec = spec.model_copy(update={"model": model})
    storage: Literal["project"] | None = None if storage_of("default") is not None else "project"
    hears = cast("Callable[[CycleEvent], None]", listener)  # whatever dataclass an event is
    own = functions_for(file, functions)
    return CycleAgent(spec, functions=own, storage=storage, on_event=hears, source=source)


def used_by(agent: CycleAgent) -> dict[str, Any]:
    """Return what an agent would use, as plain data."""
    spec, settings = agent.spec, load_settings()
    parts = [part for _, part, _ in substages(spec)]
    aliases = {**settings.models, **spec.models}
    asked = [part.model for part in parts if getattr(part, "prompt", None) is not None]
    models = {resolved(str(name or spec.model or settings.model), aliases) for name in asked}
    return {
        "name": spec.name,
        "substages": len(parts),
        "triggers": [trigger.type for trigger in spec.triggers],
        "models": sorted(models),
        "functions": sorted(set(_functions_in(parts))),
        "env": {name: name in os.environ for name in spec.env},
    }


def _functions_in(part: object) -> Iterator[str]:
    """Yield the names of the program's functions in a part of the file."""
    if isinstance(part, list):
        for one in cast("list[object]", part):
            yield from _functions_in(one)
    elif isinstance(part, BaseModel):
        for name, value in part:
            if name == "function" and value is not None:
                yield value
            else:
                yield from _functions_in(value)


def run_agent(agent: CycleAgent, cycles: int | None) -> None:
    """Run so many cycles, one after the other; without a number as the agent's triggers say.

    Told to end, it finishes or abandons the cycle under way, and is closed in any case.
    """
    by_hand = all(isinstance(one, ManualTrigger) for one in agent.spec.triggers)

    async def running() -> None:
        try:
            async with agent:
                await agent.run_forever(cycles or (1 if by_hand else None), at_once=cycles is not None)
        finally:
            if (storage := storage_of("default")) is not None:
                await storage.aclose()

    asyncio.run(running())


def feedback(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="Its name, as `cycle status` has it.", show_default=False)
    ],
    approve: Annotated[
        bool, typer.Option("--approve", help="What it did, or waits to do, is right.")
    ] = False,
    reject: Annotated[bool, typer.Option("--reject", help="It is wrong; what waits is not done.")] = False,
    modify: Annotated[
        str | None,
        typer.Option("--modify", metavar="JSON", help="Do it with these parameters: '{\"level\": 2}'."),
    ] = None,
    message: Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="Why.")] = "",
    number: Annotated[
        int | None,
        typer.Option("--cycle", metavar="N", help="About cycle N; without it the one that waits, if any."),
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="NAME", help="About this action alone.")
    ] = None,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who says so.")] = "",
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say what you think of what an agent does. It decides on a plan that waits, and is learnt from."""
    with surface(debug=debug):
        from redraft.errors import ConfigError
        from redraft.terminal.console import CalmConsole, emit_json

        given: dict[Verdict, bool] = {"approve": approve, "reject": reject, "modify": modify is not None}
        verdicts: list[Verdict] = [verdict for verdict, is_given in given.items() if is_given]
        if len(verdicts) != 1:
            raise ConfigError("Give one of --approve, --reject and --modify.")
        said = leave_feedback(
            agent,
            verdicts[0],
            message,
            cycle=number,
            action=action,
            changes=None if modify is None else changes_given(modify),
            by=by,
        )
        if as_json:
            emit_json({"agent": agent, "feedback": said})
        else:
            about = "" if said.cycle is None else f" on cycle {said.cycle}"
            CalmConsole().say(f"{agent} has it{about}: {said.verdict}.")


File = Annotated[str, typer.Argument(metavar="FILE", help="The agent, a YAML file.", show_default=False)]
Name = Annotated[
    str, typer.Argument(metavar="AGENT", help="Its name, as `cycle status` has it.", show_default=False)
]
Latest = Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many cycles, the latest.")]

cycle = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run agents in cycles. Sense, Reason, Actuate, Reflect; they learn, and remember within bounds.",
)


@cycle.command()
def run(
    file: File,
    cycles: Annotated[
        int | None,
        typer.Option("--cycles", metavar="N", min=1, help="So many, one after the other; then end."),
    ] = None,
    functions: Annotated[
        Path | None,
        typer.Option(
            "--functions",
            metavar="PATH.py",
            help="The functions that FILE names; without it functions.py beside FILE, if it is there.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run nothing: say what is wrong, or ok and what it would use.")
    ] = False,
    model: options.Model = None,
    events: options.Events = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Run an agent. As the triggers of its file say, until interrupted; one with manual triggers once.

    Its memory is kept in the project, or in the long-term storage of the settings. A cycle that was killed
    goes on where it stopped. Exit code 1 says that the last cycle failed.
    """
    with surface(debug=debug):
        from redraft.cycles.agents import result_document
        from redraft.loop.cli import watched
        from redraft.terminal.check_report import deliver_check
        from redraft.terminal.console import CalmConsole, emit_json

        if check:
            agent = ready_agent(file, functions, model, lambda _: None)
            deliver_check(file, used_by(agent), as_json=as_json)
            return
        progress = CycleProgress(CalmConsole(stderr=True))
        with watched(progress.hear, events) as listener, progress:
            agent = ready_agent(file, functions, model, listener)
            run_agent(agent, cycles)
        if as_json:
            ended = [result_document(one) for one in progress.results]
            emit_json({"agent": agent.name, "count": progress.count, "cycles": ended})
        else:
            CalmConsole(stderr=True).say(progress.ending(agent.name))
        raise typer.Exit(ExitCode.MET if progress.went_well else ExitCode.NOT_MET)


@cycle.command()
def status(
    agent: Annotated[str | None, typer.Argument(metavar="[AGENT]", help="One alone; all without it.")] = None,
    count: Latest = 10,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the agents. Whether each runs, how its last cycle went, and how much feedback it has not seen.

    With AGENT its latest cycles.
    """
    with surface(debug=debug):
        from redraft.cycles.agents import cycle_document, summary_document
        from redraft.terminal.console import CalmConsole, emit_json

        console = CalmConsole()
        if agent is None:
            found = all_agents()
            if as_json:
                emit_json({"agents": [summary_document(one) for one in found]})
            else:
                console.show(agent_rows(found, console.width) if found else no_agents())
            return
        summary, latest = one_agent(agent, count)
        if as_json:
            document = summary_document(summary)
            emit_json({**document, "cycles": [cycle_document(one) for one in latest]})
        else:
            console.show(agent_rows([summary], console.width))
            console.show(cycle_rows(latest, console.width))


@cycle.command()
def memory(
    agent: Name,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option("--diff", metavar="N M", help="What changed from the end of cycle N to that of M."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", min=0, help="As it was after cycle N.")
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show what an agent remembers. Now, after an earlier cycle, or what changed between two."""
    with surface(debug=debug):
        from redraft.cycles.agents import change_document, memory_document
        from redraft.terminal.console import CalmConsole, emit_json

        console = CalmConsole()
        if diff is not None:
            changes = changed_memory(agent, *diff)
            if as_json:
                changed = [change_document(one) for one in changes]
                emit_json({"agent": agent, "from": diff[0], "to": diff[1], "changes": changed})
            else:
                console.show(changes_view(changes, diff))
            return
        found = read_memory(agent, at)
        if as_json:
            emit_json({"agent": agent, **memory_document(found)})
        else:
            console.show(memory_view(found))


@cycle.command()
def metrics(
    agent: Name, count: Latest = 20, as_json: options.Json = False, debug: options.Debug = False
) -> None:
    """Show how an agent does. Time, tokens, cost, anomalies, alerts and failures of its latest cycles."""
    with surface(debug=debug):
        from redraft.cycles.agents import metrics_document
        from redraft.terminal.console import CalmConsole, emit_json

        summary, latest = one_agent(agent, count)
        if as_json:
            emit_json({"agent": summary.name, "cycles": [metrics_document(one) for one in latest]})
        else:
            console = CalmConsole()
            console.show(metrics_rows(latest, console.width))


@cycle.command()
def prune(
    agent: Name,
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=1, help="Of so many cycles.")] = 1_000,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Delete what nobody looks back at. Records of older cycles, and leftovers; the memory stays."""
    with surface(debug=debug):
        from redraft._texts import counted
        from redraft.terminal.console import CalmConsole, emit_json

        counts = prune_agent(agent, keep)
        if as_json:
            emit_json({"agent": agent, "deleted": counts})
        else:
            said = f"{counted(counts['cycles'], 'cycle')}, {counted(counts['mail'], 'message')}"
            CalmConsole().say(f"Deleted of {agent}: {said}.")


cycle.command()(feedback)


T = TypeVar("T")


def all_agents() -> list[AgentSummary]:
    """Read which agents there are, and how each stands."""
    return _reading(Agents().all)


def one_agent(name: str, count: int) -> tuple[AgentSummary, list[CycleRecord]]:
    """Read how an agent stands, and its latest cycles, the newest first."""

    async def read(view: AgentHandle) -> tuple[AgentSummary, list[CycleRecord]]:
        return await view.summary(), await view.cycles(limit=count)

    return _viewing(name, read)


def read_memory(name: str, at: int | None) -> Memory:
    """Read what an agent remembers, now or after a cycle."""

    async def read(view: AgentHandle) -> Memory:
        return await (view.memory() if at is None else view.memory_at(at))

    return _viewing(name, read)


def changed_memory(name: str, older: int, newer: int) -> tuple[MemoryChange, ...]:
    """Read what changed of an agent's memory between two cycles."""

    async def read(view: AgentHandle) -> tuple[MemoryChange, ...]:
        return await view.diff(older, newer)

    return _viewing(name, read)


def leave_feedback(
    name: str,
    verdict: Verdict,
    message: str,
    *,
    cycle: int | None,
    action: str | None,
    changes: Mapping[str, Any] | None,
    by: str,
) -> Feedback:
    """Leave feedback for an agent; return it as it may be shown."""

    async def leave(view: AgentHandle) -> Feedback:
        return await view.send_feedback(verdict, message, cycle=cycle, action=action, changes=changes, by=by)

    from redraft.redact.redactor import redactor_of_environment

    return redactor_of_environment().redact_object(_viewing(name, leave))


def prune_agent(name: str, cycles: int) -> dict[str, int]:
    """Delete what is beyond so many cycles; return how much of what."""

    async def prune(view: AgentHandle) -> dict[str, int]:
        return await view.prune(cycles)

    return _viewing(name, prune)


def changes_given(text: str) -> dict[str, Any]:
    """Return the parameters of a `modify`; raises `ConfigError` for what is no JSON object."""
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--modify takes a JSON object such as '{{\"level\": 2}}': {error}.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"--modify takes a JSON object such as '{{\"level\": 2}}', got {text!r}.")
    return found  # pyright: ignore[reportUnknownVariableType] (as JSON has it)


def _viewing(name: str, read: Callable[[AgentHandle], Awaitable[T]]) -> T:
    async def viewing() -> T:
        async with await Agents().get(name) as agent:
            return await read(agent)

    return _reading(viewing)


def _reading(read: Callable[[], Awaitable[T]]) -> T:
    storage = storage_of("default")
    if storage is None:
        required_project_store("agents")

    async def reading() -> T:
        try:
            async with open_project_store():
                return await read()
        finally:
            if storage is not None:
                await storage.aclose()

    return asyncio.run(reading())
