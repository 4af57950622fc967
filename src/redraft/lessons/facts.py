"""Facts: how the environment of tasks is, as errors, replies and passing outputs show it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from redraft._texts import shortened
from redraft._words import words_in
from redraft.lessons.error_forms import MOST_NAMES, claims_in, is_name, is_order, missing_name
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
# of clauses: `a table with the columns l_no, mb; no two rows have the same l_no`. What is learned of the same
# subject is merged into its statement: names are added, and a newer clause corrects an older one.

MOST_CLAUSES, MOST_EVIDENCE = 8, 5
LONGEST_STATEMENT, LONGEST_QUOTE = 900, 300
LONGEST_CLAUSE = 240
"""Characters of a clause that a model wrote."""
DOUBT = 0.2
"""Taken from the confidence of a vouched fact when an error says otherwise."""


@dataclass(frozen=True, slots=True)
class FactFinding:
    """A clause on a subject, the text that shows it, and what it can be trusted for."""

    subject: str
    clause: str
    evidence: str
    trust: Trust = "untrusted"

    @property
    def is_lack(self) -> bool:
        """Whether it says only what there is not."""
        return is_lack(self.clause)


def is_lack(statement: str) -> bool:
    """Whether a statement says only what does not exist."""
    return all(_LACK.fullmatch(clause) or _ABSENT.fullmatch(clause) for clause in statement.split(_BETWEEN))


def fact_line(fact: Fact) -> str:
    """Return a fact as a line for a prompt."""
    return f"{one_line(fact.subject)}: {one_line(fact.statement)}"


def runs_behind(lesson: Lesson) -> list[str]:
    """Return the ids of the runs that taught a lesson; a fact has one for each quotation."""
    quoted = _QUOTED_RUN.findall(lesson.content.evidence) if isinstance(lesson.content, Fact) else []
    return list(dict.fromkeys((lesson.source, *quoted)))


_QUOTED_RUN = re.compile(r"^- \d{4}-\d\d-\d\d, run (\S+): ", re.MULTILINE)

# --- what an outcome shows ---------------------------------------------------------------------------------


def findings_in(outcome: Outcome, requirements: Iterable[str] = ()) -> list[FactFinding]:
    """Return what the errors, the tools and the passing output of a run show, by the forms of messages.

    What the task or the `requirements` of the criteria say already is left out.
    """
    stated = "\n".join((*requirements, *outcome.requirements))
    task = f"{outcome.task.description}\n{outcome.task.expected_output}"
    replies = (*_tool_replies(outcome.transcript), outcome.heard)
    foreign = [_plain(text) for text in (*_outputs(outcome), *filter(None, replies))]
    own = _defined_in("\n".join(_outputs(outcome)))
    found: dict[tuple[str, str], FactFinding] = {}
    for message, output, trust in _messages(outcome):
        for claim in claims_in(message):
            span = _plain(claim.span)
            # Whoever can write the whole of such a message into an output or a page decides what it says.
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
                found.setdefault((finding.subject, finding.clause), finding)
    for finding in _passing(outcome):
        if not is_stated(f"{finding.subject}: {finding.clause}", f"{stated}\n{task}"):
            found.setdefault((finding.subject, finding.clause), finding)
    return list(found.values())


def has_messages(outcome: Outcome) -> bool:
    """Return whether a check, the program or a tool reported anything."""
    return next(_messages(outcome), None) is not None


def _messages(outcome: Outcome) -> Iterator[tuple[str, str, Trust]]:
    """Yield the messages of checks, the program and tools, each with its output and its trust.

    An error that a check, the program or a tool raised is its own; what a tool answered may be anybody's.
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
        if found := _TOOL_ERROR.match(line):
            text = found["text"]
            if text.endswith(_CUT):  # the last name may be half of one
                text = text.removesuffix(_CUT).rpartition(" ")[0]
            yield text, "", raised if found["raised"] else "vouched" if outcome.trusted else "untrusted"


