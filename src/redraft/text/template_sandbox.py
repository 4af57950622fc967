"""The Jinja sandbox: parse, check and compile templates, with bounded work and no attribute access."""

from __future__ import annotations

import html
import json
import re
from functools import lru_cache, partial, wraps
from math import inf
from typing import TYPE_CHECKING, Any, cast

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes, pass_context
from jinja2 import TemplateError as JinjaError
from jinja2.filters import (
    FILTERS,
    _GroupTuple,  # pyright: ignore[reportPrivateUsage] (what `groupby` returns has no public name)
)
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from redraft._validation import nearest
from redraft.errors import OutputError
from redraft.text.replies import json_of
from redraft.text.template_budget import (
    BUDGET,
    MAX_BITS,
    TemplateError,
    TemplateLimitError,
    TemplateLimits,
    bounded_value,
    each,
    plain,
    take_room,
    take_step,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jinja2 import Template
    from jinja2.runtime import Context


MAX_SOURCE = 200_000
MAX_NODES = 20_000
MAX_LOOPS = 10
MAX_LEVELS = 100

Path = tuple[str | int, ...]

_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.With, nodes.FilterBlock),
    *(nodes.Macro, nodes.CallBlock, nodes.Assign, nodes.AssignBlock, nodes.Name, nodes.NSRef, nodes.Const),
    *(nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.CondExpr, nodes.Filter),
    *(nodes.Test, nodes.Call, nodes.Getitem, nodes.Getattr, nodes.Slice, nodes.Concat, nodes.Compare),
    *(nodes.Operand, nodes.BinExpr, nodes.UnaryExpr),
)
_STATEMENTS: dict[type[nodes.Node], str] = {
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from",
    nodes.Extends: "extends",
    nodes.Block: "block",
    nodes.ScopedEvalContextModifier: "autoescape",
}
_BLOCKS = (nodes.For, nodes.If, nodes.Macro, nodes.With, nodes.CallBlock)
_GUARDS = ("default", "d", "defined", "undefined")
_RESERVED = ("loop", "self", "caller", "varargs", "kwargs", "super")


def parse(source: str) -> nodes.Template:
    """Parse and check a template; raises `TemplateError` with the line of the mistake."""
    if len(source) > MAX_SOURCE:
        raise TemplateLimitError(f"the template is {len(source):,} characters long; at most {MAX_SOURCE:,}")
    try:
        tree = sandbox().parse(source)
        _check_all(tree, 0, 0, iter(range(MAX_NODES)))
    except TemplateSyntaxError as error:
        raise TemplateError(_syntax_message(error.message or ""), error.lineno) from error
    except RecursionError as error:
        raise TemplateLimitError("the template is nested too deeply") from error
    except ValueError as error:  # a number with thousands of digits
        raise TemplateError(str(error)) from error
    return tree


_UNEXPECTED = re.compile(r"expected token 'end of (?:print statement|statement block)', got (.+)", re.DOTALL)


def _syntax_message(message: str) -> str:
    """Reword messages about tokens of Jinja2, which the author of a condition has not written."""
    match = _UNEXPECTED.fullmatch(message)
    if match is None:
        return message.rstrip(".") or "it does not parse"
    return "to compare, write '==' instead of '='" if match[1] == "'='" else f"unexpected {match[1]}"


# Compile and run.

_RESULT = "result"
# Errors of look-ups, filters and operators for values that they can't handle.
_FAILURES = (
    *(JinjaError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError),
    AssertionError,  # from `truncate` to less than its ellipsis
)


