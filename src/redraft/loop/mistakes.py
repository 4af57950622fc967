"""Mistakes: what has just failed in a run, and the advice on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft._critique import render_feedback
from redraft._steps import uncancelled
from redraft._texts import as_text
from redraft._validation import named_error
from redraft._verdicts import advice_of
from redraft.evaluate.requirements import missed_requirements
from redraft.protocols import Mistake
from redraft.redact.log import logger
from redraft.types import FAILED_VERSION, NOT_JUDGED, Advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.loop.steps import Steps
    from redraft.protocols import Generator, MistakeAdvisor, Reviser, RunContext
    from redraft.types import Conversation, Draft, Output, QualityCriterion, ReflectionEvaluation

LONGEST = 2_000
"""Characters of an error that advisors get."""


class MistakeAdvice:
    """Advice on the mistakes of one run, from the advisors that give any.

    It is part of the step that makes the next version, so that a resumed run gets the same advice, and a
    draft lists the advice that its writer got. An advisor that fails is logged and ignored.
    """

    def __init__(
        self,
        advisors: Sequence[MistakeAdvisor],
        criteria: Sequence[QualityCriterion],
        system_prompt: str,
        steps: Steps,
        diagnostics: dict[str, str],
    ) -> None:
        self._advisors = advisors
        self._criteria = criteria
        self._system_prompt = system_prompt
        self._steps = steps
        self._diagnostics = diagnostics

    def generator(self, generate: Generator) -> Generator:
        """Wrap a generator to get advice before a fresh start."""

        async def advise_and_generate(prompt: str, run: RunContext, /) -> Draft:
            run = await self._advised(run)
            return _with_advice(await generate(prompt, run), run.attempt.advice)

        return advise_and_generate

    def reviser(self, revise: Reviser) -> Reviser:
        """Wrap a reviser to get advice before a revision."""

        async def advise_and_revise(
            output: Output, evaluation: ReflectionEvaluation, run: RunContext, /
        ) -> Draft:
            run = await self._advised(run)
            return _with_advice(await revise(output, evaluation, run), run.attempt.advice)

        return advise_and_revise

    async def on_tool(self, run: RunContext, tool: str, error: str, prompts: Sequence[str]) -> list[Advice]:
        """Advice on the error of a tool; `prompts` are the prompts of the conversation so far."""
        mistake = Mistake((error[:LONGEST],), tool=tool, stated=(self._system_prompt, run.prompt, *prompts))
        return await self._advice_on(
            mistake, run, f"an error of the tool {tool!r} in version {run.iteration}"
        )

    async def _advised(self, run: RunContext) -> RunContext:
        attempt = run.attempt
        # The evaluation as the writer sees it: without the findings of hidden criteria.
        evaluation = attempt.evaluation
        if evaluation is None or evaluation.satisfactory:
            return run
        issues = [issue for issue in evaluation.issues if not issue.startswith(NOT_JUDGED)]
        unmet = evaluation.unmet or ()
        if not issues and not unmet:
            return run
        base = run.base
        prompts = [] if base is None or base.conversation is None else prompts_in(base.conversation)
        mistake = Mistake(
            tuple(str(issue)[:LONGEST] for issue in issues),
            tuple(dict.fromkeys((*unmet, *(issue.criterion for issue in issues if issue.criterion)))),
            tuple(missed_requirements(self._criteria, issues)),
            stated=(self._system_prompt, run.prompt, render_feedback(attempt), *prompts),
        )
        failed = attempt.base or run.versions[-1].iteration
        advice = await self._advice_on(mistake, run, f"{FAILED_VERSION}{failed}")
        return replace(run, attempt=replace(attempt, advice=tuple(advice))) if advice else run

    async def _advice_on(self, mistake: Mistake, run: RunContext, after: str) -> list[Advice]:
        async def ask(mistake: Mistake) -> list[Advice]:
            advice: list[Advice] = []
            for advisor in self._advisors:
                try:
                    asked = advisor.advise_on(run.task, mistake)
                    advice += advice_of(await uncancelled(asked, "advise_on", "the run"))
                except Exception as error:  # noqa: BLE001 (a version without advice is better than none)
                    why = named_error(error)
                    report_ignored(self._diagnostics, "advisor", type(advisor).__name__, why)
            return [replace(piece, after=after) for piece in advice]

        return await self._steps.inside("advise", list[Advice], ask, mistake)


def report_ignored(diagnostics: dict[str, str], kind: str, name: str, why: str) -> None:
    """Log that a function of the user failed, and add it to the diagnostics of the run."""
    logger.warning("The %s %s failed and was ignored: %s", kind, name, why)
    key, text = f"{kind}_failed", f"The {kind} {name} failed and was ignored: {why}."
    diagnostics[key] = f"{diagnostics[key]} {text}" if key in diagnostics else text


def _with_advice(draft: Draft, advice: tuple[Advice, ...]) -> Draft:
    return replace(draft, advice=(*advice, *draft.advice)) if advice else draft


def prompts_in(conversation: Conversation) -> list[str]:
    """The prompts in a conversation, whose messages are JSON data of its framework."""
    prompts: list[str] = []
    for message in conversation.messages:
        parts: list[dict[str, Any]] = [part for part in message.get("parts", ()) if isinstance(part, dict)]
        prompts += [as_text(part.get("content")) for part in parts if part.get("part_kind") == "user-prompt"]
        if message.get("role") == "user":  # of the OpenAI Agents SDK
            prompts.append(as_text(message.get("content")))
        elif message.get("type") == "human":  # of LangGraph
            prompts.append(as_text(message.get("data", {}).get("content")))
    return prompts
