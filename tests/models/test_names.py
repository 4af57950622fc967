from __future__ import annotations

import subprocess
import sys

import pytest

import redraft.models.names
from redraft.errors import ConfigError
from redraft.models.local import LocalModel
from redraft.models.names import KnownModel, known_models, model_named, model_of
from redraft.models.provider import ProviderModel
from redraft.models.testing import ScriptedModel
from redraft.settings import Settings


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF")
    return f"local:{path}"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")


def test_model_by_name(weights):
    assert isinstance(model_named(weights), LocalModel)
    model = model_named("openai:a-model-of-next-year")
    assert isinstance(model, ProviderModel)
    assert model.name == "openai:a-model-of-next-year"


def test_aliases(weights):
    aliases = {"fast": weights, "judge": "fast", "gpt-4": "openai:gpt-4o"}
    assert isinstance(model_named("judge", aliases), LocalModel)
    assert model_named("gpt-4", aliases).name == "openai:gpt-4o"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a", "aliases form a cycle: a -> b -> c -> a"),
        ("self", "aliases form a cycle: self -> self"),
        (
            "gpt-4o",
            r"'gpt-4o' is not the name of a model; expected 'provider:model'.* mean 'openai:gpt-4o'\?",
        ),
        ("gpt-5-mini", r"Did you mean 'openai:gpt-5-mini'\?"),
        ("o3", r"Did you mean 'openai:o3'\?"),
        ("claude-sonnet", r"Did you mean 'anthropic:claude-sonnet'\?"),
        ("gemini-9-flash", r"Did you mean 'google:gemini-9-flash'\?"),
        ("mistral-large-latest", r"Did you mean 'mistral:mistral-large-latest'\?"),
        ("llama3.1", r"Did you mean 'ollama:llama3.1'\?"),
        ("llama3.1:8b", r"Did you mean 'ollama:llama3.1:8b'\?"),
        ("qwen2.5-coder", "Did you mean 'local:qwen2.5-coder-1.5b' or 'local:qwen2.5-coder-0.5b'"),
        ("", "'' is not the name of a model"),
        ("openai:", "has no model name after the colon"),
        ("openai: ", "has no model name after the colon"),
        (":gpt-4o", "has no provider before the colon"),
        ("opnai:gpt-4o", "Did you mean 'openai:gpt-4o'"),
        ("local:qwen", "no weights named 'qwen'; expected one of qwen2.5-coder-0.5b"),
        ("local:/nowhere/own.gguf", "'/nowhere/own.gguf' cannot be read"),
    ],
)
def test_invalid_name(name, message):
    with pytest.raises(ConfigError, match=message):
        model_named(name, {"a": "b", "b": "c", "c": "a", "self": "self"})


def test_explicit_model_overrides_settings(weights):
    given = ScriptedModel([])
    settings = Settings(model=weights, models={"fast": "openai:gpt-4o"})
    assert model_of(given, settings) is given
    assert model_of("fast", settings).name == "openai:gpt-4o"
    assert isinstance(model_of(None, settings), LocalModel)
    with pytest.raises(ConfigError, match="set REDRAFT_MODEL"):
        model_of(None, Settings())


def test_known_models(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setattr(redraft.models.names, "_is_installed", lambda module: module != "google.genai")
    known = {each.name: each for each in known_models()}
    assert set(known) == {
        "local:qwen2.5-coder-0.5b",
        "local:qwen2.5-coder-1.5b",
        "openai",
        "anthropic",
        "google",
    }
    assert known["openai"] == KnownModel("openai", answers=True, why="installed, OPENAI_API_KEY is set")
    assert known["anthropic"] == KnownModel("anthropic", answers=False, why="no key: set ANTHROPIC_API_KEY")
    assert known["google"].why == "not installed: pip install 'redraft[google]'"
    monkeypatch.setattr(redraft.models.names, "_is_installed", lambda _: False)
    assert known_models()[0].why == "not installed: pip install 'redraft[local]'"


def test_missing_parent_package():
    assert not redraft.models.names._is_installed("no_such_package.inside")
    assert redraft.models.names._is_installed("json.decoder")


def test_imports_are_lazy():
    code = (
        "import sys, redraft.models.names\n"
        "assert not {'pydantic_ai', 'xllamacpp', 'openai', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