def compile_tree(tree: nodes.Template) -> Callable[[Mapping[str, Any], TemplateLimits], Any]:
    """Compile a checked tree into a function that renders it; the changed tree can't be used again."""
    lone = lone_expression(tree)
    if lone is not None:
        target = nodes.Name(_RESULT, "store", lineno=lone.lineno)
        tree = nodes.Template([nodes.Assign(target, rewrite(lone), lineno=lone.lineno)], lineno=1)
    else:
        rewrite(tree)
    tree.set_environment(sandbox())
    try:
        template = sandbox().from_string(tree)
    except (JinjaError, SyntaxError, RecursionError) as error:
        raise TemplateError(f"it does not compile: {error}") from error
    finish = _value if lone is not None else _text
    first = lone.lineno if lone is not None else None

    def run(scopes: Mapping[str, Any], limits: TemplateLimits) -> Any:
        try:
            return finish(template, scopes, limits)
        except TemplateError as error:
            raise type(error)(error.message, _line(error, template) or first) from error
        except RecursionError as error:
            raise TemplateLimitError("its calls or its values are nested too deeply") from error
        except _FAILURES as error:
            raise TemplateError(str(error), _line(error, template) or first) from error

    return run


def _value(template: Template, scopes: Mapping[str, Any], _limits: TemplateLimits) -> Any:
    context = template.new_context(scopes)  # pyright: ignore[reportArgumentType] (it makes a dict of it)
    for _ in template.root_render_func(context):
        pass
    return plain(context.vars[_RESULT])


def _text(template: Template, scopes: Mapping[str, Any], limits: TemplateLimits) -> str:
    parts: list[str] = []
    length = 0
    for part in template.root_render_func(template.new_context(scopes)):  # pyright: ignore[reportArgumentType] (it makes a dict of it)
        length += len(part)
        if length > limits.output:
            raise TemplateLimitError(f"the template writes more than {limits.output:,} characters")
        parts.append(part)
    return "".join(parts)


def _line(error: Exception, template: Template) -> int | None:
    """The line of the template at which an error was raised; None if it is unknown."""
    line: int | None = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == template.filename:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


# Check every node.


def _check_all(node: nodes.Node, level: int, loops: int, room: Iterator[int]) -> None:
    """Check a node and all nodes inside it, and that Python can compile their nesting.

    Python allows about twenty nested blocks and a hundred nested brackets.
    """
    if next(room, None) is None:
        raise TemplateLimitError(f"the template has more than {MAX_NODES:,} parts")
    _check(node)
    loops += isinstance(node, _BLOCKS)
    if level > MAX_LEVELS or loops > MAX_LOOPS:
        raise TemplateLimitError(f"nested too deep; at most {MAX_LOOPS} blocks", node.lineno)
    # A chain of `elif` is a list, so it adds no depth.
    for child in node.iter_child_nodes():
        _check_all(child, level + 1, loops, room)


def _check(node: nodes.Node) -> None:
    name = _STATEMENTS.get(type(node))
    if name is not None:
        raise TemplateError(
            f"'{{% {name} %}}' is not allowed: a template can't use other templates", node.lineno
        )
    if not isinstance(node, _ALLOWED):
        raise TemplateError(f"{type(node).__name__!r} is not allowed in a template", node.lineno)
    if isinstance(node, nodes.Name):
        _check_name(node)
    elif isinstance(node, nodes.Const) and node.value == inf:  # Python has no literal for it
        raise TemplateError("a number is too large", node.lineno)
    elif isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        raise TemplateError(f"names that begin with '_' can't be read: {node.attr!r}", node.lineno)
    elif isinstance(node, nodes.Filter):
        _check_known("filter", node, sandbox().filters)
    elif isinstance(node, nodes.Test):
        _check_known("test", node, sandbox().tests)
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        _check_method(node.node)
    elif isinstance(node, nodes.Mod) and (
        isinstance(node.left, nodes.Const) and isinstance(node.left.value, str)
    ):
        raise TemplateError(NO_FORMAT, node.lineno)
    elif isinstance(node, nodes.For) and node.recursive:
        raise TemplateError("a loop may not be recursive", node.lineno)
    elif isinstance(node, nodes.Macro):
        _check_macro(node)


