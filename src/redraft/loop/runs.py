"""Runs: the kept runs of a project, to look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redraft.core.codec import from_json, from_record, untagged
from redraft.core.errors import ConfigError, DamagedRecordError
from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.core.version import Draft, ReflectionVersion
from redraft.loop.journal import STEP, VOID
from redraft.loop.record import RUN, RunRecord, damaged_run
from redraft.loop.select import select
from redraft.loop.tell import ROLES
from redraft.stores.base import intact, listed
from redraft.stores.place import project_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.stores.base import Record, Scalar, Store

LAST = "last"
KILLED = "killed"
UNENDED = ("running", KILLED, "unknown")
"""The states of a run that has not ended: which one it is, its process tells."""
DAMAGED = "(damaged)"
"""The name of a step whose record is damaged; its error says more."""
PAGE = 50


@dataclass(frozen=True, slots=True)
class KeptStep:
    """Hold one step of a kept run, as its journal has it.

    `place` is its position (`00003`), or for a step within a step the outer place, a slash and its name with
    a number. `began` and `elapsed` are seconds of the run's own clock at its beginning and end, `at` the time
    of day at its end. A step within a step has what it was `given`: a model call its request, whose reply is
    the `result`. `error` has `type` and `message` where it failed. `void` marks one that a later try has
    replaced: it was paid for all the same.
    """

    place: str
    name: str
    began: float
    elapsed: float
    at: datetime
    given: Any = None
    result: Any = None
    error: dict[str, Any] | None = None
    void: bool = False

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.elapsed - self.began

    @property
    def is_inner(self) -> bool:
        """Whether it ran within another step."""
        return "/" in self.place


class Runs:
    """Look at the runs that a store keeps: of the project by default.

    Raises `ConfigError` where the settings keep nothing, `StoreError` where the store can't be read.
    """

    def __init__(self, store: Store | None = None) -> None:
        found = store or project_store()
        if found is None:
            raise ConfigError("The setting `home` (REDRAFT_HOME) is empty, so no runs are kept here.")
        self._store = found

    async def find(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        reason: str | None = None,
        inner: bool = False,
        before: str | None = None,
        limit: int = PAGE,
    ) -> list[RunRecord]:
        """Return the newest runs first, of a status, of an agent's name, of a reason to stop.

        `killed` is a status, too: of a `running` one whose process is gone; and `unknown`, where this machine
        can't tell. One whose record is damaged is among them, as `damaged`. Runs that ran inside others are
        left out unless `inner`. `before` is the last run of the page before; raises `ConfigError` where there
        is none.
        """
        where: dict[str, Scalar] = {} if inner else {"inner": False}
        if status is not None:
            where["status"] = "running" if status in UNENDED else status
        if name is not None:
            where["name"] = name
        if reason is not None:
            where["reason"] = reason
        # Which of those that have not ended were killed shows only when one looks for their processes.
        unended = where.get("status") == "running"
        most = None if unended else limit
        after = None if before is None else await listed(self._store, RUN, before)
        if before is not None and after is None:
            raise ConfigError(f"There is no run {before!r} here, before which others could be.")
        found = await self._store.find(RUN, where=where, newest_first=True, after=after, limit=most)
        runs = [await self.listed(record) for record in found]
        # What is damaged may have been like that.
        return [run for run in runs if status in (None, run.state) or run.status == "damaged"][:limit]

    async def get(self, run_id: str = LAST) -> RunRecord:
        """Return a run by its id, by the beginning of one, or the `last` one that began.

        Raises `ConfigError` where there is none, or several begin alike.
        """
        if run_id == LAST:
            found = await self._store.find(RUN, where={"inner": False}, newest_first=True, limit=PAGE)
            found = intact(found)[:1]
        elif record := await self._store.get(RUN, run_id):
            found = [record]
        else:  # nothing is the beginning of all: an empty variable of a shell means none of them
            found = await self._store.find(RUN, prefix=run_id, limit=3) if run_id else []
        if not found:
            raise ConfigError(
                "No run is kept here yet."
                if run_id == LAST
                else f"There is no run {run_id!r} here; `redraft runs` lists those that there are."
            )
        if len(found) > 1:
            names = ", ".join(record.key for record in found)
            raise ConfigError(f"Several runs begin with {run_id!r}: {names}; give more of the one you mean.")
        return await self.read(found[0])

    async def steps(self, run_id: str) -> list[KeptStep]:
        """Return the steps of a run in the order in which they ended, those within steps included.

        The steps within steps are the verbatim prompts and replies.
        """
        prefix = f"{run_id}/"
        records = await self._store.find(STEP, prefix=prefix) + await self._store.find(VOID, prefix=prefix)
        return sorted(map(_step, records), key=lambda step: (step.at, not step.is_inner, step.place))

    async def listed(self, record: Record) -> RunRecord:
        """Read a run of its record for a list; one that is damaged has that as its status."""
        return damaged_run(record) if record.damage else await self.read(record)

    async def read(self, record: Record) -> RunRecord:
        """Read a run of its record; one that has not ended has the versions that its journal has so far."""
        # The classes of outputs are the program's that ran: who only looks does not have them.
        run = from_record(RunRecord, untagged(record.data))
        if run.status == "running":
            add_versions_so_far(run, await self.steps(run.run_id))
        return run


def add_versions_so_far(run: RunRecord, steps: Sequence[KeptStep]) -> None:
    """Fill in the versions, the best of them and the usage of a run that has not ended, from its steps."""
    versions: list[ReflectionVersion] = []
    usage: dict[str, TokenUsage] = {}
    draft = None if run.draft is None else Draft(run.draft, NOTHING_USED, strategy="given")
    for step in steps:
        if step.name == DAMAGED and not step.is_inner:
            break  # what came after is of a version that is not known
        if step.is_inner or step.void or step.error is not None or step.name not in ROLES:
            continue
        run.execution_time = step.elapsed
        role = "revision" if step.name == "generate" and versions else ROLES[step.name]
        if step.name == "evaluate" and draft is not None:
            evaluation = from_json(ReflectionEvaluation, step.result)
            versions.append(
                ReflectionVersion(
                    len(versions) + 1,
                    draft.output,
                    evaluation,
                    draft.improvements,
                    step.at,
                    draft.usage + evaluation.usage,
                    draft.strategy,
                    conversation=draft.conversation,
                )
            )
            used = evaluation.usage
        else:
            draft = from_json(Draft, step.result)
            used = draft.usage
        usage[role] = usage.get(role, NOTHING_USED) + used
    run.versions, run.usage_by_role = tuple(versions), usage
    run.reflections = tuple(
        reflection for one in versions if one.conversation for reflection in one.conversation.reflections
    )
    if versions:
        run.best, run.final = select(versions, "highest_score").iteration, versions[-1].iteration
        run.revisions = len(versions) - 1


def _step(record: Record) -> KeptStep:
    place = record.key.partition("/")[2].partition("~")[0]
    if record.damage:
        error = {"type": DamagedRecordError.__name__, "message": record.damage}
        at = record.created_at or datetime.now(UTC)
        return KeptStep(place, DAMAGED, 0.0, 0.0, at, error=error, void=record.kind == VOID)
    data = untagged(record.data)
    return KeptStep(
        place,
        data["name"],
        data["began"],
        data["elapsed"],
        datetime.fromisoformat(data["at"]),
        data.get("given"),
        data.get("result"),
        data.get("error"),
        void=record.kind == VOID,
    )
