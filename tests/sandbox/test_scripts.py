"""The one door to the sandboxes, and the workers behind it."""
# ruff: noqa: E501 (a table of snippets: one a line reads better than folded)

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from redraft.errors import ConfigError, MissingExtraError, SandboxTimeoutError
from redraft.protocols import MOST_SOURCE, Limits, Script
from redraft.sandbox import scripts
from redraft.sandbox.prolog import compiled
from redraft.sandbox.scripts import WholePython, private_cache, run_script, script_runner
from support.scripts import NAMES, alive, value_of

LANGUAGES = ("python", "lua", "prolog")
HANGS = {
    "python": "while True: pass",
    "lua": "return ('a'):rep(100000):find('.-.-.-.-b')",
    "prolog": "evaluate(_) :- repeat, fail.",
}
FINE = {"python": "output", "lua": "return output", "prolog": "evaluate(X) :- output(X)."}
JUDGED = {"valid": False, "score": 0.5, "errors": ["no name"]}


@pytest.mark.parametrize(
    "script",
    [
        Script(
            "python",
            "result = {'valid': bool(state['name']), 'score': 0.5, 'errors': ['no name']}",
            {"state": {"name": ""}},
        ),
        Script(
            "lua",
            "return {valid = #state.name > 0, score = 0.5, errors = {'no name'}}",
            {"state": {"name": ""}},
        ),
        Script(
            "prolog",
            "valid :- \\+ state(name, '').\nscore(0.5).\nerror(\"no name\").",
            {"state": {"name": ""}},
        ),
        Script("python", "return {'valid': False, 'score': 0.5, 'errors': ['no name']}", sandbox="process"),
    ],
    ids=lambda script: f"{script.language} {script.sandbox}",
)
def test_one_call_judges_in_every_language(script):
    assert asyncio.run(run_script(script)) == JUDGED


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("ruby", "1"), "did you mean|known are 'python', 'lua', 'prolog'"),
        (("pythn", "1"), "did you mean 'python'"),
        (("lua", "1", {}, Limits(), "process"), "`sandbox: process` is for Python"),
        (("python", "1", {}, Limits(), "jail"), "must be 'inline' or 'process', got 'jail'"),
        (("python", "1", {"a b": 1}), "must be an identifier in ASCII, got 'a b'"),
        (("python", "1", {"a": {1, 2}}), "must be JSON: Object of type set"),
        (("python", "1", {"a": float("nan")}), "must be JSON"),
        (("python", "1", {"a": {1, 2}}, Limits(), "process"), "must be JSON: Object of type set"),
    ],
)
def test_what_makes_no_sense_is_a_config_error(given, says):
    with pytest.raises(ConfigError, match=says):
        asyncio.run(run_script(Script(*given)))


@pytest.mark.parametrize(
    "bound",
    [
        {"seconds": 0},
        {"seconds": float("inf")},
        {"memory_mb": 1},
        {"memory_mb": 64.5},
        {"memory_mb": 4096},
        {"output_chars": -1},
        {"result_chars": True},
    ],
)
def test_a_limit_that_makes_no_sense_is_a_config_error(bound):
    with pytest.raises(ConfigError, match=next(iter(bound))):
        Limits(**bound)


def test_a_source_is_bounded():
    with pytest.raises(ConfigError, match="may have"):
        Script("python", " " * (MOST_SOURCE + 1))