_CUT = " ..."
_TOOL_ERROR = re.compile(
    r"\s*(?:\d+[.:)]\s+)?(?P<tool>\S+) (?:(?P<raised>failed|denied|was refused)|answered): "
    r"(?P<text>(?(raised).*|(?i:\W*\w*(?:error|exception|traceback|failed|invalid|unknown|no such)\b).*))"
)
_TOOL_REPLY = re.compile(r"^\s*(?:\d+[.:)]\s+)?\S+ answered: (.*)$", re.MULTILINE)


def _tool_replies(transcript: str) -> list[str]:
    return _TOOL_REPLY.findall(transcript)


def _outputs(outcome: Outcome) -> list[str]:
    return [
        one
        for one in (*(report.output for report in outcome.reports), outcome.failed_output, outcome.output)
        if one
    ]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


_DEFINITION = re.compile(
    r"\b(?:def|class|function|fn|func|struct|interface|const|let|var)\s+([^\W\d]\w*)"
    r"|^\s*([^\W\d]\w*)\s*(?::\s*[\w\[\], .|]+)?=(?!=)",
    re.MULTILINE,
)


def _defined_in(output: str) -> frozenset[str]:
    """Return the names that an output defines itself, which are no part of the environment."""
    return frozenset(name for names in _DEFINITION.findall(output) for name in names if name)


_BUILT_IN = frozenset(
    re.findall(
        r"\S+",
        "NoneType str int float bool list dict tuple set bytes object function type generator coroutine "
        "range method",
    )
)
_NO_FACT = re.compile(r"there is no (?:name|key|variable|attribute|member|property) of this name")


def _is_of_the_code(finding: FactFinding) -> bool:
    """Return whether a message is about a slip in the code, such as a variable that is not defined."""
    return finding.subject in _BUILT_IN or _NO_FACT.fullmatch(finding.clause) is not None


_WORDS = re.compile(r"\w+")
_FORM_WORDS = frozenset(
    re.findall(
        r"\S+",
        "a an the of one at most least between and or in there is are no this name has have only table with "
        "columns column required place "
        "function arguments argument needs field fields keys key format takes positional it must be",
    )
)


def is_stated(fact: str, stated: str) -> bool:
    """Return whether a text has all names and numbers of a fact."""
    telling = set(_WORDS.findall(fact.casefold())) - _FORM_WORDS
    return bool(stated) and telling <= set(_WORDS.findall(stated.casefold()))


# --- SQL, and what passed ----------------------------------------------------------------------------------

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
    """Return the tables of a query, each with its alias or an empty text; empty if a text is no query."""
    if not _SQL.search(sql):
        return {}
    found = {name: alias for name, alias in _FROM.findall(sql) if name.casefold() not in _SQL_WORDS}
    return {name: "" if alias.casefold() in _SQL_WORDS else alias for name, alias in found.items()}


def _columns_in(sql: str, tables: dict[str, str]) -> list[str]:
    """Return the names in a query that are neither keywords, functions, tables, aliases nor values."""
    bare = re.sub(r"'[^']*'|--[^\n]*|```\w*|\d+", " ", sql)
    others = {*_SQL_WORDS, *(name.casefold() for pair in tables.items() for name in pair)}
    others |= {alias.casefold() for alias in re.findall(r"\bas\s+[\"`]?(\w+)", bare, re.IGNORECASE)}
    names = re.findall(r"[^\W\d]\w*(?!\w)(?!\s*\()", bare)
    return [one for one in dict.fromkeys(names) if one.casefold() not in others]


def _placed(finding: FactFinding, output: str) -> FactFinding:
    """Return a finding on a column with the only table of its query as the subject."""
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
    """Yield the names with which an output passed that had failed because another name is missing."""
    if not outcome.is_mended:
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
            columns = [one for one in _columns_in(passed, tables) if is_name(one)]
            if columns and is_name(table):
                yield FactFinding(
                    table, f"has the columns {', '.join(columns[:MOST_NAMES])}", evidence, outcome.trust
                )
        elif len(new) == 1 and is_name(only := next(iter(new))):
            yield FactFinding(only, f"the {kind} in place of {name}", evidence, outcome.trust)


_IDENTIFIER = re.compile(r"[^\W\d]\w{2,}")


