"""What a writer learns of the criteria: what they ask for with the first draft, and nothing hidden."""

import json
from dataclasses import replace

import pytest
from pydantic_ai import Agent as PydanticAgent

from redraft import (
    Agent,
    Lessons,
    QualityCriterion,
    ReflectionEvaluation,
    ReflectionPattern,
    ScriptedModel,
    reflect_sync,
    reflected,
)
from redraft._critique import render_critique
from redraft._sync import run_sync
from redraft.evaluate.criteria import criteria_of
from redraft.evaluate.requirements import RUBRIC, rubric_of
from redraft.loop.criteria_file import read_criteria
from redraft.loop.revise import REWRITE, REWRITE_LONG, WHOLE, instruction
from redraft.protocols import RunContext
from redraft.types import NOT_JUDGED, Issue
from support.commands import redraft
from support.tool_agents import Actor

SECRET, WITHHELD, TOLD = "secret47114711", "withheld58225822", "told69336933"
LINES = "\n".join(f"line {n}" for n in range(100))
# Three drafts: the second is worse than the first, the fourth repeats the third.
DRAFTS = [f"good fair\n{LINES}", f"poor\n{LINES}", f"fair\n{LINES}", f"fair\n{LINES}", f"good\n{LINES}"]


def marks(text):
    """Score a text by the words in it, and say so."""
    score = 0.2 * ("good" in text) + 0.2 * ("fair" in text)
    return score, f"It scores {score:.1f}."


MARKS = QualityCriterion(
    "marks", "It is marked well.", evaluator="function", evaluator_config={"function": marks}
)


def criterion(name, evaluator, shown=True, **config):
    return QualityCriterion(
        name, f"What {name} means.", evaluator=evaluator, evaluator_config=config, shown=shown
    )


def says(word):
    """An evaluator that says a word in every way it can."""
    verdict = ReflectionEvaluation(0.0, issues=(Issue(f"{word}?"),), suggestions=(f"Write {word}.",))
    return lambda _text: verdict


CONFIGS = {
    "llm": lambda _: {},
    "regex": lambda word: {"pattern": word},
    "regex, forbidden": lambda word: {"pattern": f"line 1|{word}", "must_match": False},
    "words": lambda word: {"at_least": int(word[-8:])},
    "characters": lambda word: {"at_least": int(word[-8:])},
    "lines": lambda word: {"at_least": int(word[-8:])},
    "bullets": lambda word: {"at_least": int(word[-8:])},
    "function": lambda word: {"function": says(word)},
    "schema": lambda word: {"schema": {"type": "object", "required": [word]}},
    "compare": lambda word: {"reference": word},
    "compare, similarity": lambda word: {"reference": word, "method": "similarity"},
    "command, calls": lambda word: {"calls": [["f(1)", word]], "setup": f"x = '{word}'"},
    "command, tests": lambda word: {"tests": f"assert f(1) == '{word}'", "files": {"data.txt": word}},
    "command": lambda word: {"command": ["grep", word, "{file}"], "file": "draft.txt"},
    "generated_tests": lambda word: {"examples": [["f(1)", word]], "count": 1},
}


def judge_reply(request):
    """Answer as a judge that tells all it knows."""
    case = "\n\n".join(message.content for message in request.messages)
    told = any(f"What {name} means." in case for name in ("hidden", "half"))
    word = " ".join(one for one in (SECRET, WITHHELD, TOLD) if told or one in case) or "polish"
    if request.schema is None:
        return f"```python\nassert f(2) == '{word}'\n```"
    if "answer A" in request.messages[-1].content:
        return {"reason": f"A lacks {word}", "winner": "tie"}
    names = request.schema["properties"]["criteria"]["properties"]
    return {
        "criteria": {name: {"reason": f"no {word}", "score": 0.1} for name in names},
        "issues": [{"message": f"{word} is missing", "criterion": name} for name in names],
        "suggestions": [f"Add {word}."],
        "confidence": 1.0,
    }


