"""Messages that MCP clients send and receive."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema

from redraft._codec import describe_error
from redraft._prompts import advice_text
from redraft._texts import as_text
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.lessons.lesson import ADVICE_KINDS, KINDS, Content
from redraft.loop.criteria_file import try_out
from redraft.loop.record import Process
from redraft.redact.redactor import redactor_of_environment
from redraft.text.characters import without_middle
from redraft.types import COUNTS, Advice, Issue, QualityCriterion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.loop.record import RunRecord
    from redraft.loop.runs import StoredRun
    from redraft.redact.redactor import Redactor
    from redraft.types import ReflectionEvaluation, ReflectionResult, ReflectionVersion

LONGEST_DRAFT = 500_000
LONGEST_TEXT = 20_000
SHOWN, LISTED = 8_000, 300
"""The most characters that a client gets of a text: in a stored run, and in a list."""

# --- what clients send -------------------------------------------------------------------------------------

CLIENT_EVALUATORS = ("llm", "regex", "schema", *COUNTS, "compare")
"""Evaluators that run no code and read no file."""
Draft = Annotated[str, Field(max_length=LONGEST_DRAFT)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Name = Annotated[str, Field(max_length=200)]


class ClientCriterion(BaseModel):
    """A criterion that a client may send: one that runs no code and reads no file."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    description: Text = ""
    evaluator: str = Field(
        "llm",
        json_schema_extra={"enum": list(CLIENT_EVALUATORS)},
        description="What judges: a model (llm, compare) or a check. Criteria that run code stand in the "
        "project's criteria files.",
    )
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="regex: {pattern, must_match}; words, characters, lines, bullets: {at_least, at_most}; "
        "schema: {schema}; compare: {reference, method: similarity}.",
    )
    weight: float = 1.0
    threshold: float = 0.7
    gate: bool = False

    def criterion(self) -> QualityCriterion:
        """Build the criterion; raises `ConfigError` for a criterion that can't work, or would run code."""
        if self.evaluator not in CLIENT_EVALUATORS:
            raise ConfigError(
                f"Criterion {self.name!r}: a client can't send the evaluator {self.evaluator!r}; "
                f"{nearest(self.evaluator, CLIENT_EVALUATORS)} Criteria that run code (function, command, "
                "generated_tests) belong in a criteria file of the project."
            )
        criterion = QualityCriterion(
            self.name,
            self.description,
            self.weight,
            self.threshold,
            self.evaluator,
            self.config,
            gate=self.gate,
        )
        try_out(criterion)
        return criterion


SENT = TypeAdapter(list[Text | ClientCriterion])
Criteria = Annotated[
    list[Text | ClientCriterion],
    Field(
        max_length=50,
        description="Sentences, names of the project's criteria, known names such as 'clarity', or checks.",
    ),
]
CriteriaPath = Annotated[
    Name, Field(description="A YAML file of the project, relative to its folder, in place of 'criteria'.")
]


_RECORDED = {kind: KINDS[kind] for kind in ADVICE_KINDS if kind != "correction"}
"""Kinds of lessons that a client may record; a correction is a person's."""


def _reflection_schema() -> dict[str, Any]:
    kinds = [
        {
            "title": kind,
            "type": "object",
            "properties": {"kind": {"const": kind}}
            | {
                part.name: {
                    "type": "string",
                    "description": f"{part.metadata['heading']} {part.metadata['hint']}",
                }
                for part in fields(content)
            },
            "required": ["kind", *(part.name for part in fields(content))],
        }
        for kind, content in _RECORDED.items()
    ]
    return {"anyOf": kinds, "description": "What was learned; a failed attempt leaves a 'failure'."}


ClientReflection = Annotated[dict[str, Any], WithJsonSchema(_reflection_schema())]


def content_of(reflection: dict[str, Any]) -> Content:
    """Decode the content that a client sent; raises `ConfigError` for a wrong kind or field."""
    values = dict(reflection)
    kind = values.pop("kind", None)
    content = next((form for recorded, form in _RECORDED.items() if recorded == kind), None)
    if content is None:
        raise ConfigError(f"kind must be one of {', '.join(_RECORDED)}, got {kind!r:.100}.")
    field_names = [part.name for part in fields(content)]
    for name in values:
        if name not in field_names:
            raise ConfigError(f"A {kind} has no {name!r:.100}; {nearest(name, field_names)}")
    if missing := [name for name in field_names if name not in values]:
        raise ConfigError(f"A {kind} needs {', '.join(missing)}.")
    return content(**values)


# --- what clients get --------------------------------------------------------------------------------------


class DraftIssue(BaseModel):
    """One problem in a draft."""

    message: str
    criterion: str | None = None
    line: int | None = None
    path: str | None = Field(default=None, description="A JSON pointer to the place in a structured draft.")

    @classmethod
    def of(cls, issue: Issue) -> DraftIssue:
        """Convert an issue for a client."""
        return cls(message=str(issue), criterion=issue.criterion, line=issue.line, path=issue.path)


class ClientJudgement(BaseModel):
    """An evaluation without hidden criteria. A score of null is unknown, not zero."""

    satisfactory: bool | None = None
    score: float | None = Field(default=None, description="0 to 1; null if it could not be judged.")
    criteria: dict[str, float | None] = Field(default_factory=dict)
    issues: list[DraftIssue] = Field(default_factory=list[DraftIssue])
    suggestions: list[str] = Field(default_factory=list)


