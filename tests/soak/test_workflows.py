"""Workflows that are killed again and again."""

from support.killing import report_of


def test_no_finished_item_of_a_map_is_repeated_in_fifty_kills(tmp_path):
    report = report_of("workflow/killing_items.py", "items", tmp_path, 100, 50, timeout=600)
    assert (report["killed"], report["repeated"], report["tokens"]) == (50, [], 1500)
    assert [len(results) for results in report["found"]] == [100, 100]


def test_no_call_and_no_question_of_workflows_inside_is_repeated_in_fifty_kills(tmp_path):
    report = report_of("workflow/killing_items.py", "inside", tmp_path, 40, 50, timeout=900)
    assert (report["killed"], report["repeated"], report["asked"]) == (50, [], 40)
    assert report["found"] == [{"sent": "said", "by": "Ada"}] * 40
