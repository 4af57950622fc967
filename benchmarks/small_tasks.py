"""Small tasks with deterministic checks: JSON from a text, limits on words and bullets, small functions.

The criteria of a task are what a user would check: a schema, limits, two calls of a function. The right
values and further calls are hidden; they score an arm at the end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from _tasks import BenchTask, calls_criterion, passes

from redraft import QualityCriterion
from redraft.errors import OutputError
from redraft.text.replies import json_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from _tasks import Hidden


def extraction(name: str, fields: dict[str, Any], source: str, expected: dict[str, Any]) -> BenchTask:
    """Ask for the fields of a text as JSON; `fields` maps each name to its JSON Schema."""
    wanted = "; ".join(f'"{key}" ({value["description"]})' for key, value in fields.items())
    schema = {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
    criterion = QualityCriterion(
        "schema", threshold=1.0, evaluator="schema", evaluator_config={"schema": schema}
    )
    prompt = (
        f"Read the text and reply with one JSON object that has exactly these keys: {wanted}.\n\n"
        f"Text: {source}"
    )
    return BenchTask(f"json-{name}", prompt, (criterion,), equals(expected))


def equals(expected: object) -> Hidden:
    """Check that a reply holds this JSON value."""

    async def hidden(output: str) -> bool:
        try:
            return json_of(output) == expected
        except OutputError:
            return False

    return hidden


def text(description: str, pattern: str = "") -> dict[str, Any]:
    return {"type": "string", "description": description} | ({"pattern": pattern} if pattern else {})


def choice(*values: str) -> dict[str, Any]:
    return {"enum": list(values), "description": f"one of {', '.join(values)}"}


def whole(description: str) -> dict[str, Any]:
    return {"type": "integer", "description": description}


def many(description: str, items: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items or {"type": "string"}, "description": description}


DATE = r"^\d{4}-\d{2}-\d{2}$"
CLOCK = r"^\d{2}:\d{2}$"

EXTRACTIONS = (
    extraction(
        "contact",
        {"name": text("the full name"), "born": text("YYYY-MM-DD", DATE), "email": text("the address", "@")},
        "You can reach Ada Byron (born on the 10th of December 1990) at ada@example.org.",
        {"name": "Ada Byron", "born": "1990-12-10", "email": "ada@example.org"},
    ),
    extraction(
        "meeting",
        {
            "title": text("the subject"),
            "date": text("YYYY-MM-DD", DATE),
            "start": text("24-hour HH:MM", CLOCK),
            "minutes": whole("how long it takes, in minutes"),
        },
        "Budget review on 3 March 2025 at half past two in the afternoon, an hour and a half.",
        {"title": "Budget review", "date": "2025-03-03", "start": "14:30", "minutes": 90},
    ),
    extraction(
        "order",
        {
            "customer": text("the surname only"),
            "items": many(
                "objects with sku and quantity",
                {
                    "type": "object",
                    "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer"}},
                    "required": ["sku", "quantity"],
                    "additionalProperties": False,
                },
            ),
            "express": {"type": "boolean", "description": "true or false"},
        },
        "Mr Tom Okafor wants three of A-17 and one B-02, no rush.",
        {
            "customer": "Okafor",
            "items": [{"sku": "A-17", "quantity": 3}, {"sku": "B-02", "quantity": 1}],
            "express": False,
        },
    ),
    extraction(
        "log",
        {
            "level": choice("debug", "info", "warning", "error"),
            "service": text("its name"),
            "code": whole("number"),
        },
        "2025-01-07T09:12:44Z ERROR [billing] upstream answered 503 after 3 tries",
        {"level": "error", "service": "billing", "code": 503},
    ),
    extraction(
        "review",
        {
            "stars": {"type": "integer", "minimum": 1, "maximum": 5, "description": "1 to 5"},
            "sentiment": choice("positive", "negative", "mixed"),
            "product": text("what was bought, in lower case", "^[a-z ]+$"),
        },
        "Four stars. The Kettle is fast and quiet, though the lid sticks.",
        {"stars": 4, "sentiment": "mixed", "product": "kettle"},
    ),
    extraction(
        "flight",
        {
            "from": text("the airport's three-letter code", "^[A-Z]{3}$"),
            "to": text("the airport's three-letter code", "^[A-Z]{3}$"),
            "departs": text("24-hour HH:MM", CLOCK),
            "stops": whole("number of stops"),
        },
        "Lisbon (LIS) to Oslo (OSL) via Frankfurt (FRA), leaving at 6:05 am.",
        {"from": "LIS", "to": "OSL", "departs": "06:05", "stops": 1},
    ),
    extraction(
        "address",
        {
            "street": text("with the number"),
            "postcode": text("five digits", r"^\d{5}$"),
            "city": text("the city"),
            "country": text("two-letter code", "^[A-Z]{2}$"),
        },
        "Please send it to Lindenweg 4 in 50667 Cologne, Germany.",
        {"street": "Lindenweg 4", "postcode": "50667", "city": "Cologne", "country": "DE"},
    ),
    extraction(
        "prices",
        {"currency": choice("EUR", "USD", "GBP"), "cents": many("all prices in cents", {"type": "integer"})},
        "Coffee is $3.50, a bagel $2.25 and the juice $4.",
        {"currency": "USD", "cents": [350, 225, 400]},
    ),
    extraction(
        "bug",
        {
            "severity": choice("low", "medium", "high", "critical"),
            "version": text("x.y.z", r"^\d+\.\d+\.\d+$"),
            "steps": many("the steps to reproduce, each without its number"),
        },
        "Critical in 2.4.1: 1) open the settings 2) press save 3) press save again. Then all data is gone.",
        {
            "severity": "critical",
            "version": "2.4.1",
            "steps": ["open the settings", "press save", "press save again"],
        },
    ),
    extraction(
        "recipe",
        {
            "dish": text("in lower case", "^[a-z ]+$"),
            "serves": whole("number of people"),
            "grams": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "description": "an object that maps each ingredient to its weight in grams",
            },
        },
        "Pancakes for four: take 250 g flour, half a kilo of milk and 80 g sugar.",
        {"dish": "pancakes", "serves": 4, "grams": {"flour": 250, "milk": 500, "sugar": 80}},
    ),
    extraction(
        "team",
        {
            "lead": text("first name only", "^[A-Z][a-z]+$"),
            "members": many("first names of all others, in alphabetical order"),
            "size": whole("how many people there are with the lead"),
        },
        "Wei leads; Sam, Bo and Lena work with her.",
        {"lead": "Wei", "members": ["Bo", "Lena", "Sam"], "size": 4},
    ),
    extraction(
        "reading",
        {
            "sensor": text("its id", r"^[a-z]+-\d+$"),
            "celsius": {"type": "number", "description": "the temperature"},
            "alarm": {"type": "boolean", "description": "true above 30 degrees"},
        },
        "Sensor roof-12 reports 31.5 °C at noon.",
        {"sensor": "roof-12", "celsius": 31.5, "alarm": True},
    ),
)


Check = tuple[bool, str]


def writing(name: str, prompt: str, **checks: Callable[[str], Check]) -> BenchTask:
    """Ask for a text; each check looks at the whole reply, a Markdown fence included."""
    criteria = tuple(
        QualityCriterion(
            key, threshold=1.0, evaluator="function", evaluator_config={"function": check, "raw": True}
        )
        for key, check in checks.items()
    )
    return BenchTask(f"text-{name}", prompt, criteria)


def lines_of(output: str) -> list[str]:
    return [line.strip() for line in output.strip().splitlines() if line.strip()]


def words_of(output: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+(?:['\u2019-][A-Za-z0-9]+)*", output)


def words(least: int, most: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        count = len(words_of(output))
        return least <= count <= most, f"It has {count} words; it must have {least} to {most}."

    return check


def bullets(count: int, most_words: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        lines = lines_of(output)
        if not all(line.startswith("- ") for line in lines):
            return False, 'Each line must be a bullet that starts with "- ", and there must be no other line.'
        if len(lines) != count:
            return False, f"It has {len(lines)} bullets; it must have exactly {count}."
        longest = max(len(words_of(line)) for line in lines)
        return (
            longest <= most_words,
            f"The longest bullet has {longest} words; at most {most_words} are allowed.",
        )

    return check


def lines(count: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = len(lines_of(output))
        return found == count, f"It has {found} lines; it must have exactly {count}."

    return check


def sentences(count: int, end: str = ".") -> Callable[[str], Check]:
    def check(output: str) -> Check:
        ends = re.findall(r"[.!?]+(?=\s|$)", output.strip())
        good = len(ends) == count and all(found == end for found in ends)
        return (
            good,
            f"It must have exactly {count} sentences that end with {end!r}; the ends found are {ends}.",
        )

    return check


def initials(wanted: str) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = "".join(line[0] for line in lines_of(output))
        return found == wanted, f"The lines start with {found!r}; they must start with {wanted!r}."

    return check


def holds(*wanted: str) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        missing = [part for part in wanted if part not in output]
        return not missing, f"It must contain {', '.join(map(repr, missing))}, in exactly this spelling."

    return check


def avoids(*banned: str) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = [word for word in banned if word in output.lower()]
        return not found, f"It must not contain {', '.join(map(repr, found))}."

    return check


def at_most(characters: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        count = len(output.strip())
        return count <= characters, f"It has {count} characters; at most {characters} are allowed."

    return check


def hashtags(count: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = re.findall(r"#\w+", output)
        return len(found) == count, f"It has {len(found)} hashtags; it must have exactly {count}."

    return check


def sorted_list(count: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = [item.strip() for item in output.strip().rstrip(".").split(",")]
        if len(found) != count:
            return False, f"It has {len(found)} items between commas; it must have exactly {count}."
        return found == sorted(found, key=str.lower), f"The items are not in alphabetical order: {found}."

    return check


def lower_case(output: str) -> Check:
    return output == output.lower(), "It must be in lower case throughout."


def numbered(count: int, most_words: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = lines_of(output)
        if [line.split(" ")[0] for line in found] != [f"{number}." for number in range(1, count + 1)]:
            return False, f'It must have exactly {count} lines, which start with "1. " to "{count}. ".'
        longest = max(len(words_of(line)) - 1 for line in found)
        return (
            longest <= most_words,
            f"The longest line has {longest} words; at most {most_words} are allowed.",
        )

    return check


WRITINGS = (
    writing(
        "sky",
        "Explain in one sentence of 20 to 30 words why the sky is blue.",
        length=words(20, 30),
        sentence=sentences(1),
    ),
    writing(
        "bullets",
        'Give exactly 5 reasons to sleep enough, each on a line that starts with "- ", at most 6 words a '
        "line.",
        bullets=bullets(5, 6),
    ),
    writing(
        "haiku",
        "Write a haiku about rain: exactly 3 lines, 8 to 17 words.",
        lines=lines(3),
        length=words(8, 17),
    ),
    writing(
        "acrostic",
        "Write 4 lines about the night whose first letters are M, O, O, N.",
        initials=initials("MOON"),
    ),
    writing(
        "shouts",
        "Write exactly 3 sentences that cheer on a runner. Each must end with a single exclamation mark.",
        sentences=sentences(3, "!"),
    ),
    writing(
        "title",
        "Give one title for a blog post about garden birds, 3 to 6 words, all in lower case, without quotes.",
        length=words(3, 6),
        case=lower_case,
        plain=avoids('"', "title"),
    ),
    writing(
        "animals",
        "List 7 animals in alphabetical order, in one line, with commas between them, and nothing else.",
        items=sorted_list(7),
        line=lines(1),
    ),
    writing(
        "steps",
        'Say how to make tea in exactly 6 numbered lines, "1. " to "6. ", at most 7 words each.',
        steps=numbered(6, 7),
    ),
    writing(
        "email",
        "Write an email of at most 60 words that asks for the payment of invoice 1042. It starts with "
        '"Dear" and has the words "Best regards,".',
        length=words(15, 60),
        parts=holds("Dear", "1042", "Best regards,"),
    ),
    writing(
        "post",
        "Announce a bakery's opening on Saturday in at most 120 characters, with exactly 2 hashtags.",
        length=at_most(120),
        tags=hashtags(2),
        day=holds("Saturday"),
    ),
    writing(
        "banned",
        "Describe the sea in 25 to 40 words without using the words blue, water, wave, ocean or deep.",
        length=words(25, 40),
        taboo=avoids("blue", "water", "wave", "ocean", "deep"),
    ),
    writing(
        "summary",
        "Sum this up in one sentence of at most 14 words that contains the word battery: The new phone "
        "has a bright screen and a good camera, but reviewers agree that it has to be charged twice a "
        "day.",
        length=words(5, 14),
        sentence=sentences(1),
        word=holds("battery"),
    ),
)


def function(name: str, prompt: str, seen: dict[str, Any], unseen: dict[str, Any]) -> BenchTask:
    """Ask for a function; both mappings go from a call to the value that it returns."""
    shown = "\n".join(f"{call} returns {value!r}" for call, value in seen.items())
    return BenchTask(
        f"code-{name}",
        f"Write a Python function {prompt}\n\nExamples:\n{shown}",
        (calls_criterion(seen),),
        passes(calls_criterion(seen | unseen)),
    )


FUNCTIONS = (
    function(
        "roman",
        "to_roman(n) that writes a whole number from 1 to 3999 in Roman numerals.",
        {"to_roman(4)": "IV", "to_roman(1987)": "MCMLXXXVII"},
        {"to_roman(1)": "I", "to_roman(44)": "XLIV", "to_roman(3999)": "MMMCMXCIX"},
    ),
    function(
        "runs",
        "encode(text) that writes runs of a character as the character and the length of the run, and "
        "leaves out a length of 1.",
        {"encode('aaab')": "a3b", "encode('')": ""},
        {"encode('abc')": "abc", "encode('zzzzzzzzzzzz')": "z12", "encode('aabaa')": "a2ba2"},
    ),
    function(
        "palindrome",
        "is_palindrome(text) that ignores case and everything but letters and digits.",
        {"is_palindrome('No lemon, no melon')": True, "is_palindrome('Redraft')": False},
        {"is_palindrome('')": True, "is_palindrome('1a2')": False, "is_palindrome('Was it a car?')": False},
    ),
    function(
        "flatten",
        "flatten(items) that makes one flat list out of lists nested to any depth.",
        {"flatten([1, [2, [3, []]]])": [1, 2, 3], "flatten([])": []},
        {"flatten([[['a']], 'bc'])": ["a", "bc"], "flatten([[1], [[2]], 3])": [1, 2, 3]},
    ),
    function(
        "chunks",
        "chunks(items, size) that cuts a list into lists of at most size items; a size below 1 gives an "
        "empty list.",
        {"chunks([1, 2, 3], 2)": [[1, 2], [3]], "chunks([1], 0)": []},
        {"chunks([], 3)": [], "chunks([1, 2], 5)": [[1, 2]], "chunks([1, 2], -1)": []},
    ),
    function(
        "second",
        "second_largest(numbers) that returns the second largest different number, or None where there is"
        " none.",
        {"second_largest([3, 1, 3])": 1, "second_largest([5])": None},
        {"second_largest([])": None, "second_largest([2, 2])": None, "second_largest([-1, -5, -3])": -3},
    ),
    function(
        "merge",
        "merge(intervals) that joins intervals which overlap or touch, given as lists [start, end] in any"
        " order, and returns them in order.",
        {"merge([[5, 7], [1, 3], [2, 4]])": [[1, 4], [5, 7]], "merge([[1, 2], [2, 3]])": [[1, 3]]},
        {"merge([])": [], "merge([[1, 9], [2, 3]])": [[1, 9]], "merge([[1, 2], [3, 4]])": [[1, 2], [3, 4]]},
    ),
    function(
        "brackets",
        "balanced(text) that says whether the brackets (), [] and {} in a text are balanced; other "
        "characters are ignored.",
        {"balanced('a(b[c]{d})')": True, "balanced('(]')": False},
        {"balanced('')": True, "balanced('(')": False, "balanced(')(')": False, "balanced('([)]')": False},
    ),
    function(
        "caesar",
        "shift(text, by) that moves each letter on by so many places in the alphabet, keeps its case, and"
        " leaves everything else as it is.",
        {"shift('Abc, xyz!', 3)": "Def, abc!", "shift('b', -1)": "a"},
        {"shift('', 5)": "", "shift('Zz 9', 27)": "Aa 9", "shift('a', -27)": "z"},
    ),
    function(
        "clock",
        "add_minutes(clock, minutes) that adds minutes, which may be negative, to a time 'HH:MM' of a "
        "24-hour clock.",
        {"add_minutes('23:50', 15)": "00:05", "add_minutes('09:05', 0)": "09:05"},
        {"add_minutes('00:00', -1)": "23:59", "add_minutes('12:30', 1440)": "12:30"},
    ),
    function(
        "digits",
        "digital_root(n) that sums the decimal digits of a whole number n >= 0 again and again until one "
        "digit is left.",
        {"digital_root(9875)": 2, "digital_root(0)": 0},
        {"digital_root(18)": 9, "digital_root(10**20)": 1, "digital_root(7)": 7},
    ),
    function(
        "common",
        "most_common(text) that returns the most frequent word of a text in lower case, ignoring "
        "punctuation; among equals the one that comes first; '' where there is none.",
        {"most_common('The cat saw the dog.')": "the", "most_common('')": ""},
        {"most_common('b, a; a! B?')": "b", "most_common('... !')": "", "most_common('One')": "one"},
    ),
)


TASKS: tuple[BenchTask, ...] = (*EXTRACTIONS, *WRITINGS, *FUNCTIONS)
