"""Keep a run: write its record, follow it to its end, and resume it under its id."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from os import urandom
from pathlib import PurePath
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from redraft._codec import from_record, to_json
from redraft._steps import direct
from redraft._texts import as_text, remembering_sources
from redraft.errors import ConfigError, StoreError, UnfinishedError
from redraft.evaluate.criteria import recorded
from redraft.events import RunFinished, RunStarted, TokenEvent, VersionEvaluated
from redraft.loop.budget import OPTIONS as BUDGET_OPTIONS
from redraft.loop.event_log import emitter
from redraft.loop.journal import STEP, Journalled, enclosing_step, journal_in
from redraft.loop.record import Origin, Process, RunRecord
from redraft.loop.run import Run
from redraft.redact.log import logger
from redraft.stores.base import Record, Store
from redraft.stores.location import project_store
from redraft.types import ImageMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from redraft.loop.budget import StepBudget
    from redraft.loop.output_type import OutputType
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.record import Status
    from redraft.loop.run import Verbs
    from redraft.protocols import Step
    from redraft.types import Advice, Draft, Image, PlainTask, ReflectionResult

R = TypeVar("R")


async def run_and_store(
    pattern: ReflectionPattern,
    task: PlainTask,
    verbs: Verbs,
    step: Step,
    draft: Draft | None,
    origin: Origin,
    *,
    advice: tuple[Advice, ...] = (),
    diagnostics: Mapping[str, str] | None = None,
    on_token: Callable[[TokenEvent], None] | None = None,
    within: StepBudget | None = None,
) -> ReflectionResult:
    """Run the loop as `Run.to_end` does; if the step has a journal, keep the run, or resume it.

    A run that has finished returns its result again, without a call. One that was interrupted goes on after
    its last finished step; one that ended in an error tries the failed step again. Raises `ChangedRunError`
    for an id under which another task ran, or the same from another draft, and `StoreError` if an id was
    given and the store can't be read. A new run that can't be stored runs all the same, with a warning.
    """
    judges, output_type = verbs.judges, verbs.output_type

    def run_of(task: PlainTask) -> Run:
        return Run(
            pattern,
            task,
            verbs,
            step,
            origin.name,
            advice=advice,
            diagnostics=diagnostics,
            on_token=on_token,
            within=within,
        )

    with remembering_sources():
        if draft is not None and output_type is not None:
            draft = replace(draft, output=output_type.take(draft.output))
        journal = journal_in(step)
        if journal is None:
            return await run_of(task).to_end(draft)
        first_output = None if draft is None else draft.output
        if output_type is not None:
            first_output = output_type.dump(first_output)
        record = RunRecord(
            journal.run_id,
            task,
            origin,
            {
                **pattern.recorded(),
                "criteria": recorded(judges.criteria),
                "judge": judges.signals.judge,
                **({"judge_id": to_json(judges.signals.judge_id)} if judges.signals.judge_id else {}),
            },
            datetime.now(UTC),
            Process.this(),
            parent=journal.parent,
            draft=first_output,
            advice=advice,
            output_type=None if output_type is None else output_type.record,
        )

        async def work(task: PlainTask) -> ReflectionResult:
            run = run_of(task)
            try:
                return await run.to_end(draft)
            except UnfinishedError as error:
                if run.result is None and error.reason is not None and run.tally.suspended is None:
                    record.end_without_version(run.tally.stop(error.reason), run.tally)
                raise
            finally:
                if run.result is not None:
                    record.end(run.result, output_type)

        keeper = Keeper(journal, record)
        if (finished := await keeper.begin()) is not None:
            _report_ignored_budget(finished, pattern)
            return _replay_result(finished, pattern, output_type, on_token)
        result = await keeper.follow(work(await with_stored_images(task, journal)))
        if keeper.trouble:
            extent = "" if journal.is_closed else ", or not completely"
            note = f"The run is not stored{extent}: {keeper.trouble}"
            result.diagnostics = {**result.diagnostics, "not_kept": note}
        elif journal.unrestorable:
            note = f"The result can't be returned again under this run_id: {journal.unrestorable[0]}"
            result.diagnostics = {**result.diagnostics, "not_restorable": note}
        if not keeper.trouble and not pattern.preserve_all_versions:
            await _delete_other_versions(journal, {version.iteration for version in record.versions})
        return result


IMAGE = "image"
"""The kind of the record of an image; its key is the digest."""


async def with_stored_images(task: PlainTask, journal: Journalled) -> PlainTask:
    """Store the images of a task, each once whatever run it belongs to, and load those without their bytes.

    Raises `StoreError` if one that has to be loaded can't be.
    """
    if not journal.is_closed:
        try:
            await store_images(task, journal.store)
        except StoreError as error:
            logger.warning("The images of the run %s are not stored: %s", journal.run_id, error)
    return await with_loaded_images(task, journal.store)


async def store_images(task: PlainTask, store: Store) -> None:
    """Store the images of a task that have their bytes; raises `StoreError`."""
    for image in {image.digest: image for image in task.all_images if image.data}.values():
        data = {"media_type": image.media_type, "base64": b64encode(image.data).decode()}
        await store.put_if_absent(Record(IMAGE, image.digest, data))


async def with_loaded_images(task: PlainTask, store: Store) -> PlainTask:
    """Load the bytes of images that are without them; raises `StoreError` if the store has not got them."""
    known = {image.digest: image for image in task.all_images if image.digest}
    for digest, image in known.items():
        if not image.data:
            record = await store.get(IMAGE, digest)
            if record is None:
                raise StoreError(
                    f"The store does not have the image {digest!r}; pass it with the task again."
                )
            known[digest] = replace(image, data=b64decode(record.data["base64"]))

    def loaded(images: tuple[Image, ...]) -> tuple[Image, ...]:
        return tuple(known.get(image.digest, image) for image in images)

    messages = tuple(
        replace(one, images=loaded(one.images)) if isinstance(one, ImageMessage) else one
        for one in task.messages
    )
    return replace(task, messages=messages, images=loaded(task.images)) if known else task


class StoredRecord(Protocol):
    """The record of a run or a workflow: `running` at first, then how it ended."""

    noun: ClassVar[str]
    run_id: str
    status: Status
    started_at: datetime
    finished_at: datetime | None
    error: str

    def stored(self) -> Record:
        """Return the record as a store has it."""
        ...

    def check_same(self, stored: Record, before: Self, /) -> None:
        """Raise `ChangedRunError` if the stored record is of something else."""
        ...


K = TypeVar("K", bound=StoredRecord)


class Keeper(Generic[K]):
    """Keep a run or a workflow: claim its id in the store, and record how it ended.

    `trouble` says why the store does not have all of it; empty if it has.
    """

    def __init__(self, journal: Journalled, record: K) -> None:
        self.trouble = ""
        self._journal = journal
        self._record = record

    async def begin(self) -> K | None:
        """Write the record, or resume the one under this id; return that one if it has finished.

        Raises `ChangedRunError` if it is of something else, and `StoreError` if an id was given and the store
        fails. For a new id that costs no more than a warning: the journal is closed, and nothing is stored.
        """
        record, journal = self._record, self._journal
        journal.begin()
        try:
            stored, is_new = await journal.store.put_if_absent(record.stored())
            if is_new:
                return None
            before = from_record(type(record), stored.data)
            record.check_same(stored, before)
            if before.status == "finished":
                return before
            record.started_at = before.started_at
            if before.status != "waiting":  # for a person: no step of it has failed
                await journal.reopen()
            await journal.put(record.stored())
        except StoreError as error:
            if journal.resumes:
                raise
            logger.warning("The %s is not stored: %s", record.noun, error)
            self.trouble = str(error)
            journal.close()
        return None

    async def follow(self, work: Awaitable[R]) -> R:
        """Await the work, which fills in the record, and store the record however the work ends."""
        try:
            result = await work
        except BaseException as error:
            record = self._record
            if record.status == "running":
                record.status = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
                record.error = f"{type(error).__name__}: {error}"
            await self._end()
            raise
        await self._end()
        return result

    async def _end(self) -> None:
        record, journal = self._record, self._journal
        if journal.is_closed:
            return
        record.finished_at = datetime.now(UTC)
        try:
            await journal.put(record.stored())
        except StoreError as error:
            logger.warning("The end of the %s %s is not stored: %s", record.noun, record.run_id, error)
            self.trouble = str(error)
        else:
            self.trouble = journal.trouble


@dataclass(frozen=True, slots=True)
class RunKey:
    """The id under which something is stored, and the store; without a store, nothing is stored.

    `resumes` says that the id was given, so there may be records already. `parent` is the run inside which it
    takes place, unless that is the one under way here.
    """

    run_id: str
    store: Store | None = None
    resumes: bool = False
    parent: str = ""

    @classmethod
    def of(cls, keep: bool | Store, run_id: str | None, description: str) -> RunKey:
        """Choose the store, as `keep` says, and an id unless one is given.

        Inside a journalled step the id follows from that of the outer run and the description, so that a
        resumed outer run finds it again. Raises `ConfigError` for an id without a store.
        """
        check_keep(keep)
        inside = enclosing_step()
        if isinstance(keep, bool):
            store = None if not keep else project_store() if inside is None else inside.outer.store
        else:
            store = keep
        if store is None and run_id is not None:
            why = "the setting `home` (REDRAFT_HOME) is empty" if keep else "leave keep=True"
            raise ConfigError(f"The run {run_id!r} is not stored, so it can't be resumed: {why}.")
        if run_id is not None:
            return cls(run_id, store, resumes=True)
        if store is None or inside is None:
            return cls(new_run_id(), store)
        place = f"{inside.place}/{inside.number('run ' + description)}"
        return cls(f"{inside.outer.run_id}.{sha256(place.encode()).hexdigest()[:8]}", store, resumes=True)

    def step(self) -> Step:
        """Return the step of the run: a new journal, or `direct` if nothing is stored."""
        if self.store is None:
            return direct
        journal = Journalled(self.store, self.run_id, resumes=self.resumes)
        journal.parent = self.parent or journal.parent
        return journal

    def derived(self, suffix: str) -> RunKey:
        """Return the key of a part or another attempt, whose id is this one with a suffix."""
        return RunKey(f"{self.run_id}{suffix}", self.store, self.resumes, self.parent)


def journalled_step(keep: bool | Store, run_id: str | None, task: PlainTask) -> Step:
    """Return the step of a run: a journal in the store that `keep` names, or `direct` if it keeps none."""
    if keep is False and run_id is None:
        return direct
    return RunKey.of(keep, run_id, task.description).step()


def new_run_id() -> str:
    """Return a new id; ids sort by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{urandom(4).hex()}"


