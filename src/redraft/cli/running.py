"""Runs as commands carry them out: watched on stderr, and with something to show when interrupted."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.core.chat import ChatRequest, Message
from redraft.core.errors import ConfigError
from redraft.core.settings import load_settings
from redraft.core.task import Task
from redraft.evaluate.compare import needs_model
from redraft.loop.agent import Agent
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.reflect import reflect

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from redraft.cli.criteria_file import CriteriaFile
    from redraft.cli.progress import Progress
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.protocols import ChatModel
    from redraft.core.result import ReflectionResult

IMPROVE = "Write the best version of the text that is given."


def read_draft(file: str) -> str:
    """Read a draft from a file, or from standard input for `-`; raises `ConfigError` for none at all."""
    name = "standard input" if file == "-" else repr(file)
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"The draft {name} is not UTF-8 text.") from error
    except OSError as error:
        raise ConfigError(f"The draft {name} cannot be read: {error.strerror}.") from error
    if not text.strip():
        raise ConfigError(f"The draft {name} is empty.")
    return text


def carry_out(run: Coroutine[Any, Any, ReflectionResult], progress: Progress) -> ReflectionResult:
    """Carry out a run that `progress` listens to; an interrupted one returns what there is.

    Raises `KeyboardInterrupt` where there is nothing yet.
    """
    with progress:
        try:
            return asyncio.run(run)
        except KeyboardInterrupt:
            if progress.result is None:
                raise
            return progress.result


def judge(draft: str, given: CriteriaFile, model: str | None, progress: Progress) -> ReflectionResult:
    """Judge a draft: a run of one version, which is the draft."""
    if model is None and any(map(needs_model, given.criteria)) and not load_settings().reflection_model:
        model = chosen_model(model)
    pattern = ReflectionPattern(
        max_iterations=0,
        quality_criteria=given.criteria,
        quality_threshold=given.threshold,
        task_type=given.task_type,
        reflection_model=model,
        on_event=progress,
    )
    run = reflect(task_of(draft, given), draft=draft, revise=_nothing, pattern=pattern)
    return carry_out(run, progress)


def revise_draft(
    draft: str, given: CriteriaFile, model: str | None, pattern: ReflectionPattern, progress: Progress
) -> ReflectionResult:
    """Redraft a draft with a model, as the pattern says."""
    agent = Agent(chosen_model(model), pattern=pattern)
    return carry_out(agent.run(task_of(draft, given), draft=draft), progress)


def task_of(draft: str, given: CriteriaFile) -> Task:
    """Say what is asked: what the file says, or else a better version of this very draft.

    Without a task the draft is the only material there is, so a fresh start has to see it.
    """
    if given.task.strip():
        return Task(given.task, task_type=given.task_type)
    return Task(IMPROVE, task_type=given.task_type, context=draft)


async def ask_one_token(model: ChatModel) -> None:
    """Have a model answer one token, which loads what has to be loaded."""
    await model(ChatRequest((Message("user", "Hello"),), max_tokens=1))


def chosen_model(model: str | None) -> str:
    """Return the model's name that was given, else that of the settings; raises `ConfigError` for neither."""
    if name := model or load_settings().model:
        return name
    raise ConfigError("No model was given: use --model NAME, set REDRAFT_MODEL, or `model` in redraft.toml.")


def _nothing(output: str, _evaluation: ReflectionEvaluation) -> str:
    """Revise nothing: who only judges needs no model for it."""
    return output
