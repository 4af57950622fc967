"""The JSON Schema of workflow files, for editors: made from the typed spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.text.spec_schema import DRAFT, parts_of
from redraft.workflow.actions import BUILT_IN
from redraft.workflow.checking import VARIABLE
from redraft.workflow.names import plain_name
from redraft.workflow.running import END
from redraft.workflow.spec import (
    Corrector,
    CorrectParams,
    EvaluateParams,
    LlmParams,
    LoopParams,
    Maker,
    WorkflowSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ID = "urn:redraft:workflow:1"

PARAMS = {
    "llm.call": LlmParams,
    "reflection.loop": LoopParams,
    "reflection.evaluate": EvaluateParams,
    "reflection.correct": CorrectParams,
}
"""The parameters of each action that is built in."""


def _spellings(names: Iterable[str]) -> list[str]:
    """Return names of actions in both spellings."""
    plain = [plain_name(name) for name in names]
    return [*plain, *(name.replace(".", "_") for name in plain)]


NOT_INSIDE = {"not": {"enum": _spellings(name for name in BUILT_IN if name != "llm.call")}}
"""Actions that can't stand inside of another."""

NEEDED = {"schema": "schema", "llm": "prompt", "custom": "run"}
"""What an evaluator of each type can't do without."""

LONE = {"type": "string", "pattern": r"\{\{"}
"""A template that gives a value which is no text."""

JAILED = {
    "properties": {"language": {"enum": ["lua", "prolog"]}, "sandbox": {"const": "process"}},
    "required": ["language", "sandbox"],
}
"""What is not allowed: the other languages in the sandbox of whole Python."""

SAYS = {
    "action": "`llm.call`, or an action of your own; its parameters stand beside it.",
    "apply": "Whether what the corrector gives is the next candidate, or feedback for the generator.",
    "content": "What is said.",
    "corrector": "What mends an output that is not valid; without it the generator runs again.",
    "corrector_action": "The action that corrects; it gets `prompt` and `model`.",
    "description": "For readers.",
    "evaluator": "What says whether an output is valid, and how good it is.",
    "evaluator_type": "What judges the data.",
    "examples": "Judgements that are shown to the judge before it judges.",
    "generator": "What makes an output.",
    "if": "The condition, such as `state.score < 0.5`.",
    "input": "What was judged.",
    "language": "The language of `run`.",
    "limits": "Bounds on the code of this file.",
    "max_iterations": "How many attempts at most.",
    "max_tokens": "Of the reply, at most.",
    "messages": "A conversation, each message with a `role` and a `content`.",
    "model": "`provider:model`, `local:NAME`, or a name of `models`.",
    "name": "Its name.",
    "nodes": "The steps, in the order in which they run.",
    "on_failure": "What a loop without a valid output gives; `raise` ends the workflow.",
    "output": "The judgement.",
    "prompt": "What the model is asked.",
    "role": "Who says it.",
    "run": "Code; its value is what it returns, or `result`. It sees `state`.",
    "sandbox": "`inline`: quick, a subset of Python; `process`: whole Python in a jailed child.",
    "schema": "JSON Schema that the output has to follow.",
    "system": "What the model is told before everything else.",
    "temperature": "0: the most likely words; more: more surprise.",
    "threshold": "From which a score alone counts as valid.",
    "score_max": "The best score, where numbers do not go up to 1.",
    "to": "The node to go to, or `end`.",
    "type": "What judges the output: a JSON Schema, a model, or code.",
    "uses": "The action.",
    "variables": "Values for templates and code; what a run is given goes before them.",
    "with": "The parameters of the action.",
}
"""What a key says, wherever it stands, unless the spec says more of it there."""


