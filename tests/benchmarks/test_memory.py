"""The benchmarks of memory with scripted models: transfer and notes."""

import asyncio
import sys
from dataclasses import replace
from functools import partial

import note_runs
import pytest
import transfer
from _arms import Replies
from _memory import MemoryRun, Series, arms_table, pairs_table, run_all, runs_in, solves
from environment_families import ENVIRONMENTS
from families import FAMILIES
from note_families import CONVERSIONS, FUNCTIONS, NOTE_FAMILIES

from redraft import Lessons, ReflectionPattern, ScriptedModel

REFLECTION = {
    "what_happened": "A visitor was to be written down.",
    "what_went_wrong": "The program found no list.",
    "why": "It reads a list of records, even of one.",
    "do_differently": "Put the record into a JSON list.",
    "rule": "IF a record is asked for as JSON THEN put it into a list.",
    "title": "Records come in a list",
    "systemic": False,
    "principle": "",
    "strategy_to_replay": "",
    "steps_to_replay": [],
}


@pytest.fixture(autouse=True)
def no_embedder(monkeypatch):
    monkeypatch.setenv("REDRAFT_EMBEDDER", "none")


class Counting(Replies):
    """Replies that count what is asked of the model behind them."""

    def __init__(self, answer, file=None):
        self.asked = 0

        def counted(request):
            self.asked += 1
            return answer(request)

        super().__init__("scripted", lambda seed: ScriptedModel(counted), file)


def learns(request):
    """Make the mistake of the family unless the prompt tells, or a lesson does."""
    if request.role == "reflection":
        return REFLECTION
    text = request.messages[-1].content
    each = next(each for each in FAMILIES["records"] if each.task.prompt in text)
    is_told = each.told or REFLECTION["do_differently"] in text or "Expected an array" in text
    return each.solution if is_told else each.mistake


def convert(what, *, careful=True):
    call, value = CONVERSIONS[what]
    given = call.removeprefix("convert")
    care = f'    """Return what {what} makes."""\n    if value in (None, ""):\n        return None\n'
    return f"def convert(value):\n{care if careful else ''}    return {{{given}: {value!r}}}[value]"


def noted(request):
    """Write a function, and the right one if a note names the tests that failed."""
    if request.role == "reflection":
        return "NONE"
    text = request.messages[-1].content
    what = next(what for what in CONVERSIONS if what in text)
    return convert(what, careful="`convert(None)` is None" in text)


def runs_of(module, families, arms, answer, seed=1, limit=None):
    """Run the first tasks of families in these arms."""
    series = [one for family in families for arm in arms for one in module.series(family, arm, seed)]
    return asyncio.run(run_all(series[:limit], Counting(answer)))


@pytest.mark.parametrize("family", ENVIRONMENTS)
def test_only_the_solution_of_an_environment_task_solves_it(family):
    async def scored(task, output):
        evaluation = await ReflectionPattern(quality_criteria=task.criteria).reflect(output)
        return await solves(task, output, met=evaluation.satisfactory)

    async def check():
        for each in ENVIRONMENTS[family]:
            assert await scored(each.task, each.solution), each.task.name
            assert not await scored(each.task, each.mistake), each.task.name

    asyncio.run(check())
    assert len({each.task.prompt for each in ENVIRONMENTS[family]}) == 20


def test_transfer_shows_what_lessons_are_worth(monkeypatch):
    monkeypatch.setitem(transfer.ALL_FAMILIES, "records", FAMILIES["records"][2:6])  # one of which is told
    monkeypatch.setattr(transfer, "Lessons", partial(Lessons, trusted=True))
    arms = ["without", "resampling", "lessons"]
    runs = runs_of(transfer, ["records"], arms, learns)
    by_arm = {arm: [run for run in runs if run.arm == arm] for arm in arms}
    solved = {arm: sum(run.solved for run in found) for arm, found in by_arm.items()}
    assert solved == {"without": 1, "resampling": 1, "lessons": 3}
    assert sum(run.calls for run in by_arm["without"]) == 4
    assert max(run.calls for run in by_arm["resampling"]) == transfer.CALLS
    assert all(run.calls - run.reflections == 1 for run in by_arm["lessons"])
    assert sum(run.given > 0 for run in by_arm["lessons"]) >= 2
    assert all("JSON list" in run.memory for run in by_arm["lessons"] if run.given)
    report = transfer.report(runs)
    assert "| records | without | 4 x 1 | 1.0 (0.0 to 3.0) | 1.0 | 0 |" in report
    assert "| all | lessons - resampling | 4 | 2 | 0 | 4 |" in report


