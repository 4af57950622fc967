"""Keeping: how commands keep their runs, and take one up again."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.core.settings import load_settings
from redraft.loop.keep import kept_step, run_kept
from redraft.loop.record import Origin, RunRecord
from redraft.loop.wire import given_draft, judges_of, live_run, parts_of_functions, parts_of_model
from redraft.stores.base import Store
from redraft.stores.place import project_store

if TYPE_CHECKING:
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.protocols import ChatModel
    from redraft.core.result import ReflectionResult
    from redraft.core.task import Task
    from redraft.loop.parts import Parts
    from redraft.loop.pattern import ReflectionPattern


@dataclass(frozen=True, slots=True)
class Resumed:
    """Hold the run that this process takes up again, and where it is kept."""

    record: RunRecord
    store: Store


resumed: ContextVar[Resumed | None] = ContextVar("resumed", default=None)
"""The run that a command carries out again; it then goes by the record, whatever has become of the files."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Say how a command keeps its runs: under which name, with which model, and if at all."""

    command: str
    wanted: bool = True
    model: str = ""

    async def revised(
        self, task: Task, model: ChatModel, pattern: ReflectionPattern, draft: str | None = None
    ) -> ReflectionResult:
        """Let a model answer the task, or redraft a draft."""
        judges = judges_of(pattern, model, task.task_type)
        parts = parts_of_model(pattern, model, "", judges, live_run(pattern, model, "a text agent"))
        return await self._run(task, parts, pattern, draft)

    async def judged(self, task: Task, pattern: ReflectionPattern, draft: str) -> ReflectionResult:
        """Judge a draft: a run of one version, which is the draft."""
        parts = parts_of_functions(pattern, task.task_type, None, None, _nothing, has_draft=True)
        return await self._run(task, parts, pattern, draft)

    async def _run(
        self, task: Task, parts: Parts, pattern: ReflectionPattern, draft: str | None
    ) -> ReflectionResult:
        again = resumed.get()
        origin = again.record.origin if again else self._origin()
        step = (
            kept_step(again.store, again.record.run_id, task) if again else kept_step(self.wanted, None, task)
        )
        try:
            return await run_kept(task, parts, pattern, step, given_draft(draft), origin)
        finally:
            if store := project_store():
                await store.aclose()

    def _origin(self) -> Origin:
        return Origin("command", f"redraft {self.command}", self.model, tuple(sys.argv[1:]), os.getcwd())  # noqa: PTH109 (as a text)

    def says(self, result: ReflectionResult) -> str:
        """Say under which id a run is kept and what can be done with it; nothing where it is not kept."""
        if not self.wanted or not load_settings().home or "not_kept" in result.diagnostics:
            return ""
        further = "show" if result.error is None else "resume"
        return f"Kept as {result.run_id}; redraft {further} last"


def _nothing(output: str, _evaluation: ReflectionEvaluation) -> str:
    """Revise nothing: who only judges needs no model for it."""
    return output
