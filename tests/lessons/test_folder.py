import os
import re
import signal
import subprocess
import sys
import unicodedata
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from redraft.errors import LessonFileError, StoreError
from redraft.lessons.documents import LessonFiles
from redraft.lessons.folder import LessonFolder, folder_name, short_title
from support.lessons import lesson


def folder_in(path):
    return LessonFolder(path, "researcher-agent")


def test_a_lesson_is_stored_where_the_protocol_says(tmp_path):
    filed = folder_in(tmp_path).add(lesson())
    assert filed.id == "researcher-agent/2026-03-01-api-timeout-handling"
    path = tmp_path / "reflections/researcher-agent/2026-03-01-api-timeout-handling.md"
    assert path.is_file()
    assert folder_in(tmp_path).read(filed.id) == filed
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_files_with_equal_names_are_numbered(tmp_path):
    folder = folder_in(tmp_path)
    ids = [folder.add(lesson()).id for _ in range(3)]
    stem = "researcher-agent/2026-03-01-api-timeout-handling"
    assert ids == [stem, f"{stem}-2", f"{stem}-3"]


def test_a_lesson_is_changed_in_place(tmp_path):
    folder = folder_in(tmp_path)
    filed = folder.add(lesson())
    folder.entry_of(filed.id).path.chmod(0o640)
    folder.write(replace(filed, status="retired", why="outdated"))
    assert folder.read(filed.id).why == "outdated"
    assert folder.entry_of(filed.id).path.stat().st_mode & 0o777 == 0o640


def test_the_oldest_lessons_are_archived_by_year_and_keep_their_ids(tmp_path):
    folder = folder_in(tmp_path)
    days = [date(2025, 12, 20) + timedelta(days=n) for n in range(40)]
    ids = [folder.add(lesson(day=day, summary=f"n {n}")).id for n, day in enumerate(days)]
    folder.write(replace(folder.read(ids[0]), status="quarantined"))
    assert folder.archive(keep=30) == ids[1:10]
    assert folder.archive(keep=30) == []
    assert (tmp_path / "reflections/researcher-agent/archive/2025/2025-12-21-n-1.md").is_file()
    assert folder.read(ids[1]).summary == "n 1"
    assert [entry.archived for entry in folder.entries()] == [False] * 31 + [True] * 9
    again = folder.add(lesson(day=days[1], summary="n 1"))
    assert again.id == f"{ids[1]}-2"
    folder.write(replace(folder.read(ids[2]), why="changed"))
    assert folder.read(ids[2]).why == "changed"


def test_a_lesson_from_the_future_grows_old_from_now_on(tmp_path):
    folder, today = folder_in(tmp_path), datetime.now(UTC).date()
    ahead = folder.add(lesson(day=date(2999, 1, 1), summary="ahead")).id
    for number in range(3):
        folder.add(lesson(day=today - timedelta(days=1), summary=f"n {number}"))
    assert len(folder.archive(keep=3)) == 1
    assert folder.read(ahead).day == today
    for number in range(3):
        folder.add(lesson(day=today + timedelta(days=1), summary=f"later {number}"))
    assert ahead in folder.archive(keep=3)


def test_a_broken_file_is_named_and_not_changed(tmp_path):
    folder = folder_in(tmp_path)
    filed = folder.add(lesson())
    path = folder.entry_of(filed.id).path
    path.write_text("---\nkind: failure\n", "utf-8")
    with pytest.raises(LessonFileError, match=r"api-timeout-handling, line 1: .* not closed"):
        folder.read(filed.id)
    for n in range(40):
        folder.add(lesson(day=date(2026, 4, 1), summary=f"n {n}"))
    folder.archive()
    assert path.read_text("utf-8") == "---\nkind: failure\n"


def test_folders_and_pipes_are_reported_and_do_not_affect_others(tmp_path):
    folder = folder_in(tmp_path)
    filed = folder.add(lesson())
    place = folder.entry_of(filed.id).path.parent
    (place / "2026-03-02-folder.md").mkdir()
    os.mkfifo(place / "2026-03-02-pipe.md")
    entries = {entry.id.partition("/")[2]: entry for entry in folder.entries()}
    for name in ("2026-03-02-folder", "2026-03-02-pipe"):
        with pytest.raises(LessonFileError, match=f"{name}: This is not a file"):
            folder.read_entry(entries[name])
    assert folder.read(filed.id) == filed


