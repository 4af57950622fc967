from __future__ import annotations

import copy
import time

import pytest

from redraft.text.templates import Limits, Template, TemplateError, TemplateLimitError

STATE = {
    "name": "Ada",
    "list": [1, 2, 3],
    "user": {"name": "Ada", "tags": ["x"]},
    "deep": {"a": {"b": {"c": [{"d": 1}]}}},
    "text": "x" * 10_000,
    "big": "y" * 900_000,
    "many": list(range(50_000)),
}
SCOPES = {"state": STATE, "variables": {}, "env": {"HOME": "/nowhere"}}
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
    "{{ ['']|selectattr('__class__')|list }}",
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
    return Template(source).render(SCOPES, Limits(seconds=SECONDS))


@pytest.mark.parametrize("source", ESCAPES)
def test_nothing_but_data_is_reached(source):
    before = copy.deepcopy(STATE)
    with pytest.raises(REFUSED):
        attempt(source)
    assert before == STATE


@pytest.mark.parametrize("source", BOMBS, ids=lambda source: source[:60])
def test_work_and_output_are_bounded(source):
    began = time.thread_time()
    with pytest.raises(REFUSED):
        attempt(source)
    assert time.thread_time() - began < SECONDS + GRACE


@pytest.mark.parametrize(
    ("source", "limits", "says"),
    [
        ("{{ 'x' * 50 }}{{ 'x' * 60 }}", Limits(output=100), "writes more than 100 characters"),
        ("{{ 'x' * 101 }}", Limits(output=100), "101 characters or items is too large; at most 100"),
        ("{% for i in range(8) %}{% set x = 'x' * 101 %}{% endfor %}", Limits(output=100), "too large"),
        ("{% for i in range(9) %}{% set x = 'x' * 99 %}{% endfor %}", Limits(output=100), "more than 800"),
        ("{% for i in range(9) %}{{ i }}{% endfor %}", Limits(steps=10), "more than 10 steps"),
        ("{% for i in range(99) %}{{ i }}{% endfor %}", Limits(seconds=0), "longer than 0 s"),
        ("{{ range(11) }}", Limits(steps=10), "a range is too long; at most 10"),
    ],
)
def test_a_limit_names_itself(source, limits, says):
    with pytest.raises(TemplateLimitError, match=says):
        Template(source).render(SCOPES, limits)


def test_what_is_handed_out_is_a_copy():
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
def test_what_is_no_data_is_never_used(source, value):
    with pytest.raises(TemplateError):
        Template(source).render({"state": {"x": value}})
