"""Error forms: read names, limits and formats from the usual messages of programs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from redraft.lessons.facts import MOST_NAMES
from redraft.memory.safety import violation
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_REPORT = 4_000
"""Maximum characters of a message that are read."""
LONGEST_NAME = 64
MOST_NAME_WORDS = 6
"""Maximum words of an identifier such as `customer_billing_address`; more are a sentence in disguise."""
MOST_VALUE_WORDS = 2


class MessageClaim(NamedTuple):
    """A claim of a message about a subject."""

    subject: str
    clause: str
    span: str = ""
    """The part of the message with the claim, which is only as trustworthy as its author."""


def claims_in(message: str) -> list[MessageClaim]:
    """The distinct claims of a message about the environment; empty if its form is unknown."""
    text = without_invisible(message)[:LONGEST_REPORT].replace('\\"', '"')
    missing = _missing_in(text)
    claims = [*_of_names(text, missing), *_of_values(text, missing)]
    return [
        claim for claim in dict.fromkeys(claims) if is_name(claim.subject) and not violation(claim.clause)
    ]


def missing_name(message: str) -> tuple[str, str] | None:
    """The kind and the name that is missing according to a message; None if it names none."""
    missing = _missing_in(without_invisible(message)[:LONGEST_REPORT])
    return None if missing is None else (missing.kind, missing.name)


# --- names -------------------------------------------------------------------------------------------------

_OPENING, _CLOSING = "\"'`\\[«“„\u2018", "\"'`\\]»”“\u2019"
_START = r"(?<![\w$])(?<![\w$][.\-/])"
"""The start of a name; matching from its middle, too, would take quadratic time on hostile messages."""
# Python before 3.11.5 matches possessive groups wrongly; possessive classes are sound.
_NAME = r"[\w$]++(?:[.\-/][\w$]++)*"
_BARE = rf"{_START}(?:(?:~|\.{{1,2}})?/)?{_NAME}(?!::?[\w$])"


def _named(group: str) -> str:
    """The pattern of a name in any script, quoted or not."""
    quote = f"{group}_quote"
    return (
        rf"(?P<{quote}>[{_OPENING}]{{1,4}}+(?![{_OPENING}]))?"
        rf"(?P<{group}>(?({quote})[^{_CLOSING}\n]{{1,{LONGEST_NAME}}}|{_BARE}))(?({quote})[{_CLOSING}]{{1,4}})"
    )


_KIND = (
    r"(?P<kind>table|relation|view|column|field|attribute|function|method|module|package|command|file|key"
    r"|property|parameter|argument|option|setting|type|schema|database|model|endpoint|resource|collection"
    r"|sheet|variable|member|symbol|macro|struct|identifier|flag|header|subcommand|region|name|tool|class"
    r"|variant|enum|constant|label|template|import|index|role|unit|currency|format|status|mode|kind|category"
    r"|tag)"
)
_KINDS = {"relation": "table", "view": "table", "identifier": "name", "symbol": "name", "import": "name"}


def _pattern(text: str) -> re.Pattern[str]:
    """Compile a form, in which `<x>` is a name, `<in>` its container, and `<kind>` its kind."""
    text = text.replace("<x>", _named("x")).replace("<in>", _named("container")).replace("<kind>", _KIND)
    return re.compile(text, re.IGNORECASE | re.MULTILINE)


_ABSENT = (
    r"(?:(?:does|did) not|(?:does|did)n['\u2019]t) exist|(?:is|was|could) not (?:be )?(?:found|defined|known"
    r"|recogni[sz]ed|supported|resolved|declared)|not found|is (?:unknown|undefined|invalid)|was unexpected"
)
_MISSING: tuple[tuple[str, re.Pattern[str]], ...] = (
    # databases
    ("column", _pattern(r"\bcolumn <x> of (?:relation|table) <in> does not exist")),
    ("column", _pattern(r"\btable <in> has no column (?:named )?<x>")),
    ("column", _pattern(r"<x>: invalid identifier")),
    ("table", _pattern(r"\binvalid object name <x>")),
    ("table", _pattern(r"\bnot found: table <x>")),
    # Python
    ("attribute", _pattern(r"\b(?:module|type object) <in> has no attribute <x>")),
    ("attribute", _pattern(r"<in> object has no attribute <x>")),
    ("name", _pattern(r"\bcannot import name <x> from <in>")),
    ("module", _pattern(r"\bno module named <x>")),
    ("name", _pattern(r"\bname <x> is not defined")),
    ("argument", _pattern(r"\b<in>\(\) got an unexpected keyword argument <x>")),
    ("key", _pattern(r"\bKeyError: <x>")),
    # shells
    ("command", _pattern(r"\bcommand not found: <x>")),
    ("command", _pattern(r"(?:^|: )<x>: (?:command )?not found\s*$")),
    ("command", _pattern(r"<x> is not (?:recognized as|a git command|an? \w+ command)")),
    ("file", _pattern(r"\bno such file or directory(?: \(os error 2\))?: <x>")),
    ("file", _pattern(r"(?:^|[\s:])<x>: no such file or directory")),
    # compilers
    ("property", _pattern(r"\bproperty <x> does not exist on type <in>")),
    ("method", _pattern(r"\bno method (?:named )?<x> found for (?:\w+ )?(?:type )?<in>")),
    ("field", _pattern(r"\bno field <x> on type <in>")),
    ("member", _pattern(r"<in> has no member named <x>")),
    ("method", _pattern(r"\btype <in> has no field or method <x>")),
    ("name", _pattern(r"\bcannot find (?:function|value|type|name|macro|struct|symbol|module)s? <x>")),
    ("name", _pattern(r"<x> was not declared in this scope")),
    ("name", _pattern(r"\bundefined(?: reference to|:) <x>")),
    # APIs
    ("field", _pattern(r"\badditional properties are not allowed \(<x> (?:was|were) unexpected")),
    ("field", _pattern(r"^<x>\s*\n?\s*(?:extra (?:inputs|fields) (?:are )?not permitted|:.*extra inputs)")),
    ("field", _pattern(r"\bextra (?:inputs|fields) (?:are )?not (?:permitted|allowed): <x>")),
    ("field", _pattern(r"\bcannot query field <x> on type <in>")),
    ("argument", _pattern(r"\bunrecogni[sz]ed (?:request )?arguments?(?: supplied)?: <x>")),
    # most other programs
    (
        "",
        _pattern(
            rf"\b<kind> (?:with name |named |called )?<x>(?:\([^)\n]*\))? (?:in|of|on) <in> (?:{_ABSENT})"
        ),
    ),
    ("", _pattern(rf"\b<kind> (?:with name |named |called )?<x>(?:\([^)\n]*\))? (?:{_ABSENT})")),
    (
        "",
        _pattern(
            r"\b(?:no such|unknown|unrecogni[sz]ed|unexpected|invalid|unsupported|undefined|illegal|bad)"
            r" (?:request |query |keyword )?<kind>(?: name| supplied| named| called)?\s*:?\s+<x>"
            r"(?: (?:in|of|on|for) (?:the )?(?:table |type |model )?<in>)?"
        ),
    ),
    ("", _pattern(r"<in> has no <kind> (?:named |called )?<x>")),
    (
        "",
        _pattern(r"\bno <kind> (?:named |called )?<x>(?: (?:in|of|on|for) (?:the )?(?:table |type )?<in>)?"),
    ),
    ("", _pattern(r"<x> is (?:no|not an?) (?:valid |known |existing )?<kind>(?=\s*(?:[.;:,]|$))")),
)
"""Messages about a missing name, from the most specific to the most general form."""

_SUGGESTED = _pattern(
    r"\b(?:did you mean|perhaps you meant|maybe you meant|do you mean|you (?:may|might|probably) (?:have "
    r")?meant?|similar (?:name )?(?:exists|command is|commands are|ones?(?: is| are)?)|closest match(?:es)?"
    r"(?: is| are)?|but does have|similarly named \w+)(?: to reference)?(?: the| one of)?"
    r"(?: (?:table|column|field|method|function|name|argument|option|command|property))?s?\W{0,6}(?=[\w$])"
)
_QUALITY = (
    r"(?:available|valid|allowed|permitted|possible|accepted|supported|known|existing|defined|legal|current"
    r"|actual)"
)
_LISTED = tuple(
    map(
        _pattern,
        (
            (
                rf"\b{_QUALITY} (?:<kind>(?:e?s)?|(?P<values>values?|options?|choices?|names?|ones))"
                r"(?: names?)?(?: (?:of|in|on|for) (?:the )?(?:table |field |parameter )?<in>)?"
                r"(?: are| is| include)?\s*[:=]?\s+"
            ),
            r"<in> has (?:only )?the <kind>(?:e?s)?\s*:?\s+",
            r"\bcandidate (?:bindings|columns): ",
            r"\b(?:the )?<kind>(?:e?s)? (?:(?:of|in|on|for) (?:the )?(?:table )?<in>)(?: are| is)?\s*:?\s+",
            r"(?=\bcreate <kind> )",
            r"\b(?:schema|structure|layout|definition)(?: is)?: ",
            r"\b<kind>s(?: are)?: ",
            (
                rf"\b(?:there (?:is|are|exists?)(?: only)?|{_QUALITY})(?: are| is)?"
                r"(?: the <kind>(?:e?s)?)?\s*:\s*"
            ),
            r"\bthere (?:is|are) only (?:the <kind>(?:e?s)? )?(?=[\w\"'`])",
        ),
    )
)
_ONE_OF = _pattern(
    r"(?:\b(?:must|should|has to|needs to|can only|may only) be (?:(?:one|any) of|either)"
    r"(?: the following)?(?: values)?"
    r"|\bis not (?:one|any) of|\bexpected (?:one|any) of"
    r"|\b(?:use|choose|pick|select)(?: from| (?:only )?(?:one|any) of)"
    r"|\b(?:valid|allowed|possible|permitted|accepted) (?:values?|options?|choices)(?: (?:for|of) <x>)?"
    r"(?: are| is)?|\bpermitted|\ballowed"
    r"|\bnot in (?=[\[({])|\binput should be(?= ')|\bexpected(?= ['\"]))\s*:?\s*"
)
_TABLE = re.compile(r"\b(?:tables?|columns?|relations?|sql|select|database|query)\b", re.IGNORECASE)
# Words of a definition for a type or a unit: `amt_c in cents`, `placed_on DATE NOT NULL`.
_NOTE = re.compile(
    r"(?:\s+|\s*:\s*|\s*\(\s*)((?:(?:in|integer|int|bigint|smallint|text|varchar|char|real|float|double"
    r"|numeric|decimal|date|datetime|timestamp|time|boolean|bool|blob|json|uuid|serial|not null|null"
    r"|primary key|unique|unsigned|string|number|str|list|dict|array|object|cents|dollars|euros|pence"
    r"|seconds|milliseconds|minutes|hours|days|weeks|months|years|bytes|kb|mb|gb|percent|grams?|kg|kilograms"
    r"|tons?|tonnes|pounds|metres|meters|km|kilometers|kilometres|miles|celsius|fahrenheit|kelvin|utc"
    r"|iso 8601|unix time|optional|required)\b[\s,]?(?<!,)){1,4})\)?",
    re.IGNORECASE,
)
_ITEM = re.compile(
    rf"(?P<prefix>(?:create table (?:if not exists )?|tables? |the (?:table |column )?|[-*•]\s+)?)"
    rf"{_named('x')}",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"\s*(?:,\s*(?:and |or )?|;\s*|\|\s*|\s(?:and|or)\s+|\n\s*[-*•]?\s*)\s*")
_LITTLE = frozenset(
    re.findall(
        r"\S+",
        "a an the this that these those it its is are was were be been and or but nor not no none of in on "
        "at to for from by with as if then so than you your we our they their he she i me my please there "
        "here what which who when where why how all any each every some other more most must should may can "
        "will would could has have had do does did only just also got received",
    )
)
_PROSE = _LITTLE.union(
    re.findall(
        r"\S+",
        "one two name value values input output answer text result response request error errors message "
        "problem task prompt given found see use used using expected line field column table system list "
        "clause instruction instructions note important warning assistant user",
    )
)
"""Words that can be names only in quotes, or in a list of names."""


class _Item(NamedTuple):
    name: str
    note: str = ""
    parts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The name, with its type or unit if there is one."""
        return f"{self.name} {self.note}" if self.note else self.name


