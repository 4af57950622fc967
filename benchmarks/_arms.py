"""What redrafting is compared with: arms that answer a task with the same first draft and as many calls.

An arm sees a model through `Samples`: the nth time that it asks the same, it gets the nth sample of its seed,
whichever arm asked first. So arms share their first drafts, and a comparison is paired.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from _rows import append_row, rows_in

from redraft import Agent, ConfigError, ReflectionPattern
from redraft._codec import from_json, to_json
from redraft.loop.select import select
from redraft.loop.strategy import STRATEGIES
from redraft.protocols import ChatReply, ChatRequest
from redraft.types import Message, same_issue

if TYPE_CHECKING:
    from pathlib import Path

    from _tasks import BenchTask

    from redraft import ReflectionEvaluation, ReflectionVersion
    from redraft.protocols import ChatModel

CALLS = 3
TEMPERATURE = 0.7
MAX_TOKENS = 400
SYSTEM = (
    "Reply with exactly what is asked for and nothing else: no introduction, no explanation. "
    "Put Python code into one ```python fence, complete with its imports."
)
FIX = (
    "Your answer fails this check:\n{issues}\n\n"
    "Fix it. Reply with the whole corrected answer and nothing else."
)
ARMS_VERSION = 3
"""To be raised when an arm, a task or a check below changes what it does."""


class Replies:
    """The replies of a model that were drawn so far, in memory and in a file, so that none is drawn twice.

    `model_of` returns the model with a seed; without it, a reply that is not in the file is a `ConfigError`.
    """

    def __init__(
        self, name: str, model_of: Callable[[int], ChatModel] | None = None, file: Path | None = None
    ) -> None:
        self._name = name
        self._model_of = model_of
        self._file = file
        rows = rows_in(file) if file is not None else []
        self._known = {row["key"]: from_json(ChatReply, row["reply"]) for row in rows}

    async def draw(self, request: ChatRequest, seed: int, turn: int) -> ChatReply:
        """Return the sample of a seed for a request that was made `turn` times before.

        Without a temperature there is one reply, of all seeds and turns.
        """
        seed, turn = (seed, turn) if request.temperature else (0, 0)
        asked = [[(each.role, each.content) for each in request.messages], request.temperature]
        identity = [self._name, seed, turn, *asked, request.max_tokens]
        if request.schema is not None and request.role == "generation":  # as other roles were recorded
            identity.append(dict(request.schema))
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
        if key not in self._known:
            if self._model_of is None:
                question = request.messages[-1].content[:80]
                raise ConfigError(f"No reply to {question!r} was recorded (seed {seed}): name a --model.")
            # Samples of different seeds must not be the same ones in another order.
            reply = await self._model_of(1_000 * seed + turn)(request)
            self._known[key] = reply
            if self._file is not None:
                append_row(self._file, {"key": key, "reply": to_json(reply)})
        return self._known[key]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The model as one arm sees it, in one run: bounded replies, all drawn with one seed."""

    replies: Replies
    seed: int
    requests: list[ChatRequest] = field(default_factory=list[ChatRequest])

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Give the next sample for a request."""
        request = replace(request, max_tokens=min(request.max_tokens or MAX_TOKENS, MAX_TOKENS))
        turn = sum(
            (each.messages, each.temperature) == (request.messages, request.temperature)
            for each in self.requests
        )
        self.requests.append(request)
        return await self.replies.draw(request, self.seed, turn)


@dataclass(frozen=True, slots=True)
class Try:
    """One version that an arm made. Counts are of this version alone.

    `met` says whether the visible checks passed, `returned` which try (from 0) the arm would have returned
    had it ended here, `how` it was made (`repeat` where it changed nothing), `asked` and `mended` how many
    issues it was to mend and how many of these are gone, and `judged_again` what a second judgement of the
    same output gives, unless it is a repeat. `solved` is the hidden check's word.
    """

    output: str
    requests: int
    input_tokens: int
    output_tokens: int
    score: float | None
    met: bool
    returned: int
    how: str
    asked: int = 0
    mended: int = 0
    judged_again: float | None = None
    solved: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one arm made of one task with one seed, and why it ended."""

    task: str
    arm: str
    reason: str
    tries: list[Try] = field(default_factory=list[Try])
    seed: int = 1
    model: str = ""
    version: str = ""

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        """What makes a run of an arm the same: it is not run again."""
        return self.task, self.arm, self.seed, self.model, self.version

    def to_json(self) -> dict[str, Any]:
        """Leave the outputs out: what counts is in the figures."""
        tries = [
            {key: value for key, value in to_json(each).items() if key != "output"} for each in self.tries
        ]
        return {**to_json(self), "tries": tries}


def outcome_from(data: dict[str, Any]) -> Outcome:
    """Read what `to_json` wrote."""
    return Outcome(**{**data, "tries": [Try(output="", **each) for each in data["tries"]]})


Arm = Callable[["BenchTask", Samples], Awaitable[Outcome]]


async def greedy(task: BenchTask, model: Samples) -> Outcome:
    """Ask once."""
    opening = await opening_of(task, model)
    reply, evaluation = await _ask(task, model, opening)
    return _outcome(task, "greedy", [_try(reply, evaluation, 0, "draft")])


