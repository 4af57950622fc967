"""Reflections in the middle of a run: what triggers them, and how they reach the next draft."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from redraft._critique import render_critique
from redraft._steps import answer, step_context
from redraft._texts import as_text, scored
from redraft._validation import check_choice, check_count, check_flag, check_list, is_number, named_error
from redraft.errors import ConfigError, UnfinishedError, over_budget
from redraft.events import Reflected
from redraft.protocols import ChatRequest, Message
from redraft.redact.log import logger
from redraft.text.replies import fenced
from redraft.types import (
    ConvergenceReason,
    Conversation,
    Reflection,
    TokenUsage,
    highest,
    usage_before,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redraft.loop.mistakes import MistakeAdvice
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.steps import Steps
    from redraft.protocols import ChatModel, Generator, ModelRole, Reviser, RunContext
    from redraft.types import Draft, Output, PlainTask, ReflectionEvaluation, ReflectionVersion

Trigger: TypeAlias = Literal["completion", "step_interval", "error", "tool_result", "quality_drop", "manual"]
TRIGGERS: tuple[str, ...] = get_args(Trigger)

INTERVAL = 5
"""Model steps between two reflections of `step_interval`, by default."""
DROP = 0.1
"""How far below the best score `quality_drop` fires, by default."""
MOST_REFLECTIONS = 3

NO_STEPS = (
    "takes no steps between which it could reflect: give the Agent tools, or wrap an agent that has some"
)
NO_HANDLE = "returns no handle with `reflect_now()`: use `Agent.stream`"
OWN_STEPS = "needs the steps of the agent, which its framework takes by itself"
NEED_STEPS: tuple[str, ...] = ("step_interval", "error", "tool_result")
CAN_NOT_FIRE: dict[str, dict[str, str]] = {
    "a text agent": dict.fromkeys(NEED_STEPS, NO_STEPS),
    "an agent of another framework": dict.fromkeys(NEED_STEPS, OWN_STEPS),
    "a plain function": {**dict.fromkeys(NEED_STEPS, NO_STEPS), "manual": NO_HANDLE},
}
"""Why a trigger can't fire, by who makes the versions."""


@dataclass(frozen=True, slots=True)
class ReflectionTriggers:
    """What triggers a reflection in the middle of a run."""

    step_interval: int | None = None
    """Steps of the model between two reflections."""
    error: bool = False
    tool_result: frozenset[str] | None = None
    """The tools after which to reflect; an empty set means any tool, None switches the trigger off."""
    quality_drop: float | None = None
    """How far below the best score to reflect."""
    manual: bool = False
    most: int = MOST_REFLECTIONS
    """The most reflections in a run."""

    def names(self) -> tuple[str, ...]:
        """The triggers that are on, besides completion, which always is."""
        on = {
            "step_interval": self.step_interval is not None,
            "error": self.error,
            "tool_result": self.tool_result is not None,
            "quality_drop": self.quality_drop is not None,
            "manual": self.manual,
        }
        return tuple(name for name, is_on in on.items() if is_on)

    def check_runner(self, runner: str) -> None:
        """Reject triggers that can never fire for a runner, a key of `CAN_NOT_FIRE`."""
        for name in self.names():
            if name in CAN_NOT_FIRE[runner]:
                raise ConfigError(
                    f"reflection_triggers: {name!r} can't fire; {runner} {CAN_NOT_FIRE[runner][name]}."
                )

    def fired(self, step: int, *, failed: bool, tools: frozenset[str]) -> str | None:
        """The trigger that fires after `step` model steps, if any does.

        `failed` says whether something went wrong since the step before; `tools` are the tools that answered.
        """
        if self.error and failed:
            return "error"
        if self.tool_result is not None and (tools & self.tool_result if self.tool_result else tools):
            return "tool_result"
        if self.step_interval is not None and step > 0 and step % self.step_interval == 0:
            return "step_interval"
        return None


NO_TRIGGERS = ReflectionTriggers()


