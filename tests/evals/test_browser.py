"""Labelling in a real browser, with keys alone."""

import asyncio
from threading import Thread

import pytest

from redraft.evals.calibration import Calibrations
from redraft.stores.sqlite import SqliteStore
from support.dashboards import faults
from support.judged import judged_runs


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose runs a model judged."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "redraft.toml").touch()
    in_store(folder, judged_runs)
    return folder


def in_store(folder, act):
    found = []

    async def main():
        store = SqliteStore(folder / ".redraft" / "redraft.db", "")
        try:
            found.append(await act(store))
        finally:
            await store.aclose()

    # A browser of Playwright runs in the event loop of this thread.
    thread = Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join()
    return found[0]


def labels(folder):
    async def act(store):
        return (await Calibrations(store).get()).labels

    return in_store(folder, act)


@pytest.fixture(scope="module")
def key(project):
    async def act(store):
        return (await Calibrations(store).get()).judge.key

    return in_store(project, act)


def test_the_pages_are_accessible_and_fit(opened, dashboard_url, key):
    paths = {
        "judges": "judges",
        "judge": f"judges/{key}",
        "label": f"judges/{key}/label",
    }
    assert faults(opened(""), dashboard_url, paths) == {}


def test_labels_are_given_with_keys_alone(opened, project, key):
    window = opened(f"judges/{key}/label")
    for pressed, after in (("y", "2 of 60"), ("n", "3 of 60"), ("s", "4 of 60"), ("u", "3 of 60")):
        window.keyboard.press(pressed)
        window.get_by_text(after).wait_for()
    assert sorted(label.met for label in labels(project).values()) == [False, True]
    # Tab and Enter do it, too, and the focus stays where it was.
    window.get_by_role("button", name="Yes").focus()
    window.keyboard.press("Enter")
    window.get_by_text("4 of 60").wait_for()
    assert window.evaluate("document.activeElement.value") == "yes"
    # A key with a modifier belongs to the browser.
    window.keyboard.press("Control+y")
    window.wait_for_timeout(200)
    assert len(labels(project)) == 3
