"""Runs as tasks of Celery, with Redis.

Start workers with `celery --app celery_tasks worker`. Submit with
`answer.delay("Thank the customer of order 17.", "order-17")`. If a process of the pool dies, Celery queues
its task again immediately; if the machine dies, Redis gives it back after the visibility timeout.
"""

import os

from app import LONGEST_RUN, answer_of, clerk
from celery import Celery

from redraft import ModelError
from redraft.errors import StoreError

app = Celery("orders", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_transport_options = {"visibility_timeout": LONGEST_RUN}


@app.task(autoretry_for=(ModelError, StoreError), retry_backoff=True, max_retries=5)
def answer(task, run_id):
    return answer_of(clerk.run_sync(task, run_id=run_id))
