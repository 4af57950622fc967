"""Estimate: the calls of models that an evaluation may make, their tokens and their price."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from redraft._codec import to_json
from redraft._steps import IMAGE_TOKENS, name_of_model
from redraft._texts import counted, estimate_tokens, listed
from redraft.errors import ConfigError
from redraft.evaluate.judge import ScoreJudge, task_text
from redraft.evaluate.panel import Panel
from redraft.loop.budget import EXPECTED_REPLY, price_of
from redraft.loop.evidence import LATEST_RUNS
from redraft.loop.journal import STEP
from redraft.loop.record import JUDGED
from redraft.loop.triggers import NO_TRIGGERS
from redraft.stores.run_index import RunQuery, run_index
from redraft.types import render_usd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.run import Judges
    from redraft.protocols import ChatModel
    from redraft.stores.base import Store
    from redraft.types import PlainTask

By = Literal["agent", "judge"]


@dataclass(frozen=True, slots=True)
class EstimatedCalls:
    """The calls of one model for one purpose: at most so many, and what all of them would use."""

    purpose: str
    """The name of an arm, or `grading`."""
    by: By
    model: str
    """Empty for a function."""
    calls: int | None
    """None if nothing bounds them."""
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    """None without a price."""
    basis: str
    """Where the tokens come from."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the tries of an evaluation that have no result yet may take; `stored` tries are not made again.

    Calls that fail and are repeated are not counted, nor replies that can't be used and are asked for again.
    """

    tries: int
    stored: int
    parts: tuple[EstimatedCalls, ...]

    def __str__(self) -> str:
        return self.sentence()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tries:,} to make, {self.stored:,} stored>"

    @property
    def calls(self) -> int | None:
        """The calls at most; None if a part of them is unknown, as for the tokens and the cost."""
        return _sum(part.calls for part in self.parts)

    @property
    def tokens(self) -> int | None:
        """The tokens if all calls are made, input and output."""
        return _sum(each for part in self.parts for each in (part.input_tokens, part.output_tokens))

    @property
    def cost_usd(self) -> float | None:
        """The price of these tokens."""
        return _sum(part.cost_usd for part in self.parts)

    def sentence(self) -> str:
        """Say what it may take, by whom, and what the figures are based on."""
        if not self.tries:
            return "All tries are stored: no model is asked."
        found = [f"{self.tries:,} {'try' if self.tries == 1 else 'tries'} to make"]
        if self.stored:
            found[0] += f", {self.stored:,} stored"
        who: list[str] = []
        by_both: tuple[By, ...] = ("agent", "judge")
        for by in by_both:
            parts = [part for part in self.parts if part.by == by]
            calls = _sum(part.calls for part in parts)
            names = dict.fromkeys(part.model for part in parts if part.model and part.calls != 0)
            count = "unknown" if calls is None else f"{calls:,}"
            who.append(f"{by} {count} ({listed(list(names))})" if names else f"{by} {count}")
        calls = "Calls" if self.calls is None else f"At most {counted(self.calls, 'call')} without retries"
        found.append(f"{calls}: {', '.join(who)}")
        if self.calls != 0:
            tokens = "An unknown number of" if self.tokens is None else f"About {self.tokens:,}"
            cost = "cost unknown" if self.cost_usd is None else f"about {render_usd(self.cost_usd)}"
            found.append(f"{tokens} tokens if all are made, {cost}{self._unpriced()}")
        bases = dict.fromkeys(part.basis for part in self.parts if part.calls != 0)
        return ". ".join([*found, *bases]) + "."

    def _unpriced(self) -> str:
        models = {part.model: None for part in self.parts if part.model and part.cost_usd is None}
        return f" (no price of {listed(list(models))})" if models else ""

    def document(self) -> dict[str, Any]:
        """The estimate as plain data."""
        sums = {"calls": self.calls, "tokens": self.tokens, "cost_usd": self.cost_usd}
        return {**to_json(self), **sums, "sentence": self.sentence()}


def _sum(values: Iterable[Any]) -> Any:
    """Return a sum, None if a part of it is unknown."""
    found = list(values)
    return None if None in found else sum(found)


# --- the work ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Work:
    """Drafts and judgements that are still to be made, and the calls that they take at most.

    `input_tokens` and `output_tokens` are assumed: those of the prompts, and `EXPECTED_REPLY` for each reply.
    """

    units: int = 0
    """Drafts or judgements."""
    calls: int | None = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, units: int, calls_each: int | None, prompt: int) -> None:
        """Add drafts or judgements; with `calls_each` None, nothing bounds their calls."""
        if units <= 0:
            return
        self.units += units
        self.calls = None if calls_each is None or self.calls is None else self.calls + units * calls_each
        calls = units * (calls_each or 1)
        self.input_tokens += calls * prompt
        self.output_tokens += calls * EXPECTED_REPLY


def calls_of_judgement(judges: Judges) -> int | None:
    """Return how many calls one judgement takes at most; None if the judges are a function."""
    panel = judges.evaluate
    if not isinstance(panel, Panel):
        return None
    # A comparison is made in both orders. A single score near a threshold is confirmed by a second one.
    calls = sum(2 if one.evaluator == "compare" else 1 for one in panel.criteria if one.name in panel.paid)
    for judge in panel.judges:
        if isinstance(judge, ScoreJudge):
            calls += max(2, judge.options.samples)
        else:
            calls += len(judge.criteria) + 1  # and a critique
    return calls


def versions_of(pattern: ReflectionPattern) -> int:
    """Return how many versions a run makes at most."""
    return 1 + pattern.max_iterations


def judgements_of(pattern: ReflectionPattern) -> int:
    """Return how many judgements a run makes at most."""
    return versions_of(pattern) + (pattern.candidates if pattern.candidates > 1 else 0)


def other_calls_of(pattern: ReflectionPattern) -> int:
    """Return the calls of the judge's model beside judgements: comparisons, and reflections within a run."""
    compared = 2 * pattern.max_iterations if pattern.accept == "pairwise" else 0
    return compared + (0 if pattern.triggers is NO_TRIGGERS else pattern.max_reflections)


