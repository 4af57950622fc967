"""ScriptedModel and Cassette: models for tests."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import json
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._codec import from_json, to_json
from redraft._hints import keyword_hints
from redraft._locks import check_regular, flock
from redraft._texts import BYTES_PER_TOKEN, estimate_tokens
from redraft._validation import check_iterable, checked_path, checked_price, named_error, repr_of
from redraft.errors import ConfigError, ModelError
from redraft.protocols import ChatReply, ChatRequest
from redraft.text.replies import parsed_of
from redraft.types import NOT_REPORTED, TokenUsage, cost_at

if TYPE_CHECKING:
    from pathlib import Path

    from redraft.protocols import ChatModel, TextListener

ScriptedReply: TypeAlias = str | Mapping[str, Any] | list[Any] | ChatReply | Exception
Script: TypeAlias = (
    Iterable[ScriptedReply] | Callable[[ChatRequest], ScriptedReply | Awaitable[ScriptedReply]]
)


_WORD = re.compile(r"\s*\S+|\s+")


@keyword_hints()
class ScriptedModel:
    """Answers from a script: a list of replies, or a sync or async function of the request.

    A reply is a text, a dict or list (sent as JSON), a `ChatReply`, or an exception to raise. `requests`
    has all requests in order. A stream comes word by word. Usage is estimated, and a reply longer than the
    `max_tokens` of its request is cut off there, unless a `ChatReply` has its usage. The cost is 0, unless
    there is a `price`: US dollars for a million input tokens and for a million output tokens. A call after
    the last reply raises `ModelError`.
    """

    def __init__(self, replies: Script, *, price: tuple[float, float] | None = None) -> None:
        if isinstance(replies, str | Mapping):
            given = repr_of(cast("object", replies))
            raise ConfigError(f"ScriptedModel takes a list of replies or a function, got {given}.")
        self.name = type(self).__name__
        self.requests: list[ChatRequest] = []
        self._price = (0.0, 0.0) if price is None else checked_price("price", price)
        if price is not None:  # otherwise a budget in US dollars learns the costs from the replies
            self.cost_of = partial(cost_at, self._price)
        self._answer = cast("Callable[..., Any]", replies) if callable(replies) else _in_order(replies)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Answer with the next reply, or raise it if it is an exception."""
        self.requests.append(request)
        try:
            reply = self._answer(request)
        except StopIteration:  # a coroutine can't raise it
            raise ModelError(
                f"The script's function raised StopIteration in call {len(self.requests)} ({request.role})."
            ) from None
        return _reply_of(await reply if inspect.isawaitable(reply) else reply, request, self._price)

    async def stream(self, request: ChatRequest, on_text: TextListener, /) -> ChatReply:
        """Answer with the next reply, after passing it on word by word."""
        reply = await self(request)
        for number, word in enumerate(_WORD.findall(reply.text), 1):
            on_text(word, TokenUsage(output_tokens=number, cost_usd=cost_at(self._price, 0, number)))
            await asyncio.sleep(0)
        return reply


def _in_order(replies: Iterable[ScriptedReply]) -> Callable[[ChatRequest], ScriptedReply]:
    check_iterable("ScriptedModel: replies", replies, "a list of replies, or a function")
    script = list(replies)
    calls = 0

    def answer(request: ChatRequest) -> ScriptedReply:
        nonlocal calls
        calls += 1
        if calls > len(script):
            question = request.messages[-1].content if request.messages else ""
            replies = "reply" if len(script) == 1 else "replies"
            raise ModelError(
                f"The script has {len(script)} {replies}, and this is call {calls} ({request.role}), "
                f"which asks {question[:80]!r}."
            )
        return script[calls - 1]

    return answer


def _reply_of(reply: Any, request: ChatRequest, price: tuple[float, float]) -> ChatReply:
    if isinstance(reply, Exception):
        raise reply
    if isinstance(reply, Mapping | list):
        text = json.dumps(reply, ensure_ascii=False)
        reply = ChatReply(text, json.loads(text))
    elif isinstance(reply, str):
        reply = ChatReply(reply)
    elif not isinstance(reply, ChatReply):
        raise ConfigError(
            f"A scripted reply must be a string, a dict, a list, a ChatReply or an exception, "
            f"got {repr_of(reply)}."
        )
    usage = reply.usage
    if usage is NOT_REPORTED:
        reply = _within(reply, request.max_tokens)
        read = sum(estimate_tokens(message.content) for message in request.messages)
        written = estimate_tokens(reply.text)
        usage = TokenUsage(read, written, requests=1, cost_usd=cost_at(price, read, written))
    return replace(
        reply,
        parsed=parsed_of(reply.text, request) if reply.parsed is None else reply.parsed,
        usage=usage,
        model=reply.model or "scripted",
    )


def _within(reply: ChatReply, most: int | None) -> ChatReply:
    """Cut a reply off at a limit in tokens."""
    if most is None or estimate_tokens(reply.text) <= most:
        return reply
    text = reply.text.encode("utf-8", "replace")[: int(most * BYTES_PER_TOKEN)].decode("utf-8", "ignore")
    return replace(reply, text=text, parsed=None, finish_reason="length")


SCHEMA_VERSION = 1

_PLAIN_REQUEST = to_json(ChatRequest(()))
_PLAIN_REPLY = to_json(ChatReply(""))


