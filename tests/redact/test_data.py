"""Data keeps its shape and classes, and loses its secrets."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

import pydantic
import pytest

from redraft import Issue
from redraft.redact.kinds import Category
from redraft.redact.redactor import Redactor
from support.redact_corpus import MIXED, Maker, card

VALUE = Maker().of(MIXED, 24)
ROWS = {
    "a text": (f"token={VALUE}", "token=[withheld: token]"),
    "nothing": ({"a": [1, 2.5, None, True, "x"], "b": {}}, {"a": [1, 2.5, None, True, "x"], "b": {}}),
    "a secret-like key": ({"api_key": "plain"}, {"api_key": "[withheld: api key]"}),
    "of any kind": (
        {"password": 12345678, "pin": 4711},
        {"password": "[withheld: password]", "pin": "[withheld: one-time code]"},
    ),
    "scores under such a name": (
        {"password": 0.5, "api_key": 0, "pin": 1},
        {"password": 0.5, "api_key": 0, "pin": 1},
    ),
    "all below it": (
        {"credentials": {"user": "bob", "old": ["one", None]}},
        {"credentials": {"user": "[withheld: secret]", "old": ["[withheld: secret]", None]}},
    ),
    "a schema": (
        {"properties": {"password": {"type": "string", "description": "The password."}}},
        {"properties": {"password": {"type": "string", "description": "The password."}}},
    ),
    "a name and its value": (
        [{"name": "DB_PASSWORD", "value": "plain"}, {"name": "LANG", "value": "en"}],
        [{"name": "DB_PASSWORD", "value": "[withheld: password]"}, {"name": "LANG", "value": "en"}],
    ),
    "times and identifiers": (
        {"at_ms": 1_700_000_000_000, "at_ns": 1_700_000_000_000_000_000, "hash": -4111111111111111},
        {"at_ms": 1_700_000_000_000, "at_ns": 1_700_000_000_000_000_000, "hash": -4111111111111111},
    ),
    "counts of tokens": (
        {"tokens": 12, "max_tokens": 4096, "total_tokens": 3, "token": 7, "token_count": 1},
        {"tokens": 12, "max_tokens": 4096, "total_tokens": 3, "token": 7, "token_count": 1},
    ),
    "no value": (
        {"token": None, "password": "", "secret": True, "api_key": "<your key>"},
        {"token": None, "password": "", "secret": True, "api_key": "<your key>"},
    ),
    "a key that is a secret": ({f"token={VALUE}": 1}, {"token=[withheld: token]": 1}),
    "tuples": (("a", ["b"]), ("a", ["b"])),
    "keys of other kinds": ({1: "a", None: VALUE[:0]}, {1: "a", None: ""}),
}


@pytest.mark.parametrize(("value", "expected"), ROWS.values(), ids=ROWS)
def test_data_keeps_its_shape(value, expected):
    redactor = Redactor()
    redacted = redactor.redact_json(value)
    assert redacted == expected
    assert redactor.redact_json(redacted) == expected


def test_the_input_is_not_changed():
    value = {"password": "plain", "list": [{"token": VALUE}]}
    Redactor().redact_json(value)
    assert value == {"password": "plain", "list": [{"token": VALUE}]}


def test_secret_like_keys_withhold_their_values():
    redactor = Redactor(also=[Category.PERSONAL])
    number = int(card(Maker()).replace(" ", ""))
    given = {
        "customerName": "Kwame",
        "approved_by": "Thandeka Mbeki",
        "card": number,
        "caseNumber": "48" + "213",
    }
    shown = redactor.redact_json(given)
    assert shown == {
        "customerName": "[withheld: name]",
        "approved_by": "[withheld: name]",
        "card": "[withheld: card number]",
        "caseNumber": "[withheld: record number]",
    }
    assert redactor.redact_json(shown) == shown
    assert Redactor().redact_json(given) == given


SECRET = f"token={Maker().of(MIXED, 24)}"
SHOWN = "token=[withheld: token]"
AT = datetime(2026, 1, 1, tzinfo=UTC)


class State(StrEnum):
    RUNNING = "running"


class Model(pydantic.BaseModel):
    said: str
    password: str


@dataclass(frozen=True, slots=True)
class Part:
    text: str
    made: str = field(default="", init=False)


@dataclass(frozen=True, slots=True)
class Whole:
    parts: tuple[Part, ...]
    by_name: dict
    data: object
    state: State = State.RUNNING
    at: datetime = AT


def test_objects_keep_their_classes():
    whole = Whole(
        (Part(SECRET), Part("plain")),
        {"a": Part(SECRET), "b": [Part(SECRET)], SECRET: 1.5},
        [{"password": "plain", "n": 1}, None, Model(said=SECRET, password="plain")],
    )
    redacted = Redactor().redact_object(whole)
    assert redacted == Whole(
        (Part(SHOWN), Part("plain")),
        {"a": Part(SHOWN), "b": [Part(SHOWN)], SHOWN: 1.5},
        [
            {"password": "[withheld: password]", "n": 1},
            None,
            {"said": SHOWN, "password": "[withheld: password]"},
        ],
    )
    assert whole.parts[0].text == SECRET


def test_an_issue_keeps_path_and_line():
    found = Redactor().redact_object((Issue(SECRET, "secrets", "/a/b", 3),))[0]
    assert (type(found), found.message) == (Issue, SHOWN)
    assert (found.criterion, found.path, found.line) == ("secrets", "/a/b", 3)


def test_spared_classes_are_untouched():
    whole = Whole((Part(SECRET),), {}, None)
    assert Redactor().redact_object(whole, spared=(Part,)) == whole


def test_no_entry_is_lost_if_redacted_keys_are_the_same():
    calls = {"Dear Ms Lovelace,": 1, "to": {"+49 171 1234567": 2, "+49 171 7654321": 3}, "Dear Ms Hopper,": 4}
    assert Redactor(also={Category.PERSONAL}).redact_json(calls) == {
        "Dear Ms [withheld: name],": 1,
        "to": {"[withheld: phone number]": 2, "[withheld: phone number] (2)": 3},
        "Dear Ms [withheld: name], (3)": 4,
    }
