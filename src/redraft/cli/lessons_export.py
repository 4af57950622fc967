"""`redraft lessons export`: the best lessons, in the files that coding agents read."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (Typer reads the annotations)
from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import ExitCode
from redraft.cli.lessons_surface import lessons_surface


def lessons_export(
    to: Annotated[str, typer.Option("--to", metavar="FORM", help="agents-md, skill or rules.")],
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="PATH",
            help="The file, if not AGENTS.md, .claude/skills/lessons/SKILL.md, .claude/rules/lessons.md; "
            "'-' prints the text.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the file is out of date.")
    ] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", help="How long it may be: 1000, of a skill 4000."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a block that was edited by hand, too.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only lessons of this agent.")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option("--path", metavar="FOLDER", help="Look there, not in the folder of the settings."),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Put the best lessons where coding agents read them. Into a block; the rest of a file stays."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit, emit_json
        from redraft.cli.lessons_exporting import Exporting, confirmed, form_of
        from redraft.cli.lessons_place import LessonsPlace

        told = CalmConsole(stderr=True)
        place = LessonsPlace.of(path, agent)
        job = Exporting.of(place, form_of(to), file, max_tokens, check=check)
        told.say(job.summary)
        if job.target is None:
            emit(job.export.body)
            return
        wanted = not check and not job.is_current
        if not job.is_current:
            told.show(job.changes(coloured=told.is_coloured), soft_wrap=not told.is_terminal)
        if wanted:
            job.check_unedited(force=force)
        is_written = wanted and (yes or confirmed(told, job.shown))
        if is_written:
            job.write()
        is_refused = wanted and not is_written
        told.say("Nothing was written." if is_refused else job.ending(is_written=is_written))
        if as_json:
            emit_json(job.as_document(is_written=is_written))
        raise typer.Exit(ExitCode.MET if job.is_current or is_written else ExitCode.NOT_MET)
