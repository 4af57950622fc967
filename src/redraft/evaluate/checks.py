"""Checks that need no model: JSON Schema, regular expressions, limits on length, functions."""

from __future__ import annotations

import asyncio
import pkgutil
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, get_origin

from redraft._calls import evaluator
from redraft._codec import MISTAKES, describe_error, is_record
from redraft._pointers import path_of, pointer
from redraft._texts import (
    as_text,
    json_data,
    limits_in_words,
    short_repr,
    source_of,
    type_name,
    without_addresses,
)
from redraft._validation import CRITERION_FUNCTION_NOTE, check_count, is_number, named_error, repr_of
from redraft.errors import ConfigError, ModelError, OutputError, RedraftError
from redraft.evaluate.criteria import (
    PASSED,
    answer_in,
    check_keys,
    failed,
    is_raw,
    names_criterion,
    required,
    unknown,
)
from redraft.redact.log import warn_once
from redraft.text.regex import compile_pattern
from redraft.text.replies import json_of, unfenced
from redraft.text.schema import Schema
from redraft.text.schema_errors import validated
from redraft.types import Issue, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redraft.protocols import Evaluator, RunContext
    from redraft.text.regex import Span
    from redraft.types import Output, QualityCriterion

MAX_ISSUES = 20
MAX_MATCHES = 100_000
MAX_SHOWN, MAX_MATCHES_SHOWN = 60, 3
"""Limits on what an issue quotes: characters of a text, and matches."""
SLOW_PATTERNS = "look-around, back-references and \\b are slow, so do without them"


@names_criterion
def schema(criterion: QualityCriterion) -> Evaluator:
    """Check an output against a schema: 1.0 if it is valid, else 0.0 with an issue for each error.

    Configuration: `schema`, a JSON Schema as a dict or bool, or a class that pydantic can validate, whose own
    validators then decide; `raw`, True to reject JSON in a Markdown fence. A text is parsed as JSON first.
    The issues, at most 20, name a JSON pointer, the expected value and the actual value. Raises
    `ConfigError` for an invalid schema, or a schema that refers to another file or address: nothing is ever
    fetched.
    """
    check_keys(criterion, "schema", "raw")
    raw, name = is_raw(criterion), criterion.name
    schema = required(criterion, "schema")
    if isinstance(schema, type) or get_origin(schema) is not None:
        return _class_check(criterion, schema, raw=raw)
    if not isinstance(schema, dict | bool):
        raise ConfigError(f"schema must be a dict, a bool or a class, got {schema!r}.")
    compiled = Schema(schema)  # pyright: ignore[reportUnknownArgumentType] (any JSON)
    warn_of_ineffective_keywords(compiled, f"Criterion {name!r}")

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        if raw and isinstance(output, str) and unfenced(output)[1] > 1:
            return failed(Issue(FENCED, name))
        value: Any = output
        if not isinstance(output, str):
            with suppress(ValueError):  # a value without a JSON form is reported below
                value = json_data(output)
        # No coercion: an evaluator can't change the output, so it has to be valid as it is.
        problems = compiled.check(value, coerce=False).errors[:MAX_ISSUES]
        issues = [Issue(problem.placed, name, problem.pointer or None) for problem in problems]
        return failed(*issues) if issues else PASSED

    return check


def warn_of_ineffective_keywords(schema: Schema, what: str) -> None:
    """Warn of each keyword of a schema that has no effect, because it is probably misspelled."""
    for place, why in schema.ineffective_keywords():
        warn_once(f"{what}: {'.'.join(map(str, place))}: {why}")


FENCED = "The JSON is inside a Markdown fence; expected nothing but JSON."


_OF_PARENT = ("Extra inputs are not permitted", "Field required")
"""Pydantic's messages about a key for which JSON Schema reports the object around it."""


