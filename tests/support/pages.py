"""Pages of the documentation: their code blocks and links, and how to run a block."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s:]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CONSOLE = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


VARYING = (
    (re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}"), "RUN"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ns|us|ms|s|min|h)\b(?: ago)?|\bjust now\b"), "TIME"),
    (re.compile(r"\b[1-9][\d,]* tokens\b"), "N tokens"),
)
"""What a page shows differs from what is printed in ids of runs, in times, and in tokens of prompts."""


def steady(text):
    """Return what is printed without what depends on the day, the machine, or the wording of prompts."""
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text.strip()


class Page:
    """A Markdown file, by its path in the project."""

    def __init__(self, path):
        self.path = ROOT / path
        self.text = self.path.read_text("utf-8")

    def blocks(self, language):
        """The code blocks in a language, in the order of the page."""
        return [match[2] for match in FENCE.finditer(self.text) if match[1] == language]

    def files(self, language):
        """The blocks that begin with a comment that names a file, by that name."""
        named = [text for text in self.blocks(language) if text.startswith("# ")]
        return {text.splitlines()[0].removeprefix("# "): text for text in named}

    def commands(self):
        """The lines of all blocks for the shell."""
        return [line for text in self.blocks("sh") for line in text.splitlines() if line]

    def sessions(self):
        """The commands of the console blocks, each with what the page says that it prints."""
        return [command for text in self.blocks("console") for command in CONSOLE.findall(text)]

    def run(self, code, names=None):
        """Run a block of Python, in `names` if given; return its names and what it printed."""
        names = {} if names is None else names
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(self.path), "exec"), names)  # noqa: S102 (our own documentation)
        return names, printed.getvalue()

    def links(self):
        """The files that the page links to."""
        return [self.path.parent / link for link in LINK.findall(self.text) if not link.startswith("http")]

    def broken_anchors(self):
        """The links to headings that don't exist, of this page or another."""
        linked = [
            (self.path.parent / file if file else self.path, anchor)
            for file, anchor in ANCHOR.findall(self.text)
        ]
        return [
            anchor for file, anchor in linked if file.suffix == ".md" and anchor not in Page(file).anchors()
        ]

    def anchors(self):
        """The anchors of the headings, as code hosts and the site name them."""
        headings = HEADING.findall(FENCE.sub("", self.text))
        plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
        return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}
