"""Ways: choose how the next version is made by which revisions were gains before."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from redraft._texts import counted, is_short
from redraft.evaluate.criteria import needs_model
from redraft.loop.select import highest, is_setback
from redraft.loop.strategy import FROM_SCRATCH, from_scratch, way_of_hybrid
from redraft.protocols import FRESH_TEMPERATURE
from redraft.types import FailureKind, LengthClass, TokenUsage, Way, replaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redraft.protocols import Attempt
    from redraft.types import QualityCriterion, ReflectionVersion

SAMPLE, FRESH, EDITS, REWRITE, OWN = "resample", "fresh", "targeted_edit", "full_rewrite", "revise"
MODEL_WAYS = (SAMPLE, FRESH, EDITS, REWRITE)
"""The ways of a model that drafts and revises."""
OWN_WAYS = (SAMPLE, FRESH, OWN)
"""Those of a model that drafts, where a function of the user's revises."""
USUAL = (1.0, 2.0)
"""The gains and failures that the usual way is taken to have had before anything is known."""
OTHER = (0.5, 2.0)
"""Those of every other way."""
MEMORY = 0.96
"""What a revision counts beside the next one in the same situation: models and tasks change."""
SURE = 2.5
"""By how much a draw is closer to the mean than the posterior is, which shortens the search."""
SAME_COST = 1.0
"""How many revisions of average cost each way is taken to have had."""
_MOST_KNOWN = 1_000
"""Agents whose evidence a process remembers."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision that was made and judged, with what it used."""

    way: Way
    is_gain: bool
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class WayRecord:
    """What is known of one way to revise outputs of one length after one kind of failure.

    `tried` and `gains` count revisions. `weight`, `weighted_gains` and `weighted_tokens` are sums in which
    earlier revisions count less.
    """

    failure: FailureKind
    length: LengthClass
    way: str
    tried: int = 0
    gains: int = 0
    weight: float = 0.0
    weighted_gains: float = 0.0
    weighted_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class RevisionEvidence:
    """What the revisions of one agent with one model have shown."""

    records: tuple[WayRecord, ...] = ()

    def of(self, failure: FailureKind, length: LengthClass) -> dict[str, WayRecord]:
        """Return what is known of outputs of a length after a kind of failure, by way."""
        return {one.way: one for one in self.records if (one.failure, one.length) == (failure, length)}

    def plus(self, revisions: Iterable[Revision]) -> RevisionEvidence:
        """Return the evidence after more revisions, in the order in which they were made."""
        known = {(one.failure, one.length, one.way): one for one in self.records}
        for revision in revisions:
            way = revision.way
            key = (way.failure, way.length, way.name)
            for other, record in known.items():
                if other[:2] == key[:2]:
                    known[other] = replace(
                        record,
                        weight=record.weight * MEMORY,
                        weighted_gains=record.weighted_gains * MEMORY,
                        weighted_tokens=record.weighted_tokens * MEMORY,
                    )
            record = known.get(key) or WayRecord(*key)
            known[key] = replace(
                record,
                tried=record.tried + 1,
                gains=record.gains + revision.is_gain,
                weight=record.weight + 1,
                weighted_gains=record.weighted_gains + revision.is_gain,
                weighted_tokens=record.weighted_tokens + revision.usage.total_tokens,
            )
        return RevisionEvidence(tuple(known.values()))


# --- the choice ---------------------------------------------------------------------------------------------


def choose_way(evidence: RevisionEvidence, usual: Way, possible: Sequence[str], seed: str) -> Way:
    """Choose a way by Thompson sampling: the one with the most gains a token, in one draw of what may be so.

    `usual` is the way without evidence of outputs of this length after this kind of failure. First it is
    drawn whether feedback pays, and then, among the `possible` ways with feedback, which. Each draw is from a
    beta distribution: the posterior of the share of gains. The same evidence and seed give the same choice.

    Source: W. R. Thompson, Biometrika 25 (1933); D. Russo et al., A Tutorial on Thompson Sampling (2018).
    """
    known = evidence.of(usual.failure, usual.length)
    if not known:
        return usual
    random = Random(f"{seed}/{sum(one.tried for one in known.values())}")  # noqa: S311 (no secret)
    chosen = SAMPLE if SAMPLE in possible else ""
    with_feedback = [way for way in possible if way != SAMPLE]
    nothing = WayRecord(usual.failure, usual.length, "")
    if chosen and with_feedback:
        arms = {
            SAMPLE: known.get(SAMPLE, nothing),
            "": _together([one for way, one in known.items() if way != SAMPLE], nothing),
        }
        chosen = _drawn(arms, SAMPLE if usual.name == SAMPLE else "", random)
    if not chosen:
        chosen = _drawn({way: known.get(way, nothing) for way in with_feedback}, usual.name, random)
    return replace(usual, name=chosen, reason=_reason(chosen, known))


def _drawn(arms: Mapping[str, WayRecord], usual: str, random: Random) -> str:
    """Return the arm with the most gains a token in one draw."""
    weight = sum(one.weight for one in arms.values())
    mean = sum(one.weighted_tokens for one in arms.values()) / weight if weight else 0.0

    def gains_a_token(arm: str) -> float:
        record = arms[arm]
        gains, failures = USUAL if arm == usual else OTHER
        gains += record.weighted_gains
        failures += record.weight - record.weighted_gains
        tokens = (record.weighted_tokens + SAME_COST * mean) / (record.weight + SAME_COST)
        return random.betavariate(SURE * gains, SURE * failures) / max(tokens, 1.0)

    return max(arms, key=gains_a_token)


