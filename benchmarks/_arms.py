"""Three ways to spend the same calls on a task: the default loop, greedy revision, best of N."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from redraft import Agent, ChatRequest, Message, ReflectionEvaluation, ReflectionPattern
from redraft.loop.select import select
from redraft.loop.stop import same_issue

if TYPE_CHECKING:
    from _task import BenchTask

    from redraft import ChatReply, ReflectionVersion
    from redraft.protocols import ChatModel

CALLS = 3
TEMPERATURE = 0.7
SYSTEM = (
    "Reply with exactly what is asked for and nothing else: no introduction, no explanation. "
    "Put Python code into one ```python fence, complete with its imports."
)
FIX = (
    "Your answer fails this check:\n{issues}\n\n"
    "Fix it. Reply with the whole corrected answer and nothing else."
)


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
    """What one arm made of one task, and why it ended."""

    task: str
    arm: str
    reason: str
    tries: list[Try] = field(default_factory=list[Try])

    def to_json(self) -> dict[str, Any]:
        """Leave the outputs out: what counts is in the figures."""
        return {
            **asdict(self),
            "tries": [{k: v for k, v in asdict(each).items() if k != "output"} for each in self.tries],
        }


def outcome_from(data: dict[str, Any]) -> Outcome:
    """Read what `to_json` wrote."""
    return Outcome(
        data["task"], data["arm"], data["reason"], [Try(output="", **each) for each in data["tries"]]
    )


Arm = Callable[["BenchTask", "ChatModel"], Awaitable[Outcome]]


async def loop(task: BenchTask, model: ChatModel) -> Outcome:
    """Let an agent with the default pattern answer."""
    pattern = _pattern(task)
    result = await Agent(model, pattern=pattern, system_prompt=SYSTEM).run(task.prompt)
    if result.error is not None:
        raise result.error
    versions = result.history.versions
    tries = [await _try_of(versions[:end], pattern) for end in range(1, len(versions) + 1)]
    return Outcome(task.name, "loop", result.convergence_reason.value, tries)


async def _try_of(versions: tuple[ReflectionVersion, ...], pattern: ReflectionPattern) -> Try:
    version, evaluation, used = versions[-1], versions[-1].evaluation, versions[-1].token_usage
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


async def greedy(task: BenchTask, model: ChatModel) -> Outcome:
    """Ask, show in the same chat what fails, ask to fix it; keep the last answer."""
    pattern, tries = _pattern(task), list[Try]()
    turns = _opening(task)
    for number in range(CALLS):
        reply = await model(ChatRequest(turns))
        evaluation = await pattern.reflect(reply.text)
        tries.append(_plain_try(reply, evaluation, number, _how(reply, tries, "fix" if number else "draft")))
        if evaluation.satisfactory:
            break
        issues = "\n".join(f"- {issue}" for issue in evaluation.issues)
        turns = (*turns, Message("assistant", reply.text), Message("user", FIX.format(issues=issues)))
    return Outcome(task.name, "greedy", _ending(tries), tries)


async def sampling(task: BenchTask, model: ChatModel) -> Outcome:
    """Ask the same again and again at a temperature; keep the first answer with the best visible score."""
    pattern, tries, best = _pattern(task), list[Try](), 0
    for number in range(CALLS):
        reply = await model(ChatRequest(_opening(task), temperature=TEMPERATURE))
        evaluation = await pattern.reflect(reply.text)
        if number and (evaluation.overall_score or 0.0) > (tries[best].score or 0.0):
            best = number
        tries.append(_plain_try(reply, evaluation, best, _how(reply, tries, "sample")))
        if evaluation.satisfactory:
            tries[-1] = replace(tries[-1], returned=number)
            break
    return Outcome(task.name, "sampling", _ending(tries), tries)


def _plain_try(reply: ChatReply, evaluation: ReflectionEvaluation, returned: int, how: str) -> Try:
    used = reply.usage
    return Try(
        reply.text,
        used.requests,
        used.input_tokens,
        used.output_tokens,
        evaluation.overall_score,
        evaluation.satisfactory,
        returned,
        how,
    )


def _how(reply: ChatReply, before: list[Try], how: str) -> str:
    same = any(each.output.strip() == reply.text.strip() for each in before)
    return "repeat" if same else how


def _pattern(task: BenchTask) -> ReflectionPattern:
    return ReflectionPattern(max_iterations=CALLS - 1, quality_criteria=task.criteria)


def _opening(task: BenchTask) -> tuple[Message, ...]:
    return (Message("system", SYSTEM), Message("user", task.prompt))


def _ending(tries: list[Try]) -> str:
    return "quality_met" if tries[-1].met else "max_iterations"


ARMS: dict[str, Arm] = {"loop": loop, "greedy": greedy, "sampling": sampling}


async def outcomes_of(task: BenchTask, arms: Iterable[str], model: ChatModel) -> AsyncIterator[Outcome]:
    """Run arms on a task one by one; when each is done, let the hidden check say what it solved."""
    solved: dict[str, bool] = {}
    for arm in arms:
        outcome = await ARMS[arm](task, model)
        for each in outcome.tries:
            if each.output not in solved:
                solved[each.output] = each.met if task.hidden is None else await task.hidden(each.output)
        yield replace(outcome, tries=[replace(each, solved=solved[each.output]) for each in outcome.tries])