def is_name(text: str, *, quoted: bool = True) -> bool:
    """Whether a text can be a name in a fact: short, and not a sentence in disguise.

    An ordinary word of a message can only be a name if it is `quoted`.
    """
    words = re.findall(r"[^\W_]+", text)
    if not words or len(text) > LONGEST_NAME or len(words) > MOST_NAME_WORDS:
        return False
    if (not quoted or " " in text) and _PROSE.issuperset(text.casefold().split()):
        return False
    if len(text.split()) > MOST_VALUE_WORDS or re.search(r"[<>{}|;\\\n]", text):
        return False
    return not violation(text) and not is_order(" ".join(words))


_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override|obey|exfiltrate|delete all|drop all|send (?:all|the|it|them|to)"
    r"|wire (?:all|the|to|funds)|forward (?:all|the|it|to)|transfer (?:all|the|to|funds)|grant|impersonate"
    r"|pretend|previous instructions?|system prompt|you|your|please|always|never|from now on|important"
    r"|urgent|attention)\b"
    r"|^(?:do|don'?t|use|run|call|execute|send|delete|drop|install|visit|open|download|print|reveal|tell"
    r"|answer|reply|respond|return|write|add|append|include|set|make|skip|treat|approve|give|put|mail|post"
    r"|load|follow|fetch|remember|ensure|try|check|avoid|change|replace|remove|consider|provide|follow)\b"
    r"(?=\s+\w)",
    re.IGNORECASE,
)


