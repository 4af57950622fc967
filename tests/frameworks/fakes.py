"""Play a file of examples/frameworks with a fake in place of its model: `fakes.py NAME`.

Each fake asks for the stock of tea unless the conversation has it, and otherwise says the next of three
answers. The second is the worst, so that the third starts from the conversation of the first. A fake replaces
what the recipe makes its model with. A line of JSON tells how the run went. With `DIES_AFTER=n`, the process
dies before it gives another answer; with `FIRST_ANSWER=n`, it goes on with that one.
"""

import asyncio
import json
import os
import stat
import sys
from importlib import import_module
from pathlib import Path

from redraft import QualityCriterion, Runs

QUESTION = "How much tea is left?"
SCORES = {"Some.": 0.5, "Few.": 0.1, "There are 7.": 1.0}
ANSWERS = iter([*SCORES][int(os.environ.get("FIRST_ANSWER", "0")) :])
heard = []
"""How many messages of a person the model had read when it gave each answer."""


def next_answer(persons):
    """The next answer to a conversation with so many messages of a person."""
    if len(heard) == int(os.environ.get("DIES_AFTER", "-1")):
        os._exit(9)
    heard.append(persons)
    return next(ANSWERS)


# --- the fakes ---------------------------------------------------------------------------------------------


def openai_client():
    """Put the client's transport in place of the network."""
    import httpx2
    import openai

    def reply(request):
        messages = json.loads(request.content)["messages"]
        call = {"id": "c1", "type": "function", "function": {"name": "stock", "arguments": '{"item": "tea"}'}}
        if any(message["role"] == "tool" for message in messages):
            said = {"content": next_answer(sum(message["role"] == "user" for message in messages))}
        else:
            said = {"content": None, "tool_calls": [call]}
        message = {"role": "assistant", **said}
        body = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5-mini",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
        }
        return httpx2.Response(200, json=body)

    real = openai.AsyncOpenAI
    transport = httpx2.MockTransport(reply)
    openai.AsyncOpenAI = lambda: real(api_key="none", http_client=httpx2.AsyncClient(transport=transport))


def anthropic_client():
    """Put the client's transport in place of the network."""
    import anthropic
    import httpx2

    def reply(request):
        messages = json.loads(request.content)["messages"]
        texts = [one for one in messages if one["role"] == "user" and isinstance(one["content"], str)]
        if any(message["role"] == "user" and message not in texts for message in messages):
            content = {"type": "text", "text": next_answer(len(texts))}
        else:
            content = {"type": "tool_use", "id": "c1", "name": "stock", "input": {"item": "tea"}}
        body = {
            "id": "1",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5",
            "content": [content],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 10, "output_tokens": 3},
        }
        return httpx2.Response(200, json=body)

    real = anthropic.AsyncAnthropic
    transport = httpx2.MockTransport(reply)
    anthropic.AsyncAnthropic = lambda: real(
        api_key="none", http_client=httpx2.AsyncClient(transport=transport)
    )


CLAUDE = """#!{python}
# Speaks the protocol of the command `claude`: JSON lines; a session is a file with what was said in it.
import json, sys
from pathlib import Path
from uuid import uuid4

words, folder = sys.argv[1:], Path({folder!r})
resumed = next((words[n + 1] for n, word in enumerate(words) if word == "--resume"), None)
resumed = resumed or next((word.partition("=")[2] for word in words if word.startswith("--resume=")), None)
if "-v" in words or "--version" in words:
    print("9.9.9 (Claude Code)")
    sys.exit()
name = str(uuid4())
said = json.loads((folder / (resumed + ".session")).read_text()) if resumed else []
if resumed and "--fork-session" not in words:
    name = resumed

def send(**message):
    print(json.dumps(message), flush=True)

for line in sys.stdin:
    given = json.loads(line)
    if given["type"] == "control_request":
        done = dict(subtype="success", request_id=given["request_id"], response={{}})
        send(type="control_response", response=done)
        continue
    if given["type"] != "user":
        continue
    said.append(given["message"]["content"])
    (folder / (name + ".session")).write_text(json.dumps(said))
    with (folder / "heard").open("a") as file:
        file.write(str(len(said)) + "\\n")
    count = len((folder / "heard").read_text().split())
    text = {answers!r}[count - 1]
    usage = dict(input_tokens=10, output_tokens=3)
    message = dict(role="assistant", model="claude", content=[dict(type="text", text=text)])
    send(type="assistant", session_id=name, message=message)
    send(type="result", subtype="success", duration_ms=1, duration_api_ms=1, is_error=False, num_turns=1,
         session_id=name, result=text, total_cost_usd=0.01, usage=usage)
"""


def claude_agent():
    """Put a script that speaks the protocol of the command `claude` in the place of that command."""
    import claude_agent_sdk

    folder = Path.cwd()
    script = folder / "claude"
    script.write_text(CLAUDE.format(python=sys.executable, folder=str(folder), answers=[*ANSWERS]))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    options = claude_agent_sdk.ClaudeAgentOptions
    claude_agent_sdk.ClaudeAgentOptions = lambda **given: options(cli_path=script, **given)

    def report():
        heard[:] = map(int, (folder / "heard").read_text().split())

    return report


