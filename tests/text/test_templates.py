from __future__ import annotations

import copy
import subprocess
import sys
import time

import pytest

from redraft.errors import ConfigError
from redraft.text.templates import Template, TemplateError, TemplateLimitError, TemplateLimits

STATE = {
    "request": 'a "user" <b> & é',
    "n": 3,
    "ratio": 0.5,
    "yes": True,
    "nothing": None,
    "items": ["b", "a"],
    "user": {"name": "Ada", "items": 7, "_x": 1},
    "reflection_output": {"name": "Jörg", "tags": ["<a>", "'"]},
    "reflection_errors": [{"path": "age", "message": "too old"}, {"path": "a.1", "message": "bad"}],
    "fenced": 'Here:\n```json\n{"a": [1, null]}\n```\n',
}
SCOPES = {"state": STATE, "variables": {"lang": "en"}, "env": {}, "memory": {"patterns": [1, 2]}}


def render(source):
    return Template(source).render(SCOPES)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("", ""),
        ("plain\n", "plain\n"),
        ("a } b { c % #\r\n", "a } b { c % #\r\n"),
        ("{{ state.n }}", 3),
        ("  {{ state.n }}\n", 3),
        ("{{ state.n }}.", "3."),
        ("{{ state.n }}{{ state.n }}", "33"),
        ("{{ state.n }}{# a comment #}", 3),
        ("{{ state.n + 1 }}", 4),
        ("{{ state.n > 2 and state.yes }}", True),
        ("{{ state.ratio }}", 0.5),
        ("{{ state.yes }}", True),
        ("{{ not state.yes }}", False),
        ("{{ state.nothing }}", None),
        ("{{ state.items }}", ["b", "a"]),
        ("{{ state.user }}", {"name": "Ada", "items": 7, "_x": 1}),
        ("{{ state.user.items }}", 7),
        ("{{ state.user['_x'] }}", 1),
        ("{{ state['user']['name'] }}", "Ada"),
        ("{{ state.user.items() | length }}", 3),
        ("{{ state.get('none') }}", None),
        ("{{ state.get('none', 'else') }}", "else"),
        ("{{ state.items[0] }}{{ state.items[-1] }}{{ state.items.1 }}", "baa"),
        ("{{ state.items[1:] }}", ["a"]),
        ("{{ state.items | sort }}", ["a", "b"]),
        ("{{ state.items | map('upper') }}", ["B", "A"]),
        ("{{ state.items | join(', ') }}!", "b, a!"),
        ("{{ state.reflection_errors | map(attribute='path') | join(' ') }}", "age a.1"),
        ("{{ state.reflection_errors | selectattr('path', 'equalto', 'age') | list | length }}", 1),
        ("{{ ', '.join(state.items) }}", "b, a"),
        ("{{ state.request.upper().split()[0] }}", "A"),
        ("{{ state.request.replace('a', 'the', 1)[:3] }}", "the"),
        ("{{ state.request | replace('a', 'the') | truncate(8, True) }}", 'the "...'),
        ("a {{ state.yes }} {{ state.nothing }} {{ state.ratio }}", "a True None 0.5"),
        ("a {{ state.items }}", 'a ["b", "a"]'),
        ("{{ state.items ~ 1 }}", '["b", "a"]1'),
        ("{{ state.reflection_output | tojson }}", '{"name": "Jörg", "tags": ["<a>", "\'"]}'),
        ("{{ state.request | json }}", '"a \\"user\\" <b> & é"'),
        ("{{ state.items | tojson(indent=1) }}", '[\n "b",\n "a"\n]'),
        ("{{ state.fenced | fromjson }}", {"a": [1, None]}),
        ("{{ '[1, 2.5]' | fromjson }}", [1, 2.5]),
        ("{{ ('[1]' | fromjson)[0] }}", 1),
        ("{{ state.reflection_output | tojson | fromjson == state.reflection_output }}", True),
        ("{% if state.none is defined %}a{% else %}b{% endif %}", "b"),
        ("{% if state.none %}a{% elif state.none.deeper %}b{% else %}c{% endif %}", "c"),
        ("{{ 'a' if state.none else 'b' }}", "b"),
        ("{{ state.none or 'd' }}", "d"),
        ("{{ not state.none }}", True),
        ("{% if state.none and state.none.x or not state.none %}a{% endif %}", "a"),
        ("{{ [{'a': 1}, {}] | selectattr('a') | list }}", [{"a": 1}]),
        ("{{ [''] | selectattr('__class__') | list }}", []),
        ("{{ '<b>' | safe }} {{ '<b>' | safe | upper }}", "<b> <B>"),
        ("{{ '<b>' | forceescape }}", "&lt;b&gt;"),
        ("{{ state.none.deeper.still is defined }}", False),
        ("{{ state.none.deeper | default('d') }}", "d"),
        ("{{ state.none.deeper[0]['x'] | d(7) }}", 7),
        ("{{ nowhere is undefined }}", True),
        ("{{ memory.patterns | sum }} {{ variables.lang }}", "3 en"),
        ("{% set x = 2 %}{{ x * 3 }}", "6"),
        (
            "{% set n = namespace(s='') %}{% for i in [1, 2] %}{% set n.s = n.s ~ i %}{% endfor %}{{ n.s }}",
            "12",
        ),
        ("{{ 'x' if state.nothing }}", ""),
        ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ loop.index }}{{ k }}{{ v }};{% endfor %}", "1a1;2b2;"),
        ("{% for i in [1, 2, 3] if i != 2 %}{{ i }}{{ ', ' if not loop.last }}{% endfor %}", "1, 3"),
        ("{% for i in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for i in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{{ loop.revindex }}{% endfor %}", "a3b2a1"),
        ("{% macro li(x, y='!') %}<{{ x }}{{ y }}{% endmacro %}{{ li(1) }}{{ li(2, y='?') }}", "<1!<2?"),
        ("{% macro w() %}[{{ caller() }}]{% endmacro %}{% call w() %}in{% endcall %}", "[in]"),
        ("{% filter upper %}a{{ state.n }}{% endfilter %}", "A3"),
        ("{% with a = 1 %}{{ a }}{% endwith %}", "1"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{{ '-' * 5 }}", "-----"),
        ("{{ 'x' in 'xy' }}", True),
        ("{{ 7 // 2 }} {{ 7 % 2 }} {{ 2 ** 8 }} {{ 7 / 2 }}", "3 1 256 3.5"),
        ("{{ 'x' if state.nothing else 'y' }}", "y"),
        ("{{ state.items | groupby(0) | length }}", 2),
        ("{{ state.reflection_errors | groupby('path') | map(attribute='grouper') }}", ["a.1", "age"]),
        ("{{ '<b>' | escape }} {{ 'a b' | urlencode }} {{ 'a\nb' | indent(2) }}", "&lt;b&gt; a%20b a\n  b"),
        ("{{ range(2, 6, 2) }}", [2, 4]),
        ("{{ dict(a=1) }}", {"a": 1}),
        ("{{ {1: 2} }}", {"1": 2}),
        ("{{ (1, 2) }}", [1, 2]),
    ],
)
def test_render(source, value):
    result = render(source)
    assert result == value
    assert type(result) is type(value)


