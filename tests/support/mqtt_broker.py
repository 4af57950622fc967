"""A real MQTT broker, Mosquitto of Debian's packages, on a port of the loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from redraft._locks import flock

PROGRAM = "mosquitto"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
CONFIGURATION = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 1000
"""


class NoBrokerError(Exception):
    """Say why no broker can run on this machine."""


def installed() -> str:
    """The broker's program; install its package where it is missing and that is possible."""
    if found := shutil.which(PROGRAM, path=PATH):
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise NoBrokerError(f"{PROGRAM} is not installed: apt-get install {PROGRAM}")
    lock = os.open(Path(gettempdir()) / "redraft-mosquitto.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        flock(lock, wait=300)  # other processes of the tests may be installing it
        if found := shutil.which(PROGRAM, path=PATH):
            return found
        # RUNLEVEL keeps the package from starting a broker of its own.
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for words in (["update"], ["install", "-y", "--no-install-recommends", PROGRAM]):
            done = subprocess.run(
                [apt, "-qq", *words], env=quiet, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise NoBrokerError(f"apt-get {words[0]} failed: {done.stderr.strip()[-300:]}")
    finally:
        os.close(lock)
    found = shutil.which(PROGRAM, path=PATH)
    if found is None:
        raise NoBrokerError(f"the package has no {PROGRAM}")
    return found


class MqttBroker:
    """Run a broker in a folder of its own."""

    def __init__(self) -> None:
        self._program = installed()
        self._folder = TemporaryDirectory(prefix="redraft-mqtt-")
        folder = Path(self._folder.name)
        folder.chmod(0o755)
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        (folder / "mosquitto.conf").write_text(CONFIGURATION.format(port=self.port))
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", folder / "mosquitto.conf"], stdout=log, stderr=log
            )
        end = time.monotonic() + 20
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(OSError), closing(socket.create_connection(("127.0.0.1", self.port), 1)):
                return
            time.sleep(0.01)
        raise NoBrokerError(f"{PROGRAM} does not start: {(folder / 'log').read_text()[-300:]}")

    def remove(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()
