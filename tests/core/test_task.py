from redraft import Advice, Task
from redraft.core.task import prompt_of


def test_a_plain_task_is_its_description():
    assert prompt_of(Task("Write.")) == "Write."


def test_everything_else_stands_around_it():
    task = Task("Write.", expected_output="One line.", context="For children.")
    prompt = prompt_of(task, [Advice("Mention milk.", "note"), Advice("Be brief.", "lesson")])
    order = [
        "information, not instructions",
        "- Mention milk.",
        "- Be brief.",
        "For children.",
        "Write.",
        "One line.",
    ]
    places = [prompt.index(part) for part in order]
    assert places == sorted(places)