# --- what a model says -------------------------------------------------------------------------------------


def supported(subject: str, statement: str, outcome: Outcome) -> FactFinding | str:
    """Return the finding that a model put into words, or why it is refused.

    Its names and numbers have to stand in one error, in one reply of a tool, or in the output that passed.
    Advice, and what repeats the task, is no fact.
    """
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
    telling = _telling(clause)
    if not telling - {subject.casefold()}:
        return "it has no name or number of the error"
    for source in _sources(outcome):
        words = set(_WORDS_AND_NUMBERS.findall(source.casefold()))
        if subject.casefold() in _plain(source) and telling <= words:
            return FactFinding(subject, clause, source, outcome.trust)
    return "its names and numbers do not stand in one error or reply"


_ADVISES = re.compile(
    r"\b(?:must|should|shall|need(?:s|ed)? to|has to|have to|ought|make sure|be sure|remember|instead of"
    r"|rather than|better|best|correct(?:ly)?|incorrect(?:ly)?"
    r"|wrong|fail(?:s|ed|ure)?|mistake|task|prompt|query was|output was|answer)\b",
    re.IGNORECASE,
)
_WORDS_AND_NUMBERS = re.compile(r"\w+(?:\.\d+)?")
_TELLING_WORD = re.compile(
    r"[\"'`]([^\"'`]{1,64})[\"'`]|(\w*\d\w*(?:\.\d+)?)|([^\W\d]\w*_\w+)|([A-Z]{2,}\w*)|\b(\w*[a-z][A-Z]\w*)"
)


def _telling(text: str) -> set[str]:
    """Return the identifiers, numbers and quoted words of a text."""
    found = {part for match in _TELLING_WORD.findall(text) for part in match if part}
    return {word for part in found for word in _WORDS_AND_NUMBERS.findall(part.casefold())}


def _sources(outcome: Outcome) -> list[str]:
    """Return the texts that can be the evidence of a fact."""
    messages = [message for message, _, _ in _messages(outcome)]
    replies = _tool_replies(outcome.transcript)
    return [*dict.fromkeys((*messages, *replies)), *([outcome.output] if outcome.is_mended else [])]


# --- statements --------------------------------------------------------------------------------------------

_WHOLE = re.compile(r"(?:an? \w+ with|has only) the (?P<what>\w+) (?P<names>.+)")
_PART = re.compile(r"has the (?P<what>\w+) (?P<names>.+)")
_LACK = re.compile(r"has no (?P<what>\w+) (?P<names>.+)")
_ADDED = re.compile(r"(?P<lead>the \w+ in place of|needs the \w+|no two rows have the same) (?P<names>.+)")
_ONLY = re.compile(r"(?P<lead>there are only|one of) .+")
_BOUND = re.compile(
    r"(?P<lead>at most|at least|between|below|above|in the format|version|takes at most|in|an?) .+"
)
_ABSENT = re.compile(r"there is no \w+ of this name")
_BETWEEN = "; "


def merged(statement: str, clause: str) -> tuple[str, str]:
    """Return a statement with a newer clause, and the older clauses that it corrects (empty if none)."""
    clauses = [one for one in statement.split(_BETWEEN) if one.strip()]
    corrected: list[str] = []
    for new in clause.split(_BETWEEN):
        clauses, wrong = _put(clauses, new.strip())
        corrected += wrong
    text = _BETWEEN.join(clauses[-MOST_CLAUSES:])
    return shortened(text, LONGEST_STATEMENT), _BETWEEN.join(corrected)


def _put(clauses: list[str], new: str) -> tuple[list[str], list[str]]:
    if new in clauses:
        return clauses, []
    if _ABSENT.fullmatch(new):
        return [new], clauses
    absent = [one for one in clauses if _ABSENT.fullmatch(one)]
    clauses = [one for one in clauses if one not in absent]
    if found := _WHOLE.fullmatch(new):
        clauses, wrong = _with_all(clauses, new, found["what"], _names(found["names"]))
    elif found := _PART.fullmatch(new):
        clauses, wrong = _with_some(clauses, found["what"], _names(found["names"]))
    elif found := _LACK.fullmatch(new):
        clauses, wrong = _without(clauses, found["what"], _names(found["names"]))
    elif found := _ADDED.fullmatch(new):
        clauses, wrong = _extended(clauses, found["lead"], _names(found["names"])), []
    else:
        clauses, wrong = _instead(clauses, new)
    return clauses, [*absent, *wrong]


