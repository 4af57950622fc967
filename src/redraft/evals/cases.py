"""Cases: tasks with what a good answer is, such as those of runs that are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from mimetypes import guess_extension
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from redraft._codec import to_json
from redraft._hints import keyword_hints
from redraft._texts import as_text, shortened
from redraft._validation import check_choice, check_share
from redraft._verdicts import DEFAULT_THRESHOLD
from redraft.errors import ConfigError, OutputError
from redraft.redact.redactor import EVERY_CATEGORY, redactor_of_environment
from redraft.text.replies import json_of, unfenced
from redraft.types import Image, ImageMessage, Message, PlainTask, QualityCriterion, images_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.loop.record import RunRecord

Match = Literal["", "exact", "includes", "json"]
MATCHES: tuple[str, ...] = tuple(filter(None, get_args(Match)))
PLAIN = ("threshold", "control", "inputs", "reference", "match", "system_prompt", "agent", "run")
"""The keys of a file whose values are those of a case as they are."""
EXPECTED = "expected"
"""The name of the criterion that an expected output makes."""
_NO_LETTERS = re.compile(r"[^a-z0-9]+")
LONGEST_ID = 60


@keyword_hints()
@dataclass(frozen=True, slots=True)
class EvalCase:
    """One task to evaluate agents on, and what a good answer to it is.

    `criteria` grade an answer, and an agent that has no criteria of its own reflects by them. `hidden`
    criteria grade in their place where there are any, and no agent sees them. `threshold` (0..1) is the
    overall score that passes. `reference` is an answer that is known to be right; with a `match` (`exact`,
    `includes` or `json`) an answer must also be the same text, hold it, or be the same JSON value. Of a list
    of texts, any one will do, except for `json`. A `control` case was
    answered right without reflection, so a failure on it shows that reflecting spoils good answers.
    `wrong` says what was wrong with the answer in the `run` that the case was made of.

    `inputs` fill the placeholders of a `redraft.Task` that is evaluated; what it says is then the task.
    `agent` is the name under which that run's agent can be imported; without one, a model answers with the
    `system_prompt`. Raises `ConfigError` for an empty id or task, and for a threshold out of range.
    """

    id: str
    task: PlainTask
    criteria: tuple[QualityCriterion, ...] = ()
    hidden: tuple[QualityCriterion, ...] = ()
    threshold: float | None = None
    control: bool = False
    reference: Any = None
    match: Match = ""
    wrong: tuple[str, ...] = ()
    system_prompt: str = ""
    agent: str = ""
    run: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not self.id.strip():
            raise ConfigError("A case needs an id.")
        if not self.task.description.strip():
            raise ConfigError(f"The case {self.id!r} has an empty task.")
        if self.threshold is not None:
            check_share(f"The case {self.id!r}: threshold", self.threshold)
        if self.match:
            check_choice(f"The case {self.id!r}: match", self.match, MATCHES)
        if self.match and self.reference in (None, ""):
            raise ConfigError(f"The case {self.id!r} has a match, but no reference to match.")

    @property
    def asked(self) -> str:
        """What identifies the task: its description, and the conversation and images, if there are any."""
        task = self.task
        earlier = [f"{one.role}: {one.content}" for one in task.messages]
        images = [one.digest or one.url for one in task.all_images]
        return "\0".join([task.description, *earlier, *images])

    @property
    def grading(self) -> tuple[QualityCriterion, ...]:
        """The criteria that grade an answer; empty if those of the agent do."""
        chosen = self.hidden or self.criteria
        if not self.match:
            return chosen
        expected = QualityCriterion(
            EXPECTED,
            threshold=1.0,
            evaluator="function",
            evaluator_config={"function": _matcher(self.reference, self.match), "raw": True},
        )
        return (*chosen, expected)

    def document(self, images: str = "images") -> dict[str, Any]:
        """Return the case as it stands in a file: without what is left at its default.

        Images are named by their place in the folder `images`.
        """
        task = self.task
        entries: dict[str, Any] = {"id": self.id, "task": task.description}
        for name in ("context", "expected_output", "task_type"):
            if value := getattr(task, name):
                entries[name] = value
        if task.messages:
            entries["messages"] = [_message_document(one, images) for one in task.messages]
        if task.images:
            entries["images"] = [place_of(one, images) for one in task.images]
        for name in ("criteria", "hidden"):
            if found := getattr(self, name):
                entries[name] = [_criterion_document(one) for one in found]
        for name in ("wrong", *PLAIN):
            value = getattr(self, name)
            if value not in (None, "", (), {}, False):
                entries[name] = to_json(value)
        return entries


def _matcher(reference: Any, match: str) -> Callable[[Any], tuple[bool, str]]:
    """Return a function that says whether an output matches the reference, or one of several texts."""

    def plain(value: Any) -> str:
        return " ".join((unfenced(value)[0] if isinstance(value, str) else as_text(value)).split())

    right = {plain(reference)}
    if isinstance(reference, list | tuple):
        several = cast("Sequence[Any]", reference)
        right |= {plain(one) for one in several if all(isinstance(each, str) for each in several)}

    def matches(output: Any) -> tuple[bool, str]:
        if match == "json":
            try:
                met = (json_of(output) if isinstance(output, str) else output) == reference
            except OutputError as error:
                return False, str(error)
        elif match == "exact":
            met = plain(output) in right
        else:
            answer = plain(output).casefold()
            met = any(one.casefold() in answer for one in right)
        return met, "" if met else "It is not what was expected."

    return matches


def place_of(image: Image, folder: str) -> str:
    """Return how a file names an image: by its URL, or by its place in a folder."""
    return image.url or f"{folder}/{image.digest[:16]}{guess_extension(image.media_type) or ''}"


def _message_document(message: Message, images: str) -> dict[str, Any]:
    shown = [place_of(one, images) for one in images_in((message,))]
    return {"role": message.role, "content": message.content, **({"images": shown} if shown else {})}


def _criterion_document(criterion: QualityCriterion) -> Any:
    """Return a criterion as it stands in a file."""
    plain, entries = QualityCriterion(criterion.name), {"name": criterion.name}
    for name in (one.name for one in fields(criterion)):
        value = getattr(criterion, name)
        if value != getattr(plain, name):
            entries["config" if name == "evaluator_config" else name] = to_json(value)
    return criterion.name if len(entries) == 1 else entries


def case_id(text: str) -> str:
    """Return an id for a task: its first words."""
    words = _NO_LETTERS.sub("-", text.lower()).strip("-")
    return words if len(words) <= LONGEST_ID else words[:LONGEST_ID].rpartition("-")[0] or words[:LONGEST_ID]


# --- cases of stored runs -------------------------------------------------------------------------------


def case_of(record: RunRecord, *, control: bool = False) -> EvalCase:
    """Make a case from a run that has ended: its task, its criteria, and what was wrong with its answer.

    The best answer becomes the reference if it passed. Secrets, personal data and names of machines are
    withheld, but images stay as they are. Raises `ConfigError` for a run whose criteria hold a function that
    can't be imported.
    """
    best = record.version(record.best)
    criteria: list[QualityCriterion] = []
    # A workflow's criterion is a prompt that only the workflow fills in.
    own = () if record.origin.surface == "workflow" else record.options.get("criteria", ())
    for one in own:
        function = one.get("evaluator_config", {}).get("function")
        if function is not None and (":" not in function or "<" in function):
            raise ConfigError(
                f"The run {record.run_id!r}: the criterion {one['name']!r} is a function that can't be "
                "imported; define it at the top of a module."
            )
        criteria.append(QualityCriterion(**one))
    first = record.versions[0] if record.versions else None
    task = replace(record.task, tools=())
    if record.origin.surface == "reflected" and record.origin.arguments:
        task = replace(task, description=record.origin.arguments[0])  # what the function is called with again
    threshold = record.options.get("quality_threshold")
    case = EvalCase(
        record.run_id,
        task,
        tuple(criteria),
        threshold=None if threshold == DEFAULT_THRESHOLD else threshold,
        control=control,
        reference=best.output if best is not None and best.evaluation.satisfactory else None,
        wrong=()
        if first is None or first.evaluation.satisfactory
        else tuple(issue.message for issue in first.evaluation.issues),
        system_prompt=record.origin.system_prompt,
    )
    case = redactor_of_environment(also=EVERY_CATEGORY).redact_object(case)
    return replace(
        case,
        task=_with_images_of(record.task, case.task),
        id=case_id(shortened(case.task.description, LONGEST_ID)) or record.run_id,
        agent=record.origin.importable,
        run=record.run_id,
    )


def _with_images_of(task: PlainTask, redacted: PlainTask) -> PlainTask:
    """Return a redacted task with the images that it had: a digest looks like a secret, and is none."""

    def as_they_were(images: tuple[Image, ...], those: tuple[Image, ...]) -> tuple[Image, ...]:
        return tuple(replace(image, url=shown.url) for image, shown in zip(images, those, strict=True))

    messages = tuple(
        replace(shown, images=as_they_were(one.images, shown.images))
        if isinstance(one, ImageMessage) and isinstance(shown, ImageMessage)
        else shown
        for one, shown in zip(task.messages, redacted.messages, strict=True)
    )
    return replace(redacted, messages=messages, images=as_they_were(task.images, redacted.images))


def was_right_at_first(record: RunRecord) -> bool:
    """Return whether the first version of a run passed, and was judged by something."""
    first = record.version(1)
    return first is not None and first.evaluation.satisfactory and first.evaluation.overall_score is not None


def has_failed(record: RunRecord) -> bool:
    """Return whether a run returned an answer that was judged and did not pass."""
    best = record.version(record.best)
    return best is not None and not best.evaluation.satisfactory and best.evaluation.overall_score is not None


def has_regressed(record: RunRecord) -> bool:
    """Return whether the last version of a run that revised is worse than its first."""
    if len(record.versions) < 2:  # noqa: PLR2004 (a first and a last)
        return False
    first, last = record.versions[0].evaluation, record.versions[-1].evaluation
    return first.outranks(last)
