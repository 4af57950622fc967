"""Criteria: the default sets, how evaluators read their configuration, and the verdict on a criterion."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial, wraps
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, get_origin

from redraft._calls import importable_name
from redraft._codec import is_record, to_json
from redraft._texts import short_repr, type_name
from redraft._validation import nearest, repr_of
from redraft.errors import ConfigError
from redraft.text.replies import BOM, unfenced
from redraft.types import (
    NOT_JUDGED,
    Issue,
    QualityCriterion,
    ReflectionEvaluation,
    in_one_line,
    in_prose,
    unwrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redraft.types import Criterion

P = ParamSpec("P")
T = TypeVar("T")
LONGEST_NAME = 80
MISSPELLING = 0.8
"""How similar (0..1) an unknown task type must be to a default type to count as a misspelling of it."""


def criteria_of(criteria: Sequence[Criterion] | None, task_type: str = "") -> tuple[QualityCriterion, ...]:
    """The criteria in full; for None, the default set of the task type.

    A name, or a criterion for a model without a description, gets the description of the default criterion
    of that name, preferably of this task type. A sentence becomes a criterion of its own. Functions, compiled
    patterns, types and JSON Schemas become checks. An unknown task type has the general set. Raises
    `ConfigError` for an empty list, a duplicate name, weights that are all 0, anything that is not a
    criterion, and, without criteria, a misspelled task type.
    """
    kind = _kind(task_type)
    if criteria is None:
        if kind not in DEFAULTS and _is_misspelled(kind):
            check_task_type(task_type)
        return _defaults(kind if kind in DEFAULTS else "")
    if isinstance(criteria, str) or not isinstance(criteria, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
        raise ConfigError(
            f"Criteria must be a list, got {short_repr(criteria)}; put a single criterion in brackets: [...]."
        )
    chosen = tuple(_criterion(item, kind) for item in criteria)
    if not chosen:
        raise ConfigError("The list of criteria is empty; give at least one, or None for the defaults.")
    names = [criterion.name for criterion in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"Duplicate criterion {name!r}; names must be unique: QualityCriterion(name, ...) gives a "
                "criterion another one."
            )
    if not any(criterion.weight for criterion in chosen):
        raise ConfigError("All criteria have a weight of 0; at least one must count.")
    return chosen


def check_task_type(task_type: str) -> None:
    """Raise `ConfigError` for a task type that has no default criteria."""
    if task_type and _kind(task_type) not in DEFAULTS:
        hint = nearest(_kind(task_type), DEFAULTS)
        raise ConfigError(
            f"task_type: there are no default criteria for {task_type!r}; {hint} "
            "With a type of your own, give quality_criteria."
        )


def check_comparable(criteria: Sequence[QualityCriterion]) -> None:
    """Raise `ConfigError` if none of the criteria can judge the first version of a run."""
    counting = [criterion for criterion in criteria if criterion.weight]
    if all(
        criterion.evaluator == "compare" and "against" in criterion.evaluator_config for criterion in counting
    ):
        raise ConfigError(
            f"Criterion {counting[0].name!r}: compare with 'against' judges a version by an earlier one, and "
            "nothing judges the first: add another criterion, or compare with a 'reference'."
        )


def recorded(criteria: Sequence[QualityCriterion]) -> list[dict[str, Any]]:
    """Criteria as JSON data; a function is written as its import path."""
    return [
        to_json(
            replace(
                criterion,
                evaluator_config={key: _named(value) for key, value in criterion.evaluator_config.items()},
            )
            if criterion.evaluator_config
            else criterion
        )
        for criterion in criteria
    ]


def _named(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_named(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, PurePath):
        return str(value)
    return importable_name(value) or value if callable(value) else value


def is_test(criterion: QualityCriterion) -> bool:
    """Whether a criterion runs the output on test cases: a failure says what came out, not what to do."""
    if criterion.evaluator == "command":
        return not criterion.evaluator_config.keys().isdisjoint(("tests", "calls"))
    return criterion.evaluator == "generated_tests"


def needs_model(criterion: QualityCriterion) -> bool:
    """Whether a model judges a criterion."""
    if criterion.evaluator == "compare":
        return criterion.evaluator_config.get("method", "judge") == "judge"
    return criterion.evaluator in ("llm", "generated_tests")


def _kind(task_type: str) -> str:
    return "_".join(task_type.lower().replace("-", " ").replace("_", " ").split())


def _is_misspelled(kind: str) -> bool:
    from difflib import get_close_matches  # noqa: PLC0415 (needed for unknown task types only)

    return bool(get_close_matches(kind, DEFAULTS, 1, MISSPELLING))


@cache  # many programs make a pattern for each run
def _defaults(kind: str) -> tuple[QualityCriterion, ...]:
    return tuple(QualityCriterion(name, text) for name, text in DEFAULTS.get(kind, GENERAL).items())


def _criterion(criterion: Criterion, kind: str) -> QualityCriterion:
    if isinstance(criterion, QualityCriterion):
        if criterion.evaluator == "function":
            return described(criterion, criterion.evaluator_config.get("function"))
        if criterion.description or criterion.evaluator not in ("llm", "compare"):
            return criterion
        return replace(criterion, description=_description(criterion.name, kind))
    if isinstance(criterion, str):
        text = criterion.strip()
        if re.fullmatch(r"\S+\.(ya?ml|json)", text):
            raise ConfigError(
                f"{text!r} is the name of a file, not a criterion; "
                f"redraft.loop.read_criteria({text!r}).criteria reads its criteria."
            )
        name = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 3].rsplit(' ', 1)[0]}..."
        return QualityCriterion(name, _description(text, kind))
    if isinstance(criterion, re.Pattern):
        return _pattern_check(criterion)
    if isinstance(criterion, Mapping):
        return _schema_check(cast("Mapping[str, Any]", criterion))
    if isinstance(criterion, type) or get_origin(criterion) is not None:
        return _type_check(criterion)
    if not callable(criterion):
        raise ConfigError(
            "A criterion must be a sentence, a name, a QualityCriterion, a function, a compiled pattern, a "
            f"pydantic class, a data class or a JSON Schema, got {repr_of(criterion)}."
        )
    return _function_check(criterion)


# Checks in their short forms.

_INLINE_FLAGS = re.compile(r"\(\?[aiLmsux]+\)")
_FLAG_LETTERS = ((re.IGNORECASE, "i"), (re.MULTILINE, "m"), (re.DOTALL, "s"), (re.VERBOSE, "x"))
_SCHEMA_KEYS = frozenset(
    (
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
    )
)
"""A JSON Schema without any of these keys accepts everything."""
_SAYS_WHETHER = re.compile(
    r"(?:(?:Returns?|Checks?|Tests?|Says?|Verify|Verifies) (?:True )?(?:whether|if|that)|Whether|True if) "
)
"""How docstrings of checks begin, before the sentence that holds for a good output."""


def _pattern_check(pattern: re.Pattern[Any]) -> QualityCriterion:
    source = pattern.pattern
    if not isinstance(source, str):
        raise ConfigError(f"A pattern must match text, not bytes, got {repr_of(pattern)}.")
    if pattern.flags & re.ASCII:
        raise ConfigError(
            f"The pattern {source!r}: re.ASCII can't be used; name the characters, such as [0-9] for \\d."
        )
    letters = "".join(letter for flag, letter in _FLAG_LETTERS if pattern.flags & flag)
    source = _INLINE_FLAGS.sub("", source, count=1) if _INLINE_FLAGS.match(source) else source
    shown = " ".join(source.split()) if pattern.flags & re.VERBOSE else in_one_line(source)
    shown += f" ({letters})" if letters else ""
    name = f"matches {shown}"
    return QualityCriterion(
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}...",
        evaluator="regex",
        evaluator_config={"pattern": source, **({"flags": letters} if letters else {})},
    )


def _schema_check(schema: Mapping[str, Any]) -> QualityCriterion:
    if _SCHEMA_KEYS.isdisjoint(schema):
        raise ConfigError(
            "A mapping as a criterion is a JSON Schema, with a key such as 'type' or 'properties', got "
            f"{short_repr(schema)}. Anything else is written as QualityCriterion(name=...)."
        )
    name = str(schema.get("title") or "JSON Schema")
    return QualityCriterion(name, evaluator="schema", evaluator_config={"schema": dict(schema)})


def _type_check(kind: Any) -> QualityCriterion:
    # `typing.is_typeddict` is False for a TypedDict of `typing_extensions`.
    if isinstance(kind, type) and not is_record(kind) and not hasattr(kind, "__required_keys__"):
        raise ConfigError(
            "A class as a criterion must be a pydantic model, a data class or a TypedDict, which the output "
            f"has to fit, got {repr_of(kind)}."
        )
    return QualityCriterion(type_name(kind), evaluator="schema", evaluator_config={"schema": kind})


def _function_check(function: Callable[..., Any]) -> QualityCriterion:
    named: Any = function
    while isinstance(named, partial):
        named = cast("Any", named).func
    name = getattr(named, "__name__", None) or type(named).__name__
    if name == "<lambda>":
        raise ConfigError(
            "A lambda has no name to call the criterion by: define a function, such as `def is_short(text): "
            "...`, or write QualityCriterion('is short', evaluator='function', evaluator_config={'function': "
            "lambda ...})."
        )
    criterion = QualityCriterion(name, evaluator="function", evaluator_config={"function": function})
    return described(criterion, function)


def described(criterion: QualityCriterion, function: Any) -> QualityCriterion:
    """The criterion; without a description, the docstring of its function is the description."""
    if criterion.description:
        return criterion
    while isinstance(function, partial):
        function = cast("Any", function).func
    about = (inspect.getdoc(function) or "") if inspect.isroutine(function) else ""
    about = _SAYS_WHETHER.sub("", unwrapped(about.partition("\n\n")[0]), count=1)
    return replace(criterion, description=about[:1].upper() + about[1:])


def _description(name: str, kind: str) -> str:
    """Describe a criterion to a judge, given its name; a sentence describes itself."""
    key = "_".join(name.lower().removesuffix(".").replace("-", " ").split())
    for descriptions in (DEFAULTS.get(kind, GENERAL), *DEFAULTS.values(), GENERAL, OTHERS):
        if key in descriptions:
            return descriptions[key]
    if " " in name or name.endswith((".", "!", "?")):
        return name
    plain = name.replace("_", " ").replace("-", " ")
    return (
        f'How well the output does on "{plain}". Good: a reader who cares about this would change nothing. '
        "Bad: it is missing, or gets in the reader's way."
    )


# The configuration of a criterion.


def invalid(criterion: QualityCriterion, what: str) -> ConfigError:
    """The error for a criterion with an invalid configuration."""
    return ConfigError(f"Criterion {criterion.name!r}: {what}")


def names_criterion(
    read: Callable[Concatenate[QualityCriterion, P], T],
) -> Callable[Concatenate[QualityCriterion, P], T]:
    """Let the `ConfigError`s of a function begin with the name of the criterion, its first argument."""

    @wraps(read)
    def named(criterion: QualityCriterion, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(criterion, *args, **kwargs)
        except ConfigError as error:
            what = str(error)
            if what.startswith("Criterion "):
                raise
            raise invalid(criterion, what if what.endswith((".", "?")) else f"{what}.") from error

    return named


def check_keys(criterion: QualityCriterion, *known: str) -> None:
    """Raise `ConfigError` for options that the criterion's evaluator does not have."""
    for key in criterion.evaluator_config:
        if key not in known:
            raise invalid(
                criterion, f"{criterion.evaluator} has no option {key!r}; {nearest(str(key), known)}"
            )


