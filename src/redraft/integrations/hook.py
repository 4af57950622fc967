"""Hooks of coding agents: criteria at the end of a turn, lessons before a session, reflections after it."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from redraft._codec import from_record, to_record
from redraft._critique import render_critique
from redraft._locks import check_regular
from redraft._prompts import advice_text
from redraft._texts import counted, listed
from redraft.errors import ConfigError, LessonFileError
from redraft.evaluate.criteria import needs_model
from redraft.evaluate.evidence import in_folder
from redraft.evaluate.requirements import requirement_lines, rubric_text
from redraft.integrations.coding_agents import AGENTS
from redraft.integrations.git import ChangedTexts, WorkTree, project_in_work_tree
from redraft.integrations.hook_actions import (
    FixedCommand,
    commands_run,
    fixed_commands,
    learn_command,
    refuted_lessons,
    write_actions,
)
from redraft.integrations.hook_sessions import CodingSession, CodingTurn, Sessions
from redraft.integrations.hook_settings import Accepted, HookOptions, Subject
from redraft.loop.criteria_file import CriteriaFile, read_criteria
from redraft.protocols import RunContext
from redraft.settings import SETTINGS_FILE, load_settings, project_folder, settings_in
from redraft.types import (
    Advice,
    ConvergenceReason,
    Issue,
    PlainTask,
    QualityCriterion,
    ReflectionEvaluation,
    ReflectionHistory,
    ReflectionResult,
    ReflectionVersion,
    in_one_line,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from redraft.integrations.coding_agents import HookEvent
    from redraft.lessons.lessons import Lessons
    from redraft.settings import Settings

MOST_ISSUES = 20
"""Issues in a critique."""
MOST_REMARKS = 5
"""Remarks on files in a note."""
FIX = "Fix this, then finish. If something here can't be met, say why."
UNHOOKED = "the agent's configuration no longer calls `redraft hook`"
TASK_TYPE = "coding"
NO_TASK = "Work on the code of this repository."


# --- the end of a turn -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a hook on a turn or commit."""

    critique: str = ""
    """Blocks the turn or commit unless it is empty."""
    note: str = ""
    """A message for the person."""


async def check_turn(event: HookEvent, agent: str) -> Verdict:
    """Judge the changes of a turn.

    A criterion that is not met gives a critique, unless the turn was blocked as often as the settings allow,
    nothing changed since the last check, or the critique is the same as before. Unjudged criteria never
    block. Raises `ConfigError` for mistakes in the settings and the criteria.
    """
    sessions = Sessions()
    if sessions.accepted() is None:  # no event has come before this one
        with suppress(ConfigError):  # reported below if there is something to judge
            accept()
    standard = Standard(sessions, for_agent=True)
    options = standard.options
    session = sessions.open(agent, event.session)
    if not session.is_under_way(event):
        session.begin_turn(event.turn)
    changes = _subject(standard, event, session)
    is_unhooked = session.calls_hook and not _calls_hook(agent, _project_for(event.folder))
    unhooked = (UNHOOKED,) if is_unhooked else ()
    changes = replace(changes, remarks=(*standard.remarks, *unhooked, *changes.remarks))
    texts = changes.texts
    digest = sha256(json.dumps([texts, changes.remarks]).encode()).hexdigest()
    if not texts or digest == session.judged:
        if session.is_blocked:
            session.is_blocked = False
            sessions.save(session)
        note = (
            f"The criteria in {options.criteria} are not met, and nothing has changed since the last check."
        )
        if not texts and changes.remarks and digest != session.judged:
            session.judged = digest
            sessions.save(session)
            return Verdict(note=_remarks(changes))
        return Verdict(note=note if texts and session.critique else "")
    with standard.criteria() as criteria:
        evaluation = await _judged(standard, criteria, texts, session.current.prompt, event.folder)
    verdict = _with_remarks(_verdict(session, options, evaluation), changes)
    session.judged, session.is_blocked = digest, bool(verdict.critique)
    versions = session.current.versions
    strategy = "revise" if versions else "draft"
    output = "\n".join(f"{name}\n{text}" if name else text for name, text in texts.items())
    version = ReflectionVersion(len(versions) + 1, output, evaluation, strategy=strategy)
    versions.append(to_record(version))
    sessions.save(session)
    return verdict


