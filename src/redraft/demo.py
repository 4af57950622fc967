"""`redraft demo`: small tasks for a small local model, or a recording of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft._texts import as_text
from redraft.errors import ConfigError, OutputError, SandboxError
from redraft.loop.cli import (
    Progress,
    Runner,
    ask_one_token,
    check_events,
    error_text,
    listening,
    result_document,
    resumed,
    version_row,
)
from redraft.loop.pattern import ReflectionPattern
from redraft.models.local import PACKAGED
from redraft.models.names import known_models, model_of
from redraft.models.testing import Cassette
from redraft.notes.ensemble import Ensemble
from redraft.notes.store import InMemoryReflectionStore
from redraft.notes.task import Task
from redraft.notes.task_run import TaskResult
from redraft.protocols import ChatModel
from redraft.sandbox.jail import check_jail
from redraft.settings import load_settings
from redraft.terminal import options
from redraft.terminal.commands import own_command, run_async
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, emit_json
from redraft.terminal.exits import ExitCode, code_of, surface
from redraft.terminal.options import DEMO_MODEL
from redraft.terminal.tables import plain_table
from redraft.terminal.word_diff import changes
from redraft.text.characters import visible
from redraft.text.replies import json_of
from redraft.types import (
    REASONS,
    ConvergenceReason,
    PlainTask,
    QualityCriterion,
    ReflectionResult,
    render_score,
    render_usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from redraft.events import Listener
    from redraft.protocols import ChatReply, ChatRequest


RECORDING = Path(__file__).with_name("demo_replies.jsonl")
"""What the offline model replied to the demo's tasks; `demo/record.py` records it."""


