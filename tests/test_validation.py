import pytest

from redraft import Agent, MemoryStore, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft._validation import check_count, is_number, nearest
from redraft.errors import ConfigError


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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(value, True) for value in (0, -1, 0.5, 1e308)],
        *[(value, False) for value in (True, "1", None, float("nan"), float("inf"))],
        pytest.param(10**400, False, id="too large"),
        pytest.param(-(10**400), False, id="too small"),
    ],
)
def test_is_number(value, expected):
    assert is_number(value) is expected


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 0, 2**63])
def test_invalid_counts(value):
    with pytest.raises(ConfigError, match=r"^limit must be a whole number of at "):
        check_count("limit", value, 1)


class Mute:
    def __repr__(self):
        raise RuntimeError

    def __call__(self, _):
        return True


OPTIONS = ("max_iterations", "quality_threshold", "budget_usd", "on_failure", "retry", "advisors")


@pytest.mark.parametrize(
    "make",
    [
        *(lambda value, name=name: ReflectionPattern(**{name: value}) for name in OPTIONS),
        lambda value: Agent([value, None]),
        lambda value: Agent("openai:gpt-5", name=value),
        lambda value: Agent("openai:gpt-5", keep=value),
        lambda value: Agent("openai:gpt-5", pattern=value),
        lambda value: Agent("openai:gpt-5", model_settings=value),
        QualityCriterion,
        lambda value: QualityCriterion("x", threshold=value),
        lambda value: QualityCriterion("x", weight=value),
        lambda value: Agent(ScriptedModel(["x"])).run_sync(value),
        lambda value: Agent(ScriptedModel([value])).run_sync("W."),
    ],
)
def test_a_value_whose_repr_raises_is_named_by_its_class(make):
    with pytest.raises(ConfigError):
        make(Mute())


@pytest.mark.parametrize("keep", [False, True])
def test_a_check_whose_repr_raises_works(keep):
    store = MemoryStore()
    result = Agent(ScriptedModel(["x"]), criteria=[Mute()], keep=store if keep else False).run_sync("W.")
    assert result.success
