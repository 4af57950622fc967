"""Workflow files written for the_edge_agent: what is taken over, what to write instead, and what differs."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, cast

from redraft.settings import names_in

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from redraft.text.spec_file import Mistake
    from redraft.text.yaml import KeyPath

IGNORED = {
    "version": "'version' is ignored; every file is read in the same way",
    "metadata": "'metadata' is ignored; comments and 'description' are for readers",
    "author": "'author' is ignored; comments and 'description' are for readers",
    "state_schema": "'state_schema' is ignored; 'inputs' declares the values of a run, and checks them",
    "config": "'config' is ignored; an error ends the workflow unless the node's 'on_error' handles it",
    "edges": "'edges' is ignored, since it only repeats the order of the nodes; leave it out",
}
"""Keys of the file that are left out of account, with what `--check` says of them."""

FILE_ADVICE = {
    "edges": "nodes run in the order of the file; use 'goto' to change it",
    "imports": "actions of your own come from a package, and tools from functions.py beside the file",
    "settings": "models are named under 'model' and 'models', everything else in redraft.toml",
    "llm": "the model goes under 'model', and what other names of models mean under 'models'",
    "secrets": "list environment variables under 'env', and read them as env.NAME",
}
NODE_ADVICE = {
    "action": "the action of a node goes under 'uses'",
    "body": "write a 'reflection.loop', or nodes with a 'goto' back and a 'max_visits'",
    "condition": "a condition goes under 'when', or under 'if' in a 'goto'",
    "fan_in": "nodes run one after the other; 'map' runs a node over a list",
    "items": "'map' runs a node over a list",
    "script": "code goes under 'run'",
    "steps": "write each step as a node of its own",
    "type": "write a 'reflection.loop', nodes with a 'goto' back, or a 'map'",
}
"""What to write instead of a key that Redraft does not have, on the level of the file and in a node."""

LLM_ADVICE = {
    "provider": "the provider is part of the model's name, such as 'model: ollama:llama3'",
    "api_base": "a provider's address comes from its environment variable, such as OLLAMA_BASE_URL",
    "base_url": "a provider's address comes from its environment variable, such as OLLAMA_BASE_URL",
    "api_key": "a provider's key comes from its environment variable, such as OPENAI_API_KEY",
    "response_format": "write the JSON Schema of the reply under 'schema'",
    "max_retries": "write 'retries' on the node",
    "stream": "'redraft run' and workflow.stream() show what a loop writes; leave it out",
}
"""What to write instead of a parameter of `llm.call` that Redraft does not have."""

PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure",
    "azure_openai": "azure",
    "bedrock": "bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "google",
    "google": "google",
    "groq": "groq",
    "huggingface": "huggingface",
    "mistral": "mistral",
    "ollama": "ollama",
    "ollama_chat": "ollama",
    "openai": "openai",
    "openrouter": "openrouter",
    "together_ai": "together",
    "vertex_ai": "google-cloud",
    "xai": "xai",
}
"""Providers as the_edge_agent names them before a slash, and their names here."""

ACTION_ADVICE = {
    "http.get": "use 'http.request'",
    "http.post": "use 'http.request' with 'method: POST'",
    "retry.loop": "use 'reflection.loop', or 'retries' on the node",
    "secrets.get": FILE_ADVICE["secrets"],
}

START, STOP = "__start__", "__end__"
"""The names of the_edge_agent for the beginning and the end; `goto: __end__` works here, too."""


def taken_over(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake], list[Mistake]]:
    """Return a document without the keys to ignore, notes on them, and what is wrong with its edges."""
    wrong = list(_wrong_edges(document))
    ignored = [key for key in IGNORED if key in document]
    notes: list[Mistake] = [((key,), IGNORED[key]) for key in ignored if key != "edges" or not wrong]
    return {key: value for key, value in document.items() if key not in ignored}, notes, wrong


def is_ported(document: Mapping[str, Any]) -> bool:
    """Return whether a document has what only files for the_edge_agent have."""
    nodes = document.get("nodes")
    listed = cast("list[Any]", nodes) if isinstance(nodes, list) else []
    gotos = [mapping(node).get("goto") for node in listed]
    return repr(STOP) in repr(gotos) or not IGNORED.keys().isdisjoint(document)


def _wrong_edges(document: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the edges that lead elsewhere than the order of the nodes and their gotos."""
    edges, nodes = document.get("edges"), document.get("nodes")
    if edges is None or not isinstance(nodes, list):
        return
    if not isinstance(edges, list):
        yield ("edges",), f"unknown key 'edges'; {FILE_ADVICE['edges']}"
        return
    listed = [mapping(node) for node in cast("list[Any]", nodes)]
    names = [str(node.get("name")) for node in listed]
    follows = dict(zip([START, *names], [*names, STOP], strict=True))
    jumping = {name for name, node in zip(names, listed, strict=True) if "goto" in node}
    for at, edge in enumerate(cast("list[Any]", edges)):
        one = mapping(edge)
        origin, target = one.get("from"), one.get("to")
        if one.get("type") == "parallel" or "fan_in" in one or list in (type(origin), type(target)):
            yield ("edges", at), f"nodes run one after the other, not in parallel; {NODE_ADVICE['items']}"
        elif origin in jumping:  # its goto wins
            continue
        elif "when" in one or "condition" in one:
            goto = f"'goto: [{{if: CONDITION, to: {_named(target)}}}]'"
            yield ("edges", at), f"edges are not followed; write {goto} under the node {origin!r}"
        elif follows.get(str(origin)) != target:
            goto = f"'goto: {_named(target)}' under the node {origin!r}"
            first = f"put the node {target!r} first" if origin == START else f"write {goto}"
            yield ("edges", at), f"edges are not followed; {first}"


