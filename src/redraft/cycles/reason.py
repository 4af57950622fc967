"""Reason: analyse, plan, govern and authorise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import as_text, short_repr
from redraft._validation import nearest
from redraft.cycles.asking import answer_of, asked
from redraft.cycles.mail import Feedback
from redraft.cycles.spec import ANY, AnyAction, Authorize, Constraint, Execute, Govern, Plan, parameters_of
from redraft.cycles.state import render, render_text, said, scopes_of
from redraft.text.templates import TemplateError, braced, holds, template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redraft.cycles.spec import Analyze, AuthorizeConfig, PlanRule, Rule
    from redraft.cycles.state import Cycle

ANOMALIES = "anomalies"


async def analyze(substage: Analyze, cycle: Cycle) -> None:
    """Add to `derivedData.analysis`: its `anomalies`, and all else that a model or function gave, by key.

    A rule that can't be judged, since what it reads is not there, is a failure and no anomaly. Raises what
    the model or function raises.
    """
    step = f"reason/{substage.name}"
    analysis: dict[str, Any] = cycle.state.derived_data["analysis"]
    anomalies: list[Any] = analysis.setdefault(ANOMALIES, [])
    for rule in substage.config.rules:
        try:
            anomalies.extend(_found(rule, cycle))
        except TemplateError as error:
            cycle.failures.append(f"{step}: the rule {rule.name!r} can't be judged: {said(error)}")
    if substage.config.function is not None:
        _merge(analysis, await answer_of(cycle, step, substage.config), substage.name)
    if substage.prompt is not None:
        prompt, schema = substage.prompt, substage.output_schema
        reply = await asked(cycle, step, prompt, schema, substage.model, reasoning=True)
        _merge(analysis, reply, substage.name)


def _found(rule: Rule, cycle: Cycle) -> list[dict[str, str]]:
    scopes = scopes_of(cycle)
    if not holds(rule.when, scopes):
        return []
    message = render_text(rule.message, scopes) if rule.message else rule.when
    return [{"rule": rule.name, "severity": rule.severity, "message": message}]


def _merge(analysis: dict[str, Any], given: Any, name: str) -> None:
    """Add what was given to the analysis: an object key by key, all else under the substage's name."""
    if not isinstance(given, Mapping):
        if given is not None:
            analysis[name] = given
        return
    found = dict(cast("Mapping[str, Any]", given))
    anomalies = found.pop(ANOMALIES, [])
    analysis |= found
    for one in cast("list[Any]", anomalies) if isinstance(anomalies, list) else [anomalies]:
        anomaly = cast("dict[str, Any]", one) if isinstance(one, dict) else {"message": as_text(one)}
        analysis[ANOMALIES].append({"rule": name, "severity": "warning", "message": "", **anomaly})


def declared(cycle: Cycle) -> dict[str, AnyAction]:
    """Return the actions that the file declares, by their names."""
    actuate = cycle.spec.stages.actuate
    return {
        action.name: action
        for substage in (actuate.substages if actuate is not None else ())
        if isinstance(substage, Execute)
        for action in substage.config.actions
    }


def planned(cycle: Cycle) -> list[dict[str, Any]]:
    """Return the actions of the plan as they stand in it: `action`, `params`, `reason`, `id`."""
    return cycle.state.derived_data["plan"].setdefault("actions", [])


def put_into_plan(
    cycle: Cycle, action: str, params: Mapping[str, Any] | None = None, reason: str = ""
) -> dict[str, Any]:
    """Plan a declared action, and return it as it stands in the plan."""
    actions = planned(cycle)
    one = {
        "action": action,
        "params": dict(params or {}),
        "reason": reason,
        "id": f"{cycle.number}-{len(actions) + 1}",
    }
    actions.append(one)
    return one


def shown(one: Mapping[str, Any], action: AnyAction) -> dict[str, Any]:
    """Return a planned action as templates and conditions see it."""
    return {**one, "name": action.name, "type": action.type}


