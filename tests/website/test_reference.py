"""The API reference: every public name is on a page, with a docstring that says what it does."""

import ast
import inspect
import re
from importlib import import_module

from api_reference import PACKAGES, docstring, public_names, reference_page

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


def offered(path):
    """The public name at a dotted path."""
    package, _, name = path.rpartition(".")
    return getattr(import_module(package), name)


def members(path):
    """The docstrings of methods and properties of a class that its users call, inherited ones included."""
    kind = offered(path)
    for name in dir(kind) if inspect.isclass(kind) else ():
        member = inspect.getattr_static(kind, name)
        function = getattr(member, "__func__", getattr(member, "fget", member))
        is_own = inspect.isfunction(function) and function.__module__.startswith("redraft.")
        if is_own and function.__name__ == name and not name.startswith("_"):
            yield f"{path}.{name}", function.__doc__


def test_every_module_that_lists_public_names_has_a_page():
    internal = {"redraft.text.templates"}  # passes on what its neighbour defines
    assert set(exporting_modules()) - internal == set(PACKAGES)


def test_a_page_names_everything_that_its_package_offers():
    for package in PACKAGES:
        page = reference_page(package)
        missing = [name for name in public_names(package) if f"[`{name}`](" not in page]
        assert (package, missing) == (package, [])


def test_a_name_is_described_once():
    pages = "\n".join(reference_page(package) for package in PACKAGES)
    directives = [path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", pages, re.MULTILINE)]
    names = [(package, name) for package in PACKAGES for name in public_names(package)]
    values = {(name, id(offered(f"{package}.{name}"))) for package, name in names}
    assert sorted(directives) == sorted(name for name, _ in values)


def test_a_public_name_has_a_docstring_that_says_what_it_is():
    for path in sorted({*NAMES, *FRONT_ONLY}):
        package, _, name = path.rpartition(".")
        first = docstring(package, name).partition("\n\n")[0]
        assert len(first.split()) >= 3, (path, first)
        assert first.endswith((".", ":")), path


def test_the_methods_of_a_public_class_have_docstrings():
    documented = dict(member for path in NAMES for member in members(path))
    assert len(documented) > 300
    assert [path for path, text in documented.items() if not text] == []


def test_docstrings_do_not_cite_other_documents_for_what_they_promise():
    cited = re.compile(
        r"(?:specification|protocol),? (?:section |[0-9]+\.[0-9])|\bsection [0-9]|Specification",
        re.IGNORECASE,
    )

    texts = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    modules = {name: ast.parse(text) for name, text in texts.items() if cited.search(text)}
    found = [
        name
        for name, module in modules.items()
        if any(cited.search(node.value.value) for node in ast.walk(module) if is_docstring(node))
    ]
    assert found == ["cycles/webhook.py"]  # Standard Webhooks is a specification


def is_docstring(node):
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant and isinstance(node.value.value, str)