def mapping(value: Any) -> dict[str, Any]:
    """A value of a document if it is a mapping, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _named(target: Any) -> str:
    return "end" if target == STOP else str(target)


def advice(path: KeyPath) -> str | None:
    """Return what to write instead of an unknown key; None if it is no key of the_edge_agent."""
    if len(path) == 1:
        return FILE_ADVICE.get(str(path[0]))
    if path[0] != "nodes":
        return None
    is_in_node = len(path) == 3  # noqa: PLR2004 (`nodes`, a number, the key)
    if not is_in_node:
        return LLM_ADVICE.get(str(path[-1]))
    return NODE_ADVICE.get(str(path[2]))


def model_advice(name: str) -> str | None:
    """Return how a model named `PROVIDER/MODEL`, as elsewhere, is named here; None for other names."""
    for one in names_in(name):
        provider, _, model = one.partition("/")
        if model and (here := PROVIDERS.get(provider.lower())):
            return f"{one!r} is named {f'{here}:{model}'!r} here"
    return None


# --- what works differently, though the file is valid ---

# `CORRECTOR` and `NUMBER` are notes on what the documentation recommends, and are only for files that were
# ported; the others are on what has no effect in any file.

CORRECTOR = (
    "the reply of this corrector is the next output, and the generator does not run again; write "
    "'apply: replace' to confirm, or 'apply: feedback' to run the generator again"
)
NUMBER = "a number is valid from 0.8, not from 0.5; set 'threshold' to choose"
OUTPUT = "assigning to 'output' does not return it; assign to 'result' instead, or return the value"
CONTENT = "the result of 'llm.call' is the text itself, which has no 'content'; leave that out"
DEPENDENCIES = (
    "'dependencies' belongs to draft 7 and has no effect in draft 2020-12; write 'dependentRequired', or "
    "'$schema: http://json-schema.org/draft-07/schema#'"
)
DRAFT_7 = ("draft-07", "draft-06", "draft-04", "2019-09")


NUMERIC = {"float", "int", "len", "max", "min", "round", "sum"}
RETURNS = re.compile(r"\breturn\b|\bresult\s*=(?!=)")
ASSIGNS_OUTPUT = re.compile(r"(?:^|[:;])[ \t]*output[ \t]*=(?!=)", re.MULTILINE)
READS_CONTENT = re.compile(
    r"""\bstate(?:\.get\(["']|\[["']|\.)(\w+)(?:["'](?:,.*?)?[])])?(?:\.get\(["']|\[["']|\.)content\b"""
)
"""Reads the content of a key of the state: `state.a.content`, `state["a"]`, `state.get("a", {})`."""


def returns_number(code: str) -> bool:
    """Whether Python code that judges seems to return a number."""
    values = [
        node.value
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Return)
        or (isinstance(node, ast.Assign) and _name(node.targets[0]) == "result")
    ]
    return any(
        isinstance(value, ast.BinOp)
        or (isinstance(value, ast.Constant) and type(value.value) in (int, float))
        or (isinstance(value, ast.Call) and _name(value.func) in NUMERIC)
        for value in values
    )


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def only_assigns_output(code: str) -> int | None:
    """The line in which Python code assigns `output`, if it returns nothing else."""
    found = None if RETURNS.search(code) else ASSIGNS_OUTPUT.search(code)
    return None if found is None else code.count("\n", 0, found.end()) + 1


def reads_content(text: str, keys: Container[str]) -> int | None:
    """The line in which code or a template reads `content` of one of these keys of the state."""
    found = (one for one in READS_CONTENT.finditer(text) if one[1] in keys)
    return next((text.count("\n", 0, one.start()) + 1 for one in found), None)


def ineffective_keywords(schema: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the places of `dependencies` in a schema, unless its draft still knows them."""
    if isinstance(schema, list):
        for at, one in enumerate(cast("list[Any]", schema)):
            yield from ineffective_keywords(one, (*path, at))
    elif isinstance(schema, dict):
        keys = cast("dict[str, Any]", schema)
        if any(draft in str(keys.get("$schema")) for draft in DRAFT_7):
            return
        for key, one in keys.items():
            if key == "dependencies" and path[-1:] != ("properties",):
                yield (*path, key)
            elif key not in ("const", "enum", "default", "examples"):
                yield from ineffective_keywords(one, (*path, key))
