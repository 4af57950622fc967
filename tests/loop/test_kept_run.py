import pytest

from kept import kept
from redraft import ConfigError
from versions import history


@pytest.mark.parametrize(
    ("name", "number"),
    [("2", 2), ("v2", 2), ("first", 1), ("best", 2), ("last", 3), ("final", 3)],
)
def test_a_version_has_many_names(name, number):
    assert kept(history(0.1, 0.5, 0.3)).version(name).iteration == number


@pytest.mark.parametrize(
    ("scores", "name", "says"),
    [
        ((0.1, 0.2), "7", "has no version '7'; kept are 1, 2."),
        ((0.1,), "bset", "A version is a number such as 2 or v2, 'first', 'best' or 'last'; got 'bset'."),
        ((0.1,), "²", "got '²'"),
        ((), "best", "has no version yet: it is running."),
    ],
)
def test_a_version_that_is_not_there_is_an_error(scores, name, says):
    with pytest.raises(ConfigError, match="version") as error:
        kept(history(*scores)).version(name)
    assert says in str(error.value)
