"""Run the benchmarks that need no model, each in a process of its own: `python benchmarks`."""

from __future__ import annotations

import subprocess
import sys

from _measure import PROJECT

BENCHMARKS: dict[str, tuple[str, ...]] = {
    "start": (),
    "overhead": (),
    "concurrency": (),
    "cases_at_once": (),
    "streaming": (),
    "stores": (),
    "postgres": (),
    "workflow": (),
    "workflow_items": (),
    "scripts": (),
    "journal": (),
    "redaction": (),
    "lessons": (),
    "lessons_ranking": (),
    "lessons_real": (),
    "transfer": ("--replay",),
    "lessons_retries": ("--replay",),
    "notes": (),
    "note_runs": ("--replay",),
    "cycle_overhead": (),
    "cycles": (),
    "dashboard": (),
    "telemetry": (),
    "replay": (),
    "acceptance": (),
    "generated_tests": (),
    "offline_model": ("--replay",),
    "evaluation": ("--replay",),
}


def main() -> None:
    failed: list[str] = []
    for name, arguments in BENCHMARKS.items():
        print(f"\n## {name}\n", flush=True)
        argv = [sys.executable, f"benchmarks/{name}.py", *arguments, *sys.argv[1:]]
        if subprocess.run(argv, cwd=PROJECT, check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
