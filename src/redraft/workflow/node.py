"""Run one node: in its time, again after a failure, and for each item of its list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from types import NoneType
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import describe_error, to_json
from redraft._steps import step_context
from redraft._tasks import end_tasks
from redraft._texts import short_repr
from redraft.errors import (
    ChangedRunError,
    ConfigError,
    ModelError,
    RedraftError,
    StoreError,
    UnfinishedError,
    WorkflowError,
    over_budget,
)
from redraft.loop.budget import OPTIONS, Budget, StepBudget, Tally, enclosing_budget
from redraft.redact.log import logger
from redraft.text.templates import braced
from redraft.types import NOTHING_USED, TokenUsage
from redraft.workflow.approval import WaitingForAnswer
from redraft.workflow.runtime import TRY, ActionResult, Resources, run_code
from redraft.workflow.spec import APPROVE, CONTINUE, LOOP, PARAMS, Node

if TYPE_CHECKING:
    from redraft.workflow.runtime import Scope

NODE = "node "
"""The prefix of a node's name in the journal."""
ITEM_STEP = "item "
"""The prefix of the name of an item's step within a node's."""
DEFAULT_TIMEOUT = 3_600.0
"""Seconds for a try of a built-in action without a `timeout`, so that no silent provider hangs a node."""


@dataclass(frozen=True, slots=True)
class NodeRunner:
    """One visit of a node.

    With a `map`, each item is a step of its own within the node's, so that a resumed run repeats no item that
    has finished. `on_item(index, count, error)` is called as items end; the error is empty if there is none.
    """

    node: Node
    resources: Resources
    on_item: Callable[[int, int, str], None]

    async def __call__(self, scope: Scope) -> ActionResult:
        """Run the node, and return its value; raises the error of its last try."""
        node = self.node
        if node.map is None:
            return await self._with_retries(scope)
        return await Items(self._items(scope), node).run(self._with_retries, scope, self.on_item)

    def _items(self, scope: Scope) -> list[Any]:
        source = self.node.map
        items = scope.render(braced(source) if isinstance(source, str) else source)
        if not isinstance(items, list):
            raise ConfigError(f"map: expected a list, got {short_repr(items)}.")
        return cast("list[Any]", items)

    async def _with_retries(self, scope: Scope) -> ActionResult:
        """Run the node, and again after a failure while it has `retries` left.

        Each try is a step, so that a resumed run goes on with the next one.
        """
        retry, used, failures = self.node.retry, NOTHING_USED, 0
        if retry.attempts == 1:
            return await self._in_time(scope)

        def next_wait(error: Exception, _wait: float | None) -> float | None:
            nonlocal used, failures
            used, failures = used + usage_of(error), failures + 1
            if failures == retry.attempts or not _may_retry(error):
                if isinstance(error, RedraftError):
                    error.usage = used
                return None
            wait, why = retry.backoff(failures, error), describe_error(error)
            logger.warning("The node %r failed and will be retried in %.1f s: %s", self.node.name, wait, why)
            return wait

        step = step_context.get().step

        async def wait(seconds: float) -> None:
            await step("wait", NoneType, asyncio.sleep, seconds)

        result = await retry.run(
            step, TRY, ActionResult, self._in_time, scope, on_failure=next_wait, sleep=wait
        )
        return ActionResult(result.value, used + result.usage)

    async def _in_time(self, scope: Scope) -> ActionResult:
        """Run the action or the code once; raises `UnfinishedError` when its time is over."""
        node = self.node
        seconds = node.timeout or (DEFAULT_TIMEOUT if node.action in PARAMS else None)
        if seconds is None:
            return await self._execute(scope)
        # The loop of a node takes this for its own budget, and ends with its best attempt.
        names = {**OPTIONS, "seconds": "timeout"}
        tally = Tally(Budget(seconds=seconds), outer=enclosing_budget(), options=names)
        budget = StepBudget(tally, f"{NODE}{node.name}")
        return await budget.bounding(budget.timed(self._execute, scope))

    async def _execute(self, scope: Scope) -> ActionResult:
        node = self.node
        if node.run is not None:
            return await run_code(node, scope, self.resources)
        resources = self.resources
        if node.action in (APPROVE, LOOP):
            resources = replace(resources, node=node.name)
        result = await resources.run_action(str(node.uses), node.with_, scope)
        return ActionResult(to_json(result.value), result.usage)


