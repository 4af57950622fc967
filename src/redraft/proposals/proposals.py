"""Proposals: criteria that a person may accept, each tried on stored outputs first."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from redraft._codec import from_json, to_json
from redraft._texts import as_text, counted
from redraft.errors import ConfigError
from redraft.evaluate.checks import of_part
from redraft.evaluate.criteria import LONGEST_NAME
from redraft.evaluate.panel import CHECKS, panel
from redraft.evaluate.requirements import requirements_of
from redraft.loop.criteria_file import criterion_entry
from redraft.memory.safety import memory_redactor, violation
from redraft.proposals.separation import (
    LEVEL,
    CheckDraft,
    HeldOut,
    Hints,
    Sample,
    chance_of,
    halves,
    separations,
    weaker_drafts,
)
from redraft.protocols import RunContext
from redraft.stats import Effect, rate_of
from redraft.text.characters import without_invisible
from redraft.text.regex import compile_pattern
from redraft.types import COUNTS, PlainTask, QualityCriterion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redraft.protocols import ChatModel

FEWEST_RUNS = 3
"""Runs in which something has to fail before a check is proposed for it."""
MOST_PROPOSED = 5
"""Checks that are proposed for one failure at most, each for outputs that those before it do not catch."""
MOST_TRIED = 12
"""Drafts that are tried at most, the best first, before a failure is left without a check."""
LONGEST_PATTERN, LONGEST_CONFIG = 500, 4_000
"""Characters of a pattern, and of a whole configuration, that a model may draft."""
DECLARATIVE: dict[str, frozenset[str]] = {
    "regex": frozenset(("pattern", "flags", "must_match", "min_matches", "max_matches", "raw", "path")),
    "schema": frozenset(("schema", "path")),
    **dict.fromkeys(COUNTS, frozenset(("at_least", "at_most", "path"))),
}
"""The evaluators that a proposal may have, with their options: none runs code, and none reads a file."""


@dataclass(frozen=True)
class RecurringFailure:
    """Something that failed in several runs, and what outputs are good as far as it goes."""

    title: str
    """What failed, in the words of a criterion or an issue."""
    bad: Sequence[Sample]
    good: Sequence[Sample]
    said: tuple[str, ...] = ()
    """What was said of it."""
    lessons: tuple[str, ...] = ()
    """The ids of the lessons about it."""
    told: int = 0
    """Failed runs that were told one of the lessons."""

    @property
    def runs(self) -> int:
        """In how many runs it failed."""
        return len({one.run for one in self.bad})


@dataclass(frozen=True, slots=True)
class CriterionTrial:
    """What a criterion would have done to stored outputs."""

    bad: int = 0
    """Failed outputs."""
    caught: int = 0
    """Failed outputs that it refuses."""
    good: int = 0
    """Good outputs."""
    refused: int = 0
    """Good outputs that it refuses."""
    unknown: int = 0
    """Outputs that it could not judge."""
    bad_runs: int = 0
    good_runs: int = 0
    caught_share: Effect | None = None
    """The mean share over runs, with its 95 % interval; None for fewer than five runs."""
    refused_share: Effect | None = None
    held_out: HeldOut | None = None
    """How checks from each half of the runs did on the other half."""
    caught_output: str = ""
    """A failed output that it refuses."""
    passed_output: str = ""
    """A good output that passes."""
    refused_output: str = ""
    """A good output that it refuses."""

    @property
    def weakness(self) -> str:
        """What speaks against it; empty if nothing does."""
        return self.fault or self.doubt

    @property
    def fault(self) -> str:
        """Why it is no proposal: it refuses good outputs, or catches nothing."""
        if self.refused:
            return f"it refuses {counted(self.refused, 'good output')} of {self.good}"
        if self.unknown:
            return f"it could not judge {counted(self.unknown, 'output')}"
        return "" if self.caught or not self.bad else "it catches none of the failed outputs"

    @property
    def doubt(self) -> str:
        """Why it may be an accident: it rests on few outputs, or did not hold on others."""
        if self.bad and chance_of(self.caught, self.bad, self.refused, self.good) > LEVEL:
            return f"{counted(self.bad, 'failed output')} and {self.good} good ones are too few to tell"
        if self.held_out is not None and self.held_out.p_value > LEVEL:
            return "checks from one half of the runs do not catch enough in the other half"
        return ""


Drafter = Literal["rules", "model", "task"]


@dataclass(frozen=True)
class Proposal:
    """A criterion that a person may accept, with its trial on stored outputs."""

    criterion: QualityCriterion
    trial: CriterionTrial = field(default_factory=CriterionTrial)
    failure: str = ""
    lessons: tuple[str, ...] = ()
    told: int = 0
    drafter: Drafter = "rules"
    agent: str = ""

    @cached_property
    def id(self) -> str:
        """A digest of the check: the same check has the same id whenever it is drafted."""
        return check_digest(self.criterion)[:8]

    @property
    def says(self) -> str:
        """What the check asks for."""
        return self.criterion.description or self.criterion.name

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        trial = self.trial

        def share(count: int, of: int, interval: Effect | None) -> dict[str, Any]:
            bounds = (None, None) if interval is None else (interval.low, interval.high)
            return {"count": count, "of": of, "low": bounds[0], "high": bounds[1]}

        return {
            "id": self.id,
            "agent": self.agent,
            "check": self.says,
            "criterion": criterion_entry(self.criterion),
            "failure": self.failure,
            "lessons": list(self.lessons),
            "told_in_vain": self.told,
            "drafted_by": self.drafter,
            "runs": trial.bad_runs,
            "good_runs": trial.good_runs,
            "caught": share(trial.caught, trial.bad, trial.caught_share),
            "refused_wrongly": share(trial.refused, trial.good, trial.refused_share),
            "held_out": None if trial.held_out is None else trial.held_out._asdict(),
            "weakness": trial.weakness if trial.bad or trial.good else "",
            "examples": {
                "caught": trial.caught_output,
                "passed": trial.passed_output,
                "refused": trial.refused_output,
            },
        }


def check_digest(criterion: QualityCriterion) -> str:
    """Return a digest of what a criterion checks, whatever its name."""
    text = json.dumps(
        [criterion.evaluator, to_json(criterion.evaluator_config), _judged_text(criterion)], sort_keys=True
    )
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _judged_text(criterion: QualityCriterion) -> str:
    return criterion.description or criterion.name if criterion.evaluator == "llm" else ""


# --- proposing ---------------------------------------------------------------------------------------------


async def proposals_for(
    failure: RecurringFailure,
    drafts: Sequence[QualityCriterion] = (),
    *,
    few: bool = False,
    weaker: bool = False,
) -> list[Proposal]:
    """Return the checks that would have caught a failure, the best one first.

    `drafts` are a model's, and pass the same trial. With `few`, a check may rest on few outputs. With
    `weaker`, the best check against which something speaks is returned if there is no other;
    `CriterionTrial.weakness` says what.
    """
    hints, found = Hints.of(failure.title, *failure.said), list[Proposal]()
    left = list(failure.bad)
    candidates = [
        _Drafted(one, await _held_out(one, failure), "model", f"model {number}")
        for number, one in enumerate(drafts)
    ]
    fewest = 1 if few else FEWEST_RUNS
    while len(found) < MOST_PROPOSED and len({one.run for one in left}) >= fewest:
        for best in chain(_drafts(left, failure.good, hints), candidates):
            trial = await tried(best.criterion, left, failure.good, best.held_out)
            if not (trial.fault if few else trial.weakness):
                break
        else:
            break
        if trial.doubt:
            return await _alternatives(failure, chain(_drafts(left, failure.good, hints), candidates))
        found.append(
            _proposal(failure, best, await tried(best.criterion, failure.bad, failure.good, best.held_out))
        )
        passes = await verdicts(best.criterion, left)
        left = [one for one, passed in zip(left, passes, strict=True) if passed is not False]
    if not found and weaker:
        found = await _weaker(failure, hints)
    return found


class _Drafted(NamedTuple):
    criterion: QualityCriterion
    held_out: HeldOut | None = None
    drafter: Drafter = "rules"
    family: str = ""


async def _alternatives(failure: RecurringFailure, drafts: Iterable[_Drafted]) -> list[Proposal]:
    """Return the best check of each sort, where outputs are too few to tell which one is meant."""
    found: dict[str, Proposal] = {}
    for one in drafts:
        if len(found) < MOST_PROPOSED and one.family not in found:
            trial = await tried(one.criterion, failure.bad, failure.good, one.held_out)
            if not trial.fault:
                found[one.family] = _proposal(failure, one, trial)
    return list(found.values())


async def _held_out(criterion: QualityCriterion, failure: RecurringFailure) -> HeldOut | None:
    """Return how a check that a model drafted from one half of the runs does on the other half."""
    folds = halves(failure.bad, failure.good)
    if not folds:
        return None
    bad, good = [await verdicts(criterion, side) for side in folds[1]]
    return HeldOut(bad.count(False), len(bad), good.count(False), len(good))


def _drafts(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[_Drafted]:
    found = (one for one in separations(bad, good, hints) if not one.is_chance)
    for one in islice(found, MOST_TRIED):
        if (criterion := criterion_of(one.draft)) is not None:
            yield _Drafted(criterion, one.held_out, family=one.family)


async def _weaker(failure: RecurringFailure, hints: Hints) -> list[Proposal]:
    """Return the best check against which something speaks."""
    drafts = weaker_drafts(failure.bad, failure.good, hints)
    drafts += [one.draft for one in separations(failure.bad, failure.good, hints)]
    for draft in drafts:
        if (criterion := criterion_of(draft)) is not None:
            trial = await tried(criterion, failure.bad, failure.good)
            return [_proposal(failure, _Drafted(criterion), trial)]
    return []


def _proposal(failure: RecurringFailure, drafted: _Drafted, trial: CriterionTrial) -> Proposal:
    about = failure.title, failure.lessons, failure.told
    return Proposal(drafted.criterion, trial, *about, drafted.drafter)


# --- the trial ---------------------------------------------------------------------------------------------


async def tried(
    criterion: QualityCriterion,
    bad: Sequence[Sample],
    good: Sequence[Sample],
    held_out: HeldOut | None = None,
    *,
    model: ChatModel | None = None,
) -> CriterionTrial:
    """Judge failed and good outputs by a criterion, as a run would; a question needs the `model`."""
    of_bad, of_good = [await verdicts(criterion, side, model) for side in (bad, good)]
    refused, wrongly = ([one is False for one in side] for side in (of_bad, of_good))

    def first(samples: Sequence[Sample], chosen: Iterable[bool]) -> str:
        return next((as_text(one.output) for one, is_it in zip(samples, chosen, strict=True) if is_it), "")

    return CriterionTrial(
        len(bad),
        of_bad.count(False),
        len(good),
        of_good.count(False),
        [*of_bad, *of_good].count(None),
        len({one.run for one in bad}),
        len({one.run for one in good}),
        _share(bad, refused),
        _share(good, wrongly),
        held_out,
        first(bad, refused),
        first(good, [one is True for one in of_good]),
        first(good, wrongly),
    )


async def verdicts(
    criterion: QualityCriterion, samples: Sequence[Sample], model: ChatModel | None = None
) -> list[bool | None]:
    """Return whether each output meets a criterion; None where that could not be judged."""
    judge = panel((criterion,), model=model)
    passed: list[bool | None] = []
    for one in samples:
        evaluation = await judge(one.output, RunContext(PlainTask(one.task or "-"), ""))
        score = evaluation.overall_score
        passed.append(None if score is None else score >= criterion.threshold)
    return passed


def _share(samples: Sequence[Sample], chosen: Sequence[bool]) -> Effect | None:
    """Return the mean share of chosen outputs over runs: outputs of a run are not independent."""
    by_run: dict[str, list[bool]] = {}
    for one, is_chosen in zip(samples, chosen, strict=True):
        by_run.setdefault(one.run, []).append(is_chosen)
    return rate_of([sum(those) / len(those) for those in by_run.values()])


# --- from a draft to a criterion ---------------------------------------------------------------------------


def criterion_of(draft: CheckDraft) -> QualityCriterion | None:
    """Return a draft as a criterion that is named after what it asks for.

    None if it quotes what no criterion may: an instruction, a command, an address, personal data, a secret.
    """
    if not all(map(is_harmless, (*draft.quotes, " ".join(draft.quotes)))):
        return None
    return named(draft.evaluator, draft.config, draft.says)


def is_harmless(text: str) -> bool:
    """Return whether a text from an output may be quoted in a criterion, which writers are told."""
    return not violation(text) and without_invisible(text) == text and memory_redactor().is_clean(text)


def named(evaluator: str, config: Mapping[str, Any], says: str = "") -> QualityCriterion:
    """Return a check whose name, and description if need be, say what it asks for; raises `ConfigError`."""
    plain = QualityCriterion("-", evaluator=evaluator, evaluator_config=dict(config))
    of_part(plain, CHECKS[evaluator])
    told = [one.text for one in requirements_of(plain)]
    words = says or " ".join(told[1:] or told)
    words = words.removeprefix("The text ")
    words = f"{words[:1].upper()}{words[1:]}" or f"Passes the check {plain.evaluator}."
    name = words.rstrip(".")
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 3].rsplit(' ', 1)[0]}..."
    is_told = any("the regular expression" not in one for one in told)
    return replace(plain, name=name, description="" if is_told else says)


# --- what a model drafts -----------------------------------------------------------------------------------


def declared(value: Any) -> QualityCriterion:
    """Return the check that a model wrote as `{"evaluator": ..., "config": {...}}`.

    Raises `ConfigError` for anything that could run code, read a file or take long: only the evaluators of
    `DECLARATIVE` and their options are allowed, and patterns that are matched in linear time. The model's own
    words are dropped; the criterion says what its configuration says.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"A check must be an object, got {value!r:.100}.")
    entries = cast("Mapping[str, Any]", value)
    evaluator, config = entries.get("evaluator"), entries.get("config")
    if not isinstance(evaluator, str) or evaluator not in DECLARATIVE:
        raise ConfigError(f"The evaluator must be one of {', '.join(DECLARATIVE)}, got {evaluator!r:.100}.")
    if (
        not isinstance(config, Mapping)
        or not set(cast("Mapping[Any, Any]", config)) <= DECLARATIVE[evaluator]
    ):
        raise ConfigError(
            f"The config of {evaluator!r} may have {', '.join(sorted(DECLARATIVE[evaluator]))}."
        )
    known = cast("Mapping[str, Any]", config)
    if len(json.dumps(known)) > LONGEST_CONFIG:
        raise ConfigError(f"The config of {evaluator!r} has more than {LONGEST_CONFIG:,} characters.")
    flags = known.get("flags", "")
    patterns = [(known["pattern"], flags)] if evaluator == "regex" and "pattern" in known else []
    for pattern, letters in (*patterns, *((one, "") for one in _patterns_in(known.get("schema")))):
        if len(str(pattern)) > LONGEST_PATTERN or compile_pattern(pattern, letters).linear is None:
            raise ConfigError(f"The pattern {str(pattern)[:60]!r} can't be matched in linear time.")
    if not all(map(is_harmless, _texts_in(known))):
        raise ConfigError("The config quotes what no criterion may: an instruction, a command, an address.")
    return named(evaluator, known)


