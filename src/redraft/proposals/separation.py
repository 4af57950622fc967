"""Separation: the simplest checks that good outputs pass and failed outputs don't."""

# This module does not know where outputs come from. A family drafts checks of one sort from failed and good
# outputs; a draft counts only if all good outputs pass it. Drafts are measured on held-out outputs: checks
# from each half of the runs are tried on the other half.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import comb, log10
from os.path import commonprefix
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from redraft._texts import as_text, json_data, listed
from redraft.errors import ConfigError, OutputError
from redraft.evaluate.checks import MEASURES
from redraft.evaluate.criteria import answer_in
from redraft.proposals.vocabulary import (
    LANGUAGES,
    NUMBER_WORDS,
    NUMBERED,
    SCRIPTS,
    SIGNS,
    SPOKEN,
    WORD,
    Sign,
    has_keys,
    is_common,
    language_pattern,
)
from redraft.text.regex import compile_pattern
from redraft.text.replies import json_of
from redraft.text.schema import Schema
from redraft.types import COUNTS, Output

FEWEST = 2
"""Minimum runs of failed outputs that a check must catch, so that it is not about a single output."""
FEWEST_IN_HALF = 2
"""Minimum runs on each side of a half; with fewer, no outputs are held out."""
CLOSE = 0.1
"""A simpler check may catch less than the best check by up to this share."""
LONGEST_QUOTED = 40
"""Maximum characters of an output's text in a check; a longer text is a passage, not a word or an ending."""
MOST_TOKENS = 400
"""Maximum words of an output that are compared with other outputs."""
LONGEST_READ = 20_000
"""Maximum characters of an output that drafting reads; a trial reads all."""
MOST_COUNTED = 100
"""Maximum count of a sign."""
NOT_JSON = object()

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """An output, with its run and the task that it answers."""

    output: Output
    run: str
    task: str = ""

    @cached_property
    def answer(self) -> str:
        """The text that checks see."""
        return as_text(answer_in(self.output, raw=False)[0])

    @cached_property
    def text(self) -> str:
        """The answer; if it is long, only its beginning and end."""
        return _ends_of(self.answer)

    @cached_property
    def raw(self) -> str:
        """The text with the Markdown fence around it, if it has one."""
        return _ends_of(as_text(self.output))

    @cached_property
    def data(self) -> Any:
        """The output as JSON data; otherwise `NOT_JSON`."""
        try:
            return json_of(self.output) if isinstance(self.output, str) else json_data(self.output)
        except (OutputError, ValueError):
            return NOT_JSON

    @cached_property
    def values(self) -> dict[Place, list[Any]]:
        """The values at each place of its JSON data."""
        values: dict[Place, list[Any]] = {}
        if self.data is not NOT_JSON:
            _collect(self.data, (), values)
        return values

    @cached_property
    def grams(self) -> frozenset[str]:
        """Its words, and up to three in a row, in lower case."""
        return frozenset(_grams(self.text))

    @cached_property
    def shapes(self) -> frozenset[tuple[int, str]]:
        """The shapes of its words that have a digit, such as dates and codes, from specific to general."""
        return frozenset(_shapes(self.text))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The headings and labels at the beginning of its lines, in order."""
        matches = (next(filter(None, match.groups())) for match in _LABEL.finditer(self.text))
        return tuple(dict.fromkeys(" ".join(label.split()) for label in matches))


def _ends_of(text: str) -> str:
    return text if len(text) <= LONGEST_READ else f"{text[: LONGEST_READ // 2]}\n{text[-LONGEST_READ // 2 :]}"


@dataclass(frozen=True, slots=True)
class Hints:
    """People's and judges' words on the failure; they decide between checks that separate equally well."""

    text: str = ""
    numbers: frozenset[int] = frozenset()
    words: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *texts: str) -> Hints:
        """The hints in some texts."""
        text = "\n".join(texts).casefold()
        words = {word.removesuffix("s") for word in re.findall(r"[^\W\d_]+", text)}
        spelled = {number for number, word in enumerate(NUMBER_WORDS) if word in words}
        numbers = {int(number) for number in re.findall(r"(?<![\d.,-])\d{1,6}(?![\d.,-]*\d)", text)}
        return cls(text, frozenset(numbers | spelled), frozenset(words))

    def about(self, *words: str) -> int:
        """1 if the texts have one of these singular words, else 0."""
        return int(not self.words.isdisjoint(words))

    def quotes(self, *texts: str) -> int:
        """2 if the hints contain one of these texts as whole words, else 0; common words never count."""
        significant = (text.casefold() for text in texts if not is_common(text))
        return 2 * any(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", self.text) for text in significant)


@dataclass(frozen=True, slots=True)
class CheckDraft:
    """A check: an evaluator that runs no code, and its configuration."""

    kind: str
    """The same for this check drafted from other outputs, perhaps with another limit."""
    evaluator: str
    config: Mapping[str, Any]
    rank: int
    """The lower, the more likely the check is the intended one."""
    hints: int = 0
    says: str = ""
    """The requirement in words, if the configuration does not express it."""
    quotes: tuple[str, ...] = ()
    """The texts from outputs in it."""


def _regex(
    kind: str,
    pattern: str,
    rank: int,
    hints: int = 0,
    says: str = "",
    quotes: Iterable[str] = (),
    **options: Any,
) -> CheckDraft:
    """A pattern that must match, unless the `options` say otherwise."""
    return CheckDraft(kind, "regex", {"pattern": pattern, **options}, rank, hints, says, tuple(quotes))


class HeldOut(NamedTuple):
    """How checks from one half of the runs did on the other half."""

    caught: int
    bad: int
    refused: int
    good: int

    @property
    def p_value(self) -> float:
        """The probability of catching this many failed outputs by chance."""
        return chance_of(*self)


def chance_of(caught: int, bad: int, refused: int, good: int) -> float:
    """The probability that at least `caught` of the refused outputs are bad by chance alone.

    This is Fisher's exact test.
    """
    every, hits = bad + good, caught + refused
    ways = sum(comb(bad, count) * comb(good, hits - count) for count in range(caught, min(bad, hits) + 1))
    return ways / comb(every, hits)


@dataclass(frozen=True, slots=True)
class Separation:
    """A draft that refuses no good output, and the failed outputs that it catches."""

    draft: CheckDraft
    caught: tuple[Sample, ...]
    held_out: HeldOut | None = None
    """None if there are too few outputs to hold any out."""
    family: str = ""
    """The sort of check, such as limits."""
    tries: int = 1
    """The number of checks of its sort that were drafted, some of which separate by chance; 1 with a hint."""

    @property
    def is_chance(self) -> bool:
        """Whether checks of its sort may catch as much in outputs that do not differ."""
        held_out = self.held_out
        return held_out is not None and held_out.p_value * max(1, self.tries / FEW_TRIES) > LEVEL


def separations(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> list[Separation]:
    """The checks that separate failed outputs from good ones, the best first.

    The best check catches most; of checks that catch about as many, it is the one with a hint, then the
    simplest.
    """
    whole = _drafted(bad, good, hints)
    folds = halves(bad, good)
    by_half = [_drafted(*half, hints, whole.keys()) for half in folds]
    results: list[Separation] = []
    drafts_of = Counter(candidate.family for candidate in whole.values())
    for kind, (draft, test, family) in whole.items():
        caught = tuple(sample for sample in bad if not test(sample))
        held_out = None
        if folds:
            figures = [0, len(bad), 0, len(good)]
            for drafted, (others_bad, others_good) in zip(by_half, reversed(folds), strict=True):
                if kind in drafted:
                    other_test = drafted[kind].test
                    figures[0] += sum(not other_test(sample) for sample in others_bad)
                    figures[2] += sum(not other_test(sample) for sample in others_good)
            held_out = HeldOut(*figures)
        results.append(Separation(draft, caught, held_out, family, 1 if draft.hints else drafts_of[family]))
    most = max((len(result.caught) for result in results), default=0)

    def order(result: Separation) -> tuple[Any, ...]:
        draft, lost = result.draft, 1 - len(result.caught) / most
        return (
            result.is_chance,
            int(lost / CLOSE + 1e-9),
            -draft.hints,
            draft.rank,
            -len(result.caught),
            len(json.dumps(draft.config)),
        )

    return sorted(results, key=order)


def weaker_drafts(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> list[CheckDraft]:
    """Checks that may refuse a few good outputs, best first: each is drafted from a quarter of these.

    A single output that is called good by mistake would hide the right check.
    """
    best: dict[str, tuple[float, CheckDraft]] = {}
    for quarter in range(4):
        for kind, (draft, test, _) in _drafted(bad, good[quarter::4], hints).items():
            refused = [sum(not test(sample) for sample in side) for side in (bad, good)]
            chance = chance_of(refused[0], len(bad), refused[1], len(good))
            if chance <= LEVEL and (kind not in best or chance < best[kind][0]):
                best[kind] = chance, draft
    ordered = sorted(
        best.values(), key=lambda scored: (round(log10(scored[0])), -scored[1].hints, scored[1].rank)
    )
    return [draft for _, draft in ordered]


LEVEL = 0.001
"""The p value below which a check is not accidental, although several sorts of checks were tried."""
FEW_TRIES = 10
"""Up to this many checks of a sort need no lower p value; there may be a hundred words to choose from."""

Test = Callable[[Sample], bool]


class _Drafted(NamedTuple):
    draft: CheckDraft
    test: Test
    family: str


def _drafted(
    bad: Sequence[Sample], good: Sequence[Sample], hints: Hints, kinds: Iterable[str] | None = None
) -> dict[str, _Drafted]:
    """The first draft of each kind that refuses failed outputs of some runs and no good output."""
    candidates: dict[str, _Drafted] = {}
    if not good:
        return candidates
    fewest = min(FEWEST, len({sample.run for sample in bad}))
    for family in FAMILIES:
        for draft in family(bad, good, hints):
            if draft.kind in candidates or (kinds is not None and draft.kind not in kinds):
                continue
            if any(len(quoted) > LONGEST_QUOTED for quoted in draft.quotes):
                continue
            try:
                test = test_of(draft.evaluator, draft.config)
            except ConfigError:  # a key or a text that a pattern or schema can't express
                continue
            separates = (
                all(map(test, good)) and len({sample.run for sample in bad if not test(sample)}) >= fewest
            )
            if separates and not _is_of_tasks(draft, test, bad, good):
                candidates[draft.kind] = _Drafted(draft, test, family.__name__)
    return candidates


def _is_of_tasks(draft: CheckDraft, test: Test, bad: Sequence[Sample], good: Sequence[Sample]) -> bool:
    """Whether a text in a check is the subject of one side's tasks, rather than of their outputs."""

    def share(samples: Sequence[Sample], text: str) -> float:
        return sum(text.casefold() in sample.task.casefold() for sample in samples) / len(samples)

    caught = [sample for sample in bad if not test(sample)]
    return any(abs(share(caught, text) - share(good, text)) > 0.5 for text in draft.quotes)  # noqa: PLR2004 (most of one side)


