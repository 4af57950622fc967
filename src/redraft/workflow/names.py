"""Names of the actions that are built in, in both spellings."""

from __future__ import annotations

LLM_CALL = "llm.call"
LOOP = "reflection.loop"
EVALUATE = "reflection.evaluate"
CORRECT = "reflection.correct"

_UNDERSCORED = {name.replace(".", "_"): name for name in (LLM_CALL, LOOP, EVALUATE, CORRECT)}


def plain_name(name: str) -> str:
    """Return the name of an action that is built in, however it is spelt; another name is left as it is."""
    return _UNDERSCORED.get(name, name)