INSTEAD_OF_FILTER = {
    "attr": "write 'x.name' or 'x[name]'",
    "format": "write '~' between the parts, and 'round' for decimals",
    "pprint": "write 'tojson(indent=2)'",
    "random": "a template gives the same text each time; choose in code",
    "striptags": "do that in code",
    "urlize": "do that in code",
    "wordwrap": "do that in code",
    "xmlattr": "write the attributes out, with 'escape' for the values",
}
"""Unavailable filters of Jinja2, each with advice on a replacement."""
INSTEAD_OF_METHOD = {
    "append": "a template can't change values; write 'x + [y]'",
    "extend": "a template can't change values; write 'x + y'",
    "format": "write '~' between the parts",
    "pop": "a template can't change values; write 'x[:-1]'",
    "setdefault": "a template can't change values; write 'x.get(key, default)'",
    "update": "a template can't change values; write 'dict(x, key=value)'",
}


def _check_known(kind: str, node: nodes.Filter | nodes.Test, allowed: Mapping[str, Any]) -> None:
    if node.name not in allowed:
        instead = INSTEAD_OF_FILTER.get(str(node.name)) if kind == "filter" else None
        hint = instead or nearest(str(node.name), allowed)
        raise TemplateError(f"unknown {kind} {node.name!r}; {hint}", node.lineno)


def _check_method(node: nodes.Getattr) -> None:
    methods = sorted({*_GROWING}.union(*_METHODS.values()))
    if node.attr not in methods:
        hint = INSTEAD_OF_METHOD.get(node.attr) or nearest(node.attr, methods)
        raise TemplateError(f"there is no method {node.attr!r} that a template may call; {hint}", node.lineno)


NO_FORMAT = "'%' does not format strings in a template; use '~' or 'join'"


def _check_name(node: nodes.Name) -> None:
    if node.name.startswith("_"):
        raise TemplateError(f"names that begin with '_' can't be used: {node.name!r}", node.lineno)
    if node.ctx != "load" and node.name in _RESERVED:
        raise TemplateError(f"{node.name!r} can't be set: Jinja2 uses it itself", node.lineno)


def _check_macro(node: nodes.Macro) -> None:
    arguments = [argument.name for argument in node.args]
    if len(set(arguments)) < len(arguments) or node.name.startswith("_"):
        raise TemplateError(f"the macro {node.name!r} begins with '_', or has an argument twice", node.lineno)
    if any(name.name == node.name for name in node.find_all(nodes.Name)):
        raise TemplateError(f"the macro {node.name!r} may not call itself", node.lineno)


# The expression and the reads of a template.


def lone_expression(tree: nodes.Template) -> nodes.Expr | None:
    """The expression of a template that holds nothing else but white space; None for other templates."""
    parts = [part for part in tree.body if not isinstance(part, nodes.Output)]
    outputs = [part for output in tree.body if isinstance(output, nodes.Output) for part in output.nodes]
    written = [
        part for part in outputs if not (isinstance(part, nodes.TemplateData) and not part.data.strip())
    ]
    is_lone = not parts and len(written) == 1 and not isinstance(written[0], nodes.TemplateData)
    return written[0] if is_lone else None


def reads(tree: nodes.Template) -> tuple[frozenset[Path], frozenset[Path], frozenset[Path]]:
    """All paths that a tree reads, the optional paths among them, and the paths that every rendering reads.

    Names that the template itself sets, such as loop variables, are left out.
    """
    collected = _Reads()
    collected.collect(tree)
    own = collected.own | set(_RESERVED) | set(sandbox().globals)
    return (
        frozenset(path for path in collected.paths if path[0] not in own),
        frozenset(path for path in collected.optional if path[0] not in own),
        frozenset(path for path in collected.certain if path[0] not in own),
    )


