import pytest

from redraft._validation import check_count, is_number, nearest
from redraft.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("regexp", ["llm", "regex"], "did you mean 'regex'? Expected one of 'llm', 'regex'."),
        ("REGEX", ["llm", "regex"], "did you mean 'regex'? Expected one of 'llm', 'regex'."),
        ("xyz", ["llm"], "expected 'llm'."),
        ("xyz", [], "none are defined."),
    ],
)
def test_nearest(name, known, said):
    assert nearest(name, known) == said


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(value, True) for value in (0, -1, 0.5, 1e308)],
        *[(value, False) for value in (True, "1", None, float("nan"), float("inf"))],
        pytest.param(10**400, False, id="too large"),
        pytest.param(-(10**400), False, id="too small"),
    ],
)
def test_is_number(value, expected):
    assert is_number(value) is expected


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 0, 2**63])
def test_invalid_counts(value):
    with pytest.raises(ConfigError, match=r"^limit must be a whole number of at "):
        check_count("limit", value, 1)
