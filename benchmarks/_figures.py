"""What the outcomes of the arms come to: solved, paid for, compared in pairs, and the success criteria."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from _arms import CALLS
from _measure import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _arms import Outcome, Try

STOPPED_WELL = frozenset(
    {"quality_met", "plateau", "oscillation", "diminishing", "semantic_stability", "repeated_issues"}
)


def by_arm(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Outcome]]:
    """Sort outcomes by arm and task."""
    arms: dict[str, dict[str, Outcome]] = {}
    for outcome in outcomes:
        arms.setdefault(outcome.arm, {})[outcome.task] = outcome
    return arms


def solved_within(outcome: Outcome, calls: int) -> bool:
    """Say whether what an arm would return after so many calls passes the hidden check."""
    made, last = 0, None
    for each in outcome.tries:
        made += each.requests
        if made > calls:
            break
        last = each
    return last is not None and outcome.tries[last.returned].solved


def arms_table(outcomes: Sequence[Outcome]) -> str:
    """Show for each arm what it solved after 1, 2, 3 calls, and what that took."""
    rows: list[tuple[object, ...]] = []
    for name, found in by_arm(outcomes).items():
        tries = [each for outcome in found.values() for each in outcome.tries]
        solved = [
            sum(solved_within(outcome, calls) for outcome in found.values()) for calls in range(1, CALLS + 1)
        ]
        met = sum(outcome.tries[-1].met for outcome in found.values())
        tokens = sum(each.input_tokens + each.output_tokens for each in tries)
        per_solved = f"{tokens / solved[-1]:,.0f}" if solved[-1] else "none solved"
        calls = sum(each.requests for each in tries)
        same = sum(each.how == "repeat" for each in tries)
        rows.append((name, len(found), *solved, met, calls, same, f"{tokens:,}", per_solved))
    after = [f"after {calls} call{'s' * (calls > 1)}" for calls in range(1, CALLS + 1)]
    head = (
        "arm", "tasks", *(f"solved {text}" for text in after),
        "visible met", "calls", "changed nothing", "tokens", "tokens per solved",
    )  # fmt: skip
    return table(head, rows)


def pairs_table(outcomes: Sequence[Outcome]) -> str:
    """Compare the loop with the other arms, task by task."""
    arms = by_arm(outcomes)
    ours = arms.pop("loop", {})
    rows: list[tuple[object, ...]] = []
    for name, theirs in arms.items():
        both = sorted(ours.keys() & theirs.keys())
        won = [(solved_within(ours[task], CALLS), solved_within(theirs[task], CALLS)) for task in both]
        only_ours = [task for task, (we, they) in zip(both, won, strict=True) if we and not they]
        only_theirs = [task for task, (we, they) in zip(both, won, strict=True) if they and not we]
        difference = len(only_ours) - len(only_theirs)
        rows.append((f"loop, {name}", len(both), _named(only_ours), _named(only_theirs), f"{difference:+d}"))
    return table(("pair", "tasks", "only the loop solved", "only the other solved", "difference"), rows)


def _named(tasks: Sequence[str]) -> str:
    return f"{len(tasks)}: {', '.join(tasks)}" if tasks else "0"


def criteria_table(outcomes: Sequence[Outcome]) -> str:
    """Show the five success criteria of a loop, taken on the loop's arm; none of them is a gate."""
    runs = list(by_arm(outcomes).get("loop", {}).values())
    revised = [run for run in runs if not run.tries[0].met]
    better = [run for run in revised if _score(_returned(run)) > _score(run.tries[0])]
    met = [run for run in runs if _returned(run).met]
    changes = [each for run in runs for each in run.tries[1:]]
    asked, mended = sum(each.asked for each in changes), sum(each.mended for each in changes)
    tries = [each for run in runs for each in run.tries]
    twice = [each for each in tries if each.how != "repeat"]
    alike = [each for each in twice if abs(_score(each) - (each.judged_again or 0.0)) <= 0.1]
    late = [run for run in runs if any(each.met for each in run.tries[:-1])]
    well = [run for run in runs if run.reason in STOPPED_WELL]
    ended = sorted(Counter(run.reason for run in runs).items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(f"{reason} {count}" for reason, count in ended)
    rows = (
        (
            "Quality improvement: the returned version scores above the first",
            "80 %",
            _share(len(better), len(runs)),
        ),
        ("... of the runs whose first draft was not satisfactory", "", _share(len(better), len(revised))),
        ("Convergence: satisfactory within 3 versions", "70 %", _share(len(met), len(runs))),
        (
            "... of the runs whose first draft was not satisfactory",
            "",
            _share(len(met) - (len(runs) - len(revised)), len(revised)),
        ),
        ("Issue resolution: issues that the next version no longer has", "85 %", _share(mended, asked)),
        ("Evaluation consistency: a second judgement is within 0.1", "", _share(len(alike), len(twice))),
        ("Efficient termination: ended by quality or a plateau", "90 %", _share(len(well), len(runs))),
        ("... no version was made after a satisfactory one", "", _share(len(runs) - len(late), len(runs))),
    )
    return f"{table(('success criterion', 'target', 'loop'), rows)}\n\nThe loop ended by: {reasons}."


def _returned(run: Outcome) -> Try:
    return run.tries[run.tries[-1].returned]


def _score(each: Try) -> float:
    return each.score or 0.0


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "none"
