from dataclasses import dataclass
from random import Random

import pytest

from redraft.errors import ConfigError
from redraft.notes.task import fill, fill_known, placeholders_of


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("text", "names", "filled"),
    [
        ("nothing to fill", (), "nothing to fill"),
        ("about {x}, {y} and {x}", ("x", "y"), "about {y}, 2 and {y}"),
        ("{{x}} stays", (), "{x} stays"),
        ("{{{x}}}", ("x",), "{{y}}"),
        ("{{{{x}}}}", (), "{{x}}"),
        ('{"key": {x}}', ("x",), '{"key": {y}}'),
        ('{"a": {"b": {y}}}', ("y",), '{"a": {"b": 2}}'),
        ('{"a": [1, {"b": 2}]} {} { x } {1} {a.b} {x!r} {x:>3} {%x%}', (), None),
        ("{{ x }} and ${HOME_DIR }", (), None),
        ("${y}", ("y",), "$2"),
        ("{x", (), None),
        ("x}", (), None),
        ("{\nx}", (), None),
        ("{été}", ("été",), "summer"),
        ("{²}", (), None),
    ],
)
def test_a_name_in_braces_is_a_placeholder(text, names, filled):
    inputs = {"x": "{y}", "y": 2, "été": "summer"}
    assert placeholders_of(text) == names
    assert fill(text, inputs) == fill_known(text, inputs) == (text if filled is None else filled)


@pytest.mark.parametrize(
    ("value", "text"),
    [("a text", "a text"), (3, "3"), (None, "null"), ([1], "[\n  1\n]"), (Point(1), '{\n  "x": 1\n}')],
)
def test_a_value_goes_in_as_text(value, text):
    assert fill("<{it}>", {"it": value}) == f"<{text}>"


def test_a_missing_input_is_named_with_what_to_write():
    with pytest.raises(ConfigError) as caught:
        fill("Research {topic}", {"topics": 1}, "the research")
    for part in ("'the research'", "{topic}", "did you mean 'topics'", 'inputs={"topic": ...}', "{{topic}}"):
        assert part in str(caught.value)
    assert fill_known("Research {topic} {topics}", {"topics": 1}) == "Research {topic} 1"


@pytest.mark.parametrize("seed", range(50))
def test_any_text_is_filled_as_its_parts_say(seed):
    random = Random(seed)  # noqa: S311 (no secret)
    parts = [
        ("{a}", "A{b}"),
        ("{{a}}", "{a}"),
        ("text ", "text "),
        ("{ b }", "{ b }"),
        ("{}", "{}"),
        ('"', '"'),
    ]
    chosen = [random.choice(parts) for _ in range(random.randrange(20))]
    text, expected = " ".join(part for part, _ in chosen), " ".join(filled for _, filled in chosen)
    assert fill(text, {"a": "A{b}"}) == expected


@pytest.mark.parametrize("seed", range(50))
def test_nothing_but_braces_around_names_is_touched(seed):
    random = Random(seed)  # noqa: S311 (no secret)
    text = "".join(random.choice('{}ab \n"é1') for _ in range(200))
    kept = fill(text, dict.fromkeys(placeholders_of(text), ""))
    assert kept.replace("{", "").replace("}", "") == _without_names(text)


def _without_names(text):
    for name in sorted(placeholders_of(text), key=len, reverse=True):
        assert f"{{{name}}}" in text
    filled = fill(text, {name: f"\0{name}\0" for name in placeholders_of(text)})
    pieces = filled.split("\0")
    return "".join(pieces[::2]).replace("{", "").replace("}", "")


@pytest.mark.parametrize("text", ["{" * 300_000, "{a" * 150_000, "{" * 150_000 + "}" * 150_000])
def test_braces_without_end_take_no_long_time(text):
    assert placeholders_of(text) == ()
