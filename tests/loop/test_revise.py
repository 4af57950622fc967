import time
from random import Random

import pytest
from pydantic import BaseModel

from redraft import Issue, ModelError, ReflectionEvaluation, ScriptedModel, Task, TokenUsage
from redraft._prompts import prompt_of
from redraft._sync import run_sync
from redraft.errors import OutputError
from redraft.loop.revise import (
    EDIT_FORMAT,
    Edit,
    ModelGenerator,
    ModelReviser,
    apply_edits,
    read_edits,
)
from redraft.protocols import Attempt, ChatReply, RunContext
from redraft.types import Advice
from support.versions import version

TASK = Task("Write about tea.", expected_output="One paragraph.", context="For children.")
LONG = "\n".join(f"line {n} of a text that is long enough to be edited in places" for n in range(60))


def evaluation(*messages, **fields):
    return ReflectionEvaluation(0.5, issues=tuple(Issue(text) for text in messages), **fields)


def edit(search, replace):
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"


def revise(model, output, judged, shown=None, run=None, **attempt):
    reviser = ModelReviser(model, "You write.", **(shown or {}))
    attempt = Attempt(2, "revise", output, judged, **{"strategy": "full_rewrite", **attempt})
    run = run or {}
    return run_sync(reviser(output, judged, RunContext(TASK, "id", 2, attempt=attempt, **run)))


def last_turn(model):
    return model.requests[-1].messages[-1].content


def test_a_draft_request_has_the_system_prompt_and_the_prompt():
    model = ScriptedModel(["Tea is nice."])
    draft = run_sync(ModelGenerator(model, "You write.")("Write about tea.", RunContext(TASK, "id")))
    assert draft.output == "Tea is nice."
    request = model.requests[0]
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "You write.\n\nReply with only the answer."),
        ("user", "Write about tea."),
    ]
    assert (request.role, request.temperature, request.max_tokens) == ("generation", None, None)


def test_a_draft_request_always_asks_for_only_the_answer():
    model = ScriptedModel(["Tea is nice."])
    run_sync(ModelGenerator(model)("Write about tea.", RunContext(TASK, "id")))
    first = model.requests[0].messages[0]
    assert first.role == "system"
    assert first.content == "Reply with only the answer."


def test_a_revision_request_starts_with_the_whole_task():
    model = ScriptedModel(["better"])
    revise(model, "old", evaluation("x"), run={"advice": (Advice("Mention milk.", "note"),)})
    prompt = model.requests[0].messages[1].content
    for part in ("For children.", "Write about tea.", "One paragraph.", "- Mention milk."):
        assert part in prompt


def test_a_fresh_start_hides_the_failed_draft_and_lists_what_to_avoid():
    model = ScriptedModel(["new"])
    attempt = Attempt(3, "fresh", "THE OLD TEXT", evaluation("too long", "too dull"), temperature=0.7)
    draft = run_sync(ModelGenerator(model)("Write about tea.", RunContext(TASK, "id", 3, attempt=attempt)))
    assert draft.strategy == "fresh"
    assert "- too long\n- too dull" in last_turn(model)
    assert "THE OLD TEXT" not in last_turn(model)
    assert model.requests[0].temperature == 0.7


def test_a_rewrite_shows_the_output_as_the_models_own_and_the_critique():
    model = ScriptedModel(["better"])
    judged = evaluation("too long", suggestions=("Cut the middle.",))
    draft = revise(model, "old", judged)
    assert (draft.output, draft.strategy) == ("better", "full_rewrite")
    assert draft.improvements == ("asked to mend: too long",)
    turns = model.requests[0].messages
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user"]
    assert turns[2].content == "old"
    assert "- too long" in turns[3].content
    assert "- Cut the middle." in turns[3].content
    assert model.requests[0].role == "revision"


@pytest.mark.parametrize(
    ("strategy", "words"),
    [("full_rewrite", "anew"), ("incremental", "keep every part"), ("targeted_edit", "<<<<<<< SEARCH")],
)
def test_each_strategy_has_its_own_instruction(strategy, words):
    model = ScriptedModel([edit("old", "new") if strategy == "targeted_edit" else "new"])
    assert revise(model, "old", evaluation("x"), strategy=strategy).strategy == strategy
    assert words in last_turn(model)


def test_targeted_edits_change_nothing_else():
    model = ScriptedModel([edit("line 7 of", "LINE 7 of")])
    draft = revise(model, LONG, evaluation("x"), strategy="targeted_edit")
    assert draft.output == LONG.replace("line 7 of", "LINE 7 of")
    assert draft.improvements == ("replaced 'line 7 of' by 'LINE 7 of'",)


