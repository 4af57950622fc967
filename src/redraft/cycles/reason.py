"""Reason: analyze the data, plan actions, check them against constraints, and authorize them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from redraft._clock import moment_after
from redraft._texts import as_text, short_repr
from redraft._validation import nearest
from redraft.approvals import Approval, HumanAnswer
from redraft.cycles.calls import ask_model, call_configured
from redraft.cycles.cycle import error_line, render_text
from redraft.cycles.records import as_object
from redraft.cycles.spec import (
    ANY,
    AnyAction,
    Authorize,
    Constraint,
    Govern,
    Plan,
    parameters_of,
    substages_of,
)
from redraft.text.templates import TemplateError, braced, holds, render, template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec import Analyze, AuthorizeConfig

ANOMALIES = "anomalies"


async def analyze(substage: Analyze, cycle: Cycle) -> None:
    """Add `anomalies` to `derivedData.analysis`, and every other key that a model or function returned.

    A rule that can't be evaluated, because a value is missing, is a failure and not an anomaly. Raises any
    error of the model or function.
    """
    step = f"reason/{substage.name}"
    analysis: dict[str, Any] = cycle.state.derived_data["analysis"]
    anomalies: list[Any] = analysis.setdefault(ANOMALIES, [])
    for rule in substage.config.rules:
        try:
            if holds(rule.when, scopes := cycle.scopes()):
                message = render_text(rule.message, scopes) if rule.message else rule.when
                anomalies.append({"rule": rule.name, "severity": rule.severity, "message": message})
        except TemplateError as error:
            cycle.failures.append(f"{step}: the rule {rule.name!r} can't be evaluated: {error_line(error)}")
    _merge(analysis, await call_configured(cycle, step, substage.config), substage.name)
    if substage.prompt is not None:
        _merge(analysis, await ask_model(cycle, step, substage), substage.name)


def _merge(analysis: dict[str, Any], answer: Any, name: str) -> None:
    """Merge an answer into the analysis: an object key by key, anything else under the substage's name."""
    if not isinstance(answer, Mapping):
        if answer is not None:
            analysis[name] = answer
        return
    fields = dict(cast("Mapping[str, Any]", answer))
    anomalies = fields.pop(ANOMALIES, [])
    analysis |= fields
    for anomaly in cast("list[Any]", anomalies) if isinstance(anomalies, list) else [anomalies]:
        if anomaly is None:
            continue
        details = (
            cast("dict[str, Any]", anomaly) if isinstance(anomaly, dict) else {"message": as_text(anomaly)}
        )
        analysis[ANOMALIES].append({"rule": name, "severity": "warning", "message": "", **details})


MAX_ACTIONS = 100
"""The maximum length of a plan, in case a model repeats itself."""
ACTIONS = "actions"


async def plan(substage: Plan, cycle: Cycle) -> None:
    """Add `actions` to `derivedData.plan`, and every other key that a model or function returned.

    Only actions that `execute` declares get into the plan; anything else is a failure, and so is a rule that
    can't be evaluated. Raises any error of the model or function.
    """
    step = f"reason/{substage.name}"
    planned_actions(cycle)  # creates the list
    for rule in substage.config.rules:
        try:
            scopes = cycle.scopes()
            if rule.when is None or holds(rule.when, scopes):
                params = render(rule.params, scopes)
                reason = render_text(rule.reason, scopes) if rule.reason else rule.when or ""
                _add({"action": rule.action, "params": params, "reason": reason}, cycle, step)
        except TemplateError as error:
            cycle.failures.append(
                f"{step}: the rule for {rule.action!r} can't be evaluated: {error_line(error)}"
            )
    _add_all(await call_configured(cycle, step, substage.config), cycle, step)
    if substage.prompt is not None:
        prompt = f"{substage.prompt.rstrip()}\n\n{_choices(cycle)}"
        asked = {"prompt": prompt, "output_schema": substage.output_schema or _schema(cycle)}
        _add_all(await ask_model(cycle, step, substage.model_copy(update=asked)), cycle, step)


