"""Estimate the model calls of an evaluation, their tokens and their price."""

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
from redraft.loop.record import JUDGED
from redraft.loop.triggers import NO_TRIGGERS
from redraft.loop.ways import LATEST_RUNS
from redraft.models.testing import ScriptedModel
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
    """The most calls of one model for one purpose, with the tokens and the price of all of them."""

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
    """What the token counts are based on: a predicate."""

    @property
    def asker(self) -> str:
        """What asks for the calls, in a sentence."""
        if self.by == "agent":
            return repr(self.purpose)
        return "the grading" if self.purpose == "grading" else f"the judge of {self.purpose!r}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated calls, tokens and price of the tries of an evaluation that have no result yet.

    Retries are not counted: neither failed calls, nor replies that can't be used.
    """

    tries: int
    """Tries that are still to be made."""
    stored: int
    """Tries that have a result, so they are not made again."""
    parts: tuple[EstimatedCalls, ...]

    def __str__(self) -> str:
        return self.sentence()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tries:,} to make, {self.stored:,} stored>"

    @property
    def calls(self) -> int | None:
        """The most calls; None if any part is unknown. The same holds for the tokens and the cost."""
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
        """The estimate in words: tries, calls by role, tokens, cost, and the basis of the figures."""
        if not self.tries:
            return "All tries are stored: no model is asked."
        sentences = [f"{self.tries:,} {'try' if self.tries == 1 else 'tries'} to make"]
        if self.stored:
            sentences[0] += f", {self.stored:,} stored"
        callers: list[str] = []
        by_both: tuple[By, ...] = ("agent", "judge")
        for by in by_both:
            parts = [part for part in self.parts if part.by == by]
            calls = _sum(part.calls for part in parts)
            names = dict.fromkeys(part.model for part in parts if part.model and part.calls != 0)
            count = "unknown" if calls is None else f"{calls:,}"
            callers.append(f"{by} {count} ({listed(list(names))})" if names else f"{by} {count}")
        calls = "Calls" if self.calls is None else f"At most {counted(self.calls, 'call')} without retries"
        sentences.append(f"{calls}: {', '.join(callers)}")
        if self.calls != 0:
            tokens = "An unknown number of" if self.tokens is None else f"About {self.tokens:,}"
            cost = "cost unknown" if self.cost_usd is None else f"about {render_usd(self.cost_usd)}"
            models = {part.model: None for part in self.parts if part.model and part.cost_usd is None}
            unpriced = f" (no price of {listed(list(models))})" if models else ""
            sentences.append(f"{tokens} tokens if all are made, {cost}{unpriced}")
        askers: dict[str, list[str]] = {}
        for part in self.parts:
            if part.calls != 0:
                askers.setdefault(part.basis, []).append(part.asker)
        sentences += [f"Tokens of {listed(names)} {basis}" for basis, names in askers.items()]
        return ". ".join(sentences) + "."

    def document(self) -> dict[str, Any]:
        """The estimate as plain data."""
        sums = {"calls": self.calls, "tokens": self.tokens, "cost_usd": self.cost_usd}
        return {**to_json(self), **sums, "sentence": self.sentence()}


def _sum(values: Iterable[Any]) -> Any:
    """Sum; None if any value is unknown."""
    parts = list(values)
    return None if None in parts else sum(parts)


# --- the work ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Work:
    """Drafts or judgements that are still to be made, with the most calls they can take."""

    units: int = 0
    """Drafts or judgements."""
    calls: int | None = 0
    """None if nothing bounds them."""
    input_tokens: int = 0
    """Estimated from the prompts."""
    output_tokens: int = 0
    """`EXPECTED_REPLY` for each call."""

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
    """The most calls of one judgement; None if the judges are a function."""
    panel = judges.evaluate
    if not isinstance(panel, Panel):
        return None
    # A comparison is made in both orders. A single score near a threshold is confirmed by a second one.
    calls = sum(
        2 if criterion.evaluator == "compare" else 1
        for criterion in panel.criteria
        if criterion.name in panel.paid
    )
    for judge in panel.judges:
        if isinstance(judge, ScoreJudge):
            calls += max(2, judge.options.samples)
        else:
            calls += len(judge.criteria) + 1  # and a critique
    return calls


def other_calls_of(pattern: ReflectionPattern) -> int:
    """The most calls of the judge's model besides judgements: comparisons, and reflections within a run."""
    compared = 2 * pattern.max_iterations if pattern.accept == "pairwise" else 0
    return compared + (0 if pattern.triggers is NO_TRIGGERS else pattern.max_reflections)


def prompt_tokens(task: PlainTask, *texts: str) -> int:
    """Estimated tokens of a prompt that contains a task."""
    return sum(map(estimate_tokens, (task_text(task), *texts))) + IMAGE_TOKENS * len(task.images)


# --- tokens and prices -------------------------------------------------------------------------------------


@dataclass(slots=True)
class RunMeans:
    """Usage of stored runs, by role."""

    runs: int = 0
    versions: int = 0
    """Versions that all these runs made."""
    input_tokens: Counter[By] = field(default_factory=Counter[By])
    output_tokens: Counter[By] = field(default_factory=Counter[By])
    usd: dict[By, float] = field(default_factory=dict[By, float])
    """The cost of calls with a price."""
    unpriced: set[By] = field(default_factory=set[By])
    """Roles with calls that have no price."""

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
    """Estimate work from the tokens of stored runs, else from its prompts; `of` describes these runs."""
    name = "" if model is None else name_of_model(model)
    measured = means.input_tokens[by] + means.output_tokens[by]
    estimate = EstimatedCalls(purpose, by, name, work.calls, work.input_tokens, work.output_tokens, None, "")
    if work.calls == 0:
        return replace(estimate, input_tokens=0, output_tokens=0, cost_usd=0.0)
    if measured and means.versions:
        times = work.units / means.versions
        estimate = replace(
            estimate,
            input_tokens=round(times * means.input_tokens[by]),
            output_tokens=round(times * means.output_tokens[by]),
            basis=f"are those of {counted(means.runs, 'stored run')}{of}",
        )
    elif work.calls is None or model is None:
        return replace(estimate, input_tokens=None, output_tokens=None, basis="are unknown")
    else:
        basis = f"are estimated from prompts, with {EXPECTED_REPLY:,} for a reply"
        estimate = replace(estimate, basis=basis)
    return replace(estimate, cost_usd=_price(estimate, model, work, means))


def _price(estimate: EstimatedCalls, model: ChatModel | None, work: Work, means: RunMeans) -> float | None:
    """Cost of the tokens by the model's price, else by the cost reported in stored runs."""
    input_tokens, output_tokens = estimate.input_tokens or 0, estimate.output_tokens or 0
    calls = work.calls or work.units
    try:
        price = price_of(model, input_tokens // calls)  # a price may depend on the length of the input
    except ConfigError:
        return None
    if price is not None:
        return calls * price.usd(0) + output_tokens * price.output
    measured = means.input_tokens[estimate.by] + means.output_tokens[estimate.by]
    if not measured and isinstance(model, ScriptedModel):
        return 0.0
    if not measured or estimate.by in means.unpriced:
        return None
    return means.usd[estimate.by] * (input_tokens + output_tokens) / measured
