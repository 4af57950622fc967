import pytest

from redraft.terminal.word_diff import LONGEST, changes


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a b c d", "a x c d", "a [-b-]{+x+} c d"),
        ("1\n2\n3\n4 x y\n5\n6", "1\n2\n3\n4 x z\n5\n6", "3\n4 x [-y-]{+z+}\n5\n..."),
        ("one two", "three four five", "- one two\n+ three four five"),
        ("same", "same", ""),
        ("a:\n    b", "a:\n  b", "a:[-\\n    -]{+\\n  +}\nb"),
        ("a b", "a  b", "a[- -]{+  +}b"),
        ("a\n\nb", "a\nb", "a[-\\n\\n-]{+\\n+}\nb"),
        ("    a b", "  c d e", "-     a b\n+   c d e"),
    ],
)
def test_without_colours_changes_are_marked(before, after, shown):
    assert changes(before, after, coloured=False).plain == shown


def test_with_colours_changes_have_no_marks():
    text = changes("a b c d", "a x c d", coloured=True)
    assert text.plain == "a bx c d"
    assert [(span.start, span.end, span.style) for span in text.spans if span.style] == [
        (2, 3, "strike red"),
        (3, 4, "underline green"),
    ]


def test_a_long_change_is_cut():
    before = "\n".join(f"{n} a" for n in range(100))
    after = "\n".join(f"{n} b" for n in range(100))
    lines = changes(before, after, coloured=False).plain.splitlines()
    assert len(lines) == LONGEST
    assert lines[-1] == f"... and {100 - LONGEST + 1} more lines"
