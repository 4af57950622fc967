"""What changed in a git work tree since a session began, as texts to judge."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARACTERS = 1_000_000
"""Of a diff, or of a file, that is judged."""
MOST_FILES = 1_000
MOST_HASHED = 10_000_000
"""Bytes; a larger file counts as changed when its size or time of change differs."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A work tree as a session found it: the commit, and the files that were changed already, with hashes."""

    commit: str
    changed: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class WorkTree:
    """The files of a folder in a git repository, without those that git ignores.

    `paths` are git's pathspecs, relative to the folder; `left_out` are files and folders that are not looked
    at.
    """

    folder: Path
    paths: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def baseline(self) -> Baseline:
        """Return the state to which later changes are compared."""
        commit = self._commit()
        return Baseline(commit, {name: self._signature(name) for name in self._changed(commit)})

    def diff(self, since: Baseline | None = None) -> str:
        """Return what changed as a unified diff, new files included; empty if nothing did.

        Files that were changed before the baseline, and not since, are left out. Raises `ConfigError` for a
        diff that is too long to judge.
        """
        commit, names = self._since(since)
        new = set(self._untracked())
        tracked = [name for name in names if name not in new]
        parts = [self._git("diff", *_PLAIN, commit, "--", *map(_literal, tracked))] if tracked else []
        parts += [_as_added(name, text) for name in names if name in new and (text := self._text(name))]
        return _bounded("".join(parts), "The diff")

    def files(self, since: Baseline | None = None) -> dict[str, str]:
        """Return the changed files that are text, by name; deleted ones are left out."""
        _, names = self._since(since)
        texts = ((name, self._text(name)) for name in names)
        return {name: text for name, text in texts if text}

    def staged_diff(self) -> str:
        """Return what the next commit would change, as a unified diff."""
        return _bounded(self._git("diff", "--cached", *_PLAIN, "--", *self._pathspecs()), "The diff")

    def staged_files(self) -> dict[str, str]:
        """Return the files that the next commit would add or change, as they would be committed."""
        found = self._git(
            "diff", "--cached", "--relative", "--name-only", "-z", "--diff-filter=d", "--", *self._pathspecs()
        )
        return {
            name: text
            for name in _few(_names(found))
            if (text := _as_text(self._run("show", f":./{name}").stdout, name))
        }

    # --- what git knows ------------------------------------------------------------------------------------

    def _since(self, baseline: Baseline | None) -> tuple[str, list[str]]:
        """Return the commit to compare with, and the names of the files that changed."""
        commit, before = self._commit(), dict[str, str]()
        if baseline is not None and self._leads_to(baseline.commit, commit):
            commit, before = baseline.commit, baseline.changed
        names = self._changed(commit)
        return commit, [name for name in names if name not in before or before[name] != self._signature(name)]

    def _commit(self) -> str:
        """Return the commit that is checked out; git's empty tree before the first one."""
        found = self._run("rev-parse", "--verify", "--quiet", "HEAD")
        if found.returncode == 0:
            return found.stdout.decode().strip()
        if found.returncode == 1:
            return self._git("hash-object", "-t", "tree", "--stdin").strip()
        raise ConfigError(f"{str(self.folder)!r} is not in a git repository.")

    def _leads_to(self, earlier: str, commit: str) -> bool:
        """Return whether an earlier commit is part of the history; it is not after a switch of branches."""
        return earlier == commit or not self._run("merge-base", "--is-ancestor", earlier, commit).returncode

    def _changed(self, commit: str) -> list[str]:
        found = self._git("diff", "--relative", "--name-only", "-z", commit, "--", *self._pathspecs())
        return _few([*dict.fromkeys((*_names(found), *self._untracked()))])

    def _untracked(self) -> list[str]:
        return _names(self._git("ls-files", "--others", "--exclude-standard", "-z", "--", *self._pathspecs()))

    def _pathspecs(self) -> list[str]:
        return [*(self.paths or ["."]), *(f":(exclude){path}" for path in self.left_out)]

    def _git(self, *words: str) -> str:
        done = self._run(*words)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise ConfigError(f"git {words[0]} failed: {said[0] if said else f'exit code {done.returncode}'}")
        return done.stdout.decode(errors="replace")

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(  # noqa: S603 (git, with arguments of our own)
                ["git", "-c", "core.quotePath=off", *words],  # noqa: S607 (the one that the person uses)
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError as error:
            raise ConfigError(f"git can't be run in {str(self.folder)!r}: {error.strerror}.") from error

    # --- the files themselves ------------------------------------------------------------------------------

    def _signature(self, name: str) -> str:
        path = self.folder / name
        try:
            found = path.lstat()
            if not path.is_file() or path.is_symlink() or found.st_size > MOST_HASHED:
                return f"{found.st_size}:{found.st_mtime_ns}"
            with path.open("rb") as file:
                return file_digest(file, "sha256").hexdigest()
        except OSError:  # deleted, or not readable: the same as long as it stays so
            return ""

    def _text(self, name: str) -> str:
        """Return the text of a file; empty for what is no text, is no regular file, or can't be read."""
        path = self.folder / name
        if path.is_symlink() or not path.is_file():
            return ""
        try:
            return _as_text(path.read_bytes(), name)
        except OSError:
            return ""


_PLAIN = ("--relative", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")


def _environment() -> dict[str, str]:
    """Return the environment for git; what a hook of git is given holds for the folder that it runs in."""
    places = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")
    given = {name: str(Path(os.environ[name]).absolute()) for name in places if os.environ.get(name)}
    # Without locks that the person's own git commands would have to wait for.
    return {**os.environ, **given, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"}


def _literal(name: str) -> str:
    return f":(literal){name}"


def _names(found: str) -> list[str]:
    return [name for name in found.split("\0") if name]


def _few(names: list[str]) -> list[str]:
    if len(names) > MOST_FILES:
        raise ConfigError(
            f"{len(names):,} files changed, but at most {MOST_FILES:,} are judged: set `paths` in [hook]."
        )
    return names


def _bounded(text: str, what: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"{what} has {len(text):,} characters, but at most {MOST_CHARACTERS:,} are judged: "
            "set `paths` in [hook]."
        )
    return text


def _as_text(data: bytes, name: str) -> str:
    if b"\0" in data:
        return ""
    try:
        return _bounded(data.decode(), f"The file {name!r}")
    except UnicodeDecodeError:
        return ""


def _as_added(name: str, text: str) -> str:
    """Return a new file as git shows it in a diff."""
    return "\n".join(_added_lines(name, text)) + "\n"


def _added_lines(name: str, text: str) -> Iterator[str]:
    lines = text.removesuffix("\n").split("\n") if text else []
    yield f"diff --git a/{name} b/{name}"
    yield "new file mode 100644"
    yield "--- /dev/null"
    yield f"+++ b/{name}"
    yield f"@@ -0,0 +1,{len(lines)} @@"
    yield from (f"+{line}" for line in lines)
    if not text.endswith("\n"):
        yield "\\ No newline at end of file"
