"""The bounds of a note: how long it may be, and what a refined text may not lose."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from redraft.core.errors import OutputError
from redraft.core.tokens import BYTES_PER_TOKEN, estimate_tokens
from redraft.notes.placeholders import placeholders_of
from redraft.notes.plain import plain
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.core.task import Task
    from redraft.notes.reflection import TaskReflection
    from redraft.notes.strategy import ReflectionInput

FEWEST_WORDS = 30
"""How many words a text must have for the loss of some to count."""
LEAST_KEPT = 1 / 3
DESCRIPTION = "description"

# Scripts that don't part their words: there each sign counts as one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def bounded(reflection: TaskReflection, given: ReflectionInput) -> TaskReflection:
    """Return what any strategy made of `given` as a note that may be kept.

    A blank refined text becomes the task's own, blank items go. What is longer than `given.max_tokens` is
    cut: observations from the end, then suggestions, then the refined texts at their lines; one that has
    nothing left then, or no longer what it needs, is the task's own. So is a refined text that lost most of
    its content or a placeholder of the description. Changes nothing that is within its bounds. Raises
    `OutputError` where such a loss leaves nothing to keep.
    """
    return _cut(without_losses(settled(reflection, given), given), given)


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


def without_losses(reflection: TaskReflection, given: ReflectionInput) -> TaskReflection:
    """Return a reflection whose refined texts lost nothing: one that did is refused for the task's own.

    What else was noticed is kept, for it was paid for. Raises `OutputError` where there is nothing else.
    """
    lost = losses(reflection, given)
    if not lost:
        return reflection
    why = " ".join(lost.values())
    kept = [part.original if part.name in lost else text for part, text in _compared(reflection, given)]
    left = replace(reflection, refined_description=kept[0], refined_expected_output=kept[1])
    if size_of(left, given.task) == 0:
        raise OutputError(why)
    logger.info("The task's own text stays in its note: %s", why)
    return left


def losses(reflection: TaskReflection, given: ReflectionInput) -> dict[str, str]:
    """Say of each refined text that lost most of its content, or a placeholder, what it lost."""
    return {part.name: why for part, text in _compared(reflection, given) if (why := _loss(part, text))}


class _Part(NamedTuple):
    """Hold what a refined text is compared with: the task's own, and the one in force."""

    name: str
    original: str
    before: str = ""


def _parts(given: ReflectionInput) -> tuple[_Part, _Part]:
    before = _texts(given.prior_reflection) if given.prior_reflection else ("", "")
    return (
        _Part(DESCRIPTION, given.task.description, before[0]),
        _Part("expected output", given.task.expected_output, before[1]),
    )


def _compared(reflection: TaskReflection, given: ReflectionInput) -> list[tuple[_Part, str]]:
    return list(zip(_parts(given), _texts(reflection), strict=True))


def _texts(reflection: TaskReflection) -> tuple[str, str]:
    return reflection.refined_description, reflection.refined_expected_output


def _loss(part: _Part, text: str) -> str:
    """Say what a refined text lost that it may not lose; the task's own lost nothing."""
    if text == part.original:
        return ""
    kept = placeholders_of(text)
    missing = [f"{{{name}}}" for name in placeholders_of(part.original) if name not in kept]
    if missing and part.name == DESCRIPTION:
        return (
            f"The refined description lost {', '.join(missing)}, which the task's description has: every "
            "placeholder must stay in it as it is."
        )
    words = _words(text)
    for whose, other in (("the task's own", part.original), ("the one in force", part.before)):
        if (whole := _words(other)) >= FEWEST_WORDS and words < whole * LEAST_KEPT:
            return (
                f"The refined {part.name} lost most of its content: it has {words} words, and {whose} has "
                f"{whole}. At least a third must be left."
            )
    return ""


def _own(refined: str, original: str) -> str:
    """Return a refined text, made plain, or the task's own where it says nothing else."""
    text = plain(refined).strip()
    return original if not text or text == plain(original).strip() else text


def _items(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(text for item in items if (text := plain(item).strip()))


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
    """Return the refined texts so that both together fit: the longer one first, to half or more.

    Where they don't fit, they leave the lists their place, up to half of all.
    """
    parts, texts, most = _parts(given), list(_texts(reflection)), given.max_tokens

    def counted(place: int) -> str:
        return _counted(texts[place], parts[place].original)

    if _size(counted(0), counted(1)) > most:
        most = max(most // 2, most - _size("", "", reflection.observations, reflection.suggestions))
    for place in sorted((0, 1), key=lambda at: len(texts[at]), reverse=True):
        if _size(counted(0), counted(1)) <= most:
            break
        text = _first_lines(texts[place], max(most - estimate_tokens(counted(1 - place)), most // 2))
        texts[place] = parts[place].original if not text or _loss(parts[place], text) else text
    return texts[0], texts[1]


def _counted(refined: str, original: str) -> str:
    return "" if refined == original else refined


def _size(
    description: str, expected: str, observations: Iterable[str] = (), suggestions: Iterable[str] = ()
) -> int:
    items = [f"- {item}" for listed in (observations, suggestions) for item in listed]
    return estimate_tokens("\n".join(part for part in (description, expected, *items) if part))


def _first_items(items: tuple[str, ...], room: int) -> tuple[str, ...]:
    return items[: _fitting([f"- {item}\n" for item in items], room)]


def _first_lines(text: str, room: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: _fitting(lines, room)]).rstrip()


def _fitting(parts: list[str], room: int) -> int:
    """Say how many of the parts, from the first, fit into so many tokens together."""
    used = 0.0
    for count, part in enumerate(parts):
        used += len(part.encode("utf-8", "replace")) / BYTES_PER_TOKEN
        if used >= room:  # less than that, since what is beside it may have been rounded down by half a token
            return count
    return len(parts)
