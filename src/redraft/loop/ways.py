"""Ways: choose how the next version is made by which revisions were gains before."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from redraft._codec import to_record
from redraft._texts import counted, is_short
from redraft.evaluate.criteria import needs_model
from redraft.loop.select import is_setback
from redraft.loop.strategy import FROM_SCRATCH, from_scratch, way_of_hybrid
from redraft.protocols import FRESH_TEMPERATURE
from redraft.types import FailureKind, LengthClass, TokenUsage, Way, highest, replaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from redraft.protocols import Attempt
    from redraft.stats import Effect
    from redraft.stores.base import Scalar, Store
    from redraft.stores.run_index import RunShare, Share
    from redraft.types import QualityCriterion, ReflectionVersion

SAMPLE, FRESH, EDITS, REWRITE, OWN = "resample", "fresh", "targeted_edit", "full_rewrite", "revise"
MODEL_WAYS = (SAMPLE, FRESH, EDITS, REWRITE)
"""The ways of a model that drafts and revises."""
OWN_WAYS = (SAMPLE, FRESH, OWN)
"""The ways of a model that drafts, where a function of the user's revises."""
USUAL_PRIOR = (1.0, 2.0)
"""The gains and failures with which the usual way starts, without evidence."""
OTHER_PRIOR = (0.5, 2.0)
"""The gains and failures with which every other way starts."""
DECAY = 0.96
"""The weight of a revision relative to the next in the same situation: models and tasks change."""
SHARPNESS = 2.5
"""Factor on both parameters of the posterior: draws closer to its mean shorten the search."""
COST_PRIOR = 1.0
"""The number of revisions of average cost with which each way starts."""
_MOST_REMEMBERED = 1_000
"""Agents whose evidence a process remembers."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision that was made and judged."""

    way: Way
    is_gain: bool
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class WayRecord:
    """The results of a way to revise outputs of a length after a kind of failure."""

    failure: FailureKind
    length: LengthClass
    way: str
    tried: int = 0
    """Revisions in this way."""
    gains: int = 0
    """Revisions that were gains."""
    weight: float = 0.0
    """The sum of the weights of revisions, with less weight for earlier ones."""
    weighted_gains: float = 0.0
    weighted_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class RevisionEvidence:
    """The results of the revisions of an agent with a model."""

    records: tuple[WayRecord, ...] = ()

    def of(self, failure: FailureKind, length: LengthClass) -> dict[str, WayRecord]:
        """The results for outputs of a length after a kind of failure, by way."""
        situation = failure, length
        return {record.way: record for record in self.records if (record.failure, record.length) == situation}

    def plus(self, revisions: Iterable[Revision]) -> RevisionEvidence:
        """The evidence with more revisions, in the order in which they were made."""
        records = {(record.failure, record.length, record.way): record for record in self.records}
        for revision in revisions:
            way = revision.way
            key = (way.failure, way.length, way.name)
            for other, record in records.items():
                if other[:2] == key[:2]:
                    records[other] = replace(
                        record,
                        weight=record.weight * DECAY,
                        weighted_gains=record.weighted_gains * DECAY,
                        weighted_tokens=record.weighted_tokens * DECAY,
                    )
            record = records.get(key) or WayRecord(*key)
            records[key] = replace(
                record,
                tried=record.tried + 1,
                gains=record.gains + revision.is_gain,
                weight=record.weight + 1,
                weighted_gains=record.weighted_gains + revision.is_gain,
                weighted_tokens=record.weighted_tokens + revision.usage.total_tokens,
            )
        return RevisionEvidence(tuple(records.values()))


# --- the choice ---------------------------------------------------------------------------------------------


def choose_way(evidence: RevisionEvidence, usual: Way, possible: Sequence[str], seed: str) -> Way:
    """Choose a way by Thompson sampling: the way with the most gains per token in a draw from the posteriors.

    `usual` is the way without evidence on outputs of this length after this kind of failure. The first draw
    decides whether feedback pays, and the second chooses among the `possible` ways with feedback. Each draw
    is from a beta distribution: the posterior of the share of gains. The same evidence and seed give the same
    choice.

    Source: W. R. Thompson, Biometrika 25 (1933); D. Russo et al., A Tutorial on Thompson Sampling (2018).
    """
    records = evidence.of(usual.failure, usual.length)
    if not records:
        return usual
    random = Random(f"{seed}/{sum(record.tried for record in records.values())}")  # noqa: S311 (no secret)
    chosen = SAMPLE if SAMPLE in possible else ""
    with_feedback = [way for way in possible if way != SAMPLE]
    untried = WayRecord(usual.failure, usual.length, "")
    if chosen and with_feedback:
        arms = {
            SAMPLE: records.get(SAMPLE, untried),
            "": _sum_of([record for way, record in records.items() if way != SAMPLE], untried),
        }
        chosen = _draw(arms, SAMPLE if usual.name == SAMPLE else "", random)
    if not chosen:
        chosen = _draw({way: records.get(way, untried) for way in with_feedback}, usual.name, random)
    return replace(usual, name=chosen, reason=_reason(chosen, records))


