"""Search/replace edits: read them out of a reply, apply them, and leave every other character alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redraft.core.errors import OutputError

EDIT_FORMAT = """\
<<<<<<< SEARCH
(lines copied exactly from the text, enough of them to occur only once)
=======
(the lines that replace them)
>>>>>>> REPLACE"""

_BLOCK = re.compile(r"^<{7} SEARCH[ \t]*\r?\n(.*?)^>{7} REPLACE[ \t]*$", re.DOTALL | re.MULTILINE)
_END = re.compile(r"^>{7} REPLACE[ \t]*$", re.MULTILINE)
_SEPARATOR = re.compile(r"^={7}[ \t]*\r?\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace one stretch of a text, which must occur exactly once, by another."""

    search: str
    replace: str

    def describe(self) -> str:
        """Say what the edit does, in one line."""
        return f"replaced {_clip(self.search)} by {_clip(self.replace)}"


def read_edits(reply: str) -> tuple[Edit, ...]:
    """Return the edits in a reply; raises `OutputError` when there is none, or where one can't be told apart.

    A text may have lines of `=` of its own; seven of them in an edit leave open where the search text ends.
    """
    edits: list[Edit] = []
    # Up to the last end: a search for one that isn't there would go through all of a long reply each time.
    end = max((found.end() for found in _END.finditer(reply)), default=0)
    for block in _BLOCK.findall(reply, 0, end):
        parts = _SEPARATOR.split(block)
        if len(parts) != 2:  # noqa: PLR2004 (search and replace)
            raise OutputError(f"an edit has {len(parts) - 1} lines of '=======', where exactly one is needed")
        edits.append(Edit(_body(parts[0]), _body(parts[1])))
    if not edits:
        raise OutputError("the reply holds no edit in the SEARCH/REPLACE form")
    return tuple(edits)


def apply_edits(text: str, edits: tuple[Edit, ...]) -> str:
    """Return `text` with all edits applied in order; raises `OutputError` that names the one that can't be.

    All or nothing: a text is never half edited.
    """
    for edit in edits:
        if not edit.search:
            raise OutputError(
                f"an edit searches for nothing; to insert {_clip(edit.replace)}, name its place"
            )
        found = text.count(edit.search)
        if found != 1:
            where = "does not occur in the text" if not found else f"occurs {found} times, not once"
            raise OutputError(f"the search text {_clip(edit.search)} {where}")
        text = text.replace(edit.search, edit.replace)
    return text


def _body(block: str) -> str:
    # The line break before a marker belongs to the marker, not to the text.
    return block.removesuffix("\n").removesuffix("\r")


def _clip(text: str, width: int = 60) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= width else line[: width - 3] + "...")
