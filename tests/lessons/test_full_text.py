import pytest

from redraft.lessons.full_text import names_in, search_words, searchable, spelled, stems_of, tokens_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A plain sentence, isn't it? Well-known. An API, of course.", []),
        ("http_get gave E4031 on line 7.", ["http_get", "E4031", "7"]),
        ("use --no-cache with ./app/config.yaml.", ["--no-cache", "./app/config.yaml"]),
        ("用order_total字段, 에러E4031을 файл config.yaml", ["order_total", "E4031", "config.yaml"]),
        ("a LessonFileError of os.path, or std::vector", ["LessonFileError", "os.path", "std::vector"]),
    ],
)
def test_names_are_found_in_a_text(text, names):
    assert names_in(text) == names


def test_a_name_and_each_part_of_a_path_become_tokens():
    assert tokens_of("./app/config.yaml") == ["app_config_yaml", "app", "config_yaml"]
    assert tokens_of("__init__") == ["__init__"]
    assert searchable("see ./app/config.yaml now").endswith(
        "app_config_yaml app config_yaml appconfigyaml configyaml"
    )
    assert search_words("see config.yaml of the app")[0] == "config_yaml"


@pytest.mark.parametrize("name", ["order_total", "orderTotal", "order-total", "ORDER_TOTAL", "Order.Total"])
def test_the_spellings_of_a_name_have_one_form_in_common(name):
    assert spelled(tokens_of(name)[0]) == "ordertotal"


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("отчёты", "отчетов"),
        ("τιμολόγια", "ΤΙΜΟΛΟΓΊΟΥ"),
        ("المقعد", "مَقعد"),
        ("המלונות", "מלון"),
    ],
)
def test_inflected_words_have_one_stem(text, other):
    assert stems_of(text) == stems_of(other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What is the price of it?", ["price"]),
        ("Wie ist der Preis für ein Zimmer?", ["preis", "zimmer"]),
        ("写一份四月发票的总结", ["写一", "份四", "四月", "月发", "发票", "总结"]),
        ("天気はどうですか", ["天気", "気は"]),
        ("それはどうですか", ["それ", "れは", "はど", "どう", "うで", "です", "すか"]),
    ],
)
def test_stop_words_are_not_looked_up_unless_a_question_has_no_others(text, words):
    assert search_words(text) == words