def google_adk_agent():
    """Put a model of the framework's base class in the place of Gemini."""
    import google.adk.models
    from google.adk.models import BaseLlm, LlmResponse
    from google.genai import types

    class Scripted(BaseLlm):
        async def generate_content_async(self, llm_request, stream=False):
            parts = [(content.role, part) for content in llm_request.contents for part in content.parts]
            if any(part.function_response for _, part in parts):
                part = types.Part(
                    text=next_answer(sum(role == "user" and bool(one.text) for role, one in parts))
                )
            else:
                part = types.Part.from_function_call(name="stock", args={"item": "tea"})
            usage = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=10, candidates_token_count=3
            )
            yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)

    google.adk.models.Gemini = Scripted


def haystack_agent():
    """Put the framework's own mock in the place of OpenAI."""
    from haystack.components.generators import chat
    from haystack.components.generators.chat.mock import MockChatGenerator
    from haystack.dataclasses import ChatMessage, ToolCall

    usage = {"usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}}

    def respond(messages, tools):
        if any(message.is_from("tool") for message in messages):
            return ChatMessage.from_assistant(
                next_answer(sum(message.is_from("user") for message in messages)), meta=usage
            )
        call = ToolCall(tool_name="stock", arguments={"item": "tea"})
        return ChatMessage.from_assistant(tool_calls=[call], meta=usage)

    chat.OpenAIChatGenerator = lambda model: MockChatGenerator(response_fn=respond)


def smolagents_agent():
    """Put a model of the framework's base class in the place of OpenAI."""
    import smolagents
    from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction
    from smolagents.monitoring import TokenUsage

    class Scripted(smolagents.Model):
        def generate(self, messages, **_):
            texts = [
                (message.role, part["text"])
                for message in messages
                for part in message.content
                if "text" in part
            ]
            if any(role == "tool-response" for role, _ in texts):
                persons = sum(role == "user" and "task" in text.casefold() for role, text in texts)
                name, arguments = "final_answer", {"answer": next_answer(persons)}
            else:
                name, arguments = "stock", {"item": "tea"}
            call = ChatMessageToolCall(
                ChatMessageToolCallFunction(arguments=arguments, name=name), "c1", "function"
            )
            return smolagents.ChatMessage("assistant", None, [call], token_usage=TokenUsage(10, 3))

    smolagents.OpenAIModel = Scripted


def crewai_agent():
    """Put a model of the framework's base class in the place of a provider's."""
    os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true")
    import crewai
    from crewai import BaseLLM

    class Scripted(BaseLLM):
        def call(self, messages, tools=None, callbacks=None, available_functions=None, *_, **__):
            self._track_token_usage_internal(
                {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
            )
            if any(message["role"] == "tool" for message in messages):
                return next_answer(sum(message["role"] == "user" for message in messages))
            return [
                {
                    "id": "c1",
                    "function": {"name": "stock", "arguments": '{"item": "tea"}'},
                    "type": "function",
                }
            ]

        def supports_function_calling(self):
            return True

    crewai.LLM = Scripted


def dspy_module():
    """Put a model that answers in the format of the framework's own dummy in the place of a provider's."""
    import dspy
    from dspy.utils.dummies import DummyLM
    from litellm import ModelResponse

    class Scripted(dspy.BaseLM):
        def __init__(self, name):
            super().__init__(name, "chat", 0.0, 1000, cache=False)

        async def aforward(self, prompt=None, messages=None, **_):
            wanted, given = messages[0]["content"], messages[-1]["content"]
            if "next_tool_name" not in wanted:
                steps = json.loads(given.split("[[ ## earlier_steps ## ]]")[1].split("[[ ##")[0])
                fields = {"reasoning": "so", "answer": next_answer(len(steps) + 1)}
            elif "Execution error" in given or ("observation" not in given):
                fields = {
                    "next_thought": "I look.",
                    "next_tool_name": "stock",
                    "next_tool_args": '{"item": "tea"}',
                }
            else:
                fields = {"next_thought": "I know.", "next_tool_name": "finish", "next_tool_args": "{}"}
            text = DummyLM([])._format_answer_fields(fields)
            usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
            choices = [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            ]
            return ModelResponse(model="scripted", choices=choices, usage=usage)

    dspy.LM = Scripted


# --- a run -------------------------------------------------------------------------------------------------


async def remembered(run_id):
    """Return how many versions of the stored run have a memo."""
    return sum(version.memo is not None for version in (await Runs().get(run_id)).versions)


def score(answer):
    return SCORES[answer], "Say how many."


def play(recipe):
    import shop

    shop.number = QualityCriterion("number", evaluator="function", evaluator_config={"function": score})
    report = globals()[recipe]()
    answer = import_module(recipe).answer
    result = asyncio.run(answer.run_as("tea", QUESTION))
    if report is not None:
        report()
    told = {
        "outputs": [version.output for version in result.history.versions],
        "looked_up": shop.looked_up,
        "heard": heard,
        "tokens": [result.token_usage.input_tokens, result.token_usage.output_tokens],
        "requests": result.token_usage.requests,
        "cost": result.token_usage.cost_usd,
        "remembered": asyncio.run(remembered(result.run_id)),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    play(sys.argv[1])
