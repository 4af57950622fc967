"""Have a model write a reflection on how a task ended."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import as_text
from redraft._words import overlap, words_in, words_of
from redraft.errors import ModelError, OutputError
from redraft.evaluate.ask import Answer, ask
from redraft.lessons.facts import FactFinding, findings_in, has_messages, is_lack, supported
from redraft.lessons.lesson import (
    CONFIDENCE,
    NEAR_DUPLICATE,
    Content,
    Failure,
    Partial,
    Procedure,
    headings_of,
    is_empty,
)
from redraft.lessons.markdown import one_line
from redraft.lessons.outcome import ONLY_JUDGED, Outcome
from redraft.lessons.rules import refusal
from redraft.memory.safety import CUT_NOTICE, LONGEST, WITHHELD, Cleaner
from redraft.protocols import Message
from redraft.redact.log import logger
from redraft.text.characters import without_invisible, without_middle
from redraft.text.replies import fenced, json_of, speaks_to_author
from redraft.types import NOTHING_USED, TokenUsage, in_one_line, unwrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.protocols import ChatModel, ChatReply, ChatRequest

FIXED_CONFIDENCE = 0.8
"""An output failed, and its revision passed."""
OPINION_CONFIDENCE = 0.5
"""The model gives a cause, but there is no evidence of what was wrong."""
FACTS_CONFIDENCE = 0.4
"""There is evidence of what was wrong, but the model gave no cause, or only repeated its prompt."""
LOW_CONFIDENCE = 0.2
"""There is neither evidence nor a cause, or the model wrote something that no lesson may contain."""
MOST_STEPS = 20
MOST_FACTS = 8
"""Maximum facts of a model in a reflection."""
MOST_TITLE = 80
MOST_TITLE_WORDS = 8
MOST_TRANSCRIPT = 12_000
MOST_SHOWN = 4_000
"""Characters of the task, of an output and of the error in the prompt."""
MOST_ISSUE = 300
"""Characters of a quoted issue."""
MOST_READ = 60_000
"""Characters that are searched for secrets before they are cut to size."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Steps that worked, and the idea behind them."""

    steps: tuple[str, ...]
    strategy: str


@dataclass(frozen=True, slots=True)
class LessonReflection:
    """A lesson's content; if its cause is systemic, also a principle and steps to replay."""

    content: Content
    title: str = ""
    """The lesson in a few words."""
    principle: str = ""
    replay: Replay | None = None
    usage: TokenUsage = NOTHING_USED
    confidence: float = CONFIDENCE
    """How well it is supported (0..1); by default, the model gives a cause, and there is evidence."""
    problem: str = ""
    """Why part of the reply could not be used."""
    names_requirements: bool = False
    """Whether its advice consists of the requirements of the failed checks, without words of a model."""
    facts: tuple[FactFinding, ...] = ()
    """Facts about the environment, supported by errors, replies or a passing output."""


async def facts_only(request: ChatRequest, /) -> ChatReply:  # noqa: ARG001 (it never replies)
    """A model that is never called: `write_reflection` then only quotes the facts."""
    raise ModelError("A lesson that needs a model can't be written: none is asked.")


async def write_reflection(outcome: Outcome, model: ChatModel) -> LessonReflection:
    """Have a model reflect on an outcome, in one call, or in two if the first reply can't be used.

    The facts are quoted from the outcome, the reasons are the model's. A field that only repeats another
    field, the task or an issue gets the facts instead; asking again would not help, since models that repeat
    themselves do so again. The prompt is limited in size, and the outcome is fenced as data. Secrets are
    withheld from the reply, and anything that no lesson may contain becomes `[withheld]`. A failed or partial
    task always yields a reflection, if necessary without the model, and so does a success that fixed a known
    problem; with `facts_only` as the model, these come from the facts alone. Otherwise raises `ModelError` if
    the model fails, and `OutputError` if its reply can't be used.
    """
    form = _Form(outcome)
    if model is facts_only and form.has_facts_to_tell:
        return form.reflection(Answer(_Reply(), "", NOTHING_USED))
    form = replace(form, asks_facts=await asyncio.to_thread(_leaves_facts_open, outcome))
    prompt = await asyncio.to_thread(form.prompt)
    try:
        answer = await ask(model, (Message("user", prompt),), form.schema, form.read, "reflection")
    except (ModelError, OutputError) as error:
        if not form.has_facts_to_tell:
            raise
        answer = Answer(_Reply(), f"The model failed: {error}", error.usage or NOTHING_USED)
    return form.reflection(answer)


