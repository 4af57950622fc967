"""Draft and revise with a model: four strategies, each with the prompt that suits it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from redraft.core.answer import answer
from redraft.core.chat import ChatReply, ChatRequest, Message
from redraft.core.errors import ModelError, OutputError, UnfinishedError
from redraft.core.feedback import ASKED
from redraft.core.protocols import ChatModel
from redraft.core.task import prompt_of
from redraft.core.texts import as_text
from redraft.core.usage import NOTHING_USED
from redraft.core.version import Draft
from redraft.loop.edits import apply_edits, read_edits
from redraft.loop.prompts import WHOLE, Memory, fresh_prompt, instruction, opening, revision_turns
from redraft.text.json_reply import json_of

if TYPE_CHECKING:
    from redraft.core.chat import ModelRole
    from redraft.core.context import RunContext
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.usage import TokenUsage
    from redraft.core.version import Output

RevisionStrategy: TypeAlias = Literal["full_rewrite", "targeted_edit", "incremental", "hybrid"]
STRATEGIES: tuple[str, ...] = get_args(RevisionStrategy)

FRESH_TEMPERATURE = 0.7
"""The first wish for a fresh start: enough for another answer, not so much that the answer suffers."""
SHORT_TEXT = 1500
"""Characters below which writing a text anew costs no more than naming the edits."""
MOST = 0.5
"""The share of failing criteria, or of lines touched by issues, from which a text is better rewritten."""
AFTER_FAILURE = {
    "targeted_edit": "full_rewrite",
    "full_rewrite": "incremental",
    "incremental": "targeted_edit",
}
"""Which strategy takes over when one has made things worse."""


@dataclass(frozen=True, slots=True)
class ModelGenerator:
    """Draft with a model: the first draft, and fresh ones that avoid what went wrong before."""

    model: ChatModel
    system_prompt: str = ""

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft:
        """Return a draft; raises `OutputError` for an empty reply, `ModelError` when the provider failed."""
        fresh = run.attempt.mode == "fresh"
        if fresh:
            prompt = fresh_prompt(prompt, run.attempt.evaluation)
        request = _request(opening(self.system_prompt, prompt), run, "generation")
        reply = await answer(self.model, request)
        text = _text_of(reply, reply.usage)
        avoided = () if run.attempt.evaluation is None else _asked(run.attempt.evaluation)
        strategy = "fresh" if fresh else "draft"
        return Draft(text, reply.usage, avoided, strategy, _cut_off(reply))


@dataclass(frozen=True, slots=True)
class ModelReviser:
    """Revise with a model, by the strategy of the attempt."""

    model: ChatModel
    system_prompt: str = ""
    memory: Memory = Memory()  # noqa: RUF009 (frozen, so sharing it is safe)

    async def __call__(self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """Return a better draft.

        An edit that does not apply is reported back once; after that the whole text is rewritten. What was
        paid on the way is in the draft's usage, or in the error's where the provider failed.
        """
        strategy = run.attempt.strategy
        if strategy == "hybrid":
            strategy = choose_strategy(output, evaluation)
            # Outside of a run there are no versions: there, too, the text is a person's own.
            if strategy == "fresh" and (not run.versions or run.versions[0].strategy == "given"):
                strategy = "full_rewrite"  # a person's own text is never put aside unseen
        prompt = prompt_of(run.task, run.advice)
        if strategy == "fresh":
            turns = opening(self.system_prompt, fresh_prompt(prompt, evaluation))
            request = _request(turns, run, "revision", FRESH_TEMPERATURE)
        else:
            shown = revision_turns(output, evaluation, run, strategy, self.memory)
            request = _request((*opening(self.system_prompt, prompt), *shown), run, "revision")
        if strategy == "targeted_edit":
            return await self._edit(request, output, evaluation)
        return await self._rewrite(request, output, evaluation, strategy)

    async def _rewrite(
        self,
        request: ChatRequest,
        output: Output,
        evaluation: ReflectionEvaluation,
        strategy: str,
        before: Draft | None = None,
    ) -> Draft:
        """Take the reply as the new version; one that can't be is asked for again once."""
        paid, notes = (before.usage, before.notes) if before else (NOTHING_USED, ())
        reply = await self._ask(request, paid)
        paid += reply.usage
        try:
            revised = _like(output, reply, paid)
        except OutputError as error:
            request = _told(request, reply, f"This can't be used: {error}. {WHOLE}")
            reply = await self._ask(request, paid)
            paid += reply.usage
            revised = _like(output, reply, paid)
        return Draft(revised, paid, _asked(evaluation), strategy, (*notes, *_cut_off(reply)))

    async def _edit(self, request: ChatRequest, output: Output, evaluation: ReflectionEvaluation) -> Draft:
        text, paid, notes = as_text(output), NOTHING_USED, ()
        for _ in range(2):
            reply = await self._ask(request, paid)
            paid += reply.usage
            try:
                edits = read_edits(reply.text)
                edited = _like(output, replace(reply, text=apply_edits(text, edits)), paid)
            except OutputError as error:
                notes = (f"An edit could not be applied: {error}.",)
                request = _told(request, reply, f"This can't be applied: {error}. Send all edits again.")
                continue
            return Draft(edited, paid, tuple(edit.describe() for edit in edits), "targeted_edit", notes)
        request = _told(request, None, f"Forget the edits. {instruction('full_rewrite')}")
        return await self._rewrite(
            request, output, evaluation, "full_rewrite", Draft(None, paid, notes=notes)
        )

    async def _ask(self, request: ChatRequest, paid: TokenUsage) -> ChatReply:
        try:
            return await answer(self.model, request)
        except (ModelError, UnfinishedError) as error:
            error.usage = paid + (error.usage or NOTHING_USED)
            raise


