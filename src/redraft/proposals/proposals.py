"""Proposals: criteria for a person to accept, each tried on stored outputs first."""

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
"""Minimum failed runs before a check is proposed for a failure."""
MOST_PROPOSED = 5
"""Maximum checks for a failure, each for outputs that the earlier checks do not catch."""
MOST_TRIED = 12
"""Maximum drafts that are tried, the best first, before a failure is left without a check."""
LONGEST_PATTERN, LONGEST_CONFIG = 500, 4_000
"""Maximum characters of a pattern, and of a whole configuration, from a model."""
DECLARATIVE: dict[str, frozenset[str]] = {
    "regex": frozenset(("pattern", "flags", "must_match", "min_matches", "max_matches", "raw", "path")),
    "schema": frozenset(("schema", "path")),
    **dict.fromkeys(COUNTS, frozenset(("at_least", "at_most", "path"))),
}
"""The evaluators of proposals, with their options: they do not run code or read files."""


@dataclass(frozen=True)
class RecurringFailure:
    """A failure in several runs, with failed outputs and outputs that are good in this respect."""

    title: str
    """The failure, in the words of a criterion or an issue."""
    bad: Sequence[Sample]
    good: Sequence[Sample]
    texts: tuple[str, ...] = ()
    """Texts on the failure, such as issues."""
    lessons: tuple[str, ...] = ()
    """The ids of the lessons about it."""
    advised_runs: int = 0
    """The number of failed runs that received one of the lessons."""

    @property
    def runs(self) -> int:
        """The number of failed runs."""
        return len({sample.run for sample in self.bad})


@dataclass(frozen=True, slots=True)
class CriterionTrial:
    """The results of a criterion on stored outputs."""

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
    """The results of checks from each half of the runs on the other half."""
    caught_output: str = ""
    """A failed output that it refuses."""
    passed_output: str = ""
    """A good output that passes."""
    refused_output: str = ""
    """A good output that it refuses."""

    @property
    def weakness(self) -> str:
        """The objection to it; empty if there is none."""
        return self.fault or self.doubt

    @property
    def fault(self) -> str:
        """Why it can't be proposed: it refuses good outputs, or catches nothing."""
        if self.refused:
            return f"it refuses {counted(self.refused, 'good output')} of {self.good}"
        if self.unknown:
            return f"it could not judge {counted(self.unknown, 'output')}"
        return "" if self.caught or not self.bad else "it catches none of the failed outputs"

    @property
    def doubt(self) -> str:
        """Why it may be accidental: it rests on few outputs, or failed on held-out outputs."""
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
    advised_runs: int = 0
    drafter: Drafter = "rules"
    agent: str = ""

    @cached_property
    def id(self) -> str:
        """A digest of the check: the same check has the same id whenever it is drafted."""
        check, config = self.criterion.evaluator, to_json(self.criterion.evaluator_config)
        text = json.dumps([check, config, self.says if check == "llm" else ""], sort_keys=True)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]

    @property
    def says(self) -> str:
        """The requirement of the check."""
        return self.criterion.description or self.criterion.name

    def document(self) -> dict[str, Any]:
        """The proposal as plain data."""
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
            "told_in_vain": self.advised_runs,
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


# --- proposing ---------------------------------------------------------------------------------------------


async def proposals_for(
    failure: RecurringFailure,
    drafts: Sequence[QualityCriterion] = (),
    *,
    few: bool = False,
    weaker: bool = False,
) -> list[Proposal]:
    """The checks that would have caught a failure, the best first.

    `drafts` are a model's, and need to pass the same trial. With `few`, a check may rest on few outputs. With
    `weaker`, the best check with a weakness is returned if there is no other (see `CriterionTrial.weakness`).
    """
    hints, proposals = Hints.of(failure.title, *failure.texts), list[Proposal]()
    left = list(failure.bad)
    candidates = [
        _Draft(criterion, await _held_out(criterion, failure), "model", f"model {number}")
        for number, criterion in enumerate(drafts)
    ]
    fewest = 1 if few else FEWEST_RUNS
    while len(proposals) < MOST_PROPOSED and len({sample.run for sample in left}) >= fewest:
        for best in chain(_drafts(left, failure.good, hints), candidates):
            trial = await trial_of(best.criterion, left, failure.good, best.held_out)
            if not (trial.fault if few else trial.weakness):
                break
        else:
            break
        if trial.doubt:
            return await _alternatives(failure, chain(_drafts(left, failure.good, hints), candidates))
        proposals.append(
            _proposal(failure, best, await trial_of(best.criterion, failure.bad, failure.good, best.held_out))
        )
        passes = await verdicts(best.criterion, left)
        left = [sample for sample, passed in zip(left, passes, strict=True) if passed is not False]
    if not proposals and weaker:
        proposals = await _weaker(failure, hints)
    return proposals


