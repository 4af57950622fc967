"""Embedding: the vectors of questions, and those of lessons, which the machines of a project share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

from redraft.core.errors import ModelError, OutputError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record
from redraft.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from redraft.models.embed import NamedEmbedder
    from redraft.stores.base import Store

KIND = "lesson_vector"
QUESTIONS = 256
"""Vectors of questions that are remembered."""
UNUSED = timedelta(days=90)
"""How old a shared vector is that is swept if no lesson here has its text: nobody will want it any more."""
PAGE = 500
"""Shared vectors that are looked at in one go."""
REST = 60.0
"""Seconds for which a store that could not be used is not asked again."""


class Embedding:
    """Turn questions and what lessons say into vectors, by an embedder where there is one.

    `name` is that of the embedder, empty without one. `shared` is a store that other machines use, too: what
    one of them has embedded no other embeds again. It holds a record for each text, under the names of the
    embedder and the digest of the text; never the text. Without that store everything is embedded here.
    """

    def __init__(self, embedder: NamedEmbedder | None, shared: Store | None = None) -> None:
        self.name = "" if embedder is None else embedder.name
        self._embedder = embedder
        self._shared = shared
        self._rests_until = 0.0
        self._dimension: int | None = None
        self._questions: OrderedDict[str, list[float]] = OrderedDict()

    async def of_question(self, text: str) -> list[float] | None:
        """Return the vector of a question; None, and a warning, where the embedder fails."""
        if not self.name or not text:
            return None
        known = self._questions.get(text)
        if known is None:
            try:
                [row] = await self._made([text])
            except (ModelError, OutputError) as error:
                logger.warning("Lessons are searched by full text alone: %s", error)
                return None
            known = self._questions[text] = list(row)
        self._questions.move_to_end(text)
        if len(self._questions) > QUESTIONS:
            self._questions.popitem(last=False)
        return known

    async def of_texts(self, texts: Mapping[bytes, str]) -> dict[bytes, Sequence[float]]:
        """Return the vectors of some texts, both by the texts' digests; raises what the embedder raises.

        A vector of another dimension than the embedder's is left out: its name was another one's before.
        """
        known = await self._known(texts)
        missing = [digest for digest in texts if digest not in known]
        if missing:
            rows = await self._made([texts[digest] for digest in missing])
            made = dict(zip(missing, rows, strict=True))
            await self._share(made)
            known |= made
        return {digest: row for digest, row in known.items() if self._fits(row)}

    async def sweep(self, digests: Collection[bytes]) -> int:
        """Delete the shared vectors of long ago of texts other than these; return how many that were.

        Another machine that wants one after all embeds the text again.
        """
        store, last, swept = self._store(), None, 0
        before = datetime.now(UTC) - UNUSED
        try:
            while store is not None and (page := await store.find(KIND, after=last, limit=PAGE)):
                last = page[-1]
                old = [one.key for one in page if _digest_of(one) not in digests and _is_older(one, before)]
                swept += sum(await asyncio.gather(*(store.delete(KIND, key) for key in old)))
        except StoreError as error:
            self._rest(error)
        return swept

    async def _made(self, texts: list[str]) -> Sequence[Sequence[float]]:
        if self._embedder is None:
            return []
        rows = await self._embedder(texts)
        self._dimension = len(rows[0])
        return rows

    def _fits(self, row: Sequence[float]) -> bool:
        return self._dimension in {None, len(row)}

    # What follows costs nothing but embedding where the store is away.

    async def _known(self, digests: Mapping[bytes, str]) -> dict[bytes, Sequence[float]]:
        store = self._store()
        if store is None:
            return {}
        try:
            # All at once: a store on a server sends and reads them together.
            found = await asyncio.gather(*(store.get(KIND, self._key(digest)) for digest in digests))
        except StoreError as error:
            self._rest(error)
            return {}
        return {
            digest: one.vector
            for digest, one in zip(digests, found, strict=True)
            if one is not None and one.vector is not None and self._fits(one.vector)
        }

    async def _share(self, made: Mapping[bytes, Sequence[float]]) -> None:
        store = self._store()
        if store is None:
            return
        try:
            await store.put_all(
                [Record(KIND, self._key(digest), {}, vector=row) for digest, row in made.items()]
            )
        except StoreError as error:
            self._rest(error)

    def _store(self) -> Store | None:
        return self._shared if monotonic() >= self._rests_until else None

    def _rest(self, error: StoreError) -> None:
        self._rests_until = monotonic() + REST
        logger.warning("The vectors of lessons are not shared for %.0f seconds: %s", REST, error)

    def _key(self, digest: bytes) -> str:
        return f"{self.name}/{digest.hex()}"


def _digest_of(record: Record) -> bytes:
    return bytes.fromhex(record.key.rpartition("/")[2])


def _is_older(record: Record, before: datetime) -> bool:
    return record.updated_at is not None and record.updated_at < before


def of_many_machines(store: Store | None) -> Store | None:
    """Return a store if it is one that machines share; one in a file is no nearer than the index itself."""
    if store is None or isinstance(store, MemoryStore):
        return None
    from redraft.stores.postgres import PostgresStore  # noqa: PLC0415 (what is kept nowhere needs none)

    return store if isinstance(store, PostgresStore) else None