def test_a_lesson_without_a_date_has_the_date_of_its_file(tmp_path):
    folder = folder_in(tmp_path)
    filed = folder.add(lesson(summary="Named"))
    text = folder.entry_of(filed.id).path.read_text("utf-8").replace("# Reflection: 2026-03-01 - ", "# ")
    by_hand = folder.entry_of(filed.id).path.with_name("read-the-cursor.md")
    by_hand.write_text(text, "utf-8")
    os.utime(by_hand, (1_700_000_000, 1_700_000_000))
    found = folder.read("researcher-agent/read-the-cursor")
    assert (found.day, found.summary) == (date(2023, 11, 14), "researcher-agent - Named")
    assert folder.archive(keep=1) == [found.id]
    assert folder.entry_of(found.id).path.parent.name == "2023"
    assert [entry.id for entry in folder.entries() if entry.archived] == [found.id]


@pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * 1_000_001], ids=["not utf-8", "too large"])
def test_files_that_are_not_utf8_are_refused(tmp_path, data):
    folder = folder_in(tmp_path)
    filed = folder.add(lesson())
    folder.entry_of(filed.id).path.write_bytes(data)
    with pytest.raises(LessonFileError):
        folder.read(filed.id)


def test_links_are_not_followed(tmp_path):
    folder = folder_in(tmp_path)
    outside = tmp_path / "outside.md"
    outside.write_text("outside", "utf-8")
    filed = folder.add(lesson())
    link = folder.entry_of(filed.id).path.with_name("2026-03-02-link.md")
    link.symlink_to(outside)
    (entry,) = [entry for entry in folder.entries() if entry.path == link]
    with pytest.raises(LessonFileError, match="link"):
        folder.read_entry(entry)
    with pytest.raises(LessonFileError):
        folder.write(replace(filed, id="researcher-agent/2026-03-02-link"))
    assert outside.read_text("utf-8") == "outside"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("../../etc/passwd", "not the id of a lesson; expected <agent>/<file name"),
        ("other/2026-03-01-x", "lesson of 'other', not of 'researcher-agent'"),
        ("researcher-agent/../x", "not the id"),
        ("x", "'x': This is not the id"),
        ("", "not the id"),
        ("researcher-agent/", "not the id"),
        ("researcher-agent/CON", "No such lesson"),
        ("researcher-agent/" + "x" * 5_000, "not the id"),
        ("researcher-agent/\0", "No such lesson"),
    ],
)
def test_an_id_never_leaves_the_folder(tmp_path, bad, says):
    with pytest.raises(LessonFileError, match=says):
        folder_in(tmp_path).read(bad)


def test_an_unwritable_folder_is_named_in_the_error(tmp_path):
    (tmp_path / "reflections").write_text("in the way", "utf-8")
    with pytest.raises(StoreError, match="reflections/researcher-agent"):
        folder_in(tmp_path).add(lesson())


def test_agents_are_listed_by_their_folders(tmp_path):
    assert LessonFiles(tmp_path).agents() == {}
    for agent in ("b", "a", "a/b"):
        LessonFolder(tmp_path, agent).add(lesson(agent=agent))
    (tmp_path / "reflections/.hidden").mkdir()
    found = list(LessonFiles(tmp_path).agents())
    assert found == ["a", folder_name("a/b"), "b"]


