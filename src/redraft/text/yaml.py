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
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        line = f", line {place.line + 1}" if place else ""
        raise ConfigError(f"{source}{line}: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: {error}.") from error


def line_of(text: str, way: Way) -> int:
    """Return the 1-based line of what `way` leads to in a text that could be loaded, or the nearest above."""
    import yaml  # noqa: PLC0415 (only an error needs it)

    node: Any = cast("Any", yaml).compose(text, Loader=yaml.CSafeLoader)
    at = node
    for part in way:
        if isinstance(part, int):
            if not isinstance(node, yaml.SequenceNode) or part >= len(node.value):
                break
            at = node = node.value[part]
            continue
        if not isinstance(node, yaml.MappingNode):
            break
        entries: dict[Any, Any] = {key.value: (key, value) for key, value in node.value}
        if part not in entries:
            break
        at, node = entries[part]
    return at.start_mark.line + 1 if at else 1
