"""`redraft check`: judge a draft, and change nothing."""

from __future__ import annotations

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import code_of, surface


def check(
    file: options.File,
    criteria: options.Criteria,
    model: options.Model = None,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Judge a draft by criteria. A model is asked only where a criterion needs one.

    A criterion is a sentence, a known name such as clarity, or a check:

    \b
    criteria:
      - Names the price.
      - {name: short, evaluator: regex, config: {pattern: '^.{1,200}$'}}

    All of the format is in docs/criteria.md.
    """  # noqa: D301 (the character by which click knows that lines stay as they are)
    with surface(debug=debug):
        # What --help does not need is imported here, in all commands.
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.documents import check_document
        from redraft.cli.keeping import Keeping
        from redraft.cli.progress import Progress
        from redraft.cli.running import judge, judging_model, material
        from redraft.cli.verdict import verdict
        from redraft.cli.watching import watched
        from redraft.cli.withheld import withheld
        from redraft.core.codec import to_json
        from redraft.loop.pattern import ReflectionPattern

        draft, given = material(file, criteria)
        judges = judging_model(model, given)
        told = CalmConsole(stderr=True)
        progress = Progress(told, rows=False)
        keeping = Keeping("check", not no_keep, judges or "")
        with watched(progress, events) as listener:
            pattern = ReflectionPattern(
                max_iterations=0,
                quality_criteria=given.criteria,
                quality_threshold=given.threshold,
                task_type=given.task_type,
                reflection_model=judges,
                on_event=listener,
            )
            result = judge(draft, given, progress, pattern, keeping)
        if as_json:
            emit_json(withheld(to_json(check_document(file, given, result))))
        else:
            CalmConsole().show(verdict(given, result))
        told.say(keeping.says(result))
        raise typer.Exit(code_of(result))
