"""Checks that run in the jail: a program such as a linter, or a Python draft and calls to it."""

from __future__ import annotations

import ast
import math
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from redraft._texts import as_text, shortened
from redraft._validation import nearest
from redraft.errors import SandboxError, SandboxForbiddenError
from redraft.evaluate import python_steps as steps
from redraft.evaluate.checks import check_keys, invalid, is_raw
from redraft.evaluate.criteria import PASSED, failed, unknown
from redraft.evaluate.python_steps import plain
from redraft.execution import Command, CommandOutcome, CommandRunner, find_program, problem_of_files
from redraft.text.replies import python_block, unfenced
from redraft.types import Issue, QualityCriterion, ReflectionEvaluation

if TYPE_CHECKING:
    from redraft.protocols import Evaluator, RunContext
    from redraft.types import Output

FORMS = ("command", "calls", "tests")
MAX_ISSUES = 20
SHOWN, MESSAGE, TAIL = 200, 500, 2000
"""The most characters of a value in an issue, of a message, and of what a program printed last."""
TIMEOUT, LONGEST = 10.0, 3600.0

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_NOT_RUN = (126, 127)  # a shell's exit codes for a program that could not be started
_LIMITS = {
    "timeout": "ran longer than its limit of {timeout:g} s (timeout)",
    "memory": "took more memory than its limit (memory)",
    "output": "wrote more than its limit (output)",
    "forbidden": "did what the jail forbids (forbidden)",
}


