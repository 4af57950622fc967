"""What an error says in a line of its own."""

import pytest

from redraft import ModelError
from redraft.core.failures import RecordedError, said_of


class AwayError(RecordedError):
    pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("It is away."), "It is away."),
        (KeyError("name"), "KeyError: 'name'"),
        (ValueError(), "ValueError"),
        (AwayError("gone"), "AwayError: gone"),
    ],
)
def test_an_error_that_is_not_redraft_s_own_is_named(error, said):
    assert said_of(error) == said
