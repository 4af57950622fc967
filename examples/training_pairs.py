"""Write pairs of answers for training, as for DPO: a draft that failed, and a later version that passed.

Secrets, personal data and host names are withheld. Cases of evaluations are left out: what an agent is
evaluated on must not be what it is trained on. Train on what checks decided, or a calibrated judge; other
verdicts are opinions.
"""

import asyncio
import json
from pathlib import Path

from redraft import Runs
from redraft.evals import read_cases

CASES = Path("cases.yaml")


async def pairs():
    runs, cases = Runs(), read_cases(CASES)
    evaluated = {case.run for case in cases} | {case.task.description for case in cases}
    for record in await runs.find(limit=1000):
        run = (await runs.stored(record.run_id)).redacted(to_export=True).record
        best = run.version(run.best)
        if best is None or run.task.all_images or {run.run_id, run.task.description} & evaluated:
            continue
        if best.evaluation.satisfactory and not run.versions[0].evaluation.satisfactory:
            earlier = [{"role": message.role, "content": message.content} for message in run.task.messages]
            prompt = [*earlier, {"role": "user", "content": run.task.description}]
            yield {"prompt": prompt, "chosen": best.output, "rejected": run.versions[0].output}


async def lines():
    return [json.dumps(pair, ensure_ascii=False) + "\n" async for pair in pairs()]


Path("pairs.jsonl").write_text("".join(asyncio.run(lines())), "utf-8")
