from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta

import pytest

from redraft.cycles.webhook import (
    ID,
    SIGNATURE,
    TIMESTAMP,
    WINDOW,
    secret_key,
    signature_problem,
    signed_headers,
)
from redraft.errors import ConfigError

KEY = bytes(range(32))
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
BODY = b'{"order": 7}'


def test_a_signed_request_is_trusted():
    assert signature_problem(KEY, signed_headers(KEY, "m1", BODY, NOW), BODY, NOW) == ""


def test_the_signature_is_that_of_the_specification():
    # The example of the Standard Webhooks specification's own test suites, with its key put together here.
    key = b64decode("MfKQ9r8GKYqrTwjU" + "PD8ILPZIo2LaLaSw")
    at = datetime.fromtimestamp(1614265330, UTC)
    headers = signed_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', at)
    assert headers == {
        ID: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        TIMESTAMP: "1614265330",
        SIGNATURE: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def headers(**changes):
    names = {"id": ID, "timestamp": TIMESTAMP, "signature": SIGNATURE}
    return signed_headers(KEY, "m1", BODY, NOW) | {names[name]: value for name, value in changes.items()}


OTHERS = b64encode(bytes(32)).decode()
BAD = [
    ({}, "expected the headers"),
    (headers(id=""), "expected the headers"),
    (headers(timestamp=""), "expected the headers"),
    (headers(id="m2"), "does not match the body"),
    (headers(id="m" * 201), "limited to 200"),
    (headers(timestamp="soon"), "Unix time in seconds"),
    (headers(timestamp="-1"), "Unix time in seconds"),
    (headers(timestamp="٣"), "Unix time in seconds"),
    (headers(timestamp="9" * 400), "Unix time in seconds"),
    (headers(timestamp=str(int(NOW.timestamp()) + 1)), "does not match the body"),
    (headers(signature=""), "does not match the body"),
    (headers(signature=f"v1,{OTHERS}"), "does not match the body"),
    (headers(signature=f"v1a,{OTHERS}"), "does not match the body"),
    (headers(signature="v1,\udcff\xff"), "does not match the body"),
    (signed_headers(bytes(32), "m1", BODY, NOW), "does not match the body"),
    (signed_headers(KEY, "m1", BODY + b" ", NOW), "does not match the body"),
]


@pytest.mark.parametrize(("given", "reason"), BAD)
def test_any_other_request_is_not(given, reason):
    assert reason in signature_problem(KEY, given, BODY, NOW)


@pytest.mark.parametrize("seconds", [WINDOW + 1, -WINDOW - 1, 86_400])
def test_a_request_is_trusted_for_five_minutes(seconds):
    given = signed_headers(KEY, "m1", BODY, NOW)
    assert signature_problem(KEY, given, BODY, NOW + timedelta(seconds=seconds)).startswith(TIMESTAMP)
    assert (
        signature_problem(KEY, given, BODY, NOW + timedelta(seconds=WINDOW * (1 if seconds > 0 else -1)))
        == ""
    )


def test_one_of_several_signatures_is_enough():
    given = headers(signature=f"v2,x v1,{OTHERS} {headers()[SIGNATURE]}")
    assert signature_problem(KEY, given, BODY, NOW) == ""


def test_secrets():
    assert secret_key("whsec_" + b64encode(KEY).decode(), "S") == KEY
    assert secret_key("a secret of text", "S") == b"a secret of text"
    for secret, problem in (
        ("short", "at least 16 bytes, got 5"),
        ("whsec_?", "isn't base64"),
        ("", "got 0"),
    ):
        with pytest.raises(ConfigError, match=f"The secret 'S' .*{problem}"):
            secret_key(secret, "S")