@pytest.mark.parametrize(("language", "extra"), [("lua", "lua"), ("prolog", "prolog")])
def test_a_missing_interpreter_names_the_command_that_brings_it(language, extra, monkeypatch):
    monkeypatch.setattr("redraft.sandbox.scripts.installed", lambda module: False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'redraft\[{extra}\]'"):
        script_runner(language)


def test_inline_python_without_its_interpreter_runs_in_the_jailed_child(monkeypatch):
    monkeypatch.setattr("redraft.sandbox.scripts.installed", lambda module: False)
    assert script_runner("python") == WholePython()
    assert value_of("python", "1 + 1") == 2


def test_a_machine_without_a_jail_runs_whole_python_only_where_that_is_allowed():
    assert script_runner("python", "process", allow_unsandboxed=True) == WholePython(allow_unsandboxed=True)
    assert script_runner("python", "process") == WholePython(allow_unsandboxed=False)


def test_importing_the_door_imports_no_interpreter():
    code = "import sys, redraft.sandbox.scripts; print([m for m in ('pydantic_monty', 'lupa', 'wasmtime') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("language", LANGUAGES)
def test_large_data_goes_in_and_comes_out(language):
    text = "x" * 300_000
    limits = Limits(seconds=10, memory_mb=256, result_chars=400_000)
    assert value_of(language, FINE[language], limits=limits, names={"output": text}) == text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_cancelled_script_ends_at_once_and_the_next_one_runs(language):
    async def main():
        task = asyncio.create_task(run_script(Script(language, HANGS[language], NAMES, Limits(seconds=30))))
        await asyncio.sleep(0.15)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - started

    assert alive(language)
    assert asyncio.run(main()) < 15  # the script would take 30
    assert alive(language)


def test_scripts_at_once_do_not_meet():
    async def main():
        scripts = [Script("lua", "return n * 2", {"n": n}) for n in range(40)]
        scripts += [Script("python", "n * 2", {"n": n}) for n in range(40)]
        return await asyncio.gather(*map(run_script, scripts))

    assert asyncio.run(main()) == [n * 2 for n in range(40)] * 2
    assert len(scripts._pool("lua")._idle) <= (os.cpu_count() or 1)


def test_waiting_for_a_worker_is_no_time_of_the_script():
    async def main():
        hang = Script("lua", HANGS["lua"], {}, Limits(seconds=3))
        fine = Script("lua", "return 1", {}, Limits(seconds=2.5))
        hangs = [asyncio.create_task(run_script(hang)) for _ in range(os.cpu_count() or 1)]
        await asyncio.sleep(0)
        value = await run_script(fine)
        assert all(
            isinstance(e, SandboxTimeoutError) for e in await asyncio.gather(*hangs, return_exceptions=True)
        )
        return value

    assert asyncio.run(main()) == 1


def started_by(pid):
    """Return the processes that one has started and not buried."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(number) for task in tasks for number in (task / "children").read_text().split()]


def children_of(pid):
    """Return the processes below one, at any depth."""
    direct = started_by(pid)
    return direct + [child for number in direct for child in children_of(number)]


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
HOST = textwrap.dedent(
    """
    import asyncio, os, sys
    from redraft.protocols import Limits, Script
    from redraft.sandbox.scripts import run_script
    os.environ["A_SECRET"] = "not for scripts"
    held = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(held, True)
    async def main():
        await run_script(Script({language!r}, {fine!r}, {{"output": 1}}))
        print("ready", flush=True)
        {then}
    asyncio.run(main())
    """
)
WAIT = "await asyncio.sleep(60)"
HANG = "await run_script(Script({language!r}, {hang!r}, {{}}, Limits(seconds=20)))"


def start_host(language, then):
    then = then.format(language=language, hang=HANGS[language])
    source = HOST.format(language=language, fine=FINE[language], then=then)
    host = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert host.stdout.readline().strip() == "ready"
    return host


@linux_only
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_worker_has_nothing_of_its_host(language):
    with start_host(language, WAIT) as host:
        workers = children_of(host.pid)
        assert workers
        for worker in workers:
            assert b"A_SECRET" not in Path(f"/proc/{worker}/environ").read_bytes()
            files = [str(file.readlink()) for file in Path(f"/proc/{worker}/fd").iterdir()]
            assert "/etc/hostname" not in files
        host.kill()


@linux_only
@pytest.mark.parametrize("then", [WAIT, HANG], ids=["idle", "busy"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_worker_outlives_a_host_that_is_killed(language, then):
    with start_host(language, then) as host:
        time.sleep(0.1)
        workers = children_of(host.pid)
        assert workers
        host.send_signal(signal.SIGKILL)
        host.wait()
    until = time.monotonic() + 3
    while left := [worker for worker in workers if running(worker)]:
        assert time.monotonic() < until, f"{left} outlived the host"
        time.sleep(0.02)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@linux_only
@pytest.mark.parametrize("language", LANGUAGES)
def test_hangs_leak_neither_descriptors_nor_processes(language):
    def count():
        # Workers are started by this process; below the database of other tests, processes come and go.
        return len(list(Path("/proc/self/fd").iterdir())), len(started_by(os.getpid()))

    assert alive(language)
    before = count()
    for _ in range(2):
        with pytest.raises(SandboxTimeoutError):
            value_of(language, HANGS[language], limits=Limits(seconds=0.05))
    assert alive(language)
    assert count() == before


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_worker_that_something_else_has_ended_is_replaced(language):
    assert alive(language)
    for worker in scripts._pool(language)._idle:
        os.kill(worker._process.pid, signal.SIGKILL)
        worker._process.wait()
    assert alive(language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_loops_in_several_threads_share_the_workers(language):
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(alive, [language] * 12))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_workers_of_its_own():
    code = "from support.scripts import alive; import os\nboth = lambda: alive('lua') and alive('python')\nassert both()\npid = os.fork()\nif pid == 0:\n    os._exit(0 if both() else 1)\nassert os.waitpid(pid, 0)[1] == 0\nassert both()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=30)


def test_the_compiled_interpreter_is_kept_where_only_this_user_reaches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = private_cache()
    assert folder == str(tmp_path / "redraft" / "prolog")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    Path(folder).chmod(0o755)
    assert private_cache() is None
    Path(folder).rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    Path(folder).symlink_to(tmp_path / "elsewhere")
    assert private_cache() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert private_cache() is None


def test_what_was_kept_is_taken_only_if_it_is_private_and_whole(tmp_path):
    import wasmtime

    engine = wasmtime.Engine()
    source = bytes(wasmtime.wat2wasm('(module (func (export "f") (result i32) i32.const 7))'))

    def call():
        store = wasmtime.Store(engine)
        return wasmtime.Instance(store, compiled(engine, source, str(tmp_path)), []).exports(store)["f"](
            store
        )

    assert call() == 7
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    whole = kept.read_bytes()
    kept.write_bytes(b"something else")
    assert call() == 7
    assert kept.read_bytes() == whole
    kept.chmod(0o644)
    assert call() == 7
    assert kept.stat().st_mode & 0o777 == 0o600


def test_the_vendored_interpreter_is_the_one_that_is_written_down():
    import hashlib

    folder = Path(scripts.__file__).parent / "trealla"
    digest = hashlib.sha256((folder / "trealla.wasm").read_bytes()).hexdigest()
    assert f"`{digest}`" in (folder / "README.md").read_text("utf-8")
    assert "Permission is hereby granted" in (folder / "LICENSE.trealla").read_text("utf-8")
    assert "Permission is hereby granted" in (folder / "LICENSE.trealla-js").read_text("utf-8")


def test_a_value_is_json():
    value = value_of("python", "reflection_output")
    assert json.loads(json.dumps(value)) == NAMES["reflection_output"]
