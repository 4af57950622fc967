import asyncio
import functools
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypedDict

import pytest

from redraft import ConfigError, QualityCriterion, ReflectionPattern, ScriptedModel, reflected
from redraft.errors import ChangedRunError, ReflectionFailedError
from redraft.lessons.lessons import Lessons
from redraft.loop.decorator import ReflectedFunction
from redraft.protocols import RunContext
from redraft.stores.sqlite import MemoryStore
from redraft.types import Advice, Draft

CITES = QualityCriterion("cites", evaluator="regex", evaluator_config={"pattern": r"\[\d+\]"})


def test_attributes_of_the_function_are_there_and_hide_none_of_the_decorated_function():
    def answer(question, feedback=""):
        return "yes"

    answer.run, answer.topic, answer.pattern = 1, "tea", 2
    decorated = reflected(evaluate=bool, keep=False)(answer)
    assert (decorated.run_sync("Why?").best_output, decorated.topic) == ("yes", "tea")


def test_the_function_is_called_again_with_the_critique():
    calls = []

    @reflected(criteria=[CITES], max_iterations=3)
    async def answer(question: str, feedback: str = "") -> str:
        """Answer a question."""
        calls.append((question, feedback))
        return "Because [1]." if feedback else "Because."

    assert asyncio.run(answer("Why?")) == "Because [1]."
    assert calls[0] == ("Why?", "")
    assert "cites" in calls[1][1]
    assert answer.__name__ == "answer"
    assert answer.__doc__ == "Answer a question."


@reflected(evaluate=lambda text: (len(text) < 9, "too long"), keep=False)
def shorten(question, feedback=""):
    return "short" if feedback else "far too long"


async def in_a_loop():
    return shorten("Why?")


@pytest.mark.parametrize("call", [lambda: shorten("Why?"), lambda: asyncio.run(in_a_loop())])
def test_a_plain_function_is_called_without_await(call):
    assert call() == "short"


def test_feedback_passed_by_the_caller_is_for_the_first_draft():
    seen = []

    @reflected(evaluate=lambda text: (len(seen) > 1, "again"))
    def answer(question, feedback=""):
        seen.append(feedback)
        return f"answer {len(seen)}"

    answer.run_sync("Why?", "be brief")
    assert seen[0] == "be brief"
    assert "again" in seen[1]


def test_attempt_and_run_are_filled_too():
    @reflected(evaluate=lambda text: text == "2 2")
    async def answer(question, attempt=None, run: RunContext | None = None):
        return f"{attempt.number} {run.iteration}"

    assert answer.run_sync("Why?").success


def test_the_judge_sees_the_docstring_and_the_arguments():
    judge = ScriptedModel(["not json", "not json either"])

    @reflected(criteria=["Under 80 words"], judge=judge, max_iterations=0)
    async def answer(question: str, style: str = "plain", feedback: str = "") -> str:
        """Answer in one sentence."""
        return "Because."

    answer.run_sync("Why is the sky blue?")
    prompt = judge.requests[0].messages[-1].content
    assert "Answer in one sentence." in prompt
    assert "question: Why is the sky blue?" in prompt
    assert "feedback" not in prompt


def test_a_function_without_a_feedback_parameter_is_rejected():
    with pytest.raises(ConfigError, match="feedback"):

        @reflected(evaluate=bool)
        async def answer(question):
            return "x"


def generated(question, feedback=""):
    yield "x"


async def streamed(question, feedback=""):
    yield "x"


def answer_as_usual(question, feedback=""):
    return "x"


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (3, "got 3"),
        (classmethod(answer_as_usual), "below @classmethod"),
        (staticmethod(answer_as_usual), "below @classmethod and @staticmethod"),
        (generated, "generated is a generator"),
        (streamed, "streamed is a generator"),
    ],
)
def test_only_functions_that_return_can_be_decorated(fn, message):
    with pytest.raises(ConfigError, match=message):
        reflected(evaluate=bool)(fn)


