"""Workflow files written for the_edge_agent: ignored keys, advice on other keys, and differences."""

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
"""Keys of the file that are ignored, and the note of `--check` on each."""

INTERRUPT = "a run waits for a person at a node with 'uses: human.approve'"
INTERRUPTS = ("interrupt_before", "interrupt_after")

FILE_ADVICE = {
    **dict.fromkeys(INTERRUPTS, INTERRUPT),
    "edges": "nodes run in the order of the file; use 'goto' to change it",
    "imports": "actions of your own come from a package, and tools from functions.py next to the file",
    "settings": "models are named under 'model' and 'models', everything else in redraft.toml",
    "llm": "the model goes under 'model', and what other names of models mean under 'models'",
    "secrets": "list environment variables under 'env', and read them as env.NAME",
    "initial_state": "the first values are the inputs of a run; give each a 'default' under 'inputs'",
}
NODE_ADVICE = {
    "action": "the action of a node goes under 'uses'",
    "body": "write a 'reflection.loop', or nodes with a 'goto' back and a 'max_visits'",
    "condition": "a condition goes under 'when', or under 'if' in a 'goto'",
    "fan_in": "nodes run one after the other; 'map' runs a node over a list",
    "index_var": "the number of the item is always 'index'",
    "interrupt": INTERRUPT,
    "item_var": "the item of a 'map' is always 'item'",
    "items": "'map' runs a node over a list",
    "next": "the next node goes under 'goto'",
    "params": "the parameters of an action go under 'with'",
    "script": "code goes under 'run'",
    "steps": "write each step as a node of its own",
    "type": "write a 'reflection.loop', nodes with a 'goto' back, or a 'map'",
}
"""Advice on keys that Redraft does not have, at the top level of the file and in a node."""

LLM_ADVICE = {
    "provider": "the provider is part of the model's name, such as 'model: ollama:llama3'",
    "api_base": "a provider's address comes from its environment variable, such as OLLAMA_BASE_URL",
    "base_url": "a provider's address comes from its environment variable, such as OLLAMA_BASE_URL",
    "api_key": "a provider's key comes from its environment variable, such as OPENAI_API_KEY",
    "response_format": "write the JSON Schema of the reply under 'schema'",
    "max_retries": "write 'retries' on the node",
    "stream": "'redraft run' and workflow.stream() show what a loop writes; leave it out",
    "timeout": "write 'timeout' on the node",
}
"""Advice on parameters of `llm.call` that Redraft does not have."""

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
"""The providers of the_edge_agent, which writes them before a slash, and their names in Redraft."""

ACTION_ADVICE = {
    "http.get": "use 'http.request'",
    "http.post": "use 'http.request' with 'method: POST'",
    "retry.loop": "use 'reflection.loop', or 'retries' on the node",
    "secrets.get": FILE_ADVICE["secrets"],
}

START, STOP = "__start__", "__end__"
"""The names of the_edge_agent for the beginning and the end; `goto: __end__` works here, too."""


def without_ignored_keys(
    document: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Mistake], list[Mistake]]:
    """The document without ignored keys, notes on these keys, and mistakes in its edges and interrupts."""
    mistakes = list(_wrong_edges(document))
    ignored = [key for key in IGNORED if key in document]
    notes: list[Mistake] = [((key,), IGNORED[key]) for key in ignored if key != "edges" or not mistakes]
    config = mapping(document.get("config"))
    mistakes += [
        (("config", key), f"nothing is interrupted; {INTERRUPT}") for key in INTERRUPTS if config.get(key)
    ]
    return {key: value for key, value in document.items() if key not in ignored}, notes, mistakes


def is_ported(document: Mapping[str, Any]) -> bool:
    """Whether a document has a key or value that occurs only in files for the_edge_agent."""
    nodes = document.get("nodes")
    listed = cast("list[Any]", nodes) if isinstance(nodes, list) else []
    gotos = [mapping(node).get("goto") for node in listed]
    return repr(STOP) in repr(gotos) or not IGNORED.keys().isdisjoint(document)


