"""The JSON Schema of a kind of file, for editors: made from its typed spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from redraft.text.spec_file import TEMPLATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def parts_of(kinds: Iterable[type[BaseModel]], says: Mapping[str, str]) -> dict[str, Any]:
    """Return the schemas of models and of all that is in them, by their names.

    `says` tells what a key is for, wherever it stands, unless the spec says more of it there.
    """
    _, made = models_json_schema([(kind, "validation") for kind in kinds], schema_generator=_Generator)
    parts: dict[str, Any] = made["$defs"]
    for part in parts.values():
        part["description"] = part["description"].replace("\n", " ").replace("  ", "\n\n")
        for key, value in part["properties"].items():
            _tidy(value, says.get(key, ""))
    return parts


class _Generator(GenerateJsonSchema):
    """Leave out titles that only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 (pydantic's signature)
        return False


def _tidy(value: dict[str, Any], says: str) -> None:
    """Say what a key is for, and take away that it may be null."""
    branches: list[Any] = [one for one in value.get("anyOf", ()) if one != {"type": "null"}]
    if value.get("default", ...) is None:
        del value["default"]
    if len(branches) == 1:
        del value["anyOf"]
        value |= {**branches[0], **value}
    elif branches:
        value["anyOf"] = branches
    said = value.get("description", "")
    if says and said in ("", TEMPLATED):
        value["description"] = f"{says} {said}".rstrip()
