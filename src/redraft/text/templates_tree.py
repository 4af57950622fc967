"""The syntax tree of a template: what it may hold, what is bounded in it, and what it reads."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, cast

from jinja2 import TemplateSyntaxError, nodes

from redraft.core.nearest import nearest
from redraft.text.templates_budget import TemplateError, TemplateLimitError
from redraft.text.templates_sandbox import sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    """Return the checked tree of a template; raises `TemplateError` with the line of what is wrong."""
    if len(source) > MAX_SOURCE:
        raise TemplateLimitError(f"the template is {len(source):,} characters long; at most {MAX_SOURCE:,}")
    try:
        tree = sandbox().parse(source)
        _check_all(tree, 0, 0, iter(range(MAX_NODES)))
    except TemplateSyntaxError as error:
        raise TemplateError((error.message or "it does not parse").rstrip("."), error.lineno) from error
    except RecursionError as error:
        raise TemplateLimitError("the template is nested too deep") from error
    except ValueError as error:  # a number of thousands of digits
        raise TemplateError(str(error)) from error
    return tree


def _check_all(node: nodes.Node, level: int, loops: int, room: Iterator[int]) -> None:
    """Check a node and all inside it; refuse what is nested deeper than Python could compile it.

    Python nests at most twenty blocks, and a hundred brackets.
    """
    if next(room, None) is None:
        raise TemplateLimitError(f"the template has more than {MAX_NODES:,} parts")
    _check(node)
    loops += isinstance(node, _BLOCKS)
    if level > MAX_LEVELS or loops > MAX_LOOPS:
        raise TemplateLimitError(f"nested too deep; at most {MAX_LOOPS} blocks", node.lineno)
    # A chain of `elif` is a list, not a depth.
    for child in _children(node):
        _check_all(child, level + 1, loops, room)


def _children(node: nodes.Node) -> list[nodes.Node]:
    """Return the nodes right inside a node; Jinja2's own way is a third of the time that a file takes."""
    found: list[nodes.Node] = []
    for field in node.fields:
        value: Any = getattr(node, field)
        if isinstance(value, nodes.Node):
            found.append(value)
        elif isinstance(value, list):
            found += [part for part in cast("list[Any]", value) if isinstance(part, nodes.Node)]
    return found


def _check(node: nodes.Node) -> None:
    name = _STATEMENTS.get(type(node))
    if name is not None:
        raise TemplateError(f"'{{% {name} %}}' is not allowed: a template stands alone", node.lineno)
    if not isinstance(node, _ALLOWED):
        raise TemplateError(f"{type(node).__name__!r} is not allowed in a template", node.lineno)
    if isinstance(node, nodes.Name):
        _check_name(node)
    elif isinstance(node, nodes.Const) and node.value == inf:  # Python has no way to write it
        raise TemplateError("a number is larger than numbers can be", node.lineno)
    elif isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        raise TemplateError(f"names that begin with '_' can't be read: {node.attr!r}", node.lineno)
    elif isinstance(node, nodes.Filter):
        _check_known("filter", node, sandbox().filters)
    elif isinstance(node, nodes.Test):
        _check_known("test", node, sandbox().tests)
    elif isinstance(node, nodes.For) and node.recursive:
        raise TemplateError("a loop may not be recursive", node.lineno)
    elif isinstance(node, nodes.Macro):
        _check_macro(node)


def _check_known(kind: str, node: nodes.Filter | nodes.Test, known: Mapping[str, Any]) -> None:
    if node.name not in known:
        raise TemplateError(
            f"there is no {kind} {node.name!r}; {nearest(str(node.name), known)}", node.lineno
        )


def _check_name(node: nodes.Name) -> None:
    if node.name.startswith("_"):
        raise TemplateError(f"names that begin with '_' can't be used: {node.name!r}", node.lineno)
    if node.ctx != "load" and node.name in _RESERVED:
        raise TemplateError(f"{node.name!r} can't be set: Jinja2 uses it itself", node.lineno)


def _check_macro(node: nodes.Macro) -> None:
    arguments = [argument.name for argument in node.args]
    if len(set(arguments)) < len(arguments) or node.name.startswith("_"):
        raise TemplateError(f"the macro {node.name!r} needs another name, or other arguments", node.lineno)
    if any(name.name == node.name for name in node.find_all(nodes.Name)):
        raise TemplateError(f"the macro {node.name!r} may not call itself", node.lineno)


def lone_expression(tree: nodes.Template) -> nodes.Expr | None:
    """Return the expression of a template that is nothing but one; blanks around it do not count."""
    parts = [part for part in tree.body if not isinstance(part, nodes.Output)]
    outputs = [part for output in tree.body if isinstance(output, nodes.Output) for part in output.nodes]
    told = [part for part in outputs if not (isinstance(part, nodes.TemplateData) and not part.data.strip())]
    return told[0] if not parts and len(told) == 1 and not isinstance(told[0], nodes.TemplateData) else None


