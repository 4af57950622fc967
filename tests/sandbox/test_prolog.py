"""Scripts in Prolog: their values, errors, limits and attacks."""
# ruff: noqa: E501 (a table of snippets: one a line reads better than folded)

from pathlib import Path

import pytest

from redraft.errors import SandboxError, SandboxMemoryError, SandboxTimeoutError, ScriptError
from redraft.sandbox import scripts
from redraft.sandbox.prolog import compiled
from redraft.sandbox.scripts import private_cache
from support.scripts import GRACE, NAMES, alive, attempt, value_of

VALUES = {
    "true": ("evaluate(true).", True),
    "number": ("evaluate(N) :- N is 1 / 2.0.", 0.5),
    "facts": ("evaluate(R) :- output(O), state(name, N), sub_atom(O, _, _, _, N), R = true.", True),
    "object": (
        "evaluate(json([valid=true, score=0.5, errors=[]])).",
        {"valid": True, "score": 0.5, "errors": []},
    ),
    "list of pairs": (
        "evaluate([valid=false, errors=[\"no 'name'\"]]).",
        {"valid": False, "errors": ["no 'name'"]},
    ),
    "parts": (
        'valid :- state(age, A), A > 30.\nscore(0.5).\nerror("too old").',
        {"valid": True, "score": 0.5, "errors": ["too old"]},
    ),
    "parts that fail": (
        "valid :- fail.\nscore(_) :- fail.\nerror(_) :- fail.",
        {"valid": False, "errors": []},
    ),
    "errors alone": ('error("a").\nerror("b").', {"errors": ["a", "b"]}),
    "no errors alone": ("error(M) :- state(missing, M).", {"errors": []}),
    "score alone": ("score(0.25).", {"score": 0.25}),
    "state as it came": ("evaluate(R) :- findall(K=V, state(K, V), R).", NAMES["state"]),
    "nested as it came": ("evaluate(R) :- reflection_output(R).", {**NAMES["reflection_output"], "none": {}}),
    "texts as they came": ("evaluate(R) :- reflection_errors(R).", NAMES["reflection_errors"]),
    "any keys": (
        "evaluate(json([''=1, 'a\\x0\\b'=2, 3=4, 'B \"c\"'=5])).",
        {"": 1, "a\0b": 2, "3": 4, 'B "c"': 5},
    ),
    "value of an object": (
        "evaluate(V) :- reflection_output(O), json_get(O, nested, N), json_get(N, deep, [_, V | _]).",
        2.5,
    ),
    "other term": ("evaluate(point(1, 'B c')).", "point(1,'B c')"),
    "other terms": (
        "evaluate([[a | b], json(x), json([a]), [a=1, b], json([a=1 | b]), a=1]).",
        ["[a|b]", "json(x)", "json([a])", ["a=1", "b"], "json([a=1|b])", "a=1"],
    ),
    "open lists": ("evaluate([json([a=1 | _]), [a=1 | _], [a | _]]).", [{"a": 1}, {"a": 1}, ["a"]]),
    "unbound": ("evaluate(_).", None),
    "list of unbound": ("evaluate([_, 1]).", [None, 1]),
    "first solution": ("evaluate(1).\nevaluate(2).", 1),
    "lambda": ("evaluate(L) :- maplist([X, Y]>>(Y is X * 2), [1, 2, 3], L).", [2, 4, 6]),
    "fold": ("evaluate(S) :- foldl([X, A, B]>>(B is A + X), [1, 2, 3], 0, S).", 6),
    "aggregate": (
        "evaluate([C, M]) :- aggregate_all(count, member(_, [a, b]), C), aggregate_all(max(X), member(X, [1, 3, 2]), M).",
        [2, 3],
    ),
    "texts": (
        "evaluate([A, B, C]) :- string_concat(a, 1, A), upcase_atom(ab, B), atomic_list_concat([x, y], '-', C).",
        ["a1", "AB", "x-y"],
    ),
    "predicates of the library redefined": (
        "append(a, b).\nmember(q, _).\nevaluate(L) :- findall(X, member(X, [1]), L).",
        ["q"],
    ),
    "grammar": (
        "greeting --> [hello], name.\nname --> [world].\nevaluate(true) :- phrase(greeting, [hello, world]).",
        True,
    ),
    "caught": ("evaluate(E) :- catch(atom_length(_, _), error(E, _), true).", "instantiation_error"),
    "assert": (
        ":- dynamic(seen/1).\nevaluate(L) :- assertz(seen(1)), assertz(seen(2)), findall(X, seen(X), L).",
        [1, 2],
    ),
    "large number": ("evaluate(N) :- N is 2 ^ 100.", 2**100),
    "printing": ("evaluate(1) :- write(hello), nl.", 1),
}


@pytest.mark.parametrize(("source", "value"), VALUES.values(), ids=VALUES)
def test_scripts_return_their_value(source, value):
    assert value_of("prolog", source) == value


@pytest.mark.parametrize(
    "number", [1 / 3, 0.1 + 0.2, -0.0, 5e-324, 1.7976931348623157e308, 1e22, 3.0, 3, 2**63]
)
def test_numbers_pass_through_unchanged(number):
    value = value_of("prolog", "evaluate(N) :- state(n, [N]).", names={"state": {"n": [number]}})
    assert repr(value) == repr(number)


