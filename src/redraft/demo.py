"""`redraft demo`: four small tasks for a small local model, or a recording of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

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
    ending,
    listening,
    result_document,
    resumed,
    version_row,
)
from redraft.loop.pattern import ReflectionPattern
from redraft.models.local import PACKAGED
from redraft.models.names import known_models, model_of
from redraft.models.testing import Cassette
from redraft.protocols import ChatModel
from redraft.sandbox.jail import check_jail
from redraft.settings import load_settings
from redraft.terminal import options
from redraft.terminal.commands import handles_errors, own_command
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, emit_json
from redraft.terminal.exits import ExitCode, code_of
from redraft.terminal.options import DEMO_MODEL
from redraft.terminal.tables import PlainTable
from redraft.terminal.word_diff import changes
from redraft.text.replies import json_of
from redraft.types import ConvergenceReason, PlainTask, QualityCriterion, ReflectionResult, render_score

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from redraft.events import Listener
    from redraft.protocols import ChatReply, ChatRequest


RECORDING = Path(__file__).with_name("demo_replies.jsonl")
"""Replies of the offline model to the demo's tasks, recorded by `demo/record.py`."""
REVISIONS = 3
SECONDS = 60.0
TOKENS = 250
"""Maximum length of a reply: a small model that repeats itself would go on for minutes."""


@handles_errors
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
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
) -> None:
    """Show Redraft at work, offline. Small tasks, real checks, nothing staged: some succeed, some do not.

    Without the offline model, its recorded replies are shown; the loop and the checks run all the same.
    """
    check_events(events)
    player = player_of(model, replay=replay)
    tasks = tasks_here()
    stdout, stderr = CalmConsole(), CalmConsole(stderr=True)
    stdout.quiet = as_json
    stdout.show(opening(player, tasks))
    load(player, stderr)
    runner = Runner("demo", player.name, keep=not no_keep, learns=False)  # the tasks have nothing in common
    finished: list[DemoRun] = []
    interrupted = False
    try:
        for task, result in runs(player, tasks, stderr, events, runner):
            finished.append((task, result))
            stdout.show(task_report(len(finished), task, result, coloured=stdout.is_coloured))
    except KeyboardInterrupt:
        if not finished:
            raise
        interrupted = True
    if as_json:
        emit_json(demo_document(player, finished))
    stdout.show(summary(finished, recorded=player.is_recording))
    if stored := [result.run_id for _, result in finished if runner.keeps(result)]:
        stderr.say("\nEach run is stored. Ask why it stopped:")
    for run_id in stored:
        stderr.say(f"  {own_command()} why {run_id}")
    codes = {code_of(result) for _, result in finished}
    if interrupted or ExitCode.INTERRUPTED in codes:
        raise typer.Exit(ExitCode.INTERRUPTED)
    # An unsolved task is part of the demo; only a failing model is an error.
    raise typer.Exit(ExitCode.PROVIDER if ExitCode.PROVIDER in codes else ExitCode.MET)


# --- tasks and checks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DemoTask:
    """A task and its check, under a title of at most 24 characters."""

    title: str
    prompt: str
    check: QualityCriterion

    @property
    def task(self) -> PlainTask:
        """The task as a run takes it."""
        return PlainTask(self.prompt)


DemoRun: TypeAlias = tuple[DemoTask, ReflectionResult]


def fields(**expected: tuple[Any, str]) -> QualityCriterion:
    """Check that a draft is a JSON object with exactly these fields; each is its value and a hint."""

    def check(output: str) -> dict[str, Any]:
        try:
            value = json_of(output)
        except OutputError as error:
            return {"valid": False, "score": 0.0, "errors": [str(error)]}
        actual = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        wrong = [
            f"{key} must be {hint}, not {actual.get(key)!r}"
            for key, (right, hint) in expected.items()
            if actual.get(key) != right or type(actual.get(key)) is not type(right)
        ]
        wrong += [f"{key} was not asked for" for key in actual if key not in expected]
        return {"valid": not wrong, "score": max(0.0, 1 - len(wrong) / len(expected)), "errors": wrong}

    return QualityCriterion(
        "fields", threshold=1.0, evaluator="function", evaluator_config={"function": check}
    )