async def check_commit(folder: str) -> Verdict:
    """Judge the staged changes in the work tree of `folder`; raises `ConfigError` as `check_turn` does."""
    standard = Standard(Sessions(), for_agent=False)
    options = standard.options
    tree = _work_tree(standard, folder)
    if options.subject == "answer":
        raise ConfigError("A commit has no answer to judge; set `subject` in [hook] to 'diff' or 'files'.")
    changes = tree.staged_files() if options.subject == "files" else tree.staged_diff()
    changes = replace(changes, remarks=(*standard.remarks, *changes.remarks))
    if not changes.texts:
        return Verdict(note=_remarks(changes))
    with standard.criteria() as criteria:
        evaluation = await _judged(standard, criteria, changes.texts, "", folder)
    if not _blocks(evaluation):
        return _with_remarks(Verdict(note=_unjudged(evaluation)), changes)
    return _with_remarks(Verdict(_critique(evaluation)), changes)


def _with_remarks(verdict: Verdict, changes: ChangedTexts) -> Verdict:
    """Append the remarks on the changes to the note of a verdict."""
    note, remarks = verdict.note, _remarks(changes)
    return replace(verdict, note=f"{note.rstrip('.')}. {remarks}" if note and remarks else note or remarks)


def _remarks(changes: ChangedTexts) -> str:
    more = len(changes.remarks) - MOST_REMARKS
    remarks = [*changes.remarks[:MOST_REMARKS], *([f"and {more} more"] if more > 0 else [])]
    return f"{'; '.join(remarks)}." if remarks else ""


def _verdict(session: CodingSession, options: HookOptions, evaluation: ReflectionEvaluation) -> Verdict:
    if not _blocks(evaluation):
        session.critique = ""
        return Verdict(note=_unjudged(evaluation))
    visible = evaluation.for_writer()
    critique = _critique(evaluation)
    digest = sha256(critique.encode()).hexdigest()
    repeats, session.critique = digest == session.critique, digest
    if repeats or session.blocks >= options.blocks:
        rounds = f" after {counted(session.blocks, 'round')}" if session.blocks else ""
        why = ", and the critique is the same as before" if repeats else rounds
        first = in_one_line(visible.issues[0] if visible.issues else "not good enough")
        return Verdict(note=f"The criteria in {options.criteria} are not met{why}: {first}")
    session.blocks += 1
    return Verdict(
        f"This does not meet the criteria of the project ({options.criteria}; check {session.blocks} of "
        f"{options.blocks}).\n\n{critique}\n\n{FIX}"
    )


def _blocks(evaluation: ReflectionEvaluation) -> bool:
    """Whether a criterion is not met; unjudged criteria never block."""
    return not evaluation.satisfactory and bool(evaluation.unmet)


def _critique(evaluation: ReflectionEvaluation) -> str:
    """The critique that the writer may see, with the first issues if there are many."""
    visible = evaluation.for_writer()
    more = len(visible.issues) - MOST_ISSUES
    critique = render_critique(replace(visible, issues=visible.issues[:MOST_ISSUES]))
    return f"{critique}\n\nThere are {more} more issues." if more > 0 else critique


def _unjudged(evaluation: ReflectionEvaluation) -> str:
    if not evaluation.unjudged:
        return ""
    why = next((str(issue) for issue in evaluation.issues if issue.criterion in evaluation.unjudged), "")
    return f"{', '.join(map(repr, evaluation.unjudged))}: {why or 'not judged'}"


def _subject(standard: Standard, event: HookEvent, session: CodingSession) -> ChangedTexts:
    """The texts to judge, by file name; the diff and the answer have the name ''."""
    options = standard.options
    if options.subject == "answer":
        if not event.answer.strip():
            raise ConfigError("The agent does not say what it answered, so `subject` can't be 'answer'.")
        return ChangedTexts({"": event.answer})
    tree = _work_tree(standard, event.folder)
    return tree.files(session.baseline) if options.subject == "files" else tree.diff(session.baseline)


