"""Tests that a model writes for a task, once in a run, without seeing any answer to it."""

from __future__ import annotations

import ast
import builtins
import operator
import re
import sys
from asyncio import Lock, gather
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from redraft._steps import in_time
from redraft._texts import shortened
from redraft._validation import check_count
from redraft.errors import UnfinishedError
from redraft.evaluate.ask import add_usage, ask
from redraft.evaluate.command import command
from redraft.evaluate.criteria import SKIPPED, check_keys, failed, names_criterion, unknown
from redraft.evaluate.judge import task_text
from redraft.evaluate.python_checks import VALUE_LIMIT, agree, can_fail, read_calls
from redraft.evaluate.python_harness import plain
from redraft.execution import CommandRunner
from redraft.protocols import ChatModel, Message
from redraft.text.replies import python_block
from redraft.types import NOTHING_USED, Issue, QualityCriterion, ReflectionEvaluation, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.protocols import ChatReply, Evaluator, RunContext
    from redraft.types import Output

COUNT, MOST = 5, 20
TIMEOUT = 5.0
MAX_RUNS = 64
"""How many runs' tests to cache for versions that are judged at the same time, such as candidates."""


@names_criterion
def generated_tests(criterion: QualityCriterion, model: ChatModel, run_command: CommandRunner) -> Evaluator:
    """Judge Python code by tests that `model` writes for the task; the score is the share that passed.

    The tests are written when a run first judges a version, from the task alone, beginning with the examples
    that the task gives. They are stored in the `memo` of that evaluation, for later versions and for a
    resumed run. Each test runs in a separate jail. A test that uses a name which the task does not mention is
    dropped. Without a usable test, or outside of a run, where there is no task, the criterion can't be
    judged.

    Configuration: `count`, the number of tests (default 5); `examples`, calls with their values as in the
    `calls` of `command`; `timeout`, seconds for each test (default 5). Code that does not return the values
    of `examples` scores 0, and a test that contradicts them is dropped. Raises `ConfigError` for other
    options; when judging, `ModelError` if the provider fails, and `SandboxForbiddenError` on a machine
    without a jail.
    """
    check_keys(criterion, "count", "examples", "timeout")
    config = criterion.evaluator_config
    count, timeout = config.get("count", COUNT), config.get("timeout", TIMEOUT)
    check_count("count", count, 1, MOST)
    limits = {"timeout": timeout}
    by_calls(criterion, {}, run_command, limits)  # raises for a timeout that can't work
    calls = read_calls(config["examples"], "examples") if "examples" in config else []
    examples = {ast.unparse(ast.parse(call.source, mode="eval")): call.expected for call in calls}
    return _TestsJudge(criterion, model, run_command, count, limits, examples)


@dataclass(slots=True)
class _TestsJudge:
    """The evaluator that `generated_tests` returns."""

    criterion: QualityCriterion
    model: ChatModel
    run_command: CommandRunner
    count: int
    limits: Mapping[str, Any]
    examples: Mapping[str, Any]
    by_run: dict[str, WrittenTests] = field(default_factory=dict[str, "WrittenTests"])
    """The tests of runs that judge several versions at the same time, by run ID."""
    locks: WeakValueDictionary[str, Lock] = field(default_factory=WeakValueDictionary[str, Lock])

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        written, usage = _written_before(self.criterion.name, run), NOTHING_USED
        if written is None:
            if run.free_only:
                return SKIPPED
            if not run.run_id:
                return unknown(self.criterion, "outside of a run there is no task to write tests for")
            written, usage = await self.write(task_text(run.task), run.run_id)
        try:
            verdict = await in_time(self.judge(output, written, run))
        except UnfinishedError as error:
            raise add_usage(error, usage) from None
        return replace(verdict, usage=usage, memo=asdict(written))

    async def write(self, task: str, run_id: str) -> tuple[WrittenTests, TokenUsage]:
        """Let the model write the tests of a run, once; return them and the usage."""
        order = f"The task:\n{task}\n\n{ORDER.format(count=self.count)}"
        if self.criterion.description:
            order += f"\nTest this above all: {self.criterion.description}"
        messages = (Message("system", ROLE), Message("user", order))

        def read(reply: ChatReply) -> tuple[WrittenTests, str]:
            written = read_tests(reply.text, task, self.examples, self.count)
            return written, "" if written.tests else "It has no assertion that calls what the task asks for."

        async with self.locks.setdefault(run_id, Lock()):
            if run_id in self.by_run:
                return self.by_run[run_id], NOTHING_USED
            answer = await ask(self.model, messages, None, read)
            self.by_run[run_id] = answer.value
            if len(self.by_run) > MAX_RUNS:
                del self.by_run[next(iter(self.by_run))]
            return answer.value, answer.usage

    async def judge(self, output: Output, written: WrittenTests, run: RunContext) -> ReflectionEvaluation:
        if not written.tests:
            return unknown(self.criterion, "the model wrote no test that can be used")
        # If the code does not run or fails an example, generated tests, which may be wrong, add nothing.
        certain = by_calls(self.criterion, self.examples, self.run_command, self.limits)
        right = await certain(output, run)
        if right.overall_score != 1:
            return right if right.overall_score is None else failed(*right.issues)
        configs = [{**self.limits, "tests": test, "setup": written.setup} for test in written.tests]
        judges = [in_jail(self.criterion, config, self.run_command) for config in configs]
        return _merged(self.criterion, written, await gather(*(judge(output, run) for judge in judges)))


