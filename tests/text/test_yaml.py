from __future__ import annotations

import time

import pytest

from redraft.errors import ConfigError
from redraft.text.yaml import dump_yaml, line_within, load_yaml

LAUGHS = 'a: &a ["lol","lol","lol","lol","lol","lol","lol","lol","lol"]\n' + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i + 1}: &a{i + 1}\n  <<: [{', '.join([f'*a{i}'] * 8)}]\n" for i in range(7)
)
TWELVE_MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i + 1}: &a{i + 1}\n  <<: [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(11)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: [x, 2.5, true, null, ~]", {"a": 1, "b": ["x", 2.5, True, None, None]}),
        ("", None),
        ("just a text", "just a text"),
        ("x: no\ny: on\nz: off", {"x": "no", "y": "on", "z": "off"}),
        ("z: 012", {"z": 12}),
        ("t: 12:30", {"t": "12:30"}),
        ("d: 2001-01-01", {"d": "2001-01-01"}),
        ("n: -3\nf: 1e3\nversion: 1.2.3", {"n": -3, "f": 1000.0, "version": "1.2.3"}),
        ("a: 1234567890123456789\nb: -" + "9" * 400, {"a": 1234567890123456789, "b": -(10**400 - 1)}),
        (
            "a: 1e22\nb: 1.2345678901234567890\nc: 1e999",
            {"a": 1e22, "b": 1.2345678901234567890, "c": "1e999"},
        ),
        ("h: 0xff", {"h": "0xff"}),
        ("x: !!str 5", {"x": "5"}),
        ("base: &b {a: 1}\nmore:\n  <<: *b\n  c: 2", {"base": {"a": 1}, "more": {"a": 1, "c": 2}}),
        ("a: &a {x: 1}\nb: {<<: [*a, {x: 2, y: 3}], y: 4}", {"a": {"x": 1}, "b": {"x": 1, "y": 4}}),
        ("a: &a '<<'\n*a : {b: 1}", {"a": "<<", "<<": {"b": 1}}),
        ("'<<': {a: 1}", {"<<": {"a": 1}}),
        ("1: a\n'1': b", {1: "a", "1": "b"}),
        ("x: !!float 3\ny: !!bool True\nz: !!null ''", {"x": 3.0, "y": True, "z": None}),
        ("\ufeffx: 1", {"x": 1}),
        ("x: " + "9" * 4_301, {"x": "9" * 4_301}),
        ("text: |\n  one\n  two\n", {"text": "one\ntwo\n"}),
    ],
)
def test_yaml_1_2_core_schema(text, value):
    assert load_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "aliases expand to more than"),
        (MERGES, "aliases|too many"),
        (TWELVE_MERGES, "aliases|too many"),
        ("[" * 20_000 + "]" * 20_000, "line 1: more than 64 levels"),
        ("".join(" " * i + "- \n" for i in range(1_000)), "line 6[0-9]: more than 64 levels"),
        (
            '!!python/object/apply:os.system ["id"]',
            "line 1: the tag .*os.system.* is not allowed: only plain data",
        ),
        ("a: 1\nx: !!python/name:os.system", "line 2: the tag"),
        ("x: !!binary AAAA", "the tag"),
        ("x: !!set {a, b}", "the tag"),
        ("x: !!timestamp 2001-99-99", "the tag"),
        ("!foo {a: 1}", "the tag '!foo'"),
        ('x: ! "6"', "the tag '!'"),
        ("x: !!int " + "9" * 200_000, "does not fit its tag"),
        ("x: !!int nine", "does not fit its tag"),
        ("a: 1\nb: 2\na: 3", "line 3: duplicate key 'a'"),
        ("outer:\n  k: 1\n  k: 2", "line 3: duplicate key 'k'"),
        ("&a [*a]", "refers to a value that contains it"),
        ("&a {x: {y: *a}}", "refers to a value that contains it"),
        ("\n".join(f"k{i}: &a{i} 1" for i in range(30_000)), "more than 50,000 nodes"),
        ("a: &a 1\nb: [" + ", ".join(["*a"] * 200) + "]", "line 2: more than 100 aliases"),
        ("#" * 1_000_001, "1,000,001 characters"),
        ("a: 1\n---\nb: 2", "line 2: expected a single document, but found another"),
        ("a: 1\nx: [1, 2\nb: 3", r"line 3: .* a bracket on line 2 is not closed"),
        ("x: {a: 1", r"line [12]: .* a bracket on line 1 is not closed"),
        ('a: 1\nx: "1\nb: 3\n', "line 4: .* the quote on line 2 is not closed"),
        ("a: 1\n\tb: 2", "line 2: found a tab character .*; indent with spaces"),
        ("a:\n\tb: 2", "line 2: found a tab character where none can be; indent with spaces"),
        ("a: @home", "line 1: .* a string that begins with '@' needs quotes"),
        ("a: **bold**", r"line 1: .* a string that begins with '\*' or '&' needs quotes"),
        ("a: say: hello", "line 1: .* a string with ': ' in it needs quotes"),
        ("a: 1\nb\n", "line 3: .* the key on line 2 needs a colon"),
        ("a:\n  b: 1\n c: 2", "line 3: .* begin in the same column"),
        (r'a: "\d+"', "line 1: .* write the backslash twice, or use single quotes"),
        ("x: *nobody", "line 1: found undefined alias"),
        ('é: "é"\nx: "\0"', r"line 2: the character U\+0000 can't be in YAML"),
        ("x: \ud800", "surrogates not allowed"),
        ("? [a]\n: 1", "line 1: a mapping or a list can't be a key"),
        ("a: 1\nx: {{ state.x }}", "line 2: .* a string that begins with a brace needs quotes"),
        ("a: 1\nx: !!bool yep", "line 2: a value does not fit its tag: expected true or false, got 'yep'"),
        ("x: !!map [1]", "line 1: a value does not fit its tag"),
        ("x: !!seq 1", "line 1: a value does not fit its tag"),
        ("1: a\ntrue: b", "line 2: duplicate key True"),
        ("a: &x 1\nb: &x 2", "line 2: found duplicate anchor 'x'"),
        ("a: 1\n<<: [1]", "line 2: expected a mapping, or a list of them, to merge"),
    ],
)
def test_invalid_or_oversized_yaml(text, message):
    started = time.process_time()
    with pytest.raises(ConfigError, match=message) as caught:
        load_yaml(text, "criteria.yaml")
    assert str(caught.value).startswith("criteria.yaml")
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("a: 1\nx: |\n  one\n  two\n", 1, 3),
        ("a: 1\nx: |\n  one\n  two\n", 2, 4),
        ("x: |-  # why\n\n  one\n", 2, 3),
        ("x: |2\n    one\n  two\n", 2, 3),
        ("a: &a |\n  one\nx: *a\n", 1, 2),
        ("a: 1\nx: one\n", 1, 2),
        ("a: 1\nx: 'one'\n", 1, 2),
        ("x: >\n  one\n\n  two\n", 1, None),
        ("x: >\n  one\n", 1, None),
        ('x: "one\\ntwo"', 2, None),
        ("x: one\n  and two\n", 2, None),
        ("x: [one]", 1, None),
        ("y: one", 1, None),
    ],
)
def test_line_within_a_block(text, line, found):
    assert line_within(text, ("x",), line) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "08",
        "0009",
        "1e5",
        "1.5e3",
        "-.5e3",
        "12:30",
        "no",
        "~",
        "true",
        "a\n",
        " a\nb",
        "a\r\nb",
        "\u2028",
        "a\u2028",
        "a\x85",
        "a\n\x85\nb",
    ],
)
def test_a_text_is_read_back_as_it_was_written(text):
    assert load_yaml(dump_yaml([text, {text: text}])) == [text, {text: text}]


def test_half_a_character_is_written_as_a_replacement_character():
    assert load_yaml(dump_yaml({"a\ud83d": "\ud83d\ude00 b\ud83d"})) == {"a\ufffd": "\U0001f600 b\ufffd"}