@dataclass(frozen=True, slots=True)
class _Reply:
    """The usable part of a model's reply; what no lesson may contain is cut or withheld."""

    texts: dict[str, str] = field(default_factory=dict[str, str])
    is_clean: bool = True
    """Whether no field had content that no lesson may contain."""
    title: str = ""
    principle: str = ""
    replay: Replay | None = None
    facts: tuple[FactFinding, ...] = ()


def _leaves_facts_open(outcome: Outcome) -> bool:
    """Whether a failure has messages, but they only show that something is missing."""
    is_failure = outcome.is_mandatory or outcome.is_fixed
    return (
        is_failure
        and has_messages(outcome)
        and all(is_lack(finding.clause) for finding in findings_in(outcome))
    )


@dataclass(frozen=True, slots=True)
class _Form:
    """The questions to a model about an outcome."""

    outcome: Outcome
    asks_facts: bool = False
    """Whether to ask what the errors show of the environment."""
    cleaner: Cleaner = field(default_factory=Cleaner)

    @property
    def questions(self) -> dict[str, str]:
        """What each key of the reply should say."""
        questions: dict[str, str] = {}
        for section in fields(self.outcome.content_type):
            heading = section.metadata["heading"]
            questions[section.name] = (
                f"{heading}{'' if heading.endswith('?') else ':'} {section.metadata['hint']}"
            )
        questions["title"] = _TITLE
        status = self.outcome.status
        if status in _SYSTEMIC:
            questions["systemic"] = _SYSTEMIC[status]
            questions["principle"] = _PRINCIPLE
        if self.has_steps:
            questions["strategy_to_replay"] = _STRATEGY
            questions["steps_to_replay"] = _STEPS[status]
        if self.asks_facts:
            questions["facts"] = _FACTS
        return questions

    @property
    def has_steps(self) -> bool:
        """Whether the steps worked, so that they can be replayed."""
        return self.outcome.status == "success" or (
            self.outcome.status == "decision" and not self.outcome.error
        )

    @property
    def has_facts_to_tell(self) -> bool:
        """Whether a reflection is written even without the model."""
        return self.outcome.is_mandatory or self.outcome.is_fixed

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a reply."""
        properties = {
            name: {**_SCHEMAS.get(name, {"type": "string"}), "description": says}
            for name, says in self.questions.items()
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def prompt(self) -> str:
        """Render the prompt; texts from the run are redacted, cut to size, and fenced as data."""
        outcome, task = self.outcome, self.outcome.task
        texts = {
            "task": task.description,
            "expected output": task.expected_output,
            "list of tools": ", ".join(outcome.tools or task.tools),
            "transcript": numbered(outcome.transcript),
            "output that failed": outcome.failed_output,
            "list of what was wrong with it": "\n".join(outcome.issues) if outcome.failed_output else "",
            "list of what is required": "\n".join(outcome.requirements),
            "output that passed" if outcome.failed_output else "output": outcome.output,
            "error": "" if outcome.failed_output else outcome.error,
        }
        material = [
            fenced(self._bounded(text, label), label) for label, text in texts.items() if text.strip()
        ]
        return _PROMPT.format(
            ended=_FIXED if outcome.failed_output else _ENDED[outcome.status],
            material="\n\n".join(material),
            keys="\n".join(f"- {name}: {says}" for name, says in self.questions.items()),
            step=_NAME_THE_STEP if outcome.is_mandatory and outcome.transcript.strip() else "",
        )

    def _bounded(self, text: str, label: str) -> str:
        # Before it is cut to size, so that no cut leaves half a secret.
        clean = self.cleaner.redact(without_middle(text, MOST_READ))
        if label == "transcript":
            return shortened_transcript(clean, MOST_TRANSCRIPT)
        return without_middle(clean, MOST_SHOWN)

    def read(self, reply: ChatReply) -> tuple[_Reply, str]:
        """The usable part of a reply, and the problems of the rest."""
        try:
            value: Any = json_of(reply.text) if reply.parsed is None else reply.parsed
        except OutputError as error:
            return _Reply(), str(error)
        if not isinstance(value, dict):
            return _Reply(), "It is no JSON object."
        fields = cast("dict[str, Any]", value)
        texts: dict[str, str] = {}
        problems: list[str] = []
        is_clean = True
        for name in headings_of(self.outcome.content_type):
            value = fields.get(name)
            text = self.cleaner.redact(value) if isinstance(value, str) else ""
            why = self.cleaner.refusal(text) if text else "it must be a text that says something"
            if why:
                problems.append(f"{name}: {why}.")
            if text and why:
                is_clean = False
                text = self.cleaner.clean(text) if len(text) > LONGEST else WITHHELD
            if text:
                texts[name] = text
        title, facts = self._title(fields.get("title")), self._facts(fields.get("facts"))
        usable = _Reply(texts, is_clean, title, facts=facts)
        if fields.get("systemic") is not True:
            return usable, " ".join(problems)
        principle, why = self._principle(fields.get("principle"))
        if not principle:
            principle, _ = self._principle(fields.get("rule"))
        replay, why_no_replay = self._replay(fields.get("steps_to_replay"), fields.get("strategy_to_replay"))
        problems += [f"principle: {why}."] if why and not principle else []
        problems += [f"steps_to_replay: {why_no_replay}."] if why_no_replay else []
        return replace(usable, principle=principle, replay=replay), " ".join(problems)

    def _title(self, title: Any) -> str:
        """The title in a reply; empty if there is none, or if it repeats the task."""
        text = one_line(self.cleaner.redact(title)).strip("\"'`. ") if isinstance(title, str) else ""
        if not text or self.cleaner.refusal(text) or _repeats(text, self.outcome.task.description):
            return ""
        return " ".join(text.split()[:MOST_TITLE_WORDS])[:MOST_TITLE]

    def _facts(self, facts: Any) -> tuple[FactFinding, ...]:
        """The facts in a reply that an error, a reply of a tool or the passing output supports."""
        if not self.asks_facts or not isinstance(facts, list):
            return ()
        findings = list[FactFinding]()
        for text in cast("list[Any]", facts)[:MOST_FACTS]:
            subject, colon, statement = text.partition(":") if isinstance(text, str) else ("", "", "")
            fact = supported(subject, statement, self.outcome) if colon else "it names no thing"
            if isinstance(fact, str):
                logger.debug("A fact of a reflection was refused: %s: %r", fact, text)
            else:
                findings.append(fact)
        return tuple(findings)

    def _principle(self, principle: Any) -> tuple[str, str]:
        """The principle in a reply, or the reason for refusing it.

        A sentence of the task, of a tool, of an error or of an output is never a principle.
        """
        if not isinstance(principle, str) or not principle.strip() or is_empty(principle):
            return "", ""
        text = self.cleaner.redact(one_line(principle))
        why = refusal(text) or repeated_source(principle, self.outcome) or repeated_source(text, self.outcome)
        why = why or (_TO_AUTHOR if self._is_for_author(text.rpartition("THEN")[2]) else "")
        return ("", why) if why else (text, "")

    def _replay(self, steps: Any, strategy: Any) -> tuple[Replay | None, str]:
        """The steps to replay, or the reason for refusing them.

        After a failure in the same run, these are the recorded steps that passed, never a model's words.
        """
        if self.outcome.is_fixed:
            steps = list(self.outcome.steps)
        if not self.has_steps or not isinstance(steps, list) or not isinstance(strategy, str):
            return None, ""
        texts = [step for step in cast("list[Any]", steps) if isinstance(step, str)]
        clean = [self.cleaner.redact(unwrapped(text)) for text in texts]
        steps_to_replay = [text for text in clean if text][:MOST_STEPS]
        idea = self.cleaner.redact(strategy)
        if not steps_to_replay or not idea:
            return None, ""
        if refusals := [why for text in (idea, *steps_to_replay) if (why := self.cleaner.refusal(text))]:
            return None, refusals[0]
        return Replay(tuple(steps_to_replay), idea), ""

    def reflection(self, answer: Answer[_Reply]) -> LessonReflection:
        """The reflection in a reply; raises `OutputError` if it is unusable and there are no facts."""
        reply, problem = answer.value, answer.problem
        texts = {
            name: self._for_agent(text) if name in _ADVICE else text for name, text in reply.texts.items()
        }
        repeated = self._repeated(texts)
        names = headings_of(self.outcome.content_type)
        missing = [name for name in names if name not in texts or name in repeated]
        problem = " ".join(filter(None, (problem, *(f"{name}: {why}." for name, why in repeated.items()))))
        if missing and not self.has_facts_to_tell:
            raise OutputError(f"The model's reflection can't be used: {problem}", usage=answer.usage)
        facts = Facts.of(self.outcome, self.cleaner)
        fallback = facts.fallback("" if texts else self.cleaner.redact(problem)) if missing else {}
        texts = {
            name: self.cleaner.clean(fallback[name]) if name in missing else texts[name] for name in names
        }
        return LessonReflection(
            facts.quoted_in(self.outcome.content_type(**texts)),
            reply.title or facts.title,
            reply.principle,
            reply.replay,
            answer.usage,
            self._confidence(facts, is_complete=not missing, is_clean=reply.is_clean),
            "" if reply.is_clean and not missing else problem,
            names_requirements=bool(facts.required) and missing == list(names),
            facts=reply.facts,
        )

    def _repeated(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The fields that add nothing or do not help, each with the reason.

        `what_happened` and `what_went_wrong` are facts, and the rule may repeat the words of the correction.
        Advice on how the task should have been written does not help the agent that carries it out.
        """
        outcome = self.outcome
        sources: dict[str, tuple[str, ...]] = {
            "the task": (outcome.task.description,),
            "what was found": (*outcome.issues, " ".join(outcome.issues), outcome.error),
        }
        repeated: dict[str, str] = {}
        for name, text in texts.items():
            question = {"the question": (self.questions[name],)}
            labels = [
                label
                for label, source_texts in (sources | question).items()
                if any(_repeats(text, source_text) for source_text in source_texts)
            ]
            if labels and name not in _FACTUAL:
                repeated[name] = f"it repeats {labels[0]}"
            elif name == "rule" and (why := repeated_source(text, outcome)):
                repeated[name] = why
            elif name in _ADVICE and self._is_for_author(text):
                repeated[name] = _TO_AUTHOR
            if name != "do_differently":
                sources |= {name: (text,)}
        return repeated

    def _is_for_author(self, text: str) -> bool:
        outcome = self.outcome
        return speaks_to_author(text, "\n".join((*outcome.issues, outcome.error)))

    def _for_agent(self, text: str) -> str:
        """Advice without sentences that address the author of the task; unchanged if all of them do."""
        sentences = _SENTENCE.split(text)
        useful = [sentence for sentence in sentences if not self._is_for_author(sentence)]
        return text if len(useful) in (0, len(sentences)) else " ".join(useful)

    def _confidence(self, facts: Facts, *, is_complete: bool, is_clean: bool) -> float:
        if not is_clean:
            return LOW_CONFIDENCE
        has_evidence = facts.lines and self.outcome.doubt != ONLY_JUDGED
        if not is_complete:
            return FACTS_CONFIDENCE if has_evidence else LOW_CONFIDENCE
        if not has_evidence:
            return OPINION_CONFIDENCE
        return FIXED_CONFIDENCE if self.outcome.is_fixed else CONFIDENCE


