"""The demo's runs: each task with a model, and what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redraft.cli.demo_tasks import TASKS, DemoTask
from redraft.cli.keeping import Keeping, resumed
from redraft.cli.options import DEMO_MODEL
from redraft.cli.progress import Progress
from redraft.cli.running import ask_one_token, carry_out
from redraft.cli.watching import watched
from redraft.core.errors import ConfigError
from redraft.core.result import ConvergenceReason, ReflectionResult
from redraft.core.settings import load_settings
from redraft.loop.pattern import ReflectionPattern
from redraft.models.names import known_models, model_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.cli.console import CalmConsole
    from redraft.core.chat import ChatReply, ChatRequest
    from redraft.core.protocols import ChatModel

REVISIONS = 3
SECONDS = 60.0
TOKENS = 250
"""What a reply may take: a small model that has lost its way would go on for minutes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold a task of the demo with the run that was made of it."""

    task: DemoTask
    result: ReflectionResult

    @property
    def first_score(self) -> float | None:
        """The score of the first draft."""
        return self.result.history.versions[0].evaluation.overall_score

    @property
    def best_score(self) -> float | None:
        """The score of the version that is returned."""
        return self.result.history.best_version.evaluation.overall_score

    @property
    def improved(self) -> bool:
        """Whether a revision beat the first draft."""
        return self.result.history.best_version.iteration > 1


def demo_model(name: str) -> ChatModel:
    """Return the demo's model; raises `ConfigError` with the commands that install it where it is missing."""
    for known in known_models():
        if known.name == name == DEMO_MODEL and not known.answers:
            raise ConfigError(
                f"The demo's model {name} is not installed. In a checkout of Redraft: make demo, or "
                "pip install -e '.[local]' && pip install --require-hashes -r demo/requirements.txt\n"
                "Any other model: redraft demo --model provider:model"
            )
    return _bounded(model_of(name, load_settings()))


def _bounded(model: ChatModel) -> ChatModel:
    async def ask(request: ChatRequest, /) -> ChatReply:
        most = TOKENS if request.max_tokens is None else min(TOKENS, request.max_tokens)
        return await model(replace(request, max_tokens=most))

    return ask


def load(model: ChatModel, told: CalmConsole) -> None:
    """Have a model load what it needs, so that the first task's seconds are its own."""
    with Progress(told, "the model"):
        asyncio.run(ask_one_token(model))


def outcomes(model: ChatModel, told: CalmConsole, events: str | None, keeping: Keeping) -> Iterator[Outcome]:
    """Run the tasks one by one, watched on `told`; an interrupted run is the last.

    A run that is resumed is the only one. Raises `KeyboardInterrupt` when a run was interrupted before its
    first version.
    """
    again = resumed.get()
    tasks = [task for task in TASKS if again is None or task.task == again.record.task]
    for number, task in enumerate(tasks, 1):
        label = f"{number}/{len(tasks)} {task.name:<6}"
        progress = Progress(told, label, rows=not told.is_terminal)
        with watched(progress, events) as listener:
            pattern = ReflectionPattern(
                max_iterations=REVISIONS,
                quality_criteria=task.criteria,
                quality_threshold=1.0,
                budget_seconds=SECONDS,
                on_event=listener,
            )
            result = carry_out(keeping.revised(task.task, model, pattern), progress)
        yield Outcome(task, result)
        if result.convergence_reason is ConvergenceReason.CANCELLED:
            return
