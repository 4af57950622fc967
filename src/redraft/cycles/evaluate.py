"""Evaluate: say whether what was done worked, by checks, a function, a model, or several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.core.errors import OutputError
from redraft.core.texts import short_repr
from redraft.cycles.asking import asked
from redraft.cycles.data import said
from redraft.cycles.functions import answer_of
from redraft.cycles.rendering import render_text, scopes_of
from redraft.text.condition import holds
from redraft.text.templates import TemplateError

if TYPE_CHECKING:
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_actuate import Evaluate
    from redraft.cycles.spec_parts import Check

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
