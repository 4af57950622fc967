"""Overview: lessons, rules, playbooks and problems of an agent."""

import pytest

from redraft.lessons.folder import LessonFolder
from redraft.lessons.overview import Overview
from support.learned_lessons import AGENT, failure, lesson, lessons_of, rules_and_playbooks


def test_an_overview_has_lessons_rules_playbooks_and_problems(tmp_path):
    filed = lessons_of(tmp_path)
    rules_and_playbooks(tmp_path, filed["active"])
    overview = Overview.read(tmp_path, AGENT)
    assert [lesson.day for lesson in overview.lessons] == sorted(
        (one.day for one in filed.values()), reverse=True
    )
    assert {lesson.id for lesson in overview.lessons} == {one.id for one in filed.values()}
    assert [one.source for one in (*overview.rules,)] == [filed["active"].id]
    assert [playbook.lesson for playbook in overview.playbooks] == [filed["active"].id]
    assert overview.duplicate_of(filed["double"].id).other == filed["active"].id
    assert overview.duplicate_of(filed["active"].id) is None
    assert Overview.read(tmp_path, AGENT, compared=1).duplicate_of(filed["double"].id) is None


def test_archived_lessons_are_read_on_request_and_always_counted(tmp_path):
    folder = LessonFolder(tmp_path, AGENT)
    ids = [folder.add(lesson(failure(f"number {number}"), f"Number {number}")).id for number in range(4)]
    folder.archive(keep=1)
    assert [
        [one.id for one in Overview.read(tmp_path, AGENT, archived=archived).lessons] for archived in (0, 2)
    ] == [ids[3:], [ids[3], ids[2], ids[1]]]
    assert Overview.read(tmp_path, AGENT).archived_ids == set(ids[:3])


def test_a_file_is_parsed_again_only_after_a_change(tmp_path):
    filed = lessons_of(tmp_path)
    first = {lesson.id: lesson for lesson in Overview.read(tmp_path, AGENT).lessons}
    path = LessonFolder(tmp_path, AGENT).entry_of(filed["active"].id).path
    path.write_text(path.read_text().replace("next_cursor", "next_page"))
    changed = [lesson for lesson in Overview.read(tmp_path, AGENT).lessons if lesson is not first[lesson.id]]
    assert [one.id for one in changed] == [filed["active"].id]
    assert "next_page" in str(changed)


@pytest.mark.parametrize("name", ["nobody", "..", "a/../b"])
def test_an_agent_without_lessons_has_none(tmp_path, name):
    lessons_of(tmp_path)
    overview = Overview.read(tmp_path, name)
    assert (overview.lessons, overview.problems, overview.rules, overview.playbooks) == ((), (), (), ())