TESTS = str(Path(__file__).parents[1])
FILE_MANY = """
import asyncio, sys
from dataclasses import replace
sys.path.insert(0, {tests!r})
from support.learning_agents import learning, TASK
from support.lessons import FAILURE
from redraft import SqliteStore
from redraft import Task

async def main(path, name):
    async with learning(path, store=SqliteStore(path + "/store.db")) as lessons:
        print("ready", flush=True)
        for number in range({count}):
            words = " ".join(f"{{name}}{{letter}}{{number}}" for letter in "abcdefghij")
            content = replace(FAILURE, what_happened=words, why=words, do_differently=words)
            lesson = await lessons.record(content, TASK, run_id=f"{{name}}-{{number}}")
            print(lesson.id, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def started(script, *arguments, **values):
    source = script.format(tests=TESTS, **values)
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ
    )


def test_processes_file_lessons_concurrently_and_one_is_killed(tmp_path):
    processes = [started(FILE_MANY, str(tmp_path), name, count=2) for name in "wabc"]
    filed = set()
    killed = processes[0]
    for line in killed.stdout:
        if line.startswith("agent/"):
            filed.add(line.strip())
            killed.send_signal(signal.SIGKILL)
            break
    for process in processes:
        rest = process.communicate(timeout=60)[0].split("\n")
        filed |= {line for line in rest if line.startswith("agent/")}
    assert [process.returncode for process in processes] == [-signal.SIGKILL, *[0] * 3]

    folder = LessonFolder(tmp_path, "agent")
    lessons = list(folder.lessons())
    assert filed <= {lesson.id for lesson in lessons}
    sources = [lesson.source for lesson in lessons]
    assert len(sources) == len(set(sources))
    assert len([source for source in sources if not source.startswith("w")]) == 6


def test_rules_and_playbooks_are_not_lessons(tmp_path):
    folder = LessonFolder(tmp_path, "researcher-agent")
    filed = folder.add(lesson())
    place = tmp_path / "reflections/researcher-agent"
    (place / "rules.md").write_text("# Rules\n")
    (place / "playbooks").mkdir()
    (place / "playbooks/2026-03-01-fetch.md").write_text("# Playbook\n")
    assert [entry.id for entry in folder.entries()] == [filed.id]
    assert folder.archive(keep=1) == []


HOSTILE = [
    "../../etc/passwd", "CON", "con", "NUL.txt", "x" * 5000, "a/b", "a\\b", "", " ", ".", "..", "-", "~",
    "\x00", "a\u202eb", "\ud800", "\U000e0041", "\u4f60\u597d", "\U0001f600", "com1", "a" * 59 + "-b", "A",
    "a b", "a--b", "$(rm)", "archive", ".hidden", "caf\u00e9", "cafe", "CAFE", "a\nb", "lpt9", "aux",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_file_names_are_portable(text):
    for name, letters in ((short_title(text), r"[^\W_]"), (folder_name(text), "[a-z0-9]")):
        assert re.fullmatch(f"{letters}+(-{letters}+)*", name)
        assert len(name) <= 60
        assert name == unicodedata.normalize("NFC", name).casefold()
    assert folder_name(text) not in {"con", "nul", "aux", "com1", "lpt9"}


@pytest.mark.parametrize("agent", HOSTILE)
def test_the_name_of_a_folder_is_its_own_folder_name(agent):
    assert folder_name(folder_name(agent)) == folder_name(agent)


def test_no_two_agents_share_a_folder():
    assert len({folder_name(text) for text in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize(
    ("summary", "title"),
    [
        ("API timeout handling", "api-timeout-handling"),
        ("The price list could not be fetched at all", "price-list-could-not-be"),
        ("No print() is left in the code", "no-print-left-in-code"),
        ("The lamp is a gift", "the-lamp-is-a-gift"),
        ("A the an is are a", "a-the-an-is-are"),
        ("Café: naïve (retry!)", "cafe-naive-retry"),
        ("你好", "你好"),
        ("Проверяй статус ответа, потом тело", "проверяй-статус-ответа-потом-тело"),
        ("ステータスを確認する", "ステータスを確認する"),
        ("상태 먼저 확인", "상태-먼저-확인"),
        ("पहले स्थिति जाँचें", "पहले-स्थिति-जाँचें"),
        ("تحقق من الحالة", "تحقق-من-الحالة"),
        ("Ärger mit ﬁle №\u2006\uff15", "arger-mit-file-no-5"),
        ("\u202eevil\u2066 name", "evil-name"),
        ("a/../b\\c:d*e", "a-b-c-d-e"),
        ("状" * 100, "状" * 40),
        ("\U0001f600 \u0301", "untitled"),
        ("\ud800", "untitled"),
    ],
)
def test_a_title_has_five_words_at_most(summary, title):
    assert short_title(summary) == title


def test_a_plain_agent_name_is_its_folder_name():
    assert folder_name("researcher-agent") == "researcher-agent"
