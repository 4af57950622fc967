"""ProcessJail: honest commands, invalid ones, clean-up, and machines without some of the walls."""
# ruff: noqa: E501 (a table of snippets: one a line reads better than folded)

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from functools import cache

import pytest

from redraft.errors import ConfigError
from redraft.execution import Command
from redraft.sandbox.jail import ProcessJail
from support.scripts import on_lesser_machine


def run(source, **options):
    return asyncio.run(ProcessJail()(Command(python=source, **options)))


HONEST = {
    "inputs and result": ("result = sum(inputs['numbers'])", {"numbers": [1, 2, 3]}, 6),
    "no result": ("x = 1", None, None),
    "text": ("result = inputs + 'ö\\ud800'[0]", "naïve\n", "naïve\nö"),
    "a lone surrogate": ("result = inputs", "\ud800", "\ud800"),
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nresult = P(3).x",
        None,
        3,
    ),
    "standard library": (
        "import csv, datetime, decimal, functools, itertools, math, random, re, statistics, string\nresult = math.comb(5, 2)",
        None,
        10,
    ),
    "scratch": (
        "import os, pathlib, shutil\npathlib.Path('a').write_text('x')\nshutil.copy('a', 'b')\nos.chmod('b', 0o600)\nresult = sorted(os.listdir())",
        None,
        ["a", "b"],
    ),
    "temporary files": (
        "import tempfile\nwith tempfile.TemporaryFile() as f: result = f.write(b'x')",
        None,
        1,
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as T\nwith T(4) as t: result = list(t.map(abs, [-1, 2]))",
        None,
        [1, 2],
    ),
    "asyncio": (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return 5\nresult = asyncio.run(f())",
        None,
        5,
    ),
    "main": ("result = __name__ == '__main__'", None, True),
    "time zone": ("import zoneinfo; result = str(zoneinfo.ZoneInfo('UTC'))", None, "UTC"),
    "caught exit": ("try: exit(3)\nexcept SystemExit as e: result = e.code", None, 3),
    "pickle of one's own class": (
        "import pickle\nclass A: pass\nresult = type(pickle.loads(pickle.dumps(A()))) is A",
        None,
        True,
    ),
    "nothing of ours": (
        "import sys; result = [p for p in sys.path if 'src' in p or 'site-packages' in p]",
        None,
        [],
    ),
    "stdin is empty": ("import sys; result = sys.stdin.read()", None, ""),
}


@pytest.fixture(scope="module")
def honest():
    """Run all of them at once; one after the other takes long."""

    async def main():
        jail = ProcessJail()
        commands = [Command(python=source, inputs=inputs) for source, inputs, _ in HONEST.values()]
        return await asyncio.gather(*map(jail, commands))

    return dict(zip(HONEST, asyncio.run(main()), strict=True))


@pytest.mark.parametrize("name", HONEST)
def test_honest_python_runs_to_its_end(name, honest):
    expected = HONEST[name][2]
    outcome = honest[name]
    assert outcome.completed, outcome
    assert outcome.result == expected
    assert (outcome.exit_code, outcome.stopped) == (0, None)


def test_output_and_traceback_are_captured():
    outcome = run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 / 0")
    assert outcome.stdout == "out\n"
    assert outcome.stderr.startswith('err\nTraceback (most recent call last):\n  File "<python>", line 4')
    assert "sandbox" not in outcome.stderr
    assert (outcome.exit_code, outcome.completed, outcome.stopped) == (1, False, None)


