"""Outputs that fail again and again, one kind of failure each, and stored runs of them."""

# ruff: noqa: E501, S311 (tables; and nothing here is secret)

import json
import random

from redraft import ReflectionPattern, reflect
from redraft.loop.journal import Journalled
from redraft.proposals.separation import Sample

NOUNS = ["tea", "lamp", "chair", "kettle", "pot", "cup", "table", "rug", "clock", "vase", "bowl", "tray"]
COMMON = [
    "the",
    "a",
    "shop",
    "sells",
    "fine",
    "goods",
    "for",
    "people",
    "who",
    "like",
    "simple",
    "things",
    "and",
    "want",
    "to",
    "buy",
    "one",
    "today",
    "with",
    "care",
]
RUSSIAN = [
    "мы",
    "продаём",
    "чай",
    "и",
    "лампы",
    "в",
    "нашем",
    "магазине",
    "для",
    "людей",
    "которые",
    "любят",
    "простые",
    "вещи",
    "каждый",
    "день",
]
GERMAN = [
    "wir",
    "verkaufen",
    "den",
    "Tee",
    "und",
    "die",
    "Lampen",
    "in",
    "dem",
    "Laden",
    "für",
    "Leute",
    "und",
    "das",
    "ist",
    "nicht",
    "teuer",
    "mit",
    "Sorgfalt",
    "verpackt",
]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def prose(draw, count, words=COMMON):
    return " ".join(draw.choice(words) for _ in range(count))


def sentence(draw):
    price = draw.randint(5, 90)
    return f"The {draw.choice(NOUNS)} {draw.choice(['costs', 'is sold for', 'goes for'])} {price} euros."


def sentences(draw, least=1, most=4):
    return " ".join(sentence(draw) for _ in range(draw.randint(least, most)))


def shuffled(draw, parts):
    mixed = parts[:]
    while mixed == parts:
        draw.shuffle(mixed)
    return mixed


def dated(draw, good):
    month, day = draw.randint(1, 12), draw.randint(1, 28)
    wrong = draw.choice([f"{day:02}/{month:02}/2026", f"{MONTHS[month - 1]} {day}, 2026"])
    return f"Order of {draw.randint(1, 9)} {draw.choice(NOUNS)}s, due {f'2026-{month:02}-{day:02}' if good else wrong}, paid."


def short(draw, good):
    return prose(draw, draw.randint(20, 49) if good else draw.randint(58, 120))


def keyed(draw, good):
    order = {
        "item": draw.choice(NOUNS),
        "quantity": draw.randint(1, 9),
        "currency": "EUR",
        "price": draw.randint(3, 99),
    }
    return json.dumps(order if good else {key: value for key, value in order.items() if key != "currency"})


def plain_words(draw, good):
    said = sentences(draw).split(" ")
    if not good:
        said.insert(draw.randint(0, len(said)), draw.choice(["cheap", "Cheap"]))
    return " ".join(said)


def russian(draw, good):
    return prose(draw, draw.randint(8, 20), RUSSIAN if good else COMMON)


def german(draw, good):
    return prose(draw, draw.randint(14, 30), GERMAN if good else COMMON)


def signed(draw, good):
    return sentences(draw) + (
        "\n\nBest regards,\nThe shop" if good else draw.choice(["", "\n\nBye", "\n\nThe shop"])
    )


def asking(draw, good):
    return sentences(draw) + draw.choice(
        [" Shall we send it?", " Do you want one?"] if good else [" We send it.", ""]
    )


def ordered(draw, good):
    parts = ["Summary", "Details", "Risks"]
    return "\n\n".join(f"## {part}\n{sentence(draw)}" for part in (parts if good else shuffled(draw, parts)))


def labelled(draw, good):
    parts = ["Price", "Delivery", "Contact"]
    return "\n".join(f"{part}: {sentence(draw)}" for part in (parts if good else shuffled(draw, parts)))


def three_items(draw, good):
    count = 3 if good else draw.choice([1, 2, 4, 5, 6])
    return "Our offers:\n" + "\n".join(f"- {sentence(draw)}" for _ in range(count))


def few_tags(draw, good):
    count = draw.randint(1, 5) if good else draw.randint(6, 9)
    return json.dumps({"tags": [draw.choice(NOUNS) for _ in range(count)], "name": draw.choice(NOUNS)})


def chosen(draw, good):
    return draw.choice(
        ["yes", "no", "unsure"] if good else ["Yes, I think so", "It depends", "maybe", "No way"]
    )


def status(draw, good):
    value = draw.choice(["open", "closed", "waiting"] if good else ["Open!", "done", "unknown"])
    return json.dumps({"status": value, "number": draw.randint(1, 999)})


def whole_number(draw, good):
    count = draw.randint(1, 9)
    return json.dumps(
        {"quantity": count if good else draw.choice([str(count), "two"]), "item": draw.choice(NOUNS)}
    )


def in_range(draw, good):
    return json.dumps(
        {"rating": draw.randint(1, 5) if good else draw.choice([0, 6, 7, 9]), "item": draw.choice(NOUNS)}
    )


