"""Actuate: run the planned actions, and evaluate the outcome."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft._clock import uptime
from redraft._texts import short_repr, shortened
from redraft.cycles.calls import ask_model, call_configured, call_function
from redraft.cycles.cycle import error_line, render_text
from redraft.cycles.egress import LimitError
from redraft.cycles.memory import stamp_of
from redraft.cycles.notices import alert_notice
from redraft.cycles.reason import (
    action_scope,
    admit_due_actions,
    is_due,
    plan_entry,
    planned_actions,
    refusal_reason,
    unplanned_actions,
)
from redraft.cycles.sense import http_request
from redraft.cycles.spec import (
    AlertAction,
    AnyAction,
    ApiCallAction,
    Execute,
    FunctionAction,
)
from redraft.errors import LeaseError, OutputError
from redraft.http import fetch
from redraft.redact.log import logger
from redraft.text.characters import visible
from redraft.text.templates import TemplateError, holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec import ActionLimit, Check, Evaluate

ALERTS = "alerts"
"""The topic of alerts on the bus."""
QUEUED = "queued"
"""Marks the result of an alert that is sent when the database is back."""
MAX_LOG_LINE = 2_000
MAX_RESULT = 20_000
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}


async def execute(substage: Execute, cycle: Cycle) -> None:
    """Run the planned actions, then the actions whose conditions hold; record each outcome.

    Outcomes go to `derivedData.execution`. An action that fails does not stop the others, and is a failure of
    the cycle. An action that is not approved is `blocked`; if its condition does not hold, it is `skipped`.
    An action over its limit is `blocked`, and is a failure too, because it was not blocked by a decision.
    """
    outcomes: list[dict[str, Any]] = cycle.state.derived_data["execution"].setdefault("actions", [])
    actions = {action.name: action for action in substage.config.actions}
    admit_due_actions(cycle)
    # The condition of an action may depend on the outcome of another action.
    while pending := _pending(cycle, actions, outcomes):
        for entry in pending:
            repetition = sum(outcome["action"] == entry["action"] for outcome in outcomes)
            outcomes.append(await _outcome(entry, actions[entry["action"]], substage, repetition, cycle))
        admit_due_actions(cycle)
    for action in unplanned_actions(cycle):
        try:
            _ = action.name in actions and is_due(plan_entry(action), action, cycle)
        except TemplateError as error:
            place = f"actuate/{substage.name}/{action.name}"
            cycle.failures.append(f"{place}: its condition can't be evaluated: {error_line(error)}")
    if not any(outcome["status"] in ("succeeded", "failed") for outcome in outcomes):
        cycle.skipped.append(f"actuate/{substage.name}")


def _pending(
    cycle: Cycle, actions: Mapping[str, AnyAction], outcomes: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    ended = {outcome["id"] for outcome in outcomes}
    return [
        entry for entry in planned_actions(cycle) if entry["action"] in actions and entry["id"] not in ended
    ]


async def _outcome(
    entry: dict[str, Any], action: AnyAction, substage: Execute, repetition: int, cycle: Cycle
) -> dict[str, Any]:
    """Run an entry of the plan; a failed action, or an action over its limit, fails the cycle.

    `repetition` counts earlier outcomes of the same action. Their number, unlike the place in the plan, does
    not depend on conditions on the memory, in which a cycle that resumes sees new feedback.
    """
    outcome: dict[str, Any] = {
        "id": entry["id"],
        "action": action.name,
        "type": action.type,
        "status": "succeeded",
        "result": None,
        "error": None,
        "idempotencyKey": cycle.idempotency_key(substage.name, repetition, action.name),
        "startedAt": stamp_of(cycle.runtime.clock()),
        "durationMs": 0.0,
    }
    if reason := refusal_reason(entry, cycle):
        return {**outcome, "status": "blocked", "error": reason}
    step = f"actuate/{substage.name}/{action.name}"
    try:
        if not is_due(entry, action, cycle):
            return {**outcome, "status": "skipped", "error": f"{action.when} does not hold"}
    except TemplateError as error:
        problem = f"its condition can't be evaluated: {error_line(error)}"
        cycle.failures.append(f"{step}: {problem}")
        return {**outcome, "status": "failed", "error": problem}
    named_limits = {substage.name: substage.config.limit, f"{substage.name}/{action.name}": action.limit}
    limits = {name: limit for name, limit in named_limits.items() if limit is not None}
    outcome = await cycle.step(step, dict[str, Any], _run, outcome, entry, action, limits, cycle)
    if outcome["error"] is not None:
        cycle.failures.append(f"{step}: {outcome['error']}")
    return outcome


async def _run(
    outcome: dict[str, Any],
    entry: dict[str, Any],
    action: AnyAction,
    limits: Mapping[str, ActionLimit],
    cycle: Cycle,
) -> dict[str, Any]:
    began, key = uptime(), outcome["idempotencyKey"]
    outcome = {**outcome, "startedAt": stamp_of(cycle.runtime.clock())}
    scope = action_scope(entry, action)
    try:
        result = await cycle.runtime.egress.act(key, lambda: _perform(action, scope, key, cycle), limits)
        outcome["result"] = _bounded(result)
    except LeaseError:
        raise
    except LimitError as error:
        outcome |= {"status": "blocked", "error": str(error)}
    except Exception as error:  # noqa: BLE001 (an action that fails in any way does not stop the others)
        # A server may echo the key that it received.
        outcome |= {"status": "failed", "error": cycle.runtime.redact(error_line(error))}
    outcome["durationMs"] = round((uptime() - began) * 1000, 3)
    return outcome


async def _perform(action: AnyAction, scope: dict[str, Any], key: str, cycle: Cycle) -> Any:
    if isinstance(action, ApiCallAction):
        return await fetch(http_request(action, cycle.outward_scopes(scope), idempotency_key=key))
    if isinstance(action, FunctionAction):
        return await call_function(
            cycle, action.function, action.with_, scope, key, timeout_ms=action.timeout_ms
        )
    message = shortened(visible(render_text(action.message, cycle.scopes(scope))), MAX_LOG_LINE)
    data = {"severity": action.severity, "message": message}
    logger.log(LEVELS[action.severity], "The agent %r, cycle %d: %s", cycle.spec.name, cycle.number, message)
    if isinstance(action, AlertAction):
        alert = {"agent": cycle.spec.name, "cycle": cycle.number, "alert": action.name, **data}
        now = stamp_of(cycle.runtime.clock())
        notice = alert_notice(cycle, action.name, action.severity, message, now)
        await cycle.runtime.outbox.notify(notice)
        if not await cycle.runtime.outbox.publish(ALERTS, cycle.runtime.redact(alert), key):
            return {**data, QUEUED: True}
    return data


def _bounded(result: Any) -> Any:
    """A result as it is recorded; a long one is truncated, since prompts show it."""
    text = json.dumps(result, ensure_ascii=False)
    return result if len(text) <= MAX_RESULT else {"cut": text[:MAX_RESULT], "length": len(text)}


SUCCESS, CHECKS = "success", "checks"


async def evaluate(substage: Evaluate, cycle: Cycle) -> None:
    """Add `success`, `checks` and every other key of the answers to `derivedData.evaluation`.

    `success` is false if any verdict is false, None if any is unknown (a check that can't be evaluated), else
    true. Without verdicts, it is true if every action that ran succeeded. Raises any error of the model or
    function.
    """
    step = f"actuate/{substage.name}"
    evaluation: dict[str, Any] = cycle.state.derived_data["evaluation"]
    checks = [_check_result(check, cycle) for check in substage.config.checks]
    verdicts = [evaluation[SUCCESS]] if SUCCESS in evaluation else []
    verdicts += [check["passed"] for check in checks]
    function = substage.config.function
    if function is not None:
        verdicts += _merge(evaluation, await call_configured(cycle, step, substage.config), function)
    if substage.prompt is not None:
        verdicts += _merge(evaluation, await ask_model(cycle, step, substage), substage.name)
    evaluation[CHECKS] = [*evaluation.get(CHECKS, []), *checks]
    if not verdicts:
        outcomes = cycle.state.derived_data["execution"].get("actions", [])
        statuses = [outcome["status"] for outcome in outcomes]
        verdicts = [status == "succeeded" for status in statuses if status in ("succeeded", "failed")]
    is_unknown = None in verdicts or not verdicts
    evaluation[SUCCESS] = False if False in verdicts else None if is_unknown else True


def _check_result(check: Check, cycle: Cycle) -> dict[str, Any]:
    scopes = cycle.scopes()
    try:
        passed = holds(check.require, scopes)
        message = "" if passed else render_text(check.message, scopes) or f"{check.require} does not hold"
    except TemplateError as error:
        return {"name": check.name, "passed": None, "message": f"it can't be evaluated: {error_line(error)}"}
    return {"name": check.name, "passed": passed, "message": message}


def _merge(evaluation: dict[str, Any], answer: Any, name: str) -> list[bool | None]:
    """Merge an answer into the evaluation; return its verdict on the success, if any."""
    if answer is None or isinstance(answer, bool):
        return [answer]
    if not isinstance(answer, Mapping):
        evaluation[name] = answer
        return []
    fields = dict(cast("Mapping[str, Any]", answer))
    has_verdict = SUCCESS in fields
    success = fields.pop(SUCCESS, None)
    if success is not None and not isinstance(success, bool):
        raise OutputError(
            f"{name!r} returned {short_repr(success)} as 'success'; expected true, false or null"
        )
    checks: Any = fields.pop(CHECKS, None) or []
    evaluation |= fields
    evaluation[CHECKS] = [*evaluation.get(CHECKS, []), *(checks if isinstance(checks, list) else [checks])]
    return [success] if has_verdict else []