def test_bad_criteria_raise_when_decorating():
    with pytest.raises(ConfigError, match="needs 'pattern'"):

        @reflected(criteria=[QualityCriterion("x", evaluator="regex")])
        async def answer(question, feedback=""):
            return "x"


def test_wrong_arguments_are_a_type_error():
    @reflected(evaluate=bool)
    async def answer(question, feedback=""):
        return "x"

    with pytest.raises(TypeError):
        answer.run_sync()


def has_no_such_attribute(output):
    return output.lenght < 9


def has_no_such_name(output):
    return len(outptu) < 9  # noqa: F821 (that is the mistake)


def has_the_wrong_type(output):
    return output + 1


def has_no_return(output):
    len(output)  # and nothing is returned


MISTAKES = [
    (has_no_such_attribute, AttributeError, "lenght"),
    (has_no_such_name, NameError, "outptu"),
    (has_the_wrong_type, TypeError, "concatenate"),
    (has_no_return, TypeError, "returned None; expected a bool, a number in 0..1"),
]


def ways_to_judge(mistake):
    criterion = QualityCriterion("mine", evaluator="function", evaluator_config={"function": mistake})
    return [{"evaluate": mistake}, {"criteria": [criterion]}, {"criteria": [criterion, CITES]}]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES)
@pytest.mark.parametrize("way", range(3))
def test_a_mistake_in_the_evaluator_is_raised(mistake, error, message, way):
    called = []

    @reflected(**ways_to_judge(mistake)[way])
    async def answer(question, feedback=""):
        called.append(feedback)
        return "x"

    with pytest.raises(error, match=message):
        answer.run_sync("Why?")
    assert called == [""]  # paid for once
    assert answer.pattern.get_history().best_version.output == "x"  # and not lost
    assert "Not judged" in answer.pattern.get_history().best_version.evaluation.issues[0]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES)
@pytest.mark.parametrize("way", range(3))
def test_a_later_mistake_in_the_evaluator_ends_the_run_and_is_logged(mistake, error, message, way, caplog):
    def judge(output):
        return (False, "too short") if output == "draft 1" else mistake(output)

    @reflected(**ways_to_judge(judge)[way])
    async def answer(question, feedback=""):
        return "draft 2" if feedback else "draft 1"

    assert asyncio.run(answer("Why?")) == "draft 1"
    [warning] = [record for record in caplog.records if record.name == "redraft"]
    assert warning.levelname == "WARNING"
    assert f"{error.__name__}: " in warning.getMessage()
    assert message in warning.getMessage()
    result = answer.run_sync("Why?")
    assert result.convergence_reason == "error"
    assert isinstance(result.error, error)


@pytest.mark.parametrize("function", ["generate", "revise"])
def test_a_mistake_in_the_function_is_raised_or_logged(function, caplog):
    @reflected(evaluate=lambda output: (False, "too short"))
    async def answer(question, feedback=""):
        return has_no_such_attribute(question) if feedback or function == "generate" else "draft 1"

    if function == "generate":
        with pytest.raises(AttributeError):
            asyncio.run(answer("Why?"))
        return
    assert asyncio.run(answer("Why?")) == "draft 1"
    assert "AttributeError" in caplog.text


def test_an_unjudged_output_is_logged(caplog):
    @reflected(evaluate=lambda output: "very good")
    async def answer(question, feedback=""):
        return "draft"

    assert asyncio.run(answer("Why?")) == "draft"
    [warning] = [record for record in caplog.records if record.name == "redraft"]
    assert "the verdict is 'very good'" in warning.getMessage()


def test_a_raised_error_is_not_logged(caplog):
    @reflected(evaluate=has_no_return, pattern=ReflectionPattern(on_failure="raise"))
    async def answer(question, feedback=""):
        return "draft"

    with pytest.raises(ReflectionFailedError) as caught:
        asyncio.run(answer("Why?"))
    assert caught.value.history.best_version.output == "draft"
    assert caplog.records == []