def edited(text, reply):
    """The reply of an editor that changes the first line."""
    old, new = text.partition("\n")[0], reply.partition("\n")[0]
    return f"<<<<<<< SEARCH\n{old}\nline 0\n=======\n{new}\nline 0\n>>>>>>> REPLACE"


def pattern_of(criteria, strategy="full_rewrite"):
    return ReflectionPattern(
        max_iterations=4,
        quality_criteria=criteria,
        revision_strategy=strategy,
        include_prior_versions=True,
        reflection_model=ScriptedModel(judge_reply),
        until=lambda versions: None,
    )


class Writer:
    """A model that writes the drafts one after the other, as edits where it is asked for these."""

    def __init__(self, drafts=DRAFTS):
        self.drafts = iter(drafts)
        self.requests = []

    def __call__(self, request):
        if request.role == "evaluation":
            return judge_reply(request)
        self.requests.append(request)
        draft = next(self.drafts)
        if "fewest edits" not in request.messages[-1].content:
            return draft
        return edited(request.messages[2].content, draft)

    def prompts(self):
        return ["\n\n".join(message.content for message in request.messages) for request in self.requests]


def text_agent(strategy, candidates=1):
    def run(criteria):
        writer = Writer(DRAFTS[:1] * (candidates - 1) + DRAFTS)
        pattern = replace(pattern_of(criteria, strategy), candidates=candidates)
        agent = Agent(ScriptedModel(writer), pattern=pattern, keep=False)
        result = agent.run_sync("Write.")
        return writer.prompts(), result

    return run


def pydantic_agent(wrapped):
    def run(criteria):
        actor = Actor(list(DRAFTS))
        pattern = pattern_of(criteria)
        if wrapped:
            agent = Agent.from_pydantic_ai(PydanticAgent(actor.model), pattern=pattern, keep=False)
        else:
            agent = Agent(actor.provider, tools=[len], pattern=pattern, keep=False)
        result = agent.run_sync("Write.")
        pairs = zip(actor.infos, actor.requests, strict=True)
        return [f"{info.instructions}\n\n{messages}".replace("\\n", "\n") for info, messages in pairs], result

    return run


def decorated_function(criteria):
    replies, prompts = iter(DRAFTS), []

    @reflected(pattern=pattern_of(criteria), keep=False)
    def write(feedback: str, run: RunContext) -> str:
        prompts.append(f"{run.rubric}\n\n{feedback}\n\n{run.versions}\n\n{run.attempt}")
        return next(replies)

    return prompts, write.run_sync()


def plain_function(criteria):
    replies, prompts = iter(DRAFTS), []

    def generate(prompt):
        prompts.append(prompt)
        return next(replies)

    return prompts, reflect_sync("Write.", generate=generate, pattern=pattern_of(criteria))


WRITERS = {
    "full_rewrite": text_agent("full_rewrite"),
    "targeted_edit": text_agent("targeted_edit"),
    "incremental": text_agent("incremental"),
    "hybrid": text_agent("hybrid"),
    "candidates": text_agent("full_rewrite", candidates=2),
    "tools": pydantic_agent(wrapped=False),
    "wrapped": pydantic_agent(wrapped=True),
    "@reflected": decorated_function,
    "function": plain_function,
}


PAIRS = [(kind, writer) for number, kind in enumerate(CONFIGS) for writer in [*WRITERS][number % 3 :: 3]]
"""Each kind of criterion with a third of the writers, and each writer with a third of the kinds."""