def _work_tree(standard: Standard, where: str) -> WorkTree:
    """The project's files, without the files of Redraft itself and of the criteria.

    `where` is the folder in which an agent works; the settings may be in another work tree.
    """
    settings, folder, options = standard.settings, project_folder(), standard.options
    files = standard.files
    compiled = {str(Path(name).parent / "__pycache__") for name in files}  # when the criteria are read
    own = (settings.home, settings.memory, options.criteria, SETTINGS_FILE, *files, *compiled)
    # Git refuses to exclude paths outside of the repository.
    inside = [name for path in own if path and (name := _name_inside(folder, path))]
    return WorkTree(_project_for(where), options.paths, inside)


def _project_for(where: str) -> Path:
    """The project's folder in the work tree in which an agent works."""
    folder = project_folder()
    return project_in_work_tree(Path(where), folder) if Path(where).is_dir() else folder


def _name_inside(folder: Path, name: str) -> str:
    """A path, relative or absolute, relative to a folder; empty if it is outside of the folder."""
    path = Path(os.path.normpath(folder / name))
    for candidate in (path, path.parent.resolve() / path.name):  # `folder` has no links in it, a path may
        if folder in candidate.parents:
            return str(candidate.relative_to(folder))
    return ""


class Standard:
    """The settings and criteria that apply: the accepted versions, as long as an agent may have changed them.

    `options` and `criteria` raise `ConfigError` for mistakes in the files.
    """

    def __init__(self, sessions: Sessions, *, for_agent: bool) -> None:
        self._project = project_folder()
        self._accepted = sessions.accepted()
        self.changed = {} if self._accepted is None else self._accepted.changed(self._project)
        """The texts that differ from the accepted texts, by file name."""
        self._applied: Accepted | None = None
        """The accepted version, if it applies in place of the current files."""
        if self._accepted is None or not self.changed:
            return
        if for_agent or sessions.has_open() or self._accepted.has_seen(self.changed):
            self._applied = self._accepted
            if self._accepted.see(self.changed):
                sessions.accept(self._accepted)

    @property
    def is_current(self) -> bool:
        """Whether the current settings and criteria have been accepted."""
        return self._accepted is not None and not self.changed

    @property
    def options(self) -> HookOptions:
        """The table `[hook]`."""
        return HookOptions.load() if self._applied is None else HookOptions(**self._applied.options)

    @property
    def settings(self) -> Settings:
        """The settings; as in `options`, those that were accepted."""
        if self._applied is None:
            return load_settings()
        with self._applied.restored(self._project) as (project, _):
            return settings_in(project)

    @property
    def files(self) -> Collection[str]:
        """The criteria file, and the modules and tests that it names; none if it can't be read."""
        if self._accepted is not None:
            return self._accepted.files.keys()
        with suppress(ConfigError):  # the check reports it
            return Accepted.now(asdict(self.options), _criteria(self.options), self._project).files.keys()
        return ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes for the person on unaccepted changes."""
        return () if self._applied is None else (self._applied.remark(self.changed),)

    @contextmanager
    def criteria(self) -> Generator[CriteriaFile]:
        """Yield the criteria; the files that they read exist within the block."""
        if self._applied is None:
            yield _criteria(self.options)
            return
        with self._applied.restored(self._project) as (_, path):
            yield _criteria(self.options, path)


def accept() -> None:
    """Accept the settings and criteria as they are now; raises `ConfigError` for mistakes in them."""
    options = HookOptions.load()
    Sessions().accept(Accepted.now(asdict(options), _criteria(options), project_folder()))


def _criteria(options: HookOptions, path: Path | None = None) -> CriteriaFile:
    """Read the criteria, by default from the project's file; without `judge`, deterministic checks only."""
    file = read_criteria(path or project_folder() / options.criteria)
    if file.output_type is not None:
        raise ConfigError(f"{options.criteria}: 'output_type' can't be used in a hook; leave it out.")
    if options.judge:
        return file
    checks = tuple(criterion for criterion in file.criteria if not needs_model(criterion))
    if not any(check.weight for check in checks):
        raise ConfigError(
            f"{options.criteria} has nothing that can be checked without a model; set judge = true in [hook]."
        )
    return replace(file, criteria=checks)