def halves(bad: Sequence[Sample], good: Sequence[Sample]) -> list[tuple[list[Sample], list[Sample]]]:
    """Two halves of the runs, each with failed and good outputs; empty if there are too few."""
    failed = list(dict.fromkeys(sample.run for sample in bad))
    others = [run for run in dict.fromkeys(sample.run for sample in good) if run not in set(failed)]
    half_of = {run: place % 2 for runs in (failed, others) for place, run in enumerate(runs)}
    folds = [
        (
            [sample for sample in bad if half_of[sample.run] == half],
            [sample for sample in good if half_of[sample.run] == half],
        )
        for half in (0, 1)
    ]
    enough = all(len({sample.run for sample in side}) >= FEWEST_IN_HALF for fold in folds for side in fold)
    return folds if enough else []


def test_of(evaluator: str, config: Mapping[str, Any]) -> Test:
    """A function that says whether a sample passes a check, like its evaluator; raises `ConfigError`."""
    if evaluator in COUNTS:
        measure, least, most = MEASURES[evaluator], config.get("at_least", 0), config.get("at_most")
        return lambda sample: (
            least <= measure(sample.answer) and (most is None or measure(sample.answer) <= most)
        )
    if evaluator == "schema":
        schema = Schema(cast("dict[str, Any]", config["schema"]))
        return lambda sample: sample.data is not NOT_JSON and schema.check(sample.data, coerce=False).valid
    pattern = compile_pattern(config["pattern"], config.get("flags", ""))
    if pattern.linear is None:
        raise ConfigError(f"The pattern {config['pattern']!r} can't be matched in linear time.")
    raw = config.get("raw", False)
    least, most = config.get("min_matches", 1), config.get("max_matches")
    if config.get("must_match") is False:
        least, most = 0, 0
    elif "min_matches" not in config and most is not None:
        least = 0
    limit = least if most is None else most + 1

    def passes(sample: Sample) -> bool:
        count = len(pattern.spans(sample.raw if raw else sample.text, limit))
        return count >= least and (most is None or count <= most)

    return passes