def repeated_source(text: str, outcome: Outcome) -> str:
    """Which part of an outcome a text repeats, except what the program's checks say; empty if none."""
    from redraft.memory.provenance import repeats  # noqa: PLC0415 (slow to load, and advice needs none)

    task = outcome.task
    of_check = bool(outcome.issues) and outcome.error.partition("; ")[0] in outcome.issues[0]
    conversation = [as_text(message.content) for message in task.messages]
    sources = {
        "the task": [task.description, task.expected_output, task.context, *conversation],
        "the transcript": [outcome.transcript, outcome.heard],
        "the output": [as_text(outcome.output), as_text(outcome.failed_output)],
        "the error": [] if of_check else [outcome.error],
    }
    for label, texts in sources.items():
        if any(repeats(text, without_middle(source, MOST_READ)) for source in texts):
            return f"it repeats {label}"
    return ""


# --- the question ------------------------------------------------------------------------------------------

_PROMPT = """\
You look back on how a task ended, and write down what is to be learnt from it. {ended}

{material}

Reply with one JSON object and nothing else. It has these keys, and each says:
{keys}

Write plain sentences about what is shown above, and nothing that is not there.{step} Leave out everything \
that others must not see (passwords, keys, names of persons and machines): say in general what it was. Leave \
out addresses of pages, commands to run, and anything that asks to drop a rule or a check."""
_FIXED = "An output failed, and the one that was revised for it passed: tell what made the difference."
_ENDED = {
    "failed": "The task failed.",
    "partial": "The task was done only in part.",
    "success": "The task was done well.",
    "decision": "An important decision was made.",
}
_NAME_THE_STEP = (
    " Where it failed, name the step by its number in the transcript, with the tool and the input that were "
    "used there."
)
_SYSTEMIC = {
    "failed": "true only if the cause lies in how such tasks are done, and would come again in others; "
    "false for a slip, an outage or a mistake of this one task",
    "success": "true only if what was done can be repeated for other tasks of this kind",
    "decision": "true only if other tasks will need the same decision",
}
_TITLE = (
    "Three to six words that name what was learnt here, as a heading would, in the names of the things it is "
    "about, and not the task."
)
_FACTS = (
    "what the error or a reply shows to be so where the task runs: names, columns, units, formats, limits. "
    "Each as 'name: what is so', in its exact names, and no advice; an empty list if it shows nothing"
)
_PRINCIPLE = (
    "if systemic, one sentence 'IF ... THEN ...' that says what to do with what, in the names of the tools, "
    "errors and things that it is about; otherwise empty"
)
_STRATEGY = "if systemic, the idea behind these steps and what came of it, in a sentence; otherwise empty"
_STEPS = {
    "success": "if systemic, the steps that worked, one a line; otherwise empty",
    "decision": "if systemic, the steps that led to the decision, one a line; otherwise empty",
}
_SCHEMAS: dict[str, Mapping[str, Any]] = {
    "systemic": {"type": "boolean"},
    "steps_to_replay": {"type": "array", "items": {"type": "string"}},
    "facts": {"type": "array", "items": {"type": "string"}},
}


