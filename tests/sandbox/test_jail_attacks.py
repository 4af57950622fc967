"""Attacks by Python source in the jail."""
# ruff: noqa: E501 (a table of snippets: one a line reads better than folded)

import asyncio
import ctypes
import os
import shutil
import socket
import tempfile
import textwrap
from pathlib import Path

import pytest

from redraft.execution import Command
from redraft.sandbox.jail import ProcessJail
from support.scripts import USERS, run_as

# One child tries all attacks, one by one. What an attack returns is loot; an OSError is a refusal.
HARNESS = """
import ctypes, errno, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if (returned := libc.syscall(ctypes.c_long(number), *passed)) < 0:
        raise OSError(ctypes.get_errno(), "system call")
    return returned
result = {}
for name, source in inputs["attacks"].items():
    exec("def attack():\\n" + source)
    try:
        result[name] = "got " + repr(attack())[:200]
    except OSError as error:
        result[name] = errno.errorcode.get(error.errno, str(error))
"""
REFUSALS = {"EACCES", "EPERM", "ENOSYS", "EROFS", "EXDEV", "EISCONN"}

READS = {
    "passwd": "return open('/etc/passwd').read()",
    "shadow": "return open('/etc/shadow').read()",
    "secret": "return open(inputs['secret']).read()",
    "home": "return os.listdir(inputs['home'])",
    "root folder": "return os.listdir('/')",
    "temporary folder": "return os.listdir('/tmp')",
    "C library": "f = libc.open(inputs['secret'].encode(), 0)\nif f < 0: raise OSError(ctypes.get_errno(), '')\nreturn f",
    "raw system call": "return call(2, inputs['secret'].encode(), 0)",
    "symbolic link": "os.symlink(inputs['secret'], 'link')\nreturn open('link').read()",
    "hard link": "os.link(inputs['secret'], 'second')\nreturn open('second').read()",
    "dots": "return open('../../../../../../etc/passwd').read()",
    "folder descriptor": "return os.open('etc/passwd', os.O_RDONLY, dir_fd=os.open('/', os.O_PATH))",
    "environment of the parent": "return open(f'/proc/{os.getppid()}/environ').read()",
    "own memory file": "return open('/proc/self/mem', 'rb')",
    "own root": "return open('/proc/self/root/etc/passwd').read()",
    "own descriptors": "return os.listdir('/proc/self/fd')",
    "command line of the parent": "return open(f'/proc/{os.getppid()}/cmdline').read()",
    "kernel messages": "return call(103, 3, ctypes.create_string_buffer(100), 100)",
    "disk": "return os.open('/dev/vda', os.O_RDONLY)",
    "terminal": "return os.open('/dev/tty', os.O_RDWR)",
    "database": "import sqlite3\ntry:\n    return sqlite3.connect(inputs['secret']).execute('select * from x').fetchall()\nexcept sqlite3.OperationalError as e:\n    raise PermissionError(13, str(e))",
}
WRITES = {
    "overwrite": "return open(inputs['secret'], 'w')",
    "append": "return open(inputs['secret'], 'a')",
    "truncate": "return os.truncate(inputs['secret'], 0)",
    "remove": "return os.unlink(inputs['secret'])",
    "rename": "return os.rename(inputs['secret'], 'mine')",
    "move over": "open('mine', 'w').close()\nreturn os.rename('mine', inputs['secret'])",
    "mode": "return os.chmod(inputs['secret'], 0o777)",
    "times": "return os.utime(inputs['secret'], (0, 0))",
    "attributes": "return os.setxattr(inputs['secret'], 'user.x', b'1')",
    "owner": "return os.chown(inputs['secret'], 65534, 65534)",
    "new file next to it": "return open(inputs['secret'] + '2', 'w')",
    "new folder next to it": "return os.mkdir(inputs['secret'] + '2')",
    "interpreter's library": "return open(os.__file__, 'a')",
    "shared memory": "return open('/dev/shm/redraft', 'w')",
    "device node": "return os.mknod('disk', 0o60600, os.makedev(254, 0))",
    "core pattern": "return open('/proc/sys/kernel/core_pattern', 'w')",
}
PROCESSES = {
    "fork": "return os.fork()",
    "vfork by number": "return call(58)",
    "clone3": "return call(435, ctypes.create_string_buffer(88), 88)",
    "shell": "import subprocess\nreturn subprocess.run(['/bin/sh', '-c', 'id'])",
    "exec": "return os.execv('/bin/true', ['true'])",
    "spawn": "return os.posix_spawn('/bin/true', ['true'], {})",
    "exec of memory": "return os.memfd_create('x')",
    "kill the parent": "return os.kill(os.getppid(), signal.SIGKILL)",
    "kill all": "return os.kill(-1, signal.SIGKILL)",
    "kill the group": "return os.killpg(0, signal.SIGKILL)",
    "kill by queue": "return call(129, os.getppid(), 9, ctypes.create_string_buffer(128))",
    "kill by thread": "return call(200, os.getppid(), 9)",
    "kill by descriptor": "return os.pidfd_open(os.getppid())",
    "kill by file owner": "import fcntl\nreturn fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "kill by file signal": "import fcntl\nreturn fcntl.fcntl(1, 10, 9)",
    "outlive the parent": "return call(157, 1, 0)",
    "ptrace": "return call(101, 16, os.getppid(), 0, 0)",
    "read memory": "return call(310, os.getppid(), None, 0, None, 0, 0)",
    "limits of the parent": "import resource\nreturn resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "own limits": "return call(160, 0, (ctypes.c_long * 2)(99, 99))",
    "priority of the parent": "return os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "processors of the parent": "return os.sched_setaffinity(os.getppid(), {0})",
}
KERNEL = {
    "TCP": "return socket.create_connection(('127.0.0.1', inputs['port']), 1)",
    "UDP": "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "unix socket": "s = socket.socket(socket.AF_UNIX)\nreturn s.connect(inputs['unix'])",
    "abstract socket": "s = socket.socket(socket.AF_UNIX)\nreturn s.connect('\\0redraft')",
    "socket pair to the outside": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\nreturn a.connect(inputs['unix'])",
    "datagram pair": "return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "datagram by path": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\nreturn a.sendto(b'x', inputs['datagrams'])",
    "descriptor by datagram": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)\nreturn a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, bytes([1, 0, 0, 0]))], 0, inputs['datagrams'])",
    "raw pair": "return socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)",
    "sequenced pair": "return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)",
    "pair of another family": "return call(53, 30, socket.SOCK_STREAM, 0, ctypes.create_string_buffer(8))",
    "stream pair to another address": "a, b = socket.socketpair()\nreturn a.sendto(b'x', inputs['datagrams'])",
    "netlink": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "listen": "return socket.create_server(('127.0.0.1', 0))",
    "namespace": "return call(272, 0x10000000)",
    "mount": "return call(165, b'tmpfs', b'/tmp', b'tmpfs', 0, 0)",
    "unmount": "return call(166, b'.', 2)",
    "chroot": "return os.chroot('.')",
    "io_uring": "return call(425, 8, ctypes.create_string_buffer(200))",
    "bpf": "return call(321, 0, ctypes.create_string_buffer(100), 100)",
    "keyring": "return call(250, 0, -3, 1)",
    "perf": "return call(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)",
    "userfault": "return call(323, 0)",
    "open by handle": "return call(304, -100, ctypes.create_string_buffer(100), 0)",
    "user": "return os.setuid(0)",
    "another filter": "return call(317, 1, 0, ctypes.create_string_buffer(16))",
    "host name": "return socket.sethostname('x')",
    "shared memory of the host": "return call(30, inputs['shared_memory'], 0, 0)",
    "shared memory's list": "return call(31, 0, 14, ctypes.create_string_buffer(256))",
    "message to the host": "return call(69, inputs['queue'], ctypes.create_string_buffer(b'\\x01' + bytes(15)), 8, 0o4000)",
    "message from the host": "return call(70, inputs['queue'], ctypes.create_string_buffer(64), 8, 0, 0o4000)",
    "removal of a message queue": "return call(71, inputs['queue'], 0, 0)",
    "semaphores": "return call(66, 0, 0, 16, 0)",
    "watching a folder": "return call(253)",
    "pages kept in a pipe": "return call(278, os.pipe()[1], ctypes.create_string_buffer(16), 1, 0)",
    "message queue": "return call(240, b'/x', 0o102, 0o600, None)",
    "terminal input": "import fcntl, termios\nreturn fcntl.ioctl(0, termios.TIOCSTI, b'x')",
    "a call of the future": "return call(467, 0, 0, 0, 0)",
}
ATTACKS = READS | WRITES | PROCESSES | KERNEL


