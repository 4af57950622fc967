"""Evaluation reports: every try, the figures of each arm, and the differences between arms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from math import comb
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar
from xml.etree import ElementTree as ET

from redraft._codec import from_json, from_record, to_json, to_record
from redraft._texts import abridged, clipped, counted
from redraft._validation import only
from redraft.errors import ConfigError
from redraft.loop.record import Process
from redraft.loop.ways import AgentWay, Revision, ways_in
from redraft.stats import (
    FEWEST_TELLING_CASES,
    Effect,
    PairedComparison,
    compared_means,
    compared_rates,
    mean_of_cases,
    rate_of,
)
from redraft.stores.base import Record, values_of
from redraft.types import NOT_JUDGED, NOT_REPORTED, NOTHING_USED, Output, TokenUsage, render_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from redraft.stores.base import Store
    from redraft.types import ReflectionEvaluation

EVALUATION, TRY = "evaluation", "try"
"""Record kinds of an evaluation and of its tries; the keys of tries begin with the evaluation's id."""
BASELINE = "baseline"
LAST = "last"
BEST_OF = re.compile(r"best-of-(\d+)", re.ASCII)
"""Name of a side that is the best of N drafts."""
FLIPS = "flips"
"""Column that holds how often two tries of a case end differently."""
SHOWN = 10
"""The most flipped cases to name."""
LONGEST_ERROR = 200
"""The most characters to print of an error."""


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """The output that a run would return if it ended after a version, graded by the case."""

    output: Output
    usage: TokenUsage
    """Usage of all calls up to this version."""
    score: float | None
    """0..1; None if it could not be judged."""
    passed: bool | None
    """None if it could not be judged."""
    issues: tuple[str, ...] = ()

    def used(self, count: str) -> float | None:
        """A count of the usage; None if a function reported none."""
        return None if self.usage == NOT_REPORTED else float(getattr(self.usage, count))

    @classmethod
    def of(cls, output: Output, usage: TokenUsage, evaluation: ReflectionEvaluation) -> GradedAnswer:
        """Grade an answer by an evaluation."""
        has_verdict = evaluation.satisfactory or evaluation.is_conclusive
        return cls(
            output,
            usage,
            evaluation.overall_score if evaluation.is_conclusive else None,
            evaluation.satisfactory if has_verdict else None,
            tuple(map(str, evaluation.issues)),
        )


@dataclass(frozen=True, slots=True)
class Try:
    """One try of an arm at a case."""

    case: str
    arm: str
    number: int
    """The number of the try, from 1."""
    answers: tuple[GradedAnswer, ...]
    """The answer after each version, from the first draft to the returned output; empty if the run failed."""
    usage: TokenUsage = NOTHING_USED
    seconds: float = 0.0
    grading: TokenUsage = NOTHING_USED
    """Usage of the judgements, which `usage` does not include."""
    error: str = ""
    """Why the run failed."""
    unknown: bool = False
    """Whether a provider or a judge failed, so that the result is unknown rather than a failure."""
    run_id: str = ""
    revisions: tuple[Revision, ...] = ()
    """Revisions of its last run in which a model chose among several ways."""
    unjudged: str = ""
    """Why the run could not be judged, if it ended for that reason; the grade of its answer is separate."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Identity of the try; a stored try with this key is not repeated."""
        return self.case, self.arm, self.number

    @property
    def spent(self) -> TokenUsage:
        """Total usage, including grading."""
        return self.usage + self.grading


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a comparison: the returned answers of an arm, or its first drafts.

    A best-of-N side shows the result of the same number of calls without feedback.
    """

    name: str
    """`best-of-N` marks a best-of-N."""
    arm: str
    first: bool = False
    """Whether the first drafts are compared."""

    @property
    def is_best_of(self) -> bool:
        """Whether the side is a best-of-N."""
        return BEST_OF.fullmatch(self.name) is not None

    def answer(self, attempt: Try, calls: int | None = None) -> GradedAnswer | None:
        """The side's answer in a try, within `calls`; None if the run failed."""
        if not attempt.answers:
            return None
        if self.first:
            return attempt.answers[0]
        if calls is None:
            return attempt.answers[-1]
        within = [answer for answer in attempt.answers if answer.usage.requests <= calls]
        return within[-1] if within else attempt.answers[0]


