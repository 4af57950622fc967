"""Ask a model for better instructions, read its reply, and bound the notes of all strategies."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import combinations
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple, cast

from redraft._critique import render_critique
from redraft._hints import keyword_hints
from redraft._texts import BYTES_PER_TOKEN, estimate_tokens
from redraft._words import words_in
from redraft.errors import ModelError, OutputError
from redraft.memory.provenance import repeats
from redraft.memory.safety import memory_redactor
from redraft.models.names import model_of
from redraft.notes.note import TaskReflection, placeholders_of, size_of
from redraft.protocols import ChatModel, ChatRequest, Message, ModelChoice
from redraft.redact.log import logger
from redraft.text.characters import without_invisible, without_middle
from redraft.text.replies import fenced, speaks_to_author

if TYPE_CHECKING:
    from redraft.notes.task import ReflectionInput
    from redraft.types import PlainTask, ReflectionEvaluation


# Compared by identity, like models.
@keyword_hints()
@dataclass(frozen=True, slots=True, eq=False)
class LlmReflectionStrategy:
    """Ask a model for better instructions; the default for tasks without checks.

    If the reply is too long, the model is asked once to shorten it; a note that is still too long is cut
    (`bounded`). Raises `ConfigError` for a model that can't be used; when it is called, the errors of the
    model, and `OutputError` for a reply without a marker, or of which `bounded` leaves nothing.
    """

    model: ModelChoice

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", model_of(self.model))

    async def __call__(self, subject: ReflectionInput, /) -> TaskReflection:
        """Improve the instructions; a section missing from the reply stays as in the task."""
        reflection = without_losses(await self._ask(meta_prompt(subject), subject), subject)
        size = size_of(reflection, subject.task)
        if size > subject.max_tokens:
            reflection = await self._shorten(reflection, subject, size)
        return bounded(reflection, subject)

    async def _ask(self, prompt: str, subject: ReflectionInput) -> TaskReflection:
        """The model's reflection, of any length."""
        model = cast("ChatModel", self.model)
        reply = await model(ChatRequest((Message("user", prompt),), role="reflection"))
        sections = sections_of(
            reply.text, output=subject.task_output, cut_off=reply.finish_reason == "length"
        )
        definition = f"{subject.task.description}\n{subject.task.expected_output}"
        return settled(
            TaskReflection(
                _unquoted(sections.description, subject),
                _unquoted(sections.expected_output, subject),
                tuple(item for item in sections.observations if _is_own(item, definition, subject)),
                tuple(item for item in sections.suggestions if _is_own(item, definition, subject)),
                run_count=1 if subject.prior_reflection is None else subject.prior_reflection.run_count + 1,
            ),
            subject,
        )

    async def _shorten(self, long: TaskReflection, subject: ReflectionInput, size: int) -> TaskReflection:
        """A shorter reflection, else the long reflection, which can still be cut."""
        try:
            short = await self._ask(shorten_prompt(subject, long, size), subject)
        except (ModelError, OutputError):
            return long
        is_whole = not any(text.loss() for text in _refined(short, subject))
        return short if is_whole and size_of(short, subject.task) < size else long


def _is_own(item: str, definition: str, subject: ReflectionInput) -> bool:
    return is_advice(item, definition) and not quotes_output(item, subject)


def quotes_output(text: str, subject: ReflectionInput) -> bool:
    """Whether a text repeats a sentence of the output, which may come from a web page or a tool.

    Sentences that the definition of the task also contains do not count.
    """
    definition = f"{subject.task.description}\n{subject.task.expected_output}"
    output = without_middle(subject.task_output, MOST_OUTPUT)  # the part that the model has seen
    return repeats(text, output) and not repeats(text, definition)


def _unquoted(text: str, subject: ReflectionInput) -> str:
    """A refined text without the sentences that it quotes from the output."""
    lines = text.split("\n")
    own = {line: line for line in lines}
    for line in own:
        if quotes_output(line, subject):
            sentences = _SENTENCE_END.split(line)
            own[line] = " ".join(sentence for sentence in sentences if not quotes_output(sentence, subject))
    return "\n".join(own[line] for line in lines).strip()


