"""What the quality monitor can do in the world; the agent file names it."""

from __future__ import annotations

from pathlib import Path

HELD = Path("held.txt")


def hold_batch(batch: str, idempotency_key: str) -> dict[str, str]:
    """Hold a batch once, however often it is asked for."""
    lines = HELD.read_text("utf-8").splitlines() if HELD.exists() else []
    if not any(line.endswith(idempotency_key) for line in lines):
        HELD.write_text("".join(f"{line}\n" for line in [*lines, f"{batch} {idempotency_key}"]), "utf-8")
    return {"held": batch}
