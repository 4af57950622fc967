"""Programs in the jail: what they may do, and what they try."""
# ruff: noqa: E501 (a table of snippets: one a line reads better than folded)

import asyncio
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from redraft.core.command import Command
from redraft.sandbox.process import ProcessJail


def run(*argv, **given):
    return asyncio.run(ProcessJail()(Command(argv=argv, **given)))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    secret = folder / "secret"
    secret.write_text("treasure")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {
            "SECRET": str(secret),
            "HOME": str(Path.home()),
            "PORT": str(server.getsockname()[1]),
            "PYTHON": sys.executable,
        }
    assert secret.read_text() == "treasure"
    assert [path.name for path in folder.iterdir()] == ["secret"]


# Shell scripts that must fail without a word of what they wanted.
ATTACKS = {
    "read passwd": "cat /etc/passwd",
    "read a secret": "cat $SECRET",
    "read through a link": "ln -s $SECRET link; cat link",
    "list home": "ls $HOME",
    "list processes": "ls /proc",
    "read the parent": "cat /proc/$PPID/environ",
    "write over a secret": "echo x > $SECRET",
    "write beside": "echo x > $SECRET.new",
    "write to the temporary folder": "echo x > /tmp/redraft-attack",
    "change a mode": "chmod 777 $SECRET",
    "touch": "touch -c $SECRET",
    "remove": "rm -f $SECRET",
    "move": "mv $SECRET mine",
    "truncate": "truncate -s 0 $SECRET",
    "change the interpreter": "echo x >> $PYTHON",
    "connect": "python -c \"import socket; socket.create_connection(('127.0.0.1', $PORT), 1)\"",
    "unix socket": 'python -c "import socket; socket.socket(socket.AF_UNIX)"',
    "namespace": "unshare -Ur cat /etc/passwd",
    "mount": "mount -t tmpfs none .",
    "unmount": "umount -l . && cat /etc/passwd",
    "kill the first process": "kill -9 1; sleep 0.05; exit 1",
    "trace the first process": 'python -c "import ctypes; raise SystemExit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)"',
    "become root": "su -c id",
    "device": "mknod disk b 254 0",
    "become immortal": 'python -c "import ctypes; raise SystemExit(ctypes.CDLL(None).prctl(1, 0) != 0)"',
}


@pytest.fixture(scope="module")
def verdicts(world):
    """Run all the attacks in one jail, each in a shell of its own."""
    variables = "".join(f"{name}='{value}'\n" for name, value in world.items())
    files = {f"{n}.sh": f"{variables}{script}\n" for n, script in enumerate(ATTACKS.values())}
    script = "".join(
        f'mkdir -p d{n}; (cd d{n}; sh ../{n}.sh 2>&1); echo "== $?"\n' for n in range(len(files))
    )
    outcome = run("sh", "all.sh", files={**files, "all.sh": script})
    assert outcome.completed, outcome
    said = outcome.stdout.split("== ")
    codes = [1, *(int(part.split("\n", 1)[0]) for part in said[1:])][1:]
    return dict(zip(ATTACKS, zip(codes, said, strict=False), strict=True))


@pytest.mark.parametrize("name", ATTACKS)
def test_denied(name, verdicts):
    code, said = verdicts[name]
    assert code != 0, said
    assert "treasure" not in said
    assert "root:" not in said


def alive(marker):
    return [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if marker.encode() in (path.read_bytes() if path.exists() else b"")
    ]


@pytest.mark.parametrize(
    ("script", "stopped"),
    [
        ("(setsid sleep {marker} >/dev/null 2>&1 &) ; exit 0", None),
        ("setsid setsid nohup sleep {marker} >/dev/null 2>&1 & exit 0", None),
        ("trap '' TERM HUP INT; (trap '' TERM HUP; sleep {marker}) & sleep {marker}", "timeout"),
        ("setsid sleep {marker} & while :; do :; done", "timeout"),
    ],
)
def test_nothing_outlives_the_run(script, stopped):
    marker = f"1{time.time_ns() % 10**8}"
    outcome = run("sh", "-c", script.format(marker=marker), timeout=0.4)
    assert outcome.stopped == stopped
    assert outcome.seconds < 0.9
    assert alive(marker) == []


