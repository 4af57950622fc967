"""Checks of a Python draft: calls with expected values, and tests as source, functions or files."""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from redraft._texts import clipped, short_repr
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.evaluate.python_harness import difference, plain
from redraft.types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


VALUE_LIMIT, MESSAGE_LIMIT = 200, 500
"""The most characters of a value in an issue, and of a message."""

_NOTHING = object()


@dataclass(frozen=True, slots=True)
class PythonCheck:
    """One step in the jail: an expression (`eval`) or a statement (`exec`)."""

    how: Literal["eval", "exec"]
    source: str
    expected: Any = _NOTHING
    """The value to compare an expression with, outside the jail."""
    counts: bool = True
    """Whether it is a check, rather than preparation for other steps."""
    name: str = ""
    """The step's name in issues; by default its source."""

    @property
    def label(self) -> str:
        """The step as issues name it."""
        return _shortened(self.name or unwrapped(self.source))

    @property
    def expects_value(self) -> bool:
        """Whether the step is an expression with an expected value."""
        return self.expected is not _NOTHING

    def problem(self, outcome: Mapping[str, Any]) -> str | None:
        """What is wrong with the outcome of this step; None if nothing is."""
        label = self.label
        if raised := outcome.get("raised"):
            return self._error(label, str(raised), outcome)
        if self.expected is _NOTHING or agree(outcome.get("value"), self.expected):
            return None
        verb = "returned" if isinstance(ast.parse(self.source, mode="eval").body, ast.Call) else "is"
        actual, expected = difference(str(outcome.get("shown")), repr(self.expected), VALUE_LIMIT)
        return f"{label} {verb} {_shortened(actual)}, expected {_shortened(expected)}"

    def _error(self, label: str, raised: str, outcome: Mapping[str, Any]) -> str:
        message = clipped(str(outcome.get("message") or ""), MESSAGE_LIMIT)
        place = clipped(str(outcome.get("at") or ""), MESSAGE_LIMIT)
        if self.how == "exec" and raised == "AssertionError" and outcome.get("line") is None:
            if message and self.source.startswith("assert"):
                return message
            what = f"{label} failed: {message}" if message else f"{label} failed"
        else:
            what = f"{label} raised {_shortened(raised)}{f': {message}' if message else ''}"
        if self.expected is not _NOTHING:
            return f"{what}; expected {_shortened(repr(self.expected))}"
        return f"{what}; in {place}" if place else what


def _shortened(value: Any) -> str:
    return clipped(str(value), VALUE_LIMIT)


def read_calls(calls: object, key: str = "calls") -> list[PythonCheck]:
    """Read a list of `{"call": ..., "expect": ...}` or pairs, configured as `key`; raises `ConfigError`."""
    if not isinstance(calls, list | tuple) or not calls:
        raise ConfigError(f"{key} must be a list with at least one call, got {calls!r}.")
    return [_check_of_call(item) for item in cast("list[Any]", calls)]


def _check_of_call(item: Any) -> PythonCheck:
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, Any]", item)
        for key in fields.keys() - {"call", "expect"}:
            raise ConfigError(f"a call has no key {key!r}; {nearest(str(key), ('call', 'expect'))}")
        call, expected = fields.get("call"), fields.get("expect", _NOTHING)
    elif isinstance(item, list | tuple) and len(cast("list[Any]", item)) == 2:  # noqa: PLR2004 (a pair)
        call, expected = cast("list[Any]", item)
    else:
        call, expected = None, _NOTHING
    if not isinstance(call, str) or expected is _NOTHING:
        raise ConfigError(f'a call must be {{"call": "f(3)", "expect": 6}} or such a pair, got {item!r}.')
    tree = parse(call, "eval")
    if len(call.splitlines()) > 1:  # so that the line breaks in its literals are escaped
        call = ast.unparse(tree)
    if "__other__" in str(plain(expected)):
        raise ConfigError(f"the value expected of {call!r} can't be compared as JSON: {expected!r}.")
    return PythonCheck("eval", call, expected)


