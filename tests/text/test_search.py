import json

import pytest

from redraft.errors import ConfigError
from redraft.text.search import TextPattern, has_text, without_texts

NAME = "Zo\u00eb M\u00fcller"
FOUND = {
    "as it is": f"Dear {NAME},",
    "other case": NAME.upper(),
    "decomposed": "Zoe\u0308 Mu\u0308ller",
    "line break": "Zo\u00eb\n  M\u00fcller",
    "no-break space": "Zo\u00eb\u00a0M\u00fcller",
    "invisible": "Zo\u200b\u00eb M\u00fc\u00adller",
    "JSON": json.dumps({"to": NAME}),
    "JSON in JSON": json.dumps({"text": json.dumps({"to": NAME})}),
    "JSON in JSON in JSON": json.dumps([json.dumps([json.dumps([NAME])])]),
    "percent": "task/Zo%C3%AB%20M%C3%BCller",
    "full width": "\uff3ao\u00eb M\u00fcller",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_a_text_is_found(text):
    assert TextPattern(NAME).is_in(text)
    assert TextPattern(NAME.lower()).is_in(text)


@pytest.mark.parametrize(
    "text", ["", "Zo\u00eb", "Zo\u00ebM\u00fcller", "Zo\u00eb and M\u00fcller", "\\u00", "100 %"]
)
def test_another_text_is_not(text):
    assert not TextPattern(NAME).is_in(text)


def test_joiners_make_no_difference():
    with_one, without = "\u0645\u06cc\u200c\u062e\u0648", "\u0645\u06cc\u062e\u0648"
    assert TextPattern(with_one).is_in(without)
    assert TextPattern(without).is_in(with_one)


@pytest.mark.parametrize("text", ["", "  \n", "ab", " a b"[:3]])
def test_a_text_that_would_be_everywhere_is_refused(text):
    with pytest.raises(ConfigError, match="at least 3 characters"):
        TextPattern(text)


def test_every_spelling_in_a_file_is_found():
    spellings = TextPattern(NAME).spellings
    for text in (NAME, "Zoe\u0308 Mu\u0308ller", json.dumps(NAME)[1:-1]):
        assert text.encode() in spellings


def test_texts_in_data_are_found_and_replaced():
    is_match = TextPattern("4111 1111"[:4]).is_in
    data = {"a": [1, {"b": "card 4111"}], "4111": None, "n": 41112, "t": True, "f": 1.5}
    assert has_text(data, is_match)
    clean = without_texts(data, is_match, "gone")
    assert clean == {"a": [1, {"b": "gone"}], "gone": None, "n": "gone", "t": True, "f": 1.5}
    assert not has_text(clean, is_match)