def _names(text: str) -> list[str]:
    return [one.strip() for one in text.split(", ") if one.strip()]


def _bare(name: str) -> str:
    """Return a name of a list without its type or unit."""
    return name.split(" ", 1)[0].casefold()


def _joined(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:MOST_NAMES])


def _same(what: str, other: str) -> bool:
    return what.removesuffix("s").removesuffix("e") == other.removesuffix("s").removesuffix("e")


def _with_all(clauses: list[str], new: str, what: str, names: list[str]) -> tuple[list[str], list[str]]:
    kept, wrong = list[str](), list[str]()
    there = {_bare(one) for one in names}
    noted = dict[str, str]()
    for clause in clauses:
        found = _WHOLE.fullmatch(clause) or _PART.fullmatch(clause)
        if found and _same(found["what"], what):
            noted |= {_bare(one): one for one in _names(found["names"])}
            if not {_bare(one) for one in _names(found["names"])} <= there:
                wrong.append(clause)
        elif (lack := _LACK.fullmatch(clause)) and _same(lack["what"], what):
            still = [one for one in _names(lack["names"]) if _bare(one) not in there]
            wrong += [] if len(still) == len(_names(lack["names"])) else [clause]
            kept += [f"has no {lack['what']} {_joined(still)}"] if still else []
        else:
            kept.append(clause)
    # A type or unit that an earlier message told is not forgotten.
    full = [noted.get(_bare(one), one) if " " not in one else one for one in names]
    return [f"{new.removesuffix(', '.join(names))}{_joined(full)}", *kept], wrong


def _with_some(clauses: list[str], what: str, names: list[str]) -> tuple[list[str], list[str]]:
    kept, wrong, is_added = list[str](), list[str](), False
    there = {_bare(one) for one in names}
    for clause in clauses:
        found = _WHOLE.fullmatch(clause) or _PART.fullmatch(clause)
        if found and _same(found["what"], what):
            old = _names(found["names"])
            more = [one for one in names if _bare(one) not in {_bare(each) for each in old}]
            kept.append(f"{clause.removesuffix(found['names'])}{_joined([*old, *more])}")
            is_added = True
        elif (lack := _LACK.fullmatch(clause)) and _same(lack["what"], what):
            still = [one for one in _names(lack["names"]) if _bare(one) not in there]
            wrong += [] if len(still) == len(_names(lack["names"])) else [clause]
            kept += [f"has no {lack['what']} {_joined(still)}"] if still else []
        else:
            kept.append(clause)
    return (kept if is_added else [f"has the {what} {_joined(names)}", *kept]), wrong


def _without(clauses: list[str], what: str, names: list[str]) -> tuple[list[str], list[str]]:
    kept, wrong, absent = list[str](), list[str](), list(names)
    gone = {_bare(one) for one in names}
    for clause in clauses:
        found = _WHOLE.fullmatch(clause) or _PART.fullmatch(clause)
        if found and _same(found["what"], what):
            still = [one for one in _names(found["names"]) if _bare(one) not in gone]
            wrong += [] if len(still) == len(_names(found["names"])) else [clause]
            kept += [f"{clause.removesuffix(found['names'])}{_joined(still)}"] if still else []
        elif (lack := _LACK.fullmatch(clause)) and _same(lack["what"], what):
            absent = list(dict.fromkeys((*_names(lack["names"]), *names)))
        else:
            kept.append(clause)
    return [*kept, f"has no {what} {_joined(absent[-MOST_NAMES:])}"], wrong


def _extended(clauses: list[str], lead: str, names: list[str]) -> list[str]:
    for place, clause in enumerate(clauses):
        found = _ADDED.fullmatch(clause)
        if found and found["lead"] == lead:
            every = dict.fromkeys((*_names(found["names"]), *names))
            return [*clauses[:place], f"{lead} {_joined(every)}", *clauses[place + 1 :]]
    return [*clauses, f"{lead} {_joined(names)}"]