_SENTENCE_END = re.compile(r"(?<=[.!?\u3002])\s+")


def storable(reflection: TaskReflection, subject: ReflectionInput) -> TaskReflection:
    """Redact and bound the reflection of any strategy, so that it may be stored.

    Secrets are withheld first, so that no cut leaves half a secret, and again in the bounded note, because
    the task's own text may have replaced a refined text. Raises `OutputError` for anything but a
    `TaskReflection`, and the errors of `bounded` and `redacted`.
    """
    if not isinstance(reflection, TaskReflection):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped strategies)
        raise OutputError(f"A reflection strategy must return a TaskReflection, got {reflection!r:.200}.")
    clean = redacted(reflection)
    cut = bounded(clean, subject)
    return cut if cut == clean else redacted(cut)


def redacted(reflection: TaskReflection) -> TaskReflection:
    """Withhold secrets and personal data of every category; idempotent.

    Raises `OutputError` if something could not be withheld.
    """
    redactor = memory_redactor()
    clean = redactor.redact_object(reflection)  # a name in any text is withheld in all texts
    texts = (
        clean.refined_description,
        clean.refined_expected_output,
        *clean.observations,
        *clean.suggestions,
    )
    if not all(map(redactor.is_clean, texts)):
        raise OutputError("A text of the reflection holds a secret that could not be withheld.")
    return clean


# The prompts.

MOST_OUTPUT = 24_000
"""The most characters of an output to show: two thirds from the beginning, the rest from the end."""
MOST_QUOTED = 6_000
"""The most characters of an evaluation or a note to show; a note that a person wrote may be longer."""

NOT_GIVEN = "(none was given)"

ROLE = """\
You are a task prompt optimization specialist. Your role is to analyze how a task
definition performed and propose improvements to its instructions for future executions."""

ANALYSIS = """\
## Analysis Instructions

1. Evaluate whether the task instructions were clear, concise, and effective.
2. Identify where the instructions helped or hindered the agent's execution flow.
3. Propose targeted improvements focused on:
   - Improving clarity and conciseness
   - Consolidating overlapping or redundant guidance
   - Identifying outdated or low-impact instructions that add noise
   - Tightening the expected output format if output deviated from intent"""

FORM = """\
Respond using EXACTLY the following structured format:

REFINED_DESCRIPTION:
[An improved version of the task description]

REFINED_EXPECTED_OUTPUT:
[An improved version of the expected output specification]

OBSERVATIONS:
- [Key observation about what worked or did not work]

SUGGESTIONS:
- [Specific actionable improvement for future runs]"""


def meta_prompt(subject: ReflectionInput) -> str:
    """The prompt that asks for better instructions.

    It shows the task, the output, the note in force, the evaluation and the limits. Everything that a run
    produced is fenced as data.
    """
    task = subject.task
    parts = [
        ROLE,
        "## Original Task Definition",
        f"### Description\n{without_invisible(task.description)}",
        f"### Expected Output Specification\n{without_invisible(task.expected_output) or NOT_GIVEN}",
        f"## What Was Produced\n{excerpt(subject.task_output, MOST_OUTPUT, 'output')}",
    ]
    if subject.prior_reflection is not None:
        prior = subject.prior_reflection
        note = excerpt(_rendered(prior), MOST_QUOTED, "note in force")
        runs = "1 earlier run" if prior.run_count == 1 else f"{prior.run_count:,} earlier runs"
        parts.append(
            f"## Note in Force (run {prior.run_count})\n"
            f"{runs} led to this note, and your answer takes its place: carry over what still helps, mend or "
            f"drop what does not.\n{note}"
        )
    if subject.evaluation is not None:
        parts.append(judged_text(subject.evaluation))
    return "\n\n".join([*parts, ANALYSIS, _limits(subject), FORM])


def shorten_prompt(subject: ReflectionInput, reflection: TaskReflection, size: int) -> str:
    """The prompt that asks for a shorter note; `size` is its current length in tokens."""
    now = (
        f"You wrote a note on a task that is too long: about {size:,} tokens, and at most "
        f"{subject.max_tokens:,} tokens altogether are allowed{_in_characters(subject.max_tokens)}."
    )
    request = (
        "Shorten it. Keep what helps most the next time the task is carried out, merge what says the same, "
        "and leave out what the definition says already."
    )
    note = excerpt(_rendered(reflection), MOST_OUTPUT, "note")
    rule = _placeholder_rule(subject.task)
    return "\n\n".join(part for part in (now, note, request, rule, FORM) if part)


