"""Vectors of questions and lessons: made by an embedder, compared by numpy."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from functools import cache
from importlib import import_module
from math import hypot
from operator import mul
from typing import TYPE_CHECKING, Any

from redraft.errors import ModelError, OutputError
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.models.embed import NamedEmbedder

QUESTIONS = 256
"""Vectors of questions that are cached."""


class LessonVectors:
    """Embed questions and lessons; `name` is the embedder's, empty without one."""

    def __init__(self, embedder: NamedEmbedder | None) -> None:
        self.name = "" if embedder is None else embedder.name
        self._embedder = embedder
        self._questions: OrderedDict[str, list[float]] = OrderedDict()

    async def of_question(self, text: str) -> list[float] | None:
        """Return the vector of a question; if the embedder fails, log a warning and return None."""
        if not self.name or not text:
            return None
        vector = self._questions.get(text)
        if vector is None:
            try:
                [row] = await self.of_lessons([text])
            except (ModelError, OutputError) as error:
                logger.warning("Lessons are searched by full text alone: %s", error)
                return None
            vector = self._questions[text] = list(row)
        self._questions.move_to_end(text)
        if len(self._questions) > QUESTIONS:
            self._questions.popitem(last=False)
        return vector

    async def of_lessons(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text, none without an embedder; raises what the embedder raises."""
        return [] if self._embedder is None else await self._embedder(texts)


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
