"""What a model is asked about a task whose output was accepted, and how it is asked to be shorter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.feedback import render_critique
from redraft.core.tokens import BYTES_PER_TOKEN, estimate_tokens
from redraft.notes.placeholders import placeholders_of
from redraft.notes.plain import plain
from redraft.text.fence import fenced
from redraft.text.middle import without_middle

if TYPE_CHECKING:
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.task import Task
    from redraft.notes.reflection import TaskReflection
    from redraft.notes.strategy import ReflectionInput

MOST_OUTPUT = 24_000
"""Characters of an output that are shown: two thirds from its beginning, the rest from its end."""
MOST_SAID = 6_000
"""Characters of a judgement that are shown, or of a note: one that a person wrote has no bound."""

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


def meta_prompt(given: ReflectionInput) -> str:
    """Render the question how the instructions of a task could be better.

    The words are the specification's (Default Reflection Prompt), with what else there is to know between
    them: the note in force, what the criteria said, the limits. All that a run made is fenced as data.
    """
    task = given.task
    parts = [
        ROLE,
        "## Original Task Definition",
        f"### Description\n{plain(task.description)}",
        f"### Expected Output Specification\n{plain(task.expected_output) or NOT_GIVEN}",
        f"## What Was Produced\n{fenced(without_middle(plain(given.task_output), MOST_OUTPUT), 'output')}",
    ]
    if given.prior_reflection is not None:
        parts.append(_prior(given.prior_reflection))
    if given.evaluation is not None:
        parts.append(_judged(given.evaluation))
    return "\n\n".join([*parts, ANALYSIS, _limits(given), FORM])


def shorten_prompt(given: ReflectionInput, reflection: TaskReflection, size: int) -> str:
    """Render the request to say the same in fewer words; `size` is how many tokens it is now."""
    now = (
        f"You wrote a note on a task that is too long: about {size:,} tokens, and at most "
        f"{given.max_tokens:,} tokens altogether are allowed{_in_characters(given.max_tokens)}."
    )
    asked = (
        "Shorten it. Keep what helps most the next time the task is carried out, merge what says the same, "
        "and leave out what the definition says already."
    )
    note = fenced(without_middle(_rendered(reflection), MOST_OUTPUT), "note")
    kept = _placeholder_rule(given.task)
    return "\n\n".join(part for part in (now, note, asked, kept, FORM) if part)


def _prior(prior: TaskReflection) -> str:
    rendered = without_middle(_rendered(prior), MOST_SAID)
    runs = "1 earlier run" if prior.run_count == 1 else f"{prior.run_count:,} earlier runs"
    return (
        f"## Note in Force (run {prior.run_count})\n"
        f"{runs} led to this note, and your answer takes its place: carry over what still helps, mend or "
        f"drop what does not.\n{fenced(rendered, 'note in force')}"
    )


def _rendered(reflection: TaskReflection) -> str:
    parts = (
        ("Refined description", reflection.refined_description),
        ("Refined expected output", reflection.refined_expected_output or NOT_GIVEN),
        ("Observations", "\n".join(f"- {item}" for item in reflection.observations) or "- (none)"),
        ("Suggestions", "\n".join(f"- {item}" for item in reflection.suggestions) or "- (none)"),
    )
    return plain("\n\n".join(f"{heading}:\n{text}" for heading, text in parts))


def _judged(evaluation: ReflectionEvaluation) -> str:
    verdict = "satisfactory" if evaluation.satisfactory else "not satisfactory"
    lines = [f"Overall: {_score(evaluation.overall_score)}, {verdict}"]
    lines += [f"- {name}: {_score(score)}" for name, score in evaluation.criteria_scores.items()]
    said = "\n\n".join(part for part in ("\n".join(lines), render_critique(evaluation)) if part)
    return f"## What the Criteria Said\n{fenced(without_middle(plain(said), MOST_SAID), 'judgement')}"


def _score(score: float | None) -> str:
    return "could not be judged" if score is None else f"{score:.2f} of 1"


def _limits(given: ReflectionInput) -> str:
    most = given.max_tokens
    rules = [
        f"Write at most {most:,} tokens altogether{_in_characters(most)}.",
        "A section that is left blank means the original text.",
        "Say what holds for every run of this task, not what only this output was about.",
    ]
    if estimate_tokens(given.task.description + given.task.expected_output) > most:
        rules.append(
            "The definition alone is longer than that: leave both refined sections blank, and put what you "
            "would change into the suggestions."
        )
    if given.evaluation is not None and given.evaluation.issues:
        rules.append(
            "Whatever the criteria found wrong must not happen again: where the definition leaves unsaid "
            "what they ask for, say it in the refined expected output, by the very names that they use."
        )
    if kept := _placeholder_rule(given.task):
        rules.append(kept)
    return "Limits:\n" + "\n".join(f"- {rule}" for rule in rules)


def _placeholder_rule(task: Task) -> str:
    names = ", ".join(f"{{{name}}}" for name in placeholders_of(task.description))
    return f"Keep these placeholders of the description in it, exactly as they are: {names}" if names else ""


def _in_characters(tokens: int) -> str:
    return f" (about {round(tokens * BYTES_PER_TOKEN, -2):,.0f} characters)"