def parse(source: str, mode: Literal["eval", "exec"] = "exec") -> Any:
    """Parse Python source of the configuration; raises `ConfigError` if it is not Python."""
    try:
        return ast.parse(source, mode=mode)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{short_repr(source, VALUE_LIMIT)} is not Python: {error}.") from error


# Tests.

Test: TypeAlias = "str | Path | FunctionType"
"""Source text, the path of a file, or a function."""

WAYS = "Python source, functions, paths of test files, or a list of these"


def tests_of(tests: object) -> list[Test]:
    """Normalise `tests` to a list, with the names of Python files as paths."""
    items: list[Any] = list(cast("list[Any]", tests)) if isinstance(tests, list | tuple) else [tests]
    if not items:
        raise ConfigError(f"tests is empty: give {WAYS}.")
    for at, item in enumerate(items):
        if is_test_file(item):
            items[at] = Path(item)
        elif not isinstance(item, str | Path | FunctionType):
            raise ConfigError(f"tests must be {WAYS}, got {item!r}.")
    return items


def is_test_file(test: object) -> bool:
    """Whether a test is the path of a file, rather than source."""
    return isinstance(test, Path) or (isinstance(test, str) and test.endswith(".py") and "\n" not in test)


def read_tests(tests: Iterable[Test]) -> list[PythonCheck]:
    """Read tests as the checks that they make; raises `ConfigError`.

    `assert f(3) == 6` becomes a call, so that its 6 stays outside the jail. Other statements that can fail
    run inside; imports, assignments and definitions only prepare. As with pytest, functions `test_...()` are
    called, and methods of that name in classes `Test...` and `unittest.TestCase`.
    """
    checks: list[PythonCheck] = []
    for test in tests:
        if isinstance(test, FunctionType):
            checks += _checks_of_function(test)
        else:
            source = read_file(test) if isinstance(test, Path) else test
            tree = parse(source)
            if name := next(_only_for_pytest(tree), None):
                raise ConfigError(
                    f"nothing calls {name!r} as pytest would: call it, or put the tests in a file, which "
                    "pytest runs."
                )
            for statement in tree.body:
                checks += _checks_of_statement(statement)
    if not any(check.counts for check in checks):
        raise ConfigError("tests holds nothing that could fail: write at least one assert.")
    return checks


_STATEMENTS_THAT_CHECK = (
    ast.Assert, ast.Expr, ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match,
)  # fmt: skip


def can_fail(statement: ast.stmt) -> bool:
    """Whether a statement is a test by itself, rather than a definition or a test that needs pytest."""
    if next(_only_for_pytest(ast.Module([statement], [])), None):
        return False
    return any(check.counts for check in _checks_of_statement(statement))


def _checks_of_statement(statement: ast.stmt) -> list[PythonCheck]:
    if isinstance(statement, ast.Assert) and (call := _call_of(statement.test)):
        return [call]
    source = ast.unparse(statement)
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if is_text or source.startswith(("if __name__ ==", "unittest.main(")):
        return []
    check = PythonCheck("exec", source, counts=isinstance(statement, _STATEMENTS_THAT_CHECK))
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        if statement.name.startswith("test") and not _required(statement):
            return [check, _call_to(statement)]
    elif isinstance(statement, ast.ClassDef):
        return [check, *_checks_of_class(statement)]
    return [check]


