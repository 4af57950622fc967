"""The duties to reflect, as commands read and waive them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from redraft.cli.kept_lessons import with_store
from redraft.core.errors import ConfigError
from redraft.lessons.clean import lesson_redactor
from redraft.lessons.duties import Duties, Duty, all_due
from redraft.lessons.names import folder_name

if TYPE_CHECKING:
    from redraft.stores.base import Store

LAST = "last"


def due_duties(agent: str | None) -> list[Duty]:
    """Return what has to be reflected on, of one agent or of all, with its secrets withheld."""

    async def find(store: Store | None) -> list[Duty]:
        return [] if store is None else await _due(store, agent)

    return lesson_redactor().redact_object(with_store(find))


def waive_duty(wanted: str, why: str, agent: str | None) -> Duty:
    """Let the run that is meant be forgotten without a reflection, and return what was due of it.

    It is meant by its id, how that begins or ends, or `last`. Raises `ConfigError` where nothing is due of
    it, where several are meant, and without a reason.
    """

    async def waive(store: Store | None) -> Duty:
        duty = _meant(wanted, [] if store is None else await _due(store, agent))
        if store is not None:
            await Duties(store, duty.agent, lambda: datetime.now(UTC)).waive_by_hand(duty.run_id, why)
        return duty

    return lesson_redactor().redact_object(with_store(waive))


async def _due(store: Store, agent: str | None) -> list[Duty]:
    whose = None if agent is None else folder_name(agent)
    return [duty for duty in await all_due(store) if whose in (None, duty.agent)]


def _meant(wanted: str, due: list[Duty]) -> Duty:
    if not due:
        raise ConfigError("Nothing is due: no run waits for a reflection.")
    if wanted == LAST:
        return due[-1]
    exact = [duty for duty in due if duty.run_id == wanted]
    found = exact or [duty for duty in due if duty.run_id.startswith(wanted) or duty.run_id.endswith(wanted)]
    if len({(duty.agent, duty.run_id) for duty in found}) == 1:
        return found[0]
    fitting = ", ".join(sorted({duty.run_id for duty in found}))
    problem = f"several runs fit: {fitting}" if found else "nothing is due of such a run"
    raise ConfigError(f"{wanted!r}: {problem}; `redraft lessons due` lists them.")
