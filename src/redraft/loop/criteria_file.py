"""Criteria files: a task and its criteria in YAML."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from redraft._codec import to_json
from redraft._files import replace_file
from redraft._locks import check_regular
from redraft._validation import check_text, checked_path, nearest
from redraft._verdicts import DEFAULT_THRESHOLD
from redraft.errors import ConfigError
from redraft.evaluate.checks import function_of, with_class
from redraft.evaluate.criteria import (
    check_comparable,
    check_task_type,
    criteria_of,
    described,
    needs_model,
    recorded,
)
from redraft.evaluate.evidence import sources_of
from redraft.text.yaml import KeyPath, dump_yaml, end_of_list, line_of, load_yaml
from redraft.types import QualityCriterion

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from redraft.loop.output_type import OutputType  # noqa: TC004 (for type checkers: it takes long to load)
    from redraft.loop.pattern import ReflectionPattern

JUDGING = {"judge_samples": int, "judge_margin": float, "accept": str, "calibrated_floor": float}
"""The options of a `ReflectionPattern` that a file may set under their own names."""
KEYS = {"task": str, "task_type": str, "threshold": float, **JUDGING, "criteria": list, "output_type": str}
CRITERION_KEYS = {
    "name": str,
    "description": str,
    "weight": float,
    "threshold": float,
    "evaluator": str,
    "config": dict,
    "evaluator_config": dict,
    "gate": bool,
    "origin": str,
    "shown": object,
}
WORDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
    bool: "true or false",
}


@dataclass(frozen=True, slots=True)
class CriteriaFile:
    """The contents of a criteria file."""

    criteria: tuple[QualityCriterion, ...]
    task: str = ""
    """The task that the draft answers, if the file has one."""
    task_type: str = ""
    threshold: float = DEFAULT_THRESHOLD
    """The overall score (0..1) to reach."""
    output_type: OutputType[Any] | None = None
    """With a type, the draft is JSON."""
    judging: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options of `JUDGING` that the file sets."""

    def pattern(self, max_iterations: int, **options: Any) -> ReflectionPattern:
        """A pattern that judges by these criteria, and revises at most `max_iterations` times."""
        from redraft.loop.pattern import ReflectionPattern

        judging = dict(self.judging)
        if max_iterations == 0:
            judging.pop("accept", None)  # a single version is not compared
        return ReflectionPattern(
            max_iterations=max_iterations,
            quality_criteria=self.criteria,
            quality_threshold=self.threshold,
            task_type=self.task_type,
            **judging,
            **options,
        )


def criteria_text(path: Path) -> str:
    """The text of a criteria file; raises `ConfigError` if it cannot be read."""
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The criteria file {str(path)!r} cannot be read: {_reason(error)}.") from error


def read_criteria(path: str | Path, text: str | None = None) -> CriteriaFile:
    """Read a criteria file: a list, or a mapping with `criteria` and the other fields of a `CriteriaFile`.

    A criterion is a sentence, a built-in name, or a mapping with `name` and optionally `description`,
    `weight`, `threshold`, `evaluator`, `config` (or `evaluator_config`), `gate`, `origin` and `shown`. A
    function or class is named `module:name`; the module may be in the folder of the file, and so may test
    files. Without `criteria`, the defaults of the `task_type` apply. `output_type` names a file with a JSON
    Schema, relative to the criteria file. `text` replaces the text of the file. Raises `ConfigError` with the
    file, the line and the key of each mistake.
    """
    path = checked_path("The criteria file", path)
    if text is None:
        text = criteria_text(path)
    check_text("text", text)
    with modules_in(path.parent):
        return CriteriaReader(path, text).read()


@contextmanager
def modules_in(folder: Path) -> Generator[None]:
    """Make the modules of a folder importable within the block; installed modules take precedence."""
    place = str(folder.resolve())
    sys.path.append(place)
    try:
        yield
    finally:
        sys.path.remove(place)


