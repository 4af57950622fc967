"""Agents that learn, for tests: their lessons, a model that reflects, and runs with a given score."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from redraft import MemoryStore, ReflectionPattern, ScriptedModel, reflect
from redraft.lessons.lessons import Lessons
from redraft.models.embed import ScriptedEmbedder
from redraft.types import PlainTask

START = datetime(2026, 3, 1, 10, 15, tzinfo=UTC)
TASK = PlainTask("Fetch the price list of the shop.", task_type="web scraping", tools=("http_get",))
OTHER = PlainTask("Fetch the stock of the shop.", task_type="web scraping")
REPLY = {
    "what_happened": "The price list was to be fetched; nothing came back.",
    "what_went_wrong": "http_get gave E4031 on page 3.",
    "why": "The API wants a cursor, not a page number.",
    "do_differently": "Ask for next_cursor and pass it on.",
    "rule": "Read how an API pages before asking for the second page.",
    "systemic": False,
    "principle": "",
    "strategy_to_replay": "",
    "steps_to_replay": [],
}
SYSTEMIC = REPLY | {
    "systemic": True,
    "principle": "IF http_get answers E4031 THEN pass next_cursor on.",
    "strategy_to_replay": "Pages by their numbers, which the API does not have.",
    "steps_to_replay": ["Call http_get.", "Call it again with page=2."],
}


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def pass_time(self, **how_long):
        self.now += timedelta(**how_long)


def writer(reply=REPLY):
    """A model that always gives the same reply."""
    return ScriptedModel(lambda request: reply)


@asynccontextmanager
async def learning(path, **choices):
    """Open lessons under a path, by default without a model."""
    defaults = {"embedder": ScriptedEmbedder(), "store": MemoryStore(), "clock": Clock()}
    lessons = Lessons(path, **(defaults | choices))
    try:
        yield lessons
    finally:
        await lessons.aclose()


async def run(lessons, score, task=TASK, prompts=None):
    """Run a task once, with a score, or with that of its prompt."""
    asked = [] if prompts is None else prompts

    def generate(prompt):
        asked.append(prompt)
        return "made"

    def evaluate(output):
        return score(asked[-1]) if callable(score) else score

    pattern = ReflectionPattern(max_iterations=0, advisors=[lessons])
    return await reflect(task, generate=generate, evaluate=evaluate, pattern=pattern)