def by_calls(
    criterion: QualityCriterion,
    examples: Mapping[str, Any],
    run_command: CommandRunner,
    limits: Mapping[str, Any],
) -> Evaluator:
    """Judge by calls and their expected values; without examples, by whether the code runs at all."""
    calls = [list(pair) for pair in examples.items()] or [["None", None]]
    return in_jail(criterion, {**limits, "calls": calls}, run_command)


def in_jail(criterion: QualityCriterion, config: Mapping[str, Any], run_command: CommandRunner) -> Evaluator:
    """Judge a criterion as the evaluator `command` would with this configuration; raises `ConfigError`."""
    by_command = QualityCriterion(
        criterion.name, threshold=criterion.threshold, evaluator="command", evaluator_config=config
    )
    return command(by_command, run_command)


ROLE = "You write tests for Python code that somebody else will write. You see the task, not the code."
ORDER = (
    "Write {count} assertions that hold for every right answer to this task: first for the examples that "
    "the task gives, if any, with the values that it gives, then for ordinary inputs, and for the edge cases "
    "that the task decides. Work out each expected value from what the task says; where it leaves something "
    "open, test something else. Reply with nothing but one Python code block of {count} assert statements, "
    "each of which calls what the task asks for by its name."
)


def _written_before(name: str, run: RunContext) -> WrittenTests | None:
    """The tests that judged an earlier version of the run, or another candidate."""
    for evaluation in (*(version.evaluation for version in run.versions), *run.rivals):
        memo: Any = evaluation.memo
        if isinstance(memo, dict) and name in memo:
            stored = cast("dict[str, Any]", memo[name])
            return WrittenTests(stored["setup"], tuple(stored["tests"]), tuple(stored["dropped"]))
    return None


def _merged(
    criterion: QualityCriterion, written: WrittenTests, verdicts: Sequence[ReflectionEvaluation]
) -> ReflectionEvaluation:
    """The share of the tests that passed, and an issue for each failed test."""
    judged = [
        (number, test, verdict)
        for number, (test, verdict) in enumerate(zip(written.tests, verdicts, strict=True), 1)
        if verdict.overall_score is not None
    ]
    if not judged:
        return verdicts[0]
    issues = tuple(  # numbered, since the messages of two failed tests are nearly the same
        Issue(
            f"{shortened(test, VALUE_LIMIT)} failed: {issue} ({DOUBT})",
            criterion.name,
            line=issue.line,
            number=number,
        )
        for number, test, verdict in judged
        for issue in verdict.issues
    )
    score = sum(verdict.overall_score == 1 for _, _, verdict in judged) / len(judged)
    return ReflectionEvaluation(score, satisfactory=score >= criterion.threshold, issues=issues)


# In each issue rather than in a suggestion, which would say what to do.
DOUBT = "a model wrote this test; the task comes first"


