"""The page of the fleet in a real browser, while workers come and go."""

import asyncio
from threading import Thread

import pytest

from redraft.fleet import StoreQueue
from redraft.fleet.queue import FleetJob, WorkerCard
from redraft.stores.sqlite import SqliteStore
from support.dashboards import faults


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a waiting job and a failed one."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "redraft.toml").touch()
    in_queue(folder, fill)
    return folder


def in_queue(folder, act):
    async def main():
        store = SqliteStore(folder / ".redraft" / "redraft.db", "")
        try:
            await act(StoreQueue(store))
        finally:
            await store.aclose()

    # A browser of Playwright runs in the event loop of this thread.
    thread = Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join()


async def fill(queue):
    await queue.register(WorkerCard("worker-1", "here", 1, "v1", ("clerk",), 4))
    await queue.submit(FleetJob("order-17", "clerk", "Write."))
    await queue.finish(await queue.claim(), "failed", "ModelError: " + "the key is wrong " * 20)
    await queue.submit(FleetJob("order-" + "18" * 40, "clerk", "Write."))


async def come(queue):
    await queue.register(WorkerCard("worker-2", "there", 2, "v1", ("clerk",), 8))


def test_the_page_is_accessible_and_fits(opened, dashboard_url):
    assert faults(opened(""), dashboard_url, {"fleet": "fleet"}) == {}


def test_workers_appear_and_jobs_are_cancelled_and_retried(opened, project):
    window = opened("fleet")
    assert window.get_by_text("worker-2").count() == 0
    in_queue(project, come)
    window.get_by_text("worker-2").wait_for()
    window.get_by_role("form", name="Retry order-17").get_by_role("button").click()
    window.get_by_role("form", name="Cancel order-17").wait_for()
    window.get_by_role("form", name="Cancel order-17").get_by_role("button").click()
    window.get_by_role("form", name="Retry order-17").wait_for()
    assert window.get_by_text("cancelled", exact=True).count() >= 1
