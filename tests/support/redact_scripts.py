"""Lines in several scripts, and rules with names of things, written before the finders that they measure.

The odd lines are developed against. The even lines are held out: never look at what is missed of them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from support.redact_corpus import Line

HARMLESS = "harmless"
_HERE = Path(__file__).parent
_MARKED = re.compile("«(.*?)»", re.DOTALL)


@dataclass(frozen=True)
class ScriptLine(Line):
    script: str = ""
    held_out: bool = False


def script_lines():
    """All lines by script and kind; nothing is marked in a harmless one."""
    lines, script, kind, number = [], "", "", 0
    for row in (_HERE / "redact_scripts.txt").read_text("utf-8").splitlines():
        if row.startswith("## "):
            (script, kind), number = row[3:].split(), 0
        elif row and not row.startswith("#"):
            number += 1
            lines.append(_line(ScriptLine, kind, row, script=script, held_out=number % 2 == 0))
    return lines


def rule_lines():
    """Return rules; what is marked in them must not be withheld."""
    rows = (_HERE / "redact_rules.txt").read_text("utf-8").splitlines()
    rules = [row for row in rows if row and not row.startswith("#")]
    return [
        _line(ScriptLine, "rule", row, script="rules", held_out=number % 2 == 1)
        for number, row in enumerate(rules)
    ]


def _line(made, kind, row, **more):
    marked = row.replace("\\n", "\n")
    return made(
        kind, marked, marked.replace("«", "").replace("»", ""), tuple(_MARKED.findall(marked)), **more
    )


def leaks_pieces(line, text):
    """Say whether a word or number that is to be withheld stands in a redacted text."""
    around = _MARKED.sub(" ", line.template)
    pieces = {piece for part in line.parts for piece in re.findall(r"\w{2,}", part)}
    text = re.sub(r"\[withheld: [a-z -]+\]", " ", text)
    return any(_stands_in(piece, text) for piece in pieces if not _stands_in(piece, around))


def _stands_in(piece, text):
    # Scripts without spaces have no borders of words; two letters of a name are a name.
    if piece.isascii() or len(piece) > 4:
        return re.search(rf"(?<![^\W_]){re.escape(piece)}(?![^\W_])", text) is not None
    return piece in text
