"""Candidates: several drafts of a version, made concurrently, of which the best goes on to revision."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from redraft._steps import in_time, step_context, step_scope
from redraft._texts import copy_of, key_of, listed
from redraft._validation import named_error
from redraft.errors import ChangedRunError, ModelError, RedraftError
from redraft.evaluate.ask import add_usage, settle
from redraft.loop.budget import usage_of_failure
from redraft.protocols import FRESH_TEMPERATURE
from redraft.types import (
    NOT_JUDGED,
    NOTHING_USED,
    Choice,
    Draft,
    Issue,
    ReflectionEvaluation,
    ReflectionVersion,
    TokenUsage,
    render_score,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redraft.loop.steps import Steps
    from redraft.protocols import Evaluator, Generator, ModelRole, RunContext

R = TypeVar("R")


def best_of(count: int, generate: Generator, evaluate: Evaluator) -> Generator:
    """Wrap a generator to make `count` first drafts concurrently, and return the best with its `Choice`.

    The first candidate is the same draft as without candidates; the others are made at a higher temperature.
    A function can distinguish them by `attempt.candidate`. Free checks judge every draft. `evaluate` scores
    the drafts that no check distinguishes; the earliest of equal drafts is chosen.

    Every draft and every judgement is a step, so a run that was killed repeats none that had finished. A
    draft that fails, or that the budget does not allow, is left out; if all do, the first error is raised.
    """

    async def generate_best(prompt: str, run: RunContext, /) -> Draft:
        first = run.attempt
        if first.mode != "draft":
            return await generate(prompt, run)
        others = [
            replace(first, candidate=number, temperature=FRESH_TEMPERATURE) for number in range(2, count + 1)
        ]
        makers = [partial(generate, prompt, replace(run, attempt=attempt)) for attempt in (first, *others)]
        contest = Contest(evaluate, run)
        await contest.draft(makers)
        return await contest.decide()

    return generate_best


@dataclass(slots=True)
class Contender:
    """A draft among several, with its judgement so far."""

    number: int
    draft: Draft
    evaluation: ReflectionEvaluation = field(default_factory=partial(ReflectionEvaluation, None))


class Contest:
    """The candidates for one version: made and judged until the best is chosen."""

    def __init__(self, evaluate: Evaluator, run: RunContext) -> None:
        self.evaluate = evaluate
        self.run = run
        self.steps: Steps = run.state.steps
        self.count = 0
        self.candidates: list[Contender] = []
        self.repeats: list[Contender] = []
        self.judgements: list[ReflectionEvaluation] = []
        self.same: dict[int, int] = {}
        self.failed: dict[int, Exception] = {}
        self.usage: dict[str, TokenUsage] = {}
        self._numbers: dict[object, int] = {}

    async def draft(self, makers: Sequence[Callable[[], Awaitable[Draft]]]) -> None:
        """Make and check all drafts concurrently; raises the first error if none can be made."""
        self.count = len(makers)
        errors = (await settle([self._make(number, make) for number, make in enumerate(makers, 1)]))[1]
        if errors:
            raise errors[0]
        self.candidates.sort(key=attrgetter("number"))
        if not self.candidates:
            errors = [self.failed[number] for number in sorted(self.failed)]
            used = sum(map(usage_of_failure, errors[1:]), self.usage.get("generation", NOTHING_USED))
            if isinstance(errors[0], ModelError):
                errors[0].retryable = False  # each draft has been retried by itself
            raise add_usage(errors[0], used)

    async def _make(self, number: int, make: Callable[[], Awaitable[Draft]]) -> None:
        """Make and check a draft."""
        calls: list[TokenUsage] = []
        version = step_context.get().text
        text = version and version.candidate()
        try:
            with step_scope(text=text, calls=calls):
                draft = await self._step(f"draft {number}", Draft, make, "generation")
        except ChangedRunError:
            raise
        except Exception as error:  # noqa: BLE001 (the others go on; if all fail, the first error is raised)
            if isinstance(error, RedraftError) and error.usage is None:
                error.usage = sum(calls, NOTHING_USED)
            self.failed[number] = error
            return
        if version and text:
            text.tell(draft)
            version.has_text = True
        if (same := self._numbers.setdefault(key_of(draft.output), number)) != number:
            self.same[number] = same
            self.repeats.append(Contender(number, draft))
            return
        candidate = Contender(number, draft)
        self.candidates.append(candidate)
        await self._judge(candidate, free_only=True)

    async def _judge(self, candidate: Contender, *, free_only: bool) -> None:
        """Judge a candidate by the checks, or by all criteria; on failure, the previous judgement stays."""
        draft = candidate.draft
        run, output = replace(self.run, free_only=free_only, rivals=self.judgements), draft.output
        if draft.conversation is not None:
            run = replace(run, conversation=draft.conversation)
        name = f"{'check' if free_only else 'judge'} {candidate.number}"
        evaluate = partial(self.evaluate, copy_of(output), run)
        try:
            evaluation = await self._step(name, ReflectionEvaluation, evaluate, "evaluation")
        except ChangedRunError:
            raise
        except Exception as error:  # noqa: BLE001 (an output that can't be judged is unknown; the loop asks again)
            self._count("evaluation", usage_of_failure(error))
            if free_only:
                issue = Issue(f"{NOT_JUDGED}{named_error(error)}")
                candidate.evaluation = ReflectionEvaluation(None, issues=(issue,), confidence=0.0)
            return
        self._count(
            "evaluation", candidate.evaluation.usage
        )  # of the checks alone, whose judgement is replaced
        candidate.evaluation = evaluation
        self.judgements.append(evaluation)

    async def decide(self) -> Draft:
        """Choose the draft of the best candidate."""
        leaders = [
            candidate
            for candidate in self.candidates
            if not any(other.evaluation.outranks(candidate.evaluation) for other in self.candidates)
        ]
        winner, scores = leaders[0], _scores(self.candidates)
        equal = f"{listed([str(leader.number) for leader in leaders])}, which no check distinguishes"
        if len(leaders) == 1:
            by, why = "checks", "the only one" if len(self.candidates) == 1 else "the best by the checks"
        elif all(leader.evaluation.is_conclusive for leader in leaders):
            by, why = "order", f"the first of {equal}"
        else:
            waiting = [leader for leader in leaders if not leader.evaluation.is_conclusive]
            errors = (await settle([self._judge(leader, free_only=False) for leader in waiting]))[1]
            if errors:
                raise errors[0]
            winner, scores = _highest(leaders), _scores(leaders)
            by, why = "judge", f"the judge's choice of {equal}"
            is_ahead = any(winner.evaluation.outranks(leader.evaluation) for leader in leaders)
            if not (winner.evaluation.is_conclusive and is_ahead):
                by, why = "order", f"the first of {equal}; the judge could not distinguish them either"
        return self._chosen(winner, by, why, scores)

    def _chosen(self, winner: Contender, by: str, why: str, scores: dict[str, float | None]) -> Draft:
        """The winner's draft with the choice."""
        # The loop judges the winner again unless all of it has been judged.
        judged = winner.evaluation if winner.evaluation.is_conclusive else None
        if judged is None:
            self._count("evaluation", winner.evaluation.usage)
        rejected = sorted(
            (other for other in self._all() if other.number != winner.number), key=attrgetter("number")
        )
        self._count_rejected(rejected)
        detail = [f"Candidate {winner.number} of {self.count} is {why}{_rendered(scores)}."]
        detail += [f"{number} is the same as {same}." for number, same in sorted(self.same.items())]
        failed = {str(number): named_error(error) for number, error in sorted(self.failed.items())}
        numbers = {"candidates": self.count, "chosen": winner.number, "by": by, "scores": scores}
        same = {str(number): same for number, same in sorted(self.same.items())}
        numbers |= {name: value for name, value in (("same", same), ("failed", failed)) if value}
        notes = tuple(f"Candidate {number} failed: {error}." for number, error in failed.items())
        choice = Choice(" ".join(detail), numbers, tuple(map(self._version, rejected)), self.usage)
        return replace(winner.draft, notes=(*winner.draft.notes, *notes), evaluation=judged, choice=choice)

    def _all(self) -> list[Contender]:
        """The candidates and their repeats, each with its judgement."""
        judged = {candidate.number: candidate.evaluation for candidate in self.candidates}
        return self.candidates + [
            replace(repeat, evaluation=replace(judged[self.same[repeat.number]], usage=NOTHING_USED))
            for repeat in self.repeats
        ]

    def _count_rejected(self, rejected: Sequence[Contender]) -> None:
        """Add the usage of the drafts that were not chosen, finished or failed."""
        for candidate in rejected:
            self._count("generation", candidate.draft.usage)
            self._count("evaluation", candidate.evaluation.usage)
        for error in self.failed.values():
            self._count("generation", usage_of_failure(error))

    def _version(self, candidate: Contender) -> ReflectionVersion:
        """A rejected candidate as a version."""
        draft = candidate.draft
        return ReflectionVersion(
            iteration=1,
            output=copy_of(draft.output),
            evaluation=candidate.evaluation,
            improvements_applied=draft.improvements,
            token_usage=draft.usage + candidate.evaluation.usage,
            strategy=draft.strategy,
            conversation=draft.conversation,
            memo=draft.memo,
            candidate=candidate.number,
            model=draft.model,
        )

    async def _step(
        self, name: str, returns: type[R], effect: Callable[[], Awaitable[R]], role: ModelRole
    ) -> R:
        """Carry out a part of the current step as a step of its own: recorded, retried, and in time."""
        steps = self.steps

        def on_failure(name: str, error: Exception, wait: float | None) -> float | None:
            wait = steps.wait_before(name, error, wait)
            if wait is not None:
                self._count(role, usage_of_failure(error))
            return wait

        return await steps.inside(name, returns, lambda: in_time(effect(), name), on_failure=on_failure)

    def _count(self, role: ModelRole, usage: TokenUsage) -> None:
        """Add usage that is not in the chosen draft."""
        if usage is not NOTHING_USED:
            self.usage[role] = self.usage.get(role, NOTHING_USED) + usage


def _highest(candidates: Sequence[Contender]) -> Contender:
    """The candidate that outranks the others; the first of equals."""
    best = candidates[0]
    for candidate in candidates:
        if candidate.evaluation.outranks(best.evaluation):
            best = candidate
    return best


def _scores(candidates: Sequence[Contender]) -> dict[str, float | None]:
    return {str(candidate.number): candidate.evaluation.overall_score for candidate in candidates}


def _rendered(scores: dict[str, float | None]) -> str:
    """Render scores by candidate, such as ` (1: 0.50, 2: 1.00)`; empty if no score is known."""
    if all(score is None for score in scores.values()):
        return ""
    return f" ({', '.join(f'{number}: {render_score(score).strip()}' for number, score in scores.items())})"