@pytest.mark.parametrize(("kind", "writer"), PAIRS)
def test_a_writer_sees_only_shown_criteria(kind, writer):
    write = WRITERS[writer]
    evaluator, config = kind.partition(",")[0], CONFIGS[kind]
    hidden = criterion("hidden", evaluator, shown=False, **config(SECRET))
    half = criterion("half", evaluator, shown="description", **config(WITHHELD))
    whole = criterion("whole", evaluator, **config(TOLD))
    prompts, result = write([MARKS, "clarity", hidden, half, whole])

    versions = result.history.versions
    assert len(prompts) == 5 + (write is WRITERS["candidates"])
    assert len(versions) == 5
    assert versions[1].gain < 0
    if kind != "generated_tests":  # no test of these can be used, so nothing is judged
        assert "fresh" in {version.strategy for version in versions}
    assert {"hidden", "half", "whole"} <= {issue.criterion for issue in result.final_evaluation.issues}

    rubric = f"{RUBRIC}\n- marks: It is marked well.\n- clarity: "
    for prompt in prompts:
        for word in (SECRET, SECRET[-8:], "hidden", WITHHELD, WITHHELD[-8:]):
            assert word not in prompt
        assert rubric in prompt
        assert "\n- half: What half means.\n- whole: What whole means." in prompt
    # Of a test or a reference, a writer learns only as far as an output has failed it.
    assert (TOLD[-8:] in prompts[0]) is (kind in SAYS_WHAT_IT_ASKS)
    if write is not decorated_function and kind != "generated_tests":
        assert all("Not met. (half)" in prompt for prompt in prompts[-4:])


SAYS_WHAT_IT_ASKS = {"regex", "words", "characters", "lines", "bullets", "schema"}


NOT_AT_FAULT = {
    "passed calls": {"calls": [["f(1)", SECRET], ["f(2)", 1]], "setup": f"x = '{SECRET}'"},
    "passed tests": {"tests": f"assert f(1) == '{SECRET}'\nassert f(2) == 1"},
    "files": {"tests": "assert f(2) == 1", "files": {"data.txt": SECRET}},
}


@pytest.mark.parametrize("config", NOT_AT_FAULT.values(), ids=NOT_AT_FAULT)
def test_the_critique_has_only_the_failed_part_of_a_visible_check(config):
    model = ScriptedModel(["def f(x):\n    return 'secret' '47114711' if x == 1 else 2"] * 2)
    pattern = ReflectionPattern(
        1, [criterion("whole", "command", **config)], revision_strategy="full_rewrite"
    )
    Agent(model, pattern=pattern, keep=False).run_sync("Write.")
    asked = model.requests[1].messages[-1].content
    assert "f(2)" in asked
    assert SECRET not in asked


def test_a_criteria_file_hides_criteria(tmp_path, monkeypatch):
    path = tmp_path / "c.yaml"
    path.write_text(
        "task: Write.\ncriteria:\n- clarity\n"
        f"- {{name: hidden, evaluator: regex, config: {{pattern: {SECRET}}}, shown: false}}\n"
        f"- {{name: half, evaluator: regex, config: {{pattern: {SECRET}}}, shown: description}}\n"
    )
    assert [criterion.shown for criterion in read_criteria(path).criteria] == [True, False, "description"]

    writer = Writer()
    model = ScriptedModel(writer)
    for place in ("redraft.loop.pattern", "redraft.loop.verbs", "redraft.loop.cli"):
        monkeypatch.setattr(f"{place}.model_of", lambda given, *_, **__: model)
    redraft("revise", "-", "-c", path, "-m", "any:model", "--max-iterations", "2", stdin="a draft")
    assert len(writer.requests) == 2
    for text in writer.prompts():
        assert "clarity" in text
        assert "half" in text
        assert SECRET not in text
        assert "hidden" not in text


@pytest.mark.parametrize("value", ["no", 1, None, "names"])
def test_a_wrong_value_of_shown_is_refused(value):
    with pytest.raises(Exception, match="'secret': shown must be True, False or 'description', got"):
        criterion("secret", "llm", shown=value)


