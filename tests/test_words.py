# ruff: noqa: RUF001 (letters of other scripts)

import pytest

from redraft._words import is_latin, overlap, words_in, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("It isn't foo_bar, 12.5!", ["it", "isn", "t", "foo_bar", "12", "5"], id="English"),
        pytest.param("Straße, e\u0301t\u00e9, İzmir", ["strasse", "ete", "izmir"], id="Latin"),
        pytest.param("Счёт и отчёты", ["счет", "и", "отчеты"], id="Cyrillic"),
        pytest.param("ΣΥΝΕΔΡΙΆΣΕΙΣ", ["συνεδριασεισ"], id="Greek, with its final letter"),
        pytest.param("مُلخّصـات الفواتير", ["ملخصات", "الفواتير"], id="Arabic, vowel points and strokes"),
        pytest.param("می\u200cخواهم کتاب", ["ميخواهم", "كتاب"], id="Persian"),
        pytest.param("שָׁלוֹם עולם", ["שלומ", "עולמ"], id="Hebrew"),
        pytest.param("हिन्दी में रिपोर्ट।", ["हिन्दी", "में", "रिपोर्ट"], id="Devanagari keeps its vowel signs"),
        pytest.param("发票的总结，水", ["发票", "票的", "的总", "总结", "水"], id="Chinese"),
        pytest.param("ＡＰＩを使う ﾃﾞｰﾀ", ["api", "を使", "使う", "デー", "ータ"], id="Japanese, any width"),
        pytest.param("สรุปผล", ["สรุ", "รุป", "ปผ", "ผล"], id="Thai, a vowel sign with its letter"),
        pytest.param("보고서를 쓰", ["보고", "고서", "서를", "쓰"], id="Korean"),
        pytest.param("ຂໍ້ມູນ", ["ຂໍ້ມູ", "ມູນ"], id="Lao"),
        pytest.param("ទិន្នន័យ", ["ទិន្", "ន្ន", "នន័", "ន័យ"], id="Khmer"),
        pytest.param("အစီရင်", ["အစီ", "စီရ", "ရင်"], id="Burmese"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_words_are_found_in_any_script(text, words):
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("one", "other", "is_similar"),
    [
        ("每个金额旁边都要写明币种。", "每个金额的旁边都要写明币种", True),
        ("每个金额旁边都要写明币种。", "付款之前先询问座位要求。", False),
        ("金額ごとに通貨を書いてください。", "金額ごとに、通貨を書いて下さい。", True),
        ("ตรวจสอบอาหารเช้าและเงื่อนไข", "ตรวจสอบอาหารเช้าและเงื่อนไขการยกเลิก", True),
    ],
)
def test_similar_sentences_of_a_script_without_spaces_share_most_words(one, other, is_similar):
    assert (overlap(words_in(one), words_in(other)) >= 0.6) == is_similar


def test_a_text_is_latin_if_most_of_its_letters_are():
    assert is_latin("Prüfe das, 检查")
    assert not is_latin("检查 API 的请求和响应")
