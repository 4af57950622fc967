"""Analyze: say what the data mean, by rules, a function, a model, or several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.core.texts import as_text
from redraft.cycles.asking import asked
from redraft.cycles.data import said
from redraft.cycles.functions import answer_of
from redraft.cycles.rendering import render_text, scopes_of
from redraft.text.condition import holds
from redraft.text.templates import TemplateError

if TYPE_CHECKING:
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_parts import Rule
    from redraft.cycles.spec_reason import Analyze

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
