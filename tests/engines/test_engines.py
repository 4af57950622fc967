"""The recipes of `examples/engines`, run with each engine and its backend, one worker killed in the middle.

Each engine has an environment of its own, which `make test-integrations` makes from the pinned requirements
in this folder.
"""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress

import pytest

from support.fleet_load import FleetLoad
from support.pages import ROOT
from support.processes import TESTS

ENVIRONMENTS = ROOT / "build" / "engines"
RECIPES = {path.name: path.read_text("utf-8") for path in (ROOT / "examples" / "engines").glob("*.py")}
APP = """
from support.fleet_app import clerk

LONGEST_RUN = 5
"""
NUMBERS = [str(number) for number in range(6)]
ORDERS = [(f"Thank the customer of order {number}.", f"order-{number}") for number in NUMBERS]


class Engine:
    """The processes of an engine: started in groups, killed as a machine dies, and ended with the test."""

    def __init__(self, name, url, folder, **environment):
        self.load = FleetLoad(url, folder, FLEET_LATENCY=0.3)
        self.environment = {**self.load.environment, "PYTHONPATH": f"{TESTS}:{folder}", **environment}
        self._bin = ENVIRONMENTS / name / "bin"
        self._folder = folder
        self._groups = []
        recipe = RECIPES["app.py"]
        (folder / "app.py").write_text(APP + recipe[recipe.index("\n\ndef answer_of") :])
        (folder / f"{name}_tasks.py").write_text(RECIPES[f"{name}_tasks.py"])

    def start(self, *command):
        with self.load.output.open("ab") as log:
            process = subprocess.Popen(
                [self._bin / command[0], *command[1:]],
                env=self.environment,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._groups.append(process)
        return process

    def run(self, code):
        process = self.start("python", "-c", code)
        assert process.wait(60) == 0, self.load.said()

    def kill(self, process):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def finish(self, seconds=150):
        """Wait until all runs have finished; check that no finished call was repeated."""
        deadline = time.monotonic() + seconds
        while (report := self.load.report()).finished < len(ORDERS):
            assert time.monotonic() < deadline, (report, self.load.said())
            time.sleep(0.5)
        assert report.repeated == 0
        assert report.calls == 6 * len(ORDERS) + report.interrupted
        return report

    def stop(self):
        for process in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def engine(request, postgres, tmp_path):
    started = []

    def start(name, **environment):
        started.append(Engine(name, postgres.url, tmp_path, **environment))
        return started[0]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def redis(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", tmp_path],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}/0"
    server.terminate()
    server.wait()


def test_celery(engine, redis):
    celery = engine("celery", REDIS_URL=redis)
    worker = ("celery", "--app", "celery_tasks", "worker", "--concurrency", "2")
    first, _ = celery.start(*worker, "-n", "one@%h"), celery.start(*worker, "-n", "two@%h")
    celery.run(f"from celery_tasks import answer\nfor one in {ORDERS}: answer.delay(*one)")
    celery.load.wait_for_calls(4)
    os.kill(celery.load.calls()[-1].pid, signal.SIGKILL)  # a process of a pool
    celery.load.wait_for_calls(12)
    celery.kill(first)
    assert celery.finish().interrupted >= 1


def test_taskiq(engine, redis):
    taskiq = engine("taskiq", REDIS_URL=redis)
    worker = ("taskiq", "worker", "taskiq_tasks:broker", "--ack-type", "when_executed", "--workers", "1")
    workers = [taskiq.start(*worker, "--max-async-tasks", "2") for _ in range(2)]
    taskiq.run(
        f"""
import asyncio
from taskiq_tasks import answer, broker
async def main():
    await broker.startup()
    for one in {ORDERS}: await answer.kiq(*one)
    await broker.shutdown()
asyncio.run(main())
"""
    )
    taskiq.load.wait_for_calls(10)
    busy = os.getpgid(taskiq.load.calls()[-1].pid)
    taskiq.kill(next(one for one in workers if one.pid == busy))
    taskiq.start("taskiq", "scheduler", "taskiq_tasks:scheduler")
    assert taskiq.finish(240).interrupted >= 1


def test_dbos(engine, postgres_server):
    dbos = engine("dbos", DBOS_URL=postgres_server)
    first = dbos.start("python", "dbos_tasks.py", *NUMBERS)
    dbos.load.wait_for_calls(10)
    dbos.kill(first)
    dbos.start("python", "dbos_tasks.py")
    assert dbos.finish().interrupted >= 1


def test_ray(engine):
    ray = engine("ray", RAY_DISABLE_IMPORT_WARNING="1")
    ray.start("python", "ray_tasks.py", *NUMBERS)
    ray.load.wait_for_calls(6, seconds=120)
    os.kill(ray.load.calls()[-1].pid, signal.SIGKILL)
    assert ray.finish().interrupted >= 1
