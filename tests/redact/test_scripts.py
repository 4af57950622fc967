"""Redaction in any script, the names of things in rules, and names that are withheld in a whole record."""

from dataclasses import dataclass

import pytest

from redraft.redact.canonical import canonical
from redraft.redact.kinds import Category
from redraft.redact.letters import folded
from redraft.redact.redactor import Redactor
from support.redact_scripts import leaks_pieces, rule_lines, script_lines

RECALL, FALSE_ALARMS, NAMES_OF_THINGS = 0.95, 0.02, 0.01
EVERYTHING = Redactor(also=list(Category))


@pytest.mark.parametrize("held_out", [False, True], ids=["developed", "held-out"])
def test_personal_data_is_withheld_in_all_scripts(held_out):
    lines = [line for line in script_lines() if line.parts and line.held_out is held_out]
    leaks = sum(leaks_pieces(line, EVERYTHING.redact(line.text).text) for line in lines)
    assert len(lines) > 300
    assert leaks <= (1 - RECALL) * len(lines)


@pytest.mark.parametrize("held_out", [False, True], ids=["developed", "held-out"])
def test_harmless_lines_are_unchanged_in_all_scripts(held_out):
    lines = [line for line in script_lines() if not line.parts and line.held_out is held_out]
    assert len(lines) > 150
    assert sum(not EVERYTHING.is_clean(line.text) for line in lines) <= FALSE_ALARMS * len(lines)


def test_names_of_things_stay_in_rules():
    names = [(name, EVERYTHING.redact(line.text).text) for line in rule_lines() for name in line.parts]
    assert len(names) > 300
    assert sum(name not in text for name, text in names) <= NAMES_OF_THINGS * len(names)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("パスワードは「", "」です"),
        ("パスワードは", "です"),
        ("密码为 ", ""),
        ("密码是", "。"),
        ("비밀번호는 ", "입니다"),
    ],
)
def test_a_password_in_a_sentence_is_withheld(before, after):
    password = "Qwerty" + "12345"
    assert password not in EVERYTHING.redact(f"{before}{password}{after}").text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Zoë Größl", "Zoe Grosl"),
        ("Анна Смирнова", "Anna Smirnova"),
        ("Γιώργος Παπαδόπουλος", "Giorgos Papadopoulos"),
        ("\u0660\u0665\u0660 \u06f1\u06f2", "050 12"),
        ("אורן王さ", "\x80\x80\x80\x80\x81\x82"),
        ("\u2122 \u20ac", "\xbf \xbf"),
    ],
)
def test_letters_are_read_by_their_class(text, plain):
    assert folded(text) == plain


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("Nachname: Groß", "last name: Groß"),
        ("电话138", "telephone 138"),
        ("이름은 김민수", "full name 은 김민수"),
        ("הטלפון", "ה telephone"),
        ("my_nombre = nombre.txt", "my_nombre = nombre.txt"),  # not within a name of code
        ("ten nights", "ten nights"),  # not without the accent of `tên`
        ("Mario Gentile wrote", "Mario Gentile wrote"),  # not as a surname
    ],
)
def test_labels_are_read_in_english(text, english):
    assert canonical(text).text == english


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Approved by Ada Lovelace: ada-lovelace.md, Lovelace's, said Ada.",
            "Approved by [withheld: name]: [withheld: name].md, [withheld: name]'s, said [withheld: name].",
        ),
        (
            "Hi Thandeka,\nthe file thandeka.md is gone. THANDEKA",
            "Hi [withheld: name],\nthe file [withheld: name].md is gone. [withheld: name]",
        ),
        ("Dear Mr Field,\nthe list Field is full", "Dear Mr [withheld: name],\nthe list Field is full"),
        (
            "ФИО: Анна Смирнова, отказали Смирновой.",
            "ФИО: [withheld: name], отказали [withheld: name].",
        ),
        ("姓名: 王小明。王小明来电。", "姓名: [withheld: name]。[withheld: name]来电。"),
    ],
)
def test_a_name_is_withheld_everywhere_in_a_text(text, expected):
    assert EVERYTHING.redact(text).text == expected
    assert EVERYTHING.is_clean(expected)


