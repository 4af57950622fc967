from __future__ import annotations

import time

import pytest

from redraft.models.embed import WordPiece, vocabulary, words


@pytest.fixture(scope="module")
def pieces():
    return WordPiece(vocabulary())


# The ids are those of the tokenizer published with the model (tokenizers 0.23).
REFERENCE = [
    ("", [101, 102]),
    ("Hello, World!", [101, 7592, 1010, 2088, 999, 102]),
    ("unaffable", [101, 14477, 20961, 3468, 102]),
    (
        "ImportError: cannot import name 'foo_bar' from /usr/lib",
        [
            101,
            12324,
            2121,
            29165,
            1024,
            3685,
            12324,
            2171,
            1005,
            29379,
            1035,
            3347,
            1005,
            2013,
            1013,
            2149,
            2099,
            1013,
            5622,
            2497,
            102,
        ],
    ),
    ("Ça déjà vu — naïve", [101, 6187, 2139, 3900, 24728, 1517, 15743, 102]),
    (
        "error 0x80070005 in v2.1.3-rc1",
        [
            101,
            7561,
            1014,
            2595,
            17914,
            2692,
            19841,
            8889,
            2629,
            1999,
            1058,
            2475,
            1012,
            1015,
            1012,
            1017,
            1011,
            22110,
            2487,
            102,
        ],
    ),
    ("東京 tower", [101, 1879, 1755, 3578, 102]),
    ("한국어", [101, 1469, 30006, 30021, 29991, 30014, 30020, 29999, 30008, 102]),
    ("🙂 ok", [101, 100, 7929, 102]),
    ("x" * 101, [101, 100, 102]),
    (
        "x" * 100,
        [
            101,
            22038,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            20348,
            102,
        ],
    ),
    ("don\u200bt\x07 stop", [101, 2123, 2102, 2644, 102]),
    (
        "$5 + 10% <tag> ~ ^ `code`",
        [101, 1002, 1019, 1009, 2184, 1003, 1026, 6415, 1028, 1066, 1034, 1036, 3642, 1036, 102],
    ),
    ("Привет", [101, 1194, 16856, 10325, 25529, 15290, 22919, 102]),
]


@pytest.mark.parametrize(("text", "ids"), REFERENCE)
def test_ids_are_those_of_the_published_tokenizer(pieces, text, ids):
    assert pieces(text, 256) == ids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Naïve CAFÉ", ["naive", "cafe"]),
        ("don't: stop!", ["don", "'", "t", ":", "stop", "!"]),
        ("--no-verify=1", ["-", "-", "no", "-", "verify", "=", "1"]),
        ("ab中文cd", ["ab", "中", "文", "cd"]),
        ("a\x00b\u200bc\ufffdd", ["abcd"]),
        ("a\x0bb\x1cc", ["abc"]),
        ("a\u00a0b\u2028c\nd\te", ["a", "b", "c", "d", "e"]),
        ("\u03a3\u0391\u03a3 \u0130 \ufb01", ["\u03c3\u03b1\u03c3", "i", "\ufb01"]),
        ("\udc00x", ["x"]),
        ("\u037e", [";"]),
        ("", []),
    ],
)
def test_a_text_is_normalised_and_parted(text, expected):
    assert list(words(text)) == expected


@pytest.mark.parametrize("limit", [2, 3, 7, 256])
def test_a_long_text_is_cut_to_the_limit_between_its_marks(pieces, limit):
    ids = pieces("unaffable words " * 300, limit)
    assert len(ids) == limit
    assert (ids[0], ids[-1]) == (101, 102)
    assert 102 not in ids[:-1]


@pytest.mark.parametrize("text", ["[SEP] [CLS] [MASK]", "x [SEP]"])
def test_a_marker_in_a_text_is_text(pieces, text):
    assert not {101, 102, 103} & set(pieces(text, 256)[1:-1])


def test_a_book_costs_no_more_than_a_page(pieces):
    book = "été words " * 200_000
    started = time.process_time()
    for _ in range(10):
        pieces(book, 256)
    assert time.process_time() - started < 1
