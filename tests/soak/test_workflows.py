"""Workflows that are killed again and again."""

from support.killing import report_of


def test_no_finished_item_of_a_map_is_repeated_in_fifty_kills(tmp_path):
    report = report_of("workflow/killing_items.py", tmp_path, 100, 50, timeout=600)
    assert (report["killed"], report["repeated"]) == (50, [])
    assert report["result"] == [100, 100, 1500]
