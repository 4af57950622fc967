"""Lessons of an agent: advice for its runs, extended after each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft._clock import zoned
from redraft._hints import keyword_hints
from redraft._texts import shortened
from redraft._validation import check_count, check_flag, check_share
from redraft.errors import ConfigError, LessonFileError, ModelError, OutputError, StoreError
from redraft.evaluate.requirements import requirements_of
from redraft.lessons.advice import (
    CANDIDATES,
    advice_of,
    advice_on_mistake,
    matching_lessons,
    query_of,
    restored_match,
)
from redraft.lessons.documents import documents_of, store_of
from redraft.lessons.due import DueReflection, DueReflections, due_error
from redraft.lessons.facts import FactFinding, file_findings, findings_in
from redraft.lessons.folder import LessonFolder
from redraft.lessons.guidance import Guidance, digest_of
from redraft.lessons.impact import Impact, ScoredRun
from redraft.lessons.index import Backlog, LessonIndex, LessonMatch
from redraft.lessons.lesson import (
    ADVICE_KINDS,
    Content,
    CorrectedAnswer,
    Fact,
    Failure,
    Lesson,
    checked_content,
    checked_lesson,
    checked_title,
    violation_in,
    violations_in,
)
from redraft.lessons.markdown import parse, render
from redraft.lessons.obedience import RunFailures, as_stored, changes_after, later_advice
from redraft.lessons.outcome import (
    CONTENT_TYPES,
    Outcome,
    RaisedErrors,
    as_decision,
    decision_of,
    failure_of,
    outcome_of,
    score_of,
)
from redraft.lessons.overview import Overview, Problem
from redraft.lessons.ranking import LessonQuery
from redraft.lessons.writer import LessonReflection, repeated_source, write_reflection
from redraft.memory.safety import LONGEST, Cleaner, restorer
from redraft.models.names import model_of
from redraft.protocols import ChatModel, Embedder, Mistake, ModelChoice
from redraft.redact.data import redact_object
from redraft.redact.log import logger
from redraft.settings import NO_EMBEDDER, load_settings
from redraft.stores.base import Store
from redraft.stores.sqlite import MemoryStore
from redraft.text.characters import without_middle
from redraft.types import Advice, PlainTask, QualityCriterion, ReflectionResult

if TYPE_CHECKING:
    from redraft.lessons.impact import Counters
    from redraft.lessons.lesson import LessonKind, Status
    from redraft.lessons.obedience import Obedience
    from redraft.lessons.outcome import OutcomeStatus
    from redraft.memory.effects import Payoff

QUARANTINED = "quarantined"
RECALLED = 3
FACTS_RECALLED = 12
MAX_TOKENS = 800
MISTAKE_TOKENS = 240
"""Maximum tokens of advice on a failure that has just happened."""
SUMMARY_WORDS = 8
LONGEST_SUMMARY = 200
LONGEST_EXCERPT = 1_000
"""Characters of the task and of the error that a lesson stores for search."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@keyword_hints()
@dataclass(eq=False)  # compared by identity: other processes change its files, too
class Lessons:
    """The lessons of one agent: an advisor of its runs, and Markdown that people may edit.

    An `Agent(..., lessons=...)` learns by itself. A lesson is active immediately if checks or the program
    showed how its run ended, and no tool brought texts into that run. Any other lesson that a model writes
    is quarantined: it is recalled for the very task that taught it, and tried in at most one of four runs of
    similar tasks, until it has helped or hurt, or a person approves it.

    Safe to share between tasks and threads, and processes may share the files and the store. Raises
    `ConfigError` for invalid arguments, and `StoreError` if a file or the store can't be read or written.
    """

    path: str | Path | None = None
    """The folder of the lessons, which are files in `<path>/reflections/<agent>/`.

    By default, lessons are records in `store` if that is on PostgreSQL, which many machines share, and
    otherwise files in the project's folder `memory` (a setting).
    """
    _: KW_ONLY
    agent: str = "agent"
    model: ModelChoice | None = None
    """Writes reflections; by default the model of the agent with these lessons, else that of the settings."""
    embedder: str | Embedder | Callable[[list[str]], Any] | None = None
    """Finds lessons by meaning.

    The default is the embedder of the settings, else the offline embedder if it is installed, else full-text
    search alone.
    """
    semantic: bool = False
    """Search the lessons of all agents, by meaning first."""
    store: bool | Store = True
    """Counters and due reflections: in the project's store (True), or in memory (False)."""
    max_tokens: int = MAX_TOKENS
    """Maximum tokens of advice for a run."""
    auto: bool = True
    """Reflect on a failed or partly failed run when it ends or, if interrupted, before the next run.

    Without a model the reflection stays due, and the next run raises `ReflectionDueError` until the
    reflection is written or waived.
    """
    successes: bool = True
    """Learn a procedure from a run that needed revisions to succeed.

    It says what made the difference, or if that is unknown, what the model says that other tasks can use.
    """
    decisions: bool = True
    """Also record a decision if the model says that it chose one tool or plan over another."""
    trusted: bool = False
    """Make all lessons active immediately, and their rules the agent's own.

    Set it only if the agent's tasks, tools and texts are all your own.
    """
    clock: Callable[[], datetime] = _utc_now
    """Returns the time with its zone."""

    def __post_init__(self) -> None:
        self._check_arguments()
        embedder = None
        if self.embedder != NO_EMBEDDER:
            from redraft.models.embed import embedder_of  # noqa: PLC0415 (slow to load)

            embedder = embedder_of(self.embedder, load_settings())
        store = store_of(self.store) or MemoryStore()
        self._documents = documents_of(self.path, store)
        self._own_folder = LessonFolder(self._documents, self.agent)
        self._folder_name = self._own_folder.name
        self._index = LessonIndex(self._documents, embedder)
        self._backlog = Backlog(self._index, self._documents, self.agent)
        self._due = DueReflections(store, self._folder_name)
        self._impact = Impact(store, self._folder_name)
        self._guidance = Guidance(
            self._documents,
            self.agent,
            store,
            self._impact,
            lambda: self.clock().date(),
            trusted=self.trusted,
        )
        self._raised = RaisedErrors()
        self.checked: frozenset[str] = frozenset()
        self.requirements: tuple[str, ...] = ()
        self.stated: tuple[str, ...] = ()

    def with_model(self, model: ChatModel) -> Lessons:
        """These lessons with a model to write them, unless they have their own."""
        if self.model is not None:
            return self
        other = copy(self)
        other.model = model
        return other

    def with_criteria(self, criteria: Sequence[QualityCriterion], *, in_prompt: bool = True) -> Lessons:
        """These lessons for a run that is judged by some criteria.

        A lesson on a requirement of these criteria is relevant to any task. If what they ask for is
        `in_prompt`, advice does not repeat it, and leaves out lessons that one of the criteria replaces.
        """
        other = copy(self)
        required = {criterion.name: requirements_of(criterion) for criterion in criteria}
        other.checked = frozenset(filter(required.get, required)) if in_prompt else frozenset()
        requirements = [requirement for own in required.values() for requirement in own]
        stated = [requirement for requirement in requirements if in_prompt and not requirement.is_test]
        other.requirements = tuple(each.text for each in requirements if each not in stated)
        other.stated = tuple(each.text for each in stated)
        return other

    # --- before a run --------------------------------------------------------------------------------------

    async def recall(self, task: str | PlainTask, k: int = RECALLED) -> list[Advice]:
        """Advice on a task: facts, the `k` most relevant lessons, the rules, and up to 3 playbooks.

        Each piece has its id as `source` and the reason for its choice. Rules that a person or the program
        vouches for are presented as the agent's own; everything else is quoted as data. Together they take at
        most `max_tokens`, best first. Raises `ReflectionDueError` if an earlier run of the agent failed,
        wholly or in part, and can't be reflected on now.
        """
        task = _as_task(task)
        check_count("k", k, 0)
        due, problem = await self._still_due()
        if due:
            raise due_error(due, problem)
        quarantined = await self._quarantined_of(task, k)
        facts = [match for match in quarantined if match.lesson.kind == "fact"]
        lessons = [match for match in quarantined if match.lesson.kind != "fact"]
        if len(lessons) < k:
            # Each criterion may replace one of them.
            candidates = await self.search(task, k - len(lessons) + len(self.checked), kinds=ADVICE_KINDS)
            lessons += [candidate for candidate in candidates if candidate.lesson.check not in self.checked]
            lessons = lessons[:k]
        if (tried := await self._on_trial(task)) is not None and tried.lesson.id not in {
            match.lesson.id for match in lessons
        }:
            room = len(lessons) if tried.lesson.kind == "fact" else max(k - 1, 0)
            lessons = [*lessons[:room], tried]
        # Whatever the words of the task: it says "orders" where the table is `t_ord`.
        facts += await self._index.search(self._query(task, k=FACTS_RECALLED, kinds=("fact",), untyped=True))
        own_rules, rules = await asyncio.to_thread(self._guidance.rules, self.checked)
        playbooks = await asyncio.to_thread(self._guidance.playbooks, task.task_type)

        def advise() -> list[Advice]:
            excerpt = _excerpt(Cleaner().redact(task.description)) if facts or lessons else ""
            required = (*self.requirements, *self.stated, task.expected_output)
            restore = restorer(*required)
            # What another task taught about a person need not be true of the person in this task.
            restore_own = restorer(*required, task.description)
            return advice_of(
                self._folder_name,
                self.max_tokens,
                lessons=[
                    restored_match(match, restore_own if match.lesson.task == excerpt else restore)
                    for match in (*facts, *lessons)
                ],
                rules=redact_object(rules, restore),
                own_rules=redact_object(own_rules, restore),
                playbooks=redact_object(playbooks, restore),
                requirements=self.requirements,
                stated=self.stated,
                task=excerpt,
            )

        return await asyncio.to_thread(advise)

    async def search(
        self,
        task: str | PlainTask,
        k: int = RECALLED,
        *,
        error: str = "",
        kinds: Collection[LessonKind] | None = None,
    ) -> list[LessonMatch]:
        """The `k` active lessons that are most relevant to a task, with scores and reasons.

        `kinds` limits the search to some kinds of lessons.
        """
        task = _as_task(task)
        agent = None if self.semantic else self.agent
        await self._backlog.catch_up(agent)
        counters = await self._impact.all_counters()
        return await self._index.search(
            self._query(
                task, agent=agent, error=error, k=k, kinds=kinds, requirements=self._stored_requirements
            ),
            {lesson_id: each.effect for lesson_id, each in counters.items() if each.effect},
        )

    async def advise_on(self, task: str | PlainTask, mistake: Mistake, /) -> list[Advice]:
        """Advice on a failure that has just happened: the lessons whose failure matches it, best first.

        A lesson matches by a requirement or a criterion that was missed, by the tool that failed, or by the
        identifiers and the words of the error; never by the task alone. It is quoted as data, without the
        sentences that are in the prompt already (`stated`), in at most `MISTAKE_TOKENS` tokens. A quarantined
        lesson matches only the task that taught it.
        """
        agent, task = None if self.semantic else self.agent, _as_task(task)
        stored = replace(mistake, requirements=tuple(map(as_stored, mistake.requirements)))
        candidates = await self._index.search(query_of(stored, agent, self.clock()), by_words=True)
        quarantined = await self._quarantined_of(task, CANDIDATES)

        def advise() -> list[Advice]:
            restore = restorer(*mistake.requirements, *mistake.errors, task.expected_output)
            matching = matching_lessons(stored, [*quarantined, *candidates])
            lessons = [restored_match(match, restore) for match in matching]
            stated = (*mistake.stated, *mistake.errors)
            return advice_on_mistake(lessons, stated, min(self.max_tokens, MISTAKE_TOKENS))

        return await asyncio.to_thread(advise)

    # --- after a run ---------------------------------------------------------------------------------------

    async def observe(self, result: ReflectionResult) -> None:
        """Learn from a run, and count it for the lessons that it received.

        By the same test as for notes, a lesson that significantly hurts is retired, and a quarantined lesson
        that significantly helps is released. A failed run is reflected on if there is a model.
        """
        outcome, model = await self._outcome_of(result), self._auto_model()
        if outcome is not None:
            await self._learn_facts(outcome)
        if outcome is not None and outcome.is_mandatory:
            await self._due.add(outcome)
        elif outcome is not None:
            await self._due.waive(outcome.run_id, "The run was resumed and succeeded.")
        await self._count(result, outcome)
        lesson: Lesson | None = None
        if outcome is not None and model is not None:
            if outcome.is_mandatory:
                lesson = await self._write_due(outcome.run_id, outcome.content_type.kind, model)
            elif self.successes and result.iterations_used:
                lesson = await self._reflect_if_possible(outcome, model, only_replicable=not outcome.is_fixed)
            decision = decision_of(outcome, result) if self.decisions else None
            if decision is not None:
                lesson = await self._reflect_if_possible(decision, model) or lesson
        if lesson is not None and (waits := waiting(lesson)):
            result.diagnostics = {**result.diagnostics, "lesson_waits": waits}
        await self._guidance.expire()
        self._backlog.begin()  # people may have added files

    async def observe_failure(
        self, task: PlainTask, run_id: str, error: Exception, advice: Sequence[Advice] = ()
    ) -> None:
        """Learn from a run that raised an error before there was any output.

        After a `ModelError`, the reflection waits until before the next run. A `ConfigError` teaches nothing.
        """
        outcome, model = failure_of(task, run_id, error, advice, trusted=self.trusted), self._auto_model()
        if outcome is None:
            return
        outcome = await self._doubted(outcome, advice)
        lessons = await asyncio.to_thread(self._lessons_of, advice)
        failures = RunFailures.of_error(error)
        obeyed = {lesson.id: failures.obeyed(lesson) for lesson in lessons}
        await self._count_run(run_id, task, None, lessons, obeyed, list(obeyed))
        await self._learn_facts(outcome)
        self._raised.add(outcome)
        await self._due.add(outcome)
        if model is not None and not isinstance(error, ModelError):
            await self._write_due(run_id, outcome.content_type.kind, model)

    # --- learning by hand ----------------------------------------------------------------------------------

    async def reflect_on(
        self, what: Outcome | ReflectionResult, *, content: Content | None = None, decision: bool = False
    ) -> Lesson | None:
        """Write the lesson that an outcome teaches, from `content` or else by one call of the model.

        With `decision`, the lesson records why a significant choice in the run was made. A run leaves one
        lesson of each kind, however often this is called; `content` replaces a model's words. Near-duplicates
        are not stored: the earlier lesson gains 0.1 in confidence and is returned. A lesson that was written
        without a model and names only requirements of earlier lessons is a near-duplicate of these. Returns
        None if its lesson has been deleted since, or if the outcome of the run is unknown, for example
        because it missed only criteria that are hidden from the writer; `record` can still store a person's
        lesson on it.

        Raises `ConfigError` for content that no lesson may contain, and if there is neither content nor a
        model; `ModelError` and `OutputError` if the model can't reflect on a success or a decision.
        """
        check_flag("decision", decision)
        if not isinstance(what, Outcome | ReflectionResult):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
            raise ConfigError(f"reflect_on takes the result of a run or an Outcome, got {what!r:.200}.")
        outcome = what if isinstance(what, Outcome) else await self._outcome_of(what)
        if outcome is None:
            return None
        outcome = as_decision(outcome) if decision else outcome
        run_id = self._raised.run_of(outcome)
        outcome = replace(outcome, trusted=outcome.trusted or self.trusted, run_id=run_id)
        await self._learn_facts(outcome)
        expected = outcome.content_type
        if content is not None:
            if not isinstance(content, expected):
                raise ConfigError(
                    f"A task that ended as {outcome.status!r} takes a {expected.__name__}, "
                    f"got a {type(content).__name__}."
                )
            lesson = await self._save(outcome, await asyncio.to_thread(_reflection_of, content), by_hand=True)
        elif run_id and (lesson_id := await self._due.lesson_of(run_id, expected.kind)):
            with suppress(LessonFileError):
                return await self.get(lesson_id)
            return None
        else:
            model = model_of(self.model, load_settings())
            lesson = await self._write_due(run_id, expected.kind, model) if run_id else None
            lesson = lesson or await self._reflect(outcome, model)
        await self._backlog.wait()
        return lesson

    async def record(
        self,
        content: Content,
        task: str | PlainTask,
        *,
        error: str = "",
        run_id: str = "",
        confidence: float | None = None,
        title: str = "",
        doubt: str = "",
        observed: bool = False,
    ) -> Lesson:
        """Store a lesson that a person or a program wrote; it is active immediately.

        `doubt` says why it may be wrong or come from outside: the lesson is then quarantined, like a model's.
        `observed` means that a program saw the content without vouching for its words: it is quoted as data,
        adds no rule, and raises the confidence of a lesson that says the same. Its file is named after its
        `title`, or else after the task. Secrets in it are withheld. Raises `ConfigError` for content that no
        lesson may contain: an instruction to ignore rules or skip a check, a command, an address.
        """
        statuses: dict[type, OutcomeStatus] = {form: status for status, form in CONTENT_TYPES.items()}
        statuses[CorrectedAnswer] = "partial"
        status = statuses.get(type(content))
        if status is None and not isinstance(content, Fact):
            kinds = "a Failure, a Partial, a Procedure, a Decision, a CorrectedAnswer or a Fact"
            raise ConfigError(f"A lesson is {kinds}, got {content!r:.200}.")
        plain = _as_task(task)
        vouched = not (doubt or observed)
        doubted = doubt if doubt or observed else None
        outcome = Outcome(
            plain, status or "decision", error=error, run_id=run_id, trusted=vouched, doubt=doubted
        )
        reflection = await asyncio.to_thread(_reflection_of, content, title)
        if observed:
            reflection = replace(reflection, principle="")
        if confidence is not None:
            check_share("confidence", confidence)
            reflection = replace(reflection, confidence=confidence)
        if isinstance(content := reflection.content, Fact):
            finding = FactFinding(content.subject, content.statement, content.evidence, outcome.trust)
            [lesson] = await self._learn_facts(outcome, [finding])
            if confidence is not None:
                lesson = await self._change(lesson.id, confidence=confidence)
        else:
            lesson = await self._save(outcome, reflection, by_hand=vouched)
        await self._backlog.wait()
        return lesson

    async def due(self) -> list[DueReflection]:
        """The reflections that are due, each with the outcome of its run."""
        return await self._due.list()

    async def waive(self, run_id: str, why: str) -> None:
        """Waive the reflection on a run; raises `ConfigError` if none is due, or without a reason."""
        if not why.strip():
            raise ConfigError(f"To waive the reflection on the run {run_id!r}, say why.")
        if not await self._due.waive(run_id, why):
            raise ConfigError(f"No reflection is due for the run {run_id!r}.")

    # --- the lessons themselves ----------------------------------------------------------------------------

    async def get(self, lesson_id: str) -> Lesson:
        """Read a lesson; raises `LessonFileError` if there is none, or if it is broken."""
        return await asyncio.to_thread(self._folder_of(lesson_id).read, lesson_id)

    async def find(
        self, *, status: Status | None = None, kind: LessonKind | None = None, archived: bool = False
    ) -> list[Lesson]:
        """The agent's lessons, oldest first; broken files are left out (see `problems`)."""
        lessons = await asyncio.to_thread(lambda: list(self._own_folder.lessons(archived=archived)))
        lessons = [
            lesson for lesson in lessons if status in (None, lesson.status) and kind in (None, lesson.kind)
        ]
        return sorted(lessons, key=lambda lesson: (lesson.recency, lesson.id))

    async def fingerprint(self) -> str:
        """A text that changes with each change of the agent's lessons."""

        def digest() -> str:
            entries = sorted((entry.id, entry.changed_ns, entry.size) for entry in self._own_folder.entries())
            return sha256(repr(entries).encode()).hexdigest()

        return await asyncio.to_thread(digest)

    async def taught_by(self, lesson: Lesson) -> list[str]:
        """The ids of the runs that left a lesson, oldest first; near-duplicates leave the same lesson."""
        return await self._due.runs_of(lesson.id, lesson.kind)

    async def attribute(self, lesson_id: str, run_id: str) -> Lesson:
        """Make a run the source of a lesson, in place of another run that left it."""
        return await self._change(lesson_id, source=run_id)

    async def approve(self, lesson_id: str, why: str = "") -> Lesson:
        """Start using a quarantined, retired or superseded lesson, with its rule and playbook.

        A person who approves overrules every filter but redaction: `overrules` says which, and is logged. The
        lesson is still quoted as data. The reason why it is active stays, unless `why` gives another.
        """
        lesson = await self.get(lesson_id)
        overrules = "; ".join(await asyncio.to_thread(violations_in, lesson))
        if overrules:
            logger.warning("The lesson %s is approved although it holds %s.", lesson_id, overrules)
        why = why or (lesson.why if lesson.status == "active" else "")
        changed = {"status": "active", "why": why, "superseded_by": "", "disobeyed": ""}
        return await self._set_status_and_wait(lesson_id, **changed, trust="vouched", overrules=overrules)

    async def release(self, lesson_id: str, why: str) -> Lesson:
        """Start using a quarantined lesson that has helped, without approval: all filters still apply."""
        return await self._set_status(lesson_id, status="active", why=why, superseded_by="")

    async def retire(self, lesson_id: str, why: str) -> Lesson:
        """Stop using a lesson, its rule and its playbook; the file stays, with the reason."""
        if not why.strip():
            raise ConfigError(f"To retire the lesson {lesson_id!r}, say why.")
        return await self._set_status_and_wait(lesson_id, status="retired", why=why)

    async def supersede(self, lesson_id: str, by: str) -> Lesson:
        """Replace a lesson with another one; the file stays and names its successor."""
        if lesson_id == by:
            raise ConfigError(f"The lesson {lesson_id!r} can't supersede itself.")
        await self.get(by)
        return await self._set_status_and_wait(lesson_id, status="superseded", superseded_by=by)

    async def merge(self, lesson_ids: Sequence[str], *, keep: str | None = None) -> Lesson:
        """Merge lessons that say the same: `keep`, by default the most confident, supersedes the others.

        It keeps its content and gets the tools of all. Its confidence becomes the probability that at least
        one of the lessons is right. Raises `ConfigError` for fewer than two lessons, and if `keep` is not
        among them.
        """
        ids = list(dict.fromkeys(lesson_ids))
        if len(ids) < 2:  # noqa: PLR2004 (it takes two to merge)
            raise ConfigError(f"merge takes at least two lessons, got {ids!r}.")
        if keep is not None and keep not in ids:
            raise ConfigError(f"keep must be one of the lessons that are merged, got {keep!r}.")
        lessons = {lesson_id: await self.get(lesson_id) for lesson_id in ids}
        best = max(
            (lesson for lesson_id, lesson in lessons.items() if keep in (None, lesson_id)),
            key=lambda lesson: (lesson.status == "active", lesson.confidence, lesson.recency, lesson.id),
        )
        tools = tuple(dict.fromkeys(tool for lesson in (best, *lessons.values()) for tool in lesson.tools))
        confidence = round(1 - prod(1 - lesson.confidence for lesson in lessons.values()), 2)
        merged = await self._change(best.id, tools=tools, confidence=confidence)
        for lesson in lessons.values():
            if lesson.id != best.id:
                await self.supersede(lesson.id, best.id)
        return merged

    async def edit(self, lesson_id: str, content: Content) -> Lesson:
        """Replace the content of a lesson; raises `ConfigError` for content that no lesson may contain."""
        checked = await asyncio.to_thread(checked_content, content)
        lesson = await self._change(lesson_id, content=checked)
        self._backlog.begin()
        await self._backlog.wait()
        return lesson

    async def edit_file(self, lesson_id: str, text: str, *, before: str) -> Lesson:
        """Replace the Markdown of a lesson, which may be broken; secrets in it are withheld.

        A change of its status applies to its rule and playbook, too. `before` is the text before the edit.
        Raises `LessonFileError` with the line if the text is not a lesson, and `ConfigError` for content that
        no lesson may contain, and if the lesson has been changed in the meantime.
        """
        folder = self._folder_of(lesson_id)

        def write() -> Lesson:
            written = folder.entry_of(lesson_id).written
            lesson = checked_lesson(parse(text, lesson_id, folder.agent, written))
            with self._documents.locked(folder.name):
                entry = folder.entry_of(lesson_id)
                if folder.text_of(entry) != before:
                    raise ConfigError(f"{lesson_id}: the lesson has been changed in the meantime.")
                self._documents.replace(entry, render(lesson))
            return lesson

        lesson = await asyncio.to_thread(write)
        await self._apply_status(lesson)
        await self._backlog.wait()
        return lesson

    async def rate(self, lesson_id: str, helped: bool) -> None:
        """Record a person's judgement that a lesson helped or hurt."""
        await self.get(lesson_id)
        await self._impact.rate(lesson_id, helped=helped, at=self.clock())

    async def counters(self, lesson_id: str) -> Counters:
        """How many runs used a lesson, and how often it helped and hurt."""
        return await self._impact.counters(lesson_id)

    async def problems(self) -> list[Problem]:
        """Broken files, near-duplicates, and lessons that are not in use."""
        return list((await asyncio.to_thread(Overview.read, self._documents, self.agent)).problems)

    async def aclose(self) -> None:
        """Wait until new lessons are embedded. The caller closes the store."""
        await self._backlog.wait()

    # --- due reflections and quarantined lessons -----------------------------------------------------------

    async def _still_due(self) -> tuple[list[DueReflection], str]:
        """Write the due reflections if there is a model. The rest is returned, with the first problem.

        Reflections that another run is writing now do not count as remaining.
        """
        due, model = await self._due.list(), self._auto_model()
        if model is None:
            return [reflection for reflection in due if not reflection.is_being_written], ""
        remaining, problem = list[DueReflection](), ""
        for reflection in due:
            try:
                await self._write_due(reflection.run_id, reflection.kind, model)
            except (StoreError, ModelError, OutputError) as error:
                logger.warning("The run %r could not be reflected on: %s", reflection.run_id, error)
                problem = problem or str(error)
                remaining.append(reflection)
        return remaining, problem

    async def _write_due(self, run_id: str, kind: LessonKind, model: ChatModel) -> Lesson | None:
        """Write the due reflection on a run; None if there is none, or if another run writes it."""
        async with self._due.writing(run_id, kind) as due:
            if due is None or due.outcome is None:
                return None
            return await self._save(due.outcome, await self._written(due.outcome, model), taught_by=due.task)

    async def _quarantined_of(self, task: PlainTask, k: int) -> list[LessonMatch]:
        """The quarantined lessons that this very task taught, for another attempt at it."""
        matches: list[LessonMatch] = []
        for lesson_id in await self._guidance.quarantined(task):
            try:
                lesson = await self.get(lesson_id)
            except LessonFileError:  # a person deleted it
                continue
            if lesson.check in self.checked:
                continue
            if lesson.status != "quarantined":  # a person has edited the file
                await self._apply_status(lesson)
            elif (lesson.kind == "fact" or len(matches) < k) and not violation_in(lesson):
                reason = "learned in an earlier attempt at this very task, and not approved yet"
                matches.append(LessonMatch(lesson, 1.0, reason))
        return matches

    async def _on_trial(self, task: PlainTask) -> LessonMatch | None:
        """The quarantined lesson to be tried in a run of a task, in at most one run of four."""
        query = self._query(task, k=1, status=QUARANTINED, requirements=self._stored_requirements)
        for candidate in await self._index.search(query):
            if candidate.lesson.check not in self.checked and await self._impact.takes_trial(task.task_type):
                return replace(
                    candidate, reason=f"{candidate.reason}; on trial: {_doubt_of(candidate.lesson)}"
                )
        return None

    @property
    def _stored_requirements(self) -> tuple[str, ...]:
        return tuple(map(as_stored, self.requirements))

    def _query(self, task: PlainTask, **options: Any) -> LessonQuery:
        """A query for lessons on a task, by default of this agent."""
        options = {"agent": self.agent, "now": self.clock(), **options}
        return LessonQuery(task.description, task.task_type, task.tools, **options)

    async def _outcome_of(self, result: ReflectionResult) -> Outcome | None:
        outcome = outcome_of(result, trusted=self.trusted)
        return None if outcome is None else await self._doubted(outcome, result.advice)

    async def _doubted(self, outcome: Outcome, advice: Sequence[Advice]) -> Outcome:
        """Mark an outcome as doubtful if an untrusted lesson in the advice may have caused it."""
        if outcome.trust != "checked":
            return outcome
        lessons = await asyncio.to_thread(self._lessons_of, advice)
        untrusted = next((lesson.id for lesson in lessons if lesson.trust == "untrusted"), "")
        untrusted = untrusted or await asyncio.to_thread(
            self._guidance.untrusted, outcome.task.task_type, advice
        )
        return (
            replace(outcome, doubt=f"its run was given the untrusted lesson {untrusted}")
            if untrusted
            else outcome
        )

    # --- writing a lesson ----------------------------------------------------------------------------------

    async def _reflect_if_possible(
        self, outcome: Outcome, model: ChatModel, *, only_replicable: bool = False
    ) -> Lesson | None:
        """Have a model write an optional lesson; log a failure."""
        try:
            return await self._reflect(outcome, model, only_replicable=only_replicable)
        except (ModelError, OutputError) as error:
            kind = outcome.content_type.kind
            logger.warning("The run %r left no %s: %s", outcome.run_id, kind, error)
            return None

    async def _reflect(
        self, outcome: Outcome, model: ChatModel, *, only_replicable: bool = False
    ) -> Lesson | None:
        """Have a model write the lesson that an outcome teaches.

        With `only_replicable`, nothing is stored unless the model says that other tasks can use the lesson.
        """
        reflection = await self._written(outcome, model)
        if only_replicable and not reflection.principle and reflection.replay is None:
            return None
        return await self._save(outcome, reflection)

    async def _written(self, outcome: Outcome, model: ChatModel) -> LessonReflection:
        """Have a model write a reflection; a mandatory one is a step of its run."""
        if outcome.is_mandatory and outcome.run_id:
            reflection = await self._due.reflection(outcome, model)
        else:
            reflection = await write_reflection(outcome, model)
        if reflection.problem:
            about = f"the run {outcome.run_id!r}" if outcome.run_id else f"{outcome.task.description!r:.100}"
            logger.warning(
                "The reflection on %s was completed without the model: %s", about, reflection.problem
            )
        return reflection

    async def _learn_facts(
        self, outcome: Outcome, findings: Sequence[FactFinding] | None = None, taught_by: str = ""
    ) -> list[Lesson]:
        """Store the facts in `findings`, by default those in the messages of an outcome.

        Untrusted facts are quarantined like other lessons.
        """

        def save() -> list[tuple[Lesson, bool]]:
            stated = tuple(map(as_stored, (*self.requirements, *self.stated)))
            new = findings_in(outcome, stated) if findings is None else findings
            if not new:
                return []
            about = self._lesson(outcome, LessonReflection(_NO_CONTENT), by_hand=False)
            return file_findings(self._own_folder, new, about, outcome.doubt or "")

        filed = await asyncio.to_thread(save)
        for fact, is_new in filed:
            if is_new and fact.status == QUARANTINED:
                await self._guidance.add(
                    fact, taught_by or digest_of(outcome.task), LessonReflection(fact.content)
                )
            elif fact.status != "active":
                await self._guidance.apply_status(fact)
            self._backlog.begin()
        return [fact for fact, _ in filed]

    async def _save(
        self, outcome: Outcome, reflection: LessonReflection, *, by_hand: bool = False, taught_by: str = ""
    ) -> Lesson:
        """Store the lesson that an outcome teaches; it is active if written by hand, or free of doubt.

        `taught_by` is the digest of the task if the outcome has it with its secrets withheld.
        """
        if not by_hand and repeated_source(reflection.principle, outcome):
            reflection = replace(reflection, principle="")
        lesson = await asyncio.to_thread(self._lesson, outcome, reflection, by_hand=by_hand)
        lesson, is_new = await asyncio.to_thread(
            self._own_folder.file,
            lesson,
            by_hand=by_hand,
            by_advice=reflection.names_requirements,
            recalled=outcome.told,
        )
        if not is_new and outcome.is_mandatory and lesson.id in outcome.told:
            at = self.clock()
            before = await self._impact.obedience(lesson.id, at)
            await self._impact.fail(lesson.id, outcome.run_id, at)
            lesson = await self._apply_obedience(lesson, before, at)
        is_same = lesson.content == reflection.content and lesson.status == "active"
        # A process that died may have written the file, but not the rule and the playbook.
        is_repeated = bool(outcome.run_id) and lesson.source == outcome.run_id and not by_hand
        if is_new or (is_repeated and lesson.status in ("active", QUARANTINED)):
            await self._guidance.add(lesson, taught_by or digest_of(outcome.task), reflection)
            if waits := waiting(lesson):
                logger.info(waits)
        elif by_hand and lesson.source == outcome.run_id and not is_same:
            # A person's words replace a model's, and overrule an earlier status.
            changed = {"status": "active", "trust": "vouched", "why": "", "superseded_by": ""}
            changed["title"] = reflection.title or lesson.title
            lesson = await self._change(lesson.id, content=reflection.content, **changed)
            await self._guidance.apply_status(lesson)
        if reflection.facts:
            await self._learn_facts(outcome, reflection.facts, taught_by)
        if outcome.run_id:
            # The kind that is due: the lesson that it repeats may be of another kind.
            await self._due.complete(outcome.run_id, reflection.content.kind, lesson.id)
        self._backlog.begin()
        return lesson

    def _lesson(self, outcome: Outcome, reflection: LessonReflection, *, by_hand: bool) -> Lesson:
        task = outcome.task
        cleaner = Cleaner.of(task.description, outcome.error)
        trust = "vouched" if by_hand else outcome.trust
        description = cleaner.redact(task.description)
        doubt = (outcome.doubt or "") if trust == "untrusted" else ""
        if not by_hand and (retired := self._retired_in_vain(outcome)) is not None:
            doubt = f"the lesson {retired.id} about the same failure was of no use: {retired.disobeyed}"
        words = description[:LONGEST].split()
        is_cut = len(words) > SUMMARY_WORDS
        summary = cleaner.clean(" ".join(words[:SUMMARY_WORDS])) + (" ..." if is_cut else "")
        now = self.clock()
        return Lesson(
            reflection.content,
            self.agent,
            now.date(),
            shortened(summary, LONGEST_SUMMARY) if words else "untitled",
            task=_excerpt(description),
            task_type=cleaner.redact(task.task_type),
            tools=tuple(map(cleaner.redact, outcome.tools or task.tools)),
            error=without_middle(cleaner.redact(outcome.error), LONGEST_EXCERPT),
            confidence=reflection.confidence,
            status=QUARANTINED if trust == "untrusted" or doubt else "active",
            trust=trust,
            why=doubt,
            source=outcome.run_id,
            title=reflection.title,
            at=now.replace(microsecond=now.microsecond // 1000 * 1000),
        )

    def _retired_in_vain(self, outcome: Outcome) -> Lesson | None:
        """The lesson that was retired because runs received it and failed in the same way all the same."""
        failures = RunFailures.of_outcome(outcome)
        retired = (
            lesson for lesson in self._own_folder.lessons() if lesson.status == "retired" and lesson.disobeyed
        )
        return next(filter(failures.include, retired), None)

    # --- what lessons did for runs -------------------------------------------------------------------------

    async def _count(self, result: ReflectionResult, outcome: Outcome | None) -> None:
        """Count a run for its lessons; release quarantined ones that helped, retire those that hurt."""
        if result.task is None:
            return
        score, lessons = score_of(result), await asyncio.to_thread(self._lessons_of, result.advice)
        failures = RunFailures.of(result, outcome)
        obeyed = {lesson.id: failures.obeyed(lesson) for lesson in lessons}
        # Advice after a failure caused neither the failure nor the score: all such runs have failed once.
        later = later_advice(result.advice)
        afterwards = RunFailures.of(result, outcome, later=True) if later else failures
        for lesson in lessons:
            if lesson.id in later:
                obeyed[lesson.id] = afterwards.obeyed(lesson) if later[lesson.id] else None
        first = [lesson.id for lesson in lessons if lesson.id not in later]
        at, payoffs = await self._count_run(result.run_id, result.task, score, lessons, obeyed, first)
        taught_by_task = await self._guidance.quarantined(result.task) if lessons else []
        for lesson in lessons:
            if lesson.status != QUARANTINED or lesson.id not in taught_by_task:
                if lesson.id in payoffs:
                    await self._apply_payoff(lesson, payoffs[lesson.id], at)
            elif lesson.source != result.run_id:
                before = await self._impact.score(lesson.source) if lesson.source else None
                scored_more = score is not None and before is not None and score > before
                succeeded = outcome is not None and outcome.status == "success"
                # A lesson of a success has to beat that success.
                if scored_more or (succeeded and lesson.kind in ("failure", "partial")):
                    await self.release(lesson.id, f"The attempt {result.run_id} with it did better.")

    async def _count_run(
        self,
        run_id: str,
        task: PlainTask,
        score: float | None,
        lessons: Sequence[Lesson],
        obeyed: Mapping[str, bool | None],
        first: Sequence[str],
    ) -> tuple[datetime, dict[str, Payoff]]:
        """Record a run and its effect on its lessons: the time of the record, and whether each lesson helps.

        `first` are the lessons that it received at its start. Only these are compared.
        """
        run = ScoredRun(run_id, self._folder_name, self.clock(), score, task.task_type, tuple(first))
        before = {lesson.id: await self._impact.obedience(lesson.id, run.at) for lesson in lessons}
        payoffs = await self._impact.count(run, obeyed)
        for lesson in lessons:
            await self._apply_obedience(lesson, before[lesson.id], run.at)
        return run.at, payoffs

    async def _apply_obedience(self, lesson: Lesson, before: Obedience, at: datetime) -> Lesson:
        """Change a lesson according to the latest runs that received it."""
        if lesson.status not in ("active", QUARANTINED):
            return lesson
        changes = changes_after(lesson, before, await self._impact.obedience(lesson.id, at))
        if "status" in changes:
            lesson = await self._set_status(lesson.id, **changes)
            await self._impact.judged(lesson.id, at)
        elif changes:
            lesson = await self._change(lesson.id, **changes)
            self._backlog.begin()
        return lesson

    async def _apply_payoff(self, lesson: Lesson, payoff: Payoff, at: datetime) -> None:
        """Retire a lesson that hurts, and release a quarantined one that helps."""
        effect = payoff.effect
        if effect is None or lesson.status not in ("active", QUARANTINED):
            return
        figures = f"(95 % interval {effect.low:.2f} to {effect.high:.2f})"
        if payoff.verdict == "hurts":
            why = f"It hurt: runs with it scored {-effect.mean:.2f} less than runs without {figures}."
            await self._set_status(lesson.id, status="retired", why=why)
            await self._impact.judged(lesson.id, at)
        elif payoff.verdict == "helps" and lesson.status == QUARANTINED:
            why = f"It helped: runs with it scored {effect.mean:.2f} more than runs without {figures}."
            await self.release(lesson.id, why)

    def _lessons_of(self, advice: Sequence[Advice]) -> list[Lesson]:
        """The lessons in the advice that a run received, except those deleted since."""
        lessons: list[Lesson] = []
        for source in dict.fromkeys(piece.source for piece in advice):
            with suppress(LessonFileError):  # deleted, or another advisor's advice
                lessons.append(self._folder_of(source).read(source))
        return lessons

    # --- changing a lesson ---------------------------------------------------------------------------------

    async def _set_status_and_wait(self, lesson_id: str, **changed: Any) -> Lesson:
        """Set the status of a lesson, and wait until it can be found by meaning."""
        lesson = await self._set_status(lesson_id, **changed)
        await self._backlog.wait()
        return lesson

    async def _set_status(self, lesson_id: str, **changed: Any) -> Lesson:
        lesson = await self._change(lesson_id, **changed)
        await self._apply_status(lesson)
        return lesson

    async def _apply_status(self, lesson: Lesson) -> None:
        """Apply the new status of a lesson to its rule, its playbook and the index."""
        await self._guidance.apply_status(lesson)
        self._backlog.begin()

    async def _change(self, lesson_id: str, **changed: Any) -> Lesson:
        return await asyncio.to_thread(lambda: self._folder_of(lesson_id).change(lesson_id, **changed))

    # --- helpers -------------------------------------------------------------------------------------------

    def _folder_of(self, lesson_id: str) -> LessonFolder:
        """The folder of a lesson, which with `semantic` may be another agent's."""
        folder = lesson_id.partition("/")[0]
        return self._own_folder if folder == self._folder_name else LessonFolder(self._documents, folder)

    def _auto_model(self) -> ChatModel | None:
        """The model that writes reflections without being asked, if any."""
        settings = load_settings()
        return model_of(self.model, settings) if self.auto and (self.model or settings.model) else None

    def _check_arguments(self) -> None:
        if not isinstance(self.agent, str) or not self.agent.strip():  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
            raise ConfigError(
                f"Lessons need the name of the agent that learns: agent=..., got {self.agent!r}."
            )
        check_count("max_tokens", self.max_tokens, 1)
        for name in ("semantic", "auto", "successes", "decisions", "trusted"):
            check_flag(name, getattr(self, name))
        zoned(self.clock)()
        if self.model is not None:
            model_of(self.model, load_settings())


_NO_CONTENT = Fact("unknown", "unknown", "unknown")
"""Placeholder for the content of a lesson of which only the metadata is used."""


def _as_task(task: str | PlainTask) -> PlainTask:
    return PlainTask(task) if isinstance(task, str) else task.plain()


def _doubt_of(lesson: Lesson) -> str:
    return lesson.why or "neither a person nor a check confirmed the outcome that taught it"


def waiting(lesson: Lesson) -> str:
    """One sentence that says that a lesson waits, why, and for what; empty if it does not wait."""
    if lesson.status != QUARANTINED:
        return ""
    return (
        f"The lesson {lesson.id} waits, since {_doubt_of(lesson)}: it is tried in some runs of similar tasks "
        f"until it helps or hurts, or until you approve it (`redraft lessons approve {lesson.id}`)."
    )


def approval(before: Lesson, after: Lesson) -> str:
    """What the approval of a lesson has changed, in one sentence."""
    if before.status != "active":
        line = f"Approved: it was {before.status}, and is active now."
    elif before.trust != after.trust:
        was = before.trust or "unknown"
        line = f"Approved: it was active already; its trust was {was}, and is {after.trust} now."
    elif before.overrules != after.overrules:
        line = "Approved: it was active already."
    elif before != after:
        return "Approved before; only the reason has changed."
    else:
        return "Approved before; nothing has changed."
    return f"{line} It is used although it holds {after.overrules}." if after.overrules else line


def _reflection_of(content: Content, title: str = "") -> LessonReflection:
    """A reflection from content that a person or a program wrote."""
    checked = checked_content(content)
    return LessonReflection(
        checked, checked_title(title), principle=checked.rule if isinstance(checked, Failure) else ""
    )


def _excerpt(description: str) -> str:
    return without_middle(description, LONGEST_EXCERPT)