def prompt_tokens(task: PlainTask, *texts: str) -> int:
    """Estimate the tokens of a prompt with a task."""
    return sum(map(estimate_tokens, (task_text(task), *texts))) + IMAGE_TOKENS * len(task.images)


async def recorded_work(store: Store, run_id: str) -> tuple[int, int]:
    """Count the drafts and the judgements that interrupted runs with this beginning of an id have stored."""
    steps = await store.find(STEP, prefix=run_id)
    names = Counter(str(step.data["name"]).partition(" ")[0] for step in steps if "error" not in step.data)
    return names["revise"] + (names["draft"] or names["generate"]), names["evaluate"] + names["judge"]


# --- tokens and prices -------------------------------------------------------------------------------------


@dataclass(slots=True)
class RunMeans:
    """What a version took in stored runs, by who was asked, in tokens and in dollars as far as known."""

    runs: int = 0
    versions: int = 0
    input_tokens: Counter[By] = field(default_factory=Counter[By])
    output_tokens: Counter[By] = field(default_factory=Counter[By])
    usd: dict[By, float] = field(default_factory=dict[By, float])
    unpriced: set[By] = field(default_factory=set[By])

    @classmethod
    async def stored(cls, store: Store, **where: str) -> RunMeans:
        """Read the latest finished runs; raises `StoreError`."""
        index, query = run_index(store), RunQuery({**where, "status": "finished"})
        rows = await index.find(query, limit=LATEST_RUNS)
        means = cls(len(rows), sum(row.versions for row in rows))
        for share in await index.shares_of_latest("role", query, LATEST_RUNS):
            by: By = "judge" if share.value in JUDGED else "agent"
            means.input_tokens[by] += share.input_tokens
            means.output_tokens[by] += share.output_tokens
            means.usd[by] = means.usd.get(by, 0.0) + share.known_usd
            if share.unpriced:
                means.unpriced.add(by)
        return means


def estimated(
    purpose: str, by: By, model: ChatModel | None, work: Work, means: RunMeans, of: str = ""
) -> EstimatedCalls:
    """Return the calls of some work, by the tokens of stored runs where there are any; `of` says whose."""
    name = "" if model is None else name_of_model(model)
    measured = means.input_tokens[by] + means.output_tokens[by]
    found = EstimatedCalls(purpose, by, name, work.calls, work.input_tokens, work.output_tokens, None, "")
    if work.calls == 0:
        return replace(found, input_tokens=0, output_tokens=0, cost_usd=0.0)
    if measured and means.versions:
        times = work.units / means.versions
        found = replace(
            found,
            input_tokens=round(times * means.input_tokens[by]),
            output_tokens=round(times * means.output_tokens[by]),
            basis=f"Tokens of the {by} are those of {counted(means.runs, 'stored run')}{of}",
        )
    elif work.calls is None or model is None:
        basis = f"What {purpose!r} asks of models is unknown"
        return replace(found, input_tokens=None, output_tokens=None, basis=basis)
    else:
        basis = f"Tokens of the {by} are estimated from prompts, with {EXPECTED_REPLY:,} for a reply"
        found = replace(found, basis=basis)
    return replace(found, cost_usd=_price(found, model, work, means))


def _price(found: EstimatedCalls, model: ChatModel | None, work: Work, means: RunMeans) -> float | None:
    """Return the cost of the tokens: by the model's price, else as its calls in stored runs reported it."""
    given, written = found.input_tokens or 0, found.output_tokens or 0
    calls = work.calls or work.units
    try:
        price = price_of(model, given // calls)  # a price may depend on the length of the input
    except ConfigError:
        return None
    if price is not None:
        return calls * price.usd(0) + written * price.output
    measured = means.input_tokens[found.by] + means.output_tokens[found.by]
    if not measured or found.by in means.unpriced:
        return None
    return means.usd[found.by] * (given + written) / measured