@contextmanager
def collect_error(problems: list[str]) -> Generator[None]:
    """Add the message of a `ConfigError` in the block to `problems`, and continue after the block."""
    try:
        yield
    except ConfigError as error:
        problems.append(str(error))


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error.strerror)


class CriteriaReader:
    """Reads a criteria file; errors give the line."""

    def __init__(self, path: Path, text: str) -> None:
        self.name = str(path)
        self.folder = path.parent
        self.text = text

    def read(self) -> CriteriaFile:
        """Read the file; raises `ConfigError` with the line of each mistake."""
        value = load_yaml(self.text, self.name)
        if value is None:
            self.fail((), "the file is empty; expected a list of criteria, or a mapping with 'criteria'")
        if not isinstance(value, list | dict):
            self.fail((), "expected a list of criteria, or a mapping with 'criteria'")
        base: KeyPath = () if isinstance(value, list) else ("criteria",)
        entries = cast("dict[Any, Any]", {"criteria": value} if isinstance(value, list) else value)
        problems: list[str] = []
        fields = self.checked(entries, KEYS, (), problems)
        items = fields.get("criteria")
        if not problems and items is None and not fields.get("task_type"):
            self.fail((), "expected 'criteria', or a 'task_type' whose default criteria apply")
        task_type: str = fields.get("task_type", "")
        threshold: float = fields.get("threshold", DEFAULT_THRESHOLD)
        criteria: tuple[QualityCriterion, ...] = ()
        output_type = None
        judging = {name: fields[name] for name in JUDGING if name in fields}
        with collect_error(problems):
            if not 0 <= threshold <= 1:
                self.fail(("threshold",), f"threshold must be in 0..1, got {threshold!r}")
        for name, option in judging.items():
            with collect_error(problems):
                self._check_option(name, option)
        with collect_error(problems):
            output_type = self._output_type(fields["output_type"]) if "output_type" in fields else None
        with collect_error(problems):
            criteria = self.criteria(items, base, task_type)
        if problems:
            raise ConfigError("\n".join(problems))
        return CriteriaFile(
            criteria, fields.get("task", ""), task_type, float(threshold), output_type, judging
        )

    def criteria(
        self, items: list[Any] | None, key_path: KeyPath, task_type: str = ""
    ) -> tuple[QualityCriterion, ...]:
        """The criteria in the list at `key_path`, or (None) the default set of the task type."""
        chosen = self._items(items, key_path) if items else items
        try:
            if chosen is None:
                check_task_type(task_type)
            criteria = criteria_of(chosen, task_type)
            check_comparable(criteria)
        except ConfigError as error:
            self.fail(key_path, str(error))
        return criteria

    def _items(self, items: list[Any], key_path: KeyPath) -> list[QualityCriterion | str]:
        """Read the criteria of a list; a single `ConfigError` has all mistakes."""
        criteria: list[QualityCriterion | str] = []
        problems: list[str] = []
        for index, item in enumerate(items):
            with collect_error(problems):
                criteria.append(self._criterion(item, (*key_path, index)))
        if problems:
            raise ConfigError("\n".join(problems))
        return criteria

    def _check_option(self, name: str, value: Any) -> None:
        from redraft.loop.pattern import ReflectionPattern

        try:
            ReflectionPattern(**{name: value})
        except ConfigError as error:
            self.fail((name,), str(error))

    def _output_type(self, file: str) -> OutputType[Any] | None:
        from redraft.loop.output_type import output_type_of

        path = self.folder / file
        try:
            schema = load_yaml(path.read_text("utf-8"), str(path))  # JSON is YAML, too
            if not isinstance(schema, dict):
                self.fail(("output_type",), f"{str(path)!r} must hold a JSON Schema, an object")
            return output_type_of(schema)
        except (OSError, UnicodeDecodeError) as error:
            self.fail(("output_type",), f"the JSON Schema {str(path)!r} cannot be read: {_reason(error)}")
        except ConfigError as error:
            self.fail(("output_type",), str(error))

    def _criterion(self, item: Any, key_path: KeyPath) -> QualityCriterion | str:
        if isinstance(item, str) and item.strip():
            return item
        if not isinstance(item, dict):
            self.fail(key_path, f"a criterion must be a sentence, a name or a mapping, got {item!r}")
        fields = self.checked(cast("dict[Any, Any]", item), CRITERION_KEYS, key_path)
        if "name" not in fields:
            self.fail(key_path, "the criterion has no 'name'")
        if "config" in fields and "evaluator_config" in fields:
            self.fail((*key_path, "config"), "'config' and 'evaluator_config' are the same; give one")
        section = "config" if "config" in fields else "evaluator_config"
        if "config" in fields:
            fields["evaluator_config"] = fields.pop("config")
        if (tests := fields.get("evaluator_config", {}).get("tests")) is not None:
            fields["evaluator_config"] = {**fields["evaluator_config"], "tests": self._located(tests)}
        try:
            criterion = with_class(QualityCriterion(**fields))
            try_out(criterion)
            if criterion.evaluator == "function":
                criterion = described(criterion, function_of(criterion))
        except ConfigError as error:
            key = _first_named(fields.get("evaluator_config", {}), str(error))
            self.fail(key_path if key is None else (*key_path, section, key), str(error))
        return criterion

    def _located(self, tests: Any) -> Any:
        """Resolve test files relative to this file."""
        from redraft.evaluate.python_checks import is_test_file

        if isinstance(tests, list):
            return [self._located(test) for test in cast("list[Any]", tests)]
        return self.folder / tests if is_test_file(tests) else tests

    def checked(
        self,
        entries: dict[Any, Any],
        kinds: Mapping[str, type],
        key_path: KeyPath,
        problems: list[str] | None = None,
    ) -> dict[str, Any]:
        """Check keys and types; empty entries are left out. Mistakes are raised, or added to `problems`."""
        fields: dict[str, Any] = {}
        found: list[str] = [] if problems is None else problems
        for key, value in entries.items():
            with collect_error(found):
                if key not in kinds:
                    self.fail((*key_path, key), f"unknown key {key!r}; {nearest(str(key), kinds)}")
                if value is None:
                    continue
                kind = kinds[key]
                fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
                if not fits or (isinstance(value, bool) and kind not in (bool, object)):
                    self.fail((*key_path, key), f"{key!r} must be {WORDS[kind]}, got {value!r}")
                fields[key] = value
        if found and problems is None:
            raise ConfigError("\n".join(found))
        return fields

    def fail(self, key_path: KeyPath, what: str) -> NoReturn:
        """Raise a `ConfigError` with the file and the line."""
        raise ConfigError(f"{self.name}, line {line_of(self.text, key_path)}: {what.rstrip('.')}.")