def _call_of(test: ast.expr) -> PythonCheck | None:
    """The call in `<expression> == <literal>`, either way round; None for anything else."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    for call, literal in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        try:
            return PythonCheck("eval", ast.unparse(call), ast.literal_eval(literal))
        except (ValueError, TypeError):  # not a literal
            continue
    return None


def _required(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of the parameters that have no default."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    named = [
        arg
        for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return [arg.arg for arg in positional[: len(positional) - len(arguments.defaults)] + named]


def _call_to(function: ast.FunctionDef | ast.AsyncFunctionDef, arguments: Sequence[str] = ()) -> PythonCheck:
    """Call a test function; an async function in its own event loop."""
    call = f"{function.name}({', '.join(arguments)})"
    if isinstance(function, ast.AsyncFunctionDef):
        return PythonCheck("exec", f"__import__('asyncio').run({call})", name=call)
    return PythonCheck("exec", call)


def _checks_of_class(definition: ast.ClassDef) -> Iterator[PythonCheck]:
    if not _is_test_class(definition):
        return
    for method in _tests_in(definition.body):
        name = f"{definition.name}.{method.name}()"
        if _bases(definition):
            yield PythonCheck("exec", f"{definition.name}({method.name!r}).debug()", name=name)
        elif isinstance(method, ast.AsyncFunctionDef):
            call = f"{definition.name}().{method.name}()"
            yield PythonCheck("exec", f"__import__('asyncio').run({call})", name=name)
        else:
            yield PythonCheck("exec", f"{definition.name}().{method.name}()", name=name)


def _tests_in(body: Iterable[ast.stmt]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [function for function in functions if function.name.startswith("test")]


def _is_test_class(definition: ast.ClassDef) -> bool:
    """Whether pytest would collect a class: by its name, or as a `unittest.TestCase`."""
    return definition.name.startswith("Test") or any(base.endswith("TestCase") for base in _bases(definition))


def _bases(definition: ast.ClassDef) -> list[str]:
    return [ast.unparse(base) for base in definition.bases]


_HOOKS = re.compile(r"(?:setup|teardown)_(?:module|function|class|method)|(?:setUp|tearDown)(?:Module|Class)")


def _only_for_pytest(tree: ast.Module) -> Iterator[str]:
    """Yield the functions and classes of tests that need more than a call, such as fixtures."""
    mentioned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    yield from (test.name for test in _tests_in(tree.body) if _required(test) and test.name not in mentioned)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and _HOOKS.fullmatch(node.name):
            yield node.name
        elif isinstance(node, ast.ClassDef) and _is_test_class(node):
            takes_more = any(len(_required(test)) > 1 for test in _tests_in(node.body))
            if takes_more or any(not base.endswith("TestCase") for base in _bases(node)):
                yield node.name


# Test functions.


def _checks_of_function(function: FunctionType) -> list[PythonCheck]:
    """Read a test function with the names that it uses; its parameters are names that the draft defines."""
    definition = _definition(function)
    before = [PythonCheck("exec", source, counts=False) for source in _uses(function, definition, set())]
    return [
        *before,
        PythonCheck("exec", ast.unparse(definition), counts=False),
        _call_to(definition, _required(definition)),
    ]


def _definition(function: FunctionType) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The source of a function as a syntax tree, without annotations; raises `ConfigError`."""
    name = function.__qualname__
    try:
        definition, *others = ast.parse(dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError) as error:
        raise ConfigError(
            f"the source of the function {name!r} can't be read ({error}): put it in a file."
        ) from error
    # From Python 3.13 on, a function made by `eval` seems to have the beginning of the program as its source.
    if others or getattr(definition, "name", function.__name__) != function.__name__:
        raise ConfigError(f"the source of the function {name!r} can't be read: put it in a file.")
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        raise ConfigError(f"{name!r} must be a function defined by def.")
    if definition.decorator_list:
        raise ConfigError(f"the function {name!r} has a decorator: put it in a test file for pytest.")
    for node in ast.walk(definition):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return definition


def _uses(
    function: FunctionType,
    definition: ast.FunctionDef | ast.AsyncFunctionDef,
    seen: set[str],
) -> Iterator[str]:
    """Yield the source of the imports, constants and functions that a function uses.

    Names that are defined nowhere are left to the draft. Raises `ConfigError` for values that can't enter the
    jail.
    """
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    around = {**function.__globals__, **{name: _content(cell) for name, cell in cells}}
    nodes = [node for node in ast.walk(definition) if isinstance(node, ast.Name)]
    local = {node.id for node in nodes if not isinstance(node.ctx, ast.Load)}
    local |= {node.arg for node in ast.walk(definition) if isinstance(node, ast.arg)}
    for name in dict.fromkeys(node.id for node in nodes):
        if name in local or name in seen or name not in around:
            continue
        seen.add(name)
        value = around[name]
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            inner = _definition(value)
            yield from _uses(value, inner, seen)
            inner.name = name
            yield ast.unparse(inner)
        elif source := _import_of(name, value) or _literal(name, value):
            yield source
        else:
            raise ConfigError(
                f"the function {function.__qualname__!r} uses {name!r}, which can't be taken into the jail: "
                "import it in the function, or, if the draft defines it, make it a parameter."
            )


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _NOTHING


