"""Personal data is withheld on request, and nothing else is."""

import pytest

from redraft.redact.kinds import Category
from redraft.redact.personal import is_card, is_iban
from redraft.redact.redactor import Redactor

CARD = "4111 1111 " + "1111 1111"
IBAN = "DE89 3704 0044 " + "0532 0130 00"
PERSONAL = {
    "reach me: roz [at] quillworks [dot] co": "reach me: [withheld: email address]",
    "gwen at harbourinn dot ie": "[withheld: email address]",
    "Last seen at 51.507351, -0.127758": "Last seen at [withheld: position]",
    "plate LR19 KXT in bay 4": "plate [withheld: license plate] in bay 4",
    "ping @okafor.j about it": "ping [withheld: user name] about it",
    "lives at 14 Gooseberry Lane": "lives at [withheld: street address]",
    "(b. 1964-11-12)": "(b. [withheld: date of birth])",
    "mail to ada.l@analytical.co.uk today": "mail to [withheld: email address] today",
    "mail bob@example.com, git@github.com:x/y.git": "mail bob@example.com, git@github.com:x/y.git",
    "call +49 221 4710-815 now": "call [withheld: phone number] now",
    "phone: 0221 4710815": "phone: [withheld: phone number]",
    "(415) 555-2671": "[withheld: phone number]",
    f"card {CARD} declined": "card [withheld: card number] declined",
    "order 4111 1111 1111 1112 failed": "order 4111 1111 1111 1112 failed",
    f"pay to {IBAN} SOON": "pay to [withheld: bank account] SOON",
    "SSN 078-05-" + "1120": "SSN [withheld: identity number]",
    "passport no: X" + "1234567": "passport no: [withheld: identity number]",
    "born on 10 December 1815": "born on [withheld: date of birth]",
    '"dob": "1990-04-02"': '"dob": "[withheld: date of birth]"',
    "my name is Ada Lovelace, and": "my name is [withheld: name], and",
    "Dear Mr. Babbage,": "Dear Mr. [withheld: name],",
    "the customer Ada Lovelace called": "the customer [withheld: name] called",
    "Customer Support Team": "Customer Support Team",
    "the client Hello message and the user Interface": "the client Hello message and the user Interface",
    "tax id 12/345/" + "67890": "tax id [withheld: identity number]",
    "first_name: Ada": "first_name: [withheld: name]",
    "Name: Maria Lopez\nrole: clerk": "Name: [withheld: name]\nrole: clerk",
    '{"name": "Lopez, Maria"}': '{"name": "[withheld: name]"}',
    "**Customer:** Anna-Lena Sch\xf6n": "**Customer:** [withheld: name]",
    "display_name=Peter O'Neill": "display_name=[withheld: name]",
    (thing := "- name: Build Docker Image\nname: Data Pipeline\nName: Visual Studio"): thing,
    (owner := "Customer: Acme Widgets, contact: Support Team, name: Maria"): owner,
    "kinit adalove@ACME.CORP failed": "kinit [withheld: user name] failed",
    "Hi Kwame,\nthe report": "Hi [withheld: name],\nthe report",
    "Best regards,\nIngrid Solberg": "Best regards,\n[withheld: name]",
    "approved by Thandeka Mbeki on Monday": "approved by [withheld: name] on Monday",
    "Hi team,\napproved by Release Management": "Hi team,\napproved by Release Management",
    "login failed for ACME\\alovelace": "login failed for [withheld: user name]",
    "uid=alovelace,ou=people": "uid=[withheld: user name],ou=people",
    "MRN 0048" + "3921": "MRN [withheld: record number]",
    "X-Forwarded-For: 203.0.113.7": "X-Forwarded-For: [withheld: network address]",
    "/customers/88" + "12045/orders": "/customers/[withheld: account id]/orders",
    "at 221 Baker Street": "at [withheld: street address]",
    (when := "2024-01-17 09:12:44 took 1234567 ms, version 1.2.3"): when,
}