def calls(*expected: tuple[str, Any]) -> QualityCriterion:
    """Run the code of a draft in the jail and check the values of these calls."""
    config = {"calls": [list(call) for call in expected], "timeout": 5}
    return QualityCriterion("calls", threshold=1.0, evaluator="command", evaluator_config=config)


TASKS = (
    DemoTask(
        "An order as JSON",
        "Extract the order from this message as one JSON object with the keys customer (text), lamps "
        "(integer), trays (integer), total_cents (integer) and paid (true or false). Reply with JSON "
        'only.\n\n"Hi, Dana Okafor here. Please send three desk lamps and a cable tray. That was 84.50 '
        "altogether, I'll pay on delivery.\"",
        fields(
            customer=("Dana Okafor", "the name of the person who orders"),
            lamps=(3, "the number of lamps"),
            trays=(1, "the number of trays"),
            total_cents=(8450, "the total in cents"),
            paid=(False, "true only if the money was paid already"),
        ),
    ),
    DemoTask(
        "The second largest",
        "Write a Python function `second_largest(numbers)` that returns the second largest distinct "
        "number of a list, or None if there is none. Reply with nothing but the function.",
        calls(
            ("second_largest([3, 1, 2])", 2),
            ("second_largest([5, 5, 4])", 4),
            ("second_largest([7])", None),
            ("second_largest([-1, -3, -2, -1])", -2),
        ),
    ),
    DemoTask(
        "A table for four",
        "Extract the booking from this message as one JSON object with the keys name (text), guests "
        "(integer), date (text, YYYY-MM-DD) and smoking (true or false). Reply with JSON only.\n\n"
        '"Table for my wife, our two children and me on 5 March 2027. Non-smoking, please. Omar Haddad"',
        fields(
            name=("Omar Haddad", "the name of the person who books"),
            guests=(4, "the number of people, the writer of the message included"),
            date=("2027-03-05", "the day as YYYY-MM-DD"),
            smoking=(False, "true only if a smoking table is wanted"),
        ),
    ),
    DemoTask(
        "Leap years",
        "Write a Python function `is_leap(year)`. Reply with nothing but the function.",
        calls(
            ("is_leap(2024)", True),
            ("is_leap(2023)", False),
            ("is_leap(2000)", True),
            ("is_leap(1900)", False),
        ),
    ),
)


def tasks_here() -> tuple[DemoTask, ...]:
    """Return the tasks whose checks can run here: code needs the jail."""
    try:
        check_jail(programs=False)
    except (ConfigError, SandboxError):
        return tuple(task for task in TASKS if task.check.evaluator != "command")
    return TASKS


def pattern_of(
    task: DemoTask, *, seconds: float | None = None, on_event: Listener | None = None
) -> ReflectionPattern:
    """Return the options of a task's run, with a limit in seconds or without."""
    return ReflectionPattern(
        max_iterations=REVISIONS,
        quality_criteria=[task.check],
        quality_threshold=1.0,
        budget_seconds=seconds,
        on_event=on_event,
    )


# --- model and runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Player:
    """The model that does the tasks, or a recording of it."""

    name: str
    model: ChatModel
    is_recording: bool = False


def player_of(model: str | None, *, replay: bool) -> Player:
    """Return the model with a name, else the offline model, else its recording.

    Raises `ConfigError` for a model that can't be used.
    """
    if replay and model is not None:
        raise ConfigError("--replay shows the recording; leave it out to use --model.")
    offline = next(known for known in known_models() if known.name == DEMO_MODEL)
    if replay or (model is None and not offline.answers):
        return Player(f"a recording of {DEMO_MODEL}", bounded(Cassette(RECORDING)), is_recording=True)
    name = model or DEMO_MODEL
    return Player(name, bounded(model_of(name, load_settings())))


def bounded(model: ChatModel) -> ChatModel:
    """Return a model whose replies are no longer than `TOKENS`."""

    async def ask(request: ChatRequest, /) -> ChatReply:
        return await model(replace(request, max_tokens=min(TOKENS, request.max_tokens or TOKENS)))

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
    """Run the tasks in turn, with progress on `stderr`; only that of a resumed run; until one is interrupted.

    Raises `KeyboardInterrupt` if a run is interrupted before its first version.
    """
    again = resumed.get()
    tasks = [task for task in tasks if again is None or task.task == again.record.task]
    for number, task in enumerate(tasks, 1):
        progress = Progress(stderr, f"{number}/{len(tasks)}", rows=not stderr.is_terminal)
        with listening(progress, events) as listener:
            pattern = pattern_of(task, seconds=None if player.is_recording else SECONDS, on_event=listener)
            result = runner.revise(task.task, player.model, pattern, progress)
        yield task, result
        if result.convergence_reason is ConvergenceReason.CANCELLED:
            return