@dataclass(slots=True)
class Items:
    """The items of a `map` as they run, some of them at once, and their results in the order of the list.

    `last` is the error after which no further item begins.
    """

    items: list[Any]
    node: Node
    results: list[ActionResult | None] = field(init=False)
    failures: dict[int, Exception] = field(init=False, default_factory=dict[int, Exception])
    waiting: list[WaitingForAnswer] = field(init=False, default_factory=list[WaitingForAnswer])
    last: Exception | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.results = [None] * len(self.items)

    async def run(
        self,
        effect: Callable[[Scope], Awaitable[ActionResult]],
        scope: Scope,
        on_item: Callable[[int, int, str], None],
    ) -> ActionResult:
        """Run all items; return the list of their values.

        An item that fails is None in the list if `on_error` is `continue`. Otherwise no further item begins,
        those under way end, and the first error is raised. Items that wait for a person hold up no other one.
        """
        step, left = step_context.get().step, iter(enumerate(self.items))

        async def work() -> None:
            for index, item in left:
                if self.last is not None:
                    return
                run = partial(effect, scope.for_item(item, index))
                try:
                    self.results[index] = await step(_name(index, item), ActionResult, run)
                except WaitingForAnswer as waiting:
                    self.waiting.append(waiting)
                except Exception as error:  # noqa: BLE001 (`on_error` decides, whatever an item raises)
                    self._fail(index, error)
                    on_item(index, len(self.items), describe_error(error))
                else:
                    on_item(index, len(self.items), "")

        workers = [asyncio.create_task(work()) for _ in range(min(self.node.at_once, len(self.items)))]
        try:
            await asyncio.gather(*workers)
        finally:
            await end_tasks(workers)
        return self._result()

    def _fail(self, index: int, error: Exception) -> None:
        self.failures[index] = error
        if self.last is None and (self.node.on_error != CONTINUE or is_final(error)):
            error.add_note(f"item {index + 1} of {len(self.items)}")
            self.last = error

    def _result(self) -> ActionResult:
        used = sum((result.usage for result in self.results if result is not None), NOTHING_USED)
        used = sum((usage_of(error) for error in self.failures.values()), used)
        values = [None if one is None else one.value for one in self.results]
        if self.last is not None:
            if isinstance(self.last, RedraftError):
                self.last.usage = used
            if isinstance(self.last, UnfinishedError) and any(self.results):
                self.last.partial = values
            raise self.last
        if self.waiting:
            raise WaitingForAnswer.of(self.waiting)
        failures = tuple(
            {"index": index, "type": type(error).__name__, "message": str(error)}
            for index, error in sorted(self.failures.items())
        )
        return ActionResult(values, used, failures)


def _name(index: int, item: Any) -> str:
    """Return the name of an item's step: another item at its place is run, and not taken from the journal."""
    content = json.dumps(item, sort_keys=True).encode()
    return f"{ITEM_STEP}{index} {sha256(content).hexdigest()[:8]}"


def usage_of(error: Exception) -> TokenUsage:
    """Return what was used before an error, as far as it says so."""
    return (error.usage if isinstance(error, RedraftError) else None) or NOTHING_USED


def is_final(error: Exception) -> bool:
    """Return whether an error ends the run, whatever `on_error` says: the journal's, and a spent budget."""
    budget = enclosing_budget()
    is_spent = budget is not None and (budget.tally.exhausted or budget.tally.suspended) is not None
    return isinstance(error, ChangedRunError | StoreError) or (is_spent and over_budget(error))


def _may_retry(error: Exception) -> bool:
    """Return whether another try may succeed: not after a mistake, or if a provider refuses for good."""
    is_refused = isinstance(error, ModelError | WorkflowError) and not error.retryable
    return not (is_refused or is_final(error) or isinstance(error, ConfigError))
