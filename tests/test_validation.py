import pytest

from redraft._validation import nearest


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("regexp", ["llm", "regex"], "did you mean 'regex'? Known are 'llm', 'regex'."),
        ("REGEX", ["llm", "regex"], "did you mean 'regex'? Known are 'llm', 'regex'."),
        ("xyz", ["llm"], "known are 'llm'."),
        ("xyz", [], "none is known."),
    ],
)
def test_nearest(name, known, said):
    assert nearest(name, known) == said