def test_a_criteria_file_names_the_line_of_a_wrong_value(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("criteria:\n- clarity\n- {name: secret, shown: names}\n")
    with pytest.raises(Exception, match=r"line 3: Criterion 'secret': shown must be"):
        read_criteria(path)


def test_a_judge_is_asked_not_to_quote_a_reference():
    for config, is_asked in (({"reference": SECRET}, True), ({"against": "first"}, False)):
        judge = ScriptedModel(judge_reply)
        pattern = ReflectionPattern(
            1, [MARKS, criterion("hidden", "compare", **config)], reflection_model=judge
        )
        Agent(ScriptedModel(["a", "b"]), pattern=pattern, keep=False).run_sync("Write.")
        systems = [request.messages[0].content for request in judge.requests]
        assert systems
        assert all(("quote neither answer" in text) is is_asked for text in systems)


# --- what is told -------------------------------------------------------------------------------------------


def test_the_rubric_names_what_is_shown():
    criteria = criteria_of(
        [
            "Names the price and what is in the set.",
            "A sentence so long that its name is cut, which a reader should not have to read twice over.",
            QualityCriterion(
                "short", "At most 60 words.", evaluator="words", evaluator_config={"at_most": 60}
            ),
            QualityCriterion("rows", evaluator="lines", evaluator_config={"at_most": 9}),
            QualityCriterion("rows again", evaluator="lines", evaluator_config={"at_most": 9}),
            QualityCriterion("hidden", "Secret.", shown=False),
            QualityCriterion("hidden rows", evaluator="lines", evaluator_config={"at_most": 8}, shown=False),
            QualityCriterion(
                "half", "Told.", evaluator="words", evaluator_config={"at_least": 7}, shown="description"
            ),
            QualityCriterion("right", evaluator="command", evaluator_config={"calls": [["f(1)", SECRET]]}),
            QualityCriterion("tests", evaluator="generated_tests"),
        ]
    )
    assert rubric_of(criteria).splitlines() == [
        RUBRIC,
        "- Names the price and what is in the set.",
        "- A sentence so long that its name is cut, which a reader should not have to read twice over.",
        "- short: At most 60 words.",
        "- The text has at most 9 lines.",
        "- half: Told.",
        "- tests: passes tests that somebody else wrote for this task",
    ]
    assert rubric_of(criteria[5:7]) == ""


@pytest.mark.parametrize(
    ("count", "last"),
    [(40, "- Says 39."), (41, "- and 1 more requirement"), (52, "- and 12 more requirements")],
)
def test_the_rubric_counts_the_requirements_that_it_leaves_out(count, last):
    heading, *lines = rubric_of(criteria_of([f"Says {number}." for number in range(count)])).splitlines()
    assert (heading, lines[0], lines[39], lines[-1]) == (RUBRIC, "- Says 0.", "- Says 39.", last)


def test_strengths_of_a_long_output_follow_its_issues():
    evaluation = ReflectionEvaluation(
        0.5,
        {"short": 1.0, "form": 0.9, "clarity": 0.4, "tone": 0.8, "unknown": None},
        issues=(Issue("Vague.", "clarity"), Issue("A bit stiff.", "tone")),
        suggestions=("Be plain.",),
    )
    critique = "What is wrong:\n- Vague. (clarity)\n- A bit stiff. (tone)\n\nWhat to do:\n- Be plain."
    strengths = "What is right, and must stay right:\n- short\n- form"
    assert render_critique(evaluation, "x" * 1501) == f"{critique}\n\n{strengths}"
    assert render_critique(evaluation, "x" * 1500) == critique
    assert instruction("full_rewrite", "x" * 1501) == f"{REWRITE_LONG} {WHOLE}"
    assert instruction("full_rewrite", "x" * 1500) == f"{REWRITE} {WHOLE}"


def test_the_prefix_is_the_same_in_all_calls_of_a_run():
    writer = Writer()
    pattern = pattern_of([MARKS, "clarity"], "hybrid")
    agent = Agent(ScriptedModel(writer), pattern=pattern, system_prompt="You write.", keep=False)
    result = agent.run_sync("Write.")
    assert {version.strategy for version in result.history.versions} >= {"draft", "full_rewrite", "fresh"}
    assert len(writer.requests) == 5
    system, task = writer.requests[0].messages
    assert system.content == "You write.\n\nReply with only the answer."
    assert task.content.startswith(f"Write.\n\n{RUBRIC}\n- marks: It is marked well.\n- clarity: ")
    for request in writer.requests:
        assert request.messages[0] == system
        assert request.messages[1].content.startswith(task.content)


def test_the_prefix_of_an_agent_that_answers_in_a_type_is_the_same_in_all_calls_of_a_run():
    values = [{"n": 1}, {"n": 2}, {"n": 2}, {"n": 3}]
    model = ScriptedModel([json.dumps(value) for value in values])
    offer = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    large = QualityCriterion(
        "large",
        "It is large.",
        evaluator="function",
        evaluator_config={"function": lambda value: value["n"] / 10},
    )
    pattern = ReflectionPattern(3, [large], until=lambda _: None)
    result = Agent(model, output_type=offer, pattern=pattern, keep=False).run_sync("Choose.")
    assert [version.output for version in result.history.versions] == values
    assert len({request.messages[0].content for request in model.requests}) == 1
    for request in model.requests:
        assert request.messages[1].content.startswith(f"Choose.\n\n{RUBRIC}\n- large: It is large.")


def test_the_prefix_of_an_agent_with_tools_is_the_same_in_all_calls_of_a_run():
    for wrapped in (True, False):
        actor = Actor(list(DRAFTS))
        agent = (
            Agent.from_pydantic_ai(
                PydanticAgent(actor.model, instructions="Be kind."), pattern=pattern_of([MARKS]), keep=False
            )
            if wrapped
            else Agent(
                actor.provider,
                tools=[len],
                pattern=pattern_of([MARKS]),
                system_prompt="Be kind.",
                keep=False,
            )
        )
        agent.run_sync("Write.")
        (instructions,) = {info.instructions for info in actor.infos}
        assert instructions == ("Be kind." if wrapped else "Be kind.\n\nReply with only the answer.")
        for first, *_ in actor.requests:
            assert any(
                str(part.content).startswith(f"Write.\n\n{RUBRIC}\n- marks: It is marked well.")
                for part in first.parts
            )
        assert len(actor.infos) == 5


def test_the_judge_of_visible_criteria_does_not_see_hidden_criteria():
    judge = ScriptedModel(judge_reply)
    pattern = ReflectionPattern(
        1,
        ["clarity", criterion("hidden", "llm", shown=False), criterion_named("form")],
        reflection_model=judge,
    )
    result = Agent(ScriptedModel(["a", "b"]), pattern=pattern, keep=False).run_sync("Write.")
    about = [request for request in judge.requests if "clarity" in request.messages[0].content]
    assert len(judge.requests) == 4
    assert len(about) == 2
    for request in about:
        assert "hidden" not in json.dumps([message.content for message in request.messages])
        assert SECRET not in json.dumps([message.content for message in request.messages])
    scores = result.final_evaluation.criteria_scores
    assert scores["clarity"] == scores["hidden"] == 0.1
    assert result.final_evaluation.usage.requests == 2
    assert result.final_evaluation.suggestions == ("Add polish.",)


def criterion_named(name):
    return QualityCriterion(
        name, evaluator="regex", evaluator_config={"pattern": SECRET}, shown="description"
    )


def test_a_lesson_is_written_without_what_is_hidden(tmp_path):
    asked = []

    def write(request):
        asked.append(json.dumps([message.content for message in request.messages]))
        return "{}"

    hidden = criterion("hidden", "regex", shown=False, pattern=SECRET)
    lessons = Lessons(tmp_path, model=ScriptedModel(write))
    agent = Agent(
        ScriptedModel(["a", "b"]), pattern=ReflectionPattern(1, [MARKS, hidden]), lessons=lessons, keep=False
    )
    agent.run_sync("Write.")
    assert asked
    assert not any(SECRET in text or "hidden" in text for text in asked)


def test_revising_outside_of_a_run_knows_the_bar_and_hides_the_same():
    model = ScriptedModel(["better"])
    pattern = ReflectionPattern(
        quality_criteria=[MARKS, criterion("hidden", "regex", shown=False, pattern=SECRET)]
    )
    agent = Agent(model, pattern=pattern, keep=False)

    async def revised():
        evaluation = await pattern.reflect("a draft")
        assert any(SECRET in issue for issue in evaluation.issues)
        return await pattern.revise("a draft", evaluation, agent=agent)

    assert run_sync(revised()) == "better"
    text = json.dumps([message.content for message in model.requests[0].messages])
    assert "marks: It is marked well." in text
    assert SECRET not in text


def test_the_writer_does_not_see_unjudged_criteria():
    tests = "import nowhere\nassert f(1) == 1"
    criteria = [
        QualityCriterion("right", evaluator="command", evaluator_config={"tests": tests}),
        QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 3}),
    ]
    model = ScriptedModel(["def f(x): return x", "f = int"])
    pattern = ReflectionPattern(quality_criteria=criteria, max_iterations=1)
    result = Agent(model, pattern=pattern, keep=False).run_sync("Write f.")
    assert "4 words; at most 3" in model.requests[1].messages[-1].content
    assert "nowhere" not in str(model.requests)
    assert "can't import 'nowhere'" in str(result.history.versions[0].evaluation.issues)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_no_writer_sees_unjudged_criteria(write):
    unknown = criterion("right", "function", function=lambda _text: "no verdict")
    prompts, result = write([MARKS, unknown])
    assert len(result.history.versions) == 5
    for version in result.history.versions:
        assert any(issue.startswith(NOT_JUDGED) for issue in version.evaluation.issues)
    assert [prompt for prompt in prompts if NOT_JUDGED in prompt or "no verdict" in prompt] == []


