"""Run a file of docs/migration.md with a fake in place of its model: `originals.py NAME REPLY...`.

The fake gives the replies in order. A line of JSON says what `slogan` returned or raised, and how many of the
calls of the model asked for a slogan.
"""

import json
import sys
from importlib import import_module

replies = iter(sys.argv[2:])
calls = []


def with_instructor():
    """Replace the client's transport by a function."""
    import httpx2
    import openai

    def reply(request):
        asked = json.loads(request.content)
        calls.append(asked["messages"])
        function = {
            "name": asked["tools"][0]["function"]["name"],
            "arguments": json.dumps({"text": next(replies)}),
        }
        call = {"id": "c1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        body = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
        }
        return httpx2.Response(200, json=body)

    class Client(openai.OpenAI):
        def __init__(self, **_):
            super().__init__(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(reply)))

    openai.OpenAI = Client


def with_refine():
    """Replace the provider's model by one that answers in the format of DSPy's own dummy."""
    import dspy
    from dspy.utils.dummies import DummyLM
    from litellm import ModelResponse

    class Scripted(dspy.BaseLM):
        def __init__(self, name):
            super().__init__(name, "chat", 0.0, 1000, cache=False)

        def forward(self, prompt=None, messages=None, **_):
            if "[[ ## advice ## ]]" in messages[0]["content"]:
                fields = {"discussion": "It is long.", "advice": json.dumps({"self": "Be brief."})}
            else:
                calls.append(messages)
                fields = {"slogan": next(replies)}
            text = DummyLM([])._format_answer_fields(fields)
            usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
            return ModelResponse(model="scripted", choices=[choice], usage=usage)

    dspy.LM = Scripted


def main(name):
    globals()[name]()
    try:
        told = {"slogan": import_module(name).slogan("a solar lamp")}
    except Exception as error:  # noqa: BLE001 (what it is counts)
        told = {"raised": type(error).__name__}
    print(json.dumps(told | {"calls": len(calls)}))


if __name__ == "__main__":
    main(sys.argv[1])
