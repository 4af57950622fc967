"""The JSON Schema of agent files, for editors: made from the typed spec."""

from __future__ import annotations

from typing import Any

from redraft.cycles.spec import AgentSpec
from redraft.text.spec_schema import DRAFT, parts_of

ID = "urn:redraft:agent:1"

SAYS = {
    "action": "The name of an action of `execute`.",
    "actions": "What the agent can do; a plan names one of them.",
    "actuate": "Do it, and see whether it worked.",
    "body": "Sent as JSON.",
    "checks": "What has to hold if it worked.",
    "config": "How it does so.",
    "constraints": "What a plan must keep to.",
    "default": "What is decided when nobody did in time.",
    "delimiter": "What stands between two values.",
    "description": "For readers.",
    "enforce": "`block`: an action that breaks it is not done; `record`: it is, and that is noted.",
    "function": "The name of a function that the program gives to the agent.",
    "headers": "Sent with it.",
    "memory": "Bounds of what is remembered.",
    "message": "What it says.",
    "method": "How it is sent.",
    "mode": "Who decides on the plan: the agent, a person in time, or a person.",
    "model": "`provider:model`, `local:NAME`, or a name of `models`.",
    "name": "Its name.",
    "params": "What the action sees as `params`.",
    "path": "The file, as seen from this one.",
    "prompt": "What the model is asked.",
    "reason": "Why.",
    "reflect": "Learn from it, within bounds.",
    "retention": "How long what is kept, by keys such as `memory.patterns`.",
    "rules": "What is found or planned without a model.",
    "sense": "Look at the world.",
    "severity": "How much it matters.",
    "stages": "What the agent does in each cycle.",
    "substages": "Its parts, in the order in which they run; sources run all at once.",
    "timeoutMs": "How long is waited, in milliseconds.",
    "topic": "What the message is about.",
    "trackAlertCount": "The alerts that were published.",
    "trackAnomalyCount": "The anomalies that were found.",
    "trackCost": "What the model calls cost, in US dollars.",
    "trackCycleDuration": "The time from the begin of Sense to the end of Reflect.",
    "trackLLMTokens": "The tokens of all model calls.",
    "triggers": "What begins a cycle.",
    "type": "Its kind.",
    "url": "Where it is sent.",
    "with": "What the function is called with; texts in it may hold templates.",
}
"""What a key says, wherever it stands, unless the spec says more of it there."""


def agent_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of agent files.

    It refuses less than `CycleAgent` does, which also compiles schemas and templates, and looks for what is
    named; and one thing more: a key that holds nothing, which can be left out.
    """
    parts = parts_of([AgentSpec], SAYS)
    for name, by in (("Analyze", "rules"), ("Plan", "rules"), ("Evaluate", "checks")):
        parts[name]["anyOf"] = [{"required": ["prompt"]}, *_configured(by, "function")]
    parts["Retention"]["anyOf"] = [{"required": ["maxItems"]}, {"required": ["ttlMs"]}]
    config = parts["UpdateStateConfig"]["properties"]["retention"]
    config["propertyNames"] = {"pattern": r"^memory\.[A-Za-z_][A-Za-z0-9_]*$"}
    parts["Stages"]["minProperties"] = 1
    return {"$schema": DRAFT, "$id": ID, **parts.pop("AgentSpec"), "title": "Agent", "$defs": parts}


def _configured(*keys: str) -> list[dict[str, Any]]:
    """Return the ways in which a configuration may have one of these keys."""
    return [{"required": ["config"], "properties": {"config": {"required": [key]}}} for key in keys]
