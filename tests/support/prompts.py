"""The prompts of real runs, as docs/prompts.md shows them. To write them anew, in this project:

PYTHONPATH=tests python tests/support/prompts.py
"""

import re
from itertools import count

from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.loop.ways import forget
from redraft.protocols import ChatReply
from support.pages import ROOT
from support.tool_agents import Actor, call

PAGE = "docs/prompts.md"
BLOCK = re.compile(r"(<!-- prompt: (\w+) -->\n````text\n).*?(\n````)", re.DOTALL)

TASK = "Write an offer for a tea set, for people who know nothing about tea."
SHORT = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 15})
COMPLETE = "Names the price and what is in the set."
PLAIN = QualityCriterion("plain", "No term of the trade without an explanation.")
DRAFTS = (
    "Behold our first-flush set! A pot and four cups await you.",
    "For you, and for everyone who has always wanted to begin: a first-flush set with a pot and four cups!",
    "A pot and four cups to begin with, for 40 euros.",
)
UNFIT = {  # what the judge says of a draft: the scores, the issues and the suggestions
    DRAFTS[0]: (
        (0.4, 0.4),
        ("The price is missing.", "'First-flush' is not explained."),
        ["Say what it costs."],
    ),
    DRAFTS[1]: ((0.4, 0.3), ("The price is missing.", "'First-flush' is still not explained."), []),
}


def judged(request):
    """Judge an offer."""
    names = list(request.schema["properties"]["criteria"]["properties"])
    case = request.messages[-1].content
    draft = next((draft for draft in UNFIT if f"\n{draft}\n>>>>" in case), None)
    scores, issues, suggestions = UNFIT.get(draft, ((1.0, 1.0), (), []))
    return {
        "criteria": {
            name: {"reason": "...", "score": score} for name, score in zip(names, scores, strict=False)
        },
        "issues": [{"message": text, "criterion": name} for name, text in zip(names, issues, strict=False)],
        "suggestions": suggestions,
        "confidence": 0.9,
    }


class Run:
    """A run whose model gives these replies to the writer, and judges by `evaluate`."""

    def __init__(self, replies, criteria, evaluate=judged, **options):
        self.requests = []
        forget()  # each page shows the prompts of an agent without earlier runs
        replies = iter(replies)

        def answer(request):
            self.requests.append(request)
            return evaluate(request) if request.role == "evaluation" else next(replies)

        model = ScriptedModel(answer)
        pattern = ReflectionPattern(quality_criteria=criteria, **options)
        Agent(model, pattern=pattern, system_prompt="You write for a shop.", keep=False).run_sync(TASK)

    def of(self, role):
        """The requests of a role."""
        return [request for request in self.requests if request.role == role]


def shown(messages):
    """Show messages, each below its role."""
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)


def prompts():
    """Return every prompt on the page by its name."""
    whole = Run(DRAFTS, [COMPLETE, PLAIN, SHORT])
    draft, *_ = whole.of("generation")
    revision, after_regression = whole.of("revision")
    judge, judge_again, _ = whole.of("evaluation")
    edit = "<<<<<<< SEARCH\n{}\n=======\n{}\n>>>>>>> REPLACE"
    edits = Run(
        [
            DRAFTS[0],
            edit.format("our set", "a set"),
            edit.format("first-flush", "first-flush (spring leaves)"),
        ],
        [COMPLETE, PLAIN],
        revision_strategy="targeted_edit",
        max_iterations=1,
    ).of("revision")
    fresh = Run([DRAFTS[1]] * 2 + [DRAFTS[2]], [COMPLETE, PLAIN, SHORT]).requests
    unusable = Run(DRAFTS, [COMPLETE], unusable_once(), max_iterations=0).of("evaluation")
    yes_no = Run(DRAFTS, [PLAIN], yes, judge_method="probability", max_iterations=0).of("evaluation")
    reference = {"reference": DRAFTS[2]}
    better = QualityCriterion(
        "better", "Makes a beginner curious.", evaluator="compare", evaluator_config=reference
    )
    compared = Run(DRAFTS, [better], lambda _: {"reason": "...", "winner": "A"}, max_iterations=0).of(
        "evaluation"
    )
    dropped = Run(
        [DRAFTS[0], DRAFTS[1], "The first draft was closer. Add the price.", DRAFTS[2]],
        [COMPLETE, PLAIN, SHORT],
        reflection_triggers=["quality_drop"],
    )
    return {
        "draft": shown(draft.messages),
        "judge": shown(judge.messages),
        "judge_again": shown(judge_again.messages[1:]),
        "judge_corrected": shown(unusable[1].messages[2:]),
        "probability": shown(yes_no[0].messages),
        "compare": shown(compared[0].messages),
        "rewrite": shown(revision.messages[2:]),
        "regression": shown(after_regression.messages[3:]),
        "edits": shown(edits[0].messages[3:]),
        "edits_corrected": shown(edits[1].messages[4:]),
        "fresh": shown(last_fresh(fresh).messages[1:]),
        **tools(),
        "typed": shown(typed()),
        "generated_tests": shown(tests_asked_for()),
        "look_back": shown(dropped.of("reflection")[0].messages),
    }


def typed():
    """The prompt of an agent that answers in a type."""
    model = ScriptedModel([{"price": 40}])
    offer = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
    criterion = QualityCriterion("known", evaluator="function", evaluator_config={"function": lambda _: True})
    agent = Agent(model, output_type=offer, pattern=ReflectionPattern(0, [criterion]), keep=False)
    agent.run_sync("What does the tea set cost?")
    return model.requests[0].messages


def tests_asked_for():
    """The prompt for tests that a model writes."""
    model = ScriptedModel(["assert price(2) == 80"])
    tests = QualityCriterion("tests", evaluator="generated_tests")
    pattern = ReflectionPattern(0, [tests], reflection_model=model)
    answer = "def price(sets):\n    return 40 * sets"
    Agent(ScriptedModel([answer]), pattern=pattern, keep=False).run_sync(
        "Write price(sets), the price of so many tea sets at 40 euros each."
    )
    return model.requests[0].messages


def unusable_once():
    """A judge whose first reply can't be read."""
    first = count()
    return lambda request: judged(request) if next(first) else "I like it!"


def yes(_request):
    return ChatReply("Yes", logprobs=({"Yes": -0.1, "No": -2.4},))


def last_fresh(requests):
    """The request for the draft that began anew."""
    return next(request for request in reversed(requests) if request.temperature is not None)


def tools():
    """Return what an agent with tools is asked to revise, and what its judge is shown."""

    def price(item: str) -> int:
        """Look up the price of an item."""
        return 40

    actor = Actor([DRAFTS[0], call("price", item="tea set"), DRAFTS[2]])
    judge = ScriptedModel(judged)
    pattern = ReflectionPattern(
        quality_criteria=[COMPLETE, SHORT],
        reflection_model=judge,
        max_iterations=1,
        include_reflection_history=False,
    )
    Agent(actor.provider, tools=[price], pattern=pattern, keep=False).run_sync(TASK)
    evidence = shown(judge.requests[-1].messages[1:])
    return {"tools": f"[user]\n{actor.asked(1)[0]}", "evidence": evidence}


def written(page):
    """The page with the prompts of today."""
    blocks = prompts()
    return BLOCK.sub(lambda found: f"{found[1]}{blocks[found[2]]}{found[3]}", page)


if __name__ == "__main__":
    path = ROOT / PAGE
    path.write_text(written(path.read_text("utf-8")), "utf-8")
