"""Separation: the simplest checks that good outputs pass and failed outputs don't."""

# Nothing here knows where outputs come from. A family drafts checks of one sort from failed and good outputs;
# a draft counts only if all good outputs pass it. What it is worth is measured on outputs that it was not
# drafted from: each half of the runs is tried by what the other half suggests.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb, log10
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
"""Runs of failed outputs that a check has to catch, so that it is about more than one of them."""
FEWEST_IN_HALF = 2
"""Runs on each side that a half needs; with fewer, no outputs are held out."""
CLOSE = 0.1
"""A check that catches less than the best one, by up to this share, may be chosen for its simplicity."""
LONGEST_QUOTED = 40
"""Characters of an output's text in a check; a longer one is no word or ending, but a passage."""
MOST_TOKENS = 400
"""Words of an output that are looked at for what outputs have in common."""
LONGEST_READ = 20_000
"""Characters of an output that drafting looks at; a trial looks at all."""
MOST_COUNTED = 100
"""How often a sign is counted."""
NOT_JSON = object()

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """An output, with the run that it is from and the task that it answers."""

    output: Output
    run: str
    task: str = ""

    @cached_property
    def answer(self) -> str:
        """The text that checks see."""
        return as_text(answer_in(self.output, raw=False)[0])

    @cached_property
    def text(self) -> str:
        """The same, or the beginning and the end of it if it is long."""
        return _ends_of(self.answer)

    @cached_property
    def raw(self) -> str:
        """The text with the Markdown fence around it, if it has one."""
        return _ends_of(as_text(self.output))

    @cached_property
    def data(self) -> Any:
        """The output as JSON data; `NOT_JSON` for any other."""
        try:
            return json_of(self.output) if isinstance(self.output, str) else json_data(self.output)
        except (OutputError, ValueError):
            return NOT_JSON

    @cached_property
    def values(self) -> dict[Place, list[Any]]:
        """The values at each place of its JSON data."""
        found: dict[Place, list[Any]] = {}
        if self.data is not NOT_JSON:
            _collect(self.data, (), found)
        return found

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
        found = (next(filter(None, one.groups())) for one in _LABEL.finditer(self.text))
        return tuple(dict.fromkeys(" ".join(label.split()) for label in found))


def _ends_of(text: str) -> str:
    return text if len(text) <= LONGEST_READ else f"{text[: LONGEST_READ // 2]}\n{text[-LONGEST_READ // 2 :]}"


@dataclass(frozen=True, slots=True)
class Hints:
    """What people and judges said of the failure; it decides between checks that separate equally well."""

    text: str = ""
    numbers: frozenset[int] = frozenset()
    words: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *texts: str) -> Hints:
        """Return the hints in some texts."""
        text = "\n".join(texts).casefold()
        words = {one.removesuffix("s") for one in re.findall(r"[^\W\d_]+", text)}
        spelled = {number for number, word in enumerate(NUMBER_WORDS) if word in words}
        numbers = {int(one) for one in re.findall(r"(?<![\d.,-])\d{1,6}(?![\d.,-]*\d)", text)}
        return cls(text, frozenset(numbers | spelled), frozenset(words))

    def about(self, *words: str) -> int:
        """Return 1 if one of the words is said, which are in the singular, else 0."""
        return int(not self.words.isdisjoint(words))

    def quotes(self, *texts: str) -> int:
        """Return 2 if one of the texts is said as whole words, else 0; words without content say nothing."""
        telling = (one.casefold() for one in texts if not is_common(one))
        return 2 * any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", self.text) for one in telling)


@dataclass(frozen=True, slots=True)
class CheckDraft:
    """A check: an evaluator that runs no code, and its configuration."""

    kind: str
    """Names the same check drafted from other outputs, perhaps with another limit."""
    evaluator: str
    config: Mapping[str, Any]
    rank: int
    """The lower, the more likely the check is what was meant."""
    hints: int = 0
    says: str = ""
    """What it asks for, where its configuration does not say it in words."""
    quotes: tuple[str, ...] = ()
    """The texts in it that are from outputs."""


class HeldOut(NamedTuple):
    """How checks from one half of the runs did on the other half."""

    caught: int
    bad: int
    refused: int
    good: int

    @property
    def p_value(self) -> float:
        """The probability of catching so many of the failed outputs by chance."""
        return chance_of(*self)


