"""Cases: tasks with what a good answer is; made from stored runs, read from files and rows, and written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from mimetypes import guess_extension, guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from redraft._codec import to_json
from redraft._hints import keyword_hints
from redraft._locks import check_regular
from redraft._texts import as_text, shortened
from redraft._validation import check_choice, check_share, nearest
from redraft._verdicts import DEFAULT_THRESHOLD
from redraft.errors import ConfigError, OutputError
from redraft.evaluate.checks import with_class
from redraft.evaluate.criteria import criteria_of
from redraft.loop.criteria_file import CriteriaReader, criterion_entry, modules_in
from redraft.redact.redactor import EVERY_CATEGORY, redactor_of_environment
from redraft.text.replies import json_of, unfenced
from redraft.text.rows import ROW_FILES, rows_of
from redraft.text.yaml import KeyPath, dump_yaml, load_yaml
from redraft.types import Criterion, Image, ImageMessage, Message, PlainTask, QualityCriterion, images_in

if TYPE_CHECKING:
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

    Raises `ConfigError` for an empty id or task, and for a threshold out of range.
    """

    id: str
    task: PlainTask
    criteria: Sequence[Criterion] = ()
    """Grade an answer; an agent that has no criteria of its own reflects by them."""
    hidden: Sequence[Criterion] = ()
    """Grade in place of the `criteria` where there are any, and no agent sees them."""
    threshold: float | None = None
    """The overall score (0..1) that passes."""
    control: bool = False
    """Whether it was right without reflection, so that a failure shows that reflecting spoils answers."""
    reference: Any = None
    """An answer that is known to be right. Of a list of texts, any one will do, except for `json`."""
    match: Match = ""
    """How an answer must match the reference: `exact`ly, `includes` it, or as the same `json` value."""
    wrong: tuple[str, ...] = ()
    """What was wrong with the answer in the `run`."""
    system_prompt: str = ""
    """That of the model that answers without an `agent`."""
    agent: str = ""
    """The name under which the run's agent can be imported; without it, a model answers."""
    run: str = ""
    """The stored run that the case was made of."""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fill the placeholders of a `redraft.Task` that is evaluated; what it says is then the task."""

    def __post_init__(self) -> None:
        if not self.id.strip():
            raise ConfigError("A case needs an id.")
        if not self.task.description.strip():
            raise ConfigError(f"The case {self.id!r} has an empty task.")
        for name in ("criteria", "hidden"):
            given = getattr(self, name)
            if not all(isinstance(one, QualityCriterion) for one in given):
                object.__setattr__(self, name, criteria_of(given, self.task.task_type))
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
    def asked(self) -> str:
        """What identifies the task: its description, and the conversation and images, if there are any."""
        task = self.task
        earlier = [f"{one.role}: {one.content}" for one in task.messages]
        images = [one.digest or one.url for one in task.all_images]
        return "\0".join([task.description, *earlier, *images])

    @property
    def grading(self) -> tuple[QualityCriterion, ...]:
        """The criteria that grade an answer; empty if those of the agent do."""
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
                entries[name] = [one["name"] if len(one) == 1 else one for one in map(criterion_entry, found)]
        for name in ("wrong", *PLAIN):
            value = getattr(self, name)
            if value not in (None, "", (), {}, False):
                entries[name] = to_json(value)
        return entries


def _plain_text(value: Any) -> str:
    return " ".join((unfenced(value)[0] if isinstance(value, str) else as_text(value)).split())


def _accepted_texts(reference: Any) -> set[str]:
    """Return the texts of which an answer has to match any: the reference, and those in a list of texts."""
    accepted = {_plain_text(reference)}
    if isinstance(reference, list | tuple):
        several = cast("Sequence[Any]", reference)
        accepted |= {_plain_text(text) for text in several if all(isinstance(each, str) for each in several)}
    return accepted


def _matcher(reference: Any, match: str) -> Callable[[Any], tuple[bool, str]]:
    """Return a function that says whether an output matches the reference, or one of several texts."""
    accepted = _accepted_texts(reference)

    def matches(output: Any) -> tuple[bool, str]:
        if match == "json":
            try:
                met = (json_of(output) if isinstance(output, str) else output) == reference
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
    """Return how a file names an image: by its URL, or by its place in a folder."""
    return image.url or f"{folder}/{image.digest[:16]}{guess_extension(image.media_type) or ''}"


def _message_document(message: Message, images: str) -> dict[str, Any]:
    shown = [place_of(one, images) for one in images_in((message,))]
    return {"role": message.role, "content": message.content, **({"images": shown} if shown else {})}


def case_id(text: str) -> str:
    """Return an id for a task: its first words."""
    words = _NO_LETTERS.sub("-", text.lower()).strip("-")
    return words if len(words) <= LONGEST_ID else words[:LONGEST_ID].rpartition("-")[0] or words[:LONGEST_ID]


# --- cases of stored runs -------------------------------------------------------------------------------


def case_of(record: RunRecord, *, control: bool = False) -> EvalCase:
    """Make a case from a run that has ended: its task, its criteria, and what was wrong with its answer.

    The output that a person corrected it to becomes the reference, else the best answer if it passed.
    Secrets, personal data and names of machines are withheld, but images stay as they are. Raises
    `ConfigError` for a run whose criteria hold a function that can't be imported.
    """
    best = record.version(record.best)
    criteria: list[QualityCriterion] = []
    # A workflow's criterion is a prompt that only the workflow fills in.
    own = () if record.origin.surface == "workflow" else record.options.get("criteria", ())
    for one in own:
        config = one.get("evaluator_config", {})
        for key, noun in (("function", "function"), ("schema", "class")):
            name = config.get(key)
            if isinstance(name, str) and (":" not in name or "<" in name):
                raise ConfigError(
                    f"The run {record.run_id!r}: the criterion {one['name']!r} is a {noun} that can't be "
                    "imported; define it at the top of a module."
                )
        criteria.append(with_class(QualityCriterion(**one)))
    first = record.versions[0] if record.versions else None
    task = replace(record.task, tools=())
    if record.origin.surface == "reflected" and record.origin.arguments:
        task = replace(task, description=record.origin.arguments[0])  # what the function is called with again
    threshold = record.options.get("quality_threshold")
    reference = best.output if best is not None and best.evaluation.satisfactory else None
    failed = first is not None and not first.evaluation.satisfactory
    wrong = tuple(issue.message for issue in first.evaluation.issues) if first is not None and failed else ()
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


def was_corrected(record: RunRecord) -> bool:
    """Return whether a person corrected a run's output."""
    return record.correction is not None


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


