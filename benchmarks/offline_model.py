"""The default loop on a real model, beside greedy revision and best of N at the same number of calls.

`--tasks small` runs our own small tasks, `--tasks humaneval` every fourth task of HumanEval. Results go to
`--out` as they come, one line for each task and arm; finished ones are not run again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _measure import PROJECT, options, publish, table
from _model import model_given, model_options
from humaneval import FILE, humaneval_tasks
from small_tasks import TASKS

from redraft import Agent, ChatRequest, Message, ReflectionEvaluation, ReflectionPattern
from redraft.loop.select import select
from redraft.loop.stop import same_issue

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from _tasks import BenchTask

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


STOPPED_WELL = frozenset(
    {"quality_met", "plateau", "oscillation", "diminishing", "semantic_stability", "repeated_issues"}
)


def by_arm(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Outcome]]:
    """Sort outcomes by arm and task."""
    arms: dict[str, dict[str, Outcome]] = {}
    for outcome in outcomes:
        arms.setdefault(outcome.arm, {})[outcome.task] = outcome
    return arms


def solved_within(outcome: Outcome, calls: int) -> bool:
    """Say whether what an arm would return after so many calls passes the hidden check."""
    made, last = 0, None
    for each in outcome.tries:
        made += each.requests
        if made > calls:
            break
        last = each
    return last is not None and outcome.tries[last.returned].solved


def arms_table(outcomes: Sequence[Outcome]) -> str:
    """Show for each arm what it solved after 1, 2, 3 calls, and what that took."""
    rows: list[tuple[object, ...]] = []
    for name, found in by_arm(outcomes).items():
        tries = [each for outcome in found.values() for each in outcome.tries]
        solved = [
            sum(solved_within(outcome, calls) for outcome in found.values()) for calls in range(1, CALLS + 1)
        ]
        met = sum(outcome.tries[-1].met for outcome in found.values())
        tokens = sum(each.input_tokens + each.output_tokens for each in tries)
        per_solved = f"{tokens / solved[-1]:,.0f}" if solved[-1] else "none solved"
        calls = sum(each.requests for each in tries)
        same = sum(each.how == "repeat" for each in tries)
        rows.append((name, len(found), *solved, met, calls, same, f"{tokens:,}", per_solved))
    after = [f"after {calls} call{'s' * (calls > 1)}" for calls in range(1, CALLS + 1)]
    head = (
        "arm", "tasks", *(f"solved {text}" for text in after),
        "visible met", "calls", "changed nothing", "tokens", "tokens per solved",
    )  # fmt: skip
    return table(head, rows)


def pairs_table(outcomes: Sequence[Outcome]) -> str:
    """Compare the loop with the other arms, task by task."""
    arms = by_arm(outcomes)
    ours = arms.pop("loop", {})
    rows: list[tuple[object, ...]] = []
    for name, theirs in arms.items():
        both = sorted(ours.keys() & theirs.keys())
        won = [(solved_within(ours[task], CALLS), solved_within(theirs[task], CALLS)) for task in both]
        only_ours = [task for task, (we, they) in zip(both, won, strict=True) if we and not they]
        only_theirs = [task for task, (we, they) in zip(both, won, strict=True) if they and not we]
        difference = len(only_ours) - len(only_theirs)
        rows.append((f"loop, {name}", len(both), _named(only_ours), _named(only_theirs), f"{difference:+d}"))
    return table(("pair", "tasks", "only the loop solved", "only the other solved", "difference"), rows)


def _named(tasks: Sequence[str]) -> str:
    return f"{len(tasks)}: {', '.join(tasks)}" if tasks else "0"


def criteria_table(outcomes: Sequence[Outcome]) -> str:
    """Show the five success criteria of a loop, taken on the loop's arm; none of them is a gate."""
    runs = list(by_arm(outcomes).get("loop", {}).values())
    revised = [run for run in runs if not run.tries[0].met]
    better = [run for run in revised if _score(_returned(run)) > _score(run.tries[0])]
    met = [run for run in runs if _returned(run).met]
    changes = [each for run in runs for each in run.tries[1:]]
    asked, mended = sum(each.asked for each in changes), sum(each.mended for each in changes)
    tries = [each for run in runs for each in run.tries]
    twice = [each for each in tries if each.how != "repeat"]
    alike = [each for each in twice if abs(_score(each) - (each.judged_again or 0.0)) <= 0.1]
    late = [run for run in runs if any(each.met for each in run.tries[:-1])]
    well = [run for run in runs if run.reason in STOPPED_WELL]
    ended = sorted(Counter(run.reason for run in runs).items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(f"{reason} {count}" for reason, count in ended)
    rows = (
        (
            "Quality improvement: the returned version scores above the first",
            "80 %",
            _share(len(better), len(runs)),
        ),
        ("... of the runs whose first draft was not satisfactory", "", _share(len(better), len(revised))),
        ("Convergence: satisfactory within 3 versions", "70 %", _share(len(met), len(runs))),
        (
            "... of the runs whose first draft was not satisfactory",
            "",
            _share(len(met) - (len(runs) - len(revised)), len(revised)),
        ),
        ("Issue resolution: issues that the next version no longer has", "85 %", _share(mended, asked)),
        ("Evaluation consistency: a second judgement is within 0.1", "", _share(len(alike), len(twice))),
        ("Efficient termination: ended by quality or a plateau", "90 %", _share(len(well), len(runs))),
        ("... no version was made after a satisfactory one", "", _share(len(runs) - len(late), len(runs))),
    )
    return f"{table(('success criterion', 'target', 'loop'), rows)}\n\nThe loop ended by: {reasons}."


def _returned(run: Outcome) -> Try:
    return run.tries[run.tries[-1].returned]


def _score(each: Try) -> float:
    return each.score or 0.0


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "none"


AT_ONCE = 4
"""How many tasks run at once where a cassette answers."""


async def run(
    tasks: Iterable[BenchTask],
    arms: Sequence[str],
    model: ChatModel,
    *,
    done: Sequence[Outcome] = (),
    keep: Callable[[Outcome], None] = lambda _: None,
    at_once: int = 1,
) -> list[Outcome]:
    """Run the arms on the tasks that are not done, each outcome handed to `keep` as it comes; return all.

    `at_once` tasks run at the same time, which pays where no model but only the jail is waited for.
    """
    known = {(outcome.task, outcome.arm) for outcome in done}
    slots = asyncio.Semaphore(at_once)

    async def run_task(task: BenchTask) -> list[Outcome]:
        left = [arm for arm in arms if (task.name, arm) not in known]
        found: list[Outcome] = []
        async with slots:
            async for outcome in outcomes_of(task, left, model):
                keep(outcome)
                found.append(outcome)
        return found

    return [*done, *chain.from_iterable(await asyncio.gather(*map(run_task, tasks)))]


def keeper(out: Path | None) -> Callable[[Outcome], None]:
    """Return what tells of an outcome on stderr, and appends it to a file."""

    def keep(outcome: Outcome) -> None:
        tries = (f"{each.how}:{'-+'[each.met]}{'-+'[each.solved]}" for each in outcome.tries)
        print(f"{outcome.task:24} {outcome.arm:9} {' '.join(tries)}", file=sys.stderr, flush=True)
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(outcome.to_json()) + "\n")

    return keep


