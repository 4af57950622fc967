"""Objects keep their classes and lose their secrets."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

import pydantic

from redraft import Issue
from redraft.redact.redactor import Redactor
from support.redact_corpus import MIXED, Maker

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


def test_an_object_keeps_its_classes_and_loses_its_secrets():
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


def test_an_issue_keeps_its_place():
    found = Redactor().redact_object((Issue(SECRET, "secrets", "/a/b", 3),))[0]
    assert (type(found), found.message) == (Issue, SHOWN)
    assert (found.criterion, found.path, found.line) == ("secrets", "/a/b", 3)


def test_what_is_spared_stays():
    whole = Whole((Part(SECRET),), {}, None)
    assert Redactor().redact_object(whole, spared=(Part,)) == whole
