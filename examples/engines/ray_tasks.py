"""Runs as tasks of Ray; the arguments are the numbers of orders.

Ray tries again on another worker or node, as long as the program that submitted the tasks is alive. If that
dies, too, start it again with the same ids: finished runs are returned, and the others continue.
"""

import sys

import ray
from app import answer_of, clerk

from redraft import ModelError
from redraft.errors import StoreError


@ray.remote(max_retries=5, retry_exceptions=[ModelError, StoreError])
def answer(task, run_id):
    return answer_of(clerk.run_sync(task, run_id=run_id))


if __name__ == "__main__":
    ray.init()
    tasks = [
        answer.remote(f"Thank the customer of order {number}.", f"order-{number}") for number in sys.argv[1:]
    ]
    for text in ray.get(tasks):
        print(text)
