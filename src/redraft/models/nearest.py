"""nearest: what a wrong model name may have meant."""

from __future__ import annotations

from redraft.models.weights import PACKAGED

EXTRAS = ("openai", "anthropic", "google")
"""The providers whose clients are extras of Redraft."""


def nearest(name: str) -> str:
    """Return a sentence that proposes the known names most like `name`."""
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    known = [*(f"local:{each}" for each in PACKAGED), *_provider_names()]
    provider, colon, model = name.partition(":")
    if colon:
        providers = [*EXTRAS, *(each.partition(":")[0] for each in known)]
        found = [f"{each}:{model}" for each in get_close_matches(provider, providers, 1)]
    else:
        ours = [each for each in known if each.partition(":")[0] in (*EXTRAS, "local")]
        found = _like(name, ours) or _like(name, known)
    if found:
        return f" Did you mean {' or '.join(repr(each) for each in found)}?"
    return f" Providers are {', '.join(EXTRAS)}, local, and those that Pydantic AI knows."


def _like(name: str, known: list[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    by_model: dict[str, str] = {}
    for each in known:
        by_model.setdefault(each.partition(":")[2], each)
    return [by_model[model] for model in get_close_matches(name.lower(), by_model, 2, cutoff=0.5)]


def _provider_names() -> list[str]:
    try:
        from pydantic_ai.models import known_model_names  # noqa: PLC0415 (0.3 s, and only an error needs it)
    except ImportError:
        return []
    return [name for name in known_model_names() if ":" in name]