def _in_all(sets: Sequence[frozenset[T]]) -> frozenset[T]:
    return sets[0].intersection(*sets)


# --- limits ------------------------------------------------------------------------------------------------


class _Bounds(NamedTuple):
    kind: str
    least: int | None
    most: int | None
    hints: int
    is_narrow: bool

    def named(self, least: str, most: str) -> dict[str, int]:
        """The limits as options with these names."""
        limits = {least: self.least, most: self.most}
        return {name: limit for name, limit in limits.items() if limit is not None}


def _bounds(
    bad: Sequence[int], good: Sequence[int], hints: Hints, *, in_round_numbers: bool = False
) -> Iterator[_Bounds]:
    """Yield limits of a number that all good outputs meet."""
    low, high = min(good), max(good)
    above, below = [number for number in bad if number > high], [number for number in bad if number < low]
    steps = _STEPS if in_round_numbers else ()
    most = _limit(high, min(above) - 1, hints.numbers, steps) if above else None
    least = _limit(low, max(below) + 1, hints.numbers, steps) if below and low > 0 else None
    strength = 2 * any(limit in hints.numbers for limit in (least, most))
    narrow = bool(above and (min(above) - high) * 10 <= high) or bool(
        below and (low - max(below)) * 10 <= low
    )
    if most is not None:
        yield _Bounds("at most", None, most, strength, narrow)
    if least is not None:
        yield _Bounds("at least", least, None, strength, narrow)
    if most is not None and least is not None:
        yield _Bounds("between", least, most, strength, narrow)


_STEPS = (1000, 500, 250, 100, 50, 25, 20, 10, 5)


