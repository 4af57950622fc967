"""The evidence on revisions in a store: which ways were gains, by agent and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft._codec import to_record
from redraft.loop.ways import Revision, RevisionEvidence, revisions_of
from redraft.stores.run_index import RunQuery, Share, run_index, spent
from redraft.types import FailureKind, LengthClass, TokenUsage, Way

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from redraft.stats import Effect
    from redraft.stores.base import Scalar, Store
    from redraft.stores.run_index import RunShare
    from redraft.types import ReflectionVersion

LATEST_RUNS = 200
"""How many of an agent's latest runs count as evidence."""


async def stored_evidence(store: Store, agent: str, model: str) -> RevisionEvidence:
    """The evidence in the latest stored runs of an agent with a model; raises `StoreError`."""
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