def _first_named(config: Mapping[Any, Any], error: str) -> Any:
    """The key of a configuration that an error names first; None if it names no key."""
    text = re.sub(r"^Criterion ('.*?'|\".*?\"): ", "", error)
    matches = {key: re.search(rf"(?<!\w){re.escape(str(key))}(?!\w)", text) for key in config}
    places = {key: match.start() for key, match in matches.items() if match}
    return min(places, key=places.__getitem__, default=None)


def try_out(criterion: QualityCriterion) -> None:
    """Build a criterion's evaluator, so that errors show before the run; raises `ConfigError`.

    An evaluator that needs a model is built later.
    """
    from redraft.evaluate.panel import panel  # a file that is only read needs no evaluators
    from redraft.sandbox.jail import ProcessJail

    if criterion.evaluator == "llm":
        sources_of(criterion)
    elif not needs_model(criterion):
        panel((replace(criterion, weight=1.0),), run_command=ProcessJail())


# --- adding criteria to a file -----------------------------------------------------------------------------


def criterion_entry(criterion: QualityCriterion) -> dict[str, Any]:
    """A criterion as a file has it: its name, and the fields that differ from their defaults."""
    plain, entries = QualityCriterion(criterion.name), {"name": criterion.name}
    [data] = recorded([criterion])
    for option in fields(criterion):
        if getattr(criterion, option.name) != getattr(plain, option.name):
            entries["config" if option.name == "evaluator_config" else option.name] = data[option.name]
    return entries