def workflow_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of workflow files.

    What `with` holds depends on `uses`. It refuses less than `Workflow` does, which also compiles schemas and
    templates and follows gotos, and one thing more: a key that holds nothing, which can be left out.
    """
    kinds = (WorkflowSpec, *PARAMS.values())
    parts = parts_of(kinds, SAYS)
    _depend(parts)
    return {"$schema": DRAFT, "$id": ID, **parts.pop("WorkflowSpec"), "title": "Workflow", "$defs": parts}


def _depend(parts: dict[str, Any]) -> None:
    """Say which keys go with which values of others."""
    for name in ("Evaluator", "EvaluateParams", "LlmParams"):
        parts[name]["properties"]["schema"]["type"] = ["object", "boolean"]
    for name in ("Evaluator", "EvaluateParams"):
        key = "type" if name == "Evaluator" else "evaluator_type"
        default = parts[name]["properties"][key].get("default")
        parts[name]["allOf"] = [_judging(key, kind, kind == default) for kind in NEEDED]
    parts["LlmParams"]["properties"]["messages"]["anyOf"][1] |= LONE
    parts["LlmParams"]["properties"] |= _or_templates(parts["LlmParams"]["properties"])
    parts["LlmParams"]["oneOf"] = [{"required": ["prompt"]}, {"required": ["messages"]}]
    parts["CorrectParams"] |= {
        "anyOf": [{"required": [way]} for way in ("prompt", "corrector_action", "run")],
        "dependentSchemas": {"run": {"properties": {"prompt": False, "corrector_action": False}}},
    }
    for kind in (Maker, Corrector):
        own = frozenset(field.alias or name for name, field in kind.model_fields.items())
        parts[kind.__name__] |= _making(own, parts["LlmParams"])
    parts["CorrectParams"]["properties"]["corrector_action"] |= NOT_INSIDE
    parts["LoopParams"]["properties"]["max_iterations"]["anyOf"][1] |= LONE
    parts["WorkflowSpec"]["properties"]["env"]["items"] |= {"pattern": f"^{VARIABLE.pattern}$"}
    for part in parts.values():
        if {"language", "sandbox"} <= set(part["properties"]):
            part["not"] = JAILED
    node = parts["Node"]
    node["properties"]["name"] |= {"not": {"const": END}}
    node["properties"]["uses"] |= {"anyOf": [{"enum": _spellings(BUILT_IN)}, {"type": "string"}]}
    node["oneOf"] = [
        {"required": ["uses"], "properties": {"run": False}},
        {"required": ["run"], "properties": {"uses": False, "with": False}},
    ]
    node["allOf"] = [_using(name) for name in PARAMS]


def _judging(key: str, kind: str, is_default: bool) -> dict[str, Any]:
    others: dict[str, Any] = {other: False for one, other in NEEDED.items() if one != kind}
    return {
        "if": {"properties": {key: {"const": kind}}} | ({} if is_default else {"required": [key]}),
        "then": {"required": [NEEDED[kind]], "properties": others},
    }


def _making(own: frozenset[str], llm: Mapping[str, Any]) -> dict[str, Any]:
    """Say what stands beside an action or code: with a model's call its parameters, with code nothing."""
    params = {key: {"$ref": f"#/$defs/LlmParams/properties/{key}"} for key in llm["properties"]}
    only_llm = {
        "properties": params,
        "propertyNames": {"enum": sorted({*own, *params})},
        "oneOf": llm["oneOf"],
    }
    return {
        "oneOf": [
            {"required": ["action"], "properties": {"action": NOT_INSIDE, "run": False}},
            {"required": ["run"], "propertyNames": {"enum": sorted(own - {"action"})}},
        ],
        "if": {"required": ["action"], "properties": {"action": {"enum": _spellings(["llm.call"])}}},
        "then": only_llm,
    }


def _using(name: str) -> dict[str, Any]:
    params = {"$ref": f"#/$defs/{PARAMS[name].__name__}"}
    return {
        "if": {"required": ["uses"], "properties": {"uses": {"enum": _spellings([name])}}},
        "then": {"required": ["with"], "properties": {"with": params}},
    }


def _or_templates(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Let each value be a template, too."""
    return {
        key: value if key == "schema" or _takes_text(value) else _with_branch(value)
        for key, value in properties.items()
    }


def _takes_text(value: Mapping[str, Any]) -> bool:
    return any(one.get("type") == "string" for one in (value, *value.get("anyOf", ())))


def _with_branch(value: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: value[key] for key in ("description", "default") if key in value}
    rest = {key: item for key, item in value.items() if key not in said}
    return {**said, "anyOf": [rest, dict(LONE)]}
