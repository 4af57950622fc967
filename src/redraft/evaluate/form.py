"""Form: in what form a judge is to reply, and what its reply says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, Any, cast

from redraft.core.adapt import share_of
from redraft.core.check import is_number
from redraft.core.criterion import QualityCriterion
from redraft.core.errors import OutputError
from redraft.core.evaluation import Issue
from redraft.evaluate import prose
from redraft.text.json_reply import verdict_json_of

if TYPE_CHECKING:
    from redraft.core.chat import ChatReply

MAX_ITEMS = 20
UNSTATED_CONFIDENCE = 0.5

_JSON = "Reply with one JSON object and nothing else, of this form:\n"


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold what a judge's reply says; scores and reasons by the criterion's name, only the usable ones."""

    scores: dict[str, float] = field(default_factory=dict[str, float])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    issues: tuple[Issue, ...] = ()
    suggestions: tuple[str, ...] = ()
    confidence: float = UNSTATED_CONFIDENCE


@dataclass(frozen=True)
class Form:
    """Say how a judge of `criteria` is to reply, as JSON or (not `structured`) as prose with score lines.

    Without `scored` only issues and suggestions are asked for. `names` maps the key that the judge sees for a
    criterion to its name: sentences make poor keys.
    """

    criteria: Sequence[QualityCriterion]
    structured: bool = True
    scored: bool = True

    @cached_property
    def names(self) -> dict[str, str]:
        """The key of each criterion with its name."""
        names: dict[str, str] = {}
        for criterion in self.criteria:
            slug = re.sub(r"\W+", "_", criterion.name.lower()).strip("_")[:40] or "criterion"
            numbered = (f"{slug}_{number}" for number in count(2))
            names[next(key for key in chain([slug], numbered) if key not in names)] = criterion.name
        return names

    @cached_property
    def listing(self) -> str:
        """The criteria as a list for the judge: key and description."""
        return "\n".join(
            f"- {key}: {criterion.description or criterion.name}"
            for key, criterion in zip(self.names, self.criteria, strict=True)
        )

    @cached_property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of a reply; None for prose."""
        if not self.structured:
            return None
        text = {"type": "string"}
        # The reason comes before the score: what is written first, the rest follows from.
        one = _object(reason=text, score={"type": "number", "minimum": 0, "maximum": 1})
        issue = _object(message=text, criterion={"type": "string", "enum": list(self.names)})
        parts: dict[str, Any] = {"criteria": _object(**dict.fromkeys(self.names, one))} if self.scored else {}
        parts["issues"] = {"type": "array", "items": issue}
        parts["suggestions"] = {"type": "array", "items": text}
        parts["confidence"] = {"type": "number", "minimum": 0, "maximum": 1}
        return _object(**parts)

    @cached_property
    def instructions(self) -> str:
        """The words that tell the judge how to reply."""
        keys = list(self.names)
        if not self.structured:
            return prose.instructions(keys if self.scored else [])
        scores = ", ".join(f'"{key}": {{"reason": "...", "score": <0.0 to 1.0>}}' for key in keys)
        criteria = f'"criteria": {{{scores}}}, ' if self.scored else ""
        return (
            f'{_JSON}{{{criteria}"issues": [{{"message": "...", "criterion": "{keys[0]}"}}], '
            '"suggestions": ["..."], "confidence": <0.0 to 1.0>}'
        )

    def read(self, reply: ChatReply) -> tuple[Reading, str]:
        """Return what a reply says, and what is wrong with it; empty when nothing is."""
        if not self.structured:
            data = prose.read(reply.text, list(self.names))
        else:
            try:
                data = reply.parsed if reply.parsed is not None else verdict_json_of(reply.text)
            except OutputError as error:
                return Reading(), str(error)
        if not isinstance(data, dict):
            return Reading(), f"It is {_short(data)}; expected a JSON object."
        return self._read(cast("dict[str, Any]", data))

    def _read(self, data: dict[str, Any]) -> tuple[Reading, str]:
        names, problems = self.names, list[str]()
        scores: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for key, name in names.items() if self.scored else ():
            given = _mapping(_mapping(data.get("criteria")).get(key))
            score = share_of(given.get("score"), _scale(given))
            if score is None:
                said = f"is {_short(given['score'])}" if "score" in given else "is missing"
                problems.append(f"The score of {key!r} {said}; expected a number from 0 to 1.")
            else:
                scores[name] = score
                reasons[name] = _text(given.get("reason"))
        confidence = share_of(data.get("confidence"))
        reading = Reading(
            scores,
            reasons,
            tuple(_issues(data.get("issues"), names)),
            tuple(
                text
                for item in _items(data.get("suggestions"))
                if (text := _text(item)) and not prose.says_none(text)
            ),
            UNSTATED_CONFIDENCE if confidence is None else confidence,
        )
        if not self.scored and not isinstance(data.get("issues"), list):
            problems.append("The list of issues is missing.")
        return reading, " ".join(problems)


def _object(**parts: Any) -> dict[str, Any]:  # the keyword names are the schema's own
    return {
        "type": "object",
        "properties": parts,
        "required": list(parts),
        "additionalProperties": False,
    }


def _issues(given: Any, names: dict[str, str]) -> list[Issue]:
    issues: list[Issue] = []
    for item in _items(given):
        entry: dict[str, Any] = {"message": item} if isinstance(item, str) else _mapping(item)
        if (message := _text(entry.get("message"))) and not prose.says_none(message):
            issues.append(Issue(message, names.get(_text(entry.get("criterion")))))
    return issues


def _items(given: Any) -> list[Any]:
    return cast("list[Any]", given)[:MAX_ITEMS] if isinstance(given, list) else []


def _mapping(given: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _text(given: Any) -> str:
    return given.strip() if isinstance(given, str) else ""


def _scale(given: dict[str, Any]) -> float | None:
    """Return the maximum that a score declares for itself, if any."""
    most = given.get("score_max")
    return float(most) if is_number(most) and most > 0 else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 (enough to recognise it)
