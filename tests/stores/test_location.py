import socket
import traceback
from pathlib import Path

import pytest

from redraft import ConfigError
from redraft.stores.location import Place, project_place, project_store, store_at

URL = "postgresql://me:hush@host:5432/db"


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", ("{project}/.redraft/redraft.db", "")),
        ("home = ''", None),
        ("home = ''\ndatabase_url = '{url}'", None),
        ("home = 'kept'\nproject = 'mine'", ("{project}/kept/redraft.db", "")),
        ("home = '/shared'", ("/shared/redraft.db", "{project}")),
        ("home = '/shared'\nproject = 'mine'", ("/shared/redraft.db", "mine")),
        ("database_url = '{url}'", ("{url}", "{host}:{project}")),
        ("database_url = '{url}'\nproject = 'mine'", ("{url}", "mine")),
    ],
)
def test_the_location_comes_from_the_settings(project, settings, expected):
    names = {"project": project, "url": URL, "host": socket.gethostname()}
    (project / "redraft.toml").write_text(settings.format(**names))
    place = project_place()
    if expected is None:
        assert place is None
        assert project_store() is None
    else:
        assert (str(place.database), place.space) == tuple(each.format(**names) for each in expected)


def test_a_location_is_shown_without_its_password():
    assert str(Place(URL, "mine")) == "postgresql://me@host:5432/db (project 'mine')"
    assert str(Place(Path("/a/b"), "")) == "/a/b"


@pytest.mark.parametrize(
    ("url", "got"),
    [
        ("", "got none"),
        ("here", "got none"),
        ("mysql://me:hush@host/db", "got one that begins with 'mysql://'"),
        ("postgresql:/hush", "got none"),
        ("postgresql://me:hu@sh@host/db", "can't be parsed"),
        ("postgresql://me:hu/sh@host/db", "can't be parsed"),
        ("postgresql://host/db?hush=hush", "can't be parsed"),
        ("postgresql://me:%zz@host/db", "can't be parsed"),
        ("postgresql://me:hush\0@host/db", "can't be parsed"),
        ("postgresql://me:hush\ud800@host/db", "can't be parsed"),
    ],
)
def test_an_unsupported_url_is_refused_without_repeating_it(url, got):
    with pytest.raises(ConfigError, match=r"REDRAFT_DATABASE_URL.*postgresql://USER:PASSWORD@HOST") as found:
        Place(url, "mine").open()
    assert got in str(found.value)
    assert "hush" not in "".join(traceback.format_exception(found.value))


def test_a_path_that_no_file_can_have_is_refused():
    expected = r"^--database 'a{300}' can't be used: File name too long\.$"
    with pytest.raises(ConfigError, match=expected), store_at("a" * 300):
        pass
