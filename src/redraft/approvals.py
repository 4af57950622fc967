"""Approvals: questions to people, and their answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from redraft._clock import is_future
from redraft._codec import from_record, plain_data, to_record
from redraft._hints import keyword_hints
from redraft._validation import check_flag, check_text, only
from redraft.errors import ConfigError, OutputError
from redraft.stores.base import Record, restored, values_of
from redraft.stores.location import required_project_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.stores.base import Store
    from redraft.web.people import Person

APPROVAL = "approval"
"""The kind of a question's record; its `status` says whether it is answered."""
ANSWER = "approval answer"
"""The kind of an answer's record, which is written once."""
POLL = 1.0
"""Polling interval for an answer, in seconds."""
LAST = "last"


@dataclass(frozen=True, slots=True)
class Approval:
    """A question of a workflow, or of an agent's cycle about an action of its plan, to a person."""

    id: str
    run_id: str
    """The run that the answer resumes, or the agent whose cycle waits."""
    workflow: str
    """The name of the workflow or agent."""
    node: str
    """The node, or the id of the planned action."""
    message: str
    asked_at: datetime
    data: Any = None
    """The data of the node, or the parameters of the action, which the answer may change."""
    deadline: datetime | None = None
    """The time when a workflow takes the default. The deadline of a cycle is in the cycle's record."""
    default: Literal["approve", "reject"] | None = None
    """The answer if no person answers in time; with None, the node fails."""
    status: Literal["waiting", "answered"] = "waiting"
    key: str = ""
    """Identifies what is asked and where, so that another try of a workflow takes the earlier answer."""

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
        """The record for the store, always with its `status`, for searches."""
        return Record(APPROVAL, self.id, to_record(self) | {"status": self.status})


@dataclass(frozen=True, slots=True)
class HumanAnswer:
    """A person's answer to a question, or the default."""

    approved: bool
    value: Any = None
    """The approved data, changed or not."""
    comment: str = ""
    by: str = ""
    """The name of the person."""
    at: datetime | None = None
    timed_out: bool = False
    """Whether it is the default, because no person answered before the deadline."""
    proof: str = ""
    """The id of the token that proved the identity of the person; empty without proof."""


def checked_answer(answer: HumanAnswer) -> HumanAnswer:
    """The answer with a plain value; raises `ConfigError` for an answer that can't be stored."""
    check_flag("approved", answer.approved)
    check_text("comment", answer.comment)
    check_text("by", answer.by)
    return replace(answer, value=plain_data(answer.value, "The value of the answer"))


@keyword_hints()
class Approvals:
    """Questions to people, and their answers, in a store (by default the project's).

    Raises `ConfigError` if storage is turned off (an empty `home`), `StoreError` if the store can't be read.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._store = store or required_project_store("approvals")

    async def waiting(self, run_id: str | None = None) -> list[Approval]:
        """Open questions, of a run or of all runs, oldest first.

        A question whose deadline has passed is not open: the run takes its default, or fails, when it is
        resumed.
        """
        records = await self._store.find(APPROVAL, where={"status": "waiting"})
        stored = values_of(records, Approval)
        questions = [
            question for question in stored if run_id in (None, question.run_id) and not question.is_overdue
        ]
        # If a process ended while it stored an answer, the status of the question is still "waiting".
        runs = {question.id.rpartition(".")[0] for question in questions}
        answered = {name for run in runs for name in await self.answers(run)}
        return sorted(
            (question for question in questions if question.id not in answered),
            key=lambda question: question.asked_at,
        )

    async def answers(self, run_id: str) -> dict[str, HumanAnswer]:
        """The answers to the questions of a run, or of an agent's cycle, by the id of the question."""
        records = await self._store.find(ANSWER, prefix=f"{run_id}.")
        return restored(records, lambda record: from_record(HumanAnswer, record.data))

    async def get(self, name: str) -> Approval | None:
        """The open question with this id, id prefix or run id; None if there is none.

        A whole id also finds a question that is no longer open. Raises `ConfigError` if there are several.
        """
        waiting = await self.waiting()
        if name == LAST:
            return waiting[-1] if waiting else None
        exact = [question for question in waiting if name in (question.id, question.run_id)]
        matches = exact or [question for question in waiting if name and question.id.startswith(name)]
        if not matches and (record := await self._store.get(APPROVAL, name)) is not None:
            return from_record(Approval, record.data)
        return only(matches, name, "approvals", lambda question: question.id)

    async def answer(
        self,
        approval: Approval,
        *,
        approved: bool,
        value: Any = ...,
        comment: str = "",
        by: str | Person = "",
    ) -> HumanAnswer:
        """Answer a question; `value` replaces its data, and `by` is a name, or a person with a token.

        Raises `ConfigError` if it has been answered, or its deadline has passed.
        """
        try:
            earlier = await self.answer_to(approval)
        except OutputError as error:
            raise ConfigError(f"The question {approval.id!r} can no longer be answered. {error}") from error
        data = approval.data if value is ... else value
        name: Any = getattr(by, "name", by)
        proof: str = getattr(by, "token_id", "")
        answer = checked_answer(HumanAnswer(approved, data, comment, name, datetime.now(UTC), proof=proof))
        stored = earlier or await self.put(approval, answer)
        if stored != answer:
            decision = "approved" if stored.approved else "rejected"
            how = "when its deadline passed" if stored.timed_out else f"by {stored.by or 'somebody'}"
            raise ConfigError(f"The question {approval.id!r} has already been answered: {decision} {how}.")
        return answer

    async def answer_to(self, approval: Approval) -> HumanAnswer | None:
        """The answer to a question, or its default once the deadline has passed; None before that.

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
        """Store a question, unless an earlier process or try has stored it; return the stored question.

        A question of an earlier try whose deadline has passed without an answer is asked again.
        """
        if approval.key and await self._store.get(APPROVAL, approval.id) is None:
            records = await self._store.find(APPROVAL, where={"key": approval.key})
            for earlier in values_of(records, Approval):
                if not earlier.is_overdue or await self._store.get(ANSWER, earlier.id) is not None:
                    return earlier
        record, _ = await self._store.put_if_absent(approval.stored())
        stored = from_record(Approval, record.data)
        if stored.status == "waiting" and is_future(stored.asked_at, datetime.now(UTC)):
            # A wrong clock wrote it: its deadline counts from now.
            await self._store.put(approval.stored())
            return approval
        return stored

    async def put(self, approval: Approval, answer: HumanAnswer) -> HumanAnswer:
        """Store an answer, unless there is an earlier one; return the stored answer."""
        stored, _ = await self._store.put_if_absent(Record(ANSWER, approval.id, to_record(answer)))
        await self._store.put(replace(approval, status="answered").stored())
        return from_record(HumanAnswer, stored.data)

    async def wait(self, approvals: Iterable[Approval]) -> None:
        """Wait until any of these questions has an answer, or its deadline has passed."""
        questions = tuple(approvals)
        while True:
            for approval in questions:
                if approval.is_overdue or await self._store.get(ANSWER, approval.id) is not None:
                    return
            await asyncio.sleep(POLL)