def _import_of(name: str, value: Any) -> str:
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}" if _is_standard(value.__name__) else ""
    module, inner = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not module or not _is_standard(module) or getattr(sys.modules[module], inner, None) is not value:
        return ""
    return f"from {module} import {inner} as {name}"


def _literal(name: str, value: Any) -> str:
    try:
        return f"{name} = {value!r}" if ast.literal_eval(repr(value)) == value else ""
    except (ValueError, SyntaxError, TypeError, RecursionError):
        return ""


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


# Test files.


def read_file(path: Path) -> str:
    """The text of a test file; raises `ConfigError` if there is none."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the test file {str(path)!r} can't be read: {error}.") from error


def files_of_tests(paths: Iterable[Path], draft: str) -> dict[str, str]:
    """The sources, by file name, of test files and of the modules in their folders that they import.

    Raises `ConfigError` for a test file that does not import `draft`, the module of the draft: it would test
    something else.
    """
    files: dict[str, str] = {}
    for path in paths:
        if path.name in files:
            raise ConfigError(f"two test files have the name {path.name!r}: rename one of them.")
        files[path.name] = read_file(path)
        if draft not in _imported(parse(files[path.name])):
            raise ConfigError(
                f"the test file {str(path)!r} doesn't import {draft!r}, the module of the draft: name the "
                "module that it tests as 'file', such as \"median.py\"."
            )
        files |= _neighbour_modules(path, files[path.name], {draft})
    return files


def _neighbour_modules(path: Path, source: str, seen: set[str]) -> dict[str, str]:
    files: dict[str, str] = {}
    for module in _imported(parse(source)) - seen:
        neighbour = path.with_name(f"{module}.py")
        if neighbour.is_file():
            seen.add(module)
            files[neighbour.name] = read_file(neighbour)
            files |= _neighbour_modules(neighbour, files[neighbour.name], seen)
    return files


def needs_pytest(source: str, files: Iterable[str], draft: str) -> bool:
    """Whether a test file needs pytest: for fixtures, or for imports outside the standard library."""
    tree = parse(source)
    local = {draft, *(name.partition("/")[0].removesuffix(".py") for name in files)}
    others = any(module not in local and not _is_standard(module) for module in _imported(tree))
    return others or next(_only_for_pytest(tree), None) is not None


def _imported(tree: ast.AST) -> set[str]:
    """The top-level modules that are imported anywhere in a source."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules


# Comparison of values.

RELATIVE = 1e-9
ABSOLUTE = 1e-12
"""Tolerance near zero, so that 0.1 + 0.2 - 0.3 counts as 0."""


def agree(returned: Any, expected: Any) -> bool:
    """Whether the JSON that `plain` made in the jail represents the value `expected`.

    Equality is Python's, except that floats only have to be close, and tuples equal lists.
    """
    try:
        return _equal(returned, plain(expected))
    except RecursionError:
        return False


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, int | float) and isinstance(second, int | float):
        if isinstance(first, int) and isinstance(second, int):
            return first == second
        return math.isclose(first, second, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(first, list) and isinstance(second, list):
        items, others = cast("list[Any]", first), cast("list[Any]", second)
        return len(items) == len(others) and all(map(_equal, items, others))
    if isinstance(first, dict) and isinstance(second, dict):
        fields, expected = cast("dict[str, Any]", first), cast("dict[str, Any]", second)
        if fields.keys() != expected.keys() or "__other__" in fields:
            return False
        return all(_equal(fields[key], expected[key]) for key in expected)
    return bool(type(first) is type(second) and first == second)  # pyright: ignore[reportUnknownArgumentType] (a text or None)