# --- what is printed ----------------------------------------------------------------------------------------


def opening(player: Player, tasks: Sequence[DemoTask]) -> Text:
    """Introduce the demo: the tasks, the model, and how long it may take."""
    limits = f"at most {REVISIONS + 1} versions" + (
        "" if player.is_recording else f" and {SECONDS:.0f} seconds a task"
    )
    lines = [f"{len(tasks)} small tasks for {player.name}.", f"Checks decide, no model judges; {limits}."]
    if player.is_recording:
        lines += [
            "This is a replay: the model's replies were recorded; the loop and the checks run now.",
            f"Live: {own_command()} demo --model provider:model or local:PATH.gguf; or make demo in a clone.",
        ]
    else:
        lines.append("Ctrl-C stops it and shows the results so far.")
    if len(tasks) < len(TASKS):
        lines.append("The tasks that run code are left out, since no jail is available here.")
    return Text("\n".join(lines))


def task_report(number: int, task: DemoTask, result: ReflectionResult, *, coloured: bool) -> RenderableType:
    """Render a task, its versions, what changed from the first to the best, and why it stopped."""
    versions, best = result.history.versions, result.history.best_version
    parts: list[RenderableType] = [
        Text(f"\n{number}. {task.title}", "bold"),
        _indented(Text(f"{task.prompt}\n", QUIET)),
        *(version_row(version, best=best.iteration, indent=2) for version in versions),
    ]
    if best.iteration > 1:
        before, after = as_text(versions[0].output), as_text(best.output)
        parts += [
            _indented(Text(f"\nFrom version 1 to version {best.iteration}:")),
            _indented(changes(before, after, coloured=coloured), by=4),
        ]
    return Group(*parts, _indented(Text("\n").append_text(ending(result))))


def _indented(text: Text, *, by: int = 2) -> Padding:
    return Padding(text, (0, 0, 0, by), expand=False)


def scores_of(result: ReflectionResult) -> tuple[float | None, float | None]:
    """Return the scores of the first draft and of the best version."""
    history = result.history
    return history.versions[0].evaluation.overall_score, history.best_version.evaluation.overall_score


def improved_and_met(runs: Sequence[DemoRun]) -> tuple[int, int]:
    """Return in how many runs a revision beat the first draft, and how many met their criteria."""
    results = [result for _, result in runs]
    improved = sum(result.history.best_version.iteration > 1 for result in results)
    return improved, sum(result.success for result in results)


def summary(runs: Sequence[DemoRun], *, recorded: bool) -> RenderableType:
    """Render all tasks as a table, and how many improved; a recording has no times of its own."""
    rows: list[dict[str, str | Text]] = []
    for task, result in runs:
        first, best = scores_of(result)
        seconds = {} if recorded else {"seconds": f"{result.execution_time:.1f}"}
        rows.append(
            {
                "task": task.title,
                "first": render_score(first),
                "best": Text(render_score(best), GOOD if result.success else BAD),
                "versions": str(len(result.history.versions)),
                "stopped because of": result.convergence_reason.value,
                **seconds,
            }
        )
    table = PlainTable(rows, right=("first", "best", "versions", "seconds"), wrap=("stopped because of",))
    improved, met = improved_and_met(runs)
    sentence = (
        f"Better than the first draft: {improved} of {len(runs)}. All criteria met: {met} of {len(runs)}. "
        "The best version is returned, which is not always the last."
    )
    return Group(Text(), table, Text(), Text(sentence))


def demo_document(player: Player, runs: Sequence[DemoRun]) -> dict[str, Any]:
    """Return the demo as JSON data."""
    improved, met = improved_and_met(runs)
    tasks: list[dict[str, Any]] = []
    for task, result in runs:
        first, best = scores_of(result)
        scores = {"first_score": first, "best_score": best}
        tasks.append({"title": task.title, "task": task.prompt, **scores, **result_document(result)})
    return {
        "model": player.name,
        "recorded": player.is_recording,
        "improved": improved,
        "met": met,
        "tasks": tasks,
    }
