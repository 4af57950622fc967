"""Evaluation cases: tasks with criteria, made from stored runs, read from files and written to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import isnan
from mimetypes import guess_extension, guess_type
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from redraft._codec import to_json
from redraft._files import replace_file
from redraft._hints import keyword_hints
from redraft._locks import check_regular
from redraft._texts import as_text, shortened
from redraft._validation import (
    check_choice,
    check_iterable,
    check_kind,
    check_name,
    check_share,
    checked_path,
    nearest,
)
from redraft._verdicts import DEFAULT_THRESHOLD
from redraft.errors import ConfigError, OutputError
from redraft.evaluate.checks import with_class
from redraft.evaluate.criteria import criteria_of
from redraft.loop.criteria_file import CriteriaReader, criterion_entry, modules_in
from redraft.redact.redactor import EVERY_CATEGORY, redactor_of_environment
from redraft.text.diff import field_diff
from redraft.text.replies import json_of, unfenced
from redraft.text.rows import ROW_FILES, rows_of
from redraft.text.yaml import KeyPath, dump_yaml, load_yaml
from redraft.types import Criterion, Image, ImageMessage, Message, PlainTask, QualityCriterion, images_in

if TYPE_CHECKING:
    from pathlib import Path

    from redraft.loop.record import RunRecord

Match = Literal["", "exact", "includes", "json"]
MATCHES: tuple[str, ...] = tuple(filter(None, get_args(Match)))
PLAIN = ("threshold", "control", "inputs", "reference", "match", "system_prompt", "agent", "run")
"""Keys of a file whose values are fields of a case, unchanged."""
EXPECTED = "expected"
"""Name of the criterion that compares an answer with the reference."""
_NO_LETTERS = re.compile(r"[^a-z0-9]+")
LONGEST_ID = 60


@keyword_hints()
@dataclass(frozen=True, slots=True)
class EvalCase:
    """A task to evaluate agents on, with the criteria of a good answer.

    Raises `ConfigError` for an empty id or task, and for a threshold out of range.
    """

    id: str
    task: PlainTask
    criteria: Sequence[Criterion] = ()
    """Criteria that grade an answer. An agent without criteria of its own also reflects by them."""
    hidden: Sequence[Criterion] = ()
    """Criteria that grade instead of `criteria`, and that no agent sees."""
    threshold: float | None = None
    """The overall score (0..1) that passes."""
    control: bool = False
    """Whether the answer was right without reflection: if it fails now, reflection made it worse."""
    reference: Any = None
    """A correct answer. An answer may match any text of a list, except with `json`."""
    match: Match = ""
    """`exact` for equal text, `includes` for text that contains the reference, `json` for an equal value."""
    wrong: tuple[str, ...] = ()
    """Issues of the answer in the `run`."""
    system_prompt: str = ""
    """System prompt of the model that answers if there is no `agent`."""
    agent: str = ""
    """Import path of the run's agent; without it, a model answers."""
    run: str = ""
    """Id of the stored run that the case was made from."""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values for the placeholders of a `redraft.Task`, whose description then replaces the case's task."""

    def __post_init__(self) -> None:
        check_name("The id of a case", self.id)
        check_kind(f"The task of the case {self.id!r}", self.task, PlainTask, "a Task")
        if not self.task.description.strip():
            raise ConfigError(f"The case {self.id!r} has an empty task.")
        for name in ("criteria", "hidden"):
            criteria = getattr(self, name)
            if not all(isinstance(criterion, QualityCriterion) for criterion in criteria):
                object.__setattr__(self, name, criteria_of(criteria, self.task.task_type))
        if self.threshold is not None:
            check_share(f"The case {self.id!r}: threshold", self.threshold)
        if self.match:
            check_choice(f"The case {self.id!r}: match", self.match, MATCHES)
        is_missing = self.reference in (None, "")
        if self.match and (is_missing or (self.match != "json" and self.reference in ([], ()))):
            raise ConfigError(f"The case {self.id!r} has a match, but no reference to match.")
        if self.match == "includes" and not all(_accepted_texts(self.reference)):
            raise ConfigError(
                f"The case {self.id!r}: every answer includes an empty text; got the reference "
                f"{self.reference!r}."
            )

    @property
    def grading(self) -> tuple[QualityCriterion, ...]:
        """The criteria that grade an answer; empty if the agent's own criteria grade it."""
        chosen = cast("tuple[QualityCriterion, ...]", tuple(self.hidden or self.criteria))
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
        """The case as an entry of a file, without fields at their defaults.

        Images are named by their paths in the folder `images`.
        """
        task = self.task
        entries: dict[str, Any] = {"id": self.id, "task": task.description}
        for name in ("context", "expected_output", "task_type"):
            if value := getattr(task, name):
                entries[name] = value
        if task.messages:
            entries["messages"] = [_message_document(message, images) for message in task.messages]
        if task.images:
            entries["images"] = [place_of(image, images) for image in task.images]
        for name in ("criteria", "hidden"):
            if criteria := getattr(self, name):
                entries[name] = [
                    entry["name"] if len(entry) == 1 else entry for entry in map(criterion_entry, criteria)
                ]
        plain = EvalCase(self.id, task)
        for name in ("wrong", *PLAIN):
            value, default = getattr(self, name), getattr(plain, name)
            if (type(value), value) != (type(default), default):  # a reference may be 0, False or {}
                entries[name] = to_json(value)
        return entries


