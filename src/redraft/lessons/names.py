"""Names of files and folders, out of texts that anybody may have written."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256

WORDS = 5
LONGEST = 60
# What Windows keeps for devices, with or without an ending.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
)


def short_title(summary: str) -> str:
    """Return at most five words of a summary, in lowercase with hyphens. Reflexion Protocol, section 4."""
    words = _slug(summary).split("-")[:WORDS]
    return "-".join(words)[:LONGEST].strip("-") or "untitled"


def folder_name(agent: str) -> str:
    """Return the folder of an agent: its name where that is a plain one, else one that no other agent has.

    The folder of an agent that is named like a folder is that folder.
    """
    slug = _slug(agent)[:LONGEST].strip("-")
    if slug and slug == agent and slug not in _DEVICES:
        return slug
    suffix = sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[: LONGEST - 1 - len(suffix)].strip('-') or 'agent'}-{suffix}"


def _slug(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")
