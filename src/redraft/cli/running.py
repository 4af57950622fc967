"""Runs as commands carry them out: watched on stderr, and with something to show when interrupted."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.cli.criteria_file import CriteriaFile, modules_in, read_criteria, try_out
from redraft.cli.keeping import resumed
from redraft.core.chat import ChatRequest, Message
from redraft.core.codec import from_json
from redraft.core.criterion import QualityCriterion
from redraft.core.errors import ConfigError
from redraft.core.settings import load_settings
from redraft.core.task import Task
from redraft.evaluate.compare import needs_model
from redraft.models.names import model_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from redraft.cli.keeping import Keeping
    from redraft.cli.progress import Progress
    from redraft.core.protocols import ChatModel
    from redraft.core.result import ReflectionResult
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.record import RunRecord

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


def material(file: str, criteria: Path) -> tuple[str, CriteriaFile]:
    """Read a draft and what it is judged by; those of a run that is resumed are in its record."""
    if again := resumed.get():
        return str(again.record.draft), recorded_criteria(again.record)
    given = read_criteria(criteria)
    return read_draft(file), given


def recorded_criteria(record: RunRecord) -> CriteriaFile:
    """Return what a kept run was judged by, its functions imported, which may be in this folder.

    Raises `ConfigError` where one can't be.
    """
    options = record.options
    criteria = from_json(tuple[QualityCriterion, ...], options["criteria"])
    with modules_in(Path()):
        for criterion in criteria:
            try_out(criterion)
    return CriteriaFile(
        criteria, record.task.description, record.task.task_type, options["quality_threshold"]
    )


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


def judge(
    draft: str, given: CriteriaFile, progress: Progress, pattern: ReflectionPattern, keeping: Keeping
) -> ReflectionResult:
    """Judge a draft: a run of one version, which is the draft."""
    return carry_out(keeping.judged(task_of(draft, given), pattern, draft), progress)


def revise_draft(
    draft: str, given: CriteriaFile, progress: Progress, pattern: ReflectionPattern, keeping: Keeping
) -> ReflectionResult:
    """Redraft a draft with a model, as the pattern says."""
    model = model_of(keeping.model, load_settings())
    return carry_out(keeping.revised(task_of(draft, given), model, pattern, draft), progress)


def task_of(draft: str, given: CriteriaFile) -> Task:
    """Say what is asked: what the file says, or else a better version of this very draft.

    Without a task the draft is the only material there is, so a fresh start has to see it.
    """
    if again := resumed.get():
        return again.record.task
    if given.task.strip():
        return Task(given.task, task_type=given.task_type)
    return Task(IMPROVE, task_type=given.task_type, context=draft)


async def ask_one_token(model: ChatModel) -> None:
    """Have a model answer one token, which loads what has to be loaded."""
    await model(ChatRequest((Message("user", "Hello"),), max_tokens=1))


def judging_model(model: str | None, given: CriteriaFile) -> str | None:
    """Return the name of the model that judges, where a criterion needs one and the settings name none."""
    if model is None and any(map(needs_model, given.criteria)) and not load_settings().reflection_model:
        return chosen_model(model)
    return model


def chosen_model(model: str | None) -> str:
    """Return the model's name that was given, else that of the settings; raises `ConfigError` for neither."""
    if name := model or load_settings().model:
        return name
    raise ConfigError("No model was given: use --model NAME, set REDRAFT_MODEL, or `model` in redraft.toml.")
