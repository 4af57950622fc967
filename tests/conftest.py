"""What holds for all tests."""

import asyncio
import gc
import inspect
import os
import signal
import sys
from pathlib import Path
from tempfile import NamedTemporaryFile

import certifi
import pytest
from _pytest.runner import runtestprotocol

from redraft.loop.ways import forget
from support.commands import THREE_A
from support.postgres_server import GIVEN, CannotRunError, Place, Server

# A shell starts a background job (`nohup pytest &`) with SIGINT ignored, which every child process inherits:
# tests of Ctrl-C would send a signal that nobody hears.
signal.signal(signal.SIGINT, signal.default_int_handler)

# With PYTHONDONTWRITEBYTECODE, which many containers set, each of the interpreters that tests start would
# compile the package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No test connects to a public host, and each client of a model and each process would read all authorities,
# for a tenth of a second.
_AUTHORITY = NamedTemporaryFile(suffix=".pem")  # noqa: SIM115 (it is there until the process ends)
_FIRST, _END, _ = Path(certifi.where()).read_bytes().partition(b"-----END CERTIFICATE-----\n")
_AUTHORITY.write(_FIRST + _END)
_AUTHORITY.flush()
os.environ["SSL_CERT_FILE"] = _AUTHORITY.name

LONG = {"test_demo.py", "test_killing.py", "test_takeover.py", "test_outages.py"}
"""The files whose tests take seconds each."""


@pytest.hookimpl(wrapper=True)
def pytest_xdist_auto_num_workers():
    """Start one process more than there are cores: tests wait a lot, for processes, browsers, leases."""
    return (yield) + 1


APART = ("soak", "engines", "frameworks", "coding_agents")
"""The folders of `make soak` and `make test-integrations`."""


def pytest_configure(config):
    """Let each process begin to collect at another place, so that it compiles what others have not yet."""
    process = getattr(config, "workerinput", None)
    if process is not None and config.args_source == config.ArgsSource.TESTPATHS:
        places = sorted(
            path
            for path in Path(__file__).parent.iterdir()
            if path.name not in (*APART, "__pycache__") and (path.is_dir() or path.match("test_*.py"))
        )
        first = int(process["workerid"].removeprefix("gw")) * len(places) // process["workercount"]
        config.args[:] = map(str, places[first:] + places[:first])


def pytest_ignore_collect(collection_path, config):
    """Leave out what takes long, unless it is asked for."""
    name = collection_path.name
    is_asked_for = any(name in argument for argument in config.args)
    return True if name in APART and not is_asked_for else None


def pytest_collection_modifyitems(items):
    """Start long tests first, since one that starts last keeps a single core busy; all processes agree."""
    items.sort(key=lambda item: (item.path.name not in LONG, str(item.path)))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Don't search 17,000 collected tests and the imported libraries for garbage, now or after each test."""
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Send the report of a test from its process, without those of set-up and tear-down that passed.

    The five messages that are sent else take longer than most tests.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run an async test in an event loop of its own, with a time limit."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def run():
        names = inspect.signature(pyfuncitem.obj).parameters
        async with asyncio.timeout(300):
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})

    asyncio.run(run())
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Make a report fit to be sent, and a skip a failure where nothing may be skipped (REDRAFT_NO_SKIP=1)."""
    report = yield
    # What a test printed or logged may hold half a surrogate pair, which can't travel between processes.
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    if report.skipped and os.environ.get("REDRAFT_NO_SKIP") == "1":
        report.outcome = "failed"
        report.longrepr = f"Skipped, where nothing may be: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch, tmp_path_factory):
    """Keep the developer's own settings, keys and width of terminal out of the tests."""
    for name in [name for name in os.environ if name.startswith("REDRAFT_") and name != "REDRAFT_NO_SKIP"]:
        monkeypatch.delenv(name)
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REDRAFT_HOME", "")  # a test that keeps runs says where
    forget()  # what revisions of earlier tests have shown


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server's URL: REDRAFT_TEST_POSTGRES, or one that is started for these tests."""
    if GIVEN:
        yield GIVEN
        return
    try:
        server = Server()
        server.start()
    except CannotRunError as error:
        pytest.skip(f"No PostgreSQL server can run here: {error}. Give one with REDRAFT_TEST_POSTGRES.")
    yield server.url()
    server.remove()


@pytest.fixture(scope="module")
def own_postgres():
    """A PostgreSQL server of a module's own, for tests that stop it, kill it and let it hang."""
    try:
        server = Server()
        server.start()
    except CannotRunError as error:
        pytest.skip(f"No PostgreSQL server can run here: {error}.")
    yield server
    server.remove()


@pytest.fixture
def postgres(postgres_server):
    """A place in a PostgreSQL database that is empty, and dropped in the end."""
    place = Place(postgres_server)
    yield place
    place.drop()


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A project that keeps its runs, with a criteria file and a draft in it."""
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").touch()
    (tmp_path / "c.yaml").write_text(THREE_A)
    (tmp_path / "d.txt").write_text("ab")
    return tmp_path


@pytest.fixture
def revised(project, monkeypatch):
    """Revise the draft of the project with these replies of a model, and return what the command gave."""
    from support.commands import redraft, script

    def revised(*replies, words=()):
        script(monkeypatch, *replies)
        return redraft("revise", "d.txt", "-c", "c.yaml", "-m", "any:model", *words)

    return revised


@pytest.fixture(scope="module")
def dashboard_url(project):
    """The address of a dashboard; a module with tests in a browser has a `project` of its own."""
    from support.dashboards import served

    with served(project) as url:
        yield url


@pytest.fixture(scope="module")
def browser(dashboard_url):  # when the project is made: inside, no other event loop can run
    """A browser of this machine."""
    from support.dashboards import chromium

    with chromium() as found:
        yield found


@pytest.fixture
def expected():
    """What a browser may say: that a page is not there, that a change was refused, whether it is meant."""
    return "404", "400", "confirm: "


@pytest.fixture
def opened(browser, dashboard_url, expected):
    """Open pages, with a key, in windows whose console must stay empty but for what is expected."""
    from support.dashboards import windows

    with windows(browser, dashboard_url, expected) as found:
        yield found


@pytest.fixture(scope="module")
def mqtt_broker():
    """A Mosquitto of this machine, installed from Debian's packages where it is missing."""
    from support.mqtt_broker import MqttBroker, NoBrokerError

    try:
        broker = MqttBroker()
    except NoBrokerError as error:
        pytest.skip(f"No MQTT broker can run here: {error}.")
    yield broker
    broker.remove()