def test_prompt_of_the_specification():
    source = (
        "Fix this JSON based on the validation errors:\n\n"
        "Original: {{ state.reflection_output | tojson }}\n\nErrors:\n"
        "{% for error in state.reflection_errors %}\n- {{ error.message }}\n{% endfor %}\n"
    )
    assert render(source) == (
        "Fix this JSON based on the validation errors:\n\n"
        'Original: {"name": "Jörg", "tags": ["<a>", "\'"]}\n\nErrors:\n'
        "\n- too old\n\n- bad\n\n"
    )


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("a\n{{ x", 2, "unexpected end of template, expected 'end of print statement'"),
        ("{{ a b }}", 1, "unexpected 'b'"),
        ("\n{{ a = 1 }}", 2, "to compare, write '==' instead of '='"),
        ("\n{% if a %}", 2, "to be closed is 'if'"),
        ("{% endif %}", 1, "unknown tag 'endif'"),
        ("{% nope %}", 1, "unknown tag 'nope'"),
        ("{{ 'a }}", 1, "unexpected char"),
        ("\n\n{{ a | tojsn }}", 3, "unknown filter 'tojsn'; did you mean 'tojson'?"),
        ("{{ a is defned }}", 1, "unknown test 'defned'; did you mean 'defined'?"),
        ("x\n{% include 'a' %}", 2, "'{% include %}' is not allowed"),
        ("{{ a._b }}", 1, "begin with '_' can't be read: '_b'"),
        ("{% if a %}\n{{ 1e999 }}{% endif %}", 2, "a number is too large"),
        ("{{ [-1e999] }}", 1, "a number is too large"),
        ("{{ state.none() }}", 1, "there is no method 'none'"),
        (
            "\n{{ state.items.append(1) }}",
            2,
            "there is no method 'append' that a template may call; a template can't",
        ),
        (
            "{{ 'a {}'.format(1) }}",
            1,
            "there is no method 'format' that a template may call; write '~' between",
        ),
        ("{{ a.uper() }}", 1, "did you mean 'upper'?"),
        ("\n{{ a | pprint }}", 2, "unknown filter 'pprint'; write 'tojson(indent=2)'"),
        ("{{ a | attr('x') }}", 1, "unknown filter 'attr'; write 'x.name' or 'x[name]'"),
        ("{{ '%s' % a }}", 1, "'%' does not format strings"),
    ],
)
def test_invalid_template_names_the_line(source, line, message):
    with pytest.raises(TemplateError) as caught:
        Template(source)
    assert caught.value.line == line
    assert message in caught.value.message
    assert str(caught.value) == f"line {line}: {caught.value.message}"
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        (
            "{{ state.user.email }}",
            1,
            "state.user.email: 'user' has no 'email'; expected one of 'name', 'items', '_x'.",
        ),
        ("{{ state.user.nam }}", 1, "state.user.nam: 'user' has no 'nam'; did you mean 'name'?"),
        ("\n\n{{ state.usr.email }} x", 3, "state.usr: 'state' has no 'usr'; did you mean 'user'?"),
        ("{{ state['user']['email'] }}", 1, "state.user.email: 'user' has no 'email'"),
        ("{{ state.user.name.first }}", 1, "state.user.name.first: 'name' is a text and has no 'first'"),
        ("{{ state.nothing.x }}", 1, "state.nothing.x: 'nothing' is null and has no 'x'"),
        ("{{ state.items[7] }}", 1, "there is no [7] in a list of 2"),
        ("{{ env.HOME }}", 1, "env.HOME: 'env' has no 'HOME'; it is empty."),
        ("{{ stat.x }}", 1, "there is no 'stat'; did you mean 'state'?"),
        (
            "{% for e in state.reflection_errors %}\n{{ e.mesage }}{% endfor %}",
            2,
            "e.mesage: 'e' has no 'mesage'",
        ),
        ("{% if state.none == 1 %}{% endif %}", 1, "'state' has no 'none'"),
        ("{% for x in state.none %}{% endfor %}", 1, "'state' has no 'none'"),
        ("{{ state.none }}", 1, "'state' has no 'none'"),
        ("{{ state.none and 1 }}", 1, "'state' has no 'none'"),
        ("{{ state.none | safe }}", 1, "'state' has no 'none'"),
        ("{{ state.none | tojson }}", 1, "'state' has no 'none'"),
        ("{{ state.none | upper }}", 1, "'state' has no 'none'"),
        ("{{ [state.none] }}", 1, "'state' has no 'none'"),
        ("{{ state.none ~ 1 }}", 1, "'state' has no 'none'"),
        ("{{ state.none + 1 }}", 1, "'state' has no 'none'"),
        ("{{ 1 + 'a' }}", 1, "unsupported operand"),
        ("{{ 1 // 0 }}", 1, "by zero"),
        ("\n{{ 'abcdef' | truncate(1) }}", 2, "expected length >= 3, got 1"),
        ("{{ [1, 'a'] | sort }}", 1, "not supported"),
        ("{{ 'no json' | fromjson }}", 1, "'fromjson': The reply holds no JSON"),
        ("{{ '[1] [2]' | fromjson }}", 1, "different JSON values"),
        ("{{ [1] | fromjson }}", 1, "'fromjson' takes a string, got [1]"),
        ("{{ 1 | tojson(99) }}", 1, "a number from 0 to 8, got 99"),
        ("{{ state.items.upper() }}", 1, "a list has no method 'upper' that a template may call"),
    ],
)
def test_render_errors_name_the_line(source, line, message):
    with pytest.raises(TemplateError) as caught:
        render(source)
    assert message in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("source", "paths", "optional"),
    [
        ("text", [], []),
        ("{{ state.user.email }}", ["state.user.email"], []),
        ("{{ state['user'].x[0] }}", ["state.user.x.0"], []),
        ("{{ state.a | default(env.B) }}", ["state.a", "env.B"], ["state.a"]),
        ("{% if state.a is defined %}{{ state.a }}{% endif %}", ["state.a"], ["state.a"]),
        ("{{ state.get('a', variables.b) }}", ["state.a", "variables.b"], ["state.a"]),
        ("{% for e in state.errors %}{{ e.message }}{{ loop.index }}{% endfor %}", ["state.errors"], []),
        ("{{ state[variables.key] }}", ["state", "variables.key"], []),
        ("{{ state.name.upper() }}", ["state.name"], []),
        ("{% set x = state.a %}{{ x.b }}{{ range(3) }}", ["state.a"], []),
        ("{% macro m(a) %}{{ a.b }}{{ state.c }}{% endmacro %}{{ m(1) }}", ["state.c"], []),
        ("{{ state | tojson }}", ["state"], []),
        ("{{ state.a[state.i:] }}", ["state.a", "state.i"], []),
    ],
)
def test_paths_and_required(source, paths, optional):
    template = Template(source)
    assert {".".join(map(str, path)) for path in template.paths} == set(paths)
    assert {".".join(map(str, path)) for path in template.paths - template.required} == set(optional)
    assert template.scopes == {path.partition(".")[0] for path in paths}