def _add_all(answer: Any, cycle: Cycle, step: str) -> None:
    """Add the actions that a model or function returned: a list, or an object with a list of `actions`."""
    actions = answer
    if isinstance(answer, Mapping):
        rest = dict(cast("Mapping[str, Any]", answer))
        actions = rest.pop(ACTIONS, [])
        cycle.state.derived_data["plan"] |= rest
    for action in cast("list[Any]", actions) if isinstance(actions, list) else [actions]:
        if action is not None:
            _add(action, cycle, step)


def _add(answer: Any, cycle: Cycle, step: str) -> None:
    fields: Any = {"action": answer} if isinstance(answer, str) else answer
    if not isinstance(fields, dict):
        problem = f"{short_repr(answer)} is not an action; expected a name, or an object with 'action'"
    else:
        fields = cast("dict[str, Any]", fields)
        name: Any = fields.get("action", fields.get("name"))
        params: Any = fields.get("params") or {}
        if not isinstance(name, str) or name not in cycle.actions:
            problem = f"there is no action {short_repr(name)}; {nearest(str(name), list(cycle.actions))}"
        elif not isinstance(params, dict):
            problem = f"the params of {name!r} are {short_repr(params)}; expected an object"
        elif len(planned_actions(cycle)) >= MAX_ACTIONS:
            problem = f"{name!r} is one too many; the limit is {MAX_ACTIONS} actions"
        else:
            reason = fields.get("reason")
            add_to_plan(
                cycle, name, cast("dict[str, Any]", params), reason if isinstance(reason, str) else ""
            )
            return
    cycle.failures.append(f"{step}: not planned: {problem}")


def _choices(cycle: Cycle) -> str:
    """The actions that a model can plan, for its prompt; without braces, which would start a template."""
    names = "\n".join(f"- {action.name} ({action.type})" for action in cycle.actions.values())
    text = f"Only these actions can be planned, by their names:\n{names or '(none)'}"
    return text.replace("{", "(").replace("}", ")")


def _schema(cycle: Cycle) -> dict[str, Any]:
    """The default schema of a plan."""
    properties = {
        "action": {"type": "string", "enum": list(cycle.actions)},
        "params": {"type": "object"},
        "reason": {"type": "string"},
    }
    action = {"type": "object", "properties": properties, "required": ["action"]}
    actions = {"type": "array", "items": action, "maxItems": MAX_ACTIONS}
    return {"type": "object", "properties": {ACTIONS: actions}, "required": [ACTIONS]}


async def govern(substage: Govern, cycle: Cycle) -> None:
    """Write the violations and the ids of the approved actions into `derivedData.governance`.

    A constraint that mentions `action` is checked for each action. Any other constraint is checked once for
    the plan, and blocks all of it. A constraint with `enforce: record` blocks nothing.
    """
    admit_due_actions(cycle)
    check_plan(substage.config.constraints, cycle)
    check_actions(planned_actions(cycle), substage.config.constraints, cycle)


AUTONOMOUS, CONTROLLED = "autonomous", "controlled"


@dataclass(frozen=True, slots=True)
class PlanAnswers:
    """The answers of people about a plan."""

    answers: Mapping[str, HumanAnswer] = field(default_factory=dict[str, HumanAnswer])
    """The answers, by the id of the action."""


