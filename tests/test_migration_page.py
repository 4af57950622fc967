"""docs/migration.md: the loops in Redraft, and the two originals whose libraries are always here.

`make test-integrations` runs the others (tests/frameworks).
"""

import asyncio
import json
from itertools import chain, repeat

import httpx2
import openai
import pytest
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from redraft import ScriptedModel
from support.migration import CASES, FILES, PAGE

PRODUCT = "a solar lamp"
NEVER = CASES["never"][0]


@pytest.fixture(autouse=True)
def _event_loop():
    """An event loop that is closed: `run_sync` of Pydantic AI takes the thread's loop, or leaves one open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # agents store their runs


def scripted_provider(monkeypatch, replies):
    """Put the replies in the place of every model, and return the list that counts the calls."""
    left, calls = chain(replies, repeat(replies[-1])), []

    def reply(messages, _info):
        calls.append(messages)
        return ModelResponse([TextPart(next(left))])

    def client_reply(request):
        calls.append(request)
        message = {"role": "assistant", "content": next(left)}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return httpx2.Response(200, json=body)

    def redraft_reply(request):
        calls.append(request)
        text = next(left)
        return json.dumps({"text": text}) if request.schema else text

    client = openai.OpenAI(
        api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(client_reply))
    )
    monkeypatch.setattr("openai.OpenAI", lambda: client)
    monkeypatch.setattr("pydantic_ai.models.infer_model", lambda *_, **__: FunctionModel(reply))
    monkeypatch.setattr("redraft.loop.agent.model_of", lambda *_, **__: ScriptedModel(redraft_reply))
    return calls


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("_redraft.py")])
def test_the_loop_in_redraft_returns_the_slogan_that_is_short(name, case, monkeypatch):
    replies, short = CASES[case]
    calls = scripted_provider(monkeypatch, replies)
    names, _ = PAGE.run(FILES[name])
    if short is None and name == "with_instructor_redraft.py":
        result = names["agent"].run_sync("Write a slogan.")
        assert (result.success, result.best_output) == (False, json.dumps({"text": NEVER[0]}))
    else:
        assert names["slogan"](PRODUCT) == (short or NEVER[0])  # the earliest of the equally bad
        assert len(calls) == len(replies)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["by_hand.py", "with_validator.py"])
def test_the_original_does_the_same_and_ends_otherwise_if_no_slogan_is_short(name, case, monkeypatch):
    replies, short = CASES[case]
    calls = scripted_provider(monkeypatch, replies)
    names, _ = PAGE.run(FILES[name])
    if short is None and name == "with_validator.py":
        with pytest.raises(UnexpectedModelBehavior):
            names["slogan"](PRODUCT)
    else:
        assert names["slogan"](PRODUCT) == (short or NEVER[-1])  # the last, whatever it is
    assert len(calls) == len(replies)


def test_every_original_has_its_loop_in_redraft():
    originals = [name for name in FILES if not name.endswith("_redraft.py")]
    assert [name.replace(".py", "_redraft.py") for name in originals] == [
        name for name in FILES if name not in originals
    ]
    assert len(originals) == 4