class _Draft(NamedTuple):
    criterion: QualityCriterion
    held_out: HeldOut | None = None
    drafter: Drafter = "rules"
    family: str = ""


async def _alternatives(failure: RecurringFailure, drafts: Iterable[_Draft]) -> list[Proposal]:
    """The best check of each sort, if there are too few outputs to decide between them."""
    by_family: dict[str, Proposal] = {}
    for draft in drafts:
        if len(by_family) < MOST_PROPOSED and draft.family not in by_family:
            trial = await trial_of(draft.criterion, failure.bad, failure.good, draft.held_out)
            if not trial.fault:
                by_family[draft.family] = _proposal(failure, draft, trial)
    return list(by_family.values())


async def _held_out(criterion: QualityCriterion, failure: RecurringFailure) -> HeldOut | None:
    """The result of a model's check, drafted from one half of the runs, on the other half."""
    folds = halves(failure.bad, failure.good)
    if not folds:
        return None
    bad, good = [await verdicts(criterion, side) for side in folds[1]]
    return HeldOut(bad.count(False), len(bad), good.count(False), len(good))


def _drafts(bad: Sequence[Sample], good: Sequence[Sample], hints: Hints) -> Iterator[_Draft]:
    drafts = (separation for separation in separations(bad, good, hints) if not separation.is_chance)
    for separation in islice(drafts, MOST_TRIED):
        if (criterion := criterion_of(separation.draft)) is not None:
            yield _Draft(criterion, separation.held_out, family=separation.family)


async def _weaker(failure: RecurringFailure, hints: Hints) -> list[Proposal]:
    """The best check with a weakness."""
    drafts = weaker_drafts(failure.bad, failure.good, hints)
    drafts += [separation.draft for separation in separations(failure.bad, failure.good, hints)]
    for draft in drafts:
        if (criterion := criterion_of(draft)) is not None:
            trial = await trial_of(criterion, failure.bad, failure.good)
            return [_proposal(failure, _Draft(criterion), trial)]
    return []


def _proposal(failure: RecurringFailure, draft: _Draft, trial: CriterionTrial) -> Proposal:
    about = failure.title, failure.lessons, failure.advised_runs
    return Proposal(draft.criterion, trial, *about, draft.drafter)


# --- the trial ---------------------------------------------------------------------------------------------


async def trial_of(
    criterion: QualityCriterion,
    bad: Sequence[Sample],
    good: Sequence[Sample],
    held_out: HeldOut | None = None,
    *,
    model: ChatModel | None = None,
) -> CriterionTrial:
    """Judge failed and good outputs by a criterion, as a run would; a question needs the `model`."""
    of_bad, of_good = [await verdicts(criterion, side, model) for side in (bad, good)]
    refused, wrongly = ([verdict is False for verdict in side] for side in (of_bad, of_good))

    def first(samples: Sequence[Sample], chosen: Iterable[bool]) -> str:
        return next(
            (as_text(sample.output) for sample, is_it in zip(samples, chosen, strict=True) if is_it), ""
        )

    return CriterionTrial(
        len(bad),
        of_bad.count(False),
        len(good),
        of_good.count(False),
        [*of_bad, *of_good].count(None),
        len({sample.run for sample in bad}),
        len({sample.run for sample in good}),
        _share(bad, refused),
        _share(good, wrongly),
        held_out,
        first(bad, refused),
        first(good, [verdict is True for verdict in of_good]),
        first(good, wrongly),
    )


async def verdicts(
    criterion: QualityCriterion, samples: Sequence[Sample], model: ChatModel | None = None
) -> list[bool | None]:
    """Whether each output meets a criterion; None if it could not be judged."""
    judge = panel((criterion,), model=model)
    passed: list[bool | None] = []
    for sample in samples:
        evaluation = await judge(sample.output, RunContext(PlainTask(sample.task or "-"), ""))
        score = evaluation.overall_score
        passed.append(None if score is None else score >= criterion.threshold)
    return passed


def _share(samples: Sequence[Sample], chosen: Sequence[bool]) -> Effect | None:
    """The mean share of chosen outputs over runs: outputs of a run are not independent."""
    by_run: dict[str, list[bool]] = {}
    for sample, is_chosen in zip(samples, chosen, strict=True):
        by_run.setdefault(sample.run, []).append(is_chosen)
    return rate_of([sum(those) / len(those) for those in by_run.values()])


# --- from a draft to a criterion ---------------------------------------------------------------------------


def criterion_of(draft: CheckDraft) -> QualityCriterion | None:
    """A draft as a criterion, named after its requirement.

    None if it quotes forbidden text: an instruction, a command, an address, personal data, a secret.
    """
    if not all(map(is_harmless, (*draft.quotes, " ".join(draft.quotes)))):
        return None
    return named_check(draft.evaluator, draft.config, draft.says)


def is_harmless(text: str) -> bool:
    """Whether a text from an output may be quoted in a criterion, which writers see."""
    return not violation(text) and without_invisible(text) == text and memory_redactor().is_clean(text)


