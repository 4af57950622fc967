"""Tasks whose form only the checks state: three with patterns, two without, and four for tuning.

Their content is easy for small models, and what is right for each input is known. So an answer may fail the
checks, pass them and be right, or pass them and be wrong. All were written before any model had seen them;
nothing may be tuned on the reported families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _tasks import TaskFamily, undescribed
from small_tasks import lines_of

from redraft.errors import OutputError
from redraft.text.replies import json_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _tasks import Hidden

    from redraft import QualityCriterion

ONE_OBJECT = "One JSON object, and nothing else."
TEXT: dict[str, Any] = {"type": "string"}


def fields(**kinds: Mapping[str, Any]) -> QualityCriterion:
    """Ask for an object with these keys and no others."""
    schema = {"type": "object", "properties": kinds, "required": list(kinds), "additionalProperties": False}
    return undescribed("fields", "schema", schema=schema)


def family(
    name: str,
    description: str,
    expected_output: str,
    criteria: tuple[QualityCriterion, ...],
    answers: Mapping[str, Any],
    is_right: Callable[[str, Any], bool],
) -> TaskFamily:
    """Return a family whose inputs are messages, each with what `is_right` compares an output with."""

    def hidden(inputs: Mapping[str, str]) -> Hidden:
        async def check(output: str) -> bool:
            return is_right(output, answers[inputs["message"]])

        return check

    inputs = tuple({"message": message} for message in answers)
    description = f"{description}\n\nThe message: {{message}}"
    return TaskFamily(name, description, expected_output, criteria, inputs, hidden)


def holds(output: str, expected: dict[str, Any]) -> bool:
    """Return whether an output is this JSON object; case, articles and the order of lists don't count."""
    try:
        return _plain(json_of(output)) == _plain(expected)
    except OutputError:
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(str, map(_plain, value)))
    return value.strip().casefold().removeprefix("the ") if isinstance(value, str) else value


