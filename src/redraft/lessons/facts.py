"""Facts about the environment of tasks, with errors, replies and passing outputs as evidence."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

from redraft._texts import shortened
from redraft._words import words_in
from redraft.lessons.folder import CONFIRMATION, REJECTED
from redraft.lessons.lesson import CONFIDENCE, Fact, Trust
from redraft.lessons.markdown import one_line
from redraft.memory.safety import Cleaner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redraft.lessons.folder import LessonFolder
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.outcome import Outcome

# A fact is a lesson of the kind `fact`: a subject, such as a table, and one statement on it, which is a list
# of clauses: `a table with the columns l_no, mb; no two rows have the same l_no`. Findings on one subject
# are merged into its statement: names are added, and a newer clause corrects an older one.

MOST_CLAUSES, MOST_EVIDENCE = 8, 5
MOST_NAMES = 40
"""Maximum names of a list in a fact, such as the columns of a table."""
LONGEST_STATEMENT, LONGEST_QUOTE = 900, 300
LONGEST_CLAUSE = 240
"""Maximum characters of a clause that a model wrote."""
DOUBT = 0.2
"""How much confidence a vouched fact loses when an error contradicts it."""


@dataclass(frozen=True, slots=True)
class FactFinding:
    """A clause on a subject, with its evidence and trust."""

    subject: str
    clause: str
    evidence: str
    trust: Trust = "untrusted"


def is_lack(statement: str) -> bool:
    """Whether a statement only says that something does not exist."""
    return all(map(_LACK.fullmatch, statement.split(_BETWEEN)))


def fact_line(fact: Fact) -> str:
    """A fact as a line for a prompt."""
    return f"{one_line(fact.subject)}: {one_line(fact.statement)}"


def runs_behind(lesson: Lesson) -> list[str]:
    """The ids of the runs that taught a lesson; a fact has one for each quotation."""
    quoted = _QUOTED_RUN.findall(lesson.content.evidence) if isinstance(lesson.content, Fact) else []
    return list(dict.fromkeys((lesson.source, *quoted)))


_QUOTED_RUN = re.compile(r"^- \d{4}-\d\d-\d\d, run (\S+): ", re.MULTILINE)

# --- facts in an outcome -----------------------------------------------------------------------------------


def findings_in(outcome: Outcome, requirements: Iterable[str] = ()) -> list[FactFinding]:
    """Facts that the errors, the tools and the passing output of a run show, read by the forms of messages.

    Facts that the task or the `requirements` of the criteria state already are left out.
    """
    from redraft.lessons.error_forms import claims_in  # noqa: PLC0415 (slow to load, and advice needs none)

    stated = "\n".join((*requirements, *outcome.requirements))
    task = f"{outcome.task.description}\n{outcome.task.expected_output}"
    replies = (*_tool_replies(outcome.transcript), outcome.heard)
    foreign = [_plain(text) for text in (*_outputs(outcome), *filter(None, replies))]
    # Names that an output defines itself are not part of the environment.
    definitions = _DEFINITION.findall("\n".join(_outputs(outcome)))
    own = {name for names in definitions for name in names if name}
    findings: dict[tuple[str, str], FactFinding] = {}
    for message, output, trust in _messages(outcome):
        for claim in claims_in(message):
            span = _plain(claim.span)
            # A message that is quoted in full in an output or a page may have been planted there.
            is_planted = bool(span) and any(span in text for text in foreign)
            finding = FactFinding(
                claim.subject,
                claim.clause,
                message,
                "untrusted" if is_planted and trust == "checked" else trust,
            )
            finding = _placed(finding, output)
            is_known = (
                span in _plain(task)
                or claim.subject in own
                or is_stated(f"{finding.subject}: {finding.clause}", stated)
            )
            if not is_known and not _is_of_the_code(finding):
                findings.setdefault((finding.subject, finding.clause), finding)
    for finding in _passing(outcome):
        if not is_stated(f"{finding.subject}: {finding.clause}", f"{stated}\n{task}"):
            findings.setdefault((finding.subject, finding.clause), finding)
    return list(findings.values())


def has_messages(outcome: Outcome) -> bool:
    """Whether a check, the program or a tool reported anything."""
    return next(_messages(outcome), None) is not None


def _messages(outcome: Outcome) -> Iterator[tuple[str, str, Trust]]:
    """Yield the messages of checks, the program and tools, each with its output and its trust.

    Checks, the program and tools write the errors that they raise; a tool's answer may come from anywhere.
    """
    raised: Trust = "vouched" if outcome.trusted else "untrusted" if outcome.doubt is None else "checked"
    for report in outcome.reports:
        yield report.message, report.output, raised
    if not outcome.reports and not outcome.is_only_judged:
        for issue in outcome.issues:
            yield issue, outcome.failed_output or outcome.output, raised
    if outcome.error and not outcome.is_only_judged:
        yield outcome.error, outcome.failed_output or outcome.output, raised
    for line in outcome.transcript.split("\n"):
        if match := _TOOL_ERROR.match(line):
            text = match["text"]
            if text.endswith(_CUT):  # the last name may be cut
                text = text.removesuffix(_CUT).rpartition(" ")[0]
            yield text, "", raised if match["raised"] else "vouched" if outcome.trusted else "untrusted"


_CUT = " ..."
_TOOL_ERROR = re.compile(
    r"\s*(?:\d+[.:)]\s+)?(?!said:)(?P<tool>\S+) (?:(?P<raised>failed|denied|was refused)|answered): "
    r"(?P<text>(?(raised).*|(?i:\W*\w*(?:error|exception|traceback|failed|invalid|unknown|no such)\b).*))"
)
_TOOL_REPLY = re.compile(r"^\s*(?:\d+[.:)]\s+)?\S+ answered: (.*)$", re.MULTILINE)


def _tool_replies(transcript: str) -> list[str]:
    return _TOOL_REPLY.findall(transcript)


def _outputs(outcome: Outcome) -> list[str]:
    outputs = (*(report.output for report in outcome.reports), outcome.failed_output, outcome.output)
    return list(filter(None, outputs))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


_DEFINITION = re.compile(
    r"\b(?:def|class|function|fn|func|struct|interface|const|let|var)\s+([^\W\d]\w*)"
    r"|^\s*([^\W\d]\w*)\s*(?::\s*[\w\[\], .|]+)?=(?!=)",
    re.MULTILINE,
)


_BUILT_IN = frozenset(
    re.findall(
        r"\S+",
        "NoneType str int float bool list dict tuple set bytes object function type generator coroutine "
        "range method",
    )
)
_NO_FACT = re.compile(r"there is no (?:name|key|variable|attribute|member|property) of this name")


def _is_of_the_code(finding: FactFinding) -> bool:
    """Whether a message is about a slip in the code, such as an undefined variable."""
    return finding.subject in _BUILT_IN or _NO_FACT.fullmatch(finding.clause) is not None


_WORDS = re.compile(r"\w+")
_FORM_WORDS = frozenset(
    re.findall(
        r"\S+",
        "a an the of one at most least between and or in there is are no this name has have only table with "
        "columns column required place "
        "function arguments argument needs field fields keys key format takes positional it must be "
        "not among values choices",
    )
)


def is_stated(fact: str, stated: str) -> bool:
    """Whether a text has all names and numbers of a fact."""
    significant = set(_WORDS.findall(fact.casefold())) - _FORM_WORDS
    return bool(stated) and significant <= set(_WORDS.findall(stated.casefold()))


# --- SQL, and outputs that passed --------------------------------------------------------------------------

_FROM = re.compile(
    r"\b(?:from|join|into|update)\s+[\"`\[]?([^\W\d][\w$.]*)[\"`\]]?(?:\s+(?:as\s+)?([^\W\d]\w*))?",
    re.IGNORECASE,
)
_SQL = re.compile(
    r"\b(?:select\b.+\bfrom|insert\s+into|update\s+\S+\s+set|delete\s+from)\b", re.IGNORECASE | re.DOTALL
)
_SQL_WORDS = frozenset(
    re.findall(
        r"\S+",
        "select from where group by order having limit offset join left right inner outer full cross on as "
        "and or not in is null like between case when "
        "then else end distinct union all asc desc insert into values update set delete with recursive "
        "exists count sum avg min max round cast coalesce "
        "date strftime substr upper lower length abs integer text real numeric true false using natural over "
        "partition ifnull nullif extract year month day "
        "interval current_date top fetch first rows only any some sql sqlite postgresql mysql",
    )
)


def _tables_in(sql: str) -> dict[str, str]:
    """The tables of a query, each with its alias or an empty text; empty if a text is not a query."""
    if not _SQL.search(sql):
        return {}
    aliases = {name: alias for name, alias in _FROM.findall(sql) if name.casefold() not in _SQL_WORDS}
    return {name: "" if alias.casefold() in _SQL_WORDS else alias for name, alias in aliases.items()}


def _columns_in(sql: str, tables: dict[str, str]) -> list[str]:
    """The names in a query that are neither keywords, functions, tables, aliases nor values."""
    bare = re.sub(r"'[^']*'|--[^\n]*|```\w*|\d+", " ", sql)
    others = {*_SQL_WORDS, *(name.casefold() for pair in tables.items() for name in pair)}
    others |= {alias.casefold() for alias in re.findall(r"\bas\s+[\"`]?(\w+)", bare, re.IGNORECASE)}
    names = re.findall(r"[^\W\d]\w*(?!\w)(?!\s*\()", bare)
    return [name for name in dict.fromkeys(names) if name.casefold() not in others]


def _placed(finding: FactFinding, output: str) -> FactFinding:
    """A finding on a column, with the only table of its query as the subject."""
    if finding.clause == "there is no column of this name" and len(tables := _tables_in(output)) == 1:
        [(table, alias)] = tables.items()
        column = finding.subject.removeprefix(f"{alias}.").removeprefix(f"{table}.")
        return replace(finding, subject=table, clause=f"has no column {column}")
    for table, alias in _tables_in(output).items():
        if alias and finding.subject == alias:
            return replace(finding, subject=table)
    if finding.subject == "columns" and len(tables := _tables_in(output)) == 1:
        names = finding.clause.removeprefix("there are only ")
        return replace(finding, subject=next(iter(tables)), clause=f"a table with the columns {names}")
    return finding


def _passing(outcome: Outcome) -> Iterator[FactFinding]:
    """Findings from an output that passed with other names, after an output failed for a missing name."""
    from redraft.lessons.error_forms import is_name, missing_name  # noqa: PLC0415 (slow to load, and advice needs none)

    if not outcome.is_fixed:
        return
    passed, failed = outcome.output, outcome.failed_output
    new = (
        set(_IDENTIFIER.findall(passed))
        - set(_IDENTIFIER.findall(failed))
        - set(_IDENTIFIER.findall(outcome.task.description))
    )
    for message, _, _ in _messages(outcome):
        missing = missing_name(message)
        if missing is None or missing[1] not in failed or re.search(rf"\b{re.escape(missing[1])}\b", passed):
            continue
        kind, name = missing
        evidence = f"{message} It passed with: {shortened(one_line(passed), LONGEST_QUOTE // 2)}"
        tables = _tables_in(passed)
        if kind in ("table", "column") and len(tables) == 1:
            [table] = tables
            columns = [name for name in _columns_in(passed, tables) if is_name(name)]
            if columns and is_name(table):
                yield FactFinding(
                    table, f"has the columns {', '.join(columns[:MOST_NAMES])}", evidence, outcome.trust
                )
        elif len(new) == 1 and is_name(only := next(iter(new))):
            yield FactFinding(only, f"the {kind} in place of {name}", evidence, outcome.trust)


_IDENTIFIER = re.compile(r"[^\W\d]\w{2,}")


# --- facts in a model's words ------------------------------------------------------------------------------


def supported(subject: str, statement: str, outcome: Outcome) -> FactFinding | str:
    """A finding from a model's words, or the reason for refusing it.

    All its names and numbers must be in a single error, in a single reply of a tool, or in the output that
    passed. Advice and repetitions of the task are not facts.
    """
    from redraft.lessons.error_forms import is_name, is_order  # noqa: PLC0415 (slow to load, and advice needs none)

    subject, clause = (
        one_line(subject).strip("\"'`.: "),
        one_line(statement).strip("\"'`. ").replace(";", ","),
    )
    if not is_name(subject, quoted=False):
        return "its subject is no name"
    if not clause or len(clause) > LONGEST_CLAUSE:
        return f"a statement takes at most {LONGEST_CLAUSE} characters"
    if is_order(clause) or _ADVISES.search(clause):
        return "it is advice"
    # Identifiers, numbers and quoted words.
    parts = {part for groups in _SIGNIFICANT_WORD.findall(clause) for part in groups if part}
    significant = {word for part in parts for word in _WORDS_AND_NUMBERS.findall(part.casefold())}
    if not significant - {subject.casefold()}:
        return "it has no name or number of the error"
    for source in _sources(outcome):
        words = set(_WORDS_AND_NUMBERS.findall(source.casefold()))
        if subject.casefold() in _plain(source) and significant <= words:
            return FactFinding(subject, clause, source, outcome.trust)
    return "its names and numbers do not stand in one error or reply"


_ADVISES = re.compile(
    r"\b(?:must|should|shall|need(?:s|ed)? to|has to|have to|ought|make sure|be sure|remember|instead of"
    r"|rather than|better|best|correct(?:ly)?|incorrect(?:ly)?"
    r"|wrong|fail(?:s|ed|ure)?|mistake|task|prompt|query was|output was|answer)\b",
    re.IGNORECASE,
)
_WORDS_AND_NUMBERS = re.compile(r"\w+(?:\.\d+)?")
_SIGNIFICANT_WORD = re.compile(
    r"[\"'`]([^\"'`]{1,64})[\"'`]|(\w*\d\w*(?:\.\d+)?)|([^\W\d]\w*_\w+)|([A-Z]{2,}\w*)|\b(\w*[a-z][A-Z]\w*)"
)


def _sources(outcome: Outcome) -> list[str]:
    """The texts that can be the evidence of a fact."""
    messages = [message for message, _, _ in _messages(outcome)]
    replies = _tool_replies(outcome.transcript)
    return [*dict.fromkeys((*messages, *replies)), *([outcome.output] if outcome.is_fixed else [])]


# --- statements --------------------------------------------------------------------------------------------

_LISTED = re.compile(
    r"(?P<lead>(?:an? \w+ with the|has only the|has the|has no) (?P<what>\w+)"
    r"|the \w+ in place of|needs the \w+|no two rows have the same) (?P<names>.+)"
)
_ONLY = re.compile(r"(?P<lead>there are only|one of|not among the \w+) .+")
_BOUND = re.compile(
    r"(?P<lead>at most|at least|between|below|above|in the format|version|takes at most|in|an?) .+"
)
_ABSENT = re.compile(r"there is no \w+ of this name")
_LACK = re.compile(rf"has no \w+ .+|{_ABSENT.pattern}")
_BETWEEN = "; "


def merged(statement: str, clause: str) -> tuple[str, str]:
    """A statement with a newer clause, and the older clauses that it corrects (empty if none)."""
    clauses = [part for part in statement.split(_BETWEEN) if part.strip()]
    corrected: list[str] = []
    for new in clause.split(_BETWEEN):
        clauses, wrong = _with_clause(clauses, new.strip())
        corrected += wrong
    text = _BETWEEN.join(clauses[-MOST_CLAUSES:])
    return shortened(text, LONGEST_STATEMENT), _BETWEEN.join(corrected)


def _with_clause(clauses: list[str], new: str) -> tuple[list[str], list[str]]:
    if new in clauses:
        return clauses, []
    if _ABSENT.fullmatch(new):
        return [new], clauses
    absent = [clause for clause in clauses if _ABSENT.fullmatch(clause)]
    clauses = [clause for clause in clauses if clause not in absent]
    if (names := _NameList.of(new)) is not None:
        clauses, wrong = _with_names(clauses, names)
    else:
        clauses, wrong = _with_value(clauses, new)
    return clauses, [*absent, *wrong]


class _NameList(NamedTuple):
    """A clause that lists names, such as `has the columns mb, fee_c in cents`."""

    lead: str
    what: str
    """The things that it lists, without a plural ending."""
    names: list[str]

    @classmethod
    def of(cls, clause: str) -> _NameList | None:
        match = _LISTED.fullmatch(clause)
        if match is None:
            return None
        what = (match["what"] or match["lead"]).removesuffix("s").removesuffix("e")
        return cls(match["lead"], what, match["names"].split(", "))

    @property
    def is_lack(self) -> bool:
        return self.lead.startswith("has no ")

    @property
    def is_complete(self) -> bool:
        return self.lead.startswith(("a ", "an ", "has only "))

    def with_names(self, names: Iterable[str]) -> str:
        return f"{self.lead} {', '.join(list(names)[:MOST_NAMES])}"


def _bare(name: str) -> str:
    """A name of a list without its type or unit."""
    return name.split(" ", 1)[0].casefold()


def _with_names(clauses: list[str], new: _NameList) -> tuple[list[str], list[str]]:
    """Add a list of names to clauses, merged with lists of the same things."""
    remaining, wrong, names, is_merged = list[str](), list[str](), new.names, False
    listed = {_bare(name) for name in names}
    for clause in clauses:
        old = _NameList.of(clause)
        if old is None or old.what != new.what:
            remaining.append(clause)
        elif old.is_lack != new.is_lack:  # a name either exists or not
            still = [name for name in old.names if _bare(name) not in listed]
            wrong += [clause] if len(still) < len(old.names) else []
            remaining += [old.with_names(still)] if still else []
        elif new.is_lack:
            names = list(dict.fromkeys((*old.names, *names)))[-MOST_NAMES:]
        elif new.is_complete:
            wrong += [] if listed.issuperset(map(_bare, old.names)) else [clause]
            # A type or unit from an earlier message is kept.
            noted = {_bare(name): name for name in old.names}
            names = [name if " " in name else noted.get(_bare(name), name) for name in names]
        else:
            key = _bare if new.lead.startswith("has the ") else str  # only columns have types or units
            more = [name for name in names if key(name) not in set(map(key, old.names))]
            remaining.append(old.with_names([*old.names, *more]))
            is_merged = True
    if is_merged:
        return remaining, wrong
    clause, is_first = new.with_names(names), new.is_complete or new.lead.startswith("has the ")
    return [clause, *remaining] if is_first else [*remaining, clause], wrong


def _with_value(clauses: list[str], new: str) -> tuple[list[str], list[str]]:
    """Replace the clause with another value for the same limit, such as `at most 50`."""
    form = _form_of(new)
    for place, clause in enumerate(clauses):
        if _form_of(clause) == form:
            return [*clauses[:place], new, *clauses[place + 1 :]], [clause]
        if words_in(new) <= words_in(clause):  # the same in a model's words
            return clauses, []
    return [*clauses, new], []


def _form_of(clause: str) -> str:
    """A clause without its values."""
    if match := _ONLY.fullmatch(clause) or _BOUND.fullmatch(clause):
        return match["lead"]
    return " ".join(_SIGNIFICANT_WORD.sub("#", clause).casefold().split())


# --- storing -----------------------------------------------------------------------------------------------

_RANK: dict[Trust, int] = {"vouched": 2, "checked": 1, "untrusted": 0, "": 0}


def file_findings(
    folder: LessonFolder, findings: Sequence[FactFinding], about: Lesson, doubt: str = ""
) -> list[tuple[Lesson, bool]]:
    """Merge findings into the facts of an agent, and list these facts, each with whether it is new.

    `about` is a lesson of the run, for the task, the tools and the source of a fact. `doubt` says why an
    untrusted fact is quarantined. A finding is merged with the fact on the same subject of the same trust; a
    less trusted finding never changes a fact, and only lowers the confidence of a vouched one. A retired fact
    is not learned again. Filing a run again changes nothing.
    """
    cleaner = Cleaner()
    filed: dict[str, tuple[Lesson, bool]] = {}
    with folder.documents.locked(folder.name):
        facts = {fact.id: fact for fact in folder.lessons() if isinstance(fact.content, Fact)}
        for finding in findings:
            text = f"{finding.subject}: {finding.clause}"
            if cleaner.redact(text) != text or cleaner.refusal(text):
                continue
            fact, is_new = _file(folder, facts, finding, about, doubt, cleaner)
            if fact is not None:
                facts[fact.id] = fact
                filed[fact.id] = fact, is_new or filed.get(fact.id, (fact, False))[1]
        if any(is_new for _, is_new in filed.values()):
            folder.archive()
    return list(filed.values())


def _file(
    folder: LessonFolder,
    facts: dict[str, Lesson],
    finding: FactFinding,
    about: Lesson,
    doubt: str,
    cleaner: Cleaner,
) -> tuple[Lesson | None, bool]:
    rank = _RANK[finding.trust]
    target: Lesson | None = None
    lower: list[Lesson] = []
    for fact in facts.values():
        if not isinstance(fact.content, Fact) or _plain(fact.content.subject) != _plain(finding.subject):
            continue
        statement, corrected = merged(fact.content.statement, finding.clause)
        is_said = statement == fact.content.statement
        if fact.status in REJECTED:
            if is_said and finding.trust != "vouched":
                return None, False
        elif _RANK[fact.trust] == rank:
            target = fact
        elif _RANK[fact.trust] < rank:
            lower += [fact] if corrected or is_said or not _RANK[fact.trust] else []
        elif is_said:
            return fact, False
        elif corrected:
            return (_doubted(folder, fact, finding, about) if rank else None), False
    if target is None:
        fact = folder.add(_new(finding, about, doubt, cleaner))
    else:
        fact = _updated(target, finding, about, cleaner)
        if fact != target:
            folder.write(fact)
    for weaker in lower:
        facts[weaker.id] = folder.write(replace(weaker, status="superseded", superseded_by=fact.id))
    return fact, target is None


def _new(finding: FactFinding, about: Lesson, doubt: str, cleaner: Cleaner) -> Lesson:
    is_trusted = finding.trust != "untrusted"
    content = Fact(finding.subject, finding.clause, _evidence(finding, about, cleaner))
    return replace(
        about,
        content=content,
        title=finding.subject,
        id="",
        error="",
        confidence=CONFIDENCE,
        status="active" if is_trusted else "quarantined",
        trust=finding.trust,
        disobeyed="",
        why="" if is_trusted else doubt or "its text comes from outside",
    )


def _updated(fact: Lesson, finding: FactFinding, about: Lesson, cleaner: Cleaner) -> Lesson:
    """A fact extended, corrected or confirmed by a finding."""
    content = cast("Fact", fact.content)
    statement, corrected = merged(content.statement, finding.clause)
    is_of_run = bool(about.source) and f"run {about.source}:" in content.evidence
    if statement == content.statement and is_of_run:
        return fact
    confidence = fact.confidence
    if corrected:
        confidence = CONFIDENCE
    elif not is_of_run:
        confidence = min(1.0, round(confidence + CONFIRMATION, 2))
    lines = [_evidence(finding, about, cleaner, corrected), *content.evidence.split("\n")]
    return replace(
        fact,
        content=replace(content, statement=statement, evidence="\n".join(lines[:MOST_EVIDENCE])),
        day=about.day,
        at=about.at,
        confidence=confidence,
        tools=tuple(dict.fromkeys((*fact.tools, *about.tools))),
        # A fact of two types of tasks applies to all.
        task_type=fact.task_type if fact.task_type == about.task_type else "",
        source=about.source or fact.source,
    )


def _evidence(finding: FactFinding, about: Lesson, cleaner: Cleaner, corrected: str = "") -> str:
    quote = shortened(one_line(cleaner.clean(finding.evidence[: 4 * LONGEST_QUOTE])), LONGEST_QUOTE)
    run = f", run {about.source}" if about.source else ""
    before = f" (corrected; before: {shortened(corrected, LONGEST_QUOTE)})" if corrected else ""
    return f"- {about.day}{run}: {quote}{before}"


def _doubted(folder: LessonFolder, fact: Lesson, finding: FactFinding, about: Lesson) -> Lesson:
    """Lower the confidence of a vouched fact, and name the error that contradicts it."""
    run = f"the run {about.source}" if about.source else f"an error of {about.day}"
    why = f"{run[0].upper()}{run[1:]} says otherwise: {finding.clause}"
    if fact.why == why:
        return fact
    return folder.write(replace(fact, why=why, confidence=max(0.0, round(fact.confidence - DOUBT, 2))))
