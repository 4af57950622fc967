"""Draft and revise with a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from redraft._codec import from_json, is_record
from redraft._critique import ASKED, SHOWN_ISSUES, issue_item, render_critique, render_failure, render_issue
from redraft._prompts import mistake_text, with_conversation
from redraft._steps import answer
from redraft._texts import as_text, is_short
from redraft.errors import ModelError, OutputError, UnfinishedError
from redraft.loop.output_type import OutputType
from redraft.loop.strategy import FROM_SCRATCH, from_scratch, way_of_hybrid
from redraft.models.model_settings import with_settings
from redraft.protocols import FRESH_TEMPERATURE, ChatModel, ChatReply, ChatRequest, Message
from redraft.text.characters import is_inside_word
from redraft.text.replies import json_of
from redraft.types import NOTHING_USED, Draft, in_one_line, indented, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.protocols import ModelRole, RunContext
    from redraft.types import Issue, Output, ReflectionEvaluation, ReflectionVersion, TokenUsage


@dataclass(frozen=True, slots=True)
class ModelGenerator:
    """Draft with a model: the first draft, and fresh starts that avoid earlier issues."""

    model: ChatModel
    system_prompt: str = ""
    output_type: OutputType[Any] | None = None
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the whole reply, if it has one."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft:
        """Draft; errors of the model are raised as they are.

        A reply of another type than the output type becomes the draft as it is, with a note.
        """
        attempt, evaluation, strategy = run.attempt, run.attempt.evaluation, "draft"
        if attempt.mode == "fresh":
            strategy = attempt.strategy if attempt.way else from_scratch(evaluation, run.versions)
        if strategy == "fresh":
            prompt = fresh_prompt(prompt, evaluation)
        turns = opening(self.system_prompt, advised(prompt, run))
        request = _request(turns, run, "generation", self.settings)
        reply = await _answer(self.model, _with_schema(request, self.schema))
        output, notes = _as_type(self.output_type, reply.text)
        improvements = improvements_asked(evaluation) if evaluation and strategy == "fresh" else ()
        return Draft(
            output, reply.usage, improvements, strategy, (*notes, *_cut_off(reply)), model=reply.model
        )


@dataclass(frozen=True, slots=True)
class ModelReviser:
    """Revise with a model, by the strategy of the attempt."""

    model: ChatModel
    system_prompt: str = ""
    show_reflections: bool = True
    """Whether the prompt has the issues of earlier versions."""
    show_versions: bool = False
    """Whether the prompt has the texts of earlier versions."""
    output_type: OutputType[Any] | None = None
    """With a type, the text in the prompt is the output's JSON."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of a whole reply, if it has one."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    async def __call__(self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """Revise an output.

        An edit that does not apply is reported back once; if the next edit fails, too, the text is rewritten.
        The usage of all calls is in the draft's usage, or in the usage of the error if the provider failed.
        """
        strategy, prompt = self._strategy(output, evaluation, run), run.prompt
        if strategy == "fresh":
            prompt = fresh_prompt(prompt, evaluation)
        from_critique = strategy not in FROM_SCRATCH
        prompt = prompt if from_critique else advised(prompt, run)
        turns, temperature = opening(self.system_prompt, prompt), FRESH_TEMPERATURE
        if from_critique:
            critique = Message("user", self._revision_prompt(output, evaluation, run, strategy))
            turns, temperature = (*turns, Message("assistant", as_text(output)), critique), None
        request = _request(turns, run, "revision", self.settings, temperature)
        if strategy == "targeted_edit":
            return await self._edit(request, output, evaluation)
        return await self._rewrite(request, output, evaluation, strategy)

    def _strategy(self, output: Output, evaluation: ReflectionEvaluation, run: RunContext) -> str:
        """The strategy of the attempt; `hybrid` is resolved here."""
        if run.attempt.strategy != "hybrid":
            return run.attempt.strategy
        is_misfit = self.output_type is not None and isinstance(output, str)
        return way_of_hybrid(output, evaluation, run.versions, is_misfit=is_misfit)

    def _revision_prompt(
        self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, strategy: str
    ) -> str:
        parts = [render_critique(evaluation, output)]
        if run.attempt.failed is not None:
            parts.append(render_failure(run.attempt.failed, evaluation.issues))
        if self.show_reflections and (earlier := _earlier_issues(run, output, evaluation.issues)):
            parts.append(f"What was said about earlier versions:\n{earlier}")
        if self.show_versions and (texts := _earlier_texts(run.versions, output)):
            parts.append(f"Earlier versions, for reference only:\n\n{texts}")
        if run.attempt.advice:
            parts.append(mistake_text(run.attempt.advice))
        parts.append(instruction(strategy, output))
        return "\n\n".join(parts)

    async def _rewrite(
        self,
        request: ChatRequest,
        output: Output,
        evaluation: ReflectionEvaluation,
        strategy: str,
        before: Draft | None = None,
    ) -> Draft:
        """Ask for a whole new version, and once more if the reply can't be used."""
        usage, notes = (before.usage, before.notes) if before else (NOTHING_USED, ())
        request = _with_schema(request, self.schema)
        reply = await self._ask(request, usage)
        usage += reply.usage
        try:
            revised = self._read(output, reply, usage)
        except OutputError as error:
            notes = (*notes, f"A reply could not be used, and the model was asked again: {error}.")
            request = _follow_up(request, reply, f"This can't be used: {error}. {WHOLE}")
            reply = await self._ask(request, usage)
            usage += reply.usage
            if self.output_type is None:
                revised = _in_type_of(output, reply, usage)
            else:  # a reply of another type is still a version
                revised, misfit = _as_type(self.output_type, reply.text)
                notes = (*notes, *misfit)
        improvements = () if strategy == "resample" else improvements_asked(evaluation)
        return Draft(revised, usage, improvements, strategy, (*notes, *_cut_off(reply)), model=reply.model)

    async def _edit(self, request: ChatRequest, output: Output, evaluation: ReflectionEvaluation) -> Draft:
        text, usage, notes = as_text(output), NOTHING_USED, ()
        for _ in range(2):
            reply = await self._ask(request, usage)
            usage += reply.usage
            try:
                edits = read_edits(reply.text)
                edited = self._read(output, replace(reply, text=apply_edits(text, edits)), usage)
            except OutputError as error:
                notes = (f"An edit could not be applied: {error}.",)
                request = _follow_up(request, reply, f"This can't be applied: {error}. Send all edits again.")
                continue
            described = tuple(edit.describe() for edit in edits)
            notes = (*notes, *_cut_off(reply))
            return Draft(edited, usage, described, "targeted_edit", notes, model=reply.model)
        request = _follow_up(request, None, f"Forget the edits. {instruction('full_rewrite', output)}")
        return await self._rewrite(
            request, output, evaluation, "full_rewrite", Draft(None, usage, notes=notes)
        )

    def _read(self, output: Output, reply: ChatReply, usage: TokenUsage) -> Output:
        """Read a reply, or an edited text, into the output type, or else into the type of the output."""
        if not reply.text.strip():
            raise OutputError("the edits leave nothing of the text", usage=usage)
        if self.output_type is None:
            return _in_type_of(output, reply, usage)
        revised, problems = self.output_type.read(reply.text)
        if problems:
            raise OutputError(joined(map(render_issue, problems)), usage=usage)
        return revised

    async def _ask(self, request: ChatRequest, usage: TokenUsage) -> ChatReply:
        """Call the model; an error carries the `usage` so far, too."""
        try:
            return await _answer(self.model, request)
        except (ModelError, UnfinishedError) as error:
            error.usage = usage + (error.usage or NOTHING_USED)
            raise