def check_keep(keep: Any) -> None:
    """Require True, False or a store; raises `ConfigError`."""
    if isinstance(keep, bool) or (isinstance(keep, Store) and not isinstance(keep, type)):
        return
    meant = f" Did you mean SqliteStore({keep!r})?" if isinstance(keep, str | PurePath) else ""
    raise ConfigError(f"keep must be True, False or a Store, such as SqliteStore(path); got {keep!r}.{meant}")


def _report_ignored_budget(record: RunRecord, pattern: ReflectionPattern) -> None:
    """Warn if a run that a budget stopped is called with another one: its result stays what it was."""
    if record.stop is None or not record.stop.reason.is_budget:
        return
    asked = {
        option: getattr(pattern, option)
        for option in BUDGET_OPTIONS.values()
        if getattr(pattern, option) != record.options.get(option)
    }
    if not asked:
        return
    given = ", ".join(f"{option}={value}" for option, value in asked.items())
    logger.warning(
        "The run %s was stopped by its budget and returns its stored result; %s has no effect. To have more "
        "tried, use a new run_id.",
        record.run_id,
        given,
    )


def _replay_result(
    record: RunRecord,
    pattern: ReflectionPattern,
    output_type: OutputType[Any] | None,
    on_token: Callable[[TokenEvent], None] | None,
) -> ReflectionResult:
    """Return the result of a run that has finished, and emit its events again."""
    result = record.result(output_type)
    emit = emitter(pattern.on_event)
    emit(RunStarted(record.run_id, record.task))
    tell = emitter(on_token)
    for version in result.history.versions:
        if version.strategy != "given":
            role = "draft" if version.iteration == 1 else "revision"
            tell(TokenEvent(record.run_id, as_text(version.output), version.iteration, role))
        emit(VersionEvaluated(record.run_id, version, version.iteration == record.best))
    pattern.last_run.set(monotonic(), result)
    emit(RunFinished(record.run_id, result))
    return result


async def _delete_other_versions(journal: Journalled, keep: Collection[int]) -> None:
    """Delete the steps that made and judged other versions than those in `keep`."""
    records = await journal.store.find(STEP, prefix=f"{journal.run_id}/")
    count = 0
    for record in records:
        if record.key.count("/") > 1:
            continue
        name = record.data["name"]
        makes_draft = name in ("generate", "revise")
        version = count + 1 if makes_draft or count == 0 else count
        # A run that starts from a given draft judges first.
        if "result" in record.data and (makes_draft or (count == 0 and name == "evaluate")):
            count += 1
        if version not in keep:
            for part in records:
                if part.key == record.key or part.key.startswith(f"{record.key}/"):
                    await journal.store.delete(STEP, part.key)
