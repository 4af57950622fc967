"""Run the benchmarks that need no model, each in a process of its own: `python benchmarks`."""

from __future__ import annotations

import subprocess
import sys

from _measure import PROJECT

SMALL = ("--model", "local:qwen2.5-coder-0.5b")
LARGER = ("--model", "local:qwen2.5-coder-1.5b")
TOLD = (
    *("--families", "orders,headlines,repairs,errands,flights,invoices,shifts"),
    *("--arms", "withheld,stated"),
)
WITH_LEARNING = ("--arms", "loop,loop:learning,greedy,best-of-3,chat")
BENCHMARKS: tuple[tuple[str, ...], ...] = (
    ("start",),
    ("overhead",),
    ("concurrency",),
    ("cases_at_once",),
    ("streaming",),
    ("stores",),
    ("postgres",),
    ("workflow",),
    ("workflow_items",),
    ("scripts",),
    ("journal",),
    ("redaction",),
    ("lessons",),
    ("cycle_overhead",),
    ("cycles",),
    ("fleet",),
    ("dashboard",),
    ("telemetry",),
    ("trials",),
    ("replay",),
    ("acceptance",),
    ("first_drafts", *SMALL, "--replay"),
    ("first_drafts", *LARGER, *TOLD, "--replay"),
    ("note_runs", *SMALL, "--families", "functions", "--replay"),
    ("offline_model", "--tasks", "small", *WITH_LEARNING, "--replay"),
)
"""Scripts with their arguments; recordings play the models."""


def main() -> None:
    failed: list[str] = []
    for name, *arguments in BENCHMARKS:
        command = " ".join([name, *arguments])
        print(f"\n## {command}\n", flush=True)
        argv = [sys.executable, f"benchmarks/{name}.py", *arguments, *sys.argv[1:]]
        if subprocess.run(argv, cwd=PROJECT, check=False).returncode:
            failed.append(command)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
