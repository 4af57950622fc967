"""What changed in a work tree, whatever its files are encoded in and git is configured for."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from redraft.errors import ConfigError
from redraft.integrations.git import WorkTree, project_in_work_tree
from support.coding_agents import git, repository

BEFORE, AFTER = "x = 1\n", "x = 1\nprint(2)\n"
WITH_LETTERS = {
    "größe": "utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be latin-1 cp1252",
    "これは価格です": "shift_jis euc_jp",
    "计算价格的注释": "gbk gb18030",
    "計算價格的註釋": "big5",
    "가격을 계산합니다": "euc_kr",
    "считает цену": "cp1251 koi8_r",
}
BY_ASCII = {"größe": "cp850 mac_roman", "価格": "iso2022_jp", "价格": "hz", "ę": "iso8859-2"}
"""Encodings that only a declaration tells; what is ASCII is read all the same."""
ENCODINGS = [
    (encoding, word, is_exact)
    for words, is_exact in ((WITH_LETTERS, True), (BY_ASCII, False))
    for word, encodings in words.items()
    for encoding in encodings.split()
]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-02T00:00:00Z")
    return WorkTree(repository(tmp_path))


def write(tree, name, data):
    (tree.folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def commit(tree):
    git(tree.folder, "add", "--all")
    git(tree.folder, "commit", "--quiet", "--message=x")


@pytest.mark.parametrize("state", ["new", "changed", "staged", "staged new"])
def test_a_file_in_any_encoding_is_read(tree, state):
    for encoding, word, _ in ENCODINGS:
        write(tree, f"{encoding}.py", f"# {word}\n".encode(encoding))
    if state in {"changed", "staged"}:
        commit(tree)
    for encoding, word, _ in ENCODINGS:
        write(tree, f"{encoding}.py", f"# {word}\nprint('{word}')\n".encode(encoding))
    if state.startswith("staged"):
        git(tree.folder, "add", "--all")
    changes = tree.staged_diff() if state.startswith("staged") else tree.diff()
    files = (tree.staged_files() if state.startswith("staged") else tree.files()).texts
    sections = dict(part.split("\n", 1) for part in changes.texts[""].split("diff --git ") if part)
    for encoding, word, is_exact in ENCODINGS:
        section = sections[f"a/{encoding}.py b/{encoding}.py"]
        line = f"print('{word}')" if is_exact else "print("
        assert f"\n+{line}" in section
        assert line in files[f"{encoding}.py"]
        assert ("\n+# " in section) is (state in {"new", "staged new"}), section
        has_mark = encoding in {"utf-8", "utf-8-sig", "utf-16", "utf-32", "iso2022_jp", "hz"}
        named = f"'{encoding}.py' is not UTF-8 and declares no encoding" in "\n".join(changes.remarks)
        assert named is not has_mark


@pytest.mark.parametrize(
    "first",
    [
        "# -*- coding: cp850 -*-",
        "# vim: set fileencoding=mac_roman :",
        '<?xml version="1.0" encoding="iso-8859-2"?>',
        '<meta charset="iso2022_jp">',
    ],
)
def test_a_declared_encoding_is_used(tree, first):
    encoding = next(one for one in ("cp850", "mac_roman", "iso-8859-2", "iso2022_jp") if one in first)
    word = {"iso-8859-2": "zażółć", "iso2022_jp": "価格"}.get(encoding, "größe")
    write(tree, "a.txt", f"{first}\n{word}\n".encode(encoding))
    assert (f"\n+{word}\n" in tree.diff().texts[""], tree.diff().remarks) == (encoding != "iso2022_jp", ())


ATTRIBUTES = [
    "-diff",
    "binary",
    "-text",
    "text eol=crlf",
    "text eol=lf",
    "ident",
    "filter=hiding",
    "diff=custom",
    "diff=converted",
    "diff=binary",
    "working-tree-encoding=UTF-16",
    "-diff filter=hiding",
    "hidden",
    "export-ignore linguist-generated merge=ours",
]


@pytest.mark.parametrize("place", [".gitattributes", ".git/info/attributes"])
def test_no_attribute_hides_a_change(tree, place):
    for key, value in {
        "filter.hiding.clean": "sed /print/d",
        "filter.hiding.smudge": "cat",
        "diff.custom.command": "true",
        "diff.converted.textconv": "true",
        "diff.binary.binary": "true",
    }.items():
        git(tree.folder, "config", key, value)
    for number in range(len(ATTRIBUTES)):
        write(tree, f"old{number}.py", BEFORE)
    commit(tree)
    lines = [f"{name}{number}.py {text}" for number, text in enumerate(ATTRIBUTES) for name in ("old", "new")]
    (tree.folder / place).parent.mkdir(exist_ok=True)
    write(tree, place, "[attr]hidden -diff\n" + "\n".join(lines))
    for number, attributes in enumerate(ATTRIBUTES):
        encoding = "utf-16" if "UTF-16" in attributes else "utf-8"
        for name in ("old", "new"):
            write(tree, f"{name}{number}.py", AFTER.encode(encoding))
    # What a filter takes away is no change for git, and would not be committed.
    hidden = {number for number, attributes in enumerate(ATTRIBUTES) if "filter" in attributes}
    shown = {f"{name}{number}.py" for number in range(len(ATTRIBUTES)) for name in ("old", "new")}
    shown -= {f"old{number}.py" for number in hidden}
    check_shown(tree.diff(), tree.files(), shown)
    git(tree.folder, "add", "--all")
    shown -= {f"new{number}.py" for number in hidden}
    check_shown(tree.staged_diff(), tree.staged_files(), shown)


def check_shown(diff, files, names):
    """Check that these files have a second line, which is new in a file that was there before."""
    sections = diff.texts[""].split("diff --git ")
    shown = {section.partition(" b/")[2].partition("\n")[0]: section for section in sections}
    assert {name for name, section in shown.items() if "\n+print(2)\n" in section} == names
    assert not any("\n+x = 1\n" in shown[name] for name in names if name.startswith("old"))
    assert {name for name, text in files.texts.items() if text == AFTER} == names


def test_a_filter_that_stores_something_else_hides_no_staged_change(tree):
    """As Git LFS does, which commits a pointer."""
    git(tree.folder, "config", "filter.far.clean", "base64")
    git(tree.folder, "config", "filter.far.smudge", "base64 --decode")
    write(tree, ".gitattributes", "*.py filter=far\n")
    write(tree, "a.py", BEFORE)
    commit(tree)
    write(tree, "a.py", AFTER)
    assert tree.diff().texts[""].endswith("@@ -1 +1,2 @@\n x = 1\n+print(2)\n")
    git(tree.folder, "add", "--all")
    assert tree.staged_diff().texts[""].endswith("@@ -1 +1,2 @@\n x = 1\n+print(2)\n")
    git(tree.folder, "config", "filter.far.smudge", "false")
    assert "+eCA9" in tree.staged_diff().texts[""]  # what is stored, if it cannot be restored


SETTINGS = {
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "color.ui": "always",
    "color.diff": "always",
    "core.quotePath": "true",
    "core.autocrlf": "input",
    "core.safecrlf": "true",
    "core.fsmonitor": "true",
    "diff.external": "true",
    "diff.renames": "copies",
    "diff.orderFile": "order",
    "diff.context": "0",
    "diff.interHunkContext": "9",
    "diff.ignoreSubmodules": "all",
    "diff.submodule": "log",
    "diff.suppressBlankEmpty": "true",
    "diff.wsErrorHighlight": "all",
    "diff.relative": "false",
    "diff.colorMoved": "zebra",
    "column.ui": "always",
}


def test_no_setting_of_git_changes_the_diff(tree, monkeypatch):
    write(tree, "ümläut name.py", f"{BEFORE}\n\ny = 2\n")
    write(tree, "old.py", AFTER)
    commit(tree)
    write(tree, "ümläut name.py", f"{AFTER}\n\ny = 2\n")
    (tree.folder / "old.py").rename(tree.folder / "moved.py")
    plain = tree.diff()
    assert plain.texts[""].count("\n+print(2)\n") == 2
    for key, value in SETTINGS.items():
        git(tree.folder, "config", key, value)
    for name in ("GIT_EXTERNAL_DIFF", "GIT_LITERAL_PATHSPECS", "GIT_ICASE_PATHSPECS", "GIT_DIFF_OPTS"):
        monkeypatch.setenv(name, "1")
    assert tree.diff() == plain


def test_git_gets_the_variables_that_it_needs_to_start(tree, tmp_path_factory, monkeypatch):
    program = tmp_path_factory.mktemp("bin") / "git"
    program.write_text(f'#!/bin/sh\n[ "$LIBRARIES" ] && exec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("LIBRARIES", "here")
    write(tree, "prices.py", AFTER)
    assert "\n+print(2)\n" in tree.diff().texts[""]


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_no_mark_in_the_index_hides_a_change(tree, flag):
    write(tree, "same.py", BEFORE)
    commit(tree)
    git(tree.folder, "update-index", flag, "prices.py", "same.py")
    assert tree.diff().texts == {}
    write(tree, "prices.py", AFTER)
    assert "\n+print(2)\n" in tree.diff().texts[""]
    assert tree.files().texts == {"prices.py": AFTER}


@pytest.mark.parametrize("place", [".gitignore", ".git/info/exclude"])
def test_an_ignored_file_is_judged_once_it_is_added(tree, place):
    (tree.folder / place).parent.mkdir(exist_ok=True)
    baseline = tree.baseline()
    write(tree, place, "hidden.py\n")
    write(tree, "hidden.py", AFTER)
    assert "hidden.py" not in tree.files(baseline).texts
    git(tree.folder, "add", "--force", "hidden.py")
    assert tree.files(baseline).texts["hidden.py"] == tree.staged_files().texts["hidden.py"] == AFTER
    commit(tree)
    assert tree.files(baseline).texts["hidden.py"] == AFTER


def test_a_replaced_commit_hides_no_change(tree):
    write(tree, "prices.py", AFTER)
    git(tree.folder, "add", ".")
    staged = git(tree.folder, "write-tree").strip()
    git(tree.folder, "replace", "HEAD", git(tree.folder, "commit-tree", staged, "-m", "x").strip())
    assert "\n+print(2)\n" in tree.diff().texts[""]


def amend(folder):
    git(folder, "commit", "--quiet", "--amend", "--message=amended")


def begin_history(folder):
    git(folder, "checkout", "--quiet", "--orphan", "new")
    git(folder, "commit", "--quiet", "--message=x")


def commit_elsewhere(folder):
    git(folder, "checkout", "--quiet", "other")
    git(folder, "commit", "--quiet", "--message=x")


def undo(folder):
    git(folder, "reset", "--quiet", "--soft", "HEAD~1")


@pytest.mark.parametrize("rewrite", [amend, begin_history, commit_elsewhere, undo])
def test_a_change_is_judged_however_it_is_committed(tree, rewrite, monkeypatch):
    git(tree.folder, "checkout", "--quiet", "-b", "other")
    write(tree, "other.py", "print('on the other branch')\n")
    commit(tree)
    git(tree.folder, "checkout", "--quiet", "main")
    write(tree, "earlier.py", "print('before the session')\n")
    commit(tree)
    begun = replace(tree.baseline(), began=1_780_000_000)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-06-01T00:00:00Z")
    write(tree, "new.py", AFTER)
    git(tree.folder, "add", "--all")
    rewrite(tree.folder)
    assert tree.files(begun).texts == {"new.py": AFTER}


def test_what_another_branch_has_is_not_the_agents(tree):
    git(tree.folder, "checkout", "--quiet", "-b", "other")
    write(tree, "other.py", AFTER)
    commit(tree)
    git(tree.folder, "checkout", "--quiet", "main")
    write(tree, "earlier.py", AFTER)
    commit(tree)
    begun = replace(tree.baseline(), began=1_780_000_000)
    for name in ("other", "main~1", "main"):
        git(tree.folder, "checkout", "--quiet", "--detach", name)
        assert tree.files(begun).texts == {}


NAMES = [
    "with space.py",
    "größe 価格.py",
    "a\nprint(3).py",
    'tab\tand "quotes" and \\ .py',
    ":(exclude)x.py",
    "--output=x.py",
    "*[a-z]?.py",
    os.fsdecode(b"latin-\xfc.py"),
    " .py",
]


@pytest.mark.parametrize("state", ["new", "changed", "staged"])
def test_a_file_of_any_name_is_read(tree, state):
    for name in NAMES:
        write(tree, name, BEFORE)
    if state != "new":
        commit(tree)
    for name in NAMES:
        write(tree, name, AFTER)
    if state == "staged":
        git(tree.folder, "add", "--all")
    changes = tree.staged_diff() if state == "staged" else tree.diff()
    files = tree.staged_files() if state == "staged" else tree.files()
    lines = changes.texts[""].splitlines()
    assert lines.count("+print(2)") == len(NAMES)
    assert not any("print(3)" in line for line in lines if not line.startswith(("diff", "---", "+++")))
    assert list(files.texts.values()) == [AFTER] * len(NAMES)
    "".join(files.texts).encode()  # the names can be stored


def test_what_cannot_be_judged_is_named(tree, tmp_path_factory):
    other = repository(tmp_path_factory.mktemp("other"))
    allowed = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "lib"]
    git(tree.folder, *allowed)
    git(tree.folder, "config", "submodule.lib.ignore", "all")
    commit(tree)
    (tree.folder / "lib" / "prices.py").write_text(AFTER, "utf-8")
    write(tree, "picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)))
    write(tree, "hidden.py", b"print(2)\0\n" + b"\0" * 9)
    os.mkfifo(tree.folder / "pipe")
    git(tree.folder, "clone", "--quiet", str(other), "clone")
    (tree.folder / "link").symlink_to("print(4)")
    write(tree, "one zero.py", AFTER * 20 + "# \0\nprint(5)\n")
    changes = tree.diff()
    assert sorted(changes.remarks) == [
        "'clone/' is a repository of its own, whose files are not judged",
        "'hidden.py' is not text, so it was not judged",
        "'lib' is a repository of its own, whose files are not judged",
        "'picture.png' is not text, so it was not judged",
    ]
    assert "new file mode 120000" in changes.texts[""]
    assert "\n+print(4)\n" in changes.texts[""]
    assert "\n+print(5)\n" in changes.texts[""]
    git(tree.folder, "rm", "--quiet", "--force", "lib")
    assert "\n-Subproject commit " in tree.staged_diff().texts[""]


def test_a_file_that_is_too_long_is_an_error_only_if_it_is_text(tree, monkeypatch):
    monkeypatch.setattr("redraft.integrations.git.MOST_BYTES", 100)
    write(tree, "data.bin", bytes(range(256)))
    assert tree.diff().remarks == ("'data.bin' is not text, so it was not judged",)
    write(tree, "long.py", "x = 1\n" * 50)
    with pytest.raises(Exception, match=r"'long.py' has more than 100 bytes: set `paths`"):
        tree.diff()


def test_line_ends(tree):
    for name in ("windows.py", "mac.py"):
        write(tree, name, BEFORE)
    commit(tree)
    write(tree, "windows.py", AFTER.replace("\n", "\r\n"))
    write(tree, "mac.py", AFTER.replace("\n", "\r"))
    write(tree, "new.py", AFTER.replace("\n", "\r"))
    assert tree.diff().texts[""].count("\n+print(2)") == 3


def test_an_id_that_git_has_written_into_a_file_is_no_change(tree):
    write(tree, ".gitattributes", "*.py ident\n")
    write(tree, "id.py", f"# $Id$\n{BEFORE}")
    commit(tree)
    (tree.folder / "id.py").unlink()
    git(tree.folder, "checkout", "id.py")
    with (tree.folder / "id.py").open("a") as file:
        file.write("print(2)\n")
    assert "# $Id: " in (tree.folder / "id.py").read_text()
    changed = [line for line in tree.diff().texts[""].splitlines() if line.startswith(("+", "-"))]
    assert changed == ["--- a/id.py", "+++ b/id.py", "+print(2)"]


def test_before_the_first_commit_and_in_a_subfolder(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "sub").mkdir()
    for name in ("a.py", "sub/b.py", "sub/c.py"):
        (tmp_path / name).write_bytes(AFTER.encode("utf-16"))
    git(tmp_path, "add", "a.py", "sub/b.py")
    tree = WorkTree(tmp_path / "sub")
    assert sorted(tree.files().texts) == ["b.py", "c.py"]
    assert tree.staged_files().texts == {"b.py": AFTER}
    assert tree.staged_diff().texts[""].count("+print(2)") == 1


@pytest.mark.parametrize("damage", ["missing", "no object", "cut off"])
def test_a_staged_file_whose_content_is_lost_hides_no_other(tree, damage):
    names = ["a.py", "b.py", "c.py"]
    for name in names:
        write(tree, name, f"# {name}\n{AFTER}")
    git(tree.folder, "add", *names)
    blob = git(tree.folder, "rev-parse", ":b.py").strip()
    path = tree.folder / ".git" / "objects" / blob[:2] / blob[2:]
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(b"junk" if damage == "no object" else content[:-5])
    for changes in (tree.staged_files(), tree.staged_diff()):
        text = "".join([*changes.texts, *changes.texts.values()])
        lost = [name for name in names if f"# {name}" not in text]
        assert lost == (names[1:] if damage == "cut off" else ["b.py"])  # git stops at such an object
        assert [remark.split("'")[1] for remark in changes.remarks] == lost
        assert (
            f"can't be read, so it was not judged: git did not read its content, the blob {blob}"
            in (changes.remarks[0])
        )


@pytest.mark.parametrize("place", ["inside", "outside", "nowhere"])
def test_a_folder_that_became_a_link_is_shown_as_deleted(tree, place, tmp_path_factory):
    target = tmp_path_factory.mktemp("copy") if place == "outside" else tree.folder / place
    for folder in (tree.folder / "z", *([] if place == "nowhere" else [target])):
        folder.mkdir(exist_ok=True)
        (folder / "a.py").write_bytes(b"a\r\n")
    commit(tree)
    (tree.folder / "z" / "a.py").unlink()
    (tree.folder / "z").rmdir()
    (tree.folder / "z").symlink_to(target)
    text = tree.diff().texts[""]
    assert "new file mode 120000" in text
    assert "\n--- a/z/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n" in text
    assert place == "nowhere" or (target / "a.py").read_bytes() == b"a\r\n"


def test_a_large_file_that_was_replaced_or_deleted(tree, monkeypatch):
    monkeypatch.setattr("redraft.integrations.git.MOST_BYTES", 100)
    for name in ("b.bin", "c.bin"):
        write(tree, name, bytes(range(256)))
    write(tree, "d.py", AFTER)
    commit(tree)
    for name in ("b.bin", "d.py"):
        (tree.folder / name).unlink()
    write(tree, "c.bin", "text\n")
    text = tree.diff().texts[""]
    assert "Binary files a/b.bin and /dev/null differ" in text
    assert "\n-print(2)\n" in text
    assert "\n+text\n" in text
    write(tree, "d.py", "x" * 200)
    commit(tree)
    (tree.folder / "d.py").unlink()
    with pytest.raises(ConfigError, match=r"^The file 'd\.py' has more than 100 bytes"):
        tree.diff()


def test_deleted_files_are_shown(tree):
    write(tree, "gone.bin", bytes(range(256)))
    write(tree, "gone.py", AFTER)
    commit(tree)
    for name in ("gone.bin", "gone.py"):
        (tree.folder / name).unlink()
    changes = tree.diff()
    assert "\n-print(2)\n" in changes.texts[""]
    assert "Binary files a/gone.bin and /dev/null differ" in changes.texts[""]
    assert (changes.remarks, tree.files().texts) == ((), {})
    subprocess.run(["git", "add", "--all"], cwd=tree.folder, check=True)
    assert tree.staged_diff() == changes
    assert Path(tree.folder / "prices.py").exists()


def test_the_project_itself_is_recognized_without_git(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert project_in_work_tree(tmp_path, tmp_path) == tmp_path