async def _judged(
    standard: Standard, file: CriteriaFile, texts: Mapping[str, str], prompt: str, where: str
) -> ReflectionEvaluation:
    """Judge each text, and merge the evaluations; evidence files are read from the work tree."""
    task = PlainTask(file.task or prompt or NO_TASK, task_type=file.task_type)
    if any(map(needs_model, file.criteria)):
        file = replace(file, criteria=in_folder(file.criteria, _project_for(where)))
        return await _judged_by_model(standard, file, task, texts[""])
    from redraft.evaluate.panel import panel  # noqa: PLC0415 (not needed if nothing changed)
    from redraft.sandbox.jail import ProcessJail  # noqa: PLC0415 (not needed if nothing changed)

    judge = panel(file.criteria, threshold=file.threshold, run_command=ProcessJail())
    evaluations = {name: await judge(text, RunContext(task, "")) for name, text in texts.items()}
    subject = standard.options.subject
    return _merged(evaluations) if subject == "files" else _without_lines(evaluations[""], subject)


async def _judged_by_model(
    standard: Standard, file: CriteriaFile, task: PlainTask, text: str
) -> ReflectionEvaluation:
    """Judge a text within the budget; criteria beyond the budget, or at which the model failed, are None."""
    from redraft.loop.pattern import run_functions  # noqa: PLC0415 (the free checks need none)

    options, settings = standard.options, standard.settings
    judge = settings.reflection_model or settings.model
    if not judge:
        raise ConfigError(
            "judge = true in [hook] needs a model: set REDRAFT_MODEL, or `model` in redraft.toml."
        )
    pattern = file.pattern(
        0, reflection_model=judge, budget_usd=options.budget_usd, budget_tokens=options.budget_tokens
    )
    result = await run_functions(task, revise=_never, draft=text, pattern=pattern)
    if result.error is not None and not _blocks(result.final_evaluation):
        raise result.error
    evaluation = result.final_evaluation
    if evaluation.unjudged and (why := result.diagnostics.get("budget")):
        evaluation = replace(evaluation, issues=(*evaluation.issues, Issue(why, evaluation.unjudged[0])))
    return _without_lines(evaluation, options.subject)


def _never(output: str, _evaluation: ReflectionEvaluation) -> str:
    return output


def _without_lines(evaluation: ReflectionEvaluation, subject: Subject) -> ReflectionEvaluation:
    """Drop the line numbers of issues in a diff, which the agent does not see."""
    if subject != "diff":
        return evaluation
    issues = tuple(
        Issue(issue, issue.criterion, issue.path, number=issue.number) for issue in evaluation.issues
    )
    return replace(evaluation, issues=issues)


def _merged(evaluations: Mapping[str, ReflectionEvaluation]) -> ReflectionEvaluation:
    """Merge the evaluations of files: each criterion has its lowest score, None if any score is unknown."""
    scores: dict[str, float | None] = {}
    for evaluation in evaluations.values():
        for name, score in evaluation.criteria_scores.items():
            before = scores.get(name, score)
            scores[name] = None if score is None or before is None else min(score, before)
    files = list(evaluations.values())
    overall = [file.overall_score for file in files if file.overall_score is not None]
    issues = [(name, issue) for name, file in evaluations.items() for issue in file.issues]
    return ReflectionEvaluation(
        min(overall, default=None),
        scores,
        satisfactory=all(file.satisfactory for file in files),
        issues=tuple(
            Issue(f"{name}: {issue}", issue.criterion, issue.path, issue.line) for name, issue in issues
        ),
        suggestions=tuple(dict.fromkeys(text for file in files for text in file.suggestions)),
        gates_passed=all(file.gates_passed for file in files),
        failed_gates=tuple(dict.fromkeys(name for file in files for name in file.failed_gates)),
        shown=next((file.shown for file in files), None),
        unmet=tuple(dict.fromkeys(name for file in files for name in file.unmet or ())),
    )


# --- the start of a session, and of a turn -----------------------------------------------------------------


