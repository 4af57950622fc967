"""Checks that run in the jail: a program such as a linter, or a Python draft and calls to it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import as_text, clipped, listed, without_addresses
from redraft._validation import check_count, check_text, is_number, nearest
from redraft.errors import ConfigError, SandboxError, SandboxForbiddenError
from redraft.evaluate import pytest_harness, python_harness
from redraft.evaluate.criteria import PASSED, answer_in, check_keys, failed, is_raw, names_criterion, unknown
from redraft.evaluate.python_checks import (
    MESSAGE_LIMIT,
    VALUE_LIMIT,
    PythonCheck,
    files_of_tests,
    needs_pytest,
    parse,
    read_calls,
    read_tests,
    tests_of,
)
from redraft.execution import (
    OUTPUT_LIMIT,
    Command,
    CommandOutcome,
    CommandRunner,
    find_program,
    problem_of_files,
)
from redraft.text.characters import without_middle
from redraft.text.replies import BOM, python_block
from redraft.types import Issue, QualityCriterion, ReflectionEvaluation, joined

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.protocols import Evaluator, RunContext
    from redraft.types import Output

FORMS = ("command", "calls", "tests")
LIMITS = ("readable", "timeout", "output_limit")
"""Options of every form that set the limits of the jail."""
MAX_ISSUES, MAX_FAILURES = 20, 5
"""The most issues of a program, and the most failures of tests, in a verdict."""
PRINTED = 2000
"""The most characters of a program's output in an issue."""
TIMEOUT, LONGEST = 10.0, 3600.0
PATIENCE = 60.0
"""Seconds that a draft may wait for a processor before the wait counts as run time."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_NOT_RUN = (126, 127)  # a shell's exit codes for a program that could not be started
_LIMITS = {
    "timeout": "ran longer than its limit of {timeout:g} s (timeout)",
    "memory": "took more memory than its limit (memory)",
    "output": "printed more than its limit of {output_limit:,} bytes (output_limit)",
    "forbidden": "did what the jail forbids (forbidden)",
}


@names_criterion
def command(criterion: QualityCriterion, run_command: CommandRunner) -> Evaluator:
    """Judge a draft by running something in the jail that `run_command` provides.

    The configuration has one of three forms, each with `files` (name to text, in the folder of the draft),
    `readable` (paths that may be read), `timeout` (seconds, default 10) and `output_limit` (bytes that may be
    printed, default 64 MiB):

    - `command`: a program and its arguments. The draft is in `file` (default `draft.py`), whose name replaces
      `{file}`. Exit code 0 scores 1.0, any other 0.0, with the beginning and the end of the program's output
      as issues; of `pytest`, the tests that failed.
    - `calls`: expressions and their expected values, `{"call": "f(3)", "expect": 6}` or pairs. The draft,
      which is Python, is executed, then `setup`, then each expression; the score is the share of expected
      values. These never enter the jail, so a draft can neither look them up nor claim them. Prefer this.
    - `tests`: Python source, functions, paths of test files, or a list of these, which run after the draft
      and `setup`; the score is the share of the tests that passed. In source, each statement is a test, and
      `assert f(3) == 6` is treated as a call. The parameters of a function are names that the draft defines.
      A file imports the draft by the name in `file` (default `draft.py`); pytest runs it if it has to. All
      tests but such calls run in the draft's own process, where a draft that wants to cheat could read them
      and make them pass. A failed assertion, also inside a function, is reported with its values.

    Unless `raw` is True, a draft that is one fenced block is taken without its Markdown fence, and only the
    code of a Python draft with prose around it. A draft that does not parse, or that a limit stops, scores
    0.0. What is not the draft's fault leaves the criterion unknown: tests that can't run, a tool that is
    missing or does not start, a machine that is too busy or out of memory. The time that pytest takes to
    start, and the time spent waiting for a processor, do not count.

    Raises `ConfigError` for a configuration that can't work, including a program that is not installed, and,
    when judging, `SandboxForbiddenError` on a machine without a jail.
    """
    config = criterion.evaluator_config
    forms = [form for form in FORMS if form in config]
    if len(forms) != 1:
        options = (*FORMS, "file", "files", "setup", *LIMITS, "raw")
        allowed, actual = ", ".join(map(repr, FORMS)), listed([repr(form) for form in forms])
        hints = [
            f"Unknown option {key!r}; {nearest(str(key), options)}" for key in config if key not in options
        ]
        raise ConfigError(" ".join([f"command needs one of {allowed}, got {actual}.", *hints]))
    base, raw = _base_command(criterion), is_raw(criterion)
    judge: _ProgramJudge | _PytestJudge | _PythonJudge
    if forms == ["command"]:
        check_keys(criterion, "command", "file", "files", *LIMITS, "raw")
        argv, file = _argv(criterion), _file(criterion)
        program = _ProgramJudge(criterion, run_command, base, argv, file, raw)
        reporting = _reporting(argv, file)
        judge = _PytestJudge(program, reporting) if reporting else program
    elif forms == ["tests"]:
        check_keys(criterion, "tests", "file", "setup", "files", *LIMITS, "raw")
        judge = _tests_judge(criterion, run_command, base, raw)
    else:
        check_keys(criterion, "calls", "setup", "files", *LIMITS, "raw")
        checks = tuple(read_calls(config["calls"]))
        judge = _PythonJudge(criterion, run_command, base, checks, _setup(criterion), raw)

    async def evaluate(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        try:
            return await judge(as_text(output))
        except SandboxForbiddenError:
            raise
        except SandboxError as error:
            return unknown(criterion, str(error))

    return evaluate


@names_criterion
def observer(
    criterion: QualityCriterion,
    words: Sequence[str],
    options: Mapping[str, Any],
    run_command: CommandRunner | None,
) -> Callable[[str], Awaitable[tuple[str, str]]]:
    """A function that runs a program on a draft and reports its output instead of judging by it.

    It returns how the program ended with what it printed, and why it could not run ("" if it could). The
    `options` are those of `command`; raises `ConfigError` for options that can't work. Without `run_command`,
    the function can't be called.
    """
    criterion = replace(criterion, evaluator="command", evaluator_config=options)
    base, raw, file = _base_command(criterion), is_raw(criterion), _file(criterion)
    argv = tuple(word.replace("{file}", file) for word in words)
    return _ProgramJudge(criterion, cast("CommandRunner", run_command), base, argv, file, raw).observe


@names_criterion
def runs_program(criterion: QualityCriterion) -> bool:
    """Whether a `command` criterion starts a program in the jail, rather than running Python source."""
    if "tests" not in criterion.evaluator_config:
        return "command" in criterion.evaluator_config
    return bool(_files_for_pytest(criterion)[1])


def _tests_judge(
    criterion: QualityCriterion, run_command: CommandRunner, base: Command, raw: bool
) -> _PytestJudge | _PythonJudge:
    files, for_pytest = _files_for_pytest(criterion)
    base = replace(base, files={**files, **base.files})
    if not for_pytest:
        checks = tuple(read_tests(tests_of(criterion.evaluator_config["tests"])))
        return _PythonJudge(criterion, run_command, base, checks, _setup(criterion), raw, _module(criterion))
    argv, file = ("pytest", *for_pytest), _file(criterion)
    if (reporting := _reporting(argv, file)) is None:
        raise ConfigError(
            f"the test file {for_pytest[0]!r} needs pytest, which is not installed: pip install pytest."
        )
    program = _ProgramJudge(criterion, run_command, base, argv, file, raw)
    return _PytestJudge(program, reporting, shares=True)


def _files_for_pytest(criterion: QualityCriterion) -> tuple[dict[str, str], list[str]]:
    """The files of the tests, and the names of the test files if pytest has to run them."""
    tests = tests_of(criterion.evaluator_config["tests"])
    paths = [test for test in tests if isinstance(test, Path)]
    if not paths:
        return {}, []
    module = _module(criterion)
    files = files_of_tests(paths, module)
    others = [*files, *criterion.evaluator_config.get("files", {})]
    if not any(needs_pytest(files[path.name], others, module) for path in paths):
        return files, []
    if len(paths) < len(tests) or "setup" in criterion.evaluator_config:
        raise ConfigError("the test files need pytest, so give no other tests with them, and no setup.")
    return files, [path.name for path in paths]


def _module(criterion: QualityCriterion) -> str:
    """The module name under which the tests import the draft."""
    module, dot, suffix = _file(criterion).rpartition(".")
    if not (module.isidentifier() and dot and suffix == "py"):
        raise ConfigError(
            f"file must be the name of a module, such as 'median.py', got {_file(criterion)!r}; for a "
            'package, use command: ["pytest"].'
        )
    return module


@dataclass(frozen=True, slots=True)
class _ProgramJudge:
    """Judge by the exit code of a program that gets the draft as a file."""

    criterion: QualityCriterion
    run_command: CommandRunner
    base: Command
    argv: tuple[str, ...]
    file: str
    raw: bool

    async def __call__(self, text: str) -> ReflectionEvaluation:
        outcome, skipped = await self.run(text, self.argv)
        return outcome if isinstance(outcome, ReflectionEvaluation) else self.verdict(outcome, skipped)

    async def run(
        self, text: str, argv: tuple[str, ...]
    ) -> tuple[CommandOutcome | ReflectionEvaluation, int]:
        """Run a program on a draft; returns a verdict if the program could not run to its end.

        Also returns how many lines of the draft precede its code.
        """
        source, first_line = self._code_in(text)
        files = {**self.base.files, self.file: source}
        begins = "" if argv == self.argv else pytest_harness.BEGUN
        if problem := problem_of_files(files):  # with the draft, since the other files were checked before
            return failed(Issue(problem, self.criterion.name)), 0
        outcome = await self.run_command(replace(self.base, argv=argv, files=files, begins=begins))
        if outcome.stopped == "killed" or not (outcome.stopped or outcome.completed):
            return unknown(self.criterion, f"{self.label} {KILLED}"), 0
        if outcome.stopped:
            message = f"{self.label} {_limit(outcome, self.base)}{_test_begun(outcome)}"
            return failed(Issue(message, self.criterion.name)), 0
        return outcome, first_line - 1

    @property
    def label(self) -> str:
        """The command as issues name it."""
        return " ".join(self.argv)[:PRINTED]

    def verdict(self, outcome: CommandOutcome, skipped: int) -> ReflectionEvaluation:
        """Judge by the exit code and the output of the program."""
        if outcome.exit_code == 0:
            return PASSED
        printed = _printed(outcome)
        if self._did_not_start(outcome):
            return unknown(self.criterion, f"{self.label} could not be run: {printed}")
        if issues := self._issues_in(f"{outcome.stdout}\n{outcome.stderr}", skipped):
            return failed(*issues)
        message = f"{self.label} {_ending(outcome)}: {printed}".rstrip(": ")
        return failed(Issue(message, self.criterion.name))

    async def observe(self, text: str) -> tuple[str, str]:
        """Run the program for `observer`."""
        files = {**self.base.files, self.file: self._code_in(text)[0]}
        if find_program(self.argv[0]) is None:
            return "", f"the program {self.argv[0]!r} is not installed"
        if problem := problem_of_files(files):
            return "", problem
        outcome = await self.run_command(replace(self.base, argv=self.argv, files=files))
        if outcome.stopped == "killed" or not (outcome.stopped or outcome.completed):
            return "", f"it {KILLED}"
        printed = _printed(outcome)
        if not outcome.stopped and self._did_not_start(outcome):
            return "", f"it could not be run: {printed}"
        ending = _limit(outcome, self.base) if outcome.stopped else _ending(outcome)
        return f"It {ending}{', and printed:' if printed else ' and printed nothing.'}\n{printed}".strip(), ""

    def _did_not_start(self, outcome: CommandOutcome) -> bool:
        """Whether there is no such program, or the interpreter lacks the module that `-m` names."""
        module = self.argv[2].partition(".")[0] if self.argv[1:2] == ("-m",) and self.argv[2:] else ""
        endings = (f": No module named {module}", f"No module named '{module}')")
        lacks_module = bool(module) and outcome.stderr.rstrip().endswith(endings)
        return outcome.exit_code in _NOT_RUN or lacks_module

    def _code_in(self, text: str) -> tuple[str, int]:
        source, first_line = answer_in(text, self.raw)
        if self.file.endswith(".py") and not self.raw:
            return python_block(text)
        return f"{source}\n" if first_line > 1 else source, first_line  # files end with a line break

    def _issues_in(self, printed: str, skipped: int) -> list[Issue]:
        """Read lines such as `file:LINE: message`; `skipped` lines of the draft precede its code."""
        form = re.compile(rf"(?:\S*/)?{re.escape(self.file)}:(\d{{1,9}})(?::\d+)?:\s*(\S.*)")
        lines = re.split(r"[\r\n]+", _ESCAPES.sub("", printed))
        matches = [match for line in lines if (match := form.fullmatch(line.strip()))]
        return [
            Issue(match[2][:PRINTED], self.criterion.name, line=int(match[1]) + skipped)
            for match in matches[:MAX_ISSUES]
        ]


def _limit(outcome: CommandOutcome, command: Command) -> str:
    text = _LIMITS[outcome.stopped or "timeout"]
    return text.format(timeout=command.timeout, output_limit=command.output_limit)


KILLED = "was killed from outside, most likely because the machine ran out of memory"
_SCRATCH = re.compile(r"""[^\s"']*/redraft-jail-\w+/""")
"""The scratch folder, whose name differs from run to run."""