def _wrong_edges(document: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the edges that differ from the order of the nodes and from their gotos."""
    edges, nodes = document.get("edges"), document.get("nodes")
    if edges is None or not isinstance(nodes, list):
        return
    if not isinstance(edges, list):
        yield ("edges",), f"unknown key 'edges'; {FILE_ADVICE['edges']}"
        return
    listed = [mapping(node) for node in cast("list[Any]", nodes)]
    names = [str(node.get("name")) for node in listed]
    successors = dict(zip([START, *names], [*names, STOP], strict=True))
    with_goto = {name for name, node in zip(names, listed, strict=True) if "goto" in node}
    for index, value in enumerate(cast("list[Any]", edges)):
        edge, path = mapping(value), ("edges", index)
        origin, target = edge.get("from"), edge.get("to")
        target_name = "end" if target == STOP else str(target)
        if edge.get("type") == "parallel" or "fan_in" in edge or list in (type(origin), type(target)):
            yield path, f"nodes run one after the other, not in parallel; {NODE_ADVICE['items']}"
        elif origin in with_goto:  # the goto overrides the edge
            continue
        elif "when" in edge or "condition" in edge:
            goto = f"'goto: [{{if: CONDITION, to: {target_name}}}]'"
            yield path, f"edges are not followed; write {goto} under the node {origin!r}"
        elif successors.get(str(origin)) != target:
            goto = f"'goto: {target_name}' under the node {origin!r}"
            hint = f"put the node {target!r} first" if origin == START else f"write {goto}"
            yield path, f"edges are not followed; {hint}"


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty mapping."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def advice(path: KeyPath) -> str | None:
    """What to write instead of an unknown key; None if it is not a key of the_edge_agent."""
    if len(path) == 1:
        return FILE_ADVICE.get(str(path[0]))
    if path[0] != "nodes":
        return None
    is_in_node = len(path) == 3  # noqa: PLR2004 (`nodes`, a number, the key)
    if not is_in_node:
        return LLM_ADVICE.get(str(path[-1]))
    return NODE_ADVICE.get(str(path[2]))


def model_advice(name: str) -> str | None:
    """Redraft's name for a model that is written `PROVIDER/MODEL`, as a message; None for other names."""
    for part in names_in(name):
        provider, _, model = part.partition("/")
        if model and (own_name := PROVIDERS.get(provider.lower())):
            return f"{part!r} is named {f'{own_name}:{model}'!r} here"
    return None


# --- valid code and values that work differently in Redraft ---

# `CORRECTOR` and `NUMBER` are recommendations, and only for ported files. The other notes are about code and
# keys that have no effect in any file.

CORRECTOR = (
    "the reply of this corrector is the next output, and the generator does not run again; write "
    "'apply: replace' to confirm, or 'apply: feedback' to run the generator again"
)
NUMBER = "a number is valid from 0.8, not from 0.5; set 'threshold' to choose"
OUTPUT = "assigning to 'output' does not return it; assign to 'result' instead, or return the value"
CONTENT = "the result of 'llm.call' is the text itself, which has no 'content'; leave that out"

NUMERIC = {"float", "int", "len", "max", "min", "round", "sum"}
RETURNS = re.compile(r"\breturn\b|\bresult\s*=(?!=)")
ASSIGNS_OUTPUT = re.compile(r"(?:^|[:;])[ \t]*output[ \t]*=(?!=)", re.MULTILINE)
READS_CONTENT = re.compile(
    r"""\bstate(?:\.get\(["']|\[["']|\.)(\w+)(?:["'](?:,.*?)?[])])?(?:\.get\(["']|\[["']|\.)content\b"""
)
"""Matches code that reads `content` of a key of the state, as attribute, item or with `get`."""


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
    """The line in which Python code assigns `output`, if the code does not return a value."""
    match = None if RETURNS.search(code) else ASSIGNS_OUTPUT.search(code)
    return None if match is None else code.count("\n", 0, match.end()) + 1


def reads_content(text: str, keys: Container[str]) -> int | None:
    """The first line in which code or a template reads `content` of one of these keys of the state."""
    matches = (match for match in READS_CONTENT.finditer(text) if match[1] in keys)
    return next((text.count("\n", 0, match.start()) + 1 for match in matches), None)