def _plain_text(value: Any) -> str:
    return " ".join((unfenced(value)[0] if isinstance(value, str) else as_text(value)).split())


def _accepted_texts(reference: Any) -> set[str]:
    """Texts of which an answer must match any: the reference, and each text in a list."""
    accepted = {_plain_text(reference)}
    if isinstance(reference, list | tuple):
        several = cast("Sequence[Any]", reference)
        if any(isinstance(each, str) for each in several):  # YAML reads an answer such as 4 as a number
            accepted |= set(map(_plain_text, several))
    return accepted


def _matcher(reference: Any, match: str) -> Callable[[Any], tuple[bool, str]]:
    """Build the check that an output matches the reference, or one of several texts."""
    accepted = _accepted_texts(reference)

    def matches(output: Any) -> tuple[bool, str]:
        if match == "json":
            try:
                met = not field_diff(json_of(output) if isinstance(output, str) else output, reference)
            except OutputError as error:
                return False, str(error)
        elif match == "exact":
            met = _plain_text(output) in accepted
        else:
            answer = _plain_text(output).casefold()
            met = any(text.casefold() in answer for text in accepted)
        return met, "" if met else "It is not what was expected."

    return matches


def place_of(image: Image, folder: str) -> str:
    """URL of an image, or its path in a folder."""
    return image.url or f"{folder}/{image.digest[:16]}{guess_extension(image.media_type) or ''}"


def _message_document(message: Message, images: str) -> dict[str, Any]:
    places = [place_of(image, images) for image in images_in((message,))]
    return {"role": message.role, "content": message.content, **({"images": places} if places else {})}


def case_id(text: str) -> str:
    """Make an id from the first words of a task."""
    words = _NO_LETTERS.sub("-", text.lower()).strip("-")
    return words if len(words) <= LONGEST_ID else words[:LONGEST_ID].rpartition("-")[0] or words[:LONGEST_ID]


# --- cases of stored runs -------------------------------------------------------------------------------


