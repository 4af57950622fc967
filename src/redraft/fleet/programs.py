"""Programs: what a fleet can run (agents, workflows, cycles), behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from redraft._codec import from_record
from redraft._steps import is_passing
from redraft._validation import named_error
from redraft.cycles.agent import CycleAgent
from redraft.errors import ConfigError, LeaseError
from redraft.loop.agent import Agent
from redraft.loop.budget import check_prices
from redraft.loop.record import RUN, RunRecord
from redraft.loop.verbs import judge_of, judges_of
from redraft.types import ConvergenceReason
from redraft.workflow.history import WORKFLOW, WorkflowRecord
from redraft.workflow.workflow import Workflow

if TYPE_CHECKING:
    from redraft.stores.base import Store

Runnable: TypeAlias = Agent[Any] | Workflow | CycleAgent


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The end of a job's run."""

    error: str = ""
    """Why the run failed; empty if it did not."""
    may_pass: bool = False
    """Whether another try may succeed."""
    reason: str = ""
    """The `ConvergenceReason` of an agent's run, or of a budget that ended a workflow early; else empty."""
    is_busy: bool = False
    """Whether the job could not run because another run of its program is under way."""
    is_waiting: bool = False
    """Whether the run waits for the answer of a person."""


class Program(ABC):
    """An agent, workflow or cycle, as workers run it by its `name`; `keep` says where its runs are stored."""

    takes_object: ClassVar[bool] = False
    """Whether a task is an object rather than a text."""
    runs_alone: ClassVar[bool] = False
    """Whether at most a single run is under way at a time, on all machines."""

    def __init__(self, name: str, keep: bool | Store = True) -> None:
        self.name = name
        self.keep = keep

    @abstractmethod
    def definition(self) -> object:
        """The content of the program: programs with equal definitions can continue each other's runs."""

    @abstractmethod
    def check(self, task: Any, /, *, priced: bool = False) -> None:
        """Raise `ConfigError` for an unfit task, and, if `priced`, for models without a known price."""

    @abstractmethod
    async def run(self, task: Any, run_id: str, /) -> JobOutcome:
        """Run a task, or resume it."""

    @abstractmethod
    async def result(self, run_id: str, store: Store, /) -> Any:
        """The stored result of a run; None without one."""


def program_of(runnable: Runnable) -> Program:
    """The program of an agent, a workflow or a cycle; raises `ConfigError` for anything else."""
    if isinstance(runnable, Agent):
        return _AgentProgram(runnable)
    if isinstance(runnable, Workflow):
        return _WorkflowProgram(runnable)
    if isinstance(runnable, CycleAgent):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        return _CycleProgram(runnable)
    raise ConfigError(f"A fleet runs an Agent, a Workflow or a CycleAgent; got {runnable!r}.")


class _AgentProgram(Program):
    """An agent: its task is a text, its result a `ReflectionResult`."""

    def __init__(self, agent: Agent[Any]) -> None:
        super().__init__(agent.name, agent.keep)
        self.agent = agent

    def definition(self) -> object:
        return self.agent.definition

    def check(self, task: Any, /, *, priced: bool = False) -> None:
        if not isinstance(task, str) or not task.strip():
            raise ConfigError(f"The task of the agent {self.name!r} must be a text, got {task!r}.")
        if priced:
            pattern, model = self.agent.pattern, self.agent.model
            is_judged = judges_of(pattern, model).signals.judged
            check_prices(model, judge_of(pattern, model) if is_judged else None)

    async def run(self, task: Any, run_id: str, /) -> JobOutcome:
        result = await self.agent.run(task, run_id=run_id)
        for name in ("not_kept", "not_restorable"):  # the result of such a job could not be fetched
            if problem := result.diagnostics.get(name):
                return JobOutcome(problem)
        if result.convergence_reason is not ConvergenceReason.ERROR or result.error is None:
            return JobOutcome(reason=result.convergence_reason.value)
        return failure(result.error, result.convergence_reason.value)

    async def result(self, run_id: str, store: Store, /) -> Any:
        record = await store.get(RUN, run_id)
        return None if record is None else self.agent.result_of(from_record(RunRecord, record.data))


class _WorkflowProgram(Program):
    """A workflow: its task is the initial state, an object."""

    takes_object = True

    def __init__(self, workflow: Workflow) -> None:
        super().__init__(workflow.spec.name, workflow.keep)
        self.workflow = workflow

    def definition(self) -> object:
        return self.workflow.source.text

    def check(self, task: Any, /, *, priced: bool = False) -> None:
        self.workflow.check(task, priced=priced)

    async def run(self, task: Any, run_id: str, /) -> JobOutcome:
        result = await self.workflow.run(task, run_id=run_id)
        if result.waiting:
            return JobOutcome("It waits for the answer of a person.", is_waiting=True)
        return JobOutcome(reason="" if result.stop is None else result.stop.reason.value)

    async def result(self, run_id: str, store: Store, /) -> Any:
        record = await store.get(WORKFLOW, run_id)
        return None if record is None else from_record(WorkflowRecord, record.data).result()


class _CycleProgram(Program):
    """An agent that runs in cycles: its task is the trigger of a cycle, and the results are in its memory."""

    runs_alone = True

    def __init__(self, agent: CycleAgent) -> None:
        super().__init__(agent.name)
        self.agent = agent

    def definition(self) -> object:
        return self.agent.spec.model_dump(mode="json")

    def check(self, task: Any, /, *, priced: bool = False) -> None:
        if task is not None and not isinstance(task, str):
            raise ConfigError(f"The task of the cycle {self.name!r} must be a trigger's name, got {task!r}.")
        if priced:
            check_prices(*self.agent.models)

    async def run(self, task: Any, _run_id: str, /) -> JobOutcome:
        """Run a cycle, holding the agent's lease, or resume the interrupted cycle."""
        try:
            async with self.agent:
                result = await self.agent.run_cycle(task or "manual")
        except LeaseError as error:  # another worker runs a cycle of this agent
            return JobOutcome(str(error), is_busy=True)
        return JobOutcome(result.error)

    async def result(self, _run_id: str, _store: Store, /) -> Any:
        return None


def failure(error: BaseException, reason: str = "") -> JobOutcome:
    """The outcome of a run that ended with an error."""
    return JobOutcome(named_error(error), is_passing(error), reason)