def required(criterion: QualityCriterion, key: str) -> Any:
    """A value that the configuration must have; raises `ConfigError` if it does not."""
    try:
        return criterion.evaluator_config[key]
    except KeyError:
        raise invalid(criterion, f"{criterion.evaluator} needs {key!r} in evaluator_config.") from None


def is_raw(criterion: QualityCriterion) -> bool:
    """Whether a criterion judges an output as it is, including its Markdown fence."""
    raw = criterion.evaluator_config.get("raw", False)
    if not isinstance(raw, bool):
        raise invalid(criterion, f"raw must be true or false, got {repr_of(raw)}.")
    return raw


def answer_in(output: Any, raw: bool) -> tuple[Any, int]:
    """The answer in an output, and the line (1-based) on which it begins.

    Unless `raw`, removes the Markdown fence that chat models put around an answer, a byte order mark, and
    the carriage returns before line feeds.
    """
    if raw or not isinstance(output, str):
        return output, 1
    return unfenced(output.removeprefix(BOM).replace("\r\n", "\n"))


# The verdict on a criterion.

PASSED = ReflectionEvaluation(1.0, satisfactory=True)
"""The criterion is met."""

NOT_APPLICABLE = ReflectionEvaluation(None, satisfactory=True)
"""There is nothing to judge: no score, and satisfactory."""

