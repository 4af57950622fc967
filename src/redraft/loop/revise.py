"""Draft and revise with a model."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from redraft._calls import ASKED, render_critique, render_failure, render_issue
from redraft._steps import answer
from redraft._texts import as_text
from redraft.errors import ModelError, OutputError, UnfinishedError
from redraft.protocols import ChatModel, ChatReply, ChatRequest, Message
from redraft.text.replies import json_of
from redraft.types import NOTHING_USED, Draft, prompt_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.protocols import ModelRole, RunContext
    from redraft.types import Output, ReflectionEvaluation, ReflectionVersion, TokenUsage

RevisionStrategy: TypeAlias = Literal["full_rewrite", "targeted_edit", "incremental", "hybrid"]

STRATEGIES: tuple[str, ...] = get_args(RevisionStrategy)

FRESH_TEMPERATURE = 0.7
"""The first wish for a fresh start: enough for another answer, not so much that the answer suffers."""

SHORT_TEXT = 1500
"""Characters below which writing a text anew costs no more than naming the edits."""

MOSTLY_WRONG = 0.5
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
        avoided = () if run.attempt.evaluation is None else improvements_asked(run.attempt.evaluation)
        strategy = "fresh" if fresh else "draft"
        return Draft(text, reply.usage, avoided, strategy, _cut_off(reply))


@dataclass(frozen=True, slots=True)
class ModelReviser:
    """Revise with a model, by the strategy of the attempt."""

    model: ChatModel
    system_prompt: str = ""
    show_reflections: bool = True
    show_versions: bool = False

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
            turns = (
                *opening(self.system_prompt, prompt),
                Message("assistant", as_text(output)),
                Message("user", self._revision_prompt(output, evaluation, run, strategy)),
            )
            request = _request(turns, run, "revision")
        if strategy == "targeted_edit":
            return await self._edit(request, output, evaluation)
        return await self._rewrite(request, output, evaluation, strategy)

    def _revision_prompt(
        self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, strategy: str
    ) -> str:
        parts = [render_critique(evaluation)]
        if run.attempt.failed is not None:
            parts.append(render_failure(run.attempt.failed))
        if self.show_reflections and (earlier := _reflections(run.versions, output)):
            parts.append(f"What was said about earlier versions:\n{earlier}")
        if self.show_versions and (shown := _versions(run.versions, output)):
            parts.append(f"Earlier versions, for reference only:\n\n{shown}")
        parts.append(instruction(strategy))
        return "\n\n".join(parts)

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
            request = _follow_up(request, reply, f"This can't be used: {error}. {WHOLE}")
            reply = await self._ask(request, paid)
            paid += reply.usage
            revised = _like(output, reply, paid)
        return Draft(revised, paid, improvements_asked(evaluation), strategy, (*notes, *_cut_off(reply)))

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
                request = _follow_up(request, reply, f"This can't be applied: {error}. Send all edits again.")
                continue
            return Draft(edited, paid, tuple(edit.describe() for edit in edits), "targeted_edit", notes)
        request = _follow_up(request, None, f"Forget the edits. {instruction('full_rewrite')}")
        return await self._rewrite(
            request, output, evaluation, "full_rewrite", Draft(None, paid, notes=notes)
        )

    async def _ask(self, request: ChatRequest, paid: TokenUsage) -> ChatReply:
        try:
            return await answer(self.model, request)
        except (ModelError, UnfinishedError) as error:
            error.usage = paid + (error.usage or NOTHING_USED)
            raise


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
        or _failing_share(evaluation) > MOSTLY_WRONG
        or _touched_share(text, evaluation) > MOSTLY_WRONG
    ):
        return "full_rewrite"
    placed = [issue for issue in evaluation.issues if issue.line is not None or issue.path is not None]
    few = len(evaluation.issues) <= 3  # noqa: PLR2004 (what fits into a handful of edits)
    return "targeted_edit" if few or len(placed) == len(evaluation.issues) else "incremental"


def _failing_share(evaluation: ReflectionEvaluation) -> float:
    scores = [score for score in evaluation.criteria_scores.values() if score is not None]
    if not scores:
        return 0.0 if evaluation.overall_score is None else float(evaluation.overall_score < MOSTLY_WRONG)
    return sum(score < MOSTLY_WRONG for score in scores) / len(scores)


def _touched_share(text: str, evaluation: ReflectionEvaluation) -> float:
    lines = {issue.line for issue in evaluation.issues if issue.line is not None}
    return len(lines) / (text.count("\n") + 1)


def improvements_asked(evaluation: ReflectionEvaluation) -> tuple[str, ...]:
    """Return the improvements that a draft is recorded with where only the critique names them."""
    return tuple(f"{ASKED}{issue}" for issue in evaluation.issues)


def _request(
    turns: tuple[Message, ...], run: RunContext, role: ModelRole, temperature: float | None = None
) -> ChatRequest:
    """Ask with what the attempt wishes; `temperature` is for where it has no wish."""
    wish = run.attempt.temperature if run.attempt.temperature is not None else temperature
    return ChatRequest(turns, temperature=wish, max_tokens=run.attempt.max_tokens, role=role)


def _follow_up(request: ChatRequest, reply: ChatReply | None, what: str) -> ChatRequest:
    said = (Message("assistant", reply.text),) if reply is not None else ()
    return replace(request, messages=(*request.messages, *said, Message("user", what)))


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


SHOWN_VERSIONS = 3
"""How many earlier versions or reflections a prompt shows at most, the latest ones."""

REWRITE = "Write the whole thing anew so that none of these problems remains."

EXTEND = (
    "Build on your answer: keep every part that is right as it is, fix the parts that are wrong, "
    "and add what is missing."
)

ONLY = "Reply with only the answer: no introduction, no comment on it."

WHOLE = "Reply with the complete new version and nothing else: no introduction, no comment on the changes."

EDIT_FORMAT = """\
<<<<<<< SEARCH
(lines copied exactly from the text, enough of them to occur only once)
=======
(the lines that replace them)
>>>>>>> REPLACE"""

EDIT = (
    "Fix exactly these problems with the fewest edits, and leave everything else alone. Reply with nothing "
    f"but edits in this form, as many as it takes:\n\n{EDIT_FORMAT}"
)

ADVISED = "This was advised then:"

AVOID = "An earlier answer to this had the following problems. Yours must have none of them:"


def opening(system_prompt: str, prompt: str) -> tuple[Message, ...]:
    """Return the turns that every call of a run begins with: the system prompt and what is asked."""
    return Message("system", answering(system_prompt)), Message("user", prompt)


def answering(system_prompt: str) -> str:
    """Return a system prompt that asks for only the answer: chatter fails checks that the answer passes."""
    return f"{system_prompt}\n\n{ONLY}" if system_prompt else ONLY


def fresh_prompt(prompt: str, evaluation: ReflectionEvaluation | None) -> str:
    """Render a prompt for a fresh start: what went wrong before as constraints, the failed text hidden.

    A model that sees its failed draft tends to repeat it; one that sees only what to avoid does not.
    """
    parts = [prompt]
    if evaluation is not None and evaluation.issues:
        constraints = "\n".join(f"- {render_issue(issue)}" for issue in evaluation.issues)
        parts.append(f"{AVOID}\n{constraints}")
    if evaluation is not None and evaluation.suggestions:
        advice = "\n".join(f"- {text}" for text in evaluation.suggestions)
        parts.append(f"{ADVISED}\n{advice}")
    return "\n\n".join(parts)


def instruction(strategy: str) -> str:
    """Return what a revision strategy asks for."""
    if strategy == "targeted_edit":
        return EDIT
    return f"{EXTEND if strategy == 'incremental' else REWRITE} {WHOLE}"


def _reflections(versions: Sequence[ReflectionVersion], output: Output) -> str:
    lines = [
        f"- version {version.iteration}: {issue}"
        for version in _others(versions, output)
        for issue in version.evaluation.issues[:3]
    ]
    return "\n".join(dict.fromkeys(lines))


def _versions(versions: Sequence[ReflectionVersion], output: Output) -> str:
    return "\n\n".join(
        f"--- version {version.iteration} ---\n{as_text(version.output)}"
        for version in _others(versions, output)
    )


def _others(versions: Sequence[ReflectionVersion], output: Output) -> list[ReflectionVersion]:
    others = [version for version in versions if version.output != output and version.repeats is None]
    return others[-SHOWN_VERSIONS:]


_BLOCK = re.compile(r"^<{7} SEARCH[ \t]*\r?\n(.*?)^>{7} REPLACE[ \t]*$", re.DOTALL | re.MULTILINE)

_END = re.compile(r"^>{7} REPLACE[ \t]*$", re.MULTILINE)

_SEPARATOR = re.compile(r"^={7}[ \t]*\r?\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace one stretch of a text, which must occur exactly once, by another."""

    search: str
    replace: str

    def describe(self) -> str:
        """Say what the edit does, in one line."""
        return f"replaced {_clip(self.search)} by {_clip(self.replace)}"


