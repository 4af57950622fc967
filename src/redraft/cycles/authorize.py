"""Authorize: have the plan decided on, by a person where the file says so."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft.cycles.feedback import Feedback
from redraft.cycles.governance import (
    AUTONOMOUS,
    admit,
    constraints_of,
    disapprove,
    governance_of,
    judge,
    judge_plan,
)
from redraft.cycles.parts import ANY, parameters_of
from redraft.cycles.planned import declared, planned
from redraft.cycles.rendering import scopes_of
from redraft.text.condition import holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_reason import Authorize, AuthorizeConfig

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