def _patterns_in(schema: Any) -> list[Any]:
    """Return all regular expressions in a JSON Schema."""
    if isinstance(schema, list):
        return [pattern for one in cast("list[Any]", schema) for pattern in _patterns_in(one)]
    if not isinstance(schema, Mapping):
        return []
    entries = cast("Mapping[str, Any]", schema)
    found = [entries["pattern"]] if isinstance(entries.get("pattern"), str) else []
    properties: Any = entries.get("patternProperties")
    found += list(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else []
    return [*found, *(pattern for one in entries.values() for pattern in _patterns_in(one))]


def _texts_in(value: Any) -> list[str]:
    """Return all texts in plain data, as they read without the escapes of patterns."""
    if isinstance(value, str):
        return [value, re.sub(r"\\(?:s[+*]?|W[+*]?|(.))", lambda found: found[1] or " ", value)]
    if isinstance(value, Mapping):
        parts = [*cast("Mapping[str, Any]", value), *cast("Mapping[str, Any]", value).values()]
        return [text for one in parts for text in _texts_in(one)]
    if isinstance(value, list | tuple):
        return [text for one in cast("Sequence[Any]", value) for text in _texts_in(one)]
    return []


# --- kept proposals ----------------------------------------------------------------------------------------

PROPOSED = "proposed_criterion"
"""The kind of the record of a proposal, which holds the check and no output."""


def to_data(proposal: Proposal) -> dict[str, Any]:
    """Return what a record keeps of a proposal."""
    return {
        "criterion": to_json(proposal.criterion),
        "failure": proposal.failure,
        "lessons": list(proposal.lessons),
        "drafter": proposal.drafter,
        "agent": proposal.agent,
    }


def from_data(data: Mapping[str, Any]) -> Proposal:
    """Return the proposal in a record, without its trial."""
    criterion = from_json(QualityCriterion, data["criterion"])
    if criterion.evaluator in DECLARATIVE:
        declared({"evaluator": criterion.evaluator, "config": criterion.evaluator_config})
    elif criterion.evaluator != "llm":
        raise ConfigError(f"A proposal can't have the evaluator {criterion.evaluator!r}.")
    return Proposal(
        criterion,
        failure=data["failure"],
        lessons=tuple(data["lessons"]),
        drafter=data["drafter"],
        agent=data["agent"],
    )


# --- as Python ---------------------------------------------------------------------------------------------


def as_python(criteria: Sequence[QualityCriterion]) -> str:
    """Return criteria as Python source; every text in it is a literal."""
    lines = ["from redraft import QualityCriterion", "", "criteria = ["]
    for one in criteria:
        lines.append("    QualityCriterion(")
        for name, value in criterion_entry(one).items():
            keyword = {"name": "", "config": "evaluator_config="}.get(name, f"{name}=")
            lines.append(f"        {keyword}{value!r},")
        lines.append("    ),")
    return "\n".join([*lines, "]"])