async def authorize(substage: Authorize, cycle: Cycle) -> None:
    """Write the ids of `approved` actions and the deciding `authority` into `derivedData.governance`.

    Autonomous: the agent itself approves. Supervised: wait for a person, then apply the default to undecided
    actions; the wait survives a restart of the process. Controlled: wait for a person without a limit. If
    `when` does not hold, the agent approves. Each action is a question of `Approvals`; actions with changed
    parameters are checked against the constraints again. Raises `TemplateError` for a `when` that can't be
    evaluated.
    """
    admit_due_actions(cycle)
    config, governance = substage.config, governance_of(cycle)
    needs_person = config.mode != AUTONOMOUS and (config.when is None or holds(config.when, cycle.scopes()))
    if not needs_person:
        governance.setdefault("authority", _authority(AUTONOMOUS, "approved"))
        return
    actions = [action for action in planned_actions(cycle) if action["id"] in governance["approved"]]
    if not actions:
        governance["authority"] = _authority(config.mode, "approved", message="nothing to decide on")
        return
    people = await cycle.step(f"reason/{substage.name}", PlanAnswers, _ask_people, actions, substage, cycle)
    governance["authority"] = _apply(people.answers, actions, config, cycle)


def _authority(mode: str, decision: str, by: str = "", message: str = "", proof: str = "") -> dict[str, str]:
    """Who decided and how; `proof` has the ids of the tokens that prove the identity of the person."""
    authority = {"mode": mode, "decision": decision, "by": by, "message": message}
    return authority | {"proof": proof} if proof else authority


async def _ask_people(actions: Sequence[dict[str, Any]], substage: Authorize, cycle: Cycle) -> PlanAnswers:
    """Ask about each action, until all are decided or the time is up."""
    within = None if substage.config.mode == CONTROLLED else _seconds(substage.config, cycle)
    end = moment_after(cycle.runtime.clock(), within)
    then = "" if end is None else f" (by {end:%Y-%m-%d %H:%M:%S} UTC, else {substage.config.default})"
    questions = [_question(action, then, substage, cycle) for action in actions]
    await cycle.runtime.egress.ready()  # a cycle that resumes must ask about the same plan
    answers = await cycle.runtime.bus.ask(questions, within)
    return PlanAnswers(
        {question.node: answers[question.id] for question in questions if question.id in answers}
    )


def _question(action: Mapping[str, Any], then: str, substage: Authorize, cycle: Cycle) -> Approval:
    """The question about a planned action; its id is the same when the cycle resumes."""
    key = cycle.idempotency_key(substage.name, "approve", action["id"])
    reason = f": {action['reason']}" if action.get("reason") else ""
    name = cycle.spec.name
    return Approval(
        id=f"{name}.{key[:8]}",
        run_id=name,
        workflow=name,
        node=action["id"],
        message=cycle.runtime.redact(f"{action['action']}{reason}") + then,
        asked_at=cycle.runtime.clock(),
        data=cycle.runtime.redact(action["params"]),
        default=_default(substage.config),
    )


def _default(config: AuthorizeConfig) -> Literal["approve", "reject"]:
    return "reject" if config.mode == CONTROLLED else config.default


def _seconds(config: AuthorizeConfig, cycle: Cycle) -> float:
    """Seconds left to wait for a person, less the time that an earlier process has waited."""
    until, cycle.waits_until = cycle.waits_until, None
    limit = config.timeout_ms / 1000
    return limit if until is None else min(limit, max(0.0, (until - cycle.runtime.clock()).total_seconds()))


def _apply(
    answers: Mapping[str, HumanAnswer],
    actions: Sequence[dict[str, Any]],
    config: AuthorizeConfig,
    cycle: Cycle,
) -> dict[str, str]:
    """Apply the answers to the plan, and the default to the rest; return the authority."""
    answered = [(action, answers[action["id"]]) for action in actions if action["id"] in answers]
    decided = [(action, answer) for action, answer in answered if not answer.timed_out]
    decisions = [_apply_answer(answer, action, cycle) for action, answer in decided]
    if modified := [
        action for (action, _), decision in zip(decided, decisions, strict=True) if decision == "modified"
    ]:
        constraints = constraints_of(cycle)
        check_plan(constraints, cycle)
        check_actions(modified, constraints, cycle)
    messages = [answer.comment for _, answer in decided]
    if len(decided) < len(actions):
        default = _default(config)
        ids = {action["id"] for action, _ in decided}
        for action in actions:
            if default == "reject" and action["id"] not in ids:
                disapprove(action["id"], cycle)
        decisions.append("default")
        messages.append(
            f"nobody decided within {config.timeout_ms / 1000:g} s, so the default applies: {default}"
        )
    decision = next(name for name in ("modified", "approved", "rejected", "default") if name in decisions)
    people, proofs = ([getattr(answer, name) for _, answer in decided] for name in ("by", "proof"))
    by, proof, message = (
        separator.join(dict.fromkeys(filter(None, texts)))
        for separator, texts in ((", ", people), (", ", proofs), ("; ", messages))
    )
    return _authority(config.mode, decision, by, message, proof)