def good(text):
    return ("again" in text, "say it again")


class Service:
    mark = "!"

    @reflected(evaluate=good)
    async def answer(self, question, feedback=""):
        return f"{self.mark}{question} {'again' if feedback else ''}"


@reflected(evaluate=good)
def required(question, feedback):
    return "again" if feedback else question


@reflected(evaluate=good)
def annotated(question, *, context: RunContext):
    return "again" if context.iteration > 1 else question


@reflected(evaluate=good)
def by_position(question, style="x", feedback="", /):
    return "again" if feedback else question


@reflected(evaluate=good)
def many(*questions, feedback=""):
    return "again" if feedback else " ".join(questions)


@pytest.mark.parametrize("fn", [Service().answer, required, annotated, by_position, many])
def test_signatures_of_all_shapes_get_feedback(fn):
    assert fn.run_sync("Why?").success


def test_partials_and_callable_objects_get_feedback():
    class Callable:
        def __call__(self, question, feedback=""):
            return "again" if feedback else question

    for fn in (Callable(), functools.partial(required._fn, feedback="")):
        assert ReflectedFunction(fn, ReflectionPattern(), good).run_sync("Why?").success


def test_arguments_need_no_json_form():
    assert required.run_sync({(1, 2): 3}).final_output == "again"


def test_advice_reaches_a_reflected_function():
    class Advisor:
        async def recall(self, task):
            return [Advice("Be brief.", "test")]

        async def observe(self, result):
            pass

    seen = []

    @reflected(evaluate=bool, pattern=ReflectionPattern(advisors=[Advisor()]))
    def answer(question, feedback=""):
        seen.append(feedback)
        return "x"

    answer.run_sync("Why?")
    assert "- Be brief." in seen[0]


VAT_LINE = QualityCriterion("vat", evaluator="regex", evaluator_config={"pattern": "VAT is included"})


def test_lessons_say_what_a_function_without_run_missed_in_an_earlier_run(tmp_path):
    lessons = Lessons(tmp_path, agent="x", model=ScriptedModel(["no JSON"]), store=False)
    seen = []

    @reflected([VAT_LINE], max_iterations=0, pattern=ReflectionPattern(advisors=[lessons]), keep=False)
    def offer(goods, feedback=""):
        seen.append(feedback)
        return "The tea is 4 euros."

    assert not offer.run_sync("tea").success
    offer.run_sync("tea")
    assert seen[0] == ""
    assert '- The text contains "VAT is included".' in seen[1]


def test_lessons_do_not_repeat_the_rubric_to_a_function_with_run(tmp_path):
    lessons = Lessons(tmp_path, agent="x", model=ScriptedModel(["no JSON"]), store=False)
    seen = []

    @reflected([VAT_LINE], max_iterations=0, pattern=ReflectionPattern(advisors=[lessons]), keep=False)
    def offer(goods, run, feedback=""):
        seen.append((run.rubric, feedback))
        return "The tea is 4 euros."

    offer.run_sync("tea")
    offer.run_sync("tea")
    rubric, feedback = seen[1]
    assert "VAT is included" in rubric
    assert "The text contains" not in feedback


def test_a_decorator_without_parentheses_raises():
    with pytest.raises(ConfigError, match="parentheses"):

        @reflected
        def answer(question, feedback=""):
            return "x"


# What a function returns, by its annotation.


class Opaque:
    pass


@dataclass
class Bill:
    total: Decimal
    paths: list[Path]
    paid: "date | None" = None


@dataclass
class Locked:
    name: str
    held: Opaque


class Page(TypedDict):
    title: str


class Loose(Protocol):
    title: str


def made_in_function():
    @dataclass
    class Local:
        number: int

    return Local