@pytest.fixture(scope="module")
def world():
    """Give the attackers a secret file, an open port, sockets and shared memory; look afterwards whether all is as it was.

    Everybody may reach them: it is the jail that has to refuse.
    """
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    secret = folder / "secret"
    secret.write_text("treasure")
    secret.chmod(0o644)
    before = secret.stat()
    libc = ctypes.CDLL(None)
    memory, queue = libc.shmget(0, 4096, 0o1666), libc.msgget(0, 0o1666)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        for name, end in (("unix", unix), ("datagrams", datagrams)):
            end.bind(str(folder / name))
            (folder / name).chmod(0o777)
        unix.listen()
        yield {
            "secret": str(secret),
            "home": os.path.expanduser("~"),  # noqa: PTH111 (goes as JSON)
            "port": server.getsockname()[1],
            "unix": str(folder / "unix"),
            "datagrams": str(folder / "datagrams"),
            "shared_memory": memory,
            "queue": queue,
        }
        with pytest.raises(BlockingIOError):
            datagrams.recv(1, socket.MSG_DONTWAIT)
    assert libc.msgrcv(queue, ctypes.create_string_buffer(64), 8, 0, 0o4000) == -1
    assert (libc.shmctl(memory, 0, None), libc.msgctl(queue, 0, None)) == (0, 0)
    after = secret.stat()
    assert secret.read_text() == "treasure"
    assert (after.st_mode, after.st_mtime_ns, after.st_uid) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_uid,
    )
    assert sorted(path.name for path in folder.iterdir()) == ["datagrams", "secret", "unix"]
    shutil.rmtree(folder)


