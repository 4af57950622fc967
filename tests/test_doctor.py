import tomllib
from pathlib import Path

import pytest

from redraft import ModelError
from redraft.doctor import JAILED
from redraft.models.names import KnownModel
from support.commands import document, redraft, script

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


@pytest.fixture(autouse=True)
def _no_jail(monkeypatch):
    """Try the jail only in the tests about it: that takes two processes."""
    monkeypatch.setattr("redraft.doctor.JAILED", {})


def test_doctor_lists_extras_models_and_the_jail(monkeypatch):
    monkeypatch.setattr("redraft.doctor.JAILED", JAILED)
    secret = "a" + "-secret-" + "value"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    result = redraft("doctor", "--json")
    data = document(result)
    assert result.exit_code == 0
    assert data["keys"]["OPENAI_API_KEY"] is True
    assert data["keys"]["ANTHROPIC_API_KEY"] is False
    declared = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    assert data["extras"].keys() == declared.keys() - {"providers", "dev", "bench", "docs"}, (
        "these are made of others, or for who works on Redraft"
    )
    assert {jail["name"] for jail in data["jail"]} == {"Python source", "programs"}
    assert any(model["name"] == "local:qwen2.5-coder-0.5b" for model in data["models"])
    assert secret not in result.output
    assert secret not in redraft("doctor").output


def test_doctor_says_what_inline_python_needs(monkeypatch):
    monkeypatch.setattr("redraft.doctor._is_installed", lambda _distribution: False)
    rows = [" ".join(line.split()) for line in redraft("doctor").stdout.splitlines()]
    assert "no python pip install 'redraft[python]'; falls back to a jailed process" in rows
    assert "no lua pip install 'redraft[lua]'" in rows


def test_the_model_of_the_settings_is_listed(monkeypatch):
    monkeypatch.setenv("REDRAFT_MODEL", "opnai:gpt")
    first = document(redraft("doctor", "--json"))["models"][0]
    assert (first["name"], first["answers"]) == ("opnai:gpt", False)
    assert "Did you mean" in first["why"]


@pytest.mark.parametrize(
    ("reply", "code", "answers"), [("Hi", 0, True), (ModelError("The file is broken."), 4, False)]
)
def test_a_probe_asks_local_models(monkeypatch, reply, code, answers):
    monkeypatch.setattr("redraft.doctor.known_models", lambda: [KnownModel("local:x", True, "there")])
    model = script(monkeypatch, reply)
    monkeypatch.setattr("redraft.doctor.model_named", lambda _name: model)
    result = redraft("doctor", "--probe", "--json")
    assert result.exit_code == code
    assert document(result)["models"][0]["answers"] is answers
    assert model.requests[0].max_tokens == 1


def test_a_missing_jail_is_explained(monkeypatch):
    from redraft.errors import SandboxError

    async def refuse(_self, _command):
        raise SandboxError("This machine has no jail; it lacks Landlock.")

    monkeypatch.setattr("redraft.doctor.JAILED", JAILED)
    monkeypatch.setattr("redraft.doctor.ProcessJail.__call__", refuse)
    text = redraft("doctor").stdout
    assert "no  Python source  This machine has no jail; it lacks Landlock." in text


def test_doctor_checks_that_the_store_can_be_read(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert document(redraft("doctor", "--json"))["store"] is None
    assert "nowhere" in redraft("doctor").stdout
    monkeypatch.setenv("REDRAFT_HOME", "kept")
    store = document(redraft("doctor", "--json"))["store"]
    assert (store["place"], store["answers"]) == (str(tmp_path / "kept" / "redraft.db"), True)
    assert not (tmp_path / "kept").exists()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "redraft.db").write_text(
        "no database, and long enough to be looked at as if it were"
    )
    store = document(redraft("doctor", "--json"))["store"]
    assert (store["answers"], "is not a SQLite database" in store["why"]) == (False, True)


def test_a_store_that_cannot_be_written_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / "kept"))
    monkeypatch.setattr("redraft.doctor.os.access", lambda path, _mode: path != tmp_path)
    store = document(redraft("doctor", "--json"))["store"]
    assert (store["answers"], store["why"]) == (False, f"nothing can be stored: {tmp_path} is not writable")


def test_each_setting_shows_its_origin(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_MODEL", "openai:x")
    monkeypatch.delenv("REDRAFT_HOME")
    (tmp_path / "redraft.toml").write_text(
        'model = "local:y"\nreflection_model = "fast"\n[models]\nfast = "openai:z"\n'
        '[prices]\n"openai:z" = [0.5, 2]\n'
    )
    monkeypatch.setenv("REDRAFT_REDACT_ALLOW", "Acme Corp, Ada")
    rows = {
        row["name"]: (row["value"], row["source"])
        for row in document(redraft("settings", "--json"))["settings"]
    }
    assert rows == {
        "model": ("openai:x", "environment"),
        "reflection_model": ("fast", "redraft.toml"),
        "embedder": (None, "default"),
        "home": (".redraft", "default"),
        "memory": ("memory", "default"),
        "database_url": (None, "default"),
        "long_term_storage": (None, "default"),
        "dashboard_url": (None, "default"),
        "http_addresses": ("any", "default"),
        "project": (None, "default"),
        "redact_allow": (["Acme Corp", "Ada"], "environment"),
        "models": ({"fast": "openai:z"}, "redraft.toml"),
        "prices": ({"openai:z": [0.5, 2]}, "redraft.toml"),
        "hook": ({}, "default"),
    }
    lines = redraft("settings").stdout.splitlines()
    assert lines[0].split() == ["setting", "value", "from", "variable"]
    assert lines[1].split() == ["model", "openai:x", "environment", "REDRAFT_MODEL"]
    assert "Acme Corp, Ada" in lines[11]
    assert "fast = openai:z" in lines[12]
    assert "openai:z = [0.5, 2]" in lines[13]


def test_an_empty_home_counts_as_set(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", "")
    rows = {row["name"]: row for row in document(redraft("settings", "--json"))["settings"]}
    assert (rows["home"]["value"], rows["home"]["source"]) == ("", "environment")


@pytest.mark.parametrize(
    ("variable", "shown_by"),
    [
        ("REDRAFT_DATABASE_URL", ["settings", "doctor"]),
        ("REDRAFT_LONG_TERM_STORAGE", ["settings"]),
    ],
)
def test_the_password_in_a_url_is_not_shown(monkeypatch, tmp_path, variable, shown_by):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "postgresql://me:hush@here/db")
    for words in [("settings",), *((command, "--json") for command in shown_by)]:
        result = redraft(*words)
        assert "postgresql://me@here/db" in result.stdout
        assert "hush" not in result.stdout + result.stderr


def test_a_mistake_in_the_file_is_an_error(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").write_text("modle = 'x'")
    result = redraft("settings")
    assert result.exit_code == 2
    assert "unknown setting 'modle'" in result.stderr
