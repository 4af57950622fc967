"""reflection.correct, and what correctors give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.core.errors import ConfigError, OutputError, SandboxError
from redraft.core.usage import NOTHING_USED
from redraft.redact.log import logger
from redraft.text.json_reply import json_of
from redraft.workflow.code import make
from redraft.workflow.made import Made
from redraft.workflow.names import LLM_CALL
from redraft.workflow.params import checked
from redraft.workflow.spec import Corrector, CorrectParams, Maker

if TYPE_CHECKING:
    from redraft.workflow.bench import Bench
    from redraft.workflow.scope import Scope

WRAPPERS = ("corrected_output", "reflection_output", "output")
"""Keys under which code may return the whole candidate."""


async def correct_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Correct `data` once; return `{corrected_output, success}`.

    A reply that is JSON where the data was none of text is read as JSON. `success` is False where the
    corrector failed or gave nothing; `corrected_output` is then the data as it was, and `error` says why.
    """
    given = checked(CorrectParams, params, "reflection.correct")
    data = scope.state.get("reflection_output") if given.data is None else scope.render(given.data)
    errors = scope.state.get("reflection_errors", []) if given.errors is None else scope.render(given.errors)
    inside = scope.adding(
        {"reflection_output": data, "reflection_errors": errors},
        output=data,
        reflection_output=data,
        reflection_errors=errors,
        reflection_iteration=scope.state.get("reflection_iteration", 1),
    )
    maker = maker_of(given)
    try:
        made = await make(maker, inside, bench)
    except (SandboxError, OutputError) as error:
        logger.warning("The corrector failed: %s", error)
        return Made(_not_corrected(data, str(error)), error.usage or NOTHING_USED)
    corrected = unwrapped(made.value)
    if made.is_reply and isinstance(corrected, str) and not isinstance(data, str):
        corrected = _json_or_text(corrected)
    if corrected is None:
        return Made(_not_corrected(data, "The corrector gave nothing."), made.usage)
    return Made({"corrected_output": corrected, "success": True}, made.usage)


def _not_corrected(data: Any, why: str) -> dict[str, Any]:
    return {"corrected_output": data, "success": False, "error": why}


def maker_of(given: CorrectParams) -> Maker:
    """Return what corrects; raises `ConfigError` unless exactly one of the ways is given."""
    ways = [way for way in (given.corrector_action, given.run) if way is not None]
    if len(ways) > 1 or (given.run is not None and given.prompt is not None) or not (ways or given.prompt):
        raise ConfigError("reflection.correct: give one of 'prompt', 'corrector_action' and 'run'")
    if given.run is not None:
        return Maker.model_validate(given.model_dump(include={"run", "language", "sandbox"}))
    params = {"prompt": given.prompt, "model": given.model}
    chosen = {key: value for key, value in params.items() if value is not None}
    return Maker.model_validate({"action": given.corrector_action or LLM_CALL, **chosen})


def unwrapped(value: Any) -> Any:
    """Return the candidate that stands under a key that says so, or the value as it is."""
    if isinstance(value, Mapping) and len(cast("Mapping[str, Any]", value)) == 1:
        (key, inner), *_ = cast("Mapping[str, Any]", value).items()
        if key in WRAPPERS:
            return inner
    return cast("Any", value)


def is_feedback(corrector: Corrector, value: Any) -> bool:
    """Say whether what a corrector gave is feedback for the generator, rather than the next candidate.

    Unless `apply` says otherwise an object is, whoever gave it, but for one that wraps the candidate.
    """
    if corrector.apply != "auto":
        return corrector.apply == "feedback"
    return isinstance(value, Mapping) and unwrapped(value) is value


def looks_like(value: Any, output: Any) -> bool:
    """Say whether an object has all the keys of an output, as a corrected one would."""
    if not isinstance(value, Mapping) or not isinstance(output, Mapping) or not output:
        return False
    return set(cast("Mapping[str, Any]", output)) <= set(cast("Mapping[str, Any]", value))


def _json_or_text(text: str) -> Any:
    try:
        return json_of(text)
    except OutputError:
        return text
