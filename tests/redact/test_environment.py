"""What the environment says is secret."""

import pytest

from redraft.redact import Redacted, redact
from redraft.redact.environment import redactor_of_environment, secrets_of
from support.redact_corpus import MIXED, Maker, person

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
def test_secret_like_names_have_secret_values(name, row):
    value, expected = row
    assert list(secrets_of({name: value})) == expected


def test_names_of_the_machine_are_withheld_as_whole_words(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Ada-Notebook.fritz.box")
    redactor = redactor_of_environment(environment={"USER": "adalove", "HOME": "/home/adalove"})
    text = "adalove@ada-notebook:~$ ls /home/adalove/x /home/adalovelace on ADA-NOTEBOOK.fritz.box"
    assert redactor.redact(text).text == (
        "[withheld: user name]@[withheld: host name]:~$ ls [withheld: home folder]/x /home/adalovelace "
        "on [withheld: host name]"
    )


def test_ordinary_words_are_no_names(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "main")
    redactor = redactor_of_environment(environment={"USER": "root", "HOME": "/root", "LOGNAME": "app"})
    text = "the root of the app is in the main folder"
    assert redactor.redact(text).text == text


def test_the_environment_of_the_process_is_read_once_and_more_may_be_known(monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", VALUE)
    redactor = redactor_of_environment(known=["correct horse"])
    monkeypatch.delenv("SERVICE_TOKEN")
    found = redactor.redact(f"{VALUE} correct horse")
    assert found.text == "[withheld: known secret] [withheld: known secret]"
    assert found.counts == {"known secret": 2}


def test_the_public_function_finds_every_category(monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", VALUE)
    told, personal = person(Maker())
    found = redact(f"{told}; use {VALUE} on db01.prod.internal")
    assert isinstance(found, Redacted)
    assert not any(value in found.text for value in (*personal, VALUE, "db01"))
    assert found.counts == {
        "name": 1, "card number": 1, "email address": 1, "known secret": 1, "host name": 1,
    }  # fmt: skip
    assert redact(found.text) == Redacted(found.text, {})
