"""ManagedBlock: the part of a file that Redraft writes, between two lines; the rest is somebody else's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from redraft.core.errors import ConfigError

_BEGIN = re.compile(r"^<!-- redraft:lessons begin ([0-9a-f]{16}) [^\n]*-->[ \t]*\r?$", re.MULTILINE)
_END = re.compile(r"^<!-- redraft:lessons end -->(?=[ \t]*\r?$)", re.MULTILINE)
_NOTICE = "made by `redraft lessons export`: edit the lessons, not what stands here"


@dataclass(frozen=True, slots=True)
class ManagedBlock:
    """Hold a file in three parts: what stands before the block, the block's own text, what stands after it.

    `body` is None where the file has no block, and is without the two lines that mark it. `digest` is what
    the first of them says of the text as it was written.
    """

    before: str
    body: str | None
    after: str
    digest: str = ""

    @classmethod
    def find(cls, text: str, file: str) -> ManagedBlock:
        """Find the block of a file; raises `ConfigError` with the line where its marks don't fit together."""
        begins, ends = list(_BEGIN.finditer(text)), list(_END.finditer(text))
        if not begins and not ends:
            return cls(text, None, "")
        if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
            odd = min(begins[1:] + ends[1:] or ends[:1] or begins, key=lambda mark: mark.start())
            line = text.count("\n", 0, odd.start()) + 1
            raise ConfigError(
                f"{file}, line {line}: a block of lessons takes one line that begins it and one below that "
                f"ends it; there are {len(begins)} and {len(ends)}. Delete what is too much, or all of it."
            )
        begin, end = begins[0], ends[0]
        body = text[begin.end() + 1 : end.start()]
        return cls(text[: begin.start()], body, text[end.end() :], begin[1])

    @property
    def is_edited(self) -> bool:
        """Whether somebody changed the block by hand since it was written."""
        return self.body is not None and digest_of(self.body) != self.digest

    def says(self, body: str) -> bool:
        """Say whether the block is the one that this text would make."""
        return self.body is not None and not self.is_edited and _plain(self.body) == _plain(body)

    def with_body(self, body: str) -> str:
        """Return the file with another text in the block, which goes to the end where there was none.

        The rest stays as it is, character by character; the block's lines end as those of the file do.
        """
        marked = (
            f"<!-- redraft:lessons begin {digest_of(body)} ({_NOTICE}) -->\n"
            f"{body}<!-- redraft:lessons end -->"
        )
        is_windows = "\r\n" in self.before + self.after
        marked = marked.replace("\n", "\r\n") if is_windows else marked
        if self.body is not None:
            return f"{self.before}{marked}{self.after}"
        line = "\r\n" if is_windows else "\n"
        gap = "" if not self.before else line if self.before.endswith("\n") else 2 * line
        return f"{self.before}{gap}{marked}{line}"


def digest_of(body: str) -> str:
    """Return what tells whether a block was changed; how its lines end does not matter."""
    return sha256(_plain(body).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _plain(body: str) -> str:
    return body.replace("\r\n", "\n")