@pytest.mark.parametrize(
    ("source", "certain"),
    [
        ("{{ state.a.b }} {{ state.c.upper() }} {{ state.d | upper }}", ["state.a.b", "state.c", "state.d"]),
        ("{{ state.a | default(state.b) }}", []),
        ("{% if state.a %}{% elif state.b %}{{ state.c }}{% else %}{{ state.d }}{% endif %}", []),
        (
            "{% if state.a == 1 and state.b %}{% endif %}{% if state.c > 1 %}{% endif %}",
            ["state.a", "state.c"],
        ),
        ("{{ state.c if state.b else state.a }}", []),
        ("{{ state.b or state.a }} {{ not state.c }}", []),
        ("{{ state.a or state.b }} {{ state.c and state.d }}", ["state.c"]),
        ("{% for x in state.a %}{{ state.b }}{% else %}{{ state.c }}{% endfor %}", ["state.a"]),
        ("{% macro m() %}{{ state.a }}{% endmacro %}{{ state.b }}", ["state.b"]),
        ("{{ state.a is none }} {% set x = state.b %} {% with y = state.c %}{% endwith %}", []),
        ("{{ state.get('a', state.b) }}", []),
        ("{% if 'a' in state %}{{ state.a }}{% endif %}", ["state"]),
    ],
)
def test_certain_paths_are_read_whatever_the_values_are(source, certain):
    assert {".".join(map(str, path)) for path in Template(source).certain} == set(certain)
    if not certain:
        Template(source).render({"state": {"a": 1}})


