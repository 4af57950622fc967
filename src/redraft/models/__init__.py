"""Models: providers, offline weights, the shipped fake, and a cassette."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.models.fallback import FallbackModel as FallbackModel
    from redraft.models.provider import ProviderModel as ProviderModel

_PLACES = {"provider": ("ProviderModel",), "fallback": ("FallbackModel",)}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
