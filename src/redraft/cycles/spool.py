"""Spool: a local file of what could not be written to the store yet, for the case that the process ends."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft.core.errors import LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Batch: TypeAlias = dict[tuple[str, str], Record]
"""Records by kind and key: of each, what is to be written last."""

LARGEST = 16_000_000
"""Bytes of the file beyond which it is written anew, without what later lines say again."""


class Spool:
    """Keep records in a file of mode 0600, one line for what was saved at once; for one process at a time.

    It is opened by `read` and outlives the process, not the machine: nothing waits for the disk. Raises
    `StoreError` where the file can't be used, and `LeaseError` where another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._bound = LARGEST

    def read(self) -> tuple[Batch, bool, int]:
        """Return what is to be written, whether it is partial, and the generation that made it.

        It is partial where the memory in it was made without knowing the stored one; the generation is 0
        where nobody held the lease. A line that is torn, the last one of a process that was killed, is left
        out with a warning.
        """
        lines = self._open_and_read().split(b"\n")
        batch: Batch = {}
        is_partial, generation = False, 0
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                saved = json.loads(line)
                batch |= {(fields[0], fields[1]): Record(*fields) for fields in saved["records"]}
                is_partial = is_partial or saved["is_partial"]
                generation = max(generation, saved.get("generation", 0))  # none in one of an earlier version
            except (ValueError, TypeError, KeyError, IndexError):
                logger.warning(
                    "%s, line %d can't be read and is left out: it was torn when its process ended.",
                    self.path,
                    number,
                )
        return batch, is_partial, generation

    def add(self, records: Iterable[Record], *, is_partial: bool, generation: int = 0) -> None:
        """Write records down behind what is there."""
        if self._file is not None:
            with suppress(TypeError, ValueError):  # what has no JSON form the store refuses, too, and says so
                self._write(_line(records, is_partial, generation))

    def is_large(self) -> bool:
        """Say whether it is worth writing anew."""
        return self._file is not None and os.fstat(self._file).st_size > self._bound

    def replace(self, records: Iterable[Record], *, is_partial: bool, generation: int = 0) -> None:
        """Let the file hold these records and nothing else, whenever the process ends."""
        if self._file is None:
            return
        before, new = self._file, self.path.with_name(f"{self.path.name}.new")
        self._file = _locked(new)
        os.ftruncate(self._file, 0)
        self.add(records, is_partial=is_partial, generation=generation)
        new.replace(self.path)
        os.close(before)
        self._bound = max(LARGEST, 2 * os.fstat(self._file).st_size)

    def clear(self) -> None:
        """Forget all, for it has been written."""
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open_and_read(self) -> bytes:
        if self._file is None:
            try:
                self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
                self._file = _locked(self.path)
            except BlockingIOError as error:
                raise LeaseError(
                    f"Another process on this machine runs the agent of the spool {self.path}: wait until it "
                    "ends, or end it."
                ) from error
            except OSError as error:
                raise StoreError(
                    f"The spool {self.path} can't be used ({error}): see who may write to its folder."
                ) from error
        size = os.fstat(self._file).st_size
        return os.pread(self._file, size, 0)

    def _write(self, line: bytes) -> None:
        if self._file is not None:
            try:
                os.write(self._file, line)
            except OSError as error:
                logger.warning("The spool %s can't be written: %s.", self.path, error)


def _locked(path: Path) -> int:
    """Open a file of this process alone; raises `BlockingIOError` where it is another's."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


def _line(records: Iterable[Record], is_partial: bool, generation: int) -> bytes:
    fields: list[list[Any]] = [
        [each.kind, each.key, dict(each.data), each.schema_version, each.vector] for each in records
    ]
    # The end of a line comes first, so that one which was torn takes no other with it.
    return (
        b"\n" + json.dumps({"is_partial": is_partial, "generation": generation, "records": fields}).encode()
    )
