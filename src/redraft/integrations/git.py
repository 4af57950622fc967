"""Changes in a git work tree since a session began, as texts to judge."""

from __future__ import annotations

import codecs
import os
import re
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, NamedTuple, cast

from redraft.errors import ConfigError

MOST_CHARACTERS = 1_000_000
"""Characters of a diff or a file to judge."""
MOST_BYTES = 4 * MOST_CHARACTERS
"""A larger file is not read: no encoding needs more bytes for a character."""
MOST_FILES = 1_000
MOST_HASHED = 10_000_000
"""Bytes; a larger file counts as changed when its size or modification time differs."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The state of a work tree when a session began."""

    commit: str
    folder: str
    """The folder of the work tree."""
    changed: dict[str, str] = field(default_factory=dict[str, str])
    """The hashes of the files that had changed already, by name."""
    began: int = 0
    """Unix time of the beginning; 0 if no session began."""


@dataclass(frozen=True, slots=True)
class ChangedTexts:
    """Changes, as texts to judge."""

    texts: dict[str, str]
    """The texts by file name; a diff has the name ''."""
    remarks: tuple[str, ...] = ()
    """Notes for the person: files that are not judged, and encodings that are a guess."""


@dataclass(frozen=True, slots=True)
class WorkTree:
    """The files of a folder in a git repository, without ignored files.

    Texts are read from the files' bytes, whatever `.gitattributes` says about them. File names that are not
    UTF-8 have replacement characters in texts and messages.
    """

    folder: Path
    paths: Sequence[str] = ()
    """Git's pathspecs, relative to the folder."""
    excluded: Sequence[str] = ()
    """Files and folders to leave out."""

    def baseline(self) -> Baseline:
        """The current state, to compare with later."""
        commit = self.commit()
        changed = {name: self._signature(name) for name in self._changed(commit)}
        return Baseline(commit, str(self.folder), changed, int(time.time()))

    def diff(self, since: Baseline | None = None) -> ChangedTexts:
        """The changes as a unified diff, new files included.

        Files that were changed before the baseline, and not since, are left out. Raises `ConfigError` for a
        diff that is too long to judge.
        """
        commit, names = self._since(since)
        return self._diff(_Comparison(self, commit, names))

    def files(self, since: Baseline | None = None) -> ChangedTexts:
        """The changed files, each as a whole, without deleted files."""
        commit, names = self._since(since)
        return _Comparison(self, commit, names).files()

    def staged_diff(self) -> ChangedTexts:
        """The changes of the next commit, as a unified diff."""
        return self._diff(self._staged())

    def staged_files(self) -> ChangedTexts:
        """The files that the next commit would add or change, as they would be committed."""
        return self._staged().files()

    def _diff(self, comparison: _Comparison) -> ChangedTexts:
        text = _check_length(comparison.diff(), "The diff")
        return ChangedTexts({"": text} if text.strip() else {}, tuple(comparison.remarks))

    def _staged(self) -> _Comparison:
        output = self.git("diff", "--cached", "--name-only", "-z", *_NAMES, "--", *self._pathspecs())
        return _Comparison(self, self.commit(), _check_count(_names(output)), is_staged=True)

    # --- changes and commits --------------------------------------------------------------------------------

    def _since(self, baseline: Baseline | None) -> tuple[str, list[str]]:
        """The commit to compare with, and the names of the files that changed."""
        commit, before = self.commit(), dict[str, str]()
        if baseline is None or baseline.folder != str(self.folder):
            baseline = self._fork_point()
        if baseline is None:
            names = self._changed(commit)
        elif self._leads_to(baseline.commit, commit):
            commit, before = baseline.commit, baseline.changed
            names = self._changed(commit)
        else:  # history was rewritten, such as by `git commit --amend`, or another branch checked out
            changed, before = self._changed(baseline.commit), baseline.changed
            commit = self._last_before(baseline, commit)
            names = [name for name in self._changed(commit) if name in changed]
        return commit, [name for name in names if name not in before or before[name] != self._signature(name)]

    def _last_before(self, baseline: Baseline, commit: str) -> str:
        """The last commit before the session in the history of a commit; without any, the baseline's."""
        last = self.run("rev-list", "--first-parent", "-1", f"--min-age={baseline.began}", commit)
        return last.stdout.decode().strip() or (baseline.commit if baseline.began else commit)

    def _fork_point(self) -> Baseline | None:
        """The commit at which a linked work tree left its main checkout; None for other work trees."""
        location = locate(self.folder)
        main = main_checkout(location)
        if main is None or location == locate(main):
            return None
        head = self.run("merge-base", "HEAD", WorkTree(main).commit())
        return None if head.returncode else Baseline(head.stdout.decode().strip(), str(self.folder))

    def commit(self) -> str:
        """The commit that is checked out; git's empty tree before the first commit."""
        head = self.run("rev-parse", "--verify", "--quiet", "HEAD")
        if head.returncode == 0:
            return head.stdout.decode().strip()
        if head.returncode == 1:
            return self.git("hash-object", "-t", "tree", "--stdin").strip()
        raise ConfigError(f"{str(self.folder)!r} is not in a git repository.")

    def _leads_to(self, earlier: str, commit: str) -> bool:
        """Whether an earlier commit is in the history of another."""
        return earlier == commit or not self.run("merge-base", "--is-ancestor", earlier, commit).returncode

    def _changed(self, commit: str) -> list[str]:
        tracked = self.git("diff", "--name-only", "-z", *_NAMES, commit, "--", *self._pathspecs())
        untracked = self.git("ls-files", "--others", "--exclude-standard", "-z", "--", *self._pathspecs())
        return _check_count([*dict.fromkeys((*_names(tracked), *_names(untracked), *self._hidden()))])

    def _hidden(self) -> list[str]:
        """The changed files that git reports as unchanged, because of a mark in its index."""
        entries = _names(self.git("ls-files", "-v", "--stage", "-z", "--", *self._pathspecs()))
        hidden: dict[str, str] = {}
        for entry in entries:
            fields, _, name = entry.partition("\t")
            tag, _, blob, _ = fields.split()
            is_marked = tag.islower() or tag == "S"  # as unchanged, or as not checked out
            if is_marked and (path := self.folder / name).is_file() and not path.is_symlink():
                hidden[name] = blob
        hashes = self.git("hash-object", "--", *_check_count(list(hidden))).split() if hidden else []
        return [name for name, now in zip(hidden, hashes, strict=True) if now != hidden[name]]

    def _pathspecs(self) -> list[str]:
        return [*(self.paths or ["."]), *(f":(exclude){path}" for path in self.excluded)]

    def git(self, *words: str) -> str:
        """Run git in the folder and return its output; bytes that are not UTF-8 become surrogates."""
        return _output(self.run(*words), words[0])

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run git in the folder with some bytes on stdin; does not raise if git fails."""
        return _run(self.folder, _environment(), (*_PLAIN_SETTINGS, *words), stdin)

    def _signature(self, name: str) -> str:
        path = self.folder / name
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_HASHED:
                return f"{status.st_size}:{status.st_mtime_ns}"
            with path.open("rb") as file:
                return file_digest(file, "sha256").hexdigest()
        except OSError:  # deleted, or not readable: the same as long as it stays so
            return ""


class _Comparison:
    """Some files of a work tree, or of its index, compared with a commit."""

    def __init__(self, tree: WorkTree, commit: str, names: Sequence[str], *, is_staged: bool = False) -> None:
        self.tree, self.commit, self.names, self.is_staged = tree, commit, names, is_staged
        self.remarks: list[str] = []
        self._attributes = self._read_attributes()
        literal = [f":(literal){name}" for name in names]
        self._index = self._entries(1, "ls-files", "--stage", "-z", "--", *literal) if names else {}
        self._blobs = self._read_blobs(self._index) if is_staged else {}

    def files(self) -> ChangedTexts:
        """The texts of all text files, by name."""
        texts = {_printable(name): text.text for name in self.names if (text := self._new(name)) is not None}
        return ChangedTexts({name: text for name, text in texts.items() if text}, tuple(self.remarks))

    def diff(self) -> str:
        """The unified diff of all text files.

        Git compares copies of the texts, in UTF-8 and with line feeds, in a folder where no settings apply.
        """
        if not self.names:
            return ""
        paths = [f"./{name}" for name in self.names]
        old = self._entries(2, "ls-tree", "-r", "-z", self.commit, "--", *paths)
        self._blobs |= self._read_blobs(old)
        with TemporaryDirectory(prefix="redraft-diff-") as folder:
            for side in ("a", "b"):
                Path(folder, side).mkdir()
            for name in self.names:
                is_deleted = not self._exists(name)
                new = None if is_deleted else self._new(name)
                if name in old and (is_deleted or new is not None):
                    _place(Path(folder, "a", name), self._old(name, old[name], is_deleted), old[name].mode)
                if new is not None and (new.text or name in old):
                    _place(Path(folder, "b", name), _comparable(new.text), self._mode(name))
            process = _run(Path(folder), _environment_without_settings(folder), _COMPARE)
            output = _output(process, "diff", codes=(0, 1))
        return _ONE_SIDED.sub(r"\1\2a/\3 \2b/\3", _printable(output))

    def _old(self, name: str, entry: _Entry, is_deleted: bool) -> str:
        """A text as it is in the commit. A NUL makes git report a binary file as deleted."""
        if entry.mode == _SUBMODULE:
            return f"Subproject commit {entry.blob}\n"
        try:
            text = decoded(_check_size(self._stored(name, entry, None if is_deleted else self.commit), name))
        except OSError:
            text = None
        if text is None:
            return "\0" if is_deleted else ""
        return _comparable(text.text)

    def _new(self, name: str) -> Decoded | None:
        """Read a text as it is now; None, with a remark, for a file that can't be judged."""
        quoted_name = repr(_printable(name))
        if self.is_staged and self._is_submodule(name):
            return self._remark(f"{quoted_name} is a submodule, whose files are not judged")
        try:
            data = self._staged_bytes(name) if self.is_staged else self._bytes(name)
        except IsADirectoryError:
            if not (self.tree.folder / name / ".git").is_file() or self._is_submodule(name):
                return self._remark(f"{quoted_name} is a repository of its own, whose files are not judged")
            return None  # a linked work tree, which is judged where an agent works in it
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._remark(f"{quoted_name} can't be read, so it was not judged: {error.strerror}")
        attributes = self._attributes.get(name, {})
        text = decoded(data, "" if self.is_staged else attributes.get("working-tree-encoding", ""))
        if text is None:
            return self._remark(f"{quoted_name} is not text, so it was not judged")
        if text.is_guess:
            self._remark(
                f"{quoted_name} is not UTF-8 and declares no encoding; it was read as {text.encoding}"
            )
        _check_length(text.text, f"The file {quoted_name}")
        return replace(text, text=_IDENT.sub("$Id$", text.text)) if "ident" in attributes else text

    def _remark(self, text: str) -> None:
        self.remarks.append(text)

    # --- reading files -------------------------------------------------------------------------------------

    def _bytes(self, name: str) -> bytes:
        path = self.tree.folder / name
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return os.fsencode(path.readlink())
        if stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                return _check_size(file.read(MOST_BYTES + 1), name)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError
        raise OSError(0, "it is not a regular file")

    def _staged_bytes(self, name: str) -> bytes:
        """The bytes that would be committed; if a filter changes them, as they would be checked out."""
        if name not in self._index:
            raise FileNotFoundError(name)
        return _check_size(self._stored(name, self._index[name], ""), name)

    def _stored(self, name: str, entry: _Entry, commit: str | None) -> bytes:
        """The bytes in the commit, or in the index (""), through their filter; with None, as they are."""
        if commit is not None and "filter" in self._attributes.get(name, {}):
            filtered = self.tree.run("cat-file", "--filters", f"{commit}:./{name}")
            if filtered.returncode == 0:
                return filtered.stdout
        if entry.blob not in self._blobs:
            raise OSError(0, f"git did not read its content, the blob {entry.blob}")
        return self._blobs[entry.blob]

    def _exists(self, name: str) -> bool:
        if self.is_staged:
            return name in self._index
        beyond_link = any((self.tree.folder / parent).is_symlink() for parent in Path(name).parents[:-1])
        return not beyond_link and os.path.lexists(self.tree.folder / name)

    def _mode(self, name: str) -> str:
        """Git's mode of a file as it is now."""
        if self.is_staged:
            return self._index[name].mode
        mode = (self.tree.folder / name).lstat().st_mode
        if stat.S_ISLNK(mode):
            return _LINK
        return _PROGRAM if mode & stat.S_IXUSR else ""

    def _is_submodule(self, name: str) -> bool:
        return name in self._index and self._index[name].mode == _SUBMODULE

    def _entries(self, column: int, *words: str) -> dict[str, _Entry]:
        """The files that a command of git lists, by name; the blob is in this column."""
        lines = (line.partition("\t") for line in _names(self.tree.git(*words)))
        fields = {name: before.split() for before, _, name in lines}
        return {name: _Entry(values[0], values[column]) for name, values in fields.items()}

    def _read_blobs(self, entries: Mapping[str, _Entry]) -> dict[str, bytes]:
        """The bytes of blobs, by id, without those that git did not read; of large blobs, the beginning."""
        blobs: dict[str, bytes] = {}
        wanted = list(dict.fromkeys(entry.blob for entry in entries.values() if entry.mode != _SUBMODULE))
        with TemporaryFile() as ids:
            ids.write("".join(f"{blob}\n" for blob in wanted).encode())
            ids.seek(0)
            with subprocess.Popen(  # noqa: S603 (git, with arguments of our own)
                ["git", *_PLAIN_SETTINGS, "cat-file", "--batch"],  # noqa: S607 (the person's git, wherever it is)
                cwd=self.tree.folder,
                env=_environment(),
                stdin=ids,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as process:
                output = cast("IO[bytes]", process.stdout)
                for blob in wanted:
                    header = output.readline().split()
                    if not header:  # git has failed at an earlier file
                        break
                    if len(header) != 3:  # noqa: PLR2004 (the id, the type and the size)
                        continue
                    size = int(header[2])
                    data = output.read(min(size, MOST_BYTES + 1))
                    left = size + 1 - len(data)
                    while left and (skipped := output.read(min(left, MOST_BYTES))):
                        left -= len(skipped)
                    if not left:
                        blobs[blob] = data
        return blobs

    def _read_attributes(self) -> dict[str, dict[str, str]]:
        """The attributes that change how git reads a file, by file name."""
        names = "".join(f"{name}\0" for name in self.names).encode(errors="surrogateescape")
        if not names:
            return {}
        output = self.tree.run("check-attr", "-z", "--stdin", *_ATTRIBUTES, stdin=names)
        fields = output.stdout.decode(errors="surrogateescape").split("\0")
        attributes: dict[str, dict[str, str]] = {}
        for name, attribute, value in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
            if value not in {"unspecified", "unset"}:
                attributes.setdefault(name, {})[attribute] = value
        return attributes


# --- decoding ----------------------------------------------------------------------------------------------

# By a byte order mark, by a declared encoding, or else by rules of thumb.

_MARKS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARATION = re.compile(r"(?:coding|charset)[:=]\s*[\"']?([A-Za-z][-\w.:]+)")
"""As in Python (PEP 263), editors, XML, HTML, CSS and e-mail."""
_DECLARED_WITHIN = 1_024
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROLS = 50
"""A text has at most one control character in so many bytes; a zero byte must not hide a program."""
_EAST_ASIAN = (
    # Characters that most of the text consists of if the encoding is the right one. Japanese comes before
    # Chinese, and the stricter encodings of a language before those that accept almost any bytes.
    ("euc_jp", re.compile(r"[\u3041-\u30ff]"), 0.25),
    ("cp932", re.compile(r"[\u3041-\u30ff]"), 0.25),
    ("euc_kr", re.compile(r"[\uac00-\ud7a3]"), 0.8),
)
_CHINESE = (
    # The pairs of bytes of frequent characters: level 1 of GB 2312 and of Big5, with punctuation.
    ("gb18030", re.compile(rb"[\xb0-\xd7\xa1\xa3][\xa1-\xfe]")),
    ("big5", re.compile(rb"[\xa1-\xc6][\x40-\x7e\xa1-\xfe]")),
)
_CYRILLIC = ("koi8_r", "cp1251")
_RUN = re.compile(rb"[\x80-\xff]{3,}")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text and its encoding."""

    text: str
    encoding: str
    is_guess: bool = False
    """Whether the encoding was guessed from the bytes."""


def decoded(data: bytes, declared: str = "") -> Decoded | None:
    """Decode the bytes of a file; None if they are not text.

    `declared` is an encoding that is declared elsewhere. Bytes that are not UTF-8 and declare no encoding are
    decoded anyway, so that checks can read at least their ASCII characters.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark) and (text := _text(data, encoding)) is not None:
            return Decoded(text, encoding)
    if declared and (text := _text(data, declared)) is not None:
        return Decoded(text, declared)
    if b"\0" in data and (wide := _of_wide_characters(data)) is not None:
        return wide
    if len(_CONTROL.findall(data)) * _MOST_CONTROLS > len(data):
        return None
    if (text := _text(data, "utf-8")) is not None:
        return Decoded(text, "utf-8")
    match = _DECLARATION.search(data[:_DECLARED_WITHIN].decode("latin-1"))
    if match and (text := _text(data, match[1])) is not None:
        return Decoded(text, match[1])
    encoding = _guess(data)
    return Decoded(data.decode(encoding), encoding, is_guess=True)


