"""Clean texts: what a lesson says, without what must not be kept or shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from redraft.lessons.trust import LONGEST, refused
from redraft.redact.environment import EVERY_CATEGORY, redactor_of_environment
from redraft.redact.redactor import Redactor
from redraft.text.invisible import without_invisible
from redraft.text.middle import without_middle

WITHHELD = "[withheld]"
"""What stands where nothing of a text may be kept. Reflexion Protocol, section 8."""
_GAP = 100  # what the notice of a cut takes


def lesson_redactor() -> Redactor:
    """Return the redactor of lessons: it withholds secrets, personal data and what is internal."""
    return redactor_of_environment(also=EVERY_CATEGORY)


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Make texts fit to be kept in a lesson: `redactor` is that of `lesson_redactor` unless one is given."""

    redactor: Redactor = field(default_factory=lesson_redactor)

    def redacted(self, text: str) -> str:
        """Return a text with secrets withheld, and characters that can't be seen left out."""
        return self.redactor.redact(without_invisible(text)).text.strip()

    def refusal(self, text: str) -> str:
        """Say why a redacted text can't be kept; empty where it can."""
        if why := refused(text):
            return f"it holds {why}" if len(text) <= LONGEST else f"it has {why}"
        return "" if self.redactor.is_clean(text) else "it holds a secret"

    def kept(self, text: str) -> str:
        """Return what may be kept of a text: without the lines that may not, bounded, or `[withheld]`."""
        lines = self.redacted(text).split("\n")
        said = "\n".join(WITHHELD if refused(line[:LONGEST]) else line for line in lines)
        short = without_middle(said, LONGEST - _GAP)
        return WITHHELD if not short or self.refusal(short) else short