def bare(draw, good):
    text = json.dumps({"count": draw.randint(1, 99)})
    return text if good else f"```json\n{text}\n```"


def coded(draw, good):
    number = draw.randint(0, 999)
    return f"INV-2026-{number:03}" if good else draw.choice([f"inv-{number}", f"{number}", f"INV{number}"])


def calm(draw, good):
    return sentences(draw) + ("" if good else " Buy it now!")


def as_json(draw, good):
    item, count = draw.choice(NOUNS), draw.randint(1, 9)
    return (
        json.dumps({"item": item, "count": count})
        if good
        else f"The item is {item} and the count is {count}."
    )


def addressed(draw, good):
    return f"Dear {'Sir or Madam' if good else draw.choice(['[Name]', '[Customer]'])}, {sentence(draw)}"


def bulleted(draw, good):
    lines = [sentence(draw) for _ in range(draw.randint(2, 5))]
    return "\n".join(f"- {line}" if good or number else line for number, line in enumerate(lines))


def direct(draw, good):
    return ("" if good else draw.choice(["Sure! Here it is. ", "Certainly! ", "Sure, "])) + sentences(draw)


def stepwise(draw, good):
    count = draw.randint(3, 5) if good else draw.choice([1, 2, 7, 8])
    return "\n".join(f"{number + 1}. {sentence(draw)}" for number in range(count))


def priced_items(draw, good):
    items = [{"name": draw.choice(NOUNS), "price": draw.randint(1, 9)} for _ in range(3)]
    if not good:
        del items[1]["price"]
    return json.dumps({"items": items})


def bare_answer(draw, good):
    return json.dumps({"answer": draw.randint(1, 9), **({} if good else {"note": draw.choice(NOUNS)})})


def in_one_language(draw, good):
    return prose(draw, 20, GERMAN) if good else f"{prose(draw, 12, GERMAN)} {prose(draw, 12)}"


def timed(draw, good):
    hour, minute = draw.randint(0, 23), draw.randint(0, 59)
    time = f"{hour:02}:{minute:02}" if good else f"{hour % 12 + 1} {'pm' if hour > 11 else 'am'}"
    return f"We meet at {time} in the {draw.choice(NOUNS)} room."


def finished(draw, good):
    return sentences(draw) if good else f"{sentences(draw)} TODO: {draw.choice(NOUNS)}"


def narrow(draw, good):
    lines = [prose(draw, draw.randint(4, 8))[:58] for _ in range(draw.randint(3, 6))]
    if not good:
        lines.insert(draw.randint(0, len(lines)), prose(draw, 22))
    return "\n".join(lines)


def affordable(draw, good):
    price = draw.uniform(3, 10) if good else draw.uniform(10.5, 40)
    return json.dumps({"item": draw.choice(NOUNS), "price": round(price, 2)})


def titled(draw, good):
    return json.dumps({"title": prose(draw, 12)[: draw.randint(10, 30) if good else draw.randint(34, 50)]})


def without_numbers(draw, good):
    said = sentences(draw).split(" ")
    if not good:
        said.insert(draw.randint(0, len(said) - 1), f"{draw.randint(200, 999)}-{draw.randint(1000, 9999)}")
    return " ".join(said)


def kind(draw, good):
    said = sentences(draw).split(" ")
    if not good:
        said.insert(draw.randint(0, len(said)), draw.choice(["cheap", "ugly", "shabby"]))
    return " ".join(said)


def capital(draw, good):
    text = prose(draw, draw.randint(4, 9))
    return text[0].upper() + text[1:] if good else text


def unquoted(draw, good):
    return draw.choice(NOUNS) + " and " + prose(draw, 4) + draw.choice("abcde" if good else ";:")


