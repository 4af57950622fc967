"""First drafts of a real model with what the checks ask for and without it.

The checks have no descriptions. What they ask for is withheld from the writer or stated with the task. A
local model may also be constrained to the JSON Schema of the answer, so the wording is measured without that,
and compared with patterns quoted as regular expressions. Each input gets one call, without a temperature,
and no revision.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING
from unittest.mock import patch

from _arms import Samples
from _measure import table
from _memory import Benchmark, MemoryRun, Metered, Series, families_of, mean_of
from _rows import code_version
from form_families import FREE_FAMILIES, PATTERN_FAMILIES, TUNING_FAMILIES
from note_families import NOTE_FAMILIES

from redraft import Agent, ReflectionPattern, Task
from redraft._texts import as_text
from redraft.evaluate import requirements
from redraft.evaluate.regex_words import ANY_CASE, Phrase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Sequence

    from _arms import Replies
    from _tasks import TaskFamily

    from redraft.protocols import ChatReply, ChatRequest

VERSION = 1
"""To be raised when an arm, a task or a check changes what it does."""
ARMS = ("withheld", "stated", "words", "expression")
PAIRS = (("stated", "withheld"), ("stated", "words"), ("words", "expression"))
REPORTED = NOTE_FAMILIES | FREE_FAMILIES | PATTERN_FAMILIES
FAMILIES = REPORTED | TUNING_FAMILIES
FAMILIES_OF = {
    "words": {"repairs", "packages", "parcels", "visits", *PATTERN_FAMILIES},
    "expression": {"packages", "parcels", "visits", *PATTERN_FAMILIES},
}
"""Families of the arms that need a JSON Schema or patterns; the other arms have all families."""


@contextmanager
def quoted_patterns() -> Generator[None]:
    """State patterns as regular expressions instead of in words."""

    def quoted(pattern: str, flags: str = "", about: str = "") -> Phrase:  # noqa: ARG001
        return Phrase("match", "matches", f"the regular expression `{pattern}`{ANY_CASE * ('i' in flags)}")

    with patch.object(requirements, "phrase_of", quoted):
        yield


async def without_schema(model: Metered, request: ChatRequest) -> ChatReply:
    """Call a model without constraining its reply to a schema."""
    return await model(replace(request, schema=None))


async def drafts_of(family: TaskFamily, arm: str, replies: Replies) -> AsyncIterator[MemoryRun]:
    """Draft an answer to each input."""
    criteria = family.criteria
    if arm == "withheld":
        criteria = tuple(replace(criterion, shown=False) for criterion in criteria)
    for place, values in enumerate(family.inputs, 1):
        model = Metered(Samples(replies, 1))
        task = Task(family.description.format(**values), family.expected_output)
        asked = partial(without_schema, model) if arm in FAMILIES_OF else model
        with quoted_patterns() if arm == "expression" else nullcontext():
            agent = Agent(asked, pattern=ReflectionPattern(0, criteria), keep=False)
            result = await agent.run(task)
        if result.error is not None:
            raise result.error
        [draft] = result.history.versions
        met = draft.evaluation.satisfactory
        yield model.run(
            f"{family.name}-{place}",
            arm,
            family.name,
            place,
            score=draft.evaluation.overall_score,
            met=met,
            solved=await family.solves(values, as_text(draft.output), met=met),
        )


def series(family: str, arm: str, seed: int) -> list[Series]:
    """Return the drafts of a family in an arm as one series, none for an arm that it doesn't have."""
    if family not in FAMILIES_OF.get(arm, FAMILIES):
        return []
    chosen = FAMILIES[family]
    tasks = tuple(f"{family}-{place}" for place in range(1, len(chosen.inputs) + 1))
    return [Series(tasks, arm, seed, partial(drafts_of, chosen, arm))]


# --- tables -------------------------------------------------------------------------------------------------


def report(runs: Sequence[MemoryRun]) -> str:
    """Count drafts for each family and arm, and compare the arms on all inputs, pair by pair."""
    groups = {
        family: {arm: [run for run in of_family if run.arm == arm] for arm in ARMS}
        for family, of_family in families_of(runs).items()
    }
    counts = [
        (family, arm, *_counts(drafts))
        for family, by_arm in groups.items()
        for arm, drafts in by_arm.items()
        if drafts
    ]
    family, by_arm = list(groups.items())[-1]  # all families, if there are several
    pairs = [
        (family, f"{arm} - {base}", *gains)
        for arm, base in PAIRS
        if (gains := _gains(by_arm[arm], by_arm[base]))
    ]
    head = ("family", "arm", "form met", "right", "met but wrong", "input tokens", "output tokens")
    tables = [table(head, counts)]
    if pairs:
        gain = "difference (95 %)"
        tables.append(table(("family", "pair", "inputs", f"form met, {gain}", f"right, {gain}"), pairs))
    return "\n\n".join(tables)


def _counts(drafts: Sequence[MemoryRun]) -> tuple[object, ...]:
    judged = _with_content(drafts)
    return (
        f"{sum(draft.met is True for draft in drafts)} of {len(drafts)}",
        f"{sum(draft.solved for draft in judged)} of {len(judged)}" if judged else "",
        sum(draft.met is True and not draft.solved for draft in judged) if judged else "",
        f"{fmean(draft.input_tokens for draft in drafts):.0f}",
        f"{fmean(draft.output_tokens for draft in drafts):.0f}",
    )


def _gains(drafts: Sequence[MemoryRun], base: Sequence[MemoryRun]) -> tuple[object, ...]:
    """Compare two arms on the inputs that both have."""
    base_of = {draft.task: draft for draft in base}
    pairs = [(draft, base_of[draft.task]) for draft in drafts if draft.task in base_of]
    if not pairs:
        return ()
    met = {(draft.task, draft.seed): bool(draft.met) - bool(other.met) for draft, other in pairs}
    judged = {draft.task for draft in _with_content(drafts)}
    right = {
        (draft.task, draft.seed): draft.solved - other.solved
        for draft, other in pairs
        if draft.task in judged
    }
    return len(pairs), mean_of(met, sign="+"), mean_of(right, sign="+") if right else ""


def _with_content(drafts: Sequence[MemoryRun]) -> list[MemoryRun]:
    """Return the drafts whose content is checked as well."""
    return [draft for draft in drafts if FAMILIES[draft.family].hidden is not None]


BENCHMARK = Benchmark(
    __doc__,
    "first-drafts",
    tuple(REPORTED),
    ARMS,
    lambda: code_version(VERSION),
    series,
    report,
    seeds=(1,),
    tuning=tuple(TUNING_FAMILIES),
)

if __name__ == "__main__":
    BENCHMARK.main()