def case_of(record: RunRecord, *, control: bool = False) -> EvalCase:
    """Make a case from a run that has ended: its task, its criteria, and the issues of its answer.

    A person's correction becomes the reference, else the best answer if it passed. Secrets, personal data and
    host names are redacted; images are not. Raises `ConfigError` for a run whose criteria contain a function
    that can't be imported.
    """
    best = record.version(record.best)
    # A workflow's criterion is a prompt that only the workflow can fill in.
    stored = () if record.origin.surface == "workflow" else record.options.get("criteria", ())
    if (found := record.unimportable) is not None:
        raise ConfigError(
            f"The run {record.run_id!r}: the criterion {found[0]!r} is a {found[1]} that can't be "
            "imported. Define it at the top of a module that the script imports, not in the script "
            "itself, and run the task again."
        )
    criteria = [with_class(QualityCriterion(**entry)) for entry in stored]
    first = record.versions[0] if record.versions else None
    task = replace(record.task, tools=())
    if record.origin.surface == "reflected" and record.origin.arguments:
        # An evaluation calls the function with the description.
        task = replace(task, description=record.origin.arguments[0])
    threshold = record.options.get("quality_threshold")
    reference = best.output if best is not None and best.evaluation.satisfactory else None
    failed = first is not None and not first.evaluation.satisfactory
    wrong = tuple(issue.message for issue in first.evaluation.failing) if first is not None and failed else ()
    if (correction := record.correction) is not None:
        reference, wrong = correction.output, (*wrong, *correction.lines())
    case = EvalCase(
        record.run_id,
        task,
        tuple(criteria),
        threshold=None if threshold == DEFAULT_THRESHOLD else threshold,
        control=control,
        reference=reference,
        wrong=wrong,
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
    """Restore the images of a redacted task, except for their URLs: a digest only looks like a secret."""

    def restored(images: tuple[Image, ...], redacted_images: tuple[Image, ...]) -> tuple[Image, ...]:
        pairs = zip(images, redacted_images, strict=True)
        return tuple(replace(image, url=redacted_image.url) for image, redacted_image in pairs)

    messages = tuple(
        replace(redacted_message, images=restored(message.images, redacted_message.images))
        if isinstance(message, ImageMessage) and isinstance(redacted_message, ImageMessage)
        else redacted_message
        for message, redacted_message in zip(task.messages, redacted.messages, strict=True)
    )
    return replace(redacted, messages=messages, images=restored(task.images, redacted.images))


def was_right_at_first(record: RunRecord) -> bool:
    """Whether the first version of a run was judged and passed."""
    first = record.version(1)
    return first is not None and first.evaluation.satisfactory and first.evaluation.overall_score is not None


def was_corrected(record: RunRecord) -> bool:
    """Whether a person corrected a run's output."""
    return record.correction is not None


def has_failed(record: RunRecord) -> bool:
    """Whether a run returned an answer that was judged and did not pass."""
    best = record.version(record.best)
    return best is not None and not best.evaluation.satisfactory and best.evaluation.overall_score is not None


def has_regressed(record: RunRecord) -> bool:
    """Whether a run revised, and its last version is worse than its first."""
    if len(record.versions) < 2:  # noqa: PLR2004 (a first and a last)
        return False
    first, last = record.versions[0].evaluation, record.versions[-1].evaluation
    return first.outranks(last)


# --- files of cases -------------------------------------------------------------------------------------

SHARED = {"agent": str, "system_prompt": str, "task_type": str, "threshold": float, "criteria": list,
          "hidden": list}  # fmt: skip
"""Keys of a file that apply to all its cases; a case can override them."""
CASE = {
    **SHARED,
    "id": str,
    "task": str,
    "context": str,
    "messages": list,
    "images": list,
    "expected_output": str,
    "control": bool,
    "reference": object,
    "match": str,
    "inputs": dict,
    "wrong": list,
    "run": str,
}
MESSAGE = {"role": str, "content": str, "images": list}
ROLES = ("system", "user", "assistant")


def read_cases(path: str | Path) -> list[EvalCase]:
    """Read a file of cases: YAML, CSV (`.csv`) or JSON lines (`.jsonl`).

    A YAML file is a mapping with `cases`, a list. A case has a `task` and the other fields of an `EvalCase`.
    At the top level, `criteria`, `hidden`, `threshold`, `task_type`, `agent` and `system_prompt` are defaults
    for all cases. `messages` are the conversation before the task, each with a `role` and a `content`.
    Messages and cases may have `images`: URLs, or paths relative to the file. Criteria are written as in a
    criteria file. For the columns of rows, see `cases_of_rows`.

    Raises `ConfigError` with the file and the line or row of a mistake. An unknown key is a mistake, too.
    """
    path = checked_path("The file of cases", path)
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"The file of cases {str(path)!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The file of cases {str(path)!r} is not UTF-8 text.") from error
    if path.suffix.lower() in ROW_FILES:
        return cases_of_rows(rows_of(text, str(path)), source=str(path))
    with modules_in(path.parent):
        return _CasesReader(path, text).cases()


