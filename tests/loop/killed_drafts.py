"""A run of three drafts whose process is killed in the third; run by test_candidates.py, twice."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from redraft import ReflectionPattern, SqliteStore, reflect
from redraft.loop import Journalled

folder = Path(sys.argv[1])
log = folder / "drafts.log"


async def generate(prompt, attempt):
    """Write down which draft is asked for, and be killed the first time that the third one is."""
    again = "3" in log.read_text().split() if log.exists() else False
    with log.open("a") as file:
        file.write(f"{attempt.candidate}\n")
    if attempt.candidate == 3:
        await asyncio.sleep(0.2)  # the others finish meanwhile
        if not again:
            os.kill(os.getpid(), signal.SIGKILL)
    return "x" * attempt.candidate


async def main():
    """Run, or go on."""
    store = SqliteStore(folder / "runs.db")
    result = await reflect(
        "Write.",
        generate=generate,
        evaluate=lambda output: len(output) / 10,
        pattern=ReflectionPattern(candidates=3, max_iterations=0),
        step=Journalled(store, "killed"),
    )
    print(result.best_output, [version.output for version in result.history.versions[0].rejected])
    await store.aclose()


asyncio.run(main())
