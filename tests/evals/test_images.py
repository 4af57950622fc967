"""Cases of runs with images and earlier messages: stored, written to files, read again, and evaluated."""

import asyncio
import sys
from hashlib import sha256
from types import SimpleNamespace

import pytest

from redraft import Agent, ConfigError, EvalCase, Evaluation, MemoryStore, QualityCriterion, ReflectionPattern
from redraft.evals.cases import read_cases
from redraft.protocols import ChatReply
from redraft.stores.location import close_project_store, required_project_store
from redraft.types import Image, ImageMessage, Message, PlainTask
from support.commands import redraft

RED = QualityCriterion("red", evaluator="regex", evaluator_config={"pattern": "red"})


def image(data, media_type="image/png"):
    return Image(media_type, sha256(data).hexdigest(), data=data)


FIRST, SECOND = image(b"\x89PNG a red square"), image(b"\xff\xd8 a photograph", "image/jpeg")
TASK = PlainTask(
    "Which colour has the square? My number is 4532 0151 1283 0366.",
    messages=(
        ImageMessage("user", "Look at this.", (SECOND, Image(url="https://pictures.example/a.png"))),
        Message("assistant", "I see a photograph."),
    ),
    images=(FIRST,),
)


class Sees:
    """A model that answers by the images that it is sent."""

    takes_images = True

    def __init__(self):
        self.requests = []

    async def __call__(self, request):
        self.requests.append(request)
        sent = [
            image
            for message in request.messages
            if isinstance(message, ImageMessage)
            for image in message.images
        ]
        return ChatReply("red" if any(b"red square" in one.data for one in sent) else "I see no image.")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    yield tmp_path
    asyncio.run(close_project_store())


def test_a_run_with_images_becomes_a_case_that_can_be_evaluated(project, monkeypatch):
    seeing = Sees()
    agent = Agent(seeing, pattern=ReflectionPattern(1, [RED]), name="seer")
    monkeypatch.setitem(sys.modules, "an_app", SimpleNamespace(seer=agent))
    asyncio.run(agent.run(TASK))
    added = redraft("eval", "add", "last")
    assert added.exit_code == 0, added.stderr
    assert sorted(file.name for file in (project / "cases.images").iterdir()) == sorted(
        [f"{FIRST.digest[:16]}.png", f"{SECOND.digest[:16]}.jpg"]
    )
    (case,) = read_cases(project / "cases.yaml")
    assert (case.task.messages, case.task.images) == (TASK.messages, TASK.images)
    assert [one.data for one in case.task.all_images] == [SECOND.data, b"", FIRST.data]
    assert "4532" not in (project / "cases.yaml").read_text("utf-8")
    assert redraft("eval", "add", "last").stdout == "cases.yaml: 0 cases added; 1 run already there.\n"
    seeing.requests.clear()
    done = redraft("eval", "cases.yaml", "-a", "an_app:seer")
    assert done.exit_code == 0, done.stderr
    assert "100 %" in done.stdout
    roles = [message.role for message in seeing.requests[0].messages]
    assert roles == ["system", "user", "assistant", "user"]


def test_a_run_whose_images_are_gone_is_left_out(project):
    agent = Agent(Sees(), pattern=ReflectionPattern(0, [RED]))
    asyncio.run(agent.run(TASK))
    asyncio.run(required_project_store("runs").delete("image", FIRST.digest))
    added = redraft("eval", "add", "last")
    assert added.exit_code == 1
    assert f"The store does not have the image '{FIRST.digest}'" in added.stderr
    assert not (project / "cases.yaml").exists()


WRONG = {
    "missing": (
        "images: [there.png]",
        "line 3: the image 'there.png' can't be read: No such file or directory",
    ),
    "empty": ("images: [empty.png]", "line 3: the image 'empty.png' is empty"),
    "kind": ("images: [notes.txt]", "line 3: 'notes.txt' is not an image"),
    "number": ("images: [3]", "line 3: an image must be a file or a URL, got 3"),
    "role": (
        "messages: [{role: robot, content: Hi}]",
        "the role of a message must be one of system, user, assistant",
    ),
    "message": (
        "messages: [Hello]",
        "a message must be a mapping with a 'role' and a 'content', got 'Hello'",
    ),
    "key": ("messages: [{role: user, text: Hi}]", "unknown key 'text'"),
}


@pytest.mark.parametrize(("entry", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path, entry, message):
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "cases.yaml").write_text(f"cases:\n  - task: Look.\n    {entry}\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        read_cases(tmp_path / "cases.yaml")
    assert message in str(caught.value)


def test_a_function_of_a_prompt_would_not_see_them():
    case = EvalCase("look", TASK, (RED,))

    def blind(prompt):
        return "red"

    def seeing(prompt, run):
        return "red" if run.task.images else "blue"

    with pytest.raises(ConfigError, match="'look' has a conversation or images, which 'blind' would not see"):
        Evaluation([case], blind, store=MemoryStore())
    report = Evaluation([case], seeing, store=MemoryStore()).run_sync()
    assert report.figures[0].mean_passed == 1.0