def test_all_arms_of_transfer_begin_with_the_same_draft():
    replies = Counting(learns)
    [without], [resampling], [lessons] = (
        transfer.series("records", arm, 1) for arm in ("without", "resampling", "lessons")
    )
    first = [replace(one, tasks=one.tasks[:1]) for one in (without, resampling, lessons)]

    async def main():
        for one in first:
            runs = one.start(replies)
            made = await anext(runs)
            await runs.aclose()
            assert made.task == one.tasks[0]

    asyncio.run(main())
    assert replies.asked <= 1 + 2 + 2  # a draft, two samples, a reflection that may be asked for twice


def test_note_runs_tell_noted_runs_from_the_others(monkeypatch):
    monkeypatch.setitem(NOTE_FAMILIES, "functions", replace(FUNCTIONS, inputs=FUNCTIONS.inputs[:4]))
    runs = runs_of(note_runs, ["functions"], ["without", "with notes"], noted)
    groups = note_runs.groups_of(runs)
    assert [run.solved for run in groups["without notes"]] == [False] * 4
    given, others = (
        groups["with a note"],
        groups["first and control runs"],
    )
    assert (len(given) + len(others), next(run.place for run in others)) == (4, 1)
    assert given
    assert all(0 < run.own < run.given for run in given)
    report = note_runs.report(runs)
    assert f"| functions | 0 of 4 | {len(given)} of {len(given)} | +1.00 (+1.00 to +1.00) |" in report


RUN = MemoryRun("a", "without", 1, "f", 1, 0.0, False, 1, 0, 10, 5)


def counted(tasks, calls, **changed):
    async def start(replies):
        for place, task in enumerate(tasks, 1):
            calls.append(task)
            yield replace(RUN, task=task, place=place, **changed)

    return Series(tuple(tasks), "without", 1, start)


def test_a_series_is_run_again_only_if_a_row_is_missing():
    calls, kept = [], []
    run = partial(asyncio.run)
    series = [counted("ab", calls), counted("cd", calls)]
    first = run(run_all(series, None, keep=kept.append))
    assert [each.task for each in first] == [each.task for each in kept] == ["a", "b", "c", "d"]
    calls.clear(), kept.clear()
    assert run(run_all(series, None, done=first[:3], keep=kept.append)) == first
    assert (calls, [each.task for each in kept]) == (["c", "d"], ["d"])
    kept.clear()
    run(run_all(series, None, done=first, version="2", keep=kept.append))
    assert len(kept) == 4


def test_tables_pair_runs_and_add_up_families():
    ours = [replace(RUN, arm="lessons", task=task, family=task, solved=True, given=40) for task in "ab"]
    theirs = [replace(RUN, task=task, family=task) for task in "ab"]
    arms = arms_table(ours + theirs)
    assert "| all | lessons | 2 x 1 | 2.0 (2.0 to 2.0) | 1.0 | 40 | 15 |" in arms
    assert "| all | without | 2 x 1 | 0.0 (0.0 to 0.0) | 1.0 | 0 | none solved |" in arms
    pairs = pairs_table(ours + theirs, "lessons")
    assert "| all | lessons - without | 2 | 2 | 0 | 2 | +2.0 (+2.0 to +2.0) |" in pairs


def command(monkeypatch, module, *arguments):
    monkeypatch.setattr(module, "code_version", lambda *_, **__: "1")  # takes seconds
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    module.BENCHMARK.main()


def test_rows_and_replies_outlive_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(transfer.ALL_FAMILIES, "records", FAMILIES["records"][:3])
    monkeypatch.setattr("_memory.model_of", lambda name, threads: lambda seed: ScriptedModel(learns))
    out = tmp_path / "rows.jsonl"
    chosen = ["--families", "records", "--seeds", "1", "--out", out, "--model", "scripted"]
    command(monkeypatch, transfer, *chosen)
    table = capsys.readouterr().out
    assert table.startswith("scripted\n\n| family | arm |")
    assert len(runs_in(out)) == 15
    command(monkeypatch, transfer, *chosen, "--report")
    assert capsys.readouterr().out == table
    out.unlink()  # the replies alone give the same rows
    command(monkeypatch, transfer, *chosen, "--replay")
    assert capsys.readouterr().out == table


def test_a_reply_that_was_not_recorded_ends_the_benchmark(tmp_path, monkeypatch):
    replies = tmp_path / "replies.jsonl"
    with pytest.raises(SystemExit, match=r"No reply to .* was recorded"):
        command(monkeypatch, transfer, "--families", "records", "--replay", "--replies", replies)


@pytest.mark.parametrize(("option", "what"), [("--families", "family"), ("--arms", "arm")])
def test_unknown_names_are_refused(option, what, monkeypatch):
    with pytest.raises(SystemExit, match=f"Unknown {what} 'none'; choose out of"):
        command(monkeypatch, transfer, option, "none", "--report")


def test_without_a_recording_nothing_is_replayed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("_memory.PROJECT", tmp_path)
    command(monkeypatch, note_runs, "--replay")
    assert (
        capsys.readouterr().out == "SKIPPED: there is no recording benchmarks/cassettes/note-runs.jsonl.gz.\n"
    )
