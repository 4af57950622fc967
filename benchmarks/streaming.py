"""How long the first token takes from a provider to a consumer, and what tokens cost, beside a client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median, quantiles
from time import monotonic, process_time, sleep
from typing import TYPE_CHECKING, Any

from _measure import PROJECT, options, publish, table, verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TARGET = 20.0
"""Milliseconds that the first token may take from the provider to the consumer."""
TOKENS = 1_000
"""How many tokens the reply has whose cost is measured."""
WAIT = 0.02
"""Seconds that the provider thinks before the first token of a reply of ten."""


class Provider(BaseHTTPRequestHandler):
    """Stream a reply of as many tokens as the prompt asks for, and note when it began."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = int(re.findall(r"Write (\d+)", body["messages"][-1]["content"])[-1])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if count < TOKENS:
            sleep(WAIT)
        first_written.append(monotonic())
        for number in range(count):
            self.event({"choices": [{"index": 0, "delta": {"content": f"word{number} "}}]})
            if count < TOKENS:
                sleep(WAIT / 10)
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.event(
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": 1}}
        )
        self.send(b"data: [DONE]\n\n")
        self.send(b"")

    def event(self, more: dict[str, Any]) -> None:
        """Send a chunk of the reply."""
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
        self.send(f"data: {json.dumps(head | more)}\n\n".encode())

    def send(self, data: bytes) -> None:
        """Send data at once."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *_: object) -> None:
        """Print nothing."""


first_written: list[float] = []


def client() -> Callable[[int, Callable[[str], None]], Awaitable[None]]:
    """Return a call by the provider's own client."""
    from openai import AsyncOpenAI

    openai = AsyncOpenAI(max_retries=0)

    async def call(tokens: int, take: Callable[[str], None]) -> None:
        stream = await openai.chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": f"Write {tokens}"}], stream=True
        )
        async for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                take(text)

    return call


def pydantic_ai() -> Callable[[int, Callable[[str], None]], Awaitable[None]]:
    """Return a call by Pydantic AI, on which Redraft stands."""
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
    from pydantic_ai.models import infer_model

    model = infer_model("openai-chat:gpt-4o-mini")

    async def call(tokens: int, take: Callable[[str], None]) -> None:
        async with model_request_stream(model, [ModelRequest.user_text_prompt(f"Write {tokens}")]) as stream:
            async for event in stream:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    take(event.part.content)
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    take(event.delta.content_delta)

    return call


def redraft() -> Callable[[int, Callable[[str], None]], Awaitable[None]]:
    """Return a call by `agent.stream`."""
    from redraft import Agent, QualityCriterion, ReflectionPattern
    from redraft.events import TokenEvent

    wanted = QualityCriterion("words", evaluator="regex", evaluator_config={"pattern": "word"})
    pattern = ReflectionPattern(quality_criteria=[wanted])
    agent = Agent("openai-chat:gpt-4o-mini", pattern=pattern, keep=False)

    async def call(tokens: int, take: Callable[[str], None]) -> None:
        async for event in agent.stream(f"Write {tokens}"):
            if isinstance(event, TokenEvent):
                take(event.text)

    return call


SUBJECTS = {"the client of OpenAI": client, "Pydantic AI": pydantic_ai, "`agent.stream`": redraft}


async def measure(repeats: int) -> dict[str, tuple[list[float], list[float]]]:
    """Return the waits for the first token and the CPU times of long replies of each subject, in seconds."""
    calls = {name: make() for name, make in SUBJECTS.items()}
    waits: dict[str, list[float]] = {name: [] for name in calls}
    costs: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name in calls if repeat % 2 else reversed(calls):
            arrived: list[float] = []
            await calls[name](10, lambda _, arrived=arrived: arrived.append(monotonic()))
            waits[name].append(arrived[0] - first_written[-1])
            started, texts = process_time(), list[str]()
            await calls[name](TOKENS, texts.append)
            costs[name].append(process_time() - started)
            assert "".join(texts) == "".join(f"word{number} " for number in range(TOKENS))
    return {name: (waits[name][1:], costs[name][1:]) for name in calls}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=40, help="replies of each kind")
    given = parser.parse_args()
    try:
        import openai  # noqa: F401 (only whether it is there)
    except ImportError:
        sys.exit(f"This needs the client of OpenAI: pip install -e '{PROJECT}[openai]'")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
    os.environ["OPENAI_API_KEY"] = "none"
    found = asyncio.run(measure(given.repeats))
    base = median(found["the client of OpenAI"][1])
    rows: list[tuple[object, ...]] = []
    for name, (waits, costs) in found.items():
        wait = median(waits) * 1e3
        rows.append(
            (
                name,
                f"{wait:.1f}",
                f"{quantiles(waits, n=20)[-1] * 1e3:.1f}",
                f"{TARGET:.0f} {verdict(wait, TARGET)}" if name == "`agent.stream`" else "",
                f"{median(costs) / TOKENS * 1e6:.0f}",
                f"{median(costs) / base:.2f}",
            )
        )
    head = ("by", "first token ms", "95th percentile", "target", "CPU us a token", "over the client")
    publish("streaming", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