def improvements_asked(evaluation: ReflectionEvaluation) -> tuple[str, ...]:
    """The issues that a draft was asked to fix, as its improvements: what it fixed is not known."""
    return tuple(f"{ASKED}{issue}" for issue in evaluation.issues)


def _request(
    turns: tuple[Message, ...],
    run: RunContext,
    role: ModelRole,
    settings: Mapping[str, Any],
    temperature: float | None = None,
) -> ChatRequest:
    """A request with the attempt's options, else the strategy's `temperature`, else the agent's settings."""
    if run.attempt.temperature is not None:
        temperature = run.attempt.temperature
    turns = with_conversation(turns, run.task)
    request = ChatRequest(turns, temperature=temperature, max_tokens=run.attempt.max_tokens, role=role)
    return with_settings(request, settings)


async def _answer(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Call a model; retry without a temperature if the model refuses it."""
    try:
        return await answer(model, request)
    except ModelError as error:
        if request.temperature is None or not error.refuses_temperature:
            raise
        reply = await answer(model, replace(request, temperature=None))
        return replace(reply, usage=(error.usage or NOTHING_USED) + reply.usage)


def _follow_up(request: ChatRequest, reply: ChatReply | None, text: str) -> ChatRequest:
    replies = () if reply is None else (Message("assistant", reply.text),)
    return replace(request, messages=(*request.messages, *replies, Message("user", text)))


def _with_schema(request: ChatRequest, schema: Mapping[str, Any] | None) -> ChatRequest:
    """Ask for a reply that follows a schema, which the prompt describes, too."""
    return request if schema is None else replace(request, schema=schema, schema_in_prompt=True)


def _as_type(output_type: OutputType[Any] | None, text: str) -> tuple[Output, tuple[str, ...]]:
    """Read a reply into the output type; a reply of another type is returned as it is, with a note."""
    if output_type is None:
        return text, ()
    output, problems = output_type.read(text)
    if not problems:
        return output, ()
    more = len(problems) - SHOWN_ISSUES
    named = joined([*map(render_issue, problems[:SHOWN_ISSUES]), *([f"and {more} more"] if more > 0 else [])])
    return output, (f"The reply is not a valid {output_type.name}: {named}.",)


def _in_type_of(output: Output, reply: ChatReply, usage: TokenUsage) -> Output:
    """Convert a reply to the type of the output: text, JSON, a pydantic model or a data class."""
    text = reply.text
    if isinstance(output, str):
        return text
    kind: Any = output.__class__
    try:
        value: Output = json_of(text)
        return from_json(kind, value) if is_record(kind) else value
    except (OutputError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        raise OutputError(f"the reply is not a valid {kind.__name__}: {error}", usage=usage) from error


def _cut_off(reply: ChatReply) -> tuple[str, ...]:
    return ("The reply was cut off at the token limit.",) if reply.finish_reason == "length" else ()


SHOWN_VERSIONS = 3
"""How many of the latest versions a prompt shows at most."""

REWRITE = "Write the whole thing anew so that none of these problems remains."

REWRITE_LONG = f"{REWRITE} Keep every part that is right."

EXTEND = (
    "Build on your answer: keep every part that is right as it is, fix the parts that are wrong, "
    "and add what is missing."
)

ONLY = "Reply with only the answer."
"""Ends every system prompt. It is short, because small models repeat the end of a longer sentence."""

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
    """The first messages of every request of a run, which a provider can cache."""
    return Message("system", answering(system_prompt)), Message("user", prompt)


def answering(system_prompt: str) -> str:
    """Add to a system prompt to reply with only the answer: any other text could fail a check."""
    return f"{system_prompt}\n\n{ONLY}" if system_prompt else ONLY


def fresh_prompt(prompt: str, evaluation: ReflectionEvaluation | None) -> str:
    """Render the prompt of a fresh start, with earlier issues as constraints but without the failed text.

    A model that sees its failed draft tends to repeat it.
    """
    parts = [prompt]
    if evaluation is not None and evaluation.issues:
        constraints = "\n".join(map(issue_item, evaluation.issues))
        parts.append(f"{AVOID}\n{constraints}")
    if evaluation is not None and evaluation.suggestions:
        advice = "\n".join(f"- {indented(text)}" for text in evaluation.suggestions)
        parts.append(f"{ADVISED}\n{advice}")
    return "\n\n".join(parts)


def advised(prompt: str, run: RunContext) -> str:
    """Add the advice on what failed to the prompt of a draft from scratch."""
    return f"{prompt}\n\n{mistake_text(run.attempt.advice)}" if run.attempt.advice else prompt


def instruction(strategy: str, output: Output) -> str:
    """The instruction to revise an output by a strategy."""
    if strategy == "targeted_edit":
        return EDIT
    return f"{EXTEND if strategy == 'incremental' else rewriting(output)} {WHOLE}"


def rewriting(output: Output) -> str:
    """The instruction to rewrite an output.

    Only for a long output it says to keep what is right: for a short output, small models tend to return it
    unchanged.
    """
    return REWRITE if is_short(output) else REWRITE_LONG


def _earlier_issues(run: RunContext, output: Output, named: Sequence[Issue]) -> str:
    """List issues of earlier versions, without those that the prompt names anyway."""
    failed = run.attempt.failed
    lines = [
        f"- version {version.iteration}: {in_one_line(issue)}"
        for version in _others(run.versions, output)
        if failed is None or version.iteration != failed.iteration
        for issue in version.evaluation.issues[:3]
        if issue not in named
    ]
    return "\n".join(dict.fromkeys(lines))


def _earlier_texts(versions: Sequence[ReflectionVersion], output: Output) -> str:
    return "\n\n".join(
        f"--- version {version.iteration} ---\n{as_text(version.output)}"
        for version in _others(versions, output)
    )


def _others(versions: Sequence[ReflectionVersion], output: Output) -> list[ReflectionVersion]:
    others = [version for version in versions if version.output != output and version.repeats is None]
    return others[-SHOWN_VERSIONS:]


_BLOCK = re.compile(r"^<{7} SEARCH[ \t]*\r?\n(.*?)^>{7} REPLACE[ \t]*\r?$", re.DOTALL | re.MULTILINE)

_END = re.compile(r"^>{7} REPLACE[ \t]*\r?$", re.MULTILINE)

_SEPARATOR = re.compile(r"^={7}[ \t]*\r?\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of a text: the passage to replace, which must occur exactly once, and its replacement."""

    search: str
    replace: str

    def describe(self) -> str:
        """Describe the edit in one line."""
        return f"replaced {_clip(self.search)} by {_clip(self.replace)}"


def read_edits(reply: str) -> tuple[Edit, ...]:
    """Read the edits in a reply; raises `OutputError` if there are none, or one is ambiguous.

    An edit is ambiguous if the text has a line of seven `=`, since that is also the separator.
    """
    edits: list[Edit] = []
    # Stop at the last end marker, or each unterminated block would be searched to the end of the reply.
    end = max((marker.end() for marker in _END.finditer(reply)), default=0)
    for block in _BLOCK.findall(reply, 0, end):
        parts = _SEPARATOR.split(block)
        if len(parts) != 2:  # noqa: PLR2004 (search and replace)
            raise OutputError(f"an edit has {len(parts) - 1} lines of '=======', where exactly one is needed")
        edits.append(Edit(_body(parts[0]), _body(parts[1])))
    if not edits:
        raise OutputError("the reply holds no edit in the SEARCH/REPLACE form")
    return tuple(edits)


def apply_edits(text: str, edits: tuple[Edit, ...]) -> str:
    """Apply all edits in order; raises `OutputError` for the first that can't be applied.

    A search text that consists of whole lines replaces whole lines, also where their indentation differs; the
    replacement then gets their indentation. Any other search text has to occur within lines, and not inside a
    word. If it occurs in neither way, lines that differ from it only in white space are replaced. New lines
    get the line breaks of the text.
    """
    for edit in edits:
        if not edit.search.strip():
            raise OutputError(
                f"an edit searches for nothing; to insert {_clip(edit.replace)}, name its place"
            )
        text = _edited(text, edit)
    return text


def _edited(text: str, edit: Edit) -> str:
    """Apply an edit; raises `OutputError` unless its search text occurs once."""
    exact = _bare_lines(edit.search)
    if places := _whole_lines(text, exact, str):
        start, end = _only(places, edit)
        return _with_lines(text, start, end, _bare_lines(edit.replace))
    lines = _bare_lines(edit.search.strip("\r\n"))
    if places := _whole_lines(text, lines, str.strip):
        return _with_indented_lines(text, *_only(places, edit), edit)
    if places := _passages(text, exact):
        start, end = _only(places, edit)
        return f"{text[:start]}{_line_break(text).join(_bare_lines(edit.replace))}{text[end:]}"
    places = _whole_lines(text, lines, str.split)
    return _with_indented_lines(text, *_only(places, edit), edit)


def _only(places: Sequence[tuple[int, int]], edit: Edit) -> tuple[int, int]:
    if len(places) == 1:
        return places[0]
    where = f"occurs {len(places)} times, not once" if places else "does not occur in the text"
    raise OutputError(f"the search text {_clip(edit.search)} {where}")


def _bare_lines(text: str) -> list[str]:
    """The lines of a text without their line breaks; only LF and CRLF are line breaks."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _whole_lines(text: str, searched: Sequence[str], form: Callable[[str], object]) -> list[tuple[int, int]]:
    """The spans of consecutive lines that have the same `form` as the lines searched for.

    A span includes the line break after the last line.
    """
    needle = [form(line) for line in searched]
    lines = _bare_lines(text)
    if text.endswith("\n"):
        lines.pop()  # there is no line after the last line break
    forms = list(map(form, lines))
    starts = [*accumulate((len(line) + 1 for line in text.split("\n")), initial=0)]
    return [
        (starts[first], min(starts[first + len(needle)], len(text)))
        for first in range(len(forms) - len(needle) + 1)
        if forms[first : first + len(needle)] == needle
    ]


def _passages(text: str, searched: Sequence[str]) -> list[tuple[int, int]]:
    """The spans where a text occurs within lines, with no end inside a word."""
    pattern = "\r?\n".join(map(re.escape, searched))
    places = [match.span(1) for match in re.finditer(f"(?=({pattern}))", text)]
    return [place for place in places if not any(is_inside_word(text, at) for at in place)]


def _with_lines(text: str, start: int, end: int, new: Sequence[str]) -> str:
    """Replace whole lines; blank new lines remove them."""
    passage, line_break = text[start:end], _line_break(text[start:end] if "\n" in text[start:end] else text)
    if any(new):
        last = line_break if passage.endswith("\n") else ""
        return f"{text[:start]}{line_break.join(new)}{last}{text[end:]}"
    before = text[:start]
    if not passage.endswith("\n"):  # the text still ends without a line break
        before = before.removesuffix("\n").removesuffix("\r")
    return before + text[end:]


def _with_indented_lines(text: str, start: int, end: int, edit: Edit) -> str:
    """Replace whole lines by the new lines of an edit, indented as the lines in the text are.

    A search text often lacks only the indentation of its first line, so that line is mapped separately.
    """
    searched, replaced = (_bare_lines(side.strip("\r\n")) for side in (edit.search, edit.replace))
    pairs = [
        (_indent(line), _indent(original))
        for line, original in zip(searched, _bare_lines(text[start:end]), strict=False)
        if original.strip()
    ]
    indents = dict(pairs[1:]) or dict(pairs)
    new = [_reindented(line, indents if number else dict(pairs[:1])) for number, line in enumerate(replaced)]
    return _with_lines(text, start, end, new)


def _reindented(line: str, indents: Mapping[str, str]) -> str:
    indent = max((indent for indent in indents if line.startswith(indent)), key=len, default=None)
    return line if indent is None or not line.strip() else indents[indent] + line[len(indent) :]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _body(block: str) -> str:
    # The line break before a marker belongs to the marker.
    return block.removesuffix("\n").removesuffix("\r")


def _clip(text: str, width: int = 60) -> str:
    line = text.strip()
    return repr(line if len(line) <= width else line[: width - 3] + "...")