def candidate(action: AnyAction) -> dict[str, Any]:
    """Return an action as it would stand in the plan, before it is known whether it will."""
    return {"action": action.name, "params": {}, "reason": action.when or "", "id": ""}


def is_due(one: Mapping[str, Any], action: AnyAction, cycle: Cycle) -> bool:
    """Say whether the condition of a planned action holds, if it has one. Raises `TemplateError`."""
    return action.when is None or holds(action.when, scopes_of(cycle, shown(one, action)))


def unplanned(cycle: Cycle) -> Iterator[AnyAction]:
    """Yield the actions that are done without being planned: by a condition, or for want of any plan."""
    names = {one["action"] for one in planned(cycle)}
    always = not _plans(cycle)
    for action in declared(cycle).values():
        if action.name not in names and (always or action.when is not None):
            yield action


def put_due_into_plan(cycle: Cycle) -> list[dict[str, Any]]:
    """Plan the unplanned actions that are due by now, and return them.

    So that what governs and authorizes a plan sees them, too. A condition on what is not known yet does not
    hold yet.
    """
    entered: list[dict[str, Any]] = []
    for action in tuple(unplanned(cycle)):
        try:
            due = is_due(candidate(action), action, cycle)
        except TemplateError:
            continue
        if due:
            entered.append(put_into_plan(cycle, action.name, reason=action.when or ""))
    return entered


def _plans(cycle: Cycle) -> bool:
    reason = cycle.spec.stages.reason
    return reason is not None and any(isinstance(substage, Plan) for substage in reason.substages)


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


AUTONOMOUS = "autonomous"


def governance_of(cycle: Cycle) -> dict[str, Any]:
    """Return `derivedData.governance`: its `violations`, and the ids that are `approved`, at first all."""
    governance: dict[str, Any] = cycle.state.derived_data["governance"]
    governance.setdefault("violations", [])
    governance.setdefault("approved", [one["id"] for one in planned(cycle)])
    return governance


def is_governed(cycle: Cycle) -> bool:
    """Say whether anything decides on the plan."""
    return any(isinstance(substage, Govern | Authorize) for substage in _reasoning(cycle))


def constraints_of(cycle: Cycle) -> list[Constraint]:
    """Return all constraints of the file."""
    governs = (substage for substage in _reasoning(cycle) if isinstance(substage, Govern))
    return [constraint for govern in governs for constraint in govern.config.constraints]


def admit(cycle: Cycle) -> None:
    """Plan what is due by its condition, and approve of it what keeps to the constraints.

    Once a person was asked about the plan, nothing that comes later is approved: nobody has seen it.
    """
    entered = put_due_into_plan(cycle)
    if not is_governed(cycle):
        return
    governance = governance_of(cycle)
    if governance.get("authority", {}).get("mode", AUTONOMOUS) == AUTONOMOUS:
        governance["approved"] += [one["id"] for one in entered if one["id"] not in governance["approved"]]
        judge(entered, constraints_of(cycle), cycle)


def judge(actions: Sequence[dict[str, Any]], constraints: Iterable[Constraint], cycle: Cycle) -> None:
    """Hold actions against the constraints that speak of an `action`; what breaks one that blocks is out."""
    about_actions = [constraint for constraint in constraints if _speaks_of_action(constraint)]
    for action in actions:
        breaking = [constraint for constraint in about_actions if _is_broken(constraint, action, cycle)]
        if any(constraint.enforce == "block" for constraint in breaking):
            disapprove(action["id"], cycle)


def judge_plan(constraints: Iterable[Constraint], cycle: Cycle) -> None:
    """Hold the plan as a whole against the other constraints; one that blocks, blocks all of it."""
    about_plan = [constraint for constraint in constraints if not _speaks_of_action(constraint)]
    breaking = [constraint for constraint in about_plan if _is_broken(constraint, None, cycle)]
    if any(constraint.enforce == "block" for constraint in breaking):
        governance_of(cycle)["approved"] = []