async def begin(event: HookEvent, agent: str) -> tuple[str, str]:
    """Begin a session, or a turn in it; returns context for the agent and a note for the person.

    A session begins with the requirements of the criteria, and with the rules and lessons that fit this
    repository, limited in tokens. Each prompt gets the lessons that fit it, once in a session. The note names
    settings and criteria that changed without being accepted.
    """
    from redraft.stores.location import close_project_store  # noqa: PLC0415 (not needed to check a turn)

    sessions = Sessions()
    standard, note = _current_standard(sessions)
    options = standard.options
    session = sessions.open(agent, event.session)
    session.ended = False
    if event.forgot:
        sessions.actions.forget(session.key)
    tree = _work_tree(standard, event.folder)
    if event.forgot:
        session.advice.clear()
    if FIX in event.prompt:  # an agent may pass a critique on as a prompt
        event = replace(event, prompt="")
    elif event.prompt:
        session.begin_turn(event.turn, event.prompt)
    is_new = session.baseline is None or session.baseline.folder != str(tree.folder)
    if is_new and options.subject != "answer":
        session.baseline = tree.baseline()
    session.calls_hook = session.calls_hook or _calls_hook(agent, tree.folder)
    # A quick check, since opening the lessons is slow.
    settings = standard.settings
    has_lessons = bool(settings.database_url) or (project_folder() / settings.memory / "reflections").is_dir()
    recalls = has_lessons and bool(event.prompt or event.forgot or not session.advice)
    requirements, criteria = "", tuple[QualityCriterion, ...]()
    with suppress(ConfigError):  # the check at the end of the turn reports it
        if recalls or event.forgot or not session.knows_criteria:
            with standard.criteria() as file:
                criteria = file.criteria
        if event.forgot or not session.knows_criteria:
            requirements = _requirements(criteria, options)
            session.knows_criteria = True
    sessions.save(session)
    advice: list[Advice] = []
    if recalls:
        try:
            lessons = _lessons(options)
        except ConfigError:
            if note:  # the file that an agent has changed can't be read
                return requirements, note
            raise
        try:
            await write_actions(sessions, lessons)
            task = PlainTask(event.prompt or NO_TASK, task_type=TASK_TYPE)
            recalled = await lessons.with_criteria(criteria).recall(task)
        finally:
            await lessons.aclose()
            await close_project_store()
        # Compared line by line: the reason for recalling a lesson differs from prompt to prompt, and two
        # lessons may share a sentence.
        sent = {line for record in session.advice for line in record["text"].splitlines()}
        advice = [item for item in recalled if not sent.issuperset(item.text.splitlines())]
        session.advice += map(to_record, advice)
        sessions.save(session)
    elif not has_lessons:
        sessions.actions.path.unlink(missing_ok=True)
    return "\n\n".join(text for text in (requirements, advice_text(advice)) if text), note


def _requirements(criteria: Sequence[QualityCriterion], options: HookOptions) -> str:
    lines = [
        line
        for criterion in criteria
        if criterion.shown
        for line in [*requirement_lines([criterion])] or [criterion.name]
    ]
    return rubric_text(lines, f"At the end of each turn, your work is checked by {options.criteria}:")


def _current_standard(sessions: Sessions) -> tuple[Standard, str]:
    """The standard for a session that begins, and a note for the person.

    Accepts the settings and criteria for the first time, and their changes while no agent was at work.
    """
    standard = Standard(sessions, for_agent=False)
    if standard.is_current or standard.remarks:
        return standard, "".join(f"{remark}." for remark in standard.remarks)
    note = ""
    if standard.changed:
        note = (
            f"{listed(list(standard.changed))} changed since the last session, and what is there now applies."
        )
    with suppress(ConfigError):  # the check at the end of the turn reports it
        accept()
    return Standard(sessions, for_agent=True), note


def _calls_hook(agent: str, folder: Path) -> bool:
    """Whether the agent's configuration in a folder calls the hook at the end of a turn."""
    path = folder / AGENTS[agent].file
    with suppress(OSError):
        if check_regular(path):
            return f"hook stop {agent}" in path.read_text("utf-8", "replace")
    return False


def _lessons(options: HookOptions) -> Lessons:
    from redraft.lessons.lessons import Lessons  # noqa: PLC0415 (not needed to check a turn)
    from redraft.lessons.writer import facts_only  # noqa: PLC0415 (not needed to check a turn)

    settings = load_settings()
    return Lessons(
        agent=options.lessons,
        max_tokens=max(options.max_tokens, 1),
        # Only on request: loading an embedder takes longer than all the rest.
        embedder=settings.embedder or "none",
        model=None if options.judge and settings.model else facts_only,
        auto=False,
    )


