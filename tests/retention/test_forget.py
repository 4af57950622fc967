import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256

import pytest

from redraft import Agent, ConfigError, MemoryStore, QualityCriterion, Runs, ScriptedModel
from redraft.cycles import Agents, LongTermStorage, write_behind
from redraft.cycles.storage import storage_of
from redraft.evals.cases import EvalCase
from redraft.evals.evaluation import Evaluation
from redraft.fleet.postgres_queue import ProcrastinateQueue
from redraft.fleet.queue import FleetJob, StoreQueue
from redraft.integrations.hook_sessions import CodingSession, Sessions
from redraft.lessons.impact import Use
from redraft.lessons.library import LessonLibrary
from redraft.loop.journal import STEP
from redraft.loop.record import Origin, Process, RunRecord, task_digest
from redraft.notes.note import NoteUse, TaskReflection
from redraft.notes.store import NoteStore
from redraft.notes.task import TaskIdentity
from redraft.retention import ProjectData, project_data, survey
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.types import Image, PlainTask
from support.commands import document, redraft
from support.filled_project import OTHER, PERSON, fill, stored_with
from support.monitor import World, monitor
from support.processes import WITHOUT_PRIVILEGES


def forget(**what):
    return asyncio.run(ProjectData().forget(**what))


def holders(folder, word):
    return stored_with(folder, word, os.environ.get("REDRAFT_DATABASE_URL"))


def test_no_byte_of_a_text_is_left_and_other_runs_stay(project, monkeypatch):
    monkeypatch.delenv("REDRAFT_EMBEDDER")
    asyncio.run(fill(project, PERSON, OTHER))
    assert len(holders(project, "quokk")) > 5
    of_others = holders(project, "wombat")
    checked = forget(text=PERSON, check=True)
    assert holders(project, "wombat") == of_others
    erased = forget(text=PERSON.upper())
    assert {**erased.counts} == {**checked.counts}
    assert erased.runs == checked.runs == ("attempt-quokka", "letter-quokka", "thanks-quokka.1")
    assert erased.other_files == ("quokka.txt",)
    (project / "quokka.txt").unlink()
    assert holders(project, "quokk") == []
    assert [one.replace("quokka", "") for one in holders(project, "wombat")] == of_others
    again = forget(text=PERSON)
    assert (again.counts, again.runs) == ({}, ())


def test_erased_things_are_counted_by_kind(project):
    asyncio.run(fill(project, PERSON))
    counts = forget(text=PERSON, check=True).counts
    assert list(counts)[:4] == ["run", "note", "lesson", "rule"]
    assert counts["run"] == 2
    assert (counts["note"], counts["lesson"], counts["rule"], counts["lesson use"]) == (1, 1, 1, 1)
    assert (counts["coding attempt"], counts["coding session"]) == (1, 1)
    assert counts["event"] >= 4
    assert counts["memory item"] >= 1


def test_a_note_that_quotes_it_is_no_longer_in_force(project):
    async def main():
        await fill(project, PERSON)
        await ProjectData().forget(text=PERSON)
        notes = NoteStore(project_store())
        [noted] = await notes.tasks()
        assert (noted.in_force, noted.run_count) == (None, 2)
        assert [note.version for note in await notes.revisions(noted.identity)] == [1]
        assert await notes.current(noted.identity) is None

    asyncio.run(main())


def test_a_run_is_forgotten_with_its_notes_and_lessons(project):
    asyncio.run(fill(project, PERSON, OTHER))
    erased = forget(run="letter-quokka")
    assert erased.runs == ("letter-quokka",)
    assert len(erased.lessons) == 1
    assert erased.counts["event"] >= 4
    left = asyncio.run(Runs().find(inner=True))
    assert "letter-quokka" not in [run.run_id for run in left]
    assert "letter-wombat" in [run.run_id for run in left]


def check_remark(remark, run, how):
    shown = redraft("forget", "--run", run, how)
    assert shown.exit_code == 0, shown.stderr
    lines = [line for line in shown.stdout.splitlines() if line.startswith("The prompts of")]
    assert [line[: len(remark or "")] for line in lines] == ([remark] if remark else [])