def _worded(issue: Issue, placed: Mapping[str, str], name: str) -> Issue:
    """An issue in the words of the JSON Schema's problem at the same path, if there is one."""
    if not issue.path:
        return issue
    parent = issue.path.rpartition("/")[0] if issue.startswith(_OF_PARENT) else issue.path
    for path in (issue.path, parent):
        if path in placed:
            return Issue(placed[path], name, path)
    return Issue(f"{issue.path}: {issue}", name, issue.path)


def _class_check(criterion: QualityCriterion, kind: Any, *, raw: bool) -> Evaluator:
    """Check an output by a class: an instance is validated as such, anything else as JSON data."""
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter  # noqa: PLC0415 (slow)

    class_name = type_name(kind)
    try:
        adapter = TypeAdapter[Any](kind)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        reason = str(error).split("\n", 1)[0].rstrip(".")
        raise ConfigError(f"schema: {class_name} can't validate JSON: {reason}.") from error
    wording: Schema | None = None
    with suppress(ConfigError, PydanticUserError):  # the class has no JSON Schema
        wording = Schema(adapter.json_schema())
    name = criterion.name

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        if raw and isinstance(output, str) and unfenced(output)[1] > 1:
            return failed(Issue(FENCED, name))
        try:
            if is_record(kind) and isinstance(output, kind) and source_of(output) is None:
                value, issues = _problems_of_instance(adapter, output, class_name, name)
            else:
                value = json_of(output) if isinstance(output, str) else json_data(output)
                _, issues = validated(adapter, value, class_name, name)
        except (OutputError, ValueError) as error:  # no JSON to check
            return failed(Issue(str(error), name))
        if not issues:
            return PASSED
        # The JSON Schema's message for the same path says more clearly what to do.
        problems = () if wording is None else wording.check(value, coerce=False).errors
        placed = {problem.pointer: problem.placed for problem in problems if problem.pointer}
        return failed(*dict.fromkeys(_worded(issue, placed, name) for issue in issues))

    return check


def _problems_of_instance(
    adapter: Any, output: Any, class_name: str, criterion: str
) -> tuple[Any, tuple[Issue, ...]]:
    """Validate an instance that a function made: its JSON, or else its attributes by name.

    A class may reject its own JSON, for example because of aliases. Then only the rejected attributes count,
    not a complaint about the data as a whole.
    """
    try:
        value = adapter.dump_python(output, mode="json", by_alias=True, round_trip=True, warnings=False)
    except (Exception, SystemExit) as error:
        raise OutputError(f"{class_name} can't be written as JSON: {describe_error(error)}") from error
    _, issues = validated(adapter, value, class_name, criterion)
    if not issues or not hasattr(output, "model_fields_set"):
        return value, issues
    from pydantic import ValidationError  # noqa: PLC0415 (the adapter has loaded it)

    attributes: dict[str, Any] = {**vars(output), **(output.__pydantic_extra__ or {})}
    try:
        adapter.validate_python(attributes, by_alias=False, by_name=True)
    except ValidationError as error:
        rejected = {pointer(detail["loc"]) for detail in error.errors(include_url=False) if detail["loc"]}
        return value, tuple(issue for issue in issues if issue.path in rejected)
    except (Exception, SystemExit):  # noqa: BLE001 (a validator of the data as a whole)
        return value, ()
    return value, ()