def test_source_can_read_its_files_and_readable_paths(tmp_path):
    (tmp_path / "data").write_text("outside")
    source = "result = [open('in/side').read(), open(inputs).read()]"
    outcome = run(
        source, inputs=str(tmp_path / "data"), files={"in/side": "inside"}, readable=[str(tmp_path)]
    )
    assert outcome.result == ["inside", "outside"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({}, "either `argv` or `python`"),
        ({"python": "1", "argv": ("true",)}, "either `argv` or `python`"),
        ({"python": "1", "timeout": 0}, "timeout must be a number of seconds above 0, got 0"),
        ({"python": "1", "timeout": float("nan")}, "timeout"),
        ({"python": "1", "timeout": float("inf")}, "timeout"),
        ({"python": "1", "memory": 1000}, "at least"),
        ({"python": "1", "inputs": object()}, "inputs must be JSON"),
        ({"python": "1", "files": {"../x": ""}}, "'../x' must be relative"),
        ({"python": "1", "files": {"/etc/x": ""}}, "'/etc/x' must be relative"),
        ({"python": "1", "files": {"": ""}}, "'' must be relative"),
        ({"python": "1", "files": {"a/../../x": ""}}, "must be relative"),
        ({"python": "1", "files": {"a": "", "a/b": ""}}, "'a' cannot be both a file and the folder of 'a/b'"),
        (
            {"python": "1", "files": {"a/b/c": "", "./a": ""}},
            "'./a' cannot be both a file and the folder of 'a/b/c'",
        ),
        ({"python": "1", "files": {"a/": ""}}, "'a/' names a folder"),
        ({"python": "1", "files": {"a/.": ""}}, "'a/.' names a folder"),
        ({"python": "1", "files": {"a": "", "./a": ""}}, "'a' and './a' have the same path"),
        ({"python": "1", "files": {"n" * 300: ""}}, "is too long: 255 bytes"),
        ({"python": "1", "files": {"é" * 128: ""}}, "is too long: 255 bytes"),
        ({"python": "1", "files": {"folder/" * 200 + "a": ""}}, "and 1000 in all"),
        ({"python": "1", "files": {"\ud800": ""}}, "cannot be encoded as UTF-8"),
        ({"python": "1", "files": {3: ""}}, "3 must be relative"),
        ({"python": "1", "files": {"a": 3}}, "'a' must be text, got 3"),
        (
            {"python": "1", "files": dict.fromkeys(map(str, range(1001)), "")},
            "may have at most 1,000 files, got 1,001",
        ),
        (
            {"python": "1", "files": {"a": "x" * ((16 << 20) + 1)}},
            "'a' may have at most 16,777,216 bytes, but it has 16,777,217",
        ),
        ({"python": "1", "files": dict.fromkeys("abc", "x" * (12 << 20))}, "33,554,432 bytes in all"),
        ({"argv": ("no-such-program",)}, "'no-such-program' is not installed"),
        ({"argv": ("true", "a\0b")}, "NUL"),
    ],
)
def test_rejects_invalid_commands(command, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        asyncio.run(ProcessJail()(Command(**command)))


def test_parallel_commands_do_not_block_the_loop():
    async def main():
        jail, ticks = ProcessJail(), []

        async def tick():
            while True:
                await asyncio.sleep(0.005)
                ticks.append(None)

        ticking = asyncio.create_task(tick())
        source = "import time; time.sleep(0.3); print(inputs); result = inputs * 2"
        outcomes = await asyncio.gather(*(jail(Command(python=source, inputs=n)) for n in range(8)))
        ticking.cancel()
        return outcomes, ticks

    outcomes, ticks = asyncio.run(main())
    assert [outcome.result for outcome in outcomes] == [n * 2 for n in range(8)]
    assert [outcome.stdout for outcome in outcomes] == [f"{n}\n" for n in range(8)]
    assert len(ticks) > 20  # if each run blocked the loop, there would be about 8


@pytest.mark.parametrize("form", [{"python": "import time; time.sleep(77)"}, {"argv": ("sleep", "77")}])
def test_cancelling_ends_the_child(form, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    others = set(_children())  # warm workers of scripts, which stay

    async def main():
        task = asyncio.create_task(ProcessJail()(Command(**form)))
        while not (children := set(_children()) - others):  # noqa: ASYNC110 (a poll of the system)
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return children

    assert asyncio.run(main())
    assert not set(_children()) - others
    assert list(tmp_path.iterdir()) == []


HOST = """
import asyncio
from redraft.execution import Command
from redraft.sandbox.jail import ProcessJail
asyncio.run(ProcessJail()(Command(argv=("sleep", "77"), timeout=99)))
"""


def test_scratch_folders_of_a_killed_host_are_swept(tmp_path, monkeypatch):
    def folders():
        return {
            path for path in tmp_path.iterdir() if path.is_dir()
        }  # Python writes a file there, as a trial

    def start():
        """Start a host and return it with the folder that it works in."""
        before = folders()
        host = subprocess.Popen([sys.executable, "-c", HOST], env={**os.environ, "TMPDIR": str(tmp_path)})
        while not (made := folders() - before) or not is_locked(*made):
            assert host.poll() is None
            time.sleep(0.01)
        return host, made.pop()

    def is_locked(folder):
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    (killed, left), (living, used) = start(), start()
    (tmp_path / "redraft-jail-of-others").write_text("no folder")
    (tmp_path / "redraft-jail-link").symlink_to(left)
    try:
        killed.kill()
        killed.wait()
        (left / "file").write_text("left behind")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert run("result = 1").result == 1
        found = {path.name for path in tmp_path.iterdir()}
        assert found == {used.name, "redraft-jail-of-others", "redraft-jail-link"}
    finally:
        living.kill()
        living.wait()


def _children():
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if "ps -o" not in line and "<defunct>" not in line]


def test_no_descriptor_leaks():
    def count():
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (names)

    async def main():
        await ProcessJail()(Command(python="1"))
        before = count()
        for _ in range(3):
            await ProcessJail()(Command(python="1"))
        return before, count()

    before, after = asyncio.run(main())
    assert after == before


# A lesser machine: its kernel refuses these system calls to everything that the test starts.
NAMESPACES, LANDLOCK = ["unshare"], ["landlock_create_ruleset"]
READ = {"python": "result = open('/etc/passwd').read()[:4]"}
WRITE = {"python": "open('x', 'w')"}
COMPUTE = {"python": "result = [open('f').read(), 6 * 7]", "files": {"f": "here"}}
PROGRAM = {"argv": ["sh", "-c", "echo x > file; cat file"]}
FORGOTTEN = {"argv": ["sh", "-c", "sleep 77 & echo started"]}
SLOW = {"argv": ["sleep", "77"], "timeout": 0.4}
LARGE = {"python": "x = bytearray(1 << 34)"}


LESSER_MACHINES = [
    (NAMESPACES, False, COMPUTE, {"completed": True, "result": ["here", 42]}),
    (NAMESPACES, False, READ, {"completed": False, "stopped": "forbidden"}),
    (NAMESPACES, False, WRITE, {"completed": False, "stopped": "forbidden"}),
    (NAMESPACES, False, {"python": "import os; os.fork()"}, {"completed": False, "stopped": "forbidden"}),
    (
        NAMESPACES,
        False,
        {"python": "import os; os.chmod('/tmp', 0o777)"},
        {"completed": False, "stopped": "forbidden"},
    ),
    (["mount"], False, WRITE, {"completed": False, "stopped": "forbidden"}),
    (["mount"], True, PROGRAM, {"completed": True, "stdout": "x\n"}),
    (["mount_setattr"], False, WRITE, {"completed": False, "stopped": "forbidden"}),
    (["mount_setattr"], True, PROGRAM, {"completed": True, "stdout": "x\n"}),
    (["mount_setattr"], False, COMPUTE, {"completed": True, "result": ["here", 42]}),
    (NAMESPACES, False, PROGRAM, "lacks user namespaces"),
    (["mount"], False, PROGRAM, "lacks user namespaces"),
    (NAMESPACES, True, PROGRAM, {"completed": True, "stdout": "x\n"}),
    (LANDLOCK, False, COMPUTE, "lacks Landlock"),
    (LANDLOCK, False, PROGRAM, "allow_unsandboxed=True"),
    (["landlock_restrict_self"], False, COMPUTE, "lets a process shut itself in"),
    (["landlock_restrict_self"], False, PROGRAM, "lets a process shut itself in"),
    (LANDLOCK, True, COMPUTE, {"completed": True, "result": ["here", 42]}),
    (LANDLOCK, True, PROGRAM, {"completed": True, "stdout": "x\n"}),
    (LANDLOCK, True, FORGOTTEN, {"completed": True, "stdout": "started\n"}),
    (LANDLOCK, True, SLOW, {"completed": False, "stopped": "timeout"}),
    (LANDLOCK, True, LARGE, {"completed": False, "stopped": "memory"}),
    (LANDLOCK, True, {"python": "import os; result = sorted(os.environ)"}, {"completed": True}),
]


@cache
def outcomes_on(refused, allow):
    """Run all commands of one such machine in one interpreter; starting one for each takes long."""
    rows = [row for row in LESSER_MACHINES if (tuple(row[0]), row[1]) == (refused, allow)]
    outcomes = on_lesser_machine(refused, [command for _, _, command, _ in rows], allow_unsandboxed=allow)
    return {id(row): outcome for row, outcome in zip(rows, outcomes, strict=True)}


@pytest.mark.parametrize("row", LESSER_MACHINES, ids=str)
def test_a_machine_without_a_wall_refuses_or_keeps_the_others(row):
    refused, allow, _, expected = row
    outcome = outcomes_on(tuple(refused), allow)[id(row)]
    if isinstance(expected, str):
        assert expected in outcome["error"]
        assert "allow_unsandboxed=True" in outcome["error"]
    else:
        assert {key: outcome.get(key) for key in expected} == expected, outcome
        assert "REDRAFT_TEST_SECRET" not in str(outcome["result"])
        assert outcome["seconds"] < 5
