"""Excerpt: of a run with many versions those that its page shows whole, of the others what tables say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from redraft.loop.runs import timeline

if TYPE_CHECKING:
    from collections.abc import Collection

    from redraft.loop.record import RunRecord
    from redraft.loop.runs import KeptRun, KeptStep

MOST = 20
"""Versions that a page shows whole. Of 200, their outputs and prompts are megabytes, which nobody reads, and
to compare each with the one before takes as long as the run."""
SAID = ("output", "conversation")
"""What a step's result holds of what was said."""


def whole_versions(record: RunRecord) -> frozenset[int]:
    """Return the numbers of the versions to show whole: the first, the best, the newest."""
    numbers = [version.iteration for version in record.versions]
    if len(numbers) <= MOST:
        return frozenset(numbers)
    best = {record.best} if record.best is not None else set[int]()
    return frozenset({numbers[0], *best, *numbers[len(best) + 1 - MOST :]})


def excerpt(run: KeptRun) -> KeptRun:
    """Return a run without what was said in and about the versions that are not shown whole."""
    record = run.record
    whole = whole_versions(record)
    if len(whole) == len(record.versions):
        return run
    steps: list[KeptStep] = []
    for stretch in timeline(run):
        if stretch.version is None or stretch.version in whole or stretch.version > len(record.versions):
            steps += [*stretch.inner, stretch.step]
        else:
            steps.append(replace(stretch.step, result=_unsaid(stretch.step.result)))
    return replace(run, record=saying_only(record, whole), steps=tuple(steps))


def saying_only(record: RunRecord, whole: Collection[int]) -> RunRecord:
    """Return a run of which only the versions with these numbers say anything.

    What is not shown needs not be looked through for secrets, which of megabytes takes long.
    """
    versions = tuple(
        one if one.iteration in whole else replace(one, output="", conversation=None)
        for one in record.versions
    )
    return replace(record, versions=versions, draft=None)


def _unsaid(result: Any) -> Any:
    """Return the result of a step without what was said: what it used is still counted."""
    if not isinstance(result, dict):
        return result
    return {name: "" if name in SAID else value for name, value in cast("dict[str, Any]", result).items()}
