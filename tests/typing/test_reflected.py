"""Types as a type checker sees them: pyright checks this folder in its strict mode, and pytest runs it."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

from redraft import ReflectionResult, ReflectionVersion, reflected


def is_dear(total: dict[str, int]) -> bool:
    return total["euros"] > 1


@reflected(evaluate=is_dear, keep=False)
async def total_as_dict(item: str, feedback: str = "") -> dict[str, int]:
    return {"euros": len(item) if feedback else 1}


@reflected(evaluate=bool, keep=False)
def title(item: str, feedback: str = "") -> str:
    return f"{item}{feedback}"


def test_a_reflected_function_keeps_its_return_type():
    assert assert_type(asyncio.run(total_as_dict("tea")), dict[str, int]) == {"euros": 3}
    result = assert_type(title.run_sync("tea"), ReflectionResult[str])
    assert assert_type(result.best_output, str) == "tea"
    assert assert_type(result.history.versions[0], ReflectionVersion[str]).output == "tea"


def best_of(result: ReflectionResult) -> object:
    """A result whose type is not said may hold anything."""
    return assert_type(result.best_output, Any)


def test_a_result_of_an_unknown_type_is_taken_as_it_is():
    assert best_of(title.run_sync("tea")) == "tea"


class Shop:
    @reflected(evaluate=bool, keep=False)
    def title(self, item: str, feedback: str = "") -> str:
        return f"{item}{feedback}"

    @reflected(evaluate=bool, keep=False)
    async def motto(self, item: str, feedback: str = "") -> str:
        return f"{item}{feedback}"


def test_only_an_async_function_is_awaited():
    assert assert_type(title("tea"), str) == "tea"
    assert assert_type(Shop().title("tea"), str) == "tea"
    assert assert_type(asyncio.run(Shop().motto("tea")), str) == "tea"
