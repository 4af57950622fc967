"""Small tasks with deterministic checks: JSON out of a text, words and bullets counted, little functions.

The criteria of a task are what its prompt asks for, so far as a user would check it: a schema, limits, two
calls of a function. What only scores an arm in the end is hidden: the right values, further calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _extractions import EXTRACTIONS
from _functions import FUNCTIONS
from _writings import WRITINGS

if TYPE_CHECKING:
    from _task import BenchTask

TASKS: tuple[BenchTask, ...] = (*EXTRACTIONS, *WRITINGS, *FUNCTIONS)