def _together(records: Sequence[WayRecord], nothing: WayRecord) -> WayRecord:
    return replace(
        nothing,
        weight=sum(one.weight for one in records),
        weighted_gains=sum(one.weighted_gains for one in records),
        weighted_tokens=sum(one.weighted_tokens for one in records),
    )


_NOUNS = {
    SAMPLE: ("Another sample", "sample"),
    FRESH: ("A fresh start", "fresh start"),
    EDITS: ("Edits", "edit"),
    REWRITE: ("A rewrite", "rewrite"),
    "incremental": ("An extension", "extension"),
    OWN: ("A revision", "revision"),
}


def _reason(chosen: str, known: Mapping[str, WayRecord]) -> str:
    """Say what a choice stands on: "A rewrite: 14 of 20 rewrites were gains here, and 3 of 20 samples."."""
    figures = [known[chosen]] if chosen in known else []
    figures += sorted((one for way, one in known.items() if way != chosen), key=lambda one: -one.tried)
    texts = [f"{one.gains} of {counted(one.tried, way_noun(one.way))}" for one in figures]
    texts[0] += " was a gain here" if figures[0].gains == 1 else " were gains here"
    untried = "" if chosen in known else ", not tried here before"
    more = f", and {texts.pop()}" if len(texts) > 1 else ""
    return f"{_NOUNS[chosen][0]}{untried}: {', '.join(texts)}{more}."


def way_noun(way: str) -> str:
    """Return what one revision in a way is called."""
    return _NOUNS[way][1] if way in _NOUNS else way.replace("_", " ")


def usual_way(
    attempt: Attempt,
    base: ReflectionVersion,
    shown: Sequence[ReflectionVersion],
    ways: Sequence[str],
    *,
    is_misfit: bool,
) -> str:
    """Return the way of an attempt by the rules alone; `shown` are the versions as a writer may know them."""
    if attempt.mode == "fresh":
        return from_scratch(attempt.evaluation, shown)
    if OWN in ways:
        return OWN
    if attempt.strategy != "hybrid":
        return attempt.strategy
    return way_of_hybrid(base.output, base.evaluation, shown, is_misfit=is_misfit)


def possible_ways(
    ways: Sequence[str],
    usual: Way,
    versions: Sequence[ReflectionVersion],
    *,
    is_repeat: bool,
    is_misfit: bool,
) -> list[str]:
    """Return the ways between which a choice makes sense, with the usual one among them.

    A text that the caller gave is not thrown away, and a short one is not edited. What has just made things
    worse, or led to the same output again, is not tried next; a sample has no part in how the next one turns
    out.
    """
    last = versions[-1]
    excluded = {last.strategy} - {SAMPLE} if is_repeat or is_setback(last, highest(versions)) else set[str]()
    if versions[0].strategy == "given":
        excluded |= set(FROM_SCRATCH)
    if usual.length == "short" or is_misfit:
        excluded.add(EDITS)
    return [way for way in dict.fromkeys((usual.name, *ways)) if way == usual.name or way not in excluded]


def attempt_in(attempt: Attempt, way: Way, base: ReflectionVersion, ways: Sequence[str]) -> Attempt:
    """Return an attempt that goes about it in a way; one from scratch is drafted where a function revises."""
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
    """Return whether checks alone found a version wrong, or a judge did, and how long its output is."""
    evaluation = version.evaluation
    scores = evaluation.criteria_scores
    missed = [one for one in criteria if one.name in scores and (scores[one.name] or 0.0) < one.threshold]
    judged = any(map(needs_model, missed)) if missed else bool(evaluation.opinions)
    return "judge" if judged else "check", "short" if is_short(version.output) else "long"


# --- the evidence -------------------------------------------------------------------------------------------


def revisions_of(versions: Sequence[ReflectionVersion]) -> list[Revision]:
    """Return the revisions of a run that were judged; a gain is what replaced the best version before it."""
    found: list[Revision] = []
    best = versions[0] if versions else None
    for version in versions[1:]:
        is_gain = best is not None and replaces(version, best)
        if version.way is not None and (is_gain or version.evaluation.is_conclusive):
            found.append(Revision(version.way, is_gain, version.token_usage))
        if is_gain:
            best = version
    return found


_known: OrderedDict[tuple[str, str], RevisionEvidence] = OrderedDict()


def remember(agent: str, model: str, versions: Sequence[ReflectionVersion]) -> None:
    """Add the revisions of a run to what this process knows of its agent and model."""
    if revisions := revisions_of(versions):
        _known[agent, model] = _known.pop((agent, model), RevisionEvidence()).plus(revisions)
        if len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)


def remembered(agent: str, model: str) -> RevisionEvidence:
    """Return what this process knows of an agent with a model."""
    return _known.get((agent, model), RevisionEvidence())


def forget() -> None:
    """Forget what this process knows of all agents."""
    _known.clear()
