"""The bounds of a note: how long it may be, and what a refined text may not lose."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from redraft.core.errors import OutputError
from redraft.core.tokens import BYTES_PER_TOKEN, estimate_tokens
from redraft.notes.placeholders import placeholders_of
from redraft.notes.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.core.task import Task
    from redraft.notes.reflection import TaskReflection
    from redraft.notes.strategy import ReflectionInput

FEWEST_WORDS = 30
"""How many words a text must have for the loss of some to count."""
LEAST_KEPT = 1 / 3

# Scripts that don't part their words: there each sign counts as one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def bounded(reflection: TaskReflection, given: ReflectionInput) -> TaskReflection:
    """Return what any strategy made of `given` as a note that may be kept.

    A blank refined text becomes the task's own, blank items go. What is longer than `given.max_tokens` is
    cut: observations from the end, then suggestions, then the refined texts at their lines; one that has
    nothing left then, or no longer what it needs, is the task's own. Changes nothing that is within its
    bounds. Raises `OutputError` for a refined text that lost most of its content or a placeholder of the
    description.
    """
    whole = settled(reflection, given)
    refuse_loss(whole, given)
    return _cut(whole, given)


def settled(reflection: TaskReflection, given: ReflectionInput) -> TaskReflection:
    """Return a reflection with nothing blank in it: what is not said is as the task has it."""
    return replace(
        reflection,
        refined_description=_own(reflection.refined_description, given.task.description),
        refined_expected_output=_own(reflection.refined_expected_output, given.task.expected_output),
        observations=_items(reflection.observations),
        suggestions=_items(reflection.suggestions),
    )


def size_of(reflection: TaskReflection, task: Task) -> int:
    """Estimate the tokens of a note's own words.

    A refined text that is the task's own counts nothing, and neither do the fixed lines of the block.
    """
    return _size(
        _counted(reflection.refined_description, task.description),
        _counted(reflection.refined_expected_output, task.expected_output),
        reflection.observations,
        reflection.suggestions,
    )


def refuse_loss(reflection: TaskReflection, given: ReflectionInput) -> None:
    """Raise `OutputError` where a refined text lost most of its content, or a placeholder."""
    task, prior = given.task, given.prior_reflection
    description, expected = reflection.refined_description, reflection.refined_expected_output
    missing = _missing(description, task.description)
    if missing:
        raise OutputError(
            f"The refined description lost {', '.join(missing)}, which the task's description has: "
            "every placeholder must stay in it as it is."
        )
    for name, text, original, before in (
        ("description", description, task.description, prior.refined_description if prior else ""),
        ("expected output", expected, task.expected_output, prior.refined_expected_output if prior else ""),
    ):
        for what, other in ((f"the task's {name}", original), (f"the refined {name} before it", before)):
            if text != original and _is_remnant(text, other):
                raise OutputError(
                    f"The refined {name} lost most of its content: it has {_words(text)} words, and {what} "
                    f"has {_words(other)}. At least a third must be left."
                )


def _own(refined: str, original: str) -> str:
    """Return a refined text, made plain, or the task's own where it says nothing else."""
    text = plain(refined).strip()
    return original if not text or text == plain(original).strip() else text


def _items(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(text for item in items if (text := plain(item).strip()))


def _missing(text: str, original: str) -> list[str]:
    kept = placeholders_of(text)
    return [f"{{{name}}}" for name in placeholders_of(original) if name not in kept]


def _is_remnant(text: str, other: str) -> bool:
    words = _words(other)
    return words >= FEWEST_WORDS and _words(text) < words * LEAST_KEPT


def _words(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text))


def _cut(reflection: TaskReflection, given: ReflectionInput) -> TaskReflection:
    most = given.max_tokens
    if size_of(reflection, given.task) <= most:
        return reflection
    description, expected = _cut_texts(reflection, given)
    texts = _counted(description, given.task.description), _counted(expected, given.task.expected_output)
    suggestions = _first_items(reflection.suggestions, most - _size(*texts))
    observations = _first_items(reflection.observations, most - _size(*texts, (), suggestions))
    return replace(
        reflection,
        refined_description=description,
        refined_expected_output=expected,
        observations=observations,
        suggestions=suggestions,
    )


def _cut_texts(reflection: TaskReflection, given: ReflectionInput) -> tuple[str, str]:
    """Return the refined texts so that both together fit: the longer one is cut first."""
    originals = (given.task.description, given.task.expected_output)
    texts = [reflection.refined_description, reflection.refined_expected_output]
    for place in sorted((0, 1), key=lambda at: len(texts[at]), reverse=True):
        counted = _counted(texts[0], originals[0]), _counted(texts[1], originals[1])
        if _size(*counted) <= given.max_tokens:
            break
        room = given.max_tokens - estimate_tokens(counted[1 - place])
        text, original = _first_lines(texts[place], room), originals[place]
        lost = _is_remnant(text, original) or (place == 0 and bool(_missing(text, original)))
        texts[place] = original if lost or not text else text
    return texts[0], texts[1]


def _counted(refined: str, original: str) -> str:
    return "" if refined == original else refined


def _size(
    description: str, expected: str, observations: Iterable[str] = (), suggestions: Iterable[str] = ()
) -> int:
    items = [f"- {item}" for listed in (observations, suggestions) for item in listed]
    return estimate_tokens("\n".join(part for part in (description, expected, *items) if part))


def _first_items(items: tuple[str, ...], room: int) -> tuple[str, ...]:
    # One token less: what is counted alone may round down.
    return items[: _fitting([f"- {item}\n" for item in items], room - 1)]


def _first_lines(text: str, room: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: _fitting(lines, room - 1)]).rstrip()


def _fitting(parts: list[str], room: int) -> int:
    """Say how many of the parts, from the first, fit into so many tokens together."""
    used = 0.0
    for count, part in enumerate(parts):
        used += len(part.encode("utf-8", "replace")) / BYTES_PER_TOKEN
        if used > room:
            return count
    return len(parts)
