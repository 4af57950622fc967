"""The API reference: every public name is on a page, with a docstring that says what it does."""

import ast
import re

import pytest
from api_reference import PACKAGES, described, docstring, public_names, reference_page

from support.pages import ROOT

SOURCE = ROOT / "src" / "redraft"
NAMES = sorted({f"{package}.{name}" for package in PACKAGES[1:] for name in public_names(package)})
FRONT_ONLY = sorted({f"redraft.{name}" for name in public_names("redraft")})


def exporting_modules():
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        targets = [
            target
            for node in (ast.parse(text).body if "__all__" in text else ())
            if isinstance(node, ast.Assign)
            for one in node.targets
            for target in ast.walk(one)
        ]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            yield ".".join(["redraft", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(
                ".__init__"
            )


def documented_members(path):
    """The methods and properties of a class that its users call, inherited ones included."""
    found = described(path)
    if not found.is_class:
        return []
    return [
        member
        for name, member in found.all_members.items()
        if not name.startswith("_")
        and (member.is_function or (member.is_attribute and "property" in member.labels))
    ]


def test_every_module_that_lists_public_names_has_a_page():
    internal = {"redraft.text.templates"}  # passes on what its neighbour defines
    assert set(exporting_modules()) - internal == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_page_names_everything_that_its_package_offers(package):
    page = reference_page(package)
    assert [name for name in public_names(package) if f"[`{name}`](" not in page] == []


def test_a_name_is_described_once():
    pages = "\n".join(reference_page(package) for package in PACKAGES)
    directives = [path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", pages, re.MULTILINE)]
    offered = {
        (name, described(f"{package}.{name}").path) for package in PACKAGES for name in public_names(package)
    }
    assert sorted(directives) == sorted(name for name, _ in offered)


def test_a_public_name_has_a_docstring_that_says_what_it_is():
    for path in sorted({*NAMES, *FRONT_ONLY}):
        package, _, name = path.rpartition(".")
        first = docstring(package, name).partition("\n\n")[0]
        assert len(first.split()) >= 3, (path, first)
        assert first.endswith((".", ":")), path


def test_the_methods_of_a_public_class_have_docstrings():
    members = [member for path in NAMES for member in documented_members(path)]
    assert [member.path for member in members if not member.docstring] == []


def test_docstrings_do_not_cite_other_documents_for_what_they_promise():
    cited = re.compile(
        r"(?:specification|protocol),? (?:section |[0-9]+\.[0-9])|\bsection [0-9]|Specification",
        re.IGNORECASE,
    )

    def texts(thing):
        if thing.docstring:
            yield thing.path, thing.docstring.value
        for member in thing.members.values():
            if not member.is_alias:
                yield from texts(member)

    found = [path for path, text in texts(described("redraft")) if cited.search(text)]
    assert found == ["redraft.cycles.webhook"]  # Standard Webhooks is a specification
