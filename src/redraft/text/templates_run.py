"""Running a template's tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError as JinjaError
from jinja2 import nodes

from redraft.text.templates_budget import Limits, TemplateError, TemplateLimitError, plain
from redraft.text.templates_sandbox import sandbox
from redraft.text.templates_tree import bound, lone_expression

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jinja2 import Template

_RESULT = "result"
# What look-ups, filters and operators raise for values that do not fit them.
_FAILURES = (
    *(JinjaError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError),
    AssertionError,  # `truncate`, to less than its end
)


def compiled(tree: nodes.Template) -> Callable[[Mapping[str, Any], Limits], Any]:
    """Compile a checked tree into a function that renders it; the tree is used up."""
    lone = lone_expression(tree)
    if lone is not None:
        target = nodes.Name(_RESULT, "store", lineno=lone.lineno)
        tree = nodes.Template([nodes.Assign(target, bound(lone), lineno=lone.lineno)], lineno=1)
    else:
        bound(tree)
    tree.set_environment(sandbox())
    try:
        template = sandbox().from_string(tree)
    except (JinjaError, SyntaxError, RecursionError) as error:
        raise TemplateError(f"it does not compile: {error}") from error
    finish = _value if lone is not None else _text
    first = lone.lineno if lone is not None else None

    def run(scopes: Mapping[str, Any], limits: Limits) -> Any:
        try:
            return finish(template, scopes, limits)
        except TemplateError as error:
            raise type(error)(error.message, _line(error, template) or first) from error
        except RecursionError as error:
            raise TemplateLimitError("it calls itself, or is nested, too deep") from error
        except _FAILURES as error:
            raise TemplateError(str(error), _line(error, template) or first) from error

    return run


def _value(template: Template, scopes: Mapping[str, Any], _limits: Limits) -> Any:
    context = template.new_context(scopes)  # pyright: ignore[reportArgumentType] (it makes a dict of it)
    for _ in template.root_render_func(context):
        pass
    return plain(context.vars[_RESULT])


def _text(template: Template, scopes: Mapping[str, Any], limits: Limits) -> str:
    parts: list[str] = []
    length = 0
    for part in template.root_render_func(template.new_context(scopes)):  # pyright: ignore[reportArgumentType] (it makes a dict of it)
        length += len(part)
        if length > limits.output:
            raise TemplateLimitError(f"the template writes more than {limits.output:,} characters")
        parts.append(part)
    return "".join(parts)


def _line(error: Exception, template: Template) -> int | None:
    """Return the line of the template that was at work when an error came."""
    line: int | None = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == template.filename:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line
