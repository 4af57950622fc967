"""Read an agent file: YAML text to a typed spec, with errors that point at file, line, stage and substage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

from redraft.core.errors import AgentFileError
from redraft.cycles.parts import STAGES
from redraft.cycles.spec import AgentSpec
from redraft.text.spec_file import SpecFile
from redraft.text.yaml import Way, load_yaml


@dataclass(frozen=True, slots=True)
class AgentFile(SpecFile):
    """Hold the text of an agent file and its name, and say where in it something is wrong."""

    file: str = "agent"

    expected: ClassVar[str] = "an agent is a mapping with 'name' and 'stages'"

    def error(self, way: Way, what: str, *, within: int | None = None) -> AgentFileError:
        """Return the `AgentFileError` that says what is wrong, and where."""
        line = self.line(way, within)
        place = place_in(load_yaml(self.text, self.file), way)
        message = self.said(line, place.shown, what)
        return AgentFileError(
            message, file=self.file, line=line, stage=place.stage, substage=place.substage, key=place.key
        )

    def broken(self, message: str, line: int | None) -> AgentFileError:
        """Return the `AgentFileError` of a text that is no YAML."""
        return AgentFileError(message, file=self.file, line=line)


class Place(NamedTuple):
    """Name the stage, the substage and the key of what is wrong, each None where it is none."""

    stage: str | None = None
    substage: str | None = None
    key: str | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """The place as a message says it."""
        stage = f"stage {self.stage!r}" if self.stage else ""
        return (stage, f"substage {self.substage!r}" if self.substage else "", self.key or "")


def place_in(document: Any, way: Way) -> Place:
    """Return the place that `way` leads to in the document of an agent."""
    if len(way) < 2 or way[0] != "stages":  # noqa: PLR2004 (`stages`, its name)
        return Place(key=".".join(map(str, way)) or None)
    stage, inside = str(way[1]), way[2:]
    if len(inside) < 2 or inside[0] != "substages" or not isinstance(inside[1], int):  # noqa: PLR2004 (`substages`, a number)
        return Place(stage, key=".".join(map(str, inside)) or None)
    substage: Any = document["stages"][stage]["substages"][inside[1]]
    name = cast("dict[str, Any]", substage).get("name") if isinstance(substage, dict) else None
    key = ".".join(map(str, inside[2:])) or None
    return Place(stage, str(name) if name else f"number {inside[1] + 1}", key)


def agent_file(path: str | Path) -> AgentFile:
    """Return the text of an agent file; raises `AgentFileError` where it can't be read."""
    try:
        return AgentFile(Path(path).read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise AgentFileError(f"{str(path)!r} is not UTF-8 text.", file=str(path)) from error
    except OSError as error:
        raise AgentFileError(f"{str(path)!r} cannot be read: {error.strerror}.", file=str(path)) from error


def read(source: AgentFile) -> AgentSpec:
    """Return the spec of an agent file; raises `AgentFileError` for what does not follow the format."""
    document = source.document()
    for stage in STAGES:
        if stage in document:
            source.fail(
                (stage,), f"the stage {stage!r} stands under 'stages:'; put that line above it, and indent it"
            )
    return source.parse(AgentSpec, document)