def is_order(text: str) -> bool:
    """Whether a text gives an order instead of describing something."""
    return _ORDER.search(text.strip()) is not None


def _items_at(text: str, at: int, *, values: bool = False, inner: bool = False) -> tuple[list[_Item], int]:
    """The items of a list that begins at a position, and the end of the list.

    The items are `values`, or names; `inner` items are in parentheses after another name.
    """
    items: list[_Item] = []
    in_lines, end = False, at
    while len(items) < MOST_NAMES:
        while at < len(text) and text[at] in " \t\n[({":
            at += 1
        match = _ITEM.match(text, at)
        if match is None:
            break
        word, is_quoted = match["x"], match["x_quote"] is not None
        is_plain = not is_quoted and (word.isdecimal() or (not inner and word.casefold() in _LITTLE))
        if (is_plain or not is_name(word)) and not (values and word.isdecimal()):
            break
        at, parts = match.end(), tuple[str, ...]()
        note, end_of_note = ("", at) if values else _note_at(text, at)
        if note:
            at = end_of_note
        elif not values and (opening := _PARENTHESIS.match(text, at)):
            columns, end_of_columns = _items_at(text, opening.end(), inner=True)
            if columns and (close := _closing(text, opening.end())):
                is_whole = close == end_of_columns
                parts, at = tuple(column.text for column in columns if is_whole), close
        if not parts and not note and not values and not is_quoted and _is_prose_after(text, at):
            break
        items.append(_Item(word.strip(), note, parts))
        end = at
        if text[at : at + 1] in ")]}":
            end = at + 1
            break
        separator = _SEPARATOR.match(text, at)
        if separator is None or (len(items) > 1 and not in_lines and _is_line_break(separator[0])):
            break
        in_lines = _is_line_break(separator[0])
        at = separator.end()
    return items, end


_AFTER_LIST = re.compile(
    r"(?:[\"'`]+(?!\w))?[ \t]*(?P<separator>[,|/]\s*(?:and |or )?|(?:and|or)[ \t]+)?"
    r"(?:(?P<more>\.{2}|\u2026|\(?(?:and |or )?(?:\d+ )?(?:more|others?|etc|so on)\b)"
    r"|(?P<next>[^\W_]+|[^\s.;:!?()\[\]{}<\u2013\u2014-]))?"
)
_NO_ITEMS = frozenset(
    ("but", "got", "received", "found", "given", "not", "was", "is", "which", "must", "see")
)
"""Words after the comma that ends a list."""


