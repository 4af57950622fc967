"""What a workflow costs beyond its actions: a loop, an evaluator in code, checking a long file."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from _measure import options, publish, table, verdict

from redraft.stores.sqlite import MemoryStore, SqliteStore
from redraft.workflow import Workflow
from redraft.workflow.runtime import Resources, Scope
from redraft.workflow.spec import EvaluatorSpec
from redraft.workflow.verdict import Judge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.protocols import ChatReply, ChatRequest
    from redraft.stores.base import Store

LOOP = """
name: loop
nodes:
  - name: profile
    uses: reflection.loop
    with:
      generator: {action: attempt}
      evaluator:
        type: schema
        schema:
          type: object
          required: [name, age]
          properties: {name: {type: string}, age: {type: integer, minimum: 0}}
      corrector: {action: attempt, apply: replace}
"""
DRAFTS: tuple[dict[str, Any], ...] = ({"name": "Ada"}, {"name": "Ada", "age": 36})

EVALUATOR = """
import json
data = json.loads(output) if isinstance(output, str) else output
score = (bool(data.get("name")) + ("@" in data.get("email", ""))) / 2
result = {"valid": score >= 1.0, "score": score}
"""
USER = '{"name": "Ada", "email": "ada@example.com"}'

TWO_NODES = """
  - name: ask_{0}
    uses: llm.call
    with:
      model: any
      prompt: "Write number {0} for {{{{ state.request }}}}."
    output: text_{0}
  - name: use_{0}
    run: |
      return {{"words_{0}": len(state["text_{0}"].split())}}
"""
TWO_LOOPS = "".join(
    f"""
  - name: {name}_{{0}}
    uses: reflection.loop
    with:
      generator:
        action: llm.call
        model: any
        prompt: |
          Write {name} {{0}} for {{{{{{{{ state.request }}}}}}}}.
          {{{{% for error in state.reflection_errors %}}}}- {{{{{{{{ error.message }}}}}}}}{{{{% endfor %}}}}
      evaluator:
        type: schema
        schema:
          required: [name, number]
          properties: {{{{name: {{{{type: string}}}}, number: {{{{const: {{0}}}}}}}}}}
    output: {name}_result_{{0}}
"""
    for name in ("one", "other")
)
NODES = 200


async def attempt(state: dict[str, Any]) -> object:
    return DRAFTS[state["reflection_iteration"] - 1]


async def answer(_request: ChatRequest) -> ChatReply:
    raise AssertionError("reading a file asks no model")


async def repeated(run: Callable[[], Awaitable[object]], times: int, clock: Callable[[], float]) -> float:
    """Return the median milliseconds of a call, warm."""
    for _ in range(30):
        await run()
    taken: list[float] = []
    for _ in range(times):
        started = clock()
        await run()
        taken.append(clock() - started)
    return median(taken) * 1e3


async def looping(keep: bool | Store, times: int) -> float:
    """Return the CPU milliseconds of a loop of two attempts, all threads of this process together."""
    workflow = Workflow.from_text(LOOP, actions={"attempt": attempt}, keep=keep)
    result = await workflow.run()
    assert result.state["reflection_iteration"] == 2, "the loop does not take two attempts"
    taken = await repeated(workflow.run, times, process_time)
    if isinstance(keep, SqliteStore):
        await keep.aclose()
    return taken


async def judging(times: int) -> float:
    """Return the milliseconds of an evaluator's call, by the clock: most of it is another process."""
    judge = Judge(EvaluatorSpec(type="custom", run=EVALUATOR), Resources())
    scope = Scope({"reflection_output": USER})
    assert (await judge(USER, scope)).satisfactory
    return await repeated(lambda: judge(USER, scope), times, perf_counter)


def reading(two: str, times: int) -> float:
    """Return the median CPU milliseconds of reading and checking a file of so many nodes, two at a time."""
    taken: list[float] = []
    for number in range(times):
        # Numbers of its own, so that no template and no schema is known from the file before.
        text = "name: long\nnodes:\n" + "".join(two.format(number * NODES + at) for at in range(NODES // 2))
        started = process_time()
        Workflow.from_text(text, models={"any": answer}, keep=False)
        taken.append(process_time() - started)
    return median(taken) * 1e3


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--times", type=int, default=300, help="runs for each figure")
    given = parser.parse_args()
    times, files = given.times, max(3, given.times // 30)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "redraft.db")
        rows: list[tuple[str, float, float | None]] = [
            ("a schema loop of two attempts", asyncio.run(looping(keep=False, times=times)), 1.5),
            ("... kept in memory", asyncio.run(looping(MemoryStore(), times)), None),
            ("... kept in SQLite", asyncio.run(looping(store, times)), None),
            ("an inline Python evaluator", asyncio.run(judging(times)), 1.5),
            (f"reading and checking {NODES} nodes, half of them code", reading(TWO_NODES, files), None),
            (f"reading and checking {NODES} loops", reading(TWO_LOOPS, files), None),
        ]
    lines = [
        (name, f"{value:.2f}", "" if target is None else f"{target:g} {verdict(value, target)}")
        for name, value, target in rows
    ]
    publish("workflow", table(("milliseconds", "median", "target"), lines), write=given.write)


if __name__ == "__main__":
    main()