LATE, BIG, WRONG = SandboxTimeoutError, SandboxMemoryError, ScriptError
GIVES_UP = (LATE, BIG, WRONG)


def goal(goals):
    """Make a script that evaluates to loot if its goals succeed."""
    return f"evaluate(loot) :- {goals}."


ATTEMPTS = {
    "endless recursion": (goal("evaluate(_)"), GIVES_UP),
    "endless recursion with a rest": (goal("evaluate(_), true"), GIVES_UP),
    "endless growth": ("evaluate(R) :- g([], R).\ng(L, R) :- g([x | L], R).", (BIG, LATE)),
    "endless repeat": (goal("repeat, fail"), LATE),
    "endless repeat that catches": (goal("repeat, catch(throw(x), _, fail)"), LATE),
    "endless between": (goal("between(1, 1000000000, X), X < 0"), LATE),
    "endless cleanup": (goal("setup_call_cleanup(true, fail, (repeat, fail))"), GIVES_UP),
    "endless exceptions": (goal("catch(evaluate(_), _, evaluate(_))"), GIVES_UP),
    "endless solutions": (goal("findall(X, repeat, L), length(L, X)"), (LATE, BIG)),
    "endless directive": (":- repeat, fail.\nevaluate(true) :- fail.", GIVES_UP),
    "endless initialization": (":- initialization((repeat, fail)).\nevaluate(true).", LATE),
    "endless term expansion": (
        "term_expansion(X, Y) :- term_expansion(X, Y).\nfoo.\nevaluate(loot) :- repeat, fail.",
        GIVES_UP,
    ),
    "flood of assertz": (goal("repeat, assertz(x(1, 2, 3)), fail"), (LATE, BIG)),
    "flood of asserta": (goal("between(1, 1000000000, X), asserta(x(X)), fail"), (LATE, BIG)),
    "flood of atoms": (
        goal("between(1, 1000000000, X), number_codes(X, Cs), atom_codes(A, Cs), assertz(y(A)), fail"),
        (LATE, BIG),
    ),
    "long atom": (goal("g(aaaaaaaaaaaaaaaa)") + "\ng(A) :- atom_concat(A, A, B), g(B).", GIVES_UP),
    "long list": (goal("length(L, 100000000), L = [_ | _], fail"), GIVES_UP),
    "long numlist": (goal("numlist(1, 100000000, _), fail"), GIVES_UP),
    "large term": (goal("functor(T, f, 100000000), arg(1, T, _), fail"), GIVES_UP),
    "deep term": (goal("g(a)") + "\ng(T) :- g(f(T, T)).", GIVES_UP),
    "doubling term": (
        "evaluate(R) :- g(60, a, R).\ng(0, T, T) :- !.\ng(N, T, R) :- M is N - 1, g(M, [T, T], R).",
        GIVES_UP,
    ),
    "tower of powers": (goal("X is 9 ^ (9 ^ 9), X < 0"), GIVES_UP),
    "power": (goal("X is 7 ^ 100000000, X < 0"), GIVES_UP),
    "shift": (goal("X is 1 << 100000000000, X < 0"), GIVES_UP),
    "factorial": (goal("g(1, 1)") + "\ng(N, F) :- G is F * N, M is N + 1, g(M, G).", GIVES_UP),
    "sort bomb": (goal("numlist(1, 5000000, L), msort(L, _), fail"), GIVES_UP),
    "copy bomb": (goal("g(f(a))") + "\ng(T) :- copy_term(T-T, U), g(U).", GIVES_UP),
    "a key twice": ("evaluate(json([score = 1, score = 0])).", WRONG),
    "a key twice in a list": ("evaluate([[score = 1, score = 0]]).", WRONG),
    "cyclic term": ("evaluate(X) :- X = [X].", GIVES_UP),
    "cyclic comparison": (goal("X = f(X), Y = f(Y), X == Y, repeat, fail"), GIVES_UP),
    "deep list": (
        "evaluate(R) :- g(500, [], R).\ng(0, T, T) :- !.\ng(N, T, R) :- M is N - 1, g(M, [T], R).",
        WRONG,
    ),
    "nan": ("evaluate(X) :- X is nan.", WRONG),
    "infinity": ("evaluate(X) :- X is inf.", WRONG),
    "overflow": ("evaluate(X) :- X is 10.0 ** 400.", WRONG),
    "rational": ("evaluate(X) :- X is 1 rdiv 3.", WRONG),
    "large result": ("evaluate(L) :- numlist(1, 30000, L).", GIVES_UP),
    "halt": (goal("halt"), WRONG),
    "halt with a code": (goal("halt(3)"), WRONG),
    "halt in a directive": (":- halt.\nevaluate(true) :- fail.", WRONG),
    "halt in an initialization": (":- initialization(halt).\nevaluate(true) :- fail.", WRONG),
    "abort": (goal("abort"), WRONG),
    "throw": (goal("throw(ball)"), WRONG),
    "throw of nothing": (goal("throw(_)"), WRONG),
    "unknown predicate": (goal("foo(1)"), WRONG),
    "failure": (goal("fail"), WRONG),
    "no verdict": ("foo(1).", WRONG),
    "nothing at all": ("", WRONG),
    "no Prolog": ("evaluate( :- .", WRONG),
    "open quote": ("evaluate('true).", WRONG),
    "open comment": ("evaluate(true). /* forgotten", WRONG),
    "end of file": ("end_of_file.\nevaluate(true).", WRONG),
    "builtin redefined": ("write(_) :- true.\nevaluate(true).", WRONG),
    "endless output": (
        goal("repeat, write(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa), fail"),
        SandboxError,
    ),
    "much output": ("evaluate(true) :- numlist(1, 10000, L), write(L).", SandboxError),
    "consult": (goal("consult('/etc/passwd')"), WRONG),
    "load": (goal("load_files(['/etc/passwd'])"), WRONG),
    "include": (":- include('/etc/passwd').\nevaluate(true) :- fail.", WRONG),
    "open": (goal("open('/etc/passwd', read, _)"), WRONG),
    "open to write": (goal("open('/tmp/redraft-attack', write, _)"), WRONG),
    "see": (goal("see('/etc/passwd')"), WRONG),
    "tell": (goal("tell('/tmp/redraft-attack')"), WRONG),
    "read a file": (goal("read_file_to_string('/etc/passwd', _, [])"), WRONG),
    "file exists": (goal("exists_file('/etc/passwd')"), WRONG),
    "folder": (goal("directory_files('/', _)"), WRONG),
    "delete": (goal("delete_file('/etc/passwd')"), WRONG),
    "shell": (goal("shell('id')"), WRONG),
    "shell with a status": (goal("shell('id', 0)"), WRONG),
    "pipe": (goal("popen('id', read, _)"), WRONG),
    "process": (goal("process_create('/bin/id', [], [])"), WRONG),
    "fork": (goal("fork"), WRONG),
    "environment": (goal("getenv('PATH', _)"), WRONG),
    "socket": (goal("client('http://127.0.0.1:80', _, _, _)"), WRONG),
    "server": (goal("server('127.0.0.1:8080', _, [])"), WRONG),
    "http": (goal("use_module(library(http)), http_get('http://127.0.0.1', _, [])"), WRONG),
    "foreign code": (goal("use_foreign_module('libc.so.6', [])"), WRONG),
    "JavaScript": (goal("js_eval('1', _)"), WRONG),
    "host": (goal("'$host_call'('{}', X), atom(X), X == loot"), GIVES_UP),
    "nonce": (goal("'$nonce'(N), write(N), write('gave 1'), halt"), WRONG),
    "forged verdict": (goal("'$nonce'(N), write(N), write('gave ['), write(N), halt"), WRONG),
    "forged failure": (goal("'$nonce'(N), write(N), write('other x'), write(N), halt"), WRONG),
}


