"""A known secret is withheld in whatever form a text holds it."""

import base64
import json
import random
import string
from html import escape
from urllib.parse import quote, quote_plus

import pytest

from redraft.redact.literals import secrets_of
from redraft.redact.redactor import Redactor
from support.redact_corpus import MIXED, Maker

ALPHABETS = {
    "letters": string.ascii_letters,
    "signs": string.ascii_letters + string.digits + "!@#$%^&*()+/=?~-_.:;,'\"\\<>{}[]| ",
    "umlauts": string.ascii_letters + "äöüßéñ",
    "beyond Latin-1": "пароль密码비밀번호",
}


def in_lines(text):
    return "\n    ".join(text[at : at + 9] for at in range(0, len(text), 9))


FORMS = {
    "as it is": lambda value, pad: value,
    "inside a word": lambda value, pad: f"x{value}y",
    "Base64": lambda value, pad: base64.b64encode(f"{pad}{value}{pad}".encode()).decode(),
    "Base64 for addresses": lambda value, pad: base64.urlsafe_b64encode(
        f"{pad}{value}{pad}".encode()
    ).decode(),
    "Base64 in short lines": lambda value, pad: in_lines(
        base64.b64encode(f"{pad}{value}{pad}".encode()).decode()
    ),
    "hexadecimal": lambda value, pad: f"{pad}{value}".encode().hex(),
    "HEXADECIMAL": lambda value, pad: f"{pad}{value}".encode().hex().upper(),
    "percent": lambda value, pad: quote(value),
    "percent, all of it": lambda value, pad: quote(value, safe=""),
    "plus": lambda value, pad: quote_plus(value) if " " not in value else quote(value, safe=""),
    "JSON": lambda value, pad: json.dumps({"said": value}),
    "JSON in JSON": lambda value, pad: json.dumps(json.dumps({"said": value})),
    "HTML": lambda value, pad: escape(value),
    "two lines": lambda value, pad: f"{value[:4]}\n    {value[4:]}",
    "a continued line": lambda value, pad: f"{value[:4]} \\\n{value[4:]}",
    "zero width": lambda value, pad: "\u200b".join(value),
}


def values(alphabet, count=6):
    dice = random.Random(alphabet)  # noqa: S311 (a test's, to be the same each time)
    for _ in range(count):
        value = "".join(dice.choice(alphabet) for _ in range(dice.randrange(8, 40)))
        yield f"q{value.strip()}z" if len(value.strip()) < 8 else value.strip()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("alphabet", ALPHABETS.values(), ids=ALPHABETS)
def test_a_known_secret_is_removed_completely(alphabet, form):
    for value in values(alphabet):
        redactor = Redactor([value])
        for pad in ("", "a", "ab"):
            hidden = form(value, pad)
            result = redactor.redact(f"It said {hidden} and ended.")
            assert result.counts, (value, hidden)
            assert hidden not in result.text
            assert result.text.startswith("It said ")
            assert result.text.endswith(" and ended.")
            assert redactor.redact(result.text).text == result.text
            assert redactor.is_clean(result.text)


def test_short_and_common_values_are_ignored():
    text = "the cat sat on localhost, and the password was withheld"
    assert Redactor(["cat", "localhost", "password", "withheld"]).redact(text).text == text


def test_letters_beyond_latin_1_are_distinguished():
    text = "这是完全不同的文字内容"
    assert Redactor(["密码密码密码密码"]).redact(text).text == text


def test_many_known_secrets_in_one_blob_are_fast():
    blob = base64.b64encode(b"known-value-one " * 20_000).decode()
    assert Redactor(["known-value-one"]).redact(blob).counts


VALUE = Maker().of(MIXED, 12)
VARIABLES = {
    "OPENAI_API_KEY": (VALUE, [VALUE]),
    "DB_PASS": (VALUE, [VALUE]),
    "PGPASSWORD": (VALUE, [VALUE]),
    "STRIPE_KEY": (VALUE, [VALUE]),
    "GITHUB_TOKEN": (VALUE, [VALUE]),
    "DATABASE_URL": (f"postgres://bob:{VALUE}%40@db/x", [f"{VALUE}%40", f"{VALUE}@"]),
    "LANG": ("en_US.UTF-8", []),
    "PATH": ("/usr/bin:/bin", []),
    "TOKEN_FILE": ("/run/token", []),
    "SSL_KEY": ("/etc/ssl/server.key", []),
    "MAX_TOKENS": ("4096", []),
    "API_KEY": ("your-api-key", []),
    "TOKENIZERS_PARALLELISM": ("false", []),
}


@pytest.mark.parametrize(("name", "row"), VARIABLES.items(), ids=VARIABLES)
def test_secrets_of_the_environment(name, row):
    value, expected = row
    assert list(secrets_of({name: value})) == expected