def _is_whole(text: str, items: list[_Item], end: int) -> bool:
    """Whether a list was read to its end, and names everything that exists."""
    if any(item.parts for item in items) or text[end - 1 : end] in (*"]}", ""):
        return True
    after = _AFTER_LIST.match(text, end)
    if after is None or after["more"]:
        return False
    if after["separator"]:
        return not after["next"] or after["next"].casefold() in _NO_ITEMS
    return text[end - 1] == ")" or not after["next"] or after["next"].casefold() in _PROSE


_PARENTHESIS = re.compile(r"\s?\(")
_SIZE = re.compile(r"\(\d+(?:,\s*\d+)?\)(?:\s+(?:not )?null)?", re.IGNORECASE)


def _note_at(text: str, at: int) -> tuple[str, int]:
    """The type or unit after a name, and its end; empty if there is none."""
    match = _NOTE.match(text, at)
    if match is None or (match[0].lstrip().startswith("(") and not match[0].endswith(")")):
        return "", at
    is_closed = match[0].endswith(")") and not match[0].lstrip().startswith("(")  # of the list
    end = match.end() - is_closed
    size = _SIZE.match(text, end)
    return " ".join(match[1].split()), end if size is None else size.end()


def _closing(text: str, at: int) -> int:
    """The position after the parenthesis that closes the one before a position; 0 if there is none."""
    depth = 1
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return 0


def _is_prose_after(text: str, at: int) -> bool:
    """Whether an unquoted word continues as a sentence: `too many words`, not `cust_nm, amt_c`."""
    following = text[at : at + 1]
    return (
        following == " "
        and bool(re.match(r"\s+[a-z]{2,}", text[at : at + 12]))
        and not re.match(r"\s+(?:and|or)\s", text[at : at + 6])
    )


def _of_names(text: str, missing: _Missing | None) -> Iterator[MessageClaim]:
    """Yield claims about names: missing names, existing names, and names that were meant."""
    kind = missing.kind if missing else ""
    positive = [*_listed(text, missing), *(_suggested(text, missing) if missing else ())]
    if (
        missing
        and missing.kind in ("table", "column")
        and not any(" with the " in claim.clause for claim in positive)
    ):
        positive += _tables_in(text, missing)
    if missing and not positive:
        positive += _stated(text, missing)
    if missing and not positive and (names := _names_in(text, missing)):
        positive = [MessageClaim(_plural(kind), f"there are {names}", names)]
    yield from positive
    yield from _arguments(text)
    if missing and not positive:
        if missing.container:
            yield MessageClaim(missing.container, f"has no {kind} {missing.name}", missing.span)
        elif kind != "key" and " is not a" not in missing.span:  # "the date is not a valid format"
            yield MessageClaim(missing.name, f"there is no {kind} of this name", missing.span)


_RUN = re.compile(rf"{_START}{_NAME}(?:(?:\s*[,;:|=(\[{{)\]}}]+\s*|\s+(?:and|or)\s+){_NAME})+")
_OF_CODE = re.compile(r"\b\w*(?:[a-z0-9]_|_[a-z0-9]|[a-z][A-Z]|[a-z]\d)\w*")
"""An identifier that is not a word: `prt_id`, `onHand`, `col2`."""
FEWEST_NAMES = 4
"""Minimum names in a row that count as a list, whatever the form of the message."""


def _names_in(text: str, missing: _Missing) -> str:
    """The longest row of names in a message, as written; empty if there is none.

    At least a third of the names must not be words, so that prose does not count.
    """
    rows: list[str] = []
    for match in _RUN.finditer(text):
        first = _OF_CODE.search(match[0])
        row = match[0][first.start() :] if first and not _STATEMENT.search(text) else ""
        names = re.findall(_NAME, row)
        of_code = [name for name in names if _OF_CODE.fullmatch(name) and name != missing.name]
        if FEWEST_NAMES <= len(names) <= MOST_NAMES and 3 * len(of_code) >= len(names):
            rows.append(" ".join(row.split()))
    row = max(rows, key=len, default="")
    return row if all(map(is_name, re.findall(_NAME, row))) else ""


_SIGNATURE = _pattern(r"(?<![\w.])<x>\s?\((?=[^()\n]*,)")
_STATEMENT = re.compile(
    r"\b(?:select\b.+\bfrom|insert\s+into|update\b.+\bset|delete\s+from)\b", re.IGNORECASE | re.DOTALL
)


def _tables_in(text: str, missing: _Missing) -> Iterator[MessageClaim]:
    """Yield the tables that a message names with their columns, however it introduces them.

    A message that quotes a statement is ignored: parentheses in a statement follow functions, too.
    """
    if _STATEMENT.search(text):
        return
    for match in _SIGNATURE.finditer(text):
        items, end = _items_at(text, match.start())
        if items and len(items[0].parts) > 1 and items[0].name != missing.name:
            columns = ", ".join(items[0].parts)
            yield MessageClaim(
                items[0].name, f"a table with the columns {columns}", text[match.start() : end]
            )


