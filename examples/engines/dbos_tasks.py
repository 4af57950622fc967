"""Runs as steps of DBOS; the arguments are the numbers of orders.

DBOS recovers the workflows of an executor when a process with the same executor id (`DBOS__VMID`) starts
again, so let a supervisor restart it. Recovery by other machines needs its Conductor.
"""

import os
import sys

from app import answer_of, clerk
from dbos import DBOS, SetWorkflowID

DBOS(config={"name": "orders", "system_database_url": os.environ["DBOS_URL"]})


@DBOS.step(retries_allowed=True, max_attempts=5)
async def answer(task: str, run_id: str) -> str:
    return answer_of(await clerk.run(task, run_id=run_id))


@DBOS.workflow()
async def order(task: str, run_id: str) -> str:
    return await answer(task, run_id)


if __name__ == "__main__":
    DBOS.launch()  # continues what this executor has begun before
    for number in sys.argv[1:]:
        with SetWorkflowID(f"order-{number}"):
            DBOS.start_workflow(order, f"Thank the customer of order {number}.", f"order-{number}")
    for workflow in DBOS.list_workflows():
        print(DBOS.retrieve_workflow(workflow.workflow_id).get_result())
