"""Keeping: a run that is written down while it runs, and taken up again where it stopped."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from hashlib import sha256
from os import urandom
from pathlib import PurePath
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft.core.codec import from_record, to_record
from redraft.core.errors import ChangedRunError, ConfigError, StoreError
from redraft.core.events import RunFinished, RunStarted, VersionEvaluated
from redraft.core.steps import direct, inner_step, offered
from redraft.core.texts import short_repr
from redraft.evaluate.panel import Panel
from redraft.loop.journal import InnerStep, Journal, Journalled, journal_in, not_hiding
from redraft.loop.record import RUN, Origin, Process, RunRecord, options_of
from redraft.loop.run import last_result, run_loop
from redraft.loop.tell import emitter
from redraft.redact.log import logger
from redraft.stores.base import Record, Store
from redraft.stores.place import project_store

if TYPE_CHECKING:
    from redraft.core.protocols import Step
    from redraft.core.result import ReflectionResult
    from redraft.core.task import Task
    from redraft.core.version import Draft, Output
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.run import Parts


def new_run_id() -> str:
    """Return an id that no run has yet; later ones sort behind."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{urandom(4).hex()}"


def check_keep(keep: Any) -> None:
    """Require True, False or a store; raises `ConfigError`."""
    if isinstance(keep, bool) or (isinstance(keep, Store) and not isinstance(keep, type)):
        return
    meant = f" Did you mean SqliteStore({keep!r})?" if isinstance(keep, str | PurePath) else ""
    raise ConfigError(f"keep must be True, False or a Store, such as SqliteStore(path); got {keep!r}.{meant}")


def kept_step(keep: bool | Store, run_id: str | None, task: Task) -> Step:
    """Return the step of a run that is to be kept: in a store of its own, in the project's, or not at all.

    A run inside a step of a kept run has an id that follows from the other's, so that it is found again when
    that one is resumed. Raises `ConfigError` for an id without a store, and for what is none.
    """
    check_keep(keep)
    inside = offered(inner_step.get(), InnerStep)
    if isinstance(keep, bool):
        store = None if not keep else project_store() if inside is None else inside.outer.store
    else:
        store = keep
    if store is None:
        if run_id is not None:
            why = "the setting `home` (REDRAFT_HOME) is empty" if keep else "leave keep=True"
            raise ConfigError(f"The run {run_id!r} is not kept, so it can't be resumed: {why}.")
        return direct
    if run_id is None and inside is not None:
        place = f"{inside.place}/{inside.number('run ' + task.description)}"
        return Journalled(store, f"{inside.outer.run_id}.{sha256(place.encode()).hexdigest()[:8]}")
    if run_id is None:
        return Journalled(store, new_run_id(), resumes=False)
    return Journalled(store, run_id)


async def run_kept(
    task: Task, parts: Parts, pattern: ReflectionPattern, step: Step, draft: Draft | None, origin: Origin
) -> ReflectionResult:
    """Run the loop as `run_loop` does; with a journal in the step, keep the run, or take it up again.

    A run that has finished gives its result again, without a call. One that was interrupted goes on after
    its last finished step, one that ended in an error tries the failed step again. Raises `ChangedRunError`
    for an id under which another task was run, or one from another draft, and `StoreError` where an id was
    given and nothing can be read; a new run that can't be kept runs all the same, with a warning.
    """
    if (journal := journal_in(step)) is None:
        return await run_loop(task, parts, pattern, step if step is direct else not_hiding(step), draft)
    journal.begin()
    criteria = parts.evaluate.criteria if isinstance(parts.evaluate, Panel) else ()
    record = RunRecord(
        journal.run_id,
        task,
        origin,
        options_of(pattern, criteria, parts.signals.judge),
        datetime.now(UTC),
        Process.this(),
        parent=journal.parent,
        draft=None if draft is None else draft.output,
        advice=parts.advice,
    )
    try:
        given = _stored(record)
        stored, is_new = await journal.store.put_if_absent(given)
        if not is_new:
            before = from_record(RunRecord, stored.data)
            if before.task != task:
                raise ChangedRunError(
                    f"The run {journal.run_id!r} was for another task: {before.task.description!r}. "
                    "Give a new task a new run_id."
                )
            if stored.data.get("draft") != given.data.get("draft"):
                raise ChangedRunError(
                    f"The run {journal.run_id!r} began from {_named(before.draft)}, and is given "
                    f"{_named(record.draft)} now. Give a new draft a new run_id."
                )
            if before.status == "finished":
                return _again(before, pattern)
            record.started_at = before.started_at
            await journal.reopen()
            await journal.store.put(_stored(record))
    except StoreError as error:
        if journal.resumes:
            raise
        logger.warning("The run is not kept: %s", error)
        journal.close()
        return _noted(await run_loop(task, parts, pattern, step, draft), f"The run is not kept: {error}")
    return await _followed(record, journal, task, parts, pattern, step, draft)


async def _followed(
    record: RunRecord,
    journal: Journal,
    task: Task,
    parts: Parts,
    pattern: ReflectionPattern,
    step: Step,
    draft: Draft | None,
) -> ReflectionResult:
    """Run the loop and write down how it ended, however it did."""
    try:
        result = await run_loop(task, parts, pattern, step, draft)
    except BaseException as error:
        made = last_result.get()
        if made is not None and made.run_id == journal.run_id:
            record.end(made, datetime.now(UTC))
        else:
            cancelled = isinstance(error, asyncio.CancelledError)
            record.status = "cancelled" if cancelled else "failed"
            record.finished_at = datetime.now(UTC)
            record.error = f"{type(error).__name__}: {error}"
        await _ended(record, journal)
        raise
    record.end(result, datetime.now(UTC))
    trouble = await _ended(record, journal) or journal.trouble
    if trouble:
        return _noted(result, f"The run is not kept, or not whole: {trouble}")
    if not pattern.preserve_all_versions:
        await journal.forget_all_but({version.iteration for version in record.versions})
    return result


async def _ended(record: RunRecord, journal: Journal) -> str:
    try:
        await journal.store.put(_stored(record))
    except StoreError as error:
        logger.warning("The end of the run %s is not kept: %s", record.run_id, error)
        return str(error)
    return ""


def _again(record: RunRecord, pattern: ReflectionPattern) -> ReflectionResult:
    """Return the result of a run that has finished, and tell the listener of it as if it happened now."""
    result = record.result()
    emit = emitter(pattern.on_event)
    emit(RunStarted(record.run_id, record.task))
    for version in record.versions:
        emit(VersionEvaluated(record.run_id, version, version.iteration == record.best))
    pattern.runs.end(monotonic(), result)
    emit(RunFinished(record.run_id, result))
    return result


def _named(draft: Output | None) -> str:
    return "no draft" if draft is None else f"the draft {short_repr(draft)}"


def _noted(result: ReflectionResult, text: str) -> ReflectionResult:
    result.diagnostics = {**result.diagnostics, "not_kept": text}
    return result


def _stored(record: RunRecord) -> Record:
    # What runs are searched by is there whatever it is.
    asked = {"status": record.status, "inner": record.is_inner, "name": record.origin.name}
    return Record(RUN, record.run_id, to_record(record) | asked | {"reason": record.reason})