def _apply_answer(answer: HumanAnswer, action: dict[str, Any], cycle: Cycle) -> str:
    """Apply an answer to a planned action; return the decision."""
    redacted: dict[str, Any] = cycle.runtime.redact(action["params"])
    value = as_object(answer.value) or redacted
    changes = {key: new for key, new in value.items() if key not in redacted or redacted[key] != new}
    if not answer.approved or not changes:
        if not answer.approved:
            disapprove(action["id"], cycle)
        return "approved" if answer.approved else "rejected"
    takes = {*action["params"], *parameters_of(cycle.actions[action["action"]])}
    unknown = next((key for key in sorted(changes) if takes.isdisjoint({key, ANY})), None)
    if unknown is None:
        action["params"] = {**action["params"], **changes}
    else:  # running it as planned would ignore the person
        cycle.failures.append(
            f"The answer about {action['action']!r} changes {unknown!r}, which it does not take, so it is "
            "not run."
        )
        disapprove(action["id"], cycle)
    return "modified"


def planned_actions(cycle: Cycle) -> list[dict[str, Any]]:
    """The entries of the plan: `action`, `params`, `reason`, `id`."""
    return cycle.state.derived_data["plan"].setdefault("actions", [])


def add_to_plan(
    cycle: Cycle, action: str, params: Mapping[str, Any] | None = None, reason: str = ""
) -> dict[str, Any]:
    """Add a declared action to the plan; return its entry."""
    actions = planned_actions(cycle)
    entry = {
        "action": action,
        "params": dict(params or {}),
        "reason": reason,
        "id": f"{cycle.number}-{len(actions) + 1}",
    }
    actions.append(entry)
    return entry


def action_scope(entry: Mapping[str, Any], action: AnyAction) -> dict[str, Any]:
    """A planned action as templates and conditions see it."""
    return {**entry, "name": action.name, "type": action.type}


def plan_entry(action: AnyAction) -> dict[str, Any]:
    """The entry that an action would have in the plan."""
    return {"action": action.name, "params": {}, "reason": action.when or "", "id": ""}


def is_due(entry: Mapping[str, Any], action: AnyAction, cycle: Cycle) -> bool:
    """Whether a planned action has no condition, or its condition holds. Raises `TemplateError`."""
    return action.when is None or holds(action.when, cycle.scopes(action_scope(entry, action)))


def unplanned_actions(cycle: Cycle) -> Iterator[AnyAction]:
    """Unplanned actions that may run: on a condition, or because the file has no `plan`."""
    names = {entry["action"] for entry in planned_actions(cycle)}
    always = not substages_of(cycle.spec, Plan)
    for action in cycle.actions.values():
        if action.name not in names and (always or action.when is not None):
            yield action


def governance_of(cycle: Cycle) -> dict[str, Any]:
    """`derivedData.governance`: `violations`, and the ids of `approved` actions, initially all."""
    governance: dict[str, Any] = cycle.state.derived_data["governance"]
    governance.setdefault("violations", [])
    governance.setdefault("approved", [entry["id"] for entry in planned_actions(cycle)])
    return governance


def is_governed(cycle: Cycle) -> bool:
    """Whether the file has a `govern` or `authorize` substage."""
    return bool(substages_of(cycle.spec, Govern) or substages_of(cycle.spec, Authorize))


