"""Python checks: what is to be evaluated beside a Python draft, and what should come of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from redraft.core.nearest import nearest
from redraft.evaluate.agree import agree
from redraft.evaluate.config import wrong
from redraft.evaluate.steps import plain

if TYPE_CHECKING:
    from redraft.core.criterion import QualityCriterion

_NOTHING = object()
_STATEMENTS_THAT_CHECK = (
    ast.Assert, ast.Expr, ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match,
)  # fmt: skip
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class PythonCheck:
    """Hold one step in the jail: an expression (`eval`) or a statement (`exec`).

    `expected` is compared outside with what an expression gave. A step that does not count only prepares
    the ground for others.
    """

    how: Literal["eval", "exec"]
    source: str
    expected: Any = _NOTHING
    counts: bool = True

    def complaint(self, outcome: Mapping[str, Any]) -> str | None:
        """Say what is wrong with what came of this step, or None."""
        shown = shorten(self.source)
        if raised := outcome.get("raised"):
            message = shorten(f": {outcome['message']}") if outcome.get("message") else ""
            if self.how == "exec" and raised == "AssertionError":
                return f"{shown} failed{message}"
            wanted = "" if self.expected is _NOTHING else f"; expected {shorten(repr(self.expected))}"
            return f"{shown} raised {shorten(str(raised))}{message}{wanted}"
        if self.expected is _NOTHING or agree(outcome.get("value"), self.expected):
            return None
        return (
            f"{shown} returned {shorten(str(outcome.get('shown')))}, expected {shorten(repr(self.expected))}"
        )


def checks_of_calls(criterion: QualityCriterion, calls: object) -> list[PythonCheck]:
    """Read `calls`: `{"call": ..., "expect": ...}` or pairs of these; raises `ConfigError`."""
    if not isinstance(calls, list | tuple) or not calls:
        raise wrong(criterion, f"calls must be a list with at least one call, got {calls!r}.")
    return [_check_of_call(criterion, item) for item in cast("list[Any]", calls)]


def _check_of_call(criterion: QualityCriterion, item: Any) -> PythonCheck:
    if isinstance(item, Mapping):
        given = cast("Mapping[str, Any]", item)
        for key in given.keys() - {"call", "expect"}:
            raise wrong(criterion, f"a call has no {key!r}; {nearest(str(key), ('call', 'expect'))}")
        call, expected = given.get("call"), given.get("expect", _NOTHING)
    elif isinstance(item, list | tuple) and len(cast("list[Any]", item)) == 2:  # noqa: PLR2004 (a pair)
        call, expected = cast("list[Any]", item)
    else:
        call, expected = None, _NOTHING
    if not isinstance(call, str) or expected is _NOTHING:
        raise wrong(
            criterion, f'a call must be {{"call": "f(3)", "expect": 6}} or such a pair, got {item!r}.'
        )
    parse(criterion, call, "eval")
    if "__other__" in str(plain(expected)):
        raise wrong(criterion, f"the value expected of {call!r} can't be compared as JSON: {expected!r}.")
    return PythonCheck("eval", call, expected)


def checks_of_tests(criterion: QualityCriterion, tests: object) -> list[PythonCheck]:
    """Read `tests`: top-level statements, each a check of its own; raises `ConfigError`.

    `assert f(3) == 6` becomes a call, so that its 6 stays outside. Other statements that can fail are
    executed inside; imports, assignments and definitions prepare, and a function `test_...()` is called.
    """
    if not isinstance(tests, str):
        raise wrong(criterion, f"tests must be Python source, got {tests!r}.")
    checks: list[PythonCheck] = []
    for statement in parse(criterion, tests, "exec").body:
        checks += _checks_of_statement(cast("ast.stmt", statement))
    if not any(check.counts for check in checks):
        raise wrong(criterion, "tests holds nothing that could fail: write at least one assert.")
    return checks


def _checks_of_statement(statement: ast.stmt) -> list[PythonCheck]:
    if isinstance(statement, ast.Assert) and (call := _call_of(statement.test)):
        return [call]
    source = ast.unparse(statement)
    check = PythonCheck("exec", source, counts=isinstance(statement, _STATEMENTS_THAT_CHECK))
    if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
        takes = statement.args
        if not (takes.args or takes.posonlyargs or takes.kwonlyargs):
            return [check, PythonCheck("exec", f"{statement.name}()")]
    return [check]


def _call_of(test: ast.expr) -> PythonCheck | None:
    """Make a call of `<expression> == <literal>`, either way round."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    for asked, wanted in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        try:
            return PythonCheck("eval", ast.unparse(asked), ast.literal_eval(wanted))
        except (ValueError, TypeError):  # not a literal
            continue
    return None


def parse(criterion: QualityCriterion, source: str, mode: Literal["eval", "exec"]) -> Any:
    """Parse Python source out of a configuration; raises `ConfigError` where it is none."""
    try:
        return ast.parse(source, mode=mode)
    except (SyntaxError, ValueError) as error:
        raise wrong(criterion, f"{source!r} is not Python: {error}.") from error


def shorten(text: str) -> str:
    """Put a text on one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
