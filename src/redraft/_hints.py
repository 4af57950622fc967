"""Hint at the keyword argument, or the attribute, that was probably meant."""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FunctionType
    from typing import Any, TypeVar

    C = TypeVar("C", bound=Callable[..., Any])

_TAKES_ANY_KEYWORD = 0x08  # the flags of `inspect`, whose import would cost more than this module
_IS_ASYNC = 0x80

REMOVED = {
    "choose": "Checks choose among candidates, and the judge scores those that no check distinguishes.",
    "share_lessons": "With PostgreSQL, lessons are records in the database; Lessons(path=...) keeps files.",
    "spool": "Leave it out: what an agent has not stored when its process ends is lost.",
    "fleet": "Leave it out: one process evaluates many cases at once; concurrency=... says how many.",
}
"""Options of earlier versions, each with its replacement."""

_SETTING = "It is a setting of the model: model_settings={%r: ...}."
_OF_AGENT = "It is a setting of the model: Agent(..., model_settings={%r: ...})."
_OF_WRAPPED = tuple((name, "The agent that is wrapped has its own.") for name in ("agent", "graph"))
_SETTINGS = {
    name: (
        *_OF_WRAPPED,
        ("model_settings", _SETTING % name),
        ("quality_criteria", _OF_AGENT % name),
        ("pattern", _OF_AGENT % name),
    )
    for name in ("temperature", "max_tokens", "top_p", "timeout", "seed", "extra_body")
}
_CHECK = "A function that checks the output is a criterion: criteria=[function]."
_RETRIES = "Revisions are max_iterations=...; failed calls are repeated by"
_RETRY = "Retry(attempts=...)"
_OUTPUT_TYPE = (("output_type", ""),)
GUESSES: Mapping[str, tuple[tuple[str, str], ...]] = {
    **_SETTINGS,
    **dict.fromkeys(("system_prompt", "output_type", "model_settings"), _OF_WRAPPED),
    "instructions": (
        *_OF_WRAPPED,
        ("system_prompt", ""),
        ("generate", "A model has them as Agent(system_prompt=...)."),
    ),
    "prompt": (("system_prompt", ""), ("task", ""), ("query", "")),
    "criteria": (
        ("quality_criteria", ""),
        ("pattern", "Pass them to the Agent, or as pattern=ReflectionPattern(quality_criteria=...)."),
    ),
    "quality_criteria": (("criteria", ""),),
    "judge": (
        ("reflection_model", "The model that judges is reflection_model; judge_method says how it scores."),
        ("pattern", "Pass it to the Agent, or as pattern=ReflectionPattern(reflection_model=...)."),
    ),
    "model": (("judge", "The model that judges is judge=...; the one that drafts is that of an Agent."),),
    "reflection_model": (("judge", ""),),
    "evaluate": (("criteria", _CHECK), ("quality_criteria", _CHECK)),
    "evaluator": (("evaluate", ""), ("criteria", _CHECK), ("quality_criteria", _CHECK)),
    "tools": (
        *_OF_WRAPPED,
        ("generate", "Tools belong to an agent: Agent(model, tools=[...])."),
    ),
    "n": (
        ("candidates", ""),
        ("pattern", "First drafts made at once are pattern=ReflectionPattern(candidates=...)."),
    ),
    "max_retries": (
        ("retry", f"{_RETRIES} retry={_RETRY}."),
        ("pattern", f"{_RETRIES} pattern=ReflectionPattern(retry={_RETRY})."),
    ),
    "response_model": _OUTPUT_TYPE,
    "response_format": _OUTPUT_TYPE,
    "result_type": _OUTPUT_TYPE,
}
"""Hints for keywords that users try, by a parameter that the function has; "" suggests that parameter."""

_BEST = "history.best_version"
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "ReflectionResult": {
        **dict.fromkeys(("output", "text", "data", "answer", "result", "content"), "best_output"),
        **dict.fromkeys(("best", "best_version"), _BEST),
        **dict.fromkeys(("score", "best_score", "overall_score"), f"{_BEST}.evaluation.overall_score"),
        **dict.fromkeys(("evaluation", "best_evaluation"), f"{_BEST}.evaluation"),
        "issues": f"{_BEST}.evaluation.issues",
        "versions": "history.versions",
        "iterations": "iterations_used",
        **dict.fromkeys(("reason", "stop_reason"), "convergence_reason"),
        "cost": "token_usage.cost_usd",
        "cost_usd": "token_usage.cost_usd",
        "usage": "token_usage",
        "satisfactory": "success",
    },
    "ReflectionVersion": {
        **dict.fromkeys(("text", "data", "content"), "output"),
        **dict.fromkeys(("score", "overall_score"), "evaluation.overall_score"),
        "issues": "evaluation.issues",
        "cost": "token_usage.cost_usd",
        "usage": "token_usage",
        "number": "iteration",
    },
    "ReflectionEvaluation": {
        "score": "overall_score",
        "scores": "criteria_scores",
        **dict.fromkeys(("passed", "success"), "satisfactory"),
        **dict.fromkeys(("reason", "feedback"), "issues"),
    },
    "TokenUsage": {
        "cost": "cost_usd",
        "tokens": "total_tokens",
        "prompt_tokens": "input_tokens",
        "completion_tokens": "output_tokens",
    },
}
"""Attributes that users try, by class, each with the attribute that exists."""