@pytest.mark.parametrize(("source", "errors"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_attacks_end_in_a_named_error_in_time(source, errors):
    assert alive("prolog")
    ended, beyond = attempt("prolog", source, errors)
    assert isinstance(ended, errors), repr(ended)
    assert "The Prolog script" in str(ended)
    assert beyond < GRACE


def test_no_state_leaks_between_scripts():
    value_of("prolog", ":- dynamic(left/1).\nevaluate(1) :- assertz(left(1)).")
    with pytest.raises(ScriptError, match="left"):
        value_of("prolog", "evaluate(X) :- left(X).")


def test_the_compiled_interpreter_is_cached_privately(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = private_cache()
    assert folder == str(tmp_path / "redraft" / "prolog")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    Path(folder).chmod(0o755)
    assert private_cache() is None
    Path(folder).rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    Path(folder).symlink_to(tmp_path / "elsewhere")
    assert private_cache() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert private_cache() is None


def test_a_cached_module_is_used_only_if_private_and_intact(tmp_path):
    import wasmtime

    engine = wasmtime.Engine()
    source = bytes(wasmtime.wat2wasm('(module (func (export "f") (result i32) i32.const 7))'))

    def call():
        store = wasmtime.Store(engine)
        return wasmtime.Instance(store, compiled(engine, source, str(tmp_path)), []).exports(store)["f"](
            store
        )

    assert call() == 7
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    whole = kept.read_bytes()
    kept.write_bytes(b"something else")
    assert call() == 7
    assert kept.read_bytes() == whole
    kept.chmod(0o644)
    assert call() == 7
    assert kept.stat().st_mode & 0o777 == 0o600


def test_the_vendored_interpreter_matches_its_readme():
    import hashlib

    folder = Path(scripts.__file__).parent / "trealla"
    digest = hashlib.sha256((folder / "trealla.wasm").read_bytes()).hexdigest()
    assert f"`{digest}`" in (folder / "README.md").read_text("utf-8")
    assert "Permission is hereby granted" in (folder / "LICENSE.trealla").read_text("utf-8")
    assert "Permission is hereby granted" in (folder / "LICENSE.trealla-js").read_text("utf-8")