def criteria_yaml(criteria: Sequence[QualityCriterion]) -> str:
    """Criteria as the items of a YAML list."""
    return dump_yaml([criterion_entry(criterion) for criterion in criteria])


def add_criteria(path: Path, criteria: Sequence[QualityCriterion]) -> list[QualityCriterion]:
    """Append criteria to a criteria file, or write a new file; returns the criteria that were added.

    The file keeps its order, its comments and its line ends. A criterion whose check is in the file already
    is left out, and a name that is taken gets a number. Raises `ConfigError`, and changes nothing, for a file
    without criteria, a file with the default criteria of its `task_type`, and a list to which nothing can be
    appended; the message then says what to add by hand.
    """
    try:
        text = path.read_bytes().decode("utf-8") if check_regular(path) else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The criteria file {str(path)!r} cannot be read: {_reason(error)}.") from error
    present = read_criteria(path, text.removeprefix("\ufeff")).criteria if text.strip() else ()
    checks = [_check_of(criterion) for criterion in present if criterion.evaluator != "llm"]
    names = {criterion.name for criterion in present}
    added: list[QualityCriterion] = []
    for criterion in criteria:
        if _check_of(criterion) not in checks and criterion not in present:
            name, number = criterion.name, 1
            while name in names:
                number += 1
                name = f"{criterion.name} ({number})"
            names.add(name)
            added.append(replace(criterion, name=name))
    if not added:
        return []
    whole = _with_criteria(path, text, added)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path.resolve(), whole.encode("utf-8"))  # a link stays
    except OSError as error:
        raise ConfigError(f"The criteria file {str(path)!r} can't be written: {error.strerror}.") from error
    return added


def _check_of(criterion: QualityCriterion) -> tuple[str, Any]:
    return criterion.evaluator, to_json(criterion.evaluator_config)


def _with_criteria(path: Path, text: str, added: Sequence[QualityCriterion]) -> str:
    """The text of a criteria file with more criteria in its list."""
    if not text.strip():
        return "criteria:\n" + "".join(f"  {line}\n" for line in _lines(added))
    mark, end = "\ufeff" if text.startswith("\ufeff") else "", "\r\n" if "\r\n" in text else "\n"
    plain = text.removeprefix(mark).replace("\r\n", "\n")
    before: Any = load_yaml(plain, str(path))
    key_path: KeyPath = () if isinstance(before, list) else ("criteria",)
    if key_path and "criteria" not in before:
        raise ConfigError(
            f"{str(path)!r} has the default criteria of its task_type, which a list would replace: "
            f"add 'criteria' with those that you want. {_by_hand(added)}"
        )
    place = end_of_list(plain, key_path)
    if place is None:
        whole = ""
    elif place.is_flow:
        items = ", ".join(json.dumps(criterion_entry(criterion), ensure_ascii=False) for criterion in added)
        whole = f"{plain[: place.at]}{', ' if place.has_items else ''}{items}{plain[place.at :]}"
    else:
        lines = "".join(f"{' ' * place.indent}{line}\n" for line in _lines(added))
        gap = "" if plain[: place.at].endswith("\n") else "\n"
        whole = f"{plain[: place.at]}{gap}{lines}{plain[place.at :]}"
    expected: Any = load_yaml(plain, str(path))
    cast("list[Any]", expected["criteria"] if key_path else expected).extend(map(criterion_entry, added))
    if not whole or load_yaml(whole, str(path)) != expected:
        raise ConfigError(
            f"{str(path)!r}: nothing can be appended to its list of criteria. {_by_hand(added)}"
        )
    return mark + whole.replace("\n", end)


def _lines(added: Sequence[QualityCriterion]) -> list[str]:
    return criteria_yaml(added).rstrip("\n").split("\n")


def _by_hand(added: Sequence[QualityCriterion]) -> str:
    return f"Add this by hand:\n{criteria_yaml(added)}"
