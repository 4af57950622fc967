"""Programs in the jail: what they can do, and their attacks."""
# ruff: noqa: E501 (a table of snippets: one a line reads better than folded)

import asyncio
import os
import shutil
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from redraft.execution import Command
from redraft.sandbox.jail import ProcessJail
from support.scripts import USERS, run_as


def run(*argv, **options):
    return asyncio.run(ProcessJail()(Command(argv=argv, **options)))


@pytest.fixture(scope="module")
def world():
    """Give the attackers a secret file, an open port and a socket; look afterwards whether all is as it was.

    Everybody may reach them: it is the jail that has to refuse.
    """
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    secret = folder / "secret"
    secret.write_text("treasure")
    secret.chmod(0o666)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(str(folder / "datagrams"))
        (folder / "datagrams").chmod(0o777)
        yield {
            "SECRET": str(secret),
            "HOME": str(Path.home()),
            "PORT": str(server.getsockname()[1]),
            "PYTHON": sys.executable,
            "DATAGRAMS": str(folder / "datagrams"),
        }
        with pytest.raises(BlockingIOError):
            datagrams.recv(1, socket.MSG_DONTWAIT)
    assert secret.read_text() == "treasure"
    assert sorted(path.name for path in folder.iterdir()) == ["datagrams", "secret"]
    shutil.rmtree(folder)


# Shell scripts that must fail without a word of what they wanted.
ATTACKS = {
    "read passwd": "cat /etc/passwd",
    "read a secret": "cat $SECRET",
    "read through a link": "ln -s $SECRET link; cat link",
    "list home": "ls $HOME",
    "list processes": "ls /proc",
    "read the parent": "cat /proc/$PPID/environ",
    "write over a secret": "echo x > $SECRET",
    "write next to it": "echo x > $SECRET.new",
    "write to the temporary folder": "echo x > /tmp/redraft-attack",
    "change a mode": "chmod 777 $SECRET",
    "touch": "touch -c $SECRET",
    "remove": "rm -f $SECRET",
    "move": "mv $SECRET mine",
    "truncate": "truncate -s 0 $SECRET",
    "change the interpreter": "echo x >> $PYTHON",
    "connect": "python -c \"import socket; socket.create_connection(('127.0.0.1', $PORT), 1)\"",
    "unix socket": 'python -c "import socket; socket.socket(socket.AF_UNIX)"',
    "datagram": "python -c \"import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', '$DATAGRAMS')\"",
    "setting of the kernel": "python -c \"import os; os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)\"",
    "memory without a name": "python -c \"import os; os.memfd_create('x')\"",
    "memory with a name": "python -c \"import os; os.open('/dev/shm/redraft-attack', os.O_RDWR | os.O_CREAT)\"",
    "namespace": "unshare -Ur cat /etc/passwd",
    "mount": "mount -t tmpfs none .",
    "unmount": "umount -l . && cat /etc/passwd",
    "kill the first process": "kill -9 1; sleep 0.05; exit 1",
    "trace the first process": 'python -c "import ctypes; raise SystemExit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)"',
    "become root": "su -c id",
    "device": "mknod disk b 254 0",
    "become immortal": 'python -c "import ctypes; raise SystemExit(ctypes.CDLL(None).prctl(1, 0) != 0)"',
}


@pytest.mark.parametrize("user", USERS)
def test_attacks_are_denied(user, world):
    """All run in one jail, each in a shell of its own."""
    variables = "".join(f"{name}='{value}'\n" for name, value in world.items())
    files = {f"{n}.sh": f"{variables}{script}\n" for n, script in enumerate(ATTACKS.values())}
    script = "".join(
        f'mkdir -p d{n}; (cd d{n}; sh ../{n}.sh 2>&1); echo "== $?"\n' for n in range(len(files))
    )
    command = Command(("sh", "all.sh"), files={**files, "all.sh": script}, timeout=60)
    outcome = run_as(user, command)
    assert outcome.completed, outcome
    printed = outcome.stdout.split("== ")
    codes = [int(part.split("\n", 1)[0]) for part in printed[1:]]
    for name, code, said in zip(ATTACKS, codes, printed[:-1], strict=True):
        assert code != 0, (name, said)
        assert "treasure" not in said, name
        assert "root:" not in said, name


def alive(marker):
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if marker.encode() in path.read_bytes():
                processes.append(path)
    return processes


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
    outcome = run("sh", "-c", script.format(marker=marker), timeout=0.4 if stopped else 30)
    assert outcome.stopped == stopped
    assert alive(marker) == []


