"""Plan: say what to do, by rules, a function, a model, or several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.core.nearest import nearest
from redraft.core.texts import short_repr
from redraft.cycles.asking import asked
from redraft.cycles.data import said
from redraft.cycles.functions import answer_of
from redraft.cycles.planned import declared, planned, put_into_plan
from redraft.cycles.rendering import render, render_text, scopes_of
from redraft.text.condition import holds
from redraft.text.templates import TemplateError

if TYPE_CHECKING:
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_reason import Plan, PlanRule

MOST_ACTIONS = 100
"""So many actions a plan holds at most: a model that repeats itself must not act without end."""
ACTIONS = "actions"


async def plan(substage: Plan, cycle: Cycle) -> None:
    """Add to `derivedData.plan`: its `actions`, and all else that a model or function gave, by key.

    Only actions that `execute` declares get into the plan; whatever else was planned is a failure, as is a
    rule that can't be judged. Raises what the model or function raises.
    """
    step = f"reason/{substage.name}"
    planned(cycle)  # so that the list is there, whatever comes
    for rule in substage.config.rules:
        try:
            _by_rule(rule, cycle, step)
        except TemplateError as error:
            cycle.failures.append(f"{step}: the rule for {rule.action!r} can't be judged: {said(error)}")
    if substage.config.function is not None:
        _take(await answer_of(cycle, step, substage.config), cycle, step)
    if substage.prompt is not None:
        schema = substage.output_schema or _schema(cycle)
        prompt = f"{substage.prompt.rstrip()}\n\n{_choice(cycle)}"
        _take(await asked(cycle, step, prompt, schema, substage.model, reasoning=True), cycle, step)


def _by_rule(rule: PlanRule, cycle: Cycle, step: str) -> None:
    scopes = scopes_of(cycle)
    if rule.when is None or holds(rule.when, scopes):
        reason = render_text(rule.reason, scopes) if rule.reason else rule.when or ""
        _add({"action": rule.action, "params": render(rule.params, scopes), "reason": reason}, cycle, step)


def _take(given: Any, cycle: Cycle, step: str) -> None:
    """Take over what a model or function planned: a list of actions, or an object that has one."""
    actions = given
    if isinstance(given, Mapping):
        rest = dict(cast("Mapping[str, Any]", given))
        actions = rest.pop(ACTIONS, [])
        cycle.state.derived_data["plan"] |= rest
    for one in cast("list[Any]", actions) if isinstance(actions, list) else [actions]:
        if one is not None:
            _add(one, cycle, step)


def _add(given: Any, cycle: Cycle, step: str) -> None:
    known = declared(cycle)
    fields: Any = {"action": given} if isinstance(given, str) else given
    if not isinstance(fields, dict):
        trouble = f"{short_repr(given)} is no action; expected a name, or an object with 'action'"
    else:
        fields = cast("dict[str, Any]", fields)
        name: Any = fields.get("action", fields.get("name"))
        params: Any = fields.get("params") or {}
        if not isinstance(name, str) or name not in known:
            trouble = f"there is no action {short_repr(name)}; {nearest(str(name), list(known))}"
        elif not isinstance(params, dict):
            trouble = f"the params of {name!r} are {short_repr(params)}; expected an object"
        elif len(planned(cycle)) >= MOST_ACTIONS:
            trouble = f"{name!r} is one too many; a plan has at most {MOST_ACTIONS} actions"
        else:
            reason = fields.get("reason")
            put_into_plan(
                cycle, name, cast("dict[str, Any]", params), reason if isinstance(reason, str) else ""
            )
            return
    cycle.failures.append(f"{step}: not planned: {trouble}")


def _choice(cycle: Cycle) -> str:
    """Tell a model what it can plan; the braces of a name in the file must not be taken for a template."""
    names = "\n".join(f"- {action.name} ({action.type})" for action in declared(cycle).values())
    text = f"Only these actions can be planned, by their names:\n{names or '(none)'}"
    return text.replace("{", "(").replace("}", ")")


def _schema(cycle: Cycle) -> dict[str, Any]:
    """Return what a model's plan has to follow where its file does not say it."""
    properties = {
        "action": {"type": "string", "enum": list(declared(cycle))},
        "params": {"type": "object"},
        "reason": {"type": "string"},
    }
    action = {"type": "object", "properties": properties, "required": ["action"]}
    actions = {"type": "array", "items": action, "maxItems": MOST_ACTIONS}
    return {"type": "object", "properties": {ACTIONS: actions}, "required": [ACTIONS]}