def returning(annotation, value="a text", **options):
    def write(topic: str, feedback: str = ""):
        return value

    write.__annotations__["return"] = annotation
    return reflected(evaluate=lambda output: (1.0, "fine"), max_iterations=0, **options)(write)


@pytest.mark.parametrize(
    "annotation",
    [Decimal, Path, set[int], bytes, date, "Decimal", Decimal | None, Annotated[Decimal, "x"], ValueError,
     Awaitable[frozenset[int]]],
)  # fmt: skip
def test_a_type_that_no_output_has_is_refused_when_the_function_is_decorated(annotation):
    with pytest.raises(ConfigError, match=r"returns '.*', which can't be an output; return a string"):
        returning(annotation)


@pytest.mark.parametrize(
    "annotation",
    [str, None, int, Bill, list[Bill], dict[str, Decimal], Page, Any, object, Loose, Sequence[str], "Unknown",
     str | Decimal, Draft, Awaitable[Bill], Literal["a"], Locked | str],
)  # fmt: skip
def test_a_possible_output_is_not_refused(annotation):
    assert returning(annotation, keep=False).run_sync("tea").best_output == "a text"


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (made_in_function(), "has no class of the name 'made_in_function.<locals>.Local'"),
        (list[made_in_function()], "has no class of the name 'made_in_function.<locals>.Local'"),
        (Opaque, "can't hold a value of the class 'Opaque'"),
        (Locked, "can't hold a value of the class 'Opaque'"),
        (dict[str, Locked | None], "can't hold a value of the class 'Opaque'"),
    ],
)
def test_a_type_that_the_store_can_not_restore_is_named_before_the_call(annotation, why, caplog, project):
    seen = []

    def write(topic: str, feedback: str = ""):
        seen.append(caplog.text)
        return "a text"

    write.__annotations__["return"] = annotation
    reflected(evaluate=lambda output: (1.0, "fine"), max_iterations=0)(write).run_sync("tea")
    assert why in seen[0]
    assert "can't be resumed if it is interrupted" in seen[0]


@pytest.mark.parametrize("annotation", [str, Bill, list[Bill], Page, Any, Loose, Path | Bill, Draft])
def test_a_restorable_type_is_not_named(annotation, caplog, project):
    returning(annotation).run_sync("tea")
    assert "can't be resumed" not in caplog.text


STORE = MemoryStore()


@dataclass
class Clerk:
    name: str

    @reflected(evaluate=good, keep=STORE)
    def answer(self, question, feedback=""):
        """Answer again."""
        return f"{self.name} again"


class Porter(Clerk):
    """Objects of this class can't be distinguished."""

    __repr__ = object.__repr__


def test_a_run_of_a_method_belongs_to_its_object():
    assert Clerk("Ann").answer.run_as_sync("clerk", "Why?").best_output == "Ann again"
    assert Clerk("Ann").answer.run_as_sync("clerk", "Why?").best_output == "Ann again"
    with pytest.raises(ChangedRunError, match=r"was of the method 'Clerk\.answer' of another object"):
        Clerk("Bob").answer.run_as_sync("clerk", "Why?")
    assert Clerk("Bob").answer.run_as_sync("other clerk", "Why?").best_output == "Bob again"
    for _ in range(2):
        assert Porter("Ann").answer.run_as_sync("porter", "Why?").best_output == "Ann again"


def test_a_call_with_other_objects_of_the_same_kind_resumes_the_run():
    class Client:
        pass

    calls = []

    @reflected(evaluate=bool, keep=MemoryStore())
    def search(client, options, feedback=""):
        calls.append(client)
        return "found"

    for order in ({8, 0}, {0, 8}):  # a set of texts has another order in each process
        options = {"key": lambda item: item, "pages": [order], "says": "a fault at 0xdead"}
        result = search.run_as_sync("a search", Client(), options)
    assert "a fault at 0xdead" in result.task.description
    assert len(calls) == 1