SKIPPED = ReflectionEvaluation(None)
"""Not judged, because no model may be called; no issue."""


def failed(*issues: Issue) -> ReflectionEvaluation:
    """The verdict of a failed criterion, with the reasons."""
    return ReflectionEvaluation(0.0, {}, issues=issues)


def unknown(criterion: QualityCriterion, why: str) -> ReflectionEvaluation:
    """The verdict of a criterion that could not be judged."""
    issue = Issue(f"{NOT_JUDGED}{why}", criterion.name)
    return ReflectionEvaluation(None, issues=(issue,), confidence=0.0)


def applies(evaluation: ReflectionEvaluation) -> bool:
    """Whether a criterion applied to the output: it has a score, or is not satisfactory."""
    return evaluation.overall_score is not None or not evaluation.satisfactory


def shortfall(criterion: QualityCriterion, score: float | None, reason: str = "") -> Issue:
    """The issue of a criterion below its threshold, for a verdict without a more specific issue."""
    name = in_prose(criterion.name)
    if score is None or score >= criterion.threshold:
        missed = f"{name} was refused by its own evaluator"
    else:
        missed = f"{name} scored {score:.2f}, needs {criterion.threshold:.2f}"
    return Issue(f"{missed}: {reason}" if reason else missed, criterion.name)


