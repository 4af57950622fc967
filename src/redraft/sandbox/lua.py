"""Lua 5.4: each script runs in a runtime of its own, with an environment that it can't leave."""

from __future__ import annotations

import re
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lupa import lua54

from redraft.sandbox.answers import (
    MAX_DEPTH,
    NotJsonError,
    failure,
    out_of_memory,
    success,
    timed_out,
    too_much_output,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from redraft.sandbox.answers import Answer
    from redraft.sandbox.worker import ShutIn

_TOO_BIG = ("not enough memory", "resulting string too large")
_WHERE = re.compile(r"^script:(\d+): ")


def start(
    options: dict[str, Any],  # noqa: ARG001 (the signature of every language)
    shut_in: ShutIn,
) -> Callable[[dict[str, Any]], Answer]:
    """Shut this process in; return the function that answers orders."""
    environment = Path(__file__).with_suffix(".lua").read_text("utf-8")
    shut_in()
    return partial(_run, environment)


def _run(environment: str, order: dict[str, Any]) -> Answer:
    limits = order["limits"]
    runtime = cast("Any", lua54.LuaRuntime)(  # the type stubs lack half of the parameters
        register_eval=False,
        register_builtins=False,
        unpack_returned_tuples=True,
        attribute_filter=_deny,
        max_memory=limits["memory_mb"] << 20,
    )
    try:
        runtime.globals()["python"] = None
        bounds = [limits["seconds"], limits["output_chars"]]
        run, env, *makers = cast("list[Any]", runtime.execute(environment, *bounds))
        tables = _Tables(limits["result_chars"], runtime.table, *makers)
        for name, value in order["names"].items():
            env[name] = tables.write(value)
        ending, value, printed = cast("tuple[str, Any, str]", run(order["source"]))
        if ending == "returned":
            return success(tables.read(value), printed, limits)
    except lua54.LuaMemoryError:
        return out_of_memory(limits)
    except NotJsonError as error:
        return failure("script", f"returned a value that {error}")
    except (UnicodeDecodeError, lua54.LuaError) as error:
        return failure("script", f"returned a value that can't be converted: {error}")
    if ending == "timeout":
        return timed_out(limits)
    if ending == "output":
        return too_much_output(limits)
    return _failure(ending, value, limits)


def _failure(ending: str, message: str, limits: dict[str, Any]) -> Answer:
    if message.endswith(_TOO_BIG):
        return out_of_memory(limits)
    where = _WHERE.match(message)
    line = int(where[1]) if where else None
    text = message[where.end() :] if where else message
    what = "is not valid Lua" if ending == "syntax" else "raised an error"
    return failure("script", f"{what}: {text}", line)


def _deny(owner: object, name: object, setting: object) -> NoReturn:  # noqa: ARG001 (lupa's signature)
    raise AttributeError("a script can't reach Python objects")


class _Tables:
    """Convert JSON data to Lua tables and back.

    A table remembers whether it was an array or an object, so that an empty array or object stays what it
    was. A table that the script made is an array if it is empty or its keys are 1 to n. `null` represents
    JSON's null in arrays and results. A null in an object from the host reads as nil, but remains among the
    object's `pairs`, and is null again when the object is converted back. Tables have no order: the keys that
    the host wrote come first, in its order, then new keys, sorted. `limit` is the maximum number of
    characters of JSON to read.
    """

    def __init__(
        self,
        limit: int,
        new: Any,
        array: Any,
        object_: Any,
        integer: Any,
        kind: Any,
        null: Any,
        nulls: Any,
    ) -> None:
        self._limit = self._left = limit
        self._new, self._array, self._object, self._integer = new, array, object_, integer
        self._kind, self._null, self._nulls = kind, null, nulls
        self._places: dict[str, int] = {}
        """Each key of the host's objects, with its place in their order."""

    def write(self, value: Any, *, inside_array: bool = False) -> Any:
        if value is None:
            return self._null if inside_array else None
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return self._array(self._new(*(self.write(item, inside_array=True) for item in items)))
        if isinstance(value, dict):
            table, pairs = self._new(), cast("dict[str, Any]", value)
            for key, item in pairs.items():
                self._places.setdefault(key, len(self._places))
                table[key] = self.write(item)
            absent = [key for key, item in pairs.items() if item is None]
            if absent:
                keys = self._nulls[table] = self._new()
                for key in absent:
                    keys[key] = True
            return self._object(table)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return self._integer(str(value))
        return value

    def read(self, value: Any, depth: int = 0) -> Any:
        """Convert a Lua value to JSON data; raises `NotJsonError`, also for more than `limit` characters.

        A value that is referenced twice is read twice, and counts twice.
        """
        self._count(value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        type_name = lua54.lua_type(value) or type(value).__name__
        if type_name != "table":
            raise NotJsonError(f"contains a {type_name}; JSON has boolean, number, string and table")
        kind = self._kind(value)
        if kind == "null":
            return None
        if kind == "integer":
            return int(str(value))
        if depth >= MAX_DEPTH:
            raise NotJsonError(f"is cyclic or too deep: the limit is {MAX_DEPTH} levels")
        items: list[tuple[Any, Any]] = []
        for key, item in value.items():
            if isinstance(key, str):
                self._count(key)
            items.append((key, self.read(item, depth + 1)))
        for key in self._nulls[value] or ():
            if value[key] is None:
                self._count(key)
                items.append((key, None))
        keys = [key for key, _ in items]
        are_indices = all(map(_is_index, keys)) and sorted(keys) == list(range(1, len(keys) + 1))
        if kind != "object" and are_indices:
            return [item for _, item in sorted(items, key=itemgetter(0))]
        if kind == "array":
            raise NotJsonError("contains an array whose keys are not 1 to n")
        pairs, places = {_key(key): item for key, item in items}, self._places
        if len(pairs) < len(keys):
            twice = next(key for key in keys if _is_index(key) and str(key) in keys)
            raise NotJsonError(f"has the keys {twice} and {str(twice)!r}, which are the same in JSON")
        return dict(sorted(pairs.items(), key=lambda pair: (places.get(pair[0], len(places)), pair[0])))

    def _count(self, value: Any) -> None:
        """Count the minimum number of characters of a value; raises `NotJsonError` beyond the limit."""
        self._left -= len(value) + 2 if isinstance(value, str) else 1
        if self._left < 0:
            raise NotJsonError(f"is too large: the limit is {self._limit:,} characters of JSON")


def _is_index(key: Any) -> bool:
    return isinstance(key, int) and not isinstance(key, bool)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if _is_index(key):
        return str(key)
    raise NotJsonError(f"has a key that is a {lua54.lua_type(key) or type(key).__name__}; a key must be text")
