"""Trials: runs with and without a note show whether it helps."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from redraft._hints import keyword_hints
from redraft._validation import check_choice, check_count, check_share
from redraft.errors import ConfigError
from redraft.notes.note import Rollback
from redraft.stats import FEWEST, effect_of, last_look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.notes.note import NotedTask, NoteUse

LATEST_USES = 2000
"""How many of the latest runs a verdict considers; older ones say little about the present."""


RUNS_BEFORE_TRIAL = 3
"""How many runs of a task teach something before the first one goes without what they taught."""
FEWEST_CONTROLS = 3
"""How many control runs show that a note hurts if each of them did better than every run with notes."""
SHARE_ONCE_SHOWN = 0.25
"""The part of a trial's share that still goes without notes that have been shown to help."""


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Trial:
    """Withhold the note from some runs, to see whether it helps.

    `share` of the runs (between 0 and 1), never one of the first three, are the control: they go without any
    note, or with `against="previous"` get the one before. A note stays until `min_runs` runs with it have a
    score; only then does the newest replace it. A run's score is what the task's criteria give its first
    version. When the 95 % bootstrap interval of the difference, over at least 10 runs on each side, lies
    below zero, the control takes over; three control runs are enough if each did better than every run with
    notes.

    When the interval lies above zero, the notes have been shown to help: from then on, only a quarter of
    `share` goes without, so that a change is noticed. The next 10 runs on each side decide anew, from their
    own scores. `against="previous"` keeps its share, since each new note is compared with the one before.
    A version that a person or a rollback put in force is given to every run until a newer one replaces it.
    """

    share: float = 0.2
    min_runs: int = 5
    against: Literal["none", "previous"] = "none"

    def __post_init__(self) -> None:
        check_share("Trial.share", self.share)
        if self.share in (0, 1):
            raise ConfigError(
                "Trial.share must be above 0 and below 1, so that some runs have the note and some don't; "
                f"got {self.share!r}."
            )
        check_count("Trial.min_runs", self.min_runs, 1)
        check_choice("Trial.against", self.against, ("none", "previous"))


DEFAULT_TRIAL = Trial(min_runs=1)
"""The trial of a task that asks for none: what a run taught is in force in the next."""


def arm_of(trial: Trial, run_id: str, identity: str, *, is_shown: bool = False) -> Literal["note", "control"]:
    """Return the arm of a run, `note` or `control`, from its ids alone.

    `is_shown` says that the notes have been shown to help; it only makes control runs fewer.
    """
    drawn = sha256(f"{identity}/{run_id}".encode("utf-8", "surrogatepass")).digest()[:8]
    share = trial.share * (SHARE_ONCE_SHOWN if is_shown else 1)
    return "control" if int.from_bytes(drawn) < share * 2**64 else "note"


def verdict(
    trial: Trial, noted: NotedTask, uses: Sequence[NoteUse], previous: int | None = None
) -> Rollback | None:
    """Return the rollback that is due if the note in force hurts; None if that is not known.

    `uses` are the task's, the earliest first; `previous` is the version that the note in force is based on.
    Against none, all notes of the present line count together; against the previous one, only the note in
    force. The scores are tested no more often than `last_look` says, and before that if they are apart.
    """
    in_force, to = noted.in_force, previous if trial.against == "previous" else None
    scores = _scores(trial, noted, uses, to)
    seen = last_look(scores) or _apart(scores)
    if in_force is None or seen is None or fmean(seen[0]) >= fmean(seen[1]):
        return None
    effect = effect_of(*seen)
    if effect.high >= 0:
        return None
    return Rollback(in_force, to, effect.mean, effect.low, effect.high, len(seen[0]), len(seen[1]))


def shown_to_help(trial: Trial, noted: NotedTask, uses: Sequence[NoteUse]) -> bool | None:
    """Return whether the trial shows that the notes help; None before there are enough scores.

    Arguments are as for `verdict`. None for a trial against the previous note: what one note is worth says
    nothing about the next.
    """
    seen = None if trial.against == "previous" else last_look(_scores(trial, noted, uses, None))
    if seen is None:
        return None
    return fmean(seen[0]) > fmean(seen[1]) and effect_of(*seen).low > 0


def _scores(
    trial: Trial, noted: NotedTask, uses: Sequence[NoteUse], control: int | None
) -> list[tuple[bool, float]]:
    """Return the scores that count, in order of time; the flag says whether a run had the notes on trial.

    `control` is the version that control runs are given. What was shown already has used up the scores until
    then: kept, they would protect notes that have changed since, and mix times with different shares.
    """
    scores: list[tuple[bool, float]] = []
    if not noted.on_trial:
        return scores
    for use in uses:
        if use.score is None or (noted.judged_until is not None and use.at <= noted.judged_until):
            continue
        if _has_note(use, noted, alone=trial.against == "previous"):
            scores.append((True, use.score))
        elif use.arm == "control" and use.version == control and scores:  # no older than these notes
            scores.append((False, use.score))
    return scores


def _apart(scores: Sequence[tuple[bool, float]]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the scores with and without, if every one with is below every one without; None if not.

    By chance, 10 scores are below 3 others in one of 286 cases.
    """
    with_scores = tuple(score for is_with, score in scores if is_with)
    without_scores = tuple(score for is_with, score in scores if not is_with)
    if len(with_scores) < FEWEST or len(without_scores) < FEWEST_CONTROLS:
        return None
    return (with_scores, without_scores) if max(with_scores) < min(without_scores) else None


def _has_note(use: NoteUse, noted: NotedTask, *, alone: bool) -> bool:
    if use.arm != "note" or use.version is None:
        return False
    return use.version == noted.in_force if alone else use.version >= noted.since


def may_replace(trial: Trial, noted: NotedTask, uses: Sequence[NoteUse], previous: int | None = None) -> bool:
    """Return whether a newer note may replace the one in force.

    That takes `min_runs` scored runs with the note in force, after a rollback to it as many since then;
    against the previous one also enough runs of both for a verdict, which would otherwise never come. A note
    that hurts is rolled back instead.
    """
    in_force = noted.in_force
    if in_force is None:
        return True
    since = None if noted.on_trial else noted.judged_until
    scored = [use for use in uses if use.score is not None and (since is None or use.at > since)]
    having = sum(use.arm == "note" and use.version == in_force for use in scored)
    if having < trial.min_runs:
        return False
    if trial.against == "none" or not noted.on_trial:
        return True
    controls = sum(use.arm == "control" and use.version == previous for use in scored)
    return min(having, controls) >= FEWEST and verdict(trial, noted, uses, previous) is None


def reason_of(rollback: Rollback) -> str:
    """Return the reason for a rollback, with the figures."""
    other = "without notes" if rollback.to is None else f"with version {rollback.to}"
    return (
        f"version {rollback.version} was rolled back automatically: runs with it scored "
        f"{-rollback.effect:.2f} lower than runs {other} (95 % interval {rollback.low:+.2f} to "
        f"{rollback.high:+.2f}, {rollback.with_runs} and {rollback.without_runs} runs)"
    )