def _rendered(reflection: TaskReflection) -> str:
    parts = (
        ("Refined description", reflection.refined_description),
        ("Refined expected output", reflection.refined_expected_output or NOT_GIVEN),
        ("Observations", "\n".join(f"- {item}" for item in reflection.observations) or "- (none)"),
        ("Suggestions", "\n".join(f"- {item}" for item in reflection.suggestions) or "- (none)"),
    )
    return "\n\n".join(f"{heading}:\n{text}" for heading, text in parts)


def excerpt(text: str, most: int, label: str) -> str:
    """Quote a text as data, without invisible characters, in at most about `most` characters."""
    return fenced(without_middle(without_invisible(text), most), label)


def judged_text(evaluation: ReflectionEvaluation) -> str:
    """The evaluation as a part of a prompt."""
    verdict = "satisfactory" if evaluation.satisfactory else "not satisfactory"
    lines = [f"Overall: {_score(evaluation.overall_score)}, {verdict}"]
    lines += [f"- {name.rstrip('.')}: {_score(score)}" for name, score in evaluation.criteria_scores.items()]
    judgement = "\n\n".join(part for part in ("\n".join(lines), render_critique(evaluation)) if part)
    return f"## What the Criteria Said\n{excerpt(judgement, MOST_QUOTED, 'judgement')}"


def _score(score: float | None) -> str:
    return "could not be judged" if score is None else f"{score:.2f} of 1"


def _limits(subject: ReflectionInput) -> str:
    most = subject.max_tokens
    rules = [
        f"Write at most {most:,} tokens altogether{_in_characters(most)}.",
        "A section that is left blank means the original text.",
        "Say what holds for every run of this task, not what only this output was about.",
        "Whoever carries out the task reads this, and its author does not: write to the reader.",
    ]
    if estimate_tokens(subject.task.description + subject.task.expected_output) > most:
        rules.append(
            "The definition alone is longer than that: leave both refined sections blank, and put what you "
            "would change into the suggestions."
        )
    if subject.evaluation is not None and subject.evaluation.issues:
        rules.append(
            "Whatever the criteria found wrong must not happen again: where the definition leaves unsaid "
            "what they ask for, say it in the refined expected output, by the very names that they use."
        )
    if rule := _placeholder_rule(subject.task):
        rules.append(rule)
    return "Limits:\n" + "\n".join(f"- {rule}" for rule in rules)


def _placeholder_rule(task: PlainTask) -> str:
    names = ", ".join(f"{{{name}}}" for name in placeholders_of(task.description))
    return f"Keep these placeholders of the description in it, exactly as they are: {names}" if names else ""


def _in_characters(tokens: int) -> str:
    return f" (about {round(tokens * BYTES_PER_TOKEN, -2):,.0f} characters)"


# Reading a reply.

MARKERS = ("REFINED_DESCRIPTION", "REFINED_EXPECTED_OUTPUT", "OBSERVATIONS", "SUGGESTIONS")
"""The sections of a reply, in their order."""