@dataclass(slots=True)
class Evaluated:
    """Stored record of an evaluation: its cases, its sides and its state."""

    run_id: str
    started_at: datetime
    process: Process
    """The process that runs it."""
    cases: tuple[str, ...]
    """Case ids."""
    controls: tuple[str, ...]
    """Ids of the cases that were right without reflection."""
    digest: str
    """Identifies the cases, the agents and the judges."""
    sides: tuple[Side, ...]
    n: int = 1
    """Tries of each case."""
    finished_at: datetime | None = None
    note: str = ""
    """Why tries are missing."""
    findings: tuple[str, ...] = ()
    """A sentence for each difference."""
    suspended: Mapping[str, TokenUsage] = field(default_factory=dict[str, TokenUsage])
    """Usage of tries that were suspended because the budget was spent, by name."""

    noun: ClassVar[str] = "evaluation"

    @property
    def state(self) -> str:
        """`finished`, `budget spent` if tries are missing, or the state of its process."""
        if self.finished_at is None:
            return self.process.state_of_run
        return "budget spent" if self.note else "finished"

    def document(self) -> dict[str, Any]:
        """The evaluation as plain data, for a list."""
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "state": self.state}

    def stored(self) -> Record:
        """The evaluation as a record for a store."""
        return Record(EVALUATION, self.run_id, to_record(self))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one side: means over the cases; None for unknown."""

    side: str
    cases: int
    tries: int
    passed_tries: int
    passed: Effect | None
    """The share of tries that passed, with its 95 % interval."""
    score: Effect | None
    """The mean score, with its 95 % interval."""
    mean_passed: float | None
    mean_score: float | None
    calls: float | None
    """Mean of a try, as are `tokens`, `cost_usd` and `seconds`."""
    tokens: float | None
    cost_usd: float | None
    seconds: float | None
    tokens_per_passed: float | None
    """All tokens divided by the number of tries that passed."""
    unknown: int
    """Tries that could not be judged."""
    failed: int
    """Tries in which the agent failed."""
    tries_of_case: int = 1
    """Tries of each case (`n` of the evaluation)."""
    passed_all: float | None = None
    """Probability that all tries of a case pass (pass^k), over the cases with enough verdicts."""
    all_passed: Effect | None = None
    """`passed_all` with its 95 % interval."""
    flips: float | None = None
    """Probability that two tries of the same case end differently."""
    incomplete: int = 0
    """Cases without enough verdicts, which `passed_all` leaves out."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two sides on the cases that both have: `ours` minus `theirs`."""

    ours: str
    theirs: str
    calls: int | None
    """Set if a side is a best-of-N: the answers of both sides within this number of calls are compared."""
    passed: PairedComparison
    """Compares shares; the other fields compare means."""
    score: PairedComparison
    tokens: PairedComparison
    cost_usd: PairedComparison
    seconds: PairedComparison
    gained: tuple[str, ...] = ()
    """Cases that `ours` passes more often."""
    lost: tuple[str, ...] = ()
    """Cases that `ours` passes less often."""

    def sentence(self) -> str:
        """The difference in the share that passed, in words."""
        passed = self.passed
        within = f", with at most {counted(self.calls, 'call')} each" if self.calls else ""
        what = f"{self.ours} against {self.theirs}{within}"
        if passed.effect is None:
            cases = counted(passed.cases, "case")
            return f"{what}: unknown, {cases} to compare; at least {FEWEST_TELLING_CASES} are needed."
        difference = f"{points(passed.effect)}, {passed.cases} cases"
        if passed.verdict == "not distinguishable":
            needed = f"; about {passed.needed:,} cases would tell" if passed.needed else ""
            return f"{what}: not distinguishable, {difference}{needed}."
        return f"{what}: {passed.verdict}, {difference}."

    def flips(self) -> list[str]:
        """The first lost and gained cases, a line each."""
        return [
            f"{what}: {abridged(cases, SHOWN)}"
            for what, cases in (("lost", self.lost), ("gained", self.gained))
            if cases
        ]

    def power(self) -> str:
        """The smallest difference that this number of cases can show, in words; empty if unknown."""
        passed = self.passed
        if passed.effect is None:
            return ""
        if passed.detectable is None:
            needed = f"at least {FEWEST_TELLING_CASES} are needed"
            return f"{passed.cases} cases are too few to show any difference; {needed}."
        least = f"{100 * passed.detectable:.0f} points"
        return f"{passed.cases} cases show a difference of {least} four times in five."


