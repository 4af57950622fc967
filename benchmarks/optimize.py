"""`redraft optimize`: how often it accepts texts when nothing can help, and what it makes of real tasks.

With shuffled labels (the default), a scripted writer proposes texts, and whether an answer passes is tossed
for each text and case, so no text is better than another. What is accepted then is accepted by chance.

`--model` tunes the system prompt of a model on the orders of `note_families.py`, whose form only the checks
know. The same model answers and writes; `--cassette` takes its replies from a recording instead.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING

from _measure import options, publish, table, verdict
from _model import model_given, model_options
from note_families import ORDERS

from redraft import Agent, EvalCase, MemoryStore, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.evals import Optimization
from redraft.types import PlainTask

if TYPE_CHECKING:
    from redraft.evals import OptimizationReport
    from redraft.protocols import ChatModel, ChatRequest

MARK = QualityCriterion("right", evaluator="regex", evaluator_config={"pattern": "^right$"})


def shuffled(number: int, cases: int, rate: float, tries: int) -> OptimizationReport:
    """Optimize once on cases whose answers pass at random."""
    texts = count(1)

    def reply(request: ChatRequest) -> str:
        if request.role == "reflection":
            return f"```\nText {next(texts)}.\n```"
        said = "\0".join(message.content for message in request.messages)
        tossed = int.from_bytes(sha256(f"{number}\0{said}".encode()).digest()[:4], "big") / 2**32
        return "right" if tossed < rate else "wrong"

    agent = Agent(
        ScriptedModel(reply), system_prompt="Text 0.", pattern=ReflectionPattern(0), keep=False, name="tossed"
    )
    tasks = [EvalCase(f"case-{n}", PlainTask(f"Task {n}."), (MARK,)) for n in range(cases)]
    return Optimization(
        tasks,
        agent,
        parts=["system_prompt"],
        budget_tries=tries,
        at_once=1,
        seed=number,
        store=MemoryStore(),
    ).run_sync()


def accepted_by_chance(rounds: int, cases: int, rate: float, tries: int) -> tuple[int, int]:
    """Return how many of some rounds were accepted, and in how many there was something to test."""
    found = [shuffled(number, cases, rate, tries) for number in range(rounds)]
    return sum(one.accepted for one in found), sum(one.test is not None for one in found)


def of_orders(model: ChatModel, tries: int) -> OptimizationReport:
    """Optimize the system prompt with which a model turns messages into orders."""
    agent = Agent(
        model, system_prompt="You are a helpful assistant.", pattern=ReflectionPattern(0), keep=False
    )
    cases = [
        EvalCase(
            f"order-{number}",
            PlainTask(ORDERS.description.format(**inputs), ORDERS.expected_output),
            hidden=ORDERS.criteria,
        )
        for number, inputs in enumerate(ORDERS.inputs, 1)
    ]
    return Optimization(
        cases,
        agent,
        parts=["system_prompt"],
        budget_tries=tries,
        at_once=1,
        store=MemoryStore(),
    ).run_sync()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="optimizations with shuffled labels")
    model_options(parser)
    parser.add_argument("--tries", type=int, default=60, help="evaluations of the search of --model")
    given = parser.parse_args()
    if not (given.model or given.cassette):
        rows: list[tuple[object, ...]] = []
        for cases, rate, tries in ((20, 0.5, 60), (40, 0.5, 120), (60, 0.2, 150)):
            accepted, tested = accepted_by_chance(given.rounds, cases, rate, tries)
            rows.append((cases, f"{rate:.0%}", tries, given.rounds, tested, accepted, verdict(accepted, 5)))
        head = ("cases", "pass by chance", "evaluations", "rounds", "tested", "accepted", "at most 5 of 100")
        publish("optimize-shuffled", table(head, rows), write=given.write)
        return
    report = of_orders(model_given(given), given.tries)
    sizes = " / ".join(
        str(len(part)) for part in (report.split.train, report.split.validation, report.split.test)
    )
    head = ("train / validation / test", "tries", "proposals", "tokens")
    row = (sizes, report.tries, report.proposals, f"{report.usage.total_tokens:,}")
    text = f"{table(head, [row])}\n\n{report.sentence()}"
    if report.test is not None:
        text += f" {report.stopped}"
    if diff := report.diff():
        text += f"\n\n```diff\n{diff}```"
    publish("optimize-orders", text, write=given.write)


if __name__ == "__main__":
    main()
