"""The benchmark on `Evaluation` finds what the one with arms of its own finds."""

from _arms import Replies
from _tasks import BenchTask
from evaluation import run, tables
from offline_model import run as run_arms
from offline_model import solved_within

from redraft import QualityCriterion
from redraft._sync import run_sync
from redraft.models.testing import ScriptedModel

WORD = QualityCriterion("word", evaluator="regex", evaluator_config={"pattern": "[aeiou]{2}"})


async def right(output):
    return output.endswith("1")


def samples(seed):
    """A model whose samples differ by their seeds: some pass what is visible, and some of these are right."""

    async def answer(request):
        text = f"aa {seed % 3}" if request.temperature and seed % 2 else "bb"
        return await ScriptedModel([text])(request)

    return answer


def test_it_solves_what_the_arms_of_the_benchmark_solve():
    tasks = [
        BenchTask(name, f"Say {name}.", (WORD,), right) for name in ("one", "two", "three", "four", "five")
    ]
    seeds = [1, 2, 3]
    outcomes = run_sync(run_arms(tasks, ["loop", "greedy", "best-of-3"], Replies("m", samples), seeds=seeds))
    report = run_sync(run(tasks, Replies("m", samples), seeds))
    for arm, side in (("loop", "loop"), ("greedy", "first"), ("best-of-3", "best-of-3")):
        solved = [solved_within(outcome, 3) for outcome in outcomes if outcome.arm == arm]
        (figures,) = (figure for figure in report.figures if figure.side == side)
        assert (figures.passed_tries, figures.tries) == (sum(solved), len(solved))
        calls = sum(each.requests for outcome in outcomes if outcome.arm == arm for each in outcome.tries)
        assert figures.calls * figures.tries == calls
    assert "| best-of-3 | 5 x 3 |" in tables(report)
