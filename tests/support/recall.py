"""Lessons in many scripts, and the later tasks for which they should be recalled."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TypeAlias

from redraft.lessons.folder import LessonFolder
from redraft.lessons.index import LessonIndex
from redraft.lessons.lesson import Lesson, Procedure
from redraft.lessons.ranking import LessonQuery
from redraft.models.embed import NamedEmbedder

Line: TypeAlias = tuple[str, str, str]
"""A lesson's task, what it says, and a later task."""
FOLDER = Path(__file__).parent
LINES, HELD_OUT, NAMES = "recall_lines.txt", "recall_held_out.txt", "recall_names.txt"


def recall_lines(file: str) -> dict[str, list[Line]]:
    """The lines of a file by language."""
    lines: dict[str, list[Line]] = {}
    language = ""
    for line in (FOLDER / file).read_text("utf-8").splitlines():
        if line.startswith("["):
            language = line.strip("[]")
            lines[language] = []
        elif line and not line.startswith("#"):
            task, says, later = line.split(" | ")
            lines[language].append((task, says, later))
    return lines


@dataclass(frozen=True)
class Recalled:
    """How the lessons of one agent were recalled for its later tasks."""

    first: int
    """Tasks whose lesson came first."""
    total: int
    wrong: list[int]
    """For each task, the other lessons that were given."""
    unrelated: list[int]
    """For each task, the lessons that were given when its own was missing."""


async def recalled(
    path: Path, lines: list[Line], embedder: NamedEmbedder | None, *, count_unrelated: bool = True
) -> Recalled:
    """Recall lessons for the later task of each line, with and without the lesson of that line."""
    first, wrong, unrelated = 0, list[int](), list[int]()
    everything = await _index(path / "all", lines, embedder)
    for number, (*_, later) in enumerate(lines):
        found = await everything.search(LessonQuery(later, agent="clerk"))
        summaries = [one.lesson.summary for one in found]
        first += summaries[:1] == [str(number)]
        wrong.append(len(summaries) - (str(number) in summaries))
        if count_unrelated:
            others = await _index(path / str(number), lines, embedder, without=number)
            unrelated.append(len(await others.search(LessonQuery(later, agent="clerk"))))
    return Recalled(first, len(lines), wrong, unrelated)


async def _index(
    path: Path, lines: list[Line], embedder: NamedEmbedder | None, without: int = -1
) -> LessonIndex:
    folder = LessonFolder(path, "clerk")
    for number, (task, says, _) in enumerate(lines):
        if number != without:
            content = Procedure(says, "It failed before.")
            folder.add(Lesson(content, agent="clerk", day=date(2026, 1, 1), summary=str(number), task=task))
    index = LessonIndex(path, embedder)
    await index.fill()
    return index
