"""Checks that need no model: JSON Schema, regular expressions, limits on length, functions."""

from __future__ import annotations

import asyncio
import pkgutil
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft._calls import evaluator
from redraft._codec import CRITERION_FUNCTION_NOTE, MISTAKES
from redraft._texts import as_text
from redraft._validation import is_number, nearest
from redraft.errors import ConfigError, ModelError
from redraft.evaluate.verdict import PASSED, failed, unknown
from redraft.text.regex import compile_pattern
from redraft.text.replies import unfenced
from redraft.text.schema import Schema
from redraft.types import Issue, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.protocols import Evaluator, RunContext
    from redraft.types import Output, QualityCriterion

MAX_ISSUES = 20
MAX_MATCHES = 100_000
SLOW_PATTERNS = "look-around, back-references and \\b are slow, so do without them"


def schema(criterion: QualityCriterion) -> Evaluator:
    """Check an output against a JSON Schema: 1.0 if it is valid, else 0.0 with an issue for each error.

    Configuration: `schema`, a JSON Schema as a dict or bool, or a pydantic model class; `raw`, True to reject
    JSON in a Markdown fence. A text is parsed as JSON first. The issues, at most 20, carry a JSON pointer.
    Raises `ConfigError` for an invalid schema, or one that refers to another file or address: nothing is ever
    fetched.
    """
    check_keys(criterion, "schema", "raw")
    is_raw = raw_of(criterion)
    compiled = _compiled(criterion, required(criterion, "schema"))
    name = criterion.name

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        if is_raw and isinstance(output, str) and unfenced(output)[1] > 1:
            return failed(Issue("The JSON stands in a Markdown fence; expected nothing but JSON.", name))
        faults = compiled.faults_of(output, MAX_ISSUES) if isinstance(output, str) else None
        if faults is not None:
            if not faults:
                return PASSED
            return failed(*[Issue(what, name, where or None) for what, where in faults])
        plain: Any = output
        if hasattr(plain, "model_dump"):
            plain = plain.model_dump(mode="json")
        # No coercion: an evaluator can't change the output, so it has to be valid as it is.
        result = compiled.check(plain, coerce=False)
        if result.valid:
            return PASSED
        return failed(
            *(Issue(error.detail, name, error.pointer or None) for error in result.errors[:MAX_ISSUES])
        )

    return check


def _compiled(criterion: QualityCriterion, given: Any) -> Schema:
    if hasattr(given, "model_json_schema"):  # a pydantic model, recognised without importing pydantic
        given = given.model_json_schema()
    if not isinstance(given, dict | bool):
        raise invalid(criterion, f"schema must be a dict, a bool or a pydantic model class, got {given!r}.")
    try:
        return Schema(given)  # pyright: ignore[reportUnknownArgumentType] (any JSON)
    except ConfigError as error:
        raise invalid(criterion, f"{error}.") from error


def regex(criterion: QualityCriterion) -> Evaluator:
    r"""Check an output's text against a regular expression: 1.0 if it passes, else 0.0.

    Configuration: `pattern`; `flags`, letters of `imsx`; either `must_match`, False to forbid the pattern, or
    `min_matches` and `max_matches` to bound how often it is found; `raw`, True to match the Markdown fence,
    too, of an output that is one fenced block. Matching that takes too long leaves the criterion unknown.
    Raises `ConfigError` for an invalid configuration.
    """
    check_keys(criterion, "pattern", "flags", "must_match", "min_matches", "max_matches", "raw")
    answer = answer_in(criterion)
    source, flags = required(criterion, "pattern"), criterion.evaluator_config.get("flags", "")
    try:
        pattern = compile_pattern(source, flags)
    except ConfigError as error:
        raise invalid(criterion, str(error)) from error
    least, most = _bounds(criterion)
    limit = least if most is None else most + 1
    wanted = f": {criterion.description}" if criterion.description else ""
    shown = repr(source).replace("\\\\", "\\")  # as it was written, on one line

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        given, first_line = answer(output)
        text = as_text(given)
        try:
            if pattern.is_quick_on(text, limit):
                spans = pattern.spans(text, limit)
            else:
                spans = await asyncio.to_thread(pattern.spans, text, limit)
        except TimeoutError:
            return unknown(criterion, f"matching {shown} took too long; {SLOW_PATTERNS}")
        if most is not None and len(spans) > most:
            what = f"more than {most} matches of" if most else "forbidden:"
            start, end = spans[most]
            message = f"Found {what} {shown} ({_shorten(text[start:end])!r}){wanted}"
            return failed(Issue(message, criterion.name, line=first_line + text.count("\n", 0, start)))
        if len(spans) < least:
            what = "no match" if not spans else f"{len(spans)} of at least {least} matches"
            return failed(Issue(f"Found {what} of {shown}{wanted}", criterion.name))
        return PASSED

    return check


