"""`redraft lessons add`: a lesson that a person writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.lessons_surface import lessons_surface

Kind = Annotated[str | None, typer.Option(metavar="KIND", help="failure, partial, procedure or decision.")]
Task = Annotated[str | None, typer.Option(metavar="TEXT", help="What was asked.")]
Type = Annotated[str, typer.Option(metavar="TYPE", help="The kind of task it was.")]
Tools = Annotated[list[str] | None, typer.Option(metavar="NAME", help="What it used; repeatable.")]
Error = Annotated[str, typer.Option(metavar="TEXT", help="The error that came of it.")]
Run = Annotated[str, typer.Option(metavar="RUN", help="The run that taught it.")]
Sure = Annotated[float | None, typer.Option(metavar="X", help="How sure you are of it, 0 to 1.")]
OfBoth = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a failure, or a partial success.")]
OfFailure = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a failure.")]
OfProcedure = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a procedure that worked.")]
OfDecision = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a decision.")]
Why = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a failure, or a decision.")]
File = Annotated[str | None, typer.Option(metavar="FILE.md", help="Take a lesson that is written already.")]
Agent = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose lesson it is; not needed where there is one.")
]
Place = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Look there, not in the folder of the settings.")
]


def lessons_add(
    kind: Kind = None,
    task: Task = None,
    task_type: Type = "",
    tool: Tools = None,
    error: Error = "",
    run: Run = "",
    confidence: Sure = None,
    what_happened: OfBoth = None,
    what_went_wrong: OfBoth = None,
    why: Why = None,
    do_differently: OfBoth = None,
    rule: OfFailure = None,
    strategy: OfProcedure = None,
    why_it_worked: OfProcedure = None,
    decision: OfDecision = None,
    alternatives: OfDecision = None,
    file: File = None,
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Write a lesson by hand. Out of options or a file, else in your editor; it is active at once."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.lessons_place import LessonsPlace, the_agent
        from redraft.cli.lessons_view import added_line
        from redraft.cli.lessons_writing import add_lesson, content_of, lesson_given
        from redraft.lessons.lesson_document import lesson_document

        place = LessonsPlace.of(path)
        said = {
            "what_happened": what_happened,
            "what_went_wrong": what_went_wrong,
            "why": why,
            "do_differently": do_differently,
            "rule": rule,
            "strategy": strategy,
            "why_it_worked": why_it_worked,
            "decision": decision,
            "alternatives": alternatives,
        }
        whose = the_agent(place, agent)
        about = {"task": task, "task_type": task_type, "error": error, "source": run}
        lesson = lesson_given(content_of(said, kind), file, kind, whose, about, tuple(tool or ()))
        added = add_lesson(place, whose, lesson, confidence)
        if as_json:
            emit_json({"is_new": added.is_new, **lesson_document(added.lesson)})
        else:
            CalmConsole().show(added_line(added.lesson, is_new=added.is_new), soft_wrap=True)
