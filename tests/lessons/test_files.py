import threading

import pytest

from lessons_made import lesson
from redraft.core.errors import StoreError
from redraft.lessons import files
from redraft.lessons.files import locked, write_over
from redraft.lessons.folder import LessonFolder


def test_a_held_folder_is_refused_by_name_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LOCK_WAIT", 0.02)
    refused = pytest.raises(StoreError, match="a: another process has held it")
    with locked(tmp_path / "a"), locked(tmp_path / "b"), refused, locked(tmp_path / "a"):
        pass
    with locked(tmp_path / "a"):
        assert list((tmp_path / "a").iterdir()) == []


def test_threads_take_turns(tmp_path):
    seen, inside = [], []

    def work():
        for _ in range(20):
            with locked(tmp_path):
                inside.append(1)
                seen.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 80


def test_a_file_is_made_or_replaced(tmp_path):
    path = tmp_path / "one.md"
    write_over(path, b"a")
    path.chmod(0o640)
    write_over(path, b"b")
    assert path.read_bytes() == b"b"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_the_rules_and_playbooks_of_an_agent_are_no_lessons(tmp_path):
    folder = LessonFolder(tmp_path, "researcher-agent")
    filed = folder.add(lesson())
    place = tmp_path / "reflections/researcher-agent"
    (place / "rules.md").write_text("# Rules\n")
    (place / "playbooks").mkdir()
    (place / "playbooks/2026-03-01-fetch.md").write_text("# Playbook\n")
    assert [entry.id for entry in folder.entries()] == [filed.id]
    assert folder.archive(keep=1) == []