def _stated(text: str, missing: _Missing) -> Iterator[MessageClaim]:
    """Yield the names that a message gives for a missing one as a sentence, or as a choice."""
    are = re.compile(rf"\b(?:{_plural(missing.kind)}|{_QUALITY})(?: \w+)? are\s+(?=\S)", re.IGNORECASE)
    introductions = [*are.finditer(text)]
    if following := _FOLLOWING.match(text, text.find(missing.span) + len(missing.span)):
        introductions.append(following)
    sentences = ((match, *_items_at(text, match.end())) for match in introductions)
    rows = [row for row in sentences if _are_names(text, row[1], row[2])]
    # "use hints and indexes" is advice, "use feat, fix or docs" a choice.
    is_advice = re.compile(r"\buse\s+(?!.* or )", re.IGNORECASE)
    rows = [row for row in rows if not is_advice.search(text[row[0].start() : row[2]])]
    rows += [(match, items, end) for match, items, end, subject in _choices(text, missing) if not subject]
    for match, items, end in rows:
        if len(items) > 1 and missing.name not in [item.name for item in items]:
            span, rejected = text[match.start() : end], missing.name if missing.kind == "key" else ""
            yield from _listing(items, missing.kind, missing.container, text, span, rejected)
            return


_FOLLOWING = re.compile(r"[\"'`\s]*[.;,:]?\s+(?:but |instead,? )?(?:there are|use)\s+(?=\S)", re.IGNORECASE)
"""What introduces the existing names right after a missing name."""


def _are_names(text: str, items: list[_Item], end: int) -> bool:
    """Whether a sentence ends with its items, and these are not a state such as `sorted and indexed`."""
    is_end = re.match(r"\s*(?:\.(?!\.)|[;)\]\n]|$)", text[end : end + 8]) is not None
    return is_end and not all(re.fullmatch(r"[a-z]+(?:ed|ing|ly)", item.name) for item in items)


class _Missing(NamedTuple):
    kind: str
    name: str
    container: str
    span: str


def _missing_in(text: str) -> _Missing | None:
    for kind, pattern in _MISSING:
        for match in pattern.finditer(text):
            name, is_quoted = match["x"].strip(), match["x_quote"] is not None
            container = _container(match)
            kind = kind or match["kind"].casefold()  # noqa: PLW2901 (the pattern says it)
            kind = _KINDS.get(kind, kind)  # noqa: PLW2901
            if kind in ("column", "attribute") and not container and "." in name:
                container, _, name = name.rpartition(".")
            if is_name(name, quoted=is_quoted):
                return _Missing(kind, name, container, match[0])
    return None


def _container(match: re.Match[str]) -> str:
    """The name of the container of a thing; empty if the message does not name it."""
    groups = match.groupdict()
    name = (groups.get("container") or "").strip()
    return name if name and is_name(name, quoted=groups["container_quote"] is not None) else ""


def _plural(kind: str) -> str:
    return (
        f"{kind[:-1]}ies"
        if kind.endswith("y") and kind != "key"
        else f"{kind}{'es' if kind.endswith('s') else 's'}"
    )


_NOT_LISTED = re.compile(
    r"\b(?:missing|required|positional|keyword-only|unexpected|unknown|invalid|unsupported|unrecogni[sz]ed"
    r"|undefined|illegal|bad|wrong|forbidden|disallowed|reserved|removed|deprecated|blocked|excluded|ignored"
    r"|failed|duplicate|extra|unused|previous(?:ly)?|former(?:ly)?|old|other|not|no longer|n['\u2019]t)\s+$",
    re.IGNORECASE,
)
"""The words before a list of names or values that are not the ones to use."""
_FORBIDDEN = re.compile(r"(?:\b(?:must|may|should|can) ?not|n['\u2019]t) be $", re.IGNORECASE)


def _is_line_break(separator: str) -> bool:
    return "\n" in separator and not separator.strip().startswith((",", ";", "|"))


def _before(text: str, match: re.Match[str]) -> str:
    return text[max(0, match.start() - 24) : match.start()]


def _listed(text: str, missing: _Missing | None) -> Iterator[MessageClaim]:
    taken = list[tuple[int, int]]()
    for pattern in _LISTED:
        for match in pattern.finditer(text):
            if any(start <= match.start() < end or start <= match.end() <= end for start, end in taken):
                continue
            items, end = _items_at(text, match.end())
            if not items or not _is_whole(text, items, end):
                continue
            if _NOT_LISTED.search(_before(text, match)):
                taken.append((match.start(), end))
                continue
            groups, container = match.groupdict(), _container(match)
            kind = (groups.get("kind") or "").casefold()
            kind = _KINDS.get(kind, kind) or ("" if groups.get("values") else missing.kind if missing else "")
            if "candidate" in match[0].casefold():
                kind = kind or "column"
            is_value = bool(groups.get("values")) and (container or not missing)
            span = text[match.start() : end]
            if not any(item.parts for item in items) and (is_value or not kind):
                continue  # allowed values, or words
            taken.append((match.start(), end))
            place = container or (missing.container if missing else "")
            rejected = missing.name if missing and kind == "key" and not groups.get("kind") else ""
            yield from _listing(items, kind, place, text, span, rejected)


def _listing(
    items: list[_Item], kind: str, container: str, text: str, span: str, rejected: str = ""
) -> Iterator[MessageClaim]:
    """Yield the claims of a list of names of a kind; `rejected` is the name that shows which list it is."""
    if whole := [item for item in items if item.parts]:
        is_table = kind in ("table", "column", "database", "schema") or (not kind and _TABLE.search(text))
        noun = "a table with the columns" if is_table else "a function with the arguments"
        for item in whole:
            yield MessageClaim(item.name, f"{noun} {', '.join(item.parts)}", span)
        return
    names = ", ".join(item.text for item in items)
    if kind == "column":
        if container:
            yield MessageClaim(container, f"a table with the columns {names}", span)
            return
    elif container:
        yield MessageClaim(container, f"has only the {_plural(kind)} {names}", span)
        return
    elif rejected:
        yield MessageClaim(rejected, f"not among the {_plural(kind)} {names}", span)
        return
    yield MessageClaim(_plural(kind), f"there are only {names}", span)


