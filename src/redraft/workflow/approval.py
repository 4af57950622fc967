"""human.approve: ask a person, wait for the answer however long it takes, and go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from redraft._calls import awaited
from redraft._codec import from_record, to_record
from redraft._hints import keyword_hints
from redraft._validation import only
from redraft.errors import ConfigError, OutputError
from redraft.loop.journal import enclosing_step
from redraft.stores.base import Record
from redraft.stores.location import required_project_store
from redraft.workflow.runtime import ActionResult, plain_data, read_params
from redraft.workflow.spec import APPROVE, ApproveParams

if TYPE_CHECKING:
    from redraft.stores.base import Store
    from redraft.web.people import Person
    from redraft.workflow.runtime import Resources, Scope

APPROVAL = "approval"
"""The kind of the record of a question to a person; its `status` says whether it is answered."""
ANSWER = "approval answer"
"""The kind of the record of its answer, which is written once."""
POLL = 1.0
"""Seconds between two looks for an answer."""
LAST = "last"


@dataclass(frozen=True, slots=True)
class Approval:
    """What a workflow asks a person.

    `run_id` is the run that the answer resumes. From the `deadline` on, the `default` is the answer; without
    one, the node fails.
    """

    id: str
    run_id: str
    workflow: str
    node: str
    message: str
    asked_at: datetime
    data: Any = None
    deadline: datetime | None = None
    default: Literal["approve", "reject"] | None = None
    status: Literal["waiting", "answered"] = "waiting"

    @property
    def is_overdue(self) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and datetime.now(UTC) >= self.deadline

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


Approver: TypeAlias = Callable[[Approval], "HumanAnswer | bool | Awaitable[HumanAnswer | bool | None] | None"]
"""A function that answers at once; with None, the workflow waits for a person."""


class WaitingForAnswer(BaseException):
    """A node can't go on until a person has answered: this run ends, and is resumed with the answer.

    Like a cancellation, it is no failure, and no `except Exception` may take it for one.
    """

    def __init__(self, *approvals: Approval) -> None:
        super().__init__(*(approval.id for approval in approvals))
        self.approvals = approvals

    @classmethod
    def of(cls, several: Iterable[WaitingForAnswer]) -> WaitingForAnswer:
        """Return one for all approvals that several wait for."""
        return cls(*(approval for one in several for approval in one.approvals))


async def approve_action(params: Mapping[str, Any], scope: Scope, resources: Resources) -> ActionResult:
    """Ask a person; return `{approved, value, comment, by, at, timed_out, proof}`.

    The question is stored once, and so is its answer; whoever answers first has decided. Without an answer
    the run ends, waiting. Raises `OutputError` if the deadline has passed and there is no default.
    """
    options = read_params(ApproveParams, scope.render(params), APPROVE)
    seconds = options.deadline
    if isinstance(seconds, str):
        raise ConfigError(f"{APPROVE}: deadline must be a number of seconds above 0, got {seconds!r}.")
    inside, now = enclosing_step(), datetime.now(UTC)
    approval = Approval(
        id="",
        run_id=resources.run_id,
        workflow=resources.name,
        node=resources.node,
        message=options.message,
        asked_at=now,
        data=options.data,
        deadline=None if seconds is None else now + timedelta(seconds=seconds),
        default=options.default,
    )
    if inside is None:
        answer = await _asked(approval, resources.approver)
        if answer is None:
            raise ConfigError(
                f"{APPROVE}: the run is not stored, so no answer could resume it; store the run, or give the "
                "workflow an approver."
            )
        return _result(answer)
    place = f"{inside.place}/{inside.number(APPROVE)}"
    run_id = inside.outer.run_id
    approval = replace(approval, id=f"{run_id}.{sha256(place.encode()).hexdigest()[:8]}")
    approvals = Approvals(inside.outer.store)
    approval = await approvals.ask(approval)
    answer = await approvals.answer_to(approval)
    if answer is None and (answer := await _asked(approval, resources.approver)) is not None:
        answer = await approvals.put(approval, answer)
    if answer is None:
        raise WaitingForAnswer(approval)
    return _result(answer)


async def _asked(approval: Approval, approver: Approver | None) -> HumanAnswer | None:
    """Return what a function of the program answers, if there is one."""
    answer = None if approver is None else await awaited(approver)(approval)
    if isinstance(answer, bool):
        return HumanAnswer(answer, approval.data, by="program", at=datetime.now(UTC))
    if answer is not None and not isinstance(answer, HumanAnswer):
        raise ConfigError(f"The approver must return True, False, a HumanAnswer or None, got {answer!r}.")
    return answer


def _result(answer: HumanAnswer) -> ActionResult:
    value = plain_data(answer.value, "The value of the answer")
    at = None if answer.at is None else answer.at.isoformat()
    return ActionResult(
        {
            "approved": answer.approved,
            "value": value,
            "comment": answer.comment,
            "by": answer.by,
            "at": at,
            "timed_out": answer.timed_out,
            "proof": answer.proof,
        }
    )


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
        asked = [from_record(Approval, record.data) for record in found]
        mine = [one for one in asked if run_id in (None, one.run_id) and not one.is_overdue]
        # A process that ended while it stored an answer has left the question as it was.
        runs = {f"{one.id.rpartition('.')[0]}." for one in mine}
        answers = [record.key for run in runs for record in await self._store.find(ANSWER, prefix=run)]
        return sorted((one for one in mine if one.id not in answers), key=lambda one: one.asked_at)

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
        if approval.default is None:
            raise OutputError(f"Nobody answered before the deadline: {approval.message}")
        is_approved = approval.default == "approve"
        return await self.put(
            approval, HumanAnswer(is_approved, approval.data, at=datetime.now(UTC), timed_out=True)
        )

    async def ask(self, approval: Approval) -> Approval:
        """Store a question; return the one that is stored, which an earlier process may have asked."""
        stored, _ = await self._store.put_if_absent(approval.stored())
        return from_record(Approval, stored.data)

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
