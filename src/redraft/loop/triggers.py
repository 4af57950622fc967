"""Triggers: what sets off a look back in the middle of a run, and where it can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from redraft.core.check import check_choice, check_count, check_list, is_number
from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

Trigger: TypeAlias = Literal["completion", "step_interval", "error", "tool_result", "quality_drop", "manual"]
TRIGGERS: tuple[str, ...] = get_args(Trigger)

INTERVAL = 5
"""After how many steps of the model `step_interval` fires, where nothing else is said."""
DROP = 0.1
"""How far below the best score `quality_drop` fires, where nothing else is said."""
MOST_REFLECTIONS = 3

NO_STEPS = "takes no steps that a reflection could come between: give the Agent tools, or wrap one"
NO_HANDLE = "gives no handle to call `reflect_now()` on: that is what `Agent.stream` gives"
CAN_NOT_FIRE = {
    "a text agent": {"step_interval": NO_STEPS, "error": NO_STEPS, "tool_result": NO_STEPS},
    "a plain function": {
        "step_interval": NO_STEPS,
        "error": NO_STEPS,
        "tool_result": NO_STEPS,
        "manual": NO_HANDLE,
    },
}


@dataclass(frozen=True, slots=True)
class Triggers:
    """Say what sets off a reflection in the middle of a run; that on completion is always on.

    `step_interval` counts steps of the model. `tool_result` names tools, none of them meaning all, and is
    None where it is off. `quality_drop` is how far a score falls below the best. At most `most` reflections
    are made in a run.
    """

    step_interval: int | None = None
    error: bool = False
    tool_result: frozenset[str] | None = None
    quality_drop: float | None = None
    manual: bool = False
    most: int = MOST_REFLECTIONS

    def names(self) -> tuple[str, ...]:
        """Return the triggers that are on, beside completion."""
        on = {
            "step_interval": self.step_interval is not None,
            "error": self.error,
            "tool_result": self.tool_result is not None,
            "quality_drop": self.quality_drop is not None,
            "manual": self.manual,
        }
        return tuple(name for name, is_on in on.items() if is_on)

    def check_door(self, door: str) -> None:
        """Refuse a trigger that can never fire on a front door, a key of `CAN_NOT_FIRE`."""
        for name in self.names():
            if name in CAN_NOT_FIRE[door]:
                raise ConfigError(
                    f"reflection_triggers: {name!r} can't fire; {door} {CAN_NOT_FIRE[door][name]}."
                )

    def fired(self, step: int, *, failed: bool, tools: frozenset[str]) -> str | None:
        """Name the trigger that fires after `step` steps of the model, if one does.

        `failed` says whether something went wrong since the step before, `tools` which of them answered.
        """
        if self.error and failed:
            return "error"
        if self.tool_result is not None and (tools & self.tool_result if self.tool_result else tools):
            return "tool_result"
        if self.step_interval is not None and step > 0 and step % self.step_interval == 0:
            return "step_interval"
        return None


NO_TRIGGERS = Triggers()


def triggers_of(listed: Any, interval: Any, on_error: Any, on_tools: Any, drop: Any, most: Any) -> Triggers:
    """Make `Triggers` of a pattern's options.

    A trigger is on where it is listed or where its own option is given; one that is listed without its option
    takes the default. Raises `ConfigError` by the option's name for what is no trigger, out of its range, or
    contradicts another option.
    """
    _check(listed, interval, on_error, on_tools, drop, most)
    triggers = Triggers(
        step_interval=interval if interval is not None else INTERVAL if "step_interval" in listed else None,
        error=bool(on_error) or "error" in listed,
        tool_result=frozenset(on_tools) if on_tools or "tool_result" in listed else None,
        quality_drop=drop if drop is not None else DROP if "quality_drop" in listed else None,
        manual="manual" in listed,
        most=most,
    )
    if triggers.names() and most == 0:
        raise ConfigError(
            f"max_reflections is 0, yet these triggers are on: {', '.join(triggers.names())}. "
            "Leave them out, or allow at least 1."
        )
    return triggers if triggers.names() else NO_TRIGGERS


def _check(listed: Sequence[Any], interval: Any, on_error: Any, on_tools: Any, drop: Any, most: Any) -> None:
    check_list("reflection_triggers", listed)
    for name in listed:
        check_choice("reflection_triggers", name, TRIGGERS)
    if interval is not None:
        check_count("reflection_interval", interval, 1)
    if on_error is not None and not isinstance(on_error, bool):
        raise ConfigError(f"reflect_on_error must be True, False or None, got {on_error!r}.")
    if on_error is False and "error" in listed:
        raise ConfigError(
            "reflect_on_error is False, yet reflection_triggers lists 'error'; say one of them."
        )
    check_list("reflect_on_tools", on_tools)
    for tool in on_tools:
        if not isinstance(tool, str) or not tool:
            raise ConfigError(f"reflect_on_tools must be names of tools, got {tool!r}.")
    if drop is not None and (not is_number(drop) or not 0 < drop <= 1):
        raise ConfigError(f"quality_drop_threshold must be a number above 0 and at most 1, got {drop!r}.")
    check_count("max_reflections", most, 0)
