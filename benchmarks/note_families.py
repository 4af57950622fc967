"""Three tasks that are done twenty times with other inputs: an order, a headline, a function.

A task says what to do, but not in which form, which only the criteria know. The headlines and functions were
written before any model had seen them, and nothing may be tuned on them.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from _tasks import TaskFamily, calls_criterion, passes, undescribed

from redraft.text.replies import python_block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _tasks import Hidden
    from small_tasks import Check

    from redraft import QualityCriterion

# --- orders: JSON with five keys ----------------------------------------------------------------------------

FIELDS = {
    "customer": {"type": "string"},
    "item": {"type": "string"},
    "quantity": {"type": "integer"},
    "city": {"type": "string"},
    "due": {"type": "string", "pattern": r"^2026-\d\d-\d\d$"},
}


def form(name: str, **schema: Any) -> QualityCriterion:
    return undescribed(name, "schema", schema={"type": "object"} | schema)


ORDERS = TaskFamily(
    "orders",
    "Turn the message of a customer into an order as JSON.\n\nThe message: {message}",
    "One JSON object, and nothing else.",
    (
        *(form(key, properties={key: kind}, required=[key]) for key, kind in FIELDS.items()),
        form("nothing else", properties={key: {} for key in FIELDS}, additionalProperties=False),
    ),
    tuple(
        {"message": message}
        for message in (
            "Hi, this is Maria Lopez. I need 3 desk lamps delivered to Madrid by 5 March 2026, please.",
            "Order from Tom Becker: two office chairs to Hamburg, latest 12.04.2026.",
            "Could you send me a dozen notebooks? I'm in Lyon. Before May 1st, 2026. Claire Dubois",
            "Ken Sato here, one standing desk for our Osaka office, on the 20th of June 2026.",
            "We want 40 whiteboard markers in Dublin for the training on 2026-02-17. Regards, Aoife Byrne",
            "Anna Rossi, Torino: quattro lampade, I mean four lamps. End date 3 July 2026.",
            "Please ship 15 keyboards to Porto until 8/9/2026 (8 September). Joao Silva",
            "It's Priya Nair. Six monitors, Bengaluru, 30 January 2026. Thanks!",
            "To Oslo: 25 USB hubs. Needed on 14 October 2026. - Lars Berg",
            "I'd like to order 1 projector for Vienna, by the 2nd of November 2026. Eva Gruber",
            "Seven bookshelves for the library in Ghent, 19 August 2026, says Pieter Claes.",
            "Good morning, Olga Novak from Prague, 100 pens, date 6 May 2026.",
            "Hello! 5 headsets to Tallinn on 28 February 2026. My name is Mart Tamm.",
            "Send nine chairs to Athens for Nikos Pappas, no later than 11 December 2026.",
            "Sofia Lindgren wants 2 printers in Malmo, 23 March 2026.",
            "Eight desks, Krakow, 1 September 2026, for Jan Kowalski.",
            "This is Fatima Zahra in Rabat; I need 12 tablets on the 15th of April 2026.",
            "60 folders to Leeds by 7 June 2026. Emily Clark.",
            "Luca Meier, Basel. 3 scanners. 29 October 2026 is fine.",
            "For our Seoul branch: 10 webcams, 9 January 2026. Best, Min-jun Kim",
        )
    ),
)


# --- headlines: a text with limits --------------------------------------------------------------------------

HEADLINES = TaskFamily(
    "headlines",
    "Write a headline for this product in our spring sale.\n\nThe product: {product}",
    "The headline, and nothing else.",
    (
        undescribed("words", "words", at_least=3, at_most=8),
        undescribed("characters", "characters", at_most=60),
        undescribed("lines", "lines", at_most=1),
        undescribed("beginning", "regex", pattern="^SALE: "),
        undescribed("end", "regex", pattern="[^!]$"),
    ),
    tuple(
        {"product": product}
        for product in (
            "a steel water bottle that keeps drinks cold for a day",
            "a folding bicycle of 11 kg with seven gears",
            "a wool blanket, woven in Wales, washable",
            "a desk lamp with three colours of light and a USB port",
            "hiking boots made of waterproof leather",
            "a cast-iron pan, 28 cm wide, with a lifetime guarantee",
            "a backpack of 40 litres with a cover against rain",
            "a coffee grinder with a quiet motor and twelve settings",
            "bed linen made of organic cotton, in four colours",
            "a tent for three that stands in two minutes",
            "headphones that shut out noise and run for 30 hours",
            "a garden chair made of recycled plastic",
            "a kettle with a thermometer in its handle",
            "running shoes for wide feet, only 220 g each",
            "a set of six kitchen knives with a wooden block",
            "a robot that vacuums and mops, and empties its bin by itself",
            "an umbrella that withstands storms",
            "a bird feeder with a camera that names the birds",
            "a yoga mat made of cork, 5 mm thick",
            "a pocket torch with a range of 200 metres",
        )
    ),
)


# --- functions: a convention that only the checks know ------------------------------------------------------


# No docstring: it would describe the criterion, which its prompt must not state.
def documented(output: str) -> Check:
    # Look for a docstring in each function of a reply.
    try:
        tree = ast.parse(python_block(output)[0])
    except SyntaxError:
        return False, "It must be Python code that parses."
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    bare = [function.name for function in functions if not ast.get_docstring(function)]
    return bool(functions) and not bare, f"The function {', '.join(bare) or 'convert'} has no docstring."


CONVERSIONS = {
    "triples a number": ("convert(4)", 12),
    "turns minutes into seconds": ("convert(3)", 180),
    "turns a text into upper case": ("convert('abc')", "ABC"),
    "turns kilograms into grams": ("convert(2)", 2000),
    "counts the characters of a text": ("convert('four')", 4),
    "turns a number into its negative": ("convert(5)", -5),
    "turns dozens into pieces": ("convert(3)", 36),
    "doubles a text, as in 'ha' to 'haha'": ("convert('ha')", "haha"),
    "turns metres into centimetres": ("convert(7)", 700),
    "squares a number": ("convert(9)", 81),
    "turns weeks into days": ("convert(6)", 42),
    "reverses a text": ("convert('abc')", "cba"),
    "adds 10 to a number": ("convert(5)", 15),
    "turns euros into cents": ("convert(3)", 300),
    "returns the first character of a text": ("convert('tea')", "t"),
    "turns days into hours": ("convert(2)", 48),
    "returns the last character of a text": ("convert('tea')", "a"),
    "subtracts 1 from a number": ("convert(8)", 7),
    "turns feet into inches": ("convert(4)", 48),
    "puts a text into round brackets": ("convert('x')", "(x)"),
}


def _converts(inputs: Mapping[str, str]) -> Hidden:
    call, value = CONVERSIONS[inputs["what"]]
    return passes(calls_criterion({call: value}))


FUNCTIONS = TaskFamily(
    "functions",
    "Write a Python function convert(value) that {what}.",
    "One Python function, and nothing else.",
    (
        undescribed("none", "command", calls=[{"call": "convert(None)", "expect": None}]),
        undescribed("empty", "command", calls=[{"call": "convert('')", "expect": None}]),
        undescribed("documented", "function", function=documented),
    ),
    tuple({"what": what} for what in CONVERSIONS),
    _converts,
)


NOTE_FAMILIES = {family.name: family for family in (ORDERS, HEADLINES, FUNCTIONS)}
