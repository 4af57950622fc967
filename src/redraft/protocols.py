"""The verbs: protocols with one call, the subject first and the context last."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, runtime_checkable

from redraft.errors import ConfigError
from redraft.types import (
    NOTHING_USED,
    Advice,
    Output,
    ReflectionEvaluation,
    ReflectionVersion,
    Task,
    TokenUsage,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from redraft.types import ConvergenceReason, Draft, ReflectionResult, Stop

P = ParamSpec("P")
R = TypeVar("R")


class Generator(Protocol):
    """Make a draft for a prompt."""

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft: ...


class Evaluator(Protocol):
    """Judge an output. An output that could not be judged has a score of None; it does not raise."""

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation: ...


class Reviser(Protocol):
    """Make a better draft out of an output and what was said about it."""

    async def __call__(
        self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /
    ) -> Draft: ...


class Stopper(Protocol):
    """Say why the run should stop now, or None. Pure: the same versions always get the same answer."""

    def __call__(self, versions: Sequence[ReflectionVersion], /) -> Stop | ConvergenceReason | None: ...


@runtime_checkable
class AgentPattern(Protocol):
    """Decide how an agent comes from a query to its answer: what `ReflectionPattern` is one of."""

    __slots__ = ()  # a pattern with slots must not get a dict from here

    async def execute(self, agent: Any, query: str | Task, /) -> ReflectionResult:
        """Let an agent answer a query."""
        ...


@runtime_checkable
class AgentLike(Protocol):
    """What a `ReflectionPattern` needs of an agent; an `Agent` has it."""

    @property
    def model(self) -> ChatModel | None: ...

    @property
    def system_prompt(self) -> str: ...

    @property
    def pattern(self) -> AgentPattern: ...

    async def run(self, query: str | Task, *, pattern: Any = None) -> ReflectionResult: ...


class ChatModel(Protocol):
    """Answer one request. Raises `ModelError` when the provider failed."""

    async def __call__(self, request: ChatRequest, /) -> ChatReply: ...


class Embedder(Protocol):
    """Turn texts into vectors that are near where the texts mean the like: one row a text, of unit length.

    Raises `ModelError` when a provider failed, and `OutputError` for rows that can't be used.
    """

    async def __call__(self, texts: Sequence[str], /) -> Sequence[Sequence[float]]: ...


class Advisor(Protocol):
    """Give advice before a run, and learn from how it went."""

    async def recall(self, task: Task, /) -> list[Advice]: ...

    async def observe(self, result: ReflectionResult, /) -> None: ...


@runtime_checkable
class Learner(Advisor, Protocol):
    """An advisor that needs a model to learn, and takes the one of the agent where it has none of its own."""

    def with_model(self, model: ChatModel, /) -> Advisor: ...


@runtime_checkable
class FailureObserver(Advisor, Protocol):
    """An advisor that learns from runs that raised before there was anything to return, too."""

    async def observe_failure(self, task: Task, run_id: str, error: Exception, /) -> None: ...


class Step(Protocol):
    """Carry out one effect of a run: the one seam through which everything that is not pure goes.

    Retrying, observing, recording and replaying are steps that wrap steps. A step is at-least-once; its
    result is JSON by `returns`.

    A step that wraps another passes on all that it is called with, and says what it wraps, so that a journal
    inside is found: a function is decorated with `functools.wraps(inner)`, an object has the attribute
    `__wrapped__`. Nothing asks for the class of a step.
    """

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...


class Allowance(Protocol):
    """Say what the step under way may still use of its run's budget.

    What it does not allow raises `UnfinishedError` with the reason, before anything is spent.
    """

    @property
    def bounds_time(self) -> bool:
        """Whether the step is cancelled at a certain time."""
        ...

    def call(self, role: ModelRole, input_tokens: int, max_tokens: int | None = None, /) -> ModelCall:
        """Return what a model call of about so many input tokens is carried out by."""
        ...

    async def in_time(self, check: Awaitable[R], /) -> R:
        """Wait for a check that is free, and cancel it when the time for those is spent."""
        ...


class ModelCall(Protocol):
    """Carry out one model call within a budget. Entered before the call, and left when it has ended."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def carry_out(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the call when it fits into the budget, and cancel it when the time is spent."""
        ...

    def used(self, usage: TokenUsage, /) -> None:
        """Say what the call has used, also where its reply was recorded before."""
        ...


@runtime_checkable
class TimedStep(Step, Protocol):
    """A step that outlives the process: it knows its run's id, and tells the time as it was when it replays.

    Between two steps its clock stands still at the end of the last one, so that whatever a run decides by
    the clock is decided alike when the run is started again.
    """

    run_id: str

    def elapsed(self) -> float:
        """Return the seconds that the run has been at work, in all processes that worked on it."""
        ...

    def at(self) -> datetime:
        """Return the time of day, in UTC."""
        ...


class CommandRunner(Protocol):
    """Run a command beside files in a jail: what the `command` evaluator needs of `sandbox/`."""

    async def __call__(self, command: Command, /) -> CommandOutcome: ...