def chance_of(caught: int, bad: int, refused: int, good: int) -> float:
    """Return the probability that at least `caught` of the refused outputs are bad ones, by chance alone.

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
    """How many checks of its sort were drafted, of which some separate by chance; 1 if it was hinted at."""

    @property
    def is_chance(self) -> bool:
        """Whether checks of its sort may catch as much in outputs that nothing separates."""
        held_out = self.held_out
        return held_out is not None and held_out.p_value * max(1, self.tries / FEW_TRIES) > LEVEL


def separations(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> list[Separation]:
    """Return the checks that separate failed outputs from good ones, the best one first.

    The best one catches most; of those that catch about as many, it is the one that is hinted at, then the
    simplest.
    """
    whole = _drafted(bad, good, hints)
    folds = halves(bad, good)
    by_half = [_drafted(*half, hints, whole.keys()) for half in folds]
    found: list[Separation] = []
    tries = Counter(one.family for one in whole.values())
    for kind, (draft, test, family) in whole.items():
        caught = tuple(one for one in bad if not test(one))
        held_out = None
        if folds:
            figures = [0, len(bad), 0, len(good)]
            for drafted, (others_bad, others_good) in zip(by_half, reversed(folds), strict=True):
                if kind in drafted:
                    tried = drafted[kind].test
                    figures[0] += sum(not tried(one) for one in others_bad)
                    figures[2] += sum(not tried(one) for one in others_good)
            held_out = HeldOut(*figures)
        found.append(Separation(draft, caught, held_out, family, 1 if draft.hints else tries[family]))
    most = max((len(one.caught) for one in found), default=0)

    def order(one: Separation) -> tuple[Any, ...]:
        draft, lost = one.draft, 1 - len(one.caught) / most
        return (
            one.is_chance,
            int(lost / CLOSE + 1e-9),
            -draft.hints,
            draft.rank,
            -len(one.caught),
            len(json.dumps(draft.config)),
        )

    return sorted(found, key=order)


def weaker_drafts(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> list[CheckDraft]:
    """Return checks that may refuse a few good outputs, best first: those drafted from a quarter of these.

    One good output in many may be called good by mistake, and would keep the right check from being found.
    """
    found: dict[str, tuple[float, CheckDraft]] = {}
    for quarter in range(4):
        for kind, (draft, test, _) in _drafted(bad, good[quarter::4], hints).items():
            refused = [sum(not test(one) for one in side) for side in (bad, good)]
            chance = chance_of(refused[0], len(bad), refused[1], len(good))
            if chance <= LEVEL and (kind not in found or chance < found[kind][0]):
                found[kind] = chance, draft
    ordered = sorted(found.values(), key=lambda one: (round(log10(one[0])), -one[1].hints, one[1].rank))
    return [draft for _, draft in ordered]


LEVEL = 0.001
"""The p value below which a check is no accident, although some sorts of checks were tried."""
FEW_TRIES = 10
"""As many checks of one sort need no lower p value; there may be a hundred words to choose from."""

Test = Callable[[Sample], bool]


class _Drafted(NamedTuple):
    draft: CheckDraft
    test: Test
    family: str


def _drafted(
    bad: Sequence[Sample], good: Sequence[Sample], hints: Hints, kinds: Iterable[str] | None = None
) -> dict[str, _Drafted]:
    """Return the first draft of each kind that all good outputs pass and failed ones of some runs don't."""
    found: dict[str, _Drafted] = {}
    if not good:
        return found
    fewest = min(FEWEST, len({one.run for one in bad}))
    for family in FAMILIES:
        for draft in family(bad, good, hints):
            if draft.kind in found or (kinds is not None and draft.kind not in kinds):
                continue
            if any(len(quoted) > LONGEST_QUOTED for quoted in draft.quotes):
                continue
            try:
                test = test_of(draft.evaluator, draft.config)
            except ConfigError:  # a key or a text that no pattern or schema can hold
                continue
            separates = all(map(test, good)) and len({one.run for one in bad if not test(one)}) >= fewest
            if separates and not _is_of_tasks(draft, test, bad, good):
                found[draft.kind] = _Drafted(draft, test, family.__name__)
    return found


def _is_of_tasks(draft: CheckDraft, test: Test, bad: Sequence[Sample], good: Sequence[Sample]) -> bool:
    """Return whether a text in a check is what the tasks of one side are about, rather than their outputs."""

    def share(samples: Sequence[Sample], text: str) -> float:
        return sum(text.casefold() in one.task.casefold() for one in samples) / len(samples)

    caught = [one for one in bad if not test(one)]
    return any(abs(share(caught, text) - share(good, text)) > 0.5 for text in draft.quotes)  # noqa: PLR2004 (most of one side)


def halves(bad: Sequence[Sample], good: Sequence[Sample]) -> list[tuple[list[Sample], list[Sample]]]:
    """Return two halves of the runs, each with failed and good outputs; empty if there are too few."""
    failed = list(dict.fromkeys(one.run for one in bad))
    others = [run for run in dict.fromkeys(one.run for one in good) if run not in set(failed)]
    half_of = {run: place % 2 for runs in (failed, others) for place, run in enumerate(runs)}
    folds = [
        ([one for one in bad if half_of[one.run] == half], [one for one in good if half_of[one.run] == half])
        for half in (0, 1)
    ]
    enough = all(len({one.run for one in side}) >= FEWEST_IN_HALF for fold in folds for side in fold)
    return folds if enough else []