def keyword_hints(**options: str) -> Callable[[C], C]:
    """Decorate a public function or class, so that the `TypeError` of a wrong argument has a hint.

    `options` maps a parameter to the dotted name of its class. The hint for a keyword of that class says in
    which parameter to pass it.
    """

    def decorate(public: C) -> C:
        target: Any = public
        if not isinstance(target, type):
            return _hinting(target, target.__qualname__, options)
        name = "__init__" if "__init__" in vars(target) else "__new__"
        setattr(target, name, _hinting(getattr(target, name), target.__qualname__, options))
        return public

    return decorate


class _Missing:
    """An attribute that users try, whose `AttributeError` names the attribute that exists."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, _owner: object, _kind: type | None = None) -> Any:
        raise AttributeError(self._text)


def attribute_hints(public: C) -> C:
    """Decorate a class, so that the `AttributeError` of a missing attribute names the one probably meant.

    The class gets no `__getattr__`: it would make every access to an attribute slow.
    """
    kind: Any = public
    instead = ATTRIBUTES[kind.__name__]
    for name, place in instead.items():
        text = f"{kind.__name__!r} object has no attribute {name!r}. It is {place!r}."
        setattr(kind, name, _Missing(text))

    def names(self: object) -> list[str]:
        return [name for name in object.__dir__(self) if name not in instead]

    kind.__dir__ = names
    return public


def _hinting(call: FunctionType, name: str, options: Mapping[str, str]) -> Any:
    def hinting(*args: Any, **keywords: Any) -> Any:
        try:
            return call(*args, **keywords)
        except TypeError as error:
            # With a second frame, the function itself raised it.
            started = error.__traceback__ and error.__traceback__.tb_next
            if not started and (text := _hint(error, call, args, keywords, options)):
                raise TypeError(f"{name}() {text}") from None
            raise

    async def hinting_later(*args: Any, **keywords: Any) -> Any:
        return await hinting(*args, **keywords)

    wrapper: Any = hinting_later if call.__code__.co_flags & _IS_ASYNC else hinting
    # What `functools.wraps` does.
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        setattr(wrapper, attribute, getattr(call, attribute))
    wrapper.__dict__.update(call.__dict__)
    wrapper.__wrapped__ = call  # for `inspect.signature`
    return wrapper


def _hint(
    error: TypeError,
    call: FunctionType,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    options: Mapping[str, str],
) -> str | None:
    """What is wrong with the arguments, and what to write; None if the error has another cause."""
    code = call.__code__
    by_name = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if len(args) > code.co_argcount and by_name:
        few = ", ".join(f"{parameter}=..." for parameter in by_name[:4])
        return f"{str(error).partition('() ')[2]}. Pass the others by name: {few}"
    if hint := _keyword_hint(call, keywords, options):
        return f"got an unexpected keyword argument {hint}"
    return None


def _keyword_hint(call: FunctionType, keywords: Mapping[str, Any], options: Mapping[str, str]) -> str | None:
    """The unknown keyword with a hint; None if there is none."""
    if call.__code__.co_flags & _TAKES_ANY_KEYWORD:
        return None
    parameters = _parameters(call)
    unknown = next((name for name in keywords if name not in parameters), None)
    if unknown is None:
        return None
    for parameter, text in GUESSES.get(unknown, ()):
        if parameter in parameters:
            return f"{unknown!r}. {text or f'Did you mean {parameter!r}?'}"
    from pkgutil import resolve_name  # noqa: PLC0415 (only an error needs it)

    for parameter, kind in options.items():
        options_class = resolve_name(kind)
        if unknown in _parameters(options_class.__init__.__wrapped__):
            return f"{unknown!r}. Pass it as {parameter}={options_class.__name__}({unknown}=...)."
    return f"{unknown!r}. {REMOVED.get(unknown) or meant(unknown, parameters)}"


def meant(unknown: str, names: Sequence[str]) -> str:
    """Name the keyword that was probably meant, or else all keywords, in a sentence."""
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    close = get_close_matches(unknown, names, 1) or [name for name in names if unknown in name.split("_")]
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Expected one of {', '.join(map(repr, names))}." if names else "It takes none."


def _parameters(call: FunctionType) -> list[str]:
    code = call.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [name for name in names if name not in ("self", "cls")]