async def best_of_3(task: BenchTask, model: Samples) -> Outcome:
    """Sample until an answer passes the visible checks; return the first with the best visible score."""
    opening, tries, best = await opening_of(task, model), list[Try](), 0
    for number in range(CALLS):
        request = replace(opening, temperature=TEMPERATURE if number else None)
        reply, evaluation = await _ask(task, model, request)
        if number and _rank(evaluation) > (tries[best].met, tries[best].score or 0.0):
            best = number
        tries.append(_try(reply, evaluation, best, _how(reply, tries, "sample" if number else "draft")))
        if evaluation.satisfactory:
            break
    return _outcome(task, "best-of-3", tries)


async def chat(task: BenchTask, model: Samples) -> Outcome:
    """Show in the same chat what fails, and ask to fix it; return the last answer."""
    request, tries = await opening_of(task, model), list[Try]()
    for number in range(CALLS):
        reply, evaluation = await _ask(task, model, request)
        tries.append(_try(reply, evaluation, number, _how(reply, tries, "fix" if number else "draft")))
        if evaluation.satisfactory:
            break
        issues = "\n".join(f"- {issue}" for issue in evaluation.issues)
        fix = Message("assistant", reply.text), Message("user", FIX.format(issues=issues))
        request = replace(request, messages=(*request.messages, *fix))
    return _outcome(task, "chat", tries)


def loop(name: str, **options: Any) -> Arm:
    """Return an arm in which an agent answers, with the default pattern but for these options."""

    async def arm(task: BenchTask, model: Samples) -> Outcome:
        pattern = _pattern(task, **options)
        result = await _agent(model, pattern).run(task.prompt)
        if result.error is not None:
            raise result.error
        versions = result.history.versions
        tries = [await _version_try(versions[:end], pattern) for end in range(1, len(versions) + 1)]
        return Outcome(task.name, name, result.convergence_reason.value, tries)

    return arm


ARMS: dict[str, Arm] = {"loop": loop("loop"), "greedy": greedy, "best-of-3": best_of_3, "chat": chat}
"""The arms of a report."""


LEARNING = "loop:learning"
"""The arm whose loop knows which revisions were gains in the tasks before."""


def arm_named(name: str) -> Arm:
    """Return an arm.

    `loop:incremental` is the loop with that revision strategy, and `loop:candidates=2` the loop with so many
    first drafts and accordingly fewer revisions.
    """
    if name in ARMS:
        return ARMS[name]
    if name == LEARNING:
        return loop(name)
    kind, _, option = name.partition(":")
    key, _, value = option.partition("=")
    if kind == "loop" and key == "candidates" and value.isdecimal() and 1 <= int(value) <= CALLS:
        return loop(name, candidates=int(value), max_iterations=CALLS - int(value))
    if kind == "loop" and option in STRATEGIES:
        return loop(name, revision_strategy=option)
    known = ", ".join(
        [*ARMS, LEARNING, *(f"loop:{each}" for each in STRATEGIES), f"loop:candidates=1..{CALLS}"]
    )
    raise ConfigError(f"Unknown arm {name!r}; choose out of {known}.")


def _pattern(task: BenchTask, **options: Any) -> ReflectionPattern:
    return ReflectionPattern(**{"max_iterations": CALLS - 1, "quality_criteria": task.criteria, **options})


def _agent(model: ChatModel, pattern: ReflectionPattern) -> Agent:
    return Agent(model, pattern=pattern, system_prompt=SYSTEM, keep=False)


async def opening_of(task: BenchTask, model: Samples) -> ChatRequest:
    """Return the request with which the loop asks for its first draft, so that all arms ask for the same."""
    first = Samples(model.replies, model.seed)
    await _agent(first, _pattern(task, max_iterations=0)).run(task.prompt)
    return first.requests[0]


async def _ask(
    task: BenchTask, model: Samples, request: ChatRequest
) -> tuple[ChatReply, ReflectionEvaluation]:
    reply = await model(request)
    return reply, await _pattern(task).reflect(reply.text)


def _try(reply: ChatReply, evaluation: ReflectionEvaluation, returned: int, how: str) -> Try:
    return Try(
        reply.text,
        reply.usage.requests,
        reply.usage.input_tokens,
        reply.usage.output_tokens,
        evaluation.overall_score,
        evaluation.satisfactory,
        returned,
        how,
    )


async def _version_try(versions: tuple[ReflectionVersion, ...], pattern: ReflectionPattern) -> Try:
    version, evaluation, used = versions[-1], versions[-1].evaluation, versions[-1].token_usage
    if version.choice is not None:  # the candidates that were not chosen cost as much
        used = sum(version.choice.usage.values(), start=used)
    before = versions[(version.base or len(versions) - 1) - 1].evaluation if len(versions) > 1 else None
    asked = before.issues if before is not None else ()
    mended = [issue for issue in asked if not any(same_issue(issue, left) for left in evaluation.issues)]
    return Try(
        version.output,
        used.requests,
        used.input_tokens,
        used.output_tokens,
        evaluation.overall_score,
        evaluation.satisfactory,
        select(versions, "highest_score").iteration - 1,
        "repeat" if version.repeats is not None else version.strategy,
        len(asked),
        len(mended),
        None if version.repeats else (await pattern.reflect(version.output)).overall_score,
    )


def _outcome(task: BenchTask, arm: str, tries: list[Try]) -> Outcome:
    return Outcome(task.name, arm, "quality_met" if tries[-1].met else "max_iterations", tries)


def _rank(evaluation: ReflectionEvaluation) -> tuple[bool, float]:
    return evaluation.satisfactory, evaluation.overall_score or 0.0


def _how(reply: ChatReply, before: list[Try], how: str) -> str:
    return "repeat" if any(each.output.strip() == reply.text.strip() for each in before) else how