_BRANCHES: dict[type[nodes.Node], tuple[str, ...]] = {
    nodes.If: ("body", "elif_", "else_"),
    nodes.CondExpr: ("expr1", "expr2"),
    nodes.And: ("right",),
    nodes.Or: ("right",),
    nodes.For: ("test", "body", "else_"),
    nodes.Macro: ("body", "defaults"),
    nodes.CallBlock: ("body", "defaults"),
    nodes.Call: ("args", "kwargs"),
    nodes.Filter: ("args", "kwargs"),
    nodes.Test: ("node",),
    nodes.Assign: ("node",),
    nodes.With: ("values",),
}
"""Fields of nodes whose values are not always read, or may be missing as long as they are not used:
`x is none`, `y | default(x)` and `{% set y = x %}` don't fail."""


class _Reads:
    """Collects the paths that a tree reads (see `reads`), and its own names."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        self.optional: set[Path] = set()
        self.certain: set[Path] = set()
        self.own: set[str] = set()

    def collect(self, node: nodes.Node, *, certain: bool = True) -> None:
        path = _dotted(node)
        if path is not None:
            self.paths.add(path)
            if certain:
                self.certain.add(path)
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            self._collect_call(node, node.node, certain=certain)
        else:
            if isinstance(node, nodes.Name | nodes.Macro):
                self.own.add(node.name)
            elif isinstance(node, nodes.Filter | nodes.Test) and str(cast("Any", node).name) in _GUARDS:
                guarded = _dotted(node.node) if node.node is not None else None
                self.optional |= {guarded} if guarded is not None else set()
            elif isinstance(node, nodes.If | nodes.CondExpr | nodes.For) and node.test is not None:
                self.optional |= _tested(node.test)
            elif isinstance(node, nodes.Or):
                self.optional |= _tested(node.left)
            elif isinstance(node, nodes.Not):
                self.optional |= _tested(node.node)
            branches = _BRANCHES.get(type(node), ())
            for child in node.iter_child_nodes(exclude=branches):
                self.collect(child, certain=certain)
            for child in node.iter_child_nodes(only=branches):
                self.collect(child, certain=False)

    def _collect_call(self, call: nodes.Call, method: nodes.Getattr, *, certain: bool) -> None:
        holder, key = _dotted(method.node), call.args[0] if call.args else None
        if holder is not None and method.attr == "get" and isinstance(key, nodes.Const):
            self.paths.add((*holder, key.value))
            self.optional.add((*holder, key.value))
        else:
            self.collect(method.node, certain=certain)
        for argument in call.iter_child_nodes():
            if argument is not method:
                self.collect(argument, certain=False)


def _tested(node: nodes.Node) -> set[Path]:
    """The paths of which an expression reads only the truth, so that they may be missing."""
    if isinstance(node, nodes.Not):
        return _tested(node.node)
    if isinstance(node, nodes.And | nodes.Or):
        return _tested(node.left) | _tested(node.right)
    path = _dotted(node)
    return set() if path is None else {path}


def _dotted(node: nodes.Node) -> Path | None:
    """The path of names and positions for `state.user["email"]`; None for a computed path."""
    if isinstance(node, nodes.Name):
        return (node.name,) if node.ctx == "load" else None
    if isinstance(node, nodes.Getattr):
        key: Any = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        key = node.arg.value
    else:
        return None
    holder = _dotted(node.node)
    return None if holder is None or not isinstance(key, str | int) else (*holder, key)


# Rewrite a tree so that all work is counted.


def rewrite(node: nodes.Node) -> Any:
    """Rewrite a tree in place so that all its work is counted; return the node that replaces it."""
    where = _dotted(node)
    for field, value in list(node.iter_fields()):
        if isinstance(value, list):
            parts = cast("list[Any]", value)
            setattr(node, field, [rewrite(part) if isinstance(part, nodes.Node) else part for part in parts])
        elif isinstance(value, nodes.Node):
            setattr(node, field, rewrite(value))
    return _rewrite_expression(node, where) if isinstance(node, nodes.Expr) else _rewrite_statement(node)


def _rewrite_statement(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.For):
        node.iter = _call_of("_each", node.iter, nodes.Const(_text_length(node.body)))
    elif isinstance(node, nodes.Macro | nodes.CallBlock):
        entry = _call_of("_enter", nodes.Const(_text_length(node.body), lineno=node.lineno))
        node.body.insert(0, nodes.Output([entry], lineno=node.lineno))
    return node


def _rewrite_expression(node: nodes.Expr, where: Path | None) -> nodes.Expr:
    if isinstance(node, nodes.Getattr | nodes.Getitem):
        return _rewrite_access(node, where)
    if isinstance(node, nodes.Concat):
        return _call_of("_concat", *node.nodes)
    if isinstance(node, nodes.List | nodes.Dict) or (isinstance(node, nodes.Tuple) and node.ctx == "load"):
        return _call_of("_bounded", node)
    if isinstance(node, nodes.Compare):
        node.expr = _call_of("_step", node.expr)
    elif isinstance(node, nodes.CondExpr) and node.expr2 is None:
        node.expr2 = nodes.Const("", lineno=node.lineno)
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        node.node.attr = "." + node.node.attr.partition("\n")[0]
    return node


def _rewrite_access(node: nodes.Getattr | nodes.Getitem, where: Path | None) -> nodes.Expr:
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _call_of("_bounded", node)
        if not (isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) and node.arg.value):
            return node
        return node if where is None else _getattr(node, node.arg.value, where)
    return _getattr(node, node.attr, where or ())


def _getattr(node: nodes.Getattr | nodes.Getitem, name: str, where: Path) -> nodes.Expr:
    """A look-up that includes the path to its holder, for error messages."""
    if name.startswith(".") or "\n" in name:
        return node  # a key that resembles a mark of the sandbox
    attribute = f"{name}\n{'.'.join(map(str, where[:-1]))}"
    return nodes.Getattr(node.node, attribute, "load", lineno=node.lineno)


def _call_of(name: str, *arguments: nodes.Node) -> nodes.Expr:
    lineno = arguments[0].lineno
    return nodes.Call(nodes.Name(name, "load", lineno=lineno), list(arguments), [], None, None, lineno=lineno)


def _text_length(body: list[nodes.Node]) -> int:
    """Characters of literal text that a body writes each time."""
    return sum(len(part.data) for node in body for part in node.find_all(nodes.TemplateData))


# The environment in which templates run.

MAX_MACROS = 20
MAX_POWER = 64
MAX_KNOWN = 20

_TEXT_METHODS = """
capitalize casefold count endswith find index isalnum isalpha isdigit islower isnumeric isspace isupper lower
lstrip partition removeprefix removesuffix rfind rpartition rsplit rstrip split splitlines startswith strip
swapcase title upper
""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(_TEXT_METHODS),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    LoopContext: frozenset(("changed", "cycle")),
}
_LOOP = frozenset(
    ("index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem", "depth")
)


