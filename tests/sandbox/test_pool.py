"""The pool of warm workers: shared, bounded, replaced, and ended with its host."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from redraft.errors import SandboxTimeoutError
from redraft.execution import Script, ScriptLimits
from redraft.sandbox import scripts
from redraft.sandbox.scripts import run_script
from support.scripts import NAMES, alive, children_of, descendants_of, value_of, wait_until_ended

LANGUAGES = ("python", "lua", "prolog")
HANGS = {
    "python": "while True: pass",
    "lua": "return ('a'):rep(100000):find('.-.-.-.-b')",
    "prolog": "evaluate(_) :- repeat, fail.",
}
FINE = {"python": "output", "lua": "return output", "prolog": "evaluate(X) :- output(X)."}


@pytest.mark.parametrize("language", LANGUAGES)
def test_large_data_round_trip(language):
    text = "x" * 100_000  # more than a pipe holds
    limits = ScriptLimits(seconds=10, memory_mb=256, result_chars=200_000)
    assert value_of(language, FINE[language], limits=limits, names={"output": text}) == text


@pytest.mark.parametrize("language", LANGUAGES)
def test_cancelling_a_script_ends_it_at_once(language):
    async def main():
        task = asyncio.create_task(
            run_script(Script(language, HANGS[language], NAMES, ScriptLimits(seconds=30)))
        )
        await asyncio.sleep(0.15)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - started

    assert alive(language)
    assert asyncio.run(main()) < 15  # the script would take 30
    assert alive(language)


def test_concurrent_scripts_are_isolated():
    async def main():
        scripts = [Script("lua", "return n * 2", {"n": n}) for n in range(40)]
        scripts += [Script("python", "n * 2", {"n": n}) for n in range(40)]
        return await asyncio.gather(*map(run_script, scripts))

    assert asyncio.run(main()) == [n * 2 for n in range(40)] * 2
    assert len(scripts._pool("lua")._idle) <= (os.cpu_count() or 1)


def test_waiting_for_a_worker_does_not_count():
    async def main():
        hang = Script("lua", HANGS["lua"], {}, ScriptLimits(seconds=3))
        fine = Script("lua", "return 1", {}, ScriptLimits(seconds=2.5))
        hangs = [asyncio.create_task(run_script(hang)) for _ in range(os.cpu_count() or 1)]
        await asyncio.sleep(0)
        value = await run_script(fine)
        assert all(
            isinstance(e, SandboxTimeoutError) for e in await asyncio.gather(*hangs, return_exceptions=True)
        )
        return value

    assert asyncio.run(main()) == 1


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
HOST = textwrap.dedent(
    """
    import asyncio, os, sys
    from redraft.execution import ScriptLimits, Script
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
HANG = "await run_script(Script({language!r}, {hang!r}, {{}}, ScriptLimits(seconds=20)))"


def start_host(language, then):
    then = then.format(language=language, hang=HANGS[language])
    source = HOST.format(language=language, fine=FINE[language], then=then)
    host = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert host.stdout.readline().strip() == "ready"
    return host


@linux_only
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_worker_inherits_nothing_from_its_host(language):
    with start_host(language, WAIT) as host:
        workers = descendants_of(host.pid)
        assert workers
        for worker in workers:
            assert b"A_SECRET" not in Path(f"/proc/{worker}/environ").read_bytes()
            files = [str(file.readlink()) for file in Path(f"/proc/{worker}/fd").iterdir()]
            assert "/etc/hostname" not in files
        host.kill()


@linux_only
@pytest.mark.parametrize("then", [WAIT, HANG], ids=["idle", "busy"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_worker_outlives_a_killed_host(language, then):
    with start_host(language, then) as host:
        time.sleep(0.1)
        workers = descendants_of(host.pid)
        assert workers
        host.send_signal(signal.SIGKILL)
        host.wait()
    wait_until_ended(workers)


@linux_only
@pytest.mark.parametrize("language", LANGUAGES)
def test_hanging_scripts_leak_nothing(language):
    def count():
        # Not descendants_of: below the database server of other tests, processes come and go.
        return len(list(Path("/proc/self/fd").iterdir())), len(children_of(os.getpid()))

    assert alive(language)
    before = count()
    for _ in range(2):
        with pytest.raises(SandboxTimeoutError):
            value_of(language, HANGS[language], limits=ScriptLimits(seconds=0.05))
    assert alive(language)
    assert count() == before


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_killed_worker_is_replaced(language):
    assert alive(language)
    for worker in scripts._pool(language)._idle:
        os.kill(worker._process.pid, signal.SIGKILL)
        worker._process.wait()
    assert alive(language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_event_loops_share_the_workers(language):
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(alive, [language] * 12))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_its_own_workers():
    code = textwrap.dedent(
        """
        import os
        from support.scripts import alive
        assert alive("lua")
        pid = os.fork()
        if pid == 0:
            os._exit(0 if alive("lua") else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert alive("lua")
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=30)
