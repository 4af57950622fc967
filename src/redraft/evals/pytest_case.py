"""Evaluation cases as pytest tests: one test per case, which fails if the answer does not pass."""

from __future__ import annotations

import inspect
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft._hints import keyword_hints
from redraft._sync import run_sync
from redraft._texts import json_data
from redraft.errors import ConfigError
from redraft.evals.cases import read_cases
from redraft.evals.evaluation import graders_of
from redraft.types import ReflectionResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.evals.cases import EvalCase
    from redraft.protocols import ModelChoice


@keyword_hints()
def eval_case(
    cases: str | Path | Sequence[EvalCase], *, model: ModelChoice | None = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Decorate a function, sync or async, that answers its argument `case`: each case becomes a test.

    `cases` are `EvalCase`s, or a file that `read_cases` reads, relative to the test file. The function
    returns an output or the result of a run, and may take fixtures. The test fails, with the issues, unless
    the answer passes the criteria of the case. `model` judges criteria that need a model. Raises
    `ConfigError` during collection if the function has no parameter `case`, or a case can't be graded.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        pytest: Any = import_module("pytest")
        if "case" not in inspect.signature(function).parameters:
            raise ConfigError(f"{function.__name__} needs a parameter `case`, which is the case to answer.")
        loaded_cases = cases
        if isinstance(loaded_cases, str | Path):
            loaded_cases = read_cases(Path(inspect.getfile(function)).parent / loaded_cases)
        graders = graders_of(loaded_cases, model=model)

        @wraps(function)
        def test(*args: Any, case: EvalCase, **fixtures: Any) -> None:
            answer = function(*args, case=case, **fixtures)
            if inspect.isawaitable(answer):
                answer = run_sync(_awaited(answer))
            output: Any = cast("Any", answer).best_output if isinstance(answer, ReflectionResult) else answer
            evaluation = run_sync(graders[case.id](case, json_data(output)))
            if not evaluation.satisfactory:
                issues = "".join(f"\n- {issue}" for issue in evaluation.failing)
                pytest.fail(f"The answer to the case {case.id!r} does not pass:{issues}", pytrace=False)

        return pytest.mark.parametrize("case", loaded_cases, ids=[case.id for case in loaded_cases])(test)

    return decorate


async def _awaited(answer: Any) -> Any:
    return await answer
