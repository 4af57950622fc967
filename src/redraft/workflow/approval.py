"""`human.approve`: ask a person, wait as long as the answer takes, and continue with it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft._calls import awaited
from redraft._clock import moment_after
from redraft.approvals import Approval, Approvals, HumanAnswer, checked_answer
from redraft.errors import ConfigError
from redraft.loop.journal import enclosing_step
from redraft.workflow.runtime import ActionResult, read_params
from redraft.workflow.spec import APPROVE, ApproveParams

if TYPE_CHECKING:
    from redraft.workflow.runtime import Resources, Scope

Approver: TypeAlias = Callable[[Approval], "HumanAnswer | bool | Awaitable[HumanAnswer | bool | None] | None"]
"""A function that answers in place of a person; if it returns None, the workflow waits for a person."""


class WaitingForAnswer(BaseException):
    """A node needs a person's answer: the run ends here, and is resumed once there is an answer.

    Like a cancellation, it is not a failure, so `except Exception` must not catch it.
    """

    def __init__(self, *approvals: Approval) -> None:
        super().__init__(*(approval.id for approval in approvals))
        self.approvals = approvals

    @classmethod
    def merged(cls, several: Iterable[WaitingForAnswer]) -> WaitingForAnswer:
        """Merge several into one that waits for all their approvals."""
        return cls(*(approval for waiting in several for approval in waiting.approvals))


async def approve_action(params: Mapping[str, Any], scope: Scope, resources: Resources) -> ActionResult:
    """Ask a person; the value is `{approved, value, comment, by, at, timed_out, proof}`.

    The question and its answer are each stored once: the first answer counts, also when `retries` run the
    file again, unless the message or the data differ. Without an answer, the run ends with the status
    `waiting`. Raises `OutputError` if the deadline has passed and there is no default.
    """
    rendered = scope.render(params) | {"message": scope.text(params["message"])}
    options = read_params(ApproveParams, rendered, APPROVE, rendered=True)
    step, now = enclosing_step(), datetime.now(UTC)
    approval = Approval(
        id="",
        run_id=resources.run_id,
        workflow=resources.spec.name,
        node=resources.node,
        message=options.message,
        asked_at=now,
        data=options.data,
        deadline=moment_after(now, options.deadline),
        default=options.default,
    )
    if step is None:
        answer = await _ask_approver(approval, resources.approver)
        if answer is None:
            raise ConfigError(
                f"{APPROVE}: the run is not stored, so no answer could resume it; store the run, or give the "
                "workflow an approver."
            )
        return _result(answer)
    number, run_id = step.number(APPROVE), step.outer.run_id
    approval_id = f"{run_id}.{_digest(f'{step.place}/{number}')[:8]}"
    asked = json.dumps([approval.message, approval.data], sort_keys=True)
    approval = replace(approval, id=approval_id, key=f"{step.key(number)}.{_digest(asked)[:16]}")
    approvals = Approvals(step.outer.store)
    approval = await approvals.ask(approval)
    answer = await approvals.answer_to(approval)
    if answer is None and (answer := await _ask_approver(approval, resources.approver)) is not None:
        answer = await approvals.put(approval, answer)
    if answer is None:
        raise WaitingForAnswer(approval)
    return _result(answer)


async def _ask_approver(approval: Approval, approver: Approver | None) -> HumanAnswer | None:
    """The answer of the program's approver; None without an approver, or if it leaves it to a person."""
    answer = None if approver is None else await awaited(approver)(approval)
    if isinstance(answer, bool):
        return HumanAnswer(answer, approval.data, by="program", at=datetime.now(UTC))
    if answer is not None and not isinstance(answer, HumanAnswer):
        raise ConfigError(f"The approver must return True, False, a HumanAnswer or None, got {answer!r}.")
    return answer and checked_answer(answer)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _result(answer: HumanAnswer) -> ActionResult:
    at = None if answer.at is None else answer.at.isoformat()
    return ActionResult({**asdict(answer), "at": at})