def disapprove(action_id: str, cycle: Cycle) -> None:
    """Take an action from those that are approved."""
    governance = governance_of(cycle)
    governance["approved"] = [one for one in governance["approved"] if one != action_id]


def refusal(action: dict[str, Any], cycle: Cycle) -> str:
    """Say why a planned action may not be done; nothing where it may."""
    governance = governance_of(cycle)
    if not is_governed(cycle) or action["id"] in governance["approved"]:
        return ""
    for violation in governance["violations"]:
        if violation["blocked"] and violation["actionId"] in (action["id"], None):
            return f"The constraint {violation['constraint']!r}: {violation['message']}"
    authority = governance.get("authority", {})
    who, message = authority.get("by") or "nobody", authority.get("message", "")
    return f"Not approved ({who}{f': {message}' if message else ''})."


def _is_broken(constraint: Constraint, action: dict[str, Any] | None, cycle: Cycle) -> bool:
    """Say whether a constraint does not hold, and record it, once.

    One that can't be judged counts as broken: nobody knows that it holds.
    """
    seen = None if action is None else shown(action, declared(cycle)[action["action"]])
    scopes = scopes_of(cycle, seen)
    try:
        if holds(constraint.require, scopes):
            return False
        message = render_text(constraint.message, scopes) if constraint.message else ""
        message = message or f"{constraint.require} does not hold"
    except TemplateError as error:
        message = f"it can't be judged: {said(error)}"
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


def _speaks_of_action(constraint: Constraint) -> bool:
    texts = (braced(constraint.require), constraint.message)
    return any("action" in template(text).scopes for text in texts)


def _reasoning(cycle: Cycle) -> Sequence[Any]:
    reason = cycle.spec.stages.reason
    return () if reason is None else reason.substages


CONTROLLED = "controlled"
DECISIONS = {"approve": "approved", "reject": "rejected", "modify": "modified"}


@dataclass(frozen=True, slots=True)
class Heard:
    """Hold the verdicts that came, in their order."""

    verdicts: tuple[Feedback, ...] = ()


async def authorize(substage: Authorize, cycle: Cycle) -> None:
    """Write into `derivedData.governance` what stays `approved`, and by whose `authority`.

    Autonomous: the agent itself approves. Supervised: a person is waited for, then the default applies to
    what is undecided; a wait goes on where the process begins anew. Controlled: a person is waited for as
    long as it takes. Where `when` does not hold, nobody is asked. A verdict is about the whole plan, or about
    the one action that it names; what a person modified is held against the constraints again. Raises
    `TemplateError` for a `when` that can't be judged.
    """
    admit(cycle)
    config, governance = substage.config, governance_of(cycle)
    asks = config.mode != AUTONOMOUS and (config.when is None or holds(config.when, scopes_of(cycle)))
    if not asks:
        governance.setdefault("authority", _authority(AUTONOMOUS, "approved"))
        return
    actions = [one for one in planned(cycle) if one["id"] in governance["approved"]]
    if not actions:
        governance["authority"] = _authority(config.mode, "approved", message="nothing to decide on")
        return
    heard = await cycle.step(f"reason/{substage.name}", Heard, _heard, actions, config, cycle)
    governance["authority"] = _decided(heard.verdicts, actions, config, cycle)


def _authority(mode: str, decision: str, by: str = "", message: str = "") -> dict[str, str]:
    return {"mode": mode, "decision": decision, "by": by, "message": message}


