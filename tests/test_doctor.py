import pytest

from support.commands import document, redraft


def test_each_setting_shows_its_origin(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_MODEL", "openai:x")
    monkeypatch.delenv("REDRAFT_HOME")
    (tmp_path / "redraft.toml").write_text(
        'model = "local:y"\nreflection_model = "fast"\n[models]\nfast = "openai:z"\n'
    )
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
        "project": (None, "default"),
        "models": ({"fast": "openai:z"}, "redraft.toml"),
    }
    shown = redraft("settings").stdout.splitlines()
    assert shown[0].split() == ["setting", "value", "from", "variable"]
    assert shown[1].split() == ["model", "openai:x", "environment", "REDRAFT_MODEL"]
    assert "fast = openai:z" in shown[9]


def test_an_empty_home_counts_as_set(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", "")
    rows = {row["name"]: row for row in document(redraft("settings", "--json"))["settings"]}
    assert (rows["home"]["value"], rows["home"]["source"]) == ("", "environment")


@pytest.mark.parametrize(
    ("variable", "shown_by"),
    [("REDRAFT_DATABASE_URL", ["settings", "doctor"]), ("REDRAFT_LONG_TERM_STORAGE", ["settings"])],
)
def test_the_password_of_a_database_is_not_shown(monkeypatch, tmp_path, variable, shown_by):
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