def by_keys(keys: str, rows: Mapping[str, tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
    """Return the objects of rows of values, each by its message."""
    return {message: dict(zip(keys.split(), values, strict=True)) for message, values in rows.items()}


# --- repairs: JSON with a choice, a range and a list --------------------------------------------------------

REPAIRS = family(
    "repairs",
    "Turn the message of a tenant into a job for our repair service as JSON.",
    ONE_OBJECT,
    (
        fields(
            trade={"enum": ["water", "heating", "power", "locks"]},
            floor={"type": "integer", "minimum": 0, "maximum": 30},
            rooms={"type": "array", "items": TEXT, "minItems": 1, "maxItems": 3},
        ),
    ),
    by_keys(
        "trade floor rooms",
        {
            "The tap in our kitchen drips all night, on floor 3.": ("water", 3, ["kitchen"]),
            "Floor 7 here. The radiators in the bedroom and the hall stay cold.":
                ("heating", 7, ["bedroom", "hall"]),
            "No socket works in the office on floor 12 since this morning.": ("power", 12, ["office"]),
            "I can't turn my key in the lock of the cellar. It is on floor 0.": ("locks", 0, ["cellar"]),
            "Water runs down the wall of the bathroom; we live on floor 5.": ("water", 5, ["bathroom"]),
            "On floor 2 the electric lights in the hall and the kitchen went out.":
                ("power", 2, ["hall", "kitchen"]),
            "The radiator in the nursery is cold, and the baby sleeps there! Floor 9.":
                ("heating", 9, ["nursery"]),
            "The lock of the garage is jammed. Floor 1.": ("locks", 1, ["garage"]),
            "The shower in the bathroom does not drain, floor 14.": ("water", 14, ["bathroom"]),
            "The heating is off in the living room. We are on floor 6.": ("heating", 6, ["living room"]),
            "Sparks came out of a socket in the laundry on floor 4.": ("power", 4, ["laundry"]),
            "Someone broke the locks of the office and of the library, both on floor 11.":
                ("locks", 11, ["office", "library"]),
            "A water pipe leaks in the attic. That is floor 8.": ("water", 8, ["attic"]),
            "It is freezing in the studio on floor 10 because the radiator is broken.":
                ("heating", 10, ["studio"]),
            "There is no electricity in the kitchen and the bedroom; floor 13.":
                ("power", 13, ["kitchen", "bedroom"]),
            "My key broke off in the lock of the bedroom. Floor 15.": ("locks", 15, ["bedroom"]),
            "The sink in the laundry is blocked and water spills over, floor 2.": ("water", 2, ["laundry"]),
            "Floor 16. The radiators of the bathroom and the study don't get warm.":
                ("heating", 16, ["bathroom", "study"]),
            "The power has been off in the hall since noon. Floor 5.": ("power", 5, ["hall"]),
            "The lock of the storeroom on floor 20 won't close.": ("locks", 20, ["storeroom"]),
        },
    ),
    holds,
)  # fmt: skip


# --- errands: bullets with counts ---------------------------------------------------------------------------


def lists(output: str, words: tuple[str, ...]) -> bool:
    """Return whether each line of an output names another of these words."""
    named = [[word for word in words if word in line.casefold()] for line in lines_of(output)]
    return sorted(named) == sorted([word] for word in words)


ERRANDS = family(
    "errands",
    "Write down what has to be done after this message.",
    "A short list, and nothing else.",
    (
        undescribed("bullets", "bullets", at_least=3, at_most=3),
        undescribed("lines", "lines", at_most=3),
        undescribed("words", "words", at_most=10),
    ),
    {
        "We leave on Friday. Please water the plants, feed the cat and lock the shed before you go home.":
            ("plants", "cat", "shed"),
        "Hello Jo, can you buy milk, post the letter for my aunt and return the drill to Ben? I'm in bed.":
            ("milk", "letter", "drill"),
        "For the party on Saturday somebody must bake a cake, hang up the lamps and invite the cousins.":
            ("cake", "lamps", "cousins"),
        "Before the audit we need to count the stock, print the contracts and clean the archive.":
            ("stock", "contracts", "archive"),
        "The guests come at six, so vacuum the carpet, set the table and chill the wine. I will cook.":
            ("carpet", "table", "wine"),
        "Hi team, the trade fair is near: book the hotel, order the banners and pack the samples.":
            ("hotel", "banners", "samples"),
        "The car goes to the garage tomorrow. Empty the trunk, test the brakes and get the insurance card.":
            ("trunk", "brakes", "insurance"),
        "Winter is coming, and there is a lot to do: stack the firewood, clear the gutter, cover the roses.":
            ("firewood", "gutter", "roses"),
        "Mia starts on Monday. Prepare her laptop, order a badge and reserve a desk by the window.":
            ("laptop", "badge", "desk"),
        "I'm at the airport. Could you cancel the newspaper, close the windows and call the plumber?":
            ("newspaper", "windows", "plumber"),
        "For the school trip, collect the money, rent the bus and copy the map of the park.":
            ("money", "bus", "map"),
        "The flat is nearly sold. We still have to paint the fence, repair the doorbell and remove the sofa.":
            ("fence", "doorbell", "sofa"),
        "Please sweep the yard, fill the bird bath and mow the lawn while it is dry.":
            ("yard", "bath", "lawn"),
        "Grandma moves in next week. Oil the hinges, wash the curtains and carry the bookcase upstairs.":
            ("hinges", "curtains", "bookcase"),
        "After the concert: fold the chairs, return the keys to the porter and switch off the heating.":
            ("chairs", "keys", "heating"),
        "Sam, the boat needs care. Scrub the deck, dry the sails and replace the rope at the bow.":
            ("deck", "sails", "rope"),
        "To open the kiosk, unlock the shutter, start the coffee machine and put out the postcards.":
            ("shutter", "coffee", "postcards"),
        "The exam is on Thursday. Sharpen the pencils, number the sheets and wind the clock, please.":
            ("pencils", "sheets", "clock"),
        "Tonight I work late. Bath the dog, heat the soup and read a story to the children.":
            ("dog", "soup", "story"),
        "We film tomorrow at dawn: charge the cameras, iron the costumes and fuel the generator.":
            ("cameras", "costumes", "generator"),
    },
    lists,
)  # fmt: skip


# --- flights: a date-time, a flight number and a seat -------------------------------------------------------

FLIGHTS = family(
    "flights",
    "Turn the message of a passenger into a booking as JSON.",
    ONE_OBJECT,
    (
        fields(
            passenger=TEXT,
            flight=TEXT | {"pattern": r"^[A-Z]{2}\d{2,4}$"},
            departure=TEXT | {"pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}$"},
            seat=TEXT | {"pattern": "^[0-9]{1,2}[A-F]$"},
        ),
    ),
    by_keys(
        "passenger flight departure seat",
        {
            "Ana Ruiz here. I fly with LH 402 on 5 May 2026 at 9:10 and would like seat 12 C.":
                ("Ana Ruiz", "LH402", "2026-05-05T09:10", "12C"),
            "My name is Paul Weber, flight BA 117, 14 June 2026, 18:45, seat 3 A please.":
                ("Paul Weber", "BA117", "2026-06-14T18:45", "3A"),
            "Seat 21 F for Noor Haddad on AF 1080. It leaves on 2 March 2026 at 7:30.":
                ("Noor Haddad", "AF1080", "2026-03-02T07:30", "21F"),
            "Kenji Mori, flight number JL 44, on 23 July 2026 at 11:25, row 30, seat D.":
                ("Kenji Mori", "JL44", "2026-07-23T11:25", "30D"),
            "I booked SK 1415 for 9 January 2026, 6:05. Put me, Elin Berg, on seat 7 B.":
                ("Elin Berg", "SK1415", "2026-01-09T06:05", "7B"),
            "Olu Ade wants to sit on 15 E when OS 201 takes off on 30 August 2026 at 20:15.":
                ("Olu Ade", "OS201", "2026-08-30T20:15", "15E"),
            "IB 3170 on 11 April 2026, 13:50. Seat 9 A. Passenger: Lucia Gomez.":
                ("Lucia Gomez", "IB3170", "2026-04-11T13:50", "9A"),
            "Could I have seat 18 D on KL 1009 on 1 December 2026 at 8:00? Tim de Vries":
                ("Tim de Vries", "KL1009", "2026-12-01T08:00", "18D"),
            "This is Maja Novak. The flight is LX 92 on 17 October 2026, 22:40; the seat is 5 C.":
                ("Maja Novak", "LX92", "2026-10-17T22:40", "5C"),
            "For Ravi Patel: 26 B, AI 131, the 8th of February 2026 at 5:35.":
                ("Ravi Patel", "AI131", "2026-02-08T05:35", "26B"),
            "Good evening, Chloe Martin, AZ 610, 19 September 2026 at 15:20, 2 F if it is free.":
                ("Chloe Martin", "AZ610", "2026-09-19T15:20", "2F"),
            "TP 1357 leaves on 27 November 2026 at 10:55. I am Rui Costa and take 11 A.":
                ("Rui Costa", "TP1357", "2026-11-27T10:55", "11A"),
            "Seat 4 D, please, on EI 154 of 6 June 2026, 12:00. Thanks, Sean Walsh":
                ("Sean Walsh", "EI154", "2026-06-06T12:00", "4D"),
            "Eva Lund flies with AY 806 on 13 May 2026 at 16:30. She likes seat 22 E.":
                ("Eva Lund", "AY806", "2026-05-13T16:30", "22E"),
            "Please note: LO 279, 21 March 2026, 19:05, Piotr Zajac, 16 C.":
                ("Piotr Zajac", "LO279", "2026-03-21T19:05", "16C"),
            "I, Dora Kiss, need seat 8 F on W6 ... no, sorry, on RO 341 on 4 July 2026 at 14:15.":
                ("Dora Kiss", "RO341", "2026-07-04T14:15", "8F"),
            "Flight AC 855, 25 December 2026, 17:10. A window seat, 33 A, for Liam Roy.":
                ("Liam Roy", "AC855", "2026-12-25T17:10", "33A"),
            "It's Zeynep Kaya. TK 1592 on 10 October 2026 at 23:55, and I want 14 B.":
                ("Zeynep Kaya", "TK1592", "2026-10-10T23:55", "14B"),
            "On 16 August 2026 at 9:45 SQ 26 departs with Mei Tan on seat 29 C.":
                ("Mei Tan", "SQ26", "2026-08-16T09:45", "29C"),
            "Jonas Keller asks for 6 E. His flight, DE 1504, is on 28 April 2026, 4:20.":
                ("Jonas Keller", "DE1504", "2026-04-28T04:20", "6E"),
        },
    ),
    holds,
)  # fmt: skip


# --- invoices: an invoice number, an amount with two decimals and a country code ----------------------------

INVOICES = family(
    "invoices",
    "Turn the message of an accountant into an entry for our books as JSON.",
    ONE_OBJECT,
    (
        fields(invoice=TEXT, amount=TEXT, country=TEXT),
        undescribed("invoice", "regex", path="/invoice", pattern=r"^INV-20\d\d-\d{4}$"),
        undescribed("amount", "regex", path="/amount", pattern=r"^\d+\.\d{2}$"),
        undescribed("country", "regex", path="/country", pattern="^[A-Z]{2}$"),
    ),
    by_keys(
        "invoice amount country",
        {
            "Invoice 2024/0042 is about 19.5 euros and goes to a customer in Spain.":
                ("INV-2024-0042", "19.50", "ES"),
            "No. 0117 of 2025: 240 euros, Germany.": ("INV-2025-0117", "240.00", "DE"),
            "We billed 75.25 to France, invoice number 1203 from 2023.": ("INV-2023-1203", "75.25", "FR"),
            "Please book 8 euros for Italy. It is invoice 0009 of the year 2026.":
                ("INV-2026-0009", "8.00", "IT"),
            "Japan paid 1200 for invoice 3310 of 2024.": ("INV-2024-3310", "1200.00", "JP"),
            "The invoice 2025/0561 over 64.9 was sent to Poland.": ("INV-2025-0561", "64.90", "PL"),
            "For our client in Sweden: 2022, number 4407, sum 310.": ("INV-2022-4407", "310.00", "SE"),
            "Norway again, 99.99 this time, invoice 0785 of 2026.": ("INV-2026-0785", "99.99", "NO"),
            "Number 6120 of 2023 amounts to 45.6 and is for Brazil.": ("INV-2023-6120", "45.60", "BR"),
            "500 from Canada for the invoice with the number 0038, year 2025.":
                ("INV-2025-0038", "500.00", "CA"),
            "Invoice 2024/7714, Portugal, 12.75 in all.": ("INV-2024-7714", "12.75", "PT"),
            "I sent 0203 of 2026 to Greece; they owe us 33 euros.": ("INV-2026-0203", "33.00", "GR"),
            "Enter 150.4 for Ireland, please, invoice 2956 of 2022.": ("INV-2022-2956", "150.40", "IE"),
            "Finland: invoice 1088 from 2025, total 87.": ("INV-2025-1088", "87.00", "FI"),
            "Here is number 0650 of 2024 for Denmark, 21.35 euros.": ("INV-2024-0650", "21.35", "DK"),
            "A customer in Austria gets invoice 2026/3471 over 7.2.": ("INV-2026-3471", "7.20", "AT"),
            "Our sale to Belgium, 2023, invoice 0094, comes to 1050.": ("INV-2023-0094", "1050.00", "BE"),
            "Invoice 5832 of 2025 says 16.8 and India.": ("INV-2025-5832", "16.80", "IN"),
            "The Netherlands, 405 euros, number 0316 of 2022.": ("INV-2022-0316", "405.00", "NL"),
            "To Mexico we wrote invoice 2024/9005, which is 58.15.": ("INV-2024-9005", "58.15", "MX"),
        },
    ),
    holds,
)  # fmt: skip


# --- shifts: a line with a day and times --------------------------------------------------------------------


def is_entry(output: str, expected: tuple[str, str, str]) -> bool:
    """Return whether a line has the right beginning, the right end and the name of the person."""
    beginning, name, end = expected
    line = output.strip()
    return line.startswith(beginning) and line.endswith(end) and name in line


SHIFTS = family(
    "shifts",
    "Turn this message into an entry for the rota.",
    "The entry, and nothing else.",
    (
        undescribed("lines", "lines", at_most=1),
        undescribed("day", "regex", pattern="^(MON|TUE|WED|THU|FRI|SAT|SUN) "),
        undescribed("times", "regex", pattern=r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$"),
    ),
    {
        "On Tuesday, Ana works in the bakery from 6:00 to 14:30.": ("TUE", "Ana", "06:00-14:30"),
        "Bruno takes the till on Friday, 12:15 until 20:00.": ("FRI", "Bruno", "12:15-20:00"),
        "Can Carla do Monday from 9:00 to 17:30? Yes, she can.": ("MON", "Carla", "09:00-17:30"),
        "Sunday: David, 10:45 to 16:00, at the front desk.": ("SUN", "David", "10:45-16:00"),
        "From 8:30 to 12:00 on Wednesday it is Ella who answers the phone.": ("WED", "Ella", "08:30-12:00"),
        "Felix will be here on Saturday between 13:00 and 21:15.": ("SAT", "Felix", "13:00-21:15"),
        "Thursday's night guard is Greta; she begins at 18:00 and ends at 23:30.":
            ("THU", "Greta", "18:00-23:30"),
        "Hugo starts at 7:45 on Monday and goes home at 15:45.": ("MON", "Hugo", "07:45-15:45"),
        "Let's have Irma on Friday from 5:30 to 11:30, in the kitchen.": ("FRI", "Irma", "05:30-11:30"),
        "Jakob, Wednesday, 14:00 to 22:00, warehouse.": ("WED", "Jakob", "14:00-22:00"),
        "I gave Saturday to Karin: 9:20 to 13:20.": ("SAT", "Karin", "09:20-13:20"),
        "Leo can only come on Sunday, from 15:10 to 19:40.": ("SUN", "Leo", "15:10-19:40"),
        "On Thursday the shop is opened by Marta at 6:30; she stays until 12:30.":
            ("THU", "Marta", "06:30-12:30"),
        "Nils drives the van on Tuesday, 11:00 to 18:45.": ("TUE", "Nils", "11:00-18:45"),
        "Monday evening belongs to Oskar, 17:00 to 23:00.": ("MON", "Oskar", "17:00-23:00"),
        "We need Petra at the bar on Saturday, 19:30 to 23:45.": ("SAT", "Petra", "19:30-23:45"),
        "Rosa swaps with Tom and works on Wednesday from 8:05 to 16:05.": ("WED", "Rosa", "08:05-16:05"),
        "Friday, 7:00 to 10:00, cleaning: that is Stefan.": ("FRI", "Stefan", "07:00-10:00"),
        "Put Tessa down for Sunday, 9:50 to 14:50, please.": ("SUN", "Tessa", "09:50-14:50"),
        "Until 20:30 on Thursday, Viktor is in the library; he comes at 12:30.":
            ("THU", "Viktor", "12:30-20:30"),
    },
    is_entry,
)  # fmt: skip


# --- for tuning only, and never reported: packages, subjects, parcels and visits ----------------------------

PACKAGES = family(
    "packages",
    "Turn the message of a developer into an entry for our registry as JSON.",
    ONE_OBJECT,
    (
        fields(
            name=TEXT | {"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
            version=TEXT | {"pattern": r"^\d+\.\d+\.\d+$"},
            megabytes={"type": "number", "exclusiveMinimum": 0},
            stable={"type": "boolean"},
        ),
    ),
    by_keys(
        "name version megabytes stable",
        {
            "Moon Clock 2.4.1 is stable and has 12 megabytes.": ("moon-clock", "2.4.1", 12, True),
            "Version 0.3.0 of Paint Box isn't stable yet; 3.5 MB.": ("paint-box", "0.3.0", 3.5, False),
            "We released Word Tree 1.0.0, a stable version of 40 MB.": ("word-tree", "1.0.0", 40, True),
            "Beta of Quick Sort Kit, 3.1.4, 0.8 MB, not stable.": ("quick-sort-kit", "3.1.4", 0.8, False),
            "Tide Table is now at 5.12.0, stable, 7 MB.": ("tide-table", "5.12.0", 7, True),
            "Bird Call 0.9.7: unstable, 22 MB of sounds.": ("bird-call", "0.9.7", 22, False),
            "Please add Tax Helper 10.0.2 with 1.5 MB. It is stable.": ("tax-helper", "10.0.2", 1.5, True),
            "A first try of Map Fold, 0.0.1, 2 MB, far from stable.": ("map-fold", "0.0.1", 2, False),
            "Stable: Rain Gauge in version 1.8.3, 5 MB.": ("rain-gauge", "1.8.3", 5, True),
            "Chess Coach 2.0.0 takes 64 MB and is not stable.": ("chess-coach", "2.0.0", 64, False),
            "The stable Log Reader 4.4.4 has shrunk to 0.6 MB.": ("log-reader", "4.4.4", 0.6, True),
            "Don't call Star Chart 0.7.2 stable. Its size: 31 MB.": ("star-chart", "0.7.2", 31, False),
            "Here comes Mail Sorter 6.1.0, 9 MB, stable at last.": ("mail-sorter", "6.1.0", 9, True),
            "Pixel Garden 0.2.5, 17.5 MB, is no stable release.": ("pixel-garden", "0.2.5", 17.5, False),
            "I tagged Font Finder 3.3.0 as stable (11 MB).": ("font-finder", "3.3.0", 11, True),
            "Not stable: version 1.1.0 of Route Planner, 48 MB.": ("route-planner", "1.1.0", 48, False),
            "Unit Converter, version 7.0.9, stable, only 0.4 MB.": ("unit-converter", "7.0.9", 0.4, True),
            "The size of Sound Lab 0.5.0 is 26 MB, and it's unstable.": ("sound-lab", "0.5.0", 26, False),
            "Stable and small: Note Pad 2.2.6 with 1 MB.": ("note-pad", "2.2.6", 1, True),
            "Try Color Mixer 0.1.3, an unstable build of 6.5 MB.": ("color-mixer", "0.1.3", 6.5, False),
        },
    ),
    holds,
)  # fmt: skip


def is_about(output: str, word: str) -> bool:
    return word in output.casefold()


SUBJECTS = family(
    "subjects",
    "Write the subject line of an email that passes this message on.",
    "The subject line, and nothing else.",
    (
        undescribed("words", "words", at_least=2, at_most=6),
        undescribed("characters", "characters", at_most=45),
        undescribed("lines", "lines", at_most=1),
        undescribed("end", "regex", pattern="[.!?]$", must_match=False),
    ),
    {
        "From Monday on, the parking lot behind the house is closed for two weeks.": "parking",
        "The lift will be inspected on Thursday between nine and ten.": "lift",
        "Somebody left a blue scarf in the meeting room yesterday.": "scarf",
        "The canteen serves soup only this week, because the oven is broken.": "canteen",
        "All passwords have to be changed before the end of the month.": "password",
        "Our summer party takes place on 12 July in the garden.": "party",
        "The printer on the second floor has been replaced by a faster model.": "printer",
        "Please hand in your travel expenses by Friday.": "expenses",
        "The library in room 14 now opens at eight in the morning.": "library",
        "Next Tuesday there will be a fire drill at eleven.": "drill",
        "The bicycle stand has a roof now and room for 30 more.": "bicycle",
        "Our new colleague Nadia begins in the sales team on 1 March.": "nadia",
        "The water will be turned off on Sunday morning for an hour.": "water",
        "Gym vouchers for this year can be picked up at the reception.": "voucher",
        "The budget for next year has been approved by the board.": "budget",
        "Whoever wants a flu vaccination can get it here in October.": "vaccination",
        "The newsletter is looking for photos of your pets.": "newsletter",
        "We have moved the weekly meeting from Monday to Wednesday.": "meeting",
        "The coffee machine gets a filter, so bring a thermos until then.": "coffee",
        "Windows have to be shut when you leave, as a storm is expected.": "storm",
    },
    is_about,
)  # fmt: skip


PARCELS = family(
    "parcels",
    "Turn this message into a line for our list of parcels.",
    "The line, and nothing else.",
    (
        undescribed("lines", "lines", at_most=1),
        undescribed("shelf", "regex", pattern=r"^[A-Z]\d\d "),
        undescribed("size", "regex", pattern=" (SMALL|MEDIUM|LARGE)$"),
    ),
    {
        "There is a small parcel for Ida Holm on shelf B12.": ("B12", "Holm", "SMALL"),
        "Shelf C07: a large box, addressed to Omar Said.": ("C07", "Said", "LARGE"),
        "I put the medium parcel of Vera Blum on A31.": ("A31", "Blum", "MEDIUM"),
        "Someone left a large parcel at the door. It is for Jon Falk, and I took it to shelf D02.":
            ("D02", "Falk", "LARGE"),
        "Medium size, shelf F15, to be picked up by Lena Kern.": ("F15", "Kern", "MEDIUM"),
        "Mr. Abbas gets a small packet; look for it on E44.": ("E44", "Abbas", "SMALL"),
        "The courier brought Ruth Dahl something large. I made room for it on G20.":
            ("G20", "Dahl", "LARGE"),
        "On shelf H09 you find the small parcel that Pavel Cerny is waiting for.":
            ("H09", "Cerny", "SMALL"),
        "A medium parcel came for Gwen Price; shelf K18.": ("K18", "Price", "MEDIUM"),
        "Please tell Hana Sato that her parcel, a small one, is on shelf M03.": ("M03", "Sato", "SMALL"),
        "L26 holds a large parcel. The label says Igor Petrov.": ("L26", "Petrov", "LARGE"),
        "For Nina Wolf, medium. I could only fit it on shelf P11.": ("P11", "Wolf", "MEDIUM"),
    },
    is_entry,
)  # fmt: skip


VISITS = family(
    "visits",
    "Enter this visit into the book at our reception, with the visitor's name.",
    "One entry, and nothing else.",
    (
        undescribed("lines", "lines", at_most=1),
        undescribed("time", "regex", pattern=r"^\d\d:\d\d\b"),
        undescribed("room", "regex", pattern=r"\bROOM [1-9]$"),
    ),
    {
        "Mrs. Lang comes at 9:15 and is expected in room 4.": ("09:15", "Lang", "ROOM 4"),
        "At 14:30 Dr. Osei will be here, room 2.": ("14:30", "Osei", "ROOM 2"),
        "Room 7 is ready for Mr. Varga, who arrives at 8:05.": ("08:05", "Varga", "ROOM 7"),
        "Could you send Ms. Quinn to room 1 when she comes at 11:45?": ("11:45", "Quinn", "ROOM 1"),
        "The plumber, Mr. Stein, looks at the sink in room 6 at 7:30.": ("07:30", "Stein", "ROOM 6"),
        "13:00, room 3: Mrs. Ito with two colleagues.": ("13:00", "Ito", "ROOM 3"),
        "I meet Mr. Moreau in room 8. He should be here at 16:20.": ("16:20", "Moreau", "ROOM 8"),
        "Ms. Rask has an interview at 10:10 in room 5.": ("10:10", "Rask", "ROOM 5"),
        "A Mr. Duarte asks for room 9; he will come at 15:50.": ("15:50", "Duarte", "ROOM 9"),
        "Please keep room 2 free at 12:40 for Professor Yilmaz.": ("12:40", "Yilmaz", "ROOM 2"),
        "Mrs. Hale from the bank, 9:55, room 6.": ("09:55", "Hale", "ROOM 6"),
        "At 17:25 the photographer comes, Ms. Lund. Show her to room 1.": ("17:25", "Lund", "ROOM 1"),
    },
    is_entry,
)  # fmt: skip


FREE_FAMILIES = {each.name: each for each in (REPAIRS, ERRANDS)}
PATTERN_FAMILIES = {each.name: each for each in (FLIGHTS, INVOICES, SHIFTS)}
TUNING_FAMILIES = {each.name: each for each in (PACKAGES, SUBJECTS, PARCELS, VISITS)}
"""To try a prompt on, and never reported."""