def triggers_of(pattern: ReflectionPattern) -> ReflectionTriggers:
    """Read the options of a pattern.

    A trigger is on if it is listed or if its own option is set; a listed trigger without its option takes the
    default. Raises `ConfigError` for an unknown trigger, a value out of range, and a contradiction.
    """
    listed, tools = pattern.reflection_triggers, pattern.reflect_on_tools
    interval, on_error = pattern.reflection_interval, pattern.reflect_on_error
    drop, most = pattern.quality_drop_threshold, pattern.max_reflections
    check_list("reflection_triggers", listed)
    for name in listed:
        check_choice("reflection_triggers", name, TRIGGERS)
    if interval is not None:
        check_count("reflection_interval", interval, 1)
    if on_error is not None:
        check_flag("reflect_on_error", on_error)
    if on_error is False and "error" in listed:
        raise ConfigError(
            "reflect_on_error is False, but reflection_triggers lists 'error'; remove one of the two."
        )
    check_list("reflect_on_tools", tools)
    for tool in tools:
        if not isinstance(tool, str) or not tool:  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
            raise ConfigError(f"reflect_on_tools must be names of tools, got {tool!r}.")
    if drop is not None and (not is_number(drop) or not 0 < drop <= 1):
        raise ConfigError(f"quality_drop_threshold must be a number above 0 and at most 1, got {drop!r}.")
    check_count("max_reflections", most, 0)
    triggers = ReflectionTriggers(
        step_interval=INTERVAL if interval is None and "step_interval" in listed else interval,
        error=bool(on_error) or "error" in listed,
        tool_result=frozenset(tools) if tools or "tool_result" in listed else None,
        quality_drop=DROP if drop is None and "quality_drop" in listed else drop,
        manual="manual" in listed,
        most=most,
    )
    if not triggers.names():
        return NO_TRIGGERS
    if most == 0:
        raise ConfigError(
            f"max_reflections is 0, but these triggers are on: {', '.join(triggers.names())}. "
            "Leave them out, or allow at least 1."
        )
    return triggers