@keyword_hints()
class Cassette:
    """Replays recorded replies, with their usage, to exactly the same requests.

    A request that was recorded several times gets its replies in the order of recording. A request that is
    not on the cassette, or was recorded fewer times, goes to `record`, and the call is appended to the file
    immediately; without `record`, it raises `ModelError`. Failed calls are not recorded. The file is JSON
    lines with a call per line, readable by its owner only, since it holds prompts and replies unredacted;
    several processes may record to it at the same time. A `.gz` file can be replayed, but not recorded to.

    Raises `ConfigError` for a file that is missing (unless recording), not writable (if recording) or not a
    cassette.
    """

    is_recorded = True
    """Tells runs to ignore the experience of earlier runs, so that they make the recorded requests."""

    def __init__(self, path: str | Path, record: ChatModel | None = None) -> None:
        self._path = checked_path("path", path)
        self._record = record
        if record is not None and self._path.suffix == ".gz":
            raise ConfigError(f"{str(path)!r} is compressed: record to a .jsonl file, then run gzip on it.")
        if record is not None:
            try:
                check_regular(self._path)
            except OSError as error:
                raise ConfigError(f"Can't record to {str(path)!r}: {error.strerror}.") from error
            parent = next(place for place in (self._path, *self._path.absolute().parents) if place.exists())
            if not os.access(parent, os.W_OK):
                raise ConfigError(f"The cassette {str(path)!r} can't be recorded: {parent} is not writable.")
        self._replies: dict[str, list[Any]] = defaultdict(list)
        self._counts: Counter[str] = Counter()
        if record is None or self._path.exists():
            for request, reply in _calls_of(self._path):
                self._replies[_key(request)].append(reply)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Replay the reply to a request, or record a new one."""
        data = _without_defaults(to_json(request), _PLAIN_REQUEST)
        key = _key(data)
        turn, recorded = self._counts[key], self._replies.get(key, [])
        self._counts[key] += 1
        if turn < len(recorded):
            return from_json(ChatReply, recorded[turn])
        if self._record is None:
            raise ModelError(self._missing(data, len(recorded)))
        reply = await self._record(request)
        # Not in a thread: cancelling a run must not lose a reply that was paid for.
        _append(self._path, data, _without_defaults(to_json(reply), _PLAIN_REPLY))
        return reply

    def _missing(self, data: dict[str, Any], times: int) -> str:
        role = data.get("role", _PLAIN_REQUEST["role"])
        how = f"To record it: Cassette({str(self._path)!r}, record=model)."
        if times:
            replies = f"{times} {'reply' if times == 1 else 'replies'}"
            return f"{self._path} has only {replies} to this {role} call, but it was made again. {how}"
        difference = _difference(data, [json.loads(key) for key in self._replies])
        return f"{self._path} has no reply to this {role} call. {difference} {how}"


def _without_defaults(data: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Leave out defaults, so that adding a field keeps old cassettes valid."""
    return {key: value for key, value in data.items() if value != plain[key]}


def _key(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _calls_of(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    try:
        packed = path.read_bytes()
        text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(
            f"There is no cassette {str(path)!r}; make one with Cassette({str(path)!r}, record=model)."
        ) from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(f"The cassette {str(path)!r} cannot be read: {error}.") from error
    return [
        _call_of(line, f"{path}:{number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()
    ]


def _call_of(line: str, place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from pydantic import ValidationError  # noqa: PLC0415 (only replaying needs it)

    try:
        call = json.loads(line)
        version = call["schema_version"]
        if version != SCHEMA_VERSION:
            raise ConfigError(f"{place}: schema_version is {version!r}; this Redraft reads {SCHEMA_VERSION}.")
        from_json(ChatRequest, call["request"])
        from_json(ChatReply, call["reply"])
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        raise ConfigError(f"{place}: this is not a recorded call ({named_error(error)}).") from error
    return cast("dict[str, Any]", call["request"]), cast("dict[str, Any]", call["reply"])


def _append(path: Path, request: dict[str, Any], reply: dict[str, Any]) -> None:
    call = {"schema_version": SCHEMA_VERSION, "request": request, "reply": reply}
    line = json.dumps(call).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b", buffering=0) as file:  # noqa: PTH123 (the mode of a new file is given to os.open)
        flock(file.fileno())
        end = file.seek(0, os.SEEK_END)
        if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
            line = b"\n" + line
        try:
            while line:
                line = line[file.write(line) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)  # half a line would make the cassette unreadable
            raise


def _difference(request: dict[str, Any], recorded: list[dict[str, Any]]) -> str:
    """Describe where a request first differs from the most similar recorded request."""
    if not recorded:
        return "It is empty."
    nearest = max(recorded, key=lambda candidate: _similarity(request, candidate))
    messages, recorded_messages = request["messages"], nearest["messages"]
    for at, (message, recorded_message) in enumerate(zip(messages, recorded_messages, strict=False)):
        if message != recorded_message:
            same = _common_prefix(message["content"], recorded_message["content"])
            return (
                f"The nearest recorded one differs in message {at + 1} ({message['role']}) at character "
                f"{same}: recorded {_excerpt(recorded_message, same)}, asked {_excerpt(message, same)}."
            )
    if len(messages) != len(recorded_messages):
        return f"The nearest recorded one has {len(recorded_messages)} messages, this one {len(messages)}."
    fields = sorted(key for key in {*request, *nearest} if request.get(key) != nearest.get(key))
    parts = ", ".join(f"{key}: recorded {nearest.get(key)!r}, asked {request.get(key)!r}" for key in fields)
    return f"One with the same messages differs in {parts}."


def _similarity(first: dict[str, Any], second: dict[str, Any]) -> tuple[int, int]:
    shared = _common_prefix(_key({"": first["messages"]}), _key({"": second["messages"]}))
    return shared, sum(first.get(key) == second.get(key) for key in {*first, *second})


def _common_prefix(first: str, second: str) -> int:
    """The length of the common prefix of two texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _excerpt(message: dict[str, Any], at: int) -> str:
    text = message["content"]
    return repr(text[max(at - 20, 0) : at + 20])