def _instead(clauses: list[str], new: str) -> tuple[list[str], list[str]]:
    """Put a clause in the place of the one with another value for the same, such as `at most 50`."""
    form = _form_of(new)
    for place, clause in enumerate(clauses):
        if _form_of(clause) == form:
            return [*clauses[:place], new, *clauses[place + 1 :]], [clause]
        if words_in(new) <= words_in(clause):  # a model's other words for it
            return clauses, []
    return [*clauses, new], []


def _form_of(clause: str) -> str:
    """Return a clause without its values."""
    if found := _ONLY.fullmatch(clause) or _BOUND.fullmatch(clause):
        return found["lead"]
    return " ".join(_TELLING_WORD.sub("#", clause).casefold().split())


# --- storing -----------------------------------------------------------------------------------------------

_RANK: dict[Trust, int] = {"vouched": 2, "checked": 1, "untrusted": 0, "": 0}


def file_findings(
    folder: LessonFolder, findings: Sequence[FactFinding], about: Lesson, doubt: str = ""
) -> list[tuple[Lesson, bool]]:
    """Merge findings into the facts of an agent; return each fact that says so now, and whether it is new.

    `about` is a lesson of the run, for the task, the tools and the source of a fact, and `doubt` says why an
    untrusted fact waits. A fact is merged with the one on the same subject of the same trust; a less trusted
    finding never changes a fact, and what a person vouches for is only doubted. What was retired is not
    learned again. A run that is filed again changes nothing.
    """
    cleaner = Cleaner()
    filed: dict[str, tuple[Lesson, bool]] = {}
    with folder.documents.locked(folder.name):
        facts = {one.id: one for one in folder.lessons() if isinstance(one.content, Fact)}
        for finding in findings:
            if not _is_clean(finding, cleaner):
                continue
            fact, is_new = _file(folder, facts, finding, about, doubt, cleaner)
            if fact is not None:
                facts[fact.id] = fact
                filed[fact.id] = fact, is_new or filed.get(fact.id, (fact, False))[1]
        if any(is_new for _, is_new in filed.values()):
            folder.archive()
    return list(filed.values())


def _is_clean(finding: FactFinding, cleaner: Cleaner) -> bool:
    text = f"{finding.subject}: {finding.clause}"
    return cleaner.redact(text) == text and not cleaner.refusal(text)


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
        if not isinstance(fact.content, Fact) or _key(fact.content.subject) != _key(finding.subject):
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
    for one in lower:
        facts[one.id] = folder.write(replace(one, status="superseded", superseded_by=fact.id))
    return fact, target is None


def _key(subject: str) -> str:
    return " ".join(subject.casefold().split())


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
    """Return a fact with a finding: extended, corrected or confirmed."""
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
        # A fact of two types of tasks belongs to all.
        task_type=fact.task_type if fact.task_type == about.task_type else "",
        source=about.source or fact.source,
    )


def _evidence(finding: FactFinding, about: Lesson, cleaner: Cleaner, corrected: str = "") -> str:
    quote = shortened(one_line(cleaner.clean(finding.evidence[: 4 * LONGEST_QUOTE])), LONGEST_QUOTE)
    run = f", run {about.source}" if about.source else ""
    before = f" (corrected; before: {shortened(corrected, LONGEST_QUOTE)})" if corrected else ""
    return f"- {about.day}{run}: {quote}{before}"


def _doubted(folder: LessonFolder, fact: Lesson, finding: FactFinding, about: Lesson) -> Lesson:
    """Lower the confidence of a fact that a person vouches for, and say which error contradicts it."""
    run = f"the run {about.source}" if about.source else f"an error of {about.day}"
    why = f"{run[0].upper()}{run[1:]} says otherwise: {finding.clause}"
    if fact.why == why:
        return fact
    return folder.write(replace(fact, why=why, confidence=max(0.0, round(fact.confidence - DOUBT, 2))))