def _draw(arms: Mapping[str, WayRecord], usual: str, random: Random) -> str:
    """Draw once from each arm: the arm with the most gains per token."""
    weight = sum(record.weight for record in arms.values())
    mean = sum(record.weighted_tokens for record in arms.values()) / weight if weight else 0.0

    def gains_per_token(arm: str) -> float:
        record = arms[arm]
        gains, failures = USUAL_PRIOR if arm == usual else OTHER_PRIOR
        gains += record.weighted_gains
        failures += record.weight - record.weighted_gains
        tokens = (record.weighted_tokens + COST_PRIOR * mean) / (record.weight + COST_PRIOR)
        return random.betavariate(SHARPNESS * gains, SHARPNESS * failures) / max(tokens, 1.0)

    return max(arms, key=gains_per_token)


def _sum_of(records: Sequence[WayRecord], untried: WayRecord) -> WayRecord:
    return replace(
        untried,
        weight=sum(record.weight for record in records),
        weighted_gains=sum(record.weighted_gains for record in records),
        weighted_tokens=sum(record.weighted_tokens for record in records),
    )


_NOUNS = {
    SAMPLE: ("Another sample", "sample"),
    FRESH: ("A fresh start", "fresh start"),
    EDITS: ("Edits", "edit"),
    REWRITE: ("A rewrite", "rewrite"),
    "incremental": ("An extension", "extension"),
    OWN: ("A revision", "revision"),
}


def _reason(chosen: str, records: Mapping[str, WayRecord]) -> str:
    """Explain a choice: "A rewrite: 14 of 20 rewrites were gains here, and 3 of 20 samples."."""
    others = [record for way, record in records.items() if way != chosen]
    figures = [records[chosen]] if chosen in records else []
    figures += sorted(others, key=lambda record: -record.tried)
    texts = [f"{record.gains} of {counted(record.tried, way_noun(record.way))}" for record in figures]
    texts[0] += " was a gain here" if figures[0].gains == 1 else " were gains here"
    untried = "" if chosen in records else ", not tried here before"
    more = f", and {texts.pop()}" if len(texts) > 1 else ""
    return f"{_NOUNS[chosen][0]}{untried}: {', '.join(texts)}{more}."


def way_noun(way: str) -> str:
    """The noun for a revision in a way."""
    return _NOUNS[way][1] if way in _NOUNS else way.replace("_", " ")


def usual_way(
    attempt: Attempt,
    base: ReflectionVersion,
    visible: Sequence[ReflectionVersion],
    ways: Sequence[str],
    *,
    is_misfit: bool,
) -> str:
    """The way of an attempt by the rules alone; `visible` are the versions as the writer may see them."""
    if attempt.mode == "fresh":
        return from_scratch(attempt.evaluation, visible)
    if OWN in ways:
        return OWN
    if attempt.strategy != "hybrid":
        return attempt.strategy
    return way_of_hybrid(base.output, base.evaluation, visible, is_misfit=is_misfit)


def possible_ways(
    ways: Sequence[str],
    usual: Way,
    versions: Sequence[ReflectionVersion],
    *,
    is_repeat: bool,
    is_misfit: bool,
) -> list[str]:
    """The ways between which a choice makes sense, with the usual way among them.

    A draft of the caller's is not thrown away, and a short text is not edited. A way that has just made
    things worse, or repeated an output, is not tried next; only samples are independent of each other.
    """
    last = versions[-1]
    excluded = {last.strategy} - {SAMPLE} if is_repeat or is_setback(last, highest(versions)) else set[str]()
    if versions[0].strategy == "given":
        excluded |= set(FROM_SCRATCH)
    if usual.length == "short" or is_misfit:
        excluded.add(EDITS)
    return [way for way in dict.fromkeys((usual.name, *ways)) if way == usual.name or way not in excluded]


def attempt_in(attempt: Attempt, way: Way, base: ReflectionVersion, ways: Sequence[str]) -> Attempt:
    """The attempt in this way; where a function revises, a start from scratch is a draft."""
    mode, iteration, temperature = attempt.mode, attempt.base, attempt.temperature
    if way.name not in FROM_SCRATCH:
        mode, iteration = "revise", base.iteration
    elif OWN in ways:
        mode, iteration, temperature = "fresh", None, temperature or FRESH_TEMPERATURE
    strategy = attempt.strategy if way.name == OWN else way.name
    return replace(attempt, mode=mode, base=iteration, temperature=temperature, strategy=strategy, way=way)


def situation_of(
    version: ReflectionVersion, criteria: Sequence[QualityCriterion]
) -> tuple[FailureKind, LengthClass]:
    """The situation of a revision: whether a judge or only checks failed its base, and its length."""
    evaluation = version.evaluation
    scores = evaluation.criteria_scores
    missed = [
        criterion
        for criterion in criteria
        if criterion.name in scores and (scores[criterion.name] or 0.0) < criterion.threshold
    ]
    judged = any(map(needs_model, missed)) if missed else bool(evaluation.opinions)
    return "judge" if judged else "check", "short" if is_short(version.output) else "long"


