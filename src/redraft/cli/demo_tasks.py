"""The tasks of the demo: chosen to show what redrafting does for a small model, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redraft.core.criterion import QualityCriterion
from redraft.core.errors import OutputError
from redraft.core.task import Task
from redraft.text.json_reply import json_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class DemoTask:
    """Hold a task with its checks; `name` is for programs, `title` (at most 24 characters) for people."""

    name: str
    title: str
    task: Task
    criteria: tuple[QualityCriterion, ...]


def _check(name: str, function: Callable[[str], dict[str, Any]]) -> QualityCriterion:
    return QualityCriterion(
        name, evaluator="function", evaluator_config={"function": function}, threshold=1.0
    )


def _share(errors: list[str], checks: int) -> dict[str, Any]:
    """Make a verdict of what went wrong out of so many checks."""
    return {"valid": not errors, "score": max(0.0, 1 - len(errors) / checks), "errors": errors}


def values(expected: Mapping[str, tuple[Any, str]]) -> QualityCriterion:
    """Check each field of a JSON object against the one right value; a hint says what kind of value it is."""

    def check(output: str) -> dict[str, Any]:
        try:
            found = json_of(output)
        except OutputError as error:
            return _share([str(error)], 1)
        fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        wrong = [
            f"{key} must be {hint}, not {fields.get(key)!r}"
            for key, (value, hint) in expected.items()
            if fields.get(key) != value or isinstance(fields.get(key), bool) != isinstance(value, bool)
        ]
        return _share(wrong, len(expected))

    return _check("values", check)


def word_count(least: int, most: int) -> QualityCriterion:
    """Check that a text has so many words; the score falls with the distance."""

    def check(output: str) -> dict[str, Any]:
        words = len(output.split())
        if least <= words <= most:
            return {"valid": True}
        score = words / least if words < least else max(0.0, 1 - (words - most) / most)
        wanted = f"at least {least}" if words < least else f"at most {most}"
        return {"valid": False, "score": score, "errors": [f"it has {words} words; {wanted} are wanted"]}

    return _check("length", check)


def mentions(*terms: str) -> QualityCriterion:
    """Check that a text mentions all of these."""

    def check(output: str) -> dict[str, Any]:
        missing = [term for term in terms if term not in output.lower()]
        return _share([f"{term!r} is not mentioned" for term in missing], len(terms))

    return _check("mentions", check)


def bullets(count: int, most: int) -> QualityCriterion:
    """Check that a text is so many bullets and nothing else, each of at most so many words."""

    def check(output: str) -> dict[str, Any]:
        lines = [line for line in output.splitlines() if line.strip()]
        found = [line[2:] for line in lines if line.startswith("- ")]
        wrong = [
            f"{line!r} has {len(line.split())} words; at most {most} are wanted"
            for line in found
            if len(line.split()) > most
        ]
        if len(found) != count:
            wrong.append(f"there are {len(found)} bullets; {count} are wanted")
        if len(found) < len(lines):
            wrong.append(f"{len(lines) - len(found)} lines are no bullets")
        return _share(wrong, count + 2)

    return _check("bullets", check)


def calls(*expected: tuple[str, Any]) -> QualityCriterion:
    """Run the code in the jail and check what calls of it return."""
    config = {"calls": [list(call) for call in expected], "timeout": 5}
    return QualityCriterion("calls", evaluator="command", evaluator_config=config, threshold=1.0)


ORDER = DemoTask(
    "order",
    "An order as JSON",
    Task(
        "Extract the order from this message as one JSON object with the keys customer (text), items (a list "
        "of objects with name and quantity), total_cents (integer) and paid (true or false). Reply with JSON "
        'only.\n\n"Hi, Dana Okafor here. Please send three desk lamps and a cable tray. That was 84.50 '
        "altogether, I'll pay on delivery.\""
    ),
    (
        QualityCriterion(
            "schema",
            evaluator="schema",
            evaluator_config={
                "schema": {
                    "type": "object",
                    "required": ["customer", "items", "total_cents", "paid"],
                    "additionalProperties": False,
                    "properties": {
                        "customer": {"type": "string"},
                        "items": {
                            "type": "array",
                            "minItems": 2,
                            "items": {
                                "type": "object",
                                "required": ["name", "quantity"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "quantity": {"type": "integer", "minimum": 1},
                                },
                            },
                        },
                        "total_cents": {"type": "integer"},
                        "paid": {"type": "boolean"},
                    },
                }
            },
            threshold=1.0,
        ),
        values(
            {
                "customer": ("Dana Okafor", "the name of the person who orders"),
                "total_cents": (8450, "the total in cents"),
                "paid": (False, "true only if the money was paid already"),
            }
        ),
    ),
)

LAMP = DemoTask(
    "lamp",
    "A lamp in 20 to 40 words",
    Task(
        "Describe a solar lamp for campers in 20 to 40 words. Mention its battery, its weight and the rain."
    ),
    (word_count(20, 40), mentions("battery", "weigh", "rain")),
)

UNIQUE = DemoTask(
    "unique",
    "A function `unique`",
    Task(
        "Write a Python function `unique(items)` that drops repeated items of a list. Reply with nothing but "
        "the function: no docstring, no comments, no examples."
    ),
    (
        calls(
            ("unique([3, 1, 3, 2, 1])", [3, 1, 2]),
            ("unique([])", []),
            ("unique([10, 2, 10])", [10, 2]),
        ),
    ),
)

TEA = DemoTask(
    "tea",
    "Tea in three bullets",
    Task(
        "How is tea made? Exactly three bullets of at most 6 words, each on a line that begins with '- '. "
        "Nothing else."
    ),
    (bullets(3, 6),),
)

TASKS = (ORDER, LAMP, UNIQUE, TEA)
