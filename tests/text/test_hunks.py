import pytest

from redraft.text.diff import word_diff
from redraft.text.hunks import hunks


def flat(parts):
    return [
        part
        if isinstance(part, int)
        else "|".join("".join(f"{op}{text}" for op, text in line) for line in part)
        for part in parts
    ]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("a", "b", ["-a+b"]),
        ("same", "same", [1]),
        ("1\n2\n3\n4 x\n5\n6\n7", "1\n2\n3\n4 y\n5\n6\n7", [2, "=3|=4 -x+y|=5", 2]),
        ("1\n\n2", "1\n\n3", [1, "|-2+3"]),
        ("", "", [1]),
    ],
)
def test_only_what_is_near_a_difference_is_left_in(old, new, found):
    assert flat(hunks(word_diff(old, new), 1)) == found
