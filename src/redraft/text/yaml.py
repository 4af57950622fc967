"""load_yaml: YAML without code, bombs, or surprises."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from redraft.core.errors import ConfigError

Way: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value of a document."""

MAX_CHARACTERS = 1_000_000


def load_yaml(text: str, source: str = "YAML") -> Any:
    """Return the one document of a YAML text as plain data; `source` names it in errors.

    Plain scalars follow YAML 1.2. Raises `ConfigError` with the line for what is not valid, a key that comes
    twice, a tag that makes objects, several documents, and for what is too large: 1,000,000 characters,
    50,000 nodes, 64 levels, 100 aliases, 200,000 nodes once aliases are written out, or endless ones.
    """
    import yaml  # noqa: PLC0415 (only who reads YAML pays for it)

    from redraft.text.yaml_reader import Reader  # noqa: PLC0415 (likewise)

    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"{source}: {len(text):,} characters; at most {MAX_CHARACTERS:,} are read.")
    try:
        # Events come one by one: what is too large never gets built.
        return Reader(yaml.parse(text, Loader=yaml.CSafeLoader), source).document()
    except UnicodeEncodeError as error:  # of half a character
        raise ConfigError(f"{source}: {error}.") from error
    except yaml.YAMLError as error:
        from redraft.text.yaml_advice import wrong_yaml  # noqa: PLC0415 (likewise)

        line, said = wrong_yaml(error, text)
        raise ConfigError(f"{source}{f', line {line}' if line else ''}: {said}.") from error


def line_of(text: str, way: Way) -> int:
    """Return the 1-based line of what `way` leads to in a text that could be loaded, or the nearest above."""
    at, _ = _nodes_at(text, way)
    return at.start_mark.line + 1 if at else 1


def line_within(text: str, way: Way, line: int) -> int | None:
    """Return on which line of the file line `line` of the text stands that `way` leads to, both from 1.

    None where the lines of the one are not the lines of the other, as in a folded text.
    """
    _, node = _nodes_at(text, way)
    if node is None or not isinstance(node.value, str):
        return None
    if node.style == "|":
        return node.start_mark.line + 1 + line
    return node.start_mark.line + 1 if line == 1 and "\n" not in node.value else None


def _nodes_at(text: str, way: Way) -> tuple[Any, Any]:
    """Return the node of the last key on a way and that of its value, None where the way ends before."""
    import yaml  # noqa: PLC0415 (only an error needs it)

    node: Any = cast("Any", yaml).compose(text, Loader=yaml.CSafeLoader)
    at = node
    for part in way:
        if isinstance(part, int):
            if not isinstance(node, yaml.SequenceNode) or part >= len(node.value):
                return at, None
            at = node = node.value[part]
            continue
        if not isinstance(node, yaml.MappingNode):
            return at, None
        entries: dict[Any, Any] = {key.value: (key, value) for key, value in node.value}
        if part not in entries:
            return at, None
        at, node = entries[part]
    return at, node