@names_criterion
def regex(criterion: QualityCriterion) -> Evaluator:
    r"""Check an output's text against a regular expression: 1.0 if it passes, else 0.0.

    Configuration: `pattern`; `flags`, letters of `imsx`; either `must_match`, False to forbid the pattern, or
    `min_matches` and `max_matches` to bound the number of matches; `raw`, True to match the Markdown fence,
    too, of an output that is one fenced block. Matching that takes too long leaves the criterion unknown.
    Raises `ConfigError` for an invalid configuration.
    """
    check_keys(criterion, "pattern", "flags", "must_match", "min_matches", "max_matches", "raw")
    raw = is_raw(criterion)
    source, flags = required(criterion, "pattern"), criterion.evaluator_config.get("flags", "")
    pattern = compile_pattern(source, flags)
    least, most = _bounds(criterion)
    if (least == 1 or most == 0) and not _CONDITION.search(source) and pattern.spans("", 1):
        raise ConfigError(f"the pattern {source!r} matches every text, even an empty one.")
    limit = least if most is None else most + 1
    purpose = f": {criterion.description}" if criterion.description else ""
    written = repr(source).replace("\\\\", "\\")  # as in the configuration, on one line

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        answer, first_line = answer_in(output, raw)
        text = as_text(answer)
        try:
            if pattern.is_quick_on(text, limit):
                spans = pattern.spans(text, limit)
            else:
                spans = await asyncio.to_thread(pattern.spans, text, limit)
        except TimeoutError:
            return unknown(criterion, f"matching {written} took too long; {SLOW_PATTERNS}")
        if most is not None and len(spans) > most:
            matches = "match" if most == 1 else "matches"
            what = f"more than {most} {matches} of" if most else "forbidden:"
            match = _in_line(text, spans[most])
            line = first_line + text.count("\n", 0, spans[most][0])
            return failed(Issue(f"Found {what} {written} ({match}){purpose}", criterion.name, line=line))
        if spans and len(spans) < least:
            quoted = ", ".join(_quoted(text[start:end]) for start, end in spans[:MAX_MATCHES_SHOWN])
            message = f"Found {len(spans)} of at least {least} matches of {written} ({quoted}){purpose}"
            return failed(Issue(message, criterion.name))
        if len(spans) < least:
            near, span = _nearest(source, flags, text)
            line = first_line + text.count("\n", 0, span[0]) if span else None
            return failed(Issue(f"Found no match of {written}{near}{purpose}", criterion.name, line=line))
        return PASSED

    return check


_CONDITION = re.compile(r"[\^$]|\\[bBAZz]|\(\?<?[=!]")
"""Parts with which a pattern can match an empty text and yet reject others."""
_ANCHORS = re.compile(r"^(?:\^|\\A)|(?<!\\)\$$|\\Z$")


def _nearest(source: str, flags: str | int, text: str) -> tuple[str, Span | None]:
    """Suggest the closest match of a pattern without a match: in another case, or next to other text."""
    looser: list[tuple[str, str, str]] = []
    if isinstance(flags, str):
        inner = _ANCHORS.sub("", source)
        if "i" not in flags:
            looser.append((source, f"{flags}i", "in another case"))
        if inner and inner != source and "|" not in source:
            looser.append((inner, flags, "next to other text"))
    for pattern, letters, kind in looser:
        try:
            near = compile_pattern(pattern, letters)
        except ConfigError:  # without its anchors, it is no pattern
            continue
        if near.is_quick_on(text) and (spans := near.spans(text)):
            return f", only {_in_line(text, spans[0])}, {kind}", spans[0]
    return "", None