@pytest.mark.parametrize(
    ("users", "remark", "how"),
    [
        (["one", "two"], "The prompts of 2 later runs contain these lessons or notes: `redraft", "--yes"),
        (["one"], "The prompts of 1 later run contain these lessons or notes", "--check"),
        (["pruned", "letter-quokka"], None, "--yes"),  # no such run stays
    ],
)
def test_later_runs_with_the_erased_lessons_in_their_prompts_are_counted(project, users, remark, how):
    asyncio.run(fill(project, PERSON))
    [lesson] = forget(run="letter-quokka", check=True).lessons
    stay = [run_record(name, status="finished", task="Another.") for name in ("one", "two")]
    asyncio.run(put(*stay, *(Use(lesson, user, datetime.now(UTC)).record() for user in users)))
    check_remark(remark, "letter-quokka", how)


@pytest.mark.parametrize(
    ("version", "arm", "remark"),
    [(1, "note", "The prompts of 1 later run contain these lessons or notes"), (None, "control", None)],
)
def test_later_runs_with_the_erased_notes_in_their_prompts_are_counted(project, version, arm, remark):
    async def run_twice():
        store, task = project_store(), PlainTask("Greet the customer.")
        notes = NoteStore(store)
        await put(run_record("first", status="finished"), run_record("later", status="finished"))
        await notes.append(task, TaskReflection("Greet by name.", "One line."), run_id="first")
        [noted] = await notes.tasks()
        await notes.record_use(noted.identity, NoteUse("later", version, arm, 0.5))

    asyncio.run(run_twice())
    check_remark(remark, "first", "--check")


def test_the_exports_of_a_run_are_listed(project):
    asyncio.run(fill(project, PERSON, OTHER))
    for run in ("letter-quokka", "letter-wombat"):
        assert redraft("export", run, "--html", f"{run}.html").exit_code == 0
        (project / f"{run}.json").write_text(redraft("export", run, "--json").stdout, "utf-8")
    (project / "letter-quokka-2.json").write_text('{"run_id": "letter-quokka-2"}', "utf-8")
    (project / "app.py").write_text("run_id = 'letter-quokka'", "utf-8")
    erased = redraft("forget", "--run", "letter-quokka", "--yes")
    assert erased.exit_code == 1
    assert "These other files contain it; change them yourself:" in erased.stdout
    assert [line.strip() for line in erased.stdout.splitlines() if "letter-quokka." in line] == [
        "letter-quokka.html",
        "letter-quokka.json",
    ]


# --- interrupted, refused, forced --------------------------------------------------------------------------

KILLED = """\
import asyncio, os, signal
from redraft.retention import ProjectData
from redraft.stores.sqlite import SqliteStore

delete, left = SqliteStore.delete, [{after}]

async def killed(self, kind, key):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return await delete(self, kind, key)

async def scrub(self):
    os.kill(os.getpid(), signal.SIGKILL)

SqliteStore.delete, SqliteStore.scrub = killed, scrub
asyncio.run(ProjectData().forget(text={text!r}))
"""


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
@pytest.mark.parametrize("after", [1, 7, 16, 1000], ids=["at once", "early", "late", "before the scrub"])
def test_a_killed_call_is_completed_by_the_same_call(project, after):
    asyncio.run(fill(project, PERSON))
    (project / "quokka.txt").unlink()
    script = KILLED.format(after=after, text=PERSON)
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert holders(project, "quokk") != []
    forget(text=PERSON)
    assert holders(project, "quokk") == []


def run_record(run_id, *, host=None, pid=None, started="x", status="running", parent="", task=PERSON):
    process = Process(host or socket.gethostname(), os.getpid() if pid is None else pid, started)
    now = datetime.now(UTC)
    return RunRecord(run_id, PlainTask(task), Origin(), {}, now, process, status, parent=parent)


async def put(*records):
    store = project_store()
    for record in records:
        await store.put(record if isinstance(record, Record) else record.stored())


def test_nothing_is_erased_while_one_of_the_runs_is_going_on(project):
    running = run_record("live", started=Process.this().started)
    asyncio.run(put(running, run_record("done", status="finished")))
    with pytest.raises(ConfigError, match="The run 'live' is still going on: wait for the end"):
        forget(text=PERSON, force=True)
    assert len(asyncio.run(Runs().find())) == 2
    assert forget(run="done").runs == ("done",)


def test_a_run_that_this_machine_cannot_check_needs_force(project):
    asyncio.run(put(run_record("far", host="another machine")))
    with pytest.raises(
        ConfigError, match=r"can't tell whether the run 'far' is still going on\. If not, add --force\."
    ):
        forget(run="far")
    assert forget(run="far", force=True).counts == {"run": 1}


