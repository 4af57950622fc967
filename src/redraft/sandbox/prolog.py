"""Prolog: Trealla as WebAssembly, with a fresh instance for each script."""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
import re
import secrets
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, cast

import wasmtime
from wasmtime import _ffi as ffi  # the only way to pass stdin from memory

from redraft.sandbox.answers import failure, out_of_memory, success, timed_out, too_much_output
from redraft.text.json import unique_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redraft.sandbox.answers import Answer
    from redraft.sandbox.worker import ShutIn

_TREALLA = Path(__file__).parent / "trealla"
_ADDRESS_SPACE = 32 << 30
_OTHERS = 0o077
_ALMOST = 0.8
"""The share of the limit at which memory counts as full: the interpreter allocates large pieces."""

_NO_VERDICT = {
    "failed": "returned no verdict: evaluate(Result) failed",
    "none": "returned no verdict: define evaluate(Result), or valid, score(S), error(M)",
}
_KEYED = ("state", "variables", "env")
"""Names whose entries become facts with two arguments; any other name becomes a fact with one argument."""
_SYNTAX = re.compile(r"Error: (?P<what>.*?)(?:, user:(?P<line>\d+))?$", re.MULTILINE)
_PROMPTED = "   false.\n"
"""The end of the output if the interpreter treated unread source as queries."""


def start(options: dict[str, Any], shut_in: ShutIn) -> Callable[[dict[str, Any]], Answer]:
    """Compile the interpreter, or load it from the cache, and shut this process in.

    Returns the function that answers orders.
    """
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    module = compiled(engine, (_TREALLA / "trealla.wasm").read_bytes(), options["cache"])
    prelude = (_TREALLA / "prelude.pl").read_text("utf-8")
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    for required in module.imports:  # two functions that only matter with a JavaScript host
        if required.module == "trealla" and required.name and isinstance(required.type, wasmtime.FuncType):
            linker.define_func(required.module, required.name, required.type, lambda *_arguments: 0)
    # The first instance creates the shared memory image, which the walls would refuse.
    linker.instantiate(wasmtime.Store(engine), module)
    shut_in(address_space=_ADDRESS_SPACE)
    return lambda order: _Run(engine, order["limits"]).answer(linker, module, _program(prelude, order))


def compiled(engine: wasmtime.Engine, source: bytes, cache: str | None) -> wasmtime.Module:
    """Compile a WebAssembly module to machine code, or load it from `cache`; see `private_cache`.

    A cached module is used only if this engine made it, and its file is private to this user.
    """
    if cache is None:
        return wasmtime.Module(engine, source)
    name = hashlib.sha256(source).hexdigest()[:16]
    path = Path(cache) / f"trealla-{name}-wasmtime-{version('wasmtime')}"
    with suppress(OSError, wasmtime.WasmtimeError):  # not cached yet, or compiled on another machine
        return wasmtime.Module.deserialize(engine, _read(path))
    module = wasmtime.Module(engine, source)
    with suppress(OSError):  # a full disk: the next start has to compile again
        _write(path, bytes(module.serialize()))
    return module


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 (read the same file that was checked)
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            raise PermissionError(f"{path} is not private")
        return file.read()


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 (takes a descriptor)
            file.write(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _program(prelude: str, order: dict[str, Any]) -> tuple[str, str]:
    """The interpreter's stdin, and the nonce that frames the verdict in its output."""
    nonce = secrets.token_hex(12)
    facts = "\n".join(fact for name, value in order["names"].items() for fact in _facts(name, value))
    return (
        f"{prelude}\n'$nonce'('{nonce}').\n{facts}\nend_of_file.\n{order['source']}\n'$loaded'.\n",
        nonce,
    )


def _facts(name: str, value: Any) -> Iterator[str]:
    if name in _KEYED and isinstance(value, dict):
        yield f":- dynamic({_atom(name)}/2)."
        for key, item in cast("dict[str, Any]", value).items():
            yield f"{_atom(name)}({_atom(key)}, {_term(item)})."
    else:
        yield f"{_atom(name)}({_term(value)})."


def _term(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str):
        return _atom(value)
    if isinstance(value, list):
        return f"[{','.join(map(_term, cast('list[Any]', value)))}]"
    pairs = cast("dict[str, Any]", value).items()
    return f"json([{','.join(f'{_atom(key)}={_term(item)}' for key, item in pairs)}])"


def _number(value: float) -> str:
    text = repr(value)
    if isinstance(value, float) and "." not in text:
        text = text.replace("e", ".0e")
    return f"({text})" if math.copysign(1, value) < 0 else text


def _atom(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):x}\\", quoted) + "'"


