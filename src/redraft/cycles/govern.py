"""Govern: hold the plan against constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.cycles.governance import admit, judge, judge_plan
from redraft.cycles.planned import planned

if TYPE_CHECKING:
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_reason import Govern


async def govern(substage: Govern, cycle: Cycle) -> None:
    """Write the violations into `derivedData.governance`, and the ids of the actions that stay approved.

    A constraint that speaks of an `action` is held against each, any other against the plan as a whole: one
    that blocks then blocks all of it. What is recorded only, blocks nothing.
    """
    admit(cycle)
    judge_plan(substage.config.constraints, cycle)
    judge(planned(cycle), substage.config.constraints, cycle)
