"""`redraft demo`: the command, the acts, and what they print."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._texts import as_text, counted, shortened
from redraft.demo.tasks import (
    DATE_FORM,
    MEETING,
    ORDER,
    ORDER_FIELDS,
    PRIMES,
    PRIMES_LISTED,
    SQL_TASK,
    TITLE_CASE,
    TITLE_CASE_CALLS,
    date_check,
    query_check,
)
from redraft.errors import ConfigError, SandboxError
from redraft.lessons.lessons import Lessons
from redraft.loop.agent import Agent
from redraft.loop.cli import (
    Progress,
    Runner,
    ask_one_token,
    check_events,
    error_text,
    listening,
    result_document,
    resumed,
)
from redraft.loop.pattern import ReflectionPattern
from redraft.models.local import PACKAGED
from redraft.models.names import known_models, model_of
from redraft.models.testing import Cassette
from redraft.sandbox.jail import check_jail
from redraft.settings import load_settings
from redraft.stores.sqlite import SqliteStore
from redraft.terminal import options
from redraft.terminal.commands import handles_errors, own_command, run_async
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, emit_json
from redraft.terminal.exits import ExitCode, code_of
from redraft.terminal.options import DEMO_MODEL
from redraft.text.characters import visible
from redraft.text.replies import unfenced
from redraft.types import (
    ConvergenceReason,
    PlainTask,
    QualityCriterion,
    ReflectionResult,
    TokenUsage,
    render_score,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from redraft.events import Listener
    from redraft.protocols import Advisor, ChatModel, ChatReply, ChatRequest


RECORDING = Path(__file__).with_name("replies.jsonl")
"""Replies of the offline model in the five acts, recorded by `demo/record.py`."""
REVISIONS = 3
SECONDS = 60.0
"""Time limit of a run with a live model."""
TOKENS = 200
"""Maximum length of a reply: a small model that repeats itself would go on for minutes."""
WIDTH = 80
ROOM = WIDTH - 12
"""Columns for an output."""
YOUR_TURN = "Your turn: reflected([your_check])(your_function); docs/start.md shows how."


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
    """Show Redraft at work, offline. Five acts with real checks, and nothing staged: some drafts stay wrong.

    Without the offline model, its recorded replies are shown; the loop, the checks and the kill are real all
    the same.
    """
    check_events(events)
    if resumed.get() is not None:
        raise ConfigError(f"Runs of the demo are not resumed: `{own_command()} demo` shows all acts again.")
    stdout, stderr = CalmConsole(), CalmConsole(stderr=True)
    stdout.quiet = as_json
    for console in (stdout, stderr):
        console.width = min(console.width, WIDTH)
    stage = stage_of(model, stderr, replay=replay, events=events, keep=not no_keep)
    no_jail = why_no_jail()
    stdout.show(opening(stage, no_jail))
    load(stage)
    shown: list[Act] = []
    interrupted = False
    try:
        for act in acts(stage, runs_code=not no_jail):
            shown.append(act)
            stdout.show(act_report(act))
    except KeyboardInterrupt:
        if not shown:
            raise
        interrupted = True
    if as_json:
        emit_json(document_of(stage, shown))
    results = [scene.result for act in shown for scene in act.scenes]
    first = results[0] if results else None
    if first is not None and stage.runner.keeps(first):
        stderr.say("\nThe runs are stored, except that of act 5, which is in a temporary folder.")
        stderr.say(f"Why the first stopped: {own_command()} why {first.run_id}")
    stdout.show(Text(f"\n{YOUR_TURN}", "bold"))
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    # An unsolved task is part of the demo; only a failing model is an error.
    failed = any(code_of(result) is ExitCode.PROVIDER for result in results)
    raise typer.Exit(ExitCode.PROVIDER if failed else ExitCode.MET)


# --- the acts -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """One run of an act: what was asked, and its result. Its `label` is printed above the versions."""

    task: str
    result: ReflectionResult
    label: str = ""

    @property
    def first_draft(self) -> str:
        """Whether the first draft "passes" or "fails"."""
        return "passes" if self.result.history.versions[0].evaluation.satisfactory else "fails"


@dataclass(frozen=True, slots=True)
class Act:
    """A finished act: its runs, and what happened, in sentences that depend on their results."""

    number: int
    title: str
    scenes: tuple[Scene, ...]
    happened: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    shows_issues: bool = True


def acts(stage: Stage, *, runs_code: bool) -> Iterator[Act]:
    """Yield each act as soon as it has ended; act 2 runs code, which needs a jail."""
    yield fixed(stage)
    if runs_code:
        yield unfixed(stage)
    yield requirement(stage)
    yield lesson(stage)
    yield killed(stage)


def fixed(stage: Stage) -> Act:
    """A draft fails a check, whose message leads to a better version."""
    scene = stage.play(1, ORDER, ORDER_FIELDS)
    return Act(1, "A draft fails its check", (scene,), (ending(scene.result), why(scene.result)))


def unfixed(stage: Stage) -> Act:
    """A task that the small model does not solve in four versions."""
    scene = stage.play(2, TITLE_CASE, TITLE_CASE_CALLS)
    return Act(2, "A task that is harder for the model", (scene,), (ending(scene.result), why(scene.result)))


def requirement(stage: Stage) -> Act:
    """The same task twice; the second prompt states what the check asks for, as prompts usually do."""
    late = stage.play(3, MEETING, date_check(""))
    early = stage.play(3, MEETING, date_check(DATE_FORM))
    scenes = (
        replace(late, label=f"Without it, the first draft {late.first_draft}. {used(late.result)} in all."),
        replace(early, label=f'With it ("{DATE_FORM}"), it {early.first_draft}. {used(early.result)}.'),
    )
    return Act(3, "The same task, without and with the requirement in its prompt", scenes)


def lesson(stage: Stage) -> Act:
    """An error says what the task does not, and is remembered for the next task.

    Facts are read from the error itself. A reflection in words would take the small model a minute: `auto` is
    off.
    """
    question = "What is the highest price of an article?"
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:

        def play(question: str, right: str) -> Scene:
            lessons = Lessons(folder, agent="demo", store=False, auto=False)
            return stage.play(4, SQL_TASK.format(question), query_check(right), lessons)

        first = play("How many articles are there?", "SELECT COUNT(*) FROM t_art")
        then = play(question, "SELECT MAX(prs_ct) FROM t_art")
    then = replace(then, label=f'{used(first.result)}. Next: "{question}"')
    facts = "; ".join(advice.text for advice in then.result.advice if advice.kind == "fact")
    happened = (
        f"The error left a fact, without a call: {facts}." if facts else "No error left a fact.",
        f"{'With' if facts else 'Without'} it, the next first draft {then.first_draft}. {used(then.result)}.",
    )
    return Act(4, "What only an error says", (first, then), happened)


# --- act 5: a run in a process of its own, killed, and resumed here -----------------------------------------

LAST_CALL = 3
"""The call in which the process is killed."""
CHILD = "import sys; from redraft.demo.cli import run_until_killed; run_until_killed(*sys.argv[1:])"


async def act_5(model: ChatModel, journal: str, pattern: ReflectionPattern) -> ReflectionResult:
    """Run the agent of act 5. A process that repeats the call resumes the run, by its id."""
    store = SqliteStore(journal)
    agent = Agent(model, pattern=pattern, keep=store, name="demo")
    try:
        return await agent.run(PRIMES, run_id="act-5")
    finally:
        await store.aclose()


def run_until_killed(journal: str, source: str) -> None:
    """Run act 5 in the child process, and report to the parent how many calls began, and their tokens."""
    model = Metered(open_model(source))

    def report(calls: int) -> None:
        sys.stdout.write(f"{calls} {model.used.total_tokens}\n")
        sys.stdout.flush()

    async def ask(request: ChatRequest, /) -> ChatReply:
        call = model.used.requests + 1
        report(call)
        reply = await model(request)
        if call == LAST_CALL:
            await asyncio.Event().wait()  # the process is killed before this answer gets into the journal
        return reply

    ask.is_recorded = True  # pyright: ignore[reportFunctionMemberAccess] (see `Metered`)
    run_async(act_5(ask, journal, pattern_of(PRIMES_LISTED)))
    report(model.used.requests)


def killed(stage: Stage) -> Act:
    """A child process begins a run and is killed; this process resumes it from the journal."""
    with TemporaryDirectory() as folder:
        journal = str(Path(folder, "runs.db"))
        begun, tokens, status = begin_and_kill(journal, stage)
        before = stage.model.used
        progress = stage.progress("act 5")
        with listening(progress, stage.events) as listener, progress:
            result = run_async(act_5(stage.model, journal, stage.pattern(PRIMES_LISTED, listener)))
    after, total = stage.model.used, result.token_usage
    made, paid = after.requests - before.requests, after.total_tokens - before.total_tokens
    replayed, twice = total.requests - made, tokens + paid - total.total_tokens
    end = f"killed (SIGKILL) in call {begun}" if status == -signal.SIGKILL else "ended by itself"
    answers = begun if status == 0 else max(0, begun - 1)  # a call under way was cut off
    happened = (
        f"Child process: {counted(answers, 'answer')}, {tokens} tokens; {end}.",
        f"This process: {counted(replayed, 'answer')} replayed, {counted(made, 'call')} made, {paid} tokens.",
        f"{tokens} + {paid} tokens were paid for, the run has {total.total_tokens}: {twice or 'none'} twice.",
        ending(result),
    )
    counts = {"answers": answers, "replayed": replayed, "made": made, "tokens_paid_twice": twice}
    return Act(5, "Killed, and resumed", (Scene(PRIMES, result),), happened, counts, shows_issues=False)


def begin_and_kill(journal: str, stage: Stage) -> tuple[int, int, int]:
    """Kill a child process in its last call; the calls that began, tokens before, and how it ended."""
    begun = tokens = 0
    command = (sys.executable, "-P", "-c", CHILD, journal, stage.source)  # -P: no modules of this folder
    progress = stage.progress("act 5, child")
    with progress, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:  # noqa: S603 (this very program)
        timer = Timer(SECONDS, child.kill)
        timer.start()
        try:
            for line in child.stdout or ():
                begun, tokens = map(int, line.split())
                if begun == LAST_CALL:
                    break
            else:
                child.wait()  # it ended by itself
        finally:
            timer.cancel()
            child.kill()
    return begun, tokens, child.returncode


# --- the model, and a run of it -----------------------------------------------------------------------------


class Metered:
    """A model whose replies have at most `TOKENS` tokens, and what it has used so far."""

    is_recorded = True
    """Runs revise as in the recording, whatever earlier runs have shown."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.used = TokenUsage(cost_usd=0.0)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Answer one request."""
        reply = await self._model(replace(request, max_tokens=min(TOKENS, request.max_tokens or TOKENS)))
        self.used += reply.usage
        return reply


