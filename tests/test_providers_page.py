"""docs/providers.md: each setup sends its request where it says, with the key that it names."""

import asyncio
import re

import pytest

from redraft import ConfigError
from redraft.models.local import PACKAGED
from redraft.models.names import KEYS, model_named
from redraft.protocols import ChatRequest, Message
from support.openai_server import completion, serving
from support.pages import Page
from support.provider_page import KEY, PAGE, ask, setup_of

TEXT = Page(PAGE).text
REFUSED = (400, {}, {"error": {"message": "no", "code": 400}})


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        monkeypatch.delenv("OPENAI_API_KEY")
        monkeypatch.delenv("OPENAI_BASE_URL")
        yield server


@pytest.mark.parametrize(
    ("provider", "address", "path", "header", "value"),
    [
        ("OpenAI", "OPENAI_BASE_URL", "/v1/responses", "authorization", f"Bearer {KEY}"),
        ("Azure", "AZURE_OPENAI_ENDPOINT", "/openai/v1/chat/completions", "authorization", f"Bearer {KEY}"),
        ("Ollama", "OLLAMA_BASE_URL", "/v1/chat/completions", "authorization", "Bearer api-key-not-set"),
        ("vLLM", "VLLM_BASE_URL", "/v1/chat/completions", "authorization", "Bearer api-key-not-set"),
        (
            "OpenAI's protocol",
            "OPENAI_BASE_URL",
            "/v1/chat/completions",
            "authorization",
            "Bearer api-key-not-set",
        ),
    ],
)
def test_a_setup_reaches_its_server_with_its_key(provider, address, path, header, value, server, monkeypatch):
    setup = setup_of(TEXT, provider)
    name = setup.pop("REDRAFT_MODEL")
    here = f"http://127.0.0.1:{server.server_address[1]}"
    setup[address] = re.sub(r"^https?://[^/]+", here, setup.get(address, "http://openai/v1"))
    for variable, given in setup.items():
        monkeypatch.setenv(variable, given)
    server.answers = [REFUSED]
    assert ask(name) == "ModelError"
    asked_path, body = server.asked[0]
    assert (asked_path.partition("?")[0], body["model"]) == (path, name.partition(":")[2])
    assert server.headers[0][header] == value


def test_the_older_api_of_azure_wants_its_version(monkeypatch, server):
    setup = setup_of(TEXT, "Azure")
    endpoint = f"http://127.0.0.1:{server.server_address[1]}/"
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint)
    with pytest.raises(ConfigError, match="OPENAI_API_VERSION"):
        model_named(setup["REDRAFT_MODEL"])
    monkeypatch.setenv("OPENAI_API_VERSION", "2025-04-01-preview")
    server.answers = [REFUSED]
    assert ask(setup["REDRAFT_MODEL"]) == "ModelError"
    assert server.asked[0][0].startswith("/openai/deployments/YOUR-DEPLOYMENT/chat/completions?api-version=")
    assert server.headers[0]["api-key"] == KEY


def test_a_model_made_in_python_has_its_address_key_and_headers(server):
    page = Page(PAGE)
    [block] = [code for code in page.blocks("python") if "AsyncOpenAI" in code]
    here = f"http://127.0.0.1:{server.server_address[1]}/v1"
    names, _ = page.run(block.replace("http://localhost:1234/v1", here))
    server.answers = [(200, {}, completion("hello"))]

    async def hello():
        async with names["client"]:
            return await names["model"](ChatRequest((Message("user", "hi"),)))

    assert asyncio.run(hello()).text == "hello"
    assert server.headers[0]["x-team"] == "docs"


def test_the_other_blocks_run(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    page = Page(PAGE)
    for code in page.blocks("python"):
        page.run(code)


def test_every_provider_with_an_extra_is_named_with_its_key():
    for provider, variables in KEYS.items():
        assert re.search(rf"\| `redraft\[{provider}\]` \| `{provider}:\S+` \| `{variables[0]}` \|", TEXT)


@pytest.mark.parametrize("name", sorted(PACKAGED))
def test_the_origin_of_the_weights_is_that_of_the_code(name):
    weights = PACKAGED[name]
    [row] = [line for line in TEXT.splitlines() if line.startswith(f"| `local:{name}`")]
    assert row.endswith(f"| {weights.bytes:,} | `{weights.sha256}` |")


def test_the_custom_names_are_valid_settings(tmp_path, monkeypatch):
    from redraft.settings import load_settings

    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").write_text(Page(PAGE).files("toml")["redraft.toml"])
    assert load_settings().models["judge"] == "anthropic:claude-haiku-4-5"