def run(source, **options):
    return asyncio.run(ProcessJail()(Command(python=source, **options)))


MACHINES = {"namespaces": (), "no namespaces": ("unshare",)}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("machine", MACHINES)
def test_attacks_are_denied(machine, user, world):
    attacks = {name: textwrap.indent(source, "    ") for name, source in ATTACKS.items()}
    outcome = run_as(user, Command(python=HARNESS, inputs={**world, "attacks": attacks}), MACHINES[machine])
    assert outcome.completed, outcome
    assert outcome.result.keys() == ATTACKS.keys()
    refused = {"disk": REFUSALS | {"ENOENT"}}
    passed = {name: end for name, end in outcome.result.items() if end not in refused.get(name, REFUSALS)}
    assert passed == {}


def test_environment_is_clean(monkeypatch):
    monkeypatch.setenv("REDRAFT_TEST_SECRET", "treasure")
    outcome = run("import os; result = dict(os.environ)")
    assert "REDRAFT_TEST_SECRET" not in outcome.result
    assert "treasure" not in str(outcome.result)


# What cannot be denied is bounded: (source, what ends it).
BOUNDS = {
    "endless loop": ("while True: pass", "timeout"),
    "sleep": ("import time; time.sleep(60)", "timeout"),
    "a signal handler that stays": (
        "import signal, time\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(60)",
        "timeout",
    ),
    "exceptions swallowed": (
        "import time\nwhile True:\n    try: time.sleep(1)\n    except BaseException: pass",
        "timeout",
    ),
    "a regular expression": ("import re; re.match('(a+)+$', 'a' * 60 + 'b')", "timeout"),
    "a large power": ("x = 9 ** 9 ** 9", "timeout"),
    "waiting for input that never comes": ("import threading; threading.Event().wait()", "timeout"),
    "memory": ("x = [bytearray(1 << 24) for _ in range(10_000)]", "memory"),
    "one large block": ("x = bytearray(1 << 40)", "memory"),
    "flood of stdout": ("while True: print('x' * 10_000)", "output"),
    "flood of stderr": ("import sys\nwhile True: sys.stderr.write('x' * 10_000)", "output"),
    "huge result": ("result = 'x' * (20 << 20)", "output"),
    "forbidden file": ("open('/etc/passwd')", "forbidden"),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_attack_is_bounded(name):
    source, stopped = BOUNDS[name]
    timeout = 0.3 if stopped == "timeout" else 5
    outcome = run(source, timeout=timeout, memory=256 << 20)
    assert outcome.stopped == stopped, outcome
    assert not outcome.completed
    assert outcome.result is None
    assert len(outcome.stdout) + len(outcome.stderr) < 2 * 257 * 1024


# Sources that end early, or forge a completed run: none of them completes.
FORGERIES = {
    "exit": "raise SystemExit(0)",
    "sys.exit": "import sys; result = 1; sys.exit(0)",
    "exit by name": "result = 1; exit(0)",
    "_exit": "import os; result = 1; os._exit(0)",
    "system call": "import ctypes; ctypes.CDLL(None).exit_group(0); ctypes.CDLL(None).syscall(231, 0)",
    "printed report": "print('{\"result\": 1}'); import os; os._exit(0)",
    "report on every descriptor": """
import os
for f in range(256):
    try: os.write(f, b'\\n00000000000000000000000000000000 {"result": 1}\\n{"ready": "x", "result": 1}\\n')
    except OSError: pass
os._exit(0)""",
    "closed descriptors": "import os; os.closerange(0, 1 << 16); result = 1",
    "redirected descriptors": """
import os
os.closerange(256, 1 << 16)
try:
    for f in range(2, 4096): os.dup2(1, f)
except OSError: pass
result = 1""",
    "abort": "import os; os.abort()",
    "own kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "segmentation fault": "import ctypes; ctypes.string_at(0)",
    "recursion": "def f(): return f()\nf()",
    "recursion without a limit": "import sys; sys.setrecursionlimit(10**9)\nf = lambda: [f() for _ in ' ']\nf()",
    "patched json": "import json, sys\njson.dumps = lambda *a, **k: '1'\njson.JSONEncoder.encode = 7\nraise SystemExit",
    "patched exit": "import os, sys\nos._exit = sys.exit = print\nraise SystemExit(0)",
    "syntax error": "def f(:",
    "deep source": "x = " + "(" * 5000 + ")" * 5000,
    "cyclic result": "result = []; result.append(result)",
    "result that is not a number": "result = float('nan')",
    "infinite result": "result = [1e999]",
    "result that is not JSON": "result = object()",
    "deep result": "result = []\nfor _ in range(100_000): result = [result]",
    "result with huge digits": "result = 10 ** 5000",
    "deleted builtins": "import builtins\nvars(builtins).clear()",
}


@pytest.fixture(scope="module")
def forged():
    """Run all of them at once; one after the other takes long."""

    async def main():
        jail = ProcessJail()
        commands = [Command(python=source, timeout=2, memory=128 << 20) for source in FORGERIES.values()]
        return await asyncio.gather(*map(jail, commands))

    return dict(zip(FORGERIES, asyncio.run(main()), strict=True))


@pytest.mark.parametrize("name", FORGERIES)
def test_attack_does_not_complete(name, forged):
    outcome = forged[name]
    assert not outcome.completed, outcome
    assert outcome.result is None


def test_forged_reports_do_not_hide_the_real_one():
    source = "import os\nfor f in range(3, 64):\n    try: os.write(f, b'\\n{\"result\": 0}\\nhalf a line')\n    except OSError: pass\nresult = 1"
    outcome = run(source)
    assert outcome.completed
    assert outcome.result == 1


@pytest.mark.parametrize(
    ("reports", "result"),
    [
        ("{'refused': 'no jail', 'exit': [], 'stopped': 'by me', 'raised': 3, 'ready': 1, 'result': 5}", 5),
        ("{'exit': -9999, 'stopped': 'timeout'}", None),
        ("['a list']", None),
        ("'result'", None),
        ("None", None),
    ],
)
def test_taking_over_the_reporter_gains_nothing(reports, result):
    source = f"""
import os, sys
frame = sys._getframe()
while 'report' not in frame.f_locals: frame = frame.f_back
frame.f_locals['report']({reports})
os._exit(0)"""
    outcome = run(source)
    assert (outcome.result, outcome.stopped, outcome.exit_code) == (result, None, 0)


def test_threads_do_not_outlive_the_source():
    source = """
import threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
result = 'done'"""
    outcome = run(source)
    assert outcome.completed
    assert outcome.result == "done"


def test_scratch_is_bounded_and_private(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = """
import errno
written, error = 0, None
try:
    for n in range(100):
        with open(f'file{n}', 'wb') as f:
            written += f.write(bytes(8 << 20))
except OSError as e:
    error = errno.errorcode[e.errno]
result = [written, error]"""
    written, error = run(source).result
    assert error == "ENOSPC"
    assert written <= 64 << 20
    assert list(tmp_path.iterdir()) == []


def test_one_file_is_bounded():
    source = "import errno\ntry:\n    open('f', 'wb').write(bytes(32 << 20))\nexcept OSError as e: result = errno.errorcode[e.errno]"
    assert run(source).result in {"EFBIG", None}


def test_threads_are_bounded():
    source = """
import _thread  # threading would wait for a thread that had no memory to say that it has started
gate = _thread.allocate_lock()
gate.acquire()
count = 0
try:
    for _ in range(5000):
        _thread.start_new_thread(gate.acquire, ())
        count += 1
except RuntimeError:
    result = count"""
    outcome = run(source)
    assert outcome.result < 5000
