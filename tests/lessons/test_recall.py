"""Recall in many languages; the texts are in tests/support."""

import pytest

from redraft._sync import run_sync
from redraft.models.embed import MiniLMEmbedder, minilm_is_installed
from support.recall import HELD_OUT, LINES, NAMES, recall_lines, recalled

LANGUAGES = {**recall_lines(LINES), **recall_lines(HELD_OUT)}
EMBEDDERS = [
    pytest.param(None, id="words"),
    pytest.param(
        MiniLMEmbedder,
        id="minilm",
        marks=pytest.mark.skipif(not minilm_is_installed(), reason="needs redraft[embed]"),
    ),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_the_right_lesson_comes_first_in_any_script(tmp_path, language, embedder):
    # Texts that the embedder can't read are searched as without it, so one of them is enough.
    is_latin = language == "de"
    count_unrelated = is_latin == bool(embedder)
    found = run_sync(
        recalled(tmp_path, LANGUAGES[language], embedder and embedder(), count_unrelated=count_unrelated)
    )
    assert found.first >= 7
    if embedder or not is_latin:  # without an embedder, words in Latin letters need not stand out
        assert max(found.wrong) <= 1
        assert sum(found.unrelated) <= 8


@pytest.mark.parametrize(("section", "first"), [("names", 38), ("spellings", 19)])
@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_a_lesson_with_the_identifier_of_a_task_comes_first(tmp_path, section, first, embedder):
    lines = recall_lines(NAMES)[section]
    assert run_sync(recalled(tmp_path, lines, embedder and embedder(), count_unrelated=False)).first >= first