# Reading the tests that the model wrote.

NOT_PYTHON = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)
"""Errors of parsing a text, or of evaluating it as a literal, if it is not Python."""


@dataclass(frozen=True, slots=True)
class WrittenTests:
    """Tests that a model wrote, as Python statements."""

    setup: str = ""
    """Imports and helpers that the tests need."""
    tests: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Tests that contradict an example of the configuration."""


def read_tests(reply: str, task: str, examples: Mapping[str, Any], count: int) -> WrittenTests:
    """The usable tests in a reply, at most `count`; `examples` maps calls to their return values.

    A test is a statement with an assertion, or a function `test_...()`. Each name in it must be a builtin,
    come from the reply's own setup, or be mentioned in the task: an answer can't be expected to provide other
    names.
    """
    mentioned = set(re.findall(r"\w+", task))
    setup: list[ast.stmt] = []
    tests: dict[str, None] = {}
    dropped: list[str] = []
    for statement in _statements(python_block(reply)[0]):
        assertions = [node for node in ast.walk(statement) if isinstance(node, ast.Assert)]
        if not assertions or not can_fail(statement):
            setup += [statement] if _prepares(statement, mentioned) else []
            continue
        source, uses = ast.unparse(statement), _free_names(statement) - names_bound(*setup)
        if not uses or not uses <= mentioned:
            continue
        if any(_contradicts(assertion, examples) for assertion in assertions):
            dropped.append(source)
        else:
            tests[source] = None
    return WrittenTests("\n".join(map(ast.unparse, setup)), tuple(tests)[:count], tuple(dropped))


def _statements(source: str) -> list[ast.stmt]:
    """Parse Python source; if it does not parse, the lines that do."""
    try:
        return ast.parse(source).body
    except NOT_PYTHON:
        lines = source.splitlines()
    return [statement for line in lines if line != source for statement in _statements(line.strip())]


def _prepares(statement: ast.stmt, mentioned: set[str]) -> bool:
    """Whether a statement may be setup for tests, rather than an answer to the task."""
    if isinstance(statement, ast.Import):
        return all(alias.name.partition(".")[0] in sys.stdlib_module_names for alias in statement.names)
    if isinstance(statement, ast.ImportFrom):
        return (statement.module or "").partition(".")[0] in sys.stdlib_module_names
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return statement.name not in mentioned
    return isinstance(statement, ast.Assign | ast.AnnAssign)


def _free_names(statement: ast.stmt) -> set[str]:
    """The names that a statement takes from outside, without builtins."""
    used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return used - names_bound(statement) - set(dir(builtins))


def names_bound(*statements: ast.AST) -> set[str]:
    """The names that Python code defines, assigns or imports anywhere."""
    names: set[str] = set()
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


# Whether a test contradicts an example of the configuration.


def _contradicts(assertion: ast.Assert, examples: Mapping[str, Any]) -> bool:
    """Whether an assertion contradicts the examples; False if they don't decide it."""
    test = ast.parse(ast.unparse(assertion.test), mode="eval").body
    try:
        return not _holds(_ExampleValues(examples).visit(test))
    except NOT_PYTHON:
        return False


class _ExampleValues(ast.NodeTransformer):
    """Replace the calls of examples by their values."""

    def __init__(self, examples: Mapping[str, Any]) -> None:
        self.examples = examples

    def visit_Call(self, node: ast.Call) -> ast.AST:
        source = ast.unparse(node)
        if source in self.examples:
            return ast.parse(repr(self.examples[source]), mode="eval").body
        return self.generic_visit(node)


def _holds(test: ast.expr) -> bool:
    """Whether a test of literals holds; raises `ValueError` for other tests."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return not _holds(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _COMPARED:
        left, right = ast.literal_eval(test.left), ast.literal_eval(test.comparators[0])
        return _COMPARED[type(test.ops[0])](left, right)
    return bool(ast.literal_eval(test))


def _same(left: Any, right: Any) -> bool:
    return agree(plain(left), right)


_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: _same,
    ast.Is: _same,
    ast.NotEq: lambda left, right: not _same(left, right),
    ast.IsNot: lambda left, right: not _same(left, right),
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
