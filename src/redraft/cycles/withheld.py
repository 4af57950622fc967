"""Withholding: what must not be written down of a cycle, cheap enough for each one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redraft.redact.environment import redactor_of_environment
from redraft.redact.kinds import Category
from redraft.redact.plain_json import walk_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

REMEMBERED, LONGEST = 4_096, 400
"""Of so many texts, no longer than so many characters, it is remembered what becomes of them."""
_OURS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|\d{1,7}(-\d{1,3})?|5\d{9}-\d{1,3}", re.ASCII)
"""A time of day, or the number of a cycle or action, a provisional one of an outage too: new in each cycle,
and nothing to look into."""


def withholding(also: Collection[Category] = (Category.PERSONAL,)) -> Callable[[Any], Any]:
    """Return what gives plain JSON data with secrets and personal data withheld, its shape kept.

    What is sent to be acted on loses its secrets alone (`also=()`): no order can be shipped to a mark. Names
    of hosts stay, so that an agent knows what it acted on. An agent says the same keys and names in every
    cycle, so they are looked at once.
    """
    redactor = redactor_of_environment(also=also)

    def redact(text: str) -> str:
        return redactor.redact(text).text

    remembered = lru_cache(REMEMBERED)(redact)

    def once(text: str) -> str:
        if _OURS.fullmatch(text):
            return text
        return remembered(text) if len(text) <= LONGEST else redact(text)

    def withheld(value: Any) -> Any:
        return walk_plain(value, once)

    return withheld