@pytest.mark.parametrize(
    ("source", "mentions"),
    [
        ("{{ state.reflection_output | tojson }}", True),
        ("{{ state['reflection_output'].name }}", True),
        ("{{ state.get('reflection_output') }}", True),
        ("{{ state | tojson }}", True),
        ("{% set s = state %}{{ s.reflection_output }}", True),
        ("{{ state.reflection_outputs }}", False),
        ("{# {{ state.reflection_output }} #}", False),
        ("state.reflection_output", False),
        ("{{ variables.reflection_output }}", False),
    ],
)
def test_mentions(source, mentions):
    assert Template(source).mentions("state.reflection_output") is mentions


def test_rendering_is_reentrant():
    import threading

    template = Template("{% for i in range(200) %}{{ i + state.n }},{% endfor %}")
    results = {}

    def work(n):
        results[n] = [template.render({"state": {"n": n}}) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, rendered in results.items():
        assert set(rendered) == {"".join(f"{i + n}," for i in range(200))}


def test_small_template_is_fast():
    template = Template("Hello {{ state.user.name }}, {{ state.n }}!")
    template.render(SCOPES)
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for _ in range(200):
            template.render(SCOPES)
        best = min(best, (time.thread_time() - began) / 200)
    assert best < 100e-6


def test_plain_text_does_not_load_jinja():
    use = "from redraft.text.templates import Template; Template('x').render({})"
    code = f"import sys; {use}; print('jinja2' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


STATE_UNDER_ATTACK = {
    "name": "Ada",
    "list": [1, 2, 3],
    "user": {"name": "Ada", "tags": ["x"]},
    "deep": {"a": {"b": {"c": [{"d": 1}]}}},
    "text": "x" * 10_000,
    "big": "y" * 900_000,
    "many": list(range(50_000)),
}
SCOPES_UNDER_ATTACK = {"state": STATE_UNDER_ATTACK, "variables": {}, "env": {"HOME": "/nowhere"}}
SECONDS = 0.2
GRACE = 2.0  # the collector of a whole suite may look through all it holds meanwhile

TOO_MUCH = TemplateLimitError
REFUSED = TemplateError

DOUBLE = "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
DOUBLE_TEXT = "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}"

ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ state.__class__.__mro__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ state.name.__init__.__globals__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ state|attr('pop') }}",
    "{{ ['']|map(attribute='__class__')|list }}",
    "{{ ['']|map('attr', '__class__')|list }}",
    "{{ ['']|groupby('__class__')|list }}",
    "{{ ['', 'a']|sort(attribute='__class__') }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0.__class__}'.format_map({}) }}",
    "{{ ('{0.__class__}'|safe).format(1) }}",
    "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
    "{{ ['{0.__class__}']|map('format', 1)|list }}",
    "{{ '%s'|format(1) }}",
    "{{ '%(x)s' % {'x': 1} }}",
    "{{ self }}",
    "{{ self._TemplateReference__context }}",
    "{{ self['_TemplateReference__context'] }}",
    "{% macro m() %}{% endmacro %}{{ m.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m['_func'] }}",
    "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}",
    "{% for x in [1] %}{{ loop['_iterator'] }}{% endfor %}",
    "{% for x in [1] %}{{ loop['cycle'] }}{% endfor %}",
    "{{ namespace.__init__ }}",
    "{{ namespace(a=1)['__class__'] }}",
    "{{ namespace(a=1)['_Namespace__attrs'] }}",
    "{{ range.__class__ }}",
    "{{ dict.__base__ }}",
    "{{ dict.fromkeys([1]) }}",
    "{{ cycler.__init__ }}",
    "{{ joiner.__init__ }}",
    "{{ lipsum.__globals__['os'] }}",
    "{{ config }}",
    "{{ request }}",
    "{{ open('/etc/passwd') }}",
    "{{ env.PATH }}",
    "{{ state.list.append(4) }}",
    "{{ state.list.extend([4]) }}",
    "{{ state.list.sort() }}",
    "{{ state.list.clear() }}",
    "{{ state.list.pop() }}",
    "{{ state['list'].append(4) }}",
    "{% set add = state.list.append %}{{ add(4) }}",
    "{{ state.update({'name': 'Eve'}) }}",
    "{{ state.user.pop('name') }}",
    "{{ state.user.setdefault('x', 1) }}",
    "{{ state.user.popitem() }}",
    "{% set state.name = 'Eve' %}",
    "{% set state['name'] = 'Eve' %}",
    "{{ state.name() }}",
    "{{ (state.get)('name') }} {{ state.list() }}",
    "{{ _kept(1) }}",
    "{{ _each([1]) }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{% autoescape true %}{{ state.name }}{% endautoescape %}",
    "{% for x in [[1]] recursive %}{{ loop(x) }}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set loop = 1 %}",
    "{% macro m(a, a) %}{% endmacro %}",
    "{{ [range] }}",
    "{{ {'a': namespace(b=1)} }}",
    "{{ state.name.encode() }}",
    "{{ state.name.translate({}) }}",
]