class ScriptRunner(Protocol):
    """Run a script in a sandbox: what workflows need of `sandbox/`. Raises `SandboxError`."""

    async def __call__(self, script: Script, /) -> ScriptOutcome: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """Tell a generator or reviser what this attempt is for.

    `number` is the 1-based version that it will become. `mode` is `draft` (the first one), `revise` (improve
    `previous` by `evaluation`) or `fresh` (start anew; `evaluation` lists what went wrong before, and
    `previous` is shown, if at all, only as what not to repeat). `strategy` is the revision strategy to use.
    `temperature` is a wish for sampling that a model may ignore. `failed` is the last version that made
    things worse; what it changed should not be tried again. `max_tokens` bounds what this attempt may
    generate. `base` is the iteration that `previous` comes from.
    """

    number: int = 1
    mode: Literal["draft", "revise", "fresh"] = "draft"
    previous: Output = None
    evaluation: ReflectionEvaluation | None = None
    strategy: str = "hybrid"
    temperature: float | None = None
    failed: ReflectionVersion | None = None
    max_tokens: int | None = None
    base: int | None = None


FIRST_ATTEMPT = Attempt()


@dataclass(frozen=True, slots=True)
class RunContext:
    """Show a run, read-only: its task, the advice given, the versions so far, and the attempt under way.

    `iteration` is the 1-based number of the version that is being made or judged; `versions` are those
    before it. With `free_only` an evaluator must not call a model: the budget is spent.
    """

    task: Task
    run_id: str
    iteration: int = 1
    versions: tuple[ReflectionVersion, ...] = ()
    advice: tuple[Advice, ...] = ()
    attempt: Attempt = FIRST_ATTEMPT
    free_only: bool = False


class ReflectionDecision(StrEnum):
    """Say what happens after an evaluation.

    `AUTO` leaves it to the convergence rules. `CONTINUE` goes on although a rule says stop, but never past
    the maximum or a budget. `STOP` ends the run with its best version; `ACCEPT` ends it with this one.
    """

    AUTO = "auto"
    CONTINUE = "continue"
    STOP = "stop"
    ACCEPT = "accept"


class ReflectionCallbacks:
    """Watch a run and steer it; override what is needed. Specification 3.4.

    A callback that raises is logged, and the run goes on as if it had not been there.
    """

    async def on_generation(self, output: Output, iteration: int) -> None:
        """Take note of a new output, the first draft included; `iteration` is 1-based."""

    async def on_reflection(
        self,
        evaluation: ReflectionEvaluation,  # noqa: ARG002 (for those who override it)
        iteration: int,  # noqa: ARG002
    ) -> ReflectionDecision:
        """Decide what follows from an evaluation."""
        return ReflectionDecision.AUTO

    async def on_revision(self, old_output: Output, new_output: Output, iteration: int) -> None:
        """Take note of what a revision changed; `iteration` is that of the new output."""