@dataclass(frozen=True, slots=True)
class Stage:
    """What the acts are played with. Another process opens the model by its `source`."""

    model: Metered
    source: str
    runner: Runner
    stderr: CalmConsole
    events: str | None = None
    is_recording: bool = False

    def progress(self, label: str) -> Progress:
        """Progress of a run: on a terminal as a line, elsewhere as a row for each version."""
        return Progress(self.stderr, label, rows=not self.stderr.is_terminal)

    def pattern(
        self, check: QualityCriterion, listener: Listener, advisors: Sequence[Advisor] = ()
    ) -> ReflectionPattern:
        """The options of a run; with a live model, its time is limited."""
        seconds = None if self.is_recording else SECONDS
        return pattern_of(check, budget_seconds=seconds, on_event=listener, advisors=advisors)

    def play(self, act: int, task: str, check: QualityCriterion, *advisors: Advisor) -> Scene:
        """Let the model do a task. Raises `KeyboardInterrupt` if that is interrupted."""
        progress = self.progress(f"act {act}")
        with listening(progress, self.events) as listener:
            pattern = self.pattern(check, listener, advisors)
            result = self.runner.revise(PlainTask(task), self.model, pattern, progress)
        if result.convergence_reason is ConvergenceReason.CANCELLED:
            raise KeyboardInterrupt
        return Scene(task, result)


