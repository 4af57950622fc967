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
"""How many of an agent's latest runs are evidence of which revisions are gains."""


async def stored_evidence(store: Store, agent: str, model: str) -> RevisionEvidence:
    """Return what the latest stored runs show of an agent with a model; raises `StoreError`."""
    query = RunQuery({"agent": agent, "model": model})
    found = await run_index(store).shares_of_latest("way", query, LATEST_RUNS)
    return RevisionEvidence().plus(revision_in(one) for one in reversed(found))


@dataclass(frozen=True, slots=True)
class AgentWay:
    """How often one way to revise was a gain for an agent with a model, and its mean `tokens`."""

    agent: str
    model: str
    failure: FailureKind
    length: LengthClass
    way: str
    tried: int
    gains: int
    tokens: int

    @property
    def share(self) -> Effect | None:
        """The share of gains with its 95 % interval; None for a few revisions."""
        from redraft.stats import rate_of  # noqa: PLC0415 (slow to import, and seldom needed)

        return rate_of([1.0] * self.gains + [0.0] * (self.tried - self.gains))

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON data."""
        share = self.share
        interval = None if share is None else [share.low, share.high]
        return {**to_record(self), "interval": interval}


async def ways_of(store: Store, where: Mapping[str, Scalar], runs: int) -> list[AgentWay]:
    """Return the ways to revise in the latest runs, at most so many, with the most frequent ones first."""
    found: dict[tuple[str, str], list[Revision]] = {}
    for share in await run_index(store).shares_of_latest("way", RunQuery(where), runs):
        found.setdefault((share.agent, share.model), []).append(revision_in(share))
    return [way for key in sorted(found) for way in ways_in(found[key], *key)]


def ways_in(revisions: Iterable[Revision], agent: str, model: str = "") -> list[AgentWay]:
    """Return the ways of an agent's revisions with a model, the most frequent ones of a situation first."""
    found: dict[tuple[FailureKind, LengthClass, str], list[Revision]] = {}
    for revision in revisions:
        way = revision.way
        found.setdefault((way.failure, way.length, way.name), []).append(revision)
    ways = [
        AgentWay(
            agent,
            model,
            *key,
            len(several),
            sum(one.is_gain for one in several),
            round(sum(one.usage.total_tokens for one in several) / len(several)),
        )
        for key, several in found.items()
    ]
    return sorted(ways, key=lambda one: (one.failure, one.length, -one.tried))


def way_shares(versions: Sequence[ReflectionVersion]) -> Iterator[Share]:
    """Yield the revisions of a run as shares in its usage, from which `revision_in` reads them."""
    for number, one in enumerate(revisions_of(versions), 1):
        way, ending = one.way, "gain" if one.is_gain else "no gain"
        value = f"{number:03d} {way.failure} {way.length} {way.name} {ending}"
        yield Share(facet="way", value=value, **spent([one.usage]))


def revision_in(row: RunShare) -> Revision:
    """Return the revision in a share."""
    _, failure, length, name, ending = row.value.split(" ", 4)
    way = Way(name, "judge" if failure == "judge" else "check", "long" if length == "long" else "short")
    usage = TokenUsage(row.input_tokens, row.output_tokens)
    return Revision(way, ending == "gain", usage)