def test_all_runs_that_may_be_going_on_are_named_in_a_single_error(project):
    there = [run_record(f"far-{number}", host="another machine") for number in range(2)]
    asyncio.run(put(*there))
    with pytest.raises(
        ConfigError, match=r"the runs 'far-0', 'far-1' are still going on\. If not, add --force\."
    ):
        forget(text=PERSON)
    live = [run_record(f"live-{number}", started=Process.this().started) for number in range(2)]
    asyncio.run(put(*live))
    with pytest.raises(ConfigError, match=r"^The runs 'live-0', 'live-1' are still going on: wait"):
        forget(text=PERSON, force=True)


def test_a_run_whose_process_was_killed_is_erased(project):
    asyncio.run(put(run_record("dead", pid=2**22 + 1)))
    assert forget(run="last").runs == ("dead",)


def test_an_agent_that_runs_is_not_erased_from(project):
    async def main():
        async with monitor(World(), storage="project") as agent:
            await agent.run_cycle()
            await (await Agents().get("monitor")).send_feedback("approve", PERSON)
            with pytest.raises(ConfigError, match=r"The agent 'monitor' is run by .* stop it"):
                await ProjectData().forget(text=PERSON)
        assert (await ProjectData().forget(text=PERSON)).counts == {"feedback message": 1}

    asyncio.run(main())


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_the_long_term_storage_of_every_network_is_erased_from(project, monkeypatch):
    url = os.environ["REDRAFT_DATABASE_URL"]
    for late in ("OPEN_TIMEOUT", "ANSWER_TIMEOUT", "CLOSE_TIMEOUT"):  # a slow server loses no feedback
        monkeypatch.setattr(write_behind, late, 60)

    async def main():
        for network in ("default", "plant: 2"):
            storage = LongTermStorage(url, network=network)
            async with monitor(World(), network=network) as agent:
                await agent.run_cycle()
                for person in (PERSON, OTHER):
                    await (await Agents(network).get("monitor")).send_feedback("approve", person)
                await agent.run_cycle()
            await storage.aclose()
        monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", url)
        assert stored_with(project, "quokk", url) == ["redraft_agent_records"]
        found = await ProjectData().forget(text=PERSON)
        assert found.counts["memory item"] == 2
        assert "redraft_agent_records" in found.remarks[-1]
        assert stored_with(project, "quokk", url) == []
        assert stored_with(project, "wombat", url) == ["redraft_agent_records"]
        await storage_of("default").aclose()

    asyncio.run(main())


def test_an_agent_goes_on_with_the_rest_of_its_memory(project):
    async def main():
        await fill(project, PERSON, OTHER)
        await ProjectData().forget(text=PERSON)
        async with monitor(World(), storage="project") as agent:
            result = await agent.run_cycle()
            assert result.status == "finished"
            said = [item["message"] for item in agent.memory.of("feedbackHistory")]
            assert said == [f"{OTHER} says so"]
        handle = await Agents().get("monitor")
        assert [cycle.number for cycle in await handle.cycles()] == [3, 2, 1]
        assert "[erased]" in str((await handle.cycle(2)).changes)
        assert len((await handle.memory_at(2)).of("feedbackHistory")) == 1
        await handle.aclose()

    asyncio.run(main())


def test_a_copy_in_a_large_file_is_found(project, monkeypatch):
    monkeypatch.setattr(project_data, "CHUNK", 1_000)
    (project / "large.bin").write_bytes(b"\0" * 995 + PERSON.encode() + b"\0" * 2_000)
    (project / "other.bin").write_bytes(b"x" * 5_000)
    assert forget(text=PERSON, check=True).other_files == ("large.bin",)


def test_names_of_files_are_searched_too(project):
    lesson = "# Fact: 2026-01-01 - clerk - x\n## What is it about?\na\n## What is so?\nb\n"
    lesson += "## What shows it?\nc\n"
    library = LessonLibrary(project / "memory")
    for name, text in ((f"2026-01-01-{PERSON}", lesson), (f"playbooks/2026-01-01-{PERSON}", "broken")):
        library.documents.add(f"clerk/{name}", text)
    (project / f"{PERSON}.txt").write_text("Dear customer")
    erased = asyncio.run(ProjectData(memory=project / "memory").forget(text=PERSON))
    assert {**erased.counts} == {"lesson": 1, "playbook": 1}
    assert erased.other_files == (f"{PERSON}.txt",)
    assert not any(list(library.documents.entries(folder)) for folder in ("clerk", "clerk/playbooks"))


