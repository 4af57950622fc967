"""The API reference: a page for each public package, with what its `__all__` lists, from the docstrings."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import cleandoc, getdoc, isclass, isfunction
from pathlib import Path
from typing import Any

import griffe

SOURCE = Path(__file__).parents[1] / "src"
FRONT = "redraft"
PACKAGES = (
    FRONT,
    "redraft.loop",
    "redraft.loop.stop",
    "redraft.lessons",
    "redraft.notes",
    "redraft.workflow",
    "redraft.cycles",
    "redraft.cycles.webhook",
    "redraft.fleet",
    "redraft.evals",
    "redraft.models",
    "redraft.stores",
    "redraft.redact",
    "redraft.retention",
    "redraft.telemetry",
    "redraft.testing",
    "redraft.integrations.langgraph",
    "redraft.integrations.openai_agents",
    "redraft.types",
    "redraft.events",
    "redraft.errors",
    "redraft.protocols",
)

# The guide of a package; the two pages link to each other.
GUIDES = {
    "redraft": "start.md",
    "redraft.loop": "agents.md",
    "redraft.lessons": "memory.md",
    "redraft.notes": "memory.md",
    "redraft.workflow": "workflows.md",
    "redraft.cycles": "cycles.md",
    "redraft.fleet": "fleet.md",
    "redraft.evals": "evaluate.md",
    "redraft.models": "providers.md",
    "redraft.stores": "runs.md",
    "redraft.redact": "data.md",
    "redraft.retention": "data.md",
    "redraft.telemetry": "telemetry.md",
    "redraft.testing": "testing.md",
    "redraft.integrations.langgraph": "frameworks.md",
    "redraft.integrations.openai_agents": "frameworks.md",
}


def links_to_reference(page: str) -> str:
    """Return a paragraph that leads from a guide to its packages in the reference; empty if it has none."""
    links = [f"[`{name}`](reference/{name}.md)" for name, guide in GUIDES.items() if guide == page]
    return f"\nAPI reference: {', '.join(links)}.\n" if links else ""


def reference_page(package: str) -> str:
    """Return the page of a package: its docstring, a table of its names, and a directive for each.

    A name that several packages offer is described once, on the page of its feature, to which the tables of
    the others link.
    """
    rows, directives = [], []
    for name in public_names(package):
        home = _home(package, name)
        page = "" if home == package else f"{home}.md"
        text = docstring(package, name).partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| [`{name}`]({page}#{home}.{name}) | {text} |")
        if home == package:
            directives.append(f"::: {package}.{name}")
    table = "\n".join(["| name | what it is |", "|---|---|", *rows])
    guide = (
        [f"Guide: [{page.removesuffix('.md').capitalize()}](../{page})."]
        if (page := GUIDES.get(package))
        else []
    )
    about = getdoc(import_module(package)) or ""
    return "\n\n".join([f"# {package}", about, *guide, table, *directives, ""])


def public_names(package: str) -> list[str]:
    """Return what a package lists in `__all__`."""
    return sorted(import_module(package).__all__, key=str.lower)


def docstring(package: str, name: str) -> str:
    """Return the docstring of a name of a package; empty if it has none."""
    value = getattr(import_module(package), name)
    if isclass(value) or isfunction(value):
        return cleandoc(value.__doc__ or "")
    # Python does not keep the docstring of a type alias, which stands below it.
    alias = re.compile(rf'^{name}: TypeAlias = [^"]+?\n"""(.+?)"""$', re.MULTILINE | re.DOTALL)
    matches = (alias.search(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py")))
    return next((match[1] for match in matches if match), "")


def _home(package: str, name: str) -> str:
    """Return the package on whose page a name of `package` is described."""
    value = getattr(import_module(package), name)
    features = (feature for feature in PACKAGES[1:] if name in public_names(feature))
    return next((feature for feature in features if getattr(import_module(feature), name) is value), FRONT)


class PublicSignatures(griffe.Extension):
    """Show signatures as users see them: no private bases and calls, and the values of constants."""

    def on_class(self, *, cls: griffe.Class, loader: griffe.GriffeLoader, **_unused: Any) -> None:
        """Drop bases that are private or for typing, and private calls that describe fields, no defaults."""
        cls.bases = [base for base in cls.bases if not str(base).startswith(("_", "Generic", "Protocol"))]
        call = cls.members.get("__call__")
        if call and not call.docstring:
            call.docstring = griffe.Docstring("The call that is described above.", parent=call)
        if "dataclass" not in cls.labels:
            return
        for parameter in cls.parameters:
            if isinstance(parameter.default, griffe.ExprCall) and str(parameter.default).startswith("_"):
                parameter.default = None
            _show_value(parameter, loader)

    def on_function(self, *, func: griffe.Function, loader: griffe.GriffeLoader, **_unused: Any) -> None:
        """Show the value of each default that is the name of a constant."""
        for parameter in func.parameters:
            _show_value(parameter, loader)


def _show_value(parameter: griffe.Parameter, loader: griffe.GriffeLoader) -> None:
    if not isinstance(parameter.default, griffe.ExprName):
        return
    try:
        constant = loader.modules_collection.get_member(parameter.default.canonical_path)
    except KeyError:  # a builtin, or a name of another package
        return
    if constant.is_attribute and not isinstance(constant.value, griffe.ExprCall | None):
        parameter.default = constant.value