# --- facts --------------------------------------------------------------------------------------------------

_FACTUAL = ("what_happened", "what_went_wrong")
_ADVICE = ("do_differently", "rule", "strategy")
FAILED_WITH = "It failed with: "
_LONGEST_FACT = 600
_MOST_FACTS = 1_200
_FEWEST_WORDS = 4
"""Minimum words of a quotation that counts as a repetition."""
FAILED_BEFORE = "An output failed before this one passed. "


@dataclass(frozen=True, slots=True)
class Facts:
    """The evidence in an outcome, without a model and free of secrets."""

    outcome: Outcome
    lines: tuple[str, ...]
    """What was wrong."""
    required: tuple[str, ...]
    """What would have been right."""
    step: str
    """The first step with an error; empty if there is none."""

    @classmethod
    def of(cls, outcome: Outcome, cleaner: Cleaner) -> Facts:
        """Collect the issues, the error unless the issues contain it, and the first step with an error."""
        issues = tuple(
            without_middle(cleaner.clean(in_one_line(without_invisible(issue))), MOST_ISSUE)
            for issue in outcome.issues
        )
        is_in_issues = words_in(outcome.error) <= words_in(" ".join(outcome.issues))
        error = () if is_in_issues else (f"{FAILED_WITH}{_fact(cleaner.clean(outcome.error))}",)
        required = tuple(map(cleaner.clean, outcome.requirements))
        return cls(outcome, (*issues, *error), required, _fact(first_error(numbered(outcome.transcript))))

    @property
    def title(self) -> str:
        """The first requirement, or else the first problem, as a heading; empty if there is neither."""
        facts = (*self.required, *(line.removeprefix(FAILED_WITH) for line in self.lines))
        return next((_heading(fact) for fact in facts if not is_empty(fact)), "")

    def quoted_in(self, content: Content) -> Content:
        """Content with the facts quoted in the fields where they belong."""
        match content:
            case Failure() | Partial():
                return replace(
                    content,
                    what_went_wrong=_after(self.lines, content.what_went_wrong),
                    do_differently=_after(self.required, content.do_differently),
                )
            case Procedure() if self.outcome.is_fixed:
                return replace(
                    content,
                    strategy=_after(self.required, content.strategy),
                    why_it_worked=f"{FAILED_BEFORE}{_after(self.lines, content.why_it_worked)}",
                )
            case _:
                return content

    def fallback(self, why: str) -> dict[str, str]:
        """The fields of a reflection without the model; `why` is the reason if all fields are missing."""
        outcome = self.outcome
        how = "failed" if outcome.status == "failed" else "was done in part"
        wrong = list(self.lines) + ([f"The first step with an error was {self.step}"] if self.step else [])
        cause = self.lines[0].removeprefix(FAILED_WITH) if self.lines else self.step
        cause = cause or _fact(as_text(outcome.output))
        if self.required:
            correction = "\n".join(self.required)
        elif outcome.issues:
            correction = "Check for this before you answer."
        elif cause:
            correction = f"Find out the cause before trying again: {cause}"
        else:
            correction = "Find out the cause before trying again, and record what each step answers."
        happened = f"The task {how}: {_fact(outcome.task.description)}"
        return {
            "what_happened": f"{happened}\nThis was written without a model, from what is known: {why}"
            if why
            else happened,
            "what_went_wrong": "\n".join(wrong) or "Nothing on record says at which step.",
            "why": "Not known.",
            "do_differently": correction,
            "rule": "None: what is known does not tell what would have prevented it.",
            "strategy": correction,
            "why_it_worked": "\n".join(self.lines) or "Not known.",
        }


