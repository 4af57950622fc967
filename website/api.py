"""The API reference: a page for each public package, from its docstrings."""

from __future__ import annotations

from importlib import import_module

PACKAGES = (
    "redraft",
    "redraft.lessons",
    "redraft.notes",
    "redraft.cycles",
    "redraft.workflow",
    "redraft.fleet",
    "redraft.redact",
)


def reference_page(package: str) -> str:
    """Return the page of a package, with a directive of mkdocstrings for each public name."""
    module = import_module(package)
    names = getattr(module, "__all__", [])
    directives = "\n\n".join(f"::: {package}.{name}" for name in names)
    return f"# {package}\n\n{module.__doc__}\n\n{directives}\n"