async def _heard(actions: Sequence[dict[str, Any]], config: AuthorizeConfig, cycle: Cycle) -> Heard:
    """Wait until all actions are decided on, or the time is over."""
    verdicts: list[Feedback] = []
    undecided = list(actions)
    end = None if config.mode == CONTROLLED else monotonic() + _seconds(config, cycle)
    while undecided:
        within = None if end is None else max(0.0, round(end - monotonic(), 3))
        verdict = await cycle.means.bus.verdict(cycle.number, within, [one.id for one in verdicts])
        if verdict is None:
            break
        verdicts.append(verdict)
        undecided = [one for one in undecided if not _is_about(verdict, one)]
    return Heard(tuple(verdicts))


def _seconds(config: AuthorizeConfig, cycle: Cycle) -> float:
    """Return for how long a person is waited for: a wait that an earlier process began goes on from there."""
    until, cycle.waits_until = cycle.waits_until, None
    whole = config.timeout_ms / 1000
    return whole if until is None else min(whole, max(0.0, (until - cycle.means.clock()).total_seconds()))


def _is_about(verdict: Feedback, action: dict[str, Any]) -> bool:
    return verdict.action in (None, action["id"], action["action"])


def _decided(
    verdicts: Iterable[Feedback], actions: Sequence[dict[str, Any]], config: AuthorizeConfig, cycle: Cycle
) -> dict[str, str]:
    """Do with the plan what the verdicts say, each about what those before it left undecided."""
    undecided = list(actions)
    decisions: list[str] = []
    people: list[str] = []
    messages: list[str] = []
    for verdict in verdicts:
        about = [one for one in undecided if _is_about(verdict, one)]
        if not about:
            cycle.failures.append(f"A verdict is about {verdict.action!r}, which waits for none.")
            continue
        undecided = [one for one in undecided if not _is_about(verdict, one)]
        _obey(verdict, about, cycle)
        decisions.append(DECISIONS[verdict.verdict])
        people.append(verdict.by)
        messages.append(verdict.message)
    if undecided:
        default = "reject" if config.mode == CONTROLLED else config.default
        if default == "reject":
            for one in undecided:
                disapprove(one["id"], cycle)
        decisions.append("default")
        messages.append(f"nobody decided within {config.timeout_ms:,} ms, so: {default}")
    decision = next(one for one in ("modified", "approved", "rejected", "default") if one in decisions)
    said = "; ".join(message for message in messages if message)
    return _authority(config.mode, decision, ", ".join(dict.fromkeys(filter(None, people))), said)


def _obey(verdict: Feedback, about: Sequence[dict[str, Any]], cycle: Cycle) -> None:
    changes = dict(verdict.changes or {})
    of_each = [{key: changes[key] for key in changes if _takes(one, key, cycle)} for one in about]
    unknown = sorted(changes.keys() - {key for own in of_each for key in own})
    if unknown:  # to do what was planned in its place is not what the person wanted
        cycle.failures.append(
            f"A verdict modifies {unknown[0]!r}, which no planned action that it is about has a use for: "
            "none of them is done."
        )
        of_each = []
    if verdict.verdict == "reject" or (verdict.verdict == "modify" and not any(of_each)):
        for one in about:
            disapprove(one["id"], cycle)
    elif verdict.verdict == "modify":
        for one, own in zip(about, of_each, strict=True):
            one["params"] = {**one["params"], **own}
        constraints = constraints_of(cycle)
        judge_plan(constraints, cycle)
        judge(about, constraints, cycle)


def _takes(one: dict[str, Any], parameter: str, cycle: Cycle) -> bool:
    """Say whether a planned action has a parameter, or reads it if a person gives it."""
    reads = parameters_of(declared(cycle)[one["action"]])
    return parameter in one["params"] or parameter in reads or ANY in reads


async def govern(substage: Govern, cycle: Cycle) -> None:
    """Write the violations into `derivedData.governance`, and the ids of the actions that stay approved.

    A constraint that speaks of an `action` is held against each, any other against the plan as a whole: one
    that blocks then blocks all of it. What is recorded only, blocks nothing.
    """
    admit(cycle)
    judge_plan(substage.config.constraints, cycle)
    judge(planned(cycle), substage.config.constraints, cycle)