def points(effect: Effect) -> str:
    """Render a difference of shares in points, with its interval."""
    mean, low, high = (f"{100 * share:+.1f}" for share in (effect.mean, effect.low, effect.high))
    return f"{mean} points (95 %: {low} to {high})"


METRICS: Mapping[str, Callable[[Try, GradedAnswer | None], float | None]] = {
    "passed": lambda attempt, answer: (
        (None if attempt.unknown else 0.0) if answer is None
        else None if answer.passed is None else float(answer.passed)
    ),
    "score": lambda _, answer: None if answer is None else answer.score,
    "calls": lambda _, answer: None if answer is None else answer.used("requests"),
    "tokens": lambda _, answer: None if answer is None else answer.used("total_tokens"),
    "cost_usd": lambda _, answer: None if answer is None else answer.usage.cost_usd,
    "seconds": lambda attempt, answer: (
        attempt.seconds if attempt.answers and answer is attempt.answers[-1] else None
    ),
}  # fmt: skip
"""Measurements of a try; None for unknown. Only whole runs are timed."""


@dataclass(frozen=True)
class EvaluationReport:
    """The tries of an evaluation, with figures and differences.

    The first side is compared with each of the others.
    """

    evaluated: Evaluated
    """Cases, sides and state of the evaluation."""
    tries: tuple[Try, ...]

    def __str__(self) -> str:
        return self.markdown()

    def __repr__(self) -> str:
        cases, tries = counted(len(self.evaluated.cases), "case"), len(self.tries)
        made = f"{tries:,} {'try' if tries == 1 else 'tries'}"
        return f"<{type(self).__name__} {self.run_id!r}: {cases}, {made}>"

    @property
    def run_id(self) -> str:
        """The id to continue the evaluation with."""
        return self.evaluated.run_id

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        """The sides that are compared."""
        return self.evaluated.sides

    @cached_property
    def figures(self) -> tuple[Figures, ...]:
        """The figures of each side, in order."""
        return tuple(map(self._figures, self.sides))

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """The first side against each of the others."""
        ours, *others = self.sides
        return tuple(self._difference(ours, theirs) for theirs in others)

    @cached_property
    def ways(self) -> tuple[AgentWay, ...]:
        """The ways in which each arm revised its versions, and how many of these revisions were gains."""
        revisions: dict[str, list[Revision]] = {side.arm: [] for side in self.sides}
        for attempt in self.tries:
            if attempt.arm in revisions:
                revisions[attempt.arm] += attempt.revisions
        return tuple(way for arm, several in revisions.items() for way in ways_in(several, arm))

    @property
    def has_regressed(self) -> bool:
        """Whether the first side passes significantly less often than another side.

        Its own first drafts count only without another agent or baseline: each further comparison would add
        false alarms.
        """
        main, *others = self.sides
        is_other_arm = [other.arm != main.arm for other in others]
        return any(
            difference.passed.verdict == "worse" and (is_other or not any(is_other_arm))
            for difference, is_other in zip(self.differences, is_other_arm, strict=True)
        )

    @property
    def usage(self) -> TokenUsage:
        """Usage of all tries, including grading."""
        return sum((attempt.spent for attempt in self.tries), NOTHING_USED)

    @property
    def spoiled(self) -> tuple[str, ...]:
        """Control cases with a try that the first side did not pass."""
        passed = self._of_cases(self.sides[0], "passed")
        return tuple(case for case in self.evaluated.controls if passed.get(case, 1.0) < 1.0)

    def against(self, document: Mapping[str, Any], name: str = BASELINE) -> EvaluationReport:
        """Compare with the first side of an earlier report, given as its `document`.

        Raises `ConfigError` as `read_baseline` does.
        """
        while name in {taken for side in self.sides for taken in (side.name, side.arm)}:
            name = f"earlier {name}"
        side, tries = read_baseline(document, self.evaluated.cases, name)
        return EvaluationReport(replace(self.evaluated, sides=(*self.sides, side)), (*self.tries, *tries))

    def _figures(self, side: Side) -> Figures:
        tries = self._tries_of(side)
        answers = [(attempt, side.answer(attempt)) for attempt in tries]
        passed = [METRICS["passed"](attempt, answer) for attempt, answer in answers]
        by_case: dict[str, list[float]] = {attempt.case: [] for attempt in tries}
        for attempt, verdict in zip(tries, passed, strict=True):
            if verdict is not None:
                by_case[attempt.case].append(verdict)
        of_cases = {name: list(self._of_cases(side, name).values()) for name in METRICS}
        tokens = [METRICS["tokens"](*answered) for answered in answers if answered[1] is not None]

        def mean(name: str) -> float | None:
            values = of_cases[name]
            # A sum with an unknown part is unknown.
            is_complete = name in ("passed", "score") or all(
                METRICS[name](attempt, answer) is not None
                for attempt, answer in answers
                if answer is not None
            )
            return fmean(values) if values and is_complete else None

        return Figures(
            side.name,
            len({attempt.case for attempt in tries}),
            len(tries),
            passed.count(1.0),
            rate_of(of_cases["passed"]),
            within_bounds(mean_of_cases(of_cases["score"])),
            mean("passed"),
            mean("score"),
            mean("calls"),
            mean("tokens"),
            mean("cost_usd"),
            mean("seconds"),
            None if None in tokens or 1.0 not in passed else sum(filter(None, tokens)) / passed.count(1.0),
            passed.count(None),
            sum(bool(attempt.error) and not attempt.unknown for attempt in tries),
            **_repeated(by_case.values(), self.evaluated.n),
        )

    def _difference(self, ours: Side, theirs: Side) -> Difference:
        calls = self._equal_calls(ours, theirs)

        def pairs(name: str) -> dict[str, tuple[float, float]]:
            mine, others = (self._of_cases(side, name, calls) for side in (ours, theirs))
            # The time of a first draft is known only if there was no revision.
            if name == "seconds" and mine.keys() != others.keys():
                return {}
            return {case: (mine[case], others[case]) for case in mine if case in others}

        passed = pairs("passed")
        compared = {
            name: compared_means(list(pairs(name).values()))
            for name in ("score", "tokens", "cost_usd", "seconds")
        }
        return Difference(
            ours.name,
            theirs.name,
            calls,
            compared_rates(list(passed.values())),
            **compared,
            gained=tuple(case for case, (mine, other) in passed.items() if mine > other),
            lost=tuple(case for case, (mine, other) in passed.items() if mine < other),
        )

    def _equal_calls(self, ours: Side, theirs: Side) -> int | None:
        """Calls after which a loop and a best-of-N are compared; None for all calls.

        The side with more calls is cut at the calls of the other. All other sides are compared by their
        returned answers, at any number of calls.
        """
        if not (ours.is_best_of or theirs.is_best_of) or ours.first or theirs.first:
            return None
        most = [self._most_calls(side) for side in (ours, theirs)]
        return min(most) if most[0] != most[1] and min(most) > 1 else None

    def _tries_of(self, side: Side) -> list[Try]:
        return [attempt for attempt in self.tries if attempt.arm == side.arm]

    def _most_calls(self, side: Side) -> int:
        tries = self._tries_of(side)
        return max((attempt.answers[-1].usage.requests for attempt in tries if attempt.answers), default=0)

    def _of_cases(self, side: Side, name: str, calls: int | None = None) -> dict[str, float]:
        """Mean of a metric for each case that has a value."""
        values_by_case: dict[str, list[float]] = {}
        for attempt in self._tries_of(side):
            value = METRICS[name](attempt, side.answer(attempt, calls))
            if value is not None:
                values_by_case.setdefault(attempt.case, []).append(value)
        return {case: fmean(values) for case, values in values_by_case.items()}

    def solved_within(self, side: Side) -> dict[int, float]:
        """Share of tries that pass within 1, 2, 3 and so on calls, up to the most calls of any try."""
        shares: dict[int, float] = {}
        for calls in range(1, self._most_calls(side) + 1):
            passed = self._of_cases(side, "passed", calls)
            if passed:
                shares[calls] = fmean(passed.values())
        return shares

    # --- as data ----------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The report as plain data without outputs, which a later report can be compared with."""
        evaluated = self.evaluated
        return to_json(
            {
                "run_id": evaluated.run_id,
                "started_at": evaluated.started_at,
                "finished_at": evaluated.finished_at,
                "note": evaluated.note,
                "n": evaluated.n,
                "cases": evaluated.cases,
                "controls": evaluated.controls,
                "spoiled_controls": self.spoiled,
                "sides": evaluated.sides,
                "figures": self.figures,
                "after_calls": {side.name: self.solved_within(side) for side in self.sides},
                "differences": [
                    {
                        **to_json(difference),
                        "verdict": difference.passed.verdict,
                        "sentence": difference.sentence(),
                    }
                    for difference in self.differences
                ],
                "ways": [way.document() for way in self.ways],
                "regressed": self.has_regressed,
                "remarks": self.remarks(),
                "usage": self.usage,
                "tries": [
                    replace(
                        attempt, answers=tuple(replace(answer, output=None) for answer in attempt.answers)
                    )
                    for attempt in self.tries
                ],
            }
        )

    def markdown(self) -> str:
        """The report as Markdown, such as for the summary of a build."""
        rows = [row(figures) for figures in self.figures]
        head, escaped = list(rows[0]), "\\|"
        lines = [
            f"### Evaluation: {counted(len(self.evaluated.cases), 'case')}",
            "",
            f"| {' | '.join(head)} |",
            f"|{'|'.join(' --- ' if name == 'arm' else ' ---: ' for name in head)}|",
            *(f"| {' | '.join(cell.replace('|', escaped) for cell in cells.values())} |" for cells in rows),
            "",
            *(
                f"- {' '.join([difference.sentence(), *(f'({text})' for text in difference.flips())])}"
                for difference in self.differences
            ),
            *(f"- {text}" for text in self.remarks()),
        ]
        return "\n".join([*lines, ""])

    def remarks(self) -> list[str]:
        """Remarks on the figures, such as tries that could not be judged."""
        remarks = [
            difference.power()
            for difference in self.differences[:1]
            if difference.passed.verdict == "not distinguishable"
        ]
        main = self.figures[0]
        if self.evaluated.n > 1 and main.flips is not None:
            remarks.append(f"Two tries of a case by {main.side} end differently in {100 * main.flips:.0f} %.")
        if main.incomplete:
            cases = counted(main.incomplete, "case")
            remarks.append(
                f"{cases} with fewer than {self.evaluated.n} verdicts on {main.side}: not counted among "
                "those that pass, or don't, in all tries."
            )
        if self.spoiled:
            remarks.append(f"Spoiled control cases, right without reflection: {', '.join(self.spoiled)}.")
        if main.unknown:
            why = self._why_unknown(self.sides[0])
            remarks.append(
                f"{main.unknown} of {main.tries} tries could not be judged, and are left out. {why}"
            )
        remarks += self._unjudged_runs()
        if main.failed:
            tries = self._tries_of(self.sides[0])
            errors = (attempt.error for attempt in tries if attempt.error and not attempt.unknown)
            remarks.append(
                f"{main.failed} of {main.tries} tries failed with an error, and count as not passed. "
                f"The first: {clipped(next(errors), LONGEST_ERROR)}"
            )
        if self.evaluated.note:
            remarks.append(self.evaluated.note)
        return [remark for remark in remarks if remark]

    def _unjudged_runs(self) -> Iterator[str]:
        """Say for each arm how many of its runs ended because they could not judge their own output."""
        for arm in dict.fromkeys(side.arm for side in self.sides):
            tries = [attempt for attempt in self.tries if attempt.arm == arm]
            if unjudged := [attempt for attempt in tries if attempt.unjudged]:
                first = unjudged[0]
                why = clipped(first.unjudged, LONGEST_ERROR).removesuffix(".")
                yield (
                    f"{len(unjudged)} of {len(tries)} runs of {arm} could not be judged, so nothing was "
                    f"revised further: {why} (redraft why {first.run_id})."
                )

    def _why_unknown(self, side: Side) -> str:
        """Why the first unjudged try could not be judged."""
        for attempt in self._tries_of(side):
            answer = side.answer(attempt)
            if METRICS["passed"](attempt, answer) is None:
                return attempt.error or _why_not_judged(answer)
        return ""

    def junit(self) -> str:
        """The tries of the first side as JUnit XML, each as a test case."""
        side = self.sides[0]
        tries = self._tries_of(side)
        suite = ET.Element("testsuite", name=_xml(f"redraft eval {side.name}"), tests=str(len(tries)))
        counts = {"failures": 0, "skipped": 0}
        for attempt in tries:
            name = attempt.case if self.evaluated.n == 1 else f"{attempt.case} [{attempt.number}]"
            element = ET.SubElement(
                suite, "testcase", classname=_xml(side.name), name=_xml(name), time=f"{attempt.seconds:.3f}"
            )
            answer = side.answer(attempt)
            passed = METRICS["passed"](attempt, answer)
            if passed is None:
                counts["skipped"] += 1
                ET.SubElement(element, "skipped", message=_xml(attempt.error or _why_not_judged(answer)))
            elif not passed:
                counts["failures"] += 1
                issues = "\n".join(answer.issues) if answer is not None else attempt.error
                message = issues.partition("\n")[0] or "It did not pass."
                ET.SubElement(element, "failure", message=_xml(message)).text = _xml(issues)
        for key, count in counts.items():
            suite.set(key, str(count))
        return ET.tostring(suite, "unicode", xml_declaration=True) + "\n"