class RunState:
    """The state of a run for its verbs: its steps, and when to reflect.

    It exists before the run begins, since a program may hold it (`reflect_now`); the run then attaches to it.
    """

    def __init__(self, triggers: ReflectionTriggers = NO_TRIGGERS) -> None:
        self.triggers = triggers
        self.steps: Steps
        """The steps of the run, which have its budget and its listener."""
        self.mistakes: MistakeAdvice | None = None
        """Advice on mistakes in the run, if an advisor gives any."""
        self._model: ChatModel | None = None
        self._diagnostics: dict[str, str] = {}
        self._reflections: dict[tuple[int, int, str], Reflection] = {}
        self._is_requested = False

    def attach(self, steps: Steps, diagnostics: dict[str, str], model: ChatModel | None = None) -> None:
        """Attach the run that takes these steps and has these diagnostics; `model` reflects."""
        self.steps, self._diagnostics, self._model = steps, diagnostics, model

    @property
    def reflections(self) -> tuple[Reflection, ...]:
        """The reflections so far, in order."""
        return tuple(self._reflections.values())

    def spent(self, role: ModelRole, used: TokenUsage) -> ConvergenceReason | None:
        """The spent budget, if any, counting what the current step has used."""
        tally = self.steps.tally
        if reason := tally.spent(used):
            return reason
        left = tally.revision_tokens_left() if role == "revision" else None
        return ConvergenceReason.TOKEN_BUDGET if left is not None and used.total_tokens >= left else None

    def count_cancelled(self, role: ModelRole, used: TokenUsage) -> None:
        """Count the usage of a step that was cancelled."""
        if step_context.get().budget is None:  # with a budget, the step has counted the usage already
            self.steps.tally.add(role, used)

    def request_reflection(self) -> bool:
        """Request a reflection at the next opportunity; False if there will be none.

        Raises `ConfigError` if the pattern does not have the trigger `manual`.
        """
        if not self.triggers.manual:
            raise ConfigError("reflect_now() needs 'manual' among the pattern's reflection_triggers.")
        if self._is_requested or not self._is_below_limit():
            return False
        self._is_requested = True
        return True

    async def is_requested(self, step: int) -> bool:
        """Take a request for a reflection, if any; this is a step, so that a resumed run agrees."""
        ask = step_context.get().step
        return self.triggers.manual and await ask(f"asked {step}", bool, self._take_request)

    async def _take_request(self) -> bool:
        requested, self._is_requested = self._is_requested, False
        return requested

    def before(self, iteration: int) -> Reflection | None:
        """The reflection already made before a version, if any: the step that asks may be a retry."""
        for reflection in self.reflections:
            if reflection.iteration == iteration and reflection.step == 0:
                return reflection
        return None

    def _is_below_limit(self) -> bool:
        return len(self._reflections) < self.triggers.most

    async def reflect(self, trigger: str, step: int, run: RunContext, work: str) -> Reflection | None:
        """Ask the model for a short message on the `work` so far; None if no more are allowed.

        A failure of the model is logged and becomes a diagnostic; it is never raised.
        """
        model = self._model
        if model is None or not self._is_below_limit() or self.steps.tally.spent():
            return None
        blank = Reflection(trigger, "", run.iteration, step)

        async def look_back(request: ChatRequest) -> Reflection:
            return await self._ask(model, request, blank)

        request = ChatRequest(reflection_turns(run.task, trigger, work), role="reflection")
        try:
            reflection = await self.steps.inside(f"reflect {trigger} {step}", Reflection, look_back, request)
        except UnfinishedError as error:
            if error.reason is None:
                raise
            self._diagnostics["reflection_failed"] = f"A reflection ({trigger}) failed: {error}"
            return None
        self.add([reflection])
        if reflection.problem:
            logger.warning("The reflection on %s failed and was left out: %s", trigger, reflection.problem)
            self._diagnostics["reflection_failed"] = f"A reflection ({trigger}) failed: {reflection.problem}"
        else:
            self.steps.emit(Reflected(self.steps.run_id, trigger, reflection.text, step))
        return reflection

    async def _ask(self, model: ChatModel, request: ChatRequest, blank: Reflection) -> Reflection:
        failed = 0

        def on_failure(error: Exception, wait: float | None) -> float | None:
            nonlocal failed
            failed += 1
            return self.steps.wait_before("reflect", error, wait)

        try:
            ask = partial(answer, model, request, is_step=False)  # it is part of the step that reflects
            reply = await self.steps.retry.run(ask, on_failure=on_failure)
        except Exception as error:
            if over_budget(error):
                raise
            used = usage_before(error) + TokenUsage(failed_requests=failed)
            return replace(blank, usage=used, problem=named_error(error))
        used = reply.usage + TokenUsage(failed_requests=failed)
        return replace(blank, text=cut_at_word(reply.text), usage=used)

    def add(self, reflections: Iterable[Reflection]) -> None:
        """Add reflections and their cost, each once.

        A resumed run gets earlier reflections from its record: they count, too.
        """
        for reflection in reflections:
            key = reflection.iteration, reflection.step, reflection.trigger
            if key not in self._reflections:
                self._reflections[key] = reflection
                self.steps.tally.add("reflection", reflection.usage)


def reflecting_generator(generate: Generator) -> Generator:
    """Wrap a generator to reflect first if a trigger fires; the reflection joins the critique."""

    async def reflect_and_generate(prompt: str, run: RunContext, /) -> Draft:
        reflection = await _reflection(run)
        return _with_reflection(reflection, await generate(prompt, _advised(run, reflection)))

    return reflect_and_generate


def reflecting_reviser(revise: Reviser) -> Reviser:
    """Wrap a reviser to reflect first if a trigger fires; the reflection joins the critique."""

    async def reflect_and_revise(
        output: Output, evaluation: ReflectionEvaluation, run: RunContext, /
    ) -> Draft:
        reflection = await _reflection(run)
        run = _advised(run, reflection)
        draft = await revise(output, run.attempt.evaluation or evaluation, run)
        return _with_reflection(reflection, draft)

    return reflect_and_revise


