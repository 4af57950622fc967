"""Ids of what is not kept: made without asking the system, since every run has one."""

from __future__ import annotations

from os import register_at_fork
from random import Random

# Of its own, so that no seed of a user's makes two programs give the same ids; nor does a fork.
_random = Random()  # noqa: S311 (an id is no secret)
register_at_fork(after_in_child=_random.seed)


def passing_id() -> str:
    """Return 16 hexadecimal digits that no other run of this process or another has."""
    return f"{_random.getrandbits(64):016x}"
