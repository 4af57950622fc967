from __future__ import annotations

import asyncio
import threading
from math import hypot

import pytest
from pydantic_ai.embeddings import TestEmbeddingModel

from redraft._sync import run_sync
from redraft.errors import ConfigError, MissingExtraError, ModelError, OutputError
from redraft.models.embed import ProviderEmbedder
from support.openai_server import Server

SMALL = "openai:text-embedding-3-small"


@pytest.fixture
def server(monkeypatch):
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def embeddings(*rows):
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return 200, {}, {"object": "list", "model": "text-embedding-3-small", "data": data, "usage": usage}


def test_a_call_over_http(server):
    server.answers = [embeddings([3.0, 4.0], [0.0, 2.0])]
    embedder = ProviderEmbedder(SMALL)
    assert run_sync(embedder(("a", "b"))) == [pytest.approx([0.6, 0.8]), [0.0, 1.0]]
    assert embedder.name == SMALL
    path, body = server.asked[0]
    assert (path, body["model"], body["input"]) == ("/v1/embeddings", "text-embedding-3-small", ["a", "b"])


def test_many_texts_go_out_in_several_requests_and_none_in_none(server):
    server.answers = [embeddings(*([[1.0, 0.0]] * 64)), embeddings(*([[0.0, 1.0]] * 6))]
    rows = run_sync(ProviderEmbedder(SMALL)([str(n) for n in range(70)]))
    assert [row.index(1.0) for row in rows] == [0] * 64 + [1] * 6
    assert [len(body["input"]) for _, body in server.asked] == [64, 6]
    assert run_sync(ProviderEmbedder(SMALL)([])) == []


def test_each_event_loop_has_a_client_of_its_own(server):
    server.answers = [embeddings([1.0]), embeddings([1.0]), embeddings([1.0])]
    embedder = ProviderEmbedder(SMALL)

    async def twice():
        return [await embedder(["a"]), await embedder(["b"])]

    assert asyncio.run(twice()) == [[[1.0]], [[1.0]]]
    assert asyncio.run(embedder(["c"])) == [[1.0]]


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False)],
)
def test_a_failed_call_is_a_model_error(server, status, retryable):
    server.answers = [(status, {}, {"error": {"message": "no", "type": "x", "code": None, "param": None}})]
    with pytest.raises(ModelError, match=f"{SMALL} failed") as caught:
        run_sync(ProviderEmbedder(SMALL)(["a"]))
    assert (caught.value.status, caught.value.retryable) == (status, retryable)


def test_rows_that_cannot_be_used_are_refused(server):
    server.answers = [embeddings([1.0])]
    with pytest.raises(OutputError, match=f"{SMALL} returned 1 vectors for 2 texts"):
        run_sync(ProviderEmbedder(SMALL)(["a", "b"]))


def test_an_embedding_model_of_pydantic_ai_may_be_given():
    model = TestEmbeddingModel(dimensions=4)
    embedder = ProviderEmbedder(model)
    (row,) = run_sync(embedder(["a"]))
    assert (embedder.name, len(row), hypot(*row)) == ("test:test", 4, pytest.approx(1.0))
    assert model.last_settings == {"truncate": True}


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        (SMALL, ConfigError, "needs the environment variable OPENAI_API_KEY to be set"),
        ("opnai:x", ConfigError, "no provider 'opnai' .* Did you mean 'openai:x'"),
        ("cohere:embed-v4.0", ConfigError, r"pydantic-ai-slim\[cohere\]"),
        ("google:gemini-embedding-001", MissingExtraError, r"redraft\[google\]"),
    ],
)
def test_what_is_wrong_is_said_before_any_call(monkeypatch, name, error, says):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(error, match=says):
        ProviderEmbedder(name)
