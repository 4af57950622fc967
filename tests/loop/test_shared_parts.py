import gc
import weakref
from types import FunctionType

import pytest

from redraft import ReflectionPattern, reflect_sync
from redraft.loop.shared_parts import REMEMBERED, shared_parts


async def generate(_prompt):
    return "draft"


async def evaluate(output):
    return output == "better", "It is a draft."


def revise(_output, _evaluation):
    return "better"


async def half(_output):
    return 0.5


async def by_the_run(_output, run):
    return 1.0 if run.run_id else 0.0


def with_a_default(_output, least=0.5):
    return least


def with_an_attribute(_output):
    return 1.0


with_an_attribute.note = "something about it"


class Judge:
    async def __call__(self, output):
        return 1.0


class Held:
    def closure(self):
        return lambda output: self is not None

    def default(self):
        return lambda output, held=self: held is not None


def anew(fn):
    """Return the same function again, as a module that is loaded again has it."""
    return FunctionType(fn.__code__, {})


def test_the_same_functions_make_the_same_verbs():
    made = shared_parts((generate, evaluate, revise), 0.8)
    assert made is not None
    assert shared_parts((generate, evaluate, revise), 0.8) is made
    assert shared_parts((generate, evaluate, revise), 0.9) is not made
    for _ in range(2):
        assert reflect_sync("Write.", generate=generate, evaluate=evaluate, revise=revise).success


@pytest.mark.parametrize(
    "judge", [None, Judge(), with_a_default, with_an_attribute, Held().closure(), Held().closure]
)
def test_what_is_not_shared(judge):
    assert shared_parts((generate, judge, revise), 0.8) is None


@pytest.mark.parametrize("judge", [Held.closure, Held.default])
def test_what_a_function_holds_is_let_go(judge):
    held = Held()
    alive = weakref.ref(held)
    assert reflect_sync("Write.", generate=generate, evaluate=judge(held), revise=revise).success
    del held
    gc.collect()
    assert alive() is None


def test_no_more_than_some_are_remembered():
    first = anew(half)
    alive = weakref.ref(first)
    assert shared_parts((generate, first, revise), 0.8) is not None
    del first
    for _ in range(REMEMBERED):
        shared_parts((generate, anew(half), revise), 0.8)
    gc.collect()
    assert alive() is None


def test_a_function_whose_code_is_exchanged_is_looked_at_anew():
    judge = anew(half)

    def score():
        pattern = ReflectionPattern(max_iterations=0)
        result = reflect_sync("Write.", generate=generate, evaluate=judge, revise=revise, pattern=pattern)
        return result.final_evaluation.overall_score

    assert score() == 0.5
    judge.__code__ = by_the_run.__code__
    assert score() == 1.0
