"""Properties of a run, whatever the scores, gates, unknown values and errors."""

import asyncio
from contextlib import suppress

from redraft import ConvergenceReason, Issue, MemoryStore, ReflectionEvaluation, ReflectionPattern, reflect
from redraft._codec import from_record, to_record
from redraft.loop import Journalled, Retry
from support.properties import given, settings, some

SCORES = some.sampled_from([None, 0.0, 0.3, 0.5, 0.55, 0.79, 0.8, 0.95, 1.0])
ODD = some.sampled_from([True, False, 0.4, (0.6, "Too dull."), {"score": 0.7, "issues": ["Dull."]}])
JUDGEMENTS = some.builds(
    ReflectionEvaluation,
    SCORES,
    some.dictionaries(some.sampled_from("abc"), SCORES, max_size=3),
    some.booleans(),
    some.lists(some.sampled_from(["Too dull.", "Too long.", "No tea."]), max_size=2),
    spread=some.sampled_from([0.0, 0.0, 0.1]),
    gates_passed=some.sampled_from([True, False, None]),
    unmet=some.sampled_from([None, (), ("a",)]),
)
ERRORS = some.sampled_from([RuntimeError("down"), ValueError("odd"), TimeoutError()])
SCRIPTS = some.lists(JUDGEMENTS | JUDGEMENTS | ODD | ERRORS, min_size=5, max_size=5)
PATTERNS = some.builds(
    ReflectionPattern,
    max_iterations=some.integers(0, 4),
    retry=some.just(Retry(attempts=1)),
    detect_oscillation=some.booleans(),
    plateau_iterations=some.integers(1, 3),
)


class Script:
    """Writes `draft 1`, `draft 2` and so on, each judged or failing as the script says."""

    def __init__(self, script):
        self.script = script
        self.drafts = 0

    def generate(self, prompt, attempt):
        self.drafts += 1
        return f"{'draft ' * 9}{attempt.number}"

    def evaluate(self, output):
        said = self.script[int(output[-1]) - 1]
        if isinstance(said, Exception):
            raise said
        return said

    async def run(self, pattern, step=None):
        return await reflect(
            "Write.", generate=self.generate, evaluate=self.evaluate, pattern=pattern, step=step
        )


@settings(max_examples=40)
@given(SCRIPTS, PATTERNS)
def test_the_best_version_is_outranked_by_none_and_the_run_says_why_it_stopped(script, pattern):
    writer = Script(script)
    result = asyncio.run(writer.run(pattern))
    history, best = result.history, result.history.best_version
    for version in history.versions:
        assert not version.evaluation.outranks(best.evaluation), version.iteration
    assert best.evaluation.outranks(history.versions[0].evaluation) or best is history.versions[0]
    assert result.best_output == best.output
    assert result.success is best.evaluation.satisfactory
    assert result.convergence_reason in ConvergenceReason
    assert result.stop.reason is result.convergence_reason
    assert result.stop.detail
    assert [version.iteration for version in history.versions] == [*range(1, len(history.versions) + 1)]
    assert history.total_iterations == result.iterations_used == len(history.versions) - 1
    assert len(history.versions) == writer.drafts <= pattern.max_iterations + 1
    for version in history.versions:
        check_normalised(version.evaluation)


def check_normalised(evaluation):
    scores = [evaluation.overall_score, *evaluation.criteria_scores.values()]
    assert all(score is None or (type(score) is float and 0 <= score <= 1) for score in scores)
    assert all(isinstance(issue, Issue) for issue in evaluation.issues)
    assert 0 <= evaluation.confidence <= 1
    assert evaluation.overall_score is not None or not evaluation.gates_passed
    assert from_record(ReflectionEvaluation, to_record(evaluation)) == evaluation


@settings(max_examples=200)
@given(some.lists(JUDGEMENTS, min_size=3, max_size=3))
def test_outranking_is_a_strict_order(evaluations):
    one, two, three = evaluations
    assert not one.outranks(one)
    assert not (one.outranks(two) and two.outranks(one))
    if one.outranks(two) and two.outranks(three):
        assert one.outranks(three)


class Killed(BaseException):
    """The process was killed."""


class DyingStore(MemoryStore):
    """Writes that many records, then none any more: each later write ends the process."""

    def __init__(self, left):
        super().__init__()
        self.left = left

    def _written(self, count):
        self.left -= count
        if self.left < 0:
            raise Killed

    async def put(self, record, /):
        self._written(1)
        return await super().put(record)

    async def put_all(self, records, /):
        self._written(len(records))
        return await super().put_all(records)

    async def put_all_if(self, kind, key, where, records, /):
        self._written(len(records))
        return await super().put_all_if(kind, key, where, records)

    async def put_if_absent(self, record, /):
        self._written(1)
        return await super().put_if_absent(record)

    async def replace(self, record, /):
        self._written(1)
        return await super().replace(record)


def visible(result):
    return (
        [
            (version.output, version.evaluation, version.strategy, version.base)
            for version in result.history.versions
        ],
        result.history.best_version.iteration,
        result.convergence_reason,
        result.stop.detail,
        result.success,
        result.token_usage,
    )


@settings(max_examples=20)
@given(
    some.lists(JUDGEMENTS | ODD, min_size=5, max_size=5),
    PATTERNS,
    some.lists(some.integers(0, 9), max_size=3),
)
def test_a_run_killed_between_any_two_writes_ends_as_if_it_had_not_been(script, pattern, kills):
    async def main():
        unkilled = visible(await Script(script).run(pattern, Journalled(MemoryStore(), "mine")))
        store = DyingStore(0)
        for writes in kills:
            store.left = writes
            with suppress(Killed):
                await Script(script).run(pattern, Journalled(store, "mine"))
        store.left = 1000
        assert visible(await Script(script).run(pattern, Journalled(store, "mine"))) == unkilled

    asyncio.run(main())