def _limit(good: int, bad: int, hinted: Iterable[int], steps: Sequence[int]) -> int:
    """A limit between the last number of good outputs and the first number of failed outputs.

    It is a hinted number, else the roundest number not far from the good outputs.
    """
    first, last = min(good, bad), max(good, bad)
    if within := [number for number in hinted if first <= number <= last]:
        return min(within, key=lambda number: abs(number - good))
    step_to = min(bad, good + good // 4) if bad >= good else max(bad, good - good // 4)
    for step in steps:
        rounded = -(-good // step) * step if bad >= good else good // step * step
        if min(good, step_to) <= rounded <= max(good, step_to) and rounded:
            return rounded
    return good


_UNITS = {
    "bullets": (
        2,
        ("bullet", "item", "point", "list", "entry", "entrie", "step", "number", "count", "many", "few"),
    ),
    "words": (3, ("word", "long", "longer", "short", "shorter", "length", "concise", "brief", "verbose")),
    "lines": (5, ("line",)),
    "characters": (6, ("character", "char", "letter")),
}


_NUMBERED = compile_pattern(NUMBERED.pattern, NUMBERED.flags)


def _counts(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    for unit, (rank, names) in _UNITS.items():
        measure = MEASURES[unit]
        values = [measure(sample.answer) for sample in bad], [measure(sample.answer) for sample in good]
        if unit == "bullets" and not min(values[1]):
            continue
        is_numbered = unit == "bullets" and all(_NUMBERED.spans(sample.text) for sample in good)
        for bound in _bounds(*values, hints, in_round_numbers=unit != "bullets"):
            strength = hints.about(*names) + bound.hints
            if is_numbered:  # a requirement of bullets asks for hyphens
                config = NUMBERED.config | bound.named("min_matches", "max_matches")
                says = f"Has {NUMBERED.amount(bound.least, bound.most)}."
                yield CheckDraft(f"numbers {bound.kind}", "regex", config, rank, strength, says)
                continue
            unlikely = 4 if bound.is_narrow and not bound.hints and unit in ("words", "characters") else 0
            config = bound.named("at_least", "at_most")
            yield CheckDraft(f"{unit} {bound.kind}", unit, config, rank + unlikely, strength)


SIGNIFICANT = 3
"""Signs up to this rank are rarely present by chance."""


def _signs(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    for sign in SIGNS:
        pattern = compile_pattern(sign.pattern, sign.flags)

        def counted(sample: Sample, sign: Sign = sign, pattern: Any = pattern) -> int:
            return len(pattern.spans(sample.raw if sign.raw else sample.text, MOST_COUNTED))

        for bound in _bounds(list(map(counted, bad)), list(map(counted, good)), hints):
            config, amount = sign.config, sign.amount(bound.least, bound.most)
            strength = hints.about(*sign.hints)
            if bound.most == 0:
                config["must_match"], amount, rank = False, f"no {sign.singular}", sign.rank
            elif (bound.least, bound.most) == (1, None):
                rank = sign.rank + 1 if sign.rank <= SIGNIFICANT else 7
            else:
                config |= bound.named("min_matches", "max_matches")
                rank, strength = 8, strength + bound.hints
            yield CheckDraft(f"{sign.plural} {bound.kind}", "regex", config, rank, strength, f"Has {amount}.")


def _widths(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Limit the length of lines, if outputs have several."""
    if any(MEASURES["lines"](sample.text) < 2 for sample in good):  # noqa: PLR2004 (that is a limit of the text)
        return
    wrong, right = (
        [max(map(len, each.text.splitlines()), default=0) for each in side] for side in (bad, good)
    )
    for bound in _bounds(wrong, right, hints, in_round_numbers=True):
        if bound.kind == "at most" and bound.most is not None and bound.most < 1000:  # noqa: PLR2004 (what RE2 repeats)
            says = f"Has no line of more than {bound.most} characters."
            strength = hints.about("line", "width", "column", "wide") + bound.hints
            yield _regex("width of lines", f".{{{bound.most + 1},}}", 6, strength, says, must_match=False)


# --- JSON --------------------------------------------------------------------------------------------------

Place: TypeAlias = tuple[str, ...]
_ITEM = "*"
_DEEPEST, _MOST_PLACES = 4, 200


def _collect(value: Any, place: Place, values: dict[Place, list[Any]]) -> None:
    if len(place) > _DEEPEST or len(values) > _MOST_PLACES:
        return
    values.setdefault(place, []).append(value)
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            _collect(inner, (*place, str(key)), values)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value)[:MOST_TOKENS]:
            _collect(inner, (*place, _ITEM), values)


def _form(value: Any) -> str:
    """The type of a JSON value in the words of JSON Schema."""
    if isinstance(value, bool):
        return "boolean"
    kinds: dict[Any, str] = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return kinds.get(value.__class__, "null")


def _schema(place: Place, schema: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a schema for the values at a place."""
    for part in reversed(place):
        if part == _ITEM:
            schema = {"type": "array", "items": schema}
        else:
            schema = {"type": "object", "properties": {part: schema}}
    return {"schema": schema}


def _structure(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft schemas, if all good outputs are JSON."""
    tops = {_form(sample.data) for sample in good}
    if NOT_JSON in [sample.data for sample in good] or len(tops) != 1 or tops & {"string", "null", "boolean"}:
        return
    [top] = tops
    if top in ("object", "array"):
        config, hinted = {"schema": {"type": top}}, hints.about("json", "object", "array")
        yield CheckDraft("json", "schema", config, 0, hinted)
    common = [place for place in good[0].values if all(place in sample.values for sample in good)]
    for place in common:
        yield from _at(place, bad, good, hints)


def _at(place: Place, bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft schemas for the values at a place that all good outputs have."""
    right = [value for sample in good for value in sample.values[place]]
    wrong = [value for sample in bad for value in sample.values.get(place, ())]
    name, keys = "/".join(place), tuple(part for part in place if part != _ITEM)
    hinted = hints.quotes(*keys[-1:])

    def draft(kind: str, schema: dict[str, Any], rank: int, strength: int, *quoted: str) -> CheckDraft:
        quotes = (*keys, *quoted)
        return CheckDraft(
            f"{kind} at {name}", "schema", _schema(place, schema), rank, hinted + strength, quotes=quotes
        )

    forms = sorted({_form(value) for value in right})
    if {_form(value) for value in wrong} - set(forms):
        wide = ["number"] if set(forms) == {"integer", "number"} else forms
        kind = wide[0] if len(wide) == 1 else wide
        yield draft("type", {"type": kind}, 1, hints.about("type", "text", "string", "number", "list"))
    if forms == ["object"]:
        yield from _keys(place, right, wrong, hints)
    elif forms == ["array"]:
        counts = [len(array) for array in wrong if _form(array) == "array"] or [0]
        for bound in _bounds(counts, list(map(len, right)), hints):
            schema = {"type": "array", **bound.named("minItems", "maxItems")}
            strength = hints.about("item", "entry", "element") + bound.hints
            yield draft(f"items {bound.kind}", schema, 2, strength)
    elif forms == ["string"]:
        options = sorted(set(right))
        if _are_choices(right, options) and {value for value in wrong if isinstance(value, str)} - set(
            options
        ):
            yield draft("choices", {"enum": options}, 2, hints.about(*_CHOICE), *options)
        for level, pattern in islice(_common_shapes(right), 1):
            schema = {"type": "string", "pattern": f"^{pattern}$"}
            yield draft("form", schema, 2 + _LEVELS[level], hints.about(*_FORMAT), *_letters_in(pattern))
        lengths = [len(value) for value in wrong if isinstance(value, str)] or [0]
        for bound in _bounds(lengths, list(map(len, right)), hints, in_round_numbers=True):
            schema = {"type": "string", **bound.named("minLength", "maxLength")}
            strength = hints.about("character", "long", "length") + bound.hints
            yield draft(f"length {bound.kind}", schema, 5, strength)
    elif set(forms) <= {"integer", "number"}:
        numbers = [value for value in wrong if _form(value) in ("integer", "number")]
        strength = hints.about("range", "between", "above", "below")
        if forms == ["integer"] and all(_form(value) == "integer" for value in numbers):
            for bound in _bounds(numbers or right, right, hints):
                schema = {"type": "number", **bound.named("minimum", "maximum")}
                yield draft(f"range {bound.kind}", schema, 2, strength + bound.hints)
        elif limits := _range(numbers, right):
            yield draft("range", {"type": "number", **limits}, 2, strength)


def _range(bad: Sequence[float], good: Sequence[float]) -> dict[str, float]:
    """Limits of numbers with decimals, as round as possible between good and failed outputs."""
    low, high = min(good), max(good)
    above, below = [number for number in bad if number > high], [number for number in bad if number < low]
    limits: dict[str, float] = {}
    if above:
        rounded = (round(high + 0.5 * 10**-digits, digits) for digits in range(6))
        limits["maximum"] = next((number for number in rounded if high <= number < min(above)), high)
    if below:
        rounded = (round(low - 0.5 * 10**-digits, digits) for digits in range(6))
        limits["minimum"] = next((number for number in rounded if max(below) < number <= low), low)
    return limits


def _keys(place: Place, right: Sequence[Any], wrong: Sequence[Any], hints: Hints) -> Iterator[CheckDraft]:
    """Draft required and forbidden keys of the objects at a place."""
    name = "/".join(place)
    always = [key for key in right[0] if all(key in item for item in right)]
    objects = [cast("dict[str, Any]", value) for value in wrong if isinstance(value, dict)]
    missing = [key for key in always if any(key not in item for item in objects)]
    about = hints.about("key", "field", "property", "missing", "lack", "require")
    within = tuple(part for part in place if part != _ITEM)
    if missing:
        config = _schema(place, {"type": "object", "required": missing})
        strength, quoted = about + hints.quotes(*missing), (*within, *missing)
        says = has_keys(missing, within)
        yield CheckDraft(f"required keys at {name}", "schema", config, 1, strength, says, quoted)
    extra = Counter(key for item in objects for key in item if not any(key in other for other in right))
    for key, _ in extra.most_common(3):
        config = _schema(place, {"type": "object", "properties": {key: False}})
        strength = hints.about("key", "field", "extra", "additional", "more") + hints.quotes(key)
        where = "" if not within else f" in {json.dumps(within[-1], ensure_ascii=False)}"
        says = f"Does not have the key {json.dumps(key, ensure_ascii=False)}{where}."
        yield CheckDraft(f"no key {key} at {name}", "schema", config, 2, strength, says, (*within, key))


_CHOICE = ("choice", "option", "value", "label", "category", "categorie", "allowed", "one")
_FEW_CHOICES = 6


def _are_choices(values: Sequence[str], options: Sequence[str]) -> bool:
    """Whether texts look like a few options, each of them used several times."""
    return (
        1 < len(options) <= _FEW_CHOICES
        and len(values) >= 2 * len(options)
        and max(map(len, options)) <= LONGEST_QUOTED
    )


def _choices(_bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    texts = [sample.text.strip() for sample in good]
    options = sorted(set(texts))
    if _are_choices(texts, options) and all(0 < len(option.split()) <= 2 for option in options):  # noqa: PLR2004 (a label)
        pattern = rf"^\s*(?:{'|'.join(map(re.escape, options))})\s*$"
        yield _regex("choices", pattern, 1, hints.about(*_CHOICE), quotes=options)


# --- shapes ------------------------------------------------------------------------------------------------

_FORMAT = (
    "format",
    "form",
    "date",
    "iso",
    "pattern",
    "code",
    "id",
    "digit",
    "time",
    "version",
    "price",
    "written",
)
_EDGES = "\"'`([{<>)]},.;:!?*_"
_RUN = re.compile(r"\d+|[A-Z]+(?![a-z])|[A-Z]|[a-z]+|[^\W\d_]+|\s+|.", re.DOTALL)
_LEVELS = (0, 0, 1, 2)
"""The penalty of each level of shapes, from specific to general.

The levels are: literal capitals; the number of capitals and digits; any number of digits at the beginning;
any number of both.
"""


def _shape(text: str, level: int) -> str:
    """A pattern for texts of the same shape."""
    parts: list[str] = []
    loose, digits = level == len(_LEVELS) - 1, 0
    for run in _RUN.findall(text):
        exact = f"{{{len(run)}}}" if len(run) > 1 else ""
        if run.isdecimal() and run.isascii():
            digits += 1
            parts.append(rf"\d{'+' if loose or (level > 1 and digits == 1) else exact}")
        elif run.isascii() and run.isupper():
            parts.append(run if level % 2 == 0 else f"[A-Z]{'+' if loose else exact}")
        elif run.isascii() and run.islower():
            parts.append("[a-z]+")
        elif run.isalpha():
            parts.append(r"\w+")
        else:
            parts.append(" " if run.isspace() else re.escape(run))
    return "".join(parts)


def _letters_in(pattern: str) -> tuple[str, ...]:
    """The literal capitals in a shape."""
    return tuple(re.findall(r"[A-Z]{2,}", re.sub(r"\[[^\]]*\]", "", pattern)))


def _common_shapes(texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the shapes that all texts have, the most specific first."""
    if max(map(len, texts)) > LONGEST_QUOTED or any("\n" in text or not text for text in texts):
        return
    for level in range(len(_LEVELS)):
        shapes = {_shape(text, level) for text in texts}
        if len(shapes) == 1:
            yield level, shapes.pop()


def _shapes(text: str) -> Iterator[tuple[int, str]]:
    tokens = text.split()[:MOST_TOKENS]
    for count in (1, 2, 3):
        for at in range(len(tokens) - count + 1):
            if count > 1 and not all(_is_formal(token) for token in tokens[at : at + count]):
                continue
            part = " ".join(tokens[at : at + count]).strip(_EDGES)
            if len(part) <= LONGEST_QUOTED and any(map(str.isdigit, part)):
                yield from ((level, _shape(part, level)) for level in range(len(_LEVELS)))


def _is_formal(token: str) -> bool:
    """Whether a word may be part of a date or a code: it has a digit, or begins with a capital."""
    return any(map(str.isdigit, token)) or token.strip(_EDGES)[:1].isupper()


def _bounded(pattern: str, samples: Iterable[Sample]) -> str:
    r"""A pattern that matches only whole words, if that takes linear time: `\b` is ASCII in that engine."""
    if not all(sample.text.isascii() for sample in samples):
        return pattern
    first = r"\b" if re.match(r"\w|\\[dw]|\[[Aa]", pattern) else ""
    last = r"\b" if re.search(r"(?:\w|\\[dw]|z\]|Z\])(?:\+|\{\d+\})?$", pattern) else ""
    return f"{first}{pattern}{last}"


def _forms(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft the shape of the whole output, of a required part, and of a forbidden part."""
    hinted = hints.about(*_FORMAT)
    whole = [sample.text.strip() for sample in good]
    if all(len(text.split()) <= 3 and not text.startswith(("{", "[")) for text in whole):  # noqa: PLR2004 (a value, not a text)
        for level, pattern in _common_shapes(whole):
            rank, quotes = 1 + _LEVELS[level], _letters_in(pattern)
            yield _regex("whole form", rf"^\s*{pattern}\s*$", rank, hinted, quotes=quotes)
    has_all = _in_all([sample.shapes for sample in good])
    counts = Counter(shape for sample in bad for shape in sample.shapes)
    required = sorted(
        (shape for shape in has_all if counts[shape] < len(bad)), key=lambda shape: (shape[0], len(shape[1]))
    )
    for level, pattern in required[:30]:
        rank = 3 + _LEVELS[level] + (0 if re.search(r"\\[^dw]|[-:/%#@]", pattern) else 3)
        quotes = _letters_in(pattern)
        yield _regex(f"form {pattern}", _bounded(pattern, good), rank, hinted, quotes=quotes)
    has_any = frozenset[tuple[int, str]]().union(*(sample.shapes for sample in good))
    forbidden = [shape for shape, count in counts.most_common() if count > 1 and shape not in has_any]
    for level, pattern in sorted(forbidden, key=lambda shape: (-counts[shape], shape[0], len(shape[1])))[:30]:
        rank, quotes, bounded = 6 + _LEVELS[level], _letters_in(pattern), _bounded(pattern, [*good, *bad])
        yield _regex(f"no form {pattern}", bounded, rank, hinted, quotes=quotes, must_match=False)


# --- words -------------------------------------------------------------------------------------------------


def _grams(text: str) -> Iterator[str]:
    words = list(WORD.finditer(text.casefold()))[:MOST_TOKENS]
    lower = text.casefold()
    for at, word in enumerate(words):
        yield word[0]
        end = word
        for after in words[at + 1 : at + 3]:
            if lower[end.end() : after.start()] != " ":
                break
            end = after
            if not (is_common(word[0]) or is_common(after[0])):  # "of the tea" adds nothing to "tea"
                yield lower[word.start() : end.end()]
    yield from (
        token for token in map(_trimmed, lower.split()[:MOST_TOKENS]) if not WORD.fullmatch(token) and token
    )


def _trimmed(token: str) -> str:
    return token.strip(_EDGES) if any(map(str.isalnum, token)) else token


def phrase_pattern(text: str, samples: Iterable[Sample] = ()) -> dict[str, Any]:
    """The configuration of a pattern for a text as whole words, in any case."""
    escaped = re.escape(text).replace(r"\ ", " ").replace(r"\-", "-")
    is_cased = text.upper() != text.lower()
    config: dict[str, Any] = {"pattern": _bounded(escaped, samples)}
    return {**config, "flags": "i"} if is_cased else config


def _words(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    has_all = _in_all([sample.grams for sample in good])
    runs: dict[str, set[str]] = {}
    good_grams = frozenset[str]().union(*(sample.grams for sample in good))
    for sample in bad:
        for gram in sample.grams - good_grams:
            runs.setdefault(gram, set()).add(sample.run)
    lacking = Counter(gram for sample in bad for gram in has_all - sample.grams)
    for gram, _ in sorted(
        lacking.items(), key=lambda counted: (-counted[1], -hints.quotes(counted[0]), -len(counted[0]))
    )[:40]:
        rank, strength = 9 if is_common(gram) else 7, hints.quotes(gram)
        yield CheckDraft(f"has {gram}", "regex", phrase_pattern(gram, good), rank, strength, quotes=(gram,))
    several = [(gram, run_ids) for gram, run_ids in runs.items() if len(run_ids) > 1 or len(bad) == 1]
    several.sort(
        key=lambda entry: (-len(entry[1]), -hints.quotes(entry[0]), entry[0].count(" "), len(entry[0]))
    )
    samples = [*good, *bad]
    for gram, _ in several[:60]:
        is_in_all = sum(gram in sample.grams for sample in bad) == len(bad)
        rank = 9 if is_common(gram) else 4 if is_in_all else 7
        config = {**phrase_pattern(gram, samples), "must_match": False}
        yield CheckDraft(f"no {gram}", "regex", config, rank, hints.quotes(gram), quotes=(gram,))
    chosen = _cover([entry for entry in several if " " not in entry[0] and WORD.fullmatch(entry[0])], hints)
    if len(chosen) > 1:
        edge = r"\b" if all(sample.text.isascii() for sample in samples) else ""
        pattern = rf"{edge}(?:{'|'.join(map(re.escape, chosen))}){edge}"
        strength = min(2, sum(map(hints.quotes, chosen)))
        kind, options = "none of several words", {"flags": "i", "must_match": False}
        yield CheckDraft(kind, "regex", {"pattern": pattern, **options}, 8, strength, quotes=tuple(chosen))


_MOST_WORDS = 8


def _cover(grams: Sequence[tuple[str, set[str]]], hints: Hints) -> list[str]:
    """A few words that together occur in the outputs of more runs than each of them alone."""
    chosen: list[str] = []
    covered: set[str] = set()
    left = list(grams)
    while left and len(chosen) < _MOST_WORDS:
        best = max(left, key=lambda entry: (len(entry[1] - covered), hints.quotes(entry[0])))
        if len(best[1] - covered) < FEWEST:
            break
        chosen.append(best[0])
        covered |= best[1]
        left.remove(best)
    return sorted(chosen)


# --- beginnings and ends -----------------------------------------------------------------------------------

_BEGIN = ("begin", "start", "open", "opening", "first", "preamble", "introduction", "greeting")
_END = ("end", "ending", "close", "closing", "last", "final", "sign", "finish")


def _ends(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    sides = [[sample.text.strip() for sample in side] for side in (bad, good)]
    right = sides[1]
    if not all(right):
        return
    for is_end, names in ((False, _BEGIN), (True, _END)):
        hinted, where = hints.about(*names), "end" if is_end else "begin"

        def at(pattern: str, is_end: bool = is_end) -> str:
            return rf"{pattern}\s*$" if is_end else rf"^\s*{pattern}"

        shared = commonprefix([output[::-1] for output in right] if is_end else right)  # noqa: RUF071 (texts)
        text = _whole_words(shared[::-1] if is_end else shared, right, is_end=is_end)
        line = text.split("\n")[-1 if is_end else 0].strip()
        for kind, phrase in ((where, line), (f"{where} in lines", text)):
            if phrase:
                is_phrase = 1 < len(phrase.split()) <= 4  # noqa: PLR2004 (longer ones are passages)
                rank = 7 if is_common(phrase) else 4 if is_phrase else 6
                rank = rank if any(map(str.isalnum, phrase)) else 6
                yield _regex(kind, at(_escaped(phrase)), rank, hinted + hints.quotes(phrase), quotes=[phrase])
        edges = [Counter(output[-1 if is_end else 0] for output in side if output) for side in sides]
        if set(edges[1]) != {text} and len(edges[1]) <= 3 and not any(map(str.isalnum, edges[1])):  # noqa: PLR2004 (a few signs)
            yield _regex(f"{where}s with a sign", at(_any_of(edges[1])), 6, hinted)
        elif all(map(str.isupper, edges[1])):
            yield _regex(f"{where}s with a capital", at("[A-Z]"), 6, hinted + hints.about("capital"))
        elif all(map(str.isdecimal, edges[1])):
            yield _regex(f"{where}s with a digit", at(r"\d"), 6, hinted)
        refused = [sign for sign, count in edges[0].items() if sign not in edges[1] and count > 1]
        refused = [sign for sign in refused if not sign.isalnum()]
        if 0 < len(refused) <= 3:  # noqa: PLR2004 (a few signs)
            yield _regex(f"no such {where}", at(_any_of(refused)), 6, hinted, must_match=False)
        words = [Counter(_edge_word(output, is_end=is_end) for output in side) for side in sides]
        wrong = [
            word for word, count in words[0].most_common(4) if count > 1 and word and word not in words[1]
        ]
        if wrong := sorted(wrong):
            options = "|".join(map(_escaped, wrong))
            pattern = (f"(?:{options})" if len(wrong) > 1 else options) + (r"[.!?]*" if is_end else "")
            quoted = listed([json.dumps(word, ensure_ascii=False) for word in wrong], "or")
            says, strength = f"Does not {where} with {quoted}.", hinted + hints.quotes(*wrong)
            yield _regex(f"no {where} words", at(pattern), 6, strength, says, wrong, must_match=False)


def _escaped(text: str) -> str:
    return re.sub(r"(?:\\\n)+", r"\\s+", re.escape(text).replace(r"\ ", " ").replace(r"\-", "-"))


def _any_of(signs: Collection[str]) -> str:
    escaped = "".join(map(re.escape, sorted(signs)))
    return f"[{escaped}]" if len(signs) > 1 else escaped


def _edge_word(text: str, *, is_end: bool) -> str:
    words = WORD.findall(text[-200:] if is_end else text[:200])
    return words[-1 if is_end else 0] if words else ""


def _whole_words(shared: str, texts: Sequence[str], *, is_end: bool) -> str:
    """The whole words of a shared beginning or end."""
    if any(len(text) > len(shared) for text in texts):
        neighbours = [
            text[-len(shared) - 1] if is_end else text[len(shared)]
            for text in texts
            if len(text) > len(shared)
        ]
        if any(map(str.isalnum, neighbours)):
            shared = re.sub(r"^\w+" if is_end else r"\w+$", "", shared)
    if "\n" in shared:  # of several lines, only whole lines
        cut = shared.partition("\n")[2] if is_end else shared.rpartition("\n")[0]
        shared = cut if cut.strip() else shared
    if len(shared) > LONGEST_QUOTED:
        cut = shared[-LONGEST_QUOTED:] if is_end else shared[:LONGEST_QUOTED]
        shared = re.sub(r"^\S*\s" if is_end else r"\s\S*$", "", cut)
    return shared.strip()


def _line_starts(_bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft the sign at the beginning of every line, if outputs have several lines."""
    lines = [[line.strip() for line in sample.text.splitlines() if line.strip()] for sample in good]
    if any(len(sample_lines) < 2 for sample_lines in lines):  # noqa: PLR2004 (a single line has just a beginning)
        return
    signs = {line[0] for sample_lines in lines for line in sample_lines}
    if len(signs) <= 2 and not any(map(str.isalnum, signs)):  # noqa: PLR2004 (a sign, or two)
        pattern = rf"^[ \t]*[^{''.join(map(re.escape, sorted(signs)))}\s]"
        options_text = listed([json.dumps(sign, ensure_ascii=False) for sign in sorted(signs)], "or")
        says = f"Begins each line with {options_text}."
        strength = hints.about("line", "bullet", "list", "begin")
        yield _regex("line starts", pattern, 4, strength, says, flags="m", must_match=False)


# --- sections ----------------------------------------------------------------------------------------------

_LABEL = re.compile(
    r"^[ \t]*(?:\d{1,2}[.)][ \t]+)?(?:#{1,6}[ \t]+(?:\d{1,2}[.)][ \t]+)?(\S[^\n:]{0,60}?):?[ \t]*#*"
    r"|\*\*(?:\d{1,2}[.)][ \t]+)?([^*\n:]{1,60}):?\*\*:?[^\n]*"
    r"|([^\W\d][\w /&-]{0,38}):(?:[ \t][^\n]*)?)[ \t]*$",
    re.MULTILINE,
)


def _sections(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft the order of sections that all good outputs have."""
    shared = [label for label in good[0].labels if all(label in sample.labels for sample in good)]
    orders = {tuple(label for label in sample.labels if label in shared) for sample in good}
    if len(shared) < 2 or len(orders) != 1:  # noqa: PLR2004 (an order takes two)
        return
    labels = shared[:6]
    pattern = ".*".join(rf"^[#*\d.)\s]*{_escaped(label)}" for label in labels)
    rank = 2 if all(label in sample.labels for label in labels for sample in bad) else 5
    quoted = listed([json.dumps(label, ensure_ascii=False) for label in labels])
    strength = hints.about("order", "before", "after", "section", "sequence", "first", "heading")
    strength += hints.quotes(*labels)
    says = f"Has the sections {quoted}, in this order."
    yield _regex("sections", pattern, rank, strength, says, labels, flags="ms")


# --- languages ---------------------------------------------------------------------------------------------


def _languages(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    hinted = hints.about(*SPOKEN)
    for name, ranges in SCRIPTS.items():
        strength = hinted + hints.about(name.split()[0].casefold())
        yield _regex(f"{name} script", f"[{ranges}]", 3, strength, f"Has {name} letters.")
        says = f"Has no {name} letters."
        yield _regex(f"no {name} script", f"[{ranges}]", 4, strength, says, must_match=False)
    counts = {name: frozenset(words.split()) for name, words in LANGUAGES.items()}

    def language_of(sample: Sample) -> str:
        """The language with the most words in an output; empty if it is a tie, or there are none."""
        words = Counter(WORD.findall(sample.text.casefold())[:MOST_TOKENS])
        ranked = sorted(
            ((sum(words[word] for word in common_words), name) for name, common_words in counts.items()),
            reverse=True,
        )
        return ranked[0][1] if ranked[0][0] > ranked[1][0] else ""

    bad_languages, good_languages = Counter(map(language_of, bad)), Counter(map(language_of, good))
    strength = hinted + hints.about(*(name.casefold() for name in LANGUAGES))
    [(name, count)] = good_languages.most_common(1)
    if name and count * 2 > len(good):
        if bad_languages[name] * 2 < len(bad):
            pattern = language_pattern(name, filter(None, bad_languages))
            yield _regex(f"in {name}", pattern, 4, strength, f"Is in {name}.", flags="i")
        for other in LANGUAGES:
            if other != name and (other in bad_languages or hints.about(other.casefold())):
                pattern, says = language_pattern(other, [name]), f"Is not in {other}."
                yield _regex(f"not in {other}", pattern, 5, strength, says, flags="i", must_match=False)


Family = Callable[[Sequence[Sample], Sequence[Sample], Hints], Iterator[CheckDraft]]
FAMILIES: tuple[Family, ...] = (
    _structure,
    _choices,
    _forms,
    _counts,
    _sections,
    _languages,
    _ends,
    _line_starts,
    _widths,
    _signs,
    _words,
)
