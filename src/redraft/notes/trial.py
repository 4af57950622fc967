"""Trials: runs with and without a note show whether it helps."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from redraft._hints import keyword_hints
from redraft._validation import check_choice, check_count, check_share
from redraft.errors import ConfigError
from redraft.memory.effects import Payoff, control_share, payoff_of
from redraft.notes.note import Rollback, is_return

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.memory.effects import History
    from redraft.notes.note import Note, NotedTask, NoteUse

RUNS_BEFORE_TRIAL = 3
"""How many runs of a task have its notes before the first control run."""
COMPARED = 10
"""How many runs with a note, and with the previous note, a trial against the previous note needs."""


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Trial:
    """Withhold the note from some runs, to see whether it helps.

    The control runs, never among the first three, get no note, or with `against="previous"` the previous
    note. Against none, the share of control runs follows the evidence: doubled, to at most half of all runs,
    while there are fewer than six control runs or the notes seem to hurt; halved once ten control runs show
    no sign of harm; a quarter once notes are shown to help. A run's score is the score of its first version.

    When runs with notes are shown to score lower, over all runs or over the latest fifty, the control takes
    over. The test is by ranks, exact for pass and fail, and needs four control runs. A version that a person
    or a rollback put in force is given to every run until a newer version replaces it.
    """

    share: float = 0.2
    """The share of control runs, between 0 and 1."""
    min_runs: int = 5
    """How many scored runs a note needs before a newer note replaces it."""
    against: Literal["none", "previous"] = "none"
    """What control runs get instead of the note in force."""

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
"""The trial of a task without its own: a new note is in force in the next run."""


def arm_of(share: float, run_id: str, identity: str) -> Literal["note", "control"]:
    """The arm of a run, drawn from its ids alone; a larger `share` only adds control runs."""
    drawn = sha256(f"{identity}/{run_id}".encode("utf-8", "surrogatepass")).digest()[:8]
    return "control" if int.from_bytes(drawn) < share * 2**64 else "note"


def share_of(trial: Trial, noted: NotedTask) -> float:
    """The current share of control runs; before any score, the share of the trial."""
    if noted.control_share is not None:
        return noted.control_share
    return trial.share if trial.against == "previous" else control_share(trial.share, (), Payoff())


@dataclass(frozen=True, slots=True)
class Evidence:
    """The result of a trial so far."""

    rollback: Rollback | None = None
    """The rollback that is due, if the notes hurt."""
    is_shown: bool = False
    """Whether the notes help."""
    control_share: float | None = None
    """The share of control runs from now on; None for the share of the trial."""


def evidence_of(
    trial: Trial, noted: NotedTask, uses: Sequence[NoteUse], previous: int | None = None
) -> Evidence:
    """Compare the runs that had the notes in force with the control runs.

    `uses` are the runs of the task, the earliest first; `previous` is the version on which the note in force
    is based. Against none, all notes of the current line count together; against the previous note, only the
    note in force.
    """
    alone = trial.against == "previous"
    to = previous if alone else None
    history = history_of(noted, uses, to, alone=alone)
    payoff = payoff_of([history])
    if payoff.verdict == "hurts" and noted.in_force is not None and (effect := payoff.effect) is not None:
        runs = (payoff.with_runs, payoff.without_runs)
        return Evidence(Rollback(noted.in_force, to, effect.mean, effect.low, effect.high, *runs))
    if alone or not history:
        return Evidence()
    return Evidence(None, payoff.verdict == "helps", control_share(trial.share, history, payoff))


def history_of(
    noted: NotedTask, uses: Sequence[NoteUse], control: int | None = None, *, alone: bool = False
) -> History:
    """The scores that a trial compares, up to its last control run.

    `control` is the version that control runs get; with `alone`, only the note in force is on trial. The
    test is repeated after each control run, so later runs with notes wait for the next control run.
    """
    scores: list[tuple[bool, float]] = []
    if not noted.on_trial:
        return scores
    for use in uses:
        if use.score is None or (noted.judged_until is not None and use.at <= noted.judged_until):
            continue
        if _has_note(use, noted, alone=alone):
            scores.append((True, use.score))
        elif use.arm == "control" and use.version == control and scores:  # no older than these notes
            scores.append((False, use.score))
    while scores and scores[-1][0]:
        scores.pop()
    return scores


def _has_note(use: NoteUse, noted: NotedTask, *, alone: bool) -> bool:
    if use.arm != "note" or use.version is None:
        return False
    return use.version == noted.in_force if alone else use.version >= noted.since


def may_replace(trial: Trial, noted: NotedTask, uses: Sequence[NoteUse], previous: int | None = None) -> bool:
    """Whether a newer note may replace the note in force.

    That takes `min_runs` scored runs with the note in force, counted from a rollback to it if there was one.
    A trial against the previous note also needs enough runs with both for a verdict. A note that hurts is
    rolled back instead.
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
    return min(having, controls) >= COMPARED and evidence_of(trial, noted, uses, previous).rollback is None


def is_settled(new: Note, present: Note, replaced: Sequence[Note], uses: Sequence[NoteUse]) -> bool:
    """Whether the note in force stays, because a new revision only returns to a note that it replaced.

    This stops a model from alternating between two notes. The note changes if runs with the words of the
    revision are shown to score higher than runs with the note in force.
    """
    returned = [note for note in replaced if is_return(new.reflection, present.reflection, note.reflection)]
    if not returned:
        return False
    has_it = {present.version: False} | {note.version: True for note in returned}
    scores = [
        (has_it[use.version], use.score) for use in uses if use.version in has_it and use.score is not None
    ]
    return payoff_of([scores]).verdict != "helps"


def reason_of(rollback: Rollback) -> str:
    """The reason for a rollback, with the figures."""
    compared = "without notes" if rollback.to is None else f"with version {rollback.to}"
    return (
        f"version {rollback.version} was rolled back automatically: runs with it scored "
        f"{-rollback.effect:.2f} lower than runs {compared} (95 % interval {rollback.low:+.2f} to "
        f"{rollback.high:+.2f}, {rollback.with_runs} and {rollback.without_runs} runs)"
    )
