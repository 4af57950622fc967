"""Sandbox: Jinja2 over plain data, where no attribute of an object can be reached."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from jinja2 import StrictUndefined, pass_context
from jinja2.filters import _GroupTuple  # pyright: ignore[reportPrivateUsage] (what `groupby` yields)
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from redraft.core.nearest import nearest
from redraft.text import templates_filters
from redraft.text.templates_budget import (
    BUDGET,
    MAX_BITS,
    TemplateError,
    TemplateLimitError,
    each,
    kept,
    make,
    step,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jinja2.runtime import Context

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


def _join(separator: str, values: Iterable[Any]) -> str:
    return templates_filters.join(values, separator)


_GROWING: dict[str, Callable[..., str]] = {"join": _join, "replace": templates_filters.replace}
"""Methods of texts whose result can be much larger than the text: ours take their place."""


class Method:
    """Hold a method that a template may call; nothing else is ever callable but macros and our globals."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


class Missing(StrictUndefined):
    """Be what is not there: it says which part was missing as soon as somebody needs it."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint
        return (
            f"there is no {self._undefined_name!r}; {nearest(str(self._undefined_name), BUDGET.get().scopes)}"
        )


class Sandbox(ImmutableSandboxedEnvironment):
    """Render over plain data only.

    `x.name` and `x["name"]` are the same look-up of a key, so that data never hides behind a method and no
    method is reached by a look-up; `templates_tree` marks calls of methods and sends what Python would do
    by itself (literals, slices, comparisons, `~`) through the functions below.
    """

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        # Unoptimised: else constant expressions are computed while a template is compiled, without limits.
        super().__init__(undefined=Missing, optimized=False, keep_trailing_newline=True, finalize=_written)
        self.filters = templates_filters.filters()
        self.tests = {name: templates_filters.bounded(name, test) for name, test in self.tests.items()}
        self.globals = {"range": _range, "dict": _dict, "namespace": Namespace}
        self.globals |= {"_each": each, "_kept": kept, "_concat": _concat, "_step": _step, "_enter": _enter}
        self.callable = frozenset(self.globals.values())

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return the item of that name; the name carries a mark for methods, and where it stands."""
        name, _, where = attribute.partition("\n")
        if name[0] == ".":
            return _method(obj, name[1:])
        return self._item(obj, name, where)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return the item of that key or position."""
        return self._item(obj, argument, "")

    def _item(self, obj: Any, key: Any, where: str) -> Any:
        step()
        if isinstance(obj, Undefined):
            return obj  # the first part that is missing is the one to name
        if isinstance(obj, dict):
            if key in obj:
                return obj[key]  # pyright: ignore[reportUnknownVariableType] (any JSON)
        elif isinstance(obj, list | tuple | str | range) and isinstance(key, int):
            if -len(obj) <= key < len(obj):  # pyright: ignore[reportUnknownArgumentType] (any JSON)
                return obj[key]  # pyright: ignore[reportUnknownVariableType] (any JSON)
        elif isinstance(key, str) and not key.startswith("_") and _has(obj, key):
            return getattr(cast("Any", obj), key)
        return Missing(_missing(obj, key, where))

    def call(self, context: Context, function: Any, /, *args: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] (the options are wider)
        """Call a method, a macro or one of our globals; everything else is refused."""
        step()
        options.pop("_loop_vars", None)
        options.pop("_block_vars", None)
        if isinstance(function, Method):
            return _made(function.function(*args, **options))
        if isinstance(function, Macro):
            return self._call_macro(context, function, *args, **options)
        if isinstance(function, Undefined):
            return cast("Any", function)()
        try:
            known = function in self.callable
        except TypeError:
            known = False
        if not known:
            raise TemplateError(f"a {type(function).__name__} can't be called in a template")
        return _made(function(*args, **options))

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
        """Compute, after a look at what the result will be."""
        step()
        if operator == "%" and isinstance(left, str):
            raise TemplateError("'%' does not format texts in a template; use '~' or 'join'")
        if operator == "*":
            _check_product(left, right)
        elif operator == "**" and not _is_small_power(left, right):
            raise TemplateLimitError(f"a power is too large; at most 64 bits to the {MAX_POWER}")
        return kept(super().call_binop(context, operator, left, right))


@lru_cache(maxsize=1)
def sandbox() -> Sandbox:
    """Return the one environment; it holds nothing of any rendering."""
    return Sandbox()


@pass_context  # which also keeps Jinja from computing constants while it compiles
def _written(_context: Context, value: Any) -> str:
    step()
    text = text_of(value)
    make(len(text))
    return text


def _has(obj: Any, name: str) -> bool:
    if isinstance(obj, LoopContext):
        return name in _LOOP
    if isinstance(obj, _GroupTuple):
        return name in ("grouper", "list")
    return isinstance(obj, Namespace) and hasattr(obj, name)  # a namespace answers with its own data only


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
        known = [str(name) for name in list(cast("dict[Any, Any]", obj))[:MAX_KNOWN]]
        hint = nearest(str(key), known) if known else "it is empty."
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
            make(len(value) * max(times, 0))  # pyright: ignore[reportUnknownArgumentType] (any JSON)
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_BITS:
        raise TemplateLimitError(f"a number is too large; at most {MAX_BITS:,} bits")


def _is_small_power(base: Any, exponent: Any) -> bool:
    if not isinstance(exponent, int | float) or abs(exponent) > MAX_POWER:
        return False
    return not isinstance(base, int) or base.bit_length() <= MAX_POWER


def _made(value: Any) -> Any:
    return kept(value) if value.__class__ in (str, list, tuple, dict, int) else value


def _concat(*values: Any) -> str:
    texts = [text_of(value) for value in values]
    make(sum(map(len, texts)))
    return "".join(texts)


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > BUDGET.get().limits.steps:
        raise TemplateLimitError(f"a range is too long; at most {BUDGET.get().limits.steps:,}")
    return numbers


def _dict(*pairs: Any, **items: Any) -> dict[str, Any]:
    return dict(*pairs, **items)


def _step(value: Any) -> Any:
    return value


def _enter(written: int) -> str:
    make(written)
    return ""