def outcomes_in(file: Path) -> list[Outcome]:
    """Read the outcomes that a file holds."""
    return (
        [outcome_from(json.loads(line)) for line in file.read_text().splitlines()] if file.is_file() else []
    )


def report(outcomes: list[Outcome]) -> str:
    """Render all figures."""
    return "\n\n".join([arms_table(outcomes), pairs_table(outcomes), criteria_table(outcomes)])


def parsed() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--tasks", choices=("humaneval", "small"), default="small")
    parser.add_argument("--arms", default=",".join(ARMS), help="which arms, comma-separated")
    parser.add_argument("--limit", type=int, help="how many tasks")
    parser.add_argument(
        "--data", type=Path, default=PROJECT.parent / "shared" / "data", help="HumanEval's folder"
    )
    model_options(parser)
    parser.add_argument("--out", type=Path, help="append outcomes to this file, and skip those it has")
    return parser.parse_args()


def main() -> None:
    given = parsed()
    arms = given.arms.split(",")
    if unknown := [arm for arm in arms if arm not in ARMS]:
        sys.exit(f"Unknown arms {unknown}; choose out of {list(ARMS)}.")
    if given.tasks == "humaneval" and not (given.data / FILE).is_file():
        print(f"SKIPPED HumanEval: there is no {given.data / FILE}; name its folder with --data.")
        return
    tasks = list(TASKS) if given.tasks == "small" else humaneval_tasks(given.data)
    tasks = tasks[: given.limit]
    done = outcomes_in(given.out) if given.out else []
    names = {task.name for task in tasks}
    done = [outcome for outcome in done if outcome.task in names and outcome.arm in arms]
    complete = len(done) == len(tasks) * len(arms)
    model = None if complete else model_given(given)
    if model is None:
        outcomes = done
    else:
        at_once = AT_ONCE if given.cassette else 1
        outcomes = asyncio.run(run(tasks, arms, model, done=done, keep=keeper(given.out), at_once=at_once))
    publish(f"offline-{given.tasks}", report(outcomes), write=given.write)


if __name__ == "__main__":
    main()
