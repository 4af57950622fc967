"""without_middle: a long text by its beginning and its end."""

from __future__ import annotations


def without_middle(text: str, most: int) -> str:
    """Return a text of about `most` characters: of a longer one the middle is left out, and the gap named."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    gap = f"[... {len(text) - most:,} of {len(text):,} characters are left out here ...]"
    return f"{text[:head]}\n{gap}\n{text[-tail:]}"
