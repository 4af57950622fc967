"""Retrying with lessons beside retrying without: the same small tasks, the same number of calls.

Both ways begin with the same first answer. With lessons, each failure is reflected on, and the next attempt
is told what was learnt; without, the task is asked again at a temperature. A reflection is a call, too.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING

from _extractions import EXTRACTIONS
from _functions import FUNCTIONS
from _measure import options, publish, table
from _model import model_given, model_options
from _retries import RETRIES, Pair, pair_of
from _writings import WRITINGS

if TYPE_CHECKING:
    from redraft.protocols import ChatModel

DAY = date(2026, 3, 1)
TASKS = tuple(chain.from_iterable(zip(FUNCTIONS, EXTRACTIONS, WRITINGS, strict=True)))
"""Kind after kind by turns, so that the first few are of all kinds."""


async def pairs_of(model: ChatModel, limit: int) -> list[Pair]:
    """Try the first tasks both ways."""
    pairs: list[Pair] = []
    for task in TASKS[:limit]:
        pairs.append(await pair_of(task, model, DAY))
        print(told(pairs[-1]), file=sys.stderr, flush=True)
    return pairs


def told(pair: Pair) -> str:
    """Render a line of progress."""
    marks = "".join("-+"[met] for met in (pair.first_met, pair.with_met, pair.without_met))
    return (
        f"{pair.task:24} {pair.calls} calls, first/with/without {marks}, lessons without model {pair.plain}"
    )


def pairs_table(pairs: list[Pair]) -> str:
    """Render what retrying made of the tasks whose first answer fails."""
    retried = [pair for pair in pairs if not pair.first_met]
    reflections = sum(pair.reflections for pair in retried)
    attempts = sum(len(pair.with_outputs) for pair in retried)
    samples = sum(len(pair.without_outputs) for pair in retried)
    rows = [
        (
            "passes the visible checks in the end",
            sum(pair.with_met for pair in retried),
            sum(pair.without_met for pair in retried),
        ),
        (
            "solved (hidden checks, too)",
            sum(pair.with_solved for pair in retried),
            sum(pair.without_solved for pair in retried),
        ),
        ("calls allowed", *[sum(pair.calls for pair in retried)] * 2),
        ("calls made", attempts + reflections, samples),
        ("... of these reflections", reflections, 0),
        ("lessons that had to be made without the model", sum(pair.plain for pair in retried), 0),
    ]
    head = (f"{len(retried)} of {len(pairs)} tasks, whose first answer fails", "with lessons", "without")
    return f"{table(head, rows)}\n\nAt most {RETRIES} retries with lessons. {_only(retried)}"


def _only(pairs: list[Pair]) -> str:
    ours = [pair.task for pair in pairs if pair.with_solved and not pair.without_solved]
    theirs = [pair.task for pair in pairs if pair.without_solved and not pair.with_solved]
    return (
        f"Solved only with lessons: {', '.join(ours) or 'none'}; only without: {', '.join(theirs) or 'none'}."
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--limit", type=int, default=len(TASKS), help="only so many tasks, of all kinds")
    model_options(parser)
    given = parser.parse_args()
    model = model_given(given)
    publish("lessons_retries", pairs_table(asyncio.run(pairs_of(model, given.limit))), write=given.write)


if __name__ == "__main__":
    main()