# --- the end of a session ----------------------------------------------------------------------------------


def end(event: HookEvent, agent: str) -> bool:
    """Mark a session as ended; returns whether `learn` has something to learn from it."""
    sessions = Sessions()
    Standard(sessions, for_agent=True)  # records the agent's changes
    session = sessions.open(agent, event.session)
    session.turns = [turn for turn in session.turns if turn.versions]
    commands = commands_run(event.transcript)
    session.mended = [asdict(command) for command in fixed_commands(commands)]
    session.refuted = refuted_lessons(sessions, commands)
    if not (session.turns or session.mended or session.refuted):
        sessions.delete(session)
        return False
    session.ended = True
    sessions.save(session)
    return True


async def learn() -> list[str]:
    """Write the lessons of ended sessions; returns their ids.

    A turn that did not meet its criteria in the end leaves a reflection, and a turn that met them after a
    revision leaves its procedure. A command that failed and then passed in another form leaves both forms.
    The facts come from the checks; with `judge`, the model adds reasons. The turns count as evidence for or
    against the lessons that they were sent.
    """
    options, sessions = HookOptions.load(), Sessions()
    written: list[str] = []
    for key in sessions.unlearned():
        session = sessions.read(key)
        if session is None:
            continue
        lessons = _lessons(options)
        try:
            for number, turn in enumerate(session.turns, 1):
                result = _result(turn, session, f"{key}-{number}", sessions.actions.sent_to(key))
                written += await _learn_turn(
                    lessons, result, _readable_criteria(options), judged=options.judge
                )
            for record in session.mended:
                lesson = await learn_command(lessons, FixedCommand(**record))
                written += [] if lesson is None else [lesson.id]
            for lesson_id in session.refuted:
                with suppress(LessonFileError):  # it was deleted
                    await lessons.retire(lesson_id, "The command passed later.")
        finally:
            await lessons.aclose()
        sessions.delete(session)
    return written


async def _learn_turn(
    lessons: Lessons, result: ReflectionResult, criteria: Sequence[QualityCriterion], *, judged: bool
) -> list[str]:
    from redraft.lessons.outcome import TOOLS_ANSWERED, outcome_of  # noqa: PLC0415 (not needed to check a turn)

    result.criteria = tuple(criteria)
    outcome = outcome_of(result)
    lesson = None
    if outcome is not None and (outcome.is_mandatory or outcome.is_fixed):
        if judged:  # a model reads the agent's text, and its tools may have read anything
            outcome = replace(outcome, doubt=outcome.doubt or TOOLS_ANSWERED)
        lesson = await lessons.reflect_on(outcome)
    await lessons.observe(result)
    return [] if lesson is None else [lesson.id]


def _readable_criteria(options: HookOptions) -> Sequence[QualityCriterion]:
    """The current criteria; none if the file can't be read."""
    try:
        return _criteria(options).criteria
    except ConfigError:
        return ()


def _result(
    turn: CodingTurn, session: CodingSession, run_id: str, sent: Collection[str]
) -> ReflectionResult[str]:
    versions = tuple(from_record(ReflectionVersion[str], record) for record in turn.versions)
    last = versions[-1]
    met = last.evaluation.satisfactory
    reason = ConvergenceReason.QUALITY_MET if met else ConvergenceReason.USER_STOPPED
    revisions = len(versions) - 1
    return ReflectionResult(
        success=met,
        final_output=last.output,
        best_output=last.output,
        final_evaluation=last.evaluation,
        history=ReflectionHistory(versions, last, last, reason, revisions),
        iterations_used=revisions,
        convergence_reason=reason,
        token_usage=last.token_usage,
        execution_time=(last.timestamp - versions[0].timestamp).total_seconds(),
        run_id=run_id,
        advice=(
            *(from_record(Advice, record) for record in session.advice),
            *(Advice("", lesson, after="an action like this") for lesson in sorted(sent)),
        ),
        task=PlainTask(turn.prompt or NO_TASK, task_type=TASK_TYPE),
    )