# As in the format, or with the markup that models add.
_MARKER = re.compile(rf"(?:#{{1,6}} +)?(\*\*|__|`)?({'|'.join(MARKERS)})(?(1)(?:\1)?)[:\uff1a](?(1)(?:\1)?)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[^`]*")
_RULE = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*")
_BULLET = re.compile(r"([^\S\n]*)(?:[-*+\u2022\u2013]|\(?\d{1,3}[.)])(?:\s+|$)")
_NOTHING = re.compile(
    r"(?:none|n/a|nothing|unchanged|no changes?|no (?:observations|suggestions))(?: (?:needed|required))?"
)
# The form itself, returned without content.
_FORM = re.compile(
    r"\[(?:An improved version of the|Key observation about|Specific actionable improvement)[^\]\n]*\]"
)


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections of a reply; a text is empty if its section was blank or missing."""

    description: str = ""
    expected_output: str = ""
    observations: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


def sections_of(reply: str, *, output: str = "", cut_off: bool = False) -> Sections:
    """Read a reply to the reflection prompt about an `output`.

    A section begins with its marker at the start of a line. If markers repeat, the reading with the most
    sections in their documented order counts, and of several such readings the earliest; all other markers
    are content. A marker that also begins a line of the output, and is followed by the same text there, is a
    quotation, unless the reply has no other marker of that name. A fence around the reply, and text before
    the first marker, are dropped. If the reply was `cut_off` within a list, its last item is dropped, too.
    Raises `OutputError` if there is no marker, or a refined text was cut off.
    """
    lines = without_invisible(reply).split("\n")
    starts = _section_starts(lines, _quotable_in(output))
    if not starts:
        raise OutputError(
            f"None of the markers {', '.join(f'{name}:' for name in MARKERS)} begins a line of the reply, "
            f"which has {len(reply):,} characters: it can't be read as a reflection."
        )
    last = list(starts)[-1] if cut_off else ""
    if last in MARKERS[:2]:
        raise OutputError(
            f"The reply was cut off in the section {last}: the model's limit of tokens is too low."
        )
    del lines[_end(lines, starts) :]
    ends = [*starts.values(), len(lines)][1:]
    sections = {
        name: _unfenced([_MARKER.sub("", lines[start], count=1).lstrip(), *lines[start + 1 : end]])
        for (name, start), end in zip(starts.items(), ends, strict=True)
    }
    description, expected = (_text(sections.get(name, [])) for name in MARKERS[:2])
    observed, suggested = (
        _items(sections.get(name, []))[: -1 if name == last else None] for name in MARKERS[2:]
    )
    return Sections(description, expected, observed, suggested)


def _section_starts(lines: list[str], quotable: set[str]) -> dict[str, int]:
    """The line of each marker that begins a section, in order."""
    marked = _markers_in(lines)
    unquoted = [mark for mark in marked if _with_next_text(lines, mark[0]) not in quotable]
    unquoted_names = {name for _, name in unquoted}
    marked = sorted(
        [*unquoted, *(mark for mark in set(marked) - set(unquoted) if mark[1] not in unquoted_names)]
    )
    for count in range(len(MARKERS), 0, -1):
        readings = [
            reading for names in combinations(MARKERS, count) if (reading := _first_in_order(names, marked))
        ]
        if readings:
            return min(readings, key=lambda reading: list(reading.values()))
    return {}


def _markers_in(lines: list[str]) -> list[tuple[int, str]]:
    return [
        (number, match[2]) for number, line in enumerate(lines) if (match := _MARKER.match(line)) is not None
    ]


def _quotable_in(output: str) -> set[str]:
    """The markers in an output, each with the text after it."""
    lines = without_invisible(output).split("\n")
    return {text for number, _ in _markers_in(lines) if (text := _with_next_text(lines, number))}


def _with_next_text(lines: list[str], number: int) -> str:
    """A marker with the first text after it, in its line or below; empty if there is none."""
    marker = lines[number].strip()
    if _MARKER.sub("", marker, count=1).strip():
        return marker
    following = (lines[at].strip() for at in range(number + 1, len(lines)))
    below = next(filter(None, following), "")
    return f"{marker}\n{below}" if below and not _MARKER.match(below) else ""


def _first_in_order(names: tuple[str, ...], marked: list[tuple[int, str]]) -> dict[str, int]:
    """The first lines with these markers in this order; empty if there are none."""
    lines: dict[str, int] = {}
    for number, name in marked:
        if len(lines) < len(names) and name == names[len(lines)]:
            lines[name] = number
    return lines if len(lines) == len(names) else {}


def _end(lines: list[str], starts: dict[str, int]) -> int:
    """The line where the reply ends: at the fence that closes a fence above the first marker."""
    fences = [number for number, line in enumerate(lines) if _FENCE.fullmatch(line)]
    above = sum(number < min(starts.values()) for number in fences)
    # Fences come in pairs: an odd number above leaves one open, and then an even number in all closes it.
    closed = above % 2 and len(fences) % 2 == 0 and fences[-1] > max(starts.values())
    return fences[-1] if closed else len(lines)


def _unfenced(lines: list[str]) -> list[str]:
    """A section without surrounding blank lines and rules, and without a fence around everything."""
    filled = [number for number, line in enumerate(lines) if line.strip() and not _RULE.fullmatch(line)]
    inner = lines[filled[0] : filled[-1] + 1] if filled else []
    fences = [number for number, line in enumerate(inner) if _FENCE.fullmatch(line)]
    return inner[1:-1] if fences == [0, len(inner) - 1] else inner


def _text(lines: list[str]) -> str:
    text = "\n".join(lines).strip()
    return "" if _says_nothing(text) else text


def _items(lines: list[str]) -> tuple[str, ...]:
    """Read a list of bullets or numbers, else of lines; lines that continue an item belong to it."""
    bullets = [match for line in lines if not _RULE.fullmatch(line) and (match := _BULLET.match(line))]
    outermost = len(bullets[0][1]) + 1 if bullets else 0
    items: list[list[str]] = []
    goes_on = False
    for line in lines:
        if not line.strip() or _RULE.fullmatch(line):
            goes_on = False
            continue
        bullet = _BULLET.match(line)
        if bullet is not None and len(bullet[1]) <= outermost:
            items.append([line[bullet.end() :]])
        elif items and bullets and (goes_on or line[0].isspace()):
            items[-1].append(line)
        else:
            items.append([line])
        goes_on = True
    texts = ("\n".join([first, dedent("\n".join(rest))]).strip() for first, *rest in items)
    return tuple(dict.fromkeys(text for text in texts if not _says_nothing(text)))


def _says_nothing(text: str) -> bool:
    bare = text.strip(" \t\n.*_`()[]-").casefold()
    return not bare or _NOTHING.fullmatch(bare) is not None or _FORM.fullmatch(text) is not None


# Selection of advice.

WORD = re.compile(r"\w+(?:[-@.,:/'\u2019]\w+)*")
REPEATED = 0.8
"""An item repeats a text if the text has at least this share of the item's words."""