def command(criterion: QualityCriterion, run_command: CommandRunner) -> Evaluator:
    """Judge a draft by running something in the jail that `run_command` provides.

    The configuration has one of three forms, each with `files` (name to text, put beside the draft),
    `readable` (paths that may be read) and `timeout` (seconds, default 10):

    - `command`: a program and its arguments. The draft is in `file` (default `draft.py`), whose name replaces
      `{file}`. Exit code 0 scores 1.0, any other 0.0, with the end of the program's output as issues.
    - `calls`: expressions and their expected values, `{"call": "f(3)", "expect": 6}` or pairs. The draft,
      which is Python, is executed, then `setup`, then each expression; the score is the share of expected
      values. These never enter the jail, so a draft can neither look them up nor claim them. Prefer this.
    - `tests`: Python statements that run after the draft and `setup`, each a check of its own; the score is
      the share that passed. `assert f(3) == 6` is treated as a call. Any other statement runs in the draft's
      own process, where a draft that wants to cheat could read it and make it pass. A failed assertion in it,
      also inside a function, is reported with the values on both sides.

    Unless `raw` is True, a draft that is one fenced block is taken without its Markdown fence, and only the
    code of a Python draft with prose around it. A draft that does not parse, or that a limit stops, scores
    0.0. Raises `ConfigError` for a configuration that can't work, including a program that is not installed,
    and, when judging, `SandboxForbiddenError` on a machine without a jail.
    """
    config = criterion.evaluator_config
    forms = [form for form in FORMS if form in config]
    if len(forms) != 1:
        known = (*FORMS, "file", "files", "readable", "setup", "timeout", "raw")
        hints = [f"It has no {key!r}; {nearest(str(key), known)}" for key in config if key not in known]
        raise invalid(criterion, " ".join([f"command needs one of {FORMS}, got {forms}.", *hints]))
    base, raw = _base_command(criterion), is_raw(criterion)
    if forms == ["command"]:
        check_keys(criterion, "command", "file", "files", "readable", "timeout", "raw")
        judge = _ProgramJudge(criterion, run_command, base, _argv(criterion), _file(criterion), raw)
    else:
        check_keys(criterion, *forms, "setup", "files", "readable", "timeout", "raw")
        read = _checks_of_calls if forms == ["calls"] else _checks_of_tests
        checks = read(criterion, config[forms[0]])
        judge = _PythonJudge(criterion, run_command, base, tuple(checks), _setup(criterion), raw)

    async def evaluate(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        try:
            return await judge(as_text(output))
        except SandboxForbiddenError:
            raise
        except SandboxError as error:
            return unknown(criterion, str(error))

    return evaluate


@dataclass(frozen=True, slots=True)
class _ProgramJudge:
    criterion: QualityCriterion
    run_command: CommandRunner
    base: Command
    argv: tuple[str, ...]
    file: str
    raw: bool

    async def __call__(self, text: str) -> ReflectionEvaluation:
        source, first_line = self._code_in(text)
        files = {**self.base.files, self.file: source}
        name, shown = self.criterion.name, " ".join(self.argv)[:TAIL]
        if problem := problem_of_files(files):  # with the draft, since the other files were checked before
            return failed(Issue(problem, name))
        outcome = await self.run_command(replace(self.base, argv=self.argv, files=files))
        if outcome.stopped:
            return failed(Issue(f"{shown} {_limit(outcome, self.base)}", name))
        if outcome.exit_code == 0:
            return PASSED
        printed = _ESCAPES.sub("", f"{outcome.stdout}\n{outcome.stderr}").strip()
        if outcome.exit_code in _NOT_RUN:
            return unknown(self.criterion, f"{shown} could not be run: {printed[-TAIL:]}")
        if issues := self._issues_in(printed, first_line - 1):
            return failed(*issues)
        return failed(Issue(f"{shown} {_ending(outcome)}: {printed[-TAIL:]}".rstrip(": "), name))

    def _code_in(self, text: str) -> tuple[str, int]:
        if self.raw:
            return text, 1
        if self.file.endswith(".py"):
            return python_block(text)
        source, first_line = unfenced(text)
        return (f"{source}\n", first_line) if first_line > 1 else (text, 1)  # files end with a line break

    def _issues_in(self, printed: str, skipped: int) -> list[Issue]:
        """Read lines such as `file:LINE: message`; `skipped` lines of the draft precede its code."""
        form = re.compile(rf"(?:\S*/)?{re.escape(self.file)}:(\d{{1,9}})(?::\d+)?:\s*(\S.*)")
        found = [match for line in printed.splitlines() if (match := form.fullmatch(line.strip()))]
        return [
            Issue(match[2][:TAIL], self.criterion.name, line=int(match[1]) + skipped)
            for match in found[:MAX_ISSUES]
        ]


def _limit(outcome: CommandOutcome, command: Command) -> str:
    return _LIMITS[outcome.stopped or "timeout"].format(timeout=command.timeout)


def _ending(outcome: CommandOutcome) -> str:
    code = outcome.exit_code or 0
    names = {-number: number.name for number in signal.Signals}
    return f"was ended by {names.get(code, f'signal {-code}')}" if code < 0 else f"exited with {code}"


@dataclass(frozen=True, slots=True)
class _PythonJudge:
    criterion: QualityCriterion
    run_command: CommandRunner
    base: Command
    checks: tuple[PythonCheck, ...]
    setup: str
    raw: bool

    async def __call__(self, text: str) -> ReflectionEvaluation:
        source, first_line = (text, 1) if self.raw else python_block(text)
        inputs = {
            "draft": source,
            "setup": self.setup,
            "steps": [[check.how, check.source] for check in self.checks],
        }
        outcome = await self.run_command(replace(self.base, python=_harness(), inputs=inputs))
        if outcome.stopped:
            return self._failed(f"The draft {_limit(outcome, self.base)}")
        if not outcome.completed:
            return self._failed(f"The draft {_ending(outcome)} before its checks were through")
        return self._verdict(outcome.result, first_line - 1)

    def _verdict(self, result: Any, skipped: int) -> ReflectionEvaluation:
        """Judge what the jail returned; the draft ran in the same process, so take nothing for granted."""
        report = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
        if "raised" in report:
            what = "does not parse" if report["raised"] == "SyntaxError" else f"raised {report['raised']}"
            part = "The draft" if report.get("part") == "draft" else "The setup after the draft"
            message = _shown(f"{part} {what}: {report.get('message')}")
            return self._failed(message, _line(report, skipped))
        outcomes = _outcomes(report, len(self.checks))
        if outcomes is None:
            return self._failed("The draft interfered with its checks")
        issues: list[Issue] = []
        passed = counted = 0
        for check, outcome in zip(self.checks, outcomes, strict=True):
            problem = check.problem(outcome)
            counted += check.counts
            passed += check.counts and problem is None
            if problem:
                issues.append(Issue(problem, self.criterion.name, line=_line(outcome, skipped)))
        if len(issues) > MAX_ISSUES:
            more = Issue(f"{len(issues) - MAX_ISSUES} more checks failed", self.criterion.name)
            issues[MAX_ISSUES:] = [more]
        score = passed / counted
        return ReflectionEvaluation(
            score, satisfactory=score >= self.criterion.threshold, issues=tuple(issues)
        )

    def _failed(self, message: str, line: int | None = None) -> ReflectionEvaluation:
        return failed(Issue(message, self.criterion.name, line=line))


@cache
def _harness() -> str:
    """Return the source of `python_steps`, with the line that starts it."""
    return f"{Path(steps.__file__).read_text(encoding='utf-8')}\n\nresult = run_steps(inputs)\n"


def _outcomes(report: dict[str, Any], count: int) -> list[dict[str, Any]] | None:
    outcomes = report.get("outcomes")
    if not isinstance(outcomes, list) or len(cast("list[Any]", outcomes)) != count:
        return None
    if not all(isinstance(outcome, dict) for outcome in cast("list[Any]", outcomes)):
        return None
    return cast("list[dict[str, Any]]", outcomes)


def _line(report: dict[str, Any], skipped: int) -> int | None:
    line = report.get("line")
    return line + skipped if isinstance(line, int) and line > 0 else None


_NOTHING = object()
_STATEMENTS_THAT_CHECK = (
    ast.Assert, ast.Expr, ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PythonCheck:
    """One step in the jail: an expression (`eval`) or a statement (`exec`).

    The value of an expression is compared with `expected` outside the jail. A step with `counts=False` only
    prepares for others.
    """

    how: Literal["eval", "exec"]
    source: str
    expected: Any = _NOTHING
    counts: bool = True

    def problem(self, outcome: Mapping[str, Any]) -> str | None:
        """Return what is wrong with the outcome of this step; None if nothing is."""
        shown = _shown(self.source)
        if raised := outcome.get("raised"):
            message = shortened(f": {outcome['message']}", MESSAGE) if outcome.get("message") else ""
            if self.how == "exec" and raised == "AssertionError":
                return f"{shown} failed{message}"
            expected = "" if self.expected is _NOTHING else f"; expected {_shown(repr(self.expected))}"
            return f"{shown} raised {_shown(raised)}{message}{expected}"
        if self.expected is _NOTHING or _agree(outcome.get("value"), self.expected):
            return None
        return f"{shown} returned {_shown(outcome.get('shown'))}, expected {_shown(repr(self.expected))}"


def _shown(value: Any) -> str:
    return shortened(str(value), SHOWN)


def _checks_of_calls(criterion: QualityCriterion, calls: object) -> list[PythonCheck]:
    """Read `calls`, a list of `{"call": ..., "expect": ...}` or pairs; raises `ConfigError`."""
    if not isinstance(calls, list | tuple) or not calls:
        raise invalid(criterion, f"calls must be a list with at least one call, got {calls!r}.")
    return [_check_of_call(criterion, item) for item in cast("list[Any]", calls)]


def _check_of_call(criterion: QualityCriterion, item: Any) -> PythonCheck:
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, Any]", item)
        for key in fields.keys() - {"call", "expect"}:
            raise invalid(criterion, f"a call has no {key!r}; {nearest(str(key), ('call', 'expect'))}")
        call, expected = fields.get("call"), fields.get("expect", _NOTHING)
    elif isinstance(item, list | tuple) and len(cast("list[Any]", item)) == 2:  # noqa: PLR2004 (a pair)
        call, expected = cast("list[Any]", item)
    else:
        call, expected = None, _NOTHING
    if not isinstance(call, str) or expected is _NOTHING:
        raise invalid(
            criterion, f'a call must be {{"call": "f(3)", "expect": 6}} or such a pair, got {item!r}.'
        )
    _parse(criterion, call, "eval")
    if "__other__" in str(plain(expected)):
        raise invalid(criterion, f"the value expected of {call!r} can't be compared as JSON: {expected!r}.")
    return PythonCheck("eval", call, expected)


def _checks_of_tests(criterion: QualityCriterion, tests: object) -> list[PythonCheck]:
    """Read `tests`, Python source in which each top-level statement is a check; raises `ConfigError`.

    `assert f(3) == 6` becomes a call, so that its 6 stays outside the jail. Other statements that can fail
    run inside; imports, assignments and definitions only prepare, and a function `test_...()` is called.
    """
    if not isinstance(tests, str):
        raise invalid(criterion, f"tests must be Python source, got {tests!r}.")
    checks: list[PythonCheck] = []
    for statement in _parse(criterion, tests, "exec").body:
        checks += _checks_of_statement(cast("ast.stmt", statement))
    if not any(check.counts for check in checks):
        raise invalid(criterion, "tests holds nothing that could fail: write at least one assert.")
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
    """Return the call in `<expression> == <literal>`, either way round; None for anything else."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    for call, literal in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        try:
            return PythonCheck("eval", ast.unparse(call), ast.literal_eval(literal))
        except (ValueError, TypeError):  # not a literal
            continue
    return None


def _parse(criterion: QualityCriterion, source: str, mode: Literal["eval", "exec"]) -> Any:
    """Parse Python source of the configuration; raises `ConfigError` if it is not Python."""
    try:
        return ast.parse(source, mode=mode)
    except (SyntaxError, ValueError) as error:
        raise invalid(criterion, f"{source!r} is not Python: {error}.") from error


RELATIVE = 1e-9
ABSOLUTE = 1e-12
"""Tolerance near zero, so that 0.1 + 0.2 - 0.3 counts as 0."""


def _agree(returned: Any, expected: Any) -> bool:
    """Return whether the JSON that `plain` made in the jail stands for the value `expected`.

    Equality is Python's, except that floats need only be close, and tuples equal lists.
    """
    try:
        return _equal(returned, plain(expected))
    except RecursionError:
        return False


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        if isinstance(one, int) and isinstance(other, int):
            return one == other
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(_equal, items, others))
    if isinstance(one, dict) and isinstance(other, dict):
        fields, wanted = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        if fields.keys() != wanted.keys() or "__other__" in fields:
            return False
        return all(_equal(fields[key], wanted[key]) for key in wanted)
    return bool(type(one) is type(other) and one == other)  # pyright: ignore[reportUnknownArgumentType] (a text or None)


# The configuration.


def _base_command(criterion: QualityCriterion) -> Command:
    """Read the limits and files, which all forms have, as a command without a program."""
    config = criterion.evaluator_config
    timeout = config.get("timeout", TIMEOUT)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST:
        raise invalid(criterion, f"timeout must be seconds in 0..{LONGEST:g}, got {timeout!r}.")
    files: Any = config.get("files", {})
    if not isinstance(files, Mapping):
        raise invalid(criterion, f"files must map names to texts, got {files!r}.")
    if problem := problem_of_files(cast("Mapping[str, str]", files)):
        raise invalid(criterion, f"files: {problem}")
    readable: Any = config.get("readable", [])
    if not isinstance(readable, list | tuple) or not all(
        isinstance(path, str | Path) for path in cast("list[Any]", readable)
    ):
        raise invalid(criterion, f"readable must be a list of paths, got {readable!r}.")
    paths = [str(path) for path in cast("list[str | Path]", readable)]
    return Command(timeout=float(timeout), files=cast("Mapping[str, str]", files), readable=paths)


def _argv(criterion: QualityCriterion) -> tuple[str, ...]:
    words: Any = criterion.evaluator_config["command"]
    if not isinstance(words, list | tuple) or not words:
        raise invalid(
            criterion, f'command must be a list such as ["ruff", "check", "{{file}}"], got {words!r}.'
        )
    if not all(isinstance(word, str) and word and "\0" not in word for word in cast("list[Any]", words)):
        raise invalid(criterion, f"command must be a list of texts, got {words!r}.")
    file = _file(criterion)
    argv = tuple(word.replace("{file}", file) for word in cast("list[str]", words))
    if find_program(argv[0]) is None:
        raise invalid(
            criterion, f"the program {argv[0]!r} is not installed: neither beside Python nor on PATH."
        )
    return argv


def _file(criterion: QualityCriterion) -> str:
    name = criterion.evaluator_config.get("file", "draft.py")
    beside = {other: "" for other in criterion.evaluator_config.get("files", {}) if other != name}
    if problem := problem_of_files({**beside, name: ""}):
        raise invalid(criterion, f"file: {problem}")
    return name


def _setup(criterion: QualityCriterion) -> str:
    setup = criterion.evaluator_config.get("setup", "")
    if not isinstance(setup, str):
        raise invalid(criterion, f"setup must be Python source, got {setup!r}.")
    _parse(criterion, setup, "exec")
    return setup
