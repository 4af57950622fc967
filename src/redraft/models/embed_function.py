"""FunctionEmbedder: any function of the user's that turns texts into vectors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from redraft.core.calls import awaited
from redraft.core.errors import ConfigError, OutputError
from redraft.models.embed_rows import unit_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class FunctionEmbedder:
    """Embed with a function that takes a list of texts and returns a vector for each, sync or async.

    A sync one runs in a thread. Vectors may have any length: they are made unit length. `name` tells an index
    who made its vectors: change it when the function changes what it returns. Without one it is the place
    where the function is defined, which does not tell two lambdas of a module apart.

    Raises `ConfigError` for what can't be called, and at a call `OutputError` unless there is a vector for
    each text, of finite numbers, with a direction, and of the same dimension as at every call before.
    """

    def __init__(self, function: Callable[[list[str]], Any], name: str | None = None) -> None:
        if not callable(function) or isinstance(function, type):
            raise ConfigError(
                f"embedder must be a name, an Embedder or a function from texts to vectors, got {function!r}."
            )
        self.name = name or place_of(function)
        self._function = awaited(function)
        self._dimension: int | None = None

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the unit vectors of `texts`."""
        if not texts:
            return []
        source = f"The embedder {self.name!r}"
        rows = unit_rows(source, await self._function(list(texts)), len(texts))
        dimension = len(rows[0])
        if dimension != (self._dimension or dimension):
            raise OutputError(
                f"{source} returned vectors of {dimension} numbers, and of {self._dimension} before."
            )
        self._dimension = dimension
        return rows


def place_of(function: object) -> str:
    """Return the module and name of a function, of a partial one's function, or of an object's class."""
    target: Any = function
    while isinstance(target, partial):
        target = cast("Any", target.func)
    named: Any = target if hasattr(target, "__qualname__") else cast("Any", type(target))
    return f"{named.__module__}.{named.__qualname__}"
