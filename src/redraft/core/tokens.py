"""The one token estimator: good enough for bounds, never used for bills."""

from __future__ import annotations

BYTES_PER_TOKEN = 3.6  # the mean of o200k and the Qwen tokenizers on English prose and Python


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text takes, erring on the high side for scripts beyond ASCII."""
    return 0 if not text else max(1, round(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN))