def weighted_mean(criteria: Iterable[QualityCriterion], scores: Mapping[str, float | None]) -> float | None:
    """Weighted mean of the scores that are not None; None without a weighted score."""
    scored = [
        (criterion.weight, score)
        for criterion in criteria
        if criterion.weight and (score := scores.get(criterion.name)) is not None
    ]
    if not scored:
        return None
    if len(scored) == 1:
        return scored[0][1]
    # Rounded, so that three scores of 0.7 reach a threshold of 0.7.
    return round(sum(weight * score for weight, score in scored) / sum(weight for weight, _ in scored), 12)


def meets(criteria: Iterable[QualityCriterion], threshold: float, scores: Mapping[str, float | None]) -> bool:
    """Whether every criterion reaches its threshold, and the overall score reaches `threshold`.

    A criterion without an entry in `scores` does not apply; a score of None is not met.
    """
    criteria = tuple(criteria)
    if not all(
        (score := scores[criterion.name]) is not None and score >= criterion.threshold
        for criterion in criteria
        if criterion.name in scores
    ):
        return False
    overall = weighted_mean(criteria, scores)
    return threshold == 0 or (overall is not None and overall >= threshold)


def agreement(
    criteria: Sequence[QualityCriterion],
    threshold: float,
    scores: Mapping[str, float | None],
    samples: Sequence[Mapping[str, float]],
) -> float:
    """The share of a judge's samples that lead to the same verdict as all samples together.

    `scores` has all criteria; each sample replaces the scores of the criteria that were judged.
    """
    if not samples:
        return 1.0
    verdict = meets(criteria, threshold, scores)
    return sum(meets(criteria, threshold, {**scores, **sample}) is verdict for sample in samples) / len(
        samples
    )


# What a judge looks at, by task type and name.

CODE_GENERATION = {
    "correctness": (
        "The code does what the task asks, for every input that the task allows. Good: tracing it by hand on "
        "typical inputs gives the right result, names and signatures are those asked for, it runs as it "
        "stands. Bad: a wrong result, a syntax error, an undefined name, a misread requirement, a stub."
    ),
    "efficiency": (
        "The code needs no more time and memory than the problem does. Good: a complexity that fits the "
        "expected input sizes, no repeated work. Bad: nested loops where one pass or a dictionary would do, "
        "repeated copies, exponential recursion without need."
    ),
    "readability": (
        "Another engineer understands the code at first reading. Good: telling names, short functions with "
        "one purpose each, the usual idioms of the language. Bad: cryptic names, deep nesting, duplicated or "
        "dead code, comments that repeat the code or contradict it."
    ),
    "edge_cases": (
        "The code copes with the inputs at the rim: empty, one element, duplicates, zero and negative "
        "numbers, very large, malformed, None. Good: each gives a sensible result or a clear error. Bad: a "
        "crash, an endless loop or a silently wrong result for any of them."
    ),
}

WRITING = {
    "clarity": (
        "The intended reader understands each sentence at first reading. Good: plain words, concrete "
        "statements, terms explained where they first appear. Bad: vague or convoluted sentences, jargon "
        "without explanation, pronouns without a clear referent."
    ),
    "coherence": (
        "The text hangs together. Good: an order that a reader can follow, each paragraph has one point and "
        "leads to the next, nothing contradicts anything else. Bad: jumps, repetitions, contradictions, "
        "paragraphs that could stand in any order."
    ),
    "completeness": (
        "Everything that was asked for is there. Good: each part of the request is answered in fitting "
        "depth, and requested form and length are kept. Bad: a part is left out, only announced, or cut off."
    ),
    "tone": (
        "The voice fits the audience and the purpose. Good: a consistent register that this reader would "
        "expect. Bad: too stiff or too casual, salesmanship, flattery, clichés, changes of voice midway."
    ),
}

