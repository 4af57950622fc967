"""Small tasks: JSON out of a text. The schema is seen, the values are hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _task import BenchTask

from redraft import OutputError, QualityCriterion
from redraft.text.replies import json_of

if TYPE_CHECKING:
    from _task import Hidden


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