def test_a_failed_edit_is_reported_back_once():
    model = ScriptedModel([edit("absent", "x"), edit("old", "new")])
    draft = revise(model, "old text", evaluation("x"), strategy="targeted_edit")
    assert (draft.output, draft.strategy) == ("new text", "targeted_edit")
    assert "does not occur" in last_turn(model)
    assert draft.usage.requests == 2


def test_after_two_failed_edits_the_text_is_rewritten():
    model = ScriptedModel([edit("absent", "x"), "no edits at all", "a whole new text"])
    draft = revise(model, "old text", evaluation("x"), strategy="targeted_edit")
    assert (draft.output, draft.strategy) == ("a whole new text", "full_rewrite")
    assert "could not be applied" in draft.notes[0]
    assert draft.usage.requests == 3


def test_an_error_carries_the_usage_before_it():
    paid = ChatReply(edit("absent", "x"), usage=TokenUsage(30, 12, requests=1))
    model = ScriptedModel([paid, ModelError("down")])
    with pytest.raises(ModelError) as caught:
        revise(model, "old", evaluation("x"), strategy="targeted_edit")
    assert caught.value.usage.total_tokens == 42


@pytest.mark.parametrize("reply", ["", "  \n", "<think>hm</think>\n"])
def test_an_empty_reply_is_a_failed_call(reply):
    with pytest.raises(ModelError, match="empty") as caught:
        revise(ScriptedModel([reply]), "old", evaluation("x"))
    assert (caught.value.retryable, caught.value.unusable_reply) == (True, True)
    assert (caught.value.usage.requests, caught.value.usage.input_tokens > 0) == (0, True)


def test_edits_that_leave_nothing_are_not_applied():
    edit = "<<<<<<< SEARCH\nold\n=======\n>>>>>>> REPLACE"
    model = ScriptedModel([edit, edit, "better"])
    draft = revise(model, "old", evaluation("x"), strategy="targeted_edit")
    assert draft.output == "better"
    assert "the edits leave nothing of the text" in draft.notes[0]


@pytest.mark.parametrize(
    ("output", "reply", "strategy"),
    [
        ("old", "half a sen", "full_rewrite"),
        (LONG, edit("line 7 of", "LINE 7 of") + "\n<<<<<<< SEARCH\nline 9", "targeted_edit"),
    ],
)
def test_a_cut_off_reply_is_noted(output, reply, strategy):
    model = ScriptedModel([ChatReply(reply, finish_reason="length")])
    draft = revise(model, output, evaluation("x"), strategy=strategy)
    assert (draft.strategy, draft.notes) == (strategy, ("The reply was cut off at the token limit.",))


class Person(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("output", "reply", "expected"),
    [
        ({"name": "Al"}, '```json\n{"name": "Bo"}\n```', {"name": "Bo"}),
        (Person(name="Al"), '{"name": "Bo"}', Person(name="Bo")),
        (["a"], '["b"]', ["b"]),
    ],
)
def test_structured_outputs_stay_structured(output, reply, expected):
    assert revise(ScriptedModel([reply]), output, evaluation("x")).output == expected


@pytest.mark.parametrize("reply", ["I would rather not.", '{"name": 3}'])
def test_a_reply_of_the_wrong_type_is_requested_again_once(reply):
    model = ScriptedModel([reply, '{"name": "Bo"}'])
    draft = revise(model, Person(name="Al"), evaluation("x"))
    assert (draft.output, draft.usage.requests) == (Person(name="Bo"), 2)
    with pytest.raises(OutputError, match="not a valid Person") as caught:
        revise(ScriptedModel([reply, reply]), Person(name="Al"), evaluation("x"))
    assert caught.value.usage.requests == 2


def test_an_edit_that_breaks_the_json_is_reported_back():
    model = ScriptedModel([edit('"Al"', "Bo"), edit('"Al"', '"Bo"')])
    assert revise(model, {"name": "Al"}, evaluation("x"), strategy="targeted_edit").output == {"name": "Bo"}


EARLIER = (
    version(1, 0.4, "the first text", issues=(Issue("first was dull"),)),
    version(2, 0.5, "the second text", issues=(Issue("second was long"),)),
)


@pytest.mark.parametrize(
    ("shown", "reflections", "versions"),
    [
        ({}, True, False),
        ({"show_reflections": False}, False, False),
        ({"show_reflections": False, "show_versions": True}, False, True),
    ],
)
def test_options_choose_what_a_prompt_shows_of_earlier_versions(shown, reflections, versions):
    model = ScriptedModel(["x"])
    revise(model, "the second text", evaluation("x"), shown, run={"versions": EARLIER})
    assert ("first was dull" in last_turn(model)) is reflections
    assert ("the first text" in last_turn(model)) is versions
    assert "second was long" not in last_turn(model)  # it is what is being revised


