"""The three sets of the README on a provider's model: what they would cost, then the rows, within a limit."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import first_drafts
from _arms import ARMS, CALLS, MAX_TOKENS, SYSTEM, Replies
from _measure import PROJECT, publish, table
from _memory import keeper, run_all, runs_in
from _rows import rows_in
from humaneval import FILE, humaneval_tasks
from offline_model import SEEDS, criteria_table, measured, tables
from offline_model import keeper as outcome_keeper
from small_tasks import TASKS

from redraft import ConfigError, ReflectionPattern
from redraft._texts import estimate_tokens
from redraft.loop.budget import price_of
from redraft.loop.verbs import judges_of
from redraft.models.names import model_named
from redraft.types import render_usd

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from _tasks import BenchTask

    from redraft.protocols import ChatModel, ChatReply, ChatRequest

DRAWS = 1 + CALLS - 1 + len(SEEDS) * 2 * (CALLS - 1)
"""The replies that one task takes at most: a first draft, a chat, and for each seed the loop and best of N.

What is asked without a temperature is asked once, for all seeds and arms.
"""


@dataclass(frozen=True, slots=True)
class BenchSet:
    """One of the sets: how many calls and tokens it took or takes, and how to measure it.

    `measure` gets the replies and the file of the rows, and returns the tables. The names of its sections
    begin with `stem`.
    """

    name: str
    stem: str
    calls: int
    input_tokens: int
    output_tokens: int
    basis: str
    measure: Callable[[Replies, Path], str]

    def usd(self, model: ChatModel) -> float | None:
        """Return the price of its tokens, None if the model has none."""
        try:
            price = price_of(model, self.input_tokens // self.calls)
        except ConfigError:
            return None
        return price and self.calls * price.usd(0) + self.output_tokens * price.output


class SpendingLimit:
    """Dollars that all calls together may cost; `spent` is what they have cost, as far as known."""

    def __init__(self, usd: float | None, spent: float = 0.0) -> None:
        self.usd = usd
        self.spent = spent

    def drawing(self, model: ChatModel) -> Callable[[int], ChatModel]:
        """Return what gives the model for any seed, bound by the limit."""
        bound = self.bound(model)
        return lambda _: bound

    def bound(self, model: ChatModel) -> ChatModel:
        """Return the model; a call that might exceed the limit raises `ConfigError` instead."""
        if self.usd is not None and price_of(model, 1) is None:
            raise ConfigError("--budget-usd needs a model whose price is known before a call; use --yes.")

        async def call(request: ChatRequest, /) -> ChatReply:
            asked = sum(estimate_tokens(message.content) for message in request.messages)
            price = None if self.usd is None else price_of(model, asked)
            most = 0.0 if price is None else price.usd(request.max_tokens or MAX_TOKENS)
            if self.usd is not None and self.spent + most > self.usd:
                raise ConfigError(
                    f"{render_usd(self.spent)} of {render_usd(self.usd)} were spent (--budget-usd), and the "
                    "next call may need more than is left. All replies are stored: the same command with a "
                    "higher limit continues."
                )
            reply = await model(request)
            self.spent += most if reply.usage.cost_usd is None else reply.usage.cost_usd
            return reply

        return call


def measure(given: argparse.Namespace) -> None:
    """Print what the sets cost, and measure them if `--yes` or `--budget-usd` allows it.

    The same command continues what was interrupted: no reply is paid for twice. Raises `ConfigError` for a
    model or a key that can't work, before a call.
    """
    model = model_named(given.model)
    out: Path = given.out or PROJECT / "build" / "benchmarks" / f"{given.model.rpartition(':')[2]}.jsonl"
    file: Path = given.replies or out.with_suffix(".replies.jsonl")
    stored = [row["reply"]["usage"] for row in rows_in(file)]
    spent = sum(usage.get("cost_usd") or 0.0 for usage in stored)
    sets = sets_of(given)
    print(estimate(sets, model), flush=True)
    print(f"\n{len(stored):,} replies for {render_usd(spent)} are stored in {file}, and not asked for again.")
    if not given.yes and given.budget_usd is None:
        sys.exit("No model was asked. Repeat the command with --yes, or with a limit such as --budget-usd 2.")
    limit = SpendingLimit(given.budget_usd, spent)
    limit.bound(model)  # before the first set
    for each in sets:
        # Each set has an event loop of its own, and so has the client of its model.
        text = each.measure(Replies(given.model, limit.drawing(model_named(given.model)), file), out)
        place = given.model.rpartition(":")[2]
        publish(f"{each.stem}{place}", text, write=given.write, stem=each.stem)
    print(f"\n{render_usd(limit.spent)} were spent in all.", file=sys.stderr)


def estimate(sets: Sequence[BenchSet], model: ChatModel) -> str:
    """Render what each set costs by the price of a model."""
    dollars = [each.usd(model) for each in sets]
    rows: list[tuple[object, ...]] = [
        (
            each.name,
            f"{each.calls:,}",
            f"{each.input_tokens:,}",
            f"{each.output_tokens:,}",
            "unknown" if usd is None else render_usd(usd),
            each.basis,
        )
        for each, usd in zip(sets, dollars, strict=True)
    ]
    known = [usd for usd in dollars if usd is not None]
    whole = render_usd(sum(known)) if len(known) == len(sets) else "unknown"
    rows.append(("all", f"{sum(each.calls for each in sets):,}", "", "", whole, ""))
    return table(("set", "calls", "input tokens", "output tokens", "price", "from"), rows)


# --- the sets ---------------------------------------------------------------------------------------------


def sets_of(given: argparse.Namespace) -> list[BenchSet]:
    """Return the sets that the command line names, by default all three."""
    names = (given.tasks,) if given.tasks else ("small", "humaneval", "first-drafts")
    found: list[BenchSet] = []
    for name in names:
        if name == "small":
            found.append(_arms_set(name, f"offline-{name}-", TASKS[: given.limit], given))
        elif name == "first-drafts":
            found.append(_drafts_set(given))
        elif (given.data / FILE).is_file():
            tasks = humaneval_tasks(given.data, shown=given.shown)[: given.limit]
            found.append(_arms_set(name, f"offline-{name}-{given.shown}-", tasks, given))
        else:
            print(f"SKIPPED HumanEval: there is no {given.data / FILE}; name its folder with --data.")
    return found


def _arms_set(name: str, stem: str, tasks: Sequence[BenchTask], given: argparse.Namespace) -> BenchSet:
    def measure(replies: Replies, out: Path) -> str:
        outcomes = measured(given, tasks, replies, outcome_keeper(out), out)
        print(f"\n{criteria_table(outcomes)}\n")
        return tables(outcomes)

    recorded = recorded_tokens(f"{stem}qwen2.5-coder-0.5b")
    if recorded and given.limit is None and given.arms == ",".join(ARMS):
        return BenchSet(name, stem, *recorded, measure)
    # A revision and a chat repeat the answer and say what is wrong with it.
    prompts = sum(estimate_tokens(SYSTEM + task.prompt + _rubric(task)) + MAX_TOKENS for task in tasks)
    calls = DRAWS * len(tasks)
    return BenchSet(
        name,
        stem,
        calls,
        DRAWS * prompts,
        calls * MAX_TOKENS,
        "at most, by prompts and reply limits",
        measure,
    )


def _rubric(task: BenchTask) -> str:
    return judges_of(ReflectionPattern(0, task.criteria), None).rubric


def _drafts_set(given: argparse.Namespace) -> BenchSet:
    benchmark = first_drafts.BENCHMARK
    chosen = [
        each
        for family in benchmark.families
        for arm in benchmark.arms
        for each in benchmark.series(family, arm, benchmark.seeds[0])
    ]

    def measure(replies: Replies, out: Path) -> str:
        rows = out.with_suffix(".first-drafts.jsonl")
        runs = asyncio.run(
            run_all(
                chosen,
                replies,
                model=given.model,
                version=benchmark.version(),
                done=runs_in(rows),
                keep=keeper(rows),
            )
        )
        return f"{given.model}\n\n{benchmark.report(runs)}"

    calls = sum(len(each.tasks) for each in chosen)
    recorded = recorded_tokens("first-drafts") or (calls, calls * 200, calls * 50, "about, by the README")
    return BenchSet("first-drafts", "first-drafts-", *recorded, measure)


def recorded_tokens(cassette: str) -> tuple[int, int, int, str] | None:
    """Return the calls and tokens of a recording's first model, and its name; None without a recording."""
    rows: list[Mapping[str, Any]] = [
        row["reply"] for row in rows_in(PROJECT / "benchmarks" / "cassettes" / f"{cassette}.jsonl.gz")
    ]
    if not rows:
        return None
    name = rows[0]["model"]
    used = [row["usage"] for row in rows if row["model"] == name]
    given, written = (sum(one[key] for one in used) for key in ("input_tokens", "output_tokens"))
    return len(used), given, written, f"as recorded with {name}"