class _CasesReader(CriteriaReader):
    """Read the cases of one file."""

    def cases(self) -> list[EvalCase]:
        document: Any = load_yaml(self.text, self.name)
        if document is None:
            self.fail((), "the file is empty; expected a mapping with 'cases', a list")
        if not isinstance(document, dict) or not isinstance(cast("Any", document).get("cases"), list):
            self.fail((), "expected a mapping with 'cases', a list")
        entries = cast("dict[Any, Any]", document)
        items = cast("list[Any]", entries.pop("cases"))
        shared = self.checked(entries, SHARED, ())
        fields = [self._fields(item, ("cases", at)) for at, item in enumerate(items)]
        if not fields:
            self.fail(("cases",), "expected at least one case")
        ids = set[str]()
        for at, own in enumerate(fields):
            if own.get("id") in ids:
                self.fail(("cases", at), f"the id {own['id']!r} is used twice; ids must be unique")
            ids |= {own["id"]} if own.get("id") else set()
        for at, own in enumerate(fields):
            if not own.get("id"):
                own["id"] = _unused(case_id(own["task"]) or str(at + 1), ids)
                ids.add(own["id"])
        return [self._case(own, shared, ("cases", at)) for at, own in enumerate(fields)]

    def _fields(self, item: Any, way: KeyPath) -> dict[str, Any]:
        if not isinstance(item, dict):
            self.fail(way, f"a case must be a mapping with a 'task', got {item!r}")
        own = self.checked(cast("dict[Any, Any]", item), CASE, way)
        if "task" not in own:
            self.fail(way, "the case has no 'task'")
        return own

    def _case(self, own: dict[str, Any], shared: Mapping[str, Any], way: KeyPath) -> EvalCase:
        entries = {**shared, **own}
        task_type = entries.get("task_type", "")
        criteria = {
            name: self.criteria(entries[name], (*way, name) if name in own else (name,), task_type)
            for name in ("criteria", "hidden")
            if name in entries
        }
        task = PlainTask(
            entries["task"],
            entries.get("expected_output", ""),
            task_type,
            context=entries.get("context", ""),
            messages=tuple(
                self._message(message, (*way, "messages", at))
                for at, message in enumerate(entries.get("messages", ()))
            ),
            images=self._images(entries.get("images", ()), (*way, "images")),
        )
        try:
            return EvalCase(
                entries["id"],
                task,
                **criteria,
                wrong=tuple(map(str, entries.get("wrong", ()))),
                **{name: entries[name] for name in PLAIN if name in entries},
            )
        except ConfigError as error:
            self.fail(way, str(error))

    def _message(self, item: Any, way: KeyPath) -> Message:
        if not isinstance(item, dict):
            self.fail(way, f"a message must be a mapping with a 'role' and a 'content', got {item!r}")
        entries = self.checked(cast("dict[Any, Any]", item), MESSAGE, way)
        role = entries.get("role")
        if role not in ROLES:
            self.fail(way, f"the role of a message must be one of {', '.join(ROLES)}, got {role!r}")
        images = self._images(entries.get("images", ()), (*way, "images"))
        content: str = entries.get("content", "")
        if not content and not images:
            self.fail(way, "the message has no 'content'")
        return ImageMessage(role, content, images) if images else Message(role, content)

    def _images(self, places: Sequence[Any], way: KeyPath) -> tuple[Image, ...]:
        return tuple(self._image(place, (*way, at)) for at, place in enumerate(places))

    def _image(self, place: Any, way: KeyPath) -> Image:
        """Image by its URL, or read from a path relative to the file of cases."""
        if not isinstance(place, str):
            self.fail(way, f"an image must be a file or a URL, got {place!r}")
        if "://" in place:
            return Image(url=place)
        media_type = guess_type(place)[0] or ""
        if not media_type.startswith("image/"):
            self.fail(
                way, f"{place!r} is not an image; its name should end with .png, .jpg, .webp or the like"
            )
        try:
            data = (self.folder / place).read_bytes()
        except OSError as error:
            self.fail(way, f"the image {place!r} can't be read: {error.strerror}")
        if not data:
            self.fail(way, f"the image {place!r} is empty")
        return Image(media_type, sha256(data).hexdigest(), data=data)