def _request(
    turns: tuple[Message, ...], run: RunContext, role: ModelRole, temperature: float | None = None
) -> ChatRequest:
    """Ask with what the attempt wishes; `temperature` is for where it has no wish."""
    wish = run.attempt.temperature if run.attempt.temperature is not None else temperature
    return ChatRequest(turns, temperature=wish, max_tokens=run.attempt.max_tokens, role=role)


def choose_strategy(output: Output, evaluation: ReflectionEvaluation) -> str:
    """Choose for `hybrid` by how much is wrong.

    Where every check failed outright, nothing is known to be worth keeping, and a model that sees its failed
    draft tends to repeat it: start fresh. Else rewrite what is short or mostly wrong, edit what is wrong in
    places, and extend the rest.
    """
    if evaluation.overall_score == 0.0:
        return "fresh"
    text = as_text(output)
    if (
        len(text) <= SHORT_TEXT
        or _failing_share(evaluation) > MOST
        or _touched_share(text, evaluation) > MOST
    ):
        return "full_rewrite"
    placed = [issue for issue in evaluation.issues if issue.line is not None or issue.path is not None]
    few = len(evaluation.issues) <= 3  # noqa: PLR2004 (what fits into a handful of edits)
    return "targeted_edit" if few or len(placed) == len(evaluation.issues) else "incremental"


def _failing_share(evaluation: ReflectionEvaluation) -> float:
    scores = [score for score in evaluation.criteria_scores.values() if score is not None]
    if not scores:
        return 0.0 if evaluation.overall_score is None else float(evaluation.overall_score < MOST)
    return sum(score < MOST for score in scores) / len(scores)


def _touched_share(text: str, evaluation: ReflectionEvaluation) -> float:
    lines = {issue.line for issue in evaluation.issues if issue.line is not None}
    return len(lines) / (text.count("\n") + 1)


def _asked(evaluation: ReflectionEvaluation) -> tuple[str, ...]:
    return tuple(f"{ASKED}{issue}" for issue in evaluation.issues)


def _like(output: Output, reply: ChatReply, paid: TokenUsage) -> Output:
    """Return a reply in the form that the output had: text stays text, JSON becomes JSON again."""
    text = _text_of(reply, paid)
    if isinstance(output, str):
        return text
    kind: Any = output.__class__
    try:
        value: Output = json_of(text)
        return kind.model_validate(value) if hasattr(kind, "model_validate") else value
    except (OutputError, ValueError) as error:  # what does not validate is a ValueError of pydantic's
        raise OutputError(f"the reply is no {kind.__name__}: {error}", usage=paid) from error


def _text_of(reply: ChatReply, paid: TokenUsage) -> str:
    if not reply.text.strip():
        raise OutputError(f"the model {reply.model!r} returned an empty reply", usage=paid)
    return reply.text


def _cut_off(reply: ChatReply) -> tuple[str, ...]:
    return ("The reply was cut off at the token limit.",) if reply.finish_reason == "length" else ()


def _told(request: ChatRequest, reply: ChatReply | None, what: str) -> ChatRequest:
    said = (Message("assistant", reply.text),) if reply is not None else ()
    return replace(request, messages=(*request.messages, *said, Message("user", what)))
