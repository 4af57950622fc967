import os

import pytest

from redraft.lessons.folder import REFLECTIONS, LessonFolder
from redraft.lessons.web import LessonFiles
from support.learned_lessons import AGENT, failure, lesson, lessons_of


def test_a_file_is_read_again_only_after_a_change(tmp_path, monkeypatch):
    filed = lessons_of(tmp_path)
    files, read = LessonFiles(tmp_path), []
    reading = LessonFolder.read_entry

    def counted(folder, entry):
        read.append(entry.id)
        return reading(folder, entry)

    monkeypatch.setattr(LessonFolder, "read_entry", counted)
    first = files.shelf(AGENT)
    assert sorted(read) == sorted(one.id for one in filed.values())
    read.clear()
    assert files.shelf(AGENT) == first
    assert read == []
    path = LessonFolder(tmp_path, AGENT).path_of(filed["active"].id)
    path.write_text(path.read_text().replace("next_cursor", "next_page"))
    changed = files.shelf(AGENT)
    assert read == [filed["active"].id]
    assert "next_page" in str(changed.lessons)


def test_agents_come_with_those_first_that_changed_last(tmp_path):
    for number, agent in enumerate(("one", "two", "three")):
        LessonFolder(tmp_path, agent).add(lesson(failure(), "It failed", agent=agent))
        os.utime(tmp_path / REFLECTIONS / agent, (1_700_000_000 + number, 1_700_000_000 + number))
    (tmp_path / REFLECTIONS / "Not A Name").mkdir()
    (tmp_path / REFLECTIONS / "link").symlink_to("/etc")
    files = LessonFiles(tmp_path)
    assert files.agents() == ["three", "two", "one"]
    assert [(one.name, one.lessons, one.archived) for one in files.counted(["two"])] == [("two", 1, 0)]


@pytest.mark.parametrize("name", ["nobody", "..", "a/../b"])
def test_an_agent_without_lessons_has_an_empty_shelf(tmp_path, name):
    lessons_of(tmp_path)
    shelf = LessonFiles(tmp_path).shelf(name)
    assert (shelf.lessons, shelf.problems, shelf.rules, shelf.playbooks) == ((), (), (), ())
