"""Data sets: cases out of rows of CSV, JSON lines and Hugging Face, and out of promptfoo's tests."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from redraft._hints import keyword_hints
from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.evals.cases import EvalCase, Match, case_id
from redraft.text.templates import Template, TemplateError
from redraft.types import Message, PlainTask, QualityCriterion

if TYPE_CHECKING:
    from redraft.text.yaml import KeyPath

COLUMNS = {
    "task": ("task", "input", "prompt", "question", "query"),
    "reference": ("reference", "expected", "target", "answer", "output"),
    "id": ("id", "case", "name"),
    "context": ("context",),
    "task_type": ("task_type",),
}
"""The columns in which a row may have each part of a case, in order of preference."""
ROLES = ("system", "user", "assistant")


@keyword_hints()
def cases_of_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    source: str = "rows",
    match: Match = "includes",
    columns: Mapping[str, str] | None = None,
) -> list[EvalCase]:
    """Make a case from each row, such as those of a Hugging Face data set or of Inspect's samples.

    The task is in the first of the columns `task`, `input`, `prompt`, `question` and `query` that there is; a
    list of messages is a conversation. What is expected is in `reference`, `expected`, `target`, `answer` or
    `output`, and an answer has to match it as `match` says. `columns` names others. Raises `ConfigError` with
    the number of a row that has no task.
    """
    found: list[EvalCase] = []
    for number, row in enumerate(rows, 1):
        place = f"{source}, row {number}"
        if not isinstance(row, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            raise ConfigError(f"{place}: expected an object, got {row!r}.")
        part = {name: _part(row, name, (columns or {}).get(name), place) for name in COLUMNS}
        if row.get("choices"):
            raise ConfigError(f"{place}: multiple choice is not supported; write the choices into the task.")
        question, messages = _conversation(part["task"], place)
        reference = part["reference"]
        task = PlainTask(
            question, "", str(part["task_type"] or ""), (), as_text(part["context"] or ""), messages=messages
        )
        found.append(
            EvalCase(
                str(part["id"] if part["id"] not in (None, "") else number),
                task,
                reference=reference,
                match=match if reference not in (None, "") else "",
            )
        )
    if not found:
        raise ConfigError(f"{source}: there are no rows.")
    ids = [case.id for case in found]
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise ConfigError(f"{source}: the id {twice!r} is used twice.")
    return found


def _part(row: Mapping[str, Any], name: str, column: str | None, place: str) -> Any:
    """Return a part of a case from the column that has it; None if none does."""
    if column is not None:
        if column not in row:
            raise ConfigError(f"{place}: there is no column {column!r}; expected one of {', '.join(row)}.")
        return row[column]
    found = next((row[one] for one in COLUMNS[name] if row.get(one) not in (None, "")), None)
    if found is None and name == "task":
        raise ConfigError(
            f"{place}: there is no task; expected one of the columns {', '.join(COLUMNS['task'])}."
        )
    return found


def _conversation(task: Any, place: str) -> tuple[str, tuple[Message, ...]]:
    """Return what is asked, and the messages before it."""
    if not isinstance(task, list):
        return as_text(task), ()
    turns: list[Message] = []
    for turn in cast("list[Any]", task):
        if not isinstance(turn, Mapping):
            raise ConfigError(f"{place}: a message must have a role and a content, got {turn!r}.")
        role, content = turn.get("role"), turn.get("content")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] (from a file)
        if role not in ROLES or not isinstance(content, str):
            raise ConfigError(
                f"{place}: only text messages with the roles {', '.join(ROLES)} are supported, got {turn!r}."
            )
        turns.append(Message(role, content))
    if not turns or turns[-1].role != "user":
        raise ConfigError(f"{place}: a conversation must end with a message of the user.")
    return turns[-1].content, tuple(turns[:-1])


def _csv_cases(text: str, source: str) -> list[EvalCase]:
    return cases_of_rows(csv.DictReader(io.StringIO(text)), source=source)


def _json_lines_cases(text: str, source: str) -> list[EvalCase]:
    rows: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ConfigError(f"{source}, line {number}: this is not JSON: {error}.") from error
    return cases_of_rows(rows, source=source)


READERS: Mapping[str, Callable[[str, str], list[EvalCase]]] = {
    ".csv": _csv_cases,
    ".jsonl": _json_lines_cases,
}
"""What reads a data set, by the end of its file's name."""


