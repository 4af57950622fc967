"""What a loop costs beyond the user's own functions: `reflect`, a bare asyncio loop and agno, in CPU time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any

import jsonschema_rs
from _measure import median_gap, options, paired, publish, table, verdict

from redraft import QualityCriterion, ReflectionPattern, reflect

if TYPE_CHECKING:
    from redraft import ReflectionVersion

TARGET = 3.0
"""How many times as much CPU time the peer must take, for the same functions."""

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
DRAFTS = ('{"name": "Ada"}', '{"name": "Ada", "age": "36"}', '{"name": "Ada", "age": 36}')
SCORES = (0.3, 0.6, 0.9)
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)

Verdict = tuple[float, str]


@dataclass(frozen=True)
class Case:
    """One task for both loops: the functions, what `reflect` is given beside them, and when bare stops."""

    generate: Callable[[str], Awaitable[str]]
    evaluate: Callable[[str], Awaitable[Verdict]]
    revise: Callable[[str, Any], Awaitable[str]]
    pattern: ReflectionPattern
    versions: int = len(DRAFTS)
    own_rule: bool = False
    judged_by_pattern: bool = False
    beside_peer: bool = False


async def generate_json(_prompt: str) -> str:
    return DRAFTS[0]


async def revise_json(output: str, _evaluation: object) -> str:
    return DRAFTS[DRAFTS.index(output) + 1]


async def check_schema(output: str) -> Verdict:
    """Check for task A whether the output follows the schema."""
    error = next(VALIDATOR.iter_errors(json.loads(output)), None)
    return (1.0, "") if error is None else (0.0, error.message)


async def judge(output: str) -> Verdict:
    """Give a judge's score for task B."""
    return SCORES[DRAFTS.index(output)], "could be better"


async def generate_first(_prompt: str) -> str:
    return "1"


async def revise_next(output: str, _evaluation: object) -> str:
    return str(int(output) + 1)


async def judge_long(output: str) -> Verdict:
    """Give a score that always grows and never suffices."""
    return int(output) / 1000, f"{output} is not enough"


def never(_versions: object) -> None:
    """Stop by no rule of its own; the maximum ends the run."""


LONG = 100
SCHEMA_CRITERION = QualityCriterion("shape", evaluator="schema", evaluator_config={"schema": SCHEMA})
# Gains stay below the default threshold here, and the rule has to run all the same.
PATIENT = ReflectionPattern(max_iterations=LONG - 1, improvement_threshold=0.0)

CASES = {
    "A: JSON schema in `evaluate`": Case(
        generate_json, check_schema, revise_json, ReflectionPattern(), beside_peer=True
    ),
    'A: `evaluator="schema"`': Case(
        generate_json,
        check_schema,
        revise_json,
        ReflectionPattern(quality_criteria=[SCHEMA_CRITERION]),
        judged_by_pattern=True,
    ),
    "B: judge's score": Case(generate_json, judge, revise_json, ReflectionPattern(), beside_peer=True),
    "100 versions, default rules": Case(generate_first, judge_long, revise_next, PATIENT, LONG),
    "100 versions, a rule of one's own": Case(
        generate_first,
        judge_long,
        revise_next,
        ReflectionPattern(max_iterations=LONG - 1),
        LONG,
        own_rule=True,
    ),
}


async def bare(case: Case) -> list[tuple[str, float, str]]:
    """Do the same with a loop as one writes it by hand, which keeps its versions."""
    versions: list[tuple[str, float, str]] = []
    draft = await case.generate("task")
    while True:
        score, why = await case.evaluate(draft)
        versions.append((draft, score, why))
        if score >= 0.8 or len(versions) == case.versions:
            return versions
        draft = await case.revise(draft, why)


async def redrafted(case: Case) -> tuple[ReflectionVersion, ...]:
    """Do it with `reflect`."""
    result = await reflect(
        "task",
        generate=case.generate,
        evaluate=None if case.judged_by_pattern else case.evaluate,
        revise=case.revise,
        pattern=case.pattern,
        until=never if case.own_rule else None,
    )
    return result.history.versions


async def by_agno(case: Case) -> list[str]:
    """Do it with a workflow of agno, the cheapest of the peers that keep a run: a loop of two functions."""
    from agno.workflow import Loop, StepInput, StepOutput, Workflow

    drafts: list[str] = []
    verdicts: list[Verdict] = []

    async def draft(_step_input: StepInput) -> StepOutput:
        made = await case.revise(drafts[-1], verdicts[-1]) if drafts else await case.generate("task")
        drafts.append(made)
        return StepOutput(content=made)

    async def check(step_input: StepInput) -> StepOutput:
        verdicts.append(await case.evaluate(str(step_input.previous_step_content)))
        return StepOutput(content=verdicts[-1][1], success=verdicts[-1][0] >= 0.8)

    loop = Loop(
        steps=[draft, check],
        max_iterations=case.versions,
        end_condition=lambda _outputs: verdicts[-1][0] >= 0.8,
    )
    await Workflow(name="redraft", steps=[loop], telemetry=False).arun(input="task")
    return drafts


def repeated(loop: Callable[[Case], Awaitable[Any]], case: Case, times: int) -> None:
    """Run a loop so many times in a row inside one event loop."""

    async def run() -> None:
        for _ in range(times):
            await loop(case)

    asyncio.run(run())


def measure(case: Case, pairs: int, versions: int) -> tuple[float, float, float, float | None]:
    """Return microseconds a loop: the bare one's, `reflect`'s, the median gap of these, and the peer's."""
    peer = case.beside_peer and find_spec("agno") is not None
    contestants = (bare, redrafted, by_agno) if peer else (bare, redrafted)
    for loop in contestants:
        made = len(asyncio.run(loop(case)))
        assert made == case.versions, f"{loop.__name__} made {made} versions instead of {case.versions}"
    loops = max(1, versions // case.versions)
    subjects = {loop.__name__: partial(repeated, loop, case, loops) for loop in contestants}
    times = paired(subjects, pairs)
    scale = 1e6 / loops
    gap = median_gap(times["redrafted"], times["bare"])
    theirs = median(times["by_agno"]) * scale if peer else None
    return median(times["bare"]) * scale, median(times["redrafted"]) * scale, gap * scale, theirs


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=11, help="how often each side is timed")
    parser.add_argument("--versions", type=int, default=9000, help="versions made in each timing")
    given = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    for name, case in CASES.items():
        floor, ours, gap, theirs = measure(case, given.pairs, given.versions)
        rows.append(
            (
                name,
                case.versions,
                f"{floor:.0f}",
                f"{ours:.0f}",
                f"{ours / floor:.1f}",
                f"{gap / case.versions:.1f}",
                "" if theirs is None else f"{theirs:.0f}",
                "" if theirs is None else f"{theirs / ours:.1f}",
                "" if theirs is None else f"{TARGET:.0f} {verdict(TARGET, theirs / ours)}",
            )
        )
    head = (
        "CPU microseconds",
        "versions",
        "bare loop",
        "reflect",
        "ratio",
        "over bare per version",
        "agno",
        "agno / reflect",
        "at least",
    )
    publish("overhead", f"{table(head, rows)}\n\n{about_the_peer()}", write=given.write)


def about_the_peer() -> str:
    """Name the version of the peer that was measured, or say that there was none."""
    try:
        return f"The peer is agno {version('agno')}."
    except PackageNotFoundError:
        return "agno is not installed, so it was not measured: `make bench` installs it."


if __name__ == "__main__":
    main()
