"""The same task twenty times on a real model, with notes from run to run and without them.

The task says what to extract, but not in which form; six criteria check the form. No run has a second try, so
only the note can carry what was wrong into the next run.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from _measure import options, publish, table
from _model import model_given, model_options

from redraft import Ensemble, InMemoryReflectionStore, QualityCriterion, Task, TaskIdentity

if TYPE_CHECKING:
    from redraft.protocols import ChatModel


MESSAGES = (
    "Hi, this is Maria Lopez. I need 3 desk lamps delivered to Madrid by 5 March 2026, please.",
    "Order from Tom Becker: two office chairs to Hamburg, latest 12.04.2026.",
    "Could you send me a dozen notebooks? I'm in Lyon. Before May 1st, 2026. Claire Dubois",
    "Ken Sato here, one standing desk for our Osaka office, on the 20th of June 2026.",
    "We want 40 whiteboard markers in Dublin for the training on 2026-02-17. Regards, Aoife Byrne",
    "Anna Rossi, Torino: quattro lampade, I mean four lamps. End date 3 July 2026.",
    "Please ship 15 keyboards to Porto until 8/9/2026 (8 September). Joao Silva",
    "It's Priya Nair. Six monitors, Bengaluru, 30 January 2026. Thanks!",
    "To Oslo: 25 USB hubs. Needed on 14 October 2026. - Lars Berg",
    "I'd like to order 1 projector for Vienna, by the 2nd of November 2026. Eva Gruber",
    "Seven bookshelves for the library in Ghent, 19 August 2026, says Pieter Claes.",
    "Good morning, Olga Novak from Prague, 100 pens, date 6 May 2026.",
    "Hello! 5 headsets to Tallinn on 28 February 2026. My name is Mart Tamm.",
    "Send nine chairs to Athens for Nikos Pappas, no later than 11 December 2026.",
    "Sofia Lindgren wants 2 printers in Malmo, 23 March 2026.",
    "Eight desks, Krakow, 1 September 2026, for Jan Kowalski.",
    "This is Fatima Zahra in Rabat; I need 12 tablets on the 15th of April 2026.",
    "60 folders to Leeds by 7 June 2026. Emily Clark.",
    "Luca Meier, Basel. 3 scanners. 29 October 2026 is fine.",
    "For our Seoul branch: 10 webcams, 9 January 2026. Best, Min-jun Kim",
)


FIELDS = {
    "customer": {"type": "string"},
    "item": {"type": "string"},
    "quantity": {"type": "integer"},
    "city": {"type": "string"},
    "due": {"type": "string", "pattern": r"^2026-\d\d-\d\d$"},
}


def criterion(name: str, schema: dict[str, object]) -> QualityCriterion:
    return QualityCriterion(
        name, threshold=1.0, evaluator="schema", evaluator_config={"schema": {"type": "object"} | schema}
    )


CRITERIA = [
    *(criterion(key, {"properties": {key: form}, "required": [key]}) for key, form in FIELDS.items()),
    criterion("nothing else", {"properties": {key: {} for key in FIELDS}, "additionalProperties": False}),
]
DESCRIPTION = "Turn the message of a customer into an order as JSON.\n\nThe message: {message}"
EXPECTED = "One JSON object, and nothing else."


async def scores(model: ChatModel, *, reflect: bool) -> tuple[list[float], list[bool], str]:
    """Return what each run scored, whether its form was right, and the last note."""
    task = Task(DESCRIPTION, EXPECTED, criteria=CRITERIA, reflect=reflect)
    store = InMemoryReflectionStore()
    ensemble = Ensemble(model=model, tasks=[task], reflection_store=store, keep=False)
    found: list[float] = []
    right: list[bool] = []
    for message in MESSAGES:
        result = await ensemble.run(inputs={"message": message})
        run = result.results[0].result
        assert run is not None
        found.append(run.history.versions[0].evaluation.overall_score or 0.0)
        right.append(run.success)
        print(f"{'with' if reflect else 'without'} {found[-1]:.2f} {right[-1]}", file=sys.stderr, flush=True)
    note = await store.retrieve(TaskIdentity.of(task))
    return found, right, "" if note is None else "\n".join([note.refined_description, *note.suggestions])


def report(without: tuple[list[float], list[bool], str], noted: tuple[list[float], list[bool], str]) -> str:
    """Render both curves: the score of each run, and how many were right so far."""
    rows: list[list[object]] = []
    for number in range(len(MESSAGES)):
        cells: list[object] = [number + 1]
        for scored, right, _ in (without, noted):
            cells += [f"{scored[number]:.2f}", sum(right[: number + 1])]
        rows.append(cells)
    rows.append(
        [
            "mean",
            *(cell for scored, right, _ in (without, noted) for cell in (f"{_mean(scored):.2f}", sum(right))),
        ]
    )
    return table(["run", "without: score", "right so far", "with notes: score", "right so far"], rows)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


async def run(model: ChatModel) -> str:
    without, noted = await scores(model, reflect=False), await scores(model, reflect=True)
    print(f"\nThe last note:\n{noted[2]}", file=sys.stderr)
    return report(without, noted)


def main() -> None:
    parser = options(__doc__)
    model_options(parser)
    given = parser.parse_args()
    model = model_given(given)
    publish("note-runs", asyncio.run(run(model)), write=given.write)


if __name__ == "__main__":
    main()