def _in_line(text: str, span: Span) -> str:
    """Quote a match with the line around it."""
    start, end = span
    match = _quoted(text[start:end])
    before, after = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    line = text[max(before, start - MAX_SHOWN // 2) : after if after >= 0 else len(text)]
    return match if line.strip() == text[start:end].strip() else f"{match} in {_quoted(line)}"


def _quoted(text: str) -> str:
    return short_repr(text.strip(), MAX_SHOWN)


def _bounds(criterion: QualityCriterion) -> tuple[int, int | None]:
    """The least and the greatest number of matches; None means any number."""
    config = criterion.evaluator_config
    must_match = config.get("must_match", True)
    if not isinstance(must_match, bool):
        raise ConfigError(f"must_match must be true or false, got {repr_of(must_match)}.")
    counts = {key: config[key] for key in ("min_matches", "max_matches") if key in config}
    if not counts:
        return (1, None) if must_match else (0, 0)
    for key, count in counts.items():
        check_count(key, count, 0, MAX_MATCHES)
    least, most = counts.get("min_matches", 0), counts.get("max_matches")
    if "must_match" in config:
        raise ConfigError("give either must_match or min_matches and max_matches, not both.")
    if least == 0 and most is None:
        raise ConfigError("min_matches of 0 asks for nothing; give max_matches, too, or at least 1.")
    if most is not None and most < least:
        raise ConfigError(f"max_matches ({most}) is less than min_matches ({least}).")
    return least, most


@names_criterion
def count(criterion: QualityCriterion) -> Evaluator:
    """Count the words, characters, lines or bullets of an output's text: 1.0 within the limits, else 0.0.

    Configuration: `at_least`, `at_most`, or both; `raw`, True to count the Markdown fence, too, of an output
    that is one fenced block. A word is separated by white space and has a letter or a digit. Characters do
    not include white space at either end, lines do not include blank ones. A bullet is a line that begins
    with `-`, `*`, `+`, `•` or a number. Raises `ConfigError` for an invalid configuration.
    """
    unit = criterion.evaluator
    check_keys(criterion, "at_least", "at_most", "raw")
    raw, measure = is_raw(criterion), MEASURES[unit]
    config = criterion.evaluator_config
    least, most = config.get("at_least"), config.get("at_most")
    for key in ("at_least", "at_most"):
        if key in config:
            check_count(key, config[key], 0)
    if not least and most is None:
        raise ConfigError(f"{unit} needs at_least (1 or more) or at_most.")
    if least and most is not None and most < least:
        raise ConfigError(f"at_most ({most}) is less than at_least ({least}).")
    least, bounds = least or 0, limits_in_words(least or None, most)

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        amount = measure(as_text(answer_in(output, raw)[0]))
        if amount >= least and (most is None or amount <= most):
            return PASSED
        name = unit if amount != 1 else unit.removesuffix("s")
        off = f"{least - amount} too few" if amount < least else f"{amount - (most or 0)} too many"
        return failed(Issue(f"The text has {amount} {name}; {bounds}, {off}", criterion.name))

    return check


_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)])\s+\S")


MEASURES: Mapping[str, Callable[[str], int]] = {
    "words": lambda text: sum(any(map(str.isalnum, part)) for part in text.split()),
    "characters": lambda text: len(text.strip()),
    "lines": lambda text: sum(bool(line.strip()) for line in text.splitlines()),
    "bullets": lambda text: sum(_BULLET.match(line) is not None for line in text.splitlines()),
}


@names_criterion
def function(criterion: QualityCriterion) -> Evaluator:
    """Let a function judge: its return value is the verdict, a failed `assert` is a failure.

    Configuration: `function`, a callable that takes the output (and the `RunContext` if it asks for one), or
    `"package.module:name"`; `score_max`, the best score if that is not 1; `raw`, True to pass the Markdown
    fence, too, of an output that is one fenced block. Raises `ConfigError` if there is no such function. A
    programming mistake in it (`TypeError`, `AttributeError`, `NameError`, a forgotten `return`) is raised
    with a note that names the criterion; so is a `ModelError`, because another try may succeed. Any other
    exception leaves the criterion unknown.
    """
    check_keys(criterion, "function", "score_max", "raw")
    raw = is_raw(criterion)
    fn = function_of(criterion)
    score_max = criterion.evaluator_config.get("score_max")
    if score_max is not None and (not is_number(score_max) or score_max <= 0):
        raise ConfigError(f"score_max must be a number above 0, got {repr_of(score_max)}.")
    judge = evaluator(fn, criterion.threshold, score_max, is_check=True)

    async def check(output: Output, run: RunContext, /) -> ReflectionEvaluation:
        answer, first_line = answer_in(output, raw)
        try:
            evaluation = await judge(answer, run)
        except ModelError:
            raise
        except MISTAKES as error:
            error.add_note(f"{CRITERION_FUNCTION_NOTE}{criterion.name!r}")
            raise
        except Exception as error:  # noqa: BLE001 (the user's code: an error of any kind is no verdict)
            why = f"the function raised {describe_error(error)}"
            return unknown(criterion, f"{without_addresses(why)}; to fail an output, return (False, 'why')")
        return _located(evaluation, criterion.name, first_line - 1)

    return check


