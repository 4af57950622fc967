"""Models and an embedder for tests, which need no provider."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.models.embed import ScriptedEmbedder as ScriptedEmbedder  # noqa: PLC0414 (public here)
    from redraft.models.testing import Cassette as Cassette  # noqa: PLC0414 (public here)
    from redraft.models.testing import ScriptedModel as ScriptedModel  # noqa: PLC0414 (public here)

_PLACES = {".models.embed": ("ScriptedEmbedder",), ".models.testing": ("Cassette", "ScriptedModel")}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
