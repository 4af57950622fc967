"""Vectors of questions and lessons: made by an embedder, shared between machines, compared by numpy."""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from math import hypot
from operator import mul
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft.errors import ModelError, OutputError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record
from redraft.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from redraft.models.embed import NamedEmbedder
    from redraft.stores.base import Store

KIND = "lesson_vector"
"""The kind of the records in a shared store."""
QUESTIONS = 256
"""Vectors of questions that are cached."""
UNUSED = timedelta(days=90)
"""The age from which a shared vector is deleted if no lesson here has its text."""
PAGE = 500
"""Shared vectors that are read at once while deleting old ones."""
PAUSE = 60.0
"""Seconds without requests to a shared store that failed."""


def shared_store(store: Store | None) -> Store | None:
    """Return a store if it is shared between machines; a local one has nothing that the index lacks."""
    if store is None or isinstance(store, MemoryStore):
        return None
    from redraft.stores.postgres import PostgresStore  # noqa: PLC0415 (slow to import, and rarely needed)

    return store if isinstance(store, PostgresStore) else None


async def delete_vectors(store: Store, digests: Collection[str]) -> int:
    """Delete the shared vectors of texts, whatever embedder made them; return how many there were."""
    last, found = None, 0
    while page := await store.find(KIND, after=last, limit=PAGE):
        last = page[-1]
        gone = [record.key for record in page if record.key.rpartition("/")[2] in digests]
        found += sum(await asyncio.gather(*(store.delete(KIND, key) for key in gone)))
    return found


class LessonVectors:
    """Embed questions and lessons.

    `name` is the embedder's, empty without one. With a `shared` store each text is embedded once for all
    machines: the store has a record by the name of the embedder and the digest of the text, but never the
    text. If the store fails, texts are embedded here.
    """

    def __init__(self, embedder: NamedEmbedder | None, shared: Store | None = None) -> None:
        self.name = "" if embedder is None else embedder.name
        self._embedder = embedder
        self._shared = shared
        self._paused_until = 0.0
        self._dimension: int | None = None
        self._questions: OrderedDict[str, list[float]] = OrderedDict()

    async def of_question(self, text: str) -> list[float] | None:
        """Return the vector of a question; if the embedder fails, log a warning and return None."""
        if not self.name or not text:
            return None
        vector = self._questions.get(text)
        if vector is None:
            try:
                [row] = await self._embed([text])
            except (ModelError, OutputError) as error:
                logger.warning("Lessons are searched by full text alone: %s", error)
                return None
            vector = self._questions[text] = list(row)
        self._questions.move_to_end(text)
        if len(self._questions) > QUESTIONS:
            self._questions.popitem(last=False)
        return vector

    async def of_texts(self, texts: Mapping[bytes, str]) -> dict[bytes, Sequence[float]]:
        """Return the vectors of texts, by the texts' digests; raises what the embedder raises.

        Leaves out shared vectors of another dimension, which are from an earlier embedder of the same name.
        """
        known = await self._read(texts)
        missing = [digest for digest in texts if digest not in known]
        if missing:
            rows = await self._embed([texts[digest] for digest in missing])
            embedded = dict(zip(missing, rows, strict=True))
            await self._write(embedded)
            known |= embedded
        return {digest: row for digest, row in known.items() if self._fits(row)}

    async def sweep(self, digests: Collection[bytes]) -> int:
        """Delete old shared vectors of all texts but these, and return how many.

        A machine that still needs one embeds its text again.
        """
        store, last, swept = self._store(), None, 0
        before = datetime.now(UTC) - UNUSED
        try:
            while store is not None and (page := await store.find(KIND, after=last, limit=PAGE)):
                last = page[-1]
                old = [one for one in page if one.updated_at is not None and one.updated_at < before]
                unused = [one.key for one in old if _digest_of(one) not in digests]
                swept += sum(await asyncio.gather(*(store.delete(KIND, key) for key in unused)))
        except StoreError as error:
            self._pause(error)
        return swept

    async def _embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        if self._embedder is None:
            return []
        rows = await self._embedder(texts)
        self._dimension = len(rows[0])
        return rows

    def _fits(self, row: Sequence[float]) -> bool:
        return self._dimension in {None, len(row)}

    async def _read(self, digests: Mapping[bytes, str]) -> dict[bytes, Sequence[float]]:
        store = self._store()
        if store is None:
            return {}
        try:
            # At once, since a server answers them together.
            found = await asyncio.gather(*(store.get(KIND, self._key(digest)) for digest in digests))
        except StoreError as error:
            self._pause(error)
            return {}
        return {
            digest: one.vector
            for digest, one in zip(digests, found, strict=True)
            if one is not None and one.vector is not None and self._fits(one.vector)
        }

    async def _write(self, vectors: Mapping[bytes, Sequence[float]]) -> None:
        store = self._store()
        if store is None:
            return
        try:
            await store.put_all(
                [Record(KIND, self._key(digest), {}, vector=row) for digest, row in vectors.items()]
            )
        except StoreError as error:
            self._pause(error)

    def _store(self) -> Store | None:
        return self._shared if monotonic() >= self._paused_until else None

    def _pause(self, error: StoreError) -> None:
        self._paused_until = monotonic() + PAUSE
        logger.warning("The vectors of lessons are not shared for %.0f seconds: %s", PAUSE, error)

    def _key(self, digest: bytes) -> str:
        return f"{self.name}/{digest.hex()}"


def _digest_of(record: Record) -> bytes:
    return bytes.fromhex(record.key.rpartition("/")[2])


# --- comparing ---------------------------------------------------------------------------------------------

FLOAT_BYTES = 4
"""Bytes of a number in a packed vector."""


@cache
def numpy() -> Any:
    """Return numpy, or None if it is not installed; it comes with the offline embedder."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


def packed(vector: Sequence[float]) -> bytes:
    """Scale a vector to unit length and pack it as 32-bit floats."""
    length = hypot(*vector) or 1.0
    return array("f", [number / length for number in vector]).tobytes()


def matrix_of(vectors: Sequence[bytes]) -> Any:
    """Return packed vectors as the rows of a matrix."""
    if not vectors or numpy() is None:  # without vectors, numpy is not loaded
        return [array("f", vector) for vector in vectors]
    return numpy().frombuffer(b"".join(vectors), "f4").reshape(len(vectors), -1)


def cosines(matrix: Any, vector: Sequence[float]) -> list[float]:
    """Return the cosine of each row with a vector, all of unit length: their dot products."""
    if numpy() is None:
        return [sum(map(mul, row, vector)) for row in matrix]
    # Not `@`: for so few rows, starting its threads takes longer than multiplying.
    return numpy().einsum("ij,j->i", matrix, numpy().asarray(vector, "f4")).tolist()
