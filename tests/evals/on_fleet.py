"""An evaluation of the agent in `support.fleet_app`, in a process: `on_fleet.py fleet|local CASES`."""

import asyncio
import json
import sys

from redraft import EvalCase, Evaluation, QualityCriterion
from redraft.stores.location import close_project_store
from redraft.types import PlainTask
from support.fleet_app import clerk, fleet

FINISHED = QualityCriterion("finished", evaluator="regex", evaluator_config={"pattern": "draft 6"})


async def main(place, count):
    cases = [EvalCase(f"c{n}", PlainTask(f"Write item-{n}."), hidden=(FINISHED,)) for n in range(count)]
    workers = fleet if place == "fleet" else None
    report = await Evaluation(cases, clerk, run_id="e", at_once=count, fleet=workers).run()
    await fleet.aclose()
    await close_project_store()
    found = [
        (
            one.case,
            one.arm,
            one.usage.total_tokens,
            [(answer.output, answer.passed) for answer in one.answers],
        )
        for one in sorted(report.tries, key=lambda one: one.case)
    ]
    print(json.dumps({"tries": found, "differences": [one.sentence() for one in report.differences]}))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
