"""Other systems, played on Linux: what they lack is taken away before anything is imported."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from redraft.errors import SandboxForbiddenError
from redraft.execution import Command
from redraft.sandbox import jail

WINDOWS = """
import os, sys
for module in ("fcntl", "grp", "posix", "pwd", "resource", "termios", "tty"):
    sys.modules[module] = None
for name in ("fork", "forkpty", "geteuid", "getuid", "register_at_fork", "setsid", "O_DIRECTORY"):
    delattr(os, name)
sys.platform = "win32"
"""

# Names that macOS lacks, of those that Linux has.
MACOS = """
import os, resource, select, signal, socket, sys, types
LACKS = {
    os: (
        "MFD_CLOEXEC O_DIRECT O_PATH O_TMPFILE RTLD_DEEPBIND copy_file_range eventfd fdatasync getresuid"
        " getxattr listxattr memfd_create pidfd_open pipe2 posix_fadvise posix_fallocate removexattr"
        " sched_getaffinity sched_setaffinity setns setresuid setxattr splice unshare"
    ),
    resource: "prlimit RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING",
    select: "epoll",
    signal: "SIGRTMAX SIGRTMIN pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "AF_NETLINK AF_VSOCK SO_PEERCRED",
}
for module, names in LACKS.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
# On a real macOS these need modules that a Python for Linux leaves out.
import ctypes.util, sysconfig
sysconfig.get_config_vars()
sys.modules["_scproxy"] = types.SimpleNamespace(_get_proxies=dict, _get_proxy_settings=dict)
sys.platform = "darwin"


def refuse(path):
    if isinstance(path, str | os.PathLike) and os.fspath(path).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", path)

def stat(path, *arguments, original=os.stat, **keywords):
    refuse(path)
    return original(path, *arguments, **keywords)

os.stat = stat
sys.addaudithook(lambda event, given: event in ("open", "os.listdir", "os.scandir") and refuse(given[0]))
"""


def played(system, code, folder):
    """Run code in a new process on a system that is played; return how it ended."""
    return subprocess.run(
        [sys.executable, "-c", system + textwrap.dedent(code)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    "imported", ["import redraft", "import redraft.loop.agent", "import redraft.__main__"]
)
def test_windows_is_pointed_to_wsl(imported, tmp_path):
    done = played(WINDOWS, imported, tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "ImportError: Redraft runs on Linux and macOS, not on 'win32'. On Windows, install it in"
    )


def test_every_module_imports_on_macos(tmp_path):
    done = played(
        MACOS,
        """
        import importlib, pkgutil
        import redraft
        for module in pkgutil.walk_packages(redraft.__path__, "redraft."):
            # The one is the program; the other would load a library that is built for this machine.
            if module.name not in ("redraft.__main__", "redraft.sandbox.prolog"):
                importlib.import_module(module.name)
        print("all")
        """,
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("all\n", "")


def test_a_run_is_stored_and_read_on_macos(tmp_path):
    done = played(
        MACOS,
        """
        import asyncio
        from redraft import Agent, QualityCriterion, ReflectionPattern, Runs, ScriptedModel, SqliteStore
        from redraft.loop.record import Process

        tea = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})
        store = SqliteStore("runs.db")
        agent = Agent(
            ScriptedModel(["I like coffee.", "I like tea."]),
            pattern=ReflectionPattern(quality_criteria=[tea]),
            keep=store,
        )
        print(agent.run_sync("Write.").best_output)
        print(asyncio.run(Runs(store).get()).task.description)

        this = Process.this()
        print(bool(this.started), this.has_exited())  # from ps
        """,
        tmp_path,
    )
    assert done.stdout.splitlines() == ["I like tea.", "Write.", "True False"], done.stderr
    assert done.stderr == ""


def test_the_jail_says_what_macos_lacks(monkeypatch):
    monkeypatch.setattr(jail, "_START", f"import sys; sys.platform = 'darwin'; {jail._START}")
    with pytest.raises(SandboxForbiddenError, match=r"a Linux kernel \(this is darwin\)"):
        asyncio.run(jail.ProcessJail()(Command(python="result = 1 + 1")))
    with pytest.raises(SandboxForbiddenError, match=r"a Linux kernel \(this is darwin\)"):
        asyncio.run(jail.ProcessJail()(Command(argv=(sys.executable, "-c", ""))))
    unjailed = jail.ProcessJail(allow_unsandboxed=True)
    assert asyncio.run(unjailed(Command(python="result = 1 + 1"))).result == 2