def test_the_prompt_names_the_change_that_made_it_worse():
    model = ScriptedModel(["x"])
    failed = version(
        3, 0.2, "bad", improvements_applied=("replaced 'a' by 'b'",), issues=(Issue("now rude"),)
    )
    revise(model, "good", evaluation("x"), failed=failed)
    assert "replaced 'a' by 'b'" in last_turn(model)
    assert "now rude" in last_turn(model)


def test_an_issue_that_is_named_above_is_not_named_again():
    model = ScriptedModel(["x"])
    failed = version(3, 0.2, "bad", issues=(Issue("too long"), Issue("now rude")))
    earlier = (version(1, 0.3, "first", issues=(Issue("too long"), Issue("was dull"))), failed)
    revise(model, "good", evaluation("too long"), failed=failed, run={"versions": earlier})
    asked = last_turn(model)
    assert [asked.count(text) for text in ("too long", "now rude", "was dull")] == [1, 1, 1]


def test_temperature_and_token_limit_of_the_attempt_are_passed_on():
    model = ScriptedModel(["x"])
    revise(model, "old", evaluation("x"), temperature=0.9, max_tokens=77)
    assert (model.requests[0].temperature, model.requests[0].max_tokens) == (0.9, 77)


def test_hybrid_starts_fresh_if_every_check_failed():
    model = ScriptedModel(["new"])
    failed = ReflectionEvaluation(0.0, issues=(Issue("wrong"),))
    drafted = {"versions": (version(1, 0.0, "OLD"),)}
    draft = revise(model, "OLD", failed, strategy="hybrid", run=drafted)
    assert draft.strategy == "fresh"
    assert model.requests[0].temperature == 0.7
    assert "OLD" not in str(model.requests[0].messages)
    assert "- wrong" in last_turn(model)


def test_a_resample_asks_the_same_as_the_first_draft_at_a_temperature():
    model = ScriptedModel(["new", "fresh"])
    draft = revise(model, "OLD", evaluation("wrong"), strategy="resample")
    assert (draft.output, draft.strategy, draft.improvements) == ("new", "resample", ())
    first = ScriptedModel(["OLD"])
    run_sync(ModelGenerator(first, "You write.")(prompt_of(TASK), RunContext(TASK, "id")))
    assert model.requests[0].messages == first.requests[0].messages
    assert model.requests[0].temperature == 0.7


def test_a_fresh_start_after_one_with_feedback_has_no_feedback():
    model = ScriptedModel(["new"])
    attempt = Attempt(4, "fresh", "OLD", evaluation("too long"), temperature=1.0)
    versions = (version(1, 0.5), version(2, 0.4, strategy="fresh"))
    run = RunContext(TASK, "id", 3, versions, attempt=attempt)
    draft = run_sync(ModelGenerator(model)("Write about tea.", run))
    assert (draft.strategy, draft.improvements) == ("resample", ())
    assert (last_turn(model), model.requests[0].temperature) == ("Write about tea.", 1.0)


REFUSAL = ModelError("Unsupported parameter: 'temperature'.", status=400, usage=TokenUsage(3, requests=1))


def test_a_model_that_refuses_a_temperature_is_asked_without_one():
    model = ScriptedModel([REFUSAL, ChatReply("new", usage=TokenUsage(5, 1, requests=1))])
    draft = revise(model, "old", evaluation("x"), strategy="fresh")
    assert [request.temperature for request in model.requests] == [0.7, None]
    assert (draft.output, draft.usage.total_tokens, draft.usage.requests) == ("new", 9, 2)


@pytest.mark.parametrize(
    "error", [ModelError("bad prompt", status=400), ModelError("temperature", status=500)]
)
def test_another_error_is_not_taken_for_a_refused_temperature(error):
    model = ScriptedModel([error, "new"])
    with pytest.raises(ModelError, match=str(error)):
        revise(model, "old", evaluation("x"), strategy="fresh")
    assert len(model.requests) == 1


def test_hybrid_never_discards_a_starting_text():
    model = ScriptedModel(["new"])
    failed = ReflectionEvaluation(0.0, issues=(Issue("wrong"),))
    given = (version(1, 0.0, "MINE", strategy="given"),)
    draft = revise(model, "MINE", failed, strategy="hybrid", run={"versions": given})
    assert draft.strategy == "full_rewrite"
    assert "MINE" in str(model.requests[0].messages)


