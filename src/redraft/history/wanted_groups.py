"""WantedGroups: what a comparison is of, as its query says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.history.entry import entry_of
from redraft.loop.record import RUN
from redraft.web.page import NotFoundError, PageRequest

if TYPE_CHECKING:
    from redraft.history.groups import Group


@dataclass(frozen=True, slots=True)
class WantedGroups:
    """Say what is compared: groups by what, of which agent and task, of which keys, against which.

    `like` is a run whose task is meant.
    """

    by: str
    name: str
    task: str
    of: tuple[str, ...]
    baseline: str
    against: str
    like: str

    @classmethod
    async def of_query(cls, request: PageRequest) -> WantedGroups:
        """Return what the query says; raises `NotFoundError` for a run that is not kept."""
        query = request.query
        keys = tuple(key.strip() for key in query.get("of", "").split(",") if key.strip())
        like = query.get("like", "")
        return cls(
            query.get("by", "agent"),
            query.get("name", "").strip(),
            await _task_of(request, like) if like else query.get("task", ""),
            keys,
            query.get("baseline", ""),
            query.get("with", ""),
            like,
        )

    def admits(self, group: Group) -> bool:
        """Say whether a group is one of those that are wanted."""
        return not self.of or any(self.is_named(group, of) for of in self.of)

    def is_named(self, group: Group, of: str) -> bool:
        """Say whether a group is meant by a name; of a run's id the beginning is enough."""
        return group.key == of or (self.by == "run" and group.key.startswith(of))


async def _task_of(request: PageRequest, run_id: str) -> str:
    record = await request.project.store.get(RUN, run_id)
    if record is None:
        raise NotFoundError(f"There is no run {run_id!r} here, of whose task others could be.")
    return entry_of(record).task