# --- files of cases -------------------------------------------------------------------------------------

SHARED = {"agent": str, "system_prompt": str, "task_type": str, "threshold": float, "criteria": list,
          "hidden": list}  # fmt: skip
"""The keys of a file that hold for all its cases; a case's own come first."""
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
PROMPTFOO = frozenset({"prompts", "providers", "tests", "defaultTest", "vars", "assert", "__expected"})
"""The keys by which a file of promptfoo is recognised."""
NOT_PROMPTFOO = (
    "files of promptfoo are not read: write each test as a case, with its assertions as criteria; see "
    "docs/evaluate.md"
)


def read_cases(path: str | Path) -> list[EvalCase]:
    """Read a file of cases: YAML, CSV (`.csv`) or JSON lines (`.jsonl`).

    A YAML file is a mapping with `cases`, a list. A case has a `task` and the other fields of an `EvalCase`;
    the file may give `criteria`, `hidden`, `threshold`, `task_type`, `agent` and `system_prompt` for all
    cases that have none of their own. `messages` are the conversation before the task, each with a `role`
    and a `content`; they and the case may have `images`: URLs, or files, whose places are relative to this
    file. Criteria are those of a criteria file. `cases_of_rows` says what the columns of rows mean.

    Raises `ConfigError` with the file and the line or row of a mistake. A key that has no meaning here is a
    mistake, too: nothing in a file is ignored.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"The file of cases {str(path)!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The file of cases {str(path)!r} is not UTF-8 text.") from error
    if reader := READERS.get(path.suffix.lower()):
        return reader(text, str(path))
    with modules_in(path.parent):
        return _CasesReader(path, text).cases()


class _CasesReader(CriteriaReader):
    """Read the cases of one file."""

    def cases(self) -> list[EvalCase]:
        document: Any = load_yaml(self.text, self.name)
        if document is None:
            self.fail((), "the file is empty; expected a mapping with 'cases', a list")
        if not isinstance(document, dict) or not isinstance(cast("Any", document).get("cases"), list):
            expected = "expected a mapping with 'cases', a list"
            self.fail((), NOT_PROMPTFOO if _is_promptfoo(document) else expected)
        entries = cast("dict[Any, Any]", document)
        items = cast("list[Any]", entries.pop("cases"))
        shared = self.checked(entries, SHARED, ())
        found = [self._case(item, shared, ("cases", at)) for at, item in enumerate(items)]
        if not found:
            self.fail(("cases",), "expected at least one case")
        seen = set[str]()
        for at, case in enumerate(found):
            if case.id in seen:
                self.fail(("cases", at), f"the id {case.id!r} is used twice; ids must be unique")
            seen.add(case.id)
        return found

    def _case(self, item: Any, shared: Mapping[str, Any], way: KeyPath) -> EvalCase:
        if not isinstance(item, dict):
            self.fail(way, f"a case must be a mapping with a 'task', got {item!r}")
        own = self.checked(cast("dict[Any, Any]", item), CASE, way)
        if "task" not in own:
            self.fail(way, "the case has no 'task'")
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
                self._message(one, (*way, "messages", at))
                for at, one in enumerate(entries.get("messages", ()))
            ),
            images=self._images(entries.get("images", ()), (*way, "images")),
        )
        try:
            return EvalCase(
                entries.get("id") or case_id(task.description),
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
        return ImageMessage(role, content, images) if images else Message(role, content)

    def _images(self, places: Sequence[Any], way: KeyPath) -> tuple[Image, ...]:
        return tuple(self._image(place, (*way, at)) for at, place in enumerate(places))

    def _image(self, place: Any, way: KeyPath) -> Image:
        """Return an image by its URL, or read it from a file, whose place is relative to this one."""
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


def _is_promptfoo(document: Any) -> bool:
    """Return whether a document without cases is a configuration or a list of tests of promptfoo."""
    parts: list[Any] = cast("list[Any]", document) if isinstance(document, list) else [document]
    return any(isinstance(part, dict) and not PROMPTFOO.isdisjoint(cast("Any", part)) for part in parts)


def add_cases(path: Path, cases: Sequence[EvalCase]) -> list[EvalCase]:
    """Append cases to a file, or write a new one; return those that it did not have.

    Cases of a run that has one in the file are left out, and ids that it uses get a number. What people wrote
    stays as it is. Raises `ConfigError` for a file that is not one of cases, or whose last key is not
    `cases`. Images are written into a folder next to the file.
    """
    if path.suffix.lower() in READERS:
        raise ConfigError(f"Cases are added to YAML files only, such as cases.yaml; got {str(path)!r}.")
    try:
        text = path.read_text("utf-8") if check_regular(path) else ""
    except OSError as error:
        raise ConfigError(f"Cases can't be added to {str(path)!r}: {error.strerror}.") from error
    known = read_cases(path) if text.strip() else []
    runs, ids = {case.run for case in known}, {case.id for case in known}
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
    if not text.strip():
        text = "cases:\n"
    elif not _ends_with_cases(text):
        raise ConfigError(
            f"{str(path)!r}: 'cases' must be the last key of the file, with its list in block style."
        )
    indent = _indent_of(text)
    lines = [f"{indent}{line}" if line else "" for line in new.rstrip("\n").split("\n")]
    whole = "\n".join([text.rstrip("\n"), *lines, ""])
    before, after = (load_yaml(one, str(path)) for one in (text, whole))
    if len(after["cases"]) != len(before["cases"] or ()) + len(added):
        raise ConfigError(f"{str(path)!r}: cases can't be appended to its list; add them by hand.")
    path.parent.mkdir(parents=True, exist_ok=True)
    for image in {one.digest: one for case in added for one in case.task.all_images if one.data}.values():
        folder.mkdir(exist_ok=True)
        place = path.parent / place_of(image, folder.name)
        try:
            check_regular(place)
        except OSError as error:
            raise ConfigError(f"The image {str(place)!r} can't be written: {error.strerror}.") from error
        place.write_bytes(image.data)
    path.write_text(whole, "utf-8")
    return added


def _unused(wanted: str, used: set[str]) -> str:
    number, found = 1, wanted
    while found in used:
        number += 1
        found = f"{wanted}-{number}"
    return found


def _ends_with_cases(text: str) -> bool:
    keys = [line for line in text.splitlines() if re.match(r"[A-Za-z_]", line)]
    return bool(keys) and keys[-1].rstrip() == "cases:"


def _indent_of(text: str) -> str:
    found = re.search(r"^cases:\s*(?:#.*)?\n(?:\s*(?:#.*)?\n)*( *)- ", text, re.MULTILINE)
    return found[1] if found else "  "


# --- rows -----------------------------------------------------------------------------------------------

COLUMNS = {
    "task": ("task", "input", "prompt", "question", "query"),
    "reference": ("reference", "expected", "target", "answer", "output"),
    "id": ("id", "case", "name"),
    "context": ("context",),
    "task_type": ("task_type",),
}
"""The columns in which a row may have each part of a case."""
METADATA = "metadata"
"""A column that describes a row, and is neither asked nor graded."""
_NOTHING: tuple[Any, ...] = (None, "", [], {})


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
    conversation. The expected answer is in `reference`, `expected`, `target`, `answer` or `output`, and an
    answer has to match it as `match` says. `id`, `case` or `name` is the id, by default the number of the
    row; `context` and `task_type` are those of the task. `metadata` may describe a row.

    Any other column that is not empty is refused, and so are two columns for one part. `columns` maps parts
    (`task`, `reference`, `id`, `context`, `task_type`) to the columns that they are in; all columns that are
    neither named there nor above are then left out. `source` names the rows in errors. Raises `ConfigError`
    with the number of a row that is no case.
    """
    chosen = dict(columns or {})
    for part in chosen:
        if part not in COLUMNS:
            raise ConfigError(f"columns: unknown part {part!r}; {nearest(part, COLUMNS)}")
    cases: list[EvalCase] = []
    for number, row in enumerate(rows, 1):
        place = f"{source}, row {number}"
        if not isinstance(row, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            raise ConfigError(f"{place}: expected an object, got {row!r}.")
        if not PROMPTFOO.isdisjoint(row):
            raise ConfigError(f"{place}: {NOT_PROMPTFOO}.")
        if row.get("choices"):
            raise ConfigError(f"{place}: multiple choice is not supported; write the choices into the task.")
        part = {name: _part(row, name, chosen, place) for name in COLUMNS}
        if columns is None:
            _check_columns(row, place)
        question, messages = _conversation(part["task"], place)
        reference = None if part["reference"] in _NOTHING else part["reference"]
        task_type, context = str(part["task_type"] or ""), as_text(part["context"] or "")
        try:
            case = EvalCase(
                str(number if part["id"] in _NOTHING else part["id"]),
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
    known = [*(column for of_part in COLUMNS.values() for column in of_part), METADATA]
    for column, value in row.items():
        if column not in known and value not in _NOTHING:
            raise ConfigError(
                f"{place}: unknown column {column!r}; {nearest(str(column), known)} Remove it, write the "
                "cases as YAML, or choose columns in Python: cases_of_rows(rows, columns=...)."
            )


def _part(row: Mapping[str, Any], name: str, columns: Mapping[str, str], place: str) -> Any:
    """Return a part of a case from the column that has it; None if there is none."""
    if column := columns.get(name):
        if column not in row:
            raise ConfigError(f"{place}: there is no column {column!r}; expected one of {', '.join(row)}.")
        return row[column]
    taken = columns.values()
    filled = [one for one in COLUMNS[name] if one not in taken and row.get(one) not in _NOTHING]
    if len(filled) > 1:
        raise ConfigError(
            f"{place}: both {filled[0]!r} and {filled[1]!r} may be the {name}; remove one, or choose in "
            f"Python: cases_of_rows(rows, columns={{{name!r}: {filled[0]!r}}})."
        )
    if not filled and name == "task":
        raise ConfigError(
            f"{place}: there is no task; expected one of the columns {', '.join(COLUMNS['task'])}."
        )
    return row[filled[0]] if filled else None


def _conversation(task: Any, place: str) -> tuple[str, tuple[Message, ...]]:
    """Return the question, and the messages before it."""
    if not isinstance(task, list):
        return as_text(task), ()
    messages: list[Message] = []
    for message in cast("list[Any]", task):
        if not isinstance(message, Mapping):
            raise ConfigError(f"{place}: a message must have a role and a content, got {message!r}.")
        entries = {str(key): value for key, value in cast("Mapping[Any, Any]", message).items()}
        role, content = entries.pop("role", None), entries.pop("content", None)
        more = [key for key, value in entries.items() if value not in _NOTHING]
        if role not in ROLES or not isinstance(content, str) or more:
            raise ConfigError(
                f"{place}: only text messages with the roles {', '.join(ROLES)} are supported, "
                f"got {message!r}."
            )
        messages.append(Message(role, content))
    if not messages or messages[-1].role != "user":
        raise ConfigError(f"{place}: a conversation must end with a message of the user.")
    return messages[-1].content, tuple(messages[:-1])


def _cases_of_text(text: str, source: str) -> list[EvalCase]:
    return cases_of_rows(rows_of(text, source), source=source)


READERS: Mapping[str, Callable[[str, str], list[EvalCase]]] = dict.fromkeys(ROW_FILES, _cases_of_text)
"""The readers of rows, by the ending of a file's name."""