# --- the evidence in this process ---------------------------------------------------------------------------


def revisions_of(versions: Sequence[ReflectionVersion]) -> list[Revision]:
    """The judged revisions of a run; a revision that replaced the best version before it is a gain."""
    revisions: list[Revision] = []
    best = versions[0] if versions else None
    for version in versions[1:]:
        is_gain = best is not None and replaces(version, best)
        if version.way is not None and (is_gain or version.evaluation.is_conclusive):
            revisions.append(Revision(version.way, is_gain, version.token_usage))
        if is_gain:
            best = version
    return revisions


_evidence: OrderedDict[tuple[str, str], RevisionEvidence] = OrderedDict()


def remember(agent: str, model: str, versions: Sequence[ReflectionVersion]) -> None:
    """Add the revisions of a run to the evidence in this process."""
    if revisions := revisions_of(versions):
        _evidence[agent, model] = _evidence.pop((agent, model), RevisionEvidence()).plus(revisions)
        if len(_evidence) > _MOST_REMEMBERED:
            _evidence.popitem(last=False)


def remembered(agent: str, model: str) -> RevisionEvidence:
    """The evidence in this process on an agent with a model."""
    return _evidence.get((agent, model), RevisionEvidence())


def forget() -> None:
    """Forget the evidence in this process on all agents."""
    _evidence.clear()


# --- the evidence in a store --------------------------------------------------------------------------------

LATEST_RUNS = 200
"""How many of an agent's latest runs count as evidence."""


async def stored_evidence(store: Store, agent: str, model: str) -> RevisionEvidence:
    """The evidence in the latest stored runs of an agent with a model; raises `StoreError`."""
    from redraft.stores.run_index import RunQuery, run_index  # noqa: PLC0415 (stored runs)

    query = RunQuery({"agent": agent, "model": model})
    shares = await run_index(store).shares_of_latest("way", query, LATEST_RUNS)
    return RevisionEvidence().plus(revision_in(share) for share in reversed(shares))


@dataclass(frozen=True, slots=True)
class AgentWay:
    """How often a way to revise was a gain for an agent with a model."""

    agent: str
    model: str
    failure: FailureKind
    length: LengthClass
    way: str
    tried: int
    gains: int
    tokens: int
    """The mean tokens of a revision."""

    @property
    def share(self) -> Effect | None:
        """The share of gains with its 95 % interval; None for a few revisions."""
        from redraft.stats import rate_of  # noqa: PLC0415 (slow to import, and seldom needed)

        return rate_of([1.0] * self.gains + [0.0] * (self.tried - self.gains))

    def document(self) -> dict[str, Any]:
        """The figures as JSON data."""
        share = self.share
        interval = None if share is None else [share.low, share.high]
        return {**to_record(self), "interval": interval}


async def ways_of(store: Store, where: Mapping[str, Scalar], runs: int) -> list[AgentWay]:
    """The ways to revise in the latest `runs` runs, the most frequent first."""
    from redraft.stores.run_index import RunQuery, run_index  # noqa: PLC0415 (stored runs)

    revisions: dict[tuple[str, str], list[Revision]] = {}
    for share in await run_index(store).shares_of_latest("way", RunQuery(where), runs):
        revisions.setdefault((share.agent, share.model), []).append(revision_in(share))
    return [way for key in sorted(revisions) for way in ways_in(revisions[key], *key)]


def ways_in(revisions: Iterable[Revision], agent: str, model: str = "") -> list[AgentWay]:
    """The ways of an agent's revisions with a model, the most frequent of a situation first."""
    by_way: dict[tuple[FailureKind, LengthClass, str], list[Revision]] = {}
    for revision in revisions:
        way = revision.way
        by_way.setdefault((way.failure, way.length, way.name), []).append(revision)
    ways = [
        AgentWay(
            agent,
            model,
            *key,
            len(several),
            sum(revision.is_gain for revision in several),
            round(sum(revision.usage.total_tokens for revision in several) / len(several)),
        )
        for key, several in by_way.items()
    ]
    return sorted(ways, key=lambda way: (way.failure, way.length, -way.tried))


def way_shares(versions: Sequence[ReflectionVersion]) -> Iterator[Share]:
    """Yield the revisions of a run as shares in its usage, from which `revision_in` reads them."""
    from redraft.stores.run_index import Share, spent  # noqa: PLC0415 (stored runs)

    for number, revision in enumerate(revisions_of(versions), 1):
        way, ending = revision.way, "gain" if revision.is_gain else "no gain"
        value = f"{number:03d} {way.failure} {way.length} {way.name} {ending}"
        yield Share(facet="way", value=value, **spent([revision.usage]))


def revision_in(row: RunShare) -> Revision:
    """Read the revision in a share."""
    _, failure, length, name, ending = row.value.split(" ", 4)
    way = Way(name, "judge" if failure == "judge" else "check", "long" if length == "long" else "short")
    usage = TokenUsage(row.input_tokens, row.output_tokens)
    return Revision(way, ending == "gain", usage)