def _judged(evaluation: ReflectionEvaluation) -> dict[str, Any]:
    """The fields of a `ClientJudgement`."""
    visible = evaluation.for_writer()
    return {
        "satisfactory": evaluation.satisfactory,
        "score": visible.overall_score,
        "criteria": dict(visible.criteria_scores),
        "issues": list(map(DraftIssue.of, visible.issues)),
        "suggestions": list(visible.suggestions),
    }


class DraftVerdict(ClientJudgement):
    """What a draft is worth."""

    status: Literal["finished", "running", "failed"]
    run_id: str | None = Field(
        default=None, description="The stored run, for get_run; null if nothing is stored."
    )
    tokens: int = Field(default=0, description="What the judging model used.")
    cost_usd: float | None = None
    error: str = ""
    reflection_due: bool = Field(default=False, description="Whether record_reflection must follow.")
    next_step: str

    @classmethod
    def of(cls, result: ReflectionResult, run_id: str | None, *, due: str) -> DraftVerdict:
        """Convert a result for a client, without secrets.

        `due` is the kind of reflection that must follow, empty for none.
        """
        redactor = redactor_of_environment()
        evaluation = redactor.redact_object(result.final_evaluation.for_writer())
        if due:
            step = (
                f"Call record_reflection for this attempt with a reflection of the kind {due!r}; then begin "
                "the next one with start_task."
            )
        elif evaluation.satisfactory:
            step = "The criteria are met."
        elif evaluation.overall_score is None:
            step = "It could not be judged; see 'error' and the criteria without a score."
        else:
            step = "Fix what the issues name, and check again; stop if the same issues come back."
        error = "" if result.error is None else describe_error(result.error)
        if not error and evaluation.overall_score is None:
            error = result.diagnostics.get("budget", "")
        return cls(
            status="finished" if result.error is None else "failed",
            run_id=run_id,
            **_judged(evaluation),
            tokens=result.token_usage.total_tokens,
            cost_usd=result.token_usage.cost_usd,
            error=redactor.redact(error).text,
            reflection_due=bool(due),
            next_step=step,
        )


class RecalledLesson(BaseModel):
    """A lesson, rule or playbook that fits a task, and why it was chosen."""

    id: str
    text: str
    reason: str


class TaskAdvice(BaseModel):
    """What earlier tasks taught: data to consider, no instructions."""

    advice: str = Field(description="All of it as one text; empty if nothing fits.")
    lessons: list[RecalledLesson]

    @classmethod
    def of(cls, advice: Sequence[Advice]) -> TaskAdvice:
        """Convert advice for a client."""
        lessons = [RecalledLesson(id=item.source, text=item.text, reason=item.reason) for item in advice]
        return cls(advice=advice_text(advice), lessons=lessons)


class StartedAttempt(TaskAdvice):
    """A task that was begun: what earlier ones taught, and what its result will be judged by."""

    note: str = Field(
        default="", description="What earlier runs of this very task taught; empty if there is no note."
    )
    attempt_id: str
    rubric: str = Field(description="The criteria of finish_attempt; empty if your own word has to do.")
    next_step: str


class RecordedLesson(BaseModel):
    """A lesson as it was stored, or the one that says the same already."""

    id: str
    title: str
    status: str
    next_step: str


class RatedLesson(BaseModel):
    """How often a lesson was used, helped and hurt, ratings included."""

    id: str
    used: int
    helped: int
    hurt: int


class RunSummary(BaseModel):
    """A stored run in a few words."""

    run_id: str
    name: str
    task: str
    status: str
    reason: str | None
    started_at: str
    versions: int
    first_score: float | None
    best_score: float | None
    satisfactory: bool
    tokens: int
    cost_usd: float | None

    @classmethod
    def of(cls, record: RunRecord, redactor: Redactor) -> RunSummary:
        """Summarise a run, without secrets."""
        summary = record.summary()
        shown = {
            "name": redactor.redact(summary["name"]).text,
            "task": without_middle(redactor.redact(summary["task"]).text, LISTED),
            "started_at": record.started_at.isoformat(),
            "tokens": record.usage.total_tokens,
            "cost_usd": record.usage.cost_usd,
        }
        return cls.model_validate(summary | shown)  # which leaves out all other fields


class RunPage(BaseModel):
    """Stored runs, newest first."""

    runs: list[RunSummary]
    next_page: str | None = Field(
        default=None, description="Pass it as 'before' for earlier runs; null at the end."
    )


class JudgedVersion(ClientJudgement):
    """One version of a run, and its judgement."""

    version: int
    strategy: str

    @classmethod
    def of(cls, version: ReflectionVersion) -> JudgedVersion:
        """Convert a version for a client."""
        return cls(version=version.iteration, strategy=version.strategy, **_judged(version.evaluation))


class RunDetails(RunSummary):
    """A stored run: why it stopped, its versions, and the best of them, its middle cut out if it is long."""

    why: str
    error: str
    best_version: int | None
    best_output: str
    judged: list[JudgedVersion]

    @classmethod
    def of_run(cls, run: StoredRun) -> RunDetails:
        """Convert a stored run for a client, without secrets."""
        redactor = redactor_of_environment(allow=run.criteria_texts)
        record, why = redactor.redact_object(run.record, spared=(Process,)), run.why
        best = record.version(record.best)
        return cls(
            **RunSummary.of(run.record, redactor).model_dump(exclude={"task"}),
            task=without_middle(record.task.description, SHOWN),
            why=redactor.redact(f"{why.headline}. {why.detail}".strip()).text,
            error=record.error,
            best_version=record.best,
            best_output="" if best is None else without_middle(as_text(best.output), SHOWN),
            judged=list(map(JudgedVersion.of, record.versions)),
        )
