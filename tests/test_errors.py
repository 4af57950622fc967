"""The tree of exceptions, as it is drawn in `redraft.errors`."""

import inspect

from redraft import errors
from redraft.errors import MissingExtraError

CLASSES = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]


def drawn(kind, depth=0):
    """Draw a class and, beneath it, those whose first base it is, in the order of their definition."""
    _, *others = kind.__bases__
    also = f" (also a {', '.join(other.__name__ for other in others)})" if others else ""
    lines = [f"{'  ' * depth}- {kind.__name__}{also}"]
    for child in CLASSES:
        if child.__bases__[0] is kind:
            lines += drawn(child, depth + 1)
    return lines


def test_the_tree_in_the_docstring_is_that_of_the_classes():
    _, tree = inspect.getdoc(errors).split("\n\n")
    assert tree.splitlines() == drawn(errors.RedraftError)


def test_a_missing_extra_is_installed_from_the_index_or_from_a_clone():
    assert str(MissingExtraError("Telemetry", "otel")) == (
        "Telemetry needs an optional part: pip install 'redraft[otel]' (in a clone: pip install '.[otel]')"
    )