def is_advice(item: str, definition: str) -> bool:
    """Whether an item adds to the definition, and is addressed to the executor of the task."""
    words = words_of(item)
    is_new = len(words & words_of(definition)) < REPEATED * len(words)
    return is_new and not speaks_to_author(item)


def words_of(text: str) -> set[str]:
    """The words of a text, folded; hyphenated words in Latin letters stay together."""
    words = WORD.findall(text)
    return {part for word in words for part in ((word.lower(),) if word.isascii() else words_in(word))}


# Bounding a note.

FEWEST_WORDS = 30
"""A shorter text can't lose most of its content."""
LEAST_KEPT = 1 / 3

# In scripts without spaces between words, each character counts as a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def bounded(reflection: TaskReflection, subject: ReflectionInput) -> TaskReflection:
    """Bound the reflection of any strategy on `subject`.

    A blank refined text is replaced by the task's own, and blank items are dropped. Beyond
    `subject.max_tokens` the note is cut: observations from the end, then suggestions, then whole lines of the
    refined texts. A refined text that has lost most of its content, or a placeholder of the description, is
    replaced by the task's own. Leaves a reflection within its bounds unchanged. Raises `OutputError` if
    nothing remains.
    """
    reflection = without_losses(settled(reflection, subject), subject)
    task, most = subject.task, subject.max_tokens
    if size_of(reflection, task) <= most:
        return reflection
    cut = _cut_texts(reflection, subject)
    cut = replace(cut, suggestions=_first_items(reflection.suggestions, most - size_of(cut, task)))
    return replace(cut, observations=_first_items(reflection.observations, most - size_of(cut, task)))


def settled(reflection: TaskReflection, subject: ReflectionInput) -> TaskReflection:
    """Replace blank refined texts by the task's own, and drop blank items."""
    return replace(
        reflection,
        refined_description=_own_if_same(reflection.refined_description, subject.task.description),
        refined_expected_output=_own_if_same(
            reflection.refined_expected_output, subject.task.expected_output
        ),
        observations=tuple(
            text for item in reflection.observations if (text := without_invisible(item).strip())
        ),
        suggestions=tuple(
            text for item in reflection.suggestions if (text := without_invisible(item).strip())
        ),
    )