class Method:
    """A method that a template may call. Otherwise, only macros and the sandbox's globals are callable."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class Missing(StrictUndefined):
    """A missing value: false in a condition, it raises an error with the missing name in any other use."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    @property
    def missing_message(self) -> str:
        """The missing name, and the closest name that exists."""
        return self._undefined_message

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint
        return (
            f"there is no {self._undefined_name!r}; {nearest(str(self._undefined_name), BUDGET.get().scopes)}"
        )


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment for plain data only.

    `x.name` and `x["name"]` are the same look-up of a key, so methods never hide data, and no look-up reaches
    a method. `rewrite` marks the calls of methods, and routes operations that Python would not count
    (literals, slices, comparisons, `~`) through the functions below.
    """

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        # Not optimized: constant expressions would be computed while compiling, without limits.
        super().__init__(undefined=Missing, optimized=False, keep_trailing_newline=True, finalize=_finalize)
        self.filters = filters()
        self.tests = {name: bounded_function(name, test) for name, test in self.tests.items()}
        self.globals = {"range": _range, "dict": _dict, "namespace": Namespace}
        self.globals |= {
            "_each": each,
            "_bounded": bounded_value,
            "_concat": _concat,
            "_step": _step,
            "_enter": _enter,
        }
        self.callable = frozenset(self.globals.values())

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up an item by its name, which may include a mark for methods and the path to the holder."""
        name, _, where = attribute.partition("\n")
        if name[0] == ".":
            return _method(obj, name[1:])
        return self._item(obj, name, where)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up an item by its key or position."""
        return self._item(obj, argument, "")

    def _item(self, obj: Any, key: Any, where: str) -> Any:
        take_step()
        if isinstance(obj, Undefined):
            return obj  # errors name the first part that is missing
        if isinstance(obj, dict):
            if key in obj:
                return obj[key]  # pyright: ignore[reportUnknownVariableType] (any JSON)
        elif isinstance(obj, list | tuple | str | range) and isinstance(key, int):
            if -len(obj) <= key < len(obj):  # pyright: ignore[reportUnknownArgumentType] (any JSON)
                return obj[key]  # pyright: ignore[reportUnknownVariableType] (any JSON)
        elif isinstance(key, str) and not key.startswith("_") and _has_attribute(obj, key):
            return getattr(cast("Any", obj), key)
        return Missing(_missing(obj, key, where))

    def call(self, context: Context, function: Any, /, *args: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] (the options are wider)
        """Call a method, a macro or a global of the sandbox; anything else raises `TemplateError`."""
        take_step()
        options.pop("_loop_vars", None)
        options.pop("_block_vars", None)
        if isinstance(function, Method):
            return _bounded_result(function.function(*args, **options))
        if isinstance(function, Macro):
            return self._call_macro(context, function, *args, **options)
        if isinstance(function, Undefined):
            return cast("Any", function)()
        try:
            is_callable = function in self.callable
        except TypeError:
            is_callable = False
        if not is_callable:
            raise TemplateError(f"a {type(function).__name__} can't be called in a template")
        return _bounded_result(function(*args, **options))

    def _call_macro(self, context: Context, macro: Macro, *args: Any, **options: Any) -> Any:
        budget = BUDGET.get()
        budget.depth += 1
        if budget.depth > MAX_MACROS:
            raise TemplateLimitError(f"macros call each other deeper than {MAX_MACROS} levels")
        try:
            return context.call(macro, *args, **options)
        finally:
            budget.depth -= 1

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator, unless its result would be too large."""
        take_step()
        if operator == "%" and isinstance(left, str):
            raise TemplateError(NO_FORMAT)
        if operator == "*":
            _check_product(left, right)
        elif operator == "**" and not _is_small_power(left, right):
            raise TemplateLimitError(f"a power is too large; at most 64 bits to the {MAX_POWER}")
        return bounded_value(super().call_binop(context, operator, left, right))


