"""Terms that the user allows are shown, unless they are secrets."""

import io
import logging

import pytest

from redraft import ConfigError
from redraft.redact import redact
from redraft.redact.kinds import Category
from redraft.redact.redactor import Redactor, redactor_of_environment

KEY = "sk-" + "proj-" + "Qw3rTy7uIoP9aSdF1gHjKl5z"
ALLOWED = [
    # the terms, a text, what becomes of it
    (["Olumide Fashola"], "asked by Olumide Fashola, who", "asked by Olumide Fashola, who"),
    (["olumide fashola"], "asked by Olumide\nFashola", "asked by Olumide\nFashola"),
    (["Olumide"], "asked by Olumide Fashola, who", "asked by Olumide [withheld: name], who"),
    (["Fashola"], "asked by Olumide Fashola, who", "asked by [withheld: name] Fashola, who"),
    (["Fash"], "asked by Olumide Fashola, who", "asked by [withheld: name], who"),
    (["Anna"], "Dear Anna, Bob", "Dear Anna, Bob"),
    (["Anna", "Anna Berg"], "Dear Anna Berg,", "Dear Anna Berg,"),
    (["analytical.co.uk"], "ada@analytical.co.uk", "[withheld: email address]"),
    (["ada@analytical.co.uk"], "ada@analytical.co.uk", "ada@analytical.co.uk"),
    (["db01.prod.internal"], "on db01.prod.internal", "on db01.prod.internal"),
    (["prod.internal"], "on db01.prod.internal", "on [withheld: host name]"),
    (["Caf\u00e9 Zo\u00eb (North)"], "met Caf\u00e9 Zo\u00eb (North)", "met Caf\u00e9 Zo\u00eb (North)"),
]


@pytest.mark.parametrize(("allow", "text", "expected"), ALLOWED)
def test_allowed_terms_are_not_withheld(allow, text, expected):
    redactor = Redactor(also=list(Category), allow=allow)
    assert redactor.redact(text).text == expected
    assert redactor.is_clean(expected)


def test_a_secret_is_withheld_even_if_it_is_allowed():
    assert KEY not in redact(f"export API_KEY={KEY}", allow=[KEY]).text
    assert "hush-hush-1" not in Redactor(["hush-hush-1"], allow=["hush-hush-1"]).redact("hush-hush-1").text


def test_a_name_of_this_machine_can_be_allowed(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "worker-north")
    assert redactor_of_environment().redact("on worker-north").text == "on [withheld: host name]"
    assert redactor_of_environment(allow=["worker-north"]).redact("on worker-north").text == "on worker-north"


def test_terms_of_the_project_are_allowed_everywhere(tmp_path, monkeypatch):
    from redraft.memory.safety import memory_redactor
    from redraft.redact.redactor import withheld

    text = "asked by Olumide Fashola, for Thandiwe Mokoena"
    (tmp_path / "redraft.toml").write_text('redact_allow = ["Olumide Fashola"]')
    monkeypatch.chdir(tmp_path)
    shown = [
        redact(text).text,
        redactor_of_environment().redact(text).text,
        memory_redactor().redact(text).text,
        withheld(text),
        logged(text),
    ]
    assert set(shown) == {"asked by Olumide Fashola, for [withheld: name]"}
    assert redact(text, allow=["Thandiwe Mokoena"]).text == text  # in addition to the terms of the project
    monkeypatch.setenv("REDRAFT_REDACT_ALLOW", "Thandiwe Mokoena")
    assert redact(text).text == "asked by [withheld: name], for Thandiwe Mokoena"


def logged(text):
    logger, stream = logging.getLogger("redraft"), io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        logger.warning("%s", text)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue().rstrip()


def test_nothing_is_allowed_by_invalid_settings(tmp_path, monkeypatch):
    (tmp_path / "redraft.toml").write_text('redact_allow = "Olumide Fashola')
    monkeypatch.chdir(tmp_path)
    assert redact("asked by Olumide Fashola").text == "asked by [withheld: name]"


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        ("Acme", r"allow must be a list of terms, such as \['Acme Corp'\], got 'Acme'"),
        ([b"Acme"], "allow must be a list of terms"),
        (["--"], "allow has the term '--'; a term needs a letter or a digit"),
    ],
)
@pytest.mark.parametrize("make", [lambda allow: Redactor(allow=allow), lambda allow: redact("", allow=allow)])
def test_terms_are_checked(make, allow, message):
    with pytest.raises(ConfigError, match=message):
        make(allow)