def _printed(outcome: CommandOutcome) -> str:
    """The beginning and the end of a program's output, without escape sequences."""
    streams = (_SCRATCH.sub("", _ESCAPES.sub("", text)) for text in (outcome.stdout, outcome.stderr))
    texts = [without_addresses(text).strip() for text in streams if text.strip()]
    return "\n".join(without_middle(text, PRINTED // len(texts)) for text in texts)


def _ending(outcome: CommandOutcome) -> str:
    code = outcome.exit_code or 0
    names = {-number: number.name for number in signal.Signals}
    return f"was ended by {names.get(code, f'signal {-code}')}" if code < 0 else f"exited with {code}"


def _reporting(argv: tuple[str, ...], file: str) -> tuple[str, ...] | None:
    """A command that runs pytest and reports on each test; None if `argv` is not pytest.

    Uses the interpreter in the folder of the program, which has the packages that the tests need.
    """
    program = Path(find_program(argv[0]) or argv[0])
    if program.name in ("pytest", "py.test"):
        python, arguments = str(program.with_name("python3")), argv[1:]
    elif program.name.startswith("python") and argv[1:3] == ("-m", "pytest"):
        python, arguments = argv[0], argv[3:]
    else:
        return None
    source = Path(pytest_harness.__file__).read_text("utf-8")
    return (python, "-c", f"{source}\n\nmain()\n", file, *arguments) if find_program(python) else None


@dataclass(frozen=True, slots=True)
class _PytestJudge:
    """Judge by the tests that pytest ran: 1.0 if all passed, else 0.0, or the share with `shares`."""

    program: _ProgramJudge
    reporting: tuple[str, ...]
    shares: bool = False

    async def __call__(self, text: str) -> ReflectionEvaluation:
        outcome, skipped = await self.program.run(text, self.reporting)
        if isinstance(outcome, ReflectionEvaluation):
            return outcome
        report = _report_in(outcome.stdout)
        if report is None:
            if pytest_harness.BEGUN not in outcome.stdout:
                why = f"{self.program.label} {_ending(outcome)} before any test began: {_printed(outcome)}"
                return unknown(self.program.criterion, why.rstrip(": "))
            message = f"The draft ended {self.program.label} before its tests were through"
            message += _test_begun(outcome)
            return failed(Issue(message, self.program.criterion.name))
        return self._verdict(report, outcome, skipped)

    def _verdict(self, report: dict[str, Any], outcome: CommandOutcome, skipped: int) -> ReflectionEvaluation:
        criterion, label = self.program.criterion, self.program.label
        if "missing" in report:
            hint = "Install it: pip install pytest."
            if find_spec("pytest") is not None:
                hint = "List the folder in which it is installed in 'readable'."
            why = f"pytest can't be imported in the jail: {report['missing']}"
            return unknown(criterion, f"{why}. {hint}")
        failures = [
            Issue(_failure(test), criterion.name, line=_line(test, skipped))
            for test in _tests(report, "failures")
        ]
        issues = _first(failures, max(len(failures), _count(report, "failed")), "tests", criterion.name)
        if broken := _tests(report, "broken"):
            not_run = unknown(criterion, f"tests could not run: {joined(map(_failure, broken))}")
            return replace(not_run, issues=(*not_run.issues, *issues))
        printed = _ESCAPES.sub("", f"{report.get('printed', '')}\n{outcome.stderr}").strip()
        passed = _count(report, "passed")
        count = passed + _count(report, "failed")
        if not count:
            return unknown(
                criterion, f"{label} ran no test: {clipped(printed[-MESSAGE_LIMIT:], MESSAGE_LIMIT)}"
            )
        if outcome.exit_code == 0:
            return PASSED
        if not issues:  # such as low coverage
            issues = [Issue(f"{label} {_ending(outcome)}: {printed[-MESSAGE_LIMIT:]}", criterion.name)]
        score = passed / count if self.shares else 0.0
        is_enough = self.shares and score >= criterion.threshold
        return ReflectionEvaluation(score, satisfactory=is_enough, issues=tuple(issues))


def _test_begun(outcome: CommandOutcome) -> str:
    """Name the pytest test during which a program ended."""
    begun = re.findall(rf"^{pytest_harness.BEGUN}(.+)$", outcome.stdout, re.MULTILINE)
    return f"; in {clipped(begun[-1], VALUE_LIMIT)}" if begun else ""


def _report_in(printed: str) -> dict[str, Any] | None:
    """The report of pytest, unvalidated: the draft ran in the same process."""
    _, mark, line = printed.rpartition(f"\n{pytest_harness.MARK}")
    try:
        report = json.loads(line) if mark else None
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", report) if isinstance(report, dict) else None


def _tests(report: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = report.get(key)
    listed = cast("list[Any]", items) if isinstance(items, list) else []
    return [cast("dict[str, Any]", item) for item in listed if isinstance(item, dict)][:MAX_FAILURES]


def _count(report: dict[str, Any], key: str) -> int:
    count = report.get(key)
    return count if isinstance(count, int) and count > 0 else 0


_EXPLAINED = re.compile(r"\n\s*\+\s+((?:where|and) )?\s*")


def _failure(test: dict[str, Any]) -> str:
    """Describe the failure of a pytest test."""
    name, raised = (clipped(str(test.get(key) or ""), VALUE_LIMIT) for key in ("name", "raised"))
    # pytest's "+  where 6 = f(3)"
    message = _EXPLAINED.sub(lambda match: f", {match[1] or ''}", str(test.get("message") or ""))
    message, place = clipped(message, MESSAGE_LIMIT), clipped(str(test.get("at") or ""), MESSAGE_LIMIT)
    place = f"; in {place}" if place and not message.startswith("assert ") else ""
    if raised == "SyntaxError":
        return f"{name} does not parse: {message}"
    if raised in ("AssertionError", "Failed"):
        return f"{name} failed: {message}{place}" if message else f"{name} failed{place}"
    return f"{name} raised {raised}: {message}{place}"


def _first(issues: list[Issue], count: int, things: str, name: str) -> list[Issue]:
    """The first few issues, and how many more there are."""
    more = count - MAX_FAILURES
    if more <= 0:
        return issues
    verb = f"more {things} failed" if more > 1 else f"more {things.removesuffix('s')} failed"
    return [*issues[:MAX_FAILURES], Issue(f"{more} {verb}", name)]


@dataclass(frozen=True, slots=True)
class _PythonJudge:
    """Judge by the share of checks that a Python draft passes."""

    criterion: QualityCriterion
    run_command: CommandRunner
    base: Command
    checks: tuple[PythonCheck, ...]
    setup: str
    raw: bool
    module: str = "draft"

    async def __call__(self, text: str) -> ReflectionEvaluation:
        source, first_line = (text.removeprefix(BOM), 1) if self.raw else python_block(text)
        inputs = {
            "draft": source,
            "setup": self.setup,
            "steps": [[check.how, check.source] for check in self.checks],
            "module": self.module,
            "folder": "." if self.base.files else "",
        }
        outcome = await self.run_command(replace(self.base, python=_harness(), inputs=inputs))
        if outcome.stopped == "killed":
            return unknown(self.criterion, f"the draft {KILLED}")
        if outcome.stopped:
            return self._failed(f"The draft {_limit(outcome, self.base)}{self._place(outcome)}")
        if not outcome.completed:
            place = self._place(outcome)
            return self._failed(f"The draft {_ending(outcome)} before its checks were through{place}")
        return self._verdict(outcome.result, first_line - 1)

    def _place(self, outcome: CommandOutcome) -> str:
        """Name the check during which the draft ended, if the jail reported it."""
        begun = re.findall(rf"^{python_harness.STEP}(\d{{1,9}})$", outcome.stderr, re.MULTILINE)
        at = int(begun[-1]) if begun else len(self.checks)
        return f"; in {self.checks[at].label}" if at < len(self.checks) else ""

    def _verdict(self, result: Any, skipped: int) -> ReflectionEvaluation:
        """Judge the result of the jail, unvalidated: the draft ran in the same process."""
        report = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
        if "missing" in report:
            return self._cannot_import(report)
        if "raised" in report:
            what = "does not parse" if report["raised"] == "SyntaxError" else f"raised {report['raised']}"
            part = "The draft" if report.get("part") == "draft" else "The setup after the draft"
            message = clipped(f"{part} {what}: {report.get('message')}", VALUE_LIMIT)
            return self._failed(message, _line(report, skipped))
        outcomes = _outcomes(report, len(self.checks))
        if outcomes is None:
            return self._failed("The draft interfered with its checks")
        issues: list[Issue] = []
        passed = counted = 0
        for check, outcome in zip(self.checks, outcomes, strict=True):
            if "missing" in outcome:
                return self._cannot_import(outcome)
            if outcome.get("raised") == "SkipTest" and outcome.get("line") is None:  # not by the draft
                continue
            problem = check.problem(outcome)
            counted += check.counts
            passed += check.counts and problem is None
            if problem:
                issues.append(Issue(problem, self.criterion.name, line=_line(outcome, skipped)))
        if not counted:
            return unknown(self.criterion, "every test was skipped")
        issues = _first(issues, len(issues), "checks", self.criterion.name)
        score = passed / counted
        return ReflectionEvaluation(
            score, satisfactory=score >= self.criterion.threshold, issues=tuple(issues)
        )

    def _cannot_import(self, outcome: dict[str, Any]) -> ReflectionEvaluation:
        missing = clipped(str(outcome["missing"]), VALUE_LIMIT)
        return unknown(
            self.criterion,
            f"the tests can't import {missing!r}; without pytest, they have the standard library and "
            "'files' only",
        )

    def _failed(self, message: str, line: int | None = None) -> ReflectionEvaluation:
        return failed(Issue(message, self.criterion.name, line=line))


@cache
def _harness() -> str:
    """The source of `python_harness`, plus a line that starts it."""
    return f"{Path(python_harness.__file__).read_text(encoding='utf-8')}\n\nresult = run_steps(inputs)\n"


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


# The configuration.


def _base_command(criterion: QualityCriterion) -> Command:
    """A command without a program, with the limits and files that all forms share."""
    config = criterion.evaluator_config
    timeout = config.get("timeout", TIMEOUT)
    if not is_number(timeout) or not 0 < timeout <= LONGEST:
        raise ConfigError(
            f"timeout must be a number of seconds above 0 and at most {LONGEST:g}, got {timeout!r}."
        )
    output_limit: Any = config.get("output_limit", OUTPUT_LIMIT)
    check_count("output_limit", output_limit, 1)
    files: Any = config.get("files", {})
    if not isinstance(files, Mapping):
        raise ConfigError(f"files must map file names to strings, got {files!r}.")
    if problem := problem_of_files(cast("Mapping[str, str]", files)):
        raise ConfigError(f"files: {problem}")
    readable: Any = config.get("readable", [])
    if not isinstance(readable, list | tuple) or not all(
        isinstance(path, str | Path) for path in cast("list[Any]", readable)
    ):
        raise ConfigError(f"readable must be a list of paths, got {readable!r}.")
    paths = [str(path) for path in cast("list[str | Path]", readable)]
    return Command(
        timeout=float(timeout),
        patience=PATIENCE,
        files=cast("Mapping[str, str]", files),
        readable=paths,
        output_limit=output_limit,
    )


def _argv(criterion: QualityCriterion) -> tuple[str, ...]:
    words: Any = criterion.evaluator_config["command"]
    if not isinstance(words, list | tuple) or not words:
        raise ConfigError(f'command must be a list such as ["ruff", "check", "{{file}}"], got {words!r}.')
    if not all(isinstance(word, str) and word and "\0" not in word for word in cast("list[Any]", words)):
        raise ConfigError(f"command must be a list of strings, got {words!r}.")
    file = _file(criterion)
    argv = tuple(word.replace("{file}", file) for word in cast("list[str]", words))
    if find_program(argv[0]) is None:
        raise ConfigError(f"the program {argv[0]!r} is not installed: neither next to Python nor on PATH.")
    return argv


def _file(criterion: QualityCriterion) -> str:
    name = criterion.evaluator_config.get("file", "draft.py")
    others = {other: "" for other in criterion.evaluator_config.get("files", {}) if other != name}
    if problem := problem_of_files({**others, name: ""}):
        raise ConfigError(f"file: {problem}")
    return name


def _setup(criterion: QualityCriterion) -> str:
    setup = criterion.evaluator_config.get("setup", "")
    check_text("setup", setup)
    parse(setup)
    return setup