def _suggested(text: str, missing: _Missing) -> Iterator[MessageClaim]:
    for match in _SUGGESTED.finditer(text):
        at = match.end()
        while at and text[at - 1] in _OPENING:
            at -= 1
        items, end = _items_at(text, at)
        span = text[match.start() : end]
        for item in items:
            name, kind, container = item.name, missing.kind, missing.container
            if not container and "." in name and kind in ("column", "attribute", "name"):
                container, _, name = name.rpartition(".")
            name = name.removeprefix(f"{container}.")
            if name == missing.name:
                continue
            if container:
                yield MessageClaim(container, f"has the {_plural(kind)} {name}", span)
            else:
                yield MessageClaim(name, f"the {kind} in place of {missing.name}", span)


_MISSING_ARGUMENTS = _pattern(r"\b<in>\(\) missing \d+ required (?:positional|keyword-only) arguments?: ")
_NOT_NULL = _pattern(r"\bNOT NULL constraint failed: (?=\w+\.)<in>")
_NULL_VALUE = _pattern(r"\bnull value in column <x> of relation <in> violates")
_REQUIRED = _pattern(
    r"\bmissing(?: required)? (?P<what>field|parameter|argument|property|key|header|option)s?"
    r"(?: for <in>)?\s*:\s*"
)
_TAKES = _pattern(r"\b<in>\(\) takes (?:from \d+ to |exactly )?(?P<most>\d+) positional arguments? but")
_UNIQUE = _pattern(r"\bUNIQUE constraint failed: (?=[\w.]+)<in>")
_VERSION = _pattern(r"\b(?:requires?|needs?) <x>\s*(?P<version>(?:[<>=~^!]=?)\s*\d[\w.]*)")
_DEPRECATED = _pattern(
    r"<x>(?:\(\))? is (?:deprecated|obsolete|renamed|removed)[^\n]{0,40}?\b(?:use|by|to|is now|with) <in>"
)


def _arguments(text: str) -> Iterator[MessageClaim]:
    """Yield claims that something is required, unique, or outdated."""
    if match := _MISSING_ARGUMENTS.search(text):
        items, end = _items_at(text, match.end())
        if items:
            names = ", ".join(item.name for item in items)
            yield MessageClaim(match["container"], f"needs the arguments {names}", text[match.start() : end])
    if match := _TAKES.search(text):
        yield MessageClaim(
            match["container"], f"takes at most {match['most']} positional arguments", match[0]
        )
    for pattern, clause in ((_NOT_NULL, "needs the columns"), (_UNIQUE, "no two rows have the same")):
        if (match := pattern.search(text)) and "." in match["container"]:
            table, _, column = match["container"].rpartition(".")
            yield MessageClaim(table, f"{clause} {column}", match[0])
    if match := _NULL_VALUE.search(text):
        yield MessageClaim(match["container"], f"needs the columns {match['x']}", match[0])
    if match := _REQUIRED.search(text):
        items, end = _items_at(text, match.end())
        for item in items:
            yield MessageClaim(item.name, f"a required {match['what'].casefold()}", text[match.start() : end])
    if match := _VERSION.search(text):
        yield MessageClaim(match["x"], f"version {''.join(match['version'].split())} is required", match[0])
    if (match := _DEPRECATED.search(text)) and is_name(match["x"]):
        yield MessageClaim(match["container"], f"the name in place of {match['x']}", match[0])


# --- values ------------------------------------------------------------------------------------------------

