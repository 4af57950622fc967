"""Build the site of the documentation: pages, API reference, Markdown twins and llms.txt.

    python website/docs_site.py [FOLDER]        by default `build`; the site is in FOLDER/site

The pages are docs/ and the project's other Markdown files; the API reference comes from the docstrings. All
of it is gathered in FOLDER/pages, with links that lead from page to page, and is rendered by Zensical.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from api_reference import PACKAGES, links_to_reference, reference_page
from site_links import external_links, faults

ROOT = Path(__file__).parents[1]

# Markdown outside of docs/, or under another name there, by its place in the site.
RENAMED = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "examples/README.md": "examples.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/findings.md": "findings.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}

# Zensical writes llms.txt and the twins only for a site with an address. All links are made relative, so that
# the site can be read from any host, and from the file system.
NOWHERE = "https://redraft.invalid/"

_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
_ROW = re.compile(r"^\| \[[^]]+\]\((\w[\w-]*\.md)\) \| (.+?) \|$", re.MULTILINE)


def main(folder: Path) -> int:
    """Build the site in `folder`, check it, and return the exit code."""
    pages, site = folder / "pages", folder / "site"
    places = places_in_site()
    config = _configuration(places)
    if left_out := [place for place in places.values() if f'"{place}"' not in config]:
        print("Pages that the navigation in website/zensical.toml leaves out:", *left_out)
        return 1
    _gather(pages, places)
    _write(folder / "zensical.toml", config)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=folder, check=False)  # noqa: S603
    if built.returncode:
        return built.returncode
    _make_relative(site)
    found = faults(site)
    print(*found, sep="\n")
    links = external_links(site)
    _write(folder / "external-links.txt", "".join(f"{url}  {', '.join(on)}\n" for url, on in links.items()))
    print(
        f"{len(found)} faults. {len(links)} links lead to other hosts: see {folder / 'external-links.txt'}.\n"
        f"The site: {site / 'index.html'}"
    )
    return 1 if found else 0


def places_in_site() -> dict[str, str]:
    """Return the place in the site of each Markdown file of the project."""
    docs = {f"docs/{path.name}": path.name for path in sorted(ROOT.glob("docs/*.md"))}
    return docs | RENAMED


def _gather(pages: Path, places: dict[str, str]) -> None:
    shutil.rmtree(pages, ignore_errors=True)
    for source, place in places.items():
        text, files = with_site_links((ROOT / source).read_text("utf-8"), source, places)
        _write(pages / place, text + links_to_reference(place))
        for file in files:
            _write(pages / "files" / file, (ROOT / file).read_text("utf-8"))
    for package in PACKAGES:
        _write(pages / "reference" / f"{package}.md", reference_page(package))
    shutil.copytree(ROOT / "docs" / "pictures", pages / "pictures")
    shutil.copytree(ROOT / "website" / "assets", pages / "assets")


def with_site_links(text: str, source: str, places: dict[str, str]) -> tuple[str, list[str]]:
    """Return a page with its relative links leading to places of the site, and the files that it links to.

    Files that are no page, such as examples, belong below `files/`.
    """
    files: list[str] = []

    def to_place(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if ":" in target:
            return match[0]
        path = os.path.normpath(Path(source).parent / target)
        if path in places:
            place = places[path]
        elif path.startswith("docs/pictures/"):
            place = path.removeprefix("docs/")
        else:
            files.append(path)
            place = f"files/{path}"
        return f"{before}{os.path.relpath(place, Path(places[source]).parent)}{after}"

    parts, last = [], 0
    for code in _CODE.finditer(text):
        # The theme would load the program that draws Mermaid from another host.
        shown = code[0].replace("```mermaid", "```text", 1)
        parts += [_LINK.sub(to_place, text[last : code.start()]), shown]
        last = code.end()
    return "".join([*parts, _LINK.sub(to_place, text[last:])]), files


def _configuration(places: dict[str, str]) -> str:
    """Return website/zensical.toml with the pages of the API and the sections of llms.txt."""
    config = (ROOT / "website" / "zensical.toml").read_text("utf-8")
    api = "\n".join(f'    {{ "{package}" = "reference/{package}.md" }},' for package in PACKAGES)
    config = config.replace("    # (the packages)", api)
    config = config.replace("(root)", ROOT.as_posix()).replace("(nowhere)", NOWHERE)
    about = {places.get(f"docs/{name}", name): text for name, text in _ROW.findall(_contents())}
    sections = [
        f"{json.dumps(title)} = [{', '.join(_entry(page, about) for page in _pages_of(entry))}]"
        for section in tomllib.loads(config)["project"]["nav"]
        for title, entry in section.items()
    ]
    return "\n".join([config, "[project.plugins.llmstxt.sections]", *sections, ""])


def _contents() -> str:
    return (ROOT / "docs" / "README.md").read_text("utf-8")


def _pages_of(entry: Any) -> list[str]:
    """Return the pages of an entry of the navigation, in order."""
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        entry = list(entry.values())
    return [page for one in entry for page in _pages_of(one)]


def _entry(page: str, about: dict[str, str]) -> str:
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", about.get(page, ""))
    return f"{{ {json.dumps(page)} = {json.dumps(text)} }}" if text else json.dumps(page)


def _make_relative(site: Path) -> None:
    """Make all links relative: those of twins lead to twins, and those to the home page name its file."""
    (site / "sitemap.xml").unlink(missing_ok=True)  # holds nothing but addresses
    canonical = re.compile(rf'<link rel="canonical" href="{NOWHERE}[^"]*">')
    home = re.compile(r'href="(?:\./)?(\.\.(?:/\.\.)*)"')
    address = re.compile(rf"<?{re.escape(NOWHERE)}([^)>\s\"]*)>?")
    for path in [*site.rglob("*.html"), *site.rglob("*.md"), *site.glob("llms*.txt")]:

        def relative(match: re.Match[str], path: Path = path) -> str:
            page, hash_, heading = match[1].partition("#")
            twin = Path(page).with_suffix(".md")
            if path.suffix != ".html" and (site / twin).is_file():
                page = twin
            return os.path.relpath(site / page, path.parent) + hash_ + heading

        text = canonical.sub("", path.read_text("utf-8"))
        text = home.sub(r'href="\1/index.html"', text)
        path.write_text(address.sub(relative, text), "utf-8")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else ROOT / "build").resolve()))