def _text(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (LookupError, ValueError):  # LookupError: unknown, or not a text encoding, such as base64
        return None


def _of_wide_characters(data: bytes) -> Decoded | None:
    """Decode UTF-16 or UTF-32 without a byte order mark: the zero bytes of ASCII are on one side."""
    even, odd = data[::2].count(0), data[1::2].count(0)
    if max(even, odd) * 10 < len(data) // 2:  # a zero byte in another text
        return None
    order = "le" if odd > even else "be"
    for encoding in (f"utf-32-{order}", f"utf-16-{order}"):
        text = _text(data, encoding)
        if text is not None and not _CONTROL.search(text.encode()):
            return Decoded(text, encoding, is_guess=True)
    return None


def _guess(data: bytes) -> str:
    """Guess the encoding of bytes that are not UTF-8."""
    for encoding, frequent, share in _EAST_ASIAN:
        text = _text(data, encoding)
        if text is not None:
            others = sum(not char.isascii() for char in text)
            if len(frequent.findall(text)) >= share * others:
                return encoding
    pairs = sum(byte > 0x7F for byte in data) / 2  # noqa: PLR2004 (the last ASCII character)
    for encoding, frequent in _CHINESE:
        if _text(data, encoding) is not None and len(frequent.findall(data)) >= 0.8 * pairs:
            return encoding
    if sum(map(len, _RUN.findall(data))) > pairs:  # whole words, as in no Latin script
        return max(_CYRILLIC, key=lambda name: sum(map(str.islower, data.decode(name, "replace"))))
    return "cp1252" if _text(data, "cp1252") is not None else "latin-1"


# --- work trees --------------------------------------------------------------------------------------------


def locate(folder: Path) -> tuple[Path, Path] | None:
    """The top folder of the work tree, and the `.git` that all its linked work trees share.

    None if the folder is in no repository.
    """
    paths = WorkTree(folder).run("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
    if paths.returncode:
        return None
    top, _, shared = paths.stdout.decode(errors="surrogateescape").removesuffix("\n").rpartition("\n")
    return Path(top), Path(shared)


def main_checkout(location: tuple[Path, Path] | None) -> Path | None:
    """The top folder of the main work tree of a located repository; None if there is none."""
    return location[1].parent if location is not None and location[1].name == ".git" else None


def project_in_work_tree(folder: Path, project: Path) -> Path:
    """The project's folder in the work tree that `folder` is in.

    It differs from `project` if an agent works in a linked work tree of the same repository.
    """
    if folder == project:
        return project
    target, origin = locate(folder), locate(project)
    if target is not None and origin is None:  # several repositories share the settings of a folder above
        return target[0]
    if target is None or origin is None or target[0] == origin[0] or target[1] != origin[1]:
        return project
    inside = target[0] / project.relative_to(origin[0])
    return inside if inside.is_dir() else target[0]


_NAMES = ("--relative", "--no-renames", "--no-ext-diff", "--ignore-submodules=none", "-O/dev/null")
_PLAIN_SETTINGS = ("-c", "core.safecrlf=false", "-c", "core.fsmonitor=false")
_COMPARE = ("-c", "core.quotePath=off", "diff", "--no-index", "--no-renames", "--no-prefix", "a", "b")
_ONE_SIDED = re.compile(r"^(diff --git )(\"?)[ab]/(.*) \2[ab]/\3$", re.MULTILINE)
"""The header of a file, which `--no-prefix` gives the same folder twice if it is new or deleted."""
_ATTRIBUTES = ("filter", "ident", "working-tree-encoding")
_IDENT = re.compile(r"\$Id:[^$\n]*\$")
"""What git writes into a file with the attribute `ident`, instead of $Id$."""
_LINK, _PROGRAM, _SUBMODULE = "120000", "100755", "160000"
"""Modes of git."""


class _Entry(NamedTuple):
    """A file in a commit or the index."""

    mode: str
    blob: str


def _run(
    folder: Path, environment: Mapping[str, str], words: Sequence[str], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603 (git, with arguments of our own)
            ["git", *words],  # noqa: S607 (the person's git, wherever it is)
            cwd=folder,
            env=environment,
            input=stdin,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"git can't be run in {str(folder)!r}: {error.strerror}.") from error


def _output(process: subprocess.CompletedProcess[bytes], command: str, *, codes: Sequence[int] = (0,)) -> str:
    """What git printed; raises `ConfigError` for any other exit code."""
    if process.returncode not in codes:
        errors = process.stderr.decode(errors="replace").strip().splitlines()
        reason = next((line for line in errors if not line.startswith(("hint:", "warning:"))), "")
        raise ConfigError(f"git {command} failed: {reason or f'exit code {process.returncode}'}")
    return process.stdout.decode(errors="surrogateescape")


def _environment() -> dict[str, str]:
    """The environment for git; paths that git passes to its hooks are relative to the current folder."""
    names = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")
    paths = {name: str(Path(os.environ[name]).absolute()) for name in names if os.environ.get(name)}
    own = {name: value for name, value in os.environ.items() if not name.endswith("_PATHSPECS")}
    # Without locks that the person's own git commands would have to wait for.
    return {**own, **paths, "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C.UTF-8"}


def _environment_without_settings(folder: str) -> dict[str, str]:
    """The environment for git in a folder outside of all repositories."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "XDG_"))},
        "HOME": folder,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(Path(folder).parent),
        "LC_ALL": "C.UTF-8",
    }


def _names(output: str) -> list[str]:
    return [name for name in output.split("\0") if name]


def _check_count(names: list[str]) -> list[str]:
    if len(names) > MOST_FILES:
        raise ConfigError(
            f"{len(names):,} files changed, but at most {MOST_FILES:,} are judged: set `paths` in [hook]."
        )
    return names


def _check_length(text: str, what: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"{what} has {len(text):,} characters, but at most {MOST_CHARACTERS:,} are judged: "
            "set `paths` in [hook]."
        )
    return text


def _check_size(data: bytes, name: str) -> bytes:
    """Raise `ConfigError` for a text that is too long; other data is not judged anyway."""
    if len(data) > MOST_BYTES and decoded(data[: MOST_BYTES // 4]) is not None:
        raise ConfigError(
            f"The file {_printable(name)!r} has more than {MOST_BYTES:,} bytes: set `paths` in [hook]."
        )
    return data


def _printable(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _comparable(text: str) -> str:
    """A text with line feeds and without NULs, which git compares line by line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _place(path: Path, text: str, mode: str) -> None:
    """Write a file for git to compare."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == _LINK:
        with suppress(OSError, ValueError):  # an impossible target is shown as a text
            path.symlink_to(text)
            return
    path.write_text(text, "utf-8", "replace", newline="")
    if mode == _PROGRAM:
        path.chmod(0o755)