@names_criterion
def function_of(criterion: QualityCriterion) -> Callable[..., Any]:
    """The function of a criterion; raises `ConfigError` if it has none or it can't be imported."""
    return _imported(criterion, "function", "callable")


@names_criterion
def with_class(criterion: QualityCriterion) -> QualityCriterion:
    """Replace a `schema` given as `package.module:name` by its class.

    Only for criteria of trusted files and records: models and clients send schemas, too, and must not be able
    to import a module. Raises `ConfigError`.
    """
    if criterion.evaluator != "schema" or not isinstance(criterion.evaluator_config.get("schema"), str):
        return criterion
    kind = _imported(criterion, "schema", "a JSON Schema")
    return replace(criterion, evaluator_config={**criterion.evaluator_config, "schema": kind})


def _imported(criterion: QualityCriterion, key: str, expected: str) -> Any:
    value = required(criterion, key)
    if not isinstance(value, str):
        return value
    if ":" not in value:
        raise ConfigError(f"{key} must be {expected} or 'package.module:name', got {repr_of(value)}.")
    try:
        return imported(value)
    except ImportError as error:
        raise ConfigError(f"{key} {value!r} can't be imported: {error}.") from error


def imported(name: str) -> Any:
    """The object at `package.module:name`; raises `ImportError` whatever its module raises, even to exit."""
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError, RedraftError) as error:
        raise ImportError(str(error)) from error
    except (Exception, SystemExit) as error:
        raise ImportError(named_error(error)) from error


def _located(evaluation: ReflectionEvaluation, name: str, skipped: int) -> ReflectionEvaluation:
    """Name the criterion in issues, and count lines from the top: `skipped` lines precede the answer."""
    if not any(issue.criterion is None or (skipped and issue.line) for issue in evaluation.issues):
        return evaluation
    issues = tuple(
        Issue(issue, issue.criterion or name, issue.path, issue.line and issue.line + skipped, issue.number)
        for issue in evaluation.issues
    )
    return replace(evaluation, issues=issues)


@names_criterion
def of_part(criterion: QualityCriterion, check: Callable[[QualityCriterion], Evaluator]) -> Evaluator:
    """A check of the part of a structured output that `path` names; without `path`, of the whole.

    `path` is a JSON pointer such as `/items/0/name`; a text is parsed as JSON first. If there is nothing at
    the path, the check fails. Raises `ConfigError` for an invalid JSON pointer.
    """
    config = dict(criterion.evaluator_config)
    if "path" not in config:
        return check(criterion)
    path = config.pop("path")
    if not isinstance(path, str) or not path.startswith("/"):
        raise ConfigError(f"path must be a JSON pointer such as '/items/0/name', got {repr_of(path)}.")
    evaluate = check(replace(criterion, evaluator_config=config))

    async def check_part(output: Output, run: RunContext, /) -> ReflectionEvaluation:
        try:
            part = json_of(output) if isinstance(output, str) else json_data(output)
            for key in path_of(path):
                is_index = isinstance(part, list) and key.isdecimal()
                part = cast("Any", part)[int(key) if is_index else key]
        except (LookupError, TypeError, ValueError):  # no such key or item, a plain value, or a bad index
            return failed(Issue(f"There is nothing at {path}.", criterion.name, path))
        except OutputError as error:
            return failed(Issue(f"There is nothing at {path}: {error}", criterion.name, path))
        evaluation = await evaluate(part, run)
        issues = tuple(
            Issue(
                f"{path}{issue}" if issue.path and issue.startswith(f"{issue.path}: ") else issue,
                issue.criterion,
                path + (issue.path or ""),
                issue.line,
            )
            for issue in evaluation.issues
        )
        return replace(evaluation, issues=issues) if issues else evaluation

    return check_part