_WHOLE = r"(?![\d,_.]*\d|e[+-]?\d|[ \u00a0\u202f]\d{3}\b)"  # `1.5e3` and `1 000 000` are not read
_NUMBER = rf"(?P<number>-?\d[\d,_.]*\d|-?\d){_WHOLE}"
_UNIT = (
    r"(?P<unit>(?:\s?(?:characters?|chars?|items?|elements?|entries|bytes?|kb|mb|gb|kib|mib|seconds?|ms"
    r"|milliseconds?|minutes?|hours?|days?|weeks?|rows?|lines?|words?|requests?|calls?|tokens?|records?"
    r"|results?|cents|percent|%|per (?:second|minute|hour|day|request|page|call)|a (?:second|minute|hour|day)"
    r"|/(?:s|min|h)|(?:s|h|min|kg|km|cm|mm|px|eur|usd|euros?|dollars?)\b|\u20ac))*)"
)
_MUST = r"(?:must|should|has to|needs to)"
_NOT = r"\b(?:not|cannot|(?:ca|must|should)n['\u2019]t)"
_LIMITS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "between {low} and {high}",
        _pattern(
            rf"(?:\bbetween|\bin the range(?: of| from)?|\bin range)\s+[\[(]?(?P<low>-?\d[\d.]*)\s*(?:and|to"
            rf"|-|\u2013|\.\.+|,)\s*(?P<high>-?\d[\d.]*\d|-?\d){_WHOLE}[\])]?{_UNIT}"
        ),
    ),
    (
        "at most {number}",
        _pattern(
            rf"(?:\bat most|\bno (?:more|greater|larger|longer|higher) than|{_NOT} (?:be )?(?:(?:more|greater"
            r"|larger|longer|higher) than|above)"
            r"|\b(?:less|fewer|smaller|lower) than or equal to|\bup to|\b(?:not|cannot) exceed|\bexceeds? "
            r"(?:the )?(?:maximum|limit)(?: \w+)?"
            r"(?: of| is|:)?|\bmaximum(?: \w+)?(?: is| of|:)?|\bmax(?:imum)?(?: is|:|=| of)|<=|≤"
            r"|(?<!rate )(?<!default )\blimit(?:ed to| is| of|:))\s*"
            rf"[('\"]?{_NUMBER}{_UNIT}"
        ),
    ),
    (
        "at least {number}",
        _pattern(
            rf"(?:\bat least|\bno (?:less|fewer|smaller|shorter|lower) than|{_NOT} (?:be )?(?:(?:less|fewer"
            r"|smaller|shorter|lower) than|below)"
            r"|\b(?:greater|more|larger) than or equal to|\bminimum(?: \w+)?(?: is| of|:)?|\bmin(?:imum)?(?: "
            r"is|:|=| of)|>=|≥)\s*"
            rf"[('\"]?{_NUMBER}{_UNIT}"
        ),
    ),
    (
        "below {number}",
        _pattern(
            rf"(?:\b{_MUST} be (?:less|smaller|lower) than(?! or)|\b{_MUST} be below)\s+{_NUMBER}{_UNIT}"
        ),
    ),
    (
        "above {number}",
        _pattern(
            rf"(?:\b{_MUST} be (?:greater|more|larger|higher) than(?! or)|\b{_MUST} be "
            rf"above)\s+{_NUMBER}{_UNIT}"
        ),
    ),
)
_RATE = _pattern(
    rf"\brate limit\w*(?: exceeded| reached| is|:| of|\s|\()*{_NUMBER}(?P<unit> (?:requests?|calls?|tokens?) "
    rf"(?:per|/|a|an) (?:\d+ )?[a-z]+)"
)
_FORMAT = _pattern(
    r"(?:\b(?:expected|required|correct|date|time|the|in|valid|matching|match|matches)\s+(?:date |time |the "
    r"|following )*(?:format|pattern|form)(?: is| of|:)?|\bformat(?: is|:)|\bmust match(?: the)?(?: pattern"
    r"| regex)?|\bdoes not match(?: the)?(?: format| pattern| regex)?"
    r"|\(expected(?: format)?:?)\s*(?P<quote>['\"`/])?(?P<format>(?(quote)[^'\"`\n]{2,40}?"
    r"|[\w%^\[\\][\w%:./\-+^$\\{}\[\]*?|#]{1,38}[\w%$\]}+*?]))(?(quote)['\"`/])"
)
_TYPES = (
    r"(?:integers?|numbers?|numeric|floats?|decimals?|strings?|lists?|arrays?|objects?|booleans?|dates?"
    r"|datetimes?|timestamps?|uuids?|whole|positive|negative|non-negative|non-empty|unique|lower-?case"
    r"|upper-?case|valid|iso|8601|3166|4217|639|rfc|3339|e\.164|unix|utc|json|base64|hex|hexadecimal|country"
    r"|currency|language|codes?|cents|dollars|euros|pence|seconds|milliseconds|minutes|hours|days|bytes"
    r"|percent|grams|kilograms|metres|meters|kilometres|kilometers|degrees|celsius|fahrenheit|of|in|as|and|or"
    r"|an?|with|time|comma-separated|sorted|ascending|descending|null|true|false)"
)
_TYPED = _pattern(
    rf"(?:\b(?:must|should|has to|needs to) be (?:given |specified |sent |an? |of type |in |as )*|\binput "
    rf"should be (?:an? )?"
    rf"|\b(?:value )?is not (?:an? )?valid |\bis not of type ['\"]?)(?P<type>{_TYPES}(?:[ -]{_TYPES})*)\b"
)
_REJECTED = (
    _pattern(
        r"\b(?:no such|unknown|unrecogni[sz]ed|unexpected|invalid|unsupported|illegal|bad)"
        r" (?P<what>choice|value)\s*:?\s+<x>"
    ),
    _pattern(r"(?:^|(?<=[\s(:]))(?=[\"'`])<x> is not (?P<what>)(?:one|any) of"),
)
_CHECKED = _pattern(r"\bCHECK constraint failed: <x>\s+IN\s*\(")


