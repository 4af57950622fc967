"""Three families of tasks that are similar, never equal, and in which one mistake repeats.

A program reads the answers. It wants a list even of one record, the signature of the team under a short text,
a type for every parameter. Most of the tasks don't say so, but the checks find it missing. In five tasks of
each family the brief says it, too, so that a model which knows nothing of earlier runs solves some.
The families were written before any model had seen them, and nothing may be tuned on them.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from _tasks import BenchTask, calls_criterion, passes
from small_tasks import lines_of

from redraft import QualityCriterion
from redraft.errors import OutputError
from redraft.text.replies import json_of, python_block

if TYPE_CHECKING:
    from _tasks import Hidden
    from small_tasks import Check


@dataclass(frozen=True, slots=True)
class FamilyTask:
    """A task of a family, an answer that solves it, and the mistake that its family makes.

    `told` says whether its brief states what the others leave to the checks.
    """

    task: BenchTask
    solution: str
    mistake: str
    told: bool = False


# --- records: JSON that must be a list, even of one record --------------------------------------------------


def record(name: str, ask: str, text: str, *expected: dict[str, Any], told: bool = False) -> FamilyTask:
    """Ask for the records in a text; the values of the records are hidden."""
    types = {
        key: {"type": "integer" if isinstance(value, int) else "string"} for key, value in expected[0].items()
    }
    schema = {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "properties": types,
            "required": list(types),
            "additionalProperties": False,
        },
    }  # fmt: skip
    form = QualityCriterion("form", threshold=1.0, evaluator="schema", evaluator_config={"schema": schema})
    keys = " and ".join(f'"{key}"' for key in types)
    prompt = f"{ask} Use the keys {keys}.\n\n{text}"
    task = BenchTask(f"record-{name}", prompt, (form,), _same_records(list(expected)))
    mistake = json.dumps(expected[0]) if len(expected) == 1 else json.dumps({"records": expected})
    return FamilyTask(task, json.dumps(expected), mistake, told)


def _same_records(expected: list[dict[str, Any]]) -> Hidden:
    """Check that a reply holds these records, in any order, whatever their case and final full stops."""

    async def hidden(output: str) -> bool:
        try:
            found = json_of(output)
        except OutputError:
            return False
        return isinstance(found, list) and _plain(found) == _plain(expected)

    return hidden


def _plain(records: list[Any]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True).casefold().replace('."', '"') for each in records)


RECORDS = (
    record("visitor", "Put the visitor in this note into JSON.",
           "Ivana Kos is here for Peter Brandt.",
           {"visitor": "Ivana Kos", "host": "Peter Brandt"}),
    record("parcel", "Which parcel came in? Answer as JSON.",
           "DHL left parcel 7713 for Yusuf at the front desk.",
           {"carrier": "DHL", "number": 7713}),
    record("umbrella", "Turn this report of something lost into JSON.",
           "Somebody lost a green umbrella last night.",
           {"item": "umbrella", "colour": "green"}),
    record("colleagues", "Make a JSON list of the colleagues in this text, with one object for each.",
           "Rosa works in sales. Henrik works in finance.",
           {"name": "Rosa", "team": "sales"}, {"name": "Henrik", "team": "finance"}, told=True),
    record("booking", "Read this booking and give it back as JSON.",
           "Meeting room Oak is taken by Tamara on Friday.",
           {"room": "Oak", "day": "Friday"}),
    record("car", "Write the car in this message as JSON.",
           "The white Skoda with the plate K-LM 204 is parked in front of the gate.",
           {"make": "Skoda", "plate": "K-LM 204"}),
    record("printer", "File this fault as JSON.",
           "The printer on floor 3 is out of toner.",
           {"device": "printer", "floor": 3}),
    record("lunch", "Note this lunch order down as JSON.",
           "Karim would like 2 falafel wraps.",
           {"customer": "Karim", "quantity": 2}),
    record("key", "Reply with a JSON list that holds one object: the key that was handed out.",
           "Key 58 was handed to Noemi this morning.",
           {"key": 58, "holder": "Noemi"}, told=True),
    record("phone", "Take down this phone call as JSON.",
           "Piotr Zielinski asks to be called back, extension 214.",
           {"caller": "Piotr Zielinski", "extension": 214}),
    record("desk", "Give the desk in this message as JSON.",
           "From Monday on, Lucia sits at desk 41.",
           {"name": "Lucia", "desk": 41}),
    record("plants", "Return a JSON list with an object for each plant and its room.",
           "There is a fern in room 101 and a cactus in room 103.",
           {"plant": "fern", "room": 101}, {"plant": "cactus", "room": 103}, told=True),
    record("badge", "Turn the badge request below into JSON.",
           "Please make a badge for Chen Wei, valid for 30 days.",
           {"holder": "Chen Wei", "days": 30}),
    record("taxi", "Extract the taxi ride as JSON.",
           "A taxi to Gatwick for Beatriz, please.",
           {"passenger": "Beatriz", "destination": "Gatwick"}),
    record("locker", "Which locker is meant here? Answer in JSON.",
           "Locker 112 belongs to Owen.",
           {"locker": 112, "owner": "Owen"}),
    record("supplies", "Write down what is missing as a JSON list of objects.",
           "We need 4 staplers and 9 pencils.",
           {"item": "staplers", "quantity": 4}, {"item": "pencils", "quantity": 9}, told=True),
    record("leave", "Put this request for leave into JSON.",
           "Agata would like 5 days off.",
           {"name": "Agata", "days": 5}),
    record("bicycle", "Describe the bicycle in this notice as JSON.",
           "A blue bicycle has stood in the hall since Tuesday.",
           {"colour": "blue", "day": "Tuesday"}),
    record("invoice", "Log this invoice as a JSON list with one object in it.",
           "Invoice 9027 from Nordlicht GmbH has arrived.",
           {"number": 9027, "sender": "Nordlicht GmbH"}, told=True),
    record("alarm", "Enter this alarm into the log as JSON.",
           "Smoke detector 6 went off in room 12.",
           {"detector": 6, "room": 12}),
)  # fmt: skip


# --- replies: texts that are short and signed by the team ---------------------------------------------------

TEAM = "The Support Team"
MOST_WORDS = 80
TOLD = f'Use at most {MOST_WORDS} words, and sign it with the line "{TEAM}".'


def signed(output: str) -> Check:
    last = (lines_of(output) or [""])[-1]
    return last == TEAM, f'The last line must be "{TEAM}"; it is {last[:60]!r}.'


def reply(name: str, prompt: str, customer: str, *, told: bool = False) -> FamilyTask:
    """Ask for a letter to a customer."""
    limits = {"at_least": 15, "at_most": MOST_WORDS}
    criteria = (
        QualityCriterion("length", threshold=1.0, evaluator="words", evaluator_config=limits),
        QualityCriterion(
            "signed", threshold=1.0, evaluator="function", evaluator_config={"function": signed}
        ),
    )
    task = BenchTask(f"reply-{name}", f"{prompt} {TOLD}" if told else prompt, criteria)
    body = (
        f"Dear {customer},\n\nThank you for your message. We are sorry for the trouble, and will put it "
        "right within two days.\n\nBest regards,\n"
    )
    return FamilyTask(task, f"{body}{TEAM}", f"{body}[Your Name]", told)


REPLIES = (
    reply("late", "Write a short letter to Maria Alonso, whose parcel is three days late.", "Maria Alonso"),
    reply("broken", "Mr Olsen received a broken vase. Write him a short apology that offers a new one.",
          "Mr Olsen"),
    reply("refund", "Confirm briefly to Grace Mbeki that her money will be paid back within five days.",
          "Grace Mbeki"),
    reply("colour", "Leo Martin got a red bag in place of a black one. Write a short reply that offers to "
          "change it.", "Leo Martin", told=True),
    reply("password", "Tell Hanna Virtanen in a short email that her password has been reset.",
          "Hanna Virtanen"),
    reply("stock", "The lamp that Mr Costa ordered is sold out until May. Let him know in a short letter.",
          "Mr Costa"),
    reply("thanks", "Thank Ms Dlamini in a short email for her kind review of our shop.", "Ms Dlamini",
          told=True),
    reply("twice", "Samuel Roth paid twice by mistake. Write him a short note that we return the second "
          "payment.", "Samuel Roth"),
    reply("address", "Write a short email to Ines Moreau: we have changed her delivery address as she asked.",
          "Ines Moreau"),
    reply("warranty", "Explain to Mr Tanaka in a short letter that his kettle is still under warranty.",
          "Mr Tanaka"),
    reply("cancel", "Confirm to Eleni Papas that her order is cancelled and that nothing is charged. Keep it "
          "short.", "Eleni Papas", told=True),
    reply("manual", "Mr Haddad asks for the manual of his drill in German. Write a short answer that it is "
          "attached.", "Mr Haddad"),
    reply("size", "The shoes are too small for Freya Lund. Offer her another size in a short email.",
          "Freya Lund"),
    reply("invoice", "Mr Petrov has not got his invoice. Answer briefly that it was sent again today.",
          "Mr Petrov"),
    reply("noise", "Aisha Khan says that her fridge is loud. Write her a short letter that a technician "
          "comes on Monday.", "Aisha Khan"),
    reply("voucher", "Send Mr Nguyen a short email with the news that his voucher has been extended to June.",
          "Mr Nguyen", told=True),
    reply("missing", "One of the four chairs that Clara Weiss ordered is missing. Write a short apology.",
          "Clara Weiss"),
    reply("pickup", "Let Mr Silva know in a short email that his order can be picked up from noon on.",
          "Mr Silva"),
    reply("delay", "Our shop moves, so the order of Zofia Nowak takes a week longer. Tell her in a short "
          "letter.", "Zofia Nowak"),
    reply("spare", "Mr Andersen needs a spare wheel for his pram. Answer in a short email that we send it "
          "free of charge.", "Mr Andersen", told=True),
)  # fmt: skip


# --- typed functions: each parameter and the result has a type ----------------------------------------------


# No docstring: it would describe the criterion, which its prompt must not state.
def typed(output: str) -> Check:
    # Look for what has no type in the functions of a reply.
    try:
        tree = ast.parse(python_block(output)[0])
    except SyntaxError:
        return False, "It must be Python code that parses."
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    bare = [
        f"the parameter {each.arg} of {function.name}"
        for function in functions
        for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        if each.annotation is None
    ]
    bare += [f"the result of {function.name}" for function in functions if function.returns is None]
    return bool(functions) and not bare, f"No type annotation is given for {', '.join(bare) or 'a function'}."


def function(
    name: str, parameters: str, what: str, expression: str, *calls: str, told: bool = False
) -> FamilyTask:
    """Ask for a function; `parameters` are typed, and it returns the value of `expression`.

    The last of the calls, each given by its arguments, is hidden.
    """
    bare = ", ".join(each.split(":")[0] for each in parameters.split(", "))
    names = [each.split(":")[0] for each in parameters.split(", ")]
    values = {f"{name}({call})": _value(expression, names, ast.literal_eval(f"({call},)")) for call in calls}
    seen = dict(list(values.items())[:-1])
    criteria = (
        calls_criterion(seen),
        QualityCriterion("types", threshold=1.0, evaluator="function", evaluator_config={"function": typed}),
    )
    ask = f"Write a Python function {name}({bare}) {what}"
    if told:
        ask = f"{ask} Annotate every parameter and the result with its type."
    task = BenchTask(f"typed-{name}", ask, criteria, passes(calls_criterion(values)))
    result = type(next(iter(values.values()))).__name__
    body = f"    return {expression}"
    return FamilyTask(
        task, f"def {name}({parameters}) -> {result}:\n{body}", f"def {name}({bare}):\n{body}", told
    )


def _value(expression: str, names: list[str], arguments: tuple[Any, ...]) -> Any:
    return eval(expression, dict(zip(names, arguments, strict=True)))  # noqa: S307 (written below)


FUNCTIONS = (
    function("area", "width: int, height: int", "that returns the area of a rectangle.",
             "width * height", "3, 4", "5, 1", "7, 8"),
    function("initials", "name: str", "that returns the first letters of the words of a name, in upper case.",
             "''.join(word[0].upper() for word in name.split())", "'ada byron'", "'Li Wei'", "'a b c'"),
    function("seconds", "hours: int, minutes: int", "that returns how many seconds that is.",
             "hours * 3600 + minutes * 60", "1, 1", "0, 30", "2, 0", told=True),
    function("vowels", "text: str", "that counts the vowels a, e, i, o and u in a text in lower case.",
             "sum(text.count(vowel) for vowel in 'aeiou')", "'banana'", "'sky'", "'queue'"),
    function("last", "items: list, default: int", "that returns the last item of a list, or the default if "
             "it is empty.", "items[-1] if items else default", "[1, 2], 0", "[], 7", "[5], 1"),
    function("repeat", "word: str, times: int", "that returns the word so many times, with a hyphen between.",
             "'-'.join([word] * times)", "'ha', 3", "'x', 1", "'no', 2"),
    function("is_leap", "year: int", "that says whether a year is a leap year.",
             "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)", "2024", "1900", "2000", told=True),
    function("evens", "numbers: list", "that returns the even numbers of a list, in their order.",
             "[number for number in numbers if number % 2 == 0]", "[1, 2, 4]", "[3]", "[0, 7, 8]"),
    function("fahrenheit", "celsius: int", "that converts whole degrees Celsius to Fahrenheit (times 9, "
             "divided by 5, plus 32), rounded down to a whole number.",
             "celsius * 9 // 5 + 32", "100", "-40", "37"),
    function("backwards", "text: str", "that returns a text with its characters in reverse order.",
             "text[::-1]", "'abc'", "''", "'level up'"),
    function("spread", "numbers: list", "that returns the largest number of a list minus the smallest.",
             "max(numbers) - min(numbers)", "[3, 9, 4]", "[5]", "[-2, 2]", told=True),
    function("words", "text: str", "that counts the words of a text; words are separated by white space.",
             "len(text.split())", "'a big cat'", "''", "' x  y '"),
    function("clamp", "value: int, low: int, high: int", "that returns the value, but at least low and at "
             "most high.", "max(low, min(value, high))", "5, 1, 3", "0, 1, 3", "2, 1, 3"),
    function("squares", "count: int", "that returns a list of the squares of 1 up to count.",
             "[number * number for number in range(1, count + 1)]", "3", "0", "5"),
    function("longest", "words: list", "that returns the longest word of a list; of equally long ones, the "
             "first.", "max(words, key=len)", "['a', 'abc', 'ab']", "['x', 'y']", "['no', 'yes']"),
    function("digits", "number: int", "that returns the sum of the decimal digits of a number of at least 0.",
             "sum(int(digit) for digit in str(number))", "123", "0", "99", told=True),
    function("without", "items: list, item: int", "that returns the list without any item that is equal to "
             "the given one.", "[each for each in items if each != item]", "[1, 2, 1], 1", "[], 3",
             "[4, 5], 6"),
    function("percent", "part: int, whole: int", "that returns how many percent of the whole the part is, "
             "rounded down to a whole number.", "part * 100 // whole", "1, 4", "2, 3", "5, 5"),
    function("shout", "text: str", "that returns a text in upper case with an exclamation mark at the end.",
             "text.upper() + '!'", "'hey'", "'go on'", "''"),
    function("countdown", "start: int", "that returns a list of the whole numbers from start down to 0.",
             "list(range(start, -1, -1))", "3", "0", "5", told=True),
)  # fmt: skip


FAMILIES: dict[str, tuple[FamilyTask, ...]] = {"records": RECORDS, "replies": REPLIES, "functions": FUNCTIONS}