def add_cases(path: Path, cases: Sequence[EvalCase]) -> list[EvalCase]:
    """Append cases to a file, or write a new file; returns the added cases.

    A case is skipped if the file has a case of the same run. Ids that the file uses already get a number. The
    text of the file stays as it is. Images are written to a folder next to the file. Raises `ConfigError` for
    a file that is not a file of cases, or whose last key is not `cases`.
    """
    if path.suffix.lower() in ROW_FILES:
        raise ConfigError(f"Cases are added to YAML files only, such as cases.yaml; got {str(path)!r}.")
    try:
        text = path.read_bytes().decode("utf-8") if check_regular(path) else ""
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise ConfigError(f"Cases can't be added to {str(path)!r}: {why}.") from error
    path = path.resolve()  # a link stays
    mark, end = "\ufeff" if text.startswith("\ufeff") else "", "\r\n" if "\r\n" in text else "\n"
    text = text.removeprefix(mark).replace("\r\n", "\n")
    existing = read_cases(path) if text.strip() else []
    runs, ids = {case.run for case in existing}, {case.id for case in existing}
    added: list[EvalCase] = []
    for case in cases:
        if case.run and case.run in runs:
            continue
        runs.add(case.run)
        added.append(replace(case, id=_unused(case.id, ids)))
        ids.add(added[-1].id)
    if not added:
        return []
    folder = path.with_suffix(".images")
    new = "\n".join(dump_yaml([case.document(folder.name)]) for case in added)
    keys = [line for line in text.splitlines() if re.match(r"[A-Za-z_]", line)]
    if not text.strip():
        text = "cases:\n"
    elif not keys or keys[-1].rstrip() != "cases:":
        raise ConfigError(
            f"{str(path)!r}: 'cases' must be the last key of the file, with its list in block style."
        )
    match = re.search(r"^cases:\s*(?:#.*)?\n(?:\s*(?:#.*)?\n)*( *)- ", text, re.MULTILINE)
    indent = match[1] if match else "  "
    lines = [f"{indent}{line}" if line else "" for line in new.rstrip("\n").split("\n")]
    whole = "\n".join([text.rstrip("\n"), *lines, ""])
    before, after = (load_yaml(version, str(path)) for version in (text, whole))
    if len(after["cases"]) != len(before["cases"] or ()) + len(added):
        raise ConfigError(f"{str(path)!r}: cases can't be appended to its list; add them by hand.")
    images = {image.digest: image for case in added for image in case.task.all_images if image.data}
    files = {path.parent / place_of(image, folder.name): image.data for image in images.values()}
    for place, data in {**files, path: (mark + whole.replace("\n", end)).encode("utf-8")}.items():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place, data)
        except OSError as error:
            raise ConfigError(f"{str(place)!r} can't be written: {error.strerror}.") from error
    return added


def _unused(case_id: str, used: set[str]) -> str:
    number, candidate = 1, case_id
    while candidate in used:
        number += 1
        candidate = f"{case_id}-{number}"
    return candidate


# --- rows -----------------------------------------------------------------------------------------------

COLUMNS = {
    "task": ("task", "input", "prompt", "question", "query"),
    "reference": ("reference", "expected", "target", "answer", "output"),
    "id": ("id", "case", "name"),
    "context": ("context",),
    "task_type": ("task_type",),
}
"""Columns that may hold each part of a case."""
METADATA = "metadata"
"""A column that describes a row; neither the agent nor the judge sees it."""


