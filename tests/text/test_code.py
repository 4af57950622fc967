import pytest

from redraft.text.code import python_block, python_of

F = "```"


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("x = 1\n", "x = 1\n", 1),
        ("", "", 1),
        (f"Here it is:\n\n{F}python\nx = 1\n{F}\nDone.", "x = 1\n", 4),
        (f"{F}py\nx = 1\ny = 2\n{F}", "x = 1\ny = 2\n", 2),
        (f"{F}Python3 title=a\nx = 1\n{F}", "x = 1\n", 2),
        (f"{F}python\r\nx = 1\r\n{F}\r\n", "x = 1\r\n", 2),
        (f"{F}\nx = 1\n{F}", "x = 1\n", 2),
        (f"{F}\nrun me\n{F}\n{F}python\nx = 1\n{F}", "x = 1\n", 5),  # a named fence before a bare one
        (f"{F}bash\npip\n{F}\n{F}python\nx = 1\n{F}", "x = 1\n", 5),
        (f"{F}python\na\n{F}\n{F}python\nb\n{F}", "a\n", 2),  # the first of two
        (f"{F}json\n{{}}\n{F}", f"{F}json\n{{}}\n{F}", 1),  # no Python at all
        (f"{F}python\nx = 1", "x = 1", 2),  # cut off
        (f"{F}{F}python\na = '''\n{F}\n'''\n{F}{F}", f"a = '''\n{F}\n'''\n", 2),  # a longer fence
        ("~~~python\nx = 1\n~~~", "x = 1\n", 2),
        (
            f'def f():\n    """Do.\n\n    {F}python\n    f()\n    {F}\n    """\n',
            None,
            1,
        ),  # an example in a docstring
        (f"{F}python\nx = 1\n{F}python\n", f"x = 1\n{F}python\n", 2),  # what has a language closes nothing
        (f"text with {F}python in it", f"text with {F}python in it", 1),
    ],
)
def test_python_block(text, code, line):
    assert python_block(text) == (text if code is None else code, line)
    assert python_of(text) == (text if code is None else code)
