"""What must never be written down or shown: found in any text, and withheld.

from redraft.redact import redact, Redactor, Category
"""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.redact.environment import redact as redact
    from redraft.redact.environment import redactor_of_environment as redactor_of_environment
    from redraft.redact.kinds import Category as Category
    from redraft.redact.kinds import Kind as Kind
    from redraft.redact.redacted import Redacted as Redacted
    from redraft.redact.redactor import Redactor as Redactor

# Every run imports this package for its log; the finders cost milliseconds that only who redacts shall pay.
_PLACES = {
    "environment": ("redact", "redactor_of_environment"),
    "kinds": ("Category", "Kind"),
    "redacted": ("Redacted",),
    "redactor": ("Redactor",),
}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
