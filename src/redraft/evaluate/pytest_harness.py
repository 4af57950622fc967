"""Run pytest inside the jail and report on its tests, in one line of JSON."""

# The source of this module is what the jail executes, so it imports nothing but the standard library and
# pytest: not even `python_harness`, which explains the assertions of tests that need no pytest.

from __future__ import annotations

import io
import json
import linecache
import os
import re
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

MARK, BEGUN = "redraft-report:", "redraft-test:"
"""The prefixes of the lines on stdout with the report and with the name of a starting test."""
_REPORTED, _MESSAGE = 5, 1000  # how many failures, and the most characters of each
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object in memory, which differs from run to run
_VALUES, _VALUE = 5, 100  # how many variables of a statement, and the most characters of each


def run_pytest(arguments: list[str], draft: str) -> dict[str, Any]:
    """Run pytest; `draft` is the file that it tests.

    Returns its `exit` code, the numbers of tests that `passed` and `failed`, the `failures`, the `broken`
    tests, which could not run for a reason other than the draft, and the end of the output as `printed`.
    Without pytest, returns the import error as `missing`.
    """
    try:
        import pytest  # noqa: PLC0415 (only a jail may have it)
    except ImportError as error:
        return {"missing": str(error)}
    report, printed = _Report(draft), io.StringIO()
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (no pathlib in the jail)
    with redirect_stdout(printed):
        code = pytest.main(arguments, plugins=[report])
    return {**report.summary, "exit": int(code), "printed": printed.getvalue()[-_MESSAGE:]}


class _Report:
    """A plugin of pytest that records the outcome of each test."""

    def __init__(self, draft: str) -> None:
        self.draft = os.path.realpath(draft)
        self.module = os.path.splitext(os.path.basename(draft))[0]  # noqa: PTH119, PTH122 (as above)
        self.folder = f"{os.getcwd()}{os.sep}"  # noqa: PTH109 (as above)
        self.summary: dict[str, Any] = {"passed": 0, "failed": 0, "failures": [], "broken": []}
        self.errors: dict[str, BaseException] = {}
        self.stdout = os.dup(1)  # while a test runs, pytest captures file descriptor 1

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        """Record the error of a file during collection."""
        if report.when == "collect":
            self.errors[node.nodeid] = call.excinfo.value.__cause__ or call.excinfo.value

    def pytest_collectreport(self, report: Any) -> None:
        """Count a file that could not be collected."""
        if report.failed:
            self._add(report, by_draft=False)

    def pytest_internalerror(self, excinfo: Any) -> None:
        """Record what ended pytest itself, such as a draft that exits when it is imported."""
        self._failure("pytest", excinfo.value, by_draft=False)

    def pytest_collectstart(self, collector: Any) -> None:
        """Announce the collected file: from now on, time counts as the draft's."""
        self._begin(collector.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Announce the test, in case it never ends."""
        self._begin(nodeid)

    def _begin(self, name: str) -> None:
        os.write(self.stdout, f"\n{BEGUN}{name}\n".encode())

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Record the error of a test."""
        if call.excinfo is not None:
            self.errors[item.nodeid] = call.excinfo.value

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count a passed or failed test; a test with failing fixtures is broken, unless the draft failed."""
        if report.failed:
            self._add(report, by_draft=report.when == "call")
        elif report.passed and report.when == "call":
            self.summary["passed"] += 1

    def _add(self, report: Any, *, by_draft: bool) -> None:
        error = self.errors.pop(report.nodeid, None) or AssertionError(str(report.longrepr))
        self._failure(report.nodeid, error, by_draft=by_draft)

    def _failure(self, name: str, error: BaseException, *, by_draft: bool) -> None:
        """Record a failure; it is the draft's if the draft raised the error or lacks an imported name."""
        line, place, frame = None, "", error.__traceback__
        if isinstance(error, SyntaxError) and os.path.realpath(error.filename or "") == self.draft:
            line = error.lineno
        while frame is not None:
            file = os.path.realpath(frame.tb_frame.f_code.co_filename)
            if file == self.draft:
                line = frame.tb_lineno
            elif file.startswith(self.folder):
                place = _statement(linecache.getline(file, frame.tb_lineno).strip(), frame.tb_frame)
            frame = frame.tb_next
        if not by_draft and line is not None:
            name, place = "The draft", ""
        by_draft = (
            by_draft or line is not None or (isinstance(error, ImportError) and error.name == self.module)
        )
        self.summary["failed"] += by_draft
        failures = self.summary["failures" if by_draft else "broken"]
        if len(failures) < _REPORTED:
            message = self._message(error).replace(self.folder, "")[:_MESSAGE]
            failure = {"name": name, "raised": type(error).__name__, "message": message}
            failures.append({**failure, "line": line, "at": place})

    def _message(self, error: BaseException) -> str:
        if isinstance(error, SyntaxError):
            return error.msg
        if fixture := getattr(error, "argname", ""):  # an error without a message
            return f"the fixture {fixture!r} does not exist"
        return _ADDRESS.sub("", str(error)).replace("Use -v to get more diff", "")


def _statement(line: str, frame: FrameType) -> str:
    """A line of source with its variables."""
    names = dict.fromkeys(re.findall(r"\w+", line))
    variables = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
    listed = [f"{name} = {_shown(value)}" for name, value in variables.items() if not callable(value)]
    return f"{line[:_VALUE]} (with {', '.join(listed[:_VALUES])})" if listed else line[:_VALUE]


def _shown(value: Any) -> str:
    try:
        return _ADDRESS.sub("", repr(value))[:_VALUE]
    except BaseException as error:  # noqa: BLE001 (the draft's own __repr__)
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def main() -> None:
    """Run pytest; the first argument is the draft, the rest are for pytest."""
    summary = run_pytest(sys.argv[2:], sys.argv[1])
    os.write(1, f"\n{MARK}{json.dumps(summary)}\n".encode())
    raise SystemExit(summary.get("exit", 1))
