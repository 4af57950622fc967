"""What a name says about its value."""

import pytest

from redraft.redact.assignments import Strength, is_secret_name, kind_of, strength_of

NAMES = {
    "password": Strength.PASSWORD,
    "DB_PASSWORD": Strength.PASSWORD,
    "dbPassword": Strength.PASSWORD,
    "PGPASSWORD": Strength.PASSWORD,
    "spring.datasource.password": Strength.PASSWORD,
    "--db-pass": Strength.PASSWORD,
    "client_secret": Strength.PASSWORD,
    "api_key": Strength.TOKEN,
    "X-Api-Key": Strength.TOKEN,
    "AWS_SECRET_ACCESS_KEY": Strength.PASSWORD,
    "accessToken": Strength.TOKEN,
    "authorization": Strength.TOKEN,
    "otp": Strength.CODE,
    "verification code": Strength.CODE,
    "2FA code": Strength.CODE,
    "STRIPE_KEY": Strength.TOKEN,
    "cookie": Strength.WEAK,
    "key": Strength.WEAK,
    "tokens": Strength.NONE,
    "max_token": Strength.NONE,
    "token_count": Strength.NONE,
    "token_type": Strength.NONE,
    "password_min_length": Strength.NONE,
    "passwordPolicy": Strength.NONE,
    "secret_name": Strength.NONE,
    "TOKEN_FILE": Strength.NONE,
    "primary_key": Strength.NONE,
    "public_key": Strength.NONE,
    "monkey": Strength.NONE,
    "compass": Strength.NONE,
    "": Strength.NONE,
}


@pytest.mark.parametrize(("name", "strength"), NAMES.items())
def test_the_strength_of_a_name(name, strength):
    assert strength_of(name) is strength


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("api_key", "api key"),
        ("token", "token"),
        ("pwd", "password"),
        ("client_secret", "secret"),
        ("otp", "one-time code"),
    ],
)
def test_the_kind_of_a_name(name, kind):
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("name", "is_one"), [("STRIPE_KEY", True), ("stripe_key", False), ("HOME", False), ("X_TOKEN", True)]
)
def test_secret_names_of_variables(name, is_one):
    assert is_secret_name(name) is is_one