_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_TO_AUTHOR = "it speaks to the author of the task"


def _after(facts: tuple[str, ...], text: str) -> str:
    """A text after the facts that it does not quote; only the facts if it adds nothing."""
    plain = _plain(text)
    missing = [fact for fact in facts if _plain(fact.removeprefix(FAILED_WITH)) not in plain]
    if not missing:
        return text
    lead = without_middle("\n".join(missing), _MOST_FACTS)
    if any(_repeats(text, fact) for fact in facts):
        return lead
    room = LONGEST - len(FAILED_BEFORE) - len(lead) - CUT_NOTICE
    return f"{lead}\n{without_middle(text, room)}"


_CLAUSE_END = re.compile(r"[.;:,]\s|\s\(")
_MORE = " ..."


def _heading(text: str) -> str:
    """A sentence as a heading: without its full stop, and cut at a clause if it is too long."""
    line = one_line(text)
    if len(line) <= MOST_TITLE:
        return line.rstrip(". ")
    clauses = [line[: end.start()] for end in _CLAUSE_END.finditer(line[:MOST_TITLE])]
    whole = [clause for clause in clauses if len(clause.split()) >= _FEWEST_WORDS]
    if whole:
        return whole[-1]
    cut = line[: MOST_TITLE - len(_MORE)]
    return f"{cut.rpartition(' ')[0] or cut}{_MORE}"