@lru_cache(maxsize=1)
def sandbox() -> Sandbox:
    """The environment that all templates share; it has no state."""
    return Sandbox()


@pass_context  # also keeps Jinja from computing constants while compiling
def _finalize(_context: Context, value: Any) -> str:
    take_step()
    text = text_of(value)
    take_room(len(text))
    return text


def _has_attribute(obj: Any, name: str) -> bool:
    if isinstance(obj, LoopContext):
        return name in _LOOP
    if isinstance(obj, _GroupTuple):
        return name in ("grouper", "list")
    return isinstance(obj, Namespace) and hasattr(obj, name)  # a namespace exposes only its own data


def _method(obj: Any, name: str) -> Any:
    if isinstance(obj, Undefined):
        return obj
    if isinstance(obj, str) and name in _GROWING:
        return Method(partial(_GROWING[name], obj))
    for kind, names in _METHODS.items():
        if isinstance(obj, kind) and name in names:
            return Method(getattr(kind, name).__get__(obj))
    raise TemplateError(f"{_name_of(obj)} has no method {name!r} that a template may call")


def _missing(obj: Any, key: Any, where: str) -> str:
    path = f"{where}.{key}: " if where else ""
    holder = repr(where.rpartition(".")[2]) if where else ""
    if isinstance(obj, dict):
        names = [str(name) for name in list(cast("dict[Any, Any]", obj))[:MAX_KNOWN]]
        hint = nearest(str(key), names) if names else "it is empty."
        return f"{path}{holder or 'a dict'} has no {key!r}; {hint}"
    if isinstance(obj, list | tuple | str) and isinstance(key, int):
        return f"{path}there is no [{key}] in {holder or _name_of(obj)} of {len(obj)}"  # pyright: ignore[reportUnknownArgumentType] (any JSON)
    what = _name_of(obj)
    return f"{path}{holder} is {what} and has no {key!r}" if holder else f"{what} has no {key!r}"