# Capitalised words that name no person.
ORDINARY = """
Use Laravel Dusk, and Redux Toolkit in Hong Kong and Puerto Rico.
author: John Doe, name: Jane Doe
Pin scikit-learn==1.3.0, session.add_packages("pandas", "scikit-learn==1.3.0")
Look at the dot in the middle.
vec = [12.34567, 45.67891, 3.4]
Decorate it with @Component, from @angular/core.
Restart nginx-1.25 after changes.
- tone: Friendly Reminder
conventional: Conventional Commits subject line.
The subject line follows Conventional Commits, without a full stop.
Every ticket needs a Definition Of Done before it is started.
the Pull Request Title says what changed
style: Plain English
Put it under Known Limitations, not under Breaking Changes.
format: Bulleted Checklist
the report opens with Executive Summary, then Key Findings
mood: Cheerful Greeting
The tests follow Arrange Act Assert, one behaviour each.
the button Save Draft, next to Discard Draft
labels: Good First Issue, Help Wanted
subject: Overdue Invoice
error: Broken Pipe
message: Please Wait
layout: Sticky Sidebar
font: Comic Sans
menu: Tomato Soup, Garlic Bread
intent: Cancel Subscription
placeholder: Search Anything
scale: Very Satisfied
voice: Passive Voice
the currency is Swiss Francs, not euros
the office in San Diego, not in Santa Barbara
Use Apache Cassandra, and the model Claude Opus.
Contact: A. I. Planning
Title: U. I. Testing
Title: A B Test
Title: Appendix, A. B.
Subject: Appendix A. B.
Contact: Support A. B.
Section A. B. C.
Assignee: Group B.
Author: Draft, V.
Reviewed by: A. Testing
See Fig. A. Then go on.
"""
NAMES = {
    "We owe Tadeusz an apology": "We owe [withheld: name] an apology",
    "it greeted Beezis Thuheer twice": "it greeted [withheld: name] twice",
    "Attendees: Ada Lovelace, Olumide Fashola": "Attendees: [withheld: name]",
    "reviewed by Thandeka Wood": "reviewed by [withheld: name]",
    "Greet Anna": "Greet [withheld: name]",
    "Congratulate Akira on the release": "Congratulate [withheld: name] on the release",
    "yesterday Ada Lovelace, who": "yesterday [withheld: name], who",
    "the ticket was for Olumide Fashola, again": "the ticket was for [withheld: name], again",
    "escalation: Thandiwe Mokoena": "escalation: [withheld: name]",
    "her neighbour, Jerome Applewhite, heard it": "her neighbour, [withheld: name], heard it",
    "I met Isidora Baker, once": "I met [withheld: name], once",
    "with Philippa Sawyer, at home": "with [withheld: name], at home",
    "bed three: Hortensia Galvan": "bed three: [withheld: name]",
    # Initials; the surname may look like a form of a verb.
    **{
        f"{before}{name}{after}": f"{before}[withheld: name]{after}"
        for name in (
            "J. K. Rowling",
            "J.K. Rowling",
            "J K Rowling",
            "Rowling, J. K.",
            "Rowling, J.K.",
            "Rowling J. K.",
            "J. K. Harrison",
            "J K van der Berg",
            "J. K. van der Berg",
            "van der Berg, J. K.",
        )
        for before, after in (
            ("Contact: ", ""),
            ("Author: ", ""),
            ("- **Contact:** ", ""),
            ("owner = ", " (2)"),
        )
    },
    "Author: Rowling, J.": "Author: [withheld: name]",
    "Dear J. K. Rowling,": "Dear [withheld: name],",
    "customer name: J K Rowling": "customer name: [withheld: name]",
    "and then Xiomara Morales, who": "and then [withheld: name], who",
    # Given names that look like an inflected word: of France, Monte Carlo, fare, car.
    "by Frances Smith": "by [withheld: name]",
    "Greet Carlos Perez": "Greet [withheld: name]",
    "sent by Fareed Qua": "sent by [withheld: name]",
    "the song of Carly Simon, again": "the song of [withheld: name], again",
}


@pytest.mark.parametrize("text", ORDINARY.strip().split("\n"))
def test_ordinary_words_are_no_names(text):
    assert Redactor(also=list(Category)).redact(text).text == text


@pytest.mark.parametrize(("text", "expected"), NAMES.items())
def test_names_among_ordinary_words_are_withheld(text, expected):
    assert Redactor(also=list(Category)).redact(text).text == expected


@pytest.mark.parametrize(("text", "expected"), PERSONAL.items())
def test_personal_data_is_withheld(text, expected):
    redactor = Redactor(also=[Category.PERSONAL])
    assert redactor.redact(text).text == expected
    assert redactor.is_clean(expected)
    assert Redactor().redact(text).text == text


@pytest.mark.parametrize(
    ("text", "is_one"), [(CARD, True), (CARD[:-1] + "2", False), ("0" * 16, False), ("1", False)]
)
def test_cards_have_a_check_digit(text, is_one):
    assert is_card(text) is is_one


@pytest.mark.parametrize(("text", "is_one"), [(IBAN, True), (IBAN[:-1] + "1", False), ("DE89", False)])
def test_accounts_have_check_digits(text, is_one):
    assert is_iban(text) is is_one
