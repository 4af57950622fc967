import pytest

from redraft.lessons.full_text import names_in, search_words, searchable, tokens_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A plain sentence, isn't it? Well-known. An API, of course.", []),
        ("http_get gave E4031 on line 7.", ["http_get", "E4031", "7"]),
        ("use --no-cache with ./app/config.yaml.", ["--no-cache", "./app/config.yaml"]),
        ("a LessonFileError of os.path, or std::vector", ["LessonFileError", "os.path", "std::vector"]),
    ],
)
def test_names_are_found_in_a_text(text, names):
    assert names_in(text) == names


def test_a_name_and_each_part_of_a_path_become_tokens():
    assert tokens_of("./app/config.yaml") == ["app_config_yaml", "app", "config_yaml"]
    assert tokens_of("__init__") == ["__init__"]
    assert searchable("see ./app/config.yaml now").endswith("app_config_yaml app config_yaml")
    assert search_words("see config.yaml of the app")[0] == "config_yaml"
