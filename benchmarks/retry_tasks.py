"""Twenty more small tasks to retry, of the kinds of `small_tasks` and a little harder.

They were written before any model had seen them, and nothing may be tuned on them.
"""

from __future__ import annotations

from small_tasks import (
    CLOCK,
    DATE,
    at_most,
    avoids,
    bullets,
    choice,
    extraction,
    function,
    hashtags,
    holds,
    initials,
    lines,
    lower_case,
    many,
    numbered,
    sentences,
    sorted_list,
    text,
    whole,
    words,
    writing,
)

EXTRACTIONS = (
    extraction(
        "train",
        {
            "number": text("letters and digits without a space", "^[A-Z]+[0-9]+$"),
            "departs": text("24-hour HH:MM", CLOCK),
            "minutes_late": whole("the delay in minutes, 0 if it is on time"),
        },
        "The ICE 599 to Munich leaves at a quarter past four in the afternoon, half an hour late.",
        {"number": "ICE599", "departs": "16:15", "minutes_late": 30},
    ),
    extraction(
        "lease",
        {
            "from": text("YYYY-MM-DD", DATE),
            "to": text("YYYY-MM-DD", DATE),
            "cents_a_month": whole("the rent in cents"),
        },
        "The lease runs from the first of May 2024 to the last day of April 2026, at 845.50 euros a month.",
        {"from": "2024-05-01", "to": "2026-04-30", "cents_a_month": 84550},
    ),
    extraction(
        "server",
        {
            "name": text("in lower case", "^[a-z0-9-]+$"),
            "megabytes": whole("its memory in megabytes, of which a gigabyte has 1024"),
            "roles": many("what it does, in alphabetical order"),
        },
        "Host DB-7 has 16 GB of memory; it does search, backups and mail.",
        {"name": "db-7", "megabytes": 16384, "roles": ["backups", "mail", "search"]},
    ),
    extraction(
        "poll",
        {
            "question": text("as it is, with its question mark", r"\?$"),
            "votes": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "description": "an object that maps each answer in lower case to its number of votes",
            },
            "winner": text("in lower case", "^[a-z]+$"),
        },
        "Tea or coffee? A dozen people said Tea, nineteen said Coffee, and three said Neither.",
        {"question": "Tea or coffee?", "votes": {"tea": 12, "coffee": 19, "neither": 3}, "winner": "coffee"},
    ),
    extraction(
        "plant",
        {
            "name": text("the Latin name"),
            "height_cm": whole("its largest height in centimetres"),
            "sun": choice("full", "half", "none"),
            "months": many("the numbers of the months in which it flowers", {"type": "integer"}),
        },
        "Common sage (Salvia officinalis) grows up to 0.7 m tall in full sun and flowers from May to July.",
        {"name": "Salvia officinalis", "height_cm": 70, "sun": "full", "months": [5, 6, 7]},
    ),
    extraction(
        "match",
        {
            "home": text("the team that played at home"),
            "goals": many("the goals of the home team, then those of its guest", {"type": "integer"}),
            "won_by": choice("home", "guest", "nobody"),
        },
        "Rovers lost 1-3 away at Harbour FC.",
        {"home": "Harbour FC", "goals": [3, 1], "won_by": "home"},
    ),
    extraction(
        "dose",
        {
            "medicine": text("in lower case", "^[a-z]+$"),
            "milligrams_a_day": whole("all that is taken in a day, in milligrams"),
            "until": text("the last day, YYYY-MM-DD", DATE),
        },
        "Ibuprofen, 0.2 g three times a day, for one week beginning on 3 June 2025.",
        {"medicine": "ibuprofen", "milligrams_a_day": 600, "until": "2025-06-09"},
    ),
)

