import pytest

from cycles_made import item, reflecting
from cycling import run, substages
from redraft.core.errors import ModelError, OutputError
from redraft.cycles.learn import learn

SCHEMA = {
    "type": "object",
    "properties": {
        "newPatterns": {"type": "array", "items": {"type": "object"}},
        "confidenceAdjustment": {"type": "number", "minimum": -0.2, "maximum": 0.2},
    },
}
NEW = {"newPatterns": [{"description": "Drift"}]}


def learner(prompt="What can be learnt?", schema=SCHEMA, name="learner", **config):
    form = {} if schema is None else {"outputSchema": schema}
    return {"type": "learn", "name": name, "prompt": prompt, "config": config, **form}


def learned(*given, replies, memory=None):
    cycle = reflecting(*given, replies=replies, memory=memory)
    for substage in substages(cycle.spec, "reflect"):
        run(learn(substage, cycle))
    return cycle


@pytest.mark.parametrize(
    ("substage", "replies", "learnt"),
    [
        pytest.param(learner(), [NEW], NEW, id="as asked for"),
        pytest.param(learner(), [{"confidenceAdjustment": 0.5}, NEW], NEW, id="after a retry"),
        pytest.param(
            learner(schema=None), ['```json\n{"insights": ["a"]}\n```'], {"insights": ["a"]}, id="JSON"
        ),
        pytest.param(learner(schema=None), ["It was quiet."], {"insights": ["It was quiet."]}, id="a text"),
        pytest.param(learner(schema=None), ['["a", "b"]'], {"insights": ["a", "b"]}, id="a list"),
        pytest.param(learner(schema={"type": "number"}), ["5"], {"insights": [5]}, id="a number"),
    ],
)
def test_what_the_model_learnt(substage, replies, learnt):
    cycle = learned(substage, replies=replies)
    assert cycle.state.derived_data["learnings"] == learnt
    assert cycle.learnt == [("patterns", learnt)]
    assert cycle.next_memory is None
    assert cycle.usage.requests == len(replies)


@pytest.mark.parametrize(
    ("prompt", "config", "target"),
    [
        ("Learn.", {}, "patterns"),
        ("{{ memory.patterns | json }} {{ memory.feedbackHistory | json }}", {}, "patterns"),
        ("{{ memory.qualityPatterns | json }} {{ memory.feedbackHistory | json }}", {}, "qualityPatterns"),
        ("{{ memory.one | json }} {{ memory.two | json }}", {}, "patterns"),
        ("{{ memory.one | json }} {{ memory.insights | json }}", {}, "one"),
        ("{{ memory.one | json }}", {"target": "memory.two"}, "two"),
        ("{{ memory.one | json }}", {"target": "memory.patterns"}, "patterns"),
    ],
)
def test_where_new_patterns_go(prompt, config, target):
    keys = ("patterns", "feedbackHistory", "qualityPatterns", "one", "two", "insights")
    memory = {key: [] for key in keys}
    cycle = learned(learner(prompt, **config), replies=[NEW], memory=memory)
    assert cycle.learnt == [(target, NEW)]


def test_several_learn_side_by_side():
    second = {"newPatterns": [{"description": "Noise"}], "confidenceAdjustment": 0.1}
    cycle = learned(learner(), learner(name="other"), replies=[NEW, second])
    assert cycle.state.derived_data["learnings"] == {
        "newPatterns": [{"description": "Drift"}, {"description": "Noise"}],
        "confidenceAdjustment": 0.1,
    }
    assert cycle.learnt == [("patterns", NEW), ("patterns", second)]


@pytest.mark.parametrize(
    ("replies", "error"),
    [([{"newPatterns": 1}, {"newPatterns": 2}], OutputError), ([ModelError("away")], ModelError)],
)
def test_a_learn_that_fails_leaves_nothing(replies, error):
    cycle = reflecting(learner(), replies=replies)
    with pytest.raises(error):
        run(learn(substages(cycle.spec, "reflect")[0], cycle))
    assert (cycle.learnt, cycle.state.derived_data.get("learnings") or {}) == ([], {})


def test_the_prompt_shows_the_memory_within_its_bound_and_is_not_reasons():
    memory = {"patterns": [item(f"p{number}", description="word " * 100) for number in range(100)]}
    cycle = reflecting(learner("{{ memory.patterns | json }}"), replies=[NEW], memory=memory)
    run(learn(substages(cycle.spec, "reflect")[0], cycle))
    asked = cycle.means.model_for(None).requests[0].messages[-1].content
    assert '"p99"' in asked
    assert '"p1"' not in asked
    assert "of 100 of memory.patterns" in asked
    assert cycle.rendered == set()