def adds_one(f):
    wanted = 31337
    assert f(wanted - 1) == wanted, "psst"


@pytest.mark.parametrize("shown", ["description", False])
@pytest.mark.parametrize(
    "config",
    [
        {"tests": adds_one},
        {"tests": "assert f(31336) == 31337, 'psst'"},
        {"tests": "import psst\nassert f(31336) == 31337"},
        {"calls": [["f(31336)", 31337]]},
    ],
    ids=["function", "source", "unknown", "calls"],
)
def test_withheld_tests_are_in_no_prompt(config, shown):
    criteria = [
        QualityCriterion("held", evaluator="command", evaluator_config=config, shown=shown),
        QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 3}),
    ]
    model = ScriptedModel([f"def f(x): return x  # {n}" for n in range(4)])
    pattern = ReflectionPattern(quality_criteria=criteria, plateau_iterations=9, include_prior_versions=True)
    result = Agent(model, pattern=pattern, keep=False).run_sync("Write f.")
    assert len(result.history.versions) > 1
    assert [word for word in ("31336", "31337", "psst", "wanted") if word in str(model.requests)] == []


FORM = {"type": "object", "required": ["name"]}


@pytest.mark.parametrize(("shown", "sent"), [(True, FORM), ("description", None), (False, None)])
def test_the_schema_of_the_whole_answer_is_sent_with_drafts_and_rewrites(shown, sent):
    form = QualityCriterion(
        "form", "An object.", evaluator="schema", evaluator_config={"schema": FORM}, shown=shown
    )
    replies = ["{}", '<<<<<<< SEARCH\n{}\n=======\n{"nam": 1}\n>>>>>>> REPLACE', '{"name": 1}']
    model = ScriptedModel(replies)
    pattern = ReflectionPattern(2, [form], revision_strategy="targeted_edit", until=lambda _: None)
    Agent(model, pattern=pattern, keep=False).run_sync("Write.")
    assert [request.schema for request in model.requests][:2] == [sent, None]
    assert model.requests[0].schema_in_prompt is (sent is not None)
    model = ScriptedModel(["{}", '{"name": 1}'])
    pattern = ReflectionPattern(1, [form], revision_strategy="full_rewrite")
    Agent(model, pattern=pattern, keep=False).run_sync("Write.")
    assert [request.schema for request in model.requests] == [sent, sent]