def _own_if_same(refined: str, own: str) -> str:
    """A refined text as plain text; the task's own text if it is blank or equal."""
    text = without_invisible(refined).strip()
    return own if not text or text == without_invisible(own).strip() else text


def without_losses(reflection: TaskReflection, subject: ReflectionInput) -> TaskReflection:
    """Replace refined texts that lost content by the task's own.

    The rest of the reflection stays. Raises `OutputError` if it has no other content.
    """
    lost = {text: loss for text in _refined(reflection, subject) if (loss := text.loss())}
    if not lost:
        return reflection
    left, why = replace(reflection, **{text.field: text.own for text in lost}), " ".join(lost.values())
    if size_of(left, subject.task) == 0:
        raise OutputError(why)
    logger.info("The task's own text stays in its note: %s", why)
    return left


class _RefinedText(NamedTuple):
    """A refined text, with the texts to compare it with: the task's own, and the text in force."""

    field: str
    text: str
    own: str
    in_force: str

    def loss(self) -> str:
        """Describe the loss of most of the content, or of a placeholder of the description; empty if none."""
        if self.text == self.own:
            return ""
        present = placeholders_of(self.text)
        missing = [f"{{{name}}}" for name in placeholders_of(self.own) if name not in present]
        if missing and self.field == "refined_description":
            return (
                f"The refined description lost {', '.join(missing)}, which the task's description has: every "
                "placeholder must stay in it as it is."
            )
        words = _count_words(self.text)
        for whose, previous in (("the task's own", self.own), ("the one in force", self.in_force)):
            if (before := _count_words(previous)) >= FEWEST_WORDS and words < before * LEAST_KEPT:
                return (
                    f"The {self.field.replace('_', ' ')} lost most of its content: it has {words} words, and "
                    f"{whose} has {before}. At least a third must be left."
                )
        return ""


def _refined(reflection: TaskReflection, subject: ReflectionInput) -> tuple[_RefinedText, _RefinedText]:
    task, prior = subject.task, subject.prior_reflection
    return (
        _RefinedText(
            "refined_description",
            reflection.refined_description,
            task.description,
            prior.refined_description if prior else "",
        ),
        _RefinedText(
            "refined_expected_output",
            reflection.refined_expected_output,
            task.expected_output,
            prior.refined_expected_output if prior else "",
        ),
    )


def _count_words(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text))


def _cut_texts(reflection: TaskReflection, subject: ReflectionInput) -> TaskReflection:
    """Cut the refined texts until both together fit: the longer text first, to half the room or more.

    If they don't fit, up to half the room is left for the lists. Returns a reflection without lists.
    """
    task, most = subject.task, subject.max_tokens
    cut = replace(reflection, observations=(), suggestions=())
    if (size := size_of(cut, task)) > most:
        lists = replace(reflection, refined_description="", refined_expected_output="")
        most = max(most // 2, most - size_of(lists, task))
    for refined in sorted(_refined(cut, subject), key=lambda text: len(text.text), reverse=True):
        if size <= most:
            break
        other = size_of(replace(cut, **{refined.field: ""}), task)
        lines = refined.text.splitlines(keepends=True)
        count = _fitting(lines, max(most - other, most // 2))
        shorter = refined._replace(text="".join(lines[:count]).rstrip())
        keeps = shorter.text and not shorter.loss()
        cut = replace(cut, **{refined.field: shorter.text if keeps else refined.own})
        size = size_of(cut, task)
    return cut


def _first_items(items: tuple[str, ...], room: int) -> tuple[str, ...]:
    return items[: _fitting([f"- {item}\n" for item in items], room)]


def _fitting(parts: list[str], room: int) -> int:
    """How many parts, from the first, fit into `room` tokens together."""
    used = 0.0
    for count, part in enumerate(parts):
        used += len(part.encode("utf-8", "replace")) / BYTES_PER_TOKEN
        if used >= room:  # not equal, since estimates of the other parts round down by up to half a token
            return count
    return len(parts)