async def _reflection(run: RunContext) -> Reflection | None:
    """Reflect on the versions so far on request, or if the last version scored much worse."""
    versions, state = run.versions, cast("RunState", run.state)
    if not versions:
        return None
    if reflection := state.before(run.iteration):
        return reflection
    trigger = (
        "manual" if await state.is_requested(0) else "quality_drop" if _fell_behind(state, versions) else ""
    )
    if not trigger:
        return None
    selected = {version.iteration: version for version in (highest(versions), *versions[-SHOWN_VERSIONS:])}
    return await state.reflect(trigger, 0, run, render_versions(list(selected.values())))


def _fell_behind(state: RunState, versions: Sequence[ReflectionVersion]) -> bool:
    """Whether the last version scored below the best before it by the threshold or more.

    A drop within the margin of error is no drop.
    """
    threshold, last = state.triggers.quality_drop, versions[-1]
    if threshold is None or last.gain is None:
        return False
    # Scores are decimal fractions: 0.8 - 0.7 must not fall short of 0.1 by the last bit.
    return -last.gain >= threshold - 1e-9 and -last.gain > last.margin


def _advised(run: RunContext, reflection: Reflection | None) -> RunContext:
    """Add a reflection to the suggestions, which every generator and reviser sees."""
    evaluation = run.attempt.evaluation
    if reflection is None or not reflection.text or evaluation is None:
        return run
    advised = replace(evaluation, suggestions=(*evaluation.suggestions, reflection.text))
    # A sample without feedback would ignore it.
    strategy = "fresh" if run.attempt.strategy == "resample" else run.attempt.strategy
    return replace(run, attempt=replace(run.attempt, evaluation=advised, strategy=strategy))


def _with_reflection(reflection: Reflection | None, draft: Draft) -> Draft:
    """Store a reflection with the draft that followed it, so that a resumed run has it."""
    if reflection is None:
        return draft
    conversation = draft.conversation or Conversation()
    return replace(
        draft, conversation=replace(conversation, reflections=(reflection, *conversation.reflections))
    )


MOST_SHOWN = 12_000
"""Characters of the record of the work that the model sees: the last ones."""
MOST_SAID = 1_200
"""Characters of a reflection that go into the conversation."""
SHOWN_VERSIONS = 3

ROLE = (
    "You look over the shoulder of someone at work on a task, and say what would help most from here. "
    "You do not do the task yourself."
)
WHY = {
    "step_interval": "A few more steps have been taken; this is a regular look back.",
    "error": "Something has just gone wrong.",
    "tool_result": "A tool has just answered.",
    "quality_drop": "The last version was judged clearly worse than the best one before it.",
    "manual": "Someone who watches the work asked for this look back.",
}
FORM = """\
Reply with at most six short sentences, addressed to the one at work, in this order:
1. What was tried so far, and what came of it.
2. What the results say that was overlooked or misread, if anything.
3. What to do differently from here, or to go on with.
Say nothing that the record does not support, and give no answer to the task."""

LEAD = "A look back at the work so far (advice for the same task, no new one):"


def reflection_turns(task: PlainTask, trigger: str, work: str) -> tuple[Message, ...]:
    """The messages that ask for a reflection; `work` is fenced as data."""
    task_text = f"The task:\n{task.description}"
    if len(work) > MOST_SHOWN:
        work = f"(what came before is left out) ...{work[-MOST_SHOWN:]}"
    record = fenced(work, "record of the work")
    return (
        Message("system", ROLE),
        Message("user", f"{task_text}\n\n{WHY[trigger]}\n\n{record}\n\n{FORM}"),
    )


def render_versions(versions: Sequence[ReflectionVersion]) -> str:
    """Render the last versions with their critique, for a reflection between two versions."""
    return "\n\n".join(
        f"Version {version.iteration}, score {scored(version)}:\n"
        f"{as_text(version.output)}\n\n{render_critique(version.evaluation, version.output)}".rstrip()
        for version in versions
    )


def note(text: str) -> str:
    """A reflection as a message in the conversation."""
    return f"{LEAD}\n{text}"


def cut_at_word(text: str) -> str:
    """Shorten a reply to the last word that fits."""
    text = text.strip()
    if len(text) <= MOST_SAID:
        return text
    return f"{text[:MOST_SAID].rsplit(maxsplit=1)[0]} ..."
