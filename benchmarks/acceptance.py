"""Which revisions are accepted when the judge is noisy: real gains, and versions that are no better.

A simulated judge sees the true quality of an output with normal noise; everything else is the loop. Of two
answers it prefers the one that looks better to it. A true gain is a draft of quality 0.60 with one revision
of 0.70. A false gain is a draft with three revisions of its own quality, 0.65, of which any is returned in
its place.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from _measure import options, publish, table

from redraft import QualityCriterion, ReflectionPattern, ScriptedModel, reflect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft import ReflectionResult
    from redraft.protocols import ChatRequest, RunContext

NOISE = 0.07
"""The standard deviation of a judgement."""
POSITION_BIAS = 0.02
"""How much better the first of two answers looks when they are compared."""
GAIN = (0.60, 0.70)
EQUAL = (0.65,) * 4
SAMPLES = (3, 5, 9)
QUALITY = re.compile(r"quality (\d\.\d+)")


def noisy_judge(random: Random, noise: float = NOISE) -> ScriptedModel:
    """Return a judge that sees the quality that an output states, with noise."""
    number = count()

    def answer(request: ChatRequest) -> dict[str, Any]:
        qualities = [float(found) for found in QUALITY.findall(request.messages[-1].content)]
        if request.schema and "winner" in request.schema["properties"]:
            first, second = (random.gauss(quality, noise) for quality in qualities)
            return {"reason": "", "winner": "A" if first + POSITION_BIAS > second else "B"}
        quality = qualities[-1]
        score = round(min(0.99, max(0.0, random.gauss(quality, noise))), 2)
        # The reason differs as those of a model do: identical replies count as one.
        return {"criteria": {"quality": {"reason": f"{next(number)}", "score": score}}, "confidence": 0.9}

    return ScriptedModel(answer)


async def run(qualities: Sequence[float], judge: ScriptedModel, **choices: Any) -> ReflectionResult:
    """Run the loop over versions of these qualities; no rule but the maximum ends it."""

    async def generate(_prompt: str, run: RunContext) -> str:
        return f"version {run.iteration}, of quality {qualities[run.iteration - 1]:.2f}"

    pattern = ReflectionPattern(
        max_iterations=len(qualities) - 1,
        reflection_model=judge,
        **{
            "quality_criteria": [QualityCriterion("quality", threshold=0.0)],
            "quality_threshold": 1.0,
            "until": lambda _: None,
            **choices,
        },
    )
    return await reflect("Improve.", generate=generate, pattern=pattern)


@dataclass(frozen=True)
class Accepted:
    """The shares of true and of false gains that were accepted."""

    true: float
    false: float


async def accepted(runs: int, seed: int = 0, **choices: Any) -> Accepted:
    """Return what a pattern with these choices accepts, over `runs` runs of each kind."""
    judge = noisy_judge(Random(seed))
    true = [(await run(GAIN, judge, **choices)).history.best_version.iteration > 1 for _ in range(runs)]
    false = [(await run(EQUAL, judge, **choices)).history.best_version.iteration > 1 for _ in range(runs)]
    return Accepted(sum(true) / runs, sum(false) / runs)


async def met(quality: float, runs: int, *, confirmed: bool, seed: int = 0) -> float:
    """Return the share of runs that end as satisfactory at a threshold of 0.80, by single judgements.

    All four versions are of one quality. Unless `confirmed`, a verdict near the threshold stands at once.
    """
    judge = noisy_judge(Random(seed))
    with patch("redraft.evaluate.panel.NEAR", 0.1 if confirmed else 0.0):
        ends = [
            await run((quality,) * 4, judge, quality_threshold=0.8, plateau_iterations=4, until=None)
            for _ in range(runs)
        ]
    return sum(result.success for result in ends) / runs


async def rules_table(runs: int) -> str:
    rules: list[tuple[str, dict[str, Any]]] = [
        ("one judgement each", {}),
        *((f"{samples} samples", {"judge_samples": samples}) for samples in SAMPLES),
        ('`accept="pairwise"`', {"accept": "pairwise"}),
    ]
    rows: list[list[object]] = []
    for name, choices in rules:
        found = await accepted(runs, **choices)
        rows.append([name, f"{found.true:.0%}", f"{found.false:.0%}"])
    return table(["rule", "true gains accepted", "false gains accepted"], rows)


async def threshold_table(runs: int) -> str:
    rows: list[list[object]] = []
    for quality in (0.70, 0.75, 0.80, 0.85, 0.90):
        shares = [await met(quality, runs, confirmed=confirmed) for confirmed in (False, True)]
        rows.append([f"{quality:.2f}", *(f"{share:.0%}" for share in shares)])
    return table(["true quality of all versions", "one judgement decides", "a second one confirms"], rows)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="simulated runs per figure")
    args = parser.parse_args()
    parts = [
        asyncio.run(rules_table(args.runs)),
        "Runs that end as `quality_met` at a threshold of 0.80:",
        asyncio.run(threshold_table(args.runs)),
    ]
    publish("acceptance", "\n\n".join(parts), write=args.write)


if __name__ == "__main__":
    main()
