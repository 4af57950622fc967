import pytest

from redraft._pointers import path_of, pointer
from redraft.errors import OutputError
from redraft.text.json import bounded_json, is_too_deep, load_json


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), ""),
        (("a",), "/a"),
        (("a", 0, "b"), "/a/0/b"),
        (("a/b", "~", ""), "/a~1b/~0/"),
        (("~1",), "/~01"),
    ],
)
def test_a_pointer_names_a_place_and_leads_back_to_it(path, expected):
    assert pointer(path) == expected
    assert path_of(expected) == tuple(map(str, path))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ("[-Infinity]", "-Infinity is not a number of JSON"),
        ("1e999", "the number 1e999 is too large"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' comes twice in one object"),
        ("{", "Expecting property name"),
        ("[" * 100_000 + "]" * 100_000, "it is nested too deeply"),
    ],
)
def test_json_that_python_would_read_in_its_own_way_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        load_json(text, repeats_keys=False)


def test_a_key_may_come_twice_where_the_caller_allows_it():
    assert load_json('{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": 2**20_000}])
def test_data_that_is_no_json_is_named(value):
    with pytest.raises(OutputError, match="The body is not plain JSON data"):
        bounded_json(value, "The body")


@pytest.mark.parametrize(("levels", "deep"), [(1, False), (100, False), (101, True)])
def test_depth_counts_lists_and_objects(levels, deep):
    value = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    assert is_too_deep(value) is deep