def read_baseline(
    document: Mapping[str, Any], cases: Iterable[str], name: str = BASELINE
) -> tuple[Side, tuple[Try, ...]]:
    """Read the first side of an earlier report and its tries from its `document`, under another name.

    Raises `ConfigError` if it is not the document of an evaluation, or has none of these cases.
    """
    try:
        sides = [from_json(Side, entry) for entry in document["sides"]]
        before = [from_json(Try, entry) for entry in document["tries"]]
    except KeyError as error:
        raise ConfigError(
            f"The {name} is not what redraft eval --json printed: the key {error} is missing."
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The {name} is not what redraft eval --json printed: {error}") from error
    if not sides:
        raise ConfigError(f"The {name} is not what redraft eval --json printed: it has no sides.")
    main = sides[0]
    tries = tuple(replace(attempt, arm=name) for attempt in before if attempt.arm == main.arm)
    if not {attempt.case for attempt in tries} & set(cases):
        raise ConfigError(f"The {name} has none of these cases.")
    return Side(name, name, main.first), tries


def _why_not_judged(answer: GradedAnswer | None) -> str:
    issues = () if answer is None else answer.issues
    return "; ".join(issue for issue in issues if issue.startswith(NOT_JUDGED)) or "It could not be judged."


def report_of(evaluated: Evaluated, tries: Iterable[Try]) -> EvaluationReport:
    """Report on tries, sorted by number, then by the order of the cases."""
    order = {case: at for at, case in enumerate(evaluated.cases)}

    def position(attempt: Try) -> tuple[int, int, str]:
        return attempt.number, order[attempt.case], attempt.arm

    return EvaluationReport(evaluated, tuple(sorted(tries, key=position)))


def _repeated(verdicts: Collection[Sequence[float]], tries: int) -> dict[str, Any]:
    """Figures of repeated tries, from the verdicts on each case: 1 for a try that passed, else 0.

    Cases with fewer verdicts than `tries` don't count in pass^k: a missing verdict must not count as passed.
    A baseline may have more verdicts; pass^k is then the share of subsets of that size in which all pass.
    """
    every = [
        comb(round(sum(of_case)), tries) / comb(len(of_case), tries)
        for of_case in verdicts
        if len(of_case) >= tries > 1
    ]
    several = [(sum(of_case), len(of_case)) for of_case in verdicts if len(of_case) > 1]
    return {
        "tries_of_case": tries,
        "passed_all": fmean(every) if every else None,
        "all_passed": rate_of(every),
        "flips": fmean(2 * met * (of - met) / (of * (of - 1)) for met, of in several) if several else None,
        "incomplete": sum(len(of_case) < tries for of_case in verdicts) if tries > 1 else 0,
    }


def within_bounds(effect: Effect | None) -> Effect | None:
    """Clip an interval of scores to 0..1."""
    return None if effect is None else Effect(effect.mean, max(0.0, effect.low), min(1.0, effect.high))


def row(figures: Figures) -> dict[str, str]:
    """Table cells of a side by column."""

    def number(value: float | None, form: str) -> str:
        return "?" if value is None else format(value, form)

    def spread(effect: Effect | None, scale: float, form: str) -> str:
        if effect is None:
            return ""
        return f" ({format(effect.low * scale, form)} to {format(effect.high * scale, form)})"

    share = "?" if figures.mean_passed is None else f"{100 * figures.mean_passed:.0f} %"
    every = "?" if figures.passed_all is None else f"{100 * figures.passed_all:.0f} %"
    repeated = {
        f"all {figures.tries_of_case} tries (95 %)": f"{every}{spread(figures.all_passed, 100, '.0f')}",
        FLIPS: "?" if figures.flips is None else f"{100 * figures.flips:.0f} %",
    }
    return {
        "arm": figures.side,
        "cases": str(figures.cases),
        "passed (95 %)": f"{share}{spread(figures.passed, 100, '.0f')}",
        **(repeated if figures.tries_of_case > 1 else {}),
        "score (95 %)": f"{number(figures.mean_score, '.2f')}{spread(figures.score, 1, '.2f')}",
        "calls": number(figures.calls, ".1f"),
        "tokens": number(figures.tokens, ",.0f"),
        "cost": "?" if figures.cost_usd is None else render_usd(figures.cost_usd),
        "s": number(figures.seconds, ".1f"),
        "tokens per passed": number(figures.tokens_per_passed, ",.0f"),
    }


def _xml(text: str) -> str:
    """Replace the characters that XML forbids: controls, halves of pairs, and the last two of the plane."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


# --- as stored ------------------------------------------------------------------------------------------


class Evaluations:
    """Stored evaluations: list them, and read their reports."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self, limit: int = 50) -> list[Evaluated]:
        """The newest evaluations."""
        records = await self._store.find(EVALUATION, newest_first=True, limit=limit)
        return values_of(records, Evaluated)

    async def report(self, run_id: str = LAST) -> EvaluationReport:
        """Report of an evaluation by its id or a prefix of it, or of the `last` evaluation.

        Raises `ConfigError` if there is no such evaluation, or if the prefix is ambiguous.
        """
        if run_id == LAST:
            records = await self._store.find(EVALUATION, newest_first=True, limit=1)
        elif exact := await self._store.get(EVALUATION, run_id):
            records = [exact]
        else:
            records = await self._store.find(EVALUATION, prefix=run_id, limit=3) if run_id else []
        record = only(records, run_id, "evaluations", lambda record: record.key)
        if record is None:
            none = "No evaluations are stored here yet."
            unknown = f"There is no evaluation {run_id!r} here; `redraft eval list` lists them."
            raise ConfigError(none if run_id == LAST else unknown)
        evaluated = from_record(Evaluated, record.data)
        return report_of(evaluated, await tries_in(self._store, evaluated.run_id))


async def evaluated_in(store: Store, run_id: str) -> Evaluated | None:
    """Read an evaluation; None if it is not stored."""
    record = await store.get(EVALUATION, run_id)
    return None if record is None else from_record(Evaluated, record.data)


async def tries_in(store: Store, run_id: str) -> list[Try]:
    """Tries of an evaluation that have ended."""
    return values_of(await store.find(TRY, prefix=f"{run_id}/"), Try)
