"""Setups of docs/providers.md whose clients the tests' own environment lacks, run in one that has them."""

import json
import os
import subprocess

import pytest

from support.openai_server import serving
from support.pages import ROOT, Page
from support.provider_page import KEY, PAGE, setup_of

PYTHON = ROOT / "build" / "engines" / "providers" / "bin" / "python"
REFUSED = (400, {}, {"error": {"message": "no", "code": 400}})


@pytest.mark.parametrize(
    ("provider", "address", "path", "header", "value"),
    [
        ("Anthropic", "ANTHROPIC_BASE_URL", "/v1/messages", "authorization", f"Bearer {KEY}"),
        (
            "Google",
            "GOOGLE_GEMINI_BASE_URL",
            "/v1beta/models/gemini-2.5-flash:generateContent",
            "x-goog-api-key",
            KEY,
        ),
        (
            "Amazon Bedrock",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
            "/model/us.anthropic.claude-haiku-4-5-20251001-v1%3A0/converse",
            "authorization",
            f"AWS4-HMAC-SHA256 Credential={KEY}/",
        ),
    ],
)
def test_a_setup_reaches_its_server_with_its_key(provider, address, path, header, value, monkeypatch):
    with serving(monkeypatch) as server:
        setup = setup_of(Page(PAGE).text, provider)
        name = setup.pop("REDRAFT_MODEL")
        setup[address] = f"http://127.0.0.1:{server.server_address[1]}"
        server.answers = [REFUSED] * 3
        script = ROOT / "tests" / "support" / "provider_page.py"
        asked = subprocess.run(
            [PYTHON, script, name], env=os.environ | setup, capture_output=True, text=True, check=True
        )
    assert json.loads(asked.stdout) == "ModelError", asked.stderr
    assert server.asked[0][0].startswith(path)
    assert server.headers[0][header].startswith(value)