def test_of(evaluator: str, config: Mapping[str, Any]) -> Test:
    """Return whether a sample passes a check, as its evaluator decides; raises `ConfigError`."""
    if evaluator in COUNTS:
        measure, least, most = MEASURES[evaluator], config.get("at_least", 0), config.get("at_most")
        return lambda one: least <= measure(one.answer) and (most is None or measure(one.answer) <= most)
    if evaluator == "schema":
        schema = Schema(cast("dict[str, Any]", config["schema"]))
        return lambda one: one.data is not NOT_JSON and schema.check(one.data, coerce=False).valid
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

    def passes(one: Sample) -> bool:
        count = len(pattern.spans(one.raw if raw else one.text, limit))
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


def _bounds(
    bad: Sequence[int], good: Sequence[int], hints: Hints, *, in_round_numbers: bool = False
) -> Iterator[_Bounds]:
    """Yield limits of a number that all good outputs keep to."""
    low, high = min(good), max(good)
    above, below = [one for one in bad if one > high], [one for one in bad if one < low]
    steps = _STEPS if in_round_numbers else ()
    most = _limit(high, min(above) - 1, hints.numbers, steps) if above else None
    least = _limit(low, max(below) + 1, hints.numbers, steps) if below and low > 0 else None
    said = 2 * any(one in hints.numbers for one in (least, most))
    narrow = bool(above and (min(above) - high) * 10 <= high) or bool(
        below and (low - max(below)) * 10 <= low
    )
    if most is not None:
        yield _Bounds("at most", None, most, said, narrow)
    if least is not None:
        yield _Bounds("at least", least, None, said, narrow)
    if most is not None and least is not None:
        yield _Bounds("between", least, most, said, narrow)


_STEPS = (1000, 500, 250, 100, 50, 25, 20, 10, 5)


def _limit(good: int, bad: int, said: Iterable[int], steps: Sequence[int]) -> int:
    """Return a limit from the last number of good outputs to the last before those of failed ones.

    It is a number that was said, else the roundest one not far from the good outputs.
    """
    first, last = min(good, bad), max(good, bad)
    if known := [one for one in said if first <= one <= last]:
        return min(known, key=lambda one: abs(one - good))
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
        values = [measure(one.answer) for one in bad], [measure(one.answer) for one in good]
        if unit == "bullets" and not min(values[1]):
            continue
        is_numbered = unit == "bullets" and all(_NUMBERED.spans(one.text) for one in good)
        for bound in _bounds(*values, hints, in_round_numbers=unit != "bullets"):
            limits = {"at_least": bound.least, "at_most": bound.most}
            if is_numbered:  # what is said of bullets asks for hyphens
                counts = {"min_matches": bound.least, "max_matches": bound.most}
                config = NUMBERED.config | {
                    name: limit for name, limit in counts.items() if limit is not None
                }
                strength, says = hints.about(*names) + bound.hints, NUMBERED.amount(bound.least, bound.most)
                yield CheckDraft(f"numbers {bound.kind}", "regex", config, rank, strength, f"Has {says}.")
                continue
            config = {name: limit for name, limit in limits.items() if limit is not None}
            unlikely = 4 if bound.is_narrow and not bound.hints and unit in ("words", "characters") else 0
            strength = hints.about(*names) + bound.hints
            yield CheckDraft(f"{unit} {bound.kind}", unit, config, rank + unlikely, strength)


TELLING = 3
"""The rank of signs that are rarely there by chance, up to this one."""


