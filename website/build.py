"""Build the site of the documentation into build/site: pages, API reference, Markdown twins and llms.txt.

The pages are docs/ and the project's other Markdown files; the API reference comes from the docstrings. All
of it is gathered in build/pages, where links lead from page to page of the site, and is rendered by Zensical.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from api import PACKAGES, reference_page

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"

# Markdown outside of docs/, or under another name there, by its place in the site.
RENAMED = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "examples/README.md": "examples.md",
    "benchmarks/README.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}

_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")


def main() -> int:
    """Build the site; return the exit code."""
    shutil.rmtree(PAGES, ignore_errors=True)
    places = _places()
    for source, place in places.items():
        _write(PAGES / place, _with_site_links((ROOT / source).read_text("utf-8"), source, places))
    for package in PACKAGES:
        _write(PAGES / "reference" / f"{package}.md", reference_page(package))
    shutil.copytree(ROOT / "docs" / "pictures", PAGES / "pictures")
    shutil.copytree(ROOT / "website" / "assets", PAGES / "assets")
    config = (ROOT / "website" / "zensical.toml").read_text("utf-8")
    listed = "\n".join(f'      {{ "{package}" = "reference/{package}.md" }},' for package in PACKAGES)
    config = config.replace("      # (the packages)", listed)
    if missing := [place for place in places.values() if f'"{place}"' not in config]:
        print("Pages that are missing from the navigation in website/zensical.toml:", *missing)
        return 1
    _write(BUILD / "zensical.toml", config)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=BUILD, check=False)  # noqa: S603
    return built.returncode


def _places() -> dict[str, str]:
    """Return the place in the site of each Markdown file of the project."""
    docs = {f"docs/{path.name}": path.name for path in sorted(ROOT.glob("docs/*.md"))}
    return docs | RENAMED


def _with_site_links(text: str, source: str, places: dict[str, str]) -> str:
    """Return a page with its relative links leading to pages and files of the site.

    Files that are no page, such as examples, are copied below `files/`.
    """
    here = Path(places[source]).parent

    def led(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if ":" in target:
            return match[0]
        path = os.path.normpath(Path(source).parent / target)
        place = places.get(path)
        if place is None and path.startswith("docs/"):
            place = path.removeprefix("docs/")
        if place is None:
            place = f"files/{path}"
            _write(PAGES / place, (ROOT / path).read_text("utf-8"))
        return f"{before}{os.path.relpath(place, here)}{after}"

    parts, last = [], 0
    for code in _CODE.finditer(text):
        parts += [_LINK.sub(led, text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*parts, _LINK.sub(led, text[last:])])


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