ModelRole: TypeAlias = Literal["generation", "evaluation", "revision", "reflection"]


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Ask a model one thing.

    `schema` is a JSON Schema (an object at the top) that the reply has to follow; the reply's `parsed` is
    then the decoded value. `temperature` and `max_tokens` are sent only when they are not None: newer models
    refuse sampling parameters. `logprobs` (0 to 20) asks for that many alternatives of each token. `role`
    says what the call is for; `reflection` looks back on a run, or in the middle of one.
    """

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    logprobs: int = 0
    role: ModelRole = "generation"


@dataclass(frozen=True, slots=True)
class ChatReply:
    """Hold what a model answered.

    `parsed` is the decoded value when a schema was asked for and the text follows it as JSON; it stays None
    when the text could not be decoded, and the caller decides what that means. `logprobs` has one mapping of
    token to natural log probability for each generated token, where the provider tells. `finish_reason` is
    `length` when the reply was cut off.
    """

    text: str
    parsed: Any = None
    logprobs: tuple[Mapping[str, float], ...] = ()
    usage: TokenUsage = NOTHING_USED
    model: str = ""
    finish_reason: Literal["stop", "length", "other"] = "stop"


MOST_FILES = 1000
MOST_FILE_BYTES, MOST_FILES_BYTES = 16 << 20, 32 << 20
"""Bytes that one file of a command may have, and all of them: half of the scratch folder stays free."""

_MOST_NAME, _MOST_PATH = 255, 1000  # bytes, as file systems have it


@dataclass(frozen=True, slots=True)
class Command:
    """Ask for one run in the jail: either `argv`, a program beside `files`, or `python`, source text.

    `files` maps relative names to texts that lie in the working folder. `python` is run by this interpreter
    with `inputs` (JSON) as the global `inputs`; what it assigns to the global `result` comes back as JSON.
    `timeout` is wall time in seconds, `memory` bytes of address space of each process, and of what all of
    them hold together beside the scratch folder, `output_limit` bytes kept of each of stdout and stderr.
    """

    argv: tuple[str, ...] = ()
    python: str = ""
    inputs: Any = None
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 10.0
    memory: int = 1 << 30
    output_limit: int = 64 * 1024
    readable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """Say how a run in the jail ended.

    `completed` is False unless the program came to its own end: an exit code of 0 alone does not prove that
    (a draft may call `exit(0)`). `result` is the JSON that `python` code left. `stopped` names the limit
    that ended it: `timeout`, `memory`, `output`, `forbidden`.
    """

    exit_code: int | None
    completed: bool
    stdout: str = ""
    stderr: str = ""
    result: Any = None
    stopped: str | None = None
    seconds: float = 0.0


def stays_inside(name: str) -> bool:
    """Say whether a file name is relative and leads nowhere but into the folder that it is put in."""
    path = PurePosixPath(name)
    return bool(path.name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def problem_of_files(files: Mapping[str, str]) -> str | None:
    """Say why files cannot be laid into the scratch folder under their names, or None when they can."""
    if len(files) > MOST_FILES:
        return f"A command may have {MOST_FILES:,} files, got {len(files):,}."
    paths: dict[PurePosixPath, str] = {}
    total = 0
    for name, text in files.items():
        if problem := _problem_of_name(name):
            return problem
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (it may come from a file)
            return f"The file {name!r} must be a text, got {text!r}."
        size = len(text.encode(errors="surrogatepass"))
        total += size
        if size > MOST_FILE_BYTES:
            return f"The file {name!r} may have {MOST_FILE_BYTES:,} bytes, and has {size:,}."
        other = paths.setdefault(PurePosixPath(name), name)
        if other != name:
            return f"The files {other!r} and {name!r} are one and the same: give one of them another name."
    if total > MOST_FILES_BYTES:
        return f"The files of a command may have {MOST_FILES_BYTES:,} bytes together, and have {total:,}."
    for path, name in paths.items():
        for folder in path.parents:
            if folder in paths:
                return f"{paths[folder]!r} cannot be both a file and the folder of {name!r}."
    return None


def _problem_of_name(name: object) -> str | None:
    if not isinstance(name, str) or not stays_inside(name):
        return f"The file name {name!r} must be relative and stay inside the scratch folder."
    *_, last = parts = name.split("/")
    if last in {"", "."}:
        return f"The file name {name!r} is that of a folder: give the names of the files in it."
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return f"The file name {name!r} cannot be written in UTF-8."
    if max(sizes) > _MOST_NAME or sum(sizes) + len(sizes) > _MOST_PATH:
        return (
            f"The file name {name[:40]!r}... is too long: {_MOST_NAME} bytes are allowed between two "
            f"slashes, and {_MOST_PATH} in all."
        )
    return None


def find_program(name: str) -> str | None:
    """Give the absolute path of a program, or None: those beside this interpreter come before PATH."""
    return shutil.which(name, path=f"{sys.prefix}/bin") or shutil.which(name)


MOST_SOURCE = 256 * 1024
"""Characters of source that a script may have."""

LEAST_MEMORY_MB, MOST_MEMORY_MB = 32, 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bound one run of a script; raises `ConfigError` for a bound that makes no sense.

    `seconds` is wall time from the script's first line on. `memory_mb` (32 to 1024) counts what the script
    itself takes, not its interpreter. `output_chars` is what it may print, `result_chars` the length of its
    result as JSON.
    """

    seconds: float = 2.0
    memory_mb: int = 64
    output_chars: int = 64 * 1024
    result_chars: int = 1 << 20

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            kind = int | float if name == "seconds" else int
            if isinstance(value, bool) or not isinstance(value, kind) or not (value > 0 and isfinite(value)):
                raise ConfigError(f"A script's limit {name!r} must be a number > 0, got {value!r}.")
        if not LEAST_MEMORY_MB <= self.memory_mb <= MOST_MEMORY_MB:
            raise ConfigError(
                f"A script's limit 'memory_mb' must be {LEAST_MEMORY_MB} to {MOST_MEMORY_MB}, "
                f"got {self.memory_mb!r}."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the limits as they travel to the process that runs the script."""
        return {
            "seconds": self.seconds,
            "memory_mb": self.memory_mb,
            "output_chars": self.output_chars,
            "result_chars": self.result_chars,
        }


@dataclass(frozen=True, slots=True)
class Script:
    """Ask for one run of untrusted code: `source` in `language` (`python`, `lua`, `prolog`).

    `names` is JSON data, which the code sees as its variables (in Prolog as facts). `sandbox` matters to
    Python only: `inline` is a subset of the language in a warm interpreter, `process` all of it in a jailed
    child. Raises `ConfigError` for more source than `MOST_SOURCE`.
    """

    language: str
    source: str
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: Limits = field(default_factory=Limits)
    sandbox: Literal["inline", "process"] = "inline"

    def __post_init__(self) -> None:
        if len(self.source) > MOST_SOURCE:
            raise ConfigError(
                f"A script may have {MOST_SOURCE:,} characters, and this one has {len(self.source):,}."
            )


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """Carry what a script gave: its value as plain JSON data, and what it printed."""

    value: Any
    printed: str = ""