def hugging_face_cases(name: str) -> list[EvalCase]:
    """Load a data set of Hugging Face, `NAME` or `NAME:SPLIT`, by default its split `test`.

    Raises `ConfigError` if the package `datasets` is not installed, or if there is no such data set.
    """
    try:
        datasets: Any = import_module("datasets")
    except ImportError as error:
        raise ConfigError(
            f"The data set {name!r} needs a package of Hugging Face: pip install datasets"
        ) from error
    path, _, split = name.partition(":")
    try:
        rows = datasets.load_dataset(path, split=split or "test")
    except Exception as error:
        raise ConfigError(f"The data set {name!r} can't be loaded: {error}") from error
    return cases_of_rows(rows, source=name)


# --- promptfoo -------------------------------------------------------------------------------------------


def promptfoo_cases(document: Mapping[str, Any], fail: Callable[[KeyPath, str], NoReturn]) -> list[EvalCase]:
    """Make cases from the prompt and the tests of a promptfoo file; `fail` raises with the line.

    There is one prompt, whose `{{variables}}` come from the `vars` of each test. The assertions `equals`,
    `contains`, `icontains`, `regex`, their negations, `is-json` and `llm-rubric` become criteria; any other
    fails.
    """
    prompts: Any = document.get("prompts")
    match prompts:
        case [str(text)]:
            prompt = text
        case _:
            fail(
                ("prompts",),
                "expected a list with one prompt, as text; make other prompts agents of their own",
            )
    shared: Any = document.get("defaultTest") or {}
    tests: Any = document["tests"]
    if not isinstance(tests, list) or not tests:
        fail(("tests",), "expected a list of tests")
    found: list[EvalCase] = []
    for at, test in enumerate(cast("list[Any]", tests)):
        way: KeyPath = ("tests", at)
        if not isinstance(test, dict):
            fail(way, f"a test must be a mapping, got {test!r}")
        entries = cast("dict[str, Any]", test)
        variables: dict[str, Any] = {**(shared.get("vars") or {}), **(entries.get("vars") or {})}
        try:
            question = as_text(Template(prompt).render(variables))
        except TemplateError as error:
            fail(("prompts", 0), str(error))
        asserted = [*(shared.get("assert") or ()), *(entries.get("assert") or ())]
        criteria = [_criterion(one, number, way, fail) for number, one in enumerate(asserted, 1)]
        if not criteria:
            fail(way, "the test has no assertions")
        name = case_id(str(entries.get("description") or f"test {at + 1}"))
        found.append(EvalCase(name, PlainTask(question), hidden=tuple(criteria)))
    return found


def _criterion(
    assertion: Any, number: int, way: KeyPath, fail: Callable[[KeyPath, str], NoReturn]
) -> QualityCriterion:
    """Return the criterion that an assertion means."""
    if not isinstance(assertion, dict):
        fail(way, f"an assertion must be a mapping with a type, got {assertion!r}")
    entries = cast("dict[str, Any]", assertion)
    kind, value = str(entries.get("type")), entries.get("value")
    plain, weight = kind.removeprefix("not-"), float(entries.get("weight", 1))
    name = f"{kind} {number}"
    if plain == "llm-rubric" and kind == plain:
        return QualityCriterion(name, str(value), weight)
    if plain == "is-json" and kind == plain:
        schema: Any = cast("Any", value) if isinstance(value, dict) else {}
        return QualityCriterion(
            name, weight=weight, threshold=1.0, evaluator="schema", evaluator_config={"schema": schema}
        )
    patterns = {
        "equals": lambda: rf"(?s)\A\s*{_escaped(value)}\s*\z",
        "contains": lambda: _escaped(value),
        "icontains": lambda: f"(?i){_escaped(value)}",
        "regex": lambda: str(value),
    }
    if plain not in patterns:
        fail(way, f"the assertion {kind!r} has no equivalent here; write it as a criterion")
    config = {"pattern": patterns[plain](), "must_match": kind == plain, "raw": True}
    return QualityCriterion(name, weight=weight, threshold=1.0, evaluator="regex", evaluator_config=config)


def _escaped(value: Any) -> str:
    return re.escape(as_text(value))