@keyword_hints()
def cases_of_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    source: str = "rows",
    match: Match = "includes",
    columns: Mapping[str, str] | None = None,
) -> list[EvalCase]:
    """Make a case from each row, such as the lines of a CSV file or the samples of Inspect.

    The task is in the column `task`, `input`, `prompt`, `question` or `query`; a list of messages is a
    conversation. The expected answer is in `reference`, `expected`, `target`, `answer` or `output`; `match`
    is how an answer must match it. The id is in `id`, `case` or `name`, by default the number of the row.
    `context` and `task_type` are fields of the task. `metadata` is ignored.

    Any other column that is not empty is refused, and so are two columns for the same part. `columns` maps
    parts (`task`, `reference`, `id`, `context`, `task_type`) to columns; other columns are then ignored.
    `source` names the rows in errors. Raises `ConfigError` with the number of an invalid row.
    """
    check_iterable("rows", rows, "a list of mappings")
    check_kind("columns", columns, (Mapping, NoneType), "a mapping from parts to columns")
    chosen = dict(columns or {})
    for part in chosen:
        if part not in COLUMNS:
            raise ConfigError(f"columns: unknown part {part!r}; {nearest(part, COLUMNS)}")
    cases: list[EvalCase] = []
    for number, row in enumerate(rows, 1):
        place = f"{source}, row {number}"
        if not isinstance(row, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            raise ConfigError(f"{place}: expected an object, got {row!r}.")
        if not _is_empty(row.get("choices")):
            raise ConfigError(f"{place}: multiple choice is not supported; write the choices into the task.")
        part = {name: _part(row, name, chosen, place) for name in COLUMNS}
        if columns is None:
            _check_columns(row, place)
        question, messages = _conversation(part["task"], place)
        reference = part["reference"]
        task_type, context = str(part["task_type"] or ""), as_text(part["context"] or "")
        try:
            case = EvalCase(
                str(number if part["id"] is None else part["id"]),
                PlainTask(question, "", task_type, (), context, messages=messages),
                reference=reference,
                match="" if reference is None else match,
            )
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from error
        cases.append(case)
    if not cases:
        raise ConfigError(f"{source}: there are no rows.")
    counts = Counter(case.id for case in cases)
    if twice := next((name for name, count in counts.items() if count > 1), None):
        raise ConfigError(f"{source}: the id {twice!r} is used twice.")
    return cases


def _check_columns(row: Mapping[str, Any], place: str) -> None:
    """Raise `ConfigError` for a column that has a value and no meaning."""
    known_columns = [*(column for of_part in COLUMNS.values() for column in of_part), METADATA]
    for column, value in row.items():
        if column not in known_columns and not _is_empty(value):
            raise ConfigError(
                f"{place}: unknown column {column!r}; {nearest(str(column), known_columns)} Remove it, write "
                "the cases as YAML, or choose columns in Python: cases_of_rows(rows, columns=...)."
            )


def _part(row: Mapping[str, Any], name: str, columns: Mapping[str, str], place: str) -> Any:
    """Part of a case, read from its column; None if that is empty, or if there is no such column."""
    if column := columns.get(name):
        if column not in row:
            names = ", ".join(map(str, row))
            raise ConfigError(f"{place}: there is no column {column!r}; expected one of {names}.")
        candidates = [column]
    else:
        candidates = [column for column in COLUMNS[name] if column not in columns.values()]
    filled = [column for column in candidates if not _is_empty(row.get(column))]
    if len(filled) > 1:
        raise ConfigError(
            f"{place}: both {filled[0]!r} and {filled[1]!r} may be the {name}; remove one, or choose in "
            f"Python: cases_of_rows(rows, columns={{{name!r}: {filled[0]!r}}})."
        )
    if not filled and name == "task":
        raise ConfigError(
            f"{place}: there is no task; expected it in the column {' or '.join(map(repr, candidates))}."
        )
    return row[filled[0]] if filled else None


def _is_empty(value: Any) -> bool:
    """Whether a cell holds nothing; an empty cell of a data frame is NaN."""
    return value in (None, "", [], {}) or (isinstance(value, float) and isnan(value))


def _conversation(task: Any, place: str) -> tuple[str, tuple[Message, ...]]:
    """Split a task into its question and the messages before it."""
    if not isinstance(task, list):
        return as_text(task), ()
    messages: list[Message] = []
    for message in cast("list[Any]", task):
        if not isinstance(message, Mapping):
            raise ConfigError(f"{place}: a message must have a role and a content, got {message!r}.")
        entries = {str(key): value for key, value in cast("Mapping[Any, Any]", message).items()}
        role, content = entries.pop("role", None), entries.pop("content", None)
        more = [key for key, value in entries.items() if not _is_empty(value)]
        if role not in ROLES or not isinstance(content, str) or more:
            raise ConfigError(
                f"{place}: only text messages with the roles {', '.join(ROLES)} are supported, "
                f"got {message!r}."
            )
        messages.append(Message(role, content))
    if not messages or messages[-1].role != "user":
        raise ConfigError(f"{place}: a conversation must end with a message of the user.")
    return messages[-1].content, tuple(messages[:-1])