BOMBS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "{% for a in range(10**9) %}x{% endfor %}",
    "{{ range(10**9)|list }}",
    "{{ range(10**30) }}",
    "{{ range(99999)|list|tojson }}{{ range(10**12)|length }}",
    "{{ 'x' * 10**9 }}",
    "{{ 10**9 * 'x' }}",
    "{{ [0] * 10**9 }}",
    "{{ (0,) * 10**9 }}",
    "{{ 'x' * 3_000_000_000 }}",
    "{{ 9**(9**9) }}",
    "{{ 2**(2**20) }}",
    "{{ (10**64)**64**64 }}",
    "{{ 10**60 * 10**60 * 10**60 * 10**60 ** 60 }}",
    "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}",
    "{% set n = namespace(x=3) %}{% for i in range(99999) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
    "{{ 'x'|center(10**9) }}",
    "{{ 'x'.center(10**9) }}",
    "{{ 'x'.ljust(10**9) }}",
    "{{ 'x'.zfill(10**9) }}",
    "{{ '\t'.expandtabs(10**9) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%*d'|format(10**9, 1) }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ state.text|indent(10**9) }}",
    "{{ (('x\n' * 50000)|indent(9999)) }}",
    "{{ (('x\n' * 50000)|indent('y' * 9999)) }}",
    "{{ state.big.replace('y', 'z' * 999) }}",
    "{{ state.big|replace('', 'z' * 999) }}",
    "{{ state.many|join('x' * 9999) }}",
    "{{ ('x' * 9999).join(state.many) }}",
    "{{ range(9999)|map('string')|map('center', 9999)|join }}",
    "{{ state.many|map('center', 9999)|list }}",
    "{{ state.many|batch(10**9, 'x')|list }}",
    "{{ state.many|slice(10**9)|list }}",
    "{{ [state.many, state.many]|sum(start=[]) }}",
    "{{ ['x']|sum(start='') }}",
    "{{ 1.5|round(10**9) }}",
    "{{ state.big ~ state.big ~ state.big }}",
    "{{ state.big + state.big }}",
    "{{ state.big }}{{ state.big }}",
    "{% for i in range(99) %}{{ state.big }}{% endfor %}",
    "{% for i in range(99999) %}" + "x" * 50_000 + "{% endfor %}",
    "{% set x %}{% for i in range(99999) %}" + "x" * 50_000 + "{% endfor %}{% endset %}",
    "{% macro m() %}"
    + "x" * 50_000
    + "{% endmacro %}{% for i in range(9999) %}{% if m() %}{% endif %}{% endfor %}",
    "{% macro a(f, g) %}{{ f(g, f) }}{{ f(g, f) }}{% endmacro %}{{ a(a, a) }}",
    "{% macro a(f) %}{{ f(f) }}{% endmacro %}{{ a(a) }}",
    "{% macro a(n) %}{% for i in range(99) %}{{ n }}{% endfor %}{% endmacro %}{{ a(a(a(a('x' * 99)))) }}",
    "{% call(x) m() %}{% endcall %}{{ lipsum(10**6) }}",
    "{{ lipsum(n=10**6) }}",
    DOUBLE + "{{ n.x }}",
    DOUBLE + "{{ n.x|tojson }}",
    DOUBLE + "{{ n.x|string|length }}",
    DOUBLE + "{{ n.x == n.x }}",
    DOUBLE.replace("[n.x, n.x]", "{'a': n.x, 'b': n.x}") + "{{ n.x }}",
    DOUBLE.replace("[n.x, n.x]", "(n.x, n.x)") + "{{ n.x }}",
    DOUBLE.replace("[n.x, n.x]", "dict(a=n.x, b=n.x)") + "{{ n.x }}",
    DOUBLE.replace("[n.x, n.x]", "n.x + n.x") + "{{ n.x }}",
    DOUBLE.replace("[n.x, n.x]", "n.x * 2") + "{{ n.x }}",
    DOUBLE.replace("60", "99999").replace("[n.x, n.x]", "[n.x]") + "{{ n.x }}",
    DOUBLE.replace("60", "5000").replace("[n.x, n.x]", "[n.x]") + "{{ n.x }}",
    DOUBLE_TEXT + "{{ n.x }}",
    DOUBLE_TEXT.replace("n.x ~ n.x", "n.x + n.x") + "{{ n.x }}",
    DOUBLE_TEXT.replace("n.x ~ n.x", "n.x|replace('a', 'aa')") + "{{ n.x }}",
    DOUBLE_TEXT.replace("n.x ~ n.x", "[n.x, n.x]|join") + "{{ n.x }}",
    DOUBLE_TEXT.replace("n.x ~ n.x", "n.x|tojson") + "{{ n.x }}",
    DOUBLE_TEXT.replace("n.x ~ n.x", "n.x|urlencode * 3") + "{{ n.x }}",
    "{% for i in range(99999) %}{% set x = state.many|sort|reverse|list %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = state.many == state.many|list %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = state.many|unique|list|length %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = state.big|upper %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = state.big|title %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = 'z' in state.big %}{% endfor %}",
    "".join(f"{{% set a{i} = state.many[1:] %}}" for i in range(900)),
    "".join(f"{{% set a{i} = 'x' * 999999 %}}" for i in range(900)),
    "".join(f"{{% set a{i} = state.big[1:] %}}" for i in range(900)),
    "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "{{ " + "[" * 20_000 + "1" + "]" * 20_000 + " }}",
    "{{ " + "not " * 20_000 + "1 }}",
    "{{ 1" + " + 1" * 20_000 + " }}",
    "{{ 1" + " ~ 1" * 20_000 + " }}",
    "{{ state" + ".a" * 20_000 + " }}",
    "{{ state" + "|list" * 20_000 + " }}",
    "{{ " + "9" * 20_000 + " }}",
    "{% if 1 %}" * 2_000 + "{% endif %}" * 2_000,
    "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "{{ 1 }}" * 50_000,
    "{#" * 50_000,
    "{{" * 50_000,
    "{%" * 50_000,
    "{% raw %}" * 20_000,
    "{{ '" + "\\" * 50_000 + " }}",
    "x" * 300_000 + "{{ 1 }}",
]


