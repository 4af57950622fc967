import pytest

from redraft.errors import ConfigError
from redraft.evaluate.criteria import NOT_APPLICABLE
from redraft.evaluate.examples import examples, examples_in
from redraft.protocols import RunContext
from redraft.sandbox.jail import ProcessJail
from redraft.types import PlainTask
from support.evaluation import criterion, evaluate

SESSION = '''def total(numbers):
    """Add up.
    >>> total([1, 2])
    3
    >>> total([])
    0
    """
'''


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SESSION, [("total([1, 2])", 3), ("total([])", 0)]),
        ("f(2) -> 4", [("f(2)", 4)]),
        ("For example, f(2) returns 4. And f(3) should return 6.", [("f(2)", 4), ("f(3)", 6)]),
        ("f( 2 ,'a' ) == [1, 'b)']", [("f(2, 'a')", [1, "b)"])]),
        ("f(2) => true, f(3) = 1.5, f(4): None", [("f(2)", True), ("f(3)", 1.5), ("f(4)", None)]),
        ("f('x') # => 'Yes' (since it is)", [("f('x')", "Yes")]),
        ("f(a=2) ➞ {'b': 1}", [("f(a=2)", {"b": 1})]),
        ("def f(a, k):\n  Input: a = [1], k = 2\n  Output: 3 # why", [("f(a=[1], k=2)", 3)]),
        ("f(2) -> 4\nf(2) -> 5\nf(3) -> 6", [("f(3)", 6)]),  # contradicts itself
        ("f(2) -> 4, f(2) -> 4", [("f(2)", 4)]),
        ("def f(a): f(1) -> 2 and g(1) -> 2", [("f(1)", 2)]),  # asks for f
        ("Mend it: f(2) returns 5, but should return 4.\nf(3) -> 6", [("f(3)", 6)]),
        ("f(2) doesn't return 4", []),
        # Markdown.
        ("`f(2)` should return `4`", [("f(2)", 4)]),
        ("`f(2)` -> `4`\n`f(3) -> 6`\n**f(4)** → **8**", [("f(2)", 4), ("f(3)", 6), ("f(4)", 8)]),
        ('- "f(2) returns 4"\n* `f(3)` is **`6`**.\n> f(4): 8', [("f(2)", 4), ("f(3)", 6), ("f(4)", 8)]),
        ("I expect `f('a, b')` to return `[\"a\"]`, and so on.", [("f('a, b')", ["a"])]),
        ("```python\nassert f(2) == 4  # twice 2\n```", [("f(2)", 4)]),
        ("def f(a):\n**Input:** `a = 2`\n**Output:** `4`", [("f(a=2)", 4)]),
        ("## Actual output\n\n- `f(2)` -> `5`\n\n## Expected\n\n- `f(3)` -> `6`", [("f(3)", 6)]),
        ("Today:\n  f(2) -> 5\n  f(3) -> 7\nIt should double.", []),
        ("Why does `f(2)` return `5`?", []),
        ("Neither f(2) nor f(3) returns 4.", []),
        ("`f(2)` returns `abc`", []),
        ("`f(2)` returns `4` or `5`", []),
        ("1 + `f(2)` is `4`", []),
        # A value that may go on.
        ("f(2) returns 10,000", []),
        ("f(2) returns 2 items", []),
        ("f(2) returns 1, 2", []),
        ("f(2) returns 1 and 2", []),
        ("f(2) returns 4 if asked", []),
        ("f(2) returns 'a'.upper()", []),
        ("2 * f(3) = 12", []),
        # Nothing that could be checked.
        ("f(x) returns 4", []),
        ("f(2) returns the sum", []),
        ("f(2) -> 4 - 1", []),
        ("f(3) -> [1, 2, ...]", []),
        ("f(2", []),
        ("f(2] -> 4", []),
        ("def f(a=1) -> 5", []),
        (">>> f(2)\nTraceback (most recent call last):\nValueError", []),
        ("    >>> f(2)\n  4", []),
        ("", []),
        ("f(" * 20_000, []),
    ],
)
def test_examples_in_a_text(text, expected):
    assert examples_in(text) == dict(expected)


def run_of(text):
    return RunContext(PlainTask(text), "run")


def judge(output, text, **config):
    return evaluate(examples(criterion("examples", **config), ProcessJail()), output, run_of(text))


def test_an_answer_is_judged_by_the_examples_of_its_task():
    found = judge("def total(numbers):\n    return numbers[0] + numbers[1]", SESSION)
    assert found.overall_score == 0.5
    assert found.issues == ("total([]) raised IndexError: list index out of range; expected 0",)
    assert judge("total = sum", SESSION).satisfactory


def test_without_examples_the_criterion_does_not_apply():
    assert judge("total = sum", "Add up.") is NOT_APPLICABLE


def test_an_example_of_another_function_does_not_count():
    task = "Write digits(n), which is about 1 + log(n): log(100) = 2 and digits(100) = 3."
    assert judge("def digits(n):\n    return len(str(n))", task).satisfactory
    assert judge("def count(n):\n    return len(str(n))", task).overall_score == 0  # asked for digits
    assert judge("def digits(", task).overall_score == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [({"timeot": 3}, "did you mean 'timeout'"), ({"timeout": 0}, "timeout must be a number of seconds")],
)
def test_invalid_configuration(config, message):
    with pytest.raises(ConfigError, match=message):
        examples(criterion("examples", **config), ProcessJail())
