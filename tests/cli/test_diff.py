import pytest

from cli_commands import document, redraft
from kept import kept
from redraft.cli.diff_view import diff_view
from redraft.loop.version_diff import version_diff
from versions import version


def test_the_first_and_the_best_are_compared(revised):
    revised("aab", "aaa b", "aaa")
    lines = redraft("diff", "last").stdout.splitlines()
    assert lines[0] == "version 1 (0.00) > version 4 (1.00)"
    assert "- ab" in lines
    assert "+ aaa" in lines
    points = [line.split("  ", 2)[1] for line in lines if line.startswith("  addressed")]
    assert len(points) == 2


def test_versions_are_named(revised):
    revised("aab", "aaa b", "aaa")
    found = document(redraft("diff", "last", "v2", "last", "--json"))
    assert (found["from"]["version"], found["to"]["version"]) == (2, 4)
    assert [point["addressed"] for point in found["points"]] == [True, True]
    assert redraft("diff", "last", "9").exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "coloured", "shown"),
    [
        ("a b c", "a x c", False, "a [-b-]{+x+} c"),
        ("a b c", "a x c", True, "a bx c"),
        ({"a": [1, 2]}, {"a": [1], "b": "x"}, False, '/a/1: [-2-]\n/b: {+"x"+}'),
        ('{"a": true}', '{"a": false}', False, "/a: [-true-] {+false+}"),
        ("same", "same", False, "The outputs are the same."),
    ],
)
def test_words_or_fields(old, new, coloured, shown):
    diff = version_diff(version(1, 0.1, old), version(2, 0.2, new))
    plain = "\n".join(str(part) for part in diff_view(diff, coloured=coloured).renderables)
    assert shown in plain


def test_one_version_is_not_compared_with_itself(project):
    one = kept([version(1, 0.1)]).version("1")
    assert "That is one version" in str(diff_view(version_diff(one, one), coloured=False).renderables[-1])