@pytest.mark.parametrize(
    ("script", "stopped"),
    [
        ("yes", "output"),
        ("yes >&2", "output"),
        ("yes > file", None),  # the scratch is full, and yes says so
        ("f() { f | f & }; f; sleep 5", "forbidden"),
        ("for n in $(seq 100); do sleep 9 & done; wait", "forbidden"),
    ],
)
def test_bounded(script, stopped):
    outcome = run("sh", "-c", script, timeout=2)
    assert outcome.seconds < 2.5
    if stopped == "forbidden" and os.getuid() != 0:
        return  # the kernel itself let the forks fail; it binds everybody but root
    assert outcome.stopped == (stopped or outcome.stopped)
    assert outcome.exit_code != 0


def test_memory_of_all_processes_together_is_bounded():
    hog = 'import time; x = bytearray(b"x") * (60 << 20); time.sleep(9)'
    script = f"for n in 1 2 3 4 5 6; do python -S -c '{hog}' & done; wait"
    outcome = run("sh", "-c", script, memory=192 << 20, timeout=5)
    assert outcome.stopped == "memory"


def test_environment_is_clean(monkeypatch):
    monkeypatch.setenv("REDRAFT_TEST_SECRET", "treasure")
    outcome = run("env")
    assert outcome.completed
    assert "treasure" not in outcome.stdout


@pytest.mark.parametrize(
    ("argv", "files", "code", "says"),
    [
        (("true",), {}, 0, ""),
        (("sh", "-c", "exit 7"), {}, 7, ""),
        (("sh", "-c", "kill -9 $$"), {}, -9, ""),
        (("cat", "sub/folder/f.txt"), {"sub/folder/f.txt": "héllo\r\n"}, 0, "héllo\r\n"),
        (("sh", "-c", "echo x > a && cp a b && chmod 600 b && mv b c && cat c"), {}, 0, "x\n"),
        (("sh", "-c", "cat; echo eof"), {}, 0, "eof\n"),
        (("run.sh",), {"run.sh": "#!/bin/sh\necho ran\n"}, 127, ""),  # files are texts, not programs
        (("python", "-m", "ruff", "check", "-q", "d.py"), {"d.py": "import os\n"}, 1, "F401"),
        (("ruff", "check", "-q", "d.py"), {"d.py": "x = 1\n"}, 0, ""),
        (
            (
                "python",
                "-c",
                "import subprocess as s; print(s.run(['echo', 'in'], capture_output=True).stdout)",
            ),
            {},
            0,
            "b'in\\n'",
        ),
        (
            (
                "python",
                "-c",
                "import multiprocessing as m; p = m.get_context('fork').Process(target=print, args=('child',)); p.start(); p.join()",
            ),
            {},
            0,
            "child",
        ),
    ],
)
def test_honest_programs(argv, files, code, says):
    outcome = run(*argv, files=files)
    assert outcome.exit_code == code, outcome
    assert says in outcome.stdout
    assert outcome.completed is (outcome.stopped is None)


def test_pytest_runs():
    tests = "from draft import f\ndef test_f(tmp_path):\n    (tmp_path / 'x').write_text('x')\n    assert f(2) == 5\n"
    outcome = run(
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        files={"draft.py": "def f(x): return x * 2\n", "test_draft.py": tests},
    )
    assert outcome.exit_code == 1
    assert "1 failed" in outcome.stdout


def test_readable_paths(tmp_path):
    (tmp_path / "rules").write_text("be kind")
    shown = run("cat", str(tmp_path / "rules"), readable=[str(tmp_path)])
    assert shown.stdout == "be kind"
    assert run("cat", str(tmp_path / "rules")).exit_code == 1
    assert run("sh", "-c", f"echo x > {tmp_path}/new", readable=[str(tmp_path)]).exit_code != 0
    assert os.listdir(tmp_path) == ["rules"]  # noqa: PTH208 (names)
