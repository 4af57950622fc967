"""Writing: have a model say what is to be learnt from how a task ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

from redraft.core.chat import Message
from redraft.core.errors import ModelError, OutputError
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.evaluate.ask import Answer, ask
from redraft.lessons import mars
from redraft.lessons.clean import WITHHELD, Cleaner
from redraft.lessons.content import Content, Decision, Failure, Partial, Procedure, headings_of
from redraft.lessons.known import KNOWN_CONFIDENCE, known_of
from redraft.lessons.lesson import CONFIDENCE
from redraft.lessons.mars import Replay
from redraft.lessons.outcome import Outcome
from redraft.lessons.trust import LONGEST
from redraft.lessons.writing_prompt import writing_prompt
from redraft.text.json_reply import json_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.core.chat import ChatReply
    from redraft.core.protocols import ChatModel

FORMS: dict[str, type[Content]] = {
    "failed": Failure,
    "partial": Partial,
    "success": Procedure,
    "decision": Decision,
}
MANDATORY = ("failed", "partial")
"""How a task ends that must leave a reflection. Reflexion Protocol, section 2."""


@dataclass(frozen=True, slots=True)
class Written:
    """Hold what is to be learnt: the reflection, and for a systemic cause a principle and steps to replay.

    `confidence` is in 0..1: low where fields say the same, and where `problem` says why the model's own words
    could not be used, or not all of them.
    """

    content: Content
    principle: str = ""
    procedure: Replay | None = None
    usage: TokenUsage = NOTHING_USED
    confidence: float = CONFIDENCE
    problem: str = ""


async def write_content(outcome: Outcome, model: ChatModel) -> Written:
    """Have a model reflect on how a task ended, in one call, and once more if its reply can't be used.

    What is shown to it is bounded and fenced as data. Secrets are withheld from what it says, and what no
    lesson may say becomes `[withheld]`. A failed or partial task always yields a reflection: if need be, one
    made of what is known. Otherwise raises `ModelError` when the model failed, and `OutputError` for a reply
    that can't be used.
    """
    form = _Form(FORMS[outcome.status], outcome)
    prompt = await asyncio.to_thread(writing_prompt, outcome, form.says, form.cleaner)
    try:
        answered = await ask(model, (Message("user", prompt),), form.schema, form.read, "reflection")
    except (ModelError, OutputError) as error:
        if outcome.status not in MANDATORY:
            raise
        answered = Answer(_Reading(), f"The model failed: {error}", error.usage or NOTHING_USED)
    return form.written(answered)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Hold what a reply says: fields that can be kept, and those that say something but can't."""

    kept: dict[str, str] = field(default_factory=dict[str, str])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    principle: str = ""
    replay: Replay | None = None


@dataclass(frozen=True, slots=True)
class _Form:
    """Say how a model is to reply, and read what it replied."""

    kind: type[Content]
    outcome: Outcome
    cleaner: Cleaner = field(default_factory=Cleaner)

    @property
    def says(self) -> dict[str, str]:
        """The keys of a reply, each with what it is to say."""
        own = {one.name: _asked(one.metadata["heading"], one.metadata["says"]) for one in fields(self.kind)}
        return own | mars.says_of(self.outcome)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a reply."""
        properties = {
            name: {**mars.SCHEMAS.get(name, {"type": "string"}), "description": says}
            for name, says in self.says.items()
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def read(self, reply: ChatReply) -> tuple[_Reading, str]:
        """Return what can be used of a reply, and what is wrong with it."""
        try:
            said: Any = json_of(reply.text) if reply.parsed is None else reply.parsed
        except OutputError as error:
            return _Reading(), str(error)
        if not isinstance(said, dict):
            return _Reading(), "It is no JSON object."
        return self._read(cast("dict[str, Any]", said))

    def _read(self, said: Mapping[str, Any]) -> tuple[_Reading, str]:
        kept: dict[str, str] = {}
        refused: dict[str, str] = {}
        problems: list[str] = []
        for name in headings_of(self.kind):
            value = said.get(name)
            text = self.cleaner.redacted(value) if isinstance(value, str) else ""
            why = self.cleaner.refusal(text) if text else "it must be a text that says something"
            if why:
                problems.append(f"{name}: {why}.")
            if text:
                (refused if why else kept)[name] = text
        principle, why = mars.principle_in(said, self.cleaner)
        replay, why_not = mars.replay_in(said, self.outcome, self.cleaner)
        problems += [f"principle: {why}."] if why else []
        problems += [f"steps_to_replay: {why_not}."] if why_not else []
        return _Reading(kept, refused, principle, replay), " ".join(problems)

    def written(self, answered: Answer[_Reading]) -> Written:
        """Make the reflection of the last reply; raises `OutputError` where none has to be."""
        reading, problem = answered.value, answered.problem
        texts = reading.kept | {name: self._withheld(text) for name, text in reading.refused.items()}
        missing = [name for name in headings_of(self.kind) if name not in texts]
        if missing and self.outcome.status not in MANDATORY:
            raise OutputError(f"The model's reflection can't be used: {problem}", usage=answered.usage)
        if missing:
            known = known_of(self.outcome, self.cleaner.redacted(problem))
            texts |= {name: self.cleaner.kept(known[name]) for name in missing}
        content = self.kind(**{name: texts[name] for name in headings_of(self.kind)})
        whole = Written(content, reading.principle, reading.replay, answered.usage)
        if missing or reading.refused:
            return replace(whole, confidence=KNOWN_CONFIDENCE, problem=problem)
        # Weak models fill all fields with one sentence.
        repeats = len({text.casefold() for text in texts.values()}) < len(texts)
        return replace(whole, confidence=KNOWN_CONFIDENCE) if repeats else whole

    def _withheld(self, text: str) -> str:
        """Return what is left of a text that can't be kept: its ends if it is only too long, else nothing."""
        return self.cleaner.kept(text) if len(text) > LONGEST else WITHHELD


def _asked(heading: str, says: str) -> str:
    return f"{heading} {says}" if heading.endswith("?") else f"{heading}: {says}"
