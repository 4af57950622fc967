"""Families of tasks whose answers depend on what no criterion says beforehand.

Queries run on a database whose names only its errors tell. Functions follow the convention of a program that
only its failing tests show. Notices, captions and replies follow the style of a person, who corrects what was
written. The families were written before any model had seen them, and nothing may be tuned on them. The first
run of `queries` showed that an error of its form left no fact, which was fixed for errors in general; `jobs`
was written before that, with another form of error. The first seven runs of `notices` showed that a list of
changed words teaches nothing; lessons have the corrected answer as an example since then. `captions` was
written after that; with it and 17 more of `notices` in sight, lessons came to say how all corrected answers
begin and end. `replies` was written after that, and before any model had seen it.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from _tasks import BenchTask, calls_criterion, passes, undescribed
from small_tasks import lines_of

if TYPE_CHECKING:
    from small_tasks import Check


@dataclass(frozen=True, slots=True)
class EnvironmentTask:
    """A task, an answer that solves it, and the answer of somebody who doesn't know the environment."""

    task: BenchTask
    solution: str
    mistake: str


# --- queries: one SQLite database, whose names are not those of the questions -------------------------------


@dataclass(frozen=True, slots=True)
class Database:
    """A database: its tables, the rows on which a query is tried, those that score it, and its errors."""

    what: str
    tables: str
    rows: str
    hidden_rows: str
    error: str

    def answer(self, query: str, rows: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query in order; raises `sqlite3.Error`."""
        database = sqlite3.connect(":memory:")
        try:
            database.executescript(self.tables + rows)
            return sorted(database.execute(query).fetchall(), key=repr)
        finally:
            database.close()

    def query(self, name: str, ask: str, solution: str, mistake: str) -> EnvironmentTask:
        """Ask for a query; the error of one that fails names what there is."""

        def runs(output: str) -> Check:
            try:
                found = self.answer(query_in(output), self.rows)
            except (sqlite3.Error, sqlite3.Warning) as error:
                return False, self.error.format(error)
            return found == self.answer(solution, self.rows), "The query returns other rows than asked for."

        async def hidden(output: str) -> bool:
            found = self.answer(query_in(output), self.hidden_rows)
            return found == self.answer(solution, self.hidden_rows)

        criterion = undescribed("query", "function", function=runs)
        prompt = f"Write one SQLite query for {self.what}. {ask} Reply with the query alone."
        return EnvironmentTask(BenchTask(name, prompt, (criterion,), hidden), solution, mistake)


def query_in(output: str) -> str:
    """Return the query of a reply, without a fence around it."""
    fenced = re.search(r"```\w*\n(.*?)```", output, re.DOTALL)
    return (fenced[1] if fenced else output).strip().rstrip(";")


BEES = Database(
    "the database of our beekeepers",
    """\
CREATE TABLE im_hv (hv_no INTEGER, loc_nm TEXT, frm_ct INTEGER, qn_yr INTEGER, st TEXT);
CREATE TABLE im_hvst (hv_no INTEGER, g_net INTEGER, jar_ct INTEGER, sort_cd TEXT, bkr TEXT);
""",
    """\
INSERT INTO im_hv VALUES (1, 'Mill', 10, 2024, 'ok'), (2, 'Mill', 8, 2025, 'weak'),
  (3, 'Orchard', 12, 2023, 'ok'), (4, 'Quarry', 9, 2025, 'ok'), (5, 'Orchard', 11, 2024, 'dead');
INSERT INTO im_hvst VALUES (1, 9500, 19, 'lime', 'Ada'), (1, 4000, 8, 'rape', 'Ben'),
  (3, 12000, 24, 'lime', 'Ada'), (4, 3500, 7, 'fir', 'Cleo'), (2, 1500, 3, 'rape', 'Ben');
""",
    """\
INSERT INTO im_hv VALUES (11, 'Mill', 7, 2023, 'weak'), (12, 'Quarry', 13, 2025, 'ok'),
  (13, 'Mill', 9, 2025, 'ok'), (14, 'Orchard', 6, 2022, 'weak');
INSERT INTO im_hvst VALUES (12, 8000, 16, 'fir', 'Cleo'), (13, 500, 1, 'lime', 'Ben'),
  (14, 6000, 12, 'rape', 'Ada');
""",
    (
        "{}. The tables are im_hv(hv_no, loc_nm, frm_ct, qn_yr, st) "
        "and im_hvst(hv_no, g_net, jar_ct, sort_cd, bkr)."
    ),
)
WORKSHOP = Database(
    "the database of our bicycle workshop",
    """\
CREATE TABLE ws_jb (jb_no INTEGER, cst TEXT, frm_cd TEXT, hrs REAL, eur_c INTEGER);
CREATE TABLE ws_prt (prt_id INTEGER, lbl TEXT, on_hnd INTEGER, min_q INTEGER, shlf TEXT);
""",
    """\
INSERT INTO ws_jb VALUES (1, 'Ives', 'MTB', 2.5, 12000), (2, 'Omar', 'ROAD', 1.0, 4500),
  (3, 'Ives', 'CITY', 0.5, 2500), (4, 'Petra', 'CITY', 3.0, 14000), (5, 'Omar', 'ROAD', 4.0, 19000);
INSERT INTO ws_prt VALUES (10, 'chain', 4, 6, 'A1'), (11, 'tube', 30, 20, 'A2'), (12, 'saddle', 2, 2, 'B1'),
  (13, 'brake pad', 9, 12, 'B1'), (14, 'bell', 15, 5, 'C3');
""",
    """\
INSERT INTO ws_jb VALUES (6, 'Petra', 'MTB', 1.5, 7000), (7, 'Ives', 'ROAD', 5.5, 26000),
  (8, 'Lin', 'CITY', 2.0, 9000);
INSERT INTO ws_prt VALUES (20, 'chain', 8, 6, 'B1'), (21, 'bell', 1, 5, 'A1'), (22, 'tube', 19, 20, 'A2');
""",
    ("{} (known here: ws_jb: jb_no, cst, frm_cd, hrs, eur_c; ws_prt: prt_id, lbl, on_hnd, min_q, shlf)"),
)


QUERIES = (
    BEES.query("query-mill", "Which hives stand at Mill? Return their numbers.",
          "SELECT hv_no FROM im_hv WHERE loc_nm = 'Mill'",
          "SELECT number FROM hives WHERE location = 'Mill'"),
    BEES.query("query-count", "How many hives are there?", "SELECT COUNT(*) FROM im_hv",
          "SELECT COUNT(*) FROM hives"),
    BEES.query("query-places", "List the places where hives stand, each once.",
          "SELECT DISTINCT loc_nm FROM im_hv", "SELECT DISTINCT place FROM hives"),
    BEES.query("query-frames", "How many frames do all hives have together?",
          "SELECT SUM(frm_ct) FROM im_hv", "SELECT SUM(frames) FROM hives"),
    BEES.query("query-queens", "Return the numbers of the hives whose queen is of 2025.",
          "SELECT hv_no FROM im_hv WHERE qn_yr = 2025", "SELECT id FROM hives WHERE queen_year = 2025"),
    BEES.query("query-most", "What is the highest number of frames that a hive has?",
          "SELECT MAX(frm_ct) FROM im_hv", "SELECT MAX(frame_count) FROM hives"),
    BEES.query("query-weak", "Return the numbers of the hives whose status is 'weak'.",
          "SELECT hv_no FROM im_hv WHERE st = 'weak'", "SELECT hive_id FROM hives WHERE status = 'weak'"),
    BEES.query("query-jars", "How many jars were filled in all harvests together?",
          "SELECT SUM(jar_ct) FROM im_hvst", "SELECT SUM(jars) FROM harvests"),
    BEES.query("query-ada", "How many harvests did the beekeeper Ada bring in?",
          "SELECT COUNT(*) FROM im_hvst WHERE bkr = 'Ada'",
          "SELECT COUNT(*) FROM harvests WHERE beekeeper = 'Ada'"),
    BEES.query("query-grams", "What is the net weight of all harvests together, in grams?",
          "SELECT SUM(g_net) FROM im_hvst", "SELECT SUM(net_weight) FROM harvests"),
    BEES.query("query-lime", "Return the hive numbers of the harvests of the sort 'lime'.",
          "SELECT hv_no FROM im_hvst WHERE sort_cd = 'lime'",
          "SELECT hive_id FROM harvests WHERE sort = 'lime'"),
    BEES.query("query-sorts", "List the sorts of honey that were harvested, each once.",
          "SELECT DISTINCT sort_cd FROM im_hvst", "SELECT DISTINCT sort FROM harvests"),
    BEES.query("query-average", "What is the average number of frames of the hives?",
          "SELECT AVG(frm_ct) FROM im_hv", "SELECT AVG(frames) FROM hives"),
    BEES.query("query-smallest", "What is the lowest net weight of a harvest, in grams?",
          "SELECT MIN(g_net) FROM im_hvst", "SELECT MIN(weight) FROM harvests"),
    BEES.query("query-old", "Return the numbers of the hives whose queen is from before 2024.",
          "SELECT hv_no FROM im_hv WHERE qn_yr < 2024", "SELECT id FROM hives WHERE queen_year < 2024"),
    BEES.query("query-large", "How many hives have more than 9 frames?",
          "SELECT COUNT(*) FROM im_hv WHERE frm_ct > 9", "SELECT COUNT(*) FROM hives WHERE frames > 9"),
    BEES.query("query-keepers", "List the beekeepers who brought in a harvest, each once.",
          "SELECT DISTINCT bkr FROM im_hvst", "SELECT DISTINCT beekeeper FROM harvests"),
    BEES.query("query-ben", "How many jars did the beekeeper Ben fill in all?",
          "SELECT SUM(jar_ct) FROM im_hvst WHERE bkr = 'Ben'",
          "SELECT SUM(jars) FROM harvests WHERE keeper = 'Ben'"),
    BEES.query("query-orchard", "How many hives stand at Orchard?",
          "SELECT COUNT(*) FROM im_hv WHERE loc_nm = 'Orchard'",
          "SELECT COUNT(*) FROM hives WHERE location = 'Orchard'"),
    BEES.query("query-heavy",
          "Return the hive numbers of the harvests with a net weight of more than 5000 grams.",
          "SELECT hv_no FROM im_hvst WHERE g_net > 5000", "SELECT hive_id FROM harvests WHERE weight > 5000"),
)  # fmt: skip


JOBS = (
    WORKSHOP.query("job-ives", "Which jobs are those of the customer Ives? Return their numbers.",
          "SELECT jb_no FROM ws_jb WHERE cst = 'Ives'",
          "SELECT id FROM jobs WHERE customer = 'Ives'"),
    WORKSHOP.query("job-jobs", "How many jobs are there?",
          "SELECT COUNT(*) FROM ws_jb",
          "SELECT COUNT(*) FROM jobs"),
    WORKSHOP.query("job-customers", "List the customers who had a job done, each once.",
          "SELECT DISTINCT cst FROM ws_jb",
          "SELECT DISTINCT customer FROM jobs"),
    WORKSHOP.query("job-hours", "How many hours did all jobs take together?",
          "SELECT SUM(hrs) FROM ws_jb",
          "SELECT SUM(hours) FROM jobs"),
    WORKSHOP.query("job-city", "Return the numbers of the jobs on bicycles of the kind 'CITY'.",
          "SELECT jb_no FROM ws_jb WHERE frm_cd = 'CITY'",
          "SELECT id FROM jobs WHERE kind = 'CITY'"),
    WORKSHOP.query("job-longest", "How many hours did the longest job take?",
          "SELECT MAX(hrs) FROM ws_jb",
          "SELECT MAX(hours) FROM jobs"),
    WORKSHOP.query("job-cents", "What did all jobs cost together, in cents?",
          "SELECT SUM(eur_c) FROM ws_jb",
          "SELECT SUM(price) FROM jobs"),
    WORKSHOP.query("job-cheap", "Return the numbers of the jobs that cost less than 5000 cents.",
          "SELECT jb_no FROM ws_jb WHERE eur_c < 5000",
          "SELECT id FROM jobs WHERE price < 5000"),
    WORKSHOP.query("job-omar", "How many jobs were done for the customer Omar?",
          "SELECT COUNT(*) FROM ws_jb WHERE cst = 'Omar'",
          "SELECT COUNT(*) FROM jobs WHERE customer = 'Omar'"),
    WORKSHOP.query("job-kinds", "List the kinds of bicycles that were repaired, each once.",
          "SELECT DISTINCT frm_cd FROM ws_jb",
          "SELECT DISTINCT kind FROM jobs"),
    WORKSHOP.query("job-mean", "How many hours does a job take on average?",
          "SELECT AVG(hrs) FROM ws_jb",
          "SELECT AVG(hours) FROM jobs"),
    WORKSHOP.query("job-long", "How many jobs took more than 2 hours?",
          "SELECT COUNT(*) FROM ws_jb WHERE hrs > 2",
          "SELECT COUNT(*) FROM jobs WHERE hours > 2"),
    WORKSHOP.query("job-parts", "How many different parts does the workshop have?",
          "SELECT COUNT(*) FROM ws_prt",
          "SELECT COUNT(*) FROM parts"),
    WORKSHOP.query("job-stock", "How many pieces of all parts are in stock together?",
          "SELECT SUM(on_hnd) FROM ws_prt",
          "SELECT SUM(stock) FROM parts"),
    WORKSHOP.query("job-shelf", "Return the names of the parts on the shelf B1.",
          "SELECT lbl FROM ws_prt WHERE shlf = 'B1'",
          "SELECT name FROM parts WHERE shelf = 'B1'"),
    WORKSHOP.query("job-low",
          "Return the names of the parts of which fewer are in stock than there should be at least.",
          "SELECT lbl FROM ws_prt WHERE on_hnd < min_q",
          "SELECT name FROM parts WHERE stock < minimum"),
    WORKSHOP.query("job-shelves", "List the shelves on which parts lie, each once.",
          "SELECT DISTINCT shlf FROM ws_prt",
          "SELECT DISTINCT shelf FROM parts"),
    WORKSHOP.query("job-bell", "How many bells (the part 'bell') are in stock?",
          "SELECT on_hnd FROM ws_prt WHERE lbl = 'bell'",
          "SELECT stock FROM parts WHERE name = 'bell'"),
    WORKSHOP.query("job-most", "What is the highest number in stock of a part?",
          "SELECT MAX(on_hnd) FROM ws_prt",
          "SELECT MAX(stock) FROM parts"),
    WORKSHOP.query("job-many", "Return the names of the parts of which more than 10 are in stock.",
          "SELECT lbl FROM ws_prt WHERE on_hnd > 10",
          "SELECT name FROM parts WHERE stock > 10"),
)  # fmt: skip


# --- functions of a program in which every function returns a pair ------------------------------------------


def paired(name: str, parameters: str, what: str, expression: str, *calls: str) -> EnvironmentTask:
    """Ask for a function of the program, which returns `(True, value)` as all its functions do.

    The last of the calls, each given by its arguments, is hidden.
    """
    names = parameters.split(", ")
    values = {
        f"{name}({call})": (True, eval(expression, dict(zip(names, eval(f"({call},)"), strict=True))))  # noqa: S307 (written below)
        for call in calls
    }
    seen = dict(list(values.items())[:-1])
    ask = f"Write the Python function {name}({parameters}) of our stock program, {what}"
    task = BenchTask(f"pair-{name}", ask, (calls_criterion(seen),), passes(calls_criterion(values)))
    body = f"def {name}({parameters}):\n    return"
    return EnvironmentTask(task, f"{body} (True, {expression})", f"{body} {expression}")


PAIRS = (
    paired("total", "price, count", "which multiplies a price by a count.", "price * count",
           "3, 4", "5, 0", "7, 2"),
    paired("label", "name", "which returns a name in upper case.", "name.upper()", "'oak'", "'Fir'", "'a b'"),
    paired("shelf", "number", "which returns the text S followed by the number.", "f'S{number}'",
           "3", "12", "0"),
    paired("half", "amount", "which returns half of an amount, rounded down.", "amount // 2", "8", "5", "1"),
    paired("joined", "first, second", "which joins two texts with a hyphen.", "f'{first}-{second}'",
           "'a', 'b'", "'x', ''", "'no', 'on'"),
    paired("is_low", "stock", "which says whether a stock is below 5.", "stock < 5", "4", "5", "0"),
    paired("largest", "amounts", "which returns the largest of the amounts in a list.", "max(amounts)",
           "[3, 9, 4]", "[1]", "[-2, -7]"),
    paired("boxes", "items", "which returns how many boxes of 10 hold the items, rounded up.",
           "-(-items // 10)", "25", "10", "1"),
    paired("short", "text", "which returns the first 3 characters of a text.", "text[:3]",
           "'plank'", "'ab'", "''"),
    paired("left", "stock, sold", "which subtracts what was sold from a stock.", "stock - sold",
           "9, 4", "3, 3", "10, 1"),
    paired("sum_of", "amounts", "which adds up the amounts in a list.", "sum(amounts)",
           "[1, 2, 3]", "[]", "[7]"),
    paired("size", "items", "which returns how many items a list has.", "len(items)",
           "[1, 2]", "[]", "['a']"),
    paired("ordered", "codes", "which returns the codes of a list in alphabetical order.", "sorted(codes)",
           "['b', 'a']", "[]", "['x', 'c', 'm']"),
    paired("has", "codes, code", "which says whether a list of codes has a code.", "code in codes",
           "['a', 'b'], 'b'", "[], 'a'", "['x'], 'y'"),
    paired("double", "count", "which doubles a count.", "count * 2", "4", "0", "-3"),
    paired("trimmed", "text", "which returns a text without the white space around it.", "text.strip()",
           "' oak '", "'fir'", "'  '"),
    paired("first_of", "items", "which returns the first item of a list.", "items[0]",
           "[5, 6]", "['a']", "[0, 1]"),
    paired("cents", "euros", "which converts whole euros to cents.", "euros * 100", "3", "0", "12"),
    paired("flipped", "text", "which returns a text with its characters in reverse order.", "text[::-1]",
           "'abc'", "''", "'oak'"),
    paired("rest", "items, size", "which returns the remainder of items divided by a size.", "items % size",
           "17, 5", "9, 3", "4, 7"),
)  # fmt: skip


# --- notices in the style of a person -----------------------------------------------------------------------

SIGNATURE = "The caretaker, ext. 12"


def styled(output: str) -> bool:
    """Return whether a notice begins and ends as the caretaker wants it, without an exclamation mark."""
    lines = lines_of(output) or [""]
    return lines[0].startswith("NOTICE: ") and lines[-1] == SIGNATURE and "!" not in output


def notice(name: str, what: str, heading: str, body: str) -> EnvironmentTask:
    """Ask for a notice; no criterion asks for its style."""

    async def hidden(output: str) -> bool:
        return styled(output)

    prompt = f"Write a short notice for the people in our house: {what}"
    task = BenchTask(f"notice-{name}", prompt, (undescribed("length", "words", at_least=5),), hidden)
    return EnvironmentTask(
        task, f"NOTICE: {heading}\n{body}\n{SIGNATURE}", f"Dear residents,\n\n{body}\n\nThank you!"
    )


NOTICES = (
    notice("lift", "the lift is out of order until Friday.", "Lift",
           "The lift is out of order until Friday."),
    notice("water", "there is no water on Monday from 8 to 10.", "Water",
           "There is no water on Monday from 8 to 10."),
    notice("bikes", "bicycles must not stand in the hall.", "Bicycles",
           "Please keep bicycles out of the hall."),
    notice("paint", "the stairs are painted on Tuesday.", "Stairs", "The stairs are painted on Tuesday."),
    notice("keys", "a key was found in the yard.", "Key", "A key was found in the yard."),
    notice("waste", "waste paper is now collected on Wednesdays.", "Waste paper",
           "Waste paper is now collected on Wednesdays."),
    notice("heating", "the heating is serviced on 4 October.", "Heating",
           "The heating is serviced on 4 October."),
    notice("parcel", "parcels are kept at the office until 6 pm.", "Parcels",
           "Parcels are kept at the office until 6 pm."),
    notice("door", "the front door must be locked at night.", "Front door",
           "Please lock the front door at night."),
    notice("party", "there is a summer party in the yard on 12 July.", "Summer party",
           "There is a summer party in the yard on 12 July."),
    notice("garage", "the garage is cleaned on Thursday; please move your car.", "Garage",
           "The garage is cleaned on Thursday. Please move your car."),
    notice("noise", "drilling is allowed until 7 pm only.", "Noise", "Drilling is allowed until 7 pm only."),
    notice("lamp", "the lamp on floor 2 is broken and will be replaced.", "Lamp",
           "The lamp on floor 2 is broken and will be replaced."),
    notice("laundry", "the laundry room has a new dryer.", "Laundry room",
           "The laundry room has a new dryer."),
    notice("snow", "the way to the gate is slippery; please be careful.", "Snow",
           "The way to the gate is slippery. Please be careful."),
    notice("internet", "the internet is down on Sunday morning.", "Internet",
           "The internet is down on Sunday morning."),
    notice("meeting", "the meeting of the owners is on 3 May at 6 pm.", "Meeting",
           "The meeting of the owners is on 3 May at 6 pm."),
    notice("cat", "a grey cat is missing from floor 1.", "Cat", "A grey cat is missing from floor 1."),
    notice("roof", "the roof is repaired next week; it may be loud.", "Roof",
           "The roof is repaired next week. It may be loud."),
    notice("mail", "the letter boxes get new locks on Monday.", "Letter boxes",
           "The letter boxes get new locks on Monday."),
)  # fmt: skip


# --- captions in the style of a person ----------------------------------------------------------------------

_CAPTION = re.compile(r"\[\d{4}\] [^\n]*[^\n.] \(Archive, box 4\)")


def caption(name: str, year: int, what: str) -> EnvironmentTask:
    """Ask for the caption of a photo; no criterion asks for its style."""

    async def hidden(output: str) -> bool:
        text = output.strip()
        return _CAPTION.fullmatch(text) is not None and text.startswith(f"[{year}]")

    prompt = f"Write a caption for a photo of {year} in our museum: {what}."
    task = BenchTask(f"caption-{name}", prompt, (undescribed("length", "words", at_least=4),), hidden)
    text = f"{what[0].upper()}{what[1:]}"
    return EnvironmentTask(task, f"[{year}] {text} (Archive, box 4)", f"{text}, {year}.")


CAPTIONS = (
    caption("market", 1931, "the market square on a winter morning"),
    caption("tram", 1904, "the first electric tram on the bridge"),
    caption("baker", 1926, "a baker in front of her shop"),
    caption("flood", 1953, "a boat in the flooded main street"),
    caption("school", 1912, "a class of forty girls in the school yard"),
    caption("harvest", 1938, "farmers at the end of the harvest"),
    caption("station", 1889, "the station a week after its opening"),
    caption("choir", 1961, "the choir of the dockers in the town hall"),
    caption("mill", 1919, "the steam mill by the canal"),
    caption("skaters", 1947, "skaters on the frozen harbour"),
    caption("cinema", 1958, "people in line for the cinema"),
    caption("bridge", 1933, "workers on the new bridge at noon"),
    caption("doctor", 1908, "the doctor with his horse and cart"),
    caption("football", 1949, "the football team after its victory"),
    caption("printer", 1922, "two printers beside their press"),
    caption("lighthouse", 1896, "the keeper on the stairs of the lighthouse"),
    caption("strike", 1920, "a crowd at the gate of the shipyard"),
    caption("wedding", 1935, "a wedding party in front of the church"),
    caption("balloon", 1910, "a balloon above the park"),
    caption("library", 1965, "children in the new library"),
)


# --- replies in the style of a shop -------------------------------------------------------------------------


def reply(name: str, question: str, answer: str) -> EnvironmentTask:
    """Ask for a reply to a customer; no criterion asks for its style."""

    async def hidden(output: str) -> bool:
        text = " ".join(output.split())
        is_styled = text.startswith("Thanks for asking. ") and text.endswith(" Yours, the Otter team")
        return is_styled and "!" not in text

    prompt = f"Reply in one or two sentences to a customer of our bicycle shop who asks: {question}"
    task = BenchTask(f"reply-{name}", prompt, (undescribed("length", "words", at_least=6),), hidden)
    return EnvironmentTask(task, f"Thanks for asking. {answer} Yours, the Otter team", f"Hello! {answer}")


REPLIES = (
    reply("open", "Are you open on Sundays?", "We are open on Sundays from 10 to 4."),
    reply("tubes", "Do you sell inner tubes?", "We have inner tubes for all common wheels."),
    reply("repair", "How long does a repair take?", "Most repairs take two days."),
    reply("rent", "Can I rent a bicycle for a week?", "You can rent a bicycle for up to a month."),
    reply("child", "Do you have bicycles for children?", "We have bicycles from 12 inches on."),
    reply("helmet", "Can I try on a helmet?", "You can try on every helmet in the shop."),
    reply("used", "Do you buy used bicycles?", "We buy used bicycles on Fridays."),
    reply("electric", "Do you repair electric bicycles?", "We repair electric bicycles of all makes."),
    reply("lock", "Which lock is the safest?", "A folding lock of hardened steel is the safest."),
    reply("light", "Are lights included?", "Every new bicycle has lights."),
    reply("card", "Can I pay by card?", "You can pay by card or in cash."),
    reply("send", "Do you send parts by mail?", "We send parts within three days."),
    reply("warranty", "How long is the warranty?", "The warranty is two years."),
    reply("pump", "May I use your pump?", "The pump in front of the shop is free."),
    reply("paint", "Can you paint my frame?", "We paint frames in twenty colours."),
    reply("course", "Do you teach repairs?", "There is a course every first Monday."),
    reply("cargo", "Do you have cargo bicycles?", "We have two cargo bicycles to try."),
    reply("tyres", "When should I change tyres?", "Change tyres when the profile is gone."),
    reply("return", "Can I return a saddle?", "You can return a saddle within two weeks."),
    reply("club", "Is there a club for riders?", "The club meets here on Wednesdays."),
)


ENVIRONMENTS: dict[str, tuple[EnvironmentTask, ...]] = {
    "queries": QUERIES,
    "jobs": JOBS,
    "pairs": PAIRS,
    "notices": NOTICES,
    "captions": CAPTIONS,
    "replies": REPLIES,
}
CORRECTED = ("notices", "captions", "replies")
"""Families in which a person corrects wrong answers."""