def _name_of(obj: Any) -> str:
    for kind, name in _NAMES.items():
        if isinstance(obj, kind):
            return name
    return "null" if obj is None else f"a {type(obj).__name__}"


_NAMES: dict[type, str] = {
    str: "a text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    tuple: "a list",
    list: "a list",
    dict: "a dict",
    LoopContext: "the loop",
}


def _check_product(left: Any, right: Any) -> None:
    for value, times in ((left, right), (right, left)):
        if isinstance(value, str | list | tuple) and isinstance(times, int):
            take_room(len(value) * max(times, 0))  # pyright: ignore[reportUnknownArgumentType] (any JSON)
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_BITS:
        raise TemplateLimitError(f"a number is too large; at most {MAX_BITS:,} bits")


def _is_small_power(base: Any, exponent: Any) -> bool:
    if not isinstance(exponent, int | float) or abs(exponent) > MAX_POWER:
        return False
    return not isinstance(base, int) or base.bit_length() <= MAX_POWER


def _bounded_result(value: Any) -> Any:
    return bounded_value(value) if value.__class__ in (str, list, tuple, dict, int) else value


def _concat(*values: Any) -> str:
    texts = [text_of(value) for value in values]
    take_room(sum(map(len, texts)))
    return "".join(texts)


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > BUDGET.get().limits.steps:
        raise TemplateLimitError(f"a range is too long; at most {BUDGET.get().limits.steps:,}")
    return numbers


def _dict(*pairs: Any, **items: Any) -> dict[str, Any]:
    return dict(*pairs, **items)


def _step(value: Any) -> Any:
    return value  # the call has taken the step


def _enter(written: int) -> str:
    take_room(written)
    return ""


# The filters.

MAX_PARAMETER = 10_000
MAX_ITEMS = 100_000

