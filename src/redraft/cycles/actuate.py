"""Actuate: execute the plan, and evaluate what was done."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import short_repr, shortened
from redraft.cycles.asking import answer_of, asked, call_function
from redraft.cycles.http import fetched
from redraft.cycles.memory import stamp_of
from redraft.cycles.reason import admit, candidate, is_due, planned, refusal, shown, unplanned
from redraft.cycles.sense import http_call
from redraft.cycles.spec import AlertAction, AnyAction, ApiCallAction, Execute, FunctionAction
from redraft.cycles.state import outward_scopes, render_text, said, scopes_of
from redraft.errors import OutputError
from redraft.redact.log import logger
from redraft.text.characters import visible
from redraft.text.templates import TemplateError, holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.cycles.spec import Check, Evaluate
    from redraft.cycles.state import Cycle

ALERTS = "alerts"
"""The topic on the bus under which alerts are published."""
KEY_HEADER = "Idempotency-Key"
QUEUED = "queued"
"""In the result of an alert that is sent when the database is back."""
LONGEST_LINE = 2_000
LONGEST_RESULT = 20_000
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}


async def execute(substage: Execute, cycle: Cycle) -> None:
    """Add to `derivedData.execution` an outcome for each action: of the plan, then those due by condition.

    One that fails does not stop the others, and is a failure of the cycle. One that is not approved is
    `blocked`, one whose condition does not hold is `skipped`.
    """
    outcomes: list[dict[str, Any]] = cycle.state.derived_data["execution"].setdefault("actions", [])
    own = {action.name: action for action in substage.config.actions}
    admit(cycle)
    # What is done may make another action due: its condition may read how this one went.
    while waiting := _waiting(cycle, own, outcomes):
        for one in waiting:
            outcome = await _turn(one, own[one["action"]], substage.name, len(outcomes), cycle)
            outcomes.append(outcome)
            if outcome["status"] == "failed":
                cycle.failures.append(f"actuate/{substage.name}/{one['action']}: {outcome['error']}")
        admit(cycle)
    for action in unplanned(cycle):
        if action.name in own and (trouble := _undecidable(action, cycle)):
            cycle.failures.append(f"actuate/{substage.name}/{action.name}: {trouble}")
    if not any(outcome["status"] in ("succeeded", "failed") for outcome in outcomes):
        cycle.skipped.append(f"actuate/{substage.name}")


def _waiting(
    cycle: Cycle, own: Mapping[str, AnyAction], outcomes: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    over = {outcome["id"] for outcome in outcomes}
    return [one for one in planned(cycle) if one["action"] in own and one["id"] not in over]


def _undecidable(action: AnyAction, cycle: Cycle) -> str:
    try:
        is_due(candidate(action), action, cycle)
    except TemplateError as error:
        return f"its condition can't be judged: {said(error)}"
    return ""


async def _turn(
    one: dict[str, Any], action: AnyAction, substage: str, position: int, cycle: Cycle
) -> dict[str, Any]:
    """Return the outcome of one action that is in the plan."""
    outcome: dict[str, Any] = {
        "id": one["id"],
        "action": action.name,
        "type": action.type,
        "status": "succeeded",
        "result": None,
        "error": None,
        "idempotencyKey": idempotency_key(cycle, substage, position, action.name),
        "startedAt": stamp_of(cycle.means.clock()),
        "durationMs": 0.0,
    }
    if refused := refusal(one, cycle):
        return {**outcome, "status": "blocked", "error": refused}
    try:
        if not is_due(one, action, cycle):
            return {**outcome, "status": "skipped", "error": f"{action.when} does not hold"}
    except TemplateError as error:
        return {**outcome, "status": "failed", "error": f"its condition can't be judged: {said(error)}"}
    step = f"actuate/{substage}/{action.name}"
    return await cycle.step(step, dict[str, Any], _carried_out, outcome, one, action, cycle)


async def _carried_out(
    outcome: dict[str, Any], one: dict[str, Any], action: AnyAction, cycle: Cycle
) -> dict[str, Any]:
    began = perf_counter()
    outcome = {**outcome, "startedAt": stamp_of(cycle.means.clock())}
    try:
        result = await _done(action, shown(one, action), outcome["idempotencyKey"], cycle)
        outcome["result"] = _bounded(result)
    except Exception as error:  # noqa: BLE001 (an action that fails, however, does not stop the others)
        # A server may send back the key that it got.
        outcome |= {"status": "failed", "error": cycle.means.redacted(said(error))}
    outcome["durationMs"] = round((perf_counter() - began) * 1000, 3)
    return outcome


async def _done(action: AnyAction, seen: dict[str, Any], key: str, cycle: Cycle) -> Any:
    if isinstance(action, ApiCallAction):
        call = http_call(action, outward_scopes(cycle, seen))
        return await fetched(replace(call, headers={**call.headers, KEY_HEADER: key}))
    if isinstance(action, FunctionAction):
        return await call_function(
            cycle, action.function, action.with_, seen, key, timeout_ms=action.timeout_ms
        )
    message = shortened(visible(render_text(action.message, scopes_of(cycle, seen))), LONGEST_LINE)
    data = {"severity": action.severity, "message": message}
    logger.log(LEVELS[action.severity], "The agent %r, cycle %d: %s", cycle.spec.name, cycle.number, message)
    if isinstance(action, AlertAction):
        alert = {"agent": cycle.spec.name, "cycle": cycle.number, "alert": action.name, **data}
        if not await cycle.means.bus.publish(ALERTS, cycle.means.redacted(alert), key):
            return {**data, QUEUED: True}
    return data


def idempotency_key(cycle: Cycle, substage: str, position: int, action: str) -> str:
    """Return what stays the same when a killed cycle is resumed, and is another in every other cycle."""
    parts = json.dumps([cycle.spec.name, cycle.life, cycle.number, substage, position, action])
    return sha256(parts.encode()).hexdigest()[:32]


def _bounded(result: Any) -> Any:
    """Return a result as it is kept: prompts show it, so a long one is cut to its beginning."""
    text = json.dumps(result, ensure_ascii=False)
    return result if len(text) <= LONGEST_RESULT else {"cut": text[:LONGEST_RESULT], "length": len(text)}


SUCCESS, CHECKS = "success", "checks"


async def evaluate(substage: Evaluate, cycle: Cycle) -> None:
    """Add to `derivedData.evaluation`: `success`, the `checks`, and all else that a model or function gave.

    `success` is true where all that was asked says so, false where anything says no, and else None: a check
    that can't be judged is unknown. Where nothing says anything of it, it is whether every action that was
    done succeeded. Raises what the model or function raises.
    """
    step = f"actuate/{substage.name}"
    evaluation: dict[str, Any] = cycle.state.derived_data["evaluation"]
    checks = [_checked(check, cycle) for check in substage.config.checks]
    verdicts = [evaluation[SUCCESS]] if SUCCESS in evaluation else []
    verdicts += [check["passed"] for check in checks]
    function = substage.config.function
    if function is not None:
        verdicts += _taken(evaluation, await answer_of(cycle, step, substage.config), function)
    if substage.prompt is not None:
        reply = await asked(cycle, step, substage.prompt, substage.output_schema, substage.model)
        verdicts += _taken(evaluation, reply, substage.name)
    evaluation[CHECKS] = [*evaluation.get(CHECKS, []), *checks]
    evaluation[SUCCESS] = _together(verdicts or _outcomes(cycle))


def _checked(check: Check, cycle: Cycle) -> dict[str, Any]:
    scopes = scopes_of(cycle)
    try:
        passed = holds(check.require, scopes)
        message = "" if passed else render_text(check.message, scopes) or f"{check.require} does not hold"
    except TemplateError as error:
        return {"name": check.name, "passed": None, "message": f"it can't be judged: {said(error)}"}
    return {"name": check.name, "passed": passed, "message": message}


def _taken(evaluation: dict[str, Any], given: Any, name: str) -> list[bool | None]:
    """Add what was given to the evaluation; return what it says of the success, if it does."""
    if given is None or isinstance(given, bool):
        return [given]
    if not isinstance(given, Mapping):
        evaluation[name] = given
        return []
    found = dict(cast("Mapping[str, Any]", given))
    says_it = SUCCESS in found
    success = found.pop(SUCCESS, None)
    if success is not None and not isinstance(success, bool):
        raise OutputError(
            f"{name!r} said that 'success' is {short_repr(success)}; expected true, false, null"
        )
    checks = found.pop(CHECKS, [])
    evaluation |= found
    evaluation[CHECKS] = [*evaluation.get(CHECKS, []), *(checks if isinstance(checks, list) else [checks])]
    return [success] if says_it else []


def _outcomes(cycle: Cycle) -> list[bool | None]:
    actions = cycle.state.derived_data["execution"].get("actions", [])
    return [one["status"] == "succeeded" for one in actions if one["status"] in ("succeeded", "failed")]


def _together(verdicts: list[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts or not verdicts else True
