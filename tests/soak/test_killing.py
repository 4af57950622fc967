"""The process of each feature is killed at every point, and again and again at random times."""

from contextlib import closing

import pytest

from support.killed import FEATURES
from support.killing import report_of
from support.postgres_server import Distant
from test_killing import check

KILLS = 60


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("points", ["all", KILLS])
def test_a_killed_process_repeats_nothing_and_loses_nothing(name, points, tmp_path):
    report = report_of(name, tmp_path, points, timeout=1200)
    check(report, name)
    assert report["killed"] == (len(report["points"]) if points == "all" else KILLS)


@pytest.mark.parametrize("name", ["run", "cycle"])
@pytest.mark.parametrize("milliseconds", [0, 12, 25])
def test_a_killed_process_repeats_nothing_that_is_in_postgresql(
    name, milliseconds, tmp_path, postgres, postgres_server
):
    with closing(Distant(postgres_server, milliseconds / 1000)) as network:
        report = report_of(name, tmp_path, "all", network.url(postgres), timeout=1200)
    check(report, name)
    assert report["killed"] == len(report["points"])