def constraints_of(cycle: Cycle) -> list[Constraint]:
    """All constraints in the file."""
    governs = substages_of(cycle.spec, Govern)
    return [constraint for govern in governs for constraint in govern.config.constraints]


def admit_due_actions(cycle: Cycle) -> None:
    """Plan the actions whose conditions hold by now, and approve those that satisfy the constraints.

    A condition on a value that does not exist yet does not hold. Once a person has been asked about the plan,
    later additions are not approved: the person has not seen them.
    """
    added: list[dict[str, Any]] = []
    for action in tuple(unplanned_actions(cycle)):
        with suppress(TemplateError):
            if is_due(plan_entry(action), action, cycle):
                added.append(add_to_plan(cycle, action.name, reason=action.when or ""))
    if not is_governed(cycle):
        return
    governance = governance_of(cycle)
    if governance.get("authority", {}).get("mode", AUTONOMOUS) == AUTONOMOUS:
        approved: list[str] = governance["approved"]
        approved += [entry["id"] for entry in added if entry["id"] not in approved]
        check_actions(added, constraints_of(cycle), cycle)


def check_actions(actions: Sequence[dict[str, Any]], constraints: Iterable[Constraint], cycle: Cycle) -> None:
    """Check actions against the constraints that mention `action`; a violation that blocks disapproves."""
    about_actions = [constraint for constraint in constraints if _mentions_action(constraint)]
    for action in actions:
        violated = [constraint for constraint in about_actions if _is_violated(constraint, action, cycle)]
        if any(constraint.enforce == "block" for constraint in violated):
            disapprove(action["id"], cycle)


def check_plan(constraints: Iterable[Constraint], cycle: Cycle) -> None:
    """Check the plan against the other constraints; a violation that blocks disapproves all of it."""
    about_plan = [constraint for constraint in constraints if not _mentions_action(constraint)]
    violated = [constraint for constraint in about_plan if _is_violated(constraint, None, cycle)]
    if any(constraint.enforce == "block" for constraint in violated):
        governance_of(cycle)["approved"] = []


def disapprove(action_id: str, cycle: Cycle) -> None:
    """Remove an action from the approved actions."""
    governance = governance_of(cycle)
    governance["approved"] = [approved for approved in governance["approved"] if approved != action_id]


def refusal_reason(action: dict[str, Any], cycle: Cycle) -> str:
    """Why a planned action may not run; empty if it may."""
    governance = governance_of(cycle)
    if not is_governed(cycle) or action["id"] in governance["approved"]:
        return ""
    for violation in governance["violations"]:
        if violation["blocked"] and violation["actionId"] in (action["id"], None):
            return f"The constraint {violation['constraint']!r}: {violation['message']}"
    authority = governance.get("authority", {})
    who, message = authority.get("by") or "nobody", authority.get("message", "")
    return f"Not approved ({who}{f': {message}' if message else ''})."


def _is_violated(constraint: Constraint, action: dict[str, Any] | None, cycle: Cycle) -> bool:
    """Whether a constraint is violated; records the violation once.

    A constraint that can't be evaluated counts as violated.
    """
    scope = None if action is None else action_scope(action, cycle.actions[action["action"]])
    scopes = cycle.scopes(scope)
    try:
        if holds(constraint.require, scopes):
            return False
        message = render_text(constraint.message, scopes) if constraint.message else ""
        message = message or f"{constraint.require} does not hold"
    except TemplateError as error:
        message = f"it can't be evaluated: {error_line(error)}"
    violation = {
        "constraint": constraint.name,
        "action": action and action["action"],
        "actionId": action and action["id"],
        "message": message,
        "blocked": constraint.enforce == "block",
    }
    violations = governance_of(cycle)["violations"]
    if violation not in violations:
        violations.append(violation)
    return True


def _mentions_action(constraint: Constraint) -> bool:
    texts = (braced(constraint.require), constraint.message)
    return any("action" in template(text).scopes for text in texts)