@pytest.mark.parametrize(
    ("reply", "edits"),
    [
        (edit("a", "b"), [("a", "b")]),
        (f"Sure!\n```\n{edit('a', 'b')}\n```\nand\n{edit('c', 'd')}", [("a", "b"), ("c", "d")]),
        (edit("two\nlines", ""), [("two\nlines", "")]),
        (edit("  indented", "\tkept "), [("  indented", "\tkept ")]),
        (edit("a", "x\n=====\ny"), [("a", "x\n=====\ny")]),  # a heading is underlined
        (edit("a", "b").replace("\n", "\r\n"), [("a", "b")]),
        (f"{edit('a', 'b')}\n{edit('c', 'd')}\n".replace("\n", "\r\n"), [("a", "b"), ("c", "d")]),
        ("<<<<<<< SEARCH\n=======\nnew\n>>>>>>> REPLACE", [("", "new")]),
        (EDIT_FORMAT, None),
    ],
)
def test_read_edits(reply, edits):
    read = [(edit.search, edit.replace) for edit in read_edits(reply)]
    if edits is None:  # the format's own description reads as one edit, which no text has
        assert len(read) == 1
    else:
        assert read == edits


@pytest.mark.parametrize("reply", ["", "no edits here", "<<<<<<< SEARCH\na\n======="])
def test_a_reply_without_edits_is_an_error(reply):
    with pytest.raises(OutputError, match="no edit"):
        read_edits(reply)


def test_unterminated_edits_are_parsed_in_linear_time():
    started = time.process_time()
    read = read_edits(edit("a", "b") + "\n<<<<<<< SEARCH" * 20_000)
    assert read == (Edit("a", "b"),)
    assert time.process_time() - started < 1


def test_apply_edits_changes_nothing_else():
    text = "first line \n\n\tsecond\u00a0line\r\nthird line"
    edited = apply_edits(text, (Edit("second", "2nd"),))
    assert edited == "first line \n\n\t2nd\u00a0line\r\nthird line"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([Edit("absent", "x")], "does not occur"),
        ([Edit("a", "x")], "occurs 3 times"),
        ([Edit("", "x")], "searches for nothing"),
        ([Edit(" \n", "x")], "searches for nothing"),
        ([Edit("b", "x"), Edit("absent", "y")], "does not occur"),
    ],
)
def test_apply_edits_names_the_edit_that_failed(edits, message):
    with pytest.raises(OutputError, match=message):
        apply_edits("a b a c a", tuple(edits))


CODE = "def f(x):\n    if x:\n\n        return  1\n    return 2\n"


@pytest.mark.parametrize(
    ("search", "replace", "expected"),
    [
        ("return 1", "return 3", CODE.replace("return  1", "return 3")),  # the spaces within
        # The first line lacks its indentation, or all do.
        (
            "if x:\n\n        return 1",
            "if y:\n        return 3",
            "def f(x):\n    if y:\n        return 3\n    return 2\n",
        ),
        (
            "\nreturn 2\n",
            "\nif y:\n    x += 1\nreturn x\n",
            CODE.replace("return 2", "if y:\n        x += 1\n    return x"),
        ),
        ("def  f(x):", "def g(x):", CODE.replace("f(x)", "g(x)")),
    ],
)
def test_edits_match_up_to_white_space(search, replace, expected):
    assert apply_edits(CODE, (Edit(search, replace),)) == expected


def test_white_space_is_left_alone_where_the_search_text_occurs_exactly():
    assert apply_edits("a  b\na b\n", (Edit("a b", "c"),)) == "a  b\nc\n"


def test_line_breaks_of_the_text_stay():
    assert apply_edits("one\r\n two\r\n", (Edit("one\ntwo", "1\n2"),)) == "1\r\n 2\r\n"


