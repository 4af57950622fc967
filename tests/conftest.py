"""What holds for all tests."""

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip into a failure where nothing may be skipped (REDRAFT_NO_SKIP=1)."""
    report = yield
    if report.skipped and os.environ.get("REDRAFT_NO_SKIP") == "1":
        report.outcome = "failed"
        report.longrepr = f"Skipped, where nothing may be: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch, tmp_path_factory):
    """Keep the developer's own settings and keys out of the tests."""
    for name in [name for name in os.environ if name.startswith("REDRAFT_") and name != "REDRAFT_NO_SKIP"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("REDRAFT_HOME", "")  # a test that keeps runs says where