class _Run:
    """A script in an instance of its own."""

    def __init__(self, engine: wasmtime.Engine, limits: dict[str, Any]) -> None:
        self._engine, self._limits = engine, limits
        self._output = bytearray()
        self._max_output = 4 * (limits["output_chars"] + limits["result_chars"]) + 1024
        self._overflowed = False

    def answer(self, linker: wasmtime.Linker, module: wasmtime.Module, program: tuple[str, str]) -> Answer:
        text, nonce = program
        store = wasmtime.Store(self._engine)
        store.set_limits(memory_size=self._limits["memory_mb"] << 20, instances=1, tables=10, memories=1)
        store.set_epoch_deadline(1)
        store.set_wasi(self._wasi(text.encode(errors="replace")))
        timer = Timer(self._limits["seconds"], self._engine.increment_epoch)
        timer.start()
        trap: wasmtime.Trap | None = None
        memory = 0
        try:
            exports = linker.instantiate(store, module).exports(store)
            try:
                main = exports["_start"]
                if isinstance(main, wasmtime.Func):
                    main(store)
            except wasmtime.ExitTrap:  # halt, called by the script or by our prelude
                pass
            except wasmtime.Trap as error:
                trap = error
            if isinstance(exported := exports["memory"], wasmtime.Memory):
                memory = exported.data_len(store)
        finally:
            timer.cancel()
            timer.join()  # so that it can't stop the next script
            store.close()
        return self._outcome(trap, nonce, full=memory > _ALMOST * (self._limits["memory_mb"] << 20))

    def _wasi(self, stdin: bytes) -> wasmtime.WasiConfig:
        wasi = wasmtime.WasiConfig()
        wasi.argv = ["tpl", "-q", "-g", "consult(user), '$run', halt"]
        wasi.stdout_custom = self._write
        wasi.stderr_custom = len
        buffer = (ctypes.c_ubyte * len(stdin)).from_buffer_copy(stdin)
        vector = ffi.wasm_byte_vec_t()
        start = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ubyte))
        ffi.wasm_byte_vec_new(ctypes.byref(vector), len(stdin), start)
        ffi.wasi_config_set_stdin_bytes(wasi.ptr(), ctypes.byref(vector))
        return wasi

    def _write(self, data: bytes) -> int:
        if len(self._output) + len(data) > self._max_output:
            self._overflowed = True
            self._engine.increment_epoch()
        else:
            self._output += data
        return len(data)

    def _outcome(self, trap: wasmtime.Trap | None, nonce: str, *, full: bool) -> Answer:
        limits = self._limits
        if not self._overflowed and trap is not None and trap.trap_code == wasmtime.TrapCode.INTERRUPT:
            return timed_out(limits)
        printed, *framed = self._output.decode(errors="replace").split(nonce, 2)
        if self._overflowed or len(printed) > limits["output_chars"]:
            return too_much_output(limits)
        if len(framed) > 1:  # the verdict between two nonces, and the output after it
            kind, _, text = framed[0].partition(" ")
        else:
            kind, text = "failed" if full or trap is not None else "unread", ""
        if kind == "gave":
            return _success(text, printed, limits)
        if kind == "failed" and (full or trap is not None):  # goals fail when memory runs out
            return out_of_memory(limits)
        return _unread(printed) if kind == "unread" else _no_verdict(kind, text, limits)


def _success(text: str, printed: str, limits: dict[str, Any]) -> Answer:
    try:
        return success(json.loads(text, object_pairs_hook=unique_members), printed, limits)
    except (ValueError, RecursionError) as error:
        return failure("script", f"returned a value that is not JSON: {error}")


def _no_verdict(kind: str, text: str, limits: dict[str, Any]) -> Answer:
    if kind != "raised":
        return failure("script", _NO_VERDICT[kind])
    problem = json.loads(text)
    if "resource_error(memory)" in problem:
        return out_of_memory(limits)
    return failure("script", f"raised {problem}")


def _unread(printed: str) -> Answer:
    """Answer for source that was not read: the interpreter drops all of it if a part is invalid."""
    if problem := _SYNTAX.search(printed):
        line = problem["line"]
        return failure("script", f"could not be read: {problem['what']}", int(line) if line else None)
    if printed.endswith(_PROMPTED):
        return failure(
            "script", "was not read to its end: a directive failed, or a quote or comment is not closed"
        )
    return failure("script", "ended without a verdict: it halted")