def _signs(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    for sign in SIGNS:
        pattern = compile_pattern(sign.pattern, sign.flags)

        def counted(one: Sample, sign: Sign = sign, pattern: Any = pattern) -> int:
            return len(pattern.spans(one.raw if sign.raw else one.text, MOST_COUNTED))

        for bound in _bounds(list(map(counted, bad)), list(map(counted, good)), hints):
            config, amount = sign.config, sign.amount(bound.least, bound.most)
            if bound.most == 0:
                config["must_match"], amount = False, f"no {sign.singular}"
            elif (bound.least, bound.most) != (1, None):
                config |= {"min_matches": bound.least} if bound.least is not None else {}
                config |= {"max_matches": bound.most} if bound.most is not None else {}
            is_plain = bound.most == 0 or (bound.least, bound.most) == (1, None)
            required = sign.rank + 1 if sign.rank <= TELLING else 7
            rank = (sign.rank if bound.most == 0 else required) if is_plain else 8
            strength = hints.about(*sign.hints) + (bound.hints if not is_plain else 0)
            yield CheckDraft(f"{sign.plural} {bound.kind}", "regex", config, rank, strength, f"Has {amount}.")


def _widths(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Limit the length of lines, where an output has several."""
    longest = [[max(map(len, one.text.splitlines()), default=0) for one in side] for side in (bad, good)]
    if any(MEASURES["lines"](one.text) < 2 for one in good):  # noqa: PLR2004 (that is a limit of the text)
        return
    for bound in _bounds(longest[0], longest[1], hints, in_round_numbers=True):
        if bound.kind == "at most" and bound.most is not None and bound.most < 1000:  # noqa: PLR2004 (what RE2 repeats)
            config = {"pattern": f".{{{bound.most + 1},}}", "must_match": False}
            says = f"Has no line of more than {bound.most} characters."
            strength = hints.about("line", "width", "column", "wide") + bound.hints
            yield CheckDraft("width of lines", "regex", config, 6, strength, says)


# --- JSON --------------------------------------------------------------------------------------------------

Place: TypeAlias = tuple[str, ...]
_ITEM = "*"
_DEEPEST, _MOST_PLACES = 4, 200


def _collect(value: Any, place: Place, found: dict[Place, list[Any]]) -> None:
    if len(place) > _DEEPEST or len(found) > _MOST_PLACES:
        return
    found.setdefault(place, []).append(value)
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            _collect(inner, (*place, str(key)), found)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value)[:MOST_TOKENS]:
            _collect(inner, (*place, _ITEM), found)


def _form(value: Any) -> str:
    """Return the type of a JSON value in the words of JSON Schema."""
    if isinstance(value, bool):
        return "boolean"
    kinds: dict[Any, str] = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return kinds.get(value.__class__, "null")


def _schema(place: Place, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a schema for the values at a place."""
    for part in reversed(place):
        if part == _ITEM:
            schema = {"type": "array", "items": schema}
        else:
            schema = {"type": "object", "properties": {part: schema}}
    return {"schema": schema}


def _structure(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft schemas, where all good outputs hold JSON."""
    tops = {_form(one.data) for one in good}
    if NOT_JSON in [one.data for one in good] or len(tops) != 1 or tops & {"string", "null", "boolean"}:
        return
    [top] = tops
    if top in ("object", "array"):
        yield CheckDraft(
            "json", "schema", {"schema": {"type": top}}, 0, hints.about("json", "object", "array")
        )
    common = [place for place in good[0].values if all(place in one.values for one in good)]
    for place in common:
        yield from _at(place, bad, good, hints)


def _at(place: Place, bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft schemas for the values at a place that all good outputs have."""
    right = [value for one in good for value in one.values[place]]
    wrong = [value for one in bad for value in one.values.get(place, ())]
    name, keys = "/".join(place), tuple(part for part in place if part != _ITEM)
    said = hints.quotes(*keys[-1:])

    def draft(kind: str, schema: dict[str, Any], rank: int, strength: int, *quoted: str) -> CheckDraft:
        config = _schema(place, schema)
        return CheckDraft(
            f"{kind} at {name}", "schema", config, rank, said + strength, quotes=(*keys, *quoted)
        )

    forms = sorted({_form(value) for value in right})
    if {_form(value) for value in wrong} - set(forms):
        wide = ["number"] if set(forms) == {"integer", "number"} else forms
        kind = wide[0] if len(wide) == 1 else wide
        yield draft("type", {"type": kind}, 1, hints.about("type", "text", "string", "number", "list"))
    if forms == ["object"]:
        yield from _keys(place, right, wrong, hints)
    elif forms == ["array"]:
        for bound in _bounds(
            [len(one) for one in wrong if _form(one) == "array"] or [0], list(map(len, right)), hints
        ):
            limits = {"minItems": bound.least, "maxItems": bound.most}
            schema = {"type": "array", **{key: limit for key, limit in limits.items() if limit is not None}}
            yield draft(
                f"items {bound.kind}", schema, 2, hints.about("item", "entry", "element") + bound.hints
            )
    elif forms == ["string"]:
        texts = [value for value in wrong if isinstance(value, str)]
        options = sorted(set(right))
        if _are_choices(right, options) and set(texts) - set(options):
            yield draft("choices", {"enum": options}, 2, hints.about(*_CHOICE), *options)
        for level, pattern in _common_shapes(right):
            schema = {"type": "string", "pattern": f"^{pattern}$"}
            yield draft("form", schema, 2 + _LEVELS[level], hints.about(*_FORMAT), *_letters_in(pattern))
            break
        for bound in _bounds(
            list(map(len, texts)) or [0], list(map(len, right)), hints, in_round_numbers=True
        ):
            limits = {"minLength": bound.least, "maxLength": bound.most}
            schema = {"type": "string", **{key: limit for key, limit in limits.items() if limit is not None}}
            yield draft(
                f"length {bound.kind}", schema, 5, hints.about("character", "long", "length") + bound.hints
            )
    elif set(forms) <= {"integer", "number"}:
        numbers = [value for value in wrong if _form(value) in ("integer", "number")]
        said_range = hints.about("range", "between", "above", "below")
        if forms == ["integer"] and all(_form(value) == "integer" for value in numbers):
            for bound in _bounds(numbers or right, right, hints):
                limits = {"minimum": bound.least, "maximum": bound.most}
                schema = {
                    "type": "number",
                    **{key: limit for key, limit in limits.items() if limit is not None},
                }
                yield draft(f"range {bound.kind}", schema, 2, said_range + bound.hints)
        else:
            for decimal in _ranges(numbers, right):
                yield draft("range", {"type": "number", **decimal}, 2, said_range)


def _ranges(bad: Sequence[float], good: Sequence[float]) -> Iterator[dict[str, float]]:
    """Yield limits of numbers with decimals, as round as they can be between good and failed outputs."""
    low, high = min(good), max(good)
    above, below = [one for one in bad if one > high], [one for one in bad if one < low]
    limits: dict[str, float] = {}
    if above:
        rounded = (round(high + 0.5 * 10**-digits, digits) for digits in range(6))
        limits["maximum"] = next((one for one in rounded if high <= one < min(above)), high)
    if below:
        rounded = (round(low - 0.5 * 10**-digits, digits) for digits in range(6))
        limits["minimum"] = next((one for one in rounded if max(below) < one <= low), low)
    if limits:
        yield limits


def _keys(place: Place, right: Sequence[Any], wrong: Sequence[Any], hints: Hints) -> Iterator[CheckDraft]:
    """Draft which keys the objects at a place have."""
    name = "/".join(place)
    always = [key for key in right[0] if all(key in one for one in right)]
    objects = [cast("dict[str, Any]", one) for one in wrong if isinstance(one, dict)]
    missing = [key for key in always if any(key not in one for one in objects)]
    about = hints.about("key", "field", "property", "missing", "lack", "require")
    within = tuple(part for part in place if part != _ITEM)
    if missing:
        config = _schema(place, {"type": "object", "required": missing})
        strength, quoted = about + hints.quotes(*missing), (*within, *missing)
        says = has_keys(missing, within)
        yield CheckDraft(f"required keys at {name}", "schema", config, 1, strength, says, quoted)
    extra = Counter(key for one in objects for key in one if not any(key in other for other in right))
    for key, _ in extra.most_common(3):
        where = "" if not within else f" in {json.dumps(within[-1], ensure_ascii=False)}"
        yield CheckDraft(
            f"no key {key} at {name}",
            "schema",
            _schema(place, {"type": "object", "properties": {key: False}}),
            2,
            hints.about("key", "field", "extra", "additional", "more") + hints.quotes(key),
            f"Does not have the key {json.dumps(key, ensure_ascii=False)}{where}.",
            (*within, key),
        )


_CHOICE = ("choice", "option", "value", "label", "category", "categorie", "allowed", "one")
_FEW_CHOICES = 6


def _are_choices(values: Sequence[str], options: Sequence[str]) -> bool:
    """Return whether texts look like one of a few: each of them several times."""
    return (
        1 < len(options) <= _FEW_CHOICES
        and len(values) >= 2 * len(options)
        and max(map(len, options)) <= LONGEST_QUOTED
    )


def _choices(_bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    texts = [one.text.strip() for one in good]
    options = sorted(set(texts))
    if _are_choices(texts, options) and all(0 < len(one.split()) <= 2 for one in options):  # noqa: PLR2004 (a label)
        pattern = rf"^\s*(?:{'|'.join(map(re.escape, options))})\s*$"
        yield CheckDraft(
            "choices", "regex", {"pattern": pattern}, 1, hints.about(*_CHOICE), quotes=tuple(options)
        )


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
"""How general shapes are: with capitals as they are; with the number of capitals and digits; with any number
of digits at the beginning; with any number of them."""


def _shape(text: str, level: int) -> str:
    """Return a pattern for texts of the same shape."""
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
    """Return the capitals that stand for themselves in a shape."""
    return tuple(re.findall(r"[A-Z]{2,}", re.sub(r"\[[^\]]*\]", "", pattern)))


def _common_shapes(texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the shapes that all texts have, the most specific one first."""
    if max(map(len, texts)) > LONGEST_QUOTED or any("\n" in one or not one for one in texts):
        return
    for level in range(len(_LEVELS)):
        shapes = {_shape(one, level) for one in texts}
        if len(shapes) == 1:
            yield level, shapes.pop()


def _shapes(text: str) -> Iterator[tuple[int, str]]:
    tokens = text.split()[:MOST_TOKENS]
    for count in (1, 2, 3):
        for at in range(len(tokens) - count + 1):
            if count > 1 and not all(_is_formal(one) for one in tokens[at : at + count]):
                continue
            part = " ".join(tokens[at : at + count]).strip(_EDGES)
            if len(part) <= LONGEST_QUOTED and any(map(str.isdigit, part)):
                yield from ((level, _shape(part, level)) for level in range(len(_LEVELS)))


def _is_formal(token: str) -> bool:
    """Return whether a word may be part of a date or a code: it has a digit, or begins with a capital."""
    return any(map(str.isdigit, token)) or token.strip(_EDGES)[:1].isupper()


def _bounded(pattern: str, samples: Iterable[Sample]) -> str:
    r"""Return a pattern that matches whole words only, where that takes linear time: `\b` is ASCII there."""
    if not all(one.text.isascii() for one in samples):
        return pattern
    first = r"\b" if re.match(r"\w|\\[dw]|\[[Aa]", pattern) else ""
    last = r"\b" if re.search(r"(?:\w|\\[dw]|z\]|Z\])(?:\+|\{\d+\})?$", pattern) else ""
    return f"{first}{pattern}{last}"


def _forms(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft the shape of the whole output, of a part that it must have, and of one that it must not have."""
    said = hints.about(*_FORMAT)
    whole = [one.text.strip() for one in good]
    if all(len(one.split()) <= 3 and not one.startswith(("{", "[")) for one in whole):  # noqa: PLR2004 (a value, not a text)
        for level, pattern in _common_shapes(whole):
            config = {"pattern": rf"^\s*{pattern}\s*$"}
            yield CheckDraft(
                "whole form", "regex", config, 1 + _LEVELS[level], said, quotes=_letters_in(pattern)
            )
    has_all = _in_all([one.shapes for one in good])
    has_any = frozenset[tuple[int, str]]().union(*(one.shapes for one in good))
    counts = Counter(shape for one in bad for shape in one.shapes)
    required = sorted(
        (shape for shape in has_all if counts[shape] < len(bad)), key=lambda one: (one[0], len(one[1]))
    )
    for level, pattern in required[:30]:
        plain = 0 if re.search(r"\\[^dw]|[-:/%#@]", pattern) else 3
        config = {"pattern": _bounded(pattern, good)}
        yield CheckDraft(
            f"form {pattern}", "regex", config, 3 + _LEVELS[level] + plain, said, quotes=_letters_in(pattern)
        )
    forbidden = [shape for shape, count in counts.most_common() if count > 1 and shape not in has_any]
    for level, pattern in sorted(forbidden, key=lambda one: (-counts[one], one[0], len(one[1])))[:30]:
        config = {"pattern": _bounded(pattern, [*good, *bad]), "must_match": False}
        yield CheckDraft(
            f"no form {pattern}", "regex", config, 6 + _LEVELS[level], said, quotes=_letters_in(pattern)
        )


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
            if not (is_common(word[0]) or is_common(after[0])):  # "of the tea" says no more than "tea"
                yield lower[word.start() : end.end()]
    yield from (
        token for token in map(_trimmed, lower.split()[:MOST_TOKENS]) if not WORD.fullmatch(token) and token
    )


def _trimmed(token: str) -> str:
    return token.strip(_EDGES) if any(map(str.isalnum, token)) else token


def phrase_pattern(text: str, samples: Iterable[Sample] = ()) -> dict[str, Any]:
    """Return the configuration of a pattern for a text as whole words, in any case."""
    escaped = re.escape(text).replace(r"\ ", " ").replace(r"\-", "-")
    is_cased = text.upper() != text.lower()
    config: dict[str, Any] = {"pattern": _bounded(escaped, samples)}
    return {**config, "flags": "i"} if is_cased else config


def _words(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft words that an output must have, and words that it must not have."""
    has_all = _in_all([one.grams for one in good])
    runs: dict[str, set[str]] = {}
    known = frozenset[str]().union(*(one.grams for one in good))
    for one in bad:
        for gram in one.grams - known:
            runs.setdefault(gram, set()).add(one.run)
    lacking = Counter(gram for one in bad for gram in has_all - one.grams)
    for gram, _ in sorted(lacking.items(), key=lambda one: (-one[1], -hints.quotes(one[0]), -len(one[0])))[
        :40
    ]:
        rank = 9 if is_common(gram) else 7
        yield CheckDraft(
            f"has {gram}", "regex", phrase_pattern(gram, good), rank, hints.quotes(gram), quotes=(gram,)
        )
    several = [(gram, those) for gram, those in runs.items() if len(those) > 1 or len(bad) == 1]
    several.sort(key=lambda one: (-len(one[1]), -hints.quotes(one[0]), one[0].count(" "), len(one[0])))
    everyone = [*good, *bad]
    for gram, _ in several[:60]:
        is_in_all = sum(gram in one.grams for one in bad) == len(bad)
        rank = 9 if is_common(gram) else 4 if is_in_all else 7
        config = {**phrase_pattern(gram, everyone), "must_match": False}
        yield CheckDraft(f"no {gram}", "regex", config, rank, hints.quotes(gram), quotes=(gram,))
    if chosen := _cover([one for one in several if " " not in one[0] and WORD.fullmatch(one[0])], hints):
        pattern = _bounded("|".join(map(re.escape, chosen)), ())
        ascii_only = all(one.text.isascii() for one in everyone)
        inner = "|".join(map(re.escape, chosen))
        pattern = rf"\b(?:{inner})\b" if ascii_only else f"(?:{inner})"
        config = {"pattern": pattern, "flags": "i", "must_match": False}
        strength = min(2, sum(map(hints.quotes, chosen)))
        yield CheckDraft("none of several words", "regex", config, 8, strength, quotes=tuple(chosen))


_MOST_WORDS = 8


def _cover(grams: Sequence[tuple[str, set[str]]], hints: Hints) -> list[str]:
    """Return a few words that together are in the outputs of more runs than any one of them."""
    chosen: list[str] = []
    covered: set[str] = set()
    left = list(grams)
    while left and len(chosen) < _MOST_WORDS:
        best = max(left, key=lambda one: (len(one[1] - covered), hints.quotes(one[0])))
        if len(best[1] - covered) < FEWEST:
            break
        chosen.append(best[0])
        covered |= best[1]
        left.remove(best)
    return sorted(chosen) if len(chosen) > 1 else []


# --- beginnings and ends -----------------------------------------------------------------------------------

_BEGIN = ("begin", "start", "open", "opening", "first", "preamble", "introduction", "greeting")
_END = ("end", "ending", "close", "closing", "last", "final", "sign", "finish")


def _ends(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft how an output begins and ends, and how it must not."""
    sides = [[one.text.strip() for one in side] for side in (bad, good)]
    right = sides[1]
    if not all(right):
        return
    for is_end, names in ((False, _BEGIN), (True, _END)):
        said, where = hints.about(*names), "end" if is_end else "begin"

        def at(pattern: str, is_end: bool = is_end) -> str:
            return rf"{pattern}\s*$" if is_end else rf"^\s*{pattern}"

        shared = _shared([one[::-1] for one in right] if is_end else right)
        text = _whole_words(shared[::-1] if is_end else shared, right, is_end=is_end)
        line = text.split("\n")[-1 if is_end else 0].strip()
        for kind, one in ((where, line), (f"{where} in lines", text)):
            if one:
                is_phrase = 1 < len(one.split()) <= 4  # noqa: PLR2004 (longer ones are passages)
                rank = 7 if is_common(one) else 4 if is_phrase else 6
                rank = rank if any(map(str.isalnum, one)) else 6
                strength = said + hints.quotes(one)
                yield CheckDraft(kind, "regex", {"pattern": at(_escaped(one))}, rank, strength, quotes=(one,))
        edges = [Counter(one[-1 if is_end else 0] for one in side if one) for side in sides]
        if set(edges[1]) != {text} and len(edges[1]) <= 3 and not any(map(str.isalnum, edges[1])):  # noqa: PLR2004 (a few signs)
            yield CheckDraft(f"{where}s with a sign", "regex", {"pattern": at(_class(edges[1]))}, 6, said)
        elif all(map(str.isupper, edges[1])):
            yield CheckDraft(
                f"{where}s with a capital",
                "regex",
                {"pattern": at("[A-Z]")},
                6,
                said + hints.about("capital"),
            )
        elif all(map(str.isdecimal, edges[1])):
            yield CheckDraft(f"{where}s with a digit", "regex", {"pattern": at(r"\d")}, 6, said)
        signs = {one: count for one, count in (edges[0] - edges[1]).items() if one not in edges[1]}
        signs = [one for one, count in signs.items() if count > 1 and not one.isalnum()]
        if 0 < len(signs) <= 3:  # noqa: PLR2004 (a few signs)
            yield CheckDraft(
                f"no such {where}", "regex", {"pattern": at(_class(signs)), "must_match": False}, 6, said
            )
        words = [Counter(_edge_word(one, is_end=is_end) for one in side) for side in sides]
        wrong = [one for one, count in words[0].most_common(4) if count > 1 and one and one not in words[1]]
        if wrong:
            options = "|".join(map(_escaped, sorted(wrong)))
            after = r"[.!?]*" if is_end else ""
            options = f"(?:{options})" if len(wrong) > 1 else options
            config = {"pattern": at(f"{options}{after}"), "must_match": False}
            shown = listed([json.dumps(one, ensure_ascii=False) for one in sorted(wrong)], "or")
            strength, quoted = said + hints.quotes(*wrong), tuple(sorted(wrong))
            says = f"Does not {where} with {shown}."
            yield CheckDraft(f"no {where} words", "regex", config, 6, strength, says, quoted)


def _shared(texts: Sequence[str]) -> str:
    """Return the beginning that all texts have in common."""
    first, last = min(texts), max(texts)
    length = next(
        (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None
    )
    return first if length is None else first[:length]


def _escaped(text: str) -> str:
    return re.sub(r"(?:\\\n)+", r"\\s+", re.escape(text).replace(r"\ ", " ").replace(r"\-", "-"))


def _class(signs: Iterable[str]) -> str:
    chosen = sorted(signs)
    return re.escape(chosen[0]) if len(chosen) == 1 else f"[{''.join(map(re.escape, chosen))}]"


def _edge_word(text: str, *, is_end: bool) -> str:
    words = WORD.findall(text[-200:] if is_end else text[:200])
    return words[-1 if is_end else 0] if words else ""


def _whole_words(shared: str, texts: Sequence[str], *, is_end: bool) -> str:
    """Return the part of a shared beginning or end that is whole words."""
    if any(len(one) > len(shared) for one in texts):
        neighbours = [
            one[-len(shared) - 1] if is_end else one[len(shared)] for one in texts if len(one) > len(shared)
        ]
        if any(map(str.isalnum, neighbours)):
            shared = re.sub(r"^\w+" if is_end else r"\w+$", "", shared)
    if "\n" in shared:  # in several lines, only whole ones
        cut = shared.partition("\n")[2] if is_end else shared.rpartition("\n")[0]
        shared = cut if cut.strip() else shared
    if len(shared) > LONGEST_QUOTED:
        cut = shared[-LONGEST_QUOTED:] if is_end else shared[:LONGEST_QUOTED]
        shared = re.sub(r"^\S*\s" if is_end else r"\s\S*$", "", cut)
    return shared.strip()


def _line_starts(_bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft with which sign every line begins, where an output has several."""
    lines = [[line.strip() for line in one.text.splitlines() if line.strip()] for one in good]
    if any(len(one) < 2 for one in lines):  # noqa: PLR2004 (a single line has just a beginning)
        return
    signs = {line[0] for one in lines for line in one}
    if len(signs) <= 2 and not any(map(str.isalnum, signs)):  # noqa: PLR2004 (a sign, or two)
        pattern = rf"^[ \t]*[^{''.join(map(re.escape, sorted(signs)))}\s]"
        shown = listed([json.dumps(one, ensure_ascii=False) for one in sorted(signs)], "or")
        says = f"Begins each line with {shown}."
        config = {"pattern": pattern, "flags": "m", "must_match": False}
        yield CheckDraft(
            "line starts", "regex", config, 4, hints.about("line", "bullet", "list", "begin"), says
        )


# --- sections ----------------------------------------------------------------------------------------------

_LABEL = re.compile(
    r"^[ \t]*(?:\d{1,2}[.)][ \t]+)?(?:#{1,6}[ \t]+(?:\d{1,2}[.)][ \t]+)?(\S[^\n:]{0,60}?):?[ \t]*#*"
    r"|\*\*(?:\d{1,2}[.)][ \t]+)?([^*\n:]{1,60}):?\*\*:?[^\n]*"
    r"|([^\W\d][\w /&-]{0,38}):(?:[ \t][^\n]*)?)[ \t]*$",
    re.MULTILINE,
)


def _sections(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft the order of sections that all good outputs have."""
    shared = [label for label in good[0].labels if all(label in one.labels for one in good)]
    orders = {tuple(label for label in one.labels if label in shared) for one in good}
    if len(shared) < 2 or len(orders) != 1:  # noqa: PLR2004 (an order takes two)
        return
    labels = shared[:6]
    pattern = ".*".join(rf"^[#*\d.)\s]*{_escaped(label)}" for label in labels)
    is_order = all(all(label in one.labels for label in labels) for one in bad)
    quoted = listed([json.dumps(label, ensure_ascii=False) for label in labels])
    strength = hints.about("order", "before", "after", "section", "sequence", "first", "heading")
    yield CheckDraft(
        "sections",
        "regex",
        {"pattern": pattern, "flags": "ms"},
        2 if is_order else 5,
        strength + hints.quotes(*labels),
        f"Has the sections {quoted}, in this order.",
        tuple(labels),
    )


# --- languages ---------------------------------------------------------------------------------------------


def _languages(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[CheckDraft]:
    """Draft in which script or language an output is, and in which it is not."""
    said = hints.about(*SPOKEN)
    for name, ranges in SCRIPTS.items():
        strength = said + hints.about(name.split()[0].casefold())
        config = {"pattern": f"[{ranges}]"}
        yield CheckDraft(f"{name} script", "regex", config, 3, strength, f"Has {name} letters.")
        config = {"pattern": f"[{ranges}]", "must_match": False}
        yield CheckDraft(f"no {name} script", "regex", config, 4, strength, f"Has no {name} letters.")
    counts = {name: frozenset(words.split()) for name, words in LANGUAGES.items()}

    def spoken(one: Sample) -> str:
        """Return the language whose words an output has most of; empty if it is a tie, or there are none."""
        words = Counter(WORD.findall(one.text.casefold())[:MOST_TOKENS])
        found = sorted(
            ((sum(words[word] for word in known), name) for name, known in counts.items()), reverse=True
        )
        return found[0][1] if found[0][0] > found[1][0] else ""

    theirs, ours = Counter(map(spoken, bad)), Counter(map(spoken, good))
    strength = said + hints.about(*(name.casefold() for name in LANGUAGES))
    [(name, count)] = ours.most_common(1)
    if name and count * 2 > len(good):
        if theirs[name] * 2 < len(bad):
            config: dict[str, Any] = {"pattern": language_pattern(name, filter(None, theirs)), "flags": "i"}
            yield CheckDraft(f"in {name}", "regex", config, 4, strength, f"Is in {name}.")
        for other in (
            one for one in LANGUAGES if one != name and (one in theirs or hints.about(one.casefold()))
        ):
            config = {"pattern": language_pattern(other, [name]), "flags": "i", "must_match": False}
            yield CheckDraft(f"not in {other}", "regex", config, 5, strength, f"Is not in {other}.")


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
