"""Query and Found: what lessons are asked for, and those that answer it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from redraft.core.check import check_count
from redraft.lessons.content import LessonKind
from redraft.lessons.lesson import Lesson
from redraft.text.invisible import without_invisible


@dataclass(frozen=True, slots=True)
class Query:
    """Ask for the `k` lessons that are most relevant to a task.

    `tools` are those that the task may use, `error` what went wrong just now. `agent` is whose lessons are
    asked for: those of its task type come first, then those of its tools, then the nearest in meaning, and
    of equally near ones the newest. None asks for the lessons of all agents, by meaning first. `kinds` leaves
    only these. Reflexion Protocol, sections 5 and 7.
    """

    task: str
    task_type: str = ""
    tools: tuple[str, ...] = ()
    error: str = ""
    agent: str | None = None
    k: int = 3
    kinds: Collection[LessonKind] | None = None

    def __post_init__(self) -> None:
        check_count("k", self.k, 1)

    @property
    def text(self) -> str:
        """What is searched for, the task and what went wrong, without what no eye can see."""
        return without_invisible(f"{self.task}\n{self.error}").strip()


@dataclass(frozen=True, slots=True)
class Found:
    """Hold a lesson as its file has it now, how near it is, and in a few words why it was chosen.

    `score` is its similarity to the query (cosine, up to 1) plus up to 0.3 for names that both hold; without
    an embedder it is its share (0..1) of the full text's best score.
    """

    lesson: Lesson
    score: float
    reason: str
