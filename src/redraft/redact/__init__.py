"""Withhold secrets, personal data and internal names from any text.

Import from here: `from redraft.redact import Category, Redactor, redact`.
"""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.redact.kinds import Category as Category
    from redraft.redact.kinds import Kind as Kind
    from redraft.redact.kinds import Redacted as Redacted
    from redraft.redact.redactor import Redactor as Redactor
    from redraft.redact.redactor import redact as redact
    from redraft.redact.redactor import redactor_of_environment as redactor_of_environment

# Every run imports this package for its log; only those who redact should pay for importing the finders.
_PLACES = {
    "kinds": ("Category", "Kind", "Redacted"),
    "redactor": ("Redactor", "redact", "redactor_of_environment"),
}
__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