def pattern_of(check: QualityCriterion, **more: Any) -> ReflectionPattern:
    """The options of every run, and those of some."""
    return ReflectionPattern(
        max_iterations=REVISIONS, quality_criteria=[check], quality_threshold=1.0, **more
    )


def stage_of(
    model: str | None, stderr: CalmConsole, *, replay: bool, events: str | None, keep: bool
) -> Stage:
    """Take the model with a name, else the offline model, else its recording.

    Raises `ConfigError` for a model that can't be used.
    """
    if replay and model is not None:
        raise ConfigError("--replay shows the recording; leave it out to use --model.")
    offline = next(known for known in known_models() if known.name == DEMO_MODEL)
    is_recording = replay or (model is None and not offline.answers)
    source = str(RECORDING) if is_recording else model or DEMO_MODEL
    runner = Runner("demo", f"a recording of {DEMO_MODEL}" if is_recording else source, keep)
    return Stage(Metered(open_model(source)), source, runner, stderr, events, is_recording)


def open_model(source: str) -> ChatModel:
    """The model with a name, or the recording at a path."""
    return Cassette(source) if source.endswith(".jsonl") else model_of(source, load_settings())


def load(stage: Stage) -> None:
    """Load the model, so that this does not count as time of the first act."""
    if stage.is_recording:
        return
    weights = PACKAGED.get(stage.source.removeprefix("local:"))
    if weights is not None and not weights.is_joined:
        stage.stderr.say(
            f"Joining the parts of the weights, once: {weights.bytes / 1e6:.0f} MB in {weights.joined}. "
            "Only this copy is needed from now on."
        )
    with Progress(stage.stderr, "the model"):
        asyncio.run(ask_one_token(stage.model))