def demo(
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME", help="Your own model: provider:model or local:PATH.gguf."
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Show the recording, even if the offline model is installed.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also show what notes on a task do for its next runs.")
    ] = False,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show Redraft at work, offline. Small tasks, real checks, nothing staged: some succeed, some do not.

    Without the offline model, its recorded replies are shown; the loop and the checks run all the same.
    """
    with surface(debug=debug):
        check_events(events)
        player = player_of(model, replay=replay)
        tasks = tasks_here()
        stdout, stderr = CalmConsole(), CalmConsole(stderr=True)
        stdout.quiet = as_json
        stdout.show(opening(player, tasks))
        load(player, stderr)
        runner = Runner("demo", player.name, keep=not no_keep)
        finished: list[DemoRun] = []
        noted: list[Noted] = []
        interrupted = False
        try:
            for run in runs(player, tasks, stderr, events, runner):
                finished.append(run)
                stdout.show(task_report(len(finished), run, coloured=stdout.is_coloured))
            if memory and resumed.get() is None:
                with Progress(stderr, "notes") as progress:
                    run_async(with_and_without_notes(player.model, progress, noted, keep=not no_keep))
        except KeyboardInterrupt:
            if not finished:
                raise
            interrupted = True
        if as_json:
            emit_json(demo_document(player, finished, noted))
        if noted:
            stdout.show(notes_report(len(finished) + 1, noted))
        stdout.show(summary(finished, recorded=player.is_recording))
        for line in next_commands(runner, finished):
            stderr.say(line)
        if not (memory or interrupted or resumed.get()):
            stderr.say(f"What notes on a task do for its next runs: {own_command()} demo --memory")
        codes = {code_of(run.result) for run in finished}
        if interrupted or ExitCode.INTERRUPTED in codes:
            raise typer.Exit(ExitCode.INTERRUPTED)
        # An unsolved task is part of the demo; only a failing model is an error.
        raise typer.Exit(ExitCode.PROVIDER if ExitCode.PROVIDER in codes else ExitCode.MET)


@dataclass(frozen=True, slots=True)
class DemoTask:
    """A task with its checks; `name` is for programs, `title` (at most 24 characters) for people."""

    name: str
    title: str
    task: PlainTask
    criteria: tuple[QualityCriterion, ...]


def _check(name: str, function: Callable[[str], dict[str, Any]]) -> QualityCriterion:
    return QualityCriterion(
        name, evaluator="function", evaluator_config={"function": function}, threshold=1.0
    )


def _share(errors: list[str], checks: int) -> dict[str, Any]:
    """Return the verdict after `checks` checks, of which some found `errors`."""
    return {"valid": not errors, "score": max(0.0, 1 - len(errors) / checks), "errors": errors}


def values(expected: Mapping[str, tuple[Any, str]]) -> QualityCriterion:
    """Check the fields of a JSON object: `expected` maps each to its value and a hint for the message."""

    def check(output: str) -> dict[str, Any]:
        try:
            found = json_of(output)
        except OutputError as error:
            return _share([str(error)], 1)
        fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        wrong = [
            f"{key} must be {hint}, not {fields.get(key)!r}"
            for key, (value, hint) in expected.items()
            if fields.get(key) != value or isinstance(fields.get(key), bool) != isinstance(value, bool)
        ]
        return _share(wrong, len(expected))

    return _check("values", check)


def word_count(least: int, most: int) -> QualityCriterion:
    """Check that a text has `least` to `most` words; the score falls with the distance."""

    def check(output: str) -> dict[str, Any]:
        words = len(output.split())
        if least <= words <= most:
            return {"valid": True}
        score = words / least if words < least else max(0.0, 1 - (words - most) / most)
        wanted = f"at least {least}" if words < least else f"at most {most}"
        return {"valid": False, "score": score, "errors": [f"it has {words} words; {wanted} are wanted"]}

    return _check("length", check)


def mentions(*terms: str) -> QualityCriterion:
    """Check that a text mentions all `terms`, whatever their case."""

    def check(output: str) -> dict[str, Any]:
        missing = [term for term in terms if term not in output.lower()]
        return _share([f"{term!r} is not mentioned" for term in missing], len(terms))

    return _check("mentions", check)


def bullets(count: int, most: int) -> QualityCriterion:
    """Check that a text is `count` bullets and nothing else, each of at most `most` words."""

    def check(output: str) -> dict[str, Any]:
        lines = [line for line in output.splitlines() if line.strip()]
        found = [line[2:] for line in lines if line.startswith("- ")]
        wrong = [
            f"{line!r} has {len(line.split())} words; at most {most} are wanted"
            for line in found
            if len(line.split()) > most
        ]
        if len(found) != count:
            wrong.append(f"there are {len(found)} bullets; {count} are wanted")
        if len(found) < len(lines):
            wrong.append(f"{len(lines) - len(found)} lines are no bullets")
        return _share(wrong, count + 2)

    return _check("bullets", check)


def calls(*expected: tuple[str, Any]) -> QualityCriterion:
    """Run the code in the jail and check what these calls return."""
    config = {"calls": [list(call) for call in expected], "timeout": 5}
    return QualityCriterion("calls", evaluator="command", evaluator_config=config, threshold=1.0)


ORDER = DemoTask(
    "order",
    "An order as JSON",
    PlainTask(
        "Extract the order from this message as one JSON object with the keys customer (text), items (a list "
        "of objects with name and quantity), total_cents (integer) and paid (true or false). Reply with JSON "
        'only.\n\n"Hi, Dana Okafor here. Please send three desk lamps and a cable tray. That was 84.50 '
        "altogether, I'll pay on delivery.\""
    ),
    (
        QualityCriterion(
            "schema",
            evaluator="schema",
            evaluator_config={
                "schema": {
                    "type": "object",
                    "required": ["customer", "items", "total_cents", "paid"],
                    "additionalProperties": False,
                    "properties": {
                        "customer": {"type": "string"},
                        "items": {
                            "type": "array",
                            "minItems": 2,
                            "items": {
                                "type": "object",
                                "required": ["name", "quantity"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "quantity": {"type": "integer", "minimum": 1},
                                },
                            },
                        },
                        "total_cents": {"type": "integer"},
                        "paid": {"type": "boolean"},
                    },
                }
            },
            threshold=1.0,
        ),
        values(
            {
                "customer": ("Dana Okafor", "the name of the person who orders"),
                "total_cents": (8450, "the total in cents"),
                "paid": (False, "true only if the money was paid already"),
            }
        ),
    ),
)

LAMP = DemoTask(
    "lamp",
    "A lamp in 20 to 40 words",
    PlainTask(
        "Describe a solar lamp for campers in 20 to 40 words. Mention its battery, its weight and the rain."
    ),
    (word_count(20, 40), mentions("battery", "weigh", "rain")),
)

UNIQUE = DemoTask(
    "unique",
    "A function `unique`",
    PlainTask(
        "Write a Python function `unique(items)` that drops repeated items of a list. Reply with nothing but "
        "the function: no docstring, no comments, no examples."
    ),
    (
        calls(
            ("unique([3, 1, 3, 2, 1])", [3, 1, 2]),
            ("unique([])", []),
            ("unique([10, 2, 10])", [10, 2]),
        ),
    ),
)

TEA = DemoTask(
    "tea",
    "Tea in three bullets",
    PlainTask(
        "How is tea made? Exactly three bullets of at most 6 words, each on a line that begins with '- '. "
        "Nothing else."
    ),
    (bullets(3, 6),),
)

TASKS = (ORDER, LAMP, UNIQUE, TEA)


def tasks_here() -> tuple[DemoTask, ...]:
    """Return the tasks whose checks can run here: code needs the jail."""
    try:
        check_jail(programs=False)
    except (ConfigError, SandboxError):
        return tuple(task for task in TASKS if task is not UNIQUE)
    return TASKS


REVISIONS = 3
SECONDS = 60.0
TOKENS = 250
"""The limit of a reply: a small model that has lost its way would go on for minutes."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """A task of the demo with the result of its run."""

    task: DemoTask
    result: ReflectionResult

    @property
    def first_score(self) -> float | None:
        """The score of the first draft."""
        return self.result.history.versions[0].evaluation.overall_score

    @property
    def best_score(self) -> float | None:
        """The score of the best version."""
        return self.result.history.best_version.evaluation.overall_score

    @property
    def improved(self) -> bool:
        """Whether a revision beat the first draft."""
        return self.result.history.best_version.iteration > 1


@dataclass(frozen=True, slots=True)
class Player:
    """The model that does the tasks, or a recording of one."""

    name: str
    model: ChatModel
    is_recording: bool = False


def player_of(model: str | None, *, replay: bool) -> Player:
    """Return the model with a name, else the offline model, else its recording.

    Raises `ConfigError` for a model that can't be used, with the commands to install the offline one.
    """
    if replay and model is not None:
        raise ConfigError("--replay shows the recording; leave it out to use --model.")
    offline = next(known for known in known_models() if known.name == DEMO_MODEL)
    if replay or (model is None and not offline.answers):
        return Player(f"a recording of {DEMO_MODEL}", bounded(Cassette(RECORDING)), is_recording=True)
    if model == DEMO_MODEL and not offline.answers:
        raise ConfigError(
            f"The demo's model {model} is not installed. In a checkout of Redraft: make demo, or "
            "pip install -e '.[local]' && pip install --require-hashes -r demo/requirements.txt\n"
            "A recording of it: redraft demo. Any other model: redraft demo --model provider:model"
        )
    name = model or DEMO_MODEL
    return Player(name, bounded(model_of(name, load_settings())))


def bounded(model: ChatModel) -> ChatModel:
    """Return a model whose replies are no longer than `TOKENS`."""

    async def ask(request: ChatRequest, /) -> ChatReply:
        most = TOKENS if request.max_tokens is None else min(TOKENS, request.max_tokens)
        return await model(replace(request, max_tokens=most))

    return ask


def load(player: Player, stderr: CalmConsole) -> None:
    """Load the model, so that this does not count as time of the first task."""
    if player.is_recording:
        return
    weights = PACKAGED.get(player.name.removeprefix("local:"))
    if weights is not None and not weights.is_joined:
        stderr.say(
            f"Joining the parts of the weights, once: {weights.bytes / 1e6:.0f} MB in {weights.joined}. "
            "Only this copy is needed from now on."
        )
    with Progress(stderr, "the model"):
        asyncio.run(ask_one_token(player.model))


def runs(
    player: Player, tasks: Sequence[DemoTask], stderr: CalmConsole, events: str | None, runner: Runner
) -> Iterator[DemoRun]:
    """Run the tasks one by one, with progress on `stderr`; an interrupted run is the last.

    When a run is resumed, it is the only one. Raises `KeyboardInterrupt` if a run is interrupted before its
    first version.
    """
    again = resumed.get()
    tasks = [task for task in tasks if again is None or task.task == again.record.task]
    for number, task in enumerate(tasks, 1):
        label = f"{number}/{len(tasks)} {task.name:<6}"
        progress = Progress(stderr, label, rows=not stderr.is_terminal)
        with listening(progress, events) as listener:
            pattern = pattern_of(task, seconds=None if player.is_recording else SECONDS, on_event=listener)
            result = runner.revise(task.task, player.model, pattern, progress)
        yield DemoRun(task, result)
        if result.convergence_reason is ConvergenceReason.CANCELLED:
            return


def pattern_of(
    task: DemoTask, *, seconds: float | None = None, on_event: Listener | None = None
) -> ReflectionPattern:
    """Return how a task is revised: for so many seconds at most, or until another rule stops it."""
    return ReflectionPattern(
        max_iterations=REVISIONS,
        quality_criteria=task.criteria,
        quality_threshold=1.0,
        budget_seconds=seconds,
        on_event=on_event,
    )


# What notes are worth: one task for several customers. Only its checks know the form of an order.

CUSTOMERS = {
    "Maria Lopez": (
        "Hi, this is Maria Lopez. I need 3 desk lamps delivered to Madrid by 5 March 2027, please."
    ),
    "Tom Becker": "Order from Tom Becker: two office chairs to Hamburg, latest 12.04.2027.",
    "Ken Sato": "Ken Sato here, one standing desk for our Osaka office, on the 20th of June 2027.",
}
FIELDS = {
    "customer": {"type": "string"},
    "item": {"type": "string"},
    "quantity": {"type": "integer"},
    "city": {"type": "string"},
    "due": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"},
}


def _field(name: str, kind: Mapping[str, str]) -> QualityCriterion:
    schema = {"type": "object", "properties": {name: dict(kind)}, "required": [name]}
    return QualityCriterion(name, evaluator="schema", evaluator_config={"schema": schema}, threshold=1.0)


def order_task(*, reflect: bool) -> Task:
    """Return the task, which learns from its runs or not."""
    return Task(
        "Turn the message of a customer into an order as JSON.\n\nThe message: {message}",
        "One JSON object, and nothing else.",
        criteria=[_field(name, kind) for name, kind in FIELDS.items()],
        reflect=reflect,
    )


@dataclass(frozen=True, slots=True)
class Noted:
    """The order of a customer, without notes and with what the runs before had taught."""

    customer: str
    without: TaskResult
    given: TaskResult

    @property
    def note(self) -> str:
        """What the run was told beside the task; empty for nothing."""
        return "\n\n".join(advice.text for advice in self.given.result.advice)

    @property
    def taught(self) -> str:
        """What the run after this one is told of the output; empty for nothing."""
        return "" if self.given.reflection is None else self.given.reflection.refined_expected_output or ""

    @property
    def extra_calls(self) -> int:
        """How many model calls writing the note took."""
        return self.given.usage.requests - self.given.result.token_usage.requests


async def with_and_without_notes(
    model: ChatModel, progress: Progress, noted: list[Noted], *, keep: bool
) -> None:
    """Write the order of each customer twice, and add both to `noted`. Notes last as long as the demo."""
    store = InMemoryReflectionStore()
    for number, (customer, message) in enumerate(CUSTOMERS.items(), 1):
        results: list[TaskResult] = []
        for reflect, how in ((False, "without notes"), (True, "with notes")):
            progress.switch_to(f"{number}/{len(CUSTOMERS)} {customer}, {how}")
            ensemble = Ensemble(model, [order_task(reflect=reflect)], store, keep=keep, name="demo")
            [done] = (await ensemble.run({"message": message})).results
            results.append(done)
        noted.append(Noted(customer, *results))


INDENT = (0, 0, 0, 2)
DEEPER = (0, 0, 0, 4)


def opening(player: Player, tasks: Sequence[DemoTask]) -> Text:
    """Introduce the demo: what it shows, on which model, and how long it may take."""
    lines = [
        f"{len(tasks)} small tasks for {player.name},",
        "chosen to show what redrafting can do for a small model, and what it can't.",
        f"Checks decide, no model judges; at most {REVISIONS + 1} versions"
        + ("." if player.is_recording else f" and {SECONDS:.0f} seconds a task."),
    ]
    if player.is_recording:
        lines.append("This is a replay: the model's replies were recorded; the loop and the checks run now.")
        lines.append(
            f"Live: {own_command()} demo --model provider:model or local:PATH.gguf; or make demo in a clone."
        )
    else:
        weights = PACKAGED.get(player.name.removeprefix("local:"))
        if weights is not None:
            lines.append(f"The model: {weights.origin}, {weights.bytes / 1e6:.0f} MB.")
        lines.append(
            "That takes about a minute on an idle machine, and at most "
            f"{len(tasks) * SECONDS / 60:.0f} minutes. Ctrl-C stops it and shows the results so far."
        )
    if len(tasks) < len(TASKS):
        lines.append("The task that runs code is left out, since no jail is available here.")
    return Text("\n".join(lines))


def task_report(number: int, run: DemoRun, *, coloured: bool) -> RenderableType:
    """Render a task, its versions, what changed from the first to the best, and why it stopped."""
    history = run.result.history
    best = history.best_version
    rows = [version_row(version, best=best.iteration, indent=2) for version in history.versions]
    return Group(
        Text(),
        Text(f"{number}. {run.task.title}", "bold"),
        Padding(Text(run.task.task.description, QUIET), INDENT, expand=False),
        Text(),
        *rows,
        *_changes(run, coloured=coloured),
        Text(),
        Padding(_ending(run.result), INDENT, expand=False),
    )


def _changes(run: DemoRun, *, coloured: bool) -> tuple[RenderableType, ...]:
    if not run.improved:
        return ()
    history = run.result.history
    before, after = as_text(history.versions[0].output), as_text(history.best_version.output)
    title = Text(f"From version 1 to version {history.best_version.iteration}:")
    return (
        Text(),
        Padding(title, INDENT, expand=False),
        Padding(changes(before, after, coloured=coloured), DEEPER, expand=False),
    )


def _ending(result: ReflectionResult) -> Text:
    returned = result.history.best_version.iteration
    text = Text(
        f"Stopped: {REASONS[result.convergence_reason.value]}. Returned: version {returned}.\n"
        f"Used: {render_usage(result.token_usage)}, {result.execution_time:.1f} s."
    )
    return text.append_text(error_text(result))


def notes_report(number: int, noted: Sequence[Noted]) -> RenderableType:
    """Render the orders with and without notes, and the note that the last one was given."""
    task = order_task(reflect=True)
    columns: dict[str, list[str | Text]] = {
        "customer": [one.customer for one in noted],
        "without notes": [render_score(_score(one.without)) for one in noted],
        "with notes": [render_score(_score(one.given)) for one in noted],
        "": ["no note yet" if one.given.note is None else f"given note {one.given.note}" for one in noted],
    }
    parts: list[RenderableType] = [
        Text(),
        Text(f"{number}. An order of each of {len(noted)} customers, with notes and without", "bold"),
        Padding(Text(task.description.partition("\n")[0], QUIET), INDENT, expand=False),
        Padding(Text("Only the checks know the form, and no run has a second try."), INDENT, expand=False),
        Text(),
        Padding(plain_table(columns, right=("without notes", "with notes")), INDENT, expand=False),
    ]
    calls = sum(one.extra_calls for one in noted)
    if taught := noted[-2].taught if len(noted) > 1 else "":
        told = (
            f"What the last run was told about the output ({calls} model calls were made to write the notes):"
        )
        parts += [
            Text(),
            Padding(Text(told), INDENT, expand=False),
            Padding(Text(visible(taught), QUIET), DEEPER, expand=False),
        ]
    return Group(*parts)


def _score(done: TaskResult) -> float | None:
    return done.result.history.versions[0].evaluation.overall_score


def next_commands(runner: Runner, runs: Sequence[DemoRun]) -> list[str]:
    """Return a command for each stored run, as it can be typed here; nothing if none is stored."""
    stored = [run for run in runs if runner.keeps(run.result)]
    if not stored:
        return []
    commands = [f"  {own_command()} why {run.result.run_id}" for run in stored]
    return ["\nEach run is stored. Ask why it stopped:", *commands]


def summary(runs: Sequence[DemoRun], *, recorded: bool = False) -> RenderableType:
    """Render all tasks as a table, and how many improved; a recording has no times of its own."""
    results = [run.result for run in runs]
    columns: dict[str, list[str | Text]] = {
        "task": [run.task.title for run in runs],
        "first": [render_score(run.first_score) for run in runs],
        "best": [Text(render_score(run.best_score), GOOD if run.result.success else BAD) for run in runs],
        "versions": [str(len(result.history.versions)) for result in results],
        "stopped because of": [result.convergence_reason.value for result in results],
    }
    if not recorded:
        columns["seconds"] = [f"{result.execution_time:.1f}" for result in results]
    numbers = ("first", "best", "versions", *(() if recorded else ("seconds",)))
    table = plain_table(columns, right=numbers, wrap=("task", "stopped because of"))
    return Group(Text(), table, Text(), Text(_sentence(runs)))


def _sentence(runs: Sequence[DemoRun]) -> str:
    total = len(runs)
    improved = sum(run.improved for run in runs)
    met = sum(run.result.success for run in runs)
    at_once = sum(run.result.success and not run.improved for run in runs)
    drafts = f" ({at_once} at the first draft)" if at_once else ""
    return (
        f"Better than the first draft: {improved} of {total}. All criteria met: {met} of {total}{drafts}. "
        "Worse than the first draft: none, since the best version is kept, not the last. Checks see only "
        "what they check: whether the lamp's text makes sense is a question for a person, or for a judge."
    )


def demo_document(player: Player, runs: Sequence[DemoRun], noted: Sequence[Noted]) -> dict[str, Any]:
    """Return the demo as JSON data; `memory` is empty unless it was asked for."""
    return {
        "model": player.name,
        "recorded": player.is_recording,
        "improved": sum(run.improved for run in runs),
        "met": sum(run.result.success for run in runs),
        "tasks": [
            {
                "name": run.task.name,
                "title": run.task.title,
                "task": run.task.task.description,
                "first_score": run.first_score,
                "best_score": run.best_score,
                **result_document(run.result),
            }
            for run in runs
        ],
        "memory": [
            {
                "customer": one.customer,
                "score_without": _score(one.without),
                "score_with": _score(one.given),
                "note": one.note,
                "run_ids": [one.without.run_id, one.given.run_id],
            }
            for one in noted
        ],
    }
