"""Approvals: questions to people, and their answers, which are stored once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from redraft._clock import is_future
from redraft._codec import from_record, plain_data, to_record
from redraft._hints import keyword_hints
from redraft._validation import only
from redraft.errors import ConfigError, OutputError
from redraft.stores.base import Record, restored
from redraft.stores.location import required_project_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.stores.base import Store
    from redraft.web.people import Person

APPROVAL = "approval"
"""The kind of the record of a question to a person; its `status` says whether it is answered."""
ANSWER = "approval answer"
"""The kind of the record of its answer, which is written once."""
POLL = 1.0
"""Seconds between two looks for an answer."""
LAST = "last"


@dataclass(frozen=True, slots=True)
class Approval:
    """A question of a workflow, or of an agent's cycle about an action of its plan, to a person."""

    id: str
    run_id: str
    """The run that the answer resumes; the agent whose cycle waits."""
    workflow: str
    """The name of the workflow or agent."""
    node: str
    """The node, or the id of the planned action."""
    message: str
    asked_at: datetime
    data: Any = None
    """What the answer may change: the data of the node, or the parameters of the action."""
    deadline: datetime | None = None
    """When a workflow takes the default; a cycle has its deadline in its own record."""
    default: Literal["approve", "reject"] | None = None
    """The answer if no person answers in time; None fails the node."""
    status: Literal["waiting", "answered"] = "waiting"

    @property
    def is_overdue(self) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and datetime.now(UTC) >= self.deadline

    @property
    def default_answer(self) -> HumanAnswer | None:
        """The answer if no person answers in time; None without a default."""
        if self.default is None:
            return None
        return HumanAnswer(self.default == "approve", self.data, at=datetime.now(UTC), timed_out=True)

    def stored(self) -> Record:
        """Return the record for the store, always with the field that questions are searched by."""
        return Record(APPROVAL, self.id, to_record(self) | {"status": self.status})


@dataclass(frozen=True, slots=True)
class HumanAnswer:
    """What a person decided, `by` whom and when; `value` is the data as approved, changed or not.

    `proof` is the id of the token with which that person proved who it was, empty if nobody did. `timed_out`
    says that nobody answered before the deadline: then the default is the answer.
    """

    approved: bool
    value: Any = None
    comment: str = ""
    by: str = ""
    at: datetime | None = None
    timed_out: bool = False
    proof: str = ""


@keyword_hints()
class Approvals:
    """Questions to people, and their answers, in a store (by default the project's).

    Raises `ConfigError` if storage is turned off (an empty `home`), `StoreError` if the store can't be read.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._store = store or required_project_store("approvals")

    async def waiting(self, run_id: str | None = None) -> list[Approval]:
        """Return the questions that can be answered, those of a run or all, the oldest first.

        One whose deadline has passed can't: the run takes its default, or fails, when it is resumed.
        """
        found = await self._store.find(APPROVAL, where={"status": "waiting"})
        asked = restored(found, lambda record: from_record(Approval, record.data)).values()
        mine = [one for one in asked if run_id in (None, one.run_id) and not one.is_overdue]
        # A process that ended while it stored an answer has left the question as it was.
        runs = {one.id.rpartition(".")[0] for one in mine}
        answered = {name for run in runs for name in await self.answers(run)}
        return sorted((one for one in mine if one.id not in answered), key=lambda one: one.asked_at)

    async def answers(self, run_id: str) -> dict[str, HumanAnswer]:
        """The answers to the questions of a run, or of an agent's cycle, by the id of the question."""
        found = await self._store.find(ANSWER, prefix=f"{run_id}.")
        return restored(found, lambda record: from_record(HumanAnswer, record.data))

    async def get(self, name: str) -> Approval | None:
        """Return the open question with this id, id prefix or run id; None if there is none.

        A whole id also finds one that can no longer be answered. Raises `ConfigError` if there are several.
        """
        waiting = await self.waiting()
        if name == LAST:
            return waiting[-1] if waiting else None
        exact = [one for one in waiting if name in (one.id, one.run_id)]
        found = exact or [one for one in waiting if name and one.id.startswith(name)]
        if not found and (record := await self._store.get(APPROVAL, name)) is not None:
            return from_record(Approval, record.data)
        return only(found, name, "approvals", lambda one: one.id)

    async def answer(
        self,
        approval: Approval,
        *,
        approved: bool,
        value: Any = ...,
        comment: str = "",
        by: str | Person = "",
    ) -> HumanAnswer:
        """Answer a question; `value` replaces its data, and `by` is a name or a person who has proved it.

        Raises `ConfigError` if it has been answered, or its deadline has passed.
        """
        try:
            before = await self.answer_to(approval)
        except OutputError as error:
            raise ConfigError(f"The question {approval.id!r} can no longer be answered. {error}") from error
        data = approval.data if value is ... else plain_data(value, "The value of the answer")
        name, proof = (by, "") if isinstance(by, str) else (by.name, by.token_id)
        answer = HumanAnswer(approved, data, comment, name, datetime.now(UTC), proof=proof)
        stored = before or await self.put(approval, answer)
        if stored != answer:
            said = "approved" if stored.approved else "rejected"
            how = "when its deadline passed" if stored.timed_out else f"by {stored.by or 'somebody'}"
            raise ConfigError(f"The question {approval.id!r} has already been answered: {said} {how}.")
        return answer

    async def answer_to(self, approval: Approval) -> HumanAnswer | None:
        """Return the answer to a question, the default once its deadline has passed; None if there is none.

        Raises `OutputError` if the deadline has passed, and there is neither an answer nor a default.
        """
        record = await self._store.get(ANSWER, approval.id)
        if record is not None:
            return from_record(HumanAnswer, record.data)
        if not approval.is_overdue:
            return None
        if (default := approval.default_answer) is None:
            raise OutputError(f"Nobody answered before the deadline: {approval.message}")
        return await self.put(approval, default)

    async def ask(self, approval: Approval) -> Approval:
        """Store a question; return the one that is stored, which an earlier process may have asked."""
        stored, _ = await self._store.put_if_absent(approval.stored())
        asked = from_record(Approval, stored.data)
        if asked.status == "waiting" and is_future(asked.asked_at, datetime.now(UTC)):
            # A wrong clock wrote it: its deadline counts from now.
            await self._store.put(approval.stored())
            return approval
        return asked

    async def put(self, approval: Approval, answer: HumanAnswer) -> HumanAnswer:
        """Store an answer; return the one that is stored, since the first one counts."""
        stored, _ = await self._store.put_if_absent(Record(ANSWER, approval.id, to_record(answer)))
        await self._store.put(replace(approval, status="answered").stored())
        return from_record(HumanAnswer, stored.data)

    async def wait(self, approvals: Iterable[Approval]) -> None:
        """Return as soon as one of these questions has an answer, or its deadline has passed."""
        asked = tuple(approvals)
        while True:
            for approval in asked:
                if approval.is_overdue or await self._store.get(ANSWER, approval.id) is not None:
                    return
            await asyncio.sleep(POLL)