def _bounds(criterion: QualityCriterion) -> tuple[int, int | None]:
    """Return the least and the greatest (None: any) number of matches."""
    given = criterion.evaluator_config
    must_match = given.get("must_match", True)
    if not isinstance(must_match, bool):
        raise invalid(criterion, f"must_match must be true or false, got {must_match!r}.")
    counts = {key: given[key] for key in ("min_matches", "max_matches") if key in given}
    if not counts:
        return (1, None) if must_match else (0, 0)
    for key, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_MATCHES:
            raise invalid(criterion, f"{key} must be a whole number in 0..{MAX_MATCHES:,}, got {count!r}.")
    least, most = counts.get("min_matches", 0), counts.get("max_matches")
    if "must_match" in given:
        raise invalid(criterion, "give either must_match or min_matches and max_matches, not both.")
    if least == 0 and most is None:
        raise invalid(criterion, "min_matches of 0 asks for nothing; give max_matches, too, or at least 1.")
    if most is not None and most < least:
        raise invalid(criterion, f"max_matches ({most}) is less than min_matches ({least}).")
    return least, most


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 (enough to find it)


def count(criterion: QualityCriterion) -> Evaluator:
    """Count the words, characters, lines or bullets of an output's text: 1.0 within the limits, else 0.0.

    Configuration: `at_least`, `at_most`, or both; `raw`, True to count the Markdown fence, too, of an output
    that is one fenced block. A word is separated by white space and has a letter or a digit. Characters do
    not include white space at either end, lines do not include blank ones. A bullet is a line that begins
    with `-`, `*`, `+`, `•` or a number. Raises `ConfigError` for an invalid configuration.
    """
    unit = criterion.evaluator
    check_keys(criterion, "at_least", "at_most", "raw")
    answer, counted = answer_in(criterion), COUNTED[unit]
    given = criterion.evaluator_config
    least, most = given.get("at_least"), given.get("at_most")
    for key in ("at_least", "at_most"):
        bound = given.get(key)
        if key in given and (isinstance(bound, bool) or not isinstance(bound, int) or bound < 0):
            raise invalid(criterion, f"{key} must be a whole number of at least 0, got {bound!r}.")
    if not least and most is None:
        raise invalid(criterion, f"{unit} needs at_least (1 or more) or at_most.")
    if least and most is not None and most < least:
        raise invalid(criterion, f"at_most ({most}) is less than at_least ({least}).")
    bounds = _bounds_said(least or 0, most)
    wanted = f": {criterion.description}" if criterion.description else ""

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        found = counted(as_text(answer(output)[0]))
        if found >= (least or 0) and (most is None or found <= most):
            return PASSED
        name = unit if found != 1 else unit.removesuffix("s")
        return failed(Issue(f"Found {found} {name}, expected {bounds}{wanted}", criterion.name))

    return check


def _bounds_said(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least}"
    if not least:
        return f"at most {most}"
    return f"exactly {most}" if least == most else f"{least} to {most}"


_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)])\s+\S")


def _words(text: str) -> int:
    return sum(any(map(str.isalnum, part)) for part in text.split())


def _lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def _bullets(text: str) -> int:
    return sum(_BULLET.match(line) is not None for line in text.splitlines())


def _characters(text: str) -> int:
    return len(text.strip())


COUNTED = {"words": _words, "characters": _characters, "lines": _lines, "bullets": _bullets}