def named_check(evaluator: str, config: Mapping[str, Any], says: str = "") -> QualityCriterion:
    """A check whose name, and description if need be, state its requirement; raises `ConfigError`."""
    plain = QualityCriterion("-", evaluator=evaluator, evaluator_config=dict(config))
    of_part(plain, CHECKS[evaluator])
    requirements = [requirement.text for requirement in requirements_of(plain)]
    words = says or " ".join(requirements[1:] or requirements)
    words = words.removeprefix("The text ")
    words = f"{words[:1].upper()}{words[1:]}" or f"Passes the check {plain.evaluator}."
    name = words.rstrip(".")
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 3].rsplit(' ', 1)[0]}..."
    is_stated = any("the regular expression" not in text for text in requirements)
    return replace(plain, name=name, description="" if is_stated else says)


# --- a model's drafts --------------------------------------------------------------------------------------


def parse_check(value: Any) -> QualityCriterion:
    """Parse a check that a model wrote as `{"evaluator": ..., "config": {...}}`.

    Raises `ConfigError` for anything that could run code, read a file or take long: only the evaluators and
    options of `DECLARATIVE` are allowed, and patterns that are matched in linear time. The model's own words
    are dropped; the name of the criterion comes from its configuration.
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
    options = cast("Mapping[str, Any]", config)
    if len(json.dumps(options)) > LONGEST_CONFIG:
        raise ConfigError(f"The config of {evaluator!r} has more than {LONGEST_CONFIG:,} characters.")
    flags = options.get("flags", "")
    patterns = [(options["pattern"], flags)] if evaluator == "regex" and "pattern" in options else []
    for pattern, letters in (
        *patterns,
        *((pattern_text, "") for pattern_text in _patterns_in(options.get("schema"))),
    ):
        if len(str(pattern)) > LONGEST_PATTERN or compile_pattern(pattern, letters).linear is None:
            raise ConfigError(f"The pattern {str(pattern)[:60]!r} can't be matched in linear time.")
    check = named_check(evaluator, options)
    # A pattern such as `i[g]nore` hides its words until they are stated to a writer.
    stated = [requirement.text for requirement in requirements_of(check)]
    if not all(map(is_harmless, [*_texts_in(options), check.name, *stated])):
        raise ConfigError("The config quotes what no criterion may: an instruction, a command, an address.")
    return check


def _patterns_in(schema: Any) -> list[Any]:
    """All regular expressions in a JSON Schema."""
    if isinstance(schema, list):
        return [pattern for item in cast("list[Any]", schema) for pattern in _patterns_in(item)]
    if not isinstance(schema, Mapping):
        return []
    entries = cast("Mapping[str, Any]", schema)
    patterns = [entries["pattern"]] if isinstance(entries.get("pattern"), str) else []
    properties: Any = entries.get("patternProperties")
    patterns += list(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else []
    return [*patterns, *(pattern for value in entries.values() for pattern in _patterns_in(value))]


def _texts_in(value: Any) -> list[str]:
    """All texts in plain data, without the escapes of patterns."""
    if isinstance(value, str):
        return [value, re.sub(r"\\(?:s[+*]?|W[+*]?|(.))", lambda match: match[1] or " ", value)]
    if isinstance(value, Mapping):
        parts = [*cast("Mapping[str, Any]", value), *cast("Mapping[str, Any]", value).values()]
        return [text for part in parts for text in _texts_in(part)]
    if isinstance(value, list | tuple):
        return [text for item in cast("Sequence[Any]", value) for text in _texts_in(item)]
    return []


# --- stored proposals --------------------------------------------------------------------------------------

PROPOSED = "proposed_criterion"
"""The kind of the record of a proposal, which has the check but no output."""


def to_data(proposal: Proposal) -> dict[str, Any]:
    """The data of a proposal in a record."""
    return {
        "criterion": to_json(proposal.criterion),
        "failure": proposal.failure,
        "lessons": list(proposal.lessons),
        "drafter": proposal.drafter,
        "agent": proposal.agent,
    }


def from_data(data: Mapping[str, Any]) -> Proposal:
    """The proposal in a record, without its trial."""
    criterion = from_json(QualityCriterion, data["criterion"])
    if criterion.evaluator in DECLARATIVE:
        parse_check({"evaluator": criterion.evaluator, "config": criterion.evaluator_config})
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
    """Criteria as Python source; every text in it is a literal."""
    lines = ["from redraft import QualityCriterion", "", "criteria = ["]
    for criterion in criteria:
        lines.append("    QualityCriterion(")
        for name, value in criterion_entry(criterion).items():
            keyword = {"name": "", "config": "evaluator_config="}.get(name, f"{name}=")
            lines.append(f"        {keyword}{value!r},")
        lines.append("    ),")
    return "\n".join([*lines, "]"])