@dataclass
class Note:
    text: str
    files: list[str]


def test_a_name_is_withheld_in_a_whole_record():
    data = {"lovelace.log": "Lovelace's run", "by": ["approved by Ada Lovelace"]}
    assert EVERYTHING.redact_json(data) == {
        "[withheld: name].log": "[withheld: name]'s run",
        "by": ["approved by [withheld: name]"],
    }
    note = EVERYTHING.redact_object(Note("Lovelace agreed", ["to: Ada Lovelace"]))
    assert note == Note("[withheld: name] agreed", ["to: [withheld: name]"])


def test_pieces_of_a_record_share_names():
    names = set()
    assert EVERYTHING.redact("reviewed by Ada Lovelace", names).text == "reviewed by [withheld: name]"
    assert EVERYTHING.redact("Lovelace again", names).text == "[withheld: name] again"
    assert EVERYTHING.redact("Lovelace again").text == "Lovelace again"
    allowing = Redactor(also=[Category.PERSONAL], allow=["Lovelace"])
    assert (
        allowing.redact("Ask Ada Lovelace, then Lovelace").text
        == "Ask [withheld: name] Lovelace, then Lovelace"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Пароль — qwerty77Zx", "Пароль — [withheld: password]"),
        ("Password \u2013 hunter2x9", "Password \u2013 [withheld: password]"),
        ("密码——hunter2x9", "密码——[withheld: password]"),
        ("비밀번호 - hunter2x9", "비밀번호 - [withheld: password]"),
        ("كلمة المرور — hunter2x9", "كلمة المرور — [withheld: password]"),
        ("姓名——赵建国", "姓名——[withheld: name]"),
        ("संपर्क: रमेश कुमार", "संपर्क: [withheld: name]"),
        ("Signed: J. R. R. Tolkien", "Signed: [withheld: name]"),
        ("Signed, J. R. R. Tolkien", "Signed, [withheld: name]"),
        ("Contact: J. R. R. Tolkien", "Contact: [withheld: name]"),
        ("author: JK Rowling, 1997", "author: [withheld: name], 1997"),
        ("Assigned to: JRR Tolkien", "Assigned to: [withheld: name]"),
        ("approved by J Smith", "approved by [withheld: name]"),
        ("assignee: A Müller", "assignee: [withheld: name]"),
        ("JK Rowling wrote it", "[withheld: name] wrote it"),
        ("Dear JK Rowling,\nRegards,\nJ Smith", "Dear [withheld: name],\nRegards,\n[withheld: name]"),
        ("Contact: J Rowling", "Contact: [withheld: name]"),
        ("customer: A. Berg", "customer: [withheld: name]"),
        ("manager: T Mokoena | 4", "manager: [withheld: name] | 4"),
        ("저는 오준호라고 합니다.", "저는 [withheld: name]라고 합니다."),
        *(
            (text, text)
            for text in (
                "Use Ada for SPARK",
                "Try Julia for plots.",
                "Password — required",
                "Password - Minimum length: 8",
                "The flags --password --verbose are old.",
                "密码——必填",
                "担当者: 開発企画部",
                "name: X Ray",
                "name: D Bus",
                "title: J Query",
                "from: A Beginner to: I Robot",
                "owner: E Commerce",
                "owner: QA Team",
                "author: UK Government",
                "approved by NY Times",
                "created by CI Automation",
                "tell EU Commission",
                "ask IT Hosting",
                "Dear AI Assistant,",
            )
        ),
    ],
)
def test_labels_dashes_and_initials(text, expected):
    assert EVERYTHING.redact(text).text == expected