def why_no_jail() -> str:
    """Why code can't run in a jail on this machine; empty if it can."""
    try:
        check_jail(programs=False)
    except (ConfigError, SandboxError) as error:
        return str(error)
    return ""


# --- what is printed ----------------------------------------------------------------------------------------


def opening(stage: Stage, no_jail: str) -> Text:
    """Introduce the demo: the model, how long it takes, and what is missing."""
    lines = [f"Five acts with {stage.runner.model}."]
    if stage.is_recording:
        lines += [
            "The model's replies were recorded; the loop, the checks and the kill are real.",
            f"Live: {own_command()} demo --model provider:model or local:PATH.gguf; or make demo in a clone.",
        ]
    else:
        lines.append("Checks decide, no model judges. About a minute if the machine is idle.")
    if no_jail:
        lines.append(f"Act 2, which runs code, is left out: {no_jail}")
    return Text("\n".join(lines))


def ending(result: ReflectionResult) -> str:
    """Say how a run ended, and what it used."""
    best = result.history.best_version.iteration
    passes, none = f"Version {best} passes.", f"No version passes. Version {best} is returned, success=False."
    return f"{passes if result.success else none} {used(result)}."


def used(result: ReflectionResult) -> str:
    """What a run used, such as `2 calls, 344 tokens`."""
    usage = result.token_usage
    return f"{counted(usage.requests, 'call')}, {usage.total_tokens} tokens"


def why(result: ReflectionResult) -> str:
    """Say why a run stopped, as `redraft why` does."""
    detail = "" if result.stop is None else result.stop.detail
    return f"Why it stopped: {result.convergence_reason.value}. {detail}"


def act_report(act: Act) -> RenderableType:
    """Render an act: what was asked, what came, and what happened."""
    parts: list[RenderableType] = [Text(f"\n{act.number}. {act.title}", "bold")]
    parts.append(_indented(Text(act.scenes[0].task.replace("\n\n", "\n"), QUIET)))
    for scene in act.scenes:
        parts += [_indented(Text(scene.label))] if scene.label else []
        parts.append(versions_table(scene.result, shows_issues=act.shows_issues))
        if isinstance(scene.result.error, Exception):
            parts.append(_indented(Text(error_text(scene.result).plain.strip(), BAD)))
    return Group(*parts, *(_indented(Text(visible(sentence))) for sentence in act.happened))


def versions_table(result: ReflectionResult, *, shows_issues: bool) -> Table:
    """Render versions: number, score, output on one line, and what its check said; `*` marks the best."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=4)
    table.add_column(min_width=4)
    table.add_column()
    seen: dict[str, int] = {}
    for version in result.history.versions:
        evaluation, number = version.evaluation, version.iteration
        output = visible(shortened(unfenced(as_text(version.output))[0], ROOM))
        before = seen.setdefault(output, number)
        mark = "*" if version is result.history.best_version else " "
        score = Text(render_score(evaluation.overall_score), GOOD if evaluation.satisfactory else BAD)
        said = Text(output) if before == number else Text(f"the same as version {before}", QUIET)
        table.add_row(f"{mark} {number}", score, said)
        if evaluation.issues and shows_issues and before == number:
            issues = shortened("; ".join(evaluation.issues), 2 * ROOM)
            table.add_row("", "", Text(visible(issues), QUIET))
    return table


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 3), expand=False)


def document_of(stage: Stage, shown: Sequence[Act]) -> dict[str, Any]:
    """The demo as JSON data."""
    listed: list[dict[str, Any]] = []
    for act in shown:
        runs = [{"task": one.task, "label": one.label, **result_document(one.result)} for one in act.scenes]
        said = {"happened": act.happened, "counts": act.counts}
        listed.append({"act": act.number, "title": act.title, "runs": runs, **said})
    return {
        "model": stage.runner.model,
        "recorded": stage.is_recording,
        "acts": listed,
        "next": YOUR_TURN,
    }
