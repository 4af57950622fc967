"""What a sandboxed script costs: the same small evaluator in each language, warm, in wall time."""

from __future__ import annotations

import asyncio
from statistics import quantiles
from time import perf_counter

from _measure import options, publish, table, verdict

from redraft.execution import Script, ScriptLimits
from redraft.sandbox.scripts import run_script

TARGET = 1.5
"""Milliseconds that a warm inline Python evaluator may take a call."""

NAMES = {"state": {"request": "a profile"}, "output": '{"name": "Ada", "email": "ada@example.com"}'}
PYTHON = """
import json
data = json.loads(output) if isinstance(output, str) else output
score = (bool(data.get("name")) + ("@" in data.get("email", ""))) / 2
result = {"valid": score >= 1.0, "score": score, "errors": [] if score >= 1.0 else [{"message": "missing"}]}
"""
LUA = "return {valid = output:find('@') ~= nil, score = 1.0, errors = {}}"
PROLOG = "valid :- output(O), sub_atom(O, _, _, _, '@').\nscore(1.0).\n"

SCRIPTS = {
    "Python, inline": (Script("python", PYTHON, NAMES, ScriptLimits(seconds=10)), 1),
    "Python, in a jailed child": (Script("python", PYTHON, NAMES, ScriptLimits(seconds=10), "process"), 20),
    "Lua": (Script("lua", LUA, NAMES, ScriptLimits(seconds=10)), 1),
    "Prolog": (Script("prolog", PROLOG, NAMES, ScriptLimits(seconds=10)), 10),
}


async def times(script: Script, runs: int) -> tuple[float, list[float]]:
    """Return the milliseconds of the first run, and of so many warm ones, sorted."""
    taken: list[float] = []
    for _ in range(runs + 1):
        started = perf_counter()
        value = await run_script(script)
        taken.append((perf_counter() - started) * 1e3)
        assert value["valid"] is True, f"{script.language} judged {value!r}"
    return taken[0], sorted(taken[1:])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="warm runs of the quickest")
    given = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    for name, (script, share) in SCRIPTS.items():
        first, warm = asyncio.run(times(script, max(20, given.runs // share)))
        low, *_, high = quantiles(warm, n=10)
        middle = warm[len(warm) // 2]
        target = (f"{TARGET}", verdict(middle, TARGET)) if name == "Python, inline" else ("", "")
        rows.append((name, f"{first:.0f}", f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}", *target))
    head = ("milliseconds a run", "first", "10 %", "median", "90 %", "target", "")
    publish("scripts", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
