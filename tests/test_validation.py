import pytest

from redraft._validation import nearest


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("regexp", ["llm", "regex"], "did you mean 'regex'? Expected one of 'llm', 'regex'."),
        ("REGEX", ["llm", "regex"], "did you mean 'regex'? Expected one of 'llm', 'regex'."),
        ("xyz", ["llm"], "expected 'llm'."),
        ("xyz", [], "none are defined."),
    ],
)
def test_nearest(name, known, said):
    assert nearest(name, known) == said
