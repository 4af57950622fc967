from pathlib import Path

import pytest

from redraft import ConfigError
from redraft.settings import load_settings, project_folder, without_password


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("REDRAFT_MODEL", "REDRAFT_REFLECTION_MODEL", "REDRAFT_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_defaults(tmp_path):
    settings = load_settings(tmp_path)
    assert (settings.model, settings.home, settings.models) == (None, ".redraft", {})


def test_environment_overrides_the_file(tmp_path, monkeypatch):
    (tmp_path / "redraft.toml").write_text('model = "a:b"\nhome = "here"\n[models]\nfast = "c:d"\n')
    assert load_settings(tmp_path).model == "a:b"
    monkeypatch.setenv("REDRAFT_MODEL", "e:f")
    settings = load_settings(tmp_path)
    assert (settings.model, settings.home, settings.models) == ("e:f", "here", {"fast": "c:d"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = ", "not valid TOML"),
        (f"model = {'[' * 10_000}", "not valid TOML"),
        (f"model = {'9' * 5_000}", "not valid TOML"),
        ('memory = "a\\u0000b"', "memory must not contain NUL characters"),
        (
            "modell = 'x'",
            r"unknown setting 'modell'; did you mean 'model'\? Expected one of 'dashboard_url', ",
        ),
        ("smtp_url = 'x'", "'smtp_url' no longer exists; agents notify people through one webhook: see "),
        ("model = 3", "must be a str"),
        ("models = 'x'", "must be a dict"),
        ("[models]\nfast = 3", "model name"),
        ("prices = 3", "prices must be a dict"),
        ("[prices]\n'openai:x' = 3", r"\[prices\] 'openai:x' must be two amounts in US dollars.*got 3"),
        ("[prices]\n'openai:x' = [1, -1]", "must be two amounts"),
        ("[prices]\n'openai:x' = [1, '2']", "must be two amounts"),
        ("[prices]\nfast = [1, 2]", "must have the full names of models, such as 'openai-chat:my-model'"),
        ("redact_allow = 3", "redact_allow must be a list of terms"),
        ("redact_allow = ['Acme', 3]", "redact_allow must be a list of terms"),
        ("redact_allow = [' - ']", "redact_allow has the term '-'"),
    ],
)
def test_invalid_file(tmp_path, text, message):
    (tmp_path / "redraft.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_settings(tmp_path)


def test_a_working_directory_that_was_deleted_is_named(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="The working directory can't be used: No such file or directory"):
        load_settings()


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def refuse(*_args):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "redraft.toml").write_text("")
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ConfigError, match=r"redraft\.toml' can't be read: Permission denied"):
        load_settings(tmp_path)


def test_project_folder(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_folder(inner) == inner
    (tmp_path / "redraft.toml").write_text('model = "local:x"')
    assert project_folder(inner) == tmp_path
    assert load_settings(inner).model == "local:x"


@pytest.mark.parametrize(("home", "expected"), [(None, ".redraft"), ("", ""), ("/x", "/x")])
def test_empty_home_stores_nothing(tmp_path, monkeypatch, home, expected):
    if home is not None:
        monkeypatch.setenv("REDRAFT_HOME", home)
    assert load_settings(tmp_path).home == expected


@pytest.mark.parametrize("name", ["database_url", "long_term_storage"])
@pytest.mark.parametrize(
    ("url", "expected"), [(None, None), ("", ""), ("postgresql://h/d", "postgresql://h/d")]
)
def test_an_empty_database_url_counts(tmp_path, monkeypatch, name, url, expected):
    if url is not None:
        monkeypatch.setenv(f"REDRAFT_{name.upper()}", url)
    assert getattr(load_settings(tmp_path), name) == expected
    assert "postgresql" not in repr(load_settings(tmp_path))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hush@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://me:hu@sh/hu:sh@host/db?a=b", "postgresql://me@host/db?a=b"),
        ("postgresql://:hu\nsh@/db", "postgresql://@/db"),
        ("postgresql://host/db?password=hush&user=me", "postgresql://host/db?password=...&user=me"),
        ("postgresql://host/db?user=me&sslPassword=hush", "postgresql://host/db?user=me&sslPassword=..."),
        ("postgresql://me@host:1/db", "postgresql://me@host:1/db"),
        ("", ""),
    ],
)
def test_url_without_password(url, shown):
    assert without_password(url) == shown


def test_allowed_terms_are_a_list_or_have_commas_between_them(tmp_path, monkeypatch):
    assert load_settings(tmp_path).redact_allow == ()
    (tmp_path / "redraft.toml").write_text('redact_allow = ["Acme Corp", "Lovelace, Ltd", "Acme Corp"]')
    assert load_settings(tmp_path).redact_allow == ("Acme Corp", "Lovelace, Ltd")
    monkeypatch.setenv("REDRAFT_REDACT_ALLOW", "Conventional  Commits, Ada,")
    assert load_settings(tmp_path).redact_allow == ("Conventional Commits", "Ada")
