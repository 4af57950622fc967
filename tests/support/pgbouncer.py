"""A PgBouncer of the tests' own in front of a PostgreSQL server, from Debian's package."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from tempfile import mkdtemp

import psycopg


def program() -> str | None:
    """The path of PgBouncer, which Debian installs where users do not look; None if it is missing."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


class PgBouncer:
    """Pools the connections to one database in a mode: `transaction` or `session`."""

    def __init__(self, server_url: str, database: str, mode: str) -> None:
        with closing(psycopg.connect(server_url)) as connection:
            host, port, user = connection.info.host, connection.info.port, connection.info.user
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.folder = Path(mkdtemp(prefix="redraft-pgbouncer-"))
        self.url = f"postgresql://{user}@127.0.0.1:{self.port}/{database}"
        nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
        (self.folder / "users.txt").write_text(f'"{user}" ""\n')
        config = self.folder / "pgbouncer.ini"
        config.write_text(f"""[databases]
{database} = host={host} port={port} dbname={database} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {3 if mode == "transaction" else 10}
max_client_conn = 200
""")
        if nobody is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        self._log = (self.folder / "log").open("wb")
        self._process = subprocess.Popen(
            [str(program()), str(config)],
            user=nobody and nobody.pw_uid,
            group=nobody and nobody.pw_gid,
            extra_groups=[] if nobody else None,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        while self._process.poll() is None:
            with suppress(psycopg.OperationalError), closing(psycopg.connect(self.url)):
                return
            time.sleep(0.05)
        raise RuntimeError(f"PgBouncer does not start: {self.log()}")

    def log(self) -> str:
        """Return what it printed last."""
        return (self.folder / "log").read_text("utf-8", "replace")[-3000:]

    def stop(self) -> None:
        """End it, and remove its files."""
        self._process.terminate()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self.folder)