# Left out are filters that reach into objects, grow without bound, are slow on hostile texts, or are not
# deterministic. `safe` has no effect: nothing is escaped.
_HARMLESS = """
abs batch capitalize center count d default dictsort filesizeformat first float groupby int
items last length list lower map max min reject rejectattr reverse round select selectattr slice sort title
trim truncate unique upper urlencode wordcount
""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)


def filters() -> dict[str, Callable[..., Any]]:
    """The allowed filters by name, each with its limits."""
    own: dict[str, Callable[..., Any]] = {
        "tojson": to_json_text,
        "json": to_json_text,
        "fromjson": from_json_text,
        "join": join,
        "replace": replace,
        "indent": indent,
        "string": text_of,
        "sum": _sum,
        "escape": _escape,
        "e": _escape,
        "forceescape": _escape,
        "safe": _safe,
    }
    harmless = {name: FILTERS[name] for name in _HARMLESS}
    return {name: bounded_function(name, function) for name, function in (harmless | own).items()}


def bounded_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter or test so that it counts as a step and its numbers, lists and results are bounded."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0  # Jinja passes its context or environment first

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        take_step()
        for argument in (*args[first + 1 :], *options.values()):
            if isinstance(argument, int) and abs(argument) > MAX_PARAMETER:
                raise TemplateLimitError(f"{argument} is too large for {name!r}; at most {MAX_PARAMETER:,}")
        value = args[first] if len(args) > first else None
        if isinstance(value, list | tuple | dict) and len(value) > MAX_ITEMS and name not in _ANY_SIZE:  # pyright: ignore[reportUnknownArgumentType] (any JSON)
            raise TemplateLimitError(f"{name!r} takes at most {MAX_ITEMS:,} items")
        result = function(*args, **options)
        return each(result) if hasattr(result, "__next__") else bounded_value(result)

    return call


_ANY_SIZE = ("count", "d", "default", "defined", "first", "last", "length", "none", "undefined")


def to_json_text(value: Any, indent: int | None = None) -> str:
    """Encode a value as JSON without HTML escapes, since it goes into prompts."""
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= 8):  # pyright: ignore[reportUnnecessaryIsInstance] # noqa: PLR2004 (from a template; wider is unreadable)
        raise TemplateError(f"the indent of JSON must be a number from 0 to 8, got {indent!r}")
    return json.dumps(plain(value), ensure_ascii=False, indent=indent)


def from_json_text(value: Any) -> Any:
    """Read a string as JSON, bare or fenced; raises `TemplateError` unless it holds exactly one value."""
    if not isinstance(value, str):
        raise TemplateError(f"'fromjson' takes a string, got {text_of(value)[:80]}")
    try:
        return json_of(value)
    except OutputError as error:
        raise TemplateError(f"'fromjson': {error}") from error


def join(values: Iterable[Any], separator: Any = "", attribute: str | None = None) -> str:
    """Join values, or an attribute of each value, as text."""
    between = text_of(separator)
    parts: list[str] = []
    for value in each(values):
        part = text_of(value if attribute is None else _attribute(value, attribute))
        take_room(len(part) + len(between))
        parts.append(part)
    return between.join(parts)


def _attribute(value: Any, name: str) -> Any:
    if isinstance(value, dict) and name in value:
        return value[name]  # pyright: ignore[reportUnknownVariableType] (any JSON)
    raise TemplateError(f"'join': an item has no {name!r}")


def replace(value: Any, old: Any, new: Any, count: int = -1) -> str:
    """Replace a part of a string, everywhere or `count` times."""
    text, before, after = text_of(value), text_of(old), text_of(new)
    take_room(len(text) + text.count(before) * max(0, len(after) - len(before)))
    return text.replace(before, after, count)


def indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent the lines of a string; the first line only with `first`, blank lines only with `blank`."""
    margin = width if isinstance(width, str) else " " * width
    lines = text_of(value).split("\n")
    take_room(len(lines) * (len(margin) + 1))
    done = [
        line if (not number and not first) or not (line or blank) else margin + line
        for number, line in enumerate(lines)
    ]
    return "\n".join(done)


def _sum(values: Iterable[Any], attribute: str | None = None, start: float = 0) -> Any:
    if not isinstance(start, int | float):  # pyright: ignore[reportUnnecessaryIsInstance] (from a template)
        raise TemplateError("'sum' adds numbers; use 'join' for strings and '+' for lists")
    numbers = values if attribute is None else (_attribute(value, attribute) for value in values)
    return sum(each(numbers), start)


def _safe(value: Any) -> Any:
    return value


def _escape(value: Any) -> str:
    return html.escape(text_of(value))


def _join(separator: str, values: Iterable[Any]) -> str:
    return join(values, separator)


_GROWING: dict[str, Callable[..., str]] = {"join": _join, "replace": replace}
"""Bounded replacements for methods of strings whose results can be much larger than the string."""