def test_other_files_are_listed_by_a_check_too(project):
    asyncio.run(fill(project, PERSON))
    copies = (".redraft/redraft.db.damaged", "memory/README.md", "quokka.txt")
    for name in copies:
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(PERSON)
    assert sorted(forget(text=PERSON, check=True).other_files) == sorted(copies)
    assert sorted(forget(text=PERSON).other_files) == sorted(copies)


def test_a_file_that_is_deleted_meanwhile_is_passed_over(project, monkeypatch):
    monkeypatch.setattr(project_data, "_files_in", lambda folder, unread: [folder / "gone", folder / "copy"])
    (project / "copy").write_text(PERSON)
    assert forget(text=PERSON).other_files == ("copy",)


def test_a_coding_session_that_ends_meanwhile_is_passed_over(project):
    sessions = Sessions()
    for name in ("a", "b", "c"):
        sessions.save(CodingSession(name))

    def is_match(text):
        sessions.delete(CodingSession("b"))
        return text == "c"

    assert sessions.erase(is_match, on_unreadable=pytest.fail) == ["c.json"]


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_a_session_in_the_folder_that_projects_once_shared_is_erased(project, monkeypatch):
    home = project.with_name(f"{project.name}-home")
    (home / "hooks").mkdir(parents=True)
    for name, text in (("old", PERSON), ("other", "nothing")):
        (home / "hooks" / f"{name}.json").write_text(json.dumps({"prompt": text}))
    monkeypatch.setenv("REDRAFT_HOME", str(home))
    assert forget(text=PERSON, check=True).counts["coding session"] == 1
    assert forget(text=PERSON).counts["coding session"] == 1
    assert [path.name for path in (home / "hooks").iterdir()] == ["other.json"]


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_unreadable_files_are_named_and_all_else_is_erased(project):
    asyncio.run(fill(project, PERSON))
    (project / "quokka.txt").unlink()
    lessons = project / "memory" / "reflections" / "clerk"
    (lessons / "2026-01-01-folder.md").mkdir()
    (lessons / "2026-01-01-latin.md").write_bytes("Z\u00ebphyr".encode("latin-1"))
    (lessons / "2026-01-01-link.md").symlink_to("/etc/passwd")
    (lessons / "rules.md").unlink()
    (lessons / "rules.md").mkdir()
    (lessons / "playbooks").write_text("no folder")
    (project / ".redraft" / "hooks" / "claude.json").mkdir()
    [index] = (project / "memory" / ".index").glob("*.db")
    index.write_bytes(b"no database" * 1_000)
    unreadable = (
        ".redraft/hooks/claude.json: Is a directory.",
        "memory/reflections/clerk/2026-01-01-folder.md: This is not a file.",
        (
            "memory/reflections/clerk/2026-01-01-latin.md: This is not UTF-8 (invalid continuation byte): "
            "save it as UTF-8."
        ),
        "memory/reflections/clerk/2026-01-01-link.md: This is a link, and links are not followed.",
        "memory/reflections/clerk/playbooks: This is not a folder.",
        "memory/reflections/clerk/rules.md: This is not a file.",
    )
    checked = forget(text=PERSON, check=True)
    assert checked.unreadable == unreadable
    erased = forget(text=PERSON)
    assert (erased.unreadable, erased.counts) == (unreadable, checked.counts)
    assert holders(project, "quokk") == []
    command = redraft("forget", "--text", PERSON, "--yes")
    assert (command.exit_code, "could not be searched" in command.stdout) == (1, True)
    shown = " ".join(command.stdout.split())  # long lines are broken
    assert [one for one in unreadable if one not in shown] == []
    assert redraft("forget", "--text", PERSON, "--check").exit_code == 0


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_all_else_is_erased_if_no_lesson_can_be_searched(project):
    asyncio.run(fill(project, PERSON))
    (project / "memory" / "reflections").rename(project.with_name("moved"))
    (project / "memory" / "reflections").write_text("no folder")
    erased = forget(text=PERSON)
    assert (erased.unreadable, erased.lessons) == (("memory/reflections: Not a directory.",), ())
    assert erased.runs


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_remaining_damaged_records_are_named_also_records_of_agents(project):
    asyncio.run(fill(project, PERSON, OTHER))
    with closing(sqlite3.connect(project / ".redraft" / "redraft.db")) as database, database:
        for key in ("letter-quokka/00001", "letter-wombat/00001", "journal"):
            damaged = database.execute("UPDATE records SET data = '{' WHERE key = ?", (key,))
            assert damaged.rowcount == 1
    named = forget(text=PERSON).unreadable
    assert [one.partition(" is damaged")[0] for one in named] == [
        "The record 'step' 'letter-wombat/00001'",
        "The record 'journal' 'journal'",
    ]
    left = redraft("forget", "--text", PERSON, "--yes", "--json")
    assert (left.exit_code, document(left)["forgotten"]["unreadable"]) == (1, list(named))


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_files_and_folders_without_permission_are_named(project):
    asyncio.run(fill(project, PERSON))
    agent = project / "memory" / "reflections" / "clerk"
    [lesson] = agent.glob("2*.md")
    (project / "private").mkdir(0o000)
    closed = agent.with_name("closed")
    closed.mkdir(0o000)
    playbooks = agent / "playbooks"
    playbooks.mkdir(0o000)
    (project / "events.jsonl").chmod(0o000)
    lesson.chmod(0o000)
    command = [*WITHOUT_PRIVILEGES, sys.executable, "-m", "redraft", "forget", "--text", PERSON, "--yes"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    for path in (lesson, closed, playbooks, project / "private", project / "events.jsonl"):
        assert f"{path.relative_to(project)}: Permission denied. " in " ".join(done.stdout.split()), done
    assert "  quokka.txt\n" in done.stdout
    assert done.returncode == 1
    assert asyncio.run(Runs().find(inner=True)) == []


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_data_is_searched_at_any_depth(project):
    def nested(depth):
        return f'{"[" * depth}"{PERSON}"{"]" * depth}'

    asyncio.run(put(Record("attempt", "deep", {"nested": json.loads(nested(900))})))
    for number, depth in enumerate((900, 100_000)):
        Sessions().save(CodingSession(f"claude-{number}"))
        (project / ".redraft" / "hooks" / f"claude-{number}.json").write_text(nested(depth))
    event = '{"schema_version": 1, "event": "draft", "run_id": "other", "output": '
    (project / "events.jsonl").write_text(f"{event}{nested(900)}}}\n")
    (project / "deep.jsonl").write_text(f"{event}{nested(100_000)}}}\n")
    erased = forget(text=PERSON)
    assert {**erased.counts} == {"coding attempt": 1, "coding session": 2, "event": 1}
    assert erased.other_files == ("deep.jsonl",)


def test_an_event_that_was_cut_off_is_named_since_it_is_not_erased(project):
    event = {"schema_version": 1, "event": "draft", "at": "2026-01-01T00:00:00Z", "text": PERSON}
    whole = json.dumps(event)
    (project / "events.jsonl").write_text(f"{whole}\n{whole[:-2]}")
    erased = forget(text=PERSON)
    assert (erased.counts, erased.other_files) == ({"event": 1}, ("events.jsonl",))


def test_a_job_that_waits_has_to_be_cancelled_first():
    async def main():
        store = MemoryStore()
        queue = StoreQueue(store)
        await queue.submit(FleetJob("letter", "clerk", {"description": PERSON}))
        data = ProjectData(store, "nowhere", "nowhere")
        with pytest.raises(ConfigError, match=r"'letter' is queued: cancel it \(redraft cancel letter\)"):
            await data.forget(text=PERSON)
        await queue.cancel("letter")
        assert (await data.forget(text=PERSON)).runs == ("letter",)
        assert await store.kinds() == {}

    asyncio.run(main())


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_jobs_in_the_queue_of_a_database_are_erased_too(project):
    async def main():
        queue = ProcrastinateQueue(os.environ["REDRAFT_DATABASE_URL"], "shop")
        assert not await queue.is_created()
        assert (await ProjectData().forget(text=PERSON)).counts == {}
        assert not await queue.is_created()
        for name, asked in (("quokka", PERSON), ("wombat", OTHER)):
            await queue.submit(FleetJob(name, "clerk", {"description": asked}))
        with pytest.raises(ConfigError, match="'quokka' is queued"):
            await ProjectData().forget(text=PERSON)
        await queue.cancel("quokka")
        assert (await ProjectData().forget(text=PERSON, check=True)).counts == {"job": 1}
        assert (await ProjectData().forget(text=PERSON)).runs == ("quokka",)
        assert [job.run_id for job in await queue.find()] == ["wombat"]
        await queue.leave()

    asyncio.run(main())


# --- what belongs together ---------------------------------------------------------------------------------


def test_an_inner_run_is_erased_with_its_outer_run(project):
    inner = run_record("outer.0a0b0c0d", status="finished", parent="outer", task="part")
    asyncio.run(put(run_record("outer", status="finished"), inner, run_record("outer-2", status="finished")))
    with pytest.raises(ConfigError, match=r"'outer\.0a0b0c0d' ran inside 'outer': forget that run"):
        forget(run="outer.0a0b")
    with pytest.raises(ConfigError, match=r"Several runs match 'out': outer, outer-2"):
        forget(run="out")
    assert forget(run="outer").runs == ("outer", "outer.0a0b0c0d")
    assert [run.run_id for run in asyncio.run(Runs().find(inner=True))] == ["outer-2"]


@pytest.mark.parametrize("reference", ["last", "e-ax", "e-a", "20260102-030405-0a0b0c0d"])
def test_an_ensemble_is_forgotten_with_all_its_runs(project, reference):
    ensemble = reference if reference.startswith("2026") else "e-ax"
    runs = [
        replace(run_record(f"{ensemble}.{number}", status="finished"), origin=Origin("task"))
        for number in (1, 2)
    ]
    asyncio.run(put(run_record("other", status="finished"), *runs))
    with pytest.raises(ConfigError, match=f"ran inside '{ensemble}': forget that run"):
        forget(run=f"{ensemble}.1")
    assert forget(run=reference).runs == (f"{ensemble}.1", f"{ensemble}.2")
    assert [run.run_id for run in asyncio.run(Runs().find(inner=True))] == ["other"]


def test_of_an_evaluation_only_the_attempts_go_that_contain_the_text(project):
    async def main():
        criteria = (QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"}),)
        cases = [EvalCase(name, PlainTask(f"Serve {name}."), criteria=criteria) for name in ("one", "two")]
        agent = Agent(
            ScriptedModel(lambda request: f"tea for {PERSON}" if "Serve one" in str(request) else "tea")
        )
        await Evaluation(cases, agent).run()
        store = project_store()
        assert (await ProjectData().forget(text=PERSON)).counts["evaluation attempt"] == 1
        kinds = await store.kinds()
        assert (kinds["evaluation"].records, kinds["try"].records, kinds["run"].records) == (1, 1, 1)
        [evaluation] = await store.find("evaluation")
        await ProjectData().forget(run=evaluation.key)
        assert await store.kinds() == {}

    asyncio.run(main())


def test_all_runs_of_a_task_are_forgotten(project):
    asyncio.run(fill(project, PERSON, OTHER))
    task = f"Write to {PERSON}."
    assert forget(task=task, check=True).runs == ("letter-quokka",)
    assert forget(task=task_digest(task)).runs == ("letter-quokka",)
    assert forget(task=task).runs == ()
    erased = forget(task=TaskIdentity.of("Greet customer 0."))
    assert (erased.counts["note"], erased.counts.get("task with notes")) == (2, None)
    assert len(asyncio.run(NoteStore(project_store()).tasks())) == 1


def test_images_go_with_the_last_run_that_has_them():
    async def main():
        store = MemoryStore()
        image = Image("image/png", sha256(b"a").hexdigest(), data=b"a")
        for name in ("one", "two"):
            agent = Agent(ScriptedModel(["fine"]), keep=store)
            await agent.run(PlainTask(name, images=(image,)), run_id=name)
        data = ProjectData(store, "nowhere", "nowhere")
        assert (await store.kinds())["image"].records == 1
        assert "image" not in (await data.forget(run="one")).counts
        assert (await data.forget(run="two")).counts["image"] == 1
        assert await store.kinds() == {}

    asyncio.run(main())


def test_records_that_the_project_needs_stay_and_are_named():
    async def main():
        store = MemoryStore()
        await store.put(Record("schedule", PERSON, {"until": ""}))
        await store.put(Record("person", "token", {"name": PERSON}))
        found = await ProjectData(store, "nowhere", "nowhere").forget(text=PERSON)
        assert found.counts == {"token": 1}
        assert found.remarks == ("It is also part of a name that stays, in: schedule.",)

    asyncio.run(main())


def test_events_are_overwritten_where_they_are(project):
    asyncio.run(fill(project, PERSON))
    path = project / "events.jsonl"
    size, lines = path.stat().st_size, len(path.read_text().splitlines())
    with path.open("a") as appending:
        forget(run="letter-quokka")
        appending.write('{"schema_version": 1, "event": "later"}\n')
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.stat().st_size == size + 40
    assert [event["event"] for event in events] == ["erased"] * lines + ["later"]


@pytest.mark.parametrize("what", [{}, {"run": "a", "text": "abc"}, {"text": "ab"}])
def test_what_to_forget_must_be_clear(project, what):
    with pytest.raises(ConfigError, match=r"one of run, task and text|at least 3 characters"):
        forget(**what)


def test_the_kind_of_attempts_is_the_same_in_mcp():
    mcp = pytest.importorskip("redraft.integrations.mcp")
    assert survey.ATTEMPT == mcp.ATTEMPT


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_asks_before_it_erases(project, monkeypatch):
    asyncio.run(put(run_record("done", status="finished")))
    refused = redraft("forget", "--text", PERSON)
    assert (refused.exit_code, "Pass --yes to erase" in refused.stderr) == (2, True)
    checked = document(redraft("forget", "--text", PERSON, "--check", "--json"))["forgotten"]
    assert (checked["checked"], checked["counts"], checked["runs"]) == (True, {"run": 1}, ["done"])
    done = redraft("forget", "--text", PERSON, "--yes")
    assert done.exit_code == 0
    assert done.stdout.startswith("Erased: 1 run.\n  run  done\n")
    assert "Out of reach: backups" in done.stdout
    nothing = redraft("forget", "--text", PERSON)  # there is nothing to ask about
    assert (nothing.exit_code, nothing.stdout.count("Nothing is stored about it.")) == (0, 1)
    assert redraft("forget", "--run", "a", "--task", "b").exit_code == 2
    asyncio.run(put(run_record("done", status="finished")))
    read = document(redraft("forget", "--text", "-", "--check", "--json", stdin=f"{PERSON}\n"))
    assert read["forgotten"]["runs"] == ["done"]
    (project / "export.html").write_text(PERSON)
    left = redraft("forget", "--text", PERSON, "--yes")
    again = redraft("forget", "--text", PERSON, "--yes")
    assert again.stdout.startswith("There is nothing to erase.\nThese other files contain it")
    assert (left.exit_code, "  export.html\n" in left.stdout) == (1, True)


@pytest.mark.parametrize("how", ["--check", "--yes", "--json"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--run", "doen"), "There is no run 'doen' here; `redraft runs` lists the runs."),
        (("--task", "Say it."), "There is no run or note of the task 'Say it.' here"),
    ],
)
def test_a_name_that_nothing_has_is_an_error(project, how, words, told):
    asyncio.run(put(run_record("done", status="finished")))
    result = redraft("forget", *words, how)
    assert (result.exit_code, result.stdout, told in result.stderr) == (2, "", True), result.stderr
    assert ("this one has completed it" in result.stderr) == (how != "--check")
    assert len(asyncio.run(Runs().find())) == 1


def test_the_journal_of_a_run_without_a_record_is_erased(project):
    step = Record(STEP, "done/1", {"name": "generate", "result": PERSON})
    asyncio.run(put(step))
    done = redraft("forget", "--run", "done", "--yes")
    assert (done.exit_code, done.stdout.startswith("Erased: 1 journal step.")) == (0, True), done.stderr


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
@pytest.mark.parametrize("after", [1, 7, 1000], ids=["at once", "late", "before the scrub"])
def test_a_killed_command_is_completed_by_the_same_command(project, after):
    asyncio.run(fill(project, PERSON))
    (project / "quokka.txt").unlink()
    script = KILLED.format(after=after, text=PERSON).replace(f"text={PERSON!r}", "run='letter-quokka'")
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    completed = redraft("forget", "--run", "letter-quokka", "--yes")
    assert completed.exit_code == (2 if after == 1000 else 0)
    assert holders(project, "letter-quokka") == []