def function(criterion: QualityCriterion) -> Evaluator:
    """Let a function judge: its return value is the verdict, an exception leaves the criterion unknown.

    Configuration: `function`, a callable that takes the output (and the `RunContext` if it asks for one), or
    `"package.module:name"`; `score_max`, the best score if that is not 1; `raw`, True to pass the Markdown
    fence, too, of an output that is one fenced block. Raises `ConfigError` if there is no such function. A
    programming mistake in it (`TypeError`, `AttributeError`, `NameError`, a forgotten `return`) is raised
    with a note that names the criterion; so is a `ModelError`, because another try may succeed.
    """
    check_keys(criterion, "function", "score_max", "raw")
    answer = answer_in(criterion)
    named = required(criterion, "function")
    fn = _imported(criterion, named) if isinstance(named, str) else named
    score_max = criterion.evaluator_config.get("score_max")
    if score_max is not None and (not is_number(score_max) or score_max <= 0):
        raise invalid(criterion, f"score_max must be a number above 0, got {score_max!r}.")
    try:
        judge = evaluator(fn, criterion.threshold, score_max, "the function")
    except ConfigError as error:
        raise invalid(criterion, str(error)) from error

    async def check(output: Output, run: RunContext, /) -> ReflectionEvaluation:
        given, first_line = answer(output)
        try:
            evaluation = await judge(given, run)
        except ModelError:
            raise
        except MISTAKES as error:
            error.add_note(f"{CRITERION_FUNCTION_NOTE}{criterion.name!r}")
            raise
        except Exception as error:  # noqa: BLE001 (the user's code: whatever it raises, it did not judge)
            return unknown(criterion, f"the function raised {type(error).__name__}: {error}")
        return _placed(evaluation, criterion.name, first_line - 1)

    return check


def _imported(criterion: QualityCriterion, path: str) -> Callable[..., Any]:
    if ":" not in path:
        raise invalid(criterion, f"function must be callable or 'package.module:name', got {path!r}.")
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise invalid(criterion, f"function {path!r} can't be imported: {error}.") from error


def _placed(evaluation: ReflectionEvaluation, name: str, skipped: int) -> ReflectionEvaluation:
    """Give issues the criterion's name, and lines of the whole output: `skipped` lines precede the answer."""
    if not any(issue.criterion is None or (skipped and issue.line) for issue in evaluation.issues):
        return evaluation
    issues = tuple(
        Issue(issue, issue.criterion or name, issue.path, issue.line and issue.line + skipped)
        for issue in evaluation.issues
    )
    return replace(evaluation, issues=issues)


def check_keys(criterion: QualityCriterion, *known: str) -> None:
    """Raise `ConfigError` for keys that the criterion's evaluator does not know."""
    for key in criterion.evaluator_config:
        if key not in known:
            raise invalid(criterion, f"{criterion.evaluator} has no {key!r}; {nearest(str(key), known)}")


def required(criterion: QualityCriterion, key: str) -> Any:
    """Return a value that the configuration must have; raises `ConfigError` if it does not."""
    try:
        return criterion.evaluator_config[key]
    except KeyError:
        raise invalid(criterion, f"{criterion.evaluator} needs {key!r} in evaluator_config.") from None


def raw_of(criterion: QualityCriterion) -> bool:
    """Return whether a criterion wants an output as it is, including its Markdown fence."""
    raw = criterion.evaluator_config.get("raw", False)
    if not isinstance(raw, bool):
        raise invalid(criterion, f"raw must be true or false, got {raw!r}.")
    return raw


def answer_in(criterion: QualityCriterion) -> Callable[[Any], tuple[Any, int]]:
    """Return a function that gives the answer in an output, and the line (1-based) on which it begins.

    Chat models put answers into a Markdown fence: a text that is one fenced block is checked without it,
    unless the criterion's configuration says `raw: true`.
    """
    raw = raw_of(criterion)

    def answer(output: Any) -> tuple[Any, int]:
        return unfenced(output) if isinstance(output, str) and not raw else (output, 1)

    return answer


def invalid(criterion: QualityCriterion, what: str) -> ConfigError:
    """Return the error for a criterion that is configured wrongly."""
    return ConfigError(f"Criterion {criterion.name!r}: {what}")