def bound(node: nodes.Node) -> Any:
    """Rewrite a tree in place so that everything it does is counted; returns the node that replaces it."""
    where = _dotted(node)
    for field, value in list(node.iter_fields()):
        if isinstance(value, list):
            parts = cast("list[Any]", value)
            setattr(node, field, [bound(part) if isinstance(part, nodes.Node) else part for part in parts])
        elif isinstance(value, nodes.Node):
            setattr(node, field, bound(value))
    return _bound_expression(node, where) if isinstance(node, nodes.Expr) else _bound_statement(node)


def _bound_statement(node: nodes.Node) -> nodes.Node:
    if isinstance(node, nodes.For):
        node.iter = _call("_each", node.iter, nodes.Const(_written(node.body)))
    elif isinstance(node, nodes.Macro | nodes.CallBlock):
        entry = _call("_enter", nodes.Const(_written(node.body), lineno=node.lineno))
        node.body.insert(0, nodes.Output([entry], lineno=node.lineno))
    return node


def _bound_expression(node: nodes.Expr, where: Path | None) -> nodes.Expr:
    if isinstance(node, nodes.Getattr | nodes.Getitem):
        return _access(node, where)
    if isinstance(node, nodes.Concat):
        return _call("_concat", *node.nodes)
    if isinstance(node, nodes.List | nodes.Dict) or (isinstance(node, nodes.Tuple) and node.ctx == "load"):
        return _call("_kept", node)
    if isinstance(node, nodes.Compare):
        node.expr = _call("_step", node.expr)
    elif isinstance(node, nodes.CondExpr) and node.expr2 is None:
        node.expr2 = nodes.Const("", lineno=node.lineno)
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        node.node.attr = "." + node.node.attr.partition("\n")[0]
    return node


def _access(node: nodes.Getattr | nodes.Getitem, where: Path | None) -> nodes.Expr:
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _call("_kept", node)
        if not (isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) and node.arg.value):
            return node
        return node if where is None else _getattr(node, node.arg.value, where)
    return _getattr(node, node.attr, where or ())


def _getattr(node: nodes.Getattr | nodes.Getitem, name: str, where: Path) -> nodes.Expr:
    """Make the look-up of a key that also says where it stands, for the error that may come of it."""
    if name.startswith(".") or "\n" in name:
        return node  # a key of data that looks like one of our marks
    attribute = f"{name}\n{'.'.join(map(str, where[:-1]))}"
    return nodes.Getattr(node.node, attribute, "load", lineno=node.lineno)


def _call(name: str, *arguments: nodes.Node) -> nodes.Expr:
    lineno = arguments[0].lineno
    return nodes.Call(nodes.Name(name, "load", lineno=lineno), list(arguments), [], None, None, lineno=lineno)


def _written(body: list[nodes.Node]) -> int:
    """Count the characters that a body writes by itself, each time."""
    return sum(len(part.data) for node in body for part in _data(node))


def _data(node: nodes.Node) -> Iterator[nodes.TemplateData]:
    return node.find_all(nodes.TemplateData)


def reads(tree: nodes.Template) -> tuple[frozenset[Path], frozenset[Path]]:
    """Return the paths that a tree reads, and those among them that may be missing.

    A name that the template sets itself, as a loop does, is no path.
    """
    found = _Reads()
    found.collect(tree)
    own = found.own | set(_RESERVED) | set(sandbox().globals)
    return (
        frozenset(path for path in found.paths if path[0] not in own),
        frozenset(path for path in found.optional if path[0] not in own),
    )


class _Reads:
    """Collect what a tree reads: paths, those among them that may be missing, and names of its own."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        self.optional: set[Path] = set()
        self.own: set[str] = set()

    def collect(self, node: nodes.Node) -> None:
        path = _dotted(node)
        if path is not None:
            self.paths.add(path)
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            self._collect_call(node, node.node)
        else:
            if isinstance(node, nodes.Name | nodes.Macro):
                self.own.add(node.name)
            elif isinstance(node, nodes.Filter | nodes.Test) and str(cast("Any", node).name) in _GUARDS:
                guarded = _dotted(node.node) if node.node is not None else None
                self.optional |= {guarded} if guarded is not None else set()
            for child in _children(node):
                self.collect(child)

    def _collect_call(self, call: nodes.Call, method: nodes.Getattr) -> None:
        holder, key = _dotted(method.node), call.args[0] if call.args else None
        if holder is not None and method.attr == "get" and isinstance(key, nodes.Const):
            self.paths.add((*holder, key.value))
            self.optional.add((*holder, key.value))
        else:
            self.collect(method.node)
        for argument in _children(call):
            if argument is not method:
                self.collect(argument)


def _dotted(node: nodes.Node) -> Path | None:
    """Return `state.user["email"]` as a path of names and positions, or None for what is computed."""
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