def _of_values(text: str, missing: _Missing | None) -> Iterator[MessageClaim]:
    """Yield claims about the values of a field: allowed values, limits and formats."""
    if match := _CHECKED.search(text):
        items, end = _items_at(text, match.end(), values=True)
        if items and _is_whole(text, items, end):
            yield MessageClaim(
                match["x"], f"one of {', '.join(item.name for item in items)}", text[match.start() : end]
            )
    for match, items, end, subject in _choices(text, missing):
        names, span = ", ".join(item.name for item in items), text[match.start() : end]
        if subject:
            yield MessageClaim(subject, f"one of {names}", span)
            continue
        for pattern in _REJECTED:
            for rejected in pattern.finditer(text, max(0, match.start() - 160), match.end()):
                what = f"{rejected['what'] or 'value'}s".casefold()
                yield MessageClaim(rejected["x"].strip(), f"not among the {what} {names}", span)
    for template, pattern in _LIMITS:
        for match in pattern.finditer(text):
            if not _FORBIDDEN.search(_before(text, match)) and (subject := _subject_of(text, match.start())):
                clause = template.format_map(match.groupdict()) + _unit(match["unit"])
                yield MessageClaim(subject, clause, match[0])
    if match := _RATE.search(text):
        yield MessageClaim("rate limit", f"at most {match['number']}{_unit(match['unit'])}", match[0])
    for match in _FORMAT.finditer(text):
        form = match["format"].strip()
        is_form = re.search(r"[%\\\[{^$#:/\-.]|\d|[A-Z]{2}", form) and not is_order(form)
        if (
            is_form
            and not _FORBIDDEN.search(_before(text, match))
            and len(form.split()) <= MOST_VALUE_WORDS
            and (subject := _subject_of(text, match.start(), is_value="not" in match[0]))
        ):
            yield MessageClaim(subject, f"in the format {form}", match[0])
    for match in _TYPED.finditer(text):
        kind = re.sub(
            r"^(?:valid|an?|in|of|as)\s+|\s+(?:an?|in|of|as|or|and|with)$", "", match["type"].strip()
        )
        if kind.casefold() not in ("", "in", "of", "as", "a", "an", "valid", "with") and (
            subject := _subject_of(text, match.start())
        ):
            yield MessageClaim(subject, _typed(kind, match[0]), match[0])


def _choices(text: str, missing: _Missing | None) -> Iterator[tuple[re.Match[str], list[_Item], int, str]]:
    """Yield the allowed values in a message: what introduces them, the values, their end, and their field.

    A name that is missing is no field: `unknown field x, expected one of a, b`.
    """
    for match in _ONE_OF.finditer(text):
        items, end = _items_at(text, match.end(), values=True)
        is_listed = not _NOT_LISTED.search(_before(text, match))
        if len(items) > 1 and is_listed and _is_whole(text, items, end):
            of = (match["x"] or "").strip()
            of = of or _subject_of(text, match.start(), is_value="not" in match[0])
            yield match, items, end, "" if missing is not None and of == missing.name else of


def _unit(unit: str) -> str:
    unit = " ".join(unit.split())
    return f" {unit}" if unit else ""


_ADJECTIVES = frozenset(
    re.findall(
        r"\S+", "unique positive negative numeric null true false sorted non-empty lower-case upper-case"
    )
)


def _typed(kind: str, message: str) -> str:
    kind = (
        " ".join(kind.casefold().split())
        .replace("iso ", "ISO ")
        .replace("utc", "UTC")
        .replace("uuid", "UUID")
    )
    is_unit = re.search(rf"\bin {re.escape(kind)}", message, re.IGNORECASE) is not None
    if is_unit:
        return f"in {kind}"
    if kind in _ADJECTIVES or kind.split()[0].endswith("s"):
        return kind
    return f"{'an' if kind[0] in 'aeiouI' else 'a'} {kind}"


_BEFORE = (
    # As in "page_size must be at most", "The field 'page_size' may not be".
    _pattern(
        rf"<x>(?:\s+(?:value|field|parameter|argument|option|column|length|size))?\s+(?:(?:{_MUST}|may|can|cannot|is|are"
        rf"|was|needs?|exceeds?|has|have|accepts?|takes?)\b[^.\n]{{0,24}})?$"
    ),
    # As in "page_size: at most", "page_size (query): Input should be".
    _pattern(
        r"(?:^|(?<=: ))\W*(?:\w+Error: |error: )?(?:argument )?-{0,2}<x>(?:\s*\([^)\n]*\))?"
        r"\s*[:=\n][^\n:]{0,80}$"
    ),
    # As in '"loc": ["body", "page_size"]'.
    _pattern(r"\bloc[\"']?\s*[:=]\s*\[(?:[^\]\n]*,)?\s*<x>\s*\][^\n]*$"),
    # As in "Invalid value for 'page_size': it ...".
    _pattern(
        r"\b(?:field|param(?:eter)?|loc|argument|option|column|property|key|setting|header|variable|for|of)"
        r"[\"']?\s*[:=]?\s*\[?-{0,2}<x>[^\n]{0,80}$"
    ),
    _pattern(r"^\W*<x>[^\w\n]*\n[^\n]{0,40}$"),
    # As in "colour 'red' is not one of".
    _pattern(r"<x>\s+[\"'][^\"'\n]*[\"']\s*$"),
)
_ABOUT_ANSWERS = frozenset(
    re.findall(
        r"\S+",
        "text answer output reply response headline title summary essay paragraph sentence word words "
        "bullets lines draft "
        "it value input data",
    )
)


_WORD_STARTS = re.compile(r"(?:(?<=^)|(?<=[\s(\[\"'`«“-]))\S")


def _subject_of(text: str, at: int, *, is_value: bool = False) -> str:
    """The name of the field that a message mentions before a position; empty if it names none."""
    start = max(0, at - 160)
    before = text[start:at]
    sentence = re.split(r"(?<=[.!?;])\s+(?=[A-Z\"'`«])", before)[-1]
    for pattern in _BEFORE[1 if is_value else 0 :]:
        matches = (pattern.match(sentence, word.start()) for word in _WORD_STARTS.finditer(sentence))
        names = [match["x"].strip() for match in matches if match is not None]
        for name in reversed(names):
            if is_name(name, quoted=False) and name.casefold() not in _ABOUT_ANSWERS and not name.isdecimal():
                return name
    return ""