@pytest.mark.parametrize(
    ("text", "search", "replace", "expected"),
    [
        # Whole lines, wherever else the same characters occur.
        ("x = 1\nmax = 10\n", "x = 1", "x = 2", "x = 2\nmax = 10\n"),
        ("return ab\nreturn a\n", "return a", "return b", "return ab\nreturn b\n"),
        ("    x = 1\n    max = 10\n", "x = 1", "x = 2", "    x = 2\n    max = 10\n"),
        ("x = 1\nx = 1.5\nx = 1 + y\n", "x = 1", "x = 2", "x = 2\nx = 1.5\nx = 1 + y\n"),
        ("a  \nab\n", "a", "b", "b\nab\n"),
        # Deleted whole lines leave nothing behind.
        ("a\nb\nc\n", "b", "", "a\nc\n"),
        ("a\n    b\nc\n", "b", "", "a\nc\n"),
        ("a\nb\nc\nd", "b\nc", "\n", "a\nd"),
        ("a\r\nb\r\nc\r\n", "b", "", "a\r\nc\r\n"),
        ("a\nb", "b", "", "a"),
        ("a\r\nb", "b", "", "a"),
        ("a\nb\n", "b\n", "", "a\n"),
        ("a", "a", "", ""),
        # The last line, with a line break and without.
        ("a\nb", "b", "c", "a\nc"),
        ("a\nb\n", "b", "c\nd", "a\nc\nd\n"),
        ("a\nb\n", "b\n", "c\n", "a\nc\n"),
        # Line breaks are those of the text, inside a line, too.
        ("a\r\nb\r\n", "a", "1\n2", "1\r\n2\r\nb\r\n"),
        ("a\nb\n", "a\r\nb", "1\r\n2", "1\n2\n"),
        ("the end.\r\nThe start", "end.\nThe", "end\nA", "the end\r\nA start"),
        ("a\u2028b\nc\n", "c", "d", "a\u2028b\nd\n"),
        # Within a line, but not inside a word.
        ("print(x) or xs", "x", "y", "print(y) or xs"),
        ("größer und groß", "groß", "klein", "größer und klein"),
        ("caf\u0065\u0301 und cafe.", "cafe", "tea", "caf\u0065\u0301 und tea."),
        ("It isn't what is said", "is", "was", "It isn't what was said"),
        ("1.5 or 10,000 or 1", "1", "2", "1.5 or 10,000 or 2"),
        ("(x, 1)", ", 1", "", "(x)"),
        ("黒猫がいる", "猫", "犬", "黒犬がいる"),
    ],
)  # fmt: skip
def test_edits_replace_whole_lines_or_whole_words(text, search, replace, expected):
    assert apply_edits(text, (Edit(search, replace),)) == expected


@pytest.mark.parametrize(
    ("text", "search", "problem"),
    [
        ("max = 10", "x = 1", "does not occur"),
        ("max = 1", "x = 1", "does not occur"),
        ("x = 10", "x = 1", "does not occur"),
        ("größer", "größ", "does not occur"),
        ("e\u0301", "e", "does not occur"),
        ("don't", "don", "does not occur"),
        ("x = 1.5", "x = 1", "does not occur"),
        ("snake_case", "case", "does not occur"),
        ("กี", "ก", "does not occur"),
        ("    a\nb\n  a\n", "a", "occurs 2 times"),
        ("a\nb\na\n", "a", "occurs 2 times"),
        ("b a a a", "a a", "occurs 2 times"),
    ],
)
def test_edits_that_would_cut_into_a_word_or_could_mean_several_places(text, search, problem):
    with pytest.raises(OutputError, match=problem):
        apply_edits(text, (Edit(search, "y"),))


@pytest.mark.parametrize("seed", range(20))
def test_an_edit_of_a_random_line_leaves_the_others_alone(seed):
    random = Random(seed)  # noqa: S311 (no secret)
    words = ["a", "ab", "x = 1", "max = 10", "return a", "return ab", "é", "  b", "\tb c", ""]
    line_break = random.choice(["\n", "\r\n"])
    for _ in range(50):
        lines = random.choices(words, k=random.randrange(2, 8))
        at = random.randrange(len(lines))
        lines[at] = f"{random.choice(['', '    '])}only {random.choice(words)} here"
        new = random.choice([[], ["one"], ["one", "two"]])
        end = random.choice(["", line_break])
        search = lines[at].strip() if random.random() < 0.5 else lines[at]
        indent = lines[at][: len(lines[at]) - len(search)]
        made = [indent + line for line in new]
        expected = line_break.join([*lines[:at], *made, *lines[at + 1 :]])
        expected += end if [*lines[:at], *made, *lines[at + 1 :]] else ""
        text = line_break.join(lines) + end
        assert apply_edits(text, (Edit(search, "\n".join(new)),)) == expected


def test_later_edits_see_earlier_ones():
    assert apply_edits("a b", (Edit("a", "c"), Edit("c b", "d"))) == "d"


@pytest.mark.parametrize(
    "reply", [edit("Title\n=======\nold", "Title\n=======\nnew"), "<<<<<<< SEARCH\na\n>>>>>>> REPLACE"]
)
def test_an_ambiguous_edit_is_an_error(reply):
    with pytest.raises(OutputError, match="lines of '======='"):
        read_edits(reply)
