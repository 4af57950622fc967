"""Simulate trials of notes: how often useless notes are rolled back, and how soon harmful ones are.

No model is needed.
"""

from __future__ import annotations

from random import Random
from statistics import fmean, median

from _measure import options, publish, table

from redraft.memory.effects import control_share, payoff_of

TASKS = 300
"""Simulated tasks a row."""

FIRST = 4
"""The first run that may go without the note."""


def gauss(mean, effect, since=0):
    """Scores around a mean, to which the note adds its effect from some run on."""
    return lambda chance, run, noted: min(
        1.0, max(0.0, chance.gauss(mean + effect * (noted and run >= since), 0.1))
    )


def passes(share, effect, since=0):
    """Scores of tasks that pass or fail."""
    return lambda chance, run, noted: float(chance.random() < share + effect * (noted and run >= since))


ROWS = {
    "useless, gauss .7": (gauss(0.7, 0), 200),
    "useless, pass .7": (passes(0.7, 0), 200),
    "useless, pass .8": (passes(0.8, 0), 200),
    "useless, pass .9": (passes(0.9, 0), 200),
    "useless, pass .95": (passes(0.95, 0), 200),
    "helps by .04, pass .9": (passes(0.9, 0.04), 200),
    "harms by .1, gauss .7": (gauss(0.7, -0.1), 200),
    "harms by .3, gauss .7": (gauss(0.7, -0.3), 200),
    "harms by .3, pass .7": (passes(0.7, -0.3), 200),
    "harms by .5, pass .7": (passes(0.7, -0.5), 200),
    "turns harmful at run 60, gauss .8 to .05": (gauss(0.8, -0.75, 60), 260),
    "turns harmful at run 60, pass .9 to .3": (passes(0.9, -0.6, 60), 260),
}


def rolled_back_at(score, runs, seed, share=0.2):
    """Simulate one task; return the run that ends in a rollback, or None, and the control share."""
    chance, history, controls = Random(seed), [], 0
    present = control_share(share, history)
    for run in range(FIRST, runs + 1):
        noted = chance.random() >= present
        history.append((noted, score(chance, run, noted)))
        if not noted:
            controls += 1
            if payoff_of([history]).verdict == "hurts":
                return run, controls / len(history)
            present = control_share(share, history)
    return None, controls / len(history)


def main():
    given = options(__doc__).parse_args()
    rows = []
    for name, (score, runs) in ROWS.items():
        ends = [rolled_back_at(score, runs, seed) for seed in range(TASKS)]
        found = [run for run, _ in ends if run is not None]
        soon = f"{median(found):g}" if found else "-"
        rows.append(
            (name, f"{100 * len(found) / TASKS:.1f} %", soon, f"{fmean(share for _, share in ends):.2f}")
        )
    head = ["note, scores", "rolled back", "median run", "share without it"]
    publish("trials", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
