"""Runs as tasks of Taskiq, with Redis.

Start workers with `taskiq worker taskiq_tasks:broker --ack-type when_executed`. Submit with
`await answer.kiq("Thank the customer of order 17.", "order-17")`. Only brokers that acknowledge, such as
this one, give a dead worker's tasks to others. This one (taskiq-redis 1.2) looks for them whenever a new task
arrives, so one `taskiq scheduler taskiq_tasks:scheduler` sends a tick each minute.
"""

import os

from app import LONGEST_RUN, answer_of, clerk
from taskiq import SmartRetryMiddleware, TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

broker = (
    RedisStreamBroker(
        os.environ["REDIS_URL"], idle_timeout=LONGEST_RUN * 1000, unacknowledged_lock_timeout=10
    )
    .with_result_backend(RedisAsyncResultBackend(os.environ["REDIS_URL"]))
    .with_middlewares(SmartRetryMiddleware(default_retry_count=5, use_delay_exponent=True))
)
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])


@broker.task(retry_on_error=True)
async def answer(task: str, run_id: str) -> str:
    return answer_of(await clerk.run(task, run_id=run_id))


@broker.task(schedule=[{"cron": "* * * * *"}])
async def tick() -> None:
    """Make workers look for the tasks of dead ones."""
