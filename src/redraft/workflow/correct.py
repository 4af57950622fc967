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
    corrector failed or gave nothing, and `corrected_output` is then the data as it was.
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
        return Made({"corrected_output": data, "success": False}, error.usage or NOTHING_USED)
    corrected = unwrapped(made.value)
    if made.is_reply and isinstance(corrected, str) and not isinstance(data, str):
        corrected = _json_or_text(corrected)
    if corrected is None:
        return Made({"corrected_output": data, "success": False}, made.usage)
    return Made({"corrected_output": corrected, "success": True}, made.usage)


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
    """Return the candidate that code returned under a key of its own, or the value as it is."""
    if isinstance(value, Mapping) and len(cast("Mapping[str, Any]", value)) == 1:
        (key, inner), *_ = cast("Mapping[str, Any]", value).items()
        if key in WRAPPERS:
            return inner
    return cast("Any", value)


def is_candidate(corrector: Corrector, made: Made, output: Any, schema: Any) -> bool:
    """Say whether what a corrector gave is the next candidate, rather than feedback for the generator."""
    if corrector.apply != "auto":
        return corrector.apply == "replace"
    value = made.value
    if not made.by_code or not isinstance(value, Mapping):
        return True
    keys = set(cast("Mapping[str, Any]", value))
    if len(keys) == 1 and keys <= set(WRAPPERS):
        return True
    known: set[str] = set()
    if isinstance(output, Mapping):
        known |= set(cast("Mapping[str, Any]", output))
    if isinstance(schema, Mapping):
        known |= set(cast("Mapping[str, Any]", schema).get("properties", {}))
        known |= set(cast("Mapping[str, Any]", schema).get("required", ()))
    return bool(keys & known)


def _json_or_text(text: str) -> Any:
    try:
        return json_of(text)
    except OutputError:
        return text