def read_edits(reply: str) -> tuple[Edit, ...]:
    """Return the edits in a reply; raises `OutputError` when there is none, or where one can't be told apart.

    A text may have lines of `=` of its own; seven of them in an edit leave open where the search text ends.
    """
    edits: list[Edit] = []
    # Up to the last end: a search for one that isn't there would go through all of a long reply each time.
    end = max((found.end() for found in _END.finditer(reply)), default=0)
    for block in _BLOCK.findall(reply, 0, end):
        parts = _SEPARATOR.split(block)
        if len(parts) != 2:  # noqa: PLR2004 (search and replace)
            raise OutputError(f"an edit has {len(parts) - 1} lines of '=======', where exactly one is needed")
        edits.append(Edit(_body(parts[0]), _body(parts[1])))
    if not edits:
        raise OutputError("the reply holds no edit in the SEARCH/REPLACE form")
    return tuple(edits)


def apply_edits(text: str, edits: tuple[Edit, ...]) -> str:
    """Return `text` with all edits applied in order; raises `OutputError` that names the one that can't be.

    All or nothing: a text is never half edited.
    """
    for edit in edits:
        if not edit.search:
            raise OutputError(
                f"an edit searches for nothing; to insert {_clip(edit.replace)}, name its place"
            )
        found = text.count(edit.search)
        if found != 1:
            where = "does not occur in the text" if not found else f"occurs {found} times, not once"
            raise OutputError(f"the search text {_clip(edit.search)} {where}")
        text = text.replace(edit.search, edit.replace)
    return text


def _body(block: str) -> str:
    # The line break before a marker belongs to the marker, not to the text.
    return block.removesuffix("\n").removesuffix("\r")


def _clip(text: str, width: int = 60) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= width else line[: width - 3] + "...")
