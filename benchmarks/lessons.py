"""What it costs to find lessons among 100,000 of 100 agents, archives included."""

from __future__ import annotations

import asyncio
import os
import random
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple

from _measure import options, publish, table, verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from redraft.lessons.index import LessonIndex
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.ranking import LessonQuery
    from redraft.models.embed import NamedEmbedder

ACTIVE = 30
"""Lessons of an agent that are not in its archive."""
NEW = 1_000
QUESTIONS = 60
TYPES = ("web scraping", "code_generation", "writing", "analysis", "reasoning", "data entry", "booking")
TOOLS = ("http_get", "run_tests", "search_flights", "read_file", "sql_query", "send_mail")
COLD = 15
"""First searches of an index that are measured."""
TARGETS = {"one agent": 5.0, "all agents": 100.0}
"""Milliseconds by the clock that a warm recall may take."""


def made_sentences(rng: random.Random, count: int = 4_000) -> list[str]:
    """Return sentences out of 20,000 words, some of which are in most sentences and most in few."""
    parts = [first + last for first in "bcdfglmnprst" for last in ("a", "e", "i", "o", "u", "ar", "en", "ol")]
    words = ["".join(one) for one in product(parts, parts, parts[:3])][:20_000]
    rng.shuffle(words)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    return [" ".join(rng.choices(words, weights, k=rng.randint(8, 16))).capitalize() for _ in range(count)]


def made_lesson(rng: random.Random, sentences: Sequence[str], agent: str, number: int) -> Lesson:
    from redraft.lessons.lesson import Failure, Lesson

    task, happened, wrong, why, differently, rule = (f"{one}." for one in rng.choices(sentences, k=6))
    return Lesson(
        Failure(happened, f"{wrong} E{rng.randrange(10_000)}", why, differently, rule),
        agent=agent,
        day=date(2023, 1, 1) + timedelta(days=number),
        summary=task[:40],
        task=task,
        task_type=rng.choice(TYPES),
        tools=(rng.choice(TOOLS),),
        error=f"Error E{rng.randrange(10_000)}",
    )


def write_lessons(path: Path, agents: int, each: int) -> list[str]:
    """Write the files of so many lessons, all but 30 of each agent in its archive; return some tasks."""
    from redraft.lessons.markdown import render

    rng = random.Random(7)
    sentences = made_sentences(rng)
    for place in range(agents):
        agent = f"agent-{place:03}"
        for number in range(each):
            lesson = made_lesson(rng, sentences, agent, number)
            folder = path / "reflections" / agent
            if number < each - ACTIVE:
                folder = folder / "archive" / str(lesson.day.year)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{lesson.day}-lesson-{number}.md").write_text(render(lesson), "utf-8")
    return rng.choices(sentences, k=QUESTIONS)


def write_more(path: Path, agents: int) -> None:
    from redraft.lessons.markdown import render

    rng = random.Random(8)
    sentences = made_sentences(rng)
    for number in range(NEW):
        agent = f"agent-{number % agents:03}"
        lesson = made_lesson(rng, sentences, agent, 1_500)
        file = path / "reflections" / agent / f"{lesson.day}-new-{number}.md"
        file.write_text(render(lesson), "utf-8")


def questions(tasks: Iterable[str], agent: str | None) -> list[LessonQuery]:
    """Return queries with the words of a task, its type, a tool and an error code."""
    from redraft.lessons.ranking import LessonQuery

    rng = random.Random(9)
    return [
        LessonQuery(
            task,
            task_type=rng.choice(TYPES),
            tools=(rng.choice(TOOLS),),
            error=f"E{rng.randrange(10_000)}",
            agent=agent,
        )
        for task in tasks
    ]


class Took(NamedTuple):
    """Seconds by the clock, and of CPU, all threads and the system's share included."""

    clock: float
    cpu: float

    def row(self, name: str) -> tuple[object, ...]:
        """Return the row of a table, in seconds."""
        return name, f"{self.clock:.1f}", f"{self.cpu:.1f}"


async def took(work: Awaitable[object]) -> Took:
    clock, cpu = perf_counter(), process_time()
    await work
    return Took(perf_counter() - clock, process_time() - cpu)


def middle(times: Sequence[Took]) -> Took:
    return Took(*map(median, zip(*times, strict=True)))


async def warm(index: LessonIndex, asked: Sequence[LessonQuery]) -> list[Took]:
    """Return what each search takes whose question was embedded before."""
    for query in asked:
        await index.search(query)
    return [await took(index.search(query)) for query in asked]


async def cold(path: Path, embedder: NamedEmbedder | None, asked: Sequence[LessonQuery]) -> list[Took]:
    """Return what the first search takes of an index that has nothing in memory yet."""
    from redraft.lessons.index import LessonIndex

    times: list[Took] = []
    for query in asked:
        index = LessonIndex(path, embedder)
        times.append(await took(index.search(query)))
    return times


async def recall(path: Path, tasks: Sequence[str], embedder: NamedEmbedder) -> list[tuple[object, ...]]:
    """Time every kind of search, warm and cold."""
    from redraft.lessons.index import LessonIndex

    rows: list[tuple[object, ...]] = []
    for what, used in (("vectors", embedder), ("full text alone", None)):
        index = LessonIndex(path, used)
        for who, agent in (("one agent", "agent-007"), ("all agents", None)):
            asked = questions(tasks, agent)
            times = (await warm(index, asked), await cold(path, used, asked[:COLD]))
            warm_ms, cold_ms = (middle(each).clock * 1e3 for each in times)
            target = f"{TARGETS[who]:g} {verdict(warm_ms, TARGETS[who])}"
            rows.append((f"{what}, {who}", f"{warm_ms:.1f}", target, f"{cold_ms:.1f}"))
    return rows


async def scale(path: Path, agents: int, each: int) -> str:
    """Make the files and the index, and measure both ends."""
    from redraft.lessons.index import LessonIndex
    from redraft.models.embed import ScriptedEmbedder

    tasks = write_lessons(path, agents, each)
    embedder = ScriptedEmbedder(384)
    index = LessonIndex(path, embedder)
    rows = [
        (await took(index.refresh())).row("building the index from the files"),
        (await took(index.refresh())).row("scanning all files, none changed"),
    ]
    write_more(path, agents)
    rows += [
        (await took(index.refresh())).row(f"adding {NEW:,} files"),
        (await took(index.fill())).row("vectors for all, with the scripted embedder"),
    ]
    searches = await recall(path, tasks, embedder)
    return "\n\n".join(
        [
            table((f"{agents * each:,} lessons of {agents} agents, seconds", "clock", "CPU"), rows),
            table(("recall, milliseconds", "warm", "target", "cold"), searches),
        ]
    )


def busy() -> str:
    """Say how busy the machine was, which the clock shows and the CPU time hardly does."""
    load = os.getloadavg()[2]
    return f"Processes that wanted one of the {os.cpu_count()} cores meanwhile, on average: {load:.1f}."


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--each", type=int, default=1_000, help="lessons of an agent, its archive included")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = asyncio.run(scale(Path(folder), given.agents, given.each))
    publish("lessons", f"{found}\n\n{busy()}", write=given.write)


if __name__ == "__main__":
    main()
