"""Examples in a task: find the calls whose values its text gives, and judge an answer by them."""

from __future__ import annotations

import ast
import doctest
import re
from bisect import bisect
from itertools import islice
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text
from redraft.evaluate.command import command
from redraft.evaluate.criteria import NOT_APPLICABLE, check_keys
from redraft.evaluate.judge import task_text
from redraft.text.replies import python_block
from redraft.types import QualityCriterion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redraft.execution import CommandRunner
    from redraft.protocols import Evaluator, RunContext
    from redraft.types import Output, ReflectionEvaluation

SEARCHED, LONGEST, MOST_CALLS = 50_000, 1_000, 500
"""The most characters of a text that are searched, of a call or its value, and the most calls looked at."""
NOT_PYTHON = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)
"""What parsing a text, or evaluating it as a literal, raises if it is no Python."""
_CALL = re.compile(r"(?<![\w.])(?<!def )(?<!class )[A-Za-z_][\w.]*\(")
_ARROW = re.compile(
    r"\s*(?:#\s*)?(?:=+>?|-+>|[➞→⇒➡:]"
    r"|(?:should |must |will |would |to )?(?:return|give|be|equal|evaluate to|evaluates to)s?\b|is\b)\s*:?\s*"
)
_MARKS = re.compile(r"[`*]*")
"""What Markdown may put around a call and its value: they are code, or bold."""
_ENDS = re.compile(
    r"""["'`*)\]}]*[ \t]*(?:$|[;!(|#\n]|[.:](?=[\s"'`*)]|$)"""
    r"""|(?:,(?=\s)|(?:and|because|since|while|whereas)\b)(?!\s*(?:[-+\d"'(\[{]|(?:None|True|False)\b)))"""
)
"""What may follow a value. Anything else may go on with it: `10,000`, `4 or 5`, `2 items`."""
_IN_EXPRESSION = re.compile(r"[^\s>|*+-][ \t]*[-+*/%<>=!&|^~@]+[ \t]*$")
"""What comes before a call that is only a part of an expression; a line may begin with such signs, though."""
_PAIR = re.compile(
    r"^[ \t>*+-]*Input\**:(?P<given>[^\n]+)\n[\s>*+-]*Output\**:(?P<value>[^\n#]+)",
    re.MULTILINE | re.IGNORECASE,
)
_NAME = re.compile(r"^[ \t]*def (\w+)\(", re.MULTILINE)
_DOCSTRING_ENDS = re.compile(r"^\s*(?:\"{3}|'{3}).*", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"[-+]?(?:\d[\w.]*|\.\d\w*|true\b|false\b|none\b)", re.IGNORECASE)
_TODAY = r"currently|today|now|wrong(?:ly)?|incorrect(?:ly)?|instead|actual(?:ly)?|got|observed|broken"
_NOT_SO = re.compile(
    rf"\b(?:{_TODAY}|not|neither|never|no longer|cannot|bug|but|why|does|did)\b|n't\b", re.IGNORECASE
)
_NOT_BELOW = re.compile(rf"\b(?:{_TODAY})\b", re.IGNORECASE)
"""What a line says that gives no example, and a lead below which there are none."""
_LEAD = re.compile(r"^[ \t]*#+ .*|^.*:[*`]*[ \t]*$", re.MULTILINE)
"""A heading, or a line that introduces what follows."""
_AROUND = " \t`*"
_PYTHON = {"true": "True", "false": "False", "none": "None"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def examples(criterion: QualityCriterion, run_command: CommandRunner) -> Evaluator:
    """Judge Python code by the examples in its task; the score is the share of expected values.

    A task without examples leaves the criterion out. Configuration: `timeout`, as for `command`.
    """
    check_keys(criterion, "timeout")
    limits = criterion.evaluator_config
    by_calls(criterion, {}, run_command, limits)  # raises for a timeout that can't work

    async def check(output: Output, run: RunContext, /) -> ReflectionEvaluation:
        found = examples_for(task_text(run.task), output)
        if not found:
            return NOT_APPLICABLE
        return await by_calls(criterion, found, run_command, limits)(output, run)

    return check


def by_calls(
    criterion: QualityCriterion,
    known: Mapping[str, Any],
    run_command: CommandRunner,
    limits: Mapping[str, Any],
) -> Evaluator:
    """Judge by calls and the values that they should return; without any, by whether the code runs at all."""
    calls = [list(pair) for pair in known.items()] or [["None", None]]
    return in_jail(criterion, {**limits, "calls": calls}, run_command)


def in_jail(criterion: QualityCriterion, config: Mapping[str, Any], run_command: CommandRunner) -> Evaluator:
    """Judge a criterion as the evaluator `command` would with this configuration; raises `ConfigError`."""
    by_command = QualityCriterion(
        criterion.name, threshold=criterion.threshold, evaluator="command", evaluator_config=config
    )
    return command(by_command, run_command)


def examples_for(task: str, output: Output) -> dict[str, Any]:
    """Return the examples in a task that concern an output: of functions that it defines, or all if of none.

    A text may also mention a function that is not asked for, such as `log(100) = 2`.
    """
    found = examples_in(task)
    try:
        names = names_bound(ast.parse(python_block(as_text(output))[0]))
    except NOT_PYTHON:
        return found
    defined = {call: value for call, value in found.items() if re.split(r"[.(]", call)[0] in names}
    return defined or found


def examples_in(text: str) -> dict[str, Any]:
    """Return the examples in a text: calls, as normalized Python source, with the values that they return.

    Found are `>>>` sessions, calls such as `f(2) -> 4` or "f(2) should return 4", also as code or bold in
    Markdown, and pairs. A pair is a line `Input: a = [1], k = 2` and a line `Output: 3` for the function that
    the text defines. Only calls whose arguments are literals, with a literal as their value, count, and of a
    text that defines functions only calls of these. A line that may say what is wrong today ("currently",
    "not", "but"), or whose heading does, gives no example, and neither does a value that may go on ("2
    items"). If a text gives two values for one call, neither counts.
    """
    text = text[:SEARCHED]
    names = set(_NAME.findall(text))
    found: dict[str, Any] = {}
    doubtful: set[str] = set()
    for call, value in [*_sessions(text), *_calls(text), *_pairs(text)]:
        source = call_source(call)
        if source is None or (names and source.partition("(")[0] not in names):
            continue
        try:
            expected = ast.literal_eval(value)
        except NOT_PYTHON:
            continue
        if "Ellipsis" in repr(expected):  # "[1, 2, ...]" leaves out what is expected
            continue
        if source in found and found[source] != expected:
            doubtful.add(source)
        found.setdefault(source, expected)
    return {call: value for call, value in found.items() if call not in doubtful}


def _sessions(text: str) -> Iterator[tuple[str, str]]:
    try:
        sessions = doctest.DocTestParser().get_examples(text)
    except ValueError:  # a session that is indented unevenly
        return
    for session in sessions:
        if session.exc_msg is None and (value := _DOCSTRING_ENDS.sub("", session.want).strip()):
            yield session.source.strip(), value


def _calls(text: str) -> Iterator[tuple[str, str]]:
    """Find calls that an arrow, or a word such as "returns", connects with a value on the same line."""
    leads = [(lead.end(), _NOT_BELOW.search(lead[0]) is not None) for lead in _LEAD.finditer(text)]
    for opening in islice(_CALL.finditer(text), MOST_CALLS):
        end = _closed(text, opening.end() - 1)
        if not end:
            continue
        marks = _marks(text, end)
        arrow = _ARROW.match(text, end + len(marks))
        if arrow is None or "\n" in arrow[0]:
            continue
        line_start, line_end = text.rfind("\n", 0, opening.start()) + 1, text.find("\n", end)
        before = text[line_start : opening.start()].removesuffix(marks[::-1])
        line = text[line_start : None if line_end < 0 else line_end]
        lead = bisect(leads, (opening.start(), False)) - 1
        if _NOT_SO.search(line) or _IN_EXPRESSION.search(before) or (lead >= 0 and leads[lead][1]):
            continue
        marks = _marks(text, arrow.end())
        start = arrow.end() + len(marks)
        if text[start : start + 1] in ("'", '"', *_CLOSING):
            stop = _closed(text, start)
        else:
            word = _WORD.match(text, start)
            stop = word.end() - word[0].endswith(".") if word else 0
        if stop and text.startswith(marks[::-1], stop) and _ENDS.match(text, stop + len(marks)):
            value = text[start:stop]
            yield text[opening.start() : end], _PYTHON.get(value, value)


def _marks(text: str, start: int) -> str:
    marks = _MARKS.match(text, start)
    return marks[0] if marks else ""


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    names = _NAME.findall(text)
    for pair in _PAIR.finditer(text) if names else ():
        yield f"{names[-1]}({pair['given'].strip(_AROUND)})", pair["value"].strip(_AROUND)


def _closed(text: str, start: int) -> int:
    """Return where the bracket or the string that opens at `start` has ended; 0 if it does not end."""
    expected: list[str] = []
    quote = ""
    at = start
    while at < min(len(text), start + LONGEST):
        sign = text[at]
        if quote:
            if sign == "\\":
                at += 1
            elif sign == quote:
                quote = ""
        elif sign in "'\"":
            quote = sign
        elif sign in _CLOSING:
            expected.append(_CLOSING[sign])
        elif sign in ")]}" and (not expected or sign != expected.pop()):
            return 0
        at += 1
        if not quote and not expected:
            return at
    return 0


def call_source(text: str) -> str | None:
    """Return a call as normalized source; None for anything else, or if an argument is no literal."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except NOT_PYTHON:
        return None
    if not isinstance(call, ast.Call):
        return None
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
        try:
            ast.literal_eval(value)
        except NOT_PYTHON:
            return None
    return ast.unparse(call)


def names_bound(*statements: ast.AST) -> set[str]:
    """Return the names that Python code defines, assigns or imports anywhere."""
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
