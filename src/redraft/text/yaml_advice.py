"""What is said of a text that is no YAML: where it is wrong, and what can be done about it."""

from __future__ import annotations

from typing import Any

import yaml

ADVICE = {
    "alphabetic or numeric character": "a text that begins with '*' or '&' needs quotes",
    "cannot start any token": "a text that begins with {character!r} needs quotes",
    "could not find expected ':'": "the key in line {begun} lacks its colon and a space",
    "did not find expected ',' or": "what line {begun} opens is not closed, or a text in it needs quotes",
    "did not find expected key": "see if the lines begin in the same column, and if a quote is inside a text",
    "mapping values are not allowed": "a text with ': ' in it needs quotes; else see to the indentation",
    "tab character": "indent with spaces",
    "unexpected end of stream": "the quote that line {begun} opens is not closed",
    "unknown escape character": "write the backslash twice, or use single quotes",
}
"""What can be done, by a part of what the parser says."""


def wrong_yaml(error: yaml.YAMLError, text: str) -> tuple[int | None, str]:
    """Return the line of what the parser stumbled over, where it is known, and what to say of it."""
    if isinstance(error, yaml.MarkedYAMLError) and (error.problem_mark or error.context_mark):
        return _marked(error, text)
    if isinstance(error, yaml.reader.ReaderError) and isinstance(error.character, int):
        before = text.partition(chr(error.character))[0]
        return before.count("\n") + 1, f"the character U+{error.character:04X} can't be in YAML"
    return None, str(error)


def _marked(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    place: Any = error.problem_mark or error.context_mark
    begun: Any = error.context_mark or place
    said = str(error.problem or error.context)
    line = "".join(text.split("\n")[place.line : place.line + 1])
    character = line[place.column : place.column + 1]
    if character == "\t" and "cannot start any token" in said:
        said = "found a tab character where none can be"
    advice = next((advice for part, advice in ADVICE.items() if part in said), None)
    if advice is not None:
        said = f"{said}; {advice.format(begun=begun.line + 1, character=character)}"
    return place.line + 1, said