@pytest.mark.parametrize(
    ("script", "stopped"),
    [
        ("yes", "output"),
        ("yes >&2", "output"),
        ("yes > file", None),  # the scratch folder is full, and `yes` fails
        ("f() { f | f & }; f; sleep 5", "forbidden"),
        ("for n in $(seq 100); do sleep 9 & done; wait", "forbidden"),
    ],
)
def test_attack_is_bounded(script, stopped):
    outcome = run("sh", "-c", script, timeout=30)
    if stopped == "forbidden" and os.getuid() != 0:
        return  # the kernel itself let the forks fail; it binds everybody but root
    if "Cannot fork" not in outcome.stderr:  # where process numbers ran out before the processes were counted
        assert outcome.stopped == stopped
    assert outcome.exit_code != 0


# What six processes do at once, each with less than the limit of them all.
HOGS = {
    "memory of their own": "x = bytearray(b'x') * SIZE",
    "shared memory": "m = mmap.mmap(-1, SIZE); fill(m)",
    "shared memory of a device": "m = mmap.mmap(os.open('/dev/zero', 0), SIZE, prot=mmap.PROT_READ); sum(m[::4096])",
    "shared memory of a name": "f = os.open(f'/dev/shm/redraft-{os.getpid()}', 66); os.ftruncate(f, SIZE); fill(mmap.mmap(f, SIZE))",
    "shared memory without a name": "f = os.memfd_create('x'); os.ftruncate(f, SIZE); fill(mmap.mmap(f, SIZE))",
    "shared memory of System V": "assert (n := libc.shmget(0, SIZE, 0o1600)) >= 0; libc.memset(libc.shmat(n, 0, 0), 1, SIZE)",
    "huge pages": "m = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000); fill(m)",
    "memory of a process whose first thread has ended": """
def hog():
    global x
    time.sleep(0.5)
    x = bytearray(b'x') * SIZE
    hold()
threading.Thread(target=hog).start()
libc.syscall(60, 0)
""",
    "memory kept in pipes": """
for n in range(SIZE >> 21):  # one page in a pipe keeps all of a huge page, which is nobody's after that
    if n % 16 == 0: _, pipe = os.pipe()
    m = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(14)  # MADV_HUGEPAGE
    fill(m)
    here = ctypes.c_char.from_buffer(m)
    vector = (ctypes.c_void_p * 2)((ctypes.addressof(here) + (2 << 20)) & -(2 << 20), 4096)
    assert libc.vmsplice(pipe, vector, 1, 0) > 0
    del here
    m.close()
""",
    "buffers of sockets": """
kept = []
try:
    while True:
        for end in (pair := socket.socketpair()):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            end.setblocking(False)
            try:
                while True: end.send(bytes(1 << 15))
            except BlockingIOError: kept.append(end)
except OSError: pass  # too many open files
""",
}
HOG = """
import ctypes, mmap, os, socket, threading, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
SIZE = 60 << 20
def fill(m):
    for at in range(0, len(m), 4096): m[at] = 1
def hold():
    open(f'held-{os.getpid()}', 'w').close()
    time.sleep(9)
"""


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", HOGS)
def test_total_memory_of_all_processes_is_bounded(name, user):
    script = "for n in 1 2 3 4; do python -S hog.py & done; wait; ls | grep -c held-"
    files = {"hog.py": f"{HOG}{HOGS[name]}\nhold()\n"}
    outcome = run_as(user, Command(("sh", "-c", script), files=files, memory=192 << 20, timeout=60))
    assert (outcome.stopped, outcome.stdout) in {("memory", ""), (None, "0\n")}, outcome


def test_environment_is_clean(monkeypatch):
    monkeypatch.setenv("REDRAFT_TEST_SECRET", "treasure")
    outcome = run("env")
    assert outcome.completed
    assert "treasure" not in outcome.stdout


@pytest.mark.parametrize(
    ("argv", "files", "code", "output"),
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
def test_honest_programs(argv, files, code, output):
    outcome = run(*argv, files=files)
    assert outcome.exit_code == code, outcome
    assert output in outcome.stdout
    assert outcome.completed is (outcome.stopped is None)


def test_pytest_runs():
    tests = "from draft import f\ndef test_f(tmp_path):\n    (tmp_path / 'x').write_text('x')\n    assert f(2) == 5\n"
    outcome = run(
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        files={"draft.py": "def f(x): return x * 2\n", "test_draft.py": tests},
        timeout=60,  # pytest takes long to start on a busy machine
    )
    assert outcome.exit_code == 1
    assert "1 failed" in outcome.stdout


def test_programs_can_read_readable_paths_only(tmp_path):
    (tmp_path / "rules").write_text("be kind")
    shown = run("cat", str(tmp_path / "rules"), readable=[str(tmp_path)])
    assert shown.stdout == "be kind"
    assert run("cat", str(tmp_path / "rules")).exit_code == 1
    assert run("sh", "-c", f"echo x > {tmp_path}/new", readable=[str(tmp_path)]).exit_code != 0
    assert os.listdir(tmp_path) == ["rules"]  # noqa: PTH208 (names)