WRITINGS = (
    writing(
        "moon",
        "Explain in exactly 2 sentences and 25 to 35 words why the moon has phases.",
        length=words(25, 35),
        sentences=sentences(2),
    ),
    writing(
        "tips",
        'Give exactly 4 tips for a job interview, each on a line that starts with "- ", at most 5 words a '
        "line, without the word be.",
        bullets=bullets(4, 5),
        taboo=avoids("- be ", " be "),
    ),
    writing(
        "river",
        "Write 5 lines about a river whose first letters are R, I, V, E, R, at most 40 words in all.",
        initials=initials("RIVER"),
        length=words(5, 40),
    ),
    writing(
        "cities",
        "List 6 cities of Europe in alphabetical order, in one line, all in lower case, with commas between "
        "them, and nothing else.",
        items=sorted_list(6),
        line=lines(1),
        case=lower_case,
    ),
    writing(
        "bread",
        'Say how to bake bread in exactly 5 numbered lines, "1. " to "5. ", at most 6 words each, and '
        "mention yeast.",
        steps=numbered(5, 6),
        word=holds("yeast"),
    ),
    writing(
        "notice",
        "Tell the tenants in at most 140 characters that the water is off on Thursday from 9:00 to 11:30, "
        "with exactly 1 hashtag.",
        length=at_most(140),
        facts=holds("Thursday", "9:00", "11:30"),
        tags=hashtags(1),
    ),
    writing(
        "winter",
        "Describe winter in 20 to 30 words and exactly 2 sentences, without the words snow, cold, white "
        "or ice.",
        length=words(20, 30),
        sentences=sentences(2),
        taboo=avoids("snow", "cold", "white", "ice"),
    ),
)

FUNCTIONS = (
    function(
        "ordinal",
        "ordinal(n) that writes a whole number from 1 on with its English ending.",
        {"ordinal(1)": "1st", "ordinal(12)": "12th"},
        {"ordinal(22)": "22nd", "ordinal(113)": "113th", "ordinal(103)": "103rd", "ordinal(10)": "10th"},
    ),
    function(
        "ranges",
        "ranges(numbers) that writes different whole numbers in order, runs of three or more in a row as "
        "first-last, all joined with commas.",
        {"ranges([1, 2, 3, 7])": "1-3,7", "ranges([4, 5])": "4,5"},
        {"ranges([])": "", "ranges([9, 3, 2, 1, 8])": "1-3,8,9", "ranges([5])": "5"},
    ),
    function(
        "rotate",
        "rotate(rows) that turns a table, given as a list of equally long lists, a quarter clockwise.",
        {"rotate([[1, 2], [3, 4]])": [[3, 1], [4, 2]], "rotate([])": []},
        {"rotate([[1, 2, 3]])": [[1], [2], [3]], "rotate([[1], [2]])": [[2, 1]]},
    ),
    function(
        "wrap",
        "wrap(text, width) that breaks a text into lines of at most width characters between its words, as a "
        "list; a word that is longer gets a line of its own.",
        {"wrap('the cat sat', 7)": ["the cat", "sat"], "wrap('', 5)": []},
        {
            "wrap('incredible fun', 4)": ["incredible", "fun"],
            "wrap('a b c', 3)": ["a b", "c"],
            "wrap('one', 3)": ["one"],
        },
    ),
    function(
        "duration",
        "seconds_of(text) that returns the seconds in a duration such as '1h 2m 3s', of which any part may "
        "be missing, and None for any other text.",
        {"seconds_of('1h 2m 3s')": 3723, "seconds_of('soon')": None},
        {
            "seconds_of('45s')": 45,
            "seconds_of('2h')": 7200,
            "seconds_of('')": None,
            "seconds_of('3m 1h')": None,
        },
    ),
    function(
        "version",
        "newer(a, b) that says whether the version a is newer than b; versions are numbers with dots "
        "between, and missing numbers count as 0.",
        {"newer('1.10', '1.9')": True, "newer('2.0', '2')": False},
        {"newer('1.0.1', '1')": True, "newer('3', '10')": False, "newer('1.2.3', '1.2.3')": False},
    ),
)

RETRY_TASKS = (*EXTRACTIONS, *WRITINGS, *FUNCTIONS)