def _fact(text: str) -> str:
    return without_middle(in_one_line(text), _LONGEST_FACT)


def _plain(text: str) -> str:
    return " ".join(words_of(text))


def _repeats(text: str, other: str) -> bool:
    """Whether a text says no more than another text."""
    words = words_in(text)
    if overlap(words, words_in(other)) >= NEAR_DUPLICATE and words:
        return True
    return len(words) >= _FEWEST_WORDS and f" {_plain(text)} " in f" {_plain(other)} "


# --- transcripts -------------------------------------------------------------------------------------------

_NUMBERED = re.compile(r"(?:step\s*)?#?\d+[.:)]\s", re.IGNORECASE)
_FAILED_CALL = re.compile(
    r"\D*\d+[.:)]\s+\S+ (?:(?:failed|denied|was refused)\b|answered: (?:\w*Error|error|Traceback)\b)"
)
_MENTIONS_ERROR = re.compile(
    r"\b(?:\w*Error|\w*Exception|errors?|failed|failure|Traceback|denied|refused|timed out)\b"
)
_LINE_LENGTHS = (600, 300, 150)
"""Line lengths to try in turn until a transcript fits."""


def numbered(transcript: str) -> str:
    """Number the entries of a transcript, unless they are numbered.

    An indented line belongs to the entry before it.
    """
    lines = transcript.split("\n")
    if _NUMBERED.match(lines[0]):
        return transcript
    entries: list[str] = []
    number = 0
    for line in lines:
        if line.strip() and not line[0].isspace():
            number += 1
            entries.append(f"{number}. {line}")
        else:
            entries.append(line)
    return "\n".join(entries)


def first_error(transcript: str) -> str:
    """The first entry of a numbered transcript with an error; empty if there is none.

    A failed call comes before an entry that only mentions an error.
    """
    entries = [line.strip() for line in transcript.split("\n") if _NUMBERED.match(line)]
    failed_calls = (line for line in entries if _FAILED_CALL.match(line))
    mentions = (line for line in entries if _MENTIONS_ERROR.search(line))
    return next(failed_calls, "") or next(mentions, "")


def shortened_transcript(transcript: str, most: int) -> str:
    """Shorten a numbered transcript to about `most` characters.

    Long lines are cut first, so that no step is lost; if that is not enough, the middle is left out.
    """
    for longest in _LINE_LENGTHS:
        if len(transcript) <= most:
            return transcript
        lines = transcript.split("\n")
        transcript = "\n".join(line if len(line) <= longest else f"{line[:longest]} ..." for line in lines)
    return without_middle(transcript, most)