ANALYSIS = {
    "accuracy": (
        "Statements, figures and quotations are right and follow from the material. Good: every claim can be "
        "checked against the given facts, and uncertainty is named. Bad: invented or misquoted facts, wrong "
        "arithmetic, guesses presented as facts."
    ),
    "depth": (
        "The analysis goes beyond the surface. Good: causes, mechanisms, trade-offs and consequences, with "
        "evidence. Bad: a summary of the obvious, lists without weighing, conclusions without reasons."
    ),
    "relevance": (
        "Everything in it serves the question. Good: the question is answered early and each part bears on "
        "it. Bad: digressions, background that nobody asked for, an answer to another question."
    ),
    "objectivity": (
        "The judgement is fair. Good: the strongest counter-arguments and limits are stated, evidence and "
        "opinion are kept apart. Bad: cherry-picked evidence, loaded words, one side only."
    ),
}

REASONING = {
    "logical_validity": (
        "Each step follows from what was given or shown before. Good: somebody who checks line by line finds "
        "no gap, and arithmetic is right. Bad: a step that does not follow, circularity, an assumption used "
        "without being stated, a conclusion that the steps do not support."
    ),
    "completeness": (
        "The reasoning covers the whole question. Good: all cases and given conditions are used, and a final "
        "answer is stated. Bad: a case is forgotten, a condition is ignored, the final answer is missing."
    ),
    "clarity": (
        "The argument can be followed without guessing. Good: steps in order, quantities named and with "
        "units, the final answer easy to find. Bad: skipped steps, symbols without meaning, a muddled order."
    ),
}

DEFAULTS = {
    "code_generation": CODE_GENERATION,
    "writing": WRITING,
    "analysis": ANALYSIS,
    "reasoning": REASONING,
}

GENERAL = {
    "correctness": (
        "The output is right. Good: its statements hold, it does what the task asks and keeps to every "
        "stated constraint. Bad: an error of fact or logic, a violated constraint, a misread request."
    ),
    "completeness": WRITING["completeness"],
    "clarity": WRITING["clarity"],
}
"""The set for a task without a type or with an unknown type."""

OTHERS = {
    "engagement": (
        "The text keeps its reader reading. Good: an opening that gives a reason to go on, examples that "
        "speak to the reader, varied sentences. Bad: a slow start, abstract passages without examples, "
        "monotony."
    ),
    "structure": (
        "The form helps the reader. Good: headings, paragraphs and lists where they help, in an order that "
        "matches how the text is used. Bad: a wall of text, headings that mislead, lists of unlike things."
    ),
    "conciseness": (
        "No word could go without loss. Good: each sentence adds something. Bad: padding, repetition, "
        "announcements of what comes, restating the question."
    ),
    "style": (
        "The language is well made. Good: precise verbs, natural rhythm, correct and idiomatic usage. Bad: "
        "awkward or bloated sentences, clichés, needless passives."
    ),
    "grammar": (
        "Spelling, grammar and punctuation are right. Good: a copy editor finds nothing. Bad: any mistake "
        "that a careful reader notices; the more and the worse, the lower."
    ),
    "originality": (
        "The output has something of its own. Good: an idea, angle or example that fits this task and no "
        "other. Bad: interchangeable phrases, the first thing that comes to anybody's mind."
    ),
    "helpfulness": (
        "The person who asked can act on it. Good: the actual need is met, next steps are concrete. Bad: "
        "general advice, a lecture, a refusal without need, an answer beside the point."
    ),
    "safety": (
        "Following the output harms nobody. Good: risks are named where they matter and dangerous defaults "
        "are avoided. Bad: harmful instructions, private data, advice that is dangerous as it stands."
    ),
    "security": (
        "The code cannot be turned against its users. Good: input is validated, queries and commands are "
        "built safely, no secret stands in the source. Bad: injection, unsafe deserialisation, path "
        "traversal, weak cryptography, secrets in code or logs."
    ),
    "testability": (
        "The code can be tested without effort. Good: pure functions, dependencies passed in, small units. "
        "Bad: hidden global state, I/O mixed with logic, clocks and randomness that cannot be replaced."
    ),
    "documentation": (
        "A user of the code knows how to use it. Good: purpose, arguments, results and errors are stated "
        "where they are not obvious. Bad: nothing, or text that repeats names or contradicts the code."
    ),
}
"""Common criteria that belong to no task type."""
