"""Build the wheel and the sdist, check what is in them, and try the wheel as a user would: `make release`."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAME = f"{PROJECT['name']}-{PROJECT['version']}"

MOST_BYTES = 4_000_000
"""More than this for a wheel means that something was added that users have to download for nothing."""

LICENSES = ["LICENSE", *(f"src/redraft/sandbox/trealla/LICENSE.{part}" for part in ("trealla", "trealla-js"))]
METADATA = ["METADATA", "WHEEL", "RECORD", "entry_points.txt", *(f"licenses/{path}" for path in LICENSES)]
BESIDE_THE_SOURCE = ["CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml"]
BY_THE_BUILDER = [".gitignore", "PKG-INFO"]

NEEDED = [
    "py.typed",
    "demo/replies.jsonl",
    "models/minilm/vocab.txt",
    "sandbox/trealla/trealla.wasm",
    "web/static/redraft.css",
    "web/templates/base.html",
]
"""What the package reads at run time and no import would miss, one of each kind."""

SHOWN = 60
"""Characters of a command's argument that are printed."""

SHOP = """
def write(prompt, feedback=""):
    return "A solar lamp for campers: 180 g." if feedback else "Our new solar lamp is here."
"""
"""The reader's own function, which the README's example imports."""

IMPORT_ALL = """
import importlib, pathlib, redraft
for feature in redraft._FEATURES:
    module = importlib.import_module(f"redraft.{feature}")
    missing = []
    for name in module.__all__:
        try:
            getattr(module, name)
        except redraft.RedraftError as error:  # an extra that is not installed
            missing.append(name)
    print(f"redraft.{feature}: {len(module.__all__)} names" + (f", without {missing}" if missing else ""))
"""


def main() -> None:
    """Build, check and try; stop at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="the tag to release: it has to match the version and the changelog")
    tag = parser.parse_args().tag
    if tag:
        check_tag(tag)
    wheel, sdist = build()
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder))
    for path in (wheel, sdist):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")


def check_tag(tag: str) -> None:
    """Require the version as the tag, and a changelog that has a section for it."""
    if tag != f"v{PROJECT['version']}":
        sys.exit(f"The tag is {tag!r}, but pyproject.toml has version {PROJECT['version']!r}.")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## {re.escape(PROJECT['version'])}\b", changelog, re.MULTILINE):
        sys.exit(
            f"CHANGELOG.md has no section '## {PROJECT['version']}'; rename 'Unreleased' before you tag."
        )


def build() -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return the paths of both."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT, quiet=True)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.iterdir()))
    return DIST / f"{NAME}-py3-none-any.whl", DIST / f"{NAME}.tar.gz"


def check_contents(wheel: Path, sdist: Path) -> None:
    """Require every tracked file of the package, and nothing else."""
    tracked = subprocess.run(
        ["git", "ls-files", "src/redraft"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    package = {path.removeprefix("src/") for path in tracked}
    compare(
        wheel,
        set(zipfile.ZipFile(wheel).namelist()),
        package | {f"{NAME}.dist-info/{path}" for path in METADATA},
    )
    with tarfile.open(sdist) as archive:
        compare(
            sdist,
            {member.name.removeprefix(f"{NAME}/") for member in archive if member.isfile()},
            {*tracked, *BESIDE_THE_SOURCE, *BY_THE_BUILDER},
        )
    if missing := [path for path in NEEDED if f"redraft/{path}" not in package]:
        sys.exit(f"The package needs {missing}; if they moved, say so in {Path(__file__).name}.")
    if wheel.stat().st_size > MOST_BYTES:
        sys.exit(f"{wheel.name} has {wheel.stat().st_size:,} bytes; expected at most {MOST_BYTES:,}.")


def compare(archive: Path, found: set[str], expected: set[str]) -> None:
    """Stop unless an archive has exactly the expected files."""
    if found != expected:
        sys.exit(
            f"{archive.name} has {sorted(found - expected)}, which was not expected, "
            f"and lacks {sorted(expected - found)}. A file is expected once it is tracked by git."
        )
    print(f"{archive.name}: {len(found)} files, as expected")


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel without extras into an empty environment, and use it away from the source."""
    run(sys.executable, "-m", "venv", folder / "venv")
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", wheel)
    run(programs / "python", "-m", "pip", "check")
    snippet = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    if not snippet:
        sys.exit("README.md has no Python example.")
    work = folder / "work"
    work.mkdir()
    clean = {"PATH": f"{programs}{os.pathsep}{os.defpath}", "HOME": str(work), "COLUMNS": "100"}
    run(programs / "python", "-I", "-c", IMPORT_ALL, cwd=work, env=clean)
    (work / "shop.py").write_text(SHOP, "utf-8")
    (work / "offer.py").write_text(snippet[1], "utf-8")
    run(programs / "python", "offer.py", cwd=work, env=clean)
    for arguments in (["--version"], ["--help"], ["why", "last"], ["demo", "--replay"], ["runs"]):
        run(programs / "redraft", *arguments, cwd=work, env=clean)


def run(
    *command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None, quiet: bool = False
) -> None:
    """Run a program and stop if it fails; its output is shown, unless `quiet`, if it does not."""
    words = [str(part) for part in command]
    shown = [
        Path(words[0]).name,
        *(word if len(word) < SHOWN and "\n" not in word else "..." for word in words[1:]),
    ]
    print("$", *shown, flush=True)
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        check=False,
        text=True,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
    )
    if done.returncode:
        sys.exit(f"{done.stdout or ''}\n{command[0]} failed with exit code {done.returncode}.")


if __name__ == "__main__":
    main()
