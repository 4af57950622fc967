import pytest

from redraft.text.code import python_block, python_of, unfenced

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


@pytest.mark.parametrize(
    ("text", "answer", "line"),
    [
        (f"{F}\nBlue.\n{F}", "Blue.", 2),
        (f"\n\n{F}text\nBlue.\n\nSky.\n{F}\n", "Blue.\n\nSky.", 4),
        (f"{F}js title=a\r\nx\r\n{F}\r\n", "x", 2),
        (f"~~~\n{F}\nx\n{F}\n~~~", f"{F}\nx\n{F}", 2),
        (f"{F}{F}md\n{F}\nx\n{F}\n{F}{F}", f"{F}\nx\n{F}", 2),
        (f"{F}\n{F}", "", 2),
        ("Blue.", None, 1),
        (f"Here:\n{F}\nBlue.\n{F}", None, 1),
        (f"{F}\nBlue.\n{F}\nDone.", None, 1),
        (f"{F}\na\n{F}\n{F}\nb\n{F}", None, 1),
        (f"{F}\nBlue.", None, 1),  # cut off
        (f"{F}Blue.{F}", None, 1),
        (F, None, 1),
        ("", None, 1),
    ],
)
def test_a_text_that_is_one_fenced_block_loses_its_fence(text, answer, line):
    assert unfenced(text) == (text if answer is None else answer, line)
