"""Score: the share of a schema's checks that hold for a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redraft.text.schema_tree import REFERENCES, ROOT, SchemaTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LEAVES = frozenset(
    """
type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern
minItems maxItems uniqueItems minProperties maxProperties contains minContains maxContains not format
contentEncoding contentMediaType if dependentRequired dependentSchemas dependencies
""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)
)
_MANY = (
    *("items", "additionalItems", "additionalProperties", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_ALL = ("allOf", "prefixItems")
_CONDITIONAL = frozenset(("if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"))


class Score:
    """Weigh the errors of a value against all the checks of a schema.

    A schema makes so many checks: each assertion is one, so is each required key, so are those of every
    property and item that it describes. The score is the share that holds:

    - where a type is wrong nothing beneath it holds; neither does what is beneath a missing required key;
    - checks of what need not be there, and is not, hold;
    - the checks of items, of additional and of matching properties are made once for all of them: with a
      weight w and failures f among the items, w * f / (w + f) is lost;
    - of `anyOf` and `oneOf` the branch counts that comes nearest; `oneOf` is one check more;
    - what a condition asks for (`then`, `else`, `dependent...`) is one check.

    So the total depends on the schema alone, and mending an error, where that brings no new ones to light,
    never lowers the score. It is 1.0 only for a value without errors.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self.tree = tree
        self._weights: dict[int, int] = {}
        self.total = max(1, self._weight(tree.root, ROOT))

    def of(self, errors: Iterable[Any]) -> float:
        """Return the score of a value with these errors of the validator, from 0.0 to 1.0."""
        lost = self._lost(errors)
        if not lost:
            return 1.0
        return min(max(0.0, 1.0 - lost / self.total), 1.0 - 1e-9)

    def _lost(self, errors: Iterable[Any]) -> float:
        lost = 0.0
        groups: dict[tuple[Any, ...], list[float]] = {}
        for error in errors:
            group, weight, loss = self._place(error)
            if group is None:
                lost += loss
            else:
                groups.setdefault(group, [weight, 0.0])[1] += loss
        return lost + sum(weight * failed / (weight + failed) for weight, failed in groups.values())

    def _place(self, error: Any) -> tuple[tuple[Any, ...] | None, float, float]:
        """Return what an error loses, and the group of items that it is lost in, with the group's weight."""
        path: Sequence[Any] = error.evaluation_path
        node, base = self.tree.root, ROOT
        holder: Any = node
        group: tuple[Any, ...] | None = None
        weight = 1.0
        above = {id(node)}
        for place, key in enumerate(path):
            holder = node  # at the end: what holds the keyword that failed
            found = self._step(node, key, base)
            again = found is not None and key in REFERENCES and id(found[0]) in above
            if group is None and (key in _MANY or key in _CONDITIONAL or key == "patternProperties" or again):
                group = tuple(path[: place + 1])
                weight = 1.0 if again or found is None or key in _CONDITIONAL else self._least(*found)
            node, base = found or (None, base)
            above.add(id(node))
        return group, weight, self._loss(error, path[-1] if path else "", holder, base)

    def _step(self, node: Any, key: Any, base: str) -> tuple[Any, str] | None:
        if isinstance(node, dict) and key in node:
            inner = cast("dict[Any, Any]", node)[key]
            return (self.tree.target(inner, base)) if key in REFERENCES else (inner, base)
        if isinstance(node, list) and isinstance(key, int) and key < len(cast("list[Any]", node)):
            return cast("list[Any]", node)[key], base
        return None

    def _loss(self, error: Any, keyword: Any, holder: Any, base: str) -> float:
        schema = cast("dict[str, Any]", holder) if isinstance(holder, dict) else {}
        kind, value = error.kind.name, error.kind.value
        if kind == "type":
            return self._least(schema, base)
        if kind == "required" and keyword == "required":
            described = schema.get("properties", {})
            return 1 + (self._weight(described[value], base) if value in described else 0)
        if kind in ("anyOf", "oneOf") and isinstance(schema.get(kind), list):
            nearest = min(
                (self._share(schema[kind], place, context, base) for place, context in enumerate(value))
            )
            return (kind == "oneOf") + nearest * self._nearest(schema[kind], base)
        if kind in ("additionalProperties", "unevaluatedProperties", "unevaluatedItems") and value:
            return len(value)
        return 1

    def _share(self, branches: list[Any], place: int, context: list[Any], base: str) -> float:
        """Return the share of a branch that is lost."""
        weight = self._least(branches[place], base) if place < len(branches) else 1
        return min(1.0, self._lost(context) / weight)

    def _nearest(self, branches: list[Any], base: str) -> int:
        return max((self._least(branch, base) for branch in branches), default=1)

    def _least(self, schema: Any, base: str) -> int:
        return max(1, self._weight(schema, base))

    def _weight(self, schema: Any, base: str) -> int:
        if not isinstance(schema, dict):
            return 1 if schema is False else 0
        node = cast("dict[str, Any]", schema)
        if id(node) not in self._weights:
            self._weights[id(node)] = 1  # a schema within itself counts as one check
            self._weights[id(node)] = min(
                sum(self._of(key, value, base) for key, value in node.items()), 10**9
            )
        return self._weights[id(node)]

    def _of(self, key: str, value: Any, base: str) -> int:
        """Return how many checks a keyword makes."""
        if key in _LEAVES:
            return 1
        if key in REFERENCES:
            found = self.tree.target(value, base)
            return 1 if found is None else self._weight(*found)
        if key in _MANY:
            return self._least(value, base) if value is not True else 0
        if isinstance(value, list):
            return self._of_list(key, cast("list[Any]", value), base)
        if key in ("properties", "patternProperties") and isinstance(value, dict):
            inner = cast("dict[str, Any]", value).values()
            return sum(self._weight(one, base) or (key != "properties") for one in inner)
        return 0

    def _of_list(self, key: str, value: list[Any], base: str) -> int:
        if key in ("anyOf", "oneOf"):
            return (key == "oneOf") + self._nearest(value, base)
        if key in _ALL:
            return sum(self._weight(inner, base) for inner in value)
        return len(value) if key == "required" else 0