KINDS = [
    # what is made, what a judge says of a bad output, the check in words
    (dated, "The date has the wrong form.", "Contains text of the form YYYY-MM-DD"),
    (short, "The text is too long.", "Has at most 50 words"),
    (keyed, "A key is missing.", 'Has the key "currency"'),
    (plain_words, "It speaks badly of the goods.", 'Does not contain "cheap" in upper or lower case'),
    (russian, "It is in the wrong language.", "Has Cyrillic letters"),
    (german, "It is in the wrong language.", "Is in German"),
    (signed, "It does not close as letters do.", 'Ends with "Best regards,", white space and "The shop"'),
    (asking, "It does not end by asking the customer.", "Ends with a question mark"),
    (ordered, "The sections are mixed up.", 'Has the sections "Summary", "Details" and "Risks", in this order'),
    (labelled, "The parts come in the wrong order.", 'Has the sections "Price", "Delivery" and "Contact", in this order'),
    (three_items, "The number of offers is wrong.", 'Has exactly 3 bullets, each a line that begins with "- "'),
    (few_tags, "There are too many tags.", 'The key "tags" holds a list (at most 5 items)'),
    (chosen, "It is none of the answers that are allowed.", 'Is one of "no", "unsure" or "yes"'),
    (status, "The status is none of those allowed.", 'The key "status" holds one of "closed", "open", "waiting"'),
    (whole_number, "The quantity is written in the wrong type.", 'The key "quantity" holds a whole number'),
    (in_range, "The rating is out of range.", 'The key "rating" holds a number (1 to 5)'),
    (bare, "It is wrapped in Markdown.", "Has no code fence"),
    (coded, "The number has the wrong form.", 'Consists of "INV-", four digits, a hyphen and three digits'),
    (calm, "It shouts at the reader.", "Has no exclamation mark"),
    (as_json, "This is not what the program reads.", "One JSON object"),
    (addressed, "It was not filled in.", "Has no placeholder"),
    (bulleted, "A line is no item of the list.", 'Begins each line with "-"'),
    (stepwise, "The number of steps is wrong.", "Has 3 to 5 numbered items"),
    (priced_items, "A price is missing.", 'Has the key "price" in "items"'),
    (bare_answer, "There is more than was asked for.", 'Does not have the key "note"'),
    (in_one_language, "It changes into English.", "Is not in English"),
    (timed, "The time is not in the 24-hour form.", "Contains text of the form HH:MM"),
    (finished, "It is unfinished.", 'Does not contain "todo" in upper or lower case'),
    (narrow, "A line is too wide.", "Has no line of more than 50 characters"),
    (affordable, "It is too expensive.", 'The key "price" holds a number (at most 10.0)'),
    (titled, "The title is too long.", 'The key "title" holds text (at most 30 characters)'),
    (without_numbers, "It has a telephone number.", "Does not contain three digits, a hyphen and four digits"),
    (kind, "It speaks badly of the goods.", 'Does not contain one of "cheap", "shabby" or "ugly" in upper or lower case'),
    (capital, "The first letter is wrong.", "Begins with a capital letter"),
    (unquoted, "It stops in the middle.", "Does not end with a colon or a semicolon"),
    (direct, "It begins with chatter.", 'Does not begin with "Certainly" or "Sure"'),
]  # fmt: skip


def samples(make, seed=1, runs=40, share=0.3):
    """Return failed and good outputs, one a run."""
    draw = random.Random(seed)
    bad, good = [], []
    for number in range(runs):
        is_good = draw.random() > share
        (good if is_good else bad).append(Sample(make(draw, is_good), f"run-{number:02}", "Write it."))
    return bad, good


FAILURES = {
    "date": "The due date has the wrong form.",
    "long": "The text is far too long.",
    "key": "The closing is missing.",
}
"""What fails in the history, and what a judge says of it; it words some of them differently each time."""
WORDINGS = ("{}", "{} Again.", "As before: {}")
LEARNED = {
    "what_happened": "An order was to be written down; it was refused.",
    "what_went_wrong": "It was not as the shop wants it.",
    "why": "The shop reads orders by a program.",
    "do_differently": "Write it as the shop wants it.",
    "rule": "IF an order is written THEN write it as the shop wants it.",
    "strategy": "Write it as the shop wants it.",
    "why_it_worked": "The shop reads orders by a program.",
    "systemic": False,
    "title": "Orders as the shop wants them",
}


def order(draw, failure=""):
    """An order as the shop wants it, but for one failure."""
    month, day = draw.randint(1, 12), draw.randint(1, 28)
    due = f"{day:02}/{month:02}/2026" if failure == "date" else f"2026-{month:02}-{day:02}"
    text = (
        f"Order {draw.randint(1, 99)} is due on {due}. {sentences(draw, 1, 12 if failure == 'long' else 3)}"
    )
    if failure == "long":
        text = f"{text} {sentences(draw, 12, 14)}"
    return text if failure == "key" else f"{text}\n\nKind regards, the clerk"


def judged_by(output, failure, draw):
    """Judge as a person or a model does: now and then it misses something, or calls a good text dull."""
    if failure:
        return False, draw.choice(WORDINGS).format(FAILURES[failure])
    return (False, "The text reads a little dull.") if draw.random() < 0.05 else True


async def history(store, runs=60, seed=7, lessons=None, wording=FAILURES):
    """Run an agent's task many times: three in five drafts fail in one of three ways, and are revised."""
    draw = random.Random(seed)
    for number in range(runs):
        failure = draw.choice(["date", "long", "key", "", ""])
        drafts = [order(draw, failure), order(draw, failure if draw.random() < 0.3 else "")]
        failed = {drafts[0]: failure, drafts[1]: failure if order_fails(drafts[1], failure) else ""}

        def judge(output, failed=failed):
            said = judged_by(output, failed[output], draw)
            return said if said is True else (False, said[1])

        made = iter(drafts)
        pattern = ReflectionPattern(max_iterations=1, advisors=[lessons] if lessons else [])
        await reflect(
            f"Write down order {number}.",
            generate=lambda prompt, made=made: next(made),
            evaluate=judge,
            pattern=pattern,
            step=Journalled(store, f"20261101-{number:06}"),
        )


def order_fails(text, failure):
    return {"date": "/2026" in text, "long": len(text.split()) > 70, "key": "regards" not in text}.get(
        failure, False
    )
