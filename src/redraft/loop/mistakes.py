"""Mistakes: what has just failed in a run, and the advice on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft._critique import render_feedback
from redraft._texts import as_text
from redraft.evaluate.requirements import missed_requirements
from redraft.protocols import Mistake
from redraft.redact.log import logger
from redraft.types import NOT_JUDGED, VERSION, Advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.loop.steps import Steps
    from redraft.protocols import Generator, MistakeAdvisor, Reviser, RunContext
    from redraft.types import Conversation, Draft, Output, QualityCriterion, ReflectionEvaluation

LONGEST = 2_000
"""Characters of an error that advice is looked for by."""


class MistakeAdvice:
    """Advice on the mistakes of one run, from the advisors that give any.

    It is part of the step that makes the next version, so that a resumed run gets the same, and a draft lists
    what its writer was given. An advisor that fails is logged and ignored.
    """

    def __init__(
        self,
        advisors: Sequence[MistakeAdvisor],
        criteria: Sequence[QualityCriterion],
        system_prompt: str,
        steps: Steps,
        notes: dict[str, str],
    ) -> None:
        self._advisors = advisors
        self._criteria = criteria
        self._system_prompt = system_prompt
        self._steps = steps
        self._notes = notes

    def generator(self, generate: Generator) -> Generator:
        """Wrap a generator to be given advice before a fresh start."""

        async def advise_and_generate(prompt: str, run: RunContext, /) -> Draft:
            run = await self._advised(run)
            return _with_advice(await generate(prompt, run), run.attempt.advice)

        return advise_and_generate

    def reviser(self, revise: Reviser) -> Reviser:
        """Wrap a reviser to be given advice before a revision."""

        async def advise_and_revise(
            output: Output, evaluation: ReflectionEvaluation, run: RunContext, /
        ) -> Draft:
            run = await self._advised(run)
            return _with_advice(await revise(output, evaluation, run), run.attempt.advice)

        return advise_and_revise

    async def on_tool(self, run: RunContext, tool: str, error: str, said: Sequence[str]) -> list[Advice]:
        """Return advice on the error of a tool; `said` are the prompts of the conversation so far."""
        mistake = Mistake((error[:LONGEST],), tool=tool, stated=(self._system_prompt, run.prompt, *said))
        return await self._advice_on(
            mistake, run, f"an error of the tool {tool!r} in version {run.iteration}"
        )

    async def _advised(self, run: RunContext) -> RunContext:
        attempt = run.attempt
        # As the writer knows it: what a hidden criterion found is not in there.
        evaluation = attempt.evaluation
        if evaluation is None or evaluation.satisfactory:
            return run
        issues = [one for one in evaluation.issues if not one.startswith(NOT_JUDGED)]
        unmet = evaluation.unmet or ()
        if not issues and not unmet:
            return run
        base = next((one for one in run.versions if one.iteration == attempt.base), None)
        said = [] if base is None or base.conversation is None else prompts_in(base.conversation)
        mistake = Mistake(
            tuple(str(one)[:LONGEST] for one in issues),
            tuple(dict.fromkeys((*unmet, *(one.criterion for one in issues if one.criterion)))),
            tuple(missed_requirements(self._criteria, issues)),
            stated=(self._system_prompt, run.prompt, render_feedback(attempt), *said),
        )
        failed = attempt.base or run.versions[-1].iteration
        advice = await self._advice_on(mistake, run, f"{VERSION}{failed}")
        return replace(run, attempt=replace(attempt, advice=tuple(advice))) if advice else run

    async def _advice_on(self, mistake: Mistake, run: RunContext, after: str) -> list[Advice]:
        async def ask(mistake: Mistake) -> list[Advice]:
            found: list[Advice] = []
            for advisor in self._advisors:
                try:
                    found += await advisor.advise_on(run.task, mistake)
                except Exception as error:  # noqa: BLE001 (a version without advice is better than none)
                    why = f"{type(error).__name__}: {error}"
                    ignored(self._notes, "advisor", type(advisor).__name__, why)
            return [replace(one, after=after) for one in found]

        return await self._steps.inside("advise", list[Advice], ask, mistake)


def ignored(notes: dict[str, str], kind: str, name: str, why: str) -> None:
    """Log that a function of the user failed, and add it to the diagnostics of the run."""
    logger.warning("The %s %s failed and was ignored: %s", kind, name, why)
    key, text = f"{kind}_failed", f"The {kind} {name} failed and was ignored: {why}."
    notes[key] = f"{notes[key]} {text}" if key in notes else text


def _with_advice(draft: Draft, advice: tuple[Advice, ...]) -> Draft:
    return replace(draft, advice=(*advice, *draft.advice)) if advice else draft


def prompts_in(conversation: Conversation) -> list[str]:
    """Return what the model was told in a conversation, whose messages are JSON data of its framework."""
    found: list[str] = []
    for message in conversation.messages:
        parts: list[dict[str, Any]] = [part for part in message.get("parts", ()) if isinstance(part, dict)]
        found += [as_text(part.get("content")) for part in parts if part.get("part_kind") == "user-prompt"]
        if message.get("role") == "user":  # of the OpenAI Agents SDK
            found.append(as_text(message.get("content")))
        elif message.get("type") == "human":  # of LangGraph
            found.append(as_text(message.get("data", {}).get("content")))
    return found