def attempt(source):
    return Template(source).render(SCOPES_UNDER_ATTACK, TemplateLimits(seconds=SECONDS))


@pytest.mark.parametrize("source", ESCAPES)
def test_only_data_is_reachable(source):
    before = copy.deepcopy(STATE_UNDER_ATTACK)
    with pytest.raises(REFUSED):
        attempt(source)
    assert before == STATE_UNDER_ATTACK


@pytest.mark.parametrize("source", BOMBS, ids=lambda source: source[:60])
def test_work_and_output_are_bounded(source):
    began = time.thread_time()
    with pytest.raises(REFUSED):
        attempt(source)
    assert time.thread_time() - began < SECONDS + GRACE


@pytest.mark.parametrize(
    ("source", "limits", "message"),
    [
        ("{{ 'x' * 50 }}{{ 'x' * 60 }}", TemplateLimits(output=100), "writes more than 100 characters"),
        ("{{ 'x' * 101 }}", TemplateLimits(output=100), "101 characters or items is too large; at most 100"),
        (
            "{% for i in range(8) %}{% set x = 'x' * 101 %}{% endfor %}",
            TemplateLimits(output=100),
            "too large",
        ),
        (
            "{% for i in range(9) %}{% set x = 'x' * 99 %}{% endfor %}",
            TemplateLimits(output=100),
            "more than 800",
        ),
        ("{% for i in range(9) %}{{ i }}{% endfor %}", TemplateLimits(steps=10), "more than 10 steps"),
        ("{% for i in range(99) %}{{ i }}{% endfor %}", TemplateLimits(seconds=0), "longer than 0 s"),
        ("{{ range(11) }}", TemplateLimits(steps=10), "a range is too long; at most 10"),
    ],
)
def test_limits_are_named(source, limits, message):
    with pytest.raises(TemplateLimitError, match=message):
        Template(source).render(SCOPES_UNDER_ATTACK, limits)


def test_values_are_copies():
    state = {"user": {"tags": ["x"]}}
    user = Template("{{ state.user }}").render({"state": state})
    user["tags"].append("y")
    held = Template("{{ [state.user, state.user.tags] }}").render({"state": state})
    held[0]["tags"].append("z")
    held[1].append("z")
    assert state == {"user": {"tags": ["x"]}}


@pytest.mark.parametrize("value", [object(), len, {1, 2}, b"x", type, float("nan"), [object()], {"a": len}])
@pytest.mark.parametrize(
    "source", ["{{ state.x }}", "a {{ state.x }}", "{{ state.x|tojson }}", "{{ state.x() }}"]
)
def test_values_that_are_not_data(source, value):
    with pytest.raises(TemplateError):
        Template(source).render({"state": {"x": value}})
