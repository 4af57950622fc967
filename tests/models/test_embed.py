from __future__ import annotations

import pytest

from redraft._sync import run_sync
from redraft.errors import ConfigError
from redraft.models import embed as embed_minilm
from redraft.models.embed import (
    FunctionEmbedder,
    MiniLMEmbedder,
    ProviderEmbedder,
    ScriptedEmbedder,
    embedder_named,
    embedder_of,
)
from redraft.settings import Settings
from support import requirements as needs


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
def test_what_is_given_comes_before_the_setting(given, settings, kind, name):
    embedder = embedder_of(given, Settings(**settings))
    assert type(embedder) is kind
    assert embedder.name == name


@pytest.mark.parametrize(
    ("given", "settings"), [("none", {}), (None, {"embedder": "none"}), ("off", {"models": {"off": "none"}})]
)
def test_none_is_a_name_too(given, settings):
    assert embedder_of(given, Settings(**settings)) is None


def test_without_a_word_the_offline_one_is_taken_where_it_is_installed(monkeypatch):
    needs.minilm()
    assert type(embedder_of(None, Settings())) is MiniLMEmbedder
    assert type(embedder_named("local:minilm")) is MiniLMEmbedder
    monkeypatch.setattr(embed_minilm, "is_installed", lambda: False)
    assert embedder_of(None, Settings()) is None


def test_the_rows_of_a_users_own_embedder_are_made_unit_length():
    assert run_sync(embedder_of(Named(), Settings())(["a"])) == [[1.0]]


@pytest.mark.parametrize("name", ["minilm", "local:", "local:other", ":x", "openai:", " "])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(ConfigError, match="is not the name of an embedder; expected 'local:minilm'"):
        embedder_named(name)


@pytest.mark.parametrize("given", [3, [1.0]])
def test_what_is_no_embedder_is_refused(given):
    with pytest.raises(ConfigError, match="embedder must be a name, an Embedder or a function"):
        embedder_of(given, Settings())


def test_the_setting_has_a_variable(monkeypatch, tmp_path):
    from redraft.settings import load_settings

    monkeypatch.setenv("REDRAFT_EMBEDDER", "none")
    assert load_settings(tmp_path).embedder == "none"
