"""Small tasks: functions. Two calls are seen, further ones are hidden."""

from __future__ import annotations

from typing import Any

from _code import calls_criterion, passes
from _task import BenchTask


def function(name: str, prompt: str, seen: dict[str, Any], unseen: dict[str, Any]) -> BenchTask:
    """Ask for a function; both mappings go from a call to the value that it returns."""
    shown = "\n".join(f"{call} returns {value!r}" for call, value in seen.items())
    return BenchTask(
        f"code-{name}",
        f"Write a Python function {prompt}\n\nExamples:\n{shown}",
        (calls_criterion(seen),),
        passes(calls_criterion(seen | unseen)),
    )


FUNCTIONS = (
    function(
        "roman",
        "to_roman(n) that writes a whole number from 1 to 3999 in Roman numerals.",
        {"to_roman(4)": "IV", "to_roman(1987)": "MCMLXXXVII"},
        {"to_roman(1)": "I", "to_roman(44)": "XLIV", "to_roman(3999)": "MMMCMXCIX"},
    ),
    function(
        "runs",
        "encode(text) that writes runs of a character as the character and the length of the run, and "
        "leaves out a length of 1.",
        {"encode('aaab')": "a3b", "encode('')": ""},
        {"encode('abc')": "abc", "encode('zzzzzzzzzzzz')": "z12", "encode('aabaa')": "a2ba2"},
    ),
    function(
        "palindrome",
        "is_palindrome(text) that ignores case and everything but letters and digits.",
        {"is_palindrome('No lemon, no melon')": True, "is_palindrome('Redraft')": False},
        {"is_palindrome('')": True, "is_palindrome('1a2')": False, "is_palindrome('Was it a car?')": False},
    ),
    function(
        "flatten",
        "flatten(items) that makes one flat list out of lists nested to any depth.",
        {"flatten([1, [2, [3, []]]])": [1, 2, 3], "flatten([])": []},
        {"flatten([[['a']], 'bc'])": ["a", "bc"], "flatten([[1], [[2]], 3])": [1, 2, 3]},
    ),
    function(
        "chunks",
        "chunks(items, size) that cuts a list into lists of at most size items; a size below 1 gives an "
        "empty list.",
        {"chunks([1, 2, 3], 2)": [[1, 2], [3]], "chunks([1], 0)": []},
        {"chunks([], 3)": [], "chunks([1, 2], 5)": [[1, 2]], "chunks([1, 2], -1)": []},
    ),
    function(
        "second",
        "second_largest(numbers) that returns the second largest different number, or None where there is"
        " none.",
        {"second_largest([3, 1, 3])": 1, "second_largest([5])": None},
        {"second_largest([])": None, "second_largest([2, 2])": None, "second_largest([-1, -5, -3])": -3},
    ),
    function(
        "merge",
        "merge(intervals) that joins intervals which overlap or touch, given as lists [start, end] in any"
        " order, and returns them in order.",
        {"merge([[5, 7], [1, 3], [2, 4]])": [[1, 4], [5, 7]], "merge([[1, 2], [2, 3]])": [[1, 3]]},
        {"merge([])": [], "merge([[1, 9], [2, 3]])": [[1, 9]], "merge([[1, 2], [3, 4]])": [[1, 2], [3, 4]]},
    ),
    function(
        "brackets",
        "balanced(text) that says whether the brackets (), [] and {} in a text are balanced; other "
        "characters are ignored.",
        {"balanced('a(b[c]{d})')": True, "balanced('(]')": False},
        {"balanced('')": True, "balanced('(')": False, "balanced(')(')": False, "balanced('([)]')": False},
    ),
    function(
        "caesar",
        "shift(text, by) that moves each letter on by so many places in the alphabet, keeps its case, and"
        " leaves everything else as it is.",
        {"shift('Abc, xyz!', 3)": "Def, abc!", "shift('b', -1)": "a"},
        {"shift('', 5)": "", "shift('Zz 9', 27)": "Aa 9", "shift('a', -27)": "z"},
    ),
    function(
        "clock",
        "add_minutes(clock, minutes) that adds minutes, which may be negative, to a time 'HH:MM' of a "
        "24-hour clock.",
        {"add_minutes('23:50', 15)": "00:05", "add_minutes('09:05', 0)": "09:05"},
        {"add_minutes('00:00', -1)": "23:59", "add_minutes('12:30', 1440)": "12:30"},
    ),
    function(
        "digits",
        "digital_root(n) that sums the decimal digits of a whole number n >= 0 again and again until one "
        "digit is left.",
        {"digital_root(9875)": 2, "digital_root(0)": 0},
        {"digital_root(18)": 9, "digital_root(10**20)": 1, "digital_root(7)": 7},
    ),
    function(
        "common",
        "most_common(text) that returns the most frequent word of a text in lower case, ignoring "
        "punctuation; among equals the one that comes first; '' where there is none.",
        {"most_common('The cat saw the dog.')": "the", "most_common('')": ""},
        {"most_common('b, a; a! B?')": "b", "most_common('... !')": "", "most_common('One')": "one"},
    ),
)
