"""A project in which every part of Redraft has stored something about some people."""

from datetime import date

import psycopg

from redraft import Agent, Ensemble, QualityCriterion, ReflectionPattern, ScriptedModel, Task
from redraft.cycles import Agents
from redraft.integrations.hook_sessions import CodingSession, CodingTurn, Sessions
from redraft.lessons.lesson import Failure, Lesson
from redraft.lessons.library import LessonLibrary
from redraft.lessons.rules import Rules
from redraft.loop import EventLog
from redraft.notes.note import TaskReflection
from redraft.notes.store import NoteStore
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.types import PlainTask
from support.monitor import World, monitor

PERSON, OTHER = "z\u00ebphyr quokka", "z\u00ebphyr wombat"
"""What no redactor takes for a name."""
DAY = date(2026, 11, 20)


async def fill(folder, *people):
    """Have every part of Redraft store something about some people."""
    store = project_store()
    library = LessonLibrary()
    for number, person in enumerate(people):
        slug = person.split()[1].lower()
        with EventLog(folder / "events.jsonl") as log:
            criteria = [QualityCriterion("name", evaluator="regex", evaluator_config={"pattern": "Dear"})]
            pattern = ReflectionPattern(quality_criteria=criteria, max_iterations=1, on_event=log)
            replies = [f"To {person}", f"Dear {person}"]
            await Agent(ScriptedModel(replies), pattern=pattern, name="clerk").run(
                f"Write to {person}.", run_id=f"letter-{slug}"
            )
        thanks = Task(f"Thank {person}.", name=f"thanks-{slug}", model=ScriptedModel([f"Thanks, {person}"]))
        ensemble = Ensemble(tasks=[thanks])
        await ensemble.run(run_id=f"thanks-{slug}")
        task = PlainTask(f"Greet customer {number}.")
        notes = NoteStore(store)
        await notes.append(task, TaskReflection("Greet by name.", "One line."), run_id="first")
        await notes.append(task, TaskReflection(f"Greet {person} by name.", "One line."), run_id="second")
        what = f"{person} was to be {('invoiced', 'reminded of the fair in Trieste')[number]}."
        wrong = ("It was sent twice.", "Nothing arrived before the last day of October.")[number]
        rule = ("Keep the number of the order.", "Ask for a receipt of each letter.")[number]
        content = Failure(what, wrong, "Nobody looked.", rule, "Not known.")
        lesson = Lesson(content, "clerk", DAY, f"Invoice {person}", task=what, source=f"letter-{slug}")
        filed, _ = await library.add(lesson)
        await library.rate(filed.id, helped=True)
        Rules(library.documents, "clerk").add(
            f"If {person} {('writes', 'is late')[number]} then {rule.lower()}", filed.id
        )
        await library.search("Invoice")
        await store.put(Record("attempt", f"attempt-{slug}", {"task": {"description": person}}))
        Sessions().save(CodingSession(f"claude-{slug}", turns=[CodingTurn(person)]))
        (folder / f"{slug}.txt").write_text(f"Dear {person}")
    async with monitor(World(), storage="project") as agent:
        await agent.run_cycle()
        handle = await Agents().get("monitor")
        for person in people:
            await handle.send_feedback("approve", f"{person} says so")
        await agent.run_cycle()
        await handle.aclose()
    await library.aclose()
    await store.aclose()


def stored_with(folder, word, url=None):
    """The files of a project, and the tables of its database, in which a word is, as bytes."""
    word = word.lower()
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = [str(path.relative_to(folder)) for path in files if word.encode() in path.read_bytes().lower()]
    found += [str(path.relative_to(folder)) for path in folder.rglob(f"*{word}*")]
    if url is not None:
        with psycopg.connect(url) as connection:
            tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'redraft%'"
            for (table,) in connection.execute(tables).fetchall():
                sql = f"SELECT count(*) FROM {table} AS t WHERE strpos(lower(t::text), %s) > 0"  # noqa: S608 (of our own)
                if connection.execute(sql, (word,)).fetchone()[0]:
                    found.append(table)
    return sorted(set(found))
